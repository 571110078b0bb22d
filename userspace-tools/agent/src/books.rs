// SPDX-License-Identifier: GPL-2.0
//! Packet accounting: the counters of IP, devices and qdiscs, which must agree at each node.
//!
//! A packet passes from a device to IP, which delivers or forwards it, and from IP to a qdisc and a device.
//! If one counter has a packet and the next has not, either a drop counter explains it or the node's books do
//! not balance.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use anyhow::Result;
use xdc_netlink::{
    link::Device,
    netfilter,
    qdisc::{Handle, QdiscState},
};
use xdc_proto::{Cause, Dropped, Unbalanced};

use crate::{
    fabric::SwitchBooks,
    layout::Port,
    network::{CHILD, Network, is_wire},
    watch::Counters,
};

/// Counters of drops with a known cause, as in /proc/net/snmp, snmp6 and netstat.
const EXPLAINED: &[(Cause, &[&str])] = &[
    (
        Cause::Malformed,
        &[
            "IpInHdrErrors",
            "Ip6InHdrErrors",
            "IpExtInTruncatedPkts",
            "Ip6InTruncatedPkts",
            "IpReasmFails",
            "Ip6ReasmFails",
            "IcmpInCsumErrors",
            "Icmp6InCsumErrors",
            "TcpInErrs",
            "UdpInCsumErrors",
            "Udp6InCsumErrors",
        ],
    ),
    (
        Cause::Route,
        &[
            "IpInAddrErrors",
            "Ip6InAddrErrors",
            "IpExtInNoRoutes",
            "Ip6InNoRoutes",
            "IpOutNoRoutes",
            "Ip6OutNoRoutes",
            "IpInUnknownProtos",
            "Ip6InUnknownProtos",
            "IpInDiscards",
            "Ip6InDiscards",
            "IpFragFails",
            "Ip6FragFails",
            "TcpExtIPReversePathFilter",
        ],
    ),
    (
        Cause::Socket,
        &[
            "TcpExtTCPBacklogDrop",
            "TcpExtTCPRcvQDrop",
            "TcpExtOfoPruned",
            "TcpExtTCPOFODrop",
            "TcpExtTCPZeroWindowDrop",
            "TcpExtListenDrops",
            "TcpExtPFMemallocDrop",
            "UdpNoPorts",
            "Udp6NoPorts",
            "UdpRcvbufErrors",
            "Udp6RcvbufErrors",
            "UdpMemErrors",
            "Udp6MemErrors",
        ],
    ),
];

/// Packets forwarded by IP: names of IPv4 and IPv6.
const FORWARDED: &[&str] = &["ForwDatagrams", "OutForwDatagrams"];

/// Errors between arrival and delivery.
const ARRIVAL_ERRORS: &[&str] = &[
    "InHdrErrors",
    "InAddrErrors",
    "InDiscards",
    "InUnknownProtos",
    "InNoRoutes",
    "InTruncatedPkts",
    "ReasmReqds",
];

/// Wait for packets between two counters, and number of attempts.
const PATIENCE: Duration = Duration::from_millis(1);
const TRIES: usize = 10;

/// Kinds of devices that pass on packets of another device.
const STACKED: &[&str] = &["vlan", "macvlan", "macvtap", "ipvlan"];

/// Device kind that sends no packet on.
const DEAD_END: &str = "dummy";

/// The counters of one node.
pub struct Node {
    devices: Vec<Device>,
    counters: Counters,
    /// Qdiscs of all devices.
    pub qdiscs: Vec<QdiscState>,
}

impl Node {
    /// Reads the counters in the node's namespace.
    fn read(network: &Network, node: usize) -> Result<Self> {
        Ok(Self {
            devices: network.devices(node)?,
            counters: Counters::read_all()?,
            qdiscs: network.qdiscs(node)?,
        })
    }

    /// The counters of a switch of the fabric. `received` has the packets sent to each of its ports.
    fn of_switch(books: &SwitchBooks, ports: &[Port], received: &[u64]) -> Self {
        let counters = books.counters().into_iter();
        Self {
            devices: books.devices(ports, received),
            counters: counters.map(|(name, n)| (name.to_owned(), n)).collect(),
            qdiscs: books.qdiscs(ports),
        }
    }

