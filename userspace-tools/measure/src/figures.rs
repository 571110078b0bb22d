// SPDX-License-Identifier: GPL-2.0
//! Figures of a run from its record. A figure that does not apply is null.

use std::collections::BTreeMap;

use serde::Serialize;
use xdc_proto::{Cause, Dropped, Sample};
use xdc_tcpinfo::{COUNTERS, Counter};

use crate::bottleneck::{self, Use};
use crate::circuits::circuits;
use crate::explain;
use crate::fairness::{converged_us, jain, jain_phases, jain_windows};
use crate::fct::{completion, completions, spread};
use crate::record::Record;
use crate::run::{Fct, Group, Network, Queue, QueueBytes, Rtt, Run, Samples, Settled, Tlt};

/// Time windows for fairness and completion.
#[derive(Debug, Serialize)]
pub struct Windows {
    /// Window of Jain's index, us.
    pub jain_us: u64,
    /// Ends of all phases but the last, us.
    pub phases_us: Vec<u64>,
    /// Flows that start earlier are excluded from completion figures, us.
    pub warmup_us: u64,
}

impl Windows {
    /// Windows without phases.
    pub fn every_us(jain_us: u64) -> Self {
        Self { jain_us, phases_us: Vec::new(), warmup_us: 0 }
    }
}

/// All figures of a run, with fairness over these windows.
pub fn run(record: &Record, over: &Windows) -> Run {
    let all: Vec<_> = (0..record.flows.len()).collect();
    let windows = jain_windows(record, over.jain_us);
    let steady = steady(record);
    let goodput_bps = goodput_bps(record, &all, (0, record.end_us()));
    let fcts_ms = fcts_ms(record, &all);
    let fct = fct(&fcts_ms);
    let spread = match (fct.mean, fcts_ms.first(), fcts_ms.last()) {
        (Some(mean), Some(min), Some(max)) if mean > 0.0 => Some((max - min) / mean),
        _ => None,
    };
    let used_by = Use::of(record);
    let utilisation = |span| bottleneck::utilisation(record, &used_by, span);
    let overfull = bottleneck::overfull(record, &used_by);
    let queues: Vec<_> = (0..record.queues.len()).map(|q| queue(record, q)).collect();
    let totals = record.totals.unwrap_or_default();
    Run {
        cc: record.cc.clone(),
        completion: completion(record, &all),
        sizes: completions(record, &all),
        goodput_mbps: goodput_bps / 1e6,
        start_late_us: late_us(record),
        utilisation: utilisation((0, record.end_us())),
        utilisation_steady: steady.and_then(utilisation),
        jain_mean: mean(&windows.iter().map(|&(_, index)| index).collect::<Vec<_>>()),
        jain_steady: steady.and_then(|steady| jain(&received(record, &all, steady))),
        jain_phases: jain_phases(&windows, over),
        jain_converged_ms: converged_us(&windows, over.jain_us, record.first_end_us())
            .map(|us| us as f64 / 1e3),
        longest_stall_us: steady.and_then(|steady| longest_stall_us(record, steady)),
        last_fct_ms: fct.max,
        fct_spread: spread,
        fct_ms: fct,
        rtt_us: rtt(record, &all),
        queue_bytes: queue_bytes(record, 0, 0),
        settled: settled(record),
        drops: totals.drops,
        marks: totals.marks,
        losses: totals.losses,
        dropped: by_cause(&record.dropped),
        dropped_at: record.dropped.clone(),
        retransmits: sum(record.flows.iter().map(|flow| flow.retransmits)),
        timeouts: sum(record.flows.iter().map(|flow| flow.timeouts)),
        tcp: counters(record),
        kernel_timeouts: record.counters.get("TcpExtTCPTimeouts").copied(),
        drops_green: totals.drops_green,
        ports_max_bytes: Some(totals.backlog_max_bytes).filter(|&bytes| bytes > 0),
        red_max_bytes: Some(totals.red_max_bytes).filter(|&bytes| bytes > 0),
        green_share: green_share(totals.accepted_bytes),
        green_packet_share: green_share(totals.accepted_packets),
        tlt: tlt(record),
        samples: samples(record),
        unorc: unorc(record),
        circuits: circuits(record),
        link_rtt_error: record.link_rtt_error,
        network: network(record),
        capture: None,
        groups: groups(record),
        queues,
        suspect: record.doubts().into_iter().chain(overfull).collect(),
        notes: explain::of_run(record, &used_by),
        virtual_s: record.virtual_us as f64 / 1e6,
        wall_s: record.wall.as_secs_f64(),
        plan_sha256: record.plan_sha256.clone(),
    }
}

