// SPDX-License-Identifier: GPL-2.0
//! Plays the peer of a TCP flow packet by packet, to test each rule of an algorithm.
//!
//!     xdc-script [WORD...]     runs cases whose names have one of the words; all by default
//!
//! selftests/guest/05-script.sh creates the TUN device. Meant for User Mode Linux: in virtual time, packets
//! leave and ACKs arrive in exactly the microsecond of the case.

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
            ktap.case("open the device and disable timer slack", Err(error));
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
    // Real-time tasks have no timer slack; others wake up to a thousandth of the wait late.
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: The parameters are initialized, and 0 is this task.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
    nix::errno::Errno::result(result).context("cannot become a real-time task")?;
    lab::Lab::open()
}
