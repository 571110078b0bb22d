// SPDX-License-Identifier: GPL-2.0
//! Names, indices, addresses and routes of a topology, before anything is built.

use std::{
    collections::{HashMap, VecDeque},
    net::Ipv4Addr,
};

use anyhow::{Context, Result, bail};
use xdc_proto::{Direction, Topology};

/// First interface index that we hand out; 1 is `lo`.
const FIRST_INDEX: u32 = 2;

/// Links are numbered /31 networks from here.
const FIRST_NETWORK: u32 = u32::from_be_bytes([10, 0, 1, 0]);

/// Longest device name (IFNAMSIZ less its NUL).
const NAME_BYTES: usize = 15;

/// One end of a link.
#[derive(Debug, Clone)]
pub struct Port<'a> {
    /// Device name: that of the node at the other end.
    pub name: String,
    /// Interface index, in its own namespace.
    pub index: u32,
    /// Its address and Ethernet address.
    pub address: Ipv4Addr,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Node at the other end.
    pub peer: usize,
    /// Which port that is over there.
    pub peer_port: usize,
    /// MTU, bytes.
    pub mtu: u32,
    /// What a packet that leaves here goes through.
    pub egress: &'a Direction,
}

/// One node.
#[derive(Debug, Clone)]
pub struct NodeLayout<'a> {
    /// Name of the node and its namespace.
    pub name: &'a str,
    /// Forwards packets.
    pub router: bool,
    /// Its own sysctls.
    pub sysctls: &'a [(String, String)],
    /// Its ports, in the order of the topology's links.
    pub ports: Vec<Port<'a>>,
}

impl NodeLayout<'_> {
    /// The address that others know the node by: its first port's.
    pub fn address(&self) -> Result<Ipv4Addr> {
        let port = self.ports.first();
        port.map(|port| port.address)
            .with_context(|| format!("the node {} has no link", self.name))
    }
}

/// A route of one node: destination (None = all others) and the port to leave by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Node to reach; None = everything.
    pub destination: Option<usize>,
    /// Index in [`NodeLayout::ports`].
    pub port: usize,
}

