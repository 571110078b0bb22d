// SPDX-License-Identifier: GPL-2.0
//! Stress tests of TLT: forged marks, lying peers, failing allocations, floods, and unloading under flows.

pub mod tails;

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
    alloc::failing,
    background::PATIENCE,
    flow::{Family, Spec, Traffic},
    modules,
    net::{Netns, Pair, counter, v4},
    netfilter::{self, Hook, Queue, Verdict},
    sys::{set_bytes, set_option},
};

const MODULE: &str = "tlt";
const STAT: &str = "/proc/net/tlt_stat";

/// DSCPs of docs/tlt.md.
const DATA: u8 = 15;
const ECHO: u8 = 23;
const CLOCK: u8 = 31;
const CLOCK_ECHO: u8 = 39;
const UNIMPORTANT: u8 = 7;

/// Reads a TLT counter of a host.
fn tlt(host: &Netns, name: &str) -> Result<u64> {
    host.run(|| counter(STAT, "Tlt:", name))
}

fn timeouts(host: &Netns) -> Result<u64> {
    host.run(|| counter("/proc/net/netstat", "TcpExt:", "TCPTimeouts"))
}

/// Two hosts with TLT, behind a port that drops unimportant packets at its tail.
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
        dscp_red: Some(1 << UNIMPORTANT),
        dscp_yellow: Some(0),
        ..Default::default()
    }
}

fn enable(pair: &Pair) -> Result<()> {
    pair.sysctl("net/tlt/enabled", "1")?;
    // Orphans must end, or their namespace remains.
    pair.sysctl("net/ipv4/tcp_orphan_retries", "1")
}

/// Opens `count` flows of all congestion controls; each pauses after its first bytes.
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

/// Runs `count` flows of `bytes` to their end.
fn serve(storm: &Storm, pair: &Pair, count: u32, bytes: u64) -> Result<()> {
    let mut traffic = Traffic::new(pair, "cubic")?;
    let ccs = storm.ccs();
    for i in 0..count as usize {
        traffic.open(Spec::new(&ccs[i % ccs.len()], bytes, Family::ALL[i % 3]))?;
    }
    traffic.drain(PATIENCE)?;
    traffic.verdict()
}

/// Runs the attack; `count` flows are open when the module is unloaded.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let _no_autoload = modules::NoAutoload::new()?;
    type Case = fn(&Storm) -> Result<()>;
    let cases: [(&str, Case); 21] = [
        ("each echo is expected, on any processor", awaited),
        ("flows of important packets alone arrive", all_green),
        ("forged echoes cause no extra packets", echo_flood),
        ("marks outside the windows count as bad", forged),
        ("marks from too many hops away count as bad", too_far),
        ("answers to a SYN that TCP refuses enable no flow", answered),
        ("a SYN with RST is no answer to a SYN", reset),
        ("a SYN flood creates no flow", syn_flood),
        ("a flow to a peer that clears marks abandons TLT", deaf),
        ("flows beyond max_flows do not use TLT", too_many),
        ("flows to a plain peer that sends the echo's DSCP arrive", accidental),
        ("flows to a peer that reflects DSCPs do not use TLT", reflecting),
        ("a new connection on the same ports has its own flow", reused),
        ("urgent data stay urgent after a loss", urgent),
        ("kTLS data arrive", ktls),
        ("flows arrive despite drops by nftables", dropped),
        ("flows arrive through NFQUEUE, in and out", |storm| {
            queued(storm, &[Hook::Input, Hook::PostRouting])
        }),
        ("a connection with translated addresses uses TLT", translated),
        ("netfilter hooks after the module's see each packet", behind),
        ("namespaces are deleted with flows", namespaces),
        ("tlt is loaded and unloaded under traffic", reloads),
    ];
    for (what, case) in cases {
        let outcome = case(storm);
        storm.ktap.case(what, outcome);
    }
    let outcome = leaves_under(storm, count);
    storm.ktap.case(&format!("{count} flows arrive although tlt is unloaded"), outcome);
    // Cases for the debug kernel only.
    if storm.debug {
        let outcome = starved(storm);
        storm.ktap.case("flows arrive despite failed allocations", outcome);
        let outcome = excluded(MPTCP, |_| Ok(()));
        storm.ktap.case("MPTCP does not use TLT", outcome);
        let outcome = excluded(libc::IPPROTO_TCP, add_ao_key);
        storm.ktap.case("TCP-AO does not use TLT", outcome);
    }
    Ok(())
}

