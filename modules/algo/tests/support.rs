// SPDX-License-Identifier: GPL-2.0

//! Helpers of the tests: reproducible random numbers, and parallel runs.

use super::Ack;
use super::controller::{Controller, Flag, Watch};
use super::entry::{Entry, Shown, Value};
use super::params::ParamSource;
use std::{fmt::Debug, thread};

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + ((u128::from(self.next()) * u128::from(high - low + 1)) >> 64) as u64
    }

    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.within(0, values.len() as u64 - 1) as usize]
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0, 99) < percent
    }

    /// Returns numbers of any size, including extremes.
    pub fn any(&mut self) -> u64 {
        match self.within(0, 7) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::from(u32::MAX),
            _ => self.next() >> self.within(0, 63),
        }
    }
}

/// ACKs.
impl Rng {
    /// Returns any ACK, even an invalid one.
    pub fn any_ack(&mut self) -> Ack {
        let rtt_us = self.any() as u32;
        Ack {
            now_us: self.any(),
            rtt_us: self.percent(80).then_some(rtt_us),
            is_rtt_of_host: self.percent(20),
            srtt_us: self.any() as u32,
            acked_bytes: self.any(),
            marked_bytes: self.any(),
            delivered_bytes: self.any(),
            interval_us: self.any() as u32,
            app_limited: self.percent(20),
            cwnd_limited: self.percent(80),
            in_recovery: self.percent(20),
            prior_in_flight: self.any() as u32,
            mss_bytes: self.any() as u32,
        }
    }

    /// Returns an ACK that a flow with this base RTT and window can get.
    pub fn ack(
        &mut self,
        now_us: u64,
        base_us: u32,
        mss_bytes: u32,
        cwnd_bytes: u64,
        marked_percent: u64,
    ) -> Ack {
        let acked_packets = match self.within(0, 9) {
            0 => 0,
            1..=4 => 1,
            5..=8 => 2,
            _ => self.within(1, 64),
        };
        let marked_packets = if self.percent(marked_percent) {
            self.within(0, acked_packets)
        } else {
            0
        };
        let longest_queue_us = u64::from(base_us) / self.pick(&[1, 10, 1_000]);
        let rtt_us = base_us + self.within(0, longest_queue_us) as u32;
        let least_delivered = self.pick(&[1, 800]);
        Ack {
            now_us,
            rtt_us: self.percent(95).then_some(rtt_us),
            srtt_us: rtt_us,
            acked_bytes: acked_packets * u64::from(mss_bytes),
            marked_bytes: marked_packets * u64::from(mss_bytes),
            delivered_bytes: cwnd_bytes * self.within(least_delivered, 1_200) / 1_000,
            interval_us: if self.percent(95) { rtt_us } else { 0 },
            app_limited: self.percent(5),
            cwnd_limited: self.percent(95),
            in_recovery: self.percent(5),
            prior_in_flight: (cwnd_bytes * self.within(1, 1_200) / 1_000 / u64::from(mss_bytes))
                as u32,
            mss_bytes,
            ..Ack::default()
        }
    }
}

/// Number of random sequences per property, for optimized builds. Others run fewer, with overflow
/// checks.
pub const SEQUENCES: u64 = if cfg!(debug_assertions) {
    20_000
} else {
    1_000_000
};

/// Runs `sequence` for each seed below [`SEQUENCES`] and returns the sum of its results.
pub fn for_each_seed(sequence: impl Fn(u64) -> u64 + Sync) -> u64 {
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let run = |first: u64| -> u64 {
        (first..SEQUENCES)
            .step_by(threads as usize)
            .map(&sequence)
            .sum()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let run = &run;
                scope.spawn(move || run(i))
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    })
}

/// Reduces and restarts as TCP does on a timeout.
pub fn on_timeout(
    flow: &mut impl Controller,
    params: &impl ParamSource,
    now_us: u64,
    in_flight_bytes: u64,
    mss_bytes: u32,
) {
    flow.on_loss(params, now_us, mss_bytes);
    flow.restart(in_flight_bytes, mss_bytes);
}

