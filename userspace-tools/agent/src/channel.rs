// SPDX-License-Identifier: GPL-2.0
//! Output channel to the host: one JSON message per line.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use xdc_proto::Message;

use crate::boot;

/// Buffer for samples and results; other messages are flushed at once. A write switches to the host.
const BUFFER_BYTES: usize = 256 << 10;

/// virtio-serial announces its ports shortly after the device appears.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
const PORT_RETRY: Duration = Duration::from_millis(20);

/// An open channel to the host.
pub struct Channel(BufWriter<File>);

impl Channel {
    /// Opens the channel named on the kernel command line: `xdc.out=/dev/virtio-ports/NAME` (QEMU) or
    /// `xdc.out=hostfs:/DIRECTORY/FILE` on the host (UML).
    pub fn open() -> Result<Self> {
        let Some(out) = boot::kernel_argument("xdc.out")? else {
            bail!("no xdc.out= on the kernel command line: start the guest with `xdc run`");
        };
        let path = if let Some(host_path) = out.strip_prefix("hostfs:") {
            mount_host_directory(host_path)?
        } else if let Some(port) = out.strip_prefix("/dev/virtio-ports/") {
            find_port(port)?
        } else {
            PathBuf::from(&out)
        };
        Self::append_to(&path)
    }

    /// Opens an existing file.
    pub fn append_to(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .with_context(|| format!("cannot open the channel {}", path.display()))?;
        Ok(Self::of(file))
    }

    /// Wraps a file that is open for appending.
    pub fn of(file: File) -> Self {
        Self(BufWriter::with_capacity(BUFFER_BYTES, file))
    }

    /// Sends one message.
    pub fn send(&mut self, message: &Message) -> Result<()> {
        serde_json::to_writer(&mut self.0, message).context("cannot write to the host")?;
        self.0.write_all(b"\n")?;
        match message {
            Message::Sample(_) | Message::Flow(_) | Message::TracePage { .. } => Ok(()),
            _ => self.flush(),
        }
    }

    /// Flushes the buffer to the host.
    pub fn flush(&mut self) -> Result<()> {
        self.0.flush().context("cannot write to the host")
    }
}

/// Mounts the directory of a host file; returns the file's path in the guest.
fn mount_host_directory(host_path: &str) -> Result<PathBuf> {
    let Some((directory, file)) = host_path.rsplit_once('/') else {
        bail!("xdc.out=hostfs:{host_path} must be an absolute path");
    };
    fs::create_dir_all("/host")?;
    mount(Some("none"), "/host", Some("hostfs"), MsFlags::empty(), Some(directory))
        .with_context(|| format!("cannot mount the host's {directory}"))?;
    Ok(PathBuf::from("/host").join(file))
}

/// Finds the device of the virtio-serial port `name`.
fn find_port(name: &str) -> Result<PathBuf> {
    let mut waited = Duration::ZERO;
    loop {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let label = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if label.trim() == name {
                return Ok(PathBuf::from("/dev").join(entry.file_name()));
            }
        }
        if waited >= PORT_PATIENCE {
            bail!("the guest has no virtio-serial port named {name}");
        }
        thread::sleep(PORT_RETRY);
        waited += PORT_RETRY;
    }
}
