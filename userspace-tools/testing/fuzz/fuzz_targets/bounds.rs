// SPDX-License-Identifier: GPL-2.0
//! Plans, draws or refuses large scenarios within 1 GB. libFuzzer limits the time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdc_fuzz::amplifier::{Amplifier, MAX_BYTES};
use xdc_fuzz::meter::Meter;

const GB: usize = 1 << 30;

/// 1 GB for the scenario and 1 GB for the fuzzer.
#[global_allocator]
static METER: Meter = Meter::new(2 * GB);

fuzz_target!(|amplifier: Amplifier| {
    let text = amplifier.text();
    if text.len() <= MAX_BYTES {
        let (bytes, _) = METER.measure(|| {
            xdc::fuzzing::scenario(&text);
        });
        assert!(bytes < GB, "{bytes} bytes for {} bytes of text", text.len());
    }
});
