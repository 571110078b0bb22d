// SPDX-License-Identifier: GPL-2.0
//! The metrics: name, unit, value and meaning, one row each. A row without a meaning has that of the
//! previous row.

use xdc_measure::run::{Completion, Content, Group, Queue, Run, Samples};
use xdc_proto::Cause;

use super::metric::{Entry, Unit};

macro_rules! metrics {
    ($table:ident: $of:ty, |$it:ident|
        $($name:literal: $unit:ident = $value:expr, $meaning:literal;)*
    ) => {
        pub(super) const $table: &[Entry<$of>] = &[$(Entry {
            name: $name,
            unit: Unit::$unit,
            meaning: $meaning,
            get: |$it| $value,
        }),*];
    };
}

fn count(n: u64) -> Option<f64> {
    Some(n as f64)
}

fn dropped(run: &Run, cause: Cause) -> Option<f64> {
    count(run.dropped.get(&cause).copied().unwrap_or_default())
}

fn of_unorc(run: &Run, name: &str) -> Option<f64> {
    run.unorc.as_ref()?.get(name).map(|&n| n as f64)
}

fn of_qdiscs(run: &Run, name: &str) -> Option<f64> {
    run.circuits.as_ref()?.qdiscs.get(name).map(|&n| n as f64)
}

fn clean_share(run: &Run) -> Option<f64> {
    let sending = of_unorc(run, "sending_devices").filter(|&n| n > 0.0)?;
    Some(1.0 - of_unorc(run, "nacked_devices")? / sending)
}

fn flow_week_spread(run: &Run) -> Option<f64> {
    let of = run.circuits.as_ref()?.flow_week_mbps;
    let of = of.filter(|of| of.p50 > 0.0)?;
    Some((of.p90 - of.p10) / of.p50)
}

