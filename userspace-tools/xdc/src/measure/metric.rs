// SPDX-License-Identifier: GPL-2.0
//! Metrics of a run: one table of names, units, meanings and accessors.
//!
//! A [`Metric`] is a name validated against the table when its TOML or command line is read. Values
//! are those of the scenario's network, since records are unscaled.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use xdc_measure::run::{
    Circuits, Completion, Content, Group, Network, Queue, Run, Samples, Settled, Tlt,
};
use xdc_measure::size::SizeClass;
use xdc_proto::Cause;
use xdc_tcpinfo::{COUNTERS, Counter, Of};

use crate::text::nearest;
use crate::units::text_schema;

/// A number defined for all runs, or for all runs of some kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    name: String,
    place: Place,
}

text_schema!(
    Metric,
    "Metric",
    "string",
    "^[a-zA-Z0-9_.+ -]+$",
    "The name of a metric, of the table in docs/scenarios.md: goodput_mbps, groups.inter.fct_ms.p99."
);

/// Location of the value in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Run(&'static Entry<Run>),
    Completion(Flows, &'static Entry<Completion>),
    Group(String, &'static Entry<Group>),
    Queue(String, &'static Entry<Queue>),
    Samples(String, &'static Entry<Samples>),
    /// By its number, from 1.
    Phase(String),
    Capture(&'static Entry<Content>),
    Tcp(&'static Counter),
}

/// Selection of flows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flows {
    group: Option<String>,
    size: Option<SizeClass>,
}

/// Unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Ratio,
    Flows,
    Packets,
    Events,
    Items,
    Us,
    Ms,
    S,
    /// Real seconds of this machine, independent of the scale.
    WallS,
    Mbps,
    Bytes,
    KiB,
    MiB,
}

/// For generating the table's page.
#[cfg(test)]
impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ratio | Self::Events | Self::Items => "",
            Self::Flows => "flows",
            Self::Packets => "packets",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S | Self::WallS => "s",
            Self::Mbps => "Mbit/s",
            Self::Bytes => "bytes",
            Self::KiB => "KiB",
            Self::MiB => "MiB",
        }
    }

    /// Factor that unscales a guest's value at `scale`: times are longer, rates lower by the scale.
    pub fn unscale(self, scale: u32) -> f64 {
        match self {
            Self::Us | Self::Ms | Self::S => 1.0 / f64::from(scale),
            Self::Mbps => f64::from(scale),
            _ => 1.0,
        }
    }

    /// Kind of scaling, as text.
    fn scaling(self) -> &'static str {
        match self {
            Self::Us | Self::Ms | Self::S => "time",
            Self::Mbps => "rate",
            _ => "",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
struct Entry<T> {
    name: &'static str,
    unit: Unit,
    meaning: &'static str,
    get: fn(&T) -> Option<f64>,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<T> Eq for Entry<T> {}

const fn entry<T>(
    name: &'static str,
    unit: Unit,
    get: fn(&T) -> Option<f64>,
    meaning: &'static str,
) -> Entry<T> {
    Entry {
        name,
        unit,
        meaning,
        get,
    }
}

fn count(n: u64) -> Option<f64> {
    Some(n as f64)
}

const RUN: &[Entry<Run>] = &[
    entry(
        "goodput_mbps",
        Unit::Mbps,
        |run| Some(run.goodput_mbps),
        "received payload over the time from the first start to the last end",
    ),
    entry(
        "start_late_us",
        Unit::Us,
        |run| Some(run.start_late_us),
        "largest delay of a start after its planned time; FCTs count from the planned time",
    ),
    entry(
        "utilisation",
        Unit::Ratio,
        |run| run.utilisation,
        "payload through the first watched port over the payload capacity of its rate; null if traffic took other paths",
    ),
    entry(
        "utilisation_steady",
        Unit::Ratio,
        |run| run.utilisation_steady,
        "`utilisation` in the second half of the time until the first flow ends",
    ),
    entry(
        "jain_mean",
        Unit::Ratio,
        |run| run.jain_mean,
        "mean of Jain's index over windows in which at least two flows are active",
    ),
    entry(
        "jain_steady",
        Unit::Ratio,
        |run| run.jain_steady,
        "Jain's index over the second half of the time until the first flow ends, one window",
    ),
    entry(
        "jain_converged_ms",
        Unit::Ms,
        |run| run.jain_converged_ms,
        "time from which the index is 0.95 or more in every window until the first flow ends",
    ),
    entry(
        "longest_stall_us",
        Unit::Us,
        |run| run.longest_stall_us,
        "longest time between samples in which some flow received nothing, in that second half",
    ),
    entry(
        "fct_ms.mean",
        Unit::Ms,
        |run| run.fct_ms.mean,
        "first send to last byte received, over the flows that ended",
    ),
    entry("fct_ms.p50", Unit::Ms, |run| run.fct_ms.p50, SAME),
    entry("fct_ms.p99", Unit::Ms, |run| run.fct_ms.p99, SAME),
    entry("fct_ms.max", Unit::Ms, |run| run.fct_ms.max, SAME),
    entry(
        "last_fct_ms",
        Unit::Ms,
        |run| run.last_fct_ms,
        "another name of `fct_ms.max`",
    ),
    entry(
        "fct_spread",
        Unit::Ratio,
        |run| run.fct_spread,
        "(max - min) / mean of the flows' FCTs",
    ),
    entry(
        "rtt_us.p50",
        Unit::Us,
        |run| run.rtt_us.p50,
        "percentiles over samples of TCP's smoothed RTT",
    ),
    entry("rtt_us.p99", Unit::Us, |run| run.rtt_us.p99, SAME),
    entry(
        "queue_bytes.mean",
        Unit::Bytes,
        |run| run.queue_bytes.mean,
        "backlog of the first watched port, over samples",
    ),
    entry(
        "queue_bytes.p99",
        Unit::Bytes,
        |run| run.queue_bytes.p99,
        SAME,
    ),
    entry(
        "queue_bytes.max",
        Unit::Bytes,
        |run| run.queue_bytes.max,
        "highest backlog, by the qdisc's own counter",
    ),
    entry(
        "settled.drops_before",
        Unit::Packets,
        |run| of_settled(run, |settled| count(settled.drops_before)),
        "drops at the first watched port before the scenario's `warmup`",
    ),
    entry(
        "settled.drops",
        Unit::Packets,
        |run| of_settled(run, |settled| count(settled.drops)),
        "drops at this port from then on",
    ),
    entry(
        "settled.queue_bytes.mean",
        Unit::Bytes,
        |run| of_settled(run, |settled| settled.queue_bytes.mean),
        "backlog of this port from then on",
    ),
    entry(
        "settled.queue_bytes.p99",
        Unit::Bytes,
        |run| of_settled(run, |settled| settled.queue_bytes.p99),
        SAME,
    ),
    entry(
        "drops",
        Unit::Packets,
        |run| count(run.drops),
        "drops in the queues of all ports; `queues` has those of watched ports",
    ),
    entry(
        "marks",
        Unit::Packets,
        |run| count(run.marks),
        "CE marks by the queues of all ports",
    ),
    entry(
        "losses",
        Unit::Packets,
        |run| count(run.losses),
        "losses that the scenario sets for links",
    ),
    entry(
        "dropped.queue",
        Unit::Packets,
        |run| dropped(run, Cause::Queue),
        "drops in queues of routers",
    ),
    entry(
        "dropped.host_queue",
        Unit::Packets,
        |run| dropped(run, Cause::HostQueue),
        "drops in queues of hosts",
    ),
    entry(
        "dropped.link",
        Unit::Packets,
        |run| dropped(run, Cause::Link),
        "losses that the scenario sets for links",
    ),
    entry(
        "dropped.action",
        Unit::Packets,
        |run| dropped(run, Cause::Action),
        "drops by policers and other actions of tc",
    ),
    entry(
        "dropped.filter",
        Unit::Packets,
        |run| dropped(run, Cause::Filter),
        "drops by firewalls",
    ),
    entry(
        "dropped.socket",
        Unit::Packets,
        |run| dropped(run, Cause::Socket),
        "drops without a socket, or without room in it",
    ),
    entry(
        "dropped.malformed",
        Unit::Packets,
        |run| dropped(run, Cause::Malformed),
        "drops with a wrong header or checksum, an expired TTL, or a missing fragment",
    ),
    entry(
        "dropped.route",
        Unit::Packets,
        |run| dropped(run, Cause::Route),
        "drops without a route, or above the MTU",
    ),
    entry(
        "dropped.device",
        Unit::Packets,
        |run| dropped(run, Cause::Device),
        "drops by the device at the other end",
    ),
    entry(
        "retransmits",
        Unit::Packets,
        |run| count(run.retransmits),
        "retransmitted by TCP",
    ),
    entry(
        "timeouts",
        Unit::Events,
        |run| count(run.timeouts),
        "retransmission timeouts of the flows",
    ),
    entry(
        "kernel_timeouts",
        Unit::Events,
        |run| run.kernel_timeouts.and_then(count),
        "timeouts by the kernel's counter (TCPTimeouts) of all hosts, with handshakes and programs",
    ),
    entry(
        "drops_green",
        Unit::Packets,
        |run| count(run.drops_green),
        "`drops` of green packets at phantom ports; with `tlt` the important ones",
    ),
    entry(
        "green_share",
        Unit::Ratio,
        |run| run.green_share,
        "share of green bytes in those that phantom ports accepted",
    ),
    entry(
        "green_packet_share",
        Unit::Ratio,
        |run| run.green_packet_share,
        "share of green packets in those that phantom ports with colors accepted",
    ),
    entry(
        "red_max_bytes",
        Unit::Bytes,
        |run| run.red_max_bytes.and_then(count),
        "highest backlog of red packets in any phantom port",
    ),
    entry(
        "ports_max_bytes",
        Unit::Bytes,
        |run| run.ports_max_bytes.and_then(count),
        "highest backlog of any phantom port",
    ),
    entry(
        "tlt.important_share",
        Unit::Ratio,
        |run| of_tlt(run, Tlt::important_share),
        "share of important packets in the data packets of hosts with `tlt`",
    ),
    entry(
        "tlt.clock_packets",
        Unit::Packets,
        |run| of_tlt(run, |tlt| tlt.clock_packets as f64),
        "packets of one byte, sent if nothing else may leave",
    ),
    entry(
        "tlt.forced_retransmits",
        Unit::Packets,
        |run| of_tlt(run, |tlt| tlt.forced_retransmits as f64),
        "lost segments, retransmitted beyond the window",
    ),
    entry(
        "tlt.clock_bytes",
        Unit::Bytes,
        |run| of_tlt(run, |tlt| tlt.clock_bytes as f64),
        "payload of clock packets and forced retransmits: a byte, or a full segment, each",
    ),
    entry(
        "tlt.extra_packet_share",
        Unit::Ratio,
        |run| of_tlt(run, Tlt::extra_packet_share),
        "share of packets that TCP would not have sent, or not yet, in all packets of connections with `tlt`",
    ),
    entry(
        "tlt.fallbacks",
        Unit::Events,
        |run| of_tlt(run, |tlt| tlt.fallbacks as f64),
        "connections that left TLT because the peer never echoed",
    ),
    entry(
        "tlt.bad_marks",
        Unit::Packets,
        |run| of_tlt(run, |tlt| tlt.bad_marks as f64),
        "received packets with an impossible mark",
    ),
    entry(
        "unorc.data_packets",
        Unit::Packets,
        |run| of_unorc(run, "tx_data"),
        "data packets that tunnels sent",
    ),
    entry(
        "unorc.parity_packets",
        Unit::Packets,
        |run| of_unorc(run, "tx_parity"),
        "parity packets that tunnels sent",
    ),
    entry(
        "unorc.feedback_packets",
        Unit::Packets,
        |run| of_unorc(run, "tx_feedback"),
        "feedback of receivers to senders",
    ),
    entry(
        "unorc.recovered",
        Unit::Packets,
        |run| of_unorc(run, "recovered"),
        "lost packets, decoded from others",
    ),
    entry(
        "unorc.nacks",
        Unit::Events,
        |run| of_unorc(run, "nack_received"),
        "NACKs for blocks that their receiver continued without missing packets",
    ),
    entry(
        "unorc.given_up",
        Unit::Events,
        |run| of_unorc(run, "given_up"),
        "blocks abandoned with missing packets, which TCP retransmits",
    ),
    entry(
        "unorc.reroutes",
        Unit::Events,
        |run| of_unorc(run, "reroute"),
        "paths that a chooser replaced",
    ),
    entry(
        "unorc.freezes",
        Unit::Events,
        |run| of_unorc(run, "freeze"),
        "times that `reps` froze",
    ),
    entry(
        "unorc.clean_share",
        Unit::Ratio,
        clean_share,
        "share of directions without a NACK in the tunnels' directions that carried data",
    ),
    entry(
        "circuits.used",
        Unit::Ratio,
        |run| of_circuits(run, |of| of.used),
        "of a rotor: bytes through the circuit switch over the capacity of its circuits by day, for racks that used any; in whole weeks after `warmup`",
    ),
    entry(
        "circuits.used_first",
        Unit::Ratio,
        |run| of_circuits(run, |of| of.used_first),
        "`used` in the first ten of these weeks",
    ),
    entry(
        "circuits.used_last",
        Unit::Ratio,
        |run| of_circuits(run, |of| of.used_last),
        "`used` in the last ten",
    ),
    entry(
        "circuits.used_least",
        Unit::Ratio,
        |run| of_circuits(run, |of| of.used_least),
        "`used` in the week with the least",
    ),
    entry(
        "circuits.weeks",
        Unit::Items,
        |run| of_circuits(run, |of| Some(of.weeks as f64)),
        "counted weeks",
    ),
    entry(
        "circuits.packets",
        Unit::Packets,
        |run| of_circuits(run, |of| count(of.packets)),
        "packets through the circuit switch in the whole run",
    ),
    entry(
        "circuits.night",
        Unit::Packets,
        |run| of_circuits(run, |of| count(of.night)),
        "packets lost because they came at night",
    ),
    entry(
        "circuits.cut",
        Unit::Packets,
        |run| of_circuits(run, |of| count(of.cut)),
        "packets lost because their day ended before their last bit came",
    ),
    entry(
        "circuits.misdirected",
        Unit::Packets,
        |run| of_circuits(run, |of| count(of.misdirected)),
        "packets lost because they were for another rack than their circuit's",
    ),
    entry(
        "circuits.window_packets.mean",
        Unit::Packets,
        |run| of_circuits(run, |of| Some(of.window_packets?.mean)),
        "congestion windows of endless flows when the day of their racks begins; needs a series of flows, and `sample` = a day and a night",
    ),
    entry(
        "circuits.window_packets.p10",
        Unit::Packets,
        |run| of_circuits(run, |of| Some(of.window_packets?.p10)),
        SAME,
    ),
    entry(
        "circuits.window_packets.p50",
        Unit::Packets,
        |run| of_circuits(run, |of| Some(of.window_packets?.p50)),
        SAME,
    ),
    entry(
        "circuits.window_packets.p90",
        Unit::Packets,
        |run| of_circuits(run, |of| Some(of.window_packets?.p90)),
        SAME,
    ),
    entry(
        "circuits.flow_week_mbps.p10",
        Unit::Mbps,
        |run| of_circuits(run, |of| Some(of.flow_week_mbps?.p10)),
        "goodput of each endless flow in each week; needs a series of flows",
    ),
    entry(
        "circuits.flow_week_mbps.p50",
        Unit::Mbps,
        |run| of_circuits(run, |of| Some(of.flow_week_mbps?.p50)),
        SAME,
    ),
    entry(
        "circuits.flow_week_mbps.p90",
        Unit::Mbps,
        |run| of_circuits(run, |of| Some(of.flow_week_mbps?.p90)),
        SAME,
    ),
    entry(
        "circuits.flow_week_spread",
        Unit::Ratio,
        |run| {
            of_circuits(run, |of| {
                let of = of.flow_week_mbps.filter(|of| of.p50 > 0.0)?;
                Some((of.p90 - of.p10) / of.p50)
            })
        },
        "(p90 - p10) / p50 of `flow_week_mbps`",
    ),
    entry(
        "acceltor.unaccounted",
        Unit::Packets,
        |run| of_circuits(run, |of| Some(of.unaccounted as f64)),
        "packets into a rack's qdisc that are neither sent, dropped nor queued, for the worst rack; 0 unless the kernel is wrong",
    ),
    entry(
        "acceltor.high_packets",
        Unit::Packets,
        |run| of_qdiscs(run, "packets_high"),
        "packets of mice, sent to the packet network",
    ),
    entry(
        "acceltor.low_packets",
        Unit::Packets,
        |run| of_qdiscs(run, "packets_low"),
        "packets of accelerated elephants, sent to the packet network",
    ),
    entry(
        "acceltor.circuit_packets",
        Unit::Packets,
        |run| of_qdiscs(run, "packets_circuit"),
        "packets sent to the circuit switch",
    ),
    entry(
        "acceltor.drops_high",
        Unit::Packets,
        |run| of_qdiscs(run, "drops_high"),
        "drops of mice without room",
    ),
    entry(
        "acceltor.drops_low",
        Unit::Packets,
        |run| of_qdiscs(run, "drops_low"),
        "drops of accelerated elephants without room",
    ),
    entry(
        "acceltor.drops_queue",
        Unit::Packets,
        |run| of_qdiscs(run, "drops_queue"),
        "drops without room in a day's queue",
    ),
    entry(
        "acceltor.drops_blocked",
        Unit::Packets,
        |run| of_qdiscs(run, "drops_blocked"),
        "drops of elephants K days or more before their day",
    ),
    entry(
        "acceltor.drops_stale",
        Unit::Packets,
        |run| of_qdiscs(run, "drops_stale"),
        "drops after the day of the packet",
    ),
    entry(
        "acceltor.rescued",
        Unit::Packets,
        |run| of_qdiscs(run, "rescued"),
        "packets that came too early and were accelerated",
    ),
    entry(
        "acceltor.missed_days",
        Unit::Events,
        |run| of_qdiscs(run, "missed_days"),
        "days with something queued and nothing sent",
    ),
    entry(
        "link_rtt_error",
        Unit::Ratio,
        |run| run.link_rtt_error,
        "measured over configured base RTT, minus 1, of the worst path",
    ),
    entry(
        "virtual_s",
        Unit::S,
        |run| Some(run.virtual_s),
        "time that the traffic took in the guest",
    ),
    entry(
        "wall_s",
        Unit::WallS,
        |run| Some(run.wall_s),
        "time that the guest took on this machine",
    ),
    entry(
        "network.nodes",
        Unit::Items,
        |run| of_network(run, |network| network.nodes as f64),
        "hosts, switches and routers",
    ),
    entry(
        "network.links",
        Unit::Items,
        |run| of_network(run, |network| network.links as f64),
        "",
    ),
    entry(
        "network.routes",
        Unit::Items,
        |run| of_network(run, |network| network.routes as f64),
        "routes of all nodes",
    ),
    entry(
        "network.build_wall_s",
        Unit::WallS,
        |run| of_network(run, |network| network.build_wall_s),
        "time that this machine took to build the network",
    ),
    entry(
        "network.memory_mb",
        Unit::MiB,
        |run| of_network(run, |network| network.memory_mb),
        "memory that the guest took for the network",
    ),
    entry(
        "network.memory_per_node_kb",
        Unit::KiB,
        |run| of_network(run, |network| network.memory_per_node_kb),
        "",
    ),
];

/// Metrics with one value per flow.
const FLOW_TIMES: [&str; 5] = [
    "fct_us",
    "fct_ms",
    "slowdown",
    "fct_acked_us",
    "slowdown_acked",
];

/// Meaning of a row that the previous row explains.
const SAME: &str = "";

fn of_network(run: &Run, value: fn(&Network) -> f64) -> Option<f64> {
    run.network.as_ref().map(value)
}

fn of_settled(run: &Run, value: fn(&Settled) -> Option<f64>) -> Option<f64> {
    run.settled.as_ref().and_then(value)
}

fn of_tlt(run: &Run, value: fn(&Tlt) -> f64) -> Option<f64> {
    run.tlt.as_ref().map(value)
}

fn of_unorc(run: &Run, name: &str) -> Option<f64> {
    run.unorc.as_ref()?.get(name).map(|&n| n as f64)
}

fn of_circuits(run: &Run, value: fn(&Circuits) -> Option<f64>) -> Option<f64> {
    run.circuits.as_ref().and_then(value)
}

fn of_qdiscs(run: &Run, name: &str) -> Option<f64> {
    run.circuits.as_ref()?.qdiscs.get(name).map(|&n| n as f64)
}

fn clean_share(run: &Run) -> Option<f64> {
    let sending = of_unorc(run, "sending_devices").filter(|&n| n > 0.0)?;
    Some(1.0 - of_unorc(run, "nacked_devices")? / sending)
}

const COMPLETION: &[Entry<Completion>] = &[
    entry(
        "flows",
        Unit::Flows,
        |of| count(of.flows as u64),
        "all flows",
    ),
    entry(
        "warmup",
        Unit::Flows,
        |of| count(of.warmup as u64),
        "flows planned to start before the scenario's `warmup`; the metrics below exclude them",
    ),
    entry(
        "unfinished",
        Unit::Flows,
        |of| count(of.unfinished as u64),
        "flows with a size that had not ended when the run ended; means exclude them",
    ),
    entry(
        "timed_out",
        Unit::Flows,
        |of| count(of.timed_out as u64),
        "flows with a retransmission timeout",
    ),
    entry(
        "timeouts_per_1000_flows",
        Unit::Events,
        |of| of.timeouts_per_1000_flows,
        "retransmission timeouts; a flow may have several",
    ),
    entry(
        "fct_us.mean",
        Unit::Us,
        |of| of.fct_us.mean,
        "first send to last byte received, over the flows that ended; percentiles are nearest ranks",
    ),
    entry("fct_us.p50", Unit::Us, |of| of.fct_us.p50, SAME),
    entry("fct_us.p95", Unit::Us, |of| of.fct_us.p95, SAME),
    entry("fct_us.p99", Unit::Us, |of| of.fct_us.p99, SAME),
    entry("fct_us.p999", Unit::Us, |of| of.fct_us.p999, SAME),
    entry("fct_us.max", Unit::Us, |of| of.fct_us.max, SAME),
    entry(
        "slowdown.mean",
        Unit::Ratio,
        |of| of.slowdown.mean,
        "FCT over the ideal of the flow's path",
    ),
    entry("slowdown.p50", Unit::Ratio, |of| of.slowdown.p50, SAME),
    entry("slowdown.p95", Unit::Ratio, |of| of.slowdown.p95, SAME),
    entry("slowdown.p99", Unit::Ratio, |of| of.slowdown.p99, SAME),
    entry("slowdown.p999", Unit::Ratio, |of| of.slowdown.p999, SAME),
    entry("slowdown.max", Unit::Ratio, |of| of.slowdown.max, SAME),
    entry(
        "fct_acked_us.mean",
        Unit::Us,
        |of| of.fct_acked_us.mean,
        "first send to the last byte's ACK at the sender; not for persistent connections",
    ),
    entry("fct_acked_us.p50", Unit::Us, |of| of.fct_acked_us.p50, SAME),
    entry("fct_acked_us.p95", Unit::Us, |of| of.fct_acked_us.p95, SAME),
    entry("fct_acked_us.p99", Unit::Us, |of| of.fct_acked_us.p99, SAME),
    entry(
        "fct_acked_us.p999",
        Unit::Us,
        |of| of.fct_acked_us.p999,
        SAME,
    ),
    entry("fct_acked_us.max", Unit::Us, |of| of.fct_acked_us.max, SAME),
    entry(
        "slowdown_acked.mean",
        Unit::Ratio,
        |of| of.slowdown_acked.mean,
        "`fct_acked_us` over the ideal of the path and its ACK",
    ),
    entry(
        "slowdown_acked.p50",
        Unit::Ratio,
        |of| of.slowdown_acked.p50,
        SAME,
    ),
    entry(
        "slowdown_acked.p95",
        Unit::Ratio,
        |of| of.slowdown_acked.p95,
        SAME,
    ),
    entry(
        "slowdown_acked.p99",
        Unit::Ratio,
        |of| of.slowdown_acked.p99,
        SAME,
    ),
    entry(
        "slowdown_acked.p999",
        Unit::Ratio,
        |of| of.slowdown_acked.p999,
        SAME,
    ),
    entry(
        "slowdown_acked.max",
        Unit::Ratio,
        |of| of.slowdown_acked.max,
        SAME,
    ),
];

const GROUP: &[Entry<Group>] = &[
    entry(
        "goodput_mbps",
        Unit::Mbps,
        |of| Some(of.goodput_mbps),
        "received payload of the group over the time of the whole run",
    ),
    entry(
        "goodput_steady_mbps",
        Unit::Mbps,
        |of| of.goodput_steady_mbps,
        "goodput in the second half of the time until the first flow ends",
    ),
    entry(
        "offered_mbps",
        Unit::Mbps,
        |of| of.offered_mbps,
        "payload of the group's flows per time from its first start to its last; of 100 flows or more that have a size",
    ),
    entry(
        "carried_mbps",
        Unit::Mbps,
        |of| of.carried_mbps,
        "part of `offered_mbps` that arrived in that time; a flow without a series is spread evenly over its own time",
    ),
    entry(
        "fct_ms.mean",
        Unit::Ms,
        |of| of.fct_ms.mean,
        "as for all flows",
    ),
    entry("fct_ms.p50", Unit::Ms, |of| of.fct_ms.p50, SAME),
    entry("fct_ms.p99", Unit::Ms, |of| of.fct_ms.p99, SAME),
    entry("fct_ms.max", Unit::Ms, |of| of.fct_ms.max, SAME),
    entry(
        "rtt_us.p50",
        Unit::Us,
        |of| of.rtt_us.p50,
        "as for all flows",
    ),
    entry("rtt_us.p99", Unit::Us, |of| of.rtt_us.p99, SAME),
];

const QUEUE: &[Entry<Queue>] = &[
    entry(
        "queue_bytes.mean",
        Unit::Bytes,
        |of| of.queue_bytes.mean,
        "backlog of the port",
    ),
    entry(
        "queue_bytes.p99",
        Unit::Bytes,
        |of| of.queue_bytes.p99,
        SAME,
    ),
    entry(
        "queue_bytes.max",
        Unit::Bytes,
        |of| of.queue_bytes.max,
        SAME,
    ),
    entry(
        "phantom_max_bytes",
        Unit::Bytes,
        |of| of.phantom_max_bytes.and_then(count),
        "highest count of the phantom queue",
    ),
    entry(
        "sent_packets",
        Unit::Packets,
        |of| count(of.sent_packets),
        "",
    ),
    entry("drops", Unit::Packets, |of| count(of.drops), ""),
    entry("marks", Unit::Packets, |of| count(of.marks), ""),
];

const SAMPLES: &[Entry<Samples>] = &[
    entry(
        "n",
        Unit::Items,
        |of| count(of.n as u64),
        "numbers that programs with `samples = \"NAME\"` wrote",
    ),
    entry(
        "mean",
        Unit::Items,
        |of| of.spread.mean,
        "their values, in the program's unit, as the guest saw them",
    ),
    entry("p50", Unit::Items, |of| of.spread.p50, SAME),
    entry("p99", Unit::Items, |of| of.spread.p99, SAME),
    entry("p999", Unit::Items, |of| of.spread.p999, SAME),
    entry("max", Unit::Items, |of| of.spread.max, SAME),
];

const CAPTURE: &[Entry<Content>] = &[
    entry(
        "packets",
        Unit::Packets,
        |of| count(of.packets),
        "packets through the first watched port in both directions",
    ),
    entry(
        "data_packets",
        Unit::Packets,
        |of| count(of.data_packets),
        "packets with payload",
    ),
    entry(
        "marked",
        Unit::Packets,
        |of| count(of.marked),
        "packets with CE out of the port",
    ),
    entry(
        "resent",
        Unit::Packets,
        |of| count(of.resent),
        "data packets that had passed before",
    ),
    entry(
        "ece",
        Unit::Packets,
        |of| count(of.ece),
        "packets with ECE into the port, without SYNs",
    ),
    entry(
        "cwr",
        Unit::Packets,
        |of| count(of.cwr),
        "packets with CWR out of the port",
    ),
    entry(
        "sacks",
        Unit::Packets,
        |of| count(of.sacks),
        "packets with SACK blocks",
    ),
    entry(
        "syns_resent",
        Unit::Packets,
        |of| count(of.syns_resent),
        "SYNs that had passed before",
    ),
    entry(
        "accecn_flows",
        Unit::Flows,
        |of| count(of.accecn_flows),
        "flows whose SYN-ACK agrees to AccECN",
    ),
    entry(
        "rfc3168_flows",
        Unit::Flows,
        |of| count(of.rfc3168_flows),
        "flows whose SYN-ACK agrees to ECN of RFC 3168",
    ),
    entry(
        "plain_flows",
        Unit::Flows,
        |of| count(of.plain_flows),
        "flows without ECN",
    ),
];

fn dropped(run: &Run, cause: Cause) -> Option<f64> {
    count(run.dropped.get(&cause).copied().unwrap_or_default())
}

const PHASES: &str = "jain_phases";
const PHASE: &str = "mean of Jain's index in the N-th phase, if the scenario has `phases`";

/// An unknown name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub name: String,
    pub near: Option<String>,
}

impl fmt::Display for Unknown {
    /// Formatted like serde's unknown variant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown metric `{}`", self.name)?;
        match &self.near {
            Some(near) => write!(f, ", expected `{near}`"),
            None => Ok(()),
        }
    }
}

/// Hint for mistakes without a similar name.
pub const SEE_TABLE: &str =
    "a name of the table in docs/scenarios.md: fct_us.p99, queues.NAME.drops";

impl FromStr for Metric {
    type Err = Unknown;
    fn from_str(name: &str) -> Result<Self, Unknown> {
        let found = place(name).map(|place| Self {
            name: name.to_owned(),
            place,
        });
        found.ok_or_else(|| {
            let known = names_like(name);
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            Unknown {
                name: name.to_owned(),
                near: nearest(name, &known).map(str::to_owned),
            }
        })
    }
}

fn find<T>(table: &'static [Entry<T>], name: &str) -> Option<&'static Entry<T>> {
    table.iter().find(|entry| entry.name == name)
}

/// Prefix of an entry's name, and the entry. Matches the end, since user-chosen names of groups and
/// ports may contain dots.
fn ends_with<'a, T>(
    table: &'static [Entry<T>],
    text: &'a str,
) -> Option<(&'a str, &'static Entry<T>)> {
    let before = |entry: &'static Entry<T>| {
        let before = text.strip_suffix(entry.name)?.strip_suffix('.')?;
        (!before.is_empty()).then_some((before, entry))
    };
    table.iter().find_map(before)
}

