// SPDX-License-Identifier: GPL-2.0
//! Requirements of our modules for a kernel, and of their traffic for a host.

use std::fs;
use std::path::{Path, PathBuf};

use xdc_algo::MODULES;
use xdc_algo::params::ParamInfo;
use xdc_proto::privileged;

use super::{Finding, under};
use crate::setup::kconfig::{self, Config};

/// Supported kernel series, as `XDC_KNOWN_SERIES` of qemu-images/common.sh. All tests run with the
/// first; the others run those of User Mode Linux.
const SERIES: [&str; 2] = ["7.3", "7.2"];
/// Plugin folders of iproute2, by distribution.
const TC_DIRS: [&str; 4] = ["usr/lib/tc", "usr/lib64/tc", "usr/lib/x86_64-linux-gnu/tc", "lib/tc"];

pub struct Kernel {
    root: PathBuf,
    release: String,
    /// The build tree.
    kdir: PathBuf,
    /// Whether it is the running kernel.
    running: bool,
    config: Option<(PathBuf, Config)>,
}

impl Kernel {
    pub fn at(root: &Path, running: &str, kdir: Option<&Path>) -> Self {
        let default = root.join("lib/modules").join(running).join("build");
        let kdir = kdir.map_or(default, Path::to_path_buf);
        let named = fs::read_to_string(kdir.join("include/config/kernel.release"));
        let release = named.map_or(running.to_owned(), |text| text.trim().to_owned());
        let runs = release == running;
        let config = match fs::read_to_string(kdir.join(".config")) {
            Ok(text) => Some((kdir.join(".config"), Config::parse(&text))),
            Err(_) => kconfig::of_kernel(root, &release, runs),
        };
        Self { root: root.to_path_buf(), release, kdir, running: runs, config }
    }

    fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(under(&self.root, path)).ok()?;
        Some(text.trim().to_owned())
    }
}

pub fn findings(kernel: &Kernel) -> Vec<Finding> {
    let mut findings = vec![version(kernel), options(kernel), metadata(kernel), signatures(kernel)];
    if kernel.running {
        findings.push(installed(kernel));
    }
    findings.push(ecn(kernel));
    findings.push(pacing(kernel));
    findings.push(tlt(kernel));
    findings.extend(devices(kernel));
    findings.push(plugin(kernel));
    findings
}

