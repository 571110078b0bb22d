// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;

/// Returns estimated over true hidden marks, if one packet in `gap` is marked and each mark hides
/// the next `round` packets. As in the module, the packets of an ACK are all before or after the
/// spacing's end.
fn share(gap: u64, round: u32, packets_per_ack: u32) -> f64 {
    let mut rng = Rng::new(gap);
    let mut kept = MarkSpacing::default();
    let (mut hidden, mut packets, mut again) = (0u64, 0u64, 0);
    for n in 0..20_000 {
        let mut clear = 0;
        while (0..packets_per_ack).all(|_| rng.within(1, gap) != 1) {
            clear += 1;
            kept.pass(packets_per_ack, rng.next() as u32);
        }
        again = if clear == 0 { again + 1 } else { 0 };
        match again {
            0 | 1 => kept.end(),
            _ => kept.end_at_once(),
        }
        if n > 100 {
            let mut rest = round;
            while rest > 0 {
                let acked = packets_per_ack.min(rest);
                hidden += u64::from(kept.estimate_marked(acked, rng.next() as u32));
                packets += u64::from(acked);
                rest -= acked;
            }
        }
    }
    hidden as f64 / packets as f64 * gap as f64
}

#[test]
fn estimated_marks_match_the_visible_share() {
    for (packets_per_ack, wanted) in [
        (
            1,
            [(2, 1.8), (10, 1.25), (30, 1.1), (100, 1.1), (1_000, 1.1)],
        ),
        (
            2,
            [(2, 1.9), (10, 1.6), (30, 1.25), (100, 1.1), (1_000, 1.1)],
        ),
    ] {
        for (gap, most) in wanted {
            let times = share(gap, 100, packets_per_ack);
            assert!(
                (0.8..most).contains(&times),
                "1 in {gap}, {packets_per_ack} an ACK: {times}"
            );
        }
    }
}

#[test]
fn regular_acks_get_different_rounding() {
    for step in [1u32, 5, 120, 200, 1_200] {
        for start in 0..20u32 {
            let mut spacing = MarkSpacing::default();
            for packet in 0..1_000u32 {
                let time = start * 10_007 + packet * step;
                spacing.pass(1, MarkSpacing::seed(time.into(), packet));
            }
            let packets = spacing.units() / PACKET;
            assert!((400..2_100).contains(&packets), "{step} us: {packets}");
        }
    }
}

#[test]
fn all_packets_count_as_marked_initially_and_after_adjacent_marks() {
    assert_eq!(MarkSpacing::default().estimate_marked(1_000, 7), 1_000);
    let mut spacing = MarkSpacing::default();
    for seed in 0..1_000 {
        spacing.pass(1, seed);
    }
    assert!(spacing.estimate_marked(1_000, 7) < 10);
    for _ in 0..6 {
        spacing.end();
    }
    assert!(spacing.estimate_marked(1_000, 7) > 250);
}

#[test]
fn spacing_counts_thousands_of_packets() {
    let mut rng = Rng::new(1);
    for packets in [1u64, 10, 100, 1_000, 7_000] {
        let mut sum = 0;
        for _ in 0..200 {
            let mut spacing = MarkSpacing::default();
            for _ in 0..packets {
                spacing.pass(1, rng.next() as u32);
            }
            sum += spacing.units();
        }
        let mean = sum as f64 / 200.0 / PACKET as f64;
        let off = mean / packets as f64;
        assert!((0.9..1.15).contains(&off), "{mean} of {packets}");
    }
}

#[test]
fn any_bits_and_numbers_cause_no_panic() {
    let mut rng = Rng::new(2);
    for _ in 0..100_000 {
        let mut spacing = MarkSpacing::of_bits(rng.any() as u8);
        spacing.pass(rng.any() as u32, rng.any() as u32);
        assert!(spacing.bits() <= MAX);
        let packets = rng.any() as u32;
        assert!(spacing.estimate_marked(packets, rng.any() as u32) <= packets);
        spacing.end();
        assert_eq!(MarkSpacing::of_bits(spacing.bits()), spacing);
    }
}
