// SPDX-License-Identifier: GPL-2.0
//! The namespace of the test: the device that selftests/guest/05-script.sh made, and its sysctls.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::tun::{Tun, now_ns};
use crate::wire::Segment;

/// The device, and the kernel's addresses on it.
const DEVICE: &str = "tun0";
pub const KERNEL_V4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
pub const KERNEL_V6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1);

/// Bandwidth, RTT and packet of most cases: a BDP of 100 packets. The RTT is not 1 ms, which the
/// modules take for the coarse timestamp of a SYN that was sent again.
pub const RATE_MBPS: u32 = 400;
pub const RTT_US: u64 = 2_000;
pub const MSS_BYTES: u16 = 1_000;
pub const BDP_PACKETS: u32 = 100;
pub const BDP_BYTES: f64 = 100_000.0;
/// RTT inside a datacenter, for unocc's epochs.
pub const INTRA_US: u64 = 200;

/// The far end of the device.
pub struct Lab {
    tun: Tun,
    next_port: u16,
}

impl Lab {
    /// Attaches to the device.
    pub fn open() -> Result<Self> {
        Ok(Lab {
            tun: Tun::open(DEVICE)?,
            next_port: 10_000,
        })
    }

    /// A port that no case has used.
    pub fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    /// The kernel receives a segment.
    pub fn send(&self, from: SocketAddr, to: SocketAddr, segment: &Segment) -> Result<()> {
        self.tun.send(&segment.write(from, to)?)
    }

    /// The next segment of the connection between those two that the kernel sends, if it sends one
    /// by then, and when it was read.
    pub fn receive(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        deadline_ns: u64,
    ) -> Result<Option<(u64, Segment)>> {
        while let Some(packet) = self.tun.receive(deadline_ns)? {
            let at_ns = now_ns()?;
            if let Some((source, destination, segment)) = Segment::read(&packet)?
                && (source, destination) == (from, to)
            {
                return Ok(Some((at_ns, segment)));
            }
        }
        Ok(None)
    }

    /// unocc's parameters: those of a profile on a path of one BDP, and then some others.
    pub fn unocc(&self, profile: &str, others: &[(&str, u32)]) -> Result<()> {
        sysctl("unocc/profile", profile)?;
        sysctl("unocc/line_rate_mbps", &RATE_MBPS.to_string())?;
        sysctl("unocc/intra_rtt_us", &INTRA_US.to_string())?;
        set("unocc", others)
    }

    /// gemini's parameters: the paper's on the same path, and then some others.
    pub fn gemini(&self, others: &[(&str, u32)]) -> Result<()> {
        sysctl("gemini/profile", "paper")?;
        sysctl("gemini/line_rate_mbps", &RATE_MBPS.to_string())?;
        set("gemini", others)
    }

    /// The address of a peer, towards which connections start with so many packets.
    pub fn peer(&self, v6: bool, initial_window: u16, host: u8) -> IpAddr {
        if v6 {
            Ipv6Addr::new(0xfd07, 0, 0, initial_window, 0, 0, 0, host.into()).into()
        } else {
            Ipv4Addr::new(10, 7, initial_window as u8, host).into()
        }
    }

    /// The kernel receives an IP packet.
    pub fn send_packet(&self, packet: &[u8]) -> Result<()> {
        self.tun.send(packet)
    }

    /// All that the kernel sends is dropped by the qdisc layer of the device, from now on or no more.
    pub fn drop_at_egress(&self, on: bool) -> Result<()> {
        let clsact: &[&str] = &[
            "qdisc",
            if on { "add" } else { "del" },
            "dev",
            DEVICE,
            "clsact",
        ];
        let filter: &[&str] = &[
            "filter", "add", "dev", DEVICE, "egress", "matchall", "action", "drop",
        ];
        let commands = if on {
            vec![clsact, filter]
        } else {
            vec![clsact]
        };
        for arguments in commands {
            let status = Command::new("tc").args(arguments).status()?;
            ensure!(status.success(), "tc {} fails", arguments.join(" "));
        }
        Ok(())
    }
}

/// Writes parameters of a module.
pub fn set(module: &str, values: &[(&str, u32)]) -> Result<()> {
    values
        .iter()
        .try_for_each(|(name, value)| sysctl(&format!("{module}/{name}"), &value.to_string()))
}

/// The shortest base RTT that flows of the namespace have had.
pub fn shortest_rtt_us(algorithm: &str) -> Result<u32> {
    let path = format!("/proc/sys/net/{algorithm}/shortest_rtt_us");
    Ok(fs::read_to_string(path)?.trim().parse()?)
}

/// Writes /proc/sys/net/NAME.
pub fn sysctl(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys/net").join(name);
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}
