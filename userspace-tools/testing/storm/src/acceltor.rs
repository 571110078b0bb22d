// SPDX-License-Identifier: GPL-2.0
//! Stress tests of the qdisc acceltor: changes of schedule, calendar and rates under flows, clock steps,
//! removal of uplinks, bond, hosts and module, random requests, and a million flows. Packets in always
//! equal packets sent + queued + dropped.

use std::{
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use netlink_packet_route::link::LinkAttribute;
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime, clock_settime},
};
use xdc_netlink::{
    Connection,
    acceltor::{ClockId as Clock, Detect, KIND, Options, Overflow, Peers, Policy, Prefix, Xstats},
    link::{self, VethEnd},
    qdisc::{self, Handle, QdiscState},
};

use crate::{
    Storm,
    alloc::{self, failing},
    background::{PATIENCE, beside},
    flow::{Family, Load},
    live::settled,
    modules,
    net::{Books, DEVICE, Netns, Pair, change, configure_host, mac, root_of, root_state, v4},
    netlink::{self, IDLE, Target, check_count},
    tlt,
};

const MODULE: &str = "sch_acceltor";

/// IPv4 leads to rack 1, IPv6 to rack 2; a week takes 33 ms.
const WORDS: &str = "racks 4 rack 0 prefix 10.9.0.2/32=1,fd09::2/128=2 day 10ms night 1ms base-time 0 peers auto \
    ocs-rate 200mbit eps-rate 100mbit rtt 3ms k 2 hp 300kb lp 150kb limit 150kb policy acceltor detect sketch \
    dscp none elephants 80 idle 1s sketch-bytes 20kb overflow drop rescue off guard 0ns lead 0ns ecn 0b";

/// One uplink of the first host's bond.
struct Uplink {
    name: &'static str,
    index: u32,
    far_name: &'static str,
    far_index: u32,
    queue_mapping: u16,
}

const UPLINKS: [Uplink; 2] = [
    Uplink { name: "eps", index: 10, far_name: "eth0", far_index: DEVICE, queue_mapping: 1 },
    Uplink { name: "ocs", index: 11, far_name: "ocs", far_index: 12, queue_mapping: 2 },
];
const CIRCUIT: &Uplink = &UPLINKS[1];

/// Two hosts, connected by a bond of two uplinks at the first.
fn bonded() -> Result<Pair> {
    let pair = Pair { hosts: [Netns::create()?, Netns::create()?] };
    // Orphans must end, or their namespace remains; blocked flows must soon retry.
    for (name, value) in [
        ("tcp_orphan_retries", "1"),
        ("tcp_rto_max_ms", "1000"),
        ("tcp_syn_retries", "127"),
        ("tcp_synack_retries", "127"),
        ("tcp_retries2", "255"),
        ("conf/all/rp_filter", "0"),
        ("conf/default/rp_filter", "0"),
    ] {
        pair.sysctl(&format!("net/ipv4/{name}"), value)?;
    }
    pair.hosts[0].request(link::add_bond("eth0", DEVICE, mac(0), 1500))?;
    for uplink in &UPLINKS {
        wire(&pair, uplink)?;
    }
    for (host, netns) in pair.hosts.iter().enumerate() {
        netns.run(|| configure_host(host))?;
    }
    pair.hosts[1].request(link::set_up(CIRCUIT.far_name, CIRCUIT.far_index))?;
    settle(&pair)?;
    Ok(pair)
}

/// Creates an uplink and adds it to the bond.
fn wire(pair: &Pair, uplink: &Uplink) -> Result<()> {
    let near =
        VethEnd { name: uplink.name.to_string(), index: uplink.index, mac: mac(0), netns: None };
    let far = VethEnd {
        name: uplink.far_name.to_string(),
        index: uplink.far_index,
        mac: mac(1),
        netns: Some(pair.hosts[1].as_raw_fd()),
    };
    pair.hosts[0].request(link::add_veth(&near, &far, 1500, false))?;
    join(pair, uplink)
}

