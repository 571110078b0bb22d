// SPDX-License-Identifier: GPL-2.0

//! A network between links of kind `fabric`.
//!
//! A module implements [`Network`] and keeps a [`Registration`]. Generic netlink creates one network per
//! namespace, and sets its switches and ports; links deliver packets to it.
//!
//! C header: `drivers/net/fabric/fabric.h`

use super::{
    bindings,
    netlink::{Extack, Nest},
};
use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::{self, addr_of_mut, NonNull},
    slice,
};
use kernel::{error::to_result, prelude::*};

pub(crate) use bindings::{
    fabric_stats as Stats, tc_phantom_xstats as QueueStats, xdc_fabric_counts as Counts,
    xdc_fabric_reason as Reason, xdc_fabric_size as Size,
};

/// A packet in the network.
///
/// # Invariants
///
/// `skb` is ours alone, on no list, has linear IP headers, and a control block of the network.
pub(crate) struct Packet {
    skb: NonNull<bindings::sk_buff>,
}

// SAFETY: A packet may be used and freed by any CPU.
unsafe impl Send for Packet {}

impl Packet {
    fn into_raw(self) -> *mut bindings::sk_buff {
        core::mem::ManuallyDrop::new(self).skb.as_ptr()
    }

    /// Returns the control block.
    #[inline]
    pub(crate) fn cb(&self) -> &bindings::xdc_fabric_cb {
        // SAFETY: By the type invariants; the block is large enough, as C asserts, and aligned.
        unsafe { &*addr_of_mut!((*self.skb.as_ptr()).cb).cast() }
    }

    /// Returns the control block.
    #[inline]
    pub(crate) fn cb_mut(&mut self) -> &mut bindings::xdc_fabric_cb {
        // SAFETY: As in `cb`.
        unsafe { &mut *addr_of_mut!((*self.skb.as_ptr()).cb).cast() }
    }

    /// Returns a hash of the flow, from 0 to 2^31 - 1.
    #[inline]
    pub(crate) fn hash(&self, seed: u32) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_fabric_hash(self.skb.as_ptr(), seed) }
    }

    /// Returns DSCP and ECN.
    #[inline]
    pub(crate) fn dsfield(&self) -> Option<u8> {
        // SAFETY: By the type invariants.
        u8::try_from(unsafe { bindings::xdc_skb_dsfield(self.skb.as_ptr()) }).ok()
    }

    /// Returns whether the packet is a TCP ACK without payload.
    #[inline]
    pub(crate) fn is_pure_ack(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_is_pure_ack(self.skb.as_ptr()) }
    }

    /// Sets CE if the packet is ECT.
    #[inline]
    pub(crate) fn set_ce(&mut self) -> bindings::xdc_ecn {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_skb_set_ce(self.skb.as_ptr()) }
    }
}

impl Drop for Packet {
    // Inline, so that modules without a network, which lack the wrapper, do not contain it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants; `self` is no more.
        unsafe { bindings::xdc_fabric_free(self.skb.as_ptr()) }
    }
}

/// Packets in order.
///
/// # Invariants
///
/// The packets from `head` to `tail` are linked by `next`; both are null if there is none. Apart from that
/// they are as a [`Packet`].
pub(crate) struct PacketQueue {
    head: *mut bindings::sk_buff,
    tail: *mut bindings::sk_buff,
}

// SAFETY: As for a packet.
unsafe impl Send for PacketQueue {}

impl Default for PacketQueue {
    fn default() -> Self {
        // INVARIANT: Without packets.
        Self {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
        }
    }
}

impl PacketQueue {
    /// Returns the link field of a packet.
    ///
    /// # Safety
    ///
    /// `skb` is valid.
    #[inline]
    unsafe fn next_of(skb: *mut bindings::sk_buff) -> *mut *mut bindings::sk_buff {
        // SAFETY: By the safety requirements.
        unsafe { addr_of_mut!((*skb).__bindgen_anon_1.__bindgen_anon_1.next) }
    }

