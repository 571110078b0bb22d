// SPDX-License-Identifier: GPL-2.0

//! Packet colours and who may enter a port's buffer.
//!
//! Source: TLT, section 4 (colour-aware dropping): a red, unimportant, packet is refused once
//! the red bytes of the port pass a limit, so that room is left for the important ones. The
//! dynamic threshold of a shared buffer is Choudhury and Hahne's.

use super::fixed::{PPM, mul_div};

/// How much a packet matters. The values are `enum tc_phantom_color`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Color {
    /// Important: only the port's own limit stops it.
    #[default]
    Green = 0,
    /// In between.
    Yellow = 1,
    /// Unimportant: the first to go.
    Red = 2,
}

impl Color {
    /// The colour of that number in the netlink interface.
    pub fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Color::Green),
            1 => Some(Color::Yellow),
            2 => Some(Color::Red),
            _ => None,
        }
    }

    /// The colour that a class id or a priority names in its minor number: 1 green, 2 yellow,
    /// 3 red; anything else is green.
    pub fn from_minor(minor: u32) -> Self {
        match minor {
            2 => Color::Yellow,
            3 => Color::Red,
            _ => Color::Green,
        }
    }
}

/// Number of DSCP values.
pub const DSCPS: usize = 64;

/// Colour per DSCP, two bits each. All zeroes is green throughout.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DscpTable {
    yellow: u64,
    red: u64,
}

impl DscpTable {
    /// Gives packets of `dscp` a colour; only the low six bits of `dscp` count.
    pub fn set(&mut self, dscp: u8, color: Color) {
        let bit = Self::bit(dscp);
        self.yellow &= !bit;
        self.red &= !bit;
        match color {
            Color::Green => {}
            Color::Yellow => self.yellow |= bit,
            Color::Red => self.red |= bit,
        }
    }

    /// The colour of packets of `dscp`.
    pub fn get(&self, dscp: u8) -> Color {
        let bit = Self::bit(dscp);
        if self.red & bit != 0 {
            Color::Red
        } else if self.yellow & bit != 0 {
            Color::Yellow
        } else {
            Color::Green
        }
    }

    fn bit(dscp: u8) -> u64 {
        1u64.wrapping_shl(u32::from(dscp))
    }
}

/// Bytes queued on one port, by colour. Green is what is neither yellow nor red, so that most
/// packets move one number.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Occupancy {
    total_bytes: u64,
    yellow_bytes: u64,
    red_bytes: u64,
}

impl Occupancy {
    /// Bytes of one colour.
    pub fn of(&self, color: Color) -> u64 {
        match color {
            Color::Green => self
                .total_bytes
                .saturating_sub(self.yellow_bytes)
                .saturating_sub(self.red_bytes),
            Color::Yellow => self.yellow_bytes,
            Color::Red => self.red_bytes,
        }
    }

    /// Bytes of all colours.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total_bytes
    }

    /// A packet enters the queue.
    #[inline]
    pub fn add(&mut self, color: Color, len_bytes: u64) {
        self.total_bytes = self.total_bytes.wrapping_add(len_bytes);
        if let Some(bytes) = self.slot(color) {
            *bytes = bytes.wrapping_add(len_bytes);
        }
    }

    /// A packet leaves the queue.
    #[inline]
    pub fn remove(&mut self, color: Color, len_bytes: u64) {
        self.total_bytes = self.total_bytes.wrapping_sub(len_bytes);
        if let Some(bytes) = self.slot(color) {
            *bytes = bytes.saturating_sub(len_bytes);
        }
    }

    fn slot(&mut self, color: Color) -> Option<&mut u64> {
        match color {
            Color::Green => None,
            Color::Yellow => Some(&mut self.yellow_bytes),
            Color::Red => Some(&mut self.red_bytes),
        }
    }
}

/// Drop thresholds by colour. All zeroes limits no colour.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Most yellow bytes; 0 = no limit.
    pub yellow_bytes: u64,
    /// Most red bytes; 0 = no limit.
    pub red_bytes: u64,
    /// Compare the limits with the bytes of all colours.
    pub count_total: bool,
}

impl Limits {
    /// Whether a packet of that colour may enter.
    #[inline]
    pub fn admit(&self, queued: &Occupancy, color: Color, len_bytes: u64) -> bool {
        let limit_bytes = match color {
            Color::Green => 0,
            Color::Yellow => self.yellow_bytes,
            Color::Red => self.red_bytes,
        };
        if limit_bytes == 0 {
            return true;
        }
        let queued_bytes = if self.count_total {
            queued.total()
        } else {
            queued.of(color)
        };
        queued_bytes.saturating_add(len_bytes) <= limit_bytes
    }
}

/// A buffer shared by several ports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pool {
    /// Size of the buffer.
    pub limit_bytes: u64,
    /// What all ports hold of it.
    pub used_bytes: u64,
    /// A port may hold this share of what is free.
    pub alpha_ppm: u32,
}

impl Pool {
    /// The most that one port may hold now.
    pub fn threshold_bytes(&self) -> u64 {
        let free_bytes = self.limit_bytes.saturating_sub(self.used_bytes);
        mul_div(free_bytes, u64::from(self.alpha_ppm), PPM)
    }

    /// Whether a packet may enter a port that holds `port_bytes`.
    pub fn admit(&self, port_bytes: u64, len_bytes: u64) -> bool {
        self.used_bytes.saturating_add(len_bytes) <= self.limit_bytes
            && port_bytes.saturating_add(len_bytes) <= self.threshold_bytes()
    }
}

#[cfg(test)]
#[path = "tests/color.rs"]
mod tests;
