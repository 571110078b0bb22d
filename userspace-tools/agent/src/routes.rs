// SPDX-License-Identifier: GPL-2.0
//! Shortest-path routes from each node to every host, aggregated to the fewest routes.

use std::{collections::VecDeque, net::Ipv4Addr};

use crate::layout::{Layout, Port};

/// A route of one node; the longest matching prefix wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// First address.
    pub network: Ipv4Addr,
    /// Prefix length, bits.
    pub prefix_len: u8,
    /// Indices in [`crate::layout::NodeLayout::ports`], equally good; empty = unreachable.
    pub ports: Vec<usize>,
    /// Whether it leads from a host to another datacenter and must be distinct.
    pub across: bool,
}

/// Next hops shared by hosts: [`Route::ports`], [`Route::across`].
type Way = (Vec<usize>, bool);

/// Routes of every node. With `ecmp` a route takes all shortest paths, else the one over the
/// earliest link. A node with one port has a default route only, unless it is a host with routes by
/// datacenter.
pub fn of(layout: &Layout, ecmp: bool) -> Vec<Vec<Route>> {
    let by_site = |node: usize| layout.by_site && !layout.nodes[node].router;
    let needs = |node: usize| layout.nodes[node].ports.len() > 1 || by_site(node);
    let tables = tables(layout, ecmp, needs);
    let everything = |node: usize| match layout.nodes[node].ports.len() {
        0 => Vec::new(),
        1 if !by_site(node) => vec![Route {
            network: Ipv4Addr::UNSPECIFIED,
            prefix_len: 0,
            ports: vec![0],
            across: false,
        }],
        _ => tables[node].aggregated(),
    };
    (0..layout.nodes.len()).map(everything).collect()
}

/// Tables of the nodes for which `needs` is true.
fn tables(layout: &Layout, ecmp: bool, needs: impl Fn(usize) -> bool) -> Vec<Table> {
    let mut tables: Vec<Table> = layout.nodes.iter().map(|_| Table::default()).collect();
    let by_site = |node: usize| layout.by_site && !layout.nodes[node].router;
    let mut ways = Vec::new();
    for destination in 0..layout.nodes.len() {
        let Some(address) = layout.nodes[destination].host_address() else {
            continue;
        };
        let hops = hops_to(layout, destination);
        for (i, node) in layout.nodes.iter().enumerate() {
            if i == destination || !needs(i) {
                continue;
            }
            let closer = |port: &Port| {
                let forwards = port.peer == destination || layout.nodes[port.peer].router;
                forwards && matches!((hops[port.peer], hops[i]), (Some(p), Some(n)) if p < n)
            };
            ways.clear();
            ways.extend((0..node.ports.len()).filter(|&port| closer(&node.ports[port])));
            if !ecmp {
                ways.truncate(1);
            }
            let across = by_site(i) && node.site != layout.nodes[destination].site;
            tables[i].add(address, &ways, across);
        }
    }
    tables
}

/// Hops from each node to `destination` through routers; None = unreachable.
fn hops_to(layout: &Layout, destination: usize) -> Vec<Option<u32>> {
    let mut hops = vec![None; layout.nodes.len()];
    hops[destination] = Some(0);
    let mut queue = VecDeque::from([(destination, 0)]);
    while let Some((node, distance)) = queue.pop_front() {
        if node != destination && !layout.nodes[node].router {
            continue;
        }
        for port in &layout.nodes[node].ports {
            if hops[port.peer].is_none() {
                hops[port.peer] = Some(distance + 1);
                queue.push_back((port.peer, distance + 1));
            }
        }
    }
    hops
}

/// One node's next hops for each host.
#[derive(Debug, Default)]
pub struct Table {
    /// Distinct next hops.
    ways: Vec<Way>,
    /// Address and index in `ways`, by ascending address.
    hosts: Vec<(u32, usize)>,
}

impl Table {
    /// Tables of the routers, empty for hosts.
    pub fn of_switches(layout: &Layout, ecmp: bool) -> Vec<Self> {
        tables(layout, ecmp, |node| layout.nodes[node].router)
    }

    /// Ports of each way.
    pub fn ways(&self) -> impl Iterator<Item = &[usize]> {
        self.ways.iter().map(|(ports, _)| ports.as_slice())
    }

    /// Address and index of the way of each host.
    pub fn hosts(&self) -> impl Iterator<Item = (u32, usize)> {
        self.hosts.iter().copied()
    }

    /// Addresses must come in ascending order.
    fn add(&mut self, address: Ipv4Addr, ports: &[usize], across: bool) {
        let mut known = self.ways.iter();
        let known = known.position(|way| way.0 == ports && way.1 == across);
        let index = known.unwrap_or_else(|| {
            self.ways.push((ports.to_vec(), across));
            self.ways.len() - 1
        });
        self.hosts.push((address.to_bits(), index));
    }

