// SPDX-License-Identifier: GPL-2.0
//! Experiments as TOML: topology, queues, traffic, measurements and expectations.

pub mod beside;
pub mod budget;
pub mod ccs;
mod check;
mod defaults;
pub mod dscp;
pub mod engine;
mod events;
pub mod fabric;
mod foreign;
pub mod limits;
mod load;
mod merge;
mod names;
pub mod paths;
mod place;
pub mod plan;
pub mod programs;
pub mod rotor;
pub mod schema;
pub mod shape;
pub mod sysctl;
pub mod traffic;
pub mod tunnel;
mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use xdc_netlink::deserialize_text;
use xdc_proto::Mark;

pub use self::ccs::{Cc, Ecn};
pub use self::load::{
    Loaded, SEE_EXAMPLE, check_seed, load, malformed, name_of, parse, parse_stored,
};
pub use self::names::{expand, expand_all, no_node, pairs};
use xdc_measure::figures::Windows;
use xdc_measure::size::SizeClasses;

use crate::error::{Error, Result};
use crate::measure::bound::Bound;
use crate::measure::metric::{Asks, Metric};
use crate::scenario::dscp::Dscp;
use crate::scenario::engine::Kind;
use crate::scenario::fabric::FabricSpec;
use crate::scenario::rotor::AcceltorSpec;
use crate::scenario::traffic::{Cdf, FlowFile, TrafficSpec};
use crate::scenario::tunnel::TunnelSpec;
use crate::text::nearest;
use crate::units::{Amount, Fraction, Rate, Size, Time, text_schema};

/// Builds a scenario's key from steps that can be printed.
macro_rules! at {
    ($($step:expr),+ $(,)?) => {
        vec![$($step.to_string()),+]
    };
}
pub(crate) use at;

/// One experiment, for any number of congestion controls.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Title; default: the name of the file.
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub description: String,
    /// Paper and figure of the experiment.
    #[serde(default)]
    pub source: String,
    /// Engine; default: `uml`.
    #[serde(default = "uml")]
    pub engine: Kind,
    /// Congestion controls, in the order of tables.
    pub ccs: Vec<String>,
    #[serde(default = "one")]
    pub seed: u64,
    /// Factor that divides rates and multiplies times. Default: 1 in virtual time, otherwise
    /// probed.
    pub scale: Option<u32>,
    /// Processors of an emulated machine; default: one.
    pub cpus: Option<u32>,
    /// Length of a run; default: until every flow has ended.
    pub duration: Option<Time>,
    /// Interval of the series. Default: 1 ms or more, at least 500 samples of the duration.
    pub sample: Option<Time>,
    /// Flows scheduled to start earlier are excluded from completion metrics.
    #[serde(default)]
    pub warmup: Time,
    /// Length of the windows for fairness. Default: 10 ms, or `sample` if that is longer.
    pub jain_window: Option<Time>,
    /// Times at which the traffic changes: fairness is also computed for each phase between two.
    #[serde(default)]
    pub phases: Vec<Time>,
    pub topology: TopologySpec,
    #[serde(default, deserialize_with = "ports")]
    pub queues: BTreeMap<String, QueueSpec>,
    /// Ports to record; utilization refers to the link of the first, the bottleneck. Default: the
    /// slowest port on the flows' paths, as "bottleneck".
    #[serde(default)]
    pub watch: Vec<WatchSpec>,
    #[serde(default)]
    pub flows: Vec<FlowSpec>,
    /// Tunnels between the hosts of each flow.
    pub tunnel: Option<TunnelSpec>,
    /// AccelToR in a fabric of kind rotor.
    pub acceltor: Option<AcceltorSpec>,
    /// Flows drawn from the seed.
    #[serde(default)]
    pub traffic: Vec<TrafficSpec>,
    /// Size distributions that the traffic names; read from scenarios/cdf/.
    #[serde(skip)]
    pub cdfs: BTreeMap<String, Cdf>,
    /// Files of flows that the traffic names; read from beside the scenario.
    #[serde(skip)]
    pub files: BTreeMap<String, FlowFile>,
    /// BPF objects that `[cc.NAME]` names; read from beside the scenario.
    #[serde(skip)]
    pub objects: BTreeMap<String, Vec<u8>>,
    /// Paths with at least this base RTT lead to another datacenter. Default: base RTTs are split
    /// at the largest ratio of adjacent ones, if it is above 2.5.
    pub inter_rtt: Option<Time>,
    /// Record each flow over time; default: if there are few flows.
    pub flow_series: Option<bool>,
    /// Flows below this size are small.
    #[serde(default = "small_below")]
    pub small_below: Size,
    /// Flows above this size are large.
    #[serde(default = "large_above")]
    pub large_above: Size,
    #[serde(default)]
    pub sysctl: BTreeMap<String, Scalar>,
    /// Settings of some hosts; names as in `topology.hosts`.
    #[serde(default)]
    pub host: BTreeMap<String, HostSpec>,
    #[serde(default)]
    pub cc: BTreeMap<String, CcSpec>,
    /// Programs as traffic.
    #[serde(default, rename = "run")]
    pub programs: Vec<ProgramSpec>,
    /// Changes of links.
    #[serde(default, rename = "event")]
    pub events: Vec<EventSpec>,
    #[serde(default)]
    pub expect: Vec<Expect>,
    /// Agreement required between runs on different engines.
    #[serde(default)]
    pub agree: Vec<Agree>,
}

