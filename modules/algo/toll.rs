// SPDX-License-Identifier: GPL-2.0

//! toll: a flow's rate settles where the price that its path asks meets the flow's willingness to
//! pay, which is a part of its line rate. So rates are equal whatever the RTT.
//!
//! With W = rate x base RTT, T = [`HOST_US`], A = `share` of the BDP and m the marked part:
//!
//! ```text
//! W' = gain / (base RTT + T) x [ H(W) (1 - m) - W m ],   H = min(A, W/2 + 3A/16, 5W/2)
//! rate = W (1 - beta p) / base RTT,   cwnd = 5/4 W (1 - beta p) + 3 packets
//! ```
//!
//! p is the average of m, and m is at least the price of delay: by how many base RTTs even the
//! fastest packet of a round trip was late. Both gains are damped where p swings.

use crate::algo::controller::{Controller, Published, Watch, published};
use crate::algo::entry::{Entry, Event, Line, Marks, State, Value};
use crate::algo::fixed::{
    BYTE_BITS, MAX_BYTES, RATIO_BITS, RATIO_ONE, bdp_bytes, bytes_per_s, mul_div, mul_shr,
};
use crate::algo::host::{self, Way};
use crate::algo::params::{Values, params};
use crate::algo::window::Window;
use crate::algo::{Ack, Output};

params! {
    /// Which set of values the parameters start from.
    profiles {
        /// The only one.
        Default = c"default",
    }

    //                              min  max          default

    /// Rate of the host's link, for the BDP; 0 = what the route's device says.
    line_rate_mbps: "Mbit/s",       0,   1_000_000,   [0];
    /// What a round trip moves the window by, of the difference between increase and price.
    gain: "1/1024",                 1,   1_024,       [51];
    /// What a flow pays at most: it adds this part of its BDP to its window, times the gain, where nothing is marked.
    share: "1/1024",                1,   1_024,       [64];
    /// The part of the rate that a price of 1 takes at once.
    beta: "1/1024",                 0,   512,         [256];
    /// First window inside the region, and what slow start adds per round trip: a part of the BDP; 0 = slow start doubles.
    step: "1/1024",                 0,   1_024,       [36];
    /// Both gains are divided by 1 + so many times the swing of the price above a twelfth.
    damping: "times",               0,   64,          [8];
}

/// A host's noise, added to the RTT that the gain is divided by.
const HOST_US: u64 = 32;
/// An RTT may exceed 5/4 of the base RTT by this without being a price.
const DELAY_US: u64 = 50;
/// The average price is of the last quarter of a window, and of at least so many packets.
const AVERAGE_PACKETS: u64 = 8;
/// C of a path whose device does not tell it.
const SILENT_MBPS: u32 = 10_000;
/// The base RTT is forgotten after 10 to 20 s, and all flows of a host look for it together.
const BASE_RTT_US: u64 = 10_000_000;

/// 1 as a price.
const ONE: u64 = 1 << 20;
/// 1 as a price that is kept for a round trip.
const SHORT_ONE: u32 = 1 << 15;
const SHORT_BITS: u32 = 5;

const SLOW_START: u8 = 1;
/// RTTs show a queue, and nothing marks it.
const QUEUED: u8 = 2;
/// This round trip has had its reduction.
const CUT: u8 = 4;
/// The flow sends little for a moment, to see the base RTT.
const PROBING: u8 = 8;

/// State of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// W. Its threshold is not used.
    window: Window,
    /// Average price, 2^-20.
    p: u32,
    last_us: u32,
    /// The round trip ends with a packet sent from here on.
    round_us: u32,
    /// Least RTT of this round trip.
    least_us: u32,
    /// 0 = no sample.
    base_us: u32,
    /// Least RTT of these 10 s.
    next_base_us: u32,
    /// Rate sample.
    delivered_bytes: u32,
    interval_us: u32,
    /// C; 0 = not told.
    mbps: u32,
    mss_bytes: u16,
    /// Price of delay in this round trip, 2^-15.
    q: u16,
    /// p at the end of the last round trip, 2^-15.
    was: u16,
    /// Average change of p per round trip, 2^-15.
    swing: u16,
    /// What the gains are multiplied by, 1/1024.
    damp: u16,
    epoch: u8,
    rounds: u8,
    flags: u8,
}

