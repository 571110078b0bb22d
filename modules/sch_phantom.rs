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

use algo::{
    color::{Color, DscpTable, Limits, Occupancy, Pool, DSCPS},
    fixed::{mul_div, NS_PER_S},
    phantom::{self, Phantom, Red},
};
use kernel_api::{
    netlink::{Attr, Attrs, Extack, Message},
    once::Once,
    qdisc::{
        now_ns, Ce, Classified, Control, Discipline, DropReason, Packet, Queue, Random,
        Registration, Verdict,
    },
    sysctl::Net,
    uapi::*,
};

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

// Options

/// An option that is one number.
struct Setting {
    id: u32,
    width: Width,
    min: i64,
    max: i64,
    default: i64,
    /// What a user reads who gave something else.
    error: &'static CStr,
}

/// How a number is carried.
#[derive(Clone, Copy)]
enum Width {
    U8,
    U32,
    S32,
    U64,
}

/// Rates above this would be 8 Pbit/s: a mistake of units.
const MAX_BYTES_PER_S: i64 = 1_000_000_000_000_000;

/// The kernel counts a backlog in 32 bits.
const MAX_LIMIT_BYTES: i64 = u32::MAX as i64;

const MAX_PPM: i64 = 1_000_000;

const fn setting(
    id: u32,
    width: Width,
    (min, max): (i64, i64),
    default: i64,
    error: &'static CStr,
) -> Setting {
    Setting {
        id,
        width,
        min,
        max,
        default,
        error,
    }
}

#[rustfmt::skip]
static SETTINGS: [Setting; 22] = [
    setting(TCA_PHANTOM_LIMIT, Width::U64, (1, MAX_LIMIT_BYTES), 1_000_000,
        c"limit: give 1 to 4294967295 bytes"),
    setting(TCA_PHANTOM_RATE, Width::U64, (0, MAX_BYTES_PER_S), 0,
        c"rate: give at most 8 Pbit/s, or 0 for no shaping"),
    setting(TCA_PHANTOM_OVERHEAD, Width::S32, (-64, 256), 0,
        c"overhead: give -64 to 256 bytes"),
    setting(TCA_PHANTOM_MPU, Width::U32, (0, 256), 0,
        c"mpu: give 0 to 256 bytes"),
    setting(TCA_PHANTOM_LINE_RATE, Width::U64, (0, MAX_BYTES_PER_S), 0,
        c"line-rate: give at most 8 Pbit/s, or 0 for the port's own"),
    setting(TCA_PHANTOM_PHANTOM_LIMIT, Width::U64, (1, i64::MAX), 22_400_000,
        c"phantom: give at least 1 byte"),
    setting(TCA_PHANTOM_DRAIN, Width::U32, (1, MAX_PPM), 900_000,
        c"drain: give a fraction of the line rate above 0 and up to 1"),
    setting(TCA_PHANTOM_PMIN, Width::U32, (0, MAX_PPM), 20_000,
        c"pmin: give 0 % to 100 % of the phantom queue"),
    setting(TCA_PHANTOM_PMAX, Width::U32, (0, MAX_PPM), 600_000,
        c"pmax: give 0 % to 100 % of the phantom queue"),
    setting(TCA_PHANTOM_QMIN, Width::U32, (0, MAX_PPM), 250_000,
        c"min: give 0 % to 100 % of the limit"),
    setting(TCA_PHANTOM_QMAX, Width::U32, (0, MAX_PPM), 750_000,
        c"max: give 0 % to 100 % of the limit"),
    setting(TCA_PHANTOM_MARK, Width::U8, (0, TC_PHANTOM_MARK_BOTH as i64),
        TC_PHANTOM_MARK_PHANTOM as i64,
        c"mark: give none, phantom, physical, either or both"),
    setting(TCA_PHANTOM_MARK_AT, Width::U8, (0, TC_PHANTOM_MARK_AT_ENQUEUE as i64),
        TC_PHANTOM_MARK_AT_DEQUEUE as i64,
        c"mark: give at enqueue or at dequeue"),
    setting(TCA_PHANTOM_ECN_DROP, Width::U8, (0, 1), 0,
        c"ecn-drop: give on or off"),
    setting(TCA_PHANTOM_COUNT_ACKS, Width::U8, (0, 1), 1,
        c"count-acks: give on or off"),
    setting(TCA_PHANTOM_RED_LIMIT, Width::U64, (0, MAX_LIMIT_BYTES), 0,
        c"red-limit: give at most 4294967295 bytes, or 0 for none"),
    setting(TCA_PHANTOM_YELLOW_LIMIT, Width::U64, (0, MAX_LIMIT_BYTES), 0,
        c"yellow-limit: give at most 4294967295 bytes, or 0 for none"),
    setting(TCA_PHANTOM_COLOR_TOTAL, Width::U8, (0, 1), 0,
        c"color-total: give on or off"),
    setting(TCA_PHANTOM_COLOR_SOURCE, Width::U8, (0, TC_PHANTOM_COLOR_FILTER as i64),
        TC_PHANTOM_COLOR_NONE as i64,
        c"color-source: give none, dscp, priority or filter"),
    setting(TCA_PHANTOM_GSO, Width::U8, (0, TC_PHANTOM_GSO_WHOLE as i64),
        TC_PHANTOM_GSO_AUTO as i64,
        c"gso: give auto, split or whole"),
    setting(TCA_PHANTOM_POOL_LIMIT, Width::U64, (0, MAX_LIMIT_BYTES), 0,
        c"pool-limit: give at most 4294967295 bytes"),
    setting(TCA_PHANTOM_POOL_ALPHA, Width::U32, (1, u32::MAX as i64), 1_000_000,
        c"pool-alpha: give a factor above 0"),
];

