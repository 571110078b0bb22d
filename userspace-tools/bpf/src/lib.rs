// SPDX-License-Identifier: GPL-2.0
//! Assembler and loader for small BPF programs, which need no eBPF compiler.

pub mod circuits;

use std::{
    cell::Cell,
    fs::File,
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_PROG_DETACH: libc::c_long = 9;
const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;
const BPF_CGROUP_SOCK_OPS: u32 = 3;
const BPF_MAP_TYPE_ARRAY: u32 = 2;

/// Helper number: pointer to an element of a map.
pub const MAP_LOOKUP: i32 = 1;
/// Helper number: time by CLOCK_MONOTONIC.
pub const KTIME_GET_NS: i32 = 5;
/// Helper number: time by CLOCK_TAI.
pub const KTIME_GET_TAI_NS: i32 = 208;
/// Helper number: copy bytes of a packet.
pub const SKB_LOAD_BYTES: i32 = 26;
/// Helper number: send a packet through another device.
pub const REDIRECT: i32 = 23;

/// Helper number: random 32 bits.
pub const GET_PRANDOM_U32: i32 = 7;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high four.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn full(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: destination | source << 4, offset, immediate }
}

/// `destination = source`
pub const fn copy(destination: u8, source: u8) -> Instruction {
    full(0xbf, destination, source, 0, 0)
}

/// `destination = immediate`
pub const fn set(destination: u8, immediate: i32) -> Instruction {
    full(0xb7, destination, 0, 0, immediate)
}

/// `destination += immediate`
pub const fn add(destination: u8, immediate: i32) -> Instruction {
    full(0x07, destination, 0, 0, immediate)
}

/// `destination &= immediate`
pub const fn and(destination: u8, immediate: i32) -> Instruction {
    full(0x57, destination, 0, 0, immediate)
}

/// `destination = *(u64 *)(source + offset)`
pub const fn load_double(destination: u8, source: u8, offset: i16) -> Instruction {
    full(0x79, destination, source, offset, 0)
}

/// `destination = *(u32 *)(source + offset)`
pub const fn load_word(destination: u8, source: u8, offset: i16) -> Instruction {
    full(0x61, destination, source, offset, 0)
}

/// `*(u64 *)(destination + offset) = source`
pub const fn store(destination: u8, offset: i16, source: u8) -> Instruction {
    full(0x7b, destination, source, offset, 0)
}

/// `*(u32 *)(destination + offset) = source`
pub const fn store_word(destination: u8, offset: i16, source: u8) -> Instruction {
    full(0x63, destination, source, offset, 0)
}

/// `if (register == immediate) skip instructions`
pub const fn skip_if(register: u8, immediate: i32, instructions: i16) -> Instruction {
    full(0x15, register, 0, instructions, immediate)
}

/// `if (a != b) skip instructions`
pub const fn skip_unless_equal(a: u8, b: u8, instructions: i16) -> Instruction {
    full(0x5d, a, b, instructions, 0)
}

/// Skips instructions.
pub const fn skip(instructions: i16) -> Instruction {
    full(0x05, 0, 0, instructions, 0)
}

/// `destination = constant`: two instructions.
pub const fn set_double(destination: u8, constant: u64) -> [Instruction; 2] {
    [full(0x18, destination, 0, 0, constant as i32), full(0, 0, 0, 0, (constant >> 32) as i32)]
}

/// `destination -= source`
pub const fn subtract_register(destination: u8, source: u8) -> Instruction {
    full(0x1f, destination, source, 0, 0)
}

/// `destination += source`
pub const fn add_register(destination: u8, source: u8) -> Instruction {
    full(0x0f, destination, source, 0, 0)
}

/// `destination *= immediate`
pub const fn multiply(destination: u8, immediate: i32) -> Instruction {
    full(0x27, destination, 0, 0, immediate)
}

/// `destination /= immediate`, unsigned.
pub const fn divide(destination: u8, immediate: i32) -> Instruction {
    full(0x37, destination, 0, 0, immediate)
}

/// `destination /= source`, unsigned.
pub const fn divide_register(destination: u8, source: u8) -> Instruction {
    full(0x3f, destination, source, 0, 0)
}

/// `destination %= immediate`, unsigned.
pub const fn remainder(destination: u8, immediate: i32) -> Instruction {
    full(0x97, destination, 0, 0, immediate)
}

/// `destination = *(u16 *)(source + offset)`
pub const fn load_half(destination: u8, source: u8, offset: i16) -> Instruction {
    full(0x69, destination, source, offset, 0)
}

/// `*(u16 *)(destination + offset) = source`
pub const fn store_half(destination: u8, offset: i16, source: u8) -> Instruction {
    full(0x6b, destination, source, offset, 0)
}

/// `destination = be16toh(destination)`, or for 32 or 64 bits.
pub const fn to_host_order(destination: u8, bits: i32) -> Instruction {
    full(0xdc, destination, 0, 0, bits)
}

/// `*(u64 *)(destination + offset) += source`, atomic.
pub const fn add_to(destination: u8, offset: i16, source: u8) -> Instruction {
    full(0xdb, destination, source, offset, 0)
}