fn place(name: &str) -> Option<Place> {
    if let Some(entry) = find(RUN, name) {
        return Some(Place::Run(entry));
    }
    if let Some(entry) = find(COMPLETION, name) {
        let all = Flows {
            group: None,
            size: None,
        };
        return Some(Place::Completion(all, entry));
    }
    let (family, rest) = name.split_once('.')?;
    match family {
        "sizes" => {
            let (size, entry) = ends_with(COMPLETION, rest)?;
            let flows = Flows {
                group: None,
                size: Some(size.parse().ok()?),
            };
            Some(Place::Completion(flows, entry))
        }
        "groups" => {
            let Some((of, entry)) = ends_with(COMPLETION, rest) else {
                let (group, entry) = ends_with(GROUP, rest)?;
                return Some(Place::Group(group.to_owned(), entry));
            };
            let sized = of.rsplit_once(".sizes.");
            let sized = sized.and_then(|(group, size)| Some((group, size.parse().ok()?)));
            let (group, size) = sized.map_or((of, None), |(group, size)| (group, Some(size)));
            let flows = Flows {
                group: Some(group.to_owned()),
                size,
            };
            Some(Place::Completion(flows, entry))
        }
        "queues" => {
            let (queue, entry) = ends_with(QUEUE, rest)?;
            Some(Place::Queue(queue.to_owned(), entry))
        }
        "samples" => {
            let (name, entry) = ends_with(SAMPLES, rest)?;
            Some(Place::Samples(name.to_owned(), entry))
        }
        "capture" => find(CAPTURE, rest).map(Place::Capture),
        "tcp" => {
            let mut all = COUNTERS.iter();
            all.find(|counter| counter.name == rest).map(Place::Tcp)
        }
        PHASES => {
            let number: usize = rest.parse().ok()?;
            (number > 0 && rest == number.to_string()).then(|| Place::Phase(rest.to_owned()))
        }
        _ => None,
    }
}

