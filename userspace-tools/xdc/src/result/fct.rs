// SPDX-License-Identifier: GPL-2.0
//! Completion times of a set of flows: as measured, and against what an idle path allows.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xdc_proto::{Flow, FlowResult};

use crate::result::record::Record;
use crate::result::summary::{mean, percentile};

/// Of flows that have a size; those without one never complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    pub flows: usize,
    /// The run's end cut them off. They are in no other figure.
    pub unfinished: usize,
    pub fct_us: Spread,
    /// FCT over the ideal of the path.
    pub slowdown: Spread,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            mean: mean(&values),
            p50: percentile(&values, 50.0),
            p95: percentile(&values, 95.0),
            p99: percentile(&values, 99.0),
            max: values.last().copied(),
        }
    }
}

impl Completion {
    /// Of flows by their indices.
    pub fn of(record: &Record, flows: &[usize]) -> Self {
        let pairs = || {
            flows
                .iter()
                .map(|&i| (&record.flows[i], &record.plan.flows[i]))
        };
        let open =
            |&(result, flow): &(&FlowResult, &Flow)| flow.bytes > 0 && result.end_ns.is_none();
        Self {
            flows: flows.len(),
            unfinished: pairs().filter(open).count(),
            fct_us: Spread::of(pairs().filter_map(|(r, f)| fct_us(r, f)).collect()),
            slowdown: Spread::of(pairs().filter_map(|(r, f)| slowdown(r, f)).collect()),
        }
    }
}

fn fct_us(result: &FlowResult, flow: &Flow) -> Option<f64> {
    let fct_ns = result.fct_ns().filter(|_| flow.bytes > 0)?;
    Some(fct_ns as f64 / 1e3)
}

/// FCT over the ideal.
pub fn slowdown(result: &FlowResult, flow: &Flow) -> Option<f64> {
    let ideal_us = flow.ideal_ns as f64 / 1e3;
    (flow.ideal_ns > 0).then_some(fct_us(result, flow)? / ideal_us)
}

/// Of flows, by how much they send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeClass {
    Small,
    Medium,
    Large,
}

impl SizeClass {
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

impl FromStr for SizeClass {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|class| class.name() == name).ok_or(())
    }
}

/// Where small flows end and large ones begin.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SizeClasses {
    /// Below this a flow is small.
    pub small_below_bytes: u64,
    /// Above this it is large.
    pub large_above_bytes: u64,
}

impl SizeClasses {
    fn class(self, bytes: u64) -> SizeClass {
        if bytes < self.small_below_bytes {
            SizeClass::Small
        } else if bytes <= self.large_above_bytes {
            SizeClass::Medium
        } else {
            SizeClass::Large
        }
    }

    /// Of those classes that have flows.
    pub fn completions(self, record: &Record, flows: &[usize]) -> BTreeMap<SizeClass, Completion> {
        let mut members: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &flow in flows {
            let bytes = record.plan.flows[flow].bytes;
            if bytes > 0 {
                members.entry(self.class(bytes)).or_default().push(flow);
            }
        }
        members
            .into_iter()
            .map(|(class, flows)| (class, Completion::of(record, &flows)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::record::tests::recorded;

    #[test]
    fn sizes_have_classes() {
        let classes = SizeClasses {
            small_below_bytes: 100_000,
            large_above_bytes: 1_000_000,
        };
        for (bytes, class) in [
            (1, SizeClass::Small),
            (99_999, SizeClass::Small),
            (100_000, SizeClass::Medium),
            (1_000_000, SizeClass::Medium),
            (1_000_001, SizeClass::Large),
        ] {
            assert_eq!(classes.class(bytes), class, "{bytes}");
        }
    }

    #[test]
    fn slowdown_is_against_the_ideal_and_the_unfinished_are_counted() {
        let mut record = recorded();
        record.plan.flows[0].ideal_ns = 8_000_000;
        record.plan.flows[1].ideal_ns = 10_000_000;
        let both = Completion::of(&record, &[0, 1]);
        assert_eq!(
            (both.slowdown.mean, both.slowdown.max),
            (Some(2.0), Some(2.0))
        );
        assert_eq!(both.fct_us.p50, Some(16_000.0));
        assert_eq!(both.unfinished, 0);
        record.flows[1].end_ns = None;
        let one = Completion::of(&record, &[0, 1]);
        assert_eq!((one.flows, one.unfinished), (2, 1));
        assert_eq!(one.fct_us.max, Some(16_000.0));
        let classes = record.sizes.completions(&record, &[0, 1]);
        assert_eq!(
            classes.keys().copied().collect::<Vec<_>>(),
            [SizeClass::Large]
        );
    }
}
