// SPDX-License-Identifier: GPL-2.0

// Options of acceltor, in tc's order. The module and userspace's codec include this list: per option its
// field, its type and bounds, its default, its name and form in tc, and its attribute.
pub(crate) const MAX_RACKS: i64 = 1_024;
/// From one packet to 1 GB.
const LIMIT: Bounds = bytes(2_000, 1_000_000_000);

options! {
    /// Number of racks.
    racks: U32(count(2, MAX_RACKS)) = 2, "racks" Number, TCA_ACCELTOR_RACKS 2;
    /// Number of this rack, from 0.
    rack: U32(count(0, MAX_RACKS - 1)) = 0, "rack" Number, TCA_ACCELTOR_RACK 3;
    /// Address prefixes of racks.
    prefixes: Other(Vec<Prefix>) = 0, "prefix" Prefixes, TCA_ACCELTOR_PREFIXES 26;
    /// Duration of a circuit.
    day_ns: U64(ns(NS_PER_US, NS_PER_S)) = 240_000, "day" Time, TCA_ACCELTOR_DAY 4;
    /// Time between two circuits.
    night_ns: U64(ns(0, NS_PER_S)) = 20_000, "night" Time, TCA_ACCELTOR_NIGHT 5;
    /// Start of day 0 on the clock, ns.
    base_time_ns: Bits64(i64) = 0, "base-time" Number, TCA_ACCELTOR_BASE_TIME 6;
    /// Clock of the schedule; cannot be changed later.
    clockid: Clock = CLOCK_TAI, "clockid" Named, TCA_ACCELTOR_CLOCKID 7;
    /// Peer rack of each day of the week; by default (rack + 1 + day) mod racks.
    peers: Other(Peers) = 0, "peers" PeersOrAuto, TCA_ACCELTOR_PEERS 27;
    /// Rate of a circuit.
    circuit_bytes_per_s: U64(rate(1)) = 10_000_000_000,
        "ocs-rate" Rate, TCA_ACCELTOR_CIRCUIT_RATE64 8;
    /// Rate of the port to the packet network; 0 = not shaped.
    packet_bytes_per_s: U64(rate(0)) = 0, "eps-rate" Rate, TCA_ACCELTOR_PACKET_RATE64 9;
    /// RTT of the packet network.
    rtt_ns: U64(ns(NS_PER_US, NS_PER_S)) = 60_000, "rtt" Time, TCA_ACCELTOR_RTT 10;
    /// Number of queues of the calendar.
    k: U32(count(1, MAX_QUEUES as i64)) = 3, "k" Number, TCA_ACCELTOR_QUEUES 11;
    /// Limit of the mice's queue.
    high_limit_bytes: U32(LIMIT) = 150_000, "hp" Bytes, TCA_ACCELTOR_HIGH_LIMIT 12;
    /// Limit of the accelerated elephants' queue.
    low_limit_bytes: U32(LIMIT) = 150_000, "lp" Bytes, TCA_ACCELTOR_LOW_LIMIT 13;
    /// Limit of a queue of the calendar.
    limit_bytes: U32(LIMIT) = 500_000, "limit" Bytes, TCA_ACCELTOR_LIMIT 14;
    /// Handling of elephants without a circuit.
    policy: Enum(Policy, TC_ACCELTOR_POLICY_PACKET) = TC_ACCELTOR_POLICY_ACCELTOR,
        "policy" Named, TCA_ACCELTOR_POLICY 23;
    /// Detection of elephants.
    detect: Enum(Detect, TC_ACCELTOR_DETECT_FILTER) = TC_ACCELTOR_DETECT_SKETCH,
        "detect" Named, TCA_ACCELTOR_DETECT 24;
    /// DSCPs of elephants.
    dscp: Bits64(u64) = 0, "dscp" Dscps, TCA_ACCELTOR_DSCP 25;
    /// Most elephants per pair of racks.
    elephants: U32(count(0, 4_096)) = 80, "elephants" Number, TCA_ACCELTOR_ELEPHANTS 15;
    /// Idle time after which an elephant is a mouse; 0 = 2 weeks.
    idle_ns: U64(ns(0, 3_600 * NS_PER_S)) = 0, "idle" Time, TCA_ACCELTOR_IDLE 16;
    /// Size from which the sketch takes a flow for an elephant.
    sketch_bytes: U32(bytes(1, MAX_BYTES)) = 225_000,
        "sketch-bytes" Bytes, TCA_ACCELTOR_SKETCH_BYTES 17;
    /// Drop or accelerate packets for a full queue.
    overflow: Enum(Overflow, TC_ACCELTOR_OVERFLOW_LP) = TC_ACCELTOR_OVERFLOW_DROP,
        "overflow" Named, TCA_ACCELTOR_OVERFLOW 18;
    /// Accelerate elephants that come too early.
    rescue: Bool = 0, "rescue" Switch, TCA_ACCELTOR_RESCUE 19;
    /// End of a day in which nothing is sent.
    guard_ns: U64(ns(0, NS_PER_S)) = 0, "guard" Time, TCA_ACCELTOR_GUARD 20;
    /// Delay to the circuit switch.
    lead_ns: U64(ns(0, NS_PER_S)) = 0, "lead" Time, TCA_ACCELTOR_LEAD 21;
    /// Backlog of the packet network's queues above which they mark; 0 = never.
    ecn_bytes: U32(bytes(0, MAX_BYTES)) = 0, "ecn" Bytes, TCA_ACCELTOR_ECN 22;
}
