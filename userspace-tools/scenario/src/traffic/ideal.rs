// SPDX-License-Identifier: GPL-2.0
//! Idle paths: classes of base RTTs, and ideal completion times for slowdown.

use xdc_base::error::Result;
use xdc_base::units::Time;
use xdc_proto::{ETHERNET_HEADER_BYTES, TUNNEL_HEADER_BYTES, TUNNEL_MTU_LESS};

use crate::budget::{Budget, text_bytes};
use crate::paths::Paths;

/// Ratio of base RTTs that separates classes: within a three-layer datacenter, adjacent RTTs differ
/// at most by a factor of 2.
const GAP: f64 = 2.5;

/// Hosts whose paths are examined for the gap.
const SOURCES: usize = 16;

/// Separates intra-DC from inter-DC paths.
pub struct Classes {
    /// Minimum base RTT of an inter-DC path.
    boundary_us: f64,
}

impl Classes {
    /// `inter_rtt` is the unscaled network's.
    pub fn new(paths: &Paths<'_>, inter_rtt: Option<Time>, scale: u32) -> Self {
        if let Some(Time(ns)) = inter_rtt {
            let boundary_us = ns as f64 / 1e3 * f64::from(scale);
            return Self { boundary_us };
        }
        let hosts = paths.topology().nodes.iter().filter(|node| !node.router);
        let hosts: Vec<_> = hosts.map(|node| node.name.as_str()).collect();
        let mut rtts_us = Vec::new();
        for src in hosts.iter().step_by(hosts.len().div_ceil(SOURCES).max(1)) {
            for dst in hosts.iter().filter(|dst| *dst != src) {
                // Hosts without a path exchange nothing.
                rtts_us.extend(paths.base_rtt_us(src, dst).ok());
            }
        }
        Self { boundary_us: widest_gap(rtts_us) }
    }

    /// Groups `hosts` by datacenter, as indices; each is compared with the first host of each group
    /// so far. Hosts without a path are in different groups.
    pub fn datacenters(
        &self,
        budget: &Budget,
        paths: &Paths<'_>,
        hosts: &[&str],
    ) -> Result<Vec<Vec<usize>>> {
        let mut centers: Vec<Vec<usize>> = Vec::new();
        for (place, host) in hosts.iter().enumerate() {
            budget.charge("hosts by datacenter", 1, text_bytes([*host]) * centers.len())?;
            let is_near = |center: &Vec<usize>| {
                let rtt_us = paths.base_rtt_us(hosts[center[0]], host);
                rtt_us.is_ok_and(|rtt_us| !self.is_inter(rtt_us))
            };
            match centers.iter().position(is_near) {
                Some(number) => centers[number].push(place),
                None => centers.push(vec![place]),
            }
        }
        Ok(centers)
    }

    pub fn is_inter(&self, base_rtt_us: f64) -> bool {
        base_rtt_us >= self.boundary_us
    }
}

/// Middle of the widest gap, if there is one.
fn widest_gap(mut rtts_us: Vec<f64>) -> f64 {
    rtts_us.sort_by(f64::total_cmp);
    rtts_us
        .windows(2)
        .filter(|pair| pair[0] > 0.0 && pair[1] / pair[0] > GAP)
        .max_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])))
        .map_or(f64::INFINITY, |pair| (pair[0] * pair[1]).sqrt())
}

/// Ideal ns from first send to last byte received, without window limits: the first packet's delay,
/// then the rest at the slowest link's rate; 0 for an endless flow. Tunnel headers count, parities
/// do not. The second value is with AccECN's option; 0 if no host uses AccECN.
pub fn ideals_ns(
    paths: &Paths<'_>,
    (src, dst): (&str, &str),
    bytes: u64,
    tunnel: bool,
) -> Result<(u64, u64)> {
    let ideal = |options| ideal_ns(paths, (src, dst), bytes, tunnel, options);
    let with_option = match paths.has_accecn() {
        true => ideal(ACCECN_BYTES)?,
        false => 0,
    };
    Ok((ideal(0)?, with_option))
}

