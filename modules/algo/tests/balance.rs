// SPDX-License-Identifier: GPL-2.0

use super::*;

const RTT_US: u32 = 1_792;
const SPAN_US: u64 = 1 << SPAN_BITS;
const BDP: u64 = 1_000_000;

/// Epochs of 14 us in which so much of what was added is taken away, and so much of it marked, in 1/256.
fn epochs(balance: &mut Balance, us: u64, taken: u64, marked: u32) {
    for _ in 0..us / 14 {
        let change = Change {
            passed_us: 14,
            grown_scaled: (14 << REGROWTH_BITS) * u64::from(256 - marked) / 256,
            twice_scaled: 0,
            regrowth_scaled: (14 << REGROWTH_BITS) * taken / 256,
        };
        balance.end_epoch(RTT_US, &change);
    }
}

/// Past its youth.
fn settled() -> Balance {
    let mut balance = Balance::default();
    epochs(&mut balance, SPAN_US + 14, 256, 0);
    balance
}

fn share(balance: Balance) -> u64 {
    balance.share_bytes(1_000, 1_024, BDP)
}

#[test]
fn slow_start_sums_what_it_withholds_in_a_round_trip() {
    let mut balance = Balance::default();
    assert_eq!([balance.withhold(10), balance.withhold(5)], [10, 15]);
    balance.end_round();
    assert_eq!(balance.withhold(7), 7);
    assert_eq!(balance.withhold(u64::MAX), u64::from(YOUNG - 1));
    assert_eq!(share(balance), BDP);
    // And begins anew after a timeout.
    let mut balance = settled();
    balance.end_round();
    assert_eq!(balance, settled());
    assert_eq!(balance.withhold(3), 3);
}

#[test]
fn for_a_span_after_slow_start_steps_are_whole() {
    let mut balance = Balance::default();
    balance.withhold(1 << 20);
    epochs(&mut balance, SPAN_US - 14, 256, 0);
    assert_eq!(share(balance), BDP);
    epochs(&mut balance, 28, 256, 0);
    assert_eq!(share(balance), 1_000);
}

#[test]
fn in_balance_a_step_is_in_proportion_to_the_window_and_at_most_whole() {
    let mut balance = settled();
    for taken in [256, 200, 300, 150, 360] {
        epochs(&mut balance, 5 * SPAN_US, taken, 0);
        assert_eq!(share(balance), 1_000, "{taken}");
        assert_eq!(balance.share_bytes(BDP, 2_048, BDP), BDP);
    }
}

#[test]
fn far_from_it_steps_are_up_to_nine_times_as_large() {
    for taken in [0, 512, 5_000] {
        let mut balance = settled();
        epochs(&mut balance, 10 * SPAN_US, taken, 0);
        assert!((8_900..=9_000).contains(&share(balance)), "{taken}");
        assert_eq!(balance.share_bytes(BDP / 8, 1_024, BDP), BDP);
    }
    // In the middle between.
    for taken in [64, 448] {
        let mut balance = settled();
        epochs(&mut balance, 10 * SPAN_US, taken, 0);
        assert!(
            (4_800..=5_200).contains(&share(balance)),
            "{}",
            share(balance)
        );
    }
}

#[test]
fn marked_bytes_take_no_part_in_the_time_that_adds() {
    // Half of it adds nothing: half as much taken away is the balance.
    let mut balance = settled();
    epochs(&mut balance, 10 * SPAN_US, 128, 128);
    assert_eq!(share(balance), 1_000);
    epochs(&mut balance, 10 * SPAN_US, 256, 128);
    assert!(share(balance) > 8_500, "{}", share(balance));
}

#[test]
fn what_was_added_twice_is_taken_away_twice() {
    let mut balance = settled();
    for n in 0..20_000 {
        let change = Change {
            passed_us: 14,
            grown_scaled: 14 << REGROWTH_BITS,
            twice_scaled: if n % 2 == 0 { 14 << REGROWTH_BITS } else { 0 },
            regrowth_scaled: if n % 2 == 0 {
                0
            } else {
                3 * (14 << REGROWTH_BITS)
            },
        };
        balance.end_epoch(RTT_US, &change);
    }
    assert_eq!(share(balance), 1_000);
}

#[test]
fn a_span_has_sixteen_round_trips() {
    for (rtt_us, bits) in [
        (0, 15),
        (1, 15),
        (14, 15),
        (2_048, 15),
        (2_049, 16),
        (4_097, 17),
        (u32::MAX, 17),
    ] {
        assert_eq!(span_bits(rtt_us), bits, "{rtt_us}");
    }
}

#[test]
fn any_state_and_any_epoch_is_borne() {
    crate::algo::support::for_each_seed(|seed| {
        let mut rng = crate::algo::support::Rng::new(seed);
        let mut balance = Balance::any(&mut rng);
        for _ in 0..20 {
            let change = Change {
                passed_us: rng.any(),
                grown_scaled: rng.any(),
                twice_scaled: rng.any(),
                regrowth_scaled: rng.any(),
            };
            balance.end_epoch(rng.any() as u32, &change);
            let bdp_bytes = rng.any() & ((1 << 40) - 1);
            assert!(
                balance.share_bytes(rng.any() & ((1 << 40) - 1), 1 << 20, bdp_bytes) <= bdp_bytes
            );
        }
        0
    });
}