impl Scenario {
    /// Finds a congestion control that `[cc.NAME]` defines or xdc knows.
    pub fn known_cc(&self, name: &str) -> Result<Cc> {
        ccs::find(name, &self.cc)
    }

    /// Checks that runs have the metric, by the scenario's groups, ports and phases.
    pub fn check_metric(&self, metric: &Metric) -> Result<()> {
        let (what, name, known) = match metric.asks() {
            Asks::Nothing => return Ok(()),
            // The file's flows may be in any group; this is checked again after reading.
            Asks::Group(_) if self.has_unread_file() => return Ok(()),
            Asks::Group(name) if self.groups().any(|known| known == name) => return Ok(()),
            Asks::Group(name) => {
                let names: BTreeSet<_> = self.groups().collect();
                ("group of flows", name, names.into_iter().collect())
            }
            Asks::Queue(name) => {
                let names = self.watch.iter().map(|port| port.name.as_str());
                // A pattern watches several ports, called "NAME FROM-TO".
                let mut own = self.watch.iter().map(|port| name.strip_prefix(&port.name));
                if name.parse::<usize>().is_ok()
                    || own.any(|rest| rest.is_some_and(|rest| rest.starts_with(' ')))
                {
                    return Ok(());
                }
                let mut names: Vec<_> = names.collect();
                if names.is_empty() {
                    names.push(defaults::BOTTLENECK);
                }
                ("watched port", name, names)
            }
            Asks::Samples(name) => {
                let names = self
                    .programs
                    .iter()
                    .filter_map(|run| run.samples.as_deref());
                ("[[run]] with samples", name, names.collect())
            }
            Asks::Phase(number) => {
                if !self.phases.is_empty() && number <= self.phases.len() + 1 {
                    return Ok(());
                }
                return Err(
                    Error::usage(format!("'{metric}': there is no phase {number}"))
                        .hint("phases = [\"50s\"] makes two"),
                );
            }
        };
        if known.contains(&name) {
            return Ok(());
        }
        let err = Error::usage(format!("'{metric}': there is no {what} '{name}'"));
        Err(match nearest(name, &known) {
            Some(near) => err.hint(format!("'{near}'")),
            None => err.hint(known.join(", ")),
        })
    }

    /// Names of all groups that flows may have.
    fn groups(&self) -> impl Iterator<Item = &str> {
        let of_flows = self.flows.iter().map(|flow| flow.group.as_str());
        let of_traffic = self.traffic.iter().flat_map(|traffic| {
            let classes = traffic.group.is_none().then_some(traffic::CLASSES);
            let classes = classes.into_iter().flatten();
            classes.chain(traffic.group.as_deref())
        });
        let rows = self.files.values().flat_map(|file| &file.rows);
        let of_files = rows.filter_map(|row| row.group.as_deref());
        of_flows.chain(of_traffic).chain(of_files)
    }

