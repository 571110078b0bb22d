// SPDX-License-Identifier: GPL-2.0

//! UnoRC's sender: blocks of x data packets and y parities, and what is sent again.
//!
//! Source: Bonato et al., "Uno", SC 2025, sections 4.2 and 5. docs/unorc.md has the rules and numbers what
//! differs. Packets are handles of the caller's ([`Packet`]), what is to be done with them is the caller's
//! ([`Io`]), and so is the memory ([`Sent`], [`SentBlock`]).

use super::{
    gf256::{self, LENGTH_BYTES, MAX_DATA, MAX_PARITY},
    paths::{Event, Freeze, Kind as Chooser, Paths, Time, VALUES, any_value},
    random::Random,
    resequence::FEEDBACK_US,
    rtt::BaseRtt,
};

/// Bytes of [`Header`].
pub const HEADER_BYTES: usize = 16;
/// Entropy picks one of the UDP source ports from here on.
pub const FIRST_PORT: u16 = 49_152;
/// The most channels of a tunnel, which never wait for each other.
pub const MAX_CHANNELS: u8 = 8;
/// Data packets that a channel has under way: no less,
pub const MIN_WINDOW: u16 = 64;
/// no more.
pub const MAX_WINDOW: u16 = 8_192;
/// Ids of the first block of a session.
pub const FIRST_BLOCK: u32 = 1;

const VERSION: u8 = 1;
/// Index of the first parity of a block.
pub const FIRST_PARITY: u8 = MAX_DATA as u8;
const MAX_INDEX: u8 = FIRST_PARITY.wrapping_add(MAX_PARITY as u8);
const FLAG_RESENT: u8 = 1;
/// Times that a block's packets are sent again.
const MAX_RESENDS: u8 = 3;
/// How long a minimum of the RTT counts.
const RTT_WINDOW_MS: u32 = 10_000;
/// Before anything was measured.
const UNKNOWN_RTT_US: u32 = 10_000;
const MAX_BACKOFF: u8 = 10;
/// What was first sent longer ago is not sent again. TCP has sent it again itself, and relies on no segment arriving after
/// two minutes.
const MAX_AGE_US: u64 = 3_000_000;
/// Below that the registers' begin and end cost more than they save.
const WORTH_VECTORS_BYTES: usize = 512;
/// Bytes that a channel keeps at most, to be sent again: a window of packets of 1500 bytes fits.
pub const MAX_KEPT_BYTES: usize = 16 << 20;

/// What a packet between two ends is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// Of a block.
    #[default]
    Data,
    /// Of a block.
    Parity,
    /// Without order and code.
    Raw,
    /// From the receiver.
    Feedback,
    /// Nothing below this block will come.
    Floor,
    /// Session: I am here.
    Hello,
    /// Session: so am I.
    HelloAck,
    /// Session: then we are two.
    Confirm,
    /// A tag of no session.
    Stale,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Data,
        Kind::Parity,
        Kind::Raw,
        Kind::Feedback,
        Kind::Floor,
        Kind::Hello,
        Kind::HelloAck,
        Kind::Confirm,
        Kind::Stale,
    ];
}

/// What is before each packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// It was sent before.
    pub is_again: bool,
    /// Order is within a channel.
    pub channel: u16,
    /// The one that the receiver has chosen.
    pub tag: u32,
    /// Number of the block.
    pub block: u32,
    /// Number in the block; parities from [`FIRST_PARITY`].
    pub index: u8,
    /// Data packets in the block; 0 = not known yet.
    pub k: u8,
    /// Entropy.
    pub ev: u16,
}

impl Header {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [channel0, channel1] = self.channel.to_be_bytes();
        let [tag0, tag1, tag2, tag3] = self.tag.to_be_bytes();
        let [block0, block1, block2, block3] = self.block.to_be_bytes();
        let [ev0, ev1] = self.ev.to_be_bytes();
        let flags = if self.is_again { FLAG_RESENT } else { 0 };
        let first = VERSION << 4 | self.kind as u8;
        [
            first, flags, channel0, channel1, tag0, tag1, tag2, tag3, block0, block1, block2,
            block3, self.index, self.k, ev0, ev1,
        ]
    }

    /// The header before a packet, or None if it is invalid. Rule W5.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let &[
            first,
            flags,
            channel0,
            channel1,
            tag0,
            tag1,
            tag2,
            tag3,
            block0,
            block1,
            block2,
            block3,
            index,
            k,
            ev0,
            ev1,
        ] = bytes;
        let header = Header {
            kind: *Kind::ALL.get(usize::from(first & 15))?,
            is_again: flags & FLAG_RESENT != 0,
            channel: u16::from_be_bytes([channel0, channel1]),
            tag: u32::from_be_bytes([tag0, tag1, tag2, tag3]),
            block: u32::from_be_bytes([block0, block1, block2, block3]),
            index,
            k,
            ev: u16::from_be_bytes([ev0, ev1]),
        };
        let is_sound = first >> 4 == VERSION
            && flags & !FLAG_RESENT == 0
            && index < MAX_INDEX
            && usize::from(k) <= MAX_DATA
            && header.ev < VALUES;
        is_sound.then_some(header)
    }
}

