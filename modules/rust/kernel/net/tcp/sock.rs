// SPDX-License-Identifier: GPL-2.0

//! A socket as a congestion control may read and write it.

use super::{bindings, info::Head, State};
use crate::kernel_api::sysctl::Net;
use core::{
    marker::PhantomData,
    ptr::{addr_of, NonNull},
};

/// A TCP socket, locked, during one callback.
///
/// # Invariants
///
/// `ptr` points to a `struct tcp_sock` whose lock is held by the caller of the
/// callback for all of `'a`. If the socket is live ([`Head::is_live`]), its
/// `icsk_ca_ops` is `main` of [`Tables`](super::Tables). The callback's `data`
/// is borrowed apart from it; no method reaches into `icsk_ca_priv` behind
/// [`Head`].
pub(crate) struct Sock<'a> {
    ptr: NonNull<bindings::tcp_sock>,
    _callback: PhantomData<&'a mut ()>,
}

/// Reads a field like READ_ONCE(); lockless paths write some of them.
macro_rules! read {
    ($self:ident, $($field:tt)+) => {
        // SAFETY: The pointer is valid for reads of a whole `tcp_sock`, by the
        // type invariants, and every bit pattern of the field is a value.
        unsafe { core::ptr::addr_of!((*$self.as_tcp_sock()).$($field)+).read_volatile() }
    };
}

/// Writes a field like WRITE_ONCE(); ss reads without the lock.
macro_rules! write {
    ($self:ident, $value:expr, $($field:tt)+) => {
        // SAFETY: The pointer is valid for writes of a whole `tcp_sock`, whose
        // lock is held, by the type invariants. The field is one that a
        // congestion control may write.
        unsafe { core::ptr::addr_of_mut!((*$self.as_tcp_sock()).$($field)+).write_volatile($value) }
    };
}

impl<'a> Sock<'a> {
    /// # Safety
    ///
    /// `sk` points to a `struct tcp_sock`, whose lock is held for all of `'a`
    /// and whose `icsk_ca_ops` is `main` of [`Tables`](super::Tables).
    #[inline(always)]
    pub(super) unsafe fn from_raw(sk: *mut bindings::sock) -> Self {
        // INVARIANT: By the safety requirements.
        Sock {
            // SAFETY: A pointer to a socket is not null.
            ptr: unsafe { NonNull::new_unchecked(sk.cast()) },
            _callback: PhantomData,
        }
    }
}

