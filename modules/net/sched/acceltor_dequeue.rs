// SPDX-License-Identifier: GPL-2.0

//! The calendar: days and nights, and the next packet of each network.

use crate::{
    acceltor_trace::{Cause, TraceDay, TraceDrop},
    algo::{
        acceltor::{label_of_queue, Moment, Policy, Sketch},
        shaper::Shaper,
    },
    kernel_api::{
        bindings::{xdc_acceltor_day, xdc_acceltor_drop},
        qdisc::{DropReason, Packet, Queue, Verdict},
        trace::Tracepoint,
        uapi::TC_ACCELTOR_DETECT_SKETCH,
    },
    State, CIRCUIT_QUEUE, PACKET_QUEUE,
};
use core::mem;

impl State {
    pub(crate) fn index_of(&self, label: u64) -> usize {
        (label % self.config.queues) as usize
    }

    /// Returns whether no packet waits for a day and the packet network is not shaped.
    #[inline]
    pub(crate) fn is_timeless(&self) -> bool {
        self.later_packets == 0 && self.config.packet_bytes_per_s == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.later_packets == 0 && self.high.packets() == 0 && self.low.packets() == 0
    }

    /// Drops the packets of a calendar queue, or moves them to the packet network.
    #[cold]
    pub(crate) fn empty(&mut self, queue: Queue<'_>, index: usize, now_ns: u64, cause: Cause) {
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
    pub(crate) fn put_out<'a>(
        &mut self,
        queue: Queue<'a>,
        packet: Packet<'a>,
        now_ns: u64,
        cause: Cause,
    ) {
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
    pub(crate) fn start_packet(&mut self, now_ns: u64) {
        if self.high.packets() == 0 && self.low.packets() == 0 {
            self.packet.start(now_ns);
        }
    }

    /// Counts a packet that leaves the calendar.
    pub(crate) fn count_taken(&mut self, packet: &Packet<'_>) {
        self.later_packets = self.later_packets.wrapping_sub(1);
        self.later_bytes = self.later_bytes.wrapping_sub(packet.len_bytes().into());
    }

    pub(crate) fn drop_packet<'a>(
        &mut self,
        queue: Queue<'a>,
        packet: Packet<'a>,
        cause: Cause,
    ) -> Verdict {
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

    pub(crate) fn trace_drop(&self, queue: Queue<'_>, packet: &Packet<'_>, cause: Cause) {
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
    pub(crate) fn trace_day(&self, queue: Queue<'_>, label: u64, since_ns: u64, begins: bool) {
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
    pub(crate) fn advance(&mut self, queue: Queue<'_>, now_ns: u64) -> Result<Moment, u64> {
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
    pub(crate) fn dawn(&mut self, queue: Queue<'_>, moment: &Moment) {
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
    pub(crate) fn turn(&mut self, queue: Queue<'_>, now_ns: u64, moment: &Result<Moment, u64>) {
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
    pub(crate) fn night_work(&mut self, now_ns: u64, label: u64, days: u64) {
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

    /// Returns the length of a queue's first packet and the circuit time that it needs.
    pub(crate) fn first_of(
        &mut self,
        queue: Queue<'_>,
        index: usize,
        now_ns: u64,
    ) -> Option<(u32, u64)> {
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
    pub(crate) fn next_of_circuit<'a>(
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
    pub(crate) fn next_of_packet<'a>(
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
