// SPDX-License-Identifier: GPL-2.0
//! Rows of flows.csv.

use serde::Serialize;

use crate::fct::ideal_ns;
use crate::record::Record;

/// A flow; fields are the file's columns. Some are empty for a flow cut off by the end of the run.
#[derive(Serialize)]
pub struct FlowRow<'a> {
    cc: &'a str,
    flow: usize,
    group: &'a str,
    src: &'a str,
    dst: &'a str,
    start_us: String,
    end_us: Option<String>,
    bytes: u64,
    fct_us: Option<String>,
    retransmits: u64,
    ideal_us: String,
    base_rtt_us: String,
    fct_acked_us: Option<String>,
}

/// One row per flow.
pub fn rows(record: &Record) -> impl Iterator<Item = FlowRow<'_>> {
    let flows = record.flows.iter().zip(&record.plan.flows);
    flows.map(move |(result, flow)| FlowRow {
        cc: &record.cc,
        flow: result.flow,
        group: &flow.group,
        src: &flow.src,
        dst: &flow.dst,
        start_us: us(result.start_ns),
        end_us: result.end_ns.map(us),
        bytes: result.received_bytes,
        fct_us: result.fct_ns().map(us),
        retransmits: result.retransmits,
        ideal_us: us(ideal_ns(result, flow)),
        base_rtt_us: format!("{:.3}", flow.base_rtt_us),
        fct_acked_us: result.fct_acked_ns().map(us),
    })
}

/// Formats ns as microseconds with three decimals.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
