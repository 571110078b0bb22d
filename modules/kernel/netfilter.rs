// SPDX-License-Identifier: GPL-2.0

//! Hooks in the path of packets, in every network namespace.
//!
//! A module that wants to see what a host's sockets receive and send implements [`Hooks`] and keeps a
//! [`Registration`]. A hook gets a [`Packet`] and returns what becomes of it; each way to say that takes
//! the packet, so that it cannot be used afterwards.
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
/// They run in a softirq or in the context of the sender, under RCU: they may not sleep.
pub(crate) trait Hooks: Send + Sync + 'static {
    /// Where among the hooks of others: the lowest number comes first.
    const PRIORITY: i32;

    /// A packet for this host, before its protocol sees it.
    fn local_in<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a>;

    /// A packet that leaves this host, be it its own or forwarded. A TCP socket that sends it is
    /// locked, unless somebody has held the packet up in between (NFQUEUE).
    fn post_routing<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a>;

    /// A namespace goes; none of its packets is in a hook any more, nor will be. May sleep.
    fn net_exit(&self, net: &Net);
}

/// What becomes of a packet. It has the packet's lifetime, so that no hook can return another packet's.
#[must_use]
pub(crate) struct Verdict<'a>(u32, PhantomData<&'a mut ()>);

/// A burst that was sent in two packets.
#[must_use]
pub(crate) struct Split<'a> {
    pub(crate) verdict: Verdict<'a>,
    /// A queue of this host was full. TCP, which gets no other answer than an error, has not heard of it.
    pub(crate) is_congested: bool,
}

/// A packet in a hook.
///
/// # Invariants
///
/// `skb` and `state` are those that C has handed to the hook, which runs for all of `'a`. The data of
/// `skb` begin with the IP header that `state.pf` says.
pub(crate) struct Packet<'a> {
    skb: *mut bindings::sk_buff,
    state: *const bindings::nf_hook_state,
    _hook: PhantomData<&'a mut ()>,
}

impl<'a> Packet<'a> {
    /// What TCP sees of it; None if it is not TCP's, or a fragment.
    #[inline]
    pub(crate) fn segment(&self) -> Option<Segment> {
        let mut segment = MaybeUninit::uninit();
        // SAFETY: By the type invariants. `segment` has room.
        let is_segment =
            unsafe { bindings::xdc_nf_segment(self.skb, self.state, segment.as_mut_ptr()) };
        // SAFETY: C has written all of it.
        is_segment.then(|| Segment(unsafe { segment.assume_init() }))
    }

    /// The connection that sends it.
    pub(crate) fn sender(&self) -> Option<Conn<'_>> {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_full_sock(self.skb, self.state) };
        // SAFETY: C returns a full TCP socket, which the packet keeps alive.
        (!sk.is_null()).then(|| unsafe { Conn::from_raw(sk) })
    }

    /// The request that it answers with a SYN-ACK.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_request(self.skb, self.state) };
        // SAFETY: C returns a request socket, which the packet keeps alive.
        (!sk.is_null()).then(|| unsafe { Request::from_raw(sk) })
    }

    /// What its sender was asked to send it for, by [`send_ack`](super::conn::Locked::send_ack).
    pub(crate) fn errand(&self) -> Errand {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_full_sock(self.skb, self.state) };
        if sk.is_null() {
            return Errand::None;
        }
        // SAFETY: C only compares the pointer.
        Errand::from_raw(unsafe { bindings::xdc_nf_errand(sk) })
    }

    /// Its checksum is right.
    pub(crate) fn is_intact(&self, segment: &Segment) -> bool {
        // SAFETY: By the type invariants; this hook has made `segment` of this packet.
        unsafe { bindings::xdc_nf_is_intact(self.skb, self.state, &segment.0) }
    }

    /// It acknowledges what ends at `end_seq`, by its number or by a block.
    pub(crate) fn reports(&self, segment: &Segment, end_seq: u32) -> bool {
        // SAFETY: By the type invariants; C looks for the header at `segment`'s offset.
        unsafe { bindings::xdc_nf_reports(self.skb, &segment.0, end_seq) }
    }

    /// Sets its DSCP. False: there is no memory.
    pub(crate) fn set_dscp(&mut self, dscp: u8) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_nf_set_dscp(self.skb, dscp) }
    }

    /// Cuts a D-SACK of the one byte at `seq` from what it reports. Returns whether it had one.
    pub(crate) fn cut_dsack(&mut self, segment: &Segment, seq: u32) -> bool {
        // SAFETY: By the type invariants; C looks for the header at `segment`'s offset.
        unsafe { bindings::xdc_nf_cut_dsack(self.skb, &segment.0, seq) }
    }

    /// Makes of it, an ACK on an errand, one byte of data: the first that is not acknowledged. False:
    /// it is no such ACK, or there is no such byte, or no memory.
    pub(crate) fn make_clock(&mut self, segment: &Segment) -> bool {
        // SAFETY: By the type invariants.
        let sk = unsafe { bindings::xdc_nf_full_sock(self.skb, self.state) };
        // SAFETY: As above. C looks itself whether the socket is on an errand, and so locked.
        !sk.is_null() && unsafe { bindings::xdc_nf_make_clock(self.skb, &segment.0, sk) }
    }

    /// It goes on.
    pub(crate) fn accept(self) -> Verdict<'a> {
        Verdict(bindings::NF_ACCEPT, PhantomData)
    }

    /// It ends here.
    pub(crate) fn discard(self) -> Verdict<'a> {
        Verdict(bindings::NF_DROP, PhantomData)
    }

    /// It goes on, a burst of segments, as two packets: the last one has another DSCP than those
    /// before it. Without memory, the packet comes back.
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

    /// First byte of its payload.
    pub(crate) fn seq(&self) -> u32 {
        self.0.seq
    }

    /// The byte that it waits for.
    pub(crate) fn ack(&self) -> u32 {
        self.0.ack
    }

    /// Bytes of payload.
    pub(crate) fn len(&self) -> u32 {
        self.0.len
    }

    /// Behind its payload, and its FIN.
    pub(crate) fn end_seq(&self) -> u32 {
        self.0
            .seq
            .wrapping_add(self.0.len)
            .wrapping_add(u32::from(self.0.fin))
    }

    /// So many packets of the network.
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

/// Registered [`Hooks`]; they are unregistered when this is dropped, and `T` is dropped when no
/// packet is in one of them any more. One for each module.
///
/// # Invariants
///
/// The hooks are registered with `hooks`, which stays where it is.
pub(crate) struct Registration<T: Hooks> {
    hooks: Pin<KBox<T>>,
}

impl<T: Hooks> Registration<T> {
    /// In every namespace. Not under RTNL: [`Deferred`](super::deferred::Deferred) has how.
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
    /// Called by C only, with what [`Self::new`] registered.
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
/// `skb` and `state` are what C hands to a hook.
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