/// What a [`Watch`] observes: a round trip ended.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// W.
    pub window_bytes: u64,
    /// Window that TCP has.
    pub cwnd_bytes: u64,
    /// Least RTT in it.
    pub least_us: u32,
    /// Base RTT.
    pub base_rtt_us: u32,
    /// Average price, as a fraction of 2^20.
    pub price: u32,
    /// Price of delay, as a fraction of 2^15.
    pub delay: u16,
    /// What the gains are multiplied by, 1/1024.
    pub damp: u16,
    /// In slow start.
    pub slow_start: bool,
}

impl Controller for Flow {
    type Event = Round;

    fn new(params: &impl Values, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self {
        let base_us = rtt_us.map_or(0, |us| us.max(1));
        let mut flow = Flow {
            base_us,
            next_base_us: base_us,
            least_us: u32::MAX,
            last_us: now_us as u32,
            round_us: now_us as u32,
            epoch: epoch(now_us),
            damp: RATIO_ONE as u16,
            flags: SLOW_START,
            ..Flow::default()
        };
        flow.window.start(cwnd_bytes, true);
        flow.ask(params);
        flow
    }

    fn open(&mut self, params: &impl Values) {
        if host::is_in_region(self.base_us) {
            let first = self.part_of_bdp(params, params.step()) << BYTE_BITS;
            self.set_scaled(self.window.scaled().max(first));
        }
    }

    fn resume(&mut self, cwnd_bytes: u64, ssthresh_bytes: u64) {
        self.set_scaled(cwnd_bytes.min(MAX_BYTES) << BYTE_BITS);
        if cwnd_bytes >= ssthresh_bytes {
            self.flags &= !SLOW_START;
        }
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn in_slow_start(&self) -> bool {
        self.flags & SLOW_START != 0
    }

    fn bound(&mut self, _mss_bytes: u32, bytes: u64) {
        self.set_scaled(self.window.scaled().min(bytes.min(MAX_BYTES) << BYTE_BITS));
    }

    #[inline(always)]
    fn adjust(&mut self, params: &impl Values, ack: &Ack, watch: &mut impl Watch<Round>) {
        let now_us = ack.now_us as u32;
        self.mss_bytes = ack.mss_bytes.clamp(1, u16::MAX.into()) as u16;
        if let Some(rtt_us) = ack.rtt_us {
            self.take_rtt(params, ack.now_us, rtt_us.max(1), watch);
        }
        if ack.interval_us != 0 && !ack.app_limited {
            self.delivered_bytes = ack.delivered_bytes.min(u32::MAX.into()) as u32;
            self.interval_us = ack.interval_us;
        }
        let base_us = u64::from(self.base_us);
        let passed_us = u64::from(now_us.wrapping_sub(self.last_us)).min(base_us << 2);
        self.last_us = now_us;
        if ack.acked_bytes != 0 && self.base_us != 0 {
            self.pay(params, ack, base_us, passed_us);
        }
        let probes = self.flags & QUEUED != 0
            && ack.now_us % BASE_RTT_US <= u64::from(ack.srtt_us).wrapping_mul(3);
        self.flags = self.flags & !PROBING | if probes { PROBING } else { 0 };
    }

    #[inline(always)]
    fn output(&self, params: &impl Values, _srtt_us: u32) -> Output {
        let send = self.send_bytes(params);
        Output {
            cwnd_bytes: self.cwnd_of(send),
            ssthresh_bytes: u64::MAX,
            pacing_bytes_per_s: bytes_per_s(send, self.base_us),
        }
    }

    /// Fifteen sixteenths of what was delivered, but no less than half.
    fn loss_window_scaled(&self, params: &impl Values, _mss_bytes: u32) -> u64 {
        let delivered = u64::from(self.delivered_bytes).wrapping_mul(self.base_us.into());
        let delivered = delivered
            .checked_div(self.interval_us.into())
            .unwrap_or(0)
            .min(MAX_BYTES);
        let delivered = delivered.saturating_add(self.held_back(params, delivered));
        let left = (delivered << (BYTE_BITS - 4)).saturating_mul(15);
        self.window.scaled().min(left.max(self.window.scaled() >> 1))
    }

    fn was_reduced(&self) -> bool {
        self.flags & CUT != 0
    }

    fn on_loss(&mut self, params: &impl Values, now_us: u64, mss_bytes: u32) {
        if self.window.is_started() && !self.was_reduced() {
            self.set_scaled(self.loss_window_scaled(params, mss_bytes));
            self.reduced_at(now_us);
        }
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.round_us = now_us as u32;
        self.flags = self.flags & !SLOW_START | CUT;
    }

    fn restart(&mut self, _in_flight_bytes: u64, mss_bytes: u32) {
        if self.window.is_started() {
            let bound = u64::from(mss_bytes.max(1)) << (BYTE_BITS + 2);
            self.set_scaled(self.window.scaled().min(bound));
            self.flags |= SLOW_START;
        }
    }

    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        if self.window.is_started() {
            // The window that TCP had is W's with its slack.
            let slack = u64::from(self.mss_bytes).wrapping_mul(3);
            let prior = (prior_bytes.saturating_sub(slack).min(MAX_BYTES) / 5) << (BYTE_BITS + 2);
            self.set_scaled(self.window.scaled().max(prior));
            if ssthresh_bytes == u64::MAX {
                self.flags |= SLOW_START;
            }
        }
    }

    #[inline(always)]
    fn published(&self) -> Published {
        Published {
            marked_fraction: self.p << 10,
            base_rtt_us: self.base_us,
            periods: self.rounds,
            flags: published::flag(self.was_reduced(), published::REDUCED),
            ..Published::default()
        }
    }
}

impl Flow {
    #[inline(always)]
    fn set_scaled(&mut self, scaled: u64) {
        self.window.set_scaled(scaled);
    }

