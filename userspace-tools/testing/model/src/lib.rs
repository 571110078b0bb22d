// SPDX-License-Identifier: GPL-2.0
//! Calls modules/rust/kernel/net/tcp/ unchanged, as TCP does. Miri detects references that alias the algorithm's
//! data and accesses outside a pointer's provenance.
//!
//! `get_info` runs on the same thread only: its cells are accessed as with the kernel's READ_ONCE(), which
//! Rust treats as volatile, not atomic.

#[cfg(test)]
mod kernel_api {
    pub(crate) mod bindings;
    #[allow(dead_code)]
    #[path = "../../../../../modules/rust/kernel/net/relaxed.rs"]
    pub(crate) mod relaxed;
    pub(crate) mod sysctl {
        /// A network namespace.
        pub(crate) struct Net;

        impl Net {
            /// # Safety
            ///
            /// No requirement.
            pub(crate) unsafe fn from_raw<'a>(_net: usize) -> &'a Self {
                &Net
            }
        }
    }
    // The tests use only part of the API.
    #[allow(dead_code)]
    #[path = "../../../../../modules/rust/kernel/net/tcp/cong.rs"]
    pub(crate) mod tcp;
}

#[cfg(test)]
mod tests;
