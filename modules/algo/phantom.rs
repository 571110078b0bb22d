// SPDX-License-Identifier: GPL-2.0

//! The phantom queue (a byte counter with a clock of its own) and RED's decision.
//!
//! Source: Uno, section 4.1.3. The counter grows by each packet that enters the port and drains
//! at a fraction of the line rate. It drains lazily, when looked at, and carries what is less
//! than a byte: after any number of packets it equals the exact rational value.

use super::fixed::{NS_PER_S, PPM, mul_div};

/// What the counter drains at and where it stops.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Config {
    /// Drain rate; 0 = it never drains.
    pub drain_bytes_per_s: u64,
    /// Highest occupancy.
    pub limit_bytes: u64,
}

impl Config {
    /// A phantom queue that drains at `drain_ppm` of `line_rate_bytes_per_s`.
    pub fn new(line_rate_bytes_per_s: u64, drain_ppm: u32, limit_bytes: u64) -> Self {
        Config {
            drain_bytes_per_s: mul_div(line_rate_bytes_per_s, u64::from(drain_ppm), PPM),
            limit_bytes,
        }
    }
}

/// Occupancy of one phantom queue. All zeroes is an empty queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phantom {
    /// Occupancy, rounded up to bytes.
    bytes: u64,
    /// What has drained beyond that, in 10^-9 bytes: less than one byte.
    drained_nbytes: u64,
    /// Time of the last drain.
    drained_at_ns: u64,
}

impl Phantom {
    /// Occupancy at the last [`drain`](Self::drain) or [`add`](Self::add), rounded up.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Brings the occupancy to `now_ns`. A clock that runs backwards drains nothing.
    #[inline]
    pub fn drain(&mut self, config: &Config, now_ns: u64) -> u64 {
        let Some(elapsed_ns) = now_ns.checked_sub(self.drained_at_ns) else {
            return self.bytes;
        };
        self.drained_at_ns = now_ns;
        if self.bytes == 0 {
            return 0;
        }
        let rate = config.drain_bytes_per_s;
        let nbytes = elapsed_ns
            .checked_mul(rate)
            .and_then(|nbytes| nbytes.checked_add(self.drained_nbytes));
        let (drained, drained_nbytes) = match nbytes {
            Some(nbytes) => {
                let drained = nbytes / NS_PER_S;
                (drained, nbytes.wrapping_sub(drained.wrapping_mul(NS_PER_S)))
            }
            None => self.drained_long(elapsed_ns, rate),
        };
        match self.bytes.checked_sub(drained) {
            None | Some(0) => (self.bytes, self.drained_nbytes) = (0, 0),
            Some(bytes) => (self.bytes, self.drained_nbytes) = (bytes, drained_nbytes),
        }
        self.bytes
    }

    /// Bytes, and what is left of one, that drain in a time whose product with the rate passes
    /// 64 bits: each split at 10^9, so that the last product is below 10^18 and the others
    /// saturate, which empties the queue.
    #[cold]
    fn drained_long(&self, elapsed_ns: u64, rate: u64) -> (u64, u64) {
        let (elapsed_s, elapsed_ns) = (elapsed_ns / NS_PER_S, elapsed_ns % NS_PER_S);
        let (rate_high, rate_low) = (rate / NS_PER_S, rate % NS_PER_S);
        let nbytes = elapsed_ns
            .wrapping_mul(rate_low)
            .wrapping_add(self.drained_nbytes);
        let drained = elapsed_s
            .saturating_mul(rate)
            .saturating_add(elapsed_ns.saturating_mul(rate_high))
            .saturating_add(nbytes / NS_PER_S);
        (drained, nbytes % NS_PER_S)
    }

    /// Drains to `now_ns`, then counts a packet of `len_bytes`.
    #[inline]
    pub fn add(&mut self, config: &Config, now_ns: u64, len_bytes: u64) -> u64 {
        self.bytes = self.drain(config, now_ns).saturating_add(len_bytes);
        if self.bytes > config.limit_bytes {
            (self.bytes, self.drained_nbytes) = (config.limit_bytes, 0);
        }
        self.bytes
    }
}

/// A RED ramp: probability 0 up to `min_bytes`, rising linearly to 1 at `max_bytes`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Red {
    /// Highest occupancy that is never chosen.
    pub min_bytes: u64,
    /// Lowest occupancy that is always chosen.
    pub max_bytes: u64,
}

impl Red {
    /// A ramp from `min_ppm` to `max_ppm` of a queue of `limit_bytes`.
    pub fn new(limit_bytes: u64, min_ppm: u32, max_ppm: u32) -> Self {
        Red {
            min_bytes: mul_div(limit_bytes, u64::from(min_ppm), PPM),
            max_bytes: mul_div(limit_bytes, u64::from(max_ppm), PPM),
        }
    }

    /// The lowest occupancy at which a packet may be chosen.
    pub fn lowest_bytes(&self) -> u64 {
        self.min_bytes.saturating_add(1).min(self.max_bytes)
    }

    /// Whether a packet that finds `bytes` queued is chosen; `random` is uniform.
    #[inline]
    pub fn chooses(&self, bytes: u64, random: u32) -> bool {
        if bytes >= self.max_bytes {
            return true;
        }
        if bytes <= self.min_bytes {
            return false;
        }
        // random / 2^32 < (bytes - min) / (max - min), without dividing.
        let above = u128::from(bytes.wrapping_sub(self.min_bytes)) << u32::BITS;
        let ramp = u128::from(self.max_bytes.wrapping_sub(self.min_bytes));
        ramp.wrapping_mul(u128::from(random)) < above
    }
}

#[cfg(test)]
#[path = "tests/phantom.rs"]
mod tests;
