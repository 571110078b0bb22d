// SPDX-License-Identifier: GPL-2.0
//! A recorded run for tests.

use std::time::Duration;

use xdc_proto::{
    Direction, Ecn, Flow, FlowResult, FlowSample, Link, Message, Node, QueueResult, QueueSample,
    RunPlan, Sample, Topology, Totals, WatchedQueue,
};
use xdc_tcpinfo::{COUNTERS, Of};

use crate::record::Record;

/// Two flows of 1 MiB to one host over 1 Gbit/s: flow 0 at twice the rate of flow 1 for half of the
/// time, then at equal rates until flow 0 ends at 16 ms and flow 1 at 20 ms. The guest is `scale`
/// times slower; its plan has two flows and a watched queue.
pub fn told(run: RunPlan, scale: u32) -> Record {
    let factor = u64::from(scale);
    let mut record = Record::new("unocc", run);
    record.add(Message::Hello { version: xdc_proto::VERSION, kernel: "7.3.4".to_owned() }).unwrap();
    record
        .add(Message::LinkCheck {
            src: "a1".to_owned(),
            dst: "r".to_owned(),
            configured_rtt_us: 100.0 * factor as f64,
            measured_rtt_us: 100.5 * factor as f64,
        })
        .unwrap();
    let bytes = 1u64 << 20;
    for ms in 0..=20u64 {
        let share = |done: u64| FlowSample {
            active: done < bytes,
            cwnd_packets: 10,
            cwnd_bytes: 14_480,
            srtt_us: (200 + ms as u32) * scale,
            received_bytes: done.min(bytes),
            retransmits: 0,
            pacing_bps: 1_000_000 / factor,
        };
        let fast = (bytes / 12) * ms.min(8) + (bytes / 24) * ms.saturating_sub(8);
        let slow = (bytes / 24) * ms + (bytes / 24) * ms.saturating_sub(16);
        record
            .add(Message::Sample(Sample {
                t_us: ms * 1000 * factor,
                flows: vec![share(fast), share(slow)],
                active_flows: 2,
                received_bytes: fast + slow,
                queues: vec![QueueSample {
                    backlog_bytes: ms * 100,
                    phantom_bytes: Some(ms * 1000),
                    drops: 0,
                    marks: ms,
                }],
            }))
            .unwrap();
    }
    for (flow, end_us) in [(1, 20_000), (0, 16_000)] {
        record
            .add(Message::Flow(FlowResult {
                flow,
                start_ns: 0,
                late_ns: 0,
                end_ns: Some(end_us * 1000 * factor),
                acked_ns: Some((end_us + 50) * 1000 * factor),
                received_bytes: bytes,
                retransmits: 0,
                timeouts: 0,
                counters: COUNTERS
                    .iter()
                    .map(|counter| match (counter.name, counter.of) {
                        ("busy_us", _) => 15_000 * factor,
                        (_, Of::Us) => 100 * factor,
                        _ => 10,
                    })
                    .collect(),
                min_rtt_us: 130 * scale,
                mss_bytes: 1448,
                payload_bytes: 1448,
                started: true,
                cc: "unocc".to_owned(),
                ecn: Some(Ecn::Accurate),
                writing: (10, 0),
            }))
            .unwrap();
    }
    record
        .add(Message::Queue(QueueResult {
            queue: 0,
            sent_packets: 1450,
            sent_bytes: 1450 * 1514,
            drops: 0,
            marks: 20,
            backlog_max_bytes: Some(5000),
            phantom_max_bytes: Some(20_000),
        }))
        .unwrap();
    let totals = Totals { marks: 20, ..Totals::default() };
    record.add(Message::Totals(totals)).unwrap();
    let virtual_us = 20_000 * factor;
    record.add(Message::Done { virtual_us }).unwrap();
    record.complete(Duration::from_secs(1)).unwrap()
}

/// [`told`] at scale 1, with nothing else in the plan.
pub fn recorded() -> Record {
    told(planned(1), 1)
}

/// [`told`] by a guest ten times slower, unscaled.
pub fn unscaled() -> Record {
    told(planned(10), 10).unscaled(10, planned(1))
}

/// A network of links of 1 Gbit/s; the nodes `s` and `t` are routers.
pub fn network(links: &[(&str, &str)]) -> Topology {
    let direction = || Direction {
        rate_bps: 1_000_000_000,
        delay_ns: 0,
        queue: None,
        faults: None,
        policer: None,
    };
    let link = |&(a, b): &(&str, &str)| Link {
        a: a.to_owned(),
        b: b.to_owned(),
        mtu: 1500,
        ab: direction(),
        ba: direction(),
    };
    let mut names: Vec<_> = links.iter().flat_map(|&(a, b)| [a, b]).collect();
    names.sort_unstable();
    names.dedup();
    let node = |name: &str| Node {
        name: name.to_owned(),
        router: ["s", "t"].contains(&name),
        sysctls: Vec::new(),
        setup: Vec::new(),
        spray: false,
        site: 0,
        initcwnd: 0,
        initrwnd: 0,
    };
    Topology {
        nodes: names.into_iter().map(node).collect(),
        links: links.iter().map(link).collect(),
        ..Topology::default()
    }
}

fn planned(scale: u32) -> RunPlan {
    let flow = |src: &str| Flow {
        src: src.to_owned(),
        dst: "r".to_owned(),
        group: "all".to_owned(),
        bytes: 1 << 20,
        ..Flow::default()
    };
    let mut topology = network(&[("s", "r"), ("a1", "s"), ("a2", "s")]);
    for link in &mut topology.links {
        link.ab.rate_bps /= u64::from(scale);
        link.ba.rate_bps /= u64::from(scale);
    }
    RunPlan {
        topology,
        flows: vec![flow("a1"), flow("a2")],
        watch: vec![WatchedQueue {
            name: "port".to_owned(),
            node: "s".to_owned(),
            peer: "r".to_owned(),
        }],
        sample_us: 1000 * u64::from(scale),
        flow_series: true,
        ..RunPlan::default()
    }
}
