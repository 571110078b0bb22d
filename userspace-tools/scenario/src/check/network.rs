// SPDX-License-Identifier: GPL-2.0
//! Checks nodes, links, and references to them.

use std::collections::{BTreeMap, BTreeSet};

use xdc_base::error::{Error, Key, Result};

use super::Mistakes;
use crate::budget::Budget;
use crate::events::{changes, no_link, numbered};
use crate::fabric::Fabric;
use crate::limits::{MAX_LINKS, MAX_NODES};
use crate::plan::check_name;
use crate::{LinkSpec, Scenario, at, expand, no_node, pairs};

/// Names that flows and ports may use.
pub struct Network {
    /// Nodes; true for a router.
    nodes: BTreeMap<String, bool>,
    /// Ports by node and neighbor; true if the port has a queue.
    ports: BTreeMap<(String, String), bool>,
}

/// Returns the network if all of it is valid.
pub fn check(scenario: &Scenario, m: &mut Mistakes) -> Option<Network> {
    let spec = &scenario.topology;
    let expanded = |_: &Budget| spec.fabric.as_ref().map(|it| it.expand()).transpose();
    let key = at!["topology", "fabric"];
    let fabric = m.note(key, expanded)?.unwrap_or_default();
    let mut network = nodes(scenario, &fabric, m);
    let nodes_are_known = m.is_clean(&["topology"]);
    if nodes_are_known {
        links(scenario, &fabric, &mut network, m);
    }
    if nodes_are_known && m.is_clean(&["topology"]) {
        lonely(scenario, &network, m);
        watched(scenario, &network, m);
        events(scenario, &network, m);
        named(scenario, &network, m);
    }
    nodes_are_known.then_some(network)
}

impl Network {
    /// Checks that a node exists; a router passes only if `routers`.
    pub fn check(&self, name: &str, routers: bool) -> Result<()> {
        match self.nodes.get(name) {
            Some(true) if !routers => {
                Err(Error::usage(format!("'{name}' is a router, and only hosts send and receive"))
                    .hint("a name of 'hosts'"))
            }
            Some(_) => Ok(()),
            None => Err(self.no_node(name)),
        }
    }

    fn no_node(&self, name: &str) -> Error {
        no_node("it names ".to_owned(), name, self.nodes.keys().map(String::as_str))
    }

    /// Checks that a port exists and has a queue.
    fn has_queue(&self, from: &str, to: &str) -> Result<()> {
        match self.ports.get(&(from.to_owned(), to.to_owned())) {
            Some(true) => Ok(()),
            Some(false) => {
                let sentence = format!("the link from '{from}' to '{to}' has no queue to watch");
                let err = Error::usage(sentence);
                Err(err.hint("a 'queue' in the link, or a port with a queue"))
            }
            None => {
                let sentence = format!("'{from}' has no link to '{to}' to watch");
                let near = self.ports.keys().find(|(node, _)| node == from);
                let near = near.map_or(String::new(), |(_, peer)| format!("to = \"{peer}\""));
                Err(Error::usage(sentence).hint(near))
            }
        }
    }
}

fn nodes(scenario: &Scenario, fabric: &Fabric, m: &mut Mistakes) -> Network {
    let spec = &scenario.topology;
    let mut nodes = BTreeMap::new();
    for (own, is_router) in [(&fabric.hosts, false), (&fabric.routers, true)] {
        nodes.extend(own.iter().map(|name| (name.clone(), is_router)));
    }
    let named = [("hosts", &spec.hosts, false), ("routers", &spec.routers, true)];
    for (list, patterns, is_router) in named {
        for (n, pattern) in patterns.iter().enumerate() {
            let key = at!["topology", list, n];
            let names = m.note(key.clone(), |budget| expand(budget, pattern));
            for name in names.unwrap_or_default() {
                if m.note(key.clone(), |_| check_name(&name)).is_none() {
                    break;
                }
                if nodes.len() == MAX_NODES {
                    m.add(key, Error::usage(format!("more than {MAX_NODES} nodes")));
                    break;
                }
                if nodes.insert(name.clone(), is_router).is_some() {
                    let err = Error::usage(format!("two nodes are named '{name}'"));
                    m.add(key, err.hint("each name once"));
                    break;
                }
            }
        }
    }
    Network { nodes, ports: BTreeMap::new() }
}

