// SPDX-License-Identifier: GPL-2.0
//! Kinds of switches: the module `fabric`, or Linux.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_netlink::{fabric, phantom};
use xdc_proto::{Change, Direction, Job, Plan, RunPlan, Tap, Topology};

use crate::engine::Kind;

/// Most hosts of the module (XDC_FABRIC_HOSTS in modules/drivers/net/fabric/fabric.h).
const MAX_HOSTS: usize = 32_765;

/// What the routers of a topology are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Switches {
    /// Switches of one module, which simulates ports and links.
    Fabric,
    /// Network namespaces that forward packets.
    Linux,
}

/// Chooses the switches of a plan: as the scenario wants, else the module's in virtual time if it has all
/// that the plan needs.
pub fn choose(plan: &mut Plan, wanted: Option<Switches>, engine: Kind) -> Result<()> {
    let Job::Run(run) = &mut plan.job else {
        return Ok(());
    };
    let obstacle = match (wanted, engine) {
        (Some(Switches::Linux), _) | (None, Kind::Qemu | Kind::Host) => return Ok(()),
        (Some(Switches::Fabric), _) | (None, Kind::Uml) => obstacle(run),
    };
    match (wanted, obstacle) {
        (Some(_), Some(reason)) => {
            let err = Error::usage(format!("'switch = \"fabric\"': {reason}"));
            Err(err.hint("switch = \"linux\""))
        }
        (None, Some(_)) => Ok(()),
        (_, None) => {
            run.topology.fabric = true;
            plan.modules.push(fabric::KIND.to_owned());
            Ok(())
        }
    }
}

/// Which switches a run has, and why.
pub fn text(run: &RunPlan) -> String {
    match (run.topology.fabric, obstacle(run)) {
        (true, _) => "switches of the module fabric".to_owned(),
        (false, Some(reason)) => format!("Linux switches ({reason})"),
        (false, None) => "Linux switches".to_owned(),
    }
}

/// Uses Linux switches.
pub fn use_linux(plan: &mut Plan) {
    if let Job::Run(run) = &mut plan.job {
        run.topology.fabric = false;
        plan.modules.retain(|module| module != fabric::KIND);
    }
}

/// Why captures and tracepoints need Linux switches; None = they do not.
pub fn obstacle_of_observers(
    topology: &Topology,
    taps: &[Tap],
    trace: &[String],
) -> Option<String> {
    let routers: HashSet<&str> = routers(topology).collect();
    if let Some(tap) = taps.iter().find(|tap| routers.contains(tap.node.as_str())) {
        return Some(format!("a capture at {} needs Linux switches", tap.node));
    }
    let traces = trace.iter().any(|name| name.starts_with(phantom::KIND));
    traces.then(|| "tracepoints of phantom need Linux switches".to_owned())
}

/// Why a run needs Linux switches; None = it does not.
pub fn obstacle(run: &RunPlan) -> Option<String> {
    let topology = &run.topology;
    if topology.offload {
        return Some("'offload' needs Linux switches".to_owned());
    }
    if topology.rotor.is_some() {
        return Some("a circuit switch needs Linux switches".to_owned());
    }
    let routers: HashSet<&str> = routers(topology).collect();
    let mut links = topology.links.iter();
    if !links.any(|link| routers.contains(link.a.as_str()) != routers.contains(link.b.as_str())) {
        return Some("no link leads from a host to a router".to_owned());
    }
    if topology.nodes.len() - routers.len() > MAX_HOSTS {
        return Some(format!("more than {MAX_HOSTS} hosts need Linux switches"));
    }
    let is_router = |name: &String| routers.contains(name.as_str());
    let mut nodes = topology.nodes.iter();
    if let Some(node) = nodes.find(|node| node.router && !node.setup.is_empty()) {
        return Some(format!("'setup' of {} needs Linux switches", node.name));
    }
    if let Some(program) = run.programs.iter().find(|program| is_router(&program.node)) {
        let node = &program.node;
        return Some(format!("a program on {node} needs Linux switches"));
    }
    let bursts = run.events.iter();
    let bursts = bursts.filter(|event| matches!(event.change, Change::BurstLoss { .. }));
    if let Some(end) = bursts.flat_map(|event| &event.ends).find(|end| !is_router(&end.node)) {
        let node = &end.node;
        return Some(format!("'burst_loss' from {node} needs Linux switches"));
    }
    let ends = topology.links.iter();
    let mut ends =
        ends.flat_map(|link| [(&link.a, &link.b, &link.ab), (&link.b, &link.a, &link.ba)]);
    ends.find_map(|(from, to, direction)| {
        let reason = obstacle_of(direction).filter(|_| is_router(from))?;
        Some(format!("{reason} on the link from {from} to {to} needs Linux switches"))
    })
    .or_else(|| obstacle_of_observers(topology, &run.taps, &run.trace))
}

fn routers(topology: &Topology) -> impl Iterator<Item = &str> {
    let routers = topology.nodes.iter().filter(|node| node.router);
    routers.map(|node| node.name.as_str())
}

fn obstacle_of(direction: &Direction) -> Option<String> {
    let faults = direction.faults.as_ref();
    if faults.is_some_and(|faults| faults.reorder_ppm > 0) {
        return Some("'reorder'".to_owned());
    }
    match &direction.queue {
        None => None,
        Some(queue) if !queue.is_phantom() => Some(format!("the qdisc {}", queue.kind)),
        Some(queue) => {
            let options = phantom::Options::from_words(&queue.words).ok()?;
            let colors = options.color_source?;
            let by_packet = [phantom::ColorSource::None, phantom::ColorSource::Dscp];
            (!by_packet.contains(&colors)).then(|| format!("'color {colors}'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::plan;
    use crate::{parse, testing::SMALL};

    use super::*;

    fn planned(sets: &[&str]) -> RunPlan {
        let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
        let scenario = parse("small", SMALL, &sets).unwrap().scenario;
        match plan(&scenario, "cubic", 1, 1).unwrap().job {
            Job::Run(run) => run,
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn a_plan_has_linux_switches_if_it_needs_them() {
        let modern = planned(&[]);
        assert!(modern.topology.fabric);
        assert_eq!(text(&modern), "switches of the module fabric");
        let wanted = planned(&["topology.switch=linux"]);
        assert_eq!(text(&wanted), "Linux switches");
        let offload = planned(&["topology.offload=true"]);
        assert_eq!(text(&offload), "Linux switches ('offload' needs Linux switches)");
        assert!(!planned(&["engine=qemu"]).topology.fabric);
        let router = routers(&modern.topology).next().unwrap().to_owned();
        let tap = |node: &str| Tap { node: node.to_owned(), ..Tap::default() };
        let host = modern.topology.nodes.iter().find(|node| !node.router);
        let host = tap(&host.unwrap().name);
        assert!(obstacle_of_observers(&modern.topology, &[host], &[]).is_none());
        let why = obstacle_of_observers(&modern.topology, &[tap(&router)], &[]);
        assert!(why.unwrap().starts_with("a capture at"));
    }

    #[test]
    fn a_wanted_fabric_that_lacks_something_is_an_error() {
        let sets = ["topology.switch=fabric", "topology.offload=true"].map(str::to_owned);
        let scenario = parse("small", SMALL, &sets).unwrap().scenario;
        let error = plan(&scenario, "cubic", 1, 1).unwrap_err().to_string();
        assert!(error.contains("'offload' needs Linux switches"), "{error}");
    }
}
