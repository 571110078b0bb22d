// SPDX-License-Identifier: GPL-2.0

//! A switch of the fabric: its table of next hops.

use super::{
    fabric::{Frame, Storage},
    random::Random,
};

/// A switch.
pub struct Switch<S: Storage> {
    /// Ways by destination; an index in `starts`.
    pub table: S::Of<u16>,
    /// First index in `hops` by way, and the number of hops at the end.
    pub starts: S::Of<u32>,
    /// Ports of the ways, equally good.
    pub hops: S::Of<u32>,
    /// Seed of the hash that chooses among the ports of a way.
    pub seed: u32,
    /// Choose a port for each packet.
    pub spray: Option<Random>,
    /// Counters.
    pub counts: SwitchCounts,
}

/// Counters of a switch, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SwitchCounts {
    /// Arrived from any link.
    pub received: u64,
    /// Dropped for lack of a route.
    pub unroutable: u64,
    /// Dropped after too many hops.
    pub expired: u64,
}

impl<S: Storage> Switch<S> {
    /// Returns the port for a packet.
    pub fn next_hop<F: Frame>(&mut self, frame: &F) -> Option<u32> {
        let way = usize::from(*self.table.get(frame.destination()? as usize)?);
        let start = *self.starts.get(way)?;
        let count = self.starts.get(way.wrapping_add(1))?.wrapping_sub(start);
        let hop = match (count, &mut self.spray) {
            (0, _) => return None,
            (1, _) => 0,
            (_, Some(random)) => chosen(random.next_u32() >> 1, count),
            (_, None) => chosen(frame.hash(self.seed), count),
        };
        self.hops.get(start.wrapping_add(hop) as usize).copied()
    }
}

/// Returns the next hop of `count` for a hash below 2^31, as fib_select_multipath(): hop i has the hashes
/// below (i + 1) 2^31 / count, rounded.
fn chosen(hash: u32, count: u32) -> u32 {
    let count = u64::from(count.max(1));
    let guess = u64::from(hash).wrapping_mul(count) >> 31;
    let end = (guess.wrapping_add(1) << 31)
        .wrapping_add(count / 2)
        .checked_div(count)
        .unwrap_or(0);
    let hop = guess.wrapping_add(u64::from(u64::from(hash) >= end));
    hop.min(count.wrapping_sub(1)) as u32
}
