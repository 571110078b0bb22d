// SPDX-License-Identifier: GPL-2.0
//! `xdc`: congestion controls compared across emulated datacenters.
//!
//! Exit codes: 0 all is well, 1 something failed or an expectation does not hold, 2 the command
//! line or a scenario is wrong, 130 and 143 interrupted by Ctrl-C and SIGTERM.

mod bars;
mod bench;
mod capture;
mod cli;
mod compare;
mod completion;
mod costs;
mod cpio;
mod doctor;
mod engine;
mod error;
mod expect;
mod fabric;
mod figures;
mod guest;
mod home;
mod host;
mod initramfs;
mod interrupt;
mod kconfig;
mod kdir;
mod manual;
mod observe;
mod paper;
mod paths;
mod plan;
mod plot;
mod pool;
mod probe;
mod progress;
mod qdisc;
mod record;
mod report;
mod results;
mod run;
mod scenario;
mod selftest;
mod shell;
mod stored;
mod summary;
mod sweep;
mod sysctl;
mod tether;
mod trace;
mod traffic;
mod twin;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use xdc_netlink::units;

use crate::cli::{Cli, Command, QdiscCommand, TraceCommand};
use crate::error::Result;
use crate::home::Home;

fn main() -> ExitCode {
    let outcome = interrupt::install().and_then(|()| dispatch(Cli::parse().command));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            err.report();
            err.exit_code()
        }
    }
}

/// Whether all is well.
fn dispatch(command: Command) -> Result<bool> {
    if let Command::List { .. }
    | Command::Check { .. }
    | Command::Qdisc(_)
    | Command::Ss(_)
    | Command::Watch(_)
    | Command::Trace { .. }
    | Command::Doctor { .. } = command
    {
        interrupt::end_on_closed_pipe()?;
    }
    match command {
        Command::Run {
            scenario,
            engine,
            cc,
            set,
            seed,
            icount,
            trace,
            json,
            results,
            jobs,
            timeout,
        } => run::command(&run::Request {
            scenario,
            engine,
            ccs: cc,
            sets: set,
            seed,
            icount,
            trace,
            json,
            results,
            jobs: jobs.unwrap_or_else(cpus),
            timeout: Duration::from_secs(timeout),
        }),
        Command::Sweep {
            grid,
            axis,
            cc,
            seeds,
            set,
            engine,
            plot,
            out,
            backend,
            sbatch,
            cell,
            json,
            jobs,
            timeout,
        } => sweep::command(&sweep::Request {
            grid,
            axes: axis,
            ccs: cc,
            seeds,
            sets: set,
            engine,
            plot,
            out,
            backend,
            sbatch,
            cell,
            json,
            jobs: jobs.unwrap_or_else(cpus),
            timeout: Duration::from_secs(timeout),
        }),
        Command::Paper {
            paper,
            figure,
            quick,
            seeds,
            cc,
            out,
            json,
            jobs,
            timeout,
        } => paper::command(&paper::Request {
            paper,
            figures: figure,
            quick,
            seeds,
            ccs: cc,
            out,
            json,
            jobs: jobs.unwrap_or_else(cpus),
            timeout: Duration::from_secs(timeout),
        }),
        Command::List { json } => list(json),
        Command::Check {
            result,
            results,
            json,
        } => expect::command(&result, &results, json),
        Command::Compare { a, b, json } => compare::command(&a, &b, json),
        Command::Shell { scenario, engine } => shell::command(scenario.as_deref(), engine),
        Command::Selftest {
            names,
            engine,
            kernel,
            long,
            timeout,
        } => selftest::command(&names, engine, kernel, long, Duration::from_secs(timeout)),
        Command::Bench {
            json,
            update_docs,
            boots,
            timeout,
        } => bench::command(json, update_docs, boots, Duration::from_secs(timeout)),
        Command::Twin {
            scenarios,
            set,
            seed,
            pcap,
            json,
            jobs,
            timeout,
        } => twin::command(&twin::Request {
            scenarios,
            sets: set,
            seed,
            pcap,
            json,
            jobs: jobs.unwrap_or_else(cpus),
            timeout: Duration::from_secs(timeout),
        }),
        Command::Trace { command, request } => match command {
            Some(TraceCommand::Plot { file, output }) => trace::plot::command(&file, &output),
            None => trace::command(&request),
        },
        Command::Qdisc(command) => {
            match command {
                QdiscCommand::Add(args) => qdisc::attach(qdisc::Verb::Add, &args.words),
                QdiscCommand::Change(args) => qdisc::attach(qdisc::Verb::Change, &args.words),
                QdiscCommand::Replace(args) => qdisc::attach(qdisc::Verb::Replace, &args.words),
                QdiscCommand::Del(args) => qdisc::delete(&args.words),
                QdiscCommand::Show {
                    statistics,
                    json,
                    words,
                } => qdisc::show(&words, statistics, json),
            }?;
            Ok(true)
        }
        Command::Kdir {
            headers,
            source,
            root,
            modules,
            out,
            json,
            jobs,
        } => kdir::command(&kdir::Request {
            headers,
            source,
            root,
            modules,
            out,
            json,
            jobs: jobs.unwrap_or_else(cpus),
        }),
        Command::Ss(args) => observe::ss::command(&args),
        Command::Watch(args) => observe::watch::command(&args),
        Command::Top(args) => observe::top::command(&args),
        Command::Doctor { kdir, json } => doctor::command(kdir.as_deref(), json),
        Command::Completions { shell } => {
            manual::completions(&mut Cli::command(), shell)?;
            Ok(true)
        }
        Command::Man { dir } => {
            manual::pages(Cli::command(), &dir)?;
            Ok(true)
        }
        Command::Tethered { parent, words } => match tether::become_program(parent, &words)? {},
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A line of `xdc list`.
#[derive(serde::Serialize)]
struct Listed {
    name: String,
    engine: &'static str,
    title: String,
}

fn list(json: bool) -> Result<bool> {
    let home = Home::find()?;
    let dir = home.scenarios();
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .map_err(|err| error::Error::io(dir.display(), &err))?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".toml")?.to_owned())
        })
        .collect();
    names.sort();
    let listed: Vec<_> = names
        .into_iter()
        .map(|name| {
            let scenario = scenario::load(Some(&home), &name, &[])?.scenario;
            Ok(Listed {
                name,
                engine: scenario.engine.name(),
                title: scenario.title,
            })
        })
        .collect::<Result<_>>()?;
    if json {
        println!("{:#}", serde_json::json!(listed));
        return Ok(true);
    }
    let width = listed.iter().map(|it| it.name.len()).max().unwrap_or(0);
    for Listed {
        name,
        engine,
        title,
    } in listed
    {
        println!("{name:width$}  {engine:4}  {title}");
    }
    Ok(true)
}
