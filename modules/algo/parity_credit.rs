// SPDX-License-Identifier: GPL-2.0

//! Credit for parities: a share of the data, and less under congestion.
//!
//! Each data packet earns y/x of a parity, so full blocks pay y parities each, and several short ones pay for
//! one. Under congestion parities displace data, so each round trip with marks or a long delay halves the
//! share. Losses alone do not lower it, because most are path failures. Rules K.

/// Full share; a parity costs x times this.
const WHOLE: u32 = 64;
/// Share restored by a round trip without congestion.
const STEP: u8 = 8;
/// Up to one mark in this number of packets is no congestion: mark-based controls keep that rate in a short
/// queue.
const MARKED_OF: u32 = 16;
/// Round trips of a term. Credit lasts two terms.
const TERM_ROUNDS: u64 = 4;
/// Lower bound of a round trip: a block's own packets may take longer to pay for it.
const LEAST_ROUND_US: u32 = 500;

/// Credit of a channel. All zeroes is its initial state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credit {
    /// Part of [`WHOLE`] that is withheld.
    withheld: u8,
    /// Credit to spend.
    units: u32,
    /// Part of `units` that was earned in this term.
    fresh: u32,
    term_us: u64,
    round_us: u64,
    /// Packets and marks of this round trip.
    heard: u32,
    marked: u32,
    is_queued: bool,
}

impl Credit {
    /// Creates the credit of two blocks, one for the session's first packet and one for its last. Rule K5.
    pub fn new(x: u8, y: u8) -> Self {
        let units = WHOLE.saturating_mul(x.into()).saturating_mul(y.into());
        let units = units.saturating_mul(2);
        Self {
            units,
            fresh: units,
            ..Self::default()
        }
    }

    /// Returns the earned part of [`WHOLE`].
    pub fn share(&self) -> u32 {
        WHOLE.saturating_sub(self.withheld.into())
    }

    /// Earns for one data packet, in blocks with `y` parities. Rules K1 and K2.
    pub fn earn(&mut self, now_us: u64, rtt_us: u32, y: u8) {
        self.expire(now_us, rtt_us);
        let units = self.share().saturating_mul(y.into());
        self.units = self.units.saturating_add(units);
        self.fresh = self.fresh.saturating_add(units);
    }

    /// Rule K2: expires credit after its own and the next term.
    fn expire(&mut self, now_us: u64, rtt_us: u32) {
        let term_us = TERM_ROUNDS.saturating_mul(rtt_us.max(LEAST_ROUND_US).into());
        if self.term_us == 0 {
            self.term_us = now_us;
        }
        let elapsed_us = now_us.saturating_sub(self.term_us);
        if elapsed_us < term_us {
            return;
        }
        self.units = match elapsed_us < term_us.saturating_mul(2) {
            true => self.units.min(self.fresh),
            false => 0,
        };
        self.fresh = 0;
        self.term_us = now_us;
    }

    /// Returns the number of parities that the credit pays, with `x` data packets per block.
    pub fn affords(&self, x: u8) -> u32 {
        let cost = WHOLE.saturating_mul(x.into());
        self.units.checked_div(cost).unwrap_or(0)
    }

    /// Returns the number that it would pay after a whole block more.
    pub fn would_afford(&self, x: u8, y: u8) -> u32 {
        let earned = self.share().saturating_mul(y.into());
        let units = self.units.saturating_add(earned.saturating_mul(x.into()));
        Self { units, ..*self }.affords(x)
    }

    /// Pays for a parity.
    pub fn spend(&mut self, x: u8) {
        let cost = WHOLE.saturating_mul(x.into());
        self.units = self.units.saturating_sub(cost);
    }

    /// Handles feedback on `heard` packets. `is_queued`: the delay is long. Rules K3 and K4.
    pub fn hear(&mut self, now_us: u64, rtt_us: u32, heard: u8, marked: u8, is_queued: bool) {
        self.heard = self.heard.saturating_add(heard.into());
        self.marked = self.marked.saturating_add(marked.into());
        self.is_queued |= is_queued;
        if now_us.saturating_sub(self.round_us) < rtt_us.into() {
            return;
        }
        let is_marked = self.marked.saturating_mul(MARKED_OF) > self.heard;
        if is_marked || self.is_queued {
            self.withheld = (WHOLE as u8).saturating_sub((self.share() >> 1) as u8);
            self.units >>= 1;
            self.fresh >>= 1;
        } else {
            self.withheld = self.withheld.saturating_sub(STEP);
        }
        self.round_us = now_us;
        self.heard = 0;
        self.marked = 0;
        self.is_queued = false;
    }
}

#[cfg(test)]
#[path = "tests/parity_credit.rs"]
mod tests;
