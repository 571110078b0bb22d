// SPDX-License-Identifier: GPL-2.0

//! The callbacks of a [`Qdisc`] for C.

use super::{
    bindings, Backlog, Extack, Link, Message, Nest, Packet, Qdisc, Queue, RtnlQdisc, Verdict,
};
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomData,
    mem::{size_of, MaybeUninit},
    ptr::{self, addr_of, addr_of_mut},
};
use kernel::{error::to_result, prelude::*, types::Opaque};

/// The private area of a qdisc.
///
/// All zeroes, as the kernel allocates it, is valid: `live` is false.
#[repr(C)]
pub(super) struct Private<T: Qdisc> {
    c: Opaque<bindings::xdc_qdisc>,
    /// Set by init() when it has filled the following fields. Written only while the qdisc is not
    /// visible.
    pub(super) live: bool,
    shared: MaybeUninit<T>,
    rtnl: UnsafeCell<MaybeUninit<T::Rtnl>>,
    pub(super) state: UnsafeCell<MaybeUninit<T::State>>,
}

impl<T: Qdisc> Private<T> {
    /// # Safety
    ///
    /// `sch` is a qdisc of `T`.
    #[inline]
    pub(super) unsafe fn of(sch: *mut bindings::Qdisc) -> *mut Self {
        // SAFETY: By the safety requirements.
        unsafe { addr_of_mut!((*sch).privdata) }.cast()
    }

    /// # Safety
    ///
    /// `sch` is a qdisc of `T` that is `live` for `'a`.
    #[inline]
    pub(super) unsafe fn shared<'a>(sch: *mut bindings::Qdisc) -> &'a T {
        // SAFETY: By the safety requirements.
        unsafe { (*addr_of!((*Self::of(sch)).shared)).assume_init_ref() }
    }

    /// # Safety
    ///
    /// `sch` is a qdisc of `T` that is `live`, RTNL is held, and no other reference to it exists
    /// for `'a`.
    #[inline]
    pub(super) unsafe fn rtnl<'a>(sch: *mut bindings::Qdisc) -> &'a mut T::Rtnl {
        // SAFETY: By the safety requirements.
        unsafe { (*(*addr_of!((*Self::of(sch)).rtnl)).get()).assume_init_mut() }
    }

    /// # Safety
    ///
    /// `sch` is a qdisc of `T` that is `live` and locked for `'a`.
    #[inline]
    pub(super) unsafe fn state<'a>(sch: *mut bindings::Qdisc) -> &'a mut T::State {
        // SAFETY: By the safety requirements.
        unsafe { (*(*addr_of!((*Self::of(sch)).state)).get()).assume_init_mut() }
    }
}

/// Tables of a discipline for C.
///
/// # Invariants
///
/// `ops` of a qdisc that calls a thunk of [`VTable<T>`] is the first field.
#[repr(C)]
pub(super) struct Ops<T: Qdisc> {
    pub(super) ops: Opaque<bindings::Qdisc_ops>,
    pub(super) module: T::Module,
}

impl<T: Qdisc> Ops<T> {
    /// # Safety
    ///
    /// `sch` is a qdisc of `T` for `'a`.
    pub(super) unsafe fn module<'a>(sch: *mut bindings::Qdisc) -> &'a T::Module {
        // SAFETY: By the safety requirements and the type invariants.
        unsafe { &(*(*sch).ops.cast::<Self>()).module }
    }
}

/// Callbacks for C.
pub(super) struct VTable<T>(PhantomData<T>);

