// SPDX-License-Identifier: GPL-2.0
//! An algorithm that uses its private data in every callback, and TCP's side of the calls.

use std::{
    mem::MaybeUninit,
    ptr::{addr_of, addr_of_mut},
};

use kernel::prelude::*;

use crate::kernel_api::{
    bindings::{
        inet_connection_sock, rate_sample, sock, tcp_cc_info, tcp_congestion_ops, tcp_sock,
        TCP_CA_Open, CA_EVENT_ECN_IS_CE, CA_EVENT_ECN_NO_CE, CA_EVENT_LOSS, ICSK_ACK_TIMER,
        REGISTERED, TCP_CA_CWR, TCP_SYN_RECV, TCP_SYN_SENT, XDC_TCP_ECN_MODE_ACCECN,
        XDC_TCP_ECN_MODE_RFC3168,
    },
    tcp::{
        flags, AckFlags, CongestionControl, EceEcho, Echo, EcnMode, Event, Info, Marks,
        NoDiagBlock, RateSample, Registration, Sock, State,
    },
};

const ESTABLISHED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Data {
    acks: u32,
    thresholds: u32,
    states: u32,
    losses: u32,
}

struct Model;

#[vtable]
impl CongestionControl for Model {
    const NAME: &'static CStr = c"model";
    const FLAGS: u32 = flags::NEEDS_ECN;
    const ECE_ECHO: EceEcho = EceEcho::Rfc3168;

    type Diag = NoDiagBlock;
    type Data = Data;

    fn init(&self, sk: &mut Sock<'_>) -> Option<Data> {
        sk.watch_repeats();
        sk.restart_marks();
        (sk.ecn_mode() != EcnMode::None).then_some(Data {
            acks: 0,
            thresholds: 0,
            states: 0,
            losses: 0,
        })
    }

    fn ssthresh(&self, sk: &mut Sock<'_>, data: &mut Data) -> u32 {
        data.thresholds += 1;
        sk.snd_cwnd() / 2
    }

    fn undo_cwnd(&self, sk: &mut Sock<'_>, _data: &mut Data) -> u32 {
        sk.reno_undo_cwnd()
    }

    fn cong_control(&self, sk: &mut Sock<'_>, data: &mut Data, rs: &RateSample, flags: AckFlags) {
        data.acks += 1;
        let mut lost = false;
        let marked = match sk.take_marks(rs.acked_sacked(), flags, |_| lost = true) {
            Marks::Counted(marked) => marked,
            Marks::Echo(Echo::Clear) => 0,
            Marks::Echo(_) => rs.acked_sacked(),
        };
        sk.keep(sk.kept().wrapping_add(1) & 0x7f);
        // Every socket access that a callback may do, between two uses of the data.
        let _ = (
            sk.ca_state() == State::Cwr,
            sk.has_usec_timestamps(),
            sk.is_cwnd_limited(),
        );
        let _ = (
            sk.ecn_mode() == EcnMode::AccEcn,
            sk.in_flight(),
            sk.min_rtt_us(),
            sk.is_timeout(),
        );
        sk.set_snd_cwnd(sk.snd_cwnd() + 1);
        sk.set_snd_ssthresh(sk.reno_ssthresh());
        sk.set_pacing_rate_bytes(1_000);
        sk.publish(Info {
            fraction: marked,
            marked_bytes: data.acks,
            ..Info::default()
        });
        data.losses += u32::from(lost);
        if sk.ecn_mode() == EcnMode::None {
            sk.fall_back();
            data.acks += 1;
        }
    }

    fn set_state(&self, sk: &mut Sock<'_>, data: &mut Data, new: State) {
        if new == State::Cwr {
            sk.note_cwr();
        }
        data.states += 1;
    }

    fn cwnd_event(&self, _sk: &mut Sock<'_>, data: &mut Data, event: Event) {
        data.losses += u32::from(event == Event::Loss);
    }

    fn cwnd_event_tx_start(&self, sk: &mut Sock<'_>, data: &mut Data) {
        sk.restart_marks();
        data.acks += 1;
    }
}

/// TCP with one socket.
struct Tcp {
    sk: *mut tcp_sock,
    _registration: Registration<Model>,
}

