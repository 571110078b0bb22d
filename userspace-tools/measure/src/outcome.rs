// SPDX-License-Identifier: GPL-2.0
//! Result of a run kept by a sweep.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::{self, Windows};
use crate::record::Record;
use crate::run::Run;
use crate::throughput::{Line, throughput};

/// Above this number of flows, curves per flow are unreadable and take megabytes.
const MAX_CURVES: usize = 32;

/// A run's figures and curves, and their origin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Congestion control, named as in the scenario.
    pub cc: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Slowdown of the guest; all figures are corrected for it.
    pub scale: u32,
    /// `uml` or `qemu`.
    pub engine: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// Labels of the grid for which it was computed. An equal plan in another grid may have other
    /// labels, stored in that grid's table.
    pub axes: BTreeMap<String, String>,
    /// The figures of summary.json.
    pub run: Run,
    /// Throughput of each flow over time, us and bit/s; empty for many flows.
    pub throughput: Vec<Line>,
}

impl Outcome {
    /// Outcome by an engine at a scale, with the labels of a grid.
    pub fn of(
        record: &Record,
        windows: &Windows,
        (engine, scale): (&str, u32),
        axes: BTreeMap<String, String>,
    ) -> Self {
        Self {
            cc: record.cc.clone(),
            seed: record.plan.seed,
            scale,
            engine: engine.to_owned(),
            kernel: record.kernel.clone(),
            axes,
            run: figures::run(record, windows),
            throughput: match record.flows.len() {
                0..=MAX_CURVES => throughput(record, windows.jain_us),
                _ => Vec::new(),
            },
        }
    }

    /// Whether the run reports itself unreliable.
    pub fn is_suspect(&self) -> bool {
        !self.run.suspect.is_empty()
    }
}