fn by_cause(dropped: &[Dropped]) -> BTreeMap<Cause, u64> {
    let mut sums: BTreeMap<_, u64> = Cause::ALL.map(|cause| (cause, 0)).into();
    for of in dropped {
        let sum = sums.entry(of.cause).or_default();
        *sum = sum.saturating_add(of.packets);
    }
    sums
}

fn late_us(record: &Record) -> f64 {
    let late_ns = record.flows.iter().map(|flow| flow.late_ns).max();
    late_ns.unwrap_or(0) as f64 / 1e3
}

/// Minimum number of flows that form an offered load.
const LOAD_FLOWS: usize = 100;

/// Offered and carried load while flows started, Mbit/s.
fn load_mbps(record: &Record, flows: &[usize]) -> Option<(f64, f64)> {
    let sized = flows.iter().all(|&flow| record.plan.flows[flow].bytes > 0);
    if flows.len() < LOAD_FLOWS || !sized {
        return None;
    }
    let starts = || flows.iter().map(|&flow| record.flows[flow].start_us());
    let span = (starts().min()?, starts().max()?);
    let bytes = flows.iter().map(|&flow| record.plan.flows[flow].bytes as f64);
    let us = span.1.checked_sub(span.0).filter(|us| *us > 0)?;
    let offered_bps = bytes.sum::<f64>() * 8e6 / us as f64;
    Some((offered_bps / 1e6, goodput_bps(record, flows, span) / 1e6))
}

/// Sums of TCP_INFO counters, by name.
fn counters(record: &Record) -> BTreeMap<String, u64> {
    let of = |(n, counter): (usize, &Counter)| {
        let grew = record.flows.iter().filter_map(|flow| flow.counters.get(n));
        (counter.name.to_owned(), sum(grew.copied()))
    };
    COUNTERS.iter().enumerate().map(of).collect()
}

/// Green share of accepted packets or bytes (green, yellow, red).
fn green_share(accepted: [u64; 3]) -> Option<f64> {
    let [green, yellow, red] = accepted.map(|n| n as f64);
    let all = green + yellow + red;
    (all > 0.0).then(|| green / all)
}

/// Packet counters of tlt, by mark.
const SENT: [&str; 6] =
    ["TxData", "TxEcho", "TxClockData", "TxClockEcho", "TxControl", "TxUnimportant"];

/// Figures of tlt; None if the module is not loaded.
fn tlt(record: &Record) -> Option<Tlt> {
    let count = |name: &str| record.counters.get(&format!("Tlt{name}")).copied();
    let clock_packets = count("TxClockData")?;
    let forced_retransmits = count("ForcedRetrans")?;
    let mss = record.flows.iter().map(|flow| flow.mss_bytes).max();
    let segments = forced_retransmits.saturating_mul(mss.unwrap_or(0).into());
    Some(Tlt {
        important_packets: count("TxData")?,
        clock_packets,
        unimportant_packets: count("TxUnimportant")?,
        forced_retransmits,
        fallbacks: count("Fallback")?,
        bad_marks: count("BadMark")?,
        clock_bytes: clock_packets.saturating_add(segments),
        packets: sum(SENT.iter().filter_map(|mark| count(mark))),
        extra_packets: clock_packets.saturating_add(count("WorkerEcho").unwrap_or(0)),
    })
}

/// Samples by name, over all programs with that name. Guest output is untrusted.
fn samples(record: &Record) -> BTreeMap<String, Samples> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (program, output) in record.plan.programs.iter().zip(&record.outputs) {
        if let Some(name) = &program.samples {
            let numbers = output.text.lines().filter_map(|line| line.trim().parse().ok());
            let numbers = numbers.filter(|number: &f64| number.is_finite());
            all.entry(name).or_default().extend(numbers);
        }
    }
    let of = |(name, numbers): (&str, Vec<f64>)| {
        let samples = Samples { n: numbers.len(), spread: spread(numbers) };
        (name.to_owned(), samples)
    };
    all.into_iter().map(of).collect()
}

