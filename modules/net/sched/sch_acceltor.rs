// SPDX-License-Identifier: GPL-2.0

//! AccelToR: the port of a rack with two uplinks, one to a packet network and one to an optical circuit
//! switch with a timetable.
//!
//! Mice use the packet network. Elephants wait for the day of their rack in a calendar of K queues, of which
//! only today's sends; a few round trips before its day, an elephant is accelerated: it uses the packet
//! network behind the mice. Source: "AccelToR: Accelerating TCP for Circuit/Packet Hybrid Data Centers with
//! Packet Scheduling", sections III-B, III-C and III-G, Algorithm 1. uapi/linux/pkt_acceltor.h is the netlink
//! interface, and algo/acceltor.rs has the rules. A packet's queue mapping names its uplink: a bond has a
//! slave for each.
//!
//! Decisions where the paper is silent or differs:
//!
//! 1. Packets left in today's queue at nightfall are dropped, because they would reach another rack. With
//!    blocking a queue belongs to its rack and keeps them; with unblocking they use the packet network.
//! 2. A packet is sent to the circuit switch only if its transmission plus `guard` ends before the day does.
//!    `lead` is the delay to the switch. Packets longer than a day are dropped, or with unblocking use the
//!    packet network.
//! 3. Pure ACKs, SYNs, FINs and RSTs without payload, and packets other than TCP are mice, whatever their
//!    flow.
//! 4. At night too, an elephant's place depends on the time until its day; Algorithm 1 agrees if the night is
//!    shorter than an RTT of the packet network.
//! 5. A full queue drops; with `overflow lp` elephants before their day are accelerated instead, as in the
//!    paper's code.
//! 6. With `rescue on`, an elephant's packet that comes K days early is accelerated if the flow had no day
//!    yet, or if its first drop was at least two days ago: a retransmission by an early timer. Only the
//!    paper's code has such a rule.
//! 7. A flow becomes an elephant at night, by its bytes in a count-min sketch that halves every 8 weeks, if
//!    its rack has fewer than `elephants`. After 2 idle weeks it becomes a mouse. Pure ACKs are not counted.
//! 8. The calendar advances with each elephant's packet, and with any packet while one waits; no timer moves
//!    it. If the clock was set back or the schedule changed, packets whose day changed are dropped.
//! 9. Before the base time there is no circuit: elephants use the packet network, behind the mice.
//! 10. If a timer is late, the qdisc sends the delayed packets faster in the rest of the day.
//! 11. Bursts are split into segments, because a burst may outlast the day.
//! 12. After a packet for the circuit switch the packet network has its turn: a device requests packets while
//!     it has room, and if its circuit is slower than `ocs-rate`, mice would wait for the end of the day.
//! 13. The kernel gets one packet at a time. From a batch the device may take only the first, and take the
//!     others later: at night, or on another rack's day.

use kernel::prelude::*;

#[path = "acceltor_options.rs"]
mod acceltor_options;
#[path = "../../algo/mod.rs"]
mod algo;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "settings.rs"]
mod settings;

use acceltor_options::{Options, Prefix, Request};
use algo::{
    acceltor::{
        label_of_queue, next_label, place, Elephant, Elephants, Moment, Place, Policy, Schedule,
        Sketch, MAX_QUEUES, NO_DAY,
    },
    fixed::{mul_div, NS_PER_S},
    shaper::Shaper,
};
use core::{mem, num::NonZeroU64};
use kernel_api::{
    bindings::{
        xdc_acceltor_accelerate, xdc_acceltor_cause, xdc_acceltor_day, xdc_acceltor_drop,
        xdc_acceltor_elephant, xdc_acceltor_reason, XDC_ACCELTOR_BASE, XDC_ACCELTOR_DROP_BLOCKED,
        XDC_ACCELTOR_DROP_FILTER, XDC_ACCELTOR_DROP_HIGH, XDC_ACCELTOR_DROP_LOW,
        XDC_ACCELTOR_DROP_QUEUE, XDC_ACCELTOR_DROP_RESCHEDULE, XDC_ACCELTOR_DROP_STALE,
        XDC_ACCELTOR_EARLY, XDC_ACCELTOR_FULL, XDC_ACCELTOR_RESCUE,
    },
    netlink::{Extack, Message, Nest},
    qdisc::{
        now_ns as monotonic_ns, Ce, Classified, Clock, DropReason, Packet, PacketList, Qdisc,
        Queue, Registration, RtnlQdisc, Verdict,
    },
    random::random_u64,
    trace::{tracepoint, Tracepoint},
    uapi::*,
};

module! {
    type: Module,
    name: "sch_acceltor",
    authors: ["xdc developers"],
    description: "AccelToR: priority and calendar queues of a rack with a circuit switch",
    license: "GPL v2",
    alias: ["net-sch-acceltor"],
}

struct Module {
    _registration: Registration<Port>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _registration: Registration::new(())?,
        })
    }
}

/// Transmit queue, and queue_id of a bond's slave, of the packet network.
const PACKET_QUEUE: u16 = 1;
/// Transmit queue and queue_id of the circuit switch.
const CIRCUIT_QUEUE: u16 = 2;

/// Weeks in which the sketch halves.
const FORGET_WEEKS: u64 = 8;
/// Idle weeks after which an elephant becomes a mouse, unless `idle` is set.
const IDLE_WEEKS: u64 = 2;
/// Slots from a flow's first drop until it may be rescued.
const RESCUE_SLOTS: u64 = 2;

