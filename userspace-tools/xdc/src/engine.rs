// SPDX-License-Identifier: GPL-2.0
//! How a guest is started: QEMU with KVM or emulation, or User Mode Linux in virtual time. Or no
//! guest: the agent in namespaces of the running kernel.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use xdc_proto::{Job, Message, Plan, alarm::CONSOLE_LEVEL};

use crate::error::{Error, Result};
use crate::guest::{Guest, Watch};
use crate::home::{self, Flavour, Home};
use crate::initramfs::{self, find_program, missing};
use crate::tether;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A real x86_64 machine, emulated where KVM does not work.
    Qemu,
    /// User Mode Linux: virtual time, so the guest is a discrete-event simulator.
    Uml,
    /// The running kernel: network namespaces, real time, root only.
    Host,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Uml => "uml",
            Self::Host => "host",
        }
    }
}

/// An engine, ready to start guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Qemu {
        accel: Accel,
        flavour: Flavour,
    },
    Uml,
    /// What a plan needs of the kernel is looked for by [`crate::host`].
    Host,
}

/// What an emulated guest's time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The host's, so that a person can live with it.
    Wall,
    /// Counted instructions unless there is KVM: the host's load and the emulator's lateness
    /// (tens of us for each timer) do not get into what is measured.
    Measuring,
    /// Counted instructions, KVM or not.
    Icount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    Kvm,
    Tcg,
    /// Emulation whose clock counts instructions.
    Icount,
}

impl Accel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
            Self::Icount => "icount",
        }
    }
}

/// What a guest is given.
pub struct Machine {
    pub cpus: u32,
    pub memory_mb: u64,
}

/// The files of one guest, all in one temporary directory.
pub struct Files<'a> {
    pub dir: &'a Path,
    /// UML's RAM.
    pub memory_dir: &'a Path,
    pub initramfs: &'a Path,
    pub messages: &'a Path,
}

impl Engine {
    /// Of the guest's kernel.
    fn flavour(self) -> Option<Flavour> {
        match self {
            Self::Qemu { flavour, .. } => Some(flavour),
            Self::Uml => Some(Flavour::Uml),
            Self::Host => None,
        }
    }

    /// The guest's kernel, for those that have no use for the host's.
    pub fn guest_flavour(self) -> Result<Flavour> {
        self.flavour()
            .ok_or_else(|| Error::usage("this takes a guest").hint("--engine qemu or uml"))
    }

    /// Write what the agent finds its plan in: a guest's root, or the plan alone.
    pub fn write_root(self, home: &Home, plan: &Plan, files: &Files<'_>) -> Result<()> {
        if let Some(flavour) = self.flavour() {
            return initramfs::write(home, flavour, plan, files.initramfs, files.dir);
        }
        let json = serde_json::to_vec(plan)
            .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
        fs::write(files.initramfs, json).map_err(|err| Error::io(files.initramfs.display(), &err))
    }

    /// How to stop it: a guest has nothing to tidy up.
    pub fn stops_by(self) -> Signal {
        match self {
            Self::Qemu { .. } | Self::Uml => Signal::KILL,
            Self::Host => Signal::TERM,
        }
    }

    /// For summaries: `qemu-tcg`, `uml`.
    pub fn kind(self) -> Kind {
        match self {
            Self::Qemu { .. } => Kind::Qemu,
            Self::Uml => Kind::Uml,
            Self::Host => Kind::Host,
        }
    }

