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

#[path = "acceltor_config.rs"]
mod acceltor_config;
#[path = "acceltor_dequeue.rs"]
mod acceltor_dequeue;
#[path = "acceltor_enqueue.rs"]
mod acceltor_enqueue;
#[path = "acceltor_lists.rs"]
mod acceltor_lists;
#[path = "acceltor_options.rs"]
mod acceltor_options;
#[path = "acceltor_trace.rs"]
mod acceltor_trace;
#[path = "../../algo/mod.rs"]
mod algo;
#[path = "bounds.rs"]
mod bounds;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "settings.rs"]
mod settings;

use acceltor_config::{calendar, Config, Later, Tables};
use acceltor_enqueue::{named, Kind, Named};
use acceltor_options::{Options, Request};
use acceltor_trace::Cause;
use algo::shaper::Shaper;
use core::mem;
use kernel_api::{
    netlink::{Extack, Message, Nest},
    qdisc::{
        now_ns as monotonic_ns, Packet, PacketList, Qdisc, Queue, Registration, RtnlQdisc, Verdict,
    },
    random::random_u64,
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

/// State for RTNL only.
struct Rtnl {
    options: Options,
}

/// Empty: readers of a port lock its state.
struct Port;

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
