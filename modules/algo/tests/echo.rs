// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;

/// Marks that are taken for hidden, by packets, where one in `gap` is marked and each mark hides the next `round` packets.
fn share(gap: u64, round: u32, packets_per_ack: u32) -> f64 {
    let mut rng = Rng::new(gap);
    let mut kept = Gap::default();
    let (mut hidden, mut packets) = (0u64, 0u64);
    for n in 0..20_000 {
        let mut left = 0;
        while rng.within(1, gap) != 1 {
            left += 1;
            if left == packets_per_ack {
                kept.pass(left, rng.next() as u32);
                left = 0;
            }
        }
        kept.end();
        if n > 100 {
            let mut rest = round;
            while rest > 0 {
                let acked = packets_per_ack.min(rest);
                hidden += u64::from(kept.hidden(acked, rng.next() as u32));
                packets += u64::from(acked);
                rest -= acked;
            }
        }
    }
    hidden as f64 / packets as f64
}

#[test]
fn hidden_marks_are_as_many_as_those_that_are_seen() {
    for gap in [2, 10, 30, 100, 1_000] {
        for packets_per_ack in [1, 2] {
            let times = share(gap, 100, packets_per_ack) * gap as f64;
            // Few packets between marks are taken for fewer.
            let most = if gap < 30 { 1.7 } else { 1.1 };
            assert!((0.85..most).contains(&times), "1 in {gap}: {times}");
        }
    }
}

#[test]
fn all_are_marked_from_the_beginning_and_after_marks_without_a_gap() {
    assert_eq!(Gap::default().hidden(1_000, 7), 1_000);
    let mut gap = Gap::default();
    for seed in 0..1_000 {
        gap.pass(1, seed);
    }
    assert!(gap.hidden(1_000, 7) < 10);
    for _ in 0..6 {
        gap.end();
    }
    assert!(gap.hidden(1_000, 7) > 250);
}

#[test]
fn a_gap_counts_packets_up_to_some_thousands() {
    let mut rng = Rng::new(1);
    for packets in [1u64, 10, 100, 1_000, 7_000] {
        let mut sum = 0;
        for _ in 0..200 {
            let mut gap = Gap::default();
            for _ in 0..packets {
                gap.pass(1, rng.next() as u32);
            }
            sum += gap.units();
        }
        let mean = sum as f64 / 200.0 / PACKET as f64;
        let off = mean / packets as f64;
        assert!((0.9..1.15).contains(&off), "{mean} of {packets}");
    }
}

#[test]
fn any_bits_and_any_numbers_are_borne() {
    let mut rng = Rng::new(2);
    for _ in 0..100_000 {
        let mut gap = Gap::of_bits(rng.any() as u8);
        gap.pass(rng.any() as u32, rng.any() as u32);
        assert!(gap.bits() <= MAX);
        let packets = rng.any() as u32;
        assert!(gap.hidden(packets, rng.any() as u32) <= packets);
        gap.end();
        assert_eq!(Gap::of_bits(gap.bits()), gap);
    }
}
