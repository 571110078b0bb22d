// SPDX-License-Identifier: GPL-2.0

//! TCP congestion control.
//!
//! A module implements [`CongestionControl`] and keeps a [`Registration`].
//! Its callbacks get a [`Sock`] for their duration, which can read what an
//! algorithm needs and can write exactly what the kernel lets a congestion
//! control written in BPF write (`bpf_tcp_ca_btf_struct_access()`).
//!
//! C header: `include/net/tcp.h`

use super::{bindings, once::Once, sysctl::Net};
use core::{
    marker::PhantomData,
    mem::{align_of, size_of, MaybeUninit},
    ptr::{addr_of, addr_of_mut, NonNull},
};
use kernel::{
    error::{to_result, VTABLE_DEFAULT_ERROR},
    prelude::*,
    types::Opaque,
    ModuleMetadata,
};

/// Flags of a congestion control, the kernel's `TCP_CONG_*`.
pub(crate) mod flags {
    use super::bindings;

    /// Any user may choose it.
    pub(crate) const NON_RESTRICTED: u32 = bindings::XDC_TCP_CONG_NON_RESTRICTED;
    /// Negotiates ECN, sets ECT, and gets the CE state of received packets.
    pub(crate) const NEEDS_ECN: u32 = bindings::XDC_TCP_CONG_NEEDS_ECN;
    /// Asks for AccECN, whatever `net.ipv4.tcp_ecn` says.
    pub(crate) const NEEDS_ACCECN: u32 = bindings::XDC_TCP_CONG_NEEDS_ACCECN;
    /// Sends ECT(1), not ECT(0), during the handshake.
    pub(crate) const ECT_1_NEGOTIATION: u32 = bindings::XDC_TCP_CONG_ECT_1_NEGOTIATION;
    /// Has no ECN at all where the peer knows RFC 3168 only.
    pub(crate) const NO_FALLBACK_RFC3168: u32 = bindings::XDC_TCP_CONG_NO_FALLBACK_RFC3168;
}

/// Numbers of modules/uapi/xdc_diag.h.
pub(crate) mod diag {
    use super::bindings;

    pub(crate) const UNOCC: u8 = bindings::XDC_DIAG_UNOCC as u8;
    pub(crate) const GEMINI: u8 = bindings::XDC_DIAG_GEMINI as u8;
    pub(crate) const MARKED: u32 = bindings::XDC_DIAG_F_MARKED;
    pub(crate) const REDUCED: u32 = bindings::XDC_DIAG_F_REDUCED;
    pub(crate) const WAN: u32 = bindings::XDC_DIAG_F_WAN;
}

/// State of TCP's loss recovery, `enum tcp_ca_state`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No dubious events.
    Open,
    /// Duplicate or selective ACKs have come.
    Disorder,
    /// The window is being reduced, for ECN or a local queue's drop.
    Cwr,
    /// Fast retransmit.
    Recovery,
    /// The retransmission timer fired.
    Loss,
}

impl State {
    fn from_raw(state: u8) -> Self {
        match bindings::tcp_ca_state::from(state) {
            bindings::TCP_CA_Disorder => Self::Disorder,
            bindings::TCP_CA_CWR => Self::Cwr,
            bindings::TCP_CA_Recovery => Self::Recovery,
            bindings::TCP_CA_Loss => Self::Loss,
            _ => Self::Open,
        }
    }
}

/// What [`CongestionControl::cwnd_event`] reports, `enum tcp_ca_event`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The window is restarted after idling.
    CwndRestart,
    /// The end of a window reduction; never with `cong_control`.
    CompleteCwr,
    /// The retransmission timer fired.
    Loss,
    /// A packet was received with ECT and without CE.
    EcnNoCe,
    /// A packet was received with CE.
    EcnIsCe,
}

impl Event {
    fn from_raw(event: bindings::tcp_ca_event) -> Option<Self> {
        Some(match event {
            bindings::CA_EVENT_CWND_RESTART => Self::CwndRestart,
            bindings::CA_EVENT_COMPLETE_CWR => Self::CompleteCwr,
            bindings::CA_EVENT_LOSS => Self::Loss,
            bindings::CA_EVENT_ECN_NO_CE => Self::EcnNoCe,
            bindings::CA_EVENT_ECN_IS_CE => Self::EcnIsCe,
            _ => return None,
        })
    }
}

/// What [`CongestionControl::in_ack_event`] reports of an ACK.
#[derive(Clone, Copy)]
pub(crate) struct AckEvent(u32);

impl AckEvent {
    /// The ACK took the slow path.
    pub(crate) fn slow_path(self) -> bool {
        self.0 & bindings::CA_ACK_SLOWPATH != 0
    }

    /// The ACK moved the peer's window.
    pub(crate) fn window_update(self) -> bool {
        self.0 & bindings::CA_ACK_WIN_UPDATE != 0
    }

    /// The ACK carries ECE; only the slow path looks.
    pub(crate) fn ece(self) -> bool {
        self.0 & bindings::CA_ACK_ECE != 0
    }
}

/// The flags of an ACK as [`CongestionControl::cong_control`] gets them. The
/// kernel keeps their names private to `net/ipv4/tcp_input.c`.
#[derive(Clone, Copy)]
pub(crate) struct AckFlags(c_int);

impl AckFlags {
    /// The ACK carried ECE, or AccECN reported more CE.
    pub(crate) fn ece(self) -> bool {
        const FLAG_ECE: c_int = 0x40;
        self.0 & FLAG_ECE != 0
    }

    /// The ACK moved snd_una.
    pub(crate) fn una_advanced(self) -> bool {
        const FLAG_SND_UNA_ADVANCED: c_int = 0x400;
        self.0 & FLAG_SND_UNA_ADVANCED != 0
    }
}

