// SPDX-License-Identifier: GPL-2.0

//! Phantom: a switch port as a queue discipline.
//!
//! A FIFO, optionally shaped to a rate; a phantom queue, which counts the bytes of a slower port;
//! ECN marks from either or both; and less room for less important packets. Sources: Uno, sections
//! 4.1.3 and 5.1 (phantom queue, RED), and TLT, section 4 (colors). The netlink interface is
//! uapi/linux/pkt_phantom.h; counter, RED and thresholds are in algo/.
//!
//! Design decisions:
//!
//! 1. Each arriving packet enters the phantom queue, even if it is dropped: the queue models load,
//!    not occupancy.
//! 2. RED sees the bytes of other packets: at enqueue the queue before the packet, at dequeue the
//!    packets behind it.
//! 3. The shaper releases a packet when the earlier ones are serialized. It catches up late timers,
//!    so that the average is exact, but at most [`Shaper::MAX_LAG_NS`].
//! 4. Random numbers are a sequence of the port, so that equal seeds give equal simulations.
//! 5. A lower limit drops no queued packets; it admits no new ones.
//! 6. The ports directly below mq and similar qdiscs share one phantom queue, since they share the
//!    line. A request's size and drain apply to all of them, and the latest request wins, unless
//!    its drain is unknown.
//! 7. The port follows the device's speed, and keeps the last known speed.

use kernel::{
    prelude::*,
    sync::{new_mutex, Arc},
};

#[path = "../../algo/mod.rs"]
mod algo;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "phantom_options.rs"]
mod phantom_options;
#[path = "phantom_pool.rs"]
mod phantom_pool;
#[path = "phantom_shared.rs"]
mod phantom_shared;
#[path = "settings.rs"]
mod settings;

use algo::{
    color::{Color, DscpTable, Limits, Occupancy},
    fixed::{mul_div, NS_PER_S},
    phantom::{self, Phantom, Red},
    random::Random,
    shaper::Shaper,
};
use kernel_api::{
    netlink::{Extack, Message, Nest},
    qdisc::{
        now_ns, Ce, Classified, DropReason, Link, Packet, Qdisc, Queue, Registration, RtnlQdisc,
        Verdict,
    },
    relaxed::RelaxedCell,
    trace::{self, PacketInfo, Tracepoint},
    uapi::*,
};
use phantom_options::{Options, Request, Shown};
use phantom_pool::{Pool, Pools};
use phantom_shared::{Key, SharedPhantom, SharedPhantoms};

module! {
    type: Module,
    name: "sch_phantom",
    authors: ["xdc developers"],
    description: "Phantom queue discipline",
    license: "GPL v2",
    alias: ["net-sch-phantom"],
}

struct Module {
    _registration: Registration<Port>,
}

/// State that all ports share.
struct Common {
    pools: Arc<Pools>,
    phantoms: Arc<SharedPhantoms>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let common = Common {
            pools: Arc::pin_init(new_mutex!(KVec::new()), GFP_KERNEL)?,
            phantoms: Arc::pin_init(new_mutex!(KVec::new()), GFP_KERNEL)?,
        };
        Ok(Self {
            _registration: Registration::new(common)?,
        })
    }
}

// Configuration

/// Source of a packet's color.
#[derive(Clone, Copy)]
enum Source {
    None,
    Dscp(DscpTable),
    Priority,
    Filter,
}

/// [`Options`] in the form that packets need.
struct Config {
    // Physical queue
    limit_bytes: u64,
    /// 0 = not shaped.
    rate_bytes_per_s: u64,
    overhead_bytes: i64,
    mpu_bytes: i64,

    // Phantom queue; without a line rate it neither drains nor counts packets.
    phantom: phantom::Config,
    count_acks: bool,

    // Marks
    phantom_red: Red,
    physical_red: Red,
    /// Lowest occupancies that may mark; `u64::MAX` if the queue does not mark.
    phantom_from_bytes: u64,
    physical_from_bytes: u64,
    /// Mark only if both queues choose the packet.
    both: bool,
    mark_at_enqueue: bool,
    ecn_drop: bool,
    /// The phantom queue should mark, but its drain rate is unknown.
    lacks_line_rate: bool,

    // Colors
    source: Source,
    limits: Limits,

    split: bool,
    pool_alpha_ppm: u32,

    /// No colors, no pool, and each packet enters a phantom queue of this port.
    plain: bool,
    /// No shaper, and no shared phantom queue.
    plain_dequeue: bool,
}

