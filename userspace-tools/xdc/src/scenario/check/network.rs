// SPDX-License-Identifier: GPL-2.0
//! Nodes and links, and what names them.

use std::collections::{BTreeMap, BTreeSet};

use super::Mistakes;
use crate::error::{Error, Key, Result};
use crate::scenario::events::{changes, no_link, numbered};
use crate::scenario::fabric::Fabric;
use crate::scenario::limits::MAX_NODES;
use crate::scenario::plan::check_name;
use crate::scenario::{LinkSpec, Scenario, at, expand, no_node, pairs};

/// Names that flows and ports may use.
pub struct Network {
    /// Each node, and whether it is a router.
    nodes: BTreeMap<String, bool>,
    /// Each port by its node and its neighbor, and whether it has a queue.
    ports: BTreeMap<(String, String), bool>,
}

/// The network, if all of it is known.
pub fn check(scenario: &Scenario, m: &mut Mistakes) -> Option<Network> {
    let spec = &scenario.topology;
    let expanded = spec.fabric.as_ref().map(|it| it.expand()).transpose();
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
    /// Checks that a name is a node's; a router's only if `routers`.
    pub fn check(&self, name: &str, routers: bool) -> Result<()> {
        match self.nodes.get(name) {
            Some(true) if !routers => Err(Error::usage(format!(
                "'{name}' is a router, and only hosts send and receive"
            ))
            .hint("a name of 'hosts'")),
            Some(_) => Ok(()),
            None => Err(self.no_node(name)),
        }
    }

    fn no_node(&self, name: &str) -> Error {
        no_node(
            "it names ".to_owned(),
            name,
            self.nodes.keys().map(String::as_str),
        )
    }
}

fn nodes(scenario: &Scenario, fabric: &Fabric, m: &mut Mistakes) -> Network {
    let spec = &scenario.topology;
    let mut nodes = BTreeMap::new();
    for (own, is_router) in [(&fabric.hosts, false), (&fabric.routers, true)] {
        nodes.extend(own.iter().map(|name| (name.clone(), is_router)));
    }
    let named = [
        ("hosts", &spec.hosts, false),
        ("routers", &spec.routers, true),
    ];
    for (list, patterns, is_router) in named {
        for (n, pattern) in patterns.iter().enumerate() {
            let key = at!["topology", list, n];
            for name in m.note(key.clone(), expand(pattern)).unwrap_or_default() {
                if m.note(key.clone(), check_name(&name)).is_none() {
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
    Network {
        nodes,
        ports: BTreeMap::new(),
    }
}

fn links(scenario: &Scenario, fabric: &Fabric, network: &mut Network, m: &mut Mistakes) {
    let spec = &scenario.topology;
    let mut joined: BTreeMap<(String, String), usize> = BTreeMap::new();
    for link in &fabric.links {
        for (a, b) in pairs(&link.a, &link.b).unwrap_or_default() {
            network.join(&mut joined, link, &a, &b);
        }
    }
    for (n, link) in spec.links.iter().enumerate() {
        let key = |name: &str| at!["topology", "links", n, name];
        let table = at!["topology", "links", n];
        for (name, queue) in [
            ("queue", &link.queue),
            ("queue_ab", &link.queue_ab),
            ("queue_ba", &link.queue_ba),
        ] {
            if let Some(queue) = queue
                .as_ref()
                .filter(|name| !scenario.queues.contains_key(*name))
            {
                let err = Error::usage(format!("there is no queue '{queue}'"));
                m.add(key(name), err.hint(format!("[queues.{queue}]")));
            }
        }
        for (a, b) in m
            .note(table.clone(), pairs(&link.a, &link.b))
            .unwrap_or_default()
        {
            let ends = [("a", &a), ("b", &b)];
            let strange = ends
                .iter()
                .find(|(_, name)| !network.nodes.contains_key(*name));
            if let Some((end, name)) = strange {
                m.add(key(end), network.no_node(name));
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
                    "the second link between '{a}' and '{b}' carries nothing: without 'ecmp' routes take the first"
                );
                m.add(
                    table,
                    Error::usage(sentence).hint("ecmp = true in [topology]"),
                );
                break;
            }
        }
    }
}

impl Network {
    /// Adds a link, and counts those that are between the same nodes already.
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

/// A node without a link is a slip of the pen.
fn lonely(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    let linked: BTreeSet<&str> = network
        .ports
        .keys()
        .map(|(node, _)| node.as_str())
        .collect();
    let spec = &scenario.topology;
    for (list, patterns) in [("hosts", &spec.hosts), ("routers", &spec.routers)] {
        for (n, pattern) in patterns.iter().enumerate() {
            let names = expand(pattern).unwrap_or_default();
            if let Some(name) = names.iter().find(|name| !linked.contains(name.as_str())) {
                let err = Error::usage(format!("'{name}' has no link"));
                m.add(
                    at!["topology", list, n],
                    err.hint("[[topology.links]], or no such node"),
                );
            }
        }
    }
}

fn watched(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    for (n, spec) in scenario.watch.iter().enumerate() {
        let table = at!["watch", n];
        for (from, to) in m
            .note(table.clone(), pairs(&spec.from, &spec.to))
            .unwrap_or_default()
        {
            // A parallel link's end has its number behind the node's name.
            let neighbor = to.split_once('.').map_or(to.as_str(), |(name, _)| name);
            let ends = [("from", from.as_str()), ("to", neighbor)];
            let strange = ends
                .iter()
                .find(|(_, name)| !network.nodes.contains_key(*name));
            if let Some((end, name)) = strange {
                m.add(at!["watch", n, end], network.no_node(name));
                break;
            }
            match network.ports.get(&(from.clone(), to.clone())) {
                Some(true) => continue,
                Some(false) => {
                    let sentence =
                        format!("the link from '{from}' to '{to}' has no queue to be watched");
                    let err = Error::usage(sentence);
                    m.add(
                        table,
                        err.hint("a 'queue' in the link, or a port that has one"),
                    );
                }
                None => {
                    let sentence = format!("'{from}' has no link to '{to}' to be watched");
                    let near = network.ports.keys().find(|(node, _)| *node == from);
                    let near = near.map_or(String::new(), |(_, peer)| format!("to = \"{peer}\""));
                    m.add(table, Error::usage(sentence).hint(near));
                }
            }
            break;
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
        m.note(at!["event", n], changes(spec, 0, 1));
        let key = at!["event", n, "link"];
        for pattern in spec.link.names() {
            let expanded = m.note(key.clone(), expand(pattern)).unwrap_or_default();
            let strange = expanded.iter().find(|name| !names.contains(*name));
            if let Some(name) = strange {
                let known = names.iter().map(String::as_str).collect();
                m.add(key.clone(), no_link(name, known));
            }
        }
        if let Some(from) = spec
            .from
            .as_ref()
            .filter(|from| !network.nodes.contains_key(*from))
        {
            m.add(at!["event", n, "from"], network.no_node(from));
        }
    }
}

/// Hosts of `[host]` and of `[[run]]`.
fn named(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    let hosts = scenario.host.keys().map(|name| (at!["host", name], name));
    let runs = scenario.programs.iter().enumerate();
    let runs = runs.map(|(n, run)| (at!["run", n, "on"], &run.on));
    let all: Vec<(Key, &String)> = hosts.chain(runs).collect();
    for (key, pattern) in all {
        let names = m.note(key.clone(), expand(pattern)).unwrap_or_default();
        let checked = names.iter().try_for_each(|name| network.check(name, true));
        m.note(key, checked);
    }
}
