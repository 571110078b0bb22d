// SPDX-License-Identifier: GPL-2.0

//! toll: the path marks packets, which is a price. A flow's rate settles where the price meets its
//! willingness to pay, a part of its line rate, so rates are equal at any RTT.
//!
//! With W = rate x base RTT, A = `share` of the BDP, T = [`HOST_US`] and m the marked part:
//!
//! ```text
//! W' = gain / (base RTT + T) x [ H(W) (1 - m) - W m ],   H = min(A, W/2 + 3A/16, 5W/2)
//! rate = W (1 - beta p) / base RTT,   cwnd = 5/4 W (1 - beta p) + 3 packets
//! ```
//!
//! The price p is the average of m. The price of delay, a lower bound of m, is the delay of the
//! round trip's fastest packet in base RTTs. gain and beta are divided by 1 + 8 (swing - 1/12):
//! swing, the average change of p per round trip, is large in a loop near its stability limit.

use crate::algo::controller::{Controller, Published, Watch, published};
use crate::algo::entry::{Entry, Event, Line, Marks, State, Value};
use crate::algo::fixed::{
    BYTE_BITS, MAX_BYTES, RATIO_BITS, bdp_bytes, bytes_per_s, mul_div, mul_ratio, mul_shr,
};
use crate::algo::host::{self, EgressDev};
use crate::algo::params::{ParamSource, params};
use crate::algo::window::Window;
use crate::algo::{Ack, Output};

params! {
    /// Sets of defaults.
    profiles {
        /// The only set.
        Default = c"default",
    }

    //                              min  max          default

    /// Rate of the host's link; 0 = speed of the route's device.
    line_rate_mbps: "Mbit/s",       0,   1_000_000,   [0];
    /// Part of (increase - price) that moves the window per round trip.
    gain: "1/1024",                 1,   1_024,       [51];
    /// Increase of an unmarked window per round trip, before gain, as a part of the BDP.
    share: "1/1024",                1,   1_024,       [64];
    /// Part of the rate that a price of 1 removes at once.
    beta: "1/1024",                 0,   512,         [256];
    /// First window (base RTT up to 5 ms) and slow-start increase per round trip, as a part of the BDP.
    step: "1/1024",                 1,   1_024,       [36];
}

/// Jitter of a host: an addend to the RTT that divides the gain.
const HOST_US: u64 = 32;
/// An RTT above 5/4 of the base RTT plus this much has a price of delay.
const DELAY_US: u64 = 50;
/// Packets over which the price is averaged, if a quarter of the window is less.
const AVERAGE_PACKETS: u64 = 8;
/// C if the device reports no speed.
const ASSUMED_MBPS: u32 = 10_000;
/// Length of an epoch: a base RTT is the minimum of one to two. Epochs of all flows begin together.
const BASE_RTT_US: u64 = 10_000_000;
/// The price 1 at the scale of `Flow::price`.
const ONE: u64 = 1 << 20;
/// The price 1 at the scale of `Flow::last_price`.
const SHORT_ONE: u32 = 1 << 15;
/// Scale of `Flow::speed`.
const SPEED_BITS: u32 = 36;
/// Scale of `Flow::lead`.
const LEAD_BITS: u32 = 16;
/// Scale of `Flow::rate`.
const RATE_BITS: u32 = 12;

/// Bit of `Flow::flags`: slow start. The bits above `EPOCH_SHIFT` are the epoch's number.
pub const SLOW_START: u8 = 1;
/// Bit: RTTs show a queue that nothing marks.
const QUEUED: u8 = 2;
/// Bit: the window was reduced in this round trip.
const REDUCED: u8 = 4;
/// Bit: sends almost nothing, so that all flows of the host measure the base RTT.
const PROBING: u8 = 8;
const EPOCH_SHIFT: u32 = 4;