    /// Sum of an IPv4 and IPv6 counter.
    fn ip(&self, name: &str) -> i64 {
        let of = |family: &str| self.counters.get(&format!("{family}{name}")) as i64;
        ["Ip", "IpExt", "Ip6"].into_iter().map(of).sum()
    }

    fn sum(&self, names: &[&str]) -> i64 {
        names.iter().map(|name| self.ip(name)).sum()
    }

    fn root(&self, device: u32) -> Option<&QdiscState> {
        let mut qdiscs = self.qdiscs.iter();
        qdiscs.find(|qdisc| qdisc.index == device && qdisc.parent == Handle::ROOT)
    }

    /// Packets dropped by programs and actions at a device.
    fn dropped_at_hooks(&self, device: u32) -> u64 {
        let hooks = self.qdiscs.iter().filter(|qdisc| is_hook(qdisc));
        let own = hooks.filter(|qdisc| qdisc.index == device);
        own.map(|qdisc| qdisc.drops).sum()
    }

    /// Received IP packets minus those delivered, forwarded or counted as errors.
    fn lost_in_ip(&self) -> i64 {
        let filtered = self.counters.get("TcpExtIPReversePathFilter") as i64;
        let errors = self.sum(ARRIVAL_ERRORS) - self.ip("ReasmOKs") + filtered;
        let lost = self.ip("InReceives") - self.ip("InDelivers") - self.sum(FORWARDED) - errors;
        // Multicast packets of a group that the node has not joined are dropped uncounted.
        lost - lost.clamp(0, self.counters.get("Ip6InMcastPkts") as i64)
    }

    /// Packets that IP forwarded or created, minus those given to devices.
    fn lost_in_output(&self) -> i64 {
        let fragments = self.ip("FragCreates") - self.ip("FragOKs") - self.ip("FragFails");
        let sent = self.ip("OutRequests") + self.sum(FORWARDED) + fragments;
        sent - self.ip("OutTransmits")
    }

    /// Packets received by devices but not by IP, plus packets that IP sent but no qdisc or device received.
    /// An action may move packets from one to the other.
    fn lost_at_devices(&self) -> i64 {
        // A bond counts its members' packets.
        let counts = |device: &&Device| {
            let kind = device.kind.as_str();
            !device.is_member && kind != DEAD_END && !STACKED.contains(&kind)
        };
        let devices = || self.devices.iter().filter(counts);
        let received = devices().map(|it| it.rx_packets as i64 - it.rx_other_host as i64);
        let received: i64 = received.sum();
        let taken = |device: &Device| {
            let root = self.root(device.index);
            let held = root.map_or(0, |root| root.drops + root.backlog_packets);
            device.tx_packets + device.tx_dropped + held
        };
        let taken: u64 = devices().map(taken).sum();
        let hooks = self.devices.iter();
        let dropped: u64 = hooks.map(|device| self.dropped_at_hooks(device.index)).sum();
        let given = self.ip("OutTransmits");
        received - self.ip("InReceives") + given - taken as i64 - dropped as i64
    }

    fn moved_until(&self, after: &[Device]) -> i64 {
        let packets = |devices: &[Device]| -> u64 {
            let of = |device: &Device| device.rx_packets + device.tx_packets;
            devices.iter().map(of).sum()
        };
        packets(after).abs_diff(packets(&self.devices)) as i64
    }
}

/// Whether a qdisc's actions and programs see all packets of a device.
fn is_hook(qdisc: &QdiscState) -> bool {
    matches!(qdisc.kind.as_str(), "clsact" | "ingress")
}

/// Counters of all nodes at the end of a run, in topology order.
pub struct Books(pub Vec<Node>);

