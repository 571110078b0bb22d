// SPDX-License-Identifier: GPL-2.0
//! Figures of a run, as in summary.json; docs/scenarios.md defines them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use xdc_proto::{Cause, Dropped};

use crate::size::SizeClass;

/// All figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Congestion control, named as in the scenario.
    pub cc: String,
    /// Completion of all flows.
    #[serde(flatten)]
    pub completion: Completion,
    /// Completion by size class.
    pub sizes: BTreeMap<SizeClass, Completion>,
    /// Received payload, Mbit/s.
    pub goodput_mbps: f64,
    /// Largest start delay of a flow behind its plan, us.
    pub start_late_us: f64,
    /// Goodput over the bottleneck's payload capacity.
    pub utilisation: Option<f64>,
    /// Utilization in the second half of the time in which all flows are active.
    pub utilisation_steady: Option<f64>,
    /// Mean of Jain's index over windows with at least two flows.
    pub jain_mean: Option<f64>,
    /// Jain's index of bytes received per flow in the steady half.
    pub jain_steady: Option<f64>,
    /// Mean of Jain's index per phase of the traffic, from "1"; empty without phases.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub jain_phases: BTreeMap<String, Option<f64>>,
    /// Time from which the index is at least 0.95 in every window until the first flow ends, ms.
    pub jain_converged_ms: Option<f64>,
    /// Longest time without received bytes for a flow in the steady half, us.
    #[serde(default)]
    pub longest_stall_us: Option<f64>,
    /// Completion times of all flows, ms.
    pub fct_ms: Fct,
    /// The slowest flow's completion time, ms.
    pub last_fct_ms: Option<f64>,
    /// FCT spread, (max - min) / mean.
    pub fct_spread: Option<f64>,
    /// Smoothed RTT over all samples, us.
    pub rtt_us: Rtt,
    /// Backlog of the first watched queue, bytes.
    pub queue_bytes: QueueBytes,
    /// Figures after the `warmup`; None without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// Packets dropped by all queues; `queues` has the watched ones.
    pub drops: u64,
    /// Packets marked CE by all queues.
    pub marks: u64,
    /// Packets lost on links, as requested by the scenario.
    pub losses: u64,
    /// Dropped packets by cause.
    #[serde(default)]
    pub dropped: BTreeMap<Cause, u64>,
    /// Dropped packets by place and cause.
    #[serde(default)]
    pub dropped_at: Vec<Dropped>,
    /// Packets retransmitted by all flows.
    pub retransmits: u64,
    /// Retransmission timeouts of the run's flows.
    pub timeouts: u64,
    /// `xdc_tcpinfo::COUNTERS` by name, summed over all flows.
    #[serde(default)]
    pub tcp: BTreeMap<String, u64>,
    /// TCPTimeouts, summed over all hosts.
    #[serde(default)]
    pub kernel_timeouts: Option<u64>,
    /// Green packets dropped by phantom ports.
    #[serde(default)]
    pub drops_green: u64,
    /// Highest backlog of any phantom port, bytes; null without one.
    #[serde(default)]
    pub ports_max_bytes: Option<u64>,
    /// Most red bytes in any phantom port; null without one.
    #[serde(default)]
    pub red_max_bytes: Option<u64>,
    /// Green share of bytes accepted by phantom ports.
    #[serde(default)]
    pub green_share: Option<f64>,
    /// Green share of packets accepted by phantom ports with colors.
    #[serde(default)]
    pub green_packet_share: Option<f64>,
    /// Counters of tunnel devices, by `ethtool -S` name, with the number of sending devices and of those that
    /// received a NACK for an unreadable block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unorc: Option<BTreeMap<String, u64>>,
    /// Figures of a rotor's circuits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuits: Option<Circuits>,
    /// Counters of tlt over all hosts; None if not loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlt: Option<Tlt>,
    /// Statistics of numbers written by programs, by the scenario's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Samples>,
    /// Largest deviation of a path: measured over configured base RTT, minus 1.
    pub link_rtt_error: Option<f64>,
    /// Network size; None if the guest did not report it.
    pub network: Option<Network>,
    /// Content of the first watched port's capture, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Content>,
    /// Figures by group of flows.
    pub groups: BTreeMap<String, Group>,
    /// Watched queues, in plan order.
    pub queues: Vec<Queue>,
    /// Reasons to distrust the figures; empty if reliable.
    pub suspect: Vec<String>,
    /// Conditions that change the meaning of the figures.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Duration of the run by the guest's clock, s.
    pub virtual_s: f64,
    /// Duration of the run by this machine's clock, s.
    pub wall_s: f64,
    /// SHA-256 of the guest's plan.
    pub plan_sha256: String,
}

