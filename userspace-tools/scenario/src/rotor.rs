// SPDX-License-Identifier: GPL-2.0
//! `[acceltor]`: qdiscs of a rotor network's racks, and the minimum RTO of its hosts.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_algo::acceltor_plan::{HostPlan, Impossible, MAX_RTO_US, Network, Plan, Timers};
use xdc_base::error::{Error, Result};
use xdc_base::text_schema;
use xdc_base::units::{Size, Time};
use xdc_netlink::{acceltor, deserialize_text};
use xdc_proto::{ACCELTOR, MAX_PREFIXES, Queue, Rotor, Topology};

use crate::Scenario;
use crate::dscp::Dscp;
use crate::fabric::RotorShape;

/// Options of the qdisc acceltor (docs/acceltor.md) and related settings. Missing options have the
/// qdisc's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceltorSpec {
    /// Treatment of elephants without a circuit.
    pub policy: Option<Policy>,
    /// Queues of the calendar; `auto`: the plan's [default: auto].
    pub k: Option<Count>,
    /// Classification of elephants [default: dscp].
    pub detect: Option<Detect>,
    /// DSCP of elephants, with `detect = "dscp"` [default: cs1].
    pub dscp: Option<Dscp>,
    /// Accelerated round trips; default: the plan's.
    pub m: Option<u32>,
    /// Maximum elephants of a pair of racks, with `detect = "sketch"`.
    pub elephants: Option<u32>,
    /// Minimum RTO of all hosts; `auto`: the plan's; `kernel`: unchanged [default: auto].
    pub rto_min: Option<RtoMin>,
    /// Treatment of packets for a full calendar queue.
    pub overflow: Option<Overflow>,
    /// Accelerate packets that arrive too early.
    pub rescue: Option<bool>,
    /// Size of a calendar queue; with `blocking`, of all queues together.
    pub limit: Option<Size>,
    /// Queue sizes for mice, and for accelerated elephants.
    pub hp: Option<Size>,
    pub lp: Option<Size>,
    /// End of a day in which nothing is sent to the circuit switch.
    pub guard: Option<Time>,
    /// Time from a packet's transmission to its arrival at the circuit switch.
    pub lead: Option<Time>,
    /// Backlog of `hp` and `lp` above which packets are marked.
    pub ecn: Option<Size>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Accelerate before the pair's day.
    #[default]
    Acceltor,
    /// Wait in a queue of the rack.
    Blocking,
    /// Use the packet network, like mice.
    Unblocking,
    /// Never use a circuit.
    Packet,
}

impl Policy {
    fn word(self) -> acceltor::Policy {
        match self {
            Self::Acceltor => acceltor::Policy::AccelTor,
            Self::Blocking => acceltor::Policy::Blocking,
            Self::Unblocking => acceltor::Policy::Unblocking,
            Self::Packet => acceltor::Policy::Packet,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ElephantDetection")]
pub enum Detect {
    Sketch,
    Dscp,
    Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    Drop,
    Lp,
}

/// Number of queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Count {
    /// From the plan.
    #[default]
    Auto,
    Of(u32),
}

impl FromStr for Count {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count| (1..=64).contains(count));
        count
            .map(Self::Of)
            .ok_or_else(|| format!("'{text}' is not {AUTO}, or a number from 1 to 64"))
    }
}

const AUTO: &str = "auto";
const KERNEL: &str = "kernel";

deserialize_text!(Count, "auto, or a number from 1 to 64", i64 as visit_i64, u64 as visit_u64);
text_schema!(
    Count,
    "QueueCount",
    ["string", "integer"],
    "^(auto|[0-9]+)$",
    "auto, or a number from 1 to 64."
);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RtoMin {
    /// From the plan.
    #[default]
    Auto,
    Kernel,
    Of(Time),
}

impl FromStr for RtoMin {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            AUTO => Ok(Self::Auto),
            KERNEL => Ok(Self::Kernel),
            _ => text.parse().map(Self::Of),
        }
    }
}

deserialize_text!(RtoMin, "auto, kernel, or a time with a unit, such as 12ms");
text_schema!(
    RtoMin,
    "RtoMin",
    "string",
    "^(auto|kernel|[0-9.]+ ?(ns|us|ms|s))$",
    "auto, kernel, or a time: 12ms."
);

