// SPDX-License-Identifier: GPL-2.0
//! `xdc`: congestion controls compared across emulated datacenters.
//!
//! Exit codes: 0 success, 1 failure or an expectation that does not hold, 2 mistake in the command
//! line or a scenario, 129, 130 and 143 ended by SIGHUP, Ctrl-C and SIGTERM.
//!
//! `live` is about the running kernel, and `setup` about this host.

#[macro_use]
extern crate xdc_base;

mod cli;
mod command;
pub mod fuzzing;
mod live;
mod setup;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::interrupt;
use xdc_base::text::printable;
use xdc_guest::tether;
use xdc_result::expect;
use xdc_result::provenance::COMMIT;
use xdc_study::{bench, compare, hunt, paper, score, selftest, sweep, table, tune};

use crate::cli::{
    AcceltorCommand, CcCommand, Cli, Command, PeerCommand, QdiscCommand, TraceCommand, UnorcCommand,
};
use crate::command::{acceltor, cc, export, manual, new, run, shell, show, unorc};
use crate::live::{elephants, observe, qdisc, trace};
use crate::setup::{doctor, kdir};

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let _ = COMMIT.set(env!("XDC_COMMIT"));
    interrupt::exit(tether::become_guest().and_then(|()| {
        let command = Cli::parse().command;
        interrupt::install()?;
        dispatch(command)
    }))
}

/// Runs a command; returns whether it succeeded.
fn dispatch(command: Command) -> Result<bool> {
    if let Command::List { .. }
    | Command::Cc(CcCommand::List(_))
    | Command::New { .. }
    | Command::Schema
    | Command::Check { .. }
    | Command::Unorc(_)
    | Command::Qdisc(_)
    | Command::Ss(_)
    | Command::Watch(_)
    | Command::Trace { .. }
    | Command::Doctor { .. } = command
    {
        interrupt::end_on_closed_pipe()?;
    }
    match command {
        Command::Run(request) => run::command(&request),
        Command::Sweep(request) => sweep::command(&request),
        Command::Paper(request) => paper::command(&request),
        Command::Score(request) => score::command(&request),
        Command::Tune(request) => tune::command(&request),
        Command::Hunt(request) => hunt::command(&request),
        Command::Cc(CcCommand::Add(request)) => cc::add(&request),
        Command::Cc(CcCommand::List(request)) => cc::list(&request),
        Command::Cc(CcCommand::Remove(request)) => cc::remove(&request),
        Command::List { json } => list(json),
        Command::Show(request) => show::command(&request),
        Command::New { file } => new::command(&file),
        Command::Schema => xdc_scenario::schema::command(),
        Command::Check { result, results, json } => expect::command(&result, &results, json),
        Command::Compare { a, b, plot, different, json } => {
            compare::command(&a, &b, plot.as_deref(), (json, different))
        }
        Command::Table(request) => table::command(&request),
        Command::Export(request) => export::command(&request),
        Command::Shell(request) => shell::command(&request),
        Command::Selftest(request) => selftest::command(&request),
        Command::Bench(request) => bench::command(&request),
        Command::Acceltor(AcceltorCommand::Plan(request)) => acceltor::command(&request),
        Command::Acceltor(AcceltorCommand::Elephants(request)) => elephants::command(&request),
        Command::Unorc(UnorcCommand::Key) => unorc::new_key(),
        Command::Unorc(UnorcCommand::Peer(command)) => match command {
            PeerCommand::Add(request) => unorc::add(request),
            PeerCommand::Set(request) => unorc::change(request),
            PeerCommand::Del(place) => unorc::delete(&place),
            PeerCommand::Show(request) => unorc::show(&request),
        },
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
                QdiscCommand::Show { statistics, json, words } => {
                    qdisc::show(&words, statistics, json)
                }
            }?;
            Ok(true)
        }
        Command::Kdir(request) => kdir::command(&request),
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
    }
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
        .map_err(|err| Error::io(dir.display(), &err))?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".toml")?.to_owned())
        })
        .collect();
    names.sort();
    let listed: Vec<_> = names
        .into_iter()
        .map(|name| {
            let scenario = xdc_scenario::load(Some(&home), &name, &[])?.scenario;
            Ok(Listed { name, engine: scenario.engine.name(), title: scenario.title })
        })
        .collect::<Result<_>>()?;
    if json {
        println!("{:#}", serde_json::json!(listed));
        return Ok(true);
    }
    let width = listed.iter().map(|it| it.name.len()).max().unwrap_or(0);
    for Listed { name, engine, title } in listed {
        println!("{name:width$}  {engine:4}  {}", printable(&title));
    }
    Ok(true)
}
