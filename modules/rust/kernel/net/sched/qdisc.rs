// SPDX-License-Identifier: GPL-2.0

//! Queue disciplines.
//!
//! A module implements [`Qdisc`] and keeps a [`Registration`]. A qdisc has two halves. Any code may
//! read `Self` at any time: words and atomics. `State`, the state of the queue, is passed as `&mut`
//! under the root's lock only: to callbacks that hold it, and by [`RtnlQdisc::lock`].
//!
//! C header: `include/net/sch_generic.h`

mod packet;
mod queue;
mod vtable;

pub(crate) use packet::*;
pub(crate) use queue::*;

use super::{
    bindings, netdev,
    netlink::{Extack, Message, Nest},
    sysctl::Net,
};
use core::{
    marker::PhantomData,
    ptr::{self, addr_of_mut, NonNull},
};
use kernel::{
    error::to_result,
    prelude::*,
    time::{self, ClockSource as _},
    types::Opaque,
};
use netdev::{Device, Event};
use vtable::{Ops, Private, VTable};

/// A qdisc in a callback that may sleep and runs under RTNL.
///
/// # Invariants
///
/// `sch` is alive and RTNL is held for `'a`.
pub(crate) struct RtnlQdisc<'a, T: Qdisc> {
    sch: NonNull<bindings::Qdisc>,
    _rtnl: PhantomData<&'a T>,
}

impl<T: Qdisc> RtnlQdisc<'_, T> {
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

    /// Returns an id that is unique among live qdiscs; never 0.
    pub(crate) fn id(&self) -> u64 {
        self.sch.as_ptr() as u64
    }

    /// Returns the namespace of the device.
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: By the type invariants; the device keeps its namespace.
        unsafe { Net::from_raw(bindings::xdc_qdisc_net(self.sch.as_ptr())) }
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> Device<'_> {
        // SAFETY: By the type invariants; a qdisc keeps its device, and RTNL is held.
        unsafe { Device::from_raw(bindings::xdc_qdisc_dev(self.sch.as_ptr())) }
    }

    /// Returns the major number of the parent's handle, if the parent is mq or similar: a qdisc
    /// that gives each transmit queue of the device its own qdisc and lock.
    pub(crate) fn below_mq(&self) -> Option<u32> {
        // SAFETY: By the type invariants, under RTNL.
        let below = unsafe { bindings::xdc_qdisc_is_below_mq(self.sch.as_ptr()) };
        // SAFETY: By the type invariants; it is set before init.
        let parent = unsafe { (*self.sch.as_ptr()).parent };
        below.then_some(parent >> 16)
    }

    /// Returns whether this is the device's root, whose packets leave at once.
    pub(crate) fn is_root(&self) -> bool {
        // SAFETY: By the type invariants; it is set before init.
        unsafe { bindings::xdc_qdisc_is_root(self.sch.as_ptr()) }
    }

    /// Makes the kernel ask for one packet at a time, if none is sent by transmit queue 0. In [`Qdisc::init`].
    pub(crate) fn send_singly(&mut self) {
        // SAFETY: `sch` is a qdisc, whose flags RTNL guards.
        unsafe { bindings::xdc_qdisc_send_singly(self.sch.as_ptr()) }
    }

    /// Returns the number of the transmit queues in use.
    pub(crate) fn tx_queues(&self) -> u32 {
        // SAFETY: By the type invariants, under RTNL.
        unsafe { bindings::xdc_qdisc_tx_queues(self.sch.as_ptr()) }
    }

    /// Schedules a dequeue at once.
    pub(crate) fn schedule_watchdog_now(&mut self) {
        // SAFETY: By the type invariants; the private area begins with C's
        // part, whose watchdog C has initialised, and whose timer has a lock
        // of its own.
        unsafe {
            let c: *mut bindings::xdc_qdisc = addr_of_mut!((*self.sch.as_ptr()).privdata).cast();
            bindings::qdisc_watchdog_schedule_range_ns(addr_of_mut!((*c).watchdog), now_ns(), 0)
        }
    }

    /// Locks the queue for `f`, which must not sleep. Returns None before init ends.
    pub(crate) fn lock<R>(&mut self, f: impl FnOnce(&mut T::State) -> R) -> Option<R> {
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
            let ret = f((*(*private).state.get()).assume_init_mut());
            bindings::xdc_qdisc_unlock(sch);
            Some(ret)
        }
    }
}

