// SPDX-License-Identifier: GPL-2.0
//! `xdc paper`: runs a paper's figures and writes one page with our numbers beside the paper's.

mod judge;
mod page;
mod record;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Flavour, Home};
use xdc_base::progress::Progress;
use xdc_base::{interrupt, owned};
use xdc_guest::engine::{Clock, Engine};
use xdc_result::expect::format_value;
use xdc_result::runner::Runner;
use xdc_scenario::engine::Kind;

use self::judge::Judged;
use self::record::Record;
use self::spec::{Case, Figure, Paper, Verdict};
use crate::args::{self, Again};
use crate::sweep::Sweep;
use crate::sweep::cells::Cells;
use crate::sweep::grid::{self, Expanded};
use crate::sweep::lab::Lab;
use crate::sweep::table::{self, Part, Row};

#[derive(clap::Args)]
pub struct Request {
    /// A file of scenarios/papers: uno, gemini, tlt, reps, acceltor, review or defaults.
    paper: String,
    /// Figures [default: all].
    #[arg(long = "figure", value_delimiter = ',', value_name = "ID,...")]
    figures: Vec<String>,
    /// Minutes instead of hours: shorter runs and fewer points.
    #[arg(long)]
    quick: bool,
    /// Seeds [default: 1 to 5, then more where an interval is wide; with --quick 1].
    #[arg(long, value_name = "1-5,9")]
    seeds: Option<String>,
    /// Maximum number of seeds.
    #[arg(long, value_name = "N", default_value = "30")]
    max_seeds: usize,
    /// Congestion controls [default: each figure's own].
    #[arg(long = "cc", value_delimiter = ',', value_name = "CC,...")]
    ccs: Vec<String>,
    /// Only points with this label of an axis; labels of one axis are alternatives.
    #[arg(long = "at", value_name = "AXIS=LABEL", conflicts_with_all = ["check", "there"])]
    points: Vec<String>,
    /// Change the scenario in all cells, as for `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Fail if a verdict is worse than the one in the paper's file.
    #[arg(long, conflicts_with_all = ["ccs", "sets", "seeds"])]
    check: bool,
    /// Judge the finished cells without running others.
    #[arg(long, conflicts_with_all = ["quick", "seeds", "ccs", "json", "again"])]
    there: bool,
    /// Write rows into a CSV file beside this page, and its tables.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ccs", "points", "sets"])]
    page: Option<PathBuf>,
    /// Run nothing, mark stale rows of the page, and fail if any.
    #[arg(long, requires = "page", conflicts_with_all = ["figures", "quick", "check", "there", "seeds", "again", "json"])]
    stale: bool,
    /// Run finished cells again: suspect ones, or all.
    #[arg(long, value_name = "WHICH", hide_possible_values = true)]
    again: Option<Again>,
    /// Directory of table and page [default: results/papers/PAPER, with --quick PAPER-quick].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print claims and verdicts as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    guests: args::Guests,
}

/// A figure that was run.
pub struct Done<'a> {
    pub figure: &'a Figure,
    pub grid: &'a Expanded,
    pub cells: Vec<Row<'a>>,
    /// Number of failed cells.
    pub errors: usize,
    /// Whether points outside the grid count as not measured, rather than as not requested.
    pub whole: bool,
}

impl<'a> Done<'a> {
    fn part(&self) -> Part<'_> {
        Part { figure: Some(&self.figure.id), grid: self.grid, rows: &self.cells }
    }

    /// Every claim with its verdict and rows, once per congestion control of the claim.
    pub fn claims(&self) -> impl Iterator<Item = (Case<'a>, Verdict, Vec<Judged>)> {
        let cases = self.figure.claim.iter().flat_map(|claim| claim.cases());
        cases.filter_map(|case| {
            let rows = judge::rows(&case, (self.grid, self.whole), &self.cells);
            // Skip a case that --cc or the quick form leaves out.
            let left_out = rows.is_empty() && case.of.is_some();
            (!left_out).then(|| (case, judge::verdict(&rows), rows))
        })
    }
}

