// SPDX-License-Identifier: GPL-2.0
//! Racks between a packet network and an optical circuit switch.
//!
//! A rack switch has a bond of two uplinks in place of its link to the packet network's router. The bond has
//! that link's name, index and address, and `acceltor` as its qdisc. The circuit switch is a namespace whose
//! BPF program forwards arrivals at a port to the matched port.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd},
};

use anyhow::{Context, Result, anyhow, bail};
use xdc_bpf::circuits::{Half, Switch, Timetable};
use xdc_netlink::{
    Connection, Request, acceltor,
    filter::Place,
    link::{self, VethEnd},
    qdisc::{self, Handle, Qdisc},
};
use xdc_proto::{Circuits as Counted, Rotor};

use crate::{
    clock::now_ns,
    layout::{FIRST_INDEX, Port},
    network::{Network, ROOT, SETTLED_AT_ONCE},
};

/// A member device of a rack's bond.
pub struct Uplink {
    name: &'static str,
    /// Interface index, beyond those of a node's ports.
    index: u32,
    /// Queue mapping, as in the qdisc.
    queue_mapping: u16,
}

pub const PACKET_UPLINK: Uplink = Uplink { name: "eps", index: 1_000_000, queue_mapping: 1 };
const CIRCUIT_UPLINK: Uplink = Uplink { name: "ocs", index: 1_000_001, queue_mapping: 2 };

impl Uplink {
    /// Name and index.
    pub fn named(&self) -> (String, u32) {
        (self.name.to_owned(), self.index)
    }
}

/// Prefix length of racks' hosts. Other hosts have no prefix, so their packets are mice.
const HOST_BITS: u8 = 32;

/// The circuit switch of a network.
pub struct Circuits {
    switch: Switch,
    base_ns: u64,
    /// Options common to all racks' qdiscs.
    options: acceltor::Options,
    slot_ns: u64,
    /// The circuit switch's node.
    center: usize,
    /// Nodes, in rack order.
    racks: Vec<usize>,
    weeks: u32,
}

impl Circuits {
    /// Creates the racks' bonds, and the circuit switch with a link to each. The racks' other links must
    /// exist and be down; the bond's setup as a port of its node follows.
    pub fn build(rotor: &Rotor, network: &Network, connections: &mut [Connection]) -> Result<Self> {
        let layout = &network.layout;
        let center = layout.node(&rotor.switch)?;
        let base_ns = now_ns()?;
        let timetable = Timetable {
            tai: false,
            base_ns: i64::try_from(base_ns)?,
            day_ns: i32::try_from(rotor.day_ns)?,
            night_ns: i32::try_from(rotor.night_ns)?,
            bytes_per_s: rotor.rate_bps / 8,
        };
        let ports: Vec<u32> = (FIRST_INDEX..).take(rotor.racks.len()).collect();
        let switch = Switch::new(timetable, Half::Lower, &ports, rotor.weeks)?;
        let mut prefixes = Vec::new();
        let mut racks = Vec::new();
        let hosts: Vec<_> = layout.nodes.iter().filter(|node| !node.router).collect();
        for ((rack, own), &index) in (0..).zip(&rotor.racks).zip(&ports) {
            let node = layout.node(&own.switch)?;
            racks.push(node);
            let host = |number: u32| {
                let host = hosts.get(number as usize);
                host.with_context(|| format!("rack {rack} has more hosts than the topology"))
            };
            for (first, bits) in own.blocks() {
                prefixes.push(acceltor::Prefix {
                    addr: host(first)?.own_address.into(),
                    bits: HOST_BITS - bits,
                    rack: rack as u16,
                });
            }
            for number in own.first_host..own.first_host + own.hosts {
                let [.., high, low] = host(number)?.own_address.octets();
                switch.has(u16::from_be_bytes([high, low]), rack)?;
            }
            let mut ports = layout.nodes[node].ports.iter();
            let bond = ports.find(|port| port.rack.is_some());
            let bond = bond.with_context(|| format!("{} has no uplink", own.switch))?;
            let (name, uplink) = CIRCUIT_UPLINK.named();
            let near = VethEnd { name, index: uplink, mac: bond.mac, netns: None };
            let far = VethEnd {
                name: own.switch.clone(),
                index,
                mac: [2, 2, 0, 0, (rack >> 8) as u8, rack as u8],
                netns: Some(network.netns(center).as_fd().as_raw_fd()),
            };
            let mut requests = vec![
                link::add_bond(&bond.name, bond.index, bond.mac, bond.mtu),
                link::add_veth(&near, &far, bond.mtu, network.offload()),
            ];
            for uplink in [PACKET_UPLINK, CIRCUIT_UPLINK] {
                let (name, device) = uplink.named();
                requests.extend(link::join_bond(&name, device, bond.index, uplink.queue_mapping));
            }
            connections[node].batch(requests).context(own.switch.clone())?;
            let program = switch.program(rack)?;
            connections[center].batch([
                link::set_up(&own.switch, index),
                qdisc::clsact(index),
                Place::ingress(index).add("circuits", program.as_raw_fd()),
            ])?;
        }
        let options = acceltor::Options {
            racks: Some(rotor.racks.len() as u32),
            day_ns: Some(rotor.day_ns),
            night_ns: Some(rotor.night_ns),
            circuit_bytes_per_s: Some(rotor.rate_bps / 8),
            base_time_ns: Some(timetable.base_ns),
            clockid: Some(acceltor::ClockId::Monotonic),
            prefixes: Some(prefixes),
            ..Default::default()
        };
        Ok(Self {
            switch,
            base_ns,
            options,
            slot_ns: rotor.slot_ns(),
            center,
            racks,
            weeks: rotor.weeks,
        })
    }

