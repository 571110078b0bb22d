// SPDX-License-Identifier: GPL-2.0
//! Normalizes captures of two runs for comparison, and describes their first difference.
//!
//! Random or arbitrary values are relative to the first: time to the first packet, sequence numbers
//! to the SYN's, timestamps to the first in their direction. Other fields are compared literally,
//! except the meaningless: Ethernet header, addresses (replaced by the flow's number), IP ID,
//! checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice};
use xdc_base::error::{Error, Result};
use xdc_measure::run::Content;
use xdc_proto::{FIRST_PORT, Packet, from_hex, to_hex};

const ETHERNET_BYTES: usize = 14;

/// A normalized packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Time since the capture's first packet, ns.
    t_ns: u64,
    flow: u16,
    /// Whether it leaves the port; at the flow's bottleneck, whether it is from the sender.
    outgoing: bool,
    seq: u32,
    ack: u32,
    payload_bytes: u32,
    /// Flags in tcpdump's notation, and A for AccECN's AE.
    flags: String,
    ecn: &'static str,
    dscp: u8,
    ttl: u8,
    window: u16,
    options: String,
}

/// Reference values of one direction of a flow.
#[derive(Debug, Default, Clone, Copy)]
struct Origin {
    seq: Option<u32>,
    timestamp: Option<u32>,
}

/// Normalizes a capture.
pub fn normalise(packets: &[Packet]) -> Result<Vec<Segment>> {
    let start_ns = packets.first().map_or(0, |packet| packet.t_ns);
    let mut origins = BTreeMap::new();
    let mut segments = Vec::new();
    for (n, packet) in packets.iter().enumerate() {
        let segment = segment(packet, start_ns, &mut origins)
            .map_err(|why| Error::failure(format!("packet {} of the capture: {why}", n + 1)))?;
        segments.push(segment);
    }
    Ok(segments)
}

fn segment(
    packet: &Packet,
    start_ns: u64,
    origins: &mut BTreeMap<(u16, bool), Origin>,
) -> std::result::Result<Segment, String> {
    let bytes = from_hex(&packet.head).ok_or("its bytes are not hexadecimal")?;
    let ip = bytes.get(ETHERNET_BYTES..).ok_or("it is truncated")?;
    let ip = Ipv4HeaderSlice::from_slice(ip).map_err(|err| err.to_string())?;
    let tcp = &bytes[ETHERNET_BYTES + ip.slice().len()..];
    let tcp = TcpHeaderSlice::from_slice(tcp).map_err(|err| err.to_string())?;

    let headers = ip.slice().len() + tcp.slice().len();
    let payload_bytes = usize::from(ip.total_len()).checked_sub(headers);
    let payload_bytes = payload_bytes.ok_or("its length is less than its headers")? as u32;
    let flow = tcp.source_port().checked_sub(FIRST_PORT);
    let flow = flow
        .filter(|_| tcp.source_port() == tcp.destination_port())
        .ok_or("it belongs to no flow")?;

    let own = origins.entry((flow, packet.outgoing)).or_default();
    if tcp.syn() {
        own.seq = Some(tcp.sequence_number());
    }
    let own_seq = own.seq.ok_or("its flow has no SYN")?;
    if own.timestamp.is_none() {
        own.timestamp = timestamps(tcp.options()).map(|(value, _)| value);
    }
    let own = *own;
    let peer = origins.get(&(flow, !packet.outgoing));
    let peer = peer.copied().unwrap_or_default();
    let peer_seq = peer.seq.unwrap_or(0);
    Ok(Segment {
        t_ns: packet.t_ns.checked_sub(start_ns).ok_or("it is older than the first packet")?,
        flow,
        outgoing: packet.outgoing,
        seq: tcp.sequence_number().wrapping_sub(own_seq),
        ack: match tcp.ack() {
            true => tcp.acknowledgment_number().wrapping_sub(peer_seq),
            false => tcp.acknowledgment_number(),
        },
        payload_bytes,
        flags: flags(&tcp),
        ecn: ["Not-ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(ip.ecn().value())],
        dscp: ip.dcp().value(),
        ttl: ip.ttl(),
        window: tcp.window_size(),
        // Without an ACK the echoed timestamp is invalid.
        options: options(tcp.options(), own, if tcp.ack() { peer } else { Origin::default() })
            .ok_or("its options are malformed")?,
    })
}

fn flags(tcp: &TcpHeaderSlice<'_>) -> String {
    [
        (tcp.syn(), 'S'),
        (tcp.fin(), 'F'),
        (tcp.rst(), 'R'),
        (tcp.psh(), 'P'),
        (tcp.urg(), 'U'),
        (tcp.cwr(), 'W'),
        (tcp.ece(), 'E'),
        // AE, formerly the nonce sum.
        (tcp.ns(), 'A'),
        (tcp.ack(), '.'),
    ]
    .iter()
    .filter(|(set, _)| *set)
    .map(|(_, letter)| letter)
    .collect()
}

/// TCP option kinds.
const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const ACCECN_0: u8 = 172;
const ACCECN_1: u8 = 174;

/// (kind, data) of each option except padding; None for a malformed one.
fn each_option(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8])>> {
    std::iter::from_fn(move || {
        while let [NOP, rest @ ..] = bytes {
            bytes = rest;
        }
        match bytes {
            [] | [END, ..] => None,
            [kind, length, ..] if (2..=bytes.len()).contains(&usize::from(*length)) => {
                let (option, rest) = bytes.split_at(usize::from(*length));
                bytes = rest;
                Some(Some((*kind, &option[2..])))
            }
            _ => {
                bytes = &[];
                Some(None)
            }
        }
    })
}

