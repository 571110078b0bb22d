// SPDX-License-Identifier: GPL-2.0
//! A run in network namespaces of the running kernel, for `xdc run --engine host`.
//!
//! The worker builds the network and runs the traffic in unnamed namespaces, so when it ends the
//! kernel removes them with their devices, queues and sysctls. The worker is PID 1 of a PID
//! namespace, so the kernel also kills all processes left by a scenario's command. The supervisor
//! waits for the worker, and unloads the modules loaded for it. When `xdc` dies, the kernel signals
//! the supervisor; when the supervisor dies, the kernel kills the worker. Other changes are on
//! record in [`RECORD`], and the next run undoes them. Runs are exclusive: `xdc` holds the lock of
//! /run/xdc, which this process inherits.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::CString,
    fs::{self, File},
    io::{ErrorKind, Read, Seek, Write, stdin},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
            process::ExitStatusExt,
        },
    },
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    kmod::{DeleteModuleFlags, delete_module},
    mount::{MsFlags, mount},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
    },
    unistd::{Pid, getppid},
};
use serde_json::{Value, json};
use xdc_proto::{Job, Message, Plan, RunPlan, TCP_MEM, VERSION, privileged::module_key};

use crate::{
    boot, channel::Channel, guarded, netns::Netns, network::Place, parse_plan, sysctl, trace,
    traffic_of,
};

mod files;

use files::{Files, inherited};

/// First word of the command line.
pub const WORD: &str = "host";
const WORKER: &str = "host-worker";

/// Wait for module unloading: the kernel removes a namespace, whose devices and queues use modules,
/// shortly after its last process has ended.
const UNLOAD_PATIENCE: Duration = Duration::from_secs(20);
const UNLOAD_RETRY: Duration = Duration::from_millis(50);

/// Modules that the kernel loads for a network's links if they are not built in.
const LOADED_ON_DEMAND: &[&str] = &["veth", "sch_netem", "sch_htb", "sch_ingress", "cls_bpf"];

/// Unloading these removes their devices in all namespaces, including other users'.
const REMOVE_DEVICES: &[&str] = &["veth", "bonding"];

/// Record of changes outside the run's namespaces, until they are undone.
const RECORD: &str = "/run/xdc/host.json";

/// The content of [`RECORD`].
#[derive(Debug, PartialEq, Eq)]
struct Changes {
    /// Modules loaded by the plan.
    modules: BTreeSet<String>,
    /// Modules loaded before the run, which stay.
    before: BTreeSet<String>,
    /// The tracefs instance of the run.
    instance: String,
}

impl Changes {
    /// Changes that a run of `plan` may make on this machine.
    fn ahead(plan: &Plan) -> Result<Self> {
        let mut random = [0; 8];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut random))
            .context("cannot read /dev/urandom")?;
        Ok(Self {
            modules: brought_in(plan),
            before: loaded_modules(),
            instance: format!("xdc-{:016x}", u64::from_ne_bytes(random)),
        })
    }

    /// Writes the record; must precede every change.
    fn save(&self, path: &Path) -> Result<()> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot create {}", dir.display()));
            }
            _ => {}
        }
        let text = json!({
            "modules": self.modules,
            "before": self.before,
            "instance": self.instance,
        });
        let new = path.with_extension("new");
        // Remainder of a run that died while writing.
        let _ = fs::remove_file(&new);
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| {
                file.write_all(text.to_string().as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&new, path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Loads the record of a run that did not undo its changes, if any.
    fn load(path: &Path) -> Result<Option<Self>> {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let own = meta.uid() == nix::unistd::geteuid().as_raw();
        ensure!(
            own && meta.is_file(),
            "{} is not a file of this user: inspect and remove it",
            path.display()
        );
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text)
            .with_context(|| format!("{} is damaged: remove it", path.display()))
            .map(Some)
    }

    fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let names = |key: &str| -> Option<BTreeSet<String>> {
            let names = value[key].as_array()?.iter();
            names.map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let instance = value["instance"].as_str()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        instance.chars().all(plain).then_some(())?;
        Some(Self {
            modules: names("modules")?,
            before: names("before")?,
            instance: instance.to_owned(),
        })
    }

    /// Undoes the changes. Returns the modules that stay because they are in use.
    fn put_back(&self) -> Vec<String> {
        trace::remove(&self.instance);
        self.unload()
    }

    /// Unloads the modules of the plan and their dependencies. Returns the modules that stay.
    fn unload(&self) -> Vec<String> {
        let deadline = Instant::now() + UNLOAD_PATIENCE;
        let mut ours = self.modules.clone();
        loop {
            let loaded = module_users(&read_modules());
            add_dependencies(&mut ours, &loaded);
            let mut left = Vec::new();
            for name in ours.iter().filter(|name| loaded.contains_key(*name)) {
                if self.before.contains(name) || REMOVE_DEVICES.contains(&name.as_str()) {
                    continue;
                }
                let gone = CString::new(name.as_str())
                    .is_ok_and(|name| delete_module(&name, DeleteModuleFlags::O_NONBLOCK).is_ok());
                if !gone {
                    left.push(name.clone());
                }
            }
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            thread::sleep(UNLOAD_RETRY);
        }
    }
}