/// Number of option ids, 0 included.
const IDS: usize = __TCA_PHANTOM_MAX as usize;

/// All options of one port. Nothing but words, so that it can be shown without
/// the queue's lock.
#[derive(Clone, Copy)]
struct Options {
    /// Those in [`SETTINGS`], by id.
    numbers: [i64; IDS],
    /// Two bits per DSCP.
    colors: [u64; COLOR_WORDS],
    /// Name of the shared buffer, filled up with NULs.
    pool: [u64; POOL_WORDS],
}

const COLORS_PER_WORD: usize = 32;
const COLOR_WORDS: usize = DSCPS / COLORS_PER_WORD;
const POOL_WORDS: usize = 2;
const POOL_NAME_BYTES: usize = POOL_WORDS * size_of::<u64>();

impl Options {
    fn new() -> Self {
        let mut options = Self {
            numbers: [0; IDS],
            colors: [0; COLOR_WORDS],
            pool: [0; POOL_WORDS],
        };
        for setting in &SETTINGS {
            options.set(setting.id, setting.default);
        }
        options
    }

    fn number(&self, id: u32) -> i64 {
        self.numbers.get(id as usize).copied().unwrap_or(0)
    }

    /// A number whose minimum is not negative.
    fn unsigned(&self, id: u32) -> u64 {
        self.number(id).max(0) as u64
    }

    fn set(&mut self, id: u32, value: i64) {
        if let Some(number) = self.numbers.get_mut(id as usize) {
            *number = value;
        }
    }

    fn color(&self, dscp: usize) -> u8 {
        let word = self
            .colors
            .get(dscp / COLORS_PER_WORD)
            .copied()
            .unwrap_or(0);
        (word >> (dscp % COLORS_PER_WORD * 2)) as u8 & 3
    }

    fn set_colors(&mut self, colors: &[u8]) {
        self.colors = [0; COLOR_WORDS];
        for (dscp, color) in colors.iter().enumerate() {
            if let Some(word) = self.colors.get_mut(dscp / COLORS_PER_WORD) {
                *word |= u64::from(*color) << (dscp % COLORS_PER_WORD * 2);
            }
        }
    }

    fn pool_name(&self) -> [u8; POOL_NAME_BYTES] {
        let mut name = [0; POOL_NAME_BYTES];
        for (bytes, word) in name.chunks_exact_mut(size_of::<u64>()).zip(&self.pool) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        name
    }

    fn set_pool_name(&mut self, name: &[u8]) {
        let mut bytes = [0; POOL_NAME_BYTES];
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        for (word, bytes) in self.pool.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
    }

