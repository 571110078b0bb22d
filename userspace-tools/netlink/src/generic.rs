// SPDX-License-Identifier: GPL-2.0
//! Generic netlink: requests to a family that a kernel module registers (include/uapi/linux/genetlink.h).

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::{
    attributes::{self, Attributes},
    codec::malformed,
    connection::{ERROR_BYTES, HEADER_BYTES, Result, messages, receive, refused},
};

/// GENL_ID_CTRL, and the version of its messages.
const CONTROLLER: (u16, u8) = (16, 2);
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// Length of `struct genlmsghdr`.
const COMMAND_BYTES: usize = 4;

/// A connection to one family in the caller's network namespace.
#[derive(Debug)]
pub struct Family {
    socket: Socket,
    sequence: u32,
    id: u16,
    version: u8,
}

impl Family {
    /// Opens a connection to the family `name`. If no module registers it, the error has errno ENOENT.
    pub fn open(name: &str, version: u8) -> Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Request extended ACKs, without a copy of the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        let mut family = Self { socket, sequence: 0, id: CONTROLLER.0, version: CONTROLLER.1 };
        let mut wanted = Attributes::default();
        wanted.push(CTRL_ATTR_FAMILY_NAME, &[name.as_bytes(), &[0]].concat());
        let what = format!("find the netlink family {name}");
        let found = family.ask(&what, CTRL_CMD_GETFAMILY, wanted)?;
        let mut attributes = found.iter().flat_map(|message| attributes::parse(message));
        let id = attributes.find_map(|attribute| match attribute {
            Ok((CTRL_ATTR_FAMILY_ID, value)) => Some(u16::from_ne_bytes(value.try_into().ok()?)),
            _ => None,
        });
        family.id = id.ok_or_else(|| malformed("CTRL_ATTR_FAMILY_ID"))?;
        family.version = version;
        Ok(family)
    }

    /// Sends one command and waits until the kernel has done it.
    pub fn request(&mut self, what: &str, command: u8, attributes: Attributes) -> Result<()> {
        self.send(what, command, NLM_F_ACK, attributes).map(|_| ())
    }

    /// Sends one command; returns the attributes of each answer.
    pub fn ask(&mut self, what: &str, command: u8, attributes: Attributes) -> Result<Vec<Vec<u8>>> {
        self.send(what, command, NLM_F_ACK, attributes)
    }

    /// Returns the attributes of each message of a dump.
    pub fn dump(
        &mut self,
        what: &str,
        command: u8,
        attributes: Attributes,
    ) -> Result<Vec<Vec<u8>>> {
        self.send(what, command, NLM_F_DUMP, attributes)
    }

    /// Sends a command; returns the attributes of each message up to the ACK or the end of the dump.
    fn send(
        &mut self,
        what: &str,
        command: u8,
        flags: u16,
        attributes: Attributes,
    ) -> Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let body = attributes.into_bytes();
        let length = (HEADER_BYTES + COMMAND_BYTES + body.len()) as u32;
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.id.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend([command, self.version, 0, 0]);
        bytes.extend(body);
        self.socket.send(&bytes, 0)?;
        let mut found = Vec::new();
        while !take(&receive(&self.socket)?, what, self.id, self.sequence, &mut found)? {}
        Ok(found)
    }
}

/// Collects the attributes of the family's messages in a datagram; returns whether it ends the answer.
fn take(
    datagram: &[u8],
    what: &str,
    family: u16,
    sequence: u32,
    found: &mut Vec<Vec<u8>>,
) -> Result<bool> {
    for message in messages(datagram) {
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        if message[8..12] != sequence.to_ne_bytes() {
            continue;
        }
        let body = &message[HEADER_BYTES..];
        let code = body.first_chunk().map_or(0, |c| i32::from_ne_bytes(*c));
        match kind {
            // Attributes of the error follow its code.
            NLMSG_DONE if code < 0 => return Err(refused(what, code, body.get(4..))),
            NLMSG_ERROR if code < 0 => return Err(refused(what, code, message.get(ERROR_BYTES..))),
            NLMSG_DONE | NLMSG_ERROR => return Ok(true),
            kind if kind == family => {
                let attributes = body.get(COMMAND_BYTES..);
                found.push(attributes.ok_or_else(|| malformed("genlmsghdr"))?.to_vec());
            }
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([2, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_dump_is_read_up_to_its_end() {
        let mut found = Vec::new();
        let part = message(30, &[3, 1, 0, 0, 5, 0, 1, 0, 9]);
        assert!(!take(&part, "list", 30, 7, &mut found).unwrap());
        let other = message(31, &[3, 1, 0, 0, 5, 0, 1, 0, 8]);
        assert!(!take(&other, "list", 30, 7, &mut found).unwrap());
        assert!(!take(&part, "list", 30, 6, &mut found).unwrap());
        assert!(take(&message(NLMSG_DONE, &[0; 4]), "list", 30, 7, &mut found).unwrap());
        assert_eq!(found, [vec![5, 0, 1, 0, 9]]);
        assert!(take(&message(30, &[3]), "list", 30, 7, &mut found).is_err());
    }

    #[test]
    fn an_error_has_the_kernels_message() {
        let code = (-22i32).to_ne_bytes();
        let text = [&[9u8, 0, 1, 0][..], b"oops\0\0\0\0"].concat();
        let error = [&code[..], &[0; HEADER_BYTES], &text].concat();
        for (kind, body) in [(NLMSG_ERROR, error), (NLMSG_DONE, [&code[..], &text].concat())] {
            let refusal = take(&message(kind, &body), "list", 30, 7, &mut Vec::new());
            assert_eq!(refusal.unwrap_err().to_string(), "cannot list: oops");
        }
    }

    /// This very kernel: the controller is a family, too.
    #[test]
    fn the_kernel_finds_families_by_name() {
        assert_eq!(Family::open("nlctrl", 2).unwrap().id, CONTROLLER.0);
        let missing = Family::open("xdc-none", 1).unwrap_err();
        assert!(matches!(missing, Error::Refused { errno: 2, .. }), "{missing}");
    }
}
