// SPDX-License-Identifier: GPL-2.0
//! Starts guests: QEMU with KVM or emulation, or User Mode Linux in virtual time. Also starts the agent in
//! namespaces of the running kernel.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Flavour, Home};
use xdc_base::owned;
use xdc_proto::{Job, Message, Plan, ROOT_SHARE, SHARED_FOLDER, alarm::CONSOLE_LEVEL};
use xdc_scenario::engine::Kind;

use crate::initramfs::{self, find_program, missing};
use crate::tether::{self, Reach};
use crate::{Guest, Watch};

/// An engine, ready to start guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Qemu {
        accel: Accel,
        flavour: Flavour,
    },
    Uml {
        flavour: Flavour,
    },
    /// The running kernel; [`crate::host`] checks a plan's requirements.
    Host,
}

/// Time source of an emulated guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The host's clock, for interactive use.
    Wall,
    /// Counted instructions unless there is KVM. Keeps host load and emulator lateness (tens of us per timer)
    /// out of measurements.
    Measuring,
    /// Counted instructions, with or without KVM.
    Icount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    Kvm,
    Tcg,
    /// Emulation with a clock of counted instructions.
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

/// Resources of a guest.
pub struct Machine {
    pub cpus: u32,
    pub memory_mb: u64,
    /// Whether a guest program may busy-wait for time to pass.
    pub spins: bool,
}

/// Files of one guest, in one temporary directory.
pub struct Files<'a> {
    pub dir: &'a Path,
    /// Directory of UML's RAM file.
    pub memory_dir: &'a Path,
    pub initramfs: &'a Path,
    pub messages: &'a Path,
    /// Folder readable by the guest.
    pub root: Option<&'a Path>,
    /// Folder in `dir` writable by the guest.
    pub shared: Option<&'a Path>,
}

impl Engine {
    /// User Mode Linux with the measuring kernel.
    pub const UML: Self = Self::Uml { flavour: Flavour::Uml };

    /// The guest kernel's flavor; None for the host.
    fn flavour(self) -> Option<Flavour> {
        match self {
            Self::Qemu { flavour, .. } | Self::Uml { flavour } => Some(flavour),
            Self::Host => None,
        }
    }

    /// The guest kernel's flavor, for commands that cannot use the host's.
    pub fn guest_flavour(self) -> Result<Flavour> {
        self.flavour()
            .ok_or_else(|| Error::usage("this command needs a guest").hint("--engine qemu or uml"))
    }

    /// Write the agent's plan: a guest's root, or the plan alone.
    pub fn write_root(self, home: &Home, plan: &Plan, files: &Files<'_>) -> Result<()> {
        if let Some(flavour) = self.flavour() {
            if let (Self::Uml { .. }, Some(root)) = (self, files.root) {
                // hostfs shows only this directory.
                let link = files.dir.join(ROOT_SHARE);
                symlink(root, &link).map_err(|err| Error::io(link.display(), &err))?;
            }
            return initramfs::write(home, flavour, plan, files.initramfs, files.dir);
        }
        let json = serde_json::to_vec(plan)
            .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
        fs::write(files.initramfs, json).map_err(|err| Error::io(files.initramfs.display(), &err))
    }

    /// Signal that stops the engine: a guest needs no cleanup.
    pub fn stops_by(self) -> Signal {
        match self {
            Self::Qemu { .. } | Self::Uml { .. } => Signal::KILL,
            Self::Host => Signal::TERM,
        }
    }

    /// Engine kind, for summaries.
    pub fn kind(self) -> Kind {
        match self {
            Self::Qemu { .. } => Kind::Qemu,
            Self::Uml { .. } => Kind::Uml,
            Self::Host => Kind::Host,
        }
    }

    /// Whether host load affects measurements.
    pub fn is_real_time(self) -> bool {
        match self {
            Self::Qemu { accel, .. } => accel != Accel::Icount,
            Self::Uml { .. } => false,
            Self::Host => true,
        }
    }

