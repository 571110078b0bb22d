// SPDX-License-Identifier: GPL-2.0
//! From a scenario to what one guest is told to do with one congestion control.
//!
//! Scale: rates are divided and times multiplied by it, so that bandwidth-delay products in
//! packets and ratios of RTTs stay what they are. Sysctls carry their unit in their name
//! (`_us`, `_ms`, `_mbps`), and those of our modules are scaled with it.

use std::collections::{BTreeMap, HashMap};

use xdc_proto::{
    Congctl, Direction, Faults, Flow, Job, Link, MAX_FLOWS, Mark, Node, PhantomQueue, Plan, Queue,
    RunPlan, Switch, Topology, VERSION, WatchedQueue,
};

use crate::error::{Error, Result};
use crate::fabric::Fabric;
use crate::paths::{Paths, find_direction};
use crate::scenario::{
    CcSpec, KnownCc, LinkSpec, QueueSpec, Scalar, Scenario, Threshold, expand, known_cc, pairs,
};
use crate::sysctl;
use crate::traffic::{self, Classes};
use crate::units::{Fraction, PPM, Size, Time};

const MAX_NAME: usize = 12;

/// What the experiments need of the kernel's limits: room for any of their windows.
const SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 16777216 536870912"),
    ("net.ipv4.tcp_wmem", "4096 4194304 536870912"),
    ("net.ipv4.tcp_mem", "2000000 3000000 4000000"),
];

/// So many flows are recorded over time, unless the scenario says otherwise.
const MAX_SERIES: usize = 64;

/// The plan of one run.
pub fn plan(scenario: &Scenario, cc: &str, seed: u64, scale: u32) -> Result<Plan> {
    let known = known_cc(cc)?;
    let mut topology = topology(scenario, known, seed, scale)?;
    let flows = flows(scenario, known, &topology, seed, scale)?;
    if let Some(across) = known.inter_cc {
        by_route(scenario, &mut topology, &flows, known.cc, across, scale)?;
    }
    let watch = watch(scenario, &topology)?;
    let scaled_us = |time: Time| time.0 * u64::from(scale) / 1000;
    Ok(Plan {
        version: VERSION,
        modules: modules(known, &flows, &topology)?,
        parameters: owned(known.parameters).collect(),
        job: Job::Run(RunPlan {
            topology,
            cc: known.cc.to_owned(),
            flow_series: scenario.flow_series.unwrap_or(flows.len() <= MAX_SERIES),
            flows,
            watch,
            sample_us: scaled_us(scenario.sample).max(1),
            stop_after_us: scenario.duration.map(scaled_us),
            seed,
            capture: false,
            trace: Vec::new(),
        }),
    })
}

/// The plan of a guest that gives a shell in the network, or in none.
pub fn shell_plan(scenario: Option<&Scenario>) -> Result<Plan> {
    let modules = ["sch_phantom", "tcp_unocc", "tcp_gemini"];
    let topology = match scenario {
        Some(scenario) => {
            let first = scenario.ccs.first().map_or("unocc", String::as_str);
            let scale = scenario.scale.unwrap_or(1);
            topology(scenario, known_cc(first)?, scenario.seed, scale)?
        }
        None => Topology::default(),
    };
    Ok(Plan {
        modules: modules.map(str::to_owned).to_vec(),
        ..Plan::of(Job::Shell { topology })
    })
}

fn modules(cc: &KnownCc, flows: &[Flow], topology: &Topology) -> Result<Vec<String>> {
    let mut modules = Vec::new();
    let phantom = topology
        .links
        .iter()
        .flat_map(|link| [&link.ab.queue, &link.ba.queue])
        .any(|queue| matches!(queue, Some(Queue::Phantom(_))));
    if phantom {
        modules.push("sch_phantom");
    }
    modules.extend(cc.module);
    for flow in flows {
        let switches = flow.switches.iter().map(|switch| &switch.cc);
        for name in switches.chain(&flow.cc).chain(&flow.receiver_cc) {
            modules.extend(known_cc(name)?.module);
        }
    }
    let mut unique: Vec<String> = Vec::new();
    for module in modules {
        if !unique.iter().any(|have| have == module) {
            unique.push(module.to_owned());
        }
    }
    Ok(unique)
}