fn version(kernel: &Kernel) -> Finding {
    let release = &kernel.release;
    let is_of = |series: &&str| {
        let rest = release.strip_prefix(*series);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if is_of(&SERIES[0]) {
        return Finding::ok("kernel", release.clone());
    }
    if SERIES.iter().any(is_of) {
        return Finding::warn(
            "kernel",
            format!(
                "{release}: the modules build, load and pass their selftests in virtual time; most \
                 tests use only Linux {}",
                SERIES[0]
            ),
            "the selftests in a guest: make selftests-7.2",
        );
    }
    let known = SERIES.join(" and ");
    Finding::fail(
        "kernel",
        format!("{release} is unknown: the modules build for Linux {known} only"),
        format!("boot Linux {}, such as Debian's (trixie-backports)", SERIES[0]),
    )
}

fn options(kernel: &Kernel) -> Finding {
    let Some((path, config)) = &kernel.config else {
        return Finding::warn(
            "kernel options",
            "this kernel's configuration was not found",
            "xdc doctor --kdir DIR, its build tree",
        );
    };
    let wanted = ["MODULES", "RUST", "NET_SCHED"];
    let missing: Vec<_> = wanted
        .iter()
        .filter(|name| !config.is_on(name))
        .map(|name| format!("CONFIG_{name}=y"))
        .collect();
    match missing.is_empty() {
        true => Finding::ok("kernel options", format!("CONFIG_RUST=y in {}", path.display())),
        false => Finding::fail(
            "kernel options",
            format!("lacks {} in {}", missing.join(" "), path.display()),
            "a kernel with these options, such as Debian's 7.3, or a guest (make)",
        ),
    }
}

fn metadata(kernel: &Kernel) -> Finding {
    let kdir = kernel.kdir.display();
    if !kernel.kdir.join("Makefile").exists() {
        return Finding::fail(
            "Rust metadata",
            format!("{kdir} is not a build tree"),
            format!("apt-get install linux-headers-{}", kernel.release),
        );
    }
    if !kernel.kdir.join("rust/libkernel.rmeta").exists() {
        return Finding::fail(
            "Rust metadata",
            format!("missing in {kdir}, as in most header packages"),
            format!("xdc kdir --headers {kdir}"),
        );
    }
    Finding::ok("Rust metadata", format!("{kdir}/rust"))
}

/// Whether the kernel loads a module without a trusted signature.
fn signatures(kernel: &Kernel) -> Finding {
    const WHAT: &str = "module signatures";
    const FIX: &str =
        "make install SIGN_KEY=FILE SIGN_CERT=FILE, a key that is enrolled (mokutil --import)";
    let forced = kernel.config.as_ref().is_some_and(|(_, config)| config.is_on("MODULE_SIG_FORCE"));
    let of_running = |path: &str| kernel.running.then(|| kernel.read(path)).flatten();
    let enforced = of_running("sys/module/module/parameters/sig_enforce").as_deref() == Some("Y");
    // The active mode is in brackets.
    let lockdown = of_running("sys/kernel/security/lockdown").unwrap_or_default();
    let locked = ["[integrity]", "[confidentiality]"].iter().any(|mode| lockdown.contains(mode));
    let secure = kernel.running && secure_boot(&kernel.root);
    if forced || enforced || locked {
        let why = match (forced, enforced) {
            (true, _) => "CONFIG_MODULE_SIG_FORCE is on",
            (false, true) => "signatures are enforced (module.sig_enforce)",
            (false, false) => "the kernel is locked down",
        };
        Finding::fail(WHAT, format!("{why}: an unsigned module is refused"), FIX)
    } else if secure {
        Finding::warn(WHAT, "secure boot is on: a distribution may refuse unsigned modules", FIX)
    } else {
        Finding::ok(WHAT, "not required")
    }
}

/// Whether Secure Boot is on: byte 4, after four bytes of attributes.
fn secure_boot(root: &Path) -> bool {
    let name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    fs::read(root.join(name)).is_ok_and(|bytes| bytes.get(4) == Some(&1))
}

fn installed(kernel: &Kernel) -> Finding {
    let dir = kernel.root.join("lib/modules").join(&kernel.release);
    let folders = ["updates/xdc", "updates/dkms", "updates", "extra"];
    let there = |module: &&str| {
        folders.iter().any(|folder| {
            let path = |ext: &str| dir.join(folder).join(format!("{module}{ext}"));
            ["", ".xz", ".zst", ".gz"].iter().any(|packed| path(&format!(".ko{packed}")).exists())
        })
    };
    let missing: Vec<_> = ours().filter(|module| !there(module)).collect();
    match missing.is_empty() {
        true => Finding::ok("modules", format!("installed for {}", kernel.release)),
        false => Finding::fail(
            "modules",
            format!("not installed for {}: {}", kernel.release, missing.join(" ")),
            format!("sudo make install KDIR={}", kernel.kdir.display()),
        ),
    }
}

/// Modules installed by `make install`.
fn ours() -> impl Iterator<Item = &'static str> {
    let ours = MODULES.iter().filter(|module| module.is_installed());
    ours.map(|module| module.name)
}

/// Checks this end's ECN setting; both ends must agree.
fn ecn(kernel: &Kernel) -> Finding {
    const OTHER: &str =
        "check the other end: `sysctl net.ipv4.tcp_ecn` there, `ss -tio` shows 'ecn' here";
    let fix = "sysctl -w net.ipv4.tcp_ecn=3";
    match kernel.read("proc/sys/net/ipv4/tcp_ecn").as_deref() {
        Some("3" | "4" | "5") => Finding::ok("ECN", format!("AccECN is negotiated; {OTHER}")),
        Some("1") => Finding::warn(
            "ECN",
            format!(
                "RFC 3168, one bit per round trip, so gemini and unocc know less about congestion; {OTHER}"
            ),
            fix,
        ),
        Some("2") => Finding::warn(
            "ECN",
            format!("accepted but not requested: no packet is marked; {OTHER}"),
            fix,
        ),
        Some("0") => Finding::warn("ECN", format!("off: no packet is marked; {OTHER}"), fix),
        _ => Finding::warn("ECN", "net.ipv4.tcp_ecn cannot be read", "sysctl net.ipv4.tcp_ecn"),
    }
}

fn pacing(kernel: &Kernel) -> Finding {
    match kernel.read("proc/sys/net/core/default_qdisc").as_deref() {
        Some("fq") => Finding::ok("pacing", "fq paces new devices' packets"),
        Some(other) => Finding::ok(
            "pacing",
            format!(
                "by TCP's own timers ({other} does not pace; `tc qdisc replace dev DEV root fq` costs less at many flows)"
            ),
        ),
        None => Finding::ok("pacing", "by TCP's own timers"),
    }
}

/// Two equal net.tlt.dscp_*, in the order in which marks are matched.
fn equal_dscps(
    sysctl: &impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, &'static str, String)> {
    let names = xdc_algo::tlt::PARAMS.iter().map(ParamInfo::name);
    let names: Vec<_> = names.filter(|name| name.starts_with("dscp_")).collect();
    let dscps: Vec<_> = names.iter().map(|name| sysctl(&format!("tlt/{name}"))).collect();
    let mut pairs = (0..names.len()).flat_map(|i| (i + 1..names.len()).map(move |j| (i, j)));
    let (i, j) = pairs.find(|&(i, j)| dscps[i].is_some() && dscps[i] == dscps[j])?;
    Some((names[i], names[j], dscps[i].clone()?))
}

