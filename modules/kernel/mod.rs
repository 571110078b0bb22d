// SPDX-License-Identifier: GPL-2.0

//! The kernel's side of the three modules: safe traits and types over the C
//! interface. All `unsafe` of this project is in this directory.

// Each module uses its part.
#![allow(dead_code)]

mod bindings;
pub(crate) mod netlink;
pub(crate) mod once;
pub(crate) mod qdisc;
pub(crate) mod sysctl;
pub(crate) mod tcp;
pub(crate) mod trace;
pub(crate) mod uapi;
