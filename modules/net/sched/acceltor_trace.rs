// SPDX-License-Identifier: GPL-2.0

//! Reasons of drops, and tracepoints.

use crate::kernel_api::{
    bindings::{
        xdc_acceltor_cause, xdc_acceltor_reason, XDC_ACCELTOR_DROP_BLOCKED,
        XDC_ACCELTOR_DROP_FILTER, XDC_ACCELTOR_DROP_HIGH, XDC_ACCELTOR_DROP_LOW,
        XDC_ACCELTOR_DROP_QUEUE, XDC_ACCELTOR_DROP_RESCHEDULE, XDC_ACCELTOR_DROP_STALE,
    },
    trace::tracepoint,
};

/// Reason for a drop.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    High,
    Low,
    Queue,
    Blocked,
    Stale,
    Reschedule,
    Filter,
}

impl Cause {
    pub(crate) fn number(self) -> xdc_acceltor_reason {
        match self {
            Self::High => XDC_ACCELTOR_DROP_HIGH,
            Self::Low => XDC_ACCELTOR_DROP_LOW,
            Self::Queue => XDC_ACCELTOR_DROP_QUEUE,
            Self::Blocked => XDC_ACCELTOR_DROP_BLOCKED,
            Self::Stale => XDC_ACCELTOR_DROP_STALE,
            Self::Reschedule => XDC_ACCELTOR_DROP_RESCHEDULE,
            Self::Filter => XDC_ACCELTOR_DROP_FILTER,
        }
    }
}

/// An accelerated packet of an elephant.
#[derive(Clone, Copy)]
pub(crate) struct Accelerated {
    pub(crate) cause: xdc_acceltor_cause,
    /// Label of its day.
    pub(crate) label: u64,
    /// Time until that day starts; before the base time, until the base time.
    pub(crate) left_ns: u64,
}

tracepoint! {
    /// `xdc:acceltor_day`.
    TraceDay, acceltor_day, xdc_acceltor_day, queue
}
tracepoint! {
    /// `xdc:acceltor_accelerate`.
    TraceAccelerate, acceltor_accelerate, xdc_acceltor_accelerate, packet
}
tracepoint! {
    /// `xdc:acceltor_elephant`.
    TraceElephant, acceltor_elephant, xdc_acceltor_elephant, packet
}
tracepoint! {
    /// `xdc:acceltor_drop`.
    TraceDrop, acceltor_drop, xdc_acceltor_drop, packet
}
