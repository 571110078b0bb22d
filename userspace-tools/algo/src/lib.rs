// SPDX-License-Identifier: GPL-2.0

//! The algorithms of the kernel modules, compiled for userspace: the very same files. And what there
//! is: [`MODULES`] and [`ALGORITHMS`], as modules/list.rs has them.

#![cfg_attr(not(test), no_std)]
#![deny(missing_docs, unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::float_arithmetic,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

#[path = "../../../modules/algo/mod.rs"]
mod algo;
mod registry;

pub use algo::*;
use registry::modules;
pub use registry::{Kind, Module, Visitor};

include!("../../../modules/list.rs");
