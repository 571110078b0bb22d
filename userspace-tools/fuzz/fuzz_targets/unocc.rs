// SPDX-License-Identifier: GPL-2.0
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdc_algo::unocc::{Flow, PARAMS};
use xdc_fuzz::Life;

fuzz_target!(|life: Life| life.live::<Flow, _>(PARAMS));
