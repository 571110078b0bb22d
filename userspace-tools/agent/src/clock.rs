// SPDX-License-Identifier: GPL-2.0
//! CLOCK_MONOTONIC in nanoseconds.

use anyhow::{Context, Result};
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};

pub const NS_PER_US: u64 = 1000;
const NS_PER_S: u64 = 1_000_000_000;

pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("clock")?;
    Ok(now.tv_sec() as u64 * NS_PER_S + now.tv_nsec() as u64)
}

pub fn timespec(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / NS_PER_S) as i64, (ns % NS_PER_S) as i64)
}