fn awaited(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    for _ in 0..if storm.debug { 1 } else { 4 } {
        serve(storm, &pair, 12, 200_000)?;
    }
    let [sender, receiver] = &pair.hosts;
    let bad = tlt(sender, "BadMark")? + tlt(receiver, "BadMark")?;
    let echoes = tlt(sender, "RxEcho")? + tlt(sender, "RxClockEcho")?;
    ensure!(echoes > 48, "{echoes} echoes arrived");
    ensure!(bad == 0, "{bad} of {echoes} echoes were bad");
    Ok(())
}

fn all_green(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    pair.hosts[0].sysctl("net/tlt/dscp_unimportant", &DATA.to_string())?;
    serve(storm, &pair, 12, 100_000)?;
    let seen = tlt(&pair.hosts[1], "RxData")?;
    ensure!(seen > 12 * 60, "{seen} important packets arrived");
    Ok(())
}

fn echo_flood(storm: &Storm) -> Result<()> {
    for forged in [ECHO, CLOCK_ECHO] {
        let pair = lossy_pair()?;
        // Each ACK of the receiver has the forged DSCP.
        pair.hosts[1].sysctl("net/tlt/dscp_control", &forged.to_string())?;
        serve(storm, &pair, 12, 100_000)?;
        let sent = tlt(&pair.hosts[0], "TxClockData")? + tlt(&pair.hosts[0], "TxData")?;
        let packets = tlt(&pair.hosts[0], "TxUnimportant")? + sent;
        ensure!(sent > 0, "no flow used TLT");
        ensure!(packets < 12 * 70 * 8, "{packets} packets for 12 flows of 70");
    }
    Ok(())
}

/// A TCP packet from the first host to the second; a SYN if `ack` is None.
pub fn packet(dscp: u8, ports: (u16, u16), seq: u32, ack: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let flags = if ack.is_some() { ACK } else { SYN };
    packet_of((v4(0), v4(1)), flags, dscp, ports, seq, ack, payload)
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const URG: u8 = 32;

fn packet_of(
    (from, to): (Ipv4Addr, Ipv4Addr),
    flags: u8,
    dscp: u8,
    ports: (u16, u16),
    seq: u32,
    ack: Option<u32>,
    payload: &[u8],
) -> Vec<u8> {
    let is_syn = flags & SYN != 0;
    let mut tcp = Vec::new();
    tcp.extend(ports.0.to_be_bytes());
    tcp.extend(ports.1.to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.unwrap_or(0).to_be_bytes());
    tcp.extend([if is_syn { 0x60 } else { 0x50 }, flags]);
    tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
    if is_syn {
        // SACK permitted, without which TLT stays off.
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
    // With payload, the checksum is wrong: TCP must not accept the packet.
    let check = !(sum as u16) ^ u16::from(!payload.is_empty());
    tcp[16..18].copy_from_slice(&check.to_be_bytes());
    // The kernel fills in the IP identification and checksum.
    let mut ip = vec![0x45, dscp << 2];
    ip.extend(length.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    ip.extend(from.octets());
    ip.extend(to.octets());
    ip.extend(tcp);
    ip
}

/// Opens a socket for raw IPv4 packets.
pub fn raw_socket(host: &Netns) -> Result<Socket> {
    host.run(|| {
        let raw = Some(Protocol::from(libc::IPPROTO_RAW));
        Socket::new(Domain::IPV4, Type::RAW.cloexec(), raw).context("cannot open a raw socket")
    })
}

/// Destination of a raw packet.
pub fn to(address: Ipv4Addr) -> SockAddr {
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
        ensure!(Instant::now() < deadline, "the flow does not start");
        traffic.step(Duration::from_millis(100))?;
    }
    let flow = traffic.flows().next().context("no flow")?;
    let of = |address: SockAddr| address.as_socket().map(|address| address.port());
    let ports = of(flow.tx.local_addr()?).zip(of(flow.tx.peer_addr()?));
    let ports = ports.context("no ports")?;
    let raw = raw_socket(&pair.hosts[0])?;
    for i in 0..FORGED {
        let dscp = [DATA, ECHO, CLOCK, CLOCK_ECHO][i as usize % 4];
        let payload: &[u8] = if dscp == DATA || dscp == CLOCK { &[0] } else { &[] };
        let bytes = packet(dscp, ports, rng.u32(..), Some(rng.u32(..)), payload);
        raw.send_to(&bytes, &to(v4(1)))?;
    }
    // Wait until the packets have passed the port.
    std::thread::sleep(Duration::from_secs(1));
    let bad = tlt(&pair.hosts[1], "BadMark")?;
    traffic.resume_all()?;
    traffic.drain(PATIENCE)?;
    traffic.verdict()?;
    ensure!(bad * 2 > FORGED, "{bad} of {FORGED} marks were bad");
    ensure!(timeouts(&pair.hosts[0])? == 0, "timeouts");
    Ok(())
}

/// Packets below the minimum TTL, which TCP drops silently (`IP_MINTTL`, RFC 5082).
fn too_far(_: &Storm) -> Result<()> {
    let pair = Pair::new()?;
    enable(&pair)?;
    let [mut tx, mut rx] = connection(&pair, 7_600, 0)?;
    carry_some(&tx, &rx)?;
    let receiver = &pair.hosts[1];
    let counts = || Ok::<_, anyhow::Error>((tlt(receiver, "BadMark")?, tlt(receiver, "TxEcho")?));
    set_option(&rx, libc::IPPROTO_IP, libc::IP_MINTTL, 255)?;
    let before = counts()?;
    tx.write_all(&[1; 100])?;
    std::thread::sleep(Duration::from_millis(100));
    let after = counts()?;
    set_option(&rx, libc::IPPROTO_IP, libc::IP_MINTTL, 0)?;
    rx.read_exact(&mut [0; 100])?;
    ensure!(after.0 > before.0, "no mark counted as bad");
    ensure!(after.1 == before.1, "a packet that TCP drops was echoed");

    // A SYN-ACK below the minimum TTL does not accept TLT either.
    let pair = Pair::new()?;
    enable(&pair)?;
    let socket = || Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP));
    let address: SockAddr = std::net::SocketAddr::from((v4(1), 7_700)).into();
    let _listener = pair.hosts[1].run(|| {
        let listener = socket()?;
        set_option(&listener, libc::IPPROTO_IP, libc::IP_TTL, 5)?;
        listener.bind(&address)?;
        listener.listen(1)?;
        Ok(listener)
    })?;
    let tx = pair.hosts[0].run(|| Ok(socket()?))?;
    tx.set_nonblocking(true)?;
    set_option(&tx, libc::IPPROTO_IP, libc::IP_MINTTL, 30)?;
    let _ = tx.connect(&address);
    std::thread::sleep(Duration::from_millis(100));
    let (bad, flows) = (tlt(&pair.hosts[0], "BadMark")?, tlt(&pair.hosts[0], "Flows")?);
    ensure!(bad > 0 && flows == 0, "{bad} bad marks, {flows} flows");
    Ok(())
}

