// SPDX-License-Identifier: GPL-2.0
//! Names of the `xdc:*` tracepoints.

use xdc_algo::ALGORITHMS;

use super::record::PROGRAMS;

/// Events of modules that are not congestion controls.
const OF_OTHERS: [&str; 15] = [
    "phantom_mark",
    "phantom_drop",
    "acceltor_day",
    "acceltor_accelerate",
    "acceltor_elephant",
    "acceltor_drop",
    "tlt_send",
    "tlt_echo",
    "tlt_clock",
    "tlt_state",
    "unorc_decoded",
    "unorc_nack",
    "unorc_reroute",
    "unorc_freeze",
    "unorc_session",
];

const COUNT: usize = {
    let (mut count, mut i) = (OF_OTHERS.len(), 0);
    while i < ALGORITHMS.len() {
        count += ALGORITHMS[i].events.len();
        i += 1;
    }
    count
};

/// Event names: of algorithms in the order of modules/oot/list.rs, then of other modules.
pub const EVENTS: [&str; COUNT] = {
    let mut events = [""; COUNT];
    let (mut at, mut i) = (0, 0);
    while i < ALGORITHMS.len() {
        let mut j = 0;
        while j < ALGORITHMS[i].events.len() {
            events[at] = ALGORITHMS[i].events[j].name;
            (at, j) = (at + 1, j + 1);
        }
        i += 1;
    }
    let mut j = 0;
    while at < COUNT {
        events[at] = OF_OTHERS[j];
        (at, j) = (at + 1, j + 1);
    }
    events
};

const _: () = assert!(COUNT <= PROGRAMS, "eBPF has too few programs: PROGRAMS");