    /// Takes over what a request names.
    fn read(&mut self, attrs: Attrs<'_>, extack: &Extack<'_>) -> Result {
        attrs.for_each(extack, |attr| self.read_one(attr, extack))?;

        let pairs = [
            (
                TCA_PHANTOM_PMIN,
                TCA_PHANTOM_PMAX,
                c"pmin: give at most pmax",
            ),
            (TCA_PHANTOM_QMIN, TCA_PHANTOM_QMAX, c"min: give at most max"),
        ];
        for (min, max, error) in pairs {
            if self.number(min) > self.number(max) {
                return Err(extack.invalid(error));
            }
        }
        if self.pool != [0; POOL_WORDS] && self.number(TCA_PHANTOM_POOL_LIMIT) == 0 {
            return Err(extack.invalid(c"pool: give the size of the shared buffer as pool-limit"));
        }
        Ok(())
    }

    fn read_one(&mut self, attr: &Attr<'_>, extack: &Extack<'_>) -> Result {
        match u32::from(attr.id) {
            TCA_PHANTOM_PAD => Ok(()),
            TCA_PHANTOM_DSCP_COLOR => {
                let colors = attr.bytes();
                if colors.len() != DSCPS || colors.iter().any(|c| Color::from_u8(*c).is_none()) {
                    let error =
                        c"dscp-color: give one of green, yellow and red for each of 64 DSCPs";
                    return Err(extack.invalid_attr(attr, error));
                }
                self.set_colors(colors);
                Ok(())
            }
            TCA_PHANTOM_POOL => {
                let name = attr.str_bytes();
                if name.len() >= POOL_NAME_BYTES {
                    return Err(extack.invalid_attr(attr, c"pool: give a name of at most 15 bytes"));
                }
                self.set_pool_name(name);
                Ok(())
            }
            id => {
                let Some(setting) = SETTINGS.iter().find(|setting| setting.id == id) else {
                    let error = c"an option that this version of sch_phantom does not have";
                    return Err(extack.invalid_attr(attr, error));
                };
                let value = setting
                    .read(attr)
                    .ok_or_else(|| extack.invalid_attr(attr, setting.error))?;
                self.set(id, value);
                Ok(())
            }
        }
    }

    fn write(&self, message: &mut Message<'_>) -> Result {
        for setting in &SETTINGS {
            setting.write(message, self.number(setting.id))?;
        }
        let mut colors = [0; DSCPS];
        for (dscp, color) in colors.iter_mut().enumerate() {
            *color = self.color(dscp);
        }
        message.put(TCA_PHANTOM_DSCP_COLOR as u16, &colors)?;
        message.put(TCA_PHANTOM_POOL as u16, &self.pool_name())
    }
}

impl Setting {
    /// The value of an attribute, if it is a valid one.
    fn read(&self, attr: &Attr<'_>) -> Option<i64> {
        let value = match self.width {
            Width::U8 => attr.u8()?.into(),
            Width::U32 => attr.u32()?.into(),
            Width::S32 => attr.i32()?.into(),
            Width::U64 => attr.u64()?.try_into().ok()?,
        };
        (self.min..=self.max).contains(&value).then_some(value)
    }

    fn write(&self, message: &mut Message<'_>, value: i64) -> Result {
        let id = self.id as u16;
        match self.width {
            Width::U8 => message.put(id, &(value as u8).to_ne_bytes()),
            Width::U32 => message.put(id, &(value as u32).to_ne_bytes()),
            Width::S32 => message.put(id, &(value as i32).to_ne_bytes()),
            Width::U64 => message.put_u64(id, value as u64, TCA_PHANTOM_PAD as u16),
        }
    }
}

/// [`Options`] as others see them.
struct Shown {
    numbers: [Once<u64>; IDS],
    colors: [Once<u64>; COLOR_WORDS],
    pool: [Once<u64>; POOL_WORDS],
}

impl Shown {
    fn new(options: &Options) -> Self {
        Self {
            numbers: options.numbers.map(|number| Once::new(number as u64)),
            colors: options.colors.map(Once::new),
            pool: options.pool.map(Once::new),
        }
    }

