// SPDX-License-Identifier: GPL-2.0

//! TCP congestion control.
//!
//! A module implements [`CongestionControl`] and keeps a [`Registration`]. Its callbacks get a
//! [`Sock`], which can write exactly the fields that the kernel lets a BPF congestion control write
//! (`bpf_tcp_ca_btf_struct_access()`).
//!
//! C header: `include/net/tcp.h`

#[macro_use]
mod sock;
mod ecn;
mod info;
mod sample;

use super::bindings;
use core::{
    marker::PhantomData,
    mem::{align_of, size_of, MaybeUninit},
    ptr::{addr_of, addr_of_mut},
};
use info::Head;
use kernel::{
    error::{to_result, VTABLE_DEFAULT_ERROR},
    prelude::*,
    types::Opaque,
};

// Each module uses a part.
#[allow(unused_imports)]
pub(crate) use self::{
    ecn::{EceEcho, Echo, EcnMode, Marks},
    info::{DiagBlock, Info, NoDiagBlock, OwnInfo, Unpadded},
    sample::RateSample,
    sock::Sock,
};

/// Flags of a congestion control, the kernel's `TCP_CONG_*`.
pub(crate) mod flags {
    use super::bindings;

    /// Any user may choose the algorithm.
    pub(crate) const NON_RESTRICTED: u32 = bindings::XDC_TCP_CONG_NON_RESTRICTED;
    /// Negotiates ECN, sets ECT, and gets the CE state of received packets.
    pub(crate) const NEEDS_ECN: u32 = bindings::XDC_TCP_CONG_NEEDS_ECN;
    /// Requests AccECN, regardless of `net.ipv4.tcp_ecn`.
    pub(crate) const NEEDS_ACCECN: u32 = bindings::XDC_TCP_CONG_NEEDS_ACCECN;
}

/// State of TCP's loss recovery, `enum tcp_ca_state`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No dubious events.
    Open,
    /// Duplicate or selective ACKs arrived.
    Disorder,
    /// The window is being reduced, for ECN or a drop by the local queue.
    Cwr,
    /// Fast retransmit.
    Recovery,
    /// The retransmission timer fired.
    Loss,
}

impl State {
    fn from_raw(state: u8) -> Self {
        match bindings::tcp_ca_state::from(state) {
            bindings::TCP_CA_Disorder => Self::Disorder,
            bindings::TCP_CA_CWR => Self::Cwr,
            bindings::TCP_CA_Recovery => Self::Recovery,
            bindings::TCP_CA_Loss => Self::Loss,
            _ => Self::Open,
        }
    }
}

/// Event of [`CongestionControl::cwnd_event`], `enum tcp_ca_event`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The window restarts after idle time.
    CwndRestart,
    /// The end of a window reduction; never with `cong_control`.
    CompleteCwr,
    /// The retransmission timer fired.
    Loss,
}

impl Event {
    fn from_raw(event: bindings::tcp_ca_event) -> Option<Self> {
        Some(match event {
            bindings::CA_EVENT_CWND_RESTART => Self::CwndRestart,
            bindings::CA_EVENT_COMPLETE_CWR => Self::CompleteCwr,
            bindings::CA_EVENT_LOSS => Self::Loss,
            _ => return None,
        })
    }
}

/// The private area, `icsk_ca_priv`. Any bytes are valid; `data` is read only after init() set
/// `head.status`. A route's congestion control may find another's bytes without a call of init(),
/// so [`VTable::with`] clears the area of a socket that is not established.
#[repr(C)]
struct Private<D> {
    head: Head,
    data: MaybeUninit<D>,
}

