// SPDX-License-Identifier: GPL-2.0

//! Figures of a socket for `ss -ti`, TCP_CC_INFO and inet_diag.

use super::{bindings, Sock};
use crate::kernel_api::relaxed::RelaxedCell;
use core::{
    mem::{align_of, size_of},
    ptr::addr_of,
};
use kernel::prelude::*;

/// Figures for readers that do not hold the socket's lock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Info {
    /// Congestion estimate, scaled by [`Info::FRACTION_BITS`]; 1 = every packet is marked.
    pub(crate) fraction: u32,
    /// ACKed bytes of the present period with a mark, and in total.
    pub(crate) marked_bytes: u32,
    pub(crate) acked_bytes: u32,
    /// Figures for a [`DiagBlock`].
    pub(crate) own: OwnInfo,
}

impl Info {
    /// Scale of `fraction`.
    pub(crate) const FRACTION_BITS: u32 = 30;
}

/// Figures that only the algorithm interprets.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnInfo {
    pub(crate) words: [u32; 2],
    pub(crate) count: u16,
    pub(crate) flags: u8,
}

/// A type whose memory is copied to userspace.
///
/// # Safety
///
/// Implemented only for types without padding, so that no byte of the kernel's stack leaks.
pub(crate) unsafe trait Unpadded: Copy {}

// SAFETY: No bytes, and so no padding.
unsafe impl Unpadded for () {}

/// An inet_diag attribute of an algorithm, beside DCTCP's, which every algorithm here fills.
pub(crate) trait DiagBlock {
    /// Bits of `idiag_ext` that request the attribute.
    const REQUEST: u32;
    /// Number of the attribute.
    const ATTRIBUTE: u32;
    /// Content, no larger than `union tcp_cc_info`.
    type Block: Unpadded;

    /// Returns the block. `ce_state`: the last received packet carried CE.
    fn block(info: &Info, ce_state: bool) -> Self::Block;
}

/// The block of an algorithm without its own [`DiagBlock`].
pub(crate) struct NoDiagBlock;

impl DiagBlock for NoDiagBlock {
    const REQUEST: u32 = 0;
    const ATTRIBUTE: u32 = 0;
    type Block = ();

    fn block(_info: &Info, _ce_state: bool) {}
}

/// Head of a socket's private area. get_info() reads it under RCU only, even while another
/// congestion control takes over the area. Hence single words, valid for every bit pattern, and no
/// reference to data after them.
#[repr(C)]
pub(super) struct Head {
    /// [`LIVE`], [`CE_STATE`], [`notes`]; `flags` and `count` of [`OwnInfo`].
    status: RelaxedCell<u32>,
    /// Sender: `delivered_ce` as reported to the algorithm. With [`notes::REPEATS`] only its lower
    /// bits, and [`Repeats`](super::ecn::Repeats) above them.
    pub(super) marks_seen: RelaxedCell<u32>,
    /// With CE echo: RCV.NXT when the last packet arrived. Otherwise, with AccECN: number of sent
    /// ACKs whose marks are all reported.
    pub(super) seen: RelaxedCell<u32>,
    fraction: RelaxedCell<u32>,
    marked_bytes: RelaxedCell<u32>,
    acked_bytes: RelaxedCell<u32>,
    own_words: [RelaxedCell<u32>; 2],
}

/// Set by init(), unless the algorithm fell back.
const LIVE: u32 = 1 << 31;
/// The last received packet carried CE.
const CE_STATE: u32 = 1 << 30;
const FLAGS_SHIFT: u32 = 16;
/// `flags` and `count` of [`OwnInfo`].
const OWN: u32 = 0x00ff_ffff;

/// Notes of a callback for the next ACK.
pub(super) mod notes {
    /// The next ACK may report marks of pure ACKs.
    pub(crate) const MARKS_OF_ACKS: u32 = 1 << 29;
    /// State CWR began without a mark.
    pub(crate) const CWR_BY_LOSS: u32 = 1 << 28;

    /// init() ran before the handshake's last ACK was processed.
    pub(crate) const HANDSHAKE: u32 = 1 << 27;

    /// [`CWR_BY_LOSS`] may be due to a mark; the next ACK decides.
    pub(crate) const UNSURE: u32 = 1 << 26;

    /// The receiver may repeat ECE until CWR: each ACK is inspected.
    pub(crate) const REPEATS: u32 = 1 << 25;

    /// State CWR began since the last delivering ACK.
    pub(crate) const CWR_BEGAN: u32 = 1 << 24;

    pub(super) const ALL: u32 =
        MARKS_OF_ACKS | CWR_BY_LOSS | HANDSHAKE | UNSURE | REPEATS | CWR_BEGAN;
}

impl Head {
    #[inline(always)]
    pub(super) fn is_live(&self) -> bool {
        self.status.get() & LIVE != 0
    }

    pub(super) fn set_live(&self, live: bool) {
        let others = self.status.get() & !LIVE;
        self.status.set(others | if live { LIVE } else { 0 });
    }

    pub(super) fn ce_state(&self) -> bool {
        self.status.get() & CE_STATE != 0
    }

    pub(super) fn set_ce_state(&self, ce: bool) {
        let others = self.status.get() & !CE_STATE;
        self.status.set(others | if ce { CE_STATE } else { 0 });
    }

    /// Resets the head to its state before init().
    pub(super) fn clear(&self) {
        let Head {
            status,
            marks_seen,
            seen,
            fraction,
            marked_bytes,
            acked_bytes,
            own_words: [a, b],
        } = self;
        let ours = [status, marks_seen, seen];
        let shown = [fraction, marked_bytes, acked_bytes, a, b];
        for word in Iterator::chain(ours.iter(), &shown) {
            word.set(0);
        }
    }

