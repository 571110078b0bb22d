// SPDX-License-Identifier: GPL-2.0
//! `[tunnel]`: flows use a device of kind unorc at each of their hosts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_base::units::Time;
use xdc_netlink::unorc;
use xdc_proto::{Flow, Tunnel};

use crate::Scenario;
use crate::budget::{Budget, text_bytes};
use crate::paths::Paths;
use crate::traffic::{Classes, ideals_ns};

/// UDP port of the first pair of hosts; the next pair has the next port.
const FIRST_PORT: u16 = 4_796;
/// Start of the ports that select a packet's path.
const END_PORT: u16 = 49_152;

/// Packets added to twice the path's BDP, for queues.
const QUEUE_PACKETS: u64 = 512;
const WINDOWS: std::ops::RangeInclusive<u64> = 256..=8_192;
const MAX_CHANNELS: usize = 8;

/// Options of unorc (docs/unorc.md). Missing options have the device's default.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelSpec {
    /// Load balancing: `ecmp`, `rps`, `ops`, `plb`, `unolb`, `reps`, `reps-paper` or `bitmap`.
    pub paths: Option<String>,
    /// Erasure code: `8+2` is eight data packets and two parities; `off`: none.
    pub fec: Option<String>,
    /// Freezing of paths: `loss`, `timeout` or `off`.
    pub freeze: Option<String>,
    /// Wait for a missing packet. Default: the difference of path delays, 1 ms at most.
    pub timer: Option<Time>,
    /// Wait for a missing packet inside a datacenter.
    pub timer_intra: Option<Time>,
    /// Time after which a partial block is closed.
    pub flush: Option<Time>,
    /// Channels; default: as many as the two hosts have flows, 8 at most.
    pub channels: Option<u8>,
    /// Packets that a channel remembers. Default: twice the path's bandwidth-delay product, and a
    /// queue.
    pub window: Option<u16>,
    /// Class of flows that use a tunnel; default: all.
    pub only: Option<Class>,
}

/// Class of a flow by its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Intra-DC.
    Intra,
    /// Inter-DC.
    Inter,
}

impl TunnelSpec {
    /// Options in ip's words.
    fn words(&self, inter: bool) -> Vec<String> {
        let us = |time: Time| (time.0 / 1000).to_string();
        let timer = match inter {
            true => self.timer,
            false => self.timer_intra.or(self.timer),
        };
        let mut words = Vec::new();
        for (name, value) in [
            ("paths", self.paths.clone()),
            ("fec", self.fec.clone()),
            ("freeze", self.freeze.clone()),
            ("timer", timer.map(us)),
            ("flush", self.flush.map(us)),
        ] {
            words.extend(value.map(|value| [name.to_owned(), value]).into_iter().flatten());
        }
        words
    }
}

impl TunnelSpec {
    /// All options in ip's words, including those set per pair of hosts.
    pub fn all_words(&self) -> Vec<String> {
        let mut words = self.words(false);
        let own = [("channels", self.channels.map(u16::from)), ("window", self.window)];
        for (name, value) in own {
            words.extend(value.into_iter().flat_map(|n| [name.to_owned(), n.to_string()]));
        }
        words
    }
}

/// Puts the selected flows into tunnels, one for each pair of hosts.
pub fn tunnels(
    budget: &Budget,
    scenario: &Scenario,
    paths: &Paths<'_>,
    flows: &mut [Flow],
    scale: u32,
) -> Result<Vec<Tunnel>> {
    let Some(spec) = &scenario.tunnel else {
        return Ok(Vec::new());
    };
    let about = |err: Error| err.about("[tunnel]");
    if paths.topology().ipv6 {
        return Err(about(Error::usage("the tunnels of a scenario need IPv4").hint("ip = 4")));
    }
    if scale != 1 {
        return Err(about(
            Error::usage("the times of a tunnel cannot be scaled").hint("--engine uml"),
        ));
    }
    let classes = Classes::new(paths, scenario.inter_rtt, scale);
    let mut pairs: BTreeMap<(String, String), (usize, f64)> = BTreeMap::new();
    for flow in flows {
        let inter = classes.is_inter(flow.base_rtt_us);
        let class = if inter { Class::Inter } else { Class::Intra };
        if spec.only.is_some_and(|only| only != class) {
            continue;
        }
        flow.tunnel = true;
        let ends = (flow.src.as_str(), flow.dst.as_str());
        let ideals_ns = ideals_ns(paths, ends, flow.bytes, true)?;
        (flow.ideal_ns, flow.ideal_accecn_ns) = ideals_ns;
        let mut ends = (flow.src.clone(), flow.dst.clone());
        if ends.0 > ends.1 {
            std::mem::swap(&mut ends.0, &mut ends.1);
        }
        let (count, rtt_us) = pairs.entry(ends).or_default();
        *count += 1;
        *rtt_us = rtt_us.max(flow.base_rtt_us);
    }
    let mut tunnels = Vec::new();
    for (((a, b), (count, rtt_us)), port) in pairs.into_iter().zip(FIRST_PORT..) {
        if port >= END_PORT {
            let most = END_PORT - FIRST_PORT;
            return Err(about(Error::usage(format!("more than {most} pairs of hosts"))));
        }
        let mut options = spec.words(classes.is_inter(rtt_us));
        let channels = spec.channels.map_or(count.min(MAX_CHANNELS), usize::from);
        let window = match spec.window {
            Some(window) => window.into(),
            None => window(paths, &a, &b, rtt_us)?,
        };
        let channels = channels.next_power_of_two();
        for (name, value) in [("channels", channels as u64), ("window", window)] {
            options.extend([name.to_owned(), value.to_string()]);
        }
        let texts = options.iter().chain([&a, &b]).map(String::as_str);
        budget.charge("tunnels", 1, size_of::<Tunnel>() + text_bytes(texts)).map_err(about)?;
        tunnels.push(Tunnel { a, b, port, options });
    }
    Ok(tunnels)
}

