// SPDX-License-Identifier: GPL-2.0
//! `xdc score`: a congestion control against references, over the rows of scenarios/score/.

pub mod card;
pub mod instructions;
mod page;
pub mod row;
pub mod run;
pub mod store;
pub mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Flavour, Home};
use xdc_base::progress::Progress;
use xdc_base::text::printable;
use xdc_base::{interrupt, marked, owned};
use xdc_guest::engine::Engine;
use xdc_result::runner::Runner;
use xdc_scenario::beside;

use self::card::{Card, Verdict};
use self::row::{Form, Row};
use self::run::{Known, Runs};
use self::store::Store;
use crate::args::{self, Again};
use crate::sweep::cells::Cells;
use crate::sweep::grid;
use crate::sweep::lab::Lab;

/// Default references.
const REFERENCES: [&str; 5] = ["cubic", "cubic-ecn", "dctcp", "bbr", "reno"];

/// Default seeds of each form.
const QUICK_SEEDS: &str = "1-5";
const SEEDS: &str = "1-10";

#[derive(clap::Args)]
pub struct Request {
    /// Congestion control: a name as for `run`, or [cc.NAME] from --define or --set.
    #[arg(required_unless_present = "references")]
    cc: Option<String>,
    /// Run only the quick points of each row, with five seeds: minutes.
    #[arg(long)]
    quick: bool,
    /// Only these rows.
    #[arg(long, value_delimiter = ',', value_name = "S1,...")]
    rows: Vec<String>,
    /// References to compare with [default: cubic,cubic-ecn,dctcp,bbr,reno].
    #[arg(long, value_delimiter = ',', value_name = "CC,...")]
    refs: Vec<String>,
    /// Seeds [default: 1-10, with --quick 1-5].
    #[arg(long, value_name = "1-5,9")]
    seeds: Option<String>,
    /// A TOML file whose [cc.NAME] tables apply to all runs.
    #[arg(long, value_name = "FILE.toml")]
    define: Option<PathBuf>,
    /// Change the scenario in all runs, as for `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Fail if a cell is clearly worse than in this older score.json.
    #[arg(long, value_name = "OLD.json")]
    against: Option<PathBuf>,
    /// Run the references alone.
    #[arg(long, conflicts_with_all = ["cc", "against"])]
    references: bool,
    /// Write the references' results into the checkout: scenarios/score/references/.
    #[arg(long, requires = "references", conflicts_with_all = ["refs", "sets", "define", "rows"])]
    update: bool,
    /// Write the counts of every scorecard in --out into this page: docs/results/score.md. Other rows stay.
    #[arg(long, value_name = "FILE", conflicts_with = "references")]
    page: Option<PathBuf>,
    /// Re-run finished cells with this status: suspect, or all.
    #[arg(long, value_name = "WHICH", hide_possible_values = true)]
    again: Option<Again>,
    #[command(flatten)]
    to: args::Outcome,
    #[command(flatten)]
    guests: args::Guests,
}

