// SPDX-License-Identifier: GPL-2.0
//! Results: runs in guests, their records, figures and files, and the expectations checked against
//! them.

#![allow(missing_docs, reason = "internal: names and types say most")]

#[macro_use]
extern crate xdc_base;

pub mod capture;
pub mod costs;
pub mod expect;
pub mod files;
pub mod probe;
pub mod provenance;
pub mod runner;
pub mod stored;
pub mod summary;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
