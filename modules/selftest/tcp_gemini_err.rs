// SPDX-License-Identifier: GPL-2.0

//! GEMINI with errors in its RTTs, for Table V of its paper.
//!
//! To each RTT is added an error, uniform from 0 to `net.gemini_err.max_error_us`;
//! all else is tcp_gemini, which stays without a parameter that nobody wants on
//! a host. Besides what tcp_gemini lists:
//!
//! 1. algo/gemini.rs finds out from an ACK's RTT when its packet was sent, so
//!    a round of one RTT ends later by the error, too.

use kernel::prelude::*;

#[path = "../algo/mod.rs"]
mod algo;
#[path = "../kernel/mod.rs"]
mod kernel_api;
#[path = "../tcp_glue.rs"]
mod tcp_glue;

use algo::{
    controller::{Controller, Shown, Watch},
    gemini::{self, Profile, PARAMS},
    params::Values,
    random::Random,
    window::Window,
    Ack, Output,
};
use kernel_api::{
    sysctl,
    tcp::{diag, Registration, Sock},
};
use tcp_glue::{Adapter, Algorithm, Live};

module! {
    type: Module,
    name: "tcp_gemini_err",
    authors: ["xdc developers"],
    description: "GEMINI congestion control with errors in its RTTs, for tests",
    license: "GPL v2",
}

/// net.gemini_err.*: the largest error, and then the rows of [`PARAMS`].
struct Sysctls;

/// Number of files.
const FILES: usize = 1 + PARAMS.len();

impl sysctl::Params for Sysctls {
    const DIR: &'static CStr = c"net/gemini_err";

    const PARAMS: &'static [sysctl::Param] = &{
        const MAX_ERROR: sysctl::Param = sysctl::Param {
            name: c"max_error_us",
            kind: sysctl::Kind::Number {
                default: 0,
                min: 0,
                max: 1_000_000,
            },
        };
        tcp_glue::sysctls::<FILES, _>(&[MAX_ERROR], PARAMS, Profile::Paper as usize)
    };
}

/// The row of `max_error_us`.
const MAX_ERROR_ROW: usize = 0;

/// What GEMINI has of the rows: those behind the error.
struct Rows<'a, V>(&'a V);

impl<V: Values> Values for Rows<'_, V> {
    fn value(&self, row: usize) -> u32 {
        self.0.value(row.wrapping_add(1))
    }
}

/// One flow, whose zeroed state is that of [`gemini::Flow`]. The private area
/// of a socket has no room for a generator beside it.
#[derive(Clone, Copy)]
struct Flow(gemini::Flow);

/// An error for the RTT of an ACK that came at `now_us`.
fn error_us(params: &impl Values, now_us: u64) -> u32 {
    let choices = u64::from(params.value(MAX_ERROR_ROW)).wrapping_add(1);
    let random = Random::new(now_us).next_u32();
    (choices.wrapping_mul(u64::from(random)) >> u32::BITS) as u32
}

impl Controller for Flow {
    type Event = gemini::Round;

    fn new(params: &impl Values, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self {
        let rtt_us = rtt_us.map(|rtt_us| rtt_us.saturating_add(error_us(params, now_us)));
        Flow(gemini::Flow::new(&Rows(params), now_us, cwnd_bytes, rtt_us))
    }

    fn open(&mut self, params: &impl Values) {
        self.0.open(&Rows(params));
    }

    fn window(&self) -> &Window {
        self.0.window()
    }

    fn window_mut(&mut self) -> &mut Window {
        self.0.window_mut()
    }

    fn adjust(&mut self, params: &impl Values, ack: &Ack, watch: &mut impl Watch<gemini::Round>) {
        let error_us = error_us(params, ack.now_us);
        let ack = Ack {
            rtt_us: ack.rtt_us.map(|rtt_us| rtt_us.saturating_add(error_us)),
            ..*ack
        };
        self.0.adjust(&Rows(params), &ack, watch);
    }

    fn output(&self, params: &impl Values, srtt_us: u32) -> Output {
        self.0.output(&Rows(params), srtt_us)
    }

    fn loss_window_scaled(&self, params: &impl Values, mss_bytes: u32) -> u64 {
        self.0.loss_window_scaled(&Rows(params), mss_bytes)
    }

    fn was_reduced(&self) -> bool {
        self.0.was_reduced()
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.0.reduced_at(now_us);
    }

    fn shown(&self) -> Shown {
        self.0.shown()
    }
}

/// What all sockets share.
struct GeminiErr {
    sysctls: sysctl::Registration<Sysctls>,
}

impl Algorithm for GeminiErr {
    const NAME: &'static CStr = c"gemini_err";
    const DIAG: u8 = diag::GEMINI;

    type Flow = Flow;

    fn params<'a>(&'a self, sk: &'a Sock<'_>) -> impl Values + 'a {
        Live::<'_, 0>(self.sysctls.of(sk.net()))
    }
}

/// Fields drop in this order: sockets go first, then what they read.
struct Module {
    _registration: Registration<Adapter<GeminiErr>>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let sysctls = sysctl::Registration::new()?;
        Ok(Module {
            _registration: Registration::new(Adapter(GeminiErr { sysctls }))?,
        })
    }
}