/// Returns whether everything was measured and no cell is worse or missing against the older card.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let rows = choose(Row::load_all(&home)?, &request.rows)?;
    let old = request.against.as_deref().map(read_card).transpose()?;
    let (ccs, references) = compared(request);
    let mut sets = match &request.define {
        Some(path) => defined(path)?,
        None => Vec::new(),
    };
    sets.extend(request.sets.iter().cloned());
    let seeds = match &request.seeds {
        Some(seeds) => grid::parse_seeds(seeds)?,
        None if request.quick => grid::parse_seeds(QUICK_SEEDS)?,
        None => grid::parse_seeds(SEEDS)?,
    };
    let form = Form { quick: request.quick, ccs: &ccs, seeds: &seeds, sets: &sets };
    let progress = Progress::default();
    let lab = Lab::copy(&home, Engine::UML)?;
    let runner = Runner {
        home: lab.home(),
        engine: Engine::UML,
        timeout: request.guests.timeout,
        trace: &[],
        pcap: &[],
        progress: &progress,
    };
    let bundle_path = bundle_path(&home, request.quick);
    let release = home.release(Flavour::Uml)?;
    let bundle = match request.references {
        // An update measures the references instead of reading the bundle.
        true => Store::open(Path::new("/dev/null"), release.clone()),
        false => Store::open(&bundle_path, release.clone()),
    };
    let out = request.to.dir("score");
    home::make_out(&out)?;
    let cells = Cells::open(&out, request.again)?;
    // The scored congestion control is measured even if it is a reference.
    let kernels: Vec<String> = REFERENCES
        .iter()
        .filter(|name| references.iter().any(|cc| cc == *name))
        .map(|name| (*name).to_owned())
        .collect();
    let mut known =
        Known { bundle: &bundle, of: &kernels, used: BTreeMap::new(), bundle_agrees: false };
    let runs = run::run(&rows, &form, (runner, &lab, request.guests.jobs), &mut known, &cells)?;
    let used = std::mem::take(&mut known.used);
    let complete = runs.failed == 0 && runs.suspect == 0;
    progress.note(&format!(
        "{} runs in this lab, {} reference runs from the bundle, {} failed, {} suspect",
        runs.ran, runs.known, runs.failed, runs.suspect
    ));
    let Some(cc) = &request.cc else {
        if request.update && complete {
            let mut bundle = Store::open(&bundle_path, release);
            bundle.replace(used);
            bundle.save()?;
            println!("references: {} runs in {}", bundle.len(), bundle_path.display());
        }
        return Ok(complete);
    };
    let mut card = card_of(cc, &references, request.quick, &rows, &runs);
    if let Some(row) = rows.iter().find(|row| row.bench) {
        let base = row::network(&home, "base");
        let scenario = xdc_scenario::load(Some(&home), &base.to_string_lossy(), &sets)?.scenario;
        let asked = (cc.as_str(), references.as_slice());
        match instructions::cell(&home, &row.id, asked, &scenario, request.guests.timeout) {
            Ok(cell) => card.add(cell),
            Err(err) => {
                progress.note(&format!("{} is not measured: {err}", row.id));
                card.add(instructions::none(&row.id, cc));
            }
        }
    }
    let dir = out.join(match request.quick {
        true => format!("{cc}-quick"),
        false => cc.clone(),
    });
    let json = serde_json::to_string_pretty(&card)
        .map_err(|err| Error::failure(format!("cannot write the scorecard: {err}")))?;
    let write = |name: &str, content: &str| {
        let path = dir.join(name);
        owned::make_folder(&dir)
            .and_then(|()| owned::replace(&path, content))
            .map_err(|err| Error::io(path.display(), &err))
    };
    write("score.json", &format!("{json}\n"))?;
    write("report.html", &page::html(&card, &rows, &runs, &sets))?;
    if let Some(page) = &request.page {
        marked::update_rows(page, MARK, &text::overview(&all_in(&out)?), 2)?;
    }
    interrupt::end_on_closed_pipe()?;
    if request.to.json {
        println!("{json}");
    } else {
        print!("{}", text::table(&card, &rows));
        println!("scorecard: {}", dir.join("score.json").display());
        println!("report: {}", dir.join("report.html").display());
    }
    let is_no_worse = old.is_none_or(|old| compare(&old, &card));
    Ok(complete && is_no_worse)
}

/// Name of the marks in the page.
const MARK: &str = "scores";

/// Every scorecard in the folder.
fn all_in(out: &Path) -> Result<Vec<Card>> {
    let mut cards = Vec::new();
    for entry in fs::read_dir(out).map_err(|err| Error::io(out.display(), &err))? {
        let path = entry.map_err(|err| Error::io(out.display(), &err))?.path();
        let card = path.join("score.json");
        if card.is_file() {
            cards.push(read_card(&card)?);
        }
    }
    cards.sort_by_key(|card| (card.quick, card.cc.clone()));
    Ok(cards)
}

/// Prints clear differences from the older card; returns whether no cell is worse or missing.
fn compare(old: &Card, new: &Card) -> bool {
    if old.quick != new.quick {
        eprintln!("xdc: one of the two cards is in quick form: only common cells are compared");
    }
    let (changes, gone) = card::changes(old, new);
    let mut is_no_worse = true;
    for change in &changes {
        let what = match change.verdict {
            Verdict::Loss => "worse",
            _ => "better",
        };
        is_no_worse &= change.verdict != Verdict::Loss;
        let ratio = text::log2(Some(change.log2));
        eprintln!("xdc: {what} than before: {}: {ratio}", printable(&change.name));
    }
    for name in &gone {
        eprintln!("xdc: no longer measured: {}", printable(name));
    }
    is_no_worse && gone.is_empty()
}

