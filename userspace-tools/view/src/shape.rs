// SPDX-License-Identifier: GPL-2.0
//! A topology for drawing: equal nodes form one group.

use std::collections::{BTreeMap, HashMap, VecDeque};

use xdc_proto::{Direction, Topology};

/// Nodes of one kind and place: with equal links to equal neighbors.
pub struct Group<'a> {
    pub names: Vec<&'a str>,
    pub router: bool,
    /// Column, from left to right.
    pub column: usize,
}

impl Group<'_> {
    /// Such as `a1 ... a4`.
    pub fn label(&self) -> String {
        match &self.names[..] {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [first, .., last] => format!("{first} ... {last}"),
        }
    }
}

/// Links of one kind between two groups, given by index.
pub struct Cable<'a> {
    pub ends: (usize, usize),
    pub count: usize,
    pub ab: &'a Direction,
    pub ba: &'a Direction,
}

pub struct Shape<'a> {
    pub groups: Vec<Group<'a>>,
    pub cables: Vec<Cable<'a>>,
}

/// Properties of a direction that a drawing shows.
fn look(direction: &Direction) -> String {
    let Direction { rate_bps, delay_ns, queue, faults: _, policer } = direction;
    // Seeds of equal ports differ and are left out.
    let queue = queue.as_ref().map(|queue| (&queue.kind, &queue.words));
    format!("{rate_bps} {delay_ns} {queue:?} {policer:?}")
}

/// Maximum links visited by [`colors`]. A larger network is drawn with some different nodes as one.
const MOST_LOOKS: usize = 4 << 20;

/// A link as indices of its nodes and of its directions' looks.
struct Seen {
    ends: [usize; 2],
    looks: [usize; 2],
}

fn seen(topology: &Topology) -> Vec<Seen> {
    let nodes = topology.nodes.iter().enumerate();
    let index: HashMap<&str, usize> = nodes.map(|(n, node)| (node.name.as_str(), n)).collect();
    let mut known = HashMap::new();
    let mut number = |direction| {
        let next = known.len();
        *known.entry(look(direction)).or_insert(next)
    };
    let links = topology.links.iter().map(|link| Seen {
        ends: [&link.a, &link.b].map(|name| index[name.as_str()]),
        looks: [&link.ab, &link.ba].map(&mut number),
    });
    links.collect()
}

impl<'a> Shape<'a> {
    /// `receives` tells which hosts receive flows: other hosts are drawn on the left.
    pub fn new(topology: &'a Topology, receives: impl Fn(&str) -> bool) -> Self {
        let seen = seen(topology);
        let colors = colors(topology, &seen);
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (node, &color) in topology.nodes.iter().zip(&colors) {
            let group = *group_of.entry(color).or_insert_with(|| {
                groups.push(Group { names: Vec::new(), router: node.router, column: 0 });
                groups.len() - 1
            });
            groups[group].names.push(&node.name);
        }
        let mut cables: Vec<Cable> = Vec::new();
        let mut known: HashMap<_, usize> = HashMap::new();
        for (link, seen) in topology.links.iter().zip(&seen) {
            let [a, b] = seen.ends.map(|node| group_of[&colors[node]]);
            let ends = (a, b);
            let cable = *known.entry((ends, seen.looks)).or_insert_with(|| {
                cables.push(Cable { ends, count: 0, ab: &link.ab, ba: &link.ba });
                cables.len() - 1
            });
            cables[cable].count += 1;
        }
        let mut shape = Self { groups, cables };
        shape.place(receives);
        shape
    }

    /// Neighbors of each group, in the order of the cables.
    fn neighbours(&self) -> Vec<Vec<usize>> {
        let mut neighbours = vec![Vec::new(); self.groups.len()];
        for cable in &self.cables {
            let (a, b) = cable.ends;
            neighbours[a].push(b);
            if a != b {
                neighbours[b].push(a);
            }
        }
        neighbours
    }

    fn distances(&self, neighbours: &[Vec<usize>], from: usize) -> Vec<Option<usize>> {
        let mut far = vec![None; self.groups.len()];
        far[from] = Some(0);
        let mut queue = VecDeque::from([from]);
        while let Some(here) = queue.pop_front() {
            for &next in &neighbours[here] {
                if far[next].is_none() {
                    far[next] = far[here].map(|steps: usize| steps + 1);
                    queue.push_back(next);
                }
            }
        }
        far
    }

    /// Sets columns by distance from one end of the longest path.
    fn place(&mut self, receives: impl Fn(&str) -> bool) {
        let neighbours = self.neighbours();
        let reach = |group: &usize| {
            let far = self.distances(&neighbours, *group);
            let far = far.into_iter().flatten().max();
            // The first group wins a tie.
            (far, std::cmp::Reverse(*group))
        };
        let hosts = (0..self.groups.len()).filter(|&group| !self.groups[group].router);
        let Some(start) = hosts.max_by_key(reach) else {
            return;
        };
        let far = self.distances(&neighbours, start);
        for (group, distance) in far.iter().enumerate() {
            let switch = neighbours[group].first().copied();
            let beside =
                switch.is_some_and(|next| far[next] == Some(1)) && !self.groups[group].router;
            let sends = !self.groups[group].names.iter().any(|name| receives(name));
            let column = if beside && sends { 0 } else { distance.unwrap_or(0) };
            self.groups[group].column = column;
        }
    }

