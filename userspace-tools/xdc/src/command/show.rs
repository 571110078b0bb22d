// SPDX-License-Identifier: GPL-2.0
//! `xdc show`: describes a scenario in words or draws it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::owned;
use xdc_base::text::printable;
use xdc_base::units::Size;
use xdc_proto::{Direction, Flow, Job, Link, RunPlan, Topology, WatchedQueue};
use xdc_scenario::paths::Paths;
use xdc_scenario::plan::plan;
use xdc_scenario::{Scenario, switch};
use xdc_view::shape::Shape;
use xdc_view::topology;

#[derive(clap::Args)]
pub struct Request {
    /// A name of `xdc list`, or a TOML file.
    pub scenario: String,
    /// Change a key first, as `xdc run` does; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Draw the topology into this file.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Show the path of a packet between two hosts instead.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
    pub path: Option<Vec<String>>,
}

pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find().ok();
    let loaded = xdc_scenario::load(home.as_ref(), &request.scenario, &request.sets)?;
    let scenario = &loaded.scenario;
    let cc = scenario.ccs.first().map_or("cubic", String::as_str);
    let Job::Run(run) = plan(scenario, cc, scenario.seed, 1).map_err(|err| loaded.placed(err))?.job
    else {
        return Err(Error::failure("internal error: the plan is not a run"));
    };
    let paths = Paths::new(&run.topology)?;
    let title = printable(&scenario.title);
    let svg = request.svg.is_some();
    let (picture, words) = match request.path.as_deref() {
        Some([from, to]) => {
            let mut hops = paths.walk(from, to)?;
            hops.reverse();
            let title = format!("From {from} to {to}: {title}");
            let rtt_us = paths.base_rtt_us(from, to)?;
            let words = format!("{from} to {to}: {} links, base RTT {rtt_us:.1} us\n", hops.len());
            let picture = svg.then(|| topology::path(&title, from, &hops));
            (picture, words)
        }
        _ => {
            let drawn = with_circuits(&run.topology);
            let receivers: HashSet<_> = run.flows.iter().map(|flow| flow.dst.as_str()).collect();
            let shape = Shape::new(&drawn, |host| receivers.contains(host));
            let picture = svg.then(|| {
                let watched = watched(&shape, &run.watch);
                topology::network(&title, &shape, |from, to| watched.contains(&(from, to)))
            });
            (picture, words(scenario, &run, &paths, &shape)?)
        }
    };
    match request.svg.as_ref().zip(picture) {
        Some((file, picture)) => {
            owned::replace(file, picture).map_err(|err| Error::io(file.display(), &err))?;
            println!("{}", file.display());
        }
        None => print!("{}", xdc_base::text::printable_lines(&words)),
    }
    Ok(true)
}

/// Node at the other end; the second of parallel links is `NODE.1`.
fn neighbour(peer: &str) -> &str {
    peer.split_once('.').map_or(peer, |(node, _)| node)
}

/// Pairs of groups whose ports are recorded.
fn watched(shape: &Shape, ports: &[WatchedQueue]) -> HashSet<(usize, usize)> {
    let groups = shape.groups.iter().enumerate();
    let names = groups.flat_map(|(group, of)| of.names.iter().map(move |&name| (name, group)));
    let groups: HashMap<&str, usize> = names.collect();
    let group = |name: &str| groups.get(name).copied();
    let ends = |port: &WatchedQueue| group(&port.node).zip(group(neighbour(&port.peer)));
    ports.iter().filter_map(ends).collect()
}

/// Adds links to the circuit switch, which routing does not use.
fn with_circuits(topology: &Topology) -> Cow<'_, Topology> {
    let mut drawn = Cow::Borrowed(topology);
    let mtu = topology.links.first().map(|link| link.mtu);
    if let (Some(rotor), Some(mtu)) = (&topology.rotor, mtu) {
        drawn.to_mut().links.extend(rotor.racks.iter().map(|rack| {
            let way = Direction {
                rate_bps: rotor.rate_bps,
                delay_ns: 0,
                queue: None,
                faults: None,
                policer: None,
            };
            Link { a: rack.switch.clone(), b: rotor.switch.clone(), mtu, ab: way.clone(), ba: way }
        }));
    }
    drawn
}

fn words(scenario: &Scenario, run: &RunPlan, paths: &Paths, shape: &Shape) -> Result<String> {
    let mut text = format!("{}\n", scenario.title);
    for part in [&scenario.description, &scenario.source] {
        if !part.trim().is_empty() {
            text += &format!("{}\n", part.trim());
        }
    }
    text += &format!(
        "\nengine {}, {}, congestion controls {}\n\nlinks\n",
        scenario.engine.name(),
        switch::text(run),
        scenario.ccs.join(", ")
    );
    for cable in &shape.cables {
        let label = |group: usize| shape.groups[group].label();
        let queues = match (cable.ab.queue.is_some(), cable.ba.queue.is_some()) {
            (false, false) => "no queue that drops",
            (true, false) => "queue there",
            (false, true) => "queue back",
            (true, true) => "queue both ways",
        };
        let mut policers = String::new();
        for (way, direction) in [("there", cable.ab), ("back", cable.ba)] {
            if let Some(policer) = direction.policer {
                policers += &format!(", policer of {} {way}", topology::rate(policer.rate_bps));
            }
        }
        text += &format!(
            "  {:3} x {} - {}: {}, delay {} there, {} back, {queues}{policers}\n",
            cable.count,
            label(cable.ends.0),
            label(cable.ends.1),
            topology::rate(cable.ab.rate_bps),
            topology::time(cable.ab.delay_ns),
            topology::time(cable.ba.delay_ns),
        );
    }
    if let Some(rotor) = &run.topology.rotor {
        text += &format!(
            "\ncircuits\n  {} racks: a day of {}, a night of {}, a week of {}; {} in a day\n",
            rotor.racks.len(),
            topology::time(rotor.day_ns),
            topology::time(rotor.night_ns),
            topology::time(rotor.week_ns()),
            Size(rotor.day_bytes() as u64),
        );
        let uplinks = run.topology.links.iter();
        let mut queues = uplinks.filter_map(|link| link.ab.queue.as_ref());
        if let Some(queue) = queues.find(|queue| queue.is_made_by_agent()) {
            text += &format!("  {} {}\n", queue.kind, queue.words.join(" "));
        }
    }
    text += "\nflows\n";
    let mut groups: BTreeMap<&str, Vec<&Flow>> = BTreeMap::new();
    for flow in &run.flows {
        groups.entry(&flow.group).or_default().push(flow);
    }
    for (name, flows) in groups {
        let rtts = flows.iter().map(|flow| paths.base_rtt_us(&flow.src, &flow.dst));
        let rtts = rtts.collect::<Result<Vec<_>>>()?;
        let least = rtts.iter().copied().fold(f64::MAX, f64::min);
        let most = rtts.iter().copied().fold(0.0, f64::max);
        let rtt = match most - least < 0.05 {
            true => format!("{least:.1} us"),
            false => format!("{least:.1} to {most:.1} us"),
        };
        text += &format!("  {:5} {name}: base RTT {rtt}\n", flows.len());
    }
    Ok(text)
}