/// A condition that changes the meaning of a run's figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Kind of condition.
    pub kind: NoteKind,
    /// One sentence: numbers, cause, consequence.
    pub text: String,
    /// Flows or ports that have the condition.
    pub count: usize,
}

/// Kinds of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// Flows fell back to Reno.
    FellBack,
    /// Flows that ask for ECN ran without it.
    WithoutEcn,
    /// No port on the path of ECN flows marks.
    NeverMarks,
    /// A phantom queue has the module's default size.
    DefaultPhantom,
    /// A phantom queue is too small for a single flow.
    SmallPhantom,
    /// A window, a buffer or the application limited flows.
    Limited,
    /// Flows due after the end of the run.
    NeverStarted,
    /// Traffic excluded from the watched port's utilization.
    Bypass,
    /// A full packet carries less than the MSS.
    Payload,
}

/// Size of the network, and cost of building it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Hosts and routers.
    pub nodes: usize,
    /// Links between two nodes.
    pub links: usize,
    /// Routes of all nodes.
    pub routes: usize,
    /// Build time by this machine's clock, s.
    pub build_wall_s: f64,
    /// Guest memory used by the network, MiB.
    pub memory_mb: f64,
    /// Guest memory per node, KiB.
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

/// Circuit usage in whole weeks after the warm-up; the other figures are of the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circuits {
    /// Number of weeks.
    pub weeks: usize,
    /// Bytes forwarded by the circuit switch over circuit capacity, for racks that used any.
    pub used: Option<f64>,
    /// Usage of the first ten weeks.
    pub used_first: Option<f64>,
    /// Usage of the last ten weeks.
    pub used_last: Option<f64>,
    /// Usage of the least used week.
    pub used_least: Option<f64>,
    /// Packets forwarded by the circuit switch.
    pub packets: u64,
    /// Packets that arrived at night and were lost.
    pub night: u64,
    /// Packets cut off by the end of a day.
    pub cut: u64,
    /// Packets to an unconnected rack.
    pub misdirected: u64,
    /// Packets unaccounted for by a rack's qdisc.
    pub unaccounted: i64,
    /// Congestion windows of endless flows at the start of their days, packets; needs samples at those times.
    pub window_packets: Option<Shares>,
    /// Weekly goodput of each endless flow, Mbit/s; needs flow series.
    pub flow_week_mbps: Option<Shares>,
    /// Counters of all racks' qdiscs.
    pub qdiscs: BTreeMap<String, u64>,
}

/// Distribution of values.
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

/// Statistics in the unit written by the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Number of values.
    pub n: usize,
    /// Distribution.
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

/// Activity of tlt over all hosts: packets by mark, and the cost of keeping one important packet in flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tlt {
    /// Important data packets.
    pub important_packets: u64,
    /// Data packets sent only to keep the ACK clock.
    pub clock_packets: u64,
    /// Unimportant data packets.
    pub unimportant_packets: u64,
    /// Retransmissions to keep the ACK clock.
    pub forced_retransmits: u64,
    /// Connections that continued without tlt.
    pub fallbacks: u64,
    /// Packets with an invalid mark.
    pub bad_marks: u64,
    /// Bytes for the ACK clock: one per packet, and a segment per retransmission.
    pub clock_bytes: u64,
    /// Packets of all connections.
    #[serde(default)]
    pub packets: u64,
    /// Packets beyond TCP's own or ahead of time: clock bytes and ACKs.
    #[serde(default)]
    pub extra_packets: u64,
}

