// SPDX-License-Identifier: GPL-2.0
//! Network namespaces of this process.

use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use anyhow::{Context, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

const NAMES: &str = "/run/netns";
const OWN: &str = "/proc/self/ns/net";

/// A network namespace that the process can enter.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// The current namespace.
    pub fn current() -> Result<Self> {
        let file = File::open(OWN).with_context(|| format!("cannot open {OWN}"))?;
        Ok(Self(file))
    }

    /// Creates a namespace and enters it.
    pub fn create() -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET).context("cannot create a network namespace")?;
        Self::current()
    }

    /// Creates and enters a namespace, named for `ip netns exec`.
    pub fn create_named(name: &str) -> Result<Self> {
        let netns = Self::create()?;
        let path = Path::new(NAMES).join(name);
        fs::create_dir_all(NAMES)?;
        File::create(&path)?;
        mount(Some(OWN), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .with_context(|| format!("cannot name the network namespace {name}"))?;
        Ok(netns)
    }

    /// Inode number, the namespace's id in kernel tracepoints and `ls -i`.
    pub fn inode(&self) -> Result<u64> {
        let metadata = self.0.metadata().context("cannot ask a network namespace")?;
        Ok(metadata.ino())
    }

    /// Moves the process into the namespace: new sockets and /proc/sys/net belong to it.
    pub fn enter(&self) -> Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
