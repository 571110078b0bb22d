// SPDX-License-Identifier: GPL-2.0

//! An example congestion control to start from: Scalable TCP (Kelly, 2003),
//! which grows by a hundredth of the acknowledged packets and gives up an
//! eighth on loss.

use kernel::prelude::*;

#[path = "../modules/oot/kernel_api.rs"]
mod kernel_api;

use kernel_api::tcp::{flags, CongestionControl, NoDiagBlock, Registration, Sock};

module! {
    type: Module,
    name: "tcp_example",
    authors: ["xdc developers"],
    description: "Example of a congestion control",
    license: "GPL v2",
}

/// Data that all sockets share: here, none.
struct Example;

/// State of one socket, in TCP's private area.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Acknowledged packets for which the window has not grown yet.
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

    /// The kernel calls this on loss, and on ECE if ECN was negotiated.
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
