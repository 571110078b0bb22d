// SPDX-License-Identifier: GPL-2.0
//! Experiments as TOML: topology, queues, traffic, measurements and expectations.

#![allow(missing_docs, reason = "internal: names and types say most")]

#[macro_use]
extern crate xdc_base;

pub mod beside;
pub mod budget;
pub mod ccs;
mod check;
mod defaults;
pub mod dscp;
pub mod engine;
mod events;
mod expect;
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
mod queues;
pub mod rotor;
pub mod schema;
pub mod switch;
pub mod sysctl;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trace;
pub mod traffic;
pub mod tunnel;
mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use xdc_base::error::{Error, Result};
use xdc_base::text::nearest;
use xdc_base::text_schema;
use xdc_base::units::{Amount, Fraction, Rate, Size, Time};
use xdc_measure::figures::Windows;
use xdc_measure::size::SizeClasses;
use xdc_metric::bound::Bound;
use xdc_metric::metric::{Asks, Metric};
use xdc_netlink::deserialize_text;
use xdc_netlink::phantom::Mark;

use crate::dscp::Dscp;
use crate::engine::Kind;
use crate::fabric::FabricSpec;
use crate::rotor::AcceltorSpec;
use crate::trace::Trace;
use crate::traffic::{Cdf, FlowFile, TrafficSpec};
use crate::tunnel::TunnelSpec;

pub use self::ccs::{Cc, Ecn};
pub use self::expect::*;
pub use self::load::{
    Loaded, SEE_EXAMPLE, check_seed, load, malformed, name_of, parse, parse_stored,
};
pub use self::names::{expand, expand_all, no_node, pairs};
pub use self::queues::*;

/// A commented scenario to begin with.
pub const TEMPLATE: &str = include_str!("new.toml");

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
    /// Traces that links name; read from beside the scenario.
    #[serde(skip)]
    pub traces: BTreeMap<String, Trace>,
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
                let names = self.programs.iter().filter_map(|run| run.samples.as_deref());
                ("[[run]] with samples", name, names.collect())
            }
            Asks::Phase(number) => {
                if !self.phases.is_empty() && number <= self.phases.len() + 1 {
                    return Ok(());
                }
                return Err(Error::usage(format!("'{metric}': there is no phase {number}"))
                    .hint("phases = [\"50s\"] makes two"));
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
        SizeClasses { small_below_bytes: self.small_below.0, large_above_bytes: self.large_above.0 }
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
    /// Kind of switches. Default: `fabric` in virtual time if it has all that the scenario uses, else `linux`.
    pub switch: Option<switch::Switches>,
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
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
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
    /// File beside the scenario with rates, delays and losses over time; both directions, or one.
    pub trace: Option<String>,
    pub trace_ab: Option<String>,
    pub trace_ba: Option<String>,
    /// Token bucket in front of the queue; both directions, or one.
    pub policer: Option<PolicerSpec>,
    pub policer_ab: Option<PolicerSpec>,
    pub policer_ba: Option<PolicerSpec>,
}

/// Drops the packets above a rate and a burst.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicerSpec {
    pub rate: Rate,
    pub burst: Size,
}

impl LinkSpec {
    /// Policers of the directions from a to b and from b to a.
    pub fn policers(&self) -> [Option<PolicerSpec>; 2] {
        [self.policer_ab, self.policer_ba].map(|own| own.or(self.policer))
    }

    /// Traces of the directions from a to b and from b to a.
    pub fn traces(&self) -> [Option<&str>; 2] {
        [&self.trace_ab, &self.trace_ba].map(|own| own.as_deref().or(self.trace.as_deref()))
    }
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

#[cfg(test)]
pub mod tests;