/// Memory in bytes of the devices at both ends of these tunnels.
pub fn memory_bytes(tunnels: &[Tunnel]) -> u64 {
    let of_one = |tunnel: &Tunnel| {
        let words: Vec<_> = tunnel.options.iter().map(String::as_str).collect();
        // Invalid options have been refused before.
        2 * unorc::Options::parse(&words).unwrap_or_default().memory_bytes()
    };
    tunnels.iter().map(of_one).sum()
}

/// Packets that may be in flight between two hosts.
fn window(paths: &Paths<'_>, a: &str, b: &str, rtt_us: f64) -> Result<u64> {
    let walk = paths.walk(a, b)?;
    let mtu = walk.iter().map(|(link, _)| link.mtu).min().unwrap_or(1);
    let rates = walk.iter().map(|(_, direction)| direction.rate_bps);
    let rate_bps = rates.filter(|&bps| bps > 0).min().unwrap_or(0);
    let bdp_packets = rate_bps as f64 * rtt_us / 8e6 / f64::from(mtu.max(1));
    let packets = (2.0 * bdp_packets) as u64 + QUEUE_PACKETS;
    Ok(packets.clamp(*WINDOWS.start(), *WINDOWS.end()).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use xdc_proto::{Job, RunPlan, TUNNEL_HEADER_BYTES, TUNNEL_MTU_LESS};

    use super::*;
    use crate::plan::plan;
    use crate::{parse, testing::SMALL};

    fn planned(text: &str, scale: u32) -> Result<RunPlan> {
        let loaded = parse("small", &format!("{SMALL}{text}"), &[])?;
        let plan = plan(&loaded.scenario, "unocc", 7, scale)?;
        assert!(plan.modules.iter().any(|module| module == "unorc"));
        match plan.job {
            Job::Run(run) => Ok(run),
            job => panic!("{job:?}"),
        }
    }

    #[test]
    fn each_pair_of_hosts_has_one_tunnel() {
        let text = "[tunnel]\npaths = \"reps\"\nfec = \"off\"\ntimer = \"63us\"\n\
                    [[flows]]\ngroup = \"back\"\nsrc = \"r\"\ndst = \"a1\"\nbytes = 1\n";
        let run = planned(text, 1).unwrap();
        assert!(run.flows.iter().all(|flow| flow.tunnel));
        let ends = |tunnel: &Tunnel| (tunnel.a.clone(), tunnel.b.clone(), tunnel.port);
        let name = |name: &str| name.to_owned();
        let wanted = [(name("a1"), name("r"), 4796), (name("a2"), name("r"), 4797)];
        assert!(run.topology.tunnels.iter().map(ends).eq(wanted));
        let words = run.topology.tunnels[0].options.join(" ");
        assert_eq!(words, "paths reps fec off timer 63 channels 2 window 1024");
        assert!(run.topology.tunnels[1].options.join(" ").contains("channels 1"));
    }

    #[test]
    fn a_guest_has_memory_for_both_ends() {
        let mb = |text: &str| {
            let run =
                planned(&format!("[tunnel]\nchannels = 8\nwindow = 8192\n{text}"), 1).unwrap();
            let tunnels = run.topology.tunnels;
            (memory_bytes(&tunnels) / tunnels.len() as u64 / 2) >> 20
        };
        assert_eq!((mb(""), mb("fec = \"off\"\n")), (2, 2));
    }

    #[test]
    fn the_ideal_has_the_header_and_no_parity() {
        let ideal = |text: &str| {
            let loaded = parse("small", &format!("{SMALL}{text}"), &[]).unwrap();
            match plan(&loaded.scenario, "unocc", 7, 1).unwrap().job {
                Job::Run(run) => run.flows[0].ideal_ns,
                job => panic!("{job:?}"),
            }
        };
        let bytes: u64 = 1 << 20;
        let wire = |payload: u64, header: u64| bytes + bytes.div_ceil(payload) * header;
        let payload = u64::from(1500 - TUNNEL_MTU_LESS) - 52;
        let plain = 8 * wire(1448, 66);
        let inside = 8 * wire(payload, 66 + u64::from(TUNNEL_HEADER_BYTES));
        // Both within a packet's time.
        assert!(ideal("").abs_diff(plain) < 15_000);
        assert!(ideal("[tunnel]\n").abs_diff(inside) < 15_000);
        assert!(ideal("[tunnel]\n") > ideal("") + 200_000);
    }

    #[test]
    fn invalid_tunnels_are_refused() {
        for (text, scale, why) in [
            ("[tunnel]\npaths = \"best\"\n", 1, "unknown value \"best\""),
            ("[tunnel]\nfec = \"8\"\n", 1, "neither"),
            ("[tunnel]\n", 10, "scaled"),
            ("[tunnel]\npath = \"ops\"\n", 1, "paths"),
        ] {
            let said = planned(text, scale).unwrap_err().lines().join(" ");
            assert!(said.contains(why), "{said}");
        }
    }
}
