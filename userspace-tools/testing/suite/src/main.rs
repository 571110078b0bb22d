// SPDX-License-Identifier: GPL-2.0
//! `xdc-suite check|test|long [OPTION...] [FILTER]`: the stages of `selftests/stages.toml`.
//!
//! OPTIONs and FILTER are those of a libtest harness (`--list`, `--exact`, `--skip`). The last line of output
//! is `N passed, N failed`; the exit code is 0 if none failed. `build/times/TIER.tsv` has the seconds of each
//! build, stage and guest script.

mod git;
mod run;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Trial};

use crate::run::Bench;
use crate::table::{Script, Stage, Tier};

fn main() -> ExitCode {
    match suite() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("xdc-suite: {err:#}");
            println!("0 passed, 1 failed");
            ExitCode::from(2)
        }
    }
}

fn suite() -> Result<bool> {
    let start = Instant::now();
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let (tier, name) = match words.next().as_deref() {
        Some("check") => (Tier::Check, "check"),
        Some("test") => (Tier::Test, "test"),
        Some("long") => (Tier::Long, "long"),
        _ => bail!("usage: xdc-suite check|test|long [OPTION...] [FILTER]"),
    };
    let mut args = Arguments::from_iter([program].into_iter().chain(words));
    let top = PathBuf::from(std::env::var_os("XDC_TOP").context("XDC_TOP is not set")?);
    let stages = select(&top, tier)?;
    let mut stages: Vec<_> = stages.into_iter().filter(|it| is_wanted(&args, it)).collect();
    let bench = Arc::new(Bench::new(&top, tier)?);
    if !args.list {
        bench.build(&mut stages)?;
    }
    let (last, first): (Vec<_>, Vec<_>) = stages.into_iter().partition(|stage| stage.last);
    // A guest takes one CPU.
    args.test_threads = args.test_threads.or(Some(2));
    let mut failed = false;
    for stages in [first, last] {
        let trials = stages.into_iter().map(|stage| trial(&bench, stage)).collect::<Vec<_>>();
        if !trials.is_empty() {
            failed |= libtest_mimic::run(&args, trials).has_failed();
        }
    }
    if args.list {
        return Ok(true);
    }
    bench.report(name, start.elapsed()).map(|holds| holds && !failed)
}

fn is_wanted(args: &Arguments, stage: &Stage) -> bool {
    let fits = |word: &String| match args.exact {
        true => *word == stage.name,
        false => stage.name.contains(word),
    };
    args.filter.as_ref().is_none_or(fits) && !args.skip.iter().any(fits)
}

fn trial(bench: &Arc<Bench>, stage: Stage) -> Trial {
    let bench = Arc::clone(bench);
    Trial::test(stage.name.clone(), move || bench.run(&stage).map_err(|said| said.into()))
}

/// The stages of a tier. `make check` leaves out stages that cover no changed file.
fn select(top: &std::path::Path, tier: Tier) -> Result<Vec<Stage>> {
    let stages = table::stages(top)?.into_iter();
    let mut stages: Vec<_> = stages.filter(|stage| stage.tier <= tier).collect();
    if tier != Tier::Check {
        if tier == Tier::Long {
            for stage in &mut stages {
                stage.run = stage.long.take().unwrap_or_else(|| stage.run.clone());
            }
        }
        return Ok(stages);
    }
    let Some(base) = git::base(top) else {
        println!("no upstream branch: running every fast stage (BASE=COMMIT selects by changes)");
        stages.retain(|stage| stage.kernel.is_none());
        return Ok(stages);
    };
    let scripts = table::scripts(top)?;
    let mut wanted = Vec::new();
    for mut stage in stages {
        let Some(kernel) = &stage.kernel else {
            if !git::changed(top, &base, &stage.covers)?.is_empty() {
                wanted.push(stage);
            }
            continue;
        };
        let mut names = Vec::new();
        // One boot: the plain kernel, which is faster, also runs the scripts of `uml-debug`.
        let is_meant = |script: &&Script| script.kernels.iter().any(|it| it.starts_with(kernel));
        for script in scripts.iter().filter(is_meant) {
            if !git::changed(top, &base, &script.covers)?.is_empty() {
                names.push(script.name.as_str());
            }
        }
        if !names.is_empty() {
            stage.run = format!("scripts='{}'\n{}", names.join(" "), stage.run);
            wanted.push(stage);
        }
    }
    if wanted.is_empty() {
        println!("no stage covers a change since {base}");
    }
    Ok(wanted)
}
