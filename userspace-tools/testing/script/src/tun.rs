// SPDX-License-Identifier: GPL-2.0
//! Far end of a TUN device: reads are packets from the kernel, writes are packets to it. No other kernel is
//! in between.

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

/// CLOCK_MONOTONIC, the clock of the kernel's TCP.
pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Longest packet of the device.
const LONGEST_BYTES: usize = 2_048;

/// An attached TUN device.
pub struct Tun(File);

impl Tun {
    /// Attaches to an existing device.
    pub fn open(name: &str) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .context("cannot open /dev/net/tun")?;
        // SAFETY: Zeroes are a valid ifreq, which is plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: The file is a TUN device and the request is initialized.
        unsafe { tunsetiff(file.as_raw_fd(), &request) }
            .with_context(|| format!("cannot attach to {name}"))?;
        Ok(Tun(file))
    }

    /// Sends a packet to the kernel.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        (&self.0).write_all(packet).context("cannot write a packet to the kernel")
    }

    /// Returns the next packet from the kernel, or None at the deadline.
    ///
    /// Polls before it reads: in virtual time a failed system call costs a microsecond, others nothing.
    pub fn receive(&self, deadline_ns: u64) -> Result<Option<Vec<u8>>> {
        loop {
            let left_ns = deadline_ns.saturating_sub(now_ns()?);
            let timeout =
                TimeSpec::new((left_ns / 1_000_000_000) as i64, (left_ns % 1_000_000_000) as i64);
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut fds, Some(timeout), None) {
                Ok(0) if left_ns == 0 => return Ok(None),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => {
                    let mut packet = vec![0; LONGEST_BYTES];
                    let length = (&self.0).read(&mut packet).context("cannot read a packet")?;
                    packet.truncate(length);
                    return Ok(Some(packet));
                }
                Err(error) => return Err(error).context("cannot wait for a packet"),
            }
        }
    }
}
