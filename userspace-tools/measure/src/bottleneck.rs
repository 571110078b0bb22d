// SPDX-License-Identifier: GPL-2.0
//! Flows through the first watched port, and its utilization.

use xdc_proto::{Change, ETHERNET_HEADER_BYTES, End};

use crate::fct::packet_payload_bytes;
use crate::figures::{received, sum};
use crate::record::Record;
use crate::ways::{Port, Ways};

/// Flows that use the bottleneck.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// All flows.
    All,
    /// Flows by index.
    Some(Vec<usize>),
    /// No flow.
    None,
    /// Flows that received more than the port can have sent.
    Unknown {
        flows: Vec<usize>,
        received_bytes: u64,
        fits_bytes: u64,
        /// Whether the topology has another path.
        is_another_way: bool,
    },
}

impl Use {
    /// Determines the flows by the topology, and by the port's counters.
    pub fn of(record: &Record) -> Self {
        let topology = &record.plan.topology;
        let watched = record.bottleneck().map(|(queue, _)| queue);
        let port = watched.and_then(|queue| Port::named(topology, &queue.node, &queue.peer));
        let Some(port) = port else {
            return Use::All;
        };
        let mut ways = Ways::new(topology);
        // The topology's paths exclude circuits.
        let mut is_another_way = topology.rotor.is_some();
        let crosses = |flow: &usize| {
            let flow = &record.plan.flows[*flow];
            let share = ways.share(&flow.src, &flow.dst, port);
            is_another_way |= share > 0.0 && share < 1.0;
            share > 0.0 || topology.rotor.is_some()
        };
        let all = 0..record.flows.len();
        let flows: Vec<_> = all.clone().filter(crosses).collect();
        if flows.is_empty() {
            return if all.is_empty() { Use::All } else { Use::None };
        }
        let received_bytes = sum(flows.iter().map(|&flow| record.flows[flow].received_bytes));
        // Without offloads each packet is counted; with them there are fewer headers.
        const ROUNDING: f64 = 1.02;
        if let (Some(result), Some(share)) = (record.queues.first(), payload_share(record, &flows))
        {
            let fits_bytes = (result.sent_bytes as f64 * share * ROUNDING) as u64;
            if received_bytes > fits_bytes {
                return Use::Unknown { flows, received_bytes, fits_bytes, is_another_way };
            }
        }
        match flows.len() == all.len() {
            true => Use::All,
            false => Use::Some(flows),
        }
    }
}

/// Headers of IP, and of TCP with timestamps, bytes.
const fn header_bytes(is_ipv6: bool) -> u32 {
    if is_ipv6 { 72 } else { 52 }
}

/// Payload over wire bytes of full packets. A route or peer may limit packets below the MTU; tunnels add
/// headers.
fn payload_share(record: &Record, flows: &[usize]) -> Option<f64> {
    let topology = &record.plan.topology;
    let mtu = topology.links.first()?.mtu;
    let (mut payload_bytes, mut wire_bytes) = (0.0, 0.0);
    for &flow in flows {
        let result = &record.flows[flow];
        if result.mss_bytes == 0 {
            continue;
        }
        let packet_bytes = match record.plan.flows[flow].tunnel {
            true => mtu,
            false => mtu.min(result.mss_bytes + header_bytes(topology.ipv6)),
        };
        let packet_payload = f64::from(packet_payload_bytes(result));
        // A flow without received data has a packet size, too.
        let packets = (result.received_bytes as f64 / packet_payload).max(f64::MIN_POSITIVE);
        payload_bytes += packets * packet_payload;
        wire_bytes += packets * f64::from(packet_bytes + ETHERNET_HEADER_BYTES);
    }
    (wire_bytes > 0.0).then_some(payload_bytes / wire_bytes)
}

/// Bits that the bottleneck can send in a time span, given events that change its rate.
fn capacity_bits(record: &Record, (from_us, to_us): (u64, u64)) -> Option<f64> {
    let (queue, rate_bps) = record.bottleneck()?;
    let changes = record.plan.events.iter().filter_map(|event| {
        let ours = |end: &End| end.node == queue.node && end.port == queue.peer;
        match event.change {
            Change::Rate { bps } if event.ends.iter().any(ours) => Some((event.at_us, bps)),
            _ => None,
        }
    });
    let mut bits = 0.0;
    let (mut since_us, mut bps) = (0, rate_bps);
    for (at_us, next_bps) in changes.chain([(u64::MAX, 0)]) {
        let us = at_us.min(to_us).saturating_sub(since_us.max(from_us));
        bits += bps as f64 * us as f64 / 1e6;
        (since_us, bps) = (at_us, next_bps);
    }
    (bits > 0.0).then_some(bits)
}

/// Payload that flows received through the bottleneck, over its payload capacity.
pub(crate) fn utilisation(record: &Record, used_by: &Use, span: (u64, u64)) -> Option<f64> {
    match used_by {
        Use::All => load(record, &(0..record.flows.len()).collect::<Vec<_>>(), span),
        Use::Some(flows) => load(record, flows, span),
        Use::None | Use::Unknown { .. } => None,
    }
}

fn load(record: &Record, flows: &[usize], span: (u64, u64)) -> Option<f64> {
    let bits: f64 = received(record, flows, span).iter().sum::<f64>() * 8.0;
    Some(bits / (capacity_bits(record, span)? * payload_share(record, flows)?))
}

/// Doubt about a port whose load exceeds its rate: it is not the scenario's port.
pub(crate) fn overfull(record: &Record, used_by: &Use) -> Option<String> {
    const MOST: f64 = 1.02;
    let span = (0, record.end_us());
    let load = match used_by {
        Use::Unknown { flows, is_another_way: false, .. } => load(record, flows, span),
        _ => utilisation(record, used_by, span),
    };
    let load = load.filter(|&load| load > MOST)?;
    Some(format!(
        "flows received {load:.3} times the payload that the watched port's rate allows: packets bypassed its shaper"
    ))
}
