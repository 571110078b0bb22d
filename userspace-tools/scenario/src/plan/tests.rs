// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeSet;

use super::*;
use crate::{parse, testing::SMALL};

/// Topology of a scenario with this fabric and no other node.
pub fn topology_of(fabric: &str) -> Topology {
    let mut scenario = parse("small", SMALL, &[]).unwrap().scenario;
    let spec = &mut scenario.topology;
    spec.fabric = Some(toml::from_str(fabric).unwrap());
    (spec.hosts, spec.routers, spec.links) = Default::default();
    let cc = scenario.known_cc("unocc").unwrap();
    topology(&Budget::default(), &mut None, &scenario, &cc, 7, 1).unwrap().0
}

fn small(cc: &str, scale: u32) -> RunPlan {
    let loaded = parse("small", SMALL, &[]).unwrap();
    match plan(&loaded.scenario, cc, 7, scale).unwrap().job {
        Job::Run(run) => run,
        job => panic!("{job:?}"),
    }
}

fn port(run: &RunPlan) -> phantom::Options {
    let queue = run.topology.direction("s", "r").unwrap().queue.as_ref().unwrap();
    let options = phantom::Options::from_words(&queue.words).unwrap();
    phantom::Options { seed: queue.seed, ..options }
}

fn sysctl<'a>(run: &'a RunPlan, name: &str) -> Option<&'a str> {
    let found = run.topology.sysctls.iter().find(|(key, _)| key == name)?;
    Some(&found.1)
}

#[test]
fn every_port_has_its_own_reproducible_seed() {
    let fabric = "kind = 'fat-tree'\nk = 4\nrate = '1gbit'\nqueue = 'port'";
    let seeds = || {
        let links = topology_of(fabric).links.into_iter();
        let queues = links.flat_map(|link| [link.ab.queue, link.ba.queue]);
        let seeds = queues.flatten().map(|queue| queue.seed.expect("a seed"));
        seeds.collect::<Vec<_>>()
    };
    let different: BTreeSet<_> = seeds().into_iter().collect();
    assert!(different.len() > 1);
    assert_eq!(different.len(), seeds().len());
    assert_eq!(seeds(), seeds());
    let of_run = |seed| {
        let loaded = parse("small", SMALL, &[]).unwrap();
        match plan(&loaded.scenario, "unocc", seed, 1).unwrap().job {
            Job::Run(run) => port(&run).seed,
            job => panic!("{job:?}"),
        }
    };
    assert_ne!(of_run(7), of_run(8));
}

#[test]
fn every_router_of_a_fabric_has_its_own_hash_seed() {
    let text = "kind = 'fat-tree'\nk = 4\nrate = '1gbit'";
    let topology = topology_of(text);
    assert!(topology.ecmp);
    let seeds: BTreeMap<&str, &str> = topology
        .nodes
        .iter()
        .flat_map(|node| node.sysctls.iter())
        .filter(|(name, _)| name.ends_with("hash_seed"))
        .map(|(_, seed)| (seed.as_str(), seed.as_str()))
        .collect();
    assert_eq!(seeds.len(), 20);
    let hosts = topology.nodes.iter().filter(|node| !node.router);
    assert!(hosts.clone().all(|host| host.sysctls.is_empty()));
    assert_eq!(hosts.count(), 16);
}

#[test]
fn each_congestion_control_gets_its_queue_and_ecn() {
    let unocc = small("unocc", 1);
    assert_eq!(port(&unocc).mark, Some(Mark::Phantom));
    assert_eq!(sysctl(&unocc, "net.ipv4.tcp_ecn"), Some("3"));
    let cubic = small("cubic", 1);
    assert_eq!(port(&cubic).mark, Some(Mark::None));
    assert_eq!(sysctl(&cubic, "net.ipv4.tcp_ecn"), Some("0"));
    assert_eq!(sysctl(&cubic, "net.unocc.intra_rtt_us"), None);
    assert_eq!(port(&small("dctcp", 1)).mark, Some(Mark::Physical));
}

