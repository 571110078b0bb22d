// SPDX-License-Identifier: GPL-2.0
//! Metrics of a run, as names of the rows of [`super::table`].
//!
//! A [`Metric`] is a name validated against the table when its TOML or command line is read. Values
//! are those of the scenario's network, since records are unscaled.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use xdc_base::text::nearest;
use xdc_base::text_schema;
use xdc_measure::run::{Completion, Content, Group, Queue, Run, Samples};
use xdc_measure::size::SizeClass;
use xdc_tcpinfo::{COUNTERS, Counter, Of};

use super::table::{CAPTURE, COMPLETION, GROUP, QUEUE, RUN, SAMPLES};

/// A number defined for all runs, or for all runs of some kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    name: String,
    place: Place,
}

text_schema!(
    Metric,
    "Metric",
    "string",
    "^[a-zA-Z0-9_.+ -]+$",
    "The name of a metric, of the table in docs/scenarios.md: goodput_mbps, groups.inter.fct_ms.p99."
);

/// Location of the value in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Run(&'static Entry<Run>),
    Completion(Flows, &'static Entry<Completion>),
    Group(String, &'static Entry<Group>),
    Queue(String, &'static Entry<Queue>),
    Samples(String, &'static Entry<Samples>),
    /// By its number, from 1.
    Phase(String),
    Capture(&'static Entry<Content>),
    Tcp(&'static Counter),
}

/// Selection of flows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flows {
    group: Option<String>,
    size: Option<SizeClass>,
}

/// Unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Ratio,
    Flows,
    Packets,
    Events,
    Items,
    Us,
    Ms,
    S,
    /// Real seconds of this machine, independent of the scale.
    WallS,
    Mbps,
    Bytes,
    KiB,
    MiB,
}

/// For generating the table's page.
#[cfg(any(test, feature = "testing"))]
impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ratio | Self::Events | Self::Items => "",
            Self::Flows => "flows",
            Self::Packets => "packets",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S | Self::WallS => "s",
            Self::Mbps => "Mbit/s",
            Self::Bytes => "bytes",
            Self::KiB => "KiB",
            Self::MiB => "MiB",
        }
    }

    /// Factor that unscales a guest's value at `scale`: times are longer, rates lower by the scale.
    pub fn unscale(self, scale: u32) -> f64 {
        match self {
            Self::Us | Self::Ms | Self::S => 1.0 / f64::from(scale),
            Self::Mbps => f64::from(scale),
            _ => 1.0,
        }
    }

    /// Kind of scaling, as text.
    #[cfg(test)]
    fn scaling(self) -> &'static str {
        match self {
            Self::Us | Self::Ms | Self::S => "time",
            Self::Mbps => "rate",
            _ => "",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub name: &'static str,
    pub unit: Unit,
    pub meaning: &'static str,
    pub get: fn(&T) -> Option<f64>,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<T> Eq for Entry<T> {}

/// Metrics with one value per flow.
const FLOW_TIMES: [&str; 5] = ["fct_us", "fct_ms", "slowdown", "fct_acked_us", "slowdown_acked"];

const PHASES: &str = "jain_phases";
const PHASE: &str = "mean of Jain's index in the N-th phase, if the scenario has `phases`";

/// An unknown name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub name: String,
    pub near: Option<String>,
}

impl fmt::Display for Unknown {
    /// Formatted like serde's unknown variant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown metric `{}`", self.name)?;
        match &self.near {
            Some(near) => write!(f, ", expected `{near}`"),
            None => Ok(()),
        }
    }
}

/// Hint for mistakes without a similar name.
pub const SEE_TABLE: &str =
    "a name of the table in docs/scenarios.md: fct_us.p99, queues.NAME.drops";

impl FromStr for Metric {
    type Err = Unknown;
    fn from_str(name: &str) -> Result<Self, Unknown> {
        let found = place(name).map(|place| Self { name: name.to_owned(), place });
        found.ok_or_else(|| {
            let known = names_like(name);
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            Unknown { name: name.to_owned(), near: nearest(name, &known).map(str::to_owned) }
        })
    }
}

