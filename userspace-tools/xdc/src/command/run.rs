// SPDX-License-Identifier: GPL-2.0
//! `xdc run`: a guest per congestion control, then the result.

use std::path::{Path, PathBuf};
use std::thread;

use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::interrupt;
use xdc_base::progress::Progress;
use xdc_base::text::printable;
use xdc_guest::engine::{Clock, Engine};
use xdc_guest::host;
use xdc_measure::record::Record;
use xdc_measure::{explain, figures};
use xdc_proto::Job;
use xdc_result::expect::{self, Verdict};
use xdc_result::files::Pending;
use xdc_result::probe::PROBE_CC;
use xdc_result::provenance::Provenance;
use xdc_result::runner::{self, ALL_HOSTS, Runner};
use xdc_result::summary::{SCHEMA, Summary};
use xdc_result::{capture, files, table};
use xdc_scenario::budget::Budget;
use xdc_scenario::engine::Kind;
use xdc_scenario::plan;
use xdc_scenario::programs::output_files;
use xdc_scenario::traffic::{Cdf, SIZES};
use xdc_scenario::{Loaded, SEE_EXAMPLE};
use xdc_study::args;
use xdc_study::sweep::lab::Lab;
use xdc_view::charts::Figures;
use xdc_view::report;

use crate::live::trace::of_run::{self, Recording};
use crate::live::trace::{self, EVENTS};

#[derive(clap::Args)]
pub struct Request {
    /// A name that `xdc list` shows, or a TOML file.
    scenario: String,
    /// qemu, uml (virtual time) or host [default: the scenario's, or the one that is built].
    #[arg(long, value_name = "ENGINE", hide_possible_values = true)]
    engine: Option<Kind>,
    /// Congestion controls [default: the scenario's].
    #[arg(long = "cc", value_delimiter = ',', value_name = "CC,...")]
    ccs: Vec<String>,
    /// Change the scenario: a dotted key, with numbers as indices of arrays.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Seed of everything random in the guest [default: the scenario's].
    #[arg(long, value_parser = args::seed())]
    seed: Option<u64>,
    /// QEMU: emulate with a clock that counts instructions, so that the host's load does not
    /// affect the figures; `off`: KVM or emulation with the host's clock, which is faster
    /// [default: off if KVM works, else on].
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        hide_possible_values = true,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    icount: Option<bool>,
    /// Record tracepoints of the modules, for the report and trace-CC.jsonl [default: all].
    #[arg(
        long,
        value_name = "EVENT,...",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_values = EVENTS,
        hide_possible_values = true,
        value_parser = clap::builder::PossibleValuesParser::new(EVENTS)
    )]
    trace: Vec<String>,
    /// Capture the packets at these nodes' uplinks, as pcap/CC/NODE.pcap [default: all hosts].
    #[arg(
        long,
        value_name = "NODE,...",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = ALL_HOSTS
    )]
    pcap: Vec<String>,
    /// Allow the scenario's commands and modules on this host, as root (--engine host).
    #[arg(long)]
    allow_commands: bool,
    /// Print summary.json instead of the table.
    #[arg(long)]
    json: bool,
    /// Directory of results: DIR/SCENARIO/N.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    guests: args::Guests,
}

