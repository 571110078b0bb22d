// SPDX-License-Identifier: GPL-2.0
//! `xdc sweep`: a resumable grid of runs, one per core at a time.

pub mod cells;
pub mod grid;
pub mod lab;
pub mod plots;
mod slurm;
pub mod stats;
pub mod table;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::json;
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Flavour, Home};
use xdc_base::progress::{Progress, Task};
use xdc_base::{interrupt, owned, pool};
use xdc_guest::engine::{Clock, Engine};
use xdc_measure::outcome::Outcome;
use xdc_metric::metric::{Metric, SEE_TABLE, Unknown};
use xdc_result::files;
use xdc_result::runner::Runner;
use xdc_scenario::beside;
use xdc_scenario::engine::Kind;
use xdc_scenario::plan;

use self::cells::{Cells, Inputs};
use self::grid::{Axis, Cell, Expanded, Grid};
use self::lab::Lab;
use self::table::{Part, Row};
use crate::args::{self, Again};

#[derive(clap::Args)]
pub struct Request {
    /// A grid's TOML file, or a scenario as for `run`.
    grid: String,
    /// Add a dimension: a dotted key as for `run --set`, and its values.
    #[arg(long = "axis", value_name = "KEY=V1,V2,...")]
    axes: Vec<String>,
    /// Congestion controls [default: the grid's, else the scenario's].
    #[arg(long = "cc", value_delimiter = ',', value_name = "CC,...")]
    ccs: Vec<String>,
    /// Seeds [default: the grid's, else the scenario's].
    #[arg(long, value_name = "1-5,9")]
    seeds: Option<String>,
    /// Change the scenario in all cells, as for `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// qemu, or uml: virtual time [default: the scenario's].
    #[arg(long, value_name = "ENGINE", hide_possible_values = true)]
    engine: Option<Kind>,
    /// Metrics to tabulate and plot; docs/scenarios.md lists them.
    #[arg(long, value_delimiter = ',', value_name = "METRIC,...")]
    plot: Vec<String>,
    /// Directory of table and plots [default: results/sweeps/NAME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// local, or slurm: a job array; the checkout and --out must be on a shared file system.
    #[arg(long, default_value = "local", hide_possible_values = true)]
    backend: Backend,
    /// Option for sbatch.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Re-run finished cells with this status: suspect, or all.
    #[arg(long, value_name = "WHICH", hide_possible_values = true)]
    again: Option<Again>,
    /// Compute one cell only.
    #[arg(long, hide = true)]
    cell: Option<usize>,
    /// Print every cell as JSON instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    guests: args::Guests,
}

/// Machines that run the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// This machine.
    Local,
    /// A job array of Slurm; the checkout and --out are on a file system that all nodes share.
    Slurm,
}

/// Cells of a grid and their keys.
pub struct Sweep<'a> {
    pub runner: Runner<'a>,
    pub grid: &'a Expanded,
    cells: &'a Cells,
    lab: &'a Lab,
    /// Key of each cell of the grid.
    keys: Vec<String>,
}

/// Returns whether every cell has a result without doubts.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let (name, spec) = spec(request)?;
    let mut grid = spec.expand(&home)?;
    let kind = grid.engine(request.engine)?;
    let kind = match request.engine {
        None => kind.built(&home),
        Some(_) => kind,
    };
    for point in &mut grid.points {
        point.loaded.scenario.engine = kind;
    }
    let plot: Vec<Metric> =
        request.plot.iter().map(|name| wanted(name, &grid)).collect::<Result<_>>()?;
    let progress = Progress::default();
    let engine = Engine::new(&home, kind, Flavour::X86, Clock::Measuring)?;
    let dir = request.out.clone().unwrap_or_else(|| Path::new("results/sweeps").join(&name));
    let lab = Lab::copy(&home, engine)?;
    let runner = Runner {
        home: lab.home(),
        engine,
        timeout: request.guests.timeout,
        trace: &[],
        pcap: &[],
        progress: &progress,
    };
    home::make_out(&dir)?;
    // A job for one cell must not remove others.
    let again = request.again.filter(|_| request.cell.is_none());
    let cells = match request.backend {
        Backend::Local => Cells::open(&dir, again)?,
        Backend::Slurm => Cells::open_in(dir.join("cells"), again)?,
    };
    let sweep = Sweep::new(runner, &lab, &grid, &cells)?;
    if let Some(cell) = request.cell {
        let cells = grid.cells.len();
        if cell >= cells {
            return Err(Error::usage(format!("no cell {cell}: the grid has {cells} cells")));
        }
        sweep.compute(cell)?;
        return Ok(true);
    }
    let outcomes = match request.backend {
        Backend::Local => sweep.run(request.guests.jobs)?,
        Backend::Slurm => slurm::run(&sweep, &dir, request)?,
    };
    report(request, &name, &dir, &sweep, outcomes, plot)
}

