// SPDX-License-Identifier: GPL-2.0

//! The way of a packet through a port.

use crate::{
    algo::{
        color::Color,
        port::{self, chooses, Cause, Clock as _, Full, Source},
    },
    kernel_api::{
        qdisc::{now_ns, Ce, Classified, Packet, Queue, Verdict},
        trace::{self, PacketInfo, Tracepoint},
    },
    phantom_counters::{number_of, DropCause},
    phantom_pool::Pool,
    phantom_shared::SharedPhantom,
    Port,
};
use kernel::{prelude::*, sync::Arc};

/// State of the queue, under its lock.
pub(crate) struct State {
    pub(crate) port: port::Port,
    /// Replaces the phantom queue of the port.
    pub(crate) shared_phantom: Option<Arc<SharedPhantom>>,
    pub(crate) pool: Option<Arc<Pool>>,
}

impl State {
    /// Returns the fields of a packet's trace event.
    pub(crate) fn packet_info(
        &self,
        packet: &Packet<'_>,
        dsfield: u8,
        color: Color,
        why: u32,
    ) -> PacketInfo {
        PacketInfo {
            queue_bytes: self.port.queued.total(),
            phantom_bytes: match &self.shared_phantom {
                None => self.port.phantom.bytes(),
                Some(shared) => shared.bytes(now_ns()),
            },
            len_bytes: packet.len_bytes(),
            why,
            color: color as u8,
            dsfield,
        }
    }

    /// Accounts for a packet that left the queue.
    #[inline(never)]
    pub(crate) fn leave(&mut self, color: Color, len_bytes: u64) {
        self.port.queued.remove(color, len_bytes);
        if let Some(pool) = &self.pool {
            pool.give_back(len_bytes);
        }
    }

    /// Runs both REDs for one packet.
    #[inline(always)]
    pub(crate) fn choose<const SHARED: bool>(&mut self, clock: &mut Clock) -> Option<Cause> {
        let phantom_chooses = match SHARED {
            false => self.port.phantom_chooses(clock),
            true => self.shared_phantom_chooses(clock),
        };
        let physical_chooses = self.port.physical_chooses();
        self.port.cause(phantom_chooses, physical_chooses)
    }

    /// [`port::Port::phantom_chooses`] of a port that may share its phantom queue.
    pub(crate) fn shared_phantom_chooses(&mut self, clock: &mut Clock) -> bool {
        let Some(shared) = &self.shared_phantom else {
            return self.port.phantom_chooses(clock);
        };
        let port = &mut self.port;
        let from_bytes = port.config.phantom_from_bytes;
        if from_bytes == u64::MAX {
            return false;
        }
        let bytes = shared.bytes(clock.now_ns());
        bytes >= from_bytes && chooses(&port.config.phantom_red, bytes, &mut port.random)
    }

    /// Adds a packet to the phantom queue. Returns the occupancy.
    #[inline(always)]
    pub(crate) fn phantom_add<const SHARED: bool>(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        match &self.shared_phantom {
            Some(shared) if SHARED => shared.add(now_ns, len_bytes),
            _ => {
                let port = &mut self.port;
                port.phantom.add(&port.config.phantom, now_ns, len_bytes)
            }
        }
    }
}

/// Time of one callback, read at first use: the read is a fifth of a packet's cost, and some
/// packets need no time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock(Option<u64>);

impl port::Clock for Clock {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        *self.0.get_or_insert_with(now_ns)
    }
}