/// The whole network.
#[derive(Debug)]
pub struct Layout<'a> {
    /// In the order of the topology.
    pub nodes: Vec<NodeLayout<'a>>,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Layout<'a> {
    /// Lays a topology out, or says what is wrong with it.
    pub fn new(topology: &'a Topology) -> Result<Self> {
        let mut layout = Layout {
            nodes: Vec::new(),
            by_name: HashMap::new(),
        };
        for (i, node) in topology.nodes.iter().enumerate() {
            if layout.by_name.insert(&node.name, i).is_some() {
                bail!("two nodes are named {}", node.name);
            }
            layout.nodes.push(NodeLayout {
                name: &node.name,
                router: node.router,
                sysctls: &node.sysctls,
                ports: Vec::new(),
            });
        }
        for (i, link) in topology.links.iter().enumerate() {
            let (a, b) = (layout.node(&link.a)?, layout.node(&link.b)?);
            if a == b {
                bail!("the node {} is linked to itself", link.a);
            }
            let ports = (layout.nodes[a].ports.len(), layout.nodes[b].ports.len());
            layout.add_port(a, b, ports.1, 2 * i as u32, link.mtu, &link.ab)?;
            layout.add_port(b, a, ports.0, 2 * i as u32 + 1, link.mtu, &link.ba)?;
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
            address: Ipv4Addr::from(FIRST_NETWORK + end),
            // Locally administered.
            mac: [2, 0, 0, b, c, d],
            peer,
            peer_port,
            mtu,
            egress,
        };
        self.nodes[node].ports.push(port);
        Ok(())
    }

    /// Index of the node of that name.
    pub fn node(&self, name: &str) -> Result<usize> {
        self.by_name
            .get(name)
            .copied()
            .with_context(|| format!("the topology has no node {name}"))
    }

    /// The first port of `node` towards `peer`.
    pub fn port(&self, node: usize, peer: usize) -> Result<&Port<'a>> {
        let ports = &self.nodes[node].ports;
        ports
            .iter()
            .find(|port| port.peer == peer)
            .with_context(|| {
                format!(
                    "the topology has no link between {} and {}",
                    self.nodes[node].name, self.nodes[peer].name
                )
            })
    }

    /// The port at the other end of a port.
    pub fn remote(&self, port: &Port) -> &Port<'a> {
        &self.nodes[port.peer].ports[port.peer_port]
    }

    /// Routes of every node to every host: fewest hops, and the earlier link among equals.
    /// A node with one port needs no more than a default route.
    pub fn routes(&self) -> Vec<Vec<Route>> {
        let mut routes: Vec<Vec<Route>> = self
            .nodes
            .iter()
            .map(|node| match node.ports.len() {
                1 => vec![Route {
                    destination: None,
                    port: 0,
                }],
                _ => Vec::new(),
            })
            .collect();
        for (destination, host) in self.nodes.iter().enumerate() {
            if host.router {
                continue;
            }
            let hops = self.hops_to(destination);
            for (i, node) in self.nodes.iter().enumerate() {
                if i == destination || node.ports.len() == 1 {
                    continue;
                }
                let closer = |port: &Port| {
                    let forwards = port.peer == destination || self.nodes[port.peer].router;
                    forwards && matches!((hops[port.peer], hops[i]), (Some(p), Some(n)) if p < n)
                };
                if let Some(port) = node.ports.iter().position(closer) {
                    routes[i].push(Route {
                        destination: Some(destination),
                        port,
                    });
                }
            }
        }
        routes
    }

    /// Hops from each node to `destination` through routers; None = unreachable.
    fn hops_to(&self, destination: usize) -> Vec<Option<u32>> {
        let mut hops = vec![None; self.nodes.len()];
        hops[destination] = Some(0);
        let mut queue = VecDeque::from([(destination, 0)]);
        while let Some((node, distance)) = queue.pop_front() {
            if node != destination && !self.nodes[node].router {
                continue;
            }
            for port in &self.nodes[node].ports {
                if hops[port.peer].is_none() {
                    hops[port.peer] = Some(distance + 1);
                    queue.push_back((port.peer, distance + 1));
                }
            }
        }
        hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_proto::{Link, Node};

    fn topology(nodes: &[(&str, bool)], links: &[(&str, &str)]) -> Topology {
        let direction = Direction {
            rate_bps: 0,
            delay_ns: 0,
            queue: None,
            faults: None,
        };
        Topology {
            nodes: nodes
                .iter()
                .map(|(name, router)| Node {
                    name: name.to_string(),
                    router: *router,
                    sysctls: Vec::new(),
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
    fn the_two_ends_of_a_link_differ_in_the_last_bit() {
        let topology = topology(&[("a", false), ("b", false)], &[("a", "b"), ("a", "b")]);
        let layout = Layout::new(&topology).unwrap();
        let port = &layout.nodes[0].ports[1];
        assert_eq!(port.name, "b.1");
        assert_eq!(port.index, 3);
        assert_eq!(port.address, Ipv4Addr::new(10, 0, 1, 2));
        assert_eq!(layout.remote(port).address, Ipv4Addr::new(10, 0, 1, 3));
        assert_eq!(layout.remote(layout.remote(port)).mac, port.mac);
    }

    #[test]
    fn the_shortest_path_wins_and_the_first_link_among_equals() {
        // a - r - s - b, and a longer way round over t; two links between r and s.
        let topology = topology(
            &[
                ("a", false),
                ("b", false),
                ("r", true),
                ("s", true),
                ("t", true),
            ],
            &[
                ("a", "r"),
                ("r", "t"),
                ("t", "s"),
                ("r", "s"),
                ("r", "s"),
                ("s", "b"),
            ],
        );
        let layout = Layout::new(&topology).unwrap();
        let routes = layout.routes();
        let default = Route {
            destination: None,
            port: 0,
        };
        assert_eq!(routes[0], [default]);
        let towards = |destination, port| Route {
            destination: Some(destination),
            port,
        };
        assert_eq!(routes[2], [towards(0, 0), towards(1, 2)]);
        assert_eq!(routes[4], [towards(0, 0), towards(1, 1)]);
    }

    #[test]
    fn a_host_does_not_forward() {
        let topology = topology(
            &[("a", false), ("h", false), ("b", false), ("r", true)],
            &[("a", "h"), ("h", "b"), ("b", "r")],
        );
        let layout = Layout::new(&topology).unwrap();
        let routes = layout.routes();
        assert!(routes[2].iter().all(|route| route.destination != Some(0)));
    }

    #[test]
    fn a_wrong_topology_is_named() {
        let error = |topology: Topology| Layout::new(&topology).unwrap_err().to_string();
        let unknown = topology(&[("a", false)], &[("a", "x")]);
        assert!(error(unknown).contains("no node x"));
        let twice = topology(&[("a", false), ("a", true)], &[]);
        assert!(error(twice).contains("named a"));
        let own = topology(&[("a", false)], &[("a", "a")]);
        assert!(error(own).contains("itself"));
    }
}
