// SPDX-License-Identifier: GPL-2.0
//! Each condition yields one sentence; an ordinary run yields none.

use xdc_proto::{Change, Direction, Ecn, End, Event, Queue};

use super::*;
use crate::figures::{Windows, run};
use crate::run::Run;
use crate::testing::recorded;

/// A run over a port with a marking phantom queue of one megabyte.
fn ordinary() -> Record {
    let mut record = recorded();
    set_queue(&mut record, phantom(1_000_000));
    record
}

fn counter(name: &str) -> usize {
    let mut names = xdc_tcpinfo::COUNTERS.iter().map(|counter| counter.name);
    names.position(|own| own == name).unwrap()
}

fn phantom(phantom_bytes: u64) -> Queue {
    tc(&format!("phantom limit 1000000b phantom {phantom_bytes}b mark phantom"))
}

fn tc(text: &str) -> Queue {
    let mut words = text.split(' ').map(str::to_owned);
    Queue { kind: words.next().unwrap(), words: words.collect(), seed: None }
}

fn port(record: &mut Record) -> &mut Direction {
    &mut record.plan.topology.links[0].ab
}

fn set_queue(record: &mut Record, queue: Queue) {
    port(record).queue = Some(queue);
}

fn figures(record: &Record) -> Run {
    run(record, &Windows::every_us(1000))
}

/// Asserts that a run has one note, and returns it.
fn note(record: &Record, kind: NoteKind) -> Note {
    let notes = figures(record).notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(notes[0].kind, kind);
    notes[0].clone()
}

#[test]
fn an_ordinary_run_has_no_notes() {
    let run = figures(&ordinary());
    assert!(run.notes.is_empty(), "{:?}", run.notes);
    assert!(run.suspect.is_empty());
    assert_eq!(grouped(1_234_567), "1,234,567");
    assert_eq!(grouped(12), "12");
    assert_eq!(names(["b", "a", "d", "c", "a"].into_iter()), "a, b, c and 1 other");
}

#[test]
fn flows_that_fell_back_to_reno_are_counted_with_the_reason() {
    let mut record = ordinary();
    for flow in &mut record.flows {
        (flow.cc, flow.ecn) = ("unocc-reno".to_owned(), Some(Ecn::None));
    }
    let ecn = ("net.ipv4.tcp_ecn".to_owned(), "3".to_owned());
    record.plan.topology.sysctls.push(ecn);
    let fell_back = note(&record, NoteKind::FellBack);
    assert_eq!(fell_back.count, 2);
    assert!(fell_back.text.contains("the handshake did not negotiate ECN"), "{}", fell_back.text);
    let receiver = record.plan.topology.nodes.iter_mut().find(|node| node.name == "r");
    let refusal = ("net.ipv4.tcp_ecn".to_owned(), "0".to_owned());
    receiver.unwrap().sysctls.push(refusal);
    let text = note(&record, NoteKind::FellBack).text;
    assert!(
        text.starts_with("2 of 2 flows ran Reno instead of unocc, since r refused ECN"),
        "{text}"
    );
    record.flows[1].ecn = Some(Ecn::AccurateFailed);
    let notes = figures(&record).notes;
    assert_eq!(notes.len(), 2);
    assert!(notes[1].text.contains("AccECN failed"), "{}", notes[1].text);
    // A flow may lack ECN without a fallback.
    record.flows[1].ecn = Some(Ecn::None);
    for flow in &mut record.flows {
        flow.cc = "cubic".to_owned();
    }
    record.plan.cc = "cubic".to_owned();
    let text = note(&record, NoteKind::WithoutEcn).text;
    assert!(text.starts_with("2 of 2 flows ran cubic without ECN, since r refused"), "{text}");
    // A congestion control named so is not a fallback.
    for flow in &mut record.flows {
        (flow.cc, flow.ecn) = ("my-reno".to_owned(), Some(Ecn::Rfc3168));
    }
    record.plan.cc = "my-reno".to_owned();
    assert!(figures(&record).notes.is_empty());
}