impl Tcp {
    fn new(state: u8, ecn_mode: u32) -> Self {
        let registration = Registration::new(Model).expect("memory");
        // SAFETY: All zeroes is a valid socket.
        let mut socket: tcp_sock = unsafe { MaybeUninit::zeroed().assume_init() };
        socket.inet_conn.icsk_ca_ops = REGISTERED.get();
        socket.inet_conn.icsk_inet.sk.__sk_common.skc_state = state;
        socket.inet_conn.icsk_inet.sk.sk_max_pacing_rate = usize::MAX;
        socket.ecn_flags = ecn_mode as u8;
        socket.snd_cwnd = 10;
        socket.snd_cwnd_clamp = u32::MAX;
        socket.mss_cache = 1_000;
        let tcp = Tcp {
            sk: Box::into_raw(Box::new(socket)),
            _registration: registration,
        };
        // SAFETY: C calls init() with the socket locked.
        unsafe { (tcp.ops().init.expect("init"))(tcp.raw()) };
        // SAFETY: The socket is valid and not shared.
        unsafe { addr_of_mut!((*tcp.sk).inet_conn.ca_initialized).write(1) };
        tcp
    }

    fn raw(&self) -> *mut sock {
        self.sk.cast()
    }

    fn ops(&self) -> &tcp_congestion_ops {
        // SAFETY: the socket's ops live as long as the registration.
        unsafe { &*addr_of!((*self.sk).inet_conn.icsk_ca_ops).read() }
    }

    fn ack(&self, acked: u32) {
        let rs = rate_sample {
            acked_sacked: acked,
            ..rate_sample::default()
        };
        // SAFETY: C calls cong_control() with the socket locked.
        unsafe { (self.ops().cong_control.expect("cong_control"))(self.raw(), 0, 0, &rs) };
    }

    fn set_state(&self, state: u32) {
        // SAFETY: C calls set_state() with the socket locked.
        unsafe { (self.ops().set_state.expect("set_state"))(self.raw(), state as u8) };
    }

    fn event(&self, event: u32) {
        // SAFETY: C calls cwnd_event() with the socket locked.
        unsafe { (self.ops().cwnd_event.expect("cwnd_event"))(self.raw(), event) };
    }

    /// Calls get_info() as inet_diag does.
    fn info(&self) -> (u16, u32) {
        let mut attr = 0;
        let mut info = MaybeUninit::<tcp_cc_info>::uninit();
        // SAFETY: the socket is alive, and both are valid.
        let bytes = unsafe {
            (self.ops().get_info.expect("get_info"))(self.raw(), !0, &mut attr, info.as_mut_ptr())
        };
        assert_eq!(bytes, 16);
        // SAFETY: get_info() wrote 16 bytes.
        let info = unsafe { addr_of!((*info.as_ptr()).dctcp).read() };
        (info.dctcp_enabled, info.dctcp_ab_ecn)
    }

    /// The algorithm's data, which follows the head of the private area.
    fn data(&self) -> Data {
        // SAFETY: no callback runs.
        unsafe {
            addr_of!((*self.sk).inet_conn.icsk_ca_priv)
                .cast::<[u8; 104]>()
                .cast::<u8>()
                .add(32)
                .cast::<Data>()
                .read()
        }
    }

    /// A packet with a different CE state arrives while an ACK is delayed.
    fn ce_changes(&self, on_ack: unsafe fn(*mut tcp_sock)) {
        // SAFETY: no callback runs.
        unsafe {
            addr_of_mut!((*self.sk).inet_conn.icsk_ack.pending).write(ICSK_ACK_TIMER as u8);
            addr_of_mut!((*self.sk).on_ack).write(Some(on_ack));
        }
        self.event(CA_EVENT_ECN_IS_CE);
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // SAFETY: `new` made it.
        drop(unsafe { Box::from_raw(self.sk) });
    }
}

