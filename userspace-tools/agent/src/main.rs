// SPDX-License-Identifier: GPL-2.0
//! The guest's PID 1: reads `/xdc/plan.json`, does its job, reports to the host, powers off.
//! Without a guest it does the same job in namespaces of the running kernel: see [`host`].
//!
//! One thread and one static binary. User space is the slow part of an experiment in virtual time
//! (UML), so the agent wakes rarely and never polls for time to pass.

mod books;
mod boot;
mod capture;
mod channel;
mod clock;
mod drops;
mod ethtool;
mod events;
mod fabric;
mod host;
mod layout;
mod linkcheck;
mod netns;
mod network;
mod programs;
mod root;
mod rotor;
mod routes;
mod selftest;
mod sending;
mod shell;
mod silence;
mod socket;
mod spray;
mod sysctl;
mod trace;
mod traffic;
mod transfer;
mod watch;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use xdc_proto::{Job, Message, NetworkSize, Plan, RunPlan, VERSION};

use crate::{
    channel::Channel,
    network::{Network, Place},
};

const PLAN: &str = "/xdc/plan.json";

fn main() -> ExitCode {
    if let Some(code) = host::main() {
        return code;
    }
    if std::process::id() != 1 {
        eprintln!("xdc-agent is the init of a guest; start a guest with `xdc run` instead");
        return ExitCode::from(2);
    }
    if let Err(error) = guest() {
        eprintln!("xdc-agent: {error:#}");
    }
    boot::power_off();
}

/// Runs the guest. Failures after the channel is open are reported through it.
fn guest() -> Result<()> {
    boot::mount_filesystems()?;
    let mut channel = Channel::open()?;
    guarded(&mut channel, work).map(drop)
}

/// Runs `work` and reports its failure through the channel; returns whether it succeeded.
fn guarded(channel: &mut Channel, work: impl FnOnce(&mut Channel) -> Result<()>) -> Result<bool> {
    // A panic is already on the console; report it to the host, too.
    let outcome = catch_unwind(AssertUnwindSafe(|| work(channel)))
        .unwrap_or_else(|_| bail!("the agent panicked; its message is on the console"));
    if let Err(error) = &outcome {
        channel.send(&Message::Error { what: format!("{error:#}") })?;
    }
    channel.flush()?;
    Ok(outcome.is_ok())
}

fn work(channel: &mut Channel) -> Result<()> {
    channel.send(&Message::Hello { version: VERSION, kernel: boot::kernel_release()? })?;
    let plan = fs::read_to_string(PLAN)
        .with_context(|| format!("cannot read {PLAN}: the initramfs must contain it"))?;
    let plan = parse_plan(&plan)?;
    boot::load_modules(&plan.modules)?;
    boot::set_parameters(&plan.parameters)?;
    boot::register_bpf(&plan.bpf)?;
    boot::begin_experiment()?;

    let virtual_us = match plan.job {
        Job::Run(run) => traffic_of(&run, &Place::Guest, channel)?,
        Job::Shell(run) => {
            let network = Network::build(&run.topology, &Place::Guest)?;
            programs::set_up(&network)?;
            network.damage()?;
            channel.flush()?;
            shell::run(&network, &run)?;
            0
        }
        Job::Selftest { tests, long, arguments, root } => {
            if root.is_some() {
                root::enter()?;
            }
            selftest::run(&tests, (long, &arguments), channel)?;
            0
        }
        Job::Probe => 0,
    };
    channel.send(&Message::Done { virtual_us })
}

/// Builds and checks the network of a run, and runs the traffic; returns the traffic's duration,
/// us.
fn traffic_of(run: &RunPlan, place: &Place, channel: &mut Channel) -> Result<u64> {
    channel.send(&Message::Building)?;
    let free_bytes = boot::free_memory_bytes()?;
    let network = Network::build(&run.topology, place)?;
    let taken_bytes = free_bytes.saturating_sub(boot::free_memory_bytes()?);
    channel.send(&Message::Network(NetworkSize { memory_bytes: taken_bytes, ..network.size() }))?;
    programs::set_up(&network)?;
    boot::wait_for_fine_timers()?;
    linkcheck::check(&network, run, channel)?;
    network.damage()?;
    traffic::run(&network, run, channel)
}

fn parse_plan(text: &str) -> Result<Plan> {
    let plan: Plan = serde_json::from_str(text).context("cannot parse the plan")?;
    if plan.version != VERSION {
        bail!(
            "the plan has version {}, this agent has version {VERSION}: rebuild both with `make`",
            plan.version
        );
    }
    plan.check_names()?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_another_version_is_refused() {
        let error = parse_plan(r#"{"version": 0, "modules": [], "job": {"kind": "probe"}}"#);
        assert!(error.unwrap_err().to_string().contains("version 0"));
    }

    #[test]
    fn a_plan_with_a_file_or_an_option_as_module_is_refused() {
        for name in ["./evil.ko", "--version", "-Rveth", "a b", "../../../tmp/x"] {
            let text = format!(
                r#"{{"version": {VERSION}, "modules": ["veth", "{name}"], "job": {{"kind": "probe"}}}}"#
            );
            let error = parse_plan(&text).unwrap_err().to_string();
            assert!(error.contains("not a valid name of a kernel module"), "{error}");
        }
    }

    #[test]
    fn a_valid_plan_is_parsed() {
        let text = format!(
            r#"{{"version": {VERSION}, "modules": ["tcp_unocc"],
                 "job": {{"kind": "selftest", "tests": ["a"], "long": false}}}}"#
        );
        let plan = parse_plan(&text).unwrap();
        assert!(matches!(plan.job, Job::Selftest { tests, .. } if tests == ["a"]));
    }
}