fn join(pair: &Pair, uplink: &Uplink) -> Result<()> {
    let requests = link::join_bond(uplink.name, uplink.index, DEVICE, uplink.queue_mapping);
    pair.hosts[0].run(|| Ok(Connection::open()?.batch(requests)?))
}

/// Waits until the kernel has noticed the carriers.
fn settle(pair: &Pair) -> Result<()> {
    for uplink in &UPLINKS {
        pair.hosts[1].request(link::settle(uplink.far_name, uplink.far_index))?;
        pair.hosts[0].request(link::settle(uplink.name, uplink.index))?;
    }
    pair.hosts[0].request(link::settle("eth0", DEVICE))
}

fn options(words: &str) -> Result<Options> {
    let words: Vec<_> = words.split_whitespace().collect();
    Options::from_words(&words).map_err(|why| anyhow!("{words:?}: {why}"))
}

/// Installs acceltor at the root of the bond.
fn install(pair: &Pair, words: &str) -> Result<()> {
    pair.hosts[0].request(root_of(KIND, options(words)?.encode()).replace())
}

fn set(pair: &Pair, words: &str) -> Result<()> {
    pair.hosts[0]
        .request(root_of(KIND, options(words)?.encode()).change())
        .with_context(|| words.to_string())
}

fn check(state: &QdiscState) -> Result<Xstats> {
    let options = Options::decode(&state.options)?;
    let xstats = Xstats::of(state).context("the qdisc is no acceltor")?;
    let lost = xstats.unaccounted();
    ensure!(lost == 0, "{lost} packets are unaccounted for: {xstats:?}");
    let backlog =
        xstats.backlog_high + xstats.backlog_low + xstats.backlog_today + xstats.backlog_later;
    let queued = xstats.packets_queued;
    ensure!((backlog == 0) == (queued == 0), "{queued} packets of {backlog} bytes are queued");
    let left = xstats.promoted.wrapping_sub(xstats.evicted);
    let elephants = xstats.elephants;
    ensure!(elephants == left, "{elephants} elephants, expected {left}");
    let racks = options.racks.context("no racks")?;
    let most = u64::from(options.elephants.context("no elephants")?) * u64::from(racks - 1);
    ensure!(elephants <= most, "{elephants} elephants, at most {most} allowed");
    Ok(xstats)
}

/// Statistics of the bond's acceltor; None without one.
fn now() -> Result<Option<Xstats>> {
    // The bond may be missing.
    match root_state(DEVICE) {
        Ok(state) if state.kind == KIND => check(&state).map(Some),
        _ => Ok(None),
    }
}

/// Checks the invariants until `f` ends.
fn watched<T>(pair: &Pair, f: impl FnOnce() -> Result<T>) -> Result<T> {
    beside(&pair.hosts[0], || Ok(usize::from(now()?.is_some())), f)
}

fn xstats(pair: &Pair) -> Result<Xstats> {
    pair.hosts[0].run(now)?.context("no acceltor")
}

/// Keeps flows running until 20 more packets have used a circuit.
fn has_circuits(pair: &Pair, load: &mut Load<'_>) -> Result<()> {
    const MORE: u64 = 20;
    let before = xstats(pair)?.packets_circuit;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = xstats(pair)?;
        if stats.packets_circuit >= before + MORE {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no packet took the circuit: {stats:?}");
        load.refill()?;
    }
}

/// Limits the bond to single packets, so that IP's counters match the qdisc's. Returns the counters before
/// any flow.
fn singly(pair: &Pair) -> Result<Books> {
    let singly = vec![LinkAttribute::GsoMaxSegs(1)];
    pair.hosts[0].request(change(DEVICE, None, singly))?;
    Books::read(&pair.hosts[0])
}

/// Checks that every flow arrives and that the counters agree with tc's, and since `start` with IP's.
fn end(pair: &Pair, load: Load<'_>, start: Option<&Books>) -> Result<()> {
    load.end()?;
    if let Some(start) = start {
        settled(&pair.hosts[0], start)?;
    }
    let deadline = Instant::now() + PATIENCE;
    let (state, xstats) = loop {
        let state = pair.hosts[0].run(|| root_state(DEVICE))?;
        let xstats = check(&state)?;
        // The last ACK may be queued.
        if xstats.packets_queued == 0 || Instant::now() > deadline {
            break (state, xstats);
        }
        thread::sleep(Duration::from_millis(10));
    };
    let sent = xstats.packets_high + xstats.packets_low + xstats.packets_circuit;
    ensure!(
        state.sent_packets == sent && state.drops == xstats.packets_in - sent,
        "tc says {} sent and {} dropped: {xstats:?}",
        state.sent_packets,
        state.drops
    );
    Ok(())
}

