// SPDX-License-Identifier: GPL-2.0
//! Attributes as a kernel might send them: no bytes upset the codec, and what it has understood
//! survives being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdc_netlink::phantom::{Options, Xstats};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(options) = Options::decode(bytes) {
        let again = Options::decode(&options.encode()).expect("our own bytes");
        assert_eq!(options, again);
    }
    let _ = Xstats::decode(bytes).values().count();
});