fn timestamps(bytes: &[u8]) -> Option<(u32, u32)> {
    each_option(bytes).flatten().find_map(|(kind, data)| {
        let words = words(data);
        (kind == TIMESTAMPS && words.len() == 2).then(|| (words[0], words[1]))
    })
}

fn options(bytes: &[u8], own: Origin, peer: Origin) -> Option<String> {
    let mut texts = Vec::new();
    for option in each_option(bytes) {
        let (kind, data) = option?;
        let words = words(data);
        texts.push(match (kind, data, words.as_slice()) {
            (MSS, &[high, low], _) => format!("mss {}", u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[shift], _) => format!("wscale {shift}"),
            (SACK_PERMITTED, [], _) => "sackOK".to_owned(),
            (TIMESTAMPS, _, &[value, echo]) => {
                let value = value.wrapping_sub(own.timestamp?);
                match peer.timestamp {
                    Some(first) => format!("ts {value} {}", echo.wrapping_sub(first)),
                    None => format!("ts {value} -"),
                }
            }
            (SACK, _, blocks) => {
                let relative = |edge: u32| Some(edge.wrapping_sub(peer.seq?).to_string());
                let edges: Option<Vec<_>> = blocks.iter().map(|&edge| relative(edge)).collect();
                let edges = edges?;
                let blocks = edges.chunks(2).map(|block| block.join("-"));
                format!("sack {}", blocks.collect::<Vec<_>>().join(","))
            }
            (ACCECN_0, ..) => format!("accecn0 {}", to_hex(data)),
            (ACCECN_1, ..) => format!("accecn1 {}", to_hex(data)),
            _ => format!("option {kind} {}", to_hex(data)),
        });
    }
    Some(texts.join(" "))
}

fn words(data: &[u8]) -> Vec<u32> {
    let words = data.chunks_exact(4);
    words.map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]])).collect()
}

impl Segment {
    /// Compared fields, except the time.
    fn fields(&self) -> [(&'static str, String); 10] {
        [
            ("seq", self.seq.to_string()),
            ("ack", self.ack.to_string()),
            ("len", self.payload_bytes.to_string()),
            ("flags", self.flags.clone()),
            ("ecn", self.ecn.to_owned()),
            ("dscp", self.dscp.to_string()),
            ("ttl", self.ttl.to_string()),
            ("win", self.window.to_string()),
            ("options", self.options.clone()),
            ("from", self.source()),
        ]
    }

    fn source(&self) -> String {
        let end = if self.outgoing { "sender" } else { "receiver" };
        format!("flow {}'s {end}", self.flow)
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sends seq {} ack {} len {} [{}] {} win {}",
            self.source(),
            self.seq,
            self.ack,
            self.payload_bytes,
            self.flags,
            self.ecn,
            self.window
        )?;
        match self.options.as_str() {
            "" => Ok(()),
            options => write!(f, " <{options}>"),
        }
    }
}