fn load<'a>(storm: &'a Storm, pair: &'a Pair) -> Result<Load<'a>> {
    Load::new(storm, pair, &Family::ALL)
}

/// Runs the attack: `rounds` of each kind, and random messages and flows in proportion.
pub fn attack(storm: &mut Storm, rounds: u32) -> Result<()> {
    modules::load(MODULE)?;
    let _no_autoload = modules::NoAutoload::new()?;
    type Case = fn(&Storm, u32) -> Result<()>;
    let cases: [(&str, Case); 10] = [
        ("the schedule changes under flows", schedules),
        ("K, policies, limits and rates change under flows", rates),
        ("the clock is set in both directions", clocks),
        ("uplinks go down and up, and leave and join the bond", uplinks),
        ("the bond goes down and up", downs),
        ("packets queued before the bond went down are not late", late),
        ("the bond is deleted", gone),
        ("hosts are deleted with their qdiscs", namespaces),
        ("the module is unloaded and loaded under flows", reloads),
        ("more flows than the sketch has cells", flood),
    ];
    for (what, case) in cases {
        let outcome = case(storm, rounds);
        storm.ktap.case(what, outcome);
    }
    let pair = bonded()?;
    pair.hosts[0].request(link::add_bond("idle0", IDLE, [2, 0, 0, 0, 1, 1], 1500))?;
    netlink::against(storm, rounds.saturating_mul(500), pair, &AccelTor)?;
    // Cases for the debug kernel only.
    if storm.debug {
        alloc::prepare()?;
        let pair = bonded()?;
        alloc::ports(storm, &pair, &ALLOCATING, rounds.saturating_mul(8))?;
        drop(pair);
        let outcome = starved(storm);
        storm.ktap.case("flows arrive despite failed allocations", outcome);
    }
    let outcome = modules::unload(MODULE);
    storm.ktap.case("the module can be unloaded", outcome.map(|_| ()));
    Ok(())
}

fn schedules(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = bonded()?;
    install(&pair, WORDS)?;
    // Packets wait, whenever they arrive.
    const PATIENT: &str = "k 16 rtt 20ms";
    set(&pair, PATIENT)?;
    let start = singly(&pair)?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = load(storm, &pair)?;
    watched(&pair, || {
        for round in 0..rounds * 4 {
            load.refill()?;
            load.step()?;
            let words = match round % 6 {
                0 => format!("day {}us night {}us", rng.u32(2_000..30_000), rng.u32(..5_000)),
                1 => {
                    let base = [0, -1, i64::MIN, i64::MAX, rng.i64(..), rng.i64(0..1 << 50)];
                    format!("base-time {}", base[rng.usize(..6)])
                }
                2 => format!("racks {} rack 0 peers auto", rng.u32(3..=128)),
                3 => format!("racks 4 rack {} peers auto", [0, 3][rng.usize(..2)]),
                4 => "racks 4 rack 0 peers 3,2,1".to_string(),
                _ => format!("guard {}us lead {}us", rng.u32(..=1_000), rng.u32(..=1_000)),
            };
            set(&pair, &words)?;
            for words in ["clockid monotonic", "racks 1", "racks 4 rack 4", "day 1ns", "guard 16ms"]
            {
                ensure!(set(&pair, words).is_err(), "{words} is accepted");
            }
        }
        // Waiting packets lose their day.
        set(&pair, WORDS)?;
        set(&pair, PATIENT)?;
        let before = xstats(&pair)?.drops_reschedule;
        let mut lost = 0;
        // More weeks than a blocked flow's longest pause.
        for round in 0..2_000 {
            set(&pair, &format!("day {}ms", 10 + round % 2))?;
            load.refill()?;
            lost = xstats(&pair)?.drops_reschedule - before;
            if lost > 0 {
                break;
            }
        }
        ensure!(lost > 0, "no packet loses its day");
        set(&pair, WORDS)?;
        has_circuits(&pair, &mut load)
    })?;
    end(&pair, load, Some(&start))
}

