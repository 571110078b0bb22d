// SPDX-License-Identifier: GPL-2.0
//! TCP sockets by sock_diag, as in `ss -ti`, and the block of `modules/include/uapi/linux/xdc_diag.h`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket as Netlink, SocketAddr as NetlinkAddr, protocols::NETLINK_SOCK_DIAG};
use xdc_tcpinfo::TcpInfo;

use crate::{
    attributes,
    connection::{Error, HEADER_BYTES, Result, messages, receive, refused},
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Lengths of `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST_BYTES: usize = 56;
const MESSAGE_BYTES: usize = 72;

const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;

/// XDC_DIAG_REQUEST.
const XDC_REQUEST: u8 = 0x80;
/// XDC_DIAG_ATTR.
const XDC_ATTR: u16 = 0x1dc;
/// XDC_DIAG_VERSION.
const XDC_VERSION: u8 = 1;

/// A TCP state, by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State(u8);

/// Names in ss, by number; the kernel counts from 1.
const STATES: [&str; 13] = [
    "established",
    "syn-sent",
    "syn-recv",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "close",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
    "new-syn-recv",
    "bound-inactive",
];

impl State {
    /// TCP_ESTABLISHED.
    pub const ESTABLISHED: State = State(1);

    /// Finds a state by ss's name.
    pub fn by_name(name: &str) -> Option<State> {
        let place = STATES.iter().position(|state| *state == name)?;
        Some(State(place as u8 + 1))
    }

    /// Returns all names.
    pub fn names() -> &'static [&'static str] {
        &STATES
    }

    /// Returns the bit for [`Query::states`].
    pub fn bit(self) -> u32 {
        1u32.checked_shl(self.0.into()).unwrap_or(0)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = usize::from(self.0).checked_sub(1).and_then(|i| STATES.get(i));
        f.write_str(name.copied().unwrap_or("unknown"))
    }
}

/// Selects sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Bits of [`State::bit`].
    pub states: u32,
    /// Local port.
    pub sport: Option<u16>,
    /// Peer's port.
    pub dport: Option<u16>,
}

impl Default for Query {
    fn default() -> Self {
        Self { states: State::ESTABLISHED.bit(), sport: None, dport: None }
    }
}

impl Query {
    /// Encodes a whole request for one family.
    fn encode(&self, family: u8, sequence: u32) -> Vec<u8> {
        const BLOCKS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1) | XDC_REQUEST;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
        bytes.extend(((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend([family, IPPROTO_TCP, BLOCKS, 0]);
        bytes.extend(self.states.to_ne_bytes());
        // struct inet_diag_sockid; for a dump, the kernel reads only the ports.
        bytes.extend(self.sport.unwrap_or(0).to_be_bytes());
        bytes.extend(self.dport.unwrap_or(0).to_be_bytes());
        bytes.resize(HEADER_BYTES + REQUEST_BYTES, 0);
        bytes
    }
}

/// One TCP socket.
#[derive(Debug, Clone)]
pub struct TcpSocket {
    /// TCP state.
    pub state: State,
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub peer: SocketAddr,
    /// The kernel's unique id of the socket.
    pub cookie: u64,
    /// Congestion control; `NAME-reno` if an xdc algorithm has fallen back to Reno.
    pub cc: Option<String>,
    /// TCP_INFO; None in states without a full socket.
    pub info: Option<TcpInfo>,
    /// State of an xdc algorithm.
    pub xdc: Option<XdcInfo>,
}

impl TcpSocket {
    /// Decodes the body of an answer: `struct inet_diag_msg`, then attributes.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let (fixed, rest) = body
            .split_at_checked(MESSAGE_BYTES)
            .ok_or_else(|| malformed("a truncated inet_diag_msg"))?;
        let family = fixed[0];
        let cookie = |at: usize| u64::from(u32::from_ne_bytes(array(fixed, at)));
        let mut socket = Self {
            state: State(fixed[1]),
            local: SocketAddr::new(address(family, array(fixed, 8))?, port(array(fixed, 4))),
            peer: SocketAddr::new(address(family, array(fixed, 24))?, port(array(fixed, 6))),
            cookie: cookie(44) | cookie(48) << 32,
            cc: None,
            info: None,
            xdc: None,
        };
        for attribute in attributes::parse(rest) {
            let (id, value) = attribute?;
            match id {
                INET_DIAG_INFO => socket.info = Some(TcpInfo::from_bytes(&value)),
                INET_DIAG_CONG => {
                    let text = value.split(|byte| *byte == 0).next().unwrap_or(&value);
                    socket.cc = Some(String::from_utf8_lossy(text).into_owned());
                }
                XDC_ATTR => socket.xdc = XdcInfo::decode(&value)?,
                _ => {}
            }
        }
        Ok(socket)
    }
}

/// Returns `N` bytes from `at`; the caller has checked the length.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn port(bytes: [u8; 2]) -> u16 {
    u16::from_be_bytes(bytes)
}

fn address(family: u8, bytes: [u8; 16]) -> Result<IpAddr> {
    match family {
        AF_INET => Ok(Ipv4Addr::from(array::<4>(&bytes, 0)).into()),
        // Dual-stack sockets have IPv4 peers as mapped addresses.
        AF_INET6 => Ok(Ipv6Addr::from(bytes).to_canonical()),
        _ => Err(malformed("a TCP socket of an unknown address family")),
    }
}

/// `struct xdc_diag_info` in the kernel's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdcInfo {
    /// Number of the algorithm in `xdc-algo`'s registry.
    pub algorithm: u8,
    /// XDC_DIAG_F_*.
    pub flags: u16,
    /// Average of the marked fraction, 2^-30.
    pub fraction: u32,
    /// Epochs or round trips that have ended; wraps.
    pub periods: u32,
    /// Base RTT, us; None before the first sample.
    pub base_rtt_us: Option<u32>,
    /// Quick adaptations; wraps.
    pub quick_adapts: u16,
    /// Marked part of the current period, 2^-15.
    pub period_marked: u16,
}

/// XDC_DIAG_F_CE.
const FLAG_CE: u16 = 8;

/// Length of `struct xdc_diag_info`.
const XDC_BYTES: usize = 20;

impl XdcInfo {
    /// Decodes an attribute's value; None for a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(&version) = bytes.first() else {
            return Err(malformed("an empty xdc_diag_info"));
        };
        if version != XDC_VERSION {
            return Ok(None);
        }
        let bytes = bytes.get(..XDC_BYTES).ok_or_else(|| malformed("a truncated xdc_diag_info"))?;
        let u16_at = |at| u16::from_ne_bytes(array(bytes, at));
        let u32_at = |at| u32::from_ne_bytes(array(bytes, at));
        Ok(Some(Self {
            algorithm: bytes[1],
            flags: u16_at(2),
            fraction: u32_at(4),
            periods: u32_at(8),
            base_rtt_us: Some(u32_at(12)).filter(|us| *us != 0),
            quick_adapts: u16_at(16),
            period_marked: u16_at(18),
        }))
    }

    /// Returns whether the last received packet carried CE.
    pub fn ce_state(&self) -> bool {
        self.flags & FLAG_CE != 0
    }
}

/// A connection to the sock_diag of the caller's namespace.
#[derive(Debug)]
pub struct Diag {
    socket: Netlink,
    sequence: u32,
}

impl Diag {
    /// Opens a connection in the current network namespace.
    pub fn open() -> Result<Self> {
        let mut socket = Netlink::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the selected IPv4 and IPv6 sockets.
    pub fn sockets(&mut self, query: &Query) -> Result<Vec<TcpSocket>> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            self.dump(query, family, &mut found)?;
        }
        Ok(found)
    }

    fn dump(&mut self, query: &Query, family: u8, found: &mut Vec<TcpSocket>) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&query.encode(family, self.sequence), 0)?;
        loop {
            let datagram = receive(&self.socket)?;
            if take(&datagram, self.sequence, found)? {
                return Ok(());
            }
        }
    }
}

/// Decodes the sockets of a datagram; returns whether it ends the dump.
fn take(datagram: &[u8], sequence: u32, found: &mut Vec<TcpSocket>) -> Result<bool> {
    for message in messages(datagram) {
        let kind = u16::from_ne_bytes(array(message, 4));
        if u32::from_ne_bytes(array(message, 8)) != sequence {
            continue;
        }
        let body = &message[HEADER_BYTES..];
        let code = || body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
        match kind {
            NLMSG_DONE if code() < 0 => return Err(refused("list the sockets", code(), None)),
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(refused("list the sockets", code(), None)),
            SOCK_DIAG_BY_FAMILY => found.push(TcpSocket::decode(body)?),
            _ => {}
        }
    }
    Ok(false)
}

fn malformed(what: &str) -> Error {
    Error::Malformed(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    const HEADER: &str = include_str!("../../../modules/include/uapi/linux/xdc_diag.h");

    /// Returns the value of a macro of the header.
    fn defined(name: &str) -> u64 {
        let line = HEADER
            .lines()
            .filter(|line| line.starts_with("#define"))
            .find(|line| line.split_whitespace().nth(1) == Some(name))
            .unwrap_or_else(|| panic!("{name} is in the header"));
        let value = line.split_whitespace().nth(2).unwrap();
        match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => value.parse().unwrap(),
        }
    }

    #[test]
    fn numbers_match_the_header() {
        assert_eq!(defined("XDC_DIAG_REQUEST"), u64::from(XDC_REQUEST));
        assert_eq!(defined("XDC_DIAG_ATTR"), u64::from(XDC_ATTR));
        assert_eq!(defined("XDC_DIAG_VERSION"), u64::from(XDC_VERSION));
        assert_eq!(defined("XDC_DIAG_F_CE"), u64::from(FLAG_CE));
    }

    /// Fields of `struct xdc_diag_info` and their lengths, in order.
    const FIELDS: [(&str, usize); 8] = [
        ("version", 1),
        ("algorithm", 1),
        ("flags", 2),
        ("fraction", 4),
        ("periods", 4),
        ("base_rtt", 4),
        ("quick_adapts", 2),
        ("period_marked", 2),
    ];

    #[test]
    fn the_struct_matches_the_header() {
        let body = HEADER.split_once("struct xdc_diag_info {").unwrap().1;
        let body = body.split_once("};").unwrap().0;
        let fields: Vec<(&str, usize)> = body
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let bytes = match words.next()? {
                    "__u8" => 1,
                    "__u16" => 2,
                    "__u32" => 4,
                    _ => return None,
                };
                Some((words.next()?.trim_end_matches(';'), bytes))
            })
            .collect();
        assert_eq!(fields, FIELDS);
        // No hole: each field is aligned to its size.
        let end = fields.iter().fold(0, |at, (_, bytes)| {
            assert_eq!(at % bytes, 0);
            at + bytes
        });
        assert_eq!(end, XDC_BYTES);
    }

    fn block() -> Vec<u8> {
        let mut bytes = vec![XDC_VERSION, 1];
        bytes.extend(3u16.to_ne_bytes());
        bytes.extend((1u32 << 28).to_ne_bytes());
        bytes.extend(70_000u32.to_ne_bytes());
        bytes.extend(84u32.to_ne_bytes());
        bytes.extend(9u16.to_ne_bytes());
        bytes.extend((1u16 << 14).to_ne_bytes());
        bytes
    }

    fn message(family: u8, state: u8) -> Vec<u8> {
        let mut body = vec![family, state, 0, 0];
        body.extend(40_000u16.to_be_bytes());
        body.extend(5_001u16.to_be_bytes());
        body.extend([10, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.extend([10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.extend(0u32.to_ne_bytes());
        body.extend(7u32.to_ne_bytes());
        body.extend(1u32.to_ne_bytes());
        body.resize(MESSAGE_BYTES, 0);
        let mut attributes = crate::attributes::Attributes::after(body);
        attributes.push(INET_DIAG_CONG, b"unocc\0");
        attributes.push(XDC_ATTR, &block());
        attributes.into_bytes()
    }

    #[test]
    fn every_field_of_a_socket_is_decoded() {
        let socket = TcpSocket::decode(&message(AF_INET, 1)).unwrap();
        assert_eq!(socket.local, "10.9.0.1:40000".parse().unwrap());
        assert_eq!(socket.peer, "10.9.0.2:5001".parse().unwrap());
        assert_eq!(socket.state.to_string(), "established");
        assert_eq!(socket.cookie, 1 << 32 | 7);
        assert_eq!(socket.cc.as_deref(), Some("unocc"));
        let xdc = socket.xdc.unwrap();
        assert_eq!((xdc.algorithm, xdc.flags), (1, 3));
        assert_eq!((xdc.fraction, xdc.period_marked), (1 << 28, 1 << 14));
        assert_eq!((xdc.periods, xdc.quick_adapts), (70_000, 9));
        assert_eq!(xdc.base_rtt_us, Some(84));
        assert!(!xdc.ce_state());
    }

    #[test]
    fn a_newer_block_is_skipped_and_a_short_one_is_refused() {
        let mut newer = block();
        newer[0] = 2;
        assert_eq!(XdcInfo::decode(&newer).unwrap(), None);
        let mut stranger = block();
        stranger[1] = 77;
        let stranger = XdcInfo::decode(&stranger).unwrap().unwrap();
        assert_eq!(stranger.algorithm, 77);
        assert!(XdcInfo::decode(&block()[..19]).is_err());
        assert!(XdcInfo::decode(&[]).is_err());
        let mut longer = block();
        longer.extend([1, 2, 3, 4]);
        assert!(XdcInfo::decode(&longer).unwrap().is_some());
    }

    #[test]
    fn truncated_and_random_messages_do_not_panic() {
        let whole = message(AF_INET6, 1);
        for length in 0..whole.len() {
            let _ = TcpSocket::decode(&whole[..length]);
        }
        // splitmix64
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = seed;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            bytes.truncate(random() as usize % (whole.len() + 1));
            for _ in 0..random() % 9 {
                if !bytes.is_empty() {
                    let at = random() as usize % bytes.len();
                    bytes[at] = random() as u8;
                }
            }
            let _ = TcpSocket::decode(&bytes);
            let _ = take(&bytes, u32::from_ne_bytes([0; 4]), &mut Vec::new());
            let _ = XdcInfo::decode(&bytes);
        }
    }

    #[test]
    fn a_request_names_states_and_ports() {
        let query = Query {
            states: State::by_name("time-wait").unwrap().bit(),
            sport: Some(5_001),
            dport: None,
        };
        let bytes = query.encode(AF_INET, 3);
        assert_eq!(bytes.len(), 72);
        assert_eq!(bytes[16..20], [AF_INET, IPPROTO_TCP, 0x8a, 0]);
        assert_eq!(bytes[20..24], 64u32.to_ne_bytes());
        assert_eq!(bytes[24..28], [0x13, 0x89, 0, 0]);
    }

    /// This very kernel: a connection over loopback is found from both ends.
    #[test]
    fn the_kernel_shows_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let stream = TcpStream::connect(there).unwrap();
        let query = Query { dport: Some(there.port()), ..Query::default() };
        let found = Diag::open().unwrap().sockets(&query).unwrap();
        let ours: Vec<_> = found.iter().filter(|s| s.peer == there).collect();
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].local, stream.local_addr().unwrap());
        assert!(ours[0].cc.is_some() && ours[0].info.unwrap().snd_cwnd > 0);
    }
}
