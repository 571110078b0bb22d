// SPDX-License-Identifier: GPL-2.0
//! The network of a plan: nodes, links, queues, tunnels and racks.

use serde::{Deserialize, Serialize};

use crate::*;

/// The emulated network: namespaces and veth pairs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Hosts and routers; each becomes a network namespace of that name.
    pub nodes: Vec<Node>,
    /// Point-to-point links.
    pub links: Vec<Link>,
    /// Sysctls for every namespace, (`net.ipv4.tcp_ecn`, `3`), or for the initial one alone
    /// (`net.ipv4.tcp_mem`, `net.core.*`): the agent writes them where they exist.
    pub sysctls: Vec<(String, String)>,
    /// Names in `sysctls` that the agent does not set on routers.
    #[serde(default)]
    pub of_hosts: Vec<String>,
    /// Set `features tcp_usec_ts` on routes: microsecond timestamps, so that RTTs measured after a
    /// retransmission are precise, too.
    pub tcp_usec_ts: bool,
    /// Set `quickack 1` on every route: one ACK per packet.
    pub quickack: bool,
    /// Enable TSO, GSO and GRO. Otherwise TCP sends single packets.
    #[serde(default)]
    pub offload: bool,
    /// Use IPv6 addresses.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ipv6: bool,
    /// Routers are switches of the module `fabric`, without namespaces.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fabric: bool,
    /// Routers use all shortest paths, not only the first.
    #[serde(default)]
    pub ecmp: bool,
    /// Congestion controls that routes choose, instead of [`RunPlan::cc`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congctl: Option<Congctl>,
    /// Tunnels between hosts, for flows with [`Flow::tunnel`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<Tunnel>,
    /// Circuit switch beside the packet network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotor: Option<Rotor>,
}

impl Topology {
    /// Returns the direction of a link from a node to its neighbor. `NEIGHBOR.1` is the second of
    /// parallel links; without a number, the first.
    pub fn direction(&self, from: &str, to: &str) -> Option<&Direction> {
        let (to, nth) = match to.split_once('.') {
            Some((to, nth)) => (to, nth.parse().ok().filter(|&n| n > 0)?),
            None => (to, 0),
        };
        let mut directions = self.links.iter().filter_map(|link| {
            if link.a == from && link.b == to {
                Some(&link.ab)
            } else if link.a == to && link.b == from {
                Some(&link.ba)
            } else {
                None
            }
        });
        directions.nth(nth)
    }
}

/// An optical circuit switch that joins racks in pairs by a timetable.
///
/// Each rack's switch has a bond of two uplinks instead of its link to the packet network's router:
/// that link, and one to the circuit switch. The link's queue is the bond's qdisc, `acceltor`;
/// options that follow from the [`Rotor`] need not be among its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotor {
    /// Circuit switch: a node without links.
    pub switch: String,
    /// Router of the packet network.
    pub packet: String,
    /// Racks, numbered from 0.
    pub racks: Vec<Rack>,
    /// Duration of a circuit, ns.
    pub day_ns: u64,
    /// Time between two circuits, ns.
    pub night_ns: u64,
    /// Rate of a circuit.
    pub rate_bps: u64,
    /// Weeks that the circuit switch counts separately; the last also counts all later ones.
    pub weeks: u32,
}

impl Rotor {
    /// Returns the length of a day and its night, ns.
    pub fn slot_ns(&self) -> u64 {
        self.day_ns + self.night_ns
    }

    /// Returns the time in which each pair of racks has one day, ns.
    pub fn week_ns(&self) -> u64 {
        self.slot_ns() * self.racks.len().saturating_sub(1) as u64
    }

    /// Returns the capacity of a circuit in a day, bytes.
    pub fn day_bytes(&self) -> f64 {
        self.rate_bps as f64 * self.day_ns as f64 / 8e9
    }
}

/// Hosts and their switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// The switch.
    pub switch: String,
    /// Number of the first host; the hosts of a rack have consecutive numbers.
    pub first_host: u32,
    /// Number of hosts.
    pub hosts: u32,
}

impl Rack {
    /// Splits the host numbers into the fewest aligned blocks: first number, and log2 of the size.
    pub fn blocks(&self) -> Vec<(u32, u8)> {
        let mut blocks = Vec::new();
        let (mut first, mut left) = (self.first_host, self.hosts);
        while left > 0 {
            let bits = first.trailing_zeros().min(left.ilog2());
            blocks.push((first, bits as u8));
            first += 1 << bits;
            left -= 1 << bits;
        }
        blocks
    }
}

/// The qdisc of a rack's bond.
pub const ACCELTOR: &str = "acceltor";

/// Most IPv4 prefixes that the acceltor qdisc accepts.
pub const MAX_PREFIXES: usize = 100;

/// A device of kind unorc at each of two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// One host.
    pub a: String,
    /// Other host.
    pub b: String,
    /// UDP port at both ends.
    pub port: u16,
    /// Other options in ip's syntax: `paths reps fec off`.
    pub options: Vec<String>,
}

/// Tunnel header, bytes: IPv4, UDP and unorc.
pub const TUNNEL_HEADER_BYTES: u32 = 20 + 8 + 16;

