// SPDX-License-Identifier: GPL-2.0
//! The host engine: checks a plan's requirements against the running kernel before the start, without loading
//! or trying anything; `agent/src/host.rs` does the run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::FdFlags;
use xdc_algo::MODULES;
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};
use xdc_base::interrupt;
use xdc_base::progress::Progress;
use xdc_proto::{Job, Plan, Queue, RunPlan, privileged};
use xdc_scenario::plan::{POLICE, ROTOR_MODULES};

use crate::engine::Engine;
use crate::room;

pub fn engine(home: &Home) -> Result<Engine> {
    home.agent()?;
    Ok(Engine::Host)
}

/// State directory: lock of runs on the host, and the agent's record of changes.
const STATE: &str = "/run/xdc";

/// Lock for the only run on this host: in real time two runs load each other, and one would unload the
/// other's modules. The agent inherits it, so it lasts until the agent's cleanup even if xdc dies.
pub struct Alone(#[allow(dead_code, reason = "it is held")] File);

impl Alone {
    pub fn wait(progress: &Progress) -> Result<Self> {
        let failed = |err: &std::io::Error| Error::io(STATE, err);
        match fs::DirBuilder::new().mode(0o700).create(STATE) {
            Err(err) if err.kind() != ErrorKind::AlreadyExists => return Err(failed(&err)),
            _ => {}
        }
        let meta = fs::symlink_metadata(STATE).map_err(|err| failed(&err))?;
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(
                Error::failure(format!("{STATE} belongs to another user")).hint("check its owner")
            );
        }
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(Path::new(STATE).join("lock"))
            .map_err(|err| failed(&err))?;
        // Without this the lock would end with xdc, not with the agent.
        rustix::io::fcntl_setfd(&lock, FdFlags::empty()).map_err(|err| failed(&err.into()))?;
        let mut said = false;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(lock)),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(err) => return Err(failed(&err.into())),
            }
            if !said {
                progress.note("waiting for the end of another run on this host");
                said = true;
            }
            interrupt::sleep(Duration::from_millis(200))?;
        }
    }
}

/// Whether a run without commands can use the module.
fn is_of_network(module: &str) -> bool {
    let module = privileged::module_key(module);
    let mut ours = MODULES.iter().filter(|ours| ours.is_installed());
    // `tcp_ulp_NAME` is an alias of other modules.
    module.starts_with("tcp_") && !module.starts_with("tcp_ulp_")
        || module.starts_with("sch_")
        || ROTOR_MODULES.contains(&module.as_str())
        || module == POLICE
        || ours.any(|ours| ours.name == module)
}

/// A kernel part: a module, or the function that identifies it if built in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    what: String,
    module: String,
    function: String,
}

fn part(what: &str, module: &str, function: &str) -> Part {
    Part { what: what.to_owned(), module: module.to_owned(), function: function.to_owned() }
}

/// Properties of the running kernel, read without changing it.
struct Kernel {
    release: String,
    ccs: BTreeSet<String>,
    loaded: BTreeSet<String>,
    functions: BTreeSet<String>,
}

