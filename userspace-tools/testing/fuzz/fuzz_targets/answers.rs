// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the decoder of rtnetlink datagrams from a kernel.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netlink_packet_core::NetlinkPayload;
use xdc_netlink::{
    connection::answers,
    phantom::{Options, Xstats},
    qdisc::QdiscState,
};

fuzz_target!(|datagram: &[u8]| {
    for answer in answers(datagram).flatten() {
        let _ = answer.refusal("anything");
        let NetlinkPayload::InnerMessage(message) = answer.message.payload else {
            continue;
        };
        if let Some(state) = QdiscState::of(message) {
            let _ = state.marks();
            let _ = Xstats::of(&state);
            let _ = Options::decode(&state.options);
        }
    }
});
