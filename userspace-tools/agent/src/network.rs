// SPDX-License-Identifier: GPL-2.0
//! The emulated network: one namespace per node, one veth pair per link, qdiscs for link properties.

mod qdiscs;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use xdc_netlink::{
    Connection, Request,
    link::{self, Device, LOOPBACK_INDEX, NextHop, RouteMetrics, VethEnd},
    phantom,
    qdisc::{self, Handle, Qdisc, QdiscState},
    unorc,
};
use xdc_proto::{Direction, NetworkSize, TUNNEL_MTU_LESS, Topology, privileged::TcBatch};

use crate::{
    ethtool,
    fabric::Fabric,
    layout::{FIRST_INDEX, Layout, NodeLayout, Port},
    netns::Netns,
    rotor::{self, Circuits},
    routes::{self, Route},
    spray::Spray,
    sysctl,
};
use qdiscs::{add_leaf, below, egress, htb_burst_ns, police, tc, wires};
pub use qdiscs::{is_queue, is_wire, phantom_options};

/// Devices per query batch: the answers must fit into a socket's receive buffer.
pub const SETTLED_AT_ONCE: usize = 32;

/// Qdisc handles of a port: propagation (root), its shaper, the queue that htb shapes, and the order-keeping
/// netem below the root of a reordering link.
pub const ROOT: Handle = handle(1);
pub const CHILD: Handle = handle(2);
pub const LEAF: Handle = handle(3);
pub const ORDERED: Handle = handle(4);

const fn handle(major: u16) -> Handle {
    Handle { major, minor: 0 }
}

/// The only class of a qdisc.
pub const fn class_of(qdisc: Handle) -> Handle {
    Handle { minor: 1, ..qdisc }
}

/// Sysctls of every namespace: no reverse-path filter, and no IPv6 link-local address, so no solicitation.
/// (addrconf_init_net() inherits addr_gen_mode, not disable_ipv6.) Inherited because a write scans every
/// namespace that touched the file (proc_sys_compare): N writes cost N squared.
const INHERITED: &[(&str, &str)] = &[
    ("net.core.devconf_inherit_init_net", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    // IN6_ADDR_GEN_MODE_NONE
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    // For link-local addresses: no router solicitation, no duplicate address detection.
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
];

/// Inherited, too. The second is for IPv6 topologies only: an IPv6 router joins multicast groups and
/// announces them on its links.
const FORWARD: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

/// For a shared machine: orphaned sockets give up soon. Their awaited reply may be lost with a removed
/// device, and they hold the namespace and the congestion control's module for minutes.
const ORPHANS: (&str, &str) = ("net.ipv4.tcp_orphan_retries", "1");

/// Sysctl of every host: no cached metrics of earlier connections.
const HOST: (&str, &str) = ("net.ipv4.tcp_no_metrics_save", "1");

/// Kernel that hosts the network.
pub enum Place {
    /// A guest's kernel, including its initial namespace.
    Guest,
    /// A shared kernel: namespaces have no names, and nothing outside them is written.
    Host {
        /// Sysctls that are global unless a namespace has its own.
        shared: BTreeSet<String>,
    },
}

/// A network that is up. The process is in the initial namespace unless it entered another.
pub struct Network<'a> {
    /// The built topology.
    pub layout: Layout<'a>,
    /// None for a switch of the fabric.
    netns: Vec<Option<Netns>>,
    /// One per namespace: opening a connection later takes ten system calls, which are slow in UML.
    connections: RefCell<Vec<Connection>>,
    initial: Netns,
    routes: usize,
    offload: bool,
    /// Node and name of each tunnel device.
    tunnels: Vec<(usize, String)>,
    /// The circuit switch, if the topology has one.
    circuits: Option<Circuits>,
    /// The switches, if they have no namespaces.
    fabric: Option<Fabric>,
}

