// SPDX-License-Identifier: GPL-2.0
//! Space of a search: the parameters of a network, and their bounds as in a file of
//! scenarios/hunt/.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::text::nearest;
use xdc_scenario::beside;

use super::case::Case;

/// How a parameter's values are drawn between its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    Linear,
    Log,
    Whole,
}

/// A parameter of a network.
pub struct Param {
    pub key: Key,
    pub name: &'static str,
    pub draw: Draw,
    /// Value without the effect; a required parameter has none.
    pub neutral: f64,
    /// Parameter without which this one has no effect.
    pub of: Option<Key>,
    pub meaning: &'static str,
}

macro_rules! params {
    ($($key:ident $name:literal $draw:ident $neutral:expr, $of:expr, $meaning:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key { $($key),* }

        pub const PARAMS: &[Param] = &[$(Param {
            key: Key::$key,
            name: $name,
            draw: Draw::$draw,
            neutral: $neutral,
            of: $of,
            meaning: $meaning,
        }),*];
    };
}

/// No neutral value: every network has the parameter.
const REQUIRED: f64 = f64::NAN;

use Key::{
    BurstLoss, DelayStep, FarFlows, MessageLoad, Outage, PauseFlows, PolicerShare, RateStep,
};

params! {
    RateMbps "rate_mbps" Log REQUIRED, None, "rate of the port, Mbit/s";
    RttUs "rtt_us" Log REQUIRED, None, "shortest base RTT, us";
    BufferBdp "buffer_bdp" Log REQUIRED, None, "queue limit of the port, in BDPs of the longest base RTT";
    MarkShare "mark_share" Linear 0.35, None, "queue above which the port marks for DCTCP and similar, as a share of the limit";
    PolicerShare "policer_share" Linear 0.0, None, "rate of a policer before the port, as a share of the port's";
    PolicerMs "policer_ms" Log 10.0, Some(PolicerShare), "burst of the policer, in ms of its rate";
    NearFlows "near_flows" Whole 1.0, None, "endless flows with the shortest RTT";
    FarFlows "far_flows" Whole 0.0, None, "endless flows with a longer RTT";
    FarRatio "far_ratio" Log 4.0, Some(FarFlows), "the longer RTT over the shortest";
    VictimFlows "victim_flows" Whole 1.0, None, "endless flows of the harmed congestion control; for the goal harm";
    JoinShare "join_share" Linear 0.0, None, "start of the last near flow, as a share of the run";
    PauseFlows "pause_flows" Whole 0.0, None, "flows whose application writes bursts";
    PauseMs "pause_ms" Log 50.0, Some(PauseFlows), "time between bursts, ms";
    PauseLoad "pause_load" Linear 0.2, Some(PauseFlows), "mean load of the bursts, as a share of the port's rate";
    MessageLoad "message_load" Linear 0.0, None, "load of messages at random times, as a share of the port's rate";
    MessageBytes "message_bytes" Log 20_000.0, Some(MessageLoad), "size of a message";
    ReceiverBdp "receiver_bdp" Log 0.0, None, "receive buffer of the near flows, in BDPs: slow receivers";
    Loss "loss" Log 0.0, None, "share of data packets lost at random";
    Reorder "reorder" Log 0.0, None, "share of data packets that overtake others";
    Jitter "jitter" Log 0.0, None, "extra delay of data packets, up to this share of the RTT, in order";
    AckJitter "ack_jitter" Log 0.0, None, "the same of ACKs, which then arrive compressed";
    RateStep "rate_step" Log 1.0, None, "factor of the rate for a time";
    RateAt "rate_at" Linear 0.3, Some(RateStep), "start of that time, as a share of the run";
    RateFor "rate_for" Linear 0.2, Some(RateStep), "length of that time";
    DelayStep "delay_step" Log 1.0, None, "factor of the shortest RTT for a time";
    DelayAt "delay_at" Linear 0.4, Some(DelayStep), "start of that time, as a share of the run";
    DelayFor "delay_for" Linear 0.2, Some(DelayStep), "length of that time";
    BurstLoss "burst_loss" Log 0.0, None, "probability that three of ten packets are lost, for a time";
    BurstAt "burst_at" Linear 0.5, Some(BurstLoss), "start of that time, as a share of the run";
    BurstFor "burst_for" Linear 0.2, Some(BurstLoss), "length of that time";
    Outage "outage" Log 0.0, None, "length of an outage, in longest base RTTs";
    OutageAt "outage_at" Linear 0.6, Some(Outage), "its start, as a share of the run";
    Offload "offload" Whole 0.0, None, "1: TSO, GSO and GRO";
    DelayedAcks "delayed_acks" Whole 0.0, None, "1: the kernel's delayed ACKs instead of one per packet";
    RtoMinMs "rto_min_ms" Log 200.0, None, "shortest retransmission timeout, ms";
    FirstWindow "first_window" Whole 10.0, None, "first window, packets";
}

/// Bounds of a parameter in a space.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub min: f64,
    pub max: f64,
    /// Share of random networks that have the neutral value instead.
    #[serde(default)]
    pub off: f64,
}

