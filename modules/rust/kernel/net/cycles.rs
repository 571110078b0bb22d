// SPDX-License-Identifier: GPL-2.0

//! The time stamp counter, for modules that only tests load.
//!
//! C header: `include/linux/timex.h`

use super::bindings;

/// Returns cycles; instructions in QEMU with `-icount`.
pub(crate) fn cycles() -> u64 {
    // SAFETY: Callable from everywhere.
    unsafe { bindings::xdc_cycles() }
}
