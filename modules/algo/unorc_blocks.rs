// SPDX-License-Identifier: GPL-2.0

//! Memory of a channel of UnoRC: the blocks that its receiver holds, and their decoding.

use super::{
    gf256::{self, LENGTH_BYTES, MAX_DATA, MAX_PARITY, Solution},
    unorc::{Config, Io, Packet},
    unorc_sender::Sent,
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

/// Returns the bits below `index`.
pub fn below(index: u8) -> u32 {
    let bit = 1u32.checked_shl(index.into()).unwrap_or(0);
    bit.wrapping_sub(1)
}

/// Memory of a channel.
pub struct Lent<'a, P> {
    /// [`Config::sent_slots`] elements.
    pub sent: &'a mut [Sent],
    /// Parities of the sender's open block.
    pub parities: &'a mut [Option<P>; MAX_PARITY],
    /// [`Config::held_slots`] elements.
    pub slots: &'a mut [Held<P>],
    /// [`Config::blocks`] elements.
    pub blocks: &'a mut [HeldBlock],
}

impl<P> Lent<'_, P> {
    fn at(&self, id: u32) -> usize {
        id as usize & self.blocks.len().saturating_sub(1)
    }

    /// Returns the record of a sent data packet.
    pub fn sent(&mut self, config: &Config, id: u32, index: u8) -> Option<&mut Sent> {
        let first = self.at(id).saturating_mul(config.x.into());
        self.sent.get_mut(first.saturating_add(index.into()))
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
        let is_sound = self.k == 0 && self.have & DATA_BITS & !below(k) == 0;
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
    let count = lost.count_ones() as usize;
    for (j, found) in found.iter_mut().enumerate().take(count) {
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
        *found = Some(unwrap(vector).ok_or(Failed::Bad)?);
    }
    Ok(found)
}

/// Converts a decoded vector to its packet; None if it is invalid.
fn unwrap<P: Packet>(mut vector: P) -> Option<P> {
    let (length, rest) = vector.bytes().split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (packet, zeros) = rest.split_at_checked(length)?;
    if zeros.iter().any(|&byte| byte != 0) || !is_ip(packet) {
        return None;
    }
    vector.cut(LENGTH_BYTES, length);
    Some(vector)
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