fn topology(scenario: &Scenario, cc: &KnownCc, seed: u64, scale: u32) -> Result<Topology> {
    let spec = &scenario.topology;
    let fabric = match &spec.fabric {
        Some(fabric) => fabric
            .expand()
            .map_err(|err| err.about("[topology.fabric]"))?,
        None => Fabric::default(),
    };
    let mut nodes: Vec<Node> = Vec::new();
    for (own, patterns, router) in [
        (&fabric.hosts, &spec.hosts, false),
        (&fabric.routers, &spec.routers, true),
    ] {
        let named: Result<Vec<_>> = patterns.iter().map(|pattern| expand(pattern)).collect();
        for name in own.iter().cloned().chain(named?.into_iter().flatten()) {
            check_name(&name)?;
            nodes.push(Node {
                name,
                router,
                sysctls: Vec::new(),
                spray: router && spec.spray,
                site: 0,
            });
        }
    }
    if spec.ecmp() {
        for (i, node) in nodes.iter_mut().enumerate().filter(|(_, node)| node.router) {
            node.sysctls = multipath(seed, i, node.spray);
        }
    }
    let mut by_name: HashMap<String, &mut Node> = HashMap::new();
    for node in &mut nodes {
        let name = node.name.clone();
        if by_name.insert(name.clone(), node).is_some() {
            return Err(Error::usage(format!("two nodes are named '{name}'")));
        }
    }
    for (pattern, spec) in &scenario.host {
        for name in expand(pattern)? {
            let node = by_name.get_mut(&name).ok_or_else(|| {
                Error::usage(format!(
                    "[host.{pattern}] is about '{name}', which is no node"
                ))
            })?;
            for (name, value) in &spec.sysctl {
                let value = scaled(name, value, scale);
                sysctl::check(name, &value)?;
                node.sysctls.push((name.clone(), value));
            }
        }
    }
    let queues = queues(scenario, cc)?;
    let mut links: Vec<Link> = Vec::new();
    for link in fabric.links.iter().chain(&spec.links) {
        for (a, b) in pairs(&link.a, &link.b)? {
            for name in [&a, &b] {
                if !by_name.contains_key(name) {
                    return Err(
                        Error::usage(format!("a link names '{name}', which is no node"))
                            .hint("add it to 'hosts' or 'routers'"),
                    );
                }
            }
            // Two directions never draw the same numbers.
            let seed = seed.wrapping_add(2 * links.len() as u64);
            let [jitter_ab_ns, jitter_ba_ns] =
                [link.jitter_ab, link.jitter_ba].map(|jitter| jitter.0 * u64::from(scale));
            let faults_ab = faults(seed, link.loss_ab, link.reorder_ab, jitter_ab_ns);
            let seed = seed.wrapping_add(1);
            let faults_ba = faults(seed, link.loss_ba, link.reorder_ba, jitter_ba_ns);
            let ab = direction(link, link.delay_ab, &link.queue_ab, &queues, scale)?;
            let ba = direction(link, link.delay_ba, &link.queue_ba, &queues, scale)?;
            links.push(Link {
                a,
                b,
                mtu: spec.mtu,
                ab: Direction {
                    faults: faults_ab,
                    ..ab
                },
                ba: Direction {
                    faults: faults_ba,
                    ..ba
                },
            });
        }
    }
    Ok(Topology {
        nodes,
        links,
        sysctls: sysctls(scenario, cc, scale)?,
        tcp_usec_ts: spec.tcp_usec_ts,
        quickack: spec.quickack,
        ecmp: spec.ecmp(),
        congctl: None,
    })
}

