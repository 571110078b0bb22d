// SPDX-License-Identifier: GPL-2.0
//! Devices, addresses, routes and neighbors, as requests.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::fd::RawFd,
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{
        BondMode, InfoBond, InfoBondPort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth,
        LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    },
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{
        RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
        RouteNextHopFlags, RouteProtocol, RouteScope, RouteType,
    },
};

use crate::{
    attributes::Attributes,
    connection::{Connection, Request, Result},
    fabric, unorc,
};

/// Index of `lo` in every namespace.
pub const LOOPBACK_INDEX: u32 = 1;

/// RTAX_FEATURE_TCP_USEC_TS: TCP timestamps in microseconds.
const FEATURE_TCP_USEC_TS: u32 = 1 << 4;

/// A device and its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Name, such as `a1`.
    pub name: String,
    /// Kind, such as `veth`; empty if the device has none.
    pub kind: String,
    /// Whether the device belongs to a bond or a bridge, which gets its packets.
    pub is_member: bool,
    /// Received packets.
    pub rx_packets: u64,
    /// Received packets for another Ethernet address.
    pub rx_other_host: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Sent packets that the device at the other end dropped.
    pub tx_dropped: u64,
}

/// Lists the devices of the connection's namespace.
pub fn dump(connection: &mut Connection) -> Result<Vec<Device>> {
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = connection.dump("list the devices", all)?;
    Ok(found.into_iter().filter_map(Device::of).collect())
}

impl Device {
    fn of(message: RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewLink(message) = message else {
            return None;
        };
        let mut device = Self { index: message.header.index, ..Default::default() };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => device.name = name,
                LinkAttribute::Controller(_) => device.is_member = true,
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        if let LinkInfo::Kind(kind) = info {
                            device.kind = kind.to_string();
                        }
                    }
                }
                LinkAttribute::Stats64(stats) => {
                    device.rx_packets = stats.rx_packets;
                    device.rx_other_host = stats.rx_otherhost_dropped;
                    device.tx_packets = stats.tx_packets;
                    device.tx_bytes = stats.tx_bytes;
                    device.tx_dropped = stats.tx_dropped;
                }
                _ => {}
            }
        }
        Some(device)
    }
}

/// One end of a new veth pair.
#[derive(Debug, Clone)]
pub struct VethEnd {
    /// Device name, at most 15 characters.
    pub name: String,
    /// Interface index, chosen by the caller to avoid a query.
    pub index: u32,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Namespace as an open file; None = the connection's.
    pub netns: Option<RawFd>,
}

/// Creates a veth pair. Without `offload`, TCP sends single packets (`gso_max_segs 1`): a link with 64 kB
/// bundles would not pace, mark and drop as a switch port does.
pub fn add_veth(a: &VethEnd, b: &VethEnd, mtu_bytes: u32, offload: bool) -> Request {
    let mut message = veth_end(a, mtu_bytes, offload);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(veth_end(b, mtu_bytes, offload)))),
    ]));
    Request {
        what: format!("create the link {} - {}", b.name, a.name),
        message: RouteNetlinkMessage::NewLink(message),
        flags: NLM_F_CREATE | NLM_F_EXCL,
    }
}

/// Creates a link of a host to a switch of the fabric, by their numbers. The request must come from the
/// fabric's namespace. `offload` as in [`add_veth`].
pub fn add_fabric(
    end: &VethEnd,
    mtu_bytes: u32,
    offload: bool,
    device: u32,
    switch: u32,
) -> Request {
    let mut data = Attributes::default();
    data.push(fabric::link::DEVICE, &device.to_ne_bytes());
    data.push(fabric::link::SWITCH, &switch.to_ne_bytes());
    let mut message = veth_end(end, mtu_bytes, offload);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Other(fabric::KIND.to_owned())),
        LinkInfo::Data(InfoData::Other(data.into_bytes())),
    ]));
    Request {
        what: format!("create the link {} to the fabric", end.name),
        message: RouteNetlinkMessage::NewLink(message),
        flags: NLM_F_CREATE | NLM_F_EXCL,
    }
}

