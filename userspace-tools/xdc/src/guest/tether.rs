// SPDX-License-Identifier: GPL-2.0
//! A child that the kernel kills when we are killed, so that no guest outlives even `kill -9`; and
//! that reaches no more of this machine than it needs.
//!
//! The child has to ask the kernel for that itself. So it is this executable again, which asks, drops
//! its privileges and executes the program; UML's own children do the same for their parent.
//!
//! A guest of User Mode Linux mounts the host's files by hostfs, which obeys a `..`, and a module
//! of it is code in a process of ours. So Landlock leaves that process the files that are listed,
//! a filter of system calls keeps it from those that Landlock does not judge (modes, owners, times
//! and attributes of files; sockets, by which it could ask another program of its user to act for
//! it; shared memory and limits of that user's processes; keys typed into a terminal) or that only
//! root's processes can make (modules, mounts, the clock), and it has no way to new privileges.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::process::{getpid, getppid, set_parent_process_death_signal, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    configure_capability_in_ambient_set, set_capabilities, set_capabilities_secure_bits,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::error::{Error, Result};

/// The subcommand that xdc starts itself with.
pub const SUBCOMMAND: &str = "tethered";

/// What a guest's process may do to this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Files and directories to read and to execute.
    pub reads: Vec<PathBuf>,
    /// To change, too, and to make files in.
    pub writes: Vec<PathBuf>,
    /// Size of the largest file that it can make.
    pub file_limit_bytes: u64,
    /// False where this machine cannot do it.
    pub confined: bool,
}

const READ: &str = "read";
const WRITE: &str = "write";
const LIMIT: &str = "limit";
const CONFINE: &str = "confine";
const PROGRAM: &str = "--";

/// Like `Command::new(program)`. The thread that spawns it must outlive it.
pub fn command(program: &Path, reach: &Reach) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(SUBCOMMAND)
        .arg(getpid().as_raw_nonzero().to_string())
        .args([LIMIT, &reach.file_limit_bytes.to_string()]);
    for (word, paths) in [(READ, &reach.reads), (WRITE, &reach.writes)] {
        for path in paths {
            command.arg(word).arg(path);
        }
    }
    if reach.confined {
        command.arg(CONFINE);
    }
    command.arg(PROGRAM).arg(program);
    command
}

/// In the child: become the program of `words`, which are those of [`command`].
pub fn become_program(parent: i32, words: &[OsString]) -> Result<Infallible> {
    let (reach, program, args) = parse(words).ok_or_else(|| Error::usage("no program is named"))?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|err| Error::io("tethering the guest", &err.into()))?;
    // The parent may have died before that.
    if getppid() != Pid::from_raw(parent) {
        return Err(Error::failure("the parent is gone"));
    }
    let limit = Some(reach.file_limit_bytes);
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )
    .map_err(|err| Error::io("limiting the guest's files", &err.into()))?;
    if reach.confined {
        confine(&reach)?;
    }
    let err = Command::new(program).args(args).exec();
    Err(Error::io(Path::new(program).display(), &err))
}

fn parse(words: &[OsString]) -> Option<(Reach, &OsStr, &[OsString])> {
    let mut reach = Reach::default();
    let mut words = words.iter();
    loop {
        match words.next()?.to_str()? {
            READ => reach.reads.push(words.next()?.into()),
            WRITE => reach.writes.push(words.next()?.into()),
            LIMIT => reach.file_limit_bytes = words.next()?.to_str()?.parse().ok()?,
            CONFINE => reach.confined = true,
            PROGRAM => {
                let (program, args) = words.as_slice().split_first()?;
                return Some((reach, program, args));
            }
            _ => return None,
        }
    }
}

/// The first one that judges every way to change a file's content: truncate(2) too.
const LEAST: ABI = ABI::V3;
/// Where it is known: ioctls of devices, TCP, signals and sockets of others.
const BEST: ABI = ABI::V6;

fn ruleset() -> std::result::Result<landlock::RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(BEST))?
        .handle_access(AccessNet::from_all(BEST))?
        .scope(Scope::from_all(BEST))?
        .create()
}

/// Why this machine cannot confine a process; None if it can.
pub fn missing() -> Option<String> {
    ruleset().err().map(|_| {
        "its kernel has no Landlock of ABI 3 (Linux 6.2, CONFIG_SECURITY_LANDLOCK, lsm=landlock)"
            .to_owned()
    })
}

fn confine(reach: &Reach) -> Result<()> {
    let failed = |what: &str, err: &dyn std::fmt::Display| {
        Error::failure(format!("confining the guest: {what}: {err}"))
    };
    drop_capabilities().map_err(|err| failed("capabilities", &err))?;
    ruleset()
        .and_then(|rules| {
            rules.add_rules(path_beneath_rules(&reach.reads, AccessFs::from_read(BEST)))
        })
        .and_then(|rules| {
            rules.add_rules(path_beneath_rules(&reach.writes, AccessFs::from_all(BEST)))
        })
        // Nothing that is executed gives new privileges, either.
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|err| failed("Landlock", &err))?;
    for filter in [filter(), without_clone3()] {
        let filter = filter.map_err(|err| failed("the filter of system calls", &err))?;
        seccompiler::apply_filter(&filter)
            .map_err(|err| failed("the filter of system calls", &err))?;
    }
    Ok(())
}

