// SPDX-License-Identifier: GPL-2.0

//! What AccelToR's parameters have to be on a given network: "AccelToR: Accelerating TCP for
//! Circuit/Packet Hybrid Data Centers with Packet Scheduling", sections III-C to III-F, equations (1) to (7),
//! and what Linux's timers make of its minimum RTO.
//!
//! Inputs outside of [`Network::check`]'s bounds saturate and mean nothing.

use super::fixed::{NS_PER_S, NS_PER_US, PPM, US_PER_S, mul_div};
use core::num::NonZeroU64;

/// A hybrid network and its elephants.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// T: how long a circuit lasts.
    pub day_ns: u64,
    /// G: how long the circuit switch takes to reconfigure.
    pub night_ns: u64,
    /// N.
    pub racks: u64,
    /// Round trip by the packet network.
    pub packet_rtt_ns: u64,
    /// Round trip by the circuit.
    pub circuit_rtt_ns: u64,
    /// Of one port of the packet network.
    pub packet_bytes_per_s: u64,
    /// Of one circuit.
    pub circuit_bytes_per_s: u64,
    /// What mice take of the packet network.
    pub load_ppm: u64,
    /// A full segment as the queues count it.
    pub mss_bytes: u64,
    /// B: room of one queue of the calendar.
    pub queue_bytes: u64,
    /// Room of both queues to the packet network.
    pub priority_bytes: u64,
    /// F: elephants of one pair of racks.
    pub elephants: u64,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Impossible {
    /// A number is outside of its bounds.
    Bounds(&'static str),
    /// A day has fewer than two round trips of the circuit: (4) has no solution.
    ShortDay,
    /// The week is over before a blocked flow may be silent: (6) is not above 0.
    ShortWeek,
}

/// A number that can be, and its bounds.
type Bounds = (&'static str, fn(&Network) -> u64, u64, u64);

/// More bytes per second would be a mistake of units.
const MAX_BYTES_PER_S: u64 = 1_000_000_000_000_000;

const BOUNDS: [Bounds; 12] = [
    ("day", |it| it.day_ns, NS_PER_US, NS_PER_S),
    ("night", |it| it.night_ns, 0, NS_PER_S),
    ("racks", |it| it.racks, 2, 1_024),
    ("packet-rtt", |it| it.packet_rtt_ns, NS_PER_US, NS_PER_S),
    ("circuit-rtt", |it| it.circuit_rtt_ns, NS_PER_US, NS_PER_S),
    (
        "packet-rate",
        |it| it.packet_bytes_per_s,
        1,
        MAX_BYTES_PER_S,
    ),
    (
        "circuit-rate",
        |it| it.circuit_bytes_per_s,
        1,
        MAX_BYTES_PER_S,
    ),
    ("load", |it| it.load_ppm, 0, PPM),
    ("mss", |it| it.mss_bytes, 64, 65_535),
    ("queue", |it| it.queue_bytes, 2_000, 1_000_000_000),
    ("priority", |it| it.priority_bytes, 2_000, 2_000_000_000),
    ("elephants", |it| it.elephants, 1, 4_096),
];

impl Network {
    /// The network of the paper's evaluation, section IV-B; the packet network as fast as its code has it.
    pub const PAPER: Self = Self {
        day_ns: 240_000,
        night_ns: 20_000,
        racks: 50,
        packet_rtt_ns: 60_000,
        circuit_rtt_ns: 55_000,
        packet_bytes_per_s: 6_250_000_000,
        circuit_bytes_per_s: 10_000_000_000,
        load_ppm: 500_000,
        mss_bytes: 1_500,
        queue_bytes: 500_000,
        priority_bytes: 300_000,
        elephants: 80,
    };

    /// Refuses numbers that no network has.
    pub fn check(&self) -> Result<(), Impossible> {
        let wrong = |(_, number, min, max): &&Bounds| !(*min..=*max).contains(&number(self));
        match BOUNDS.iter().find(wrong) {
            Some((name, ..)) => Err(Impossible::Bounds(name)),
            None => Ok(()),
        }
    }

    /// S: a day and its night.
    pub fn slot_ns(&self) -> u64 {
        self.day_ns.saturating_add(self.night_ns)
    }

    /// W: until each pair of racks has had its day.
    pub fn week_ns(&self) -> u64 {
        self.slot_ns().saturating_mul(self.racks.saturating_sub(1))
    }

    /// What a circuit carries in a day.
    pub fn day_bytes(&self) -> u64 {
        mul_div(self.circuit_bytes_per_s, self.day_ns, NS_PER_S)
    }

    /// What is in flight on a circuit.
    pub fn circuit_bdp_bytes(&self) -> u64 {
        mul_div(self.circuit_bytes_per_s, self.circuit_rtt_ns, NS_PER_S)
    }

    /// From the first accelerated round trip to the start of the day: (m + 1) Rp.
    fn lead_ns(&self, accelerated: u64) -> u64 {
        let round_trips = accelerated.saturating_add(1);
        self.packet_rtt_ns.saturating_mul(round_trips)
    }
}

/// Quotient, rounded up; of a divisor that is 0, as of 1.
fn ceil_div(value: u64, divisor: u64) -> u64 {
    value.div_ceil(NonZeroU64::new(divisor).unwrap_or(NonZeroU64::MIN).get())
}

/// Quotient, rounded down; of a divisor that is 0, as of 1.
fn floor_div(value: u64, divisor: u64) -> u64 {
    value / NonZeroU64::new(divisor).unwrap_or(NonZeroU64::MIN)
}

/// 2^exponent.
fn power(exponent: u64) -> u64 {
    let exponent = u32::try_from(exponent).unwrap_or(u32::MAX);
    1_u64.checked_shl(exponent).unwrap_or(u64::MAX)
}

/// Segments of `round_trips` whose window starts at `first` and grows by one in each.
fn linear_growth(first: u64, round_trips: u64) -> u64 {
    let grown = round_trips.saturating_mul(round_trips.saturating_sub(1)) >> 1;
    first.saturating_mul(round_trips).saturating_add(grown)
}

/// The parameters, as the paper derives them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// n: round trips of the circuit in a day.
    pub round_trips_per_day: u64,
    /// m: round trips that are accelerated.
    pub accelerated_round_trips: u64,
    /// K: queues of the calendar: those of (1), today's and a safe margin.
    pub queues: u64,
    /// Window of a flow in segments as its day starts.
    pub window_at_start: u64,
    /// The same as its day ends.
    pub window_at_end: u64,
    /// Segments that an accelerated flow sends in its day.
    pub day_segments: u64,
    /// Those of one that is not accelerated (5); None where (5) has no solution.
    pub day_segments_unaccelerated: Option<u64>,
    /// (6): a blocked flow is silent until it is to be accelerated.
    pub rto_min_ns: u64,
    /// (7): the same of Blocking, which accelerates nothing.
    pub rto_min_blocking_ns: u64,
    /// Elephants of a pair of racks whose windows fit into a queue, III-F.
    pub most_elephants: u64,
    /// Of all queues.
    pub buffer_bytes: u64,
    /// What the elephants put onto the packet network, averaged over a slot.
    pub accelerated_bytes_per_s: u64,
    /// The least of that with which a day can be full.
    pub needed_bytes_per_s: u64,
    /// What mice leave of the packet network.
    pub spare_bytes_per_s: u64,
    /// What the elephants offer to a day.
    pub offered_bytes: u64,
}

impl Plan {
    /// The plan of a network.
    pub fn new(network: &Network) -> Result<Self, Impossible> {
        network.check()?;
        let n = floor_div(network.day_ns, network.circuit_rtt_ns);
        let m = accelerated(n).ok_or(Impossible::ShortDay)?;
        let rto_min_blocking_ns = network.week_ns().saturating_sub(network.day_ns);
        let rto_min_ns = rto_min_blocking_ns.saturating_sub(network.lead_ns(m));
        if rto_min_ns == 0 {
            return Err(Impossible::ShortWeek);
        }
        let window = power(m);
        let slot_ns = network.slot_ns();
        let segment_rate = |segments: u64| {
            let bytes = segments.saturating_mul(network.mss_bytes);
            mul_div(bytes, NS_PER_S, slot_ns)
        };
        let queues = ceil_div(network.lead_ns(m), slot_ns).saturating_add(2);
        let day_segments = linear_growth(window, n);
        let accelerated_segments = window.saturating_sub(1);
        // As many flows as fill a day, each with its accelerated segments.
        let needed = mul_div(network.circuit_bytes_per_s, network.day_ns, slot_ns);
        Ok(Self {
            round_trips_per_day: n,
            accelerated_round_trips: m,
            queues,
            window_at_start: window,
            window_at_end: window.saturating_add(n),
            day_segments,
            day_segments_unaccelerated: unaccelerated_segments(n),
            rto_min_ns,
            rto_min_blocking_ns,
            most_elephants: floor_div(
                network.queue_bytes,
                window.saturating_mul(network.mss_bytes),
            ),
            buffer_bytes: network
                .queue_bytes
                .saturating_mul(queues)
                .saturating_add(network.priority_bytes),
            accelerated_bytes_per_s: segment_rate(
                network.elephants.saturating_mul(accelerated_segments),
            ),
            needed_bytes_per_s: mul_div(needed, accelerated_segments, day_segments),
            spare_bytes_per_s: mul_div(
                network.packet_bytes_per_s,
                PPM.saturating_sub(network.load_ppm),
                PPM,
            ),
            offered_bytes: network
                .elephants
                .saturating_mul(day_segments)
                .saturating_mul(network.mss_bytes),
        })
    }
}

/// (4): m with 2^(m-1) < n <= 2^m and m > 0, which Theorem 1 says is the only one.
fn accelerated(round_trips_per_day: u64) -> Option<u64> {
    match round_trips_per_day {
        0 | 1 => None,
        n => Some(u64::from(
            u64::BITS.saturating_sub(n.saturating_sub(1).leading_zeros()),
        )),
    }
}

/// (5): x + y = n with 2^(x-1) < y <= 2^x; the segments of x round trips in slow start and y after it.
fn unaccelerated_segments(n: u64) -> Option<u64> {
    let fits = |x: &u64| {
        let y = n.saturating_sub(*x);
        y > 0 && power(x.saturating_sub(1)) < y && y <= power(*x)
    };
    let x = (1..u64::from(u64::BITS).min(n)).find(fits)?;
    let y = n.saturating_sub(x);
    Some(
        power(x)
            .saturating_sub(1)
            .saturating_add(linear_growth(y, y)),
    )
}

/// The timers of a sender that runs Linux.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// CONFIG_HZ.
    pub hz: u64,
    /// The network is slower than the one that is planned for by this factor, so that timers are finer.
    pub scale: u64,
}