impl AcceltorSpec {
    /// Keys of `self`, else of `base`.
    pub fn over(&self, base: &Self) -> Self {
        Self {
            policy: self.policy.or(base.policy),
            k: self.k.or(base.k),
            detect: self.detect.or(base.detect),
            dscp: self.dscp.or(base.dscp),
            m: self.m.or(base.m),
            elephants: self.elephants.or(base.elephants),
            rto_min: self.rto_min.or(base.rto_min),
            overflow: self.overflow.or(base.overflow),
            rescue: self.rescue.or(base.rescue),
            limit: self.limit.or(base.limit),
            hp: self.hp.or(base.hp),
            lp: self.lp.or(base.lp),
            guard: self.guard.or(base.guard),
            lead: self.lead.or(base.lead),
            ecn: self.ecn.or(base.ecn),
        }
    }

    fn policy(&self) -> Policy {
        self.policy.unwrap_or_default()
    }
}

/// CONFIG_HZ of the guests' kernels.
const HZ: u64 = 1_000;
const US_PER_JIFFY: u64 = 1_000_000 / HZ;
const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;
/// Minimum RTO of flows that never wait for a circuit, before scaling.
const UNBLOCKING_RTO_MIN_US: u64 = 1_000;
/// Default DSCP of elephants: CS1.
const ELEPHANT_DSCP: Dscp = Dscp(8);
/// Day and night in a guest: the qdisc's bounds.
const DAYS_NS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;

/// Weeks added to the run's, for the check of links.
const MORE_WEEKS: u64 = 250;
const MOST_WEEKS: u64 = 20_000;

const RTO_MIN: &str = "net.ipv4.tcp_rto_min_us";

