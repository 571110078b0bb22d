// SPDX-License-Identifier: GPL-2.0

use super::*;

const RTT_US: u32 = 1_000;

/// Returns a credit whose initial amount is spent.
fn spent(x: u8, y: u8) -> Credit {
    let mut credit = Credit::new(x, y);
    credit.earn(1, RTT_US, 0);
    (0..credit.affords(x)).for_each(|_| credit.spend(x));
    credit
}

/// Returns the earned share.
fn share_percent(credit: &Credit) -> u32 {
    credit.share() * 100 / WHOLE
}

#[test]
fn a_session_begins_with_two_blocks() {
    for (x, y) in [(8, 2), (28, 3), (1, 1), (1, 0)] {
        let mut credit = Credit::new(x, y);
        assert_eq!(credit.affords(x), 2 * u32::from(y));
        credit.earn(1_000_000, RTT_US, 0);
        assert_eq!(credit.affords(x), 2 * u32::from(y));
    }
}

#[test]
fn full_blocks_have_all_their_parities() {
    for (x, y) in [(8, 2), (28, 3), (5, 3), (3, 1)] {
        let mut credit = spent(x, y);
        for block in 0..100 {
            assert_eq!(credit.would_afford(x, y), u32::from(y));
            (0..x).for_each(|_| credit.earn(block * 10 + 2, RTT_US, y));
            assert_eq!(credit.affords(x), u32::from(y));
            (0..y).for_each(|_| credit.spend(x));
        }
    }
}

#[test]
fn sparse_packets_pay_the_share_on_average() {
    let mut credit = spent(8, 2);
    let mut parities = 0;
    for packet in 0..1_000 {
        credit.earn(packet * 900, RTT_US, 2);
        let affords = credit.affords(8).min(2);
        (0..affords).for_each(|_| credit.spend(8));
        parities += affords;
    }
    assert_eq!(parities, 250);
}

#[test]
fn credit_is_kept_for_eight_round_trips() {
    for pause in 0..=8 {
        let mut credit = spent(8, 2);
        let begin_us = 100_000;
        for _ in 0..4 {
            credit.earn(begin_us, RTT_US, 2);
        }
        // Terms advance with each sent packet.
        for round in 1..=pause {
            credit.earn(begin_us + round * 1_000, RTT_US, 0);
        }
        assert_eq!(credit.affords(8), u32::from(pause < 8), "{pause}");
    }
    let mut credit = spent(8, 2);
    (0..4).for_each(|_| credit.earn(100_000, RTT_US, 2));
    credit.earn(108_000, RTT_US, 2);
    assert_eq!(credit.affords(8), 0);
}

#[test]
fn congestion_halves_the_share_per_round_trip_and_its_absence_restores_it() {
    let mut credit = spent(8, 2);
    let mut now_us = 10_000;
    let mut seen = Vec::new();
    for _ in 0..8 {
        for _ in 0..20 {
            now_us += 50;
            credit.hear(now_us, RTT_US, 4, 1, false);
        }
        seen.push(share_percent(&credit));
    }
    assert_eq!(seen, [50, 25, 12, 6, 3, 1, 0, 0]);
    for _ in 0..200 {
        now_us += 50;
        credit.hear(now_us, RTT_US, 4, 0, false);
    }
    assert_eq!(share_percent(&credit), 100);
}

#[test]
fn a_few_marks_are_no_congestion() {
    for (marked, percent) in [(5, 100), (6, 50)] {
        let mut credit = spent(8, 2);
        credit.hear(10_000, RTT_US, 0, 0, false);
        for step in 1..=20 {
            // 80 packets in a round trip.
            credit.hear(
                10_000 + step * 50,
                RTT_US,
                4,
                u8::from(step <= marked),
                false,
            );
        }
        assert_eq!(share_percent(&credit), percent);
    }
}

#[test]
fn one_long_delay_in_a_round_trip_is_congestion() {
    let mut credit = spent(8, 2);
    credit.hear(10_000, RTT_US, 0, 0, false);
    for step in 1..=20 {
        credit.hear(10_000 + step * 50, RTT_US, 4, 0, step == 5);
    }
    assert_eq!(share_percent(&credit), 50);
}

#[test]
fn congestion_halves_the_saved_credit() {
    let mut credit = Credit::new(8, 2);
    credit.hear(10_000, RTT_US, 0, 0, true);
    assert_eq!((credit.affords(8), share_percent(&credit)), (2, 50));
    (0..16).for_each(|_| credit.earn(10_000, RTT_US, 2));
    assert_eq!(credit.affords(8), 4);
}

#[test]
fn a_block_longer_than_short_round_trips_is_paid() {
    let mut credit = spent(8, 2);
    let mut parities = 0;
    for packet in 1..=800 {
        credit.earn(packet * 22, 30, 2);
        if packet % 8 == 0 {
            parities += credit.affords(8);
            (0..2).for_each(|_| credit.spend(8));
        }
    }
    assert!(parities >= 190, "{parities}");
}