/// How the two ends of a connection talk of ECN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EcnMode {
    /// Not negotiated.
    None,
    /// ECE is sticky unless the receiver echoes each packet, see [`EceEcho`].
    Rfc3168,
    /// The peer counts CE packets for us.
    AccEcn,
}

/// What was (S)ACKed by one ACK, for [`CongestionControl::pkts_acked`].
#[derive(Clone, Copy)]
pub(crate) struct AckSample {
    pub(crate) packets: u32,
    /// None where Karn's rule forbids a sample.
    pub(crate) rtt_us: Option<u32>,
    /// Packets in flight before the ACK.
    pub(crate) in_flight: u32,
}

/// Delivery rate over about one round trip, `struct rate_sample`.
#[repr(transparent)]
pub(crate) struct RateSample(bindings::rate_sample);

impl RateSample {
    /// Packets delivered and the time that it took in us, where the sample is valid.
    pub(crate) fn delivered(&self) -> Option<(u32, u64)> {
        let packets = u32::try_from(self.0.delivered).ok()?;
        let interval_us = u64::try_from(self.0.interval_us).ok()?;
        (interval_us != 0).then_some((packets, interval_us))
    }

    /// Packets of the sample that carried CE.
    pub(crate) fn delivered_ce(&self) -> u32 {
        u32::try_from(self.0.delivered_ce).unwrap_or(0)
    }

    /// [`Sock::delivered`] when the newest ACKed packet was sent.
    pub(crate) fn prior_delivered(&self) -> u32 {
        self.0.prior_delivered
    }

    /// [`Sock::mstamp_us`] when the sample began.
    pub(crate) fn prior_mstamp_us(&self) -> u64 {
        self.0.prior_mstamp
    }

    /// RTT of the newest (S)ACKed packet that was sent once.
    pub(crate) fn rtt_us(&self) -> Option<u32> {
        u32::try_from(self.0.rtt_us).ok()
    }

    /// Packets that this ACK showed to be lost.
    pub(crate) fn losses(&self) -> u32 {
        u32::try_from(self.0.losses).unwrap_or(0)
    }

    /// Packets newly (S)ACKed by this ACK.
    pub(crate) fn acked_sacked(&self) -> u32 {
        self.0.acked_sacked
    }

    /// Packets in flight before this ACK.
    pub(crate) fn prior_in_flight(&self) -> u32 {
        self.0.prior_in_flight
    }

    /// End sequence number of the newest (S)ACKed packet.
    pub(crate) fn last_end_seq(&self) -> u32 {
        self.0.last_end_seq
    }

    /// The application, not the network, bounded the rate.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.0.is_app_limited
    }

    /// The sample's packet was retransmitted.
    pub(crate) fn is_retransmitted(&self) -> bool {
        self.0.is_retrans
    }

    /// The ACK was probably delayed by the receiver.
    pub(crate) fn is_ack_delayed(&self) -> bool {
        self.0.is_ack_delayed
    }
}

/// What `ss -ti` and `xdc ss` show of a socket, beside its CE state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Info {
    /// Congestion estimate, [`Info::FRACTION_BITS`]: every packet is marked.
    pub(crate) fraction: u32,
    /// Bytes ACKed with a mark, and bytes ACKed, in the current period.
    pub(crate) marked_bytes: u32,
    pub(crate) acked_bytes: u32,
    /// 0 = not known.
    pub(crate) base_rtt_us: u32,
    /// Counters modulo 256, published at least that often; shown wider.
    pub(crate) periods: u8,
    pub(crate) quick_adapts: u8,
    /// `XDC_DIAG_F_*` but for that of the CE state.
    pub(crate) flags: u8,
}

impl Info {
    /// A `fraction` of `1 << FRACTION_BITS` is 1.
    pub(crate) const FRACTION_BITS: u32 = 30;
}

/// Head of the private area of a socket, readable without the socket's lock.
///
/// get_info() runs under RCU only: while the owner of the socket writes, and
/// even while another congestion control takes the area over. Hence single
/// words, for which every bit pattern is a value, and no reference to anything
/// behind them.
#[repr(C)]
struct Head {
    /// [`LIVE`], [`CE_STATE`], from bit 16 on the flags of [`Info`], and how
    /// often Quick Adapt acted.
    status: Once<u32>,
    fraction: Once<u32>,
    marked_bytes: Once<u32>,
    acked_bytes: Once<u32>,
    base_rtt_us: Once<u32>,
    periods: Once<u32>,
}

/// From init() on, if the algorithm did not fall back.
const LIVE: u32 = 1 << 31;
/// The last packet received carried CE.
const CE_STATE: u32 = 1 << 30;
const FLAGS_SHIFT: u32 = 16;

impl Head {
    fn is_live(&self) -> bool {
        self.status.get() & LIVE != 0
    }

    fn ce_state(&self) -> bool {
        self.status.get() & CE_STATE != 0
    }

    fn set_ce_state(&self, ce: bool) {
        let others = self.status.get() & !CE_STATE;
        self.status.set(others | if ce { CE_STATE } else { 0 });
    }

    /// alpha of DCTCP's block, 1024 = 1.
    fn alpha(&self) -> u32 {
        self.fraction.get() >> (Info::FRACTION_BITS - 10)
    }

    /// The marked part of the current period, 1 << 15 = 1.
    fn period_marked(&self) -> u16 {
        let marked = u64::from(self.marked_bytes.get()) << 15;
        let acked = u64::from(self.acked_bytes.get());
        marked
            .checked_div(acked)
            .map_or(0, |part| part.min(1 << 15)) as u16
    }
}

