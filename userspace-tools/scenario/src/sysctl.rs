// SPDX-License-Identifier: GPL-2.0
//! Checks sysctls of our modules against the modules' own tables, before a guest starts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use xdc_algo::ALGORITHMS;
use xdc_algo::entry::Entry;
use xdc_algo::params::ParamInfo;
use xdc_algo::tlt;
use xdc_base::error::{Error, Result};
use xdc_base::text::nearest;
use xdc_proto::privileged;

/// Refuses sysctls outside a network namespace, and values that our modules would refuse; other
/// modules' values are left to the kernel.
pub fn check(name: &str, value: &str) -> Result<()> {
    if xdc_proto::sysctl_path(name).is_none() {
        let shared = ["kernel.", "vm.", "fs.", "dev.", "user.", "abi.", "debug."];
        let what = match shared.iter().any(|prefix| name.starts_with(prefix)) {
            true => "belongs to the whole machine",
            false => "is not a sysctl of a network namespace",
        };
        return Err(Error::usage(format!("{name} {what}"))
            .hint("net. and words of letters, digits, _ and -: net.ipv4.tcp_ecn"));
    }
    privileged::check_sysctl(name, value)?;
    let checked = if let Some((algorithm, key)) = of_algorithm(name) {
        check_param(algorithm, key, value)
    } else if let Some(key) = name.strip_prefix(TLT) {
        check_row(tlt::PARAMS, key, value)
    } else {
        check_kernels(name, value)
    };
    checked.map_err(|err| err.about(format!("{name} = {value}")))
}

/// Refuses a likely typo of one of the kernel's names, and a text for a number. Other names may
/// belong to a module or another kernel.
fn check_kernels(name: &str, value: &str) -> Result<()> {
    static KNOWN: LazyLock<BTreeMap<&str, bool>> = LazyLock::new(|| {
        let lines = include_str!("sysctls.txt").lines();
        let lines = lines.filter(|line| line.starts_with("net."));
        let known =
            lines.map(|line| line.strip_suffix(" -").map_or((line, false), |name| (name, true)));
        known.collect()
    });
    match KNOWN.get(name) {
        Some(true) => Ok(()),
        Some(false) => {
            let mut words = value.split_whitespace();
            let is_number =
                !value.trim().is_empty() && words.all(|word| word.parse::<i64>().is_ok());
            check_that(is_number, "not a number", || "a number, or several".to_owned())
        }
        None => {
            let group = name.rsplit_once('.').map_or("", |(group, _)| group);
            let last = |name: &'static str| name.strip_prefix(group)?.strip_prefix('.');
            let beside: Vec<_> = KNOWN.keys().filter_map(|known| last(known)).collect();
            let own = name.strip_prefix(group).unwrap_or(name).trim_start_matches('.');
            let near =
                nearest(own, &beside).filter(|near| strsim::damerau_levenshtein(near, own) <= 2);
            check_that(near.is_none(), "no such sysctl", || {
                format!("'{group}.{}'", near.unwrap_or_default())
            })
        }
    }
}

/// Prefix of a module that is no algorithm.
const TLT: &str = "net.tlt.";

/// Algorithm with this sysctl, and the parameter's name.
fn of_algorithm(name: &str) -> Option<(&'static Entry, &str)> {
    let mut all = ALGORITHMS.iter();
    all.find_map(|&algorithm| Some((algorithm, algorithm.key(name)?)))
}

/// Unit of a parameter of our algorithms.
pub fn unit(name: &str) -> Option<&'static str> {
    let (algorithm, key) = of_algorithm(name)?;
    let param = algorithm.params.iter().find(|param| param.name() == key)?;
    Some(param.unit)
}

/// Returns whether the sysctl concerns only hosts, not routers.
pub fn is_of_hosts(name: &str) -> bool {
    name.starts_with("net.ipv4.tcp_") || name.starts_with(TLT) || of_algorithm(name).is_some()
}

/// A profile that became an algorithm: old name and algorithm.
pub const MOVED_PROFILE: (&str, &str) = ("unocc-linux", "toll");

fn check_param(algorithm: &Entry, key: &str, value: &str) -> Result<()> {
    if key == "profile" && algorithm.has_profiles() {
        let (moved, to) = MOVED_PROFILE;
        let is_moved = format!("{}-{value}", algorithm.name()) == moved;
        if is_moved {
            let what = format!("profile '{value}' is now the algorithm '{to}'");
            return Err(Error::usage(what).hint(format!("--cc {to}")));
        }
        let is_one = algorithm.profiles().any(|name| name == value);
        return check_that(is_one, "no such profile", || names(algorithm.profiles()));
    }
    check_row(algorithm.params, key, value)
}

