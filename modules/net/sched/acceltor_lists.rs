// SPDX-License-Identifier: GPL-2.0

//! Options of sch_acceltor that are lists: prefixes of racks, and peers.

use kernel::prelude::*;

use super::{
    acceltor_options::MAX_RACKS,
    bounds::count,
    kernel_api::{
        netlink::{Attr, Attrs, Extack, Message, Policy, Range},
        uapi::*,
    },
    settings::{parse, policy, ranges, setting, Kind, Setting},
};

/// Room of both lists in a dump: a socket's first dump begins with the rest of a page, and a qdisc too large
/// for it hides all others.
const MAX_LIST_BYTES: usize = 2_800;
const PREFIX4_BYTES: usize = 28;
const PREFIX6_BYTES: usize = 40;
const PEER_BYTES: usize = 8;

/// High bits of an IPv4 address as IPv6 address, and their number.
const MAPPED: u128 = 0xffff;
const MAPPED_BITS: u32 = 96;

const RACK: Kind = Kind::U32(count(0, MAX_RACKS - 1));

static PREFIXES_POLICY: Policy<{ __TCA_ACCELTOR_PREFIXES_MAX as usize }> =
    Policy::new().nested(TCA_ACCELTOR_PREFIXES_PREFIX);

static PREFIX_SETTINGS: [Setting; 2] = [
    setting(
        TCA_ACCELTOR_PREFIX_LEN,
        "length of a prefix",
        Kind::U32(count(0, 128)),
        0,
    ),
    setting(TCA_ACCELTOR_PREFIX_RACK, "rack of a prefix", RACK, 0),
];
static PREFIX_RANGES: [Range; 2] = ranges(&PREFIX_SETTINGS);
static PREFIX_POLICY: Policy<{ __TCA_ACCELTOR_PREFIX_MAX as usize }> = policy(
    Policy::new()
        .exact(TCA_ACCELTOR_PREFIX_ADDR4, 4)
        .exact(TCA_ACCELTOR_PREFIX_ADDR6, 16),
    &PREFIX_SETTINGS,
    &PREFIX_RANGES,
);

static PEER_SETTINGS: [Setting; 1] = [setting(TCA_ACCELTOR_PEERS_RACK, "peer", RACK, 0)];
static PEER_RANGES: [Range; 1] = ranges(&PEER_SETTINGS);
static PEER_POLICY: Policy<{ __TCA_ACCELTOR_PEERS_MAX as usize }> =
    policy(Policy::new(), &PEER_SETTINGS, &PEER_RANGES);

/// Address range of a rack, both ends included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) first: u128,
    pub(crate) last: u128,
    pub(crate) rack: u16,
    bits: u32,
}

impl Prefix {
    fn read(attr: Attr<'_>, extack: &Extack<'_>) -> Result<Self> {
        let attrs = parse(attr.nest(), &PREFIX_POLICY, &PREFIX_SETTINGS, extack)?;
        attrs.refuse_twice(extack)?;
        let number = |id| attrs.get(id).and_then(|it| it.u32());
        let bytes = |id| attrs.get(id).map(|it| it.bytes());
        let v4 = bytes(TCA_ACCELTOR_PREFIX_ADDR4).and_then(|bytes| bytes.first_chunk());
        let v6 = bytes(TCA_ACCELTOR_PREFIX_ADDR6).and_then(|bytes| bytes.first_chunk());
        let (first, more_bits) = match (v4, v6) {
            (Some(addr), None) => {
                let addr = u128::from(u32::from_be_bytes(*addr));
                (MAPPED << 32 | addr, MAPPED_BITS)
            }
            (None, Some(addr)) => (u128::from_be_bytes(*addr), 0),
            _ => return Err(extack.invalid_attr(&attr, c"prefix must have one address")),
        };
        let (Some(len), Some(rack)) = (
            number(TCA_ACCELTOR_PREFIX_LEN),
            number(TCA_ACCELTOR_PREFIX_RACK),
        ) else {
            return Err(extack.invalid_attr(&attr, c"prefix must have a length and a rack"));
        };
        let bits = len.saturating_add(more_bits);
        let Some(host_bits) = 128_u32.checked_sub(bits) else {
            return Err(extack.invalid_attr(&attr, c"length of an IPv4 prefix must be at most 32"));
        };
        let hosts = 1_u128
            .checked_shl(host_bits)
            .map_or(u128::MAX, |size| size.wrapping_sub(1));
        if first & hosts != 0 {
            return Err(extack.invalid_attr(&attr, c"prefix must have no bit beyond its length"));
        }
        Ok(Self {
            first,
            last: first | hosts,
            rack: rack as u16,
            bits,
        })
    }

