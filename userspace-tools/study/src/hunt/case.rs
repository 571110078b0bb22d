// SPDX-License-Identifier: GPL-2.0
//! A network of the search, and its scenario.

use std::fmt::Write as _;

use xdc_base::units::{Fraction, PPM, Rate, Size, Time};

use super::space::{Draw, Key, PACKET_BITS, PARAMS, Param, round};

/// Values of all parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// In the order of [`PARAMS`].
    values: Vec<f64>,
    pub duration_us: f64,
}

/// Payload over wire bytes of a full packet with timestamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

/// Messages of a run, which bound its time.
const MAX_MESSAGES: f64 = 300.0;

/// Smallest thresholds of a port that an operator would set, in full packets: 8 for marks by the
/// backlog, 64 for a phantom queue, whose marks begin at a fiftieth.
const LEAST_MARK_BYTES: f64 = 8.0 * 1514.0;
const LEAST_PHANTOM_BYTES: f64 = 64.0 * 1514.0;

/// Buffers of flows that no buffer limits.
const LARGE_BUFFER: &str = "16MiB";

impl Case {
    pub fn neutral() -> Self {
        Self { values: PARAMS.iter().map(|param| param.neutral).collect(), duration_us: 0.0 }
    }

    pub fn get(&self, key: Key) -> f64 {
        self.values[key as usize]
    }

    pub fn set(&mut self, key: Key, value: f64) {
        self.values[key as usize] = value;
    }

    /// Sets a parameter to its neutral value.
    pub fn drop_feature(&mut self, key: Key) {
        self.set(key, PARAMS[key as usize].neutral);
    }

    fn is_on(&self, param: &Param) -> bool {
        let differs = self.get(param.key) != param.neutral && !param.neutral.is_nan();
        differs && param.of.is_none_or(|of| self.is_on(&PARAMS[of as usize]))
    }

    /// Optional parameters with an effect; their own parameters are not among them.
    pub fn features(&self) -> Vec<Key> {
        let on = PARAMS.iter().filter(|it| it.of.is_none() && self.is_on(it));
        on.map(|param| param.key).collect()
    }

    /// Rounds all values with an effect that are no counts to significant digits.
    pub fn rounded(&self, digits: i32) -> Self {
        let mut case = self.clone();
        for (param, _) in self.shown().filter(|(it, _)| it.draw != Draw::Whole) {
            case.set(param.key, round(self.get(param.key), digits));
        }
        case
    }

    /// Parameters with an effect, and their values.
    pub fn shown(&self) -> impl Iterator<Item = (&'static Param, f64)> {
        let shown = PARAMS.iter().filter(|it| it.neutral.is_nan() || self.is_on(it));
        shown.map(|it| (it, round(self.get(it.key), 3)))
    }

    /// The same as text.
    pub fn text(&self) -> String {
        let shown = self.shown().map(|(it, value)| format!("{} {value}", it.name));
        shown.collect::<Vec<_>>().join(", ")
    }

    fn far_rtt_us(&self) -> f64 {
        self.get(Key::RttUs) * self.get(Key::FarRatio)
    }

    pub fn longest_rtt_us(&self) -> f64 {
        match self.get(Key::FarFlows) > 0.0 {
            true => self.far_rtt_us(),
            false => self.get(Key::RttUs),
        }
    }

    pub fn bdp_bits(&self) -> f64 {
        self.get(Key::RateMbps) * self.longest_rtt_us()
    }

    /// Start and end of a disturbance, in us.
    fn span_us(&self, at: Key, length: Key) -> (f64, f64) {
        let from = self.get(at) * self.duration_us;
        (from, (from + self.get(length) * self.duration_us).min(self.duration_us))
    }

    fn outage_us(&self) -> (f64, f64) {
        let from = self.get(Key::OutageAt) * self.duration_us;
        let length = self.get(Key::Outage) * self.longest_rtt_us();
        (from, (from + length).min(self.duration_us))
    }

