// SPDX-License-Identifier: GPL-2.0

//! GEMINI congestion control.
//!
//! The rules of Gemini (section III-C, Algorithm 1) are in algo/gemini.rs,
//! which also lists where they differ from the paper; tcp_glue.rs connects them
//! to TCP and lists what that changes. Besides:
//!
//! 1. TCP paces the flow; the paper has a rate limiter per flow.

use kernel::prelude::*;

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "tcp_glue.rs"]
mod tcp_glue;

use algo::fixed::ppm;
use algo::gemini::{Flow, Profile, Round, PARAMS};
use algo::params::Values;
use kernel_api::{
    sysctl,
    tcp::{diag, Registration, Sock},
    trace::{self, Tracepoint},
};
use tcp_glue::{Adapter, Algorithm, Live};

module! {
    type: Module,
    name: "tcp_gemini",
    authors: ["xdc developers"],
    description: "GEMINI congestion control",
    license: "GPL v2",
}

/// net.gemini.*: the rows of [`PARAMS`].
struct Sysctls;

impl sysctl::Params for Sysctls {
    const DIR: &'static CStr = c"net/gemini";

    const PARAMS: &'static [sysctl::Param] =
        &tcp_glue::sysctls::<{ PARAMS.len() }, _>(&[], PARAMS, Profile::Paper as usize);
}

/// What all sockets share.
struct Gemini {
    sysctls: sysctl::Registration<Sysctls>,
}

impl Algorithm for Gemini {
    const NAME: &'static CStr = c"gemini";
    const DIAG: u8 = diag::GEMINI;

    type Flow = Flow;

    #[inline(always)]
    fn params<'a>(&'a self, sk: &'a Sock<'_>) -> impl Values + 'a {
        Live::<'_, 0>(self.sysctls.of(sk.net()))
    }

    #[inline(always)]
    fn is_traced() -> bool {
        trace::GeminiRound::is_on()
    }

    fn trace(sk: &Sock<'_>, round: Round) {
        let info = trace::GeminiRoundInfo {
            cwnd_bytes: round.cwnd_bytes,
            acked_bytes: round.acked_bytes,
            marked_bytes: round.marked_bytes,
            increase_bytes: round.increase_bytes,
            min_rtt_us: round.min_rtt_us,
            base_rtt_us: round.base_rtt_us,
            alpha_ppm: ppm(round.alpha),
            dcn_cut_ppm: ppm(round.dcn_cut),
            wan_congested: round.wan_congested,
            reduced: round.reduced,
        };
        trace::GeminiRound::tell(sk, &info);
    }
}

/// Fields drop in this order: sockets go first, then what they read.
struct Module {
    _registration: Registration<Adapter<Gemini>>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let sysctls = sysctl::Registration::new()?;
        Ok(Module {
            _registration: Registration::new(Adapter(Gemini { sysctls }))?,
        })
    }
}
