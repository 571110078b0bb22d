// SPDX-License-Identifier: GPL-2.0
//! Runs all rows of a scorecard as one sweep, without references already known.

use std::collections::{BTreeMap, BTreeSet};

use xdc_base::error::Result;
use xdc_result::runner::Runner;
use xdc_scenario::plan;

use super::card::Samples;
use super::row::{Form, Row};
use super::store::{self, Sample, Store};
use crate::sweep::Sweep;
use crate::sweep::cells::Cells;
use crate::sweep::grid::{Cell, Expanded, Point};
use crate::sweep::lab::Lab;

/// Points of all rows, with the samples of each.
pub struct Runs {
    /// Row index and labels.
    pub points: Vec<(usize, Vec<String>)>,
    pub samples: Vec<Samples>,
    pub failed: usize,
    pub suspect: usize,
    pub kernel: String,
    /// Runs computed here or read from cells; the others come from the bundle.
    pub ran: usize,
    pub known: usize,
}

/// The bundle, and its use in this command.
pub struct Known<'a> {
    pub bundle: &'a Store,
    /// Congestion controls of the kernel alone, which the bundle covers.
    pub of: &'a [String],
    /// Samples used, by key.
    pub used: BTreeMap<String, Sample>,
    /// Set once some of the bundle's runs gave equal results here.
    pub bundle_agrees: bool,
}

impl Known<'_> {
    fn get(&self, key: &str) -> Option<&Sample> {
        self.bundle.get(key).filter(|_| self.bundle_agrees)
    }
}

pub fn run(
    rows: &[Row],
    form: &Form<'_>,
    (runner, lab, jobs): (Runner<'_>, &Lab, usize),
    known: &mut Known<'_>,
    cells: &Cells,
) -> Result<Runs> {
    let progress = runner.progress;
    let mut all = Expanded { axes: Vec::new(), points: Vec::new(), cells: Vec::new() };
    let mut runs = Runs {
        points: Vec::new(),
        samples: Vec::new(),
        failed: 0,
        suspect: 0,
        kernel: lab.home().release(xdc_base::home::Flavour::Uml)?,
        ran: 0,
        known: 0,
    };
    let metrics: Vec<BTreeSet<String>> =
        rows.iter().map(|row| row.metrics().map(ToString::to_string).collect()).collect();
    let mut wanted = Vec::new();
    for (n, row) in rows.iter().enumerate().filter(|(_, row)| !row.bench) {
        let grid = row.expand(lab.home(), form)?;
        let first = all.points.len();
        for Point { labels, loaded } in grid.points {
            runs.points.push((n, labels.clone()));
            runs.samples.push(Samples::new());
            // Name in progress lines and errors.
            let mut words = vec![row.id.clone()];
            words.extend(labels);
            all.points.push(Point { labels: words, loaded });
        }
        for cell in grid.cells {
            let cell = Cell { point: first + cell.point, ..cell };
            let scenario = &all.points[cell.point].loaded.scenario;
            let key = match known.of.contains(&cell.cc) {
                true => {
                    let plan = plan::plan(scenario, &cell.cc, cell.seed, 1)
                        .map_err(|err| err.about(&row.id))?;
                    let of = (cell.cc.as_str(), &metrics[n]);
                    Some(store::key(of, &plan, &scenario.windows(), &scenario.sizes())?)
                }
                false => None,
            };
            wanted.push((cell, key));
        }
    }
    let mut lab_runs = LabRuns { runner, lab, jobs, cells, metrics: &metrics, all: &mut all };
    if !known.bundle.is_empty() {
        let probes = probes(known, &wanted, &runs.points);
        known.bundle_agrees = lab_runs.agree(known, &probes, &mut runs)?;
        if !known.bundle_agrees {
            // The probes are read again from the cells, with all others.
            (runs.ran, runs.failed, runs.suspect) = (0, 0, 0);
            progress
                .note("the bundle of references differs from results of this lab and is not used");
        }
    }
    let mut missing = Vec::new();
    for (cell, key) in wanted {
        match key.as_deref().and_then(|key| known.get(key)).cloned() {
            Some(sample) => {
                known.used.extend(key.map(|key| (key, sample.clone())));
                runs.known += 1;
                runs.samples[cell.point].insert((cell.cc, cell.seed), sample);
            }
            None => missing.push((cell, key)),
        }
    }
    let samples = lab_runs.make(known, &missing, &mut runs)?;
    for ((cell, _), sample) in missing.into_iter().zip(samples) {
        if let Some(sample) = sample {
            runs.samples[cell.point].insert((cell.cc, cell.seed), sample);
        }
    }
    Ok(runs)
}

/// Picks one run per row that the bundle has, with the references in turn.
fn probes(known: &Known<'_>, wanted: &[Wanted], points: &[(usize, Vec<String>)]) -> Vec<Wanted> {
    let mut of_row: BTreeMap<usize, Vec<&Wanted>> = BTreeMap::new();
    for one in wanted {
        if one.1.as_deref().is_some_and(|key| known.bundle.get(key).is_some()) {
            of_row.entry(points[one.0.point].0).or_default().push(one);
        }
    }
    let turns = of_row.values().enumerate();
    let of_turn = turns.map(|(n, all)| {
        let whose = &known.of[n % known.of.len()];
        let own = all.iter().find(|(cell, _)| cell.cc == *whose);
        (*own.unwrap_or(&all[0])).clone()
    });
    of_turn.collect()
}

/// A run, and its key in the bundle if the bundle covers it.
type Wanted = (Cell, Option<String>);

/// Runs in guests of this lab.
struct LabRuns<'a> {
    runner: Runner<'a>,
    lab: &'a Lab,
    jobs: usize,
    cells: &'a Cells,
    /// Metrics by row.
    metrics: &'a [BTreeSet<String>],
    /// All points; its cells are replaced for each batch.
    all: &'a mut Expanded,
}

impl LabRuns<'_> {
    /// Computes the runs; None for a failed one.
    fn make(
        &mut self,
        known: &mut Known<'_>,
        wanted: &[Wanted],
        runs: &mut Runs,
    ) -> Result<Vec<Option<Sample>>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.all.cells = wanted.iter().map(|(cell, _)| cell.clone()).collect();
        let sweep = Sweep::new(self.runner, self.lab, self.all, self.cells)?;
        let mut samples = Vec::new();
        for ((cell, key), outcome) in wanted.iter().zip(sweep.run(self.jobs)?) {
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(err) => {
                    err.report();
                    runs.failed += 1;
                    samples.push(None);
                    continue;
                }
            };
            runs.ran += 1;
            let row = runs.points[cell.point].0;
            let sample = Sample::of(&outcome.run, &self.metrics[row])?;
            if sample.suspect {
                runs.suspect += 1;
                let why = outcome.run.suspect.join("; ");
                eprintln!("xdc: left out: {}: {why}", sweep.name(cell));
            } else if let Some(key) = key {
                known.used.insert(key.clone(), sample.clone());
            }
            samples.push(Some(sample));
        }
        Ok(samples)
    }

    /// Returns whether this lab reproduces the bundle's samples of these runs.
    fn agree(&mut self, known: &mut Known<'_>, probes: &[Wanted], runs: &mut Runs) -> Result<bool> {
        let samples = self.make(known, probes, runs)?;
        Ok(probes.iter().zip(&samples).all(|((_, key), ours)| {
            let theirs = key.as_deref().and_then(|key| known.bundle.get(key));
            matches!((theirs, ours), (Some(theirs), Some(ours)) if theirs.is_like(ours))
        }))
    }
}
