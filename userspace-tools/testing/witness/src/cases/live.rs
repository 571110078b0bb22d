// SPDX-License-Identifier: GPL-2.0
//! Changes to a port under traffic: no loss except the queue of a deleted port, no duplicates, and counters
//! that add up.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use xdc_netlink::{
    phantom::{ColorSource, Gso, Mark, MarkAt, Options},
    qdisc::Handle,
};

use super::{
    Case,
    count::{RED_DSCPS, YELLOW_DSCPS},
};
use crate::{
    lab::{Lab, PORT, equal, refusal, run_on},
    sender::{Ecn, Frame, Kind, Sender},
};

pub const CASES: &[Case] = &[
    // Packets lost or counted again by a change.
    ("changing every option under traffic loses no packet", change),
    // Occupancy of colors or pool reset by a change.
    ("a change keeps the counts of queued bytes", change_held),
    // A port that stays slow until the current packet has left.
    ("a faster rate applies to waiting packets at once", change_rate),
    // A partial change.
    ("a refused change changes no option", refused_change),
    // A reset after which the port still counts packets.
    ("reset removes held packets from every count", reset_held),
    ("reset under traffic, ten times", reset_traffic),
    // Packets of a deleted queue; a pool that stays occupied.
    ("delete loses only the held packets", delete_held),
    ("delete and add under traffic, ten times", delete_traffic),
    ("replace by another port under traffic", replace_traffic),
];

/// Runs `work` while packets of all kinds are sent, some beyond the port's rate.
fn under_traffic(lab: &mut Lab, work: impl FnOnce(&mut Lab) -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    let own = Sender::open("eth0")?;
    let mut sender = std::mem::replace(&mut lab.sender, own);
    let processor = lab.last_processor;
    let (outcome, sent) = thread::scope(|scope| {
        let traffic = scope.spawn(|| run_on(processor).and_then(|()| traffic(&mut sender, &stop)));
        let outcome = work(lab);
        stop.store(true, Relaxed);
        let sent = traffic.join().unwrap_or_else(|_| Err(anyhow!("the sender panicked")));
        (outcome, sent)
    });
    lab.sender = sender;
    outcome.and(sent)
}

