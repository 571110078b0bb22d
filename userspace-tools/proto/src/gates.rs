// SPDX-License-Identifier: GPL-2.0
//! Flows that start when others have ended.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Starts flows when enough others have ended. Flows are indices in [`RunPlan`](crate::RunPlan).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Number of ends after which the gate opens.
    pub needs: usize,
    /// Flows that count when their last byte has arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<usize>,
    /// Flows that count when the ACK of their last byte has arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acked: Vec<usize>,
    /// Flows that start then, each after its `start_ns`.
    pub starts: Vec<usize>,
}

/// Event at the end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The last byte arrived.
    Received,
    /// The ACK of the last byte arrived.
    Acked,
}

/// State of a run's gates.
#[derive(Debug, Default)]
pub struct Gates {
    /// Missing ends of each gate, and the flows that it starts.
    gates: Vec<(usize, Vec<usize>)>,
    /// Gates that count an event of a flow.
    waiting: HashMap<(usize, End), Vec<usize>>,
    /// Whether each flow waits for a gate.
    gated: Vec<bool>,
}

impl Gates {
    /// None if a gate names an unknown flow, or two gates start one flow.
    pub fn new(gates: &[Gate], flows: usize) -> Option<Self> {
        let mut all = Self { gated: vec![false; flows], ..Self::default() };
        for (number, gate) in gates.iter().enumerate() {
            for &flow in &gate.starts {
                let gated = all.gated.get_mut(flow)?;
                if std::mem::replace(gated, true) {
                    return None;
                }
            }
            for (ends, end) in [(&gate.received, End::Received), (&gate.acked, End::Acked)] {
                for &flow in ends {
                    if flow >= flows {
                        return None;
                    }
                    all.waiting.entry((flow, end)).or_default().push(number);
                }
            }
            all.gates.push((gate.needs, gate.starts.clone()));
        }
        Some(all)
    }

    /// Whether the flow waits for a gate.
    pub fn has(&self, flow: usize) -> bool {
        self.gated[flow]
    }

    /// Number of flows that wait for a gate.
    pub fn gated(&self) -> usize {
        self.gated.iter().filter(|gated| **gated).count()
    }

    /// Counts an event once, and returns the flows that it starts.
    pub fn count(&mut self, flow: usize, end: End) -> Vec<usize> {
        let mut starts = Vec::new();
        for gate in self.waiting.remove(&(flow, end)).unwrap_or_default() {
            let (missing, of_gate) = &mut self.gates[gate];
            *missing = missing.saturating_sub(1);
            if *missing == 0 {
                starts.append(of_gate);
            }
        }
        starts
    }

    /// First flow that never starts, if each started flow ends.
    pub fn stuck(mut self) -> Option<usize> {
        let flows = 0..self.gated.len();
        let mut started: Vec<bool> = self.gated.iter().map(|gated| !gated).collect();
        let mut next: Vec<usize> = flows.clone().filter(|&flow| started[flow]).collect();
        while let Some(flow) = next.pop() {
            for end in [End::Received, End::Acked] {
                for flow in self.count(flow, end) {
                    started[flow] = true;
                    next.push(flow);
                }
            }
        }
        flows.into_iter().find(|&flow| !started[flow])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(needs: usize, received: &[usize], acked: &[usize], starts: &[usize]) -> Gate {
        Gate { needs, received: received.to_vec(), acked: acked.to_vec(), starts: starts.to_vec() }
    }

    #[test]
    fn a_gate_opens_once_when_enough_flows_have_ended() {
        let all = [gate(2, &[0, 1], &[2], &[3, 4]), gate(1, &[3], &[3], &[5])];
        let mut gates = Gates::new(&all, 6).unwrap();
        assert_eq!((gates.has(2), gates.has(3), gates.gated()), (false, true, 3));
        assert!(gates.count(0, End::Received).is_empty());
        assert!(gates.count(0, End::Received).is_empty(), "counted twice");
        assert!(gates.count(1, End::Acked).is_empty(), "no such event");
        assert_eq!(gates.count(2, End::Acked), [3, 4]);
        assert!(gates.count(1, End::Received).is_empty(), "opened twice");
        assert_eq!(gates.count(3, End::Received), [5]);
        assert!(gates.count(3, End::Acked).is_empty());
    }

    #[test]
    fn a_circle_and_a_gate_without_enough_flows_are_stuck() {
        let stuck = |all: &[Gate]| Gates::new(all, 4).unwrap().stuck();
        assert_eq!(stuck(&[gate(1, &[0], &[], &[1]), gate(1, &[], &[1], &[2, 3])]), None);
        assert_eq!(stuck(&[gate(1, &[2], &[], &[1]), gate(1, &[1], &[], &[2])]), Some(1));
        assert_eq!(stuck(&[gate(3, &[0, 1], &[], &[2])]), Some(2));
    }

    #[test]
    fn unknown_flows_and_two_starts_of_a_flow_are_refused() {
        assert!(Gates::new(&[gate(1, &[0], &[], &[4])], 4).is_none());
        assert!(Gates::new(&[gate(1, &[4], &[], &[1])], 4).is_none());
        let twice = [gate(1, &[0], &[], &[1]), gate(1, &[2], &[], &[1])];
        assert!(Gates::new(&twice, 4).is_none());
    }
}
