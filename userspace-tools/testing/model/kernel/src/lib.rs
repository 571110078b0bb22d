// SPDX-License-Identifier: GPL-2.0
//! A model of what modules/kernel/tcp/ takes from the kernel crate.

pub use std::ffi;

/// A module, of which only the address matters.
pub struct ThisModule;

impl ThisModule {
    /// What C calls `THIS_MODULE`.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::null_mut()
    }
}

/// What `module!` says of a module.
pub trait ModuleMetadata {
    /// The module.
    const THIS_MODULE: ThisModule;
}

/// The one module.
pub struct ModelModule;

impl ModuleMetadata for ModelModule {
    const THIS_MODULE: ThisModule = ThisModule;
}

/// `build_error!`: what it stands in is never called.
#[macro_export]
macro_rules! build_error {
    ($($message:tt)*) => {
        unreachable!()
    };
}

/// Errors of C.
pub mod error {
    /// A negative number of errno.h.
    #[derive(Debug)]
    pub struct Error(pub i32);

    /// For methods that an implementation leaves out.
    pub const VTABLE_DEFAULT_ERROR: &str = "";

    /// What C returned.
    pub fn to_result(code: i32) -> Result<(), Error> {
        if code < 0 {
            Err(Error(code))
        } else {
            Ok(())
        }
    }
}

/// Types around C's.
pub mod types {
    use std::{cell::UnsafeCell, marker::PhantomPinned, mem::MaybeUninit};

    /// A value that C may change at any time.
    #[repr(transparent)]
    pub struct Opaque<T> {
        value: UnsafeCell<MaybeUninit<T>>,
        _pinned: PhantomPinned,
    }

    impl<T> Opaque<T> {
        /// With a first value.
        pub const fn new(value: T) -> Self {
            Self {
                value: UnsafeCell::new(MaybeUninit::new(value)),
                _pinned: PhantomPinned,
            }
        }

        /// Where it is.
        pub const fn get(&self) -> *mut T {
            self.value.get().cast()
        }
    }
}

/// How to allocate.
pub struct Flags;

/// A box that makes no claim to be the only pointer to what is in it, as the kernel's.
pub struct KBox<T>(std::ptr::NonNull<T>);

impl<T> KBox<T> {
    /// On the heap.
    pub fn pin(value: T, _flags: Flags) -> Result<std::pin::Pin<Self>, error::Error> {
        let place = Box::leak(Box::new(value)).into();
        // SAFETY: it is not moved until it is dropped.
        Ok(unsafe { std::pin::Pin::new_unchecked(KBox(place)) })
    }
}

impl<T> std::ops::Deref for KBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `pin` allocated it.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for KBox<T> {
    fn drop(&mut self) {
        // SAFETY: `pin` allocated it, and this is the end of it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What every file of a module uses.
pub mod prelude {
    pub use crate::{build_error, error::Error, Flags, KBox};
    pub use macros::vtable;
    pub use std::{
        ffi::{c_char, c_int, c_long, CStr},
        pin::Pin,
    };

    /// A result of the kernel's.
    pub type Result<T = (), E = Error> = core::result::Result<T, E>;

    /// A process may sleep for it.
    pub const GFP_KERNEL: Flags = Flags;
}
