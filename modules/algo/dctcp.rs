// SPDX-License-Identifier: GPL-2.0

//! DCTCP's sender: how marks become a window.
//!
//! Source: RFC 8257, sections 3.3 to 3.5. Where the RFC leaves a choice, what Linux does is done,
//! so that the two can be compared packet by packet:
//!
//! 1. Packets are counted, not bytes.
//! 2. Alpha has a scale of 1/1024. It falls by 1/16 of itself, rounded down, and from below
//!    16/1024 to 0 at once; it rises by 1/16 of the marked fraction, rounded down.
//! 3. Alpha begins at 1: the first mark of a connection halves its window.
//!
//! Growth of the window is Reno's.

use super::fixed::{RATIO_BITS, RATIO_ONE};

/// Weight of a new sample in alpha, 1/16: RFC 8257, section 4.2.
const GAIN_BITS: u32 = 4;

/// No reduction goes below this.
const MIN_PACKETS: u32 = 2;

/// Where a connection stands; counters wrap.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// First byte that is not ACKed.
    pub snd_una: u32,
    /// Next byte to be sent.
    pub snd_nxt: u32,
    /// Packets delivered in all.
    pub delivered: u32,
    /// Of those, packets that carried CE.
    pub delivered_ce: u32,
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Average fraction of marked packets; 1024 = all.
    alpha: u32,
    /// The observation window ends when this byte is ACKed.
    window_end: u32,
    /// Counters when the observation window began.
    delivered: u32,
    delivered_ce: u32,
    /// Window before the newest reduction, to undo it, packets.
    prior_cwnd: u32,
}

impl Flow {
    /// A connection that begins here.
    pub fn new(progress: &Progress) -> Self {
        let mut flow = Flow {
            alpha: RATIO_ONE,
            window_end: 0,
            delivered: 0,
            delivered_ce: 0,
            prior_cwnd: 0,
        };
        flow.begin_window(progress);
        flow
    }

    fn begin_window(&mut self, progress: &Progress) {
        self.window_end = progress.snd_nxt;
        self.delivered = progress.delivered;
        self.delivered_ce = progress.delivered_ce;
    }

    /// Takes an ACK. Alpha changes once per observation window, that is, once per RTT: section
    /// 3.3, steps 3 to 8.
    pub fn on_ack(&mut self, progress: &Progress) {
        if !self.window_ended(progress.snd_una) {
            return;
        }
        let (delivered, marked) = self.window(progress);
        let kept = match self.alpha >> GAIN_BITS {
            0 => 0,
            fall => self.alpha.wrapping_sub(fall),
        };
        let rise = u64::from(marked)
            .wrapping_shl(RATIO_BITS - GAIN_BITS)
            .checked_div(u64::from(delivered.max(1)))
            .unwrap_or(0);
        let alpha = u64::from(kept).saturating_add(rise);
        self.alpha = alpha.min(u64::from(RATIO_ONE)) as u32;
        self.begin_window(progress);
    }

    /// Whether an ACK up to this byte ends the observation window.
    pub fn window_ended(&self, snd_una: u32) -> bool {
        snd_una.wrapping_sub(self.window_end) as i32 >= 0
    }

    /// Packets delivered, and marked, in the current observation window.
    pub fn window(&self, progress: &Progress) -> (u32, u32) {
        (
            progress.delivered.wrapping_sub(self.delivered),
            progress.delivered_ce.wrapping_sub(self.delivered_ce),
        )
    }

    /// Average fraction of marked packets; 1024 = all.
    pub fn alpha(&self) -> u32 {
        self.alpha
    }

    /// Window to go down to for marks, packets: cwnd x (1 - alpha / 2), section 3.3, step 9.
    pub fn reduce_for_marks(&mut self, cwnd: u32) -> u32 {
        self.prior_cwnd = cwnd;
        let cut = (u64::from(cwnd).wrapping_mul(u64::from(self.alpha)) >> (RATIO_BITS + 1)) as u32;
        cwnd.saturating_sub(cut).max(MIN_PACKETS)
    }

    /// Window to go down to for a loss, packets: half, section 3.4.
    pub fn reduce_for_loss(&mut self, cwnd: u32) -> u32 {
        self.prior_cwnd = cwnd;
        (cwnd >> 1).max(MIN_PACKETS)
    }

    /// Window after a reduction that proved wrong, packets.
    pub fn undo(&self, cwnd: u32) -> u32 {
        cwnd.max(self.prior_cwnd)
    }
}

#[cfg(test)]
#[path = "tests/dctcp.rs"]
mod tests;
