// SPDX-License-Identifier: GPL-2.0
//! Detects firewall rules.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::connection::{HEADER_BYTES, Result};

/// Request for all tables: NFT_MSG_GETTABLE of NFNL_SUBSYS_NFTABLES, and struct nfgenmsg without a
/// family (include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h).
const TYPE: u16 = 10 << 8 | 1;
const REQUEST_BYTES: usize = HEADER_BYTES + 4;
const NLM_F_REQUEST_DUMP: u16 = 0x301;

/// Highest type of control messages (NLMSG_ERROR, NLMSG_DONE); tables have higher types.
const LAST_CONTROL_TYPE: u16 = 15;

/// Returns whether the caller's network namespace has an nftables table.
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
