// SPDX-License-Identifier: GPL-2.0
//! `xdc sweep`: a grid of runs, as many at once as there are cores, resumed where it was left.

pub mod cells;
pub mod grid;
mod slurm;
pub mod stats;
pub mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use self::cells::{Cells, MAX_CURVES, Outcome};
use self::grid::{Axis, Cell, Expanded, Grid};
use crate::engine::{Clock, Engine, Kind};
use crate::error::{Error, Result};
use crate::figures;
use crate::home::{Flavour, Home};
use crate::progress::{Progress, Task};
use crate::record::Record;
use crate::run::Bench;
use crate::summary::{self, Windows};
use crate::{interrupt, plan, pool, results};

/// `xdc sweep`'s command line.
pub struct Request {
    /// A grid's file, or a scenario as for `xdc run`.
    pub grid: String,
    pub axes: Vec<String>,
    pub ccs: Vec<String>,
    pub seeds: Option<String>,
    pub sets: Vec<String>,
    pub engine: Option<Kind>,
    pub plot: Vec<String>,
    pub out: Option<PathBuf>,
    pub backend: Backend,
    /// More words for sbatch.
    pub sbatch: Vec<String>,
    /// Compute this cell only: what a job of a scheduler does.
    pub cell: Option<usize>,
    pub json: bool,
    pub jobs: usize,
    pub timeout: Duration,
}

/// Who runs the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// This machine.
    Local,
    /// A job array of Slurm; the checkout and --out are on a file system that all nodes share.
    Slurm,
}

/// Cells and what became of them.
pub struct Sweep<'a> {
    pub bench: Bench<'a>,
    pub grid: &'a Expanded,
    pub cells: Cells,
    /// Of each cell of the grid.
    keys: Vec<String>,
}

/// Whether every cell has a result that nothing speaks against.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let (name, spec) = spec(request)?;
    let grid = spec.expand(&home)?;
    let kind = request
        .engine
        .unwrap_or(grid.points[0].loaded.scenario.engine);
    let progress = Progress::new();
    let engine = Engine::new(&home, kind, Flavour::X86, Clock::Measuring)?;
    let dir = request
        .out
        .clone()
        .unwrap_or_else(|| Path::new("results/sweeps").join(&name));
    let bench = Bench {
        home: &home,
        engine,
        timeout: request.timeout,
        trace: &[],
        progress: &progress,
    };
    let sweep = Sweep::new(bench, &grid, &dir)?;
    if let Some(cell) = request.cell {
        let cells = grid.cells.len();
        if cell >= cells {
            return Err(Error::usage(format!(
                "the grid has {cells} cells, no number {cell}"
            )));
        }
        sweep.compute(cell)?;
        return Ok(true);
    }
    let outcomes = match request.backend {
        Backend::Local => sweep.run(request.jobs)?,
        Backend::Slurm => slurm::run(&sweep, &dir, request)?,
    };
    report(request, &name, &dir, &grid, outcomes)
}

/// The grid, and a name for it.
fn spec(request: &Request) -> Result<(String, Grid)> {
    let path = Path::new(&request.grid);
    let stem = path.file_stem().unwrap_or_default();
    let name = stem.to_string_lossy().into_owned();
    let text = match path.is_file() {
        true => fs::read_to_string(path).map_err(|err| Error::io(path.display(), &err))?,
        false => String::new(),
    };
    let mut grid = match Grid::is_one(&text) {
        true => Grid::parse(&text).map_err(|err| err.about(path.display()))?,
        false => Grid::of(&request.grid),
    };
    for axis in &request.axes {
        grid.axis.push(Axis::parse(axis)?);
    }
    if !request.ccs.is_empty() {
        grid.ccs.clone_from(&request.ccs);
    }
    if let Some(seeds) = &request.seeds {
        grid.seeds = grid::parse_seeds(seeds)?;
    }
    grid.set.extend(request.sets.iter().cloned());
    Ok((name, grid))
}

/// What each cell came to, in the grid's order.
pub type Outcomes = Vec<Result<Outcome>>;

