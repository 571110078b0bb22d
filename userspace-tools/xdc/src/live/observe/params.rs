// SPDX-License-Identifier: GPL-2.0
//! The algorithms' parameters from their sysctls, for derived values.

use std::fs;

use xdc_algo::ALGORITHMS;
use xdc_algo::entry::Entry;
use xdc_algo::params::ParamSource;

/// Parameters in one network namespace: each algorithm with a loaded module, and its values.
#[derive(Clone, Default)]
pub struct Params(Vec<(&'static Entry, Row)>);

/// The parameters of one algorithm.
#[derive(Clone)]
pub struct Row {
    values: Vec<u32>,
    /// Shortest RTT of the namespace's flows, for parameters that leave it open.
    shortest_rtt_us: u32,
    /// Index of the closest profile.
    profile: usize,
}

impl ParamSource for Row {
    fn value(&self, row: usize) -> u32 {
        self.values.get(row).copied().unwrap_or_default()
    }

    fn shortest_rtt_us(&self) -> u32 {
        self.shortest_rtt_us
    }
}

impl Row {
    fn read(algorithm: &Entry, read: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let rows = algorithm.params.iter();
        let values: Option<Vec<u32>> = rows.map(|row| read(row.name())?.parse().ok()).collect();
        let values = values?;
        // The first of equally close profiles: the default, if it is one of them.
        let profiles = 0..algorithm.profiles.len();
        let profile = profiles.min_by_key(|profile| deviations(algorithm, &values, *profile))?;
        let shortest_rtt_us = read("shortest_rtt_us").and_then(|us| us.parse().ok());
        Some(Self { values, shortest_rtt_us: shortest_rtt_us.unwrap_or_default(), profile })
    }

    pub fn profile_name(&self, algorithm: &Entry) -> &'static str {
        algorithm.profiles().nth(self.profile).unwrap_or_default()
    }

    /// Whether a parameter deviates from the profile.
    pub fn is_modified(&self, algorithm: &Entry) -> bool {
        deviations(algorithm, &self.values, self.profile) != 0
    }
}

/// Number of parameters that deviate from a profile.
fn deviations(algorithm: &Entry, values: &[u32], profile: usize) -> usize {
    let rows = algorithm.params.iter().zip(values);
    rows.filter(|(row, value)| row.defaults.get(profile) != Some(value)).count()
}

impl Params {
    /// Reads the parameters in the thread's namespace.
    pub fn read() -> Self {
        Self::of(|algorithm, name| {
            let path = format!("/proc/sys/net/{}/{name}", algorithm.name());
            Some(fs::read_to_string(path).ok()?.trim().to_owned())
        })
    }

    /// Parameters obtained by `read`.
    pub fn of(read: impl Fn(&Entry, &str) -> Option<String>) -> Self {
        let row = |algorithm| Row::read(algorithm, |name| read(algorithm, name));
        let all = ALGORITHMS.iter();
        Self(all.filter_map(|&algorithm| Some((algorithm, row(algorithm)?))).collect())
    }

    pub fn get(&self, algorithm: &Entry) -> Option<&Row> {
        let mut all = self.0.iter();
        let found = all.find(|(known, _)| known.name == algorithm.name)?;
        Some(&found.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sysctl values of a profile.
    fn sysctl(algorithm: &Entry, profile: usize) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let row = algorithm.params.iter().find(|row| row.name() == name)?;
            Some(row.defaults[profile].to_string())
        }
    }

    #[test]
    fn every_profile_is_recognized() {
        for algorithm in ALGORITHMS {
            for (profile, name) in algorithm.profiles().enumerate() {
                let read = Row::read(algorithm, sysctl(algorithm, profile)).unwrap();
                assert_eq!(read.profile_name(algorithm), name);
                assert!(!read.is_modified(algorithm));
            }
        }
    }

    #[test]
    fn a_modified_parameter_is_noticed() {
        let unocc = &xdc_algo::unocc::ENTRY;
        let paper = sysctl(unocc, 0);
        let read = Row::read(unocc, |name| match name {
            "line_rate_mbps" => Some("1000".to_owned()),
            "shortest_rtt_us" => Some("14".to_owned()),
            name => paper(name),
        });
        let read = read.unwrap();
        assert!(read.is_modified(unocc));
        assert_eq!(read.profile_name(unocc), "paper");
        assert_eq!(read.value(0), 1000);
        assert_eq!(read.shortest_rtt_us(), 14);
    }

    #[test]
    fn a_module_that_is_not_loaded_has_no_parameters() {
        for read in [None, Some("nonsense".to_owned())] {
            let params = Params::of(|_, _| read.clone());
            assert!(params.get(&xdc_algo::unocc::ENTRY).is_none());
        }
    }
}
