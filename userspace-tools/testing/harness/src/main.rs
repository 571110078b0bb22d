// SPDX-License-Identifier: GPL-2.0
//! `xdc-harness`: comparisons of the modules with the kernel's own. Exit codes are those of xdc.

#[macro_use]
extern crate xdc_base;

mod foreign;
mod twin;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xdc_base::interrupt;
use xdc_guest::tether;
use xdc_result::provenance::COMMIT;

#[derive(Parser)]
#[command(name = "xdc-harness", about = "Compare the modules of xdc with the kernel's own.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run third-party tests, with the kernel's modules and with ours.
    #[command(after_help = "\
Suites are the programs of selftests/guest/foreign/: the kernel's own tests of tc and of TCP, and
applications of the distribution. A case that passes with the kernel's own modules and fails with
ours is a failure; one that fails with both is listed.

Examples:
  xdc-harness foreign                    the fast selection
  xdc-harness foreign tdc-children --kernel debug
  xdc-harness foreign --long --update-docs")]
    Foreign(foreign::Request),
    /// Compare congestion controls with their Rust twins, packet by packet.
    #[command(after_help = "\
Examples:
  xdc-harness twin
  xdc-harness twin incast loss --seed 7
  xdc-harness twin one-flow --pcap captures")]
    Twin(twin::Request),
}

fn main() -> ExitCode {
    let _ = COMMIT.set(env!("XDC_COMMIT"));
    interrupt::exit(tether::become_guest().and_then(|()| {
        let command = Cli::parse().command;
        interrupt::install()?;
        match command {
            Command::Foreign(request) => foreign::command(&request),
            Command::Twin(request) => twin::command(&request),
        }
    }))
}