/// How two ends work; both have the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Data packets of a block.
    pub x: u8,
    /// Parities of a block.
    pub y: u8,
    /// How long a block may take from its first packet to its last.
    pub timer_us: u32,
    /// A block that is not full is closed after this time.
    pub flush_us: u32,
    /// The chooser.
    pub paths: Chooser,
    /// When `reps` freezes.
    pub freeze: Freeze,
    /// The longest packet.
    pub mtu: u16,
    /// Channels, a power of two.
    pub channels: u8,
    /// Data packets that a channel has under way at most, a power of two.
    pub window: u16,
}

impl Config {
    /// Whether both of the code's numbers can be.
    pub fn is_sound(&self) -> bool {
        let (x, y) = (usize::from(self.x), usize::from(self.y));
        (1..=MAX_DATA).contains(&x) && y <= MAX_PARITY && (y > 0 || x == 1)
    }

    /// Whether there can be so many channels of such a window.
    pub fn has_sound_channels(&self) -> bool {
        self.channels.is_power_of_two()
            && self.channels <= MAX_CHANNELS
            && self.window.is_power_of_two()
            && (MIN_WINDOW..=MAX_WINDOW).contains(&self.window)
    }

    /// Blocks that a channel remembers, a power of two.
    pub fn blocks(&self) -> usize {
        let window = usize::from(self.window);
        let fit = window.checked_div(usize::from(self.x)).unwrap_or(1).max(1);
        1usize.checked_shl(fit.ilog2()).unwrap_or(1)
    }

    /// How many [`Sent`] a channel needs.
    pub fn sent_slots(&self) -> usize {
        self.slots_sent(self.blocks())
    }

    /// How many [`super::resequence::Held`] a channel needs.
    pub fn held_slots(&self) -> usize {
        self.slots_held(self.blocks())
    }

    pub(super) fn slots_sent(&self, blocks: usize) -> usize {
        blocks.saturating_mul(usize::from(self.x))
    }

    pub(super) fn slots_held(&self, blocks: usize) -> usize {
        let in_block = usize::from(self.x).saturating_add(usize::from(self.y));
        blocks.saturating_mul(in_block)
    }
}

/// A packet of the caller's.
pub trait Packet {
    /// All of it.
    fn bytes(&self) -> &[u8];
    /// The same, of one that [`Io::make`] made.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Leaves `len` bytes from `start` on.
    fn cut(&mut self, start: usize, len: usize);
}

/// Marks that a packet may get or has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ecn {
    /// It must not be marked.
    #[default]
    Not,
    /// It can be marked.
    Capable,
}

/// What happened, to be counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum Count {
    TxData,
    TxParity,
    TxRaw,
    TxResent,
    TxFeedback,
    RxData,
    RxParity,
    RxRaw,
    RxFeedback,
    Recovered,
    NackSent,
    NackReceived,
    Timeout,
    Abandoned,
    GivenUp,
    Duplicate,
    Old,
    Far,
    BadDecode,
    BadTag,
    Malformed,
    Session,
    Mismatch,
    Unreachable,
    NoMem,
    Reroute,
    Freeze,
}

impl Count {
    /// Their names, in their order.
    pub const NAMES: [&'static core::ffi::CStr; 27] = [
        c"tx_data",
        c"tx_parity",
        c"tx_raw",
        c"tx_resent",
        c"tx_feedback",
        c"rx_data",
        c"rx_parity",
        c"rx_raw",
        c"rx_feedback",
        c"recovered",
        c"nack_sent",
        c"nack_received",
        c"timeout",
        c"abandoned",
        c"given_up",
        c"duplicate",
        c"old",
        c"far",
        c"bad_decode",
        c"bad_tag",
        c"malformed",
        c"session",
        c"mismatch",
        c"unreachable",
        c"no_mem",
        c"reroute",
        c"freeze",
    ];
}

/// What made a chooser act.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// Marks.
    Mark,
    /// A hole in a block that could be read.
    Loss,
    /// A block that could not be read.
    Nack,
    /// Silence.
    Timeout,
}

/// A state of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// There is none.
    Down,
    /// The peer was asked.
    Asked,
    /// There is one.
    Up,
}

impl Standing {
    /// In `/proc/net/unorc`.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Down => "down",
            Standing::Asked => "asked",
            Standing::Up => "up",
        }
    }
}

