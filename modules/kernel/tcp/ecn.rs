// SPDX-License-Identifier: GPL-2.0

//! ECN: what the ends agreed on, the sender's count of marks, and the receiver's echo.

use super::{
    bindings,
    info::notes::{CWR_BEGAN, CWR_BY_LOSS, HANDSHAKE, MARKS_OF_ACKS, REPEATS, UNSURE},
    AckFlags, Sock, State,
};

/// How the two ends of a connection talk of ECN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EcnMode {
    /// Not negotiated, or AccECN failed since.
    None,
    /// ECE is sticky unless the receiver echoes each packet, see [`EceEcho`].
    Rfc3168,
    /// The peer counts CE packets for us.
    AccEcn,
}

/// Whether a receiver echoes the CE state of each packet in ECE, as DCTCP's
/// does (RFC 8257, section 3.2), so that an RFC 3168 sender can count marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EceEcho {
    /// The kernel's own answer: ECE until CWR, or AccECN.
    Never,
    /// Where RFC 3168's ECN was negotiated; AccECN needs no such echo.
    Rfc3168,
    /// With AccECN, too, as `tcp_dctcp` has it.
    Always,
}

/// What an ACK says of marks.
#[derive(Clone, Copy)]
pub(crate) enum Marks {
    /// Of the packets that it delivers, so many carried CE.
    Told(u32),
    /// All that a receiver of RFC 3168 tells, see [`Sock::watch_repeats`].
    Echo(Echo),
}

/// What an ACK of a receiver that may repeat ECE says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// No packet was marked.
    Clear,
    /// The first mark since the receiver saw CWR.
    First,
    /// The same, and for the second time in a row no ACK without ECE came since the one before.
    Again,
    /// ECE repeated: the receiver has not seen CWR, and does not tell of other marks.
    Repeated,
}

/// What is known of a receiver that may repeat ECE, above the lower bits of [`Sock::delivered_ce`].
#[derive(Clone, Copy)]
pub(super) struct Repeats(u32);

impl Repeats {
    /// Of `delivered_ce`; an ACK delivers fewer packets.
    const COUNT: u32 = (1 << 21) - 1;
    /// The last mark came without an ACK without ECE before it.
    const AGAIN: u32 = 1 << 21;
    /// ECE has ended before CWR can have arrived, so often in a row.
    const EARLY_SHIFT: u32 = 22;
    const MOST_EARLY: u32 = 3;
    /// The present state CWR began with ECE.
    const BY_ECE: u32 = 1 << 24;
    /// Seven bits of the caller.
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
    /// The negotiated kind of ECN: none before the SYN is answered.
    pub(crate) fn ecn_mode(&self) -> EcnMode {
        let flags = u32::from(read!(self, ecn_flags));
        match flags & (bindings::XDC_TCP_ECN_MODE_RFC3168 | bindings::XDC_TCP_ECN_MODE_ACCECN) {
            0 => EcnMode::None,
            bindings::XDC_TCP_ECN_MODE_RFC3168 => EcnMode::Rfc3168,
            bindings::XDC_TCP_ECN_MODE_ACCECN if !self.accecn_failed() => EcnMode::AccEcn,
            // Both bits: asked for, and not answered yet.
            _ => EcnMode::None,
        }
    }

    /// One end cannot read the counters of the other: the kernel sends Not-ECT from then on.
    fn accecn_failed(&self) -> bool {
        // SAFETY: The pointer is valid for reads of a whole `tcp_sock`, by the
        // type invariants. It makes no reference to the socket, which has the
        // callback's `data` in it.
        let mode = unsafe { bindings::tcp_sock::accecn_fail_mode_raw(self.as_tcp_sock()) };
        u32::from(mode) & bindings::XDC_TCP_ACCECN_ACE_FAIL != 0
    }