impl Config {
    /// Converts options. `link_bytes_per_s`, 0 if unknown, is used if no option sets a rate.
    fn new(options: &Options, link_bytes_per_s: u64, shares_phantom: bool) -> Self {
        let number = |id| options.unsigned(id);
        let ppm = |id| number(id) as u32;
        let on = |id| number(id) != 0;

        let limit_bytes = number(TCA_PHANTOM_LIMIT);
        let phantom_limit_bytes = number(TCA_PHANTOM_PQ_LIMIT);
        let rate_bytes_per_s = number(TCA_PHANTOM_RATE64);
        let line_bytes_per_s = match number(TCA_PHANTOM_LINE_RATE64) {
            0 if rate_bytes_per_s != 0 => rate_bytes_per_s,
            0 => link_bytes_per_s,
            line_bytes_per_s => line_bytes_per_s,
        };
        let phantom = phantom::Config::new(
            line_bytes_per_s,
            ppm(TCA_PHANTOM_PQ_DRAIN_PPM),
            phantom_limit_bytes,
        );
        let has_phantom = phantom.drain_bytes_per_s != 0;
        let (by_phantom, by_physical) = match number(TCA_PHANTOM_MARK) as u32 {
            TC_PHANTOM_MARK_PHANTOM => (true, false),
            TC_PHANTOM_MARK_PHYSICAL => (false, true),
            TC_PHANTOM_MARK_EITHER | TC_PHANTOM_MARK_BOTH => (true, true),
            _ => (false, false),
        };
        let phantom_red = Red::new(
            phantom_limit_bytes,
            ppm(TCA_PHANTOM_PQ_MIN_PPM),
            ppm(TCA_PHANTOM_PQ_MAX_PPM),
        );
        let physical_red = Red::new(
            limit_bytes,
            ppm(TCA_PHANTOM_BACKLOG_MIN_PPM),
            ppm(TCA_PHANTOM_BACKLOG_MAX_PPM),
        );
        let from_bytes = |marks: bool, red: &Red| match marks {
            true => red.lowest_bytes(),
            false => u64::MAX,
        };
        let source = match number(TCA_PHANTOM_COLOR_SOURCE) as u32 {
            TC_PHANTOM_COLOR_SOURCE_DSCP => Source::Dscp(options.dscp_table()),
            TC_PHANTOM_COLOR_SOURCE_PRIORITY => Source::Priority,
            TC_PHANTOM_COLOR_SOURCE_FILTER => Source::Filter,
            _ => Source::None,
        };
        let count_acks = on(TCA_PHANTOM_COUNT_ACKS);
        Self {
            limit_bytes,
            rate_bytes_per_s,
            overhead_bytes: options.number(TCA_PHANTOM_OVERHEAD),
            mpu_bytes: options.number(TCA_PHANTOM_MPU),
            phantom,
            count_acks,
            phantom_from_bytes: from_bytes(by_phantom && has_phantom, &phantom_red),
            physical_from_bytes: from_bytes(by_physical, &physical_red),
            phantom_red,
            physical_red,
            both: number(TCA_PHANTOM_MARK) as u32 == TC_PHANTOM_MARK_BOTH,
            mark_at_enqueue: number(TCA_PHANTOM_MARK_AT) as u32 == TC_PHANTOM_MARK_AT_ENQUEUE,
            ecn_drop: on(TCA_PHANTOM_ECN_DROP),
            lacks_line_rate: by_phantom && !has_phantom,
            plain: matches!(source, Source::None)
                && count_acks
                && !options.has_pool()
                && !shares_phantom,
            plain_dequeue: rate_bytes_per_s == 0 && !shares_phantom,
            source,
            limits: Limits {
                yellow_bytes: number(TCA_PHANTOM_COLOR_LIMIT_YELLOW),
                red_bytes: number(TCA_PHANTOM_COLOR_LIMIT_RED),
                count_total: on(TCA_PHANTOM_COLOR_TOTAL),
            },
            split: match number(TCA_PHANTOM_GSO) as u32 {
                TC_PHANTOM_GSO_SPLIT => true,
                TC_PHANTOM_GSO_WHOLE => false,
                _ => by_phantom || by_physical,
            },
            pool_alpha_ppm: ppm(TCA_PHANTOM_POOL_ALPHA_PPM),
        }
    }

    fn has_phantom(&self) -> bool {
        self.phantom.drain_bytes_per_s != 0
    }
}

// The port

/// State of the queue, under its lock.
struct State {
    config: Config,
    queued: Occupancy,
    /// Phantom queue of this port, if it shares none.
    phantom: Phantom,
    shared_phantom: Option<Arc<SharedPhantom>>,
    shaper: Shaper,
    random: Random,
    pool: Option<Arc<Pool>>,
}

/// State under RTNL.
struct Rtnl {
    /// Id of this port among those of its phantom queue.
    id: u64,
    /// Last known speed of the device; 0 = none.
    link_bytes_per_s: u64,
    /// Shared objects of [`State`].
    pool: Option<Arc<Pool>>,
    shared_phantom: Option<Arc<SharedPhantom>>,
}