/// Result of a packet's color lookup.
pub(crate) enum Sorted<'a> {
    Color(Packet<'a>, Color),
    Drop(Packet<'a>),
    Stolen(Verdict),
}

impl Port {
    #[inline(always)]
    pub(crate) fn drop_packet<'a>(
        &self,
        state: &State,
        queue: Queue<'a>,
        packet: Packet<'a>,
        color: Color,
        why: DropCause,
    ) -> Verdict {
        if let Some(drops) = self.counters.drops.get(color as usize) {
            drops.add(1);
        }
        Self::trace_drop(state, queue, &packet, color, why);
        match why.reason() {
            Some(reason) => queue.drop_packet(packet, reason),
            None => queue.drop_filtered(packet),
        }
    }

    #[inline(always)]
    pub(crate) fn trace_drop(
        state: &State,
        queue: Queue<'_>,
        packet: &Packet<'_>,
        color: Color,
        why: DropCause,
    ) {
        if trace::PhantomDrop::is_on() {
            let dsfield = packet.dsfield().unwrap_or(0);
            let info = state.packet_info(packet, dsfield, color, why.number());
            trace::PhantomDrop::emit((&queue, packet), &info);
        }
    }

    /// Returns the color of a packet, or a filter's verdict.
    #[inline(always)]
    pub(crate) fn color<'a>(
        &self,
        source: &Source,
        queue: Queue<'a>,
        packet: Packet<'a>,
    ) -> Sorted<'a> {
        let color = match source {
            Source::None => Color::Green,
            Source::Dscp(table) => packet
                .dsfield()
                .map_or(Color::Green, |dsfield| table.get(dsfield >> 2)),
            Source::Priority => color_of_class(queue, packet.priority()),
            Source::Filter => match queue.classify(packet) {
                Classified::No(packet) => return Sorted::Color(packet, Color::Green),
                Classified::Class(packet, class) => {
                    return Sorted::Color(packet, Color::from_minor(class & MINOR))
                }
                Classified::Drop(packet) => return Sorted::Drop(packet),
                Classified::Stolen(verdict) => return Sorted::Stolen(verdict),
            },
        };
        Sorted::Color(packet, color)
    }

    /// Marks a chosen packet; returns it as an error if it must be dropped.
    // By value and out of line, so that other packets stay in registers.
    #[inline(never)]
    pub(crate) fn mark<'a>(
        &self,
        state: &State,
        queue: Queue<'a>,
        cause: Cause,
        mut packet: Packet<'a>,
    ) -> Result<Packet<'a>, Packet<'a>> {
        if trace::PhantomMark::is_on() {
            return self.mark_traced(state, queue, cause, packet);
        }
        match self.set_ce(cause, &mut packet) {
            Ce::NotEct if state.port.config.ecn_drop => Err(packet),
            _ => Ok(packet),
        }
    }

    /// [`Self::mark`] with tracing.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_traced<'a>(
        &self,
        state: &State,
        queue: Queue<'a>,
        cause: Cause,
        mut packet: Packet<'a>,
    ) -> Result<Packet<'a>, Packet<'a>> {
        let before = packet.dsfield().unwrap_or(0);
        let color = color_of(&mut packet);
        match self.set_ce(cause, &mut packet) {
            Ce::Marked => {
                let info = state.packet_info(&packet, before, color, number_of(cause));
                trace::PhantomMark::emit((&queue, &packet), &info);
            }
            Ce::NotEct if state.port.config.ecn_drop => return Err(packet),
            Ce::NotEct | Ce::Already => {}
        }
        Ok(packet)
    }

    /// Sets CE on an ECT packet, and counts.
    #[inline(always)]
    pub(crate) fn set_ce(&self, cause: Cause, packet: &mut Packet<'_>) -> Ce {
        let counters = &self.counters;
        counters.would_mark.add(1);
        let ce = packet.set_ce();
        match ce {
            Ce::Marked => match cause {
                Cause::Phantom => counters.marked_phantom.add(1),
                Cause::Physical => counters.marked_physical.add(1),
                Cause::Both => counters.marked_both.add(1),
            },
            Ce::NotEct | Ce::Already => {}
        }
        ce
    }

    /// Runs RED for a packet with its color; returns it as an error if it must be dropped.
    #[inline(always)]
    pub(crate) fn judge<'a, const SHARED: bool>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        queue: Queue<'a>,
        packet: Packet<'a>,
    ) -> Result<Packet<'a>, Packet<'a>> {
        match state.choose::<SHARED>(clock) {
            Some(cause) => self.mark(state, queue, cause, packet),
            None => Ok(packet),
        }
    }

    /// Returns whether there is room for the packet; reserves its room in the pool.
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        state: &State,
        color: Color,
        len_bytes: u64,
    ) -> Result<(), DropCause> {
        match state.port.admit(color, len_bytes) {
            Ok(()) => {}
            Err(Full::Port) => {
                self.counters.drops_limit.add(1);
                return Err(DropCause::Limit);
            }
            Err(Full::Color) => {
                self.counters.drops_color.add(1);
                return Err(DropCause::Color);
            }
        }
        if let Some(pool) = &state.pool {
            let port = &state.port;
            if !pool.take(port.config.pool_alpha_ppm, port.queued.total(), len_bytes) {
                self.counters.drops_pool.add(1);
                return Err(DropCause::Pool);
            }
        }
        Ok(())
    }

    /// Adds a packet to the phantom queue.
    #[inline(always)]
    pub(crate) fn count_load<const SHARED: bool>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        len_bytes: u64,
    ) {
        if state.port.config.has_phantom() {
            let now_ns = clock.now_ns();
            let bytes = state.phantom_add::<SHARED>(now_ns, len_bytes);
            self.counters.show_phantom(bytes, now_ns);
        }
    }

    /// [`Self::count_load`] for a packet that will be dropped.
    // By value, so that other packets stay in registers.
    #[cold]
    pub(crate) fn count_dropped<'a>(
        &self,
        state: &mut State,
        mut clock: Clock,
        packet: Packet<'a>,
    ) -> Packet<'a> {
        if state.port.config.count_acks || !packet.is_pure_ack() {
            self.count_load::<true>(state, &mut clock, u64::from(packet.len_bytes()));
        }
        packet
    }

    /// Drops an admitted packet that RED chose.
    #[cold]
    pub(crate) fn drop_chosen<'a>(
        &self,
        state: &mut State,
        clock: Clock,
        queue: Queue<'a>,
        packet: Packet<'a>,
        color: Color,
    ) -> Verdict {
        let packet = self.count_dropped(state, clock, packet);
        if let Some(pool) = &state.pool {
            pool.give_back(u64::from(packet.len_bytes()));
        }
        self.counters.drops_ecn.add(1);
        self.drop_packet(state, queue, packet, color, DropCause::Ecn)
    }

    /// Appends a packet to the queue.
    #[inline(always)]
    pub(crate) fn accept<'a>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        queue: Queue<'a>,
        mut packet: Packet<'a>,
        color: Color,
        len_bytes: u64,
    ) -> Verdict {
        if queue.is_empty() {
            let now_ns = clock.now_ns();
            self.counters.busy_since_ns.set(now_ns);
            state.port.shaper.start(now_ns);
        }
        *packet.cb() = color as u8;
        state.port.queued.add(color, len_bytes);
        let backlog_bytes = state.port.queued.total();
        if backlog_bytes > self.counters.backlog_max_bytes.get() {
            self.counters.backlog_max_bytes.set(backlog_bytes);
        }
        if let Some(bytes) = self.counters.accepted_bytes.get(color as usize) {
            bytes.add(len_bytes);
        }
        queue.push(packet)
    }

    /// [`Qdisc::enqueue`] for any packet and port.
    #[inline(never)]
    pub(crate) fn enqueue_any<'a>(
        &self,
        state: &mut State,
        queue: Queue<'a>,
        packet: Packet<'a>,
    ) -> Verdict {
        let mut clock = Clock::default();
        let len_bytes = u64::from(packet.len_bytes());
        let (mut packet, color) = match self.color(&state.port.config.source, queue, packet) {
            Sorted::Color(packet, color) => (packet, color),
            Sorted::Drop(packet) => {
                return self.drop_packet(state, queue, packet, Color::Green, DropCause::Filter)
            }
            Sorted::Stolen(verdict) => return verdict,
        };

        if let Err(why) = self.admit(state, color, len_bytes) {
            let packet = self.count_dropped(state, clock, packet);
            queue.count_overlimit();
            return self.drop_packet(state, queue, packet, color, why);
        }
        if state.port.config.mark_at_enqueue {
            *packet.cb() = color as u8;
            packet = match self.judge::<true>(state, &mut clock, queue, packet) {
                Ok(packet) => packet,
                Err(packet) => return self.drop_chosen(state, clock, queue, packet, color),
            };
        }
        if state.port.config.count_acks || !packet.is_pure_ack() {
            self.count_load::<true>(state, &mut clock, len_bytes);
        }
        if !matches!(state.port.config.source, Source::None) {
            let red_bytes = match color {
                // Two numbers of 32 bits.
                Color::Red => state.port.queued.of(Color::Red).wrapping_add(len_bytes),
                Color::Green | Color::Yellow => 0,
            };
            self.counters.count_color(color, red_bytes);
        }
        self.accept(state, &mut clock, queue, packet, color, len_bytes)
    }

    /// Removes the first packet from the queue.
    #[inline(always)]
    pub(crate) fn take<'a>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        queue: Queue<'a>,
    ) -> Option<Packet<'a>> {
        let mut packet = queue.pop()?;
        let len_bytes = u64::from(packet.len_bytes());
        if *packet.cb() == Color::Green as u8 && state.pool.is_none() {
            state.port.queued.remove(Color::Green, len_bytes);
        } else {
            state.leave(color_of(&mut packet), len_bytes);
        }
        if queue.is_empty() {
            self.counters.go_idle(clock.now_ns());
        }
        Some(packet)
    }

    /// Drops a removed packet and takes others, until one need not or must not be dropped.
    #[cold]
    pub(crate) fn take_another<'a>(
        &self,
        state: &mut State,
        mut clock: Clock,
        queue: Queue<'a>,
        mut chosen: Packet<'a>,
    ) -> Option<Packet<'a>> {
        while !queue.must_give() {
            let color = color_of(&mut chosen);
            self.counters.drops_ecn.add(1);
            self.drop_packet(state, queue, chosen, color, DropCause::Ecn);
            let packet = self.take(state, &mut clock, queue)?;
            match self.judge::<true>(state, &mut clock, queue, packet) {
                Ok(packet) => return Some(packet),
                Err(packet) => chosen = packet,
            }
        }
        Some(chosen)
    }

    /// Takes a packet from the queue and marks it if RED chooses it, or drops it and takes another.
    #[inline(always)]
    pub(crate) fn take_and_judge<'a, const SHARED: bool>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        queue: Queue<'a>,
    ) -> Option<Packet<'a>> {
        let packet = self.take(state, clock, queue)?;
        if state.port.config.mark_at_enqueue {
            return Some(packet);
        }
        match self.judge::<SHARED>(state, clock, queue, packet) {
            Ok(packet) => Some(packet),
            Err(packet) => self.take_another(state, *clock, queue, packet),
        }
    }

    /// [`Qdisc::dequeue`] for a port with a rate.
    #[inline(never)]
    pub(crate) fn dequeue_shaped<'a>(
        &self,
        state: &mut State,
        queue: Queue<'a>,
    ) -> Option<Packet<'a>> {
        if state.shared_phantom.is_some() {
            return self.dequeue_any(state, queue);
        }
        let now_ns = now_ns();
        if !Self::may_send(state, queue, now_ns) {
            return None;
        }
        let packet = self.take_and_judge::<false>(state, &mut Clock(Some(now_ns)), queue)?;
        state.port.charge(now_ns, packet.len_bytes());
        Some(packet)
    }

    /// [`Qdisc::dequeue`] for any port.
    #[inline(never)]
    pub(crate) fn dequeue_any<'a>(
        &self,
        state: &mut State,
        queue: Queue<'a>,
    ) -> Option<Packet<'a>> {
        let now_ns = now_ns();
        let shaped = state.port.config.rate_bytes_per_s != 0;
        if shaped && !Self::may_send(state, queue, now_ns) {
            return None;
        }
        let packet = self.take_and_judge::<true>(state, &mut Clock(Some(now_ns)), queue)?;
        if shaped {
            state.port.charge(now_ns, packet.len_bytes());
        }
        Some(packet)
    }

    /// Returns whether the shaper releases a packet; otherwise schedules the next dequeue.
    #[inline(always)]
    pub(crate) fn may_send(state: &State, queue: Queue<'_>, now_ns: u64) -> bool {
        let next_ns = state.port.shaper.next_ns();
        if now_ns < next_ns {
            queue.count_overlimit();
            queue.schedule_watchdog(next_ns);
            return false;
        }
        true
    }
}

/// Returns the color that the packet got at enqueue.
#[inline(always)]
pub(crate) fn color_of(packet: &mut Packet<'_>) -> Color {
    match *packet.cb() {
        0 => Color::Green,
        tag => Color::from_u8(tag).unwrap_or_default(),
    }
}

/// Mask of a class id's minor number.
pub(crate) const MINOR: u32 = 0xffff;

/// Returns the color of a priority, if it belongs to this qdisc's handle.
pub(crate) fn color_of_class(queue: Queue<'_>, class: u32) -> Color {
    if class & !MINOR == queue.handle() {
        Color::from_minor(class & MINOR)
    } else {
        Color::Green
    }
}