fn rates(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = bonded()?;
    install(&pair, WORDS)?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = load(storm, &pair)?;
    watched(&pair, || {
        for round in 0..rounds * 4 {
            load.refill()?;
            let rng = &mut rng;
            let mut one_of = |words: &[&str]| words[rng.usize(..words.len())].to_string();
            let words = match round % 10 {
                0 => format!("k {}", rng.u32(1..=64)),
                1 => format!("policy {}", one_of(Policy::NAMES)),
                2 => format!("ocs-rate {}kbit", rng.u32(8_000..1_000_000)),
                3 => format!("eps-rate {}kbit", [0, rng.u32(8_000..1_000_000)][rng.usize(..2)]),
                4 => format!("hp {0}b lp {0}b limit {0}b", rng.u32(2_000..500_000)),
                5 => format!("overflow {}", one_of(Overflow::NAMES)),
                6 => format!("rescue {}", one_of(&["on", "off"])),
                7 => format!(
                    "detect {} dscp {}",
                    one_of(Detect::NAMES),
                    one_of(&["none", "0", "0,46"])
                ),
                8 => format!("elephants {} idle {}ms", rng.u32(..200), rng.u32(..2_000)),
                _ => format!(
                    "rtt {}us sketch-bytes {}b ecn {}b",
                    rng.u32(1..20_000),
                    rng.u32(1..100_000),
                    rng.u32(..100_000)
                ),
            };
            set(&pair, &words)?;
            for words in
                ["k 0", "k 65", "ocs-rate 0bit", "limit 1999b", "elephants 4097", "rtt 1ns"]
            {
                ensure!(set(&pair, words).is_err(), "{words} is accepted");
            }
        }
        set(&pair, WORDS)?;
        has_circuits(&pair, &mut load)
    })?;
    ensure!(xstats(&pair)?.packets_low > 0, "no packet was accelerated");
    end(&pair, load, None)
}

/// Steps the time of day by `by_ns` nanoseconds.
fn step_clock(by_ns: i64) -> Result<()> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    let by = Duration::from_nanos(by_ns.unsigned_abs()).into();
    let then: TimeSpec = if by_ns < 0 { now - by } else { now + by };
    clock_settime(ClockId::CLOCK_REALTIME, then).context("cannot set the clock")
}

fn clocks(storm: &Storm, rounds: u32) -> Result<()> {
    const S: i64 = 1_000_000_000;
    const STEPS: [i64; 8] =
        [1, 1_000, 10_000_000, 33_000_000, S, 3_600 * S, 86_400 * S, 31_536_000 * S];
    let pair = bonded()?;
    install(&pair, WORDS)?;
    let start = singly(&pair)?;
    let mut load = load(storm, &pair)?;
    has_circuits(&pair, &mut load)?;
    watched(&pair, || {
        for round in 0..rounds {
            let by = STEPS[round as usize % STEPS.len()];
            for by in [by, -by] {
                step_clock(by)?;
                has_circuits(&pair, &mut load)?;
            }
        }
        Ok(())
    })?;
    let jumps = xstats(&pair)?.clock_jumps;
    ensure!(jumps > 0, "no clock jump was counted");
    ensure!(jumps <= u64::from(rounds), "{jumps} jumps in {rounds} rounds");
    end(&pair, load, Some(&start))
}