    pub fn accel(self) -> Option<&'static str> {
        match self {
            Self::Qemu { accel, .. } => Some(accel.name()),
            Self::Uml | Self::Host => None,
        }
    }

    /// Choose KVM only where it was seen to run a guest, else emulation by `clock`.
    pub fn new(home: &Home, kind: Kind, flavour: Flavour, clock: Clock) -> Result<Self> {
        let flavour = match kind {
            Kind::Uml => Flavour::Uml,
            Kind::Qemu => flavour,
            Kind::Host => {
                return Err(Error::usage("--engine host is for `xdc run` alone")
                    .hint("--engine qemu or uml"));
            }
        };
        // Here, so that what is missing is said once and not by every guest.
        home.kernel(flavour)?;
        home.agent()?;
        home.modules(flavour)?;
        match kind {
            Kind::Host => Ok(Self::Host),
            Kind::Uml if runs_uml() => Ok(Self::Uml),
            Kind::Uml => Err(Error::failure(
                "this machine's processor has no XSAVE, which User Mode Linux needs",
            )
            .hint("--engine qemu; in a virtual machine, one whose processor is the host's")),
            Kind::Qemu => {
                find_program(QEMU).ok_or_else(|| missing(QEMU, "qemu-system-x86"))?;
                let accel = match clock {
                    Clock::Icount => Accel::Icount,
                    _ if kvm_works(home, flavour)? => Accel::Kvm,
                    Clock::Measuring => Accel::Icount,
                    Clock::Wall => Accel::Tcg,
                };
                Ok(Self::Qemu { accel, flavour })
            }
        }
    }

    /// The command; its stdout is the console, unless `interactive`: then the console is ours.
    /// In virtual time `seed` is where the guest's kernel takes all randomness from.
    pub fn command(
        self,
        home: &Home,
        machine: &Machine,
        files: &Files<'_>,
        seed: u64,
        interactive: bool,
    ) -> Result<Command> {
        let kernel = |flavour| {
            std::path::absolute(home.kernel(flavour)?)
                .map_err(|err| Error::io("finding the kernel", &err))
        };
        let mut command = match self {
            Self::Qemu { accel, flavour } => {
                let kernel = kernel(flavour)?;
                qemu(accel, flavour, &kernel, machine, files, interactive)
            }
            Self::Uml => uml(&kernel(Flavour::Uml)?, machine, files, seed, interactive),
            // It tethers itself, more gently than we would: see agent/src/host.rs.
            Self::Host => {
                let mut command = Command::new(home.agent()?);
                command
                    .arg("host")
                    .args([files.initramfs, files.messages])
                    .arg(std::process::id().to_string());
                command
            }
        };
        if !interactive {
            command.stdin(Stdio::null());
        }
        Ok(command)
    }
}

/// UML reads its processes' registers as XSAVE lays them out (arch/x86/um/os-Linux/registers.c).
pub fn runs_uml() -> bool {
    std::arch::is_x86_feature_detected!("xsave")
}

const QEMU: &str = "qemu-system-x86_64";