/// Parses a metric; some point must have it.
fn wanted(name: &str, grid: &Expanded) -> Result<Metric> {
    let metric: Metric = name.parse().map_err(|unknown: Unknown| {
        let err = Error::usage(format!("there is no metric '{name}'"));
        match unknown.near {
            Some(near) => err.hint(format!("'{near}'")),
            None => err.hint(SEE_TABLE),
        }
    })?;
    grid.check_metric(&metric)?;
    Ok(metric)
}

/// The grid and its name.
fn spec(request: &Request) -> Result<(String, Grid)> {
    let path = Path::new(&request.grid);
    let name = xdc_scenario::name_of(path)?;
    let text = match path.is_file() {
        true => beside::named(path)?,
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

/// Outcome of each cell, in the grid's order.
pub type Outcomes = Vec<Result<Outcome>>;

impl<'a> Sweep<'a> {
    /// Plans every cell, so that a mistake costs no guest.
    pub fn new(
        runner: Runner<'a>,
        lab: &'a Lab,
        grid: &'a Expanded,
        cells: &'a Cells,
    ) -> Result<Self> {
        let mut sweep = Self { cells, runner, lab, grid, keys: Vec::new() };
        for cell in &grid.cells {
            interrupt::check()?;
            let key = sweep.key(cell)?;
            cells.begin(&key)?;
            sweep.keys.push(key);
        }
        Ok(sweep)
    }

    fn key(&self, cell: &Cell) -> Result<String> {
        let (plan, scale) = self.plan(cell)?;
        let scenario = &self.grid.points[cell.point].loaded.scenario;
        let unscaled = (scale != 1).then(|| plan::plan(scenario, &cell.cc, cell.seed, 1));
        let unscaled = unscaled.transpose().map_err(|err| err.about(self.name(cell)))?;
        Inputs::new(
            self.lab.parts(),
            (&cell.cc, scale),
            (&plan, unscaled.as_ref()),
            scenario.windows(),
            scenario.sizes(),
        )?
        .key()
    }

    /// Key of each cell of the grid.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Name of a cell in progress lines and errors.
    pub fn name(&self, cell: &Cell) -> String {
        let point = &self.grid.points[cell.point];
        let mut words = vec![cell.cc.clone()];
        words.extend(point.labels.iter().cloned());
        words.push(format!("seed {}", cell.seed));
        words.join(", ")
    }

    fn plan(&self, cell: &Cell) -> Result<(xdc_proto::Plan, u32)> {
        let loaded = &self.grid.points[cell.point].loaded;
        let scale = match (loaded.scenario.scale, self.runner.engine) {
            (Some(scale), _) => scale,
            (None, Engine::Uml { .. }) => 1,
            // QEMU picks a scale by machine, and cells must be comparable.
            (None, Engine::Qemu { .. } | Engine::Host) => {
                return Err(Error::usage("a sweep on QEMU needs one scale for all cells")
                    .hint("--set scale=10, or --engine uml"));
            }
        };
        let plan = plan::plan(&loaded.scenario, &cell.cc, cell.seed, scale)
            .map_err(|err| loaded.placed(err).about(self.name(cell)))?;
        Ok((plan, scale))
    }

    /// Numbers of the cells without a valid result.
    pub fn missing(&self) -> Vec<usize> {
        let none = |&n: &usize| self.load(n).is_none();
        (0..self.keys.len()).filter(none).collect()
    }

    /// Loads the `n`-th cell if its file is whole and matches.
    fn load(&self, n: usize) -> Option<Outcome> {
        let cell = &self.grid.cells[n];
        let outcome = self.cells.load(&self.keys[n])?;
        (outcome.cc == cell.cc && outcome.seed == cell.seed).then_some(outcome)
    }

    /// Runs the guest of the `n`-th cell and stores the outcome.
    pub fn compute(&self, n: usize) -> Result<Outcome> {
        let cell = &self.grid.cells[n];
        let (plan, scale) = self.plan(cell)?;
        let scenario = &self.grid.points[cell.point].loaded.scenario;
        let record = self
            .runner
            .run_as(&self.name(cell), (scenario, &cell.cc, scale), plan, None)
            .map_err(|err| err.about(self.name(cell)))?;
        let by = (self.runner.engine.kind().name(), scale);
        let labels = table::labels(self.grid, cell);
        let outcome = Outcome::of(&record, &scenario.windows(), by, labels);
        let mut flows_csv = Vec::new();
        files::flows_csv(&mut flows_csv, std::slice::from_ref(&record))?;
        self.cells.save(&self.keys[n], &outcome, &flows_csv)
    }

    /// Finished cells and the number of failed ones, whose errors it prints.
    pub fn rows(&self, outcomes: Outcomes) -> (Vec<Row<'a>>, usize) {
        let mut rows = Vec::new();
        let mut failed = 0;
        for ((cell, key), outcome) in self.grid.cells.iter().zip(&self.keys).zip(outcomes) {
            match outcome {
                Ok(outcome) => rows.push(Row { cell, key: key.clone(), outcome }),
                Err(err) => {
                    err.report();
                    failed += 1;
                }
            }
        }
        (rows, failed)
    }

    /// Computes missing cells on this machine. Fails on an interruption or a changed build;
    /// finished cells stay for the next time.
    pub fn run(&self, jobs: usize) -> Result<Outcomes> {
        let cells = 0..self.keys.len();
        let mut outcomes: Vec<_> = cells.map(|n| self.load(n).map(Ok)).collect();
        let missing: Vec<usize> = (0..outcomes.len()).filter(|&n| outcomes[n].is_none()).collect();
        let total = Mutex::new(Total::new(self, missing.len()));
        let stale: Mutex<Option<Error>> = Mutex::default();
        let computed = pool::run_all(&missing, jobs, |&n| {
            let unchanged = self.lab.check_unchanged();
            if let (Err(err), Ok(mut stale)) = (unchanged, stale.lock()) {
                stale.get_or_insert(err);
                return Err(Error::failure("not computed"));
            }
            let outcome = self.compute(n);
            if let Ok(mut total) = total.lock() {
                total.step(jobs);
            }
            outcome
        })?;
        if let Ok(total) = total.into_inner() {
            total.finish();
        }
        // No partial table: it would pass for the whole.
        if let Ok(Some(err)) = stale.into_inner() {
            return Err(err);
        }
        for (n, outcome) in missing.into_iter().zip(computed) {
            outcomes[n] = Some(outcome);
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}

/// Progress of a sweep, with an estimate of the rest.
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
            let note = format!("{known} of {} cells are already computed", sweep.grid.cells.len());
            sweep.runner.progress.note(&note);
        }
        Self {
            task: (missing > 0).then(|| sweep.runner.progress.task("sweep")),
            known,
            missing,
            done: 0,
            start: Instant::now(),
        }
    }

    /// Counts a finished cell; `jobs` run at a time.
    pub fn step(&mut self, jobs: usize) {
        self.done += 1;
        let left = self.missing - self.done.min(self.missing);
        // Running cells count as half done.
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

/// Formats an estimated time.
fn coarse(s: f64) -> String {
    match s {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Writes table and plots, and prints their paths.
fn report(
    request: &Request,
    name: &str,
    dir: &Path,
    sweep: &Sweep<'_>,
    outcomes: Outcomes,
    plot: Vec<Metric>,
) -> Result<bool> {
    let grid = sweep.grid;
    let (rows, failed) = sweep.rows(outcomes);
    let write = |name: &str, content: &[u8]| {
        let path = dir.join(name);
        owned::replace(&path, content).map_err(|err| Error::io(path.display(), &err))
    };
    let part = Part { figure: None, grid, rows: &rows };
    write("table.csv", &table::csv(&[part])?)?;
    let metrics = match plot.is_empty() {
        true => table::default_metrics(&rows),
        false => plot,
    };
    write("plots.svg", plots::plots(grid, &rows, &metrics)?.as_bytes())?;
    interrupt::end_on_closed_pipe()?;
    let doubts = rows.iter().filter(|row| row.outcome.is_suspect());
    let doubts = doubts.count();
    if request.json {
        let cells: Vec<_> = rows.iter().map(|row| table::json(grid, row)).collect();
        println!(
            "{:#}",
            json!({"sweep": name, "failed": failed, "suspect": doubts, "cells": cells})
        );
    } else {
        print!("{}", table::text(grid, &rows, &metrics));
        if let Some(note) = table::seeds_note(grid, &rows) {
            println!("{note}");
        }
        println!("table: {}", dir.join("table.csv").display());
        println!("plots: {}", dir.join("plots.svg").display());
    }
    if doubts > 0 {
        eprintln!(
            "xdc: {doubts} cells are suspect, with the reason in the table's column 'suspect'; \
             --again suspect reruns them"
        );
    }
    if failed > 0 {
        eprintln!(
            "xdc: {failed} of {} cells failed; the same command retries them",
            grid.cells.len()
        );
    }
    Ok(failed == 0 && doubts == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_has_a_fitting_unit() {
        assert_eq!(coarse(12.4), "12 s");
        assert_eq!(coarse(300.0), "5 min");
        assert_eq!(coarse(9000.0), "2.5 h");
    }
}
