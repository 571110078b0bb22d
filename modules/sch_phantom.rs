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
};
use kernel_api::{
    netlink::{Attrs, Extack, Message},
    once::Once,
    qdisc::{
        now_ns, Ce, Classified, Control, Discipline, DropReason, Packet, Queue, Random,
        Registration, Verdict,
    },
    sysctl::Net,
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
        Self {
            limit_bytes,
            rate_bytes_per_s,
            overhead_bytes: options.number(TCA_PHANTOM_OVERHEAD),
            mpu_bytes: options.number(TCA_PHANTOM_MPU),
            phantom,
            count_acks: on(TCA_PHANTOM_COUNT_ACKS),
            phantom_from_bytes: from_bytes(by_phantom && has_phantom, &phantom_red),
            physical_from_bytes: from_bytes(by_physical, &physical_red),
            phantom_red,
            physical_red,
            both: number(TCA_PHANTOM_MARK) as u32 == TC_PHANTOM_MARK_BOTH,
            mark_at_enqueue: on(TCA_PHANTOM_MARK_AT),
            ecn_drop: on(TCA_PHANTOM_ECN_DROP),
            lacks_line_rate: by_phantom && !has_phantom,
            source: match number(TCA_PHANTOM_COLOR_SOURCE) as u32 {
                TC_PHANTOM_COLOR_DSCP => Source::Dscp(dscp_table(options)),
                TC_PHANTOM_COLOR_PRIORITY => Source::Priority,
                TC_PHANTOM_COLOR_FILTER => Source::Filter,
                _ => Source::None,
            },
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
        if options.pool == [0; POOL_WORDS] {
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
    /// Whether a packet may have to be marked. What has drained since the last packet, and is not
    /// accounted for here, can only speak against it.
    #[inline(always)]
    fn may_choose(&self) -> bool {
        self.phantom.bytes() >= self.config.phantom_from_bytes
            || self.queued.total() >= self.config.physical_from_bytes
    }

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
#[derive(Default)]
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

/// What came out of the queue.
enum Taken {
    Packet(Packet),
    Dropped,
    Nothing,
}

/// What RED came to for one packet.
enum Judgement {
    Pass,
    Drop,
}

/// One qdisc.
struct Port {
    options: Shown,
    counters: Counters,
}

impl Port {
    #[inline(always)]
    fn drop_packet(&self, queue: &mut Queue<'_>, packet: Packet, color: Color, why: DropReason) {
        if let Some(drops) = self.counters.drops.get(color as usize) {
            drops.add(1);
        }
        queue.drop_packet(packet, why);
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

    /// Asks both REDs and marks the packet if it is chosen.
    #[inline(always)]
    fn judge(&self, hot: &mut Hot, clock: &mut Clock, packet: &mut Packet) -> Judgement {
        let by_phantom = hot.phantom_chooses(clock);
        let by_physical = hot.physical_chooses();
        let chosen = match hot.config.both {
            true => by_phantom && by_physical,
            false => by_phantom || by_physical,
        };
        if !chosen {
            return Judgement::Pass;
        }

        let counters = &self.counters;
        counters.would_mark.add(1);
        match packet.set_ce() {
            Ce::Marked => match (by_phantom, by_physical) {
                (true, true) => counters.marked_both.add(1),
                (true, false) => counters.marked_phantom.add(1),
                (false, _) => counters.marked_physical.add(1),
            },
            Ce::Already => {}
            Ce::NotEct if hot.config.ecn_drop => {
                counters.drops_ecn.add(1);
                return Judgement::Drop;
            }
            Ce::NotEct => {}
        }
        Judgement::Pass
    }

    /// Whether there is room for the packet; takes the room of a shared buffer.
    #[inline(always)]
    fn admit(&self, hot: &Hot, color: Color, len_bytes: u64) -> bool {
        let config = &hot.config;
        let port_bytes = hot.queued.total();
        // Two numbers of 32 bits.
        if port_bytes.wrapping_add(len_bytes) > config.limit_bytes {
            self.counters.drops_limit.add(1);
            return false;
        }
        if !config.limits.admit(&hot.queued, color, len_bytes) {
            self.counters.drops_color.add(1);
            return false;
        }
        if let Some(buffer) = &hot.buffer {
            if !buffer.take(config.pool_alpha_ppm, port_bytes, len_bytes) {
                self.counters.drops_pool.add(1);
                return false;
            }
        }
        true
    }

    /// Counts a packet that left the queue.
    #[inline(always)]
    fn leave(&self, hot: &mut Hot, color: Color, len_bytes: u64) {
        hot.queued.remove(color, len_bytes);
        if let Some(buffer) = &hot.buffer {
            buffer.give_back(len_bytes);
        }
    }

    /// A packet enters the phantom queue.
    #[inline(always)]
    fn count_load(&self, hot: &mut Hot, clock: &mut Clock, packet: &Packet, len_bytes: u64) {
        if hot.config.has_phantom() && (hot.config.count_acks || !packet.is_pure_ack()) {
            let now_ns = clock.now_ns();
            let bytes = hot.phantom.add(&hot.config.phantom, now_ns, len_bytes);
            self.counters.show_phantom(bytes, now_ns);
        }
    }

    /// [`Self::count_load`] of a packet that is going to be dropped.
    // By value, so that those that are not dropped can stay in registers.
    #[cold]
    fn count_dropped(&self, hot: &mut Hot, mut clock: Clock, packet: Packet) -> Packet {
        let len_bytes = u64::from(packet.len_bytes());
        self.count_load(hot, &mut clock, &packet, len_bytes);
        packet
    }

    /// Takes the first packet out of the queue and marks it if need be; drops it instead where
    /// that is asked for.
    #[inline(always)]
    fn take(&self, hot: &mut Hot, clock: &mut Clock, queue: &mut Queue<'_>) -> Taken {
        let Some(mut packet) = queue.pop() else {
            return Taken::Nothing;
        };
        let len_bytes = u64::from(packet.len_bytes());
        let color = match *packet.note() {
            0 => Color::Green,
            note => Color::from_u8(note).unwrap_or_default(),
        };
        self.leave(hot, color, len_bytes);
        if queue.is_empty() {
            self.counters.go_idle(clock.now_ns());
        }
        if !hot.config.mark_at_enqueue && hot.may_choose() {
            if let Judgement::Drop = self.judge(hot, clock, &mut packet) {
                self.drop_packet(queue, packet, color, DropReason::Congested);
                return Taken::Dropped;
            }
        }
        Taken::Packet(packet)
    }

    /// Goes on after a packet was dropped.
    #[cold]
    fn take_next(&self, hot: &mut Hot, clock: &mut Clock, queue: &mut Queue<'_>) -> Option<Packet> {
        loop {
            match self.take(hot, clock, queue) {
                Taken::Packet(packet) => return Some(packet),
                Taken::Dropped => {}
                Taken::Nothing => return None,
            }
        }
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
            random: control.random(),
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

    #[inline(always)]
    fn enqueue(&self, hot: &mut Hot, queue: &mut Queue<'_>, mut packet: Packet) -> Verdict {
        let mut clock = Clock::default();
        let len_bytes = u64::from(packet.len_bytes());
        let color = match hot.config.source {
            Source::None => Color::Green,
            _ => match self.color(&hot.config.source, queue, &mut packet) {
                Sorted::Color(color) => color,
                Sorted::Drop => {
                    self.drop_packet(queue, packet, Color::Green, DropReason::Other);
                    return Verdict::Dropped;
                }
                Sorted::Stolen => {
                    packet.consume();
                    return Verdict::Stolen;
                }
            },
        };

        if !self.admit(hot, color, len_bytes) {
            let packet = self.count_dropped(hot, clock, packet);
            queue.count_overlimit();
            self.drop_packet(queue, packet, color, DropReason::Overlimit);
            return Verdict::Dropped;
        }
        if hot.config.mark_at_enqueue && hot.may_choose() {
            if let Judgement::Drop = self.judge(hot, &mut clock, &mut packet) {
                let packet = self.count_dropped(hot, clock, packet);
                if let Some(buffer) = &hot.buffer {
                    buffer.give_back(len_bytes);
                }
                self.drop_packet(queue, packet, color, DropReason::Congested);
                return Verdict::Congested;
            }
        }
        self.count_load(hot, &mut clock, &packet, len_bytes);

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
        Verdict::Queued
    }

    #[inline(always)]
    fn dequeue(&self, hot: &mut Hot, queue: &mut Queue<'_>) -> Option<Packet> {
        if queue.is_empty() {
            return None;
        }
        let mut clock = Clock::default();
        let shaped = hot.config.rate_bytes_per_s != 0;
        if shaped && clock.now_ns() < hot.shaper.next_ns {
            queue.count_overlimit();
            queue.wake_at(hot.shaper.next_ns);
            return None;
        }
        let packet = match self.take(hot, &mut clock, queue) {
            Taken::Packet(packet) => packet,
            Taken::Dropped => self.take_next(hot, &mut clock, queue)?,
            Taken::Nothing => return None,
        };
        if shaped {
            let wire_bytes = i64::from(packet.len_bytes())
                .saturating_add(hot.config.overhead_bytes)
                .max(hot.config.mpu_bytes)
                .max(1);
            hot.shaper.charge(
                clock.now_ns(),
                wire_bytes as u64,
                hot.config.rate_bytes_per_s,
            );
        }
        Some(packet)
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
