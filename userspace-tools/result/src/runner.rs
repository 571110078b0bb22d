// SPDX-License-Identifier: GPL-2.0
//! Runs a scenario in guests, one guest per run.

use std::sync::Once;
use std::time::Duration;

use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::progress::{Progress, Task};
use xdc_base::units::Size;
use xdc_base::{interrupt, pool};
use xdc_guest::engine::{Engine, Machine};
use xdc_guest::{Guest, Watch, room};
use xdc_measure::figures;
use xdc_measure::record::Record;
use xdc_proto::{FRAME_BYTES, Job, Message, Plan, RunPlan, Tap, Topology, tap_frames};
use xdc_scenario::budget::Budget;
use xdc_scenario::{Loaded, Scenario, plan, switch};

use crate::files::Pending;
use crate::{probe, provenance};

/// Value of `--pcap` for all hosts.
pub const ALL_HOSTS: &str = "all";

/// Maximum number of taps; each takes guest memory.
const MAX_TAPS: usize = 1024;

fn plan_sha256(plan: &Plan) -> Result<String> {
    let text = serde_json::to_vec(plan)
        .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
    Ok(provenance::sha256(&text))
}

/// Number of nodes from which the build time is reported.
const LARGE_NODES: usize = 64;

/// Environment of runs.
#[derive(Clone, Copy)]
pub struct Runner<'a> {
    pub home: &'a Home,
    pub engine: Engine,
    pub timeout: Duration,
    /// Tracepoints recorded in each run.
    pub trace: &'a [String],
    /// Nodes whose uplinks are captured in each run.
    pub pcap: &'a [String],
    pub progress: &'a Progress,
}

impl Runner<'_> {
    /// Scale of the scenario, else 1 in virtual time, else measured for this emulation.
    pub fn scale(&self, loaded: &Loaded, seed: u64) -> Result<u32> {
        let scale = match (loaded.scenario.scale, self.engine) {
            (Some(scale), _) => scale,
            (None, Engine::Uml { .. }) => 1,
            (None, Engine::Qemu { .. } | Engine::Host) => {
                probe::scale(self, &loaded.scenario, seed)?
            }
        };
        if scale > 1 {
            self.progress.note(&format!(
                "scale {scale}: rates are divided and times multiplied by it (--set scale=N)"
            ));
        }
        Ok(scale)
    }

    /// One outcome per congestion control, in order; fewer after an interruption.
    pub fn run_all(
        &self,
        loaded: &Loaded,
        seed: u64,
        scale: u32,
        jobs: usize,
        consoles: &Pending,
    ) -> Vec<Result<Record>> {
        pool::run_some(&loaded.scenario.ccs, jobs, |cc| {
            let outcome = plan::plan(&loaded.scenario, cc, seed, scale).and_then(|plan| {
                let as_what = (&loaded.scenario, cc.as_str(), scale);
                self.run_as(cc, as_what, plan, Some(consoles))
            });
            if outcome.is_ok() {
                interrupt::is_worth_saving();
            }
            outcome.map_err(|err| loaded.placed(err).about(cc))
        })
    }

    /// Runs one guest and unscales its record. `cc` is the scenario's name of the congestion control, `name`
    /// is for the progress line.
    pub fn run_as(
        &self,
        name: &str,
        (scenario, cc, scale): (&Scenario, &str, u32),
        plan: Plan,
        consoles: Option<&Pending>,
    ) -> Result<Record> {
        let mut plan = plan;
        if let Job::Run(run) = &plan.job
            && run.topology.fabric
            && let taps = uplinks(&run.topology, self.pcap)?
            && let Some(why) = switch::obstacle_of_observers(&run.topology, &taps, self.trace)
        {
            self.progress.note(&why);
            switch::use_linux(&mut plan);
        }
        let hash = plan_sha256(&plan)?;
        let mut record = self.run_one(name, plan, consoles)?;
        cc.clone_into(&mut record.cc);
        record.sizes = scenario.sizes();
        record.warmup_us = scenario.windows().warmup_us;
        record.plan_sha256 = hash;
        if scale == 1 {
            return Ok(record);
        }
        let real = plan::plan(scenario, cc, record.plan.seed, 1)?;
        match real.job {
            Job::Run(real) => Ok(record.unscaled(scale, real)),
            _ => Err(Error::failure("internal error: the plan is not a run")),
        }
    }

    /// Runs one guest; `name` is for the progress line.
    pub fn run_one(
        &self,
        name: &str,
        mut plan: Plan,
        consoles: Option<&Pending>,
    ) -> Result<Record> {
        if let (Some(object), Engine::Uml { .. }) = (plan.bpf.first(), self.engine) {
            return Err(Error::usage(format!(
                "{} needs a kernel that compiles BPF, which UML cannot",
                object.name
            ))
            .hint("--engine qemu"));
        }
        let Job::Run(run) = &mut plan.job else {
            return Err(Error::failure("internal error: the plan is not a run"));
        };
        if let (2.., Engine::Uml { .. } | Engine::Host) = (run.cpus, self.engine) {
            let what = "'cpus' needs an emulated machine: User Mode Linux has one CPU, and a host has its own";
            return Err(Error::usage(what).hint("--engine qemu"));
        }
        if self.engine == Engine::Host
            && let Some(bytes) = room::fit_buffers(run)?
        {
            static SHOWN: Once = Once::new();
            SHOWN.call_once(|| {
                self.progress.note(&format!(
                    "a socket can buffer {}: this machine's TCP memory is too small for more",
                    Size(bytes)
                ));
            });
        }
        run.trace = self.trace.to_vec();
        run.taps.extend(uplinks(&run.topology, self.pcap)?);
        let mut record = Record::new(&run.cc, run.clone());
        let mut task = self.progress.task(name);
        let guest =
            Guest { home: self.home, engine: self.engine, machine: machine(self.engine, run) };
        let watch = Watch {
            stall: self.timeout,
            total: None,
            console: consoles
                .map(|pending| pending.create(&format!("console-{name}.log")))
                .transpose()?,
        };
        task.set("starting", 0.0);
        let outcome = guest.run(&plan, &watch, |message| {
            follow(&mut task, &message);
            Ok(record.add(message)?)
        });
        match outcome.and_then(|wall| Ok(record.complete(wall)?)) {
            Ok(record) => {
                if let Some(network) = figures::network(&record).filter(|n| n.nodes >= LARGE_NODES)
                {
                    self.progress.note(&format!(
                        "{name}: {} nodes, {} links, {} routes up in {:.1} s, {:.0} kB per node",
                        network.nodes,
                        network.links,
                        network.routes,
                        network.build_wall_s,
                        network.memory_per_node_kb,
                    ));
                }
                task.finish(&format!("done in {:.1} s", record.wall.as_secs_f64()));
                Ok(record)
            }
            Err(err) => {
                // A signal ends guests before it is noticed here.
                task.finish(match interrupt::check() {
                    Ok(()) => "failed",
                    Err(_) => "stopped",
                });
                Err(err)
            }
        }
    }
}

