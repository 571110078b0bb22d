// SPDX-License-Identifier: GPL-2.0
//! Checks flows between existing hosts.

use xdc_base::error::{Error, Key};

use super::Mistakes;
use super::network::Network;
use crate::plan::single_cc;
use crate::{Scenario, at, expand, pairs};

pub fn check(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    flows(scenario, network, m);
    for (n, spec) in scenario.traffic.iter().enumerate() {
        for (i, pattern) in spec.hosts.iter().enumerate() {
            hosts(at!["traffic", n, "hosts", i], pattern, network, m);
        }
        if let Some(to) = &spec.to {
            hosts(at!["traffic", n, "to"], to, network, m);
        }
    }
    let is_silent = scenario.flows.is_empty() && scenario.traffic.is_empty();
    if is_silent && scenario.programs.is_empty() && m.reads(&at!["flows"]) {
        let err = Error::usage("the scenario has no flow");
        m.add(Key::new(), err.hint("[[flows]], [[traffic]] or [[run]]"));
    }
}

fn hosts(key: Key, pattern: &str, network: &Network, m: &mut Mistakes) -> bool {
    let checked = m.note(key, |budget| {
        let names = expand(budget, pattern)?;
        names.iter().try_for_each(|name| network.check(name, false))
    });
    checked.is_some()
}

fn flows(scenario: &Scenario, network: &Network, m: &mut Mistakes) {
    for (n, spec) in scenario.flows.iter().enumerate() {
        let ccs =
            [("cc", &spec.cc), ("sender_cc", &spec.sender_cc), ("receiver_cc", &spec.receiver_cc)];
        for (name, cc) in ccs {
            if let Some(cc) = cc {
                m.note(at!["flows", n, name], |_| single_cc(scenario, cc));
            }
        }
        for (i, switch) in spec.switch.iter().enumerate() {
            if let Some(cc) = &switch.cc {
                let key = at!["flows", n, "switch", i, "cc"];
                m.note(key, |_| single_cc(scenario, cc));
            }
        }
        let src = hosts(at!["flows", n, "src"], &spec.src, network, m);
        let dst = hosts(at!["flows", n, "dst"], &spec.dst, network, m);
        if !src || !dst {
            continue;
        }
        let pairs = m.note(at!["flows", n], |budget| pairs(budget, &spec.src, &spec.dst));
        let pairs = pairs.unwrap_or_default();
        if let Some((name, _)) = pairs.iter().find(|(src, dst)| src == dst) {
            let err = Error::usage(format!("a flow leads from '{name}' to itself"));
            m.add(at!["flows", n, "dst"], err.hint("another host"));
        }
    }
}
