// SPDX-License-Identifier: GPL-2.0

//! The module of aimd.rs. Everything else comes from the algorithm's `ENTRY` and the line in
//! modules/oot/list.rs.

#[allow(dead_code, unreachable_pub)]
mod aimd;
#[path = "../modules/algo/mod.rs"]
mod algo;
#[path = "../modules/oot/kernel_api.rs"]
mod kernel_api;
#[path = "../modules/net/ipv4/tcp_diag.rs"]
mod tcp_diag;
#[path = "../modules/net/ipv4/tcp_glue.rs"]
mod tcp_glue;

use aimd::{Flow, Round, ENTRY};
use algo::{entry::Entry, fixed::ppm};
use kernel_api::{
    bindings::xdc_aimd_round,
    tcp::Sock,
    trace::{tracepoint, Tracepoint},
};
use tcp_glue::{module_tcp_algorithm, Algorithm};

module_tcp_algorithm! {
    type: Aimd,
    name: "tcp_aimd",
    authors: ["xdc developers"],
    description: "Example of an algorithm with parameters, state and tracepoints",
    license: "GPL v2",
}

tracepoint! {
    /// `xdc:aimd_round` in trace_aimd.h.
    AimdRound, aimd_round, xdc_aimd_round
}

struct Aimd;

impl Algorithm for Aimd {
    const ENTRY: Entry = ENTRY;

    type Flow = Flow;

    #[inline(always)]
    fn is_traced() -> bool {
        AimdRound::is_on()
    }

    fn trace(sk: &Sock<'_>, round: Round) {
        let info = xdc_aimd_round {
            cwnd_bytes: round.cwnd_bytes,
            acked_bytes: round.acked_bytes,
            marked_ppm: ppm(round.marked_fraction),
            srtt_us: round.srtt_us,
        };
        AimdRound::emit(sk, &info);
    }
}
