// SPDX-License-Identifier: GPL-2.0
//! Encodes and decodes TCP segments in IP packets.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use etherparse::{
    Icmpv4Type, IpEcn, IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, TcpHeader,
    TcpSlice, icmpv4,
};

const TTL: u8 = 64;

/// Option kinds of AccECN: counters in the order ECT(0), CE, ECT(1), and the reverse.
const ACCECN0: u8 = 172;
const ACCECN1: u8 = 174;

/// ECN codepoint of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codepoint {
    #[default]
    NotEct,
    Ect1,
    Ect0,
    Ce,
}

impl Codepoint {
    fn of(ecn: IpEcn) -> Self {
        match ecn.value() {
            1 => Codepoint::Ect1,
            2 => Codepoint::Ect0,
            3 => Codepoint::Ce,
            _ => Codepoint::NotEct,
        }
    }

    fn ecn(self) -> IpEcn {
        IpEcn::try_new(self as u8).unwrap_or_default()
    }

    /// AE, CWR and ECE that report the codepoint in AccECN's handshake.
    pub fn handshake_ace(self) -> u8 {
        match self {
            Codepoint::NotEct => 0b010,
            Codepoint::Ect1 => 0b011,
            Codepoint::Ect0 => 0b100,
            Codepoint::Ce => 0b110,
        }
    }
}

/// TCP options that the peer reads or writes.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub mss_bytes: Option<u16>,
    pub window_shift: Option<u8>,
    pub sack_permitted: bool,
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks; the first may be a D-SACK.
    pub sack: Vec<(u32, u32)>,
    /// AccECN's byte counters: ECT(0), CE, ECT(1).
    pub accecn: Option<[u32; 3]>,
}

impl Options {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(mss_bytes) = self.mss_bytes {
            out.extend([2, 4]);
            out.extend(mss_bytes.to_be_bytes());
        }
        if let Some(shift) = self.window_shift {
            out.extend([3, 3, shift]);
        }
        if self.sack_permitted {
            out.extend([4, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            out.extend([8, 10]);
            out.extend(value.to_be_bytes());
            out.extend(echo.to_be_bytes());
        }
        if let Some(counters) = self.accecn {
            out.extend([ACCECN0, 11]);
            for counter in counters {
                out.extend(&counter.to_be_bytes()[1..]);
            }
        }
        if !self.sack.is_empty() {
            out.extend([5, 2 + 8 * self.sack.len() as u8]);
            for (start, end) in &self.sack {
                out.extend(start.to_be_bytes());
                out.extend(end.to_be_bytes());
            }
        }
        while out.len() % 4 != 0 {
            out.push(1);
        }
        out
    }

    fn parse(mut bytes: &[u8]) -> Result<Self> {
        let mut options = Options::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                0 => break,
                1 => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let length = usize::from(*rest.first().context("truncated option")?);
            let option = bytes.get(2..length.max(2)).context("truncated option")?;
            match (kind, option) {
                (2, &[a, b]) => options.mss_bytes = Some(u16::from_be_bytes([a, b])),
                (3, &[shift]) => options.window_shift = Some(shift),
                (4, _) => options.sack_permitted = true,
                (5, blocks) => {
                    options.sack = blocks
                        .chunks_exact(8)
                        .map(|block| (be32(&block[..4]), be32(&block[4..])))
                        .collect();
                }
                (8, stamps) if stamps.len() == 8 => {
                    options.timestamps = Some((be32(&stamps[..4]), be32(&stamps[4..])));
                }
                (ACCECN0 | ACCECN1, counters) => {
                    let mut values = [0; 3];
                    for (value, counter) in values.iter_mut().zip(counters.chunks_exact(3)) {
                        *value = be32(counter);
                    }
                    if kind == ACCECN1 {
                        values.reverse();
                    }
                    options.accecn = Some(values);
                }
                _ => {}
            }
            bytes = &bytes[length.max(2)..];
        }
        Ok(options)
    }
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, &byte| n << 8 | u32::from(byte))
}

/// A TCP segment; only the length of its payload matters.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    pub seq: u32,
    pub ack: u32,
    pub syn: bool,
    pub has_ack: bool,
    pub fin: bool,
    pub rst: bool,
    /// AE, CWR and ECE; AE is the highest bit.
    pub ace: u8,
    pub window: u16,
    pub codepoint: Codepoint,
    pub options: Options,
    pub payload_bytes: u32,
}