fn read_card(path: &Path) -> Result<Card> {
    let text = beside::named(path)?;
    let no_card = |why: String| {
        Error::usage(format!("{} is not a scorecard: {why}", path.display()))
            .hint("score.json of an earlier `xdc score`")
    };
    let card: Card = serde_json::from_str(&text).map_err(|err| no_card(err.to_string()))?;
    match card.schema {
        card::SCHEMA => Ok(card),
        other => Err(no_card(format!("its schema is {other}, not {}", card::SCHEMA))),
    }
}

fn bundle_path(home: &Home, quick: bool) -> PathBuf {
    let name = match quick {
        true => "quick.json",
        false => "whole.json",
    };
    home.scenarios().join("score/references").join(name)
}

pub fn choose(rows: Vec<Row>, wanted: &[String]) -> Result<Vec<Row>> {
    if let Some(id) = wanted.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
        return Err(Error::usage(format!("there is no row '{id}'")).hint(ids.join(", ")));
    }
    let is_chosen = |row: &Row| wanted.is_empty() || wanted.contains(&row.id);
    Ok(rows.into_iter().filter(is_chosen).collect())
}

/// Congestion controls to run, and the references without the scored one.
fn compared(request: &Request) -> (Vec<String>, Vec<String>) {
    let mut references = match request.refs.is_empty() {
        true => REFERENCES.map(str::to_owned).to_vec(),
        false => request.refs.clone(),
    };
    references.retain(|name| Some(name) != request.cc.as_ref());
    let ccs = request.cc.iter().chain(&references).cloned().collect();
    (ccs, references)
}

/// Reads the `[cc.NAME]` tables of a file as overrides of a scenario.
fn defined(path: &Path) -> Result<Vec<String>> {
    let text = beside::named(path)?;
    let table: Table = toml::from_str(&text)
        .map_err(|err| xdc_scenario::malformed(&text, &err).about(path.display()))?;
    let Some(ccs) = table.get("cc").and_then(Value::as_table) else {
        return Err(Error::usage(format!("{} has no [cc.NAME]", path.display()))
            .hint("[cc.westwood] kernel = \"westwood\""));
    };
    Ok(ccs.iter().map(|(name, cc)| format!("cc.{}={cc}", quoted(name))).collect())
}

fn quoted(key: &str) -> Value {
    Value::String(key.to_owned())
}

fn card_of(cc: &str, references: &[String], quick: bool, rows: &[Row], runs: &Runs) -> Card {
    let mut cells = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let points = runs.points.iter().zip(&runs.samples);
        for ((_, labels), samples) in points.filter(|((of, _), _)| *of == n) {
            let measures = row.metric.iter();
            cells.extend(measures.map(|it| card::cell(row, labels, it, cc, samples)));
        }
    }
    let mut card = Card {
        schema: card::SCHEMA,
        cc: cc.to_owned(),
        quick,
        references: references.to_vec(),
        kernel: runs.kernel.clone(),
        xdc_version: env!("CARGO_PKG_VERSION").to_owned(),
        counts: BTreeMap::new(),
        turns: rows.iter().flat_map(|row| card::turns(row, &cells)).collect(),
        cells,
    };
    card.count();
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_defines_congestion_controls() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        let text =
            "[cc.westwood]\nkernel = \"westwood\"\n[cc.gemini.sysctl]\n\"net.gemini.t_us\" = 7\n";
        fs::write(&path, text).unwrap();
        let sets = defined(&path).unwrap();
        let home = xdc_base::testing::home();
        let loaded = xdc_scenario::load(Some(&home), "two-dc-1g", &sets).unwrap();
        let westwood = loaded.scenario.known_cc("westwood").unwrap();
        assert_eq!(westwood.module.as_deref(), Some("tcp_westwood"));
        let plan = xdc_scenario::plan::plan(&loaded.scenario, "gemini", 1, 1).unwrap();
        assert!(format!("{plan:?}").contains("(\"net.gemini.t_us\", \"7\")"));
        fs::write(&path, "title = \"t\"\n").unwrap();
        assert!(defined(&path).is_err());
    }
}