fn carry_some(mut tx: &Socket, mut rx: &Socket) -> Result<()> {
    tx.write_all(&[1; 100])?;
    Ok(rx.read_exact(&mut [0; 100])?)
}

/// Two hosts; one offers TLT and the other drops all TCP packets.
fn silent_pair() -> Result<Pair> {
    let pair = Pair::new()?;
    pair.hosts[0].sysctl("net/tlt/enabled", "1")?;
    let mut steps = Vec::from(netfilter::if_ip(IP_PROTOCOL, &TCP));
    steps.push(netfilter::drop_it());
    netfilter::rule(&pair.hosts[1], Hook::Input, 0, steps)?;
    Ok(pair)
}

const PORTS: (u16, u16) = (20_000, 7_500);

/// Sends a SYN from the first host to the second.
fn connect(pair: &Pair) -> Result<Socket> {
    pair.hosts[0].run(|| {
        let tx = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
        tx.set_nonblocking(true)?;
        tx.bind(&std::net::SocketAddr::from((v4(0), PORTS.0)).into())?;
        match tx.connect(&std::net::SocketAddr::from((v4(1), PORTS.1)).into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(tx),
            other => bail!("connect: {other:?}"),
        }
    })
}

/// Builds the second host's answer to that SYN.
fn answer(flags: u8, dscp: u8, seq: u32, ack: u32) -> Vec<u8> {
    let ports = (PORTS.1, PORTS.0);
    packet_of((v4(1), v4(0)), flags, dscp, ports, seq, Some(ack), &[])
}

/// Forged SYN-ACKs from a sender that cannot see the SYN's sequence number.
fn answered(storm: &Storm) -> Result<()> {
    const FORGED: u64 = 200;
    let pair = silent_pair()?;
    let tx = connect(&pair)?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let raw = raw_socket(&pair.hosts[1])?;
    for i in 0..FORGED {
        // TCP retransmits its SYN at once, but only once, which clears the earlier state.
        if i == 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let bytes = answer(SYN | ACK, ECHO, rng.u32(..), rng.u32(..));
        raw.send_to(&bytes, &to(v4(0)))?;
    }
    std::thread::sleep(Duration::from_millis(100));
    let (flows, bad) = (tlt(&pair.hosts[0], "Flows")?, tlt(&pair.hosts[0], "BadMark")?);
    ensure!(bad > 0, "no answer arrived");
    ensure!(flows == 0, "{flows} flows after answers that TCP refuses");
    drop(tx);
    Ok(())
}

