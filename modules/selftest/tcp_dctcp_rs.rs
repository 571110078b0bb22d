// SPDX-License-Identifier: GPL-2.0

//! DCTCP through our trait, to hold the trait against the kernel's own module.
//!
//! The rules are in algo/dctcp.rs; what is here does when the kernel calls
//! what net/ipv4/tcp_dctcp.c does, so that `xdc twin` may ask for the same
//! packets. It differs where no packet shows it:
//!
//! 1. No PLB: its sysctl is off by default, and IPv4 has no flow label.
//! 2. The module parameters of the original are constants, at their defaults.
//! 3. get_info() shows what stood when the observation window began, not what
//!    is true at the moment it is asked.

use kernel::prelude::*;

#[path = "../algo/mod.rs"]
mod algo;
#[path = "../kernel/mod.rs"]
mod kernel_api;

use algo::{
    dctcp::{Flow, Progress},
    fixed::RATIO_BITS,
};
use kernel_api::tcp::{
    flags, AckEvent, CongestionControl, EceEcho, EcnMode, Event, Info, Registration, Sock, State,
};

module! {
    type: Module,
    name: "tcp_dctcp_rs",
    authors: ["xdc developers"],
    description: "DCTCP congestion control, the kernel's in Rust, for tests",
    license: "GPL v2",
}

/// One socket.
#[derive(Clone, Copy)]
struct Socket {
    flow: Flow,
    echo: EceEcho,
}

impl Socket {
    fn publish(&self, sk: &mut Sock<'_>) {
        let (delivered, marked) = self.flow.window(&progress(sk));
        let bytes = |packets: u32| packets.wrapping_mul(sk.mss_bytes());
        let fraction = self.flow.alpha() << (Info::FRACTION_BITS - RATIO_BITS);
        sk.publish_marks(fraction, bytes(marked), bytes(delivered));
    }
}

fn progress(sk: &Sock<'_>) -> Progress {
    Progress {
        snd_una: sk.snd_una(),
        snd_nxt: sk.snd_nxt(),
        delivered: sk.delivered(),
        delivered_ce: sk.delivered_ce(),
    }
}

fn react_to_loss(sk: &mut Sock<'_>, data: &mut Socket) {
    let ssthresh = data.flow.reduce_for_loss(sk.snd_cwnd());
    sk.set_snd_ssthresh(ssthresh);
}

struct Dctcp;

#[vtable]
impl CongestionControl for Dctcp {
    const NAME: &'static CStr = c"dctcp_rs";
    const FLAGS: u32 = flags::NEEDS_ECN;

    type Data = Socket;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Socket> {
        if sk.ecn_mode() == EcnMode::None && !sk.is_closed_or_listening() {
            return None;
        }
        let socket = Socket {
            flow: Flow::new(&progress(sk)),
            echo: EceEcho::new(sk),
        };
        socket.publish(sk);
        Some(socket)
    }

    fn in_ack_event(&self, sk: &mut Sock<'_>, data: &mut Socket, _event: AckEvent) {
        if data.flow.window_ended(sk.snd_una()) {
            data.flow.end_window(&progress(sk));
            data.publish(sk);
        }
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, data: &mut Socket) -> u32 {
        data.flow.reduce_for_marks(sk.snd_cwnd())
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, data: &mut Socket) -> u32 {
        data.flow.undo(sk.snd_cwnd())
    }

    /// Fast retransmit; a timeout has its event, so that one loss is one reduction.
    fn set_state(&self, sk: &mut Sock<'_>, data: &mut Socket, new: State) {
        if new == State::Recovery && sk.ca_state() != State::Recovery {
            react_to_loss(sk, data);
        }
    }

    fn cwnd_event(&self, sk: &mut Sock<'_>, data: &mut Socket, event: Event) {
        match event {
            Event::EcnIsCe | Event::EcnNoCe => {
                data.echo.event(sk, event);
                data.publish(sk);
            }
            Event::Loss => react_to_loss(sk, data),
            Event::CwndRestart | Event::CompleteCwr => {}
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
