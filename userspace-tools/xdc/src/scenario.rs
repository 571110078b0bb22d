// SPDX-License-Identifier: GPL-2.0
//! Experiments as TOML: topology, queues, traffic, what is measured, what the paper says.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};
use xdc_proto::Mark;

use crate::engine::Kind;
use crate::error::{Error, Result};
use crate::fabric::FabricSpec;
use crate::home::Home;
use crate::traffic::{Cdf, TrafficSpec};
use crate::units::{Fraction, Rate, Size, Time};

/// One experiment, for any number of congestion controls.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    #[serde(default)]
    pub description: String,
    /// Where in which paper the experiment is.
    #[serde(default)]
    pub source: String,
    pub engine: Kind,
    /// Congestion controls, in the order of tables.
    pub ccs: Vec<String>,
    #[serde(default = "one")]
    pub seed: u64,
    /// Rates are divided and times multiplied by this. Without it: 1 in virtual time, probed else.
    pub scale: Option<u32>,
    /// Without it the run ends when every flow has ended.
    pub duration: Option<Time>,
    pub sample: Time,
    /// Fairness is computed over windows of this length.
    #[serde(default = "ten_ms")]
    pub jain_window: Time,
    /// Times at which the traffic changes: fairness is also computed for each phase between two.
    #[serde(default)]
    pub phases: Vec<Time>,
    pub topology: TopologySpec,
    #[serde(default)]
    pub queues: BTreeMap<String, QueueSpec>,
    /// The first one is the bottleneck: utilisation is measured against its link.
    pub watch: Vec<WatchSpec>,
    #[serde(default)]
    pub flows: Vec<FlowSpec>,
    /// Flows that are drawn from the seed.
    #[serde(default)]
    pub traffic: Vec<TrafficSpec>,
    /// Size distributions that the traffic names; read from scenarios/cdf/.
    #[serde(skip)]
    pub cdfs: BTreeMap<String, Cdf>,
    /// A path with at least this base RTT leads to another datacenter. Without it, the widest gap
    /// among the base RTTs decides.
    pub inter_rtt: Option<Time>,
    /// Record each flow over time; without it, if there are few.
    pub flow_series: Option<bool>,
    /// Below this a flow is small.
    #[serde(default = "small_below")]
    pub small_below: Size,
    /// Above this it is large.
    #[serde(default = "large_above")]
    pub large_above: Size,
    #[serde(default)]
    pub sysctl: BTreeMap<String, Scalar>,
    /// What is different on some hosts; names as in `topology.hosts`.
    #[serde(default)]
    pub host: BTreeMap<String, HostSpec>,
    #[serde(default)]
    pub cc: BTreeMap<String, CcSpec>,
    #[serde(default)]
    pub expect: Vec<Expect>,
    /// What two runs of it, on different engines, have to agree on.
    #[serde(default)]
    pub agree: Vec<Agree>,
}

fn one() -> u64 {
    1
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

fn ten_ms() -> Time {
    Time(10_000_000)
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologySpec {
    /// A shape that is built, beside what is named here.
    pub fabric: Option<FabricSpec>,
    /// Names; `a[1-4]` stands for a1, a2, a3, a4.
    #[serde(default)]
    pub hosts: Vec<String>,
    #[serde(default)]
    pub routers: Vec<String>,
    pub mtu: u32,
    /// One ACK per packet.
    #[serde(default)]
    pub quickack: bool,
    /// Microseconds in TCP timestamps.
    #[serde(default)]
    pub tcp_usec_ts: bool,
    #[serde(default)]
    pub links: Vec<LinkSpec>,
    /// Routers take all shortest paths, flow by flow; without it: those of a fabric do.
    pub ecmp: Option<bool>,
    /// Packet by packet instead.
    #[serde(default)]
    pub spray: bool,
}

impl TopologySpec {
    pub fn ecmp(&self) -> bool {
        self.ecmp.unwrap_or(self.fabric.is_some() || self.spray)
    }
}

/// Links between every name of `a` and its partner in `b`; a single name partners all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    pub a: String,
    pub b: String,
    pub rate: Rate,
    /// In each direction, unless the direction has its own.
    #[serde(default)]
    pub delay: Time,
    pub delay_ab: Option<Time>,
    pub delay_ba: Option<Time>,
    /// A name from `[queues]`, in each direction. Without one a direction never drops.
    pub queue: Option<String>,
    pub queue_ab: Option<String>,
    pub queue_ba: Option<String>,
    /// Packets lost at random on the way to the queue.
    #[serde(default)]
    pub loss_ab: Fraction,
    #[serde(default)]
    pub loss_ba: Fraction,
    /// Packets that skip the delay and overtake others.
    #[serde(default)]
    pub reorder_ab: Fraction,
    #[serde(default)]
    pub reorder_ba: Fraction,
    /// Extra delay of each packet, uniform from 0, that changes no order: on an ideal network
    /// packets meet in the same way for ever.
    #[serde(default)]
    pub jitter_ab: Time,
    #[serde(default)]
    pub jitter_ba: Time,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    #[serde(default)]
    pub sysctl: BTreeMap<String, Scalar>,
}

/// A switch port. Thresholds on the backlog are sizes or fractions of the limit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    pub limit: Option<Size>,
    pub phantom: Option<Size>,
    pub drain: Option<Fraction>,
    pub pmin: Option<Fraction>,
    pub pmax: Option<Fraction>,
    pub min: Option<Threshold>,
    pub max: Option<Threshold>,
    /// Without it: what the congestion control asks for.
    pub mark: Option<Mark>,
}

