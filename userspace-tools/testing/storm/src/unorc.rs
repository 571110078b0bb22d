// SPDX-License-Identifier: GPL-2.0
//! Stress tests of the tunnel device unorc: ends that restart, move, lose their underlying device, get forged
//! packets or no memory, and disappear under flows.

use std::{
    fs,
    io::Read,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use netlink_packet_route::link::{InfoData, InfoKind, LinkAttribute, LinkInfo};
use socket2::{Domain, Protocol, Socket, Type};
use xdc_netlink::{
    Connection, Request,
    attributes::Attributes,
    link::{self, RouteMetrics},
    unorc::{KIND, Options},
};

use crate::{
    Storm,
    alloc::failing,
    background::{PATIENCE, beside, breathe},
    flow::{Family, Load, Spec, Traffic},
    modules,
    net::{DEVICE, Netns, Pair, change, mac, v4},
};

const MODULE: &str = "unorc";
/// Index and name of the tunnel of each host.
const TUNNEL: u32 = 7;
const NAME: &str = "u0";
const PORT: u16 = 4796;
/// Source port of forged packets, among those that stand for a path.
const FORGER: u16 = 50_000;
const MTU: u32 = 1454;

/// Outer address of a host.
fn outer(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, 0, 1 + host as u8)
}

/// Two hosts whose IPv4 traffic uses a tunnel between them.
fn tunnels(words: &str) -> Result<Pair> {
    let pair = Pair::new()?;
    // Orphans must end, or their namespace remains.
    pair.sysctl("net/ipv4/tcp_orphan_retries", "1")?;
    for host in 0..2 {
        below(&pair, host)?;
        make(&pair, host, words)?;
    }
    Ok(pair)
}

/// Sets up the device below the tunnel.
fn below(pair: &Pair, host: usize) -> Result<()> {
    let (own, other) = (outer(host), outer(1 - host));
    pair.hosts[host].run(|| {
        Connection::open()?.batch([
            link::set_up("eth0", DEVICE),
            link::add_address(DEVICE, own, 32),
            link::add_neighbour(DEVICE, other, mac(1 - host)),
            link::add_host_route(other, DEVICE, own, &RouteMetrics::default()),
        ])?;
        Ok(())
    })
}

fn options(host: usize, port: u16, words: &str) -> Result<Options> {
    let words: Vec<_> = words.split_whitespace().collect();
    let options = Options::parse(&words).map_err(|why| anyhow!(why))?;
    Ok(options.between(outer(host), outer(1 - host), port))
}

/// Creates a host's tunnel and sets it up.
fn make(pair: &Pair, host: usize, words: &str) -> Result<()> {
    let options = options(host, PORT, words)?;
    pair.hosts[host].run(|| {
        Connection::open()?.request(link::add_unorc(NAME, TUNNEL, MTU, &options, false))?;
        begin(host)
    })
}

/// Sets up the tunnel of `host`, whose namespace the thread is in, with the IPv4 route.
fn begin(host: usize) -> Result<()> {
    let (own, other) = (v4(host), v4(1 - host));
    Connection::open()?.batch([
        link::set_up(NAME, TUNNEL),
        link::add_device_route(other, TUNNEL, own, &RouteMetrics::default()),
    ])?;
    Ok(())
}

/// `ip link change` with these options.
fn changed(words: &str) -> Result<Request> {
    let words: Vec<_> = words.split_whitespace().collect();
    let mut data = Attributes::default();
    let options = Options::parse(&words).map_err(|why| anyhow!(why))?;
    for (number, bytes) in options.attributes() {
        data.push(number, &bytes);
    }
    let info = LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Other(KIND.to_owned())),
        LinkInfo::Data(InfoData::Other(data.into_bytes())),
    ]);
    Ok(change(TUNNEL, None, vec![info]))
}

/// Reads a tunnel counter from `ethtool -S`.
fn counted(host: &Netns, name: &str) -> Result<u64> {
    host.run(|| {
        let output = Command::new("ethtool").args(["-S", NAME]).output()?;
        let text = String::from_utf8(output.stdout)?;
        let mut values = text.lines().filter_map(|line| {
            let value = line.trim().strip_prefix(name)?.strip_prefix(": ")?;
            value.parse().ok()
        });
        values.next().with_context(|| format!("no {name}"))
    })
}

