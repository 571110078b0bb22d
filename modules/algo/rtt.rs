// SPDX-License-Identifier: GPL-2.0

//! The base RTT of a path: the minimum over a sliding stretch of time.

/// A minimum that forgets.
///
/// A sample counts for at least one window and at most two, so a route that became longer is
/// noticed within two windows. All zeroes is "no sample yet".
#[derive(Clone, Copy, Debug, Default)]
pub struct BaseRtt {
    /// Minimum of this window and the one before; 0 = none.
    min_us: u32,
    /// Minimum of this window; 0 = none.
    window_min_us: u32,
    /// Start of this window. Wraps after 49 days, which compares right nevertheless.
    window_start_ms: u32,
}

impl BaseRtt {
    /// The base RTT, if there is a sample; never 0.
    pub fn get(&self) -> Option<u32> {
        (self.min_us != 0).then_some(self.min_us)
    }

    /// Takes a sample.
    pub fn update(&mut self, now_us: u64, rtt_us: u32, window_ms: u32) {
        let rtt_us = rtt_us.max(1);
        let now_ms = (now_us / 1_000) as u32;
        if self.min_us == 0 {
            *self = BaseRtt {
                min_us: rtt_us,
                window_min_us: rtt_us,
                window_start_ms: now_ms,
            };
            return;
        }
        if now_ms.wrapping_sub(self.window_start_ms) >= window_ms {
            self.min_us = self.window_min_us;
            self.window_min_us = rtt_us;
            self.window_start_ms = now_ms;
        }
        // Nearly every sample is above both.
        if rtt_us < self.window_min_us {
            self.window_min_us = rtt_us;
            self.min_us = self.min_us.min(rtt_us);
        }
    }
}

#[cfg(test)]
#[path = "tests/rtt.rs"]
mod tests;
