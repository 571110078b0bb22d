// SPDX-License-Identifier: GPL-2.0

//! Queue disciplines.
//!
//! A module implements [`Discipline`] and keeps a [`Registration`]. A qdisc has
//! two halves. `Self` is read by anybody at any time: words and atomics. `Hot`
//! is the state of the queue and is handed out as `&mut` under the root's lock
//! only: to the callbacks that run under it, and by [`Control::lock`].
//!
//! C header: `include/net/sch_generic.h`

use super::{
    bindings,
    netlink::{Attrs, Extack, Message},
    sysctl::Net,
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{size_of, ManuallyDrop, MaybeUninit},
    ptr::{self, addr_of, addr_of_mut, NonNull},
};
use kernel::{error::to_result, prelude::*, types::Opaque, ModuleMetadata};

/// Why a packet is dropped, for the drop monitor.
#[derive(Clone, Copy)]
pub(crate) enum DropReason {
    /// No room.
    Overlimit,
    /// To tell the sender of congestion.
    Congested,
    /// Anything else, such as a filter's verdict.
    Other,
}

impl DropReason {
    fn to_raw(self) -> bindings::qdisc_drop_reason {
        match self {
            Self::Overlimit => bindings::QDISC_DROP_OVERLIMIT,
            Self::Congested => bindings::QDISC_DROP_CONGESTED,
            Self::Other => bindings::QDISC_DROP_GENERIC,
        }
    }
}

/// What setting CE came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ce {
    /// The packet was ECT and is CE now.
    Marked,
    /// The packet was CE.
    Already,
    /// The packet is not ECT, no IP, or cannot be written to.
    NotEct,
}

/// What tc filters say of a packet.
pub(crate) enum Classified {
    /// None matches, or there is none.
    No,
    /// This class id.
    Class(u32),
    /// It shall be dropped.
    Drop,
    /// An action has taken it.
    Stolen,
}

/// A packet. Dropping this frees it, but see [`Queue::drop_packet`].
///
/// # Invariants
///
/// We own `skb`, and it is on no list.
pub(crate) struct Packet {
    skb: NonNull<bindings::sk_buff>,
}

impl Packet {
    /// # Safety
    ///
    /// The caller gives up ownership of `skb`, which is on no list.
    unsafe fn from_raw(skb: *mut bindings::sk_buff) -> Option<Self> {
        NonNull::new(skb).map(|skb| Self { skb })
    }

    fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).skb.as_ptr()
    }

    /// Length on the wire, after the parent's size table.
    #[inline]
    pub(crate) fn len_bytes(&self) -> u32 {
        // SAFETY: By the type invariants; the control block of a packet in a
        // qdisc begins with a `qdisc_skb_cb`.
        unsafe { (*self.cb()).pkt_len }
    }

    /// Memory for what the discipline remembers of a packet in its queue.
    #[inline]
    pub(crate) fn note(&mut self) -> &mut u8 {
        // SAFETY: As above; `data` belongs to the qdisc that has the packet.
        unsafe { &mut (*self.cb()).data[0] }
    }

    fn cb(&self) -> *mut bindings::qdisc_skb_cb {
        // SAFETY: By the type invariants.
        unsafe { addr_of_mut!((*self.skb.as_ptr()).cb) }.cast()
    }

    /// SO_PRIORITY, or what a filter or the TOS made of it.
    #[inline]
    pub(crate) fn priority(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_priority(self.skb.as_ptr()) }
    }

    /// DSCP of an IP packet.
    #[inline]
    pub(crate) fn dscp(&mut self) -> Option<u8> {
        // SAFETY: By the type invariants.
        let dsfield = unsafe { bindings::xdc_skb_dsfield(self.skb.as_ptr()) };
        u8::try_from(dsfield).ok().map(|dsfield| dsfield >> 2)
    }

    /// DSCP and ECN of an IP packet, which stays as it is; 0 of any other.
    pub(crate) fn peek_dsfield(&self) -> u8 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_peek_dsfield(self.skb.as_ptr()) }
    }

    /// The packet, for C that looks at it.
    pub(super) fn as_ptr(&self) -> *const bindings::sk_buff {
        self.skb.as_ptr()
    }

    /// Sets CE where the packet is ECT.
    #[inline]
    pub(crate) fn set_ce(&mut self) -> Ce {
        // SAFETY: By the type invariants.
        match unsafe { bindings::xdc_skb_set_ce(self.skb.as_ptr()) } {
            bindings::XDC_ECT_TO_CE => Ce::Marked,
            bindings::XDC_ALREADY_CE => Ce::Already,
            _ => Ce::NotEct,
        }
    }

    /// Frees a packet that was not lost: somebody else has what was in it.
    pub(crate) fn consume(self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_consume(self.into_raw()) }
    }

    /// Several segments in one, as the stack counts them before a packet comes to any
    /// qdisc.
    #[inline]
    fn has_segments(&self) -> bool {
        // SAFETY: By the type invariants; as for `len_bytes`.
        unsafe { (*self.cb()).pkt_segs != 1 }
    }

    /// It can be split into segments.
    fn is_gso(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_is_gso(self.skb.as_ptr()) }
    }

    /// A TCP ACK without payload.
    #[inline]
    pub(crate) fn is_pure_ack(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_is_pure_ack(self.skb.as_ptr()) }
    }
}

