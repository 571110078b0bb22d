// SPDX-License-Identifier: GPL-2.0
//! Paths through a topology, as the guest routes packets, and their idle delays.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use xdc_base::error::{Error, Result};
use xdc_proto::{Direction, Link, Topology};

use crate::no_node;

/// Maximum length of a network device's name.
const DEVICE_NAME_BYTES: usize = 15;

/// Maximum entries of cached trees, four bytes each.
const MAX_KEPT: usize = 16 << 20;

/// Maximum ports visited for trees plus links walked, some nanoseconds each.
const MAX_STEPS: u64 = 192 << 20;

/// Fixed cost of a walk, in links.
const WALK_STEPS: usize = 8;

/// Maximum links of a path: the largest TTL of an IP packet.
const MAX_HOPS: usize = 255;

/// Maximum hosts tried as ends of the longest path, evenly chosen; fewer if the pairs would exceed
/// [`MAX_PAIRS`].
const ENDS: usize = 64;
const MAX_PAIRS: usize = 256 << 10;

/// A topology by indices.
pub struct Paths<'a> {
    topology: &'a Topology,
    routes: Rc<Routes>,
    has_accecn: bool,
    has_timestamps: bool,
}

/// Nodes and links as indices. Shortest-path trees are cached, so the cost depends on the number of
/// switches, not of flows.
pub struct Routes {
    by_name: HashMap<String, usize>,
    routers: Vec<bool>,
    /// Ports of each node, in the order of the links.
    ports: Vec<Vec<Port>>,
    /// Nodes at the ends of each link.
    ends: Vec<(usize, usize)>,
    trees: RefCell<HashMap<usize, Tree>>,
    steps: Cell<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Port {
    peer: usize,
    link: usize,
    /// Whether the link is walked from a to b.
    forward: bool,
}

/// For each node the link towards the root: twice its index, plus one if walked from a to b;
/// [`UNREACHED`] if there is no path.
type Tree = Vec<u32>;

const UNREACHED: u32 = u32::MAX;

impl Routes {
    pub fn new(topology: &Topology) -> Result<Rc<Self>> {
        Self::with_steps(topology, 0)
    }

    /// Returns `known` if it fits the topology, else replaces it; steps already walked count.
    pub fn reuse(known: &mut Option<Rc<Self>>, topology: &Topology) -> Result<Rc<Self>> {
        let routes = match known.take() {
            Some(routes) if routes.fits(topology) => routes,
            other => Self::with_steps(topology, other.map_or(0, |other| other.steps.get()))?,
        };
        Ok(Rc::clone(known.insert(routes)))
    }

    fn fits(&self, topology: &Topology) -> bool {
        let number = |name: &String| self.by_name.get(name).copied();
        let mut nodes = topology.nodes.iter().enumerate();
        let mut links = topology.links.iter().zip(&self.ends);
        topology.nodes.len() == self.routers.len()
            && topology.links.len() == self.ends.len()
            && nodes
                .all(|(n, node)| number(&node.name) == Some(n) && node.router == self.routers[n])
            && links.all(|(link, &(a, b))| number(&link.a) == Some(a) && number(&link.b) == Some(b))
    }

    fn with_steps(topology: &Topology, steps: u64) -> Result<Rc<Self>> {
        let mut by_name = HashMap::new();
        for (i, node) in topology.nodes.iter().enumerate() {
            if by_name.insert(node.name.clone(), i).is_some() {
                return Err(Error::usage(format!("two nodes are named '{}'", node.name)));
            }
        }
        let mut routes = Self {
            by_name,
            routers: topology.nodes.iter().map(|node| node.router).collect(),
            ports: vec![Vec::new(); topology.nodes.len()],
            ends: Vec::new(),
            trees: RefCell::default(),
            steps: Cell::new(steps),
        };
        let mut parallel: HashMap<(usize, usize), usize> = HashMap::new();
        for (link, ends) in topology.links.iter().enumerate() {
            let (a, b) = (routes.node(&ends.a)?, routes.node(&ends.b)?);
            routes.ends.push((a, b));
            for (node, peer, forward) in [(a, b, true), (b, a, false)] {
                let nth = parallel.entry((node, peer)).or_default();
                let device = device(&topology.nodes[peer].name, *nth);
                if device.len() > DEVICE_NAME_BYTES {
                    return Err(Error::usage(format!(
                        "the name '{device}' of a link's device is too long"
                    ))
                    .hint("shorter names for nodes with parallel links"));
                }
                *nth += 1;
                routes.ports[node].push(Port { peer, link, forward });
            }
        }
        Ok(Rc::new(routes))
    }

    fn node(&self, name: &str) -> Result<usize> {
        self.by_name.get(name).copied().ok_or_else(|| {
            no_node("a flow names ".to_owned(), name, self.by_name.keys().map(String::as_str))
        })
    }

