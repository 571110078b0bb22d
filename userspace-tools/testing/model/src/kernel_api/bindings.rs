// SPDX-License-Identifier: GPL-2.0
//! Model of the C bindings of modules/rust/kernel/net/tcp/: the fields it reads, and the functions it calls,
//! which change the socket as TCP does.

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]

use std::{
    ffi::{c_char, c_int, c_long, c_uint},
    mem::offset_of,
    ptr::{addr_of, addr_of_mut},
};

pub type u8_ = u8;
pub type bool_ = bool;
pub type tcp_ca_event = c_uint;
pub type tcp_ca_state = c_uint;

pub const TCP_CA_NAME_MAX: u32 = 16;
pub const TCP_CA_Open: tcp_ca_state = 0;
pub const TCP_CA_Disorder: tcp_ca_state = 1;
pub const TCP_CA_CWR: tcp_ca_state = 2;
pub const TCP_CA_Recovery: tcp_ca_state = 3;
pub const TCP_CA_Loss: tcp_ca_state = 4;
pub const CA_EVENT_CWND_RESTART: tcp_ca_event = 1;
pub const CA_EVENT_COMPLETE_CWR: tcp_ca_event = 2;
pub const CA_EVENT_LOSS: tcp_ca_event = 3;
pub const CA_EVENT_ECN_NO_CE: tcp_ca_event = 4;
pub const CA_EVENT_ECN_IS_CE: tcp_ca_event = 5;
pub const ICSK_ACK_TIMER: c_uint = 2;
pub const ICSK_ACK_NOW: c_uint = 16;
pub const TCP_SYN_SENT: u32 = 2;
pub const TCP_SYN_RECV: u32 = 3;
pub const INET_DIAG_VEGASINFO: c_uint = 3;
pub const INET_DIAG_DCTCPINFO: c_uint = 9;
pub const XDC_TCP_CONG_NON_RESTRICTED: u32 = 1;
pub const XDC_TCP_CONG_NEEDS_ECN: u32 = 2;
pub const XDC_TCP_CONG_NEEDS_ACCECN: u32 = 4;
pub const XDC_TCP_ECN_MODE_RFC3168: u32 = 1;
pub const XDC_TCP_ECN_DEMAND_CWR: u32 = 4;
pub const XDC_TCP_ECN_MODE_ACCECN: u32 = 16;
pub const XDC_TCP_ACCECN_ACE_FAIL: u32 = 3;
pub const XDC_CA_PRIV_BYTES: u32 = 104;

/// Opaque.
pub struct sock(());

#[derive(Default)]
#[repr(C)]
pub struct possible_net {
    pub net: usize,
}

#[derive(Default)]
#[repr(C)]
pub struct sock_common {
    pub skc_net: possible_net,
    pub skc_state: u8,
}

#[derive(Default)]
#[repr(C)]
pub struct sock_fields {
    pub __sk_common: sock_common,
    pub sk_max_pacing_rate: usize,
    pub sk_pacing_rate: usize,
    pub sk_pacing_status: u32,
}

#[derive(Default)]
#[repr(C)]
pub struct inet_sock {
    pub sk: sock_fields,
}

#[derive(Default)]
#[repr(C)]
pub struct icsk_ack {
    pub pending: u8,
}

#[repr(C)]
pub struct inet_connection_sock {
    pub icsk_inet: inet_sock,
    pub icsk_ca_ops: *const tcp_congestion_ops,
    /// Bit fields in C.
    pub ca_state: u8,
    pub ca_initialized: u8,
    pub icsk_ack: icsk_ack,
    pub icsk_ca_priv: [u64; 13],
}

impl inet_connection_sock {
    /// # Safety
    ///
    /// `this` is valid for reads.
    pub unsafe fn icsk_ca_state_raw(this: *const Self) -> u8 {
        // SAFETY: as required.
        unsafe { addr_of!((*this).ca_state).read() }
    }