/// First difference between two captures; `names` are the runs' names.
pub fn difference(a: &[Segment], b: &[Segment], names: (&str, &str)) -> Option<String> {
    let at = (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i))?;
    let place =
        |segment: &Segment| format!("packet {}, {:.6} ms", at + 1, segment.t_ns as f64 / 1e6);
    Some(match (a.get(at), b.get(at)) {
        (Some(x), Some(y)) => {
            let fields = x.fields().into_iter().zip(y.fields());
            let differing: Vec<_> = fields.filter(|(x, y)| x != y).map(|(x, _)| x.0).collect();
            if differing.is_empty() {
                return Some(format!(
                    "{}: under {} {x}; under {} the same packet {}",
                    place(x),
                    names.0,
                    names.1,
                    later(x, y)
                ));
            }
            format!(
                "{}: under {} {x}; under {} {y}, {} (different: {})",
                place(x),
                names.0,
                names.1,
                later(x, y),
                differing.join(", ")
            )
        }
        (Some(x), None) => {
            format!("{}: under {} {x}; under {} no packet", place(x), names.0, names.1)
        }
        (None, Some(y)) => {
            format!("{}: under {} no packet; under {} {y}", place(y), names.0, names.1)
        }
        (None, None) => return None,
    })
}

fn later(x: &Segment, y: &Segment) -> String {
    let us = (y.t_ns as f64 - x.t_ns as f64) / 1e3;
    if us == 0.0 {
        "at the same time".to_owned()
    } else if us > 0.0 {
        format!("{us:.3} us later")
    } else {
        format!("{:.3} us earlier", -us)
    }
}

/// Summary of a capture.
pub fn content(segments: &[Segment]) -> Content {
    let mut content = Content::default();
    let mut ends: BTreeMap<(u16, bool), u32> = BTreeMap::new();
    let mut syns = BTreeSet::new();
    let count = |condition: bool| u64::from(condition);
    for segment in segments {
        let key = (segment.flow, segment.outgoing);
        let data = segment.payload_bytes > 0;
        let end = ends.entry(key).or_default();
        content.packets += 1;
        content.data_packets += count(data);
        content.resent += count(data && segment.seq < *end);
        *end = (*end).max(segment.seq.wrapping_add(segment.payload_bytes));
        content.marked += count(segment.outgoing && segment.ecn == "CE");
        content.sacks += count(segment.options.contains("sack "));
        if !segment.has('S') {
            content.ece += count(!segment.outgoing && segment.has('E'));
            content.cwr += count(segment.outgoing && segment.has('W'));
            continue;
        }
        let first = syns.insert(key);
        content.syns_resent += count(!first);
        if first && segment.has('.') {
            let bits = (segment.has('A'), segment.has('W'), segment.has('E'));
            match bits {
                (false, false, false) => content.plain_flows += 1,
                (false, false, true) => content.rfc3168_flows += 1,
                _ => content.accecn_flows += 1,
            }
        }
    }
    content
}

