// SPDX-License-Identifier: GPL-2.0
//! The shaper, by the departure times that the second witness recorded.
//!
//! A packet may leave when those before it are serialized. In virtual time this is exact to the nanosecond.
//! Under emulation timers are late and the shaper catches up, so the test only requires that no packet is
//! early while there is a queue.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use xdc_netlink::phantom::{Mark, Options};

use super::Case;
use crate::{
    lab::{Lab, PLUG_BYTES, time_is_virtual},
    sender::Frame,
};

pub const CASES: &[Case] = &[
    // A rate in the wrong unit, a lost remainder, or a lag that is not made up.
    ("8 Mbit/s", |lab| rate(lab, 1_000_000, 150)),
    ("an odd rate", |lab| rate(lab, 2_999_957, 450)),
    // A missing overhead or minimum, or one taken for the other.
    ("overhead is charged for each packet", overhead),
    ("mpu is the least charge of a packet", mpu),
    // Credit for idle time.
    ("an idle port saves no credit", idle),
];

/// Rates beyond an emulated machine, for virtual time only.
pub const FAST_CASES: &[Case] = &[
    ("1 Gbit/s", |lab| rate(lab, 125_000_000, 2_000)),
    ("100 Gbit/s", |lab| rate(lab, 12_500_000_000, 3_000)),
];

const LENGTHS: [usize; 4] = [1_500, 64, 9_000, 700];

fn rate(lab: &mut Lab, rate: u64, packets: usize) -> Result<()> {
    shaped(lab, &Options::default(), rate, packets, |bytes| bytes)
}

fn overhead(lab: &mut Lab) -> Result<()> {
    let options = Options { overhead_bytes: Some(38), ..Options::default() };
    shaped(lab, &options, 1_500_000, 200, |bytes| bytes + 38)?;
    lab.clear()?;
    let options = Options { overhead_bytes: Some(-14), ..Options::default() };
    shaped(lab, &options, 1_500_000, 200, |bytes| bytes - 14)
}

fn mpu(lab: &mut Lab) -> Result<()> {
    let options = Options { overhead_bytes: Some(24), mpu_bytes: Some(256), ..Options::default() };
    shaped(lab, &options, 1_500_000, 200, |bytes| (bytes + 24).max(256))
}

/// Departure times in units of 1 / rate ns, so that every term is whole.
struct Schedule {
    rate: u128,
    free: u128,
}

impl Schedule {
    /// A packet that arrives at `at_ns` is due then, or once those before it are serialized. Returns the
    /// delay of its departure at `left_ns`; negative is early.
    fn late_ns(&mut self, at_ns: u64, left_ns: u64, wire_bytes: u64) -> i64 {
        let due = self.free.max(u128::from(at_ns) * self.rate);
        self.free = due + u128::from(wire_bytes) * 1_000_000_000;
        left_ns as i64 - (due / self.rate) as i64
    }
}

/// Sends more than `rate` carries, and compares departure times with the schedule.
fn shaped(
    lab: &mut Lab,
    options: &Options,
    rate: u64,
    packets: usize,
    wire_bytes: impl Fn(u64) -> u64,
) -> Result<()> {
    lab.port(&Options {
        limit_bytes: Some(100_000_000),
        mark: Some(Mark::None),
        rate_bytes_per_s: Some(rate),
        ..options.clone()
    })?;
    let mut work_bytes = 0;
    for i in 0..packets {
        let frame = Frame::new(LENGTHS[i % LENGTHS.len()]);
        lab.sender.send_all(1, &frame)?;
        work_bytes += wire_bytes(frame.bytes as u64);
    }
    // No dumps meanwhile: they would delay timers.
    thread::sleep(Duration::from_nanos(work_bytes * 1_000_000_000 / rate + 5_000_000));
    lab.drain()?;
    let (account, _) = lab.balance(0)?;

    let mut schedule = Schedule { rate: rate.into(), free: 0 };
    let pairs = account.sent.iter().zip(&account.received);
    let late_ns: Vec<i64> = pairs
        .map(|(sent, received)| {
            schedule.late_ns(sent.at_ns, received.at_ns, wire_bytes(sent.bytes.into()))
        })
        .collect();
    let earliest_ns = late_ns.iter().min().copied().unwrap_or(0);
    let latest_ns = late_ns.iter().max().copied().unwrap_or(0);

    let took_ns = account.received[packets - 1].at_ns - account.received[0].at_ns;
    let work_bytes: u64 =
        account.received[..packets - 1].iter().map(|record| wire_bytes(record.bytes.into())).sum();
    let measured = work_bytes as f64 * 1e9 / took_ns as f64;
    println!(
        "# {rate} B/s: measured {measured:.0} over {} ms; {earliest_ns} to {latest_ns} ns late",
        took_ns / 1_000_000
    );
    // The port keeps whole nanoseconds and carries the remainder.
    ensure!(earliest_ns >= -1, "a packet was {} ns early", -earliest_ns);
    if time_is_virtual()? {
        // A running kernel thread also advances the clock for the packet due then.
        let late = late_ns.iter().filter(|ns| **ns > LATEST_NS).count();
        ensure!(
            late * 100 <= packets && latest_ns <= DISTURBED_NS,
            "{late} packets were more than {LATEST_NS} ns late, one {latest_ns} ns"
        );
        let off = measured / rate as f64 - 1.0;
        ensure!(off.abs() < 0.001, "the rate is {off:+.6} off");
    }
    Ok(())
}

/// Advance of virtual time between the port's timer and the witness: timers are at least one nanosecond
/// ahead, and each clock read of a system call takes one.
const LATEST_NS: i64 = 10;
/// Bound with other activity, each clock read of which takes a nanosecond.
const DISTURBED_NS: i64 = 5_000;

fn idle(lab: &mut Lab) -> Result<()> {
    const RATE: u64 = 100_000;
    lab.port(&Options { rate_bytes_per_s: Some(RATE), ..Options::default() })?;
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(300));
        lab.forget()?;
        lab.sender.send_all(4, &Frame::new(PLUG_BYTES as usize))?;
        lab.drain()?;
        let (sent, received) = (lab.before.records()?.to_vec(), lab.after.records()?);
        // Three packets after one that found the port idle: at least 10 ms each.
        let took_ns = received[3].at_ns - sent[0].at_ns;
        ensure!(took_ns >= 30_000_000, "four packets took {took_ns} ns, expected 30 ms");
    }
    Ok(())
}
