// SPDX-License-Identifier: GPL-2.0
//! `xdc`: congestion controls compared across emulated datacenters.
//!
//! Exit codes: 0 success, 1 failure or an expectation that does not hold, 2 mistake in the command
//! line or a scenario, 129, 130 and 143 ended by SIGHUP, Ctrl-C and SIGTERM.
//!
//! Folders are layers in the order of data flow, and use only earlier ones: `measure`, names of
//! metrics; `scenario`, from TOML to a plan; `guest`, starts guests; `result`, from a guest's
//! messages to files; `draw`, pictures and pages; `live`, the running kernel; `setup`, this host;
//! `command`, commands. Files beside the folders serve every layer and use none, except `cli`,
//! `fuzzing` and this one, which use all.

#[macro_use]
mod out;

mod added;
mod args;
mod cli;
mod command;
mod draw;
mod error;
pub mod fuzzing;
mod guest;
mod home;
mod interrupt;
mod live;
mod marked;
mod measure;
mod owned;
mod pool;
mod progress;
mod result;
mod scenario;
mod setup;
mod text;
mod trust;
mod units;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{
    AcceltorCommand, CcCommand, Cli, Command, PeerCommand, QdiscCommand, TraceCommand, UnorcCommand,
};
use crate::command::{
    acceltor, bench, cc, compare, export, foreign, hunt, manual, new, paper, run, score, selftest,
    shell, show, sweep, table, tune, twin, unorc,
};
use crate::error::Result;
use crate::guest::tether;
use crate::home::Home;
use crate::live::{elephants, observe, qdisc, trace};
use crate::result::expect;
use crate::setup::{doctor, kdir};

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    let outcome = match command {
        // Replaces this process, so the other program handles signals.
        Command::Tethered { parent, words } => {
            tether::become_program(parent, &words).map(|never| match never {})
        }
        command => interrupt::install().and_then(|()| dispatch(command)),
    };
    interrupt::wait_for_end();
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            err.report();
            err.exit_code()
        }
    }
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
        Command::Schema => scenario::schema::command(),
        Command::Check { result, results, json } => expect::command(&result, &results, json),
        Command::Compare { a, b, plot, different, json } => {
            compare::command(&a, &b, plot.as_deref(), (json, different))
        }
        Command::Table(request) => table::command(&request),
        Command::Export(request) => export::command(&request),
        Command::Shell(request) => shell::command(&request),
        Command::Selftest(request) => selftest::command(&request),
        Command::Foreign(request) => foreign::command(&request),
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
        Command::Twin(request) => twin::command(&request),
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
        Command::Tethered { .. } => Err(error::Error::usage("xdc starts this command itself")),
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
            Ok(Listed { name, engine: scenario.engine.name(), title: scenario.title })
        })
        .collect::<Result<_>>()?;
    if json {
        println!("{:#}", serde_json::json!(listed));
        return Ok(true);
    }
    let width = listed.iter().map(|it| it.name.len()).max().unwrap_or(0);
    for Listed { name, engine, title } in listed {
        println!("{name:width$}  {engine:4}  {}", text::printable(&title));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Layers; each uses only earlier ones.
    const WINGS: [&str; 8] =
        ["measure", "scenario", "guest", "result", "draw", "live", "setup", "command"];

    /// Files that use any layer; other files beside the folders use none.
    const ABOVE: [&str; 4] = ["cli.rs", "fuzzing.rs", "lib.rs", "main.rs"];

    #[test]
    fn a_layer_uses_only_earlier_layers() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut wrong = Vec::new();
        for path in sources(&src) {
            let inside = path.strip_prefix(&src).unwrap();
            let first = inside.iter().next().unwrap().to_str().unwrap();
            if ABOVE.contains(&first) {
                continue;
            }
            let place = |name: &str| WINGS.iter().position(|wing| *wing == name);
            let own = place(first);
            let known = own.is_some() || inside.iter().count() == 1;
            assert!(known, "'{first}' is not in the order of layers");
            for name in used(&fs::read_to_string(&path).unwrap()) {
                // None, a name that is no layer, is less than any place.
                if place(&name) > own {
                    wrong.push(format!("{} uses {name}", inside.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn sources(dir: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(sources(&path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
        found
    }

    /// Names that follow `crate::` outside of comments, also in braces.
    fn used(text: &str) -> Vec<String> {
        let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
        let code = text.lines().map(code).collect::<Vec<_>>().join("\n");
        let word = |text: &str| -> String {
            let letters = text.trim_start().chars();
            letters.take_while(|&c| c.is_alphanumeric() || c == '_').collect()
        };
        let mut names = Vec::new();
        for (at, root) in code.match_indices("crate::") {
            let rest = &code[at + root.len()..];
            let Some(group) = rest.strip_prefix('{') else {
                names.push(word(rest));
                continue;
            };
            let mut depth = 0;
            let mut outer = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    c if depth == 0 => outer.push(c),
                    _ => {}
                }
            }
            names.extend(outer.split(',').map(word));
        }
        names
    }

    #[test]
    fn uses_are_found_in_braces_and_not_in_comments() {
        let text = "use crate::{draw, live::{a, b},\n setup};\n/// [`crate::guest`]\n\
                    fn f() { crate::command::run() }";
        assert_eq!(used(text), ["draw", "live", "setup", "command"]);
    }
}
