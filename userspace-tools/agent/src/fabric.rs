// SPDX-License-Identifier: GPL-2.0
//! Switches of the module `fabric`, instead of a namespace for each.

use std::{cell::RefCell, collections::HashMap};

use anyhow::{Context, Result, anyhow, bail};
use xdc_netlink::{
    fabric::{self, Peer, PortState, Size, Switch, SwitchState},
    link::Device,
    phantom,
    qdisc::{Handle, QdiscState},
};
use xdc_proto::{Direction, Faults, Topology};

use crate::{
    layout::{FIRST_HOST, Layout, Port},
    network::{CHILD, ROOT, class_of, phantom_options},
    routes::Table,
};

/// Sysctl by which a plan seeds a switch's choice among equally good ports.
const HASH_SEED: &str = "net.ipv4.fib_multipath_hash_seed";

/// Numbers of a topology's switches, ports and links, and the connection to the module.
pub struct Fabric {
    network: RefCell<fabric::Network>,
    /// Number of the switch and of its first port, by node; None for hosts.
    switches: Vec<Option<(u32, u32)>>,
    /// Number of a host's link, by node and port.
    devices: HashMap<(usize, usize), u32>,
    /// Shared buffers, by node and name.
    pools: HashMap<(usize, String), u32>,
}

impl Fabric {
    /// Creates the switches of a topology in the current namespace.
    pub fn build(layout: &Layout, topology: &Topology) -> Result<Self> {
        let (mut switches, mut devices) = (Vec::new(), HashMap::new());
        let mut size = Size { first_host: FIRST_HOST, ..Size::default() };
        for (i, node) in layout.nodes.iter().enumerate() {
            if node.router {
                switches.push(Some((size.switches, size.ports)));
                size.switches += 1;
                size.ports += node.ports.len() as u32;
                continue;
            }
            switches.push(None);
            size.hosts += 1;
            for (n, port) in node.ports.iter().enumerate() {
                if layout.nodes[port.peer].router {
                    devices.insert((i, n), size.devices);
                    size.devices += 1;
                }
            }
        }
        let mut pools = HashMap::new();
        for (i, node) in layout.nodes.iter().enumerate().filter(|(_, it)| it.router) {
            for port in &node.ports {
                let Some(options) = queue_of(port.egress)? else {
                    continue;
                };
                if let Some(name) = options.pool {
                    pools.entry((i, name)).or_insert_with(|| {
                        let bytes = options.pool_limit_bytes.unwrap_or(0);
                        size.pools_bytes.push(u64::from(bytes));
                        size.pools_bytes.len() as u32 - 1
                    });
                }
            }
        }
        let this = Self {
            network: RefCell::new(fabric::Network::create(&size)?),
            switches,
            devices,
            pools,
        };
        for (i, node) in layout.nodes.iter().enumerate().filter(|(_, it)| it.router) {
            for port in &node.ports {
                this.apply(layout, (i, port), port.egress, &Faults::default(), None, true)
                    .with_context(|| format!("the port of {} to {}", node.name, port.name))?;
            }
        }
        this.set_tables(layout, topology)?;
        Ok(this)
    }

    fn set_tables(&self, layout: &Layout, topology: &Topology) -> Result<()> {
        let tables = Table::of_switches(layout, topology.ecmp);
        let hosts = layout.nodes.iter().filter(|node| !node.router).count();
        for (i, table) in tables.into_iter().enumerate() {
            let Some((id, first_port)) = self.switches[i] else {
                continue;
            };
            let sysctls = layout.nodes[i].sysctls.iter();
            let seed = sysctls.rev().find(|(name, _)| name == HASH_SEED);
            let mut switch = Switch {
                id,
                seed: seed.map_or(Ok(1), |(_, seed)| seed.parse())?,
                spray: layout.nodes[i].spray,
                // The way without a port.
                ways: vec![Vec::new()],
                table: vec![0; hosts],
            };
            for ports in table.ways() {
                let ports = ports.iter().map(|port| first_port + *port as u32);
                switch.ways.push(ports.collect());
            }
            for (address, way) in table.hosts() {
                let host = address.wrapping_sub(FIRST_HOST) as usize;
                if let Some(slot) = switch.table.get_mut(host) {
                    *slot = u16::try_from(way + 1)
                        .context("a switch has more than 65,535 different ways")?;
                }
            }
            let mut network = self.network.borrow_mut();
            network.set_switch(&switch).context(layout.nodes[i].name.to_owned())?;
        }
        Ok(())
    }

