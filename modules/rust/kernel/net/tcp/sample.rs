// SPDX-License-Identifier: GPL-2.0

//! TCP's measurements for each ACK, `struct rate_sample`.

use super::bindings;

/// Delivery rate over about one round trip.
#[repr(transparent)]
pub(crate) struct RateSample(bindings::rate_sample);

impl RateSample {
    /// Returns the delivered packets and the interval in us, if the sample is valid.
    pub(crate) fn delivered(&self) -> Option<(u32, u64)> {
        let packets = u32::try_from(self.0.delivered).ok()?;
        let interval_us = u64::try_from(self.0.interval_us).ok()?;
        (interval_us != 0).then_some((packets, interval_us))
    }

    /// Returns [`Sock::mstamp_us`](super::Sock::mstamp_us) at the start of the sample.
    pub(crate) fn prior_mstamp_us(&self) -> u64 {
        self.0.prior_mstamp
    }

    /// Returns the RTT of the newest (S)ACKed packet that was sent once.
    pub(crate) fn rtt_us(&self) -> Option<u32> {
        u32::try_from(self.0.rtt_us).ok()
    }

    /// Returns the packets that this ACK newly (S)ACKs.
    pub(crate) fn acked_sacked(&self) -> u32 {
        self.0.acked_sacked
    }

    /// Returns the packets in flight before this ACK.
    pub(crate) fn prior_in_flight(&self) -> u32 {
        self.0.prior_in_flight
    }

    /// Returns the packets that this ACK newly reports as lost.
    pub(crate) fn losses(&self) -> u32 {
        u32::try_from(self.0.losses).unwrap_or(0)
    }

    /// Returns whether the application limited the rate.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.0.is_app_limited
    }

    /// Returns whether the receiver may have delayed the ACK: it is for one packet that is not
    /// full.
    pub(crate) fn is_ack_delayed(&self) -> bool {
        self.0.is_ack_delayed
    }

    /// Returns whether the sample's packet was retransmitted.
    pub(crate) fn is_retransmitted(&self) -> bool {
        self.0.is_retrans
    }
}
