// SPDX-License-Identifier: GPL-2.0
//! From a guest to a result: runs in guests, the record of each, its figures, its files, and the
//! claims that are checked against them.

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
#[cfg(test)]
pub mod testing;
