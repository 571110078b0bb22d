// SPDX-License-Identifier: GPL-2.0
//! `[topology.fabric]`: shapes of datacenter networks, expanded into hosts, routers and links.
//!
//! A name begins with its datacenter, `a` or `b`. A number alone after it is a host (`a0`, `a1`,
//! ...; hosts of a rack have adjacent numbers). `e`, `a`, `c` are edge, aggregation and core
//! switches of a fat-tree, `l` and `s` leaves and spines, `x` the border router or a dumbbell's
//! switch. In a rotor, `t` are the racks' switches, `ae` the packet network's router and `ao` the
//! circuit switch.

mod file;
mod hpcc;
mod htsim;

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_algo::acceltor_plan::Network;
use xdc_base::error::{Error, Result};
use xdc_base::units::{Fraction, Rate, Time};
use xdc_proto::Rack;

use self::file::Content;
pub use self::file::FabricFile;
use crate::LinkSpec;
use crate::limits::{MAX_LINKS, group_name};
use crate::rotor::AcceltorSpec;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    FatTree,
    LeafSpine,
    Dumbbell,
    Rotor,
    /// A .topo file of htsim.
    Htsim,
    /// A topology file of HPCC's ns-3 simulator.
    Hpcc,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricSpec {
    pub kind: Shape,
    /// Topology beside the scenario, in the format of the kind.
    pub file: Option<String>,
    #[serde(skip)]
    pub content: Option<FabricFile>,
    /// 1 or 2, each with a border router if there are two. A dumbbell always has two sides.
    pub datacenters: Option<u32>,
    /// Ports per switch of a fat-tree.
    pub k: Option<u32>,
    /// Leaves of a leaf-spine. Without spines the leaves join the border router.
    pub leaves: Option<u32>,
    pub spines: Option<u32>,
    /// Hosts per leaf, per side of a dumbbell, or per rack of a rotor.
    pub hosts: Option<u32>,
    /// Racks of a rotor, 2 to 128.
    pub racks: Option<u32>,
    /// Hosts of a rotor's rack 0; default: `hosts`.
    pub sender_hosts: Option<u32>,
    /// Rate of layers that have none.
    pub rate: Option<Rate>,
    pub delay: Option<Time>,
    /// Queue in front of every port of a switch.
    pub queue: Option<String>,
    /// Links from hosts to their switch.
    #[serde(default)]
    pub host: LayerSpec,
    /// Links from edge to aggregation switches.
    #[serde(default)]
    pub edge: LayerSpec,
    /// Links from aggregation to core switches, or from leaf to spine.
    #[serde(default)]
    pub core: LayerSpec,
    /// Links from core (spine; leaf if there is none) to border router.
    #[serde(default)]
    pub border: LayerSpec,
    /// Links between the datacenters.
    #[serde(default)]
    pub wan: LayerSpec,
    /// Packet network of a rotor: a rack's port to it, and its port to a rack. The delay is the sum
    /// of both links.
    #[serde(default)]
    pub eps: LayerSpec,
    /// Circuits of a rotor.
    pub ocs: Option<OcsSpec>,
}

/// An optical circuit switch.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OcsSpec {
    pub rate: Rate,
    /// Duration of a circuit.
    pub day: Time,
    /// Time between two circuits.
    pub night: Time,
}

/// The links between two layers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    pub rate: Option<Rate>,
    /// Delay of each direction without its own.
    pub delay: Option<Time>,
    /// Delay towards the core; on the WAN from `a` to `b`.
    pub delay_up: Option<Time>,
    pub delay_down: Option<Time>,
    pub queue: Option<String>,
    /// Parallel links in place of each link [default: 1].
    pub links: Option<u32>,
    /// Share of packets lost at random on the way to a host.
    #[serde(default)]
    pub loss_down: Fraction,
    /// Extra delay of packets that a host sends, uniform from 0; order is kept.
    #[serde(default)]
    pub jitter_up: Time,
}

/// Nodes of a fabric and links between them.
#[derive(Debug, Default)]
pub struct Fabric {
    pub hosts: Vec<String>,
    pub routers: Vec<String>,
    pub links: Vec<LinkSpec>,
    pub rotor: Option<RotorShape>,
}

/// Parts of a rotor besides its packet network.
#[derive(Debug, Clone)]
pub struct RotorShape {
    /// Names of the circuit switch and of the packet network's router.
    pub switch: String,
    pub packet: String,
    pub racks: Vec<Rack>,
    pub ocs: OcsSpec,
    eps_rate: Rate,
    /// Round trips without serialization.
    packet_rtt: Time,
    circuit_rtt: Time,
}