/// Known names similar to `name`.
fn names_like(name: &str) -> Vec<String> {
    let of = |before: &str, names: &mut dyn Iterator<Item = &'static str>| -> Vec<String> {
        names.map(|name| format!("{before}{name}")).collect()
    };
    let completion = || COMPLETION.iter().map(|entry| entry.name);
    let mut known = of("", &mut RUN.iter().map(|entry| entry.name));
    known.extend(of("", &mut completion()));
    known.extend(of("capture.", &mut CAPTURE.iter().map(|entry| entry.name)));
    known.extend(of("tcp.", &mut COUNTERS.iter().map(|counter| counter.name)));
    known.push(format!("{PHASES}.1"));
    for size in SizeClass::ALL {
        known.extend(of(&format!("sizes.{}.", size.name()), &mut completion()));
    }
    let mut words = name.split('.').skip(1);
    if let Some(own) = words.next() {
        let group = format!("groups.{own}.");
        known.extend(of(&group, &mut GROUP.iter().map(|entry| entry.name)));
        known.extend(of(&group, &mut completion()));
        for size in SizeClass::ALL {
            let sized = format!("{group}sizes.{}.", size.name());
            known.extend(of(&sized, &mut completion()));
        }
        let queue = format!("queues.{own}.");
        known.extend(of(&queue, &mut QUEUE.iter().map(|entry| entry.name)));
        let samples = format!("samples.{own}.");
        known.extend(of(&samples, &mut SAMPLES.iter().map(|entry| entry.name)));
    }
    known
}