impl Books {
    /// Reads the counters.
    pub fn read(network: &Network) -> Result<Self> {
        let nodes = 0..network.layout.nodes.len();
        let read = |node| match network.fabric(node) {
            Some(_) => Ok(None),
            None => Node::read(network, node).map(Some),
        };
        let read = network.inside_each(nodes, read)?;
        let Some(fabric) =
            read.iter().position(Option::is_none).and_then(|node| network.fabric(node))
        else {
            return Ok(Self(read.into_iter().flatten().collect()));
        };
        let layout = &network.layout;
        let switches = fabric.dump(layout)?;
        let sent = |port: &Port| match (&switches[port.peer], &read[port.peer]) {
            (Some(peer), _) => {
                let state = &peer.ports[port.peer_port];
                state.sent_packets - state.burst_lost
            }
            (None, Some(host)) => {
                let index = layout.remote(port).index;
                let mut devices = host.devices.iter();
                let device = devices.find(|device| device.index == index);
                device.map_or(0, |device| device.tx_packets)
            }
            (None, None) => 0,
        };
        let of_switch = |(i, books): (usize, &Option<SwitchBooks>)| {
            let ports = &layout.nodes[i].ports;
            let received: Vec<u64> = ports.iter().map(sent).collect();
            Some(Node::of_switch(books.as_ref()?, ports, &received))
        };
        let of_switches: Vec<_> = switches.iter().enumerate().map(of_switch).collect();
        let nodes = read.into_iter().zip(of_switches);
        Ok(Self(nodes.filter_map(|(host, switch)| host.or(switch)).collect()))
    }

    /// Dropped packets by place and cause. `lost` is arrivals dropped by events, by node and device.
    pub fn dropped(&self, network: &Network, lost: &BTreeMap<(usize, u32), u64>) -> Vec<Dropped> {
        let mut all = Vec::new();
        for (i, node) in self.0.iter().enumerate() {
            let of_plan = &network.layout.nodes[i];
            let mut add = |port: &str, cause, packets: u64| {
                if packets > 0 {
                    all.push(Dropped {
                        node: of_plan.name.to_owned(),
                        port: port.to_owned(),
                        cause,
                        packets,
                    });
                }
            };
            let queue = match of_plan.router {
                true => Cause::Queue,
                false => Cause::HostQueue,
            };
            for device in &node.devices {
                let (wire, shaper, rest) = node.shares(device.index);
                let hooks = node.dropped_at_hooks(device.index);
                let lost = lost.get(&(i, device.index)).copied().unwrap_or(0);
                let port = of_plan.ports.iter().find(|it| it.index == device.index);
                let is_policed = port.is_some_and(|it| it.egress.policer.is_some());
                // The fabric loses bursts before they arrive.
                let from_fabric = port.is_some_and(|it| network.fabric(it.peer).is_some());
                let by_actions = match from_fabric {
                    true => hooks,
                    false => hooks.saturating_sub(lost),
                };
                let (policed, by_actions) = match is_policed {
                    true => (by_actions, 0),
                    false => (0, by_actions),
                };
                add(&device.name, Cause::Link, wire + lost);
                add(&device.name, queue, rest);
                add(&device.name, Cause::Policer, policed);
                add(&device.name, Cause::Action, shaper + by_actions);
                add(&device.name, Cause::Device, device.tx_dropped);
                add(&device.name, Cause::Malformed, device.rx_other_host);
            }
            for (cause, names) in EXPLAINED {
                let counted = names.iter().map(|name| node.counters.get(name));
                add("", *cause, counted.sum());
            }
        }
        all
    }