/// How a router chooses among shortest paths: by a hash of the 5-tuple that is its own
/// (fields 0x37; policy 1 would take the sender's hash if there is one, the same everywhere), or
/// by the packet's hash, which spraying draws anew at every router.
fn multipath(seed: u64, router: usize, spray: bool) -> Vec<(String, String)> {
    let key = |name: &str| format!("net.ipv4.fib_multipath_hash_{name}");
    if spray {
        return vec![(key("policy"), "1".to_owned())];
    }
    // 0 would mean a seed of the kernel's choice.
    let hash_seed = (mix(mix(seed) ^ router as u64) as u32).max(1);
    vec![
        (key("policy"), "3".to_owned()),
        (key("fields"), "55".to_owned()),
        (key("seed"), hash_seed.to_string()),
    ]
}

/// SplitMix64's finaliser.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn faults(seed: u64, loss: Fraction, reorder: Fraction, jitter_ns: u64) -> Option<Faults> {
    let any = loss.0 > 0 || reorder.0 > 0 || jitter_ns > 0;
    any.then_some(Faults {
        seed,
        loss_ppm: loss.0,
        reorder_ppm: reorder.0,
        jitter_ns,
    })
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        return Err(Error::usage(format!("'{name}' is no name for a node"))
            .hint(format!("1 to {MAX_NAME} of a-z, 0-9, _ and -")));
    }
    Ok(())
}

fn direction(
    link: &LinkSpec,
    delay: Option<Time>,
    queue: &Option<String>,
    queues: &BTreeMap<&str, PhantomQueue>,
    scale: u32,
) -> Result<Direction> {
    let queue = match queue.as_ref().or(link.queue.as_ref()) {
        None => None,
        Some(name) => {
            let queue = queues.get(name.as_str()).ok_or_else(|| {
                Error::usage(format!("a link names queue '{name}', which is not there"))
                    .hint(format!("[queues.{name}]"))
            })?;
            Some(Queue::Phantom(queue.clone()))
        }
    };
    Ok(Direction {
        rate_bps: link.rate.0 / u64::from(scale),
        delay_ns: delay.unwrap_or(link.delay).0 * u64::from(scale),
        queue,
        faults: None,
    })
}

/// What the scenario says of a congestion control: of its kind, then of this variety of it.
fn of_cc<'a>(scenario: &'a Scenario, cc: &KnownCc) -> Vec<(&'static str, &'a CcSpec)> {
    let variety = (cc.name != cc.cc).then_some(cc.name);
    [cc.cc]
        .into_iter()
        .chain(variety)
        .filter_map(|name| Some((name, scenario.cc.get(name)?)))
        .collect()
}

/// Every `[queues.NAME]` as `cc` gets it.
fn queues<'a>(scenario: &'a Scenario, cc: &KnownCc) -> Result<BTreeMap<&'a str, PhantomQueue>> {
    let of = of_cc(scenario, cc);
    for (cc, own) in &of {
        if let Some(name) = own
            .queues
            .keys()
            .find(|name| !scenario.queues.contains_key(*name))
        {
            return Err(Error::usage(format!(
                "[cc.{cc}.queues.{name}] changes a queue that is not there"
            ))
            .hint(format!("[queues.{name}]")));
        }
    }
    scenario
        .queues
        .iter()
        .map(|(name, base)| {
            let own = of.iter().filter_map(|(_, own)| own.queues.get(name));
            let spec = own.fold(base.clone(), |base, spec| spec.over(&base));
            let queue =
                phantom(&spec, cc.mark).map_err(|err| err.about(format!("[queues.{name}]")))?;
            Ok((name.as_str(), queue))
        })
        .collect()
}