/// The local qdisc drops the ACK: tcp_enter_cwr() calls two callbacks of the socket.
unsafe fn dropped(sk: *mut tcp_sock) {
    // SAFETY: The socket is locked, as in TCP.
    unsafe {
        let ops = addr_of!((*sk).inet_conn.icsk_ca_ops).read();
        let ssthresh = ((*ops).ssthresh.expect("ssthresh"))(sk.cast());
        addr_of_mut!((*sk).snd_ssthresh).write(ssthresh);
        ((*ops).set_state.expect("set_state"))(sk.cast(), TCP_CA_CWR as u8);
        addr_of_mut!((*sk).inet_conn.ca_state).write(TCP_CA_CWR as u8);
    }
}

/// Content of a private area written by another congestion control.
const OF_ANOTHER: u64 = 0x0101_0101_0101_0101;

struct Other(tcp_congestion_ops);

// SAFETY: The value is never written.
unsafe impl Sync for Other {}

// SAFETY: Null callbacks are valid.
static OTHER: Other = Other(unsafe { MaybeUninit::zeroed().assume_init() });

/// A BPF program sees the ACK and switches the socket's congestion control.
unsafe fn switched(sk: *mut tcp_sock) {
    // SAFETY: The socket is locked, as in TCP.
    unsafe {
        addr_of_mut!((*sk).inet_conn.icsk_ca_ops).write(&raw const OTHER.0);
        addr_of_mut!((*sk).inet_conn.icsk_ca_priv).write([OF_ANOTHER; 13]);
    }
}

#[test]
fn a_callback_reads_socket_and_private_data() {
    let tcp = Tcp::new(ESTABLISHED, XDC_TCP_ECN_MODE_ACCECN);
    for _ in 0..3 {
        tcp.ack(1);
        assert_eq!(tcp.info().0, 1);
    }
    assert_eq!(tcp.data().acks, 3);
    assert_eq!(tcp.info(), (1, 3));
    tcp.event(CA_EVENT_LOSS);
    tcp.set_state(TCP_CA_Open);
    assert_eq!((tcp.data().losses, tcp.data().states), (1, 1));
}

#[test]
fn a_dropped_echo_ack_runs_callbacks() {
    let tcp = Tcp::new(ESTABLISHED, XDC_TCP_ECN_MODE_RFC3168);
    tcp.ack(1);
    tcp.ce_changes(dropped);
    let data = tcp.data();
    assert_eq!((data.acks, data.thresholds, data.states), (1, 1, 1));
    // The drop counts as a loss at the next ACK.
    tcp.ack(1);
    assert_eq!(tcp.data().losses, 1);
    tcp.event(CA_EVENT_ECN_NO_CE);
}

#[test]
fn an_algorithm_switch_by_an_echo_ack_keeps_the_new_private_area() {
    let tcp = Tcp::new(ESTABLISHED, XDC_TCP_ECN_MODE_RFC3168);
    tcp.ack(1);
    tcp.ce_changes(switched);
    // SAFETY: no callback runs.
    let area = unsafe { addr_of!((*tcp.sk).inet_conn.icsk_ca_priv).read() };
    assert_eq!(area, [OF_ANOTHER; 13]);
}

#[test]
fn a_callback_can_fall_back_to_reno() {
    let tcp = Tcp::new(ESTABLISHED, XDC_TCP_ECN_MODE_ACCECN);
    tcp.ack(1);
    // SAFETY: no callback runs.
    unsafe { addr_of_mut!((*tcp.sk).accecn_fail_mode).write(2) };
    tcp.ack(1);
    assert_eq!(tcp.data().acks, 3);
    assert_eq!(tcp.info().0, 0);
    assert!(tcp.ops().cong_control.is_none());
}

#[test]
fn a_connecting_socket_has_no_state() {
    let tcp = Tcp::new(
        TCP_SYN_SENT as u8,
        XDC_TCP_ECN_MODE_ACCECN | XDC_TCP_ECN_MODE_RFC3168,
    );
    tcp.set_state(TCP_CA_Open);
    assert_eq!(tcp.info().0, 0);
    tcp.establish(XDC_TCP_ECN_MODE_ACCECN);
    tcp.ack(1);
    assert_eq!((tcp.data().acks, tcp.info().0), (1, 1));
}

impl Tcp {
    /// Fills the area as another congestion control would.
    fn fill_area(&self, word: u64) {
        // SAFETY: no callback runs.
        unsafe { addr_of_mut!((*self.sk).inet_conn.icsk_ca_priv).write([word; 13]) };
    }

