// SPDX-License-Identifier: GPL-2.0

//! A network of switches: next hops, links and queues, driven by events.
//!
//! A packet that arrives at a switch selects a port, passes its policer, wire and queue, and arrives at the
//! next switch or at a host. As with a qdisc below netem, the delay comes before the queue, and an idle
//! queue sends a packet at once and delays the next one. Queues follow [`super::port`], so they mark and
//! drop as sch_phantom does. A port has one timer, for the first packet on its wire or in its queue.
//! Time is the time of an event, not the time of its execution, so a late timer delays no packet.

use super::{
    color::{Color, DynamicThreshold},
    fabric_switch::Switch,
    fabric_timers::{Entry, NEVER_NS, Timers},
    fabric_wire::{self, BurstLoss, Wire},
    policer::{self, Policer},
    port::{self, At, Cause, Source},
    random::Random,
};
use core::ops::DerefMut;

/// Events that one call executes at most, so that other work of the processor can go on.
const EVENTS: u32 = 1 << 16;

/// Source of arrays.
pub trait Storage {
    /// An array.
    type Of<T>: DerefMut<Target = [T]>;
}

/// A packet.
pub trait Frame {
    /// Returns the length with the Ethernet header.
    fn len_bytes(&self) -> u32;
    /// Stores a time for [`Fifo::first_due_ns`].
    fn set_due_ns(&mut self, due_ns: u64);
    /// Returns the color that [`Self::set_color`] stored.
    fn color(&self) -> Color;
    /// Stores a color.
    fn set_color(&mut self, color: Color);
    /// Returns the number of the destination; None if it is no host of the network.
    fn destination(&self) -> Option<u32>;
    /// Counts a hop; returns whether the packet may go on.
    fn hop(&mut self) -> bool;
    /// Returns a hash of the flow, from 0 to 2^31 - 1.
    fn hash(&self, seed: u32) -> u32;
    /// Returns the DSCP, or None if the packet is no IP.
    fn dscp(&self) -> Option<u8>;
    /// Returns whether the packet is a TCP ACK without payload.
    fn is_pure_ack(&self) -> bool;
    /// Sets CE.
    fn set_ce(&mut self) -> Ce;
}

/// Outcome of [`Frame::set_ce`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ce {
    /// The packet was ECT and is CE now.
    Marked,
    /// The packet was CE.
    Already,
    /// The packet is not ECT.
    NotEct,
}

/// Packets in the order of their arrival.
pub trait Fifo: Default {
    /// A packet.
    type Frame: Frame;
    /// Appends a packet.
    fn push(&mut self, frame: Self::Frame);
    /// Removes the first packet.
    fn pop(&mut self) -> Option<Self::Frame>;
    /// Returns the time that the first packet stores.
    fn first_due_ns(&self) -> Option<u64>;
}

/// Cause of a drop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// No route.
    Route,
    /// Too many hops.
    Hops,
    /// The policer has no tokens for it.
    Policer,
    /// A loss of the wire.
    Link,
    /// The queue is full.
    Full,
    /// The limit of the packet's color is reached.
    Color,
    /// The pool's share of this port is used up.
    Pool,
    /// The packet would be marked, but is not ECT.
    Ecn,
}

/// Exits of the network.
pub trait Io<F> {
    /// A packet arrives at a host's device.
    fn deliver(&mut self, device: u32, frame: F);
    /// A packet is dropped.
    fn drop(&mut self, frame: F, why: Why);
}

/// The other end of a port's link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Peer {
    /// Not connected.
    #[default]
    None,
    /// A switch.
    Switch(u32),
    /// A device of a host.
    Host(u32),
}

/// Settings of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The other end.
    pub peer: Peer,
    /// The policer before the wire.
    pub policer: policer::Settings,
    /// The wire.
    pub wire: fabric_wire::Settings,
    /// Queue; None = packets wait for the wire only, without a limit.
    pub queue: Option<Queue>,
}

/// Settings of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    /// Rules.
    pub config: port::Config,
    /// Restarts the random numbers.
    pub seed: Option<u64>,
    /// Index of the shared buffer.
    pub pool: Option<u32>,
}

