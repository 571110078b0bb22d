// SPDX-License-Identifier: GPL-2.0
//! TCP_INFO of a socket, and TCP_CC_INFO in the form of DCTCP's block.

use std::{io, mem, os::fd::AsRawFd};

/// struct tcp_info of include/uapi/linux/tcp.h, up to the last field in use. Fields that an older
/// kernel lacks are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpInfo {
    /// TCP state: TCP_ESTABLISHED 1, TCP_FIN_WAIT2 5, ...
    pub state: u8,
    /// State of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    /// Options: 1 timestamps, 2 SACK, 4 window scale, 8 ECN.
    pub options: u8,
    wscales: u8,
    flags: u8,

    rto: u32,
    ato: u32,
    /// MSS for sending, bytes.
    pub snd_mss: u32,
    /// Largest segment received, bytes.
    pub rcv_mss: u32,

    /// Packets in flight.
    pub unacked: u32,
    sacked: u32,
    /// Packets presumed lost.
    pub lost: u32,
    retrans: u32,
    fackets: u32,

    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,

    pmtu: u32,
    rcv_ssthresh: u32,
    /// Smoothed RTT, us.
    pub rtt: u32,
    rttvar: u32,
    /// Slow-start threshold, packets.
    pub snd_ssthresh: u32,
    /// Congestion window, packets.
    pub snd_cwnd: u32,
    advmss: u32,
    reordering: u32,

    rcv_rtt: u32,
    rcv_space: u32,

    /// Retransmitted packets, in total.
    pub total_retrans: u32,

    /// Pacing rate, bytes per second; all ones = unlimited.
    pub pacing_rate: u64,
    max_pacing_rate: u64,
    /// Acknowledged bytes, in total.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    segs_out: u32,
    segs_in: u32,

    /// Unsent bytes in the send buffer.
    pub notsent_bytes: u32,
    /// Smallest RTT, us; all ones = never measured.
    pub min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,

    /// Delivery rate of the last rate sample, bytes per second.
    pub delivery_rate: u64,

    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,

    /// Delivered packets.
    pub delivered: u32,
    /// Delivered packets that the receiver reported with CE.
    pub delivered_ce: u32,

    /// Payload sent, including retransmissions.
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,

    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,

    /// Retransmission timeouts.
    pub total_rto: u16,
    total_rto_recoveries: u16,
    total_rto_time: u32,

    received_ce: u32,
    ecn_bytes: [u32; 6],
    /// ECN mode, AccECN options seen, AccECN failures: 2, 2 and 4 bits.
    ecn_bits: u32,
}

/// TCPI_OPT_ECN.
const OPTION_ECN: u8 = 8;
/// TCPI_ECN_MODE_ACCECN.
const MODE_ACCECN: u32 = 2;
/// TCP_ACCECN_ACE_FAIL_SEND and _RECV.
const ACE_FAILED: u32 = 3;

impl TcpInfo {
    /// Returns whether the handshake negotiated ECN.
    pub fn has_ecn(&self) -> bool {
        self.options & OPTION_ECN != 0
    }

    /// Returns whether both ends can read AccECN's counters; None for other kinds of ECN.
    pub fn accecn_works(&self) -> Option<bool> {
        let is_accurate = self.has_ecn() && self.ecn_bits & 3 == MODE_ACCECN;
        is_accurate.then_some((self.ecn_bits >> 4) & ACE_FAILED == 0)
    }

    /// Decodes INET_DIAG_INFO. Missing fields are 0, and a newer kernel's extra fields are
    /// skipped.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut info = Self::default();
        let length = bytes.len().min(mem::size_of::<Self>());
        // SAFETY: `info` is plain data of at least `length` bytes, valid for every bit pattern,
        // and `bytes` has as many.
        unsafe {
            (&raw mut info).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
        info
    }
}

/// Unit of one of [`COUNTERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// TCP packets.
    Packets,
    /// Bytes of payload.
    Bytes,
    /// Number of events.
    Events,
    /// Microseconds; larger in a slower guest.
    Us,
}

/// A monotonic counter of TCP_INFO. A run sums its increase over all flows, at their senders.
#[derive(Debug)]
pub struct Counter {
    /// Name of the run's metric, without the prefix `tcp.`.
    pub name: &'static str,
    /// Unit.
    pub of: Of,
    /// Returns the value.
    pub get: fn(&TcpInfo) -> u64,
    /// Meaning, for the table of metrics.
    pub meaning: &'static str,
}

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Counter {}

