// SPDX-License-Identifier: GPL-2.0
//! `xdc run`: a guest per congestion control, then the result.

use std::path::{Path, PathBuf};
use std::time::Duration;

use xdc_proto::{Job, Message, Plan, RunPlan};

use crate::completion::SizeClasses;
use crate::engine::{Clock, Engine, Kind, Machine};
use crate::error::{Error, Result};
use crate::expect::{self, Verdict};
use crate::figures::Figures;
use crate::guest::{Guest, Watch};
use crate::home::{Flavour, Home};
use crate::progress::{Progress, Task};
use crate::record::Record;
use crate::results::Pending;
use crate::scenario::{self, Loaded, SEE_EXAMPLE, Scenario, known_cc};
use crate::summary::{self, Network, Summary, Windows};
use crate::trace::{self, of_run::Recording};
use crate::{host, interrupt, plan, pool, probe, report, results};

/// `xdc run`'s command line.
pub struct Request {
    pub scenario: String,
    pub engine: Option<Kind>,
    pub ccs: Vec<String>,
    pub sets: Vec<String>,
    pub seed: Option<u64>,
    pub icount: Option<bool>,
    /// Tracepoints to record.
    pub trace: Vec<String>,
    pub json: bool,
    pub results: PathBuf,
    pub jobs: usize,
    pub timeout: Duration,
}

/// Whether every run was sound and every expectation held.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let mut loaded = scenario::load(Some(&home), &request.scenario, &request.sets)?;
    if !request.ccs.is_empty() {
        for cc in &request.ccs {
            known_cc(cc)?;
        }
        loaded.scenario.ccs.clone_from(&request.ccs);
    }
    let kind = request.engine.unwrap_or(loaded.scenario.engine);
    if request.icount.is_some() && kind != Kind::Qemu {
        return Err(Error::usage("--icount is for QEMU").hint("--engine qemu"));
    }
    if !request.trace.is_empty() && kind == Kind::Uml {
        return Err(Error::usage(
            "the UML kernel has no tracepoints, so there is nothing to record in virtual time",
        )
        .hint("--engine qemu, or as root --engine host"));
    }
    let seed = request.seed.unwrap_or(loaded.scenario.seed);
    // Once before anything starts, so that a mistake costs nothing.
    for cc in &loaded.scenario.ccs {
        let plan = plan::plan(&loaded.scenario, cc, seed, 1)
            .map_err(|err| err.about(&loaded.name).or_hint(SEE_EXAMPLE))?;
        if kind == Kind::Host {
            host::check(&plan)?;
        }
    }
    if loaded.scenario.ccs.is_empty() {
        return Err(Error::usage("no congestion control is named")
            .about(&loaded.name)
            .hint("--cc unocc,cubic"));
    }
    if loaded.scenario.scale == Some(0) {
        return Err(Error::usage("'scale' must be at least 1").hint("--set scale=1"));
    }

    let clock = match request.icount {
        Some(true) => Clock::Icount,
        Some(false) => Clock::Wall,
        None => Clock::Measuring,
    };
    let progress = Progress::new();
    let bench = Bench {
        home: &home,
        engine: match kind {
            Kind::Host => host::engine(&home)?,
            _ => Engine::new(&home, kind, Flavour::X86, clock)?,
        },
        timeout: request.timeout,
        trace: &request.trace,
        progress: &progress,
    };
    let pending = Pending::new(&request.results, &loaded.name)?;
    let scale = bench.scale(&loaded, seed)?;
    // In real time two runs at once would be one another's load.
    let jobs = if kind == Kind::Host { 1 } else { request.jobs };
    let outcomes = bench.run_all(&loaded, seed, scale, jobs, pending.path())?;

    let mut records = Vec::new();
    let mut errors = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(record) => records.push(record),
            Err(err) => errors.push(err),
        }
    }
    if records.is_empty() {
        let last = errors.pop();
        errors.iter().for_each(Error::report);
        return last.map_or(Ok(false), Err);
    }
    let sound = finish(request, &loaded, seed, scale, &bench, &records, pending)?;
    for err in &errors {
        err.report();
    }
    Ok(sound && errors.is_empty())
}

/// A network that takes long enough to be worth a word.
const LARGE_NODES: usize = 64;

/// Where runs happen.
pub struct Bench<'a> {
    pub home: &'a Home,
    pub engine: Engine,
    pub timeout: Duration,
    /// Tracepoints that each run records.
    pub trace: &'a [String],
    pub progress: &'a Progress,
}

