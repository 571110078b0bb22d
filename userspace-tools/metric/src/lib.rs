// SPDX-License-Identifier: GPL-2.0
//! Names of figures in scenarios and command lines, and their bounds. `xdc-measure` computes the
//! figures.

#![allow(missing_docs, reason = "internal: names and types say most")]

pub mod bound;
pub mod interval;
pub mod metric;
mod table;