/// The wide counter that `narrow` has become since it was last `wide`.
fn widen(wide: u32, narrow: u8) -> u32 {
    wide.wrapping_add(u32::from(narrow.wrapping_sub(wide as u8)))
}

/// The private area, `icsk_ca_priv`.
///
/// All zeroes, as the kernel leaves it before init(), is a valid value: `data`
/// is read only where `head.status` says that init() has written it.
#[repr(C)]
struct Private<D> {
    head: Head,
    data: MaybeUninit<D>,
}

/// A TCP socket, locked, during one callback.
///
/// # Invariants
///
/// `ptr` points to a `struct tcp_sock` whose lock is held by the caller of the
/// callback for all of `'a`. The callback's `data` is borrowed apart from it;
/// no method reaches into `icsk_ca_priv` behind [`Head`].
pub(crate) struct Sock<'a> {
    ptr: NonNull<bindings::tcp_sock>,
    _callback: PhantomData<&'a mut ()>,
}

/// Reads a field as READ_ONCE() does; some are written by lockless paths.
macro_rules! read {
    ($self:ident, $($field:tt)+) => {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { addr_of!((*$self.ptr.as_ptr()).$($field)+).read_volatile() }
    };
}

/// Writes a field as WRITE_ONCE() does; ss reads without the lock.
macro_rules! write {
    ($self:ident, $value:expr, $($field:tt)+) => {
        // SAFETY: By the type invariants the socket is alive and locked, and
        // the field is one that a congestion control may write.
        unsafe { addr_of_mut!((*$self.ptr.as_ptr()).$($field)+).write_volatile($value) }
    };
}

