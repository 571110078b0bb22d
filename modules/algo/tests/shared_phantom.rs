// SPDX-License-Identifier: GPL-2.0

use super::super::phantom::Phantom;
use super::super::support::{Rng, for_each_seed};
use super::*;

const GBIT: u64 = 125_000_000;

fn config(rng: &mut Rng) -> Config {
    Config {
        drain_bytes_per_s: match rng.within(0, 2) {
            0 => rng.within(1_000, 1_000_000),
            _ => rng.within(1_000_000, 50 * GBIT),
        },
        limit_bytes: rng.pick(&[100_000, 22_400_000, 1 << 40]),
    }
}

/// Sends packets at about the drain rate, so that the queue is neither always full nor always
/// empty.
#[test]
fn shared_queue_matches_the_phantom_queue_within_a_packet() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let config = config(&mut rng);
        let mut now_ns = rng.within(1, 1 << 50);
        let (mut shared, mut plain) = (EmptyAt::default(), Phantom::default());
        plain.drain(&config, now_ns);
        let mut rounding = 2u64;
        for _ in 0..rng.within(10, 60) {
            let len_bytes = rng.within(64, 9_000);
            let gap_ns = mul_div(len_bytes, NS_PER_S, config.drain_bytes_per_s);
            now_ns += rng.within(0, gap_ns * 2);
            shared = shared.add(&config, now_ns, len_bytes);
            let want = plain.add(&config, now_ns, len_bytes);
            // Half a tick for each packet.
            rounding += config.drain_bytes_per_s / TICKS_PER_S + 1;
            let got = shared.bytes(&config, now_ns);
            assert!(got.abs_diff(want) <= rounding, "{got}, {want}: {config:?}");
        }
        1
    });
}

#[test]
fn a_million_packets_of_one_length_are_off_by_a_thousandth_at_most() {
    let config = Config {
        drain_bytes_per_s: 90 * GBIT,
        limit_bytes: 1 << 40,
    };
    let mut shared = EmptyAt::default();
    for _ in 0..1_000_000 {
        shared = shared.add(&config, 1_000, 1_514);
    }
    let bytes = shared.bytes(&config, 1_000);
    assert!(bytes.abs_diff(1_514_000_000) <= 1_514_000, "{bytes}");
}

#[test]
fn occupancy_stays_between_zero_and_the_limit() {
    let config = Config {
        drain_bytes_per_s: GBIT,
        limit_bytes: 10_000,
    };
    let mut queue = EmptyAt::default();
    for _ in 0..20 {
        queue = queue.add(&config, 1_000, 1_000);
    }
    assert_eq!(queue.bytes(&config, 1_000), 10_000);
    // 8 ns per byte.
    assert_eq!(queue.bytes(&config, 1_000 + 40_000), 5_000);
    assert_eq!(queue.bytes(&config, 1_000 + 80_000), 0);
    assert_eq!(queue.bytes(&config, 1_000_000), 0);
    // Idle time gives no credit.
    let queue = queue.add(&config, 1_000_000, 1_000);
    assert_eq!(queue.bytes(&config, 1_000_000), 1_000);
    // Another processor's clock is behind.
    assert_eq!(queue.bytes(&config, 999_000), 1_125);
}

#[test]
fn new_rate_keeps_the_occupancy() {
    let old = Config {
        drain_bytes_per_s: GBIT,
        limit_bytes: 100_000,
    };
    let new = Config {
        drain_bytes_per_s: 10 * GBIT,
        limit_bytes: 100_000,
    };
    let queue = EmptyAt::default().add(&old, 0, 50_000);
    let queue = queue.change(&old, &new, 80_000);
    assert_eq!(queue.bytes(&new, 80_000), 40_000);
    let smaller = Config {
        limit_bytes: 10_000,
        ..new
    };
    assert_eq!(
        queue.change(&new, &smaller, 80_000).bytes(&smaller, 80_000),
        10_000
    );
}

#[test]
fn any_input_causes_no_panic() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut any = || Config {
            drain_bytes_per_s: rng.any(),
            limit_bytes: rng.any(),
        };
        let (old, new) = (any(), any());
        let queue = EmptyAt(rng.any()).add(&old, rng.any(), rng.any());
        queue.change(&old, &new, rng.any()).bytes(&new, rng.any()) & 1
    });
}
