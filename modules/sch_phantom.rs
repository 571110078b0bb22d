// SPDX-License-Identifier: GPL-2.0

//! Phantom: a switch port as a queue discipline.
//!
//! A FIFO, optionally shaped to a rate; beside it a phantom queue, which counts
//! the bytes of a slower port; ECN marks from either or both; and less room for
//! packets that matter less. Sources: Uno, sections 4.1.3 and 5.1 (phantom
//! queue, RED), and TLT, section 4 (colours). The netlink interface is
//! uapi/pkt_phantom.h; counter, RED and thresholds are in algo/.
//!
//! What is decided here:
//!
//! 1. Each packet that arrives enters the phantom queue, a dropped one too:
//!    what it stands for is load, not occupancy.
//! 2. A packet is judged by what others have queued, not by its own bytes: at
//!    enqueue before it is counted, at dequeue by what it leaves behind.
//! 3. The shaper lets a packet go when those before it have been serialised.
//!    It catches up what timers are late, so that the average is exact, but
//!    for no more than [`Shaper::MAX_LAG_NS`].
//! 4. Random numbers are a sequence of the port's own, so that a simulation
//!    gives the same result each time.
//! 5. A lower limit does not throw out what is queued; it lets nothing in.

use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        new_mutex, Arc, Mutex,
    },
};

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "phantom_options.rs"]
mod phantom_options;

use algo::{
    color::{Color, DscpTable, Limits, Occupancy, Pool, DSCPS},
    fixed::{mul_div, NS_PER_S},
    phantom::{self, Phantom, Red},
    random::Random,
};
use kernel_api::{
    netlink::{Attrs, Extack, Message},
    once::Once,
    qdisc::{
        now_ns, Ce, Classified, Control, Discipline, DropReason, Packet, Queue, Registration,
        Verdict,
    },
    sysctl::Net,
    trace::{self, PacketInfo, Tracepoint},
    uapi::*,
};
use phantom_options::{Options, Shown, POOL_WORDS};

module! {
    type: Module,
    name: "sch_phantom",
    authors: ["xdc developers"],
    description: "Phantom queue discipline",
    license: "GPL v2",
    alias: ["net-sch-phantom"],
}

struct Module {
    _qdisc: Registration<Port>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let pools = Arc::pin_init(new_mutex!(KVec::new()), GFP_KERNEL)?;
        Ok(Self {
            _qdisc: Registration::new(pools)?,
        })
    }
}

// Configuration

/// Where the colour of a packet comes from.
#[derive(Clone, Copy)]
enum Source {
    None,
    Dscp(DscpTable),
    Priority,
    Filter,
}

/// [`Options`] in the form in which packets need them.
struct Config {
    // Physical queue
    limit_bytes: u64,
    /// 0 = not shaped.
    rate_bytes_per_s: u64,
    overhead_bytes: i64,
    mpu_bytes: i64,

    // Phantom queue; it does not drain, and takes nothing, where nobody knows the line rate.
    phantom: phantom::Config,
    count_acks: bool,

    // Marks
    phantom_red: Red,
    physical_red: Red,
    /// Below these a packet is not chosen; `u64::MAX` for a queue that does not mark.
    phantom_from_bytes: u64,
    physical_from_bytes: u64,
    /// Only the two together mark.
    both: bool,
    mark_at_enqueue: bool,
    ecn_drop: bool,
    /// The phantom queue is to mark, and nobody knows at which rate it drains.
    lacks_line_rate: bool,

    // Colours
    source: Source,
    limits: Limits,

    split: bool,
    pool_alpha_ppm: u32,

    /// No colours, no shared buffer, and each packet enters the phantom queue.
    plain: bool,
}

