// SPDX-License-Identifier: GPL-2.0
//! summary.json. Keys are stable and include their unit; a figure that does not apply is null.
//! [`xdc_metric::metric`] defines the figures.

use serde::{Deserialize, Serialize};
use xdc_measure::run::Run;

use crate::provenance::Provenance;

/// Version of summary.json; changes with the meaning of a key.
pub const SCHEMA: u32 = 2;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub schema: u32,
    pub scenario: String,
    pub engine: String,
    /// kvm, tcg or icount; null in virtual time.
    pub accel: Option<String>,
    pub seed: u64,
    /// Slowdown of the guest; all measured values are corrected for it.
    pub scale: u32,
    pub kernel: String,
    pub provenance: Provenance,
    /// Congestion controls not run because of an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<String>,
    pub runs: Vec<Run>,
}

impl Summary {
    /// Run of a congestion control.
    pub fn run(&self, cc: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.cc == cc)
    }
}

#[cfg(any(test, feature = "testing"))]
impl Summary {
    /// Summary of runs in UML.
    pub fn of_runs(runs: Vec<Run>) -> Self {
        Self {
            schema: SCHEMA,
            scenario: "small".to_owned(),
            engine: "uml".to_owned(),
            accel: None,
            seed: 1,
            scale: 1,
            kernel: "7.3.4".to_owned(),
            provenance: Provenance::default(),
            interrupted: Vec::new(),
            runs,
        }
    }
}
