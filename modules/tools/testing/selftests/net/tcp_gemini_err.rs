// SPDX-License-Identifier: GPL-2.0

//! The module of gemini_err.rs; otherwise equal to tcp_gemini.

#[path = "../../../../algo/mod.rs"]
mod algo;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../algo/gemini.rs"]
mod gemini;
#[allow(dead_code, unreachable_pub)]
mod gemini_err;
#[path = "../../../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "../../../../net/ipv4/tcp_diag.rs"]
mod tcp_diag;
#[path = "../../../../net/ipv4/tcp_glue.rs"]
mod tcp_glue;

use algo::entry::Entry;
use gemini_err::{Flow, ENTRY};
use tcp_glue::{module_tcp_algorithm, Algorithm};

module_tcp_algorithm! {
    type: GeminiErr,
    name: "tcp_gemini_err",
    authors: ["xdc developers"],
    description: "GEMINI congestion control with errors in its RTTs, for tests",
    license: "GPL v2",
}

struct GeminiErr;

impl Algorithm for GeminiErr {
    const ENTRY: Entry = ENTRY;

    type Flow = Flow;
}