    pub fn accel(self) -> Option<&'static str> {
        match self {
            Self::Qemu { accel, .. } => Some(accel.name()),
            Self::Uml { .. } | Self::Host => None,
        }
    }

    /// Choose KVM only if a probe ran a guest with it, else emulation by `clock`.
    pub fn new(home: &Home, kind: Kind, flavour: Flavour, clock: Clock) -> Result<Self> {
        let flavour = match kind {
            Kind::Uml if flavour != Flavour::UmlDebug => Flavour::Uml,
            Kind::Uml | Kind::Qemu => flavour,
            Kind::Host => {
                return Err(Error::usage("--engine host works only with `xdc run`")
                    .hint("--engine qemu or uml"));
            }
        };
        // Report missing files here once, not for every guest.
        home.kernel(flavour)?;
        home.agent()?;
        home.modules(flavour)?;
        match kind {
            Kind::Host => Ok(Self::Host),
            Kind::Uml if runs_uml() => Ok(Self::Uml { flavour }),
            Kind::Uml => Err(Error::failure(
                "this machine's processor has no XSAVE, which User Mode Linux needs",
            )
            .hint("--engine qemu; in a virtual machine, use the host's processor model")),
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

    /// The command. Its stdout is the console; if `interactive`, the console is the caller's terminal. In
    /// virtual time `seed` is the guest kernel's only source of randomness.
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
                qemu(accel, flavour, &kernel, machine, files, interactive)?
            }
            Self::Uml { flavour } => {
                let kernel = kernel(flavour)?;
                uml(flavour, &kernel, machine, files, seed, interactive)?
            }
            // The agent sets its own parent-death signal, a gentler one: see agent/src/host.rs.
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

/// Whether UML can run: it reads registers in XSAVE layout (arch/x86/um/os-Linux/registers.c).
pub fn runs_uml() -> bool {
    std::arch::is_x86_feature_detected!("xsave")
}

const QEMU: &str = "qemu-system-x86_64";

/// Largest file that a guest may create.
pub const MAX_FILE_BYTES: u64 = 4 << 30;

/// Access of a guest's process beyond its open files: read `reads`, write in its own directories. Warns if
/// this machine cannot enforce it.
fn reach(machine: &Machine, files: &Files<'_>, reads: Vec<PathBuf>, writes: &[&str]) -> Reach {
    static TOLD: Once = Once::new();
    static SHOWN: Once = Once::new();
    let missing = tether::missing();
    if let Some(why) = &missing {
        TOLD.call_once(|| {
            eprintln!(
                "xdc: this machine cannot confine a guest: {why}. A guest (a selftest, a \
                 shell, a module under test) can access all files that you can access."
            );
        });
    }
    let own = [files.dir, files.memory_dir].map(Path::to_path_buf);
    if let Some(root) = files.root {
        SHOWN.call_once(|| {
            eprintln!(
                "xdc: this guest can read your files below {}, but not change them",
                root.display()
            );
        });
    }
    Reach {
        reads: reads.into_iter().chain(files.root.map(Path::to_path_buf)).collect(),
        writes: own.into_iter().chain(writes.iter().map(PathBuf::from)).collect(),
        // UML's memory is a file.
        file_limit_bytes: MAX_FILE_BYTES.max((machine.memory_mb << 20) + (64 << 20)),
        confined: missing.is_none(),
    }
}

fn qemu(
    accel: Accel,
    flavour: Flavour,
    kernel: &Path,
    machine: &Machine,
    files: &Files<'_>,
    interactive: bool,
) -> Result<Command> {
    let program = find_program(QEMU).ok_or_else(|| missing(QEMU, "qemu-system-x86"))?;
    // Libraries, firmware and their files need the read access of any program.
    let reach = reach(machine, files, vec!["/".into()], &["/dev/kvm", "/dev/null"]);
    let mut command = tether::command(&program, &reach);
    if runs_in_sandbox(&program) {
        command.args(["-sandbox", SANDBOX]);
    }
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
    // Shortens RCU waits from tens of milliseconds; the checks are unchanged.
    let patience = match flavour {
        Flavour::Debug => format!(" rcupdate.rcu_expedited=1 {FEW_BUCKETS}"),
        _ => String::new(),
    };
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-no-reboot", "-monitor", "none"])
        .args(["-smp", &machine.cpus.to_string()])
        .args(["-m", &format!("{}M", machine.memory_mb)])
        // signal=off passes Ctrl-C to the guest's shell.
        .args(["-chardev", "stdio,id=console,signal=off"])
        .args(["-serial", "chardev:console"])
        .args(["-device", "virtio-serial-pci"])
        .arg("-chardev")
        .arg(with_path("file,id=xdc,path=", &doubled(files.messages)))
        .args(["-device", "virtserialport,chardev=xdc,name=xdc"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(files.initramfs)
        .args(files.root.into_iter().flat_map(nine_p))
        .args(files.shared.into_iter().flat_map(writable_nine_p))
        .arg("-append")
        // no5lvl: with five-level page tables KASAN reports valid addresses in an interrupt while
        // identify_cpu() has cleared the CPU's features. Timeouts: a busy host can delay an emulated CPU by
        // half a minute.
        .arg(format!(
            "console=ttyS0 {} panic=-1 no5lvl tsc=reliable random.trust_bootloader=on \
             watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 xdc.out=/dev/virtio-ports/xdc{patience}",
            loudness(interactive)
        ));
    Ok(command)
}

/// For debug kernels: a dump of all sockets locks each bucket, which takes a second for 16,384.
const FEW_BUCKETS: &str = "thash_entries=1024";

/// Deny calls that only an exploited emulator would make.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Some QEMU builds lack the system-call filter.
fn runs_in_sandbox(qemu: &Path) -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        Command::new(qemu)
            .args(["-sandbox", SANDBOX, "-version"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

/// Doubles commas: a single one ends an option's value.
fn doubled(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let doubled: Vec<u8> = bytes
        .iter()
        .flat_map(|&byte| std::iter::repeat_n(byte, 1 + usize::from(byte == b',')))
        .collect();
    OsString::from_vec(doubled).into()
}

/// Shares a host folder with the guest, read-only.
fn nine_p(root: &Path) -> [OsString; 2] {
    let mut share = with_path("local,path=", &doubled(root));
    share.push(format!(",mount_tag={ROOT_SHARE},security_model=none,multidevs=remap,readonly=on"));
    ["-virtfs".into(), share]
}

/// Shares a host folder with the guest, writable. Guest files of any type are ordinary files here.
fn writable_nine_p(folder: &Path) -> [OsString; 2] {
    let mut share = with_path("local,path=", &doubled(folder));
    share.push(format!(",mount_tag={SHARED_FOLDER},security_model=mapped-file"));
    ["-virtfs".into(), share]
}

/// 2026-01-01: all runs begin at the same time of day.
const VIRTUAL_START_S: u64 = 1_767_225_600;

/// UML command. The kernel mixes its command line into its random numbers, so it must not differ between
/// runs: names are relative to the guest's directory. (hostfs needs an absolute name and follows `..`;
/// [`reach`] limits its access.)
fn uml(
    flavour: Flavour,
    kernel: &Path,
    machine: &Machine,
    files: &Files<'_>,
    seed: u64,
    interactive: bool,
) -> Result<Command> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_os_string();
    // The kernel is a program with a few libraries, and reads the processor's features.
    let mut libraries = initramfs::shared_libraries(kernel)?;
    // libc opens libgcc_s for pthread_cancel(), which ends the kernel's console threads.
    let beside = libraries.iter().filter_map(|path| path.strip_suffix("/libc.so.6"));
    let unwinder: Vec<_> = beside.map(|dir| format!("{dir}/libgcc_s.so.1")).collect();
    libraries.extend(unwinder.into_iter().filter(|path| Path::new(path).exists()));
    let reads = ["/etc/ld.so.cache", "/proc/cpuinfo"].map(PathBuf::from);
    let reads = reads
        .into_iter()
        .chain(libraries.into_iter().map(PathBuf::from))
        .chain([kernel.to_path_buf()]);
    let reach = reach(machine, files, reads.collect(), &["/dev/null"]);
    let mut command = tether::command(kernel, &reach);
    command
        .current_dir(files.dir)
        .arg(format!("mem={}M", machine.memory_mb))
        .arg("seccomp=on")
        .arg(with_name("initrd=", &name(files.initramfs)))
        .args(["uml_dir=.", "umid=guest", "hostfs=/proc/self/cwd"])
        .args(["con=null", "panic=-1"])
        .arg(with_name("xdc.out=hostfs:/", &name(files.messages)))
        .arg(loudness(interactive))
        .args((flavour == Flavour::UmlDebug).then_some(FEW_BUCKETS))
        .env("TMPDIR", files.memory_dir);
    if interactive {
        // Interactive use is in real time.
        command.arg("con0=fd:0,fd:1");
    } else {
        command
            .args(["con0=null,fd:1", time_travel(machine)])
            .arg(format!("time-travel-start={VIRTUAL_START_S}000000000"))
            .arg(format!("random-seed={seed}"));
    }
    Ok(command)
}

/// Virtual time mode: only waiting takes time; or, for busy-waiting programs, work takes time and waiting is
/// skipped.
fn time_travel(machine: &Machine) -> &'static str {
    match machine.spins {
        false => "time-travel=inf-cpu",
        true => "time-travel",
    }
}

/// Console log level: warnings and worse; `quiet` would keep a WARN from a run's log.
fn loudness(interactive: bool) -> String {
    if interactive { "quiet".to_string() } else { format!("loglevel={CONSOLE_LEVEL}") }
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

/// Validity of a negative answer, whose cause may have gone.
const KVM_NO_LASTS: Duration = Duration::from_secs(24 * 3600);

/// Whether a guest runs under KVM: the device may exist and the guest hang. Caches the answer per QEMU and
/// kernel, except for failures with other causes.
pub fn kvm_works(home: &Home, flavour: Flavour) -> Result<bool> {
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(false);
    }
    let key = kvm_key(home, flavour)?;
    let cached = kvm_cache(flavour);
    if let Some(answer) = cached.as_ref().and_then(|path| kvm_answer(path, &key)) {
        return Ok(answer);
    }
    eprintln!("xdc: probing KVM (up to {} s, once)", KVM_DEADLINE.as_secs());
    let works = match kvm_boots(home, flavour)? {
        Probed::Works => true,
        Probed::Silent => false,
        Probed::Failed(err) => {
            eprintln!("xdc: KVM could not be probed, so this run is emulated: {err}");
            return Ok(false);
        }
    };
    if let Some(path) = cached {
        let answer = if works { "yes" } else { "no" };
        // Without a cache the probe runs again.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = owned::replace(&path, format!("{key} {answer}\n"));
    }
    Ok(works)
}

fn kvm_cache(flavour: Flavour) -> Option<PathBuf> {
    home::cache().map(|dir| dir.join(format!("kvm-probe-{}", flavour.name())))
}

/// A cached answer, if still valid.
fn kvm_answer(path: &Path, key: &str) -> Option<bool> {
    let text = fs::read_to_string(path).ok()?;
    match text.trim().strip_prefix(key)?.trim() {
        "yes" => Some(true),
        "no" => {
            let asked = fs::metadata(path).ok()?.modified().ok()?;
            let age = SystemTime::now().duration_since(asked).ok()?;
            (age < KVM_NO_LASTS).then_some(false)
        }
        _ => None,
    }
}

/// Makes the next [`kvm_works`] probe again after a negative answer.
pub fn forget_kvm(flavour: Flavour) {
    if let Some(path) = kvm_cache(flavour)
        && fs::read_to_string(&path).is_ok_and(|text| text.trim().ends_with(" no"))
    {
        let _ = fs::remove_file(path);
    }
}

fn kvm_key(home: &Home, flavour: Flavour) -> Result<String> {
    let identity = |path: &Path| {
        fs::metadata(path)
            .map_or_else(|_| "none".to_owned(), |m| format!("{}-{}", m.size(), m.mtime()))
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

/// Result of a probe.
enum Probed {
    Works,
    /// The guest started but sent nothing: KVM is the cause.
    Silent,
    /// Failure with another cause.
    Failed(Error),
}

fn kvm_boots(home: &Home, flavour: Flavour) -> Result<Probed> {
    let plan = Plan::of(Job::Probe);
    let guest = Guest {
        home,
        engine: Engine::Qemu { accel: Accel::Kvm, flavour },
        machine: Machine { cpus: 1, memory_mb: 512, spins: false },
    };
    let watch = Watch { stall: KVM_DEADLINE, total: Some(KVM_DEADLINE), console: None };
    let mut said_hello = false;
    let outcome = guest.run(&plan, &watch, |message| {
        said_hello |= matches!(message, Message::Hello { .. });
        Ok(())
    });
    Ok(match outcome {
        Ok(_) if said_hello => Probed::Works,
        Ok(_) => Probed::Silent,
        Err(err) if err.is_interrupted() => return Err(err),
        Err(err) if err.is_hang() => Probed::Silent,
        Err(err) => Probed::Failed(err),
    })
}

#[cfg(test)]
mod tests;