/// Calls the methods that TCP may call, in any order.
pub fn any_calls(flow: &mut impl Controller, params: &impl ParamSource, rng: &mut Rng) {
    for _ in 0..10 {
        let (now_us, mss_bytes) = (rng.any(), rng.any() as u32);
        match rng.within(0, 9) {
            0 => flow.on_loss(params, now_us, mss_bytes),
            1 => on_timeout(flow, params, now_us, rng.any(), mss_bytes),
            2 => flow.undo(rng.any(), rng.any()),
            3 => flow.on_idle_restart(now_us),
            4 => flow.open(params),
            5 => flow.resume(rng.any(), rng.any()),
            _ => {
                flow.on_ack_watched(params, &rng.any_ack(), &mut Vec::new());
            }
        }
        flow.loss_window_bytes(params, mss_bytes);
        flow.published();
    }
}

impl Flag {
    /// Creates a flag from a random byte.
    pub fn any(rng: &mut Rng) -> Self {
        Flag(rng.any() as u8)
    }
}

/// Collects the events.
impl<E> Watch<E> for Vec<E> {
    fn observe(&mut self, event: impl FnOnce() -> E) {
        self.push(event());
    }
}

/// Asserts that a watch changes no state.
pub fn watched_and_unwatched_are_one(params: &impl ParamSource, flow: impl Controller + Debug) {
    let mut events = Vec::new();
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut watched, mut unwatched) = (flow, flow);
        for _ in 0..30 {
            let ack = rng.any_ack();
            let output = watched.on_ack_watched(params, &ack, &mut events);
            assert_eq!(output, unwatched.on_ack(params, &ack));
            assert_eq!(format!("{watched:?}"), format!("{unwatched:?}"));
        }
    }
    assert!(events.len() > 200, "{} events", events.len());
}

/// Returns the value that a socket shows under `key`; true is 1. None: not known.
pub fn state(entry: &Entry, shown: &Shown<'_>, key: &str) -> Option<f64> {
    let row = entry.state.iter().find(|row| row.key == key);
    match (row.expect("a key of the state").value)(shown)? {
        Value::Count(count) => Some(count as f64),
        Value::Ratio { part, of } => Some(part as f64 / of as f64),
        Value::Flag(is_so) => Some(f64::from(u8::from(is_so))),
    }
}

/// Returns the window on a path of 1 Gbit/s and 100 ms after an early loss that left ten packets,
/// and `seconds` of one ACK per round trip. With `marks`, one ACK in five reports a marked byte.
/// All RTTs but one in `one_in` are `queue_us` longer.
pub fn after_an_early_loss<F: Controller>(
    host: &impl ParamSource,
    (seconds, rtt_us): (u64, u32),
    marks: bool,
    queue_us: u32,
    one_in: u64,
) -> u64 {
    const MSS: u32 = 4_000;
    let mut now_us = 1_000_000;
    let mut flow = F::new(host, now_us, 20 * u64::from(MSS), Some(rtt_us));
    flow.on_loss(host, now_us, MSS);
    for round in 1..=seconds * 1_000_000 / u64::from(rtt_us) {
        now_us += u64::from(rtt_us);
        let bytes = flow.cwnd_bytes();
        let ack = Ack {
            now_us,
            rtt_us: Some(rtt_us + queue_us * u32::from(round % one_in != 0)),
            srtt_us: rtt_us,
            acked_bytes: bytes,
            marked_bytes: u64::from(marks && round % 5 == 0).min(bytes),
            delivered_bytes: bytes,
            interval_us: rtt_us,
            prior_in_flight: (bytes / u64::from(MSS)) as u32,
            cwnd_limited: true,
            mss_bytes: MSS,
            ..Ack::default()
        };
        flow.on_ack(host, &ack).unwrap();
    }
    flow.cwnd_bytes()
}