/// State of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// W, 2^-16 bytes; 0 = not started.
    pub scaled: u64,
    /// Average price, 2^-20.
    pub price: u32,
    last_us: u32,
    /// The round trip ends with the ACK of a packet sent at this time or later.
    round_us: u32,
    /// Shortest RTT of this round trip.
    pub least_us: u32,
    /// Base RTT; 0 = no sample.
    pub base_us: u32,
    /// Shortest RTT of this epoch.
    next_base_us: u32,
    /// H(W) at the end of the last round trip.
    add_bytes: u32,
    /// Damped gain / (base RTT + T), 2^-36 per us.
    speed: u32,
    /// Delivery rate, 2^-12 bytes per us.
    rate: u32,
    /// Damped beta, 2^-16.
    lead: u16,
    mss_bytes: u16,
    /// Price of delay in this round trip, 2^-15.
    pub delay: u16,
    /// Price at the end of the last round trip, 2^-15.
    last_price: u16,
    /// Average change of the price per round trip, 2^-15.
    pub swing: u16,
    rounds: u8,
    flags: u8,
}

const _: () = assert!(size_of::<Flow>() <= 56);

/// Returns the parameters with C; C = 0 while the route changes.
#[inline(always)]
fn terms(params: &impl ParamSource) -> Params {
    let mut terms = Params::read(|row| params.value(row));
    terms.line_rate_mbps = match (terms.line_rate_mbps, params.egress_dev()) {
        (0, EgressDev::KnownSpeed(mbps)) if mbps != 0 => mbps,
        (0, EgressDev::NoRoute) => 0,
        (0, _) => ASSUMED_MBPS,
        (by_hand, _) => by_hand,
    };
    terms
}

impl Controller for Flow {
    /// The flow at the end of a round trip.
    type Event = Flow;

    const EACH_ACK_READS_PARAMS: bool = false;

