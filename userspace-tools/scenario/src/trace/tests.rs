// SPDX-License-Identifier: GPL-2.0

use xdc_proto::{Job, RunPlan};

use super::*;
use crate::load::parse;
use crate::plan::plan;
use crate::testing::SMALL;

const END: &str = "duration=100ms";

fn said(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x.csv"), text).unwrap();
    let sets = ["duration=1s", "topology.links.1.trace=x.csv"].map(str::to_owned);
    let loaded = parse("small", SMALL, &sets).unwrap();
    let links = &loaded.scenario.topology.links;
    match Trace::read_all(&Budget::default(), &[dir.path().to_owned()], links) {
        Ok(_) => String::new(),
        Err(err) => err.lines().join(" "),
    }
}

fn rates(trace: &Trace) -> Vec<(u64, u64)> {
    let rates = trace.rows.iter();
    rates.map(|row| (row.at.0 / MS, row.rate.unwrap().0 / PACKET_BITS / 1000)).collect()
}

fn parsed(text: &str) -> Trace {
    Trace::parse(&Budget::default(), text.as_bytes()).unwrap()
}

/// Plans [`SMALL`] with a trace from s to r.
fn planned(text: &str, sets: &[&str]) -> Result<RunPlan> {
    let sets = ["topology.links.1.trace_ab=x"].iter().chain(sets);
    let sets: Vec<_> = sets.map(|set| (*set).to_owned()).collect();
    let mut scenario = parse("small", SMALL, &sets)?.scenario;
    scenario.traces.insert("x".to_owned(), parsed(text));
    match plan(&scenario, "cubic", 1, 2)?.job {
        Job::Run(run) => Ok(run),
        _ => panic!("not a run"),
    }
}

#[test]
fn opportunities_become_rates_of_their_milliseconds() {
    let trace = parsed("# x\n1\n3\n3\n4\r\n4\n\n8\n");
    assert_eq!(rates(&trace), [(0, 1), (1, 0), (2, 2), (4, 0), (7, 1)]);
    assert_eq!(trace.period, Time(8 * MS));
    // An opportunity at 0 is one at the end, where the trace repeats.
    assert_eq!(rates(&parsed("0\n1\n2\n")), [(0, 1), (1, 2)]);
    let constant = parsed("1\n1\n");
    assert_eq!((rates(&constant), constant.period), (vec![(0, 2)], LONGEST));
}

#[test]
fn series_are_read_as_csv_and_json() {
    let csv = parsed("# x\ntime_s, rate_mbps, loss_percent\n5,1.5,0\n6,0,0.5\n7,2,100\n");
    let json = parsed(
        "[{\"time_ms\":0,\"rate_mbps\":1.5,\"loss_percent\":0},\
         {\"time_ms\":1000,\"rate_mbps\":0,\"loss_percent\":0.5},\
         {\"time_ms\":2e3,\"rate_mbps\":2,\"loss_percent\":100}]",
    );
    assert_eq!(csv.rows, json.rows);
    assert_eq!((csv.period, json.period), (Time(3000 * MS), Time(3000 * MS)));
    let row =
        Row { at: Time(1000 * MS), rate: Some(Rate(0)), delay: None, loss: Some(Fraction(5_000)) };
    assert_eq!(csv.rows[1], row);
}

#[test]
fn mistakes_in_traces_are_named() {
    for (text, words) in [
        ("", "the file is empty"),
        ("# x\n \n", "the file is empty"),
        ("0\n0\n", "no packet after time 0"),
        ("1\n2.5\n", "one whole ms a line, in order"),
        ("1\n1x\n", "line 2: '1x' is not the time of a packet"),
        ("99999999999\n", "up to a day"),
        ("5\n3\n4\n", "a series of numbers without times"),
        ("12\n11\n16\n", "time_ms,delay_ms"),
        ("time_s,rate_kbps\n0,1\n", "unknown column 'rate_kbps' try: 'rate_mbps'"),
        ("time_s,rate_mbps\n", "no row"),
        ("time_s,rate_mbps\n1,1\n0,1\n", "row 2: the time 0 does not follow"),
        ("time_s,rate_mbps\n0,1\n0,1\n", "row 2: the time 0 does not follow"),
        ("time_s,rate_mbps\nNaN,1\n", "does not follow"),
        ("time_s,rate_mbps\n0,-1\n", "row 1: 'rate_mbps' is -1 try: 0 to"),
        ("time_s,rate_mbps\n0,inf\n", "'rate_mbps' is inf"),
        ("time_s,loss_percent\n0,101\n", "0 to 100"),
        ("time_s,rate_mbps\n0,1 mbit\n", "row 1: '1 mbit' is not a number"),
        ("time_s,rate_mbps\n0\n", "found record with 1 fields"),
        ("time_s\n0\n", "no column 'rate_mbps'"),
        ("rate_mbps,delay_ms\n0,1\n", "no column 'time_s'"),
        ("time_s,time_s\n0,1\n", "two columns"),
        ("0,12\n1,5\n", "unknown column '0'"),
        ("[]", "no row"),
        ("[{\"time_s\": 0}]", "no column"),
        ("[{\"time_s\":0,\"rate_mbps\":1},{\"time_s\":1}]", "row 2: it has other keys"),
        ("[1]", "try: [{"),
        ("0->1 start 0 size 1\n", "a connection matrix of htsim"),
    ] {
        let said = said(text);
        assert!(said.contains(words), "{text:?} should say '{words}': {said}");
    }
}

#[test]
fn a_trace_repeats_until_the_run_ends() {
    let run = planned("time_ms,rate_mbps,delay_ms\n0,8,5\n20,0,5\n", &[END]).unwrap();
    let changes = run.events.iter().map(|event| (event.at_us, event.change.clone()));
    let rate = |at_us, bps| (at_us, Change::Rate { bps });
    let expected = [
        rate(0, 4_000_000),
        (0, Change::Delay { ns: 10_000_000 }),
        rate(40_000, MIN_SCALED_BPS),
        rate(80_000, 4_000_000),
        rate(120_000, MIN_SCALED_BPS),
        rate(160_000, 4_000_000),
    ];
    assert!(changes.eq(expected), "{:?}", run.events);
    let end = End { node: "s".to_owned(), port: "r".to_owned() };
    assert!(run.events.iter().all(|event| event.ends == [end.clone()]));
    assert!(run.events[0].seed != run.events[1].seed);
}

#[test]
fn a_trace_needs_an_end_and_a_port() {
    let refused = |text, sets: &[&str]| planned(text, sets).unwrap_err().lines().join(" ");
    let tc = "queues.port={tc=\"fq_codel\"}";
    assert!(refused("1\n3\n", &[END, tc]).contains("only a phantom port"));
    assert!(planned("1\n2\n2\n", &[END, tc]).is_ok());
    assert!(refused("1\n", &[]).contains("'duration'"));
    let bare = ["unset=watch", "unset=topology.links.1.queue_ab", "unset=queues", END];
    let bare = planned("1\n3\n", &bare).unwrap();
    assert!(bare.topology.links.last().unwrap().ab.queue.is_some());
}
