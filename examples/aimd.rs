// SPDX-License-Identifier: GPL-2.0

//! An example algorithm to start from: textbook additive increase and multiplicative decrease on
//! marks.
//!
//! Each RTT without a mark adds `increase_bytes` to the window; each RTT with a mark takes
//! `decrease` of it, once. A flow begins in slow start, which the first mark or loss ends. A loss
//! halves the window.

use crate::algo::controller::{Controller, Flag, Published, Watch, published};
use crate::algo::entry::{Entry, Event, Line, Marks, OWN_NUMBERS, State, Value};
use crate::algo::fixed::{BYTE_BITS, FRACTION_ONE, RATIO_BITS, fraction};
use crate::algo::params::{ParamSource, params};
use crate::algo::window::Window;
use crate::algo::{Ack, Output};

params! {
    /// Profiles: sets of initial values of the parameters.
    profiles {
        /// Only profile.
        Default = c"default",
    }

    //                          min  max          default

    /// Bytes that a round trip without a mark adds to the window.
    increase_bytes: "bytes",    1,   1 << 20,     [1_448];
    /// Part of the window that a round trip with a mark takes.
    decrease: "1/1024",         1,   1_024,       [512];
}

/// State of one flow: integers and [`Flag`]s only; all zeroes means "not started".
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    window: Window,

    // The current round trip.
    /// An ACK for a packet sent at or after this time ends it; 0 = before the first ACK.
    round_ends_us: u64,
    acked_bytes: u64,
    marked_bytes: u64,

    // The reduction.
    /// No further reduction until a packet sent at or after `reduced_at_us` is acknowledged.
    was_reduced: Flag,
    reduced_at_us: u64,

    // State for `xdc ss`.
    /// Marked part of the last round trip.
    marked_fraction: u32,
    /// Round trips that have ended; wraps.
    rounds: u8,
}

/// Event for a [`Watch`]: a round trip ended.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Window at its end.
    pub cwnd_bytes: u64,
    /// Bytes acknowledged in the round trip.
    pub acked_bytes: u64,
    /// Marked part of these bytes, as a fraction.
    pub marked_fraction: u32,
    /// Smoothed RTT.
    pub srtt_us: u32,
}

impl Controller for Flow {
    type Event = Round;

    fn new(
        _params: &impl ParamSource,
        _now_us: u64,
        cwnd_bytes: u64,
        _rtt_us: Option<u32>,
    ) -> Self {
        let mut flow = Flow::default();
        flow.window.resume(cwnd_bytes, u64::MAX);
        flow
    }

    fn window(&self) -> Window {
        self.window
    }

    fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    #[inline(always)]
    fn adjust(&mut self, params: &impl ParamSource, ack: &Ack, watch: &mut impl Watch<Round>) {
        self.follow_rounds(ack, watch);
        if ack.marked_bytes > 0 && !self.was_reduced.is_set() {
            let cut = fraction(u64::from(params.decrease()), 1 << RATIO_BITS);
            self.window.decrease(cut);
            self.reduced_at(ack.now_us);
        } else if ack.cwnd_limited && self.window.in_slow_start() {
            self.window.slow_start(ack.unmarked_bytes());
        } else if ack.cwnd_limited {
            let step_scaled = u64::from(params.increase_bytes()) << BYTE_BITS;
            self.window.increase(step_scaled, ack.unmarked_bytes());
        }
        self.window.clamp(ack.mss_bytes, u64::MAX);
    }

    #[inline(always)]
    fn output(&self, _params: &impl ParamSource, _srtt_us: u32) -> Output {
        Output {
            cwnd_bytes: self.window.bytes(),
            ssthresh_bytes: self.window.ssthresh_bytes(),
            pacing_bytes_per_s: u64::MAX,
        }
    }

    fn was_reduced(&self) -> bool {
        self.was_reduced.is_set()
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.was_reduced = Flag::SET;
        self.reduced_at_us = now_us;
    }