impl Config {
    /// `link_bytes_per_s` is asked where no option gives a rate.
    fn new(options: &Options, link_bytes_per_s: impl FnOnce() -> Option<u64>) -> Self {
        let number = |id| options.unsigned(id);
        let ppm = |id| number(id) as u32;
        let on = |id| number(id) != 0;

        let limit_bytes = number(TCA_PHANTOM_LIMIT);
        let phantom_limit_bytes = number(TCA_PHANTOM_PHANTOM_LIMIT);
        let rate_bytes_per_s = number(TCA_PHANTOM_RATE);
        let line_bytes_per_s = match number(TCA_PHANTOM_LINE_RATE) {
            0 if rate_bytes_per_s != 0 => rate_bytes_per_s,
            0 => link_bytes_per_s().unwrap_or(0),
            line_bytes_per_s => line_bytes_per_s,
        };
        let phantom = phantom::Config::new(
            line_bytes_per_s,
            ppm(TCA_PHANTOM_DRAIN),
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
            ppm(TCA_PHANTOM_PMIN),
            ppm(TCA_PHANTOM_PMAX),
        );
        let physical_red = Red::new(limit_bytes, ppm(TCA_PHANTOM_QMIN), ppm(TCA_PHANTOM_QMAX));
        let from_bytes = |marks: bool, red: &Red| match marks {
            true => red.lowest_bytes(),
            false => u64::MAX,
        };
        let source = match number(TCA_PHANTOM_COLOR_SOURCE) as u32 {
            TC_PHANTOM_COLOR_DSCP => Source::Dscp(dscp_table(options)),
            TC_PHANTOM_COLOR_PRIORITY => Source::Priority,
            TC_PHANTOM_COLOR_FILTER => Source::Filter,
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
            mark_at_enqueue: on(TCA_PHANTOM_MARK_AT),
            ecn_drop: on(TCA_PHANTOM_ECN_DROP),
            lacks_line_rate: by_phantom && !has_phantom,
            plain: matches!(source, Source::None) && count_acks && !options.has_pool(),
            source,
            limits: Limits {
                yellow_bytes: number(TCA_PHANTOM_YELLOW_LIMIT),
                red_bytes: number(TCA_PHANTOM_RED_LIMIT),
                count_total: on(TCA_PHANTOM_COLOR_TOTAL),
            },
            split: match number(TCA_PHANTOM_GSO) as u32 {
                TC_PHANTOM_GSO_SPLIT => true,
                TC_PHANTOM_GSO_WHOLE => false,
                _ => by_phantom || by_physical,
            },
            pool_alpha_ppm: ppm(TCA_PHANTOM_POOL_ALPHA),
        }
    }

    fn has_phantom(&self) -> bool {
        self.phantom.drain_bytes_per_s != 0
    }
}

fn dscp_table(options: &Options) -> DscpTable {
    let mut table = DscpTable::default();
    for (dscp, number) in (0..).zip(0..DSCPS) {
        table.set(
            dscp,
            Color::from_u8(options.color(number)).unwrap_or_default(),
        );
    }
    table
}

// Shared buffers

/// A buffer that ports of one namespace share.
struct SharedBuffer {
    net: usize,
    name: [u64; POOL_WORDS],
    limit_bytes: Once<u64>,
    used_bytes: Atomic<u64>,
    /// How many have it open. Changed under the lock of [`Buffers`].
    ports: Once<u64>,
}

type Buffers = Mutex<KVec<Arc<SharedBuffer>>>;

impl SharedBuffer {
    /// The buffer that `options` name in `net`, which is made if need be. Its size is
    /// what the port says that was configured last.
    fn open(buffers: &Buffers, net: &Net, options: &Options) -> Result<Option<Arc<Self>>> {
        if !options.has_pool() {
            return Ok(None);
        }
        let limit_bytes = options.unsigned(TCA_PHANTOM_POOL_LIMIT);
        let mut buffers = buffers.lock();
        let known = buffers
            .iter()
            .find(|buffer| buffer.net == net.id() && buffer.name == options.pool);
        let buffer = match known {
            Some(buffer) => buffer.clone(),
            None => {
                let buffer = Arc::new(
                    Self {
                        net: net.id(),
                        name: options.pool,
                        limit_bytes: Once::new(limit_bytes),
                        used_bytes: Atomic::new(0),
                        ports: Once::new(0),
                    },
                    GFP_KERNEL,
                )?;
                buffers.push(buffer.clone(), GFP_KERNEL)?;
                buffer
            }
        };
        buffer.limit_bytes.set(limit_bytes);
        buffer.ports.add(1);
        Ok(Some(buffer))
    }

    fn close(buffers: &Buffers, buffer: Option<Arc<Self>>) {
        let Some(buffer) = buffer else {
            return;
        };
        let mut buffers = buffers.lock();
        buffer.ports.set(buffer.ports.get().saturating_sub(1));
        buffers.retain(|buffer| buffer.ports.get() != 0);
    }

    fn used(buffers: &Buffers, net: &Net, name: &[u64; POOL_WORDS]) -> u64 {
        let buffers = buffers.lock();
        let buffer = buffers
            .iter()
            .find(|buffer| buffer.net == net.id() && buffer.name == *name);
        buffer.map_or(0, |buffer| buffer.used_bytes.load(Relaxed))
    }

