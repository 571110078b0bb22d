// SPDX-License-Identifier: GPL-2.0

//! Blocks that a receiver of UnoRC holds, and their decoding.

use super::{
    gf256::{self, LENGTH_BYTES, MAX_DATA, MAX_PARITY, Solution},
    unorc::{Config, Io, Packet},
    unorc_wire::FIRST_PARITY,
};

/// Bits of the data packets of a block.
pub const DATA_BITS: u32 = (1 << MAX_DATA) - 1;

/// A received packet, and whether it was marked.
pub type Held<P> = Option<(P, bool)>;

/// A remembered block: in progress or already passed.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBlock {
    /// Number of data packets; 0 = unknown.
    pub k: u8,
    /// All packets were received or decoded.
    pub is_done: bool,
    /// At least one packet was passed over.
    pub is_given_up: bool,
    /// Received and decoded packets, by index.
    pub have: u32,
    /// Arrival of the first packet.
    pub first_us: u64,
    /// Arrival of the last packet.
    pub last_us: u64,
}

/// Memory of a channel's receiver.
pub struct Lent<'a, P> {
    /// [`Config::held_slots`] elements.
    pub slots: &'a mut [Held<P>],
    /// [`Config::blocks`] elements.
    pub blocks: &'a mut [HeldBlock],
}

impl<P> Lent<'_, P> {
    fn at(&self, id: u32) -> usize {
        id as usize & self.blocks.len().saturating_sub(1)
    }

    /// Returns the entry of block `id`.
    pub fn block(&mut self, id: u32) -> Option<&mut HeldBlock> {
        let at = self.at(id);
        self.blocks.get_mut(at)
    }

    /// Returns the packets of block `id`: x data packets, then y parities.
    pub fn packets(&mut self, config: &Config, id: u32) -> &mut [Held<P>] {
        let start = self.at(id).saturating_mul(config.in_block());
        let end = start.saturating_add(config.in_block());
        self.slots.get_mut(start..end).unwrap_or_default()
    }
}

impl HeldBlock {
    /// Returns whether the packet was received before, and records it.
    pub fn has_already(&mut self, bit: u32) -> bool {
        let has = self.have & bit != 0;
        self.have |= bit;
        has
    }

    /// Sets the number of data packets; 0 = unknown. Returns false for an invalid number.
    pub fn learn(&mut self, k: u8) -> bool {
        if k == 0 || k == self.k {
            return true;
        }
        let above = u32::MAX.checked_shl(k.into()).unwrap_or(0) & DATA_BITS;
        let is_sound = self.k == 0 && self.have & above == 0;
        if is_sound {
            self.k = k;
        }
        is_sound
    }
}

/// Reason for a failed decoding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failed {
    /// Packets or memory are missing.
    Lacking,
    /// The parities are invalid.
    Bad,
}

/// Decodes the `lost` packets of a block of `k`, in index order. `held` has `x` data places, then parities.
/// Rule B3.
pub fn decode<I: Io>(
    io: &mut I,
    packets: &[Held<I::Packet>],
    (x, k): (usize, u8),
    have: u32,
    lost: u32,
) -> Result<[Option<I::Packet>; MAX_PARITY], Failed> {
    let lacking = Failed::Lacking;
    let solution = Solution::new(k.into(), lost, have >> FIRST_PARITY).ok_or(lacking)?;
    let parity = |r: usize| Some(&packets.get(x.saturating_add(r))?.as_ref()?.0);
    let first = solution.parities().next().and_then(parity);
    let len = first.ok_or(lacking)?.bytes().len();
    let mut found = [None, None, None];
    for (j, found) in found
        .iter_mut()
        .enumerate()
        .take(lost.count_ones() as usize)
    {
        let mut vector = io.make(len).ok_or(lacking)?;
        for r in solution.parities() {
            let row = parity(r).filter(|row| row.bytes().len() == len);
            let row = row.ok_or(Failed::Bad)?.bytes();
            gf256::add_multiple(vector.bytes_mut(), solution.of_parity(j, r), row);
        }
        for (index, held) in packets.iter().enumerate().take(k.into()) {
            let factor = solution.of_data(j, index);
            if lost >> index & 1 == 0 && factor != 0 {
                // The copy may be missing for lack of memory.
                let (packet, _) = held.as_ref().ok_or(lacking)?;
                gf256::add_packet(vector.bytes_mut(), factor, packet.bytes());
            }
        }
        if !unwrap(&mut vector) {
            return Err(Failed::Bad);
        }
        *found = Some(vector);
    }
    Ok(found)
}

/// Converts a decoded vector to its packet. Returns whether the packet is valid.
fn unwrap(vector: &mut impl Packet) -> bool {
    let bytes = vector.bytes();
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes(*length));
    let Some((packet, zeros)) = rest.split_at_checked(length) else {
        return false;
    };
    let is_sound = zeros.iter().all(|&byte| byte == 0) && is_ip(packet);
    vector.cut(LENGTH_BYTES, length);
    is_sound
}

/// Returns whether the length field of an IP packet matches.
pub fn is_ip(packet: &[u8]) -> bool {
    let field = |at: usize| {
        let bytes = packet.get(at..at.saturating_add(2))?;
        Some(usize::from(u16::from_be_bytes(*bytes.first_chunk()?)))
    };
    match packet.first().map(|first| first >> 4) {
        Some(4) => field(2) == Some(packet.len()),
        Some(6) => field(4).map(|payload| payload.saturating_add(40)) == Some(packet.len()),
        _ => false,
    }
}
