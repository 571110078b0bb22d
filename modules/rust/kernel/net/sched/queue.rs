// SPDX-License-Identifier: GPL-2.0

//! The queue of a qdisc, under its root's lock.
//!
//! C header: `include/net/sch_generic.h`

use super::{
    super::bindings,
    packet::{DropReason, Packet},
};
use core::{
    marker::PhantomData,
    ptr::{self, addr_of_mut, NonNull},
};
use kernel::prelude::*;

/// Verdict of the tc filters.
pub(crate) enum Classified<'a> {
    /// No filter matches, or none is attached.
    No(Packet<'a>),
    /// A class id.
    Class(Packet<'a>, u32),
    /// Drop, by [`Queue::drop_filtered`].
    Drop(Packet<'a>),
    /// An action consumed the packet.
    Stolen(Verdict),
}

/// Outcome of an enqueue, returned only by functions that consume the packet. States the reason if
/// the packet is not queued; whether it is, and the parents' report, follow from the queue.
#[derive(Clone, Copy)]
pub(crate) struct Verdict(u32);

impl Verdict {
    const QUEUED: Self = Self(bindings::NET_XMIT_SUCCESS);
    const DROPPED: Self = Self(bindings::NET_XMIT_DROP);
    const CONGESTED: Self = Self(bindings::NET_XMIT_CN);
    const STOLEN: Self = Self(bindings::NET_XMIT_SUCCESS | bindings::__NET_XMIT_STOLEN);

    /// Converts the outcome for the parents, which count a packet only for NET_XMIT_SUCCESS.
    pub(super) fn to_raw(self, queued: bool) -> c_int {
        let raw = match (queued, self.0) {
            (true, _) => bindings::NET_XMIT_SUCCESS,
            // Another packet was dropped to make room.
            (false, bindings::NET_XMIT_SUCCESS) => bindings::NET_XMIT_CN,
            (false, raw) => raw,
        };
        raw as c_int
    }
}

/// Content of a queue as its parents count it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) packets: u32,
    pub(super) bytes: u32,
}

impl Backlog {
    /// Adds one packet.
    pub(super) fn plus(self, len_bytes: u32) -> Self {
        Self {
            packets: self.packets.wrapping_add(1),
            bytes: self.bytes.wrapping_add(len_bytes),
        }
    }

    /// Removes one packet.
    pub(super) fn minus(self, len_bytes: u32) -> Self {
        Self {
            packets: self.packets.wrapping_sub(1),
            bytes: self.bytes.wrapping_sub(len_bytes),
        }
    }
}

/// Returns the link field of a queued packet.
///
/// # Safety
///
/// `skb` is valid.
#[inline]
unsafe fn next_of(skb: *mut bindings::sk_buff) -> *mut *mut bindings::sk_buff {
    // SAFETY: By the safety requirements.
    unsafe { addr_of_mut!((*skb).__bindgen_anon_1.__bindgen_anon_1.next) }
}

/// Changes a counter that has lockless readers.
///
/// # Safety
///
/// `counter` is valid, and no other code writes to it meanwhile.
#[inline]
unsafe fn update<T: Copy>(counter: *mut T, f: impl FnOnce(T) -> T) {
    // SAFETY: By the safety requirements.
    unsafe { counter.write_volatile(f(*counter)) }
}

/// Packets of one qdisc in another order, stored in [`Qdisc::State`](super::Qdisc::State). They
/// count as queued, like those in the queue.
///
/// # Invariants
///
/// The packets from `head` to `tail` are linked, and ours; both are null if the queue is empty.
/// They were given to callbacks of `owner`.
pub(crate) struct PacketList {
    head: *mut bindings::sk_buff,
    tail: *mut bindings::sk_buff,
    owner: *mut bindings::Qdisc,
    packets: u32,
    bytes: u64,
}

// SAFETY: Packets have no thread of their own, and `owner` is compared only.
unsafe impl Send for PacketList {}

impl Default for PacketList {
    fn default() -> Self {
        // INVARIANT: Without packets.
        Self {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            owner: ptr::null_mut(),
            packets: 0,
            bytes: 0,
        }
    }
}

impl PacketList {
    /// Returns the bytes of the list, as [`Packet::len_bytes`] counts.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of packets.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the length of the first packet.
    #[inline]
    pub(crate) fn first_len_bytes(&self) -> Option<u32> {
        let skb = NonNull::new(self.head)?.as_ptr();
        // SAFETY: By the type invariants; the control block of a packet in a qdisc begins with a
        // `qdisc_skb_cb`.
        Some(unsafe { (*addr_of_mut!((*skb).cb).cast::<bindings::qdisc_skb_cb>()).pkt_len })
    }

    fn append(&mut self, skb: *mut bindings::sk_buff, len_bytes: u32) {
        // SAFETY: By the type invariants; `skb` is a packet that the caller gives up.
        unsafe {
            *next_of(skb) = ptr::null_mut();
            match NonNull::new(self.tail) {
                Some(last) => *next_of(last.as_ptr()) = skb,
                None => self.head = skb,
            }
        }
        self.tail = skb;
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len_bytes.into());
    }

    fn take(&mut self) -> Option<*mut bindings::sk_buff> {
        let skb = NonNull::new(self.head)?.as_ptr();
        // SAFETY: By the type invariants.
        unsafe {
            let next = next_of(skb);
            self.head = *next;
            *next = ptr::null_mut();
        }
        if self.head.is_null() {
            self.tail = ptr::null_mut();
        }
        Some(skb)
    }

    /// Frees all packets, in [`Qdisc::reset`](super::Qdisc::reset) or later, when no count includes
    /// them; returns their number.
    pub(crate) fn purge(&mut self) -> u32 {
        while let Some(skb) = self.take() {
            // SAFETY: By the type invariants the packet was ours, and no other code has it now.
            drop(unsafe { Packet::from_raw(skb) });
        }
        self.bytes = 0;
        core::mem::take(&mut self.packets)
    }
}