/// Returns whether every run was sound and every expectation held.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let mut loaded = xdc_scenario::load(Some(&home), &request.scenario, &request.sets)?;
    if !request.ccs.is_empty() {
        loaded.scenario.ccs.clone_from(&request.ccs);
    }
    for (n, cc) in loaded.scenario.ccs.iter().enumerate() {
        loaded.scenario.known_cc(cc)?;
        if loaded.scenario.ccs[..n].contains(cc) {
            return Err(Error::usage(format!("'{cc}' is named twice"))
                .hint("each congestion control once; another --seed is another run"));
        }
    }
    let kind = loaded.scenario.engine_or(request.engine)?;
    let any = request.engine.is_none() && request.icount.is_none() && request.trace.is_empty();
    let kind = if any { kind.built(&home) } else { kind };
    loaded.scenario.engine = kind;
    if request.icount.is_some() && kind != Kind::Qemu {
        return Err(Error::usage("--icount is for QEMU").hint("--engine qemu"));
    }
    if !request.trace.is_empty() && kind == Kind::Uml {
        return Err(Error::usage("the UML kernel has no tracepoints to record")
            .hint("--engine qemu, or as root --engine host"));
    }
    let seed = request.seed.unwrap_or(loaded.scenario.seed);
    xdc_scenario::check_seed(seed)?;
    // Plan before anything starts, so that a mistake costs nothing.
    let mut warnings = Vec::new();
    let mut routes = None;
    let mut checked_plan = |cc: &str| {
        let plan = plan::plan_along(&mut routes, &loaded.scenario, cc, seed, 1)
            .map_err(|err| loaded.placed(err).or_hint(SEE_EXAMPLE))?;
        if kind == Kind::Host {
            host::check(&plan, request.allow_commands)?;
        }
        Ok::<_, Error>(plan)
    };
    if kind == Kind::Host && loaded.scenario.scale.is_none() {
        checked_plan(PROBE_CC)?;
    }
    for cc in &loaded.scenario.ccs {
        let plan = checked_plan(cc)?;
        if let Job::Run(run) = &plan.job {
            runner::uplinks(&run.topology, &request.pcap)?;
            let notes = explain::of_plan(run);
            warnings.extend(notes.iter().map(|note| format!("{cc}: {}", note.text)));
        }
    }
    if loaded.scenario.ccs.is_empty() {
        return Err(Error::usage("no congestion control is named")
            .about(&loaded.name)
            .hint("--cc unocc,cubic"));
    }

    let clock = match request.icount {
        Some(true) => Clock::Icount,
        Some(false) => Clock::Wall,
        None => Clock::Measuring,
    };
    let progress = Progress::default();
    for line in &warnings {
        progress.note(line);
    }
    let engine = match kind {
        Kind::Host => host::engine(&home)?,
        _ => Engine::new(&home, kind, Flavour::X86, clock)?,
    };
    let _alone = (kind == Kind::Host).then(|| host::Alone::wait(&progress)).transpose()?;
    // All runs then use one kernel and one set of modules.
    let lab = (kind != Kind::Host && loaded.scenario.ccs.len() > 1)
        .then(|| Lab::copy(&home, engine))
        .transpose()?;
    let runner = Runner {
        home: lab.as_ref().map_or(&home, Lab::home),
        engine,
        timeout: request.guests.timeout,
        trace: &request.trace,
        pcap: &request.pcap,
        progress: &progress,
    };
    let pending = Pending::new(&request.results, &loaded.name)?;
    let scale = runner.scale(&loaded, seed)?;
    // In real time, concurrent runs would load each other.
    let jobs = if kind == Kind::Host { 1 } else { request.guests.jobs };
    let made_of = || made_of(runner.home, engine);
    let run_all = || runner.run_all(&loaded, seed, scale, jobs, &pending);
    // Hashing large files is a second of load, which real time would show.
    let (provenance, outcomes) = if engine.is_real_time() {
        (made_of(), run_all())
    } else {
        thread::scope(|scope| {
            let provenance = scope.spawn(made_of);
            let outcomes = run_all();
            let unknown = |_| Err(Error::failure("cannot determine the provenance"));
            (provenance.join().unwrap_or_else(unknown), outcomes)
        })
    };

    let mut records = Vec::new();
    let mut errors = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(record) => records.push(record),
            Err(err) if err.is_interrupted() => {}
            Err(err) => errors.push(err),
        }
    }
    let interrupted = interrupt::check().err();
    if records.is_empty() {
        if let Some(err) = interrupted {
            return Err(err);
        }
        let last = errors.pop();
        errors.iter().for_each(Error::report);
        let consoles = pending.has_console().then(|| pending.keep_failed()).transpose()?;
        if let Some(dir) = consoles {
            eprintln!("xdc: the guests' consoles are in {}", dir.display());
        }
        return last.map_or(Ok(false), Err);
    }
    let done = || {
        let provenance = match provenance {
            Err(err) if err.is_interrupted() => made_of(),
            other => other,
        }?;
        let made = (seed, scale, provenance);
        let summary = match write(&loaded, made, &runner, &records, &pending) {
            Ok(summary) => summary,
            Err(err) if err.is_interrupted() => return Err(err),
            Err(err) => {
                let kept = pending.keep_failed();
                let err = err.about("cannot write the result");
                return Err(match kept {
                    Ok(dir) => err.hint(format!("the partial result is in {}", dir.display())),
                    Err(_) => err,
                });
            }
        };
        tell(request, &loaded, &summary, &pending.keep()?)
    };
    let sound = match interrupted {
        None => done()?,
        Some(_) => interrupt::save(done)?,
    };
    for err in &errors {
        err.report();
    }
    match interrupted {
        None => Ok(sound && errors.is_empty()),
        Some(err) => Err(err),
    }
}