fn phantom(spec: &QueueSpec, mark: Mark) -> Result<PhantomQueue> {
    let limit = spec
        .limit
        .filter(|limit| limit.0 > 0)
        .ok_or_else(|| Error::usage("a queue needs a 'limit' above 0"))?;
    let of_limit = |threshold: Option<Threshold>| -> Result<Option<u32>> {
        match threshold {
            None => Ok(None),
            Some(Threshold::OfLimit(fraction)) => Ok(Some(fraction.0)),
            Some(Threshold::Bytes(bytes)) => ppm_of(bytes, limit).map(Some),
        }
    };
    Ok(PhantomQueue {
        limit_bytes: limit.0,
        phantom_bytes: spec.phantom.map(|size| size.0),
        drain_ppm: spec.drain.map(|fraction| fraction.0),
        pmin_ppm: spec.pmin.map(|fraction| fraction.0),
        pmax_ppm: spec.pmax.map(|fraction| fraction.0),
        min_ppm: of_limit(spec.min)?,
        max_ppm: of_limit(spec.max)?,
        mark: Some(spec.mark.unwrap_or(mark)),
    })
}

fn ppm_of(bytes: Size, limit: Size) -> Result<u32> {
    u32::try_from(u128::from(bytes.0) * u128::from(PPM) / u128::from(limit.0))
        .ok()
        .filter(|&ppm| ppm <= PPM)
        .ok_or_else(|| Error::usage(format!("the threshold {bytes} is above the limit {limit}")))
}

/// Later ones win: the harness's, the congestion control's, the scenario's, the scenario's for
/// this congestion control.
fn sysctls(scenario: &Scenario, cc: &KnownCc, scale: u32) -> Result<Vec<(String, String)>> {
    let mut all: BTreeMap<String, String> = owned(SYSCTLS).collect();
    all.insert("net.ipv4.tcp_ecn".to_owned(), cc.tcp_ecn.to_string());
    let set = |all: &mut BTreeMap<String, String>, sysctls: &BTreeMap<String, Scalar>| {
        for (name, value) in sysctls {
            let value = scaled(name, value, scale);
            sysctl::check(name, &value)?;
            all.insert(name.clone(), value);
        }
        Ok::<(), Error>(())
    };
    set(&mut all, &scenario.sysctl)?;
    for (name, own) in of_cc(scenario, cc) {
        if name == cc.cc {
            set(&mut all, &own.sysctl)?;
        }
    }
    all.extend(owned(cc.sysctls));
    for (name, own) in of_cc(scenario, cc) {
        if name != cc.cc {
            set(&mut all, &own.sysctl)?;
        }
    }
    // `profile` sets every other parameter, so it goes first.
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(name, _)| !name.ends_with(".profile"));
    Ok(all)
}

/// Names and values.
fn owned(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    pairs
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
}

fn scaled(name: &str, value: &Scalar, scale: u32) -> String {
    let ours = name.starts_with("net.unocc.") || name.starts_with("net.gemini.");
    let scale = i64::from(scale);
    match value {
        Scalar::Integer(n) if ours && (name.ends_with("_us") || name.ends_with("_ms")) => {
            n.saturating_mul(scale).to_string()
        }
        // 0 has its own meaning and is kept.
        Scalar::Integer(n) if ours && name.ends_with("_mbps") && *n > 0 => {
            (n / scale).max(1).to_string()
        }
        value => value.to_string(),
    }
}