impl RotorShape {
    /// Parameters for AccelToR's planner.
    pub fn network(&self, spec: &AcceltorSpec) -> Network {
        let paper = Network::PAPER;
        let bytes = |size: Option<xdc_base::units::Size>, other| size.map_or(other, |size| size.0);
        Network {
            day_ns: self.ocs.day.0,
            night_ns: self.ocs.night.0,
            racks: self.racks.len() as u64,
            packet_rtt_ns: self.packet_rtt.0,
            circuit_rtt_ns: self.circuit_rtt.0,
            packet_bytes_per_s: self.eps_rate.0 / 8,
            circuit_bytes_per_s: self.ocs.rate.0 / 8,
            queue_bytes: bytes(spec.limit, paper.queue_bytes),
            ..paper
        }
    }
}

/// Hosts of a fabric, above the number tested in guests.
const MAX_HOSTS: u32 = 16_384;

/// Letters in names between the datacenter's letter and the number.
const EDGE: char = 'e';
const AGGREGATION: char = 'a';
const CORE: char = 'c';
const LEAF: char = 'l';
const SPINE: char = 's';
const RACK: char = 't';

/// Bounds and names of a rotor.
const RACKS: std::ops::RangeInclusive<u32> = 2..=128;
const PACKET: &str = "ae";
const CIRCUITS: &str = "ao";

impl FabricSpec {
    fn layers(&self) -> [&LayerSpec; 6] {
        [&self.host, &self.edge, &self.core, &self.border, &self.wan, &self.eps]
    }

    /// All rates in the fabric.
    pub fn rates(&self) -> impl Iterator<Item = Rate> {
        let layers = self.layers().into_iter().map(|layer| layer.rate);
        let circuits = self.ocs.map(|ocs| ocs.rate);
        layers.chain([self.rate, circuits]).flatten()
    }

    /// All delays in the fabric.
    pub fn delays(&self) -> impl Iterator<Item = Time> {
        let layers = self.layers().into_iter();
        let delays = layers.flat_map(|layer| [layer.delay, layer.delay_up, layer.delay_down]);
        let days = self.ocs.into_iter().flat_map(|ocs| [ocs.day, ocs.night]);
        delays.chain([self.delay]).flatten().chain(days)
    }