fn qemu(
    accel: Accel,
    flavour: Flavour,
    kernel: &Path,
    machine: &Machine,
    files: &Files<'_>,
    interactive: bool,
) -> Command {
    let mut command = tether::command(&find_program(QEMU).unwrap_or_else(|| QEMU.into()));
    match accel {
        Accel::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        Accel::Tcg => command.args(["-accel", "tcg", "-cpu", "max"]),
        Accel::Icount => command.args([
            "-accel",
            "tcg,thread=single",
            "-cpu",
            "max",
            "-icount",
            "shift=0,sleep=off",
        ]),
    };
    // Who waits for RCU waits for milliseconds, not for tens of them; and who dumps all sockets
    // takes the lock of each bucket, which costs a second when there are 16,384. What is checked
    // is the same.
    let patience = match flavour {
        Flavour::Debug => " rcupdate.rcu_expedited=1 thash_entries=1024",
        _ => "",
    };
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-no-reboot", "-monitor", "none"])
        .args(["-smp", &machine.cpus.to_string()])
        .args(["-m", &format!("{}M", machine.memory_mb)])
        // With signal=off a Ctrl-C typed into the guest's shell is the guest's.
        .args(["-chardev", "stdio,id=console,signal=off"])
        .args(["-serial", "chardev:console"])
        .args(["-device", "virtio-serial-pci"])
        .arg("-chardev")
        .arg(with_path("file,id=xdc,path=", files.messages))
        .args(["-device", "virtserialport,chardev=xdc,name=xdc"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(files.initramfs)
        .arg("-append")
        // no5lvl: with five levels of page tables KASAN takes good addresses for wild ones in an
        // interrupt that comes while identify_cpu() has cleared the CPU's features.
        // The timeouts: a busy host can keep an emulated CPU waiting for half a minute.
        .arg(format!(
            "console=ttyS0 {} panic=-1 no5lvl tsc=reliable random.trust_bootloader=on \
             watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 xdc.out=/dev/virtio-ports/xdc{patience}",
            loudness(interactive)
        ));
    command
}

/// 2026-01-01, so that two runs begin at one time of day.
const VIRTUAL_START_S: u64 = 1_767_225_600;

/// The kernel mixes its command line into its random numbers, so nothing on it may differ
/// between two runs: names are relative to the guest's directory, which is all that hostfs sees
/// of the host. (hostfs needs an absolute name.)
fn uml(
    kernel: &Path,
    machine: &Machine,
    files: &Files<'_>,
    seed: u64,
    interactive: bool,
) -> Command {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_os_string();
    let mut command = tether::command(kernel);
    command
        .current_dir(files.dir)
        .arg(format!("mem={}M", machine.memory_mb))
        .arg("seccomp=on")
        .arg(with_name("initrd=", &name(files.initramfs)))
        .args(["uml_dir=.", "umid=guest", "hostfs=/proc/self/cwd"])
        .args(["con=null", "panic=-1"])
        .arg(with_name("xdc.out=hostfs:/", &name(files.messages)))
        .arg(loudness(interactive))
        .env("TMPDIR", files.memory_dir);
    if interactive {
        // A person lives in real time.
        command.arg("con0=fd:0,fd:1");
    } else {
        command
            .args(["con0=null,fd:1", "time-travel=inf-cpu"])
            .arg(format!("time-travel-start={VIRTUAL_START_S}000000000"))
            .arg(format!("random-seed={seed}"));
    }
    command
}

/// Warnings and worse reach the console; `quiet` would keep a WARN from a run's log.
fn loudness(interactive: bool) -> String {
    if interactive {
        "quiet".to_string()
    } else {
        format!("loglevel={CONSOLE_LEVEL}")
    }
}

fn with_path(prefix: &str, path: &Path) -> OsString {
    with_name(prefix, path.as_os_str())
}

fn with_name(prefix: &str, name: &OsStr) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(name);
    text
}

const KVM_DEADLINE: Duration = Duration::from_secs(10);

/// Whether a guest of ours really runs under KVM: the device may be there and the guest hang.
/// The answer is kept for this machine's QEMU and kernels.
pub fn kvm_works(home: &Home, flavour: Flavour) -> Result<bool> {
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Ok(false);
    }
    let key = kvm_key(home, flavour)?;
    let cached = home::cache().map(|dir| dir.join(format!("kvm-probe-{}", flavour.name())));
    if let Some(text) = cached
        .as_ref()
        .and_then(|path| fs::read_to_string(path).ok())
        && let Some(answer) = text.trim().strip_prefix(&key)
    {
        return Ok(answer.trim() == "yes");
    }
    eprintln!(
        "xdc: probing KVM (up to {} s, once)",
        KVM_DEADLINE.as_secs()
    );
    let works = kvm_boots(home, flavour)?;
    if let Some(path) = cached {
        let answer = if works { "yes" } else { "no" };
        // Without the cache the probe only runs again.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = fs::write(path, format!("{key} {answer}\n"));
    }
    Ok(works)
}

fn kvm_key(home: &Home, flavour: Flavour) -> Result<String> {
    let identity = |path: &Path| {
        fs::metadata(path).map_or_else(
            |_| "none".to_owned(),
            |m| format!("{}-{}", m.size(), m.mtime()),
        )
    };
    let qemu = find_program(QEMU).ok_or_else(|| missing(QEMU, "qemu-system-x86"))?;
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(format!(
        "qemu {} kernel {} host {}",
        identity(&qemu),
        identity(&home.kernel(flavour)?),
        host.trim()
    ))
}

fn kvm_boots(home: &Home, flavour: Flavour) -> Result<bool> {
    let plan = Plan::of(Job::Probe);
    let guest = Guest {
        home,
        engine: Engine::Qemu {
            accel: Accel::Kvm,
            flavour,
        },
        machine: Machine {
            cpus: 1,
            memory_mb: 512,
        },
    };
    let watch = Watch {
        stall: KVM_DEADLINE,
        total: Some(KVM_DEADLINE),
        console: None,
    };
    let mut said_hello = false;
    let outcome = guest.run(&plan, &watch, |message| {
        said_hello |= matches!(message, Message::Hello { .. });
        Ok(())
    });
    match outcome {
        Ok(_) => Ok(said_hello),
        Err(err) if err.is_interrupted() => Err(err),
        Err(_) => Ok(false),
    }
}
