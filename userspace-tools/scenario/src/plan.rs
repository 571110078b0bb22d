// SPDX-License-Identifier: GPL-2.0
//! Plans one guest's run of a scenario with one congestion control.
//!
//! The scale divides rates and multiplies times, so BDPs in packets and ratios of RTTs stay equal.
//! Sysctls have units in their names (`_us`, `_ms`, `_mbps`); our modules' are scaled too.

mod flows;
mod queues;
mod topology;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use xdc_algo::{Kind, MODULES};
use xdc_base::error::{Error, Result};
use xdc_base::text::nearest;
use xdc_base::units::{Amount, Fraction, PPM, Rate, Size, Time};
use xdc_measure::record::MAX_SCALE;
use xdc_netlink::phantom::{self, Mark, WORDS};
use xdc_netlink::words::Mistake;
use xdc_proto::gates::Gate;
use xdc_proto::{
    BpfObject, Congctl, Direction, Faults, Flow, Job, Link, MAX_FLOWS, Node, Plan, Policer, Queue,
    RunPlan, Switch, TCP_MEM, Topology, VERSION, WatchedQueue, to_hex,
};

pub use self::flows::too_many;
use self::flows::*;
use self::queues::*;
pub use self::queues::{phantom, tc, tc_words};
use self::topology::*;
pub use self::topology::{check_name, mix};
use crate::budget::{Budget, text_bytes};
use crate::check::one_packet;
use crate::defaults;
use crate::dscp;
use crate::events::{events, numbered};
use crate::fabric::Fabric;
use crate::limits::{LONGEST, MAX_LINKS, MAX_NODES, MAX_WATCHED, MIN_SCALED_BPS};
use crate::paths::{Paths, Routes};
use crate::programs::{check_command, programs};
use crate::rotor;
use crate::switch;
use crate::sysctl;
use crate::trace::{Traced, replay};
use crate::traffic::{self, Classes, Waits};
use crate::tunnel::tunnels;
use crate::{
    Cc, CcSpec, LinkSpec, PolicerSpec, QueueSpec, Scalar, Scenario, Threshold, at, expand,
    expand_all, no_node, pairs,
};

const MAX_NAME: usize = 12;

/// Kernel limits raised so that no window is limited by memory.
const SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 16777216 536870912"),
    ("net.ipv4.tcp_wmem", "4096 4194304 536870912"),
    TCP_MEM,
];

/// Module of tc's policer.
pub const POLICE: &str = "act_police";

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
        return Err(Error::usage(format!("a scale of {scale}: must be 1 to {MAX_SCALE}"))
            .hint("--engine uml, or slower links"));
    }
    let budget = &Budget::default();
    let (mut topology, traced) = topology(budget, known_routes, scenario, known, seed, scale)?;
    let routes = &Routes::reuse(known_routes, &topology)?;
    let mut events = events(budget, scenario, &mut topology, seed, scale)?;
    replay(budget, scenario, &mut topology, &traced, &mut events, seed, scale)?;
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
        topology.congctl = Some(Congctl { inside: known.cc.clone(), across: across.to_owned() });
    }
    topology.tunnels = tunnels;
    // Classes of RTTs treat a path beyond the limit as absent.
    routes.check_steps()?;
    let scaled_us = |time: Time| time.0 * u64::from(scale) / 1000;
    let mut plan = Plan {
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
    switch::choose(&mut plan, scenario.topology.switch, scenario.engine)?;
    plan.check_names()?;
    Ok(plan)
}

/// Plan of a shell in the scenario's network, or in none. New sockets and the scenario's flows use
/// `cc`, by default the scenario's first.
pub fn shell_plan(scenario: Option<&Scenario>, cc: Option<&str>) -> Result<Plan> {
    let ours = |kind| MODULES.iter().filter(move |one| one.kind == kind && one.is_installed());
    let all = ours(Kind::qdisc).chain(ours(Kind::cc));
    let mut modules: Vec<String> = all.map(|module| module.name.to_owned()).collect();
    let Some(scenario) = scenario else {
        return Ok(Plan { modules, ..Plan::of(Job::Shell(RunPlan::default())) });
    };
    let first = scenario.ccs.first().map_or("unocc", String::as_str);
    let cc = cc.unwrap_or(first);
    let mut run = plan(scenario, cc, scenario.seed, scenario.scale.unwrap_or(1))?;
    // A shell enters its namespaces.
    switch::use_linux(&mut run);
    // Load all compared congestion controls, so that the user can switch.
    let known: Result<Vec<_>> = scenario.ccs.iter().map(|cc| scenario.known_cc(cc)).collect();
    let others = known?.into_iter().filter_map(|cc| cc.module);
    for module in run.modules.iter().cloned().chain(others) {
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    let Job::Run(job) = run.job else {
        return Err(Error::failure("internal error: the plan is not a run"));
    };
    Ok(Plan { modules, job: Job::Shell(job), ..run })
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
    let mut directions = topology.links.iter().flat_map(|link| [&link.ab, &link.ba]);
    if directions.any(|direction| direction.policer.is_some()) {
        modules.push(POLICE.to_owned());
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
        Ok(BpfObject { bytes: to_hex(bytes), name })
    };
    names.into_iter().map(object).collect()
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
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()))
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

/// A flow's congestion control must be a plain kernel one: named variants also change sysctls and
/// routes.
pub fn single_cc(scenario: &Scenario, name: &str) -> Result<Cc> {
    let known = scenario.known_cc(name)?;
    if known.name != known.cc {
        return Err(Error::usage(format!("'{name}' applies to a whole run, not to one flow")));
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
                let strange = [&from, &to].into_iter().find(|name| !nodes().any(|it| it == *name));
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
                return Err(Error::usage(format!("more than {MAX_WATCHED} queues are watched")));
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
pub mod tests;