/// The result of [`Plan`]'s (6) with Linux's timers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostPlan {
    /// A jiffy in the network's time, rounded up.
    pub jiffy_ns: u64,
    /// R: the RTO that a blocked flow should have.
    pub rto_jiffies: u64,
    /// g: by so many more a timer of that length may fire.
    pub granularity_jiffies: u64,
    /// The sysctl net.ipv4.tcp_rto_min_us, in the host's own time.
    pub rto_min_us: u64,
    /// K with which a flow is accelerated whenever its timer fires.
    pub queues: u64,
    /// Elephants whose windows fit into a queue although some resume early.
    pub most_elephants: u64,
}

impl HostPlan {
    /// None where a jiffy is too long for the network's week.
    pub fn new(network: &Network, plan: &Plan, timers: Timers) -> Option<Self> {
        let per_jiffy = timers.hz.checked_mul(timers.scale).filter(|n| *n != 0)?;
        // In units of 1/per_jiffy ns, so that a jiffy is a whole number.
        let units = |ns: u64| ns.saturating_mul(per_jiffy);
        let jiffy = NS_PER_S;
        let lead_ns = network.lead_ns(plan.accelerated_round_trips);
        // From the last ACK, which may come up to a round trip after the night has begun.
        let silent_ns = plan.rto_min_ns.checked_sub(network.circuit_rtt_ns)?;
        let silent_jiffies = floor_div(units(silent_ns), jiffy);
        let (rto_jiffies, granularity_jiffies) = longest_timer(silent_jiffies)?;
        // Where the next longer timer is too coarse, it is more than the granularity.
        let spread_jiffies = silent_jiffies.saturating_sub(rto_jiffies);
        let spread = spread_jiffies.saturating_mul(jiffy);
        let early = units(network.circuit_rtt_ns).saturating_add(spread);
        let before_day = units(lead_ns).saturating_add(early);
        let extra_segments = ceil_div(early, units(network.packet_rtt_ns));
        let window = plan.window_at_start.saturating_add(extra_segments);
        // srtt is added to what the sysctl says (tcp_rtt_estimator), in whole jiffies.
        let srtt_jiffies = ceil_div(units(network.packet_rtt_ns), jiffy);
        let rto_min_jiffies = rto_jiffies.checked_sub(srtt_jiffies).filter(|n| *n != 0)?;
        Some(Self {
            jiffy_ns: ceil_div(jiffy, per_jiffy),
            rto_jiffies,
            granularity_jiffies,
            rto_min_us: mul_div(rto_min_jiffies, US_PER_S, timers.hz),
            queues: ceil_div(before_day, units(network.slot_ns())).saturating_add(2),
            most_elephants: floor_div(
                network.queue_bytes,
                window.saturating_mul(network.mss_bytes),
            ),
        })
    }