/// Adds the circuit switch, the racks' qdiscs and the hosts' minimum RTO to a topology that has the
/// packet network.
pub fn place(
    scenario: &Scenario,
    spec: &AcceltorSpec,
    shape: &RotorShape,
    topology: &mut Topology,
    scale: u32,
) -> Result<()> {
    let ocs = &shape.ocs;
    let slow = |time: Time| time.0 * u64::from(scale);
    let (day_ns, night_ns) = (slow(ocs.day), slow(ocs.night));
    if !DAYS_NS.contains(&day_ns) || night_ns > *DAYS_NS.end() {
        return Err(Error::usage(format!(
            "a day of {} and a night of {} are not possible at scale {scale}",
            ocs.day, ocs.night
        ))
        .hint("a day is from 1 us to 1 s, a night up to 1 s, scaled"));
    }
    if topology.ipv6 {
        return Err(Error::usage("a rotor network has no IPv6").hint("ip = 4"));
    }
    let prefixes = shape.racks.iter().map(|rack| rack.blocks().len());
    let prefixes: usize = prefixes.sum();
    if prefixes > MAX_PREFIXES {
        return Err(Error::usage(format!(
            "the racks' hosts have {prefixes} prefixes: a qdisc takes at most {MAX_PREFIXES}"
        ))
        .hint("a power of two for 'hosts', and a multiple of it for 'sender_hosts'"));
    }
    let network = shape.network(spec);
    let plan = plan(&network, spec).map_err(|why| refusal(why, &network))?;
    // Timers depend on the guest's scale, also in a plan of the unscaled network (`scale` 1).
    let guest = scenario.scale.ok_or_else(|| {
        Error::usage("a rotor network needs a 'scale'").hint(
            "xdc acceltor plan --racks N shows a scale at which Linux's timers are fine enough",
        )
    })?;
    let timers = Timers { hz: HZ, scale: guest.into() };
    let host = HostPlan::new(&network, &plan, timers);
    let needed = || {
        host.ok_or_else(|| {
            Error::usage(format!(
                "at scale {guest} no Linux timer expires before the next day of a pair of racks"
            ))
            .hint("a larger scale, or 'k' and 'rto_min' in [acceltor]")
        })
    };
    let is_planned = spec.policy() == Policy::Acceltor;
    let k = match spec.k.unwrap_or_default() {
        Count::Of(k) => u64::from(k),
        Count::Auto if is_planned => needed()?.queues,
        Count::Auto => plan.queues,
    };
    // Policies other than acceltor have a queue per rack, and the calendar has at most 64 queues.
    let k = k.clamp(1, 64);
    let rto_min_us = match spec.rto_min.unwrap_or_default() {
        RtoMin::Kernel => None,
        RtoMin::Of(time) if time.0 > MAX_RTO_US * NS_PER_US => {
            return Err(Error::usage("'rto_min' in [acceltor] must be at most 120 s"));
        }
        RtoMin::Of(time) => Some(time.0 * u64::from(guest) / NS_PER_US),
        RtoMin::Auto => Some(match spec.policy() {
            Policy::Acceltor => needed()?.rto_min_us,
            Policy::Blocking => blocking_us(&network, &plan, guest),
            Policy::Unblocking | Policy::Packet => UNBLOCKING_RTO_MIN_US * u64::from(guest),
        }),
    };
    let rto_min_us = rto_min_us.map(|us| us * u64::from(scale) / u64::from(guest));
    if let Some(us) = rto_min_us
        && !topology.sysctls.iter().any(|(name, _)| name == RTO_MIN)
    {
        topology.sysctls.push((RTO_MIN.to_owned(), us.to_string()));
        topology.of_hosts.push(RTO_MIN.to_owned());
    }
    let words = words(spec, k, network.packet_rtt_ns, scale);
    let options = acceltor::Options::from_words(&words)
        .map_err(|mistake| Error::usage(mistake.to_string()).about("[acceltor]"))?;
    let timed = acceltor::Options { day_ns: Some(day_ns), ..options };
    timed.check().map_err(|(_, why)| Error::usage(why.sentence).hint(why.range))?;
    for link in &mut topology.links {
        if link.b == shape.packet && shape.racks.iter().any(|rack| rack.switch == link.a) {
            link.ab.queue =
                Some(Queue { kind: ACCELTOR.to_owned(), words: words.clone(), seed: None });
        }
    }
    let mut rotor = Rotor {
        switch: shape.switch.clone(),
        packet: shape.packet.clone(),
        racks: shape.racks.clone(),
        day_ns,
        night_ns,
        rate_bps: ocs.rate.0 / u64::from(scale),
        weeks: 0,
    };
    let duration_ns = scenario.duration.map(slow);
    let weeks = duration_ns.map_or(MOST_WEEKS, |ns| ns / rotor.week_ns().max(1) + MORE_WEEKS);
    rotor.weeks = weeks.min(MOST_WEEKS) as u32;
    topology.rotor = Some(rotor);
    Ok(())
}

/// Plans a network, with the scenario's number of accelerated round trips.
fn plan(network: &Network, spec: &AcceltorSpec) -> std::result::Result<Plan, Impossible> {
    let mut plan = Plan::new(network)?;
    if let Some(m) = spec.m {
        let m = u64::from(m.min(16));
        let lead_ns = (m + 1) * network.packet_rtt_ns;
        plan.accelerated_round_trips = m;
        plan.window_at_start = 1 << m;
        plan.queues = lead_ns.div_ceil(network.slot_ns()) + 2;
        let rto_min_ns = plan.rto_min_blocking_ns.checked_sub(lead_ns);
        plan.rto_min_ns = rto_min_ns.filter(|ns| *ns > 0).ok_or(Impossible::ShortWeek)?;
    }
    Ok(plan)
}

/// Equation (7) without Linux's additions: rounding up to jiffies, and the smoothed RTT.
fn blocking_us(network: &Network, plan: &Plan, scale: u32) -> u64 {
    let jiffies = |ns: u64| ns * u64::from(scale) / (NS_PER_MS * 1_000 / HZ);
    let rtt = jiffies(network.packet_rtt_ns) + 1;
    let rto = jiffies(plan.rto_min_blocking_ns);
    rto.saturating_sub(rtt).max(1) * US_PER_JIFFY
}