impl Sock<'_> {
    /// The socket for a function that is not inlined.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Sock<'_> {
        // INVARIANT: As `self`, for no longer.
        Sock { ..*self }
    }

    /// The socket, for C that looks at it.
    pub(super) fn as_ptr(&self) -> *const bindings::sock {
        self.sk()
    }

    fn sk(&self) -> *mut bindings::sock {
        self.ptr.as_ptr().cast()
    }

    /// The network namespace of the socket.
    pub(crate) fn net(&self) -> &Net {
        let net = read!(self, inet_conn.icsk_inet.sk.__sk_common.skc_net.net);
        // SAFETY: A socket that TCP works on keeps its namespace alive.
        unsafe { Net::from_raw(net) }
    }

    // Window and threshold, in packets.

    /// Congestion window.
    pub(crate) fn snd_cwnd(&self) -> u32 {
        read!(self, snd_cwnd)
    }

    /// Sets the congestion window, within 1 and the socket's own bound.
    pub(crate) fn set_snd_cwnd(&mut self, packets: u32) {
        let cwnd = packets.min(self.snd_cwnd_clamp()).clamp(1, i32::MAX as u32);
        write!(self, cwnd, snd_cwnd)
    }

    /// Upper bound of the window, by route or TCP_WINDOW_CLAMP.
    pub(crate) fn snd_cwnd_clamp(&self) -> u32 {
        read!(self, snd_cwnd_clamp)
    }

    /// Counter of linear increase, for the algorithm's own use.
    pub(crate) fn snd_cwnd_cnt(&self) -> u32 {
        read!(self, snd_cwnd_cnt)
    }

    /// Sets the counter of linear increase.
    pub(crate) fn set_snd_cwnd_cnt(&mut self, count: u32) {
        write!(self, count, snd_cwnd_cnt)
    }

    /// Slow start ends at this window.
    pub(crate) fn snd_ssthresh(&self) -> u32 {
        read!(self, snd_ssthresh)
    }

    /// Sets where slow start ends.
    pub(crate) fn set_snd_ssthresh(&mut self, packets: u32) {
        write!(self, packets, snd_ssthresh)
    }

    /// The window is below the slow start threshold.
    pub(crate) fn in_slow_start(&self) -> bool {
        self.snd_cwnd() < self.snd_ssthresh()
    }

    /// The window, not the application, bounds what is sent.
    pub(crate) fn is_cwnd_limited(&self) -> bool {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::xdc_tcp_is_cwnd_limited(self.sk()) }
    }

    // Time, in us.

    /// The time of the packet being processed.
    pub(crate) fn mstamp_us(&self) -> u64 {
        read!(self, tcp_mstamp)
    }

    /// Smoothed RTT, 0 before the first sample.
    pub(crate) fn srtt_us(&self) -> u32 {
        read!(self, srtt_us) >> 3
    }

    /// Minimum RTT over `net.ipv4.tcp_min_rtt_wlen`, if there is a sample.
    pub(crate) fn min_rtt_us(&self) -> Option<u32> {
        let rtt_us = read!(self, rtt_min.s[0].v);
        (rtt_us != u32::MAX).then_some(rtt_us)
    }

    /// RTT samples of retransmitted packets are true to the us, not to the ms.
    pub(crate) fn has_usec_timestamps(&self) -> bool {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { (*self.ptr.as_ptr()).tcp_usec_ts() != 0 }
    }

    // Deliveries, in packets, and sequence numbers.

    /// Packets delivered in all, retransmitted ones included.
    pub(crate) fn delivered(&self) -> u32 {
        read!(self, delivered)
    }

    /// Of [`Sock::delivered`], those that ECE or AccECN said were marked.
    pub(crate) fn delivered_ce(&self) -> u32 {
        read!(self, delivered_ce)
    }

    /// Packets sent and not cumulatively ACKed.
    pub(crate) fn packets_out(&self) -> u32 {
        read!(self, packets_out)
    }

    /// Packets believed to be in the network, `tcp_packets_in_flight()`.
    pub(crate) fn in_flight(&self) -> u32 {
        let left = read!(self, sacked_out).wrapping_add(read!(self, lost_out));
        self.packets_out()
            .wrapping_sub(left)
            .wrapping_add(read!(self, retrans_out))
    }

    /// Payload bytes of a full packet.
    pub(crate) fn mss_bytes(&self) -> u32 {
        read!(self, mss_cache)
    }

    /// First byte that is not ACKed.
    pub(crate) fn snd_una(&self) -> u32 {
        read!(self, snd_una)
    }

    /// Next byte to be sent.
    pub(crate) fn snd_nxt(&self) -> u32 {
        read!(self, snd_nxt)
    }

    /// Next byte expected from the peer.
    pub(crate) fn rcv_nxt(&self) -> u32 {
        read!(self, rcv_nxt)
    }

    /// Segments with data sent since the connection began, retransmissions included.
    pub(crate) fn data_segs_out(&self) -> u32 {
        read!(self, data_segs_out)
    }

    /// Bytes cumulatively ACKed since the connection began.
    pub(crate) fn bytes_acked(&self) -> u64 {
        read!(self, bytes_acked)
    }

    /// Nonzero while the application does not fill the window: the value of
    /// [`Sock::delivered`] from which on it will have.
    pub(crate) fn app_limited(&self) -> u32 {
        read!(self, app_limited)
    }

    /// Sets where the application-limited phase ends.
    pub(crate) fn set_app_limited(&mut self, delivered: u32) {
        write!(self, delivered, app_limited)
    }

    /// State of loss recovery; in `set_state` still the old one.
    pub(crate) fn ca_state(&self) -> State {
        // SAFETY: By the type invariants the socket is alive and locked.
        State::from_raw(unsafe { (*self.ptr.as_ptr()).inet_conn.icsk_ca_state() })
    }

    /// Passive or not yet open: nothing has been negotiated.
    pub(crate) fn is_closed_or_listening(&self) -> bool {
        let state = read!(self, inet_conn.icsk_inet.sk.__sk_common.skc_state);
        matches!(u32::from(state), bindings::TCP_CLOSE | bindings::TCP_LISTEN)
    }

    /// What was negotiated about ECN.
    pub(crate) fn ecn_mode(&self) -> EcnMode {
        let flags = u32::from(read!(self, ecn_flags));
        match flags & (bindings::XDC_TCP_ECN_MODE_RFC3168 | bindings::XDC_TCP_ECN_MODE_ACCECN) {
            0 => EcnMode::None,
            bindings::XDC_TCP_ECN_MODE_RFC3168 => EcnMode::Rfc3168,
            bindings::XDC_TCP_ECN_MODE_ACCECN => EcnMode::AccEcn,
            // Both bits: asked for, and not answered yet.
            _ => EcnMode::None,
        }
    }

    // Pacing.

    /// Rate at which packets leave.
    pub(crate) fn pacing_rate_bytes(&self) -> u64 {
        read!(self, inet_conn.icsk_inet.sk.sk_pacing_rate) as u64
    }

    /// Paces to this many bytes per second, within SO_MAX_PACING_RATE; in TCP
    /// itself where the device has no fq.
    pub(crate) fn set_pacing_rate_bytes(&mut self, bytes_per_s: u64) {
        let max = read!(self, inet_conn.icsk_inet.sk.sk_max_pacing_rate);
        let rate = usize::try_from(bytes_per_s).unwrap_or(max).min(max);
        write!(self, rate, inet_conn.icsk_inet.sk.sk_pacing_rate);
        // SK_PACING_NONE is 0.
        if read!(self, inet_conn.icsk_inet.sk.sk_pacing_status) == 0 {
            // SAFETY: By the type invariants the socket is alive and locked.
            unsafe { bindings::xdc_tcp_need_pacing(self.sk()) }
        }
    }

    // What the kernel offers to every algorithm.

    /// Grows the window as slow start does; returns the packets left over.
    pub(crate) fn slow_start(&mut self, acked: u32) -> u32 {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::tcp_slow_start(self.ptr.as_ptr(), acked) }
    }

    /// Adds one packet to the window for each `w` that were ACKed.
    pub(crate) fn cong_avoid_ai(&mut self, w: u32, acked: u32) {
        // tcp_cong_avoid_ai() divides by it.
        let w = w.max(1);
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::tcp_cong_avoid_ai(self.ptr.as_ptr(), w, acked) }
    }

    /// Reno's increase.
    pub(crate) fn reno_cong_avoid(&mut self, ack: u32, acked: u32) {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::tcp_reno_cong_avoid(self.sk(), ack, acked) }
    }

    /// Reno's threshold after a loss: half the window.
    pub(crate) fn reno_ssthresh(&self) -> u32 {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::tcp_reno_ssthresh(self.sk()) }
    }

    /// Reno's window after a reduction that proved wrong.
    pub(crate) fn reno_undo_cwnd(&self) -> u32 {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::tcp_reno_undo_cwnd(self.sk()) }
    }

    // The receiver's side.

    /// Sends an ACK up to `rcv_nxt` now.
    pub(crate) fn send_ack(&mut self, rcv_nxt: u32) {
        // SAFETY: By the type invariants the socket is alive and locked.
        unsafe { bindings::__tcp_send_ack(self.sk(), rcv_nxt, 0) }
    }

    fn ack_is_delayed(&self) -> bool {
        let pending = read!(self, inet_conn.icsk_ack.pending);
        pending & bindings::ICSK_ACK_TIMER as u8 != 0
    }

    fn ack_at_once(&mut self) {
        let pending = read!(self, inet_conn.icsk_ack.pending);
        write!(
            self,
            pending | bindings::ICSK_ACK_NOW as u8,
            inet_conn.icsk_ack.pending
        )
    }

    fn set_ece(&mut self, on: bool) {
        let demand = bindings::XDC_TCP_ECN_DEMAND_CWR as u8;
        let flags = read!(self, ecn_flags);
        let flags = if on { flags | demand } else { flags & !demand };
        write!(self, flags, ecn_flags)
    }

    // What others see.

    fn head(&self) -> &Head {
        // SAFETY: The area is at least as large as `Head` and aligned to 8;
        // `Head` is made of cells that allow any bit pattern and any race.
        unsafe { &*addr_of!((*self.ptr.as_ptr()).inet_conn.icsk_ca_priv).cast() }
    }

    /// Shows the marks to `ss -ti`, TCP_CC_INFO and `xdc ss` from now on: DCTCP's block.
    /// `fraction` as in [`Info`].
    #[inline]
    pub(crate) fn publish_marks(&mut self, fraction: u32, marked_bytes: u32, acked_bytes: u32) {
        let head = self.head();
        head.fraction.set(fraction);
        head.marked_bytes.set(marked_bytes);
        head.acked_bytes.set(acked_bytes);
    }

    /// The part of [`Info`] that each ACK changes. Returns whether the rest of it, as last
    /// published, is of the same period and has the same flags.
    #[inline(always)]
    pub(crate) fn publish_bytes(
        &mut self,
        marked_bytes: u32,
        acked_bytes: u32,
        periods: u8,
        flags: u8,
    ) -> bool {
        let head = self.head();
        head.marked_bytes.set(marked_bytes);
        head.acked_bytes.set(acked_bytes);
        head.periods.get() as u8 == periods && (head.status.get() >> FLAGS_SHIFT) as u8 == flags
    }

    /// Shows all of `info`.
    pub(crate) fn publish(&mut self, info: Info) {
        let head = self.head();
        let status = head.status.get();
        let quick_adapts = widen(status, info.quick_adapts) & 0xffff;
        let flags = u32::from(info.flags) << FLAGS_SHIFT;
        head.status
            .set(status & (LIVE | CE_STATE) | flags | quick_adapts);
        self.publish_marks(info.fraction, info.marked_bytes, info.acked_bytes);
        let head = self.head();
        head.base_rtt_us.set(info.base_rtt_us);
        head.periods.set(widen(head.periods.get(), info.periods));
    }
}

