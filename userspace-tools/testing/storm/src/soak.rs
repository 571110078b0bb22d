// SPDX-License-Identifier: GPL-2.0
//! Hours of mixed load in virtual time, with equal memory use before and after, and round trips of zero to
//! minutes.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use xdc_netlink::{
    Connection,
    phantom::{self, Mark, MarkAt, Options, Xstats},
    qdisc::{self, Handle, Qdisc},
};

use crate::{
    Storm,
    flow::{Family, Spec, Tally, Traffic, tcp_socket},
    modules,
    net::{DEVICE, Netns, Pair, counter, counter_v6, write_sysctl},
};

/// Long, because waits cost nothing in virtual time.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Longer than TIME_WAIT, FIN_WAIT2 of an orphan, and a flow's last timers.
const SETTLE: Duration = Duration::from_secs(150);

const WIRE: Handle = Handle { major: 1, minor: 0 };
const PORT: Handle = Handle { major: 2, minor: 0 };

/// More packets than a wire ever holds.
const WIRE_PACKETS: u32 = 1_000_000;

fn wire(delay: Duration) -> Qdisc {
    Qdisc {
        index: DEVICE,
        parent: Handle::ROOT,
        handle: WIRE,
        kind: "netem",
        options: qdisc::Netem {
            delay_ns: delay.as_nanos() as u64,
            limit_packets: WIRE_PACKETS,
            ..Default::default()
        }
        .encode(),
    }
}

fn port(options: &Options) -> Qdisc {
    Qdisc {
        index: DEVICE,
        parent: Handle { major: 1, minor: 1 },
        handle: PORT,
        kind: phantom::KIND,
        options: options.encode(),
    }
}

/// Creates a link with a delay in both directions and a port at the sender.
fn build(delay: Duration, options: &Options) -> Result<Pair> {
    let pair = Pair::new()?;
    for host in &pair.hosts {
        host.run(|| Ok(Connection::open()?.request(wire(delay).replace())?))?;
    }
    pair.hosts[0].run(|| Ok(Connection::open()?.request(port(options).add())?))?;
    Ok(pair)
}

/// Packets of the data direction at each counter.
#[derive(Debug, Clone, Copy)]
struct Path {
    offered: u64,
    wire_sent: u64,
    wire_dropped: u64,
    wire_queued: u64,
    port_sent: u64,
    port_queued: u64,
    marked: u64,
    arrived: u64,
}

impl Path {
    fn read(pair: &Pair) -> Result<Self> {
        let states = pair.hosts[0].run(|| Ok(qdisc::dump(&mut Connection::open()?, DEVICE)?))?;
        let of = |handle| {
            let state = states.iter().find(|state| state.handle == handle);
            state.context("a qdisc is missing")
        };
        let (wire, port) = (of(WIRE)?, of(PORT)?);
        let (offered, arrived) = (ip_out(&pair.hosts[0])?, ip_in(&pair.hosts[1])?);
        Ok(Self {
            offered,
            wire_sent: wire.sent_packets,
            wire_dropped: wire.drops,
            wire_queued: wire.backlog_packets,
            port_sent: port.sent_packets,
            port_queued: port.backlog_packets,
            marked: Xstats::of(port).map_or(0, |xstats| xstats.marked()),
            arrived,
        })
    }

    /// Checks after the end of traffic: in = out + dropped everywhere, and all sent packets arrived.
    fn balance(&self, start: &Self) -> Result<String> {
        let offered = self.offered - start.offered;
        let sent = self.wire_sent - start.wire_sent;
        let dropped = self.wire_dropped - start.wire_dropped;
        let passed = self.port_sent - start.port_sent;
        let arrived = self.arrived - start.arrived;
        ensure!(self.wire_queued == 0 && self.port_queued == 0, "{self:?}");
        ensure!(offered == sent + dropped, "{offered} offered, {sent} sent, {dropped} dropped");
        ensure!(passed == sent, "the port passed {passed}, the wire sent {sent}");
        ensure!(arrived == sent, "{sent} sent, {arrived} arrived");
        Ok(format!(
            "{offered} packets in = {arrived} arrived + {dropped} dropped; {} marked",
            self.marked - start.marked
        ))
    }
}

