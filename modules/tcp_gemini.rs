// SPDX-License-Identifier: GPL-2.0

//! GEMINI congestion control.
//!
//! The rules of Gemini (section III-C, Algorithm 1) are in algo/gemini.rs,
//! which also lists where they differ from the paper. This file connects them
//! to TCP. Where that differs from the authors' description:
//!
//! 1. The fraction of marked bytes comes from AccECN's counters where both
//!    ends have them, else from an ECE per packet as DCTCP's receiver sends
//!    it; this module is such a receiver. Without ECN the flow is Reno's.
//! 2. `cong_control` sets window and rate for each ACK, because the kernel's
//!    own reaction to ECE would cut the window a second time.
//! 3. ssthresh() only answers; the window changes when Recovery or Loss
//!    begins. The kernel calls it for ECE too.
//! 4. TCP paces the flow; the paper has a rate limiter per flow.

use kernel::prelude::*;

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "tcp_glue.rs"]
mod tcp_glue;

use algo::{
    fixed::{FRACTION_BITS, RATIO_BITS},
    gemini::{Flow, Params, Profile, PARAMS},
};
use kernel_api::{
    sysctl,
    tcp::{
        flags, AckFlags, CongestionControl, EceEcho, EcnMode, Event, Info, RateSample,
        Registration, Sock, State,
    },
};
use tcp_glue::{bytes, packets, Marks};

module! {
    type: Module,
    name: "tcp_gemini",
    authors: ["xdc developers"],
    description: "GEMINI congestion control",
    license: "GPL v2",
}

/// net.gemini.*: the rows of [`PARAMS`].
struct Sysctls;

impl sysctl::Params for Sysctls {
    const DIR: &'static CStr = c"net/gemini";

    const PARAMS: &'static [sysctl::Param] = &{
        const FIRST: sysctl::Param = tcp_glue::sysctl(&PARAMS[0], Profile::Paper as usize);
        let mut files = [FIRST; PARAMS.len()];
        let mut i = 0;
        while i < PARAMS.len() {
            files[i] = tcp_glue::sysctl(&PARAMS[i], Profile::Paper as usize);
            i += 1;
        }
        files
    };
}

/// One socket.
#[derive(Clone, Copy)]
struct Socket {
    flow: Flow,
    marks: Marks,
    echo: EceEcho,
}

impl Socket {
    fn publish(&self, sk: &mut Sock<'_>) {
        sk.publish(Info {
            ce_state: self.echo.ce_state(),
            alpha: self.flow.alpha() >> (FRACTION_BITS - RATIO_BITS),
            marked_bytes: self.flow.round_marked_bytes(),
            acked_bytes: self.flow.round_acked_bytes(),
        });
    }
}

/// What all sockets share.
struct Gemini {
    sysctls: sysctl::Registration<Sysctls>,
}

impl Gemini {
    fn params(&self, sk: &Sock<'_>) -> Params {
        let values = self.sysctls.of(sk.net());
        Params::read(|file| tcp_glue::value(values.get(file)))
    }
}

#[vtable]
impl CongestionControl for Gemini {
    const NAME: &'static CStr = c"gemini";
    const FLAGS: u32 = flags::NEEDS_ECN | flags::NEEDS_ACCECN;

    type Data = Socket;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Socket> {
        if !tcp_glue::has_ecn(sk) {
            return None;
        }
        let params = self.params(sk);
        let flow = Flow::new(
            &params,
            sk.mstamp_us(),
            bytes(sk, sk.snd_cwnd()),
            tcp_glue::handshake_rtt_us(sk),
        );
        tcp_glue::apply(sk, &flow.output(&params, sk.srtt_us()));
        let socket = Socket {
            flow,
            marks: Marks::new(sk),
            echo: EceEcho::new(sk),
        };
        socket.publish(sk);
        Some(socket)
    }

    fn cong_control(
        &self,
        sk: &mut Sock<'_>,
        data: &mut Socket,
        _ack: u32,
        _flags: AckFlags,
        rs: &RateSample,
    ) {
        let ack = tcp_glue::ack(sk, rs, &mut data.marks);
        if let Some(output) = data.flow.on_ack(&self.params(sk), &ack) {
            tcp_glue::apply(sk, &output);
        }
        data.publish(sk);
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, data: &mut Socket) -> u32 {
        let params = self.params(sk);
        packets(sk, data.flow.loss_window_bytes(&params, sk.mss_bytes()))
    }

    fn set_state(&self, sk: &mut Sock<'_>, data: &mut Socket, new: State) {
        let (now_us, mss_bytes) = (sk.mstamp_us(), sk.mss_bytes());
        match new {
            State::Recovery if sk.ca_state() != State::Recovery => {
                data.flow.on_loss(&self.params(sk), now_us, mss_bytes);
            }
            State::Loss => {
                let in_flight_bytes = bytes(sk, sk.in_flight());
                let params = self.params(sk);
                data.flow
                    .on_timeout(&params, now_us, in_flight_bytes, mss_bytes);
            }
            _ => {}
        }
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, data: &mut Socket) -> u32 {
        let prior_bytes = bytes(sk, sk.reno_undo_cwnd());
        data.flow.undo(prior_bytes);
        packets(sk, data.flow.cwnd_bytes())
    }

    fn cwnd_event(&self, sk: &mut Sock<'_>, data: &mut Socket, event: Event) {
        if sk.ecn_mode() == EcnMode::Rfc3168 {
            data.echo.event(sk, event);
            data.publish(sk);
        }
    }
}

/// Fields drop in this order: sockets go first, then what they read.
struct Module {
    _registration: Registration<Gemini>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let sysctls = sysctl::Registration::new()?;
        Ok(Module {
            _registration: Registration::new(Gemini { sysctls })?,
        })
    }
}