/// Of what root's processes have only the way to a kernel in a user's home; others have none.
fn drop_capabilities() -> rustix::io::Result<()> {
    let has = capabilities(None)?.permitted;
    if !has.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    // Else root's next program would have all of them again, or, where it may not, lose its
    // personality, for which UML starts itself anew until it has it.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_ROOT)?;
    let kept = has & CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
    )?;
    match kept.is_empty() {
        true => Ok(()),
        false => configure_capability_in_ambient_set(CapabilitySet::DAC_READ_SEARCH, true),
    }
}

/// What Landlock does not judge, and what is the whole machine's.
const DENIED: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    463, // setxattrat
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    466, // removexattrat
    469, // file_setattr
    libc::SYS_chroot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_syslog,
    // Landlock knows TCP and abstract names alone: by a path lie the user's D-Bus, systemd, Docker
    // and X, and by UDP the network.
    libc::SYS_socket,
    // System V's and POSIX's memory and queues are their user's, whoever asks.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // These reach other processes, too.
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // It does some of the above by another way.
    libc::SYS_io_uring_setup,
];

/// The same calls by their numbers of the x32 ABI, and those that have numbers of their own there.
const X32: i64 = 0x4000_0000;
const OF_X32_ALONE: std::ops::RangeInclusive<i64> = 512..=547;

/// What is denied for some arguments: the call, which argument, how it is compared, and with what.
/// All are ints, so the kernel does not look at their higher halves, and neither do we.
const DENIED_FOR: &[(i64, u8, SeccompCmpOp, u64)] = &[
    // Limits of another process: one of CPU time ends it.
    (libc::SYS_prlimit64, 0, SeccompCmpOp::Ne, 0),
    // A pair of datagram sockets can be turned to any other: UML has pairs of streams.
    (
        libc::SYS_socketpair,
        0,
        SeccompCmpOp::Ne,
        libc::AF_UNIX as u64,
    ),
    (libc::SYS_socketpair, 1, OF_TYPE, libc::SOCK_DGRAM as u64),
    (libc::SYS_socketpair, 1, OF_TYPE, libc::SOCK_RAW as u64),
    // Types keys into the terminal of whoever has started a shell.
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, libc::TIOCSTI),
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, libc::TIOCLINUX),
    // A child in namespaces of its own has all of root's capabilities in them.
    having(libc::CLONE_NEWNS),
    having(libc::CLONE_NEWCGROUP),
    having(libc::CLONE_NEWUTS),
    having(libc::CLONE_NEWIPC),
    having(libc::CLONE_NEWUSER),
    having(libc::CLONE_NEWPID),
    having(libc::CLONE_NEWNET),
];

/// A clone(2) with this flag.
const fn having(flag: i32) -> (i64, u8, SeccompCmpOp, u64) {
    let flag = flag as u32 as u64;
    (libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(flag), flag)
}

/// A socket's type; the rest of the word are flags.
const OF_TYPE: SeccompCmpOp = SeccompCmpOp::MaskedEq(0xf);

fn filter() -> std::result::Result<BpfProgram, BackendError> {
    let numbers = DENIED.iter().flat_map(|&call| [call, call | X32]);
    let numbers = numbers.chain(OF_X32_ALONE.map(|call| call | X32));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        numbers.map(|call| (call, Vec::new())).collect();
    for (call, argument, compare, value) in DENIED_FOR {
        let condition =
            SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, compare.clone(), *value)?;
        for call in [*call, call | X32] {
            let rule = SeccompRule::new(vec![condition.clone()])?;
            // One of x32 alone is denied as it is.
            if !OF_X32_ALONE.contains(&(call & !X32)) {
                rules.entry(call).or_default().push(rule);
            }
        }
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        TargetArch::x86_64,
    )?
    .try_into()
}

/// Its flags are in memory, where no filter looks. A kernel that has none makes libraries take
/// clone(2).
fn without_clone3() -> std::result::Result<BpfProgram, BackendError> {
    let calls = [libc::SYS_clone3, libc::SYS_clone3 | X32];
    SeccompFilter::new(
        calls.map(|call| (call, Vec::new())).into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        TargetArch::x86_64,
    )?
    .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_is_what_was_told() {
        let reach = Reach {
            reads: vec!["/kernel".into(), "--".into()],
            writes: vec!["/tmp/a b".into()],
            file_limit_bytes: 7,
            confined: true,
        };
        let command = command(Path::new("/bin/true"), &reach);
        let words: Vec<_> = command
            .get_args()
            .skip(2)
            .map(OsStr::to_os_string)
            .collect();
        let args = [OsString::from("--read"), "x".into()];
        let words = [words, args.to_vec()].concat();
        let (told, program, rest) = parse(&words).unwrap();
        assert_eq!(
            (told, program, rest),
            (reach, OsStr::new("/bin/true"), &args[..])
        );
        assert!(parse(&words[..3]).is_none());
    }

    #[test]
    fn the_filter_can_be_built() {
        assert!(filter().unwrap().len() > DENIED.len());
    }
}