    fn establish(&self, ecn_mode: u32) {
        self.enter(ESTABLISHED);
        // SAFETY: no callback runs.
        unsafe { addr_of_mut!((*self.sk).ecn_flags).write(ecn_mode as u8) };
    }

    fn enter(&self, state: u8) {
        // SAFETY: no callback runs.
        unsafe {
            addr_of_mut!((*self.sk).inet_conn.icsk_inet.sk.__sk_common.skc_state).write(state);
        }
    }
}

/// A route sets the congestion control while a SYN with data waits for the data.
#[test]
fn a_connecting_socket_ignores_state_of_another_algorithm() {
    let tcp = Tcp::new(TCP_SYN_SENT as u8, 0);
    tcp.fill_area(!0);
    // The peer answers the SYN.
    tcp.ack(1);
    tcp.establish(XDC_TCP_ECN_MODE_ACCECN);
    assert_eq!(tcp.info().0, 0);
    tcp.ack(1);
    assert_eq!((tcp.data().acks, tcp.info()), (1, (1, 1)));
}

/// A crossing SYN is no ACK: the first callback comes one state later.
#[test]
fn a_socket_with_crossed_syns_ignores_state_of_another_algorithm() {
    let tcp = Tcp::new(TCP_SYN_SENT as u8, 0);
    tcp.fill_area(!0);
    tcp.enter(TCP_SYN_RECV as u8);
    tcp.ack(1);
    tcp.establish(XDC_TCP_ECN_MODE_ACCECN);
    assert_eq!(tcp.info().0, 0);
    tcp.ack(1);
    assert_eq!((tcp.data().acks, tcp.info()), (1, (1, 1)));
}

/// A Fast Open server sends data in SYN_RECV.
#[test]
fn a_fast_open_server_has_state_before_it_is_established() {
    let tcp = Tcp::new(TCP_SYN_RECV as u8, XDC_TCP_ECN_MODE_ACCECN);
    // SAFETY: no callback runs.
    unsafe { addr_of_mut!((*tcp.sk).fastopen_rsk).write(std::ptr::dangling_mut()) };
    tcp.ack(1);
    assert_eq!((tcp.data().acks, tcp.info()), (1, (1, 1)));
}

/// With TCP_REPAIR no SYN is sent: no callback runs before the socket is established.
#[test]
fn any_private_area_is_a_valid_state() {
    const LIVE_OF_ANOTHER: u64 = 0x8101_0101_8101_0101;
    let tcp = Tcp::new(TCP_SYN_SENT as u8, 0);
    tcp.fill_area(LIVE_OF_ANOTHER);
    tcp.establish(XDC_TCP_ECN_MODE_ACCECN);
    tcp.ack(1);
    tcp.event(CA_EVENT_LOSS);
    assert_eq!(tcp.data().acks, LIVE_OF_ANOTHER as u32 + 1);
}

#[test]
fn a_socket_without_ecn_sends_not_ect() {
    let tcp = Tcp::new(TCP_SYN_SENT as u8, 0);
    // SAFETY: no callback runs.
    unsafe { addr_of_mut!((*tcp.sk).tos).write(2) };
    tcp.establish(0);
    tcp.ack(1);
    assert!(tcp.ops().cong_control.is_none());
    // SAFETY: no callback runs.
    assert_eq!(unsafe { addr_of!((*tcp.sk).tos).read() }, 0);
}

/// Checks that Miri rejects a reference to the socket in this model.
#[test]
#[ignore = "undefined behavior, for selftests/host/miri"]
fn miri_rejects_a_reference_to_the_socket() {
    let tcp = Tcp::new(ESTABLISHED, XDC_TCP_ECN_MODE_ACCECN);
    // SAFETY: Violated on purpose.
    unsafe {
        let data = &mut *addr_of_mut!((*tcp.sk).inet_conn.icsk_ca_priv)
            .cast::<u64>()
            .add(4);
        *data += 1;
        let icsk: &inet_connection_sock = &(*tcp.sk).inet_conn;
        assert_eq!(icsk.icsk_ca_state(), 0);
        *data += 1;
    }
}
