// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the decoder of a guest's messages about its run.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &str| xdc::fuzzing::messages(lines));
