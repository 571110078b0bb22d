// SPDX-License-Identifier: GPL-2.0
//! What is measured: the names that a scenario and a command line have for it, and the figures
//! that they stand for.

pub mod bound;
pub mod interval;
pub mod metric;
pub mod run;
pub mod size;
