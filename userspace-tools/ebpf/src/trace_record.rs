// SPDX-License-Identifier: GPL-2.0
//! What passes between the observer of our tracepoints in the kernel and `xdc trace`. Included
//! by both. What the kernel wrote is not looked at on the way: tracefs says what is in it.

/// Bytes of the largest event, rounded up. The reader refuses one that is larger.
pub const EVENT_BYTES: usize = 160;

/// What the kernel puts before an event's own fields, and does not show to eBPF.
pub const COMMON_BYTES: usize = 8;

/// One event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Record {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Which of the [`PROGRAMS`].
    pub event: u32,
    /// On which processor.
    pub cpu: u32,
    /// As tracefs describes it.
    pub fields: [u8; EVENT_BYTES],
}

/// How many programs there are, `event_0` and so on: one for each tracepoint that is listened to. Which
/// that is, `xdc trace` decides.
#[allow(dead_code)]
pub const PROGRAMS: usize = 32;