impl QueueSpec {
    /// `self` where it says something, else `base`.
    pub fn over(&self, base: &Self) -> Self {
        Self {
            limit: self.limit.or(base.limit),
            phantom: self.phantom.or(base.phantom),
            drain: self.drain.or(base.drain),
            pmin: self.pmin.or(base.pmin),
            pmax: self.pmax.or(base.pmax),
            min: self.min.or(base.min),
            max: self.max.or(base.max),
            mark: self.mark.or(base.mark),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Threshold {
    Bytes(Size),
    OfLimit(Fraction),
}

impl TryFrom<String> for Threshold {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        if text.ends_with('%') {
            text.parse().map(Self::OfLimit)
        } else {
            text.parse().map(Self::Bytes)
        }
    }
}

/// The queue in front of the link from one node to a neighbour.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchSpec {
    pub name: String,
    pub from: String,
    pub to: String,
}

/// One flow per pair of names, as for links.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    pub group: String,
    pub src: String,
    pub dst: String,
    /// Of each pair.
    #[serde(default = "once")]
    pub count: usize,
    /// Without it a flow lasts until the run stops.
    #[serde(default)]
    pub bytes: Size,
    #[serde(default)]
    pub start: Time,
    #[serde(default)]
    pub jitter: Time,
    /// Of both ends, if not the run's; or of one of them.
    pub cc: Option<String>,
    pub sender_cc: Option<String>,
    pub receiver_cc: Option<String>,
    /// The sender changes it in mid flow.
    #[serde(default)]
    pub switch: Vec<SwitchSpec>,
    /// The application writes so much at a time, and again after `period`.
    #[serde(default)]
    pub burst: Size,
    #[serde(default)]
    pub period: Time,
    /// Socket buffers; without them the kernel tunes them.
    #[serde(default)]
    pub sndbuf: Size,
    #[serde(default)]
    pub rcvbuf: Size,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchSpec {
    /// After the flow's start.
    pub at: Time,
    /// Without it, to the run's.
    pub cc: Option<String>,
}

/// A sysctl's value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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

/// What is different for one congestion control.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CcSpec {
    #[serde(default)]
    pub sysctl: BTreeMap<String, Scalar>,
    #[serde(default)]
    pub queues: BTreeMap<String, QueueSpec>,
}

/// A claim about one figure of the summary.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Path into a run of summary.json: `jain_mean`, `fct_ms.max`.
    pub metric: String,
    pub cc: String,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Below the same figure of this congestion control.
    pub less_than_cc: Option<String>,
    /// Holds on this engine only.
    pub engine: Option<Kind>,
    /// Where the bound comes from.
    pub source: String,
}

