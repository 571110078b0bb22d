// SPDX-License-Identifier: GPL-2.0
//! The names that a scenario and a command line have for figures, and what they are held to.
//! `xdc-measure` computes the figures.

pub mod bound;
pub mod interval;
pub mod metric;