impl Drop for Packet {
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

/// The link of a packet in a queue.
///
/// # Safety
///
/// `skb` is valid.
#[inline]
unsafe fn next_of(skb: *mut bindings::sk_buff) -> *mut *mut bindings::sk_buff {
    // SAFETY: By the safety requirements.
    unsafe { addr_of_mut!((*skb).__bindgen_anon_1.__bindgen_anon_1.next) }
}

/// Changes a counter that others read at any time.
///
/// # Safety
///
/// `counter` is valid, and nobody else writes to it meanwhile.
#[inline]
unsafe fn update<T: Copy>(counter: *mut T, f: impl FnOnce(T) -> T) {
    // SAFETY: By the safety requirements.
    unsafe { counter.write_volatile(f(*counter)) }
}

/// A qdisc whose queue the caller has locked.
///
/// # Invariants
///
/// `sch` is alive and its root's lock is held for `'a`, or nobody else has it
/// any more. `to_free` is null in dequeue, else the list of enqueue's caller.
pub(crate) struct Queue<'a> {
    sch: NonNull<bindings::Qdisc>,
    to_free: *mut *mut bindings::sk_buff,
    _locked: PhantomData<&'a mut ()>,
}

impl Queue<'_> {
    /// # Safety
    ///
    /// As the type invariants say.
    #[inline]
    unsafe fn new(sch: *mut bindings::Qdisc, to_free: *mut *mut bindings::sk_buff) -> Self {
        Self {
            // SAFETY: C passes no null pointer.
            sch: unsafe { NonNull::new_unchecked(sch) },
            to_free,
            _locked: PhantomData,
        }
    }

    /// The queue for a function that is not inlined. By value, so that it stays in
    /// registers.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Queue<'_> {
        // INVARIANT: As `self`, for no longer.
        Queue { ..*self }
    }

    /// The qdisc's handle, whose minor number is 0.
    #[inline]
    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { (*self.sch.as_ptr()).handle }
    }

    /// The qdisc, for C that looks at it.
    pub(super) fn as_ptr(&self) -> *const bindings::Qdisc {
        self.sch.as_ptr()
    }

    /// Puts a packet at the end of the queue: `qdisc_enqueue_tail()`, which is
    /// not called through C because the call would cost as much again.
    #[inline]
    pub(crate) fn push(&mut self, packet: Packet) {
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
    }

    /// Takes the packet at the head of the queue: `__qdisc_dequeue_head()`.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Packet> {
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

    /// Nothing is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { (*self.sch.as_ptr()).q.head.is_null() }
    }

    /// Drops a packet that is not in the queue, or not any more.
    // Not out of line, so that the callbacks need no `Queue` in memory.
    #[inline(always)]
    pub(crate) fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        let (sch, reason) = (self.sch.as_ptr(), reason.to_raw());
        if !self.to_free.is_null() {
            // SAFETY: By the type invariants.
            unsafe { bindings::xdc_qdisc_drop(packet.into_raw(), sch, self.to_free, reason) }
            return;
        }
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_qdisc_dequeue_drop(packet.into_raw(), sch, reason) }
    }

    /// Counts an event of "overlimits" in `tc -s`: the shaper held a packet back, or
    /// the queue was full.
    #[inline]
    pub(crate) fn count_overlimit(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_qdisc_overlimit(self.sch.as_ptr()) }
    }

    /// Has dequeue called at `at_ns` of [`now_ns`].
    #[inline]
    pub(crate) fn wake_at(&mut self, at_ns: u64) {
        // SAFETY: By the type invariants; the private area begins with C's
        // part, whose watchdog C has initialised.
        unsafe {
            let c: *mut bindings::xdc_qdisc = addr_of_mut!((*self.sch.as_ptr()).privdata).cast();
            bindings::qdisc_watchdog_schedule_range_ns(addr_of_mut!((*c).watchdog), at_ns, 0)
        }
    }

    /// Asks the tc filters that are attached to the qdisc.
    #[inline]
    pub(crate) fn classify(&mut self, packet: &mut Packet) -> Classified {
        let mut class = 0;
        // SAFETY: By the type invariants; enqueue runs in a BH RCU section.
        let action = unsafe {
            bindings::xdc_qdisc_classify(packet.skb.as_ptr(), self.sch.as_ptr(), &mut class)
        };
        match action {
            ..0 => Classified::No,
            _ => match action as u32 {
                bindings::TC_ACT_STOLEN | bindings::TC_ACT_QUEUED | bindings::TC_ACT_TRAP => {
                    Classified::Stolen
                }
                bindings::TC_ACT_SHOT => Classified::Drop,
                _ => Classified::Class(class),
            },
        }
    }

    /// Counts a packet that leaves: `qdisc_bstats_update()`.
    #[inline]
    fn count_sent(&mut self, packet: &Packet) {
        // SAFETY: By the type invariants; on the 64-bit machines that we are
        // built for, readers of these counters need no more.
        unsafe {
            let stats = addr_of_mut!((*self.sch.as_ptr()).bstats);
            update(addr_of_mut!((*stats).bytes.v.a.a.counter), |n| {
                n.wrapping_add(packet.len_bytes().into())
            });
            update(addr_of_mut!((*stats).packets.v.a.a.counter), |n| {
                n.wrapping_add((*packet.cb()).pkt_segs.into())
            });
        }
    }

    /// Tells the parents what was dropped in dequeue.
    #[inline]
    fn settle(&mut self) {
        // SAFETY: By the type invariants; the private area begins with C's part.
        unsafe {
            let c: *mut bindings::xdc_qdisc = addr_of_mut!((*self.sch.as_ptr()).privdata).cast();
            if (*c).dropped_packets != 0 {
                bindings::xdc_qdisc_settle(self.sch.as_ptr());
            }
        }
    }

    fn reduce_backlog(&mut self, packets: c_int, bytes: c_int) {
        // SAFETY: By the type invariants.
        unsafe { bindings::qdisc_tree_reduce_backlog(self.sch.as_ptr(), packets, bytes) }
    }
}

