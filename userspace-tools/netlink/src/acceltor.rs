// SPDX-License-Identifier: GPL-2.0
//! Options and statistics of the qdisc `acceltor`: `modules/include/uapi/linux/pkt_acceltor.h` in Rust.
//!
//! The header defines the ids; the tests below compare.

mod bounds;
mod clock;
mod lists;
pub mod words;

pub use clock::ClockId;
pub use lists::{NESTED_IDS, Peers, Prefix};

use crate::{
    codec::{named_values, options, xstats},
    qdisc::QdiscState,
};

/// TCA_KIND.
pub const KIND: &str = "acceltor";

named_values! {
    /// Handling of a packet whose calendar queue is full.
    Overflow {
        /// Drop it.
        Drop = "drop",
        /// Before its day, accelerate it.
        Lp = "lp",
    }
    /// Handling of elephants without a circuit.
    Policy {
        /// Accelerate them before their day.
        AccelTor = "acceltor",
        /// Queue them at their rack.
        Blocking = "blocking",
        /// Send them through the packet network, as mice.
        Unblocking = "unblocking",
        /// Always send them through the packet network.
        Packet = "packet",
    }
    /// Detection of elephants.
    Detect {
        /// Largest flows, by a count-min sketch.
        Sketch = "sketch",
        /// Flows with certain DSCPs.
        Dscp = "dscp",
        /// Flows that a tc filter or the priority selects.
        Filter = "filter",
    }
}

options! {
    /// Number of racks (N).
    racks: u32 = 2 "TCA_ACCELTOR_RACKS",
    /// Number of this rack, from 0.
    rack: u32 = 3 "TCA_ACCELTOR_RACK",
    /// Duration of a circuit.
    day_ns: u64 = 4 "TCA_ACCELTOR_DAY",
    /// Time between two circuits.
    night_ns: u64 = 5 "TCA_ACCELTOR_NIGHT",
    /// Start of day 0 on the clock.
    base_time_ns: i64 = 6 "TCA_ACCELTOR_BASE_TIME",
    /// Clock of the schedule.
    clockid: ClockId = 7 "TCA_ACCELTOR_CLOCKID",
    /// Rate of a circuit.
    circuit_bytes_per_s: u64 = 8 "TCA_ACCELTOR_CIRCUIT_RATE64",
    /// Rate of the port to the packet network; 0 = not shaped.
    packet_bytes_per_s: u64 = 9 "TCA_ACCELTOR_PACKET_RATE64",
    /// RTT of the packet network.
    rtt_ns: u64 = 10 "TCA_ACCELTOR_RTT",
    /// Number of calendar queues (K).
    k: u32 = 11 "TCA_ACCELTOR_QUEUES",
    /// Limit of the mice's queue.
    high_limit_bytes: u32 = 12 "TCA_ACCELTOR_HIGH_LIMIT",
    /// Limit of the accelerated elephants' queue.
    low_limit_bytes: u32 = 13 "TCA_ACCELTOR_LOW_LIMIT",
    /// Limit of a calendar queue.
    limit_bytes: u32 = 14 "TCA_ACCELTOR_LIMIT",
    /// Most elephants per pair of racks.
    elephants: u32 = 15 "TCA_ACCELTOR_ELEPHANTS",
    /// Idle time after which a flow stops being an elephant; 0 = 2 weeks.
    idle_ns: u64 = 16 "TCA_ACCELTOR_IDLE",
    /// Flow size from which the sketch detects an elephant.
    sketch_bytes: u32 = 17 "TCA_ACCELTOR_SKETCH_BYTES",
    /// Handling of packets for a full calendar queue.
    overflow: Overflow = 18 "TCA_ACCELTOR_OVERFLOW",
    /// Accelerate packets that come too early.
    rescue: bool = 19 "TCA_ACCELTOR_RESCUE",
    /// Time before the end of a day in which nothing is sent.
    guard_ns: u64 = 20 "TCA_ACCELTOR_GUARD",
    /// Time from sending a packet until it is at the circuit switch.
    lead_ns: u64 = 21 "TCA_ACCELTOR_LEAD",
    /// Backlog of the packet network's queues above which packets are marked; 0 = never.
    ecn_bytes: u32 = 22 "TCA_ACCELTOR_ECN",
    /// Handling of elephants without a circuit.
    policy: Policy = 23 "TCA_ACCELTOR_POLICY",
    /// Detection of elephants.
    detect: Detect = 24 "TCA_ACCELTOR_DETECT",
    /// DSCPs whose packets are elephants: bit n is DSCP n.
    dscp: u64 = 25 "TCA_ACCELTOR_DSCP",
    /// Address prefixes of racks.
    prefixes: Vec<Prefix> = 26 "TCA_ACCELTOR_PREFIXES",
    /// Peer rack of each day.
    peers: Peers = 27 "TCA_ACCELTOR_PEERS",
}

