// SPDX-License-Identifier: GPL-2.0
//! Marks against the RED line.
//!
//! The occupancy at each packet is known to the byte, and so are the probability of its mark, the expected
//! number of marks and their variance. A count more than three standard deviations off fails.

use anyhow::{Context, Result, ensure};
use xdc_netlink::{
    phantom::{Mark, MarkAt, Options},
    qdisc::Handle,
};

use super::Case;
use crate::{
    lab::{Account, Lab, PLUG_BYTES, equal},
    sender::{Ecn, Frame, Kind},
};

pub const CASES: &[Case] = &[
    // A wrong ramp, the threshold of the wrong queue, or a decision that counts the packet itself.
    ("phantom at enqueue marks with the configured probability", phantom_at_enqueue),
    ("phantom at dequeue marks with the configured probability", phantom_at_dequeue),
    ("physical at enqueue marks with the configured probability", physical_at_enqueue),
    // A backlog read before the packet has left it.
    ("physical at dequeue marks with the configured probability", physical_at_dequeue),
    // One random number for both decisions, or a mark counted under another cause.
    ("either marks with probability 1 - (1 - p)(1 - q), by cause", either),
    ("both marks with probability pq", both),
    // >= instead of >, or an extra packet length, at either end of the ramp.
    ("phantom: a step threshold is exact to the byte", phantom_step),
    ("physical: a step threshold is exact to the byte, at enqueue", physical_step_at_enqueue),
    ("physical: a step threshold is exact to the byte, at dequeue", physical_step_at_dequeue),
    // Marks that no endpoint understands.
    ("Not-ECT, CE and non-IP packets are chosen, but not marked", unmarkable),
    // A drop not counted as such, or a drop of an ECT packet.
    ("ecn-drop drops Not-ECT packets at enqueue", ecn_drop_at_enqueue),
    ("ecn-drop drops Not-ECT packets at dequeue", ecn_drop_at_dequeue),
    ("mark none marks no packet", none),
];

/// Both ramps rise from 1 to 9 MB.
const LIMIT_BYTES: u64 = 10_000_000;
const MIN_PPM: u32 = 100_000;
const MAX_PPM: u32 = 900_000;
const MIN_BYTES: u64 = 1_000_000;
const MAX_BYTES: u64 = 9_000_000;

/// Occupancies at probes: below, at the ends of, along and above the ramp.
const POINTS_BYTES: [u64; 7] =
    [500_000, 1_000_000, 2_000_000, 3_500_000, 5_000_000, 7_500_000, 9_000_000];
const PROBES: u64 = 300;
const PROBE_BYTES: u64 = 60;
const FILLER_BYTES: u64 = 60_000;

/// RED on either queue; the phantom queue drains one byte per second, the minimum.
fn options(mark: Mark, at: MarkAt) -> Options {
    Options {
        limit_bytes: Some(LIMIT_BYTES as u32),
        phantom_limit_bytes: Some(LIMIT_BYTES),
        line_rate_bytes_per_s: Some(1_000_000),
        drain_ppm: Some(1),
        pmin_ppm: Some(MIN_PPM),
        pmax_ppm: Some(MAX_PPM),
        min_ppm: Some(MIN_PPM),
        max_ppm: Some(MAX_PPM),
        mark: Some(mark),
        mark_at: Some(at),
        ..Options::default()
    }
}

/// The RED line.
fn probability(bytes: u64) -> f64 {
    let ramp = (MAX_BYTES - MIN_BYTES) as f64;
    ((bytes as f64 - MIN_BYTES as f64) / ramp).clamp(0.0, 1.0)
}

/// Checks that the marks of packets with these probabilities are within three standard deviations.
fn three_sigma(what: &str, marks: u64, chances: &[f64]) -> Result<()> {
    let expected: f64 = chances.iter().sum();
    let sigma = chances.iter().map(|p| p * (1.0 - p)).sum::<f64>().sqrt();
    let off = marks as f64 - expected;
    println!(
        "# {what}: {marks} of {} marked, {expected:.1} expected, sigma {sigma:.1}, off {off:+.1}",
        chances.len()
    );
    // At probability 0 or 1 only rounding of the sum remains.
    ensure!(
        off.abs() <= 3.0 * sigma + 1e-6,
        "{what}: {marks} marks are {off:+.1} off, sigma is {sigma:.2}"
    );
    Ok(())
}

/// A probe and the occupancy at its arrival.
struct Probe {
    number: u32,
    finds_bytes: u64,
}