metrics!(RUN: Run, |run|
    "goodput_mbps": Mbps = Some(run.goodput_mbps),
        "received payload over the time from the first start to the last end";
    "start_late_us": Us = Some(run.start_late_us),
        "largest delay of a start after its planned time; FCTs count from the planned time";
    "utilisation": Ratio = run.utilisation,
        "payload through the first watched port over the payload capacity of its rate; null if \
         traffic took other paths";
    "utilisation_steady": Ratio = run.utilisation_steady,
        "`utilisation` in the second half of the time until the first flow ends";
    "jain_mean": Ratio = run.jain_mean,
        "mean of Jain's index over windows in which at least two flows are active";
    "jain_steady": Ratio = run.jain_steady,
        "Jain's index over the second half of the time until the first flow ends, one window";
    "jain_converged_ms": Ms = run.jain_converged_ms,
        "time from which the index is 0.95 or more in every window until the first flow ends";
    "longest_stall_us": Us = run.longest_stall_us,
        "longest time between samples in which some flow received nothing, in that second half";
    "fct_ms.mean": Ms = run.fct_ms.mean,
        "planned start to last byte received, over the flows that ended";
    "fct_ms.p50": Ms = run.fct_ms.p50, "";
    "fct_ms.p99": Ms = run.fct_ms.p99, "";
    "fct_ms.max": Ms = run.fct_ms.max, "";
    "last_fct_ms": Ms = run.last_fct_ms, "another name of `fct_ms.max`";
    "fct_spread": Ratio = run.fct_spread, "(max - min) / mean of the flows' FCTs";
    "rtt_us.p50": Us = run.rtt_us.p50, "percentiles over samples of TCP's smoothed RTT";
    "rtt_us.p99": Us = run.rtt_us.p99, "";
    "queue_bytes.mean": Bytes = run.queue_bytes.mean,
        "backlog of the first watched port, over samples";
    "queue_bytes.p99": Bytes = run.queue_bytes.p99, "";
    "queue_bytes.max": Bytes = run.queue_bytes.max, "highest backlog, by the qdisc's own counter";
    "settled.drops_before": Packets = count(run.settled.as_ref()?.drops_before),
        "drops at the first watched port before the scenario's `warmup`";
    "settled.drops": Packets = count(run.settled.as_ref()?.drops),
        "drops at this port from then on";
    "settled.queue_bytes.mean": Bytes = run.settled.as_ref()?.queue_bytes.mean,
        "backlog of this port from then on";
    "settled.queue_bytes.p99": Bytes = run.settled.as_ref()?.queue_bytes.p99, "";
    "drops": Packets = count(run.drops),
        "drops in the queues of all ports, of routers and hosts; `queues` has those of watched ports";
    "marks": Packets = count(run.marks), "CE marks by the queues of all ports";
    "losses": Packets = count(run.losses), "losses that the scenario sets for links";
    "dropped.queue": Packets = dropped(run, Cause::Queue), "drops in queues of routers";
    "dropped.host_queue": Packets = dropped(run, Cause::HostQueue), "drops in queues of hosts";
    "dropped.link": Packets = dropped(run, Cause::Link), "losses that the scenario sets for links";
    "dropped.policer": Packets = dropped(run, Cause::Policer),
        "drops by policers of the scenario";
    "dropped.action": Packets = dropped(run, Cause::Action), "drops by actions of tc";
    "dropped.filter": Packets = dropped(run, Cause::Filter), "drops by firewalls";
    "dropped.socket": Packets = dropped(run, Cause::Socket),
        "drops without a socket, or without room in it";
    "dropped.malformed": Packets = dropped(run, Cause::Malformed),
        "drops with a wrong header or checksum, an expired TTL, or a missing fragment";
    "dropped.route": Packets = dropped(run, Cause::Route),
        "drops without a route, or above the MTU";
    "dropped.device": Packets = dropped(run, Cause::Device), "drops by the device at the other end";
    "retransmits": Packets = count(run.retransmits), "retransmitted by TCP";
    "timeouts": Events = count(run.timeouts), "retransmission timeouts of the flows";
    "kernel_timeouts": Events = run.kernel_timeouts.and_then(count),
        "timeouts by the kernel's counter (TCPTimeouts) of all hosts, with handshakes and programs";
    "drops_green": Packets = count(run.drops_green),
        "`drops` of green packets at phantom ports; with `tlt` the important ones";
    "green_share": Ratio = run.green_share,
        "share of green bytes in those that phantom ports accepted";
    "green_packet_share": Ratio = run.green_packet_share,
        "share of green packets in those that phantom ports with colors accepted";
    "red_max_bytes": Bytes = run.red_max_bytes.and_then(count),
        "highest backlog of red packets in any phantom port";
    "ports_max_bytes": Bytes = run.ports_max_bytes.and_then(count),
        "highest backlog of any phantom port";
    "tlt.important_share": Ratio = Some(run.tlt.as_ref()?.important_share()),
        "share of important packets in the data packets of hosts with `tlt`";
    "tlt.clock_packets": Packets = Some(run.tlt.as_ref()?.clock_packets as f64),
        "packets of one byte, sent if nothing else may leave";
    "tlt.forced_retransmits": Packets = Some(run.tlt.as_ref()?.forced_retransmits as f64),
        "lost segments, retransmitted beyond the window";
    "tlt.clock_bytes": Bytes = Some(run.tlt.as_ref()?.clock_bytes as f64),
        "payload of clock packets and forced retransmits: a byte, or a full segment, each";
    "tlt.extra_packet_share": Ratio = Some(run.tlt.as_ref()?.extra_packet_share()),
        "share of packets that TCP would not have sent, or not yet, in all packets of connections with `tlt`";
    "tlt.fallbacks": Events = Some(run.tlt.as_ref()?.fallbacks as f64),
        "connections that left TLT because the peer never echoed";
    "tlt.bad_marks": Packets = Some(run.tlt.as_ref()?.bad_marks as f64),
        "received packets with an impossible mark";
    "unorc.data_packets": Packets = of_unorc(run, "tx_data"), "data packets that tunnels sent";
    "unorc.parity_packets": Packets = of_unorc(run, "tx_parity"),
        "parity packets that tunnels sent";
    "unorc.feedback_packets": Packets = of_unorc(run, "tx_feedback"),
        "feedback of receivers to senders";
    "unorc.recovered": Packets = of_unorc(run, "recovered"), "lost packets, decoded from others";
    "unorc.nacks": Events = of_unorc(run, "nack_received"),
        "NACKs for blocks that their receiver continued without missing packets";
    "unorc.given_up": Events = of_unorc(run, "given_up"),
        "blocks abandoned with missing packets, which TCP retransmits";
    "unorc.reroutes": Events = of_unorc(run, "reroute"), "paths that a chooser replaced";
    "unorc.freezes": Events = of_unorc(run, "freeze"), "times that `reps` froze";
    "unorc.clean_share": Ratio = clean_share(run),
        "share of directions without a NACK in the tunnels' directions that carried data";
    "circuits.used": Ratio = run.circuits.as_ref()?.used,
        "of a rotor: bytes through the circuit switch over the capacity of its circuits by day, \
         for racks that used any; in whole weeks after `warmup`";
    "circuits.used_first": Ratio = run.circuits.as_ref()?.used_first,
        "`used` in the first ten of these weeks";
    "circuits.used_last": Ratio = run.circuits.as_ref()?.used_last, "`used` in the last ten";
    "circuits.used_least": Ratio = run.circuits.as_ref()?.used_least,
        "`used` in the week with the least";
    "circuits.weeks": Items = Some(run.circuits.as_ref()?.weeks as f64), "counted weeks";
    "circuits.packets": Packets = count(run.circuits.as_ref()?.packets),
        "packets through the circuit switch in the whole run";
    "circuits.night": Packets = count(run.circuits.as_ref()?.night),
        "packets lost because they came at night";
    "circuits.cut": Packets = count(run.circuits.as_ref()?.cut),
        "packets lost because their day ended before their last bit came";
    "circuits.misdirected": Packets = count(run.circuits.as_ref()?.misdirected),
        "packets lost because they were for another rack than their circuit's";
    "circuits.window_packets.mean": Packets = Some(run.circuits.as_ref()?.window_packets?.mean),
        "congestion windows of endless flows when the day of their racks begins; needs a series \
         of flows, and `sample` = a day and a night";
    "circuits.window_packets.p10": Packets = Some(run.circuits.as_ref()?.window_packets?.p10), "";
    "circuits.window_packets.p50": Packets = Some(run.circuits.as_ref()?.window_packets?.p50), "";
    "circuits.window_packets.p90": Packets = Some(run.circuits.as_ref()?.window_packets?.p90), "";
    "circuits.flow_week_mbps.p10": Mbps = Some(run.circuits.as_ref()?.flow_week_mbps?.p10),
        "goodput of each endless flow in each week; needs a series of flows";
    "circuits.flow_week_mbps.p50": Mbps = Some(run.circuits.as_ref()?.flow_week_mbps?.p50), "";
    "circuits.flow_week_mbps.p90": Mbps = Some(run.circuits.as_ref()?.flow_week_mbps?.p90), "";
    "circuits.flow_week_spread": Ratio = flow_week_spread(run),
        "(p90 - p10) / p50 of `flow_week_mbps`";
    "acceltor.unaccounted": Packets = Some(run.circuits.as_ref()?.unaccounted as f64),
        "packets into a rack's qdisc that are neither sent, dropped nor queued, for the worst \
         rack; 0 unless the kernel is wrong";
    "acceltor.high_packets": Packets = of_qdiscs(run, "packets_high"),
        "packets of mice, sent to the packet network";
    "acceltor.low_packets": Packets = of_qdiscs(run, "packets_low"),
        "packets of accelerated elephants, sent to the packet network";
    "acceltor.circuit_packets": Packets = of_qdiscs(run, "packets_circuit"),
        "packets sent to the circuit switch";
    "acceltor.drops_high": Packets = of_qdiscs(run, "drops_high"), "drops of mice without room";
    "acceltor.drops_low": Packets = of_qdiscs(run, "drops_low"),
        "drops of accelerated elephants without room";
    "acceltor.drops_queue": Packets = of_qdiscs(run, "drops_queue"),
        "drops without room in a day's queue";
    "acceltor.drops_blocked": Packets = of_qdiscs(run, "drops_blocked"),
        "drops of elephants K days or more before their day";
    "acceltor.drops_stale": Packets = of_qdiscs(run, "drops_stale"),
        "drops after the day of the packet";
    "acceltor.rescued": Packets = of_qdiscs(run, "rescued"),
        "packets that came too early and were accelerated";
    "acceltor.missed_days": Events = of_qdiscs(run, "missed_days"),
        "days with something queued and nothing sent";
    "link_rtt_error": Ratio = run.link_rtt_error,
        "measured over configured base RTT, minus 1, of the worst path";
    "virtual_s": S = Some(run.virtual_s), "time that the traffic took in the guest";
    "wall_s": WallS = Some(run.wall_s), "time that the guest took on this machine";
    "network.nodes": Items = Some(run.network.as_ref()?.nodes as f64),
        "hosts, switches and routers";
    "network.links": Items = Some(run.network.as_ref()?.links as f64), "";
    "network.routes": Items = Some(run.network.as_ref()?.routes as f64), "routes of all nodes";
    "network.build_wall_s": WallS = Some(run.network.as_ref()?.build_wall_s),
        "time that this machine took to build the network";
    "network.memory_mb": MiB = Some(run.network.as_ref()?.memory_mb),
        "memory that the guest took for the network";
    "network.memory_per_node_kb": KiB = Some(run.network.as_ref()?.memory_per_node_kb), "";
);

