// SPDX-License-Identifier: GPL-2.0

//! The kernel modules' algorithms, compiled for userspace from the same files, and the lists
//! [`MODULES`] and [`ALGORITHMS`] of modules/oot/list.rs.

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

include!("../../../modules/oot/list.rs");