impl<'a> Network<'a> {
    /// Builds a topology.
    pub fn build(topology: &'a Topology, place: &Place) -> Result<Self> {
        let layout = Layout::new(topology)?;
        let initial = Netns::current()?;
        let mut known = vec![false; topology.sysctls.len()];
        if let Place::Guest = place {
            for (name, value) in INHERITED {
                sysctl::write(name, value)?;
            }
            for (known, (name, value)) in known.iter_mut().zip(&topology.sysctls) {
                *known = sysctl::write(name, value)?;
            }
        }
        let mut netns = Vec::new();
        let mut connections = Vec::new();
        // False once a namespace lacks a sysctl: only the initial namespace has it, so it is not tried again.
        let mut here = vec![true; known.len()];
        let mut forwards = None;
        let forwarding = &FORWARD[..1 + usize::from(topology.ipv6)];
        for node in &layout.nodes {
            if topology.fabric && node.router {
                initial.enter()?;
                netns.push(None);
                connections.push(Connection::open()?);
                continue;
            }
            let forward = if node.router { "1" } else { "0" };
            match place {
                Place::Guest => {
                    if forwards != Some(node.router) {
                        forwards = Some(node.router);
                        initial.enter()?;
                        for name in forwarding {
                            sysctl::write(name, forward)?;
                        }
                    }
                    netns.push(Some(Netns::create_named(node.name)?));
                }
                Place::Host { .. } => {
                    // A new namespace sizes its tables by sysctls of the creating namespace.
                    initial.enter()?;
                    netns.push(Some(Netns::create()?));
                    // Sysctls are inherited only from the initial namespace.
                    let forward = forwarding.iter().map(|name| (*name, forward));
                    for (name, value) in INHERITED.iter().copied().chain(forward).chain([ORPHANS]) {
                        sysctl::write(name, value)?;
                    }
                }
            }
            connections.push(Connection::open()?);
            if !node.router {
                sysctl::write(HOST.0, HOST.1)?;
            }
            for (i, (name, value)) in topology.sysctls.iter().enumerate() {
                if here[i] && !(node.router && topology.of_hosts.contains(name)) {
                    here[i] = sysctl::write(name, value)?;
                    known[i] |= here[i];
                }
            }
            for (name, value) in node.sysctls {
                ensure!(
                    sysctl::write(name, value)?,
                    "the node {} has no sysctl {name}: is a module missing?",
                    node.name
                );
            }
        }
        initial.enter()?;
        for ((name, value), _) in topology.sysctls.iter().zip(known).filter(|(_, known)| !known) {
            match place {
                Place::Host { shared } if shared.contains(name) => eprintln!(
                    "xdc-agent: {name} is global on this machine and keeps its value (a guest has {value})"
                ),
                _ => bail!("this kernel has no sysctl {name}: is a module missing?"),
            }
        }

        let mut network = Self {
            layout,
            netns,
            connections: RefCell::default(),
            initial,
            routes: 0,
            offload: topology.offload,
            tunnels: Vec::new(),
            circuits: None,
            fabric: None,
        };
        if topology.fabric {
            let fabric = Fabric::build(&network.layout, topology);
            network.fabric = Some(fabric.context("the fabric")?);
            Connection::open()?.batch(network.fabric_links())?;
        }
        let metrics = |node: usize, across: bool| {
            let congctl = topology.congctl.as_ref();
            let congctl = congctl.filter(|_| !topology.nodes[node].router);
            RouteMetrics {
                tcp_usec_ts: topology.tcp_usec_ts,
                quickack: topology.quickack,
                congestion_control: congctl.map(|by| by.of(across).to_owned()),
                initcwnd: topology.nodes[node].initcwnd,
                initrwnd: topology.nodes[node].initrwnd,
            }
        };
        // All links first: a route needs its device, and the device its peer, to be up.
        for (i, connection) in connections.iter_mut().enumerate() {
            connection.batch(network.links(i)).context(network.name(i))?;
        }
        if let Some(rotor) = &topology.rotor {
            let circuits = Circuits::build(rotor, &network, &mut connections);
            network.circuits = Some(circuits.context("the circuit switch")?);
        }
        for (i, connection) in connections.iter_mut().enumerate() {
            let ports = network.ports(i).with_context(|| network.name(i))?;
            connection.batch(ports).context(network.name(i))?;
            if network.is_switch(i) {
                continue;
            }
            let ports = &network.layout.nodes[i].ports;
            if topology.offload {
                let receive =
                    || ports.iter().try_for_each(|port| ethtool::join_received(&port.name));
                network.inside(i, receive).context(network.name(i))?;
            }
            let mut batch = TcBatch::default();
            for port in ports {
                add_leaf(&mut batch, &port.name, port.egress)?;
            }
            if !batch.lines().is_empty() {
                network.inside(i, || tc(&batch)).context(network.name(i))?;
            }
        }
        if network.layout.nodes.iter().any(|node| node.spray) {
            let spray = Spray::load()?;
            for (node, connection) in network.layout.nodes.iter().zip(&mut connections) {
                let by_program = node.spray && network.fabric.is_none();
                let ports = node.ports.iter().filter(|_| by_program);
                let attachments = ports.flat_map(|port| spray.attach(port.index));
                connection.batch(attachments).with_context(|| format!("node {}", node.name))?;
            }
        }
        let routes = routes::of(&network.layout, topology.ecmp);
        for (i, connection) in connections.iter_mut().enumerate() {
            if network.is_switch(i) {
                continue;
            }
            let routes =
                routes[i].iter().map(|route| network.route(i, route, &metrics(i, route.across)));
            connection.batch(routes).context(network.name(i))?;
            for ports in network.layout.nodes[i].ports.chunks(SETTLED_AT_ONCE) {
                let queries = ports.iter().map(|port| link::settle(&port.name, port.index));
                connection.batch(queries).context(network.name(i))?;
            }
        }
        if let Some(circuits) = &network.circuits {
            let settled = circuits.settle(&network, &mut connections);
            settled.context("the circuit switch")?;
        }
        network.routes = routes.iter().map(Vec::len).sum();
        network.tunnels(topology, &mut connections, &metrics)?;
        network.connections = connections.into();
        Ok(network)
    }