/// The first unmet requirement of `tlt` beyond the other modules'.
fn tlt(kernel: &Kernel) -> Finding {
    const WHAT: &str = "TLT";
    let sysctl = |name: &str| kernel.read(&format!("proc/sys/net/{name}"));
    if let Some((path, config)) = &kernel.config
        && !config.is_on("NETFILTER")
    {
        return Finding::warn(
            WHAT,
            format!("tlt cannot be loaded: no CONFIG_NETFILTER=y in {}", path.display()),
            "a kernel with it; the other modules do not need it",
        );
    }
    if sysctl("ipv4/tcp_sack").as_deref() == Some("0") {
        return Finding::warn(
            WHAT,
            "net.ipv4.tcp_sack is 0: no connection uses TLT",
            "sysctl -w net.ipv4.tcp_sack=1",
        );
    }
    let enabled = sysctl("tlt/enabled");
    if enabled.as_deref() == Some("1")
        && let Some((first, second, dscp)) = equal_dscps(&sysctl)
    {
        return Finding::warn(
            WHAT,
            format!("on, but {first} and {second} are both {dscp}: a mark counts as {first}"),
            format!("sysctl -w net.tlt.{second}=N, at both ends"),
        );
    }
    match enabled.as_deref() {
        None => Finding::ok(WHAT, "can be loaded: modprobe tlt"),
        Some("1") => match sysctl("ipv4/tcp_reordering").as_deref() {
            Some("1") => Finding::ok(WHAT, "on"),
            other => Finding::warn(
                WHAT,
                format!(
                    "on, but TCP waits for {} duplicate ACKs before it retransmits",
                    other.unwrap_or("several")
                ),
                "sysctl -w net.ipv4.tcp_reordering=1",
            ),
        },
        Some(_) => Finding::ok(WHAT, "loaded and off: sysctl -w net.tlt.enabled=1"),
    }
}

/// Findings about network cards: interfaces with a device.
fn devices(kernel: &Kernel) -> Vec<Finding> {
    let dir = kernel.root.join("sys/class/net");
    let mut names: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let mtus: Vec<_> =
        names.iter().filter_map(|name| kernel.read(&format!("sys/class/net/{name}/mtu"))).collect();
    let mut findings = Vec::new();
    if let Some(first) = mtus.first() {
        findings.push(match mtus.iter().all(|mtu| mtu == first) {
            true => Finding::ok("MTU", format!("{first} bytes: {}", names.join(" "))),
            false => Finding::warn(
                "MTU",
                format!("differs: {} bytes on {}", mtus.join(", "), names.join(", ")),
                "ip link set DEV mtu N; test the path: ping -M do -s (N - 28) OTHER",
            ),
        });
    }
    for name in names {
        let features = privileged::ethtool_features(&name)
            .ok()
            .flatten()
            .and_then(|mut ethtool| ethtool.output().ok())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        if let Some(features) = features {
            findings.push(offloads(&name, &features));
        }
    }
    findings
}

/// Finding from the text of `ethtool -k`.
fn offloads(name: &str, features: &str) -> Finding {
    let what = format!("offloads of {name}");
    let on = |feature: &str| {
        features
            .lines()
            .filter_map(|line| line.split_once(':'))
            .any(|(key, value)| key.trim() == feature && value.trim().starts_with("on"))
    };
    let large: Vec<_> = [
        ("tcp-segmentation-offload", "tso"),
        ("generic-segmentation-offload", "gso"),
        ("generic-receive-offload", "gro"),
    ]
    .into_iter()
    .filter(|(feature, _)| on(feature))
    .map(|(_, short)| short)
    .collect();
    if large.is_empty() {
        return Finding::ok(&what, "off: a qdisc sees packets as sent on the wire");
    }
    let words: Vec<_> = large.iter().map(|short| format!("{short} off")).collect();
    Finding::warn(
        &what,
        format!(
            "{} on: fine for a sender, and phantom splits packets before it marks (gso auto); other qdiscs, such as red, mark 64 kB at once",
            large.join(", ")
        ),
        format!("if a qdisc other than phantom marks: ethtool -K {name} {}", words.join(" ")),
    )
}

fn plugin(kernel: &Kernel) -> Finding {
    let found = TC_DIRS
        .iter()
        .map(|dir| kernel.root.join(dir).join("q_phantom.so"))
        .find(|path| path.exists());
    match found {
        Some(path) => Finding::ok("tc plugin", path.display().to_string()),
        None => Finding::warn(
            "tc plugin",
            "tc does not know phantom's options",
            "make install; or xdc qdisc, which has tc's syntax",
        ),
    }
}

#[cfg(test)]
mod tests;
