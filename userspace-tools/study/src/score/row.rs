// SPDX-License-Identifier: GPL-2.0
//! Rows of the scorecard: one TOML file each in scenarios/score/.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_metric::metric::Metric;

use super::instructions;
use crate::sweep::grid::{Axis, Expanded, Grid};

/// A question to a congestion control: a grid of runs, and the metrics to read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// File name without extension.
    #[serde(skip)]
    pub id: String,
    pub title: String,
    /// The question in a sentence.
    pub asks: String,
    /// Name of a file in scenarios/score/net/.
    #[serde(default)]
    pub scenario: String,
    /// Count instructions per ACK with `xdc bench`'s guest, instead of a scenario and metrics.
    #[serde(default)]
    pub bench: bool,
    #[serde(default)]
    pub set: Vec<String>,
    #[serde(default)]
    pub axis: Vec<Axis>,
    /// Restrictions of the quick form.
    #[serde(default)]
    pub quick: Quick,
    #[serde(default)]
    pub metric: Vec<Measure>,
    /// Delay and throughput at the first point of the quick form.
    pub plot: Option<Plot>,
    /// Axis of growing noise, along which the card reports verdicts that change.
    pub ladder: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Labels to keep, by axis.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub set: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub x: Metric,
    pub y: Metric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// A metric with a direction and an ideal.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name in tables.
    pub name: String,
    pub metric: Metric,
    /// Denominator.
    pub over: Option<Metric>,
    /// Use 1 - value: for an index whose ideal is 1.
    #[serde(default)]
    pub complement: bool,
    /// Use max(value, 1 / value): for shares that should be equal.
    #[serde(default)]
    pub symmetric: bool,
    pub better: Better,
    /// The best possible value.
    pub ideal: f64,
    /// Ideals of some points, by one label or by all of them: "near, 1 MB".
    #[serde(default)]
    pub ideal_at: BTreeMap<String, f64>,
    /// Minimum; smaller values count as this, since ratios below it mean nothing.
    #[serde(default = "least")]
    pub floor: f64,
}

fn least() -> f64 {
    1e-3
}

impl Measure {
    /// Value from a run's metrics by name; None if missing or 0/0.
    pub fn of(&self, raw: &BTreeMap<String, f64>) -> Option<f64> {
        let mut value = *raw.get(&self.metric.to_string())?;
        if let Some(over) = &self.over {
            let over = raw.get(&over.to_string())?;
            if *over == 0.0 && value == 0.0 {
                return None;
            }
            value /= over;
        }
        if self.complement {
            value = 1.0 - value;
        }
        if self.symmetric {
            value = value.max(1.0 / value);
        }
        // A share of zero gets the worst value.
        value
            .is_finite()
            .then(|| value.max(self.floor))
            .or((value == f64::INFINITY && self.symmetric).then_some(1.0 / self.floor))
    }

    pub fn ideal(&self, labels: &[String]) -> f64 {
        let whole = self.ideal_at.get(&labels.join(", "));
        let own = whole.or_else(|| labels.iter().find_map(|label| self.ideal_at.get(label)));
        own.copied().unwrap_or(self.ideal).max(self.floor)
    }
}

impl Row {
    /// Loads all rows, sorted by number.
    pub fn load_all(home: &Home) -> Result<Vec<Self>> {
        let dir = home.scenarios().join("score");
        let mut rows = Vec::new();
        for entry in fs::read_dir(&dir).map_err(|err| Error::io(dir.display(), &err))? {
            let path = entry.map_err(|err| Error::io(dir.display(), &err))?.path();
            let Some(id) = xdc_scenario::name_of(&path).ok().filter(|_| path.is_file()) else {
                continue;
            };
            let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
            let mut row: Self = toml::from_str(&text)
                .map_err(|err| xdc_scenario::malformed(&text, &err).about(path.display()))?;
            row.check().map_err(|err| err.about(path.display()))?;
            row.id = id;
            rows.push(row);
        }
        rows.sort_by_key(|row| (row.number(), row.id.clone()));
        Ok(rows)
    }

    fn number(&self) -> u64 {
        self.id.trim_start_matches('S').parse().unwrap_or(u64::MAX)
    }

    fn check(&self) -> Result<()> {
        let knows = |name: &String| self.axis.iter().any(|axis| axis.name == *name);
        if self.bench != self.scenario.is_empty() || self.bench != self.metric.is_empty() {
            return Err(Error::usage("a row needs 'bench', or 'scenario' and [[metric]]"));
        }
        let named = self.quick.only.keys().chain(&self.ladder);
        match named.into_iter().find(|name| !knows(name)) {
            Some(name) => Err(Error::usage(format!("there is no axis '{name}'"))),
            None => Ok(()),
        }
    }