impl Drop for PacketList {
    fn drop(&mut self) {
        self.purge();
    }
}

/// A qdisc whose queue the caller has locked, for the time of a callback.
///
/// # Invariants
///
/// `sch` is alive and its root's lock is held for `'a`, or no other code has it any more. Its
/// private area begins with an initialised `struct xdc_qdisc`. `to_free` is null in dequeue and
/// peek, else the list of enqueue's caller.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    sch: NonNull<bindings::Qdisc>,
    to_free: *mut *mut bindings::sk_buff,
    _callback: PhantomData<&'a mut ()>,
}

impl<'a> Queue<'a> {
    /// # Safety
    ///
    /// `sch` is not null, and both are as the type invariants say.
    #[inline]
    pub(super) unsafe fn new(
        sch: *mut bindings::Qdisc,
        to_free: *mut *mut bindings::sk_buff,
    ) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            // SAFETY: By the safety requirements.
            sch: unsafe { NonNull::new_unchecked(sch) },
            to_free,
            _callback: PhantomData,
        }
    }

    /// Returns the qdisc's handle, whose minor number is 0.
    #[inline]
    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { (*self.sch.as_ptr()).handle }
    }

    /// Returns the qdisc for read access by C.
    pub(in super::super) fn as_ptr(&self) -> *const bindings::Qdisc {
        self.sch.as_ptr()
    }

    /// Returns C's part of the private area.
    fn c(&self) -> *mut bindings::xdc_qdisc {
        // SAFETY: By the type invariants `sch` is valid.
        unsafe { addr_of_mut!((*self.sch.as_ptr()).privdata) }.cast()
    }

    /// Appends a packet to the queue: `qdisc_enqueue_tail()`, reimplemented because the call into C
    /// would double the cost.
    #[inline]
    pub(crate) fn push(self, packet: Packet<'a>) -> Verdict {
        let bytes = packet.len_bytes();
        let (sch, skb) = (self.sch.as_ptr(), packet.into_raw());
        // SAFETY: By the type invariants; the queue owns the packet now.
        unsafe {
            let list = addr_of_mut!((*sch).q);
            match NonNull::new((*list).tail) {
                Some(last) => {
                    *next_of(skb) = ptr::null_mut();
                    *next_of(last.as_ptr()) = skb;
                }
                None => (*list).head = skb,
            }
            (*list).tail = skb;
            update(addr_of_mut!((*list).qlen), |n| n.wrapping_add(1));
            update(addr_of_mut!((*sch).qstats.backlog), |n| {
                n.wrapping_add(bytes)
            });
        }
        Verdict::QUEUED
    }

    /// Removes the first packet of the queue: `__qdisc_dequeue_head()`.
    #[inline]
    pub(crate) fn pop(self) -> Option<Packet<'a>> {
        let sch = self.sch.as_ptr();
        // SAFETY: By the type invariants; the queue gives the packet up.
        unsafe {
            let list = addr_of_mut!((*sch).q);
            let packet = Packet::from_raw((*list).head)?;
            let next = next_of(packet.skb.as_ptr());
            (*list).head = *next;
            if (*list).head.is_null() {
                (*list).tail = ptr::null_mut();
            }
            *next = ptr::null_mut();
            update(addr_of_mut!((*list).qlen), |n| n.wrapping_sub(1));
            update(addr_of_mut!((*sch).qstats.backlog), |n| {
                n.wrapping_sub(packet.len_bytes())
            });
            Some(packet)
        }
    }

    /// Appends a packet to a list of this qdisc.
    #[inline]
    pub(crate) fn push_to(self, list: &mut PacketList, packet: Packet<'a>) -> Verdict {
        let bytes = packet.len_bytes();
        let sch = self.sch.as_ptr();
        // A list has the packets of one qdisc; another's count would be wrong.
        if list.head.is_null() {
            list.owner = sch;
        } else if list.owner != sch {
            return self.drop_packet(packet, DropReason::Other);
        }
        // INVARIANT: The packet was given to a callback of `owner`.
        list.append(packet.into_raw(), bytes);
        // SAFETY: By the type invariants; only callbacks under the lock write to these.
        unsafe {
            update(addr_of_mut!((*sch).q.qlen), |n| n.wrapping_add(1));
            update(addr_of_mut!((*sch).qstats.backlog), |n| {
                n.wrapping_add(bytes)
            });
        }
        Verdict::QUEUED
    }

    /// Removes the first packet of a list of this qdisc.
    #[inline]
    pub(crate) fn pop_from(self, list: &mut PacketList) -> Option<Packet<'a>> {
        let sch = self.sch.as_ptr();
        if list.owner != sch {
            return None;
        }
        let skb = list.take()?;
        // SAFETY: By the invariants of the list the packet is ours, and of this qdisc.
        let packet = unsafe { Packet::from_raw_unchecked(skb) };
        let bytes = packet.len_bytes();
        list.packets = list.packets.wrapping_sub(1);
        list.bytes = list.bytes.wrapping_sub(bytes.into());
        // SAFETY: By the type invariants; only callbacks under the lock write to these.
        unsafe {
            update(addr_of_mut!((*sch).q.qlen), |n| n.wrapping_sub(1));
            update(addr_of_mut!((*sch).qstats.backlog), |n| {
                n.wrapping_sub(bytes)
            });
        }
        Some(packet)
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { (*self.sch.as_ptr()).q.head.is_null() }
    }

    /// Drops a packet that is not, or no longer, in the queue.
    pub(crate) fn drop_packet(self, packet: Packet<'a>, reason: DropReason) -> Verdict {
        self.count_disposed();
        let (sch, skb) = (self.sch.as_ptr(), packet.into_raw());
        if self.to_free.is_null() {
            // SAFETY: By the type invariants; we give up the packet.
            unsafe { bindings::xdc_qdisc_dequeue_drop(skb, sch, reason.to_raw()) }
        } else {
            // SAFETY: By the type invariants; we give up the packet.
            unsafe { bindings::xdc_qdisc_drop(skb, sch, self.to_free, reason.to_raw()) }
        }
        match reason {
            DropReason::Congested => Verdict::CONGESTED,
            DropReason::Overlimit | DropReason::Other => Verdict::DROPPED,
        }
    }

    /// Drops a packet for a filter, with the filter's reason.
    pub(crate) fn drop_filtered(self, packet: Packet<'a>) -> Verdict {
        if self.to_free.is_null() {
            return self.drop_packet(packet, DropReason::Other);
        }
        self.count_disposed();
        // SAFETY: By the type invariants; we give up the packet.
        unsafe {
            bindings::xdc_qdisc_drop_filtered(packet.into_raw(), self.sch.as_ptr(), self.to_free)
        }
        Verdict::DROPPED
    }

    /// Counts a packet that left the qdisc and is in its statistics.
    fn count_disposed(self) {
        // SAFETY: By the type invariants; only callbacks under the lock use it.
        unsafe { update(addr_of_mut!((*self.c()).disposed), |n| n.wrapping_add(1)) }
    }

    /// Counts an "overlimits" event of `tc -s`: the shaper delayed a packet, or the queue was full.
    #[inline]
    pub(crate) fn count_overlimit(self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_qdisc_overlimit(self.sch.as_ptr()) }
    }

    /// Returns whether the transmit queue accepts packets. Dequeue is called when it does again.
    #[inline]
    pub(crate) fn can_send(self, queue: u16) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_qdisc_can_send(self.sch.as_ptr(), queue) }
    }

    /// Schedules a dequeue at `at_ns` of [`now_ns`](super::now_ns).
    #[inline]
    pub(crate) fn schedule_watchdog(self, at_ns: u64) {
        // SAFETY: By the type invariants C has initialised the watchdog.
        unsafe {
            bindings::qdisc_watchdog_schedule_range_ns(addr_of_mut!((*self.c()).watchdog), at_ns, 0)
        }
    }

    /// Runs the tc filters of the qdisc. In enqueue only: elsewhere none matches.
    #[inline]
    pub(crate) fn classify(self, packet: Packet<'a>) -> Classified<'a> {
        if self.to_free.is_null() {
            return Classified::No(packet);
        }
        let mut class = 0;
        // SAFETY: By the type invariants; enqueue runs in a BH RCU section.
        let action = unsafe {
            bindings::xdc_qdisc_classify(packet.skb.as_ptr(), self.sch.as_ptr(), &mut class)
        };
        match action {
            ..0 => Classified::No(packet),
            _ => match action as u32 {
                bindings::TC_ACT_STOLEN | bindings::TC_ACT_QUEUED | bindings::TC_ACT_TRAP => {
                    self.count_disposed();
                    packet.consume();
                    Classified::Stolen(Verdict::STOLEN)
                }
                bindings::TC_ACT_SHOT => Classified::Drop(packet),
                _ => Classified::Class(packet, class),
            },
        }
    }

    /// Counts a packet that leaves: `qdisc_bstats_update()`.
    #[inline]
    pub(super) fn count_sent(self, packet: &Packet<'_>) {
        // SAFETY: By the type invariants; on the 64-bit machines that we are
        // built for, readers of these counters need no more.
        unsafe {
            let stats = addr_of_mut!((*self.sch.as_ptr()).bstats);
            update(addr_of_mut!((*stats).bytes.v.a.a.counter), |n| {
                n.wrapping_add(packet.len_bytes().into())
            });
            update(addr_of_mut!((*stats).packets.v.a.a.counter), |n| {
                n.wrapping_add((*packet.raw_cb()).pkt_segs.into())
            });
        }
    }

    /// Returns the present content of the queue.
    #[inline]
    pub(super) fn backlog(self) -> Backlog {
        let sch = self.sch.as_ptr();
        Backlog {
            // SAFETY: `sch` is valid by the type invariants, and no other code writes this field.
            packets: unsafe { (*sch).q.qlen },
            // SAFETY: As above.
            bytes: unsafe { (*sch).qstats.backlog },
        }
    }

    /// Reports missing packets to the parents. `expected` is their count after the callback
    /// returns. `missing` packets were given or removed, and are neither queued nor returned; those
    /// that the discipline did not drop itself are counted as dropped.
    #[cold]
    pub(super) fn settle(self, expected: Backlog, missing: u32) {
        let sch = self.sch.as_ptr();
        // SAFETY: By the type invariants; only callbacks under the lock use it.
        let disposed = unsafe { (*self.c()).disposed };
        // SAFETY: As above.
        unsafe { (*self.c()).disposed = 0 };
        if missing > disposed {
            // SAFETY: By the type invariants; under the lock no other code writes to it.
            unsafe {
                update(addr_of_mut!((*sch).qstats.drops), |n| {
                    n.wrapping_add(missing.wrapping_sub(disposed))
                })
            }
        }
        let now = self.backlog();
        if now != expected {
            // SAFETY: By the type invariants, with the root's lock held.
            unsafe {
                bindings::qdisc_tree_reduce_backlog(
                    sch,
                    expected.packets.wrapping_sub(now.packets) as c_int,
                    expected.bytes.wrapping_sub(now.bytes) as c_int,
                )
            }
        }
    }

    /// Returns whether dequeue must return the packet that it removed: it was the last one, and
    /// some parents take "none" for the end of all their classes.
    pub(crate) fn must_give(self) -> bool {
        // SAFETY: By the type invariants; it is written before the first callback.
        self.is_empty() && unsafe { (*self.c()).is_child }
    }

    /// Returns the peeked packet.
    pub(super) fn peeked(self) -> *mut bindings::sk_buff {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_qdisc_peeked(self.sch.as_ptr()) }
    }

    /// Stores a dequeued packet for the next dequeue; it still counts as queued.
    pub(super) fn keep_peeked(self, packet: Packet<'a>) -> *mut bindings::sk_buff {
        let skb = packet.into_raw();
        // SAFETY: By the type invariants; we give up the packet.
        unsafe { bindings::xdc_qdisc_keep_peeked(self.sch.as_ptr(), skb) }
        skb
    }
}
