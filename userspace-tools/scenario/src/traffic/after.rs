// SPDX-License-Identifier: GPL-2.0
//! Flows that start when others have ended: by `after`, or by the triggers of a file.

use std::collections::BTreeMap;

use xdc_base::error::{Error, Result};
use xdc_base::text::nearest;
use xdc_proto::Flow;
use xdc_proto::gates::{Gate, Gates};

use crate::budget::Budget;

/// Conditions of starts, collected with the flows.
#[derive(Default)]
pub struct Waits {
    /// Flows by the group that ends first.
    groups: BTreeMap<String, Vec<usize>>,
    gates: Vec<Gate>,
}

impl Waits {
    /// Starts a flow when the group has ended.
    pub fn after(&mut self, flow: usize, group: Option<&String>) {
        if let Some(group) = group {
            self.groups.entry(group.clone()).or_default().push(flow);
        }
    }

    /// Adds gates of a block; `numbers` are those of its flows.
    pub fn add(&mut self, budget: &Budget, gates: &[Gate], numbers: &[usize]) -> Result<()> {
        let all = |flows: &[usize]| flows.iter().map(|&flow| numbers[flow]).collect::<Vec<_>>();
        for gate in gates {
            let flows = gate.received.len() + gate.acked.len() + gate.starts.len();
            budget.charge("triggers", flows + 4, size_of::<usize>())?;
            self.gates.push(Gate {
                needs: gate.needs,
                received: all(&gate.received),
                acked: all(&gate.acked),
                starts: all(&gate.starts),
            });
        }
        Ok(())
    }

    /// Gates of the run, each of which opens.
    pub fn gates(mut self, budget: &Budget, flows: &[Flow]) -> Result<Vec<Gate>> {
        for (group, starts) in std::mem::take(&mut self.groups) {
            let members = flows.iter().enumerate();
            let members = members.filter(|(_, flow)| flow.group == group);
            let received: Vec<_> = members.map(|(n, _)| n).collect();
            budget.charge("flows behind 'after'", received.len() + starts.len(), 8)?;
            if received.is_empty() {
                return Err(unknown(&group, flows));
            }
            self.gates.push(Gate { needs: received.len(), received, acked: Vec::new(), starts });
        }
        let ends = |gate: &Gate| [gate.received.clone(), gate.acked.clone()].concat();
        let mut ends = self.gates.iter().flat_map(ends);
        if let Some(n) = ends.find(|&n| flows[n].bytes == 0) {
            return Err(Error::usage(format!(
                "the flow from '{}' to '{}' never ends, but others start after it",
                flows[n].src, flows[n].dst
            ))
            .hint("a size for each flow before others"));
        }
        let of_starts = self.gates.iter().flat_map(|gate| &gate.starts);
        let of_acks = self.gates.iter().flat_map(|gate| &gate.acked);
        if let Some(&n) = of_starts.chain(of_acks).find(|&&n| flows[n].persistent) {
            return Err(Error::usage(format!(
                "the flow from '{}' to '{}' has a trigger, which excludes 'persistent'",
                flows[n].src, flows[n].dst
            ))
            .hint("no 'persistent' in blocks with triggers"));
        }
        let gates = Gates::new(&self.gates, flows.len());
        let gates =
            gates.ok_or_else(|| Error::failure("internal error: two gates start a flow"))?;
        match gates.stuck() {
            None => Ok(self.gates),
            Some(n) => Err(Error::usage(format!(
                "the flow from '{}' to '{}' in group '{}' never starts: it waits for its own end",
                flows[n].src, flows[n].dst, flows[n].group
            ))
            .hint("groups and triggers without a circle")),
        }
    }
}

fn unknown(group: &str, flows: &[Flow]) -> Error {
    let mut known: Vec<_> = flows.iter().map(|flow| flow.group.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    let err = Error::usage(format!("after = '{group}': no flow is in this group"));
    match nearest(group, &known) {
        Some(near) => err.hint(format!("'{near}'")),
        None => err.hint(known.join(", ")),
    }
}
