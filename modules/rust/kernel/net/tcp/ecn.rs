// SPDX-License-Identifier: GPL-2.0

//! ECN: negotiated mode, the sender's count of marks, and the receiver's echo.

use super::{
    bindings,
    info::notes::{CWR_BEGAN, CWR_BY_LOSS, HANDSHAKE, MARKS_OF_ACKS, REPEATS, UNSURE},
    AckFlags, Sock, State,
};

/// Negotiated kind of ECN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EcnMode {
    /// Not negotiated, or AccECN failed later.
    None,
    /// ECE is sticky, unless the receiver echoes each packet; see [`EceEcho`].
    Rfc3168,
    /// The peer counts CE packets.
    AccEcn,
}

/// Condition for echoing each packet's CE state in ECE, as DCTCP's receiver does (RFC 8257, section
/// 3.2), so that an RFC 3168 sender can count marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EceEcho {
    /// The kernel's own echo: ECE until CWR, or AccECN.
    Never,
    /// With RFC 3168's ECN; AccECN needs no such echo.
    Rfc3168,
    /// With AccECN, too, as in `tcp_dctcp`.
    Always,
}

/// Marks that an ACK reports.
#[derive(Clone, Copy)]
pub(crate) enum Marks {
    /// Delivered packets that carried CE.
    Counted(u32),
    /// Echo of an RFC 3168 receiver, see [`Sock::watch_repeats`].
    Echo(Echo),
}

/// ECE of a receiver that may repeat it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// No packet was marked.
    Clear,
    /// The first mark since the receiver saw CWR.
    First,
    /// [`Self::First`], for the second time in a row without an ACK without ECE in between.
    Again,
    /// Repeated ECE: the receiver has not seen CWR, and hides other marks.
    Repeated,
}

/// State of a receiver that may repeat ECE, above the lower bits of [`Sock::delivered_ce`].
#[derive(Clone, Copy)]
pub(super) struct Repeats(u32);

impl Repeats {
    /// Bits of `delivered_ce`; an ACK delivers fewer packets.
    const COUNT: u32 = (1 << 21) - 1;
    /// No ACK without ECE came before the last mark.
    const AGAIN: u32 = 1 << 21;
    /// Consecutive times that ECE ended before CWR can have arrived.
    const EARLY_SHIFT: u32 = 22;
    const MOST_EARLY: u32 = 3;
    /// The present CWR state began with ECE.
    const BY_ECE: u32 = 1 << 24;
    /// Seven bits for the caller.
    const KEPT_SHIFT: u32 = 25;

    fn early(self) -> u32 {
        (self.0 >> Self::EARLY_SHIFT) & Self::MOST_EARLY
    }

    fn with_early(self, early: u32) -> Self {
        let others = self.0 & !(Self::MOST_EARLY << Self::EARLY_SHIFT);
        Repeats(others | (early.min(Self::MOST_EARLY) << Self::EARLY_SHIFT))
    }

    fn is_by_ece(self) -> bool {
        self.0 & Self::BY_ECE != 0
    }

    fn with_by_ece(self, by_ece: bool) -> Self {
        let others = self.0 & !Self::BY_ECE;
        Repeats(others | if by_ece { Self::BY_ECE } else { 0 })
    }

    fn is_again(self) -> bool {
        self.0 & Self::AGAIN != 0
    }

    fn with_again(self, again: bool) -> Self {
        let others = self.0 & !Self::AGAIN;
        Repeats(others | if again { Self::AGAIN } else { 0 })
    }

    fn with_count(self, delivered_ce: u32) -> Self {
        Repeats(self.0 & !Self::COUNT | delivered_ce & Self::COUNT)
    }

    fn kept(self) -> u8 {
        (self.0 >> Self::KEPT_SHIFT) as u8
    }

    fn with_kept(self, bits: u8) -> Self {
        let others = self.0 & ((1 << Self::KEPT_SHIFT) - 1);
        Repeats(others | u32::from(bits) << Self::KEPT_SHIFT)
    }
}