    /// Links between two nodes, last one first, and whether each is crossed from a to b; None if no
    /// path exists.
    fn ports_between(&self, from: usize, to: usize) -> Result<Option<Vec<(usize, bool)>>> {
        self.check_steps()?;
        let mut walk = Vec::new();
        if from == to {
            return Ok(Some(walk));
        }
        let mut here = to;
        // A node with one link uses the tree of the router behind it.
        let (root, first) = match self.ports[from][..] {
            [port] if self.routers[port.peer] => (port.peer, Some(port)),
            _ => (from, None),
        };
        let mut trees = self.trees.borrow_mut();
        if !trees.contains_key(&root) {
            if (trees.len() + 1) * self.ports.len() > MAX_KEPT {
                trees.clear();
            }
            trees.insert(root, self.tree(root)?);
        }
        let tree = &trees[&root];
        while here != root {
            if tree[here] == UNREACHED {
                return Ok(None);
            }
            let (link, forward) = (tree[here] as usize / 2, tree[here] % 2 == 1);
            walk.push((link, forward));
            let (a, b) = self.ends[link];
            here = if forward { a } else { b };
            if walk.len() > MAX_HOPS {
                return Err(Error::usage(format!(
                    "a path has more than {MAX_HOPS} links, the limit of IP's TTL"
                ))
                .hint("fewer routers in a row"));
            }
        }
        walk.extend(first.map(|port| (port.link, port.forward)));
        let steps = self.steps.get() + (walk.len() + WALK_STEPS) as u64;
        self.steps.set(steps);
        Ok(Some(walk))
    }

    /// Fails once too many steps were walked; further walks fail too.
    pub fn check_steps(&self) -> Result<()> {
        match self.steps.get() > MAX_STEPS {
            false => Ok(()),
            true => Err(Error::usage("the paths between the hosts take too long to find").hint(
                "flows between fewer hosts, more hosts at a switch, fewer links or \
                     congestion controls",
            )),
        }
    }

    /// Tree of fewest hops through routers only; the earlier link wins a tie.
    fn tree(&self, from: usize) -> Result<Tree> {
        let mut steps = self.steps.get();
        let mut tree: Tree = vec![UNREACHED; self.ports.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(here) = queue.pop_front() {
            if here != from && !self.routers[here] {
                continue;
            }
            steps += self.ports[here].len() as u64;
            for port in &self.ports[here] {
                if port.peer != from && tree[port.peer] == UNREACHED {
                    tree[port.peer] = 2 * port.link as u32 + u32::from(port.forward);
                    queue.push_back(port.peer);
                }
            }
        }
        self.steps.set(steps);
        Ok(tree)
    }
}

impl<'a> Paths<'a> {
    pub fn new(topology: &'a Topology) -> Result<Self> {
        Ok(Self::along(topology, &Routes::new(topology)?))
    }

    /// Paths of a topology with the nodes and links of `routes`.
    pub fn along(topology: &'a Topology, routes: &Rc<Routes>) -> Self {
        let of_all = &topology.sysctls;
        let own = topology.nodes.iter().map(|node| &node.sysctls);
        let mut all = [of_all].into_iter().chain(own);
        Self {
            topology,
            routes: Rc::clone(routes),
            has_accecn: all.any(|sysctls| has_sysctl(sysctls, "net.ipv4.tcp_ecn", "3")),
            has_timestamps: !has_sysctl(of_all, "net.ipv4.tcp_timestamps", "0"),
        }
    }

    /// Returns whether a host negotiates AccECN.
    pub fn has_accecn(&self) -> bool {
        self.has_accecn
    }

    /// Returns whether packets have TCP timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.has_timestamps
    }

    /// RTT of a full packet and its ACK on an idle path.
    pub fn base_rtt_us(&self, src: &str, dst: &str) -> Result<f64> {
        let there_ns = self.idle_ns(src, dst, None)?;
        Ok(there_ns.saturating_add(self.ack_ns(src, dst)?) as f64 / 1e3)
    }

    /// Delay of an ACK on the way back, ns.
    pub fn ack_ns(&self, src: &str, dst: &str) -> Result<u64> {
        self.idle_ns(dst, src, Some(self.topology.ack_bytes()))
    }

    /// Delay of a packet of `bytes`, or of a full packet, ns.
    fn idle_ns(&self, from: &str, to: &str, bytes: Option<u32>) -> Result<u64> {
        Ok(self.idle_ns_of(&self.ports(from, to)?, bytes))
    }

    fn idle_ns_of(&self, ports: &[(usize, bool)], bytes: Option<u32>) -> u64 {
        let walk = ports.iter().map(|&port| self.link(port));
        walk.map(|(link, direction)| direction.idle_ns(bytes.unwrap_or(link.mtu)))
            .fold(0, u64::saturating_add)
    }

    fn link(&self, (number, forward): (usize, bool)) -> (&'a Link, &'a Direction) {
        let link = &self.topology.links[number];
        (link, if forward { &link.ab } else { &link.ba })
    }

    /// Links between two nodes, last one first, and whether each is crossed from a to b.
    pub fn ports(&self, from: &str, to: &str) -> Result<Vec<(usize, bool)>> {
        self.ports_between(self.routes.node(from)?, self.routes.node(to)?)
    }

