// SPDX-License-Identifier: GPL-2.0
//! The fabric: attributes of `modules/include/uapi/linux/fabric.h`.

use netlink_packet_core::NLA_F_NESTED;

use crate::{
    attributes::{self, Attributes},
    codec::malformed,
    connection::Result,
    generic::Family,
    qdisc,
};

/// Kind of a link, and name of the module.
pub const KIND: &str = "fabric";

const FAMILY: &str = "fabric";
const VERSION: u8 = 1;

/// `IFLA_FABRIC_*`.
pub(crate) mod link {
    pub const DEVICE: u16 = 1;
    pub const SWITCH: u16 = 2;
}

/// Declares constants from 1 on, and their names.
macro_rules! numbers {
    ($(#[$meta:meta])* $module:ident: $type:ty { $($name:ident)* }) => {
        $(#[$meta])*
        mod $module {
            #![allow(dead_code)]
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Order { UNSPEC, $($name),* }
            $(pub const $name: $type = Order::$name as $type;)*
            #[cfg(test)]
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

numbers! {
    /// `FABRIC_CMD_*`.
    command: u8 { NEW SWITCH PORT GET DEL }
}
numbers! {
    /// `FABRIC_A_*`.
    id: u16 {
        PAD SWITCHES PORTS DEVICES POOLS FIRST_HOST HOSTS ID SEED SPRAY TABLE STARTS HOPS PEER_SWITCH PEER_DEVICE RATE DELAY JITTER LOSS WIRE_SEED BURST BURST_SEED POLICE_RATE POLICE_BURST QUEUE POOL RECEIVED UNROUTABLE EXPIRED STATS XSTATS
    }
}

/// Size of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Size {
    /// Switches.
    pub switches: u32,
    /// Ports of all switches.
    pub ports: u32,
    /// Links to hosts.
    pub devices: u32,
    /// Size of each shared buffer, bytes.
    pub pools_bytes: Vec<u64>,
    /// Low 32 bits of the first host's address.
    pub first_host: u32,
    /// Hosts, whose addresses follow each other.
    pub hosts: u32,
}

/// A switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switch {
    /// Number, from 0.
    pub id: u32,
    /// Seed of the hash that chooses among equally good ports.
    pub seed: u32,
    /// Choose a port for each packet.
    pub spray: bool,
    /// Way to each host.
    pub table: Vec<u16>,
    /// Ports of each way.
    pub ways: Vec<Vec<u32>>,
}

/// The other end of a port's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A switch, by its number.
    Switch(u32),
    /// A link of a host, by its number.
    Device(u32),
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Number, from 0.
    pub id: u32,
    /// The other end.
    pub peer: Peer,
    /// Serialization without a queue; 0 = none.
    pub rate_bytes_per_s: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Extra delay, uniform from 0; packets keep their order.
    pub jitter_ns: u32,
    /// Lost packets, ppm.
    pub loss_ppm: u32,
    /// Seed of jitter and losses.
    pub seed: u64,
    /// Blocks of ten packets that lose 1, 2 and 3, ppm, and a seed; None = no change.
    pub burst: Option<([u32; 3], u64)>,
    /// Policer before the wire: rate in bytes/s, and burst in bytes.
    pub policer: Option<(u64, u64)>,
    /// Options of phantom; None = unlimited, or no change.
    pub queue: Option<Vec<u8>>,
    /// Shared buffer of the queue.
    pub pool: Option<u32>,
}

/// Counters of a switch, packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwitchState {
    /// Received.
    pub received: u64,
    /// Dropped for lack of a route.
    pub unroutable: u64,
    /// Dropped after too many hops.
    pub expired: u64,
}

/// Counters of a port (`struct fabric_stats`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortState {
    /// Packets sent to the other end.
    pub sent_packets: u64,
    /// Bytes sent to the other end.
    pub sent_bytes: u64,
    /// Packets lost by the wire before the queue.
    pub lost: u64,
    /// Sent packets lost in bursts.
    pub burst_lost: u64,
    /// Packets on the wire.
    pub wire_packets: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Packets in the queue.
    pub queued_packets: u64,
    /// Bytes in the queue.
    pub queued_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets that the policer dropped.
    pub policed: u64,
    /// `struct tc_phantom_xstats` of the queue; empty without one.
    pub xstats: Vec<u8>,
}

/// The network of the namespace in which it was created.
#[derive(Debug)]
pub struct Network(Family);

