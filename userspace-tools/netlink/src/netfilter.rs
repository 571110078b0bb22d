// SPDX-License-Identifier: GPL-2.0
//! Whether a firewall has rules.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::connection::{HEADER_BYTES, Result};

/// A request for all tables: NFT_MSG_GETTABLE of NFNL_SUBSYS_NFTABLES, and struct nfgenmsg of no
/// family (include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h).
const TYPE: u16 = 10 << 8 | 1;
const REQUEST_BYTES: usize = HEADER_BYTES + 4;
const NLM_F_REQUEST_DUMP: u16 = 0x301;

/// A message of the answer that is no table: NLMSG_ERROR, NLMSG_DONE.
const LAST_CONTROL_TYPE: u16 = 15;

/// Whether the namespace of the caller has a table of nftables.
pub fn has_tables() -> Result<bool> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&TYPE.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    Ok(kind.is_some_and(|kind| u16::from_ne_bytes(kind) > LAST_CONTROL_TYPE))
}
