// SPDX-License-Identifier: GPL-2.0
//! `xdc-harness`: tests that need more than the xdc command. Exit codes are those of xdc.

#[macro_use]
extern crate xdc_base;

mod foreign;
mod twin;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xdc_base::interrupt;
use xdc_guest::tether;
use xdc_result::provenance::COMMIT;

#[derive(Parser)]
#[command(name = "xdc-harness", about = "Tests of xdc for its developers.")]
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
    /// Wrapper in which xdc starts guests: see [`tether`].
    #[command(name = tether::SUBCOMMAND, hide = true)]
    Tethered {
        parent: i32,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let _ = COMMIT.set(env!("XDC_COMMIT"));
    let outcome = match Cli::parse().command {
        Command::Tethered { parent, words } => {
            tether::become_program(parent, &words).map(|never| match never {})
        }
        Command::Foreign(request) => interrupt::install().and_then(|()| foreign::command(&request)),
        Command::Twin(request) => interrupt::install().and_then(|()| twin::command(&request)),
    };
    interrupt::exit(outcome)
}
