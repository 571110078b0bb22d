// SPDX-License-Identifier: GPL-2.0

//! Registration without a deadlock while the module is being loaded.
//!
//! `register_pernet_subsys()` waits for the creation or end of a network namespace, which may wait
//! for the process that loads a congestion control's module:
//!
//! - `ip route add ... congctl NAME` loads it with RTNL held, which both operations take.
//! - Writing `net.ipv4.tcp_congestion_control` loads it while the file is in use; the end of its
//!   namespace waits for the file.
//!
//! If the module registered itself or waited for registration, all three would hang. So a worker
//! registers, and the module waits for a limited time. The request that ran into the limit finds no
//! congestion control of this name; the next request does.

use super::bindings;
use core::{cell::UnsafeCell, ptr};
use kernel::{prelude::*, types::Opaque};

/// Time between two polls of the worker.
const LOOK_MS: u32 = 20;

/// Consecutive polls with RTNL held after which the loading process may hold it.
const LOOKS_UNDER_RTNL: u32 = 50;

/// Limit of polls for other reasons.
const LOOKS: u32 = 250;

/// C's part, and the registration.
#[repr(C)]
struct Inner<T> {
    c: Opaque<bindings::xdc_deferred>,
    make: fn() -> Result<T>,
    /// Written by the worker; readable after its end.
    made: UnsafeCell<Option<Result<T>>>,
}

/// A registration that a worker creates; undone on drop.
///
/// # Invariants
///
/// The work of `inner` was started.
pub(crate) struct Deferred<T: Send> {
    inner: Pin<KBox<Inner<T>>>,
}

// SAFETY: The worker makes a `T`, which is `Send`, for the owner that drops it; no other code refers to it.
unsafe impl<T: Send> Send for Deferred<T> {}
// SAFETY: A shared reference gives nothing.
unsafe impl<T: Send> Sync for Deferred<T> {}

impl<T: Send> Deferred<T> {
    /// Returns the result of `make`, if it is known in time. A later error goes to the kernel's
    /// log.
    pub(crate) fn new(make: fn() -> Result<T>) -> Result<Self> {
        let inner = KBox::pin(
            Inner {
                c: Opaque::zeroed(),
                make,
                made: UnsafeCell::new(None),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: `inner` stays where it is until `drop` has waited for the worker.
        unsafe { bindings::xdc_deferred_start(Self::c(&inner), Some(Self::run)) };
        // INVARIANT: Just started.
        let this = Self { inner };
        if this.wait() {
            // SAFETY: The worker is done.
            if let Some(Err(error)) = unsafe { &*this.inner.made.get() } {
                return Err(*error);
            }
        } else {
            pr_warn!("usable later: the loading process holds a lock that registration needs\n");
        }
        Ok(this)
    }

    /// Returns C's pointer. The worker gets from it to the rest, so it covers all of `Inner`.
    fn c(inner: &Inner<T>) -> *mut bindings::xdc_deferred {
        ptr::from_ref(inner).cast_mut().cast()
    }

    /// Waits for the worker, for a limited time. Returns whether it is done.
    fn wait(&self) -> bool {
        let mut held = 0u32;
        for _ in 0..LOOKS {
            // SAFETY: Started, by the type invariants.
            match unsafe { bindings::xdc_deferred_wait(Self::c(&self.inner), LOOK_MS) } {
                0 => {}
                left => return left > 0,
            }
            // SAFETY: Callable from any context.
            held = match unsafe { bindings::rtnl_is_locked() } {
                0 => 0,
                _ => held.wrapping_add(1),
            };
            if held == LOOKS_UNDER_RTNL {
                break;
            }
        }
        false
    }

    /// # Safety
    ///
    /// Called by the worker only, once, with the `c` of an `Inner<T>`.
    unsafe extern "C" fn run(c: *mut bindings::xdc_deferred) {
        let inner = c.cast::<Inner<T>>();
        // SAFETY: `c` is that of an `Inner<T>`. Its `make` was set before the start and only the
        // worker reads it.
        let made = unsafe { ((*inner).make)() };
        if let Err(error) = &made {
            pr_err!(
                "not registered: error {}; unload the module and load it again\n",
                error.to_errno()
            );
        }
        // SAFETY: By the safety requirements; no code reads it before the worker is done.
        unsafe { *(*inner).made.get() = Some(made) };
    }
}

impl<T: Send> Drop for Deferred<T> {
    fn drop(&mut self) {
        // SAFETY: Started, by the type invariants. Afterwards `made` is ours.
        unsafe { bindings::xdc_deferred_flush(Self::c(&self.inner)) }
    }
}