fn ip_out(netns: &Netns) -> Result<u64> {
    netns.run(|| {
        Ok(counter("/proc/net/snmp", "Ip:", "OutTransmits")? + counter_v6("Ip6OutTransmits")?)
    })
}

fn ip_in(netns: &Netns) -> Result<u64> {
    netns.run(|| Ok(counter("/proc/net/snmp", "Ip:", "InReceives")? + counter_v6("Ip6InReceives")?))
}

/// Objects in use by slab cache, and available memory.
#[derive(Debug)]
struct Memory {
    objects: BTreeMap<String, u64>,
    available_bytes: u64,
}

/// Caches of sockets, packets and related objects: none may remain.
const EXACT: [&str; 13] = [
    "TCP",
    "TCPv6",
    "tw_sock_TCP",
    "tw_sock_TCPv6",
    "request_sock_TCP",
    "request_sock_TCPv6",
    "tcp_bind_bucket",
    "tcp_bind2_bucket",
    "skbuff_head_cache",
    "skbuff_fclone_cache",
    "skbuff_small_head",
    "sock_inode_cache",
    "net_namespace",
];

/// Tolerance for other caches and this program.
const SLACK_OBJECTS: u64 = 64;
const SLACK_BYTES: u64 = 4 << 20;

impl Memory {
    fn read() -> Result<Self> {
        // Twice: objects freed first may have held others.
        for _ in 0..2 {
            fs::write("/proc/sys/vm/drop_caches", "3")?;
            thread::sleep(Duration::from_secs(1));
            for cache in fs::read_dir("/sys/kernel/slab")? {
                fs::write(cache?.path().join("shrink"), "1")?;
            }
        }
        let mut objects = BTreeMap::new();
        for line in fs::read_to_string("/proc/slabinfo")?.lines().skip(2) {
            let mut words = line.split_whitespace();
            let (name, count) = (words.next(), words.next());
            let (Some(name), Some(count)) = (name, count) else {
                continue;
            };
            objects.insert(name.to_string(), count.parse()?);
        }
        let info = fs::read_to_string("/proc/meminfo")?;
        let available = info
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
        let available_kb: u64 = available.context("no MemAvailable")?.parse()?;
        Ok(Self { objects, available_bytes: available_kb << 10 })
    }

    /// Fails if more is in use than at `start`.
    fn compare(&self, start: &Self) -> Result<()> {
        let mut more = Vec::new();
        for (name, now) in &self.objects {
            let before = start.objects.get(name).copied().unwrap_or(0);
            let slack = match EXACT.contains(&name.as_str()) {
                true => 0,
                false => SLACK_OBJECTS,
            };
            if *now > before + slack {
                more.push(format!("{name} {before} -> {now}"));
            }
        }
        ensure!(more.is_empty(), "objects in use: {}", more.join(", "));
        let lost = start.available_bytes.saturating_sub(self.available_bytes);
        ensure!(lost <= SLACK_BYTES, "{lost} bytes less are available");
        Ok(())
    }

    fn difference(&self, start: &Self) -> String {
        let changed: Vec<_> = self
            .objects
            .iter()
            .filter_map(|(name, now)| {
                let before = start.objects.get(name).copied().unwrap_or(0);
                (*now != before).then(|| format!("{name} {:+}", *now as i64 - before as i64))
            })
            .collect();
        format!(
            "memory available {:+} kB; objects: {}",
            (self.available_bytes as i64 - start.available_bytes as i64) / 1024,
            changed.join(", ")
        )
    }
}

/// Case: packets into wire and port since `start` left or were dropped.
fn path_case(storm: &mut Storm, what: &str, pair: &Pair, start: &Path) {
    let balance = Path::read(pair).and_then(|now| now.balance(start));
    let text = balance.as_deref().unwrap_or("packets in = out + dropped");
    let text = format!("{what}: {text}");
    storm.ktap.case(&text, balance.map(|_| ()));
}