    /// Whether a node is a switch of the module.
    pub fn has(&self, node: usize) -> bool {
        self.switches[node].is_some()
    }

    /// Numbers of a host's link and of its switch, if the link leads to one.
    pub fn link(&self, node: usize, port: usize, peer: usize) -> Option<(u32, u32)> {
        let device = *self.devices.get(&(node, port))?;
        Some((device, self.switches[peer]?.0))
    }

    fn id(&self, layout: &Layout, node: usize, port: &Port) -> Result<u32> {
        let (_, first) = self.switches[node].context("not a switch")?;
        let ports = layout.nodes[node].ports.iter();
        let index = ports.clone().position(|own| own.name == port.name);
        Ok(first + index.context("no such port")? as u32)
    }

    /// Changes a port to a direction with its faults, and to burst losses of `ppm` and a seed.
    pub fn set(
        &self,
        layout: &Layout,
        port: (usize, &Port),
        direction: &Direction,
        burst: Option<([u32; 3], u64)>,
    ) -> Result<()> {
        let faults = direction.faults.unwrap_or_default();
        self.apply(layout, port, direction, &faults, burst, false)
    }

    /// The random numbers of a queue start when it is new.
    fn apply(
        &self,
        layout: &Layout,
        (node, port): (usize, &Port),
        direction: &Direction,
        faults: &Faults,
        burst: Option<([u32; 3], u64)>,
        is_new: bool,
    ) -> Result<()> {
        let peer = match self.switches[port.peer] {
            Some((switch, _)) => Peer::Switch(switch),
            None => {
                let device = self.devices.get(&(port.peer, port.peer_port));
                Peer::Device(*device.context("no such link")?)
            }
        };
        let mut options = queue_of(direction)?;
        if let (Some(options), false) = (&mut options, is_new) {
            options.seed = None;
        }
        let pool = options.as_ref().and_then(|options| options.pool.clone());
        let pool = pool.and_then(|name| self.pools.get(&(node, name)).copied());
        let rate_bytes_per_s = match options {
            Some(_) => 0,
            None => direction.rate_bps / 8,
        };
        // As faults, it starts after the link check.
        let policer = direction.policer.filter(|_| !is_new);
        let port = fabric::Port {
            id: self.id(layout, node, port)?,
            peer,
            rate_bytes_per_s,
            delay_ns: direction.delay_ns,
            jitter_ns: i32::try_from(faults.jitter_ns).context("a jitter of 2 s or more")? as u32,
            loss_ppm: faults.loss_ppm,
            seed: faults.seed,
            burst,
            policer: policer.map(|it| (it.rate_bps / 8, u64::from(it.burst_bytes))),
            queue: options.map(|options| options.encode()),
            pool,
        };
        Ok(self.network.borrow_mut().set_port(&port)?)
    }

    /// State of the queue of a port, or of the link's own backlog without one.
    pub fn queue(&self, layout: &Layout, node: usize, port: &Port) -> Result<QdiscState> {
        let id = self.id(layout, node, port)?;
        let [wire, queue] = qdiscs(port.index, self.network.borrow_mut().port(id)?);
        Ok(match port.egress.queue {
            Some(_) => queue,
            None => QdiscState { drops: 0, ..wire },
        })
    }

    /// Arrivals that bursts lost at the other end of a port.
    pub fn burst_lost(&self, layout: &Layout, node: usize, port: &Port) -> Result<u64> {
        let id = self.id(layout, node, port)?;
        Ok(self.network.borrow_mut().port(id)?.burst_lost)
    }

