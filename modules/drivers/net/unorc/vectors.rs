// SPDX-License-Identifier: GPL-2.0

//! Arithmetic of GF(256) with the processor's vector registers.
//!
//! The registers belong to userspace. [`Vectors`] holds them between `kernel_fpu_begin()` and
//! `kernel_fpu_end()`, with preemption off: its owner must not sleep, as with a spinlock.
//!
//! C header: `arch/x86/include/asm/fpu/api.h`

use super::bindings;
use kernel::types::NotThreadSafe;

/// Ownership of the registers, until drop.
///
/// # Invariants
///
/// `xdc_vectors_begin()` has returned true on this processor, and `xdc_vectors_end()` was not
/// called since.
pub(crate) struct Vectors {
    _on_this_processor: NotThreadSafe,
}

impl Vectors {
    /// Acquires the registers; None if the processor has no AVX2, or if interrupted kernel code
    /// uses them.
    #[inline]
    pub(crate) fn begin() -> Option<Self> {
        // SAFETY: Callable from everywhere but an NMI, in which no module of ours runs. If it returns true,
        // `drop` calls the other half, on the same processor: preemption is off, and `Vectors` is not `Send`.
        let is_ours = unsafe { bindings::xdc_vectors_begin() };
        // INVARIANT: It returned true.
        is_ours.then(|| Self {
            _on_this_processor: NotThreadSafe,
        })
    }

    /// Computes `row` x 2^`doublings` + `data` in GF(256), polynomial 0x11d. Returns the processed
    /// bytes: whole vectors, and 0 if `doublings` is above 2.
    #[inline]
    pub(crate) fn step(&mut self, row: &mut [u8], doublings: usize, data: &[u8]) -> usize {
        let bytes = row.len().min(data.len());
        let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
        // SAFETY: The registers are ours, by the type invariants. Both slices have as many bytes, and a slice
        // that is written overlaps with no other. No alignment is asked for.
        unsafe { bindings::xdc_vectors_step(row.as_mut_ptr(), doublings, data.as_ptr(), bytes) }
    }

    /// Computes `row` x 2^`doublings`; returns the processed bytes as [`Self::step`].
    #[inline]
    pub(crate) fn scale(&mut self, row: &mut [u8], doublings: usize) -> usize {
        let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
        // SAFETY: The registers are ours, by the type invariants. The slice has as many bytes.
        unsafe { bindings::xdc_vectors_scale(row.as_mut_ptr(), doublings, row.len()) }
    }

    /// Computes `p` + `data` and 2 `q` + `data`, over whole groups of eight bytes.
    #[inline]
    pub(crate) fn pair(&mut self, p: &mut [u8], q: &mut [u8], data: &[u8]) {
        let bytes = p.len().min(q.len()).min(data.len());
        // SAFETY: As in `step`. The two written slices overlap with no other.
        unsafe { bindings::xdc_vectors_pair(p.as_mut_ptr(), q.as_mut_ptr(), data.as_ptr(), bytes) }
    }
}

impl Drop for Vectors {
    // Inlined, so that a module without vectors does not need the C part.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants; it is called once, here.
        unsafe { bindings::xdc_vectors_end() }
    }
}