/// Backlog of the bottleneck, or of one queue, bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueBytes {
    /// Mean.
    pub mean: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Highest.
    pub max: Option<f64>,
}

/// Figures of the first watched port before and after the `warmup`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Packets dropped before the end of the warm-up.
    pub drops_before: u64,
    /// Packets dropped after the warm-up.
    pub drops: u64,
    /// Backlog after the warm-up, bytes.
    pub queue_bytes: QueueBytes,
}

/// Figures of a group of flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Completion of all flows.
    #[serde(flatten)]
    pub completion: Completion,
    /// Completion by size class.
    pub sizes: BTreeMap<SizeClass, Completion>,
    /// Received payload, Mbit/s.
    pub goodput_mbps: f64,
    /// Goodput in the steady half, Mbit/s.
    pub goodput_steady_mbps: Option<f64>,
    /// Offered payload from the first start to the last, Mbit/s.
    pub offered_mbps: Option<f64>,
    /// Payload received in that time, Mbit/s.
    pub carried_mbps: Option<f64>,
    /// Completion times, ms.
    pub fct_ms: Fct,
    /// First start to the last end, ms; None while a flow has not ended.
    #[serde(default)]
    pub span_ms: Option<f64>,
    /// Smoothed RTT, us.
    pub rtt_us: Rtt,
}

/// Figures of a watched queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Name in the scenario.
    pub name: String,
    /// Backlog, bytes.
    pub queue_bytes: QueueBytes,
    /// Highest phantom backlog, bytes; None without a phantom queue.
    pub phantom_max_bytes: Option<u64>,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked CE.
    pub marks: u64,
}

/// Completion of flows with a size; flows without one never complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Number of flows.
    pub flows: usize,
    /// Flows planned to start in the warm-up, excluded from the other figures.
    #[serde(default)]
    pub warmup: usize,
    /// Flows cut off by the end of the run, excluded from the other figures.
    pub unfinished: usize,
    /// Flows with at least one retransmission timeout.
    #[serde(default)]
    pub timed_out: usize,
    /// Timeouts per 1000 flows.
    #[serde(default)]
    pub timeouts_per_1000_flows: Option<f64>,
    /// Completion times, us.
    pub fct_us: Spread,
    /// FCT over the path's ideal FCT.
    pub slowdown: Spread,
    /// Time to the last byte's ACK at the sender, us.
    #[serde(default)]
    pub fct_acked_us: Spread,
    /// Time to the last ACK, over its ideal.
    #[serde(default)]
    pub slowdown_acked: Spread,
}

/// Distribution of values.
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

/// Summary of a capture.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// All packets.
    pub packets: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Packets out of the port with CE.
    pub marked: u64,
    /// Data packets that had passed before.
    pub resent: u64,
    /// Packets into the port with ECE, except SYNs.
    pub ece: u64,
    /// Packets out of the port with CWR, except SYNs.
    pub cwr: u64,
    /// Packets with SACK blocks.
    pub sacks: u64,
    /// Retransmitted SYNs.
    pub syns_resent: u64,
    /// Flows with AccECN, by their SYN-ACK.
    pub accecn_flows: u64,
    /// Flows with RFC 3168 ECN.
    pub rfc3168_flows: u64,
    /// Flows without ECN.
    pub plain_flows: u64,
}

impl Tlt {
    /// Important share of data packets.
    pub fn important_share(&self) -> f64 {
        let important = self.important_packets as f64 + self.clock_packets as f64;
        important / (important + self.unimportant_packets as f64).max(1.0)
    }

    /// Extra share of all packets.
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