/// Runs `f` with softirqs disabled on this CPU: callbacks run without that where a process takes
/// what came while it had the socket.
pub(crate) fn without_softirqs<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: No interrupts are disabled in callbacks, and nothing panics in between; the two nest.
    unsafe { bindings::xdc_local_bh_disable() };
    let ret = f();
    // SAFETY: Disabled above.
    unsafe { bindings::xdc_local_bh_enable() };
    ret
}

/// A receiver that echoes the CE state of each packet in ECE, as DCTCP does
/// (RFC 8257, section 3.2), so that an RFC 3168 sender can count marks.
/// With AccECN the kernel does what is needed by itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct EceEcho {
    prior_rcv_nxt: u32,
}

impl EceEcho {
    /// For [`CongestionControl::init`].
    pub(crate) fn new(sk: &Sock<'_>) -> Self {
        Self {
            prior_rcv_nxt: sk.rcv_nxt(),
        }
    }

    /// For [`CongestionControl::cwnd_event`]; other events change nothing.
    pub(crate) fn event(&mut self, sk: &mut Sock<'_>, event: Event) {
        let ce = match event {
            Event::EcnIsCe => true,
            Event::EcnNoCe => false,
            _ => return,
        };
        let before = sk.head().ce_state();
        if ce != before {
            // A delayed ACK speaks for packets of the old state: it leaves
            // with that, and the one for this packet at once after it.
            if sk.ack_is_delayed() {
                sk.set_ece(before);
                sk.send_ack(self.prior_rcv_nxt);
            }
            sk.ack_at_once();
        }
        self.prior_rcv_nxt = sk.rcv_nxt();
        sk.head().set_ce_state(ce);
        sk.set_ece(ce);
    }
}

