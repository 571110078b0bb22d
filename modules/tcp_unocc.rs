// SPDX-License-Identifier: GPL-2.0

//! UnoCC congestion control.
//!
//! The rules of Uno (section 4.1, Algorithm 1) are in algo/unocc.rs, which also
//! lists where they differ from the paper. This file connects them to TCP.
//! Where that differs from the authors' simulator:
//!
//! 1. The fraction of marked bytes comes from AccECN's counters where both
//!    ends have them, else from an ECE per packet as DCTCP's receiver sends
//!    it; this module is such a receiver. Without ECN the flow is Reno's.
//! 2. `cong_control` sets window and rate for each ACK, because the kernel's
//!    own reaction to ECE would cut the window a second time.
//! 3. ssthresh() only answers; the window changes when Recovery or Loss
//!    begins. The kernel calls it for ECE too.
//! 4. While a loss is repaired the window follows what leaves the network, so
//!    that lost packets do not come back as one burst.
//! 5. `line_rate_mbps` cannot ask the egress device: its speed is known under
//!    RTNL, which cannot be taken where a connection is established.

use kernel::prelude::*;

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "tcp_glue.rs"]
mod tcp_glue;

use algo::{
    fixed::{FRACTION_BITS, RATIO_BITS},
    unocc::{Flow, Params, Profile, PARAMS},
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
    name: "tcp_unocc",
    authors: ["xdc developers"],
    description: "UnoCC congestion control",
    license: "GPL v2",
}

/// net.unocc.*: the profile, and then the rows of [`PARAMS`].
struct Sysctls;

/// Number of files.
const FILES: usize = 1 + PARAMS.len();

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
        let mut files = [PROFILE; FILES];
        let mut i = 0;
        while i < PARAMS.len() {
            files[1 + i] = tcp_glue::sysctl(&PARAMS[i], DEFAULT_PROFILE as usize);
            i += 1;
        }
        files
    };

    /// A profile sets every parameter; what is written after it overrides it.
    fn written(values: &sysctl::Values, index: usize) {
        if index != 0 {
            return;
        }
        let profile = values.get(index);
        for (row, index) in PARAMS.iter().zip(1..) {
            let default = row.defaults.iter().zip(0..).find(|&(_, i)| i == profile);
            if let Some((&default, _)) = default {
                values.set(index, u64::from(default));
            }
        }
    }
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
            alpha: self.flow.ecn_fraction() >> (FRACTION_BITS - RATIO_BITS),
            marked_bytes: self.flow.epoch_marked_bytes(),
            acked_bytes: self.flow.epoch_acked_bytes(),
        });
    }
}

/// What all sockets share.
struct UnoCc {
    sysctls: sysctl::Registration<Sysctls>,
}

impl UnoCc {
    fn params(&self, sk: &Sock<'_>) -> Params {
        let values = self.sysctls.of(sk.net());
        Params::read(|row| tcp_glue::value(values.get(row.wrapping_add(1))))
    }
}

#[vtable]
impl CongestionControl for UnoCc {
    const NAME: &'static CStr = c"unocc";
    const FLAGS: u32 = flags::NEEDS_ECN | flags::NEEDS_ACCECN;

    type Data = Socket;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Socket> {
        if !tcp_glue::has_ecn(sk) {
            return None;
        }
        let flow = Flow::new(
            &self.params(sk),
            sk.mstamp_us(),
            bytes(sk, sk.snd_cwnd()),
            tcp_glue::handshake_rtt_us(sk),
        );
        tcp_glue::apply(sk, &flow.output());
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

    fn cwnd_event_tx_start(&self, sk: &mut Sock<'_>, data: &mut Socket) {
        data.flow.on_idle_restart(sk.mstamp_us());
    }
}

/// Fields drop in this order: sockets go first, then what they read.
struct Module {
    _registration: Registration<UnoCc>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let sysctls = sysctl::Registration::new()?;
        Ok(Module {
            _registration: Registration::new(UnoCc { sysctls })?,
        })
    }
}
