// SPDX-License-Identifier: GPL-2.0

//! Connects an algorithm of algo/ to TCP: packets to bytes and back, TCP's callbacks to the
//! algorithm's methods, parameter tables to sysctls.
//!
//! Effects of TCP in all algorithms:
//!
//! 1. Marked bytes come from AccECN's counters if both ends have them, else from an ECE per packet
//!    as DCTCP's receiver sends it, which these modules do, too. While an RFC 3168 receiver repeats
//!    ECE, the rate of marks is estimated (algo/echo.rs). Without ECN the flow is Reno's.
//! 2. `cong_control` sets window and rate for each ACK, because the kernel's own reaction to ECE
//!    would cut the window a second time.
//! 3. ssthresh() has no side effects: the kernel also calls it for ECE. The window changes when
//!    Recovery or Loss begins, and in CWR without a mark: after a loss that a tail loss probe
//!    repaired, or a drop by the local queue.
//! 4. The window grows while it is in use, as in the kernel's algorithms: if half is in flight and
//!    the rate sample is not limited by the application, or if it is full.
//! 5. In recovery the window is the algorithm's, without TCP's proportional rate reduction, so that
//!    a large loss needs no restart from one packet. Each round trip with further losses reduces it
//!    again (RFC 5681, section 4.3).

use super::algo::{
    controller::{Controller, Watch},
    echo::MarkSpacing,
    entry::Entry,
    host,
    params::ParamSource,
    rtt::BaseRtt,
    Ack, Output,
};
use super::kernel_api::{
    qdisc::now_ns,
    relaxed::RelaxedCell,
    speeds::{EgressDev, Speeds},
    sysctl::{self, Param, MAX_PARAMS},
    tcp::{
        flags, AckFlags, CongestionControl, EceEcho, Echo, EcnMode, Event, Marks, RateSample, Sock,
        State,
    },
};
use super::tcp_diag::{self, Numbered, XdcBlock};
use core::marker::PhantomData;
use kernel::prelude::*;

#[path = "live.rs"]
mod live;

/// An algorithm that a module offers.
pub(crate) trait Algorithm: Send + Sync + 'static {
    /// Entry of the algorithm's file.
    const ENTRY: Entry;

    /// State of a socket.
    type Flow: Controller;

    /// Returns whether one of the algorithm's tracepoints is on.
    #[inline(always)]
    fn is_traced() -> bool {
        false
    }

    /// Emits an event on its tracepoint.
    fn trace(_sk: &Sock<'_>, _event: EventOf<Self>) {}
}

/// Event of an [`Algorithm`]'s tracepoints.
pub(crate) type EventOf<A> = <<A as Algorithm>::Flow as Controller>::Event;

impl<A: Algorithm> Numbered for A {
    const NUMBER: u8 = A::ENTRY.number;
}

/// An [`Algorithm`] as a congestion control of TCP.
pub(crate) struct Adapter<A: Algorithm> {
    sysctls: sysctl::Registration<Sysctls<A>>,
    speeds: Speeds,
}

/// Parameters of a socket's namespace, and properties of its host.
struct SockParams<'a, A: Algorithm> {
    sysctls: &'a sysctl::Registration<Sysctls<A>>,
    /// Present unless few ACKs read a parameter.
    live: Option<&'a sysctl::Values>,
    speeds: &'a Speeds,
    sk: &'a Sock<'a>,
}

impl<A: Algorithm> SockParams<'_, A> {
    #[inline(always)]
    fn live(&self) -> &sysctl::Values {
        match self.live {
            Some(values) => values,
            None => self.sysctls.of(self.sk.net()),
        }
    }
}

impl<A: Algorithm> ParamSource for SockParams<'_, A> {
    #[inline(always)]
    fn value(&self, row: usize) -> u32 {
        self.live().get(row)
    }

    #[inline(always)]
    fn egress_dev(&self) -> host::EgressDev {
        match self.speeds.egress_dev_of(self.sk) {
            EgressDev::NoRoute => host::EgressDev::NoRoute,
            EgressDev::Loopback => host::EgressDev::Loopback,
            EgressDev::KnownSpeed(mbps) => host::EgressDev::KnownSpeed(mbps),
            EgressDev::UnknownSpeed => host::EgressDev::UnknownSpeed,
        }
    }

    #[inline(always)]
    fn shortest_rtt_us(&self) -> u32 {
        let [shortest_us, ..] = self.live().kept();
        shortest_us.get()
    }

    #[inline(always)]
    fn note_base_rtt(&self, now_us: u64, rtt_us: u32) {
        let kept = self.live().kept();
        let mut shortest = BaseRtt::of_words(kept.each_ref().map(RelaxedCell::get));
        host::note_base_rtt(&mut shortest, now_us, rtt_us);
        for (word, new) in kept.iter().zip(shortest.words()) {
            word.set(new);
        }
    }
}

