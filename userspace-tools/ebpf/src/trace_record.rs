// SPDX-License-Identifier: GPL-2.0
//! Events that the tracepoint programs pass to `xdc trace`. Included by both. The programs copy an
//! event without decoding it; tracefs describes its fields.

/// Size of the largest event, rounded up. The reader refuses larger events.
pub const EVENT_BYTES: usize = 160;

/// Size of the common fields at an event's start, which eBPF cannot read.
pub const COMMON_BYTES: usize = 8;

/// One event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Record {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Number of the program, below [`PROGRAMS`].
    pub event: u32,
    /// Processor.
    pub cpu: u32,
    /// Fields as tracefs describes them.
    pub fields: [u8; EVENT_BYTES],
}

/// Number of programs, `event_0` and so on. `xdc trace` attaches one to each tracepoint that it
/// records.
#[allow(dead_code)]
pub const PROGRAMS: usize = 32;
