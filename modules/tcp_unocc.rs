// SPDX-License-Identifier: GPL-2.0

//! UnoCC congestion control.
//!
//! The rules of Uno (section 4.1, Algorithm 1) are in algo/unocc.rs, which also
//! lists where they differ from the paper; tcp_glue.rs connects them to TCP and
//! lists what that changes. Besides:
//!
//! 1. `line_rate_mbps` cannot ask the egress device: its speed is known under
//!    RTNL, which cannot be taken where a connection is established.

use kernel::prelude::*;

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "tcp_glue.rs"]
mod tcp_glue;

use algo::fixed::ppm;
use algo::params::Values;
use algo::unocc::{Action, Epoch, Event, Flow, Profile, QuickAdapt, PARAMS};
use kernel_api::{
    sysctl,
    tcp::{diag, Registration, Sock},
    trace::{self, Tracepoint},
};
use tcp_glue::{Adapter, Algorithm, Live};

module! {
    type: Module,
    name: "tcp_unocc",
    authors: ["xdc developers"],
    description: "UnoCC congestion control",
    license: "GPL v2",
}

/// net.unocc.*: the profile, and then the rows of [`PARAMS`].
struct Sysctls;

/// Files before the rows.
const OWN_FILES: usize = 1;

/// Number of files.
const FILES: usize = OWN_FILES + PARAMS.len();

/// What a new network namespace starts from.
const DEFAULT_PROFILE: Profile = Profile::Linux;

impl sysctl::Params for Sysctls {
    const DIR: &'static CStr = c"net/unocc";

    const PARAMS: &'static [sysctl::Param] = &{
        const PROFILE: sysctl::Param = sysctl::Param {
            name: c"profile",
            kind: sysctl::Kind::Name {
                default: DEFAULT_PROFILE as u64,
                names: &Profile::NAMES,
            },
        };
        tcp_glue::sysctls::<FILES, _>(&[PROFILE], PARAMS, DEFAULT_PROFILE as usize)
    };

    /// A profile sets every parameter; what is written after it overrides it.
    fn written(values: &sysctl::Values, index: usize) {
        if index != 0 {
            return;
        }
        let profile = values.get(index);
        for (row, index) in PARAMS.iter().zip(OWN_FILES..) {
            let default = row.defaults.iter().zip(0..).find(|&(_, i)| i == profile);
            if let Some((&default, _)) = default {
                values.set(index, u64::from(default));
            }
        }
    }
}

/// What all sockets share.
struct UnoCc {
    sysctls: sysctl::Registration<Sysctls>,
}

impl Algorithm for UnoCc {
    const NAME: &'static CStr = c"unocc";
    const DIAG: u8 = diag::UNOCC;

    type Flow = Flow;

    #[inline(always)]
    fn params<'a>(&'a self, sk: &'a Sock<'_>) -> impl Values + 'a {
        Live::<'_, OWN_FILES>(self.sysctls.of(sk.net()))
    }

    #[inline(always)]
    fn is_traced() -> bool {
        trace::UnoccEpoch::is_on() || trace::UnoccQuickAdapt::is_on()
    }

    fn trace(sk: &Sock<'_>, event: Event) {
        match event {
            Event::Epoch(epoch) => trace::UnoccEpoch::tell(sk, &epoch_info(&epoch)),
            Event::QuickAdapt(quick_adapt) => {
                trace::UnoccQuickAdapt::tell(sk, &quick_adapt_info(&quick_adapt));
            }
        }
    }
}

fn epoch_info(epoch: &Epoch) -> trace::EpochInfo {
    trace::EpochInfo {
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
            Action::None => trace::XDC_EPOCH_NONE,
            Action::Rested => trace::XDC_EPOCH_RESTED,
            Action::Withheld => trace::XDC_EPOCH_WITHHELD,
            Action::EndedSlowStart => trace::XDC_EPOCH_ENDED_SLOW_START,
            Action::Increased => trace::XDC_EPOCH_INCREASED,
            Action::Decreased => trace::XDC_EPOCH_DECREASED,
        },
        gentle: epoch.verdict.gentle,
    }
}

fn quick_adapt_info(quick_adapt: &QuickAdapt) -> trace::QuickAdaptInfo {
    trace::QuickAdaptInfo {
        cwnd_before_bytes: quick_adapt.cwnd_before_bytes,
        cwnd_bytes: quick_adapt.cwnd_bytes,
        delivered_bytes: quick_adapt.delivered_bytes,
        promised_bytes: quick_adapt.promised_bytes,
        base_rtt_us: quick_adapt.base_rtt_us,
        adapted: quick_adapt.adapted,
    }
}

/// Fields drop in this order: sockets go first, then what they read.
struct Module {
    _registration: Registration<Adapter<UnoCc>>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let sysctls = sysctl::Registration::new()?;
        Ok(Module {
            _registration: Registration::new(Adapter(UnoCc { sysctls }))?,
        })
    }
}