    #[inline(always)]
    fn published(&self) -> Published {
        let saturate = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Published {
            marked_fraction: self.marked_fraction.min(FRACTION_ONE),
            acked_bytes: saturate(self.acked_bytes),
            marked_bytes: saturate(self.marked_bytes),
            periods: self.rounds,
            flags: published::flag(self.was_reduced.is_set(), published::REDUCED),
            ..Published::default()
        }
    }
}

impl Flow {
    /// Ends a round trip when a packet is acknowledged that was sent after its start.
    #[inline(always)]
    fn follow_rounds(&mut self, ack: &Ack, watch: &mut impl Watch<Round>) {
        self.acked_bytes = self.acked_bytes.saturating_add(ack.acked_bytes);
        self.marked_bytes = self.marked_bytes.saturating_add(ack.marked_bytes);
        let Some(sent_at_us) = ack.sent_at_us() else {
            return;
        };
        if sent_at_us >= self.reduced_at_us {
            self.was_reduced = Flag::CLEAR;
        }
        if self.round_ends_us == 0 {
            self.round_ends_us = ack.now_us;
        }
        if sent_at_us >= self.round_ends_us {
            self.marked_fraction = fraction(self.marked_bytes, self.acked_bytes);
            watch.observe(|| Round {
                cwnd_bytes: self.window.bytes(),
                acked_bytes: self.acked_bytes,
                marked_fraction: self.marked_fraction,
                srtt_us: ack.srtt_us,
            });
            self.round_ends_us = ack.now_us;
            (self.acked_bytes, self.marked_bytes) = (0, 0);
            self.rounds = self.rounds.wrapping_add(1);
        }
    }
}

/// Description of the algorithm for modules and tools.
pub const ENTRY: Entry = Entry {
    name: c"aimd",
    number: OWN_NUMBERS,
    marks: Marks::Physical,
    params: PARAMS,
    profiles: &Profile::NAMES,
    state: &[
        State {
            key: "marked",
            label: "marked",
            unit: "",
            help: "marked part of the last round trip, 0 to 1",
            value: |shown| Some(Value::fraction(shown.marked_fraction)),
        },
        State::ROUNDS,
        State::REDUCED,
    ],
    events: &[Event {
        name: "aimd_round",
        help: "at the end of each round trip",
        lines: &[
            Line::window("cwnd_bytes"),
            Line::marked("marked_ppm"),
            Line::rtt("round_srtt_us"),
        ],
    }],
};

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;
    const RTT_US: u32 = 100;

    fn ack(now_us: u64, marked_bytes: u64) -> Ack {
        Ack {
            now_us,
            rtt_us: Some(RTT_US),
            srtt_us: RTT_US,
            acked_bytes: 10_000,
            marked_bytes,
            cwnd_limited: true,
            mss_bytes: MSS,
            ..Ack::default()
        }
    }

    fn flow() -> (Params, Flow) {
        let params = Params::of(Profile::Default);
        let mut flow = Flow::new(&params, 0, 100_000, None);
        flow.window.leave_slow_start();
        (params, flow)
    }

    #[test]
    fn a_window_without_a_mark_adds_the_increase() {
        let (params, mut flow) = flow();
        for now_us in 1..=10 {
            flow.on_ack(&params, &ack(now_us, 0));
        }
        let added = flow.cwnd_bytes() - 100_000;
        // The window grows meanwhile, so the sum is a little less.
        assert!((1_430..=1_448).contains(&added), "{added}");
    }

    #[test]
    fn marks_take_half_once_in_a_round_trip() {
        let (params, mut flow) = flow();
        for now_us in 1_000..1_010 {
            flow.on_ack(&params, &ack(now_us, 10_000));
        }
        assert_eq!(flow.cwnd_bytes(), 50_000);
        flow.on_ack(&params, &ack(1_000 + u64::from(RTT_US), 10_000));
        assert_eq!(flow.cwnd_bytes(), 25_000);
        assert_eq!(flow.published().periods, 1);
    }
}
