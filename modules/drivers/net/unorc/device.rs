// SPDX-License-Identifier: GPL-2.0

//! Network devices whose packets go to peers over UDP.
//!
//! A module implements [`Tunnel`] and keeps a [`Registration`]; `ip link add type KIND` creates a device, and
//! each peer of a device that is up has a [`Session`] and several [`Channel`]s, with a lock each. The packets
//! that a callback sends or delivers leave once the lock is released.
//!
//! C headers: `include/net/udp_tunnel.h`, `include/net/rtnetlink.h`

use super::bindings;
use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::{self, NonNull},
    slice,
};
use kernel::{error::to_result, ffi::c_char, prelude::*, types::Opaque};

/// Length of the module's header before each packet.
pub(crate) const HEADER_BYTES: usize = bindings::XDC_TUNNEL_HEADER as usize;

/// Settings of a device.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Length of the longest packet.
    pub(crate) mtu: u16,
    pub(crate) data: u8,
    pub(crate) parity: u8,
    pub(crate) paths: u8,
    pub(crate) freeze: u8,
    pub(crate) timer_us: u32,
    pub(crate) flush_us: u32,
    pub(crate) channels: u8,
    pub(crate) window: u16,
}

impl Settings {
    /// # Safety
    ///
    /// `config` is one.
    unsafe fn read(config: *const bindings::xdc_tunnel_config) -> Self {
        // SAFETY: By the safety requirements.
        let config = unsafe { &*config };
        Self {
            mtu: config.mtu,
            data: config.data,
            parity: config.parity,
            paths: config.paths,
            freeze: config.freeze,
            timer_us: config.timer_us,
            flush_us: config.flush_us,
            channels: config.channels,
            window: config.window,
        }
    }
}

/// A packet.
///
/// # Invariants
///
/// `skb` is ours alone, and linear.
pub(crate) struct Packet {
    skb: NonNull<bindings::sk_buff>,
}

// SAFETY: A packet may be used and freed by any CPU.
unsafe impl Send for Packet {}

impl Packet {
    /// # Safety
    ///
    /// `skb` is NULL or a linear packet that is ours now.
    unsafe fn from_raw(skb: *mut bindings::sk_buff) -> Option<Self> {
        // INVARIANT: By the safety requirements.
        NonNull::new(skb).map(|skb| Self { skb })
    }

    fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.skb.as_ptr();
        core::mem::forget(self);
        skb
    }

    /// Returns all bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: By the type invariants.
        let data = unsafe { bindings::xdc_tunnel_bytes(self.skb.as_ptr(), &mut len) };
        // SAFETY: The packet is linear, so that many bytes are there; they stay while `self` is borrowed.
        // No code writes to them: TCP's own copies are not written to, and deliver_one() delivers none of
        // ours.
        unsafe { slice::from_raw_parts(data, len as usize) }
    }

    /// Returns all bytes for writing; none if the packet has copies.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariants.
        if unsafe { bindings::xdc_tunnel_is_shared(self.skb.as_ptr()) } {
            return &mut [];
        }
        let mut len = 0;
        // SAFETY: By the type invariants.
        let data = unsafe { bindings::xdc_tunnel_bytes(self.skb.as_ptr(), &mut len) };
        // SAFETY: As in `bytes`, and no other code has its bytes.
        unsafe { slice::from_raw_parts_mut(data, len as usize) }
    }

    /// Trims to at most `len` bytes from `start` on.
    pub(crate) fn cut(&mut self, start: usize, len: usize) {
        let number = |n: usize| c_uint::try_from(n).unwrap_or(c_uint::MAX);
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_tunnel_cut(self.skb.as_ptr(), number(start), number(len)) }
    }
}

impl Drop for Packet {
    // Inline, so that modules without a tunnel, which lack the wrapper, do not contain it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants; `self` is no more.
        unsafe { bindings::xdc_tunnel_free(self.skb.as_ptr()) }
    }
}

/// Output of a callback.
///
/// # Invariants
///
/// `out` is C's, for the time of the callback, in which the session or the channel is locked.
pub(crate) struct Decisions<'a> {
    out: *mut bindings::xdc_tunnel_out,
    _callback: PhantomData<&'a ()>,
}

