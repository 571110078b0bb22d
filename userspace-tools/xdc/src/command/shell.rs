// SPDX-License-Identifier: GPL-2.0
//! `xdc shell`: the terminal becomes the guest's console.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use rustix::fs::{FileType, fstat};
use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_guest::Guest;
use xdc_guest::engine::{Clock, Engine, Machine};
use xdc_proto::SHARED_FOLDER;
use xdc_result::files::Pending;
use xdc_scenario::engine::Kind;
use xdc_scenario::plan;

use crate::live::trace::observer;

const MACHINE: Machine = Machine { cpus: 2, memory_mb: 2048, spins: false };

/// Folder below the results, in place of a scenario's name.
const FOLDER: &str = "shell";

#[derive(clap::Args)]
pub struct Request {
    /// Scenario whose network to build.
    scenario: Option<String>,
    /// Congestion control of new sockets and of the scenario's flows [default: the first of the
    /// scenario].
    #[arg(long, value_name = "CC", requires = "scenario")]
    cc: Option<String>,
    /// Change a key of the scenario, as for `xdc run`.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "scenario")]
    sets: Vec<String>,
    /// qemu, or uml, which starts sooner and has no tracepoints. Both run in real time.
    #[arg(long, value_name = "ENGINE", default_value = "qemu", hide_possible_values = true)]
    engine: Kind,
    /// Directory of results; files that the guest leaves in /shared go to DIR/shell/N/shared.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
}

pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    if request.engine == Kind::Uml && !can_be_waited_for(&io::stdin()) {
        return Err(Error::usage(
            "standard input is neither a terminal nor a pipe: User Mode Linux would hang",
        )
        .hint("cat FILE | xdc shell --engine uml, or --engine qemu"));
    }
    let loaded = match &request.scenario {
        Some(name) => Some(xdc_scenario::load(Some(&home), name, &request.sets)?),
        None => None,
    };
    let scenario = loaded.as_ref().map(|loaded| &loaded.scenario);
    let plan = plan::shell_plan(scenario, request.cc.as_deref());
    let plan = plan.map_err(|err| match &loaded {
        Some(loaded) => loaded.placed(err),
        None => err,
    })?;
    let guest = Guest {
        home: &home,
        engine: Engine::new(&home, request.engine, Flavour::X86, Clock::Wall)?,
        machine: MACHINE,
    };
    if request.engine == Kind::Qemu && home.guest_program(observer::OBJECT)?.is_none() {
        eprintln!("xdc: this guest lacks the program of `xdc trace`; try: make tracing");
    }
    let mut left: Option<Pending> = None;
    let outcome = guest.interact(&plan, |name, file| {
        let pending = match left.take() {
            Some(pending) => pending,
            None => Pending::new(&request.results, FOLDER)?,
        };
        // In a subfolder, since a result's own files may have equal names.
        let mut copy = pending.create(&format!("{SHARED_FOLDER}/{name}"))?;
        io::copy(file, &mut copy).map_err(|err| Error::io(name, &err))?;
        left = Some(pending);
        Ok(())
    });
    if let Some(pending) = left {
        let dir = pending.keep()?.join(SHARED_FOLDER);
        eprintln!("xdc: /shared is in {}", dir.display());
    }
    outcome.map(|()| true)
}

/// Returns false for a regular file and /dev/null, which never block.
fn can_be_waited_for(input: &io::Stdin) -> bool {
    let kind = fstat(input).map(|stat| FileType::from_raw_mode(stat.st_mode));
    input.is_terminal() || matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}