    /// Nodes whose counters disagree. Adds packets dropped by a filter to `dropped`.
    pub fn unbalanced(
        &self,
        network: &Network,
        dropped: &mut Vec<Dropped>,
    ) -> Result<Vec<Unbalanced>> {
        let mut all = Vec::new();
        for (i, node) in self.0.iter().enumerate() {
            let mut found = imbalances(network, i, node);
            for _ in 0..TRIES {
                if found.is_empty() || network.fabric(i).is_some() {
                    break;
                }
                thread::sleep(PATIENCE);
                let again = network.inside(i, || Node::read(network, i))?;
                // In real time, packets move while counters are read.
                let moved = again.moved_until(&network.devices(i)?);
                found = imbalances(network, i, &again);
                found.retain(|it| it.packets.abs() > moved);
            }
            // Filters apply to a whole node.
            let is_missing = |it: &Unbalanced| it.port.is_empty() && it.packets > 0;
            if found.iter().any(is_missing) && has_filters(network, i)? {
                let missing = found.extract_if(.., |it| is_missing(it));
                dropped.push(Dropped {
                    node: network.layout.nodes[i].name.to_owned(),
                    port: String::new(),
                    cause: Cause::Filter,
                    packets: missing.map(|it| it.packets as u64).sum(),
                });
            }
            all.extend(found);
        }
        Ok(all)
    }
}

impl Node {
    /// Drops of a device's qdiscs: in its netem, its shaper, and the rest. A parent also counts its
    /// children's drops.
    fn shares(&self, device: u32) -> (u64, u64, u64) {
        let qdiscs = || self.qdiscs.iter().filter(|it| it.index == device && !is_hook(it));
        let own = |qdisc: &QdiscState| {
            let children = qdiscs().filter(|child| child.parent.major == qdisc.handle.major);
            let children = children.filter(|child| child.parent != Handle::ROOT);
            let below: u64 = children.map(|child| child.drops).sum();
            qdisc.drops.saturating_sub(below)
        };
        let is_shaper = |qdisc: &&QdiscState| qdisc.kind == "htb" && qdisc.handle == CHILD;
        let wire: u64 = qdiscs().filter(|it| is_wire(it)).map(own).sum();
        let shaper: u64 = qdiscs().filter(is_shaper).map(own).sum();
        let all = self.root(device).map_or(0, |root| root.drops);
        (wire, shaper, all.saturating_sub(wire + shaper))
    }
}

fn imbalances(network: &Network, i: usize, node: &Node) -> Vec<Unbalanced> {
    // A circuit switch has its own accounting.
    if network.circuits().is_some_and(|circuits| circuits.is_at(i)) {
        return Vec::new();
    }
    let name = || network.layout.nodes[i].name.to_owned();
    let mut found = Vec::new();
    let mut compare = |port: &str, from: &str, to: &str, packets: i64| {
        if packets != 0 {
            found.push(Unbalanced {
                node: name(),
                port: port.to_owned(),
                between: [from.to_owned(), to.to_owned()],
                packets,
            });
        }
    };
    compare("", "the arrival at IP", "delivery or forwarding", node.lost_in_ip());
    compare("", "IP's output", "the devices", node.lost_in_output());
    // GRO merges packets, large packets are split, and a qdisc counts each segment of a bundle.
    if network.offload() {
        found.retain(|it| it.packets > 0);
        return found;
    }
    // A tunnel counts created packets as sent, and passes others to GRO.
    if !network.tunnel_devices().iter().any(|(at, _)| *at == i) {
        compare("", "the devices", "IP", node.lost_at_devices());
    }
    for device in &node.devices {
        let Some(root) = node.root(device.index).filter(|root| root.kind != "noqueue") else {
            continue;
        };
        let passed = device.tx_packets + device.tx_dropped;
        let lost = root.sent_packets as i64 - passed as i64;
        compare(&device.name, "the qdisc", "the device", lost);
        if lost == 0 && device.tx_dropped == 0 && root.sent_bytes != device.tx_bytes {
            let bytes = root.sent_bytes.abs_diff(device.tx_bytes);
            compare(
                &device.name,
                "the byte count of the qdisc",
                "the byte count of the device",
                bytes as i64,
            );
        }
    }
    found
}

