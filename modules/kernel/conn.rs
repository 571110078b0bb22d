// SPDX-License-Identifier: GPL-2.0

//! TCP connections from outside of TCP: what a hook may ask of one, and what it may be made to do
//! while it is locked.
//!
//! C header: `include/net/tcp.h`

use super::{bindings, flows::Errand, netfilter::Segment, sysctl::Net};
use core::{marker::PhantomData, ops::Deref, ptr::addr_of};

/// A connection. It need not be locked: what is read are numbers, each of them some that it had.
///
/// # Invariants
///
/// `sk` is a full TCP socket that lives for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Conn<'a> {
    sk: *mut bindings::sock,
    _life: PhantomData<&'a ()>,
}

/// Reads a field as READ_ONCE() does.
macro_rules! read {
    ($self:ident, $($field:tt)+) => {
        // SAFETY: By the type invariants the pointer is valid for reads of a whole `tcp_sock`, and
        // every bit pattern of the field is a value.
        unsafe { addr_of!((*$self.sk.cast::<bindings::tcp_sock>()).$($field)+).read_volatile() }
    };
}

impl Conn<'_> {
    /// # Safety
    ///
    /// `sk` has to fulfil the type's invariants.
    pub(super) unsafe fn from_raw(sk: *mut bindings::sock) -> Self {
        // INVARIANT: The caller passes a socket for which they hold.
        Self {
            sk,
            _life: PhantomData,
        }
    }

    /// For C that looks at it.
    pub(super) fn as_ptr(&self) -> *const bindings::sock {
        self.sk
    }

    /// First byte that is not acknowledged.
    pub(crate) fn snd_una(&self) -> u32 {
        read!(self, snd_una)
    }

    /// First byte that was never sent.
    pub(crate) fn snd_nxt(&self) -> u32 {
        read!(self, snd_nxt)
    }

    /// Behind the last byte that was written, or the SYN.
    pub(crate) fn write_seq(&self) -> u32 {
        read!(self, write_seq)
    }

    /// The largest window that the peer ever offered.
    pub(crate) fn max_window(&self) -> u32 {
        read!(self, max_window)
    }

    /// Packets that were sent and are not acknowledged, SACK or not.
    pub(crate) fn packets_out(&self) -> u32 {
        read!(self, packets_out)
    }

    /// Smoothed RTT; 0 = none.
    pub(crate) fn srtt_us(&self) -> u32 {
        read!(self, srtt_us) >> 3
    }

    /// Timeouts that it has met; wraps.
    pub(crate) fn timeouts(&self) -> u16 {
        read!(self, total_rto)
    }

    /// What it sends now is a tail loss probe.
    pub(crate) fn is_probing(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_probing(self.sk) }
    }

    /// SO_MARK.
    pub(crate) fn mark(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_mark(self.sk) }
    }

    /// When what it sends now leaves.
    pub(crate) fn departure_us(&self) -> u64 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_departure_us(self.sk) }
    }

    /// A handshake has been completed, and not all of its end.
    pub(crate) fn is_open(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_open(self.sk) }
    }

    /// Its payload must not be repeated by anybody else, or it has no SACK.
    pub(crate) fn is_excluded(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_excluded(self.sk) }
    }

    /// Nothing can be sent after what ends at `end_seq`, of so many segments.
    pub(crate) fn is_last(&self, end_seq: u32, segs: u32) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_last(self.sk, end_seq, segs) }
    }

    /// What ends at `end_seq` has arrived.
    pub(crate) fn has(&self, end_seq: u32) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_has(self.sk, end_seq) }
    }

    /// The segment has not come from too far away (`IP_MINTTL`).
    pub(crate) fn is_near(&self, segment: &Segment) -> bool {
        // SAFETY: By the type invariants; C only reads the segment.
        unsafe { bindings::xdc_conn_is_near(self.sk, segment.raw()) }
    }

    /// The segment's data can be meant for it.
    pub(crate) fn is_in_window(&self, segment: &Segment) -> bool {
        // SAFETY: As above.
        unsafe { bindings::xdc_conn_is_in_window(self.sk, segment.raw()) }
    }
}

/// A connection that is locked, not in use, and has handled everything that came.
///
/// # Invariants
///
/// Those of [`Conn`]. In addition, the socket's spinlock is held in a softirq for all of `'a`, no
/// process owns the socket, and its backlog is empty.
pub(crate) struct Locked<'a>(Conn<'a>);

impl<'a> Deref for Locked<'a> {
    type Target = Conn<'a>;

    fn deref(&self) -> &Conn<'a> {
        &self.0
    }
}

