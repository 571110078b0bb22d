// SPDX-License-Identifier: GPL-2.0
//! `q_phantom.so`: teaches stock `tc` the qdisc `phantom`.
//!
//! tc loads `q_KIND.so` from its plugin directory and reads the table `KIND_qdisc_util` there:
//! see [`plugin`]. What its fields are is nowhere promised, so [`layout`] looks at tc's own tables
//! of that type first, and until they are found to be as we know them, every field of ours is a
//! function that refuses. Options, words and units are those of `xdc qdisc`: `xdc-netlink`.

mod host;
mod layout;
mod plugin;
mod text;
