// SPDX-License-Identifier: GPL-2.0
//! Loads the eBPF programs of ebpf/src/bin/xdc-trace.rs and reads their events.

use std::fmt::Display;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{MapData, PerCpuArray, RingBuf};
use aya::programs::TracePoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xdc_base::error::{Error, Result};

use super::events::EVENTS;
use super::record::{EVENT_BYTES, Record};
use crate::live::ebpf;

/// The attached programs, detached on drop.
pub struct Observer {
    ring: RingBuf<MapData>,
    missed: PerCpuArray<MapData, u64>,
    /// Keeps the programs loaded.
    ebpf: Ebpf,
}

/// One event, with raw fields.
pub struct Seen<'a> {
    pub at_ns: u64,
    /// Index of [`EVENTS`].
    pub event: usize,
    pub cpu: u32,
    pub fields: &'a [u8],
}

impl Observer {
    /// Attaches to the tracepoints with these indices of [`EVENTS`].
    pub fn open(events: &[usize]) -> Result<Self> {
        let (path, mut ebpf) = ebpf::load(OBJECT, NEEDS)?;
        for &event in events {
            let (name, number) = (EVENTS[event], format!("event_{event}"));
            let program: &mut TracePoint = ebpf
                .program_mut(&number)
                .and_then(|program| program.try_into().ok())
                .ok_or_else(|| ebpf::stale(&path, &number))?;
            let doing = format!("attaching the observer to xdc:{name}");
            program
                .load()
                .and_then(|()| program.attach("xdc", name))
                .map_err(|err| ebpf::refused(&doing, &err, NEEDS))?;
        }
        let ring = ebpf.take_map("RECORDS").and_then(|map| map.try_into().ok());
        let missed = ebpf.take_map("MISSED").and_then(|map| map.try_into().ok());
        Ok(Self {
            ring: ring.ok_or_else(|| ebpf::stale(&path, "RECORDS"))?,
            missed: missed.ok_or_else(|| ebpf::stale(&path, "MISSED"))?,
            ebpf,
        })
    }

    /// Waits for events, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut [PollFd::new(&self.ring, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(err) => Err(Error::io("waiting for events", &err.into())),
        }
    }

    /// Passes all pending events to `each`.
    pub fn drain(&mut self, mut each: impl FnMut(Seen<'_>) -> Result<()>) -> Result<()> {
        while let Some(item) = self.ring.next() {
            let seen = Seen::parse(&item).ok_or_else(|| {
                Error::failure(format!("received a record of {} bytes", item.len()))
            })?;
            each(seen)?;
        }
        Ok(())
    }

    /// Number of missed events: for lack of room, or because the processor was handling another
    /// event, during which the kernel runs no program.
    pub fn missed(&self) -> Result<u64> {
        let failed = |err: &dyn Display| {
            Error::failure(format!("reading the number of missed events: {err}"))
        };
        let counts = self.missed.get(&0, 0).map_err(|err| failed(&err))?;
        let mut missed = counts.iter().sum();
        for (_, program) in self.ebpf.programs() {
            // Program of an event that was not requested.
            let Ok(program) = program.fd() else { continue };
            let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
            let text = fs::read_to_string(path).map_err(|err| failed(&err))?;
            missed += recursion_misses(&text).ok_or_else(|| failed(&"no recursion_misses"))?;
        }
        Ok(missed)
    }
}

impl<'a> Seen<'a> {
    /// Parses a [`Record`].
    fn parse(record: &'a [u8]) -> Option<Self> {
        if record.len() != size_of::<Record>() {
            return None;
        }
        let (at_ns, rest) = record.split_first_chunk()?;
        let (event, rest) = rest.split_first_chunk()?;
        let (cpu, fields) = rest.split_first_chunk()?;
        let event = u32::from_ne_bytes(*event) as usize;
        (event < EVENTS.len() && fields.len() == EVENT_BYTES).then_some(Self {
            at_ns: u64::from_ne_bytes(*at_ns),
            event,
            cpu: u32::from_ne_bytes(*cpu),
            fields,
        })
    }
}

/// Parses the fdinfo of a program.
fn recursion_misses(fdinfo: &str) -> Option<u64> {
    let mut lines = fdinfo.lines();
    let count = lines.find_map(|line| line.strip_prefix("recursion_misses:"))?;
    count.trim().parse().ok()
}

/// Object file of the eBPF programs.
pub const OBJECT: &str = "xdc-trace.o";

/// Requirements of the eBPF programs.
const NEEDS: &str = "as root, on a kernel with CONFIG_BPF_EVENTS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_events_are_counted() {
        let fdinfo = "pos:\t0\nrun_cnt:\t7\nrecursion_misses:\t2\nverified_insns:\t30\n";
        assert_eq!(recursion_misses(fdinfo), Some(2));
        assert_eq!(recursion_misses("pos:\t0\n"), None);
    }

    #[test]
    fn a_record_is_parsed() {
        let mut record = Vec::new();
        record.extend(5_000_000_001_u64.to_ne_bytes());
        record.extend(3_u32.to_ne_bytes());
        record.extend(1_u32.to_ne_bytes());
        record.extend([7; EVENT_BYTES]);
        let seen = Seen::parse(&record).unwrap();
        assert_eq!((seen.at_ns, seen.event, seen.cpu), (5_000_000_001, 3, 1));
        assert_eq!(seen.fields, [7; EVENT_BYTES]);
        assert!(Seen::parse(&record[1..]).is_none());
        // An unknown event.
        record[8] = EVENTS.len() as u8;
        assert!(Seen::parse(&record).is_none());
    }
}