impl Metric {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn unit(&self) -> Unit {
        match &self.place {
            Place::Run(entry) => entry.unit,
            Place::Completion(_, entry) => entry.unit,
            Place::Group(_, entry) => entry.unit,
            Place::Queue(_, entry) => entry.unit,
            Place::Samples(_, entry) => entry.unit,
            Place::Phase(_) => Unit::Ratio,
            Place::Capture(entry) => entry.unit,
            Place::Tcp(counter) => unit_of(counter),
        }
    }

    /// Short description; empty if the table's previous metric has it.
    pub fn meaning(&self) -> &'static str {
        match &self.place {
            Place::Run(entry) => entry.meaning,
            Place::Completion(_, entry) => entry.meaning,
            Place::Group(_, entry) => entry.meaning,
            Place::Queue(_, entry) => entry.meaning,
            Place::Samples(_, entry) => entry.meaning,
            Place::Phase(_) => PHASE,
            Place::Capture(entry) => entry.meaning,
            Place::Tcp(counter) => counter.meaning,
        }
    }

    /// Value in a run; None if it does not apply or is implausible.
    pub fn of(&self, run: &Run) -> Option<f64> {
        let value = match &self.place {
            Place::Run(entry) => (entry.get)(run),
            Place::Completion(flows, entry) => flows.of(run).and_then(entry.get),
            Place::Group(group, entry) => run.groups.get(group).and_then(entry.get),
            Place::Queue(queue, entry) => queue_of(run, queue).and_then(entry.get),
            Place::Samples(name, entry) => run.samples.get(name).and_then(entry.get),
            Place::Phase(number) => run.jain_phases.get(number).copied().flatten(),
            Place::Capture(entry) => run.capture.as_ref().and_then(entry.get),
            Place::Tcp(counter) => run.tcp.get(counter.name).and_then(|n| count(*n)),
        };
        // A damaged or forged file may contain any value.
        value.filter(|value| value.abs() <= MOST)
    }

    /// Flows behind a statistic of completion times; None for other metrics.
    pub fn population(&self, run: &Run) -> Option<Population> {
        let (of, name) = match &self.place {
            Place::Run(entry) => (&run.completion, entry.name),
            Place::Group(group, entry) => (&run.groups.get(group)?.completion, entry.name),
            Place::Completion(flows, entry) => (flows.of(run)?, entry.name),
            Place::Samples(name, entry) => {
                return Some(Population {
                    ended: run.samples.get(name)?.n,
                    unfinished: 0,
                    needed: needed(entry.name)?,
                });
            }
            Place::Queue(..) | Place::Phase(_) | Place::Capture(_) | Place::Tcp(_) => return None,
        };
        let (what, statistic) = name.split_once('.')?;
        if !FLOW_TIMES.contains(&what) {
            return None;
        }
        let needed = needed(statistic)?;
        let counted = of.flows.saturating_sub(of.warmup);
        Some(Population {
            ended: counted.saturating_sub(of.unfinished),
            unfinished: of.unfinished,
            needed,
        })
    }

    /// Requirement for a scenario: a group of flows, a watched port, samples of a name, or a phase.
    pub fn asks(&self) -> Asks<'_> {
        match &self.place {
            Place::Completion(flows, _) => {
                flows.group.as_deref().map_or(Asks::Nothing, Asks::Group)
            }
            Place::Group(group, _) => Asks::Group(group),
            Place::Queue(queue, _) => Asks::Queue(queue),
            Place::Samples(name, _) => Asks::Samples(name),
            Place::Phase(number) => Asks::Phase(number.parse().unwrap_or(usize::MAX)),
            Place::Run(_) | Place::Capture(_) | Place::Tcp(_) => Asks::Nothing,
        }
    }
}

