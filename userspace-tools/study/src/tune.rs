// SPDX-License-Identifier: GPL-2.0
//! `xdc tune`: searches a congestion control's knobs within a budget and tests the winner
//! elsewhere.
//!
//! Each setting runs on set A; the objective is the mean log2 of closeness to the ideal over its
//! cells. Half of the budget is drawn at random, the rest near the best setting so far. Default and
//! winner then run on set B: other rows, seeds, RTTs and rates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xdc_algo::ALGORITHMS;
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};
use xdc_base::progress::Progress;
use xdc_base::text::plain;
use xdc_base::{interrupt, marked, owned};
use xdc_guest::engine::Engine;
use xdc_proto::rng::Rng;
use xdc_result::runner::Runner;

use crate::args::{self, Again};
use crate::score::card::{self, Log2};
use crate::score::row::{Form, Row};
use crate::score::run::{self, Known, Runs};
use crate::score::store::Store;
use crate::score::{choose, text};
use crate::sweep::cells::Cells;
use crate::sweep::lab::Lab;

/// log2 value of a missing cell: a thousandth of the ideal.
const MISSING: f64 = -10.0;

/// Overrides of set B besides its rows: RTTs of 500 us and 30 ms, and twice the rate.
const ELSEWHERE: [&str; 6] = [
    "topology.links.0.delay_ba=498us",
    "topology.links.1.delay_ba=29998us",
    "topology.links.2.rate=2gbit",
    "cc.unocc.sysctl.\"net.unocc.line_rate_mbps\"=2000",
    "cc.unocc.sysctl.\"net.unocc.intra_rtt_us\"=500",
    "cc.gemini.sysctl.\"net.gemini.line_rate_mbps\"=2000",
];
const SEEDS_A: [u64; 2] = [101, 102];
const SEEDS_B: [u64; 5] = [201, 202, 203, 204, 205];

#[derive(clap::Args)]
pub struct Request {
    /// The congestion control.
    cc: String,
    /// Set A: rows of the scorecard, in their quick form.
    #[arg(long, value_delimiter = ',', value_name = "S1,...", default_value = "S1,S4")]
    on: Vec<String>,
    /// Set B: rows whose network is the scorecard's base.
    #[arg(long, value_delimiter = ',', value_name = "S1,...", default_value = "S3,S6")]
    hold_out: Vec<String>,
    /// Settings to try on set A, including the default.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    budget: u32,
    /// Seed of the search.
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = args::seed())]
    seed: u64,
    /// Write the outcome of every congestion control in --out into this page:
    /// docs/results/score.md. Other rows stay.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Re-run finished cells with this status: suspect, or all.
    #[arg(long, value_name = "WHICH", hide_possible_values = true)]
    again: Option<Again>,
    #[command(flatten)]
    to: args::Outcome,
    #[command(flatten)]
    guests: args::Guests,
}

/// A parameter to tune.
#[derive(Debug, Clone)]
struct Knob {
    /// Name in tables.
    name: String,
    /// Keys of a scenario that take the value.
    keys: Vec<String>,
    unit: &'static str,
    whole: bool,
    default: f64,
    min: f64,
    max: f64,
}

/// Values of all knobs.
type Setting = Vec<f64>;

impl Knob {
    /// Clamps to the valid range and rounds to the written form.
    fn fit(&self, value: f64) -> f64 {
        let value = value.clamp(self.min, self.max);
        match self.whole {
            true => value.round(),
            false => (value * 1e4).round() / 1e4,
        }
    }

    fn sets(&self, value: f64) -> impl Iterator<Item = String> {
        let unit = self.unit;
        self.keys.iter().map(move |key| format!("{key}={value}{unit}"))
    }
}

