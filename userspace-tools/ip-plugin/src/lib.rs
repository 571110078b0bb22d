// SPDX-License-Identifier: GPL-2.0
//! `link_unorc.so`: teaches stock `ip` the link kind `unorc`.
//!
//! ip loads `link_KIND.so` from its plugin directory and reads the table `KIND_link_util` there, whose
//! fields are those of iproute2's `struct link_util`, the same since 5.10.

mod plugin;