fn refusal(why: Impossible, network: &Network) -> Error {
    let error = match why {
        Impossible::Bounds(what) => Error::usage(format!("'{what}' is out of range")),
        Impossible::ShortDay => Error::usage(format!(
            "a day of {} has fewer than two round trips of the circuit, {}",
            Time(network.day_ns),
            Time(network.circuit_rtt_ns)
        )),
        Impossible::ShortWeek => Error::usage(format!(
            "a week of {} is too short: the minimum RTO is not above 0",
            Time(network.week_ns())
        )),
    };
    error.hint("xdc acceltor plan, to find a network with a plan")
}

fn words(spec: &AcceltorSpec, k: u64, rtt_ns: u64, scale: u32) -> Vec<String> {
    // A saturated product exceeds every option's bound, and is refused there.
    let slow = |ns: u64| ns.saturating_mul(u64::from(scale));
    let detect = match spec.detect {
        Some(Detect::Sketch) => acceltor::Detect::Sketch,
        Some(Detect::Filter) => acceltor::Detect::Filter,
        Some(Detect::Dscp) | None => acceltor::Detect::Dscp,
    };
    let overflow = spec.overflow.map(|overflow| match overflow {
        Overflow::Drop => acceltor::Overflow::Drop,
        Overflow::Lp => acceltor::Overflow::Lp,
    });
    let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    let options = acceltor::Options {
        policy: Some(spec.policy().word()),
        k: Some(k as u32),
        rtt_ns: Some(slow(rtt_ns)),
        detect: Some(detect),
        dscp: (detect == acceltor::Detect::Dscp).then(|| 1 << spec.dscp.unwrap_or(ELEPHANT_DSCP).0),
        elephants: spec.elephants,
        overflow,
        rescue: spec.rescue,
        limit_bytes: spec.limit.map(bytes),
        high_limit_bytes: spec.hp.map(bytes),
        low_limit_bytes: spec.lp.map(bytes),
        guard_ns: spec.guard.map(|time| slow(time.0)),
        lead_ns: spec.lead.map(|time| slow(time.0)),
        ecn_bytes: spec.ecn.map(bytes),
        ..Default::default()
    };
    let words = options.to_words();
    words.flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SMALL;
    use crate::{parse, plan::plan};
    use xdc_proto::{Job, RunPlan};

    const FABRIC: &str = r#"
[topology.fabric]
kind = "rotor"
racks = 8
hosts = 1
rate = "100gbit"
host = { delay = "12.5us" }
eps = { rate = "50gbit", delay = "5us", queue = "port" }
ocs = { rate = "80gbit", day = "240us", night = "20us" }
[acceltor]
limit = "500kB"
[cc.blocking]
kernel = "reno"
[cc.blocking.acceltor]
policy = "blocking"
limit = "1.5MB"
"#;

    fn text() -> String {
        let (head, rest) = SMALL.split_once("[topology]").unwrap();
        let (_, rest) = rest.split_once("[queues.port]").unwrap();
        let (rest, _) = rest.split_once("[cc.unocc.sysctl]").unwrap();
        let rest = rest
            .replace("from = \"s\"", "from = \"ae\"")
            .replace("to = \"r\"", "to = \"at1\"")
            .replace("\"a[1-2]\"", "\"a0\"")
            .replace("dst = \"r\"", "dst = \"a[1-7]\"");
        format!("{head}duration = \"20ms\"\n[topology]\nmtu = 1500\n[queues.port]{rest}{FABRIC}")
            .replace("[\"unocc\", \"cubic\"]", "[\"reno\", \"blocking\"]")
    }

    fn of(sets: &[&str], cc: &str, scale: u32) -> Result<RunPlan> {
        let mut sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        sets.push(format!("scale={scale}"));
        let loaded = parse("rotor", &text(), &sets)?;
        match plan(&loaded.scenario, cc, 7, scale)?.job {
            Job::Run(run) => Ok(run),
            job => panic!("{job:?}"),
        }
    }

    fn words_of(run: &RunPlan) -> String {
        let uplink = run.topology.links.iter().find(|link| link.a == "at0");
        match &uplink.unwrap().ab.queue {
            Some(queue) => format!(" {} ", queue.words.join(" ")),
            queue => panic!("{queue:?}"),
        }
    }

    fn rto_min(run: &RunPlan) -> Option<&str> {
        let mut sysctls = run.topology.sysctls.iter();
        let found = sysctls.find(|(name, _)| name == RTO_MIN)?;
        Some(&found.1)
    }

    #[test]
    fn the_plan_sets_k_and_the_minimum_rto() {
        // `xdc acceltor plan --racks 8 --scale 100`.
        let run = of(&[], "reno", 100).unwrap();
        let rotor = run.topology.rotor.as_ref().unwrap();
        assert_eq!((rotor.day_ns, rotor.night_ns), (24_000_000, 2_000_000));
        assert_eq!(rotor.rate_bps, 800_000_000);
        assert_eq!(rotor.racks.len(), 8);
        let words = words_of(&run);
        for wanted in [" policy acceltor ", " k 4 ", " dscp 8 ", " rtt 6ms ", " limit 500000b "] {
            assert!(words.contains(wanted), "{words}");
        }
        assert_eq!(rto_min(&run), Some("120000"));
        let blocking = of(&[], "blocking", 100).unwrap();
        assert!(words_of(&blocking).contains(" limit 1500000b "));
        // W - T is 158 ms, minus 7 ms for the RTT and rounding to jiffies.
        assert_eq!(rto_min(&blocking), Some("151000"));
        let own = of(&["acceltor.rto_min=2ms", "acceltor.k=9"], "reno", 100).unwrap();
        assert_eq!(rto_min(&own), Some("200000"));
        assert!(words_of(&own).contains(" k 9 "));
        assert_eq!(rto_min(&of(&["acceltor.rto_min=kernel"], "reno", 100).unwrap()), None);
        assert!(run.topology.nodes.iter().any(|node| node.name == "ao"));
    }

    #[test]
    fn invalid_rotors_are_refused() {
        let said = |sets: &[&str], scale| of(sets, "reno", scale).unwrap_err().lines().join(" ");
        let racks = |racks: u32| format!("topology.fabric.racks={racks}");
        assert!(said(&[&racks(1)], 5).contains("2 to 128"));
        assert!(said(&[&racks(129)], 5).contains("2 to 128"));
        assert!(said(&[], 10_000).contains("not possible at scale"));
        assert!(said(&["topology.ip=6"], 5).contains("no IPv6"));
        assert!(said(&["topology.fabric.ocs.day=100us"], 5).contains("fewer than two round trips"));
        assert!(said(&["acceltor.k=65"], 5).contains("1 to 64"));
        assert!(said(&["acceltor.policy=wait"], 5).contains("unknown word 'wait'"));
        assert!(said(&["topology.fabric.leaves=2"], 5).contains("takes no 'leaves'"));
        assert!(said(&["unset=topology.fabric.ocs"], 5).contains("needs 'ocs'"));
        let event = "event=[{at=\"1ms\", link=\"at0-ae\", down=true}]";
        assert!(said(&[event], 5).contains("uplink"));
    }

    #[test]
    fn a_plan_without_scale_matches_the_scaled_guest() {
        let mut scenario = parse("rotor", &text(), &["scale=5".to_owned()]).unwrap().scenario;
        let Job::Run(run) = plan(&scenario, "reno", 7, 1).unwrap().job else {
            panic!("no run");
        };
        let guest = of(&[], "reno", 5).unwrap();
        let k = |run: &RunPlan| {
            let words = words_of(run);
            words.split_once(" k ").unwrap().1.split(' ').next().map(str::to_owned)
        };
        assert_eq!(k(&run), k(&guest));
        let us = |run: &RunPlan| rto_min(run).unwrap().parse::<u64>().unwrap();
        assert_eq!(us(&run) * 5, us(&guest));
        scenario.scale = None;
        assert!(plan(&scenario, "reno", 7, 1).is_err());
    }

    #[test]
    fn acceltor_without_a_rotor_is_refused() {
        let text = format!("{SMALL}[acceltor]\nk = 4\n");
        let said = parse("small", &text, &[]).unwrap_err().lines().join(" ");
        assert!(said.contains("kind = \"rotor\""), "{said}");
    }
}