    /// Takes room for a packet, if a port that holds `port_bytes` may have it.
    #[inline(never)]
    fn take(&self, alpha_ppm: u32, port_bytes: u64, len_bytes: u64) -> bool {
        // First take, then look, so that two ports cannot both have the last room.
        let pool = Pool {
            limit_bytes: self.limit_bytes.get(),
            used_bytes: self.used_bytes.fetch_add(len_bytes, Relaxed),
            alpha_ppm,
        };
        let admitted = pool.admit(port_bytes, len_bytes);
        if !admitted {
            self.give_back(len_bytes);
        }
        admitted
    }

    fn give_back(&self, len_bytes: u64) {
        self.used_bytes.fetch_sub(len_bytes, Relaxed);
    }
}

// The port

/// Lets a packet go when the bytes before it have been serialised.
#[derive(Default)]
struct Shaper {
    next_ns: u64,
    /// What `next_ns` lacks, in bytes x ns over the rate.
    remainder: u64,
}

impl Shaper {
    /// How far the shaper may be behind: what a late timer, a busy device or a
    /// virtual machine that was not running costs is caught up within this, and
    /// lost beyond it.
    const MAX_LAG_NS: u64 = 100_000_000;

    /// A packet comes to an idle port.
    fn start(&mut self, now_ns: u64) {
        if self.next_ns < now_ns {
            self.next_ns = now_ns;
            self.remainder = 0;
        }
    }

    /// The rate changes: what is left of the packet on the wire goes at the new one.
    fn change_rate(&mut self, now_ns: u64, old_bytes_per_s: u64, new_bytes_per_s: u64) {
        let left_ns = self.next_ns.saturating_sub(now_ns);
        if left_ns == 0 || old_bytes_per_s == new_bytes_per_s {
            return;
        }
        let left_ns = match new_bytes_per_s {
            0 => 0,
            _ => mul_div(left_ns, old_bytes_per_s, new_bytes_per_s),
        };
        self.next_ns = now_ns.saturating_add(left_ns);
        self.remainder = 0;
    }

    /// A packet of `len_bytes` goes.
    fn charge(&mut self, now_ns: u64, len_bytes: u64, rate_bytes_per_s: u64) {
        // A packet is below 2^24 bytes, the remainder below the rate: below 2^54 in all.
        let byte_ns = len_bytes
            .saturating_mul(NS_PER_S)
            .saturating_add(self.remainder);
        let rate = rate_bytes_per_s.max(1);
        self.next_ns = self
            .next_ns
            .max(now_ns.saturating_sub(Self::MAX_LAG_NS))
            .saturating_add(byte_ns / rate);
        self.remainder = byte_ns % rate;
    }
}

/// State of the queue, under its lock.
struct Hot {
    config: Config,
    queued: Occupancy,
    phantom: Phantom,
    shaper: Shaper,
    random: Random,
    buffer: Option<Arc<SharedBuffer>>,
}

impl Hot {
    /// Whether the port's own limit lets a packet in.
    #[inline(always)]
    fn has_room(&self, len_bytes: u64) -> bool {
        // Two numbers of 32 bits.
        self.queued.total().wrapping_add(len_bytes) <= self.config.limit_bytes
    }

    /// What tracepoints say of a packet.
    fn packet_info(&self, packet: &Packet, dsfield: u8, color: Color, why: u32) -> PacketInfo {
        PacketInfo {
            queue_bytes: self.queued.total(),
            phantom_bytes: self.phantom.bytes(),
            len_bytes: packet.len_bytes(),
            why,
            color: color as u8,
            dsfield,
        }
    }

    /// Counts a packet that left the queue.
    #[inline(never)]
    fn leave(&mut self, color: Color, len_bytes: u64) {
        self.queued.remove(color, len_bytes);
        if let Some(buffer) = &self.buffer {
            buffer.give_back(len_bytes);
        }
    }

    /// Asks both REDs about one packet.
    #[inline(always)]
    fn choose(&mut self, clock: &mut Clock) -> Option<Cause> {
        match (self.phantom_chooses(clock), self.physical_chooses()) {
            (false, false) => None,
            (true, true) => Some(Cause::Both),
            _ if self.config.both => None,
            (true, false) => Some(Cause::Phantom),
            (false, true) => Some(Cause::Physical),
        }
    }

    /// What has drained since the last packet, and is not accounted for yet, can only speak
    /// against the packet: below the threshold the clock need not be read.
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

