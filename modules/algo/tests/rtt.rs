// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;

const WINDOW_MS: u32 = 10_000;

impl BaseRtt {
    /// Creates a minimum from random bytes.
    pub fn any(rng: &mut Rng) -> Self {
        BaseRtt {
            min_us: rng.any() as u32,
            window_min_us: rng.any() as u32,
            window_start_ticks: rng.any() as u32,
        }
    }
}

fn after(samples: &[(u64, u32)]) -> Option<u32> {
    let mut base = BaseRtt::default();
    for &(now_ms, rtt_us) in samples {
        base.update(now_ms * 1_000, rtt_us, WINDOW_MS);
    }
    base.get()
}

#[test]
fn zeroed_state_has_no_sample() {
    assert_eq!(BaseRtt::default().get(), None);
}

#[test]
fn base_rtt_is_the_minimum() {
    assert_eq!(after(&[(1, 20), (2, 14), (3, 30)]), Some(14));
}

#[test]
fn a_window_begins_once() {
    let mut base = BaseRtt::default();
    let mut sample = |now_ms: u64, rtt_us| base.update(now_ms * 1_000, rtt_us, WINDOW_MS);
    assert_eq!(sample(1, 20), Sample::Least);
    assert_eq!(sample(2, 20), Sample::Ordinary);
    assert_eq!(sample(10_500, 40), Sample::OfNewWindow);
    assert_eq!(sample(10_501, 30), Sample::Least);
    assert_eq!(sample(10_502, 31), Sample::Ordinary);
    assert_eq!(sample(20_600, 33), Sample::OfNewWindow);
}

#[test]
fn minimum_lasts_for_one_more_window() {
    assert_eq!(after(&[(1, 14), (9_000, 20), (10_500, 30)]), Some(14));
    assert_eq!(after(&[(1, 14), (10_500, 30), (20_600, 40)]), Some(30));
}

#[test]
fn first_sample_of_a_window_may_be_the_minimum() {
    assert_eq!(after(&[(1, 2_000), (10_500, 50), (10_501, 51)]), Some(50));
}

#[test]
fn a_time_before_the_window_begins_no_other() {
    let samples = [
        (1_000_000, 50),
        (999_000, 500),
        (999_990, 500),
        (1_000_001, 500),
    ];
    assert_eq!(after(&samples), Some(50));
    // Any other idle time ends windows.
    for idle_ms in [10_001, 1 << 31, 4_000_000_000] {
        let samples = [(1, 50), (1 + idle_ms, 500), (11_000 + idle_ms, 500)];
        assert_eq!(after(&samples), Some(500), "{idle_ms}");
    }
}

#[test]
fn a_longer_route_raises_the_minimum_within_two_windows() {
    let mut samples = vec![(0, 14)];
    samples.extend((1..=210).map(|i| (i * 100, 2_000)));
    assert_eq!(after(&samples), Some(2_000));
}

#[test]
fn a_sample_of_zero_counts_as_the_clock_tick() {
    assert_eq!(after(&[(1, 0)]), Some(1));
}

#[test]
fn the_window_clock_may_wrap() {
    let wrap_ms = u64::from(u32::MAX);
    assert_eq!(after(&[(wrap_ms - 10, 14), (wrap_ms + 10, 20)]), Some(14));
}

#[test]
fn samples_delayed_by_the_host_begin_no_window() {
    let mut base = BaseRtt::default();
    let mut update = |now_us, rtt_us, is_rtt_of_host| {
        let ack = Ack {
            now_us,
            is_rtt_of_host,
            ..Ack::default()
        };
        base.update_by(&ack, rtt_us, 1_000);
        base.get()
    };
    assert_eq!(update(1_000, 200, false), Some(200));
    for seconds in 2..9 {
        assert_eq!(update(seconds * 1_000_000, 40_000, true), Some(200));
    }
    assert_eq!(update(9_000_000, 199, true), Some(199));
    update(11_000_000, 300, false);
    assert_eq!(update(13_000_000, 300, false), Some(300));
}
