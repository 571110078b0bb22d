// SPDX-License-Identifier: GPL-2.0
//! From what a guest says to a result: the record of a run, its metrics, its files, and the claims
//! that are checked against them.

pub mod capture;
pub mod costs;
pub mod expect;
pub mod fct;
pub mod files;
pub mod provenance;
pub mod record;
pub mod stored;
pub mod summary;
pub mod table;
