// SPDX-License-Identifier: GPL-2.0
//! `ethtool -K DEVICE gro on`: a veth joins what it receives only when it is told to.

use std::{io, os::fd::AsRawFd};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Turns GRO on for a device of the present namespace.
pub fn receive(device: &str) -> Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).context("socket")?;
    let mut value = Value {
        command: ETHTOOL_SGRO,
        data: 1,
    };
    // SAFETY: All zeroes are a valid request: no name, no data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: The request names a device and points to a command, which both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).with_context(|| format!("GRO of {device}")),
    }
}
