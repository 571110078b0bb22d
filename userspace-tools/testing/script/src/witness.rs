// SPDX-License-Identifier: GPL-2.0
//! The rules of the specifications in floating point, and comparisons with them.

use anyhow::{Result, ensure};

use crate::flow::Step;

/// Fails unless `got` is within `tolerance` of `want`.
pub fn near(what: &str, got: f64, want: f64, tolerance: f64) -> Result<()> {
    ensure!(
        (got - want).abs() <= tolerance,
        "{what}: {got:.4}, expected {want:.4}, tolerance {tolerance}"
    );
    Ok(())
}

/// Compares a window in packets with one in bytes, within one packet or 0.1 %.
pub fn near_window(what: &str, packets: u32, bytes: f64, mss_bytes: f64) -> Result<()> {
    let want = (bytes / mss_bytes).floor();
    near(what, f64::from(packets), want, (want / 1e3).max(1.0))
}

/// Additive increase of `step` bytes per window, for an ACK of `acked` bytes.
pub fn increased(window: f64, step: f64, acked: f64) -> f64 {
    window + step * acked.min(window) / window
}

/// unocc's 4K / (K + BDP).
pub fn md_gain(k_bytes: f64, bdp_bytes: f64) -> f64 {
    (4.0 * k_bytes / (k_bytes + bdp_bytes)).min(1.0)
}

/// One step of a moving average with a gain in 1/1024.
pub fn averaged(average: f64, sample: f64, gain: u32) -> f64 {
    let gain = f64::from(gain) / 1024.0;
    (1.0 - gain) * average + gain * sample
}

/// Delivery rate at ACK `i`, bytes per microsecond: bytes delivered since its segment left, over the longer
/// of the sending and the acknowledgment intervals.
pub fn delivery_rate(steps: &[Step], i: usize) -> Option<f64> {
    let last = steps.get(i)?;
    let prior = steps.get(last.acks_before.checked_sub(1)?)?;
    let delivered: u32 = steps[last.acks_before..=i].iter().map(|s| s.bytes).sum();
    let acking_us = last.at_us - prior.at_us;
    let sending_us = last.sent_us.saturating_sub(prior.sent_us);
    Some(f64::from(delivered) / acking_us.max(sending_us) as f64)
}

/// Epoch clock of unocc.
#[derive(Debug, Clone, Copy)]
pub struct Epochs {
    /// End of the epoch in whole nanoseconds, which add without error.
    ends_ns: f64,
    intra_us: f64,
    base_us: f64,
}

impl Epochs {
    /// Starts the clock at the first ACK.
    pub fn new(first: &Step, intra_us: f64, base_us: f64) -> Self {
        Epochs { ends_ns: first.at_us as f64 * 1e3, intra_us, base_us }
    }

    /// Returns whether this ACK ends an epoch.
    pub fn ended_by(&mut self, step: &Step) -> bool {
        let sent_ns = step.sent_us as f64 * 1e3;
        if sent_ns < self.ends_ns {
            return false;
        }
        let rtt_ns = (step.at_us - step.sent_us) as f64 * 1e3;
        let period_ns = (rtt_ns * self.intra_us / self.base_us).floor();
        self.ends_ns += period_ns;
        if self.ends_ns <= sent_ns {
            self.ends_ns = sent_ns + period_ns;
        }
        true
    }
}

/// Round trips: each ends with the first ACK of a packet sent after it began.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    ends_us: u64,
}

impl Rounds {
    /// Starts a round trip at the first ACK.
    pub fn new(first: &Step) -> Self {
        Rounds { ends_us: first.at_us }
    }

    /// Returns whether this ACK ends a round trip.
    pub fn ended_by(&mut self, step: &Step) -> bool {
        let ended = step.sent_us >= self.ends_us;
        if ended {
            self.ends_us = step.at_us;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_has_a_bound_on_either_side() {
        assert!(near("x", 1.0, 2.0, 1.0).is_ok());
        assert!(near("x", 0.9, 2.0, 1.0).is_err());
        assert!(near("x", 3.1, 2.0, 1.0).is_err());
        assert!(near("x", f64::NAN, 2.0, 1.0).is_err());
    }

    #[test]
    fn the_gain_is_a_half_if_k_is_a_seventh_of_the_bdp() {
        assert!((md_gain(1.0, 7.0) - 0.5).abs() < 1e-9);
        assert_eq!(md_gain(7.0, 7.0), 1.0);
    }
}
