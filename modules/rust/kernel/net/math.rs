// SPDX-License-Identifier: GPL-2.0

//! Arithmetic of the kernel's C code.

use super::bindings;

/// Returns `a * b / divisor` with a 128-bit product; `u64::MAX` if the quotient exceeds 64 bits,
/// including a divisor of 0.
// Cold: most products fit 64 bits and take another path.
#[cold]
#[inline(never)]
pub(crate) fn mul_u64_u64_div_u64(a: u64, b: u64, divisor: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    if (product >> u64::BITS) as u64 >= divisor {
        return u64::MAX;
    }
    // SAFETY: The C function requires a quotient of at most 64 bits.
    unsafe { bindings::xdc_mul_u64_u64_div_u64(a, b, divisor) }
}