    /// The fewest routes that forward packets for each host as in the table; addresses without a
    /// host may go anywhere. (Draves et al., Constructing optimal IP routing tables, 1999.)
    fn aggregated(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        if !self.hosts.is_empty() {
            self.emit(&Trie::new(&self.hosts, 0), 0, 0, None, &mut routes);
        }
        routes
    }

    fn emit(
        &self,
        trie: &Trie,
        network: u32,
        prefix_len: u8,
        inherited: Option<usize>,
        routes: &mut Vec<Route>,
    ) {
        let Some(&first) = trie.candidates.first() else {
            return;
        };
        let mut chosen = inherited;
        if !inherited.is_some_and(|way| trie.candidates.contains(&way)) {
            chosen = Some(first);
            let (ports, across) = self.ways[first].clone();
            routes.push(Route { network: Ipv4Addr::from_bits(network), prefix_len, ports, across });
        }
        if let Some(halves) = &trie.halves {
            let upper = network | 1 << (31 - prefix_len);
            self.emit(&halves.0, network, prefix_len + 1, chosen, routes);
            self.emit(&halves.1, upper, prefix_len + 1, chosen, routes);
        }
    }
}

/// Hosts of a prefix.
struct Trie {
    /// Next hops for a route of the whole prefix that minimize the routes below, ascending; empty =
    /// no host, so any will do.
    candidates: Vec<usize>,
    /// None if one next hop serves all.
    halves: Option<Box<(Trie, Trie)>>,
}

impl Trie {
    fn new(hosts: &[(u32, usize)], prefix_len: u8) -> Self {
        let ways = hosts.iter().map(|&(_, way)| way);
        let first = ways.clone().next();
        if first.is_none_or(|first| ways.clone().all(|way| way == first)) {
            return Self { candidates: first.into_iter().collect(), halves: None };
        }
        let bit = 1 << (31 - prefix_len);
        let middle = hosts.partition_point(|&(address, _)| address & bit == 0);
        let lower = Self::new(&hosts[..middle], prefix_len + 1);
        let upper = Self::new(&hosts[middle..], prefix_len + 1);
        Self {
            candidates: join(&lower.candidates, &upper.candidates),
            halves: Some(Box::new((lower, upper))),
        }
    }
}