impl Rtnl {
    /// Stores the device's speed, which is unknown while its link is down.
    fn learn_link(&mut self, bytes_per_s: Option<u64>) {
        if let Some(bytes_per_s) = bytes_per_s {
            self.link_bytes_per_s = bytes_per_s;
        }
    }

    /// Configures the shared phantom queue. If the user named size or drain, this port decides;
    /// otherwise the port of the last such request does.
    fn configure_shared(&self, request: &Request<'_>, config: &phantom::Config) {
        const NAMED: &[u32] = &[
            TCA_PHANTOM_LINE_RATE64,
            TCA_PHANTOM_RATE64,
            TCA_PHANTOM_PQ_LIMIT,
            TCA_PHANTOM_PQ_DRAIN_PPM,
        ];
        let Some(shared) = &self.shared_phantom else {
            return;
        };
        if NAMED.iter().any(|&id| request.get(id).is_some()) {
            shared.configure_by_user(self.id, config, now_ns());
        } else {
            shared.configure_by_device(self.id, config, now_ns());
        }
    }

    fn close(&mut self, common: &Common) {
        if let Some(pool) = self.pool.take() {
            pool.close(&common.pools);
        }
        if let Some(shared) = self.shared_phantom.take() {
            shared.close(&common.phantoms, self.id);
        }
    }

    fn config(&self, options: &Options) -> Config {
        let shares_phantom = self.shared_phantom.is_some();
        Config::new(options, self.link_bytes_per_s, shares_phantom)
    }
}

impl State {
    /// Returns whether the port's own limit admits a packet.
    #[inline(always)]
    fn has_room(&self, len_bytes: u64) -> bool {
        // Cannot overflow: both numbers have 32 bits.
        self.queued.total().wrapping_add(len_bytes) <= self.config.limit_bytes
    }