    /// Runs of the row for these congestion controls and seeds.
    pub fn expand(&self, home: &Home, form: &Form<'_>) -> Result<Expanded> {
        let mut grid = Grid::of(&network(home, &self.scenario).to_string_lossy());
        grid.axis.clone_from(&self.axis);
        grid.set.clone_from(&self.set);
        if form.quick {
            for axis in &mut grid.axis {
                if let Some(labels) = self.quick.only.get(&axis.name) {
                    axis.retain(labels);
                }
            }
            grid.set.extend(self.quick.set.iter().cloned());
        }
        grid.set.extend(form.sets.iter().cloned());
        grid.ccs = form.ccs.to_vec();
        grid.seeds = form.seeds.to_vec();
        let grid = grid.expand(home).map_err(|err| err.about(&self.id))?;
        for metric in self.metrics() {
            grid.check_metric(metric).map_err(|err| err.about(&self.id))?;
        }
        Ok(grid)
    }

    /// Names of the measured quantities.
    pub fn columns(&self) -> Vec<&str> {
        let names = self.metric.iter().map(|it| it.name.as_str());
        names.chain(self.bench.then_some(instructions::METRIC)).collect()
    }

    /// All metrics to keep of a run.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        let measures = self.metric.iter();
        let of_measures = measures.flat_map(|it| [Some(&it.metric), it.over.as_ref()]);
        let of_plot = self.plot.iter().flat_map(|plot| [&plot.x, &plot.y]);
        of_measures.flatten().chain(of_plot)
    }
}

/// Path of a network that rows share.
pub fn network(home: &Home, name: &str) -> PathBuf {
    home.scenarios().join("score/net").join(format!("{name}.toml"))
}

/// Form in which rows run.
pub struct Form<'a> {
    pub quick: bool,
    pub ccs: &'a [String],
    pub seeds: &'a [u64],
    pub sets: &'a [String],
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_scenario::plan;

    #[test]
    fn every_row_of_the_tree_can_be_run() {
        let home = xdc_base::testing::home();
        let rows = Row::load_all(&home).unwrap();
        assert!(rows.len() >= 14, "{}", rows.len());
        let ccs = ["unocc", "gemini", "dctcp", "cubic", "bbr", "reno"].map(str::to_owned);
        for row in rows.iter().filter(|row| !row.bench) {
            for quick in [true, false] {
                let form = Form { quick, ccs: &ccs, seeds: &[1], sets: &[] };
                let grid = row.expand(&home, &form).unwrap();
                for cell in &grid.cells {
                    let scenario = &grid.points[cell.point].loaded.scenario;
                    plan::plan(scenario, &cell.cc, cell.seed, 1)
                        .unwrap_or_else(|err| panic!("{}: {err}", row.id));
                }
                for label in row.metric.iter().flat_map(|it| it.ideal_at.keys()) {
                    let has =
                        |labels: &[String]| labels.join(", ") == *label || labels.contains(label);
                    let known = quick || grid.points.iter().any(|point| has(&point.labels));
                    assert!(known, "{}: no point has the label '{label}'", row.id);
                }
            }
        }
    }

    /// Written by `UPDATE_DOCS=1 cargo test -p xdc-study`.
    #[test]
    fn the_page_lists_every_row() {
        let rows = Row::load_all(&xdc_base::testing::home()).unwrap();
        let mut table =
            "| row | asks | points | quick | measured |\n|---|---|---:|---:|---|\n".to_owned();
        for row in &rows {
            let all: usize = row.axis.iter().map(|axis| axis.values.len()).product();
            let kept = |axis: &Axis| {
                let only = row.quick.only.get(&axis.name);
                only.map_or(axis.values.len(), Vec::len)
            };
            let quick: usize = row.axis.iter().map(kept).product();
            table += &format!(
                "| {} {} | {} | {all} | {quick} | {} |\n",
                row.id,
                row.title,
                row.asks,
                row.columns().join("; ")
            );
        }
        xdc_base::testing::holds("results/score.md", "rows", &table);
    }

    #[test]
    fn values_are_computed_as_the_row_defines() {
        let measure = |more: &str| -> Measure {
            let text = format!(
                "name = \"n\"\nmetric = \"drops\"\nbetter = \"lower\"\nideal = 1\n{more}\n"
            );
            toml::from_str(&text).unwrap()
        };
        let raw = |drops: f64| {
            let pairs = [("drops", drops), ("marks", 4.0)];
            pairs.map(|(name, value)| (name.to_owned(), value)).into()
        };
        assert_eq!(measure("").of(&raw(3.0)), Some(3.0));
        assert_eq!(measure("floor = 5").of(&raw(3.0)), Some(5.0));
        assert_eq!(measure("over = \"marks\"").of(&raw(3.0)), Some(0.75));
        assert_eq!(measure("complement = true").of(&raw(0.75)), Some(0.25));
        let equal = measure("over = \"marks\"\nsymmetric = true");
        assert_eq!(equal.of(&raw(2.0)), Some(2.0));
        assert_eq!(equal.of(&raw(8.0)), Some(2.0));
        assert_eq!(equal.of(&raw(0.0)), Some(1000.0));
        assert_eq!(measure("").of(&BTreeMap::new()), None);
    }
}