/// The intersection of two halves, or their union if the intersection is empty.
fn join(a: &[usize], b: &[usize]) -> Vec<usize> {
    if a.is_empty() || b.is_empty() {
        return [a, b].concat();
    }
    let mut joined: Vec<usize> = a.iter().copied().filter(|way| b.contains(way)).collect();
    if joined.is_empty() {
        joined = [a, b].concat();
        joined.sort_unstable();
        joined.dedup();
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::layout::tests::topology;

    fn longest(routes: &[Route], address: Ipv4Addr) -> Option<&Route> {
        let matches = |route: &&Route| {
            let bits = u32::from(route.prefix_len);
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            address.to_bits() & mask == route.network.to_bits()
        };
        routes.iter().filter(matches).max_by_key(|r| r.prefix_len)
    }

    fn ports_to(routes: &[Route], address: Ipv4Addr) -> Option<&[usize]> {
        longest(routes, address).map(|route| route.ports.as_slice())
    }

    /// A node's next hops to a host without aggregation: distances by relaxing every link until
    /// nothing changes.
    fn expected(layout: &Layout, node: usize, destination: usize) -> Vec<usize> {
        let mut hops = vec![u32::MAX; layout.nodes.len()];
        hops[destination] = 0;
        for _ in 0..layout.nodes.len() {
            for (i, n) in layout.nodes.iter().enumerate() {
                for port in &n.ports {
                    let through = port.peer == destination || layout.nodes[port.peer].router;
                    if through && hops[port.peer] != u32::MAX {
                        hops[i] = hops[i].min(hops[port.peer] + 1);
                    }
                }
            }
        }
        let ports = &layout.nodes[node].ports;
        (0..ports.len())
            .filter(|&port| {
                let peer = ports[port].peer;
                let through = peer == destination || layout.nodes[peer].router;
                through && hops[node] != u32::MAX && hops[peer] < hops[node]
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(4),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Hosts have up to two links, or none.
        #[test]
        fn aggregated_routes_match_the_full_table(
            routers in 1..9usize,
            of_hosts in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 2..22),
            between in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..18),
        ) {
            let hosts = of_hosts.len();
            let names: Vec<String> = (0..hosts + routers).map(|i| format!("n{i}")).collect();
            let nodes: Vec<_> = (0..names.len()).map(|i| (names[i].as_str(), i >= hosts)).collect();
            let router = |index: &prop::sample::Index| names[hosts + index.index(routers)].as_str();
            let mut links: Vec<_> = between.iter().map(|(a, b)| (router(a), router(b))).collect();
            links.retain(|(a, b)| a != b);
            for (host, uplinks) in of_hosts.iter().enumerate() {
                links.extend(uplinks.iter().map(|uplink| (names[host].as_str(), router(uplink))));
            }
            let topology = topology(&nodes, &links);
            let layout = Layout::new(&topology).unwrap();
            for (node, routes) in of(&layout, true).iter().enumerate() {
                if layout.nodes[node].ports.len() < 2 {
                    continue;
                }
                prop_assert!(routes.len() <= hosts);
                for destination in (0..hosts).filter(|destination| *destination != node) {
                    if let Some(address) = layout.nodes[destination].host_address() {
                        let want = expected(&layout, node, destination);
                        prop_assert_eq!(ports_to(routes, address), Some(&want[..]));
                    }
                }
            }
        }
    }

    #[test]
    fn the_shortest_path_wins_and_the_first_link_among_equals() {
        // a - r - s - b, and a longer path over t; two links between r and s.
        let topology = topology(
            &[("a", false), ("b", false), ("r", true), ("s", true), ("t", true)],
            &[("a", "r"), ("r", "t"), ("t", "s"), ("r", "s"), ("r", "s"), ("s", "b")],
        );
        let layout = Layout::new(&topology).unwrap();
        let host = |i: usize| layout.nodes[i].address().unwrap();
        for (ecmp, r_to_b) in [(false, &[2][..]), (true, &[2, 3])] {
            let routes = of(&layout, ecmp);
            assert_eq!(ports_to(&routes[0], host(1)), Some(&[0][..]));
            assert_eq!(ports_to(&routes[2], host(0)), Some(&[0][..]));
            assert_eq!(ports_to(&routes[2], host(1)), Some(r_to_b));
            assert_eq!(ports_to(&routes[4], host(0)), Some(&[0][..]));
            assert_eq!(ports_to(&routes[4], host(1)), Some(&[1][..]));
        }
    }

    #[test]
    fn routes_between_datacenters_are_flagged() {
        let names: Vec<String> = (0..8).map(|i| format!("h{i}")).collect();
        let mut nodes: Vec<(&str, bool)> =
            names.iter().map(|name| (name.as_str(), false)).collect();
        nodes.push(("r", true));
        let links: Vec<_> = names.iter().map(|name| (name.as_str(), "r")).collect();
        let mut topology = topology(&nodes, &links);
        for (i, node) in topology.nodes.iter_mut().enumerate() {
            node.site = u32::from(i >= 4);
        }
        assert_eq!(of(&Layout::new(&topology).unwrap(), true)[0].len(), 1);
        topology.congctl =
            Some(xdc_proto::Congctl { inside: "dctcp".to_owned(), across: "bbr".to_owned() });
        let layout = Layout::new(&topology).unwrap();
        let routes = of(&layout, true);
        let host = |i: usize| layout.nodes[i].address().unwrap();
        for (from, to) in [(0, 3), (0, 4), (0, 7), (6, 5), (6, 1)] {
            let route = longest(&routes[from], host(to)).unwrap();
            assert_eq!(route.ports, [0]);
            assert_eq!(route.across, (from < 4) != (to < 4), "{from} to {to}");
        }
        // One route per datacenter; the router's table is unaffected.
        assert_eq!(routes[0].len(), 2);
        assert_eq!(routes[8].len(), 8);
    }

    #[test]
    fn a_host_does_not_forward() {
        let topology = topology(
            &[("a", false), ("h", false), ("b", false), ("r", true)],
            &[("a", "h"), ("h", "b"), ("b", "r")],
        );
        let layout = Layout::new(&topology).unwrap();
        let routes = of(&layout, true);
        let a = layout.nodes[0].address().unwrap();
        assert_eq!(ports_to(&routes[2], a), Some(&[][..]));
    }

    #[test]
    fn a_tree_switch_has_one_route_per_host_below_and_one_up() {
        let hosts: Vec<String> = (0..8).map(|i| format!("h{i}")).collect();
        let mut nodes: Vec<(&str, bool)> = hosts.iter().map(|h| (h.as_str(), false)).collect();
        nodes.extend([("l0", true), ("l1", true), ("s0", true), ("s1", true)]);
        let mut links: Vec<(&str, &str)> = Vec::new();
        for (i, host) in hosts.iter().enumerate() {
            links.push((host, ["l0", "l1"][i / 4]));
        }
        links.extend([("l0", "s0"), ("l0", "s1"), ("l1", "s0"), ("l1", "s1")]);
        let topology = topology(&nodes, &links);
        let layout = Layout::new(&topology).unwrap();
        let routes = of(&layout, true);
        assert_eq!(routes[8].len(), 5, "{:?}", routes[8]);
        assert_eq!(routes[10].len(), 2, "{:?}", routes[10]);
    }
}
