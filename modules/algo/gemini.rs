// SPDX-License-Identifier: GPL-2.0

//! GEMINI: ECN for congestion inside the datacenter, delay for congestion in the WAN.
//!
//! Source: Gemini, section III-C, Algorithm 1, Tables III and IV.
//!
//! Where this differs from Algorithm 1:
//! 1. RTT in h and F is the smoothed RTT: h = H x C x RTT and F = 4K / (C x RTT). While the queue
//!    stands at K, C x RTT is the paper's C x RTT + K. By equations 13 and 14 a flow's rate goes
//!    with h / (F x RTT^2), queue included, so F and h have to see the same RTT for equal shares;
//!    and a base RTT is forgotten, or never seen, where a queue stands for long.
//! 2. Marks take at most half of the window. F itself has no limit: inside a datacenter it passes 1
//!    (3.0 at 1 Gbit/s, 200 us and K = 50 packets), which equal shares need, but alpha x F can
//!    then pass 1 while a flow starts. Theorem 1 allows any reduction below it.
//! 3. An ACK that covers marked and unmarked bytes is congested, yet its unmarked bytes are not
//!    lost for the increase once the reduction of this RTT is done.
//! 4. One ACK adds at most h, however much it acknowledges.
//! 5. A loss takes at least half of the window.
//! 6. Where no device tells C, h is that of the paper's 1 Gbit/s, if what the flow was delivered is less.
//!    By C = what was delivered, who has little would grow by little, and never have more.

use crate::algo::controller::{Controller, Flag, Published, Watch, published};
use crate::algo::entry::{Entry, Event, Line, Marks, Shown, State, Value};
use crate::algo::fixed::{
    BYTE_BITS, FRACTION_ONE, RATIO_BITS, bdp_bytes, bytes_per_s, ewma, fraction, mul_div,
    mul_fraction, mul_ratio,
};
use crate::algo::host::{self, LineRate};
use crate::algo::params::{Values, params};
use crate::algo::rtt::{BaseRtt, Sample};
use crate::algo::window::Window;
use crate::algo::{Ack, Output};

params! {
    /// Which set of values the parameters start from.
    profiles {
        /// As the paper states them.
        Paper = c"paper",
        /// C, K and T follow from the host's link.
        Linux = c"linux",
    }

    //                              min  max          paper  linux

    /// C, the rate of the host's link; 0 = what the route's device says, or else what is delivered.
    line_rate_mbps: "Mbit/s",       0,   1_000_000,   [1_000, 0];
    /// K, the marking threshold of the datacenter's switches, per Gbit/s of line rate.
    k_packets_per_gbps: "packets",  1,   100_000,     [50, 50];
    /// K in bytes; 0 = from k_bdp and k_packets_per_gbps.
    k_bytes: "bytes",               0,   1 << 30,     [0, 0];
    /// K relative to the BDP inside the datacenter, where k_bytes is 0: no less than 50 packets, and no
    /// more than k_packets_per_gbps says; 0 = what k_packets_per_gbps says.
    k_bdp: "1/1024",                0,   1 << 20,     [0, 2_048];
    /// Base RTT inside a datacenter, for k_bdp; 0 = the shortest that flows here have had.
    intra_rtt_us: "us",             0,   1_000_000,   [0, 0];
    /// T, the queueing delay from which the WAN counts as congested; 0 = eight times what K delays.
    t_us: "us",                     0,   10_000_000,  [5_000, 0];
    /// Part of the window that WAN congestion takes.
    beta: "1/1024",                 0,   1_024,       [205, 205];
    /// H of the increase h = H x C x RTT packets per RTT, C x RTT in bits.
    h_scale: "1e-9",                0,   1_000_000,   [120, 120];
    /// Gain of alpha, the average of the marked fraction per RTT.
    g: "1/1024",                    1,   1_024,       [64, 64];
    /// The base RTT is the minimum over this long.
    rtt_base_window_ms: "ms",       100, 3_600_000,   [10_000, 10_000];
    /// Pacing rate relative to a window per smoothed RTT.
    pacing_gain: "1/1024",          512, 4_096,       [1_229, 1_229];
}

/// h in packets, 2^-16: at least a tenth, at most five.
const H_MIN_SCALED: u64 = (1 << BYTE_BITS) / 10;
const H_MAX_SCALED: u64 = 5 << BYTE_BITS;
/// The unit of [`Rows::h_scale`].
const H_UNITS: u64 = 1_000_000_000;