/// Runs `minutes` of mixed load.
pub fn hour(storm: &mut Storm, minutes: u32) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let ccs = storm.ccs();
    let pair = build(Duration::from_micros(10), &any_port(&mut rng))?;
    pair.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    let mut load = Load { pair: &pair, ccs: &ccs, tally: Tally::default() };
    // Allocates caches that the kernel keeps.
    load.run(&mut rng, 1)?;
    thread::sleep(SETTLE);
    let (before, start, begun) = (Memory::read()?, Path::read(&pair)?, Instant::now());
    let outcome = load.run(&mut rng, minutes);
    let took = begun.elapsed();
    thread::sleep(SETTLE);
    let after = Memory::read()?;
    let tally = load.tally;
    storm.ktap.case(&format!("{} virtual minutes of mixed load", took.as_secs() / 60), outcome);
    storm.flows_case("flows of mixed load", Ok(tally));
    path_case(storm, "wire and port", &pair, &start);
    storm.ktap.note(&after.difference(&before));
    storm.ktap.case("the memory in use does not grow", after.compare(&before));
    storm.ktap.case("100 leaked sockets are detected", {
        let leaked: Vec<_> = pair.hosts[0]
            .run(|| (0..100).map(|_| tcp_socket(socket2::Domain::IPV4)).collect::<Result<_>>())?;
        let outcome = match Memory::read()?.compare(&before) {
            Err(e) if e.to_string().contains("TCP ") => Ok(()),
            other => Err(anyhow::anyhow!("100 more sockets, but {other:?}")),
        };
        drop(leaked);
        outcome
    });
    Ok(())
}

struct Load<'a> {
    pair: &'a Pair,
    ccs: &'a [String],
    tally: Tally,
}

impl Load<'_> {
    fn run(&mut self, rng: &mut fastrand::Rng, minutes: u32) -> Result<()> {
        let cc = &self.ccs[rng.usize(..self.ccs.len())];
        let mut traffic = Traffic::new(self.pair, cc)?;
        // User space takes most of the time: wake it only for much data or the end.
        traffic.wake_bytes = Some(1 << 20);
        let outcome = (0..minutes).try_for_each(|minute| {
            self.minute(rng, &mut traffic).with_context(|| format!("minute {minute}"))
        });
        outcome?;
        traffic.drain(PATIENCE)?;
        traffic.verdict()?;
        self.tally.opened += traffic.tally.opened;
        self.tally.completed += traffic.tally.completed;
        self.tally.aborted += traffic.tally.aborted;
        self.tally.bytes += traffic.tally.bytes;
        Ok(())
    }

    fn minute(&self, rng: &mut fastrand::Rng, traffic: &mut Traffic<'_>) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        let delay_us = [0, 1, 7, 1_000, 20_000, 300_000][rng.usize(..6)];
        for host in &self.pair.hosts {
            let delay = Duration::from_micros(delay_us);
            host.run(|| Ok(Connection::open()?.request(wire(delay).change())?))?;
            host.run(|| any_parameters(rng))?;
        }
        while Instant::now() < end {
            self.pair.hosts[0]
                .run(|| Ok(Connection::open()?.request(port(&any_port(rng)).change())?))?;
            let ecn = [0, 1, 2, 3, 4, 5][rng.usize(..6)].to_string();
            self.pair.sysctl("net/ipv4/tcp_ecn", &ecn)?;
            for _ in 0..rng.usize(1..8) {
                traffic.open(any_flow(rng, self.ccs))?;
            }
            if let Some(flow) = traffic.any_flow(rng) {
                let to = &self.ccs[rng.usize(..self.ccs.len())];
                flow.tx.set_tcp_congestion(to.as_bytes())?;
            }
            // Occasional idle periods.
            let spell_ms = if rng.u8(..10) == 0 { 10_000 } else { rng.u64(1..2_500) };
            let until = Instant::now() + Duration::from_millis(spell_ms);
            while Instant::now() < until {
                traffic.step(until.saturating_duration_since(Instant::now()))?;
            }
        }
        Ok(())
    }
}