fn flows(
    scenario: &Scenario,
    cc: &KnownCc,
    topology: &Topology,
    seed: u64,
    scale: u32,
) -> Result<Vec<Flow>> {
    let paths = Paths::new(topology)?;
    let mut flows = Vec::new();
    let scaled_us = |time: Time| time.0 * u64::from(scale) / 1000;
    for spec in &scenario.flows {
        let sender_cc = spec.sender_cc.as_ref().or(spec.cc.as_ref());
        let receiver_cc = spec.receiver_cc.as_ref().or(spec.cc.as_ref());
        for cc in sender_cc.into_iter().chain(receiver_cc) {
            single_cc(cc)?;
        }
        let mut switches = Vec::new();
        for switch in &spec.switch {
            let to = switch.cc.as_deref().unwrap_or(cc.cc);
            single_cc(to)?;
            switches.push(Switch {
                after_us: scaled_us(switch.at),
                cc: to.to_owned(),
            });
        }
        for (src, dst) in pairs(&spec.src, &spec.dst)? {
            let base_rtt_us = paths.base_rtt_us(&src, &dst)?;
            let ideal_ns = traffic::ideal_ns(&paths, &src, &dst, spec.bytes.0)?;
            let flow = Flow {
                src,
                dst,
                group: spec.group.clone(),
                bytes: spec.bytes.0,
                start_ns: spec.start.0 * u64::from(scale),
                start_jitter_us: scaled_us(spec.jitter),
                cc: sender_cc.cloned(),
                receiver_cc: receiver_cc.cloned(),
                switches: switches.clone(),
                burst_bytes: spec.burst.0,
                period_us: scaled_us(spec.period),
                persistent: false,
                sndbuf_bytes: spec.sndbuf.0,
                rcvbuf_bytes: spec.rcvbuf.0,
                base_rtt_us,
                ideal_ns,
            };
            flows.extend(std::iter::repeat_n(flow, spec.count));
        }
    }
    let classes = Classes::new(&paths, topology, scenario.inter_rtt, scale)?;
    flows.extend(traffic::expand(scenario, &paths, &classes, seed, scale)?);
    if flows.is_empty() {
        return Err(Error::usage("the scenario has no flow").hint("[[flows]] or [[traffic]]"));
    }
    if flows.len() > MAX_FLOWS {
        return Err(Error::usage(format!(
            "{} flows are more than there are ports: at most {MAX_FLOWS}",
            flows.len()
        )));
    }
    Ok(flows)
}

/// Has routes choose between two congestion controls. A route's choice is stronger than a
/// socket's when it connects, so none may have another.
fn by_route(
    scenario: &Scenario,
    topology: &mut Topology,
    flows: &[Flow],
    inside: &str,
    across: &str,
    scale: u32,
) -> Result<()> {
    if flows
        .iter()
        .any(|flow| flow.cc.is_some() || flow.receiver_cc.is_some())
    {
        return Err(Error::usage(format!(
            "routes choose between {inside} and {across}, so no flow can have its own"
        ))
        .hint("another --cc, or flows without 'cc'"));
    }
    let paths = Paths::new(topology)?;
    let classes = Classes::new(&paths, topology, scenario.inter_rtt, scale)?;
    let mut sites: Vec<&str> = Vec::new();
    let mut site_of = Vec::new();
    for node in topology.nodes.iter().filter(|node| !node.router) {
        let near = |known: &&str| {
            let rtt_us = paths.base_rtt_us(known, &node.name);
            rtt_us.is_ok_and(|rtt_us| !classes.is_inter(rtt_us))
        };
        let known = sites.iter().position(near);
        site_of.push(known.unwrap_or(sites.len()) as u32);
        if known.is_none() {
            sites.push(&node.name);
        }
    }
    let hosts = topology.nodes.iter_mut().filter(|node| !node.router);
    for (node, site) in hosts.zip(site_of) {
        node.site = site;
    }
    topology.congctl = Some(Congctl {
        inside: inside.to_owned(),
        across: across.to_owned(),
    });
    Ok(())
}

/// A flow can have one of the kernel's, but not what a name here adds to it.
fn single_cc(name: &str) -> Result<&'static KnownCc> {
    let known = known_cc(name)?;
    if known.name != known.cc {
        return Err(Error::usage(format!(
            "'{name}' is for a whole run, not for a flow of it"
        )));
    }
    Ok(known)
}

