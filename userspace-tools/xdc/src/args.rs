// SPDX-License-Identifier: GPL-2.0
//! What several commands' words have in common.

use std::time::Duration;

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// How long to wait for a guest that is silent.
pub fn seconds() -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u64)
        .range(1..=1_000_000)
        .map(Duration::from_secs)
}

/// Those that a scenario's file can repeat: TOML's integers have a sign.
pub fn seed() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(0..=i64::MAX as u64)
}

/// One guest per CPU.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