fn links(scenario: &Scenario, fabric: &Fabric, network: &mut Network, m: &mut Mistakes) {
    let spec = &scenario.topology;
    let mut joined: BTreeMap<(String, String), usize> = BTreeMap::new();
    for link in &fabric.links {
        network.join(&mut joined, link, &link.a, &link.b);
    }
    let mut count = fabric.links.len();
    for (n, link) in spec.links.iter().enumerate() {
        let key = |name: &str| at!["topology", "links", n, name];
        let table = at!["topology", "links", n];
        for (name, queue) in
            [("queue", &link.queue), ("queue_ab", &link.queue_ab), ("queue_ba", &link.queue_ba)]
        {
            if let Some(queue) = queue.as_ref().filter(|name| !scenario.queues.contains_key(*name))
            {
                let err = Error::usage(format!("there is no queue '{queue}'"));
                m.add(key(name), err.hint(format!("[queues.{queue}]")));
            }
        }
        let pairs = m.note(table.clone(), |budget| pairs(budget, &link.a, &link.b));
        let pairs = pairs.unwrap_or_default();
        count = count.saturating_add(pairs.len());
        if count > MAX_LINKS {
            m.add(table, Error::usage(format!("more than {MAX_LINKS} links")));
            return;
        }
        for (a, b) in pairs {
            let ends = [("a", &a), ("b", &b)];
            let mut checked = ends.into_iter();
            let all = checked
                .all(|(end, name)| m.note(key(end), |_| network.check(name, true)).is_some());
            if !all {
                break;
            }
            if a == b {
                let err = Error::usage(format!("the link leads from '{a}' to itself"));
                m.add(key("b"), err.hint("the name of another node"));
                break;
            }
            let nth = network.join(&mut joined, link, &a, &b);
            if nth > 0 && !spec.ecmp() {
                let sentence = format!(
                    "the second link between '{a}' and '{b}' carries no packets: without 'ecmp' routes take the first"
                );
                m.add(table, Error::usage(sentence).hint("ecmp = true in [topology]"));
                break;
            }
        }
    }
}

impl Network {
    /// Adds a link and counts parallel links.
    fn join(
        &mut self,
        joined: &mut BTreeMap<(String, String), usize>,
        link: &LinkSpec,
        a: &str,
        b: &str,
    ) -> usize {
        let mut nth = 0;
        for (from, to, queue) in [(a, b, &link.queue_ab), (b, a, &link.queue_ba)] {
            let count = joined.entry((from.to_owned(), to.to_owned())).or_default();
            nth = *count;
            *count += 1;
            let has_queue = queue.is_some() || link.queue.is_some();
            let port = (from.to_owned(), numbered(to, nth));
            self.ports.insert(port, has_queue);
        }
        nth
    }
}

/// A node without a link is probably a typo.
fn lonely(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    let linked: BTreeSet<&str> = network.ports.keys().map(|(node, _)| node.as_str()).collect();
    let spec = &scenario.topology;
    for (list, patterns) in [("hosts", &spec.hosts), ("routers", &spec.routers)] {
        for (n, pattern) in patterns.iter().enumerate() {
            let key = at!["topology", list, n];
            let names = m.note(key.clone(), |budget| expand(budget, pattern));
            let names = names.unwrap_or_default();
            if let Some(name) = names.iter().find(|name| !linked.contains(name.as_str())) {
                let err = Error::usage(format!("'{name}' has no link"));
                m.add(key, err.hint("a link in [[topology.links]], or no such node"));
            }
        }
    }
}

fn watched(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    for (n, spec) in scenario.watch.iter().enumerate() {
        let table = at!["watch", n];
        let pairs = m.note(table.clone(), |budget| pairs(budget, &spec.from, &spec.to));
        for (from, to) in pairs.unwrap_or_default() {
            // A parallel link's end has a number after the node's name.
            let neighbor = to.split_once('.').map_or(to.as_str(), |(name, _)| name);
            let ends = [("from", from.as_str()), ("to", neighbor)];
            let mut checked = ends.into_iter();
            let all = checked.all(|(end, name)| {
                let key = at!["watch", n, end];
                m.note(key, |_| network.check(name, true)).is_some()
            });
            if !all {
                break;
            }
            let checked = m.note(table.clone(), |_| network.has_queue(&from, &to));
            if checked.is_none() {
                break;
            }
        }
    }
}

fn events(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    let name = |(from, to): &(String, String)| format!("{from}-{to}");
    let names: BTreeSet<String> = match scenario.events.is_empty() {
        true => BTreeSet::new(),
        false => network.ports.keys().map(name).collect(),
    };
    for (n, spec) in scenario.events.iter().enumerate() {
        m.note(at!["event", n], |_| changes(spec, 0, 1));
        let key = at!["event", n, "link"];
        for pattern in spec.link.names() {
            let known = || names.iter().map(String::as_str).collect();
            m.note(key.clone(), |budget| {
                let expanded = expand(budget, pattern)?;
                let strange = expanded.iter().find(|name| !names.contains(*name));
                strange.map_or(Ok(()), |name| Err(no_link(name, known())))
            });
        }
        if let Some(from) = &spec.from {
            m.note(at!["event", n, "from"], |_| network.check(from, true));
        }
    }
}

/// Checks the hosts of `[host]` and `[[run]]`.
fn named(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    let hosts = scenario.host.keys().map(|name| (at!["host", name], name));
    let runs = scenario.programs.iter().enumerate();
    let runs = runs.map(|(n, run)| (at!["run", n, "on"], &run.on));
    let all: Vec<(Key, &String)> = hosts.chain(runs).collect();
    for (key, pattern) in all {
        m.note(key, |budget| {
            let names = expand(budget, pattern)?;
            names.iter().try_for_each(|name| network.check(name, true))
        });
    }
}
