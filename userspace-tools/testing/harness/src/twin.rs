// SPDX-License-Identifier: GPL-2.0
//! `xdc-harness twin`: a congestion control and its twin in Rust must send equal packets.
//!
//! In virtual time a run is deterministic, so the kernel's module and the twin behind our trait
//! give equal captures or a first differing packet. A scenario's expectations must prove that it
//! exercises the algorithm: two empty captures are equal, too.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::progress::Progress;
use xdc_base::text::printable_lines;
use xdc_base::{interrupt, owned, pool};
use xdc_guest::engine::{Clock, Engine};
use xdc_measure::figures;
use xdc_measure::record::Record;
use xdc_measure::run::Content;
use xdc_proto::{FlowResult, Job, Plan, Tap, WatchedQueue};
use xdc_result::capture;
use xdc_result::expect::{self, Verdict};
use xdc_result::runner::Runner;
use xdc_scenario::engine::Kind;
use xdc_scenario::{Loaded, plan, switch};
use xdc_study::args;

#[derive(clap::Args)]
pub struct Request {
    /// Names in scenarios/twin/, or TOML files [default: all of scenarios/twin/].
    scenarios: Vec<String>,
    /// Change the scenarios, as for `run`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Seed of everything random in the guests [default: the scenario's].
    #[arg(long, value_parser = args::seed())]
    seed: Option<u64>,
    /// Keep the captures here, for wireshark.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    guests: args::Guests,
}

/// Folder of the scenarios for this command.
const FOLDER: &str = "twin";

/// A scenario under a congestion control and under its twin.
struct Case {
    loaded: Loaded,
    ccs: (String, String),
    plans: (Plan, Plan),
}

/// Outcome of a case.
#[derive(Serialize)]
struct Outcome {
    scenario: String,
    ccs: (String, String),
    /// Empty if both runs are equal and the scenario's expectations hold.
    failures: Vec<String>,
    /// Each watched port under the first congestion control.
    captures: Vec<Content>,
    drops: u64,
    timeouts: u64,
    virtual_ms: f64,
}

/// Returns whether every case passed.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let cases = cases(&home, request)?;
    let progress = Progress::default();
    let runner = Runner {
        home: &home,
        engine: Engine::new(&home, Kind::Uml, Flavour::Uml, Clock::Measuring)?,
        timeout: request.guests.timeout,
        trace: &[],
        pcap: &[],
        progress: &progress,
    };
    if let Some(dir) = &request.pcap {
        fs::create_dir_all(dir).map_err(|err| Error::io(dir.display(), &err))?;
    }
    let outcomes = pool::run_all(&cases, request.guests.jobs, |case| run(&runner, case, request))?;
    let failed = outcomes.iter().filter(|o| !o.failures.is_empty()).count();
    interrupt::end_on_closed_pipe()?;
    if request.json {
        println!("{:#}", json!(outcomes));
    } else {
        print!("{}", printable_lines(&ktap(&outcomes)));
        println!("# xdc-harness twin: {} passed, {failed} failed", outcomes.len() - failed);
    }
    Ok(failed == 0 && !outcomes.is_empty())
}

/// Every pair of every scenario, planned before anything runs.
fn cases(home: &Home, request: &Request) -> Result<Vec<Case>> {
    let folder = home.scenarios().join(FOLDER);
    let mut names = request.scenarios.clone();
    if names.is_empty() {
        names = fs::read_dir(&folder)
            .map_err(|err| Error::io(folder.display(), &err))?
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                Some(name.strip_suffix(".toml")?.to_owned())
            })
            .collect();
        names.sort();
    }
    let mut cases = Vec::new();
    for name in names {
        let ours = folder.join(format!("{name}.toml"));
        let name = if ours.is_file() { ours.to_string_lossy().into_owned() } else { name };
        let load = || xdc_scenario::load(Some(home), &name, &request.sets);
        let ccs = load()?.scenario.ccs;
        if ccs.is_empty() || ccs.len() % 2 != 0 {
            return Err(Error::usage("'ccs' must be pairs of a congestion control and its twin")
                .about(&name)
                .hint("ccs = [\"dctcp\", \"dctcp_rs\"]"));
        }
        for pair in ccs.chunks_exact(2) {
            cases.push(
                case(load()?, (&pair[0], &pair[1]), request.seed)
                    .map_err(|err| err.about(&name))?,
            );
        }
    }
    Ok(cases)
}

