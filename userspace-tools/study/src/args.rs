// SPDX-License-Identifier: GPL-2.0
//! Arguments that several commands share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// Arguments of commands that run many guests.
#[derive(clap::Args)]
pub struct Guests {
    /// Guests at a time [default: one per CPU].
    #[arg(long, value_name = "N", default_value_t = cpus(), hide_default_value = true)]
    pub jobs: usize,
    /// Give up on a guest that is silent for this long.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds())]
    pub timeout: Duration,
}

/// Finished cells that are computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Again {
    /// Cells whose run was suspect, for example on a loaded machine.
    Suspect,
    All,
}

/// Arguments of commands that judge.
#[derive(clap::Args)]
pub struct Outcome {
    /// Directory of runs and their results [default: results/ and the command's name].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Outcome {
    pub fn dir(&self, command: &str) -> PathBuf {
        let default = || Path::new("results").join(command);
        self.out.clone().unwrap_or_else(default)
    }
}

/// Parser of a guest's timeout, 1 to 1,000,000 s.
pub fn seconds() -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u64).range(1..=1_000_000).map(Duration::from_secs)
}

/// Parser of seeds that a scenario's file can repeat: TOML's integers are signed.
pub fn seed() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(0..=i64::MAX as u64)
}

/// One guest per CPU.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
