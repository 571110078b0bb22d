// SPDX-License-Identifier: GPL-2.0
//! Ports that a flow's packets cross: the shortest paths through a topology.

use std::collections::{HashMap, VecDeque};

use xdc_proto::{Direction, Link, Topology};

/// Maximum number of cached entries in all trees.
const MAX_KEPT: usize = 4 << 20;

/// The start of a link's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Port {
    pub link: usize,
    /// True for a to b.
    pub forward: bool,
}

impl Port {
    /// A port by its neighbor's name, `NEIGHBOUR.N` for parallel link N.
    pub fn named(topology: &Topology, node: &str, peer: &str) -> Option<Self> {
        let wanted: *const Direction = topology.direction(node, peer)?;
        let ends = topology.links.iter().enumerate().flat_map(|(link, ends)| {
            let port = |forward| Port { link, forward };
            [(&ends.ab, port(true)), (&ends.ba, port(false))]
        });
        ends.into_iter()
            .find(|(direction, _)| std::ptr::eq(*direction, wanted))
            .map(|(_, port)| port)
    }

    pub fn direction(self, topology: &Topology) -> &Direction {
        let link = &topology.links[self.link];
        match self.forward {
            true => &link.ab,
            false => &link.ba,
        }
    }

    /// Name such as `s-r`.
    pub fn name(self, topology: &Topology) -> String {
        let Link { a, b, .. } = &topology.links[self.link];
        match self.forward {
            true => format!("{a}-{b}"),
            false => format!("{b}-{a}"),
        }
    }
}

/// A topology by indices.
pub(crate) struct Ways<'a> {
    topology: &'a Topology,
    by_name: HashMap<&'a str, usize>,
    /// Neighbor and port of each of a node's links, in link order.
    ports: Vec<Vec<(usize, Port)>>,
    trees: HashMap<usize, Tree>,
}

/// Shortest paths from one node to each node.
#[derive(Clone)]
struct Tree {
    hops: Vec<u32>,
    /// Number of shortest paths.
    ways: Vec<f64>,
    /// Last hop of the first path.
    last: Vec<Option<(usize, Port)>>,
}

const UNREACHED: u32 = u32::MAX;

impl<'a> Ways<'a> {
    pub fn new(topology: &'a Topology) -> Self {
        let names = topology.nodes.iter().enumerate();
        let by_name: HashMap<_, _> = names.map(|(i, node)| (node.name.as_str(), i)).collect();
        let mut ports = vec![Vec::new(); topology.nodes.len()];
        for (link, ends) in topology.links.iter().enumerate() {
            let node = |name: &str| by_name.get(name).copied();
            if let (Some(a), Some(b)) = (node(&ends.a), node(&ends.b)) {
                let port = |forward| Port { link, forward };
                ports[a].push((b, port(true)));
                ports[b].push((a, port(false)));
            }
        }
        Self { topology, by_name, ports, trees: HashMap::new() }
    }

    /// Whether all shortest paths are used, not only the first.
    fn is_multipath(&self) -> bool {
        self.topology.ecmp || self.topology.nodes.iter().any(|node| node.spray)
    }

    /// Share of the paths between two hosts that cross the port.
    pub fn share(&mut self, src: &str, dst: &str, port: Port) -> f64 {
        let ends = (self.by_name.get(src), self.by_name.get(dst));
        let (Some(&src), Some(&dst)) = ends else {
            return 0.0;
        };
        let link = &self.topology.links[port.link];
        let (from, to) = match port.forward {
            true => (&link.a, &link.b),
            false => (&link.b, &link.a),
        };
        let (from, to) = (self.by_name[from.as_str()], self.by_name[to.as_str()]);
        if !self.is_multipath() {
            return f64::from(u8::from(self.first_way(src, dst).contains(&port)));
        }
        let there = self.tree(src);
        let (all, length) = (there.ways[dst], there.hops[dst]);
        let (before, hops_before) = (there.ways[from], there.hops[from]);
        let back = self.tree(dst);
        let (after, hops_after) = (back.ways[to], back.hops[to]);
        let hops = hops_before.saturating_add(hops_after).saturating_add(1);
        match length != UNREACHED && hops == length {
            true => before * after / all,
            false => 0.0,
        }
    }

