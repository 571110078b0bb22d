// SPDX-License-Identifier: GPL-2.0
//! A connection to rtnetlink.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Errors of netlink requests.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Socket error.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The kernel refused a request; `reason` is its message, if it sent one.
    #[error("cannot {what}: {reason}")]
    Refused {
        /// [`Request::what`].
        what: String,
        /// Extended ACK, or the text of errno.
        reason: String,
        /// errno.
        errno: i32,
    },
    /// Unparsable answer.
    #[error("malformed netlink answer: {0}")]
    Malformed(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One change to make.
#[derive(Debug, Clone)]
pub struct Request {
    /// Completes the error "cannot ...".
    pub what: String,
    /// Message.
    pub message: RouteNetlinkMessage,
    /// Flags such as NLM_F_CREATE.
    pub flags: u16,
}

/// Size of requests in one system call, bytes: well below a socket's send buffer.
const BATCH_BYTES: usize = 64 << 10;

/// Twice the kernel's longest dump datagram (netlink_recvmsg() in net/netlink/af_netlink.c).
const DATAGRAM_BYTES: usize = 64 << 10;

/// Alignment of messages (NLMSG_ALIGNTO).
const ALIGN_BYTES: usize = 4;

/// Length of `struct nlmsghdr`.
pub(crate) const HEADER_BYTES: usize = 16;

/// Length of an NLMSG_ERROR message before its attributes: header, code, and header of the request, because
/// NETLINK_CAP_ACK cuts the rest.
pub(crate) const ERROR_BYTES: usize = HEADER_BYTES + 4 + HEADER_BYTES;

/// A connection to the rtnetlink of the caller's namespace.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    /// Opens a connection in the current network namespace.
    pub fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Request extended ACKs, without a copy of the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and waits for the answer.
    pub fn request(&mut self, request: Request) -> Result<()> {
        self.batch([request])
    }

    /// Sends requests in order, many per system call. Returns the first failure; later requests of
    /// the same system call have been tried, too.
    pub fn batch(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<()> {
        let mut pending = Pending::default();
        for request in requests {
            pending.push(request, self.next_sequence());
            if pending.bytes.len() >= BATCH_BYTES {
                self.flush(&mut pending)?;
            }
        }
        self.flush(&mut pending)
    }

    /// Dumps everything that `message` selects.
    pub fn dump(
        &mut self,
        what: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let mut found = Vec::new();
        self.ask_for_all(what, message, |answer| match answer.message.payload {
            NetlinkPayload::InnerMessage(inner) => {
                found.push(inner);
                false
            }
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => true,
            _ => false,
        })?;
        Ok(found)
    }

    /// Dumps everything that `message` selects as raw messages, including the one that ends the
    /// dump.
    pub fn dump_bytes(&mut self, what: &str, message: RouteNetlinkMessage) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        self.ask_for_all(what, message, |answer| {
            found.extend_from_slice(answer.bytes);
            found.resize(found.len().next_multiple_of(ALIGN_BYTES), 0);
            matches!(answer.message.payload, NetlinkPayload::Done(_))
        })?;
        Ok(found)
    }

    /// Sends a dump request and passes each answer to `take`, which returns true for the last.
    fn ask_for_all(
        &mut self,
        what: &str,
        message: RouteNetlinkMessage,
        mut take: impl FnMut(Answer<'_>) -> bool,
    ) -> Result<()> {
        let sequence = self.next_sequence();
        self.socket.send(&serialize(message, sequence, NLM_F_DUMP), 0)?;
        loop {
            let datagram = receive(&self.socket)?;
            for answer in answers(&datagram) {
                let answer = answer?;
                if answer.message.header.sequence_number != sequence {
                    continue;
                }
                if let Some(refusal) = answer.refusal(what) {
                    return Err(refusal);
                }
                if take(answer) {
                    return Ok(());
                }
            }
        }
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends the pending requests and reads answers until the last is acknowledged.
    fn flush(&mut self, pending: &mut Pending) -> Result<()> {
        let Some(last_start) = pending.last_start else {
            return Ok(());
        };
        // The kernel always reports failures, so only the last request asks for an ACK.
        let flags_at = last_start + 6;
        let flags = u16::from_ne_bytes([pending.bytes[flags_at], pending.bytes[flags_at + 1]]);
        pending.bytes[flags_at..flags_at + 2].copy_from_slice(&(flags | NLM_F_ACK).to_ne_bytes());
        let sent = std::mem::take(pending);
        self.socket.send(&sent.bytes, 0)?;

        let first = self.sequence.wrapping_sub(sent.what.len() as u32).wrapping_add(1);
        let mut failure = None;
        loop {
            let datagram = receive(&self.socket)?;
            for answer in answers(&datagram) {
                let answer = answer?;
                let NetlinkPayload::Error(_) = answer.message.payload else {
                    continue;
                };
                let sequence = answer.message.header.sequence_number;
                let index = sequence.wrapping_sub(first) as usize;
                let Some(what) = sent.what.get(index) else {
                    continue;
                };
                failure = failure.or_else(|| answer.refusal(what));
                if index + 1 == sent.what.len() {
                    return failure.map_or(Ok(()), Err);
                }
            }
        }
    }
}

/// Receives the next datagram. The kernel fills the caller's buffer with a dump, so a large buffer
/// needs fewer system calls than a look at each length first.
pub(crate) fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
    let len = socket.recv(&mut datagram, 0)?;
    // A datagram of this size may have been cut.
    if len >= DATAGRAM_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("an answer of {DATAGRAM_BYTES} bytes or more"),
        ));
    }
    Ok(datagram)
}

