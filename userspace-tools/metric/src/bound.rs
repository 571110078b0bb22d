// SPDX-License-Identifier: GPL-2.0
//! Bounds of a value.

use std::fmt;

/// Bounds of an expectation, or of a row of a paper's claim.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bound<'a> {
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Congestion control whose value of the metric must be larger.
    pub less_than_cc: Option<&'a str>,
}

impl Bound<'_> {
    pub fn is_none(self) -> bool {
        self.min.is_none() && self.max.is_none() && self.less_than_cc.is_none()
    }

    /// Whether `value` satisfies the bounds; `other` is the value of `less_than_cc`.
    pub fn holds(self, value: f64, other: Option<f64>) -> bool {
        self.min.is_none_or(|min| value >= min)
            && self.max.is_none_or(|max| value <= max)
            && (self.less_than_cc.is_none() || other.is_some_and(|other| value < other))
    }
}

impl fmt::Display for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.min.map(|min| format!(">= {min}")),
            self.max.map(|max| format!("<= {max}")),
            self.less_than_cc.map(|cc| format!("< {cc}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}
