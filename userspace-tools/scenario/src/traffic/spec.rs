// SPDX-License-Identifier: GPL-2.0
//! Keys of `[[traffic]]`.

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_base::units::{Fraction, Size, Time};

use super::Sizes;
use crate::budget::Budget;
use crate::dscp::Dscp;
use crate::expand_all;

/// Keys of all kinds that draw sizes.
pub const SIZES: &[&str] = &["sizes", "intra_sizes", "inter_sizes"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "TrafficKind")]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Many hosts to one, at once.
    Incast,
    /// Repeated incasts.
    Bursts,
    /// Every host sends to one and receives from one.
    Permutation,
    /// Every host sends at random times to random others.
    Poisson,
    /// Messages between pairs of hosts.
    Rpc,
    /// Iterations of an all-to-all or an all-reduce.
    Collective,
    /// Flows of a CSV file.
    File,
    /// Connections of a .cm file of htsim, with its triggers.
    Htsim,
    /// Flows of HPCC's ns-3 simulator.
    Hpcc,
}

/// Flows of a collective's iteration, each of which moves the data of every host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every host sends a part of its data to every other, all at once.
    #[default]
    AllToAll,
    /// All-reduce in a ring.
    Ring,
    /// All-reduce in a binary tree.
    Tree,
}

/// Unit of `start` in a .cm file, which does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartUnit {
    /// Picoseconds: csg-htsim since 2023.
    Ps,
    /// Microseconds: Uno_SC25, and csg-htsim before.
    Us,
}

const START_UNITS: &str = "start_unit = \"ps\" (picoseconds: csg-htsim since 2023), or \
                           start_unit = \"us\" (microseconds: Uno_SC25)";

/// A block of flows. Its kind decides which keys apply: [`TrafficSpec::validate`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficSpec {
    pub kind: Kind,
    /// Senders; for a permutation and for Poisson sources the receivers, too. For files of
    /// simulators the hosts in the order of the file's numbers; default: the network's hosts.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Receiver; an incast draws one of several each time, RPCs have one for each host.
    pub to: Option<String>,
    /// An incast's flows from each of its senders [default: 1].
    pub per_host: Option<usize>,
    /// A file of flows beside the scenario, in the format of the kind.
    pub file: Option<String>,
    /// Unit of `start` in a .cm file.
    pub start_unit: Option<StartUnit>,
    pub sizes: Option<Sizes>,
    /// Sizes of intra-DC and inter-DC flows, if they differ.
    pub intra_sizes: Option<Sizes>,
    pub inter_sizes: Option<Sizes>,
    /// Load of a host's link, as payload; of bursts: of the links of all `hosts`.
    pub load: Option<Fraction>,
    /// Share of flows within the source's datacenter.
    pub local: Option<Fraction>,
    /// Share of a permutation's flows between datacenters.
    pub across: Option<Fraction>,
    /// Number of senders of an incast, of RPCs per pair, otherwise of all flows.
    pub flows: Option<usize>,
    /// Time after `start` at which the last flow may start.
    pub duration: Option<Time>,
    /// Time between bursts, between the messages of a pair, or between the end of a collective's
    /// iteration and the next one.
    pub period: Option<Time>,
    /// Flows of a collective.
    pub pattern: Option<Pattern>,
    /// Number of a collective's iterations [default: 1].
    pub iterations: Option<usize>,
    /// Make the period the mean of exponential gaps.
    #[serde(default)]
    pub random: bool,
    #[serde(default)]
    pub start: Time,
    #[serde(default)]
    pub jitter: Time,
    /// Start when all flows of this group have ended; `start` counts from then.
    pub after: Option<String>,
    /// Reuse connections between two hosts, for one flow at a time.
    #[serde(default)]
    pub persistent: bool,
    /// Group; default: `intra` or `inter`.
    pub group: Option<String>,
    /// DSCP of the flows' packets, in both directions.
    pub dscp: Option<Dscp>,
    #[serde(default)]
    pub sndbuf: Size,
    #[serde(default)]
    pub rcvbuf: Size,
    /// Announce the receivers' windows before the flows start.
    #[serde(default)]
    pub window_known: bool,
}

impl TrafficSpec {
    pub fn all_sizes(&self) -> impl Iterator<Item = &Sizes> {
        let all = [&self.sizes, &self.intra_sizes, &self.inter_sizes];
        all.into_iter().flatten()
    }

