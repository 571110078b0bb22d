// SPDX-License-Identifier: GPL-2.0
//! What names a TCP flow between the classifier of xdc-elephants.rs and `xdc acceltor elephants`. Included
//! by both.

/// Source and destination address of 16 bytes each, of which IPv4 fills the first four; the ports, in
/// network order; the version of IP; zeroes.
pub type Key = [u8; 40];

pub const SOURCE: usize = 0;
pub const DESTINATION: usize = 16;
/// Source port, then destination port.
pub const PORTS: usize = 32;
pub const VERSION: usize = 36;

/// Flows that are counted. When there are more, those that were not seen for longest are forgotten.
pub const MAX_FLOWS: u32 = 16_384;

/// sch_acceltor has at most as many of a pair of racks.
pub const MAX_ELEPHANTS: u32 = 4_096;

/// The map of a number that `xdc acceltor elephants` changes at each look. If the number stays the same for too long,
/// the classifier was left behind, and does nothing.
#[allow(dead_code)]
pub const BEAT: &str = "BEAT";
