// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the arguments of `--set`, `--axis` and `--seeds`, one per line.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &str| xdc::fuzzing::set(lines));