#[test]
fn a_port_that_never_marks_is_noted() {
    let mut record = ordinary();
    record.totals.as_mut().unwrap().marks = 0;
    let drop_tail = tc("phantom mark none");
    for (queue, marks) in [
        (tc("pfifo limit 100"), false),
        (tc("fq_codel noecn"), false),
        (tc("fq_codel limit 1000"), true),
        (tc("codel"), false),
        (tc("codel ecn"), true),
        (tc("red limit 100000 ecn"), true),
        (tc("red limit 100000"), false),
        (tc("fq ce_threshold 1ms"), true),
        (tc("dualpi2"), true),
        (tc("phantom limit 1mb phantom 1mb mark none"), false),
        (tc("of_a_user"), true),
        (drop_tail, false),
    ] {
        set_queue(&mut record, queue.clone());
        let notes = figures(&record).notes;
        assert_eq!(notes.is_empty(), marks, "{queue:?}: {notes:?}");
        if !marks {
            assert_eq!((notes[0].kind, notes[0].count), (NoteKind::NeverMarks, 2));
            assert!(notes[0].text.contains("since s-r has "), "{}", notes[0].text);
        }
    }
    // Flows without ECN need no marks.
    set_queue(&mut record, tc("pfifo limit 100"));
    for flow in &mut record.flows {
        flow.ecn = Some(Ecn::None);
    }
    assert!(figures(&record).notes.is_empty());
}

#[test]
fn a_port_that_could_mark_and_only_dropped_is_noted() {
    let mut record = ordinary();
    let totals = record.totals.as_mut().unwrap();
    (totals.marks, totals.drops) = (0, 7);
    record.flows[0].retransmits = 3;
    let text = note(&record, NoteKind::NeverMarks).text;
    assert!(text.starts_with("queues dropped 7 packets and marked none"), "{text}");
}