/// [`Options`] in the form that the packet path uses.
#[derive(Clone, Copy)]
struct Config {
    schedule: Schedule,
    clock: Clock,
    policy: Policy,
    /// K; with blocking, one queue per rack.
    queues: NonZeroU64,
    days_per_week: NonZeroU64,
    rtt_ns: u64,
    guard_ns: u64,
    circuit_bytes_per_s: u64,
    /// 0 = not shaped.
    packet_bytes_per_s: u64,
    high_limit_bytes: u64,
    low_limit_bytes: u64,
    limit_bytes: u64,
    ecn_bytes: u64,
    accelerate_overflow: bool,
    rescue: bool,
    detect: u32,
    dscp: u64,
    most_of_rack: u16,
    sketch_bytes: u32,
    idle_ns: u64,
    /// Days in which the sketch halves.
    forget_days: NonZeroU64,
}

impl Config {
    fn new(options: &Options) -> Self {
        let number = |id| options.unsigned(id);
        let schedule = options.schedule();
        let days_per_week = schedule.days_per_week();
        let policy = options.policy();
        let queues = match policy {
            Policy::Blocking => days_per_week.get(),
            _ => number(TCA_ACCELTOR_QUEUES),
        };
        let ecn_bytes = match number(TCA_ACCELTOR_ECN) {
            0 => u64::MAX,
            bytes => bytes,
        };
        let idle_ns = match number(TCA_ACCELTOR_IDLE) {
            0 => schedule.week_ns().saturating_mul(IDLE_WEEKS),
            ns => ns,
        };
        Self {
            schedule,
            clock: options.clock(),
            policy,
            queues: NonZeroU64::new(queues).unwrap_or(NonZeroU64::MIN),
            days_per_week,
            rtt_ns: number(TCA_ACCELTOR_RTT),
            guard_ns: number(TCA_ACCELTOR_GUARD),
            circuit_bytes_per_s: number(TCA_ACCELTOR_CIRCUIT_RATE64),
            packet_bytes_per_s: number(TCA_ACCELTOR_PACKET_RATE64),
            high_limit_bytes: number(TCA_ACCELTOR_HIGH_LIMIT),
            low_limit_bytes: number(TCA_ACCELTOR_LOW_LIMIT),
            limit_bytes: number(TCA_ACCELTOR_LIMIT),
            ecn_bytes,
            accelerate_overflow: options.choice(TCA_ACCELTOR_OVERFLOW) == TC_ACCELTOR_OVERFLOW_LP,
            rescue: options.choice(TCA_ACCELTOR_RESCUE) != 0,
            detect: options.choice(TCA_ACCELTOR_DETECT),
            dscp: options.number(TCA_ACCELTOR_DSCP) as u64,
            most_of_rack: number(TCA_ACCELTOR_ELEPHANTS) as u16,
            sketch_bytes: number(TCA_ACCELTOR_SKETCH_BYTES) as u32,
            idle_ns,
            forget_days: days_per_week
                .saturating_mul(NonZeroU64::new(FORGET_WEEKS).unwrap_or(NonZeroU64::MIN)),
        }
    }

    /// Returns the transmission time on a circuit, rounded up.
    fn circuit_ns(&self, len_bytes: u32) -> u64 {
        mul_div(len_bytes.into(), NS_PER_S, self.circuit_bytes_per_s).saturating_add(1)
    }
}

/// Allocations whose size depends on options, made before the queue is locked.
struct Tables {
    day_of_rack: KVVec<u16>,
    prefixes: KVVec<Prefix>,
    flows: KVVec<Elephant>,
    flows_of_rack: KVVec<u16>,
    sketch: KVVec<u32>,
}

impl Tables {
    fn new(options: &Options) -> Result<Self> {
        let flows = Elephants::slots_for(options.most_elephants());
        Ok(Self {
            day_of_rack: options.day_of_rack()?,
            prefixes: options.copy()?.prefixes,
            flows: KVVec::from_elem(Elephant::default(), flows, GFP_KERNEL_ACCOUNT)?,
            flows_of_rack: KVVec::from_elem(0, usize::from(options.racks()), GFP_KERNEL_ACCOUNT)?,
            sketch: KVVec::from_elem(0, Sketch::CELLS, GFP_KERNEL_ACCOUNT)?,
        })
    }

    fn elephants(&mut self) -> Elephants<'_> {
        Elephants {
            slots: &mut self.flows,
            counts: &mut self.flows_of_rack,
        }
    }

    /// Returns the rack of an address and its day of the week; None for the own rack.
    fn rack_of(&self, addr: u128) -> Option<(u16, u16)> {
        let after = self.prefixes.partition_point(|it| it.first <= addr);
        let prefix = self.prefixes.get(after.checked_sub(1)?)?;
        let day = *self.day_of_rack.get(usize::from(prefix.rack))?;
        (addr <= prefix.last && day != NO_DAY).then_some((prefix.rack, day))
    }
}

/// A queue of the calendar.
#[derive(Default)]
struct Later {
    list: PacketList,
    /// Label of its day.
    label: u64,
    /// A packet was sent in its day.
    served: bool,
}