/// What happened, for whoever traces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Happened {
    /// What a block of `k` lacked was decoded.
    Decoded {
        /// Which block.
        block: u32,
        /// Its data packets.
        k: u8,
        /// What of it came, by index.
        have: u32,
    },
    /// A block could not be read in time.
    Nack {
        /// Which.
        block: u32,
        /// What of it came, by index.
        have: u32,
        /// How often this end has said, or done, something about it.
        times: u8,
        /// The receiver says so; else the sender hears it.
        is_sent: bool,
    },
    /// Paths were given up.
    Reroute {
        /// That of the packet that told.
        ev: u16,
        /// How many.
        paths: u32,
        /// Why.
        cause: Cause,
    },
    /// `reps` uses only what it has.
    Freeze {
        /// That of the packet that told.
        ev: u16,
        /// Until then.
        until_us: u64,
        /// Why.
        cause: Cause,
    },
    /// The session is another one.
    Session {
        /// It was so.
        from: Standing,
        /// It is so.
        to: Standing,
    },
}

/// What the caller does.
pub trait Io {
    /// Its packets.
    type Packet: Packet;
    /// Its registers; [`gf256::NoVectors`]: none.
    type Vectors: gf256::Vectors;
    /// A packet of zeros.
    fn make(&mut self, len: usize) -> Option<Self::Packet>;
    /// A packet of the same bytes, which are not written to any more.
    fn copy(&mut self, packet: &Self::Packet) -> Option<Self::Packet>;
    /// Sends it to the peer.
    fn send(&mut self, header: &Header, packet: Self::Packet, ecn: Ecn);
    /// Hands it up; `is_marked`: it came with a mark.
    fn deliver(&mut self, packet: Self::Packet, is_marked: bool);
    /// To compute parities; None: by words. Nothing else is asked of it until they are dropped.
    fn vectors(&mut self) -> Option<Self::Vectors>;
    /// Counts.
    fn count(&mut self, count: Count, n: u64);
    /// Tells whoever traces.
    fn trace(&mut self, channel: u16, what: &Happened);
}

/// Whether `a` is before `b`, of numbers that wrap.
pub fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX >> 1
}

/// The earlier of two times; 0 means no time.
pub fn earlier(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, time) | (time, 0) => time,
        _ => a.min(b),
    }
}

/// What every call needs.
pub struct Context<'a, I> {
    /// The caller.
    pub io: &'a mut I,
    /// How.
    pub config: &'a Config,
    /// For entropy.
    pub rng: &'a mut Random,
    /// Never 0.
    pub now_us: u64,
    /// The peer's tag.
    pub tag: u32,
    /// Which.
    pub channel: u16,
    /// The shortest RTT.
    pub rtt: &'a mut BaseRtt,
}

impl<I: Io> Context<'_, I> {
    /// The shortest RTT.
    pub fn min_rtt_us(&self) -> u32 {
        self.rtt.get().unwrap_or(UNKNOWN_RTT_US)
    }

    fn rto_us(&self) -> u32 {
        self.min_rtt_us().saturating_add(self.config.timer_us)
    }

    /// Rule D5: until then a NACK can have come, of a block whose packets all left at once.
    fn silence_us(&self) -> u32 {
        self.rto_us()
            .saturating_add(self.config.flush_us)
            .saturating_add(FEEDBACK_US)
    }

    /// Time after `us`.
    pub fn after(&self, us: u32) -> u64 {
        self.now_us.saturating_add(us.into())
    }

    /// Tells whoever traces of this channel.
    pub fn trace(&mut self, what: &Happened) {
        self.io.trace(self.channel, what);
    }

    fn time(&self) -> Time {
        Time {
            now_us: self.now_us,
            min_rtt_us: self.min_rtt_us(),
            rto_us: self.rto_us(),
            // No rate is known here: as if it were large.
            bdp_packets: u32::MAX,
        }
    }

    /// A header to the peer, by any path.
    pub fn header(&mut self, kind: Kind) -> Header {
        Header {
            kind,
            channel: self.channel,
            tag: self.tag,
            ev: any_value(self.rng),
            ..Header::default()
        }
    }
}

/// A data packet that was sent.
#[derive(Debug)]
pub struct Sent<P> {
    packet: Option<P>,
    sent_us: u64,
    ev: u16,
    ecn: Ecn,
    is_again: bool,
}

impl<P> Default for Sent<P> {
    fn default() -> Self {
        Self {
            packet: None,
            sent_us: 0,
            ev: 0,
            ecn: Ecn::Not,
            is_again: false,
        }
    }
}

/// A block that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentBlock {
    id: u32,
    /// 0: it is open, or nothing.
    k: u8,
    is_done: bool,
    /// Its holes are known to the chooser.
    is_judged: bool,
    resends: u8,
    nacked_us: u64,
    last_us: u64,
    parity_evs: [u16; MAX_PARITY],
}

/// What a receiver says of one block.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Which.
    pub block: u32,
    /// It could be read.
    pub is_done: bool,
    /// What of it came, by index.
    pub have: u32,
}