fn ideal_ns(
    paths: &Paths<'_>,
    (src, dst): (&str, &str),
    bytes: u64,
    tunnel: bool,
    options: u32,
) -> Result<u64> {
    let walk = paths.walk(src, dst)?;
    let mtu = walk.iter().map(|(link, _)| link.mtu).min().unwrap_or(0);
    let ack = paths.topology().ack_bytes();
    let headers = match paths.has_timestamps() {
        false => ack - TIMESTAMP_BYTES,
        true => ack,
    } + options;
    let (outer, mtu) = match tunnel {
        true => (TUNNEL_HEADER_BYTES, mtu.saturating_sub(TUNNEL_MTU_LESS)),
        false => (0, mtu),
    };
    let payload = u64::from(mtu.saturating_sub(headers)).max(1);
    let headers = headers + outer;
    if bytes == 0 {
        return Ok(0);
    }
    let first = bytes.min(payload);
    let rest = bytes - first;
    let wire_bytes = rest + rest.div_ceil(payload) * u64::from(headers + ETHERNET_HEADER_BYTES);
    let rates = walk.iter().map(|(_, direction)| direction.rate_bps);
    let queueing_ns = match rates.filter(|&bps| bps > 0).min() {
        Some(bps) => u128::from(wire_bytes) * 8_000_000_000 / u128::from(bps),
        None => 0,
    };
    let packet = first as u32 + headers;
    let first_ns = walk.iter().map(|(_, direction)| direction.idle_ns(packet));
    let first_ns = first_ns.fold(0, u64::saturating_add);
    // Saturates at centuries.
    Ok(first_ns.saturating_add(u64::try_from(queueing_ns).unwrap_or(u64::MAX)))
}

/// Bytes of TCP's timestamp option.
const TIMESTAMP_BYTES: u32 = 12;

/// Bytes of AccECN's option.
const ACCECN_BYTES: u32 = 12;

#[cfg(test)]
mod tests {
    use xdc_proto::Job;

    use super::*;
    use crate::plan::plan;
    use crate::{parse, testing::SMALL};

    #[test]
    fn the_widest_gap_divides_the_classes() {
        let of = |rtts: &[f64]| Classes { boundary_us: widest_gap(rtts.to_vec()) };
        let two = of(&[1792.0, 4.7, 14.0, 9.4, 1806.0]);
        assert!(two.is_inter(1792.0) && !two.is_inter(14.0));
        // One datacenter of three layers; a ratio of 4 between two.
        assert!(!of(&[4.7, 9.4, 14.0]).is_inter(14.0));
        let four = of(&[9.4, 14.0, 56.0]);
        assert!(four.is_inter(56.0) && !four.is_inter(14.0));
        assert!(!of(&[]).is_inter(1e9));
    }

    #[test]
    fn the_ideal_is_the_first_packet_and_the_rest_at_the_slowest_rate() {
        let scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let Job::Run(run) = plan(&scenario, "unocc", 1, 1).unwrap().job else {
            panic!("no run");
        };
        let paths = Paths::new(&run.topology).unwrap();
        let ideals = |bytes| ideals_ns(&paths, ("a1", "r"), bytes, false).unwrap();
        let ideal = |bytes| ideals(bytes).0;
        // 1 Gbit/s: 8 ns per byte; the port with a queue sends the first packet at once.
        assert_eq!(ideal(1000), (1000 + 52 + 14) * 8);
        assert_eq!(ideal(1448), 1514 * 8);
        assert_eq!(ideal(2 * 1448), 2 * 1514 * 8);
        assert_eq!(ideal(1449), (1514 + 67) * 8);
        assert_eq!(ideal(0), 0);
        // With AccECN's option a full packet carries 1436 bytes: ten of 1448 take an eleventh.
        assert_eq!(ideals(1436).1, 1514 * 8);
        let rest = 14_480 - 10 * 1436;
        assert_eq!(ideals(14_480).1, (10 * 1514 + rest + 64 + 14) * 8);
    }
}
