// SPDX-License-Identifier: GPL-2.0
//! Bounds of numeric options, by the modules' own file.

#[path = "../../../modules/net/sched/bounds.rs"]
mod of_modules;

pub(crate) use of_modules::*;

/// Reason to refuse a value, and the accepted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Cause, for an error message.
    pub sentence: String,
    /// Accepted values, for an error message.
    pub range: String,
}