/// A buffer that ports share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool {
    /// Size.
    pub limit_bytes: u64,
    /// Bytes that its ports hold.
    pub used_bytes: u64,
}

/// A port and its link.
#[derive(Default)]
pub struct Port<Q: Fifo> {
    peer: Peer,
    policer: Policer,
    wire: Wire,
    on_wire: Q,
    burst: BurstLoss,
    is_queued: bool,
    rules: port::Port,
    pool: Option<u32>,
    waiting: Q,
    /// Counters.
    pub counts: Counts,
}

/// Counters of a port. Colors are green, yellow and red.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets on the wire.
    pub wire_packets: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Packets that the policer dropped.
    pub policed: u64,
    /// Packets that the wire lost.
    pub lost: u64,
    /// Packets lost in bursts, after they were sent.
    pub burst_lost: u64,
    /// Packets sent to the other end.
    pub sent_packets: u64,
    /// Bytes sent to the other end.
    pub sent_bytes: u64,
    /// Packets in the queue.
    pub queued_packets: u64,
    /// Most bytes in the queue.
    pub backlog_max_bytes: u64,
    /// Most bytes in the phantom queue.
    pub phantom_max_bytes: u64,
    /// Most red bytes in the queue.
    pub red_max_bytes: u64,
    /// Packets marked by the phantom queue, by the physical one, and by both.
    pub marked: [u64; 3],
    /// Packets chosen for a mark.
    pub would_mark: u64,
    /// Drops by the limit, the pool, ECN, and a color's limit.
    pub drops: [u64; 4],
    /// Drops by color.
    pub dropped: [u64; 3],
    /// Accepted bytes by color.
    pub accepted_bytes: [u64; 3],
    /// Accepted packets by color, if colors have a source.
    pub accepted_packets: [u64; 3],
    /// Time with packets in the queue, up to the last time that it became empty.
    pub busy_ns: u64,
    /// Start of the present busy time.
    pub busy_since_ns: u64,
}

fn bump(counter: Option<&mut u64>, by: u64) {
    if let Some(counter) = counter {
        *counter = counter.wrapping_add(by);
    }
}

impl<Q: Fifo> Port<Q> {
    /// Returns the time of the port's next event.
    fn next_ns(&self) -> u64 {
        let wire_ns = self.on_wire.first_due_ns().unwrap_or(NEVER_NS);
        match self.counts.queued_packets {
            0 => wire_ns,
            _ => wire_ns.min(self.rules.shaper.next_ns()),
        }
    }

    /// Returns the rules of the queue.
    pub fn rules(&self) -> Option<&port::Port> {
        self.is_queued.then_some(&self.rules)
    }

