// SPDX-License-Identifier: GPL-2.0

//! What everybody else has to know of an algorithm. Its file ends with an [`Entry`], and its line in
//! modules/list.rs brings that to sysctl checks, `--cc`, `xdc ss`, `xdc trace`, the storm, the fuzz
//! target and the tables of docs/: none of these names an algorithm.

use super::params::{ParamInfo, Values};
use core::ffi::CStr;

/// An algorithm.
#[derive(Debug)]
pub struct Entry {
    /// Name for TCP_CONGESTION, and of the folder of its sysctls, net.NAME.
    pub name: &'static CStr,
    /// Which it is in `struct xdc_diag_info`. From [`OWN_NUMBERS`] on nobody else's.
    pub number: u8,
    /// Which queue's marks it is made for.
    pub marks: Marks,
    /// Its parameters.
    pub params: &'static [ParamInfo],
    /// Names of the sets of defaults that the parameters have.
    pub profiles: &'static [&'static CStr],
    /// The one that a namespace begins with, as an index into `profiles`.
    pub profile: usize,
    /// What `xdc ss` shows of a socket, in this order.
    pub state: &'static [State],
    /// Its tracepoints.
    pub events: &'static [Event],
}

/// Numbers below are given by the project: those of modules/uapi/xdc_diag.h.
pub const OWN_NUMBERS: u8 = 128;

/// Which queue of a port marks for an algorithm, unless a scenario says otherwise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marks {
    /// The phantom queue.
    Phantom,
    /// The packets that wait.
    Physical,
}

/// One number of a socket.
#[derive(Debug)]
pub struct State {
    /// In JSON.
    pub key: &'static str,
    /// Before the number in a line of text; empty: it is in JSON only. Of a yes or no all there is.
    pub label: &'static str,
    /// Behind the number in a line of text.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The number. None: it is not known.
    pub value: fn(&Shown<'_>) -> Option<Value>,
}

/// A number as the kernel has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// `part / of`.
    Ratio {
        /// Numerator.
        part: u64,
        /// Denominator.
        of: u64,
    },
    /// Yes or no.
    Flag(bool),
}

/// What is known of a socket that is shown.
#[derive(Clone, Copy, Default)]
pub struct Shown<'a> {
    /// `Published::marked_fraction`.
    pub marked_fraction: u32,
    /// Marked part of the present period, 2^-15.
    pub period_marked: u16,
    /// Periods that have ended.
    pub periods: u32,
    /// `Published::quick_adapts`.
    pub count: u16,
    /// `Published::base_rtt_us`.
    pub base_rtt_us: Option<u32>,
    /// Bits of `controller::published`.
    pub flags: u8,
    /// Smoothed RTT and payload of a full segment; None: TCP has not measured them.
    pub srtt_us: Option<u32>,
    /// See `srtt_us`.
    pub mss_bytes: Option<u32>,
    /// The parameters of its namespace, if they can be read.
    pub params: Option<&'a dyn Values>,
}

/// A tracepoint `xdc:*`.
#[derive(Debug)]
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// When it fires.
    pub help: &'static str,
    /// What `xdc trace plot` draws of it.
    pub lines: &'static [Line],
}

/// A line for each flow.
#[derive(Debug)]
pub struct Line {
    /// Title of the chart that it is in.
    pub chart: &'static str,
    /// The event's field.
    pub field: &'static str,
    /// What the field counts.
    pub unit: Unit,
    /// Behind the flow's name.
    pub label: &'static str,
}

/// What a field counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Microseconds.
    Us,
    /// Millionths.
    Ppm,
}

impl Line {
    /// The window.
    pub const fn window(field: &'static str) -> Self {
        Self::of("Window", field, Unit::Bytes)
    }

    /// The average of the marked fraction.
    pub const fn marked(field: &'static str) -> Self {
        Self::of("Average of the marked fraction", field, Unit::Ppm)
    }

    /// Round trip times.
    pub const fn rtt(field: &'static str) -> Self {
        Self::of("RTT", field, Unit::Us)
    }

    const fn of(chart: &'static str, field: &'static str, unit: Unit) -> Self {
        Self {
            chart,
            field,
            unit,
            label: "",
        }
    }
}

impl Value {
    /// A fraction of `controller`.
    pub const fn fraction(fraction: u32) -> Self {
        Self::Ratio {
            part: fraction as u64,
            of: super::fixed::FRACTION_ONE as u64,
        }
    }

    /// Bytes with their fraction, 2^-16, over `per`.
    pub const fn bytes(scaled: u64, per: u32) -> Self {
        Self::Ratio {
            part: scaled,
            of: super::fixed::BYTE_ONE.saturating_mul(per as u64),
        }
    }
}

impl Shown<'_> {
    /// Whether `bit` of `controller::published` is set.
    pub fn flag(&self, bit: u8) -> Option<Value> {
        Some(Value::Flag(self.flags & bit != 0))
    }

    /// The marked part of the present period.
    pub fn period_marked(&self) -> Option<Value> {
        Some(Value::Ratio {
            part: self.period_marked.into(),
            of: 1 << 15,
        })
    }
}
