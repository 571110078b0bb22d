// SPDX-License-Identifier: GPL-2.0
//! Counts what enters and leaves a port by eBPF, and compares it with what the port says.
//!
//!     xdc-witness [GROUP...]         the port against the witnesses
//!     xdc-witness parents            the port below each qdisc that has children
//!     xdc-witness raw add|change dev DEV (root | parent MAJ:MIN) KIND NAME=TYPE:VALUE...
//!                                    options that `xdc qdisc` or tc's plugin would refuse, as the kernel does
//!     xdc-witness raw dump           what the kernel says of every qdisc, in hexadecimal
//!     xdc-witness circuits ...       an optical circuit switch that counts what it loses
//!     xdc-witness send|sink ...      TCP flows that send whatever the network takes
//!     xdc-witness packets ...        packets of no connection
//!     xdc-witness json POINTER...    of the JSON on standard input, the value at each RFC 6901
//!                                    pointer, a line each; a failure if it is not JSON

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

/// A veth hands packets on by the CPU that sent them: those of two may overtake each other.
fn stay_on_one_cpu() -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    Ok(())
}

fn in_the_lab(run: impl FnOnce(&mut Ktap) -> anyhow::Result<()>) -> ExitCode {
    let mut ktap = Ktap::new();
    if let Err(error) = stay_on_one_cpu().and_then(|()| run(&mut ktap)) {
        ktap.case("the lab is set up", Err(error));
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