    /// Returns the time with packets in the queue.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        let present_ns = match self.counts.queued_packets {
            0 => 0,
            _ => now_ns.saturating_sub(self.counts.busy_since_ns),
        };
        self.counts.busy_ns.saturating_add(present_ns)
    }

    /// Returns the occupancy of the phantom queue.
    pub fn phantom_bytes(&self, now_ns: u64) -> u64 {
        let mut phantom = self.rules.phantom;
        phantom.drain(&self.rules.config.phantom, now_ns)
    }

    /// Gives a packet to the wire; returns it if the wire loses it.
    fn transmit(&mut self, now_ns: u64, mut frame: Q::Frame) -> Option<Q::Frame> {
        if self.wire.loses() {
            bump(Some(&mut self.counts.lost), 1);
            return Some(frame);
        }
        let (len_bytes, is_empty) = (frame.len_bytes(), self.counts.wire_packets == 0);
        frame.set_due_ns(self.wire.arrival_ns(now_ns, len_bytes, is_empty));
        self.counts.wire_packets = self.counts.wire_packets.wrapping_add(1);
        let bytes = self.counts.wire_bytes;
        self.counts.wire_bytes = bytes.wrapping_add(u64::from(len_bytes));
        self.on_wire.push(frame);
        None
    }

    /// Takes a packet that has passed the wire.
    fn passed(&mut self, now_ns: u64) -> Option<Q::Frame> {
        if self.on_wire.first_due_ns()? > now_ns {
            return None;
        }
        let frame = self.on_wire.pop()?;
        self.counts.wire_packets = self.counts.wire_packets.wrapping_sub(1);
        let bytes = self.counts.wire_bytes;
        self.counts.wire_bytes = bytes.wrapping_sub(u64::from(frame.len_bytes()));
        Some(frame)
    }

    fn color(&self, frame: &Q::Frame) -> Color {
        match &self.rules.config.source {
            Source::Dscp(table) => frame.dscp().map_or(Color::Green, |dscp| table.get(dscp)),
            Source::None | Source::Priority | Source::Filter => Color::Green,
        }
    }

    /// Adds a packet to the phantom queue.
    fn count_load(&mut self, now_ns: u64, frame: &Q::Frame) {
        let config = &self.rules.config;
        if config.has_phantom() && (config.count_acks || !frame.is_pure_ack()) {
            let len_bytes = u64::from(frame.len_bytes());
            let bytes = self.rules.phantom.add(&config.phantom, now_ns, len_bytes);
            self.counts.phantom_max_bytes = self.counts.phantom_max_bytes.max(bytes);
        }
    }

    /// Runs RED; returns whether the packet must be dropped.
    fn judge(&mut self, now_ns: u64, frame: &mut Q::Frame) -> bool {
        let phantom_chooses = self.rules.phantom_chooses(&mut At(now_ns));
        let physical_chooses = self.rules.physical_chooses();
        let Some(cause) = self.rules.cause(phantom_chooses, physical_chooses) else {
            return false;
        };
        bump(Some(&mut self.counts.would_mark), 1);
        match frame.set_ce() {
            Ce::Marked => {
                let index = match cause {
                    Cause::Phantom => 0,
                    Cause::Physical => 1,
                    Cause::Both => 2,
                };
                bump(self.counts.marked.get_mut(index), 1);
                false
            }
            Ce::Already => false,
            Ce::NotEct => self.rules.config.ecn_drop,
        }
    }

    fn count_drop(&mut self, color: Color, why: Why) {
        let index = match why {
            Why::Full => 0,
            Why::Pool => 1,
            Why::Ecn => 2,
            _ => 3,
        };
        bump(self.counts.drops.get_mut(index), 1);
        bump(self.counts.dropped.get_mut(color as usize), 1);
    }

    /// Decides whether a packet enters the queue.
    fn admit(&mut self, pools: &mut [Pool], now_ns: u64, frame: &mut Q::Frame) -> Result<(), Why> {
        let color = self.color(frame);
        frame.set_color(color);
        let len_bytes = u64::from(frame.len_bytes());
        let pool = self.pool.and_then(|pool| pools.get_mut(pool as usize));
        let threshold = pool.as_ref().map(|pool| DynamicThreshold {
            limit_bytes: pool.limit_bytes,
            used_bytes: pool.used_bytes,
            alpha_ppm: self.rules.config.pool_alpha_ppm,
        });
        let port_bytes = self.rules.queued.total();
        let refused = match self.rules.admit(color, len_bytes) {
            Err(port::Full::Port) => Some(Why::Full),
            Err(port::Full::Color) => Some(Why::Color),
            Ok(()) => match threshold {
                Some(threshold) if !threshold.admit(port_bytes, len_bytes) => Some(Why::Pool),
                _ => None,
            },
        };
        let is_judged = refused.is_none() && self.rules.config.mark_at_enqueue;
        let refused = match is_judged && self.judge(now_ns, frame) {
            true => Some(Why::Ecn),
            false => refused,
        };
        self.count_load(now_ns, frame);
        if let Some(why) = refused {
            self.count_drop(color, why);
            return Err(why);
        }
        if let Some(pool) = pool {
            pool.used_bytes = pool.used_bytes.saturating_add(len_bytes);
        }
        Ok(())
    }

    /// Puts an admitted packet into the queue.
    fn enqueue(&mut self, now_ns: u64, frame: Q::Frame) {
        let (color, len_bytes) = (frame.color(), u64::from(frame.len_bytes()));
        let counts = &mut self.counts;
        if counts.queued_packets == 0 {
            counts.busy_since_ns = now_ns;
            self.rules.shaper.start(now_ns);
        }
        counts.queued_packets = counts.queued_packets.wrapping_add(1);
        self.rules.queued.add(color, len_bytes);
        counts.backlog_max_bytes = counts.backlog_max_bytes.max(self.rules.queued.total());
        bump(counts.accepted_bytes.get_mut(color as usize), len_bytes);
        if !matches!(self.rules.config.source, Source::None) {
            bump(counts.accepted_packets.get_mut(color as usize), 1);
            let red_bytes = self.rules.queued.of(Color::Red);
            counts.red_max_bytes = counts.red_max_bytes.max(red_bytes);
        }
        self.waiting.push(frame);
    }

    /// Takes the first packet if the shaper releases it, and whether RED drops it.
    fn dequeue(&mut self, pools: &mut [Pool], now_ns: u64) -> Option<(Q::Frame, bool)> {
        if self.counts.queued_packets == 0 || self.rules.shaper.next_ns() > now_ns {
            return None;
        }
        let mut frame = self.waiting.pop()?;
        let (color, len_bytes) = (frame.color(), u64::from(frame.len_bytes()));
        self.rules.queued.remove(color, len_bytes);
        self.counts.queued_packets = self.counts.queued_packets.wrapping_sub(1);
        if self.counts.queued_packets == 0 {
            let busy_ns = now_ns.saturating_sub(self.counts.busy_since_ns);
            bump(Some(&mut self.counts.busy_ns), busy_ns);
        }
        if let Some(pool) = self.pool.and_then(|pool| pools.get_mut(pool as usize)) {
            pool.used_bytes = pool.used_bytes.saturating_sub(len_bytes);
        }
        if !self.rules.config.mark_at_enqueue && self.judge(now_ns, &mut frame) {
            self.count_drop(color, Why::Ecn);
            return Some((frame, true));
        }
        if self.rules.config.rate_bytes_per_s != 0 {
            self.rules.charge(now_ns, frame.len_bytes());
        }
        Some((frame, false))
    }
}