/// A qdisc in a callback that may sleep and runs under RTNL.
///
/// # Invariants
///
/// `sch` is alive and RTNL is held for `'a`.
pub(crate) struct Control<'a, T: Discipline> {
    sch: NonNull<bindings::Qdisc>,
    _rtnl: PhantomData<&'a T>,
}

impl<T: Discipline> Control<'_, T> {
    /// # Safety
    ///
    /// As the type invariants say.
    unsafe fn new(sch: *mut bindings::Qdisc) -> Self {
        Self {
            // SAFETY: C passes no null pointer.
            sch: unsafe { NonNull::new_unchecked(sch) },
            _rtnl: PhantomData,
        }
    }

    /// The namespace of the device.
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: By the type invariants; the device keeps its namespace.
        unsafe { Net::from_raw(bindings::xdc_qdisc_net(self.sch.as_ptr())) }
    }

    /// Speed of the device, if it tells.
    pub(crate) fn link_bytes_per_s(&self) -> Option<u64> {
        // SAFETY: By the type invariants.
        let speed = unsafe { bindings::xdc_qdisc_link_bytes_per_s(self.sch.as_ptr()) };
        (speed != 0).then_some(speed)
    }

    /// Of this port's own, for random numbers.
    pub(crate) fn seed(&self) -> u64 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_qdisc_seed(self.sch.as_ptr()) }
    }

    /// Has dequeue called at once.
    pub(crate) fn wake(&mut self) {
        // SAFETY: By the type invariants; the private area begins with C's
        // part, whose watchdog C has initialised, and whose timer has a lock
        // of its own.
        unsafe {
            let c: *mut bindings::xdc_qdisc = addr_of_mut!((*self.sch.as_ptr()).privdata).cast();
            bindings::qdisc_watchdog_schedule_range_ns(addr_of_mut!((*c).watchdog), now_ns(), 0)
        }
    }

    /// Locks the queue for `f`, which must not sleep. Not before init is over.
    pub(crate) fn lock<R>(&mut self, f: impl FnOnce(&mut T::Hot) -> R) -> Option<R> {
        let sch = self.sch.as_ptr();
        // SAFETY: By the type invariants.
        let private = unsafe { Private::<T>::of(sch) };
        // SAFETY: As above; `live` changes only under RTNL.
        if unsafe { !(*private).live } {
            return None;
        }
        // SAFETY: By the type invariants; the lock makes the reference unique.
        unsafe {
            bindings::xdc_qdisc_lock(sch);
            let ret = f((*(*private).hot.get()).assume_init_mut());
            bindings::xdc_qdisc_unlock(sch);
            Some(ret)
        }
    }
}

/// CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: Callable from any context. The clock starts at 0.
    unsafe { bindings::ktime_get() as u64 }
}

/// Statistics as userspace gets them, from a C header.
///
/// # Safety
///
/// Implemented only for C structs that have no padding.
pub(crate) unsafe trait Stats: Copy {}

// SAFETY: No statistics, no padding.
unsafe impl Stats for () {}

/// What became of a packet in [`Discipline::enqueue`], as C returns it.
#[repr(u32)]
pub(crate) enum Verdict {
    /// It is in the queue.
    Queued = bindings::NET_XMIT_SUCCESS,
    /// It was dropped for lack of room.
    Dropped = bindings::NET_XMIT_DROP,
    /// It was dropped to tell of congestion.
    Congested = bindings::NET_XMIT_CN,
    /// A filter's action has it.
    Stolen = bindings::NET_XMIT_SUCCESS | bindings::__NET_XMIT_STOLEN,
}

/// A queue discipline, `struct Qdisc_ops`.
///
/// peek is the kernel's own way of looking at the head by dequeueing it.
pub(crate) trait Discipline: Sized + Send + Sync + 'static {
    /// Its name for tc, at most 15 characters.
    const NAME: &'static CStr;

    /// What all qdiscs of this kind share.
    type Module: Send + Sync;

    /// State of the queue.
    type Hot: Send;

    /// For `tc -s`.
    type Stats: Stats;

    /// The module that it is part of.
    type Owner: ModuleMetadata;

    /// Makes a qdisc from its options, which may be none. May sleep.
    fn init(
        module: &Self::Module,
        control: &mut Control<'_, Self>,
        options: Attrs<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Self::Hot)>;

    /// Changes what the options name, on a queue that is in use. May sleep.
    fn change(
        &self,
        module: &Self::Module,
        control: &mut Control<'_, Self>,
        options: Attrs<'_>,
        extack: &Extack<'_>,
    ) -> Result;

    /// The last callback. May sleep; the queue is empty.
    fn destroy(&self, module: &Self::Module, hot: &mut Self::Hot);

    /// Whether packets that hold several segments are to be split before
    /// [`enqueue`](Self::enqueue). Locked.
    fn splits_segments(hot: &Self::Hot) -> bool;

    /// Takes a packet. Locked.
    fn enqueue(&self, hot: &mut Self::Hot, queue: &mut Queue<'_>, packet: Packet) -> Verdict;

    /// A packet was to be split and cannot be: it has to be dropped. Locked.
    fn drop_whole(&self, _hot: &mut Self::Hot, queue: &mut Queue<'_>, packet: Packet) {
        queue.drop_packet(packet, DropReason::Other);
    }

    /// Gives a packet, or none for now. Locked.
    fn dequeue(&self, hot: &mut Self::Hot, queue: &mut Queue<'_>) -> Option<Packet>;

    /// The queue has been emptied and the watchdog stopped. Locked.
    fn reset(&self, hot: &mut Self::Hot);

    /// Writes the options that [`init`](Self::init) takes. Not locked.
    fn dump(&self, message: &mut Message<'_>) -> Result;

    /// Returns the statistics. Not locked; may sleep.
    fn stats(&self, module: &Self::Module, control: &Control<'_, Self>) -> Self::Stats;
}

/// The private area of a qdisc.
///
/// All zeroes, as the kernel allocates it, is valid: `live` is false.
#[repr(C)]
struct Private<T: Discipline> {
    c: Opaque<bindings::xdc_qdisc>,
    /// init() has filled what follows. Written before the qdisc is visible and
    /// after it is not.
    live: bool,
    shared: MaybeUninit<T>,
    hot: UnsafeCell<MaybeUninit<T::Hot>>,
}

impl<T: Discipline> Private<T> {
    /// # Safety
    ///
    /// `sch` is a qdisc of `T`.
    #[inline]
    unsafe fn of(sch: *mut bindings::Qdisc) -> *mut Self {
        // SAFETY: By the safety requirements.
        unsafe { addr_of_mut!((*sch).privdata) }.cast()
    }

    /// # Safety
    ///
    /// `sch` is a qdisc of `T` that is `live` for `'a`.
    #[inline]
    unsafe fn shared<'a>(sch: *mut bindings::Qdisc) -> &'a T {
        // SAFETY: By the safety requirements.
        unsafe { (*addr_of!((*Self::of(sch)).shared)).assume_init_ref() }
    }

    /// # Safety
    ///
    /// `sch` is a qdisc of `T` that is `live` and locked for `'a`.
    #[inline]
    unsafe fn hot<'a>(sch: *mut bindings::Qdisc) -> &'a mut T::Hot {
        // SAFETY: By the safety requirements.
        unsafe { (*(*addr_of!((*Self::of(sch)).hot)).get()).assume_init_mut() }
    }
}

/// What C sees of a discipline.
///
/// # Invariants
///
/// `ops` of a qdisc that calls a thunk of [`Thunks<T>`] is the first field.
#[repr(C)]
struct Ops<T: Discipline> {
    ops: Opaque<bindings::Qdisc_ops>,
    module: T::Module,
}

impl<T: Discipline> Ops<T> {
    /// # Safety
    ///
    /// `sch` is a qdisc of `T` for `'a`.
    unsafe fn module<'a>(sch: *mut bindings::Qdisc) -> &'a T::Module {
        // SAFETY: By the safety requirements and the type invariants.
        unsafe { &(*(*sch).ops.cast::<Self>()).module }
    }
}

/// The callbacks that C calls.
struct Thunks<T>(PhantomData<T>);

impl<T: Discipline> Thunks<T> {
    /// # Safety
    ///
    /// Called by C only, under RTNL, as the first callback of a qdisc.
    unsafe extern "C" fn init(
        sch: *mut bindings::Qdisc,
        options: *mut bindings::nlattr,
        extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        let result = (|| {
            // SAFETY: By the safety requirements.
            unsafe {
                to_result(bindings::xdc_qdisc_init(sch, extack))?;
                let (shared, hot) = T::init(
                    Ops::<T>::module(sch),
                    &mut Control::new(sch),
                    Attrs::from_raw(options),
                    &Extack::from_raw(extack),
                )?;
                let private = Private::<T>::of(sch);
                (*private).shared.write(shared);
                (*private).hot.get_mut().write(hot);
                (*private).live = true;
            }
            Ok(())
        })();
        result.map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, for a qdisc whose init() succeeded.
    unsafe extern "C" fn change(
        sch: *mut bindings::Qdisc,
        options: *mut bindings::nlattr,
        extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let result = unsafe {
            Private::<T>::shared(sch).change(
                Ops::<T>::module(sch),
                &mut Control::new(sch),
                Attrs::from_raw(options),
                &Extack::from_raw(extack),
            )
        };
        result.map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// Called by C only, last of all, after an init() that may have failed.
    unsafe extern "C" fn destroy(sch: *mut bindings::Qdisc) {
        // SAFETY: By the safety requirements nobody else has the qdisc, once
        // the watchdog is stopped.
        unsafe {
            bindings::xdc_qdisc_destroy(sch);
            let private = Private::<T>::of(sch);
            if (*private).live {
                Private::<T>::shared(sch).destroy(Ops::<T>::module(sch), Private::<T>::hot(sch));
                (*private).live = false;
                (*private).hot.get_mut().assume_init_drop();
                (*private).shared.assume_init_drop();
            }
        }
    }

    /// # Safety
    ///
    /// Called by C only, with the root's lock held, for a live qdisc.
    unsafe extern "C" fn enqueue(
        skb: *mut bindings::sk_buff,
        sch: *mut bindings::Qdisc,
        to_free: *mut *mut bindings::sk_buff,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let (shared, hot, mut queue) = unsafe {
            (
                Private::<T>::shared(sch),
                Private::<T>::hot(sch),
                Queue::new(sch, to_free),
            )
        };
        // INVARIANT: C gives up the packet.
        let packet = Packet {
            // SAFETY: C passes no null pointer.
            skb: unsafe { NonNull::new_unchecked(skb) },
        };
        let verdict = if T::splits_segments(hot) && packet.has_segments() {
            Self::enqueue_segments(shared, hot, queue, packet)
        } else {
            shared.enqueue(hot, &mut queue, packet)
        };
        verdict as c_int
    }

    /// Enqueues the segments of a packet one by one.
    #[inline(never)]
    fn enqueue_segments(
        shared: &T,
        hot: &mut T::Hot,
        mut queue: Queue<'_>,
        packet: Packet,
    ) -> Verdict {
        if !packet.is_gso() {
            return shared.enqueue(hot, &mut queue, packet);
        }
        // SAFETY: We own the packet.
        let mut list = unsafe { bindings::xdc_skb_segments(packet.skb.as_ptr()) };
        if list.is_null() {
            shared.drop_whole(hot, &mut queue, packet);
            return Verdict::Dropped;
        }
        let (mut queued, mut queued_bytes) = (0u32, 0u32);
        let mut verdict = Verdict::Dropped;
        // SAFETY: We own the list and what C takes off it.
        let mut next = || unsafe { Packet::from_raw(bindings::xdc_skb_next_segment(&mut list)) };
        while let Some(segment) = next() {
            let bytes = segment.len_bytes();
            verdict = shared.enqueue(hot, &mut queue, segment);
            if matches!(verdict, Verdict::Queued) {
                queued = queued.wrapping_add(1);
                queued_bytes = queued_bytes.wrapping_add(bytes);
            }
        }
        if queued != 0 {
            // The parents are going to count the packet that we were given.
            queue.reduce_backlog(
                1i32.wrapping_sub_unsigned(queued),
                packet.len_bytes().wrapping_sub(queued_bytes) as c_int,
            );
            verdict = Verdict::Queued;
        }
        packet.consume();
        verdict
    }

    /// # Safety
    ///
    /// Called by C only, with the root's lock held, for a live qdisc.
    unsafe extern "C" fn dequeue(sch: *mut bindings::Qdisc) -> *mut bindings::sk_buff {
        // SAFETY: By the safety requirements.
        let (shared, hot, mut queue) = unsafe {
            (
                Private::<T>::shared(sch),
                Private::<T>::hot(sch),
                Queue::new(sch, ptr::null_mut()),
            )
        };
        let packet = shared.dequeue(hot, &mut queue);
        queue.settle();
        let Some(packet) = packet else {
            return ptr::null_mut();
        };
        queue.count_sent(&packet);
        packet.into_raw()
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, with the root's lock held or after the
    /// qdisc was taken out, and maybe after an init() that failed.
    unsafe extern "C" fn reset(sch: *mut bindings::Qdisc) {
        // SAFETY: By the safety requirements.
        unsafe {
            bindings::xdc_qdisc_reset(sch);
            if (*Private::<T>::of(sch)).live {
                Private::<T>::shared(sch).reset(Private::<T>::hot(sch));
            }
        }
    }

    /// # Safety
    ///
    /// Called by C only, for a live qdisc.
    unsafe extern "C" fn dump(sch: *mut bindings::Qdisc, skb: *mut bindings::sk_buff) -> c_int {
        // SAFETY: By the safety requirements.
        let result = unsafe {
            let shared = Private::<T>::shared(sch);
            Message::nest(skb, bindings::TCA_OPTIONS, |message| shared.dump(message))
        };
        result.map_or(-1, |()| 0)
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, for a live qdisc.
    unsafe extern "C" fn dump_stats(
        sch: *mut bindings::Qdisc,
        dump: *mut bindings::gnet_dump,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let mut stats =
            unsafe { Private::<T>::shared(sch).stats(Ops::<T>::module(sch), &Control::new(sch)) };
        // SAFETY: As above; C copies the statistics, which have no padding.
        unsafe {
            bindings::gnet_stats_copy_app(
                dump,
                addr_of_mut!(stats).cast(),
                size_of::<T::Stats>() as c_int,
            )
        }
    }

    fn ops() -> bindings::Qdisc_ops {
        // SAFETY: Null callbacks and an empty name are valid.
        let mut ops: bindings::Qdisc_ops = unsafe { MaybeUninit::zeroed().assume_init() };
        for (to, from) in ops.id.iter_mut().zip(T::NAME.to_bytes()) {
            *to = *from as c_char;
        }
        ops.priv_size = size_of::<Private<T>>() as c_int;
        ops.owner = T::Owner::THIS_MODULE.as_ptr().cast();
        ops.cl_ops = addr_of!(bindings::xdc_qdisc_class_ops);
        ops.init = Some(Self::init);
        ops.change = Some(Self::change);
        ops.destroy = Some(Self::destroy);
        ops.enqueue = Some(Self::enqueue);
        ops.dequeue = Some(Self::dequeue);
        ops.peek = Some(bindings::xdc_qdisc_peek);
        ops.reset = Some(Self::reset);
        ops.dump = Some(Self::dump);
        if size_of::<T::Stats>() != 0 {
            ops.dump_stats = Some(Self::dump_stats);
        }
        ops
    }
}

/// A registered discipline; it is unregistered when this is dropped.
///
/// # Invariants
///
/// `ops` is registered.
pub(crate) struct Registration<T: Discipline> {
    ops: Pin<KBox<Ops<T>>>,
}

// SAFETY: `T::Module` is `Send` and `Sync`, and the rest is C's, which locks it.
unsafe impl<T: Discipline> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Discipline> Sync for Registration<T> {}

impl<T: Discipline> Registration<T> {
    /// Registers the discipline; `module` is shared by its qdiscs.
    pub(crate) fn new(module: T::Module) -> Result<Self> {
        const {
            // IFNAMSIZ, with the NUL.
            assert!(T::NAME.to_bytes().len() < 16);
            // qdisc_priv() is aligned to 64 at least; more would have to be asked for.
            assert!(align_of::<Private<T>>() <= 64);
        }
        // On the heap, because C links it into a list.
        let ops = KBox::pin(
            Ops {
                ops: Opaque::new(Thunks::<T>::ops()),
                module,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: `ops` is complete, writable, and stays where it is until
        // `drop` has unregistered it.
        to_result(unsafe { bindings::register_qdisc(ops.ops.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self { ops })
    }
}

impl<T: Discipline> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. The module's owner reference keeps us
        // from here while there is a qdisc.
        unsafe { bindings::unregister_qdisc(self.ops.ops.get()) }
    }
}