    /// What the device says.
    fn ask(&mut self, params: &impl Values) {
        match (params.line_rate_mbps(), params.way()) {
            (0, Way::Told(mbps)) => self.mbps = mbps,
            (0, Way::Unknown) => {}
            (0, Way::Silent | Way::Loopback) => self.mbps = 0,
            (by_hand, _) => self.mbps = by_hand,
        }
    }

    #[inline(always)]
    fn bdp_bytes(&self) -> u64 {
        let mbps = match self.mbps {
            0 => SILENT_MBPS,
            mbps => mbps,
        };
        bdp_bytes(mbps, self.base_us)
    }

    #[inline(always)]
    fn part_of_bdp(&self, _params: &impl Values, part: u32) -> u64 {
        // 2^40 x 2^10 at most.
        self.bdp_bytes().wrapping_mul(part.into()) >> RATIO_BITS
    }

    /// H: A, but no more than W/2 + 3A/16 and 5W/2.
    #[inline(always)]
    fn increase_bytes(&self, params: &impl Values) -> u64 {
        let a = self.part_of_bdp(params, params.share());
        let w = self.window.bytes();
        let least = (w >> 1).saturating_add(a.wrapping_mul(3) >> 4);
        a.min(least).min(w.wrapping_mul(5) >> 1)
    }

    /// The proportional part, of so many bytes.
    #[inline(always)]
    fn held_back(&self, params: &impl Values, bytes: u64) -> u64 {
        let damped = u64::from(self.p).wrapping_mul(self.damp.into()) >> RATIO_BITS;
        let part = damped.wrapping_mul(params.beta().into()) >> RATIO_BITS;
        bytes.min(MAX_BYTES).wrapping_mul(part) >> 20
    }

    #[inline(always)]
    fn send_bytes(&self, params: &impl Values) -> u64 {
        let w = self.window.bytes();
        w.saturating_sub(self.held_back(params, w)).max(1)
    }

