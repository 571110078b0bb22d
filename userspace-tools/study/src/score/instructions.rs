// SPDX-License-Identifier: GPL-2.0
//! The scorecard's row without a scenario: instructions per ACK of the scored congestion control
//! and the references, counted by `xdc bench`'s guest in emulated boots.

use std::time::Duration;

use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_proto::Job;
use xdc_scenario::Scenario;
use xdc_scenario::plan;

use super::card::{Asked, Cell, Samples};
use super::row::Better;
use super::store::Sample;
use crate::bench::{self, Counted};

/// Name of the metric.
pub const METRIC: &str = "instructions per ACK";

/// Boots per count; counts of two boots differ by less than 1 %.
const BOOTS: u64 = 2;

/// The row's only cell. `scenario` defines the congestion controls and their sysctls.
pub fn cell(
    home: &Home,
    row: &str,
    (cc, references): (&str, &[String]),
    scenario: &Scenario,
    timeout: Duration,
) -> Result<Cell> {
    let names: Vec<&str> = [cc].into_iter().chain(references.iter().map(String::as_str)).collect();
    let flows: Vec<Counted> =
        names.iter().map(|name| counted(scenario, name)).collect::<Result<_>>()?;
    let mut samples = Samples::new();
    for boot in 1..=BOOTS {
        let counts = bench::per_ack(home, timeout, &flows)?;
        for (name, count) in names.iter().zip(counts) {
            let sample = Sample {
                raw: count.map(|count| (METRIC.to_owned(), count)).into_iter().collect(),
                flows: 1,
                unfinished: 0,
                suspect: false,
            };
            samples.insert(((*name).to_owned(), boot), sample);
        }
    }
    Ok(judged(row, cc, &samples))
}

/// The cell on a machine that cannot count.
pub fn none(row: &str, cc: &str) -> Cell {
    judged(row, cc, &Samples::new())
}

fn judged(row: &str, cc: &str, samples: &Samples) -> Cell {
    let asked = Asked { row, at: &[], metric: METRIC, better: Better::Lower, ideal: 1.0 };
    asked.of(cc, samples, |raw| raw.get(METRIC).copied())
}

/// Modules and sysctls that a run of the scenario would use for a congestion control.
fn counted(scenario: &Scenario, name: &str) -> Result<Counted> {
    let plan = plan::plan(scenario, name, 1, 1)?;
    let refused =
        |why: &str| Error::usage(format!("instructions of '{name}' cannot be counted: {why}"));
    let Job::Run(run) = plan.job else {
        return Err(refused("its plan is not a run"));
    };
    if run.topology.congctl.is_some() {
        return Err(refused("it has two congestion controls"));
    }
    if !plan.bpf.is_empty() {
        return Err(refused("it is a BPF program"));
    }
    let mut ecn = "0".to_owned();
    let mut sysctls = Vec::new();
    for (name, value) in run.topology.sysctls {
        match name.as_str() {
            "net.ipv4.tcp_ecn" => ecn = value,
            _ if is_own(&name) => sysctls.push(format!("{name}={value}")),
            _ => {}
        }
    }
    Ok(Counted {
        cc: run.cc,
        ecn,
        modules: plan.modules.into_iter().filter(|module| module.starts_with("tcp_")).collect(),
        sysctls,
    })
}

/// Returns whether a sysctl belongs to a congestion control, not to the kernel.
fn is_own(sysctl: &str) -> bool {
    let of_kernel = ["net.ipv4.", "net.ipv6.", "net.core."];
    !of_kernel.iter().any(|prefix| sysctl.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::card::Verdict;

    #[test]
    fn a_guest_gets_module_and_sysctls() {
        let home = xdc_base::testing::home();
        let net = home.scenarios().join("score/net/base.toml");
        let scenario = xdc_scenario::load(None, &net.to_string_lossy(), &[]).unwrap().scenario;
        let told = counted(&scenario, "unocc-artifact").unwrap();
        assert_eq!((told.cc.as_str(), told.ecn.as_str()), ("unocc", "3"));
        assert_eq!(told.modules, ["tcp_unocc"]);
        let set = |what: &str| told.sysctls.iter().any(|sysctl| sysctl == what);
        assert!(set("net.unocc.profile=artifact") && set("net.unocc.line_rate_mbps=1000"));
        let cubic = counted(&scenario, "cubic").unwrap();
        assert_eq!((cubic.cc.as_str(), cubic.sysctls.len()), ("cubic", 0));
        assert!(counted(&scenario, "bbr-dctcp").is_err());
    }

    #[test]
    fn a_cell_without_counts_is_missing() {
        assert_eq!(none("S14", "mine").verdict, Verdict::Missing);
    }
}