metrics!(COMPLETION: Completion, |of|
    "flows": Flows = count(of.flows as u64), "all flows";
    "warmup": Flows = count(of.warmup as u64),
        "flows planned to start before the scenario's `warmup`; the metrics below exclude them";
    "unfinished": Flows = count(of.unfinished as u64),
        "flows with a size that had not ended when the run ended; means exclude them";
    "timed_out": Flows = count(of.timed_out as u64), "flows with a retransmission timeout";
    "timeouts_per_1000_flows": Events = of.timeouts_per_1000_flows,
        "retransmission timeouts; a flow may have several";
    "fct_us.mean": Us = of.fct_us.mean,
        "planned start to last byte received, over the flows that ended; percentiles are nearest ranks";
    "fct_us.p50": Us = of.fct_us.p50, "";
    "fct_us.p95": Us = of.fct_us.p95, "";
    "fct_us.p99": Us = of.fct_us.p99, "";
    "fct_us.p999": Us = of.fct_us.p999, "";
    "fct_us.max": Us = of.fct_us.max, "";
    "slowdown.mean": Ratio = of.slowdown.mean, "FCT over the ideal of the flow's path";
    "slowdown.p50": Ratio = of.slowdown.p50, "";
    "slowdown.p95": Ratio = of.slowdown.p95, "";
    "slowdown.p99": Ratio = of.slowdown.p99, "";
    "slowdown.p999": Ratio = of.slowdown.p999, "";
    "slowdown.max": Ratio = of.slowdown.max, "";
    "fct_acked_us.mean": Us = of.fct_acked_us.mean,
        "planned start to the last byte's ACK at the sender; not for persistent connections";
    "fct_acked_us.p50": Us = of.fct_acked_us.p50, "";
    "fct_acked_us.p95": Us = of.fct_acked_us.p95, "";
    "fct_acked_us.p99": Us = of.fct_acked_us.p99, "";
    "fct_acked_us.p999": Us = of.fct_acked_us.p999, "";
    "fct_acked_us.max": Us = of.fct_acked_us.max, "";
    "slowdown_acked.mean": Ratio = of.slowdown_acked.mean,
        "`fct_acked_us` over the ideal of the path and its ACK";
    "slowdown_acked.p50": Ratio = of.slowdown_acked.p50, "";
    "slowdown_acked.p95": Ratio = of.slowdown_acked.p95, "";
    "slowdown_acked.p99": Ratio = of.slowdown_acked.p99, "";
    "slowdown_acked.p999": Ratio = of.slowdown_acked.p999, "";
    "slowdown_acked.max": Ratio = of.slowdown_acked.max, "";
);