#[test]
fn small_and_default_phantom_queues_are_noted_before_the_run() {
    let mut record = ordinary();
    let kinds = |record: &Record| -> Vec<_> {
        let notes = of_plan(&record.plan);
        notes.iter().map(|note| note.kind).collect()
    };
    // Every packet is marked from 60 % of the size; ten packets are 15,140 bytes.
    for (bytes, is_small) in [(25_000, true), (25_300, false), (1, true), (u64::MAX, false)] {
        for queue in
            [phantom(bytes), tc(&format!("phantom limit 1mb phantom {bytes} mark phantom"))]
        {
            set_queue(&mut record, queue);
            let wanted: &[_] = if is_small { &[NoteKind::SmallPhantom] } else { &[] };
            assert_eq!(kinds(&record), wanted, "{bytes}");
        }
    }
    set_queue(&mut record, phantom(10_000));
    let text = note(&record, NoteKind::SmallPhantom).text;
    assert!(
        text.contains("of s-r is 10,000 bytes, and marks every packet from 6,000 bytes on"),
        "{text}"
    );
    for (text, kind) in [
        ("phantom limit 1mb", Some(NoteKind::DefaultPhantom)),
        ("phantom limit 1mb mark physical phantom 1kb", None),
        ("phantom limit 1mb phantom 5kb mark either", Some(NoteKind::SmallPhantom)),
        ("phantom limit 1mb phantom 5mb", None),
        ("fq_codel", None),
    ] {
        set_queue(&mut record, tc(text));
        assert_eq!(kinds(&record), kind.into_iter().collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn flows_are_limited_by_window_buffer_or_application() {
    let mut record = ordinary();
    let (busy, window) = (counter("busy_us"), counter("rwnd_limited_us"));
    record.flows[0].counters[window] = 12_000;
    let limited = note(&record, NoteKind::Limited);
    assert_eq!(limited.count, 1);
    assert!(
        limited.text.starts_with("the receiver's window limited 1 of 2 flows for up to 80 %"),
        "{}",
        limited.text
    );
    record.flows[0].counters[window] = 0;
    record.flows[0].writing = (20, 19);
    let text = note(&record, NoteKind::Limited).text;
    assert!(text.starts_with("the send buffer limited 1 of 2 flows for up to 95 %"), "{text}");
    // Bursts pause by design.
    record.plan.flows[0].burst_bytes = 1;
    assert!(figures(&record).notes.is_empty());
    record.plan.flows[0].burst_bytes = 0;
    record.flows[0].writing = (20, 0);
    record.flows[0].counters[busy] = 4_000;
    let text = note(&record, NoteKind::Limited).text;
    assert!(
        text.starts_with("the sending application had nothing to send for up to 75 %"),
        "{text}"
    );
}

#[test]
fn flows_that_never_started_are_noted_and_make_the_run_suspect() {
    let mut record = ordinary();
    let flow = &mut record.flows[1];
    (flow.started, flow.end_ns, flow.acked_ns) = (false, None, None);
    (flow.start_ns, flow.received_bytes, flow.ecn) = (30_000_000, 0, None);
    record.plan.stop_after_us = Some(20_000);
    let waiting = note(&record, NoteKind::NeverStarted);
    assert_eq!(waiting.count, 1);
    assert!(
        waiting.text.contains("planned for 0.03 s, and the run stopped at 0.02 s"),
        "{}",
        waiting.text
    );
    let run = figures(&record);
    assert_eq!(run.suspect, ["1 flow never started"]);
    assert_eq!(run.completion.unfinished, 1);
}

#[test]
fn utilisation_counts_only_flows_through_the_port() {
    let mut record = ordinary();
    let whole = figures(&record).utilisation.unwrap();
    record.plan.flows[1].dst = "a1".to_owned();
    for flow in &mut record.flows {
        flow.ecn = Some(Ecn::None);
    }
    let bypass = note(&record, NoteKind::Bypass);
    assert_eq!(bypass.count, 1);
    let part = figures(&record).utilisation.unwrap();
    assert!((part * 2.0 - whole).abs() < 1e-9, "{part} of {whole}");
    record.plan.flows[0].dst = "a2".to_owned();
    assert_eq!(note(&record, NoteKind::Bypass).count, 2);
    assert_eq!(figures(&record).utilisation, None);
}

#[test]
fn a_port_that_sent_less_than_was_received_has_no_utilisation() {
    let mut record = ordinary();
    record.queues[0].sent_bytes /= 4;
    let text = note(&record, NoteKind::Bypass).text;
    assert!(text.ends_with("the rest bypassed its queue, so utilisation is not defined"), "{text}");
    assert_eq!(figures(&record).utilisation, None);
    assert!(figures(&record).suspect.is_empty());
    // Without another path, goodput above the rate is suspect.
    port(&mut record).rate_bps /= 2;
    assert_eq!(figures(&record).suspect.len(), 1);
    // Each flow takes one of two links.
    let second = record.plan.topology.links[0].clone();
    record.plan.topology.links.push(second);
    record.plan.topology.ecmp = true;
    let run = figures(&record);
    assert!(run.notes[0].text.contains("the rest took other paths"), "{:?}", run.notes);
    assert_eq!((run.utilisation, run.suspect.len()), (None, 0));
}

#[test]
fn utilisation_uses_the_port_rate_that_events_set() {
    let mut record = ordinary();
    let whole = figures(&record).utilisation.unwrap();
    let event = |at_us, bps, port: &str| Event {
        at_us,
        ends: vec![End { node: "s".to_owned(), port: port.to_owned() }],
        change: Change::Rate { bps },
        seed: None,
    };
    // 10 ms at 1 Gbit/s, then 10 ms at 3 Gbit/s.
    record.plan.events = vec![event(10_000, 3_000_000_000, "r"), event(0, 1, "a1")];
    let changed = figures(&record).utilisation.unwrap();
    assert!((changed * 2.0 - whole).abs() < 1e-9, "{changed} of {whole}");
}

#[test]
fn a_smaller_payload_is_noted_and_used() {
    let mut record = ordinary();
    let whole = figures(&record).utilisation.unwrap();
    for (flow, plan) in record.flows.iter_mut().zip(&mut record.plan.flows) {
        flow.payload_bytes = 1436;
        (plan.ideal_ns, plan.ideal_accecn_ns) = (8_000_000, 10_000_000);
    }
    let payload = note(&record, NoteKind::Payload);
    assert!(
        payload.text.contains("carries 1,436 bytes of payload, not 1,448 (12 bytes"),
        "{}",
        payload.text
    );
    let run = figures(&record);
    assert!((run.utilisation.unwrap() * 1436.0 / 1448.0 - whole).abs() < 1e-9);
    assert_eq!(run.completion.slowdown.max, Some(2.0));
    // The last packets of messages are smaller than full ones.
    record.flows[0].payload_bytes = 536;
    assert_eq!(note(&record, NoteKind::Payload).count, 1);
}