/// Fills the queue from `bytes` to each point in turn, and sends probes there.
fn probe(lab: &mut Lab, mut bytes: u64) -> Result<(Vec<Vec<Probe>>, u64)> {
    let mut points = Vec::new();
    for point in POINTS_BYTES {
        while bytes < point {
            let left = point - bytes;
            // A filler must not be shorter than its headers.
            let next = match left {
                0..=FILLER_BYTES => left,
                _ => FILLER_BYTES.min(left - 100),
            };
            let filler = Frame::new(next as usize).ecn(Ecn::NotEct);
            lab.sender.send_all(1, &filler)?;
            bytes += next;
        }
        let mut probes = Vec::new();
        for _ in 0..PROBES {
            lab.sender.send_all(1, &Frame::new(PROBE_BYTES as usize))?;
            probes.push(Probe { number: lab.sender.number(), finds_bytes: bytes });
            bytes += PROBE_BYTES;
        }
        points.push(probes);
    }
    Ok((points, bytes))
}

/// Compares the marks at each point with the probability `chance`.
fn compare(account: &Account, points: &[Vec<Probe>], chance: impl Fn(u64) -> f64) -> Result<()> {
    for (point, probes) in POINTS_BYTES.iter().zip(points) {
        let chances: Vec<f64> = probes.iter().map(|p| chance(p.finds_bytes)).collect();
        let marks =
            probes.iter().filter(|p| account.marked.binary_search(&p.number).is_ok()).count();
        three_sigma(&format!("{point} bytes"), marks as u64, &chances)?;
    }
    Ok(())
}

fn phantom_at_enqueue(lab: &mut Lab) -> Result<()> {
    lab.port(&options(Mark::Phantom, MarkAt::Enqueue))?;
    let (points, _) = probe(lab, 0)?;
    lab.drain()?;
    let (account, port) = lab.balance(0)?;
    compare(&account, &points, probability)?;
    equal("marked_phantom", port.x.marked_phantom, port.x.marked())
}

fn phantom_at_dequeue(lab: &mut Lab) -> Result<()> {
    lab.port(&options(Mark::Phantom, MarkAt::Dequeue))?;
    let (points, _) = probe(lab, 0)?;
    lab.drain()?;
    let (account, _) = lab.balance(0)?;
    // At dequeue, the counter includes the packet itself.
    compare(&account, &points, |bytes| probability(bytes + PROBE_BYTES))
}

fn physical_at_enqueue(lab: &mut Lab) -> Result<()> {
    let mut points = Vec::new();
    lab.hold(Handle::ROOT, &options(Mark::Physical, MarkAt::Enqueue), |lab| {
        let bytes;
        (points, bytes) = probe(lab, 0)?;
        Ok(bytes)
    })?;
    lab.release(0)?;
    let (account, port) = lab.balance(0)?;
    compare(&account, &points, probability)?;
    equal("marked_physical", port.x.marked_physical, port.x.marked())
}

fn physical_at_dequeue(lab: &mut Lab) -> Result<()> {
    const PACKETS: u64 = 2_400;
    const BYTES: u64 = 4_000;

    lab.hold(Handle::ROOT, &options(Mark::Physical, MarkAt::Dequeue), |lab| {
        lab.sender.send_all(PACKETS as usize, &Frame::new(BYTES as usize))?;
        Ok(PACKETS * BYTES)
    })?;
    let first = lab.sender.number() - PACKETS as u32 + 1;
    lab.release(0)?;
    let (account, _) = lab.balance(0)?;
    // Packet k leaves PACKETS - k - 1 behind.
    let left_bytes = |k: u64| (PACKETS - k - 1) * BYTES;
    for eighth in 0..8 {
        let part = eighth * PACKETS / 8..(eighth + 1) * PACKETS / 8;
        let chances: Vec<f64> = part.clone().map(|k| probability(left_bytes(k))).collect();
        let marks = part
            .clone()
            .filter(|k| account.marked.binary_search(&(first + *k as u32)).is_ok())
            .count();
        let what = format!("{} to {} bytes", left_bytes(part.end - 1), left_bytes(part.start));
        three_sigma(&what, marks as u64, &chances)?;
    }
    Ok(())
}

/// Marks with equal occupancy of both queues, except for the plug, which only the phantom queue counts.
fn two_queues(lab: &mut Lab, mark: Mark) -> Result<(Account, Vec<Vec<Probe>>, [u64; 3])> {
    let mut points = Vec::new();
    lab.hold(Handle::ROOT, &options(mark, MarkAt::Enqueue), |lab| {
        let bytes;
        (points, bytes) = probe(lab, 0)?;
        Ok(bytes)
    })?;
    lab.release(0)?;
    let (account, port) = lab.balance(0)?;
    let x = port.x;
    Ok((account, points, [x.marked_phantom, x.marked_physical, x.marked_both]))
}

