// SPDX-License-Identifier: GPL-2.0

//! Marks of which a receiver of RFC 3168 does not tell.
//!
//! It repeats ECE from a marked packet on until CWR arrives, a round trip later (RFC 3168, section 6.1.3). Which packets of
//! that round trip were marked nobody sees. How often they are is seen between: so many packets pass from the end of one
//! repetition to the next mark. It is taken to be the same meanwhile.

use super::random::Random;

/// Packets between two marks, mostly those of the last time: three bits of mantissa and four of exponent. All zeroes is
/// "every packet is marked".
// The module has seven bits for it. So it is rounded up or down at random, such that the mean is right.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Gap(u8);

const MANTISSA_BITS: u32 = 3;
const MAX: u8 = 127;
/// Units of a packet.
const PACKET: u64 = 64;
/// A quarter of the gap is kept as a mark comes.
const QUARTER: u8 = 2 << MANTISSA_BITS;
/// This, divided by the gap in units, is the share of the hidden packets that are taken for marked. Found by trial: where one
/// packet in thirty is marked, or fewer, and an ACK comes for each or each second, the share is within 13 % of the true one.
/// Where more are, or ACKs are fewer, it is too large.
const HIDDEN: u64 = 10;

impl Gap {
    /// As [`Self::bits`] gave it.
    pub fn of_bits(bits: u8) -> Self {
        Gap(bits.min(MAX))
    }

    /// Seven bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// For an ACK at that time, which makes `delivered` of all packets.
    // The time alone is not enough: draws of regular times are much alike.
    pub fn seed(now_us: u64, delivered: u32) -> u32 {
        now_us as u32 ^ delivered.wrapping_mul(0x9e37_79b9)
    }

    /// In 2^-6 packets.
    fn units(self) -> u64 {
        let mantissa = u64::from(self.0 & 7) | 1 << MANTISSA_BITS;
        mantissa << (self.0 >> MANTISSA_BITS)
    }

    /// Packets that are not marked. `seed`: another one each time.
    pub fn pass(&mut self, packets: u32, seed: u32) {
        let units = self
            .units()
            .saturating_add(u64::from(packets).saturating_mul(PACKET));
        let exponent = units.ilog2().saturating_sub(MANTISSA_BITS);
        let rest = units & (1u64 << exponent).wrapping_sub(1);
        let is_up = draw(seed, 1 << exponent) < rest;
        let mantissa = (units >> exponent).saturating_add(is_up.into());
        // A mantissa of 16 is one of 8 with the next exponent, as the bits add up.
        let bits = u64::from(exponent << MANTISSA_BITS)
            .saturating_add(mantissa)
            .saturating_sub(1 << MANTISSA_BITS);
        self.0 = bits.min(MAX.into()) as u8;
    }

    /// A mark ends the gap: what comes is hidden.
    pub fn end(&mut self) {
        self.0 = self.0.saturating_sub(QUARTER);
    }

    /// The same, where twice in a row no unmarked packet came since the mark before: most packets are marked. One sixty-fourth
    /// of the gap is kept.
    pub fn end_at_once(&mut self) {
        self.0 = self.0.saturating_sub(QUARTER.saturating_mul(3));
    }

    /// Of so many packets, those that are taken for marked. `seed`: another one each time.
    pub fn hidden(self, packets: u32, seed: u32) -> u32 {
        let units = self.units();
        let due = u64::from(packets)
            .saturating_mul(HIDDEN)
            .saturating_add(draw(seed, units));
        due.checked_div(units).unwrap_or(0).min(packets.into()) as u32
    }
}

/// Below `bound`, which has 2^32 at most.
fn draw(seed: u32, bound: u64) -> u64 {
    u64::from(Random::new(seed.into()).next_u32()).wrapping_mul(bound) >> u32::BITS
}

#[cfg(test)]
#[path = "tests/echo.rs"]
mod tests;
