// SPDX-License-Identifier: GPL-2.0
//! The figures of a run, as summary.json has them. [`crate::measure::metric`] says what each is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::size::SizeClass;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub cc: String,
    #[serde(flatten)]
    pub completion: Completion,
    /// The same of small, medium and large flows.
    pub sizes: BTreeMap<SizeClass, Completion>,
    pub goodput_mbps: f64,
    /// Of the flow that started the latest, compared with its plan.
    pub start_late_us: f64,
    /// Goodput over what the bottleneck's rate leaves for payload.
    pub utilisation: Option<f64>,
    /// The same in the second half of the time in which all flows are there.
    pub utilisation_steady: Option<f64>,
    /// Mean of Jain's index over windows with at least two flows.
    pub jain_mean: Option<f64>,
    /// Jain's index of what each flow received in the steady half.
    pub jain_steady: Option<f64>,
    /// Mean of Jain's index in each phase of the traffic, from "1" on, where there are phases.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub jain_phases: BTreeMap<String, Option<f64>>,
    /// From then on the index is 0.95 or more in every window until the first flow ends.
    pub jain_converged_ms: Option<f64>,
    /// The longest time without a byte for a flow, in the steady half.
    #[serde(default)]
    pub longest_stall_us: Option<f64>,
    pub fct_ms: Fct,
    pub last_fct_ms: Option<f64>,
    /// (max - min) / mean.
    pub fct_spread: Option<f64>,
    pub rtt_us: Rtt,
    pub queue_bytes: QueueBytes,
    /// None without a `warmup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// By all queues of the network; `queues` has those of the watched ones.
    pub drops: u64,
    pub marks: u64,
    /// By links, as the scenario asked.
    pub losses: u64,
    pub retransmits: u64,
    /// Of the run's flows.
    pub timeouts: u64,
    /// `xdc_tcpinfo::COUNTERS` by name, of all flows together.
    #[serde(default)]
    pub tcp: BTreeMap<String, u64>,
    /// TCPTimeouts of all hosts.
    #[serde(default)]
    pub kernel_timeouts: Option<u64>,
    /// Green packets that phantom ports dropped.
    #[serde(default)]
    pub drops_green: u64,
    /// The highest backlog of any phantom port; null without one.
    #[serde(default)]
    pub ports_max_bytes: Option<u64>,
    /// Most red bytes in any phantom port; null without any.
    #[serde(default)]
    pub red_max_bytes: Option<u64>,
    /// Of the bytes that phantom ports accepted.
    #[serde(default)]
    pub green_share: Option<f64>,
    /// Of the packets that phantom ports with colours accepted.
    #[serde(default)]
    pub green_packet_share: Option<f64>,
    /// What the devices of tunnels counted, by the names of `ethtool -S`; with how many have sent data
    /// and how many of these were told of a block that could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unorc: Option<BTreeMap<String, u64>>,
    /// Of a rotor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuits: Option<Circuits>,
    /// What tlt counted at all hosts, where it is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlt: Option<Tlt>,
    /// Of numbers that programs wrote, by the name that the scenario gives them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Samples>,
    /// Measured over configured base RTT, less 1, of the path that is furthest off.
    pub link_rtt_error: Option<f64>,
    pub network: Option<Network>,
    /// Of the first watched port, where packets were captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Content>,
    pub groups: BTreeMap<String, Group>,
    pub queues: Vec<Queue>,
    /// Why the figures should not be believed; empty if they should.
    pub suspect: Vec<String>,
    pub virtual_s: f64,
    pub wall_s: f64,
    /// Of what the guest was told to do.
    pub plan_sha256: String,
}

/// What the network is and what it took; `build_wall_s` is real time, as the host saw it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    pub nodes: usize,
    pub links: usize,
    pub routes: usize,
    pub build_wall_s: f64,
    pub memory_mb: f64,
    pub memory_per_node_kb: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fct {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

/// How circuits were used, in whole weeks after the warm-up; the rest is of the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circuits {
    pub weeks: usize,
    /// Bytes that the circuit switch sent on over what the circuits carry, of the racks that used any.
    pub used: Option<f64>,
    /// The same of the first and of the last ten weeks, and of the week with the least.
    pub used_first: Option<f64>,
    pub used_last: Option<f64>,
    pub used_least: Option<f64>,
    pub packets: u64,
    /// Lost by the circuit switch.
    pub night: u64,
    pub cut: u64,
    pub misdirected: u64,
    /// Packets that a rack's qdisc cannot account for.
    pub unaccounted: i64,
    /// Congestion windows of endless flows as their day begins; with a sample at each start of a day.
    pub window_packets: Option<Shares>,
    /// What endless flows received in a week each; with a series of flows.
    pub flow_week_mbps: Option<Shares>,
    /// Counters of all racks' qdiscs.
    pub qdiscs: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    pub mean: f64,
    pub p10: f64,
    pub p50: f64,
    pub p90: f64,
}