/// Difference between the MTUs of path and tunnel, bytes: a parity packet is two bytes longer than
/// the longest data packet.
pub const TUNNEL_MTU_LESS: u32 = TUNNEL_HEADER_BYTES + 2;

impl Topology {
    /// Returns the IP length of a pure ACK with timestamps, bytes: the reply in link checks and
    /// base RTTs.
    pub fn ack_bytes(&self) -> u32 {
        const TCP_BYTES: u32 = 32;
        self.ip_header_bytes() + TCP_BYTES
    }

    /// Returns the length of an IP header without options, bytes.
    pub fn ip_header_bytes(&self) -> u32 {
        match self.ipv6 {
            true => 40,
            false => 20,
        }
    }
}

/// Congestion controls of hosts' routes (`ip route ... congctl NAME`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Congctl {
    /// For routes to hosts of the same [`Node::site`].
    pub inside: String,
    /// For routes to other sites.
    pub across: String,
}

impl Congctl {
    /// Returns the congestion control of a route.
    pub fn of(&self, across: bool) -> &str {
        match across {
            true => &self.across,
            false => &self.inside,
        }
    }
}

/// One network namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Unique name, at most 12 characters of `[a-z0-9_-]`.
    pub name: String,
    /// Whether the node forwards packets.
    pub router: bool,
    /// Sysctls of this namespace, applied after the topology's.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Shell commands to run here, in order, when the network is up and before links are checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// Router that chooses among shortest paths per packet.
    #[serde(default)]
    pub spray: bool,
    /// Datacenter of a host, for [`Topology::congctl`].
    #[serde(default)]
    pub site: u32,
    /// `initcwnd` of its routes, packets; 0 = kernel default.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initcwnd: u32,
    /// `initrwnd` of its routes, packets; 0 = kernel default.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initrwnd: u32,
}

/// A veth pair. Each direction consists of queue, serialization at `rate_bps`, and propagation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// One end.
    pub a: String,
    /// Other end.
    pub b: String,
    /// MTU of both devices, bytes.
    pub mtu: u32,
    /// From a to b.
    pub ab: Direction,
    /// From b to a.
    pub ba: Direction,
}

/// One direction of a link: the egress of the device at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Direction {
    /// Serialization rate; 0 = unlimited.
    pub rate_bps: u64,
    /// Propagation delay, ns.
    pub delay_ns: u64,
    /// Queue in front of the link. None = a FIFO that never drops.
    pub queue: Option<Queue>,
    /// Faults on the way, enabled when the links have been checked.
    #[serde(default)]
    pub faults: Option<Faults>,
    /// Policer in front of the rest, enabled when the links have been checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<Policer>,
}

/// A token bucket that drops the packets for which it has no tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policer {
    /// Rate of the tokens.
    pub rate_bps: u64,
    /// Most tokens, bytes.
    pub burst_bytes: u32,
}

/// Faults that netem adds to a direction, before its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Seed of netem's random numbers, for repeatable runs.
    pub seed: u64,
    /// Packets lost, ppm.
    pub loss_ppm: u32,
    /// Packets that skip the direction's delay and so overtake earlier ones, ppm.
    pub reorder_ppm: u32,
    /// Extra delay of each packet, uniform in 0..=jitter, ns. Keeps the order of packets.
    #[serde(default)]
    pub jitter_ns: u64,
}

/// Ethernet header, bytes: link occupancy of a packet beyond its IP length.
pub const ETHERNET_HEADER_BYTES: u32 = 14;

impl Direction {
    /// Returns the time that a packet of `bytes` of IP takes through this direction when idle, ns.
    ///
    /// A queue is a shaper: it sends a packet at once and delays the next one. So with a queue, an
    /// idle link adds only propagation. Base RTTs are sums of this.
    pub fn idle_ns(&self, bytes: u32) -> u64 {
        if self.queue.is_some() || self.rate_bps == 0 {
            return self.delay_ns;
        }
        let bits = u128::from(bytes + ETHERNET_HEADER_BYTES) * 8;
        self.delay_ns + (bits * 1_000_000_000 / u128::from(self.rate_bps)) as u64
    }
}

/// A queue discipline in front of a link, with its options.
///
/// The direction's delay is a `netem` root qdisc above the queue (a documented use of a child
/// qdisc), so propagation needs no extra device. The sum along a path is the same as with the delay
/// behind the queue.
///
/// The agent shapes sch_phantom to the link's rate. A qdisc that does not shape gets an htb of that rate
/// above it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Kind, such as `fq_codel`.
    pub kind: String,
    /// Options in tc's words, such as `limit`, `1000`, `ecn`.
    pub words: Vec<String>,
    /// Seed of phantom's random numbers, if its words have none; None = random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Queue {
    /// Returns whether this is sch_phantom.
    pub fn is_phantom(&self) -> bool {
        self.kind == "phantom"
    }

    /// Returns whether this is sch_acceltor, which a bond has.
    pub fn is_acceltor(&self) -> bool {
        self.kind == ACCELTOR
    }

    /// Returns whether the agent creates the qdisc itself, without tc.
    pub fn is_made_by_agent(&self) -> bool {
        self.is_phantom() || self.is_acceltor()
    }
}
