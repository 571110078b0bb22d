// SPDX-License-Identifier: GPL-2.0

//! The base RTT of a path: the minimum over a sliding stretch of time.

use super::Ack;

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
    /// Start of this window, in ticks. Wraps after 50 days, which compares right nevertheless.
    window_start_ticks: u32,
}

/// A tick of the windows' clock: 1,024 us, so that no ACK divides. A window is shorter by less than two ticks, and an
/// aligned one by as much as it begins late.
const TICK_BITS: u32 = 10;

/// From here on, elapsed ticks are a time up to 18 minutes before the window's start.
const LATE_TICKS: u32 = u32::MAX - (1 << 20);

#[inline(always)]
fn window_ticks(window_ms: u32) -> u32 {
    (u64::from(window_ms).wrapping_mul(1_000) >> TICK_BITS) as u32
}

/// What a sample is to a [`BaseRtt`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sample {
    /// Neither of these.
    Ordinary,
    /// The first of all, or less than the others of its window.
    Least,
    /// The first of a window.
    OfNewWindow,
    /// The first of a window, with which the base RTT became longer by more than an eighth.
    Longer,
}

impl BaseRtt {
    /// The base RTT, if there is a sample; never 0.
    pub fn get(&self) -> Option<u32> {
        (self.min_us != 0).then_some(self.min_us)
    }

    /// As three words, for who keeps them apart.
    pub fn words(&self) -> [u32; 3] {
        [self.min_us, self.window_min_us, self.window_start_ticks]
    }

    /// What [`words`](Self::words) gave.
    pub fn of_words([min_us, window_min_us, window_start_ticks]: [u32; 3]) -> Self {
        BaseRtt {
            min_us,
            window_min_us,
            window_start_ticks,
        }
    }

    /// Lets the present window have begun together with those of all flows of the host: those that send less to see the base RTT
    /// do so together, so that their queue is empty for a moment.
    pub fn align(&mut self, window_ms: u32) {
        let late_ticks = self.window_start_ticks.checked_rem(window_ticks(window_ms));
        self.window_start_ticks = self
            .window_start_ticks
            .wrapping_sub(late_ticks.unwrap_or(0));
    }

    /// Takes a sample.
    pub fn update(&mut self, now_us: u64, rtt_us: u32, window_ms: u32) -> Sample {
        let ack = Ack {
            now_us,
            ..Ack::default()
        };
        self.update_by(&ack, rtt_us, window_ms)
    }

    /// Takes the sample of an ACK. No window begins with what the receiving host may have made longer: a
    /// connection that has nothing else would take that for its path's.
    ///
    /// Source: `tcp_update_rtt_min()`, which leaves such samples out.
    #[inline(always)]
    pub fn update_by(&mut self, ack: &Ack, rtt_us: u32, window_ms: u32) -> Sample {
        let now_us = ack.now_us;
        let rtt_us = rtt_us.max(1);
        let now_ticks = (now_us >> TICK_BITS) as u32;
        let window_ticks = window_ticks(window_ms);
        if self.min_us == 0 {
            *self = BaseRtt {
                min_us: rtt_us,
                window_min_us: rtt_us,
                window_start_ticks: now_ticks,
            };
            return Sample::Least;
        }
        let mut sample = Sample::Ordinary;
        // What several share may be told a time before the window began.
        let elapsed_ticks = now_ticks.wrapping_sub(self.window_start_ticks);
        let is_over = (window_ticks..LATE_TICKS).contains(&elapsed_ticks);
        if is_over && !(ack.is_rtt_of_host && rtt_us > self.min_us) {
            let before_us = self.min_us;
            self.min_us = self.window_min_us.min(rtt_us);
            self.window_min_us = rtt_us;
            self.window_start_ticks = now_ticks;
            sample = match self.min_us > before_us.saturating_add(before_us >> 3) {
                true => Sample::Longer,
                false => Sample::OfNewWindow,
            };
        }
        // Nearly every sample is above both.
        if rtt_us < self.window_min_us {
            self.window_min_us = rtt_us;
            self.min_us = self.min_us.min(rtt_us);
            sample = Sample::Least;
        }
        sample
    }
}

/// A moment that others are compared with which lie less than half an hour before or behind it. All
/// zeroes is "none".
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Moment(u32);

impl Moment {
    /// That moment.
    #[inline(always)]
    pub fn at(us: u64) -> Self {
        Moment((us as u32).max(1))
    }

    /// None yet.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// `us` is not before it.
    #[inline(always)]
    pub fn is_reached(self, us: u64) -> bool {
        (us as u32).wrapping_sub(self.0) as i32 >= 0
    }
}

#[cfg(test)]
#[path = "tests/rtt.rs"]
mod tests;
