// SPDX-License-Identifier: GPL-2.0
//! A scenario's file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    xdc::fuzzing::scenario(text);
});