/// Runs a command-line request outside a guest: `host PLAN MESSAGES PARENT`, or `host-worker PLAN
/// MESSAGES INSTANCE` with two descriptor numbers.
pub fn main() -> Option<ExitCode> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [word, plan, messages, last] = words.as_slice() else {
        return None;
    };
    let outcome = match word.as_str() {
        WORD => supervise(plan, messages, Pid::from_raw(last.parse().ok()?)),
        WORKER => work(plan, messages, last).map(|()| ExitCode::SUCCESS),
        _ => return None,
    };
    Some(outcome.unwrap_or_else(|error| {
        eprintln!("xdc-agent: {error:#}");
        ExitCode::FAILURE
    }))
}

fn supervise(plan: &str, messages: &str, parent: Pid) -> Result<ExitCode> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    // Block signals first, so that the parent-death signal is not lost.
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).context("sigprocmask")?;
    set_pdeathsig(Signal::SIGTERM).context("prctl")?;
    let files = Files::open(Path::new(plan), Path::new(messages))?;
    // The parent may have died before prctl.
    ensure!(getppid() == parent, "the parent process has ended");
    let plan = read_plan(&files.plan)?;
    let record = Path::new(RECORD);
    if let Some(left) = Changes::load(record)? {
        eprintln!("xdc-agent: an earlier run was killed; undoing its changes");
        left.put_back();
    }
    let changes = Changes::ahead(&plan)?;
    changes.save(record)?;
    let worker = start_worker(&files, &changes.instance, parent);
    let code = worker.and_then(|mut worker| {
        let code = wait_for(&mut worker, &signals);
        // Reap even if waiting failed. ESRCH: already gone.
        let _ = worker.kill();
        let _ = worker.wait();
        code
    });
    let stuck = changes.put_back();
    fs::remove_file(record).with_context(|| format!("cannot remove {RECORD}"))?;
    if getppid() != parent {
        // Without the parent, this process must remove the files.
        files.remove();
    } else if !stuck.is_empty() {
        // A doubt only: the results are valid.
        Channel::of(files.messages).send(&Message::Doubt {
            what: format!(
                "modules of the run stay loaded, because they are in use: {}",
                stuck.join(" ")
            ),
        })?;
    }
    code
}

/// Starts the worker as PID 1 of a namespace. Its standard input ends with this process.
fn start_worker(files: &Files, instance: &str, parent: Pid) -> Result<Child> {
    // Undoing an earlier run's changes takes long.
    ensure!(getppid() == parent, "the parent process has ended");
    // Applies to the next child, not to this process.
    unshare(CloneFlags::CLONE_NEWPID).context("cannot create a PID namespace (CONFIG_PID_NS)")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORKER);
    for file in [&files.plan, &files.messages] {
        fcntl(file, FcntlArg::F_SETFD(FdFlag::empty())).context("fcntl")?;
        command.arg(file.as_raw_fd().to_string());
    }
    command.arg(instance).stdin(Stdio::piped()).spawn().context("cannot start the worker")
}

fn wait_for(worker: &mut Child, signals: &SigSet) -> Result<ExitCode> {
    loop {
        match signals.wait().context("sigwait")? {
            Signal::SIGCHLD => {}
            signal => return Ok(ExitCode::from(128 + signal as u8)),
        }
        if let Some(status) = worker.try_wait().context("wait")? {
            return Ok(match (status.code(), status.signal()) {
                (Some(code), _) => ExitCode::from(code as u8),
                (None, signal) => ExitCode::from(128 + signal.unwrap_or(0) as u8),
            });
        }
    }
}

/// Reads the plan. The worker shares the supervisor's file offset.
fn read_plan(mut file: &File) -> Result<Plan> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).context("cannot read the plan")?;
    parse_plan(&text)
}

/// Names of loaded modules, with `_`.
pub fn loaded_modules() -> BTreeSet<String> {
    module_users(&read_modules()).into_keys().collect()
}

fn read_modules() -> String {
    // A kernel without modules has no such file.
    fs::read_to_string("/proc/modules").unwrap_or_default()
}

/// Modules in the text of /proc/modules, each with the modules that use it.
fn module_users(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let of_line = |line: &str| {
        let mut words = line.split(' ');
        let (name, users) = (words.next()?, words.nth(2).unwrap_or("-"));
        let users = users.split(',').filter(|user| !["", "-"].contains(user));
        Some((name.to_owned(), users.map(str::to_owned).collect()))
    };
    text.lines().filter_map(of_line).collect()
}