    /// Creates the tunnels: a device at each end, with a route to the peer's tunnel address.
    fn tunnels(
        &mut self,
        topology: &Topology,
        connections: &mut [Connection],
        metrics: &impl Fn(usize, bool) -> RouteMetrics,
    ) -> Result<()> {
        if topology.tunnels.is_empty() {
            return Ok(());
        }
        let mut requests: Vec<Vec<Request>> = connections.iter().map(|_| Vec::new()).collect();
        let mut known = vec![0; requests.len()];
        for tunnel in &topology.tunnels {
            let ends = (self.layout.node(&tunnel.a)?, self.layout.node(&tunnel.b)?);
            let words: Vec<&str> = tunnel.options.iter().map(String::as_str).collect();
            let options =
                unorc::Options::parse(&words).map_err(|err| anyhow!("a tunnel: {err}"))?;
            for (here, there) in [ends, (ends.1, ends.0)] {
                let (node, peer) = (&self.layout.nodes[here], &self.layout.nodes[there]);
                let mtu = |node: &NodeLayout| node.ports.first().map_or(0, |port| port.mtu);
                let mtu = mtu(node).min(mtu(peer)).saturating_sub(TUNNEL_MTU_LESS);
                let options = options.clone();
                let options = options.between(node.address()?, peer.address()?, tunnel.port);
                let name = format!("u{}", known[here]);
                let index = FIRST_INDEX + node.ports.len() as u32 + known[here];
                let own = node.tunnel_address();
                let requests = &mut requests[here];
                if known[here] == 0 {
                    requests.push(link::add_address(LOOPBACK_INDEX, own, 32));
                }
                let metrics = metrics(here, node.site != peer.site);
                requests.extend([
                    link::add_unorc(&name, index, mtu, &options, self.offload),
                    link::set_up(&name, index),
                    link::add_device_route(peer.tunnel_address(), index, own, &metrics),
                ]);
                known[here] += 1;
                self.tunnels.push((here, name));
            }
        }
        for (i, (connection, requests)) in connections.iter_mut().zip(requests).enumerate() {
            connection.batch(requests).context(self.name(i))?;
        }
        Ok(())
    }

    /// Node and name of each tunnel device.
    pub fn tunnel_devices(&self) -> &[(usize, String)] {
        &self.tunnels
    }

    /// The circuit switch, if the topology has one.
    pub fn circuits(&self) -> Option<&Circuits> {
        self.circuits.as_ref()
    }

    /// The namespace of a node; the initial one for a switch of the fabric.
    pub fn netns(&self, node: usize) -> &Netns {
        self.netns[node].as_ref().unwrap_or(&self.initial)
    }