/// Packets that a host's tunnel could not send (TX errors).
fn unsent(host: &Netns) -> Result<u64> {
    const TX_ERRORS: usize = 10;
    host.run(|| {
        let text = fs::read_to_string("/proc/thread-self/net/dev")?;
        let mut tunnels = text.lines().filter_map(|line| {
            let values = line.trim().strip_prefix(NAME)?.strip_prefix(':')?;
            values.split_whitespace().nth(TX_ERRORS)?.parse().ok()
        });
        tunnels.next().context("no tunnel")
    })
}

/// IPv4 flows, which use the tunnel.
fn load<'a>(storm: &'a Storm, pair: &'a Pair) -> Result<Load<'a>> {
    Load::new(storm, pair, &[Family::V4, Family::Mapped])
}

/// Dumps the devices of the thread's namespace, with their options and counters; returns their number.
fn devices() -> Result<usize> {
    Ok(link::dump(&mut Connection::open()?)?.len())
}

/// Dumps the devices of a host until `f` ends.
fn watched<T>(host: &Netns, f: impl FnOnce() -> Result<T>) -> Result<T> {
    beside(host, devices, f)
}

/// Runs the attack: `rounds` of each kind.
pub fn attack(storm: &mut Storm, rounds: u32) -> Result<()> {
    modules::load(MODULE)?;
    let _no_autoload = modules::NoAutoload::new()?;
    type Case = fn(&Storm, u32) -> Result<()>;
    let cases: [(&str, Case); 10] = [
        ("either end is created again under flows", restarts),
        ("a tunnel moves to another namespace and back", moves),
        ("the MTU of a tunnel changes", mtus),
        ("the device below goes down and up", below_down),
        ("the device below is deleted", below_gone),
        ("forged, stale and broken packets change nothing", forged),
        ("each option changes under flows", changes),
        ("a host has 200 tunnels", many),
        ("hosts are deleted with their tunnels", namespaces),
        ("the module is unloaded and loaded under flows", reloads),
    ];
    for (what, case) in cases {
        let outcome = case(storm, rounds);
        storm.ktap.case(what, outcome);
    }
    // Cases for the debug kernel only.
    if storm.debug {
        let outcome = starved();
        storm.ktap.case("flows arrive despite failed allocations", outcome);
    }
    modules::unload(MODULE)?;
    Ok(())
}

fn restarts(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = tunnels("paths reps")?;
    let mut load = load(storm, &pair)?;
    watched(&pair.hosts[0], || {
        for round in 0..rounds {
            let host = round as usize % 2;
            load.refill()?;
            pair.hosts[host].request(link::delete(TUNNEL))?;
            load.step()?;
            make(&pair, host, "paths reps")?;
        }
        Ok(())
    })?;
    load.end()
}

fn moves(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = tunnels("")?;
    let elsewhere = Netns::create()?;
    let mut load = load(storm, &pair)?;
    let to = |host: &Netns| change(TUNNEL, None, vec![LinkAttribute::NetNsFd(host.as_raw_fd())]);
    for round in 0..rounds {
        let host = round as usize % 2;
        load.refill()?;
        pair.hosts[host].request(to(&elsewhere))?;
        // The tunnel keeps its socket in the original namespace.
        elsewhere.request(link::set_up(NAME, TUNNEL))?;
        load.step()?;
        elsewhere.request(to(&pair.hosts[host]))?;
        pair.hosts[host].run(|| begin(host))?;
    }
    load.end()
}

fn mtus(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = tunnels("paths bitmap")?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = load(storm, &pair)?;
    for round in 0..rounds {
        let host = round as usize % 2;
        load.refill()?;
        // Above the MTU at creation.
        let mtu = LinkAttribute::Mtu(MTU + 1);
        let busy = pair.hosts[host].request(change(TUNNEL, None, vec![mtu]));
        ensure!(busy.is_err(), "the MTU can be raised while the device is up");
        let mut mtu = |least: u32, most: u32| LinkAttribute::Mtu(rng.u32(least..=most));
        let low = mtu(576, 599);
        pair.hosts[host].request(change(TUNNEL, None, vec![low]))?;
        load.step()?;
        let mtu = mtu(600, MTU);
        pair.hosts[host].request(change(TUNNEL, Some(false), vec![]))?;
        pair.hosts[host].request(change(TUNNEL, None, vec![mtu]))?;
        load.step()?;
        pair.hosts[host].run(|| begin(host))?;
    }
    load.end()
}

