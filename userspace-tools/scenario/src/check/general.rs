// SPDX-License-Identifier: GPL-2.0
//! Keys outside the network.

use std::ops::RangeInclusive;

use xdc_base::error::{Error, Key};
use xdc_base::units::{Size, Time};
use xdc_proto::privileged::MODULE;

use super::Mistakes;
use crate::fabric::Shape;
use crate::plan::scaled;
use crate::programs::{check_command, output_files};
use crate::{Scenario, at, sysctl};

/// MTUs of a link in bytes; the minimum is IPv4's.
const MTU_BYTES: RangeInclusive<u32> = 576..=65_535;

/// Minimum MTU of IPv6, in bytes.
const MTU6_BYTES: u32 = 1280;

pub fn check(scenario: &Scenario, m: &mut Mistakes) {
    for (n, cc) in scenario.ccs.iter().enumerate() {
        m.note(at!["ccs", n], |_| scenario.known_cc(cc));
    }
    ccs(scenario, m);
    if m.is_clean(&["ccs"]) && m.is_clean(&["cc"]) {
        claims(scenario, m);
        metrics(scenario, m);
    }
    topology(scenario, m);
    times(scenario, m);
    for (n, flow) in scenario.flows.iter().enumerate() {
        if (flow.burst == Size(0)) != (flow.period == Time(0)) {
            let err = Error::usage("a flow that writes in bursts needs both 'burst' and 'period'");
            m.add(at!["flows", n], err);
        }
    }
    if scenario.large_above < scenario.small_below {
        let err = Error::usage("'large_above' is below 'small_below'");
        m.add(at!["large_above"], err);
    }
    let fabric = scenario.topology.fabric.as_ref();
    let has_racks = fabric.is_some_and(|fabric| fabric.kind == Shape::Rotor);
    if !has_racks && m.is_clean(&["topology"]) {
        let own = scenario.cc.iter().filter(|(_, cc)| cc.acceltor.is_some());
        let own = own.map(|(name, _)| at!["cc", name, "acceltor"]);
        let all = scenario.acceltor.iter().map(|_| at!["acceltor"]);
        for key in all.chain(own) {
            let err = Error::usage("[acceltor] needs a rotor fabric")
                .hint("kind = \"rotor\" in [topology.fabric]");
            m.add(key, err);
        }
    }
    for (n, traffic) in scenario.traffic.iter().enumerate() {
        m.note(at!["traffic", n], |_| traffic.validate());
    }
    sysctls(scenario, m);
    commands(scenario, m);
}

fn ccs(scenario: &Scenario, m: &mut Mistakes) {
    for (name, cc) in &scenario.cc {
        m.note(at!["cc", name], |_| scenario.known_cc(name));
        if cc.bpf.is_some() && cc.kernel.is_none() {
            let err = Error::usage(format!("[cc.{name}] has 'bpf' but no 'kernel'"))
                .hint("kernel = \"NAME\", the name in its struct tcp_congestion_ops");
            m.add(at!["cc", name, "bpf"], err);
        }
        if let Some(module) = cc.module.as_ref().filter(|module| !module.is_empty()) {
            m.note(at!["cc", name, "module"], |_| Ok(MODULE.check(module)?));
        }
    }
}

fn claims(scenario: &Scenario, m: &mut Mistakes) {
    for (n, expect) in scenario.expect.iter().enumerate() {
        m.note(at!["expect", n, "cc"], |_| scenario.known_cc(&expect.cc));
        if let Some(cc) = &expect.less_than_cc {
            m.note(at!["expect", n, "less_than_cc"], |_| scenario.known_cc(cc));
        }
        if expect.bound().is_none() {
            let sentence = format!("the expectation on '{}' has no bound", expect.metric);
            let err = Error::usage(sentence).hint("min, max or less_than_cc");
            m.add(at!["expect", n], err);
        }
    }
    for (n, agree) in scenario.agree.iter().enumerate() {
        for (i, cc) in agree.ccs.iter().enumerate() {
            m.note(at!["agree", n, "ccs", i], |_| scenario.known_cc(cc));
        }
    }
}

/// Checks that expectations and comparisons name parts of this scenario.
pub fn metrics(scenario: &Scenario, m: &mut Mistakes) {
    let blocks = ["watch", "flows", "traffic", "run", "phases"];
    if !blocks.iter().all(|block| m.is_clean(&[block])) {
        return;
    }
    for (n, expect) in scenario.expect.iter().enumerate() {
        let key = at!["expect", n, "metric"];
        m.note(key, |_| scenario.check_metric(&expect.metric));
    }
    for (n, agree) in scenario.agree.iter().enumerate() {
        let key = at!["agree", n, "metric"];
        m.note(key, |_| scenario.check_metric(&agree.metric));
    }
}

