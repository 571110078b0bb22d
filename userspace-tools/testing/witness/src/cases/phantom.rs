// SPDX-License-Identifier: GPL-2.0
//! The phantom counter against an exact model of the witness's lengths and times. Rates are whole bytes per
//! second and times whole nanoseconds, so bytes x 10^9 are integers and nothing is rounded.
//!
//! The port read its clock between the witness's record of a packet and the end of its sending, and for a
//! dump between request and answer. The model runs for the earliest and the latest of these times, and the
//! port's value must be in between, to the byte. In virtual time both are a few nanoseconds apart, because
//! the clock stops while the kernel computes.

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use xdc_netlink::phantom::{Mark, MarkAt, Options};

use super::Case;
use crate::{
    lab::{Lab, equal, now_ns, time_is_virtual},
    sender::{Ecn, Fate, Frame, Kind},
};

pub const CASES: &[Case] = &[
    // The fault would be a lost remainder, up to a byte in each of 900 drains.
    ("the counter does not drift in 900 packets at an odd rate", no_drift),
    // An empty counter that becomes negative and undercounts the next packet.
    ("an empty counter rests at 0", floor),
    // A counter that exceeds its cap, or a cap that affects later packets.
    ("a counter at its cap drains from the cap", cap),
    // Dropped packets that are not counted.
    ("dropped packets count", dropped_enter),
    // A pure ACK that is counted, or data that is not.
    ("count-acks off excludes pure ACKs only", count_acks),
    // An old rate applied to new time, or the reverse.
    ("a changed rate applies from the change on", change_of_rate),
    ("phantom_drain_bytes_per_s is drain x line-rate, else drain x rate", drain_rate),
];

const NS_PER_S: u128 = 1_000_000_000;

/// The phantom queue, in 10^-9 bytes.
struct Model {
    nbytes: u128,
    at_ns: u64,
    rate_bytes_per_s: u64,
    limit_bytes: u64,
}

impl Model {
    fn new(rate_bytes_per_s: u64, limit_bytes: u64) -> Self {
        Self { nbytes: 0, at_ns: 0, rate_bytes_per_s, limit_bytes }
    }

    fn drain(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        let drained = u128::from(elapsed_ns) * u128::from(self.rate_bytes_per_s);
        self.nbytes = self.nbytes.saturating_sub(drained);
        self.at_ns = now_ns;
    }

    fn add(&mut self, now_ns: u64, bytes: u32) {
        self.drain(now_ns);
        let limit = u128::from(self.limit_bytes) * NS_PER_S;
        self.nbytes = (self.nbytes + u128::from(bytes) * NS_PER_S).min(limit);
    }

    /// Bytes, rounded down.
    fn bytes(&self) -> u64 {
        (self.nbytes / NS_PER_S) as u64
    }
}

/// Returns bounds of the counter by the witness's records: the later packets arrive, the less has drained at
/// the request. At the cap this applies to the last packet that reached it, which is in both models or in
/// none.
fn bounds(lab: &mut Lab, rate: u64, limit_bytes: u64, asked_ns: [u64; 2]) -> Result<[u64; 2]> {
    let mut low = Model::new(rate, limit_bytes);
    let mut high = Model::new(rate, limit_bytes);
    for record in lab.before.records()? {
        let over_ns = lab.sender.over_ns(record.number).context("unknown packet")?;
        low.add(record.at_ns, record.bytes);
        high.add(over_ns, record.bytes);
    }
    low.drain(asked_ns[1]);
    high.drain(asked_ns[0]);
    // The counter rounds up at a packet, and the drain since then rounds down.
    Ok([low.bytes(), high.bytes() + 2])
}

/// Compares the port's counter with the model, and returns it.
fn compare(lab: &mut Lab, what: &str, rate: u64, limit_bytes: u64) -> Result<u64> {
    // In virtual time each clock read takes a nanosecond.
    let asked_ns = now_ns()?;
    let shown = lab.look()?.x.phantom_bytes;
    let answered_ns = now_ns()?;
    let [low, high] = bounds(lab, rate, limit_bytes, [asked_ns, answered_ns])?;
    println!("# {what}: counter {shown}, model {low} to {high} bytes");
    ensure!((low..=high).contains(&shown), "{what}: counter {shown}, model {low} to {high} bytes");
    if time_is_virtual()? {
        ensure!(high - low <= 3, "{what}: the model's range of {low} to {high} bytes is too wide");
    }
    Ok(shown)
}

/// A prime, so that no packet takes a whole number of nanoseconds.
const ODD_RATE: u64 = 999_983;
const LIMIT_BYTES: u64 = 10_000_000;

/// Counter only: no marks and no shaping.
fn options(rate: u64, limit_bytes: u64) -> Options {
    Options {
        line_rate_bytes_per_s: Some(rate),
        drain_ppm: Some(1_000_000),
        phantom_limit_bytes: Some(limit_bytes),
        mark: Some(Mark::Phantom),
        pmin_ppm: Some(1_000_000),
        pmax_ppm: Some(1_000_000),
        mark_at: Some(MarkAt::Dequeue),
        ..Options::default()
    }
}

fn rest(micros: u64) {
    thread::sleep(Duration::from_micros(micros));
}