/// Reports in one [`Feedback`].
pub const MAX_REPORTS: usize = 8;
/// Echoes in one [`Feedback`].
pub const MAX_ECHOES: usize = 16;
const FEEDBACK_FIXED: usize = 19;
const REPORT_BYTES: usize = 9;
const ECHO_BYTES: usize = 2;
/// The longest.
pub const FEEDBACK_BYTES: usize =
    FEEDBACK_FIXED + MAX_REPORTS * REPORT_BYTES + MAX_ECHOES * ECHO_BYTES;
const ECHO_MARKED: u16 = 1 << 15;

/// Rule D11. The first block that is not done is in the header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Feedback {
    /// Bit i: block `next` + 1 + i is done.
    pub map: u64,
    /// The packet that came last.
    pub newest: (u32, u8),
    /// How long ago.
    pub age_us: u32,
    /// Of blocks.
    pub reports: [Report; MAX_REPORTS],
    /// How many of these.
    pub report_count: u8,
    /// Entropy of packets that came, and whether they were marked.
    pub echoes: [(u16, bool); MAX_ECHOES],
    /// How many of these.
    pub echo_count: u8,
}

impl Feedback {
    /// How long it is.
    pub fn bytes(&self) -> usize {
        let reports = REPORT_BYTES.saturating_mul(self.report_count.into());
        let echoes = ECHO_BYTES.saturating_mul(self.echo_count.into());
        FEEDBACK_FIXED
            .saturating_add(reports)
            .saturating_add(echoes)
    }

    /// Into [`Feedback::bytes`] bytes.
    pub fn write(&self, out: &mut [u8]) {
        let mut out = out.iter_mut();
        let mut put = |bytes: &[u8]| {
            // In this order, for a zip asks its first one more time.
            for (byte, cell) in bytes.iter().zip(out.by_ref()) {
                *cell = *byte;
            }
        };
        put(&self.map.to_be_bytes());
        put(&self.newest.0.to_be_bytes());
        put(&[self.newest.1]);
        put(&self.age_us.to_be_bytes());
        put(&[self.report_count, self.echo_count]);
        for report in self.reports.iter().take(self.report_count.into()) {
            put(&report.block.to_be_bytes());
            put(&[report.is_done.into()]);
            put(&report.have.to_be_bytes());
        }
        for (ev, is_marked) in self.echoes.iter().take(self.echo_count.into()) {
            let mark = if *is_marked { ECHO_MARKED } else { 0 };
            put(&(ev | mark).to_be_bytes());
        }
    }

    /// None: it cannot be.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&map, rest) = bytes.split_first_chunk()?;
        let (&newest, rest) = rest.split_first_chunk()?;
        let (&newest_index, rest) = rest.split_first()?;
        let (&age_us, rest) = rest.split_first_chunk()?;
        let (&[report_count, echo_count], rest) = rest.split_first_chunk()?;
        let mut feedback = Feedback {
            map: u64::from_be_bytes(map),
            newest: (u32::from_be_bytes(newest), newest_index),
            age_us: u32::from_be_bytes(age_us),
            report_count,
            echo_count,
            ..Feedback::default()
        };
        let counts = (usize::from(report_count), usize::from(echo_count));
        let is_sound = counts.0 <= MAX_REPORTS
            && counts.1 <= MAX_ECHOES
            && newest_index < MAX_INDEX
            && bytes.len() == feedback.bytes();
        if !is_sound {
            return None;
        }
        let (reports, echoes) = rest.split_at_checked(counts.0.saturating_mul(REPORT_BYTES))?;
        for (report, bytes) in feedback
            .reports
            .iter_mut()
            .zip(reports.chunks_exact(REPORT_BYTES))
        {
            let (&block, bytes) = bytes.split_first_chunk()?;
            let (&is_done, bytes) = bytes.split_first()?;
            *report = Report {
                block: u32::from_be_bytes(block),
                is_done: is_done != 0,
                have: u32::from_be_bytes(*bytes.first_chunk()?),
            };
        }
        for (echo, bytes) in feedback
            .echoes
            .iter_mut()
            .zip(echoes.chunks_exact(ECHO_BYTES))
        {
            let value = u16::from_be_bytes(*bytes.first_chunk()?);
            let ev = value & !ECHO_MARKED;
            if ev >= VALUES {
                return None;
            }
            *echo = (ev, value & ECHO_MARKED != 0);
        }
        Some(feedback)
    }
}

/// The memory of a channel's sender.
pub struct Lent<'a, P> {
    /// [`Config::sent_slots`].
    pub slots: &'a mut [Sent<P>],
    /// [`Config::blocks`].
    pub blocks: &'a mut [SentBlock],
}

impl<P> Lent<'_, P> {
    fn at(&self, id: u32) -> usize {
        let mask = self.blocks.len().saturating_sub(1);
        id as usize & mask
    }

    /// The block of that id, if it is remembered.
    fn block(&mut self, id: u32) -> Option<&mut SentBlock> {
        let at = self.at(id);
        self.blocks.get_mut(at).filter(|block| block.id == id)
    }

    /// Its packets, `x` of them.
    fn packets(&mut self, config: &Config, id: u32) -> &mut [Sent<P>] {
        let x = usize::from(config.x);
        let start = self.at(id).saturating_mul(x);
        let end = start.saturating_add(x);
        self.slots.get_mut(start..end).unwrap_or_default()
    }
}

