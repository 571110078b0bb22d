// SPDX-License-Identifier: GPL-2.0
//! A look at the running kernel: its flows, its queues, its tracepoints, its elephants.

mod ebpf;
pub mod elephants;
pub mod observe;
pub mod qdisc;
pub mod trace;