/// File of the headers for wireshark, with times in ns.
pub fn pcap(packets: &[Packet]) -> Vec<u8> {
    const NANOSECONDS: u32 = 0xa1b2_3c4d;
    const VERSION: [u16; 2] = [2, 4];
    const SNAPLEN: u32 = 262_144;
    const ETHERNET: u32 = 1;

    let mut file = Vec::new();
    file.extend(NANOSECONDS.to_le_bytes());
    file.extend(VERSION.map(u16::to_le_bytes).concat());
    for word in [0, 0, SNAPLEN, ETHERNET] {
        file.extend(u32::to_le_bytes(word));
    }
    for packet in packets {
        let head = from_hex(&packet.head).unwrap_or_default();
        let (s, ns) = (packet.t_ns / 1_000_000_000, packet.t_ns % 1_000_000_000);
        for word in [s as u32, ns as u32, head.len() as u32, packet.bytes] {
            file.extend(word.to_le_bytes());
        }
        file.extend(head);
    }
    file
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, TcpOptionElement};

    use super::*;

    struct Wire {
        t_ns: u64,
        isn: [u32; 2],
        timestamp: u32,
    }

    impl Wire {
        fn packet(&self, outgoing: bool, seq: u32, ack: u32, len: usize, ce: bool) -> Packet {
            let own = self.isn[usize::from(!outgoing)];
            let peer = self.isn[usize::from(outgoing)];
            let options = [
                TcpOptionElement::Timestamp(self.timestamp.wrapping_add(seq), self.timestamp),
                TcpOptionElement::SelectiveAcknowledgement(
                    (peer.wrapping_add(9), peer.wrapping_add(19)),
                    [None; 3],
                ),
            ];
            let mut ip =
                etherparse::Ipv4Header::new(0, 63, 6.into(), [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
            ip.ecn = etherparse::IpEcn::try_new(if ce { 3 } else { 2 }).unwrap();
            let port = FIRST_PORT + 3;
            let mut builder = PacketBuilder::ethernet2([0; 6], [1; 6])
                .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
                .tcp(port, port, own.wrapping_add(seq), 1000)
                // A first SYN acknowledges nothing.
                .options(if ack > 0 { &options[..] } else { &options[..1] })
                .unwrap();
            builder = match seq {
                0 => builder.syn(),
                _ => builder,
            };
            if ack > 0 {
                builder = builder.ack(peer.wrapping_add(ack));
            }
            let mut bytes = Vec::new();
            builder.write(&mut bytes, &vec![0; len]).unwrap();
            Packet {
                t_ns: self.t_ns,
                outgoing,
                bytes: bytes.len() as u32,
                head: to_hex(&bytes[..bytes.len() - len]),
            }
        }

        fn flow(&self, ce: bool, delay_ns: u64) -> Vec<Packet> {
            let mut packets = vec![
                self.packet(true, 0, 0, 0, false),
                self.packet(false, 0, 1, 0, false),
                self.packet(true, 1, 1, 100, ce),
                self.packet(true, 1, 1, 100, ce),
            ];
            packets[3].t_ns += delay_ns;
            packets
        }
    }

    const ONE: Wire = Wire { t_ns: 1_000, isn: [7, u32::MAX], timestamp: 5 };
    const OTHER: Wire = Wire { t_ns: 9_999, isn: [u32::MAX - 50, 123], timestamp: u32::MAX };

    #[test]
    fn arbitrary_initial_numbers_make_no_difference() {
        let (a, b) = (normalise(&ONE.flow(true, 5)), normalise(&OTHER.flow(true, 5)));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(difference(&a, &b, ("a", "b")), None);
        assert_eq!(a[2].options, "ts 1 0 sack 9-19");
        assert_eq!((a[2].flow, a[2].seq, a[2].ack), (3, 1, 1));
        let content = content(&a);
        assert_eq!((content.packets, content.data_packets), (4, 2));
        assert_eq!((content.marked, content.resent), (2, 1));
        assert_eq!(content.plain_flows, 1);
    }

    #[test]
    fn the_first_difference_is_described() {
        let base = normalise(&ONE.flow(true, 5)).unwrap();
        let other = |ce, delay_ns, packets: usize| {
            let flow = normalise(&OTHER.flow(ce, delay_ns)).unwrap();
            difference(&base, &flow[..packets], ("dctcp", "dctcp_rs")).unwrap()
        };
        let marks = other(false, 5, 4);
        assert!(marks.starts_with("packet 3, 0.000000 ms: under dctcp flow 3's sender"));
        assert!(marks.ends_with("at the same time (different: ecn)"), "{marks}");
        let late = other(true, 2105, 4);
        assert!(late.ends_with("under dctcp_rs the same packet 2.100 us later"), "{late}");
        let short = other(true, 5, 3);
        assert!(short.ends_with("under dctcp_rs no packet"), "{short}");
    }

    #[test]
    fn malformed_captures_are_refused() {
        let mut packets = ONE.flow(false, 0);
        assert!(normalise(&packets[2..]).is_err());
        packets[0].head.truncate(60);
        assert!(normalise(&packets).is_err());
        packets[0].head = "zz".to_owned();
        assert!(normalise(&packets).is_err());
    }

    #[test]
    fn malformed_tcp_options_are_refused() {
        let origin = Origin::default();
        assert_eq!(options(&[1, 1, 3, 3, 7], origin, origin).unwrap(), "wscale 7");
        assert_eq!(options(&[3, 9, 7], origin, origin), None);
        assert_eq!(options(&[3, 1, 7], origin, origin), None);
        assert_eq!(options(&[3], origin, origin), None);
    }

    #[test]
    fn a_pcap_file_has_every_packet() {
        let packets = ONE.flow(false, 0);
        let heads: usize = packets.iter().map(|packet| packet.head.len() / 2).sum();
        assert_eq!(pcap(&packets).len(), 24 + 16 * packets.len() + heads);
    }
}
