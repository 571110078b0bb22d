// SPDX-License-Identifier: GPL-2.0

//! A shaper: a packet leaves when the bytes before it have been serialised at a rate.

use super::fixed::{NS_PER_S, mul_div};
use core::num::NonZeroU64;

/// When the next packet may leave. All zeroes is an idle port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shaper {
    next_ns: u64,
    /// What `next_ns` lacks, in bytes x ns over the rate.
    remainder: u64,
}

impl Shaper {
    /// How far the shaper may be behind: what a late timer, a busy device or a virtual machine
    /// that was not running costs is caught up within this, and lost beyond it.
    pub const MAX_LAG_NS: u64 = 100_000_000;

    /// When the next packet may leave.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// A packet comes to an idle port.
    pub fn start(&mut self, now_ns: u64) {
        if self.next_ns < now_ns {
            self.next_ns = now_ns;
            self.remainder = 0;
        }
    }

    /// The rate changes: what is left of the packet on the wire goes at the new one, and what the
    /// port is behind by is as many bytes as before. A rate of 0 is no shaping, and owes nothing.
    pub fn change_rate(&mut self, now_ns: u64, old_bytes_per_s: u64, new_bytes_per_s: u64) {
        if old_bytes_per_s == new_bytes_per_s {
            return;
        }
        let at_new_rate = |time_ns| match new_bytes_per_s {
            0 => 0,
            _ => mul_div(time_ns, old_bytes_per_s, new_bytes_per_s),
        };
        self.next_ns = match self.next_ns.checked_sub(now_ns) {
            Some(left_ns) => now_ns.saturating_add(at_new_rate(left_ns)),
            None => {
                let behind_ns = now_ns.saturating_sub(self.next_ns).min(Self::MAX_LAG_NS);
                now_ns.saturating_sub(at_new_rate(behind_ns))
            }
        };
        self.remainder = 0;
    }

    /// A packet of `len_bytes` leaves.
    pub fn charge(&mut self, now_ns: u64, len_bytes: u64, rate_bytes_per_s: u64) {
        // A packet is below 2^24 bytes, the remainder below the rate: below 2^54 in all.
        let byte_ns = len_bytes
            .saturating_mul(NS_PER_S)
            .saturating_add(self.remainder);
        let rate = NonZeroU64::new(rate_bytes_per_s).unwrap_or(NonZeroU64::MIN);
        self.next_ns = self
            .next_ns
            .max(now_ns.saturating_sub(Self::MAX_LAG_NS))
            .saturating_add(byte_ns / rate);
        self.remainder = byte_ns % rate;
    }
}

#[cfg(test)]
#[path = "tests/shaper.rs"]
mod tests;
