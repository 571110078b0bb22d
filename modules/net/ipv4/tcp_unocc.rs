// SPDX-License-Identifier: GPL-2.0

//! UnoCC congestion control.
//!
//! The rules of Uno (section 4.1, Algorithm 1) and the differences from the paper are in
//! algo/unocc.rs; tcp_glue.rs connects them to TCP and lists the effects. In addition:
//!
//! 1. If `line_rate_mbps` or `intra_rtt_us` is 0, the host detects it: algo/host.rs.

#[path = "../../algo/mod.rs"]
mod algo;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "tcp_diag.rs"]
mod tcp_diag;
#[path = "tcp_glue.rs"]
mod tcp_glue;
#[allow(dead_code, unreachable_pub)]
#[path = "../../algo/unocc.rs"]
mod unocc;

use algo::controller::Controller as _;
use algo::entry::Entry;
use algo::fixed::ppm;
use kernel_api::{
    bindings::{
        xdc_unocc_epoch as EpochInfo, xdc_unocc_qa as QuickAdaptInfo, XDC_EPOCH_DECREASED,
        XDC_EPOCH_INCREASED, XDC_EPOCH_NONE, XDC_EPOCH_RESTED,
    },
    tcp::Sock,
    trace::{tracepoint, Tracepoint},
};
use tcp_glue::{module_tcp_algorithm, Algorithm};
use unocc::{Epoch, Event, Flow, QuickAdapt, ENTRY};

module_tcp_algorithm! {
    type: UnoCc,
    name: "tcp_unocc",
    authors: ["xdc developers"],
    description: "UnoCC congestion control",
    license: "GPL v2",
}

tracepoint! {
    /// `xdc:unocc_epoch`.
    UnoccEpoch, unocc_epoch, xdc_unocc_epoch
}
tracepoint! {
    /// `xdc:unocc_qa`.
    UnoccQuickAdapt, unocc_qa, xdc_unocc_qa
}

struct UnoCc;

impl Algorithm for UnoCc {
    const ENTRY: Entry = ENTRY;

    type Flow = Flow;

    #[inline(always)]
    fn is_traced() -> bool {
        UnoccEpoch::is_on() || UnoccQuickAdapt::is_on()
    }

    fn trace(sk: &Sock<'_>, event: Event) {
        match event {
            Event::Epoch(flow, epoch) => UnoccEpoch::emit(sk, &epoch_info(&flow, &epoch)),
            Event::QuickAdapt(flow, quick_adapt) => {
                UnoccQuickAdapt::emit(sk, &quick_adapt_info(&flow, &quick_adapt));
            }
        }
    }
}

fn epoch_info(flow: &Flow, epoch: &Epoch) -> EpochInfo {
    let counted = flow.published();
    EpochInfo {
        cwnd_before_bytes: epoch.cwnd_before_bytes,
        cwnd_bytes: flow.cwnd_bytes(),
        period_ns: epoch.period_ns,
        rtt_us: epoch.rtt_us,
        base_rtt_us: counted.base_rtt_us,
        acked_bytes: counted.acked_bytes,
        marked_bytes: counted.marked_bytes,
        e_ppm: ppm(counted.marked_fraction),
        md_ppm: ppm(epoch.cut),
        action: if counted.marked_bytes == 0 {
            XDC_EPOCH_NONE
        } else if flow.was_reduced() {
            XDC_EPOCH_RESTED
        } else if epoch.grew {
            XDC_EPOCH_INCREASED
        } else {
            XDC_EPOCH_DECREASED
        },
        gentle: epoch.gentle,
    }
}

fn quick_adapt_info(flow: &Flow, quick_adapt: &QuickAdapt) -> QuickAdaptInfo {
    QuickAdaptInfo {
        cwnd_before_bytes: quick_adapt.cwnd_before_bytes,
        cwnd_bytes: flow.cwnd_bytes(),
        delivered_bytes: quick_adapt.delivered_bytes,
        promised_bytes: quick_adapt.promised_bytes,
        base_rtt_us: flow.published().base_rtt_us,
        adapted: flow.was_reduced(),
    }
}
