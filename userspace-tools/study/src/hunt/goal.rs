// SPDX-License-Identifier: GPL-2.0
//! Goals of a search: a measure, when it is a failure, and when a reference does well.

use std::str::FromStr;

use xdc_base::text::nearest;
use xdc_measure::run::Run;
use xdc_metric::metric::{Metric, Unknown};

use super::case::Case;
use super::space::{Key, PACKET_BITS};
use crate::score::row::Better;

/// A goal of `--goal`.
#[derive(Debug, Clone)]
pub struct Goal {
    pub name: String,
    what: What,
    /// Direction of good values.
    better: Better,
    limits: Limits,
}

/// Bounds of values.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Better values are equal to this one.
    best: f64,
    /// Worst value of a reference that does well.
    good: f64,
    /// Worse values are equal to this one.
    worst: f64,
}

/// A row of the goals' table.
pub struct Known {
    pub name: &'static str,
    what: What,
    better: Better,
    limits: Limits,
    pub meaning: &'static str,
}

use Better::{Higher, Lower};

macro_rules! goals {
    ($($what:ident $name:literal $better:ident $best:literal $good:literal $worst:literal, $meaning:literal;)*) => {
        #[derive(Debug, Clone, PartialEq)]
        enum What {
            $($what,)*
            Metric(Metric),
        }

        pub static GOALS: &[Known] = &[$(Known {
            name: $name,
            what: What::$what,
            better: $better,
            limits: Limits { best: $best, good: $good, worst: $worst },
            meaning: $meaning,
        }),*];
    };
}

goals! {
    Utilisation "utilisation" Higher 1.0 0.75 0.01, "goodput of all flows over the path's capacity";
    Delay "delay" Lower 1.0 1.5 100.0, "base RTT with the mean queue of the second half, over the base RTT";
    Stall "stall" Lower 4.0 10.0 1000.0, "longest time in which a flow receives nothing, in longest base RTTs";
    Drops "drops" Lower 0.001 0.01 1.0, "drops of the port in the second half, as a share of its packets";
    Unfair "unfair" Higher 1.0 0.9 0.01, "Jain's index of flows with equal RTTs, in the second half";
    RttUnfair "rtt-unfair" Lower 1.0 2.5 1000.0, "goodput per flow of one RTT over the other's, the larger ratio";
    Harm "harm" Higher 1.0 0.6 0.01, "share of the first of --against's flows beside it, over their equal share";
    Slowdown "slowdown" Lower 1.0 5.0 1000.0, "95th percentile of messages' completion times over the ideal";
}

/// Utilization that a reference needs whatever the goal is.
const HEALTHY: f64 = 0.5;
/// The same for goals about queues and drops, which an idle port does not have.
const BUSY: f64 = 0.75;

impl FromStr for Goal {
    type Err = String;

    /// A name of [`GOALS`], or `high:METRIC` or `low:METRIC` for a metric that fails that way.
    fn from_str(text: &str) -> Result<Self, String> {
        let goal = |what, better, limits| Self { name: text.to_owned(), what, better, limits };
        if let Some(known) = GOALS.iter().find(|known| known.name == text) {
            return Ok(goal(known.what.clone(), known.better, known.limits));
        }
        let of = |metric: &str, better, [best, good, worst]: [f64; 3]| {
            let metric: Metric = metric.parse().map_err(|unknown: Unknown| unknown.to_string())?;
            let limits = Limits { best, good, worst };
            Ok(goal(What::Metric(metric), better, limits))
        };
        match text.split_once(':') {
            Some(("high", metric)) => of(metric, Lower, [1e-6, f64::INFINITY, f64::INFINITY]),
            Some(("low", metric)) => of(metric, Higher, [f64::INFINITY, 0.0, 1e-6]),
            _ => {
                let names: Vec<_> = GOALS.iter().map(|known| known.name).collect();
                let near = nearest(text, &names).map(|near| format!("; '{near}'?"));
                Err(format!(
                    "a goal is one of {}, or high:METRIC or low:METRIC{}",
                    names.join(", "),
                    near.unwrap_or_default()
                ))
            }
        }
    }
}

impl Goal {
    /// The name without characters that file names cannot have everywhere.
    pub fn file_name(&self) -> String {
        self.name.replace(':', "-")
    }

    /// Metric of summary.json behind the value, and the bound that a good value satisfies.
    pub fn expectation(&self, run: &Run) -> (&str, &'static str) {
        let metric = match &self.what {
            What::Utilisation => "goodput_mbps",
            What::Delay => "settled.queue_bytes.mean",
            What::Stall => "longest_stall_us",
            What::Drops => "settled.drops",
            What::Unfair => "jain_steady",
            What::RttUnfair => {
                let steady =
                    |name: &str| run.groups.get(name).and_then(|it| it.goodput_steady_mbps);
                return match steady("near") < steady("far") {
                    true => ("groups.near.goodput_steady_mbps", "min"),
                    false => ("groups.far.goodput_steady_mbps", "min"),
                };
            }
            What::Harm => "groups.victim.goodput_steady_mbps",
            What::Slowdown => "groups.messages.slowdown.p95",
            What::Metric(metric) => metric.name(),
        };
        let bound = match self.better {
            Higher => "min",
            Lower => "max",
        };
        (metric, bound)
    }

