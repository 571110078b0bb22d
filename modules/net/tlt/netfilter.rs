// SPDX-License-Identifier: GPL-2.0

//! Hooks in the packet path, in every network namespace.
//!
//! A module that examines the packets of a host's sockets implements [`Hooks`] and keeps a [`Registration`].
//! A hook gets a [`Packet`] and returns a [`Verdict`]; each way to make one consumes the packet.
//!
//! C header: `include/linux/netfilter.h`

use super::{
    bindings,
    conn::{Conn, Request},
    flows::Errand,
    sysctl::Net,
};
use core::{ffi::c_void, marker::PhantomData, mem::MaybeUninit, ptr};
use kernel::{error::to_result, prelude::*};

/// Hooks of a module.
///
/// Run under RCU, in a softirq or in the sender's context: they must not sleep.
pub(crate) trait Hooks: Send + Sync + 'static {
    /// Position among all hooks: the lowest number runs first.
    const PRIORITY: i32;

    /// Handles a packet for this host, before its protocol does.
    fn local_in<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a>;

    /// Handles a departing packet, local or forwarded. The TCP socket that sends it is locked, unless NFQUEUE
    /// delayed the packet.
    fn post_routing<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a>;

    /// Handles the end of a namespace, after the last hook call for its packets. May sleep.
    fn net_exit(&self, net: &Net);
}

/// Verdict on a packet. It has the packet's lifetime, so that no hook can return another packet's.
#[must_use]
pub(crate) struct Verdict<'a>(u32, PhantomData<&'a mut ()>);

/// A burst that was sent in two packets.
#[must_use]
pub(crate) struct Split<'a> {
    pub(crate) verdict: Verdict<'a>,
    /// A queue of this host was full. TCP does not know: errors are its only feedback.
    pub(crate) is_congested: bool,
}

/// A packet in a hook.
///
/// # Invariants
///
/// `skb` and `state` are the arguments of the hook, which runs for all of `'a`. The data of `skb` begin with
/// the IP header that `state.pf` says.
pub(crate) struct Packet<'a> {
    skb: *mut bindings::sk_buff,
    state: *const bindings::nf_hook_state,
    _hook: PhantomData<&'a mut ()>,
}

impl<'a> Packet<'a> {
    /// Parses the TCP segment; None if it is another protocol or a fragment.
    #[inline]
    pub(crate) fn segment(&self) -> Option<Segment> {
        let mut segment = MaybeUninit::uninit();
        // SAFETY: By the type invariants. `segment` has room.
        let is_segment =
            unsafe { bindings::xdc_nf_segment(self.skb, self.state, segment.as_mut_ptr()) };
        // SAFETY: C has written all of it.
        is_segment.then(|| Segment(unsafe { segment.assume_init() }))
    }

    /// Returns the sending connection.
    pub(crate) fn sender(&self) -> Option<Conn<'_>> {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_full_sock(self.skb, self.state) };
        // SAFETY: C returns a full TCP socket, which the packet keeps alive.
        (!sk.is_null()).then(|| unsafe { Conn::from_raw(sk) })
    }

    /// Returns the request that this SYN-ACK answers.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_request(self.skb, self.state) };
        // SAFETY: C returns a request socket, which the packet keeps alive.
        (!sk.is_null()).then(|| unsafe { Request::from_raw(sk) })
    }

    /// Returns the reason passed to [`send_ack`](super::conn::Locked::send_ack).
    pub(crate) fn errand(&self) -> Errand {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_full_sock(self.skb, self.state) };
        if sk.is_null() {
            return Errand::None;
        }
        // SAFETY: C only compares the pointer.
        Errand::from_raw(unsafe { bindings::xdc_nf_errand(sk) })
    }

    /// Returns whether the checksum is right.
    pub(crate) fn is_intact(&self, segment: &Segment) -> bool {
        // SAFETY: By the type invariants; this hook has made `segment` of this packet.
        unsafe { bindings::xdc_nf_is_intact(self.skb, self.state, &segment.0) }
    }

    /// Returns whether the packet acknowledges data up to `end_seq`, by ACK number or SACK block.
    pub(crate) fn reports(&self, segment: &Segment, end_seq: u32) -> bool {
        // SAFETY: By the type invariants; C looks for the header at `segment`'s offset.
        unsafe { bindings::xdc_nf_reports(self.skb, &segment.0, end_seq) }
    }

    /// Sets the DSCP. Returns false without memory.
    pub(crate) fn set_dscp(&mut self, dscp: u8) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_nf_set_dscp(self.skb, dscp) }
    }

    /// Removes a D-SACK of the one byte at `seq`. Returns whether there was one.
    pub(crate) fn cut_dsack(&mut self, segment: &Segment, seq: u32) -> bool {
        // SAFETY: By the type invariants; C looks for the header at `segment`'s offset.
        unsafe { bindings::xdc_nf_cut_dsack(self.skb, &segment.0, seq) }
    }

    /// Converts an ACK with an errand into one byte of data: the first unacknowledged byte. Returns false if
    /// it is no such ACK, or byte or memory are missing.
    pub(crate) fn make_clock(&mut self, segment: &Segment) -> bool {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_full_sock(self.skb, self.state) };
        // SAFETY: As above. C looks itself whether the socket is on an errand, and so locked.
        !sk.is_null() && unsafe { bindings::xdc_nf_make_clock(self.skb, &segment.0, sk) }
    }

    /// Lets the packet pass.
    pub(crate) fn accept(self) -> Verdict<'a> {
        Verdict(bindings::NF_ACCEPT, PhantomData)
    }

    /// Drops the packet.
    pub(crate) fn discard(self) -> Verdict<'a> {
        Verdict(bindings::NF_DROP, PhantomData)
    }

    /// Sends a burst of segments as two packets, the last segment with another DSCP. Returns the packet if
    /// memory is short.
    pub(crate) fn split_last(
        self,
        dscp: u8,
        last_dscp: u8,
    ) -> core::result::Result<Split<'a>, Self> {
        let mut is_congested = false;
        // SAFETY: By the type invariants. If C returns another verdict than NF_ACCEPT, the packet is C's:
        // `self` ends here.
        let verdict = unsafe {
            bindings::xdc_nf_split_last(self.skb, self.state, dscp, last_dscp, &mut is_congested)
        };
        match verdict {
            bindings::NF_ACCEPT => Err(self),
            _ => Ok(Split {
                verdict: Verdict(verdict, PhantomData),
                is_congested,
            }),
        }
    }
}

