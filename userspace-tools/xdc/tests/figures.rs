// SPDX-License-Identifier: GPL-2.0
//! Figures of flows in UML guests, built by `make`, against hand calculations.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Two senders, a switch and a port of 100 Mbit/s.
const NETWORK: &str = r#"
title = "figures"
ccs = ["reno"]
engine = "uml"
sample = "10ms"
[topology]
mtu = 1500
quickack = true
hosts = ["a[1-2]", "r"]
routers = ["s"]
[[topology.links]]
a = "a[1-2]"
b = "s"
rate = "1gbit"
[[topology.links]]
a = "s"
b = "r"
rate = "100mbit"
queue_ab = "port"
DELAY
[queues.port]
limit = "1MB"
phantom = "1MB"
[[watch]]
name = "port"
from = "s"
to = "r"
[[flows]]
src = "a1"
dst = "r"
group = "all"
"#;

/// Runs in virtual time; returns exit code, rows of flows.csv, and the run's figures.
fn run(delay: &str, more: &str, words: &[&str]) -> (Option<i32>, Vec<Vec<String>>, Value) {
    let dir = tempfile::tempdir().unwrap();
    let text = NETWORK.replace("DELAY", delay) + more;
    fs::write(dir.path().join("figures.toml"), text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["run", "figures.toml", "--results", "."])
        .args(words)
        .current_dir(dir.path())
        .output()
        .unwrap();
    let result = dir.path().join("figures/1");
    let said = String::from_utf8_lossy(&output.stderr);
    let read = |name: &str| fs::read_to_string(Path::new(&result).join(name)).expect(&said);
    let rows = read("flows.csv");
    let rows = rows.lines().skip(1);
    let rows = rows.map(|row| row.split(',').map(str::to_owned).collect());
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    (output.status.code(), rows.collect(), summary["runs"][0].clone())
}

fn number(row: &[String], column: usize) -> f64 {
    row[column].parse().unwrap()
}

const START: usize = 5;
const END: usize = 6;
const FCT: usize = 8;
const IDEAL: usize = 10;
const ACKED: usize = 12;

/// Ten full packets fill the first window, so the end of the stream waits for their ACKs.
#[test]
fn the_ack_of_the_last_byte_ends_a_flow() {
    for words in [
        "bytes = 14480",
        "bytes = 14479",
        // A thread writes the data.
        "bytes = 14480\nsndbuf = \"12kB\"",
        "bytes = 1448000\nsndbuf = \"64KiB\"",
    ] {
        let (code, rows, _) = run("delay = \"10ms\"", words, &["--cc", "reno"]);
        assert_eq!(code, Some(0), "{words}");
        let back_us = number(&rows[0], ACKED) - number(&rows[0], FCT);
        assert!((10_000.0..10_010.0).contains(&back_us), "{words}: {back_us}");
        if !words.contains("sndbuf") {
            let (fct_us, ideal_us) = (number(&rows[0], FCT), number(&rows[0], IDEAL));
            assert!((ideal_us..ideal_us + 1.0).contains(&fct_us), "{words}: {fct_us}");
        }
    }
}

#[test]
fn a_probe_does_not_wait_for_the_previous_one() {
    let (code, _, run) = run("", "bytes = \"100kB\"", &["--cc", "reno"]);
    assert_eq!((code, &run["suspect"]), (Some(0), &Value::Array(vec![])));
    assert!(run["link_rtt_error"].as_f64().unwrap().abs() < 0.001, "{run}");
}

#[test]
fn a_flow_that_never_starts_is_unfinished_and_noted() {
    let late = "bytes = 1000\n[[flows]]\nsrc = \"a2\"\ndst = \"r\"\ngroup = \"late\"\nbytes = 1000\nstart = \"1s\"";
    let words = ["--cc", "reno", "--set", "duration=200ms"];
    let (code, rows, run) = run("", late, &words);
    assert_eq!(code, Some(1));
    assert_eq!((rows[1][START].as_str(), rows[1][END].as_str()), ("1000000.000", ""));
    assert_eq!(
        (&run["unfinished"], &run["notes"][0]["kind"]),
        (&1.into(), &"never_started".into())
    );
}

#[test]
fn a_note_says_why_flows_ran_reno() {
    let refusal = "receiver_cc = \"reno\"\n[host.r.sysctl]\n\"net.ipv4.tcp_ecn\" = 0";
    for cc in ["dctcp", "unocc"] {
        let words = ["--cc", cc, "--set", "duration=100ms"];
        let (code, _, run) = run("delay = \"1ms\"", refusal, &words);
        assert_eq!(code, Some(0));
        let note = &run["notes"][0];
        let wanted = format!(
            "1 of 1 flow ran Reno instead of {cc}, since r refused ECN (net.ipv4.tcp_ecn = 0 there); \
             Reno reacts only to losses"
        );
        assert_eq!((&note["kind"], &note["text"]), (&"fell_back".into(), &wanted.into()));
    }
}

/// Ten packets of 1448 bytes become eleven with AccECN's option in each.
#[test]
fn the_ideal_counts_tcp_options() {
    let first_window = "bytes = 14360";
    let (code, rows, run) = run("delay = \"10ms\"", first_window, &["--cc", "unocc"]);
    assert_eq!(code, Some(0));
    let (fct_us, ideal_us) = (number(&rows[0], FCT), number(&rows[0], IDEAL));
    assert!((ideal_us..ideal_us + 1.0).contains(&fct_us), "{fct_us}, not {ideal_us}");
    assert_eq!(run["notes"][0]["kind"], "payload", "{run}");
}