/// The least K that `k_bdp` gives: the paper's at 1 Gbit/s.
const K_MIN_PACKETS: u64 = 50;
/// T relative to what a queue of K delays: 5 ms and 0.6 ms in the paper.
const T_OF_K: u64 = 8;

/// What h takes for C at least, where nothing but deliveries say what it is.
const UNTOLD_MBPS: u32 = 1_000;

/// Marks take at most this part of the window, and a loss at least.
const HALF: u32 = FRACTION_ONE / 2;

/// Pacing in slow start, relative to a window per smoothed RTT, in 1/1024.
const SLOW_START_PACING: u32 = 2 << RATIO_BITS;

/// The path of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// C.
    rate_mbps: u32,
    /// C, as h has it.
    growth_mbps: u32,
    base_rtt_us: u32,
    mss_bytes: u32,
}

/// What follows from the parameters.
pub trait Derived: Rows {
    /// K in bytes.
    fn threshold_bytes(&self, path: &Path) -> u64 {
        match self.k_bytes() {
            0 => {
                let mss_bytes = u64::from(path.mss_bytes);
                let packets_scaled =
                    u64::from(self.k_packets_per_gbps()).wrapping_mul(u64::from(path.rate_mbps));
                let most_bytes = mul_div(packets_scaled, mss_bytes, 1_000);
                match self.k_bdp() {
                    0 => most_bytes,
                    k_bdp => {
                        let intra_rtt_us = host::intra_rtt_us(
                            self.intra_rtt_us(),
                            self.shortest_rtt_us(),
                            path.base_rtt_us,
                        );
                        mul_ratio(bdp_bytes(path.rate_mbps, intra_rtt_us), k_bdp)
                            .max(K_MIN_PACKETS.wrapping_mul(mss_bytes))
                            .min(most_bytes)
                    }
                }
            }
            k_bytes => u64::from(k_bytes),
        }
    }

    /// The highest RTT at which the WAN is not congested.
    fn uncongested_rtt_us(&self, path: &Path) -> u64 {
        let t_us = match self.t_us() {
            0 => {
                let bits_scaled = self.threshold_bytes(path).saturating_mul(8 * T_OF_K);
                bits_scaled
                    .checked_div(u64::from(path.rate_mbps))
                    .unwrap_or(u64::MAX)
            }
            t_us => u64::from(t_us),
        };
        u64::from(path.base_rtt_us).saturating_add(t_us)
    }

    /// F / 4, as a fraction.
    fn quarter_of_f(&self, path: &Path, srtt_us: u32) -> u32 {
        let k_bytes = self.threshold_bytes(path).max(1);
        let in_flight_bytes = bdp_bytes(path.rate_mbps, srtt_us).max(k_bytes);
        fraction(k_bytes, in_flight_bytes)
    }

    /// alpha x F, as a fraction, at most a half.
    fn dcn_cut(&self, path: &Path, alpha: u32, srtt_us: u32) -> u32 {
        let quarter_of_f = self.quarter_of_f(path, srtt_us);
        let cut = mul_fraction(u64::from(alpha).wrapping_mul(4), quarter_of_f);
        cut.min(u64::from(HALF)) as u32
    }

    /// h in 2^-16 bytes.
    fn increase_scaled(&self, path: &Path, srtt_us: u32) -> u64 {
        // 1 Mbit/s is one bit per microsecond: 2^20 x 2^32 at most.
        let bits = u64::from(path.growth_mbps).wrapping_mul(u64::from(srtt_us));
        let h_scale = u64::from(self.h_scale()) << BYTE_BITS;
        mul_div(bits, h_scale, H_UNITS)
            .clamp(H_MIN_SCALED, H_MAX_SCALED)
            .saturating_mul(u64::from(path.mss_bytes))
    }

    /// beta, as a fraction.
    fn wan_cut(&self) -> u32 {
        fraction(u64::from(self.beta()), 1 << RATIO_BITS)
    }
}

impl<V: Rows> Derived for V {}

