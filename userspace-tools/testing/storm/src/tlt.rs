// SPDX-License-Identifier: GPL-2.0
//! TLT under attack: forged marks, lying peers, failing memory, floods, and going while flows live.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use xdc_netlink::phantom::{ColorSource, Mark, Options};

use crate::{
    Storm,
    background::PATIENCE,
    flow::{Family, Spec, Traffic},
    modules,
    net::{Netns, Pair, counter, v4},
    sys::set_bytes,
};

const MODULE: &str = "tlt";
const STAT: &str = "/proc/net/tlt_stat";

/// DSCPs of docs/tlt.md.
const DATA: u8 = 10;
const ECHO: u8 = 12;
const CLOCK: u8 = 18;
const CLOCK_ECHO: u8 = 20;

/// A counter of a host.
fn tlt(host: &Netns, name: &str) -> Result<u64> {
    host.run(|| counter(STAT, "Tlt:", name))
}

fn timeouts(host: &Netns) -> Result<u64> {
    host.run(|| counter("/proc/net/netstat", "TcpExt:", "TCPTimeouts"))
}

/// Two hosts with TLT, behind a port that drops the tails of what is unimportant.
fn lossy_pair() -> Result<Pair> {
    let pair = Pair::new()?;
    pair.port(0, &lossy_port())?;
    enable(&pair)?;
    Ok(pair)
}

fn lossy_port() -> Options {
    Options {
        limit_bytes: Some(2_000_000),
        rate_bytes_per_s: Some(12_500_000),
        mark: Some(Mark::None),
        red_limit_bytes: Some(60_000),
        color_source: Some(ColorSource::Dscp),
        dscp_red: Some(1 << 8),
        dscp_yellow: Some(0),
        ..Default::default()
    }
}

fn enable(pair: &Pair) -> Result<()> {
    pair.sysctl("net/tlt/enabled", "1")?;
    // Where orphans do not end, their namespace does not.
    pair.sysctl("net/ipv4/tcp_orphan_retries", "1")
}

