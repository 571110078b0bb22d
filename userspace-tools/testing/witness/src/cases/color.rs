// SPDX-License-Identifier: GPL-2.0
//! Admission of packets: thresholds to the byte, and the order of refusal. Tested in a held port, so that
//! nothing leaves between two packets.

use anyhow::Result;
use xdc_netlink::{
    phantom::{ColorSource, Options},
    qdisc::Handle,
};

use super::{
    Case,
    count::{RED_DSCPS, YELLOW_DSCPS},
};
use crate::{
    lab::{Lab, PORT, equal, expect},
    sender::{Fate, Frame},
};

pub const CASES: &[Case] = &[
    // < instead of <=, or a limit that omits or repeats the packet's bytes.
    ("limit is exact to the byte", limit),
    ("red-limit is exact to the byte", red_limit),
    ("yellow-limit is exact to the byte", yellow_limit),
    // Bytes counted under another color.
    ("red-limit counts red bytes only, yellow-limit yellow bytes only", own_bytes),
    ("color-total: both limits count every byte", color_total),
    // An important packet dropped instead of an unimportant one.
    ("red is dropped first, then yellow, then green", precedence),
    // Bytes still counted after their packets have left.
    ("departing packets free a limit", frees),
    // A color from the wrong source.
    ("color none: every packet is green", source_none),
    ("color priority: MAJ is the handle, MIN the color", source_priority),
    ("a lower limit keeps queued packets and accepts no more", lower_limit),
    // Room that two ports take, or that is never released.
    ("a shared pool is exact to the byte", pool),
    ("pool-alpha limits a port to its share of the free pool", pool_alpha),
];

const RED: u8 = 8;
const YELLOW: u8 = 10;
const GREEN: u8 = 0;

fn options() -> Options {
    Options {
        limit_bytes: Some(100_000),
        color_source: Some(ColorSource::Dscp),
        dscp_red: Some(RED_DSCPS),
        dscp_yellow: Some(YELLOW_DSCPS),
        ..Options::default()
    }
}

/// Color, bytes and expected fate of a packet.
type Step = (u8, usize, Fate);
use Fate::{Refused, Taken};

/// Sends packets to a held port and checks the fate of each.
fn steps(lab: &mut Lab, options: &Options, steps: &[Step]) -> Result<()> {
    // Checked once the port is known to have held; before that, a packet may have left.
    let mut fates = Vec::new();
    let taken = |steps: &[Step], fates: &[Fate]| -> u64 {
        let taken = steps.iter().zip(fates).filter(|(_, fate)| **fate == Taken);
        taken.map(|((_, bytes, _), _)| *bytes as u64).sum()
    };
    lab.hold(Handle::ROOT, options, |lab| {
        fates.clear();
        for (dscp, bytes, _) in steps {
            fates.push(lab.sender.send(&Frame::new(*bytes).dscp(*dscp))?);
        }
        Ok(taken(steps, &fates))
    })?;
    for (i, ((dscp, bytes, expected), fate)) in steps.iter().zip(&fates).enumerate() {
        expect(*fate, *expected, &format!("packet {i}, {bytes} bytes of DSCP {dscp}"))?;
    }
    lab.release(0)?;
    lab.balance(0).map(|_| ())
}

fn limit(lab: &mut Lab) -> Result<()> {
    let all = [
        (GREEN, 60_000, Taken),
        (GREEN, 39_000, Taken),
        (GREEN, 1_001, Refused),
        (GREEN, 900, Taken),
        (GREEN, 101, Refused),
        (GREEN, 100, Taken),
        (GREEN, 50, Refused),
    ];
    steps(lab, &options(), &all)?;
    equal("drops_limit", lab.look()?.x.drops_limit, 3)?;
    equal("backlog_max", lab.look()?.x.backlog_max_bytes, 100_000)
}

fn one_color(lab: &mut Lab, dscp: u8, options: &Options) -> Result<()> {
    let all = [
        (dscp, 9_000, Taken),
        (dscp, 1_001, Refused),
        (dscp, 900, Taken),
        (dscp, 101, Refused),
        (dscp, 100, Taken),
        (dscp, 50, Refused),
        (GREEN, 50_000, Taken),
    ];
    steps(lab, options, &all)?;
    equal("drops_color", lab.look()?.x.drops_color, 3)
}

fn red_limit(lab: &mut Lab) -> Result<()> {
    let options = Options { red_limit_bytes: Some(10_000), ..options() };
    one_color(lab, RED, &options)?;
    equal("drops_red", lab.look()?.x.drops_red, 3)
}