    /// The measure in words.
    pub fn meaning(&self) -> &str {
        match &self.what {
            What::Metric(metric) => metric.meaning(),
            _ => GOALS.iter().find(|it| it.name == self.name).map_or("", |it| it.meaning),
        }
    }

    /// Features that every case of the goal has.
    pub fn features(&self) -> Vec<Key> {
        let mut case = Case::neutral();
        self.adjust(&mut case);
        case.features()
    }

    /// Whether flows of another congestion control take part.
    pub fn has_victim(&self) -> bool {
        self.what == What::Harm
    }

    /// Makes the case fit the measure: flows that it compares exist, others do not.
    pub fn adjust(&self, case: &mut Case) {
        let least = |case: &mut Case, key: Key, least: f64| case.set(key, case.get(key).max(least));
        let off: &[Key] = match self.what {
            What::Utilisation | What::Metric(_) | What::Slowdown => &[],
            What::Delay | What::Drops => &[Key::MessageLoad, Key::PolicerShare],
            What::Stall => &[Key::MessageLoad, Key::PauseFlows, Key::Outage],
            What::Unfair => &[Key::MessageLoad, Key::PauseFlows, Key::FarFlows],
            What::RttUnfair => {
                &[Key::MessageLoad, Key::PauseFlows, Key::ReceiverBdp, Key::JoinShare]
            }
            What::Harm => &[Key::MessageLoad, Key::PauseFlows, Key::FarFlows, Key::ReceiverBdp],
        };
        off.iter().for_each(|key| case.drop_feature(*key));
        match self.what {
            What::Unfair => least(case, Key::NearFlows, 2.0),
            What::RttUnfair => {
                least(case, Key::FarFlows, 1.0);
                least(case, Key::FarRatio, 2.0);
            }
            What::Slowdown => least(case, Key::MessageLoad, 0.05),
            _ => {}
        }
        if !self.has_victim() {
            case.drop_feature(Key::VictimFlows);
        }
    }

    /// Value of a run between the best and the worst that count; None if it has none.
    pub fn value(&self, run: &Run, case: &Case) -> Option<f64> {
        let group = |name: &str| run.groups.get(name);
        let steady = |name: &str| group(name)?.goodput_steady_mbps;
        let value = match &self.what {
            What::Utilisation => utilisation(run, case),
            What::Delay => {
                let bytes = run.settled.as_ref()?.queue_bytes.mean?;
                let queue_us = bytes * 8.0 / case.get(Key::RateMbps);
                1.0 + queue_us / case.get(Key::RttUs)
            }
            What::Stall => run.longest_stall_us? / case.longest_rtt_us(),
            What::Drops => {
                let drops = run.settled.as_ref()?.drops as f64;
                let fits = case.get(Key::RateMbps) * case.duration_us / 2.0 / PACKET_BITS;
                drops / (drops + fits)
            }
            What::Unfair => run.jain_steady?,
            What::RttUnfair => {
                let near = steady("near")? / case.get(Key::NearFlows);
                let far = steady("far")? / case.get(Key::FarFlows);
                (near / far).max(far / near)
            }
            What::Harm => {
                let (own, others) = (case.get(Key::VictimFlows), case.get(Key::NearFlows));
                let equal = case.capacity_mbps() * own / (own + others);
                steady("victim")? / equal
            }
            What::Slowdown => {
                let messages = &group("messages")?.completion;
                let counted = messages.flows.saturating_sub(messages.warmup);
                // Times of messages without an end are unknown but long.
                match messages.unfinished * 20 > counted {
                    true => self.limits.worst,
                    false => messages.slowdown.p95?,
                }
            }
            What::Metric(metric) => metric.of(run)?,
        };
        let Limits { best, worst, .. } = self.limits;
        let (low, high) = match self.better {
            Higher => (worst, best),
            Lower => (best, worst),
        };
        (!value.is_nan()).then(|| value.clamp(low, high))
    }

    /// Returns how many times the value is worse than the reference's.
    pub fn times_worse(&self, value: f64, reference: f64) -> f64 {
        match self.better {
            Higher => reference / value,
            Lower => value / reference,
        }
    }

    /// Upper bound of [`Self::times_worse`] for any reference.
    pub fn most_times_worse(&self, value: f64) -> f64 {
        self.times_worse(value, self.limits.best)
    }

    /// Share by which a reference fails to do well; 0 or less if it does.
    pub fn shortfall(&self, value: f64, run: &Run, case: &Case) -> f64 {
        let needed = match self.what {
            What::Delay | What::Drops => BUSY,
            _ => HEALTHY,
        };
        let idle = 1.0 - utilisation(run, case) / needed;
        let bad = match self.better {
            Higher => 1.0 - value / self.limits.good,
            Lower => value / self.limits.good - 1.0,
        };
        let bad = if bad.is_nan() { f64::NEG_INFINITY } else { bad };
        bad.max(idle)
    }
}

pub fn utilisation(run: &Run, case: &Case) -> f64 {
    run.goodput_mbps / case.capacity_mbps()
}