    #[inline(always)]
    fn cwnd_of(&self, send: u64) -> u64 {
        let mss = u64::from(self.mss_bytes);
        match self.flags & PROBING {
            0 => send
                .saturating_add(send >> 2)
                .saturating_add(mss.wrapping_mul(3)),
            _ => mss << 2,
        }
    }

    /// The window follows an ACK that delivers something.
    #[inline(always)]
    fn pay(&mut self, params: &impl Values, ack: &Ack, base_us: u64, passed_us: u64) {
        let mss = u64::from(self.mss_bytes);
        let acked = ack.acked_bytes.min(MAX_BYTES);
        let marked = ack.marked_bytes.min(acked);
        let of = (self.window.bytes() >> 2)
            .max(mss.wrapping_mul(AVERAGE_PACKETS))
            .max(acked);
        let paid = marked << 20;
        let due = u64::from(self.p).wrapping_mul(acked);
        let moved = (paid as i64).wrapping_sub(due as i64);
        let moved = moved.checked_div(of as i64).unwrap_or(0);
        self.p = i64::from(self.p).wrapping_add(moved).clamp(0, ONE as i64) as u32;

        let step = self.increase_bytes(params);
        let mut scaled = self.window.scaled();
        if self.flags & SLOW_START != 0 {
            scaled = self.slow_start(params, ack.cwnd_limited, acked, marked, step);
        } else {
            let marked = marked.max(acked.wrapping_mul(self.q.into()) >> 15);
            let mut up = match ack.cwnd_limited {
                true => step.wrapping_mul(passed_us),
                false => 0,
            };
            if marked != 0 {
                up = mul_div(up, acked.saturating_sub(marked), acked);
            }
            // 2^-16
            let gain = u64::from(params.gain()).wrapping_mul(self.damp.into()) >> 4;
            let per = base_us.wrapping_add(HOST_US);
            scaled = scaled.saturating_add(mul_div(up, gain, per));
            if marked != 0 {
                let down = mul_div(base_us.wrapping_mul(marked), gain, per);
                scaled = scaled.saturating_sub(down);
            }
        }
        let most = self.bdp_bytes().max(mss << 2) << (BYTE_BITS + 3);
        self.window.set_scaled(scaled.clamp(mss << (BYTE_BITS - 2), most));
    }

    /// Adds a step or an eighth of W per round trip, until W is twice what the price says is a share.
    #[inline(never)]
    fn slow_start(
        &mut self,
        params: &impl Values,
        is_used: bool,
        acked: u64,
        marked: u64,
        step: u64,
    ) -> u64 {
        let w = self.window.bytes().max(1);
        let bdp = self.bdp_bytes();
        let mut scaled = self.window.scaled();
        let doubles = params.step() == 0;
        if is_used {
            let add = match doubles {
                true => w,
                false => self.part_of_bdp(params, params.step()).max(w >> 3).min(w),
            };
            let unmarked = acked.saturating_sub(marked);
            scaled = scaled.saturating_add(mul_div(unmarked << BYTE_BITS, add, w));
        }
        let w = scaled >> BYTE_BITS;
        let ceiling = bdp.saturating_add(bdp >> 2);
        let p = u64::from(self.p);
        let share = step << u32::from(!doubles);
        let is_price = marked > 0 && mul_shr(w, p, 0) > mul_shr(share, ONE.saturating_sub(p), 0);
        if w >= ceiling || is_price {
            self.flags &= !SLOW_START;
            let most = ceiling.max(u64::from(self.mss_bytes).wrapping_mul(10));
            scaled = scaled.min(most << BYTE_BITS);
        }
        scaled
    }