fn below_down(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = tunnels("paths plb")?;
    let mut load = load(storm, &pair)?;
    for round in 0..rounds {
        let host = round as usize % 2;
        load.refill()?;
        pair.hosts[host].request(change(DEVICE, Some(false), vec![]))?;
        load.step()?;
        below(&pair, host)?;
        // The tunnel sends only after the kernel has noticed the carrier.
        for netns in &pair.hosts {
            netns.request(link::settle("eth0", DEVICE))?;
        }
        // The other host keeps its routes, but loses the neighbors.
        below(&pair, 1 - host)?;
    }
    load.end()
}

fn below_gone(storm: &Storm, _rounds: u32) -> Result<()> {
    for host in 0..2 {
        let pair = tunnels("paths ops")?;
        // The address stays, so that TCP keeps sending.
        pair.hosts[0].request(link::add_address(TUNNEL, v4(0), 32))?;
        let mut load = load(storm, &pair)?;
        load.refill()?;
        pair.hosts[host].request(link::delete(DEVICE))?;
        let deadline = Instant::now() + PATIENCE;
        while unsent(&pair.hosts[0])? == 0 {
            ensure!(Instant::now() < deadline, "no packet failed without the device below");
            // These flows cannot end, but earlier ones may have. A new one may find no route.
            let _ = load.refill();
            breathe();
        }
        load.traffic.abandon();
        pair.hosts[host].request(link::delete(TUNNEL))?;
    }
    Ok(())
}

/// Opens a packet socket for the second host's traffic.
fn listen(pair: &Pair) -> Result<Socket> {
    let seen = pair.hosts[1].run(|| {
        let ipv4 = Some(Protocol::from(i32::from((libc::ETH_P_IP as u16).to_be())));
        Socket::new(Domain::PACKET, Type::DGRAM.cloexec(), ipv4)
            .context("cannot open a packet socket")
    })?;
    seen.set_nonblocking(true)?;
    Ok(seen)
}

/// Appends the observed tunnel packets, without IP and UDP headers.
fn collect(mut seen: &Socket, packets: &mut Vec<Vec<u8>>) {
    const MOST: usize = 512;
    const HEADERS: usize = 28;
    let mut buffer = [0; 2048];
    while let Ok(length) = seen.read(&mut buffer) {
        let packet = &buffer[..length];
        let is_ours = length > HEADERS
            && packet[9] == 17
            && packet[12..16] == outer(0).octets()
            && packet[22..24] == PORT.to_be_bytes();
        if is_ours && packets.len() < MOST {
            packets.push(packet[HEADERS..].to_vec());
        }
    }
}

/// Packets forged by an on-path attacker with the peer's address, so that tags may be valid.
fn forged(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = tunnels("paths unolb")?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = load(storm, &pair)?;
    let seen = listen(&pair)?;
    let forger = pair.hosts[0].run(|| Ok(UdpSocket::bind((outer(0), FORGER))?))?;
    let to = SocketAddr::from((outer(1), PORT));
    let mut known = Vec::new();
    let mut dropped = [("bad_tag", 0), ("malformed", 0)];
    let in_a_round = if storm.debug { 40 } else { 200 };
    for round in 0..rounds {
        load.refill()?;
        collect(&seen, &mut known);
        for _ in 0..in_a_round {
            let any = rng.usize(..known.len().max(1));
            let mut packet = known.get(any).cloned().unwrap_or_default();
            match rng.u8(..5) {
                // Random bytes.
                0 => packet = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect(),
                // Unchanged: stale if the session is over.
                1 => {}
                // Another session's tag.
                2 if packet.len() > 16 => packet[8..16].fill_with(|| rng.u8(..)),
                3 => packet.truncate(rng.usize(..=packet.len())),
                // One flipped bit.
                _ => {
                    let at = rng.usize(..packet.len().max(1));
                    if let Some(byte) = packet.get_mut(at) {
                        *byte ^= 1 << rng.u8(..8);
                    }
                }
            }
            forger.send_to(&packet, to)?;
        }
        load.step()?;
        for (name, n) in &mut dropped {
            *n = counted(&pair.hosts[1], name)?.max(*n);
        }
        // After this, the collected packets are of an old session.
        if round % 8 == 7 {
            pair.hosts[1].request(link::delete(TUNNEL))?;
            make(&pair, 1, "paths unolb")?;
        }
    }
    ensure!(known.len() > 50, "{} packets were seen", known.len());
    for (name, n) in dropped {
        ensure!(n > 0, "{name} is 0");
    }
    load.end()
}