/// Taps at the first device of each node that matches a pattern, or of every host for [`ALL_HOSTS`].
pub fn uplinks(topology: &Topology, patterns: &[String]) -> Result<Vec<Tap>> {
    let mut names = Vec::new();
    for pattern in patterns {
        match pattern.as_str() {
            ALL_HOSTS => {
                let hosts = topology.nodes.iter().filter(|node| !node.router);
                names.extend(hosts.map(|node| node.name.clone()));
            }
            pattern => names.extend(xdc_scenario::expand(&Budget::default(), pattern)?),
        }
    }
    if names.len() > MAX_TAPS {
        return Err(
            Error::usage(format!("a capture at more than {MAX_TAPS} nodes")).hint("--pcap=NODE")
        );
    }
    let mut taps: Vec<Tap> = Vec::new();
    for name in names {
        let mut links = topology.links.iter();
        let peer = links.find_map(|link| match &name {
            name if *name == link.a => Some(&link.b),
            name if *name == link.b => Some(&link.a),
            _ => None,
        });
        let peer = peer.ok_or_else(|| {
            Error::usage(format!("--pcap: '{name}' is not a node with a link"))
                .hint("names as in [topology]: --pcap=a1,b[1-4]")
        })?;
        if !taps.iter().any(|tap| tap.node == name) {
            taps.push(Tap { node: name, port: peer.clone(), all: true });
        }
    }
    Ok(taps)
}

fn follow(task: &mut Task, message: &Message) {
    if let Message::Progress { what, done } = message {
        task.set(what, *done);
    }
}

/// Resources of a guest: by default one CPU, so that two guests may share this machine, and memory for flow
/// buffers.
fn machine(engine: Engine, run: &RunPlan) -> Machine {
    const BASE_MB: u64 = 1024;
    /// Memory of the agent's event buffer, and a margin.
    const TRACE_MB: u64 = 192;
    // Only few of thousands of flows are active at once.
    const MOST_MB: u64 = 4096;
    let buffers: u64 = run
        .flows
        .iter()
        .map(|flow| (flow.sndbuf_bytes + flow.rcvbuf_bytes) >> 20)
        .sum::<u64>()
        .min(MOST_MB);
    let network = room::network_mb(run);
    let trace = if run.trace.is_empty() { 0 } else { TRACE_MB };
    let taps = run.taps.len() * tap_frames(run.taps.len()) * FRAME_BYTES;
    let taps = taps as u64 >> 20;
    let memory_mb = match engine {
        Engine::Qemu { .. } => BASE_MB + network + buffers + trace + taps,
        // UML allocates only touched memory.
        Engine::Uml { .. } => 4 * BASE_MB + network + buffers + taps,
        // The host engine reserves no memory.
        Engine::Host => 0,
    };
    Machine { cpus: run.cpus.max(1), memory_mb, spins: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_scenario::{parse, testing::SMALL};

    #[test]
    fn a_capture_is_at_the_first_link_of_a_node() {
        let scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let Job::Run(run) = plan::plan(&scenario, "cubic", 1, 1).unwrap().job else {
            panic!("no run");
        };
        let of = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|&it| it.to_owned()).collect();
            let taps = uplinks(&run.topology, &patterns)?;
            let named = taps.into_iter().map(|tap| format!("{}-{}", tap.node, tap.port));
            Ok::<_, Error>(named.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(&[ALL_HOSTS]).unwrap(), "a1-s a2-s r-s");
        assert_eq!(of(&["s", "a[1-2]", "a1"]).unwrap(), "s-a1 a1-s a2-s");
        assert_eq!(of(&[]).unwrap(), "");
        let said = of(&["zz"]).unwrap_err().to_string();
        assert!(said.contains("'zz' is not a node"), "{said}");
    }
}