/// State of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    window: Window,

    // The RTT that is being observed.
    /// An ACK for a packet sent at or after this ends it; 0 = before the first ACK.
    round_ends_us: u64,
    /// Half of both where one does not fit: the part that was marked is what counts.
    round_acked_bytes: u32,
    round_marked_bytes: u32,
    /// Smallest RTT seen in it; 0 = none.
    round_min_rtt_us: u32,

    // What the RTTs before it showed.
    /// alpha, the average of the marked fraction.
    alpha: u32,
    base_rtt: BaseRtt,
    /// C, where it is not set by hand.
    line_rate: LineRate,
    /// The smallest RTT of the last round exceeded the base RTT by more than T.
    wan_congested: Flag,
    /// RTTs that have ended, for people; wraps.
    rounds: u8,

    // The reduction.
    /// No other reduction until a packet sent at or after `cut_at_us` is acknowledged.
    was_cut: Flag,
    cut_at_us: u64,
}

/// What a [`Watch`] observes: a round, of one RTT, ended.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Window at its end, before the packet that ended it moves it.
    pub cwnd_bytes: u64,
    /// Bytes acknowledged in it.
    pub acked_bytes: u64,
    /// Of those, bytes marked.
    pub marked_bytes: u64,
    /// h of the increase, bytes per RTT.
    pub increase_bytes: u64,
    /// Smallest RTT in it.
    pub min_rtt_us: u32,
    /// Base RTT of the flow.
    pub base_rtt_us: u32,
    /// alpha, as a fraction.
    pub alpha: u32,
    /// alpha x F, what marks would take, as a fraction.
    pub dcn_cut: u32,
    /// The WAN is congested: its smallest RTT exceeded the base by more than T.
    pub wan_congested: bool,
    /// The window was reduced in it.
    pub reduced: bool,
}

impl Controller for Flow {
    type Event = Round;