    #[inline(always)]
    fn physical_chooses(&mut self) -> bool {
        let bytes = self.queued.total();
        bytes >= self.config.physical_from_bytes
            && chooses(&self.config.physical_red, bytes, &mut self.random)
    }
}

/// Draws a random number only where the outcome depends on it.
#[inline(always)]
fn chooses(red: &Red, bytes: u64, random: &mut Random) -> bool {
    bytes >= red.max_bytes || red.chooses(bytes, random.next_u32())
}

/// Counters, written under the queue's lock and read by anybody.
struct Counters {
    // Phantom queue as of the last packet
    phantom_bytes: Once<u64>,
    phantom_at_ns: Once<u64>,
    phantom_max_bytes: Once<u64>,
    phantom_drain_bytes_per_s: Once<u64>,

    // Physical queue
    backlog_max_bytes: Once<u64>,
    accepted_bytes: [Once<u64>; COLORS],
    busy_ns: Once<u64>,
    /// 0 = idle.
    busy_since_ns: Once<u64>,

    // Packets marked, by what chose them
    marked_phantom: Once<u64>,
    marked_physical: Once<u64>,
    marked_both: Once<u64>,
    would_mark: Once<u64>,

    // Packets dropped, by cause and by colour
    drops_limit: Once<u64>,
    drops_pool: Once<u64>,
    drops_ecn: Once<u64>,
    drops_color: Once<u64>,
    drops: [Once<u64>; COLORS],
}

const COLORS: usize = Color::Red as usize + 1;

impl Counters {
    fn new() -> Self {
        Self {
            phantom_bytes: Once::new(0),
            phantom_at_ns: Once::new(0),
            phantom_max_bytes: Once::new(0),
            phantom_drain_bytes_per_s: Once::new(0),
            backlog_max_bytes: Once::new(0),
            accepted_bytes: [const { Once::new(0) }; COLORS],
            busy_ns: Once::new(0),
            busy_since_ns: Once::new(0),
            marked_phantom: Once::new(0),
            marked_physical: Once::new(0),
            marked_both: Once::new(0),
            would_mark: Once::new(0),
            drops_limit: Once::new(0),
            drops_pool: Once::new(0),
            drops_ecn: Once::new(0),
            drops_color: Once::new(0),
            drops: [const { Once::new(0) }; COLORS],
        }
    }

    fn show_phantom(&self, bytes: u64, now_ns: u64) {
        self.phantom_bytes.set(bytes);
        self.phantom_at_ns.set(now_ns);
        if bytes > self.phantom_max_bytes.get() {
            self.phantom_max_bytes.set(bytes);
        }
    }

    /// The phantom queue now: what it was, less what has drained since.
    fn phantom_bytes(&self, now_ns: u64) -> u64 {
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

    fn busy_ns(&self, now_ns: u64) -> u64 {
        let current_ns = match self.busy_since_ns.get() {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        self.busy_ns.get().wrapping_add(current_ns)
    }
}

/// The time of one callback, read when it is first asked for: reading it is a fifth of what a
/// packet costs, and not each packet needs it.
#[derive(Clone, Copy, Default)]
struct Clock(Option<u64>);

impl Clock {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        *self.0.get_or_insert_with(now_ns)
    }
}

/// What became of a packet whose colour was asked for.
enum Sorted {
    Color(Color),
    Drop,
    Stolen,
}

/// What chose a packet to be marked.
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

/// Why a packet is dropped.
#[derive(Clone, Copy)]
enum Lost {
    /// The port is full.
    Limit,
    /// Full for packets of this colour.
    Color,
    /// The shared buffer is full for this port.
    Pool,
    /// It would be marked, and has no ECN.
    Ecn,
    /// A filter said so.
    Filter,
    /// It was to be split and could not be.
    Whole,
}

impl Lost {
    /// For the drop monitor.
    fn reason(self) -> DropReason {
        match self {
            Self::Limit | Self::Color | Self::Pool => DropReason::Overlimit,
            Self::Ecn => DropReason::Congested,
            Self::Filter | Self::Whole => DropReason::Other,
        }
    }

    /// For `xdc:phantom_drop`.
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
    fn drop_packet(
        &self,
        hot: &Hot,
        queue: &mut Queue<'_>,
        packet: Packet,
        color: Color,
        why: Lost,
    ) {
        if let Some(drops) = self.counters.drops.get(color as usize) {
            drops.add(1);
        }
        Self::trace_drop(hot, queue, &packet, color, why);
        queue.drop_packet(packet, why.reason());
    }