impl Segment {
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload_bytes)
    }

    pub fn cwr(&self) -> bool {
        self.ace & 0b010 != 0
    }

    pub fn ece(&self) -> bool {
        self.ace & 0b001 != 0
    }

    /// Encodes the segment as an IP packet.
    pub fn write(&self, from: SocketAddr, to: SocketAddr) -> Result<Vec<u8>> {
        let mut tcp = TcpHeader::new(from.port(), to.port(), self.seq, self.window);
        tcp.acknowledgment_number = self.ack;
        tcp.ack = self.has_ack;
        tcp.syn = self.syn;
        tcp.fin = self.fin;
        tcp.rst = self.rst;
        tcp.ns = self.ace & 0b100 != 0;
        tcp.cwr = self.cwr();
        tcp.ece = self.ece();
        tcp.set_options_raw(&self.options.bytes())?;
        let payload = vec![0; self.payload_bytes as usize];
        let length = tcp.header_len() + payload.len();
        let mut packet = Vec::new();
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip =
                    Ipv4Header::new(length as u16, TTL, IpNumber::TCP, from.octets(), to.octets())?;
                ip.ecn = self.codepoint.ecn();
                tcp.checksum = tcp.calc_checksum_ipv4(&ip, &payload)?;
                ip.write(&mut packet)?;
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut ip = Ipv6Header {
                    payload_length: length as u16,
                    next_header: IpNumber::TCP,
                    hop_limit: TTL,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv6Header::default()
                };
                ip.set_ecn(self.codepoint.ecn());
                tcp.checksum = tcp.calc_checksum_ipv6(&ip, &payload)?;
                ip.write(&mut packet)?;
            }
            _ => bail!("{from} and {to} have different address families"),
        }
        tcp.write(&mut packet)?;
        packet.extend(payload);
        Ok(packet)
    }

    /// Decodes a segment and its addresses; None if the packet is not TCP.
    pub fn read(packet: &[u8]) -> Result<Option<(SocketAddr, SocketAddr, Self)>> {
        let (headers, payload) = IpHeaders::from_slice(packet).context("invalid IP packet")?;
        if payload.ip_number != IpNumber::TCP {
            return Ok(None);
        }
        let (from, to, codepoint): (IpAddr, IpAddr, _) = match &headers {
            IpHeaders::Ipv4(ip, _) => {
                (ip.source.into(), ip.destination.into(), Codepoint::of(ip.ecn))
            }
            IpHeaders::Ipv6(ip, _) => {
                (ip.source.into(), ip.destination.into(), Codepoint::of(ip.ecn()))
            }
        };
        let tcp = TcpSlice::from_slice(payload.payload).context("invalid TCP segment")?;
        let segment = Segment {
            seq: tcp.sequence_number(),
            ack: tcp.acknowledgment_number(),
            syn: tcp.syn(),
            has_ack: tcp.ack(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            ace: u8::from(tcp.ns()) << 2 | u8::from(tcp.cwr()) << 1 | u8::from(tcp.ece()),
            window: tcp.window_size(),
            codepoint,
            options: Options::parse(tcp.options())?,
            payload_bytes: tcp.payload().len() as u32,
        };
        Ok(Some((
            SocketAddr::new(from, tcp.source_port()),
            SocketAddr::new(to, tcp.destination_port()),
            segment,
        )))
    }
}

/// ICMP "fragmentation needed" of a router whose next link is too small for `segment`, with its first bytes.
pub fn too_large(
    segment: &Segment,
    from: SocketAddr,
    to: SocketAddr,
    mtu_bytes: u16,
) -> Result<Vec<u8>> {
    let IpAddr::V4(source) = from.ip() else { bail!("{from} is not IPv4") };
    let IpAddr::V4(router) = to.ip() else { bail!("{to} is not IPv4") };
    let quoted = segment.write(from, to)?;
    let mut packet = Vec::new();
    PacketBuilder::ipv4(router.octets(), source.octets(), TTL)
        .icmpv4(Icmpv4Type::DestinationUnreachable(
            icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu_bytes },
        ))
        .write(&mut packet, &quoted[..28])?;
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_encoded_and_decoded() {
        for (from, to) in [("10.7.0.2:1", "10.7.0.1:2"), ("[fd07::2]:1", "[fd07::1]:2")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let sent = Segment {
                seq: 0xffff_fff0,
                ack: 7,
                has_ack: true,
                ace: 0b101,
                window: 65_535,
                codepoint: Codepoint::Ce,
                payload_bytes: 33,
                options: Options {
                    timestamps: Some((1, 2)),
                    sack: vec![(3, 4), (5, 6)],
                    accecn: Some([1, 2, 3]),
                    ..Options::default()
                },
                ..Segment::default()
            };
            let packet = sent.write(from, to).unwrap();
            let (from_read, to_read, got) = Segment::read(&packet).unwrap().unwrap();
            assert_eq!((from_read, to_read), (from, to));
            assert_eq!(format!("{got:?}"), format!("{sent:?}"));
            assert_eq!(got.end(), 17);
        }
    }

    #[test]
    fn a_truncated_option_is_refused() {
        assert!(Options::parse(&[8, 10, 0]).is_err());
        assert!(Options::parse(&[8]).is_err());
        assert!(Options::parse(&[1, 0, 8]).is_ok());
    }
}