    /// # Safety
    ///
    /// `this` is valid for reads.
    pub unsafe fn icsk_ca_initialized_raw(this: *const Self) -> u8 {
        // SAFETY: as required.
        unsafe { addr_of!((*this).ca_initialized).read() }
    }

    /// Accessor that makes a reference to the socket, for the test that Miri detects one.
    pub fn icsk_ca_state(&self) -> u8 {
        self.ca_state
    }
}

#[derive(Default)]
#[repr(C)]
pub struct minmax_sample {
    pub v: u32,
}

#[derive(Default)]
#[repr(C)]
pub struct minmax {
    pub s: [minmax_sample; 3],
}

#[repr(C)]
pub struct tcp_sock {
    pub inet_conn: inet_connection_sock,
    pub snd_cwnd: u32,
    pub snd_cwnd_clamp: u32,
    pub snd_ssthresh: u32,
    pub prior_ssthresh: u32,
    pub tcp_mstamp: u64,
    pub srtt_us: u32,
    pub rtt_min: minmax,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub packets_out: u32,
    pub prr_out: u32,
    pub sacked_out: u32,
    pub lost_out: u32,
    pub retrans_out: u32,
    pub mss_cache: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
    pub segs_out: u32,
    pub data_segs_out: u32,
    pub high_seq: u32,
    pub ecn_flags: u8,
    pub accecn_fail_mode: u8,
    pub usec_ts: u8,
    pub tos: u8,
    pub fastopen_rsk: *mut request_sock,
    /// Called when an ACK is sent.
    pub on_ack: Option<unsafe fn(*mut tcp_sock)>,
}

/// Opaque.
pub enum request_sock {}

impl tcp_sock {
    /// # Safety
    ///
    /// `this` is valid for reads.
    pub unsafe fn tcp_usec_ts_raw(this: *const Self) -> u8 {
        // SAFETY: as required.
        unsafe { addr_of!((*this).usec_ts).read() }
    }

    /// # Safety
    ///
    /// `this` is valid for reads.
    pub unsafe fn accecn_fail_mode_raw(this: *const Self) -> u8 {
        // SAFETY: as required.
        unsafe { addr_of!((*this).accecn_fail_mode).read() }
    }
}