/// TCP refuses the connection on this reset, so it is no answer to the TLT offer.
fn reset(_: &Storm) -> Result<()> {
    let pair = silent_pair()?;
    let raw = raw_socket(&pair.hosts[1])?;
    let mut seen = pair.hosts[1].run(|| {
        let ipv4 = Some(Protocol::from(i32::from((libc::ETH_P_IP as u16).to_be())));
        Socket::new(Domain::PACKET, Type::DGRAM.cloexec(), ipv4)
            .context("cannot open a packet socket")
    })?;
    seen.set_read_timeout(Some(PATIENCE))?;
    let tx = connect(&pair)?;
    let mut syn = [0; 128];
    let length = seen.read(&mut syn).context("no SYN arrived")?;
    ensure!(length >= 40 && syn[9..10] == TCP, "the packet is no SYN");
    let number = u32::from_be_bytes(syn[24..28].try_into()?);
    let bytes = answer(SYN | RST | ACK, 0, 1, number.wrapping_add(1));
    raw.send_to(&bytes, &to(v4(0)))?;
    std::thread::sleep(Duration::from_millis(100));
    let error = tx.take_error()?.and_then(|error| error.raw_os_error());
    ensure!(error == Some(libc::ECONNREFUSED), "TCP returned {error:?}");
    let plain = tlt(&pair.hosts[0], "PeerPlain")?;
    ensure!(plain == 0, "the peer counts as plain");
    Ok(())
}

fn syn_flood(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let traffic = Traffic::new(&pair, "cubic")?;
    let raw = raw_socket(&pair.hosts[0])?;
    for _ in 0..if storm.debug { 300 } else { 3_000 } {
        let bytes = packet(DATA, (rng.u16(1_024..), 5_000), rng.u32(..), None, &[]);
        raw.send_to(&bytes, &to(v4(1)))?;
    }
    // Wait until the packets have passed the port.
    std::thread::sleep(Duration::from_secs(1));
    ensure!(tlt(&pair.hosts[1], "TxEcho")? > 0, "no SYN was answered");
    for host in &pair.hosts {
        let flows = tlt(host, "Flows")?;
        ensure!(flows == 0, "{flows} flows");
    }
    drop(traffic);
    // SYN cookies do not store the TLT offer. Some kernels lack them.
    if !std::path::Path::new("/proc/sys/net/ipv4/tcp_syncookies").exists() {
        return Ok(());
    }
    pair.sysctl("net/ipv4/tcp_syncookies", "2")?;
    serve(storm, &pair, 6, 50_000)?;
    let flows = tlt(&pair.hosts[1], "RxData")?;
    ensure!(flows == 0, "{flows} marks with SYN cookies");
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
    // The peer accepts TLT, but another DSCP for data keeps it from sending echoes.
    pair.hosts[1].sysctl("net/tlt/enabled", "1")?;
    pair.hosts[1].sysctl("net/tlt/dscp_data", "1")?;
    serve(storm, &pair, 12, 30_000)?;
    let plain = tlt(&pair.hosts[1], "PeerPlain")?;
    ensure!(plain == 12, "{plain} of 12 peers counted as plain");
    // Without negotiation no SYN offers TLT.
    pair.sysctl("net/tlt/negotiate", "0")?;
    serve(storm, &pair, 12, 30_000)?;
    Ok(())
}

fn too_many(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    pair.sysctl("net/tlt/max_flows", "5")?;
    let mut traffic = Traffic::new(&pair, "cubic")?;
    open_all(storm, &mut traffic, 20, 50_000)?;
    // The receiver refuses flows beyond its limit. The sender refuses the others, whose first ACK then has no
    // mark.
    let mut refused = 0;
    for host in &pair.hosts {
        let flows = tlt(host, "Flows")?;
        ensure!(flows == 5, "{flows} flows, expected 5");
        refused += tlt(host, "TooMany")?;
    }
    ensure!(refused >= 15, "{refused} flows too many, expected 15");
    traffic.resume_all()?;
    traffic.drain(PATIENCE)?;
    traffic.verdict()
}

/// Runs a dozen IPv4 connections to their end.
fn serve_v4(storm: &Storm, pair: &Pair) -> Result<()> {
    let bytes = if storm.debug { 30_000 } else { 100_000 };
    let mut traffic = Traffic::new(pair, "cubic")?;
    let ccs = storm.ccs();
    for i in 0..12 {
        traffic.open(Spec::new(&ccs[i % ccs.len()], bytes, Family::V4))?;
    }
    traffic.drain(PATIENCE)?;
    traffic.verdict()
}

