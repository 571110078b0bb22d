// SPDX-License-Identifier: GPL-2.0
//! A run in network namespaces of the running kernel, for `xdc run --engine host`.
//!
//! Two processes. One builds the network and runs the traffic, all of it in namespaces that have
//! no name: when it ends, however it ends, the kernel takes them away with their devices, queues
//! and sysctls. The other one only waits for it, and unloads the modules that were loaded for it.
//! When `xdc` dies, the kernel tells the second; when that dies, the kernel kills the first.

use std::{
    collections::BTreeSet,
    env,
    ffi::CString,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    kmod::{DeleteModuleFlags, delete_module},
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
    },
    unistd::{Pid, getppid},
};
use xdc_proto::{Job, Message, Plan, RunPlan, VERSION};

use crate::{
    boot, channel::Channel, guarded, netns::Netns, network::Place, parse_plan, trace, traffic_of,
};

/// First word of the command line.
pub const WORD: &str = "host";
const WORKER: &str = "host-worker";

/// The kernel takes a namespace away a moment after its last process has gone, and the modules of
/// its devices and queues are in use until then.
const UNLOAD_PATIENCE: Duration = Duration::from_secs(20);
const UNLOAD_RETRY: Duration = Duration::from_millis(50);

/// What the kernel loads by itself for what we ask of it, where it is not built in.
const LOADED_ON_DEMAND: &[&str] = &[
    "veth",
    "sch_netem",
    "sch_htb",
    "sch_fq_codel",
    "sch_ingress",
    "cls_bpf",
];

/// `host PLAN MESSAGES PARENT`, and the same for the worker: its first word is another one.
struct Request {
    plan: PathBuf,
    messages: PathBuf,
    parent: Pid,
}

/// What to do as it is said on the command line, if this is no guest.
pub fn main() -> Option<ExitCode> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [word, plan, messages, parent] = words.as_slice() else {
        return None;
    };
    let request = Request {
        plan: PathBuf::from(plan),
        messages: PathBuf::from(messages),
        parent: Pid::from_raw(parent.parse().ok()?),
    };
    let outcome = match word.as_str() {
        WORD => supervise(&request),
        WORKER => work(&request).map(|()| ExitCode::SUCCESS),
        _ => return None,
    };
    Some(outcome.unwrap_or_else(|error| {
        eprintln!("xdc-agent: {error:#}");
        ExitCode::FAILURE
    }))
}

/// Have the kernel send `signal` when the parent dies; it may have died before that.
fn tether(parent: Pid, signal: Signal) -> Result<()> {
    set_pdeathsig(signal).context("prctl")?;
    ensure!(getppid() == parent, "the parent is gone");
    Ok(())
}

fn supervise(request: &Request) -> Result<ExitCode> {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGCHLD,
    ] {
        signals.add(signal);
    }
    // Before the tether: its signal has to find us waiting.
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).context("sigprocmask")?;
    tether(request.parent, Signal::SIGTERM)?;
    let plan = read_plan(&request.plan)?;
    let loaded_before = loaded_modules();
    let mut worker = Command::new("/proc/self/exe")
        .arg(WORKER)
        .args([&request.plan, &request.messages])
        .arg(std::process::id().to_string())
        .spawn()
        .context("cannot start the worker")?;
    let code = wait_for(&mut worker, &signals);
    // Ours to bury even if waiting has failed. ESRCH: it is gone.
    let _ = worker.kill();
    let _ = worker.wait();
    trace::remove_of_worker();
    let stuck = unload(&plan, &loaded_before);
    if getppid() != request.parent {
        // Nobody else is left to do it.
        remove_files(request);
    }
    let code = code?;
    ensure!(
        stuck.is_empty(),
        "cannot unload what was loaded for the run, somebody uses it by now: {}",
        stuck.join(" ")
    );
    Ok(code)
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

fn remove_files(request: &Request) {
    // Nobody hears of a failure.
    let _ = fs::remove_file(&request.plan);
    let _ = fs::remove_file(&request.messages);
    if let Some(dir) = request.plan.parent() {
        let _ = fs::remove_file(dir.join("console"));
        let _ = fs::remove_dir(dir);
    }
}

fn read_plan(path: &Path) -> Result<Plan> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_plan(&text)
}

fn loaded_modules() -> BTreeSet<String> {
    // A kernel without modules has no such file.
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    module_names(&text)
}