/// Opens `count` flows of all congestion controls; each waits behind its first bytes.
fn open_all(storm: &Storm, traffic: &mut Traffic<'_>, count: u32, bytes: u64) -> Result<()> {
    let ccs = storm.ccs();
    for i in 0..count as usize {
        let mut spec = Spec::new(&ccs[i % ccs.len()], bytes, Family::ALL[i % 3]);
        spec.burst = Some((2_000, Duration::from_secs(3_600)));
        traffic.open(spec)?;
        if i % 64 == 63 {
            traffic.step(Duration::ZERO)?;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while traffic.waiting() > 0 {
        ensure!(Instant::now() < deadline, "{} wait", traffic.waiting());
        traffic.step(Duration::from_millis(100))?;
    }
    Ok(())
}

/// Flows of `bytes`, from beginning to end.
fn serve(storm: &Storm, pair: &Pair, count: u32, bytes: u64) -> Result<()> {
    let mut traffic = Traffic::new(pair, "cubic")?;
    let ccs = storm.ccs();
    for i in 0..count as usize {
        traffic.open(Spec::new(&ccs[i % ccs.len()], bytes, Family::ALL[i % 3]))?;
    }
    traffic.drain(PATIENCE)?;
    traffic.verdict()
}

/// The attack; `count` flows are open when the module goes.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let _no_autoload = modules::NoAutoload::new()?;
    type Case = fn(&Storm) -> Result<()>;
    let cases: [(&str, Case); 9] = [
        (
            "no echo is one that nobody awaits, whatever processor it comes on",
            awaited,
        ),
        ("a sender of important packets alone is served", all_green),
        ("forged echoes make nobody send more", echo_flood),
        ("marks from outside the windows are bad ones", forged),
        ("a flood of SYNs takes no memory", syn_flood),
        ("a peer that clears marks is given up", deaf),
        ("flows beyond max_flows are left alone", too_many),
        ("namespaces go with flows", namespaces),
        ("tlt comes and goes under traffic", reloads),
    ];
    for (what, case) in cases {
        let outcome = case(storm);
        storm.ktap.case(what, outcome);
    }
    let outcome = leaves_under(storm, count);
    storm.ktap.case(
        &format!("tlt goes while {count} flows live, and all arrive"),
        outcome,
    );
    // What only the debug kernel has.
    if storm.debug {
        let outcome = starved(storm);
        storm
            .ktap
            .case("flows arrive where allocations fail", outcome);
        let outcome = excluded(MPTCP, |_| Ok(()));
        storm.ktap.case("MPTCP is left alone", outcome);
        let outcome = excluded(libc::IPPROTO_TCP, add_ao_key);
        storm.ktap.case("TCP-AO is left alone", outcome);
    }
    Ok(())
}

fn awaited(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    for _ in 0..4 {
        serve(storm, &pair, 12, 200_000)?;
    }
    let [sender, receiver] = &pair.hosts;
    let bad = tlt(sender, "BadMark")? + tlt(receiver, "BadMark")?;
    let echoes = tlt(sender, "RxEcho")? + tlt(sender, "RxClockEcho")?;
    ensure!(echoes > 48, "{echoes} echoes came");
    ensure!(bad == 0, "{bad} of {echoes} were bad");
    Ok(())
}

fn all_green(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    pair.hosts[0].sysctl("net/tlt/dscp_unimportant", &DATA.to_string())?;
    serve(storm, &pair, 12, 100_000)?;
    let seen = tlt(&pair.hosts[1], "RxData")?;
    ensure!(seen > 12 * 60, "{seen} important packets came");
    Ok(())
}

fn echo_flood(storm: &Storm) -> Result<()> {
    for forged in [ECHO, CLOCK_ECHO] {
        let pair = lossy_pair()?;
        // Each ACK of the receiver says so.
        pair.hosts[1].sysctl("net/tlt/dscp_control", &forged.to_string())?;
        serve(storm, &pair, 12, 100_000)?;
        let sent = tlt(&pair.hosts[0], "TxClockData")? + tlt(&pair.hosts[0], "TxData")?;
        let packets = tlt(&pair.hosts[0], "TxUnimportant")? + sent;
        ensure!(sent > 0, "no flow took part");
        ensure!(
            packets < 12 * 70 * 8,
            "{packets} packets for 12 flows of 70"
        );
    }
    Ok(())
}

/// A TCP packet of the first host to the second.
fn packet(dscp: u8, ports: (u16, u16), seq: u32, ack: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (v4(0), v4(1));
    let mut tcp = Vec::new();
    tcp.extend(ports.0.to_be_bytes());
    tcp.extend(ports.1.to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.unwrap_or(0).to_be_bytes());
    tcp.extend(match ack {
        Some(_) => [0x50, 0x10],
        None => [0x60, 0x02],
    });
    tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
    if ack.is_none() {
        // SACK is permitted: without, nobody takes part.
        tcp.extend([4, 2, 1, 1]);
    }
    tcp.extend(payload);
    let length = (20 + tcp.len()) as u16;
    let mut pseudo = Vec::new();
    pseudo.extend(from.octets());
    pseudo.extend(to.octets());
    pseudo.extend([0, 6]);
    pseudo.extend((tcp.len() as u16).to_be_bytes());
    pseudo.extend(&tcp);
    let mut sum: u32 = pseudo
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Payload has a wrong one: TCP must not take it.
    let check = !(sum as u16) ^ u16::from(!payload.is_empty());
    tcp[16..18].copy_from_slice(&check.to_be_bytes());
    // The kernel fills in the identification and the header's checksum.
    let mut ip = vec![0x45, dscp << 2];
    ip.extend(length.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    ip.extend(from.octets());
    ip.extend(to.octets());
    ip.extend(tcp);
    ip
}

fn raw_socket(host: &Netns) -> Result<Socket> {
    host.run(|| {
        let raw = Some(Protocol::from(libc::IPPROTO_RAW));
        Socket::new(Domain::IPV4, Type::RAW.cloexec(), raw).context("cannot open a raw socket")
    })
}

fn to(address: Ipv4Addr) -> SockAddr {
    std::net::SocketAddr::from((address, 0)).into()
}

fn forged(storm: &Storm) -> Result<()> {
    const FORGED: u64 = 1_000;
    let pair = lossy_pair()?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut traffic = Traffic::new(&pair, "cubic")?;
    let mut spec = Spec::new("cubic", 300_000, Family::V4);
    spec.burst = Some((100_000, Duration::from_secs(3_600)));
    traffic.open(spec)?;
    let deadline = Instant::now() + PATIENCE;
    while traffic.waiting() > 0 || traffic.tally.bytes < 100_000 {
        ensure!(Instant::now() < deadline, "the flow does not begin");
        traffic.step(Duration::from_millis(100))?;
    }
    let flow = traffic.flows().next().context("no flow")?;
    let of = |address: SockAddr| address.as_socket().map(|address| address.port());
    let ports = of(flow.tx.local_addr()?).zip(of(flow.tx.peer_addr()?));
    let ports = ports.context("no ports")?;
    let raw = raw_socket(&pair.hosts[0])?;
    for i in 0..FORGED {
        let dscp = [DATA, ECHO, CLOCK, CLOCK_ECHO][i as usize % 4];
        let payload: &[u8] = if dscp == DATA || dscp == CLOCK {
            &[0]
        } else {
            &[]
        };
        let bytes = packet(dscp, ports, rng.u32(..), Some(rng.u32(..)), payload);
        raw.send_to(&bytes, &to(v4(1)))?;
    }
    // They are behind the port.
    std::thread::sleep(Duration::from_secs(1));
    let bad = tlt(&pair.hosts[1], "BadMark")?;
    traffic.resume_all()?;
    traffic.drain(PATIENCE)?;
    traffic.verdict()?;
    ensure!(bad * 2 > FORGED, "{bad} of {FORGED} were bad");
    ensure!(timeouts(&pair.hosts[0])? == 0, "there were timeouts");
    Ok(())
}

fn syn_flood(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let traffic = Traffic::new(&pair, "cubic")?;
    let raw = raw_socket(&pair.hosts[0])?;
    for _ in 0..3_000 {
        let bytes = packet(DATA, (rng.u16(1_024..), 5_000), rng.u32(..), None, &[]);
        raw.send_to(&bytes, &to(v4(1)))?;
    }
    // They are behind the port.
    std::thread::sleep(Duration::from_secs(1));
    ensure!(tlt(&pair.hosts[1], "TxEcho")? > 0, "no SYN was answered");
    for host in &pair.hosts {
        let flows = tlt(host, "Flows")?;
        ensure!(flows == 0, "{flows} flows");
    }
    drop(traffic);
    // Cookies leave nothing to remember the offer by; not each kernel has them.
    if !std::path::Path::new("/proc/sys/net/ipv4/tcp_syncookies").exists() {
        return Ok(());
    }
    pair.sysctl("net/ipv4/tcp_syncookies", "2")?;
    serve(storm, &pair, 6, 50_000)?;
    let flows = tlt(&pair.hosts[1], "RxData")?;
    ensure!(flows == 0, "{flows} marks by a cookie");
    Ok(())
}

fn deaf(storm: &Storm) -> Result<()> {
    let pair = Pair::new()?;
    pair.port(
        0,
        &Options {
            limit_bytes: Some(6_000),
            rate_bytes_per_s: Some(500_000),
            mark: Some(Mark::None),
            ..Default::default()
        },
    )?;
    pair.hosts[0].sysctl("net/tlt/enabled", "1")?;
    // It agrees, and then sends no echo: all its marks say something else.
    pair.hosts[1].sysctl("net/tlt/enabled", "1")?;
    pair.hosts[1].sysctl("net/tlt/dscp_data", "1")?;
    serve(storm, &pair, 12, 30_000)?;
    let plain = tlt(&pair.hosts[1], "PeerPlain")?;
    ensure!(plain == 12, "{plain} of 12 were plain");
    // Without negotiation nobody asks.
    pair.sysctl("net/tlt/negotiate", "0")?;
    serve(storm, &pair, 12, 30_000)?;
    Ok(())
}

fn too_many(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    pair.sysctl("net/tlt/max_flows", "5")?;
    let mut traffic = Traffic::new(&pair, "cubic")?;
    open_all(storm, &mut traffic, 20, 50_000)?;
    // The others' first ACK has no mark, so the receiver does not even try.
    for (host, want) in pair.hosts.iter().zip([15, 0]) {
        let (flows, many) = (tlt(host, "Flows")?, tlt(host, "TooMany")?);
        ensure!(
            (flows, many) == (5, want),
            "{flows} flows, {many} too many, not {want}"
        );
    }
    traffic.resume_all()?;
    traffic.drain(PATIENCE)?;
    traffic.verdict()
}

fn namespaces(storm: &Storm) -> Result<()> {
    for round in 0..if storm.debug { 2 } else { 4 } {
        storm.ktap.note(&format!("round {round}"));
        let pair = lossy_pair()?;
        let mut traffic = Traffic::new(&pair, "cubic")?;
        open_all(storm, &mut traffic, 64, 1_000_000)?;
        traffic.resume_all()?;
        for _ in 0..20 {
            traffic.step(Duration::from_millis(5))?;
        }
        ensure!(tlt(&pair.hosts[0], "Flows")? > 0, "no flow takes part");
        traffic.abandon();
    }
    storm.ktap.note("the module goes");
    modules::unload(MODULE)?;
    modules::load(MODULE)?;
    Ok(())
}

fn reloads(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    let mut traffic = Traffic::new(&pair, "cubic")?;
    let ccs = storm.ccs();
    for round in 0..10 {
        while traffic.open_flows() < 32 {
            let i = traffic.tally.opened as usize;
            traffic.open(Spec::new(&ccs[i % ccs.len()], 100_000, Family::ALL[i % 3]))?;
        }
        for _ in 0..10 {
            traffic.step(Duration::from_millis(5))?;
        }
        modules::unload(MODULE).with_context(|| format!("round {round}"))?;
        traffic.step(Duration::from_millis(5))?;
        modules::load(MODULE)?;
        pair.sysctl("net/tlt/enabled", "1")?;
    }
    traffic.drain(PATIENCE)?;
    traffic.verdict()
}

fn leaves_under(storm: &Storm, count: u32) -> Result<()> {
    let pair = lossy_pair()?;
    pair.sysctl("net/ipv4/tcp_max_syn_backlog", "16384")?;
    pair.sysctl("net/core/somaxconn", "16384")?;
    let mut traffic = Traffic::new(&pair, "cubic")?;
    open_all(storm, &mut traffic, count, 6_000)?;
    for host in &pair.hosts {
        let flows = tlt(host, "Flows")?;
        ensure!(flows == u64::from(count), "{flows} flows take part");
    }
    traffic.resume_all()?;
    for _ in 0..3 {
        traffic.step(Duration::from_millis(1))?;
    }
    modules::unload(MODULE)?;
    traffic.drain(PATIENCE)?;
    modules::load(MODULE)?;
    traffic.verdict()
}

/// Allocations that may not sleep fail now and then, the kernel's own and ours.
fn starved(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    let set = |name: &str, value: &str| {
        let path = format!("/sys/kernel/debug/failslab/{name}");
        fs::write(&path, value).context(path)
    };
    for (name, value) in [
        ("ignore-gfp-wait", "Y"),
        ("verbose", "0"),
        ("task-filter", "N"),
        ("interval", "1"),
        ("times", "-1"),
        ("probability", "5"),
    ] {
        set(name, value)?;
    }
    let outcome = serve(storm, &pair, 24, 50_000);
    set("probability", "0")?;
    set("times", "1")?;
    outcome?;
    let missing = tlt(&pair.hosts[0], "NoMem")? + tlt(&pair.hosts[1], "NoMem")?;
    ensure!(missing > 0, "nothing of TLT's failed");
    serve(storm, &pair, 12, 50_000)
}

const MPTCP: i32 = 262;

/// A key for TCP-AO with any peer: `struct tcp_ao_add`.
fn add_ao_key(socket: &Socket) -> Result<()> {
    const TCP_AO_ADD_KEY: i32 = 38;
    let mut key = [0u8; 288];
    key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    key[128..138].copy_from_slice(b"hmac(sha1)");
    // sndid, rcvid, the default length of a MAC, and the key.
    key[203..205].copy_from_slice(&[100, 100]);
    key[207] = 8;
    key[208..216].copy_from_slice(b"12345678");
    set_bytes(socket, libc::IPPROTO_TCP, TCP_AO_ADD_KEY, &key).context("TCP_AO_ADD_KEY")
}

/// A connection of that protocol, prepared so, has no marks.
fn excluded(protocol: i32, prepare: fn(&Socket) -> Result<()>) -> Result<()> {
    const BYTES: usize = 200_000;
    let pair = lossy_pair()?;
    let open = |host: usize| {
        pair.hosts[host].run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(protocol)))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            prepare(&socket)?;
            Ok(socket)
        })
    };
    let (listener, mut tx) = (open(1)?, open(0)?);
    listener.bind(&std::net::SocketAddr::from((v4(1), 7_000)).into())?;
    listener.listen(1)?;
    tx.connect(&std::net::SocketAddr::from((v4(1), 7_000)).into())?;
    let (mut rx, _) = listener.accept()?;
    let received = std::thread::scope(|scope| {
        let writer = scope.spawn(move || tx.write_all(&[1; BYTES]));
        let mut received = 0;
        let mut buffer = vec![0; 65_536];
        loop {
            match rx.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => received += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("read"),
            }
        }
        match writer.join() {
            Ok(written) => written.context("write")?,
            Err(_) => bail!("the writer panicked"),
        }
        Ok(received)
    })?;
    ensure!(received == BYTES, "{received} of {BYTES} bytes arrived");
    for host in &pair.hosts {
        for name in ["Flows", "TxData", "TxUnimportant", "TxClockData"] {
            let n = tlt(host, name)?;
            ensure!(n == 0, "{name} is {n}");
        }
    }
    Ok(())
}