fn check_row(params: &[ParamInfo], key: &str, value: &str) -> Result<()> {
    let Some(param) = params.iter().find(|param| param.name() == key) else {
        let all: Vec<_> = params.iter().map(ParamInfo::name).collect();
        return check_that(false, "no such sysctl", || match nearest(key, &all) {
            Some(near) => format!("'{near}'"),
            None => all.join(", "),
        });
    };
    let is_in_range =
        value.parse::<u32>().is_ok_and(|number| (param.min..=param.max).contains(&number));
    check_that(is_in_range, "out of range", || {
        format!("{} to {} ({})", param.min, param.max, param.unit)
    })
}

fn check_that(holds: bool, what: &str, hint: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::usage(what).hint(hint())) }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sysctl_d_example_is_valid() {
        let text = include_str!("../../../docs/examples/60-xdc.conf");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs: Vec<_> = lines.filter_map(|line| line.split_once('=')).collect();
        let ours = pairs.iter().filter(|(name, _)| name.starts_with("net.toll."));
        assert_eq!(ours.count(), 1);
        for (name, value) in pairs {
            assert!(check(name.trim(), value.trim()).is_ok(), "{name}");
        }
    }

    #[test]
    fn every_algorithm_has_units_for_scaling() {
        for algorithm in ALGORITHMS {
            for param in algorithm.params {
                let name = format!("net.{}.{}", algorithm.name(), param.name());
                assert_eq!(unit(&name), Some(param.unit));
                assert!(is_of_hosts(&name));
                for (end, unit) in [("_us", "us"), ("_ms", "ms"), ("_mbps", "Mbit/s")] {
                    assert_eq!(name.ends_with(end), param.unit == unit, "{name}");
                }
            }
        }
        assert_eq!(unit("net.ipv4.tcp_rto_min_us"), None);
        assert!(is_of_hosts("net.ipv4.tcp_ecn") && !is_of_hosts("net.ipv4.ip_forward"));
    }

    #[test]
    fn values_are_checked_against_the_parameter_tables() {
        for (name, value) in [
            ("net.unocc.intra_rtt_us", "14"),
            ("net.unocc.intra_rtt_us", "0"),
            ("net.unocc.profile", "paper"),
            ("net.gemini.k_bytes", "0"),
            ("net.tlt.enabled", "1"),
            ("net.gemini_err.k_bytes", "0"),
            ("net.gemini_err.max_error_us", "1000000"),
            ("net.ipv4.tcp_rmem", "4096 16777216 536870912"),
            ("net.ipv4.tcp_congestion_control", "reno"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.mine.tcp_sackk", "1"),
        ] {
            assert!(check(name, value).is_ok(), "{name}");
        }
        for (name, value) in [
            ("net.unocc.intra_rtt_us", "-1"),
            ("net.unocc.intra_rtt_us", "fast"),
            ("/etc/crontab", "* * * * * root touch /tmp/owned"),
            (".etc.crontab", "1"),
            ("kernel.core_pattern", "|/tmp/evil %p"),
            ("vm.swappiness", "11"),
            ("net.ipv4./etc/x", "1"),
            ("net.unocc.intra_rtt", "14"),
            ("net.unocc.profile", "best"),
            ("net.unocc.profile", "linux"),
            ("net.ipv4.tcp_sackk", "1"),
            ("net.ipv4.tcp_sack", "yes"),
            ("net.ipv4.tcp_congestion_control", "../cubic"),
            ("net.core.default_qdisc", "-x"),
            ("net.ipv4.tcp_rmem", "4096 large 1"),
            ("net.core.somaxcon", "1"),
            ("net.gemini.profile", "artifact"),
            ("net.tlt.enabled", "2"),
            ("net.tlt.dscp", "8"),
            ("net.gemini.line_rate_mbps", "1000001"),
            ("net.gemini.max_error_us", "1"),
            ("net.gemini_err.max_error_us", "1000001"),
            ("net.gemini_err.k_packets_per_gbps", "0"),
        ] {
            assert!(check(name, value).is_err(), "{name}");
        }
        let moved = check("net.unocc.profile", "linux").unwrap_err();
        assert!(moved.to_string().contains("algorithm 'toll'"), "{moved}");
    }
}
