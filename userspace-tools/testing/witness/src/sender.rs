// SPDX-License-Identifier: GPL-2.0
//! Sends packets with exactly the given bytes, ECN, DSCP, priority and segments.

use std::{
    io::IoSlice,
    os::fd::{AsRawFd, OwnedFd},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    setsockopt_impl, sockopt_impl,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socket,
        sockopt::{Priority, SndBufForce},
    },
};

use crate::lab::now_ns;

sockopt_impl!(
    /// Frames begin with a `struct virtio_net_hdr`.
    VnetHeader,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_VNET_HDR,
    libc::c_int
);

/// ECN codepoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    NotEct = 0,
    Ect1 = 1,
    Ect0 = 2,
    Ce = 3,
}

/// Protocols of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Udp4,
    Udp6,
    /// TCP over IPv4; without payload a pure ACK.
    Tcp4,
    Other,
}

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const TCP_BYTES: usize = 20;
const NUMBER_BYTES: usize = 4;

impl Kind {
    /// Bytes before the payload.
    pub fn header_bytes(self) -> usize {
        match self {
            Kind::Udp4 => ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES,
            Kind::Udp6 => ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES,
            Kind::Tcp4 => ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES,
            Kind::Other => ETHERNET_BYTES,
        }
    }

    fn ip_bytes(self) -> usize {
        match self {
            Kind::Udp4 | Kind::Tcp4 => IPV4_BYTES,
            Kind::Udp6 => IPV6_BYTES,
            Kind::Other => 0,
        }
    }
}

/// One packet to send.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    pub kind: Kind,
    /// Length with the Ethernet header.
    pub bytes: usize,
    pub ecn: Ecn,
    pub dscp: u8,
    /// skb->priority.
    pub priority: u32,
    /// Destination port of UDP or TCP.
    pub destination_port: u16,
    /// Payload bytes per segment; 0 = not GSO.
    pub segment_bytes: u16,
}

impl Frame {
    /// Frame of UDP over IPv4, ECT(0), best effort.
    pub fn new(bytes: usize) -> Self {
        Self {
            kind: Kind::Udp4,
            bytes,
            ecn: Ecn::Ect0,
            dscp: 0,
            priority: 0,
            destination_port: 9,
            segment_bytes: 0,
        }
    }

    pub fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub fn ecn(self, ecn: Ecn) -> Self {
        Self { ecn, ..self }
    }

    pub fn dscp(self, dscp: u8) -> Self {
        Self { dscp, ..self }
    }

    pub fn priority(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    pub fn port(self, destination_port: u16) -> Self {
        Self { destination_port, ..self }
    }

    /// Makes it a GSO packet with this payload per segment.
    pub fn segments_of(self, segment_bytes: u16) -> Self {
        Self { segment_bytes, ..self }
    }

    pub fn write(&self, destination: [u8; 6], number: u32) -> Vec<u8> {
        let mut frame = vec![0; self.bytes];
        frame[..6].copy_from_slice(&destination);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        let ethertype: u16 = match self.kind {
            Kind::Udp4 | Kind::Tcp4 => 0x0800,
            Kind::Udp6 => 0x86dd,
            // Local experimental EtherType.
            Kind::Other => 0x88b5,
        };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let (_, ip) = frame.split_at_mut(ETHERNET_BYTES);
        let dsfield = self.dscp << 2 | self.ecn as u8;
        let protocol = if self.kind == Kind::Tcp4 { 6 } else { 17 };
        match self.kind {
            Kind::Udp4 | Kind::Tcp4 => write_ipv4(ip, dsfield, protocol),
            Kind::Udp6 => write_ipv6(ip, dsfield, protocol),
            Kind::Other => {}
        }
        if self.kind != Kind::Other {
            self.write_transport(&mut ip[self.kind.ip_bytes()..]);
        }
        let payload = &mut frame[self.kind.header_bytes()..];
        if let Some(place) = payload.get_mut(..NUMBER_BYTES) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        frame
    }

    fn write_transport(&self, transport: &mut [u8]) {
        transport[..2].copy_from_slice(&5000u16.to_be_bytes());
        transport[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        if self.kind == Kind::Tcp4 {
            transport[12] = ((TCP_BYTES / 4) as u8) << 4;
            // ACK
            transport[13] = 0x10;
        } else {
            let bytes = transport.len() as u16;
            transport[4..6].copy_from_slice(&bytes.to_be_bytes());
        }
    }

    /// `struct virtio_net_hdr`.
    fn virtio_header(&self) -> [u8; 10] {
        const NEEDS_CHECKSUM: u8 = 1;
        const GSO_TCPV4: u8 = 1;
        const GSO_UDP_L4: u8 = 5;

        let mut header = [0; 10];
        if self.segment_bytes == 0 {
            return header;
        }
        let start = ETHERNET_BYTES + self.kind.ip_bytes();
        let (kind, checksum_at) = match self.kind {
            Kind::Tcp4 => (GSO_TCPV4, 16u16),
            _ => (GSO_UDP_L4, 6),
        };
        header[0] = NEEDS_CHECKSUM;
        header[1] = kind;
        header[2..4].copy_from_slice(&(self.kind.header_bytes() as u16).to_ne_bytes());
        header[4..6].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&checksum_at.to_ne_bytes());
        header
    }
}

fn write_ipv4(ip: &mut [u8], dsfield: u8, protocol: u8) {
    let bytes = ip.len() as u16;
    ip[0] = 0x45;
    ip[1] = dsfield;
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    ip[8] = 64;
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&[10, 9, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 9, 0, 2]);
    let sum: u32 = ip[..IPV4_BYTES]
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn write_ipv6(ip: &mut [u8], dsfield: u8, protocol: u8) {
    let bytes = (ip.len() - IPV6_BYTES) as u16;
    ip[0] = 0x60 | dsfield >> 4;
    ip[1] = dsfield << 4;
    ip[4..6].copy_from_slice(&bytes.to_be_bytes());
    ip[6] = protocol;
    ip[7] = 64;
    // fd09::1 to fd09::2
    for (at, host) in [(8, 1), (24, 2)] {
        ip[at..at + 2].copy_from_slice(&[0xfd, 9]);
        ip[at + 15] = host;
    }
}

/// The port's immediate answer to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Queued or sent.
    Taken,
    /// Dropped (NET_XMIT_DROP).
    Refused,
    /// Not sent, because the device was down.
    Down,
}

