// SPDX-License-Identifier: GPL-2.0

//! What a module registers while somebody may wait for the module and be waited for.
//!
//! `register_pernet_subsys()` waits for whoever makes or ends a network namespace, and that may wait for
//! the one who has the module of a congestion control loaded:
//!
//! - `ip route add ... congctl NAME` does it with RTNL held, which making and ending a namespace take.
//! - Writing to `net.ipv4.tcp_congestion_control` does it while the file is in use; the end of its
//!   namespace waits until it is not.
//!
//! If the module registered itself, or waited until it is registered, none of the three would go on. So a
//! worker registers, and the module waits for it for a while only: that one request then finds no
//! congestion control of this name, and the next one does.

use super::bindings;
use core::{cell::UnsafeCell, ptr};
use kernel::{prelude::*, types::Opaque};

/// How long one look at the worker takes.
const LOOK_MS: u32 = 20;

/// RTNL that is held at so many looks one after the other may be held until the module is loaded.
const LOOKS_UNDER_RTNL: u32 = 50;

/// What else the worker waits for may last as long after so many looks.
const LOOKS: u32 = 250;

/// C's part, and what is made.
#[repr(C)]
struct Inner<T> {
    c: Opaque<bindings::xdc_deferred>,
    make: fn() -> Result<T>,
    /// The worker's, until it is done or was waited for.
    made: UnsafeCell<Option<Result<T>>>,
}

/// A registration that a worker makes; it is unmade when this is dropped.
///
/// # Invariants
///
/// The work of `inner` was started.
pub(crate) struct Deferred<T: Send> {
    inner: Pin<KBox<Inner<T>>>,
}

// SAFETY: The worker makes a `T` for whoever drops it, which is `Send`; nobody has a reference to it.
unsafe impl<T: Send> Send for Deferred<T> {}
// SAFETY: A shared reference gives nothing.
unsafe impl<T: Send> Sync for Deferred<T> {}

impl<T: Send> Deferred<T> {
    /// What `make` returns, if that is known soon. Otherwise an error is for the kernel's log.
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
            pr_warn!(
                "usable a little later: the loading process holds a lock that registration needs\n"
            );
        }
        Ok(this)
    }

    /// What C knows it by. The worker gets from it to the rest, so it is a pointer to all of it.
    fn c(inner: &Inner<T>) -> *mut bindings::xdc_deferred {
        ptr::from_ref(inner).cast_mut().cast()
    }

    /// Waits for the worker for a while. Returns whether it is done.
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
        // SAFETY: By the safety requirements; nobody looks at it before the worker is done.
        unsafe { *(*inner).made.get() = Some(made) };
    }
}

impl<T: Send> Drop for Deferred<T> {
    fn drop(&mut self) {
        // SAFETY: Started, by the type invariants. Afterwards `made` is ours.
        unsafe { bindings::xdc_deferred_flush(Self::c(&self.inner)) }
    }
}
