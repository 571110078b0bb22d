// SPDX-License-Identifier: GPL-2.0

//! Kernel interface of the modules: safe traits and types over C. All `unsafe` of this project is
//! in this directory.

// Compiled into each module, which uses a part; `make test` (selftests/host/sources) checks that
// some module uses each item.
#![allow(dead_code)]

// Modules use its structs; its functions are unsafe and called in this directory only.
pub(crate) mod bindings;
pub(crate) mod conn;
pub(crate) mod counters;
pub(crate) mod cycles;
pub(crate) mod deferred;
pub(crate) mod flows;
pub(crate) mod math;
pub(crate) mod netdev;
pub(crate) mod netfilter;
pub(crate) mod netlink;
pub(crate) mod qdisc;
pub(crate) mod random;
pub(crate) mod relaxed;
pub(crate) mod seq;
pub(crate) mod speeds;
pub(crate) mod sysctl;
pub(crate) mod tcp;
pub(crate) mod trace;
pub(crate) mod uapi;
pub(crate) mod udp_tunnel;
pub(crate) mod vectors;
