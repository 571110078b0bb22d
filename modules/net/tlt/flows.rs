// SPDX-License-Identifier: GPL-2.0

//! State of a module per TCP connection, by addresses and ports, and deferred work that runs after TCP has
//! processed the packet that requested it.
//!
//! A hook runs before TCP sees a packet, mostly without the socket's lock. It changes the state and requests
//! [`FlowOps::poll`], which a softirq calls on the same processor after TCP has processed the packet. No
//! pointer refers to a socket, so its end needs no notice: a state without a connection is removed within
//! seconds.

use super::{
    bindings,
    conn::{Found, Locked},
    netfilter::Segment,
    seq::Line,
    sysctl::Net,
};
use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::{align_of, size_of},
    ops::{Deref, DerefMut},
    ptr,
};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    types::Opaque,
};

/// Reason for an ACK that the module made TCP send. Modules define the meaning of the numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Errand {
    /// TCP's own ACK.
    None = 0,
    /// An owed ACK of any content.
    Ack = 1,
    /// An ACK to be distinguished from others.
    Echo = 2,
    /// An ACK to become data: [`make_clock`](super::netfilter::Packet::make_clock).
    Clock = 3,
}

impl Errand {
    pub(super) fn from_raw(errand: u32) -> Self {
        match errand {
            1 => Self::Ack,
            2 => Self::Echo,
            3 => Self::Clock,
            _ => Self::None,
        }
    }
}

/// Operations of a module on its connections.
pub(crate) trait FlowOps: Send + Sync + 'static {
    /// State of a connection. `Copy`, because it is freed without a callback.
    type State: Copy + Default + Send;

    /// File in /proc/net, with a line per connection.
    const FILE: &'static CStr;
    /// Names of [`Self::show`]'s columns, separated by spaces.
    const COLUMNS: &'static CStr;

    /// Does the requested work, in a softirq. `conn` is None while the socket is in use. Returns the delay of
    /// the next call in us; 0 = none.
    fn poll(&self, net: &Net, flow: &Flow<'_, Self::State>, conn: Option<Locked<'_>>) -> u32;

    /// Handles the removal of a state.
    fn removed(&self, net: &Net);

    /// Writes a connection's line after the addresses.
    fn show(state: &Self::State, now_us: u64, line: &mut Line<'_>);
}

/// C's table and its owner.
#[repr(C)]
struct Table<T> {
    c: Opaque<bindings::xdc_flows>,
    ops: T,
}

/// Table of connections; all entries are freed on drop.
///
/// # Invariants
///
/// `table.c` is initialised.
pub(crate) struct Flows<T: FlowOps> {
    table: Pin<KBox<Table<T>>>,
}

// SAFETY: `T` is `Send` and `Sync`; the rest is C's, which locks it.
unsafe impl<T: FlowOps> Send for Flows<T> {}
// SAFETY: As above.
unsafe impl<T: FlowOps> Sync for Flows<T> {}

impl<T: FlowOps> Flows<T> {
    /// Creates the table. EBUSY: the module has one already.
    pub(crate) fn new(ops: T) -> Result<Self> {
        const {
            assert!(size_of::<T::State>() <= bindings::XDC_FLOW_STATE_WORDS as usize * 8);
            assert!(align_of::<T::State>() <= 8);
        }
        let table = KBox::pin(
            Table {
                c: Opaque::zeroed(),
                ops,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: No other code knows it yet.
        unsafe {
            (*table.c.get()).poll = Some(Self::poll);
            (*table.c.get()).removed = Some(Self::removed);
            (*table.c.get()).file = T::FILE.as_char_ptr();
            (*table.c.get()).columns = T::COLUMNS.as_char_ptr();
            (*table.c.get()).show = Some(Self::show);
        }
        // SAFETY: It stays where it is until `drop` has destroyed it.
        to_result(unsafe { bindings::xdc_flows_init(table.c.get()) })?;
        // INVARIANT: Just initialised.
        Ok(Self { table })
    }

    /// Returns the data shared by all connections.
    pub(crate) fn ops(&self) -> &T {
        &self.table.ops
    }

    /// Returns the locked state of the segment's connection, if any.
    #[inline]
    pub(crate) fn find(&self, net: &Net, segment: &Segment) -> Option<Held<'_, T::State>> {
        // SAFETY: By the type invariants; the namespace is alive.
        let flow =
            unsafe { bindings::xdc_flow_find(self.table.c.get(), net.as_ptr(), segment.raw()) };
        // SAFETY: C has locked it.
        (!flow.is_null()).then(|| unsafe { Held::from_raw(flow) })
    }

    /// Adds a state for `found`, the connection of a received segment. Returns EEXIST if it has one.
    pub(crate) fn add(
        &self,
        net: &Net,
        segment: &Segment,
        found: &Found,
        state: T::State,
    ) -> Result<Held<'_, T::State>> {
        // SAFETY: By the type invariants; C copies the state, whose size it gets.
        let flow = from_err_ptr(unsafe {
            bindings::xdc_flow_add(
                self.table.c.get(),
                net.as_ptr(),
                segment.raw(),
                found.as_ptr(),
                ptr::from_ref(&state).cast(),
                size_of::<T::State>() as c_uint,
            )
        })?;
        // SAFETY: C has locked it.
        Ok(unsafe { Held::from_raw(flow) })
    }

