// SPDX-License-Identifier: GPL-2.0
//! The sysctls of our modules, judged by the modules' own tables before a guest is started.

use std::ffi::CStr;

use xdc_algo::params::ParamInfo;
use xdc_algo::{gemini, unocc};

use crate::error::{Error, Result};

/// Refuse what the kernel would; other people's sysctls are for the kernel to judge.
pub fn check(name: &str, value: &str) -> Result<()> {
    if let Some(key) = name.strip_prefix("net.unocc.") {
        check_param(unocc::PARAMS, &unocc::Profile::NAMES, key, value)
    } else if let Some(key) = name.strip_prefix("net.gemini.") {
        check_param(gemini::PARAMS, &[], key, value)
    } else {
        Ok(())
    }
    .map_err(|err| err.about(format!("{name} = {value}")))
}

fn check_param<const N: usize>(
    params: &[ParamInfo<N>],
    profiles: &[&CStr],
    key: &str,
    value: &str,
) -> Result<()> {
    if key == "profile" && !profiles.is_empty() {
        let is_one = profiles
            .iter()
            .any(|name| name.to_bytes() == value.as_bytes());
        return check_that(is_one, "no such profile", || {
            names(profiles.iter().copied())
        });
    }
    let param = params
        .iter()
        .find(|param| param.name.to_bytes() == key.as_bytes());
    let Some(param) = param else {
        let all = params.iter().map(|param| param.name);
        return check_that(false, "no such sysctl", || names(all));
    };
    let is_in_range = value
        .parse::<u32>()
        .is_ok_and(|number| (param.min..=param.max).contains(&number));
    check_that(is_in_range, "out of range", || {
        format!("{} to {} ({})", param.min, param.max, param.unit)
    })
}

fn check_that(holds: bool, what: &str, hint: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::usage(what).hint(hint()))
    }
}

fn names<'a>(names: impl Iterator<Item = &'a CStr>) -> String {
    let names: Vec<_> = names.map(CStr::to_string_lossy).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_for_sysctl_d_is_taken() {
        let text = include_str!("../../../docs/examples/60-xdc.conf");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs: Vec<_> = lines.filter_map(|line| line.split_once('=')).collect();
        let ours = pairs
            .iter()
            .filter(|(name, _)| name.starts_with("net.unocc."));
        assert_eq!(ours.count(), 2);
        for (name, value) in pairs {
            assert!(check(name.trim(), value.trim()).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_modules_tables_decide() {
        for (name, value) in [
            ("net.unocc.intra_rtt_us", "14"),
            ("net.unocc.profile", "paper"),
            ("net.gemini.k_bytes", "0"),
            ("net.ipv4.tcp_rmem", "4096 16777216 536870912"),
        ] {
            assert!(check(name, value).is_ok(), "{name}");
        }
        for (name, value) in [
            ("net.unocc.intra_rtt_us", "0"),
            ("net.unocc.intra_rtt_us", "-1"),
            ("net.unocc.intra_rtt_us", "fast"),
            ("net.unocc.intra_rtt", "14"),
            ("net.unocc.profile", "best"),
            ("net.gemini.profile", "paper"),
            ("net.gemini.line_rate_mbps", "1000001"),
        ] {
            assert!(check(name, value).is_err(), "{name}");
        }
    }
}