fn traffic(sender: &mut Sender, stop: &AtomicBool) -> Result<()> {
    let mut i = 0usize;
    while !stop.load(Relaxed) {
        for _ in 0..10 {
            i += 1;
            let kind = [Kind::Udp4, Kind::Udp6, Kind::Tcp4][i % 3];
            let ecn = [Ecn::Ect0, Ecn::NotEct, Ecn::Ect1, Ecn::Ce][i % 4];
            let frame =
                Frame::new(100 + i * 17 % 1_400).kind(kind).ecn(ecn).dscp([0, 8, 10][i % 3]);
            sender.send(&frame)?;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// 4 Mbit/s, which every machine exceeds.
fn narrow() -> Options {
    Options {
        limit_bytes: Some(50_000),
        rate_bytes_per_s: Some(500_000),
        mark: Some(Mark::Either),
        ..Options::default()
    }
}

fn pause() {
    thread::sleep(Duration::from_millis(15));
}

fn change(lab: &mut Lab) -> Result<()> {
    lab.port(&narrow())?;
    let one = Options::default;
    let changes = [
        Options { limit_bytes: Some(20_000), ..one() },
        Options { rate_bytes_per_s: Some(200_000), ..one() },
        Options { overhead_bytes: Some(24), ..one() },
        Options { mpu_bytes: Some(84), ..one() },
        Options { line_rate_bytes_per_s: Some(5_000_000), ..one() },
        Options { phantom_limit_bytes: Some(100_000), ..one() },
        Options { drain_ppm: Some(500_000), ..one() },
        Options { pmin_ppm: Some(0), ..one() },
        Options { pmax_ppm: Some(900_000), ..one() },
        Options { min_ppm: Some(100_000), ..one() },
        Options { max_ppm: Some(1_000_000), ..one() },
        Options { mark: Some(Mark::Both), ..one() },
        Options { mark_at: Some(MarkAt::Enqueue), ..one() },
        Options { ecn_drop: Some(true), ..one() },
        Options { count_acks: Some(false), ..one() },
        Options {
            color_source: Some(ColorSource::Dscp),
            dscp_red: Some(RED_DSCPS),
            dscp_yellow: Some(YELLOW_DSCPS),
            ..one()
        },
        Options { red_limit_bytes: Some(5_000), ..one() },
        Options { yellow_limit_bytes: Some(9_000), ..one() },
        Options { color_total: Some(true), ..one() },
        Options { gso: Some(Gso::Whole), ..one() },
        Options { pool: Some("a".into()), pool_limit_bytes: Some(15_000), ..one() },
        Options { pool_alpha_ppm: Some(700_000), ..one() },
        Options { pool: Some("b".into()), pool_limit_bytes: Some(20_000), ..one() },
        Options { pool: Some(String::new()), ..one() },
        Options { mark_at: Some(MarkAt::Dequeue), ..one() },
        Options { seed: Some(7), ..one() },
        Options { rate_bytes_per_s: Some(0), ..one() },
        Options { rate_bytes_per_s: Some(300_000), ..one() },
    ];
    under_traffic(lab, |lab| {
        for change in &changes {
            lab.change(change)?;
            pause();
        }
        Ok(())
    })?;
    lab.drain()?;
    let (account, port) = lab.balance(0)?;
    println!(
        "# {} packets, {} dropped, {} marked",
        account.sent.len(),
        port.state.drops,
        account.marked.len()
    );
    ensure!(port.state.drops > 0 && !account.marked.is_empty(), "too little traffic");
    let used = port.x.pool_used_bytes;
    equal("the pool of an empty port", used, 0)
}

fn change_held(lab: &mut Lab) -> Result<()> {
    let options = Options {
        limit_bytes: Some(50_000),
        color_source: Some(ColorSource::Dscp),
        dscp_red: Some(RED_DSCPS),
        dscp_yellow: Some(YELLOW_DSCPS),
        ..Options::default()
    };
    lab.hold(Handle::ROOT, &options, |lab| {
        lab.sender.send_all(4, &Frame::new(5_000).dscp(8))?;
        lab.sender.send_all(1, &Frame::new(1_000))?;
        Ok(21_000)
    })?;
    // Queued red packets count for the new limits and for the new pool.
    lab.change(&Options {
        red_limit_bytes: Some(20_100),
        pool: Some("late".into()),
        pool_limit_bytes: Some(30_000),
        pool_alpha_ppm: Some(u32::MAX),
        ..Options::default()
    })?;
    equal("pool_used_bytes", lab.look()?.x.pool_used_bytes, 21_000)?;
    use crate::{
        lab::expect,
        sender::Fate::{Refused, Taken},
    };
    for (bytes, dscp, fate) in
        [(101, 8, Refused), (100, 8, Taken), (8_901, 0, Refused), (8_900, 0, Taken)]
    {
        let got = lab.sender.send(&Frame::new(bytes).dscp(dscp))?;
        expect(got, fate, &format!("{bytes} bytes of DSCP {dscp}"))?;
    }
    lab.release(0)?;
    let (_, port) = lab.balance(0)?;
    equal("pool_used_bytes", port.x.pool_used_bytes, 0)
}

fn change_rate(lab: &mut Lab) -> Result<()> {
    for rate_bytes_per_s in [1_000_000, 0] {
        // The first packet takes a thousand seconds.
        lab.port(&Options {
            rate_bytes_per_s: Some(1),
            mark: Some(Mark::None),
            ..Options::default()
        })?;
        lab.sender.send_all(3, &Frame::new(1_000))?;
        lab.until("the first packet to pass", |lab| Ok(lab.after.total()?.packets == 1))?;
        equal("packets queued", lab.look()?.state.backlog_packets, 2)?;
        lab.release(rate_bytes_per_s)?;
        let (account, _) = lab.balance(0)?;
        equal("packets out", account.received.len(), 3)?;
        lab.delete()?;
        lab.forget()?;
    }
    Ok(())
}

fn refused_change(lab: &mut Lab) -> Result<()> {
    lab.port(&narrow())?;
    let before = lab.look()?.options;
    // Valid options come first and must not take effect.
    let request = lab
        .qdisc(
            PORT,
            &Options {
                limit_bytes: Some(7),
                rate_bytes_per_s: Some(8),
                mark: Some(Mark::None),
                pmin_ppm: Some(900_000),
                pmax_ppm: Some(100_000),
                ..Options::default()
            },
        )
        .change();
    let said = refusal(lab.try_request(request))?;
    equal("the kernel's error", said.as_str(), "pmin must not exceed pmax")?;
    equal("options", lab.look()?.options, before)?;
    lab.sender.send_all(5, &Frame::new(1_000))?;
    lab.drain()?;
    lab.balance(0).map(|_| ())
}

fn reset_held(lab: &mut Lab) -> Result<()> {
    let options = Options {
        pool: Some("reset".into()),
        pool_limit_bytes: Some(1_000_000),
        red_limit_bytes: Some(10_000),
        color_source: Some(ColorSource::Dscp),
        dscp_red: Some(RED_DSCPS),
        dscp_yellow: Some(YELLOW_DSCPS),
        ..narrow()
    };
    lab.hold(Handle::ROOT, &options, |lab| {
        lab.sender.send_all(9, &Frame::new(1_000).dscp(8))?;
        lab.sender.send_all(3, &Frame::new(2_000))?;
        Ok(15_000)
    })?;
    lab.set_link(false)?;
    let port = lab.look()?;
    equal("packets after the reset", port.state.backlog_packets, 0)?;
    equal("bytes after the reset", port.state.backlog_bytes, 0)?;
    equal("pool after the reset", port.x.pool_used_bytes, 0)?;
    equal("phantom after the reset", port.x.phantom_bytes, 0)?;
    lab.set_link(true)?;
    lab.balance(12)?;
    // As after creation: red packets up to the limit pass at once.
    lab.change(&Options { rate_bytes_per_s: Some(0), ..Options::default() })?;
    lab.sender.send_all(1, &Frame::new(10_000).dscp(8))?;
    lab.drain()?;
    lab.balance(12).map(|_| ())
}

fn reset_traffic(lab: &mut Lab) -> Result<()> {
    lab.port(&narrow())?;
    under_traffic(lab, |lab| {
        for _ in 0..10 {
            pause();
            lab.set_link(false)?;
            lab.set_link(true)?;
        }
        pause();
        Ok(())
    })?;
    lab.drain()?;
    let account = lab.account()?;
    let port = lab.look()?;
    equal("packets out", port.state.sent_packets, account.received.len() as u64)?;
    equal("marked", port.x.marked(), account.marked.len() as u64)?;
    // At most ten full queues of the smallest packets were purged.
    let purged = account.missing.len() as u64 - port.state.drops;
    println!("# {} packets, {purged} purged by resets", account.sent.len());
    ensure!(purged <= 10 * 50_000 / 100, "{purged} packets purged");
    equal("backlog", (port.state.backlog_packets, port.state.backlog_bytes), (0, 0))
}

fn delete_held(lab: &mut Lab) -> Result<()> {
    let options =
        Options { pool: Some("gone".into()), pool_limit_bytes: Some(1_000_000), ..narrow() };
    for round in 0..3 {
        lab.clear()?;
        lab.hold(Handle::ROOT, &options, |lab| {
            lab.sender.send_all(20, &Frame::new(1_500))?;
            Ok(30_000)
        })?;
        equal("pool", lab.look()?.x.pool_used_bytes, 30_000)?;
        lab.delete()?;
        lab.sender.send_all(4, &Frame::new(700))?;
        lab.settle()?;
        let account = lab.account()?;
        equal(&format!("round {round}: missing"), account.missing.len(), 20)?;
        equal("received", account.received.len(), 1 + 4)?;
    }
    // A new port of the same pool starts with an empty pool.
    lab.port(&options)?;
    equal("pool of a new port", lab.look()?.x.pool_used_bytes, 0)
}

fn delete_traffic(lab: &mut Lab) -> Result<()> {
    lab.port(&narrow())?;
    under_traffic(lab, |lab| {
        for _ in 0..10 {
            pause();
            lab.delete()?;
            pause();
            lab.add(Handle::ROOT, &narrow())?;
        }
        Ok(())
    })?;
    lab.drain()?;
    let account = lab.account()?;
    println!("# {} packets, {} dropped or purged", account.sent.len(), account.missing.len());
    equal("backlog", lab.look()?.state.backlog_packets, 0)
}

fn replace_traffic(lab: &mut Lab) -> Result<()> {
    lab.port(&narrow())?;
    under_traffic(lab, |lab| {
        for round in 0..10 {
            pause();
            let handle = Handle { major: 0x20 + round, minor: 0 };
            let request = lab.qdisc(handle, &narrow()).replace();
            lab.request(request)?;
        }
        pause();
        Ok(())
    })?;
    lab.drain()?;
    let account = lab.account()?;
    let port = lab.look()?;
    // The last port has counted only its own packets.
    ensure!(
        port.state.sent_packets <= account.received.len() as u64 && port.state.sent_packets > 0,
        "{} of {}",
        port.state.sent_packets,
        account.received.len()
    );
    equal("backlog", port.state.backlog_packets, 0)
}
