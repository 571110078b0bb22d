// SPDX-License-Identifier: GPL-2.0
//! Charts and pages.

#![allow(missing_docs, reason = "internal: names and types say most")]

pub mod bars;
pub mod charts;
pub mod overlay;
pub mod plot;
pub mod report;
pub mod scatter;
pub mod shape;
pub mod topology;
