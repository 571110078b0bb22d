// SPDX-License-Identifier: GPL-2.0
//! Two hosts on a chain of switches, and packets for it.

use std::{
    cell::RefCell,
    net::{IpAddr, UdpSocket},
    os::fd::AsRawFd,
};

use anyhow::Result;
use socket2::Socket;
use xdc_netlink::{
    fabric::{Network, Peer, Port, Size, Switch},
    link::{self, VethEnd},
    phantom::Options,
};

use crate::{
    Storm,
    flow::{Family, Load},
    net::{DEVICE, Netns, Pair, configure_host, mac, v4, v6},
    sys::{self, set_option},
};

/// Ports of a chain, by their other ends: h0 - s0 - s1 - s2 - h1, with two links from s1 to s2.
const PEERS: [Peer; 7] = [
    Peer::Device(0),
    Peer::Switch(1),
    Peer::Switch(0),
    Peer::Switch(2),
    Peer::Switch(1),
    Peer::Device(1),
    Peer::Switch(2),
];
/// Ports that lead to host 1.
pub const FORTH: [u32; 4] = [1, 3, 6, 5];

/// Two hosts on a chain of switches.
pub struct Chain {
    /// Namespace of the network.
    pub home: Netns,
    /// The hosts.
    pub pair: Pair,
    /// Connection to the network.
    pub network: RefCell<Network>,
    /// Low 32 bits of the first host's address.
    pub first_host: u32,
}

impl Chain {
    /// Routes to the hosts' addresses in one family.
    pub fn new(family: Family) -> Result<Self> {
        let first_host = match family {
            Family::V6 => u128::from(v6(0)) as u32,
            _ => u32::from(v4(0)),
        };
        let hosts = [Netns::create()?, Netns::create()?];
        let home = Netns::create()?;
        let network = RefCell::new(home.run(|| build(first_host))?);
        let chain = Self { home, pair: Pair { hosts }, network, first_host };
        // Orphans must end, or their namespace remains.
        chain.pair.sysctl("net/ipv4/tcp_orphan_retries", "1")?;
        chain.connect(0)?;
        chain.connect(1)?;
        Ok(chain)
    }

    /// Creates the link of a host.
    pub fn connect(&self, host: usize) -> Result<()> {
        let end = VethEnd {
            name: "eth0".to_string(),
            index: DEVICE,
            mac: mac(host),
            netns: Some(self.pair.hosts[host].as_raw_fd()),
        };
        let request = link::add_fabric(&end, 1500, true, host as u32, 2 * host as u32);
        self.home.request(request)?;
        self.pair.hosts[host].run(|| configure_host(host))
    }

    /// Sets a port, after a change to its first settings.
    pub fn set(&self, change: impl FnOnce(&mut Port), id: u32) -> Result<()> {
        let mut port = port(id);
        change(&mut port);
        Ok(self.network.borrow_mut().set_port(&port)?)
    }

    /// Deletes the link of a host.
    pub fn disconnect(&self, host: usize) -> Result<()> {
        self.pair.hosts[host].request(link::delete(DEVICE))
    }

    /// Flows from host 0 to host 1.
    pub fn load<'a>(&'a self, storm: &Storm) -> Result<Load<'a>> {
        let v6 = self.first_host == u128::from(v6(0)) as u32;
        let families: &[_] = if v6 { &[Family::V6] } else { &[Family::V4, Family::Mapped] };
        Load::new(storm, &self.pair, families)
    }

    /// Sends small packets from a host to the other.
    pub fn flood(&self, host: usize, packets: usize) -> Result<()> {
        const SOL_UDP: i32 = 17;
        const UDP_SEGMENT: i32 = 103;
        const SEGMENTS: usize = 100;
        self.pair.hosts[host].run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            let socket = Socket::from(socket);
            set_option(&socket, SOL_UDP, UDP_SEGMENT, 1)?;
            let socket = UdpSocket::from(socket);
            for _ in 0..packets / SEGMENTS {
                socket.send_to(&[0; SEGMENTS], (v4(1 - host), 9))?;
            }
            Ok(())
        })
    }

    /// Sends a frame from host 0 without a qdisc, or with one.
    pub fn inject(&self, rng: &mut fastrand::Rng, packets: u32) -> Result<()> {
        self.pair.hosts[0].run(|| {
            let socket = sys::packet_socket(DEVICE)?;
            let _ = set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, rng.i32(..2));
            for _ in 0..packets {
                // A short frame is refused.
                let _ = socket.send(&frame(rng));
            }
            Ok(())
        })
    }
}

/// A frame to host 1, which may be broken or truncated.
fn frame(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut frame = [mac(1), mac(0)].concat();
    let (protocol, address): (u16, IpAddr) = match rng.u8(..3) {
        0 => (0x0800, v4(1).into()),
        1 => (0x86dd, v6(1).into()),
        _ => (rng.u16(..), v4(1).into()),
    };
    if rng.u8(..8) == 0 {
        frame.extend([0x81, 0, 0, 1]);
    }
    frame.extend(protocol.to_be_bytes());
    let start = frame.len();
    frame.extend((0..rng.usize(40..1400)).map(|_| rng.u8(..)));
    match address {
        IpAddr::V4(address) => {
            frame[start] = [0x45, 0x4f, 0x46, 0x40, rng.u8(..)][rng.usize(..5)];
            frame[start + 9] = [6, 17, 1, 47, 4, 0, rng.u8(..)][rng.usize(..7)];
            frame[start + 16..start + 20].copy_from_slice(&address.octets());
        }
        IpAddr::V6(_) => {
            frame[start] = 0x60;
            frame[start + 6] = [6, 17, 58, 0, 43, 44, rng.u8(..)][rng.usize(..7)];
            // The network compares the last four bytes.
            frame[start + 36..start + 40].copy_from_slice(&v4(1).octets());
        }
    }
    if rng.u8(..4) == 0 {
        frame.truncate(rng.usize(10..frame.len()));
    }
    frame
}

/// A port's first settings.
pub fn port(id: u32) -> Port {
    let options = Options {
        limit_bytes: Some(100_000),
        rate_bytes_per_s: Some(12_500_000),
        ..Options::default()
    };
    Port {
        id,
        peer: PEERS[id as usize],
        rate_bytes_per_s: 0,
        delay_ns: 10_000,
        jitter_ns: 0,
        loss_ppm: 0,
        seed: 1,
        burst: None,
        policer: None,
        queue: Some(options.encode()),
        pool: None,
    }
}

/// Creates the network in the thread's namespace.
pub fn build(first_host: u32) -> Result<Network> {
    let mut network = Network::create(&Size {
        switches: 3,
        ports: 7,
        devices: 2,
        pools_bytes: vec![60_000, 90_000],
        first_host,
        hosts: 2,
    })?;
    for id in 0..7 {
        network.set_port(&port(id))?;
    }
    for (id, ways) in
        [[vec![0], vec![1]], [vec![2], vec![3, 6]], [vec![4], vec![5]]].into_iter().enumerate()
    {
        network.set_switch(&Switch {
            id: id as u32,
            seed: id as u32,
            spray: false,
            table: vec![0, 1],
            ways: ways.to_vec(),
        })?;
    }
    Ok(network)
}
