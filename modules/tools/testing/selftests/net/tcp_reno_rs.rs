// SPDX-License-Identifier: GPL-2.0

//! Reno through our trait: the smallest congestion control, to compare the trait with the kernel's Reno.

use kernel::prelude::*;

#[path = "../../../../oot/kernel_api.rs"]
mod kernel_api;

use kernel_api::tcp::{flags, CongestionControl, NoDiagBlock, Registration, Sock};

module! {
    type: Module,
    name: "tcp_reno_rs",
    authors: ["xdc developers"],
    description: "Rust version of the kernel's Reno, for tests",
    license: "GPL v2",
}

struct Reno;

#[vtable]
impl CongestionControl for Reno {
    const NAME: &'static CStr = c"reno_rs";
    const FLAGS: u32 = flags::NON_RESTRICTED;

    type Diag = NoDiagBlock;

    type Data = ();

    fn init(&self, _sk: &mut Sock<'_>) -> Option<()> {
        Some(())
    }

    fn cong_avoid(&self, sk: &mut Sock<'_>, _data: &mut (), ack: u32, acked: u32) {
        sk.reno_cong_avoid(ack, acked);
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, _data: &mut ()) -> u32 {
        sk.reno_ssthresh()
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, _data: &mut ()) -> u32 {
        sk.reno_undo_cwnd()
    }
}

struct Module {
    _registration: Registration<Reno>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Module {
            _registration: Registration::new(Reno)?,
        })
    }
}
