// SPDX-License-Identifier: GPL-2.0

//! Arithmetic that the kernel has in C.

use super::bindings;

/// `a * b / divisor`, with a product of 128 bits. `u64::MAX` where the quotient
/// has more than 64 bits, which includes a divisor of 0.
// Most products fit 64 bits and do not come here.
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
