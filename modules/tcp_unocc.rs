// SPDX-License-Identifier: GPL-2.0

//! UnoCC congestion control.
//!
//! The rules of Uno (section 4.1, Algorithm 1) are in algo/unocc.rs, which also
//! lists where they differ from the paper; tcp_glue.rs connects them to TCP and
//! lists what that changes. Besides:
//!
//! 1. Where `line_rate_mbps` or `intra_rtt_us` is 0 the host finds it out: algo/host.rs.

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "tcp_diag.rs"]
mod tcp_diag;
#[path = "tcp_glue.rs"]
mod tcp_glue;
#[allow(dead_code, unreachable_pub)]
#[path = "algo/unocc.rs"]
mod unocc;

use algo::entry::Entry;
use algo::fixed::ppm;
use kernel_api::{
    bindings::{
        xdc_unocc_epoch as EpochInfo, xdc_unocc_qa as QuickAdaptInfo, XDC_EPOCH_DECREASED,
        XDC_EPOCH_ENDED_SLOW_START, XDC_EPOCH_INCREASED, XDC_EPOCH_NONE, XDC_EPOCH_RESTED,
        XDC_EPOCH_WITHHELD,
    },
    tcp::Sock,
    trace::{tracepoint, Tracepoint},
};
use tcp_glue::{module_tcp_algorithm, Algorithm};
use unocc::{Action, Epoch, Event, Flow, QuickAdapt, ENTRY};

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
            Event::Epoch(epoch) => UnoccEpoch::emit(sk, &epoch_info(&epoch)),
            Event::QuickAdapt(quick_adapt) => {
                UnoccQuickAdapt::emit(sk, &quick_adapt_info(&quick_adapt));
            }
        }
    }
}

fn epoch_info(epoch: &Epoch) -> EpochInfo {
    EpochInfo {
        cwnd_before_bytes: epoch.cwnd_before_bytes,
        cwnd_bytes: epoch.cwnd_bytes,
        period_ns: epoch.period_ns,
        rtt_us: epoch.rtt_us,
        base_rtt_us: epoch.base_rtt_us,
        acked_bytes: epoch.acked_bytes,
        marked_bytes: epoch.marked_bytes,
        e_ppm: ppm(epoch.ecn_fraction),
        md_ppm: ppm(epoch.verdict.cut),
        action: match epoch.verdict.action {
            Action::None => XDC_EPOCH_NONE,
            Action::Rested => XDC_EPOCH_RESTED,
            Action::Withheld => XDC_EPOCH_WITHHELD,
            Action::EndedSlowStart => XDC_EPOCH_ENDED_SLOW_START,
            Action::Increased => XDC_EPOCH_INCREASED,
            Action::Decreased => XDC_EPOCH_DECREASED,
        },
        gentle: epoch.verdict.gentle,
    }
}

fn quick_adapt_info(quick_adapt: &QuickAdapt) -> QuickAdaptInfo {
    QuickAdaptInfo {
        cwnd_before_bytes: quick_adapt.cwnd_before_bytes,
        cwnd_bytes: quick_adapt.cwnd_bytes,
        delivered_bytes: quick_adapt.delivered_bytes,
        promised_bytes: quick_adapt.promised_bytes,
        base_rtt_us: quick_adapt.base_rtt_us,
        adapted: quick_adapt.adapted,
    }
}
