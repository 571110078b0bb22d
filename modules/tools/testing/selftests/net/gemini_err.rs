// SPDX-License-Identifier: GPL-2.0

//! GEMINI with errors in its RTTs, for Table V of its paper.
//!
//! Each RTT gets an error, uniform from 0 to `net.gemini_err.max_error_us`; the rest is algo/gemini.rs, which
//! has no parameter that hosts do not need. Side effect: algo/gemini.rs derives a packet's departure from its
//! ACK's RTT, so a round of one RTT ends later by the error.

use crate::algo::{
    Ack, Output,
    controller::{Controller, Published, Watch},
    entry::Entry,
    params::{ParamInfo, ParamSource},
    random::Random,
    window::Window,
};
use crate::gemini;

/// Parameters of GEMINI, followed by the largest error.
pub const PARAMS: &[ParamInfo] = &{
    let mut rows = [MAX_ERROR_US; MAX_ERROR_ROW + 1];
    let (of_gemini, _) = rows.split_at_mut(MAX_ERROR_ROW);
    of_gemini.copy_from_slice(gemini::PARAMS);
    rows
};

const MAX_ERROR_US: ParamInfo = ParamInfo {
    name: c"max_error_us",
    unit: "us",
    help: " Largest error of an RTT.",
    min: 0,
    max: 1_000_000,
    defaults: &[0, 0],
};

/// Index of [`MAX_ERROR_US`].
const MAX_ERROR_ROW: usize = gemini::PARAMS.len();

/// One flow. The private area of a socket has no room for a generator beside [`gemini::Flow`].
#[derive(Clone, Copy)]
pub struct Flow(gemini::Flow);

/// Returns the error for the RTT of an ACK at `now_us`.
fn error_us(params: &impl ParamSource, now_us: u64) -> u32 {
    let choices = u64::from(params.value(MAX_ERROR_ROW)).wrapping_add(1);
    let random = Random::new(now_us).next_u32();
    (choices.wrapping_mul(u64::from(random)) >> u32::BITS) as u32
}

impl Controller for Flow {
    type Event = gemini::Round;

    fn new(params: &impl ParamSource, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self {
        let rtt_us = rtt_us.map(|rtt_us| rtt_us.saturating_add(error_us(params, now_us)));
        Flow(gemini::Flow::new(params, now_us, cwnd_bytes, rtt_us))
    }

    fn open(&mut self, params: &impl ParamSource) {
        self.0.open(params);
    }

    fn window(&self) -> Window {
        self.0.window()
    }

    fn set_window(&mut self, window: Window) {
        self.0.set_window(window);
    }

    fn adjust(
        &mut self,
        params: &impl ParamSource,
        ack: &Ack,
        watch: &mut impl Watch<gemini::Round>,
    ) {
        let error_us = error_us(params, ack.now_us);
        let ack = Ack {
            rtt_us: ack.rtt_us.map(|rtt_us| rtt_us.saturating_add(error_us)),
            ..*ack
        };
        self.0.adjust(params, &ack, watch);
    }

    fn output(&self, params: &impl ParamSource, srtt_us: u32) -> Output {
        self.0.output(params, srtt_us)
    }

    fn loss_window_scaled(&self, params: &impl ParamSource, mss_bytes: u32) -> u64 {
        self.0.loss_window_scaled(params, mss_bytes)
    }

    fn was_reduced(&self) -> bool {
        self.0.was_reduced()
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.0.reduced_at(now_us);
    }

    fn published(&self) -> Published {
        self.0.published()
    }
}

/// GEMINI with errors; its sockets' state is GEMINI's.
pub const ENTRY: Entry = Entry {
    name: c"gemini_err",
    params: PARAMS,
    events: &[],
    ..gemini::ENTRY
};
