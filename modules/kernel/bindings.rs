// SPDX-License-Identifier: GPL-2.0

//! The C interface that this directory wraps, as bindgen wrote it for the
//! kernel being built for. Nothing outside modules/kernel/ uses it.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    // The next one is younger than rustc 1.85.
    unknown_lints,
    unnecessary_transmutes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

include!(env!("XDC_BINDINGS"));