    /// The fabric, if `node` is one of its switches.
    pub fn fabric(&self, node: usize) -> Option<&Fabric> {
        self.fabric.as_ref().filter(|fabric| fabric.has(node))
    }

    fn is_switch(&self, node: usize) -> bool {
        self.fabric(node).is_some()
    }

    /// Requests for the hosts' links to switches of the fabric.
    fn fabric_links(&self) -> Vec<Request> {
        let mut requests = Vec::new();
        for (i, node) in self.layout.nodes.iter().enumerate() {
            for (n, port) in node.ports.iter().enumerate() {
                let fabric = self.fabric.as_ref();
                let numbers = fabric.and_then(|fabric| fabric.link(i, n, port.peer));
                let Some((device, switch)) = numbers else {
                    continue;
                };
                let end = VethEnd {
                    name: port.name.clone(),
                    index: port.index,
                    mac: port.mac,
                    netns: Some(self.netns(i).as_fd().as_raw_fd()),
                };
                let request = link::add_fabric(&end, port.mtu, self.offload, device, switch);
                requests.push(request);
            }
        }
        requests
    }

    /// Whether TSO, GSO and GRO are on.
    pub fn offload(&self) -> bool {
        self.offload
    }

    /// Size of the network; the caller sets `memory_bytes`.
    pub fn size(&self) -> NetworkSize {
        let ports = self.layout.nodes.iter().map(|node| node.ports.len());
        NetworkSize {
            nodes: self.layout.nodes.len(),
            links: ports.sum::<usize>() / 2,
            routes: self.routes,
            memory_bytes: 0,
        }
    }

    fn route(&self, node: usize, route: &Route, metrics: &RouteMetrics) -> Request {
        let node = &self.layout.nodes[node];
        let next_hops: Vec<NextHop> = route
            .ports
            .iter()
            .map(|&port| NextHop {
                gateway: self.gateway(&node.ports[port]),
                index: node.ports[port].index,
            })
            .collect();
        link::add_route(
            self.layout.ip(route.network),
            self.layout.prefix_len(route.prefix_len),
            &next_hops,
            self.layout.ip(node.own_address),
            metrics,
        )
    }

    /// Next-hop address of the node at the other end of a port.
    fn gateway(&self, port: &Port) -> IpAddr {
        match self.layout.ipv6 {
            // The kernel would look up a route to a global address.
            true => self.layout.remote(port).link_local().into(),
            false => self.layout.nodes[port.peer].own_address.into(),
        }
    }

    /// Applies the topology's faults and policers to the links.
    pub fn damage(&self) -> Result<()> {
        for (i, node) in self.layout.nodes.iter().enumerate() {
            for port in &node.ports {
                if port.egress.faults.is_none() && port.egress.policer.is_none() {
                    continue;
                }
                if let Some(fabric) = self.fabric(i) {
                    fabric.set(&self.layout, (i, port), port.egress, None)?;
                    continue;
                }
                let damaged = self.wire_requests(port, port.egress);
                let damage = || {
                    Connection::open()?.batch(damaged)?;
                    police(port)
                };
                self.inside(i, damage).with_context(|| self.name(i))?;
            }
        }
        Ok(())
    }

    /// Requests that set a direction's netem to `direction`.
    pub fn wire_requests(&self, port: &Port, direction: &Direction) -> Vec<Request> {
        let wires = wires(port.index, direction, direction.faults.as_ref());
        wires.iter().map(Qdisc::change).collect()
    }

    /// Request that sets a direction's shaper to `direction`; None if netem has the rate.
    pub fn rate_request(&self, port: &Port, direction: &Direction) -> Result<Option<Request>> {
        let Some(queue) = &direction.queue else {
            return Ok(None);
        };
        let shaper = |handle, kind, options| Qdisc {
            index: port.index,
            parent: if kind == "htb" { CHILD } else { below(&wires(port.index, direction, None)) },
            handle,
            kind,
            options,
        };
        if queue.is_phantom() {
            let options = phantom::Options {
                rate_bytes_per_s: Some(direction.rate_bps / 8),
                ..Default::default()
            };
            return Ok(Some(shaper(CHILD, phantom::KIND, options.encode()).change()));
        }
        let options = qdisc::htb_class(direction.rate_bps, htb_burst_ns(direction));
        Ok(Some(shaper(class_of(CHILD), "htb", options).change_class()))
    }