    /// Returns the fields of a packet's trace event.
    fn packet_info(&self, packet: &Packet<'_>, dsfield: u8, color: Color, why: u32) -> PacketInfo {
        PacketInfo {
            queue_bytes: self.queued.total(),
            phantom_bytes: match &self.shared_phantom {
                None => self.phantom.bytes(),
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
    fn leave(&mut self, color: Color, len_bytes: u64) {
        self.queued.remove(color, len_bytes);
        if let Some(pool) = &self.pool {
            pool.give_back(len_bytes);
        }
    }

    /// Runs both REDs for one packet.
    #[inline(always)]
    fn choose<const SHARED: bool>(&mut self, clock: &mut Clock) -> Option<Cause> {
        let phantom_chooses = match SHARED {
            false => self.phantom_chooses(clock),
            true => self.shared_phantom_chooses(clock),
        };
        match (phantom_chooses, self.physical_chooses()) {
            (false, false) => None,
            (true, true) => Some(Cause::Both),
            _ if self.config.both => None,
            (true, false) => Some(Cause::Phantom),
            (false, true) => Some(Cause::Physical),
        }
    }

    /// Pending drain only lowers occupancy, so below the threshold the clock is not read.
    #[inline(always)]
    fn phantom_chooses(&mut self, clock: &mut Clock) -> bool {
        let from_bytes = self.config.phantom_from_bytes;
        self.phantom.bytes() >= from_bytes
            && self.phantom.drain(&self.config.phantom, clock.now_ns()) >= from_bytes
            && chooses(
                &self.config.phantom_red,
                self.phantom.bytes(),
                &mut self.random,
            )
    }

    /// [`Self::phantom_chooses`] of a port that may share its phantom queue.
    fn shared_phantom_chooses(&mut self, clock: &mut Clock) -> bool {
        let Some(shared) = &self.shared_phantom else {
            return self.phantom_chooses(clock);
        };
        let from_bytes = self.config.phantom_from_bytes;
        if from_bytes == u64::MAX {
            return false;
        }
        let bytes = shared.bytes(clock.now_ns());
        bytes >= from_bytes && chooses(&self.config.phantom_red, bytes, &mut self.random)
    }

    /// Adds a packet to the phantom queue. Returns the occupancy.
    #[inline(always)]
    fn phantom_add<const SHARED: bool>(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        match &self.shared_phantom {
            Some(shared) if SHARED => shared.add(now_ns, len_bytes),
            _ => self.phantom.add(&self.config.phantom, now_ns, len_bytes),
        }
    }

    #[inline(always)]
    fn physical_chooses(&mut self) -> bool {
        let bytes = self.queued.total();
        bytes >= self.config.physical_from_bytes
            && chooses(&self.config.physical_red, bytes, &mut self.random)
    }
}

/// Draws a random number only if the outcome depends on it.
#[inline(always)]
fn chooses(red: &Red, bytes: u64, random: &mut Random) -> bool {
    bytes >= red.max_bytes || red.chooses(bytes, random.next_u32())
}

/// Counters, written under the queue's lock and read without it.
struct Counters {
    // Phantom queue as of the last packet
    phantom_bytes: RelaxedCell<u64>,
    phantom_at_ns: RelaxedCell<u64>,
    phantom_max_bytes: RelaxedCell<u64>,
    phantom_drain_bytes_per_s: RelaxedCell<u64>,

    // Physical queue
    backlog_max_bytes: RelaxedCell<u64>,
    accepted_bytes: [RelaxedCell<u64>; COLORS],
    /// Counted only if colors have a source, so that other ports save the cost.
    accepted_packets: [RelaxedCell<u64>; COLORS],
    red_max_bytes: RelaxedCell<u64>,
    busy_ns: RelaxedCell<u64>,
    /// 0 = idle.
    busy_since_ns: RelaxedCell<u64>,

    // Marked packets by cause
    marked_phantom: RelaxedCell<u64>,
    marked_physical: RelaxedCell<u64>,
    marked_both: RelaxedCell<u64>,
    would_mark: RelaxedCell<u64>,

    // Dropped packets by cause and by color
    drops_limit: RelaxedCell<u64>,
    drops_pool: RelaxedCell<u64>,
    drops_ecn: RelaxedCell<u64>,
    drops_color: RelaxedCell<u64>,
    drops: [RelaxedCell<u64>; COLORS],
}

const COLORS: usize = Color::Red as usize + 1;

impl Counters {
    fn new() -> Self {
        Self {
            phantom_bytes: RelaxedCell::new(0),
            phantom_at_ns: RelaxedCell::new(0),
            phantom_max_bytes: RelaxedCell::new(0),
            phantom_drain_bytes_per_s: RelaxedCell::new(0),
            backlog_max_bytes: RelaxedCell::new(0),
            accepted_bytes: [const { RelaxedCell::new(0) }; COLORS],
            accepted_packets: [const { RelaxedCell::new(0) }; COLORS],
            red_max_bytes: RelaxedCell::new(0),
            busy_ns: RelaxedCell::new(0),
            busy_since_ns: RelaxedCell::new(0),
            marked_phantom: RelaxedCell::new(0),
            marked_physical: RelaxedCell::new(0),
            marked_both: RelaxedCell::new(0),
            would_mark: RelaxedCell::new(0),
            drops_limit: RelaxedCell::new(0),
            drops_pool: RelaxedCell::new(0),
            drops_ecn: RelaxedCell::new(0),
            drops_color: RelaxedCell::new(0),
            drops: [const { RelaxedCell::new(0) }; COLORS],
        }
    }

    /// Counts an accepted packet, with the red bytes in the queue after it.
    #[inline(always)]
    fn count_color(&self, color: Color, red_bytes: u64) {
        if let Some(packets) = self.accepted_packets.get(color as usize) {
            packets.add(1);
        }
        if red_bytes > self.red_max_bytes.get() {
            self.red_max_bytes.set(red_bytes);
        }
    }

    fn show_phantom(&self, bytes: u64, now_ns: u64) {
        self.phantom_bytes.set(bytes);
        self.phantom_at_ns.set(now_ns);
        if bytes > self.phantom_max_bytes.get() {
            self.phantom_max_bytes.set(bytes);
        }
    }

    /// Returns the occupancy now: the last value less the drain since.
    fn phantom_bytes_at(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.phantom_at_ns.get());
        let drained = mul_div(elapsed_ns, self.phantom_drain_bytes_per_s.get(), NS_PER_S);
        self.phantom_bytes.get().saturating_sub(drained)
    }

    fn go_idle(&self, now_ns: u64) {
        let since_ns = self.busy_since_ns.get();
        if since_ns != 0 {
            self.busy_ns.add(now_ns.saturating_sub(since_ns));
            self.busy_since_ns.set(0);
        }
    }

    fn busy_ns_until(&self, now_ns: u64) -> u64 {
        let current_ns = match self.busy_since_ns.get() {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        self.busy_ns.get().wrapping_add(current_ns)
    }
}

/// Time of one callback, read at first use: the read is a fifth of a packet's cost, and some
/// packets need no time.
#[derive(Clone, Copy, Default)]
struct Clock(Option<u64>);

impl Clock {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        *self.0.get_or_insert_with(now_ns)
    }
}

/// Result of a packet's color lookup.
enum Sorted<'a> {
    Color(Packet<'a>, Color),
    Drop(Packet<'a>),
    Stolen(Verdict),
}

/// Queue that chose a packet for a mark.
#[derive(Clone, Copy)]
enum Cause {
    Phantom,
    Physical,
    Both,
}

impl Cause {
    fn number(self) -> trace::MarkCause {
        match self {
            Self::Phantom => trace::XDC_MARK_PHANTOM,
            Self::Physical => trace::XDC_MARK_PHYSICAL,
            Self::Both => trace::XDC_MARK_BOTH,
        }
    }
}

/// Cause of a drop.
#[derive(Clone, Copy)]
enum DropCause {
    /// The port is full.
    Limit,
    /// The limit of this color is reached.
    Color,
    /// The pool's share of this port is used up.
    Pool,
    /// The packet would be marked, but is not ECT.
    Ecn,
    /// A filter's verdict.
    Filter,
    /// The packet could not be split.
    Whole,
}

impl DropCause {
    /// Returns the reason for the drop monitor; a filter sets its own.
    fn reason(self) -> Option<DropReason> {
        match self {
            Self::Limit | Self::Color | Self::Pool => Some(DropReason::Overlimit),
            Self::Ecn => Some(DropReason::Congested),
            Self::Whole => Some(DropReason::Other),
            Self::Filter => None,
        }
    }

    /// Returns the reason for `xdc:phantom_drop`.
    fn number(self) -> trace::DropReason {
        match self {
            Self::Limit => trace::XDC_DROP_LIMIT,
            Self::Color => trace::XDC_DROP_COLOR,
            Self::Pool => trace::XDC_DROP_POOL,
            Self::Ecn => trace::XDC_DROP_ECN,
            Self::Filter => trace::XDC_DROP_FILTER,
            Self::Whole => trace::XDC_DROP_SPLIT,
        }
    }
}

/// One qdisc.
struct Port {
    options: Shown,
    counters: Counters,
}

impl Port {
    #[inline(always)]
    fn drop_packet<'a>(
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
    fn trace_drop(
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
    fn color<'a>(&self, source: &Source, queue: Queue<'a>, packet: Packet<'a>) -> Sorted<'a> {
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
    fn mark<'a>(
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
            Ce::NotEct if state.config.ecn_drop => Err(packet),
            _ => Ok(packet),
        }
    }

    /// [`Self::mark`] with tracing.
    #[cold]
    #[inline(never)]
    fn mark_traced<'a>(
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
                let info = state.packet_info(&packet, before, color, cause.number());
                trace::PhantomMark::emit((&queue, &packet), &info);
            }
            Ce::NotEct if state.config.ecn_drop => return Err(packet),
            Ce::NotEct | Ce::Already => {}
        }
        Ok(packet)
    }