fn veth_end(end: &VethEnd, mtu_bytes: u32, offload: bool) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = end.index;
    message.attributes = vec![
        LinkAttribute::IfName(end.name.clone()),
        LinkAttribute::Address(end.mac.to_vec()),
        LinkAttribute::Mtu(mtu_bytes),
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
    ];
    if !offload {
        message.attributes.push(LinkAttribute::GsoMaxSegs(1));
    }
    message.attributes.extend(end.netns.map(LinkAttribute::NetNsFd));
    message
}

/// Creates a tunnel of kind unorc; `offload` as in [`add_veth`].
pub fn add_unorc(
    name: &str,
    index: u32,
    mtu_bytes: u32,
    options: &unorc::Options,
    offload: bool,
) -> Request {
    let mut data = Attributes::default();
    for (number, bytes) in options.attributes() {
        data.push(number, &bytes);
    }
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Mtu(mtu_bytes),
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Other(unorc::KIND.to_owned())),
            LinkInfo::Data(InfoData::Other(data.into_bytes())),
        ]),
    ];
    if !offload {
        message.attributes.push(LinkAttribute::GsoMaxSegs(1));
    }
    Request {
        what: format!("create the tunnel {name}"),
        message: RouteNetlinkMessage::NewLink(message),
        flags: NLM_F_CREATE | NLM_F_EXCL,
    }
}

/// Creates a bond (balance-rr) that sends packets by their queue mapping, see [`join_bond`].
pub fn add_bond(name: &str, index: u32, mac: [u8; 6], mtu_bytes: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Address(mac.to_vec()),
        LinkAttribute::Mtu(mtu_bytes),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Bond),
            LinkInfo::Data(InfoData::Bond(vec![InfoBond::Mode(BondMode::BalanceRr)])),
        ]),
    ];
    Request {
        what: format!("create the bond {name}"),
        message: RouteNetlinkMessage::NewLink(message),
        flags: NLM_F_CREATE | NLM_F_EXCL,
    }
}

/// Adds a device that is down to a bond, then assigns it a queue mapping. The kernel accepts the second
/// request only for a member.
pub fn join_bond(name: &str, index: u32, bond: u32, queue_mapping: u16) -> [Request; 2] {
    let change = |attribute, what| {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![attribute];
        Request {
            what: format!("{what} {name}"),
            message: RouteNetlinkMessage::NewLink(message),
            flags: 0,
        }
    };
    let queue = LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bond),
        LinkInfo::PortData(InfoPortData::BondPort(vec![InfoBondPort::QueueId(queue_mapping)])),
    ]);
    [change(LinkAttribute::Controller(bond), "add to a bond"), change(queue, "set the queue of")]
}

/// Sets a device up. `name` is for the error message.
pub fn set_up(name: &str, index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    Request {
        what: format!("set {name} up"),
        message: RouteNetlinkMessage::NewLink(message),
        flags: 0,
    }
}

/// Deletes a device and its peer.
pub fn delete(index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    Request {
        what: format!("delete device {index}"),
        message: RouteNetlinkMessage::DelLink(message),
        flags: 0,
    }
}

/// Queries a device, which makes the kernel process its carrier state now. Otherwise a device whose peer
/// has just come up drops packets for up to a second.
pub fn settle(name: &str, index: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    Request {
        what: format!("query {name}"),
        message: RouteNetlinkMessage::GetLink(message),
        flags: 0,
    }
}

/// Adds an address to a device without a prefix route (`noprefixroute`).
pub fn add_address(index: u32, address: impl Into<IpAddr>, prefix_len: u8) -> Request {
    let address = address.into();
    let mut flags = AddressFlags::Permanent | AddressFlags::Noprefixroute;
    if address.is_ipv6() {
        // The address is unique, so skip duplicate address detection.
        flags |= AddressFlags::Nodad;
    }
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_len;
    message.header.flags = AddressHeaderFlags::Permanent;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
        AddressAttribute::Flags(flags),
    ];
    Request {
        what: format!("add the address {address}/{prefix_len}"),
        message: RouteNetlinkMessage::NewAddress(message),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
    }
}