fn either(lab: &mut Lab) -> Result<()> {
    let (account, points, causes) = two_queues(lab, Mark::Either)?;
    let phantom = |bytes| probability(bytes + PLUG_BYTES);
    compare(&account, &points, |bytes| 1.0 - (1.0 - phantom(bytes)) * (1.0 - probability(bytes)))?;
    // Fillers are Not-ECT, so only probes are marked.
    let by_cause: [fn(f64, f64) -> f64; 3] =
        [|p, q| p * (1.0 - q), |p, q| (1.0 - p) * q, |p, q| p * q];
    for ((cause, marks), chance) in
        ["phantom alone", "physical alone", "both"].iter().zip(causes).zip(by_cause)
    {
        let chances: Vec<f64> = points
            .iter()
            .flatten()
            .map(|p| chance(phantom(p.finds_bytes), probability(p.finds_bytes)))
            .collect();
        three_sigma(cause, marks, &chances)?;
    }
    Ok(())
}

fn both(lab: &mut Lab) -> Result<()> {
    let (account, points, causes) = two_queues(lab, Mark::Both)?;
    compare(&account, &points, |bytes| probability(bytes + PLUG_BYTES) * probability(bytes))?;
    equal("marked by one alone", causes[0] + causes[1], 0)
}

/// RED that rises from 0 to 1 at one point.
fn step(mark: Mark, at: MarkAt) -> Options {
    Options {
        pmin_ppm: Some(500_000),
        pmax_ppm: Some(500_000),
        min_ppm: Some(500_000),
        max_ppm: Some(500_000),
        ..options(mark, at)
    }
}

const STEP_BYTES: u64 = LIMIT_BYTES / 2;

/// Checks the marks of the last packets sent.
fn expect_marks(lab: &Lab, account: &Account, expected: &[bool]) -> Result<()> {
    let first = lab.sender.number() + 1 - expected.len() as u32;
    for (number, expected) in (first..).zip(expected) {
        let marked = account.marked.binary_search(&number).is_ok();
        ensure!(
            marked == *expected,
            "packet {number} of {first} to {}: marked {marked}, expected {expected}",
            lab.sender.number()
        );
    }
    Ok(())
}

fn phantom_step(lab: &mut Lab) -> Result<()> {
    for (short_of_step, marked) in [(1, false), (0, true)] {
        // The counter rounds up, so nothing drains in the first second. Slower machines try again.
        let account = (0..20).find_map(|_| {
            let account = phantom_step_try(lab, short_of_step);
            let slow = |account: &Account| {
                let times = || account.sent.iter().map(|r| r.at_ns);
                times().max() >= times().min().map(|first| first + 1_000_000_000)
            };
            (!account.as_ref().is_ok_and(slow)).then_some(account)
        });
        let account = account.context("this machine needs more than a second for 85 packets")??;
        expect_marks(lab, &account, &[false, marked])?;
    }
    Ok(())
}

/// Sends packets up to `short_of_step` bytes below the step, then one more.
fn phantom_step_try(lab: &mut Lab, short_of_step: u64) -> Result<Account> {
    lab.port(&step(Mark::Phantom, MarkAt::Enqueue))?;
    let filler = Frame::new(FILLER_BYTES as usize).ecn(Ecn::NotEct);
    let fillers = STEP_BYTES / FILLER_BYTES;
    lab.sender.send_all(fillers as usize, &filler)?;
    let rest = STEP_BYTES - fillers * FILLER_BYTES - short_of_step;
    lab.sender.send_all(1, &Frame::new(rest as usize))?;
    lab.sender.send_all(1, &Frame::new(100))?;
    lab.drain()?;
    Ok(lab.balance(0)?.0)
}

fn physical_step_at_enqueue(lab: &mut Lab) -> Result<()> {
    lab.hold(Handle::ROOT, &step(Mark::Physical, MarkAt::Enqueue), |lab| {
        let fillers = STEP_BYTES / FILLER_BYTES;
        let filler = Frame::new(FILLER_BYTES as usize).ecn(Ecn::NotEct);
        lab.sender.send_all(fillers as usize, &filler)?;
        let rest = (STEP_BYTES - fillers * FILLER_BYTES) as usize;
        // The second packet finds one byte less than the step, the third 59 bytes more.
        lab.sender.send_all(1, &Frame::new(rest - 1))?;
        lab.sender.send_all(1, &Frame::new(60))?;
        lab.sender.send_all(1, &Frame::new(60))?;
        Ok(STEP_BYTES - 1 + 120)
    })?;
    lab.release(0)?;
    let (account, _) = lab.balance(0)?;
    expect_marks(lab, &account, &[false, false, true])?;

    // A packet that finds exactly the step.
    lab.clear()?;
    lab.hold(Handle::ROOT, &step(Mark::Physical, MarkAt::Enqueue), |lab| {
        let packets = STEP_BYTES / 50_000;
        lab.sender.send_all(packets as usize, &Frame::new(50_000))?;
        lab.sender.send_all(1, &Frame::new(60))?;
        Ok(STEP_BYTES + 60)
    })?;
    lab.release(0)?;
    let (account, _) = lab.balance(0)?;
    expect_marks(lab, &account, &[false, true])
}

