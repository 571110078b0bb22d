// SPDX-License-Identifier: GPL-2.0
//! Raw netlink: sends any bytes and reads every answer.

use std::{
    io::{ErrorKind, Read},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use socket2::{Domain, Protocol, Socket, Type};
use xdc_netlink::connection::messages;

/// Length of `struct nlmsghdr`.
pub const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NETLINK_EXT_ACK: i32 = 11;
const NETLINK_CAP_ACK: i32 = 10;

/// Receive buffer for the answers to one batch, bytes.
const RECEIVE_BYTES: i32 = 8 << 20;

/// Longest dump on the slowest guest.
const PATIENCE: Duration = Duration::from_secs(60);

/// A netlink socket.
pub struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
}

/// An acknowledgment.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// Sequence number of the request.
    pub sequence: u32,
    /// 0 = accepted.
    pub errno: i32,
}

impl Netlink {
    /// Opens a socket in the thread's namespace.
    pub fn open(protocol: i32) -> Result<Self> {
        const SO_RCVBUFFORCE: i32 = libc::SO_RCVBUFFORCE;
        let socket = Socket::new(
            Domain::from(libc::AF_NETLINK),
            Type::RAW.cloexec(),
            Some(Protocol::from(protocol)),
        )
        .context("cannot open a netlink socket")?;
        crate::sys::set_option(&socket, libc::SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)?;
        // A missing answer is an error, not a hang.
        socket.set_read_timeout(Some(PATIENCE))?;
        for option in [NETLINK_EXT_ACK, NETLINK_CAP_ACK] {
            crate::sys::set_option(&socket, libc::SOL_NETLINK, option, 1)?;
        }
        Ok(Self { socket, buffer: vec![0; 64 << 10] })
    }

    /// Sends `bytes` unchanged. The kernel has processed them on return.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.send(bytes).map(|_| ())
    }

    /// Received acknowledgments; other answers are ignored.
    pub fn acks(&mut self) -> Result<Vec<Ack>> {
        self.socket.set_nonblocking(true)?;
        let mut found = Vec::new();
        loop {
            let n = match self.socket.read(&mut self.buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(found),
                // An answer could not be allocated; the caller's count misses it.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(e) => return Err(e).context("netlink"),
            };
            for message in messages(&self.buffer[..n]) {
                if let (NLMSG_ERROR, Some(code)) = (kind(message), i32_at(message, HEADER_BYTES)) {
                    found.push(Ack { sequence: u32_at(message, 8).unwrap_or(0), errno: -code });
                }
            }
        }
    }

    /// Dumps the objects that `body` selects; `each` gets the answers' bodies. Returns their number.
    pub fn dump(
        &mut self,
        kind_of_request: u16,
        body: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        self.socket.set_nonblocking(false)?;
        let mut request = Vec::new();
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        push_message(&mut request, kind_of_request, flags, 1, body);
        self.send(&request)?;
        let mut count = 0;
        loop {
            let n = self.socket.read(&mut self.buffer).context("netlink dump")?;
            ensure!(n > 0, "an empty answer to a dump");
            for message in messages(&self.buffer[..n]) {
                match kind(message) {
                    NLMSG_DONE => return Ok(count),
                    NLMSG_ERROR => bail!(
                        "dump refused: {}",
                        std::io::Error::from_raw_os_error(
                            -i32_at(message, HEADER_BYTES).unwrap_or(0)
                        )
                    ),
                    _ => {
                        count += 1;
                        each(&message[HEADER_BYTES..])?;
                    }
                }
            }
        }
    }
}

fn kind(message: &[u8]) -> u16 {
    u16::from_ne_bytes([message[4], message[5]])
}

fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    u32_at(bytes, offset).map(|word| word as i32)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Appends a message.
pub fn push_message(to: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, body: &[u8]) {
    let length = (HEADER_BYTES + body.len()) as u32;
    to.extend_from_slice(&length.to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(&flags.to_ne_bytes());
    to.extend_from_slice(&sequence.to_ne_bytes());
    to.extend_from_slice(&0u32.to_ne_bytes());
    to.extend_from_slice(body);
    to.resize(to.len().next_multiple_of(4), 0);
}
