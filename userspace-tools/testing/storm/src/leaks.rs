// SPDX-License-Identifier: GPL-2.0
//! Checks that kmemleak finds deliberate leaks and nothing else.

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

/// kmemleak reports no younger objects.
const MIN_AGE: Duration = Duration::from_millis(5_500);

/// Test-only module that leaks LEAKS objects. The backtrace of each has the module's name.
const ALARM: &str = "xdc_alarm";
const LEAKS: usize = 32;

/// First words of each object in a report.
const OBJECT: &str = "unreferenced object ";

/// Leaks on purpose, then scans once for these leaks and those of all earlier tests: a scan is slow, and
/// finding the deliberate leaks shows that it works.
pub fn attack(storm: &mut Storm) -> Result<()> {
    ensure!(Path::new(KMEMLEAK).exists(), "this kernel has no kmemleak (CONFIG_DEBUG_KMEMLEAK)");
    let path = modules::path(ALARM)?;
    finit_module(&File::open(&path)?, c"kind=leak", ModuleInitFlags::empty())
        .with_context(|| format!("cannot load {ALARM}"))?;
    let found = scan();
    modules::unload(ALARM)?;
    let found = found?;
    let caller = format!("[{ALARM}]");
    let (ours, others): (Vec<&str>, Vec<&str>) =
        found.split(OBJECT).skip(1).partition(|object| object.contains(&caller));
    // A stale pointer-like word may hide some of the objects.
    storm.ktap.case(
        &format!("kmemleak finds deliberate leaks: {} of {LEAKS}", ours.len()),
        (|| {
            ensure!(ours.len() * 2 > LEAKS, "kmemleak finds {:?}", head(&found));
            Ok(())
        })(),
    );
    storm.ktap.case(
        "kmemleak finds no other leak",
        (|| {
            ensure!(others.is_empty(), "{}", head(&others.concat()));
            Ok(())
        })(),
    );
    fs::write(KMEMLEAK, "clear")?;
    Ok(())
}

/// Returns all unreferenced objects.
fn scan() -> Result<String> {
    // Deferred frees (caches and RCU) are no leaks; wait for them.
    thread::sleep(MIN_AGE);
    // The first scan only stores checksums: objects that change are in use.
    for _ in 0..2 {
        fs::write(KMEMLEAK, "scan").context("kmemleak is off")?;
    }
    Ok(fs::read_to_string(KMEMLEAK)?)
}

fn head(found: &str) -> String {
    found.lines().take(30).collect::<Vec<_>>().join("\n")
}
