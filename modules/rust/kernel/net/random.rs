// SPDX-License-Identifier: GPL-2.0

//! The kernel's random numbers.
//!
//! C header: `include/linux/random.h`

use super::bindings;

/// Returns an unpredictable number: get_random_u64().
pub(crate) fn random_u64() -> u64 {
    // SAFETY: Callable from any context.
    unsafe { bindings::xdc_random_u64() }
}
