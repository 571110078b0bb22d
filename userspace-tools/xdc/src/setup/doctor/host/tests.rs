// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::setup::doctor::Verdict;

/// File system in which a test writes the kernel's files.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn kernel(&self) -> Kernel {
        Kernel::at(self.0.path(), "7.3.4-x", None)
    }
}

#[test]
fn a_kernel_is_judged_by_its_series_and_options() {
    let root = Root::new();
    for (known, verdict) in SERIES.into_iter().zip([Verdict::Ok, Verdict::Warn]) {
        let kernel = Kernel::at(root.0.path(), &format!("{known}.4-x"), None);
        assert_eq!(version(&kernel).verdict, verdict, "{known}");
    }
    for other in ["6.18.0", "7.30.1", "7.1.9", "8.0.0"] {
        let kernel = Kernel::at(root.0.path(), other, None);
        let finding = version(&kernel);
        assert_eq!(finding.verdict, Verdict::Fail, "{other}");
        assert!(finding.detail.contains("unknown"), "{}", finding.detail);
    }
    assert_eq!(options(&root.kernel()).verdict, Verdict::Warn);
    let root = root.with("boot/config-7.3.4-x", "CONFIG_MODULES=y\nCONFIG_NET_SCHED=y\n");
    let lacks = options(&root.kernel());
    assert!(lacks.verdict == Verdict::Fail && lacks.detail.contains("CONFIG_RUST=y"));
}

#[test]
fn known_kernels_match_the_build() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../qemu-images/common.sh");
    let text = fs::read_to_string(path).unwrap();
    let line = format!("XDC_KNOWN_SERIES=\"{}\"", SERIES.join(" "));
    assert!(text.lines().any(|it| it == line), "{line}");
}

#[test]
fn headers_without_metadata_hint_at_xdc_kdir() {
    let build = "lib/modules/7.3.4-x/build";
    let root = Root::new();
    assert!(metadata(&root.kernel()).fix.unwrap().contains("linux-headers-7.3.4-x"));
    let root = root.with(&format!("{build}/Makefile"), "");
    assert!(metadata(&root.kernel()).fix.unwrap().starts_with("xdc kdir"));
    let root = root.with(&format!("{build}/rust/libkernel.rmeta"), "");
    assert_eq!(metadata(&root.kernel()).verdict, Verdict::Ok);
}

#[test]
fn each_signature_requirement_is_detected() {
    let verdict = |root: Root| signatures(&root.kernel()).verdict;
    assert_eq!(verdict(Root::new()), Verdict::Ok);
    let lockdown = "sys/kernel/security/lockdown";
    assert_eq!(
        verdict(Root::new().with(lockdown, "[none] integrity confidentiality")),
        Verdict::Ok
    );
    for (path, text) in [
        (lockdown, "none [integrity] confidentiality"),
        ("sys/module/module/parameters/sig_enforce", "Y\n"),
        ("boot/config-7.3.4-x", "CONFIG_MODULE_SIG_FORCE=y\n"),
    ] {
        assert_eq!(verdict(Root::new().with(path, text)), Verdict::Fail, "{path}");
    }
    let efi = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    assert_eq!(verdict(Root::new().with(efi, "\u{6}\0\0\0\u{1}")), Verdict::Warn);
    assert_eq!(verdict(Root::new().with(efi, "\u{6}\0\0\0\0")), Verdict::Ok);
}

#[test]
fn ecn_that_is_not_requested_is_a_warning() {
    let of = |value: &str| ecn(&Root::new().with("proc/sys/net/ipv4/tcp_ecn", value).kernel());
    assert_eq!(of("3\n").verdict, Verdict::Ok);
    for value in ["0", "1", "2", "x"] {
        assert_eq!(of(value).verdict, Verdict::Warn, "{value}");
    }
    assert!(of("2").fix.unwrap().ends_with("tcp_ecn=3"));
}

#[test]
fn missing_requirements_of_tlt_are_named() {
    let of = |root: &Root| tlt(&root.kernel());
    let config = "boot/config-7.3.4-x";
    let lacking = of(&Root::new().with(config, "CONFIG_MODULES=y\n"));
    assert!(lacking.verdict == Verdict::Warn && lacking.detail.contains("CONFIG_NETFILTER=y"));
    let root = Root::new().with(config, "CONFIG_NETFILTER=y\n");
    assert_eq!(of(&root).verdict, Verdict::Ok);
    let root = root.with("proc/sys/net/ipv4/tcp_sack", "0\n");
    assert!(of(&root).fix.unwrap().ends_with("tcp_sack=1"));
    let root = root
        .with("proc/sys/net/ipv4/tcp_sack", "1\n")
        .with("proc/sys/net/ipv4/tcp_reordering", "3\n")
        .with("proc/sys/net/tlt/enabled", "0\n");
    assert_eq!(of(&root).verdict, Verdict::Ok);
    let root = root.with("proc/sys/net/tlt/enabled", "1\n");
    let waits = of(&root);
    assert!(waits.detail.contains("3 duplicate ACKs"));
    assert!(waits.fix.unwrap().ends_with("tcp_reordering=1"));
    let root = root.with("proc/sys/net/ipv4/tcp_reordering", "1\n");
    assert_eq!(of(&root).detail, "on");
    let root = root
        .with("proc/sys/net/tlt/dscp_echo", "23\n")
        .with("proc/sys/net/tlt/dscp_control", "47\n");
    assert_eq!(of(&root).detail, "on");
    let root = root.with("proc/sys/net/tlt/dscp_control", "23\n");
    assert!(of(&root).detail.contains("dscp_echo and dscp_control are both 23"));
}

#[test]
fn offloads_are_named_with_the_command_that_disables_them() {
    let text = "Features for eth0:\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\n\
                    generic-segmentation-offload: off [requested on]\ngeneric-receive-offload: on\n";
    let finding = offloads("eth0", text);
    assert_eq!(finding.verdict, Verdict::Warn);
    assert!(finding.fix.unwrap().ends_with("ethtool -K eth0 tso off gro off"));
    assert_eq!(offloads("eth0", "tcp-segmentation-offload: off\n").verdict, Verdict::Ok);
}

#[test]
fn different_mtus_are_a_warning() {
    let root = Root::new()
        .with("sys/class/net/eth0/mtu", "9000\n")
        .with("sys/class/net/eth0/device/x", "")
        .with("sys/class/net/lo/mtu", "65536\n");
    let mtu = |root: &Root| {
        let found = devices(&root.kernel());
        found.into_iter().find(|f| f.what == "MTU").unwrap().verdict
    };
    assert_eq!(mtu(&root), Verdict::Ok);
    let root =
        root.with("sys/class/net/eth1/mtu", "1500\n").with("sys/class/net/eth1/device/x", "");
    assert_eq!(mtu(&root), Verdict::Warn);
}

#[test]
fn installed_modules_and_plugin_are_found() {
    let mut root = Root::new();
    assert_eq!(installed(&root.kernel()).verdict, Verdict::Fail);
    assert_eq!(plugin(&root.kernel()).verdict, Verdict::Warn);
    for module in ours() {
        root = root.with(&format!("lib/modules/7.3.4-x/updates/xdc/{module}.ko"), "");
    }
    let root = root.with("usr/lib/tc/q_phantom.so", "");
    assert_eq!(installed(&root.kernel()).verdict, Verdict::Ok);
    assert_eq!(plugin(&root.kernel()).verdict, Verdict::Ok);
}
