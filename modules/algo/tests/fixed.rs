// SPDX-License-Identifier: GPL-2.0

use super::super::support::{Rng, for_each_seed};
use super::*;

#[test]
fn mul_div_is_exact_or_saturates() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let (a, b, divisor) = (rng.any(), rng.any(), rng.any().max(1));
        let exact = u128::from(a) * u128::from(b) / u128::from(divisor);
        let expected = u64::try_from(exact).unwrap_or(u64::MAX);
        assert_eq!(mul_div(a, b, divisor), expected, "{a} x {b} / {divisor}");
        0
    });
}

#[test]
fn a_zero_divisor_saturates() {
    assert_eq!(mul_div(0, 0, 0), u64::MAX);
    assert_eq!(mul_div(u64::MAX, u64::MAX, 0), u64::MAX);
}

#[test]
fn mul_shr_saturates() {
    assert_eq!(mul_shr(u64::MAX, u64::MAX, 64), u64::MAX - 1);
    assert_eq!(mul_shr(u64::MAX, u64::MAX, 63), u64::MAX);
    assert_eq!(mul_shr(1 << 40, 1 << 30, 30), 1 << 40);
}

#[test]
fn a_fraction_is_at_most_one() {
    assert_eq!(fraction(0, 0), 0);
    assert_eq!(fraction(1, 0), 0);
    assert_eq!(fraction(7, 7), FRACTION_ONE);
    assert_eq!(fraction(1, 4), FRACTION_ONE / 4);
    assert_eq!(fraction(u64::MAX, 1), FRACTION_ONE);
}

#[test]
fn an_average_stays_between_its_parts() {
    assert_eq!(ewma(0, FRACTION_ONE, RATIO_ONE), FRACTION_ONE);
    assert_eq!(ewma(FRACTION_ONE, FRACTION_ONE, 1), FRACTION_ONE);
    assert_eq!(ewma(FRACTION_ONE, 0, RATIO_ONE / 2), FRACTION_ONE / 2);
    assert_eq!(ewma(FRACTION_ONE, 0, u32::MAX), 0);
}

#[test]
fn a_bdp_is_rate_times_rtt() {
    assert_eq!(bdp_bytes(100_000, 14), 175_000);
    assert_eq!(bdp_bytes(100_000, 1_792), 22_400_000);
    assert_eq!(bdp_bytes(400_000, 300_000), 15_000_000_000);
    assert_eq!(bdp_bytes(u32::MAX, u32::MAX), MAX_BYTES);
}

#[test]
fn a_rate_is_never_zero() {
    assert_eq!(bytes_per_s(1_460, 1_000_000), 1_460);
    assert_eq!(bytes_per_s(2, u32::MAX), 1);
    assert_eq!(bytes_per_s(2, 0), u64::MAX);
}
