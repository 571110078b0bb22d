// SPDX-License-Identifier: GPL-2.0
//! Flows of a file, with the names of their hosts.

use xdc_base::error::{Error, Result};

use super::file::Row;
use super::{Block, Draft, Drafts, Kind, Waiting, hpcc};
use crate::fabric::Shape;
use crate::limits;

impl Block<'_> {
    /// Flows of a file; errors have their line.
    pub fn listed(&self) -> Result<Drafts> {
        let name = self.spec.file.as_deref().unwrap_or_default();
        let file = self.scenario.files.get(name);
        let file = file.ok_or_else(|| Error::usage(format!("'{name}' was not read")))?;
        let hosts = match self.spec.kind {
            Kind::File => None,
            _ => Some(Numbered::new(self)?),
        };
        let mut gated = vec![false; file.rows.len()];
        for flow in file.gates.iter().flat_map(|gate| &gate.starts) {
            gated[*flow] = true;
        }
        let draft = |(n, row): (usize, &Row)| {
            let about = |err: Error| err.about(format!("{name}: line {}", row.line));
            let named = |host: &String| match &hosts {
                None => Ok(host.clone()),
                Some(hosts) => hosts.name(host).map_err(about),
            };
            let (src, dst) = (named(&row.source)?, named(&row.destination)?);
            self.paths.base_rtt_us(&src, &dst).map_err(about)?;
            if src == dst {
                let err = Error::usage(format!("'{src}' sends to itself"));
                return Err(about(err.hint("another destination")));
            }
            if row.bytes == 0 && self.scenario.duration.is_none() {
                let err =
                    Error::usage("a flow of size 0 never ends in a scenario without 'duration'");
                return Err(about(err.hint("duration = \"10s\"")));
            }
            for group in row.group.iter().chain(&row.after) {
                limits::group_name(group).map_err(about)?;
            }
            Ok(Draft {
                bytes: Some(row.bytes),
                group: row.group.clone(),
                waits: match (&row.after, gated[n]) {
                    (Some(group), _) => Waiting::Group(group.clone()),
                    (None, true) => Waiting::Gate,
                    (None, false) => Waiting::Block,
                },
                ..Draft::new(&src, &dst, self.scaled(row.start))
            })
        };
        let drafts = file.rows.iter().enumerate().map(draft);
        Ok(Drafts { drafts: drafts.collect::<Result<_>>()?, gates: file.gates.clone() })
    }
}

/// Hosts by the numbers in files of simulators.
struct Numbered {
    hosts: Vec<String>,
    /// The network's nodes have the numbers of HPCC's topology.
    by_node: bool,
}

impl Numbered {
    /// Hosts of the block, else of the network, in their order.
    fn new(block: &Block<'_>) -> Result<Self> {
        let fabric = block.scenario.topology.fabric.as_ref();
        let is_hpcc = fabric.is_some_and(|fabric| fabric.kind == Shape::Hpcc);
        if !block.spec.hosts.is_empty() {
            let hosts = block.spec.hosts(block.budget)?;
            let by_node = false;
            return Ok(Self { hosts, by_node });
        }
        let nodes = &block.paths.topology().nodes;
        let hosts = nodes.iter().filter(|node| !node.router);
        let hosts = hosts.map(|node| node.name.clone()).collect();
        let by_node = is_hpcc && block.spec.kind == Kind::Hpcc;
        Ok(Self { hosts, by_node })
    }

    fn name(&self, number: &str) -> Result<String> {
        let named = format!("{}{number}", hpcc::NODE);
        let host = match self.by_node {
            true => self.hosts.iter().find(|host| **host == named),
            false => number.parse().ok().and_then(|n: usize| self.hosts.get(n)),
        };
        host.cloned().ok_or_else(|| match self.by_node {
            true => Error::usage(format!("node {number} is not a host of the topology"))
                .hint("flows and topology of one experiment"),
            false => Error::usage(format!(
                "there is no host {number}: the last of {} hosts is {}",
                self.hosts.len(),
                self.hosts.len().saturating_sub(1)
            ))
            .hint("a network with more hosts, or 'hosts' in the order of the file's numbers"),
        })
    }
}
