// SPDX-License-Identifier: GPL-2.0
//! `q_phantom.so` and `q_acceltor.so`: teach stock `tc` the qdiscs `phantom` and `acceltor`.
//!
//! tc loads `q_KIND.so` from its plugin directory and reads the table `KIND_qdisc_util` there:
//! see [`plugin`]. One library has both tables; the second name is a link to it. What its fields are is nowhere promised, so [`layout`] looks at tc's own tables
//! of that type first, and until they are found to be as we know them, every field of ours is a
//! function that refuses. Options, words and units are those of `xdc qdisc`: `xdc-netlink`.

mod host;
mod kind;
mod layout;
mod plugin;
mod text;
