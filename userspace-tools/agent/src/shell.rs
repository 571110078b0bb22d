// SPDX-License-Identifier: GPL-2.0
//! A shell on the console.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use nix::{
    sys::wait::wait,
    unistd::{Pid, setsid},
};

use crate::boot;

/// Runs a shell with job control and returns when it exits.
pub fn run() -> Result<()> {
    // /dev/console cannot be a controlling terminal; the device behind it can.
    let active = fs::read_to_string("/sys/class/tty/console/active")
        .context("cannot find the console's device")?;
    let device = Path::new("/dev").join(active.split_whitespace().last().unwrap_or("console"));
    let terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&device)
        .with_context(|| format!("cannot open {}", device.display()))?;

    let mut command = Command::new("/bin/sh");
    command
        .env("PATH", boot::PATH)
        .env("HOME", "/")
        .env("TERM", "linux")
        .current_dir("/")
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal);
    // SAFETY: between fork and exec these two system calls are all that runs.
    unsafe { command.pre_exec(take_terminal) };
    let shell = command.spawn().context("cannot run /bin/sh")?;
    // Whatever ends meanwhile is ours to bury too.
    while wait().context("wait")?.pid() != Some(Pid::from_raw(shell.id() as i32)) {}
    Ok(())
}

/// Makes standard input the controlling terminal of a new session.
fn take_terminal() -> io::Result<()> {
    setsid()?;
    // SAFETY: TIOCSCTTY takes an integer and touches no memory of ours.
    match unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
