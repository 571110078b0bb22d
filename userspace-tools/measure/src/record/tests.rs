// SPDX-License-Identifier: GPL-2.0
//! Tests of records.

use super::*;
use crate::figures::{self, Windows};
use crate::testing::{recorded, unscaled};

/// All figures are of the network in the scenario, whatever the scale.
#[test]
fn a_scaled_guest_has_the_same_figures() {
    let windows = Windows::every_us(1000);
    let run = |record| figures::run(&record, &windows);
    assert_eq!(run(unscaled()), run(recorded()));
}

#[test]
fn bytes_between_samples_are_interpolated() {
    let record = recorded();
    let step = f64::from(1 << 20) / 12.0;
    assert_eq!(record.received_at(0, 0), 0.0);
    assert!((record.received_at(0, 1500) - 1.5 * step).abs() < 1.0);
    assert_eq!(record.received_at(0, 30_000), f64::from(1 << 20));
    assert_eq!((record.first_end_us(), record.end_us()), (16_000, 20_000));
}

#[test]
fn doubts_name_links_and_counters() {
    let mut record = recorded();
    assert!(record.doubts().is_empty());
    record.suspects.push(("PruneCalled".to_owned(), 3));
    record.link_checks[0].measured_us = 102.0;
    assert_eq!(record.doubts().len(), 2);
}

#[test]
fn messages_that_do_not_fit_the_plan_are_refused() {
    let mut record = recorded();
    let again = Message::Flow(record.flows[0].clone());
    assert!(record.add(again).is_err());
    let again = Message::Queue(record.queues[0].clone());
    assert!(record.add(again).is_err());
    for t_us in [0, u64::MAX] {
        let sample = Sample { t_us, ..record.samples[20].clone() };
        assert!(record.add(Message::Sample(sample)).is_err(), "{t_us}");
    }
    let doubt = Message::Doubt { what: "it is in use".to_owned() };
    record.add(doubt).unwrap();
    assert_eq!(record.doubts(), ["it is in use"]);
}

/// Each fairness window of such a run would take memory.
#[test]
fn a_run_with_too_many_samples_is_refused() {
    let mut record = recorded();
    record.flows[1].end_ns = Some(MAX_US * 1000);
    let said = record.complete(Duration::ZERO).unwrap_err().what;
    assert!(said.contains("too long"), "{said}");
}

#[test]
fn unrequested_captures_and_traces_are_refused() {
    let mut record = recorded();
    let packets = || Message::Packets { tap: 0, packets: Vec::new() };
    let trace = || Message::Trace(TraceHead::default());
    assert!(record.add(packets()).is_err());
    assert!(record.add(trace()).is_err());
    record.captures.push(Vec::new());
    record.plan.trace = vec!["phantom_mark".to_owned()];
    record.add(packets()).unwrap();
    record.add(trace()).unwrap();
    assert!(record.add(trace()).is_err());
    record.trace_bytes = MAX_TRACE_BYTES;
    let page = Message::TracePage { cpu: 0, bytes: "00".to_owned() };
    assert!(record.add(page).is_err());
}

#[test]
fn a_run_without_every_result_is_an_error() {
    let mut record = recorded();
    record.flows.pop();
    assert!(record.complete(Duration::ZERO).is_err());
}
