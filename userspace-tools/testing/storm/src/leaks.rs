// SPDX-License-Identifier: GPL-2.0
//! What kmemleak finds: what is leaked on purpose, and nothing else.

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

/// The test-only module that leaks when it is told to: so many objects, and its name is in the
/// backtrace of each.
const ALARM: &str = "xdc_alarm";
const LEAKS: usize = 32;

/// How each object begins.
const OBJECT: &str = "unreferenced object ";

/// Leaks on purpose, and looks for that and for what all tests so far have leaked. One look for
/// both: a scan takes long, and what it finds of the first is what the second is worth.
pub fn attack(storm: &mut Storm) -> Result<()> {
    ensure!(
        Path::new(KMEMLEAK).exists(),
        "this kernel has no kmemleak (CONFIG_DEBUG_KMEMLEAK)"
    );
    let path = modules::path(ALARM)?;
    finit_module(&File::open(&path)?, c"kind=leak", ModuleInitFlags::empty())
        .with_context(|| format!("cannot load {ALARM}"))?;
    let found = scan();
    modules::unload(ALARM)?;
    let found = found?;
    let caller = format!("[{ALARM}]");
    let (ours, others): (Vec<&str>, Vec<&str>) = found
        .split(OBJECT)
        .skip(1)
        .partition(|object| object.contains(&caller));
    // A stale word that looks like a pointer may hide one or the other.
    storm.ktap.case(
        &format!(
            "kmemleak finds what is leaked on purpose: {} of {LEAKS}",
            ours.len()
        ),
        (|| {
            ensure!(ours.len() * 2 > LEAKS, "it finds {:?}", head(&found));
            Ok(())
        })(),
    );
    storm.ktap.case(
        "kmemleak finds nothing else",
        (|| {
            ensure!(others.is_empty(), "{}", head(&others.concat()));
            Ok(())
        })(),
    );
    fs::write(KMEMLEAK, "clear")?;
    Ok(())
}

/// Everything that nothing points to any more.
fn scan() -> Result<String> {
    // What a cache keeps to free later is no leak, and RCU takes its time.
    thread::sleep(MIN_AGE);
    // The first only remembers what the objects hold; whatever changes is in use.
    for _ in 0..2 {
        fs::write(KMEMLEAK, "scan").context("kmemleak is off")?;
    }
    Ok(fs::read_to_string(KMEMLEAK)?)
}

fn head(found: &str) -> String {
    found.lines().take(30).collect::<Vec<_>>().join("\n")
}
