// SPDX-License-Identifier: GPL-2.0
//! Many sockets and rare states: 4,096 flows at once, clamped windows, and sockets dumped and restored during
//! a flow (TCP_REPAIR).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMetric},
};
use socket2::{Domain, Socket};
use xdc_algo::entry::Entry;
use xdc_netlink::{
    Connection, Request,
    link::{self, RouteMetrics},
    phantom::{Mark, Options},
};

use crate::{
    Storm,
    background::PATIENCE,
    diag::Diag,
    flow::{Family, Spec, Tally, Traffic, Watch, tcp_socket},
    live::settled,
    modules,
    net::{Books, DEVICE, Pair, v4},
    sys::{get_bytes, get_option, set_bytes, set_option},
};

/// A marking port of 1 Gbit/s.
fn port(limit_bytes: u32) -> Options {
    Options {
        limit_bytes: Some(limit_bytes),
        rate_bytes_per_s: Some(125_000_000),
        phantom_limit_bytes: Some(limit_bytes.into()),
        mark: Some(Mark::Either),
        ..Default::default()
    }
}

/// Runs `count` flows at once.
pub fn many(storm: &mut Storm, count: u32) -> Result<()> {
    let pair = Arc::new(Pair::new()?);
    pair.sysctl("net/ipv4/tcp_max_syn_backlog", "16384")?;
    pair.sysctl("net/core/somaxconn", "16384")?;
    pair.port(0, &port(2_000_000))?;
    let start = Books::read(&pair.hosts[0])?;
    let diag = Diag::start(&pair, Some("unocc"), Duration::from_millis(200));
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut traffic = Traffic::new(&pair, "unocc")?;
    let outcome = (|| {
        // Each flow pauses after its first bytes, so none ends before all are open.
        let ccs = storm.ccs();
        for i in 0..count as usize {
            let family = Family::ALL[i % 3];
            let mut spec = Spec::new(&ccs[i % ccs.len()], rng.u64(4_000..16_000), family);
            spec.burst = Some((2_000, Duration::from_secs(3_600)));
            traffic.open(spec)?;
            if i % 64 == 63 {
                traffic.step(Duration::ZERO)?;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while traffic.waiting() > 0 {
            ensure!(
                Instant::now() < deadline,
                "{} connections are not accepted",
                traffic.waiting()
            );
            traffic.step(Duration::from_millis(100))?;
        }
        ensure!(
            traffic.open_flows() == count as usize,
            "{} connections are open",
            traffic.open_flows()
        );
        traffic.resume_all()?;
        traffic.drain(PATIENCE)?;
        traffic.verdict()
    })();
    let seen = diag.stop()?;
    storm.ktap.note(&seen.text());
    storm.ktap.case(
        &format!("{count} flows of all congestion controls are open at once"),
        outcome.and_then(|()| seen.check()),
    );
    let tally = traffic.tally;
    storm.flows_case("flows open at once", traffic.verdict().map(|()| tally));
    drop(traffic);
    let balance = settled(&pair.hosts[0], &start);
    storm.balance_case("port of flows open at once", balance);
    Ok(())
}

/// Windows bounded by other limits.
pub fn clamps(storm: &mut Storm, count: u32) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut total = Tally::default();
    let (mut most, mut looks) = (0, 0);
    let outcome = (0..count).try_for_each(|round| {
        let clamp = [1, 2, 3, rng.u32(4..20)][rng.usize(..4)];
        let pair = Pair::new()?;
        pair.port(0, &port(200_000))?;
        let start = Books::read(&pair.hosts[0])?;
        pair.hosts[0].run(|| Ok(Connection::open()?.request(route_with_cwnd(clamp))?))?;
        let mut traffic = Traffic::new(&pair, "gemini")?;
        // `cwnd lock N` of a route applies from the second flow on: the kernel reads its metrics cache, which
        // the end of a flow fills from the route.
        traffic.open(Spec::new("cubic", 1_000, Family::V4))?;
        traffic.drain(PATIENCE)?;
        for cc in modules::ccs().map(Entry::name) {
            traffic.open(Spec {
                sndbuf_bytes: rng.bool().then_some([1, 4_096, 20_000][rng.usize(..3)]),
                window_clamp_bytes: rng.bool().then_some([1, 1_000, 10_000][rng.usize(..3)]),
                mss_bytes: rng.bool().then_some(rng.u32(88..1_460)),
                ..Spec::new(cc, 60_000, [Family::V4, Family::Mapped][rng.usize(..2)])
            })?;
        }
        let mut watch = Watch::new(PATIENCE);
        while traffic.open_flows() > 0 {
            watch.check(&traffic).with_context(|| format!("under a clamp of {clamp}"))?;
            traffic.step(Duration::from_millis(20))?;
            for flow in traffic.flows().filter(|flow| flow.rx.is_some()) {
                let cwnd = snd_cwnd(&flow.tx)?;
                most = most.max(cwnd);
                looks += 1;
                ensure!(
                    cwnd <= clamp,
                    "round {round}: a window of {cwnd} under a clamp of {clamp}"
                );
            }
        }
        traffic.verdict()?;
        total.completed += traffic.tally.completed;
        total.bytes += traffic.tally.bytes;
        drop(traffic);
        settled(&pair.hosts[0], &start).map(|_| ())
    });
    storm.ktap.note(&format!("{looks} samples; the largest window was {most}"));
    storm.ktap.case(
        &format!("{count} routes with `cwnd lock`: no window exceeds it, and each packet is accounted for"),
        outcome.and_then(|()| {
            ensure!(looks > 0, "no flow was seen");
            Ok(())
        }),
    );
    storm.flows_case("flows with clamps, small buffers and small segments", Ok(total));
    Ok(())
}

/// The route to the other host, with RTAX_CWND locked.
fn route_with_cwnd(cwnd: u32) -> Request {
    const RTAX_CWND: u32 = 7;
    let mut request = link::add_host_route(v4(1), DEVICE, v4(0), &RouteMetrics::default());
    if let RouteNetlinkMessage::NewRoute(message) = &mut request.message {
        message.attributes.push(RouteAttribute::Metrics(vec![
            RouteMetric::Lock(1 << RTAX_CWND),
            RouteMetric::Cwnd(cwnd),
        ]));
    }
    request.flags = NLM_F_CREATE | NLM_F_REPLACE;
    request
}

fn snd_cwnd(socket: &Socket) -> Result<u32> {
    const OFFSET: usize = 80;
    let mut info = [0; 256];
    let n = get_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    ensure!(n > OFFSET + 4, "short tcp_info");
    Ok(u32::from_ne_bytes(info[OFFSET..OFFSET + 4].try_into()?))
}

/// Replaces a flow's sender by TCP_REPAIR `count` times.
pub fn repair(storm: &mut Storm, count: u32) -> Result<()> {
    let pair = Pair::new()?;
    pair.port(0, &port(200_000))?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let ccs = storm.ccs();
    let mut traffic = Traffic::new(&pair, "unocc")?;
    let (mut moved, mut kept) = (0, 0);
    let outcome = (|| {
        while moved < count {
            while traffic.open_flows() < 8 {
                let mut spec = Spec::new(&ccs[rng.usize(..ccs.len())], 40_000, Family::V4);
                spec.burst = Some((rng.u64(1..20_000), Duration::from_millis(rng.u64(1..20))));
                traffic.open(spec)?;
            }
            traffic.step(Duration::from_millis(10))?;
            let to = ccs[rng.usize(..ccs.len())].clone();
            let Some(id) = traffic.any_id(&mut rng) else {
                continue;
            };
            match pair.hosts[0].run(|| restore(traffic.flow(id).map(|flow| &flow.tx), &to))? {
                Some(socket) => {
                    traffic.replace_tx(id, socket)?;
                    moved += 1;
                }
                None => kept += 1,
            }
        }
        traffic.drain(PATIENCE)?;
        traffic.verdict()
    })();
    storm.ktap.note(&format!("{moved} sockets moved; {kept} had data in flight and were restored"));
    storm.ktap.case(
        &format!("{moved} live sockets restored by TCP_REPAIR with another congestion control"),
        outcome,
    );
    let tally = traffic.tally;
    storm.flows_case("flows of restored sockets", traffic.verdict().map(|()| tally));
    Ok(())
}

const TCP_NO_QUEUE: i32 = 0;
const TCP_RECV_QUEUE: i32 = 1;
const TCP_SEND_QUEUE: i32 = 2;
const TCP_REPAIR_OFF_NO_WP: i32 = -1;
/// struct tcp_repair_window: five words.
const WINDOW_BYTES: usize = 20;
const TCP_ESTABLISHED: u8 = 1;

/// Returns a new socket in place of `old`: same addresses, sequence numbers and window, congestion control
/// `cc`. None, with `old` unchanged, if `old` is not connected or has unacknowledged data.
fn restore(old: Option<&Socket>, cc: &str) -> Result<Option<Socket>> {
    let Some(old) = old else {
        return Ok(None);
    };
    let tcp = libc::IPPROTO_TCP;
    let mut info = [0; 256];
    get_bytes(old, tcp, libc::TCP_INFO, &mut info)?;
    if info[0] != TCP_ESTABLISHED {
        return Ok(None);
    }
    let (local, peer) = (old.local_addr()?, old.peer_addr()?);
    set_option(old, tcp, libc::TCP_REPAIR, 1).context("TCP_REPAIR")?;
    // The congestion control can also change during repair.
    old.set_tcp_congestion(cc.as_bytes())?;
    let mut queued = 0;
    // SAFETY: SIOCOUTQ writes one int.
    let asked =
        unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(old), libc::TIOCOUTQ, &mut queued) };
    if asked != 0 {
        bail!("SIOCOUTQ: {}", std::io::Error::last_os_error());
    }
    if queued != 0 {
        set_option(old, tcp, libc::TCP_REPAIR, 0)?;
        return Ok(None);
    }
    let mut sequences = [0; 2];
    for (queue, sequence) in [TCP_RECV_QUEUE, TCP_SEND_QUEUE].iter().zip(&mut sequences) {
        set_option(old, tcp, libc::TCP_REPAIR_QUEUE, *queue)?;
        *sequence = get_option(old, tcp, libc::TCP_QUEUE_SEQ)?;
    }
    let mut window = [0; WINDOW_BYTES];
    get_bytes(old, tcp, libc::TCP_REPAIR_WINDOW, &mut window)?;
    let timestamp = get_option(old, tcp, libc::TCP_TIMESTAMP)?;
    // tcpi_options, and both window scales in one byte.
    let (options, scales) = (info[5], info[6]);
    let mss = get_option(old, tcp, libc::TCP_MAXSEG)?;

    let new = tcp_socket(Domain::IPV4)?;
    set_option(&new, tcp, libc::TCP_REPAIR, 1)?;
    new.set_tcp_congestion(cc.as_bytes())?;
    for (queue, sequence) in [TCP_RECV_QUEUE, TCP_SEND_QUEUE].iter().zip(sequences) {
        set_option(&new, tcp, libc::TCP_REPAIR_QUEUE, *queue)?;
        set_option(&new, tcp, libc::TCP_QUEUE_SEQ, sequence)?;
    }
    // Under repair, close() sends nothing; only then is the address free.
    set_option(old, tcp, libc::TCP_REPAIR_QUEUE, TCP_NO_QUEUE)?;
    let nobody = tcp_socket(Domain::IPV4)?;
    // SAFETY: Both descriptors are open sockets of ours; `old` takes over that of `nobody`.
    let closed = unsafe {
        libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&nobody), std::os::fd::AsRawFd::as_raw_fd(old))
    };
    ensure!(closed >= 0, "dup2: {}", std::io::Error::last_os_error());
    new.bind(&local).context("bind under repair")?;
    new.connect(&peer).context("connect under repair")?;
    let mut wanted = Vec::new();
    let mut option = |code: u32, value: u32| {
        wanted.extend_from_slice(&code.to_ne_bytes());
        wanted.extend_from_slice(&value.to_ne_bytes());
    };
    // TCPOPT_MSS, _SACK_PERM, _WINDOW, _TIMESTAMP.
    option(2, mss as u32);
    if options & 2 != 0 {
        option(4, 0);
    }
    if options & 4 != 0 {
        option(3, u32::from(scales & 15) | u32::from(scales >> 4) << 16);
    }
    if options & 1 != 0 {
        option(8, 0);
        set_option(&new, tcp, libc::TCP_TIMESTAMP, timestamp)?;
    }
    set_bytes(&new, tcp, libc::TCP_REPAIR_OPTIONS, &wanted).context("TCP_REPAIR_OPTIONS")?;
    set_bytes(&new, tcp, libc::TCP_REPAIR_WINDOW, &window).context("TCP_REPAIR_WINDOW")?;
    set_option(&new, tcp, libc::TCP_REPAIR, TCP_REPAIR_OFF_NO_WP)?;
    Ok(Some(new))
}
