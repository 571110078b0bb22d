// SPDX-License-Identifier: GPL-2.0
//! Blocking netlink for xdc: links between namespaces, routes, qdiscs, sockets.
//!
//! - [`acceltor`]: attributes of `modules/include/uapi/linux/pkt_acceltor.h`, and tc's syntax for them.
//! - [`attributes`]: encoding and decoding of options.
//! - [`connection`]: batches of requests, dumps, errors with the kernel's message.
//! - [`diag`]: TCP sockets, and the block of `modules/include/uapi/linux/xdc_diag.h`.
//! - [`fabric`]: attributes of `modules/include/uapi/linux/fabric.h`.
//! - [`filter`]: BPF programs as filters.
//! - [`generic`]: requests to a generic netlink family.
//! - [`link`]: veth pairs, addresses, routes, neighbors.
//! - [`qdisc`]: qdiscs with encoded options, and their statistics.
//! - [`phantom`]: attributes of `modules/include/uapi/linux/pkt_phantom.h`, and tc's syntax for them.
//! - [`unorc`]: attributes and peers of `modules/include/uapi/linux/unorc.h`, and ip's syntax for options.
//! - [`units`]: quantities in tc's syntax.
//! - [`words`]: options of any qdisc in tc's syntax.
//!
//! A [`Request`] has no effect until a [`Connection`] sends it. A connection belongs to the network
//! namespace in which it was opened.

pub mod acceltor;
pub mod attributes;
mod bounds;
mod codec;
pub mod connection;
pub mod diag;
pub mod fabric;
pub mod filter;
pub mod generic;
pub mod link;
pub mod netfilter;
pub mod phantom;
pub mod qdisc;
#[cfg(test)]
mod tests;
pub mod units;
pub mod unorc;
pub mod words;

pub use bounds::Refusal;
pub use connection::{Connection, Error, Request, Result};
