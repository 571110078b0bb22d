// SPDX-License-Identifier: GPL-2.0

//! Packets: `struct sk_buff` as a qdisc sees it.
//!
//! C headers: `include/linux/skbuff.h`, `include/net/sch_generic.h`

use super::super::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{self, addr_of_mut, NonNull},
};

/// Cause of a drop, for the drop monitor.
#[derive(Clone, Copy)]
pub(crate) enum DropReason {
    /// No room.
    Overlimit,
    /// Congestion signal to the sender.
    Congested,
    /// Any other cause, such as a filter's verdict.
    Other,
}

impl DropReason {
    pub(super) fn to_raw(self) -> bindings::qdisc_drop_reason {
        match self {
            Self::Overlimit => bindings::QDISC_DROP_OVERLIMIT,
            Self::Congested => bindings::QDISC_DROP_CONGESTED,
            Self::Other => bindings::QDISC_DROP_GENERIC,
        }
    }
}

/// Flow of a packet: `key` of addresses and ports, never 0; `daddr`, with IPv4 mapped to IPv6;
/// `is_data`, not 0 for payload without SYN.
pub(crate) use bindings::xdc_skb_flow as Flow;

/// Outcome of setting CE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ce {
    /// The packet was ECT and is CE now.
    Marked,
    /// The packet was CE.
    Already,
    /// The packet is not ECT, no IP, or cannot be written to.
    NotEct,
}

/// A packet during one callback: it can be queued or dropped, but not stored.
/// [`Queue::drop_packet`](super::Queue::drop_packet) sets a reason; a packet that is just dropped
/// counts as dropped, too.
///
/// # Invariants
///
/// We own `skb`, and it is on no list. It was given to the callback, or taken from the queue of the
/// same qdisc.
pub(crate) struct Packet<'a> {
    pub(super) skb: NonNull<bindings::sk_buff>,
    _callback: PhantomData<&'a mut ()>,
}

impl Packet<'_> {
    /// # Safety
    ///
    /// The caller gives up ownership of `skb`, if it is not null. It is on no
    /// list, and of the qdisc whose callback lasts for the lifetime.
    #[inline]
    pub(super) unsafe fn from_raw(skb: *mut bindings::sk_buff) -> Option<Self> {
        // INVARIANT: By the safety requirements.
        NonNull::new(skb).map(|skb| Self {
            skb,
            _callback: PhantomData,
        })
    }

    /// # Safety
    ///
    /// As for [`Self::from_raw`]; `skb` is not null.
    #[inline]
    pub(super) unsafe fn from_raw_unchecked(skb: *mut bindings::sk_buff) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            // SAFETY: By the safety requirements.
            skb: unsafe { NonNull::new_unchecked(skb) },
            _callback: PhantomData,
        }
    }

    pub(super) fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).skb.as_ptr()
    }

    /// Returns the length on the wire: by the root's size table if it has one (`tc ... stab`),
    /// except for a segment of a split packet.
    #[inline]
    pub(crate) fn len_bytes(&self) -> u32 {
        // SAFETY: By the type invariants; the control block of a packet in a
        // qdisc begins with a `qdisc_skb_cb`.
        unsafe { (*self.raw_cb()).pkt_len }
    }

    /// Returns the discipline's memory for a queued packet.
    // The last byte, because a parent may use the first ones, as sfb does.
    #[inline]
    pub(crate) fn cb(&mut self) -> &mut u8 {
        const LAST: usize = bindings::QDISC_CB_PRIV_LEN as usize - 1;
        // SAFETY: As above; `data` belongs to the qdisc that has the packet.
        unsafe { &mut (*self.raw_cb()).data[LAST] }
    }

    pub(super) fn raw_cb(&self) -> *mut bindings::qdisc_skb_cb {
        // SAFETY: By the type invariants.
        unsafe { addr_of_mut!((*self.skb.as_ptr()).cb) }.cast()
    }

    /// Returns SO_PRIORITY, or its replacement by a filter or the TOS.
    #[inline]
    pub(crate) fn priority(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_priority(self.skb.as_ptr()) }
    }

    /// Returns DSCP and ECN of an IP packet.
    #[inline]
    pub(crate) fn dsfield(&self) -> Option<u8> {
        // SAFETY: By the type invariants.
        let dsfield = unsafe { bindings::xdc_skb_dsfield(self.skb.as_ptr()) };
        u8::try_from(dsfield).ok()
    }

    /// Returns the packet for read access by C.
    pub(in super::super) fn as_ptr(&self) -> *const bindings::sk_buff {
        self.skb.as_ptr()
    }

    /// Sets CE if the packet is ECT.
    #[inline]
    pub(crate) fn set_ce(&mut self) -> Ce {
        // SAFETY: By the type invariants.
        match unsafe { bindings::xdc_skb_set_ce(self.skb.as_ptr()) } {
            bindings::XDC_ECT_TO_CE => Ce::Marked,
            bindings::XDC_ALREADY_CE => Ce::Already,
            _ => Ce::NotEct,
        }
    }

    /// Frees a packet that is not lost, because its content is stored elsewhere.
    pub(super) fn consume(self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_consume(self.into_raw()) }
    }

    /// Returns whether the packet has several segments, as counted by the stack before any qdisc.
    #[inline]
    pub(super) fn has_segments(&self) -> bool {
        // SAFETY: By the type invariants; as for `len_bytes`.
        unsafe { (*self.raw_cb()).pkt_segs != 1 }
    }

    /// Returns whether the packet can be split into segments.
    pub(super) fn is_gso(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_is_gso(self.skb.as_ptr()) }
    }

    /// Sets the device's transmit queue; a bond has a slave for it.
    #[inline]
    pub(crate) fn set_queue_mapping(&mut self, queue: u16) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_set_queue_mapping(self.skb.as_ptr(), queue) }
    }

    /// Returns the packet's TCP flow; `seed` makes the key unpredictable, and without one there is no key.
    #[inline]
    pub(crate) fn flow(&self, seed: Option<u64>) -> Option<Flow> {
        let mut flow = Flow::default();
        let seed = seed.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: By the type invariants; C reads `seed`, if it is one, and writes to `flow`, which is ours.
        unsafe { bindings::xdc_skb_flow(self.skb.as_ptr(), seed, &mut flow) }.then_some(flow)
    }

    /// Returns whether the packet is a TCP ACK without payload.
    #[inline]
    pub(crate) fn is_pure_ack(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_is_pure_ack(self.skb.as_ptr()) }
    }
}

impl Drop for Packet<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe {
            bindings::sk_skb_reason_drop(
                ptr::null_mut(),
                self.skb.as_ptr(),
                DropReason::Other.to_raw(),
            )
        }
    }
}
