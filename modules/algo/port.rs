// SPDX-License-Identifier: GPL-2.0

//! The rules of a switch port: which packets enter, which are marked, and when they leave.
//! sch_phantom and the fabric's ports follow them.

use super::{
    color::{Color, DscpTable, Limits, Occupancy},
    phantom::{self, Phantom, Red},
    random::Random,
    shaper::Shaper,
};

/// The time of one callback.
pub trait Clock {
    /// Returns the time.
    fn now_ns(&mut self) -> u64;
}

/// A time that is known.
#[derive(Clone, Copy, Debug)]
pub struct At(pub u64);

impl Clock for At {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        self.0
    }
}

/// Source of a packet's color.
#[derive(Clone, Copy, Debug, Default)]
pub enum Source {
    /// All packets are green.
    #[default]
    None,
    /// By DSCP.
    Dscp(DscpTable),
    /// By `skb->priority`.
    Priority,
    /// By tc filters.
    Filter,
}

/// Settings of a port. All zeroes is a port that admits nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    // Physical queue
    /// Most bytes.
    pub limit_bytes: u64,
    /// 0 = not shaped.
    pub rate_bytes_per_s: u64,
    /// Bytes on the wire beyond a packet's length.
    pub overhead_bytes: i64,
    /// Fewest bytes of a packet on the wire.
    pub mpu_bytes: i64,

    // Phantom queue; without a line rate it neither drains nor counts packets.
    /// Drain and limit.
    pub phantom: phantom::Config,
    /// Count ACKs without payload, too.
    pub count_acks: bool,

    // Marks
    /// Ramp of the phantom queue.
    pub phantom_red: Red,
    /// Ramp of the physical queue.
    pub physical_red: Red,
    /// Lowest occupancies that may mark; `u64::MAX` if the queue does not mark.
    pub phantom_from_bytes: u64,
    /// As above, of the physical queue.
    pub physical_from_bytes: u64,
    /// Mark only if both queues choose the packet.
    pub both: bool,
    /// Mark arriving packets, not departing ones.
    pub mark_at_enqueue: bool,
    /// Drop chosen packets that are not ECT.
    pub ecn_drop: bool,
    /// The phantom queue should mark, but its drain rate is unknown.
    pub lacks_line_rate: bool,

    // Colors
    /// Source of colors.
    pub source: Source,
    /// Limits by color.
    pub limits: Limits,

    /// Split packets of several segments.
    pub split: bool,
    /// Share of the pool's free bytes that the port may hold.
    pub pool_alpha_ppm: u32,

    /// No colors, no pool, and each packet enters a phantom queue of this port.
    pub plain: bool,
    /// No shaper, and no shared phantom queue.
    pub plain_dequeue: bool,
}

impl Config {
    /// Returns whether the port has a phantom queue.
    pub fn has_phantom(&self) -> bool {
        self.phantom.drain_bytes_per_s != 0
    }
}

/// Queue that chose a packet for a mark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The phantom queue.
    Phantom,
    /// The physical queue.
    Physical,
    /// Both.
    Both,
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Full {
    /// The port is full.
    Port,
    /// The limit of this color is reached.
    Color,
}

/// A port without its packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Port {
    /// Settings.
    pub config: Config,
    /// Queued bytes.
    pub queued: Occupancy,
    /// Phantom queue of this port.
    pub phantom: Phantom,
    /// Time of the next departure.
    pub shaper: Shaper,
    /// Random numbers of RED.
    pub random: Random,
}

impl Port {
    /// Creates an idle port.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            random: Random::new(seed),
            ..Self::default()
        }
    }

    /// Returns whether the port's own limit admits a packet.
    #[inline(always)]
    pub fn has_room(&self, len_bytes: u64) -> bool {
        // Cannot overflow: both numbers have 32 bits.
        self.queued.total().wrapping_add(len_bytes) <= self.config.limit_bytes
    }

    /// Returns whether there is room for a packet of this color.
    #[inline(always)]
    pub fn admit(&self, color: Color, len_bytes: u64) -> Result<(), Full> {
        if !self.has_room(len_bytes) {
            return Err(Full::Port);
        }
        match self.config.limits.admit(&self.queued, color, len_bytes) {
            true => Ok(()),
            false => Err(Full::Color),
        }
    }

    /// Combines the choices of the two queues.
    #[inline(always)]
    pub fn cause(&self, phantom_chooses: bool, physical_chooses: bool) -> Option<Cause> {
        match (phantom_chooses, physical_chooses) {
            (false, false) => None,
            (true, true) => Some(Cause::Both),
            _ if self.config.both => None,
            (true, false) => Some(Cause::Phantom),
            (false, true) => Some(Cause::Physical),
        }
    }

    /// Runs the phantom queue's RED. Pending drain only lowers occupancy, so below the threshold the
    /// clock is not read.
    #[inline(always)]
    pub fn phantom_chooses(&mut self, clock: &mut impl Clock) -> bool {
        let from_bytes = self.config.phantom_from_bytes;
        self.phantom.bytes() >= from_bytes
            && self.phantom.drain(&self.config.phantom, clock.now_ns()) >= from_bytes
            && chooses(
                &self.config.phantom_red,
                self.phantom.bytes(),
                &mut self.random,
            )
    }

    /// Runs the physical queue's RED.
    #[inline(always)]
    pub fn physical_chooses(&mut self) -> bool {
        let bytes = self.queued.total();
        bytes >= self.config.physical_from_bytes
            && chooses(&self.config.physical_red, bytes, &mut self.random)
    }

    /// Charges the shaper for a released packet.
    #[inline(always)]
    pub fn charge(&mut self, now_ns: u64, len_bytes: u32) {
        let wire_bytes = i64::from(len_bytes)
            .saturating_add(self.config.overhead_bytes)
            .max(self.config.mpu_bytes)
            .max(1);
        let rate = self.config.rate_bytes_per_s;
        self.shaper.charge(now_ns, wire_bytes as u64, rate);
    }

    /// Applies settings: the shaper keeps its lag, and the phantom queue drains at the old rate up to
    /// now.
    pub fn configure(&mut self, config: Config, now_ns: u64) {
        self.phantom.drain(&self.config.phantom, now_ns);
        self.shaper.change_rate(
            now_ns,
            self.config.rate_bytes_per_s,
            config.rate_bytes_per_s,
        );
        self.config = config;
    }
}

/// Draws a random number only if the outcome depends on it.
#[inline(always)]
pub fn chooses(red: &Red, bytes: u64, random: &mut Random) -> bool {
    bytes >= red.max_bytes || red.chooses(bytes, random.next_u32())
}
