// SPDX-License-Identifier: GPL-2.0
//! Exact comparison of the port's counters with the witnesses'.

use anyhow::{Context, Result, ensure};
use xdc_netlink::{
    phantom::{Color, ColorSource, Mark, MarkAt, Options},
    qdisc::Handle,
};

use super::Case;
use crate::{
    lab::{Account, Lab, PLUG_BYTES, Port, equal},
    record::Record,
    sender::{Ecn, Fate, Frame, Kind},
};

pub const CASES: &[Case] = &[
    // A counter missed on any path; a color counted as another.
    ("mixed packets, held and released, are counted", mix),
    // A drop reported to the sender but not counted, or the reverse.
    ("the sender is notified of each drop and of nothing else", sender_learns),
    // Time counted while the port is empty, or not counted while it has a queue.
    ("busy time is the time with a queue", busy),
    // A maximum of another moment.
    ("backlog_max is the highest backlog", backlog_max),
];

const RED: u8 = 8;
const YELLOW: u8 = 10;

/// DSCP 8 is red, 10 yellow, the others green.
pub const RED_DSCPS: u64 = 1 << RED;
pub const YELLOW_DSCPS: u64 = 1 << YELLOW;

/// Expected color of a packet.
fn color(record: &Record) -> Color {
    match record.is_ip {
        0 => Color::Green,
        _ if record.dscp() == RED => Color::Red,
        _ if record.dscp() == YELLOW => Color::Yellow,
        _ => Color::Green,
    }
}

/// Compares packets and bytes by color.
fn compare_colors(account: &Account, port: &Port) -> Result<()> {
    let x = &port.x;
    for (of, packets, accepted, drops) in [
        (Color::Green, x.packets_green, x.bytes_green, x.drops_green),
        (Color::Yellow, x.packets_yellow, x.bytes_yellow, x.drops_yellow),
        (Color::Red, x.packets_red, x.bytes_red, x.drops_red),
    ] {
        let bytes = |records: &[Record]| -> u64 {
            let colored = records.iter().filter(|r| color(r) == of);
            colored.map(|r| u64::from(r.bytes)).sum()
        };
        let missing = account.missing.iter().filter(|r| color(r) == of).count();
        equal(&format!("drops_{of}"), drops, missing as u64)?;
        let taken = bytes(&account.sent) - bytes(&account.missing);
        equal(&format!("bytes_{of}"), accepted, taken)?;
        let sent = account.sent.iter().filter(|r| color(r) == of).count();
        equal(&format!("packets_{of}"), packets, (sent - missing) as u64)?;
        ensure!(drops > 0, "no {of} packet was dropped");
    }
    Ok(())
}

fn mix(lab: &mut Lab) -> Result<()> {
    let options = Options {
        limit_bytes: Some(300_000),
        red_limit_bytes: Some(40_000),
        yellow_limit_bytes: Some(60_000),
        color_source: Some(ColorSource::Dscp),
        dscp_red: Some(RED_DSCPS),
        dscp_yellow: Some(YELLOW_DSCPS),
        phantom_limit_bytes: Some(600_000),
        pmin_ppm: Some(0),
        pmax_ppm: Some(1_000_000),
        line_rate_bytes_per_s: Some(1_000_000),
        mark: Some(Mark::Either),
        mark_at: Some(MarkAt::Dequeue),
        ..Options::default()
    };
    let mut taken = 0;
    lab.hold(Handle::ROOT, &options, |lab| {
        let mut bytes = 0;
        for i in 0..900usize {
            let kind = [Kind::Udp4, Kind::Udp6, Kind::Tcp4, Kind::Other][i % 7 % 4];
            let ecn = [Ecn::Ect0, Ecn::NotEct, Ecn::Ect1, Ecn::Ce, Ecn::Ect0][i % 5];
            let frame = Frame::new(kind.header_bytes() + 4 + i * 37 % 1400)
                .kind(kind)
                .ecn(ecn)
                .dscp([0, RED, 46, YELLOW, RED, YELLOW][i % 6])
                .port(1000 + (i % 11) as u16);
            if lab.sender.send(&frame)? == Fate::Taken {
                bytes += frame.bytes as u64;
            }
        }
        taken = bytes;
        Ok(bytes)
    })?;

    // While the port holds, packets not out are dropped or queued.
    let held = lab.look()?;
    let (sent, received) = (lab.before.total()?, lab.after.total()?);
    equal("packets out", held.state.sent_packets, received.packets)?;
    equal("bytes out", held.state.sent_bytes, PLUG_BYTES)?;
    equal(
        "packets out + dropped + queued",
        held.state.sent_packets + held.state.drops + held.state.backlog_packets,
        sent.packets,
    )?;
    equal("backlog", held.state.backlog_bytes, taken)?;

    lab.release(100_000_000)?;
    let (account, port) = lab.balance(0)?;
    ensure!(!account.marked.is_empty(), "no packet was marked");
    let x = &port.x;
    equal("drops_limit + drops_color", x.drops_limit + x.drops_color, port.state.drops)?;
    ensure!(x.drops_limit > 0 && x.drops_color > 0, "no drops of one cause");
    compare_colors(&account, &port)?;
    // The witness distinguishes eleven ports, two IP versions, two protocols and four DSCPs.
    let flows = lab.before.flows()?.len();
    ensure!(flows > 100, "{flows} flows");
    Ok(())
}