impl Network {
    /// Creates a network in the current namespace.
    pub fn create(size: &Size) -> Result<Self> {
        let mut network = Self(Family::open(FAMILY, VERSION)?);
        let mut attributes = Attributes::default();
        for (id, value) in [
            (id::SWITCHES, size.switches),
            (id::PORTS, size.ports),
            (id::DEVICES, size.devices),
            (id::FIRST_HOST, size.first_host),
            (id::HOSTS, size.hosts),
        ] {
            attributes.push(id, &value.to_ne_bytes());
        }
        for bytes in &size.pools_bytes {
            attributes.push(id::POOLS, &bytes.to_ne_bytes());
        }
        let what = "create the network of switches";
        network.0.request(what, command::NEW, attributes)?;
        Ok(network)
    }

    /// Sets a switch.
    pub fn set_switch(&mut self, switch: &Switch) -> Result<()> {
        let mut attributes = Attributes::default();
        attributes.push(id::ID, &switch.id.to_ne_bytes());
        attributes.push(id::SEED, &switch.seed.to_ne_bytes());
        if switch.spray {
            attributes.push(id::SPRAY, &[]);
        }
        let table = switch.table.iter().flat_map(|way| way.to_ne_bytes());
        attributes.push(id::TABLE, &table.collect::<Vec<u8>>());
        let mut starts = vec![0u32];
        for way in &switch.ways {
            starts.push(starts.last().unwrap_or(&0) + way.len() as u32);
        }
        attributes.push(id::STARTS, &bytes_of(starts.into_iter()));
        attributes.push(id::HOPS, &bytes_of(switch.ways.iter().flatten().copied()));
        let what = format!("set the switch {}", switch.id);
        self.0.request(&what, command::SWITCH, attributes)
    }

    /// Sets a port.
    pub fn set_port(&mut self, port: &Port) -> Result<()> {
        let mut attributes = Attributes::default();
        attributes.push(id::ID, &port.id.to_ne_bytes());
        match port.peer {
            Peer::Switch(switch) => attributes.push(id::PEER_SWITCH, &switch.to_ne_bytes()),
            Peer::Device(device) => attributes.push(id::PEER_DEVICE, &device.to_ne_bytes()),
        };
        attributes.push(id::RATE, &port.rate_bytes_per_s.to_ne_bytes());
        attributes.push(id::DELAY, &port.delay_ns.to_ne_bytes());
        attributes.push(id::JITTER, &port.jitter_ns.to_ne_bytes());
        attributes.push(id::LOSS, &qdisc::probability(port.loss_ppm).to_ne_bytes());
        attributes.push(id::WIRE_SEED, &port.seed.to_ne_bytes());
        if let Some((ppm, seed)) = port.burst {
            attributes.push(id::BURST, &bytes_of(ppm.into_iter()));
            attributes.push(id::BURST_SEED, &seed.to_ne_bytes());
        }
        if let Some((rate, burst)) = port.policer {
            attributes.push(id::POLICE_RATE, &rate.to_ne_bytes());
            attributes.push(id::POLICE_BURST, &burst.to_ne_bytes());
        }
        if let Some(options) = &port.queue {
            attributes.push(id::QUEUE | NLA_F_NESTED, options);
        }
        if let Some(pool) = port.pool {
            attributes.push(id::POOL, &pool.to_ne_bytes());
        }
        let what = format!("set the port {} of the fabric", port.id);
        self.0.request(&what, command::PORT, attributes)
    }

    /// Returns the counters of one port.
    pub fn port(&mut self, port: u32) -> Result<PortState> {
        let mut attributes = Attributes::default();
        attributes.push(id::ID, &port.to_ne_bytes());
        let what = format!("read the port {port} of the fabric");
        let found = self.0.ask(&what, command::GET, attributes)?;
        let state = found.first().map(|message| decode(message)).transpose()?;
        match state {
            Some(State::Port(state)) => Ok(state),
            _ => Err(malformed("FABRIC_CMD_PORT")),
        }
    }

    /// Returns the counters of all ports, and of all switches.
    pub fn dump(&mut self) -> Result<(Vec<PortState>, Vec<SwitchState>)> {
        let what = "read the counters of the fabric";
        let found = self.0.dump(what, command::GET, Attributes::default())?;
        let (mut ports, mut switches) = (Vec::new(), Vec::new());
        for message in found {
            match decode(&message)? {
                State::Port(state) => ports.push(state),
                State::Switch(state) => switches.push(state),
            }
        }
        Ok((ports, switches))
    }
}

fn bytes_of(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(u32::to_ne_bytes).collect()
}

enum State {
    Port(PortState),
    Switch(SwitchState),
}

