// SPDX-License-Identifier: GPL-2.0
//! A paper's figures as TOML: the runs of each, what is drawn, what the paper reports and claims.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use crate::command::sweep::grid::{Expanded, Grid};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::measure::metric::Metric;
use crate::scenario;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    pub title: String,
    /// Authors, venue, year.
    pub reference: String,
    pub figure: Vec<Figure>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As the paper numbers it: `8`, `10`, `V`.
    pub id: String,
    pub title: String,
    /// What was done, in a sentence or two.
    #[serde(default)]
    pub setup: String,
    /// What is not as in the paper.
    #[serde(default)]
    pub differs: Vec<String>,
    pub grid: Grid,
    /// A smaller form of it; figures without one are left out of `--quick`.
    pub quick: Option<Quick>,
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// Draw each flow's throughput over time at each point.
    #[serde(default)]
    pub curves: bool,
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// What `--quick` changes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Instead of the grid's.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// On top of the grid's.
    #[serde(default)]
    pub set: Vec<String>,
    /// Which labels of an axis are kept.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
}

/// A chart of bars: a metric over the first axis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub metric: Metric,
    pub title: String,
    /// What the paper has: by congestion control, one number per point of the grid.
    #[serde(default)]
    pub paper: BTreeMap<String, Vec<f64>>,
}

/// Something that the paper says; it holds if all its rows do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub text: String,
    /// Where the paper says it.
    #[serde(default)]
    pub source: String,
    /// What we found, where it differs: why.
    #[serde(default)]
    pub finding: String,
    /// What came out when this was written; `--check` fails where it gets worse.
    pub verdict: Option<Verdict>,
    /// The same of the quick form.
    pub quick_verdict: Option<Verdict>,
    pub row: Vec<Row>,
}

impl Claim {
    /// What is pinned.
    pub fn pinned(&self, quick: bool) -> Option<Verdict> {
        match quick {
            true => self.quick_verdict,
            false => self.verdict,
        }
    }
}

/// What can be said of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// This run has none of its points, or one of them has no such value.
    #[serde(skip)]
    Unknown,
    Fails,
    Partly,
    Holds,
}

impl Verdict {
    pub fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Partly => "holds partly",
            Self::Fails => "does not hold here",
            Self::Unknown => "not measured",
        }
    }
}

/// A metric, or how many times another one it is, and its bounds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    #[serde(flatten)]
    pub of: Which,
    /// Divide by this one.
    pub over: Option<Which>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// What the paper has for it.
    pub paper: Option<f64>,
}

/// One mean over seeds.
#[derive(Debug, Clone, Deserialize)]
pub struct Which {
    pub metric: Metric,
    pub cc: String,
    /// Labels by axis; without them the grid's only point.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

impl Paper {
    /// By its name in scenarios/papers/.
    pub fn load(home: &Home, name: &str) -> Result<Self> {
        let dir = home.scenarios().join("papers");
        let path = dir.join(format!("{name}.toml"));
        let text = fs::read_to_string(&path)
            .map_err(|_| Error::usage(format!("no paper '{name}'")).hint(names(&dir).join(", ")))?;
        let paper: Self = toml::from_str(&text)
            .map_err(|err| scenario::malformed(&text, &err).about(path.display()))?;
        Ok(paper)
    }
}

/// Of the papers there are.
fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".toml")?.to_owned())
        })
        .collect();
    names.sort();
    names
}

impl Figure {
    /// That runs of its grid have the metrics it names.
    pub fn check(&self, grid: &Expanded) -> Result<()> {
        let rows = self.claim.iter().flat_map(|claim| &claim.row);
        let of_rows = rows.flat_map(|row| [Some(&row.of), row.over.as_ref()]);
        let of_rows = of_rows.flatten().map(|which| &which.metric);
        let metrics = self.plot.iter().map(|plot| &plot.metric).chain(of_rows);
        for metric in metrics {
            grid.check_metric(metric)?;
        }
        Ok(())
    }

    /// `Figure 8`; a Roman number is that of a table.
    pub fn name(&self) -> String {
        let kind = match self.id.starts_with(|c: char| c.is_ascii_digit()) {
            true => "Figure",
            false => "Table",
        };
        format!("{kind} {}", self.id)
    }

    /// The grid to run; none if `quick` leaves the figure out.
    pub fn grid(&self, quick: bool) -> Option<Grid> {
        let mut grid = self.grid.clone();
        if !quick {
            return Some(grid);
        }
        let changes = self.quick.as_ref()?;
        if !changes.ccs.is_empty() {
            grid.ccs.clone_from(&changes.ccs);
        }
        grid.set.extend(changes.set.iter().cloned());
        for axis in &mut grid.axis {
            if let Some(only) = changes.only.get(&axis.name) {
                axis.retain(only);
            }
        }
        grid.seeds.truncate(1);
        Some(grid)
    }
}