fn any_flow(rng: &mut fastrand::Rng, ccs: &[String]) -> Spec {
    let bytes = match rng.u8(..20) {
        0 => rng.u64(200_000..2_000_000),
        1..6 => rng.u64(20_000..200_000),
        _ => rng.u64(1..20_000),
    };
    let mut spec = Spec::new(&ccs[rng.usize(..ccs.len())], bytes, Family::ALL[rng.usize(..3)]);
    if rng.u8(..4) == 0 {
        // An application with short writes.
        let pause = Duration::from_millis(rng.u64(1..5_000));
        spec.burst = Some((bytes.div_ceil(rng.u64(2..8)), pause));
    }
    if rng.u8(..20) == 0 {
        spec.abort_after = Some(rng.u64(..bytes));
    }
    spec
}

fn any_port(rng: &mut fastrand::Rng) -> Options {
    let (a, b) = (rng.u32(..=1_000_000), rng.u32(..=1_000_000));
    let pool = ["", "a", "b"][rng.usize(..3)];
    Options {
        limit_bytes: Some(rng.u32(20_000..2_000_000)),
        rate_bytes_per_s: Some(rng.u64(2_000_000..1_000_000_000)),
        phantom_limit_bytes: Some(rng.u64(10_000..2_000_000)),
        pmin_ppm: Some(a.min(b)),
        pmax_ppm: Some(a.max(b)),
        mark: Some(Mark::ALL[rng.usize(..Mark::ALL.len())]),
        mark_at: Some(MarkAt::ALL[rng.usize(..2)]),
        ecn_drop: Some(rng.u8(..8) == 0),
        pool: Some(pool.to_string()),
        // A joining port must name the pool's size.
        pool_limit_bytes: (!pool.is_empty()).then_some(500_000),
        ..Default::default()
    }
}

/// Sets every parameter to a random valid value, in the thread's namespace.
fn any_parameters(rng: &mut fastrand::Rng) -> Result<()> {
    for algorithm in modules::ccs() {
        let folder = format!("net/{}", algorithm.name());
        if algorithm.has_profiles() {
            let profile = algorithm.profiles().nth(rng.usize(..algorithm.profiles.len()));
            write_sysctl(&format!("{folder}/profile"), profile.unwrap_or_default())?;
            continue;
        }
        for row in algorithm.params {
            // Around the default: at the bounds, a minute is too short for a flow.
            let default = row.defaults[0];
            let low = (default / 2).max(row.min);
            let value = rng.u32(low..=default.saturating_mul(2).clamp(low, row.max));
            write_sysctl(&format!("{folder}/{}", row.name()), &value.to_string())?;
        }
    }
    Ok(())
}

/// Runs flows over round trips of zero to minutes.
pub fn round_trips(storm: &mut Storm) -> Result<()> {
    let options = Options {
        limit_bytes: Some(2_000_000),
        rate_bytes_per_s: Some(125_000_000),
        mark: Some(Mark::Either),
        ..Default::default()
    };
    for (name, rtt) in [
        ("0", Duration::ZERO),
        ("2 us", Duration::from_micros(2)),
        ("2 ms", Duration::from_millis(2)),
        ("1 s", Duration::from_secs(1)),
        ("2 minutes", Duration::from_secs(120)),
        ("4 minutes", Duration::from_secs(240)),
    ] {
        let pair = build(rtt / 2, &options)?;
        // The default gives up on the connection earlier.
        pair.sysctl("net/ipv4/tcp_syn_retries", "12")?;
        pair.sysctl("net/ipv4/tcp_synack_retries", "12")?;
        let start = Path::read(&pair)?;
        let mut traffic = Traffic::new(&pair, "unocc")?;
        traffic.wake_bytes = Some(1 << 20);
        let outcome = (|| {
            for cc in storm.ccs() {
                for family in Family::ALL {
                    traffic.open(Spec::new(&cc, 100_000, family))?;
                }
            }
            traffic.drain(Duration::from_secs(100_000))?;
            traffic.verdict()
        })();
        let tally = traffic.tally;
        drop(traffic);
        storm.flows_case(&format!("RTT of {name}"), outcome.map(|()| tally));
        thread::sleep(SETTLE + 4 * rtt);
        path_case(storm, &format!("RTT of {name}"), &pair, &start);
    }
    Ok(())
}
