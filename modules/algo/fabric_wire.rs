// SPDX-License-Identifier: GPL-2.0

//! A wire: delay, jitter that keeps the order, serialization and losses, as netem computes them.
//!
//! Source: `netem_enqueue()` in net/sched/sch_netem.c; `prandom_u32_state()` in lib/random32.c.

use super::fixed::{NS_PER_S, mul_div};

/// Random numbers of netem.
#[derive(Clone, Copy, Debug, Default)]
struct Prandom([u32; 4]);

impl Prandom {
    fn new(seed: u64) -> Self {
        let seed = ((seed >> 32) ^ (seed << 10) ^ seed) as u32;
        let least = |low: u32| match seed < low {
            true => seed.wrapping_add(low),
            false => seed,
        };
        Self([least(2), least(8), least(16), least(128)])
    }

    fn next_u32(&mut self) -> u32 {
        let [s1, s2, s3, s4] = &mut self.0;
        let step = |s: &mut u32, a: u32, b: u32, c: u32, d: u32| {
            *s = ((*s & c) << d) ^ (((*s << a) ^ *s) >> b);
            *s
        };
        step(s1, 6, 13, !1, 18)
            ^ step(s2, 2, 27, !7, 2)
            ^ step(s3, 13, 21, !15, 7)
            ^ step(s4, 3, 12, !127, 13)
    }
}

/// Settings of a wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Serialization rate; 0 = none, or a queue has it.
    pub rate_bytes_per_s: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Extra delay of each packet, uniform from 0 to this.
    pub jitter_ns: u32,
    /// Share of packets that are lost, in 2^-32; all ones = each.
    pub loss: u32,
    /// Seed of jitter and losses.
    pub seed: u64,
}

/// A wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    settings: Settings,
    random: Prandom,
    /// Arrival of the last packet.
    last_ns: u64,
}

impl Wire {
    /// Applies settings, which restarts the random numbers. Packets on the wire keep their times.
    pub fn configure(&mut self, settings: Settings) {
        self.random = Prandom::new(settings.seed);
        self.settings = settings;
    }

    /// Returns whether the next packet is lost.
    #[inline]
    pub fn loses(&mut self) -> bool {
        self.settings.loss != 0 && self.settings.loss >= self.random.next_u32()
    }

    /// Returns when a packet arrives that is sent now; `is_empty` if no packet is on the wire.
    #[inline]
    pub fn arrival_ns(&mut self, now_ns: u64, len_bytes: u32, is_empty: bool) -> u64 {
        let settings = &self.settings;
        let mut delay_ns = settings.delay_ns;
        // The mean plus or minus half the jitter, as in tabledist().
        let half_ns = settings.jitter_ns / 2;
        if half_ns != 0 {
            let range_ns = half_ns.wrapping_mul(2);
            let extra_ns = self.random.next_u32().checked_rem(range_ns).unwrap_or(0);
            delay_ns = delay_ns.saturating_add(u64::from(extra_ns));
        }
        let mut due_ns = now_ns.saturating_add(delay_ns);
        if !is_empty {
            due_ns = due_ns.max(self.last_ns);
        }
        let rate = settings.rate_bytes_per_s;
        if rate != 0 {
            let serialization_ns = mul_div(u64::from(len_bytes), NS_PER_S, rate);
            due_ns = due_ns.saturating_add(serialization_ns);
        }
        self.last_ns = due_ns;
        due_ns
    }
}

/// Losses in blocks of ten packets: one, two or three of a block are lost, with a probability each.
#[derive(Clone, Copy, Debug, Default)]
pub struct BurstLoss {
    /// Blocks per million that lose at least three, two, and one of ten packets.
    bounds: [u64; 3],
    /// State of SplitMix64.
    random: u64,
    /// Packets of the block that have passed, and those still to lose.
    place: u64,
    left: u64,
}

impl BurstLoss {
    /// Packets per block.
    pub const BLOCK: u64 = 10;

    /// Creates losses of `ppm` blocks that lose one, two and three packets.
    pub fn new(ppm: [u32; 3], seed: u64) -> Self {
        let [one, two, three] = ppm.map(u64::from);
        let two = one.saturating_add(two);
        Self {
            bounds: [one, two, two.saturating_add(three)],
            random: seed,
            place: 0,
            left: 0,
        }
    }

    /// Returns whether packets can be lost.
    pub fn is_on(&self) -> bool {
        self.bounds[2] != 0
    }

    /// Returns whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        if !self.is_on() {
            return false;
        }
        if self.place == 0 {
            let draw = self.up_to(999_999);
            let [one, two, three] = self.bounds;
            self.left = match draw {
                _ if draw < one => 1,
                _ if draw < two => 2,
                _ if draw < three => 3,
                _ => 0,
            };
        }
        // Every choice of the block's packets is equally likely.
        let behind = Self::BLOCK.saturating_sub(self.place).saturating_sub(1);
        let lost = self.left > 0 && self.up_to(behind) < self.left;
        if lost {
            self.left = self.left.saturating_sub(1);
        }
        self.place = match self.place.saturating_add(1) {
            Self::BLOCK => 0,
            place => place,
        };
        lost
    }

    /// Returns a number uniform in `0..=max`.
    fn up_to(&mut self, max: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = u128::from(z ^ (z >> 31));
        (bits.wrapping_mul(u128::from(max).wrapping_add(1)) >> u64::BITS) as u64
    }
}

#[cfg(test)]
#[path = "tests/fabric_wire.rs"]
mod tests;
