// SPDX-License-Identifier: GPL-2.0

//! Words that are read without the lock under which they are written.
//!
//! `kernel::sync::atomic::Atomic` with `Relaxed` means the same. But each of
//! its loads and stores is a call of a C helper where the kernel was built
//! without CONFIG_RUST_INLINE_HELPERS, as most are: docs/design.md has what
//! that costs. Where a word is read, changed and written in one step it is used.

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

/// A word accessed with the semantics of READ_ONCE() and WRITE_ONCE(): readers
/// see some value that was stored, never a torn one, and nothing is ordered.
#[repr(transparent)]
pub(crate) struct Once<T: Word>(UnsafeCell<T>);

// SAFETY: All access is by volatile loads and stores of a `Word`, which the
// kernel's memory model gives the meaning of relaxed atomics.
unsafe impl<T: Word + Send> Sync for Once<T> {}

impl<T: Word> Once<T> {
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

impl Once<u64> {
    /// Adds for the one writer that there is at a time.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
}