/// Returns an IPv4 connection; packets of the accepted side have `dscp`.
fn connection(pair: &Pair, port: u16, dscp: u8) -> Result<[Socket; 2]> {
    let address: SockAddr = std::net::SocketAddr::from((v4(1), port)).into();
    let listener = pair.hosts[1].run(|| {
        let listener = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
        listener.set_reuse_address(true)?;
        set_option(&listener, libc::IPPROTO_IP, libc::IP_TOS, i32::from(dscp) << 2)?;
        listener.bind(&address)?;
        listener.listen(8)?;
        Ok(listener)
    })?;
    let tx = pair.hosts[0].run(|| {
        let tx = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
        tx.set_reuse_address(true)?;
        tx.bind(&std::net::SocketAddr::from((v4(0), 20_000)).into())?;
        tx.connect(&address)?;
        Ok(tx)
    })?;
    let (rx, _) = listener.accept()?;
    for socket in [&tx, &rx] {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
    }
    Ok([tx, rx])
}

/// Transfers `bytes` and the end of the stream.
fn carry(mut tx: &Socket, mut rx: &Socket, bytes: usize) -> Result<()> {
    let sent: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut received: Vec<u8> = Vec::new();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| tx.write_all(&sent));
        let mut buffer = vec![0; 65_536];
        while received.len() < bytes {
            match rx.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => received.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("read"),
            }
        }
        match writer.join() {
            Ok(written) => written.context("write"),
            Err(_) => bail!("the writer panicked"),
        }
    })?;
    ensure!(received == sent, "{} of {bytes} bytes arrived", received.len());
    Ok(())
}

/// The application's DSCP AF12 has the echo's number.
fn accidental(_: &Storm) -> Result<()> {
    let pair = Pair::new()?;
    pair.port(0, &lossy_port())?;
    pair.hosts[0].sysctl("net/tlt/enabled", "1")?;
    let [tx, rx] = connection(&pair, 7_100, ECHO)?;
    carry(&tx, &rx, 400_000)?;
    ensure!(tlt(&pair.hosts[0], "RxEcho")? > 1, "no flow used TLT");
    let sent = tlt(&pair.hosts[0], "TxClockData")? + tlt(&pair.hosts[0], "TxData")?;
    let packets = tlt(&pair.hosts[0], "TxUnimportant")? + sent;
    ensure!(packets < 280 * 8, "{packets} packets for 280");
    Ok(())
}

fn reflecting(_: &Storm) -> Result<()> {
    let pair = Pair::new()?;
    pair.port(0, &lossy_port())?;
    pair.hosts[0].sysctl("net/tlt/enabled", "1")?;
    pair.hosts[1].sysctl("net/ipv4/tcp_reflect_tos", "1")?;
    let [tx, rx] = connection(&pair, 7_100, 0)?;
    carry(&tx, &rx, 200_000)?;
    carry(&rx, &tx, 200_000)?;
    let (plain, flows) = (tlt(&pair.hosts[0], "PeerPlain")?, tlt(&pair.hosts[0], "Flows")?);
    ensure!((plain, flows) == (1, 0), "{plain} peers counted as plain, {flows} flows");
    Ok(())
}

/// The server closes first and enters TIME_WAIT; then the client reconnects without TLT.
fn reused(_: &Storm) -> Result<()> {
    let pair = Pair::new()?;
    enable(&pair)?;
    for round in 0..5 {
        pair.hosts[0].sysctl("net/tlt/enabled", "1")?;
        let [tx, rx] = connection(&pair, 7_200 + round, 0)?;
        carry(&rx, &tx, 50_000)?;
        drop(rx);
        ensure!((&tx).read(&mut [0])? == 0, "no end of the stream");
        drop(tx);
        // TLT is off now. A later initial sequence number is needed too, or the SYN counts as old.
        pair.hosts[0].sysctl("net/tlt/enabled", "0")?;
        std::thread::sleep(Duration::from_millis(5));
        let [tx, rx] = connection(&pair, 7_200 + round, 0)?;
        let before = tlt(&pair.hosts[1], "TxUnimportant")? + tlt(&pair.hosts[1], "TxData")?;
        carry(&rx, &tx, 50_000)?;
        let marks = tlt(&pair.hosts[1], "TxUnimportant")? + tlt(&pair.hosts[1], "TxData")?;
        ensure!(
            marks == before,
            "round {round}: {} packets to a peer that did not ask have marks",
            marks - before
        );
        // Both ends close with RST, so that the ports are free.
        for socket in [tx, rx] {
            socket.set_linger(Some(Duration::ZERO))?;
        }
    }
    Ok(())
}