    #[inline(always)]
    pub(super) fn has_notes(&self) -> bool {
        self.notes() != 0
    }

    #[inline(always)]
    pub(super) fn notes(&self) -> u32 {
        self.status.get() & notes::ALL
    }

    pub(super) fn set_note(&self, note: u32) {
        self.status.set(self.status.get() | note);
    }

    pub(super) fn clear_notes(&self, notes: u32) {
        self.status.set(self.status.get() & !notes);
    }

    fn own(&self) -> OwnInfo {
        let [a, b] = &self.own_words;
        let status = self.status.get();
        OwnInfo {
            words: [a.get(), b.get()],
            count: status as u16,
            flags: (status >> FLAGS_SHIFT) as u8,
        }
    }

    fn info(&self) -> Info {
        Info {
            fraction: self.fraction.get(),
            marked_bytes: self.marked_bytes.get(),
            acked_bytes: self.acked_bytes.get(),
            own: self.own(),
        }
    }
}

impl Sock<'_> {
    /// Publishes the marks, and no figures of the algorithm. `fraction` as in [`Info`].
    #[inline]
    pub(crate) fn publish_marks(&mut self, fraction: u32, marked_bytes: u32, acked_bytes: u32) {
        self.head().fraction.set(fraction);
        self.publish_bytes(marked_bytes, acked_bytes);
    }

    /// Publishes the figures that each ACK changes.
    #[inline(always)]
    pub(crate) fn publish_bytes(&mut self, marked_bytes: u32, acked_bytes: u32) {
        let head = self.head();
        head.marked_bytes.set(marked_bytes);
        head.acked_bytes.set(acked_bytes);
    }

    /// Publishes all figures.
    pub(crate) fn publish(&mut self, info: Info) {
        let head = self.head();
        let flags = u32::from(info.own.flags) << FLAGS_SHIFT;
        let others = head.status.get() & !OWN;
        head.status.set(others | flags | u32::from(info.own.count));
        let [a, b] = &head.own_words;
        let [new_a, new_b] = info.own.words;
        a.set(new_a);
        b.set(new_b);
        self.publish_marks(info.fraction, info.marked_bytes, info.acked_bytes);
    }

    /// Returns the last published figures of the algorithm; initially zero.
    #[inline(always)]
    pub(crate) fn published(&self) -> OwnInfo {
        self.head().own()
    }
}

/// Fills DCTCP's or the algorithm's info block.
///
/// # Safety
///
/// `sk` is a TCP socket that RCU or its lock keeps alive; `attr` and `info` are valid for writes.
/// The lock need not be held.
pub(super) unsafe fn fill_info<D: DiagBlock>(
    sk: *mut bindings::sock,
    ext: u32,
    attr: *mut c_int,
    info: *mut bindings::tcp_cc_info,
) -> usize {
    const {
        assert!(size_of::<D::Block>() <= size_of::<bindings::tcp_cc_info>());
        assert!(align_of::<D::Block>() <= align_of::<bindings::tcp_cc_info>());
    }
    // Older callers of inet_diag have no request bit for DCTCP's block: they request VEGASINFO and
    // inspect the answer.
    const DCTCP: u32 =
        1 << (bindings::INET_DIAG_DCTCPINFO - 1) | 1 << (bindings::INET_DIAG_VEGASINFO - 1);
    // TCP_CC_INFO requests everything, and expects DCTCP's.
    let wants_dctcp = ext & DCTCP != 0;
    let wants_own = ext & D::REQUEST != 0;
    if !wants_dctcp && !wants_own {
        return 0;
    }
    let ptr: *mut bindings::tcp_sock = sk.cast();
    // SAFETY: `sk` is alive by the safety requirements. `icsk_ca_priv` is at
    // least as large as `Head` and aligned to 8; `Head` consists of cells,
    // which allow any bit pattern and concurrent access.
    let head = unsafe { &*addr_of!((*ptr).inet_conn.icsk_ca_priv).cast::<Head>() };
    let is_live = head.is_live();
    let shown = head.info();
    if !wants_dctcp {
        if !is_live {
            return 0;
        }
        let block = D::block(&shown, head.ce_state());
        // SAFETY: `info` is valid for writes by the safety requirements; the
        // block fits the union in size and alignment, as asserted above.
        unsafe { info.cast::<D::Block>().write(block) };
        // SAFETY: `attr` is valid for writes by the safety requirements.
        unsafe { attr.write(D::ATTRIBUTE as c_int) };
        return size_of::<D::Block>();
    }
    // All zero after a fallback to Reno, as in `tcp_dctcp`.
    let mut dctcp = bindings::tcp_dctcp_info::default();
    if is_live {
        dctcp = bindings::tcp_dctcp_info {
            dctcp_enabled: 1,
            dctcp_ce_state: u16::from(head.ce_state()),
            // 1024 is 1.
            dctcp_alpha: shown.fraction >> (Info::FRACTION_BITS - 10),
            dctcp_ab_ecn: shown.marked_bytes,
            dctcp_ab_tot: shown.acked_bytes,
        };
    }
    // SAFETY: `info` is valid for writes by the safety requirements. It may be
    // uninitialised: as much of it is written as the caller is going to read.
    unsafe { info.cast::<bindings::tcp_dctcp_info>().write(dctcp) };
    // SAFETY: `attr` is valid for writes by the safety requirements.
    unsafe { attr.write(bindings::INET_DIAG_DCTCPINFO as c_int) };
    size_of::<bindings::tcp_dctcp_info>()
}
