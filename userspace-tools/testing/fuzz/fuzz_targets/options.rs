// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the codec of phantom's netlink attributes: decoded values survive encoding and a second decoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdc_netlink::phantom::{Options, Xstats};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(options) = Options::decode(bytes) {
        let again = Options::decode(&options.encode()).expect("own encoding");
        assert_eq!(options, again);
    }
    let _ = Xstats::decode(bytes).values().count();
});