fn find<T>(table: &'static [Entry<T>], name: &str) -> Option<&'static Entry<T>> {
    table.iter().find(|entry| entry.name == name)
}

/// Prefix of an entry's name, and the entry. Matches the end, since user-chosen names of groups and
/// ports may contain dots.
fn ends_with<'a, T>(
    table: &'static [Entry<T>],
    text: &'a str,
) -> Option<(&'a str, &'static Entry<T>)> {
    let before = |entry: &'static Entry<T>| {
        let before = text.strip_suffix(entry.name)?.strip_suffix('.')?;
        (!before.is_empty()).then_some((before, entry))
    };
    table.iter().find_map(before)
}

fn place(name: &str) -> Option<Place> {
    if let Some(entry) = find(RUN, name) {
        return Some(Place::Run(entry));
    }
    if let Some(entry) = find(COMPLETION, name) {
        let all = Flows { group: None, size: None };
        return Some(Place::Completion(all, entry));
    }
    let (family, rest) = name.split_once('.')?;
    match family {
        "sizes" => {
            let (size, entry) = ends_with(COMPLETION, rest)?;
            let flows = Flows { group: None, size: Some(size.parse().ok()?) };
            Some(Place::Completion(flows, entry))
        }
        "groups" => {
            let Some((of, entry)) = ends_with(COMPLETION, rest) else {
                let (group, entry) = ends_with(GROUP, rest)?;
                return Some(Place::Group(group.to_owned(), entry));
            };
            let sized = of.rsplit_once(".sizes.");
            let sized = sized.and_then(|(group, size)| Some((group, size.parse().ok()?)));
            let (group, size) = sized.map_or((of, None), |(group, size)| (group, Some(size)));
            let flows = Flows { group: Some(group.to_owned()), size };
            Some(Place::Completion(flows, entry))
        }
        "queues" => {
            let (queue, entry) = ends_with(QUEUE, rest)?;
            Some(Place::Queue(queue.to_owned(), entry))
        }
        "samples" => {
            let (name, entry) = ends_with(SAMPLES, rest)?;
            Some(Place::Samples(name.to_owned(), entry))
        }
        "capture" => find(CAPTURE, rest).map(Place::Capture),
        "tcp" => {
            let mut all = COUNTERS.iter();
            all.find(|counter| counter.name == rest).map(Place::Tcp)
        }
        PHASES => {
            let number: usize = rest.parse().ok()?;
            (number > 0 && rest == number.to_string()).then(|| Place::Phase(rest.to_owned()))
        }
        _ => None,
    }
}

/// Known names similar to `name`.
fn names_like(name: &str) -> Vec<String> {
    let of = |before: &str, names: &mut dyn Iterator<Item = &'static str>| -> Vec<String> {
        names.map(|name| format!("{before}{name}")).collect()
    };
    let completion = || COMPLETION.iter().map(|entry| entry.name);
    let mut known = of("", &mut RUN.iter().map(|entry| entry.name));
    known.extend(of("", &mut completion()));
    known.extend(of("capture.", &mut CAPTURE.iter().map(|entry| entry.name)));
    known.extend(of("tcp.", &mut COUNTERS.iter().map(|counter| counter.name)));
    known.push(format!("{PHASES}.1"));
    for size in SizeClass::ALL {
        known.extend(of(&format!("sizes.{}.", size.name()), &mut completion()));
    }
    let mut words = name.split('.').skip(1);
    if let Some(own) = words.next() {
        let group = format!("groups.{own}.");
        known.extend(of(&group, &mut GROUP.iter().map(|entry| entry.name)));
        known.extend(of(&group, &mut completion()));
        for size in SizeClass::ALL {
            let sized = format!("{group}sizes.{}.", size.name());
            known.extend(of(&sized, &mut completion()));
        }
        let queue = format!("queues.{own}.");
        known.extend(of(&queue, &mut QUEUE.iter().map(|entry| entry.name)));
        let samples = format!("samples.{own}.");
        known.extend(of(&samples, &mut SAMPLES.iter().map(|entry| entry.name)));
    }
    known
}

impl Metric {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn unit(&self) -> Unit {
        match &self.place {
            Place::Run(entry) => entry.unit,
            Place::Completion(_, entry) => entry.unit,
            Place::Group(_, entry) => entry.unit,
            Place::Queue(_, entry) => entry.unit,
            Place::Samples(_, entry) => entry.unit,
            Place::Phase(_) => Unit::Ratio,
            Place::Capture(entry) => entry.unit,
            Place::Tcp(counter) => unit_of(counter),
        }
    }