/// Kernel TLS in software, in one direction.
fn ktls(_: &Storm) -> Result<()> {
    const TCP_ULP: i32 = 31;
    const SOL_TLS: i32 = 282;
    const TLS_TX: i32 = 1;
    const TLS_RX: i32 = 2;
    let pair = lossy_pair()?;
    let [tx, rx] = connection(&pair, 7_100, 0)?;
    // TLS 1.2 with AES-GCM-128 and any common key.
    let mut info = vec![3, 3, 51, 0];
    info.extend([7; 36]);
    for (socket, direction) in [(&tx, TLS_TX), (&rx, TLS_RX)] {
        set_bytes(socket, libc::IPPROTO_TCP, TCP_ULP, b"tls\0").context("TCP_ULP tls")?;
        set_bytes(socket, SOL_TLS, direction, &info).context("a key of kTLS")?;
    }
    carry(&tx, &rx, 600_000)?;
    // In software, TCP holds ciphertext, which it can retransmit.
    ensure!(tlt(&pair.hosts[0], "TxUnimportant")? > 0, "the flow did not use TLT");
    ensure!(tlt(&pair.hosts[0], "RxEcho")? > 0, "no echo arrived");
    for host in &pair.hosts {
        let errors = host.run(|| tls_counter("TlsDecryptError"))?;
        ensure!(errors == 0, "{errors} records could not be decrypted");
    }
    Ok(())
}

/// Reads a counter of `/proc/net/tls_stat`.
fn tls_counter(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/net/tls_stat")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.next().context("no such counter of kTLS")?;
    Ok(value.trim().parse()?)
}

const TCP: [u8; 1] = [6];
/// Offsets in an IPv4 header.
const IP_DSFIELD: u32 = 1;
const IP_ID_LOW: u32 = 5;
const IP_PROTOCOL: u32 = 9;
const IP_SOURCE: u32 = 12;
const IP_DESTINATION: u32 = 16;
/// TCP flags after an IP header without options.
const TCP_FLAGS: u32 = 33;

/// TLT's one-byte retransmission from `snd_una` cannot carry the urgent pointer.
fn urgent(_: &Storm) -> Result<()> {
    let pair = Pair::new()?;
    enable(&pair)?;
    // A tail loss probe would repair the loss.
    pair.hosts[0].sysctl("net/ipv4/tcp_early_retrans", "0")?;
    // The first packet's echo waits behind the SYN-ACK while the application writes the urgent byte.
    let slow = Options {
        limit_bytes: Some(100_000),
        rate_bytes_per_s: Some(1_000),
        mark: Some(Mark::None),
        ..Default::default()
    };
    pair.port(1, &slow)?;
    let [mut tx, mut rx] = connection(&pair, 7_300, 0)?;
    tx.set_tcp_nodelay(true)?;
    // Drops the first transmission of the urgent byte.
    let mut steps = Vec::from(netfilter::if_ip(IP_PROTOCOL, &TCP));
    steps.extend(netfilter::if_ip_bits(TCP_FLAGS, URG, URG));
    steps.extend(netfilter::if_ip_bits(IP_DSFIELD, 0xfc, UNIMPORTANT << 2));
    steps.push(netfilter::drop_it());
    netfilter::rule(&pair.hosts[1], Hook::Input, 0, steps)?;
    tx.write_all(&[b'a'; 1_000])?;
    tx.send_out_of_band(b"X")?;
    std::thread::sleep(Duration::from_secs(1));
    tx.write_all(&[b'z'; 100])?;
    let mut stream = [0; 1_100];
    rx.read_exact(&mut stream[..1_000])?;
    let mut byte = [std::mem::MaybeUninit::uninit()];
    let length = rx.recv_out_of_band(&mut byte);
    ensure!(length.is_ok_and(|length| length == 1), "no urgent data arrived");
    rx.read_exact(&mut stream[1_000..])?;
    let expected = [vec![b'a'; 1_000], vec![b'z'; 100]].concat();
    ensure!(stream[..] == expected[..], "the stream differs");
    ensure!(tlt(&pair.hosts[0], "RxEcho")? > 1, "no flow used TLT");
    let repaired = pair.hosts[0].run(|| counter("/proc/net/snmp", "Tcp:", "RetransSegs"))?;
    ensure!(repaired > 0, "no packet was lost");
    Ok(())
}

fn dropped(storm: &Storm) -> Result<()> {
    for (host, hook, priority) in [
        (0, Hook::PostRouting, 0),
        (1, Hook::PostRouting, 0),
        (1, Hook::Input, 0),
        (0, Hook::Input, 0),
    ] {
        let pair = lossy_pair()?;
        let mut steps = Vec::from(netfilter::if_ip(IP_PROTOCOL, &TCP));
        // One packet in sixteen, never two in a row, and never a SYN-ACK, whose ID is 0.
        steps.extend(netfilter::if_ip_bits(IP_ID_LOW, 15, 5));
        steps.push(netfilter::drop_it());
        netfilter::rule(&pair.hosts[host], hook, priority, steps)?;
        serve_v4(storm, &pair).with_context(|| format!("{hook:?} of host {host}"))?;
        ensure!(tlt(&pair.hosts[0], "RxEcho")? > 0, "no echo arrived");
    }
    Ok(())
}