/// A channel's sender. All zeroes is one that has not begun.
pub struct Sender<P> {
    /// The chooser.
    pub paths: Paths,
    /// The open block, or the one that opens next.
    next: u32,
    /// The first that is not done.
    oldest: u32,
    /// Packets of the open block; 0 if no block is open.
    open: u8,
    open_us: u64,
    /// Blocks were given up that the receiver may wait for.
    owes_floor: bool,
    /// Bytes of the parities that are not zero.
    used: usize,
    parities: [Option<P>; MAX_PARITY],
    ecn: Ecn,
    backoff: u8,
    /// When it was raised last.
    raised_us: u64,
    /// Smoothed RTT of this session; 0: none.
    srtt_us: u32,
    /// Of the packets that are kept.
    kept_bytes: usize,
}

impl<P> Default for Sender<P> {
    fn default() -> Self {
        Self {
            paths: Paths::default(),
            next: 0,
            oldest: 0,
            open: 0,
            open_us: 0,
            owes_floor: false,
            used: 0,
            parities: [None, None, None],
            ecn: Ecn::Not,
            backoff: 0,
            raised_us: 0,
            srtt_us: 0,
            kept_bytes: 0,
        }
    }
}

impl<P: Packet> Sender<P> {
    /// A session begins: forgets all, and numbers blocks from `first` on.
    pub fn begin(&mut self, config: &Config, lent: &mut Lent<'_, P>, first: u32) {
        for slot in lent.slots.iter_mut() {
            *slot = Sent::default();
        }
        for block in lent.blocks.iter_mut() {
            // Of no id that comes soon.
            *block = SentBlock {
                id: first.wrapping_sub(1),
                is_done: true,
                ..SentBlock::default()
            };
        }
        let mut paths = core::mem::take(&mut self.paths);
        paths.begin(config.paths, config.freeze);
        *self = Self {
            paths,
            next: first,
            oldest: first,
            ..Self::default()
        };
    }

    /// Blocks that are not done, the open one among them.
    pub fn blocks_under_way(&self) -> u32 {
        let is_open = u32::from(self.open > 0);
        self.next.wrapping_sub(self.oldest).saturating_add(is_open)
    }

    /// The smoothed RTT; 0: none was measured in this session.
    pub fn srtt_us(&self) -> u32 {
        self.srtt_us
    }