    /// Appends a packet.
    #[inline]
    pub(crate) fn push(&mut self, packet: Packet) {
        let skb = packet.into_raw();
        // SAFETY: A packet is valid.
        unsafe { *Self::next_of(skb) = ptr::null_mut() };
        // INVARIANT: Linked behind the last packet.
        match self.tail.is_null() {
            true => self.head = skb,
            // SAFETY: By the type invariants.
            false => unsafe { *Self::next_of(self.tail) = skb },
        }
        self.tail = skb;
    }

    /// Removes the first packet.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let skb = NonNull::new(self.head)?;
        // SAFETY: By the type invariants.
        let next = unsafe { Self::next_of(self.head).replace(ptr::null_mut()) };
        // INVARIANT: The rest is linked.
        self.head = next;
        if next.is_null() {
            self.tail = ptr::null_mut();
        }
        // INVARIANT: On no list any more.
        Some(Packet { skb })
    }

    /// Returns the control block of the first packet.
    #[inline]
    pub(crate) fn first(&self) -> Option<&bindings::xdc_fabric_cb> {
        let skb = NonNull::new(self.head)?;
        // SAFETY: By the type invariants; as in `Packet::cb`.
        Some(unsafe { &*addr_of_mut!((*skb.as_ptr()).cb).cast() })
    }
}

impl Drop for PacketQueue {
    // Inline, as above.
    #[inline]
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// The way out of the network.
///
/// # Invariants
///
/// `out` is C's network, whose lock is held.
pub(crate) struct Exit<'a> {
    out: *mut bindings::xdc_fabric,
    _callback: PhantomData<&'a ()>,
}

impl Exit<'_> {
    /// Delivers a packet to a link.
    #[inline]
    pub(crate) fn deliver(&mut self, device: u32, packet: Packet) {
        // SAFETY: By the type invariants; the packet is C's now.
        unsafe { bindings::xdc_fabric_deliver(self.out, device, packet.into_raw()) }
    }

    /// Drops a packet.
    #[inline]
    pub(crate) fn drop(&mut self, packet: Packet, reason: Reason) {
        // SAFETY: By the type invariants; the packet is C's now.
        unsafe { bindings::xdc_fabric_drop(self.out, packet.into_raw(), reason) }
    }
}

/// A switch as netlink describes it. Ways and ports exist.
pub(crate) struct SwitchSettings<'a>(&'a bindings::xdc_fabric_switch);

impl SwitchSettings<'_> {
    /// Returns the seed of the hash.
    pub(crate) fn seed(&self) -> u32 {
        self.0.seed
    }

    /// Returns whether each packet chooses a port at random.
    pub(crate) fn is_spraying(&self) -> bool {
        self.0.is_spraying
    }

    /// Returns the number of the way to each host.
    pub(crate) fn table(&self) -> &[u16] {
        // SAFETY: C gives a pointer to as many elements.
        unsafe { array(self.0.table, self.0.table_len) }
    }

    /// Returns the first index in `hops` of each way, and their number at the end.
    pub(crate) fn starts(&self) -> &[u32] {
        // SAFETY: As above.
        unsafe { array(self.0.starts, self.0.starts_len) }
    }

    /// Returns the ports of the ways.
    pub(crate) fn hops(&self) -> &[u32] {
        // SAFETY: As above.
        unsafe { array(self.0.hops, self.0.hops_len) }
    }
}

/// # Safety
///
/// `start` points to `len` elements, if there are any, for the lifetime that the caller chooses. Attributes
/// are aligned to 4 bytes.
unsafe fn array<'a, T>(start: *const T, len: u32) -> &'a [T] {
    match len {
        0 => &[],
        // SAFETY: By the safety requirements.
        _ => unsafe { slice::from_raw_parts(start, len as usize) },
    }
}

/// A port as netlink describes it.
pub(crate) struct PortSettings<'a>(&'a bindings::xdc_fabric_port);