    /// All queues in the fabric.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        let layers = self.layers().into_iter().map(|layer| &layer.queue);
        layers.chain([&self.queue]).flatten().map(String::as_str)
    }

    pub fn expand(&self) -> Result<Fabric> {
        let sides = self.sides()?;
        self.refuse_unused(sides)?;
        let mut fabric = Fabric::default();
        let mut borders = Vec::new();
        for dc in ['a', 'b'].into_iter().take(sides as usize) {
            let top = match self.kind {
                Shape::FatTree => self.fat_tree(dc, &mut fabric)?,
                Shape::LeafSpine => self.leaf_spine(dc, &mut fabric)?,
                Shape::Dumbbell => Vec::new(),
                Shape::Rotor => self.rotor(&mut fabric)?,
                Shape::Htsim | Shape::Hpcc => match self.content()? {
                    Content::Clos(clos) => clos.build(self, dc, &mut fabric)?,
                    Content::Graph(graph) => {
                        graph.build(self, &mut fabric)?;
                        Vec::new()
                    }
                },
            };
            if sides == 1 {
                continue;
            }
            let border = format!("{dc}x");
            if self.kind == Shape::Dumbbell {
                for n in 0..self.count("hosts", self.hosts)? {
                    self.host(dc, n, &border, &mut fabric)?;
                }
            }
            for switch in &top {
                self.join("border", &self.border, switch, &border, &mut fabric)?;
            }
            fabric.routers.push(border.clone());
            borders.push(border);
        }
        if let [a, b] = &borders[..] {
            self.join("wan", &self.wan, a, b, &mut fabric)?;
        }
        Ok(fabric)
    }

    fn sides(&self) -> Result<u32> {
        match (self.kind, self.datacenters) {
            (Shape::Dumbbell, None | Some(2)) => Ok(2),
            (Shape::Dumbbell, Some(_)) => {
                Err(Error::usage("'datacenters' of a dumbbell must be 2"))
            }
            (Shape::Rotor | Shape::Hpcc, Some(n)) if n != 1 => {
                Err(Error::usage("'datacenters' of this kind of fabric must be 1"))
            }
            (_, None) => Ok(1),
            (_, Some(n @ 1..=2)) => Ok(n),
            (_, Some(n)) => Err(Error::usage(format!("'datacenters' is {n}: must be 1 or 2"))),
        }
    }

    /// Refuses keys without effect.
    fn refuse_unused(&self, sides: u32) -> Result<()> {
        let tree = self.kind == Shape::FatTree;
        let rotor = self.kind == Shape::Rotor;
        let graph = self.kind == Shape::Hpcc;
        let clos = self.kind == Shape::Htsim;
        let from_file = graph || clos;
        let flat = self.kind == Shape::Dumbbell || rotor || graph;
        let unused = [
            ("file", self.file.is_some() && !from_file),
            ("rate", self.rate.is_some() && (graph || (from_file && sides == 1))),
            ("delay", self.delay.is_some() && (graph || (from_file && sides == 1))),
            ("host", self.host.is_set() && graph),
            ("racks", self.racks.is_some() && !rotor),
            ("sender_hosts", self.sender_hosts.is_some() && !rotor),
            ("eps", self.eps.is_set() && !rotor),
            ("ocs", self.ocs.is_some() && !rotor),
            ("k", self.k.is_some() && !tree),
            ("leaves", self.leaves.is_some() && (tree || flat || from_file)),
            ("spines", self.spines.is_some() && (tree || flat || from_file)),
            ("hosts", self.hosts.is_some() && (tree || from_file)),
            ("edge", self.edge.is_set() && !tree && !clos),
            ("core", self.core.is_set() && (flat || (!tree && self.spines == Some(0)))),
            ("border", self.border.is_set() && (sides == 1 || flat)),
            ("wan", self.wan.is_set() && sides == 1),
        ];
        match unused.iter().find(|(_, unused)| *unused) {
            Some((key, _)) => Err(Error::usage(format!("this kind of fabric takes no '{key}'"))),
            None => Ok(()),
        }
    }

    /// k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 cores. Aggregation switch `i`
    /// of every pod is joined to k/2 cores from number `i` k/2 on.
    fn fat_tree(&self, dc: char, fabric: &mut Fabric) -> Result<Vec<String>> {
        let k = self.count("k", self.k)?;
        if !k.is_multiple_of(2) {
            return Err(Error::usage(format!("'k' of a fat-tree is {k}: must be even")));
        }
        let half = k / 2;
        for edge in 0..k * half {
            let name = switch(dc, EDGE, edge);
            for port in 0..half {
                self.host(dc, edge * half + port, &name, fabric)?;
            }
            for port in 0..half {
                let above = switch(dc, AGGREGATION, edge / half * half + port);
                self.join("edge", &self.edge, &name, &above, fabric)?;
            }
            fabric.routers.push(name);
        }
        for aggregation in 0..k * half {
            let name = switch(dc, AGGREGATION, aggregation);
            for port in 0..half {
                let above = switch(dc, CORE, aggregation % half * half + port);
                self.join("core", &self.core, &name, &above, fabric)?;
            }
            fabric.routers.push(name);
        }
        let cores: Vec<_> = (0..half * half).map(|n| switch(dc, CORE, n)).collect();
        fabric.routers.extend(cores.iter().cloned());
        Ok(cores)
    }

    /// Joins every leaf to every spine.
    fn leaf_spine(&self, dc: char, fabric: &mut Fabric) -> Result<Vec<String>> {
        let leaves = self.count("leaves", self.leaves)?;
        let hosts = self.count("hosts", self.hosts)?;
        let spines = self
            .spines
            .ok_or_else(|| Error::usage("a leaf-spine needs 'spines'").hint("0 for none"))?;
        if spines > MAX_HOSTS {
            return Err(Error::usage(format!("more than {MAX_HOSTS} spines")));
        }
        let spines: Vec<_> = (0..spines).map(|n| switch(dc, SPINE, n)).collect();
        let mut names = Vec::new();
        for leaf in 0..leaves {
            let name = switch(dc, LEAF, leaf);
            for port in 0..hosts {
                self.host(dc, leaf * hosts + port, &name, fabric)?;
            }
            for spine in &spines {
                self.join("core", &self.core, &name, spine, fabric)?;
            }
            names.push(name);
        }
        fabric.routers.extend(names.iter().chain(&spines).cloned());
        Ok(if spines.is_empty() { names } else { spines })
    }

    /// Racks of hosts around a router, and a circuit switch without links.
    fn rotor(&self, fabric: &mut Fabric) -> Result<Vec<String>> {
        let racks = self.racks.filter(|racks| RACKS.contains(racks));
        let racks = racks.ok_or_else(|| {
            Error::usage(format!(
                "a rotor needs 'racks', from {} to {}",
                RACKS.start(),
                RACKS.end()
            ))
        })?;
        let ocs = self.ocs.ok_or_else(|| {
            Error::usage("a rotor needs 'ocs'")
                .hint("ocs = { rate = \"80gbit\", day = \"240us\", night = \"20us\" }")
        })?;
        if self.eps.links.is_some_and(|links| links != 1) {
            return Err(Error::usage("a rack must have one link to the packet network"));
        }
        let hosts = self.count("hosts", self.hosts)?;
        let senders = self.count("sender_hosts", self.sender_hosts.or(self.hosts))?;
        let mut shape = Vec::new();
        let mut first_host = 0;
        for rack in 0..racks {
            let hosts = if rack == 0 { senders } else { hosts };
            let name = switch('a', RACK, rack);
            for host in first_host..first_host + hosts {
                self.host('a', host, &name, fabric)?;
            }
            self.join("eps", &self.eps, &name, PACKET, fabric)?;
            if let Some(link) = fabric.links.last_mut() {
                link.queue_ba = link.queue.take();
                // The sum of both ports' delays is set at the second one.
                let both = |own: Option<Time>| own.or(self.eps.delay).or(self.delay);
                let back = both(self.eps.delay_down).unwrap_or_default();
                (link.delay_ab, link.delay_ba) = (self.eps.delay_up, Some(back));
                link.delay_ab.get_or_insert_default();
            }
            shape.push(Rack { switch: name.clone(), first_host, hosts });
            fabric.routers.push(name);
            first_host += hosts;
        }
        fabric.routers.extend([PACKET, CIRCUITS].map(str::to_owned));
        let of = |link: Option<&LinkSpec>| {
            let delays = link.map(|link| {
                let way = |own: Option<Time>| own.unwrap_or(link.delay).0;
                (way(link.delay_ab), way(link.delay_ba), link.rate)
            });
            delays.unwrap_or_default()
        };
        let (out, back, _) = of(fabric.links.first());
        let (up, down, eps_rate) = of(fabric.links.iter().rfind(|link| link.b == PACKET));
        let by_packets = out + up + down + back;
        fabric.rotor = Some(RotorShape {
            switch: CIRCUITS.to_owned(),
            packet: PACKET.to_owned(),
            racks: shape,
            ocs,
            eps_rate,
            packet_rtt: Time(2 * by_packets),
            circuit_rtt: Time(out + back + by_packets),
        });
        Ok(Vec::new())
    }

    fn count(&self, key: &str, value: Option<u32>) -> Result<u32> {
        value.filter(|n| (1..=MAX_HOSTS).contains(n)).ok_or_else(|| {
            Error::usage(format!("this kind of fabric needs '{key}', from 1 to {MAX_HOSTS}"))
        })
    }

    fn host(&self, dc: char, n: u32, switch: &str, fabric: &mut Fabric) -> Result<()> {
        if n >= MAX_HOSTS {
            return Err(Error::usage(format!("a datacenter has at most {MAX_HOSTS} hosts")));
        }
        let name = format!("{dc}{n}");
        let mut link = self.link("host", &self.host, &name, switch)?;
        // A host's own port is its NIC, which never drops.
        link.queue_ba = link.queue.take();
        link.loss_ba = self.host.loss_down;
        link.jitter_ab = self.host.jitter_up;
        fabric.links.push(link);
        fabric.hosts.push(name);
        Ok(())
    }

    fn join(
        &self,
        key: &str,
        layer: &LayerSpec,
        below: &str,
        above: &str,
        fabric: &mut Fabric,
    ) -> Result<()> {
        let link = self.link(key, layer, below, above)?;
        let links = layer.links.unwrap_or(1) as usize;
        if links == 0 || fabric.links.len() + links > MAX_LINKS {
            return Err(Error::usage(format!(
                "[topology.fabric.{key}]: {links} links; a topology has 1 to {MAX_LINKS}"
            )));
        }
        fabric.links.extend(std::iter::repeat_n(link, links));
        Ok(())
    }

    fn link(&self, key: &str, layer: &LayerSpec, below: &str, above: &str) -> Result<LinkSpec> {
        let rate = layer.rate.or(self.rate).ok_or_else(|| {
            Error::usage(format!("[topology.fabric.{key}] has no rate"))
                .hint("'rate' there or in [topology.fabric]")
        })?;
        let queue = layer.queue.as_ref().or(self.queue.as_ref());
        // The name is copied into many links, so its length is checked first.
        queue.map(|name| group_name(name)).transpose()?;
        Ok(LinkSpec {
            a: below.to_owned(),
            b: above.to_owned(),
            rate,
            delay: layer.delay.or(self.delay).unwrap_or_default(),
            delay_ab: layer.delay_up,
            delay_ba: layer.delay_down,
            queue: queue.cloned(),
            ..LinkSpec::default()
        })
    }
}

impl LayerSpec {
    fn is_set(&self) -> bool {
        self.rate.is_some()
            || self.delay.or(self.delay_up).or(self.delay_down).is_some()
            || self.queue.is_some()
            || self.links.is_some()
            || self.loss_down != Fraction::default()
            || self.jitter_up != Time::default()
    }
}

fn switch(dc: char, layer: char, n: u32) -> String {
    format!("{dc}{layer}{n}")
}

#[cfg(test)]
mod tests;
