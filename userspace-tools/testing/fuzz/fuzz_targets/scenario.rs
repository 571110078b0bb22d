// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the reader of scenario files.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    xdc::fuzzing::scenario(text);
});