#[test]
fn a_dscp_of_flows_overrides_the_hosts() {
    let sets = [
        "host.\"a[1-2]\".dscp=8",
        "host.a1.initcwnd=40",
        "host.r.initrwnd=60",
        "traffic=[{kind=\"incast\", hosts=[\"a[1-2]\"], to=\"r\", sizes=\"1kB\"}]",
    ]
    .map(str::to_owned);
    let text = format!(
        "{SMALL}[[flows]]\ngroup = \"all\"\nsrc = \"a1\"\ndst = \"r\"\nbytes = 1\ndscp = \"ef\"\n"
    );
    let loaded = parse("small", &text, &sets).unwrap();
    let Job::Run(run) = plan(&loaded.scenario, "cubic", 7, 1).unwrap().job else {
        panic!("no run");
    };
    let dscps: Vec<_> = run.flows.iter().map(|flow| flow.dscp).collect();
    assert_eq!(dscps, [8, 8, 46, 8, 8]);
    let windows = |name: &str| {
        let node = run.topology.nodes.iter().find(|node| node.name == name);
        node.map(|node| (node.initcwnd, node.initrwnd)).unwrap()
    };
    assert_eq!((windows("a1"), windows("r")), ((40, 0), (0, 60)));
    let wrong = ["host.a1.initcwnd=0", "host.a1.dscp=64", "flows.0.dscp=\"fast\""];
    for set in wrong {
        assert!(parse("small", SMALL, &[set.to_owned()]).is_err(), "{set}");
    }
}

#[test]
fn thresholds_become_fractions_of_the_limit() {
    let port = port(&small("dctcp", 1));
    assert_eq!((port.min_ppm, port.max_ppm), (Some(250_000), Some(750_000)));
}

#[test]
fn a_bdp_uses_the_port_rate_and_the_longest_rtt() {
    let port_with = |sets: &[&str], scale: u32| {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let loaded = parse("small", SMALL, &sets).unwrap();
        match plan(&loaded.scenario, "unocc", 7, scale).unwrap().job {
            Job::Run(run) => port(&run),
            job => panic!("{job:?}"),
        }
    };
    // 100 us of delay, a full packet on the first hop, its ACK on both: 113.168 us.
    let bdp = |mbps: u64, rtt_ns: u64| mbps * rtt_ns / 8_000;
    let phantom = "queues.port.phantom=1bdp";
    let base = port_with(&[phantom], 1);
    assert_eq!(base.phantom_limit_bytes, Some(bdp(1000, 113_168)));
    // Only this port is ten times as fast: the last hop's ACK takes less time.
    let faster = port_with(&[phantom, "topology.links.1.rate=10gbit"], 1);
    assert_eq!(faster.phantom_limit_bytes, Some(bdp(10_000, 112_692)));
    assert_eq!(faster.seed, base.seed);
    let stated = port_with(&["queues.port.limit=2bdp", "queues.port.rtt=1ms"], 1);
    assert_eq!(stated.limit_bytes, Some(250_000));
    // min is 25 kB, max 75 %.
    let ppm = (stated.min_ppm, stated.max_ppm);
    assert_eq!(ppm, (Some(100_000), Some(750_000)));
    let half =
        port_with(&["queues.port.limit=1bdp", "queues.port.min=0.5bdp", "queues.port.rtt=1ms"], 1);
    assert_eq!(half.min_ppm, Some(500_000));
    // The scale divides the rate and multiplies the RTT.
    assert_eq!(port_with(&[phantom], 10).phantom_limit_bytes, base.phantom_limit_bytes);
}

#[test]
fn a_bdp_needs_a_path_or_an_rtt() {
    let refused = |text: &str, sets: &[&str]| {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let planned = parse("small", text, &sets)
            .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 1).map(drop));
        planned.unwrap_err().lines().join(" ")
    };
    let aside = "routers = [\"s\", \"u\"]";
    let aside = SMALL.replace("routers = [\"s\"]", aside)
        + "[[topology.links]]\na = \"s\"\nb = \"u\"\nrate = \"1gbit\"\nqueue = \"side\"\n\
               [queues.side]\nlimit = \"1bdp\"\n";
    assert!(refused(&aside, &[]).contains("[queues.side]: no path"));
    let said = refused(SMALL, &["queues.port.rtt=1ms"]);
    assert!(said.contains("'rtt' in [queues.port] has no effect"), "{said}");
}