impl<'a> Sweep<'a> {
    /// Plans every cell, so that a mistake costs no guest; cells are kept in `dir`.
    pub fn new(bench: Bench<'a>, grid: &'a Expanded, dir: &Path) -> Result<Self> {
        let mut sweep = Self {
            cells: Cells::open(&dir.join("cells"), bench.home, bench.engine)?,
            bench,
            grid,
            keys: Vec::new(),
        };
        for cell in &grid.cells {
            let (plan, _) = sweep.plan(cell)?;
            sweep.keys.push(sweep.cells.key(&plan)?);
        }
        Ok(sweep)
    }

    /// A cell in words: what a progress line and an error call it.
    pub fn name(&self, cell: &Cell) -> String {
        let point = &self.grid.points[cell.point];
        let mut words = vec![cell.cc.clone()];
        words.extend(point.labels.iter().cloned());
        words.push(format!("seed {}", cell.seed));
        words.join(", ")
    }

    fn plan(&self, cell: &Cell) -> Result<(xdc_proto::Plan, u32)> {
        let loaded = &self.grid.points[cell.point].loaded;
        let scale = match (loaded.scenario.scale, self.bench.engine) {
            (Some(scale), _) => scale,
            (None, Engine::Uml) => 1,
            // What a machine carries differs; cells are to be compared.
            (None, Engine::Qemu { .. } | Engine::Host) => {
                return Err(
                    Error::usage("a sweep on QEMU needs one scale for all its cells")
                        .hint("--set scale=10, or --engine uml"),
                );
            }
        };
        let plan = plan::plan(&loaded.scenario, &cell.cc, cell.seed, scale)
            .map_err(|err| err.about(self.name(cell)))?;
        Ok((plan, scale))
    }

    /// Numbers of the cells that have no result yet.
    fn missing(&self) -> Vec<usize> {
        let has = |&n: &usize| !self.cells.has(&self.keys[n]);
        (0..self.keys.len()).filter(has).collect()
    }

    /// Runs the guest of the `n`-th cell and keeps what it says.
    pub fn compute(&self, n: usize) -> Result<Outcome> {
        let cell = &self.grid.cells[n];
        let (plan, scale) = self.plan(cell)?;
        let scenario = &self.grid.points[cell.point].loaded.scenario;
        let record = self
            .bench
            .run_as(&self.name(cell), scenario, &cell.cc, plan, None)
            .map_err(|err| err.about(self.name(cell)))?;
        let windows = Windows::of(scenario, scale);
        let outcome = self.outcome(cell, scale, &record, &windows)?;
        let flows_csv = results::flows_csv(std::slice::from_ref(&record));
        self.cells.save(&self.keys[n], &outcome, &flows_csv)?;
        Ok(outcome)
    }

    fn outcome(
        &self,
        cell: &Cell,
        scale: u32,
        record: &Record,
        windows: &Windows,
    ) -> Result<Outcome> {
        let run = serde_json::to_value(summary::run(record, windows))
            .map_err(|err| Error::failure(format!("the summary cannot be written: {err}")))?;
        let throughput = match record.flows.len() {
            0..=MAX_CURVES => figures::throughput(record, windows.jain_us),
            _ => Vec::new(),
        };
        Ok(Outcome {
            cc: cell.cc.clone(),
            seed: cell.seed,
            scale,
            engine: self.bench.engine.kind().name().to_owned(),
            kernel: record.kernel.clone(),
            run,
            throughput,
        })
    }

