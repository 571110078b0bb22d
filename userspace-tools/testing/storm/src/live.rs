// SPDX-License-Identifier: GPL-2.0
//! Congestion controls switch on live sockets, and namespaces disappear under traffic.

use std::{
    os::fd::AsRawFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use xdc_netlink::{
    Connection,
    link::{self, LOOPBACK_INDEX, VethEnd},
    phantom::{Mark, Options},
    qdisc::Handle,
};

use crate::{
    Storm,
    background::PATIENCE,
    diag::Diag,
    flow::{Family, Spec, Traffic},
    modules,
    net::{Books, DEVICE, Netns, Pair, configure_host, mac, root, v4},
    raw::Netlink,
    sys,
};

/// Open flows at a time.
const FLOWS: usize = 16;

/// A port with a queue and ECN marks.
fn marking_port() -> Options {
    Options {
        limit_bytes: Some(300_000),
        rate_bytes_per_s: Some(12_500_000),
        phantom_limit_bytes: Some(200_000),
        mark: Some(Mark::Either),
        pmin_ppm: Some(50_000),
        pmax_ppm: Some(500_000),
        pool: Some("all".to_string()),
        pool_limit_bytes: Some(1_000_000),
        ..Default::default()
    }
}

/// Switches congestion controls `count` times.
pub fn switch(storm: &mut Storm, count: u32) -> Result<()> {
    let pair = Arc::new(Pair::new()?);
    pair.port(0, &marking_port())?;
    let start = Books::read(&pair.hosts[0])?;
    let diag = Diag::start(&pair, Some("gemini"), Duration::from_millis(5));
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let ccs = storm.ccs();
    let mut traffic = Traffic::new(&pair, "unocc")?;
    let mut switched = 0;
    let outcome = (|| {
        while switched < count {
            while traffic.open_flows() < FLOWS {
                // Each ECN mode; it applies to new connections.
                let ecn = [0, 1, 2, 3, 4, 5][rng.usize(..6)].to_string();
                pair.sysctl("net/ipv4/tcp_ecn", &ecn)?;
                let family = Family::ALL[rng.usize(..3)];
                let mut spec = Spec::new(&ccs[rng.usize(..ccs.len())], rng.u64(1..60_000), family);
                if rng.u8(..8) == 0 {
                    spec.abort_after = Some(rng.u64(1..100_000));
                }
                traffic.open(spec)?;
            }
            traffic.step(Duration::from_millis(20))?;
            for _ in 0..16 {
                let to = ccs[rng.usize(..ccs.len())].clone();
                let Some(flow) = traffic.any_flow(&mut rng) else {
                    break;
                };
                let end = match &flow.rx {
                    Some(rx) if rng.bool() => rx,
                    _ => &flow.tx,
                };
                end.set_tcp_congestion(to.as_bytes()).with_context(|| format!("switch to {to}"))?;
                switched += 1;
                if rng.u8(..4) == 0 {
                    let name = end.tcp_congestion()?;
                    let name = String::from_utf8_lossy(&name);
                    // Without ECN a flow uses Reno, with a name that shows it.
                    let name = name.trim_end_matches('\0');
                    ensure!(name.starts_with(to.as_str()), "{to} became {name}");
                    // Reads the algorithm's TCP_CC_INFO.
                    let mut info = [0; 64];
                    sys::get_bytes(end, libc::IPPROTO_TCP, libc::TCP_CC_INFO, &mut info)?;
                }
            }
        }
        traffic.drain(PATIENCE)?;
        traffic.verdict()
    })();
    let seen = diag.stop()?;
    storm.ktap.note(&seen.text());
    storm.ktap.case(
        &format!("{switched} switches of the congestion control of {FLOWS} live sockets"),
        outcome.and_then(|()| {
            ensure!(seen.dctcp_blocks > 0, "no dump had a DCTCP block");
            seen.check()
        }),
    );
    let tally = traffic.tally;
    storm.flows_case("flows with switched congestion control", traffic.verdict().map(|()| tally));
    drop(traffic);
    let balance = settled(&pair.hosts[0], &start);
    storm.balance_case("port of flows with switched congestion control", balance);
    Ok(())
}

/// Checks the counters of a host's port after traffic ends.
pub fn settled(host: &Netns, start: &Books) -> Result<crate::net::Balance> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Counters are not read atomically, and closed sockets still send.
        match Books::read(host)?.balance(start) {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(500)),
            other => return other,
        }
    }
}