impl<'a> Decisions<'a> {
    /// # Safety
    ///
    /// As the type invariants say.
    unsafe fn from_raw(out: *mut bindings::xdc_tunnel_out) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            out,
            _callback: PhantomData,
        }
    }

    /// Returns the device, for tracepoints.
    #[inline(always)]
    pub(super) fn device(&self) -> *const bindings::net_device {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_tunnel_device(self.out) }
    }

    /// Returns a packet of zeros.
    pub(crate) fn make(&mut self, len: usize) -> Option<Packet> {
        let len = u16::try_from(len).ok()?;
        // SAFETY: By the type invariants; what C makes is linear.
        unsafe { Packet::from_raw(bindings::xdc_tunnel_make(self.out, len.into())) }
    }

    /// Returns a packet with the same bytes. Neither may be written to afterwards.
    pub(crate) fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        // SAFETY: By the type invariants; a clone of what is linear is linear.
        unsafe { Packet::from_raw(bindings::xdc_tunnel_copy(packet.skb.as_ptr())) }
    }

    /// Sends to the peer, from UDP port `port`. `is_capable`: ECN capable.
    pub(crate) fn send(
        &mut self,
        packet: Packet,
        header: &[u8; HEADER_BYTES],
        port: u16,
        is_capable: bool,
    ) {
        // SAFETY: By the type invariants; the packet is C's now, and C copies the header.
        unsafe {
            bindings::xdc_tunnel_send(
                self.out,
                packet.into_raw(),
                header.as_ptr(),
                port,
                is_capable,
            )
        }
    }

    /// Takes back a packet of the stack that waited for a session.
    pub(crate) fn again(&mut self, packet: Packet) {
        // SAFETY: By the type invariants; the packet is C's now.
        unsafe { bindings::xdc_tunnel_again(self.out, packet.into_raw()) }
    }

    /// Delivers to the stack. `is_marked`: the packet arrived with a CE mark.
    pub(crate) fn deliver(&mut self, packet: Packet, is_marked: bool) {
        // SAFETY: By the type invariants; the packet is C's now.
        unsafe { bindings::xdc_tunnel_deliver(self.out, packet.into_raw(), is_marked) }
    }

    /// Adds to a counter.
    pub(crate) fn count(&mut self, counter: usize, n: u64) {
        let counter = c_uint::try_from(counter).unwrap_or(c_uint::MAX);
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_tunnel_count(self.out, counter, n) }
    }
}