/// The network.
pub struct Fabric<S: Storage, Q: Fifo> {
    /// Switches.
    pub switches: S::Of<Switch<S>>,
    /// Ports of all switches.
    pub ports: S::Of<Port<Q>>,
    /// Shared buffers.
    pub pools: S::Of<Pool>,
    timers: Timers<S>,
}

impl<S: Storage, Q: Fifo> Fabric<S, Q> {
    /// Creates a network. The last two arrays are memory for a timer of each port.
    pub fn new(
        switches: S::Of<Switch<S>>,
        ports: S::Of<Port<Q>>,
        pools: S::Of<Pool>,
        heap: S::Of<Entry>,
        places: S::Of<u32>,
    ) -> Self {
        Self {
            switches,
            ports,
            pools,
            timers: Timers::new(heap, places),
        }
    }

    /// Returns the time of the next event.
    pub fn next_ns(&self) -> u64 {
        self.timers.next_ns()
    }

    /// Returns the bytes in the shared buffer of a port.
    pub fn pool_used_bytes(&self, port: &Port<Q>) -> u64 {
        let pool = port.pool.and_then(|id| self.pools.get(id as usize));
        pool.map_or(0, |pool| pool.used_bytes)
    }

    /// Applies settings to a port. Its packets keep their places.
    pub fn configure(&mut self, id: u32, settings: &Settings, now_ns: u64) {
        let Some(port) = self.ports.get_mut(id as usize) else {
            return;
        };
        port.peer = settings.peer;
        port.policer.configure(settings.policer, now_ns);
        port.wire.configure(settings.wire);
        if let Some(queue) = &settings.queue {
            port.is_queued = true;
            // The packets in the queue move to the new pool.
            let bytes = port.rules.queued.total();
            if let Some(old) = port.pool.and_then(|id| self.pools.get_mut(id as usize)) {
                old.used_bytes = old.used_bytes.saturating_sub(bytes);
            }
            port.pool = queue.pool;
            if let Some(new) = port.pool.and_then(|id| self.pools.get_mut(id as usize)) {
                new.used_bytes = new.used_bytes.saturating_add(bytes);
            }
            port.rules.configure(queue.config, now_ns);
            if let Some(seed) = queue.seed {
                port.rules.random = Random::new(seed);
            }
        }
        self.timers.set(id, port.next_ns());
    }