    /// Makes the kernel act on the carriers of all links now: see [`link::settle`].
    pub fn settle(&self, network: &Network, connections: &mut [Connection]) -> Result<()> {
        for &node in &self.racks {
            let uplinks = [PACKET_UPLINK, CIRCUIT_UPLINK].map(|uplink| uplink.named());
            let queries = uplinks.map(|(name, index)| link::settle(&name, index));
            connections[node].batch(queries)?;
        }
        let names = self.racks.iter().map(|&node| network.layout.nodes[node].name);
        let far: Vec<_> = (FIRST_INDEX..).zip(names).collect();
        for ports in far.chunks(SETTLED_AT_ONCE) {
            let queries = ports.iter().map(|(index, name)| link::settle(name, *index));
            connections[self.center].batch(queries)?;
        }
        Ok(())
    }

    /// The qdisc of a rack's bond.
    pub fn qdisc(&self, port: &Port) -> Result<Request> {
        let (Some(rack), Some(queue)) = (port.rack, &port.egress.queue) else {
            bail!("{} is not the uplink of a rack, or has no queue", port.name);
        };
        let own = acceltor::Options::from_words(&queue.words).map_err(|err| anyhow!("{err}"))?;
        let all = self.options.clone();
        let options = acceltor::Options {
            rack: Some(rack as u32),
            packet_bytes_per_s: Some(port.egress.rate_bps / 8),
            racks: all.racks,
            day_ns: all.day_ns,
            night_ns: all.night_ns,
            circuit_bytes_per_s: all.circuit_bytes_per_s,
            base_time_ns: all.base_time_ns,
            clockid: all.clockid,
            prefixes: all.prefixes,
            ..own
        };
        Ok(Qdisc {
            index: port.index,
            parent: Handle::ROOT,
            handle: ROOT,
            kind: acceltor::KIND,
            options: options.encode(),
        }
        .add())
    }

    /// First start of a day at or after a time, so that samples a slot apart fall on starts of days.
    pub fn day_start_ns(&self, time_ns: u64) -> u64 {
        let days = time_ns.saturating_sub(self.base_ns).div_ceil(self.slot_ns);
        self.base_ns + days * self.slot_ns
    }

    /// Whether a node is the circuit switch, or has an uplink to it.
    pub fn is_at(&self, node: usize) -> bool {
        node == self.center || self.racks.contains(&node)
    }

    /// Counters since the network was built.
    pub fn counted(&self, network: &Network, origin_ns: u64) -> Result<Counted> {
        let mut counted =
            Counted { base_ns: self.base_ns as i64 - origin_ns as i64, ..Default::default() };
        let racks = self.racks.len() as u32;
        for from in 0..racks {
            for to in 0..racks {
                let [packets, _, night, cut, misdirected] = self.switch.counted(from, to)?;
                counted.packets += packets;
                counted.night += night;
                counted.cut += cut;
                counted.misdirected += misdirected;
            }
            let weeks = (0..self.weeks).map(|week| self.switch.week_bytes(from, week));
            let mut weeks = weeks.collect::<Result<Vec<_>>>()?;
            let used = weeks.iter().rposition(|bytes| *bytes > 0);
            weeks.truncate(used.map_or(0, |last| last + 1));
            counted.week_bytes.push(weeks);
        }
        for &node in &self.racks {
            for state in network.qdiscs(node)? {
                if let Some(xstats) = acceltor::Xstats::of(&state) {
                    add(&mut counted.qdiscs, &xstats);
                    let unaccounted = xstats.unaccounted();
                    if unaccounted.abs() > counted.unaccounted.abs() {
                        counted.unaccounted = unaccounted;
                    }
                }
            }
        }
        Ok(counted)
    }
}

/// Name of the counter that is a maximum over all racks, not a sum.
const LARGEST: &str = "late_max_ns";

fn add(sums: &mut BTreeMap<String, u64>, xstats: &acceltor::Xstats) {
    for (name, value) in acceltor::Xstats::FIELDS.iter().zip(xstats.values()) {
        let sum = sums.entry((*name).to_owned()).or_default();
        *sum = match *name {
            LARGEST => value.max(*sum),
            _ => *sum + value,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_except_the_maximum_lateness() {
        let of = |packets_in, late_max_ns| acceltor::Xstats {
            packets_in,
            late_max_ns,
            ..Default::default()
        };
        let mut sums = BTreeMap::new();
        add(&mut sums, &of(3, 7));
        add(&mut sums, &of(4, 5));
        assert_eq!((sums["packets_in"], sums[LARGEST]), (7, 7));
    }
}