    /// Sets CE on an ECT packet, and counts.
    #[inline(always)]
    fn set_ce(&self, cause: Cause, packet: &mut Packet<'_>) -> Ce {
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
    fn judge<'a, const SHARED: bool>(
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
    fn admit(&self, state: &State, color: Color, len_bytes: u64) -> Result<(), DropCause> {
        let config = &state.config;
        let port_bytes = state.queued.total();
        if !state.has_room(len_bytes) {
            self.counters.drops_limit.add(1);
            return Err(DropCause::Limit);
        }
        if !config.limits.admit(&state.queued, color, len_bytes) {
            self.counters.drops_color.add(1);
            return Err(DropCause::Color);
        }
        if let Some(pool) = &state.pool {
            if !pool.take(config.pool_alpha_ppm, port_bytes, len_bytes) {
                self.counters.drops_pool.add(1);
                return Err(DropCause::Pool);
            }
        }
        Ok(())
    }

    /// Adds a packet to the phantom queue.
    #[inline(always)]
    fn count_load<const SHARED: bool>(&self, state: &mut State, clock: &mut Clock, len_bytes: u64) {
        if state.config.has_phantom() {
            let now_ns = clock.now_ns();
            let bytes = state.phantom_add::<SHARED>(now_ns, len_bytes);
            self.counters.show_phantom(bytes, now_ns);
        }
    }

    /// [`Self::count_load`] for a packet that will be dropped.
    // By value, so that other packets stay in registers.
    #[cold]
    fn count_dropped<'a>(
        &self,
        state: &mut State,
        mut clock: Clock,
        packet: Packet<'a>,
    ) -> Packet<'a> {
        if state.config.count_acks || !packet.is_pure_ack() {
            self.count_load::<true>(state, &mut clock, u64::from(packet.len_bytes()));
        }
        packet
    }

    /// Drops an admitted packet that RED chose.
    #[cold]
    fn drop_chosen<'a>(
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
    fn accept<'a>(
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
            state.shaper.start(now_ns);
        }
        *packet.cb() = color as u8;
        state.queued.add(color, len_bytes);
        let backlog_bytes = state.queued.total();
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
    fn enqueue_any<'a>(&self, state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Verdict {
        let mut clock = Clock::default();
        let len_bytes = u64::from(packet.len_bytes());
        let (mut packet, color) = match self.color(&state.config.source, queue, packet) {
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
        if state.config.mark_at_enqueue {
            *packet.cb() = color as u8;
            packet = match self.judge::<true>(state, &mut clock, queue, packet) {
                Ok(packet) => packet,
                Err(packet) => return self.drop_chosen(state, clock, queue, packet, color),
            };
        }
        if state.config.count_acks || !packet.is_pure_ack() {
            self.count_load::<true>(state, &mut clock, len_bytes);
        }
        if !matches!(state.config.source, Source::None) {
            let red_bytes = match color {
                // Two numbers of 32 bits.
                Color::Red => state.queued.of(Color::Red).wrapping_add(len_bytes),
                Color::Green | Color::Yellow => 0,
            };
            self.counters.count_color(color, red_bytes);
        }
        self.accept(state, &mut clock, queue, packet, color, len_bytes)
    }

    /// Removes the first packet from the queue.
    #[inline(always)]
    fn take<'a>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        queue: Queue<'a>,
    ) -> Option<Packet<'a>> {
        let mut packet = queue.pop()?;
        let len_bytes = u64::from(packet.len_bytes());
        if *packet.cb() == Color::Green as u8 && state.pool.is_none() {
            state.queued.remove(Color::Green, len_bytes);
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
    fn take_another<'a>(
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
    fn take_and_judge<'a, const SHARED: bool>(
        &self,
        state: &mut State,
        clock: &mut Clock,
        queue: Queue<'a>,
    ) -> Option<Packet<'a>> {
        let packet = self.take(state, clock, queue)?;
        if state.config.mark_at_enqueue {
            return Some(packet);
        }
        match self.judge::<SHARED>(state, clock, queue, packet) {
            Ok(packet) => Some(packet),
            Err(packet) => self.take_another(state, *clock, queue, packet),
        }
    }

    /// [`Qdisc::dequeue`] for a port with a rate.
    #[inline(never)]
    fn dequeue_shaped<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        if state.shared_phantom.is_some() {
            return self.dequeue_any(state, queue);
        }
        let now_ns = now_ns();
        if !Self::may_send(state, queue, now_ns) {
            return None;
        }
        let packet = self.take_and_judge::<false>(state, &mut Clock(Some(now_ns)), queue)?;
        Self::charge(state, now_ns, &packet);
        Some(packet)
    }

    /// [`Qdisc::dequeue`] for any port.
    #[inline(never)]
    fn dequeue_any<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        let now_ns = now_ns();
        let shaped = state.config.rate_bytes_per_s != 0;
        if shaped && !Self::may_send(state, queue, now_ns) {
            return None;
        }
        let packet = self.take_and_judge::<true>(state, &mut Clock(Some(now_ns)), queue)?;
        if shaped {
            Self::charge(state, now_ns, &packet);
        }
        Some(packet)
    }

    /// Returns whether the shaper releases a packet; otherwise schedules the next dequeue.
    #[inline(always)]
    fn may_send(state: &State, queue: Queue<'_>, now_ns: u64) -> bool {
        let next_ns = state.shaper.next_ns();
        if now_ns < next_ns {
            queue.count_overlimit();
            queue.schedule_watchdog(next_ns);
            return false;
        }
        true
    }

    /// Charges the shaper for a released packet.
    #[inline(always)]
    fn charge(state: &mut State, now_ns: u64, packet: &Packet<'_>) {
        let wire_bytes = i64::from(packet.len_bytes())
            .saturating_add(state.config.overhead_bytes)
            .max(state.config.mpu_bytes)
            .max(1);
        let rate = state.config.rate_bytes_per_s;
        state.shaper.charge(now_ns, wire_bytes as u64, rate);
    }

    /// Applies a configuration; returns the previous pool.
    fn configure(
        &self,
        qdisc: &mut RtnlQdisc<'_, Self>,
        config: Config,
        pool: Option<Arc<Pool>>,
    ) -> Option<Arc<Pool>> {
        let now_ns = now_ns();
        let drain_bytes_per_s = config.phantom.drain_bytes_per_s;
        let old = qdisc.lock(|state| {
            // Drains at the old rate up to now.
            let phantom_bytes = match &state.shared_phantom {
                Some(shared) => shared.bytes(now_ns),
                None => state.phantom.drain(&state.config.phantom, now_ns),
            };
            self.counters.show_phantom(phantom_bytes, now_ns);
            self.counters
                .phantom_drain_bytes_per_s
                .set(drain_bytes_per_s);
            let old_rate = state.config.rate_bytes_per_s;
            state
                .shaper
                .change_rate(now_ns, old_rate, config.rate_bytes_per_s);
            state.config = config;

            let queued_bytes = state.queued.total();
            let old = core::mem::replace(&mut state.pool, pool);
            if let Some(old) = &old {
                old.give_back(queued_bytes);
            }
            if let Some(new) = &state.pool {
                new.take_over(queued_bytes);
            }
            old
        });
        old.flatten()
    }
}