    /// Replaces the burst losses at the end of a port's link.
    pub fn lose_bursts(&mut self, id: u32, burst: BurstLoss) {
        if let Some(port) = self.ports.get_mut(id as usize) {
            port.burst = burst;
        }
    }

    /// A packet arrives at a switch. [`Self::run`] must follow.
    pub fn arrive(
        &mut self,
        io: &mut impl Io<Q::Frame>,
        now_ns: u64,
        switch: u32,
        mut frame: Q::Frame,
    ) {
        let Some(node) = self.switches.get_mut(switch as usize) else {
            return io.drop(frame, Why::Route);
        };
        bump(Some(&mut node.counts.received), 1);
        if !frame.hop() {
            bump(Some(&mut node.counts.expired), 1);
            return io.drop(frame, Why::Hops);
        }
        let id = node.next_hop(&frame);
        let port = id.and_then(|id| self.ports.get_mut(id as usize));
        let (Some(id), Some(port)) = (id, port) else {
            bump(Some(&mut node.counts.unroutable), 1);
            return io.drop(frame, Why::Route);
        };
        if port.policer.refuses(now_ns, frame.len_bytes()) {
            bump(Some(&mut port.counts.policed), 1);
            return io.drop(frame, Why::Policer);
        }
        match port.transmit(now_ns, frame) {
            Some(lost) => io.drop(lost, Why::Link),
            // The packet may be the first one on the wire.
            None if port.counts.wire_packets == 1 => self.timers.set_earlier(id, port.next_ns()),
            None => {}
        }
    }

    /// Executes up to [`EVENTS`] events that are due. Returns the time of the next one.
    pub fn run(&mut self, io: &mut impl Io<Q::Frame>, now_ns: u64) -> u64 {
        for _ in 0..EVENTS {
            let Some((at_ns, id)) = self.timers.due(now_ns) else {
                break;
            };
            self.serve(io, at_ns, id);
        }
        self.timers.next_ns()
    }

    /// Moves the packets of a port whose time has come.
    fn serve(&mut self, io: &mut impl Io<Q::Frame>, now_ns: u64, id: u32) {
        let Some(mut port) = self.ports.get_mut(id as usize) else {
            return;
        };
        while let Some(mut frame) = port.passed(now_ns) {
            if !port.is_queued {
                self.depart(io, now_ns, id, frame);
            } else {
                match port.admit(&mut self.pools, now_ns, &mut frame) {
                    Ok(()) => port.enqueue(now_ns, frame),
                    Err(why) => io.drop(frame, why),
                }
            }
            port = match self.ports.get_mut(id as usize) {
                Some(port) => port,
                None => return,
            };
        }
        while let Some((frame, is_dropped)) = port.dequeue(&mut self.pools, now_ns) {
            match is_dropped {
                true => io.drop(frame, Why::Ecn),
                false => self.depart(io, now_ns, id, frame),
            }
            port = match self.ports.get_mut(id as usize) {
                Some(port) => port,
                None => return,
            };
        }
        self.timers.set(id, port.next_ns());
    }

    /// A packet arrives at the other end of a port's link.
    fn depart(&mut self, io: &mut impl Io<Q::Frame>, now_ns: u64, id: u32, frame: Q::Frame) {
        let Some(port) = self.ports.get_mut(id as usize) else {
            return io.drop(frame, Why::Route);
        };
        bump(Some(&mut port.counts.sent_packets), 1);
        bump(
            Some(&mut port.counts.sent_bytes),
            u64::from(frame.len_bytes()),
        );
        if port.burst.loses() {
            bump(Some(&mut port.counts.burst_lost), 1);
            return io.drop(frame, Why::Link);
        }
        match port.peer {
            Peer::Switch(switch) => self.arrive(io, now_ns, switch, frame),
            Peer::Host(device) => io.deliver(device, frame),
            Peer::None => io.drop(frame, Why::Route),
        }
    }
}

#[cfg(test)]
#[path = "tests/fabric.rs"]
mod tests;
