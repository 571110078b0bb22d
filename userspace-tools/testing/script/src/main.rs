// SPDX-License-Identifier: GPL-2.0
//! Plays the receiver of a TCP flow packet by packet, so that each rule of an algorithm has a case.
//!
//!     xdc-script [WORD...]     the cases whose names have one of the words; all without any
//!
//! selftests/guest/05-script.sh makes the device that it needs. Meant for User Mode Linux: in virtual time
//! a packet leaves, and an ACK arrives, in exactly the microsecond that the case says.

mod cases;
mod flow;
mod lab;
mod tun;
mod wire;
mod witness;

use std::process::ExitCode;

use anyhow::Context;
use nix::libc;
use xdc_ktap::Ktap;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut ktap = Ktap::new();
    let mut lab = match prepare() {
        Ok(lab) => lab,
        Err(error) => {
            ktap.case("the device and a clock without slack", Err(error));
            return ktap.finish();
        }
    };
    for case in cases::all() {
        if words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str())) {
            ktap.case(case.name, (case.run)(&mut lab));
        }
    }
    ktap.finish()
}

fn prepare() -> anyhow::Result<lab::Lab> {
    // A real-time task wakes when it asked to; others up to a thousandth of the wait later.
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are complete, and 0 is this task.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
    nix::errno::Errno::result(result).context("cannot become a real-time task")?;
    lab::Lab::open()
}