fn changes(storm: &Storm, rounds: u32) -> Result<()> {
    const PATHS: [&str; 8] = ["ecmp", "rps", "ops", "plb", "unolb", "reps", "reps-paper", "bitmap"];
    let pair = tunnels("")?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = load(storm, &pair)?;
    watched(&pair.hosts[0], || {
        for round in 0..rounds * 4 {
            load.refill()?;
            let words = match round % 4 {
                0 => format!("paths {}", PATHS[rng.usize(..8)]),
                1 => format!("freeze {}", ["loss", "timeout", "off"][rng.usize(..3)]),
                2 => format!("timer {}", rng.u32(1..=30_000)),
                _ => format!("flush {}", rng.u32(1..=2_000)),
            };
            let host = &pair.hosts[rng.usize(..2)];
            host.request(changed(&words)?)?;
            for words in ["fec 4+2", "channels 4", "window 64", "port 1", "flush 0"] {
                let refused = host.request(changed(words)?);
                ensure!(refused.is_err(), "{words} is accepted");
            }
        }
        Ok(())
    })?;
    load.end()
}

fn many(storm: &Storm, _rounds: u32) -> Result<()> {
    const ALL: u32 = 200;
    let pair = tunnels("")?;
    let mut load = load(storm, &pair)?;
    watched(&pair.hosts[0], || {
        for i in 0..ALL {
            load.refill()?;
            for (host, netns) in pair.hosts.iter().enumerate() {
                let words = "channels 2 window 64";
                let options = options(host, 10_000 + i as u16, words)?;
                let (name, index) = (format!("m{i}"), 100 + i);
                netns.run(|| {
                    Connection::open()?.batch([
                        link::add_unorc(&name, index, MTU, &options, false),
                        link::set_up(&name, index),
                    ])?;
                    Ok(())
                })?;
            }
        }
        Ok(())
    })?;
    let devices = pair.hosts[0].run(devices)?;
    ensure!(devices > ALL as usize, "there are {devices} devices");
    load.end()
}

fn namespaces(storm: &Storm, rounds: u32) -> Result<()> {
    for _ in 0..rounds.min(4) {
        let pair = tunnels("paths reps-paper")?;
        let mut load = load(storm, &pair)?;
        load.refill()?;
        load.traffic.abandon();
    }
    modules::unload(MODULE)?;
    modules::load(MODULE)?;
    Ok(())
}

fn reloads(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = tunnels("")?;
    let mut load = load(storm, &pair)?;
    watched(&pair.hosts[1], || {
        for _ in 0..rounds.min(10) {
            load.refill()?;
            modules::unload(MODULE)?;
            load.step()?;
            modules::load(MODULE)?;
            for host in 0..2 {
                make(&pair, host, "")?;
            }
        }
        Ok(())
    })?;
    load.end()
}

/// Random allocation failures between the start and the end of flows: TCP forgets a FIN that it has no memory
/// for.
fn starved() -> Result<()> {
    const FLOWS: u64 = 6;
    const BURST: u64 = 40_000;
    let pair = tunnels("paths reps")?;
    let mut traffic = Traffic::new(&pair, "cubic")?;
    for _ in 0..FLOWS {
        let mut spec = Spec::new("cubic", 3 * BURST, Family::V4);
        spec.burst = Some((BURST, Duration::from_secs(3_600)));
        traffic.open(spec)?;
    }
    let deadline = Instant::now() + PATIENCE;
    while traffic.tally.bytes < FLOWS * BURST {
        let bytes = traffic.tally.bytes;
        ensure!(Instant::now() < deadline, "{bytes} bytes arrived");
        traffic.step(Duration::from_millis(100))?;
    }
    failing(5, || {
        traffic.next_burst()?;
        for _ in 0..100 {
            traffic.step(Duration::from_millis(20))?;
        }
        Ok(())
    })?;
    traffic.resume_all()?;
    traffic.drain(PATIENCE)?;
    traffic.verdict()?;
    let no_memory = |name| -> Result<u64> {
        Ok(counted(&pair.hosts[0], name)? + counted(&pair.hosts[1], name)?)
    };
    let missing = no_memory("no_mem")?;
    ensure!(missing > 0, "no allocation of unorc failed");
    drop(traffic);
    Ok(())
}
