// SPDX-License-Identifier: GPL-2.0
//! Services for all crates of the `xdc` command: errors, output, signals, the home, units and text.

#![allow(missing_docs, reason = "internal: names and types say most")]

#[macro_use]
pub mod out;

#[doc(hidden)]
pub use schemars;

pub mod added;
pub mod error;
pub mod home;
pub mod interrupt;
pub mod marked;
pub mod owned;
pub mod pool;
pub mod progress;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod trust;
pub mod units;
