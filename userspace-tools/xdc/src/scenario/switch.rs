// SPDX-License-Identifier: GPL-2.0
//! Kinds of switches: the module `fabric`, or Linux.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_netlink::{fabric, phantom};
use xdc_proto::{Direction, Job, Plan, Queue, RunPlan, Tap, Topology};

use crate::error::{Error, Result};
use crate::scenario::engine::Kind;

/// Most hosts of the module (XDC_FABRIC_HOSTS in modules/drivers/net/fabric/fabric.h).
const MAX_HOSTS: usize = 32_768;

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
    if routers.is_empty() {
        return Some("the topology has no routers".to_owned());
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
    let ends = topology.links.iter();
    let mut ends =
        ends.flat_map(|link| [(&link.a, &link.b, &link.ab), (&link.b, &link.a, &link.ba)]);
    ends.find_map(|(from, to, direction)| {
        let reason = obstacle_of(direction).filter(|_| is_router(from))?;
        Some(format!(
            "{reason} on the link from {from} to {to} needs Linux switches"
        ))
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
        Some(Queue::Tc(queue)) if queue.kind != phantom::KIND => {
            Some(format!("the qdisc {}", queue.kind))
        }
        Some(Queue::Tc(queue)) => {
            let options = phantom::Options::from_words(&queue.words).ok()?;
            let colors = options.color_source?;
            let by_packet = [phantom::ColorSource::None, phantom::ColorSource::Dscp];
            (!by_packet.contains(&colors)).then(|| format!("'color {colors}'"))
        }
        Some(Queue::Phantom(_)) | None => None,
    }
}