impl<T: Qdisc> VTable<T> {
    /// # Safety
    ///
    /// Called by C only, under RTNL, as the first callback of a qdisc.
    pub(super) unsafe extern "C" fn init(
        sch: *mut bindings::Qdisc,
        options: *mut bindings::nlattr,
        extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        let result = (|| {
            // SAFETY: By the safety requirements.
            unsafe {
                to_result(bindings::xdc_qdisc_init(sch, extack))?;
                let (shared, rtnl, state) = T::init(
                    Ops::<T>::module(sch),
                    &mut RtnlQdisc::new(sch),
                    Nest::from_raw(options),
                    &Extack::from_raw(extack),
                )?;
                let private = Private::<T>::of(sch);
                (*private).shared.write(shared);
                (*private).rtnl.get_mut().write(rtnl);
                (*private).state.get_mut().write(state);
                (*private).live = true;
            }
            Ok(())
        })();
        result.map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, for a qdisc whose init() succeeded.
    pub(super) unsafe extern "C" fn change(
        sch: *mut bindings::Qdisc,
        options: *mut bindings::nlattr,
        extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let result = unsafe {
            Private::<T>::shared(sch).change(
                Ops::<T>::module(sch),
                Private::<T>::rtnl(sch),
                &mut RtnlQdisc::new(sch),
                Nest::from_raw(options),
                &Extack::from_raw(extack),
            )
        };
        result.map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// Called by C only, last of all, after an init() that may have failed.
    pub(super) unsafe extern "C" fn destroy(sch: *mut bindings::Qdisc) {
        // SAFETY: By the safety requirements no other code has the qdisc, once
        // the watchdog is stopped.
        unsafe {
            bindings::xdc_qdisc_destroy(sch);
            let private = Private::<T>::of(sch);
            if (*private).live {
                Private::<T>::shared(sch).destroy(
                    Ops::<T>::module(sch),
                    Private::<T>::rtnl(sch),
                    Private::<T>::state(sch),
                );
                (*private).live = false;
                (*private).state.get_mut().assume_init_drop();
                (*private).rtnl.get_mut().assume_init_drop();
                (*private).shared.assume_init_drop();
            }
        }
    }

    /// # Safety
    ///
    /// Called by C only, with the root's lock held, for a live qdisc.
    pub(super) unsafe extern "C" fn enqueue(
        skb: *mut bindings::sk_buff,
        sch: *mut bindings::Qdisc,
        to_free: *mut *mut bindings::sk_buff,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let shared = unsafe { Private::<T>::shared(sch) };
        // SAFETY: By the safety requirements.
        let state = unsafe { Private::<T>::state(sch) };
        // SAFETY: By the safety requirements; `sch` is not null.
        let queue = unsafe { Queue::new(sch, to_free) };
        // SAFETY: By the safety requirements C gives up a packet.
        let packet = unsafe { Packet::from_raw_unchecked(skb) };
        if packet.has_segments() && T::splits_segments(state) {
            return Self::enqueue_segments(shared, state, queue, packet);
        }
        let (before, len_bytes) = (queue.backlog(), packet.len_bytes());
        let verdict = shared.enqueue(state, queue, packet);
        // One more packet can only be the new one: no other is missing.
        if queue.backlog().packets == before.packets.wrapping_add(1) {
            return verdict.to_raw(true);
        }
        Self::settle_enqueue(queue, before, len_bytes, 1, verdict)
    }

    /// Settles an enqueue that did not just append a packet. The parents are about to count one
    /// packet of `len_bytes`, which the discipline got as `given` packets.
    #[cold]
    pub(super) fn settle_enqueue(
        queue: Queue<'_>,
        before: Backlog,
        len_bytes: u32,
        given: u32,
        verdict: Verdict,
    ) -> c_int {
        let more = queue.backlog().packets.wrapping_sub(before.packets);
        let queued = more as i32 > 0;
        let expected = if queued {
            before.plus(len_bytes)
        } else {
            before
        };
        queue.settle(expected, given.wrapping_sub(more));
        verdict.to_raw(queued)
    }

    /// Enqueues the segments of a packet one by one.
    #[inline(never)]
    pub(super) fn enqueue_segments<'a>(
        shared: &T,
        state: &mut T::State,
        queue: Queue<'a>,
        packet: Packet<'a>,
    ) -> c_int {
        let (before, len_bytes) = (queue.backlog(), packet.len_bytes());
        if !packet.is_gso() {
            let verdict = shared.enqueue(state, queue, packet);
            return Self::settle_enqueue(queue, before, len_bytes, 1, verdict);
        }
        // SAFETY: We own the packet.
        let mut list = unsafe { bindings::xdc_skb_segments(packet.skb.as_ptr()) };
        if list.is_null() {
            let verdict = shared.drop_whole(state, queue, packet);
            return Self::settle_enqueue(queue, before, len_bytes, 1, verdict);
        }
        packet.consume();
        let mut given = 0u32;
        let mut last = None;
        // SAFETY: We own the list, and C removes the returned packet from it.
        let mut next = || unsafe { Packet::from_raw(bindings::xdc_skb_next_segment(&mut list)) };
        while let Some(segment) = next() {
            given = given.wrapping_add(1);
            last = Some(shared.enqueue(state, queue, segment));
        }
        match last {
            Some(verdict) => Self::settle_enqueue(queue, before, len_bytes, given, verdict),
            // A list that is not null has a segment.
            None => bindings::NET_XMIT_DROP as c_int,
        }
    }

    /// # Safety
    ///
    /// Called by C only, with the root's lock held, for a live qdisc.
    pub(super) unsafe extern "C" fn dequeue(sch: *mut bindings::Qdisc) -> *mut bindings::sk_buff {
        // SAFETY: By the safety requirements.
        let shared = unsafe { Private::<T>::shared(sch) };
        // SAFETY: By the safety requirements.
        let state = unsafe { Private::<T>::state(sch) };
        // SAFETY: By the safety requirements; `sch` is not null.
        let queue = unsafe { Queue::new(sch, ptr::null_mut()) };
        let before = queue.backlog();
        let packet = shared.dequeue(state, queue);
        let Some(packet) = packet else {
            if queue.backlog().packets != before.packets {
                Self::settle_dequeue(queue, before, None);
            }
            return ptr::null_mut();
        };
        queue.count_sent(&packet);
        // One packet less can only be this one: no other is missing.
        if queue.backlog().packets.wrapping_add(1) != before.packets {
            Self::settle_dequeue(queue, before, Some(packet.len_bytes()));
        }
        packet.into_raw()
    }

    /// Settles a dequeue that removed more than the returned packet of `len_bytes`, if any.
    #[cold]
    pub(super) fn settle_dequeue(queue: Queue<'_>, before: Backlog, len_bytes: Option<u32>) {
        let expected = len_bytes.map_or(before, |len_bytes| before.minus(len_bytes));
        let missing = expected.packets.wrapping_sub(queue.backlog().packets);
        queue.settle(expected, missing);
    }

    /// # Safety
    ///
    /// Called by C only, with the root's lock held, for a live qdisc.
    pub(super) unsafe extern "C" fn peek(sch: *mut bindings::Qdisc) -> *mut bindings::sk_buff {
        // SAFETY: By the safety requirements; `sch` is not null.
        let queue = unsafe { Queue::new(sch, ptr::null_mut()) };
        let peeked = queue.peeked();
        if !peeked.is_null() {
            return peeked;
        }
        // SAFETY: By the safety requirements.
        let shared = unsafe { Private::<T>::shared(sch) };
        // SAFETY: By the safety requirements.
        let state = unsafe { Private::<T>::state(sch) };
        let before = queue.backlog();
        let skb = match shared.dequeue(state, queue) {
            Some(packet) => {
                queue.count_sent(&packet);
                queue.keep_peeked(packet)
            }
            None => ptr::null_mut(),
        };
        // After the packet is back: a parent that learns of drops forgets an empty child.
        if queue.backlog() != before {
            Self::settle_dequeue(queue, before, None);
        }
        skb
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, with the root's lock held or after the
    /// qdisc was taken out, and maybe after an init() that failed.
    pub(super) unsafe extern "C" fn reset(sch: *mut bindings::Qdisc) {
        // SAFETY: By the safety requirements.
        unsafe {
            bindings::xdc_qdisc_reset(sch);
            if (*Private::<T>::of(sch)).live {
                Private::<T>::shared(sch).reset(Private::<T>::state(sch));
            }
        }
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, for a live qdisc.
    pub(super) unsafe extern "C" fn dump(
        sch: *mut bindings::Qdisc,
        skb: *mut bindings::sk_buff,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let result = unsafe {
            let shared = Private::<T>::shared(sch);
            let rtnl = Private::<T>::rtnl(sch);
            Message::nest(skb, bindings::TCA_OPTIONS, |message| {
                shared.dump(rtnl, message)
            })
        };
        result.map_or(-1, |()| 0)
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, for a live qdisc.
    pub(super) unsafe extern "C" fn dump_stats(
        sch: *mut bindings::Qdisc,
        dump: *mut bindings::gnet_dump,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let mut stats = unsafe {
            Private::<T>::shared(sch).stats(Private::<T>::rtnl(sch), &mut RtnlQdisc::new(sch))
        };
        // SAFETY: As above; C copies the statistics, which have no padding.
        unsafe {
            bindings::gnet_stats_copy_app(
                dump,
                addr_of_mut!(stats).cast(),
                size_of::<T::Stats>() as c_int,
            )
        }
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, for a qdisc of `T`; `link` is a [`Link`] that no other code has.
    pub(super) unsafe extern "C" fn link_changed(sch: *mut bindings::Qdisc, link: *mut c_void) {
        // SAFETY: By the safety requirements; `live` changes only under RTNL.
        if unsafe { (*Private::<T>::of(sch)).live } {
            // SAFETY: By the safety requirements; it is live.
            let shared = unsafe { Private::<T>::shared(sch) };
            // SAFETY: By the safety requirements; callbacks under RTNL do not nest.
            let rtnl = unsafe { Private::<T>::rtnl(sch) };
            // SAFETY: By the safety requirements.
            let mut qdisc = unsafe { RtnlQdisc::new(sch) };
            // SAFETY: By the safety requirements.
            let link = unsafe { &mut *link.cast::<Link<'_>>() };
            shared.link_changed(rtnl, &mut qdisc, link);
        }
    }

    pub(super) fn ops() -> bindings::Qdisc_ops {
        // SAFETY: Null callbacks and an empty name are valid.
        let mut ops: bindings::Qdisc_ops = unsafe { MaybeUninit::zeroed().assume_init() };
        for (to, from) in ops.id.iter_mut().zip(T::NAME.to_bytes()) {
            *to = *from as c_char;
        }
        ops.priv_size = size_of::<Private<T>>() as c_int;
        // SAFETY: It reads a constant.
        ops.owner = unsafe { bindings::xdc_this_module() };
        ops.cl_ops = addr_of!(bindings::xdc_qdisc_class_ops);
        ops.init = Some(Self::init);
        ops.change = Some(Self::change);
        ops.destroy = Some(Self::destroy);
        ops.enqueue = Some(Self::enqueue);
        ops.dequeue = Some(Self::dequeue);
        ops.peek = Some(Self::peek);
        ops.reset = Some(Self::reset);
        ops.dump = Some(Self::dump);
        if size_of::<T::Stats>() != 0 {
            ops.dump_stats = Some(Self::dump_stats);
        }
        ops
    }
}