    #[inline(always)]
    fn take_rtt(
        &mut self,
        params: &impl Values,
        now_us: u64,
        rtt_us: u32,
        watch: &mut impl Watch<Round>,
    ) {
        let epoch = epoch(now_us);
        if self.base_us == 0 {
            self.base_us = rtt_us;
            self.next_base_us = rtt_us;
        }
        if epoch != self.epoch {
            self.epoch = epoch;
            self.base_us = self.next_base_us.min(rtt_us);
            self.next_base_us = rtt_us;
        }
        self.next_base_us = self.next_base_us.min(rtt_us);
        self.base_us = self.base_us.min(rtt_us);
        self.least_us = self.least_us.min(rtt_us);
        let now_us = now_us as u32;
        if now_us.wrapping_sub(rtt_us).wrapping_sub(self.round_us) as i32 >= 0 {
            self.round_us = now_us;
            let least_us = self.least_us;
            self.end_round(params);
            watch.observe(|| Round {
                window_bytes: self.window.bytes(),
                cwnd_bytes: self.cwnd_of(self.send_bytes(params)),
                least_us,
                base_rtt_us: self.base_us,
                price: self.p,
                delay: self.q,
                damp: self.damp,
                slow_start: self.in_slow_start(),
            });
        }
    }

    /// What even the fastest packet waited is a queue; and how far the price swings.
    #[inline(never)]
    fn end_round(&mut self, params: &impl Values) {
        self.ask(params);
        let (base, least) = (u64::from(self.base_us.max(1)), u64::from(self.least_us));
        let fair = base.saturating_add(base >> 2).saturating_add(DELAY_US);
        let late = (least.saturating_sub(fair) << 15)
            .checked_div(base)
            .unwrap_or(0);
        let has_four = self.window.bytes() >= u64::from(self.mss_bytes) << 2;
        self.q = if has_four { late.min(SHORT_ONE.into()) as u16 } else { 0 };
        if least > base.saturating_add(base >> 3) && self.p < 1024 {
            self.flags |= QUEUED;
        }
        if least < base.saturating_add(base >> 4) {
            self.flags &= !QUEUED;
        }
        self.flags &= !CUT;
        self.least_us = u32::MAX;
        self.rounds = self.rounds.wrapping_add(1);

        let p = (self.p >> SHORT_BITS).min(SHORT_ONE);
        let change = p.abs_diff(self.was.into()) as i32;
        let step = change.wrapping_sub(self.swing.into()) / 8;
        self.was = p as u16;
        self.swing = i32::from(self.swing).wrapping_add(step) as u16;
        let over = u32::from(self.swing).saturating_sub(SHORT_ONE / 12);
        let by = SHORT_ONE.saturating_add(over.wrapping_mul(params.damping()));
        self.damp = (SHORT_ONE << RATIO_BITS).checked_div(by).unwrap_or(0) as u16;
    }
}

/// Of 10 s, the same for all flows of a host.
#[inline(always)]
fn epoch(now_us: u64) -> u8 {
    (now_us / BASE_RTT_US) as u8
}

/// toll, for everybody else.
pub const ENTRY: Entry = Entry {
    name: c"toll",
    number: 3,
    marks: Marks::Phantom,
    params: PARAMS,
    profiles: &Profile::NAMES,
    profile: Profile::Default as usize,
    state: STATE,
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

const STATE: &[State] = &[
    State {
        key: "base_rtt_us",
        label: "base RTT",
        unit: "us",
        help: "minimum over the last 10 to 20 s",
        value: |shown| Some(Value::Count(shown.base_rtt_us?.into())),
    },
    State {
        key: "price",
        label: "price",
        unit: "",
        help: "average marked part of the delivered bytes, 0 to 1",
        value: |shown| Some(Value::fraction(shown.marked_fraction)),
    },
    State {
        key: "rounds",
        label: "rounds",
        unit: "",
        help: "round trips that have ended; wraps at 2^32",
        value: |shown| Some(Value::Count(shown.periods.into())),
    },
    State {
        key: "reduced",
        label: "reduced",
        unit: "",
        help: "this round trip has had its reduction",
        value: |shown| shown.flag(published::REDUCED),
    },
];

#[cfg(test)]
#[path = "tests/toll.rs"]
mod tests;
