// SPDX-License-Identifier: GPL-2.0
//! Throughput of flows over time, as chart lines.

use serde::{Deserialize, Serialize};

use crate::record::Record;

/// Maximum points per line, about the pixels of a chart.
pub const MAX_POINTS: usize = 400;

/// A curve of a chart.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Line {
    /// Lines with equal names share a color and a legend entry.
    pub name: String,
    /// Text shown on hover.
    pub detail: String,
    /// Color number.
    pub color: usize,
    /// Points in base units of the axes.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper bound of each point; empty or one per point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub band: Vec<(f64, f64)>,
}

/// Throughput in bit/s over us, averaged over half a fairness window.
pub fn throughput(record: &Record, jain_window_us: u64) -> Vec<Line> {
    const PARTS: u64 = 2;
    let end_us = record.end_us();
    let step_us = (jain_window_us / PARTS)
        .max(2 * record.plan.sample_us)
        .max(end_us / MAX_POINTS as u64)
        .max(1);
    // Higher rates come from data that waited for a retransmission, and would dwarf the link's
    // rate.
    let link_bps = record.bottleneck().map_or(f64::MAX, |(_, bps)| bps as f64);
    let rate = |flow, from: u64| {
        let to = from + step_us;
        let bytes = record.received_at(flow, to) - record.received_at(flow, from);
        (to as f64, (bytes * 8e6 / step_us as f64).min(link_bps))
    };
    let of_flow = |flow: usize| {
        let result = &record.flows[flow];
        let (start, end) = (result.start_us(), result.end_us().unwrap_or(end_us));
        // Whole steps only: a partial step's rate is meaningless.
        (start / step_us..end / step_us)
            .map(|step| step * step_us)
            .map(|from| rate(flow, from))
            .collect()
    };
    if !record.plan.flow_series {
        return vec![total(record, step_us)];
    }
    per_flow(record, of_flow)
}

/// Bytes read by all receivers together.
fn total(record: &Record, step_us: u64) -> Line {
    let mut points = Vec::new();
    let mut last = (0, 0);
    for sample in &record.samples {
        let us = sample.t_us - last.0;
        if us >= step_us {
            // A guest may report a decrease.
            let bytes = sample.received_bytes.saturating_sub(last.1);
            points.push((sample.t_us as f64, bytes as f64 * 8e6 / us as f64));
            last = (sample.t_us, sample.received_bytes);
        }
    }
    Line {
        name: "all flows".to_owned(),
        detail: "all flows".to_owned(),
        color: 0,
        points,
        ..Line::default()
    }
}

/// A line per flow in the color of its group.
pub fn per_flow(record: &Record, points: impl Fn(usize) -> Vec<(f64, f64)>) -> Vec<Line> {
    let mut groups: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    if !record.plan.flow_series {
        return lines;
    }
    for (index, flow) in record.plan.flows.iter().enumerate() {
        if !groups.contains(&flow.group.as_str()) {
            groups.push(&flow.group);
        }
        let color = groups.iter().position(|group| *group == flow.group);
        lines.push(Line {
            name: flow.group.clone(),
            detail: format!("{} {} - {}", flow.group, flow.src, flow.dst),
            color: color.unwrap_or_default(),
            points: points(index),
            ..Line::default()
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recorded;

    #[test]
    fn a_shrinking_total_does_not_panic() {
        let mut record = recorded();
        record.plan.flow_series = false;
        for (n, sample) in record.samples.iter_mut().enumerate() {
            sample.received_bytes = 1_000_000 - n as u64;
            sample.flows.clear();
        }
        let lines = throughput(&record, 1000);
        assert!(lines[0].points.iter().all(|(_, bps)| *bps >= 0.0));
    }
}
