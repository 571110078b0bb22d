// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::algo::support::{Rng, any_calls, watched_and_unwatched_are_one};

const MSS: u32 = 1_448;
const RTT_US: u32 = 100;

fn flow(params: &Params) -> Flow {
    let mut flow = Flow::new(params, 1_000_000, 10 * u64::from(MSS), Some(RTT_US));
    flow.open(params);
    flow
}

fn ack(now_us: u64, acked: u64, marked: u64) -> Ack {
    Ack {
        now_us,
        rtt_us: Some(RTT_US),
        srtt_us: RTT_US,
        acked_bytes: acked,
        marked_bytes: marked,
        delivered_bytes: acked,
        interval_us: RTT_US,
        cwnd_limited: true,
        mss_bytes: MSS,
        ..Ack::default()
    }
}

fn params() -> Params {
    Params {
        line_rate_mbps: 10_000,
        ..Params::of(Profile::Default)
    }
}

#[test]
fn any_bytes_and_calls_cause_no_panic() {
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let params = Params::read(|row| {
            let info = &PARAMS[row];
            rng.within(info.min.into(), info.max.into()) as u32
        });
        let mut flow = Flow::new(&params, rng.any(), rng.any(), Some(rng.any() as u32));
        any_calls(&mut flow, &params, &mut rng);
        assert!(flow.price <= ONE as u32);
        assert!(flow.window().bytes() <= MAX_BYTES);
    }
}

#[test]
fn tracing_changes_no_decision() {
    watched_and_unwatched_are_one(&params(), flow(&params()));
}

#[test]
fn a_flow_that_is_not_started_does_nothing() {
    let mut flow = Flow::default();
    assert_eq!(flow.on_ack(&params(), &ack(1, 1, 0)), None);
    flow.on_loss(&params(), 1, MSS);
    flow.restart(0, MSS);
    flow.undo(u64::MAX, u64::MAX);
    assert_eq!(flow.cwnd_bytes(), 0);
}

/// Returns the rates of flows that share a port of 9.5 Gbit/s, which marks in proportion to its
/// queue.
fn shares(rtts_us: &[u32]) -> Vec<f64> {
    let params = params();
    let mut flows: Vec<Flow> = rtts_us
        .iter()
        .map(|&rtt_us| {
            let mut flow = Flow::new(&params, 0, 10 * u64::from(MSS), Some(rtt_us));
            flow.open(&params);
            flow
        })
        .collect();
    let rate = |flow: &Flow| {
        let output = flow.output(&params, 0);
        output.pacing_bytes_per_s as f64 * 8e-6
    };
    let mut queue = 0.0;
    for step in 1..400_000_u64 {
        let now_us = step * 10;
        let load: f64 = flows.iter().map(&rate).sum();
        queue = (queue + (load - 9_500.0) * 10.0 / 8.0_f64).clamp(0.0, 4e6);
        let marked = queue / 4e6;
        for (flow, &rtt_us) in flows.iter_mut().zip(rtts_us) {
            let acked = (rate(flow) * 10.0 / 8.0) as u64;
            let mut ack = ack(now_us, acked, (acked as f64 * marked) as u64);
            (ack.rtt_us, ack.srtt_us) = (Some(rtt_us), rtt_us);
            flow.on_ack(&params, &ack);
        }
    }
    flows.iter().map(rate).collect()
}

#[test]
fn rates_are_equal_at_different_rtts() {
    let rates = shares(&[100, 100, 1_000, 4_000]);
    let sum: f64 = rates.iter().sum();
    assert!((9_000.0..10_000.0).contains(&sum), "{rates:?}");
    for rate in &rates {
        assert!((rate / sum * 4.0 - 1.0).abs() < 0.1, "{rates:?}");
    }
}

#[test]
fn loss_removes_at_most_half_once_per_round_trip() {
    let params = params();
    let mut flow = flow(&params);
    let before = flow.scaled;
    flow.on_loss(&params, 1_000_100, MSS);
    let after = flow.scaled;
    assert!(after < before && after >= before / 2);
    assert!(!flow.has(SLOW_START));
    flow.on_loss(&params, 1_000_110, MSS);
    assert_eq!(flow.scaled, after);
}

#[test]
fn unmarked_queue_has_a_price() {
    let params = params();
    let mut flow = flow(&params);
    flow.on_loss(&params, 1_000_000, MSS);
    let w = flow.window().bytes();
    for round in 1..100 {
        let mut ack = ack(1_000_000 + round * 400, w, 0);
        ack.rtt_us = Some(4 * RTT_US);
        flow.on_ack(&params, &ack);
    }
    assert!(flow.delay > 0 && flow.window().bytes() < w);
    assert_eq!(flow.price, 0);
}

#[test]
fn flows_of_a_host_probe_the_base_rtt_together() {
    let params = params();
    let mut flow = flow(&params);
    for round in 1..100 {
        let mut ack = ack(1_000_000 + round * 400, 100_000, 0);
        ack.rtt_us = Some(2 * RTT_US);
        flow.on_ack(&params, &ack);
    }
    let mut ack = ack(10_000_100, 100_000, 0);
    ack.rtt_us = Some(2 * RTT_US);
    let output = flow.on_ack(&params, &ack).unwrap();
    assert_eq!(output.cwnd_bytes, 4 * u64::from(MSS));
}

#[test]
fn round_trip_ends_after_an_idle_hour() {
    let params = params();
    let mut flow = flow(&params);
    let now_us = 1_000_000 + 40 * 60 * 1_000_000;
    flow.delay = 1;
    flow.on_idle_restart(now_us);
    assert_eq!(flow.delay, 0);
    flow.on_ack(&params, &ack(now_us + u64::from(RTT_US), 1_000, 0));
    assert_eq!(flow.rounds, 1);
}

#[test]
fn a_flow_without_a_handshake_rtt_keeps_its_window() {
    let flow = Flow::new(&params(), 1_000_000, 10 * u64::from(MSS), None);
    assert_eq!(flow.window().bytes(), 10 * u64::from(MSS));
}