/// In the unit in which the program wrote them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    pub n: usize,
    #[serde(flatten)]
    pub spread: Spread,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rtt {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// What tlt did at all hosts: packets by mark, and what it took to keep one important packet in
/// flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tlt {
    pub important_packets: u64,
    pub clock_packets: u64,
    pub unimportant_packets: u64,
    pub forced_retransmits: u64,
    pub fallbacks: u64,
    pub bad_marks: u64,
    /// Of the clock: a byte of each packet, and a segment of each retransmission.
    pub clock_bytes: u64,
    /// All that the connections sent, and of that what TCP would not have sent, or not yet: bytes, and
    /// ACKs.
    #[serde(default)]
    pub packets: u64,
    #[serde(default)]
    pub extra_packets: u64,
}

/// Backlog of the bottleneck, or of one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueBytes {
    pub mean: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

/// Of the first watched port, what came after the scenario's `warmup` and what before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    pub drops_before: u64,
    pub drops: u64,
    pub queue_bytes: QueueBytes,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    #[serde(flatten)]
    pub completion: Completion,
    pub sizes: BTreeMap<SizeClass, Completion>,
    pub goodput_mbps: f64,
    pub goodput_steady_mbps: Option<f64>,
    /// Payload of flows, and what of it arrived, per time from the first start to the last.
    pub offered_mbps: Option<f64>,
    pub carried_mbps: Option<f64>,
    pub fct_ms: Fct,
    pub rtt_us: Rtt,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub name: String,
    pub queue_bytes: QueueBytes,
    pub phantom_max_bytes: Option<u64>,
    pub sent_packets: u64,
    pub drops: u64,
    pub marks: u64,
}

/// Of flows that have a size; those without one never complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    pub flows: usize,
    /// Planned to start in the warm-up: they are in no other figure.
    #[serde(default)]
    pub warmup: usize,
    /// The run's end cut them off. They are in no other figure.
    pub unfinished: usize,
    /// Flows that met a retransmission timeout, and how many timeouts there were.
    #[serde(default)]
    pub timed_out: usize,
    #[serde(default)]
    pub timeouts_per_1000_flows: Option<f64>,
    pub fct_us: Spread,
    /// FCT over the ideal of the path.
    pub slowdown: Spread,
    /// The same to the last byte's ACK at the sender.
    #[serde(default)]
    pub fct_acked_us: Spread,
    #[serde(default)]
    pub slowdown_acked: Spread,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    #[serde(default)]
    pub p999: Option<f64>,
    pub max: Option<f64>,
}

/// What a reader wants to know that a capture has in it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub packets: u64,
    pub data_packets: u64,
    /// Out of the port with CE.
    pub marked: u64,
    /// Data that had passed before.
    pub resent: u64,
    /// Into the port, with ECE, SYNs apart.
    pub ece: u64,
    pub cwr: u64,
    /// With SACK blocks.
    pub sacks: u64,
    /// SYNs that passed again.
    pub syns_resent: u64,
    /// Flows by what their SYN-ACK says.
    pub accecn_flows: u64,
    pub rfc3168_flows: u64,
    pub plain_flows: u64,
}

impl Tlt {
    /// Of data packets.
    pub fn important_share(&self) -> f64 {
        let important = self.important_packets as f64 + self.clock_packets as f64;
        important / (important + self.unimportant_packets as f64).max(1.0)
    }

    /// Of all packets.
    pub fn extra_packet_share(&self) -> f64 {
        self.extra_packets as f64 / (self.packets as f64).max(1.0)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets, {} marked, {} resent, {} with ECE, {} with SACK",
            self.packets, self.marked, self.resent, self.ece, self.sacks
        )
    }
}