    /// Returns whether a file of flows has not been read yet.
    fn has_unread_file(&self) -> bool {
        let mut named = self.traffic.iter().filter_map(|spec| spec.file.as_ref());
        named.any(|name| !self.files.contains_key(name))
    }

    /// Windows of figures over time, in us.
    pub fn windows(&self) -> Windows {
        let us = |time: Time| time.0 / 1000;
        Windows {
            jain_us: us(self.jain_window()),
            phases_us: self.phases.iter().copied().map(us).collect(),
            warmup_us: us(self.warmup),
        }
    }

    /// Bounds of small and large flows.
    pub fn sizes(&self) -> SizeClasses {
        SizeClasses {
            small_below_bytes: self.small_below.0,
            large_above_bytes: self.large_above.0,
        }
    }
}

fn one() -> u64 {
    1
}

fn four() -> u8 {
    4
}

fn once() -> usize {
    1
}

fn small_below() -> Size {
    Size(100_000)
}

fn large_above() -> Size {
    Size(1_000_000)
}

fn uml() -> Kind {
    Kind::Uml
}

fn mtu() -> u32 {
    1500
}

fn all() -> String {
    "all".to_owned()
}

/// Reads the size of a finite flow.
fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Size, D::Error> {
    match Size::deserialize(from)? {
        Size(0) => Err(D::Error::custom(
            "a flow has at least one byte; omit 'bytes' for a flow without an end",
        )),
        size => Ok(size),
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologySpec {
    /// Fabric to build, beside the nodes and links here.
    pub fabric: Option<FabricSpec>,
    /// Names; `a[1-4]` stands for a1, a2, a3, a4.
    #[serde(default)]
    pub hosts: Vec<String>,
    #[serde(default)]
    pub routers: Vec<String>,
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// Send one ACK per packet.
    #[serde(default)]
    pub quickack: bool,
    /// Use microseconds in TCP timestamps.
    #[serde(default)]
    pub tcp_usec_ts: bool,
    /// Use TSO, GSO and GRO like real hosts: TCP hands a link up to 64 kB at once.
    #[serde(default)]
    pub offload: bool,
    /// IP version, 4 or 6.
    #[serde(default = "four")]
    pub ip: u8,
    #[serde(default)]
    pub links: Vec<LinkSpec>,
    /// Routers use all shortest paths, flow by flow; default: in a fabric only.
    pub ecmp: Option<bool>,
    /// Spray packet by packet instead.
    #[serde(default)]
    pub spray: bool,
}

impl TopologySpec {
    pub fn ecmp(&self) -> bool {
        self.ecmp.unwrap_or(self.fabric.is_some() || self.spray)
    }
}

/// Links between each name of `a` and its partner in `b`; a single name partners all.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    pub a: String,
    pub b: String,
    pub rate: Rate,
    /// Delay of each direction without its own.
    #[serde(default)]
    pub delay: Time,
    pub delay_ab: Option<Time>,
    pub delay_ba: Option<Time>,
    /// Queue from `[queues]` for each direction. Without one a direction never drops.
    pub queue: Option<String>,
    pub queue_ab: Option<String>,
    pub queue_ba: Option<String>,
    /// Share of packets lost at random on the way to the queue.
    #[serde(default)]
    pub loss_ab: Fraction,
    #[serde(default)]
    pub loss_ba: Fraction,
    /// Share of packets that skip the delay and overtake others.
    #[serde(default)]
    pub reorder_ab: Fraction,
    #[serde(default)]
    pub reorder_ba: Fraction,
    /// Extra delay of each packet, uniform from 0, order kept: without jitter an ideal network
    /// repeats one phase pattern.
    #[serde(default)]
    pub jitter_ab: Time,
    #[serde(default)]
    pub jitter_ba: Time,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    #[serde(default)]
    pub sysctl: BTreeMap<String, Scalar>,
    /// Kernel modules to load before the network is built.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Shell commands in the node's namespace, before the links are checked.
    #[serde(default)]
    pub setup: Vec<String>,
    /// DSCP of the host's flows that have none.
    pub dscp: Option<Dscp>,
    /// Initial windows of the host's connections, in packets; default: the kernel's 10, and the
    /// receive buffer.
    pub initcwnd: Option<u32>,
    pub initrwnd: Option<u32>,
}

/// A real program as traffic.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// Host; a pattern starts the program on each.
    pub on: String,
    /// Shell command: `iperf3 -c $b1 -J -t 5`. `$NAME` is a host's address.
    pub command: String,
    #[serde(default)]
    pub start: Time,
    /// A server: the run does not wait for its end.
    #[serde(default)]
    pub daemon: bool,
    /// File among the results for its standard output.
    pub output: Option<String>,
    /// Name of samples, one from each line of output that is a number: `samples.NAME.p99`.
    pub samples: Option<String>,
}