/// Allocates the queues; at least as many as the largest K.
fn calendar(queues: u64) -> Result<KVVec<Later>> {
    let queues = queues.max(MAX_QUEUES) as usize;
    let mut calendar = KVVec::with_capacity(queues, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..queues {
        calendar.push(Later::default(), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(calendar)
}

/// Reason for a drop.
#[derive(Clone, Copy)]
enum Cause {
    High,
    Low,
    Queue,
    Blocked,
    Stale,
    Reschedule,
    Filter,
}

impl Cause {
    fn number(self) -> xdc_acceltor_reason {
        match self {
            Self::High => XDC_ACCELTOR_DROP_HIGH,
            Self::Low => XDC_ACCELTOR_DROP_LOW,
            Self::Queue => XDC_ACCELTOR_DROP_QUEUE,
            Self::Blocked => XDC_ACCELTOR_DROP_BLOCKED,
            Self::Stale => XDC_ACCELTOR_DROP_STALE,
            Self::Reschedule => XDC_ACCELTOR_DROP_RESCHEDULE,
            Self::Filter => XDC_ACCELTOR_DROP_FILTER,
        }
    }
}

/// An accelerated packet of an elephant.
#[derive(Clone, Copy)]
struct Accelerated {
    cause: xdc_acceltor_cause,
    /// Label of its day.
    label: u64,
    /// Time until that day starts; before the base time, until the base time.
    left_ns: u64,
}

tracepoint! {
    /// `xdc:acceltor_day`.
    TraceDay, acceltor_day, xdc_acceltor_day, queue
}
tracepoint! {
    /// `xdc:acceltor_accelerate`.
    TraceAccelerate, acceltor_accelerate, xdc_acceltor_accelerate, packet
}
tracepoint! {
    /// `xdc:acceltor_elephant`.
    TraceElephant, acceltor_elephant, xdc_acceltor_elephant, packet
}
tracepoint! {
    /// `xdc:acceltor_drop`.
    TraceDrop, acceltor_drop, xdc_acceltor_drop, packet
}

/// State of the qdisc, under its lock.
struct State {
    config: Config,
    tables: Tables,
    seed: u64,

    high: PacketList,
    low: PacketList,
    calendar: KVVec<Later>,
    /// Packets in the calendar.
    later_packets: u32,
    later_bytes: u64,
    /// First label of the calendar; None before the base time and after a change of schedule.
    label: Option<u64>,
    /// The calendar holds packets of another schedule.
    restart: bool,
    /// The day of the label has begun.
    is_day: bool,
    /// Bytes sent to the circuit switch before the day began.
    bytes_before: u64,
    /// Packets of today's queue wait for its day to begin.
    waits_for_dawn: bool,
    last_ns: u64,
    /// The last packet used the circuit, so the packet network has its turn.
    packet_turn: bool,

    circuit: Shaper,
    packet: Shaper,
    stats: tc_acceltor_xstats,
}

/// Class of a packet.
enum Kind {
    Mouse,
    /// Key of the flow, its rack, and the rack's day of the week.
    Elephant(u64, u16, u16),
}

impl State {
    fn index_of(&self, label: u64) -> usize {
        (label % self.config.queues) as usize
    }

    /// Returns whether no packet waits for a day and the packet network is not shaped.
    #[inline]
    fn is_timeless(&self) -> bool {
        self.later_packets == 0 && self.config.packet_bytes_per_s == 0
    }

    fn is_empty(&self) -> bool {
        self.later_packets == 0 && self.high.packets() == 0 && self.low.packets() == 0
    }

    /// Drops the packets of a calendar queue, or moves them to the packet network.
    #[cold]
    fn empty(&mut self, queue: Queue<'_>, index: usize, now_ns: u64, cause: Cause) {
        let Some(later) = self.calendar.get_mut(index) else {
            return;
        };
        let mut list = mem::take(&mut later.list);
        if matches!(cause, Cause::Stale) && !later.served {
            self.stats.missed_days = self.stats.missed_days.wrapping_add(1);
        }
        while let Some(packet) = queue.pop_from(&mut list) {
            self.put_out(queue, packet, now_ns, cause);
        }
    }

    /// Handles a calendar packet whose day does not exist.
    #[cold]
    fn put_out<'a>(&mut self, queue: Queue<'a>, packet: Packet<'a>, now_ns: u64, cause: Cause) {
        self.count_taken(&packet);
        if self.config.policy == Policy::Unblocking && matches!(cause, Cause::Stale) {
            self.start_packet(now_ns);
            queue.push_to(&mut self.high, packet);
        } else {
            self.drop_packet(queue, packet, cause);
        }
    }

    /// Starts the packet network's shaper: idle time earns no credit.
    #[inline]
    fn start_packet(&mut self, now_ns: u64) {
        if self.high.packets() == 0 && self.low.packets() == 0 {
            self.packet.start(now_ns);
        }
    }

    /// Counts a packet that leaves the calendar.
    fn count_taken(&mut self, packet: &Packet<'_>) {
        self.later_packets = self.later_packets.wrapping_sub(1);
        self.later_bytes = self.later_bytes.wrapping_sub(packet.len_bytes().into());
    }

    fn drop_packet<'a>(&mut self, queue: Queue<'a>, packet: Packet<'a>, cause: Cause) -> Verdict {
        let stats = &mut self.stats;
        let (counter, reason) = match cause {
            Cause::High => (&mut stats.drops_high, DropReason::Overlimit),
            Cause::Low => (&mut stats.drops_low, DropReason::Overlimit),
            Cause::Queue => (&mut stats.drops_queue, DropReason::Overlimit),
            Cause::Blocked => (&mut stats.drops_blocked, DropReason::Other),
            Cause::Stale => (&mut stats.drops_stale, DropReason::Other),
            Cause::Reschedule => (&mut stats.drops_reschedule, DropReason::Other),
            Cause::Filter => (&mut stats.drops_filter, DropReason::Other),
        };
        *counter = counter.wrapping_add(1);
        self.trace_drop(queue, &packet, cause);
        queue.drop_packet(packet, reason)
    }

    fn trace_drop(&self, queue: Queue<'_>, packet: &Packet<'_>, cause: Cause) {
        if TraceDrop::is_on() {
            let info = xdc_acceltor_drop {
                label: self.label.unwrap_or(0),
                high_bytes: self.high.bytes(),
                low_bytes: self.low.bytes(),
                later_bytes: self.later_bytes,
                len_bytes: packet.len_bytes(),
                reason: cause.number(),
            };
            TraceDrop::emit((&queue, packet), &info);
        }
    }

    /// Traces the start or end of a day.
    fn trace_day(&self, queue: Queue<'_>, label: u64, since_ns: u64, begins: bool) {
        if TraceDay::is_on() {
            let mut all = self.calendar.iter();
            let info = xdc_acceltor_day {
                label,
                queued_bytes: all
                    .find(|it| it.label == label)
                    .map_or(0, |it| it.list.bytes()),
                sent_bytes: self.stats.bytes_circuit.wrapping_sub(self.bytes_before),
                since_ns,
                begins,
            };
            TraceDay::emit(&queue, &info);
        }
    }

    /// Advances the calendar to the clock. Returns the moment, or the time until the base time.
    #[inline]
    fn advance(&mut self, queue: Queue<'_>, now_ns: u64) -> Result<Moment, u64> {
        let moment = self.config.schedule.at(now_ns);
        let label = moment.as_ref().ok().map(|moment| moment.label);
        if label != self.label || self.restart || now_ns < self.last_ns {
            self.turn(queue, now_ns, &moment);
        }
        self.last_ns = now_ns;
        if let Ok(moment) = &moment {
            if moment.is_day && !self.is_day {
                self.dawn(queue, moment);
            }
            if !moment.is_day && self.config.policy != Policy::Packet {
                let index = self.index_of(moment.label);
                let today = self.calendar.get(index);
                self.waits_for_dawn |= today.is_some_and(|today| today.list.packets() != 0);
            }
        }
        moment
    }

    /// Starts a day.
    #[cold]
    fn dawn(&mut self, queue: Queue<'_>, moment: &Moment) {
        self.is_day = true;
        self.bytes_before = self.stats.bytes_circuit;
        self.trace_day(
            queue,
            moment.label,
            moment.since_start_ns(moment.label),
            true,
        );
    }

    /// Rotates the calendar after a change of day, clock or schedule.
    #[cold]
    fn turn(&mut self, queue: Queue<'_>, now_ns: u64, moment: &Result<Moment, u64>) {
        let moment = moment.as_ref().ok();
        let label = moment.map(|moment| moment.label);
        if let (true, Some(ended)) = (mem::take(&mut self.is_day), self.label) {
            let is_same_time = !self.restart && now_ns >= self.last_ns;
            let since_ns = moment
                .filter(|_| is_same_time)
                .map_or(0, |moment| moment.since_start_ns(ended));
            self.trace_day(queue, ended, since_ns, false);
        }
        if now_ns < self.last_ns {
            self.stats.clock_jumps = self.stats.clock_jumps.wrapping_add(1);
            // After a clock step backwards the shapers would block until the old time.
            (self.circuit, self.packet) = (Shaper::default(), Shaper::default());
            self.circuit.start(now_ns);
            self.packet.start(now_ns);
        }
        let before = self.label.filter(|_| !self.restart);
        let cause = match (before, label) {
            (Some(before), Some(label)) if label >= before => Cause::Stale,
            _ => Cause::Reschedule,
        };
        let last = label.map(|label| label.saturating_add(self.config.queues.get()));
        for index in 0..self.calendar.len() {
            let Some(later) = self.calendar.get(index) else {
                break;
            };
            let stays = match (label, last) {
                (Some(first), Some(last)) => {
                    before.is_some() && (first..last).contains(&later.label)
                }
                _ => false,
            };
            // With blocking a queue belongs to its rack, whose next day is a week later.
            let is_of_rack =
                self.config.policy == Policy::Blocking && matches!(cause, Cause::Stale);
            if later.list.packets() != 0 && !stays && !is_of_rack {
                self.empty(queue, index, now_ns, cause);
            }
            let of_queue = label_of_queue(index as u64, label.unwrap_or(0), self.config.queues);
            if let Some(later) = self.calendar.get_mut(index) {
                if later.label != of_queue {
                    if is_of_rack && later.list.packets() != 0 && !later.served {
                        self.stats.missed_days = self.stats.missed_days.wrapping_add(1);
                    }
                    later.label = of_queue;
                    later.served = false;
                }
            }
        }
        self.restart = false;
        self.label = label;
        if let Some(label) = label {
            let days = before.map_or(0, |before| label.saturating_sub(before));
            self.stats.days = self.stats.days.wrapping_add(days);
            if before != Some(label) {
                let today = self.calendar.get(self.index_of(label));
                self.waits_for_dawn = today.is_some_and(|today| today.list.packets() != 0);
                self.night_work(now_ns, label, days);
            }
        }
    }

    /// Does the daily work for each passed day.
    fn night_work(&mut self, now_ns: u64, label: u64, days: u64) {
        let config = &self.config;
        if config.detect == TC_ACCELTOR_DETECT_SKETCH {
            Sketch::forget(&mut self.tables.sketch, label, days, config.forget_days);
        }
        if self.stats.elephants == 0 {
            return;
        }
        // More than a week would repeat the same days.
        let first = label.saturating_sub(days.min(config.days_per_week.get()));
        let mut evicted = 0_u64;
        for day in first..label {
            evicted = evicted.wrapping_add(self.tables.elephants().sweep(
                day,
                config.days_per_week,
                now_ns,
                config.idle_ns,
            ));
        }
        self.stats.evicted = self.stats.evicted.wrapping_add(evicted);
        self.stats.elephants = self.stats.elephants.wrapping_sub(evicted);
    }

    /// Returns whether a packet may be an elephant's, by DSCP; `named` is a filter's answer.
    #[inline]
    fn is_chosen(&self, packet: &Packet<'_>, named: Option<bool>) -> bool {
        let config = &self.config;
        match config.detect {
            TC_ACCELTOR_DETECT_DSCP => packet
                .dsfield()
                .is_some_and(|dsfield| config.dscp >> (dsfield >> 2) & 1 != 0),
            TC_ACCELTOR_DETECT_FILTER => named.unwrap_or(false),
            _ => true,
        }
    }

    /// Classifies a chosen packet, with `detect sketch` by the sketch.
    #[inline]
    fn kind(
        &mut self,
        queue: Queue<'_>,
        packet: &Packet<'_>,
        now_ns: u64,
        may_change: bool,
    ) -> Kind {
        let config = &self.config;
        // Elephants named by DSCP or filter need no state, except for `rescue`.
        let is_sketch = config.detect == TC_ACCELTOR_DETECT_SKETCH;
        let seed = (is_sketch || config.rescue).then_some(self.seed);
        let Some(flow) = packet.flow(seed).filter(|flow| flow.is_data != 0) else {
            return Kind::Mouse;
        };
        let Some((rack, day)) = self.tables.rack_of(u128::from_be_bytes(flow.daddr)) else {
            return Kind::Mouse;
        };
        let len_bytes = packet.len_bytes();
        if seed.is_none() {
            return Kind::Elephant(flow.key, rack, day);
        }
        if let Some(known) = self.tables.elephants().get(flow.key) {
            known.last_ns = now_ns;
            known.bytes = known.bytes.wrapping_add(len_bytes.into());
            return Kind::Elephant(flow.key, rack, day);
        }
        let sent_bytes = match is_sketch {
            true => Sketch::add(&mut self.tables.sketch, flow.key, len_bytes),
            false => len_bytes,
        };
        let is_large = !is_sketch || sent_bytes >= config.sketch_bytes;
        let most = config.most_of_rack;
        if is_large && (may_change || !is_sketch) {
            let mut elephants = self.tables.elephants();
            if elephants.insert(flow.key, rack, most, now_ns).is_some() {
                self.stats.promoted = self.stats.promoted.wrapping_add(1);
                self.stats.elephants = self.stats.elephants.wrapping_add(1);
                if TraceElephant::is_on() {
                    let info = xdc_acceltor_elephant {
                        sent_bytes: sent_bytes.into(),
                        elephants: self.stats.elephants,
                        rack,
                    };
                    TraceElephant::emit((&queue, packet), &info);
                }
                return Kind::Elephant(flow.key, rack, day);
            }
        }
        match is_sketch {
            true => Kind::Mouse,
            false => Kind::Elephant(flow.key, rack, day),
        }
    }

    /// Returns whether an elephant's early packet may be sent anyway.
    #[cold]
    fn is_rescued(&mut self, key: u64, now_ns: u64) -> bool {
        let slot_ns = self
            .config
            .schedule
            .day_ns
            .saturating_add(self.config.schedule.night_ns);
        let mut elephants = self.tables.elephants();
        let Some(flow) = elephants.get(key) else {
            return false;
        };
        if !flow.had_day {
            return true;
        }
        if flow.dropped_ns == 0 || flow.dropped_ns > now_ns {
            // The first drop, or the clock was set back since.
            flow.dropped_ns = now_ns.max(1);
            return false;
        }
        now_ns.saturating_sub(flow.dropped_ns) >= slot_ns.saturating_mul(RESCUE_SLOTS)
    }

    /// Returns the bytes of all queues.
    fn total_bytes(&self) -> u64 {
        self.high
            .bytes()
            .saturating_add(self.low.bytes())
            .saturating_add(self.later_bytes)
    }

    /// Returns the bytes that count against the limit of calendar queue `index`.
    fn later_bytes(&self, index: usize) -> u64 {
        match self.config.policy {
            Policy::Blocking => self.later_bytes,
            Policy::Unblocking => self.total_bytes(),
            _ => self.calendar.get(index).map_or(0, |it| it.list.bytes()),
        }
    }

    fn mark(&mut self, packet: &mut Packet<'_>, backlog_bytes: u64) {
        if backlog_bytes >= self.config.ecn_bytes && packet.set_ce() == Ce::Marked {
            self.stats.marked = self.stats.marked.wrapping_add(1);
        }
    }

    fn push_high<'a>(&mut self, queue: Queue<'a>, mut packet: Packet<'a>) -> Verdict {
        let len_bytes = u64::from(packet.len_bytes());
        let (backlog, limit) = match self.config.policy {
            Policy::Unblocking => (self.total_bytes(), self.config.limit_bytes),
            _ => (self.high.bytes(), self.config.high_limit_bytes),
        };
        if backlog.saturating_add(len_bytes) > limit {
            return self.drop_packet(queue, packet, Cause::High);
        }
        self.mark(&mut packet, self.high.bytes());
        queue.push_to(&mut self.high, packet)
    }

    fn push_low<'a>(
        &mut self,
        queue: Queue<'a>,
        mut packet: Packet<'a>,
        why: Accelerated,
    ) -> Verdict {
        let len_bytes = u64::from(packet.len_bytes());
        if self.low.bytes().saturating_add(len_bytes) > self.config.low_limit_bytes {
            return self.drop_packet(queue, packet, Cause::Low);
        }
        if TraceAccelerate::is_on() {
            let info = xdc_acceltor_accelerate {
                label: why.label,
                left_ns: why.left_ns,
                queue_bytes: self.low.bytes(),
                len_bytes: packet.len_bytes(),
                cause: why.cause,
            };
            TraceAccelerate::emit((&queue, &packet), &info);
        }
        self.mark(&mut packet, self.low.bytes());
        queue.push_to(&mut self.low, packet)
    }

    fn push_later<'a>(
        &mut self,
        queue: Queue<'a>,
        packet: Packet<'a>,
        label: u64,
        left_ns: u64,
    ) -> Verdict {
        let len_bytes = u64::from(packet.len_bytes());
        let index = self.index_of(label);
        if self.later_bytes(index).saturating_add(len_bytes) > self.config.limit_bytes {
            if left_ns != 0 && self.config.accelerate_overflow {
                let why = Accelerated {
                    cause: XDC_ACCELTOR_FULL,
                    label,
                    left_ns,
                };
                return self.push_low(queue, packet, why);
            }
            return self.drop_packet(queue, packet, Cause::Queue);
        }
        let Some(later) = self.calendar.get_mut(index) else {
            return self.drop_packet(queue, packet, Cause::Queue);
        };
        self.later_packets = self.later_packets.wrapping_add(1);
        self.later_bytes = self.later_bytes.wrapping_add(len_bytes);
        queue.push_to(&mut later.list, packet)
    }

    fn push_elephant<'a>(
        &mut self,
        queue: Queue<'a>,
        packet: Packet<'a>,
        (key, day): (u64, u16),
        now_ns: u64,
        moment: Result<Moment, u64>,
    ) -> Verdict {
        let config = &self.config;
        let why = |cause, label, left_ns| Accelerated {
            cause,
            label,
            left_ns,
        };
        let moment = match moment {
            Ok(moment) => moment,
            Err(until_ns) => {
                return match config.policy {
                    Policy::AccelTor | Policy::Blocking => {
                        self.push_low(queue, packet, why(XDC_ACCELTOR_BASE, 0, until_ns))
                    }
                    Policy::Unblocking | Policy::Packet => self.push_high(queue, packet),
                };
            }
        };
        let label = next_label(moment.label, day, config.days_per_week);
        let left_ns = moment.until_start_ns(label);
        let queues = config.queues.get();
        match place(config.policy, &moment, label, queues, config.rtt_ns) {
            Place::High => self.push_high(queue, packet),
            Place::Low => self.push_low(queue, packet, why(XDC_ACCELTOR_EARLY, label, left_ns)),
            Place::Queue(label) => {
                if config.rescue {
                    if let Some(flow) = self.tables.elephants().get(key) {
                        (flow.had_day, flow.dropped_ns) = (true, 0);
                    }
                }
                let index = self.index_of(label);
                let is_idle = |it: &Later| it.list.packets() == 0;
                if left_ns == 0 && self.calendar.get(index).is_some_and(is_idle) {
                    self.circuit.start(now_ns);
                }
                self.push_later(queue, packet, label, left_ns)
            }
            Place::Blocked if config.rescue && self.is_rescued(key, now_ns) => {
                let drops = self.stats.drops_low;
                let verdict =
                    self.push_low(queue, packet, why(XDC_ACCELTOR_RESCUE, label, left_ns));
                if self.stats.drops_low == drops {
                    self.stats.rescued = self.stats.rescued.wrapping_add(1);
                }
                verdict
            }
            Place::Blocked => self.drop_packet(queue, packet, Cause::Blocked),
        }
    }

    /// Returns the length of a queue's first packet and the circuit time that it needs.
    fn first_of(&mut self, queue: Queue<'_>, index: usize, now_ns: u64) -> Option<(u32, u64)> {
        loop {
            let today = self.calendar.get_mut(index)?;
            let len_bytes = today.list.first_len_bytes()?;
            let config = &self.config;
            let takes_ns = config.circuit_ns(len_bytes).saturating_add(config.guard_ns);
            if takes_ns <= config.schedule.day_ns {
                return Some((len_bytes, takes_ns));
            }
            // A packet longer than the day would block those behind it, with blocking forever.
            let packet = queue.pop_from(&mut today.list)?;
            self.put_out(queue, packet, now_ns, Cause::Stale);
        }
    }

    /// Returns the next packet for the circuit switch, or the time to ask again.
    fn next_of_circuit<'a>(
        &mut self,
        queue: Queue<'a>,
        now_ns: u64,
        moment: &Moment,
    ) -> Result<Packet<'a>, Option<u64>> {
        if self.later_packets == 0 {
            return Err(None);
        }
        let index = self.index_of(moment.label);
        let edge_ns = now_ns.saturating_add(moment.until_edge_ns);
        let wakes = Some(edge_ns);
        let Some((len_bytes, takes_ns)) = self.first_of(queue, index, now_ns) else {
            return Err(wakes);
        };
        if !moment.ends_by_day(takes_ns) {
            return Err(wakes);
        }
        // Makes up a late timer's delay, but never one from before this day.
        let since_ns = moment.since_start_ns(moment.label);
        self.circuit.start(now_ns.saturating_sub(since_ns));
        if now_ns < self.circuit.next_ns() {
            return Err(Some(self.circuit.next_ns().min(edge_ns)));
        }
        if !queue.can_send(CIRCUIT_QUEUE) {
            return Err(wakes);
        }
        let Some(today) = self.calendar.get_mut(index) else {
            return Err(wakes);
        };
        let Some(packet) = queue.pop_from(&mut today.list) else {
            return Err(wakes);
        };
        today.served = true;
        if self.waits_for_dawn {
            self.waits_for_dawn = false;
            self.stats.late_max_ns = self.stats.late_max_ns.max(since_ns);
        }
        let rate = self.config.circuit_bytes_per_s;
        self.circuit.charge(now_ns, len_bytes.into(), rate);
        self.count_taken(&packet);
        self.stats.packets_circuit = self.stats.packets_circuit.wrapping_add(1);
        self.stats.bytes_circuit = self.stats.bytes_circuit.wrapping_add(len_bytes.into());
        Ok(packet)
    }

    /// Returns the next packet for the packet network, or the time to ask again.
    fn next_of_packet<'a>(
        &mut self,
        queue: Queue<'a>,
        now_ns: u64,
    ) -> Result<Packet<'a>, Option<u64>> {
        let is_shaped = self.config.packet_bytes_per_s != 0;
        if self.high.packets() == 0 && self.low.packets() == 0 {
            return Err(None);
        }
        if is_shaped && now_ns < self.packet.next_ns() {
            return Err(Some(self.packet.next_ns()));
        }
        if !queue.can_send(PACKET_QUEUE) {
            return Err(None);
        }
        let (packet, is_high) = match queue.pop_from(&mut self.high) {
            Some(packet) => (packet, true),
            None => (queue.pop_from(&mut self.low).ok_or(None)?, false),
        };
        let len_bytes = u64::from(packet.len_bytes());
        if is_shaped {
            let rate = self.config.packet_bytes_per_s;
            self.packet.charge(now_ns, len_bytes, rate);
        }
        let stats = &mut self.stats;
        let (packets, bytes) = match is_high {
            true => (&mut stats.packets_high, &mut stats.bytes_high),
            false => (&mut stats.packets_low, &mut stats.bytes_low),
        };
        *packets = packets.wrapping_add(1);
        *bytes = bytes.wrapping_add(len_bytes);
        Ok(packet)
    }
}

