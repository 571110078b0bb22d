// SPDX-License-Identifier: GPL-2.0
//! Events of our tracepoints during a run, into a tracefs instance of its own that is not read
//! before the end. So a recording wakes no process. Events that a full buffer has no room for are counted.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context, Result};
use nix::unistd::{SysconfVar, sysconf};
use xdc_proto::{Message, TraceHead};

use crate::{channel::Channel, network::Network};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Memory for events, all processors together, and at least for each. An event takes some 150
/// bytes.
const BUFFER_KB: usize = 128 << 10;
const LEAST_KB: usize = 4 << 10;

/// A recording under way. It ends with this.
pub struct Trace {
    instance: PathBuf,
    /// Names and descriptions of what is listened to.
    formats: Vec<(String, String)>,
}

impl Trace {
    /// Begins to record those of `events` that the loaded modules have.
    pub fn start(events: &[String]) -> Result<Self> {
        let there = Path::new(TRACEFS).join("events/xdc");
        let formats = events
            .iter()
            .filter_map(|event| {
                let format = fs::read_to_string(there.join(event).join("format"));
                Some((event.clone(), format.ok()?))
            })
            .collect();
        let trace = Self {
            instance: instance(INSTANCE.get().map_or("xdc", String::as_str)),
            formats,
        };
        fs::create_dir(&trace.instance).with_context(|| {
            format!(
                "cannot make {}: mount tracefs there",
                trace.instance.display()
            )
        })?;
        let processors = trace.processors()?.len().max(1);
        let each_kb = (BUFFER_KB / processors).max(LEAST_KB);
        for (file, value) in [
            ("trace_clock", "mono"),
            // What came first is kept: the end is known from the counters.
            ("options/overwrite", "0"),
            ("buffer_size_kb", &each_kb.to_string()),
        ] {
            trace.write(file, value)?;
        }
        for (event, _) in &trace.formats {
            trace.write(&format!("events/xdc/{event}/enable"), "1")?;
        }
        Ok(trace)
    }

    /// Reports what has happened since the start.
    pub fn report(&self, network: &Network, origin_ns: u64, channel: &mut Channel) -> Result<()> {
        self.write("tracing_on", "0")?;
        let processors = self.processors()?;
        let mut missed = 0;
        for processor in &processors {
            let path = processor.join("stats");
            let stats = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            missed += lost(&stats);
        }
        channel.send(&Message::Trace(TraceHead {
            formats: self.formats.clone(),
            nodes: network.inodes()?,
            origin_ns,
            missed,
        }))?;
        for processor in &processors {
            let path = processor.join("trace_pipe_raw");
            send_pages(&path, channel).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write to {}", path.display()))
    }

    /// The folder of each processor.
    fn processors(&self) -> Result<Vec<PathBuf>> {
        let path = self.instance.join("per_cpu");
        let entries = fs::read_dir(&path).with_context(|| path.display().to_string())?;
        let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
        paths.with_context(|| path.display().to_string())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Nobody hears of a failure.
        let _ = fs::remove_dir(&self.instance);
    }
}

/// On a shared machine a name that is unique; a guest has no other user.
static INSTANCE: OnceLock<String> = OnceLock::new();

/// Says where [`Trace::start`] records, once.
pub fn record_in(name: String) {
    // Whoever was first stays.
    let _ = INSTANCE.set(name);
}

fn instance(name: &str) -> PathBuf {
    Path::new(TRACEFS).join("instances").join(name)
}

/// Removes what a worker that was killed has left.
pub fn remove(name: &str) {
    // In most cases there is none.
    let _ = fs::remove_dir(instance(name));
}

/// Sends the pages of the ring buffer, as they are.
fn send_pages(path: &Path, channel: &mut Channel) -> Result<()> {
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    let mut page = vec![0; page_bytes as usize];
    // What is not there yet will never come.
    let mut pipe = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let cpu = processor(path);
    loop {
        match pipe.read(&mut page) {
            Ok(0) => return Ok(()),
            Ok(bytes) => channel.send(&Message::TracePage {
                cpu,
                bytes: xdc_proto::to_hex(&page[..bytes]),
            })?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// 3 of "per_cpu/cpu3/trace_pipe_raw".
fn processor(path: &Path) -> u32 {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    let number = folder.to_str().and_then(|name| name.strip_prefix("cpu"));
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

/// Events that a processor's buffer had no room for.
fn lost(stats: &str) -> u64 {
    let counters = stats.lines().filter_map(|line| line.split_once(": "));
    counters
        .filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_those_of_three_counters() {
        let stats = "entries: 9\noverrun: 1\ncommit overrun: 2\nbytes: 400\n\
                     oldest event ts:     5.1\nnow ts:     6.2\ndropped events: 4\nread events: 8\n";
        assert_eq!(lost(stats), 7);
        assert_eq!(processor(Path::new("per_cpu/cpu12/stats")), 12);
    }
}
