// SPDX-License-Identifier: GPL-2.0
//! modules/kernel/tcp/ as it is, called as TCP calls it. Miri looks for references that alias the
//! algorithm's data, and for accesses outside of what a pointer was made from. `get_info` is called
//! by the same thread only: its cells are accessed as the kernel's READ_ONCE() does, which Rust
//! knows as volatile and not as atomic.

#[cfg(test)]
mod kernel_api {
    pub(crate) mod bindings;
    #[allow(dead_code)]
    #[path = "../../../../../modules/kernel/relaxed.rs"]
    pub(crate) mod relaxed;
    pub(crate) mod sysctl {
        /// A namespace.
        pub(crate) struct Net;

        impl Net {
            /// # Safety
            ///
            /// None here.
            pub(crate) unsafe fn from_raw<'a>(_net: usize) -> &'a Self {
                &Net
            }
        }
    }
    // A test uses a part of it.
    #[allow(dead_code)]
    #[path = "../../../../../modules/kernel/tcp/mod.rs"]
    pub(crate) mod tcp;
}

#[cfg(test)]
mod tests;