metrics!(GROUP: Group, |of|
    "span_ms": Ms = of.span_ms,
        "first start to the last end, if all flows ended; the time of a collective's iteration";
    "goodput_mbps": Mbps = Some(of.goodput_mbps),
        "received payload of the group over the time of the whole run";
    "goodput_steady_mbps": Mbps = of.goodput_steady_mbps,
        "goodput in the second half of the time until the first flow ends";
    "offered_mbps": Mbps = of.offered_mbps,
        "payload of the group's flows per time from its first start to its last; of 100 flows or \
         more that have a size";
    "carried_mbps": Mbps = of.carried_mbps,
        "part of `offered_mbps` that arrived in that time; a flow without a series is spread \
         evenly over its own time";
    "fct_ms.mean": Ms = of.fct_ms.mean, "as for all flows";
    "fct_ms.p50": Ms = of.fct_ms.p50, "";
    "fct_ms.p99": Ms = of.fct_ms.p99, "";
    "fct_ms.max": Ms = of.fct_ms.max, "";
    "rtt_us.p50": Us = of.rtt_us.p50, "as for all flows";
    "rtt_us.p99": Us = of.rtt_us.p99, "";
);

metrics!(QUEUE: Queue, |of|
    "queue_bytes.mean": Bytes = of.queue_bytes.mean, "backlog of the port";
    "queue_bytes.p99": Bytes = of.queue_bytes.p99, "";
    "queue_bytes.max": Bytes = of.queue_bytes.max, "";
    "phantom_max_bytes": Bytes = of.phantom_max_bytes.and_then(count),
        "highest count of the phantom queue";
    "sent_packets": Packets = count(of.sent_packets), "";
    "drops": Packets = count(of.drops), "";
    "marks": Packets = count(of.marks), "";
);

