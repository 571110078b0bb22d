// SPDX-License-Identifier: GPL-2.0

use super::super::support::{Rng, for_each_seed};
use super::*;

const GBIT: u64 = 125_000_000;
const MAX_BYTES_PER_S: u64 = 1_000_000_000_000_000;

fn random_rate(rng: &mut Rng) -> u64 {
    match rng.within(0, 3) {
        0 => rng.within(1, 1_000),
        1 => rng.within(1, MAX_BYTES_PER_S),
        _ => rng.within(1, 50 * GBIT),
    }
}

#[test]
fn a_busy_port_sends_at_its_exact_rate() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let rate = random_rate(&mut rng);
        let start_ns = rng.within(0, 1 << 60);
        let mut shaper = Shaper::default();
        shaper.start(start_ns);
        let mut sent_bytes = 0u128;
        for _ in 0..rng.within(10, 50) {
            // The timer is sometimes late, but never by more than the shaper catches up.
            let now_ns = shaper.next_ns() + rng.pick(&[0, 0, 1, 1_000, Shaper::MAX_LAG_NS]);
            let len_bytes = rng.within(1, 70_000);
            shaper.charge(now_ns, len_bytes, rate);
            sent_bytes += u128::from(len_bytes);
            let exact_ns = sent_bytes * u128::from(NS_PER_S) / u128::from(rate);
            assert_eq!(u128::from(shaper.next_ns() - start_ns), exact_ns);
        }
        1
    });
}

#[test]
fn lag_beyond_the_limit_is_lost() {
    let mut shaper = Shaper::default();
    shaper.start(1_000);
    let now_ns = 1_000 + Shaper::MAX_LAG_NS + 500;
    shaper.charge(now_ns, 125, GBIT);
    assert_eq!(shaper.next_ns(), 1_500 + 1_000);
}

#[test]
fn idle_time_gives_no_credit() {
    let mut shaper = Shaper::default();
    shaper.start(1_000);
    shaper.charge(1_000, 125, 3 * GBIT);
    assert_eq!(shaper.next_ns(), 1_333);
    shaper.start(50_000);
    assert_eq!(shaper.next_ns(), 50_000);
    // The third of a nanosecond is dropped, too.
    shaper.charge(50_000, 250, 3 * GBIT);
    assert_eq!(shaper.next_ns(), 50_666);
}

#[test]
fn early_packet_waits_for_the_previous_one() {
    let mut shaper = Shaper::default();
    shaper.start(1_000);
    shaper.charge(1_000, 125, 3 * GBIT);
    shaper.start(1_333);
    shaper.start(1_200);
    assert_eq!(shaper.next_ns(), 1_333);
    // The remainder is kept: 1333 1/3 + 666 2/3.
    shaper.charge(1_333, 250, 3 * GBIT);
    assert_eq!(shaper.next_ns(), 2_000);
}

#[test]
fn packet_on_the_wire_continues_at_the_new_rate() {
    let sent = |at_ns, old, new| {
        let mut shaper = Shaper::default();
        shaper.charge(0, 1_000, GBIT);
        shaper.change_rate(at_ns, old, new);
        shaper.next_ns()
    };
    // 8 us, of which 2 us have passed.
    assert_eq!(sent(2_000, GBIT, GBIT), 8_000);
    assert_eq!(sent(2_000, GBIT, 2 * GBIT), 5_000);
    assert_eq!(sent(2_000, GBIT, GBIT / 2), 14_000);
    // No shaping.
    assert_eq!(sent(2_000, GBIT, 0), 2_000);
    // The packet has left.
    assert_eq!(sent(8_000, GBIT, 2 * GBIT), 8_000);
}

#[test]
fn lag_keeps_its_bytes_at_a_new_rate() {
    let behind = |ns, old, new| {
        let mut shaper = Shaper::default();
        shaper.start(1_000);
        shaper.change_rate(1_000 + ns, old, new);
        1_000 + ns - shaper.next_ns()
    };
    assert_eq!(behind(1_000, GBIT, GBIT), 1_000);
    assert_eq!(behind(1_000, GBIT, 2 * GBIT), 500);
    assert_eq!(behind(1_000, GBIT, GBIT / 2), 2_000);
    // Time above the limit is lost.
    let limit_ns = Shaper::MAX_LAG_NS;
    assert_eq!(behind(4 * limit_ns, GBIT, 2 * GBIT), limit_ns / 2);
    // Without a rate there is no lag, however long ago a packet came to the idle port.
    assert_eq!(behind(1_000, 0, GBIT), 0);
    assert_eq!(behind(1_000, GBIT, 0), 0);
}

#[test]
fn new_rate_drops_the_old_remainder() {
    let mut shaper = Shaper::default();
    shaper.charge(0, 125, 3 * GBIT);
    shaper.change_rate(0, 3 * GBIT, GBIT);
    assert_eq!(shaper.next_ns(), 999);
    shaper.charge(999, 125, GBIT);
    assert_eq!(shaper.next_ns(), 1_999);
}

#[test]
fn any_input_causes_no_panic() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut shaper = Shaper::default();
        for _ in 0..20 {
            match rng.within(0, 2) {
                0 => shaper.start(rng.any()),
                1 => shaper.change_rate(rng.any(), rng.any(), rng.any()),
                _ => shaper.charge(rng.any(), rng.any(), rng.any()),
            }
        }
        1
    });
}
