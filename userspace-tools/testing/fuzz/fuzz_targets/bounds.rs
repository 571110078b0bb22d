// SPDX-License-Identifier: GPL-2.0
//! A scenario that asks for much: it is planned, drawn or refused within 1 GB. libFuzzer has the
//! time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdc_fuzz::amplifier::{Amplifier, MAX_BYTES};
use xdc_fuzz::meter::Meter;

const GB: usize = 1 << 30;

/// One more is for the fuzzer itself.
#[global_allocator]
static METER: Meter = Meter::new(2 * GB);

fuzz_target!(|amplifier: Amplifier| {
    let text = amplifier.text();
    if text.len() <= MAX_BYTES {
        let (bytes, _) = METER.measure(|| {
            xdc::fuzzing::scenario(&text);
        });
        assert!(bytes < GB, "{bytes} bytes for {} of text", text.len());
    }
});
