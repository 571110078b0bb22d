// SPDX-License-Identifier: GPL-2.0
//! Options that are lists: nested attributes, each of one number or address.

use std::net::IpAddr;

use netlink_packet_core::NLA_F_NESTED;
use serde_json::{Value, json};

use crate::{
    attributes::{Attributes, parse},
    codec,
    words::{NONE, Textual, list},
};

/// TCA_ACCELTOR_PREFIXES_PREFIX.
const PREFIX: u16 = 1;
/// TCA_ACCELTOR_PREFIX_ADDR4.
const ADDR4: u16 = 1;
/// TCA_ACCELTOR_PREFIX_ADDR6.
const ADDR6: u16 = 2;
/// TCA_ACCELTOR_PREFIX_LEN.
const LEN: u16 = 3;
/// TCA_ACCELTOR_PREFIX_RACK.
const RACK: u16 = 4;
/// TCA_ACCELTOR_PEERS_RACK.
const PEER: u16 = 1;

/// Name in the header and id of every attribute in a list.
pub const NESTED_IDS: &[(&str, u16)] = &[
    ("TCA_ACCELTOR_PREFIXES_PREFIX", PREFIX),
    ("TCA_ACCELTOR_PREFIX_ADDR4", ADDR4),
    ("TCA_ACCELTOR_PREFIX_ADDR6", ADDR6),
    ("TCA_ACCELTOR_PREFIX_LEN", LEN),
    ("TCA_ACCELTOR_PREFIX_RACK", RACK),
    ("TCA_ACCELTOR_PEERS_RACK", PEER),
];

/// Address prefix of a rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Network address.
    pub addr: IpAddr,
    /// Prefix length, at most 32 for IPv4.
    pub bits: u8,
    /// Rack.
    pub rack: u16,
}

fn number<T: TryFrom<u32>>(bytes: &[u8]) -> Option<T> {
    <u32 as codec::Value>::decode(bytes)?.try_into().ok()
}

impl Prefix {
    fn encode(&self) -> Vec<u8> {
        let mut attributes = Attributes::default();
        match self.addr {
            IpAddr::V4(addr) => attributes.push(ADDR4, &addr.octets()),
            IpAddr::V6(addr) => attributes.push(ADDR6, &addr.octets()),
        };
        attributes.push(LEN, &u32::from(self.bits).to_ne_bytes());
        attributes.push(RACK, &u32::from(self.rack).to_ne_bytes());
        attributes.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut addr, mut bits, mut rack) = (None, None, None);
        for attribute in parse(bytes) {
            let (id, value) = attribute.ok()?;
            match id {
                ADDR4 => addr = Some(<[u8; 4]>::try_from(value).ok()?.into()),
                ADDR6 => addr = Some(<[u8; 16]>::try_from(value).ok()?.into()),
                LEN => bits = number(&value),
                RACK => rack = number(&value),
                _ => {}
            }
        }
        Some(Self { addr: addr?, bits: bits?, rack: rack? })
    }
}

impl codec::Value for Vec<Prefix> {
    #[cfg(test)]
    const YNL: &'static str = "nest";
    const FLAGS: u16 = NLA_F_NESTED;
    fn encode(&self) -> Vec<u8> {
        let mut list = Attributes::default();
        for prefix in self {
            list.push(PREFIX | NLA_F_NESTED, &prefix.encode());
        }
        list.into_bytes()
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let prefixes = parse(bytes).map(|prefix| Prefix::decode(&prefix.ok()?.1));
        prefixes.collect()
    }
}

/// Peer rack on each day of the week.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers(pub Vec<u16>);

impl codec::Value for Peers {
    #[cfg(test)]
    const YNL: &'static str = "nest";
    const FLAGS: u16 = NLA_F_NESTED;
    fn encode(&self) -> Vec<u8> {
        let mut list = Attributes::default();
        for rack in &self.0 {
            list.push(PEER, &u32::from(*rack).to_ne_bytes());
        }
        list.into_bytes()
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let racks = parse(bytes).map(|rack| number(&rack.ok()?.1));
        racks.collect::<Option<_>>().map(Self)
    }
}

pub(super) struct Prefixes;
pub(super) struct PeersOrAuto;