/// User space delays each packet of both hosts.
fn queued(storm: &Storm, hooks: &[Hook]) -> Result<()> {
    for hook in hooks {
        let pair = Pair::bursty()?;
        enable(&pair)?;
        let mut queues = Vec::new();
        for host in &pair.hosts {
            queues.push(Queue::new(host, Verdict::Accept)?);
            let mut steps = Vec::from(netfilter::if_ip(IP_PROTOCOL, &TCP));
            steps.push(netfilter::queue_it());
            netfilter::rule(host, *hook, 0, steps)?;
        }
        serve_v4(storm, &pair).with_context(|| format!("{hook:?}"))?;
        // The handshakes alone cause this many echoes. At PostRouting, a queued ACK returns too late to
        // be an echo.
        let handshakes = 12;
        let echoes = tlt(&pair.hosts[0], "RxEcho")?;
        let is_late = matches!(hook, Hook::PostRouting);
        ensure!(is_late || echoes > handshakes, "{hook:?}: no echo arrived");
        let gone = tlt(&pair.hosts[0], "Fallback")?;
        ensure!(gone == 0, "{hook:?}: {gone} flows abandoned TLT");
        for queue in queues {
            ensure!(queue.packets() > 100, "{} packets", queue.packets());
            queue.end()?;
        }
    }
    Ok(())
}

/// The server's address is translated on the way out and back on the way in.
fn translated(_: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    let host = &pair.hosts[0];
    let (known, real) = ([10, 9, 0, 77], v4(1).octets());
    let mut out = Vec::from(netfilter::if_ip(IP_DESTINATION, &known));
    out.extend(netfilter::set_address(IP_DESTINATION, real));
    netfilter::rule(host, Hook::PostRouting, 100, out)?;
    let mut back = Vec::from(netfilter::if_ip(IP_SOURCE, &real));
    back.extend(netfilter::set_address(IP_SOURCE, known));
    netfilter::rule(host, Hook::Input, 100, back)?;
    host.run(|| {
        use crate::net::{DEVICE, mac};
        use xdc_netlink::{Connection, link};
        let known = Ipv4Addr::from(known);
        Connection::open()?.batch([
            link::add_neighbour(DEVICE, known, mac(1)),
            link::add_host_route(known, DEVICE, v4(0), &link::RouteMetrics::default()),
        ])?;
        Ok(())
    })?;
    let listener = pair.hosts[1].run(|| Ok(std::net::TcpListener::bind((v4(1), 7_300))?))?;
    let tx = pair.hosts[0].run(|| {
        let address = std::net::SocketAddr::from((Ipv4Addr::from(known), 7_300));
        Ok(std::net::TcpStream::connect_timeout(&address, PATIENCE)?)
    })?;
    let (rx, _) = listener.accept()?;
    let [tx, rx] = [Socket::from(tx), Socket::from(rx)];
    for socket in [&tx, &rx] {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
    }
    carry(&tx, &rx, 200_000)?;
    // On a slow host each packet ends its window and is therefore important.
    let data = tlt(host, "TxUnimportant")? + tlt(host, "TxData")?;
    let echoes = tlt(host, "RxEcho")?;
    // The SYN-ACK is one echo.
    ensure!(data > 0 && echoes > 1, "{data} data packets, {echoes} echoes");
    Ok(())
}

/// A chain after the module's hooks, at the same priority, drops unimportant packets. Split bursts must not
/// bypass it.
fn behind(_: &Storm) -> Result<()> {
    modules::unload(MODULE)?;
    let pair = Pair::bursty()?;
    let host = &pair.hosts[0];
    let queue = Queue::new(host, Verdict::Drop)?;
    let mut steps = Vec::from(netfilter::if_ip(IP_PROTOCOL, &TCP));
    steps.extend(netfilter::if_ip(IP_DSFIELD, &[UNIMPORTANT << 2]));
    steps.push(netfilter::queue_it());
    netfilter::rule(host, Hook::PostRouting, i32::MAX, steps)?;
    // At equal priority, the hook registered last runs first.
    modules::load(MODULE)?;
    enable(&pair)?;
    let [tx, rx] = connection(&pair, 7_400, 0)?;
    carry(&tx, &rx, 30_000)?;
    let split = tlt(host, "GsoSplit")?;
    ensure!(split > 0, "no burst was split");
    // The queue's thread gets its packets slightly later.
    let deadline = Instant::now() + PATIENCE;
    while queue.packets() == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let taken = queue.packets();
    ensure!(taken > 0, "the chain saw no packet");
    let passed = tlt(&pair.hosts[1], "RxUnimportant")?;
    ensure!(passed == 0, "{passed} packets bypassed the chain");
    queue.end()
}

