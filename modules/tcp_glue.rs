// SPDX-License-Identifier: GPL-2.0

//! Connects an algorithm of algo/ to TCP: packets of the socket into bytes and
//! back, TCP's callbacks into the algorithm's, parameter tables into sysctls.
//!
//! Where TCP shows through, in tcp_unocc and tcp_gemini alike:
//!
//! 1. The fraction of marked bytes comes from AccECN's counters where both
//!    ends have them, else from an ECE per packet as DCTCP's receiver sends
//!    it; such a receiver is here, too. Without ECN the flow is Reno's.
//! 2. `cong_control` sets window and rate for each ACK, because the kernel's
//!    own reaction to ECE would cut the window a second time.
//! 3. ssthresh() only answers; the window changes when Recovery or Loss
//!    begins. The kernel calls it for ECE too.
//! 4. The window grows while it is made use of, as the kernel's own do: the
//!    rate sample is not limited by the application, or the window is full.
//! 5. While a loss is repaired the window follows what leaves the network, so
//!    that lost packets do not come back as one burst.

use super::algo::{
    controller::{shown, Controller, Watch},
    fixed::FRACTION_BITS,
    params::{ParamInfo, Values},
    Ack, Output,
};
use super::kernel_api::{
    sysctl::{self, Kind, Param},
    tcp::{
        diag, flags, without_softirqs, AckFlags, CongestionControl, EceEcho, EcnMode, Event, Info,
        RateSample, Sock, State,
    },
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// An algorithm as a module offers it.
pub(crate) trait Algorithm: Send + Sync + 'static {
    /// Name for TCP_CONGESTION.
    const NAME: &'static CStr;

    /// What modules/uapi/xdc_diag.h calls it.
    const DIAG: u8;

    /// State of one socket.
    type Flow: Controller;

    /// The parameters of the socket's namespace.
    fn params<'a>(&'a self, sk: &'a Sock<'_>) -> impl Values + 'a;

    /// Somebody listens to one of its tracepoints.
    #[inline(always)]
    fn is_traced() -> bool {
        false
    }

    /// Tells who listens.
    fn trace(_sk: &Sock<'_>, _event: EventOf<Self>) {}
}

/// What an [`Algorithm`] tells who listens.
pub(crate) type EventOf<A> = <<A as Algorithm>::Flow as Controller>::Event;

/// An [`Algorithm`] as TCP sees it.
pub(crate) struct Adapter<A>(pub(crate) A);

/// One socket.
#[derive(Clone, Copy)]
pub(crate) struct Socket<F> {
    flow: F,
    marks: Marks,
    echo: EceEcho,
}

impl<F: Controller> Socket<F> {
    /// After each ACK: all of it only where a period has ended or a flag has changed.
    #[inline(always)]
    fn publish(&self, sk: &mut Sock<'_>) {
        let shown = self.flow.shown();
        let (marked, acked) = (shown.marked_bytes, shown.acked_bytes);
        if !sk.publish_bytes(marked, acked, shown.periods, shown.flags) {
            self.publish_all(sk);
        }
    }

    #[inline(never)]
    fn publish_all(&self, sk: &mut Sock<'_>) {
        let shown = self.flow.shown();
        sk.publish(Info {
            fraction: shown.marked_fraction,
            marked_bytes: shown.marked_bytes,
            acked_bytes: shown.acked_bytes,
            base_rtt_us: shown.base_rtt_us,
            periods: shown.periods,
            quick_adapts: shown.quick_adapts,
            flags: shown.flags,
        });
    }
}

#[vtable]
impl<A: Algorithm> CongestionControl for Adapter<A> {
    const NAME: &'static CStr = A::NAME;
    const FLAGS: u32 = flags::NEEDS_ECN | flags::NEEDS_ACCECN;
    const DIAG: Option<u8> = Some(A::DIAG);

    type Data = Socket<A::Flow>;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Self::Data> {
        if !has_ecn(sk) {
            return None;
        }
        let mut flow = A::Flow::new(
            &self.0.params(sk),
            sk.mstamp_us(),
            bytes(sk, sk.snd_cwnd()),
            handshake_rtt_us(sk),
        );
        // After a lost SYN the kernel's initial window is one packet.
        if sk.data_segs_out() == 0 && sk.snd_cwnd() > 1 {
            flow.open(&self.0.params(sk));
        }
        let output = flow.output(&self.0.params(sk), sk.srtt_us());
        apply(sk, &output, in_recovery(sk));
        let socket = Socket {
            flow,
            marks: Marks::new(sk),
            echo: EceEcho::new(sk),
        };
        socket.publish_all(sk);
        Some(socket)
    }

