// SPDX-License-Identifier: GPL-2.0
//! Network namespaces, and two hosts with a link between them.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd, RawFd},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
    tc::TcHandle,
};
use nix::sched::{CloneFlags, setns, unshare};
use xdc_netlink::{
    Connection, Request,
    link::{self, LOOPBACK_INDEX, RouteMetrics, VethEnd},
    phantom::{self, Options, Xstats},
    qdisc::{self, Qdisc, QdiscState},
};

/// Namespace of the calling thread, which may differ from the process's.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// The thread's namespace.
    pub fn current() -> Result<Self> {
        let file = File::open(OWN).with_context(|| format!("cannot open {OWN}"))?;
        Ok(Self(file))
    }

    /// Creates a namespace without entering it.
    pub fn create() -> Result<Self> {
        let home = Self::current()?;
        unshare(CloneFlags::CLONE_NEWNET).context("cannot create a network namespace")?;
        let new = Self::current();
        home.enter()?;
        new
    }

    /// Moves the thread into the namespace.
    pub fn enter(&self) -> Result<()> {
        setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
    }

    /// Runs `f` in the namespace.
    pub fn run<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let home = Self::current()?;
        self.enter()?;
        let result = f();
        home.enter()?;
        result
    }

    /// Sends one request in the namespace.
    pub fn request(&self, request: Request) -> Result<()> {
        self.run(|| Ok(Connection::open()?.request(request)?))
    }

    /// Writes a sysctl of the namespace, such as `net/ipv4/tcp_ecn`.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        self.run(|| write_sysctl(name, value))
    }
}

impl AsRawFd for Netns {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Writes a sysctl of the thread's namespace.
pub fn write_sysctl(name: &str, value: &str) -> Result<()> {
    fs::write(format!("/proc/sys/{name}"), value).with_context(|| format!("{name} = {value}"))
}

/// Device index in each host.
pub const DEVICE: u32 = 2;

/// IPv4 address of a host.
pub fn v4(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, 1 + host as u8)
}

/// IPv6 address of a host.
pub fn v6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1 + host as u16)
}

/// MAC address of a host's device.
pub fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + host as u8]
}

/// Two hosts connected by a link.
#[derive(Debug)]
pub struct Pair {
    /// Namespaces of the hosts.
    pub hosts: [Netns; 2],
}

impl Pair {
    /// Creates hosts that are up, with both families and static neighbors, so that a port receives exactly
    /// IP's packets.
    pub fn new() -> Result<Self> {
        Self::with(false)
    }

    /// As [`Self::new`], but TCP passes segment bursts (GSO) to the devices.
    pub fn bursty() -> Result<Self> {
        Self::with(true)
    }

    fn with(offload: bool) -> Result<Self> {
        let hosts = [Netns::create()?, Netns::create()?];
        let ends = [0, 1].map(|host| VethEnd {
            name: "eth0".to_string(),
            index: DEVICE,
            mac: mac(host),
            netns: (host == 1).then_some(hosts[1].0.as_raw_fd()),
        });
        hosts[0].run(|| {
            Connection::open()?.request(link::add_veth(&ends[0], &ends[1], 1500, offload))?;
            Ok(())
        })?;
        for (host, netns) in hosts.iter().enumerate() {
            netns.run(|| configure_host(host))?;
        }
        // Neither end has a carrier before both are up.
        for netns in &hosts {
            netns.run(|| Ok(Connection::open()?.request(link::settle("eth0", DEVICE))?))?;
        }
        Ok(Self { hosts })
    }

    /// Writes a sysctl of both hosts.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        self.hosts.iter().try_for_each(|host| host.sysctl(name, value))
    }

    /// Installs a new phantom with `options` at the root of a host's device.
    pub fn port(&self, host: usize, options: &Options) -> Result<()> {
        self.hosts[host].request(root(options.encode()).replace())
    }
}

/// Sets addresses and routes in the namespace of `host`, in which the thread is.
pub fn configure_host(host: usize) -> Result<()> {
    let other = 1 - host;
    write_sysctl("net/ipv6/conf/eth0/accept_dad", "0")?;
    write_sysctl("net/ipv6/conf/eth0/router_solicitations", "0")?;
    Connection::open()?.batch([
        link::set_up("lo", LOOPBACK_INDEX),
        link::add_address(DEVICE, v4(host), 32),
        link::set_up("eth0", DEVICE),
        add_address_v6(DEVICE, v6(host)),
        link::add_neighbour(DEVICE, v4(other), mac(other)),
        link::add_neighbour(DEVICE, v6(other), mac(other)),
        link::add_host_route(v4(other), DEVICE, v4(host), &RouteMetrics::default()),
    ])?;
    Ok(())
}