    /// Counters of each switch, by node.
    pub fn dump(&self, layout: &Layout) -> Result<Vec<Option<SwitchBooks>>> {
        let (ports, switches) = self.network.borrow_mut().dump()?;
        let books = layout.nodes.iter().enumerate().map(|(i, node)| {
            let Some((switch, first)) = self.switches[i] else {
                return Ok(None);
            };
            let own = ports.get(first as usize..first as usize + node.ports.len());
            let switch = switches.get(switch as usize);
            let (Some(own), Some(&switch)) = (own, switch) else {
                bail!("the fabric has fewer ports than the topology");
            };
            Ok(Some(SwitchBooks { ports: own.to_vec(), switch }))
        });
        books.collect()
    }
}

/// Counters of a switch and its ports.
pub struct SwitchBooks {
    /// Ports, in the layout's order.
    pub ports: Vec<PortState>,
    /// The switch.
    pub switch: SwitchState,
}

impl SwitchBooks {
    /// Devices as a namespace would have them. `received` has the packets that reached each port.
    pub fn devices(&self, ports: &[Port], received: &[u64]) -> Vec<Device> {
        let ports = ports.iter().zip(&self.ports).zip(received);
        let device = |((port, state), received): ((&Port, &PortState), &u64)| Device {
            index: port.index,
            name: port.name.clone(),
            kind: fabric::KIND.to_owned(),
            rx_packets: *received,
            tx_packets: state.sent_packets,
            tx_bytes: state.sent_bytes,
            ..Device::default()
        };
        ports.map(device).collect()
    }

    /// Qdiscs as a namespace would have them.
    pub fn qdiscs(&self, ports: &[Port]) -> Vec<QdiscState> {
        let ports = ports.iter().zip(&self.ports);
        let of_port = |(port, state): (&Port, &PortState)| {
            let [wire, queue] = qdiscs(port.index, state.clone());
            let queue = port.egress.queue.as_ref().map(|_| queue);
            // A policer drops before the qdiscs, as an action of a clsact does.
            let hook = port.egress.policer.map(|_| QdiscState {
                index: port.index,
                parent: Handle::CLSACT,
                kind: "clsact".to_owned(),
                drops: state.policed,
                ..QdiscState::default()
            });
            [Some(wire), queue, hook].into_iter().flatten()
        };
        ports.flat_map(of_port).collect()
    }

    /// Counters of IP as a namespace would have them.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        let switch = &self.switch;
        let forwarded = switch.received - switch.unroutable - switch.expired;
        [
            ("IpInReceives", switch.received),
            ("IpForwDatagrams", forwarded),
            ("IpOutTransmits", forwarded),
            ("IpExtInNoRoutes", switch.unroutable),
            ("IpInHdrErrors", switch.expired),
        ]
    }
}

/// The wire of a port, and its queue, as qdiscs. A parent counts its child's packets and drops.
fn qdiscs(index: u32, state: PortState) -> [QdiscState; 2] {
    let wire = QdiscState {
        index,
        parent: Handle::ROOT,
        handle: ROOT,
        kind: "netem".to_owned(),
        sent_packets: state.sent_packets,
        sent_bytes: state.sent_bytes,
        backlog_bytes: state.wire_bytes + state.queued_bytes,
        backlog_packets: state.wire_packets + state.queued_packets,
        drops: state.lost + state.dropped,
        ..QdiscState::default()
    };
    let queue = QdiscState {
        parent: class_of(ROOT),
        handle: CHILD,
        kind: phantom::KIND.to_owned(),
        xstats: state.xstats,
        backlog_bytes: state.queued_bytes,
        backlog_packets: state.queued_packets,
        drops: state.dropped,
        ..wire.clone()
    };
    [wire, queue]
}

/// Options of a direction's queue.
fn queue_of(direction: &Direction) -> Result<Option<phantom::Options>> {
    match &direction.queue {
        None => Ok(None),
        Some(queue) if queue.is_phantom() => phantom_options(queue, direction).map(Some),
        Some(queue) => Err(anyhow!("the fabric has no qdisc {}", queue.kind)),
    }
}
