// SPDX-License-Identifier: GPL-2.0
//! Names, indices and addresses of a topology.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::{Context, Result, bail};
use xdc_proto::{Direction, Topology};

/// First assigned interface index; 1 is `lo`.
pub const FIRST_INDEX: u32 = 2;

/// Base addresses: a host or router has one address, this plus its index, so that hosts adjacent in the
/// topology share prefixes. Links have none.
pub const FIRST_HOST: u32 = u32::from_be_bytes([10, 1, 0, 0]);
const FIRST_ROUTER: u32 = u32::from_be_bytes([10, 2, 0, 0]);
/// Base of hosts' tunnel addresses.
const FIRST_TUNNEL: u32 = u32::from_be_bytes([10, 3, 0, 0]);
const MAX_NODES: usize = 1 << 16;

/// IPv6 prefix of the 32-bit address.
const PREFIX: [u16; 6] = [0xfd00, 0, 0, 0, 0, 0];
const PREFIX_BITS: u8 = 96;

/// MAC address of all links into racks, by packet network or circuit, so that one neighbor entry fits both.
const FABRIC: [u8; 6] = [2, 1, 0, 0, 0, 1];

/// Longest device name (IFNAMSIZ less its NUL).
const NAME_BYTES: usize = 15;

/// One end of a link.
#[derive(Debug, Clone)]
pub struct Port<'a> {
    /// Device name: the peer node's name.
    pub name: String,
    /// Interface index in its namespace.
    pub index: u32,
    /// Whether this end comes first in the topology; it creates the pair.
    pub first: bool,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Node at the other end.
    pub peer: usize,
    /// Port number at the peer.
    pub peer_port: usize,
    /// MTU, bytes.
    pub mtu: u32,
    /// Properties of the egress direction.
    pub egress: &'a Direction,
    /// Rack whose two uplinks, this link and one to the circuit switch, this port bonds.
    pub rack: Option<usize>,
}

impl Port<'_> {
    /// IPv6 next-hop address of this port.
    pub fn link_local(&self) -> Ipv6Addr {
        let [_, _, _, b, c, d] = self.mac;
        let end = u16::from_be_bytes([c, d]);
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, u16::from(b) + 1, end)
    }
}

/// One node.
#[derive(Debug, Clone)]
pub struct NodeLayout<'a> {
    /// Name of the node and its namespace.
    pub name: &'a str,
    /// Whether it forwards packets.
    pub router: bool,
    /// Whether it chooses among shortest paths per packet.
    pub spray: bool,
    /// Datacenter.
    pub site: u32,
    /// Sysctls of this node.
    pub sysctls: &'a [(String, String)],
    /// Setup commands of this node.
    pub setup: &'a [String],
    /// The node's only address, on its first port.
    pub own_address: Ipv4Addr,
    /// Ports, in the order of the topology's links.
    pub ports: Vec<Port<'a>>,
}

impl NodeLayout<'_> {
    /// Tunnel address of a host.
    pub fn tunnel_address(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.own_address.to_bits() + FIRST_TUNNEL - FIRST_HOST)
    }

    /// The node's address; an error if it has no link.
    pub fn address(&self) -> Result<Ipv4Addr> {
        if self.ports.is_empty() {
            bail!("the node {} has no link", self.name);
        }
        Ok(self.own_address)
    }

    /// Address of a reachable host; None for routers and unconnected hosts.
    pub fn host_address(&self) -> Option<Ipv4Addr> {
        (!self.router && !self.ports.is_empty()).then_some(self.own_address)
    }
}