/// State for RTNL only.
struct Rtnl {
    options: Options,
}

/// Empty: readers of a port lock its state.
struct Port;

/// A packet and its class from a filter or the priority.
enum Named<'a> {
    Packet(Packet<'a>, Option<bool>),
    Done(Verdict),
}

/// Mask of the minor number of a class id.
const MINOR: u32 = 0xffff;
const ELEPHANT_MINOR: u32 = 2;

fn named<'a>(state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Named<'a> {
    if state.config.detect != TC_ACCELTOR_DETECT_FILTER {
        return Named::Packet(packet, None);
    }
    match queue.classify(packet) {
        Classified::Class(packet, class) => {
            Named::Packet(packet, Some(class & MINOR == ELEPHANT_MINOR))
        }
        Classified::No(packet) => {
            let priority = packet.priority();
            let is_ours = priority & !MINOR == queue.handle();
            Named::Packet(packet, Some(is_ours && priority & MINOR == ELEPHANT_MINOR))
        }
        Classified::Drop(packet) => {
            state.stats.drops_filter = state.stats.drops_filter.wrapping_add(1);
            state.trace_drop(queue, &packet, Cause::Filter);
            Named::Done(queue.drop_filtered(packet))
        }
        Classified::Stolen(verdict) => {
            state.stats.drops_filter = state.stats.drops_filter.wrapping_add(1);
            Named::Done(verdict)
        }
    }
}