    /// Before init().
    pub(super) fn start_ecn(&mut self) {
        let seen = match self.ecn_mode() {
            // The handshake's last ACK is about to be sent, and is not marked.
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

    /// Marks count from now on: for init() and cwnd_event_tx_start().
    ///
    /// With AccECN the peer counts marks of pure ACKs, too. Those reported while nothing was
    /// outstanding are not about what is sent now. If the kernel has sent ACKs since, there may be
    /// marks of them that the peer has not reported yet: the first ACK of what is sent now will, and
    /// nothing tells these from marks of its own packets but their number. So it reports only what
    /// is more than these ACKs.
    ///
    /// Not with [`EceEcho::Always`], which needs the same word of the private area.
    pub(crate) fn restart_marks(&mut self) {
        self.set_marks_seen();
        let head = self.head();
        if self.ecn_mode() == EcnMode::AccEcn && head.seen.get() != self.acks_out() {
            head.set_note(MARKS_OF_ACKS);
        }
    }

    /// From now on a receiver of RFC 3168 is taken for one that repeats ECE until CWR, until it shows that it does not. For
    /// init(), before [`Sock::restart_marks`].
    pub(crate) fn watch_repeats(&mut self) {
        if self.ecn_mode() == EcnMode::Rfc3168 {
            self.head().set_note(REPEATS);
        }
    }

    /// Seven bits of the caller's, while [`Marks::Echo`] comes; 0 at first.
    pub(crate) fn kept(&self) -> u8 {
        Repeats(self.head().marks_seen.get()).kept()
    }

    /// For [`Sock::kept`].
    pub(crate) fn keep(&mut self, bits: u8) {
        let head = self.head();
        if head.notes() & REPEATS != 0 {
            let known = Repeats(head.marks_seen.get()).with_kept(bits);
            head.marks_seen.set(known.0);
        }
    }

    /// Marks of which the algorithm has not been told.
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

    /// The window is about to be reduced, in state CWR: for set_state().
    ///
    /// The kernel does this for ECE, for a loss that a tail loss probe repaired, and for a drop by
    /// the local queue. ECE raises the count of marks, unless it comes with an ACK that delivers
    /// nothing; then [`Sock::take_marks`] is called with 0 before anything else happens.
    pub(crate) fn note_cwr(&mut self) {
        let is_told = self.marks_unseen() == 0;
        let head = self.head();
        if is_told && head.notes() & CWR_BY_LOSS == 0 {
            head.set_note(CWR_BY_LOSS | UNSURE);
        }
        if head.notes() & REPEATS != 0 {
            head.set_note(CWR_BEGAN);
        }
    }

    /// State CWR ends: for set_state(). Before the packets are acknowledged for which it began, it does
    /// so only where it began for a loss that a tail loss probe repaired, maybe behind a mark.
    pub(crate) fn note_cwr_end(&mut self) {
        let high_seq = read!(self, high_seq);
        if self.snd_una().wrapping_sub(high_seq) as i32 <= 0 {
            let head = self.head();
            head.set_note(CWR_BY_LOSS);
            head.clear_notes(UNSURE);
            self.note_repaired();
        }
    }

    /// A loss is repaired: for set_state(). The CWR that was sent for it may end the ECE of a mark that came meanwhile, which
    /// then says nothing of the receiver.
    pub(crate) fn note_repaired(&mut self) {
        let head = self.head();
        if head.notes() & REPEATS != 0 {
            let known = Repeats(head.marks_seen.get()).with_early(0);
            head.marks_seen.set(known.0);
        }
    }

    /// How many of the `acked` packets that an ACK delivers were marked. An ACK reports the marks of
    /// these; what it reports beyond them are marks of pure ACKs or of packets that arrived twice.
    /// `on_loss` is called if a tail loss probe repaired a loss, or the local queue dropped a packet.
    ///
    /// Falls back to Reno if AccECN has failed since init(): a server of Fast Open has the last ACK
    /// of the handshake behind its first data.
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
        Marks::Told(reported.min(acked))
    }

    // The receiver.

    /// Echoes the CE state of a packet that has arrived.
    ///
    /// This may send an ACK, and with that the kernel may call the callbacks of
    /// this socket again: if the local qdisc drops the ACK, `tcp_enter_cwr`
    /// calls ssthresh() and set_state(). BPF programs that see the ACK may even
    /// give the socket another congestion control. So the caller must not have
    /// a reference to the algorithm's data.
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
            // A delayed ACK acknowledges packets of the old state. It is sent
            // with that state, and the ACK of this packet follows at once.
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

    /// Sends an ACK up to `rcv_nxt` now. Returns whether the socket is still ours.
    fn send_ack(&mut self, rcv_nxt: u32) -> bool {
        let ops = read!(self, inet_conn.icsk_ca_ops);
        // SAFETY: `__tcp_send_ack` requires a locked TCP socket, which the
        // type invariants give. It may call back into this module, as
        // `echo_ce` says; no reference to what the callbacks change is in use.
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

/// [`Sock::take_marks`], with what callbacks since the last ACK have left; and whether there was a loss.
#[cold]
#[inline(never)]
fn take_notes(mut sk: Sock<'_>, acked: u32, flags: AckFlags) -> (Marks, bool) {
    let mut reported = sk.marks_unseen();
    sk.set_marks_seen();
    if acked == 0 {
        // A mark may have made the note, but not with AccECN, where only an ACK that delivers tells of one.
        // Without ECE none has.
        if flags.has_ece() && sk.ecn_mode() != EcnMode::AccEcn && sk.head().notes() & UNSURE != 0 {
            sk.head().clear_notes(CWR_BY_LOSS);
        }
        sk.head().clear_notes(UNSURE);
        return (Marks::Told(0), false);
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
        // Data may have taken the place of the handshake's ACK.
        reported = reported.saturating_sub(unreported.max(0) as u32);
    }
    let marks = match notes & REPEATS {
        0 => Marks::Told(reported.min(acked)),
        _ => Marks::Echo(take_echo(&mut sk, notes, flags.has_ece())),
    };
    (marks, notes & CWR_BY_LOSS != 0)
}

/// What an ACK that delivers says, of a receiver that may repeat ECE.
///
/// One that tells of each packet ends ECE before it can have seen CWR, which is sent behind `high_seq`: while the state is CWR,
/// nothing behind that has been acknowledged. The CWR of a loss ends ECE as early; [`Sock::note_repaired`] forgets that.
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
        // Behind a hole CWR may have arrived.
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
