// SPDX-License-Identifier: GPL-2.0

//! How far a flow is from the balance between its increases and its decreases.
//!
//! Flows that share a port overrun it together if each adds a fixed part of its BDP per round trip: N of them add N parts
//! before a mark can come back. Near the balance they need not: there small steps do, in proportion to the window, of which
//! all windows together have a given amount. Far from it large steps lead back. docs/unocc.md has the model.

use super::fixed::RATIO_BITS;

/// In a [`Balance`]: the flow is past its youth.
const SETTLED: u32 = 1 << 31;
/// It left slow start a span ago at most; the rest is its age in microseconds.
const YOUNG: u32 = 1 << 30;
/// Slow start counts up to so many bytes.
pub const MOST_WITHHELD: u64 = YOUNG as u64 - 1;
const LIFT_BITS: u32 = 8;
const MAX_LIFT: u32 = (1 << LIFT_BITS) - 1;
const MAX_RATIO: u32 = (SETTLED >> LIFT_BITS) - 1;
/// A ratio of one: what is taken away grows again in the same time. Ratios end below four.
const RATIO_ONE: u32 = 1 << 21;
/// A span is 2^15 us at least, and sixteen base RTTs.
const SPAN_BITS: u32 = 15;
const SPAN_RTT_BITS: u32 = 4;
/// Bits of the fraction of a microsecond in which regrowth is counted.
pub const REGROWTH_BITS: u32 = RATIO_ONE.ilog2() - SPAN_BITS;
const BEYOND_SHIFT: u32 = RATIO_ONE.ilog2() - LIFT_BITS;
/// The smallest step is 2^5, and a whole lift adds 255.
const LIFT_SHIFT: u32 = 5;

/// In slow start the decreases that were withheld in this round trip, in bytes; then the flow's age; then the ratio of decreases
/// to increases, averaged over a span, and the lift that follows from it. All zeroes is "nothing withheld".
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Balance(u32);

/// What an epoch, which is over, did to the balance.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Since the end of the one before, an RTT at most.
    pub passed_us: u64,
    /// The time in which whole steps add what its unmarked bytes did, in 2^-[`REGROWTH_BITS`] us.
    pub grown_scaled: u64,
    /// The same of what it added once more.
    pub twice_scaled: u64,
    /// How long whole steps take to add what it took away, in 2^-[`REGROWTH_BITS`] us.
    pub regrowth_scaled: u64,
}

impl Balance {
    /// An epoch of slow start ends: what comes after it is young.
    #[inline(always)]
    pub fn renew(&mut self) {
        if self.0 >= YOUNG {
            self.0 = 0;
        }
    }

    /// Adds a decrease that slow start withholds; returns all of this round trip, in bytes.
    pub fn withhold(&mut self, bytes: u64) -> u64 {
        let sum = if self.0 < YOUNG { self.0 } else { 0 };
        let sum = u64::from(sum).saturating_add(bytes).min(MOST_WITHHELD);
        self.0 = sum as u32;
        sum
    }

    /// A round trip ends: slow start withholds anew.
    #[inline(always)]
    pub fn end_round(&mut self) {
        if self.0 < YOUNG {
            self.0 = 0;
        }
    }

    /// An epoch beyond slow start ends.
    #[inline(never)]
    pub fn end_epoch(&mut self, base_rtt_us: u32, change: &Change) {
        let span_bits = span_bits(base_rtt_us);
        let span_us = 1 << span_bits;
        if self.0 & SETTLED == 0 {
            let age_us = if self.0 < YOUNG {
                0
            } else {
                self.0 & (YOUNG - 1)
            };
            let age_us = u64::from(age_us).saturating_add(change.passed_us);
            self.0 = match age_us < span_us {
                true => YOUNG | age_us as u32,
                false => SETTLED | RATIO_ONE << LIFT_BITS,
            };
            return;
        }
        let ratio = u64::from((self.0 & !SETTLED) >> LIFT_BITS);
        let most_scaled = span_us << REGROWTH_BITS;
        // 2^23 x 2^23 at most.
        let forgotten = ratio.wrapping_mul(change.grown_scaled.min(most_scaled))
            >> span_bits.saturating_add(REGROWTH_BITS);
        let coarser_bits =
            REGROWTH_BITS.saturating_sub(RATIO_ONE.ilog2().saturating_sub(span_bits));
        let ratio = ratio
            .saturating_sub(forgotten)
            .saturating_add(change.regrowth_scaled >> coarser_bits)
            .min(MAX_RATIO.into())
            .saturating_sub(change.twice_scaled.min(most_scaled) >> coarser_bits)
            as u32;
        self.0 = SETTLED | ratio << LIFT_BITS | lift(ratio);
    }

    /// The part of a BDP that the increase of a window is a part of, and that a decrease is likewise in proportion to: so many
    /// windows (a ratio), which the lift makes up to nine times as many, and at most the BDP. All of it in slow start and soon after.
    #[inline(always)]
    pub fn share_bytes(self, window_bytes: u64, windows: u32, bdp_bytes: u64) -> u64 {
        if self.0 & SETTLED == 0 {
            return bdp_bytes;
        }
        let times = u64::from(self.0 & MAX_LIFT).wrapping_add(1 << LIFT_SHIFT);
        // 2^40 bytes x 2^20 are 2^50 of whole windows; the lift has nine bits.
        let least_bytes = window_bytes.wrapping_mul(windows.into()) >> RATIO_BITS;
        (least_bytes.wrapping_mul(times) >> LIFT_SHIFT).min(bdp_bytes)
    }

    /// Past its youth, with that ratio in 2^-21.
    #[cfg(test)]
    pub fn of_ratio(ratio: u32) -> Self {
        let ratio = ratio.min(MAX_RATIO);
        Balance(SETTLED | ratio << LIFT_BITS | lift(ratio))
    }

    /// The ratio, if it is past its youth.
    #[cfg(test)]
    pub fn ratio(self) -> Option<f64> {
        let ratio = (self.0 & !SETTLED) >> LIFT_BITS;
        (self.0 & SETTLED != 0).then(|| f64::from(ratio) / f64::from(RATIO_ONE))
    }

    /// Any state.
    #[cfg(test)]
    pub fn any(rng: &mut super::support::Rng) -> Self {
        Balance(rng.any() as u32)
    }
}

/// None while the ratio is within 0.5 and 1.5, and whole at 0 and at 2.
fn lift(ratio: u32) -> u32 {
    let off = ratio.abs_diff(RATIO_ONE);
    let beyond = off.wrapping_mul(2).saturating_sub(RATIO_ONE);
    (beyond >> BEYOND_SHIFT).min(MAX_LIFT)
}

/// Up to the 5 ms of a region these are 15 to 17.
fn span_bits(base_rtt_us: u32) -> u32 {
    let rtt_bits = u32::BITS.saturating_sub(base_rtt_us.saturating_sub(1).leading_zeros());
    rtt_bits
        .saturating_add(SPAN_RTT_BITS)
        .clamp(SPAN_BITS, SPAN_BITS + 2)
}

#[cfg(test)]
#[path = "tests/balance.rs"]
mod tests;
