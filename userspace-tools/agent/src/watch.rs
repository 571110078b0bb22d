// SPDX-License-Identifier: GPL-2.0
//! What is watched beside the flows: queues, and counters that should stand still.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use xdc_netlink::{
    Connection, phantom,
    qdisc::{self, QdiscState},
};
use xdc_proto::{Direction, Queue, QueueResult, QueueSample, Totals, WatchedQueue};

use crate::{layout::Port, network::Network};

/// Counters of /proc/net/netstat that say that memory, not the network, made a result.
const SUSPECTS: &[&str] = &[
    "TCPMemoryPressures",
    "PruneCalled",
    "RcvPruned",
    "TCPRcvQDrop",
];

/// What a link without a queue is.
const WIRE: &str = "netem";
/// Where the losses of [`crate::drops`] happen.
const INGRESS: &str = "clsact";

/// The egress of a port under observation.
pub struct Watch {
    connection: Connection,
    name: String,
    index: u32,
    kind: String,
}

impl Watch {
    /// Finds the queue.
    pub fn new(network: &Network, watched: &WatchedQueue) -> Result<Self> {
        let layout = &network.layout;
        let node = layout.node(&watched.node)?;
        let port = layout.port(node, &watched.peer)?;
        Ok(Self {
            connection: network.inside(node, || Ok(Connection::open()?))?,
            name: watched.name.clone(),
            index: port.index,
            kind: kind_of(port.egress.queue.as_ref()).to_owned(),
        })
    }

    fn state(&mut self) -> Result<QdiscState> {
        let found = qdisc::dump(&mut self.connection, self.index)?;
        let state = found.into_iter().find(|state| state.kind == self.kind);
        state.with_context(|| format!("the watched queue {} has no {}", self.name, self.kind))
    }

    /// The queue now.
    pub fn sample(&mut self) -> Result<QueueSample> {
        let state = self.state()?;
        let xstats = phantom::Xstats::of(&state);
        Ok(QueueSample {
            backlog_bytes: state.backlog_bytes,
            phantom_bytes: xstats.map(|x| x.phantom_bytes),
            drops: state.drops,
            marks: marks(&state),
        })
    }

    /// The queue's totals; `queue` is its index in the plan.
    pub fn result(&mut self, queue: usize) -> Result<QueueResult> {
        let state = self.state()?;
        let xstats = phantom::Xstats::of(&state);
        Ok(QueueResult {
            queue,
            sent_packets: state.sent_packets,
            sent_bytes: state.sent_bytes,
            drops: state.drops,
            marks: marks(&state),
            backlog_max_bytes: xstats.map(|x| x.backlog_max_bytes),
            phantom_max_bytes: xstats.map(|x| x.phantom_max_bytes),
        })
    }
}

/// The kind of the queue of a port.
fn kind_of(queue: Option<&Queue>) -> &str {
    match queue {
        Some(Queue::Phantom(_)) => phantom::KIND,
        Some(Queue::Tc(queue)) => &queue.kind,
        None => WIRE,
    }
}

/// Counts what all ports dropped and marked.
pub fn totals(network: &Network) -> Result<Totals> {
    let mut totals = Totals::default();
    for (i, node) in network.layout.nodes.iter().enumerate() {
        let counts = |egress: &Direction| egress.queue.is_some() || egress.faults.is_some();
        let of_port =
            |port: &Port| counts(port.egress) || counts(network.layout.remote(port).egress);
        if !node.ports.iter().any(of_port) {
            continue;
        }
        let states = network.inside(i, || Ok(qdisc::dump(&mut Connection::open()?, 0)?))?;
        for state in states {
            let port = node.ports.iter().find(|port| port.index == state.index);
            let Some(queue) = port.map(|port| port.egress.queue.as_ref()) else {
                continue;
            };
            if queue.is_some() && state.kind == kind_of(queue) {
                totals.drops += state.drops;
                totals.marks += marks(&state);
            } else if state.kind == WIRE || state.kind == INGRESS {
                totals.losses += state.drops;
            }
        }
    }
    Ok(totals)
}

fn marks(state: &QdiscState) -> u64 {
    match phantom::Xstats::of(state) {
        Some(xstats) => xstats.marked(),
        None => state.marks().unwrap_or_default(),
    }
}

/// [`SUSPECTS`] summed over nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Suspects(BTreeMap<&'static str, u64>);

impl Suspects {
    /// Reads them in the namespaces of `nodes`.
    pub fn read(network: &Network, nodes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut sum = Self::default();
        for node in nodes {
            let text = network.inside(node, || {
                fs::read_to_string("/proc/self/net/netstat").context("/proc/net/netstat")
            })?;
            sum.add(&text);
        }
        Ok(sum)
    }

    /// By how much each has grown since `before`; those that stood still are left out.
    pub fn since(&self, before: &Self) -> Vec<(&'static str, u64)> {
        self.0
            .iter()
            .map(|(name, now)| (*name, now - before.0.get(name).unwrap_or(&0).min(now)))
            .filter(|(_, delta)| *delta > 0)
            .collect()
    }

    /// Adds one netstat file: pairs of lines, names above values.
    fn add(&mut self, netstat: &str) {
        let lines: Vec<&str> = netstat.lines().collect();
        for pair in lines.chunks_exact(2) {
            let values = pair[1].split_whitespace();
            for (name, value) in pair[0].split_whitespace().zip(values) {
                if let Some(suspect) = SUSPECTS.iter().find(|suspect| **suspect == name) {
                    *self.0.entry(suspect).or_default() += value.parse().unwrap_or(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_and_compared() {
        let text = |pruned: u64| {
            format!(
                "TcpExt: SyncookiesSent PruneCalled TCPRcvQDrop\nTcpExt: 7 {pruned} 2\n\
                 IpExt: InNoRoutes\nIpExt: 9\n"
            )
        };
        let (mut before, mut after) = (Suspects::default(), Suspects::default());
        before.add(&text(1));
        after.add(&text(4));
        assert_eq!(after.since(&before), [("PruneCalled", 3)]);
    }
}
