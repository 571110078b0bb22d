// SPDX-License-Identifier: GPL-2.0
//! Counts packets before and after a port by eBPF, and compares them with the port's counters.
//!
//!     xdc-witness [GROUP...]         the port against the witnesses
//!     xdc-witness parents            the port below each qdisc that has children
//!     xdc-witness raw add|change dev DEV (root | parent MAJ:MIN) KIND NAME=TYPE:VALUE...
//!                                    options that `xdc qdisc` or tc's plugin would refuse, as the kernel does
//!     xdc-witness raw dump           the kernel's dump of every qdisc, in hexadecimal
//!     xdc-witness circuits ...       an optical circuit switch that counts its losses
//!     xdc-witness send|sink ...      greedy TCP flows
//!     xdc-witness packets ...        packets without a connection
//!     xdc-witness json POINTER...    the value at each RFC 6901 pointer of the JSON on standard
//!                                    input, one per line; fails if the input is not JSON

mod cases;
mod circuits;
mod eye;
mod json;
mod lab;
mod load;
mod packets;
mod raw;
#[path = "../../../ebpf/src/record.rs"]
mod record;
mod sender;

use std::{env, process::ExitCode};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use xdc_ktap::Ktap;

/// A veth forwards packets on the sending CPU, so those of two CPUs may overtake each other.
fn stay_on_one_cpu() -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    Ok(())
}

fn in_the_lab(run: impl FnOnce(&mut Ktap) -> anyhow::Result<()>) -> ExitCode {
    let mut ktap = Ktap::new();
    if let Err(error) = stay_on_one_cpu().and_then(|()| run(&mut ktap)) {
        ktap.case("set up the lab", Err(error));
    }
    ktap.finish()
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("raw") => raw::command(&args[1..]),
        Some("circuits") => circuits::command(&args[1..]),
        Some("send" | "sink") => load::command(&args),
        Some("packets") => packets::command(&args[1..]),
        Some("json") => json::command(&args[1..]),
        Some("parents") => in_the_lab(cases::parents::run_all),
        _ => in_the_lab(|ktap| cases::run(&args, ktap)),
    }
}