/// Documented parameters of one of our algorithms; for dctcp and cubic-ecn, K of the port.
/// Parameters that describe the path are no knobs.
fn knobs(cc: &str) -> Result<Vec<Knob>> {
    const OF_THE_PATH: [&str; 4] = ["profile", "line_rate_mbps", "intra_rtt_us", "k_bytes"];
    if cc == "dctcp" || cc == "cubic-ecn" {
        return Ok(vec![Knob {
            name: "K of the port, BDP".to_owned(),
            keys: ["queues.port.min", "queues.port.max"].map(str::to_owned).to_vec(),
            unit: "bdp",
            whole: false,
            default: 0.14,
            min: 0.01,
            max: 0.19,
        }]);
    }
    let Some(algorithm) = ALGORITHMS.iter().find(|it| it.name() == cc) else {
        return Err(Error::usage(format!("'{cc}' has no tunable parameter"))
            .hint("unocc, gemini, dctcp or cubic-ecn"));
    };
    let params = algorithm.params.iter().filter(|param| {
        // A switch with few values has no factor of two.
        !OF_THE_PATH.contains(&param.name()) && param.max - param.min > 3
    });
    let knobs = params.map(|param| Knob {
        name: param.name().to_owned(),
        keys: vec![format!("cc.{cc}.sysctl.\"net.{cc}.{}\"", param.name())],
        unit: "",
        whole: true,
        default: f64::from(param.defaults[0]),
        min: f64::from(param.min),
        max: f64::from(param.max),
    });
    Ok(knobs.filter(|knob| knob.default > 0.0).collect())
}

/// Runs settings.
struct Bench<'a> {
    request: &'a Request,
    runner: Runner<'a>,
    lab: &'a Lab,
    cells: Cells,
    knobs: &'a [Knob],
}

/// Outcome of tuning.
#[derive(Debug, Serialize, Deserialize)]
struct Tuned {
    schema: u32,
    cc: String,
    budget: u32,
    on: Vec<String>,
    hold_out: Vec<String>,
    knobs: Vec<Chosen>,
    a: OnA,
    b: Vec<HeldOut>,
    factor_of_two: Vec<Cost>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Chosen {
    knob: String,
    default: f64,
    tuned: f64,
}

/// Mean log2 of closeness to the ideal on set A.
#[derive(Debug, Serialize, Deserialize)]
struct OnA {
    default_log2: f64,
    tuned_log2: f64,
}

#[derive(Debug, Serialize, Deserialize)]
struct HeldOut {
    cell: String,
    tuned_over_default_log2: Option<Log2>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cost {
    knob: String,
    factor: f64,
    /// Mean log2 on set A, less the winner's.
    log2: f64,
}

impl Bench<'_> {
    fn run(&self, rows: &[Row], seeds: &[u64], more: &[&str], setting: &Setting) -> Result<Runs> {
        let mut sets: Vec<String> = more.iter().map(|&set| set.to_owned()).collect();
        for (knob, value) in self.knobs.iter().zip(setting) {
            if *value != knob.default {
                sets.extend(knob.sets(*value));
            }
        }
        let form =
            Form { quick: true, ccs: std::slice::from_ref(&self.request.cc), seeds, sets: &sets };
        let bundle = Store::open(Path::new("/dev/null"), String::new());
        let mut known =
            Known { bundle: &bundle, of: &[], used: BTreeMap::new(), bundle_agrees: false };
        let jobs = self.request.guests.jobs;
        run::run(rows, &form, (self.runner, self.lab, jobs), &mut known, &self.cells)
    }

    /// log2 of each cell's closeness to the ideal, by cell and seed.
    fn closeness(&self, rows: &[Row], runs: &Runs) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        for ((n, labels), samples) in runs.points.iter().zip(&runs.samples) {
            for measure in &rows[*n].metric {
                let cell = card::cell(&rows[*n], labels, measure, &self.request.cc, samples);
                let values = cell.values.get(&self.request.cc);
                let mean = values.filter(|values| !values.is_empty()).map(|values| {
                    let of = |value: &f64| card::closeness(measure.better, *value, cell.ideal);
                    values.values().map(of).sum::<f64>() / values.len() as f64
                });
                all.push((cell.name(), mean.unwrap_or(MISSING).max(MISSING)));
            }
        }
        all
    }

    fn on_a(&self, rows: &[Row], setting: &Setting) -> Result<f64> {
        let runs = self.run(rows, &SEEDS_A, &[], setting)?;
        let all = self.closeness(rows, &runs);
        Ok(all.iter().map(|cell| cell.1).sum::<f64>() / all.len().max(1) as f64)
    }
}

pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let knobs = knobs(&request.cc)?;
    let all = Row::load_all(&home)?;
    let rows_a = choose(all.clone(), &request.on)?;
    let rows_b = choose(all, &request.hold_out)?;
    if rows_a.iter().any(|row| row.bench) {
        return Err(
            Error::usage("a row that counts instructions cannot be tuned").hint("--on S1,S4")
        );
    }
    if let Some(row) = rows_b.iter().find(|row| row.scenario != "base") {
        return Err(Error::usage(format!(
            "row {} does not use the scorecard's base network",
            row.id
        ))
        .hint("a row on the base network: S3, S6"));
    }
    let dir = request.to.dir("tune");
    home::make_out(&dir)?;
    let progress = Progress::default();
    let lab = Lab::copy(&home, Engine::UML)?;
    let bench = Bench {
        request,
        runner: Runner {
            home: lab.home(),
            engine: Engine::UML,
            timeout: request.guests.timeout,
            trace: &[],
            pcap: &[],
            progress: &progress,
        },
        lab: &lab,
        cells: Cells::open(&dir, request.again)?,
        knobs: &knobs,
    };
    let default: Setting = knobs.iter().map(|knob| knob.default).collect();
    let at_default = bench.on_a(&rows_a, &default)?;
    let (mut best, mut at_best) = (default.clone(), at_default);
    let mut rng = Rng::new(request.seed);
    for n in 1..request.budget {
        interrupt::check()?;
        let setting = propose(&mut rng, &knobs, &best, n < request.budget / 2);
        let value = bench.on_a(&rows_a, &setting)?;
        progress.note(&format!(
            "setting {} of {}: {value:+.3}, best {:+.3}",
            n + 1,
            request.budget,
            at_best.max(value)
        ));
        if value > at_best {
            (best, at_best) = (setting, value);
        }
    }
    let mut costs = Vec::new();
    for (n, knob) in knobs.iter().enumerate() {
        for factor in [0.5, 2.0] {
            let mut setting = best.clone();
            setting[n] = knob.fit(best[n] * factor);
            if setting[n] != best[n] {
                let log2 = bench.on_a(&rows_a, &setting)? - at_best;
                costs.push(Cost { knob: knob.name.clone(), factor: setting[n] / best[n], log2 });
            }
        }
    }
    let mut held_out = Vec::new();
    let before = bench.run(&rows_b, &SEEDS_B, &ELSEWHERE, &default)?;
    let after = bench.run(&rows_b, &SEEDS_B, &ELSEWHERE, &best)?;
    for (n, (row, labels)) in before.points.iter().enumerate() {
        for measure in &rows_b[*row].metric {
            let of = |runs: &Runs| {
                card::cell(&rows_b[*row], labels, measure, &request.cc, &runs.samples[n])
            };
            let (was, is) = (of(&before), of(&after));
            held_out.push(HeldOut {
                cell: is.name(),
                tuned_over_default_log2: card::of_versions((&request.cc, &was), (&request.cc, &is)),
            });
        }
    }
    let complete = before.failed + after.failed + before.suspect + after.suspect == 0;
    let settings = knobs.iter().zip(&default).zip(&best);
    let tuned = Tuned {
        schema: SCHEMA,
        cc: request.cc.clone(),
        budget: request.budget,
        on: request.on.clone(),
        hold_out: request.hold_out.clone(),
        knobs: settings
            .map(|((knob, &default), &tuned)| Chosen { knob: knob.name.clone(), default, tuned })
            .collect(),
        a: OnA { default_log2: at_default, tuned_log2: at_best },
        b: held_out,
        factor_of_two: costs,
    };
    let json = serde_json::to_string_pretty(&tuned)
        .map_err(|err| Error::failure(format!("cannot write the outcome: {err}")))?;
    let path = dir.join(format!("{}.json", request.cc));
    owned::replace(&path, format!("{json}\n")).map_err(|err| Error::io(path.display(), &err))?;
    if let Some(page) = &request.page {
        marked::update_rows(page, MARK, &table(&all_in(&dir)?), 1)?;
    }
    interrupt::end_on_closed_pipe()?;
    match request.to.json {
        true => println!("{json}"),
        false => print!("{}", tuned.text()),
    }
    Ok(complete)
}

/// Name of the marks in the page.
const MARK: &str = "tune";