/// Destroys namespaces `count` times with queued packets.
pub fn namespaces(storm: &mut Storm, count: u32) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let ccs = storm.ccs();
    let mut bytes = 0;
    let mut queued = 0;
    let outcome = (0..count).try_for_each(|i| {
        let (moved, left) = match i % 2 {
            0 => hosts_go(&mut rng, &ccs),
            _ => router_goes(&mut rng, &ccs),
        }
        .with_context(|| format!("round {i}"))?;
        bytes += moved;
        queued += left;
        storm.progress(i, i + 1, count);
        Ok(())
    });
    storm.ktap.note(&format!("{bytes} bytes arrived before, {queued} packets were queued"));
    storm.ktap.case(
        &format!("{count} namespaces destroyed under traffic, hosts and routers in turn"),
        outcome.and_then(|()| {
            ensure!(bytes > 0 && queued > 0, "there was no traffic");
            Ok(())
        }),
    );
    storm.ktap.case(
        "deleted namespaces hold no module",
        modules::ours().try_for_each(|name| {
            modules::unload(name)?;
            modules::load(name).map(|_| ())
        }),
    );
    Ok(())
}

/// Enough to fill the port's queue; larger buffers only cost time.
const SNDBUF_BYTES: usize = 64 << 10;

/// A closed socket holds its namespace until its data is acknowledged or it gives up; this makes it give up
/// soon.
const ORPHAN_RETRIES: &str = "net/ipv4/tcp_orphan_retries";

fn slow_port(rng: &mut fastrand::Rng) -> Options {
    Options { rate_bytes_per_s: Some(rng.u64(100_000..1_000_000)), ..marking_port() }
}

/// Destroys both hosts of a pair with sockets in every state.
fn hosts_go(rng: &mut fastrand::Rng, ccs: &[String]) -> Result<(u64, u64)> {
    let pair = Arc::new(Pair::new()?);
    pair.port(0, &slow_port(rng))?;
    pair.sysctl(ORPHAN_RETRIES, "1")?;
    let diag = Diag::start(&pair, Some("unocc"), Duration::from_millis(5));
    let mut traffic = Traffic::new(&pair, "gemini")?;
    let mut queued = 0;
    for _ in 0..16 {
        let cc = &ccs[rng.usize(..ccs.len())];
        let family = Family::ALL[rng.usize(..3)];
        traffic
            .open(Spec { sndbuf_bytes: Some(SNDBUF_BYTES), ..Spec::new(cc, 1_000_000, family) })?;
        traffic.step(Duration::from_millis(5))?;
        queued = queued.max(backlog(&pair.hosts[0])?);
    }
    for _ in 0..20 {
        traffic.step(Duration::from_millis(5))?;
    }
    queued = queued.max(backlog(&pair.hosts[0])?);
    let bytes = traffic.tally.bytes;
    if rng.bool() {
        // Deletes the link first, with the packets in its queues.
        pair.hosts[rng.usize(..2)]
            .run(|| Ok(Connection::open()?.request(link::delete(DEVICE))?))?;
        traffic.step(Duration::from_millis(5))?;
    }
    traffic.abandon();
    drop(traffic);
    diag.stop()?;
    Ok((bytes, queued))
}

fn backlog(netns: &Netns) -> Result<u64> {
    netns.run(|| Ok(crate::net::root_state(DEVICE)?.backlog_packets))
}