/// Returns whether everything was measured. A claim need not hold; with --check, a worse verdict
/// than the recorded one fails.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let paper = Paper::load(&home, &request.paper)?;
    let chosen = choose(&paper, request)?;
    let points = points(&chosen, &request.points)?;
    let mut grids = Vec::new();
    for figure in &chosen {
        let Some(mut grid) = figure.grid(request.quick) else {
            continue;
        };
        for axis in &mut grid.axis {
            if let Some(labels) = points.get(axis.name.as_str()) {
                axis.retain(labels);
            }
        }
        if !request.ccs.is_empty() {
            grid.ccs.clone_from(&request.ccs);
        }
        if let Some(seeds) = &request.seeds {
            grid.seeds = grid::parse_seeds(seeds)?;
        }
        if request.there {
            grid.seeds = (1..=request.max_seeds as u64).collect();
        }
        grid.set.extend(request.sets.iter().cloned());
        let about = |err: Error| err.about(figure.name());
        // Claims refer to the whole grid, so check them against it.
        let whole = figure.grid.expand(&home).map_err(about)?;
        figure.check(&whole).map_err(about)?;
        grids.push((*figure, grid.expand(&home).map_err(about)?));
    }
    if grids.is_empty() {
        return Err(Error::usage("none of these figures has a quick form").hint("without --quick"));
    }
    let progress = Progress::default();
    // One lab per engine.
    let mut labs: Vec<(Kind, Engine, Lab)> = Vec::new();
    for (figure, grid) in &grids {
        let kind = grid.engine(None).map_err(|err| err.about(figure.name()))?;
        if labs.iter().all(|(known, ..)| *known != kind) {
            let engine = Engine::new(&home, kind, Flavour::X86, Clock::Measuring)?;
            labs.push((kind, engine, Lab::copy(&home, engine)?));
        }
    }
    let name = match request.quick {
        true => format!("{}-quick", request.paper),
        false => request.paper.clone(),
    };
    let dir = request.out.clone().unwrap_or_else(|| Path::new("results/papers").join(name));
    // Marks must not remove cells that --again computes.
    let marker =
        With { labs: &labs, cells: Cells::open(&dir, None)?, progress: &progress, request };
    let mark = |rows: &mut [Record]| marker.mark(&home, &paper, rows);
    if let (true, Some(file)) = (request.stale, &request.page) {
        page::update(file, &request.paper, &paper, &[], false, mark)?;
        return fresh(file, &request.paper);
    }
    home::make_out(&dir)?;
    let with = With { cells: Cells::open(&dir, request.again)?, ..marker };
    for (figure, grid) in &mut grids {
        progress.note(&format!("{}: {}", figure.name(), figure.title));
        // --seeds fixes the seeds; a quick form has one.
        if request.there {
            with.keep_present(figure, grid)?;
            continue;
        }
        while !request.quick && request.seeds.is_none() {
            let done = with.measure(figure, grid)?;
            let rows: Vec<_> = done.claims().flat_map(|(.., rows)| rows).collect();
            let more = judge::more(&rows, grid, request.max_seeds);
            if more.is_empty() {
                break;
            }
            progress.note(&format!("{}: {} more runs", figure.name(), more.len()));
            grid.cells.extend(more);
        }
    }
    let done = grids.iter().map(|(figure, grid)| with.measure(figure, grid));
    let done = done.collect::<Result<Vec<_>>>()?;
    if let Some(file) = &request.page {
        page::update(file, &request.paper, &paper, &done, request.quick, mark)?;
    }
    let parts: Vec<_> = done.iter().map(Done::part).collect();
    let path = dir.join("table.csv");
    owned::replace(&path, table::csv(&parts)?).map_err(|err| Error::io(path.display(), &err))?;
    let path = dir.join("report.html");
    let html = page::html(&paper, &done, request.quick, &request.sets);
    owned::replace(&path, html).map_err(|err| Error::io(path.display(), &err))?;
    interrupt::end_on_closed_pipe()?;
    if request.json {
        println!("{:#}", to_json(&paper, &done, request.quick));
    } else {
        print!("{}", text(&done));
        println!("table: {}", dir.join("table.csv").display());
        println!("report: {}", path.display());
    }
    let unknown =
        |done: &Done<'_>| done.claims().any(|(_, verdict, _)| verdict == Verdict::Unknown);
    // With --there, missing cells are no failure.
    let missed = |done: &Done<'_>| !request.there && unknown(done);
    let mut sound = !done.iter().any(|done| done.errors > 0 || missed(done));
    if request.check {
        for line in worse(&done, request.quick) {
            eprintln!("xdc: {line}");
            sound = false;
        }
    }
    Ok(sound)
}