/// A change of links while the traffic runs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    pub at: Time,
    /// `A-B`, or `A-B.1` for the second of parallel links; patterns and lists, too.
    pub link: OneOrMore,
    /// Change only the direction that starts at this end.
    pub from: Option<String>,
    /// Drop every packet that enters the link.
    pub down: Option<bool>,
    /// Restore the link.
    pub up: Option<bool>,
    pub rate: Option<Rate>,
    pub delay: Option<Time>,
    pub loss: Option<Fraction>,
    /// Probabilities that one, two or three of each ten packets are lost.
    pub burst_loss: Option<[Fraction; 3]>,
}

/// A name, or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::More(names) => names,
        }
    }
}

/// A switch port. Thresholds on the backlog are sizes or fractions of the limit; sizes are bytes or
/// bandwidth-delay products of the port's link.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// Any queue discipline in tc's words: `fq_codel limit 1000 ecn`. Replaces all other keys.
    pub tc: Option<String>,
    pub limit: Option<Amount>,
    pub phantom: Option<Amount>,
    pub drain: Option<Fraction>,
    pub pmin: Option<Fraction>,
    pub pmax: Option<Fraction>,
    pub min: Option<Threshold>,
    pub max: Option<Threshold>,
    /// Backlog that marks, physical or phantom; default: the congestion control's choice.
    pub mark: Option<Mark>,
    /// RTT of a `bdp`. Default: the longest base RTT between two hosts whose path crosses a port
    /// with this queue.
    pub rtt: Option<Time>,
}

impl QueueSpec {
    /// Keys of `self`, else of `base`. Since `tc` and other keys exclude one another, either in
    /// `self` replaces the other in `base`.
    pub fn over(&self, base: &Self) -> Self {
        if self.tc.is_some() || (base.tc.is_some() && self.has_keys()) {
            return self.clone();
        }
        Self {
            tc: base.tc.clone(),
            limit: self.limit.or(base.limit),
            phantom: self.phantom.or(base.phantom),
            drain: self.drain.or(base.drain),
            pmin: self.pmin.or(base.pmin),
            pmax: self.pmax.or(base.pmax),
            min: self.min.or(base.min),
            max: self.max.or(base.max),
            mark: self.mark.or(base.mark),
            rtt: self.rtt.or(base.rtt),
        }
    }

    /// Returns whether it has another key than `tc`.
    fn has_keys(&self) -> bool {
        let sizes = [self.limit, self.phantom];
        let fractions = [self.drain, self.pmin, self.pmax];
        sizes.iter().any(Option::is_some)
            || fractions.iter().any(Option::is_some)
            || self.min.is_some()
            || self.max.is_some()
            || self.mark.is_some()
            || self.rtt.is_some()
    }

    /// Sizes of all its keys.
    pub fn amounts(&self) -> impl Iterator<Item = Amount> {
        let thresholds = [self.min, self.max].into_iter().flatten();
        let thresholds = thresholds.filter_map(|threshold| match threshold {
            Threshold::Of(amount) => Some(amount),
            Threshold::OfLimit(_) => None,
        });
        let sizes = [self.limit, self.phantom].into_iter().flatten();
        sizes.chain(thresholds)
    }

    pub fn has_bdps(&self) -> bool {
        self.amounts().any(Amount::is_bdp)
    }
}

