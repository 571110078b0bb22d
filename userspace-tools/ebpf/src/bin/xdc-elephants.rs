// SPDX-License-Identifier: GPL-2.0
//! A tc classifier for `sch_acceltor` with `detect filter`. It counts the payload of each TCP flow; `xdc
//! acceltor elephants` reads the counts and puts elephants into a map. The classifier selects the flows in
//! the map. For others, the next filter or the packet's priority decides.

#![no_std]
#![no_main]

#[path = "../elephant_key.rs"]
mod elephant_key;
#[path = "../ethernet.rs"]
mod ethernet;
#[path = "../program.rs"]
mod program;

use aya_ebpf::{
    bindings::{BPF_NOEXIST, TC_ACT_OK, TC_ACT_UNSPEC},
    helpers::bpf_ktime_get_ns,
    macros::{classifier, map},
    maps::{Array, HashMap, LruHashMap},
    programs::TcContext,
};
use elephant_key::{DESTINATION, Key, MAX_ELEPHANTS, MAX_FLOWS, PORTS, SOURCE, VERSION};
use ethernet::{ETHERNET_BYTES, ETHERTYPE_AT, IPV4, IPV6, TCP};

/// Payload of each flow, bytes.
#[map]
static PAYLOAD: LruHashMap<Key, u64> = LruHashMap::with_max_entries(MAX_FLOWS, 0);

/// Flows that are elephants.
#[map]
static ELEPHANTS: HashMap<Key, u8> = HashMap::with_max_entries(MAX_ELEPHANTS, 0);

/// One entry: heartbeat that the reader of the counts changes at each read.
#[map]
static BEAT: Array<u64> = Array::with_max_entries(1, 0);

/// One entry: last heartbeat seen by a packet, and the time when it was new, CLOCK_MONOTONIC in ns.
#[map]
static HEARD: Array<[u64; 2]> = Array::with_max_entries(1, 0);

/// Longer than two intervals of `--every 10s`.
const PATIENCE_NS: u64 = 25_000_000_000;

/// Minor number of the elephants' class, as in modules/include/uapi/linux/pkt_acceltor.h.
const ELEPHANT: u32 = 2;

/// Flag "more fragments" and fragment offset.
const FRAGMENT: u16 = 0x3fff;

#[classifier]
pub fn elephants(ctx: TcContext) -> i32 {
    if !has_reader().unwrap_or(false) {
        return TC_ACT_UNSPEC;
    }
    match is_elephant(&ctx) {
        Some(true) => {
            // SAFETY: The kernel passes the program a valid buffer.
            unsafe { (*ctx.skb.skb).tc_classid = ELEPHANT };
            TC_ACT_OK
        }
        _ => TC_ACT_UNSPEC,
    }
}

fn has_reader() -> Option<bool> {
    let beat = *BEAT.get(0)?;
    let heard = HEARD.get_ptr_mut(0)?;
    // SAFETY: Callable from any program.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: As in `is_elephant`.
    let [last, at_ns] = unsafe { &mut *heard };
    if *last != beat {
        (*last, *at_ns) = (beat, now_ns);
    }
    Some(now_ns.wrapping_sub(*at_ns) < PATIENCE_NS)
}

/// Returns None for a packet that is not TCP or has no payload.
fn is_elephant(ctx: &TcContext) -> Option<bool> {
    let mut key: Key = [0; 40];
    let (tcp_at, end) = read_ip(ctx, &mut key)?;
    let ports: [u8; 4] = ctx.load(tcp_at).ok()?;
    key[PORTS..PORTS + 4].copy_from_slice(&ports);
    let offset: u8 = ctx.load(tcp_at + 12).ok()?;
    let payload_at = tcp_at + usize::from(offset >> 4) * 4;
    // Header fields may claim more bytes than the packet has.
    let payload = end.min(ctx.len() as usize).checked_sub(payload_at)? as u64;
    if payload == 0 {
        return None;
    }
    match PAYLOAD.get_ptr_mut(&key) {
        // SAFETY: The entry outlives the program's run. A root qdisc runs its filters under its lock, so
        // there is no other writer.
        Some(count) => unsafe { *count += payload },
        None => {
            let _ = PAYLOAD.insert(&key, &payload, BPF_NOEXIST.into());
        }
    }
    Some(ELEPHANTS.get_ptr(&key).is_some())
}

/// Returns the offset of the TCP header and the end of the IP packet, because a frame may be padded. Bursts
/// arrive in single segments. Fragments, extension headers and VLAN tags are not decoded, so such packets are
/// mice.
fn read_ip(ctx: &TcContext, key: &mut Key) -> Option<(usize, usize)> {
    let ethertype = u16::from_be(ctx.load(ETHERTYPE_AT).ok()?);
    match ethertype {
        IPV4 => {
            let header: [u8; 20] = ctx.load(ETHERNET_BYTES).ok()?;
            let fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT;
            if header[9] != TCP || fragment != 0 {
                return None;
            }
            key[SOURCE..SOURCE + 4].copy_from_slice(&header[12..16]);
            key[DESTINATION..DESTINATION + 4].copy_from_slice(&header[16..]);
            key[VERSION] = 4;
            let bytes = u16::from_be_bytes([header[2], header[3]]);
            let tcp_at = ETHERNET_BYTES + usize::from(header[0] & 0xf) * 4;
            Some((tcp_at, ETHERNET_BYTES + usize::from(bytes)))
        }
        IPV6 => {
            let header: [u8; 40] = ctx.load(ETHERNET_BYTES).ok()?;
            if header[6] != TCP {
                return None;
            }
            key[SOURCE..SOURCE + 16].copy_from_slice(&header[8..24]);
            key[DESTINATION..DESTINATION + 16].copy_from_slice(&header[24..]);
            key[VERSION] = 6;
            let bytes = u16::from_be_bytes([header[4], header[5]]);
            let tcp_at = ETHERNET_BYTES + header.len();
            Some((tcp_at, tcp_at + usize::from(bytes)))
        }
        _ => None,
    }
}
