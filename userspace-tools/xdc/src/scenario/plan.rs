// SPDX-License-Identifier: GPL-2.0
//! Plans one guest's run of a scenario with one congestion control.
//!
//! The scale divides rates and multiplies times, so BDPs in packets and ratios of RTTs stay equal.
//! Sysctls have units in their names (`_us`, `_ms`, `_mbps`); our modules' are scaled too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use xdc_algo::{Kind, MODULES};
use xdc_measure::record::MAX_SCALE;
use xdc_netlink::phantom::{
    self,
    words::{Mistake, WORDS},
};
use xdc_proto::gates::Gate;
use xdc_proto::{
    BpfObject, Congctl, Direction, Faults, Flow, Job, Link, MAX_FLOWS, Mark, Node, PhantomQueue,
    Plan, Queue, RunPlan, Switch, TCP_MEM, TcQueue, Topology, VERSION, WatchedQueue, to_hex,
};

use crate::error::{Error, Result};
use crate::scenario::budget::{Budget, text_bytes};
use crate::scenario::check::one_packet;
use crate::scenario::defaults;
use crate::scenario::dscp;
use crate::scenario::events::{events, numbered};
use crate::scenario::fabric::Fabric;
use crate::scenario::limits::{LONGEST, MAX_LINKS, MAX_NODES, MAX_WATCHED, MIN_SCALED_BPS};
use crate::scenario::paths::{Paths, Routes};
use crate::scenario::programs::{check_command, programs};
use crate::scenario::rotor;
use crate::scenario::sysctl;
use crate::scenario::traffic::{self, Classes, Waits};
use crate::scenario::tunnel::tunnels;
use crate::scenario::{
    Cc, CcSpec, LinkSpec, QueueSpec, Scalar, Scenario, Threshold, at, expand, expand_all, no_node,
    pairs,
};
use crate::text::nearest;
use crate::units::{Amount, Fraction, PPM, Rate, Size, Time};

const MAX_NAME: usize = 12;

/// Kernel limits raised so that no window is limited by memory.
const SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 16777216 536870912"),
    ("net.ipv4.tcp_wmem", "4096 4194304 536870912"),
    TCP_MEM,
];

/// Modules of a rotor: its racks' bonds and their qdisc.
pub const ROTOR_MODULES: [&str; 2] = ["bonding", "sch_acceltor"];

/// Maximum flows recorded over time by default.
const MAX_SERIES: usize = 64;

/// Plans one run.
pub fn plan(scenario: &Scenario, cc: &str, seed: u64, scale: u32) -> Result<Plan> {
    plan_along(&mut None, scenario, cc, seed, scale)
}

/// [`plan`] for one of several congestion controls that share routes and the limit of walked links.
pub fn plan_along(
    known_routes: &mut Option<Rc<Routes>>,
    scenario: &Scenario,
    cc: &str,
    seed: u64,
    scale: u32,
) -> Result<Plan> {
    let known = &scenario.known_cc(cc)?;
    // A scenario's scale is in range; a probed one may not be.
    if !(1..=MAX_SCALE).contains(&scale) {
        return Err(
            Error::usage(format!("a scale of {scale}: must be 1 to {MAX_SCALE}"))
                .hint("--engine uml, or slower links"),
        );
    }
    let budget = &Budget::default();
    let mut topology = topology(budget, known_routes, scenario, known, seed, scale)?;
    let routes = &Routes::reuse(known_routes, &topology)?;
    let events = events(budget, scenario, &mut topology, seed, scale)?;
    let programs = programs(budget, scenario, &topology, scale)?;
    let planned_flows = |topology: &Topology, budget: &Budget| {
        let paths = Paths::along(topology, routes);
        flows(budget, scenario, known, &paths, seed, scale)
    };
    let (mut flows, gates) = planned_flows(&topology, budget)?;
    let mut watch = watch(budget, scenario, &topology)?;
    if watch.is_empty() {
        let paths = Paths::along(&topology, routes);
        let (link, forward, watched) = defaults::bottleneck(&paths, &flows)?;
        let link = &mut topology.links[link];
        let direction = if forward { &mut link.ab } else { &mut link.ba };
        if defaults::make_visible(direction) {
            // These flows replace the first ones.
            flows = planned_flows(&topology, &Budget::default())?.0;
        }
        watch.push(watched);
    }
    let paths = Paths::along(&topology, routes);
    have_room(&paths, &flows)?;
    let tunnels = tunnels(budget, scenario, &paths, &mut flows, scale)?;
    if let Some(across) = known.inter_cc {
        let sites = by_route(budget, scenario, &paths, &flows, (&known.cc, across), scale)?;
        let hosts = topology.nodes.iter_mut().filter(|node| !node.router);
        for (node, site) in hosts.zip(sites) {
            node.site = site;
        }
        topology.congctl = Some(Congctl {
            inside: known.cc.clone(),
            across: across.to_owned(),
        });
    }
    topology.tunnels = tunnels;
    // Classes of RTTs treat a path beyond the limit as absent.
    routes.check_steps()?;
    let scaled_us = |time: Time| time.0 * u64::from(scale) / 1000;
    let plan = Plan {
        version: VERSION,
        modules: modules(scenario, known, &flows, &topology)?,
        parameters: owned(known.parameters).collect(),
        bpf: objects(scenario, known, &flows)?,
        job: Job::Run(RunPlan {
            topology,
            cc: known.cc.clone(),
            flow_series: scenario.flow_series.unwrap_or(flows.len() <= MAX_SERIES),
            flows,
            watch,
            sample_us: scaled_us(scenario.sample()).max(1),
            stop_after_us: scenario.duration.map(scaled_us),
            seed,
            programs,
            events,
            gates,
            taps: Vec::new(),
            trace: Vec::new(),
            // Zero is omitted from JSON, so plans without the key keep their hash.
            cpus: scenario.cpus.unwrap_or(0),
        }),
    };
    plan.check_names()?;
    Ok(plan)
}

