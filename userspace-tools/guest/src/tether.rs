// SPDX-License-Identifier: GPL-2.0
//! A confined child that the kernel kills with its parent, so that no guest outlives even `kill -9`.
//!
//! The child must request this from the kernel itself. So it is this executable, which makes the request,
//! drops its privileges and executes the program; UML's own children do the same for their parent.
//!
//! A User Mode Linux guest mounts host files by hostfs, which follows `..`, and its modules run as code in
//! this process. So Landlock restricts the process to the listed files, a filter to the necessary system
//! calls ([`calls`]), and it cannot gain privileges.

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::process::{getpid, getppid, set_parent_process_death_signal, setrlimit, setsid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    configure_capability_in_ambient_set, set_capabilities, set_capabilities_secure_bits,
};
use xdc_base::error::{Error, Result};

use crate::calls;

/// First argument with which a program of xdc starts itself.
const SUBCOMMAND: &str = "tethered";

/// Permissions of a guest's process on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Files and directories to read and execute.
    pub reads: Vec<PathBuf>,
    /// Files and directories to modify, and in which to create files.
    pub writes: Vec<PathBuf>,
    /// Maximum size of a file that it creates, bytes.
    pub file_limit_bytes: u64,
    /// False if this machine cannot confine it.
    pub confined: bool,
}

const READ: &str = "read";
const WRITE: &str = "write";
const LIMIT: &str = "limit";
const CONFINE: &str = "confine";
const PROGRAM: &str = "--";

/// `Command::new(program)`, tethered. The spawning thread must outlive the child.
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

/// Replaces a process that [`command`] has started by its guest; returns in all others.
pub fn become_guest() -> Result<()> {
    let words: Vec<_> = env::args_os().skip(1).collect();
    match words.split_first() {
        Some((first, words)) if first == SUBCOMMAND => match become_program(words)? {},
        _ => Ok(()),
    }
}

fn become_program(words: &[OsString]) -> Result<Infallible> {
    let (parent, (reach, program, args)) = words
        .split_first()
        .and_then(|(parent, words)| Some((parent.to_str()?.parse().ok()?, parse(words)?)))
        .ok_or_else(|| Error::usage("xdc starts this command itself"))?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|err| Error::io("setting the guest's death signal", &err.into()))?;
    // The parent may have died before prctl.
    if getppid() != Pid::from_raw(parent) {
        return Err(Error::failure("the parent process has ended"));
    }
    // A separate group, which the filter does not let it leave, so that one signal ends all of it. Fails if
    // it has one.
    let _ = setsid();
    let limit = Some(reach.file_limit_bytes);
    setrlimit(Resource::Fsize, Rlimit { current: limit, maximum: limit })
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

/// First ABI that controls every way to change a file's content, including truncate(2).
const LEAST: ABI = ABI::V3;
/// If supported: ioctls of devices, TCP, signals and sockets of other processes.
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
        // Executed programs cannot gain privileges, either.
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|err| failed("Landlock", &err))?;
    // QEMU may read every file, so also its attributes.
    let is_qemu = reach.reads.iter().any(|path| path == Path::new("/"));
    for filter in calls::filters(is_qemu) {
        let filter = filter.map_err(|err| failed("the system call filter", &err))?;
        seccompiler::apply_filter(&filter).map_err(|err| failed("the system call filter", &err))?;
    }
    Ok(())
}

/// Drops capabilities. Root keeps only access to a kernel in a user's home; other users have none.
fn drop_capabilities() -> rustix::io::Result<()> {
    let has = capabilities(None)?.permitted;
    if !has.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    // Otherwise root's next program would regain all of them, or, if it may not, lose its personality, for
    // which UML re-executes itself until it has it.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_ROOT)?;
    let kept = has & CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    match kept.is_empty() {
        true => Ok(()),
        false => configure_capability_in_ambient_set(CapabilitySet::DAC_READ_SEARCH, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_survives_the_command_line() {
        let reach = Reach {
            reads: vec!["/kernel".into(), "--".into()],
            writes: vec!["/tmp/a b".into()],
            file_limit_bytes: 7,
            confined: true,
        };
        let command = command(Path::new("/bin/true"), &reach);
        let words: Vec<_> = command.get_args().skip(2).map(OsStr::to_os_string).collect();
        let args = [OsString::from("--read"), "x".into()];
        let words = [words, args.to_vec()].concat();
        let (told, program, rest) = parse(&words).unwrap();
        assert_eq!((told, program, rest), (reach, OsStr::new("/bin/true"), &args[..]));
        assert!(parse(&words[..3]).is_none());
    }
}