/// Flows behind a statistic of completion times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Population {
    pub ended: usize,
    /// Flows whose times are unknown but long.
    pub unfinished: usize,
    /// Minimum number for a meaningful value: ten flows beyond a 99th percentile, a hundred for a
    /// mean.
    pub needed: usize,
}

/// Requirement returned by [`Metric::asks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks<'a> {
    Nothing,
    Group(&'a str),
    /// A name, or a number in scenario order.
    Queue(&'a str),
    Samples(&'a str),
    Phase(usize),
}

/// Minimum number of flows for a meaningful statistic.
fn needed(statistic: &str) -> Option<usize> {
    match statistic {
        "p999" => Some(10_000),
        "p99" => Some(1000),
        "mean" | "p50" | "p95" => Some(100),
        _ => None,
    }
}

impl Flows {
    fn of<'a>(&self, run: &'a Run) -> Option<&'a Completion> {
        match (&self.group, self.size) {
            (None, None) => Some(&run.completion),
            (None, Some(size)) => run.sizes.get(&size),
            (Some(group), None) => Some(&run.groups.get(group)?.completion),
            (Some(group), Some(size)) => run.groups.get(group)?.sizes.get(&size),
        }
    }
}

fn unit_of(counter: &Counter) -> Unit {
    match counter.of {
        Of::Packets => Unit::Packets,
        Of::Bytes => Unit::Bytes,
        Of::Events => Unit::Events,
        Of::Us => Unit::Us,
    }
}