fn module_names(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// Modules that a run of `plan` may have brought in.
fn brought_in(plan: &Plan) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = LOADED_ON_DEMAND.iter().map(|&s| s.to_owned()).collect();
    names.extend(plan.modules.iter().cloned());
    if let Job::Run(run) = &plan.job {
        names.extend(run.congestion_controls().map(|cc| format!("tcp_{cc}")));
    }
    names
}

/// Unloads what the run has brought in; returns what stays.
fn unload(plan: &Plan, before: &BTreeSet<String>) -> Vec<String> {
    let ours = brought_in(plan);
    let deadline = Instant::now() + UNLOAD_PATIENCE;
    loop {
        let mut left = Vec::new();
        for name in loaded_modules()
            .difference(before)
            .filter(|name| ours.contains(*name))
        {
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

/// The run itself, and its messages.
fn work(request: &Request) -> Result<()> {
    tether(request.parent, Signal::SIGKILL)?;
    // The supervisor's mask is inherited.
    SigSet::all().thread_unblock().context("sigprocmask")?;
    let mut channel = Channel::append_to(&request.messages)?;
    let done = guarded(&mut channel, |channel| experiment(&request.plan, channel))?;
    ensure!(done, "the run failed");
    Ok(())
}

fn experiment(plan: &Path, channel: &mut Channel) -> Result<()> {
    channel.send(&Message::Hello {
        version: VERSION,
        kernel: boot::kernel_release()?,
    })?;
    let plan = read_plan(plan)?;
    ensure!(
        plan.parameters.is_empty(),
        "parameters of modules are the whole machine's"
    );
    boot::load_modules(&plan.modules)?;
    let virtual_us = match &plan.job {
        Job::Run(run) => {
            let shared = shared_sysctls(run);
            let tainted = tainted()?;
            // All others are made in this one, which is nobody else's either.
            let _own = Netns::create()?;
            let us = traffic_of(run, &Place::Host { shared }, channel)?;
            if let Some(what) = news_of_taint(tainted, self::tainted()?) {
                bail!("the kernel {what} during the run: see dmesg");
            }
            us
        }
        Job::Probe => 0,
        Job::Shell { .. } | Job::Selftest { .. } => bail!("this job is for a guest"),
    };
    channel.send(&Message::Done { virtual_us })
}

/// Sysctls of the plan that this machine has and a namespace may not: they are not ours to write.
fn shared_sysctls(run: &RunPlan) -> BTreeSet<String> {
    let names = run.topology.sysctls.iter().map(|(name, _)| name);
    let here = names.filter(|name| Path::new("/proc/sys").join(name.replace('.', "/")).exists());
    here.cloned().collect()
}

fn tainted() -> Result<u64> {
    let path = "/proc/sys/kernel/tainted";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    text.trim().parse().with_context(|| path.to_owned())
}

/// Loading a module of ours taints a kernel too: only these two are news.
fn news_of_taint(before: u64, after: u64) -> Option<&'static str> {
    const DIED: u64 = 1 << 7;
    const WARNED: u64 = 1 << 9;
    let new = after & !before;
    match (new & DIED > 0, new & WARNED > 0) {
        (true, _) => Some("oopsed"),
        (false, true) => Some("warned of something"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_by_the_first_word() {
        let text = "veth 45056 0 - Live 0x0\ntcp_unocc 20480 2 - Live 0x0 (OE)\n";
        let names: Vec<_> = module_names(text).into_iter().collect();
        assert_eq!(names, ["tcp_unocc", "veth"]);
    }

    #[test]
    fn what_a_plan_brings_in_is_known() {
        let text = format!(
            r#"{{"version": {VERSION}, "modules": ["sch_phantom"],
                "job": {{"kind": "run", "cc": "bbr", "flows": [], "watch": [], "sample_us": 1,
                "stop_after_us": null, "seed": 1, "topology": {{"nodes": [], "links": [],
                "sysctls": [], "tcp_usec_ts": false, "quickack": false}}}}}}"#
        );
        let names = brought_in(&parse_plan(&text).unwrap());
        for name in ["sch_phantom", "tcp_bbr", "veth"] {
            assert!(names.contains(name), "{name}");
        }
        assert!(!names.contains("tcp_cubic"));
    }

    #[test]
    fn only_a_warning_or_an_oops_is_news() {
        const OUT_OF_TREE: u64 = 1 << 12;
        assert_eq!(news_of_taint(0, OUT_OF_TREE), None);
        assert_eq!(news_of_taint(1 << 9, 1 << 9), None);
        assert_eq!(news_of_taint(0, 1 << 9), Some("warned of something"));
        assert_eq!(news_of_taint(0, 1 << 9 | 1 << 7), Some("oopsed"));
    }
}
