// SPDX-License-Identifier: GPL-2.0
//! Per-packet spraying: a BPF program sets a new hash on every packet that arrives at a router, and
//! fib_multipath_hash_policy 1 chooses the next hop by that hash.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Result;
use xdc_netlink::{Request, filter::Place, qdisc};

use xdc_bpf::{GET_PRANDOM_U32, Instruction, Kind, call, copy, exit, load, set};

/// Number of the helper bpf_set_hash().
const SET_HASH: i32 = 48;

const TC_ACT_OK: i32 = 0;

/// `bpf_set_hash(packet, bpf_get_prandom_u32()); return TC_ACT_OK;`
static PROGRAM: [Instruction; 7] = [
    copy(6, 1),
    call(GET_PRANDOM_U32),
    copy(1, 6),
    copy(2, 0),
    call(SET_HASH),
    set(0, TC_ACT_OK),
    exit(),
];

/// The loaded program.
pub struct Spray(OwnedFd);

impl Spray {
    /// Loads the program.
    pub fn load() -> Result<Self> {
        load(Kind::Classifier, &PROGRAM).map(Self)
    }

    /// Attaches the program to a device's ingress.
    pub fn attach(&self, index: u32) -> [Request; 2] {
        [qdisc::clsact(index), Place::ingress(index).add("spray", self.0.as_raw_fd())]
    }
}
