// SPDX-License-Identifier: GPL-2.0
//! Requirements of guests for this machine.

use std::path::Path;

use clap::ValueEnum;
use xdc_base::error::Result;
use xdc_base::home::{self, Flavour, Home};
use xdc_guest::engine;
use xdc_guest::initramfs::find_program;
use xdc_guest::room;

use super::Finding;

/// Memory of two guests: `make test` runs a selftest's guest, with 2 GB, beside another one.
const MEMORY_MB: u64 = 3072;

pub fn findings(home: &Home) -> Result<Vec<Finding>> {
    let mut findings = programs();
    for flavour in Flavour::value_variants() {
        findings.push(kernel(home, *flavour));
    }
    findings.push(built("agent", home.agent().map(|_| "built".to_owned())));
    findings.push(kvm(home)?);
    findings.push(seccomp());
    findings.push(processor());
    for dir in [std::env::temp_dir(), Path::new(".").to_path_buf()] {
        findings.push(space(&dir));
    }
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    findings.push(memory(&meminfo));
    Ok(findings)
}

/// Finding from the text of /proc/meminfo.
fn memory(meminfo: &str) -> Finding {
    match room::available_mb(meminfo) {
        Some(mb) if mb >= MEMORY_MB => Finding::ok("memory", format!("{mb} MB available")),
        Some(mb) => Finding::warn(
            "memory",
            format!("{mb} MB available, but two guests of the tests need {MEMORY_MB} MB"),
            "xdc run --jobs 1",
        ),
        None => Finding::warn("memory", "/proc/meminfo has no MemAvailable", "free -m"),
    }
}

fn programs() -> Vec<Finding> {
    [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("depmod", "kmod"),
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("ss", "iproute2"),
        ("sysctl", "procps"),
        ("ethtool", "ethtool"),
        ("ldd", "libc-bin"),
    ]
    .into_iter()
    .map(|(program, package)| match find_program(program) {
        Some(path) => Finding::ok(program, path.display().to_string()),
        None => Finding::fail(program, "not installed", format!("apt-get install {package}")),
    })
    .collect()
}

fn kernel(home: &Home, flavour: Flavour) -> Finding {
    let found = home.kernel(flavour).and_then(|_| home.modules(flavour)).and_then(|modules| {
        Ok(format!("Linux {}, {} modules", home.release(flavour)?, modules.len()))
    });
    let what = format!("kernel {}", flavour.name());
    match (flavour, found) {
        // Needed only for tests.
        (Flavour::UmlDebug, Err(err)) => Finding::warn(&what, err.to_string(), "make test"),
        (Flavour::Debug, Err(err)) => Finding::warn(&what, err.to_string(), "make test-long"),
        (_, found) => built(&what, found),
    }
}

fn built(what: &str, found: Result<String>) -> Finding {
    match found {
        Ok(detail) => Finding::ok(what, detail),
        Err(err) => Finding::fail(what, err.to_string(), "make"),
    }
}

/// Probes KVM again: the doctor reports the current state, not a cached one.
fn kvm_works_now(home: &Home) -> Result<bool> {
    engine::forget_kvm(Flavour::X86);
    engine::kvm_works(home, Flavour::X86)
}

fn kvm(home: &Home) -> Result<Finding> {
    const MEND: &str = "--engine uml, which needs no KVM; --engine qemu emulates, which is slower";
    Ok(if !Path::new("/dev/kvm").exists() {
        Finding::warn("KVM", "no /dev/kvm, so guests are emulated", MEND)
    } else if home.kernel(Flavour::X86).is_err() || home.agent().is_err() {
        Finding::warn("KVM", "not probed: the guest's kernel or agent is missing", "make")
    } else if kvm_works_now(home)? {
        Finding::ok("KVM", "runs a guest")
    } else {
        let why = "/dev/kvm exists but cannot run a guest, so guests are emulated";
        Finding::warn("KVM", why, MEND)
    })
}

/// UML controls its processes by seccomp filters.
fn seccomp() -> Finding {
    match std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("trap") => Finding::ok("seccomp", "for UML"),
        _ => Finding::fail(
            "seccomp",
            "this host's kernel has no seccomp filters, which the UML engine needs",
            "xdc run two-dc-1g --engine qemu",
        ),
    }
}

fn processor() -> Finding {
    if engine::runs_uml() {
        Finding::ok("processor", "has XSAVE, for UML")
    } else {
        Finding::fail(
            "processor",
            "no XSAVE, which the UML engine needs",
            "xdc run two-dc-1g --engine qemu; in a virtual machine, give it the host's processor",
        )
    }
}

fn space(dir: &Path) -> Finding {
    let what = format!("space in {}", dir.display());
    match home::require_space(dir) {
        Ok(()) => Finding::ok(&what, "enough"),
        Err(err) => Finding::fail(&what, err.to_string(), "df -h, and free some space"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::doctor::Verdict;

    #[test]
    fn little_memory_is_a_warning() {
        let verdict = |text: &str| memory(text).verdict;
        assert_eq!(verdict("MemTotal: 1 kB\nMemAvailable:    8388608 kB\n"), Verdict::Ok);
        assert_eq!(verdict("MemAvailable:    1048576 kB\n"), Verdict::Warn);
        assert_eq!(verdict(""), Verdict::Warn);
    }
}