xstats! {
    /// Received packets.
    packets_in,
    /// Received bytes.
    bytes_in,
    /// Mice sent to the packet network, packets.
    packets_high,
    /// Mice sent to the packet network, bytes.
    bytes_high,
    /// Accelerated elephants sent to the packet network, packets.
    packets_low,
    /// Accelerated elephants sent to the packet network, bytes.
    bytes_low,
    /// Packets sent to the circuit switch.
    packets_circuit,
    /// Bytes sent to the circuit switch.
    bytes_circuit,
    /// Queued packets.
    packets_queued,
    /// Queued bytes of mice.
    backlog_high,
    /// Queued bytes of accelerated elephants.
    backlog_low,
    /// Bytes queued for the current or next day.
    backlog_today,
    /// Bytes queued for later days.
    backlog_later,
    /// Drops: mice's queue full.
    drops_high,
    /// Drops: accelerated elephants' queue full.
    drops_low,
    /// Drops: calendar queue full.
    drops_queue,
    /// Drops: K days or more before their day.
    drops_blocked,
    /// Drops: day over.
    drops_stale,
    /// Drops: schedule or clock changed.
    drops_reschedule,
    /// Drops: device set down.
    drops_reset,
    /// Drops: by a filter, or not splittable.
    drops_filter,
    /// Days that have begun.
    days,
    /// Days with queued packets on which nothing was sent.
    missed_days,
    /// Longest time from a day's start to the first packet that waited for it.
    late_max_ns,
    /// Current elephants.
    elephants,
    /// Flows that became elephants.
    promoted,
    /// Flows that stopped being elephants.
    evicted,
    /// Early packets that were accelerated.
    rescued,
    /// Times that the clock was set back.
    clock_jumps,
    /// Packets marked CE.
    marked,
}

impl Xstats {
    /// Decodes the statistics of a dumped qdisc; None for another kind.
    pub fn of(state: &QdiscState) -> Option<Self> {
        (state.kind == KIND).then(|| Self::decode(&state.xstats))
    }

    /// Returns the number of packets that are not accounted for; 0 unless the kernel is wrong.
    pub fn unaccounted(&self) -> i64 {
        let out = self.packets_high + self.packets_low + self.packets_circuit + self.packets_queued;
        let drops = self.drops_high
            + self.drops_low
            + self.drops_queue
            + self.drops_blocked
            + self.drops_stale
            + self.drops_reschedule
            + self.drops_reset
            + self.drops_filter;
        self.packets_in as i64 - out as i64 - drops as i64
    }
}

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode as _, Yaml};

    use super::*;
    use crate::codec::tests::{members_of, of, text};

    const HEADER: &str = include_str!("../../../modules/include/uapi/linux/pkt_acceltor.h");

    #[test]
    fn ids_match_the_header() {
        let mut ids = members_of(HEADER, "enum {").into_iter().enumerate().skip(2);
        for (name, id) in IDS {
            assert_eq!(ids.next(), Some((usize::from(*id), *name)));
        }
        assert_eq!(ids.next().map(|(_, name)| name), Some("__TCA_ACCELTOR_MAX"));
    }

    #[test]
    fn xstats_match_the_header() {
        let members = members_of(HEADER, "struct tc_acceltor_xstats {");
        assert_eq!(members, Xstats::FIELDS);
    }

    #[test]
    fn enums_match_the_header() {
        for (name, names) in
            [("overflow", Overflow::NAMES), ("policy", Policy::NAMES), ("detect", Detect::NAMES)]
        {
            let prefix = format!("TC_ACCELTOR_{}_", name.to_uppercase());
            let expected = names.iter().map(|name| format!("{prefix}{}", name.to_uppercase()));
            let found = members_of(HEADER, &format!("enum tc_acceltor_{name} {{"));
            assert!(found.into_iter().eq(expected), "{name}");
        }
    }

    #[test]
    fn the_ynl_specification_matches_the_options() {
        const SPECIFICATION: &str =
            include_str!("../../../modules/Documentation/netlink/specs/acceltor.yaml");
        let documents = Yaml::load_from_str(SPECIFICATION).unwrap();
        let specification = &documents[0];
        let sets = &specification["attribute-sets"];
        let attributes = of(sets, "acceltor-attrs", "attributes");
        assert_eq!(text(attributes[0], "name"), Some("pad"));
        assert_eq!(attributes.len(), IDS.len() + 1);
        for (((name, _), ynl_type), described) in IDS.iter().zip(YNL_TYPES).zip(&attributes[1..]) {
            let described_as = text(described, "name").unwrap().to_uppercase();
            assert_eq!(format!("TCA_ACCELTOR_{}", described_as.replace('-', "_")), *name);
            assert_eq!(text(described, "type"), Some(*ynl_type), "{name}");
        }
        let definitions = &specification["definitions"];
        for (name, names) in [
            ("acceltor-overflow", Overflow::NAMES),
            ("acceltor-policy", Policy::NAMES),
            ("acceltor-detect", Detect::NAMES),
        ] {
            let entries: Vec<_> = of(definitions, name, "entries")
                .into_iter()
                .filter_map(|entry| entry.as_str())
                .collect();
            assert_eq!(entries, names, "{name}");
        }
        let fields: Vec<_> = of(definitions, "tc-acceltor-xstats", "members")
            .into_iter()
            .map(|field| {
                assert_eq!(text(field, "type"), Some("u64"));
                text(field, "name").unwrap().replace('-', "_")
            })
            .collect();
        assert_eq!(fields, Xstats::FIELDS);
    }

    #[test]
    fn unaccounted_packets_are_counted() {
        let xstats = Xstats {
            packets_in: 10,
            packets_circuit: 3,
            packets_queued: 2,
            drops_stale: 4,
            ..Default::default()
        };
        assert_eq!(xstats.unaccounted(), 1);
    }
}
