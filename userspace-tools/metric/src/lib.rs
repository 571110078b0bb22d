// SPDX-License-Identifier: GPL-2.0
//! Names of figures in scenarios and command lines, and their bounds. `xdc-measure` computes the
//! figures.

#![allow(missing_docs, reason = "only the xdc command uses it")]

pub mod bound;
pub mod interval;
pub mod metric;
mod table;