    /// The scale up to 100 with which the calendar has the fewest queues, and among these the most elephants.
    pub fn best_scale(network: &Network, plan: &Plan, hz: u64) -> Option<(u64, Self)> {
        let mut best: Option<(u64, Self)> = None;
        for scale in 1..=100 {
            let Some(host) = Self::new(network, plan, Timers { hz, scale }) else {
                continue;
            };
            let better = best.is_none_or(|(_, best)| {
                host.queues < best.queues
                    || host.queues == best.queues && host.most_elephants > best.most_elephants
            });
            if better {
                best = Some((scale, host));
            }
        }
        best
    }
}

/// The longest timer that has fired after `jiffies`, and its granularity: a timer of R jiffies fires in
/// (R, R + g] (`calc_wheel_index()` of kernel/time/timer.c: 64 buckets a level, each level 8 times coarser).
fn longest_timer(jiffies: u64) -> Option<(u64, u64)> {
    let (mut end, mut granularity) = (63_u64, 1_u64);
    let mut found = None;
    // Nine levels, as the kernel has; what is beyond the last fires as if it were of it.
    for _ in 0..9 {
        let longest = jiffies
            .saturating_sub(granularity)
            .min(end.saturating_sub(1));
        // A level begins where the one before it ends.
        let first = if granularity == 1 { 1 } else { end >> 3 };
        if longest >= first {
            found = Some((longest, granularity));
        }
        end = end.saturating_mul(8);
        granularity = granularity.saturating_mul(8);
    }
    found
}

#[cfg(test)]
#[path = "tests/acceltor_plan.rs"]
mod tests;
