// SPDX-License-Identifier: GPL-2.0
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|life: xdc_fuzz::Life| xdc_fuzz::of_algorithm(life));
