// SPDX-License-Identifier: GPL-2.0
//! What kmemleak finds, and that it would find something.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::kmod::{ModuleInitFlags, finit_module};

use crate::{Storm, modules};

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// kmemleak reports nothing that is younger than this.
const MIN_AGE: Duration = Duration::from_millis(5_500);

/// The test-only module that leaks when it is told to.
const ALARM: &str = "xdc_alarm";

/// The whole case: what has been leaked so far, then a leak on purpose.
pub fn attack(storm: &mut Storm) -> Result<()> {
    ensure!(
        Path::new(KMEMLEAK).exists(),
        "this kernel has no kmemleak (CONFIG_DEBUG_KMEMLEAK)"
    );
    storm.ktap.case(
        "kmemleak finds nothing",
        scan().and_then(|found| {
            ensure!(found.is_empty(), "{}", head(&found));
            Ok(())
        }),
    );
    fs::write(KMEMLEAK, "clear")?;
    storm
        .ktap
        .case("kmemleak finds what is leaked on purpose", control());
    fs::write(KMEMLEAK, "clear")?;
    Ok(())
}

fn control() -> Result<()> {
    let path = modules::path(ALARM)?;
    finit_module(&File::open(&path)?, c"kind=leak", ModuleInitFlags::empty())
        .with_context(|| format!("cannot load {ALARM}"))?;
    let found = scan();
    modules::unload(ALARM)?;
    let found = found?;
    ensure!(
        found.contains("unreferenced object") && found.contains(ALARM),
        "it found {:?}",
        head(&found)
    );
    Ok(())
}

/// Everything that nothing points to any more.
fn scan() -> Result<String> {
    // What a cache keeps to free later is no leak, and RCU takes its time.
    thread::sleep(MIN_AGE);
    for _ in 0..2 {
        fs::write(KMEMLEAK, "scan").context("kmemleak is off")?;
    }
    Ok(fs::read_to_string(KMEMLEAK)?)
}

fn head(found: &str) -> String {
    found.lines().take(30).collect::<Vec<_>>().join("\n")
}