    fn new(params: &impl ParamSource, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self {
        let base_us = rtt_us.map_or(0, |us| us.max(1));
        let mut flow = Flow {
            scaled: cwnd_bytes.clamp(1, MAX_BYTES) << BYTE_BITS,
            base_us,
            next_base_us: base_us,
            least_us: u32::MAX,
            last_us: now_us as u32,
            round_us: now_us as u32,
            flags: SLOW_START | epoch(now_us),
            ..Flow::default()
        };
        flow.derive(terms(params));
        flow
    }

    fn open(&mut self, params: &impl ParamSource) {
        if host::is_in_region(self.base_us) {
            let terms = terms(params);
            let first = mul_ratio(bdp_bytes(terms.line_rate_mbps, self.base_us), terms.step);
            self.scaled = self.scaled.max(first << BYTE_BITS);
        }
    }

    #[inline(always)]
    fn window(&self) -> Window {
        Window::of_scaled(self.scaled, self.has(SLOW_START))
    }

    fn set_window(&mut self, window: Window) {
        self.scaled = window.scaled();
        self.set(SLOW_START, window.in_slow_start());
    }

    #[inline(always)]
    fn adjust(&mut self, params: &impl ParamSource, ack: &Ack, watch: &mut impl Watch<Flow>) {
        // The least W is a quarter of this, so the MSS must be at least four bytes.
        self.mss_bytes = ack.mss_bytes.clamp(4, u16::MAX.into()) as u16;
        let now_us = ack.now_us as u32;
        if let Some(rtt_us) = ack.rtt_us {
            self.least_us = self.least_us.min(rtt_us);
            if now_us.wrapping_sub(rtt_us).wrapping_sub(self.round_us) as i32 >= 0 {
                self.end_round(terms(params), ack.now_us);
                if ack.interval_us != 0 && !ack.app_limited {
                    self.rate = rate(ack.delivered_bytes, ack.interval_us);
                }
                watch.observe(|| *self);
                self.round_us = now_us;
                self.least_us = u32::MAX;
            }
        }
        let passed_us = now_us.wrapping_sub(self.last_us);
        self.last_us = now_us;
        if ack.acked_bytes != 0 && self.base_us != 0 {
            self.pay(params, ack, passed_us);
        }
        if self.has(QUEUED | PROBING) {
            let since_us = ack.now_us.checked_rem(BASE_RTT_US).unwrap_or(0);
            let probes = since_us <= u64::from(ack.srtt_us).wrapping_mul(3);
            self.set(PROBING, self.has(QUEUED) && probes);
        }
    }

    #[inline(always)]
    fn output(&self, _params: &impl ParamSource, _srtt_us: u32) -> Output {
        let (w, mss) = (self.scaled >> BYTE_BITS, u64::from(self.mss_bytes));
        let send = w.saturating_sub(self.held_back(w)).max(1);
        let full = send.wrapping_add(send >> 2);
        Output {
            cwnd_bytes: match self.has(PROBING) {
                true => mss << 2,
                false => full.wrapping_add(mss.wrapping_mul(3)),
            },
            ssthresh_bytes: match self.has(SLOW_START) {
                true => u64::MAX,
                false => mss << 1,
            },
            pacing_bytes_per_s: bytes_per_s(send, self.base_us),
        }
    }

    /// Leaves 15/16 of the delivered bytes, but at least half of the window.
    fn loss_window_scaled(&self, _params: &impl ParamSource, _mss_bytes: u32) -> u64 {
        let rate = u64::from(self.rate).wrapping_mul(self.base_us.into()) >> RATE_BITS;
        let delivered = rate.wrapping_add(self.held_back(rate)) << (BYTE_BITS - 4);
        let left = delivered.saturating_mul(15).max(self.scaled >> 1);
        self.scaled.min(left)
    }

    fn was_reduced(&self) -> bool {
        self.has(REDUCED)
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.round_us = now_us as u32;
        self.set(REDUCED, true);
    }

    /// Restarts the round: 2^31 us later, no packet would compare as sent after `round_us`.
    fn on_idle_restart(&mut self, now_us: u64) {
        self.round_us = now_us as u32;
        self.least_us = u32::MAX;
        self.delay = 0;
    }

    /// Restores W from TCP's window, which is 5/4 W plus three packets.
    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        if self.scaled != 0 {
            let slack = u64::from(self.mss_bytes).wrapping_mul(3);
            let prior = prior_bytes.saturating_sub(slack).min(MAX_BYTES) / 5;
            self.scaled = self.scaled.max(prior << (BYTE_BITS + 2));
            self.set(SLOW_START, ssthresh_bytes == u64::MAX);
        }
    }

    #[inline(always)]
    fn published(&self) -> Published {
        Published {
            marked_fraction: self.price << 10,
            base_rtt_us: self.base_us,
            periods: self.rounds,
            flags: published::flag(self.has(REDUCED), published::REDUCED),
            ..Published::default()
        }
    }
}

impl Flow {
    /// Returns whether any of these bits is set.
    #[inline(always)]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    #[inline(always)]
    fn set(&mut self, flag: u8, is_set: bool) {
        self.flags = self.flags & !flag | if is_set { flag } else { 0 };
    }

    /// Returns the proportional part of `bytes`, at most half.
    #[inline(always)]
    fn held_back(&self, bytes: u64) -> u64 {
        let part = u64::from(self.price).wrapping_mul(self.lead.into()) >> LEAD_BITS;
        bytes.min(MAX_BYTES).wrapping_mul(part) >> 20
    }

