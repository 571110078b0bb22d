// SPDX-License-Identifier: GPL-2.0
//! Charts and pages.

pub mod bars;
pub mod charts;
pub mod overlay;
pub mod plot;
pub mod report;
pub mod scatter;
pub mod topology;