/// Requests not yet sent.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    what: Vec<String>,
    last_start: Option<usize>,
}

impl Pending {
    fn push(&mut self, request: Request, sequence: u32) {
        self.last_start = Some(self.bytes.len());
        self.bytes.extend(serialize(request.message, sequence, request.flags));
        self.what.push(request.what);
    }
}

/// One message of a datagram from the kernel.
#[derive(Debug)]
pub struct Answer<'a> {
    /// Decoded message.
    pub message: NetlinkMessage<RouteNetlinkMessage>,
    /// Raw message.
    bytes: &'a [u8],
}

impl Answer<'_> {
    /// Returns the error if the answer refuses `what`; None for an ACK.
    pub fn refusal(&self, what: &str) -> Option<Error> {
        match &self.message.payload {
            NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                Some(refused(what, error.raw_code(), self.bytes.get(ERROR_BYTES..)))
            }
            _ => None,
        }
    }
}

/// Decodes the messages of a datagram.
pub fn answers(datagram: &[u8]) -> impl Iterator<Item = Result<Answer<'_>>> {
    messages(datagram).map(|bytes| {
        let message =
            NetlinkMessage::deserialize(bytes).map_err(|e| Error::Malformed(e.to_string()))?;
        Ok(Answer { message, bytes })
    })
}

fn serialize(message: RouteNetlinkMessage, sequence: u32, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len().next_multiple_of(ALIGN_BYTES)];
    message.serialize(&mut bytes);
    bytes
}

/// Splits a datagram into its messages.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        if length < HEADER_BYTES || length > datagram.len() {
            return None;
        }
        let (message, _) = datagram.split_at(length);
        datagram = &datagram[length.next_multiple_of(ALIGN_BYTES).min(datagram.len())..];
        Some(message)
    })
}

/// Returns the error of a refused request; `attributes` are those of the extended ACK.
pub(crate) fn refused(what: &str, code: i32, attributes: Option<&[u8]>) -> Error {
    const NLMSGERR_ATTR_MSG: u16 = 1;

    let errno = code.saturating_abs();
    let sentence = crate::attributes::parse(attributes.unwrap_or_default())
        .filter_map(Result::ok)
        .find(|(id, _)| *id == NLMSGERR_ATTR_MSG)
        .map(|(_, text)| String::from_utf8_lossy(&text).trim_end_matches('\0').to_string());
    Error::Refused {
        what: what.to_string(),
        reason: sentence.unwrap_or_else(|| io::Error::from_raw_os_error(errno).to_string()),
        errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_cut_at_message_lengths() {
        let mut datagram = Vec::new();
        for length in [16u32, 18, 20] {
            let mut message = vec![0; length.next_multiple_of(4) as usize];
            message[..4].copy_from_slice(&length.to_ne_bytes());
            datagram.extend(message);
        }
        let lengths: Vec<usize> = messages(&datagram).map(<[u8]>::len).collect();
        assert_eq!(lengths, [16, 18, 20]);
    }

    #[test]
    fn a_refusal_has_the_kernels_message() {
        let attributes = [&[9u8, 0, 1, 0][..], b"oops\0\0\0\0"].concat();
        let error = refused("add qdisc", -22, Some(&attributes));
        assert_eq!(error.to_string(), "cannot add qdisc: oops");
    }

    #[test]
    fn the_kernel_refuses_an_unknown_device() {
        let mut connection = Connection::open().unwrap();
        let error = connection.request(crate::link::set_up("nowhere", u32::MAX >> 1)).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
}