const fn counter(
    name: &'static str,
    of: Of,
    get: fn(&TcpInfo) -> u64,
    meaning: &'static str,
) -> Counter {
    Counter { name, of, get, meaning }
}

/// Counters in the order of `FlowResult::counters`. Agent, results, pages and tables use this
/// list.
pub const COUNTERS: &[Counter] = &[
    counter(
        "delivered",
        Of::Packets,
        |info| info.delivered.into(),
        "acknowledged packets of all flows, with retransmitted ones",
    ),
    counter(
        "delivered_ce",
        Of::Packets,
        |info| info.delivered_ce.into(),
        "acknowledged packets with CE, as the receiver reported",
    ),
    counter(
        "dsack_dups",
        Of::Packets,
        |info| info.dsack_dups.into(),
        "packets that arrived twice: retransmitted needlessly",
    ),
    counter(
        "reord_seen",
        Of::Events,
        |info| info.reord_seen.into(),
        "packets that arrived out of order",
    ),
    counter("bytes_retrans", Of::Bytes, |info| info.bytes_retrans, "retransmitted payload"),
    counter(
        "busy_us",
        Of::Us,
        |info| info.busy_time,
        "time in which senders had data to send or in flight",
    ),
    counter(
        "rwnd_limited_us",
        Of::Us,
        |info| info.rwnd_limited,
        "time in which the receiver's window was the limit",
    ),
    counter(
        "sndbuf_limited_us",
        Of::Us,
        |info| info.sndbuf_limited,
        "time in which the send buffer was the limit",
    ),
];

/// struct tcp_dctcp_info of include/uapi/linux/inet_diag.h, also written by unocc and gemini.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DctcpInfo {
    /// 0 = fallback to Reno.
    pub enabled: u16,
    /// Whether the last received packet carried CE.
    pub ce_state: u16,
    /// Average marked fraction, 1/1024.
    pub alpha: u32,
    /// Bytes acknowledged with a mark in the current period.
    pub marked_bytes: u32,
    /// Bytes acknowledged in the current period.
    pub acked_bytes: u32,
}

/// Reads TCP_INFO of a socket.
pub fn tcp_info(socket: &impl AsRawFd) -> io::Result<TcpInfo> {
    option(socket, libc::TCP_INFO)
}

/// Reads TCP_CC_INFO of a socket whose congestion control writes DCTCP's block.
pub fn dctcp_info(socket: &impl AsRawFd) -> io::Result<DctcpInfo> {
    option(socket, libc::TCP_CC_INFO)
}

/// Plain data, valid for every bit pattern.
trait Plain: Default {}
impl Plain for TcpInfo {}
impl Plain for DctcpInfo {}

/// Reads an option of IPPROTO_TCP. Missing fields are 0.
fn option<T: Plain>(socket: &impl AsRawFd, name: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is plain data of `length` bytes, valid for every bit pattern; the kernel
    // writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            (&raw mut value).cast(),
            &mut length,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_info_has_the_kernels_layout() {
        assert_eq!(mem::offset_of!(TcpInfo, pacing_rate), 104);
        assert_eq!(mem::offset_of!(TcpInfo, bytes_received), 128);
        assert_eq!(mem::offset_of!(TcpInfo, min_rtt), 148);
        assert_eq!(mem::offset_of!(TcpInfo, delivered), 192);
        assert_eq!(mem::offset_of!(TcpInfo, total_rto), 240);
        assert_eq!(mem::offset_of!(TcpInfo, ecn_bits), 276);
        assert_eq!(mem::size_of::<DctcpInfo>(), 16);
    }

    #[test]
    fn short_and_long_answers_are_decoded() {
        let bytes: Vec<u8> = (0..300).map(|i| i as u8).collect();
        let info = TcpInfo::from_bytes(&bytes);
        assert_eq!(info.pacing_rate.to_ne_bytes(), bytes[104..112]);
        assert_eq!(info.total_rto.to_ne_bytes(), bytes[240..242]);
        let info = TcpInfo::from_bytes(&bytes[..106]);
        assert_eq!(info.pacing_rate.to_ne_bytes(), [104, 105, 0, 0, 0, 0, 0, 0]);
        assert_eq!(TcpInfo::from_bytes(&[]).rtt, 0);
    }
}