/// Destroys a router with ports between two hosts that keep sending.
fn router_goes(rng: &mut fastrand::Rng, ccs: &[String]) -> Result<(u64, u64)> {
    let Routed { pair, router } = Routed::new(rng)?;
    let mut traffic = Traffic::new(&pair, "unocc")?;
    for _ in 0..16 {
        let cc = &ccs[rng.usize(..ccs.len())];
        traffic.open(Spec {
            sndbuf_bytes: Some(SNDBUF_BYTES),
            ..Spec::new(cc, 2_000_000, Family::V4)
        })?;
    }
    let mut queued = 0;
    for _ in 0..200 {
        traffic.step(Duration::from_millis(5))?;
        queued = router.run(|| Ok(crate::net::root_state(DEVICE + 1)?.backlog_packets))?;
        if queued > 0 && traffic.tally.bytes > 0 {
            break;
        }
    }
    let bytes = traffic.tally.bytes;
    let mut diag = pair.hosts[0].run(|| Netlink::open(libc::NETLINK_SOCK_DIAG))?;
    // The last reference: no process and no socket is in the namespace.
    drop(router);
    let mut seen = crate::diag::Seen::default();
    for _ in 0..10 {
        // The router's end of the link disappears too.
        for _ in 0..5 {
            traffic.step(Duration::from_millis(5))?;
        }
        crate::diag::dump(&mut diag, libc::AF_INET as u8, &mut seen)?;
    }
    let deadline = Instant::now() + PATIENCE;
    while pair.hosts[0].run(|| Ok(link_exists()))? {
        if Instant::now() > deadline {
            bail!("the router still exists");
        }
        traffic.step(Duration::from_millis(20))?;
    }
    traffic.abandon();
    Ok((bytes, queued))
}

fn link_exists() -> bool {
    std::path::Path::new("/proc/sys/net/ipv4/conf/eth0").exists()
}

/// Two hosts and a router with a port towards each.
struct Routed {
    pair: Pair,
    router: Netns,
}

impl Routed {
    fn new(rng: &mut fastrand::Rng) -> Result<Self> {
        let pair = Pair { hosts: [Netns::create()?, Netns::create()?] };
        let router = Netns::create()?;
        router.run(|| {
            crate::net::write_sysctl("net/ipv4/ip_forward", "1")?;
            let mut connection = Connection::open()?;
            connection.request(link::set_up("lo", LOOPBACK_INDEX))?;
            for host in 0..2 {
                let near = VethEnd {
                    name: format!("to{host}"),
                    index: DEVICE + host as u32,
                    mac: mac(1 - host),
                    netns: None,
                };
                let far = VethEnd {
                    name: "eth0".to_string(),
                    index: DEVICE,
                    mac: mac(host),
                    netns: Some(pair.hosts[host].as_raw_fd()),
                };
                connection.request(link::add_veth(&near, &far, 1500, false))?;
                connection.request(link::set_up(&near.name, near.index))?;
            }
            Ok(())
        })?;
        for (host, netns) in pair.hosts.iter().enumerate() {
            netns.run(|| configure_host(host))?;
            netns.sysctl(ORPHAN_RETRIES, "1")?;
        }
        router.run(|| {
            let mut connection = Connection::open()?;
            for host in 0..2 {
                let index = DEVICE + host as u32;
                // Any source address works: the router sends no packets of its own.
                let route = link::add_address(index, v4(2 + host), 32);
                let metrics = link::RouteMetrics::default();
                connection.batch([
                    route,
                    link::add_host_route(v4(host), index, v4(2 + host), &metrics),
                    link::add_neighbour(index, v4(host), mac(host)),
                    link::settle("port", index),
                ])?;
                let mut port = root(slow_port(rng).encode());
                port.index = index;
                port.parent = Handle::ROOT;
                connection.request(port.replace())?;
            }
            Ok(())
        })?;
        for netns in &pair.hosts {
            netns.run(|| Ok(Connection::open()?.request(link::settle("eth0", DEVICE))?))?;
        }
        Ok(Self { pair, router })
    }
}