/// Counters of tunnels; None without tunnels.
fn unorc(record: &Record) -> Option<BTreeMap<String, u64>> {
    let own = record.counters.iter();
    let own = own.filter_map(|(name, n)| Some((name.strip_prefix("Unorc.")?.to_owned(), *n)));
    let own: BTreeMap<_, _> = own.collect();
    (!own.is_empty()).then_some(own)
}

/// Saturating sum, because guest counters are untrusted.
pub(crate) fn sum(counters: impl Iterator<Item = u64>) -> u64 {
    counters.fold(0, u64::saturating_add)
}

/// Second half of the time until the first flow ends; None for many short flows, which never
/// overlap.
fn steady(record: &Record) -> Option<(u64, u64)> {
    let end = record.first_end_us();
    record.plan.flow_series.then_some((end / 2, end))
}

pub(crate) fn received(record: &Record, flows: &[usize], (from, to): (u64, u64)) -> Vec<f64> {
    flows
        .iter()
        .map(|&flow| record.received_at(flow, to) - record.received_at(flow, from))
        .collect()
}

/// Longest time between samples in which a flow received nothing.
fn longest_stall_us(record: &Record, (from, to): (u64, u64)) -> Option<f64> {
    let samples: Vec<_> =
        record.samples.iter().filter(|sample| (from..=to).contains(&sample.t_us)).collect();
    let of = |flow: usize| {
        let same =
            |a: &&Sample, b: &&Sample| a.flows[flow].received_bytes == b.flows[flow].received_bytes;
        samples
            .chunk_by(same)
            .filter_map(|still| Some(still.last()?.t_us.saturating_sub(still.first()?.t_us)))
            .max()
    };
    let longest = (0..record.flows.len()).filter_map(of).max();
    longest.map(|us| us as f64)
}

fn goodput_bps(record: &Record, flows: &[usize], span: (u64, u64)) -> f64 {
    // The sum of no numbers is -0.
    let bytes = received(record, flows, span).iter().fold(0.0, |sum, bytes| sum + bytes);
    match span.1.saturating_sub(span.0) {
        0 => 0.0,
        us => bytes * 8e6 / us as f64,
    }
}

/// Completion times, ms, ascending.
pub fn fcts_ms(record: &Record, flows: &[usize]) -> Vec<f64> {
    let mut fcts: Vec<_> = record
        .counted(flows)
        .0
        .iter()
        .map(|&flow| &record.flows[flow])
        .filter(|flow| record.plan.flows[flow.flow].bytes > 0)
        .filter_map(|flow| Some(flow.fct_ns()? as f64 / 1e6))
        .collect();
    fcts.sort_by(f64::total_cmp);
    fcts
}

fn fct(sorted_ms: &[f64]) -> Fct {
    Fct {
        mean: mean(sorted_ms),
        p50: percentile(sorted_ms, 50.0),
        p99: percentile(sorted_ms, 99.0),
        max: sorted_ms.last().copied(),
    }
}

/// RTT over all samples of open flows.
fn rtt(record: &Record, flows: &[usize]) -> Rtt {
    let mut rtts: Vec<_> = flows
        .iter()
        .flat_map(|&flow| record.flow_series(flow))
        .filter(|(_, sample)| sample.active && sample.srtt_us > 0)
        .map(|(_, sample)| f64::from(sample.srtt_us))
        .collect();
    rtts.sort_by(f64::total_cmp);
    Rtt { p50: percentile(&rtts, 50.0), p99: percentile(&rtts, 99.0) }
}

/// Backlog from `from_us` to the end of the traffic; later samples show only the queue's drain.
fn queue_bytes(record: &Record, queue: usize, from_us: u64) -> QueueBytes {
    let mut backlogs: Vec<_> = record
        .queue_series(queue)
        .filter(|&(t_us, _)| (from_us..=record.end_us()).contains(&t_us))
        .map(|(_, sample)| sample.backlog_bytes as f64)
        .collect();
    backlogs.sort_by(f64::total_cmp);
    let kept =
        record.queues[queue].backlog_max_bytes.filter(|_| from_us == 0).map(|bytes| bytes as f64);
    QueueBytes {
        mean: mean(&backlogs),
        p99: percentile(&backlogs, 99.0),
        max: kept.or(backlogs.last().copied()),
    }
}

