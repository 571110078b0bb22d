// SPDX-License-Identifier: GPL-2.0
//! The test's namespace: the device from selftests/guest/05-script.sh, and its sysctls.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::tun::{Tun, now_ns};
use crate::wire::Segment;

/// Device, and the kernel's addresses on it.
const DEVICE: &str = "tun0";
pub const KERNEL_V4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
pub const KERNEL_V6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1);

/// Link rate, RTT and MSS of most cases: a BDP of 100 packets. The RTT is not 1 ms, which the modules take
/// for the coarse timestamp of a retransmitted SYN.
pub const RATE_MBPS: u32 = 400;
pub const RTT_US: u64 = 2_000;
pub const MSS_BYTES: u16 = 1_000;
pub const BDP_PACKETS: u32 = 100;
pub const BDP_BYTES: f64 = 100_000.0;
/// Intra-DC RTT for unocc's epochs.
pub const INTRA_US: u64 = 200;

/// Far end of the device.
pub struct Lab {
    tun: Tun,
    next_port: u16,
}

impl Lab {
    /// Attaches to the device.
    pub fn open() -> Result<Self> {
        Ok(Lab { tun: Tun::open(DEVICE)?, next_port: 10_000 })
    }

    /// Returns an unused port.
    pub fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    /// Sends a segment to the kernel.
    pub fn send(&self, from: SocketAddr, to: SocketAddr, segment: &Segment) -> Result<()> {
        self.tun.send(&segment.write(from, to)?)
    }

    /// Returns the next segment that the kernel sends on the connection before the deadline, with the time of
    /// reading.
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

    /// Sets unocc's parameters: a profile on a path of one BDP, then `others`.
    pub fn unocc(&self, profile: &str, others: &[(&str, u32)]) -> Result<()> {
        sysctl("unocc/profile", profile)?;
        sysctl("unocc/line_rate_mbps", &RATE_MBPS.to_string())?;
        sysctl("unocc/intra_rtt_us", &INTRA_US.to_string())?;
        set("unocc", others)
    }

    /// Sets gemini's parameters: the paper's profile on the same path, then `others`.
    pub fn gemini(&self, others: &[(&str, u32)]) -> Result<()> {
        sysctl("gemini/profile", "paper")?;
        sysctl("gemini/line_rate_mbps", &RATE_MBPS.to_string())?;
        set("gemini", others)
    }

    /// Address of a peer whose route has this initial window, in packets.
    pub fn peer(&self, v6: bool, initial_window: u16, host: u8) -> IpAddr {
        if v6 {
            Ipv6Addr::new(0xfd07, 0, 0, initial_window, 0, 0, 0, host.into()).into()
        } else {
            Ipv4Addr::new(10, 7, initial_window as u8, host).into()
        }
    }

    /// Sends an IP packet to the kernel.
    pub fn send_packet(&self, packet: &[u8]) -> Result<()> {
        self.tun.send(packet)
    }

    /// Switches dropping in the qdisc layer of the device on or off.
    pub fn drop_at_egress(&self, on: bool) -> Result<()> {
        let clsact: &[&str] = &["qdisc", if on { "add" } else { "del" }, "dev", DEVICE, "clsact"];
        let filter: &[&str] =
            &["filter", "add", "dev", DEVICE, "egress", "matchall", "action", "drop"];
        let commands = if on { vec![clsact, filter] } else { vec![clsact] };
        for arguments in commands {
            let status = Command::new("tc").args(arguments).status()?;
            ensure!(status.success(), "tc {} failed", arguments.join(" "));
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

/// Shortest base RTT of flows in the namespace.
pub fn shortest_rtt_us(algorithm: &str) -> Result<u32> {
    let path = format!("/proc/sys/net/{algorithm}/shortest_rtt_us");
    Ok(fs::read_to_string(path)?.trim().parse()?)
}

/// Writes /proc/sys/net/NAME.
pub fn sysctl(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys/net").join(name);
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}