metrics!(SAMPLES: Samples, |of|
    "n": Items = count(of.n as u64), "numbers that programs with `samples = \"NAME\"` wrote";
    "mean": Items = of.spread.mean, "their values, in the program's unit, as the guest saw them";
    "p50": Items = of.spread.p50, "";
    "p99": Items = of.spread.p99, "";
    "p999": Items = of.spread.p999, "";
    "max": Items = of.spread.max, "";
);

metrics!(CAPTURE: Content, |of|
    "packets": Packets = count(of.packets),
        "packets through the first watched port in both directions";
    "data_packets": Packets = count(of.data_packets), "packets with payload";
    "marked": Packets = count(of.marked), "packets with CE out of the port";
    "resent": Packets = count(of.resent), "data packets that had passed before";
    "ece": Packets = count(of.ece), "packets with ECE into the port, without SYNs";
    "cwr": Packets = count(of.cwr), "packets with CWR out of the port";
    "sacks": Packets = count(of.sacks), "packets with SACK blocks";
    "syns_resent": Packets = count(of.syns_resent), "SYNs that had passed before";
    "accecn_flows": Flows = count(of.accecn_flows), "flows whose SYN-ACK agrees to AccECN";
    "rfc3168_flows": Flows = count(of.rfc3168_flows),
        "flows whose SYN-ACK agrees to ECN of RFC 3168";
    "plain_flows": Flows = count(of.plain_flows), "flows without ECN";
);