    /// Runs `work` inside the namespace of a node.
    pub fn inside<T>(&self, node: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.netns(node).enter()?;
        let result = work();
        self.initial.enter()?;
        result
    }

    /// Runs `work` in the namespace of each node, with one namespace switch per node.
    pub fn inside_each<T>(
        &self,
        nodes: impl Iterator<Item = usize>,
        mut work: impl FnMut(usize) -> Result<T>,
    ) -> Result<Vec<T>> {
        let each = nodes.map(|node| {
            self.netns(node).enter()?;
            work(node)
        });
        let results = each.collect();
        self.initial.enter()?;
        results
    }

    /// The qdiscs of all devices of a node.
    pub fn qdiscs(&self, node: usize) -> Result<Vec<QdiscState>> {
        Ok(qdisc::dump(&mut self.connections.borrow_mut()[node], 0)?)
    }

    /// All devices of a node.
    pub fn devices(&self, node: usize) -> Result<Vec<Device>> {
        Ok(link::dump(&mut self.connections.borrow_mut()[node])?)
    }

    /// Inode and name of each node's namespace.
    pub fn inodes(&self) -> Result<Vec<(u64, String)>> {
        let nodes = self.netns.iter().zip(&self.layout.nodes);
        let of_node = |(netns, node): (&Option<Netns>, &NodeLayout)| {
            let netns = netns.as_ref()?;
            Some(netns.inode().map(|inode| (inode, node.name.to_owned())))
        };
        nodes.filter_map(of_node).collect()
    }

    /// Address of a node for a flow, which may go through a tunnel.
    pub fn flow_address(&self, node: usize, tunnel: bool) -> Result<IpAddr> {
        match tunnel {
            true => Ok(self.layout.nodes[node].tunnel_address().into()),
            false => self.address(node),
        }
    }

    /// Address of a node.
    pub fn address(&self, node: usize) -> Result<IpAddr> {
        Ok(self.layout.ip(self.layout.nodes[node].address()?))
    }

    fn name(&self, node: usize) -> String {
        format!("node {}", self.layout.nodes[node].name)
    }

    /// Requests for the veth pairs that a node creates: those whose even-numbered end is here.
    fn links(&self, node: usize) -> Vec<Request> {
        let end = |port: &Port, netns: Option<&Netns>| VethEnd {
            name: port.name.clone(),
            index: port.index,
            mac: port.mac,
            netns: netns.map(|netns| netns.as_fd().as_raw_fd()),
        };
        self.layout.nodes[node]
            .ports
            .iter()
            .filter(|port| port.first && !self.is_switch(node) && !self.is_switch(port.peer))
            .map(|port| {
                let remote = self.layout.remote(port);
                let peer = end(remote, Some(self.netns(port.peer)));
                let mut own = end(port, None);
                if port.rack.is_some() {
                    (own.name, own.index) = rotor::PACKET_UPLINK.named();
                }
                link::add_veth(&own, &peer, port.mtu, self.offload)
            })
            .collect()
    }

    /// Requests that set up a node's devices.
    fn ports(&self, node: usize) -> Result<Vec<Request>> {
        if self.is_switch(node) {
            return Ok(Vec::new());
        }
        let node = &self.layout.nodes[node];
        let mut requests = vec![link::set_up("lo", LOOPBACK_INDEX)];
        if let Some(first) = node.ports.first() {
            let address = self.layout.ip(node.own_address);
            let prefix_len = self.layout.prefix_len(32);
            requests.push(link::add_address(first.index, address, prefix_len));
        }
        for port in &node.ports {
            let gateway = self.gateway(port);
            match &self.circuits {
                Some(circuits) if port.rack.is_some() => requests.push(circuits.qdisc(port)?),
                _ => requests.extend(egress(port.index, port.egress)?),
            }
            requests.push(link::set_up(&port.name, port.index));
            if self.layout.ipv6 {
                requests.push(link::add_address(port.index, port.link_local(), 64));
            }
            let mac = self.layout.remote(port).mac;
            requests.push(link::add_neighbour(port.index, gateway, mac));
        }
        Ok(requests)
    }
}

#[cfg(test)]
mod tests;
