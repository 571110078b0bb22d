// SPDX-License-Identifier: GPL-2.0
//! A summary.json, or a cell of a sweep.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| xdc::fuzzing::result(text));
