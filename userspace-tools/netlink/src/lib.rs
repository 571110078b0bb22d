// SPDX-License-Identifier: GPL-2.0
//! Blocking netlink for what xdc does with it: links between namespaces, routes, qdiscs, sockets.
//!
//! - [`acceltor`]: the attributes of `modules/uapi/pkt_acceltor.h`, and their words in tc's syntax.
//! - [`attributes`]: options as bytes, written and read.
//! - [`connection`]: requests in batches, dumps, errors with the kernel's own sentence.
//! - [`diag`]: TCP sockets, and the block of `modules/uapi/xdc_diag.h`.
//! - [`filter`]: programs of BPF as filters.
//! - [`link`]: veth pairs, addresses, routes, neighbours.
//! - [`qdisc`]: qdiscs with their options as bytes, and their statistics.
//! - [`phantom`]: the attributes of `modules/uapi/pkt_phantom.h`, and their words in tc's syntax.
//! - [`unorc`]: the attributes of `modules/uapi/unorc.h`, and their words in ip's syntax.
//! - [`units`]: quantities as `tc` writes them.
//! - [`words`]: options as tc's words, of any qdisc.
//!
//! A request is a value that says what it does ([`Request::what`]); nothing happens until a
//! [`Connection`] sends it. A connection belongs to the network namespace it was opened in.

pub mod acceltor;
pub mod attributes;
mod bounds;
mod codec;
pub mod connection;
pub mod diag;
pub mod filter;
pub mod link;
pub mod netfilter;
pub mod phantom;
pub mod qdisc;
pub mod units;
pub mod unorc;
pub mod words;

pub use bounds::Refusal;
pub use connection::{Connection, Error, Request, Result};