impl<'a> PortSettings<'a> {
    /// Returns the numbers.
    pub(crate) fn numbers(&self) -> &'a bindings::xdc_fabric_port {
        self.0
    }

    /// Returns the options of the queue.
    pub(crate) fn queue(&self) -> Option<Nest<'a>> {
        // SAFETY: Not null, so it is an attribute of the request, which outlives `self`.
        (!self.0.queue.is_null()).then(|| unsafe { Nest::from_raw(self.0.queue) })
    }
}

/// A network. `arrive`, `run` and `apply_port` return the time of the next event, `u64::MAX` = none.
pub(crate) trait Network: Sized + Send + 'static {
    /// Settings of a switch.
    type Switch: Send;
    /// Settings of a port.
    type Port: Send;

    /// Creates a network. `limits_bytes` has the size of each shared buffer.
    fn open(size: &Size, limits_bytes: &[u64]) -> Result<KBox<Self>>;
    /// Converts the settings of a switch.
    fn make_switch(settings: &SwitchSettings<'_>) -> Result<KBox<Self::Switch>>;
    /// Swaps the settings of a switch.
    fn apply_switch(&mut self, id: u32, settings: &mut Self::Switch);
    /// Converts the settings of a port.
    fn make_port(settings: &PortSettings<'_>, extack: &Extack<'_>) -> Result<KBox<Self::Port>>;
    /// Applies the settings of a port.
    fn apply_port(&mut self, id: u32, settings: &Self::Port, now_ns: u64) -> u64;
    /// A packet arrives at a switch.
    fn arrive(&mut self, exit: &mut Exit<'_>, id: u32, packet: Packet, now_ns: u64) -> u64;
    /// Executes the events up to now.
    fn run(&mut self, exit: &mut Exit<'_>, now_ns: u64) -> u64;
    /// Returns the counters of a switch.
    fn count_switch(&self, id: u32) -> Counts;
    /// Returns the counters of a port, and of its queue.
    fn count_port(&self, id: u32, now_ns: u64) -> (Stats, Option<QueueStats>);
}

/// A registered network; links and networks are removed on drop.
pub(crate) struct Registration<T: Network>(PhantomData<fn() -> T>);

/// Converts a result to a pointer as C's ERR_PTR().
fn to_raw<T>(made: Result<KBox<T>>) -> *mut c_void {
    match made {
        Ok(made) => KBox::into_raw(made).cast(),
        Err(error) => ptr::without_provenance_mut(error.to_errno() as isize as usize),
    }
}

impl<T: Network> Registration<T> {
    const OPS: &'static bindings::xdc_fabric_ops = &bindings::xdc_fabric_ops {
        open: Some(Self::open),
        close: Some(Self::close::<T>),
        make_switch: Some(Self::make_switch),
        apply_switch: Some(Self::apply_switch),
        free_switch: Some(Self::close::<T::Switch>),
        make_port: Some(Self::make_port),
        apply_port: Some(Self::apply_port),
        free_port: Some(Self::close::<T::Port>),
        arrive: Some(Self::arrive),
        run: Some(Self::run),
        count_switch: Some(Self::count_switch),
        count_port: Some(Self::count_port),
    };

    /// Registers the kind of link and the netlink family. EBUSY: the module has one already.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The operations are static.
        to_result(unsafe { bindings::xdc_fabric_register(Self::OPS) })?;
        Ok(Self(PhantomData))
    }

    /// # Safety
    ///
    /// Called by C only, with as many limits as `size` has pools, and may sleep.
    unsafe extern "C" fn open(size: *const Size, limits: *const u64) -> *mut c_void {
        // SAFETY: By the safety requirements.
        let (size, limits) = unsafe { (&*size, array(limits, (*size).pools)) };
        match T::open(size, limits) {
            Ok(network) => KBox::into_raw(network).cast(),
            Err(_) => ptr::null_mut(),
        }
    }

    /// # Safety
    ///
    /// Called by C only, once, with what a function returned that makes an `S`, when it is not used any more.
    unsafe extern "C" fn close<S>(object: *mut c_void) {
        // SAFETY: By the safety requirements it came from `KBox::into_raw`.
        drop(unsafe { KBox::from_raw(object.cast::<S>()) });
    }

    /// # Safety
    ///
    /// Called by C only, with a description, and may sleep.
    unsafe extern "C" fn make_switch(it: *const bindings::xdc_fabric_switch) -> *mut c_void {
        // SAFETY: By the safety requirements.
        to_raw(T::make_switch(&SwitchSettings(unsafe { &*it })))
    }

    /// # Safety
    ///
    /// Called by C only, with a locked network and what `make_switch` returned.
    unsafe extern "C" fn apply_switch(network: *mut c_void, id: u32, settings: *mut c_void) {
        // SAFETY: By the safety requirements no other code has them.
        let (network, settings) = unsafe {
            (
                &mut *network.cast::<T>(),
                &mut *settings.cast::<T::Switch>(),
            )
        };
        network.apply_switch(id, settings);
    }

    /// # Safety
    ///
    /// Called by C only, with a description, and may sleep.
    unsafe extern "C" fn make_port(
        it: *const bindings::xdc_fabric_port,
        extack: *mut bindings::netlink_ext_ack,
    ) -> *mut c_void {
        // SAFETY: By the safety requirements.
        let (it, extack) = unsafe { (&*it, Extack::from_raw(extack)) };
        to_raw(T::make_port(&PortSettings(it), &extack))
    }

    /// # Safety
    ///
    /// Called by C only, with a locked network and what `make_port` returned.
    unsafe extern "C" fn apply_port(
        network: *mut c_void,
        id: u32,
        settings: *const c_void,
        now_ns: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements no other code has them.
        let (network, settings) =
            unsafe { (&mut *network.cast::<T>(), &*settings.cast::<T::Port>()) };
        network.apply_port(id, settings, now_ns)
    }

    /// # Safety
    ///
    /// Called by C only, with a locked network and a packet of it, which is the callee's.
    unsafe extern "C" fn arrive(
        network: *mut c_void,
        out: *mut bindings::xdc_fabric,
        id: u32,
        skb: *mut bindings::sk_buff,
        now_ns: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements no other code has it.
        let network = unsafe { &mut *network.cast::<T>() };
        let Some(skb) = NonNull::new(skb) else {
            return u64::MAX;
        };
        // INVARIANT: By the safety requirements, both.
        let (packet, mut exit) = (
            Packet { skb },
            Exit {
                out,
                _callback: PhantomData,
            },
        );
        network.arrive(&mut exit, id, packet, now_ns)
    }

    /// # Safety
    ///
    /// Called by C only, with a locked network.
    unsafe extern "C" fn run(
        network: *mut c_void,
        out: *mut bindings::xdc_fabric,
        now_ns: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements no other code has it.
        let network = unsafe { &mut *network.cast::<T>() };
        // INVARIANT: By the safety requirements.
        let mut exit = Exit {
            out,
            _callback: PhantomData,
        };
        network.run(&mut exit, now_ns)
    }

    /// # Safety
    ///
    /// Called by C only, with a locked network and room for the result.
    unsafe extern "C" fn count_switch(network: *mut c_void, id: u32, counts: *mut Counts) {
        // SAFETY: By the safety requirements.
        unsafe { *counts = (*network.cast::<T>()).count_switch(id) };
    }

    /// # Safety
    ///
    /// As `count_switch`.
    unsafe extern "C" fn count_port(
        network: *mut c_void,
        id: u32,
        stats: *mut Stats,
        xstats: *mut QueueStats,
        now_ns: u64,
    ) -> bool {
        // SAFETY: By the safety requirements.
        let (port, queue) = unsafe { &*network.cast::<T>() }.count_port(id, now_ns);
        // SAFETY: By the safety requirements.
        unsafe { *stats = port };
        match queue {
            Some(queue) => {
                // SAFETY: By the safety requirements.
                unsafe { *xstats = queue };
                true
            }
            None => false,
        }
    }
}

impl<T: Network> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has registered the operations. C waits until nothing of it runs.
        unsafe { bindings::xdc_fabric_unregister() }
    }
}