impl Bench<'_> {
    /// The scenario's, or 1 in virtual time, or what this emulation carries.
    fn scale(&self, loaded: &Loaded, seed: u64) -> Result<u32> {
        let scale = match (loaded.scenario.scale, self.engine) {
            (Some(scale), _) => scale,
            (None, Engine::Uml) => 1,
            (None, Engine::Qemu { .. } | Engine::Host) => {
                probe::scale(self, &loaded.scenario, seed)?
            }
        };
        if scale > 1 {
            self.progress.note(&format!(
                "scale {scale}: rates are divided and times multiplied by it (--set scale=N)"
            ));
        }
        Ok(scale)
    }

    /// One outcome per congestion control, in their order; an error only for an interruption.
    fn run_all(
        &self,
        loaded: &Loaded,
        seed: u64,
        scale: u32,
        jobs: usize,
        consoles: &Path,
    ) -> Result<Vec<Result<Record>>> {
        pool::run_all(&loaded.scenario.ccs, jobs, |cc| {
            plan::plan(&loaded.scenario, cc, seed, scale)
                .and_then(|plan| self.run_as(cc, &loaded.scenario, cc, plan, Some(consoles)))
                .map_err(|err| err.about(cc))
        })
    }

    /// One guest with `cc` as the scenario knows it; `name` is for the progress line.
    pub fn run_as(
        &self,
        name: &str,
        scenario: &Scenario,
        cc: &str,
        plan: Plan,
        consoles: Option<&Path>,
    ) -> Result<Record> {
        let mut record = self.run_one(name, plan, consoles)?;
        cc.clone_into(&mut record.cc);
        record.sizes = SizeClasses {
            small_below_bytes: scenario.small_below.0,
            large_above_bytes: scenario.large_above.0,
        };
        Ok(record)
    }

    /// One guest; `name` is for the progress line.
    pub fn run_one(&self, name: &str, mut plan: Plan, consoles: Option<&Path>) -> Result<Record> {
        let Job::Run(run) = &mut plan.job else {
            return Err(Error::failure("the plan is none of a run"));
        };
        run.trace = self.trace.to_vec();
        let mut record = Record::new(&run.cc, run.clone());
        let mut task = self.progress.task(name);
        let guest = Guest {
            home: self.home,
            engine: self.engine,
            machine: machine(self.engine, run),
        };
        let watch = Watch {
            stall: self.timeout,
            total: None,
            console: consoles.map(|dir| dir.join(format!("console-{name}.log"))),
        };
        task.set("starting", 0.0);
        let outcome = guest.run(&plan, &watch, |message| {
            follow(&mut task, &message);
            record.add(message)
        });
        match outcome.and_then(|wall| record.complete(wall)) {
            Ok(record) => {
                if let Some(network) = Network::of(&record).filter(|n| n.nodes >= LARGE_NODES) {
                    self.progress.note(&format!(
                        "{name}: {} nodes, {} links, {} routes up in {:.1} s, {:.0} kB a node",
                        network.nodes,
                        network.links,
                        network.routes,
                        network.build_wall_s,
                        network.memory_per_node_kb,
                    ));
                }
                task.finish(&format!("done in {:.1} s", record.wall.as_secs_f64()));
                Ok(record)
            }
            Err(err) => {
                task.finish("failed");
                Err(err)
            }
        }
    }
}

fn follow(task: &mut Task, message: &Message) {
    if let Message::Progress { what, done } = message {
        task.set(what, *done);
    }
}

/// A CPU, so that two guests may share this machine, and memory for what flows may buffer.
fn machine(engine: Engine, run: &RunPlan) -> Machine {
    const BASE_MB: u64 = 1024;
    /// Measured: 403 kB a node with its links in fabric-two-dc; and as much again for packets.
    const NODE_KB: u64 = 256;
    const LINK_KB: u64 = 256;
    /// What the agent's buffer of events takes, and some more.
    const TRACE_MB: u64 = 192;
    // Of thousands of flows few are there at a time.
    const MOST_MB: u64 = 4096;
    let buffers: u64 = run
        .flows
        .iter()
        .map(|flow| (flow.sndbuf_bytes + flow.rcvbuf_bytes) >> 20)
        .sum::<u64>()
        .min(MOST_MB);
    let (nodes, links) = (run.topology.nodes.len(), run.topology.links.len());
    let network = (nodes as u64 * NODE_KB + links as u64 * LINK_KB) >> 10;
    let trace = if run.trace.is_empty() { 0 } else { TRACE_MB };
    let memory_mb = match engine {
        Engine::Qemu { .. } => BASE_MB + network + buffers + trace,
        // Only what the guest touches is taken.
        Engine::Uml => 4 * BASE_MB + network + buffers,
        // Nobody reserves it.
        Engine::Host => 0,
    };
    Machine { cpus: 1, memory_mb }
}