/// Figures after the warm-up; None without a warm-up or a later sample.
fn settled(record: &Record) -> Option<Settled> {
    let from_us = record.warmup_us;
    if from_us == 0 {
        return None;
    }
    let (mut before, mut last) = (0, None);
    for (t_us, sample) in record.queue_series(0) {
        if t_us < from_us {
            before = sample.drops;
        } else {
            last = Some(sample.drops);
        }
    }
    Some(Settled {
        drops_before: before,
        drops: last?.saturating_sub(before),
        queue_bytes: queue_bytes(record, 0, from_us),
    })
}

/// Network size; None if the guest did not report it.
pub fn network(record: &Record) -> Option<Network> {
    let (size, took) = record.network?;
    let kb = size.memory_bytes as f64 / 1024.0;
    Some(Network {
        nodes: size.nodes,
        links: size.links,
        routes: size.routes,
        build_wall_s: took.as_secs_f64(),
        memory_mb: kb / 1024.0,
        memory_per_node_kb: kb / size.nodes.max(1) as f64,
    })
}

fn queue(record: &Record, index: usize) -> Queue {
    let result = &record.queues[index];
    Queue {
        name: record.plan.watch[index].name.clone(),
        queue_bytes: queue_bytes(record, index, 0),
        phantom_max_bytes: result.phantom_max_bytes,
        sent_packets: result.sent_packets,
        drops: result.drops,
        marks: result.marks,
    }
}

fn groups(record: &Record) -> BTreeMap<String, Group> {
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, flow) in record.plan.flows.iter().enumerate() {
        members.entry(&flow.group).or_default().push(index);
    }
    members
        .into_iter()
        .map(|(name, flows)| {
            let group = Group {
                completion: completion(record, &flows),
                sizes: completions(record, &flows),
                goodput_mbps: goodput_bps(record, &flows, (0, record.end_us())) / 1e6,
                offered_mbps: load_mbps(record, &flows).map(|load| load.0),
                carried_mbps: load_mbps(record, &flows).map(|load| load.1),
                goodput_steady_mbps: steady(record)
                    .map(|steady| goodput_bps(record, &flows, steady) / 1e6),
                fct_ms: fct(&fcts_ms(record, &flows)),
                span_ms: span_ms(record, &flows),
                rtt_us: rtt(record, &flows),
            };
            (name.to_owned(), group)
        })
        .collect()
}

/// First start to the last end; None while a flow has not ended.
fn span_ms(record: &Record, flows: &[usize]) -> Option<f64> {
    let flows = || flows.iter().map(|&flow| &record.flows[flow]);
    let first_ns = flows().map(|flow| flow.start_ns).min()?;
    let ends: Option<Vec<u64>> = flows().map(|flow| flow.end_ns).collect();
    let last_ns = ends?.into_iter().max()?;
    Some(last_ns.saturating_sub(first_ns) as f64 / 1e6)
}