    fn new(params: &impl Values, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self {
        let mut flow = Flow {
            alpha: FRACTION_ONE,
            ..Flow::default()
        };
        flow.window.start(cwnd_bytes, true);
        if let Some(rtt_us) = rtt_us {
            flow.base_rtt
                .update(now_us, rtt_us, params.rtt_base_window_ms());
        }
        flow.line_rate
            .ask_host(params, now_us, &flow.base_rtt, Sample::Least);
        flow
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    #[inline(always)]
    fn adjust(&mut self, params: &impl Values, ack: &Ack, watch: &mut impl Watch<Round>) {
        self.update_transport_state(params, ack, watch);

        let congested = ack.marked_bytes > 0 || self.wan_congested.is_set();
        if congested && !self.was_cut.is_set() {
            self.window.decrease(self.congestion_cut(params, ack));
            self.reduced_at(ack.now_us);
        } else if !self.wan_congested.is_set() && ack.cwnd_limited {
            self.grow(params, ack);
        }
        self.window.clamp(ack.mss_bytes, u64::MAX);
    }

    #[inline(always)]
    fn output(&self, params: &impl Values, srtt_us: u32) -> Output {
        let gain = if self.window.in_slow_start() {
            SLOW_START_PACING
        } else {
            params.pacing_gain()
        };
        Output {
            cwnd_bytes: self.window.bytes(),
            ssthresh_bytes: self.window.ssthresh_bytes(),
            pacing_bytes_per_s: bytes_per_s(mul_ratio(self.window.bytes(), gain), srtt_us),
        }
    }

    /// The rule's own reduction, and at least a half.
    fn loss_window_scaled(&self, params: &impl Values, mss_bytes: u32) -> u64 {
        let cut = self.wan_cut(params).max(HALF);
        let left_scaled = mul_fraction(self.window.scaled(), FRACTION_ONE.saturating_sub(cut));
        self.window.bounded(left_scaled, mss_bytes)
    }

    fn was_reduced(&self) -> bool {
        self.was_cut.is_set()
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.was_cut = Flag::SET;
        self.cut_at_us = now_us;
    }

    // Inlined, so that only the parts that the caller uses are computed.
    #[inline(always)]
    fn published(&self) -> Published {
        Published {
            marked_fraction: self.alpha,
            acked_bytes: self.round_acked_bytes,
            marked_bytes: self.round_marked_bytes,
            base_rtt_us: self.base_rtt.get().unwrap_or(0),
            periods: self.rounds,
            quick_adapts: 0,
            flags: published::flag(self.was_cut.is_set(), published::REDUCED)
                | published::flag(self.wan_congested.is_set(), published::WAN),
        }
    }
}

impl Flow {
    /// Base RTT, if there is a sample.
    pub fn base_rtt_us(&self) -> Option<u32> {
        self.base_rtt.get()
    }

    /// The path as the flow knows it.
    #[inline(always)]
    fn path(&self, params: &impl Values, mss_bytes: u32, srtt_us: u32) -> Path {
        let line_rate = match params.line_rate_mbps() {
            0 => self.line_rate,
            by_hand_mbps => LineRate::told(by_hand_mbps),
        };
        let rate_mbps = match line_rate.mbps() {
            0 => host::window_mbps(self.window.bytes(), srtt_us),
            mbps => mbps,
        };
        Path {
            rate_mbps,
            growth_mbps: match line_rate.is_told() {
                true => rate_mbps,
                false => rate_mbps.max(UNTOLD_MBPS),
            },
            base_rtt_us: self.base_rtt.get().unwrap_or(u32::MAX),
            mss_bytes,
        }
    }

    #[inline(always)]
    fn count(&mut self, ack: &Ack) {
        let mut acked_bytes = ack
            .acked_bytes
            .saturating_add(self.round_acked_bytes.into());
        let mut marked_bytes = ack
            .marked_bytes
            .saturating_add(self.round_marked_bytes.into());
        while acked_bytes.max(marked_bytes) > u64::from(u32::MAX) {
            acked_bytes >>= 1;
            marked_bytes >>= 1;
        }
        self.round_acked_bytes = acked_bytes as u32;
        self.round_marked_bytes = marked_bytes as u32;
    }

    /// Line 1 of Algorithm 1: RTTs and, at the end of each RTT, alpha and the WAN's state.
    #[inline(always)]
    fn update_transport_state(
        &mut self,
        params: &impl Values,
        ack: &Ack,
        watch: &mut impl Watch<Round>,
    ) {
        self.count(ack);
        let (Some(rtt_us), Some(sent_at_us)) = (ack.rtt_us, ack.sent_at_us()) else {
            return;
        };
        let sample = self
            .base_rtt
            .update(ack.now_us, rtt_us, params.rtt_base_window_ms());
        if sample != Sample::Ordinary {
            self.line_rate
                .ask_host(params, ack.now_us, &self.base_rtt, sample);
        }
        self.round_min_rtt_us = match self.round_min_rtt_us {
            0 => rtt_us.max(1),
            min_us => min_us.min(rtt_us.max(1)),
        };
        if sent_at_us >= self.cut_at_us {
            self.was_cut = Flag::CLEAR;
        }
        if self.round_ends_us == 0 {
            self.round_ends_us = ack.now_us;
        }
        if sent_at_us >= self.round_ends_us {
            self.end_round(params, ack, watch);
            self.round_ends_us = ack.now_us;
        }
    }

    #[inline(always)]
    fn end_round(&mut self, params: &impl Values, ack: &Ack, watch: &mut impl Watch<Round>) {
        if self.round_acked_bytes != 0 {
            let marked = fraction(
                self.round_marked_bytes.into(),
                self.round_acked_bytes.into(),
            );
            self.alpha = ewma(self.alpha, marked, params.g());
        }
        if ack.interval_us != 0 && !ack.app_limited {
            let delivered_bytes = u32::try_from(ack.delivered_bytes).unwrap_or(u32::MAX);
            self.line_rate.delivered(delivered_bytes, ack.interval_us);
        }
        let path = self.path(params, ack.mss_bytes, ack.srtt_us);
        let limit_us = params.uncongested_rtt_us(&path);
        self.wan_congested = Flag::from(u64::from(self.round_min_rtt_us) > limit_us);
        watch.observe(|| Round {
            cwnd_bytes: self.window.bytes(),
            acked_bytes: self.round_acked_bytes.into(),
            marked_bytes: self.round_marked_bytes.into(),
            increase_bytes: params.increase_scaled(&path, ack.srtt_us) >> BYTE_BITS,
            min_rtt_us: self.round_min_rtt_us,
            base_rtt_us: self.base_rtt.get().unwrap_or(0),
            alpha: self.alpha,
            dcn_cut: params.dcn_cut(&path, self.alpha, ack.srtt_us),
            wan_congested: self.wan_congested.is_set(),
            // What ended the round before may have reduced at once.
            reduced: self.cut_at_us != 0 && self.cut_at_us >= self.round_ends_us,
        });

        self.round_acked_bytes = 0;
        self.round_marked_bytes = 0;
        self.round_min_rtt_us = 0;
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Lines 6 to 9 of Algorithm 1: the part of the window to give up.
    #[inline(always)]
    fn congestion_cut(&self, params: &impl Values, ack: &Ack) -> u32 {
        let dcn_cut = if ack.marked_bytes > 0 {
            let path = self.path(params, ack.mss_bytes, ack.srtt_us);
            params.dcn_cut(&path, self.alpha, ack.srtt_us)
        } else {
            0
        };
        dcn_cut.max(self.wan_cut(params))
    }

    fn wan_cut(&self, params: &impl Values) -> u32 {
        if self.wan_congested.is_set() {
            params.wan_cut()
        } else {
            0
        }
    }

    /// Lines 11 and 12 of Algorithm 1, and slow start before the first congestion.
    #[inline(always)]
    fn grow(&mut self, params: &impl Values, ack: &Ack) {
        if self.window.in_slow_start() {
            self.window.slow_start(ack.unmarked_bytes());
        } else {
            let path = self.path(params, ack.mss_bytes, ack.srtt_us);
            let step_scaled = params.increase_scaled(&path, ack.srtt_us);
            self.window.increase(step_scaled, ack.unmarked_bytes());
        }
    }
}

/// Of the path that a socket shows; None: C is not set by hand.
fn shown_path(shown: &Shown<'_>) -> Option<Path> {
    let rate_mbps = (&shown.params?).line_rate_mbps();
    let path = Path {
        rate_mbps,
        growth_mbps: rate_mbps,
        base_rtt_us: shown.base_rtt_us?,
        mss_bytes: shown.mss_bytes?,
    };
    (rate_mbps != 0).then_some(path)
}

/// What `xdc ss` shows of a socket.
pub const STATE: &[State] = &[
    State {
        key: "base_rtt_us",
        label: "base RTT",
        unit: "us",
        help: "minimum over `rtt_base_window_ms`",
        value: |shown| Some(Value::Count(shown.base_rtt_us?.into())),
    },
    State {
        key: "alpha",
        label: "alpha",
        unit: "",
        help: "average marked part of a round trip's bytes, 0 to 1",
        value: |shown| Some(Value::fraction(shown.marked_fraction)),
    },
    State {
        key: "f",
        label: "F",
        unit: "",
        help: "4K / (C x RTT): a mark takes alpha x F of the window, at most a half",
        value: |shown| {
            let quarter = (&shown.params?).quarter_of_f(&shown_path(shown)?, shown.srtt_us?);
            Some(Value::Ratio {
                part: u64::from(quarter).wrapping_mul(4),
                of: FRACTION_ONE.into(),
            })
        },
    },
    State {
        key: "h_packets_per_rtt",
        label: "H",
        unit: "packets/RTT",
        help: "the increase h = H x C x RTT",
        value: |shown| {
            let path = shown_path(shown)?;
            let step_scaled = (&shown.params?).increase_scaled(&path, shown.srtt_us?);
            Some(Value::bytes(step_scaled, path.mss_bytes))
        },
    },
    State {
        key: "rounds",
        label: "rounds",
        unit: "",
        help: "round trips that have ended; wraps at 2^32",
        value: |shown| Some(Value::Count(shown.periods.into())),
    },
    State {
        key: "round_marked",
        label: "",
        unit: "",
        help: "marked part of the present round trip so far",
        value: |shown| shown.period_marked(),
    },
    State {
        key: "reduced",
        label: "reduced",
        unit: "",
        help: "this round trip has had its reduction",
        value: |shown| shown.flag(published::REDUCED),
    },
    State {
        key: "wan_congested",
        label: "WAN congested",
        unit: "",
        help: "the last round trip was longer than the base RTT by more than `t_us`",
        value: |shown| shown.flag(published::WAN),
    },
];

/// GEMINI, for everybody else.
pub const ENTRY: Entry = Entry {
    name: c"gemini",
    number: 2,
    marks: Marks::Physical,
    params: PARAMS,
    profiles: &Profile::NAMES,
    profile: Profile::Linux as usize,
    state: STATE,
    events: &[Event {
        name: "gemini_round",
        help: "at the end of each round, one RTT",
        lines: &[
            Line::window("cwnd_bytes"),
            Line::marked("alpha_ppm"),
            Line::rtt("min_rtt_us"),
        ],
    }],
};

#[cfg(test)]
#[path = "tests/gemini.rs"]
mod tests;