fn physical_step_at_dequeue(lab: &mut Lab) -> Result<()> {
    const PACKET_BYTES: u64 = 50_000;
    lab.hold(Handle::ROOT, &step(Mark::Physical, MarkAt::Dequeue), |lab| {
        // The first packet leaves exactly the step behind, the second one packet less.
        let packets = STEP_BYTES / PACKET_BYTES + 1;
        lab.sender.send_all(packets as usize, &Frame::new(PACKET_BYTES as usize))?;
        Ok(packets * PACKET_BYTES)
    })?;
    lab.release(0)?;
    let (account, _) = lab.balance(0)?;
    let first = lab.sender.number() - (STEP_BYTES / PACKET_BYTES) as u32;
    equal("marked", account.marked.clone(), vec![first])
}

/// Chooses every packet.
fn always(at: MarkAt) -> Options {
    Options { min_ppm: Some(0), max_ppm: Some(0), ..options(Mark::Physical, at) }
}

fn unmarkable(lab: &mut Lab) -> Result<()> {
    for at in [MarkAt::Enqueue, MarkAt::Dequeue] {
        lab.port(&always(at))?;
        let mut marks = 0;
        for kind in [Kind::Udp4, Kind::Udp6, Kind::Tcp4, Kind::Other] {
            for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
                lab.sender.send_all(5, &Frame::new(200).kind(kind).ecn(ecn))?;
                if kind != Kind::Other && matches!(ecn, Ecn::Ect0 | Ecn::Ect1) {
                    marks += 5;
                }
            }
        }
        lab.drain()?;
        let (account, port) = lab.balance(0)?;
        equal("marked", port.x.marked(), marks)?;
        equal("CE at the witness", account.marked.len() as u64, marks)?;
        equal("would_mark", port.x.would_mark, 4 * 4 * 5)?;
        equal("non-IP", lab.after.total()?.no_ip, 20)?;
        // ECN codepoints of IPv4, IPv6 and TCP by the witnesses before and after the port.
        equal("before", lab.before.total()?.ecn, [15; 4])?;
        equal("after", lab.after.total()?.ecn, [15, 0, 0, 45])?;
    }
    Ok(())
}

fn ecn_drop_at_enqueue(lab: &mut Lab) -> Result<()> {
    ecn_drop(lab, MarkAt::Enqueue)
}

fn ecn_drop_at_dequeue(lab: &mut Lab) -> Result<()> {
    ecn_drop(lab, MarkAt::Dequeue)
}

fn ecn_drop(lab: &mut Lab, at: MarkAt) -> Result<()> {
    lab.port(&Options { ecn_drop: Some(true), ..always(at) })?;
    // The sender gets no error, because NET_XMIT_CN is none.
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::NotEct, Ecn::Ce] {
        lab.sender.send_all(25, &Frame::new(300).ecn(ecn))?;
    }
    lab.drain()?;
    let (account, port) = lab.balance(0)?;
    equal("drops_ecn", port.x.drops_ecn, 50)?;
    equal("drops", port.state.drops, 50)?;
    equal("would_mark", port.x.would_mark, 100)?;
    equal("marked", port.x.marked(), 25)?;
    let other = account.missing.iter().find(|r| r.ecn() != Ecn::NotEct as u8);
    ensure!(other.is_none(), "dropped {other:?}");
    Ok(())
}

fn none(lab: &mut Lab) -> Result<()> {
    lab.port(&Options {
        min_ppm: Some(0),
        max_ppm: Some(0),
        pmin_ppm: Some(0),
        pmax_ppm: Some(0),
        ..options(Mark::None, MarkAt::Enqueue)
    })?;
    lab.sender.send_all(100, &Frame::new(1000))?;
    lab.drain()?;
    let (account, port) = lab.balance(0)?;
    equal("would_mark", port.x.would_mark, 0)?;
    equal("marked", account.marked.len(), 0)
}
