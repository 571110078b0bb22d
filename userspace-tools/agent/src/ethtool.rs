// SPDX-License-Identifier: GPL-2.0
//! ethtool requests for devices of the current namespace.

use std::{io, os::fd::AsRawFd};

use anyhow::{Context, Result, ensure};
use socket2::{Domain, Socket, Type};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
const ETH_GSTRING_LEN: usize = 32;

/// Upper bound of a device's counters.
const MAX_COUNTERS: u32 = 256;

/// `ethtool -K DEVICE gro on`: off by default on veth.
pub fn join_received(device: &str) -> Result<()> {
    // struct ethtool_value
    let mut request = words(&[ETHTOOL_SGRO, 1]);
    Ethtool::open()?.ask(device, &mut request).with_context(|| format!("GRO of {device}"))
}

/// Socket for ethtool requests.
pub struct Ethtool(Socket);

impl Ethtool {
    pub fn open() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None);
        Ok(Self(socket.context("socket")?))
    }

    /// Names of a device's counters, as in `ethtool -S`.
    pub fn names(&self, device: &str) -> Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, a mask of 64 bits, and a number for each of its bits.
        let mut request = words(&[ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0, 0]);
        self.ask(device, &mut request)?;
        let count = word(&request, 4);
        ensure!(count <= MAX_COUNTERS, "{device} has {count} counters");
        // struct ethtool_gstrings
        let mut request = words(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, count]);
        let fixed = request.len();
        request.resize(fixed + count as usize * ETH_GSTRING_LEN, 0);
        self.ask(device, &mut request)?;
        let names = request[fixed..].chunks_exact(ETH_GSTRING_LEN);
        let name = |bytes: &[u8]| {
            let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        Ok(names.map(name).collect())
    }

    /// The `count` counters of a device.
    pub fn counters(&self, device: &str, count: usize) -> Result<Vec<u64>> {
        // struct ethtool_stats
        let mut request = words(&[ETHTOOL_GSTATS, count as u32]);
        let fixed = request.len();
        request.resize(fixed + count * size_of::<u64>(), 0);
        self.ask(device, &mut request)?;
        let (values, _) = request[fixed..].as_chunks();
        Ok(values.iter().map(|&value| u64::from_ne_bytes(value)).collect())
    }

    /// Sends a request; `request` must have room for the answer.
    fn ask(&self, device: &str, request: &mut [u8]) -> Result<()> {
        // SAFETY: All zeroes are a valid request: no name, no data.
        let mut named: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = named.ifr_name.len() - 1;
        for (to, from) in named.ifr_name[..room].iter_mut().zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        named.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: The request names a device and points to a command with room for its answer; both outlive
        // the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL, &raw mut named) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).with_context(|| format!("ethtool of {device}")),
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn word(request: &[u8], at: usize) -> u32 {
    let (words, _) = request.as_chunks();
    words.get(at).map_or(0, |&word| u32::from_ne_bytes(word))
}