    /// Rate at which a node sends on its first link; None without a link.
    pub fn rate_bps(&self, node: &str) -> Result<Option<u64>> {
        let ports = &self.routes.ports[self.routes.node(node)?];
        let rate = ports.first().map(|port| {
            let link = &self.topology.links[port.link];
            let direction = if port.forward { &link.ab } else { &link.ba };
            direction.rate_bps
        });
        Ok(rate)
    }

    /// Links between two nodes, last one first, and the direction of each.
    pub fn walk(&self, from: &str, to: &str) -> Result<Vec<(&'a Link, &'a Direction)>> {
        let ports = self.ports(from, to)?;
        Ok(ports.into_iter().map(|port| self.link(port)).collect())
    }

    /// Longest base RTT between hosts whose path crosses a port of each name. `names` names the
    /// ports of each link (a to b, b to a).
    pub fn longest_rtts_ns<'n>(&self, names: &[[Option<&'n str>; 2]]) -> HashMap<&'n str, u64> {
        let nodes = &self.topology.nodes;
        let hosts: Vec<_> = (0..nodes.len()).filter(|&n| !nodes[n].router).collect();
        let mut longest_ns: Vec<[Option<u64>; 2]> = vec![[None; 2]; names.len()];
        let mut cross = |src: usize, dst: usize| {
            // Hosts without a path exchange nothing.
            let both = (self.ports_between(src, dst), self.ports_between(dst, src));
            let (Ok(there), Ok(back)) = both else {
                return;
            };
            let ack = Some(self.topology.ack_bytes());
            for (there, back) in [(&there, &back), (&back, &there)] {
                let there_ns = self.idle_ns_of(there, None);
                let rtt_ns = there_ns.saturating_add(self.idle_ns_of(back, ack));
                for &(link, forward) in there {
                    let known = &mut longest_ns[link][usize::from(!forward)];
                    *known = Some(rtt_ns).max(*known);
                }
            }
        };
        let ends = ENDS.min(MAX_PAIRS / hosts.len().max(1));
        for &src in hosts.iter().step_by(hosts.len().div_ceil(ends.max(1)).max(1)) {
            for &dst in hosts.iter().filter(|&&dst| dst != src) {
                cross(src, dst);
            }
        }
        let mut by_name = HashMap::new();
        let ports = names.iter().flatten().zip(longest_ns.iter().flatten());
        for (name, rtt_ns) in ports.filter_map(|(name, rtt_ns)| name.zip(*rtt_ns)) {
            let known = by_name.entry(name).or_insert(0);
            *known = rtt_ns.max(*known);
        }
        by_name
    }

    fn ports_between(&self, from: usize, to: usize) -> Result<Vec<(usize, bool)>> {
        self.routes.ports_between(from, to)?.ok_or_else(|| {
            let name = |node: usize| &self.topology.nodes[node].name;
            Error::usage(format!("no path leads from '{}' to '{}'", name(from), name(to)))
        })
    }

    pub fn topology(&self) -> &'a Topology {
        self.topology
    }
}

fn has_sysctl(sysctls: &[(String, String)], name: &str, value: &str) -> bool {
    let mut sysctls = sysctls.iter();
    sysctls.any(|(own, set)| own == name && set == value)
}

/// Device name of the `nth` of parallel links to `peer`.
fn device(peer: &str, nth: usize) -> String {
    match nth {
        0 => peer.to_owned(),
        n => format!("{peer}.{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{plan_along, tests::topology_of};

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
    fn flows_of_one_switch_share_a_path_tree() {
        let topology = topology_of(TREE);
        let paths = Paths::new(&topology).unwrap();
        for i in 0..5000 {
            let (src, dst) = (i * 7 % 128, i * 11 % 128);
            let rtt = paths.base_rtt_us(&format!("a{src}"), &format!("b{dst}"));
            assert!(rtt.unwrap() > 1800.0);
        }
        // One tree per edge switch.
        assert_eq!(paths.routes.trees.borrow().len(), 2 * 32);
    }

    #[test]
    fn all_congestion_controls_share_the_step_limit() {
        let scenario = crate::parse("small", crate::testing::SMALL, &[]);
        let mut scenario = scenario.unwrap().scenario;
        scenario.ccs = ["cubic", "reno"].map(str::to_owned).to_vec();
        let mut known = None;
        let mut plan = |cc: &str| {
            plan_along(&mut known, &scenario, cc, 1, 1).unwrap();
            let routes = known.as_ref().unwrap();
            (routes.steps.get(), routes.trees.borrow().len())
        };
        let (one, both) = (plan("cubic"), plan("reno"));
        // Trees are shared, walks are counted again.
        assert!(one.0 < both.0 && both.0 < 2 * one.0 && one.1 == both.1);
        let routes = known.unwrap();
        routes.steps.set(MAX_STEPS + 1);
        assert!(plan_along(&mut Some(routes), &scenario, "cubic", 1, 1).is_err());
    }

    #[test]
    fn parallel_links_are_distinguished() {
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
