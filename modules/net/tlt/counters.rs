// SPDX-License-Identifier: GPL-2.0

//! Counters of each network namespace in a /proc/net file, which `nstat` reads like
//! /proc/net/netstat.
//!
//! C header: `include/linux/proc_fs.h`

use super::{bindings, sysctl::Net};
use core::marker::PhantomData;
use kernel::{error::to_result, ffi::c_char, prelude::*, types::Opaque};

/// Counters of a module.
pub(crate) trait Counters: 'static {
    /// Name of the file in /proc/net.
    const FILE: &'static CStr;
    /// Prefix of the names in nstat.
    const PREFIX: &'static CStr;
    /// Names by index.
    const NAMES: &'static [&'static CStr];
    /// Index of the gauge: an exact number, which also falls.
    const GAUGE: usize;
}

/// C's part and its pointers.
struct Table {
    c: Opaque<bindings::xdc_counters>,
    names: [*const c_char; bindings::XDC_MAX_COUNTERS as usize],
}

/// Registered [`Counters`]; removed on drop. One per module.
///
/// # Invariants
///
/// `table` is registered and complete.
pub(crate) struct Registration<T: Counters> {
    table: Pin<KBox<Table>>,
    _counters: PhantomData<fn() -> T>,
}

// SAFETY: `table` points to static and constant data.
unsafe impl<T: Counters> Send for Registration<T> {}
// SAFETY: As above; C adds by operations of one processor, or atomically.
unsafe impl<T: Counters> Sync for Registration<T> {}

impl<T: Counters> Registration<T> {
    /// Registers the counters in every namespace, from 0. EBUSY: the module has some.
    pub(crate) fn new() -> Result<Self> {
        const { assert!(T::NAMES.len() <= bindings::XDC_MAX_COUNTERS as usize) };
        let mut names = [core::ptr::null(); bindings::XDC_MAX_COUNTERS as usize];
        for (slot, name) in names.iter_mut().zip(T::NAMES) {
            *slot = name.as_char_ptr();
        }
        let table = KBox::pin(
            Table {
                c: Opaque::zeroed(),
                names,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: No other code knows it yet; `names` stays beside it.
        unsafe {
            *table.c.get() = bindings::xdc_counters {
                file: T::FILE.as_char_ptr(),
                prefix: T::PREFIX.as_char_ptr(),
                names: table.names.as_ptr(),
                count: T::NAMES.len() as c_uint,
                gauge: T::GAUGE as c_uint,
            };
        }
        // SAFETY: `table` is complete, and stays where it is until `drop` has unregistered it.
        to_result(unsafe { bindings::xdc_counters_register(table.c.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self {
            table,
            _counters: PhantomData,
        })
    }

    /// Adds to a counter of this processor.
    #[inline]
    pub(crate) fn add(&self, net: &Net, counter: usize, n: u32) {
        // SAFETY: The namespace is alive and has the counters, by the invariants.
        unsafe { bindings::xdc_counter_add(net.as_ptr(), counter as c_uint, n) }
    }

    /// Adds to the gauge, and returns the sum.
    #[inline]
    pub(crate) fn add_to_gauge(&self, net: &Net, n: i32) -> i32 {
        // SAFETY: The namespace is alive and has the counters, by the invariants.
        unsafe { bindings::xdc_gauge_add(net.as_ptr(), n) }
    }
}

impl<T: Counters> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C waits for readers of the files.
        unsafe { bindings::xdc_counters_unregister() }
    }
}