    /// Moves the price and W by an ACK that delivers data.
    #[inline(always)]
    fn pay(&mut self, params: &impl ParamSource, ack: &Ack, passed_us: u32) {
        let (w, mss) = (self.scaled >> BYTE_BITS, u64::from(self.mss_bytes));
        let acked = ack.acked_bytes.min(MAX_BYTES);
        let marked = ack.marked_bytes.min(acked);
        let of = (w >> 2).max(mss.wrapping_mul(AVERAGE_PACKETS)).max(acked);
        let due = u64::from(self.price).wrapping_mul(acked);
        let moved = ((marked << 20) as i64).wrapping_sub(due as i64);
        let moved = moved.checked_div(of as i64).unwrap_or(0);
        // Stays between 0 and ONE, because `of` is at least the acknowledged bytes.
        self.price = self.price.wrapping_add(moved as u32);

        if self.has(SLOW_START) {
            let is_used = ack.cwnd_limited;
            return self.slow_start(terms(params), is_used, acked, marked);
        }
        let base_us = u64::from(self.base_us);
        let marked = marked.max(acked.wrapping_mul(self.delay.into()) >> 15);
        let mut up = 0;
        if ack.cwnd_limited {
            up = u64::from(self.add_bytes).wrapping_mul(u64::from(passed_us).min(base_us << 2));
            if marked != 0 {
                up = mul_div(up, acked.saturating_sub(marked), acked);
            }
        }
        let down = base_us.saturating_mul(marked);
        let by = mul_shr(up.abs_diff(down), self.speed.into(), SPEED_BITS - BYTE_BITS);
        self.scaled = match up >= down {
            true => self.scaled.saturating_add(by),
            false => self.scaled.saturating_sub(by),
        };
        let least = mss << (BYTE_BITS - 2);
        self.scaled = self.scaled.clamp(least, MAX_BYTES << BYTE_BITS);
    }

    /// Adds the step or W/8 per round trip, until W is twice its equilibrium.
    #[inline(never)]
    fn slow_start(&mut self, terms: Params, is_used: bool, acked: u64, marked: u64) {
        let bdp = bdp_bytes(terms.line_rate_mbps, self.base_us);
        if is_used {
            let w = (self.scaled >> BYTE_BITS).max(1);
            let step = mul_ratio(bdp, terms.step);
            let unmarked = acked.saturating_sub(marked) << BYTE_BITS;
            let grown = mul_div(unmarked, step.max(w >> 3).min(w), w);
            self.scaled = self
                .scaled
                .saturating_add(grown)
                .min(MAX_BYTES << BYTE_BITS);
        }
        let (w, price) = (self.scaled >> BYTE_BITS, u64::from(self.price));
        let ceiling = bdp.wrapping_add(bdp >> 2);
        self.add_bytes = increase(w, mul_ratio(bdp, terms.share));
        let share = mul_div(self.add_bytes.into(), ONE.saturating_sub(price) << 1, price);
        let is_known = terms.line_rate_mbps != 0;
        if is_known && (w >= ceiling || (marked > 0 && w > share)) {
            self.set(SLOW_START, false);
            let most = ceiling.max(u64::from(self.mss_bytes).wrapping_mul(10));
            self.scaled = self.scaled.min(most << BYTE_BITS);
        }
    }

    /// Measures base RTT, swing and price of delay: if even the fastest packet waits, a queue
    /// stands.
    #[inline(never)]
    fn end_round(&mut self, terms: Params, now_us: u64) {
        let epoch = epoch(now_us);
        let least_us = self.least_us.max(1);
        if (self.flags ^ epoch) >> EPOCH_SHIFT != 0 {
            self.flags = self.flags & ((1 << EPOCH_SHIFT) - 1) | epoch;
            self.base_us = self.next_base_us;
            self.next_base_us = least_us;
        }
        let shorter = |us: u32| if us == 0 { least_us } else { us.min(least_us) };
        self.next_base_us = shorter(self.next_base_us);
        self.base_us = shorter(self.base_us);

        let (base, least) = (u64::from(self.base_us), u64::from(least_us));
        let fair = base.wrapping_add(base >> 2).wrapping_add(DELAY_US);
        let late = least.saturating_sub(fair) << 15;
        let late = late.checked_div(base).unwrap_or(0).min(SHORT_ONE.into());
        let is_small = self.scaled >> BYTE_BITS < u64::from(self.mss_bytes) << 2;
        self.delay = if is_small { 0 } else { late as u16 };
        if least > base.wrapping_add(base >> 3) && u64::from(self.price) < ONE >> 10 {
            self.set(QUEUED, true);
        }
        if least < base.wrapping_add(base >> 4) {
            self.set(QUEUED, false);
        }
        self.set(REDUCED, false);
        self.rounds = self.rounds.wrapping_add(1);
        let price = (self.price >> 5) as u16;
        let change = i32::from(price.abs_diff(self.last_price)).wrapping_sub(self.swing.into());
        self.swing = i32::from(self.swing).wrapping_add(change / 8) as u16;
        self.last_price = price;
        self.derive(terms);
        if terms.line_rate_mbps != 0 {
            let bdp = bdp_bytes(terms.line_rate_mbps, self.base_us);
            let most = bdp.max(u64::from(self.mss_bytes) << 2).min(MAX_BYTES >> 3);
            self.scaled = self.scaled.min(most << (BYTE_BITS + 3));
        }
    }