fn no_drift(lab: &mut Lab) -> Result<()> {
    lab.port(&options(ODD_RATE, LIMIT_BYTES))?;
    for i in 0..900usize {
        lab.sender.send_all(1, &Frame::new(3_000 + i * 7 % 991))?;
        // Odd pauses, so that each drain leaves another remainder.
        if i % 3 == 0 {
            rest(61 + i as u64 % 17);
        }
        if i % 300 == 299 {
            let what = format!("after {} packets", i + 1);
            compare(lab, &what, ODD_RATE, LIMIT_BYTES)?;
        }
    }
    lab.drain()?;
    lab.balance(0).map(|_| ())
}

fn floor(lab: &mut Lab) -> Result<()> {
    lab.port(&options(ODD_RATE, LIMIT_BYTES))?;
    for round in 0..4 {
        lab.sender.send_all(3, &Frame::new(2_000))?;
        let what = format!("round {round}");
        compare(lab, &what, ODD_RATE, LIMIT_BYTES)?;
        rest(30_000);
        let shown = compare(lab, &format!("{what}, later"), ODD_RATE, LIMIT_BYTES)?;
        equal("the counter at rest", shown, 0)?;
    }
    Ok(())
}

fn cap(lab: &mut Lab) -> Result<()> {
    const CAP_BYTES: u64 = 50_000;
    lab.port(&options(ODD_RATE, CAP_BYTES))?;
    lab.sender.send_all(10, &Frame::new(20_000))?;
    compare(lab, "full", ODD_RATE, CAP_BYTES)?;
    equal("phantom_max_bytes", lab.look()?.x.phantom_max_bytes, CAP_BYTES)?;
    rest(7_000);
    compare(lab, "draining", ODD_RATE, CAP_BYTES)?;
    lab.sender.send_all(1, &Frame::new(1_000))?;
    compare(lab, "one more", ODD_RATE, CAP_BYTES).map(|_| ())
}

fn dropped_enter(lab: &mut Lab) -> Result<()> {
    lab.port(&Options { limit_bytes: Some(1_000), ..options(ODD_RATE, LIMIT_BYTES) })?;
    for _ in 0..50 {
        let fate = lab.sender.send(&Frame::new(5_000))?;
        ensure!(fate == Fate::Refused, "a queue of 1000 bytes accepted 5000");
    }
    compare(lab, "50 dropped packets", ODD_RATE, LIMIT_BYTES)?;
    let (account, _) = lab.balance(0)?;
    equal("missing", account.missing.len(), 50)
}

fn count_acks(lab: &mut Lab) -> Result<()> {
    let ack = Frame::new(54).kind(Kind::Tcp4).ecn(Ecn::NotEct);
    for (count_acks, ack_bytes) in [(true, 54), (false, 0)] {
        lab.port(&Options {
            count_acks: Some(count_acks),
            drain_ppm: Some(1),
            ..options(1_000_000, LIMIT_BYTES)
        })?;
        lab.sender.send_all(1, &ack)?;
        lab.sender.send_all(1, &Frame::new(1_054).kind(Kind::Tcp4))?;
        lab.sender.send_all(1, &Frame::new(70))?;
        equal("highest count", lab.look()?.x.phantom_max_bytes, ack_bytes + 1_054 + 70)?;
    }
    Ok(())
}

fn change_of_rate(lab: &mut Lab) -> Result<()> {
    const FAST: u64 = 3_999_971;
    lab.port(&options(ODD_RATE, LIMIT_BYTES))?;
    lab.sender.send_all(20, &Frame::new(10_000))?;
    rest(11_000);
    let first = compare(lab, "before", ODD_RATE, LIMIT_BYTES)?;

    let change = options(FAST, LIMIT_BYTES);
    let (changing_ns, before) = (now_ns()?, lab.look()?.x.phantom_bytes);
    lab.change(&change)?;
    let changed_ns = now_ns()?;
    rest(13_000);
    let asked_ns = now_ns()?;
    let shown = lab.look()?.x.phantom_bytes;
    let answered_ns = now_ns()?;
    // From `before`: the new rate applied from the end of the change (high) or from its start (low).
    let drained = |ns: u64, rate: u64| (u128::from(ns) * u128::from(rate) / NS_PER_S) as u64;
    let high = before - drained(asked_ns - changed_ns, FAST) + 2;
    let low = before.saturating_sub(drained(answered_ns - changing_ns, FAST) + 2);
    println!("# from {first} at {ODD_RATE} to {shown} at {FAST}: model {low} to {high}");
    ensure!((low..=high).contains(&shown), "counter {shown}, model {low} to {high} bytes");
    equal("phantom_drain_bytes_per_s", lab.look()?.x.phantom_drain_bytes_per_s, FAST)
}

fn drain_rate(lab: &mut Lab) -> Result<()> {
    for (rate, line_rate, drain_ppm, expected) in [
        (1_000_000, 0, 900_000, 900_000),
        (1_000_000, 5_000_000, 100_000, 500_000),
        (0, 7_000_000, 1_000_000, 7_000_000),
        // Rounded down to whole bytes.
        (0, 1_000_001, 333_333, 333_333),
    ] {
        lab.port(&Options {
            rate_bytes_per_s: Some(rate),
            line_rate_bytes_per_s: Some(line_rate),
            drain_ppm: Some(drain_ppm),
            ..Options::default()
        })?;
        equal("phantom_drain_bytes_per_s", lab.look()?.x.phantom_drain_bytes_per_s, expected)?;
    }
    Ok(())
}