#[derive(Default)]
#[repr(C)]
pub struct rate_sample {
    pub prior_mstamp: u64,
    pub delivered: i32,
    pub interval_us: c_long,
    pub rtt_us: c_long,
    pub losses: i32,
    pub acked_sacked: u32,
    pub prior_in_flight: u32,
    pub is_app_limited: bool,
    pub is_retrans: bool,
    pub is_ack_delayed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct tcp_dctcp_info {
    pub dctcp_enabled: u16,
    pub dctcp_ce_state: u16,
    pub dctcp_alpha: u32,
    pub dctcp_ab_ecn: u32,
    pub dctcp_ab_tot: u32,
}

#[repr(C)]
pub union tcp_cc_info {
    pub dctcp: tcp_dctcp_info,
    pub words: [u32; 5],
}

type Callback<R = ()> = Option<unsafe extern "C" fn(sk: *mut sock) -> R>;

#[repr(C)]
pub struct tcp_congestion_ops {
    pub cong_avoid: Option<unsafe extern "C" fn(sk: *mut sock, ack: u32, acked: u32)>,
    pub cong_control:
        Option<unsafe extern "C" fn(sk: *mut sock, ack: u32, flag: c_int, rs: *const rate_sample)>,
    pub ssthresh: Callback<u32>,
    pub set_state: Option<unsafe extern "C" fn(sk: *mut sock, new_state: u8)>,
    pub cwnd_event: Option<unsafe extern "C" fn(sk: *mut sock, ev: tcp_ca_event)>,
    pub cwnd_event_tx_start: Callback,
    pub in_ack_event: Option<unsafe extern "C" fn(sk: *mut sock, flags: u32)>,
    pub undo_cwnd: Callback<u32>,
    pub get_info: Option<
        unsafe extern "C" fn(
            sk: *mut sock,
            ext: u32,
            attr: *mut c_int,
            info: *mut tcp_cc_info,
        ) -> usize,
    >,
    pub name: [c_char; 16],
    pub owner: *mut u8,
    pub key: u32,
    pub flags: u32,
    pub init: Callback,
    pub release: Callback,
}

/// Writes to the table, because the kernel links it into a list.
///
/// # Safety
///
/// `ops` is valid.
pub unsafe fn tcp_register_congestion_control(ops: *mut tcp_congestion_ops) -> c_int {
    // SAFETY: as required.
    unsafe { addr_of_mut!((*ops).key).write(1) };
    REGISTERED.set(ops);
    0
}

/// # Safety
///
/// `ops` is valid.
pub unsafe fn tcp_unregister_congestion_control(ops: *mut tcp_congestion_ops) {
    // SAFETY: as required.
    unsafe { addr_of_mut!((*ops).key).write(0) };
}

thread_local! {
    /// The most recently registered algorithm.
    pub static REGISTERED: std::cell::Cell<*mut tcp_congestion_ops> =
        const { std::cell::Cell::new(std::ptr::null_mut()) };
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe extern "C" fn tcp_reno_ssthresh(sk: *mut sock) -> u32 {
    // SAFETY: as required.
    unsafe { (addr_of!((*sk.cast::<tcp_sock>()).snd_cwnd).read() / 2).max(2) }
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe extern "C" fn tcp_reno_undo_cwnd(sk: *mut sock) -> u32 {
    // SAFETY: as required.
    unsafe { addr_of!((*sk.cast::<tcp_sock>()).snd_cwnd).read() }
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe extern "C" fn tcp_reno_cong_avoid(sk: *mut sock, _ack: u32, acked: u32) {
    // SAFETY: as required.
    unsafe {
        let cwnd = addr_of_mut!((*sk.cast::<tcp_sock>()).snd_cwnd);
        cwnd.write(cwnd.read() + acked);
    }
}

/// # Safety
///
/// `tp` is valid.
pub unsafe fn tcp_slow_start(tp: *mut tcp_sock, acked: u32) -> u32 {
    // SAFETY: as required.
    unsafe {
        let cwnd = addr_of_mut!((*tp).snd_cwnd);
        cwnd.write(cwnd.read() + acked);
    }
    0
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe fn xdc_tcp_is_cwnd_limited(sk: *const sock) -> bool {
    // SAFETY: as required.
    unsafe { addr_of!((*sk.cast::<tcp_sock>()).packets_out).read() > 0 }
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe fn xdc_tcp_need_pacing(sk: *mut sock) {
    // SAFETY: as required.
    unsafe {
        addr_of_mut!(
            (*sk.cast::<tcp_sock>())
                .inet_conn
                .icsk_inet
                .sk
                .sk_pacing_status
        )
        .write(1)
    };
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe fn xdc_inet_ecn_dontxmit(sk: *mut sock) {
    // SAFETY: as required.
    unsafe { addr_of_mut!((*sk.cast::<tcp_sock>()).tos).write(0) };
}

/// # Safety
///
/// `sk` is a [`tcp_sock`].
pub unsafe fn xdc_tcp_send_ack(sk: *mut sock, _rcv_nxt: u32) {
    let tp: *mut tcp_sock = sk.cast();
    // SAFETY: as required.
    unsafe {
        let pending = addr_of_mut!((*tp).inet_conn.icsk_ack.pending);
        pending.write(pending.read() & !(ICSK_ACK_TIMER as u8));
        if let Some(on_ack) = addr_of!((*tp).on_ack).read() {
            on_ack(tp);
        }
    }
}

/// # Safety
///
/// No requirement.
pub unsafe fn xdc_this_module() -> *mut u8 {
    core::ptr::null_mut()
}

// C aligns the private area to 8 bytes.
const _: () = assert!(offset_of!(inet_connection_sock, icsk_ca_priv) % 8 == 0);