    /// Ports of the first shortest path, last one first.
    fn first_way(&mut self, src: usize, dst: usize) -> Vec<Port> {
        let tree = self.tree(src);
        let mut way = Vec::new();
        let mut here = dst;
        while let Some((before, port)) = tree.last[here] {
            way.push(port);
            here = before;
        }
        way
    }

    /// The slowest port of the first path between two hosts.
    pub fn slowest(&mut self, src: &str, dst: &str) -> Option<Port> {
        let (src, dst) = (*self.by_name.get(src)?, *self.by_name.get(dst)?);
        let topology = self.topology;
        let rate = |port: &Port| match port.direction(topology).rate_bps {
            0 => u64::MAX,
            bps => bps,
        };
        // At equal rates, prefer a port with a queue.
        let key = |port: &Port| (rate(port), port.direction(topology).queue.is_none());
        self.first_way(src, dst).into_iter().min_by_key(key)
    }

    fn tree(&mut self, from: usize) -> &Tree {
        if self.trees.len() * self.ports.len() > MAX_KEPT {
            self.trees.clear();
        }
        let (topology, ports) = (self.topology, &self.ports);
        self.trees.entry(from).or_insert_with(|| tree(topology, ports, from))
    }
}

/// Shortest paths; only routers forward.
fn tree(topology: &Topology, ports: &[Vec<(usize, Port)>], from: usize) -> Tree {
    let mut tree = Tree {
        hops: vec![UNREACHED; ports.len()],
        ways: vec![0.0; ports.len()],
        last: vec![None; ports.len()],
    };
    (tree.hops[from], tree.ways[from]) = (0, 1.0);
    let mut queue = VecDeque::from([from]);
    while let Some(here) = queue.pop_front() {
        if here != from && !topology.nodes[here].router {
            continue;
        }
        for &(peer, port) in &ports[here] {
            if tree.hops[peer] == UNREACHED {
                tree.hops[peer] = tree.hops[here] + 1;
                tree.last[peer] = Some((here, port));
                queue.push_back(peer);
            }
            if tree.hops[peer] == tree.hops[here] + 1 {
                tree.ways[peer] += tree.ways[here];
            }
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::network;

    #[test]
    fn each_parallel_link_is_a_path() {
        let mut topology = network(&[("a", "s"), ("s", "t"), ("s", "t"), ("t", "b"), ("c", "t")]);
        let second = Port::named(&topology, "s", "t.1").unwrap();
        assert_eq!((second.link, second.forward), (2, true));
        assert_eq!(second.name(&topology), "s-t");
        let share = |topology: &Topology, src, dst| Ways::new(topology).share(src, dst, second);
        // Routes use the first link.
        assert_eq!(share(&topology, "a", "b"), 0.0);
        topology.ecmp = true;
        assert_eq!(share(&topology, "a", "b"), 0.5);
        assert_eq!(share(&topology, "b", "a"), 0.0);
        assert_eq!(share(&topology, "c", "b"), 0.0);
        assert_eq!(share(&topology, "a", "nowhere"), 0.0);
        let first = Port::named(&topology, "a", "s").unwrap();
        assert_eq!(Ways::new(&topology).share("a", "b", first), 1.0);
    }

    #[test]
    fn the_slowest_port_is_on_the_path() {
        let mut topology = network(&[("a", "s"), ("s", "b"), ("s", "c")]);
        topology.links[1].ab.rate_bps /= 2;
        topology.links[2].ab.rate_bps /= 4;
        let slowest = Ways::new(&topology).slowest("a", "b").unwrap();
        assert_eq!(slowest.name(&topology), "s-b");
    }
}