    /// Mean payload capacity of the path, Mbit/s: the port or its policer, steps and outages.
    pub fn capacity_mbps(&self) -> f64 {
        let rate = self.get(Key::RateMbps);
        let policed = match self.get(Key::PolicerShare) {
            0.0 => f64::INFINITY,
            share => share * rate,
        };
        let share = |(from, to): (f64, f64)| (to - from) / self.duration_us;
        let stepped = share(self.span_us(Key::RateAt, Key::RateFor));
        let step = rate * self.get(Key::RateStep);
        let mean = stepped * step.min(policed) + (1.0 - stepped) * rate.min(policed);
        mean * (1.0 - share(self.outage_us())) * PAYLOAD_SHARE
    }

    fn has(&self, key: Key) -> bool {
        self.is_on(&PARAMS[key as usize])
    }

    /// Limit of the port's queue.
    pub fn limit_bytes(&self) -> f64 {
        self.get(Key::BufferBdp) * self.bdp_bits() / 8.0
    }

    /// Writes the scenario for congestion controls, the first of which is hunted. With `victim`,
    /// some flows use this one in all runs.
    pub fn scenario(&self, ccs: &[&str], victim: Option<&str>) -> String {
        let others = [
            ("far", self.get(Key::FarFlows) > 0.0),
            ("pausing", self.has(Key::PauseFlows)),
            ("talker", self.has(Key::MessageLoad)),
            ("victim", victim.is_some()),
        ];
        let others = others.iter().filter(|it| it.1).map(|it| it.0);
        let hosts: Vec<_> = ["near"].into_iter().chain(others).collect();
        let us = self.duration_us;
        let head = format!(
            "engine = \"uml\"\nccs = {}\nduration = \"{}\"\nsample = \"{}\"\njain_window = \"{}\"\n\
             # Figures named settled are of the second half.\nwarmup = \"{}\"\n",
            list(ccs),
            time(us),
            time(round(us / 200.0, 1).max(100.0)),
            time(round(us / 40.0, 1).max(200.0)),
            time(us / 2.0)
        );
        let parts = [
            head,
            self.topology(&hosts),
            self.port(),
            self.hosts(&hosts),
            self.flows(victim),
            self.messages(),
            self.events(),
            self.sysctls(ccs),
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }

    /// A line of the scenario, if the parameter has an effect.
    fn line(&self, key: Key, name: &str, value: &str) -> String {
        match self.has(key) {
            true => format!("{name} = {value}\n"),
            false => String::new(),
        }
    }

    fn topology(&self, hosts: &[&str]) -> String {
        let (rate_mbps, rtt_us) = (self.get(Key::RateMbps), self.get(Key::RttUs));
        let all: Vec<_> = hosts.iter().copied().chain(["r"]).collect();
        let mut text = format!(
            "[topology]\nhosts = {}\nrouters = [\"s\"]\ntcp_usec_ts = true\nquickack = {}\n{}\n\
             # Propagation is on the way of ACKs.\n",
            list(&all),
            !self.has(Key::DelayedAcks),
            self.line(Key::Offload, "offload", "true")
        );
        for host in hosts {
            let base_us = match *host {
                "far" => self.far_rtt_us(),
                _ => rtt_us,
            };
            let jitter = format!("\"{}\"", time(self.get(Key::AckJitter) * base_us));
            let _ = writeln!(
                text,
                "[[topology.links]]\na = \"{host}\"\nb = \"s\"\nrate = \"{}\"\ndelay_ba = \"{}\"\n{}",
                rate(10.0 * rate_mbps.max(100.0)),
                time(base_us),
                self.line(Key::AckJitter, "jitter_ba", &jitter)
            );
        }
        let jitter_us = (PACKET_BITS / rate_mbps).max(self.get(Key::Jitter) * rtt_us);
        let share = |key, name| self.line(key, name, &format!("\"{}\"", fraction(self.get(key))));
        let _ = write!(
            text,
            "[[topology.links]]\na = \"s\"\nb = \"r\"\nrate = \"{}\"\nqueue_ab = \"port\"\n\
             # At least a packet's time: flows in step with the port would stay so forever.\n\
             jitter_ab = \"{}\"\n{}{}",
            rate(rate_mbps),
            time(jitter_us),
            share(Key::Loss, "loss_ab"),
            share(Key::Reorder, "reorder_ab")
        );
        text
    }

    /// Backlog from which the port marks for DCTCP.
    fn mark_bytes(&self) -> f64 {
        let wanted = self.get(Key::MarkShare) * self.limit_bytes();
        wanted.max(LEAST_MARK_BYTES).min(0.9 * self.limit_bytes())
    }

    fn port(&self) -> String {
        let phantom = (self.bdp_bits() / 8.0).max(LEAST_PHANTOM_BYTES);
        format!(
            "[queues.port]\nlimit = \"{}\"\nmin = \"{mark}\"\nmax = \"{mark}\"\n\
             phantom = \"{}\"\ndrain = \"0.952\"\npmin = \"2%\"\npmax = \"60%\"\n\n\
             [[watch]]\nname = \"port\"\nfrom = \"s\"\nto = \"r\"\n",
            size(self.limit_bytes()),
            size(phantom),
            mark = size(self.mark_bytes())
        )
    }

    fn hosts(&self, hosts: &[&str]) -> String {
        let mut text = String::new();
        if self.has(Key::FirstWindow) {
            for host in hosts {
                let window = self.get(Key::FirstWindow);
                let _ = writeln!(text, "[host.{host}]\ninitcwnd = {window}");
            }
        }
        if self.has(Key::PolicerShare) {
            let mbps = self.get(Key::RateMbps) * self.get(Key::PolicerShare);
            let burst = mbps * self.get(Key::PolicerMs) * 1e3 / 8.0;
            let _ = writeln!(
                text,
                "[host.s]\nmodules = [\"act_police\", \"cls_matchall\"]\n\
                 setup = [\n  \"tc qdisc add dev r clsact\",\n  \
                 \"tc filter add dev r egress matchall action police rate {}bit burst {} conform-exceed drop\",\n]",
                (mbps * 1e6).round(),
                burst.max(2.0 * PACKET_BITS / 8.0).round()
            );
        }
        text
    }

    fn flows(&self, victim: Option<&str>) -> String {
        let (rate_mbps, rtt_us) = (self.get(Key::RateMbps), self.get(Key::RttUs));
        let mut text = String::new();
        let mut flows = |host: &str, count: f64, more: &str| {
            let _ = write!(
                text,
                "[[flows]]\ngroup = \"{host}\"\nsrc = \"{host}\"\ndst = \"r\"\ncount = {count}\n\
                 sndbuf = \"{LARGE_BUFFER}\"\n{more}\n"
            );
        };
        let receiver = match self.has(Key::ReceiverBdp) {
            true => {
                size((self.get(Key::ReceiverBdp) * rate_mbps * rtt_us).max(8.0 * PACKET_BITS) / 8.0)
            }
            false => LARGE_BUFFER.to_owned(),
        };
        let jitter = format!("jitter = \"{}\"", time(rtt_us.min(self.duration_us / 10.0)));
        let receiver = format!("rcvbuf = \"{receiver}\"\n");
        let large = format!("rcvbuf = \"{LARGE_BUFFER}\"\n");
        let (near, far) = (self.get(Key::NearFlows), self.get(Key::FarFlows));
        match self.has(Key::JoinShare) && near > 1.0 {
            true => {
                let start = time(self.get(Key::JoinShare) * self.duration_us);
                flows("near", near - 1.0, &format!("{receiver}{jitter}"));
                flows("near", 1.0, &format!("{receiver}start = \"{start}\""));
            }
            false => flows("near", near, &format!("{receiver}{jitter}")),
        }
        if far > 0.0 {
            flows("far", far, &format!("{large}{jitter}"));
        }
        if let Some(victim) = victim {
            let count = self.get(Key::VictimFlows);
            flows("victim", count, &format!("{large}{jitter}\ncc = \"{victim}\""));
        }
        if self.has(Key::PauseFlows) {
            let period_us = 1e3 * self.get(Key::PauseMs);
            let count = self.get(Key::PauseFlows);
            let bytes = self.get(Key::PauseLoad) * rate_mbps * period_us / 8.0 / count;
            let burst = bytes.round().max(1.0);
            flows(
                "pausing",
                count,
                &format!("{large}burst = {burst}\nperiod = \"{}\"", time(period_us)),
            );
        }
        text
    }

    fn messages(&self) -> String {
        if !self.has(Key::MessageLoad) {
            return String::new();
        }
        let bytes = self.get(Key::MessageBytes).round();
        let start_us = (10.0 * self.get(Key::RttUs)).min(self.duration_us / 5.0);
        // The last fifth of the run is for messages under way to end.
        let left_us = 0.8 * self.duration_us - start_us;
        let period_us = bytes * 8.0 / (self.get(Key::MessageLoad) * self.get(Key::RateMbps));
        format!(
            "[[traffic]]\nkind = \"rpc\"\ngroup = \"messages\"\nhosts = [\"talker\"]\nto = \"r\"\n\
             random = true\nperiod = \"{}\"\nstart = \"{}\"\nduration = \"{}\"\nsizes = {bytes}\n",
            time(period_us.max(left_us / MAX_MESSAGES)),
            time(start_us),
            time(left_us)
        )
    }

    fn events(&self) -> String {
        let (rate_mbps, rtt_us) = (self.get(Key::RateMbps), self.get(Key::RttUs));
        let mut text = String::new();
        let mut change =
            |key: Key, (from, to): (f64, f64), link: &str, [first, last]: [String; 2]| {
                for (at_us, change) in [(from, first), (to, last)] {
                    if self.has(key) {
                        let _ = writeln!(
                            text,
                            "[[event]]\nat = \"{}\"\nlink = \"{link}\"\nfrom = \"s\"\n{change}",
                            time(at_us)
                        );
                    }
                }
            };
        let to_rate = |mbps: f64| format!("rate = \"{}\"", rate(mbps));
        let step = [to_rate(rate_mbps * self.get(Key::RateStep)), to_rate(rate_mbps)];
        change(Key::RateStep, self.span_us(Key::RateAt, Key::RateFor), "s-r", step);
        let to_delay = |us: f64| format!("delay = \"{}\"", time(us));
        let step = [to_delay(rtt_us * self.get(Key::DelayStep)), to_delay(rtt_us)];
        change(Key::DelayStep, self.span_us(Key::DelayAt, Key::DelayFor), "near-s", step);
        let burst = |share: f64| format!("burst_loss = [0.0, 0.0, \"{}\"]", fraction(share));
        let step = [burst(self.get(Key::BurstLoss)), burst(0.0)];
        change(Key::BurstLoss, self.span_us(Key::BurstAt, Key::BurstFor), "s-r", step);
        let step = ["down = true", "up = true"].map(str::to_owned);
        change(Key::Outage, self.outage_us(), "s-r", step);
        text
    }

    /// Parameters of the path, as an operator would set them.
    fn sysctls(&self, ccs: &[&str]) -> String {
        let mut text = "[sysctl]\n\"net.ipv4.tcp_ecn_option\" = 0\n".to_owned();
        if self.has(Key::RtoMinMs) {
            let us = (1e3 * self.get(Key::RtoMinMs)).round();
            let _ = writeln!(text, "\"net.ipv4.tcp_rto_min_us\" = {us}");
        }
        let mbps = self.get(Key::RateMbps).ceil();
        for cc in ccs {
            let more = match *cc {
                "toll" => String::new(),
                "unocc" => {
                    format!("\"net.unocc.intra_rtt_us\" = {}\n", self.get(Key::RttUs).round())
                }
                "gemini" => {
                    let k_bytes = self.mark_bytes().round();
                    format!("\"net.gemini.k_bytes\" = {k_bytes}\n\"net.gemini.t_us\" = 5000\n")
                }
                _ => continue,
            };
            let _ =
                write!(text, "\n[cc.{cc}.sysctl]\n\"net.{cc}.line_rate_mbps\" = {mbps}\n{more}");
        }
        text
    }
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn time(us: f64) -> String {
    Time((us * 1e3).round() as u64).to_string()
}

fn rate(mbps: f64) -> String {
    Rate((mbps * 1e6).round() as u64).to_string()
}

fn size(bytes: f64) -> String {
    Size(bytes.round() as u64).to_string()
}

fn fraction(share: f64) -> String {
    Fraction((share * f64::from(PPM)).round() as u32).to_string()
}