/// Publishes the figures after an ACK: all of them if a period ended or a flag changed.
#[inline(always)]
fn publish(sk: &mut Sock<'_>, flow: &impl Controller) {
    if tcp_diag::publish_changes(sk, &flow.published()) {
        publish_all(sk.reborrow(), flow);
    }
}

#[inline(never)]
fn publish_all(mut sk: Sock<'_>, flow: &impl Controller) {
    tcp_diag::publish(&mut sk, &flow.published());
}

#[vtable]
impl<A: Algorithm> CongestionControl for Adapter<A> {
    const NAME: &'static CStr = A::ENTRY.name;
    const FLAGS: u32 = flags::NEEDS_ECN | flags::NEEDS_ACCECN;

    const ECE_ECHO: EceEcho = EceEcho::Rfc3168;

    type Diag = XdcBlock<A>;
    type Data = A::Flow;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Self::Data> {
        if sk.ecn_mode() == EcnMode::None {
            return None;
        }
        let mut flow = A::Flow::new(
            &self.params(sk),
            // The socket's own time is the time of its last packet.
            now_ns() / 1_000,
            bytes(sk, sk.snd_cwnd()),
            handshake_rtt_us(sk),
        );
        // After a lost SYN the kernel's initial window is one packet.
        if sk.data_segs_out() == 0 && sk.snd_cwnd() > 1 {
            flow.open(&self.params(sk));
        }
        // The first segment may have been sent with the SYN.
        if sk.data_segs_out() > 1 {
            flow.resume(
                bytes(sk, sk.snd_cwnd()),
                threshold_bytes(sk, sk.snd_ssthresh()),
            );
        }
        let output = flow.output(&self.params(sk), sk.srtt_us());
        apply(sk, &output, mss_bytes(sk));
        sk.watch_repeats();
        sk.restart_marks();
        publish_all(sk.reborrow(), &flow);
        Some(flow)
    }

    fn cong_control(
        &self,
        sk: &mut Sock<'_>,
        flow: &mut A::Flow,
        rs: &RateSample,
        flags: AckFlags,
    ) {
        if A::is_traced() {
            return self.control_traced(sk.reborrow(), flow, rs, flags);
        }
        let ack = self.ack(sk, flow, rs, flags);
        let output = flow.on_ack(&self.params(sk), &ack);
        finish(sk, flow, rs, output, ack.mss_bytes);
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, flow: &mut A::Flow) -> u32 {
        let left_bytes = flow.loss_window_bytes(&self.params(sk), sk.mss_bytes());
        packets(sk, left_bytes)
    }

    fn set_state(&self, sk: &mut Sock<'_>, flow: &mut A::Flow, new: State) {
        match new {
            State::Recovery if sk.ca_state() != State::Recovery => {
                self.lost(sk.reborrow(), flow);
                // RACK's timer retransmits before the next ACK sets the window, and the first
                // retransmit leaves although more than the window is in flight.
                let output = flow.output(&self.params(sk), sk.srtt_us());
                let first = sk.in_flight().saturating_add(1);
                sk.set_snd_cwnd(packets(sk, output.cwnd_bytes).max(first));
            }
            State::Cwr => sk.note_cwr(),
            State::Open | State::Disorder if sk.ca_state() == State::Cwr => sk.note_cwr_end(),
            State::Open | State::Disorder if in_recovery(sk) => sk.note_repaired(),
            State::Loss if sk.is_timeout() => {
                // TCP takes the mark for the reduction of this window and calls no event.
                if sk.ca_state() == State::Cwr {
                    self.lost(sk.reborrow(), flow);
                }
                flow.restart(in_flight_bytes(sk), sk.mss_bytes());
            }
            _ => {}
        }
    }

    /// Handles a timeout, unless it is in recovery and thus for the same losses.
    fn cwnd_event(&self, sk: &mut Sock<'_>, flow: &mut A::Flow, event: Event) {
        if event == Event::Loss {
            self.lost(sk.reborrow(), flow);
        }
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, flow: &mut A::Flow) -> u32 {
        let prior_bytes = bytes(sk, sk.reno_undo_cwnd());
        flow.undo(prior_bytes, threshold_bytes(sk, sk.prior_ssthresh()));
        let output = flow.output(&self.params(sk), sk.srtt_us());
        // The kernel warns of a window of 0.
        packets(sk, output.cwnd_bytes).max(1)
    }

