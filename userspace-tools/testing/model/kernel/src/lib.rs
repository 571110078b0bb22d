// SPDX-License-Identifier: GPL-2.0
//! Model of the kernel crate's items that modules/rust/kernel/net/tcp/ uses.

pub use std::ffi;

/// A module; only the address matters.
pub struct ThisModule;

impl ThisModule {
    /// Address that C calls `THIS_MODULE`.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::null_mut()
    }
}

/// Metadata from `module!`.
pub trait ModuleMetadata {
    /// This module.
    const THIS_MODULE: ThisModule;
}

/// The model's only module.
pub struct ModelModule;

impl ModuleMetadata for ModelModule {
    const THIS_MODULE: ThisModule = ThisModule;
}

/// `build_error!`, for branches that are never reached.
#[macro_export]
macro_rules! build_error {
    ($($message:tt)*) => {
        unreachable!()
    };
}

/// Errors from C.
pub mod error {
    /// Negative errno value.
    #[derive(Debug)]
    pub struct Error(pub i32);

    /// Message of methods that an implementation leaves out.
    pub const VTABLE_DEFAULT_ERROR: &str = "";

    /// Converts a return value of C.
    pub fn to_result(code: i32) -> Result<(), Error> {
        if code < 0 {
            Err(Error(code))
        } else {
            Ok(())
        }
    }
}

/// Wrappers of C types.
pub mod types {
    use std::{cell::UnsafeCell, marker::PhantomPinned, mem::MaybeUninit};

    /// Value that C may change at any time.
    #[repr(transparent)]
    pub struct Opaque<T> {
        value: UnsafeCell<MaybeUninit<T>>,
        _pinned: PhantomPinned,
    }

    impl<T> Opaque<T> {
        /// Creates it with an initial value.
        pub const fn new(value: T) -> Self {
            Self {
                value: UnsafeCell::new(MaybeUninit::new(value)),
                _pinned: PhantomPinned,
            }
        }

        /// Address of the value.
        pub const fn get(&self) -> *mut T {
            self.value.get().cast()
        }
    }
}

/// Allocation flags.
pub struct Flags;

/// Box that does not claim to be the only pointer to its value, as the kernel's `KBox`.
pub struct KBox<T>(std::ptr::NonNull<T>);

impl<T> KBox<T> {
    /// Allocates on the heap.
    pub fn pin(value: T, _flags: Flags) -> Result<std::pin::Pin<Self>, error::Error> {
        let place = Box::leak(Box::new(value)).into();
        // SAFETY: The value is not moved before it is dropped.
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
        // SAFETY: `pin` allocated the value, and nothing uses it after this.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Items that every file of a module imports.
pub mod prelude {
    pub use crate::{build_error, error::Error, Flags, KBox};
    pub use macros::vtable;
    pub use std::{
        ffi::{c_char, c_int, c_long, CStr},
        pin::Pin,
    };

    /// `Result` of the kernel crate.
    pub type Result<T = (), E = Error> = core::result::Result<T, E>;

    /// Flags of allocations that may sleep.
    pub const GFP_KERNEL: Flags = Flags;
}
