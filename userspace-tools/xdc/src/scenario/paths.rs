// SPDX-License-Identifier: GPL-2.0
//! Ways through a topology, as the guest's routes take them, and how long an idle one takes.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use xdc_proto::{Direction, Link, Topology};

use crate::error::{Error, Result};
use crate::scenario::no_node;

/// Longest name of a network device.
const DEVICE_NAME_BYTES: usize = 15;

/// Entries of all trees that are kept, some 40 bytes each: twice what the largest network that a
/// guest was tried with takes.
const MAX_KEPT: usize = 4 << 20;

/// Of more hosts than this, evenly chosen ones stand for all as one end of the longest path.
const ENDS: usize = 64;

/// A topology by indices. Trees of shortest paths are kept, so that thousands of flows between
/// few hosts cost no more than the hosts.
pub struct Paths<'a> {
    topology: &'a Topology,
    by_name: HashMap<&'a str, usize>,
    /// Of each node, in the order of the links.
    ports: Vec<Vec<Port>>,
    trees: RefCell<HashMap<usize, Tree>>,
}

#[derive(Debug, Clone, Copy)]
struct Port {
    peer: usize,
    link: usize,
    /// Walked from a to b.
    forward: bool,
}

/// For each node the hop by which it is reached, and from where; None = not at all.
type Tree = Vec<Option<(usize, Port)>>;

impl<'a> Paths<'a> {
    pub fn new(topology: &'a Topology) -> Result<Self> {
        let mut by_name = HashMap::new();
        for (i, node) in topology.nodes.iter().enumerate() {
            if by_name.insert(node.name.as_str(), i).is_some() {
                return Err(Error::usage(format!("two nodes are named '{}'", node.name)));
            }
        }
        let mut paths = Self {
            topology,
            by_name,
            ports: vec![Vec::new(); topology.nodes.len()],
            trees: RefCell::default(),
        };
        let mut parallel: HashMap<(usize, usize), usize> = HashMap::new();
        for (link, ends) in topology.links.iter().enumerate() {
            let (a, b) = (paths.node(&ends.a)?, paths.node(&ends.b)?);
            for (node, peer, forward) in [(a, b, true), (b, a, false)] {
                let nth = parallel.entry((node, peer)).or_default();
                let device = device(&topology.nodes[peer].name, *nth);
                if device.len() > DEVICE_NAME_BYTES {
                    return Err(Error::usage(format!(
                        "a link's device would be named '{device}', which is too long"
                    ))
                    .hint("shorter names for nodes with parallel links"));
                }
                *nth += 1;
                paths.ports[node].push(Port {
                    peer,
                    link,
                    forward,
                });
            }
        }
        Ok(paths)
    }

    fn node(&self, name: &str) -> Result<usize> {
        self.by_name.get(name).copied().ok_or_else(|| {
            no_node(
                "a flow is of ".to_owned(),
                name,
                self.by_name.keys().copied(),
            )
        })
    }

    /// RTT of an otherwise empty path for a full packet and its ACK, as the topology has it.
    pub fn base_rtt_us(&self, src: &str, dst: &str) -> Result<f64> {
        let there_ns = self.idle_ns(src, dst, None)?;
        Ok(there_ns.saturating_add(self.ack_ns(src, dst)?) as f64 / 1e3)
    }

    /// What an ACK takes back over that path, ns.
    pub fn ack_ns(&self, src: &str, dst: &str) -> Result<u64> {
        self.idle_ns(dst, src, Some(self.topology.ack_bytes()))
    }

    /// Of a packet of so many bytes, or a full one.
    fn idle_ns(&self, from: &str, to: &str, bytes: Option<u32>) -> Result<u64> {
        let walk = self.walk(from, to)?.into_iter();
        Ok(walk
            .map(|(link, direction)| direction.idle_ns(bytes.unwrap_or(link.mtu)))
            .fold(0, u64::saturating_add))
    }

    /// Number of each link from one node to another, and whether it is crossed from a to b.
    pub fn ports(&self, from: &str, to: &str) -> Result<Vec<(usize, bool)>> {
        self.ports_between(self.node(from)?, self.node(to)?)
    }

    /// The links from one node to another, the last one first, and the direction of each.
    pub fn walk(&self, from: &str, to: &str) -> Result<Vec<(&'a Link, &'a Direction)>> {
        let ports = self.ports(from, to)?;
        let links = ports.into_iter().map(|(number, forward)| {
            let link = &self.topology.links[number];
            (link, if forward { &link.ab } else { &link.ba })
        });
        Ok(links.collect())
    }

