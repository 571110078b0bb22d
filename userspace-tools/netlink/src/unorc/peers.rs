// SPDX-License-Identifier: GPL-2.0
//! Peers of a device of kind unorc: its generic netlink family.

use std::{fmt, net::IpAddr, str::FromStr};

use netlink_packet_core::NLA_F_NESTED;

use crate::{
    attributes::{self, Attributes},
    codec::{Value as _, malformed, named_values},
    connection::Result,
    generic::Family,
};

/// UNORC_GENL_NAME and UNORC_GENL_VERSION.
const FAMILY: &str = "unorc";
const VERSION: u8 = 1;

/// A secret of both ends; zeros: none.
pub type Key = [u8; 16];

/// `UNORC_CMD_*`.
mod command {
    pub const PEER_SET: u8 = 1;
    pub const PEER_DEL: u8 = 2;
    pub const PEER_GET: u8 = 3;
}

/// `UNORC_A_PEER_*`.
mod peer {
    pub const IFINDEX: u16 = 1;
    pub const REMOTE: u16 = 2;
    pub const REMOTE6: u16 = 3;
    pub const KEY: u16 = 4;
    pub const ALLOWED: u16 = 5;
    pub const SESSION: u16 = 6;
    pub const HAS_KEY: u16 = 7;
}

/// `UNORC_A_ALLOWED_*`.
mod allowed {
    pub const PREFIX: u16 = 1;
    pub const PREFIX6: u16 = 2;
    pub const LEN: u16 = 3;
}

