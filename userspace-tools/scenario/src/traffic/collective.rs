// SPDX-License-Identifier: GPL-2.0
//! Collectives: flows of which most start when others have arrived, in iterations.

use xdc_base::error::{Error, Result};
use xdc_proto::gates::Gate;
use xdc_proto::rng::Rng;

use super::spec::Pattern;
use super::{Block, Draft, Drafts, Waiting};

/// Default group of a collective's flows.
const GROUP: &str = "collective";

/// A flow of an iteration: sender, receiver, bytes, and flows that arrive at the sender before.
struct Step {
    from: usize,
    to: usize,
    bytes: u64,
    after: Vec<usize>,
}

impl Block<'_> {
    /// Flows of all iterations. The next iteration begins `period` after the end of an iteration.
    pub fn collective(&self, rng: &mut Rng) -> Result<Drafts> {
        let hosts = self.spec.hosts(self.budget)?;
        if hosts.len() < 2 {
            return Err(Error::usage("a collective of one host has no flows"));
        }
        let group = self.spec.group.as_deref().unwrap_or(GROUP);
        let pause_ns = self.scaled(self.spec.period.unwrap_or_default());
        let pattern = self.spec.pattern.unwrap_or_default();
        let mut all = Drafts::default();
        for iteration in 1..=self.spec.iterations.unwrap_or(1) {
            let data_bytes = self.sizes(false)?.draw(&self.scenario.cdfs, rng)?;
            let flows = pattern.flows(hosts.len());
            self.limit(flows.saturating_add(all.drafts.len()))?;
            let first = all.drafts.len();
            let before = first.saturating_sub(flows)..first;
            let mut begins = Vec::new();
            for (n, step) in pattern.steps(hosts.len(), data_bytes).into_iter().enumerate() {
                let (waits, start_ns) = match (step.after.is_empty(), iteration) {
                    (true, 1) => (Waiting::Block, 0),
                    (true, _) => (Waiting::Gate, pause_ns),
                    (false, _) => (Waiting::Gate, 0),
                };
                if step.after.is_empty() {
                    begins.push(first + n);
                } else {
                    all.gates.push(Gate {
                        needs: step.after.len(),
                        received: step.after.iter().map(|step| first + step).collect(),
                        acked: Vec::new(),
                        starts: vec![first + n],
                    });
                }
                all.drafts.push(Draft {
                    bytes: Some(step.bytes),
                    group: Some(format!("{group}-{iteration}")),
                    waits,
                    ..Draft::new(&hosts[step.from], &hosts[step.to], start_ns)
                });
            }
            if iteration > 1 {
                all.gates.push(Gate {
                    needs: flows,
                    received: before.collect(),
                    acked: Vec::new(),
                    starts: begins,
                });
            }
        }
        Ok(all)
    }
}

impl Pattern {
    /// Number of flows of an iteration.
    fn flows(self, hosts: usize) -> usize {
        match self {
            Self::AllToAll => hosts.saturating_mul(hosts - 1),
            Self::Ring => hosts.saturating_mul(2 * (hosts - 1)),
            Self::Tree => 2 * (hosts - 1),
        }
    }

    fn steps(self, hosts: usize, data_bytes: u64) -> Vec<Step> {
        match self {
            Self::AllToAll => all_to_all(hosts, data_bytes),
            Self::Ring => ring(hosts, data_bytes),
            Self::Tree => tree(hosts, data_bytes),
        }
    }
}

/// A part of each host's data goes to each other host.
fn all_to_all(hosts: usize, data_bytes: u64) -> Vec<Step> {
    let part = data_bytes.div_ceil(hosts as u64);
    // Host i begins with its next neighbor, so that receivers differ.
    let steps = (1..hosts).flat_map(|distance| (0..hosts).map(move |from| (from, distance)));
    let steps = steps.map(|(from, distance)| Step {
        from,
        to: (from + distance) % hosts,
        bytes: part,
        after: Vec::new(),
    });
    steps.collect()
}

/// All-reduce: in 2 (N - 1) rounds each host sends the part that it received in the round before.
fn ring(hosts: usize, data_bytes: u64) -> Vec<Step> {
    let part = data_bytes.div_ceil(hosts as u64);
    let rounds = (0..2 * (hosts - 1)).flat_map(|round| (0..hosts).map(move |from| (round, from)));
    let steps = rounds.map(|(round, from)| Step {
        from,
        to: (from + 1) % hosts,
        bytes: part,
        after: match round {
            0 => Vec::new(),
            _ => vec![(round - 1) * hosts + (from + hosts - 1) % hosts],
        },
    });
    steps.collect()
}

/// All-reduce in a binary tree: sums go up to the first host, and the result comes down.
fn tree(hosts: usize, data_bytes: u64) -> Vec<Step> {
    let children = |host: usize| (2 * host + 1..hosts).take(2);
    let step = |from, to, after| Step { from, to, bytes: data_bytes, after };
    // The flow from a host up has the number of the host less one.
    let up = (1..hosts).map(|host| {
        let after = children(host).map(|child| child - 1).collect();
        step(host, (host - 1) / 2, after)
    });
    let down = (1..hosts).map(|host| {
        let parent = (host - 1) / 2;
        let after = match parent {
            0 => children(0).map(|child| child - 1).collect(),
            _ => vec![hosts - 1 + parent - 1],
        };
        step(parent, host, after)
    });
    up.chain(down).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pattern: Pattern, hosts: usize) -> Vec<(usize, usize, u64, Vec<usize>)> {
        let steps = pattern.steps(hosts, 1_000);
        assert_eq!(steps.len(), pattern.flows(hosts));
        let fields = |step: Step| (step.from, step.to, step.bytes, step.after);
        steps.into_iter().map(fields).collect()
    }

    #[test]
    fn each_host_sends_a_part_to_each_other() {
        let steps = all(Pattern::AllToAll, 3);
        let ends: Vec<_> = steps.iter().map(|step| (step.0, step.1)).collect();
        assert_eq!(ends, [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)]);
        assert!(steps.iter().all(|step| step.2 == 334 && step.3.is_empty()));
    }

    #[test]
    fn a_host_of_the_ring_passes_on_the_part_that_it_received() {
        let steps = all(Pattern::Ring, 3);
        for (n, (from, to, bytes, after)) in steps.iter().enumerate() {
            assert_eq!((*to, *bytes), ((from + 1) % 3, 334));
            match after[..] {
                [] => assert!(n < 3),
                [before] => assert_eq!((steps[before].1, before / 3 + 1), (*from, n / 3)),
                _ => panic!("{after:?}"),
            }
        }
    }

    #[test]
    fn sums_go_up_the_tree_and_the_result_comes_down() {
        assert_eq!(
            all(Pattern::Tree, 5),
            [
                (1, 0, 1_000, vec![2, 3]),
                (2, 0, 1_000, vec![]),
                (3, 1, 1_000, vec![]),
                (4, 1, 1_000, vec![]),
                (0, 1, 1_000, vec![0, 1]),
                (0, 2, 1_000, vec![0, 1]),
                (1, 3, 1_000, vec![4]),
                (1, 4, 1_000, vec![4]),
            ]
        );
    }
}