    /// Short description; empty if the table's previous metric has it.
    pub fn meaning(&self) -> &'static str {
        match &self.place {
            Place::Run(entry) => entry.meaning,
            Place::Completion(_, entry) => entry.meaning,
            Place::Group(_, entry) => entry.meaning,
            Place::Queue(_, entry) => entry.meaning,
            Place::Samples(_, entry) => entry.meaning,
            Place::Phase(_) => PHASE,
            Place::Capture(entry) => entry.meaning,
            Place::Tcp(counter) => counter.meaning,
        }
    }

    /// Value in a run; None if it does not apply or is implausible.
    pub fn of(&self, run: &Run) -> Option<f64> {
        let value = match &self.place {
            Place::Run(entry) => (entry.get)(run),
            Place::Completion(flows, entry) => flows.of(run).and_then(entry.get),
            Place::Group(group, entry) => run.groups.get(group).and_then(entry.get),
            Place::Queue(queue, entry) => queue_of(run, queue).and_then(entry.get),
            Place::Samples(name, entry) => run.samples.get(name).and_then(entry.get),
            Place::Phase(number) => run.jain_phases.get(number).copied().flatten(),
            Place::Capture(entry) => run.capture.as_ref().and_then(entry.get),
            Place::Tcp(counter) => run.tcp.get(counter.name).map(|n| *n as f64),
        };
        // A damaged or forged file may contain any value.
        value.filter(|value| value.abs() <= MOST)
    }

    /// Flows behind a statistic of completion times; None for other metrics.
    pub fn population(&self, run: &Run) -> Option<Population> {
        let (of, name) = match &self.place {
            Place::Run(entry) => (&run.completion, entry.name),
            Place::Group(group, entry) => (&run.groups.get(group)?.completion, entry.name),
            Place::Completion(flows, entry) => (flows.of(run)?, entry.name),
            Place::Samples(name, entry) => {
                return Some(Population {
                    ended: run.samples.get(name)?.n,
                    unfinished: 0,
                    needed: needed(entry.name)?,
                });
            }
            Place::Queue(..) | Place::Phase(_) | Place::Capture(_) | Place::Tcp(_) => return None,
        };
        let (what, statistic) = name.split_once('.')?;
        if !FLOW_TIMES.contains(&what) {
            return None;
        }
        let needed = needed(statistic)?;
        let counted = of.flows.saturating_sub(of.warmup);
        Some(Population {
            ended: counted.saturating_sub(of.unfinished),
            unfinished: of.unfinished,
            needed,
        })
    }

    /// Requirement for a scenario: a group of flows, a watched port, samples of a name, or a phase.
    pub fn asks(&self) -> Asks<'_> {
        match &self.place {
            Place::Completion(flows, _) => {
                flows.group.as_deref().map_or(Asks::Nothing, Asks::Group)
            }
            Place::Group(group, _) => Asks::Group(group),
            Place::Queue(queue, _) => Asks::Queue(queue),
            Place::Samples(name, _) => Asks::Samples(name),
            Place::Phase(number) => Asks::Phase(number.parse().unwrap_or(usize::MAX)),
            Place::Run(_) | Place::Capture(_) | Place::Tcp(_) => Asks::Nothing,
        }
    }
}

/// Flows behind a statistic of completion times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Population {
    pub ended: usize,
    /// Flows whose times are unknown but long.
    pub unfinished: usize,
    /// Minimum number for a meaningful value: ten flows beyond a 99th percentile, a hundred for a
    /// mean.
    pub needed: usize,
}

/// Requirement returned by [`Metric::asks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks<'a> {
    Nothing,
    Group(&'a str),
    /// A name, or a number in scenario order.
    Queue(&'a str),
    Samples(&'a str),
    Phase(usize),
}

/// Minimum number of flows for a meaningful statistic.
fn needed(statistic: &str) -> Option<usize> {
    match statistic {
        "p999" => Some(10_000),
        "p99" => Some(1000),
        "mean" | "p50" | "p95" => Some(100),
        _ => None,
    }
}

impl Flows {
    fn of<'a>(&self, run: &'a Run) -> Option<&'a Completion> {
        match (&self.group, self.size) {
            (None, None) => Some(&run.completion),
            (None, Some(size)) => run.sizes.get(&size),
            (Some(group), None) => Some(&run.groups.get(group)?.completion),
            (Some(group), Some(size)) => run.groups.get(group)?.sizes.get(&size),
        }
    }
}

