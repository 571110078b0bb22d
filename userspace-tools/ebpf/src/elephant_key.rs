// SPDX-License-Identifier: GPL-2.0
//! Keys and limits of the maps between the classifier of xdc-elephants.rs and `xdc acceltor elephants`.
//! Included by both.

/// Key of a TCP flow: source and destination address of 16 bytes each, of which IPv4 uses the first four; the
/// ports in network order; the IP version; zeroes.
pub type Key = [u8; 40];

pub const SOURCE: usize = 0;
pub const DESTINATION: usize = 16;
/// Source port, then destination port.
pub const PORTS: usize = 32;
pub const VERSION: usize = 36;

/// Most flows that are counted; the least recently seen are forgotten.
pub const MAX_FLOWS: u32 = 16_384;

/// Most elephants of sch_acceltor per pair of racks.
pub const MAX_ELEPHANTS: u32 = 4_096;

/// Map of a heartbeat that `xdc acceltor elephants` changes at each read. If the number stays the same for
/// too long, the classifier has no reader and selects nothing.
#[allow(dead_code)]
pub const BEAT: &str = "BEAT";