/// Checks while parsing that a queue has either `tc` or other keys, so that errors have a line.
pub(crate) fn ports<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<BTreeMap<String, QueueSpec>, D::Error> {
    struct Port(QueueSpec);
    impl<'de> Deserialize<'de> for Port {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
            let spec = QueueSpec::deserialize(from)?;
            match spec.tc.is_some() && spec.has_keys() {
                true => Err(D::Error::custom("'tc' excludes all other keys of a queue")),
                false => Ok(Self(spec)),
            }
        }
    }
    let ports = BTreeMap::<String, Port>::deserialize(from)?;
    Ok(ports
        .into_iter()
        .map(|(name, port)| (name, port.0))
        .collect())
}

text_schema!(
    Threshold,
    "Threshold",
    ["string", "integer"],
    "^[0-9.]+ ?([kKmMgG]?[iI]?[bB]?|[bB][dD][pP]|%)$",
    "A size, such as 100kB or 0.5bdp, or a share of the limit, such as 25%."
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    Of(Amount),
    OfLimit(Fraction),
}

impl FromStr for Threshold {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.ends_with('%') {
            text.parse().map(Self::OfLimit)
        } else {
            text.parse().map(Self::Of)
        }
    }
}

deserialize_text!(
    Threshold,
    "a size or a share of the limit, such as 100kB or 25%",
    i64 as visit_i64,
    u64 as visit_u64
);

/// The queue in front of the link from one node to a neighbor.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchSpec {
    pub name: String,
    pub from: String,
    pub to: String,
}

/// One flow per pair of names, as for links.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    #[serde(default = "all")]
    pub group: String,
    pub src: String,
    pub dst: String,
    /// Flows per pair.
    #[serde(default = "once")]
    pub count: usize,
    /// Size; default: the flow lasts until the run stops.
    #[serde(default, deserialize_with = "some_bytes")]
    pub bytes: Size,
    #[serde(default)]
    pub start: Time,
    #[serde(default)]
    pub jitter: Time,
    /// Congestion control of both ends, or of one of them; default: the run's.
    pub cc: Option<String>,
    pub sender_cc: Option<String>,
    pub receiver_cc: Option<String>,
    /// Changes of the sender's congestion control during the flow.
    #[serde(default)]
    pub switch: Vec<SwitchSpec>,
    /// Start when all flows of this group have ended; `start` counts from then.
    pub after: Option<String>,
    /// Size of each write of the application, repeated after `period`.
    #[serde(default)]
    pub burst: Size,
    #[serde(default)]
    pub period: Time,
    /// DSCP of the flow's packets, in both directions.
    pub dscp: Option<Dscp>,
    /// Socket buffers; default: autotuned by the kernel.
    #[serde(default)]
    pub sndbuf: Size,
    #[serde(default)]
    pub rcvbuf: Size,
    /// Announce the receiver's window before the flow starts.
    #[serde(default)]
    pub window_known: bool,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchSpec {
    /// Time after the flow's start.
    pub at: Time,
    /// New congestion control; default: the run's.
    pub cc: Option<String>,
}

/// A sysctl's value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    Integer(i64),
    Text(String),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(n) => n.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Settings of a congestion control, or the definition of a new one.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CcSpec {
    /// Name in TCP_CONGESTION. Defines a new congestion control.
    pub kernel: Option<String>,
    /// Module, if not tcp_KERNEL; "" if built in.
    pub module: Option<String>,
    /// BPF object file with its struct_ops, beside the scenario.
    pub bpf: Option<String>,
    /// ECN that its connections negotiate.
    pub ecn: Option<Ecn>,
    /// Backlog of a phantom port that marks for it, unless the queue says otherwise.
    pub mark: Option<Mark>,
    #[serde(default)]
    pub sysctl: BTreeMap<String, Scalar>,
    #[serde(default, deserialize_with = "ports")]
    pub queues: BTreeMap<String, QueueSpec>,
    /// Settings of a rotor's racks for this congestion control.
    pub acceltor: Option<AcceltorSpec>,
}

/// A claim about a metric of the summary.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Metric: `jain_mean`, `fct_ms.max`
    pub metric: Metric,
    pub cc: String,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Must be less than the metric of this congestion control.
    pub less_than_cc: Option<String>,
    /// Applies to this engine only.
    pub engine: Option<Kind>,
    /// Source of the bound.
    pub source: String,
}