/// Refuses a plan that the running kernel cannot run, and, without consent, commands and modules that no
/// network needs.
pub fn check(plan: &Plan, allow_commands: bool) -> Result<()> {
    if runs_commands(plan) && !allow_commands {
        return Err(Error::usage(
            "this scenario runs its own commands, here as root: 'setup' or [[run]]",
        )
        .hint("read them, then --allow-commands; or --engine uml, which runs them in a guest"));
    }
    // The kernel requests tcp_NAME itself.
    let of_ccs: Vec<_> = match &plan.job {
        Job::Run(run) => {
            let of_nodes = run.topology.nodes.iter().flat_map(|node| &node.sysctls);
            let sysctls = run.topology.sysctls.iter().chain(of_nodes);
            let sysctls = sysctls.filter(|(name, _)| name == "net.ipv4.tcp_congestion_control");
            let defaults = sysctls.map(|(_, cc)| cc.trim());
            let ccs = run.congestion_controls().chain(defaults);
            ccs.map(|cc| format!("tcp_{cc}")).collect()
        }
        _ => Vec::new(),
    };
    let mut modules = plan.modules.iter().chain(&of_ccs);
    let strange = modules.find(|module| !is_of_network(module));
    if let Some(module) = strange.filter(|_| !allow_commands) {
        return Err(Error::usage(format!(
            "this scenario loads the module {module} into the running kernel, but it is no \
             congestion control, qdisc or module of xdc"
        ))
        .hint("--allow-commands if you trust it, or --engine uml"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::failure("--engine host creates network namespaces, which needs root")
            .hint("sudo, or --engine uml, which needs no root"));
    }
    if let Some((name, value)) = plan.parameters.first() {
        return Err(Error::usage(format!(
            "this congestion control needs the module parameter {name}={value}, which is global"
        ))
        .hint("--engine qemu or uml for it, or another --cc"));
    }
    if let Some(object) = plan.bpf.first() {
        return Err(Error::usage(format!(
            "{} would be registered for the whole machine",
            object.name
        ))
        .hint("--engine qemu, where a guest has its own kernel"));
    }
    let Job::Run(run) = &plan.job else {
        return Ok(());
    };
    let parts = parts(run);
    Kernel::running(&parts)?.check(run, &parts, loadable)?;
    room::check(run)
}

fn runs_commands(plan: &Plan) -> bool {
    let Job::Run(run) = &plan.job else {
        return false;
    };
    let mut nodes = run.topology.nodes.iter();
    !run.programs.is_empty() || nodes.any(|node| !node.setup.is_empty())
}

/// Kernel parts used by the ports of a network.
fn parts(run: &RunPlan) -> BTreeSet<Part> {
    let mut parts = BTreeSet::from([part("veth devices", "veth", "veth_newlink")]);
    for direction in run.topology.links.iter().flat_map(|link| [&link.ab, &link.ba]) {
        let wire = direction.delay_ns > 0
            || direction.faults.is_some()
            || (direction.queue.is_none() && direction.rate_bps > 0);
        if wire {
            parts.insert(part("the qdisc netem", "sch_netem", "netem_enqueue"));
        }
        match &direction.queue {
            Some(queue) if queue.is_phantom() => {
                parts.insert(part("the qdisc phantom", "sch_phantom", ""));
            }
            Some(Queue { kind, .. }) => {
                if direction.rate_bps > 0 {
                    parts.insert(part("the qdisc htb", "sch_htb", "htb_enqueue"));
                }
                // FIFOs are always built in.
                if !kind.ends_with("fifo") {
                    let (what, module) = (format!("the qdisc {kind}"), format!("sch_{kind}"));
                    parts.insert(part(&what, &module, &format!("{kind}_enqueue")));
                }
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
        // Missing in a kernel without modules or symbol names.
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
                    "this kernel ({}) lacks {}, which this scenario's links need",
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
    let mut ours = MODULES.iter().filter(|ours| ours.is_installed());
    match ours.any(|ours| ours.name == module) {
        true => "make install KDIR=/lib/modules/$(uname -r)/build; or --engine uml".to_owned(),
        false => format!("a kernel with the module {module}; or --engine uml"),
    }
}

/// Whether modprobe would load the module (dry run).
fn loadable(module: &str) -> bool {
    let Ok(Some(mut modprobe)) = privileged::modprobe_dry_run(module) else {
        return false;
    };
    modprobe
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

    #[test]
    fn a_ulp_alias_needs_consent() {
        assert!(is_of_network("tcp_cubic") && is_of_network("sch-fq"));
        for module in ["tcp-ulp-tls", "tcp_ulp_mptcp", "snd_aloop"] {
            assert!(!is_of_network(module), "{module}");
        }
    }

    fn set(words: &str) -> BTreeSet<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn run(cc: &str, queue: Option<Queue>) -> RunPlan {
        let direction = |queue| Direction {
            rate_bps: 1_000_000_000,
            delay_ns: 0,
            queue,
            faults: None,
            policer: None,
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
            taps: Vec::new(),
            trace: Vec::new(),
            programs: Vec::new(),
            events: Vec::new(),
            gates: Vec::new(),
            flow_series: false,
            cpus: 0,
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
    fn a_scenario_that_the_kernel_supports_is_accepted() {
        assert_eq!(refusal(&run("cubic", None), ""), None);
        assert_eq!(refusal(&run("unocc", None), "tcp_unocc"), None);
    }

    #[test]
    fn an_unrelated_module_needs_consent() {
        let said = |module: &str, allow_commands| {
            let mut plan = Plan::of(Job::Probe);
            plan.modules = vec!["sch_phantom".to_owned(), module.to_owned()];
            let refused = check(&plan, allow_commands).err();
            refused.map_or(String::new(), |err| err.lines().join(" "))
        };
        for module in ["snd-aloop", "lkdtm", "softdog", "xdc_alarm", "act_mirred", "tcp"] {
            let refused = said(module, false);
            assert!(refused.contains(module), "{refused}");
            assert!(refused.contains("--allow-commands"), "{refused}");
            assert!(!said(module, true).contains("--allow-commands"));
        }
        let mut run = run("cubic", None);
        let default = ["net.ipv4.tcp_congestion_control", "ulp_tls\n"];
        run.topology.sysctls.push(default.map(str::to_owned).into());
        let refused = check(&Plan::of(Job::Run(run)), false).unwrap_err();
        assert!(refused.lines().join(" ").contains("module tcp_ulp_tls"));
        for module in ["tcp_bbr", "sch-fq", "tlt", "unorc", "bonding"] {
            assert!(!said(module, false).contains("--allow-commands"), "{module}");
        }
    }

    #[test]
    fn missing_kernel_parts_are_named_with_a_hint() {
        let cc = refusal(&run("dctcp", None), "").unwrap();
        assert!(cc.contains("no congestion control dctcp") && cc.contains("--cc cubic,reno"));
        let of_tc = |kind: &str| {
            let kind = kind.to_owned();
            Some(Queue { kind, ..Queue::default() })
        };
        let port = run("cubic", of_tc("phantom"));
        let qdisc = refusal(&port, "").unwrap();
        assert!(qdisc.contains("lacks the qdisc phantom") && qdisc.contains("make install"));
        assert_eq!(refusal(&port, "sch_phantom"), None);
        let shaped = run("cubic", of_tc("fq_codel"));
        assert!(refusal(&shaped, "sch_htb").unwrap().contains("fq_codel"));
    }
}
