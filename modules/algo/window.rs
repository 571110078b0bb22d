// SPDX-License-Identifier: GPL-2.0

//! The congestion window: bytes with their fraction, and slow start.

use super::Ack;
use super::fixed::{BYTE_BITS, BYTE_ONE, FRACTION_ONE, MAX_BYTES, mul_div, mul_fraction};

/// No window falls below this: with one packet in flight a delayed ACK stalls the flow.
const MIN_PACKETS: u64 = 2;

/// A congestion window. All zeroes is "not started".
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// The window in 2^-16 bytes. An additive increase is often far below a packet per RTT, so
    /// its fractions have to add up.
    scaled: u64,
    /// Below this, in 2^-16 bytes, the window grows as in slow start.
    ssthresh_scaled: u64,
}

impl Window {
    /// Starts with `bytes`, in slow start or past it.
    pub fn start(&mut self, bytes: u64, slow_start: bool) {
        self.set(bytes);
        self.ssthresh_scaled = if slow_start { u64::MAX } else { self.scaled };
    }

    /// Whether [`start`](Self::start) was called.
    pub fn is_started(&self) -> bool {
        self.scaled != 0
    }

    /// The window in whole bytes.
    pub fn bytes(&self) -> u64 {
        self.scaled >> BYTE_BITS
    }

    /// The window in 2^-16 bytes.
    pub fn scaled(&self) -> u64 {
        self.scaled
    }

    /// Where slow start ends.
    pub fn ssthresh_bytes(&self) -> u64 {
        self.ssthresh_scaled >> BYTE_BITS
    }

    /// Whether nothing has ended slow start yet.
    pub fn in_first_slow_start(&self) -> bool {
        self.ssthresh_scaled == u64::MAX
    }

    /// Whether the window grows by what is acknowledged.
    pub fn in_slow_start(&self) -> bool {
        self.scaled < self.ssthresh_scaled
    }

    /// Grows by what was acknowledged, up to the end of slow start.
    pub fn slow_start(&mut self, acked_bytes: u64) {
        let acked_scaled = acked_bytes.min(MAX_BYTES) << BYTE_BITS;
        self.scaled = self
            .scaled
            .saturating_add(acked_scaled)
            .min(self.ssthresh_scaled)
            .min(MAX_BYTES << BYTE_BITS);
    }

    /// Grows by `step_scaled` (2^-16 bytes) per window acknowledged, and by no more than that for
    /// one ACK: it can cover far more than a window that was just lowered.
    #[inline(always)]
    pub fn increase(&mut self, step_scaled: u64, acked_bytes: u64) {
        let acked_scaled = (acked_bytes.min(MAX_BYTES) << BYTE_BITS).min(self.scaled);
        let step = mul_div(step_scaled, acked_scaled, self.scaled.max(1));
        self.scaled = self.scaled.saturating_add(step).min(MAX_BYTES << BYTE_BITS);
    }

    /// Takes `cut` (2^-30, at most 1) of the window away, which ends slow start.
    pub fn decrease(&mut self, cut: u32) {
        let kept = FRACTION_ONE.saturating_sub(cut);
        self.lower_to_scaled(mul_fraction(self.scaled, kept));
    }

    /// Lowers the window to `bytes`, which ends slow start. Never raises it.
    pub fn lower_to(&mut self, bytes: u64) {
        self.lower_to_scaled(bytes.min(MAX_BYTES) << BYTE_BITS);
    }

    /// [`lower_to`](Self::lower_to) 2^-16 bytes.
    pub fn lower_to_scaled(&mut self, scaled: u64) {
        self.scaled = self.scaled.min(scaled.max(BYTE_ONE));
        self.leave_slow_start();
    }

    /// Ends slow start at the present window.
    pub fn leave_slow_start(&mut self) {
        self.ssthresh_scaled = self.ssthresh_scaled.min(self.scaled);
    }

    /// A timeout: the pipe is empty, slow start leads back to the window it had.
    pub fn restart(&mut self, bytes: u64) {
        let target_scaled = if self.in_slow_start() {
            self.ssthresh_scaled
        } else {
            self.scaled
        };
        self.lower_to(bytes);
        self.ssthresh_scaled = target_scaled;
    }

    /// The last reduction was a mistake: back to `bytes`, if that is more, past slow start.
    pub fn undo(&mut self, bytes: u64) {
        if bytes > self.bytes() {
            self.set(bytes);
        }
        self.leave_slow_start();
    }

    /// `scaled` brought between the floor and the present window, for a reduction.
    pub fn bounded(&self, scaled: u64, mss_bytes: u32) -> u64 {
        scaled
            .max(floor_bytes(mss_bytes) << BYTE_BITS)
            .min(self.scaled)
    }

    /// Keeps the window between the floor of two packets and `ceiling_bytes`.
    #[inline(always)]
    pub fn clamp(&mut self, mss_bytes: u32, ceiling_bytes: u64) {
        if self.bytes() > ceiling_bytes {
            self.lower_to(ceiling_bytes);
        }
        if self.bytes() < floor_bytes(mss_bytes) {
            self.set(floor_bytes(mss_bytes));
        }
    }

    /// What may be in flight while a loss is repaired: no more than the window, and what leaves
    /// the network may be replaced and grow by a packet. So a large loss does not become a burst
    /// of retransmissions.
    pub fn recovery_bytes(&self, ack: &Ack) -> u64 {
        ack.in_flight_bytes
            .saturating_add(ack.acked_bytes)
            .saturating_add(u64::from(ack.mss_bytes.max(1)))
            .min(self.bytes())
    }

    fn set(&mut self, bytes: u64) {
        // A window that has started stays distinguishable from one that has not.
        self.scaled = bytes.clamp(1, MAX_BYTES) << BYTE_BITS;
    }
}

fn floor_bytes(mss_bytes: u32) -> u64 {
    MIN_PACKETS.saturating_mul(u64::from(mss_bytes.max(1)))
}

#[cfg(test)]
#[path = "tests/window.rs"]
mod tests;