impl Expect {
    pub fn bound(&self) -> Bound<'_> {
        Bound {
            min: self.min,
            max: self.max,
            less_than_cc: self.less_than_cc.as_deref(),
        }
    }
}

/// Allowed difference of a metric between two results of a scenario.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agree {
    /// Metric, as in [`Expect`].
    pub metric: Metric,
    /// Congestion controls to which this applies; empty: all.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// Allowed difference relative to the larger value.
    pub within: f64,
    /// Differences up to this, in the metric's unit, are ignored.
    #[serde(default)]
    pub slack: f64,
    /// Reason for the remaining difference.
    pub why: String,
}

impl Agree {
    pub fn concerns(&self, cc: &str) -> bool {
        self.ccs.is_empty() || self.ccs.iter().any(|name| name == cc)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const SMALL: &str = r#"
title = "Two to one"
engine = "uml"
ccs = ["unocc", "cubic"]
sample = "1ms"
[topology]
mtu = 1500
hosts = ["a[1-2]", "r"]
routers = ["s"]
[[topology.links]]
a = "a[1-2]"
b = "s"
rate = "1gbit"
delay_ba = "100us"
[[topology.links]]
a = "s"
b = "r"
rate = "1gbit"
queue_ab = "port"
[queues.port]
limit = "100kb"
min = "25kb"
max = "75%"
[[watch]]
name = "port"
from = "s"
to = "r"
[[flows]]
group = "all"
src = "a[1-2]"
dst = "r"
bytes = "1MiB"
[cc.unocc.sysctl]
"net.unocc.line_rate_mbps" = 1000
"net.unocc.intra_rtt_us" = 100
[[expect]]
metric = "drops"
cc = "unocc"
max = 0
source = "test"
"#;

    fn with(sets: &[&str]) -> Result<Loaded> {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        parse("small", SMALL, &sets)
    }

    #[test]
    fn name_ranges_expand() {
        let budget = budget::Budget::default();
        assert_eq!(expand(&budget, "a[1-3]").unwrap(), ["a1", "a2", "a3"]);
        assert_eq!(expand(&budget, "tor").unwrap(), ["tor"]);
        for bad in ["a[1-", "a[3-1]", "a[x-y]", "a[1]"] {
            assert!(expand(&budget, bad).is_err(), "{bad}");
        }
        assert_eq!(pairs(&budget, "a[1-2]", "r").unwrap().len(), 2);
        assert_eq!(pairs(&budget, "a[1-2]", "b[3-4]").unwrap()[1].1, "b4");
        assert!(pairs(&budget, "a[1-2]", "b[1-3]").is_err());
    }

    #[test]
    fn errors_name_the_line() {
        let text = SMALL.replace("limit = \"100kb\"", "limit = \"100kg\"");
        let err = parse("small", &text, &[]).unwrap_err().to_string();
        assert!(err.starts_with("small:21: queues.port.limit: "), "{err}");
        assert!(err.contains("100kg"), "{err}");
        let text = SMALL.replace("quickack", "quikack").replace("mtu", "mut");
        let err = parse("small", &text, &[]).unwrap_err().lines().join(" ");
        assert!(
            err.contains("small:7: topology.mut: unknown word 'mut' try: 'mtu'"),
            "{err}"
        );
    }

    #[test]
    fn set_overrides_and_refuses_typos() {
        let loaded = with(&[
            "topology.mtu=4096",
            "queues.port.limit=200kb",
            "queues.port.drain=0.95",
            "flows.0.bytes=2mb",
            "net.ipv4.tcp_sack=0",
            "cc.unocc.sysctl.\"net.unocc.profile\"=paper",
            "net.unocc.intra_rtt_us=14",
        ])
        .unwrap();
        let s = &loaded.scenario;
        assert_eq!(s.topology.mtu, 4096);
        let limit = s.queues["port"].limit;
        assert_eq!(limit, Some(Amount::Bytes(Size(200_000))));
        assert!(s.queues["port"].drain.is_some());
        assert_eq!(s.flows[0].bytes, Size(2_000_000));
        assert_eq!(s.sysctl["net.ipv4.tcp_sack"], Scalar::Integer(0));
        assert_eq!(
            s.cc["unocc"].sysctl["net.unocc.profile"],
            Scalar::Text("paper".to_owned())
        );
        // Also if the scenario has its own value.
        let sysctl = &s.cc["unocc"].sysctl;
        assert_eq!(sysctl["net.unocc.intra_rtt_us"], Scalar::Integer(14));
        for bad in [
            "topology.mut=1",
            "nonsense",
            "flows.9.bytes=1mb",
            "queues.port.limit=big",
            "cc.unicc.sysctl.x=1",
        ] {
            assert!(with(&[bad]).is_err(), "{bad}");
        }
        let said = with(&["topology.hots=[\"a\"]"])
            .unwrap_err()
            .lines()
            .join(" ");
        assert!(
            said.contains("unknown word 'hots'") && said.contains("'hosts'"),
            "{said}"
        );
    }

    #[test]
    fn a_queue_without_a_link_is_refused() {
        let text = format!("{SMALL}[queues.prot]\nlimit = \"1mb\"\n");
        let said = parse("small", &text, &[]).unwrap_err().lines().join(" ");
        assert!(said.contains("no link has the queue 'prot'"), "{said}");
    }

    /// Loads a file that extends another one.
    fn variant(base: &str, text: &str, sets: &[&str]) -> Result<Loaded> {
        let dir = tempfile::tempdir().unwrap();
        let base_path = dir.path().join("base.toml");
        std::fs::write(&base_path, base).unwrap();
        let own = dir.path().join("own.toml");
        let text = format!("extends = \"base.toml\"\n{text}");
        std::fs::write(&own, text).unwrap();
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        load(None, &own.to_string_lossy(), &sets)
    }

    fn said(refused: Result<Loaded>) -> String {
        refused.unwrap_err().lines().join(" ")
    }

    #[test]
    fn errors_in_a_variant_name_its_line() {
        let said = said(variant(SMALL, "\n[topology]\nmtuu = 9000\n", &[]));
        assert!(
            said.contains("own.toml:4: topology.mtuu: unknown word 'mtuu'")
                && said.contains("'mtu'"),
            "{said}"
        );
        let said = self::said(variant(SMALL, "[topology.links.9]\nmtu = 9000\n", &[]));
        assert!(
            said.contains(":2: topology.links.9: there is no element '9'"),
            "{said}"
        );
    }

    #[test]
    fn a_later_tc_replaces_the_other_keys() {
        let of_cc = format!("{SMALL}[cc.cubic.queues.port]\npmin = \"5%\"\n");
        for loaded in [
            variant(&of_cc, "[queues.port]\ntc = \"fq_codel ecn\"\n", &[]),
            parse("small", &of_cc, &["queues.port.tc=fq_codel ecn".to_owned()]),
            // The last --set wins.
            variant(
                &of_cc,
                "",
                &["queues.port.limit=2MB", "queues.port.tc=fq_codel ecn"],
            ),
        ] {
            let scenario = loaded.unwrap().scenario;
            let port = &scenario.queues["port"];
            assert_eq!(port.tc.as_deref(), Some("fq_codel ecn"));
            assert!(!port.has_keys(), "{port:?}");
            assert!(scenario.cc.values().all(|cc| cc.queues.is_empty()));
            for cc in ["unocc", "cubic"] {
                let plan = plan::plan(&scenario, cc, 1, 1).unwrap();
                assert!(format!("{plan:?}").contains("fq_codel"), "{cc}");
            }
        }
        // For one congestion control only; the other one keeps its keys.
        let scenario = variant(
            &of_cc,
            "[cc.cubic.queues.port]\ntc = \"bfifo limit 1mb\"\n",
            &[],
        )
        .unwrap()
        .scenario;
        assert!(scenario.queues["port"].has_keys());
        assert!(!scenario.cc["cubic"].queues["port"].has_keys());
    }

    #[test]
    fn other_keys_replace_a_tc() {
        let of_tc = SMALL.replace(
            "limit = \"100kb\"\nmin = \"25kb\"\nmax = \"75%\"",
            "tc = \"fq_codel\"",
        );
        assert_ne!(of_tc, SMALL);
        let phantom = "[queues.port]\nlimit = \"1MB\"\n";
        let port = |loaded: Result<Loaded>| loaded.unwrap().scenario.queues["port"].clone();
        let of_file = port(variant(&of_tc, phantom, &[]));
        assert!(
            of_file.tc.is_none() && of_file.limit.is_some(),
            "{of_file:?}"
        );
        // A single key belongs to the existing queue.
        let said = said(variant(&of_tc, "", &["queues.port.limit=1MB"]));
        assert!(!said.contains("line "), "{said}");
        assert!(
            said.contains("which excludes 'limit'")
                && said.contains("try: --set unset=queues.port.tc before it"),
            "{said}"
        );
        let sets = ["unset=queues.port.tc", "queues.port.limit=1MB"];
        let of_set = port(variant(&of_tc, "", &sets));
        assert!(of_set.tc.is_none() && of_set.limit.is_some(), "{of_set:?}");
        // For one congestion control.
        let one = format!("{of_tc}[cc.cubic.queues.port]\nlimit = \"1MB\"\n");
        let scenario = parse("small", &one, &[]).unwrap().scenario;
        let port = scenario.cc["cubic"].queues["port"].over(&scenario.queues["port"]);
        assert!(port.tc.is_none() && port.limit.is_some(), "{port:?}");
    }

    #[test]
    fn tc_with_other_keys_is_refused_with_its_line() {
        let both = "[queues.port]\ntc = \"fq_codel\"\nlimit = \"1MB\"\n";
        let sentence = "'tc' excludes all other keys of a queue";
        let own = SMALL.replace("[queues.port]", "[queues.port]\ntc = \"fq_codel\"");
        let text = said(parse("small", &own, &[]));
        assert!(
            text.contains("small:20: queues.port: ") && text.contains(sentence),
            "{text}"
        );
        let text = said(variant(SMALL, &format!("\n{both}"), &[]));
        assert!(
            text.contains("own.toml:3: ") && text.contains(sentence),
            "{text}"
        );
        let of_cc = both.replace("queues", "cc.cubic.queues");
        let text = said(variant(SMALL, &of_cc, &[]));
        assert!(
            text.contains("own.toml:2: ") && text.contains(sentence),
            "{text}"
        );
        let set = "queues.port={tc=\"fq_codel\", limit=\"1MB\"}";
        let text = said(with(&[set]));
        assert!(text.contains(set) && text.contains(sentence), "{text}");
    }

    #[test]
    fn inherited_keys_can_be_unset() {
        let sysctl = "cc.unocc.sysctl.\"net.unocc.intra_rtt_us\"";
        let text =
            format!("unset = [\"queues.port.max\", '{sysctl}', \"topology.links.0.delay_ba\"]\n");
        let sets = [
            "unset=queues.port.max",
            "unset=net.unocc.intra_rtt_us",
            "unset=topology.links.0.delay_ba",
        ];
        for loaded in [variant(SMALL, &text, &[]), with(&sets)] {
            let scenario = loaded.unwrap().scenario;
            let port = &scenario.queues["port"];
            assert!(port.max.is_none() && port.min.is_some());
            assert_eq!(scenario.cc["unocc"].sysctl.len(), 1);
            assert!(scenario.topology.links[0].delay_ba.is_none());
        }
        let text = said(variant(SMALL, "unset = [\"queues.port.mex\"]\n", &[]));
        assert!(
            text.contains(":2: unset: there is no 'mex' to unset") && text.contains("try: 'max'"),
            "{text}"
        );
        let text = said(with(&["unset=queues.prot.max"]));
        assert!(
            text.contains("--set unset=queues.prot.max") && text.contains("try: 'port'"),
            "{text}"
        );
        let text = said(variant(SMALL, "unset = 5\n", &[]));
        assert!(text.contains("'unset' must be a list of keys"), "{text}");
        assert!(with(&["unset=topology"]).is_err());
        assert!(with(&["unset=topology.links.7"]).is_err());
    }

    #[test]
    fn unknown_congestion_controls_are_refused() {
        let err = with(&["ccs=[\"quick\"]"]).unwrap_err().to_string();
        assert!(err.contains("quick"), "{err}");
    }
}
