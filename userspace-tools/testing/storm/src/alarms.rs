// SPDX-License-Identifier: GPL-2.0
//! Deliberate mistakes, each of which must raise the alarm: a line at console level that `xdc` takes for an
//! alarm.
//!
//! Each mistake is announced to the host, which ends the run unless the report comes once. Detectors report
//! only once, so this attack runs last in a guest.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::kmod::{ModuleInitFlags, finit_module};
use xdc_proto::alarm::{CONSOLE_LEVEL, MISTAKES, is_alarm};

use crate::{Storm, modules};

const MODULE: &str = "xdc_alarm";

/// Makes each mistake.
pub fn attack(storm: &mut Storm) -> Result<()> {
    for (kind, report) in MISTAKES {
        storm
            .ktap
            .case(&format!("a kernel error of kind {kind} raises an alarm"), raises(kind, report));
    }
    Ok(())
}

fn raises(kind: &str, report: &str) -> Result<()> {
    let mut log = Log::open()?;
    let path = modules::path(MODULE)?;
    let argument = std::ffi::CString::new(format!("kind={kind} announce=1"))?;
    finit_module(&File::open(path)?, &argument, ModuleInitFlags::empty())?;
    modules::unload(MODULE)?;
    let records = log.records()?;
    let (level, text) = records
        .iter()
        .find(|(_, text)| text.contains(report))
        .ok_or_else(|| anyhow!("no kernel message for {report:?}"))?;
    ensure!(*level < CONSOLE_LEVEL, "level {level} is not printed on the console");
    ensure!(is_alarm(text), "no alarm for {text:?}");
    Ok(())
}

/// Reader of new records in /dev/kmsg.
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

    /// Level and text of records since the last call.
    fn records(&mut self) -> Result<Vec<(u32, String)>> {
        let mut found = Vec::new();
        let mut buffer = vec![0; 8_192];
        loop {
            let n = match self.0.read(&mut buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(found),
                // The ring buffer overwrote older records.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => continue,
                Err(e) => return Err(e.into()),
            };
            // "level,number,time,flags;text"; the low three bits are the level.
            let record = String::from_utf8_lossy(&buffer[..n]).into_owned();
            let (head, text) = record.split_once(';').context("a record without text")?;
            let level: u32 = head.split(',').next().unwrap_or("").parse()?;
            found.push((level & 7, text.to_string()));
        }
    }
}
