// SPDX-License-Identifier: GPL-2.0

//! toll congestion control.
//!
//! The law is in algo/toll.rs; tcp_glue.rs connects it to TCP and lists the effects.

#[path = "../../algo/mod.rs"]
mod algo;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "tcp_diag.rs"]
mod tcp_diag;
#[path = "tcp_glue.rs"]
mod tcp_glue;
#[allow(dead_code, unreachable_pub)]
#[path = "../../algo/toll.rs"]
mod toll;

use algo::{entry::Entry, fixed::BYTE_BITS};
use kernel_api::{
    bindings::xdc_toll_round,
    tcp::Sock,
    trace::{tracepoint, Tracepoint},
};
use tcp_glue::{module_tcp_algorithm, Algorithm};
use toll::{Flow, ENTRY, SLOW_START};

module_tcp_algorithm! {
    type: Toll,
    name: "tcp_toll",
    authors: ["xdc developers"],
    description: "toll congestion control",
    license: "GPL v2",
}

tracepoint! {
    /// `xdc:toll_round`.
    TollRound, toll_round, xdc_toll_round
}

struct Toll;

impl Algorithm for Toll {
    const ENTRY: Entry = ENTRY;

    type Flow = Flow;

    #[inline(always)]
    fn is_traced() -> bool {
        TollRound::is_on()
    }

    fn trace(sk: &Sock<'_>, flow: Flow) {
        TollRound::emit(sk, &round_info(&flow));
    }
}

/// `part` of 2^`bits` in ppm.
fn ppm(part: u32, bits: u32) -> u32 {
    (u64::from(part).wrapping_mul(1_000_000) >> bits) as u32
}

fn round_info(flow: &Flow) -> xdc_toll_round {
    xdc_toll_round {
        window_bytes: flow.scaled >> BYTE_BITS,
        least_us: flow.least_us,
        base_rtt_us: flow.base_us,
        price_ppm: ppm(flow.price, 20),
        delay_ppm: ppm(flow.delay.into(), 15),
        swing_ppm: ppm(flow.swing.into(), 15),
        slow_start: flow.has(SLOW_START),
    }
}