/// A congestion control, `struct tcp_congestion_ops`.
///
/// `self` is what all its sockets share, such as parameters. Each socket has a
/// [`Data`](Self::Data) in its private area. All callbacks run with the socket
/// locked, mostly in softirq: they may not sleep. A socket that
/// [`init`](Self::init) has not seen (a new child, one after disconnect) is
/// handled like Reno, without a callback.
#[vtable]
pub(crate) trait CongestionControl: Sized + Send + Sync + 'static {
    /// Name for TCP_CONGESTION, at most 10 characters.
    const NAME: &'static CStr;

    /// Of [`flags`].
    const FLAGS: u32 = 0;

    /// What `struct xdc_diag_info` calls the algorithm; None: it has no such block.
    const DIAG: Option<u8> = None;

    /// State of one socket. `Copy`, because sockets go without a last callback.
    type Data: Copy + Send;

    /// A connection was established, or an open one was switched to this
    /// algorithm. ECN has been negotiated. Returns the socket's state, or None
    /// to leave the socket to Reno for good.
    fn init(&self, sk: &mut Sock<'_>) -> Option<Self::Data>;

    /// The socket goes, or is switched to another algorithm.
    fn release(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the slow start threshold on entering CWR, Recovery or Loss.
    fn ssthresh(&self, sk: &mut Sock<'_>, data: &mut Self::Data) -> u32;

    /// Returns the window after a reduction that proved wrong.
    fn undo_cwnd(&self, sk: &mut Sock<'_>, data: &mut Self::Data) -> u32;

    /// An ACK came in state Open or Disorder: grows the window. Without this
    /// and `cong_control` it grows as Reno's, by no call of ours.
    fn cong_avoid(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _ack: u32, _acked: u32) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// An ACK was processed: sets the window and the pacing rate, in every
    /// state. The kernel then does neither by itself, not even in recovery.
    fn cong_control(
        &self,
        _sk: &mut Sock<'_>,
        _data: &mut Self::Data,
        _ack: u32,
        _flags: AckFlags,
        _rs: &RateSample,
    ) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Loss recovery is about to change to `new`.
    fn set_state(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _new: State) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Something happened to the window, or a packet came in with ECN bits.
    fn cwnd_event(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _event: Event) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The first packet is sent with none in flight.
    fn cwnd_event_tx_start(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// An ACK came; its packets are not accounted for in the state yet.
    fn in_ack_event(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _event: AckEvent) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Packets were (S)ACKed.
    fn pkts_acked(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _sample: AckSample) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the least number of packets in a GSO burst.
    fn min_tso_segs(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns how many windows the send buffer holds.
    fn sndbuf_expand(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// What C sees of a congestion control, in memory of its own.
///
/// # Invariants
///
/// `icsk_ca_ops` of a socket that calls a thunk of [`Thunks<T>`] points to
/// `main`, at the beginning of this struct.
#[repr(C)]
struct Ops<T> {
    main: Opaque<bindings::tcp_congestion_ops>,
    /// Where `init` sends a socket that it refuses. Never registered, so that
    /// nobody can ask for it by name.
    reno: Opaque<bindings::tcp_congestion_ops>,
    cc: T,
}

/// The callbacks that C calls, each for `T`'s method of that name.
struct Thunks<T>(PhantomData<T>);

impl<T: CongestionControl> Thunks<T> {
    /// Runs `f` if init() has accepted the socket, else returns `default`.
    ///
    /// # Safety
    ///
    /// `sk` is a TCP socket, its lock is held, and its `icsk_ca_ops` is `main`
    /// of an `Ops<T>`.
    #[inline(always)]
    unsafe fn with<R>(
        sk: *mut bindings::sock,
        default: impl FnOnce(&mut Sock<'_>) -> R,
        f: impl FnOnce(&T, &mut Sock<'_>, &mut T::Data) -> R,
    ) -> R {
        let ptr: *mut bindings::tcp_sock = sk.cast();
        // INVARIANT: By the safety requirements.
        let mut sock = Sock {
            // SAFETY: C passes no null pointer.
            ptr: unsafe { NonNull::new_unchecked(ptr) },
            _callback: PhantomData,
        };
        if !sock.head().is_live() {
            return default(&mut sock);
        }
        // SAFETY: By the safety requirements; `main` is first in `Ops<T>`.
        let cc = unsafe { &(*(*ptr).inet_conn.icsk_ca_ops.cast::<Ops<T>>()).cc };
        // SAFETY: The area holds a `Private<T::Data>` by the checks of
        // `Registration`, `live` says that `data` was written, and the
        // socket's lock makes this the only reference to it: `Sock` and
        // get_info() touch no more than `head`.
        let data = unsafe {
            (*addr_of_mut!((*ptr).inet_conn.icsk_ca_priv).cast::<Private<T::Data>>())
                .data
                .assume_init_mut()
        };
        f(cc, &mut sock, data)
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn init(sk: *mut bindings::sock) {
        let ptr: *mut bindings::tcp_sock = sk.cast();
        // SAFETY: By the safety requirements; `main` is first in `Ops<T>`.
        let ops = unsafe { (*ptr).inet_conn.icsk_ca_ops.cast::<Ops<T>>() };
        let mut sock = Sock {
            // SAFETY: C passes no null pointer.
            ptr: unsafe { NonNull::new_unchecked(ptr) },
            _callback: PhantomData,
        };
        // SAFETY: By the invariant of `Ops`.
        let cc = unsafe { &(*ops).cc };
        match cc.init(&mut sock) {
            Some(data) => {
                // SAFETY: The area holds a `Private<T::Data>` by the checks of
                // `Registration`; the socket is locked.
                unsafe {
                    (*addr_of_mut!((*ptr).inet_conn.icsk_ca_priv).cast::<Private<T::Data>>())
                        .data
                        .write(data)
                };
                let head = sock.head();
                head.status.set(head.status.get() | LIVE);
            }
            None => {
                // SAFETY: As above; the module that owns both is pinned by the
                // reference that the socket has on it.
                unsafe {
                    addr_of_mut!((*ptr).inet_conn.icsk_ca_ops)
                        .write_volatile(addr_of!((*ops).reno).cast())
                };
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn release(sk: *mut bindings::sock) {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |_| (), |cc, sk, data| cc.release(sk, data)) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn ssthresh(sk: *mut bindings::sock) -> u32 {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |sk| sk.reno_ssthresh(), T::ssthresh) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn undo_cwnd(sk: *mut bindings::sock) -> u32 {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |sk| sk.reno_undo_cwnd(), T::undo_cwnd) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn cong_avoid(sk: *mut bindings::sock, ack: u32, acked: u32) {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with(
                sk,
                |sk| sk.reno_cong_avoid(ack, acked),
                |cc, sk, data| cc.cong_avoid(sk, data, ack, acked),
            )
        }
    }

    /// # Safety
    ///
    /// As for [`Self::with`], and `rs` is valid for the call.
    unsafe extern "C" fn cong_control(
        sk: *mut bindings::sock,
        ack: u32,
        flag: c_int,
        rs: *const bindings::rate_sample,
    ) {
        // SAFETY: By the safety requirements; `RateSample` is transparent.
        let rs = unsafe { &*rs.cast::<RateSample>() };
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with(
                sk,
                |_| (),
                |cc, sk, data| cc.cong_control(sk, data, ack, AckFlags(flag), rs),
            )
        }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn set_state(sk: *mut bindings::sock, new: u8) {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with(
                sk,
                |_| (),
                |cc, sk, data| cc.set_state(sk, data, State::from_raw(new)),
            )
        }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn cwnd_event(sk: *mut bindings::sock, event: bindings::tcp_ca_event) {
        let Some(event) = Event::from_raw(event) else {
            return;
        };
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |_| (), |cc, sk, data| cc.cwnd_event(sk, data, event)) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn cwnd_event_tx_start(sk: *mut bindings::sock) {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |_| (), T::cwnd_event_tx_start) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn in_ack_event(sk: *mut bindings::sock, flags: u32) {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with(
                sk,
                |_| (),
                |cc, sk, data| cc.in_ack_event(sk, data, AckEvent(flags)),
            )
        }
    }

    /// # Safety
    ///
    /// As for [`Self::with`], and `sample` is valid for the call.
    unsafe extern "C" fn pkts_acked(sk: *mut bindings::sock, sample: *const bindings::ack_sample) {
        // SAFETY: By the safety requirements.
        let sample = unsafe { &*sample };
        let sample = AckSample {
            packets: sample.pkts_acked,
            rtt_us: u32::try_from(sample.rtt_us).ok(),
            in_flight: sample.in_flight,
        };
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |_| (), |cc, sk, data| cc.pkts_acked(sk, data, sample)) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn min_tso_segs(sk: *mut bindings::sock) -> u32 {
        /// What net.ipv4.tcp_min_tso_segs begins with.
        const DEFAULT: u32 = 2;
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |_| DEFAULT, T::min_tso_segs) }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn sndbuf_expand(sk: *mut bindings::sock) -> u32 {
        /// What tcp_sndbuf_expand() takes where there is no callback.
        const DEFAULT: u32 = 2;
        // SAFETY: By the safety requirements.
        unsafe { Self::with(sk, |_| DEFAULT, T::sndbuf_expand) }
    }

    /// # Safety
    ///
    /// As for [`fill_info`].
    unsafe extern "C" fn get_info(
        sk: *mut bindings::sock,
        ext: u32,
        attr: *mut c_int,
        info: *mut bindings::tcp_cc_info,
    ) -> usize {
        // SAFETY: By the safety requirements.
        unsafe { fill_info(sk, ext, attr, info, T::DIAG) }
    }

    fn ops() -> bindings::tcp_congestion_ops {
        // SAFETY: Null callbacks, an empty list and an empty name are valid.
        let mut ops: bindings::tcp_congestion_ops = unsafe { MaybeUninit::zeroed().assume_init() };
        ops.owner = <T::OwnerModule as ModuleMetadata>::THIS_MODULE
            .as_ptr()
            .cast();
        ops.flags = T::FLAGS;
        ops.get_info = Some(Self::get_info);
        ops.init = Some(Self::init);
        ops.ssthresh = Some(Self::ssthresh);
        ops.undo_cwnd = Some(Self::undo_cwnd);
        if T::HAS_RELEASE {
            ops.release = Some(Self::release);
        }
        if T::HAS_CONG_CONTROL {
            ops.cong_control = Some(Self::cong_control);
        } else if T::HAS_CONG_AVOID {
            ops.cong_avoid = Some(Self::cong_avoid);
        } else {
            ops.cong_avoid = Some(bindings::tcp_reno_cong_avoid);
        }
        if T::HAS_SET_STATE {
            ops.set_state = Some(Self::set_state);
        }
        if T::HAS_CWND_EVENT {
            ops.cwnd_event = Some(Self::cwnd_event);
        }
        if T::HAS_CWND_EVENT_TX_START {
            ops.cwnd_event_tx_start = Some(Self::cwnd_event_tx_start);
        }
        if T::HAS_IN_ACK_EVENT {
            ops.in_ack_event = Some(Self::in_ack_event);
        }
        if T::HAS_PKTS_ACKED {
            ops.pkts_acked = Some(Self::pkts_acked);
        }
        if T::HAS_MIN_TSO_SEGS {
            ops.min_tso_segs = Some(Self::min_tso_segs);
        }
        if T::HAS_SNDBUF_EXPAND {
            ops.sndbuf_expand = Some(Self::sndbuf_expand);
        }
        set_name(&mut ops, T::NAME, b"");
        ops
    }

    fn reno_ops() -> bindings::tcp_congestion_ops {
        // SAFETY: Null callbacks, an empty list and an empty name are valid.
        let mut ops: bindings::tcp_congestion_ops = unsafe { MaybeUninit::zeroed().assume_init() };
        ops.owner = <T::OwnerModule as ModuleMetadata>::THIS_MODULE
            .as_ptr()
            .cast();
        ops.get_info = Some(Self::get_info);
        ops.ssthresh = Some(bindings::tcp_reno_ssthresh);
        ops.undo_cwnd = Some(bindings::tcp_reno_undo_cwnd);
        ops.cong_avoid = Some(bindings::tcp_reno_cong_avoid);
        set_name(&mut ops, T::NAME, RENO_SUFFIX);
        ops
    }
}

/// Name of the ops that `init` falls back to: "<name>-reno".
const RENO_SUFFIX: &[u8] = b"-reno";

fn set_name(ops: &mut bindings::tcp_congestion_ops, name: &CStr, suffix: &[u8]) {
    let name = Iterator::chain(name.to_bytes().iter(), suffix);
    for (to, from) in ops.name.iter_mut().zip(name) {
        *to = *from as c_char;
    }
}

/// The block of modules/uapi/xdc_diag.h.
fn diag_info(head: &Head, algorithm: u8) -> bindings::xdc_diag_info {
    let status = head.status.get();
    let ce = if status & CE_STATE != 0 {
        bindings::XDC_DIAG_F_CE
    } else {
        0
    };
    let flags = (status & !(LIVE | CE_STATE)) >> FLAGS_SHIFT;
    bindings::xdc_diag_info {
        version: bindings::XDC_DIAG_VERSION as u8,
        algorithm,
        flags: (flags | ce) as u16,
        fraction: head.fraction.get(),
        periods: head.periods.get(),
        base_rtt: head.base_rtt_us.get(),
        quick_adapts: status as u16,
        period_marked: head.period_marked(),
    }
}

/// Fills DCTCP's info block from [`Head`], or ours; DCTCP's `enabled` is 0
/// where Reno took over. `diag` is [`CongestionControl::DIAG`].
///
/// # Safety
///
/// `sk` is a TCP socket that RCU or its lock keeps alive; `attr` and `info` are
/// valid for writes. The lock need not be held.
unsafe fn fill_info(
    sk: *mut bindings::sock,
    ext: u32,
    attr: *mut c_int,
    info: *mut bindings::tcp_cc_info,
    diag: Option<u8>,
) -> usize {
    // inet_diag has no request bit for DCTCP's block in older callers, which
    // ask for VEGASINFO and look at what they get.
    const DCTCP: u32 =
        1 << (bindings::INET_DIAG_DCTCPINFO - 1) | 1 << (bindings::INET_DIAG_VEGASINFO - 1);
    // TCP_CC_INFO asks for everything, and expects DCTCP's.
    let wants_dctcp = ext & DCTCP != 0;
    let ours = diag.filter(|_| ext & bindings::XDC_DIAG_REQUEST != 0);
    if !wants_dctcp && ours.is_none() {
        return 0;
    }
    let ptr: *mut bindings::tcp_sock = sk.cast();
    // SAFETY: The area is at least as large as `Head` and aligned to 8; `Head`
    // allows any bit pattern and any race.
    let head = unsafe { &*addr_of!((*ptr).inet_conn.icsk_ca_priv).cast::<Head>() };
    if let (false, Some(algorithm)) = (wants_dctcp, ours) {
        if !head.is_live() {
            return 0;
        }
        // SAFETY: By the safety requirements. The block fits the union, by
        // the check below, and has no padding, so no byte of the stack that
        // `info` may be is read.
        unsafe {
            info.cast::<bindings::xdc_diag_info>()
                .write(diag_info(head, algorithm));
            attr.write(bindings::XDC_DIAG_ATTR as c_int);
        }
        return size_of::<bindings::xdc_diag_info>();
    }
    let dctcp = bindings::tcp_dctcp_info {
        dctcp_enabled: u16::from(head.is_live()),
        dctcp_ce_state: u16::from(head.ce_state()),
        dctcp_alpha: head.alpha(),
        dctcp_ab_ecn: head.marked_bytes.get(),
        dctcp_ab_tot: head.acked_bytes.get(),
    };
    // SAFETY: By the safety requirements. The union may be uninitialised, so it
    // is written whole, as far as it is going to be read.
    unsafe {
        addr_of_mut!((*info).dctcp).write(dctcp);
        attr.write(bindings::INET_DIAG_DCTCPINFO as c_int);
    }
    size_of::<bindings::tcp_dctcp_info>()
}

const _: () = {
    assert!(size_of::<bindings::xdc_diag_info>() <= size_of::<bindings::tcp_cc_info>());
    assert!(align_of::<bindings::xdc_diag_info>() <= align_of::<bindings::tcp_cc_info>());
    assert!(bindings::XDC_DIAG_REQUEST == 1 << (bindings::INET_DIAG_SHUTDOWN - 1));
};

/// A registered congestion control; it is unregistered when this is dropped.
///
/// # Invariants
///
/// `ops.main` is registered with TCP.
pub(crate) struct Registration<T: CongestionControl> {
    ops: Pin<KBox<Ops<T>>>,
}

// SAFETY: `T` is `Send` and `Sync`, and the rest is C's, which locks it.
unsafe impl<T: CongestionControl> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: CongestionControl> Sync for Registration<T> {}

impl<T: CongestionControl> Registration<T> {
    /// What a wrong implementation of the trait fails to compile for.
    const CHECKS: () = {
        assert!(size_of::<Private<T::Data>>() <= bindings::XDC_CA_PRIV_BYTES as usize);
        assert!(align_of::<Private<T::Data>>() <= align_of::<u64>());
        let name_bytes = T::NAME.to_bytes().len() + RENO_SUFFIX.len();
        assert!(name_bytes < bindings::TCP_CA_NAME_MAX as usize);
        assert!(
            !(T::HAS_CONG_AVOID && T::HAS_CONG_CONTROL),
            "cong_avoid or cong_control, and not both"
        );
    };

    /// Registers `cc` for every namespace.
    pub(crate) fn new(cc: T) -> Result<Self> {
        let () = Self::CHECKS;
        // On the heap, because C links it into a list and sets flags in it.
        let ops = KBox::pin(
            Ops {
                main: Opaque::new(Thunks::<T>::ops()),
                reno: Opaque::new(Thunks::<T>::reno_ops()),
                cc,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: `main` is complete, writable, and stays where it is until
        // `drop` has unregistered it.
        to_result(unsafe { bindings::tcp_register_congestion_control(ops.main.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self { ops })
    }
}

impl<T: CongestionControl> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. The module's owner reference keeps us
        // from here while a socket has the ops; this waits for RCU readers.
        unsafe { bindings::tcp_unregister_congestion_control(self.ops.main.get()) }
    }
}