/// Version of the JSON's keys.
const SCHEMA: u32 = 1;

/// Outcomes of all congestion controls in the folder.
fn all_in(dir: &Path) -> Result<Vec<Tuned>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(|err| Error::io(dir.display(), &err))? {
        let path = entry.map_err(|err| Error::io(dir.display(), &err))?.path();
        if path.extension().is_some_and(|it| it == "json") {
            let text = fs::read(&path).map_err(|err| Error::io(path.display(), &err))?;
            all.extend(serde_json::from_slice::<Tuned>(&text).ok());
        }
    }
    all.sort_by(|a, b| a.cc.cmp(&b.cc));
    Ok(all)
}

/// Formats outcomes as Markdown.
fn table(all: &[Tuned]) -> String {
    let mut table = "| | settings | set A, mean log2 to the ideal: default | tuned | set B, tuned over default: better | equal | worse | undecided | changes | costliest factor of two, log2 on A |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|---|---|\n"
        .to_owned();
    for it in all {
        let count = |verdict| {
            let of = |held: &&HeldOut| card::Verdict::of(held.tuned_over_default_log2) == verdict;
            it.b.iter().filter(of).count()
        };
        let changed: Vec<_> = it
            .knobs
            .iter()
            .filter(|knob| knob.tuned != knob.default)
            .map(|knob| format!("`{}` {} to {}", plain(&knob.knob), knob.default, knob.tuned))
            .collect();
        let costs = it.factor_of_two.iter();
        let dearest = costs
            .min_by(|a, b| a.log2.total_cmp(&b.log2))
            .map(|cost| format!("`{}` x {:.2}: {:+.2}", plain(&cost.knob), cost.factor, cost.log2));
        let _ = writeln!(
            table,
            "| {} | {} | {:+.2} | {:+.2} | {} | {} | {} | {} | {} | {} |",
            plain(&it.cc),
            it.budget,
            it.a.default_log2,
            it.a.tuned_log2,
            count(card::Verdict::Win),
            count(card::Verdict::Tie),
            count(card::Verdict::Loss),
            count(card::Verdict::Undecided),
            match changed.is_empty() {
                true => "none".to_owned(),
                false => changed.join(", "),
            },
            dearest.unwrap_or_default()
        );
    }
    table
}

impl Tuned {
    fn text(&self) -> String {
        let mut text = format!(
            "{}, {} settings on {}\nmean log2 to the ideal: default {:+.3}, tuned {:+.3}\n",
            self.cc,
            self.budget,
            self.on.join(", "),
            self.a.default_log2,
            self.a.tuned_log2
        );
        for it in &self.knobs {
            let _ = writeln!(text, "  {:28} {:>10} -> {}", it.knob, it.default, it.tuned);
        }
        text += "effect of a factor in one knob on this mean, from the tuned setting\n";
        for it in &self.factor_of_two {
            let _ = writeln!(text, "  {:28} x {:<8.3} {:+.3}", it.knob, it.factor, it.log2);
        }
        let _ = writeln!(text, "tuned over default on {}, log2", self.hold_out.join(", "));
        for held in &self.b {
            let log2 = held.tuned_over_default_log2;
            let _ = writeln!(text, "  {}: {} {}", held.cell, text::log2(log2), verdict(log2));
        }
        text
    }
}

fn verdict(log2: Option<Log2>) -> &'static str {
    card::Verdict::of(log2).text()
}

/// Proposes a setting: within a factor of 8 of the default, or near the best in a few knobs.
fn propose(rng: &mut Rng, knobs: &[Knob], best: &Setting, anywhere: bool) -> Setting {
    let mut setting = best.clone();
    let last = knobs.len() as u64 - 1;
    let changed = [rng.up_to(last), rng.up_to(last)];
    for (n, knob) in knobs.iter().enumerate() {
        let factor = match anywhere {
            true => 8f64.powf(2.0 * rng.unit() - 1.0) * knob.default / best[n],
            false if changed.contains(&(n as u64)) => 2f64.powf(2.0 * rng.unit() - 1.0),
            false => 1.0,
        };
        setting[n] = knob.fit(best[n] * factor);
    }
    setting
}

#[cfg(test)]
mod tests;
