// SPDX-License-Identifier: GPL-2.0
//! What a sweep keeps of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::{self, Windows};
use crate::record::Record;
use crate::run::Run;
use crate::throughput::{Line, throughput};

/// Above it, curves per flow show nothing and take megabytes.
const MAX_CURVES: usize = 32;

/// A run's figures and curves, and where they are from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Congestion control, as the scenario calls it.
    pub cc: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// How many times slower the guest was; all figures are corrected for it.
    pub scale: u32,
    /// `uml` or `qemu`.
    pub engine: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// The labels of the grid that it was computed for: one of the same plan in another grid may
    /// have others, which that grid's table has.
    pub axes: BTreeMap<String, String>,
    /// The figures of summary.json.
    pub run: Run,
    /// Throughput of each flow over time, where they are few; us and bit/s.
    pub throughput: Vec<Line>,
}

impl Outcome {
    /// By an engine at a scale, with the labels of a grid.
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

    /// The run itself says that it is not reliable.
    pub fn is_suspect(&self) -> bool {
        !self.run.suspect.is_empty()
    }
}