fn made_of(home: &Home, engine: Engine) -> Result<Provenance> {
    let provenance = Provenance::now()?;
    if engine.kind() == Kind::Host {
        return Ok(provenance);
    }
    let flavour = engine.guest_flavour()?;
    provenance.with_guest(&home.kernel(flavour)?, &home.agent()?, &home.modules(flavour)?)
}

/// Writes the result's files.
fn write(
    loaded: &Loaded,
    (seed, scale, provenance): (u64, u32, Provenance),
    runner: &Runner<'_>,
    records: &[Record],
    pending: &Pending,
) -> Result<Summary> {
    let windows = loaded.scenario.windows();
    let summary = Summary {
        schema: SCHEMA,
        scenario: loaded.name.clone(),
        engine: runner.engine.kind().name().to_owned(),
        accel: runner.engine.accel().map(str::to_owned),
        seed,
        scale,
        kernel: records.first().map(|record| record.kernel.clone()).unwrap_or_default(),
        provenance,
        interrupted: match interrupt::is_caught() {
            false => Vec::new(),
            true => loaded
                .scenario
                .ccs
                .iter()
                .filter(|cc| records.iter().all(|record| record.cc != **cc))
                .cloned()
                .collect(),
        },
        runs: records
            .iter()
            .map(|record| interrupt::check().map(|()| figures::run(record, &windows)))
            .collect::<Result<_>>()?,
    };
    let checked = expect::check(&loaded.scenario.expect, &summary.engine, &summary.runs);
    let resolved = resolved(loaded, &summary)?;
    let figures = Figures::new(records, windows.jain_us);
    let traces = traces(records)?;
    let traced: Vec<_> =
        traces.iter().map(|trace| trace.as_ref().map(|trace| &trace.shown)).collect();
    let page = report::html(loaded, &resolved, &summary, records, &figures, &traced, &checked);

    for (name, text) in
        [("summary.json", &json(&summary)?), ("scenario.toml", &resolved), ("report.html", &page)]
    {
        interrupt::check()?;
        pending.write(name, text)?;
    }
    interrupt::check()?;
    pending.stream("flows.csv", |out| files::flows_csv(out, records))?;
    pending.stream("series.csv", |out| files::series_csv(out, records))?;
    for (name, svg) in figures.files(records) {
        pending.write(&format!("plots/{name}"), &svg)?;
    }
    for (name, file) in &loaded.scenario.files {
        pending.write(&kept_file(name), &file.text)?;
    }
    for (name, trace) in &loaded.scenario.traces {
        pending.write(&kept_file(name), &trace.text)?;
    }
    let fabric = loaded.scenario.topology.fabric.as_ref();
    if let Some(file) = fabric.and_then(|fabric| fabric.content.as_ref()) {
        pending.write(&kept_file(&file.name), &file.text)?;
    }
    for (name, cdf) in &loaded.scenario.cdfs {
        if let Some(text) = &cdf.own {
            pending.write(&kept_file(name), text)?;
        }
    }
    for (name, object) in &loaded.scenario.objects {
        pending.write(&kept_file(name), object)?;
    }
    let outputs = output_files(&Budget::default(), &loaded.scenario)?;
    for record in records {
        for (output, name) in record.outputs.iter().zip(&outputs) {
            if let Some(name) = name {
                pending.write(&format!("outputs/{}/{name}", record.cc), &output.text)?;
            }
        }
    }
    for record in records {
        for (tap, packets) in record.plan.taps.iter().zip(&record.captures) {
            let name = format!("pcap/{}/{}.pcap", record.cc, tap.node);
            pending.write(&name, capture::pcap(packets))?;
        }
    }
    for (record, trace) in records.iter().zip(&traces) {
        let Some(trace) = trace else { continue };
        pending.write(&format!("trace-{}.jsonl", record.cc), &trace.lines)?;
        if !trace.shown.charts.is_empty() {
            let svg = trace::plot::file(&trace.shown.charts);
            pending.write(&format!("plots/trace-{}.svg", record.cc), svg)?;
        }
        runner.progress.note(&format!("{}: {} events recorded", record.cc, trace.shown.events));
    }
    Ok(summary)
}

/// Formats with sorted keys.
fn json(summary: &Summary) -> Result<String> {
    let value = serde_json::to_value(summary)
        .map_err(|err| Error::failure(format!("cannot write the summary: {err}")))?;
    Ok(format!("{value:#}\n"))
}

