// SPDX-License-Identifier: GPL-2.0
//! A tc classifier that counts packets, per flow and in total, and records each with its time.
//! It lets all packets pass, and shares neither code nor counters with sch_phantom.

#![no_std]
#![no_main]

mod ethernet;
mod program;
mod record;

use aya_ebpf::{
    bindings::{BPF_NOEXIST, TC_ACT_UNSPEC},
    helpers::bpf_ktime_get_ns,
    macros::{classifier, map},
    maps::{PerCpuArray, PerCpuHashMap, RingBuf},
    programs::TcContext,
};
use ethernet::{ETHERNET_BYTES, ETHERTYPE_AT, IPV4, IPV6, TCP};
use record::{Counts, Flow, Record};

#[map]
static FLOWS: PerCpuHashMap<Flow, Counts> = PerCpuHashMap::with_max_entries(8192, 0);

/// One entry: counts of all packets.
#[map]
static TOTAL: PerCpuArray<Counts> = PerCpuArray::with_max_entries(1, 0);

/// One entry: packets in TOTAL for which FLOWS or RECORDS had no space. A test must not judge
/// by the records unless this is 0.
#[map]
static MISSED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Space for 200,000 packets between two reads.
#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

const VLAN_BYTES: usize = 4;
const UDP_BYTES: u32 = 8;

/// First byte of an IPv4 header without options.
const PLAIN_IPV4: u8 = 0x45;

const VLAN: u16 = 0x8100;
const UDP: u8 = 17;

#[classifier]
pub fn witness(ctx: TcContext) -> i32 {
    // SAFETY: Callable from any program.
    let at_ns = unsafe { bpf_ktime_get_ns() };
    let seen = see(&ctx);
    if let Some(total) = TOTAL.get_ptr_mut(0) {
        count(total, &seen);
    }
    if FLOWS.get_ptr(&seen.flow).is_none() {
        // Fails if another processor has just inserted the flow.
        let _ = FLOWS.insert(&seen.flow, &Counts::default(), BPF_NOEXIST.into());
    }
    match FLOWS.get_ptr_mut(&seen.flow) {
        Some(counts) => count(counts, &seen),
        None => miss(),
    }
    let record = Record {
        at_ns,
        number: seen.number,
        bytes: seen.bytes,
        segments: seen.segments,
        destination_port: seen.flow.destination_port,
        dsfield: seen.dsfield,
        is_ip: seen.is_ip as u8,
        bad_checksum: seen.bad_checksum as u8,
        unused: 0,
    };
    match RECORDS.reserve::<Record>(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(0);
        }
        None => miss(),
    }
    TC_ACT_UNSPEC
}

/// One packet.
#[derive(Default)]
struct Seen {
    flow: Flow,
    is_ip: bool,
    bad_checksum: bool,
    dsfield: u8,
    number: u32,
    segments: u16,
    bytes: u32,
}

/// Decodes a packet. An undecodable packet counts as not IP and is still recorded.
fn see(ctx: &TcContext) -> Seen {
    // SAFETY: The kernel passes the program a valid buffer.
    let skb = unsafe { &*ctx.skb.skb };
    let mut seen = Seen { bytes: skb.len, segments: 1, ..Seen::default() };
    let header_bytes = read_headers(ctx, &mut seen);
    // Each segment but the first has headers that the GSO packet stores once.
    if let (Some(header_bytes), 1..) = (header_bytes, skb.gso_size) {
        let payload_bytes = skb.len.saturating_sub(header_bytes);
        let segments = payload_bytes.div_ceil(skb.gso_size).max(1);
        seen.segments = segments as u16;
        seen.bytes += (segments - 1) * header_bytes;
    }
    seen
}

/// Decodes the headers into `seen`; returns their length up to the payload.
fn read_headers(ctx: &TcContext, seen: &mut Seen) -> Option<u32> {
    let mut at = ETHERNET_BYTES;
    let mut ethertype = u16::from_be(ctx.load(ETHERTYPE_AT).ok()?);
    if ethertype == VLAN {
        ethertype = u16::from_be(ctx.load(ETHERTYPE_AT + VLAN_BYTES).ok()?);
        at += VLAN_BYTES;
    }
    seen.flow.ethertype = ethertype;
    match ethertype {
        IPV4 => {
            let header: [u8; 20] = ctx.load(at).ok()?;
            seen.dsfield = header[1];
            seen.flow.protocol = header[9];
            seen.flow.source[..4].copy_from_slice(&header[12..16]);
            seen.flow.destination[..4].copy_from_slice(&header[16..]);
            seen.bad_checksum = header[0] == PLAIN_IPV4 && !adds_up(&header);
            at += usize::from(header[0] & 0xf) * 4;
        }
        IPV6 => {
            let header: [u8; 40] = ctx.load(at).ok()?;
            seen.dsfield = header[0] << 4 | header[1] >> 4;
            seen.flow.protocol = header[6];
            seen.flow.source.copy_from_slice(&header[8..24]);
            seen.flow.destination.copy_from_slice(&header[24..]);
            at += 40;
        }
        _ => {
            seen.number = ctx.load(at).map_or(0, u32::from_be);
            return None;
        }
    }
    seen.is_ip = true;
    seen.flow.dscp = seen.dsfield >> 2;

    let header_bytes = match seen.flow.protocol {
        UDP => UDP_BYTES,
        TCP => {
            let offset: u8 = ctx.load(at + 12).ok()?;
            u32::from(offset >> 4) * 4
        }
        _ => return None,
    };
    seen.flow.source_port = u16::from_be(ctx.load(at).ok()?);
    seen.flow.destination_port = u16::from_be(ctx.load(at + 2).ok()?);
    let payload_at = at as u32 + header_bytes;
    // Stays 0 for a packet without payload.
    seen.number = ctx.load(payload_at as usize).map_or(0, u32::from_be);
    Some(payload_at)
}

/// Returns whether the one's complement sum of the header is all ones.
fn adds_up(header: &[u8; 20]) -> bool {
    let mut sum = 0;
    for word in header.as_chunks::<2>().0 {
        sum += u32::from(u16::from_be_bytes(*word));
    }
    // Ten words: adding the carry twice is enough.
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

/// `counts` belongs to a per-CPU map. A classifier runs with softirqs off, so there is no other
/// writer.
fn count(counts: *mut Counts, seen: &Seen) {
    // SAFETY: The map's entry outlives the program's run.
    let counts = unsafe { &mut *counts };
    let packets = u64::from(seen.segments);
    counts.bundles += 1;
    counts.packets += packets;
    counts.bytes += u64::from(seen.bytes);
    match seen.is_ip {
        true => counts.ecn[usize::from(seen.dsfield & 3)] += packets,
        false => counts.no_ip += packets,
    }
}

fn miss() {
    if let Some(missed) = MISSED.get_ptr_mut(0) {
        // SAFETY: As in `count`.
        unsafe { *missed += 1 }
    }
}