impl Expect {
    pub fn bound(&self) -> String {
        let parts = [
            self.min.map(|min| format!(">= {min}")),
            self.max.map(|max| format!("<= {max}")),
            self.less_than_cc.as_ref().map(|cc| format!("< {cc}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// How far two results of a scenario may differ in a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agree {
    /// As in [`Expect`].
    pub metric: String,
    /// For these congestion controls only; all, if it is empty.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// Relative to the larger of the two.
    pub within: f64,
    /// A difference of no more than this, in the figure's own unit, is none.
    #[serde(default)]
    pub slack: f64,
    /// What the remaining difference is.
    pub why: String,
}

impl Agree {
    pub fn concerns(&self, cc: &str) -> bool {
        self.ccs.is_empty() || self.ccs.iter().any(|name| name == cc)
    }
}

/// A congestion control that xdc knows how to run, or a combination that has a name.
#[derive(Debug)]
pub struct KnownCc {
    pub name: &'static str,
    /// TCP_CONGESTION.
    pub cc: &'static str,
    /// Of routes to another datacenter; those within one then have `cc` (`ip route ... congctl`).
    pub inter_cc: Option<&'static str>,
    /// After what the scenario says of `[cc.CC]`, which holds for its varieties too, and before
    /// what it says of this one.
    pub sysctls: &'static [(&'static str, &'static str)],
    /// Of modules, the kernel's too.
    pub parameters: &'static [(&'static str, &'static str)],
    /// To load; without one the kernel has it built in.
    pub module: Option<&'static str>,
    /// Which queue marks for it, unless the scenario says otherwise.
    pub mark: Mark,
    /// net.ipv4.tcp_ecn: 0 off, 1 RFC 3168, 3 AccECN.
    pub tcp_ecn: u8,
}

/// A single one, without ECN.
const PLAIN: KnownCc = KnownCc {
    name: "",
    cc: "",
    inter_cc: None,
    sysctls: &[],
    parameters: &[],
    module: None,
    mark: Mark::None,
    tcp_ecn: 0,
};

const fn drop_tail(name: &'static str) -> KnownCc {
    KnownCc {
        name,
        cc: name,
        ..PLAIN
    }
}

/// One that wants queues which mark by their backlog, with RFC 3168's answer.
const fn classic_ecn(name: &'static str, cc: &'static str) -> KnownCc {
    KnownCc {
        name,
        cc,
        mark: Mark::Physical,
        tcp_ecn: 1,
        ..PLAIN
    }
}

const fn unocc(name: &'static str, sysctls: &'static [(&'static str, &'static str)]) -> KnownCc {
    KnownCc {
        name,
        cc: "unocc",
        sysctls,
        module: Some("tcp_unocc"),
        mark: Mark::Phantom,
        tcp_ecn: 3,
        ..PLAIN
    }
}

const fn gemini(name: &'static str, module: &'static str) -> KnownCc {
    KnownCc {
        name,
        cc: name,
        module: Some(module),
        mark: Mark::Physical,
        tcp_ecn: 3,
        ..PLAIN
    }
}

pub const KNOWN_CCS: &[KnownCc] = &[
    unocc("unocc", &[]),
    unocc("unocc-paper", &[("net.unocc.profile", "paper")]),
    unocc("unocc-artifact", &[("net.unocc.profile", "artifact")]),
    gemini("gemini", "tcp_gemini"),
    classic_ecn("dctcp", "dctcp"),
    // Stands for the papers' BBR + MPRDMA. dctcp asks for ECN by itself; bbr must not.
    KnownCc {
        inter_cc: Some("bbr"),
        tcp_ecn: 2,
        ..classic_ecn("bbr-dctcp", "dctcp")
    },
    drop_tail("cubic"),
    classic_ecn("cubic-ecn", "cubic"),
    drop_tail("bbr"),
    drop_tail("reno"),
    drop_tail("vegas"),
    // GEMINI's Vegas-10: thresholds ten times as large.
    KnownCc {
        cc: "vegas",
        parameters: &[("tcp_vegas.alpha", "20"), ("tcp_vegas.beta", "40")],
        ..drop_tail("vegas-10")
    },
    KnownCc {
        module: Some("tcp_example"),
        ..drop_tail("example")
    },
    // Test-only modules: one for GEMINI's Table V, and the kernel's own in Rust for `xdc twin`.
    gemini("gemini_err", "tcp_gemini_err"),
    KnownCc {
        module: Some("tcp_dctcp_rs"),
        ..classic_ecn("dctcp_rs", "dctcp_rs")
    },
    KnownCc {
        module: Some("tcp_reno_rs"),
        ..drop_tail("reno_rs")
    },
];

pub fn known_cc(name: &str) -> Result<&'static KnownCc> {
    KNOWN_CCS.iter().find(|cc| cc.name == name).ok_or_else(|| {
        let names: Vec<_> = KNOWN_CCS.iter().map(|cc| cc.name).collect();
        Error::usage(format!("no congestion control '{name}'")).hint(names.join(", "))
    })
}

/// A scenario and the TOML it came from, overrides included.
#[derive(Debug)]
pub struct Loaded {
    pub name: String,
    pub scenario: Scenario,
    pub toml: Table,
}

/// For mistakes in a scenario that say what is wrong but not how it should be.
pub const SEE_EXAMPLE: &str = "scenarios/two-dc-1g.toml shows how";

/// What a link can be told to carry; less than IPv4 asks for would serve nobody.
const MTU_BYTES: RangeInclusive<u32> = 576..=65_535;

/// Load by name (from scenarios/) or by path, then apply each `--set`.
pub fn load(home: Option<&Home>, name_or_path: &str, sets: &[String]) -> Result<Loaded> {
    let path = locate(home, name_or_path)?;
    let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let loaded = match extends(&text) {
        None => parse(&name, &text, sets),
        Some(base) => extended(home, &base, &text).and_then(|table| finish(&name, table, sets)),
    };
    let mut loaded = loaded.map_err(|err| err.about(path.display()).or_hint(SEE_EXAMPLE))?;
    let beside = home
        .map(Home::scenarios)
        .or(path.parent().map(Path::to_path_buf));
    let dir = beside.unwrap_or_default().join("cdf");
    loaded.scenario.cdfs = Cdf::read_all(&dir, &loaded.scenario.traffic)?;
    Ok(loaded)
}

/// The scenario that a text says it is a variant of.
fn extends(text: &str) -> Option<String> {
    let table: Table = toml::from_str(text).ok()?;
    Some(table.get("extends")?.as_str()?.to_owned())
}

/// The base with what `text` changes: tables by key, arrays as a whole or, given a table, by
/// number. What the base expects of its results is not inherited.
fn extended(home: Option<&Home>, base: &str, text: &str) -> Result<Table> {
    let path = locate(home, base)?;
    let base_text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
    if extends(&base_text).is_some() {
        return Err(
            Error::usage(format!("'{base}' is a variant itself")).hint("extend what it extends")
        );
    }
    let mut own: Table = toml::from_str(text).map_err(|err| malformed(text, &err))?;
    let mut table = parse(base, &base_text, &[])?.toml;
    for key in ["expect", "agree", "description", "source"] {
        table.remove(key);
    }
    own.remove("extends");
    for (key, value) in own {
        merge(table.entry(key).or_insert(Value::Boolean(false)), value).map_err(Error::usage)?;
    }
    Ok(table)
}

pub fn parse(name: &str, text: &str, sets: &[String]) -> Result<Loaded> {
    // First alone, because only then do errors have a line.
    let _: Scenario = toml::from_str(text).map_err(|err| malformed(text, &err))?;
    let table: Table = toml::from_str(text).map_err(|err| malformed(text, &err))?;
    finish(name, table, sets)
}

fn finish(name: &str, mut table: Table, sets: &[String]) -> Result<Loaded> {
    let mut scenario = typed(&table).map_err(Error::usage)?;
    for set in sets {
        let before = table.clone();
        apply(&mut table, set, Reading::Toml)?;
        scenario = match typed(&table) {
            Ok(scenario) => scenario,
            Err(sentence) => {
                // A number where a text is wanted: a fraction without quotes.
                table = before;
                apply(&mut table, set, Reading::Text)?;
                typed(&table).map_err(|_| {
                    Error::usage(format!("--set {set}: {sentence}")).hint("--set KEY=VALUE")
                })?
            }
        };
    }
    validate(&scenario)?;
    Ok(Loaded {
        name: name.to_owned(),
        scenario,
        toml: table,
    })
}

/// Or what is wrong, in a sentence.
fn typed(table: &Table) -> std::result::Result<Scenario, String> {
    Value::Table(table.clone())
        .try_into()
        .map_err(|err: toml::de::Error| err.message().lines().collect::<Vec<_>>().join(" "))
}

/// Names, as far as they can be checked without building the plan.
fn validate(scenario: &Scenario) -> Result<()> {
    for cc in scenario.ccs.iter().chain(scenario.cc.keys()) {
        known_cc(cc)?;
    }
    for expect in &scenario.expect {
        known_cc(&expect.cc)?;
        if expect.bound().is_empty() {
            return Err(Error::usage(format!(
                "the expectation on '{}' has no bound",
                expect.metric
            ))
            .hint("min, max or less_than_cc"));
        }
    }
    for cc in scenario.agree.iter().flat_map(|agree| &agree.ccs) {
        known_cc(cc)?;
    }
    if !MTU_BYTES.contains(&scenario.topology.mtu) {
        return Err(Error::usage(format!(
            "an mtu of {} is not from {} to {}",
            scenario.topology.mtu,
            MTU_BYTES.start(),
            MTU_BYTES.end()
        )));
    }
    if scenario.topology.spray && !scenario.topology.ecmp() {
        return Err(Error::usage("'spray' needs all shortest paths").hint("ecmp = true"));
    }
    if scenario.watch.is_empty() {
        return Err(Error::usage("nothing is watched").hint("[[watch]] for the bottleneck"));
    }
    if scenario.sample.0 == 0 || scenario.jain_window < scenario.sample {
        return Err(Error::usage(
            "'sample' must be above 0 and at most 'jain_window'",
        ));
    }
    for flow in &scenario.flows {
        if (flow.burst == Size(0)) != (flow.period == Time(0)) {
            return Err(Error::usage(
                "a flow that writes in bursts needs both 'burst' and 'period'",
            ));
        }
    }
    if scenario.large_above < scenario.small_below {
        return Err(Error::usage("'large_above' is below 'small_below'"));
    }
    for traffic in &scenario.traffic {
        traffic.validate()?;
    }
    let endless = scenario.flows.iter().any(|flow| flow.bytes == Size(0));
    if endless && scenario.duration.is_none() {
        return Err(Error::usage(
            "a flow without 'bytes' never ends in a scenario without 'duration'",
        ));
    }
    Ok(())
}

fn locate(home: Option<&Home>, name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    let no_such = Error::usage(format!("no scenario '{name}'")).hint("xdc list");
    if name.contains('/') || name.ends_with(".toml") {
        return Err(no_such);
    }
    let Some(home) = home else {
        return Err(no_such);
    };
    let path = home.scenarios().join(format!("{name}.toml"));
    if path.is_file() {
        Ok(path)
    } else {
        Err(no_such)
    }
}

fn malformed(text: &str, err: &toml::de::Error) -> Error {
    let sentence = err.message().lines().collect::<Vec<_>>().join(" ");
    Error::usage(match err.span() {
        Some(span) => {
            let line = text[..span.start].matches('\n').count() + 1;
            format!("line {line}: {sentence}")
        }
        None => sentence,
    })
}

/// What the value of a `--set` is taken for.
#[derive(Clone, Copy)]
enum Reading {
    /// TOML, or a text without its quotes.
    Toml,
    Text,
}

/// `KEY=VALUE`, KEY as TOML writes dotted keys, with numbers for places in arrays. A value that
/// is no TOML, or a number where a text is wanted, is a string; `net.x=1` is short for
/// `sysctl."net.x"=1`, and for the same under each congestion control that has its own.
fn apply(table: &mut Table, set: &str, reading: Reading) -> Result<()> {
    let usage = |why: &str| Error::usage(format!("--set {set}: {why}")).hint("--set KEY=VALUE");
    let (key, value) = set.split_once('=').ok_or_else(|| usage("no '='"))?;
    let (key, value) = (key.trim(), value.trim());
    let keys = if key.starts_with("net.") {
        sysctl_keys(table, key)
    } else {
        vec![key.to_owned()]
    };
    for key in keys {
        let text = || toml::from_str(&format!("{key} = {}", Value::String(value.to_owned())));
        let change: Table = match reading {
            Reading::Toml => toml::from_str(&format!("{key} = {value}")).or_else(|_| text()),
            Reading::Text => text(),
        }
        .map_err(|_| usage("the key is not a dotted TOML key"))?;
        for (key, value) in change {
            let place = table.entry(key).or_insert(Value::Boolean(false));
            merge(place, value).map_err(|why| usage(&why))?;
        }
    }
    Ok(())
}

/// Where a scenario says what a sysctl is: what is set must not be overridden further down.
fn sysctl_keys(table: &Table, name: &str) -> Vec<String> {
    let ccs = table.get("cc").and_then(Value::as_table);
    let own = ccs.into_iter().flatten().filter(|(_, cc)| {
        let sysctls = cc.get("sysctl").and_then(Value::as_table);
        sysctls.is_some_and(|sysctls| sysctls.contains_key(name))
    });
    let mut keys = vec![format!("sysctl.\"{name}\"")];
    keys.extend(own.map(|(cc, _)| format!("cc.{cc}.sysctl.\"{name}\"")));
    keys
}

fn merge(place: &mut Value, change: Value) -> std::result::Result<(), String> {
    match (place, change) {
        (Value::Table(table), Value::Table(change)) => {
            for (key, value) in change {
                merge(table.entry(key).or_insert(Value::Boolean(false)), value)?;
            }
        }
        (Value::Array(array), Value::Table(change)) => {
            for (key, value) in change {
                let element = key
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| array.get_mut(index))
                    .ok_or_else(|| format!("there is no element '{key}'"))?;
                merge(element, value)?;
            }
        }
        (place, change) => *place = change,
    }
    Ok(())
}

/// `a[1-3]` to a1, a2, a3; a name without brackets to itself.
pub fn expand(pattern: &str) -> Result<Vec<String>> {
    let Some((prefix, rest)) = pattern.split_once('[') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let bad =
        || Error::usage(format!("'{pattern}' is not a range of names")).hint("for example a[1-4]");
    let (range, suffix) = rest.split_once(']').ok_or_else(bad)?;
    let (first, last) = range.split_once('-').ok_or_else(bad)?;
    let first: u32 = first.parse().map_err(|_| bad())?;
    let last: u32 = last.parse().map_err(|_| bad())?;
    if first > last {
        return Err(bad());
    }
    Ok((first..=last)
        .map(|n| format!("{prefix}{n}{suffix}"))
        .collect())
}

/// Partner the names of two patterns; a single name partners all of the other side.
pub fn pairs(a: &str, b: &str) -> Result<Vec<(String, String)>> {
    let (left, right) = (expand(a)?, expand(b)?);
    if left.len() != right.len() && left.len() != 1 && right.len() != 1 {
        return Err(Error::usage(format!(
            "'{a}' has {} names and '{b}' has {}",
            left.len(),
            right.len()
        ))
        .hint("as many on both sides, or one"));
    }
    let count = left.len().max(right.len());
    Ok(left
        .into_iter()
        .cycle()
        .zip(right.into_iter().cycle())
        .take(count)
        .collect())
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
bytes = "1mb"
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
    fn names_expand() {
        assert_eq!(expand("a[1-3]").unwrap(), ["a1", "a2", "a3"]);
        assert_eq!(expand("tor").unwrap(), ["tor"]);
        for bad in ["a[1-", "a[3-1]", "a[x-y]", "a[1]"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
        assert_eq!(pairs("a[1-2]", "r").unwrap().len(), 2);
        assert_eq!(pairs("a[1-2]", "b[3-4]").unwrap()[1].1, "b4");
        assert!(pairs("a[1-2]", "b[1-3]").is_err());
    }

    #[test]
    fn errors_name_the_line() {
        let text = SMALL.replace("limit = \"100kb\"", "limit = \"100kg\"");
        let err = parse("small", &text, &[]).unwrap_err().to_string();
        assert!(err.starts_with("line 21: "), "{err}");
        assert!(err.contains("100kg"), "{err}");
        let text = SMALL.replace("quickack", "quikack").replace("mtu", "mut");
        let err = parse("small", &text, &[]).unwrap_err().to_string();
        assert!(err.contains("line 7") && err.contains("mut"), "{err}");
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
        assert_eq!(s.queues["port"].limit, Some(Size(200 << 10)));
        assert!(s.queues["port"].drain.is_some());
        assert_eq!(s.flows[0].bytes, Size(2 << 20));
        assert_eq!(s.sysctl["net.ipv4.tcp_sack"], Scalar::Integer(0));
        assert_eq!(
            s.cc["unocc"].sysctl["net.unocc.profile"],
            Scalar::Text("paper".to_owned())
        );
        // Also where the scenario has its own.
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
    }

    #[test]
    fn unknown_congestion_controls_are_refused() {
        let err = with(&["ccs=[\"quick\"]"]).unwrap_err().to_string();
        assert!(err.contains("quick"), "{err}");
    }
}
