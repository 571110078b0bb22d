// SPDX-License-Identifier: GPL-2.0
//! Completion times of flows, measured and relative to an idle path.

use std::collections::BTreeMap;

use xdc_proto::{Ecn, Flow, FlowResult};

use crate::figures::{mean, percentile};
use crate::record::Record;
use crate::run::{Completion, Spread};
use crate::size::SizeClass;

/// Statistics of unsorted values.
pub fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    Spread {
        mean: mean(&values),
        p50: percentile(&values, 50.0),
        p95: percentile(&values, 95.0),
        p99: percentile(&values, 99.0),
        p999: percentile(&values, 99.9),
        max: values.last().copied(),
    }
}

/// Completion figures of flows by index.
pub fn completion(record: &Record, flows: &[usize]) -> Completion {
    let (counted, warmup) = record.counted(flows);
    let pairs = || counted.iter().map(|&i| (&record.flows[i], &record.plan.flows[i]));
    let open = |&(result, flow): &(&FlowResult, &Flow)| flow.bytes > 0 && result.end_ns.is_none();
    let timeouts = || pairs().map(|(result, _)| result.timeouts);
    let all = timeouts().fold(0, u64::saturating_add) as f64;
    Completion {
        flows: flows.len(),
        warmup,
        unfinished: pairs().filter(open).count(),
        timed_out: timeouts().filter(|&n| n > 0).count(),
        timeouts_per_1000_flows: (!counted.is_empty()).then(|| all * 1e3 / counted.len() as f64),
        fct_us: spread(pairs().filter_map(|(r, f)| fct_us(r, f)).collect()),
        slowdown: spread(pairs().filter_map(|(r, f)| slowdown(r, f)).collect()),
        fct_acked_us: spread(pairs().filter_map(|(r, f)| fct_acked_us(r, f)).collect()),
        slowdown_acked: spread(pairs().filter_map(|(r, f)| slowdown_acked(r, f)).collect()),
    }
}

/// Completion figures of each size class that has flows.
pub fn completions(record: &Record, flows: &[usize]) -> BTreeMap<SizeClass, Completion> {
    let mut members: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for &flow in flows {
        let bytes = record.plan.flows[flow].bytes;
        if bytes > 0 {
            members.entry(record.sizes.class(bytes)).or_default().push(flow);
        }
    }
    members.into_iter().map(|(class, flows)| (class, completion(record, &flows))).collect()
}

fn fct_us(result: &FlowResult, flow: &Flow) -> Option<f64> {
    let fct_ns = result.fct_ns().filter(|_| flow.bytes > 0)?;
    Some(fct_ns as f64 / 1e3)
}

fn fct_acked_us(result: &FlowResult, flow: &Flow) -> Option<f64> {
    let fct_ns = result.fct_acked_ns().filter(|_| flow.bytes > 0)?;
    Some(fct_ns as f64 / 1e3)
}

/// FCT up to the last ACK, over the ideal FCT with that ACK.
fn slowdown_acked(result: &FlowResult, flow: &Flow) -> Option<f64> {
    let ideal_us = ideal_ns(result, flow).saturating_add(flow.ack_ns) as f64 / 1e3;
    (flow.ideal_ns > 0).then_some(fct_acked_us(result, flow)? / ideal_us)
}

/// Maximum bytes of TCP options.
const MAX_OPTION_BYTES: u32 = 40;

/// Payload of a full packet, bytes: below the MSS if each has options other than timestamps.
pub fn packet_payload_bytes(result: &FlowResult) -> u32 {
    let by_options = result.mss_bytes.saturating_sub(MAX_OPTION_BYTES);
    match (by_options..result.mss_bytes).contains(&result.payload_bytes) {
        true => result.payload_bytes,
        false => result.mss_bytes,
    }
}

/// Ideal FCT, given the options in the flow's packets. A single-packet flow does not show them, but
/// with AccECN a flow's first packet has the option.
pub fn ideal_ns(result: &FlowResult, flow: &Flow) -> u64 {
    let is_single = flow.bytes <= u64::from(result.mss_bytes);
    let has_option = is_single || packet_payload_bytes(result) < result.mss_bytes;
    match flow.ideal_accecn_ns {
        ns if ns > 0 && result.ecn == Some(Ecn::Accurate) && has_option => ns,
        _ => flow.ideal_ns,
    }
}

/// FCT over the ideal FCT; None without an ideal.
pub fn slowdown(result: &FlowResult, flow: &Flow) -> Option<f64> {
    let ideal_us = ideal_ns(result, flow) as f64 / 1e3;
    (flow.ideal_ns > 0).then_some(fct_us(result, flow)? / ideal_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recorded;

    #[test]
    fn slowdown_uses_the_ideal_and_unfinished_flows_are_counted() {
        let mut record = recorded();
        record.plan.flows[0].ideal_ns = 8_000_000;
        record.plan.flows[1].ideal_ns = 10_000_000;
        let both = completion(&record, &[0, 1]);
        assert_eq!((both.slowdown.mean, both.slowdown.max), (Some(2.0), Some(2.0)));
        assert_eq!(both.fct_us.p50, Some(16_000.0));
        assert_eq!(both.unfinished, 0);
        assert_eq!((both.timed_out, both.timeouts_per_1000_flows), (0, Some(0.0)));
        record.plan.flows[0].ack_ns = 50_000;
        let acked = completion(&record, &[0]);
        let times = (acked.fct_acked_us.mean, acked.slowdown_acked.mean);
        assert_eq!(times, (Some(16_050.0), Some(16_050.0 / 8_050.0)));
        record.flows[0].timeouts = 3;
        let late = completion(&record, &[0, 1]);
        assert_eq!((late.timed_out, late.timeouts_per_1000_flows), (1, Some(1500.0)));
        record.flows[1].end_ns = None;
        let one = completion(&record, &[0, 1]);
        assert_eq!((one.flows, one.unfinished), (2, 1));
        assert_eq!(one.fct_us.max, Some(16_000.0));
        record.flows[0].start_ns = 1_000_000;
        record.warmup_us = 1000;
        let late = completion(&record, &[0, 1]);
        assert_eq!((late.flows, late.warmup, late.unfinished), (2, 1, 0));
        assert_eq!(late.fct_us.mean, Some(15_000.0));
        record.warmup_us = 1001;
        assert_eq!(completion(&record, &[0, 1]).fct_us.mean, None);
        let classes = completions(&record, &[0, 1]);
        assert_eq!(classes.keys().copied().collect::<Vec<_>>(), [SizeClass::Large]);
    }
}