/// Shared context of the figures' runs.
struct With<'a> {
    labs: &'a [(Kind, Engine, Lab)],
    cells: Cells,
    progress: &'a Progress,
    request: &'a Request,
}

impl With<'_> {
    fn sweep<'a>(&'a self, figure: &Figure, grid: &'a Expanded) -> Result<Sweep<'a>> {
        let kind = grid.engine(None)?;
        let lab = self.labs.iter().find(|(known, ..)| *known == kind);
        let (_, engine, lab) = lab.ok_or_else(|| Error::failure("no lab").about(figure.name()))?;
        let runner = Runner {
            home: lab.home(),
            engine: *engine,
            timeout: self.request.guests.timeout,
            trace: &[],
            pcap: &[],
            progress: self.progress,
        };
        Sweep::new(runner, lab, grid, &self.cells)
    }

    /// Computes the missing cells of a figure.
    fn measure<'a>(&'a self, figure: &'a Figure, grid: &'a Expanded) -> Result<Done<'a>> {
        let sweep = self.sweep(figure, grid)?;
        let (cells, errors) = sweep.rows(sweep.run(self.request.guests.jobs)?);
        Ok(Done { figure, grid, cells, errors, whole: self.request.there })
    }

    /// Marks rows whose cells would have other keys now, as a whole figure or in its quick form.
    /// Rows of an engine that the command does not use keep their marks.
    fn mark(&self, home: &Home, paper: &Paper, rows: &mut [Record]) -> Result<()> {
        'figures: for figure in &paper.figure {
            let here = rows.iter_mut().filter(|it| it.figure == figure.id);
            let mut here: Vec<_> = figure.rows().zip(here).collect();
            here.retain(|(_, record)| !record.estimate.is_empty());
            let mut present = BTreeSet::new();
            let known = here.iter().filter(|(_, record)| !record.hash.is_empty());
            let known: Vec<_> = known.collect();
            for grid in [figure.grid(false), figure.grid(true)] {
                let Some(grid) = grid.filter(|_| !known.is_empty()) else {
                    continue;
                };
                let mut grid = grid.expand(home)?;
                let kind = grid.engine(None)?;
                if self.labs.iter().all(|(known, ..)| *known != kind) {
                    continue 'figures;
                }
                let cells = known.iter().map(|(row, record)| {
                    judge::cells(row, &grid, &record.seeds().collect::<Vec<_>>())
                });
                let cells: Vec<_> = cells.collect();
                grid.cells = cells.concat();
                let sweep = self.sweep(figure, &grid)?;
                let mut keys = sweep.keys().iter().map(String::as_str);
                for cells in &cells {
                    present.insert(record::hash(keys.by_ref().take(cells.len())));
                }
            }
            for (_, record) in here {
                record.mark(!present.contains(&record.hash));
            }
        }
        Ok(())
    }

    /// Drops cells without a result from the grid.
    fn keep_present(&self, figure: &Figure, grid: &mut Expanded) -> Result<()> {
        let missing = self.sweep(figure, grid)?.missing();
        let mut cell = 0..;
        grid.cells.retain(|_| cell.next().is_some_and(|cell| !missing.contains(&cell)));
        Ok(())
    }
}

