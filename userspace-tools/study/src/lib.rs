// SPDX-License-Identifier: GPL-2.0
//! Studies: many runs, their table and their verdicts.

#![allow(missing_docs, reason = "internal: names and types say most")]

#[macro_use]
extern crate xdc_base;

pub mod args;
pub mod bench;
pub mod compare;
pub mod hunt;
pub mod paper;
pub mod score;
pub mod selftest;
pub mod sweep;
pub mod table;
pub mod tune;
