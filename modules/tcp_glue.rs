// SPDX-License-Identifier: GPL-2.0

//! What tcp_unocc and tcp_gemini share: packets of the socket into bytes of
//! the algorithms and back, and parameter tables into sysctls.

use super::algo::{params::ParamInfo, Ack, Output};
use super::kernel_api::{
    sysctl::{Kind, Param},
    tcp::{EcnMode, RateSample, Sock, State},
};

/// The kernel's TCP_INFINITE_SSTHRESH.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The least window that is asked for outside of recovery.
const MIN_PACKETS: u32 = 2;

/// Bytes of full segments.
pub(crate) fn bytes(sk: &Sock<'_>, packets: u32) -> u64 {
    u64::from(packets).wrapping_mul(u64::from(sk.mss_bytes()))
}

/// Full segments in `bytes`, rounded down.
pub(crate) fn packets(sk: &Sock<'_>, bytes: u64) -> u32 {
    let mss_bytes = u64::from(sk.mss_bytes().max(1));
    u32::try_from(bytes / mss_bytes).map_or(INFINITE_SSTHRESH, |n| n.min(INFINITE_SSTHRESH))
}

/// Handshake RTT, for the start of a flow.
///
/// A minimum of exactly 1 ms is what a retransmitted SYN leaves behind, measured by timestamps
/// that tick in ms.
pub(crate) fn handshake_rtt_us(sk: &Sock<'_>) -> Option<u32> {
    const TIMESTAMP_TICK_US: u32 = 1_000;

    sk.min_rtt_us()
        .filter(|&rtt_us| sk.has_usec_timestamps() || rtt_us != TIMESTAMP_TICK_US)
}

/// Counts CE marks: what of `delivered_ce` was not yet given to the algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    seen: u32,
}

impl Marks {
    /// Marks from now on.
    pub(crate) fn new(sk: &Sock<'_>) -> Self {
        Marks {
            seen: sk.delivered_ce(),
        }
    }

    /// Takes the marks that belong to `acked` packets. AccECN's counter can run ahead of the
    /// packets of one ACK; what is left is taken with the next.
    fn take(&mut self, sk: &Sock<'_>, acked: u32) -> u32 {
        let marked = sk.delivered_ce().wrapping_sub(self.seen).min(acked);
        self.seen = self.seen.wrapping_add(marked);
        marked
    }
}

/// What the algorithms are told of an ACK.
pub(crate) fn ack(sk: &Sock<'_>, rs: &RateSample, marks: &mut Marks) -> Ack {
    let acked = rs.acked_sacked();
    let marked = marks.take(sk, acked);
    // Without a sample, or with one of a retransmitted packet, the RTT can come from timestamps
    // that tick in ms.
    let rtt_is_true =
        sk.has_usec_timestamps() || (rs.prior_mstamp_us() != 0 && !rs.is_retransmitted());
    let (delivered, interval_us) = rs.delivered().unwrap_or_default();
    Ack {
        now_us: sk.mstamp_us(),
        rtt_us: rs.rtt_us().filter(|_| rtt_is_true),
        srtt_us: sk.srtt_us(),
        acked_bytes: bytes(sk, acked),
        marked_bytes: bytes(sk, marked),
        delivered_bytes: bytes(sk, delivered),
        interval_us: u32::try_from(interval_us).unwrap_or(u32::MAX),
        app_limited: rs.is_app_limited(),
        in_recovery: matches!(sk.ca_state(), State::Recovery | State::Loss),
        in_flight_bytes: bytes(sk, sk.in_flight()),
        mss_bytes: sk.mss_bytes(),
    }
}

/// Does what the algorithm decided.
pub(crate) fn apply(sk: &mut Sock<'_>, output: &Output) {
    let floor = match sk.ca_state() {
        State::Recovery | State::Loss => 1,
        _ => MIN_PACKETS,
    };
    sk.set_snd_cwnd(packets(sk, output.cwnd_bytes).max(floor));
    sk.set_snd_ssthresh(packets(sk, output.ssthresh_bytes).max(MIN_PACKETS));
    sk.set_pacing_rate_bytes(output.pacing_bytes_per_s);
}

/// Whether the other end can tell us of marks, or there is no other end yet.
pub(crate) fn has_ecn(sk: &Sock<'_>) -> bool {
    sk.ecn_mode() != EcnMode::None || sk.is_closed_or_listening()
}

/// The sysctl of one row of a parameter table.
pub(crate) const fn sysctl<const N: usize>(row: &ParamInfo<N>, profile: usize) -> Param {
    Param {
        name: row.name,
        kind: Kind::Number {
            default: row.defaults[profile] as u64,
            min: row.min as u64,
            max: row.max as u64,
        },
    }
}

/// A value that a sysctl holds; its bounds keep it within 32 bits.
pub(crate) fn value(sysctl: u64) -> u32 {
    u32::try_from(sysctl).unwrap_or(u32::MAX)
}
