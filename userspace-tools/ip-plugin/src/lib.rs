// SPDX-License-Identifier: GPL-2.0
//! `link_unorc.so`: plugin of stock `ip` for the link kind `unorc`.
//!
//! ip loads `link_KIND.so` from its plugin directory and reads the table `KIND_link_util`: iproute2's
//! `struct link_util`, unchanged since 5.10.

mod plugin;
