// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::algo::support::{Rng, for_each_seed};

#[test]
fn the_device_says_the_rate() {
    let mut rate = LineRate::default();
    assert_eq!((rate.mbps(), rate.is_told()), (0, false));
    for mbps in [10, 1_000, 400_000, 1_000_000] {
        rate.ask(Way::Told(mbps), Sample::OfNewWindow);
        assert_eq!((rate.mbps(), rate.is_told()), (mbps, true));
    }
    rate.ask(Way::Unknown, Sample::OfNewWindow);
    assert_eq!(rate.mbps(), 1_000_000, "what it said last");
    rate.ask(Way::Told(u32::MAX), Sample::OfNewWindow);
    assert_eq!(rate.mbps(), 1_000_000);
    rate.ask(Way::Told(25_000), Sample::OfNewWindow);
    assert_eq!(rate.mbps(), 25_000, "another route, or another speed");
}

#[test]
fn a_device_that_is_silent_leaves_what_is_delivered() {
    for way in [Way::Silent, Way::Loopback, Way::Told(0)] {
        let mut rate = LineRate::default();
        rate.ask(way, Sample::OfNewWindow);
        assert_eq!((rate.mbps(), rate.is_told()), (0, false));
        // 125 kB in a millisecond.
        rate.delivered(125_000, 1_000);
        assert_eq!((rate.mbps(), rate.is_told()), (1_000, false));
        rate.delivered(62_500, 1_000);
        assert_eq!(rate.mbps(), 1_000, "the fastest counts");
        rate.ask(way, Sample::Least);
        assert_eq!(rate.mbps(), 1_000, "within a window");
        rate.ask(way, Sample::OfNewWindow);
        assert_eq!(rate.mbps(), 875, "and ages");
        rate.ask(Way::Told(10_000), Sample::OfNewWindow);
        assert_eq!((rate.mbps(), rate.is_told()), (10_000, true));
    }
}

#[test]
fn what_is_seen_before_a_device_is_found_is_no_bound() {
    let mut rate = LineRate::default();
    rate.ask(Way::Unknown, Sample::OfNewWindow);
    rate.delivered(125_000, 1_000);
    assert_eq!((rate.mbps(), rate.is_told()), (1_000, false));
    rate.ask(Way::Unknown, Sample::OfNewWindow);
    assert!(!rate.is_told());
    rate.ask(Way::Told(10_000), Sample::OfNewWindow);
    assert_eq!((rate.mbps(), rate.is_told()), (10_000, true));
}

#[test]
fn a_device_that_says_too_little_is_not_believed() {
    let mut rate = LineRate::default();
    rate.ask(Way::Told(10_000), Sample::OfNewWindow);
    rate.delivered(125_000, 100);
    assert_eq!(rate.mbps(), 10_000);
    rate.delivered(1_250_000, 100);
    assert_eq!((rate.mbps(), rate.is_told()), (100_000, true));
    for _ in 0..200 {
        rate.ask(Way::Told(10_000), Sample::OfNewWindow);
    }
    assert_eq!(rate.mbps(), 10_000, "what was seen once is forgotten");
}

#[test]
fn the_rate_is_the_devices_or_one_that_was_seen() {
    let checked = for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut rate = LineRate::default();
        let (mut told, mut seen) = (0, 0);
        for _ in 0..50 {
            if rng.percent(20) {
                told = rng.pick(&[0, 1, 1_000, 25_000, 1_000_000, u32::MAX]);
                rate.ask(
                    if told == 0 {
                        Way::Silent
                    } else {
                        Way::Told(told)
                    },
                    Sample::OfNewWindow,
                );
                told = told.min(1_000_000);
            } else {
                let bytes = rng.within(0, u64::from(u32::MAX)) as u32 >> rng.within(0, 31);
                let interval_us = rng.pick(&[0, 1, 14, 1_792, u32::MAX]);
                rate.delivered(bytes, interval_us);
                if interval_us != 0 {
                    let mbps = u64::from(bytes) * 8 / u64::from(interval_us);
                    seen = seen.max(mbps.min(1_000_000) as u32);
                    assert!(u64::from(rate.mbps()) >= mbps.min(1_000_000));
                }
            }
            assert!((told..=told.max(seen)).contains(&rate.mbps()));
        }
        1
    });
    assert!(checked > 0);
}

#[test]
fn what_is_set_by_hand_wins_and_what_is_found_out_is_bounded() {
    assert_eq!(intra_rtt_us(14, 30, 1_792), 14);
    assert_eq!(intra_rtt_us(5_000, 30, 1_792), 5_000);
    assert_eq!(intra_rtt_us(0, 30, 1_792), 30);
    assert_eq!(intra_rtt_us(0, 0, 40), 40);
    assert_eq!(intra_rtt_us(0, 0, 1_792), 500);
    let noted = |rtt_us| {
        let mut shortest = BaseRtt::default();
        note_base_rtt(&mut shortest, 1_000, rtt_us);
        intra_rtt_us(0, shortest.words()[0], 1_792)
    };
    assert_eq!(noted(30), 30);
    assert_eq!(noted(2), 10);
    assert_eq!(noted(20_000), 500);
}

#[test]
fn the_shortest_rtt_of_the_host_ages() {
    let mut shortest = BaseRtt::default();
    let mut at = |ms: u64, rtt_us| {
        note_base_rtt(&mut shortest, ms * 1_000, rtt_us);
        shortest.words()[0]
    };
    assert_eq!(at(1, 400), 400);
    assert_eq!(at(2, 14), 14);
    assert_eq!(at(3, 400), 14);
    assert_eq!(
        at(60_001, 400),
        14,
        "a window and what is left of the one before"
    );
    assert_eq!(at(120_002, 400), 400);
}

#[test]
fn without_anything_else_the_window_is_the_rate() {
    assert_eq!(window_mbps(125_000, 1_000), 1_000);
    assert_eq!(window_mbps(1, u32::MAX), 1);
    assert_eq!(window_mbps(u64::MAX, 1), 1_000_000);
    assert_eq!(window_mbps(125_000, 0), 1_000_000);
}