/// `if (register >= immediate) skip instructions`, unsigned.
pub const fn skip_from(register: u8, immediate: i32, instructions: i16) -> Instruction {
    full(0x35, register, 0, instructions, immediate)
}

/// `if (register > immediate) skip instructions`, unsigned.
pub const fn skip_above(register: u8, immediate: i32, instructions: i16) -> Instruction {
    full(0x25, register, 0, instructions, immediate)
}

/// `if (register < immediate) skip instructions`, signed.
pub const fn skip_below_signed(register: u8, immediate: i32, instructions: i16) -> Instruction {
    full(0xc5, register, 0, instructions, immediate)
}

/// Calls a helper by number.
pub const fn call(helper: i32) -> Instruction {
    full(0x85, 0, 0, 0, helper)
}

/// `return r0`
pub const fn exit() -> Instruction {
    full(0x95, 0, 0, 0, 0)
}

/// `destination = map`: two instructions.
pub const fn map(destination: u8, fd: i32) -> [Instruction; 2] {
    const PSEUDO_MAP_FD: u8 = 1;
    [full(0x18, destination, PSEUDO_MAP_FD, 0, fd), full(0, 0, 0, 0, 0)]
}

/// First fields of `union bpf_attr` for each command; the kernel reads the others as zeroes.
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

#[repr(C)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct UpdateAttributes {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    /// On return, the number of elements that the kernel has set.
    count: Cell<u32>,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

#[repr(C)]
struct AttachAttributes {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
}

/// # Safety
///
/// `attributes` match the command, and their pointers are valid for it.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: The kernel reads `size_of::<T>()` bytes; the caller guarantees the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match result < 0 {
        true => Err(io::Error::last_os_error()),
        false => Ok(result as i32),
    }
}

/// BPF_PROG_TYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// For tc.
    Classifier = 3,
    /// For the TCP sockets of a cgroup.
    SockOps = 13,
}

/// Loads a program.
pub fn load(kind: Kind, program: &[Instruction]) -> Result<OwnedFd> {
    let attributes = LoadAttributes {
        prog_type: kind as u32,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
    };
    // SAFETY: Program and license outlive the call.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &attributes) }.context("cannot load a BPF program")?;
    // SAFETY: The kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Creates an array with values of `value_bytes`, all zeroes.
pub fn array(value_bytes: u32, entries: u32) -> Result<OwnedFd> {
    let attributes = MapAttributes {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: value_bytes,
        max_entries: entries,
    };
    // SAFETY: The attributes have no pointers.
    let fd = unsafe { bpf(BPF_MAP_CREATE, &attributes) }.context("cannot make a BPF map")?;
    // SAFETY: The kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an element of an array.
pub fn update<const WORDS: usize>(array: i32, index: u32, value: &[u64; WORDS]) -> Result<()> {
    let attributes = UpdateAttributes {
        map_fd: array as u32,
        _pad: 0,
        key: &raw const index as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: Key and value have the map's sizes and outlive the call.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attributes) }.context("cannot set an element of a map")?;
    Ok(())
}

/// Sets the first elements of an array of 8-byte values, in one call.
pub fn update_first(array: i32, values: &[u64]) -> Result<()> {
    let keys: Vec<u32> = (0..).take(values.len()).collect();
    let attributes = BatchAttributes {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: Cell::new(values.len().try_into()?),
        map_fd: array as u32,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: There are `count` keys and values of the map's sizes. They outlive the call, which writes
    // only the count.
    unsafe { bpf(BPF_MAP_UPDATE_BATCH, &attributes) }.context("cannot set elements of a map")?;
    Ok(())
}

/// Reads an element of an array.
pub fn look_up<const WORDS: usize>(array: i32, index: u32) -> Result<[u64; WORDS]> {
    let mut value = [0; WORDS];
    let attributes = UpdateAttributes {
        map_fd: array as u32,
        _pad: 0,
        key: &raw const index as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: Key and value have the map's sizes and outlive the call, which writes to the value.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attributes) }.context("cannot read an element of a map")?;
    Ok(value)
}

/// A program attached to the TCP sockets of a cgroup; detached on drop.
#[derive(Debug)]
pub struct Attached {
    program: OwnedFd,
    cgroup: File,
}

impl Attached {
    /// Attaches a program of [`Kind::SockOps`] to the cgroup of this folder.
    pub fn new(program: OwnedFd, cgroup: File) -> Result<Self> {
        let attached = Self { program, cgroup };
        attached.call(BPF_PROG_ATTACH).context("cannot attach a BPF program to a cgroup")?;
        Ok(attached)
    }

    fn call(&self, command: libc::c_long) -> io::Result<i32> {
        let attributes = AttachAttributes {
            target_fd: self.cgroup.as_raw_fd() as u32,
            attach_bpf_fd: self.program.as_raw_fd() as u32,
            attach_type: BPF_CGROUP_SOCK_OPS,
            attach_flags: 0,
        };
        // SAFETY: The attributes have no pointers.
        unsafe { bpf(command, &attributes) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Detaching an attached program does not fail.
        let _ = self.call(BPF_PROG_DETACH);
    }
}