fn unit_of(counter: &Counter) -> Unit {
    match counter.of {
        Of::Packets => Unit::Packets,
        Of::Bytes => Unit::Bytes,
        Of::Events => Unit::Events,
        Of::Us => Unit::Us,
    }
}

/// Finds a queue by name, else by number.
fn queue_of<'a>(run: &'a Run, name: &str) -> Option<&'a Queue> {
    let named = run.queues.iter().find(|queue| queue.name == name);
    named.or_else(|| run.queues.get(name.parse::<usize>().ok()?))
}

/// Upper bound of a run's values.
const MOST: f64 = 1e18;

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// Metrics of a built-in list.
pub fn of_names(names: &[&str]) -> Vec<Metric> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Names of metrics of whole runs.
/// Names of a run's own metrics.
pub fn names_of_runs() -> impl Iterator<Item = &'static str> {
    RUN.iter().map(|entry| entry.name)
}

/// Generates the table of docs/scenarios.md.
#[cfg(test)]
fn table() -> String {
    let mut table = String::from("| metric | unit | scaled as | meaning |\n|---|---|---|---|\n");
    let mut add = |before: &str, name: &str, unit: Unit, meaning: &str| {
        table +=
            &format!("| `{before}{name}` | {} | {} | {meaning} |\n", unit.name(), unit.scaling());
    };
    for entry in RUN {
        add("", entry.name, entry.unit, entry.meaning);
    }
    add(PHASES, ".N", Unit::Ratio, PHASE);
    for entry in COMPLETION {
        add("", entry.name, entry.unit, entry.meaning);
    }
    for entry in GROUP {
        add("groups.NAME.", entry.name, entry.unit, entry.meaning);
    }
    for entry in QUEUE {
        add("queues.NAME.", entry.name, entry.unit, entry.meaning);
    }
    for entry in SAMPLES {
        add("samples.NAME.", entry.name, entry.unit, entry.meaning);
    }
    for counter in COUNTERS {
        add("tcp.", counter.name, unit_of(counter), counter.meaning);
    }
    for entry in CAPTURE {
        add("capture.", entry.name, entry.unit, entry.meaning);
    }
    table
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};
    use xdc_measure::testing::recorded;

    use super::*;

    fn metric(name: &str) -> Metric {
        name.parse().unwrap()
    }

    #[test]
    fn a_metric_is_found_or_the_nearest_name_is_suggested() {
        for name in [
            "fct_ms.max",
            "flows",
            "sizes.small.fct_us.p99",
            "groups.intra.goodput_mbps",
            "groups.a.b.sizes.large.slowdown.mean",
            "queues.WAN, a to b.queue_bytes.p99",
            "queues.0.sent_packets",
            "jain_phases.3",
            "capture.marked",
            "tcp.delivered_ce",
        ] {
            assert_eq!(metric(name).name(), name);
        }
        for (name, near) in [
            ("godput_mbps", "goodput_mbps"),
            ("fct_ms.p90", "fct_ms.p50"),
            ("sizes.smal.fct_us.p99", "sizes.small.fct_us.p99"),
            ("group.intra.goodput_mbps", "groups.intra.goodput_mbps"),
            ("groups.intra.sizes.small.fct_us.pp9", "groups.intra.sizes.small.fct_us.p99"),
            ("queues.port.mark", "queues.port.marks"),
            ("jain_phases.0", "jain_phases.1"),
        ] {
            let unknown = name.parse::<Metric>().unwrap_err();
            assert_eq!(unknown.near.as_deref(), Some(near), "{name}");
        }
        assert_eq!("nothing_at_all".parse::<Metric>().unwrap_err().near, None);
    }

    #[test]
    fn impossible_values_are_missing() {
        let mut run = figures::run(&recorded(), &Windows::every_us(1000));
        run.fct_ms.max = Some(1e308);
        run.goodput_mbps = f64::NAN;
        let of = |name: &str| name.parse::<Metric>().unwrap().of(&run);
        assert_eq!(of("fct_ms.max"), None);
        assert_eq!(of("goodput_mbps"), None);
    }

    /// Regenerated by `UPDATE_DOCS=1 cargo test -p xdc-metric`.
    #[test]
    fn the_page_has_the_table_of_metrics() {
        xdc_base::testing::holds("scenarios.md", "metrics", &table());
    }
}