impl Qdisc for Port {
    const NAME: &'static CStr = c"acceltor";

    type Module = ();
    type State = State;
    type Rtnl = Rtnl;
    type Stats = tc_acceltor_xstats;

    fn init(
        _module: &(),
        qdisc: &mut RtnlQdisc<'_, Self>,
        nest: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Rtnl, State)> {
        let request = Request::parse(nest, extack)?;
        if !qdisc.is_root() {
            return Err(extack.invalid(c"acceltor must be the root: a parent would send at night"));
        }
        if qdisc.tx_queues() <= CIRCUIT_QUEUE.into() {
            return Err(extack.invalid(c"the device must have 3 transmit queues, as a bond has"));
        }
        if request.get(TCA_ACCELTOR_RACKS).is_none() {
            return Err(extack.invalid(c"racks must be given"));
        }
        let mut options = Options::new();
        options.read(&request, extack)?;
        // Decision 13.
        qdisc.send_singly();
        let config = Config::new(&options);
        let state = State {
            tables: Tables::new(&options)?,
            seed: random_u64(),
            high: PacketList::default(),
            low: PacketList::default(),
            calendar: calendar(config.queues.get())?,
            later_packets: 0,
            later_bytes: 0,
            label: None,
            restart: true,
            is_day: false,
            bytes_before: 0,
            waits_for_dawn: false,
            last_ns: 0,
            packet_turn: false,
            circuit: Shaper::default(),
            packet: Shaper::default(),
            stats: tc_acceltor_xstats::default(),
            config,
        };
        Ok((Self, Rtnl { options }, state))
    }

