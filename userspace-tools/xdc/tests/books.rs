// SPDX-License-Identifier: GPL-2.0
//! Packet accounting in UML guests: each dropped packet has a place and a cause, and packets that
//! vanish without a counter make a run suspect.

use std::{fs, process::Command};

use serde_json::Value;

/// One flow through a router; `rest` is appended.
fn scenario(link: &str, rest: &str) -> String {
    format!(
        r#"
ccs = ["cubic"]
duration = "1s"
[topology]
hosts = ["a", "r"]
routers = ["s"]
[[topology.links]]
a = "a"
b = "s"
rate = "1gbit"
[[topology.links]]
a = "s"
b = "r"
rate = "100mbit"
{link}
[[flows]]
src = "a"
dst = "r"
sndbuf = "4MiB"
rcvbuf = "4MiB"
{rest}
"#
    )
}

/// Result of a scenario's only run.
fn run(text: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("books.toml");
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["run", file.to_str().unwrap(), "--engine", "uml", "--results"])
        .arg(dir.path())
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let summary = fs::read(dir.path().join("books/1/summary.json")).expect(&said);
    let mut summary: Value = serde_json::from_slice(&summary).unwrap();
    summary["runs"][0].take()
}

const QUEUE: &str = "delay = \"5ms\"\nqueue_ab = \"port\"\n[queues.port]\nlimit = \"50kB\"";

fn suspects(run: &Value) -> String {
    run["suspect"].to_string()
}

#[test]
fn queue_drops_are_not_link_losses() {
    let run = run(&scenario(QUEUE, ""));
    assert!(run["drops"].as_u64().unwrap() > 0, "{run}");
    assert_eq!((&run["drops"], &run["losses"]), (&run["retransmits"], &0.into()));
    assert_eq!(run["dropped"]["queue"], run["drops"]);
    assert_eq!(suspects(&run), "[]");
}

#[test]
fn a_netem_as_queue_drops_each_packet_once() {
    let queue = QUEUE.replace("limit = \"50kB\"", "tc = \"netem loss 1%\"");
    let run = run(&scenario(&queue, ""));
    assert!(run["drops"].as_u64().unwrap() > 0, "{run}");
    assert_eq!((&run["drops"], &run["losses"]), (&run["retransmits"], &0.into()));
    assert_eq!(run["queues"][0]["drops"], run["drops"]);
}

#[test]
fn link_losses_and_queue_drops_are_counted_apart() {
    let link = QUEUE.replace("queue_ab", "loss_ab = 0.001\nqueue_ab").replace("50kB", "20kB");
    let run = run(&scenario(&link, ""));
    let [drops, losses] = ["drops", "losses"].map(|name| run[name].as_u64().unwrap());
    assert!(drops > 0 && losses > 0, "{run}");
    assert_eq!(run["dropped"]["link"], losses);
    assert_eq!(run["retransmits"], drops + losses);
}

#[test]
fn policer_drops_have_their_own_cause() {
    let police = r#"
[host.s]
modules = ["act_police"]
setup = [
    "tc qdisc add dev r clsact",
    "tc filter add dev r egress matchall action police rate 50mbit burst 30k conform-exceed drop",
]
"#;
    let run = run(&scenario(&QUEUE.replace("50kB", "500kB"), police));
    let policed = run["dropped"]["action"].as_u64().unwrap();
    assert!(policed > 0, "{run}");
    assert_eq!(run["retransmits"], policed);
    let at = &run["dropped_at"][0];
    assert_eq!((&at["node"], &at["port"]), (&"s".into(), &"r".into()));
    assert_eq!(suspects(&run), "[]");
}

#[test]
fn policer_drops_and_burst_losses_are_counted_apart() {
    let rest = r#"
[host.s]
modules = ["act_police"]
setup = [
    "tc qdisc add dev a clsact",
    "tc filter add dev a ingress matchall action police rate 50mbit burst 30k conform-exceed drop",
]
[[event]]
at = "100ms"
link = "a-s"
from = "a"
burst_loss = [0.01, 0, 0]
"#;
    let run = run(&scenario(QUEUE, rest));
    let [action, link] = ["action", "link"].map(|cause| run["dropped"][cause].as_u64().unwrap());
    assert!(action > 0 && link > 0, "{run}");
    assert_eq!(run["retransmits"], action + link);
    assert_eq!(suspects(&run), "[]");
}

/// A shell command on the router 300 ms after the start.
fn at_the_router(command: &str) -> String {
    format!("[[run]]\non = \"s\"\ncommand = \"{command}\"\nstart = \"300ms\"\n")
}

#[test]
fn uncounted_losses_make_a_run_suspect() {
    let vanish = [
        // The kernel does not count packets that a routing rule discards.
        "ip rule add dport 10000 blackhole; sleep 0.01; ip rule del dport 10000 blackhole",
        // A device that discards its packets.
        "ip link add sink type dummy; ip link set sink up; tc qdisc add dev a clsact; \
         tc filter add dev a ingress matchall action mirred egress redirect dev sink; \
         sleep 0.01; tc filter del dev a ingress",
    ];
    for command in vanish {
        let run = run(&scenario(QUEUE, &at_the_router(command)));
        assert!(suspects(&run).contains("s: "), "{command}: {run}");
    }
}

#[test]
fn reordering_does_not_raise_the_link_rate() {
    let more = "[sysctl]\n\"net.ipv4.tcp_reordering\" = 300\n";
    let queue = QUEUE.replace("queue_ab", "reorder_ab = 0.6\nqueue_ab");
    let queued = scenario(&queue.replace("50kB", "500kB"), more);
    // The first link has the rate here, without a queue.
    let unqueued =
        scenario(QUEUE, more).replace("\"1gbit\"", "\"50mbit\"\ndelay = \"5ms\"\nreorder_ab = 0.6");
    for (text, most) in [(queued, 1.0), (unqueued, 0.5)] {
        let run = run(&text);
        let utilisation = run["utilisation"].as_f64().unwrap();
        assert!((most / 2.0..=most).contains(&utilisation), "{run}");
        assert!(run["tcp"]["reord_seen"].as_u64().unwrap() > 0, "{run}");
    }
}

#[test]
fn a_shorter_delay_keeps_the_packet_order() {
    let event = "[[event]]\nat = \"300ms\"\nlink = \"s-r\"\ndelay = \"1ms\"\n";
    let link = QUEUE.replace("50kB", "500kB").replace("5ms", "20ms");
    let run = run(&scenario(&link, event));
    assert_eq!(run["tcp"]["reord_seen"], 0, "{run}");
}
