// SPDX-License-Identifier: GPL-2.0
//! Writes sysctls of network namespaces and no other file: a plan may come from a stranger's
//! scenario, and on the running kernel this writes as root.

use std::{fs::File, io::Write, os::fd::OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};
use xdc_proto::sysctl_path;

/// Sysctls of the reading process's network namespace.
const ROOT: &str = "/proc/sys/net";

/// Writes a sysctl of the current namespace; returns false if it does not exist.
pub fn write(name: &str, value: &str) -> Result<bool> {
    let Some(file) = open(name, OFlag::O_WRONLY)? else {
        return Ok(false);
    };
    File::from(file)
        .write_all(value.as_bytes())
        .with_context(|| format!("cannot set the sysctl {name} to `{value}`"))?;
    Ok(true)
}

/// Whether the current namespace has the sysctl.
pub fn exists(name: &str) -> Result<bool> {
    Ok(open(name, OFlag::O_PATH)?.is_some())
}

/// Opens a sysctl without creating or truncating it, confined to [`ROOT`].
fn open(name: &str, flags: OFlag) -> Result<Option<OwnedFd>> {
    let path = sysctl_path(name);
    ensure!(path.is_some(), "{name} is not a sysctl of a network namespace");
    let root = File::open(ROOT).with_context(|| format!("cannot open {ROOT}"))?;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(&root, path.unwrap_or_default().as_str(), how) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot open the sysctl {name}")),
    }
}