fn number(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes.try_into().map_err(|_| malformed("FABRIC_A_*"))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Decodes the counters of a port or a switch.
fn decode(message: &[u8]) -> Result<State> {
    let (mut port, mut switch) = (None, SwitchState::default());
    let mut xstats = Vec::new();
    for attribute in attributes::parse(message) {
        let (id, value) = attribute?;
        match id {
            id::RECEIVED => switch.received = number(&value)?,
            id::UNROUTABLE => switch.unroutable = number(&value)?,
            id::EXPIRED => switch.expired = number(&value)?,
            id::STATS => {
                let mut numbers = value.chunks(8).map(number);
                let mut next = || {
                    let next = numbers.next();
                    next.unwrap_or_else(|| Err(malformed("FABRIC_A_STATS")))
                };
                port = Some(PortState {
                    sent_packets: next()?,
                    sent_bytes: next()?,
                    lost: next()?,
                    burst_lost: next()?,
                    wire_packets: next()?,
                    wire_bytes: next()?,
                    queued_packets: next()?,
                    queued_bytes: next()?,
                    dropped: next()?,
                    policed: next()?,
                    xstats: Vec::new(),
                });
            }
            id::XSTATS => xstats = value,
            _ => {}
        }
    }
    Ok(match port {
        Some(port) => State::Port(PortState { xstats, ..port }),
        None => State::Switch(switch),
    })
}

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode as _, Yaml};

    use super::*;
    use crate::tests::{members_of, of, text};

    const HEADER: &str = include_str!("../../../modules/include/uapi/linux/fabric.h");

    #[test]
    fn numbers_match_the_header_and_the_ynl_specification() {
        for (prefix, names) in [
            ("FABRIC_CMD_", command::NAMES),
            ("FABRIC_A_", id::NAMES),
            ("IFLA_FABRIC_", &["DEVICE", "SWITCH"]),
        ] {
            let found = members_of(HEADER, &format!("{prefix}UNSPEC,"));
            let (last, found) = found.split_last().unwrap();
            assert_eq!(*last, format!("__{prefix}MAX"));
            let names = names.iter().map(|name| format!("{prefix}{name}"));
            assert!(names.eq(found.iter().copied()), "{prefix}");
        }
        assert_eq!((link::DEVICE, link::SWITCH), (1, 2));
        assert!(HEADER.contains(&format!("_NAME \"{FAMILY}\"\n")));
        assert!(HEADER.contains(&format!("_VERSION {VERSION}\n")));
        let specification =
            include_str!("../../../modules/Documentation/netlink/specs/fabric.yaml");
        let documents = Yaml::load_from_str(specification).unwrap();
        let upper = |described: &&Yaml| {
            let name = text(described, "name").unwrap().to_uppercase();
            name.replace('-', "_")
        };
        let described = of(&documents[0]["attribute-sets"], "fabric", "attributes");
        let described: Vec<_> = described.iter().map(upper).collect();
        assert_eq!(described, id::NAMES);
        let commands = documents[0]["operations"]["list"].as_sequence().unwrap();
        let commands: Vec<_> = commands.iter().map(|it| upper(&it)).collect();
        assert_eq!(commands, command::NAMES);
        let stats = of(&documents[0]["definitions"], "stats", "members");
        let stats: Vec<_> = stats.iter().map(|it| upper(it).to_lowercase()).collect();
        assert_eq!(stats, members_of(HEADER, "struct fabric_stats {"));
    }

    #[test]
    fn counters_are_decoded_by_their_message() {
        let mut port = Attributes::default();
        let stats: Vec<u8> = (1u64..=10).flat_map(u64::to_ne_bytes).collect();
        port.push(id::ID, &7u32.to_ne_bytes());
        port.push(id::STATS, &stats);
        port.push(id::XSTATS, &[1, 2, 3, 4]);
        let State::Port(state) = decode(&port.into_bytes()).unwrap() else {
            panic!("no port");
        };
        assert_eq!((state.sent_packets, state.policed), (1, 10));
        assert_eq!(state.xstats, [1, 2, 3, 4]);
        let mut switch = Attributes::default();
        switch.push(id::RECEIVED, &5u64.to_ne_bytes());
        let State::Switch(state) = decode(&switch.into_bytes()).unwrap() else {
            panic!("no switch");
        };
        assert_eq!(state.received, 5);
        let mut short = Attributes::default();
        short.push(id::STATS, &[0; 16]);
        assert!(decode(&short.into_bytes()).is_err());
    }
}
