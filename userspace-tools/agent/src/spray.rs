// SPDX-License-Identifier: GPL-2.0
//! Per-packet spraying: a BPF program gives every packet that arrives at a router a new hash, and
//! fib_multipath_hash_policy 1 chooses the way on by it.
//!
//! The program is assembled here: seven instructions need no compiler for eBPF.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result};
use xdc_netlink::{Request, qdisc};

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

/// Helpers by their number.
const GET_PRANDOM_U32: i32 = 7;
const SET_HASH: i32 = 48;

/// `struct bpf_insn`.
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, destination: u8, source: u8, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: destination | source << 4,
        offset: 0,
        immediate,
    }
}

const fn copy(destination: u8, source: u8) -> Instruction {
    const ALU64_MOV_X: u8 = 0xbf;
    instruction(ALU64_MOV_X, destination, source, 0)
}

const fn call(helper: i32) -> Instruction {
    const JMP_CALL: u8 = 0x85;
    instruction(JMP_CALL, 0, 0, helper)
}

const ALU64_MOV_K: u8 = 0xb7;
const JMP_EXIT: u8 = 0x95;
const TC_ACT_OK: i32 = 0;

/// `bpf_set_hash(packet, bpf_get_prandom_u32()); return TC_ACT_OK;`
static PROGRAM: [Instruction; 7] = [
    copy(6, 1),
    call(GET_PRANDOM_U32),
    copy(1, 6),
    copy(2, 0),
    call(SET_HASH),
    instruction(ALU64_MOV_K, 0, 0, TC_ACT_OK),
    instruction(JMP_EXIT, 0, 0, 0),
];

/// The first fields of `union bpf_attr` for BPF_PROG_LOAD; the kernel takes the rest for zeroes.
#[repr(C)]
struct LoadAttributes {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
}

/// The program, loaded.
pub struct Spray(OwnedFd);

impl Spray {
    /// Loads it.
    pub fn load() -> Result<Self> {
        let attributes = LoadAttributes {
            prog_type: BPF_PROG_TYPE_SCHED_CLS,
            insn_cnt: PROGRAM.len() as u32,
            insns: PROGRAM.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log_buf: 0,
        };
        // SAFETY: The kernel reads the attributes, and what they point to: both outlive the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_LOAD,
                &attributes,
                size_of::<LoadAttributes>(),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("cannot load the spraying program");
        }
        // SAFETY: The kernel has just returned it, and nobody else knows of it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Attaches it to what arrives at a device.
    pub fn attach(&self, index: u32) -> [Request; 2] {
        [
            qdisc::clsact(index),
            qdisc::ingress_program(index, "spray", self.0.as_raw_fd()),
        ]
    }
}
