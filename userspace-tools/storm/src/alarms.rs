// SPDX-License-Identifier: GPL-2.0
//! Mistakes on purpose, each of which has to raise the alarm: a line at a level that reaches the
//! console, of those for which the host ends a run.
//!
//! The console is silenced meanwhile, or the host would do so. The detectors report once and
//! then rest, so this comes last in the life of a guest.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::kmod::{ModuleInitFlags, finit_module};
use xdc_proto::alarm::{CONSOLE_LEVEL, is_alarm};

use crate::{Storm, modules};

const MODULE: &str = "xdc_alarm";

/// What the module does wrong, and what the kernel calls it. Lockdep rests after its first
/// report and after KASAN's, so it is asked first.
const MISTAKES: [(&str, &str); 4] = [
    ("lockdep", "possible circular locking dependency"),
    ("sleep", "sleeping function called from invalid context"),
    ("warn", "WARNING: "),
    ("kasan", "BUG: KASAN"),
];

/// Makes them all.
pub fn attack(storm: &mut Storm) -> Result<()> {
    let _silence = Silence::new()?;
    for (kind, report) in MISTAKES {
        storm.ktap.case(
            &format!("the alarm for a mistake of kind {kind}"),
            raises(kind, report),
        );
    }
    Ok(())
}

fn raises(kind: &str, report: &str) -> Result<()> {
    let mut log = Log::open()?;
    let path = modules::path(MODULE)?;
    let argument = std::ffi::CString::new(format!("kind={kind}"))?;
    finit_module(&File::open(path)?, &argument, ModuleInitFlags::empty())?;
    modules::unload(MODULE)?;
    let records = log.records()?;
    let (level, text) = records
        .iter()
        .find(|(_, text)| text.contains(report))
        .ok_or_else(|| anyhow!("the kernel says nothing of {report:?}"))?;
    ensure!(
        *level < CONSOLE_LEVEL,
        "level {level} stays off the console"
    );
    ensure!(is_alarm(text), "no alarm for {text:?}");
    Ok(())
}

/// No kernel message reaches the console while this lives.
struct Silence(String);

const PRINTK: &str = "/proc/sys/kernel/printk";

impl Silence {
    fn new() -> Result<Self> {
        let old = fs::read_to_string(PRINTK)?;
        // Panics still do.
        fs::write(PRINTK, "1")?;
        Ok(Self(old))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // Nothing could be said of a failure where nobody listens.
        let _ = fs::write(PRINTK, &self.0);
    }
}

/// /dev/kmsg from now on.
struct Log(File);

impl Log {
    fn open() -> Result<Self> {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .context("/dev/kmsg")?;
        let mut log = Self(file);
        log.records()?;
        Ok(log)
    }

    /// Level and text of what has come since the last call.
    fn records(&mut self) -> Result<Vec<(u32, String)>> {
        let mut found = Vec::new();
        let mut buffer = vec![0; 8_192];
        loop {
            let n = match self.0.read(&mut buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(found),
                // Older records were overwritten.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => continue,
                Err(e) => return Err(e.into()),
            };
            // "level,number,time,flags;text": the level is in the low three bits.
            let record = String::from_utf8_lossy(&buffer[..n]).into_owned();
            let (head, text) = record.split_once(';').context("a record without text")?;
            let level: u32 = head.split(',').next().unwrap_or("").parse()?;
            found.push((level & 7, text.to_string()));
        }
    }
}
