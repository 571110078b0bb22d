// SPDX-License-Identifier: GPL-2.0
//! Queues and the rates of their counters.

use std::time::Duration;

use serde::Serialize;
use xdc_netlink::phantom::Xstats;
use xdc_netlink::qdisc::QdiscState;

use super::{rate, rounded};

/// Activity of a queue between two samples, and its content; names are the keys of `xdc watch
/// --json`. A rate is None after a counter reset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Queue {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    pub dev: String,
    pub kind: String,
    pub handle: String,
    pub bits_per_s: Option<f64>,
    pub packets_per_s: Option<f64>,
    /// CE marks; None for other qdiscs than phantom.
    pub marks_per_s: Option<f64>,
    pub drops_per_s: Option<f64>,
    pub backlog_bytes: u64,
    pub backlog_packets: u64,
    /// None for other qdiscs than phantom.
    pub phantom_bytes: Option<u64>,
}

impl Queue {
    pub fn new(
        netns: Option<&str>,
        dev: &str,
        now: &QdiscState,
        before: Option<&QdiscState>,
        elapsed: Duration,
    ) -> Self {
        let grew = |counter: fn(&QdiscState) -> Option<u64>| {
            let per_s = rate(counter(now)?, counter(before?)?, elapsed)?;
            Some(rounded(per_s))
        };
        Self {
            netns: netns.map(str::to_owned),
            dev: dev.to_owned(),
            kind: now.kind.clone(),
            handle: handle_text(now),
            bits_per_s: grew(|state| Some(state.sent_bytes)).map(|bytes| rounded(bytes * 8.0)),
            packets_per_s: grew(|state| Some(state.sent_packets)),
            marks_per_s: grew(|state| Some(Xstats::of(state)?.marked())),
            drops_per_s: grew(|state| Some(state.drops)),
            backlog_bytes: now.backlog_bytes,
            backlog_packets: now.backlog_packets,
            phantom_bytes: Xstats::of(now).map(|xstats| xstats.phantom_bytes),
        }
    }
}

pub fn handle_text(state: &QdiscState) -> String {
    format!("{:x}:", state.handle.major)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use xdc_netlink::phantom;

    /// A phantom queue that has sent `sent` packets of 1,500 bytes, a third of them marked.
    pub fn state(sent: u64) -> QdiscState {
        let mut words = vec![0u64; Xstats::FIELDS.len()];
        (words[0], words[3]) = (7_000, sent / 3);
        QdiscState {
            kind: phantom::KIND.to_owned(),
            sent_packets: sent,
            sent_bytes: sent * 1_500,
            backlog_bytes: 3_000,
            backlog_packets: 2,
            xstats: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            ..QdiscState::default()
        }
    }

    #[test]
    fn rates_use_the_elapsed_time() {
        let elapsed = Duration::from_millis(500);
        let queue = Queue::new(None, "eth1", &state(600), Some(&state(300)), elapsed);
        assert_eq!(queue.bits_per_s, Some(7_200_000.0));
        assert_eq!(queue.packets_per_s, Some(600.0));
        assert_eq!(queue.marks_per_s, Some(200.0));
        assert_eq!(queue.drops_per_s, Some(0.0));
        assert_eq!(queue.phantom_bytes, Some(7_000));
    }

    #[test]
    fn a_replaced_queue_has_no_rates() {
        let second = Duration::from_secs(1);
        let queue = Queue::new(None, "eth1", &state(3), Some(&state(300)), second);
        assert_eq!((queue.bits_per_s, queue.marks_per_s), (None, None));
        let queue = Queue::new(None, "eth1", &state(3), None, second);
        assert_eq!(queue.packets_per_s, None);
    }

    #[test]
    fn other_qdiscs_have_no_phantom_values() {
        let mut fifo = state(600);
        fifo.kind = "pfifo".to_owned();
        let queue = Queue::new(None, "eth1", &fifo, Some(&fifo), Duration::from_secs(1));
        assert_eq!((queue.marks_per_s, queue.phantom_bytes), (None, None));
        assert_eq!(queue.packets_per_s, Some(0.0));
    }
}
