// SPDX-License-Identifier: GPL-2.0

//! The algorithms alone: integers in, decisions out.
//!
//! Nothing here knows a kernel. The kernel modules include this file as a module `algo` and their own
//! algorithm beside it, the userspace crate `xdc-algo` includes the very same files, so that property tests and a
//! reference in floating point reach the code that runs in the kernel. Hence: `core` only, no
//! float, no `unsafe`, no panic on any input, and time is always an argument.

// Each kernel module includes all of it privately and uses a part.
#![allow(dead_code, unreachable_pub)]

pub mod acceltor;
pub mod acceltor_plan;
pub mod balance;
pub mod color;
pub mod controller;
pub mod dctcp;
pub mod entry;
pub mod fixed;
pub mod gf256;
pub mod host;
pub mod params;
pub mod paths;
pub mod phantom;
pub mod random;
pub mod resequence;
pub mod rtt;
pub mod shaper;
pub mod shared_phantom;
pub mod tlt;
pub mod tunnel;
pub mod unorc;
pub mod window;

#[cfg(test)]
#[path = "tests/support.rs"]
pub(crate) mod support;
#[cfg(test)]
#[path = "tests/unorc_support.rs"]
pub(crate) mod unorc_support;

/// What one ACK tells a congestion control.
///
/// Bytes count payload. A field that the stack could not measure is 0 or `None`, as said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// Time of arrival on a monotonic clock.
    pub now_us: u64,
    /// RTT of the newest segment acknowledged, if that segment was sent exactly once and its RTT
    /// was measured in microseconds.
    pub rtt_us: Option<u32>,
    /// The receiving host may have waited before it sent the ACK, so the path's RTT may be shorter.
    pub is_rtt_of_host: bool,
    /// Smoothed RTT; 0 = none yet.
    pub srtt_us: u32,
    /// Bytes newly delivered, cumulatively or selectively.
    pub acked_bytes: u64,
    /// Of those, bytes that arrived with a CE mark.
    pub marked_bytes: u64,
    /// Rate sample: bytes delivered over `interval_us`, about one round trip.
    pub delivered_bytes: u64,
    /// Rate sample: its length; 0 = no valid sample.
    pub interval_us: u32,
    /// The sampled flight was limited by the application, not by the network: its rate says nothing.
    pub app_limited: bool,
    /// The window is made use of, so it may grow.
    pub cwnd_limited: bool,
    /// The sender is repairing a loss.
    pub in_recovery: bool,
    /// Packets in flight before this ACK.
    pub prior_in_flight: u32,
    /// Bytes in flight after this ACK; asked for while a loss is repaired.
    pub in_flight_bytes: u64,
    /// Payload of a full segment.
    pub mss_bytes: u32,
}

impl Ack {
    /// When the newest segment that this ACK acknowledges was sent.
    pub fn sent_at_us(&self) -> Option<u64> {
        self.rtt_us
            .map(|rtt_us| self.now_us.saturating_sub(u64::from(rtt_us)))
    }

    /// Bytes newly delivered without a mark.
    pub fn unmarked_bytes(&self) -> u64 {
        self.acked_bytes.saturating_sub(self.marked_bytes)
    }
}

/// What a congestion control wants the sender to do from now on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Output {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow start ends here.
    pub ssthresh_bytes: u64,
    /// Pacing rate; `u64::MAX` = not paced.
    pub pacing_bytes_per_s: u64,
}
