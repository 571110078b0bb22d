// SPDX-License-Identifier: GPL-2.0
//! `q_phantom.so` and `q_acceltor.so`: plugins of stock `tc` for the qdiscs `phantom` and
//! `acceltor`.
//!
//! tc loads `q_KIND.so` from its plugin directory and reads the table `KIND_qdisc_util`, see
//! [`plugin`]. One library has both tables; the second name is a symbolic link. The table's layout
//! is not a stable interface. So [`layout`] first checks tc's own tables; until it succeeds, every
//! field of the plugin's tables is a function that refuses. Options, words and units are those of
//! `xdc qdisc`: `xdc-netlink`.

mod host;
mod kind;
mod layout;
mod plugin;
mod text;
