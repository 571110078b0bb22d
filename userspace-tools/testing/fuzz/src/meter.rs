// SPDX-License-Identifier: GPL-2.0
//! An allocator that counts, so that a test can say how much memory something took, and, without
//! a clock, how much work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Allocations beyond this many bytes fail, which ends the process.
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

    /// Bytes that `work` had at most, beside those before it, and how many allocations it made.
    pub fn measure(&self, work: impl FnOnce()) -> (usize, usize) {
        let before = self.bytes.load(Relaxed);
        let allocations = self.allocations.load(Relaxed);
        self.peak_bytes.store(before, Relaxed);
        work();
        let bytes = self.peak_bytes.load(Relaxed).saturating_sub(before);
        (bytes, self.allocations.load(Relaxed) - allocations)
    }
}

// SAFETY: the system's allocator does the work; one that fails says so by a null pointer.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = self.bytes.fetch_add(layout.size(), Relaxed) + layout.size();
        if bytes > self.limit_bytes {
            self.bytes.fetch_sub(layout.size(), Relaxed);
            return std::ptr::null_mut();
        }
        self.peak_bytes.fetch_max(bytes, Relaxed);
        self.allocations.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise about the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, and all memory is the system's.
        unsafe { System.dealloc(start, layout) }
    }
}