#[test]
fn scaling_keeps_products_of_rate_and_time() {
    let (one, ten) = (small("unocc", 1), small("unocc", 10));
    let bdp = |run: &RunPlan| {
        let link = &run.topology.links[0];
        link.ab.rate_bps * link.ba.delay_ns
    };
    assert_eq!(bdp(&one), bdp(&ten));
    assert_eq!(sysctl(&ten, "net.unocc.line_rate_mbps"), Some("100"));
    assert_eq!(sysctl(&ten, "net.unocc.intra_rtt_us"), Some("1000"));
    assert_eq!(ten.sample_us, 10 * one.sample_us);
    let (rtt_one, rtt_ten) = (one.flows[0].base_rtt_us, ten.flows[0].base_rtt_us);
    assert!((rtt_ten / rtt_one - 10.0).abs() < 1e-9);
}

#[test]
fn base_rtt_includes_serialization() {
    let run = small("cubic", 1);
    let wire_us = |bytes: f64| bytes * 8.0 / 1000.0;
    let expected = 100.0 + wire_us(1514.0) + 2.0 * wire_us(66.0);
    assert!((run.flows[0].base_rtt_us - expected).abs() < 1e-6);
}

#[test]
fn a_profile_is_written_before_other_parameters() {
    let sets = ["cc.unocc.sysctl.\"net.unocc.profile\"=paper".to_owned()];
    let loaded = parse("small", SMALL, &sets).unwrap();
    let sysctls =
        sysctls(&loaded.scenario, &loaded.scenario.known_cc("unocc").unwrap(), 1).unwrap();
    assert_eq!(sysctls[0].0, "net.unocc.profile");
}

#[test]
fn flows_cannot_choose_if_routes_do() {
    let loaded = parse("small", SMALL, &["flows.0.cc=cubic".to_owned()]).unwrap();
    assert!(plan(&loaded.scenario, "dctcp", 1, 1).is_ok());
    let err = plan(&loaded.scenario, "bbr-dctcp", 1, 1).unwrap_err();
    assert!(err.to_string().contains("no flow can have its own"), "{err}");
}

#[test]
fn each_parallel_link_can_be_watched() {
    let links = ["a = \"s\"\nqueue_ab = \"port\"\nb = \"r\"", "a = \"r\"\nb = \"s\""];
    let links = links.map(|ends| format!("[[topology.links]]\nrate = \"1gbit\"\n{ends}\n"));
    let text = format!("{SMALL}{}", links.concat());
    for (to, wrong) in [("r", ""), ("r.1", ""), ("r.2", "no queue"), ("r.3", "no link")] {
        let sets = ["topology.ecmp=true".to_owned(), format!("watch.0.to={to}")];
        let planned = parse("small", &text, &sets)
            .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 1).map(drop));
        let said = planned.err().map_or(String::new(), |err| err.to_string());
        assert_eq!(said.is_empty(), wrong.is_empty(), "{to}: {said}");
        assert!(said.contains(wrong), "{to}: {said}");
    }
}

#[test]
fn broken_topologies_are_refused() {
    for (from, to) in [
        ("b = \"s\"\nrate", "b = \"x\"\nrate"),
        ("queue_ab = \"port\"", "queue_ab = \"prot\""),
        ("dst = \"r\"", "dst = \"zz\""),
        ("to = \"r\"", "to = \"a1\""),
        ("hosts = [\"a[1-2]\", \"r\"]", "hosts = [\"a[1-2]\", \"r\", \"a1\"]"),
        ("min = \"25kb\"", "min = \"2500kb\""),
    ] {
        let planned = parse("small", &SMALL.replace(from, to), &[])
            .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 1));
        assert!(planned.is_err(), "{to}");
    }
}