/// A packet socket with the numbers and times of its packets.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
    to: LinkAddr,
    /// An address of no host: hosts discard the packets.
    destination: [u8; 6],
    number: u32,
    priority: u32,
    /// Time at which sending each packet ended; the port has decided by then.
    over_ns: Vec<u64>,
}

impl Sender {
    /// Opens a socket for `device` of the current network namespace.
    pub fn open(device: &str) -> Result<Self> {
        // Protocol 0 receives nothing.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )
        .context("cannot open a packet socket")?;
        // Packets held by a port are charged to the socket.
        setsockopt(&socket, SndBufForce, &(1 << 30))?;
        setsockopt(&socket, VnetHeader, &1)?;
        let to = getifaddrs()?
            .filter(|found| found.interface_name == device)
            .find_map(|found| found.address?.as_link_addr().copied())
            .with_context(|| format!("{device} has no link address"))?;
        Ok(Self {
            socket,
            to,
            destination: [2, 0, 0, 0, 0, 99],
            number: 0,
            priority: 0,
            over_ns: Vec::new(),
        })
    }

    /// Number of the last packet sent.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Time at which sending packet `number` ended.
    pub fn over_ns(&self, number: u32) -> Option<u64> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.over_ns.get(index).copied()
    }

    /// Sends one packet with the next number.
    pub fn send(&mut self, frame: &Frame) -> Result<Fate> {
        if frame.priority != self.priority {
            setsockopt(&self.socket, Priority, &(frame.priority as i32))?;
            self.priority = frame.priority;
        }
        self.number += 1;
        let header = frame.virtio_header();
        let bytes = frame.write(self.destination, self.number);
        let parts = [IoSlice::new(&header), IoSlice::new(&bytes)];
        let flags = MsgFlags::empty();
        let outcome = sendmsg(self.socket.as_raw_fd(), &parts, &[], flags, Some(&self.to));
        self.over_ns.push(now_ns()?);
        match outcome {
            Ok(sent) => {
                ensure!(sent == header.len() + bytes.len(), "sent {sent} bytes only");
                Ok(Fate::Taken)
            }
            Err(Errno::ENOBUFS) => Ok(Fate::Refused),
            Err(Errno::ENETDOWN) => Ok(Fate::Down),
            Err(error) => bail!("cannot send {frame:?}: {error}"),
        }
    }

    /// Sends `count` packets, which the port must accept.
    pub fn send_all(&mut self, count: usize, frame: &Frame) -> Result<()> {
        for _ in 0..count {
            ensure!(self.send(frame)? == Fate::Taken, "the port refused packet {}", self.number);
        }
        Ok(())
    }
}