    fn cwnd_event_tx_start(&self, sk: &mut Sock<'_>, flow: &mut A::Flow) {
        sk.restart_marks();
        flow.on_idle_restart(sk.mstamp_us());
    }
}

impl<A: Algorithm> Adapter<A> {
    /// Registers the sysctls in every namespace.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            sysctls: sysctl::Registration::new()?,
            speeds: Speeds::new()?,
        })
    }

    /// Returns the parameters of the socket's namespace.
    #[inline(always)]
    fn params<'a>(&'a self, sk: &'a Sock<'_>) -> SockParams<'a, A> {
        SockParams {
            sysctls: &self.sysctls,
            live: A::Flow::EACH_ACK_READS_PARAMS.then(|| self.sysctls.of(sk.net())),
            speeds: &self.speeds,
            sk,
        }
    }

    #[cold]
    #[inline(never)]
    fn lost(&self, sk: Sock<'_>, flow: &mut A::Flow) {
        flow.on_loss(&self.params(&sk), sk.mstamp_us(), sk.mss_bytes());
    }

    /// Returns the algorithm's input for an ACK.
    #[inline(always)]
    fn ack(&self, sk: &mut Sock<'_>, flow: &mut A::Flow, rs: &RateSample, flags: AckFlags) -> Ack {
        // Packets sent since the last reduction are lost, too.
        if rs.losses() != 0 && sk.ca_state() == State::Recovery {
            self.lost(sk.reborrow(), flow);
        }
        let acked = rs.acked_sacked();
        let marks = sk.take_marks(acked, flags, |sk| self.lost(sk.reborrow(), flow));
        let marked = match marks {
            Marks::Counted(marked) => marked,
            Marks::Echo(echo) => echoed(sk, flow.window().in_slow_start(), echo, acked),
        };
        ack(sk, rs, marked)
    }

    /// [`cong_control`](CongestionControl::cong_control) with tracing. A separate function, so that
    /// the common path saves no registers.
    #[cold]
    #[inline(never)]
    fn control_traced(
        &self,
        mut sk: Sock<'_>,
        flow: &mut A::Flow,
        rs: &RateSample,
        flags: AckFlags,
    ) {
        let sk = &mut sk;
        let ack = self.ack(sk, flow, rs, flags);
        let output = {
            let params = self.params(sk);
            let mut trace = Trace::<A>(sk, PhantomData);
            flow.on_ack_watched(&params, &ack, &mut trace)
        };
        finish(sk, flow, rs, output, ack.mss_bytes);
    }
}

/// Emits the algorithm's events of a socket.
struct Trace<'a, A>(&'a Sock<'a>, PhantomData<A>);

impl<A: Algorithm> Watch<EventOf<A>> for Trace<'_, A> {
    fn observe(&mut self, event: impl FnOnce() -> EventOf<A>) {
        A::trace(self.0, event());
    }
}

/// The kernel's TCP_INFINITE_SSTHRESH.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// Lower bound of the window.
const MIN_PACKETS: u32 = 2;

/// Returns the bytes of full segments.
fn bytes(sk: &Sock<'_>, packets: u32) -> u64 {
    bytes_of(packets, sk.mss_bytes())
}

/// Returns a slow start threshold in bytes; `u64::MAX` if infinite.
fn threshold_bytes(sk: &Sock<'_>, packets: u32) -> u64 {
    match packets {
        INFINITE_SSTHRESH.. => u64::MAX,
        packets => bytes(sk, packets),
    }
}

#[inline(always)]
fn bytes_of(packets: u32, mss_bytes: u32) -> u64 {
    u64::from(packets).wrapping_mul(u64::from(mss_bytes))
}

/// Returns the full segments in `bytes`, rounded down.
fn packets(sk: &Sock<'_>, bytes: u64) -> u32 {
    packets_of(bytes, mss_bytes(sk))
}

#[inline(always)]
fn packets_of(bytes: u64, mss_bytes: u32) -> u32 {
    let packets = bytes / u64::from(mss_bytes.max(1));
    u32::try_from(packets).map_or(INFINITE_SSTHRESH, |n| n.min(INFINITE_SSTHRESH))
}