/// Plan of a shell in the scenario's network, or in none. New sockets and the scenario's flows use
/// `cc`, by default the scenario's first.
pub fn shell_plan(scenario: Option<&Scenario>, cc: Option<&str>) -> Result<Plan> {
    let ours = |kind| {
        MODULES
            .iter()
            .filter(move |one| one.kind == kind && one.is_installed())
    };
    let all = ours(Kind::qdisc).chain(ours(Kind::cc));
    let mut modules: Vec<String> = all.map(|module| module.name.to_owned()).collect();
    let Some(scenario) = scenario else {
        return Ok(Plan {
            modules,
            ..Plan::of(Job::Shell(RunPlan::default()))
        });
    };
    let first = scenario.ccs.first().map_or("unocc", String::as_str);
    let cc = cc.unwrap_or(first);
    let run = plan(scenario, cc, scenario.seed, scenario.scale.unwrap_or(1))?;
    // Load all compared congestion controls, so that the user can switch.
    let known: Result<Vec<_>> = scenario
        .ccs
        .iter()
        .map(|cc| scenario.known_cc(cc))
        .collect();
    let others = known?.into_iter().filter_map(|cc| cc.module);
    for module in run.modules.iter().cloned().chain(others) {
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    let Job::Run(job) = run.job else {
        return Err(Error::failure("internal error: the plan is not a run"));
    };
    Ok(Plan {
        modules,
        job: Job::Shell(job),
        ..run
    })
}

fn modules(
    scenario: &Scenario,
    cc: &Cc,
    flows: &[Flow],
    topology: &Topology,
) -> Result<Vec<String>> {
    let mut modules = Vec::new();
    let phantom = topology
        .links
        .iter()
        .flat_map(|link| [&link.ab.queue, &link.ba.queue])
        .any(|queue| queue.as_ref().is_some_and(Queue::is_phantom));
    if phantom {
        modules.push("sch_phantom".to_owned());
    }
    if topology.rotor.is_some() {
        modules.extend(ROTOR_MODULES.map(str::to_owned));
    }
    if !topology.tunnels.is_empty() {
        modules.push(xdc_netlink::unorc::KIND.to_owned());
    }
    for host in scenario.host.values() {
        for module in &host.modules {
            modules.push(module.clone());
        }
    }
    modules.extend(cc.module.clone());
    for name in ccs_of(flows) {
        modules.extend(scenario.known_cc(name)?.module);
    }
    let mut known = HashSet::new();
    modules.retain(|module| known.insert(module.clone()));
    Ok(modules)
}

/// Congestion controls that flows choose, without duplicates.
fn ccs_of(flows: &[Flow]) -> Vec<&String> {
    let all = flows.iter().flat_map(|flow| {
        let switches = flow.switches.iter().map(|switch| &switch.cc);
        switches.chain(&flow.cc).chain(&flow.receiver_cc)
    });
    let mut known = HashSet::new();
    all.filter(|name| known.insert(*name)).collect()
}

/// BPF objects of the run's congestion controls.
fn objects(scenario: &Scenario, cc: &Cc, flows: &[Flow]) -> Result<Vec<BpfObject>> {
    let mut names: Vec<_> = cc.bpf.iter().cloned().collect();
    for name in ccs_of(flows) {
        names.extend(scenario.known_cc(name)?.bpf);
    }
    names.sort();
    names.dedup();
    let object = |name: String| {
        let bytes = scenario.objects.get(&name);
        let bytes = bytes.ok_or_else(|| Error::usage(format!("'{name}' was not read")))?;
        Ok(BpfObject {
            bytes: to_hex(bytes),
            name,
        })
    };
    names.into_iter().map(object).collect()
}

fn topology(
    budget: &Budget,
    known_routes: &mut Option<Rc<Routes>>,
    scenario: &Scenario,
    cc: &Cc,
    seed: u64,
    scale: u32,
) -> Result<Topology> {
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
        for name in own.iter().cloned().chain(expand_all(budget, patterns)?) {
            check_name(&name)?;
            budget.charge("nodes", 1, size_of::<Node>() + text_bytes([name.as_str()]))?;
            if nodes.len() == MAX_NODES {
                return Err(Error::usage(format!("more than {MAX_NODES} nodes")));
            }
            nodes.push(Node {
                name,
                router,
                sysctls: Vec::new(),
                setup: Vec::new(),
                spray: router && spec.spray,
                site: 0,
                initcwnd: 0,
                initrwnd: 0,
            });
        }
    }
    if spec.ecmp() {
        for (i, node) in nodes.iter_mut().enumerate().filter(|(_, node)| node.router) {
            node.sysctls = multipath(seed, i, node.spray, spec.ip);
            budget.charge("routers", 1, sysctl_bytes(&node.sysctls))?;
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
        let about = |err: Error| err.at(at!["host", pattern]);
        let names = expand(budget, pattern).map_err(about)?;
        let sysctls = spec.sysctl.iter().map(|(name, value)| {
            let value = scaled(name, value, scale);
            sysctl::check(name, &value)?;
            Ok((name.clone(), value))
        });
        let sysctls: Vec<_> = sysctls.collect::<Result<_>>()?;
        spec.setup.iter().try_for_each(|text| check_command(text))?;
        let setup = text_bytes(spec.setup.iter().map(String::as_str));
        for (what, bytes) in [("'sysctl'", sysctl_bytes(&sysctls)), ("'setup'", setup)] {
            budget.charge(what, names.len(), bytes).map_err(about)?;
        }
        for name in names {
            if !by_name.contains_key(&name) {
                let nodes = by_name.keys().map(String::as_str);
                return Err(no_node(format!("[host.{pattern}] names "), &name, nodes));
            }
            let Some(node) = by_name.get_mut(&name) else {
                continue;
            };
            node.sysctls.extend(sysctls.iter().cloned());
            node.setup.extend(spec.setup.iter().cloned());
            node.initcwnd = spec.initcwnd.unwrap_or(node.initcwnd);
            node.initrwnd = spec.initrwnd.unwrap_or(node.initrwnd);
        }
    }
    let queues = queues(scenario, cc)?;
    let mut links: Vec<Link> = Vec::new();
    let mut named: Vec<PortQueues> = Vec::new();
    for link in fabric.links.iter().chain(&spec.links) {
        for (a, b) in pairs(budget, &link.a, &link.b)? {
            for name in [&a, &b] {
                if !by_name.contains_key(name) {
                    let nodes = by_name.keys().map(String::as_str);
                    return Err(no_node("a link names ".to_owned(), name, nodes));
                }
            }
            if links.len() == MAX_LINKS {
                return Err(Error::usage(format!("more than {MAX_LINKS} links")));
            }
            // The two directions must not draw equal numbers.
            let seed_ab = seed.wrapping_add(2 * links.len() as u64);
            let seed_ba = seed_ab.wrapping_add(1);
            let [jitter_ab_ns, jitter_ba_ns] =
                [link.jitter_ab, link.jitter_ba].map(|jitter| jitter.0 * u64::from(scale));
            let faults_ab = faults(seed_ab, link.loss_ab, link.reorder_ab, jitter_ab_ns);
            let faults_ba = faults(seed_ba, link.loss_ba, link.reorder_ba, jitter_ba_ns);
            let [own_ab, own_ba] = [&link.queue_ab, &link.queue_ba]
                .map(|own| own.as_deref().or(link.queue.as_deref()));
            let words = [own_ab, own_ba].map(|own| {
                let own = own.and_then(|name| queues.get(name));
                own.map_or(0, |own| words_bytes(&own.queue))
            });
            let bytes = size_of::<Link>() + text_bytes([a.as_str(), &b]) + words[0] + words[1];
            budget.charge("links", 1, bytes)?;
            let mut ab = direction(link, link.delay_ab, own_ab, &queues, scale)?;
            let mut ba = direction(link, link.delay_ba, own_ba, &queues, scale)?;
            seed_queue(&mut ab, seed_ab);
            seed_queue(&mut ba, seed_ba);
            let named_queue = |name| queues.get_key_value(name).map(|(name, own)| (*name, own));
            named.push([own_ab, own_ba].map(|own| own.and_then(named_queue)));
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
    let sysctls = sysctls(scenario, cc, scale)?;
    let names = sysctls.iter().map(|(name, _)| name);
    let mut topology = Topology {
        nodes,
        links,
        of_hosts: names
            .filter(|name| sysctl::is_of_hosts(name))
            .cloned()
            .collect(),
        sysctls,
        tcp_usec_ts: spec.tcp_usec_ts,
        quickack: spec.quickack,
        offload: spec.offload,
        ipv6: spec.ip == 6,
        ecmp: spec.ecmp(),
        congctl: None,
        tunnels: Vec::new(),
        rotor: None,
    };
    if let Some(shape) = &fabric.rotor {
        let base = scenario.acceltor.clone().unwrap_or_default();
        let own = of_cc(scenario, cc)
            .into_iter()
            .filter_map(|(_, own)| own.acceltor.as_ref());
        let spec = own.fold(base, |base, own| own.over(&base));
        rotor::place(scenario, &spec, shape, &mut topology, scale)?;
    }
    size_by_bdp(&mut topology, known_routes, &named, scale)?;
    Ok(topology)
}

/// Memory of tc's words in bytes.
fn words_bytes(queue: &Queue) -> usize {
    match queue {
        Queue::Phantom(_) => 0,
        Queue::Tc(queue) => text_bytes(queue.words.iter().map(String::as_str)),
    }
}

fn sysctl_bytes(sysctls: &[(String, String)]) -> usize {
    text_bytes(
        sysctls
            .iter()
            .flat_map(|(name, value)| [name.as_str(), value]),
    )
}

/// Sysctls by which a router picks among shortest paths: its own hash of the 5-tuple (fields 0x37;
/// policy 1 may use the sender's hash, equal everywhere), or, if spraying, the packet's hash, drawn
/// anew at every router.
fn multipath(seed: u64, router: usize, spray: bool, ip: u8) -> Vec<(String, String)> {
    let key = |name: &str| format!("net.ipv{ip}.fib_multipath_hash_{name}");
    if spray {
        return vec![(key("policy"), "1".to_owned())];
    }
    // 0 would let the kernel choose a seed.
    let hash_seed = (mix(mix(seed) ^ router as u64) as u32).max(1);
    vec![
        (key("policy"), "3".to_owned()),
        (key("fields"), "55".to_owned()),
        // IPv4's key seeds both versions.
        (
            "net.ipv4.fib_multipath_hash_seed".to_owned(),
            hash_seed.to_string(),
        ),
    ]
}

/// The finalizer of SplitMix64.
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

/// Seeds a queue. The seed is mixed, since netem uses `seed` itself.
fn seed_queue(direction: &mut Direction, seed: u64) {
    match &mut direction.queue {
        Some(Queue::Phantom(queue)) => queue.seed = Some(mix(seed)),
        Some(Queue::Tc(queue)) => queue.seed = Some(mix(seed)),
        None => {}
    }
}

pub fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let is_option = name.starts_with('-');
    if name.is_empty() || name.len() > MAX_NAME || is_option || !name.chars().all(allowed) {
        return Err(
            Error::usage(format!("'{name}' is not a valid name for a node")).hint(format!(
                "1 to {MAX_NAME} of a-z, 0-9, _ and -, and no - in front"
            )),
        );
    }
    Ok(())
}

fn direction(
    link: &LinkSpec,
    delay: Option<Time>,
    queue: Option<&str>,
    queues: &BTreeMap<&str, OwnQueue>,
    scale: u32,
) -> Result<Direction> {
    let queue = match queue {
        None => None,
        Some(name) => {
            let own = queues.get(name).ok_or_else(|| {
                Error::usage(format!("a link names queue '{name}', which is not defined"))
                    .hint(format!("[queues.{name}]"))
            })?;
            Some(own.queue.clone())
        }
    };
    let rate_bps = link.rate.0 / u64::from(scale);
    if rate_bps < MIN_SCALED_BPS {
        return Err(Error::usage(format!(
            "a rate of {} is too low for the scale {scale}",
            link.rate
        ))
        .hint(format!(
            "a smaller --set scale=N, which leaves at least {}",
            Rate(MIN_SCALED_BPS)
        )));
    }
    Ok(Direction {
        rate_bps,
        delay_ns: delay.unwrap_or(link.delay).0 * u64::from(scale),
        queue,
        faults: None,
    })
}

/// Tables `[cc.NAME]` of a congestion control: of its kind, then of its variety.
pub fn of_cc<'a>(scenario: &'a Scenario, cc: &'a Cc) -> Vec<(&'a str, &'a CcSpec)> {
    let variety = (cc.name != cc.cc).then_some(cc.name.as_str());
    [cc.cc.as_str()]
        .into_iter()
        .chain(variety)
        .filter_map(|name| Some((name, scenario.cc.get(name)?)))
        .collect()
}

/// A `[queues.NAME]` for one congestion control.
struct OwnQueue {
    spec: QueueSpec,
    mark: Mark,
    /// Incomplete while sizes in BDPs are missing: [`size_by_bdp`].
    queue: Queue,
}

/// Queues of a link from a to b and back, with their names.
type PortQueues<'a> = [Option<(&'a str, &'a OwnQueue)>; 2];

/// All queues for one congestion control.
fn queues<'a>(scenario: &'a Scenario, cc: &Cc) -> Result<BTreeMap<&'a str, OwnQueue>> {
    let of = of_cc(scenario, cc);
    for (cc, own) in &of {
        if let Some(name) = own
            .queues
            .keys()
            .find(|name| !scenario.queues.contains_key(*name))
        {
            return Err(Error::usage(format!(
                "[cc.{cc}.queues.{name}] changes a queue that is not defined"
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
            let about = |err: Error| {
                let table = at!["queues", name];
                err.about(format!("[queues.{name}]")).below(&table)
            };
            let queue = match spec.has_bdps() && spec.tc.is_none() {
                true => Queue::Phantom(PhantomQueue::default()),
                false => queue(&spec, cc.mark, 0).map_err(about)?,
            };
            let mark = cc.mark;
            Ok((name.as_str(), OwnQueue { spec, mark, queue }))
        })
        .collect()
}

/// Sets sizes in BDPs from the port's rate and the queue's `rtt`, or else the longest base RTT
/// across a port with this queue.
fn size_by_bdp(
    topology: &mut Topology,
    known_routes: &mut Option<Rc<Routes>>,
    named: &[PortQueues<'_>],
    scale: u32,
) -> Result<()> {
    let wanted = |port: &Option<(&str, &OwnQueue)>| {
        port.is_some_and(|(_, own)| own.spec.has_bdps() && own.spec.tc.is_none())
    };
    if !named.iter().flatten().any(wanted) {
        return Ok(());
    }
    let names: Vec<_> = named
        .iter()
        .map(|ports| ports.map(|port| port.map(|(name, _)| name)))
        .collect();
    let routes = Routes::reuse(known_routes, topology)?;
    let longest_ns = Paths::along(topology, &routes).longest_rtts_ns(&names);
    // The call above treats a path beyond the limit as absent.
    routes.check_steps()?;
    for (link, ports) in topology.links.iter_mut().zip(named) {
        for (direction, port) in [&mut link.ab, &mut link.ba].into_iter().zip(ports) {
            let Some((name, own)) = port.filter(|port| wanted(&Some(*port))) else {
                continue;
            };
            let about = |err: Error| {
                let table = at!["queues", name];
                err.about(format!("[queues.{name}]")).below(&table)
            };
            let stated_ns = own.spec.rtt.map(|rtt| rtt.0 * u64::from(scale));
            let rtt_ns = stated_ns.or(longest_ns.get(name).copied()).ok_or_else(|| {
                about(
                    Error::usage("no path between two hosts crosses a port with this queue, so a bdp is undefined")
                        .hint("rtt = \"1ms\" beside it"),
                )
            })?;
            let bits = u128::from(direction.rate_bps) * u128::from(rtt_ns);
            let bdp_bytes = u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX);
            let mut sized = queue(&own.spec, own.mark, bdp_bytes).map_err(about)?;
            if let (Queue::Phantom(sized), Some(Queue::Phantom(unsized_one))) =
                (&mut sized, &direction.queue)
            {
                sized.seed = unsized_one.seed;
            }
            direction.queue = Some(sized);
        }
    }
    Ok(())
}

/// The kernel counts a backlog in 32 bits.
const MAX_LIMIT: Size = Size(u32::MAX as u64);

/// Builds a queue; `bdp_bytes` is the product of the port's rate and RTT.
fn queue(spec: &QueueSpec, mark: Mark, bdp_bytes: u64) -> Result<Queue> {
    match &spec.tc {
        Some(text) => tc(text, mark).map(Queue::Tc),
        None => phantom(spec, mark, bdp_bytes).map(Queue::Phantom),
    }
}

/// Splits tc's words and checks each.
pub fn tc_words(text: &str) -> Result<TcQueue> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let kind = words.next();
    let kind =
        kind.ok_or_else(|| Error::usage("'tc' is empty").hint("for example \"fq_codel ecn\""))?;
    let queue = TcQueue {
        kind,
        words: words.collect(),
        seed: None,
    };
    queue.check_names()?;
    Ok(queue)
}

/// Parses a queue in tc's words. Phantom's options are checked here, so that a mistake costs no
/// run.
pub fn tc(text: &str, mark: Mark) -> Result<TcQueue> {
    let TcQueue {
        kind, mut words, ..
    } = tc_words(text)?;
    if kind == phantom::KIND {
        if !words.iter().any(|word| word == "mark") {
            words.extend(["mark".to_owned(), mark.name().to_owned()]);
        }
        let options = phantom::Options::from_words(&words).map_err(|mistake| {
            let names: Vec<_> = WORDS.iter().map(|word| word.name).collect();
            let near = match &mistake {
                Mistake::Unknown(word) => nearest(word, &names),
                _ => None,
            };
            let err = Error::usage(mistake.to_string());
            match near {
                Some(near) => err.hint(format!("'{near}'?")),
                None => err.hint("xdc qdisc add --help lists the options"),
            }
        })?;
        let checked = options.check();
        checked.map_err(|(_, why)| Error::usage(why.sentence).hint(why.range))?;
    }
    Ok(TcQueue {
        kind,
        words,
        seed: None,
    })
}

pub fn phantom(spec: &QueueSpec, mark: Mark, bdp_bytes: u64) -> Result<PhantomQueue> {
    let bytes = |amount: Amount| amount.bytes(bdp_bytes);
    let limit = spec
        .limit
        .map(bytes)
        .filter(|limit| limit.0 > 0)
        .ok_or_else(|| {
            let sentence =
                spec.limit
                    .map_or("a queue needs a 'limit' above 0".to_owned(), |limit| {
                        format!(
                            "a limit of {limit} is 0 bytes at a port whose bdp is {bdp_bytes} bytes"
                        )
                    });
            let err = Error::usage(sentence).hint("limit = \"100kB\"");
            err.at(at!["limit"])
        })?;
    let of_limit = |name: &str, threshold: Option<Threshold>| -> Result<Option<u32>> {
        match threshold {
            None => Ok(None),
            Some(Threshold::OfLimit(fraction)) => Ok(Some(fraction.0)),
            Some(Threshold::Of(amount)) => ppm_of(bytes(amount), limit)
                .map(Some)
                .map_err(|err| err.at(at![name])),
        }
    };
    Ok(PhantomQueue {
        limit_bytes: u32::try_from(limit.0).map_err(|_| {
            Error::usage(format!("the limit {limit} is above {MAX_LIMIT}")).at(at!["limit"])
        })?,
        seed: None,
        phantom_bytes: spec.phantom.map(|amount| bytes(amount).0),
        drain_ppm: spec.drain.map(|fraction| fraction.0),
        pmin_ppm: spec.pmin.map(|fraction| fraction.0),
        pmax_ppm: spec.pmax.map(|fraction| fraction.0),
        min_ppm: of_limit("min", spec.min)?,
        max_ppm: of_limit("max", spec.max)?,
        mark: Some(spec.mark.unwrap_or(mark)),
    })
}

fn ppm_of(bytes: Size, limit: Size) -> Result<u32> {
    u32::try_from(u128::from(bytes.0) * u128::from(PPM) / u128::from(limit.0))
        .ok()
        .filter(|&ppm| ppm <= PPM)
        .ok_or_else(|| Error::usage(format!("the threshold {bytes} is above the limit {limit}")))
}

/// All sysctls; later ones win: xdc's, the congestion control's, the scenario's, the scenario's for
/// this congestion control.
fn sysctls(scenario: &Scenario, cc: &Cc, scale: u32) -> Result<Vec<(String, String)>> {
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
    all.extend(cc.sysctls.iter().cloned());
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

/// Copies names and values.
fn owned(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    pairs
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
}

pub fn scaled(name: &str, value: &Scalar, scale: u32) -> String {
    let scale = i64::from(scale);
    match (value, sysctl::unit(name)) {
        (Scalar::Integer(n), Some("us" | "ms")) => n.saturating_mul(scale).to_string(),
        // 0 has a special meaning and is not scaled.
        (Scalar::Integer(n), Some("Mbit/s")) if *n > 0 => (n / scale).max(1).to_string(),
        (value, _) => value.to_string(),
    }
}

fn flows(
    budget: &Budget,
    scenario: &Scenario,
    cc: &Cc,
    paths: &Paths<'_>,
    seed: u64,
    scale: u32,
) -> Result<(Vec<Flow>, Vec<Gate>)> {
    let mut waits = Waits::default();
    let dscps = dscp::of_hosts(budget, scenario)?;
    let mut flows = Vec::new();
    let scaled_us = |time: Time| time.0 * u64::from(scale) / 1000;
    for spec in &scenario.flows {
        let sender_cc = spec.sender_cc.as_ref().or(spec.cc.as_ref());
        let receiver_cc = spec.receiver_cc.as_ref().or(spec.cc.as_ref());
        for cc in sender_cc.into_iter().chain(receiver_cc) {
            single_cc(scenario, cc)?;
        }
        let mut switches = Vec::new();
        for switch in &spec.switch {
            let to = switch.cc.as_deref().unwrap_or(&cc.cc);
            single_cc(scenario, to)?;
            switches.push(Switch {
                after_us: scaled_us(switch.at),
                cc: to.to_owned(),
            });
        }
        for (src, dst) in pairs(budget, &spec.src, &spec.dst)? {
            let base_rtt_us = paths.base_rtt_us(&src, &dst)?;
            let ends = (src.as_str(), dst.as_str());
            let (ideal_ns, ideal_accecn_ns) = traffic::ideals_ns(paths, ends, spec.bytes.0, false)?;
            let ack_ns = paths.ack_ns(&src, &dst)?;
            let dscp = spec.dscp.or(dscps.get(&src).copied()).unwrap_or_default().0;
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
                dscp,
                window_known: spec.window_known,
                tunnel: false,
                sndbuf_bytes: spec.sndbuf.0,
                rcvbuf_bytes: spec.rcvbuf.0,
                base_rtt_us,
                ideal_ns,
                ack_ns,
                ideal_accecn_ns,
            };
            if flows.len() + spec.count > MAX_FLOWS {
                return Err(too_many(flows.len() + spec.count));
            }
            budget.charge("flows", spec.count, traffic::flow_bytes(&flow))?;
            for number in flows.len()..flows.len() + spec.count {
                waits.after(number, spec.after.as_ref());
            }
            flows.extend(std::iter::repeat_n(flow, spec.count));
        }
    }
    let classes = Classes::new(paths, scenario.inter_rtt, scale);
    let seeded = (seed, scale);
    traffic::expand(
        budget, scenario, paths, &classes, seeded, &mut flows, &mut waits,
    )?;
    // Drawn times are unbounded: allow a day, plus a day for the block's own start.
    let latest_ns = 2 * LONGEST.0 * u64::from(scale);
    if let Some(late) = flows.iter().find(|flow| flow.start_ns > latest_ns) {
        return Err(Error::usage(format!(
            "a flow from '{}' to '{}' would start after more than two days",
            late.src, late.dst
        ))
        .hint("fewer flows, or a shorter 'period'"));
    }
    if flows.is_empty() && scenario.programs.is_empty() {
        return Err(
            Error::usage("the scenario has no flow").hint("[[flows]], [[traffic]] or [[run]]")
        );
    }
    if flows.len() > MAX_FLOWS {
        return Err(too_many(flows.len()));
    }
    let gates = waits.gates(budget, &flows)?;
    Ok((flows, gates))
}

/// Checks that a full packet fits into each queue on the flows' paths, sizes in `bdp` included.
fn have_room(paths: &Paths<'_>, flows: &[Flow]) -> Result<()> {
    let is_small = |link: &Link, direction: &Direction| match &direction.queue {
        Some(Queue::Phantom(queue)) => one_packet(queue.limit_bytes, link.mtu).is_err(),
        _ => false,
    };
    let mut links = paths.topology().links.iter();
    if !links.any(|link| is_small(link, &link.ab) || is_small(link, &link.ba)) {
        return Ok(());
    }
    let mut ends: Vec<_> = flows.iter().map(|flow| (&flow.src, &flow.dst)).collect();
    ends.sort_unstable();
    ends.dedup();
    for (src, dst) in ends {
        for (link, direction) in paths.walk(src, dst)? {
            if let Some(Queue::Phantom(queue)) = &direction.queue {
                let checked = one_packet(queue.limit_bytes, link.mtu);
                checked.map_err(|err| {
                    err.about(format!("between '{}' and '{}'", link.a, link.b))
                        .at(at!["queues"])
                })?;
            }
        }
    }
    Ok(())
}

pub fn too_many(flows: usize) -> Error {
    Error::usage(format!(
        "{flows} flows: at most {MAX_FLOWS}, one for each port"
    ))
}

/// Datacenter of each host, if routes choose between two congestion controls. A route's choice
/// overrides a connecting socket's, so no flow may have its own.
fn by_route(
    budget: &Budget,
    scenario: &Scenario,
    paths: &Paths<'_>,
    flows: &[Flow],
    (inside, across): (&str, &str),
    scale: u32,
) -> Result<Vec<u32>> {
    if flows
        .iter()
        .any(|flow| flow.cc.is_some() || flow.receiver_cc.is_some())
    {
        return Err(Error::usage(format!(
            "routes choose between {inside} and {across}, so no flow can have its own 'cc'"
        ))
        .hint("another --cc, or flows without 'cc'"));
    }
    let classes = Classes::new(paths, scenario.inter_rtt, scale);
    let nodes = paths.topology().nodes.iter();
    let hosts = nodes.filter(|node| !node.router);
    let names: Vec<_> = hosts.map(|host| host.name.as_str()).collect();
    let centers = classes.datacenters(budget, paths, &names)?;
    let mut sites = vec![0; names.len()];
    for (number, center) in centers.iter().enumerate() {
        center.iter().for_each(|&host| sites[host] = number as u32);
    }
    Ok(sites)
}

/// A flow's congestion control must be a plain kernel one: named variants also change sysctls and
/// routes.
pub fn single_cc(scenario: &Scenario, name: &str) -> Result<Cc> {
    let known = scenario.known_cc(name)?;
    if known.name != known.cc {
        return Err(Error::usage(format!(
            "'{name}' applies to a whole run, not to one flow"
        )));
    }
    Ok(known)
}

fn watch(budget: &Budget, scenario: &Scenario, topology: &Topology) -> Result<Vec<WatchedQueue>> {
    let mut watch = Vec::new();
    if scenario.watch.is_empty() {
        return Ok(watch);
    }
    // Keyed like [`Topology::direction`], which would search all links for each port.
    let (mut directions, mut parallel) = (HashMap::new(), HashMap::new());
    for link in &topology.links {
        for (from, to, direction) in [(&link.a, &link.b, &link.ab), (&link.b, &link.a, &link.ba)] {
            let nth: &mut usize = parallel.entry((from, to)).or_default();
            directions.insert((from.clone(), numbered(to, *nth)), direction);
            *nth += 1;
        }
    }
    for spec in &scenario.watch {
        for ends in pairs(budget, &spec.from, &spec.to)? {
            let found = directions.get(&ends);
            let (from, to) = ends;
            let Some(direction) = found else {
                let nodes = || topology.nodes.iter().map(|node| node.name.as_str());
                let strange = [&from, &to]
                    .into_iter()
                    .find(|name| !nodes().any(|it| it == *name));
                return Err(match strange {
                    // A parallel link's end has a number after the node's name.
                    Some(name) if !name.contains('.') => {
                        no_node(format!("[[watch]] '{}' names ", spec.name), name, nodes())
                    }
                    _ => Error::usage(format!("'{from}' has no link to '{to}' to watch")),
                });
            };
            if direction.queue.is_none() {
                return Err(Error::usage(format!(
                    "the link from '{from}' to '{to}' has no queue to watch"
                )));
            }
            if watch.len() == MAX_WATCHED {
                return Err(Error::usage(format!(
                    "more than {MAX_WATCHED} queues are watched"
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::{parse, tests::SMALL};

    /// Topology of a scenario with this fabric and no other node.
    pub fn topology_of(fabric: &str) -> Topology {
        let mut scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let spec = &mut scenario.topology;
        spec.fabric = Some(toml::from_str(fabric).unwrap());
        (spec.hosts, spec.routers, spec.links) = Default::default();
        let cc = scenario.known_cc("unocc").unwrap();
        topology(&Budget::default(), &mut None, &scenario, &cc, 7, 1).unwrap()
    }

    fn small(cc: &str, scale: u32) -> RunPlan {
        let loaded = parse("small", SMALL, &[]).unwrap();
        match plan(&loaded.scenario, cc, 7, scale).unwrap().job {
            Job::Run(run) => run,
            job => panic!("{job:?}"),
        }
    }

    fn port(run: &RunPlan) -> PhantomQueue {
        match &run.topology.direction("s", "r").unwrap().queue {
            Some(Queue::Phantom(queue)) => queue.clone(),
            queue => panic!("{queue:?}"),
        }
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
            let seeds = queues.filter_map(|queue| match queue {
                Some(Queue::Phantom(queue)) => Some(queue.seed.expect("a seed")),
                _ => None,
            });
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
        let wrong = [
            "host.a1.initcwnd=0",
            "host.a1.dscp=64",
            "flows.0.dscp=\"fast\"",
        ];
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
        assert_eq!(base.phantom_bytes, Some(bdp(1000, 113_168)));
        // Only this port is ten times as fast: the last hop's ACK takes less time.
        let faster = port_with(&[phantom, "topology.links.1.rate=10gbit"], 1);
        assert_eq!(faster.phantom_bytes, Some(bdp(10_000, 112_692)));
        assert_eq!(faster.seed, base.seed);
        let stated = port_with(&["queues.port.limit=2bdp", "queues.port.rtt=1ms"], 1);
        assert_eq!(stated.limit_bytes, 250_000);
        // min is 25 kB, max 75 %.
        let ppm = (stated.min_ppm, stated.max_ppm);
        assert_eq!(ppm, (Some(100_000), Some(750_000)));
        let half = port_with(
            &[
                "queues.port.limit=1bdp",
                "queues.port.min=0.5bdp",
                "queues.port.rtt=1ms",
            ],
            1,
        );
        assert_eq!(half.min_ppm, Some(500_000));
        // The scale divides the rate and multiplies the RTT.
        assert_eq!(port_with(&[phantom], 10).phantom_bytes, base.phantom_bytes);
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
        assert!(
            said.contains("'rtt' in [queues.port] has no effect"),
            "{said}"
        );
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
        let sysctls = sysctls(
            &loaded.scenario,
            &loaded.scenario.known_cc("unocc").unwrap(),
            1,
        )
        .unwrap();
        assert_eq!(sysctls[0].0, "net.unocc.profile");
    }

    #[test]
    fn flows_cannot_choose_if_routes_do() {
        let loaded = parse("small", SMALL, &["flows.0.cc=cubic".to_owned()]).unwrap();
        assert!(plan(&loaded.scenario, "dctcp", 1, 1).is_ok());
        let err = plan(&loaded.scenario, "bbr-dctcp", 1, 1).unwrap_err();
        assert!(
            err.to_string().contains("no flow can have its own"),
            "{err}"
        );
    }

    #[test]
    fn each_parallel_link_can_be_watched() {
        let links = [
            "a = \"s\"\nqueue_ab = \"port\"\nb = \"r\"",
            "a = \"r\"\nb = \"s\"",
        ];
        let links = links.map(|ends| format!("[[topology.links]]\nrate = \"1gbit\"\n{ends}\n"));
        let text = format!("{SMALL}{}", links.concat());
        for (to, wrong) in [
            ("r", ""),
            ("r.1", ""),
            ("r.2", "no queue"),
            ("r.3", "no link"),
        ] {
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
            (
                "hosts = [\"a[1-2]\", \"r\"]",
                "hosts = [\"a[1-2]\", \"r\", \"a1\"]",
            ),
            ("min = \"25kb\"", "min = \"2500kb\""),
        ] {
            let planned = parse("small", &SMALL.replace(from, to), &[])
                .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 1));
            assert!(planned.is_err(), "{to}");
        }
    }
}
