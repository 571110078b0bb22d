// SPDX-License-Identifier: GPL-2.0

//! A policer: a token bucket that drops packets instead of delaying them.
//!
//! Source: `tcf_police_act()` in net/sched/act_police.c.

use super::fixed::{NS_PER_S, mul_div};

/// Settings of a policer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Rate of the tokens; 0 = no policer.
    pub rate_bytes_per_s: u64,
    /// Most tokens.
    pub burst_bytes: u64,
}

/// A policer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policer {
    settings: Settings,
    /// Tokens after the last packet that passed, as the time to earn them.
    tokens_ns: u64,
    last_ns: u64,
}

impl Policer {
    fn time_ns(&self, bytes: u64) -> u64 {
        mul_div(bytes, NS_PER_S, self.settings.rate_bytes_per_s)
    }

    /// Applies settings. Other ones start with all tokens.
    pub fn configure(&mut self, settings: Settings, now_ns: u64) {
        if self.settings != settings {
            self.settings = settings;
            self.tokens_ns = u64::MAX;
            self.last_ns = now_ns;
        }
    }

    /// Returns whether a packet must be dropped.
    #[inline]
    pub fn refuses(&mut self, now_ns: u64, len_bytes: u32) -> bool {
        if self.settings.rate_bytes_per_s == 0 {
            return false;
        }
        let earned_ns = now_ns.saturating_sub(self.last_ns);
        let tokens_ns = self.tokens_ns.saturating_add(earned_ns);
        let tokens_ns = tokens_ns.min(self.time_ns(self.settings.burst_bytes));
        match tokens_ns.checked_sub(self.time_ns(u64::from(len_bytes))) {
            Some(left_ns) => {
                self.tokens_ns = left_ns;
                self.last_ns = now_ns;
                false
            }
            None => true,
        }
    }
}

#[cfg(test)]
#[path = "tests/policer.rs"]
mod tests;