    /// Removes all states of a namespace. No other code may add any meanwhile. May sleep.
    pub(crate) fn flush(&self, net: &Net) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_flows_flush(self.table.c.get(), net.as_ptr()) }
    }

    /// # Safety
    ///
    /// Called by C only, with the `c` of a `Table<T>`, an entry of it, and its socket, locked.
    unsafe extern "C" fn poll(
        flows: *mut bindings::xdc_flows,
        flow: *mut bindings::xdc_flow,
        sk: *mut bindings::sock,
        busy: bool,
    ) -> u32 {
        // SAFETY: By the safety requirements; `c` is the first field.
        let ops = unsafe { &(*flows.cast::<Table<T>>()).ops };
        // SAFETY: A socket has a namespace.
        let net = unsafe { Net::from_raw((*sk).__sk_common.skc_net.net) };
        // INVARIANT: C has a reference for the time of this call.
        let flow = Flow {
            flow,
            _state: PhantomData,
        };
        // SAFETY: By the safety requirements, and the socket is not in use.
        let conn = (!busy).then(|| unsafe { Locked::from_raw(sk) });
        ops.poll(net, &flow, conn)
    }

    /// # Safety
    ///
    /// As [`Self::poll`].
    unsafe extern "C" fn removed(flows: *mut bindings::xdc_flows, net: *mut bindings::net) {
        // SAFETY: By the safety requirements; `c` is the first field.
        let ops = unsafe { &(*flows.cast::<Table<T>>()).ops };
        // SAFETY: Entries of a namespace go before it does.
        ops.removed(unsafe { Net::from_raw(net) });
    }

    /// # Safety
    ///
    /// Called by C only, with the state of an entry, which is locked, and the file that it writes to.
    unsafe extern "C" fn show(state: *const c_void, now_us: u64, seq: *mut bindings::seq_file) {
        // SAFETY: By the safety requirements.
        let mut line = unsafe { Line::from_raw(seq) };
        // SAFETY: By the safety requirements; `new` looked at size and alignment.
        T::show(unsafe { &*state.cast::<T::State>() }, now_us, &mut line);
    }
}

impl<T: FlowOps> Drop for Flows<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C waits until nothing of it runs.
        unsafe { bindings::xdc_flows_destroy(self.table.c.get()) }
    }
}

/// An unlocked entry.
///
/// # Invariants
///
/// `flow` is referenced for `'a`, and its state is an `S`.
pub(crate) struct Flow<'a, S> {
    flow: *mut bindings::xdc_flow,
    _state: PhantomData<&'a S>,
}

impl<S> Flow<'_, S> {
    /// Locks the entry. TCP must not be called while it is locked.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, S> {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_flow_lock(self.flow) };
        // SAFETY: Just locked.
        unsafe { Held::from_raw(self.flow) }
    }
}

/// A locked state; unlocked on drop.
///
/// # Invariants
///
/// `flow` is alive and locked by us, and `state` is its.
pub(crate) struct Held<'a, S> {
    flow: *mut bindings::xdc_flow,
    state: *mut S,
    _flows: PhantomData<&'a S>,
}

impl<S> Held<'_, S> {
    /// # Safety
    ///
    /// `flow`, whose state is an `S`, has just been locked for the caller.
    unsafe fn from_raw(flow: *mut bindings::xdc_flow) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            flow,
            // SAFETY: An entry that is locked is alive.
            state: unsafe { bindings::xdc_flow_state(flow) }.cast(),
            _flows: PhantomData,
        }
    }

    /// Requests [`FlowOps::poll`] after TCP has processed the packet in the hook.
    pub(crate) fn poll_later(&self) {
        // SAFETY: By the type invariants; softirqs are off while it is locked.
        unsafe { bindings::xdc_flow_queue(self.flow) }
    }

    /// Returns whether TCP has yet to process a packet of [`Self::poll_later`], so [`FlowOps::poll`] will be
    /// called again.
    pub(crate) fn is_pending(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_flow_is_pending(self.flow) }
    }

    /// Removes the entry.
    pub(crate) fn remove(self) {
        let flow = self.flow;
        core::mem::forget(self);
        // SAFETY: By the type invariants. This unlocks it; `self` is no more.
        unsafe { bindings::xdc_flow_remove(flow) }
    }
}

impl<S> Deref for Held<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: By the type invariants no other code reads or writes it.
        unsafe { &*self.state }
    }
}

impl<S> DerefMut for Held<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: By the type invariants no other code reads or writes it.
        unsafe { &mut *self.state }
    }
}

impl<S> Drop for Held<'_, S> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_flow_unlock(self.flow) }
    }
}
