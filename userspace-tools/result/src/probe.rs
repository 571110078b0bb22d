// SPDX-License-Identifier: GPL-2.0
//! Measures the possible speed of an experiment on an engine whose guest takes time to compute.
//!
//! The scenario's topology and flows run briefly without delays, at rates far above any emulation's; one flow
//! represents all between the same hosts. The goodput is this machine's capacity; the experiment uses less,
//! so that packets queue in the network and not for the guest's CPU. An idle path's RTT is the CPU's part of
//! every RTT; the experiment's RTTs are scaled until that part is negligible.

use std::collections::BTreeSet;

use xdc_base::error::{Error, Result};
use xdc_measure::figures::{self, Windows};
use xdc_netlink::phantom;
use xdc_proto::{Flow, Job, RunPlan};
use xdc_scenario::Scenario;
use xdc_scenario::paths::Paths;
use xdc_scenario::plan;

use crate::runner::Runner;

/// Experiment's share of the measured rate.
const RATE_SHARE: f64 = 0.5;
/// CPU's share of a path's RTT: the link check allows 1 %.
const RTT_SHARE: f64 = 0.008;
const PROBE_US: u64 = 1_000_000;
/// Fast enough not to limit, slow enough to keep the shapers active.
const SPEED_UP: u64 = 4;
pub const PROBE_CC: &str = "cubic";

pub fn scale(runner: &Runner<'_>, scenario: &Scenario, seed: u64) -> Result<u32> {
    runner.progress.note("measuring the capacity of this emulation (about 10 s)");
    let mut plan = plan::plan(scenario, PROBE_CC, seed, 1)?;
    let Job::Run(run) = &mut plan.job else {
        return Err(Error::failure("internal error: the plan is not a run"));
    };
    let base_rtts_us = make_fast(run)?;
    let record = runner
        .run_one("probe", plan, None)
        .map_err(|err| err.about("probing the emulation's speed"))?;

    let (_, probed_bps) = record
        .bottleneck()
        .ok_or_else(|| Error::usage("no port is watched").hint("[[watch]] for the bottleneck"))?;
    let nominal_bps = (probed_bps / SPEED_UP) as f64;
    let measured_bps =
        (figures::run(&record, &Windows::every_us(PROBE_US / 10)).goodput_mbps * 1e6).max(1.0);
    let cpu_us = |flow: &Flow| {
        let check =
            record.link_checks.iter().find(|check| check.src == flow.src && check.dst == flow.dst);
        check.map_or(0.0, |check| check.measured_us - check.configured_us)
    };
    let by_rtt = record
        .plan
        .flows
        .iter()
        .zip(base_rtts_us)
        .map(|(flow, base_rtt_us)| slowdown(cpu_us(flow), base_rtt_us))
        .fold(1.0, f64::max);
    let by_rate = nominal_bps / (RATE_SHARE * measured_bps);
    runner.progress.note(&format!(
        "this emulation carries {:.0} Mbit/s and adds {:.0} us to the shortest path",
        measured_bps / 1e6,
        record.plan.flows.iter().map(cpu_us).fold(f64::MAX, f64::min)
    ));
    Ok(by_rate.max(by_rtt).ceil() as u32)
}

/// Slowdown at which the CPU's part of an RTT is small; 1 without a base RTT.
fn slowdown(cpu_us: f64, base_rtt_us: f64) -> f64 {
    match base_rtt_us > 0.0 {
        true => cpu_us / (RTT_SHARE * base_rtt_us),
        false => 1.0,
    }
}

/// Removes delays, limits of rates and queues, ends of flows, and link events. Returns the flows' base RTTs.
fn make_fast(run: &mut RunPlan) -> Result<Vec<f64>> {
    run.stop_after_us = Some(PROBE_US);
    run.sample_us = PROBE_US / 20;
    run.events.clear();
    for link in &mut run.topology.links {
        for direction in [&mut link.ab, &mut link.ba] {
            direction.delay_ns = 0;
            direction.faults = None;
            direction.rate_bps *= SPEED_UP;
            if let Some(queue) = direction.queue.as_mut().filter(|queue| queue.is_phantom()) {
                let mut options = phantom::Options::from_words(&queue.words).unwrap_or_default();
                options.limit_bytes =
                    options.limit_bytes.map(|bytes| bytes.saturating_mul(SPEED_UP as u32));
                queue.words = options.word_list();
            }
        }
    }
    run.gates.clear();
    let mut pairs = BTreeSet::new();
    run.flows.retain(|flow| pairs.insert((flow.src.clone(), flow.dst.clone())));
    let base_rtts_us = run.flows.iter().map(|flow| flow.base_rtt_us).collect();
    let paths = Paths::new(&run.topology)?;
    for flow in &mut run.flows {
        flow.bytes = 0;
        flow.start_ns = 0;
        flow.start_jitter_us = 0;
        flow.persistent = false;
        flow.base_rtt_us = paths.base_rtt_us(&flow.src, &flow.dst)?;
    }
    Ok(base_rtts_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_scenario::{parse, testing::SMALL};

    #[test]
    fn a_path_without_delay_needs_no_scale() {
        assert_eq!(slowdown(3.0, 0.0), 1.0);
        assert!(slowdown(3.0, 100.0) > 1.0);
    }

    #[test]
    fn one_flow_per_host_pair_is_probed() {
        let scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let Job::Run(mut run) = plan::plan(&scenario, PROBE_CC, 1, 1).unwrap().job else {
            panic!("no run");
        };
        let mut message = run.flows[0].clone();
        (message.persistent, message.start_ns, message.start_jitter_us) = (true, 7_000, 9);
        let pairs = run.flows.len();
        run.flows.extend(std::iter::repeat_n(message, 1000));
        let rtts_us = make_fast(&mut run).unwrap();
        assert_eq!((run.flows.len(), rtts_us.len()), (pairs, pairs));
        assert!(rtts_us.iter().zip(&run.flows).all(|(&was, flow)| was > flow.base_rtt_us));
        let is_plain = |flow: &Flow| !flow.persistent && flow.bytes == 0 && flow.start_ns == 0;
        assert!(run.flows.iter().all(is_plain));
    }
}