impl Sock<'_> {
    /// Returns the socket for a function that is not inlined.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> Sock<'_> {
        // INVARIANT: As `self`, for no longer.
        Sock { ..*self }
    }

    /// Returns the socket for read access by C.
    pub(in crate::kernel_api) fn as_ptr(&self) -> *const bindings::sock {
        self.sk()
    }

    pub(super) fn as_tcp_sock(&self) -> *mut bindings::tcp_sock {
        self.ptr.as_ptr()
    }

    pub(super) fn sk(&self) -> *mut bindings::sock {
        self.ptr.as_ptr().cast()
    }

    pub(super) fn head(&self) -> &Head {
        // SAFETY: `icsk_ca_priv` is at least as large as `Head` and aligned to
        // 8, as `Registration` checks. `Head` consists of cells, which allow
        // any bit pattern and concurrent access.
        unsafe { &*addr_of!((*self.as_tcp_sock()).inet_conn.icsk_ca_priv).cast() }
    }

    /// Returns the network namespace of the socket.
    pub(crate) fn net(&self) -> &Net {
        let net = read!(self, inet_conn.icsk_inet.sk.__sk_common.skc_net.net);
        // SAFETY: A socket that TCP works on keeps its namespace alive, so the
        // pointer is valid for as long as `self` is borrowed.
        unsafe { Net::from_raw(net) }
    }

    // Window and threshold, in packets.

    /// Returns the congestion window.
    pub(crate) fn snd_cwnd(&self) -> u32 {
        read!(self, snd_cwnd)
    }

    /// Sets the congestion window, between 1 and the socket's own bound. Returns whether that bound
    /// is below `packets`.
    #[inline(always)]
    pub(crate) fn set_snd_cwnd(&mut self, packets: u32) -> bool {
        let bound = self.snd_cwnd_clamp();
        let is_bounded = packets > bound;
        let cwnd = if is_bounded { bound } else { packets };
        write!(self, cwnd.clamp(1, i32::MAX as u32), snd_cwnd);
        is_bounded
    }

    /// Returns the upper bound of the window, from the route or TCP_WINDOW_CLAMP.
    pub(crate) fn snd_cwnd_clamp(&self) -> u32 {
        read!(self, snd_cwnd_clamp)
    }

    /// Returns the window at which slow start ends.
    pub(crate) fn snd_ssthresh(&self) -> u32 {
        read!(self, snd_ssthresh)
    }

    /// Returns the end of slow start before the reduction: for undo_cwnd().
    pub(crate) fn prior_ssthresh(&self) -> u32 {
        read!(self, prior_ssthresh)
    }

    /// Sets the end of slow start.
    pub(crate) fn set_snd_ssthresh(&mut self, packets: u32) {
        write!(self, packets, snd_ssthresh)
    }

    /// Returns whether the window is below the slow start threshold.
    pub(crate) fn in_slow_start(&self) -> bool {
        self.snd_cwnd() < self.snd_ssthresh()
    }

    /// Returns whether the window, not the application, limits the flow.
    pub(crate) fn is_cwnd_limited(&self) -> bool {
        // SAFETY: `tcp_is_cwnd_limited` requires a valid, locked TCP socket,
        // which the type invariants give. It does not read `icsk_ca_priv`.
        unsafe { bindings::xdc_tcp_is_cwnd_limited(self.sk()) }
    }

    // Time, in us.

    /// Returns the time of the packet being processed.
    pub(crate) fn mstamp_us(&self) -> u64 {
        read!(self, tcp_mstamp)
    }

    /// Returns the smoothed RTT; 0 before the first sample.
    pub(crate) fn srtt_us(&self) -> u32 {
        read!(self, srtt_us) >> 3
    }

    /// Returns the minimum RTT over `net.ipv4.tcp_min_rtt_wlen`, if there is a sample.
    pub(crate) fn min_rtt_us(&self) -> Option<u32> {
        let rtt_us = read!(self, rtt_min.s[0].v);
        (rtt_us != u32::MAX).then_some(rtt_us)
    }

    /// Returns whether RTT samples of retransmits have us resolution, not ms.
    pub(crate) fn has_usec_timestamps(&self) -> bool {
        // SAFETY: The pointer is valid for reads of a whole `tcp_sock`, by the
        // type invariants. It makes no reference to the socket, which has the
        // callback's `data` in it.
        unsafe { bindings::tcp_sock::tcp_usec_ts_raw(self.as_tcp_sock()) != 0 }
    }

    // Deliveries, in packets, and sequence numbers.

    /// Returns the delivered packets, including retransmits.
    pub(crate) fn delivered(&self) -> u32 {
        read!(self, delivered)
    }

    /// Returns the packets of [`Sock::delivered`] that ECE or AccECN reported as marked.
    pub(crate) fn delivered_ce(&self) -> u32 {
        read!(self, delivered_ce)
    }

    /// Returns the packets sent and not cumulatively ACKed.
    pub(crate) fn packets_out(&self) -> u32 {
        read!(self, packets_out)
    }

    /// Returns the packets in the network by TCP's estimate, `tcp_packets_in_flight()`.
    pub(crate) fn in_flight(&self) -> u32 {
        let left = read!(self, sacked_out).wrapping_add(read!(self, lost_out));
        self.packets_out()
            .wrapping_sub(left)
            .wrapping_add(read!(self, retrans_out))
    }

    /// Returns the packets sent in this recovery.
    pub(crate) fn prr_out(&self) -> u32 {
        read!(self, prr_out)
    }

    /// Returns the payload bytes of a full packet.
    pub(crate) fn mss_bytes(&self) -> u32 {
        read!(self, mss_cache)
    }

    /// Returns the first unacknowledged byte.
    pub(crate) fn snd_una(&self) -> u32 {
        read!(self, snd_una)
    }

    /// Returns the next byte to send.
    pub(crate) fn snd_nxt(&self) -> u32 {
        read!(self, snd_nxt)
    }

    /// Returns the next byte expected from the peer.
    pub(super) fn rcv_nxt(&self) -> u32 {
        read!(self, rcv_nxt)
    }

    /// Returns the sent segments with data, including retransmits.
    pub(crate) fn data_segs_out(&self) -> u32 {
        read!(self, data_segs_out)
    }

    /// Returns the sent segments without data: ACKs, plus SYN and FIN.
    pub(super) fn acks_out(&self) -> u32 {
        read!(self, segs_out).wrapping_sub(self.data_segs_out())
    }

    /// Returns the state of loss recovery; in `set_state` the old state.
    pub(crate) fn ca_state(&self) -> State {
        // SAFETY: A field of a valid `tcp_sock`, by the type invariants.
        let icsk = unsafe { addr_of!((*self.as_tcp_sock()).inet_conn) };
        // SAFETY: The pointer is valid for reads. It makes no reference to the
        // socket, which has the callback's `data` in it.
        State::from_raw(unsafe { bindings::inet_connection_sock::icsk_ca_state_raw(icsk) })
    }

    /// Returns whether the retransmission timer fired: for set_state(Loss). The kernel has then set
    /// the window to one packet above the in-flight count. For packets above the path's MTU, or
    /// refused data of a SYN, it keeps the window.
    pub(crate) fn is_timeout(&self) -> bool {
        self.snd_cwnd() == self.in_flight().wrapping_add(1)
    }

    fn state(&self) -> u32 {
        read!(self, inet_conn.icsk_inet.sk.__sk_common.skc_state).into()
    }

    /// Returns whether a SYN was sent and is not answered.
    pub(super) fn is_connecting(&self) -> bool {
        self.state() == bindings::TCP_SYN_SENT
    }

    /// Returns whether a SYN was answered, and the handshake's ACK is not processed.
    pub(super) fn is_accepting(&self) -> bool {
        self.state() == bindings::TCP_SYN_RECV
    }

    /// Returns whether the socket is connecting or accepting.
    #[inline(always)]
    pub(super) fn is_in_handshake(&self) -> bool {
        const { assert!(bindings::TCP_SYN_RECV == bindings::TCP_SYN_SENT | 1) };
        self.state() & !1 == bindings::TCP_SYN_SENT
    }

    /// Returns whether this is a Fast Open server, which sends data before the handshake ends.
    pub(super) fn is_fast_open_server(&self) -> bool {
        !read!(self, fastopen_rsk).is_null()
    }

    /// Returns whether init() was called for the socket's congestion control.
    pub(super) fn ca_is_initialized(&self) -> bool {
        // SAFETY: A field of a valid `tcp_sock`, by the type invariants.
        let icsk = unsafe { addr_of!((*self.as_tcp_sock()).inet_conn) };
        // SAFETY: The pointer is valid for reads. It makes no reference to the
        // socket, which has the callback's `data` in it.
        unsafe { bindings::inet_connection_sock::icsk_ca_initialized_raw(icsk) != 0 }
    }

    // Pacing.

    /// Sets the pacing rate, within SO_MAX_PACING_RATE. TCP itself paces if the device has no fq.
    pub(crate) fn set_pacing_rate_bytes(&mut self, bytes_per_s: u64) {
        let max = read!(self, inet_conn.icsk_inet.sk.sk_max_pacing_rate);
        let rate = usize::try_from(bytes_per_s).unwrap_or(max).min(max);
        write!(self, rate, inet_conn.icsk_inet.sk.sk_pacing_rate);
        // SK_PACING_NONE is 0.
        if read!(self, inet_conn.icsk_inet.sk.sk_pacing_status) == 0 {
            // SAFETY: The wrapper requires a valid socket, which the type
            // invariants give. It changes `sk_pacing_status` and nothing else.
            unsafe { bindings::xdc_tcp_need_pacing(self.sk()) }
        }
    }

    // Functions that the kernel offers to every algorithm.

    /// Grows the window as in slow start; returns the remaining packets.
    pub(crate) fn slow_start(&mut self, acked: u32) -> u32 {
        // SAFETY: `tcp_slow_start` requires a valid, locked TCP socket, which
        // the type invariants give. It does not read `icsk_ca_priv`.
        unsafe { bindings::tcp_slow_start(self.as_tcp_sock(), acked) }
    }

    /// Applies Reno's increase.
    pub(crate) fn reno_cong_avoid(&mut self, ack: u32, acked: u32) {
        // SAFETY: `tcp_reno_cong_avoid` requires a valid, locked TCP socket,
        // which the type invariants give. It does not read `icsk_ca_priv`.
        unsafe { bindings::tcp_reno_cong_avoid(self.sk(), ack, acked) }
    }

    /// Returns Reno's threshold after a loss: half the window.
    pub(crate) fn reno_ssthresh(&self) -> u32 {
        // SAFETY: `tcp_reno_ssthresh` requires a valid, locked TCP socket,
        // which the type invariants give. It does not read `icsk_ca_priv`.
        unsafe { bindings::tcp_reno_ssthresh(self.sk()) }
    }

    /// Returns Reno's window after a spurious reduction.
    pub(crate) fn reno_undo_cwnd(&self) -> u32 {
        // SAFETY: `tcp_reno_undo_cwnd` requires a valid, locked TCP socket,
        // which the type invariants give. It does not read `icsk_ca_priv`.
        unsafe { bindings::tcp_reno_undo_cwnd(self.sk()) }
    }
}