/// The whole network.
#[derive(Debug)]
pub struct Layout<'a> {
    /// Nodes, in topology order.
    pub nodes: Vec<NodeLayout<'a>>,
    /// Whether hosts have separate routes to other datacenters.
    pub by_site: bool,
    /// Whether addresses are IPv6, as by [`Layout::ip`].
    pub ipv6: bool,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Layout<'a> {
    /// Lays out a topology, or returns its defect.
    pub fn new(topology: &'a Topology) -> Result<Self> {
        let mut layout = Layout {
            nodes: Vec::new(),
            by_site: topology.congctl.is_some(),
            ipv6: topology.ipv6,
            by_name: HashMap::new(),
        };
        if topology.nodes.len() > MAX_NODES {
            bail!("a topology has at most {MAX_NODES} nodes");
        }
        let (mut hosts, mut routers) = (FIRST_HOST.., FIRST_ROUTER..);
        for (i, node) in topology.nodes.iter().enumerate() {
            let addresses = match node.router {
                true => &mut routers,
                false => &mut hosts,
            };
            if layout.by_name.insert(&node.name, i).is_some() {
                bail!("two nodes are named {}", node.name);
            }
            layout.nodes.push(NodeLayout {
                name: &node.name,
                router: node.router,
                spray: node.spray,
                site: node.site,
                sysctls: &node.sysctls,
                setup: &node.setup,
                own_address: Ipv4Addr::from_bits(addresses.next().unwrap_or_default()),
                ports: Vec::new(),
            });
        }
        let rotor = topology.rotor.as_ref();
        let racks = rotor.into_iter().flat_map(|rotor| &rotor.racks);
        let racks = racks.enumerate().map(|(n, it)| (it.switch.as_str(), n));
        let racks: HashMap<&str, usize> = racks.collect();
        for (i, link) in topology.links.iter().enumerate() {
            let (a, b) = (layout.node(&link.a)?, layout.node(&link.b)?);
            if a == b {
                bail!("the node {} is linked to itself", link.a);
            }
            let ports = (layout.nodes[a].ports.len(), layout.nodes[b].ports.len());
            layout.add_port(a, b, ports.1, 2 * i as u32, link.mtu, &link.ab)?;
            layout.add_port(b, a, ports.0, 2 * i as u32 + 1, link.mtu, &link.ba)?;
            if rotor.is_some_and(|rotor| rotor.packet == link.b)
                && let Some(&rack) = racks.get(link.a.as_str())
            {
                for node in [a, b] {
                    if let Some(port) = layout.nodes[node].ports.last_mut() {
                        port.mac = FABRIC;
                        port.rack = (node == a).then_some(rack);
                    }
                }
            }
        }
        Ok(layout)
    }

    /// Adds the port of `node` towards `peer`; `end` numbers the ends of all links.
    fn add_port(
        &mut self,
        node: usize,
        peer: usize,
        peer_port: usize,
        end: u32,
        mtu: u32,
        egress: &'a Direction,
    ) -> Result<()> {
        let ports = &self.nodes[node].ports;
        let parallel = ports.iter().filter(|port| port.peer == peer).count();
        let name = match parallel {
            0 => self.nodes[peer].name.to_string(),
            n => format!("{}.{n}", self.nodes[peer].name),
        };
        if name.len() > NAME_BYTES {
            bail!("the device name {name} is too long: give the node a shorter name");
        }
        let [_, b, c, d] = end.to_be_bytes();
        let port = Port {
            name,
            index: FIRST_INDEX + ports.len() as u32,
            first: end.is_multiple_of(2),
            // Locally administered.
            mac: [2, 0, 0, b, c, d],
            peer,
            peer_port,
            mtu,
            egress,
            rack: None,
        };
        self.nodes[node].ports.push(port);
        Ok(())
    }

    /// An address as packets carry it.
    pub fn ip(&self, address: Ipv4Addr) -> IpAddr {
        if !self.ipv6 {
            return address.into();
        }
        let [a, b, c, d, e, f] = PREFIX;
        let bits = address.to_bits();
        Ipv6Addr::new(a, b, c, d, e, f, (bits >> 16) as u16, bits as u16).into()
    }

    /// The length of a prefix for routes.
    pub fn prefix_len(&self, bits: u8) -> u8 {
        match self.ipv6 {
            true => PREFIX_BITS + bits,
            false => bits,
        }
    }

    /// Index of the node with this name.
    pub fn node(&self, name: &str) -> Result<usize> {
        self.by_name.get(name).copied().with_context(|| format!("the topology has no node {name}"))
    }

    /// The port of `node` with this name: its neighbor's, or `NEIGHBOUR.1` and so on for parallel links.
    pub fn port(&self, node: usize, name: &str) -> Result<&Port<'a>> {
        let ports = &self.nodes[node].ports;
        let found = ports.iter().find(|port| port.name == name);
        found.with_context(|| format!("the node {} has no link to {name}", self.nodes[node].name))
    }

    /// The port at the other end of a port.
    pub fn remote(&self, port: &Port) -> &Port<'a> {
        &self.nodes[port.peer].ports[port.peer_port]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use xdc_proto::{Link, Node};

    pub fn topology(nodes: &[(&str, bool)], links: &[(&str, &str)]) -> Topology {
        let direction =
            Direction { rate_bps: 0, delay_ns: 0, queue: None, faults: None, policer: None };
        Topology {
            of_hosts: Vec::new(),
            nodes: nodes
                .iter()
                .map(|(name, router)| Node {
                    name: name.to_string(),
                    router: *router,
                    sysctls: Vec::new(),
                    setup: Vec::new(),
                    spray: false,
                    site: 0,
                    initcwnd: 0,
                    initrwnd: 0,
                })
                .collect(),
            links: links
                .iter()
                .map(|(a, b)| Link {
                    a: a.to_string(),
                    b: b.to_string(),
                    mtu: 1500,
                    ab: direction.clone(),
                    ba: direction.clone(),
                })
                .collect(),
            ..Default::default()
        }
    }

    #[test]
    fn parallel_links_have_distinct_names() {
        let topology = topology(&[("a", false), ("b", false)], &[("a", "b"), ("a", "b")]);
        let layout = Layout::new(&topology).unwrap();
        let port = &layout.nodes[0].ports[1];
        assert_eq!(port.name, "b.1");
        assert_eq!(port.index, 3);
        assert!(port.first && !layout.remote(port).first);
        assert_ne!(port.mac, layout.remote(port).mac);
        assert_eq!(layout.remote(layout.remote(port)).mac, port.mac);
    }

    #[test]
    fn nodes_are_numbered_in_the_order_of_their_kind() {
        let nodes = [("a", false), ("r", true), ("b", false)];
        let topology = topology(&nodes, &[("a", "r"), ("b", "r")]);
        let layout = Layout::new(&topology).unwrap();
        let addresses: Vec<_> = layout.nodes.iter().map(|n| n.address().unwrap()).collect();
        let expected = [[10, 1, 0, 0], [10, 2, 0, 0], [10, 1, 0, 1]].map(Ipv4Addr::from);
        assert_eq!(addresses, expected);
    }

    #[test]
    fn ipv6_addresses_end_with_the_ipv4_bits() {
        let mut topology = topology(&[("a", false), ("b", false)], &[("a", "b"), ("a", "b")]);
        topology.ipv6 = true;
        let layout = Layout::new(&topology).unwrap();
        let address = layout.ip(layout.nodes[1].own_address);
        assert_eq!(address.to_string(), "fd00::a01:1");
        assert_eq!((layout.prefix_len(0), layout.prefix_len(32)), (96, 128));
        let ends: Vec<_> =
            layout.nodes.iter().flat_map(|node| node.ports.iter().map(Port::link_local)).collect();
        assert_eq!(ends[0].to_string(), "fe80::1:0");
        let different: std::collections::BTreeSet<_> = ends.iter().collect();
        assert_eq!(different.len(), 4);
    }

    #[test]
    fn ports_towards_racks_share_one_mac() {
        let nodes = [("h", false), ("t0", true), ("t1", true), ("e", true), ("o", true)];
        let mut topology = topology(&nodes, &[("h", "t0"), ("t0", "e"), ("t1", "e")]);
        let rack =
            |switch: &str| xdc_proto::Rack { switch: switch.to_owned(), ..Default::default() };
        topology.rotor = Some(xdc_proto::Rotor {
            packet: "e".to_owned(),
            racks: vec![rack("t0"), rack("t1")],
            ..Default::default()
        });
        let layout = Layout::new(&topology).unwrap();
        let racks = |node: usize| {
            let ports = layout.nodes[node].ports.iter();
            ports.map(|port| port.rack).collect::<Vec<_>>()
        };
        assert_eq!(racks(1), [None, Some(0)]);
        assert_eq!(racks(2), [Some(1)]);
        assert_eq!(racks(3), [None, None]);
        let ports = layout.nodes.iter().flat_map(|node| &node.ports);
        let fabric = ports.filter(|port| port.mac == FABRIC).count();
        assert_eq!(fabric, 4);
    }

    #[test]
    fn topology_errors_name_the_node() {
        let error = |topology: Topology| Layout::new(&topology).unwrap_err().to_string();
        let unknown = topology(&[("a", false)], &[("a", "x")]);
        assert!(error(unknown).contains("no node x"));
        let twice = topology(&[("a", false), ("a", true)], &[]);
        assert!(error(twice).contains("named a"));
        let own = topology(&[("a", false)], &[("a", "a")]);
        assert!(error(own).contains("itself"));
    }
}
