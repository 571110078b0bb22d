// SPDX-License-Identifier: GPL-2.0

//! TCP connections from outside of TCP: queries from hooks, and actions on locked sockets.
//!
//! C header: `include/net/tcp.h`

use super::{bindings, flows::Errand, netfilter::Segment, sysctl::Net};
use core::{marker::PhantomData, ops::Deref, ptr::addr_of};

/// A connection. It need not be locked: each value read was valid at some time.
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

    /// Returns the socket for C code that reads it.
    pub(super) fn as_ptr(&self) -> *const bindings::sock {
        self.sk
    }

    /// Returns the first unacknowledged byte.
    pub(crate) fn snd_una(&self) -> u32 {
        read!(self, snd_una)
    }

    /// Returns the first unsent byte.
    pub(crate) fn snd_nxt(&self) -> u32 {
        read!(self, snd_nxt)
    }

    /// Returns the end of the written bytes, or of the SYN.
    pub(crate) fn write_seq(&self) -> u32 {
        read!(self, write_seq)
    }

    /// Returns the largest window that the peer has offered.
    pub(crate) fn max_window(&self) -> u32 {
        read!(self, max_window)
    }

    /// Returns the packets in flight, SACKed or not.
    pub(crate) fn packets_out(&self) -> u32 {
        read!(self, packets_out)
    }

    /// Returns the smoothed RTT; 0 = none.
    pub(crate) fn srtt_us(&self) -> u32 {
        read!(self, srtt_us) >> 3
    }

    /// Returns the number of timeouts; wraps.
    pub(crate) fn timeouts(&self) -> u16 {
        read!(self, total_rto)
    }

    /// Returns whether the packet being sent is a tail loss probe.
    pub(crate) fn is_probing(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_probing(self.sk) }
    }

    /// Returns SO_MARK.
    pub(crate) fn mark(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_mark(self.sk) }
    }

    /// Returns the departure time of the packet being sent.
    pub(crate) fn departure_us(&self) -> u64 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_departure_us(self.sk) }
    }

    /// Returns whether the handshake is complete and the connection is not fully closed.
    pub(crate) fn is_open(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_open(self.sk) }
    }

    /// Returns whether the socket lacks SACK, or its payload must not be repeated by other code.
    pub(crate) fn is_excluded(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_excluded(self.sk) }
    }

    /// Returns whether nothing can follow a packet of `segs` segments that ends at `end_seq`.
    pub(crate) fn is_last(&self, end_seq: u32, segs: u32) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_last(self.sk, end_seq, segs) }
    }

    /// Returns whether the data up to `end_seq` have arrived.
    pub(crate) fn has(&self, end_seq: u32) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_has(self.sk, end_seq) }
    }

    /// Returns whether the segment's TTL satisfies `IP_MINTTL`.
    pub(crate) fn is_near(&self, segment: &Segment) -> bool {
        // SAFETY: By the type invariants; C only reads the segment.
        unsafe { bindings::xdc_conn_is_near(self.sk, segment.raw()) }
    }

    /// Returns whether the segment's data are within the window.
    pub(crate) fn is_in_window(&self, segment: &Segment) -> bool {
        // SAFETY: As above.
        unsafe { bindings::xdc_conn_is_in_window(self.sk, segment.raw()) }
    }
}

/// A locked connection that is not in use and has processed all received packets.
///
/// # Invariants
///
/// The invariants of [`Conn`]. In addition, the socket's spinlock is held in a softirq for all of `'a`, no
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

    /// Returns whether payload, not only a FIN, is unacknowledged.
    pub(crate) fn has_payload(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_has_payload(self.0.sk) }
    }

    /// Returns whether a lost segment awaits retransmission.
    pub(crate) fn has_lost(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_has_lost(self.0.sk) }
    }

    /// Returns whether a timer of TCP will send the pending data.
    pub(crate) fn is_held(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_held(self.0.sk) }
    }

    /// Sends an ACK, which the hook recognizes by its errand.
    pub(crate) fn send_ack(&mut self, errand: Errand) {
        if matches!(errand, Errand::Clock) {
            // SAFETY: By the type invariants.
            unsafe { bindings::xdc_conn_ack_fin(self.0.sk) }
        }
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_send_ack(self.0.sk, errand as u32) }
    }

    /// Marks lost the unacknowledged packets sent before `sent_us`, or at that time if they end before
    /// `end_seq`; with 0 and 0, those sent before the newest acknowledged packet. TCP retransmits as the
    /// window allows.
    pub(crate) fn detect(&mut self, sent_us: u64, end_seq: u32) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_detect(self.0.sk, sent_us, end_seq) }
    }

    /// Returns `reordering` and `reord_seen` of TCP.
    pub(crate) fn order(&self) -> (u32, u32) {
        // SAFETY: By the type invariants.
        let order = unsafe { bindings::xdc_conn_order(self.0.sk) };
        (order.reordering, order.seen)
    }

    /// Sets `reordering` and `reord_seen`.
    pub(crate) fn set_order(&mut self, (reordering, seen): (u32, u32)) {
        let order = bindings::xdc_conn_order { reordering, seen };
        // SAFETY: By the type invariants the socket is locked.
        unsafe { bindings::xdc_conn_set_order(self.0.sk, order) }
    }

    /// Reduces the window after a full queue of this host.
    pub(crate) fn reduce(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_reduce(self.0.sk) }
    }

    /// Retransmits one lost segment, whatever the window.
    pub(crate) fn retransmit(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_retransmit(self.0.sk) }
    }
}

/// A request: a SYN that was answered.
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

    /// Returns the DSCP of the SYN.
    pub(crate) fn dscp(&self) -> u8 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_request_dscp(self.sk) }
    }

    /// Returns SO_MARK of the future socket.
    pub(crate) fn mark(&self) -> u32 {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_request_mark(self.sk) }
    }

    /// Returns the future result of [`Conn::is_excluded`].
    pub(crate) fn is_excluded(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_request_is_excluded(self.sk) }
    }
}

/// Socket of a received segment.
///
/// # Invariants
///
/// `sk` is a socket of any kind, to which this has a reference.
pub(crate) struct Found {
    sk: *mut bindings::sock,
}

impl Found {
    /// Looks up a connection as TCP does. Listeners are not returned.
    pub(crate) fn new(net: &Net, segment: &Segment) -> Option<Self> {
        // SAFETY: The namespace is alive.
        let sk = unsafe { bindings::xdc_conn_find(net.as_ptr(), segment.raw()) };
        // INVARIANT: C has taken a reference.
        (!sk.is_null()).then(|| Self { sk })
    }

    /// Returns the socket for C code that reads it.
    pub(super) fn as_ptr(&self) -> *const bindings::sock {
        self.sk
    }

    /// Returns the connection, if the socket is a full one.
    pub(crate) fn conn(&self) -> Option<Conn<'_>> {
        // SAFETY: By the type invariants.
        if !unsafe { bindings::xdc_conn_is_full(self.sk) } {
            return None;
        }
        // SAFETY: A full socket, which the reference keeps alive; only TCP's are in that table.
        Some(unsafe { Conn::from_raw(self.sk) })
    }

    /// Returns whether the socket is in TIME_WAIT.
    pub(crate) fn is_time_wait(&self) -> bool {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_conn_is_time_wait(self.sk) }
    }

    /// Returns the request, if the segment completes its handshake.
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
