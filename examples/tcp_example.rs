// SPDX-License-Identifier: GPL-2.0

//! A congestion control to begin your own from: Scalable TCP (Kelly, 2003),
//! which grows by a hundredth of what is acknowledged and gives up an eighth.

use kernel::prelude::*;

#[path = "../modules/kernel/mod.rs"]
mod kernel_api;

use kernel_api::tcp::{flags, CongestionControl, NoDiagBlock, Registration, Sock};

module! {
    type: Module,
    name: "tcp_example",
    authors: ["xdc developers"],
    description: "Example of a congestion control",
    license: "GPL v2",
}

/// What all sockets share: here, nothing.
struct Example;

/// What each socket has of its own, in TCP's private area.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Packets acknowledged for which the window has not grown yet.
    credit: u32,
    cwnd_before_cut: u32,
}

#[vtable]
impl CongestionControl for Example {
    const NAME: &'static CStr = c"example";
    const FLAGS: u32 = flags::NON_RESTRICTED;

    type Diag = NoDiagBlock;

    type Data = Flow;

    fn init(&self, _sk: &mut Sock<'_>) -> Option<Flow> {
        Some(Flow::default())
    }

    fn cong_avoid(&self, sk: &mut Sock<'_>, flow: &mut Flow, _ack: u32, acked: u32) {
        if !sk.is_cwnd_limited() {
            return;
        }
        let left = if sk.in_slow_start() {
            sk.slow_start(acked)
        } else {
            acked
        };
        let credit = flow.credit.saturating_add(left);
        flow.credit = credit % 100;
        let cwnd = sk.snd_cwnd().saturating_add(credit / 100);
        sk.set_snd_cwnd(cwnd.min(sk.snd_cwnd_clamp()));
    }

    /// On loss, and on ECE where ECN was negotiated.
    fn ssthresh(&self, sk: &mut Sock<'_>, flow: &mut Flow) -> u32 {
        flow.cwnd_before_cut = sk.snd_cwnd();
        (flow.cwnd_before_cut - flow.cwnd_before_cut / 8).max(2)
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, flow: &mut Flow) -> u32 {
        sk.snd_cwnd().max(flow.cwnd_before_cut)
    }
}

struct Module {
    _registration: Registration<Example>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Module {
            _registration: Registration::new(Example)?,
        })
    }
}
