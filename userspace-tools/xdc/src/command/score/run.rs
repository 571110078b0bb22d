// SPDX-License-Identifier: GPL-2.0
//! Runs of a scorecard's rows: all rows are one sweep, without what is known of references.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::card::Samples;
use super::row::{Form, Row};
use super::store::{self, Sample, Store};
use crate::command::sweep::Sweep;
use crate::command::sweep::grid::{Cell, Expanded, Point};
use crate::command::sweep::lab::Lab;
use crate::error::Result;
use crate::result::runner::Runner;
use crate::result::summary::Windows;
use crate::scenario::plan;

/// Points of all rows, and what was read at each.
pub struct Runs {
    /// Index of the row, and labels.
    pub points: Vec<(usize, Vec<String>)>,
    pub samples: Vec<Samples>,
    pub failed: usize,
    pub suspect: usize,
    pub kernel: String,
    /// Runs that were made here, or read from the sweep's cells; the others are of a store.
    pub ran: usize,
    pub known: usize,
}

/// What is known already, first the bundle.
pub struct Known<'a> {
    pub bundle: &'a Store,
    pub here: &'a mut Store,
    /// Congestion controls that are the kernel's alone.
    pub of: &'a [String],
    /// Everything that is kept of those, by its key.
    pub used: BTreeMap<String, Sample>,
}

pub fn run(
    rows: &[Row],
    form: &Form<'_>,
    (runner, lab, jobs): (Runner<'_>, &Lab, usize),
    known: &mut Known<'_>,
    dir: &Path,
) -> Result<Runs> {
    let mut all = Expanded {
        axes: Vec::new(),
        points: Vec::new(),
        cells: Vec::new(),
    };
    let mut runs = Runs {
        points: Vec::new(),
        samples: Vec::new(),
        failed: 0,
        suspect: 0,
        kernel: lab.home().release(crate::home::Flavour::Uml)?,
        ran: 0,
        known: 0,
    };
    let mut keys = Vec::new();
    let metrics: Vec<BTreeSet<String>> = rows
        .iter()
        .map(|row| row.metrics().map(ToString::to_string).collect())
        .collect();
    for (n, row) in rows.iter().enumerate() {
        let grid = row.expand(lab.home(), form)?;
        let first = all.points.len();
        for Point { labels, loaded } in grid.points {
            runs.points.push((n, labels.clone()));
            runs.samples.push(Samples::new());
            // What a line of progress and an error call it.
            let mut words = vec![row.id.clone()];
            words.extend(labels);
            all.points.push(Point {
                labels: words,
                loaded,
            });
        }
        for cell in grid.cells {
            let cell = Cell {
                point: first + cell.point,
                ..cell
            };
            let scenario = &all.points[cell.point].loaded.scenario;
            let key = match known.of.contains(&cell.cc) {
                true => {
                    let plan = plan::plan(scenario, &cell.cc, cell.seed, 1)
                        .map_err(|err| err.about(&row.id))?;
                    let of = (cell.cc.as_str(), &metrics[n]);
                    Some(store::key(
                        of,
                        &plan,
                        &Windows::of(scenario),
                        &scenario.sizes(),
                    )?)
                }
                false => None,
            };
            let sample = key.as_ref().and_then(|key| {
                let bundled = known.bundle.get(key);
                bundled.or_else(|| known.here.get(key)).cloned()
            });
            match sample {
                Some(sample) => {
                    if let Some(key) = key {
                        known.used.insert(key, sample.clone());
                    }
                    runs.known += 1;
                    runs.samples[cell.point].insert((cell.cc, cell.seed), sample);
                }
                None => {
                    keys.push(key);
                    all.cells.push(cell);
                }
            }
        }
    }
    if all.cells.is_empty() {
        return Ok(runs);
    }
    let sweep = Sweep::new(runner, lab, &all, dir)?;
    let outcomes = sweep.run(jobs)?;
    for ((cell, key), outcome) in all.cells.iter().zip(keys).zip(outcomes) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(err) => {
                err.report();
                runs.failed += 1;
                continue;
            }
        };
        runs.ran += 1;
        let row = runs.points[cell.point].0;
        let sample = Sample::of(&outcome.run, &metrics[row])?;
        if sample.suspect {
            runs.suspect += 1;
            let why = outcome.run.suspect.join("; ");
            eprintln!("xdc: left out: {}: {why}", sweep.name(cell));
        } else if let Some(key) = key {
            known.here.put(key.clone(), sample.clone());
            known.used.insert(key, sample.clone());
        }
        runs.samples[cell.point].insert((cell.cc.clone(), cell.seed), sample);
    }
    Ok(runs)
}
