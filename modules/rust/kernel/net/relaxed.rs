// SPDX-License-Identifier: GPL-2.0

//! Words that are read without the lock under which they are written.
//!
//! `kernel::sync::atomic::Atomic` with `Relaxed` has the same meaning. But each load and store
//! calls a C helper if the kernel lacks CONFIG_RUST_INLINE_HELPERS, as most do (cost:
//! docs/design.md). Atomics remain for read-modify-write in one step.

use core::{cell::UnsafeCell, ptr};

/// Integers that the machine loads and stores in one piece.
///
/// # Safety
///
/// Implemented only for types whose aligned volatile access is one machine
/// access and for which every bit pattern is valid.
pub(crate) unsafe trait Word: Copy {}

// SAFETY: At most as wide as a register; any bit pattern is a value.
unsafe impl Word for u32 {}
// SAFETY: As above, on the 64-bit machines that the kernel has Rust for.
#[cfg(CONFIG_64BIT)]
unsafe impl Word for u64 {}

/// A word with the semantics of READ_ONCE() and WRITE_ONCE(): readers see a stored value, never a
/// torn one, without ordering.
#[repr(transparent)]
pub(crate) struct RelaxedCell<T: Word>(UnsafeCell<T>);

// SAFETY: All access is by volatile loads and stores of a `Word`, which the
// kernel's memory model gives the meaning of relaxed atomics.
unsafe impl<T: Word + Send> Sync for RelaxedCell<T> {}

impl<T: Word> RelaxedCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> T {
        // SAFETY: The cell is valid and aligned; see `Sync` for races.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    #[inline]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: The cell is valid and aligned; see `Sync` for races.
        unsafe { ptr::write_volatile(self.0.get(), value) }
    }
}

impl RelaxedCell<u64> {
    /// Adds `n`, for a single writer at a time.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
}
