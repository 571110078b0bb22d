// SPDX-License-Identifier: GPL-2.0
//! An allocator that counts allocated bytes, and allocations as a measure of work without a clock.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Allocations beyond this limit fail, which ends the process.
pub struct Meter {
    limit_bytes: usize,
    bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    allocations: AtomicUsize,
}

impl Meter {
    pub const fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            allocations: AtomicUsize::new(0),
        }
    }

    /// Returns the peak bytes that `work` allocated beyond the level before it, and its number of
    /// allocations.
    pub fn measure(&self, work: impl FnOnce()) -> (usize, usize) {
        let before = self.bytes.load(Relaxed);
        let allocations = self.allocations.load(Relaxed);
        self.peak_bytes.store(before, Relaxed);
        work();
        let bytes = self.peak_bytes.load(Relaxed).saturating_sub(before);
        (bytes, self.allocations.load(Relaxed) - allocations)
    }
}

// SAFETY: The system's allocator does the work; a null pointer reports failure.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = self.bytes.fetch_add(layout.size(), Relaxed) + layout.size();
        if bytes > self.limit_bytes {
            self.bytes.fetch_sub(layout.size(), Relaxed);
            return std::ptr::null_mut();
        }
        self.peak_bytes.fetch_max(bytes, Relaxed);
        self.allocations.fetch_add(1, Relaxed);
        // SAFETY: The caller guarantees a valid layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Relaxed);
        // SAFETY: The caller guarantees the layout, and all memory is the system's.
        unsafe { System.dealloc(start, layout) }
    }
}