/// The session with a peer. Callbacks run with BH off, one at a time, and return the time of the next `poll`,
/// in us; 0 = none.
pub(crate) trait Session: Sized + Send + 'static {
    /// Returns the tag of this end, never 0.
    fn mine(&self) -> u64;
    /// Returns the peer's tag; 0 = no session.
    fn theirs(&self) -> u64;
    /// Handles a packet from the stack, without a session.
    fn wait(&mut self, decisions: &mut Decisions<'_>, packet: Packet, now_us: u64) -> u64;
    /// Handles a HELLO without its header.
    fn hello(&mut self, decisions: &mut Decisions<'_>, packet: Packet, now_us: u64) -> u64;
    /// Notes a packet with another tag.
    fn stranger(&mut self, decisions: &mut Decisions<'_>, now_us: u64) -> u64;
    /// Requests a session.
    fn ask(&mut self, decisions: &mut Decisions<'_>, now_us: u64) -> u64;
    /// Handles the due time.
    fn poll(&mut self, decisions: &mut Decisions<'_>, now_us: u64) -> u64;
}

/// A channel of a peer. Callbacks are as in [`Session`]; `theirs` is the peer's tag, 0 = no session.
pub(crate) trait Channel: Sized + Send + 'static {
    /// Applies changed paths and times.
    fn change(&mut self, settings: &Settings);
    /// Handles a packet from the stack.
    fn transmit(
        &mut self,
        decisions: &mut Decisions<'_>,
        packet: Packet,
        theirs: u64,
        now_us: u64,
    ) -> u64;
    /// Handles a packet from the peer's UDP port.
    fn receive(
        &mut self,
        decisions: &mut Decisions<'_>,
        packet: (Packet, u16, bool),
        theirs: u64,
        now_us: u64,
    ) -> u64;
    /// Handles the due time.
    fn poll(&mut self, decisions: &mut Decisions<'_>, theirs: u64, now_us: u64) -> u64;
}

/// A kind of device.
pub(crate) trait Tunnel: 'static {
    /// Kind of the link for `ip link add type`: the module's name.
    const KIND: &'static CStr;
    /// Names of the counters.
    const COUNTERS: &'static [&'static CStr];
    /// Sessions.
    type Session: Session;
    /// Channels.
    type Channel: Channel;

    /// Returns the reason if a device cannot have these settings.
    fn check(settings: &Settings) -> Result<(), &'static CStr>;
    /// Creates a session. May sleep.
    fn open_session(settings: &Settings) -> Result<KBox<Self::Session>>;
    /// Creates a channel. May sleep.
    fn open_channel(settings: &Settings, number: u8) -> Result<KBox<Self::Channel>>;
}

/// C's operations and the data that they point to.
struct Table {
    c: Opaque<bindings::xdc_tunnel_ops>,
    counters: [*const c_char; bindings::XDC_TUNNEL_COUNTERS as usize],
}

/// A registered kind of link; its devices are removed on drop.
///
/// # Invariants
///
/// `table` is registered and complete.
pub(crate) struct Registration<T: Tunnel> {
    table: Pin<KBox<Table>>,
    _tunnel: PhantomData<fn() -> T>,
}

// SAFETY: What `table` points to is static and constant.
unsafe impl<T: Tunnel> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Tunnel> Sync for Registration<T> {}

impl<T: Tunnel> Registration<T> {
    /// Registers the kind. EBUSY: the module has one already.
    pub(crate) fn new() -> Result<Self> {
        const { assert!(T::COUNTERS.len() <= bindings::XDC_TUNNEL_COUNTERS as usize) };
        let mut counters = [ptr::null(); bindings::XDC_TUNNEL_COUNTERS as usize];
        for (slot, name) in counters.iter_mut().zip(T::COUNTERS) {
            *slot = name.as_char_ptr();
        }
        let table = KBox::pin(
            Table {
                c: Opaque::zeroed(),
                counters,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: No other code knows it yet; `counters` stays beside it.
        unsafe {
            *table.c.get() = bindings::xdc_tunnel_ops {
                kind: T::KIND.as_char_ptr(),
                counters: table.counters.as_ptr(),
                counter_count: T::COUNTERS.len() as c_uint,
                check: Some(Self::check),
                open_session: Some(Self::open_session),
                close_session: Some(Self::close::<T::Session>),
                theirs: Some(Self::theirs),
                wait: Some(Self::wait),
                hello: Some(Self::hello),
                stranger: Some(Self::stranger),
                ask: Some(Self::ask),
                poll_session: Some(Self::poll_session),
                open_channel: Some(Self::open_channel),
                close_channel: Some(Self::close::<T::Channel>),
                change: Some(Self::change),
                transmit: Some(Self::transmit),
                receive: Some(Self::receive),
                poll: Some(Self::poll),
            };
        }
        // SAFETY: `table` is complete, and stays where it is until `drop` has unregistered it.
        to_result(unsafe { bindings::xdc_tunnel_register(table.c.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self {
            table,
            _tunnel: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by C only, with a config.
    unsafe extern "C" fn check(config: *const bindings::xdc_tunnel_config) -> *const c_char {
        // SAFETY: By the safety requirements.
        match T::check(unsafe { &Settings::read(config) }) {
            Ok(()) => ptr::null(),
            Err(why) => why.as_char_ptr(),
        }
    }

    /// # Safety
    ///
    /// Called by C only, with a config and a place for the tag, and may sleep.
    unsafe extern "C" fn open_session(
        config: *const bindings::xdc_tunnel_config,
        mine: *mut u64,
    ) -> *mut c_void {
        // SAFETY: By the safety requirements.
        let Ok(session) = T::open_session(unsafe { &Settings::read(config) }) else {
            return ptr::null_mut();
        };
        // SAFETY: By the safety requirements.
        unsafe { *mine = session.mine() };
        KBox::into_raw(session).cast()
    }

    /// # Safety
    ///
    /// Called by C only, with a config, and may sleep.
    unsafe extern "C" fn open_channel(
        config: *const bindings::xdc_tunnel_config,
        number: u8,
    ) -> *mut c_void {
        // SAFETY: By the safety requirements.
        match T::open_channel(unsafe { &Settings::read(config) }, number) {
            Ok(channel) => KBox::into_raw(channel).cast(),
            Err(_) => ptr::null_mut(),
        }
    }

    /// # Safety
    ///
    /// Called by C only, once, with what the function that opens `S` returned, when it is not used any more.
    unsafe extern "C" fn close<S>(state: *mut c_void) {
        // SAFETY: By the safety requirements it came from `KBox::into_raw`.
        drop(unsafe { KBox::from_raw(state.cast::<S>()) });
    }

    /// Calls `f` with a locked session or channel.
    ///
    /// # Safety
    ///
    /// `state` is what the function that opens `S` returned, locked, and `out` is for this callback.
    unsafe fn with<S>(
        state: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        f: impl FnOnce(&mut S, &mut Decisions<'_>) -> u64,
    ) -> u64 {
        // SAFETY: By the safety requirements no other code has it.
        let state = unsafe { &mut *state.cast::<S>() };
        // SAFETY: By the safety requirements.
        let mut decisions = unsafe { Decisions::from_raw(out) };
        f(state, &mut decisions)
    }

    /// Calls `f` with a packet, too.
    ///
    /// # Safety
    ///
    /// As [`Self::with`]; `skb` is linear and the callee's.
    unsafe fn with_packet<S>(
        state: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        skb: *mut bindings::sk_buff,
        f: impl FnOnce(&mut S, &mut Decisions<'_>, Packet) -> u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        let Some(packet) = (unsafe { Packet::from_raw(skb) }) else {
            return 0;
        };
        // SAFETY: By the safety requirements.
        unsafe { Self::with(state, out, |state, decisions| f(state, decisions, packet)) }
    }

    /// # Safety
    ///
    /// Called by C only, with a session, locked.
    unsafe extern "C" fn theirs(session: *const c_void) -> u64 {
        // SAFETY: By the safety requirements no other code writes to it.
        unsafe { &*session.cast::<T::Session>() }.theirs()
    }

    /// # Safety
    ///
    /// As [`Self::with_packet`].
    unsafe extern "C" fn wait(
        session: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        skb: *mut bindings::sk_buff,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with_packet(session, out, skb, |s: &mut T::Session, d, p| {
                s.wait(d, p, now_us)
            })
        }
    }

    /// # Safety
    ///
    /// As [`Self::wait`].
    unsafe extern "C" fn hello(
        session: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        skb: *mut bindings::sk_buff,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with_packet(session, out, skb, |s: &mut T::Session, d, p| {
                s.hello(d, p, now_us)
            })
        }
    }

    /// # Safety
    ///
    /// As [`Self::with`].
    unsafe extern "C" fn stranger(
        session: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(session, out, |s: &mut T::Session, d| s.stranger(d, now_us)) }
    }

    /// # Safety
    ///
    /// As [`Self::with`].
    unsafe extern "C" fn ask(
        session: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(session, out, |s: &mut T::Session, d| s.ask(d, now_us)) }
    }

    /// # Safety
    ///
    /// As [`Self::with`].
    unsafe extern "C" fn poll_session(
        session: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe { Self::with(session, out, |s: &mut T::Session, d| s.poll(d, now_us)) }
    }

    /// # Safety
    ///
    /// Called by C only, with a channel, locked, and a config.
    unsafe extern "C" fn change(channel: *mut c_void, config: *const bindings::xdc_tunnel_config) {
        // SAFETY: By the safety requirements no other code has it.
        let channel = unsafe { &mut *channel.cast::<T::Channel>() };
        // SAFETY: By the safety requirements.
        channel.change(unsafe { &Settings::read(config) });
    }

    /// # Safety
    ///
    /// As [`Self::with_packet`].
    unsafe extern "C" fn transmit(
        channel: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        skb: *mut bindings::sk_buff,
        theirs: u64,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with_packet(channel, out, skb, |c: &mut T::Channel, d, p| {
                c.transmit(d, p, theirs, now_us)
            })
        }
    }

    /// # Safety
    ///
    /// As [`Self::transmit`].
    unsafe extern "C" fn receive(
        channel: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        skb: *mut bindings::sk_buff,
        port: u16,
        is_marked: bool,
        theirs: u64,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with_packet(channel, out, skb, |c: &mut T::Channel, d, p| {
                c.receive(d, (p, port, is_marked), theirs, now_us)
            })
        }
    }

    /// # Safety
    ///
    /// As [`Self::with`].
    unsafe extern "C" fn poll(
        channel: *mut c_void,
        out: *mut bindings::xdc_tunnel_out,
        theirs: u64,
        now_us: u64,
    ) -> u64 {
        // SAFETY: By the safety requirements.
        unsafe {
            Self::with(channel, out, |c: &mut T::Channel, d| {
                c.poll(d, theirs, now_us)
            })
        }
    }
}

impl<T: Tunnel> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C waits until nothing of it runs.
        unsafe { bindings::xdc_tunnel_unregister() }
    }
}
