// SPDX-License-Identifier: GPL-2.0
//! How a guest is started: QEMU with KVM or emulation, or User Mode Linux in virtual time. Or no
//! guest: the agent in namespaces of the running kernel.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use xdc_proto::{Job, Message, Plan, ROOT_SHARE, SHARED_FOLDER, alarm::CONSOLE_LEVEL};

use crate::error::{Error, Result};
use crate::guest::initramfs::{self, find_program, missing};
use crate::guest::tether::{self, Reach};
use crate::guest::{Guest, Watch};
use crate::home::{self, Flavour, Home};
use crate::owned;
use crate::scenario::engine::Kind;

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
    /// What a plan needs of the kernel is looked for by [`crate::guest::host`].
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
    /// Whether a program in it may spin until a while has passed.
    pub spins: bool,
}

/// The files of one guest, all in one temporary directory.
pub struct Files<'a> {
    pub dir: &'a Path,
    /// UML's RAM.
    pub memory_dir: &'a Path,
    pub initramfs: &'a Path,
    pub messages: &'a Path,
    /// A folder that the guest may read.
    pub root: Option<&'a Path>,
    /// A folder in `dir` that the guest may write to.
    pub shared: Option<&'a Path>,
}

impl Engine {
    /// User Mode Linux, whose kernel is the one that measures.
    pub const UML: Self = Self::Uml {
        flavour: Flavour::Uml,
    };

    /// Of the guest's kernel.
    fn flavour(self) -> Option<Flavour> {
        match self {
            Self::Qemu { flavour, .. } | Self::Uml { flavour } => Some(flavour),
            Self::Host => None,
        }
    }

    /// The guest's kernel, for those that have no use for the host's.
    pub fn guest_flavour(self) -> Result<Flavour> {
        self.flavour()
            .ok_or_else(|| Error::usage("this command needs a guest").hint("--engine qemu or uml"))
    }

    /// Write what the agent finds its plan in: a guest's root, or the plan alone.
    pub fn write_root(self, home: &Home, plan: &Plan, files: &Files<'_>) -> Result<()> {
        if let Some(flavour) = self.flavour() {
            if let (Self::Uml { .. }, Some(root)) = (self, files.root) {
                // hostfs shows this directory alone.
                let link = files.dir.join(ROOT_SHARE);
                symlink(root, &link).map_err(|err| Error::io(link.display(), &err))?;
            }
            return initramfs::write(home, flavour, plan, files.initramfs, files.dir);
        }
        let json = serde_json::to_vec(plan)
            .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
        fs::write(files.initramfs, json).map_err(|err| Error::io(files.initramfs.display(), &err))
    }

    /// How to stop it: a guest has nothing to tidy up.
    pub fn stops_by(self) -> Signal {
        match self {
            Self::Qemu { .. } | Self::Uml { .. } => Signal::KILL,
            Self::Host => Signal::TERM,
        }
    }

    /// For summaries: `qemu-tcg`, `uml`.
    pub fn kind(self) -> Kind {
        match self {
            Self::Qemu { .. } => Kind::Qemu,
            Self::Uml { .. } => Kind::Uml,
            Self::Host => Kind::Host,
        }
    }

    /// Whether what else the host does gets into what is measured.
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

