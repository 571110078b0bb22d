// SPDX-License-Identifier: GPL-2.0

//! Marks of TLT, the phases of a sender, and the proof of an arrival.

use super::tlt::{Rows, is_after};

/// The mark of a packet. Switches treat all but [`Mark::Unimportant`] as green.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Mark {
    /// The important data packet of its flow; a SYN.
    Data,
    /// The first ACK that covers it; a SYN-ACK.
    Echo,
    /// The clock byte, sent in place of data.
    ClockData,
    /// The ACK of a clock byte.
    ClockEcho,
    /// A packet without data.
    Control,
    /// Data that may be dropped.
    Unimportant,
}

impl Mark {
    /// Every mark, in the order of the rows `dscp_*`.
    pub const ALL: [Mark; 6] = [
        Mark::Data,
        Mark::Echo,
        Mark::ClockData,
        Mark::ClockEcho,
        Mark::Control,
        Mark::Unimportant,
    ];

    /// Returns the DSCP of this mark.
    pub fn dscp(self, params: &impl Rows) -> u8 {
        let dscp = match self {
            Mark::Data => params.dscp_data(),
            Mark::Echo => params.dscp_echo(),
            Mark::ClockData => params.dscp_clock(),
            Mark::ClockEcho => params.dscp_clock_echo(),
            Mark::Control => params.dscp_control(),
            Mark::Unimportant => params.dscp_unimportant(),
        };
        u8::try_from(dscp).unwrap_or(0)
    }

    /// Returns whether a packet with `dscp` may be marked: DSCPs of others stay unless `override_dscp` is
    /// set.
    pub fn may_replace(dscp: u8, params: &impl Rows) -> bool {
        dscp == 0 || params.override_dscp() != 0 || Self::of(dscp, params).is_some()
    }

    /// Returns the first mark with that DSCP.
    pub fn of(dscp: u8, params: &impl Rows) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.dscp(params) == dscp)
    }
}

/// Which important packet is in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// A data packet.
    Data,
    /// A clock byte.
    Clock,
}

/// Phase of a sender, as shown to users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// A first window is being sent.
    First,
    /// A data packet waits for its echo.
    Data,
    /// A clock byte waits for its echo.
    Clock,
    /// The next data packet is important.
    Pending,
}

impl Phase {
    /// Name in traces and `/proc`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::First => "first",
            Phase::Data => "data",
            Phase::Clock => "clock",
            Phase::Pending => "pending",
        }
    }
}

/// A packet known to have arrived: unacknowledged packets sent before it are lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Proof {
    /// Departure time.
    pub sent_us: u64,
    /// End of its data. Among packets of the same time, those that end before this were sent earlier.
    pub end_seq: u32,
    /// Kind of the packet.
    pub kind: Kind,
}

impl Proof {
    /// Returns whether an unacknowledged packet sent at `sent_us` is lost. RACK uses the same order
    /// (tcp_skb_sent_after()) and gets both numbers.
    pub fn is_after(&self, sent_us: u64, end_seq: u32) -> bool {
        self.sent_us > sent_us || (self.sent_us == sent_us && is_after(self.end_seq, end_seq))
    }
}