    #[inline(always)]
    fn trace_drop(hot: &Hot, queue: &Queue<'_>, packet: &Packet, color: Color, why: Lost) {
        if trace::PhantomDrop::is_on() {
            let info = hot.packet_info(packet, packet.peek_dsfield(), color, why.number());
            trace::PhantomDrop::tell((queue, packet), &info);
        }
    }

    /// The colour of a packet, or what else a filter says.
    #[inline(always)]
    fn color(&self, source: &Source, queue: &mut Queue<'_>, packet: &mut Packet) -> Sorted {
        Sorted::Color(match source {
            Source::None => Color::Green,
            Source::Dscp(table) => packet.dscp().map_or(Color::Green, |dscp| table.get(dscp)),
            Source::Priority => color_of_class(queue, packet.priority()),
            Source::Filter => match queue.classify(packet) {
                Classified::No => Color::Green,
                Classified::Class(class) => Color::from_minor(class & MINOR),
                Classified::Drop => return Sorted::Drop,
                Classified::Stolen => return Sorted::Stolen,
            },
        })
    }

    /// Marks a packet that was chosen; returns it as an error where it is to be dropped.
    // By value and out of line, so that those that are not chosen can stay in registers.
    #[inline(never)]
    fn mark(
        &self,
        hot: &Hot,
        queue: Queue<'_>,
        cause: Cause,
        mut packet: Packet,
    ) -> Result<Packet, Packet> {
        if trace::PhantomMark::is_on() {
            return self.mark_traced(hot, queue, cause, packet);
        }
        let ecn_drop = hot.config.ecn_drop;
        match self.set_ce(ecn_drop, cause, &mut packet) {
            Ce::NotEct if ecn_drop => Err(packet),
            _ => Ok(packet),
        }
    }

    /// The same, while somebody listens.
    #[cold]
    #[inline(never)]
    fn mark_traced(
        &self,
        hot: &Hot,
        queue: Queue<'_>,
        cause: Cause,
        mut packet: Packet,
    ) -> Result<Packet, Packet> {
        let before = packet.peek_dsfield();
        let color = color_of(&mut packet);
        match self.set_ce(hot.config.ecn_drop, cause, &mut packet) {
            Ce::Marked => {
                let info = hot.packet_info(&packet, before, color, cause.number());
                trace::PhantomMark::tell((&queue, &packet), &info);
            }
            Ce::NotEct if hot.config.ecn_drop => return Err(packet),
            Ce::NotEct | Ce::Already => {}
        }
        Ok(packet)
    }

    /// Sets CE if it can be, and counts.
    #[inline(always)]
    fn set_ce(&self, ecn_drop: bool, cause: Cause, packet: &mut Packet) -> Ce {
        let counters = &self.counters;
        counters.would_mark.add(1);
        let ce = packet.set_ce();
        match ce {
            Ce::Marked => match cause {
                Cause::Phantom => counters.marked_phantom.add(1),
                Cause::Physical => counters.marked_physical.add(1),
                Cause::Both => counters.marked_both.add(1),
            },
            Ce::NotEct if ecn_drop => counters.drops_ecn.add(1),
            Ce::NotEct | Ce::Already => {}
        }
        ce
    }

    /// Asks RED about a packet that has its colour; returns it as an error where it is to be
    /// dropped.
    #[inline(always)]
    fn judge(
        &self,
        hot: &mut Hot,
        clock: &mut Clock,
        queue: &mut Queue<'_>,
        packet: Packet,
    ) -> Result<Packet, Packet> {
        match hot.choose(clock) {
            Some(cause) => self.mark(hot, queue.lend(), cause, packet),
            None => Ok(packet),
        }
    }

    /// Whether there is room for the packet; takes the room of a shared buffer.
    #[inline(always)]
    fn admit(&self, hot: &Hot, color: Color, len_bytes: u64) -> Result<(), Lost> {
        let config = &hot.config;
        let port_bytes = hot.queued.total();
        if !hot.has_room(len_bytes) {
            self.counters.drops_limit.add(1);
            return Err(Lost::Limit);
        }
        if !config.limits.admit(&hot.queued, color, len_bytes) {
            self.counters.drops_color.add(1);
            return Err(Lost::Color);
        }
        if let Some(buffer) = &hot.buffer {
            if !buffer.take(config.pool_alpha_ppm, port_bytes, len_bytes) {
                self.counters.drops_pool.add(1);
                return Err(Lost::Pool);
            }
        }
        Ok(())
    }

