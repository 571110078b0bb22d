// SPDX-License-Identifier: GPL-2.0
//! Offsets and protocol numbers of a frame. Included by the classifiers.

pub const ETHERNET_BYTES: usize = 14;
pub const ETHERTYPE_AT: usize = 12;
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const TCP: u8 = 6;
