// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::algo::support::{Rng, for_each_seed};

impl LineRate {
    /// Creates a rate from random bytes.
    pub fn any(rng: &mut Rng) -> Self {
        LineRate(rng.any() as u32)
    }
}

#[test]
fn device_speed_is_the_rate() {
    let mut rate = LineRate::default();
    assert_eq!((rate.mbps(), rate.has_known_rate()), (0, false));
    for mbps in [10, 1_000, 400_000, 1_000_000] {
        rate.update(EgressDev::KnownSpeed(mbps), Sample::OfNewWindow);
        assert_eq!((rate.mbps(), rate.has_known_rate()), (mbps, true));
    }
    rate.update(EgressDev::NoRoute, Sample::OfNewWindow);
    assert_eq!(rate.mbps(), 1_000_000, "the last speed");
    rate.update(EgressDev::KnownSpeed(u32::MAX), Sample::OfNewWindow);
    assert_eq!(rate.mbps(), 1_000_000);
    rate.update(EgressDev::KnownSpeed(25_000), Sample::OfNewWindow);
    assert_eq!(rate.mbps(), 25_000, "another route, or another speed");
}

#[test]
fn unknown_speed_leaves_the_delivered_rate() {
    for device in [
        EgressDev::UnknownSpeed,
        EgressDev::Loopback,
        EgressDev::KnownSpeed(0),
    ] {
        let mut rate = LineRate::default();
        rate.update(device, Sample::OfNewWindow);
        assert_eq!((rate.mbps(), rate.has_known_rate()), (0, false));
        // 125 kB in a millisecond.
        rate.delivered(125_000, 1_000);
        assert_eq!((rate.mbps(), rate.has_known_rate()), (1_000, false));
        rate.delivered(62_500, 1_000);
        assert_eq!(rate.mbps(), 1_000, "the fastest counts");
        rate.update(device, Sample::Least);
        assert_eq!(rate.mbps(), 1_000, "within a window");
        rate.update(device, Sample::OfNewWindow);
        assert_eq!(rate.mbps(), 875, "and decays");
        rate.update(EgressDev::KnownSpeed(10_000), Sample::OfNewWindow);
        assert_eq!((rate.mbps(), rate.has_known_rate()), (10_000, true));
    }
}

#[test]
fn delivery_before_the_first_route_does_not_bound_the_rate() {
    let mut rate = LineRate::default();
    rate.update(EgressDev::NoRoute, Sample::OfNewWindow);
    rate.delivered(125_000, 1_000);
    assert_eq!((rate.mbps(), rate.has_known_rate()), (1_000, false));
    rate.update(EgressDev::NoRoute, Sample::OfNewWindow);
    assert!(!rate.has_known_rate());
    rate.update(EgressDev::KnownSpeed(10_000), Sample::OfNewWindow);
    assert_eq!((rate.mbps(), rate.has_known_rate()), (10_000, true));
}

#[test]
fn faster_delivery_overrides_the_device_speed() {
    let mut rate = LineRate::default();
    rate.update(EgressDev::KnownSpeed(10_000), Sample::OfNewWindow);
    rate.delivered(125_000, 100);
    assert_eq!(rate.mbps(), 10_000);
    rate.delivered(1_250_000, 100);
    assert_eq!((rate.mbps(), rate.has_known_rate()), (100_000, true));
    for _ in 0..200 {
        rate.update(EgressDev::KnownSpeed(10_000), Sample::OfNewWindow);
    }
    assert_eq!(rate.mbps(), 10_000, "the measured rate expires");
}

#[test]
fn rate_is_the_devices_or_a_measured_one() {
    let checked = for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut rate = LineRate::default();
        let (mut reported, mut measured) = (0, 0);
        for _ in 0..50 {
            if rng.percent(20) {
                reported = rng.pick(&[0, 1, 1_000, 25_000, 1_000_000, u32::MAX]);
                rate.update(
                    if reported == 0 {
                        EgressDev::UnknownSpeed
                    } else {
                        EgressDev::KnownSpeed(reported)
                    },
                    Sample::OfNewWindow,
                );
                reported = reported.min(1_000_000);
            } else {
                let bytes = rng.within(0, u64::from(u32::MAX)) as u32 >> rng.within(0, 31);
                let interval_us = rng.pick(&[0, 1, 14, 1_792, u32::MAX]);
                rate.delivered(bytes.into(), interval_us);
                if interval_us != 0 {
                    let mbps = u64::from(bytes) * 8 / u64::from(interval_us);
                    measured = measured.max(mbps.min(1_000_000) as u32);
                    assert!(u64::from(rate.mbps()) >= mbps.min(1_000_000));
                }
            }
            assert!((reported..=reported.max(measured)).contains(&rate.mbps()));
        }
        1
    });
    assert!(checked > 0);
}

#[test]
fn intra_rtt_parameter_wins_and_detected_rtts_are_bounded() {
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
fn shortest_rtt_of_the_host_expires() {
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
        "a window and the rest of the previous one"
    );
    assert_eq!(at(120_002, 400), 400);
}

#[test]
fn window_mbps_is_a_window_per_rtt() {
    assert_eq!(window_mbps(125_000, 1_000), 1_000);
    assert_eq!(window_mbps(1, u32::MAX), 1);
    assert_eq!(window_mbps(u64::MAX, 1), 1_000_000);
    assert_eq!(window_mbps(125_000, 0), 1_000_000);
}