/// Returns the color that the packet got at enqueue.
#[inline(always)]
fn color_of(packet: &mut Packet<'_>) -> Color {
    match *packet.cb() {
        0 => Color::Green,
        tag => Color::from_u8(tag).unwrap_or_default(),
    }
}

impl Qdisc for Port {
    const NAME: &'static CStr = c"phantom";

    type Module = Common;
    type State = State;
    type Rtnl = Rtnl;
    type Stats = tc_phantom_xstats;

    fn init(
        common: &Common,
        qdisc: &mut RtnlQdisc<'_, Self>,
        nest: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Rtnl, State)> {
        let request = Request::parse(nest, extack)?;
        let mut options = Options::new();
        options.read(&request, extack)?;
        let device = qdisc.device();
        let key = |parent| Key {
            device: device.id(),
            parent,
        };
        let shared_phantom = match qdisc.below_mq() {
            Some(parent) => Some(SharedPhantom::open(&common.phantoms, key(parent))?),
            None => None,
        };
        let mut rtnl = Rtnl {
            id: qdisc.id(),
            link_bytes_per_s: 0,
            pool: None,
            shared_phantom,
        };
        rtnl.learn_link(device.link_bytes_per_s());
        let config = rtnl.config(&options);
        // Without options (net.core.default_qdisc) the user may not expect this qdisc.
        if config.lacks_line_rate && !nest.is_none() {
            rtnl.close(common);
            return Err(extack.invalid(NO_LINE_RATE));
        }
        match Pool::open(
            &common.pools,
            qdisc.net(),
            &options,
            false,
            &request,
            extack,
        ) {
            Ok(pool) => rtnl.pool = pool,
            Err(error) => {
                rtnl.close(common);
                return Err(error);
            }
        }
        let port = Self {
            options: Shown::new(&options),
            counters: Counters::new(),
        };
        port.counters
            .phantom_drain_bytes_per_s
            .set(config.phantom.drain_bytes_per_s);
        rtnl.configure_shared(&request, &config.phantom);
        let state = State {
            config,
            queued: Occupancy::default(),
            phantom: Phantom::default(),
            shared_phantom: rtnl.shared_phantom.clone(),
            shaper: Shaper::default(),
            random: Random::new(options.seed()),
            pool: rtnl.pool.clone(),
        };
        Ok((port, rtnl, state))
    }