/// A space as in its file, with limits of plausibility and cost.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// File name without extension.
    #[serde(skip)]
    pub name: String,
    pub title: String,
    /// References of `--against`, unless given.
    pub against: Vec<String>,
    /// Maximum of rate x duration in full packets, which bounds the time of a run.
    pub packets: f64,
    /// Duration of a run in longest base RTTs.
    pub round_trips: f64,
    /// Bounds of this duration.
    pub duration_ms: [f64; 2],
    pub longest_rtt_ms: f64,
    /// Lower bound of the port's buffer.
    pub buffer_packets: f64,
    pub param: BTreeMap<String, Bounds>,
}

/// Full packet on the wire, bits.
pub const PACKET_BITS: f64 = 1514.0 * 8.0;

/// Largest bundle that TCP hands over with offloads, and how many a port must hold.
const BUNDLE_BYTES: f64 = 65_536.0;
const LEAST_BUNDLES: f64 = 8.0;

impl Space {
    /// Loads a preset by name, or a file.
    pub fn load(home: &Home, name_or_path: &str) -> Result<Self> {
        let path = Path::new(name_or_path);
        let presets = home.scenarios().join("hunt");
        let path = match path.extension() {
            Some(_) => path.to_path_buf(),
            None => presets.join(format!("{name_or_path}.toml")),
        };
        if !path.is_file() {
            return Err(Error::usage(format!("there is no space '{name_or_path}'")).hint(format!(
                "datacenter, inter-dc, wan, or a file like those in {}",
                presets.display()
            )));
        }
        let text = beside::named(&path)?;
        Self::parse(&xdc_scenario::name_of(&path)?, &text).map_err(|err| err.about(path.display()))
    }

    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut space: Self =
            toml::from_str(text).map_err(|err| xdc_scenario::malformed(text, &err))?;
        name.clone_into(&mut space.name);
        space.check()?;
        Ok(space)
    }

    fn check(&self) -> Result<()> {
        let names: Vec<_> = PARAMS.iter().map(|param| param.name).collect();
        for (name, bounds) in &self.param {
            let Some(param) = PARAMS.iter().find(|param| param.name == *name) else {
                let err = Error::usage(format!("there is no parameter '{name}'"));
                return Err(match nearest(name, &names) {
                    Some(near) => err.hint(format!("'{near}'")),
                    None => err.hint("a name of the table in docs/hunt.md"),
                });
            };
            let wrong = |why: &str| Error::usage(format!("param.{name}: {why}"));
            if !(bounds.min >= 0.0 && bounds.min <= bounds.max && bounds.max.is_finite()) {
                return Err(
                    wrong("bounds must be 0 or more, and in order").hint("min = 1, max = 2")
                );
            }
            if param.draw == Draw::Log && bounds.min <= 0.0 {
                return Err(wrong("the lower bound of a logarithm is 0").hint("a positive 'min'"));
            }
            if !(0.0..1.0).contains(&bounds.off) || param.neutral.is_nan() && bounds.off > 0.0 {
                return Err(wrong("'off' must be below 1, and 0 for a required parameter")
                    .hint("off = 0.5"));
            }
        }
        let required = PARAMS.iter().filter(|param| param.neutral.is_nan());
        for param in required {
            if !self.param.contains_key(param.name) {
                return Err(Error::usage(format!("param.{} is missing", param.name))
                    .hint(format!("{} = {{ min = 1, max = 2 }}", param.name)));
            }
        }
        let [shortest, longest] = self.duration_ms;
        let limits = [self.packets, self.round_trips, shortest, self.longest_rtt_ms];
        if limits.iter().any(|limit| !(*limit > 0.0 && limit.is_finite())) || shortest > longest {
            return Err(Error::usage(
                "packets, round_trips, duration_ms and longest_rtt_ms must be positive and in order",
            )
            .hint("the limits of scenarios/hunt/wan.toml"));
        }
        Ok(())
    }

    /// Parameters that vary, a gene each.
    pub fn genes(&self) -> impl Iterator<Item = (&'static Param, Bounds)> {
        PARAMS.iter().filter_map(|param| Some((param, *self.param.get(param.name)?)))
    }

    /// The case of a genome: a number in [0, 1) per gene.
    pub fn decode(&self, genome: &[f64]) -> Case {
        let mut case = Case::neutral();
        for ((param, bounds), &gene) in self.genes().zip(genome) {
            if gene >= bounds.off {
                let at = (gene - bounds.off) / (1.0 - bounds.off);
                case.set(param.key, value_at(param.draw, bounds, at));
            }
        }
        self.fit(case)
    }

    /// Makes the case plausible and cheap: bounds RTT, duration, rate and buffer.
    pub fn fit(&self, mut case: Case) -> Case {
        let longest_us = 1e3 * self.longest_rtt_ms;
        let ratio = case.get(Key::FarRatio);
        let most = (longest_us / case.get(Key::RttUs)).max(1.0);
        case.set(Key::FarRatio, ratio.min(most));
        let [shortest, longest] = self.duration_ms;
        let ms = self.round_trips * case.longest_rtt_us() / 1e3;
        case.duration_us = 1e3 * round(ms.clamp(shortest, longest), 2);
        let most_mbps = self.packets * PACKET_BITS / case.duration_us;
        let rate = case.get(Key::RateMbps);
        if rate > most_mbps {
            case.set(Key::RateMbps, round_down(most_mbps));
        }
        let least = self.buffer_packets * PACKET_BITS / case.bdp_bits();
        let buffer = case.get(Key::BufferBdp);
        if buffer < least {
            case.set(Key::BufferBdp, least);
        }
        // A port takes a bundle as one packet, which no switch does: it must not matter there.
        if case.limit_bytes() < LEAST_BUNDLES * BUNDLE_BYTES {
            case.drop_feature(Key::Offload);
        }
        case
    }

    /// Position of a value between the bounds of its parameter, 0 to 1.
    fn place(&self, param: &Param, value: f64) -> f64 {
        let Some(bounds) = self.param.get(param.name).filter(|it| it.max > it.min) else {
            return 0.0;
        };
        let at = match param.draw {
            Draw::Log => (value / bounds.min).ln() / (bounds.max / bounds.min).ln(),
            Draw::Linear | Draw::Whole => (value - bounds.min) / (bounds.max - bounds.min),
        };
        at.clamp(0.0, 1.0)
    }

    /// Whether a network has the features of a known failure, so that its search would repeat it.
    /// Features in `usual` do not distinguish failures.
    pub fn repeats(&self, case: &Case, known: &Case, usual: &[Key]) -> bool {
        let own = case.features();
        let mut features = known.features();
        features.retain(|key| !usual.contains(key));
        if !features.is_empty() {
            let shared = features.iter().filter(|key| own.contains(key)).count();
            // A reduction may leave a feature that the failure hardly needs.
            return 3 * shared >= 2 * features.len();
        }
        self.distance(case, known, PARAMS.iter().filter(|it| it.neutral.is_nan())) < NEAR
    }

    /// Whether two networks share most features and have similar values.
    pub fn alike(&self, a: &Case, b: &Case) -> bool {
        let (own, others) = (a.features(), b.features());
        let shared: Vec<_> = own.iter().filter(|key| others.contains(key)).collect();
        let compared = |it: &&Param| it.neutral.is_nan() || shared.contains(&&it.key);
        3 * shared.len() >= 2 * own.len().max(others.len())
            && self.distance(a, b, PARAMS.iter().filter(compared)) < NEAR
    }

    fn distance<'a>(&self, a: &Case, b: &Case, of: impl Iterator<Item = &'a Param>) -> f64 {
        let each =
            of.map(|it| (self.place(it, a.get(it.key)) - self.place(it, b.get(it.key))).abs());
        let each: Vec<_> = each.collect();
        each.iter().sum::<f64>() / each.len().max(1) as f64
    }
}

/// Mean distance of parameters, in shares of their ranges, below which networks are similar.
const NEAR: f64 = 0.2;

fn value_at(draw: Draw, bounds: Bounds, at: f64) -> f64 {
    let Bounds { min, max, .. } = bounds;
    match draw {
        Draw::Linear => round(min + at * (max - min), 2),
        Draw::Log => round(min * (max / min).powf(at), 2).clamp(min, max),
        Draw::Whole => (min + (at * (max - min + 1.0)).floor()).min(max),
    }
}

/// Rounds to significant digits.
pub fn round(value: f64, digits: i32) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let unit = digits - 1 - value.abs().log10().floor() as i32;
    // Powers of ten are exact only with positive exponents.
    match unit >= 0 {
        true => (value * 10f64.powi(unit)).round() / 10f64.powi(unit),
        false => (value / 10f64.powi(-unit)).round() * 10f64.powi(-unit),
    }
}

fn round_down(value: f64) -> f64 {
    let near = round(value, 2);
    match near > value {
        true => round(0.95 * value, 2).min(value),
        false => near,
    }
}
