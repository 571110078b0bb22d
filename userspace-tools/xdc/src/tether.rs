// SPDX-License-Identifier: GPL-2.0
//! A child that the kernel kills when we are killed, so that no guest outlives even `kill -9`.
//!
//! The wish has to be uttered by the child. It is this executable again, which utters it and
//! becomes the program; UML's own children do the same for their parent.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use crate::error::{Error, Result};

/// The subcommand, which is nobody's to type.
pub const SUBCOMMAND: &str = "tethered";

/// Like `Command::new(program)`. The thread that spawns it must outlive it.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(SUBCOMMAND)
        .arg(getpid().as_raw_nonzero().to_string())
        .arg(program);
    command
}

/// In the child: become `words`, the program and its arguments.
pub fn become_program(parent: i32, words: &[OsString]) -> Result<Infallible> {
    let (program, args) = words
        .split_first()
        .ok_or_else(|| Error::usage("no program to become"))?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|err| Error::io("tethering the guest", &err.into()))?;
    // The parent may have died before that.
    if getppid() != Pid::from_raw(parent) {
        return Err(Error::failure("the parent is gone"));
    }
    let err = Command::new(program).args(args).exec();
    Err(Error::io(Path::new(program).display(), &err))
}