    fn change(
        &self,
        common: &Common,
        rtnl: &mut Rtnl,
        qdisc: &mut RtnlQdisc<'_, Self>,
        nest: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result {
        let request = Request::parse(nest, extack)?;
        let mut options = self.options.get();
        rtnl.learn_link(qdisc.device().link_bytes_per_s());
        let (old_pool, lacked_line_rate) = (options.pool, rtnl.config(&options).lacks_line_rate);
        options.read(&request, extack)?;
        let config = rtnl.config(&options);
        if config.lacks_line_rate && !lacked_line_rate {
            return Err(extack.invalid(NO_LINE_RATE));
        }
        let is_in = options.pool == old_pool;
        rtnl.pool = Pool::open(
            &common.pools,
            qdisc.net(),
            &options,
            is_in,
            &request,
            extack,
        )?;
        rtnl.configure_shared(&request, &config.phantom);
        if let Some(old) = self.configure(qdisc, config, rtnl.pool.clone()) {
            old.close(&common.pools);
        }
        if request.get(TCA_PHANTOM_SEED).is_some() {
            qdisc.lock(|state| state.random = Random::new(options.seed()));
        }
        self.options.set(&options);
        // The timer may be set for the old rate.
        qdisc.schedule_watchdog_now();
        Ok(())
    }

    fn link_changed(&self, rtnl: &mut Rtnl, qdisc: &mut RtnlQdisc<'_, Self>, link: &mut Link<'_>) {
        rtnl.learn_link(link.bytes_per_s());
        let config = rtnl.config(&self.options.get());
        let drain_bytes_per_s = config.phantom.drain_bytes_per_s;
        if drain_bytes_per_s != self.counters.phantom_drain_bytes_per_s.get() {
            if let Some(shared) = &rtnl.shared_phantom {
                shared.configure_by_device(rtnl.id, &config.phantom, now_ns());
            }
            self.configure(qdisc, config, rtnl.pool.clone());
        }
    }

    fn destroy(&self, common: &Common, rtnl: &mut Rtnl, _state: &mut State) {
        rtnl.close(common);
    }

    fn splits_segments(state: &State) -> bool {
        state.config.split
    }

    // Fast path for almost all packets.
    #[inline(always)]
    fn enqueue<'a>(&self, state: &mut State, queue: Queue<'a>, mut packet: Packet<'a>) -> Verdict {
        let len_bytes = u64::from(packet.len_bytes());
        if !state.config.plain || !state.has_room(len_bytes) {
            return self.enqueue_any(state, queue, packet);
        }
        let mut clock = Clock::default();
        if state.config.mark_at_enqueue {
            *packet.cb() = Color::Green as u8;
            packet = match self.judge::<false>(state, &mut clock, queue, packet) {
                Ok(packet) => packet,
                Err(packet) => return self.drop_chosen(state, clock, queue, packet, Color::Green),
            };
        }
        self.count_load::<false>(state, &mut clock, len_bytes);
        self.accept(state, &mut clock, queue, packet, Color::Green, len_bytes)
    }