/// A congestion control, `struct tcp_congestion_ops`. All sockets share `self`; each has a
/// [`Data`](Self::Data). Callbacks run with the socket locked and may not sleep. A socket without a
/// call of [`init`](Self::init), such as a new child, is handled like Reno.
#[vtable]
pub(crate) trait CongestionControl: Sized + Send + Sync + 'static {
    /// Name in TCP_CONGESTION, at most 10 characters.
    const NAME: &'static CStr;

    /// Bits of [`flags`].
    const FLAGS: u32 = 0;

    /// Echo of CE as a receiver.
    const ECE_ECHO: EceEcho = EceEcho::Never;

    /// Block of inet_diag, or [`NoDiagBlock`].
    type Diag: DiagBlock;

    /// State of a socket. `Copy`, because sockets end without a callback. Any bytes must be valid,
    /// which the build checks: no `bool` and no `enum`.
    type Data: Copy + Send;

    /// Handles an established connection, or one that switched to this algorithm, after negotiation
    /// of ECN. Returns the socket's state, or None to leave the socket to Reno permanently. A
    /// socket that switched while it connected is passed with its first packet or ACK.
    fn init(&self, sk: &mut Sock<'_>) -> Option<Self::Data>;

    /// Returns the slow start threshold on entering CWR, Recovery or Loss.
    fn ssthresh(&self, sk: &mut Sock<'_>, data: &mut Self::Data) -> u32;

    /// Returns the window after a spurious reduction.
    fn undo_cwnd(&self, sk: &mut Sock<'_>, data: &mut Self::Data) -> u32;

    /// Grows the window for an ACK in state Open or Disorder. Without this and `cong_control` the
    /// window grows as Reno's.
    fn cong_avoid(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _ack: u32, _acked: u32) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Sets window and pacing rate for an ACK, in every state. The kernel then sets neither, not
    /// even in recovery.
    fn cong_control(
        &self,
        _sk: &mut Sock<'_>,
        _data: &mut Self::Data,
        _rs: &RateSample,
        _flags: AckFlags,
    ) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles a change of loss recovery to `new`.
    fn set_state(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _new: State) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles an event of the window.
    fn cwnd_event(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data, _event: Event) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles the first packet that is sent with none in flight.
    fn cwnd_event_tx_start(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles an ACK before its packets are accounted for.
    fn in_ack_event(&self, _sk: &mut Sock<'_>, _data: &mut Self::Data) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// Tables of callbacks for C.
#[repr(C)]
struct Tables {
    main: Opaque<bindings::tcp_congestion_ops>,
    /// For a socket that has fallen back. Not registered, so that no request can name it.
    reno: Opaque<bindings::tcp_congestion_ops>,
}

/// A congestion control with its tables.
///
/// # Invariants
///
/// `icsk_ca_ops` of a socket that calls a callback of [`VTable<T>`] points to `tables.main`, at the
/// beginning of this struct.
#[repr(C)]
struct Ops<T> {
    tables: Tables,
    cc: T,
}

impl Sock<'_> {
    /// Leaves the socket to Reno, without further callbacks.
    pub(crate) fn fall_back(&mut self) {
        if self.head().is_live() {
            self.head().set_live(false);
            self.use_reno();
        }
    }

    /// Switches a socket whose `icsk_ca_ops` is `main` of `Tables`.
    fn use_reno(&mut self) {
        let tables = read!(self, inet_conn.icsk_ca_ops).cast::<Tables>();
        // SAFETY: By the type invariants it points into `Tables`, which the
        // socket's reference on the module keeps.
        let reno = unsafe { addr_of!((*tables).reno) };
        write!(self, reno.cast(), inet_conn.icsk_ca_ops);
        // TCP does this only right after init(). Without it, ECT would be sent while
        // no marks are reported.
        // SAFETY: The wrapper requires a valid, locked socket, which the type
        // invariants give. It writes to `tos` and `tclass` only.
        unsafe { bindings::xdc_inet_ecn_dontxmit(self.sk()) }
    }
}

/// Defines callbacks of [`VTable`] by a default for sockets that init() has not accepted, and the
/// method of [`CongestionControl`] for the others.
macro_rules! callbacks {
    ($(
        fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)?;
        else $default:expr;
        call $method:expr;
    )+) => {
        $(
            /// # Safety
            ///
            /// As for [`Self::with`].
            unsafe extern "C" fn $name(sk: *mut bindings::sock $(, $arg: $type)*) $(-> $ret)? {
                // SAFETY: TCP calls it for a socket that it has locked, and
                // whose `icsk_ca_ops` is `tables.main` of an `Ops<T>`, because only
                // that has this callback. `with` requires no more.
                unsafe { Self::with(sk, $default, $method) }
            }
        )+
    };
}

/// Callbacks for C, each for `T`'s method of the same name.
struct VTable<T>(PhantomData<T>);

impl<T: CongestionControl> VTable<T> {
    /// Runs `f` if init() has accepted the socket, else returns `default`.
    ///
    /// # Safety
    ///
    /// `sk` is a TCP socket, its lock is held, and its `icsk_ca_ops` is
    /// `tables.main` of an `Ops<T>`.
    #[inline(always)]
    unsafe fn with<R>(
        sk: *mut bindings::sock,
        default: impl FnOnce(&mut Sock<'_>) -> R,
        f: impl FnOnce(&T, &mut Sock<'_>, &mut T::Data) -> R,
    ) -> R {
        // SAFETY: By the safety requirements; `tables.main` is `main` of a `Tables`.
        let mut sock = unsafe { Sock::from_raw(sk) };
        let is_ready = sock.head().is_live() && !sock.is_in_handshake();
        if !is_ready && !Self::init_late(sock.reborrow()) {
            return default(&mut sock);
        }
        let ptr = sock.as_tcp_sock();
        // SAFETY: `icsk_ca_ops` is `tables.main` of an `Ops<T>` by the safety
        // requirements, `main` is its first field, and it outlives the call,
        // since the socket has a reference on the module.
        let cc = unsafe { &(*(*ptr).inet_conn.icsk_ca_ops.cast::<Ops<T>>()).cc };
        // SAFETY: The area is large enough for a `Private<T::Data>`, and any bytes
        // are a `T::Data`, by the checks of `Registration`. They are init()'s, or
        // another algorithm's in the case that `Private` describes.
        // The reference is the only one to it: the socket's lock keeps other
        // callbacks out, and `Sock` and get_info() touch no more than `head`.
        let data = unsafe { (*Self::private(ptr)).data.assume_init_mut() };
        f(cc, &mut sock, data)
    }

    /// # Safety
    ///
    /// `ptr` points to a TCP socket.
    unsafe fn private(ptr: *mut bindings::tcp_sock) -> *mut Private<T::Data> {
        // SAFETY: A field of a valid socket, by the safety requirements.
        unsafe { addr_of_mut!((*ptr).inet_conn.icsk_ca_priv).cast() }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn init(sk: *mut bindings::sock) {
        // SAFETY: TCP calls it for a socket that it has locked, and whose
        // `icsk_ca_ops` is `tables.main` of an `Ops<T>`.
        let mut sock = unsafe { Sock::from_raw(sk) };
        // A socket may switch while it connects. Nothing is negotiated then, and TCP does not call
        // again afterwards.
        if !sock.is_connecting() {
            Self::init_now(&mut sock);
        }
    }

    /// Runs init() for a socket that was connecting when C called it. Returns whether the socket is
    /// live.
    #[cold]
    #[inline(never)]
    fn init_late(mut sock: Sock<'_>) -> bool {
        if sock.is_in_handshake() {
            if sock.is_fast_open_server() {
                return sock.head().is_live();
            }
            // Earlier writes are invalid. The first callback may come after a SYN that crosses the
            // socket's own.
            sock.head().clear();
            return false;
        }
        if !sock.ca_is_initialized() {
            return false;
        }
        Self::init_now(&mut sock);
        sock.head().is_live()
    }

    /// Runs init() for a socket of a callback.
    fn init_now(sock: &mut Sock<'_>) {
        let ptr = sock.as_tcp_sock();
        // SAFETY: By the type invariants of `Sock` the pointer is valid, and
        // by those of `Ops` `icsk_ca_ops` points to an `Ops<T>`.
        let ops = unsafe { (*ptr).inet_conn.icsk_ca_ops.cast::<Ops<T>>() };
        // SAFETY: As above; the socket's reference on the module keeps it.
        let cc = unsafe { &(*ops).cc };
        sock.start_ecn();
        match cc.init(sock) {
            Some(data) => {
                // SAFETY: The socket is locked, and the area holds a
                // `Private<T::Data>` by the checks of `Registration`. No code
                // reads `data` before `set_live`.
                unsafe { addr_of_mut!((*Self::private(ptr)).data).write(MaybeUninit::new(data)) };
                sock.head().set_live(true);
            }
            None => sock.use_reno(),
        }
    }

    callbacks! {
        fn ssthresh() -> u32;
        else |sk| sk.reno_ssthresh();
        call T::ssthresh;

        fn undo_cwnd() -> u32;
        else |sk| sk.reno_undo_cwnd();
        call T::undo_cwnd;

        fn cong_avoid(ack: u32, acked: u32);
        else |sk| sk.reno_cong_avoid(ack, acked);
        call |cc, sk, data| cc.cong_avoid(sk, data, ack, acked);

        fn set_state(new: u8);
        else |_| ();
        call |cc, sk, data| cc.set_state(sk, data, State::from_raw(new));

        fn cwnd_event_tx_start();
        else |_| ();
        call T::cwnd_event_tx_start;

        fn in_ack_event(_flags: u32);
        else |_| ();
        call T::in_ack_event;
    }

    /// # Safety
    ///
    /// As for [`Self::with`], and `rs` is valid for the call.
    unsafe extern "C" fn cong_control(
        sk: *mut bindings::sock,
        _ack: u32,
        flag: c_int,
        rs: *const bindings::rate_sample,
    ) {
        // SAFETY: `rs` is valid by the safety requirements, no code writes to
        // it during the call, and `RateSample` is transparent.
        let rs = unsafe { &*rs.cast::<RateSample>() };
        let flags = AckFlags(flag);
        // SAFETY: As for `ssthresh`.
        unsafe {
            Self::with(
                sk,
                |_| (),
                |cc, sk, data| cc.cong_control(sk, data, rs, flags),
            )
        }
    }

    /// # Safety
    ///
    /// As for [`Self::with`].
    unsafe extern "C" fn cwnd_event(sk: *mut bindings::sock, event: bindings::tcp_ca_event) {
        let ce = match event {
            bindings::CA_EVENT_ECN_IS_CE => Some(true),
            bindings::CA_EVENT_ECN_NO_CE => Some(false),
            _ => None,
        };
        if let Some(ce) = ce {
            // SAFETY: TCP calls it for a socket that it has locked, and whose
            // `icsk_ca_ops` is `tables.main` of an `Ops<T>`.
            let mut sock = unsafe { Sock::from_raw(sk) };
            return sock.echo_ce(T::ECE_ECHO, ce);
        }
        if let (true, Some(event)) = (T::HAS_CWND_EVENT, Event::from_raw(event)) {
            // SAFETY: As for `ssthresh`.
            unsafe { Self::with(sk, |_| (), |cc, sk, data| cc.cwnd_event(sk, data, event)) }
        }
    }

    /// # Safety
    ///
    /// As for [`info::fill_info`].
    unsafe extern "C" fn get_info(
        sk: *mut bindings::sock,
        ext: u32,
        attr: *mut c_int,
        info: *mut bindings::tcp_cc_info,
    ) -> usize {
        // SAFETY: inet_diag and TCP_CC_INFO pass a socket that RCU or its lock
        // keeps alive, and pointers to variables of theirs.
        unsafe { info::fill_info::<T::Diag>(sk, ext, attr, info) }
    }

    fn ops() -> bindings::tcp_congestion_ops {
        // SAFETY: Null callbacks, an empty list and an empty name are valid.
        let mut ops: bindings::tcp_congestion_ops = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: It reads a constant.
        ops.owner = unsafe { bindings::xdc_this_module() };
        ops.flags = T::FLAGS;
        ops.get_info = Some(Self::get_info);
        ops.init = Some(Self::init);
        ops.ssthresh = Some(Self::ssthresh);
        ops.undo_cwnd = Some(Self::undo_cwnd);
        if T::HAS_CONG_CONTROL {
            ops.cong_control = Some(Self::cong_control);
        } else if T::HAS_CONG_AVOID {
            ops.cong_avoid = Some(Self::cong_avoid);
        } else {
            ops.cong_avoid = Some(bindings::tcp_reno_cong_avoid);
        }
        if T::HAS_SET_STATE {
            ops.set_state = Some(Self::set_state);
        }
        if T::HAS_CWND_EVENT || T::ECE_ECHO as u8 != EceEcho::Never as u8 {
            ops.cwnd_event = Some(Self::cwnd_event);
        }
        if T::HAS_CWND_EVENT_TX_START {
            ops.cwnd_event_tx_start = Some(Self::cwnd_event_tx_start);
        }
        if T::HAS_IN_ACK_EVENT {
            ops.in_ack_event = Some(Self::in_ack_event);
        }
        set_name(&mut ops, T::NAME, b"");
        ops
    }

    fn reno_ops() -> bindings::tcp_congestion_ops {
        // SAFETY: Null callbacks, an empty list and an empty name are valid.
        let mut ops: bindings::tcp_congestion_ops = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: It reads a constant.
        ops.owner = unsafe { bindings::xdc_this_module() };
        ops.get_info = Some(Self::get_info);
        ops.ssthresh = Some(bindings::tcp_reno_ssthresh);
        ops.undo_cwnd = Some(bindings::tcp_reno_undo_cwnd);
        ops.cong_avoid = Some(bindings::tcp_reno_cong_avoid);
        set_name(&mut ops, T::NAME, RENO_SUFFIX);
        ops
    }
}

/// Name of the ops that `init` falls back to: "<name>-reno".
const RENO_SUFFIX: &[u8] = b"-reno";

/// Flags of an ACK for cong_control().
#[derive(Clone, Copy)]
pub(crate) struct AckFlags(c_int);

impl AckFlags {
    /// Flag FLAG_ECE, private to net/ipv4/tcp_input.c.
    const ECE: c_int = 0x40;

    /// Returns whether the ACK reports congestion.
    fn has_ece(self) -> bool {
        self.0 & Self::ECE != 0
    }
}

fn set_name(ops: &mut bindings::tcp_congestion_ops, name: &CStr, suffix: &[u8]) {
    let name = Iterator::chain(name.to_bytes().iter(), suffix);
    for (to, from) in ops.name.iter_mut().zip(name) {
        *to = *from as c_char;
    }
}

/// A registered congestion control; unregistered on drop.
///
/// # Invariants
///
/// `ops.tables.main` is registered with TCP.
pub(crate) struct Registration<T: CongestionControl> {
    ops: Pin<KBox<Ops<T>>>,
}

// SAFETY: `T` is `Send` and `Sync`, and the rest is C's, which locks it.
unsafe impl<T: CongestionControl> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: CongestionControl> Sync for Registration<T> {}

impl<T: CongestionControl> Registration<T> {
    /// Compile-time checks of the trait's implementation.
    const CHECKS: () = {
        assert!(size_of::<Private<T::Data>>() <= bindings::XDC_CA_PRIV_BYTES as usize);
        assert!(align_of::<Private<T::Data>>() <= align_of::<u64>());
        // The invalid bytes of a type such as `bool` or `enum` would be a niche for None.
        assert!(
            size_of::<Option<T::Data>>() > size_of::<T::Data>(),
            "Data must consist of integers, so that any bytes are valid"
        );
        let name_bytes = T::NAME.to_bytes().len() + RENO_SUFFIX.len();
        assert!(name_bytes < bindings::TCP_CA_NAME_MAX as usize);
        assert!(
            !(T::HAS_CONG_AVOID && T::HAS_CONG_CONTROL),
            "cong_avoid and cong_control exclude each other"
        );
    };

    /// Registers `cc` for every namespace.
    pub(crate) fn new(cc: T) -> Result<Self> {
        let () = Self::CHECKS;
        // On the heap, because C links it into a list and sets flags in it.
        let ops = KBox::pin(
            Ops {
                tables: Tables {
                    main: Opaque::new(VTable::<T>::ops()),
                    reno: Opaque::new(VTable::<T>::reno_ops()),
                },
                cc,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: `main` is complete, writable, and stays where it is until
        // `drop` has unregistered it.
        to_result(unsafe { bindings::tcp_register_congestion_control(Self::main(&ops)) })?;
        // INVARIANT: Just registered.
        Ok(Self { ops })
    }

    /// Returns C's pointer. `main` is the first field, and callbacks get from it to the others, so
    /// the pointer covers all of `Ops`.
    fn main(ops: &Ops<T>) -> *mut bindings::tcp_congestion_ops {
        core::ptr::from_ref(ops).cast_mut().cast()
    }
}

impl<T: CongestionControl> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. The module's owner reference keeps us
        // from here while a socket has the ops; this waits for RCU readers.
        unsafe { bindings::tcp_unregister_congestion_control(Self::main(&self.ops)) }
    }
}