fn topology(scenario: &Scenario, m: &mut Mistakes) {
    let spec = &scenario.topology;
    let (mtu, key) = (spec.mtu, at!["topology", "mtu"]);
    if !MTU_BYTES.contains(&mtu) {
        let (least, most) = MTU_BYTES.into_inner();
        let err = Error::usage(format!("an mtu of {mtu}: must be {least} to {most}"));
        m.add(key, err.hint("mtu = 1500"));
    } else if spec.ip == 6 && mtu < MTU6_BYTES {
        let err = Error::usage(format!("an mtu of {mtu} is below IPv6's {MTU6_BYTES}"));
        m.add(key, err.hint("mtu = 1500"));
    }
    if ![4, 6].contains(&spec.ip) {
        let sentence = format!("'ip' is {}: must be 4 or 6", spec.ip);
        m.add(at!["topology", "ip"], Error::usage(sentence).hint("ip = 4, or ip = 6"));
    }
    if spec.spray && !spec.ecmp() {
        let err = Error::usage("'spray' needs all shortest paths").hint("ecmp = true");
        m.add(at!["topology", "spray"], err);
    }
}

fn times(scenario: &Scenario, m: &mut Mistakes) {
    let (sample, window) = (scenario.sample(), scenario.jain_window());
    if window < sample && m.is_clean(&["sample"]) && m.is_clean(&["jain_window"]) {
        let sentence = format!("'jain_window', {window}, is shorter than 'sample', {sample}");
        let name = if scenario.jain_window.is_some() { "jain_window" } else { "sample" };
        m.add(at![name], Error::usage(sentence).hint("a longer 'jain_window'"));
    }
    let Some(duration) = scenario.duration else {
        let endless = scenario.flows.iter().position(|flow| flow.bytes == Size(0));
        if let Some(n) = endless {
            let sentence = "a flow without 'bytes' never ends in a scenario without 'duration'";
            if m.reads(&at!["duration"]) {
                m.add(at!["flows", n], Error::usage(sentence).hint("duration = \"10s\""));
            }
        }
        let mut links = scenario.topology.links.iter();
        if let Some(n) = links.position(|link| link.traces() != [None; 2]) {
            let err =
                Error::usage("a trace repeats until the end of the run, which 'duration' sets");
            m.add(at!["topology", "links", n], err.hint("duration = \"60s\""));
        }
        return;
    };
    for (n, event) in scenario.events.iter().enumerate() {
        late(at!["event", n, "at"], "event", event.at, duration, m);
    }
    for (n, run) in scenario.programs.iter().enumerate() {
        late(at!["run", n, "start"], "program", run.start, duration, m);
    }
}

fn late(key: Key, what: &str, at: Time, duration: Time, m: &mut Mistakes) {
    if at >= duration {
        let sentence =
            format!("the {what} at {at} is not before the end of the run, at {duration}");
        m.add(key, Error::usage(sentence).hint("an earlier time, or a longer 'duration'"));
    }
}

fn sysctls(scenario: &Scenario, m: &mut Mistakes) {
    let own = scenario.cc.iter().map(|(name, cc)| (at!["cc", name, "sysctl"], &cc.sysctl));
    let hosts = scenario.host.iter();
    let hosts = hosts.map(|(name, host)| (at!["host", name, "sysctl"], &host.sysctl));
    let all = [(at!["sysctl"], &scenario.sysctl)];
    for (key, sysctls) in all.into_iter().chain(own).chain(hosts) {
        for (name, value) in sysctls {
            let key = [key.clone(), at![name]].concat();
            m.note(key, |_| sysctl::check(name, &scaled(name, value, 1)));
        }
    }
}

fn commands(scenario: &Scenario, m: &mut Mistakes) {
    for (name, host) in &scenario.host {
        for (n, module) in host.modules.iter().enumerate() {
            m.note(at!["host", name, "modules", n], |_| Ok(MODULE.check(module)?));
        }
        for (n, command) in host.setup.iter().enumerate() {
            m.note(at!["host", name, "setup", n], |_| check_command(command));
        }
    }
    for (n, run) in scenario.programs.iter().enumerate() {
        m.note(at!["run", n, "command"], |_| check_command(&run.command));
    }
    if m.is_clean(&["run"]) {
        m.note(at!["run"], |budget| output_files(budget, scenario));
    }
}