/// Returns CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: Callable from any context. The clock starts at 0.
    unsafe { bindings::ktime_get() as u64 }
}

/// A clock of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
    Boottime,
    Tai,
}

impl Clock {
    /// Returns the clock of a clockid_t; None for clocks of processes and threads, and others.
    pub(crate) fn of(id: i64) -> Option<Self> {
        Some(match u32::try_from(id).ok()? {
            bindings::CLOCK_REALTIME => Self::Realtime,
            bindings::CLOCK_MONOTONIC => Self::Monotonic,
            bindings::CLOCK_BOOTTIME => Self::Boottime,
            bindings::CLOCK_TAI => Self::Tai,
            _ => return None,
        })
    }

    /// Returns the time.
    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        let now_ns = match self {
            Self::Realtime => time::RealTime::ktime_get(),
            Self::Monotonic => return now_ns(),
            Self::Boottime => time::BootTime::ktime_get(),
            Self::Tai => time::Tai::ktime_get(),
        };
        now_ns.max(0) as u64
    }
}

/// Statistics for userspace, from a C header.
///
/// # Safety
///
/// Implemented only for C structs that have no padding.
pub(crate) unsafe trait Stats: Copy {}

// SAFETY: No statistics, no padding.
unsafe impl Stats for () {}

/// A queue discipline, `struct Qdisc_ops`. Parents use freed memory if their count of a child is
/// wrong, so after each callback this wrapper compares the queue with their count and reports the
/// difference. A peeked packet counts as queued; drops before it are reported afterwards.
pub(crate) trait Qdisc: Sized + Send + Sync + 'static {
    /// Name in tc, at most 15 characters.
    const NAME: &'static CStr;

    /// State that all qdiscs of this kind share.
    type Module: Send + Sync;

    /// State of the queue.
    type State: Send;

    /// State under RTNL.
    type Rtnl: Send;

    /// Statistics of `tc -s`.
    type Stats: Stats;

    /// Creates a qdisc from its options, which may be empty. May sleep.
    fn init(
        module: &Self::Module,
        qdisc: &mut RtnlQdisc<'_, Self>,
        options: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Self::Rtnl, Self::State)>;

    /// Changes the named options while the queue is in use. May sleep.
    fn change(
        &self,
        module: &Self::Module,
        rtnl: &mut Self::Rtnl,
        qdisc: &mut RtnlQdisc<'_, Self>,
        options: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result;

    /// Handles a link that goes up or down, or changes its speed. May sleep.
    fn link_changed(
        &self,
        _rtnl: &mut Self::Rtnl,
        _qdisc: &mut RtnlQdisc<'_, Self>,
        _link: &mut Link<'_>,
    ) {
    }

    /// Ends the qdisc. May sleep; the queue is empty.
    fn destroy(&self, module: &Self::Module, rtnl: &mut Self::Rtnl, state: &mut Self::State);

    /// Returns whether packets with several segments are split before [`enqueue`](Self::enqueue).
    /// Locked.
    fn splits_segments(state: &Self::State) -> bool;

    /// Enqueues a packet. Locked.
    fn enqueue<'a>(&self, state: &mut Self::State, queue: Queue<'a>, packet: Packet<'a>)
        -> Verdict;

    /// Drops a packet that could not be split. Locked.
    fn drop_whole<'a>(
        &self,
        _state: &mut Self::State,
        queue: Queue<'a>,
        packet: Packet<'a>,
    ) -> Verdict {
        queue.drop_packet(packet, DropReason::Other)
    }

    /// Returns a packet, or none for now. Locked. If [`Queue::must_give`], it must not drop its
    /// last packet and return none: `drr`, `ets` and `hfsc` would forget their other classes until
    /// the next packet, and `qfq` would follow a null pointer.
    fn dequeue<'a>(&self, state: &mut Self::State, queue: Queue<'a>) -> Option<Packet<'a>>;

    /// Resets the state, after the queue is emptied and the watchdog stopped. Purges
    /// [`PacketList`]s. Locked.
    fn reset(&self, state: &mut Self::State);

    /// Writes the options of [`init`](Self::init). Not locked; may sleep.
    fn dump(&self, rtnl: &Self::Rtnl, message: &mut Message<'_>) -> Result;

    /// Returns the statistics. Not locked; may sleep.
    fn stats(&self, rtnl: &Self::Rtnl, qdisc: &mut RtnlQdisc<'_, Self>) -> Self::Stats;
}

/// Link of a device: one request to the driver for all qdiscs.
pub(crate) struct Link<'a> {
    device: &'a Device<'a>,
    bytes_per_s: Option<Option<u64>>,
}