    /// The longest base RTT between two hosts whose path there crosses a port of each name. A
    /// port has the name that `names` has for its link and direction (a to b, b to a).
    pub fn longest_rtts_ns<'n>(&self, names: &[[Option<&'n str>; 2]]) -> HashMap<&'n str, u64> {
        let nodes = &self.topology.nodes;
        let hosts: Vec<_> = (0..nodes.len()).filter(|&n| !nodes[n].router).collect();
        let mut longest = HashMap::new();
        let mut cross = |src: usize, dst: usize| {
            // Hosts that no path joins exchange nothing.
            let Ok(ports) = self.ports_between(src, dst) else {
                return;
            };
            let Ok(rtt_us) = self.base_rtt_us(&nodes[src].name, &nodes[dst].name) else {
                return;
            };
            for (link, forward) in ports {
                if let Some(name) = names[link][usize::from(!forward)] {
                    let known = longest.entry(name).or_insert(0);
                    *known = (rtt_us * 1e3).round().max(*known as f64) as u64;
                }
            }
        };
        for &src in hosts.iter().step_by(hosts.len().div_ceil(ENDS).max(1)) {
            for &dst in hosts.iter().filter(|&&dst| dst != src) {
                cross(src, dst);
                cross(dst, src);
            }
        }
        longest
    }

    /// Link and whether from a to b, of the way from one node to another, the last one first.
    fn ports_between(&self, from: usize, to: usize) -> Result<Vec<(usize, bool)>> {
        let mut trees = self.trees.borrow_mut();
        if trees.len() * self.ports.len() > MAX_KEPT && !trees.contains_key(&from) {
            trees.clear();
        }
        let tree = trees.entry(from).or_insert_with(|| self.tree(from));
        let mut walk = Vec::new();
        let mut here = to;
        while here != from {
            let (before, port) = tree[here].ok_or_else(|| {
                let name = |node: usize| &self.topology.nodes[node].name;
                Error::usage(format!(
                    "no path leads from '{}' to '{}'",
                    name(from),
                    name(to)
                ))
            })?;
            walk.push((port.link, port.forward));
            here = before;
        }
        Ok(walk)
    }

    pub fn topology(&self) -> &'a Topology {
        self.topology
    }

    /// Fewest hops, the earlier link where two would do, and only routers on the way.
    fn tree(&self, from: usize) -> Tree {
        let mut tree: Tree = vec![None; self.ports.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(here) = queue.pop_front() {
            if here != from && !self.topology.nodes[here].router {
                continue;
            }
            for &port in &self.ports[here] {
                if port.peer != from && tree[port.peer].is_none() {
                    tree[port.peer] = Some((here, port));
                    queue.push_back(port.peer);
                }
            }
        }
        tree
    }
}

/// Name of the device of the `nth` of parallel links to `peer`.
fn device(peer: &str, nth: usize) -> String {
    match nth {
        0 => peer.to_owned(),
        n => format!("{peer}.{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plan::tests::topology_of;

    const TREE: &str = r#"
kind = "fat-tree"
k = 8
datacenters = 2
rate = "100gbit"
delay = "1us"
border = { links = 2 }
wan = { links = 8, delay = "900us" }
"#;

    #[test]
    fn a_base_rtt_is_the_sum_of_the_layers() {
        let topology = topology_of(TREE);
        let paths = Paths::new(&topology).unwrap();
        let wire_us = |hops: f64| hops * (1514.0 + 66.0) * 8.0 / 100e3;
        for (src, dst, hops, wan_us) in [
            ("a0", "a1", 2.0, 0.0),
            ("a0", "a4", 4.0, 0.0),
            ("a0", "a127", 6.0, 0.0),
            ("a0", "b0", 8.0, 1800.0),
        ] {
            // Nine links to the other side, one of them the WAN's.
            let serialisations = if wan_us > 0.0 { hops + 1.0 } else { hops };
            let want = 2.0 * hops + wan_us + wire_us(serialisations);
            let got = paths.base_rtt_us(src, dst).unwrap();
            assert!((got - want).abs() < 0.02, "{src}-{dst}: {got}, not {want}");
        }
    }

    #[test]
    fn thousands_of_flows_cost_no_more_than_their_hosts() {
        let topology = topology_of(TREE);
        let paths = Paths::new(&topology).unwrap();
        for i in 0..5000 {
            let (src, dst) = (i * 7 % 128, i * 11 % 128);
            let rtt = paths.base_rtt_us(&format!("a{src}"), &format!("b{dst}"));
            assert!(rtt.unwrap() > 1800.0);
        }
        assert_eq!(paths.trees.borrow().len(), 256);
    }

    #[test]
    fn parallel_links_are_told_apart() {
        let mut topology = topology_of(TREE);
        let mut wan = topology.links.iter_mut().filter(|link| link.a == "ax");
        wan.nth(3).unwrap().ba.delay_ns = 7;
        let delay = |from, to| topology.direction(from, to).map(|d| d.delay_ns);
        assert_eq!(delay("bx", "ax"), Some(900_000));
        assert_eq!(delay("bx", "ax.3"), Some(7));
        assert_eq!(delay("ax", "bx.3"), Some(900_000));
        for wrong in ["ax.8", "ax.0", "ax.x", "ac0"] {
            assert_eq!(delay("bx", wrong), None, "{wrong}");
        }
        let mut topology = topology_of(TREE);
        let long = "x".repeat(14);
        for node in &mut topology.nodes {
            if node.name == "bx" {
                node.name.clone_from(&long);
            }
        }
        for link in &mut topology.links {
            if link.b == "bx" {
                link.b.clone_from(&long);
            }
        }
        assert!(Paths::new(&topology).is_err());
    }
}
