// SPDX-License-Identifier: GPL-2.0
//! Stress tests of the fabric: links, namespaces, networks and the module disappear under flows, settings change
//! under flows, and full networks, extreme delays, broken packets and random requests do no harm.

mod chain;
mod requests;

use std::{
    fs,
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use netlink_packet_route::link::LinkAttribute;
use xdc_netlink::{
    fabric::{KIND, Port},
    link,
    phantom::Options,
};

use self::{
    chain::{Chain, FORTH, build},
    requests::{delete, dump, random, refusals},
};
use crate::{
    Storm,
    alloc::failing,
    background::{PATIENCE, beside},
    flow::{Family, Load},
    modules,
    net::{DEVICE, Netns, change, configure_host},
};

/// Runs the attack: `rounds` of each kind.
pub fn attack(storm: &mut Storm, rounds: u32) -> Result<()> {
    modules::load(KIND)?;
    let _no_autoload = modules::NoAutoload::new()?;
    type Case = fn(&Storm, u32) -> Result<()>;
    let cases: [(&str, Case); 10] = [
        ("bad requests are refused", refusals),
        ("links are deleted and created under flows", links),
        ("links move to another namespace and back", moves),
        ("settings change under flows", changes),
        ("networks are deleted and created under flows", networks),
        ("broken packets change nothing", broken),
        ("time passes with extreme delays", extremes),
        ("a network is full, and is deleted", full),
        ("random requests", random),
        ("namespaces and the module disappear under flows", reloads),
    ];
    for (what, case) in cases {
        let outcome = case(storm, rounds);
        storm.ktap.case(what, outcome);
    }
    if storm.debug {
        let outcome = starved(storm, rounds);
        storm.ktap.case("flows arrive despite failed allocations", outcome);
    }
    modules::unload(KIND)?;
    Ok(())
}

fn links(storm: &Storm, rounds: u32) -> Result<()> {
    for family in [Family::V4, Family::V6] {
        let chain = Chain::new(family)?;
        let mut rng = fastrand::Rng::with_seed(storm.seed);
        let mut load = chain.load(storm)?;
        for round in 0..rounds {
            load.refill()?;
            // Packets remain in the network without their link.
            chain.set(|port| port.delay_ns = 50_000_000, 1)?;
            chain.inject(&mut rng, 200)?;
            chain.disconnect(round as usize % 2)?;
            load.step()?;
            chain.connect(round as usize % 2)?;
            chain.set(|_| (), 1)?;
        }
        load.end()?;
    }
    Ok(())
}

fn moves(storm: &Storm, rounds: u32) -> Result<()> {
    let chain = Chain::new(Family::V4)?;
    let elsewhere = Netns::create()?;
    let mut load = chain.load(storm)?;
    let to = |it: &Netns| change(DEVICE, None, vec![LinkAttribute::NetNsFd(it.as_raw_fd())]);
    for round in 0..rounds {
        let host = round as usize % 2;
        load.refill()?;
        chain.pair.hosts[host].request(to(&elsewhere))?;
        elsewhere.request(link::set_up("eth0", DEVICE))?;
        load.step()?;
        elsewhere.request(to(&chain.pair.hosts[host]))?;
        chain.pair.hosts[host].run(|| configure_host(host))?;
    }
    load.end()
}

fn changes(storm: &Storm, rounds: u32) -> Result<()> {
    let chain = Chain::new(Family::V4)?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = chain.load(storm)?;
    beside(&chain.home, dump, || {
        for _ in 0..rounds * 4 {
            load.refill()?;
            let id = *rng.choice(&FORTH).unwrap_or(&1);
            chain.set(
                |port| {
                    port.delay_ns = rng.u64(..2_000_000);
                    port.jitter_ns = rng.u32(..1_000_000);
                    port.loss_ppm = rng.u32(..30_000);
                    port.burst = Some(([rng.u32(..10_000); 3], rng.u64(..)));
                    port.pool = [None, Some(0), Some(1)][rng.usize(..3)];
                    port.queue = Some(
                        Options {
                            limit_bytes: Some(rng.u32(3_000..100_000)),
                            rate_bytes_per_s: Some(rng.u64(100_000..20_000_000)),
                            pool_alpha_ppm: Some(rng.u32(500_000..4_000_000)),
                            ..Options::default()
                        }
                        .encode(),
                    );
                },
                id,
            )?;
            load.step()?;
        }
        // No part of a pool may be lost.
        for id in FORTH {
            chain.set(|port| port.pool = Some(0), id)?;
        }
        Ok(())
    })?;
    load.end()
}

fn networks(storm: &Storm, rounds: u32) -> Result<()> {
    let chain = Chain::new(Family::V4)?;
    let mut load = chain.load(storm)?;
    for round in 0..rounds {
        load.refill()?;
        delete(&chain)?;
        // The links lead nowhere now.
        load.step()?;
        let first_host = chain.first_host;
        let network = chain.home.run(|| build(first_host))?;
        *chain.network.borrow_mut() = network;
        for host in [0, 1] {
            if round % 2 == host {
                load.step()?;
            }
            chain.disconnect(host as usize)?;
            chain.connect(host as usize)?;
        }
    }
    load.end()
}

fn broken(storm: &Storm, rounds: u32) -> Result<()> {
    let chain = Chain::new(Family::V4)?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let mut load = chain.load(storm)?;
    // Each packet is marked.
    let options = Options {
        limit_bytes: Some(100_000),
        rate_bytes_per_s: Some(12_500_000),
        pmin_ppm: Some(0),
        pmax_ppm: Some(0),
        count_acks: Some(false),
        ..Options::default()
    };
    for id in FORTH {
        chain.set(|port| port.queue = Some(options.encode()), id)?;
    }
    for _ in 0..rounds {
        load.refill()?;
        chain.inject(&mut rng, if storm.debug { 100 } else { 1_000 })?;
        load.step()?;
    }
    load.end()
}

/// Softirqs of timers.
fn timers() -> Result<u64> {
    let text = fs::read_to_string("/proc/softirqs")?;
    let line = text.lines().find(|line| line.contains("HRTIMER"));
    let numbers = line.context("no HRTIMER")?.split_whitespace().skip(1);
    numbers.map(|number| Ok(number.parse::<u64>()?)).sum()
}

fn extremes(storm: &Storm, _rounds: u32) -> Result<()> {
    let half = 1u64 << 63;
    for delay_ns in [half - 1, half, u64::MAX - 1, u64::MAX, 3_600_000_000_000] {
        let chain = Chain::new(Family::V4)?;
        chain.set(|port| port.delay_ns = delay_ns, 1)?;
        chain.flood(0, 1_000)?;
        // The timer expires for these.
        chain.flood(1, 100)?;
        let before = timers()?;
        thread::sleep(Duration::from_millis(100));
        let state = chain.network.borrow_mut().port(1)?;
        // ICMP errors may join them.
        ensure!(state.wire_packets >= 1_000, "{delay_ns} ns: {state:?}");
        let expired = timers()? - before;
        ensure!(expired < 5_000, "{delay_ns} ns: {expired} timers expired");
    }
    // Without a delay, packets pass within one call.
    let chain = Chain::new(Family::V4)?;
    for id in 0..7 {
        chain.set(|port| port.delay_ns = 0, id)?;
    }
    let mut load = chain.load(storm)?;
    load.refill()?;
    load.end()
}

fn full(storm: &Storm, _rounds: u32) -> Result<()> {
    let packets = if storm.debug { 20_000 } else { 1_000_000 };
    let count = packets as u64;
    // Of a slow wire, a slow queue and a late wire, which empties at once.
    for case in 0..3 {
        let chain = Chain::new(Family::V4)?;
        let options = Options {
            limit_bytes: Some(u32::MAX),
            line_rate_bytes_per_s: Some(1_000_000_000),
            rate_bytes_per_s: Some(if case == 1 { 1 } else { 0 }),
            ..Options::default()
        };
        for id in FORTH {
            chain.set(|port| port.queue = Some(options.encode()), id)?;
        }
        let change = |port: &mut Port| match case {
            0 => port.rate_bytes_per_s = 1,
            1 => port.queue = Some(options.encode()),
            _ => {
                port.delay_ns = 10_000_000_000;
                port.queue = Some(options.encode());
            }
        };
        chain.set(change, 1)?;
        chain.flood(0, packets)?;
        let deadline = Instant::now() + PATIENCE;
        let mut state = chain.network.borrow_mut().port(1)?;
        while case == 2 && state.sent_packets < count {
            ensure!(Instant::now() < deadline, "{state:?}");
            thread::sleep(Duration::from_millis(100));
            state = chain.network.borrow_mut().port(1)?;
        }
        let all = state.wire_packets + state.queued_packets + state.sent_packets;
        ensure!(all == count, "{state:?}");
        delete(&chain)?;
    }
    Ok(())
}

fn reloads(storm: &Storm, rounds: u32) -> Result<()> {
    for round in 0..rounds.min(6) {
        let Chain { home, pair, .. } = Chain::new(Family::V4)?;
        let mut load = Load::new(storm, &pair, &[Family::V4])?;
        load.refill()?;
        if round % 2 == 0 {
            drop(home);
            load.step()?;
        }
        load.traffic.abandon();
        modules::unload(KIND)?;
        modules::load(KIND)?;
    }
    Ok(())
}

fn starved(storm: &Storm, rounds: u32) -> Result<()> {
    let chain = Chain::new(Family::V4)?;
    let mut load = chain.load(storm)?;
    failing(5, || {
        for _ in 0..rounds * 4 {
            load.step()?;
            let _ = load.refill();
        }
        Ok(())
    })?;
    load.end()
}