    fn change(
        &self,
        _module: &(),
        rtnl: &mut Rtnl,
        qdisc: &mut RtnlQdisc<'_, Self>,
        nest: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result {
        let request = Request::parse(nest, extack)?;
        let mut options = rtnl.options.copy()?;
        options.read(&request, extack)?;
        if options.clock() != rtnl.options.clock() {
            return Err(extack.invalid(c"clockid cannot be changed: replace the qdisc"));
        }
        let mut config = Config::new(&options);
        let mut tables = Tables::new(&options)?;
        let mut queues = calendar(config.queues.get())?;
        let same_flows = options.racks() == rtnl.options.racks()
            && options.most_elephants() == rtnl.options.most_elephants();
        let moves_days = options.moves_days(&rtnl.options);
        qdisc.lock(|state| {
            if same_flows {
                mem::swap(&mut state.tables.flows, &mut tables.flows);
                mem::swap(&mut state.tables.flows_of_rack, &mut tables.flows_of_rack);
            } else {
                state.stats.evicted = state.stats.evicted.wrapping_add(state.stats.elephants);
                state.stats.elephants = 0;
            }
            mem::swap(&mut state.tables.sketch, &mut tables.sketch);
            mem::swap(&mut state.tables, &mut tables);
            if queues.len() > state.calendar.len() {
                for (to, from) in queues.iter_mut().zip(state.calendar.iter_mut()) {
                    mem::swap(to, from);
                }
                mem::swap(&mut state.calendar, &mut queues);
            }
            if moves_days {
                // The watchdog's callback drops the packets: drops are allowed only there.
                state.restart = true;
            }
            let now_ns = config.clock.now_ns().max(state.last_ns);
            let rates = [
                (
                    &mut state.circuit,
                    state.config.circuit_bytes_per_s,
                    config.circuit_bytes_per_s,
                ),
                (
                    &mut state.packet,
                    state.config.packet_bytes_per_s,
                    config.packet_bytes_per_s,
                ),
            ];
            for (port, old, new) in rates {
                match old {
                    0 => port.start(now_ns),
                    _ => port.change_rate(now_ns, old, new),
                }
            }
            mem::swap(&mut state.config, &mut config);
        });
        rtnl.options = options;
        qdisc.schedule_watchdog_now();
        Ok(())
    }

    fn destroy(&self, _module: &(), _rtnl: &mut Rtnl, _state: &mut State) {}

    fn splits_segments(_state: &State) -> bool {
        true
    }

    fn enqueue<'a>(&self, state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Verdict {
        state.stats.packets_in = state.stats.packets_in.wrapping_add(1);
        state.stats.bytes_in = state.stats.bytes_in.wrapping_add(packet.len_bytes().into());
        let (packet, named) = match named(state, queue, packet) {
            Named::Packet(packet, named) => (packet, named),
            Named::Done(verdict) => return verdict,
        };
        let is_chosen = state.is_chosen(&packet, named);
        // Mice wait for no day, and if their port is not shaped, for no time.
        if !is_chosen && state.is_timeless() {
            return state.push_high(queue, packet);
        }
        let now_ns = state.config.clock.now_ns();
        let moment = state.advance(queue, now_ns);
        state.start_packet(now_ns);
        if !is_chosen {
            return state.push_high(queue, packet);
        }
        let by_night = moment.as_ref().is_ok_and(|moment| !moment.is_day);
        let may_change = by_night || state.config.schedule.night_ns == 0;
        match state.kind(queue, &packet, now_ns, may_change) {
            Kind::Mouse => state.push_high(queue, packet),
            Kind::Elephant(key, _rack, day) => {
                state.push_elephant(queue, packet, (key, day), now_ns, moment)
            }
        }
    }