impl Sock<'_> {
    /// Returns the negotiated kind of ECN; none before the SYN is answered.
    pub(crate) fn ecn_mode(&self) -> EcnMode {
        let flags = u32::from(read!(self, ecn_flags));
        match flags & (bindings::XDC_TCP_ECN_MODE_RFC3168 | bindings::XDC_TCP_ECN_MODE_ACCECN) {
            0 => EcnMode::None,
            bindings::XDC_TCP_ECN_MODE_RFC3168 => EcnMode::Rfc3168,
            bindings::XDC_TCP_ECN_MODE_ACCECN if !self.accecn_failed() => EcnMode::AccEcn,
            // Both bits: requested and not answered yet.
            _ => EcnMode::None,
        }
    }

    /// Returns whether one end cannot read the other's counters. The kernel then sends Not-ECT.
    fn accecn_failed(&self) -> bool {
        // SAFETY: The pointer is valid for reads of a whole `tcp_sock`, by the
        // type invariants. It makes no reference to the socket, which has the
        // callback's `data` in it.
        let mode = unsafe { bindings::tcp_sock::accecn_fail_mode_raw(self.as_tcp_sock()) };
        u32::from(mode) & bindings::XDC_TCP_ACCECN_ACE_FAIL != 0
    }

    /// Prepares the receiver's state before init().
    pub(super) fn start_ecn(&mut self) {
        let seen = match self.ecn_mode() {
            // The handshake's last ACK will be sent next, and is not marked.
            EcnMode::AccEcn if self.data_segs_out() == 0 && !self.is_accepting() => {
                self.acks_out().wrapping_add(1)
            }
            EcnMode::AccEcn => self.acks_out(),
            _ => self.rcv_nxt(),
        };
        self.head().seen.set(seen);
        if self.is_accepting() {
            self.head().set_note(HANDSHAKE);
        }
    }

    // The sender.

    /// Discards earlier marks: for init() and cwnd_event_tx_start(), not with [`EceEcho::Always`].
    /// The peer's AccECN counter may still lack marks of sent ACKs, so the next ACK's report counts
    /// as marks of data only beyond the number of those ACKs.
    pub(crate) fn restart_marks(&mut self) {
        self.set_marks_seen();
        let head = self.head();
        if self.ecn_mode() == EcnMode::AccEcn && head.seen.get() != self.acks_out() {
            head.set_note(MARKS_OF_ACKS);
        }
    }

    /// Assumes that an RFC 3168 receiver repeats ECE until CWR, until it proves otherwise. For
    /// init(), before [`Sock::restart_marks`].
    pub(crate) fn watch_repeats(&mut self) {
        if self.ecn_mode() == EcnMode::Rfc3168 {
            self.head().set_note(REPEATS);
        }
    }

    /// Returns seven bits that the caller stores with [`Marks::Echo`]; initially 0.
    pub(crate) fn kept(&self) -> u8 {
        Repeats(self.head().marks_seen.get()).kept()
    }

    /// Stores the bits of [`Sock::kept`].
    pub(crate) fn keep(&mut self, bits: u8) {
        let head = self.head();
        if head.notes() & REPEATS != 0 {
            let known = Repeats(head.marks_seen.get()).with_kept(bits);
            head.marks_seen.set(known.0);
        }
    }

    /// Returns the marks that the algorithm has not received.
    fn marks_unseen(&self) -> u32 {
        let head = self.head();
        let unseen = self.delivered_ce().wrapping_sub(head.marks_seen.get());
        match head.notes() & REPEATS {
            0 => unseen,
            _ => unseen & Repeats::COUNT,
        }
    }

    fn set_marks_seen(&mut self) {
        let delivered_ce = self.delivered_ce();
        let head = self.head();
        head.marks_seen.set(match head.notes() & REPEATS {
            0 => delivered_ce,
            _ => Repeats(head.marks_seen.get()).with_count(delivered_ce).0,
        });
    }

    /// Notes the start of state CWR: for set_state(). The cause is a loss (repaired by a tail loss
    /// probe, or dropped by the local queue) unless ECE raised the count of marks. For ECE on an ACK
    /// without deliveries, [`Sock::take_marks`] with 0 follows and decides.
    pub(crate) fn note_cwr(&mut self) {
        let is_unmarked = self.marks_unseen() == 0;
        let head = self.head();
        if is_unmarked && head.notes() & CWR_BY_LOSS == 0 {
            head.set_note(CWR_BY_LOSS | UNSURE);
        }
        if head.notes() & REPEATS != 0 {
            head.set_note(CWR_BEGAN);
        }
    }

    /// Notes the end of state CWR: for set_state(). An end before the packets of CWR are ACKed
    /// means that it began for a loss that a tail loss probe repaired, maybe after a mark.
    pub(crate) fn note_cwr_end(&mut self) {
        let high_seq = read!(self, high_seq);
        if self.snd_una().wrapping_sub(high_seq) as i32 <= 0 {
            let head = self.head();
            head.set_note(CWR_BY_LOSS);
            head.clear_notes(UNSURE);
            self.note_repaired();
        }
    }

    /// Notes a repaired loss: for set_state(). Its CWR may end the ECE of a later mark, which then
    /// proves nothing about the receiver.
    pub(crate) fn note_repaired(&mut self) {
        let head = self.head();
        if head.notes() & REPEATS != 0 {
            let known = Repeats(head.marks_seen.get()).with_early(0);
            head.marks_seen.set(known.0);
        }
    }

    /// Returns the marked packets among the `acked` packets of an ACK; further marks are of pure
    /// ACKs or duplicates. Calls `on_loss` for a loss of [`Sock::note_cwr`]. Falls back to Reno if
    /// AccECN failed after init(), as it can for a Fast Open server.
    #[inline(always)]
    pub(crate) fn take_marks(
        &mut self,
        acked: u32,
        flags: AckFlags,
        on_loss: impl FnOnce(&mut Self),
    ) -> Marks {
        let head = self.head();
        if head.has_notes() {
            let (marks, lost) = take_notes(self.reborrow(), acked, flags);
            if lost {
                on_loss(self);
            }
            return marks;
        }
        let delivered_ce = self.delivered_ce();
        let reported = delivered_ce.wrapping_sub(head.marks_seen.get());
        head.marks_seen.set(delivered_ce);
        Marks::Counted(reported.min(acked))
    }

    // The receiver.

    /// Echoes the CE state of a received packet. May send an ACK, for which the kernel may call
    /// this socket's callbacks (`tcp_enter_cwr` after a local drop) or BPF may change its
    /// congestion control. So the caller must hold no reference to the algorithm's data.
    pub(super) fn echo_ce(&mut self, wanted: EceEcho, ce: bool) {
        let is_wanted = match wanted {
            EceEcho::Never => false,
            EceEcho::Rfc3168 => self.ecn_mode() == EcnMode::Rfc3168,
            EceEcho::Always => true,
        };
        if !is_wanted || !self.head().is_live() {
            return;
        }
        let before = self.head().ce_state();
        if ce != before {
            // A delayed ACK acknowledges packets of the old state, so it is sent with that state.
            // The ACK of this packet follows at once.
            if self.ack_is_delayed() {
                self.set_ece(before);
                if !self.send_ack(self.head().seen.get()) {
                    return;
                }
            }
            self.ack_at_once();
        }
        self.head().seen.set(self.rcv_nxt());
        self.head().set_ce_state(ce);
        self.set_ece(ce);
    }

    /// Sends an ACK up to `rcv_nxt` now. Returns whether the socket still uses this module.
    fn send_ack(&mut self, rcv_nxt: u32) -> bool {
        let ops = read!(self, inet_conn.icsk_ca_ops);
        // SAFETY: `__tcp_send_ack` requires a locked TCP socket, which the
        // type invariants give. It may call back into this module, as
        // `echo_ce` says; no reference to data that they change is in use.
        // The wrapper has a reference on the module meanwhile.
        unsafe { bindings::xdc_tcp_send_ack(self.sk(), rcv_nxt) };
        read!(self, inet_conn.icsk_ca_ops) == ops && self.head().is_live()
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
}