fn watch(scenario: &Scenario, topology: &Topology) -> Result<Vec<WatchedQueue>> {
    let mut watch = Vec::new();
    for spec in &scenario.watch {
        for (from, to) in pairs(&spec.from, &spec.to)? {
            let direction = find_direction(topology, &from, &to).ok_or_else(|| {
                Error::usage(format!("'{from}' has no link to '{to}' to be watched"))
            })?;
            if direction.queue.is_none() {
                return Err(Error::usage(format!(
                    "the link from '{from}' to '{to}' has no queue to be watched"
                )));
            }
            watch.push(WatchedQueue {
                name: if spec.from.contains('[') || spec.to.contains('[') {
                    format!("{} {from}-{to}", spec.name)
                } else {
                    spec.name.clone()
                },
                node: from,
                peer: to,
            });
        }
    }
    Ok(watch)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::scenario::{parse, tests::SMALL};

    /// Of a scenario with this fabric and no other node.
    pub fn topology_of(fabric: &str) -> Topology {
        let mut scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let spec = &mut scenario.topology;
        spec.fabric = Some(toml::from_str(fabric).unwrap());
        (spec.hosts, spec.routers, spec.links) = Default::default();
        topology(&scenario, known_cc("unocc").unwrap(), 7, 1).unwrap()
    }

    fn small(cc: &str, scale: u32) -> RunPlan {
        let loaded = parse("small", SMALL, &[]).unwrap();
        match plan(&loaded.scenario, cc, 7, scale).unwrap().job {
            Job::Run(run) => run,
            job => panic!("{job:?}"),
        }
    }

    fn port(run: &RunPlan) -> PhantomQueue {
        match &find_direction(&run.topology, "s", "r").unwrap().queue {
            Some(Queue::Phantom(queue)) => queue.clone(),
            queue => panic!("{queue:?}"),
        }
    }

    fn sysctl<'a>(run: &'a RunPlan, name: &str) -> Option<&'a str> {
        let found = run.topology.sysctls.iter().find(|(key, _)| key == name)?;
        Some(&found.1)
    }

    #[test]
    fn every_router_of_a_fabric_hashes_by_its_own_seed() {
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
    fn thresholds_become_fractions_of_the_limit() {
        let port = port(&small("dctcp", 1));
        assert_eq!((port.min_ppm, port.max_ppm), (Some(250_000), Some(750_000)));
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
    fn base_rtt_counts_serialisation_where_no_shaper_stands() {
        let run = small("cubic", 1);
        let wire_us = |bytes: f64| bytes * 8.0 / 1000.0;
        let expected = 100.0 + wire_us(1514.0) + 2.0 * wire_us(66.0);
        assert!((run.flows[0].base_rtt_us - expected).abs() < 1e-6);
    }

    #[test]
    fn a_profile_is_written_before_what_refines_it() {
        let sets = ["cc.unocc.sysctl.\"net.unocc.profile\"=paper".to_owned()];
        let loaded = parse("small", SMALL, &sets).unwrap();
        let sysctls = sysctls(&loaded.scenario, known_cc("unocc").unwrap(), 1).unwrap();
        assert_eq!(sysctls[0].0, "net.unocc.profile");
    }

    #[test]
    fn where_routes_choose_no_flow_does() {
        let loaded = parse("small", SMALL, &["flows.0.cc=cubic".to_owned()]).unwrap();
        assert!(plan(&loaded.scenario, "dctcp", 1, 1).is_ok());
        let err = plan(&loaded.scenario, "bbr-dctcp", 1, 1).unwrap_err();
        assert!(
            err.to_string().contains("no flow can have its own"),
            "{err}"
        );
    }

    #[test]
    fn broken_topologies_are_refused() {
        for (from, to) in [
            ("b = \"s\"\nrate", "b = \"x\"\nrate"),
            ("queue_ab = \"port\"", "queue_ab = \"prot\""),
            ("dst = \"r\"", "dst = \"zz\""),
            ("to = \"r\"", "to = \"a1\""),
            (
                "hosts = [\"a[1-2]\", \"r\"]",
                "hosts = [\"a[1-2]\", \"r\", \"a1\"]",
            ),
            ("min = \"25kb\"", "min = \"2500kb\""),
        ] {
            let loaded = parse("small", &SMALL.replace(from, to), &[]).unwrap();
            assert!(plan(&loaded.scenario, "cubic", 1, 1).is_err(), "{to}");
        }
    }
}
