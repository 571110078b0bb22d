// SPDX-License-Identifier: GPL-2.0
//! A topology as a drawing has it: nodes that are alike stand for one another.

use std::collections::{BTreeMap, VecDeque};

use xdc_proto::{Direction, Topology};

/// Nodes of one kind at one place: with equal links to equal neighbours.
pub struct Group<'a> {
    pub names: Vec<&'a str>,
    pub router: bool,
    /// From left to right.
    pub column: usize,
}

impl Group<'_> {
    /// `a1 ... a4`
    pub fn label(&self) -> String {
        match &self.names[..] {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [first, .., last] => format!("{first} ... {last}"),
        }
    }
}

/// Links of one kind between two groups, which are indices.
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

/// What a drawing shows of a direction.
fn look(direction: &Direction) -> String {
    let Direction {
        rate_bps,
        delay_ns,
        queue,
        faults: _,
    } = direction;
    // Random numbers of equal ports start at different places.
    let queue = match queue {
        Some(xdc_proto::Queue::Phantom(port)) => {
            format!("{:?}", (port.limit_bytes, port.phantom_bytes))
        }
        other => format!("{other:?}"),
    };
    format!("{rate_bps} {delay_ns} {queue}")
}

impl<'a> Shape<'a> {
    /// `receives` says which hosts any flow goes to: those that only send are drawn on the left.
    pub fn new(topology: &'a Topology, receives: impl Fn(&str) -> bool) -> Self {
        let index: BTreeMap<&str, usize> = topology
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| (node.name.as_str(), number))
            .collect();
        let colors = colors(topology, &index);
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (node, &color) in topology.nodes.iter().zip(&colors) {
            let group = *group_of.entry(color).or_insert_with(|| {
                groups.push(Group {
                    names: Vec::new(),
                    router: node.router,
                    column: 0,
                });
                groups.len() - 1
            });
            groups[group].names.push(&node.name);
        }
        let mut cables: Vec<Cable> = Vec::new();
        let mut known: BTreeMap<(usize, usize, String, String), usize> = BTreeMap::new();
        for link in &topology.links {
            let group = |name: &String| group_of[&colors[index[name.as_str()]]];
            let ends = (group(&link.a), group(&link.b));
            let key = (ends.0, ends.1, look(&link.ab), look(&link.ba));
            let cable = *known.entry(key).or_insert_with(|| {
                cables.push(Cable {
                    ends,
                    count: 0,
                    ab: &link.ab,
                    ba: &link.ba,
                });
                cables.len() - 1
            });
            cables[cable].count += 1;
        }
        let mut shape = Self { groups, cables };
        shape.place(receives);
        shape
    }

    fn neighbours(&self, group: usize) -> impl Iterator<Item = usize> {
        self.cables
            .iter()
            .filter_map(move |cable| match cable.ends {
                (a, b) if a == group => Some(b),
                (a, b) if b == group => Some(a),
                _ => None,
            })
    }

    fn distances(&self, from: usize) -> Vec<Option<usize>> {
        let mut far = vec![None; self.groups.len()];
        far[from] = Some(0);
        let mut queue = VecDeque::from([from]);
        while let Some(here) = queue.pop_front() {
            for next in self.neighbours(here) {
                if far[next].is_none() {
                    far[next] = far[here].map(|steps: usize| steps + 1);
                    queue.push_back(next);
                }
            }
        }
        far
    }

    /// Columns by the distance from one end of the longest path.
    fn place(&mut self, receives: impl Fn(&str) -> bool) {
        let reach = |group: &usize| {
            let far = self.distances(*group).into_iter().flatten().max();
            // The first of those that reach equally far.
            (far, std::cmp::Reverse(*group))
        };
        let hosts = (0..self.groups.len()).filter(|&group| !self.groups[group].router);
        let Some(start) = hosts.max_by_key(reach) else {
            return;
        };
        let far = self.distances(start);
        for (group, distance) in far.iter().enumerate() {
            let switch = self.neighbours(group).next();
            let beside =
                switch.is_some_and(|next| far[next] == Some(1)) && !self.groups[group].router;
            let sends = !self.groups[group].names.iter().any(|name| receives(name));
            let column = if beside && sends {
                0
            } else {
                distance.unwrap_or(0)
            };
            self.groups[group].column = column;
        }
    }

    /// The groups on each side of the cable with the longest delay, where each side is a network
    /// of its own; its number, and whether a group is on the near side.
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

/// Equal for nodes that are alike: those of one name but for its digits, told apart by their
/// neighbours until that tells no more apart.
fn colors(topology: &Topology, index: &BTreeMap<&str, usize>) -> Vec<usize> {
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
    loop {
        let mut around: Vec<Vec<(usize, String, String)>> = vec![Vec::new(); colors.len()];
        for link in &topology.links {
            let (a, b) = (index[link.a.as_str()], index[link.b.as_str()]);
            around[a].push((colors[b], look(&link.ab), look(&link.ba)));
            around[b].push((colors[a], look(&link.ba), look(&link.ab)));
        }
        for links in &mut around {
            links.sort();
        }
        let (finer, now) = numbered(colors.into_iter().zip(around).collect());
        colors = finer;
        if now == count {
            return colors;
        }
        count = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use crate::scenario;
    use crate::scenario::plan::plan;

    fn labels(name: &str) -> (Vec<(usize, String)>, bool) {
        let home = Home::find().unwrap();
        let scenario = scenario::load(Some(&home), name, &[]).unwrap().scenario;
        let plan = plan(&scenario, "cubic", 1, 1).unwrap();
        let xdc_proto::Job::Run(run) = plan.job else {
            panic!("no run");
        };
        let shape = Shape::new(&run.topology, |host| {
            run.flows.iter().any(|flow| flow.dst == host)
        });
        let placed = shape
            .groups
            .iter()
            .map(|group| (group.column, group.label()));
        (placed.collect(), shape.sites().is_some())
    }

    #[test]
    fn alike_hosts_are_one_and_two_datacenters_are_two() {
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