    /// Returns the length of an IPv4 prefix.
    fn v4_bits(&self) -> Option<u32> {
        let bits = self.bits.checked_sub(MAPPED_BITS)?;
        (self.first >> 32 == MAPPED).then_some(bits)
    }

    fn write(&self, message: &mut Message<'_>) -> Result {
        let bits = match self.v4_bits() {
            Some(bits) => {
                let addr = (self.first as u32).to_be_bytes();
                message.put(TCA_ACCELTOR_PREFIX_ADDR4 as u16, &addr)?;
                bits
            }
            None => {
                let addr = self.first.to_be_bytes();
                message.put(TCA_ACCELTOR_PREFIX_ADDR6 as u16, &addr)?;
                self.bits
            }
        };
        message.put_u32(TCA_ACCELTOR_PREFIX_LEN, bits)?;
        message.put_u32(TCA_ACCELTOR_PREFIX_RACK, self.rack.into())
    }
}

/// Sorts by first address. objtool takes the library's sort for code that falls through into the next
/// function.
fn sort(prefixes: &mut [Prefix]) {
    for end in 1..prefixes.len() {
        let mut unsorted = prefixes.get_mut(..=end).unwrap_or_default();
        while let [.., before, last] = unsorted {
            if before.first <= last.first {
                break;
            }
            core::mem::swap(before, last);
            unsorted = match core::mem::take(&mut unsorted).split_last_mut() {
                Some((_, shorter)) => shorter,
                None => break,
            };
        }
    }
}

/// Returns the prefixes by address.
pub(crate) fn read_prefixes(attr: Attr<'_>, extack: &Extack<'_>) -> Result<KVVec<Prefix>> {
    let list: Attrs<'_, _> = attr.nest().parse(&PREFIXES_POLICY, extack)?;
    let mut prefixes = KVVec::new();
    for entry in list.each() {
        prefixes.push(Prefix::read(entry, extack)?, GFP_KERNEL_ACCOUNT)?;
    }
    // Sorting a longer list would take long.
    refuse_long(&prefixes, &[], extack)?;
    sort(&mut prefixes);
    let mut after = None;
    for prefix in &prefixes {
        if after.is_some_and(|last| prefix.first <= last) {
            return Err(extack.invalid_attr(&attr, c"prefixes must not overlap"));
        }
        after = Some(prefix.last);
    }
    Ok(prefixes)
}

pub(crate) fn read_peers(attr: Attr<'_>, extack: &Extack<'_>) -> Result<KVVec<u16>> {
    let list = parse(attr.nest(), &PEER_POLICY, &PEER_SETTINGS, extack)?;
    let mut peers = KVVec::new();
    for peer in list.each() {
        peers.push(peer.u32().ok_or(EINVAL)? as u16, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(peers)
}

/// Refuses lists that have no room in a dump.
pub(crate) fn refuse_long(prefixes: &[Prefix], peers: &[u16], extack: &Extack<'_>) -> Result {
    let of_prefix = |prefix: &Prefix| match prefix.v4_bits() {
        Some(_) => PREFIX4_BYTES,
        None => PREFIX6_BYTES,
    };
    let prefixes: usize = prefixes.iter().map(of_prefix).sum();
    let peers = peers.len().saturating_mul(PEER_BYTES);
    if prefixes.saturating_add(peers) > MAX_LIST_BYTES {
        return Err(extack.invalid(
            c"prefix and peers must be at most 2800 bytes: 28 for an IPv4 prefix, 40 for IPv6, 8 for a peer",
        ));
    }
    Ok(())
}

pub(crate) fn write(prefixes: &[Prefix], peers: &[u16], message: &mut Message<'_>) -> Result {
    message.put_nest(TCA_ACCELTOR_PREFIXES, |list| {
        for prefix in prefixes {
            list.put_nest(TCA_ACCELTOR_PREFIXES_PREFIX, |entry| prefix.write(entry))?;
        }
        Ok(())
    })?;
    message.put_nest(TCA_ACCELTOR_PEERS, |list| {
        for peer in peers {
            list.put_u32(TCA_ACCELTOR_PEERS_RACK, (*peer).into())?;
        }
        Ok(())
    })
}
