// SPDX-License-Identifier: GPL-2.0

//! Fixed-point scales and the few operations on them.
//!
//! Widest values: 400 Gbit/s x 300 ms is a BDP of 15 GB, so a window stays below 2^40 bytes and
//! below 2^56 at [`BYTE_ONE`]. A product that can pass 64 bits goes through [`mul_div`] or
//! [`mul_shr`]; both saturate.

/// Scale of ratios that a person sets: 1.0 = 1024.
pub const RATIO_BITS: u32 = 10;
/// 1.0 as a ratio.
pub const RATIO_ONE: u32 = 1 << RATIO_BITS;

/// Scale of fractions that an algorithm keeps: 1.0 = 2^30, and sums of two fit a `u32`.
pub const FRACTION_BITS: u32 = 30;
/// 1.0 as a fraction.
pub const FRACTION_ONE: u32 = 1 << FRACTION_BITS;

/// Scale of byte counts that carry fractions of a byte.
pub const BYTE_BITS: u32 = 16;
/// One byte with its fraction.
pub const BYTE_ONE: u64 = 1 << BYTE_BITS;

/// No window and no BDP passes this; it leaves eight bits above the fraction.
pub const MAX_BYTES: u64 = 1 << 40;

/// Parts per million.
pub const PPM: u64 = 1_000_000;
/// Nanoseconds in a microsecond.
pub const NS_PER_US: u64 = 1_000;
/// Microseconds in a second.
pub const US_PER_S: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// `a * b >> shift`, saturating.
pub fn mul_shr(a: u64, b: u64, shift: u32) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    u64::try_from(product.checked_shr(shift).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// `a * b / divisor` rounded down, saturating; `u64::MAX` for a zero divisor.
pub fn mul_div(a: u64, b: u64, divisor: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.checked_div(divisor).unwrap_or(u64::MAX),
        None => mul_div_wide(a, b, divisor),
    }
}

/// Long division of the 128-bit product: the kernel has no division of a `u128`.
#[cold]
fn mul_div_wide(a: u64, b: u64, divisor: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    let mut remainder = (product >> u64::BITS) as u64;
    if remainder >= divisor {
        return u64::MAX;
    }
    let mut quotient = product as u64;
    for _ in 0..u64::BITS {
        // remainder:quotient shift left together; the quotient's bits enter from the right.
        let carry = remainder >> 63 != 0;
        remainder = remainder << 1 | quotient >> 63;
        quotient <<= 1;
        if carry || remainder >= divisor {
            remainder = remainder.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

/// A fraction in ppm, for people.
pub fn ppm(fraction: u32) -> u32 {
    mul_fraction(PPM, fraction) as u32
}

/// `value x ratio`, the ratio in 1/1024.
pub fn mul_ratio(value: u64, ratio: u32) -> u64 {
    mul_shr(value, u64::from(ratio), RATIO_BITS)
}

/// `value x fraction`, the fraction in 2^-30.
pub fn mul_fraction(value: u64, fraction: u32) -> u64 {
    mul_shr(value, u64::from(fraction), FRACTION_BITS)
}

/// `part / whole` as a fraction, at most 1; 0 where the whole is 0.
pub fn fraction(part: u64, whole: u64) -> u32 {
    match (part, whole) {
        (0, _) | (_, 0) => 0,
        _ if part >= whole => FRACTION_ONE,
        _ => mul_div(part, u64::from(FRACTION_ONE), whole) as u32,
    }
}

/// One step of an exponential average of fractions: `(1 - gain) x average + gain x sample`.
///
/// `gain` is a ratio, at most 1.
pub fn ewma(average: u32, sample: u32, gain: u32) -> u32 {
    let gain = u64::from(gain.min(RATIO_ONE));
    let kept = u64::from(average).wrapping_mul(u64::from(RATIO_ONE).wrapping_sub(gain));
    let added = u64::from(sample).wrapping_mul(gain);
    // 2^30 x 2^10 at most on either side, and the gains sum to one.
    (kept.wrapping_add(added) >> RATIO_BITS) as u32
}

/// Bandwidth-delay product, at most [`MAX_BYTES`]. 1 Mbit/s is one bit per microsecond.
pub fn bdp_bytes(rate_mbps: u32, rtt_us: u32) -> u64 {
    let bits = u64::from(rate_mbps).wrapping_mul(u64::from(rtt_us));
    (bits >> 3).min(MAX_BYTES)
}

/// Rate that sends `bytes` once per `interval_us`; `u64::MAX` where the interval is 0, and at least
/// 1, because TCP takes 0 for "not paced".
pub fn bytes_per_s(bytes: u64, interval_us: u32) -> u64 {
    mul_div(bytes, US_PER_S, u64::from(interval_us)).max(1)
}

#[cfg(test)]
#[path = "tests/fixed.rs"]
mod tests;