/// Whether the node has a firewall, whose drops have no counter.
fn has_filters(network: &Network, node: usize) -> Result<bool> {
    network.inside(node, || {
        let tables = fs::read_to_string("/proc/self/net/ip_tables_names").unwrap_or_default();
        // An error: the kernel has no nftables.
        Ok(!tables.is_empty() || netfilter::has_tables().unwrap_or(false))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u32 = 2;

    fn qdisc(kind: &str, major: u16, parent: Handle, counts: (u64, u64)) -> QdiscState {
        QdiscState {
            index: PORT,
            kind: kind.to_owned(),
            handle: Handle { major, minor: 0 },
            parent,
            drops: counts.0,
            backlog_packets: counts.1,
            ..Default::default()
        }
    }

    /// A router that received 100 packets, delivered 10 and forwarded 90, of which its port sent 80.
    fn router() -> Node {
        let counters = [
            ("IpInReceives", 100),
            ("IpInDelivers", 10),
            ("IpForwDatagrams", 90),
            ("IpOutTransmits", 90),
        ];
        let below = |major| Handle { major, minor: 1 };
        Node {
            devices: vec![Device {
                index: PORT,
                rx_packets: 100,
                tx_packets: 80,
                ..Default::default()
            }],
            counters: counters.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
            qdiscs: vec![
                qdisc("netem", 1, Handle::ROOT, (9, 1)),
                qdisc("htb", 2, below(1), (7, 0)),
                qdisc("fq_codel", 3, below(2), (4, 0)),
            ],
        }
    }

    #[test]
    fn a_parent_counts_the_drops_of_its_children() {
        assert_eq!(router().shares(PORT), (2, 3, 4));
    }

    #[test]
    fn a_missing_packet_shows_in_each_counter() {
        let books = |change: &dyn Fn(&mut Node)| {
            let mut node = router();
            change(&mut node);
            let lost = [node.lost_in_ip(), node.lost_in_output()];
            (lost, node.lost_at_devices())
        };
        let set = |name: &'static str, n: u64| {
            move |node: &mut Node| {
                let all = [(name.to_owned(), n)];
                node.counters.extend(all);
            }
        };
        let none = [0, 0];
        assert_eq!(books(&|_| ()), (none, 0));
        assert_eq!(books(&set("IpInReceives", 99)), ([-1, 0], 1));
        assert_eq!(books(&set("IpInDelivers", 9)), ([1, 0], 0));
        assert_eq!(books(&set("IpForwDatagrams", 89)), ([1, -1], 0));
        assert_eq!(books(&set("IpOutTransmits", 89)), ([0, 1], -1));
        assert_eq!(books(&set("IpExtInMcastPkts", 9)), (none, 0));
        assert_eq!(books(&|node| node.devices[0].tx_packets -= 1), (none, 1));
        assert_eq!(books(&|node| node.devices[0].rx_other_host = 1), (none, -1));
        assert_eq!(books(&|node| node.qdiscs[0].drops -= 1), (none, 1));
        assert_eq!(books(&|node| node.qdiscs[0].backlog_packets = 0), (none, 1));
    }

    #[test]
    fn error_counters_and_actions_account_for_packets() {
        for name in ["IpInHdrErrors", "IpExtInNoRoutes", "TcpExtIPReversePathFilter"] {
            let mut node = router();
            let changed = [("IpInDelivers".to_owned(), 9), (name.to_owned(), 1)];
            node.counters.extend(changed);
            assert_eq!(node.lost_in_ip(), 0, "{name}");
        }
        let mut node = router();
        node.devices[0].rx_packets += 5;
        node.qdiscs.push(qdisc("clsact", 0xffff, Handle::CLSACT, (5, 0)));
        assert_eq!(node.lost_at_devices(), 0);
        assert_eq!(node.dropped_at_hooks(PORT), 5);
    }

    #[test]
    fn dummy_and_vlan_devices_are_not_counted() {
        let mut node = router();
        node.devices[0].tx_packets -= 5;
        let dummy =
            Device { index: 9, kind: DEAD_END.to_owned(), tx_packets: 5, ..Default::default() };
        node.devices.push(dummy);
        assert_eq!(node.lost_at_devices(), 5);
        let vlan = Device {
            index: 10,
            kind: STACKED[0].to_owned(),
            rx_packets: 7,
            tx_packets: 8,
            ..Default::default()
        };
        node.devices.push(vlan);
        assert_eq!(node.lost_at_devices(), 5);
    }
}