impl Textual<Vec<Prefix>> for Prefixes {
    const FORM: &str = "CIDR=RACK,...";
    fn read(text: &str) -> Result<Vec<Prefix>, String> {
        if text == NONE {
            return Ok(Vec::new());
        }
        let read = |text: &str| {
            let bad = || format!("'{text}' is not CIDR=RACK (example: 10.0.1.0/24=1)");
            let (cidr, rack) = text.split_once('=').ok_or_else(bad)?;
            let (addr, bits) = cidr.split_once('/').ok_or_else(bad)?;
            let addr: IpAddr = addr.parse().map_err(|_| bad())?;
            let bits: u8 = bits.parse().map_err(|_| bad())?;
            if bits > if addr.is_ipv4() { 32 } else { 128 } {
                return Err(bad());
            }
            let rack = rack.parse().map_err(|_| bad())?;
            Ok(Prefix { addr, bits, rack })
        };
        text.split(',').map(read).collect()
    }
    fn print(value: &Vec<Prefix>) -> String {
        list(value, |it| format!("{}/{}={}", it.addr, it.bits, it.rack), NONE)
    }
    fn json(value: &Vec<Prefix>) -> Value {
        let racks = value.iter();
        let racks = racks.map(|it| (format!("{}/{}", it.addr, it.bits), json!(it.rack)));
        Value::Object(racks.collect())
    }
}

/// Text of the default list of peers.
const AUTO: &str = "auto";

impl Textual<Peers> for PeersOrAuto {
    const FORM: &str = "RACK,...";
    fn read(text: &str) -> Result<Peers, String> {
        if text == AUTO {
            return Ok(Peers::default());
        }
        let bad = |_| format!("'{text}' is not RACK,... (example: 1,2,3)");
        let racks: Result<_, _> = text.split(',').map(str::parse).collect();
        racks.map(Peers).map_err(bad)
    }
    fn print(value: &Peers) -> String {
        list(&value.0, u16::to_string, AUTO)
    }
}

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode as _, Yaml};

    use super::*;
    use crate::acceltor::Options;
    use crate::codec::Value as _;
    use crate::tests::{members_of, of, text};

    const HEADER: &str = include_str!("../../../../modules/include/uapi/linux/pkt_acceltor.h");
    const SPECIFICATION: &str =
        include_str!("../../../../modules/Documentation/netlink/specs/acceltor.yaml");

    #[test]
    fn ids_match_the_header_and_the_specification() {
        let documents = Yaml::load_from_str(SPECIFICATION).unwrap();
        let sets = &documents[0]["attribute-sets"];
        let mut seen = 0;
        for list in ["PREFIXES", "PREFIX", "PEERS"] {
            let first = format!("TCA_ACCELTOR_{list}_UNSPEC,");
            let members = members_of(HEADER, &first);
            let set = format!("acceltor-{}-attrs", list.to_lowercase());
            let described = of(sets, &set, "attributes");
            assert_eq!(members.len(), described.len() + 1, "{list}");
            for ((id, member), described) in (1..).zip(members).zip(described) {
                let name = text(described, "name").unwrap().to_uppercase();
                assert_eq!(member, format!("TCA_ACCELTOR_{list}_{name}"));
                assert!(NESTED_IDS.contains(&(member, id)), "{member}");
                seen += 1;
            }
        }
        assert_eq!(seen, NESTED_IDS.len());
    }

    /// The kernel's pyynl encodes these lists so, by the specification.
    #[rustfmt::skip]
    const BY_YNL: &[u8] = &[
        72, 0, 26, 0x80,
        28, 0, 1, 0x80, 8, 0, 1, 0, 10, 0, 0, 0, 8, 0, 3, 0, 8, 0, 0, 0, 8, 0, 4, 0, 1, 0, 0, 0,
        40, 0, 1, 0x80, 20, 0, 2, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        8, 0, 3, 0, 16, 0, 0, 0, 8, 0, 4, 0, 2, 0, 0, 0,
        20, 0, 27, 0x80, 8, 0, 1, 0, 2, 0, 0, 0, 8, 0, 1, 0, 1, 0, 0, 0,
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn lists_have_the_form_of_the_specification() {
        let words = ["prefix", "10.0.0.0/8=1,fd00::/16=2", "peers", "2,1"];
        let options = Options::from_words(&words).unwrap();
        assert_eq!(options.encode(), BY_YNL);
        assert_eq!(Options::decode(BY_YNL).unwrap(), options);
    }

    #[test]
    fn incomplete_prefixes_are_refused() {
        let prefix = Prefix { addr: [10, 0, 1, 0].into(), bits: 24, rack: 1 };
        let bytes = prefix.encode();
        assert_eq!(bytes.len(), 24);
        assert_eq!(Prefix::decode(&bytes), Some(prefix));
        assert_eq!(Prefix::decode(&bytes[..16]), None);
        assert!(Vec::<Prefix>::decode(&[0; 4]).is_none());
        assert!(Peers::decode(&[6, 0, 1, 0, 1, 0, 0, 0]).is_none());
    }
}
