// SPDX-License-Identifier: GPL-2.0

//! GEMINI congestion control.
//!
//! The rules of Gemini (section III-C, Algorithm 1) and the differences from the paper are in
//! algo/gemini.rs; tcp_glue.rs connects them to TCP and lists the effects. In addition:
//!
//! 1. TCP paces the flow; the paper has a rate limiter per flow.

#[path = "../../algo/mod.rs"]
mod algo;
#[allow(dead_code, unreachable_pub)]
#[path = "../../algo/gemini.rs"]
mod gemini;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "tcp_diag.rs"]
mod tcp_diag;
#[path = "tcp_glue.rs"]
mod tcp_glue;

use algo::{
    controller::{published, Controller},
    entry::Entry,
    fixed::ppm,
};
use gemini::{Flow, Round, ENTRY};
use kernel_api::{
    bindings::xdc_gemini_round,
    tcp::Sock,
    trace::{tracepoint, Tracepoint},
};
use tcp_glue::{module_tcp_algorithm, Algorithm};

module_tcp_algorithm! {
    type: Gemini,
    name: "tcp_gemini",
    authors: ["xdc developers"],
    description: "GEMINI congestion control",
    license: "GPL v2",
}

tracepoint! {
    /// `xdc:gemini_round`.
    GeminiRound, gemini_round, xdc_gemini_round
}

struct Gemini;

impl Algorithm for Gemini {
    const ENTRY: Entry = ENTRY;

    type Flow = Flow;

    #[inline(always)]
    fn is_traced() -> bool {
        GeminiRound::is_on()
    }

    fn trace(sk: &Sock<'_>, round: Round) {
        let seen = round.flow.published();
        let info = xdc_gemini_round {
            cwnd_bytes: round.flow.cwnd_bytes(),
            acked_bytes: seen.acked_bytes.into(),
            marked_bytes: seen.marked_bytes.into(),
            increase_bytes: round.increase_bytes,
            min_rtt_us: round.flow.round_min_rtt_us,
            base_rtt_us: seen.base_rtt_us,
            alpha_ppm: ppm(seen.marked_fraction),
            dcn_cut_ppm: ppm(round.dcn_cut),
            wan_congested: seen.flags & published::WAN != 0,
            reduced: round.reduced,
        };
        GeminiRound::emit(sk, &info);
    }
}