/// [`Sock::take_marks`] with notes of earlier callbacks. Also returns whether there was a loss.
#[cold]
#[inline(never)]
fn take_notes(mut sk: Sock<'_>, acked: u32, flags: AckFlags) -> (Marks, bool) {
    let mut reported = sk.marks_unseen();
    sk.set_marks_seen();
    if acked == 0 {
        // A mark may have caused the note, except without ECE, or with AccECN, which reports marks
        // only with deliveries.
        if flags.has_ece() && sk.ecn_mode() != EcnMode::AccEcn && sk.head().notes() & UNSURE != 0 {
            sk.head().clear_notes(CWR_BY_LOSS);
        }
        sk.head().clear_notes(UNSURE);
        return (Marks::Counted(0), false);
    }
    let mut notes = sk.head().notes();
    if notes & HANDSHAKE != 0 {
        if sk.is_accepting() {
            notes &= !HANDSHAKE;
        } else if sk.ecn_mode() == EcnMode::None {
            sk.fall_back();
        }
    }
    sk.head().clear_notes(notes & !REPEATS);
    if notes & MARKS_OF_ACKS != 0 {
        let acks = sk.acks_out();
        let unreported = acks.wrapping_sub(sk.head().seen.get()) as i32;
        sk.head().seen.set(acks);
        // Data may have replaced the handshake's ACK.
        reported = reported.saturating_sub(unreported.max(0) as u32);
    }
    let marks = match notes & REPEATS {
        0 => Marks::Counted(reported.min(acked)),
        _ => Marks::Echo(take_echo(&mut sk, notes, flags.has_ece())),
    };
    (marks, notes & CWR_BY_LOSS != 0)
}

/// Returns the echo of a delivering ACK of a receiver that may repeat ECE. A receiver that echoes
/// each packet ends ECE before it can have seen CWR, which is sent after `high_seq`: in state CWR
/// no later byte is ACKed. A loss's CWR ends ECE as early.
fn take_echo(sk: &mut Sock<'_>, notes: u32, has_ece: bool) -> Echo {
    let mut known = Repeats(sk.head().marks_seen.get());
    let is_first = notes & (CWR_BEGAN | CWR_BY_LOSS) == CWR_BEGAN && has_ece;
    let is_again = is_first && known.is_by_ece();
    let is_twice = is_again && known.is_again();
    if is_first || !has_ece {
        known = known.with_again(is_again);
    }
    if notes & CWR_BEGAN != 0 {
        known = known.with_by_ece(is_first);
    }
    if !has_ece && known.is_by_ece() {
        // After a hole, CWR may have arrived.
        let is_early = sk.ca_state() == State::Cwr && read!(sk, sacked_out) == 0;
        known = known.with_early(match is_early {
            true => known.early().saturating_add(1),
            false => 0,
        });
        known = known.with_by_ece(false);
    }
    sk.head().marks_seen.set(known.0);
    if known.early() == Repeats::MOST_EARLY {
        sk.head().clear_notes(REPEATS);
        sk.set_marks_seen();
    }
    match (is_first, has_ece) {
        (true, _) if is_twice => Echo::Again,
        (true, _) => Echo::First,
        (false, true) => Echo::Repeated,
        (false, false) => Echo::Clear,
    }
}