/// Adds the modules on which `ours` depend.
fn add_dependencies(ours: &mut BTreeSet<String>, loaded: &BTreeMap<String, BTreeSet<String>>) {
    loop {
        let known = ours.len();
        for (name, users) in loaded {
            if !users.is_disjoint(ours) {
                ours.insert(name.clone());
            }
        }
        if ours.len() == known {
            return;
        }
    }
}

/// Modules that `plan` loads or makes the kernel load, named as in /proc/modules.
fn brought_in(plan: &Plan) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = LOADED_ON_DEMAND.iter().map(|&s| s.to_owned()).collect();
    names.extend(plan.modules.iter().map(|name| module_key(name)));
    if let Job::Run(run) = &plan.job {
        let key = |kind: &str, name: &str| module_key(&format!("{kind}_{}", name.trim()));
        names.extend(run.congestion_controls().map(|cc| key("tcp", cc)));
        let links = run.topology.links.iter();
        let queues = links.flat_map(|link| [&link.ab.queue, &link.ba.queue]);
        names.extend(queues.flatten().map(|queue| key("sch", &queue.kind)));
        // Setting a namespace's default makes the kernel load the module, too.
        let of_nodes = run.topology.nodes.iter().flat_map(|node| &node.sysctls);
        let sysctls = run.topology.sysctls.iter().chain(of_nodes);
        let defaults = sysctls.filter(|(name, _)| name == "net.ipv4.tcp_congestion_control");
        names.extend(defaults.map(|(_, cc)| key("tcp", cc)));
    }
    names
}

/// Makes the kernel kill this process when the supervisor dies, whose PID is 0 in this namespace.
fn tether() -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("prctl")?;
    // The supervisor may have died before prctl.
    let input = stdin();
    let mut ends = [PollFd::new(input.as_fd(), PollFlags::empty())];
    let ended = poll(&mut ends, PollTimeout::ZERO).context("poll")?;
    ensure!(ended == 0, "the supervisor has ended");
    Ok(())
}

/// Mounts /proc of the worker's PID namespace, invisible to other processes. Otherwise a scenario's
/// `kill $(pidof X)` would read PIDs of the host.
fn mount_own_proc() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot create a mount namespace")?;
    // Receive later unmounts of the host.
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, slave, None::<&str>)
        .context("cannot detach the mount namespace")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).context("cannot mount /proc")
}

/// Runs the plan and sends its messages.
fn work(plan: &str, messages: &str, instance: &str) -> Result<()> {
    let (plan, messages) = (inherited(plan)?, inherited(messages)?);
    trace::record_in(instance.to_owned());
    tether()?;
    mount_own_proc()?;
    // The supervisor's signal mask is inherited.
    SigSet::all().thread_unblock().context("sigprocmask")?;
    let mut channel = Channel::of(messages);
    let done = guarded(&mut channel, |channel| experiment(&plan, channel))?;
    ensure!(done, "the run failed");
    Ok(())
}

fn experiment(plan: &File, channel: &mut Channel) -> Result<()> {
    channel.send(&Message::Hello { version: VERSION, kernel: boot::kernel_release()? })?;
    let plan = read_plan(plan)?;
    ensure!(plan.parameters.is_empty(), "module parameters are global: they need a guest");
    ensure!(plan.bpf.is_empty(), "BPF congestion controls are global: they need a guest");
    // Before any module is loaded or namespace created.
    let shared = match &plan.job {
        Job::Run(run) => shared_sysctls(run)?,
        _ => BTreeSet::new(),
    };
    boot::load_modules(&plan.modules)?;
    let virtual_us = match &plan.job {
        Job::Run(run) => {
            let tainted = tainted()?;
            // All others are created in this private namespace.
            let _own = Netns::create()?;
            let us = traffic_of(run, &Place::Host { shared }, channel)?;
            if let Some(what) = news_of_taint(tainted, self::tainted()?) {
                bail!("the kernel {what} during the run: see dmesg");
            }
            us
        }
        Job::Probe => 0,
        Job::Shell(_) | Job::Selftest { .. } => bail!("this job needs a guest"),
    };
    channel.send(&Message::Done { virtual_us })
}