/// The mean; None without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Percentile by nearest rank.
pub fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::recorded;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<_> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 50.0), Some(50.0));
        assert_eq!(percentile(&values, 99.0), Some(99.0));
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn a_small_run_has_the_expected_figures() {
        let run = run(&recorded(), &Windows::every_us(1000));
        assert_eq!((run.completion.flows, run.completion.unfinished), (2, 0));
        // 2 MiB in 20 ms through 1 Gbit/s x 1448/1514.
        assert!((run.goodput_mbps - 838.86).abs() < 0.01, "{run:?}");
        assert!((run.utilisation.unwrap() - 0.8771).abs() < 1e-3, "{run:?}");
        assert_eq!(run.fct_ms.max, Some(20.0));
        assert!((run.fct_spread.unwrap() - 4.0 / 18.0).abs() < 1e-9);
        // Shares 2:1 (index 0.9) for 8 ms, equal for the next 8.
        assert_eq!(run.jain_converged_ms, Some(9.0));
        assert!((run.jain_mean.unwrap() - 0.95).abs() < 1e-3);
        assert!((run.jain_steady.unwrap() - 1.0).abs() < 1e-3);
        assert_eq!(run.queue_bytes.max, Some(5000.0));
        assert_eq!((run.drops, run.marks), (0, 20));
        assert!(run.suspect.is_empty());
    }

    #[test]
    fn a_time_without_received_bytes_is_a_stall() {
        let mut record = recorded();
        let stall = |record: &Record| run(record, &Windows::every_us(1000)).longest_stall_us;
        assert_eq!(stall(&record), Some(0.0));
        // The first flow ends at 16 ms, so the second half begins at 8.
        for ms in [3, 4, 10, 11, 12] {
            record.samples[ms].flows[1].received_bytes = 7;
        }
        assert_eq!(stall(&record), Some(2_000.0));
    }

    #[test]
    fn drops_before_the_warm_up_end_are_counted_separately() {
        let mut record = recorded();
        let run = |record: &Record| run(record, &Windows::every_us(1000));
        assert_eq!(run(&record).settled, None);
        for sample in &mut record.samples {
            sample.queues[0].drops = sample.t_us / 1000;
            sample.queues[0].backlog_bytes = sample.t_us;
        }
        let last_us = record.samples.last().unwrap().t_us;
        record.warmup_us = 5000;
        let settled = run(&record).settled.unwrap();
        assert_eq!(settled.drops_before, 4);
        assert_eq!(settled.drops, last_us / 1000 - 4);
        let mean = settled.queue_bytes.mean.unwrap();
        assert!(mean > run(&record).queue_bytes.mean.unwrap(), "{mean}");
    }

    /// A guest's agent is untrusted.
    #[test]
    fn impossible_counters_do_not_panic() {
        let mut record = recorded();
        for flow in &mut record.flows {
            (flow.retransmits, flow.timeouts) = (u64::MAX, u64::MAX);
        }
        record.queues.push(record.queues[0].clone());
        record.plan.watch.push(record.plan.watch[0].clone());
        for queue in &mut record.queues {
            (queue.drops, queue.marks) = (u64::MAX, u64::MAX);
        }
        let totals = record.totals.as_mut().unwrap();
        (totals.drops, totals.marks) = (u64::MAX, u64::MAX);
        for sample in &mut record.samples {
            sample.queues.push(sample.queues[0]);
        }
        let run = run(&record, &Windows::every_us(1000));
        assert_eq!((run.drops, run.retransmits), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_run_without_series_has_totals_and_completions() {
        let mut record = recorded();
        record.plan.flow_series = false;
        for sample in &mut record.samples {
            sample.flows.clear();
        }
        let run = run(&record, &Windows::every_us(1000));
        assert!((run.goodput_mbps - 838.86).abs() < 0.01, "{run:?}");
        assert_eq!(run.completion.fct_us.max, Some(20_000.0));
        assert_eq!((run.jain_mean, run.jain_steady, run.rtt_us.p50), (None, None, None));
        // Half of the bytes at half of the flow's time.
        assert_eq!(record.received_at(0, 8_000), f64::from(1 << 19));
    }

    #[test]
    fn written_figures_read_back() {
        let mut run = run(&recorded(), &Windows::every_us(1000));
        run.jain_phases.insert("1".to_owned(), None);
        run.jain_mean = Some(0.912_345_678_901_234_5);
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
    }

    #[test]
    fn documented_keys_exist() {
        let json = serde_json::to_value(run(&recorded(), &Windows::every_us(1000))).unwrap();
        for key in [
            "cc",
            "flows",
            "goodput_mbps",
            "utilisation",
            "jain_mean",
            "jain_converged_ms",
            "fct_ms",
            "rtt_us",
            "queue_bytes",
            "drops",
            "marks",
            "virtual_s",
            "wall_s",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        for (object, keys) in [
            ("fct_ms", &["mean", "p50", "p99", "max"][..]),
            ("fct_us", &["mean", "p50", "p95", "p99", "max"]),
            ("slowdown", &["mean", "p50", "p95", "p99", "max"]),
            ("rtt_us", &["p50", "p99"]),
            ("queue_bytes", &["mean", "p99", "max"]),
        ] {
            for key in keys {
                assert!(json[object].get(key).is_some(), "{object}.{key}");
            }
        }
    }
}