    #[cold]
    fn drop_whole<'a>(&self, state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Verdict {
        state.stats.packets_in = state.stats.packets_in.wrapping_add(1);
        state.stats.bytes_in = state.stats.bytes_in.wrapping_add(packet.len_bytes().into());
        state.drop_packet(queue, packet, Cause::Filter)
    }

    fn dequeue<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        if state.is_empty() {
            return None;
        }
        if state.is_timeless() {
            state.packet_turn = false;
            let mut packet = state.next_of_packet(queue, 0).ok()?;
            packet.set_queue_mapping(PACKET_QUEUE);
            return Some(packet);
        }
        let now_ns = state.config.clock.now_ns();
        let moment = state.advance(queue, now_ns);
        // Decision 12.
        if mem::take(&mut state.packet_turn) {
            if let Ok(mut packet) = state.next_of_packet(queue, now_ns) {
                packet.set_queue_mapping(PACKET_QUEUE);
                return Some(packet);
            }
        }
        let circuit_wakes = match moment {
            Ok(moment) => match state.next_of_circuit(queue, now_ns, &moment) {
                Ok(mut packet) => {
                    state.packet_turn = true;
                    packet.set_queue_mapping(CIRCUIT_QUEUE);
                    return Some(packet);
                }
                Err(wakes) => wakes,
            },
            Err(until_ns) => (state.later_packets != 0).then_some(now_ns.saturating_add(until_ns)),
        };
        let packet_wakes = match state.next_of_packet(queue, now_ns) {
            Ok(mut packet) => {
                packet.set_queue_mapping(PACKET_QUEUE);
                return Some(packet);
            }
            Err(wakes) => wakes,
        };
        let wakes = [circuit_wakes, packet_wakes];
        if let Some(at_ns) = wakes.into_iter().flatten().min() {
            queue.count_overlimit();
            // Relative, because the schedule's clock may be set back meanwhile.
            let left_ns = at_ns.saturating_sub(now_ns);
            queue.schedule_watchdog(monotonic_ns().saturating_add(left_ns));
        }
        None
    }

    fn reset(&self, state: &mut State) {
        let mut dropped = state.high.purge().wrapping_add(state.low.purge());
        for later in &mut state.calendar {
            dropped = dropped.wrapping_add(later.list.purge());
        }
        state.stats.drops_reset = state.stats.drops_reset.wrapping_add(dropped.into());
        state.later_packets = 0;
        state.later_bytes = 0;
        state.waits_for_dawn = false;
        state.packet_turn = false;
        state.circuit = Shaper::default();
        state.packet = Shaper::default();
    }

    fn dump(&self, rtnl: &Rtnl, message: &mut Message<'_>) -> Result {
        rtnl.options.write(message)
    }

    fn stats(&self, _rtnl: &Rtnl, qdisc: &mut RtnlQdisc<'_, Self>) -> tc_acceltor_xstats {
        let stats = qdisc.lock(|state| {
            let first = state.index_of(state.label.unwrap_or(0));
            let today = state.calendar.get(first).map_or(0, |it| it.list.bytes());
            let queued = state
                .later_packets
                .wrapping_add(state.high.packets())
                .wrapping_add(state.low.packets());
            tc_acceltor_xstats {
                packets_queued: queued.into(),
                backlog_high: state.high.bytes(),
                backlog_low: state.low.bytes(),
                backlog_today: today,
                backlog_later: state.later_bytes.wrapping_sub(today),
                ..state.stats
            }
        });
        stats.unwrap_or_default()
    }
}
