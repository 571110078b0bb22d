// SPDX-License-Identifier: GPL-2.0
//! What `--set`, `--axis` and `--seeds` are given, a line each.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &str| xdc::fuzzing::set(lines));