/// Fails if the page has a row of other inputs than the present ones.
fn fresh(page: &Path, paper: &str) -> Result<bool> {
    let file = page.with_extension("csv");
    let rows = record::read(&file)?;
    let stale = rows.iter().filter(|row| row.is_stale()).count();
    match stale {
        0 => Ok(true),
        _ => Err(Error::failure(format!("{stale} of {} rows are stale", rows.len()))
            .about(file.display())
            .hint(format!("xdc paper {paper} --page {}", page.display()))),
    }
}

/// Claims whose verdict is worse than the recorded one.
fn worse(done: &[Done<'_>], quick: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for done in done {
        for (case, verdict, rows) in done.claims() {
            let now = match quick {
                true => judge::of_means(&rows),
                false => verdict,
            };
            if let Some(pinned) = case.pinned(quick).filter(|pinned| now < *pinned) {
                lines.push(format!(
                    "{}: {}, and it was '{}': {}",
                    done.figure.name(),
                    now.text(),
                    pinned.text(),
                    case.text()
                ));
            }
        }
    }
    lines
}

fn choose<'a>(paper: &'a Paper, request: &Request) -> Result<Vec<&'a Figure>> {
    let ids = || paper.figure.iter().map(|figure| figure.id.as_str());
    if let Some(id) = request.figures.iter().find(|id| !ids().any(|known| known == id.as_str())) {
        let hint = ids().collect::<Vec<_>>().join(", ");
        return Err(Error::usage(format!("there is no figure '{id}'")).hint(hint));
    }
    let chosen =
        |figure: &&Figure| request.figures.is_empty() || request.figures.contains(&figure.id);
    Ok(paper.figure.iter().filter(chosen).collect())
}

/// Parses words `AXIS=LABEL` into labels by axis.
fn points<'a>(figures: &[&Figure], words: &'a [String]) -> Result<BTreeMap<&'a str, Vec<String>>> {
    let mut points: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for word in words {
        let axes = || figures.iter().flat_map(|figure| &figure.grid.axis);
        let has = |(axis, label): &(&str, &str)| {
            let mut axes = axes();
            axes.any(|it| it.name == *axis && it.labels().any(|known| known == *label))
        };
        let Some((axis, label)) = word.split_once('=').filter(has) else {
            let known =
                axes().flat_map(|it| it.labels().map(|label| format!("{}={label}", it.name)));
            let known: BTreeSet<_> = known.collect();
            let hint = known.into_iter().collect::<Vec<_>>().join("; ");
            return Err(Error::usage(format!("no figure has '{word}'")).hint(hint));
        };
        points.entry(axis).or_default().push(label.to_owned());
    }
    Ok(points)
}

