// SPDX-License-Identifier: GPL-2.0
//! The host engine: what a plan needs of the running kernel is looked for before anything starts.
//! Nothing is tried and nothing is loaded for that; `agent/src/host.rs` does the run.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use xdc_proto::{Job, Plan, Queue, RunPlan};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::home::{self, Home};
use crate::initramfs::find_program;

pub fn engine(home: &Home) -> Result<Engine> {
    home.agent()?;
    Ok(Engine::Host)
}

/// A part of the kernel: a module, or a function by which it is known where it is built in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    what: String,
    module: String,
    function: String,
}

fn part(what: &str, module: &str, function: &str) -> Part {
    Part {
        what: what.to_owned(),
        module: module.to_owned(),
        function: function.to_owned(),
    }
}

/// The running kernel, as far as it can be asked without a change to it.
struct Kernel {
    release: String,
    ccs: BTreeSet<String>,
    loaded: BTreeSet<String>,
    functions: BTreeSet<String>,
}

/// Refuse what the running kernel cannot run.
pub fn check(plan: &Plan) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(
            Error::failure("--engine host makes network namespaces, which only root may")
                .hint("sudo, or --engine uml, which needs no root"),
        );
    }
    if let Some((name, value)) = plan.parameters.first() {
        return Err(Error::usage(format!(
            "this congestion control needs the module parameter {name}={value}, which is the whole machine's"
        ))
        .hint("--engine qemu or uml for it, or another --cc"));
    }
    let Job::Run(run) = &plan.job else {
        return Ok(());
    };
    let parts = parts(run);
    Kernel::running(&parts)?.check(run, &parts, loadable)
}

/// What the ports of a network are made of.
fn parts(run: &RunPlan) -> BTreeSet<Part> {
    let mut parts = BTreeSet::from([part("veth devices", "veth", "veth_newlink")]);
    for direction in run
        .topology
        .links
        .iter()
        .flat_map(|link| [&link.ab, &link.ba])
    {
        let wire = direction.delay_ns > 0
            || direction.faults.is_some()
            || (direction.queue.is_none() && direction.rate_bps > 0);
        if wire {
            parts.insert(part("the qdisc netem", "sch_netem", "netem_enqueue"));
        }
        match direction.queue {
            Some(Queue::Phantom(_) | Queue::Bfifo { .. }) => {
                parts.insert(part("the qdisc phantom", "sch_phantom", ""));
            }
            Some(Queue::FqCodel { .. }) => {
                parts.insert(part("the qdisc htb", "sch_htb", "htb_enqueue"));
                let fq_codel = part("the qdisc fq_codel", "sch_fq_codel", "fq_codel_enqueue");
                parts.insert(fq_codel);
            }
            None => {}
        }
    }
    if run.topology.nodes.iter().any(|node| node.spray) {
        parts.insert(part("the classifier bpf", "cls_bpf", "cls_bpf_classify"));
    }
    parts
}

impl Kernel {
    fn running(parts: &BTreeSet<Part>) -> Result<Self> {
        let ccs = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let ccs = fs::read_to_string(ccs).map_err(|err| Error::io(ccs, &err))?;
        // Either may be missing where the kernel has no modules or no names.
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        let names = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let wanted: BTreeSet<_> = parts.iter().map(|part| part.function.as_str()).collect();
        Ok(Self {
            release: home::running_release()?,
            ccs: ccs.split_whitespace().map(str::to_owned).collect(),
            loaded: first_words(&modules),
            functions: names
                .lines()
                .filter_map(|line| line.split_whitespace().nth(2))
                .filter(|name| wanted.contains(name))
                .map(str::to_owned)
                .collect(),
        })
    }

