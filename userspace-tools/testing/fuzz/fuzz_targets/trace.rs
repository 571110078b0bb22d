// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the reader of tracepoint recordings: JSON lines, or pages of the kernel's ring buffer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| xdc::fuzzing::trace(data));
