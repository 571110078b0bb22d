// SPDX-License-Identifier: GPL-2.0
//! The figures of a run, as summary.json has them. docs/scenarios.md says what each is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use xdc_proto::{Cause, Dropped};

use crate::size::SizeClass;

/// All figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Congestion control, as the scenario calls it.
    pub cc: String,
    /// Completion of all flows.
    #[serde(flatten)]
    pub completion: Completion,
    /// The same of small, medium and large flows.
    pub sizes: BTreeMap<SizeClass, Completion>,
    /// Payload that arrived, Mbit/s.
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
    /// Completion times of all flows, ms.
    pub fct_ms: Fct,
    /// The slowest flow's completion time, ms.
    pub last_fct_ms: Option<f64>,
    /// (max - min) / mean.
    pub fct_spread: Option<f64>,
    /// Smoothed RTT over all samples, us.
    pub rtt_us: Rtt,
    /// Backlog of the first watched queue.
    pub queue_bytes: QueueBytes,
    /// None without a `warmup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// By all queues of the network; `queues` has those of the watched ones.
    pub drops: u64,
    /// Packets marked CE, by all queues.
    pub marks: u64,
    /// By links, as the scenario asked.
    pub losses: u64,
    /// Packets that were dropped anywhere, by cause.
    #[serde(default)]
    pub dropped: BTreeMap<Cause, u64>,
    /// Dropped packets by place and cause.
    #[serde(default)]
    pub dropped_at: Vec<Dropped>,
    /// Packets that all flows retransmitted.
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
    /// None where the guest did not tell.
    pub network: Option<Network>,
    /// Of the first watched port, where packets were captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Content>,
    /// By the groups of flows.
    pub groups: BTreeMap<String, Group>,
    /// The watched ones, in the order of the plan.
    pub queues: Vec<Queue>,
    /// Why the figures should not be believed; empty if they should.
    pub suspect: Vec<String>,
    /// Conditions that change the meaning of the figures.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Duration of the run by the guest's clock, s.
    pub virtual_s: f64,
    /// Duration of the run by this machine's clock, s.
    pub wall_s: f64,
    /// Of what the guest was told to do.
    pub plan_sha256: String,
}

/// A condition that changes the meaning of a run's figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Which condition.
    pub kind: NoteKind,
    /// One sentence: numbers, cause, consequence.
    pub text: String,
    /// Flows or ports that have the condition.
    pub count: usize,
}

/// The conditions that a run explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// Flows ran the Reno that their congestion control falls back to.
    FellBack,
    /// Flows that ask for ECN ran without it.
    WithoutEcn,
    /// No port on the way of flows with ECN marks.
    NeverMarks,
    /// A phantom queue has the module's default size.
    DefaultPhantom,
    /// A phantom queue is too small for one flow.
    SmallPhantom,
    /// Flows that a window, a buffer or the application limited.
    Limited,
    /// Flows that the run's end came before.
    NeverStarted,
    /// Traffic that is not in the utilisation of the watched port.
    Bypass,
    /// A full packet carries less than the MSS.
    Payload,
}

/// What the network is and what it took; `build_wall_s` is real time, as the host saw it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Hosts and routers.
    pub nodes: usize,
    /// Between two nodes each.
    pub links: usize,
    /// Routes of all nodes.
    pub routes: usize,
    /// Duration of its building by this machine's clock, s.
    pub build_wall_s: f64,
    /// The guest's memory for it, MiB.
    pub memory_mb: f64,
    /// The same over the nodes, KiB.
    pub memory_per_node_kb: f64,
}

/// Completion times, ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fct {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Highest.
    pub max: Option<f64>,
}

/// How circuits were used, in whole weeks after the warm-up; the rest is of the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circuits {
    /// Number of them.
    pub weeks: usize,
    /// Bytes that the circuit switch sent on over what the circuits carry, of the racks that used any.
    pub used: Option<f64>,
    /// Use of the first ten weeks.
    pub used_first: Option<f64>,
    /// Use of the last ten weeks.
    pub used_last: Option<f64>,
    /// Use of the week with the least.
    pub used_least: Option<f64>,
    /// Packets that the circuit switch sent on.
    pub packets: u64,
    /// Lost by the circuit switch.
    pub night: u64,
    /// Packets that the end of a day cut off.
    pub cut: u64,
    /// Packets to a rack that was not joined.
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