    fn check(
        &self,
        run: &RunPlan,
        parts: &BTreeSet<Part>,
        loadable: impl Fn(&str) -> bool,
    ) -> Result<()> {
        for part in parts {
            let there = self.functions.contains(&part.function)
                || self.loaded.contains(&part.module)
                || loadable(&part.module);
            if !there {
                return Err(Error::failure(format!(
                    "this kernel ({}) lacks {}, which this scenario's links are made of",
                    self.release, part.what
                ))
                .hint(mend(&part.module)));
            }
        }
        let ccs: BTreeSet<_> = run.congestion_controls().collect();
        for cc in ccs {
            let module = format!("tcp_{cc}");
            if !self.ccs.contains(cc) && !loadable(&module) {
                let have: Vec<_> = self.ccs.iter().map(String::as_str).collect();
                let ours = mend(&module);
                return Err(Error::failure(format!(
                    "this kernel ({}) has no congestion control {cc}: it has {}",
                    self.release,
                    have.join(", ")
                ))
                .hint(format!("{ours}; or --cc {}", have.join(","))));
            }
        }
        Ok(())
    }
}

fn mend(module: &str) -> String {
    match module {
        "sch_phantom" | "tcp_unocc" | "tcp_gemini" => {
            "make install KDIR=/lib/modules/$(uname -r)/build; or --engine uml".to_owned()
        }
        _ => format!("a kernel with the module {module}; or --engine uml"),
    }
}

/// modprobe would load it. Nothing is loaded.
fn loadable(module: &str) -> bool {
    let Some(modprobe) = find_program("modprobe") else {
        return false;
    };
    Command::new(modprobe)
        .args(["--dry-run", "--quiet", module])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn first_words(text: &str) -> BTreeSet<String> {
    let words = text.lines().filter_map(|line| line.split(' ').next());
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use xdc_proto::{Direction, Link, Topology};

    use super::*;

    fn set(words: &str) -> BTreeSet<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn run(cc: &str, queue: Option<Queue>) -> RunPlan {
        let direction = |queue| Direction {
            rate_bps: 1_000_000_000,
            delay_ns: 0,
            queue,
            faults: None,
        };
        RunPlan {
            topology: Topology {
                links: vec![Link {
                    a: "a".to_owned(),
                    b: "b".to_owned(),
                    mtu: 1500,
                    ab: direction(queue),
                    ba: direction(None),
                }],
                ..Topology::default()
            },
            cc: cc.to_owned(),
            flows: Vec::new(),
            watch: Vec::new(),
            sample_us: 1,
            stop_after_us: None,
            seed: 1,
            capture: false,
            trace: Vec::new(),
            flow_series: false,
        }
    }

    fn kernel() -> Kernel {
        Kernel {
            release: "6.18".to_owned(),
            ccs: set("reno cubic"),
            loaded: set("sch_netem"),
            functions: set("veth_newlink"),
        }
    }

    fn refusal(run: &RunPlan, loadable: &str) -> Option<String> {
        let outcome = kernel().check(run, &parts(run), |module| module == loadable);
        outcome.err().map(|err| err.lines().join(" "))
    }

    #[test]
    fn a_scenario_that_the_kernel_carries_is_not_refused() {
        assert_eq!(refusal(&run("cubic", None), ""), None);
        assert_eq!(refusal(&run("unocc", None), "tcp_unocc"), None);
    }

    #[test]
    fn what_the_kernel_lacks_is_named_with_a_way_out() {
        let cc = refusal(&run("dctcp", None), "").unwrap();
        assert!(cc.contains("no congestion control dctcp") && cc.contains("--cc cubic,reno"));
        let port = run("cubic", Some(Queue::Bfifo { limit_bytes: 1 }));
        let qdisc = refusal(&port, "").unwrap();
        assert!(qdisc.contains("lacks the qdisc phantom") && qdisc.contains("make install"));
        assert_eq!(refusal(&port, "sch_phantom"), None);
        let shaped = run("cubic", Some(Queue::FqCodel { limit_packets: 1 }));
        assert!(refusal(&shaped, "sch_htb").unwrap().contains("fq_codel"));
    }
}