    /// Sends a data packet.
    pub fn push<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        packet: P,
        ecn: Ecn,
    ) {
        let Some(kept) = cx.io.copy(&packet) else {
            cx.io.count(Count::NoMem, 1);
            self.raw(cx, packet, ecn);
            return;
        };
        // Rule D7.
        self.kept_bytes = self.kept_bytes.saturating_add(kept.bytes().len());
        while self.kept_bytes > MAX_KEPT_BYTES && self.oldest != self.next {
            self.abandon(cx, lent, self.oldest);
        }
        if self.open == 0 {
            self.open(cx, lent);
        }
        let index = self.open;
        self.open = index.saturating_add(1);
        let is_last = self.open >= cx.config.x;
        let y = usize::from(cx.config.y);
        let bytes = packet.bytes();
        let vector = bytes.len().saturating_add(LENGTH_BYTES);
        let mut registers = if y > 0 && self.used.max(vector) >= WORTH_VECTORS_BYTES {
            cx.io.vectors()
        } else {
            None
        };
        let mut done = 0;
        if let [Some(p), Some(q), ..] = self.parities.as_mut_slice() {
            let (p, q) = (p.bytes_mut(), q.bytes_mut());
            if y > 1 && gf256::absorb_pair(registers.as_mut(), p, q, self.used, bytes) {
                done = 2;
            }
        }
        for (r, parity) in self.parities.iter_mut().enumerate().take(y).skip(done) {
            let row = parity.as_mut().map(P::bytes_mut);
            let fits = |row| gf256::absorb(registers.as_mut(), row, r, self.used, bytes);
            if !row.is_some_and(fits) {
                *parity = None;
            }
        }
        drop(registers);
        self.used = self.used.max(vector);
        if ecn == Ecn::Not {
            self.ecn = Ecn::Not;
        }
        let ev = self.paths.next(&cx.time(), cx.rng);
        if let Some(block) = lent.block(self.next) {
            block.last_us = cx.now_us;
        }
        if let Some(slot) = lent
            .packets(cx.config, self.next)
            .get_mut(usize::from(index))
        {
            *slot = Sent {
                packet: Some(kept),
                sent_us: cx.now_us,
                ev,
                ecn,
                is_again: false,
            };
        }
        let header = Header {
            block: self.next,
            index,
            k: if is_last { cx.config.x } else { 0 },
            ev,
            ..cx.header(Kind::Data)
        };
        cx.io.count(Count::TxData, 1);
        cx.io.send(&header, packet, ecn);
        if is_last {
            self.close(cx, lent);
        }
    }

    /// Sends a packet without order and code. Rule B2.
    pub fn raw<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, packet: P, ecn: Ecn) {
        let header = Header {
            ev: self.paths.next(&cx.time(), cx.rng),
            ..cx.header(Kind::Raw)
        };
        cx.io.count(Count::TxRaw, 1);
        cx.io.send(&header, packet, ecn);
    }

    fn open<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, lent: &mut Lent<'_, P>) {
        // Rule D7.
        if self.next.wrapping_sub(self.oldest) as usize >= lent.blocks.len() {
            self.abandon(cx, lent, self.oldest);
        }
        let at = lent.at(self.next);
        if let Some(block) = lent.blocks.get_mut(at) {
            *block = SentBlock {
                id: self.next,
                ..SentBlock::default()
            };
        }
        let len = usize::from(cx.config.mtu).saturating_add(LENGTH_BYTES);
        let y = usize::from(cx.config.y);
        for parity in self.parities.iter_mut().take(y) {
            *parity = cx.io.make(len);
        }
        self.open_us = cx.now_us;
        self.used = 0;
        self.ecn = Ecn::Capable;
        if self.owes_floor {
            self.floor(cx);
        }
    }

    /// Rule B6: the parities follow.
    fn close<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, lent: &mut Lent<'_, P>) {
        let k = core::mem::take(&mut self.open);
        for r in 0..MAX_PARITY {
            let Some(mut parity) = self.parities.get_mut(r).and_then(Option::take) else {
                continue;
            };
            parity.cut(0, self.used);
            let header = Header {
                block: self.next,
                index: FIRST_PARITY.saturating_add(r as u8),
                k,
                ev: self.paths.next(&cx.time(), cx.rng),
                ..cx.header(Kind::Parity)
            };
            let evs = lent.block(self.next).map(|block| &mut block.parity_evs);
            if let Some(ev) = evs.and_then(|evs| evs.get_mut(r)) {
                *ev = header.ev;
            }
            cx.io.count(Count::TxParity, 1);
            cx.io.send(&header, parity, self.ecn);
        }
        if let Some(block) = lent.block(self.next) {
            block.k = k;
            block.last_us = cx.now_us;
        }
        self.next = self.next.wrapping_add(1);
    }

    /// The block needs no memory any more.
    fn finish(&mut self, cx: &Context<'_, impl Io<Packet = P>>, lent: &mut Lent<'_, P>, id: u32) {
        if let Some(block) = lent.block(id) {
            block.is_done = true;
            for slot in lent.packets(cx.config, id) {
                let kept = slot.packet.take();
                let bytes = kept.map_or(0, |packet| packet.bytes().len());
                self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
            }
        }
        while self.oldest != self.next {
            let oldest = self.oldest;
            if lent.block(oldest).is_some_and(|block| !block.is_done) {
                break;
            }
            self.oldest = oldest.wrapping_add(1);
        }
    }

    /// Rule D7: it will not come.
    fn abandon<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        id: u32,
    ) {
        cx.io.count(Count::Abandoned, 1);
        let was_oldest = id == self.oldest;
        self.finish(cx, lent, id);
        if was_oldest {
            self.floor(cx);
        }
    }

    fn floor<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>) {
        let header = Header {
            block: self.oldest,
            ..cx.header(Kind::Floor)
        };
        if let Some(packet) = cx.io.make(0) {
            cx.io.send(&header, packet, Ecn::Not);
        }
    }

    /// Whether the block is one that was closed and is not done.
    fn is_under_way(&self, id: u32) -> bool {
        id.wrapping_sub(self.oldest) < self.next.wrapping_sub(self.oldest)
    }

    /// The receiver speaks; `next` is the first block that is not done there.
    pub fn feedback<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        next: u32,
        feedback: &Feedback,
    ) {
        // What was never sent cannot have come, but an open block can.
        let limit = match self.open {
            0 => self.next,
            _ => self.next.wrapping_add(1),
        };
        let (newest, index) = feedback.newest;
        if is_before(limit, next) {
            cx.io.count(Count::Malformed, 1);
            // Somebody spoke to it in our name. It drops all below as old, so go on where it is.
            if self.open > 0 {
                self.close(cx, lent);
            }
            while self.oldest != self.next {
                self.finish(cx, lent, self.oldest);
            }
            self.next = next;
            self.oldest = next;
            self.owes_floor = false;
            return;
        }
        self.owes_floor &= is_before(next, self.oldest);
        if is_before(next, self.oldest)
            && self.next.wrapping_sub(next) as usize >= lent.blocks.len()
        {
            // Each floor was lost, and all that is sent now is too far for it.
            self.floor(cx);
        }
        self.measure(cx, lent, newest, index, feedback.age_us);
        for (ev, is_marked) in feedback.echoes.iter().take(feedback.echo_count.into()) {
            let event = match is_marked {
                true => Event::Marked(*ev),
                false => Event::Good(*ev),
            };
            self.tell(cx, event);
        }
        while self.oldest != self.next && is_before(self.oldest, next) {
            self.finish(cx, lent, self.oldest);
        }
        let mut map = feedback.map;
        while map != 0 {
            let id = next.wrapping_add(1).wrapping_add(map.trailing_zeros());
            map &= map.wrapping_sub(1);
            if self.is_under_way(id) && lent.block(id).is_some_and(|block| !block.is_done) {
                self.finish(cx, lent, id);
            }
        }
        let mut is_behind = false;
        for report in feedback.reports.iter().take(feedback.report_count.into()) {
            is_behind |= self.report(cx, lent, report);
        }
        if is_behind {
            self.floor(cx);
        }
    }

    fn measure<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        newest: u32,
        index: u8,
        age_us: u32,
    ) {
        if lent.block(newest).is_none() {
            return;
        }
        let Some(slot) = lent.packets(cx.config, newest).get(usize::from(index)) else {
            return;
        };
        let took_us = cx.now_us.saturating_sub(slot.sent_us);
        // Of what was sent again it is the most that the RTT can be. That is better than none: where it is above
        // UNKNOWN_RTT_US all is sent again before it is heard of.
        let is_of_use = !slot.is_again || cx.rtt.get().is_none();
        if is_of_use && slot.sent_us != 0 {
            let was_silent = self.backoff > 0;
            // Karn's rule: what was sent again does not tell how long to wait.
            self.backoff = 0;
            let rtt_us = u32::try_from(took_us.saturating_sub(age_us.into())).unwrap_or(u32::MAX);
            cx.rtt.update(cx.now_us, rtt_us, RTT_WINDOW_MS);
            self.srtt_us = match self.srtt_us {
                0 => rtt_us,
                // Silence was shorter than the RTT has become.
                srtt_us if was_silent && rtt_us > srtt_us => rtt_us,
                srtt_us => srtt_us
                    .saturating_sub(srtt_us >> 3)
                    .saturating_add(rtt_us >> 3),
            };
        }
    }

    /// Returns whether the receiver waits for a block that was given up.
    fn report<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        report: &Report,
    ) -> bool {
        let id = report.block;
        if report.is_done {
            self.judge(cx, lent, report, false);
            return false;
        }
        let nack = |times| Happened::Nack {
            block: id,
            have: report.have,
            times,
            is_sent: false,
        };
        if is_before(id, self.oldest) {
            cx.io.count(Count::NackReceived, 1);
            cx.trace(&nack(0));
            return true;
        }
        if id == self.next && self.open > 0 {
            self.close(cx, lent);
        }
        let (now_us, min_rtt_us) = (cx.now_us, cx.min_rtt_us());
        if !self.is_under_way(id) {
            return false;
        }
        let Some(block) = lent.block(id).filter(|block| !block.is_done) else {
            return false;
        };
        let is_repeated =
            block.nacked_us != 0 && now_us.saturating_sub(block.nacked_us) < min_rtt_us.into();
        if is_repeated {
            return false;
        }
        block.nacked_us = now_us;
        let resends = block.resends;
        let is_enough = resends >= MAX_RESENDS || is_old(cx, lent, id);
        cx.io.count(Count::NackReceived, 1);
        cx.trace(&nack(resends));
        self.judge(cx, lent, report, true);
        if is_enough {
            self.abandon(cx, lent, id);
        } else {
            self.resend(cx, lent, id, report.have);
        }
        false
    }

    /// Tells the chooser, and what it makes of it.
    fn tell<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, event: Event) {
        let (reroutes, freezes) = (self.paths.reroutes(), self.paths.freezes());
        self.paths.event(&cx.time(), cx.rng, event);
        let (ev, cause) = match event {
            Event::Good(ev) | Event::Marked(ev) => (ev, Cause::Mark),
            Event::Lost { ev, is_nack: false } => (ev, Cause::Loss),
            Event::Lost { ev, is_nack: true } => (ev, Cause::Nack),
            Event::Timeout(ev) => (ev, Cause::Timeout),
        };
        let paths = self.paths.reroutes().wrapping_sub(reroutes);
        if paths != 0 {
            cx.io.count(Count::Reroute, paths);
            cx.trace(&Happened::Reroute {
                ev,
                paths: paths as u32,
                cause,
            });
        }
        if self.paths.freezes() != freezes {
            cx.io.count(Count::Freeze, 1);
            cx.trace(&Happened::Freeze {
                ev,
                until_us: self.paths.frozen_until_us().unwrap_or(0),
                cause,
            });
        }
    }

    /// Tells the chooser of what did not come.
    fn judge<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        report: &Report,
        is_nack: bool,
    ) {
        let Some(block) = lent.block(report.block).filter(|block| !block.is_judged) else {
            return;
        };
        // One that could not be read is reported again.
        block.is_judged = !is_nack;
        let (k, parity_evs) = (block.k, block.parity_evs);
        let lost = |ev| Event::Lost { ev, is_nack };
        let packets = lent.packets(cx.config, report.block).iter().take(k.into());
        for (index, slot) in packets.enumerate() {
            if report.have >> index & 1 == 0 {
                self.tell(cx, lost(slot.ev));
            }
        }
        for (r, ev) in parity_evs.iter().enumerate().take(cx.config.y.into()) {
            let index = usize::from(FIRST_PARITY).saturating_add(r);
            if report.have >> index & 1 == 0 {
                self.tell(cx, lost(*ev));
            }
        }
    }

    /// Rule D4: the data that are missing, by new paths. If none is, the receiver lacks their number,
    /// which the last one brings.
    fn resend<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
        id: u32,
        have: u32,
    ) {
        let Some(block) = lent.block(id) else {
            return;
        };
        block.resends = block.resends.saturating_add(1);
        block.last_us = cx.now_us;
        let k = block.k;
        let last = usize::from(k.saturating_sub(1));
        let all = 1u32.checked_shl(k.into()).unwrap_or(0).wrapping_sub(1);
        let has_all = have & all == all;
        for (index, slot) in lent
            .packets(cx.config, id)
            .iter_mut()
            .enumerate()
            .take(k.into())
        {
            if have >> index & 1 != 0 && !(has_all && index == last) {
                continue;
            }
            let Some(copy) = slot.packet.as_ref().and_then(|packet| cx.io.copy(packet)) else {
                continue;
            };
            slot.ev = self.paths.next(&cx.time(), cx.rng);
            slot.is_again = true;
            let header = Header {
                is_again: true,
                block: id,
                index: index as u8,
                k,
                ev: slot.ev,
                ..cx.header(Kind::Data)
            };
            cx.io.count(Count::TxResent, 1);
            cx.io.send(&header, copy, slot.ecn);
        }
    }

    /// Does what is due. Returns when something will be; 0: nothing.
    pub fn poll<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, P>,
    ) -> u64 {
        let mut due_us = 0;
        if self.open > 0 {
            let flush_us = self.open_us.saturating_add(cx.config.flush_us.into());
            if flush_us <= cx.now_us {
                self.close(cx, lent);
            } else {
                due_us = flush_us;
            }
        }
        if self.oldest == self.next {
            return due_us;
        }
        let id = self.oldest;
        // A queue at home can be longer than any of the network's.
        let queued_us = self.srtt_us.saturating_sub(cx.min_rtt_us());
        let silence_us = cx.silence_us().saturating_add(queued_us);
        // In none longer than this is anything kept that will not be sent again.
        let silence_us = (u64::from(silence_us) << self.backoff.min(MAX_BACKOFF)).min(MAX_AGE_US);
        let Some(block) = lent.block(id) else {
            return due_us;
        };
        let silent_us = block.last_us.saturating_add(silence_us);
        if silent_us > cx.now_us {
            return earlier(due_us, silent_us);
        }
        let is_enough = block.resends >= MAX_RESENDS;
        let last_us = block.last_us;
        let k = usize::from(block.k);
        if is_old(cx, lent, id) {
            // A FLOOR goes before the next block. Without, the receiver would ask for each of these.
            self.owes_floor = true;
            while self.oldest != self.next && is_old(cx, lent, self.oldest) {
                cx.io.count(Count::Timeout, 1);
                cx.io.count(Count::Abandoned, 1);
                self.finish(cx, lent, self.oldest);
            }
            return earlier(due_us, cx.after(1));
        }
        cx.io.count(Count::Timeout, 1);
        for slot in lent.packets(cx.config, id).iter().take(k) {
            self.tell(cx, Event::Timeout(slot.ev));
        }
        // Of blocks that are silent at once, one tells how long to wait; the others are due at once.
        if last_us >= self.raised_us {
            self.backoff = self.backoff.saturating_add(1).min(MAX_BACKOFF);
            self.raised_us = cx.now_us;
        }
        if is_enough {
            self.abandon(cx, lent, id);
        } else {
            self.resend(cx, lent, id, 0);
        }
        // At once again: what is oldest now may be silent, too.
        earlier(due_us, cx.after(1))
    }
}

fn is_old<P>(cx: &Context<'_, impl Io<Packet = P>>, lent: &mut Lent<'_, P>, id: u32) -> bool {
    let first = lent.packets(cx.config, id).first();
    let first_us = first.map_or(0, |slot| slot.sent_us);
    cx.now_us.saturating_sub(first_us) > MAX_AGE_US
}

#[cfg(test)]
#[path = "tests/unorc.rs"]
mod tests;