    /// Checks required and allowed keys.
    pub fn validate(&self) -> Result<()> {
        let by_class = self.intra_sizes.is_some() && self.inter_sizes.is_some();
        let half = self.intra_sizes.is_some() != self.inter_sizes.is_some();
        let listed = matches!(self.kind, Kind::File | Kind::Htsim | Kind::Hpcc);
        if !listed && (half || by_class == self.sizes.is_some()) {
            return self.refuse("needs 'sizes', or 'intra_sizes' and 'inter_sizes'");
        }
        let (must, may): (&[&str], &[&str]) = match self.kind {
            Kind::Incast => (&["to"], &["flows", "per_host"]),
            Kind::Bursts => (&["to", "duration"], &["period", "load", "flows", "per_host"]),
            Kind::Permutation => (&[], &["across"]),
            Kind::Poisson => (&["load"], &["local", "flows", "duration"]),
            Kind::Rpc => (&["to", "period"], &["random", "flows", "duration"]),
            Kind::Collective => (&["pattern"], &["iterations", "period"]),
            Kind::File => (&["file"], &[]),
            Kind::Htsim => (&["file", "start_unit"], &["hosts"]),
            Kind::Hpcc => (&["file"], &["hosts"]),
        };
        let (must, may) = match listed {
            true => (must.to_vec(), may.to_vec()),
            false => ([must, &["hosts"]].concat(), [may, SIZES].concat()),
        };
        for (key, there) in [
            ("hosts", !self.hosts.is_empty()),
            ("file", self.file.is_some()),
            ("start_unit", self.start_unit.is_some()),
            ("sizes", self.sizes.is_some()),
            ("intra_sizes", self.intra_sizes.is_some()),
            ("inter_sizes", self.inter_sizes.is_some()),
            ("to", self.to.is_some()),
            ("load", self.load.is_some()),
            ("local", self.local.is_some()),
            ("across", self.across.is_some()),
            ("flows", self.flows.is_some()),
            ("per_host", self.per_host.is_some()),
            ("duration", self.duration.is_some()),
            ("period", self.period.is_some()),
            ("random", self.random),
            ("pattern", self.pattern.is_some()),
            ("iterations", self.iterations.is_some()),
        ] {
            if there && !must.contains(&key) && !may.contains(&key) {
                return self.refuse(&format!("takes no '{key}'"));
            }
            if !there && must.contains(&key) {
                let refused = self.refuse(&format!("needs '{key}'"));
                return refused.map_err(|err| match key {
                    "start_unit" => err.hint(START_UNITS),
                    _ => err,
                });
            }
        }
        if self.kind == Kind::Bursts && self.period.is_some() == self.load.is_some() {
            return self.refuse("needs 'period' or 'load', one of them");
        }
        if self.kind == Kind::Collective && self.sizes.is_none() {
            return self.refuse("needs 'sizes': the data of a host in an iteration");
        }
        if self.kind == Kind::Bursts && self.load.is_some() && self.sizes.is_none() {
            return self.refuse("needs 'sizes' beside 'load'");
        }
        let endless = matches!(self.kind, Kind::Poisson | Kind::Rpc);
        if endless && self.flows.is_none() && self.duration.is_none() {
            return self.refuse("needs 'flows' or 'duration'");
        }
        let counts = [self.flows, self.per_host, self.iterations];
        if counts.contains(&Some(0)) {
            return self.refuse("needs 'flows', 'per_host' and 'iterations' above 0");
        }
        if self.kind != Kind::Collective && self.period == Some(Time(0))
            || self.load == Some(Fraction(0))
        {
            return self.refuse("needs a 'period' and a 'load' above 0");
        }
        Ok(())
    }

    fn refuse(&self, why: &str) -> Result<()> {
        Err(Error::usage(format!("[[traffic]] of kind {}: {why}", self.kind.name())))
    }

    pub fn hosts(&self, budget: &Budget) -> Result<Vec<String>> {
        let hosts = expand_all(budget, &self.hosts)?;
        let mut unique = hosts.clone();
        unique.sort();
        unique.dedup();
        if unique.len() != hosts.len() || hosts.is_empty() {
            return Err(Error::usage("[[traffic]] has no hosts, or has one twice"));
        }
        Ok(hosts)
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Incast => "incast",
            Self::Bursts => "bursts",
            Self::Permutation => "permutation",
            Self::Poisson => "poisson",
            Self::Rpc => "rpc",
            Self::Collective => "collective",
            Self::File => "file",
            Self::Htsim => "htsim",
            Self::Hpcc => "hpcc",
        }
    }
}