    /// A packet enters the phantom queue.
    #[inline(always)]
    fn count_load(&self, hot: &mut Hot, clock: &mut Clock, len_bytes: u64) {
        if hot.config.has_phantom() {
            let now_ns = clock.now_ns();
            let bytes = hot.phantom.add(&hot.config.phantom, now_ns, len_bytes);
            self.counters.show_phantom(bytes, now_ns);
        }
    }

    /// [`Self::count_load`] of a packet that is going to be dropped.
    // By value, so that those that are not dropped can stay in registers.
    #[cold]
    fn count_dropped(&self, hot: &mut Hot, mut clock: Clock, packet: Packet) -> Packet {
        if hot.config.count_acks || !packet.is_pure_ack() {
            self.count_load(hot, &mut clock, u64::from(packet.len_bytes()));
        }
        packet
    }

    /// Drops a packet that there was room for.
    #[cold]
    fn drop_chosen(
        &self,
        hot: &mut Hot,
        clock: Clock,
        mut queue: Queue<'_>,
        packet: Packet,
        color: Color,
    ) -> Verdict {
        let packet = self.count_dropped(hot, clock, packet);
        if let Some(buffer) = &hot.buffer {
            buffer.give_back(u64::from(packet.len_bytes()));
        }
        self.drop_packet(hot, &mut queue, packet, color, Lost::Ecn);
        Verdict::Congested
    }

    /// Puts a packet at the end of the queue.
    #[inline(always)]
    fn accept(
        &self,
        hot: &mut Hot,
        clock: &mut Clock,
        queue: &mut Queue<'_>,
        mut packet: Packet,
        color: Color,
        len_bytes: u64,
    ) {
        if queue.is_empty() {
            let now_ns = clock.now_ns();
            self.counters.busy_since_ns.set(now_ns);
            hot.shaper.start(now_ns);
        }
        *packet.note() = color as u8;
        hot.queued.add(color, len_bytes);
        let backlog_bytes = hot.queued.total();
        if backlog_bytes > self.counters.backlog_max_bytes.get() {
            self.counters.backlog_max_bytes.set(backlog_bytes);
        }
        if let Some(bytes) = self.counters.accepted_bytes.get(color as usize) {
            bytes.add(len_bytes);
        }
        queue.push(packet);
    }

    /// [`Discipline::enqueue`] of any packet into any port.
    #[inline(never)]
    fn enqueue_any(&self, hot: &mut Hot, mut queue: Queue<'_>, mut packet: Packet) -> Verdict {
        let queue = &mut queue;
        let mut clock = Clock::default();
        let len_bytes = u64::from(packet.len_bytes());
        let color = match self.color(&hot.config.source, queue, &mut packet) {
            Sorted::Color(color) => color,
            Sorted::Drop => {
                self.drop_packet(hot, queue, packet, Color::Green, Lost::Filter);
                return Verdict::Dropped;
            }
            Sorted::Stolen => {
                packet.consume();
                return Verdict::Stolen;
            }
        };

        if let Err(why) = self.admit(hot, color, len_bytes) {
            let packet = self.count_dropped(hot, clock, packet);
            queue.count_overlimit();
            self.drop_packet(hot, queue, packet, color, why);
            return Verdict::Dropped;
        }
        if hot.config.mark_at_enqueue {
            *packet.note() = color as u8;
            packet = match self.judge(hot, &mut clock, queue, packet) {
                Ok(packet) => packet,
                Err(packet) => return self.drop_chosen(hot, clock, queue.lend(), packet, color),
            };
        }
        if hot.config.count_acks || !packet.is_pure_ack() {
            self.count_load(hot, &mut clock, len_bytes);
        }
        self.accept(hot, &mut clock, queue, packet, color, len_bytes);
        Verdict::Queued
    }

    /// Takes the first packet out of the queue.
    #[inline(always)]
    fn take(&self, hot: &mut Hot, clock: &mut Clock, queue: &mut Queue<'_>) -> Option<Packet> {
        let mut packet = queue.pop()?;
        let len_bytes = u64::from(packet.len_bytes());
        match color_of(&mut packet) {
            Color::Green if hot.buffer.is_none() => hot.queued.remove(Color::Green, len_bytes),
            color => hot.leave(color, len_bytes),
        }
        if queue.is_empty() {
            self.counters.go_idle(clock.now_ns());
        }
        Some(packet)
    }