fn yellow_limit(lab: &mut Lab) -> Result<()> {
    let options = Options { yellow_limit_bytes: Some(10_000), ..options() };
    one_color(lab, YELLOW, &options)?;
    equal("drops_yellow", lab.look()?.x.drops_yellow, 3)
}

fn own_bytes(lab: &mut Lab) -> Result<()> {
    let options =
        Options { red_limit_bytes: Some(10_000), yellow_limit_bytes: Some(20_000), ..options() };
    let all = [
        (GREEN, 30_000, Taken),
        (YELLOW, 20_000, Taken),
        (RED, 10_000, Taken),
        (RED, 50, Refused),
        (YELLOW, 50, Refused),
        (GREEN, 40_000, Taken),
        (GREEN, 50, Refused),
    ];
    steps(lab, &options, &all)
}

fn color_total(lab: &mut Lab) -> Result<()> {
    let options = Options {
        red_limit_bytes: Some(10_000),
        yellow_limit_bytes: Some(20_000),
        color_total: Some(true),
        ..options()
    };
    let all = [
        (GREEN, 4_000, Taken),
        (YELLOW, 3_000, Taken),
        (RED, 3_001, Refused),
        (RED, 3_000, Taken),
        (RED, 50, Refused),
        (YELLOW, 10_001, Refused),
        (YELLOW, 10_000, Taken),
        (YELLOW, 50, Refused),
        (GREEN, 60_000, Taken),
    ];
    steps(lab, &options, &all)
}

fn precedence(lab: &mut Lab) -> Result<()> {
    let options = Options {
        red_limit_bytes: Some(30_000),
        yellow_limit_bytes: Some(60_000),
        color_total: Some(true),
        ..options()
    };
    // Offer the colors in turn until all are refused.
    let mut all = Vec::new();
    for i in 0..110 {
        let queued = |limit: usize| i * 1_000 < limit;
        // Only admitted packets fill the queue; each row adds one packet.
        all.push((RED, 1_000, if queued(30_000) { Taken } else { Refused }));
        if !queued(30_000) {
            all.push((YELLOW, 1_000, if queued(60_000) { Taken } else { Refused }));
        }
        if !queued(60_000) {
            all.push((GREEN, 1_000, if queued(100_000) { Taken } else { Refused }));
        }
    }
    steps(lab, &options, &all)?;
    let x = lab.look()?.x;
    equal("most red bytes", x.red_max_bytes, 30_000)?;
    equal("drops of red", x.drops_red, 80)?;
    equal("drops of yellow", x.drops_yellow, 50)?;
    equal("drops of green", x.drops_green, 10)?;
    // The queue limit is checked first.
    equal("drops at the limit", x.drops_limit, 30)?;
    equal("drops at color limits", x.drops_color, 110)
}

fn frees(lab: &mut Lab) -> Result<()> {
    let options = Options { red_limit_bytes: Some(10_000), ..options() };
    let all = [(RED, 10_000, Taken), (RED, 50, Refused)];
    steps(lab, &options, &all)?;
    // The queue is empty, so the same packets fit again.
    for _ in 0..3 {
        lab.sender.send_all(1, &Frame::new(10_000).dscp(RED))?;
        lab.drain()?;
    }
    let (_, port) = lab.balance(0)?;
    equal("drops", port.state.drops, 1)
}

fn source_none(lab: &mut Lab) -> Result<()> {
    let options =
        Options { red_limit_bytes: Some(100), color_source: Some(ColorSource::None), ..options() };
    let all = [(RED, 10_000, Taken), (YELLOW, 10_000, Taken)];
    steps(lab, &options, &all)?;
    // 21,000 bytes include the plug.
    let x = lab.look()?.x;
    equal("bytes_green", x.bytes_green, 21_000)?;
    equal(
        "packets by color of a filter that is not used",
        [x.packets_green, x.packets_yellow, x.packets_red],
        [0; 3],
    )
}

fn source_priority(lab: &mut Lab) -> Result<()> {
    lab.port(&Options { color_source: Some(ColorSource::Priority), ..options() })?;
    let own = u32::from(PORT.major) << 16;
    let mut colors = [0; 3];
    for (priority, color) in [
        (0, 0),
        (1, 0),
        (3, 0),
        (own, 0),
        (own | 1, 0),
        (own | 2, 1),
        (own | 3, 2),
        (own | 4, 0),
        // A handle of another qdisc.
        (0x20_0003, 0),
    ] {
        let frame = Frame::new(1_000).priority(priority);
        lab.sender.send_all(1, &frame)?;
        colors[color] += 1_000;
        let x = lab.look()?.x;
        equal(
            &format!("bytes by color after priority {priority:#x}"),
            [x.bytes_green, x.bytes_yellow, x.bytes_red],
            colors,
        )?;
    }
    Ok(())
}