/// Prints table and verdicts; returns whether the result is good.
fn tell(request: &Request, loaded: &Loaded, summary: &Summary, dir: &Path) -> Result<bool> {
    let checked = expect::check(&loaded.scenario.expect, &summary.engine, &summary.runs);
    interrupt::end_on_closed_pipe()?;
    if request.json {
        print!("{}", json(summary)?);
    } else {
        println!("{}: {}", loaded.name, printable(&report::setting(summary)));
        print!("{}", table::table(summary));
        print!("{}", table::completion_table(summary));
        if !summary.interrupted.is_empty() {
            println!("interrupted: no run of {}", summary.interrupted.join(", "));
        }
        for note in table::notes(summary) {
            println!("{}", printable(&note));
        }
        for row in &checked {
            println!("{}", row.line());
        }
        println!("report: {}", dir.join("report.html").display());
    }
    let mut sound = true;
    for run in &summary.runs {
        for doubt in &run.suspect {
            sound = false;
            eprintln!("xdc: suspect: {}: {}", run.cc, printable(doubt));
        }
    }
    Ok(sound && checked.iter().all(|row| row.verdict != Verdict::Fail))
}

/// Reads each run's trace; None if it has none.
fn traces(records: &[Record]) -> Result<Vec<Option<Recording>>> {
    let read = |record: &Record| {
        let raw = record.trace.as_ref();
        raw.map(|raw| of_run::read(raw, &record.kernel).map_err(|err| err.about(&record.cc)))
            .transpose()
    };
    records.iter().map(read).collect()
}

/// Name in a result of a file that the scenario names.
fn kept_file(name: &str) -> String {
    format!("files/{name}")
}

/// The scenario as run: overrides applied, with a seed and a scale that repeat it.
fn resolved(loaded: &Loaded, summary: &Summary) -> Result<String> {
    let mut table = loaded.toml.clone();
    let number = |n: u64| toml::Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
    table.insert("seed".to_owned(), number(summary.seed));
    table.insert("scale".to_owned(), number(summary.scale.into()));
    table.insert("engine".to_owned(), summary.engine.clone().into());
    table.insert("ccs".to_owned(), loaded.scenario.ccs.clone().into());
    // Defaults derived from other keys.
    for (key, value) in [
        ("title", loaded.scenario.title.clone()),
        ("sample", loaded.scenario.sample().to_string()),
        ("jain_window", loaded.scenario.jain_window().to_string()),
    ] {
        table.entry(key).or_insert(value.into());
    }
    let fabric = table.get_mut("topology").and_then(|it| it.get_mut("fabric"));
    if let Some(toml::Value::String(name)) = fabric.and_then(|it| it.get_mut("file")) {
        *name = kept_file(name);
    }
    let traffic = table.get_mut("traffic").and_then(toml::Value::as_array_mut);
    for block in traffic.into_iter().flatten() {
        if let Some(toml::Value::String(name)) = block.get_mut("file") {
            *name = kept_file(name);
        }
        for key in SIZES {
            if let Some(toml::Value::String(name)) = block.get_mut(*key)
                && let Some(Cdf { own: Some(_), .. }) = loaded.scenario.cdfs.get(name)
            {
                *name = kept_file(name);
            }
        }
    }
    let ccs = table.get_mut("cc").and_then(toml::Value::as_table_mut);
    for (_, cc) in ccs.into_iter().flatten() {
        if let Some(toml::Value::String(name)) = cc.get_mut("bpf") {
            *name = kept_file(name);
        }
    }
    let text = toml::to_string(&table)
        .map_err(|err| Error::failure(format!("cannot write the scenario: {err}")))?;
    Ok(format!("# SPDX-License-Identifier: GPL-2.0\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_distribution_does_not_replace_a_result_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("summary.json"), "0 0\n1000 1\n").unwrap();
        let small = xdc_scenario::testing::SMALL;
        let traffic = "kind = \"incast\"\nhosts = [\"a1\"]\nto = \"r\"\nsizes = \"summary.json\"";
        let path = dir.path().join("x.toml");
        std::fs::write(&path, format!("{small}[[traffic]]\n{traffic}\n")).unwrap();
        let loaded = xdc_scenario::load(None, path.to_str().unwrap(), &[]).unwrap();
        let text = resolved(&loaded, &Summary::of_runs(Vec::new())).unwrap();
        assert!(text.contains("sizes = \"files/summary.json\""), "{text}");
    }
}