    #[inline(always)]
    fn dequeue<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        if queue.is_empty() {
            None
        } else if state.config.plain_dequeue {
            self.take_and_judge::<false>(state, &mut Clock::default(), queue)
        } else {
            self.dequeue_shaped(state, queue)
        }
    }

    #[cold]
    fn drop_whole<'a>(&self, state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Verdict {
        match self.color(&state.config.source, queue, packet) {
            Sorted::Color(packet, color) => {
                let packet = self.count_dropped(state, Clock::default(), packet);
                self.drop_packet(state, queue, packet, color, DropCause::Whole)
            }
            Sorted::Drop(packet) => {
                self.drop_packet(state, queue, packet, Color::Green, DropCause::Filter)
            }
            Sorted::Stolen(verdict) => verdict,
        }
    }

    fn reset(&self, state: &mut State) {
        if let Some(pool) = &state.pool {
            pool.give_back(state.queued.total());
        }
        state.queued = Occupancy::default();
        state.phantom = Phantom::default();
        state.shaper = Shaper::default();
        let now_ns = now_ns();
        self.counters.go_idle(now_ns);
        self.counters.show_phantom(0, now_ns);
    }

    fn dump(&self, rtnl: &Rtnl, message: &mut Message<'_>) -> Result {
        let mut options = self.options.get();
        if let Some(pool) = &rtnl.pool {
            // Another port of the pool may have changed its size.
            options.set_pool_limit(pool.limit_bytes());
        }
        options.write(message)
    }

    fn stats(&self, rtnl: &Rtnl, _qdisc: &mut RtnlQdisc<'_, Self>) -> tc_phantom_xstats {
        let counters = &self.counters;
        let now_ns = now_ns();
        let [drops_green, drops_yellow, drops_red] = &counters.drops;
        let [bytes_green, bytes_yellow, bytes_red] = &counters.accepted_bytes;
        let [packets_green, packets_yellow, packets_red] = &counters.accepted_packets;
        tc_phantom_xstats {
            phantom_bytes: match &rtnl.shared_phantom {
                Some(shared) => shared.bytes(now_ns),
                None => counters.phantom_bytes_at(now_ns),
            },
            phantom_max_bytes: counters.phantom_max_bytes.get(),
            backlog_max_bytes: counters.backlog_max_bytes.get(),
            marked_phantom: counters.marked_phantom.get(),
            marked_physical: counters.marked_physical.get(),
            marked_both: counters.marked_both.get(),
            would_mark: counters.would_mark.get(),
            drops_limit: counters.drops_limit.get(),
            drops_pool: counters.drops_pool.get(),
            drops_ecn: counters.drops_ecn.get(),
            drops_green: drops_green.get(),
            drops_yellow: drops_yellow.get(),
            drops_red: drops_red.get(),
            drops_color: counters.drops_color.get(),
            bytes_green: bytes_green.get(),
            bytes_yellow: bytes_yellow.get(),
            bytes_red: bytes_red.get(),
            busy_ns: counters.busy_ns_until(now_ns),
            phantom_drain_bytes_per_s: match &rtnl.shared_phantom {
                Some(shared) => shared.config().drain_bytes_per_s,
                None => counters.phantom_drain_bytes_per_s.get(),
            },
            pool_used_bytes: rtnl.pool.as_ref().map_or(0, |pool| pool.used_bytes()),
            packets_green: packets_green.get(),
            packets_yellow: packets_yellow.get(),
            packets_red: packets_red.get(),
            red_max_bytes: counters.red_max_bytes.get(),
        }
    }
}

const NO_LINE_RATE: &CStr =
    c"mark needs rate or line-rate for the phantom queue: the device reports no speed";

/// Mask of a class id's minor number.
const MINOR: u32 = 0xffff;

/// Returns the color of a priority, if it belongs to this qdisc's handle.
fn color_of_class(queue: Queue<'_>, class: u32) -> Color {
    if class & !MINOR == queue.handle() {
        Color::from_minor(class & MINOR)
    } else {
        Color::Green
    }
}