fn case(loaded: Loaded, ccs: (&str, &str), seed: Option<u64>) -> Result<Case> {
    let scenario = &loaded.scenario;
    if scenario.expect.iter().all(|expect| expect.cc != ccs.0) {
        return Err(Error::usage(format!(
            "no expectation on '{}' checks the scenario's effect",
            ccs.0
        ))
        .hint("[[expect]] with a metric such as capture.marked"));
    }
    let seed = seed.unwrap_or(scenario.seed);
    let plan = |cc: &str| -> Result<Plan> {
        let mut plan = plan::plan(scenario, cc, seed, 1)?;
        // Captures at switches.
        switch::use_linux(&mut plan);
        if let Job::Run(run) = &mut plan.job {
            let tap = |watched: &WatchedQueue| Tap {
                node: watched.node.clone(),
                port: watched.peer.clone(),
                all: false,
            };
            run.taps = run.watch.iter().map(tap).collect();
        }
        Ok(plan)
    };
    let (mut first, mut second) = (plan(ccs.0)?, plan(ccs.1)?);
    // Both guests load all modules, so that they differ in the name only.
    for module in second.modules {
        if !first.modules.contains(&module) {
            first.modules.push(module);
        }
    }
    second.modules = first.modules.clone();
    Ok(Case { ccs: (ccs.0.to_owned(), ccs.1.to_owned()), plans: (first, second), loaded })
}

fn run(runner: &Runner<'_>, case: &Case, request: &Request) -> Outcome {
    let mut outcome = Outcome {
        scenario: case.loaded.name.clone(),
        ccs: case.ccs.clone(),
        failures: Vec::new(),
        captures: Vec::new(),
        drops: 0,
        timeouts: 0,
        virtual_ms: 0.0,
    };
    let one = |cc: &str, plan: &Plan| -> Result<Record> {
        let name = format!("{} {cc}", case.loaded.name);
        let record = runner.run_one(&name, plan.clone(), None)?;
        if let Some(dir) = &request.pcap {
            write_pcaps(dir, &case.loaded.name, &record)?;
        }
        Ok(record)
    };
    let records = one(&case.ccs.0, &case.plans.0)
        .and_then(|first| Ok((first, one(&case.ccs.1, &case.plans.1)?)));
    let judged = records.and_then(|(first, second)| judge(case, &first, &second, &mut outcome));
    if let Err(err) = judged {
        outcome.failures.extend(err.lines());
    }
    outcome
}

/// Compares both runs, and the first with the scenario's expectations.
fn judge(case: &Case, first: &Record, second: &Record, outcome: &mut Outcome) -> Result<()> {
    let names = (case.ccs.0.as_str(), case.ccs.1.as_str());
    for (port, watched) in first.plan.watch.iter().enumerate() {
        let a = capture::normalise(&first.captures[port]).map_err(|err| err.about(names.0))?;
        let b = capture::normalise(&second.captures[port]).map_err(|err| err.about(names.1))?;
        outcome.captures.push(capture::content(&a));
        let difference = capture::difference(&a, &b, names);
        if let Some(difference) = difference {
            outcome.failures.push(format!("{}: {difference}", watched.name));
        }
    }
    // With equal packets, the sockets' own statistics must be equal, too.
    if outcome.failures.is_empty()
        && let Some(difference) = first_difference("", &told(first), &told(second))
    {
        outcome.failures.push(format!(
            "the packets are equal, but {}: {} under {}, {} under {}",
            difference.place, difference.values.0, names.0, difference.values.1, names.1
        ));
    }
    for (name, record) in [(names.0, first), (names.1, second)] {
        let doubts = record.doubts().into_iter();
        outcome.failures.extend(doubts.map(|doubt| format!("suspect: {name}: {doubt}")));
    }

    let mut run = figures::run(first, &case.loaded.scenario.windows());
    outcome.drops = run.drops;
    outcome.timeouts = run.timeouts;
    outcome.virtual_ms = first.virtual_us as f64 / 1e3;
    run.capture = outcome.captures.first().cloned();
    let expects = &case.loaded.scenario.expect;
    for row in expect::check(expects, Kind::Uml.name(), &[run]) {
        if row.verdict == Verdict::Fail {
            outcome.failures.push(format!(
                "vacuous: {} is {}, expected {}",
                row.expect.metric,
                row.measured_text(),
                row.bound_text()
            ));
        }
    }
    Ok(())
}