    fn cong_control(
        &self,
        sk: &mut Sock<'_>,
        data: &mut Self::Data,
        _ack: u32,
        _flags: AckFlags,
        rs: &RateSample,
    ) {
        if A::is_traced() {
            return self.control_traced(sk.lend(), data, rs);
        }
        let ack = ack(sk, rs, &mut data.marks);
        let output = data.flow.on_ack(&self.0.params(sk), &ack);
        if let Some(output) = output {
            apply(sk, &output, ack.in_recovery);
        }
        data.publish(sk);
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, data: &mut Self::Data) -> u32 {
        let left_bytes = data
            .flow
            .loss_window_bytes(&self.0.params(sk), sk.mss_bytes());
        packets(sk, left_bytes)
    }

    fn set_state(&self, sk: &mut Sock<'_>, data: &mut Self::Data, new: State) {
        let (now_us, mss_bytes) = (sk.mstamp_us(), sk.mss_bytes());
        match new {
            State::Recovery if sk.ca_state() != State::Recovery => {
                data.flow.on_loss(&self.0.params(sk), now_us, mss_bytes);
            }
            State::Loss => {
                let in_flight_bytes = bytes(sk, sk.in_flight());
                data.flow
                    .on_timeout(&self.0.params(sk), now_us, in_flight_bytes, mss_bytes);
            }
            _ => {}
        }
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, data: &mut Self::Data) -> u32 {
        let prior_bytes = bytes(sk, sk.reno_undo_cwnd());
        data.flow.undo(prior_bytes);
        packets(sk, data.flow.cwnd_bytes())
    }

    fn cwnd_event(&self, sk: &mut Sock<'_>, data: &mut Self::Data, event: Event) {
        if sk.ecn_mode() == EcnMode::Rfc3168 {
            data.echo.event(sk, event);
            data.publish(sk);
        }
    }

    fn cwnd_event_tx_start(&self, sk: &mut Sock<'_>, data: &mut Self::Data) {
        data.flow.on_idle_restart(sk.mstamp_us());
    }
}

// The numbers that people see are the algorithms' own.
const _: () = {
    assert!(Info::FRACTION_BITS == FRACTION_BITS);
    assert!(diag::MARKED == shown::MARKED as u32);
    assert!(diag::REDUCED == shown::REDUCED as u32);
    assert!(diag::WAN == shown::WAN as u32);
};

impl<A: Algorithm> Adapter<A> {
    /// The same, while somebody listens: a function of its own, so that nothing is kept at hand
    /// for it where nobody does.
    #[cold]
    #[inline(never)]
    fn control_traced(&self, mut sk: Sock<'_>, data: &mut Socket<A::Flow>, rs: &RateSample) {
        let sk = &mut sk;
        let ack = ack(sk, rs, &mut data.marks);
        let output = {
            let params = self.0.params(sk);
            let mut trace = Trace::<A>(sk, PhantomData);
            // The kernel runs no eBPF program for an event in a softirq that interrupts another's.
            without_softirqs(|| data.flow.on_ack_watched(&params, &ack, &mut trace))
        };
        if let Some(output) = output {
            apply(sk, &output, ack.in_recovery);
        }
        data.publish(sk);
    }
}

/// Hands on what the algorithm does with this socket.
struct Trace<'a, A>(&'a Sock<'a>, PhantomData<A>);

impl<A: Algorithm> Watch<EventOf<A>> for Trace<'_, A> {
    fn see(&mut self, event: impl FnOnce() -> EventOf<A>) {
        A::trace(self.0, event());
    }
}

/// The kernel's TCP_INFINITE_SSTHRESH.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The least window that is asked for outside of recovery.
const MIN_PACKETS: u32 = 2;

/// Bytes of full segments.
fn bytes(sk: &Sock<'_>, packets: u32) -> u64 {
    bytes_of(packets, sk.mss_bytes())
}

#[inline(always)]
fn bytes_of(packets: u32, mss_bytes: u32) -> u64 {
    u64::from(packets).wrapping_mul(u64::from(mss_bytes))
}

/// Full segments in `bytes`, rounded down.
fn packets(sk: &Sock<'_>, bytes: u64) -> u32 {
    packets_of(bytes, sk.mss_bytes(), 0)
}

/// The same. Does not divide where it comes to what it was, which it does for most ACKs.
#[inline(always)]
fn packets_of(bytes: u64, mss_bytes: u32, before: u32) -> u32 {
    let mss_bytes = u64::from(mss_bytes.max(1));
    if bytes.wrapping_sub(u64::from(before).wrapping_mul(mss_bytes)) < mss_bytes {
        return before;
    }
    u32::try_from(bytes / mss_bytes).map_or(INFINITE_SSTHRESH, |n| n.min(INFINITE_SSTHRESH))
}