fn namespaces(storm: &Storm) -> Result<()> {
    // A step handles all traffic that arrives meanwhile, and the debug kernel is slower than the port: 64
    // flows (90,000 packets per round) would end before the namespace goes.
    let (rounds, flows, steps) = if storm.debug { (2, 8, 1) } else { (4, 64, 20) };
    for round in 0..rounds {
        storm.ktap.note(&format!("round {round}"));
        let pair = lossy_pair()?;
        let mut traffic = Traffic::new(&pair, "cubic")?;
        open_all(storm, &mut traffic, flows, 1_000_000)?;
        ensure!(tlt(&pair.hosts[0], "Flows")? > 0, "no flow uses TLT");
        traffic.resume_all()?;
        for _ in 0..steps {
            traffic.step(Duration::from_millis(5))?;
        }
        storm.ktap.note("ending the flows");
        traffic.abandon();
        storm.ktap.note("deleting the hosts");
    }
    storm.ktap.note("unloading the module");
    modules::unload(MODULE)?;
    modules::load(MODULE)?;
    Ok(())
}

fn reloads(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    let mut traffic = Traffic::new(&pair, "cubic")?;
    let ccs = storm.ccs();
    // As in `namespaces`.
    let (rounds, flows) = if storm.debug { (4, 8) } else { (10, 32) };
    for round in 0..rounds {
        while traffic.open_flows() < flows {
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
        ensure!(flows == u64::from(count), "{flows} flows use TLT");
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

/// Random failures of atomic allocations.
fn starved(storm: &Storm) -> Result<()> {
    let pair = lossy_pair()?;
    // Opened first: listeners cannot bind without memory.
    let mut traffic = Traffic::new(&pair, "cubic")?;
    failing(5, || begin_starved(storm, &mut traffic))?;
    traffic.resume_all()?;
    traffic.drain(PATIENCE)?;
    traffic.verdict()?;
    // The next listeners use the same ports.
    drop(traffic);
    let missing = tlt(&pair.hosts[0], "NoMem")? + tlt(&pair.hosts[1], "NoMem")?;
    ensure!(missing > 0, "no allocation of TLT failed");
    serve(storm, &pair, 12, 50_000)
}

/// Opens flows and delivers most of their data. The rest waits, because TCP forgets a FIN that it has no
/// memory for.
fn begin_starved(storm: &Storm, traffic: &mut Traffic<'_>) -> Result<()> {
    const FLOWS: usize = 64;
    const FIRST: usize = 48_000;
    const ATTEMPTS: u32 = 100;
    let ccs = storm.ccs();
    for i in 0..FLOWS {
        // The first SYN is also allocated atomically, and connect() reports the failure.
        let mut attempts = 0..ATTEMPTS;
        loop {
            let mut spec = Spec::new(&ccs[i % ccs.len()], 50_000, Family::ALL[i % 3]);
            spec.burst = Some((FIRST as u64, Duration::from_secs(3_600)));
            let outcome = traffic.open(spec);
            let cause = outcome.as_ref().err().map(|error| error.root_cause());
            let code =
                cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error());
            match code {
                Some(libc::ENOBUFS | libc::ENOMEM) if attempts.next().is_some() => {}
                _ => break outcome?,
            }
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while (traffic.tally.bytes as usize) < FLOWS * FIRST {
        let bytes = traffic.tally.bytes;
        ensure!(Instant::now() < deadline, "{bytes} bytes arrived");
        traffic.step(Duration::from_millis(100))?;
    }
    Ok(())
}

const MPTCP: i32 = 262;

/// Adds a TCP-AO key for any peer: `struct tcp_ao_add`.
fn add_ao_key(socket: &Socket) -> Result<()> {
    const TCP_AO_ADD_KEY: i32 = 38;
    let mut key = [0u8; 288];
    key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    key[128..138].copy_from_slice(b"hmac(sha1)");
    // sndid, rcvid, the default MAC length, and the key.
    key[203..205].copy_from_slice(&[100, 100]);
    key[207] = 8;
    key[208..216].copy_from_slice(b"12345678");
    set_bytes(socket, libc::IPPROTO_TCP, TCP_AO_ADD_KEY, &key).context("TCP_AO_ADD_KEY")
}

/// Checks that a connection of `protocol`, set up by `prepare`, has no marks.
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
    let counted = tlt(&pair.hosts[0], "Excluded")?;
    ensure!(counted > 0, "the host does not count the connection as excluded");
    for host in &pair.hosts {
        for name in ["Flows", "TxData", "TxUnimportant", "TxClockData"] {
            let n = tlt(host, name)?;
            ensure!(n == 0, "{name} is {n}");
        }
    }
    Ok(())
}