    fn set(&self, options: &Options) {
        for (shown, number) in self.numbers.iter().zip(options.numbers) {
            shown.set(number as u64);
        }
        let words = Iterator::chain(options.colors.iter(), &options.pool);
        for (shown, word) in Iterator::chain(self.colors.iter(), &self.pool).zip(words) {
            shown.set(*word);
        }
    }

    fn get(&self) -> Options {
        let mut options = Options::new();
        for (number, shown) in options.numbers.iter_mut().zip(&self.numbers) {
            *number = shown.get() as i64;
        }
        for (word, shown) in options.colors.iter_mut().zip(&self.colors) {
            *word = shown.get();
        }
        for (word, shown) in options.pool.iter_mut().zip(&self.pool) {
            *word = shown.get();
        }
        options
    }
}

/// Which queue may choose a packet.
#[derive(Clone, Copy)]
enum Mark {
    None,
    Phantom,
    Physical,
    Either,
    Both,
}

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
    mark: Mark,
    mark_at_enqueue: bool,
    phantom_red: Red,
    physical_red: Red,
    ecn_drop: bool,

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
        let mark = match number(TCA_PHANTOM_MARK) as u32 {
            TC_PHANTOM_MARK_PHANTOM => Mark::Phantom,
            TC_PHANTOM_MARK_PHYSICAL => Mark::Physical,
            TC_PHANTOM_MARK_EITHER => Mark::Either,
            TC_PHANTOM_MARK_BOTH => Mark::Both,
            _ => Mark::None,
        };
        Self {
            limit_bytes,
            rate_bytes_per_s,
            overhead_bytes: options.number(TCA_PHANTOM_OVERHEAD),
            mpu_bytes: options.number(TCA_PHANTOM_MPU),
            phantom: phantom::Config::new(
                line_bytes_per_s,
                ppm(TCA_PHANTOM_DRAIN),
                phantom_limit_bytes,
            ),
            count_acks: on(TCA_PHANTOM_COUNT_ACKS),
            mark,
            mark_at_enqueue: on(TCA_PHANTOM_MARK_AT),
            phantom_red: Red::new(
                phantom_limit_bytes,
                ppm(TCA_PHANTOM_PMIN),
                ppm(TCA_PHANTOM_PMAX),
            ),
            physical_red: Red::new(limit_bytes, ppm(TCA_PHANTOM_QMIN), ppm(TCA_PHANTOM_QMAX)),
            ecn_drop: on(TCA_PHANTOM_ECN_DROP),
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
                _ => !matches!(mark, Mark::None),
            },
            pool_alpha_ppm: ppm(TCA_PHANTOM_POOL_ALPHA),
        }
    }

    /// The phantom queue is to mark, and nobody knows at which rate it drains.
    fn lacks_line_rate(&self) -> bool {
        let uses_phantom = !matches!(self.mark, Mark::None | Mark::Physical);
        uses_phantom && !self.has_phantom()
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
    fn drop_packet(&self, queue: &mut Queue<'_>, packet: Packet, color: Color, why: DropReason) {
        if let Some(drops) = self.counters.drops.get(color as usize) {
            drops.add(1);
        }
        queue.drop_packet(packet, why);
    }

    /// Asks both REDs and marks the packet if it is chosen.
    fn judge(&self, hot: &mut Hot, packet: &mut Packet) -> Judgement {
        let Hot {
            config,
            queued,
            phantom,
            random,
            ..
        } = hot;
        let mut by_phantom = || {
            config.has_phantom()
                && config
                    .phantom_red
                    .chooses(phantom.bytes(), random.next_u32())
        };
        let (by_phantom, by_physical) = match config.mark {
            Mark::None => return Judgement::Pass,
            Mark::Phantom => (by_phantom(), false),
            Mark::Physical | Mark::Either | Mark::Both => {
                let by_phantom = !matches!(config.mark, Mark::Physical) && by_phantom();
                let by_physical = config
                    .physical_red
                    .chooses(queued.total(), random.next_u32());
                (by_phantom, by_physical)
            }
        };
        let chosen = match config.mark {
            Mark::Both => by_phantom && by_physical,
            _ => by_phantom || by_physical,
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
            Ce::NotEct if config.ecn_drop => {
                counters.drops_ecn.add(1);
                return Judgement::Drop;
            }
            Ce::NotEct => {}
        }
        Judgement::Pass
    }

    /// Whether there is room for the packet; takes the room of a shared buffer.
    fn admit(&self, hot: &Hot, color: Color, len_bytes: u64) -> bool {
        let config = &hot.config;
        let port_bytes = hot.queued.total();
        if port_bytes.saturating_add(len_bytes) > config.limit_bytes {
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
    fn leave(&self, hot: &mut Hot, color: Color, len_bytes: u64) {
        hot.queued.remove(color, len_bytes);
        if let Some(buffer) = &hot.buffer {
            buffer.give_back(len_bytes);
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
        if config.lacks_line_rate() && !attrs.is_empty() {
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
        if config.lacks_line_rate() {
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
        Ok(())
    }

    fn destroy(&self, buffers: &Arc<Buffers>, hot: &mut Hot) {
        SharedBuffer::close(buffers, hot.buffer.take());
    }

    fn splits_segments(hot: &Hot) -> bool {
        hot.config.split
    }

    fn enqueue(&self, hot: &mut Hot, queue: &mut Queue<'_>, mut packet: Packet) -> Verdict {
        let now_ns = now_ns();
        let len_bytes = u64::from(packet.len_bytes());
        let color = match &hot.config.source {
            Source::None => Color::Green,
            Source::Dscp(table) => packet.dscp().map_or(Color::Green, |dscp| table.get(dscp)),
            Source::Priority => color_of_class(queue, packet.priority()),
            Source::Filter => match queue.classify(&mut packet) {
                Classified::No => Color::Green,
                Classified::Class(class) => Color::from_minor(class & MINOR),
                Classified::Drop => {
                    self.drop_packet(queue, packet, Color::Green, DropReason::Other);
                    return Verdict::Dropped;
                }
                Classified::Stolen => {
                    packet.consume();
                    return Verdict::Stolen;
                }
            },
        };

        let admitted = self.admit(hot, color, len_bytes);
        let judgement = if admitted && hot.config.mark_at_enqueue {
            hot.phantom.drain(&hot.config.phantom, now_ns);
            self.judge(hot, &mut packet)
        } else {
            Judgement::Pass
        };
        if hot.config.has_phantom() && (hot.config.count_acks || !packet.is_pure_ack()) {
            let bytes = hot.phantom.add(&hot.config.phantom, now_ns, len_bytes);
            self.counters.show_phantom(bytes, now_ns);
        }
        if !admitted {
            queue.count_overlimit();
            self.drop_packet(queue, packet, color, DropReason::Overlimit);
            return Verdict::Dropped;
        }
        if let Judgement::Drop = judgement {
            if let Some(buffer) = &hot.buffer {
                buffer.give_back(len_bytes);
            }
            self.drop_packet(queue, packet, color, DropReason::Congested);
            return Verdict::Congested;
        }

        if queue.is_empty() {
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

    fn dequeue(&self, hot: &mut Hot, queue: &mut Queue<'_>) -> Option<Packet> {
        if queue.is_empty() {
            return None;
        }
        let now_ns = now_ns();
        let shaped = hot.config.rate_bytes_per_s != 0;
        if shaped && now_ns < hot.shaper.next_ns {
            queue.count_overlimit();
            queue.wake_at(hot.shaper.next_ns);
            return None;
        }
        while let Some(mut packet) = queue.pop() {
            let len_bytes = u64::from(packet.len_bytes());
            let color = Color::from_u8(*packet.note()).unwrap_or_default();
            self.leave(hot, color, len_bytes);
            if queue.is_empty() {
                self.counters.go_idle(now_ns);
            }
            if !hot.config.mark_at_enqueue {
                hot.phantom.drain(&hot.config.phantom, now_ns);
                if let Judgement::Drop = self.judge(hot, &mut packet) {
                    self.drop_packet(queue, packet, color, DropReason::Congested);
                    continue;
                }
            }
            if shaped {
                let wire_bytes = i64::from(packet.len_bytes())
                    .saturating_add(hot.config.overhead_bytes)
                    .max(hot.config.mpu_bytes)
                    .max(1);
                hot.shaper
                    .charge(now_ns, wire_bytes as u64, hot.config.rate_bytes_per_s);
            }
            return Some(packet);
        }
        None
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