/// Handshake RTT, for the start of a flow.
///
/// A minimum of exactly 1 ms is what a retransmitted SYN leaves behind, measured by timestamps
/// that tick in ms.
fn handshake_rtt_us(sk: &Sock<'_>) -> Option<u32> {
    const TIMESTAMP_TICK_US: u32 = 1_000;

    sk.min_rtt_us()
        .filter(|&rtt_us| sk.has_usec_timestamps() || rtt_us != TIMESTAMP_TICK_US)
}

/// Counts CE marks: what of `delivered_ce` was not yet given to the algorithm.
#[derive(Clone, Copy)]
struct Marks {
    seen: u32,
}

impl Marks {
    /// Marks from now on.
    fn new(sk: &Sock<'_>) -> Self {
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
#[inline(always)]
fn ack(sk: &Sock<'_>, rs: &RateSample, marks: &mut Marks) -> Ack {
    let acked = rs.acked_sacked();
    let marked = marks.take(sk, acked);
    // Without a sample, or with one of a retransmitted packet, the RTT can come from timestamps
    // that tick in ms.
    let rtt_is_true =
        sk.has_usec_timestamps() || (rs.prior_mstamp_us() != 0 && !rs.is_retransmitted());
    let (delivered, interval_us) = rs.delivered().unwrap_or_default();
    let mss_bytes = sk.mss_bytes();
    let in_recovery = in_recovery(sk);
    Ack {
        now_us: sk.mstamp_us(),
        rtt_us: rs.rtt_us().filter(|_| rtt_is_true),
        srtt_us: sk.srtt_us(),
        acked_bytes: bytes_of(acked, mss_bytes),
        marked_bytes: bytes_of(marked, mss_bytes),
        delivered_bytes: bytes_of(delivered, mss_bytes),
        interval_us: u32::try_from(interval_us).unwrap_or(u32::MAX),
        app_limited: rs.is_app_limited(),
        // What a pacing rate holds back does not fill the window, either.
        cwnd_limited: !rs.is_app_limited() || sk.is_cwnd_limited(),
        in_recovery,
        prior_in_flight: rs.prior_in_flight(),
        in_flight_bytes: if in_recovery {
            bytes_of(sk.in_flight(), mss_bytes)
        } else {
            0
        },
        mss_bytes,
    }
}

fn in_recovery(sk: &Sock<'_>) -> bool {
    matches!(sk.ca_state(), State::Recovery | State::Loss)
}

/// Does what the algorithm decided.
#[inline(always)]
fn apply(sk: &mut Sock<'_>, output: &Output, in_recovery: bool) {
    let floor = if in_recovery { 1 } else { MIN_PACKETS };
    let mss_bytes = sk.mss_bytes();
    let cwnd = packets_of(output.cwnd_bytes, mss_bytes, sk.snd_cwnd());
    sk.set_snd_cwnd(cwnd.max(floor));
    let ssthresh = packets_of(output.ssthresh_bytes, mss_bytes, sk.snd_ssthresh());
    sk.set_snd_ssthresh(ssthresh.max(MIN_PACKETS));
    sk.set_pacing_rate_bytes(output.pacing_bytes_per_s);
}

/// Whether the other end can tell us of marks, or there is no other end yet.
fn has_ecn(sk: &Sock<'_>) -> bool {
    sk.ecn_mode() != EcnMode::None || sk.is_closed_or_listening()
}

/// The files of a module: some of its own, then the rows of its parameter table.
pub(crate) const fn sysctls<const FILES: usize, const N: usize>(
    own: &[Param],
    rows: &[ParamInfo<N>],
    profile: usize,
) -> [Param; FILES] {
    assert!(FILES == own.len() + rows.len());
    let mut files = [sysctl(&rows[0], profile); FILES];
    let mut i = 0;
    while i < FILES {
        files[i] = if i < own.len() {
            own[i]
        } else {
            sysctl(&rows[i - own.len()], profile)
        };
        i += 1;
    }
    files
}

/// The sysctl of one row of a parameter table.
const fn sysctl<const N: usize>(row: &ParamInfo<N>, profile: usize) -> Param {
    Param {
        name: row.name,
        kind: Kind::Number {
            default: row.defaults[profile] as u64,
            min: row.min as u64,
            max: row.max as u64,
        },
    }
}

/// The rows of a parameter table as the sysctls have them now, behind a module's own `FIRST` files.
pub(crate) struct Live<'a, const FIRST: usize>(pub(crate) &'a sysctl::Values);

impl<const FIRST: usize> Values for Live<'_, FIRST> {
    #[inline(always)]
    fn value(&self, row: usize) -> u32 {
        // The bounds of the file keep it within 32 bits.
        self.0.get(row.wrapping_add(FIRST)) as u32
    }
}