fn uplinks(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = bonded()?;
    install(&pair, WORDS)?;
    let mut load = load(storm, &pair)?;
    let down_and_up = |load: &mut Load<'_>, uplink: &Uplink| -> Result<()> {
        pair.hosts[0].request(change(uplink.index, Some(false), vec![]))?;
        load.refill()?;
        pair.hosts[0].request(change(uplink.index, Some(true), vec![]))
    };
    watched(&pair, || {
        for round in 0..rounds {
            load.refill()?;
            match round % 4 {
                0 => down_and_up(&mut load, &UPLINKS[0])?,
                1 => down_and_up(&mut load, CIRCUIT)?,
                2 => {
                    let alone = LinkAttribute::Controller(0);
                    pair.hosts[0].request(change(UPLINKS[0].index, None, vec![alone]))?;
                    load.refill()?;
                    join(&pair, &UPLINKS[0])?;
                }
                _ => {
                    pair.hosts[0].request(link::delete(CIRCUIT.index))?;
                    load.refill()?;
                    wire(&pair, CIRCUIT)?;
                    pair.hosts[1].request(link::set_up(CIRCUIT.far_name, CIRCUIT.far_index))?;
                }
            }
            settle(&pair)?;
            load.step()?;
        }
        has_circuits(&pair, &mut load)
    })?;
    end(&pair, load, None)
}

fn downs(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = bonded()?;
    install(&pair, WORDS)?;
    // Packets wait at night, too.
    set(&pair, "day 5ms night 5ms k 6 rtt 30ms")?;
    let mut load = load(storm, &pair)?;
    watched(&pair, || {
        for _ in 0..rounds {
            load.refill()?;
            pair.hosts[0].request(change(DEVICE, Some(false), vec![]))?;
            let queued = xstats(&pair)?.packets_queued;
            ensure!(queued == 0, "{queued} packets are queued while the bond is down");
            load.step()?;
            pair.hosts[0].run(|| configure_host(0))?;
            settle(&pair)?;
        }
        has_circuits(&pair, &mut load)
    })?;
    ensure!(xstats(&pair)?.drops_reset > 0, "no queued packet was dropped");
    load.end()
}

/// Packets waiting for their day are dropped when the device goes down.
fn late(_: &Storm, _: u32) -> Result<()> {
    const SLOT_MS: u64 = 2_000;
    // One second each of day and night; every data packet belongs to an elephant.
    const WORDS: &str = "racks 2 rack 0 prefix 10.9.0.2/32=1 day 1s night 1s base-time 0 clockid monotonic \
        rtt 1s k 2 detect dscp dscp 0";
    /// Sleeps until `of_slot_ms` milliseconds of the slot (day and night) have passed.
    fn until(of_slot_ms: u64) -> Result<()> {
        let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC)?.into();
        let passed_ms = now.as_millis() as u64 % SLOT_MS;
        let wait_ms = (SLOT_MS + of_slot_ms - passed_ms) % SLOT_MS;
        thread::sleep(Duration::from_millis(wait_ms));
        Ok(())
    }
    let pair = bonded()?;
    install(&pair, WORDS)?;
    let raw = tlt::raw_socket(&pair.hosts[0])?;
    let elephant = || {
        let packet = tlt::packet(0, (7, 8), 1, Some(1), &[0; 20]);
        raw.send_to(&packet, &tlt::to(v4(1)))
    };
    until(1_200)?;
    elephant()?;
    let queued = xstats(&pair)?.packets_queued;
    ensure!(queued == 1, "{queued} packets wait for the day");
    pair.hosts[0].request(change(DEVICE, Some(false), vec![]))?;
    pair.hosts[0].run(|| configure_host(0))?;
    settle(&pair)?;
    until(500)?;
    elephant()?;
    thread::sleep(Duration::from_millis(100));
    let stats = xstats(&pair)?;
    ensure!(stats.packets_circuit == 1 && stats.drops_reset > 0, "{stats:?}");
    let late_ns = stats.late_max_ns;
    ensure!(late_ns == 0, "late by {late_ns} ns, but no packet waited");
    Ok(())
}

fn gone(storm: &Storm, rounds: u32) -> Result<()> {
    for _ in 0..rounds.min(4) {
        let pair = bonded()?;
        install(&pair, WORDS)?;
        let mut load = load(storm, &pair)?;
        has_circuits(&pair, &mut load)?;
        load.refill()?;
        pair.hosts[0].request(link::delete(DEVICE))?;
        load.step()?;
        load.traffic.abandon();
    }
    Ok(())
}