    /// Finds the cable with the longest delay and the groups on its near side; None unless each
    /// side is a network of its own.
    pub fn sites(&self) -> Option<(usize, Vec<bool>)> {
        let delay = |cable: &Cable| cable.ab.delay_ns.max(cable.ba.delay_ns);
        let (wan, _) = self
            .cables
            .iter()
            .enumerate()
            .filter(|(_, cable)| delay(cable) > 0)
            .max_by_key(|(_, cable)| delay(cable))?;
        let mut near = vec![false; self.groups.len()];
        let mut queue = vec![self.cables[wan].ends.0];
        while let Some(here) = queue.pop() {
            if std::mem::replace(&mut near[here], true) {
                continue;
            }
            for (number, cable) in self.cables.iter().enumerate() {
                match cable.ends {
                    _ if number == wan => {}
                    (a, b) if a == here => queue.push(b),
                    (a, b) if b == here => queue.push(a),
                    _ => {}
                }
            }
        }
        let has = |side: bool, router: bool| {
            let mut groups = self.groups.iter().zip(&near);
            groups.any(|(group, &is_near)| is_near == side && group.router == router)
        };
        let both = [true, false].map(|side| has(side, true) && has(side, false));
        (both == [true, true]).then_some((wan, near))
    }
}

/// Equal numbers for equal nodes: starts with names without digits, and splits by neighbors until
/// nothing changes.
fn colors(topology: &Topology, links: &[Seen]) -> Vec<usize> {
    fn numbered<K: Ord>(keys: Vec<K>) -> (Vec<usize>, usize) {
        let mut sorted: Vec<&K> = keys.iter().collect();
        sorted.sort();
        sorted.dedup();
        let count = sorted.len();
        let place = |key| sorted.binary_search(&key).unwrap_or(0);
        (keys.iter().map(place).collect(), count)
    }
    let names = topology.nodes.iter().map(|node| {
        let letters: String = node.name.chars().filter(|c| !c.is_ascii_digit()).collect();
        (node.router, letters)
    });
    let (mut colors, mut count) = numbered(names.collect());
    for _ in 0..MOST_LOOKS / links.len().max(1) {
        let mut around: Vec<Vec<(usize, [usize; 2])>> = vec![Vec::new(); colors.len()];
        for Seen { ends: [a, b], looks: [ab, ba] } in links {
            around[*a].push((colors[*b], [*ab, *ba]));
            around[*b].push((colors[*a], [*ba, *ab]));
        }
        for links in &mut around {
            links.sort();
        }
        let (finer, now) = numbered(colors.into_iter().zip(around).collect());
        colors = finer;
        if now == count {
            break;
        }
        count = now;
    }
    colors
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_scenario::plan::plan;

    fn labels(name: &str) -> (Vec<(usize, String)>, bool) {
        let home = xdc_base::testing::home();
        let scenario = xdc_scenario::load(Some(&home), name, &[]).unwrap().scenario;
        let plan = plan(&scenario, "cubic", 1, 1).unwrap();
        let xdc_proto::Job::Run(run) = plan.job else {
            panic!("no run");
        };
        let shape = Shape::new(&run.topology, |host| run.flows.iter().any(|flow| flow.dst == host));
        let placed = shape.groups.iter().map(|group| (group.column, group.label()));
        (placed.collect(), shape.sites().is_some())
    }

    #[test]
    fn equal_hosts_are_drawn_as_one() {
        let expected = [
            (0, "a1 ... a4"),
            (5, "b1 ... b4"),
            (5, "r"),
            (1, "tor-a"),
            (2, "border-a"),
            (3, "border-b"),
            (4, "tor-b"),
        ];
        let expected = expected.map(|(column, name)| (column, name.to_owned()));
        assert_eq!(labels("two-dc-1g"), (expected.to_vec(), true));
    }

    #[test]
    fn senders_of_one_switch_are_left_of_it() {
        let expected = [(0, "a1 ... a4"), (0, "b1 ... b4"), (2, "r"), (1, "s")];
        let expected = expected.map(|(column, name)| (column, name.to_owned()));
        assert_eq!(labels("uno-incast-mixed"), (expected.to_vec(), false));
    }

    #[test]
    fn a_fat_tree_is_a_chain_of_its_layers() {
        let (placed, two) = labels("fabric-two-dc");
        assert!(two);
        assert_eq!(placed.len(), 10, "{placed:?}");
    }
}