/// How values spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Mean.
    pub mean: f64,
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
}

/// In the unit in which the program wrote them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Number of values.
    pub n: usize,
    /// How they spread.
    #[serde(flatten)]
    pub spread: Spread,
}

/// Smoothed RTT, us.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rtt {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// What tlt did at all hosts: packets by mark, and what it took to keep one important packet in
/// flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tlt {
    /// Data packets.
    pub important_packets: u64,
    /// Data packets that were sent for the clock alone.
    pub clock_packets: u64,
    /// Data packets.
    pub unimportant_packets: u64,
    /// Retransmissions for the clock.
    pub forced_retransmits: u64,
    /// Connections that went on without it.
    pub fallbacks: u64,
    /// Packets with a mark that cannot be.
    pub bad_marks: u64,
    /// Of the clock: a byte of each packet, and a segment of each retransmission.
    pub clock_bytes: u64,
    /// Packets of all connections.
    #[serde(default)]
    pub packets: u64,
    /// Packets that TCP would not have sent, or not yet: bytes, and ACKs.
    #[serde(default)]
    pub extra_packets: u64,
}

/// Backlog of the bottleneck, or of one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueBytes {
    /// Mean.
    pub mean: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Highest.
    pub max: Option<f64>,
}

/// Of the first watched port, what came after the scenario's `warmup` and what before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Packets, before the warm-up ended.
    pub drops_before: u64,
    /// Packets, after it.
    pub drops: u64,
    /// After it.
    pub queue_bytes: QueueBytes,
}

/// Figures of the flows of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Completion of all of them.
    #[serde(flatten)]
    pub completion: Completion,
    /// By their sizes.
    pub sizes: BTreeMap<SizeClass, Completion>,
    /// Payload that arrived, Mbit/s.
    pub goodput_mbps: f64,
    /// The same in the steady half, Mbit/s.
    pub goodput_steady_mbps: Option<f64>,
    /// Payload of flows per time from the first start to the last, Mbit/s.
    pub offered_mbps: Option<f64>,
    /// The part of it that arrived, Mbit/s.
    pub carried_mbps: Option<f64>,
    /// Completion times, ms.
    pub fct_ms: Fct,
    /// Smoothed RTT, us.
    pub rtt_us: Rtt,
}

/// Figures of a watched queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// The scenario's name for it.
    pub name: String,
    /// Backlog.
    pub queue_bytes: QueueBytes,
    /// Highest phantom backlog; None without a phantom queue.
    pub phantom_max_bytes: Option<u64>,
    /// Packets.
    pub sent_packets: u64,
    /// Packets.
    pub drops: u64,
    /// Packets, with CE.
    pub marks: u64,
}

/// Of flows that have a size; those without one never complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Number of them.
    pub flows: usize,
    /// Planned to start in the warm-up: they are in no other figure.
    #[serde(default)]
    pub warmup: usize,
    /// The run's end cut them off. They are in no other figure.
    pub unfinished: usize,
    /// Flows that met a retransmission timeout.
    #[serde(default)]
    pub timed_out: usize,
    /// Timeouts of a thousand flows.
    #[serde(default)]
    pub timeouts_per_1000_flows: Option<f64>,
    /// Completion times, us.
    pub fct_us: Spread,
    /// FCT over the ideal of the path.
    pub slowdown: Spread,
    /// The same to the last byte's ACK at the sender.
    #[serde(default)]
    pub fct_acked_us: Spread,
    /// Over the ideal with the last ACK.
    #[serde(default)]
    pub slowdown_acked: Spread,
}

/// How values spread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(default)]
    pub p999: Option<f64>,
    /// Highest.
    pub max: Option<f64>,
}

/// What a reader wants to know that a capture has in it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// All packets.
    pub packets: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Out of the port with CE.
    pub marked: u64,
    /// Data that had passed before.
    pub resent: u64,
    /// Into the port, with ECE, SYNs apart.
    pub ece: u64,
    /// Packets out of the port with CWR, SYNs apart.
    pub cwr: u64,
    /// With SACK blocks.
    pub sacks: u64,
    /// SYNs that passed again.
    pub syns_resent: u64,
    /// Flows by what their SYN-ACK says.
    pub accecn_flows: u64,
    /// Flows with the ECN of RFC 3168.
    pub rfc3168_flows: u64,
    /// Flows without ECN.
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
