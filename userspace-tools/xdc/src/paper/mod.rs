// SPDX-License-Identifier: GPL-2.0
//! `xdc paper`: a paper's figures run again, and one page with our numbers beside its own.

mod judge;
mod page;
mod spec;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use self::judge::{Judged, Verdict, judge};
use self::spec::{Claim, Figure, Paper};
use crate::engine::{Clock, Engine};
use crate::error::{Error, Result};
use crate::expect::format_value;
use crate::home::{Flavour, Home};
use crate::interrupt;
use crate::progress::Progress;
use crate::run::Bench;
use crate::sweep::Sweep;
use crate::sweep::grid::{self, Expanded};
use crate::sweep::table::Row;

/// `xdc paper`'s command line.
pub struct Request {
    pub paper: String,
    /// Ids; all, if it is empty.
    pub figures: Vec<String>,
    pub quick: bool,
    pub seeds: Option<String>,
    pub ccs: Vec<String>,
    pub out: Option<PathBuf>,
    pub json: bool,
    pub jobs: usize,
    pub timeout: Duration,
}

/// A figure that was run.
pub struct Done<'a> {
    pub figure: &'a Figure,
    pub grid: &'a Expanded,
    pub cells: Vec<Row<'a>>,
    /// Of cells that failed.
    pub errors: usize,
}

impl<'a> Done<'a> {
    pub fn claims(&self) -> impl Iterator<Item = (&'a Claim, Verdict, Vec<Judged<'a>>)> {
        self.figure.claim.iter().map(|claim| {
            let (verdict, rows) = judge(claim, self.grid, &self.cells);
            (claim, verdict, rows)
        })
    }
}

/// Whether everything was measured: what a paper claims need not hold.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let paper = Paper::load(&home, &request.paper)?;
    let chosen = choose(&paper, request)?;
    let mut grids = Vec::new();
    for figure in &chosen {
        let Some(mut grid) = figure.grid(request.quick) else {
            continue;
        };
        if !request.ccs.is_empty() {
            grid.ccs.clone_from(&request.ccs);
        }
        if let Some(seeds) = &request.seeds {
            grid.seeds = grid::parse_seeds(seeds)?;
        }
        let about = |err: Error| err.about(figure.name());
        grids.push((*figure, grid.expand(&home).map_err(about)?));
    }
    if grids.is_empty() {
        return Err(Error::usage("none of these figures has a quick form").hint("without --quick"));
    }
    let progress = Progress::new();
    let engine = grids[0].1.points[0].loaded.scenario.engine;
    let engine = Engine::new(&home, engine, Flavour::X86, Clock::Measuring)?;
    let name = match request.quick {
        true => format!("{}-quick", request.paper),
        false => request.paper.clone(),
    };
    let dir = request
        .out
        .clone()
        .unwrap_or_else(|| Path::new("results/papers").join(name));
    let mut done = Vec::new();
    for (figure, grid) in &grids {
        let bench = Bench {
            home: &home,
            engine,
            timeout: request.timeout,
            trace: &[],
            progress: &progress,
        };
        progress.note(&format!("{}: {}", figure.name(), figure.title));
        let sweep = Sweep::new(bench, grid, &dir)?;
        let mut cells = Vec::new();
        let mut errors = 0;
        for (cell, outcome) in grid.cells.iter().zip(sweep.run(request.jobs)?) {
            match outcome {
                Ok(outcome) => cells.push((cell, outcome)),
                Err(err) => {
                    err.report();
                    errors += 1;
                }
            }
        }
        done.push(Done {
            figure,
            grid,
            cells,
            errors,
        });
    }
    let path = dir.join("report.html");
    fs::write(&path, page::html(&paper, &done, request.quick))
        .map_err(|err| Error::io(path.display(), &err))?;
    interrupt::end_on_closed_pipe()?;
    if request.json {
        println!("{:#}", to_json(&paper, &done));
    } else {
        print!("{}", text(&done));
        println!("report: {}", path.display());
    }
    let unknown = |done: &Done<'_>| {
        done.claims()
            .any(|(_, verdict, _)| verdict == Verdict::Unknown)
    };
    Ok(!done.iter().any(|done| done.errors > 0 || unknown(done)))
}

fn choose<'a>(paper: &'a Paper, request: &Request) -> Result<Vec<&'a Figure>> {
    let ids = || paper.figure.iter().map(|figure| figure.id.as_str());
    if let Some(id) = request
        .figures
        .iter()
        .find(|id| !ids().any(|known| known == id.as_str()))
    {
        let hint = ids().collect::<Vec<_>>().join(", ");
        return Err(Error::usage(format!("there is no figure '{id}'")).hint(hint));
    }
    let chosen =
        |figure: &&Figure| request.figures.is_empty() || request.figures.contains(&figure.id);
    Ok(paper.figure.iter().filter(chosen).collect())
}

/// A line a claim, and one for each of its rows.
fn text(done: &[Done<'_>]) -> String {
    let mut text = String::new();
    for done in done {
        text += &format!("{}: {}\n", done.figure.name(), done.figure.title);
        for (claim, verdict, rows) in done.claims() {
            text += &format!("  {:<18} {}\n", verdict.text(), claim.text);
            for row in rows {
                let measured = row.measured.map_or_else(|| "-".to_owned(), format_value);
                let paper = row
                    .row
                    .paper
                    .map(|value| format!(" (paper {})", format_value(value)));
                text += &format!(
                    "  {:18}   {} = {measured}{}   {}\n",
                    "",
                    row.what(),
                    paper.unwrap_or_default(),
                    row.bound()
                );
            }
        }
    }
    text
}

fn to_json(paper: &Paper, done: &[Done<'_>]) -> Value {
    let figures: Vec<_> = done
        .iter()
        .map(|done| {
            let claims: Vec<_> = done
                .claims()
                .map(|(claim, verdict, rows)| {
                    let rows: Vec<_> = rows
                        .iter()
                        .map(|row| {
                            json!({
                                "what": row.what(),
                                "measured": row.measured,
                                "min": row.row.min,
                                "max": row.row.max,
                                "paper": row.row.paper,
                                "holds": row.holds(),
                            })
                        })
                        .collect();
                    json!({"text": claim.text, "source": claim.source, "verdict": verdict.text(), "rows": rows})
                })
                .collect();
            json!({"figure": done.figure.id, "title": done.figure.title, "failed_cells": done.errors, "claims": claims})
        })
        .collect();
    json!({"paper": paper.title, "figures": figures})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    #[test]
    fn every_paper_in_the_tree_is_well_formed() {
        let home = Home::find().unwrap();
        let mut found = 0;
        for entry in fs::read_dir(home.scenarios().join("papers")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let paper = Paper::load(&home, name).unwrap();
            for figure in &paper.figure {
                let grid = figure.grid(false).unwrap().expand(&home).unwrap();
                let quick = figure.grid(true).map(|quick| quick.expand(&home).unwrap());
                for grid in [Some(&grid), quick.as_ref()].into_iter().flatten() {
                    for cell in &grid.cells {
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
                        assert_eq!(
                            numbers.len(),
                            grid.points.len(),
                            "{name} {}: {cc}",
                            figure.id
                        );
                    }
                }
                for row in figure.claim.iter().flat_map(|claim| &claim.row) {
                    for which in [Some(&row.of), row.over.as_ref()].into_iter().flatten() {
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
                    assert!(
                        row.min.is_some() || row.max.is_some(),
                        "{name} {}",
                        figure.id
                    );
                }
            }
            found += 1;
        }
        assert!(found > 0);
    }
}