/// Sysctls of the plan that are global on this machine. Skips the plan's own default among them;
/// refuses one from a scenario.
fn shared_sysctls(run: &RunPlan) -> Result<BTreeSet<String>> {
    let of_nodes = run.topology.nodes.iter().flat_map(|node| &node.sysctls);
    let all: BTreeSet<_> = run.topology.sysctls.iter().chain(of_nodes).collect();
    let mut there = BTreeSet::new();
    for (name, _) in &all {
        if sysctl::exists(name)? {
            there.insert(name.as_str());
        }
    }
    let initial = Netns::current()?;
    let _fresh = Netns::create()?;
    let mut shared = BTreeSet::new();
    for (name, value) in &all {
        // net.netfilter.nf_hooks_lwtunnel is in each namespace, but its value is global.
        let is_own = sysctl::exists(name)? && !name.starts_with("net.netfilter");
        if !there.contains(name.as_str()) || is_own {
            continue;
        }
        ensure!(
            (name.as_str(), value.as_str()) == TCP_MEM,
            "the sysctl {name} is global, and a run on the host must not \
             change it: use --engine uml or qemu"
        );
        shared.insert(name.clone());
    }
    initial.enter()?;
    Ok(shared)
}

fn tainted() -> Result<u64> {
    let path = "/proc/sys/kernel/tainted";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    text.trim().parse().with_context(|| path.to_owned())
}

/// New oops or warning. Loading our modules sets other taint flags.
fn news_of_taint(before: u64, after: u64) -> Option<&'static str> {
    const DIED: u64 = 1 << 7;
    const WARNED: u64 = 1 << 9;
    let new = after & !before;
    match (new & DIED > 0, new & WARNED > 0) {
        (true, _) => Some("oopsed"),
        (false, true) => Some("warned"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_loaded_modules_are_unloaded() {
        let text = "vxlan 147456 0 - Live 0x0\n\
                    ip6_udp_tunnel 16384 1 vxlan, Live 0x0\n\
                    udp_tunnel 32768 2 vxlan,wireguard, Live 0x0\n\
                    lib 1 1 udp_tunnel, Live 0x0\n\
                    snd 1 1 snd_aloop, Live 0x0 (OE)\n";
        let loaded = module_users(text);
        assert_eq!(loaded["udp_tunnel"].len(), 2);
        assert!(loaded["vxlan"].is_empty());
        let mut ours = BTreeSet::from(["vxlan".to_owned()]);
        add_dependencies(&mut ours, &loaded);
        let ours: Vec<_> = ours.iter().map(String::as_str).collect();
        assert_eq!(ours, ["ip6_udp_tunnel", "lib", "udp_tunnel", "vxlan"]);
    }

    #[test]
    fn modules_that_a_plan_loads_are_found() {
        let text = format!(
            r#"{{"version": {VERSION}, "modules": ["sch_phantom", "snd-aloop"],
                "job": {{"kind": "run", "cc": "bbr", "flows": [], "watch": [], "sample_us": 1,
                "stop_after_us": null, "seed": 1, "topology": {{"nodes": [
                {{"name": "a", "router": false,
                "sysctls": [["net.ipv4.tcp_congestion_control", "vegas"]]}}], "links": [],
                "sysctls": [["net.ipv4.tcp_congestion_control", "hybla"]],
                "tcp_usec_ts": false, "quickack": false}}}}}}"#
        );
        let names = brought_in(&parse_plan(&text).unwrap());
        for name in ["sch_phantom", "snd_aloop", "tcp_bbr", "veth", "tcp_hybla", "tcp_vegas"] {
            assert!(names.contains(name), "{name}");
        }
        assert!(!names.contains("tcp_cubic"));
    }

    /// Each run of this test has its own file, not the machine's record.
    #[test]
    fn saved_changes_read_back_and_damaged_ones_are_refused() {
        let dir = env::temp_dir().join(format!("xdc-agent-test-{}", std::process::id()));
        let path = dir.join("host.json");
        assert_eq!(Changes::load(&path).unwrap(), None);
        let changes = Changes {
            modules: ["veth".to_owned()].into(),
            before: ["dm_mod".to_owned()].into(),
            instance: "xdc-0123456789abcdef".to_owned(),
        };
        changes.save(&path).unwrap();
        assert_eq!(Changes::load(&path).unwrap(), Some(changes));
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        let before = r#"{"modules": [], "instance": "x"}"#;
        let number = r#"{"modules": [1], "before": [], "instance": "x"}"#;
        for damaged in ["", "{", before, number] {
            fs::write(&path, damaged).unwrap();
            assert!(Changes::load(&path).is_err(), "{damaged}");
        }
        fs::write(&path, r#"{"modules": [], "before": [], "instance": "../events"}"#).unwrap();
        assert!(Changes::load(&path).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_a_new_warning_or_oops_is_reported() {
        const OUT_OF_TREE: u64 = 1 << 12;
        assert_eq!(news_of_taint(0, OUT_OF_TREE), None);
        assert_eq!(news_of_taint(1 << 9, 1 << 9), None);
        assert_eq!(news_of_taint(0, 1 << 9), Some("warned"));
        assert_eq!(news_of_taint(0, 1 << 9 | 1 << 7), Some("oopsed"));
    }
}
