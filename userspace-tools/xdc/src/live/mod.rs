// SPDX-License-Identifier: GPL-2.0
//! Observes the running kernel: flows, queues, tracepoints, elephants.

mod ebpf;
pub mod elephants;
pub mod observe;
pub mod qdisc;
pub mod trace;
