// SPDX-License-Identifier: GPL-2.0

//! Class and queue of an arriving packet.

use crate::{
    acceltor_config::Later,
    acceltor_trace::{Accelerated, Cause, TraceAccelerate, TraceElephant},
    algo::acceltor::{next_label, place, Moment, Place, Policy, Sketch},
    kernel_api::{
        bindings::{
            xdc_acceltor_accelerate, xdc_acceltor_elephant, XDC_ACCELTOR_BASE, XDC_ACCELTOR_EARLY,
            XDC_ACCELTOR_FULL, XDC_ACCELTOR_RESCUE,
        },
        qdisc::{Ce, Classified, Packet, Queue, Verdict},
        trace::Tracepoint,
        uapi::*,
    },
    State,
};

/// Slots from a flow's first drop until it may be rescued.
pub(crate) const RESCUE_SLOTS: u64 = 2;

/// Class of a packet.
pub(crate) enum Kind {
    Mouse,
    /// Key of the flow, its rack, and the rack's day of the week.
    Elephant(u64, u16, u16),
}

/// A packet and its class from a filter or the priority.
pub(crate) enum Named<'a> {
    Packet(Packet<'a>, Option<bool>),
    Done(Verdict),
}

/// Mask of the minor number of a class id.
pub(crate) const MINOR: u32 = 0xffff;
pub(crate) const ELEPHANT_MINOR: u32 = 2;

pub(crate) fn named<'a>(state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Named<'a> {
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

impl State {
    /// Returns whether a packet may be an elephant's, by DSCP; `named` is a filter's answer.
    #[inline]
    pub(crate) fn is_chosen(&self, packet: &Packet<'_>, named: Option<bool>) -> bool {
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
    pub(crate) fn kind(
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
    pub(crate) fn is_rescued(&mut self, key: u64, now_ns: u64) -> bool {
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
    pub(crate) fn total_bytes(&self) -> u64 {
        self.high
            .bytes()
            .saturating_add(self.low.bytes())
            .saturating_add(self.later_bytes)
    }

    /// Returns the bytes that count against the limit of calendar queue `index`.
    pub(crate) fn later_bytes(&self, index: usize) -> u64 {
        match self.config.policy {
            Policy::Blocking => self.later_bytes,
            Policy::Unblocking => self.total_bytes(),
            _ => self.calendar.get(index).map_or(0, |it| it.list.bytes()),
        }
    }

    pub(crate) fn mark(&mut self, packet: &mut Packet<'_>, backlog_bytes: u64) {
        if backlog_bytes >= self.config.ecn_bytes && packet.set_ce() == Ce::Marked {
            self.stats.marked = self.stats.marked.wrapping_add(1);
        }
    }

    pub(crate) fn push_high<'a>(&mut self, queue: Queue<'a>, mut packet: Packet<'a>) -> Verdict {
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

    pub(crate) fn push_low<'a>(
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

    pub(crate) fn push_later<'a>(
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

    pub(crate) fn push_elephant<'a>(
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
}
