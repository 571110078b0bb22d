// SPDX-License-Identifier: GPL-2.0
//! The far end of a TUN device: what the kernel sends is read here, what is written here the kernel
//! receives, and there is no other kernel in between.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd},
    os::unix::fs::OpenOptionsExt,
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};

nix::ioctl_write_ptr_bad!(
    /// Attaches the file to a device.
    tunsetiff,
    libc::TUNSETIFF,
    libc::ifreq
);

/// CLOCK_MONOTONIC, by which the kernel's TCP measures too.
pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// No packet of the device is longer.
const LONGEST_BYTES: usize = 2_048;

/// An attached TUN device.
pub struct Tun(File);

impl Tun {
    /// Attaches to the device, which exists.
    pub fn open(name: &str) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .context("cannot open /dev/net/tun")?;
        // SAFETY: an ifreq is plain data, for which zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the file is a TUN device's and the request is complete.
        unsafe { tunsetiff(file.as_raw_fd(), &request) }
            .with_context(|| format!("cannot attach to {name}"))?;
        Ok(Tun(file))
    }

    /// The kernel receives a packet.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        (&self.0)
            .write_all(packet)
            .context("the kernel does not take a packet")
    }

    /// The next packet that the kernel sends, if it sends one by then. What it has sent already is
    /// read at once.
    ///
    /// In virtual time a system call that fails costs a microsecond, others nothing: so this asks
    /// before it reads.
    pub fn receive(&self, deadline_ns: u64) -> Result<Option<Vec<u8>>> {
        loop {
            let left_ns = deadline_ns.saturating_sub(now_ns()?);
            let timeout = TimeSpec::new(
                (left_ns / 1_000_000_000) as i64,
                (left_ns % 1_000_000_000) as i64,
            );
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut fds, Some(timeout), None) {
                Ok(0) if left_ns == 0 => return Ok(None),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => {
                    let mut packet = vec![0; LONGEST_BYTES];
                    let length = (&self.0)
                        .read(&mut packet)
                        .context("cannot read a packet")?;
                    packet.truncate(length);
                    return Ok(Some(packet));
                }
                Err(error) => return Err(error).context("cannot wait for a packet"),
            }
        }
    }
}
