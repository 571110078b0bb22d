// SPDX-License-Identifier: GPL-2.0

//! Bounds of numeric options. Kbuild compiles them into qdiscs, and cargo into the options' codec.

// Each qdisc uses a part.
#![allow(dead_code)]

/// The values that a number may have, both ends included, and their unit.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) unit: &'static str,
}

const fn bounds(min: i64, max: i64, unit: &'static str) -> Bounds {
    Bounds { min, max, unit }
}

pub(crate) const fn bytes(min: i64, max: i64) -> Bounds {
    bounds(min, max, "bytes")
}

/// Up to 8 Pbit/s: a larger rate would be a mistake of units.
pub(crate) const fn rate(min: i64) -> Bounds {
    bounds(min, 1_000_000_000_000_000, "bytes per second")
}

pub(crate) const fn ppm(min: i64, max: i64) -> Bounds {
    bounds(min, max, "ppm")
}

pub(crate) const fn count(min: i64, max: i64) -> Bounds {
    bounds(min, max, "")
}

pub(crate) const fn ns(min: i64, max: i64) -> Bounds {
    bounds(min, max, "ns")
}

/// The kernel counts a backlog in 32 bits.
pub(crate) const MAX_BYTES: i64 = u32::MAX as i64;
pub(crate) const MAX_PPM: i64 = 1_000_000;

pub(crate) const NS_PER_US: i64 = 1_000;
pub(crate) const NS_PER_S: i64 = 1_000_000_000;
