// SPDX-License-Identifier: GPL-2.0
//! Records our tracepoints during a run in a separate tracefs instance. It is read only at the end, so a
//! recording wakes no process. Events lost to a full buffer are counted.

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

/// Trace memory, KiB: of all processors together, and the minimum for each. An event takes about 150 bytes.
const BUFFER_KB: usize = 128 << 10;
const LEAST_KB: usize = 4 << 10;

/// An active recording, stopped on drop.
pub struct Trace {
    instance: PathBuf,
    /// Names and format descriptions of the recorded events.
    formats: Vec<(String, String)>,
}

impl Trace {
    /// Starts recording the subset of `events` that the loaded modules have.
    pub fn start(events: &[String]) -> Result<Self> {
        let there = Path::new(TRACEFS).join("events/xdc");
        let formats = events
            .iter()
            .filter_map(|event| {
                let format = fs::read_to_string(there.join(event).join("format"));
                Some((event.clone(), format.ok()?))
            })
            .collect();
        let trace =
            Self { instance: instance(INSTANCE.get().map_or("xdc", String::as_str)), formats };
        fs::create_dir(&trace.instance).with_context(|| {
            format!("cannot make {}: mount tracefs there", trace.instance.display())
        })?;
        let processors = trace.processors()?.len().max(1);
        let each_kb = (BUFFER_KB / processors).max(LEAST_KB);
        for (file, value) in [
            ("trace_clock", "mono"),
            // Keep the oldest events: the end is known from the counters.
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

    /// Reports the events since the start.
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

    /// Folders of the processors.
    fn processors(&self) -> Result<Vec<PathBuf>> {
        let path = self.instance.join("per_cpu");
        let entries = fs::read_dir(&path).with_context(|| path.display().to_string())?;
        let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
        paths.with_context(|| path.display().to_string())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Drop cannot report a failure.
        let _ = fs::remove_dir(&self.instance);
    }
}

/// Instance name, unique on a shared machine. Unset in a guest, which has no other user.
static INSTANCE: OnceLock<String> = OnceLock::new();

/// Sets the instance name for [`Trace::start`]; only the first call has an effect.
pub fn record_in(name: String) {
    let _ = INSTANCE.set(name);
}

fn instance(name: &str) -> PathBuf {
    Path::new(TRACEFS).join("instances").join(name)
}

/// Removes the instance of a killed worker.
pub fn remove(name: &str) {
    // Usually the instance does not exist.
    let _ = fs::remove_dir(instance(name));
}

/// Sends the raw pages of the ring buffer.
fn send_pages(path: &Path, channel: &mut Channel) -> Result<()> {
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    let mut page = vec![0; page_bytes as usize];
    // Non-blocking: tracing is off, so no event is added.
    let mut pipe = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let cpu = processor(path);
    loop {
        match pipe.read(&mut page) {
            Ok(0) => return Ok(()),
            Ok(bytes) => channel
                .send(&Message::TracePage { cpu, bytes: xdc_proto::to_hex(&page[..bytes]) })?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Processor number: 3 in "per_cpu/cpu3/trace_pipe_raw".
fn processor(path: &Path) -> u32 {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    let number = folder.to_str().and_then(|name| name.strip_prefix("cpu"));
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Events lost to a full buffer, from the text of a `stats` file.
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
    fn lost_events_sum_three_counters() {
        let stats = "entries: 9\noverrun: 1\ncommit overrun: 2\nbytes: 400\n\
                     oldest event ts:     5.1\nnow ts:     6.2\ndropped events: 4\nread events: 8\n";
        assert_eq!(lost(stats), 7);
        assert_eq!(processor(Path::new("per_cpu/cpu12/stats")), 12);
    }
}