    /// Computes on this machine what is missing; an error only for an interruption, which
    /// leaves what is finished for the next time.
    pub fn run(&self, jobs: usize) -> Result<Outcomes> {
        let mut outcomes: Vec<_> = self
            .keys
            .iter()
            .map(|key| self.cells.load(key).map(Ok))
            .collect();
        let missing: Vec<usize> = (0..outcomes.len())
            .filter(|&n| outcomes[n].is_none())
            .collect();
        let total = Mutex::new(Total::new(self, missing.len()));
        let computed = pool::run_all(&missing, jobs, |&n| {
            let outcome = self.compute(n);
            if let Ok(mut total) = total.lock() {
                total.step(jobs);
            }
            outcome
        })?;
        if let Ok(total) = total.into_inner() {
            total.finish();
        }
        for (n, outcome) in missing.into_iter().zip(computed) {
            outcomes[n] = Some(outcome);
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}

/// How far a sweep is, and how long the rest may take.
pub struct Total {
    task: Option<Task>,
    known: usize,
    missing: usize,
    done: usize,
    start: Instant,
}

impl Total {
    pub fn new(sweep: &Sweep<'_>, missing: usize) -> Self {
        let known = sweep.grid.cells.len() - missing;
        if known > 0 {
            let note = format!(
                "{known} of {} cells are there already",
                sweep.grid.cells.len()
            );
            sweep.bench.progress.note(&note);
        }
        Self {
            task: (missing > 0).then(|| sweep.bench.progress.task("sweep")),
            known,
            missing,
            done: 0,
            start: Instant::now(),
        }
    }

    /// One more of `jobs` at a time.
    pub fn step(&mut self, jobs: usize) {
        self.done += 1;
        let left = self.missing - self.done.min(self.missing);
        // What is under way is half done, on average.
        let under_way = jobs.min(left) as f64 / 2.0;
        let each = self.start.elapsed().as_secs_f64() / (self.done as f64 + under_way);
        let rest_s = each * (left as f64 - under_way);
        let what = format!(
            "{} of {} cells, about {} left",
            self.known + self.done,
            self.known + self.missing,
            coarse(rest_s)
        );
        if let Some(task) = &mut self.task {
            task.set(&what, self.done as f64 / self.missing as f64);
        }
    }

    pub fn finish(self) {
        if let Some(task) = self.task {
            let s = self.start.elapsed().as_secs_f64();
            task.finish(&format!("{} cells computed in {}", self.done, coarse(s)));
        }
    }
}

/// A time as an estimate has it.
fn coarse(s: f64) -> String {
    match s {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Writes the table and the plots, and says where they are.
fn report(
    request: &Request,
    name: &str,
    dir: &Path,
    grid: &Expanded,
    outcomes: Outcomes,
) -> Result<bool> {
    let mut rows = Vec::new();
    let mut failed = 0;
    for (cell, outcome) in grid.cells.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => rows.push((cell, outcome)),
            Err(err) => {
                err.report();
                failed += 1;
            }
        }
    }
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|err| Error::io(path.display(), &err))
    };
    write("table.csv", &table::csv(grid, &rows))?;
    let metrics = match request.plot.is_empty() {
        true => table::default_metrics(&rows),
        false => request.plot.clone(),
    };
    write("plots.svg", &table::plots(grid, &rows, &metrics)?)?;
    interrupt::end_on_closed_pipe()?;
    let doubts = rows.iter().filter(|(_, outcome)| {
        outcome.run["suspect"]
            .as_array()
            .is_some_and(|doubts| !doubts.is_empty())
    });
    let doubts = doubts.count();
    if request.json {
        let cells: Vec<_> = rows
            .iter()
            .map(|(cell, outcome)| table::json(grid, cell, outcome))
            .collect();
        println!(
            "{:#}",
            json!({"sweep": name, "failed": failed, "suspect": doubts, "cells": cells})
        );
    } else {
        print!("{}", table::text(grid, &rows, &metrics));
        println!("table: {}", dir.join("table.csv").display());
        println!("plots: {}", dir.join("plots.svg").display());
    }
    if doubts > 0 {
        eprintln!("xdc: {doubts} cells are suspect: the column 'suspect' of the table says why");
    }
    if failed > 0 {
        eprintln!(
            "xdc: {failed} of {} cells failed; the same command tries them again",
            grid.cells.len()
        );
    }
    Ok(failed == 0 && doubts == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_a_fitting_unit() {
        assert_eq!(coarse(12.4), "12 s");
        assert_eq!(coarse(300.0), "5 min");
        assert_eq!(coarse(9000.0), "2.5 h");
    }
}