/// TCP metrics of a route.
#[derive(Debug, Clone, Default)]
pub struct RouteMetrics {
    /// `features tcp_usec_ts`.
    pub tcp_usec_ts: bool,
    /// `quickack 1`.
    pub quickack: bool,
    /// `congctl NAME`.
    pub congestion_control: Option<String>,
    /// `initcwnd N`, packets; 0 = kernel default.
    pub initcwnd: u32,
    /// `initrwnd N`, packets; 0 = kernel default.
    pub initrwnd: u32,
}

impl RouteMetrics {
    fn attributes(&self) -> Vec<RouteMetric> {
        let mut metrics = Vec::new();
        if self.tcp_usec_ts {
            metrics.push(RouteMetric::Features(FEATURE_TCP_USEC_TS));
        }
        if self.quickack {
            metrics.push(RouteMetric::QuickAck(1));
        }
        if let Some(name) = &self.congestion_control {
            metrics.push(RouteMetric::CcAlgo(name.clone()));
        }
        if self.initcwnd > 0 {
            metrics.push(RouteMetric::InitCwnd(self.initcwnd));
        }
        if self.initrwnd > 0 {
            metrics.push(RouteMetric::InitRwnd(self.initrwnd));
        }
        metrics
    }
}

/// A next hop: `gateway` is assumed to be on the device's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// Address of the neighbor.
    pub gateway: IpAddr,
    /// Device that leads to it.
    pub index: u32,
}

/// Adds a route to a host that is on the device's link.
pub fn add_host_route(
    host: Ipv4Addr,
    index: u32,
    source: Ipv4Addr,
    metrics: &RouteMetrics,
) -> Request {
    let next = NextHop { gateway: host.into(), index };
    add_route(host.into(), 32, &[next], source.into(), metrics)
}

/// Adds a route to a host through a point-to-point device.
pub fn add_device_route(
    host: Ipv4Addr,
    index: u32,
    source: Ipv4Addr,
    metrics: &RouteMetrics,
) -> Request {
    let mut request = add_host_route(host, index, source, metrics);
    if let RouteNetlinkMessage::NewRoute(message) = &mut request.message {
        message.header.scope = RouteScope::Link;
        message.header.flags = RouteFlags::empty();
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Gateway(_)));
    }
    request
}

/// Adds a route to `network`/`prefix_len`: multipath for several next hops, `unreachable` for none.
pub fn add_route(
    network: IpAddr,
    prefix_len: u8,
    next_hops: &[NextHop],
    source: IpAddr,
    metrics: &RouteMetrics,
) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = family(network);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.header.destination_prefix_length = prefix_len;
    if prefix_len > 0 {
        let destination = RouteAttribute::Destination(network.into());
        message.attributes.push(destination);
    }
    match next_hops {
        [] => message.header.kind = RouteType::Unreachable,
        [only] => {
            if only.gateway.is_ipv4() {
                message.header.flags = RouteFlags::Onlink;
            }
            let gateway = RouteAttribute::Gateway(only.gateway.into());
            message.attributes.push(gateway);
            message.attributes.push(RouteAttribute::Oif(only.index));
        }
        several => {
            let hops = several.iter().map(|hop| {
                let mut next = RouteNextHop::default();
                if hop.gateway.is_ipv4() {
                    next.flags = RouteNextHopFlags::Onlink;
                }
                next.interface_index = hop.index;
                next.attributes = vec![RouteAttribute::Gateway(hop.gateway.into())];
                next
            });
            message.attributes.push(RouteAttribute::MultiPath(hops.collect()));
        }
    }
    if !next_hops.is_empty() {
        let source = RouteAttribute::PrefSource(source.into());
        message.attributes.push(source);
    }
    let metrics = metrics.attributes();
    if !metrics.is_empty() {
        message.attributes.push(RouteAttribute::Metrics(metrics));
    }
    Request {
        what: format!("add the route {network}/{prefix_len}"),
        message: RouteNetlinkMessage::NewRoute(message),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Adds a permanent neighbor, to avoid address resolution.
pub fn add_neighbour(index: u32, address: impl Into<IpAddr>, mac: [u8; 6]) -> Request {
    let address = address.into();
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::from(address)),
        NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
    ];
    Request {
        what: format!("add the neighbour {address}"),
        message: RouteNetlinkMessage::NewNeighbour(message),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
    }
}