fn sender_learns(lab: &mut Lab) -> Result<()> {
    let options = Options { limit_bytes: Some(20_000), ..Options::default() };
    let mut refused = 0;
    lab.hold(Handle::ROOT, &options, |lab| {
        let mut bytes = 0;
        refused = 0;
        for i in 0..100 {
            let frame = Frame::new(100 + i * 13);
            match lab.sender.send(&frame)? {
                Fate::Taken => bytes += frame.bytes as u64,
                _ => refused += 1,
            }
        }
        Ok(bytes)
    })?;
    lab.release(0)?;
    let (_, port) = lab.balance(0)?;
    ensure!(refused > 0, "no packet was refused");
    equal("drops", port.state.drops, refused)
}

fn busy(lab: &mut Lab) -> Result<()> {
    const RATE: u64 = 100_000;
    const BYTES: u64 = 5_000;
    lab.port(&Options { rate_bytes_per_s: Some(RATE), ..Options::default() })?;
    // Twice three packets, with a pause between. The queue lasts from the second packet's arrival until the
    // third leaves, which is not before two are serialized. There is none before the first and after the
    // third.
    let (mut least_ns, mut most_ns) = (0, 0);
    for _ in 0..2 {
        lab.forget()?;
        lab.sender.send_all(3, &Frame::new(BYTES as usize))?;
        lab.drain()?;
        let start_ns = lab.before.records()?[0].at_ns;
        let end_ns = lab.after.records()?[2].at_ns;
        let second = lab.sender.over_ns(lab.sender.number() - 1);
        let second_ns = second.context("no second packet")?;
        least_ns += start_ns + 2 * BYTES * 1_000_000_000 / RATE - second_ns;
        most_ns += end_ns - start_ns;
    }
    let busy_ns = lab.look()?.x.busy_ns;
    println!("# busy for {busy_ns} ns, witness {least_ns} to {most_ns} ns");
    ensure!(
        (least_ns..=most_ns).contains(&busy_ns),
        "busy for {busy_ns} ns, witness {least_ns} to {most_ns} ns"
    );
    Ok(())
}

fn backlog_max(lab: &mut Lab) -> Result<()> {
    let options = Options { limit_bytes: Some(50_000), ..Options::default() };
    lab.hold(Handle::ROOT, &options, |lab| {
        lab.sender.send_all(7, &Frame::new(1_234))?;
        Ok(7 * 1_234)
    })?;
    lab.release(0)?;
    lab.sender.send_all(1, &Frame::new(999))?;
    lab.drain()?;
    let (_, port) = lab.balance(0)?;
    equal("backlog_max_bytes", port.x.backlog_max_bytes, 7 * 1_234)
}