impl Link<'_> {
    /// [`Device::link_bytes_per_s`], cached.
    pub(crate) fn bytes_per_s(&mut self) -> Option<u64> {
        let device = self.device;
        *self
            .bytes_per_s
            .get_or_insert_with(|| device.link_bytes_per_s())
    }
}

/// Calls the qdiscs of a device when its link changes.
///
/// # Invariants
///
/// `ops` is that of an [`Ops<T>`].
struct LinkNotifier<T: Qdisc> {
    ops: *const bindings::Qdisc_ops,
    _qdiscs: PhantomData<T>,
}

// SAFETY: C compares the pointer with others, and no more.
unsafe impl<T: Qdisc> Send for LinkNotifier<T> {}
// SAFETY: As above.
unsafe impl<T: Qdisc> Sync for LinkNotifier<T> {}

impl<T: Qdisc> netdev::Notifier for LinkNotifier<T> {
    fn event(&self, device: &Device<'_>, event: Event) {
        if matches!(event, Event::Up | Event::Change) {
            let f = Some(VTable::<T>::link_changed as unsafe extern "C" fn(_, _));
            let mut link = Link {
                device,
                bytes_per_s: None,
            };
            let data = ptr::from_mut(&mut link).cast();
            // SAFETY: By the type invariants the qdiscs that C finds are of `T`; RTNL is held, and
            // `link` is for these calls.
            unsafe { bindings::xdc_qdisc_for_each(device.as_ptr(), self.ops, f, data) }
        }
    }
}

/// A registered discipline; unregistered on drop.
///
/// # Invariants
///
/// `ops` is registered.
pub(crate) struct Registration<T: Qdisc> {
    /// Dropped before `ops`.
    _link: netdev::Registration<LinkNotifier<T>>,
    ops: Pin<KBox<Ops<T>>>,
}

// SAFETY: `T::Module` is `Send` and `Sync`, and the rest is C's, which locks it.
unsafe impl<T: Qdisc> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Qdisc> Sync for Registration<T> {}

impl<T: Qdisc> Registration<T> {
    /// Registers the discipline; `module` is shared by its qdiscs.
    pub(crate) fn new(module: T::Module) -> Result<Self> {
        const {
            // IFNAMSIZ, with the NUL.
            assert!(T::NAME.to_bytes().len() < 16);
            // qdisc_priv() is aligned to at least 64; a larger alignment would have to be
            // requested.
            assert!(align_of::<Private<T>>() <= 64);
        }
        // On the heap, because C links it into a list.
        let ops = KBox::pin(
            Ops {
                ops: Opaque::new(VTable::<T>::ops()),
                module,
            },
            GFP_KERNEL,
        )?;
        // Finds no qdisc yet.
        let link = netdev::Registration::new(LinkNotifier {
            ops: ops.ops.get(),
            _qdiscs: PhantomData,
        })?;
        // Last, because from then on there may be qdiscs, and so no way back.
        // SAFETY: `ops` is complete, writable, and stays where it is until
        // `drop` has unregistered it.
        to_result(unsafe { bindings::register_qdisc(ops.ops.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self { _link: link, ops })
    }
}

impl<T: Qdisc> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. The module's owner reference keeps us
        // from here while there is a qdisc.
        unsafe { bindings::unregister_qdisc(self.ops.ops.get()) }
    }
}
