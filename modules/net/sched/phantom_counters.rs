// SPDX-License-Identifier: GPL-2.0

//! Counters of a port, and causes of drops.

use crate::{
    algo::{
        color::Color,
        fixed::{mul_div, NS_PER_S},
        port::Cause,
    },
    kernel_api::{qdisc::DropReason, relaxed::RelaxedCell, trace},
};

/// Counters, written under the queue's lock and read without it.
pub(crate) struct Counters {
    // Phantom queue as of the last packet
    pub(crate) phantom_bytes: RelaxedCell<u64>,
    pub(crate) phantom_at_ns: RelaxedCell<u64>,
    pub(crate) phantom_max_bytes: RelaxedCell<u64>,
    pub(crate) phantom_drain_bytes_per_s: RelaxedCell<u64>,

    // Physical queue
    pub(crate) backlog_max_bytes: RelaxedCell<u64>,
    pub(crate) accepted_bytes: [RelaxedCell<u64>; COLORS],
    /// Counted only if colors have a source, so that other ports save the cost.
    pub(crate) accepted_packets: [RelaxedCell<u64>; COLORS],
    pub(crate) red_max_bytes: RelaxedCell<u64>,
    pub(crate) busy_ns: RelaxedCell<u64>,
    /// 0 = idle.
    pub(crate) busy_since_ns: RelaxedCell<u64>,

    // Marked packets by cause
    pub(crate) marked_phantom: RelaxedCell<u64>,
    pub(crate) marked_physical: RelaxedCell<u64>,
    pub(crate) marked_both: RelaxedCell<u64>,
    pub(crate) would_mark: RelaxedCell<u64>,

    // Dropped packets by cause and by color
    pub(crate) drops_limit: RelaxedCell<u64>,
    pub(crate) drops_pool: RelaxedCell<u64>,
    pub(crate) drops_ecn: RelaxedCell<u64>,
    pub(crate) drops_color: RelaxedCell<u64>,
    pub(crate) drops: [RelaxedCell<u64>; COLORS],
}

pub(crate) const COLORS: usize = Color::Red as usize + 1;

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            phantom_bytes: RelaxedCell::new(0),
            phantom_at_ns: RelaxedCell::new(0),
            phantom_max_bytes: RelaxedCell::new(0),
            phantom_drain_bytes_per_s: RelaxedCell::new(0),
            backlog_max_bytes: RelaxedCell::new(0),
            accepted_bytes: [const { RelaxedCell::new(0) }; COLORS],
            accepted_packets: [const { RelaxedCell::new(0) }; COLORS],
            red_max_bytes: RelaxedCell::new(0),
            busy_ns: RelaxedCell::new(0),
            busy_since_ns: RelaxedCell::new(0),
            marked_phantom: RelaxedCell::new(0),
            marked_physical: RelaxedCell::new(0),
            marked_both: RelaxedCell::new(0),
            would_mark: RelaxedCell::new(0),
            drops_limit: RelaxedCell::new(0),
            drops_pool: RelaxedCell::new(0),
            drops_ecn: RelaxedCell::new(0),
            drops_color: RelaxedCell::new(0),
            drops: [const { RelaxedCell::new(0) }; COLORS],
        }
    }

    /// Counts an accepted packet, with the red bytes in the queue after it.
    #[inline(always)]
    pub(crate) fn count_color(&self, color: Color, red_bytes: u64) {
        if let Some(packets) = self.accepted_packets.get(color as usize) {
            packets.add(1);
        }
        if red_bytes > self.red_max_bytes.get() {
            self.red_max_bytes.set(red_bytes);
        }
    }

    pub(crate) fn show_phantom(&self, bytes: u64, now_ns: u64) {
        self.phantom_bytes.set(bytes);
        self.phantom_at_ns.set(now_ns);
        if bytes > self.phantom_max_bytes.get() {
            self.phantom_max_bytes.set(bytes);
        }
    }

    /// Returns the occupancy now: the last value less the drain since.
    pub(crate) fn phantom_bytes_at(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.phantom_at_ns.get());
        let drained = mul_div(elapsed_ns, self.phantom_drain_bytes_per_s.get(), NS_PER_S);
        self.phantom_bytes.get().saturating_sub(drained)
    }

    pub(crate) fn go_idle(&self, now_ns: u64) {
        let since_ns = self.busy_since_ns.get();
        if since_ns != 0 {
            self.busy_ns.add(now_ns.saturating_sub(since_ns));
            self.busy_since_ns.set(0);
        }
    }

    pub(crate) fn busy_ns_until(&self, now_ns: u64) -> u64 {
        let current_ns = match self.busy_since_ns.get() {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        self.busy_ns.get().wrapping_add(current_ns)
    }
}

/// Returns a cause's number in `xdc:phantom_mark`.
pub(crate) fn number_of(cause: Cause) -> trace::MarkCause {
    match cause {
        Cause::Phantom => trace::XDC_MARK_PHANTOM,
        Cause::Physical => trace::XDC_MARK_PHYSICAL,
        Cause::Both => trace::XDC_MARK_BOTH,
    }
}

/// Cause of a drop.
#[derive(Clone, Copy)]
pub(crate) enum DropCause {
    /// The port is full.
    Limit,
    /// The limit of this color is reached.
    Color,
    /// The pool's share of this port is used up.
    Pool,
    /// The packet would be marked, but is not ECT.
    Ecn,
    /// A filter's verdict.
    Filter,
    /// The packet could not be split.
    Whole,
}

impl DropCause {
    /// Returns the reason for the drop monitor; a filter sets its own.
    pub(crate) fn reason(self) -> Option<DropReason> {
        match self {
            Self::Limit | Self::Color | Self::Pool => Some(DropReason::Overlimit),
            Self::Ecn => Some(DropReason::Congested),
            Self::Whole => Some(DropReason::Other),
            Self::Filter => None,
        }
    }

    /// Returns the reason for `xdc:phantom_drop`.
    pub(crate) fn number(self) -> trace::DropReason {
        match self {
            Self::Limit => trace::XDC_DROP_LIMIT,
            Self::Color => trace::XDC_DROP_COLOR,
            Self::Pool => trace::XDC_DROP_POOL,
            Self::Ecn => trace::XDC_DROP_ECN,
            Self::Filter => trace::XDC_DROP_FILTER,
            Self::Whole => trace::XDC_DROP_SPLIT,
        }
    }
}