named_values! {
    /// State of a peer's session.
    Session {
        /// None.
        Down = "down",
        /// The peer has not answered yet.
        Asked = "asked",
        /// Up.
        Up = "up",
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Range {
    type Err = String;

    /// Parses `ADDRESS/BITS`, or an address alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| format!("\"{address}\" is not an address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most),
            None => Some(most),
        };
        let bits = bits.ok_or_else(|| format!("a prefix length is from 0 to {most}"))?;
        let start = match address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((ip.to_bits() & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((ip.to_bits() & mask).into())
            }
        };
        if start != address {
            return Err(format!("the range of this address is {start}/{bits}"));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Range {
    fn encode(&self) -> Vec<u8> {
        let mut attributes = Attributes::default();
        push_address(&mut attributes, (allowed::PREFIX, allowed::PREFIX6), self.address);
        attributes.push(allowed::LEN, &[self.bits]);
        attributes.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let (mut address, mut bits) = (None, None);
        for attribute in attributes::parse(bytes) {
            let (id, value) = attribute?;
            match id {
                allowed::PREFIX => address = v4(&value),
                allowed::PREFIX6 => address = v6(&value),
                allowed::LEN => bits = u8::decode(&value),
                _ => {}
            }
        }
        let range = address.zip(bits).map(|(address, bits)| Self { address, bits });
        range.ok_or_else(|| malformed("UNORC_A_PEER_ALLOWED"))
    }
}

fn push_address(attributes: &mut Attributes, (id4, id6): (u16, u16), address: IpAddr) {
    match address {
        IpAddr::V4(ip) => attributes.push(id4, &ip.octets()),
        IpAddr::V6(ip) => attributes.push(id6, &ip.octets()),
    };
}

fn v4(bytes: &[u8]) -> Option<IpAddr> {
    Some(<[u8; 4]>::try_from(bytes).ok()?.into())
}

fn v6(bytes: &[u8]) -> Option<IpAddr> {
    Some(<[u8; 16]>::try_from(bytes).ok()?.into())
}

/// A peer, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Outer address, which names the peer.
    pub remote: IpAddr,
    /// State of its session.
    pub session: Session,
    /// Whether it has a key.
    pub has_key: bool,
    /// Inner addresses.
    pub allowed: Vec<Range>,
}

impl Peer {
    /// Decodes the attributes of a dumped message.
    fn decode(bytes: &[u8]) -> Result<Self> {
        let (mut remote, mut session) = (None, None);
        let (mut has_key, mut allowed) = (false, Vec::new());
        for attribute in attributes::parse(bytes) {
            let (id, value) = attribute?;
            match id {
                peer::REMOTE => remote = v4(&value),
                peer::REMOTE6 => remote = v6(&value),
                peer::SESSION => session = Session::decode(&value),
                peer::HAS_KEY => has_key = true,
                peer::ALLOWED => allowed.push(Range::decode(&value)?),
                _ => {}
            }
        }
        Ok(Self {
            remote: remote.ok_or_else(|| malformed("UNORC_A_PEER_REMOTE"))?,
            session: session.ok_or_else(|| malformed("UNORC_A_PEER_SESSION"))?,
            has_key,
            allowed,
        })
    }
}

/// New values of a peer.
#[derive(Clone, Default)]
pub struct Change {
    /// Key; None: unchanged.
    pub key: Option<Key>,
    /// All inner addresses; empty: unchanged.
    pub allowed: Vec<Range>,
}

impl Change {
    fn push(&self, attributes: &mut Attributes) {
        if let Some(key) = &self.key {
            attributes.push(peer::KEY, key);
        }
        for range in &self.allowed {
            attributes.push(peer::ALLOWED | NLA_F_NESTED, &range.encode());
        }
    }
}

/// The peers of one device.
#[derive(Debug)]
pub struct Peers {
    family: Family,
    index: u32,
}

impl Peers {
    /// Opens a connection for the device `index`. If the module is not loaded, the error has errno ENOENT.
    pub fn open(index: u32) -> Result<Self> {
        let family = Family::open(FAMILY, VERSION)?;
        Ok(Self { family, index })
    }

    /// Adds a peer, or changes the one with this address.
    pub fn set(&mut self, remote: IpAddr, change: &Change) -> Result<()> {
        let mut attributes = self.named(remote);
        change.push(&mut attributes);
        let what = format!("set the peer {remote}");
        self.family.request(&what, command::PEER_SET, attributes)
    }

    /// Removes a peer.
    pub fn delete(&mut self, remote: IpAddr) -> Result<()> {
        let what = format!("delete the peer {remote}");
        let attributes = self.named(remote);
        self.family.request(&what, command::PEER_DEL, attributes)
    }

    /// Lists the peers.
    pub fn list(&mut self) -> Result<Vec<Peer>> {
        let wanted = self.attributes();
        let all = self.family.dump("list the peers", command::PEER_GET, wanted)?;
        all.iter().map(|bytes| Peer::decode(bytes)).collect()
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::default();
        attributes.push(peer::IFINDEX, &self.index.to_ne_bytes());
        attributes
    }

    fn named(&self, remote: IpAddr) -> Attributes {
        let mut attributes = self.attributes();
        push_address(&mut attributes, (peer::REMOTE, peer::REMOTE6), remote);
        attributes
    }
}

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode as _, Yaml};

    use super::*;
    use crate::tests::{members_of, of, text};

    const HEADER: &str = include_str!("../../../../modules/include/uapi/linux/unorc.h");

    const COMMANDS: [(&str, u16); 3] = [
        ("PEER_SET", command::PEER_SET as u16),
        ("PEER_DEL", command::PEER_DEL as u16),
        ("PEER_GET", command::PEER_GET as u16),
    ];
    const PEER: [(&str, u16); 7] = [
        ("IFINDEX", peer::IFINDEX),
        ("REMOTE", peer::REMOTE),
        ("REMOTE6", peer::REMOTE6),
        ("KEY", peer::KEY),
        ("ALLOWED", peer::ALLOWED),
        ("SESSION", peer::SESSION),
        ("HAS_KEY", peer::HAS_KEY),
    ];
    const ALLOWED: [(&str, u16); 3] =
        [("PREFIX", allowed::PREFIX), ("PREFIX6", allowed::PREFIX6), ("LEN", allowed::LEN)];

    #[test]
    fn ids_match_the_header() {
        for (prefix, ids) in
            [("UNORC_CMD", &COMMANDS[..]), ("UNORC_A_PEER", &PEER), ("UNORC_A_ALLOWED", &ALLOWED)]
        {
            let found = members_of(HEADER, &format!("{prefix}_UNSPEC,"));
            let (last, found) = found.split_last().unwrap();
            assert_eq!(*last, format!("__{prefix}_MAX"));
            let ids = ids.iter().map(|(name, id)| (format!("{prefix}_{name}"), *id));
            let found = found.iter().map(|name| (*name).to_owned()).zip(1..);
            assert!(found.eq(ids), "{prefix}");
        }
        let states = Session::NAMES.iter().map(|name| name.to_uppercase());
        let states = states.map(|name| format!("UNORC_SESSION_{name}"));
        assert!(states.eq(members_of(HEADER, "enum unorc_session {")));
        for (name, value) in [
            ("GENL_NAME", format!("\"{FAMILY}\"")),
            ("GENL_VERSION", VERSION.to_string()),
            ("KEY_LEN", size_of::<Key>().to_string()),
        ] {
            let line = format!("#define UNORC_{name} {value}\n");
            assert!(HEADER.contains(&line), "{line}");
        }
    }

    #[test]
    fn the_ynl_specification_matches_the_header() {
        const SPECIFICATION: &str =
            include_str!("../../../../modules/Documentation/netlink/specs/unorc-peer.yaml");
        let documents = Yaml::load_from_str(SPECIFICATION).unwrap();
        let specification = &documents[0];
        assert_eq!(text(specification, "name"), Some(FAMILY));
        let upper = |described: &&Yaml| {
            let name = text(described, "name").unwrap().to_uppercase();
            name.replace('-', "_")
        };
        let names = |ids: &[(&str, u16)]| -> Vec<_> {
            ids.iter().map(|(name, _)| (*name).to_owned()).collect()
        };
        let definitions = &specification["definitions"];
        let sets = &specification["attribute-sets"];
        let described = of(sets, "peer", "attributes");
        assert_eq!(described.iter().map(upper).collect::<Vec<_>>(), names(&PEER));
        let key = described[usize::from(peer::KEY) - 1];
        assert_eq!(text(&key["checks"], "exact-len"), Some("key-len"));
        let length = definitions[0]["value"].as_integer();
        assert_eq!(length, Some(size_of::<Key>() as i64));
        let described = of(sets, "allowed", "attributes");
        let described: Vec<_> = described.iter().map(upper).collect();
        assert_eq!(described, names(&ALLOWED));
        let commands = specification["operations"]["list"].as_sequence().unwrap();
        let commands: Vec<_> = commands.iter().map(|command| upper(&command)).collect();
        assert_eq!(commands, names(&COMMANDS));
        let states = of(definitions, "session", "entries");
        let states: Vec<_> = states.iter().filter_map(|e| text(e, "name")).collect();
        assert_eq!(states, Session::NAMES);
    }

    #[test]
    fn a_peer_survives_encoding() {
        for remote in ["10.0.0.2", "fd00::2"] {
            let wanted = Peer {
                remote: remote.parse().unwrap(),
                session: Session::Asked,
                has_key: true,
                allowed: ["10.50.0.0/24", "fd50::/64", "0.0.0.0/0", "::/0"]
                    .map(|range| range.parse().unwrap())
                    .to_vec(),
            };
            let mut attributes = Attributes::default();
            push_address(&mut attributes, (peer::REMOTE, peer::REMOTE6), wanted.remote);
            let change = Change { key: Some([7; 16]), allowed: wanted.allowed.clone() };
            change.push(&mut attributes);
            attributes.push(peer::SESSION, &[Session::Asked as u8]);
            attributes.push(peer::HAS_KEY, &[]);
            let bytes = attributes.into_bytes();
            assert_eq!(Peer::decode(&bytes).unwrap(), wanted);
            // Truncated messages are refused or decoded, without a panic.
            for length in 0..bytes.len() {
                assert_ne!(Peer::decode(&bytes[..length]).ok(), Some(wanted.clone()));
            }
        }
    }

    #[test]
    fn an_empty_change_keeps_key_and_ranges() {
        let mut attributes = Attributes::default();
        Change::default().push(&mut attributes);
        assert!(attributes.into_bytes().is_empty());
    }

    #[test]
    fn ranges_parse_and_print() {
        for (text, shown) in [
            ("10.0.0.1", "10.0.0.1/32"),
            ("fd00::1", "fd00::1/128"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Range>().unwrap().to_string(), shown);
        }
        for text in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
        let host = "10.0.0.1/24".parse::<Range>().unwrap_err();
        assert_eq!(host, "the range of this address is 10.0.0.0/24");
    }
}
