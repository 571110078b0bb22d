// SPDX-License-Identifier: GPL-2.0
//! `[[expect]]` and `[[agree]]`.

use super::*;

/// A claim about a metric of the summary.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Metric: `jain_mean`, `fct_ms.max`
    pub metric: Metric,
    pub cc: String,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Must be less than the metric of this congestion control.
    pub less_than_cc: Option<String>,
    /// Applies to this engine only.
    pub engine: Option<Kind>,
    /// Source of the bound.
    pub source: String,
}

impl Expect {
    pub fn bound(&self) -> Bound<'_> {
        Bound { min: self.min, max: self.max, less_than_cc: self.less_than_cc.as_deref() }
    }
}

/// Allowed difference of a metric between two results of a scenario.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agree {
    /// Metric, as in [`Expect`].
    pub metric: Metric,
    /// Congestion controls to which this applies; empty: all.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// Allowed difference relative to the larger value.
    pub within: f64,
    /// Differences up to this, in the metric's unit, are ignored.
    #[serde(default)]
    pub slack: f64,
    /// Reason for the remaining difference.
    pub why: String,
}

impl Agree {
    pub fn concerns(&self, cc: &str) -> bool {
        self.ccs.is_empty() || self.ccs.iter().any(|name| name == cc)
    }
}
