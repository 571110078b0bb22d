// SPDX-License-Identifier: GPL-2.0
//! TCP sockets as the traffic needs them: the few system calls that no crate wraps.

use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::AsRawFd,
    time::Duration,
};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// struct tcp_info of include/uapi/linux/tcp.h up to what we read. A shorter answer of an older
/// kernel leaves zeroes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    wscales: u8,
    flags: u8,

    rto: u32,
    ato: u32,
    /// Bytes.
    pub snd_mss: u32,
    rcv_mss: u32,

    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,

    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,

    pmtu: u32,
    rcv_ssthresh: u32,
    /// Smoothed, us.
    pub rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    /// Packets.
    pub snd_cwnd: u32,
    advmss: u32,
    reordering: u32,

    rcv_rtt: u32,
    rcv_space: u32,

    /// Packets.
    pub total_retrans: u32,

    /// Bytes per second; all ones = unlimited.
    pub pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    /// In order.
    pub bytes_received: u64,
    segs_out: u32,
    segs_in: u32,

    notsent_bytes: u32,
    /// us; all ones = never measured.
    pub min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,

    delivery_rate: u64,

    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,

    /// Packets.
    pub delivered: u32,
    /// Packets.
    pub delivered_ce: u32,

    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,

    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,

    /// Retransmission timeouts.
    pub total_rto: u16,
    total_rto_recoveries: u16,
    total_rto_time: u32,
}

/// TCP_INFO of a socket.
pub fn tcp_info(socket: &Socket) -> io::Result<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut length = mem::size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: `info` is plain data of `length` bytes, valid for every bit pattern; the kernel
    // writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        )
    };
    match result {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes everything that has arrived without copying it; 0 = the peer has finished.
pub fn discard(socket: &Socket) -> io::Result<usize> {
    const ALL: usize = 1 << 30;
    // SAFETY: with MSG_TRUNC, TCP drops the data and writes nothing to the (null) buffer.
    let result = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            ALL,
            libc::MSG_TRUNC | libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets an integer option at SOL_SOCKET.
fn set_option(socket: &Socket, name: libc::c_int, value: u64) -> io::Result<()> {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// SO_RCVLOWAT: wakes the reader when this much has arrived.
pub fn set_wake_bytes(socket: &Socket, bytes: u64) -> io::Result<()> {
    set_option(socket, libc::SO_RCVLOWAT, bytes)
}

/// What a TCP socket is made with.
pub struct TcpOptions<'a> {
    /// TCP_CONGESTION.
    pub congestion_control: &'a str,
    /// SO_SNDBUF; 0 = autotuning.
    pub sndbuf_bytes: u64,
    /// SO_RCVBUF; 0 = autotuning.
    pub rcvbuf_bytes: u64,
    /// Local end.
    pub local: SocketAddrV4,
}

impl TcpOptions<'_> {
    /// A non-blocking socket in the current namespace, bound.
    pub fn open(&self) -> Result<Socket> {
        let socket = Socket::new(
            Domain::IPV4,
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )
        .context("cannot open a TCP socket")?;
        socket
            .set_tcp_congestion(self.congestion_control.as_bytes())
            .with_context(|| {
                format!(
                    "this kernel has no congestion control {}: is its module in the plan?",
                    self.congestion_control
                )
            })?;
        // Before listen and connect: they decide the window scale.
        if self.sndbuf_bytes > 0 {
            set_option(&socket, libc::SO_SNDBUFFORCE, self.sndbuf_bytes)
                .context("cannot set SO_SNDBUF")?;
        }
        if self.rcvbuf_bytes > 0 {
            set_option(&socket, libc::SO_RCVBUFFORCE, self.rcvbuf_bytes)
                .context("cannot set SO_RCVBUF")?;
        }
        socket
            .bind(&self.local.into())
            .with_context(|| format!("cannot bind to {}", self.local))?;
        Ok(socket)
    }
}

/// A UDP socket in the current namespace whose packets carry the kernel's time of arrival.
pub fn open_probe(address: Ipv4Addr, patience: Duration) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), Some(Protocol::UDP))
        .context("cannot open a UDP socket")?;
    socket.set_read_timeout(Some(patience))?;
    set_option(&socket, libc::SO_TIMESTAMPNS, 1).context("cannot set SO_TIMESTAMPNS")?;
    socket.bind(&SocketAddrV4::new(address, 0).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_info_has_the_kernels_layout() {
        assert_eq!(mem::offset_of!(TcpInfo, pacing_rate), 104);
        assert_eq!(mem::offset_of!(TcpInfo, bytes_received), 128);
        assert_eq!(mem::offset_of!(TcpInfo, min_rtt), 148);
        assert_eq!(mem::offset_of!(TcpInfo, delivered), 192);
        assert_eq!(mem::offset_of!(TcpInfo, total_rto), 240);
    }
}
