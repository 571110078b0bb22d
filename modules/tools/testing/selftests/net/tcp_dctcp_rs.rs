// SPDX-License-Identifier: GPL-2.0

//! DCTCP through our trait, to compare the trait with the kernel's module.
//!
//! algo/dctcp.rs has the rules; this module acts on the same calls as net/ipv4/tcp_dctcp.c, so that `xdc
//! twin` can compare packets. Differences without effect on packets:
//!
//! 1. No PLB: its sysctl is off by default, and IPv4 has no flow label.
//! 2. The module parameters of the original are constants, at their defaults.
//! 3. get_info() returns the values at the start of the observation window.

use kernel::prelude::*;

#[path = "../../../../algo/mod.rs"]
mod algo;
#[path = "../../../../oot/kernel_api.rs"]
mod kernel_api;

use algo::{
    dctcp::{Flow, Progress},
    fixed::RATIO_BITS,
};
use kernel_api::tcp::{
    flags, CongestionControl, EceEcho, EcnMode, Event, Info, NoDiagBlock, Registration, Sock, State,
};

module! {
    type: Module,
    name: "tcp_dctcp_rs",
    authors: ["xdc developers"],
    description: "Rust version of the kernel's DCTCP, for tests",
    license: "GPL v2",
}

fn publish(sk: &mut Sock<'_>, flow: &Flow) {
    let (delivered, marked) = flow.window(&progress(sk));
    let bytes = |packets: u32| packets.wrapping_mul(sk.mss_bytes());
    let fraction = flow.alpha() << (Info::FRACTION_BITS - RATIO_BITS);
    sk.publish_marks(fraction, bytes(marked), bytes(delivered));
}

fn progress(sk: &Sock<'_>) -> Progress {
    Progress {
        snd_una: sk.snd_una(),
        snd_nxt: sk.snd_nxt(),
        delivered: sk.delivered(),
        delivered_ce: sk.delivered_ce(),
    }
}

fn react_to_loss(sk: &mut Sock<'_>, flow: &mut Flow) {
    let ssthresh = flow.reduce_for_loss(sk.snd_cwnd());
    sk.set_snd_ssthresh(ssthresh);
}

struct Dctcp;

#[vtable]
impl CongestionControl for Dctcp {
    const NAME: &'static CStr = c"dctcp_rs";
    const FLAGS: u32 = flags::NEEDS_ECN;

    const ECE_ECHO: EceEcho = EceEcho::Always;

    type Diag = NoDiagBlock;

    type Data = Flow;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Flow> {
        if sk.ecn_mode() == EcnMode::None {
            return None;
        }
        let flow = Flow::new(&progress(sk));
        publish(sk, &flow);
        Some(flow)
    }

    fn in_ack_event(&self, sk: &mut Sock<'_>, flow: &mut Flow) {
        if flow.window_ended(sk.snd_una()) {
            flow.end_window(&progress(sk));
            publish(sk, flow);
        }
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, flow: &mut Flow) -> u32 {
        flow.reduce_for_marks(sk.snd_cwnd())
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, flow: &mut Flow) -> u32 {
        flow.undo(sk.snd_cwnd())
    }

    /// Handles fast retransmit; a timeout has its own event, so that one loss is one reduction.
    fn set_state(&self, sk: &mut Sock<'_>, flow: &mut Flow, new: State) {
        if new == State::Recovery && sk.ca_state() != State::Recovery {
            react_to_loss(sk, flow);
        }
    }

    fn cwnd_event(&self, sk: &mut Sock<'_>, flow: &mut Flow, event: Event) {
        if event == Event::Loss {
            react_to_loss(sk, flow);
        }
    }
}

struct Module {
    _registration: Registration<Dctcp>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Module {
            _registration: Registration::new(Dctcp)?,
        })
    }
}