/// Finds a queue by name, else by number.
fn queue_of<'a>(run: &'a Run, name: &str) -> Option<&'a Queue> {
    let named = run.queues.iter().find(|queue| queue.name == name);
    named.or_else(|| run.queues.get(name.parse::<usize>().ok()?))
}

/// Upper bound of a run's values.
const MOST: f64 = 1e18;

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// Metrics of a built-in list.
pub fn of_names(names: &[&str]) -> Vec<Metric> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Names of metrics of whole runs.
#[cfg(test)]
pub fn names_of_runs() -> impl Iterator<Item = &'static str> {
    RUN.iter().map(|entry| entry.name)
}

/// Generates the table of docs/scenarios.md.
#[cfg(test)]
fn table() -> String {
    let mut table = String::from("| metric | unit | scaled as | meaning |\n|---|---|---|---|\n");
    let mut add = |before: &str, name: &str, unit: Unit, meaning: &str| {
        table += &format!(
            "| `{before}{name}` | {} | {} | {meaning} |\n",
            unit.name(),
            unit.scaling()
        );
    };
    for entry in RUN {
        add("", entry.name, entry.unit, entry.meaning);
    }
    add(PHASES, ".N", Unit::Ratio, PHASE);
    for entry in COMPLETION {
        add("", entry.name, entry.unit, entry.meaning);
    }
    for entry in GROUP {
        add("groups.NAME.", entry.name, entry.unit, entry.meaning);
    }
    for entry in QUEUE {
        add("queues.NAME.", entry.name, entry.unit, entry.meaning);
    }
    for entry in SAMPLES {
        add("samples.NAME.", entry.name, entry.unit, entry.meaning);
    }
    for counter in COUNTERS {
        add("tcp.", counter.name, unit_of(counter), counter.meaning);
    }
    for entry in CAPTURE {
        add("capture.", entry.name, entry.unit, entry.meaning);
    }
    table
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};
    use xdc_measure::testing::recorded;

    use super::*;

    fn metric(name: &str) -> Metric {
        name.parse().unwrap()
    }

    #[test]
    fn a_metric_is_found_or_the_nearest_name_is_suggested() {
        for name in [
            "fct_ms.max",
            "flows",
            "sizes.small.fct_us.p99",
            "groups.intra.goodput_mbps",
            "groups.a.b.sizes.large.slowdown.mean",
            "queues.WAN, a to b.queue_bytes.p99",
            "queues.0.sent_packets",
            "jain_phases.3",
            "capture.marked",
            "tcp.delivered_ce",
        ] {
            assert_eq!(metric(name).name(), name);
        }
        for (name, near) in [
            ("godput_mbps", "goodput_mbps"),
            ("fct_ms.p90", "fct_ms.p50"),
            ("sizes.smal.fct_us.p99", "sizes.small.fct_us.p99"),
            ("group.intra.goodput_mbps", "groups.intra.goodput_mbps"),
            (
                "groups.intra.sizes.small.fct_us.pp9",
                "groups.intra.sizes.small.fct_us.p99",
            ),
            ("queues.port.mark", "queues.port.marks"),
            ("jain_phases.0", "jain_phases.1"),
        ] {
            let unknown = name.parse::<Metric>().unwrap_err();
            assert_eq!(unknown.near.as_deref(), Some(near), "{name}");
        }
        assert_eq!("nothing_at_all".parse::<Metric>().unwrap_err().near, None);
    }

    #[test]
    fn impossible_values_are_missing() {
        let mut run = figures::run(&recorded(), &Windows::every_us(1000));
        run.fct_ms.max = Some(1e308);
        run.goodput_mbps = f64::NAN;
        let of = |name: &str| name.parse::<Metric>().unwrap().of(&run);
        assert_eq!(of("fct_ms.max"), None);
        assert_eq!(of("goodput_mbps"), None);
    }

    /// Regenerated by `UPDATE_DOCS=1 cargo test -p xdc`.
    #[test]
    fn the_page_has_the_table_of_metrics() {
        crate::marked::tests::holds("scenarios.md", "metrics", &table());
    }
}