/// A TCP segment, or several in a burst.
#[derive(Clone, Copy)]
pub(crate) struct Segment(bindings::xdc_segment);

impl Segment {
    pub(super) fn raw(&self) -> &bindings::xdc_segment {
        &self.0
    }

    /// Returns the first byte of the payload.
    pub(crate) fn seq(&self) -> u32 {
        self.0.seq
    }

    /// Returns the acknowledgment number.
    pub(crate) fn ack(&self) -> u32 {
        self.0.ack
    }

    /// Returns the bytes of payload.
    pub(crate) fn len(&self) -> u32 {
        self.0.len
    }

    /// Returns the end of the payload and FIN.
    pub(crate) fn end_seq(&self) -> u32 {
        self.0
            .seq
            .wrapping_add(self.0.len)
            .wrapping_add(u32::from(self.0.fin))
    }

    /// Returns the number of network packets.
    pub(crate) fn segs(&self) -> u32 {
        self.0.segs
    }

    pub(crate) fn dscp(&self) -> u8 {
        self.0.dscp
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.0.syn
    }

    pub(crate) fn is_fin(&self) -> bool {
        self.0.fin
    }

    pub(crate) fn is_rst(&self) -> bool {
        self.0.rst
    }

    pub(crate) fn is_ack(&self) -> bool {
        self.0.ack_flag
    }
}

/// Registered [`Hooks`]; drop unregisters them, and drops `T` after the last hook has returned. One per
/// module.
///
/// # Invariants
///
/// The hooks are registered with `hooks`, which stays where it is.
pub(crate) struct Registration<T: Hooks> {
    hooks: Pin<KBox<T>>,
}

impl<T: Hooks> Registration<T> {
    /// Registers in every namespace. Not under RTNL: see [`Deferred`](super::deferred::Deferred).
    pub(crate) fn new(hooks: T) -> Result<Self> {
        let hooks = KBox::pin(hooks, GFP_KERNEL)?;
        // SAFETY: `hooks` stays where it is until `drop` has unregistered it, and is what these
        // functions take.
        to_result(unsafe {
            bindings::xdc_nf_register(
                ptr::from_ref(&*hooks).cast_mut().cast(),
                Some(Self::local_in),
                Some(Self::post_routing),
                Some(Self::net_exit),
                T::PRIORITY,
            )
        })?;
        // INVARIANT: Just registered.
        Ok(Self { hooks })
    }

    /// # Safety
    ///
    /// Called by C only, with the `T` that [`Self::new`] registered.
    unsafe extern "C" fn local_in(
        hooks: *mut c_void,
        skb: *mut bindings::sk_buff,
        state: *const bindings::nf_hook_state,
    ) -> c_uint {
        // SAFETY: By the safety requirements; only shared references to it are made.
        let hooks = unsafe { &*hooks.cast::<T>() };
        // SAFETY: The packet is C's, in a hook, and its namespace is alive.
        unsafe { run(skb, state, |net, packet| hooks.local_in(net, packet)) }
    }

    /// # Safety
    ///
    /// As [`Self::local_in`].
    unsafe extern "C" fn post_routing(
        hooks: *mut c_void,
        skb: *mut bindings::sk_buff,
        state: *const bindings::nf_hook_state,
    ) -> c_uint {
        // SAFETY: By the safety requirements; only shared references to it are made.
        let hooks = unsafe { &*hooks.cast::<T>() };
        // SAFETY: The packet is C's, in a hook, and its namespace is alive.
        unsafe { run(skb, state, |net, packet| hooks.post_routing(net, packet)) }
    }

    /// # Safety
    ///
    /// As [`Self::local_in`].
    unsafe extern "C" fn net_exit(hooks: *mut c_void, net: *mut bindings::net) {
        // SAFETY: By the safety requirements; only shared references to it are made.
        let hooks = unsafe { &*hooks.cast::<T>() };
        // SAFETY: C hands over the namespace that goes after this.
        hooks.net_exit(unsafe { Net::from_raw(net) });
    }
}

/// # Safety
///
/// `skb` and `state` are the arguments that C passes to a hook.
#[inline(always)]
unsafe fn run(
    skb: *mut bindings::sk_buff,
    state: *const bindings::nf_hook_state,
    hook: impl for<'a> FnOnce(&Net, Packet<'a>) -> Verdict<'a>,
) -> c_uint {
    // SAFETY: By the safety requirements; a namespace outlives its hooks.
    let net = unsafe { Net::from_raw((*state).net) };
    // INVARIANT: By the safety requirements, until `hook` returns.
    let packet = Packet {
        skb,
        state,
        _hook: PhantomData,
    };
    hook(net, packet).0
}

impl<T: Hooks> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C returns when a grace period has passed since, so
        // that `hooks`, which is dropped next, has no user.
        unsafe { bindings::xdc_nf_unregister() }
    }
}
