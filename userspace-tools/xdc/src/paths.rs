// SPDX-License-Identifier: GPL-2.0
//! Ways through a topology, as the guest's routes take them, and how long an idle one takes.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use xdc_proto::{ACK_BYTES, Direction, Link, Topology};

use crate::error::{Error, Result};

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
        for (link, ends) in topology.links.iter().enumerate() {
            let (a, b) = (paths.node(&ends.a)?, paths.node(&ends.b)?);
            for (node, peer, forward) in [(a, b, true), (b, a, false)] {
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
            Error::usage(format!("'{name}' is no node")).hint("add it to 'hosts' or 'routers'")
        })
    }

    /// RTT of an otherwise empty path for a full packet and its ACK, as the topology has it.
    pub fn base_rtt_us(&self, src: &str, dst: &str) -> Result<f64> {
        let idle_ns = |from, to, bytes: Option<u32>| -> Result<u64> {
            let walk = self.walk(from, to)?.into_iter();
            Ok(walk
                .map(|(link, direction)| direction.idle_ns(bytes.unwrap_or(link.mtu)))
                .sum())
        };
        let rtt_ns = idle_ns(src, dst, None)? + idle_ns(dst, src, Some(ACK_BYTES))?;
        Ok(rtt_ns as f64 / 1e3)
    }

    /// The links from one node to another, the last one first, and the direction of each.
    pub fn walk(&self, from: &str, to: &str) -> Result<Vec<(&'a Link, &'a Direction)>> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let mut trees = self.trees.borrow_mut();
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
            let link = &self.topology.links[port.link];
            walk.push((link, if port.forward { &link.ab } else { &link.ba }));
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