    /// Drops a packet that was taken out, and takes others until one need not be dropped.
    #[cold]
    fn take_another(
        &self,
        hot: &mut Hot,
        mut clock: Clock,
        mut queue: Queue<'_>,
        mut chosen: Packet,
    ) -> Option<Packet> {
        loop {
            let color = color_of(&mut chosen);
            self.drop_packet(hot, &mut queue, chosen, color, Lost::Ecn);
            let packet = self.take(hot, &mut clock, &mut queue)?;
            match self.judge(hot, &mut clock, &mut queue, packet) {
                Ok(packet) => return Some(packet),
                Err(packet) => chosen = packet,
            }
        }
    }

    /// Takes a packet out of the queue, marks it if need be, and drops those that RED does not
    /// let through.
    #[inline(always)]
    fn take_and_judge(
        &self,
        hot: &mut Hot,
        clock: &mut Clock,
        queue: &mut Queue<'_>,
    ) -> Option<Packet> {
        let packet = self.take(hot, clock, queue)?;
        if hot.config.mark_at_enqueue {
            return Some(packet);
        }
        match self.judge(hot, clock, queue, packet) {
            Ok(packet) => Some(packet),
            Err(packet) => self.take_another(hot, *clock, queue.lend(), packet),
        }
    }

    /// [`Discipline::dequeue`] of a port with a rate.
    #[inline(never)]
    fn dequeue_shaped(&self, hot: &mut Hot, mut queue: Queue<'_>) -> Option<Packet> {
        let now_ns = now_ns();
        if now_ns < hot.shaper.next_ns {
            queue.count_overlimit();
            queue.wake_at(hot.shaper.next_ns);
            return None;
        }
        let packet = self.take_and_judge(hot, &mut Clock(Some(now_ns)), &mut queue)?;
        let wire_bytes = i64::from(packet.len_bytes())
            .saturating_add(hot.config.overhead_bytes)
            .max(hot.config.mpu_bytes)
            .max(1);
        hot.shaper
            .charge(now_ns, wire_bytes as u64, hot.config.rate_bytes_per_s);
        Some(packet)
    }
}

/// The colour that a packet got when it came in.
#[inline(always)]
fn color_of(packet: &mut Packet) -> Color {
    match *packet.note() {
        0 => Color::Green,
        note => Color::from_u8(note).unwrap_or_default(),
    }
}

impl Discipline for Port {
    const NAME: &'static CStr = c"phantom";

    type Module = Arc<Buffers>;
    type Hot = Hot;
    type Stats = tc_phantom_xstats;
    type Owner = Module;

    fn init(
        buffers: &Arc<Buffers>,
        control: &mut Control<'_, Self>,
        attrs: Attrs<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Hot)> {
        let mut options = Options::new();
        options.read(attrs, extack)?;
        let config = Config::new(&options, || control.link_bytes_per_s());
        // Without options the user may not even know of us: net.core.default_qdisc.
        if config.lacks_line_rate && !attrs.is_empty() {
            return Err(extack.invalid(NO_LINE_RATE));
        }
        let port = Self {
            options: Shown::new(&options),
            counters: Counters::new(),
        };
        port.counters
            .phantom_drain_bytes_per_s
            .set(config.phantom.drain_bytes_per_s);
        let hot = Hot {
            config,
            queued: Occupancy::default(),
            phantom: Phantom::default(),
            shaper: Shaper::default(),
            random: Random::new(control.seed()),
            buffer: SharedBuffer::open(buffers, control.net(), &options)?,
        };
        Ok((port, hot))
    }

    fn change(
        &self,
        buffers: &Arc<Buffers>,
        control: &mut Control<'_, Self>,
        attrs: Attrs<'_>,
        extack: &Extack<'_>,
    ) -> Result {
        let mut options = self.options.get();
        options.read(attrs, extack)?;
        let config = Config::new(&options, || control.link_bytes_per_s());
        if config.lacks_line_rate {
            return Err(extack.invalid(NO_LINE_RATE));
        }
        let buffer = SharedBuffer::open(buffers, control.net(), &options)?;
        let drain_bytes_per_s = config.phantom.drain_bytes_per_s;

        let old = control.lock(|hot| {
            let now_ns = now_ns();
            // What has drained so far has done so at the old rate.
            let phantom_bytes = hot.phantom.drain(&hot.config.phantom, now_ns);
            self.counters.show_phantom(phantom_bytes, now_ns);
            self.counters
                .phantom_drain_bytes_per_s
                .set(drain_bytes_per_s);
            let old_rate = hot.config.rate_bytes_per_s;
            hot.shaper
                .change_rate(now_ns, old_rate, config.rate_bytes_per_s);
            hot.config = config;

            let queued_bytes = hot.queued.total();
            let old = core::mem::replace(&mut hot.buffer, buffer);
            if let Some(old) = &old {
                old.give_back(queued_bytes);
            }
            if let Some(new) = &hot.buffer {
                new.used_bytes.fetch_add(queued_bytes, Relaxed);
            }
            old
        });
        SharedBuffer::close(buffers, old.flatten());
        self.options.set(&options);
        // The timer may wait for a packet of the old rate.
        control.wake();
        Ok(())
    }