fn namespaces(storm: &Storm, rounds: u32) -> Result<()> {
    for _ in 0..rounds.min(4) {
        let pair = bonded()?;
        install(&pair, WORDS)?;
        let mut load = load(storm, &pair)?;
        has_circuits(&pair, &mut load)?;
        load.refill()?;
        load.traffic.abandon();
    }
    modules::unload(MODULE)?;
    modules::load(MODULE)?;
    Ok(())
}

fn reloads(storm: &Storm, rounds: u32) -> Result<()> {
    let pair = bonded()?;
    install(&pair, WORDS)?;
    let mut load = load(storm, &pair)?;
    watched(&pair, || {
        for _ in 0..rounds.min(10) {
            has_circuits(&pair, &mut load)?;
            pair.hosts[0].request(qdisc::delete(DEVICE, Handle::ROOT))?;
            modules::unload(MODULE)?;
            load.refill()?;
            modules::load(MODULE)?;
            install(&pair, WORDS)?;
        }
        Ok(())
    })?;
    load.end()
}

/// Sends one packet each of many flows.
fn flood(storm: &Storm, rounds: u32) -> Result<()> {
    const ELEPHANTS: u64 = 4_096;
    let flows = rounds.saturating_mul(if storm.debug { 5_000 } else { 42_000 });
    let pair = bonded()?;
    let words =
        format!("{WORDS} night 5ms eps-rate 0bit sketch-bytes 50b idle 5ms elephants {ELEPHANTS}");
    // The last value of an option counts.
    install(&pair, &words)?;
    let raw = tlt::raw_socket(&pair.hosts[0])?;
    let sent = |flow: u32| {
        let ports = (flow as u16, (flow >> 16) as u16 | 1 << 15);
        let packet = tlt::packet(0, ports, flow, Some(flow), &[0; 20]);
        raw.send_to(&packet, &tlt::to(v4(1)))
    };
    watched(&pair, || {
        for flow in 0..flows {
            sent(flow)?;
            // Sending takes no virtual time, and night must come.
            if flow % 64 == 63 {
                thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    })?;
    let stats = xstats(&pair)?;
    ensure!(stats.packets_in >= flows.into(), "{} packets arrived", stats.packets_in);
    ensure!(stats.promoted > 0 && stats.evicted > 0, "{stats:?}");
    Ok(())
}

/// sch_acceltor as a target of random messages.
struct AccelTor;

impl Target for AccelTor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn sane(&self) -> Vec<u8> {
        options(WORDS).map(|options| options.encode()).unwrap_or_default()
    }

    fn full(&self) -> Vec<u8> {
        let all = options(&format!("{WORDS} clockid tai")).unwrap_or_default();
        Options { peers: Some(Peers(vec![1, 2, 3])), ..all }.encode()
    }

    fn valid(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let some = |rng: &mut fastrand::Rng| rng.u8(..10) < 3;
        let bytes = |rng: &mut fastrand::Rng| {
            [2_000, rng.u32(2_000..3_000_000), 1_000_000_000][rng.usize(..3)]
        };
        macro_rules! maybe {
            ($value:expr) => {
                some(rng).then(|| $value)
            };
        }
        let racks = match rng.u8(..200) {
            // Rare, because it costs memory.
            0 => 1_024,
            _ => [2, 3, 4, rng.u32(2..=64)][rng.usize(..4)],
        };
        let prefix = |rng: &mut fastrand::Rng, host: usize| Prefix {
            addr: v4(host).into(),
            bits: 32,
            rack: rng.u16(..4),
        };
        let options = Options {
            racks: maybe!(racks),
            rack: maybe!(rng.u32(..2)),
            day_ns: maybe!([1_000, rng.u64(1_000..=1_000_000_000), 10_000_000][rng.usize(..3)]),
            night_ns: maybe!([0, rng.u64(..=1_000_000_000), 1_000_000][rng.usize(..3)]),
            base_time_ns: maybe!([0, -1, i64::MIN, i64::MAX, rng.i64(..)][rng.usize(..5)]),
            clockid: (rng.u8(..50) == 0).then(|| Clock::ALL[rng.usize(..4)]),
            circuit_bytes_per_s: maybe!(
                [1, rng.u64(1_000_000..=1_000_000_000), 1_000_000_000_000_000][rng.usize(..3)]
            ),
            packet_bytes_per_s: maybe!(
                [0, rng.u64(1_000_000..=1_000_000_000), 1_000_000_000_000_000][rng.usize(..3)]
            ),
            rtt_ns: maybe!([1_000, rng.u64(1_000..=1_000_000_000)][rng.usize(..2)]),
            k: maybe!(rng.u32(1..=64)),
            high_limit_bytes: maybe!(bytes(rng)),
            low_limit_bytes: maybe!(bytes(rng)),
            limit_bytes: maybe!(bytes(rng)),
            elephants: maybe!([0, 1, rng.u32(..100)][rng.usize(..3)]),
            idle_ns: maybe!([0, 1, rng.u64(..=3_600_000_000_000)][rng.usize(..3)]),
            sketch_bytes: maybe!([1, rng.u32(1..)][rng.usize(..2)]),
            overflow: maybe!(Overflow::ALL[rng.usize(..2)]),
            rescue: maybe!(rng.bool()),
            guard_ns: maybe!([0, rng.u64(..=500)][rng.usize(..2)]),
            lead_ns: maybe!([0, rng.u64(..=500)][rng.usize(..2)]),
            ecn_bytes: maybe!([0, rng.u32(..)][rng.usize(..2)]),
            policy: maybe!(Policy::ALL[rng.usize(..4)]),
            detect: maybe!(Detect::ALL[rng.usize(..3)]),
            dscp: maybe!([0, rng.u64(..)][rng.usize(..2)]),
            prefixes: maybe!(match rng.u8(..3) {
                0 => Vec::new(),
                1 => vec![prefix(rng, 1)],
                _ => vec![prefix(rng, 1), prefix(rng, 0)],
            }),
            peers: (rng.u8(..8) == 0).then(|| Peers((1..racks as u16).collect())),
        };
        options.encode()
    }

    fn check(&self, state: &QdiscState) -> Result<()> {
        let options = Options::decode(&state.options)?;
        check(state)?;
        let of = |value: Option<u32>| value.context("missing option");
        let (racks, rack) = (of(options.racks)?, of(options.rack)?);
        ensure!((2..=1_024).contains(&racks) && rack < racks, "rack {rack} of {racks}");
        let day = options.day_ns.context("no day")?;
        ensure!((1_000..=1_000_000_000).contains(&day), "day {day}");
        ensure!(options.guard_ns.max(options.lead_ns) <= Some(day / 2), "guard, lead");
        ensure!((1..=64).contains(&of(options.k)?), "k");
        let prefixes = options.prefixes.as_ref().context("no prefixes")?;
        ensure!(
            prefixes.iter().all(|prefix| u32::from(prefix.rack) < racks),
            "{prefixes:?} of {racks} racks"
        );
        let peers = options.peers.as_ref().map_or(0, |peers| peers.0.len());
        ensure!(peers == 0 || peers + 1 == racks as usize, "{peers} peers");
        check_count(&state.options, &self.full())
    }
}

const ALLOCATING: alloc::Kind = alloc::Kind {
    name: KIND,
    options: |round| {
        let limit = 100_000 + (round % 1_000) as u32;
        // A change rebuilds all tables.
        let racks = 4 + (round % 2) as u32;
        Options { racks: Some(racks), limit_bytes: Some(limit), ..Default::default() }.encode()
    },
    limit: |bytes| Ok(Options::decode(bytes)?.limit_bytes),
};

/// Random allocation failures with running flows.
fn starved(storm: &Storm) -> Result<()> {
    let pair = bonded()?;
    install(&pair, WORDS)?;
    let mut load = load(storm, &pair)?;
    has_circuits(&pair, &mut load)?;
    failing(5, || {
        for _ in 0..100 {
            load.traffic.step(Duration::from_millis(20))?;
        }
        Ok(())
    })?;
    xstats(&pair)?;
    load.end()?;
    xstats(&pair)?;
    Ok(())
}