fn add_address_v6(index: u32, address: Ipv6Addr) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = 64;
    message.header.flags = AddressHeaderFlags::Permanent | AddressHeaderFlags::Nodad;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Address(IpAddr::V6(address)),
        AddressAttribute::Flags(AddressFlags::Permanent | AddressFlags::Nodad),
    ];
    Request {
        what: format!("add the address {address}/64"),
        message: RouteNetlinkMessage::NewAddress(message),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
    }
}

/// A phantom at the root of [`DEVICE`].
pub fn root(options: Vec<u8>) -> Qdisc {
    root_of(phantom::KIND, options)
}

/// A qdisc at the root of [`DEVICE`].
pub fn root_of(kind: &'static str, options: Vec<u8>) -> Qdisc {
    Qdisc { index: DEVICE, parent: TcHandle::ROOT, handle: TcHandle::from(1 << 16), kind, options }
}

/// Changes flags or attributes of a device.
pub fn change(index: u32, is_up: Option<bool>, attributes: Vec<LinkAttribute>) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    if let Some(is_up) = is_up {
        message.header.change_mask = LinkFlags::Up;
        message.header.flags.set(LinkFlags::Up, is_up);
    }
    message.attributes = attributes;
    Request {
        what: format!("change device {index}"),
        message: RouteNetlinkMessage::NewLink(message),
        flags: 0,
    }
}

/// State of a device's root qdisc in the thread's namespace.
pub fn root_state(index: u32) -> Result<QdiscState> {
    let mut connection = Connection::open()?;
    qdisc::dump(&mut connection, index)?
        .into_iter()
        .find(|state| state.parent == TcHandle::ROOT)
        .ok_or_else(|| anyhow!("device {index} has no root qdisc"))
}

/// Counters of a port and of the IP layer above it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Books {
    /// Packets that IP passed to devices.
    offered: u64,
    sent: u64,
    dropped: u64,
    queued: u64,
    marked: u64,
}

impl Books {
    /// Reads the counters of a host that sends only through the port.
    pub fn read(netns: &Netns) -> Result<Self> {
        netns.run(|| {
            // Read again if a packet, such as a multicast report, comes between the two reads.
            let (mut offered, mut state) = (offered()?, root_state(DEVICE)?);
            for _ in 0..READS {
                let before = std::mem::replace(&mut offered, self::offered()?);
                if offered == before {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
                state = root_state(DEVICE)?;
            }
            Ok(Self {
                offered,
                sent: state.sent_packets,
                dropped: state.drops,
                queued: state.backlog_packets,
                marked: Xstats::of(&state).map_or(0, |xstats| xstats.marked()),
            })
        })
    }

    /// Checks since `start`: in = out + dropped + queued.
    pub fn balance(&self, start: &Self) -> Result<Balance> {
        let offered = self.offered - start.offered;
        let sent = self.sent - start.sent;
        let dropped = self.dropped - start.dropped;
        anyhow::ensure!(
            offered + start.queued == sent + dropped + self.queued,
            "{offered} in + {} queued before, but {sent} out, {dropped} dropped, {} queued",
            start.queued,
            self.queued
        );
        Ok(Balance { offered, dropped, marked: self.marked - start.marked })
    }
}

/// Packets passed, dropped and marked by a port.
#[derive(Debug, Clone, Copy)]
pub struct Balance {
    /// Packets in.
    pub offered: u64,
    /// Dropped packets.
    pub dropped: u64,
    /// Packets changed from ECT to CE.
    pub marked: u64,
}

/// Most attempts to read counters that do not change meanwhile.
const READS: u32 = 20;

/// Packets that IP (both families) passed to devices.
fn offered() -> Result<u64> {
    let v4 = counter("/proc/net/snmp", "Ip:", "OutTransmits")?;
    Ok(v4 + counter_v6("Ip6OutTransmits")?)
}

/// Reads a counter of `/proc/net/snmp` or `netstat`, which have a line of names and one of values.
pub fn counter(path: &str, group: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, values) = (lines.next(), lines.next());
    names
        .and_then(|names| names.split(' ').position(|word| word == name))
        .and_then(|column| values?.split(' ').nth(column)?.parse().ok())
        .ok_or_else(|| anyhow!("{path} has no {group} {name}"))
}

/// Reads a counter of `/proc/net/snmp6`.
pub fn counter_v6(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/net/snmp6")?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        .ok_or_else(|| anyhow!("/proc/net/snmp6 has no {name}"))
}
