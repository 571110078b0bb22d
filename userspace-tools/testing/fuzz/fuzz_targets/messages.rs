// SPDX-License-Identifier: GPL-2.0
//! What a guest says of its run.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &str| xdc::fuzzing::messages(lines));
