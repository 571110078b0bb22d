// SPDX-License-Identifier: GPL-2.0
//! `xdc doctor`: what this host lacks, and the command that mends it.

use std::path::Path;

use crate::engine;
use crate::error::Result;
use crate::home::{self, Flavour, Home};
use crate::initramfs::find_program;

struct Finding {
    what: String,
    state: State,
}

enum State {
    Good(String),
    /// Works without, but less or slower.
    Note(String),
    /// The reason and the command.
    Bad(String, String),
}

/// Whether nothing is missing.
pub fn command() -> Result<bool> {
    let home = Home::find()?;
    let mut findings = programs();
    for flavour in [Flavour::X86, Flavour::Uml, Flavour::Debug] {
        findings.push(kernel(&home, flavour));
    }
    findings.push(built("agent", home.agent().map(|_| String::new())));
    findings.push(kvm(&home)?);
    findings.push(seccomp());
    for dir in [std::env::temp_dir(), Path::new(".").to_path_buf()] {
        findings.push(space(&dir));
    }
    let mut sound = true;
    for Finding { what, state } in findings {
        match state {
            State::Good(detail) => println!("ok    {what} {detail}"),
            State::Note(detail) => println!("note  {what}: {detail}"),
            State::Bad(why, mend) => {
                sound = false;
                println!("BAD   {what}: {why}\n      try: {mend}");
            }
        }
    }
    Ok(sound)
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
    .map(|(program, package)| Finding {
        what: program.to_owned(),
        state: match find_program(program) {
            Some(path) => State::Good(path.display().to_string()),
            None => State::Bad(
                "not installed".to_owned(),
                format!("apt-get install {package}"),
            ),
        },
    })
    .collect()
}

fn kernel(home: &Home, flavour: Flavour) -> Finding {
    let found = home
        .kernel(flavour)
        .and_then(|_| home.modules(flavour))
        .and_then(|modules| {
            Ok(format!(
                "Linux {}, {} modules",
                home.release(flavour)?,
                modules.len()
            ))
        });
    let finding = built(&format!("kernel {}", flavour.name()), found);
    match (flavour, finding.state) {
        (Flavour::Debug, State::Bad(why, _)) => Finding {
            what: finding.what,
            state: State::Note(format!("{why}; make test builds it")),
        },
        (_, state) => Finding {
            what: finding.what,
            state,
        },
    }
}

fn built(what: &str, found: Result<String>) -> Finding {
    Finding {
        what: what.to_owned(),
        state: match found {
            Ok(detail) => State::Good(detail),
            Err(err) => State::Bad(err.to_string(), "make".to_owned()),
        },
    }
}

fn kvm(home: &Home) -> Result<Finding> {
    let state = if !Path::new("/dev/kvm").exists() {
        State::Note("no /dev/kvm, so guests are emulated".to_owned())
    } else if home.kernel(Flavour::X86).is_err() || home.agent().is_err() {
        State::Note("not probed: that takes a kernel and an agent".to_owned())
    } else if engine::kvm_works(home, Flavour::X86)? {
        State::Good("runs a guest".to_owned())
    } else {
        State::Note("/dev/kvm is there but does not run a guest, so guests are emulated".to_owned())
    };
    Ok(Finding {
        what: "KVM".to_owned(),
        state,
    })
}

/// UML's processes are held by seccomp filters.
fn seccomp() -> Finding {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    Finding {
        what: "seccomp".to_owned(),
        state: match actions {
            Ok(actions) if actions.contains("trap") => State::Good("for UML".to_owned()),
            _ => State::Bad(
                "this host's kernel has no seccomp filters, which the UML engine needs".to_owned(),
                "--engine qemu".to_owned(),
            ),
        },
    }
}

fn space(dir: &Path) -> Finding {
    Finding {
        what: format!("space in {}", dir.display()),
        state: match home::require_space(dir) {
            Ok(()) => State::Good(String::new()),
            Err(err) => State::Bad(err.to_string(), "free some disk space".to_owned()),
        },
    }
}