    /// Choose KVM only where it was seen to run a guest, else emulation by `clock`.
    pub fn new(home: &Home, kind: Kind, flavour: Flavour, clock: Clock) -> Result<Self> {
        let flavour = match kind {
            Kind::Uml if flavour != Flavour::UmlDebug => Flavour::Uml,
            Kind::Uml | Kind::Qemu => flavour,
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
            Kind::Uml if runs_uml() => Ok(Self::Uml { flavour }),
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
                qemu(accel, flavour, &kernel, machine, files, interactive)?
            }
            Self::Uml { flavour } => {
                let kernel = kernel(flavour)?;
                uml(flavour, &kernel, machine, files, seed, interactive)?
            }
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

/// Largest file that a guest can make.
pub const MAX_FILE_BYTES: u64 = 4 << 30;

/// What a guest's process may do here, beside what it has open: read `reads`, and write into its
/// own directories. Where this machine cannot see to that, the caller hears of it.
fn reach(machine: &Machine, files: &Files<'_>, reads: Vec<PathBuf>, writes: &[&str]) -> Reach {
    static TOLD: Once = Once::new();
    static SHOWN: Once = Once::new();
    let missing = tether::missing();
    if let Some(why) = &missing {
        TOLD.call_once(|| {
            eprintln!(
                "xdc: this machine cannot confine a guest: {why}. A guest, that is a selftest, a \
                 shell, a module under test, can reach the files that you can reach."
            );
        });
    }
    let own = [files.dir, files.memory_dir].map(Path::to_path_buf);
    if let Some(root) = files.root {
        SHOWN.call_once(|| {
            eprintln!(
                "xdc: this guest reads your files below {}, and changes none",
                root.display()
            );
        });
    }
    Reach {
        reads: reads
            .into_iter()
            .chain(files.root.map(Path::to_path_buf))
            .collect(),
        writes: own
            .into_iter()
            .chain(writes.iter().map(PathBuf::from))
            .collect(),
        // UML's memory is a file, too.
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
    // Its libraries, its firmware, and what they read: as anybody's program.
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
    // So a wait for RCU takes milliseconds, not tens of them. What is checked is the same.
    let patience = match flavour {
        Flavour::Debug => format!(" rcupdate.rcu_expedited=1 {FEW_BUCKETS}"),
        _ => String::new(),
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
        .arg(with_path("file,id=xdc,path=", &doubled(files.messages)))
        .args(["-device", "virtserialport,chardev=xdc,name=xdc"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(files.initramfs)
        .args(files.root.into_iter().flat_map(nine_p))
        .args(files.shared.into_iter().flat_map(writable_nine_p))
        .arg("-append")
        // no5lvl: with five levels of page tables KASAN takes good addresses for wild ones in an
        // interrupt that comes while identify_cpu() has cleared the CPU's features.
        // The timeouts: a busy host can keep an emulated CPU waiting for half a minute.
        .arg(format!(
            "console=ttyS0 {} panic=-1 no5lvl tsc=reliable random.trust_bootloader=on \
             watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 xdc.out=/dev/virtio-ports/xdc{patience}",
            loudness(interactive)
        ));
    Ok(command)
}

/// For debug kernels: a dump of all sockets takes the lock of each bucket, which costs a second when
/// there are 16,384.
const FEW_BUCKETS: &str = "thash_entries=1024";

/// Of what only an exploited emulator would do.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Some builds have no filter of system calls.
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

/// A comma ends an option's value, two are one of it.
fn doubled(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let doubled: Vec<u8> = bytes
        .iter()
        .flat_map(|&byte| std::iter::repeat_n(byte, 1 + usize::from(byte == b',')))
        .collect();
    OsString::from_vec(doubled).into()
}

/// A folder of the host as a file system of the guest's, read-only.
fn nine_p(root: &Path) -> [OsString; 2] {
    let mut share = with_path("local,path=", &doubled(root));
    share.push(format!(
        ",mount_tag={ROOT_SHARE},security_model=none,multidevs=remap,readonly=on"
    ));
    ["-virtfs".into(), share]
}

/// The same, writable: what the guest makes is an ordinary file here, whatever it is there.
fn writable_nine_p(folder: &Path) -> [OsString; 2] {
    let mut share = with_path("local,path=", &doubled(folder));
    share.push(format!(
        ",mount_tag={SHARED_FOLDER},security_model=mapped-file"
    ));
    ["-virtfs".into(), share]
}

/// 2026-01-01, so that two runs begin at one time of day.
const VIRTUAL_START_S: u64 = 1_767_225_600;

/// The kernel mixes its command line into its random numbers, so nothing on it may differ
/// between two runs: names are relative to the guest's directory. (hostfs needs an absolute name,
/// and obeys `..`: what it can reach of the host is [`reach`]'s business.)
fn uml(
    flavour: Flavour,
    kernel: &Path,
    machine: &Machine,
    files: &Files<'_>,
    seed: u64,
    interactive: bool,
) -> Result<Command> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_os_string();
    // The kernel is a program with a few libraries, and asks what processor it has.
    let mut libraries = initramfs::shared_libraries(kernel)?;
    // libc opens it for pthread_cancel(), by which the kernel ends the threads of its console.
    let beside = libraries
        .iter()
        .filter_map(|path| path.strip_suffix("/libc.so.6"));
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
        // A person lives in real time.
        command.arg("con0=fd:0,fd:1");
    } else {
        command
            .args(["con0=null,fd:1", time_travel(machine)])
            .arg(format!("time-travel-start={VIRTUAL_START_S}000000000"))
            .arg(format!("random-seed={seed}"));
    }
    Ok(command)
}

/// How virtual time passes: only waiting takes time. For programs that spin it is the work that takes
/// its time, and waiting takes none.
fn time_travel(machine: &Machine) -> &'static str {
    match machine.spins {
        false => "time-travel=inf-cpu",
        true => "time-travel",
    }
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

/// How long a "no" is valid: its cause may have gone.
const KVM_NO_LASTS: Duration = Duration::from_secs(24 * 3600);

/// Whether a guest of ours really runs under KVM: the device may be there and the guest hang.
/// The answer is kept for this machine's QEMU and kernels; not one that is due to something else.
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
    let cached = kvm_cache(flavour);
    if let Some(answer) = cached.as_ref().and_then(|path| kvm_answer(path, &key)) {
        return Ok(answer);
    }
    eprintln!(
        "xdc: probing KVM (up to {} s, once)",
        KVM_DEADLINE.as_secs()
    );
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
        // Without the cache the probe only runs again.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = owned::replace(&path, format!("{key} {answer}\n"));
    }
    Ok(works)
}

fn kvm_cache(flavour: Flavour) -> Option<PathBuf> {
    home::cache().map(|dir| dir.join(format!("kvm-probe-{}", flavour.name())))
}

/// The answer of an earlier probe, if it still counts.
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

/// Has the next [`kvm_works`] look again where the last answer was no.
pub fn forget_kvm(flavour: Flavour) {
    if let Some(path) = kvm_cache(flavour)
        && fs::read_to_string(&path).is_ok_and(|text| text.trim().ends_with(" no"))
    {
        let _ = fs::remove_file(path);
    }
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

/// What came of a probe.
enum Probed {
    Works,
    /// The guest was started and said nothing: KVM, and nothing else, is to blame.
    Silent,
    /// Something else went wrong.
    Failed(Error),
}

fn kvm_boots(home: &Home, flavour: Flavour) -> Result<Probed> {
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
            spins: false,
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
    Ok(match outcome {
        Ok(_) if said_hello => Probed::Works,
        Ok(_) => Probed::Silent,
        Err(err) if err.is_interrupted() => return Err(err),
        Err(err) if err.is_hang() => Probed::Silent,
        Err(err) => Probed::Failed(err),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_of_a_path_is_no_option() {
        assert_eq!(
            doubled(Path::new("/a,append=on/b c")),
            Path::new("/a,,append=on/b c")
        );
    }

    #[test]
    fn only_an_answer_for_this_machine_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvm-probe-x86");
        assert_eq!(kvm_answer(&path, "qemu 1"), None);
        for (text, answer) in [
            ("qemu 1 yes\n", Some(true)),
            ("qemu 1 no\n", Some(false)),
            ("qemu 2 no\n", None),
            ("qemu 1", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(kvm_answer(&path, "qemu 1"), answer, "{text}");
        }
        fs::write(&path, "qemu 1 no\n").unwrap();
        let long_ago = SystemTime::now() - KVM_NO_LASTS - Duration::from_secs(1);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(long_ago).unwrap();
        assert_eq!(kvm_answer(&path, "qemu 1"), None);
    }
}