/// Formats a line per claim, and one for each of its rows.
fn text(done: &[Done<'_>]) -> String {
    let mut text = String::new();
    for done in done {
        text += &format!("{}: {}\n", done.figure.name(), done.figure.title);
        for (case, verdict, rows) in done.claims() {
            text += &format!("  {:<18} {}\n", verdict.text(), case.text());
            for row in rows {
                let measured = row.measured.map_or_else(|| "-".to_owned(), format_value);
                let paper = row.row.paper.map(format_value);
                text += &format!(
                    "  {:18}   {} = {measured} ({}){}   {}: {}\n",
                    "",
                    row.row.what(),
                    Record::of(done.figure, &case, &row).sureness(),
                    paper.map(|paper| format!(" (paper {paper})")).unwrap_or_default(),
                    row.row.bound(),
                    row.outcome(),
                );
            }
        }
    }
    text
}

fn to_json(paper: &Paper, done: &[Done<'_>], quick: bool) -> Value {
    let row = |row: &Judged| {
        let bound = row.row.bound();
        json!({
            "what": row.row.what(),
            "measured": row.measured,
            "low": row.interval.map(|interval| interval.low),
            "high": row.interval.map(|interval| interval.high),
            "seeds": row.seeds.len(),
            "flows": row.flows,
            "unfinished": row.unfinished,
            "min": bound.min,
            "max": bound.max,
            "paper": row.row.paper,
            "decision": row.decision.text(),
            "doubt": row.doubt,
            "mean_holds": row.mean_holds(),
        })
    };
    let claim = |(case, verdict, rows): (Case<'_>, Verdict, Vec<Judged>)| {
        json!({
            "text": case.claim.text,
            "of": case.of,
            "source": case.claim.source,
            "verdict": verdict.text(),
            "means": judge::of_means(&rows).text(),
            "pinned": case.pinned(quick).map(Verdict::text),
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    let figures: Vec<_> = done
        .iter()
        .map(|done| {
            let claims: Vec<_> = done.claims().map(claim).collect();
            json!({"figure": done.figure.id, "title": done.figure.title, "failed_cells": done.errors, "claims": claims})
        })
        .collect();
    json!({"paper": paper.title, "figures": figures})
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use xdc_scenario::plan;

    #[test]
    fn every_paper_in_the_tree_is_well_formed() {
        let home = xdc_base::testing::home();
        let mut found = 0;
        for entry in fs::read_dir(home.scenarios().join("papers")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let paper = Paper::load(&home, name).unwrap();
            for figure in &paper.figure {
                let grid = figure.grid(false).unwrap().expand(&home).unwrap();
                let quick = figure.grid(true).map(|quick| quick.expand(&home).unwrap());
                figure.check(&grid).unwrap();
                grid.engine(None).unwrap();
                for grid in [Some(&grid), quick.as_ref()].into_iter().flatten() {
                    // Each point and each congestion control once.
                    let (mut points, mut ccs) = (Vec::new(), Vec::new());
                    for cell in &grid.cells {
                        if points.contains(&cell.point) && ccs.contains(&&cell.cc) {
                            continue;
                        }
                        points.push(cell.point);
                        ccs.push(&cell.cc);
                        let scenario = &grid.points[cell.point].loaded.scenario;
                        plan::plan(scenario, &cell.cc, cell.seed, 1).unwrap();
                    }
                }
                for plot in &figure.plot {
                    for (cc, numbers) in &plot.paper {
                        assert!(
                            grid.cells.iter().any(|cell| cell.cc == *cc),
                            "{name} {}: {cc}",
                            figure.id
                        );
                        assert_eq!(numbers.len(), grid.points.len(), "{name} {}: {cc}", figure.id);
                    }
                }
                let cases = figure.claim.iter().flat_map(|claim| claim.cases());
                for row in cases.flat_map(|case| case.rows().collect::<Vec<_>>()) {
                    for which in row.parts() {
                        assert!(
                            which.at.keys().all(|axis| grid.axes.contains(axis)),
                            "{name} {}",
                            figure.id
                        );
                        let known = grid.points.iter().any(|point| {
                            grid.axes.iter().zip(&point.labels).all(|(axis, label)| {
                                which.at.get(axis).is_none_or(|wanted| wanted == label)
                            })
                        });
                        assert!(known, "{name} {}: {:?}", figure.id, which.at);
                        assert!(
                            grid.cells.iter().any(|cell| cell.cc == which.cc),
                            "{name} {}: {}",
                            figure.id,
                            which.cc
                        );
                    }
                    // Bounds follow from the rule, or `why` explains others.
                    let own = row.min.is_some() || row.max.is_some();
                    assert!(
                        own != row.is.is_some() && own != row.why.is_empty(),
                        "{name} {}: {:?}",
                        figure.id,
                        row.of
                    );
                    assert!(row.is.is_none() || row.over.is_some(), "{name} {}", figure.id);
                }
            }
            found += 1;
        }
        assert!(found > 0);
    }
}