/// Returns whether `bytes` are `packets` full segments, rounded down, without a division.
#[inline(always)]
fn are_packets(bytes: u64, mss_bytes: u32, packets: u32) -> bool {
    bytes.wrapping_sub(bytes_of(packets, mss_bytes)) < u64::from(mss_bytes)
}

/// Returns the MSS; never 0, so that callers need no check.
#[inline(always)]
fn mss_bytes(sk: &Sock<'_>) -> u32 {
    sk.mss_bytes().max(1)
}

/// Returns the handshake's RTT. A minimum of exactly 1 ms comes from a retransmitted SYN, measured
/// by timestamps that tick in ms.
fn handshake_rtt_us(sk: &Sock<'_>) -> Option<u32> {
    const TIMESTAMP_TICK_US: u32 = 1_000;

    sk.min_rtt_us()
        .filter(|&rtt_us| sk.has_usec_timestamps() || rtt_us != TIMESTAMP_TICK_US)
}

/// Returns the marked or presumably marked packets of an ACK. In slow start an ACK with ECE counts
/// as all marked: the share of marks rises within a round trip.
#[cold]
#[inline(never)]
fn echoed(sk: &mut Sock<'_>, in_slow_start: bool, echo: Echo, acked: u32) -> u32 {
    let seed = MarkSpacing::seed(sk.mstamp_us(), sk.delivered());
    let mut spacing = MarkSpacing::of_bits(sk.kept());
    let marked = match echo {
        Echo::Clear => {
            if !in_slow_start {
                spacing.pass(acked, seed);
            }
            0
        }
        Echo::First => {
            spacing.end();
            1
        }
        Echo::Again => {
            spacing.end_at_once();
            spacing.estimate_marked(acked, seed).max(1)
        }
        Echo::Repeated => spacing.estimate_marked(acked, seed),
    };
    sk.keep(spacing.bits());
    match in_slow_start && echo != Echo::Clear {
        true => acked,
        false => marked.min(acked),
    }
}

/// Returns the input for an ACK with `marked` marked packets.
#[inline(always)]
fn ack(sk: &Sock<'_>, rs: &RateSample, marked: u32) -> Ack {
    // Called first, because it may call C: no value has to be saved over the call.
    let cwnd_limited = is_used(sk, rs);
    let acked = rs.acked_sacked();
    // Without a sample, or with a retransmitted packet's, the RTT may come from ms timestamps.
    let rtt_is_true =
        sk.has_usec_timestamps() || (rs.prior_mstamp_us() != 0 && !rs.is_retransmitted());
    let (delivered, interval_us) = rs.delivered().unwrap_or_default();
    let mss_bytes = mss_bytes(sk);
    Ack {
        now_us: sk.mstamp_us(),
        rtt_us: rs.rtt_us().filter(|_| rtt_is_true),
        is_rtt_of_host: rs.is_ack_delayed(),
        srtt_us: sk.srtt_us(),
        acked_bytes: bytes_of(acked, mss_bytes),
        marked_bytes: bytes_of(marked, mss_bytes),
        delivered_bytes: bytes_of(delivered, mss_bytes),
        interval_us: u32::try_from(interval_us).unwrap_or(u32::MAX),
        app_limited: rs.is_app_limited(),
        cwnd_limited,
        in_recovery: in_recovery(sk),
        prior_in_flight: rs.prior_in_flight(),
        mss_bytes,
    }
}

/// Returns whether the window is in use and may grow: it is full, or half is in flight and the path
/// limits the rate. A flow limited by the receiver's window or SO_MAX_PACING_RATE would learn
/// nothing of the path, and burst when the limit rises.
#[inline(always)]
fn is_used(sk: &Sock<'_>, rs: &RateSample) -> bool {
    let is_half_in_flight = rs.prior_in_flight() >= sk.snd_cwnd() / 2;
    (is_half_in_flight && !rs.is_app_limited()) || sk.is_cwnd_limited()
}

/// Applies the output for an ACK.
#[inline(always)]
fn finish<F: Controller>(
    sk: &mut Sock<'_>,
    flow: &mut F,
    rs: &RateSample,
    output: Option<Output>,
    mss_bytes: u32,
) {
    if let Some(output) = output {
        if apply(sk, &output, mss_bytes) {
            bound(sk.reborrow(), flow);
        }
    }
    if rs.losses() != 0 {
        allow_first(sk);
    }
    publish(sk, flow);
}