    /// Computes the per-ACK terms from the parameters, the base RTT, the swing and W.
    fn derive(&mut self, terms: Params) {
        if terms.line_rate_mbps != 0 {
            let bdp = bdp_bytes(terms.line_rate_mbps, self.base_us);
            self.add_bytes = increase(self.scaled >> BYTE_BITS, mul_ratio(bdp, terms.share));
        }
        let over = u32::from(self.swing).saturating_sub(SHORT_ONE / 12);
        let damp = u64::from(SHORT_ONE.wrapping_add(over << 3));
        let damped = |ratio: u32, bits: u32| {
            let part = u64::from(ratio).wrapping_shl(bits);
            part.checked_div(damp).unwrap_or(0)
        };
        self.lead = damped(terms.beta, LEAD_BITS + 15 - RATIO_BITS) as u16;
        let per = u64::from(self.base_us).wrapping_add(HOST_US);
        let speed = damped(terms.gain, SPEED_BITS + 15 - RATIO_BITS).checked_div(per);
        self.speed = speed.unwrap_or(0) as u32;
    }
}

/// Returns H(W) for the increase A.
fn increase(w: u64, a: u64) -> u32 {
    let least = (w >> 1).wrapping_add(a.wrapping_mul(3) >> 4);
    let most = a.min(w.wrapping_mul(5) >> 1).min(u32::MAX.into());
    least.min(most) as u32
}

/// Returns a delivery rate at the scale of `Flow::rate`.
fn rate(bytes: u64, interval_us: u32) -> u32 {
    let scaled = bytes.min(MAX_BYTES) << RATE_BITS;
    let rate = scaled.checked_div(interval_us.into()).unwrap_or(0);
    rate.min(u32::MAX.into()) as u32
}

/// Returns the epoch's number as bits of `Flow::flags`.
#[inline(always)]
fn epoch(now_us: u64) -> u8 {
    ((now_us / BASE_RTT_US) as u8) << EPOCH_SHIFT
}

/// Entry of the table of algorithms.
pub const ENTRY: Entry = Entry {
    name: c"toll",
    number: 3,
    marks: Marks::Phantom,
    params: PARAMS,
    profiles: &Profile::NAMES,
    state: &[
        State::BASE_RTT,
        State {
            key: "price",
            label: "price",
            unit: "",
            help: "average marked part of the delivered bytes, 0 to 1",
            value: |shown| Some(Value::fraction(shown.marked_fraction)),
        },
        State::ROUNDS,
        State::REDUCED,
    ],
    events: &[Event {
        name: "toll_round",
        help: "at the end of each round trip",
        lines: &[
            Line::window("window_bytes"),
            Line::marked("price_ppm"),
            Line::rtt("least_us"),
        ],
    }],
};

#[cfg(test)]
#[path = "tests/toll.rs"]
mod tests;
