// SPDX-License-Identifier: GPL-2.0
//! TCP socket calls that no crate wraps.

use std::{
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    time::Duration,
};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};
pub use xdc_tcpinfo::{COUNTERS, TcpInfo, tcp_info};

/// Discards all received data without copying; 0 = the peer has finished.
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
    set_any_option(socket, libc::SOL_SOCKET, name, value)
}

/// Sets an integer option.
fn set_any_option(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: u64,
) -> io::Result<()> {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
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

/// SO_TIMESTAMPING: wakes a poll for errors at the ACK of the last byte of each later write. An ACK
/// of data changes no other state that a poll would report.
pub fn report_acks(socket: &Socket) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_TX_ACK | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set_option(socket, libc::SO_TIMESTAMPING, flags.into())
}

/// Closes a connection without a packet (TCP_REPAIR); the peer must be closed likewise.
pub fn close_silently(socket: Socket) -> io::Result<()> {
    set_any_option(&socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, 1)
}

/// Options of a new TCP socket.
pub struct TcpOptions<'a> {
    /// TCP_CONGESTION; None = by route.
    pub congestion_control: Option<&'a str>,
    /// SO_SNDBUF; 0 = autotuning.
    pub sndbuf_bytes: u64,
    /// SO_RCVBUF; 0 = autotuning.
    pub rcvbuf_bytes: u64,
    /// DSCP of sent packets.
    pub dscp: u8,
    /// Local address.
    pub local: SocketAddr,
}

impl TcpOptions<'_> {
    /// Opens a non-blocking, bound socket in the current namespace.
    pub fn open(&self) -> Result<Socket> {
        let socket = Socket::new(
            Domain::for_address(self.local),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )
        .context("cannot open a TCP socket")?;
        if let Some(name) = self.congestion_control {
            set_congestion_control(&socket, name)?;
        }
        // Must precede listen and connect: buffers decide the window scale.
        if self.sndbuf_bytes > 0 {
            set_option(&socket, libc::SO_SNDBUFFORCE, self.sndbuf_bytes)
                .context("cannot set SO_SNDBUF")?;
        }
        if self.rcvbuf_bytes > 0 {
            set_option(&socket, libc::SO_RCVBUFFORCE, self.rcvbuf_bytes)
                .context("cannot set SO_RCVBUF")?;
        }
        if self.dscp > 0 {
            // TCP controls the two ECN bits itself.
            let tos = u64::from(self.dscp) << 2;
            let (level, name) = match self.local {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            set_any_option(&socket, level, name, tos).context("cannot set the DSCP")?;
        }
        socket
            .bind(&self.local.into())
            .with_context(|| format!("cannot bind to {}", self.local))?;
        Ok(socket)
    }
}

/// Sets TCP_CONGESTION.
pub fn set_congestion_control(socket: &Socket, name: &str) -> Result<()> {
    socket.set_tcp_congestion(name.as_bytes()).with_context(|| {
        format!("this kernel has no congestion control {name}: is its module in the plan?")
    })
}

/// The kernel's name of a socket's current congestion control.
pub fn congestion_control(socket: &Socket) -> Result<String> {
    let name = socket.tcp_congestion().context("TCP_CONGESTION")?;
    let name = String::from_utf8_lossy(&name);
    Ok(name.trim_end_matches('\0').to_owned())
}

/// A UDP socket in the current namespace with kernel receive timestamps.
pub fn open_probe(address: IpAddr, patience: Duration) -> Result<Socket> {
    let address = SocketAddr::new(address, 0);
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.cloexec(), Some(Protocol::UDP))
            .context("cannot open a UDP socket")?;
    socket.set_read_timeout(Some(patience))?;
    set_option(&socket, libc::SO_TIMESTAMPNS, 1).context("cannot set SO_TIMESTAMPNS")?;
    socket.bind(&address.into())?;
    Ok(socket)
}