fn lower_limit(lab: &mut Lab) -> Result<()> {
    lab.hold(Handle::ROOT, &options(), |lab| {
        lab.sender.send_all(5, &Frame::new(10_000))?;
        Ok(50_000)
    })?;
    lab.change(&Options { limit_bytes: Some(1_000), ..Options::default() })?;
    equal("backlog", lab.look()?.state.backlog_packets, 5)?;
    let fate = lab.sender.send(&Frame::new(60))?;
    expect(fate, Refused, "a packet above the new limit")?;
    lab.release(0)?;
    let (account, _) = lab.balance(0)?;
    equal("missing", account.missing.len(), 1)
}

/// Two ports below a prio, which share a pool. After their plugs, nothing leaves for a quarter of an hour.
fn pooled(lab: &mut Lab, alpha_ppm: u32) -> Result<()> {
    lab.tc(
        "qdisc add dev DEV root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    )?;
    for minor in [1, 2] {
        lab.add_as(
            port(minor),
            band(minor),
            &Options {
                pool: Some("tor".to_string()),
                pool_limit_bytes: Some(POOL_BYTES as u32),
                pool_alpha_ppm: Some(alpha_ppm),
                limit_bytes: Some(1_000_000),
                rate_bytes_per_s: Some(1),
                drain_ppm: Some(1_000_000),
                ..Options::default()
            },
        )?;
        let plug = Frame::new(1_000).priority(priority(minor));
        lab.sender.send_all(1, &plug)?;
    }
    lab.until("the plugs to pass", |lab| Ok(lab.after.total()?.packets == 2))
}

const POOL_BYTES: u64 = 10_000;

fn port(minor: u16) -> Handle {
    Handle { major: PORT.major + minor, minor: 0 }
}

fn band(minor: u16) -> Handle {
    Handle { major: 1, minor }
}

/// skb->priority that selects a band.
fn priority(minor: u16) -> u32 {
    0x1_0000 | u32::from(minor)
}

/// Sends packets (band, bytes), and checks the fate of each and the bytes in the pool.
fn pool_steps(lab: &mut Lab, used_bytes: u64, steps: &[(u16, usize, Fate)]) -> Result<()> {
    let mut used_bytes = used_bytes;
    for (i, (minor, bytes, expected)) in steps.iter().enumerate() {
        let frame = Frame::new(*bytes).priority(priority(*minor));
        let what = format!("packet {i}, {bytes} bytes for port {minor}");
        expect(lab.sender.send(&frame)?, *expected, &what)?;
        if *expected == Taken {
            used_bytes += *bytes as u64;
        }
        for state in lab.phantoms()? {
            equal(&format!("pool after {what}"), state.x.pool_used_bytes, used_bytes)?;
        }
    }
    Ok(())
}

fn pool(lab: &mut Lab) -> Result<()> {
    // In effect, no threshold per port.
    pooled(lab, u32::MAX)?;
    let all = [
        (1, 6_000, Taken),
        (2, 3_000, Taken),
        (1, 1_001, Refused),
        (2, 1_000, Taken),
        (1, 50, Refused),
        (2, 50, Refused),
    ];
    pool_steps(lab, 0, &all)?;
    let drops: u64 = lab.phantoms()?.iter().map(|port| port.x.drops_pool).sum();
    equal("drops_pool", drops, 3)?;

    // Deleting a port frees its share of the pool.
    lab.delete_at(band(1))?;
    lab.until("an empty pool", |lab| {
        Ok(lab.phantoms()?.iter().all(|port| port.x.pool_used_bytes == 4_000))
    })?;
    let all = [(2, 6_001, Refused), (2, 6_000, Taken), (2, 50, Refused)];
    pool_steps(lab, 4_000, &all)
}

fn pool_alpha(lab: &mut Lab) -> Result<()> {
    pooled(lab, 1_000_000)?;
    // A port may hold as much as is free before the packet arrives.
    let all = [
        (1, 4_000, Taken),
        (1, 2_001, Refused),
        (1, 2_000, Taken),
        (1, 50, Refused),
        (2, 4_001, Refused),
        (2, 4_000, Taken),
        (2, 50, Refused),
    ];
    pool_steps(lab, 0, &all)?;
    lab.clear()?;
    pooled(lab, 500_000)?;
    let all = [(1, 5_001, Refused), (1, 5_000, Taken), (1, 50, Refused)];
    pool_steps(lab, 0, &all)?;
    let free = POOL_BYTES - 5_000;
    let most = (free / 2) as usize;
    let all = [(2, most + 1, Refused), (2, most, Taken)];
    pool_steps(lab, 5_000, &all)
}