/// Write the result, print the table and the verdicts.
fn finish(
    request: &Request,
    loaded: &Loaded,
    seed: u64,
    scale: u32,
    bench: &Bench<'_>,
    records: &[Record],
    pending: Pending,
) -> Result<bool> {
    let windows = Windows::of(&loaded.scenario, scale);
    let summary = Summary {
        scenario: loaded.name.clone(),
        engine: bench.engine.kind().name().to_owned(),
        accel: bench.engine.accel().map(str::to_owned),
        seed,
        scale,
        kernel: records
            .first()
            .map(|record| record.kernel.clone())
            .unwrap_or_default(),
        runs: records
            .iter()
            .map(|record| summary::run(record, &windows))
            .collect(),
    };
    let value = serde_json::to_value(&summary)
        .map_err(|err| Error::failure(format!("the summary cannot be written: {err}")))?;
    let json = format!("{value:#}\n");
    let checked = expect::check(&loaded.scenario.expect, &value);
    let resolved = resolved(loaded, &summary)?;
    let figures = Figures::new(records, windows.jain_us);
    let traces = traces(records)?;
    let page = report::html(
        loaded, &resolved, &summary, records, &figures, &traces, &checked,
    );

    for (name, text) in [
        ("summary.json", &json),
        ("flows.csv", &results::flows_csv(records)),
        ("series.csv", &results::series_csv(records)),
        ("scenario.toml", &resolved),
        ("report.html", &page),
    ] {
        pending.write(name, text)?;
    }
    for (name, svg) in figures.files(records) {
        pending.write(&format!("plots/{name}"), &svg)?;
    }
    for (record, trace) in records.iter().zip(&traces) {
        let Some(trace) = trace else { continue };
        pending.write(&format!("trace-{}.jsonl", record.cc), &trace.lines)?;
        if !trace.charts.is_empty() {
            let svg = trace::plot::file(&trace.charts);
            pending.write(&format!("plots/trace-{}.svg", record.cc), svg)?;
        }
        bench
            .progress
            .note(&format!("{}: {} events recorded", record.cc, trace.events));
    }
    let dir = pending.keep()?;
    interrupt::end_on_closed_pipe()?;

    if request.json {
        print!("{json}");
    } else {
        println!("{}: {}", loaded.name, report::setting(&summary));
        print!("{}", results::table(&summary));
        print!("{}", results::completion_table(&summary));
        for row in &checked {
            println!("{}", row.line());
        }
        println!("report: {}", dir.join("report.html").display());
    }
    let mut sound = true;
    for run in &summary.runs {
        for doubt in &run.suspect {
            sound = false;
            eprintln!("xdc: suspect: {}: {doubt}", run.cc);
        }
    }
    Ok(sound && checked.iter().all(|row| row.verdict != Verdict::Fail))
}

/// Of each run, where there is one.
fn traces(records: &[Record]) -> Result<Vec<Option<Recording>>> {
    let read = |record: &Record| {
        let raw = record.trace.as_ref();
        raw.map(|raw| {
            raw.read(&record.kernel)
                .map_err(|err| err.about(&record.cc))
        })
        .transpose()
    };
    records.iter().map(read).collect()
}

/// What was run: the scenario with its overrides, and a seed and a scale that repeat it.
fn resolved(loaded: &Loaded, summary: &Summary) -> Result<String> {
    let mut table = loaded.toml.clone();
    let number = |n: u64| toml::Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
    table.insert("seed".to_owned(), number(summary.seed));
    table.insert("scale".to_owned(), number(summary.scale.into()));
    table.insert("engine".to_owned(), summary.engine.clone().into());
    table.insert("ccs".to_owned(), loaded.scenario.ccs.clone().into());
    let text = toml::to_string(&table)
        .map_err(|err| Error::failure(format!("the scenario cannot be written: {err}")))?;
    Ok(format!("# SPDX-License-Identifier: GPL-2.0\n{text}"))
}
