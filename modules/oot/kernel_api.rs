// SPDX-License-Identifier: GPL-2.0

//! Kernel interface of the modules: safe traits and types over C. In the kernel's tree it would be
//! part of the kernel crate; here each module compiles it. selftests/host/sources lists the places
//! of `unsafe`.

// Compiled into each module, which uses a part; `make test` (selftests/host/sources) checks that
// some module uses each item.
#![allow(dead_code)]

// Modules use its structs; its functions are unsafe and called by the abstractions only.
pub(crate) mod bindings;
#[path = "../net/tlt/conn.rs"]
pub(crate) mod conn;
#[path = "../net/tlt/counters.rs"]
pub(crate) mod counters;
#[path = "../rust/kernel/net/cycles.rs"]
pub(crate) mod cycles;
#[path = "../rust/kernel/net/deferred.rs"]
pub(crate) mod deferred;
#[path = "../drivers/net/fabric/device.rs"]
pub(crate) mod fabric_net;
#[path = "../net/tlt/flows.rs"]
pub(crate) mod flows;
#[path = "../rust/kernel/net/math.rs"]
pub(crate) mod math;
#[path = "../rust/kernel/net/netdev.rs"]
pub(crate) mod netdev;
#[path = "../net/tlt/netfilter.rs"]
pub(crate) mod netfilter;
#[path = "../rust/kernel/net/netlink.rs"]
pub(crate) mod netlink;
#[path = "../rust/kernel/net/sched/qdisc.rs"]
pub(crate) mod qdisc;
#[path = "../rust/kernel/net/random.rs"]
pub(crate) mod random;
#[path = "../rust/kernel/net/relaxed.rs"]
pub(crate) mod relaxed;
#[path = "../rust/kernel/net/seq.rs"]
pub(crate) mod seq;
#[path = "../rust/kernel/net/speeds.rs"]
pub(crate) mod speeds;
#[path = "../rust/kernel/net/sysctl.rs"]
pub(crate) mod sysctl;
#[path = "../rust/kernel/net/tcp/cong.rs"]
pub(crate) mod tcp;
#[path = "../rust/kernel/net/trace.rs"]
pub(crate) mod trace;
#[path = "../rust/kernel/net/uapi.rs"]
pub(crate) mod uapi;
#[path = "../drivers/net/unorc/device.rs"]
pub(crate) mod udp_tunnel;
#[path = "../drivers/net/unorc/vectors.rs"]
pub(crate) mod vectors;