impl Locked<'_> {
    /// # Safety
    ///
    /// `sk` has to fulfil the type's invariants.
    pub(super) unsafe fn from_raw(sk: *mut bindings::sock) -> Self {
        // INVARIANT: The caller passes a socket for which this type's invariants hold.
        // SAFETY: They include those of `Conn`.
        Self(unsafe { Conn::from_raw(sk) })
    }

    /// Payload is unacknowledged, not a FIN alone.
    pub(crate) fn has_payload(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_has_payload(self.0.sk) }
    }

    /// A lost segment is not sent again yet.
    pub(crate) fn has_lost(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_has_lost(self.0.sk) }
    }

    /// A timer of TCP's own will send what there is.
    pub(crate) fn is_held(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_held(self.0.sk) }
    }

    /// Sends an ACK, which a hook knows by its errand.
    pub(crate) fn send_ack(&mut self, errand: Errand) {
        if matches!(errand, Errand::Clock) {
            // SAFETY: By the type invariants.
            unsafe { bindings::xdc_conn_ack_fin(self.0.sk) }
        }
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_send_ack(self.0.sk, errand as u32) }
    }

    /// Marks lost what is not acknowledged and was sent before `sent_us`, at the same time also what
    /// ends before `end_seq`; with 0 and 0, before the newest packet that is acknowledged. What is
    /// lost is sent again, as the window allows.
    pub(crate) fn detect(&mut self, sent_us: u64, end_seq: u32) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_detect(self.0.sk, sent_us, end_seq) }
    }

    /// `reordering` and `reord_seen` of TCP.
    pub(crate) fn order(&self) -> (u32, u32) {
        // SAFETY: By the type invariants.
        let order = unsafe { bindings::xdc_conn_order(self.0.sk) };
        (order.reordering, order.seen)
    }

    /// Sets both.
    pub(crate) fn set_order(&mut self, (reordering, seen): (u32, u32)) {
        let order = bindings::xdc_conn_order { reordering, seen };
        // SAFETY: By the type invariants the socket is locked.
        unsafe { bindings::xdc_conn_set_order(self.0.sk, order) }
    }

    /// Reduces the window, because a queue of this host was full.
    pub(crate) fn reduce(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_reduce(self.0.sk) }
    }

    /// Sends one lost segment, whatever the window.
    pub(crate) fn retransmit(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_retransmit(self.0.sk) }
    }
}

/// A connection to be: a SYN that was answered.
///
/// # Invariants
///
/// `sk` is a request socket that lives for `'a`.
pub(crate) struct Request<'a> {
    sk: *mut bindings::sock,
    _life: PhantomData<&'a ()>,
}

impl Request<'_> {
    /// # Safety
    ///
    /// `sk` has to fulfil the type's invariants.
    pub(super) unsafe fn from_raw(sk: *mut bindings::sock) -> Self {
        // INVARIANT: The caller passes a socket for which they hold.
        Self {
            sk,
            _life: PhantomData,
        }
    }

    /// DSCP of its SYN.
    pub(crate) fn dscp(&self) -> u8 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_request_dscp(self.sk) }
    }

    /// SO_MARK of the socket to be.
    pub(crate) fn mark(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_request_mark(self.sk) }
    }

    /// As [`Conn::is_excluded`].
    pub(crate) fn is_excluded(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_request_is_excluded(self.sk) }
    }
}

/// Whom a segment that came is for.
///
/// # Invariants
///
/// `sk` is a socket of any kind, of which this has a reference.
pub(crate) struct Found {
    sk: *mut bindings::sock,
}

impl Found {
    /// Looks a connection up, as TCP will. Listeners are not returned.
    pub(crate) fn new(net: &Net, segment: &Segment) -> Option<Self> {
        // SAFETY: The namespace is alive.
        let sk = unsafe { bindings::xdc_conn_find(net.as_ptr(), segment.raw()) };
        // INVARIANT: C has taken a reference.
        (!sk.is_null()).then(|| Self { sk })
    }

    /// For C that looks at it.
    pub(super) fn as_ptr(&self) -> *const bindings::sock {
        self.sk
    }

    /// The connection, if it is one.
    pub(crate) fn conn(&self) -> Option<Conn<'_>> {
        // SAFETY: By the type invariants.
        if !unsafe { bindings::xdc_conn_is_full(self.sk) } {
            return None;
        }
        // SAFETY: A full socket, which the reference keeps alive; only TCP's are in that table.
        Some(unsafe { Conn::from_raw(self.sk) })
    }

    /// It is what is left of a connection that has ended: TIME_WAIT.
    pub(crate) fn is_time_wait(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_time_wait(self.sk) }
    }

    /// The request, if it is one whose handshake the segment ends.
    pub(crate) fn request(&self, segment: &Segment) -> Option<Request<'_>> {
        // SAFETY: By the type invariants; C looks first whether it is a request.
        if !unsafe { bindings::xdc_request_is_answered(self.sk, segment.raw()) } {
            return None;
        }
        // SAFETY: A request, which the reference keeps alive.
        Some(unsafe { Request::from_raw(self.sk) })
    }
}

impl Drop for Found {
    // Inline, so that modules that do not use it do not contain it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_put(self.sk) }
    }
}