/// Lets the first retransmit of a recovery leave, although more than the window may be in flight.
#[cold]
#[inline(never)]
fn allow_first(sk: &mut Sock<'_>) {
    let first = sk.in_flight().saturating_add(1);
    if sk.ca_state() == State::Recovery && sk.prr_out() == 0 && sk.snd_cwnd() < first {
        sk.set_snd_cwnd(first);
    }
}

/// Limits the window to the socket's own bound.
#[cold]
#[inline(never)]
fn bound(sk: Sock<'_>, flow: &mut impl Controller) {
    let bound_bytes = bytes(&sk, sk.snd_cwnd_clamp());
    flow.change_window(|window| window.clamp(sk.mss_bytes(), bound_bytes));
}

fn in_flight_bytes(sk: &Sock<'_>) -> u64 {
    bytes(sk, sk.in_flight())
}

fn in_recovery(sk: &Sock<'_>) -> bool {
    matches!(sk.ca_state(), State::Recovery | State::Loss)
}

/// Applies the algorithm's decision. Returns whether the socket has a bound below its window. Most
/// ACKs change neither number of packets.
#[inline(always)]
fn apply(sk: &mut Sock<'_>, output: &Output, mss_bytes: u32) -> bool {
    let mut is_bounded = sk.snd_cwnd() > sk.snd_cwnd_clamp();
    if is_bounded || !are_packets(output.cwnd_bytes, mss_bytes, sk.snd_cwnd()) {
        is_bounded = sk.set_snd_cwnd(packets_of(output.cwnd_bytes, mss_bytes).max(MIN_PACKETS));
    }
    if !are_packets(output.ssthresh_bytes, mss_bytes, sk.snd_ssthresh()) {
        let ssthresh = packets_of(output.ssthresh_bytes, mss_bytes);
        sk.set_snd_ssthresh(ssthresh.max(MIN_PACKETS));
    }
    sk.set_pacing_rate_bytes(output.pacing_bytes_per_s);
    is_bounded
}

/// Sysctls net.NAME.*: the parameter table of an algorithm.
struct Sysctls<A>(PhantomData<A>);

impl<A: Algorithm> Sysctls<A> {
    const FILES: &'static [Param; MAX_PARAMS] = &live::files(A::ENTRY.params);
    const DIR_BYTES: &'static [u8; DIR_BYTES] = &sysctl_dir(A::ENTRY.name);
}

impl<A: Algorithm> sysctl::Params for Sysctls<A> {
    const DIR: &'static CStr = match CStr::from_bytes_until_nul(Self::DIR_BYTES) {
        Ok(dir) => dir,
        Err(_) => panic!("the name of an algorithm is too long"),
    };
    const PARAMS: &'static [Param] = Self::FILES.split_at(A::ENTRY.params.len()).0;
    const KEPT_FILE: Option<&'static CStr> = Some(c"shortest_rtt_us");
    const PROFILES: &'static [&'static CStr] = A::ENTRY.profiles;
}

/// Size of a sysctl folder's name with its NUL.
const DIR_BYTES: usize = 32;

/// Returns `net/NAME`, padded with zeroes. Bytewise: copy_from_slice() is const only from Rust
/// 1.87, and Linux takes 1.85.
const fn sysctl_dir(name: &CStr) -> [u8; DIR_BYTES] {
    const ABOVE: &[u8] = b"net/";
    let name = name.to_bytes();
    let mut dir = [0; DIR_BYTES];
    let mut at = 0;
    while at < ABOVE.len() + name.len() {
        dir[at] = match at < ABOVE.len() {
            true => ABOVE[at],
            false => name[at - ABOVE.len()],
        };
        at += 1;
    }
    dir
}

/// Declares the module of an [`Algorithm`] in the syntax of `module!`; `type` is the algorithm.
macro_rules! module_tcp_algorithm {
    (type: $algorithm:ty, $($words:tt)*) => {
        struct Module {
            _registration: $crate::kernel_api::deferred::Deferred<
                $crate::kernel_api::tcp::Registration<$crate::tcp_glue::Adapter<$algorithm>>,
            >,
        }

        impl kernel::Module for Module {
            fn init(_module: &'static kernel::ThisModule) -> kernel::error::Result<Self> {
                let register =
                    || $crate::kernel_api::tcp::Registration::new($crate::tcp_glue::Adapter::new()?);
                Ok(Module {
                    _registration: $crate::kernel_api::deferred::Deferred::new(register)?,
                })
            }
        }

        kernel::prelude::module! {
            type: Module,
            $($words)*
        }
    };
}
pub(crate) use module_tcp_algorithm;