    fn destroy(&self, buffers: &Arc<Buffers>, hot: &mut Hot) {
        SharedBuffer::close(buffers, hot.buffer.take());
    }

    fn splits_segments(hot: &Hot) -> bool {
        hot.config.split
    }

    // What nearly every packet is, in front, so that it pays for nothing else.
    #[inline(always)]
    fn enqueue(&self, hot: &mut Hot, queue: &mut Queue<'_>, mut packet: Packet) -> Verdict {
        let len_bytes = u64::from(packet.len_bytes());
        if !hot.config.plain || !hot.has_room(len_bytes) {
            return self.enqueue_any(hot, queue.lend(), packet);
        }
        let mut clock = Clock::default();
        if hot.config.mark_at_enqueue {
            *packet.note() = Color::Green as u8;
            packet = match self.judge(hot, &mut clock, queue, packet) {
                Ok(packet) => packet,
                Err(packet) => {
                    return self.drop_chosen(hot, clock, queue.lend(), packet, Color::Green)
                }
            };
        }
        self.count_load(hot, &mut clock, len_bytes);
        self.accept(hot, &mut clock, queue, packet, Color::Green, len_bytes);
        Verdict::Queued
    }

    #[inline(always)]
    fn dequeue(&self, hot: &mut Hot, queue: &mut Queue<'_>) -> Option<Packet> {
        if queue.is_empty() {
            None
        } else if hot.config.rate_bytes_per_s != 0 {
            self.dequeue_shaped(hot, queue.lend())
        } else {
            self.take_and_judge(hot, &mut Clock::default(), queue)
        }
    }

    #[cold]
    fn drop_whole(&self, hot: &mut Hot, queue: &mut Queue<'_>, packet: Packet) {
        Self::trace_drop(hot, queue, &packet, Color::Green, Lost::Whole);
        queue.drop_packet(packet, DropReason::Other);
    }

    fn reset(&self, hot: &mut Hot) {
        if let Some(buffer) = &hot.buffer {
            buffer.give_back(hot.queued.total());
        }
        hot.queued = Occupancy::default();
        hot.phantom = Phantom::default();
        hot.shaper = Shaper::default();
        let now_ns = now_ns();
        self.counters.go_idle(now_ns);
        self.counters.show_phantom(0, now_ns);
    }

    fn dump(&self, message: &mut Message<'_>) -> Result {
        self.options.get().write(message)
    }

    fn stats(&self, buffers: &Arc<Buffers>, control: &Control<'_, Self>) -> tc_phantom_xstats {
        let counters = &self.counters;
        let now_ns = now_ns();
        let [drops_green, drops_yellow, drops_red] = &counters.drops;
        let [bytes_green, bytes_yellow, bytes_red] = &counters.accepted_bytes;
        let pool = self.options.get().pool;
        tc_phantom_xstats {
            phantom_bytes: counters.phantom_bytes(now_ns),
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
            busy_ns: counters.busy_ns(now_ns),
            phantom_drain_bps: counters.phantom_drain_bytes_per_s.get(),
            pool_used_bytes: SharedBuffer::used(buffers, control.net(), &pool),
        }
    }
}

const NO_LINE_RATE: &CStr =
    c"phantom: the device tells no speed, so give rate or line-rate, or mark by the physical queue";

/// The minor number of a class id; the rest is the major one.
const MINOR: u32 = 0xffff;

/// The colour that a priority names, if it is of this qdisc's handle.
fn color_of_class(queue: &Queue<'_>, class: u32) -> Color {
    if class & !MINOR == queue.handle() {
        Color::from_minor(class & MINOR)
    } else {
        Color::Green
    }
}