/// Samples and totals as the guest reports them, without the name of the congestion control.
fn told(record: &Record) -> Value {
    let nameless = |flow: &FlowResult| FlowResult { cc: String::new(), ..flow.clone() };
    let flows: Vec<_> = record.flows.iter().map(nameless).collect();
    json!({
        "sample": record.samples,
        "flow": flows,
        "queue": record.queues,
    })
}

struct Difference {
    place: String,
    values: (Value, Value),
}

fn first_difference(place: &str, a: &Value, b: &Value) -> Option<Difference> {
    let inside = |key: &str| match place {
        "" => key.to_owned(),
        place => format!("{place}.{key}"),
    };
    match (a, b) {
        (Value::Object(x), Value::Object(y)) if x.len() == y.len() => {
            let mut keys = x.iter();
            keys.find_map(|(key, value)| {
                let other = y.get(key).unwrap_or(&Value::Null);
                first_difference(&inside(key), value, other)
            })
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            let mut pairs = x.iter().zip(y).enumerate();
            pairs.find_map(|(n, (x, y))| first_difference(&inside(&n.to_string()), x, y))
        }
        (a, b) if a == b => None,
        (a, b) => Some(Difference { place: place.to_owned(), values: (a.clone(), b.clone()) }),
    }
}

fn write_pcaps(dir: &Path, scenario: &str, record: &Record) -> Result<()> {
    for (port, packets) in record.captures.iter().enumerate() {
        let path = dir.join(format!("{scenario}-{}-{port}.pcap", record.cc));
        owned::replace(&path, capture::pcap(packets))
            .map_err(|err| Error::io(path.display(), &err))?;
    }
    Ok(())
}

fn ktap(outcomes: &[Outcome]) -> String {
    let mut text = format!("KTAP version 1\n1..{}\n", outcomes.len());
    for (n, outcome) in outcomes.iter().enumerate() {
        let ok = if outcome.failures.is_empty() { "ok" } else { "not ok" };
        text += &format!(
            "{ok} {} {}: {} as {}\n",
            n + 1,
            outcome.scenario,
            outcome.ccs.1,
            outcome.ccs.0
        );
        for content in &outcome.captures {
            text += &format!("# {content}\n");
        }
        text += &format!(
            "# {} dropped, {} timeouts, {:.1} ms\n",
            outcome.drops, outcome.timeouts, outcome.virtual_ms
        );
        for failure in &outcome.failures {
            text += &format!("# {failure}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_statistics_are_compared_field_by_field() {
        let a = json!({"flow": [{"cwnd": 10, "rtt": 5}], "queue": []});
        let b = json!({"flow": [{"cwnd": 10, "rtt": 6}], "queue": []});
        assert!(first_difference("", &a, &a).is_none());
        let found = first_difference("", &a, &b).unwrap();
        assert_eq!(found.place, "flow.0.rtt");
        assert_eq!(found.values, (json!(5), json!(6)));
        let longer = json!({"flow": [], "queue": []});
        assert_eq!(first_difference("", &a, &longer).unwrap().place, "flow");
    }
}
