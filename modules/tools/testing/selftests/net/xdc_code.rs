// SPDX-License-Identifier: GPL-2.0

//! Compares parities computed by vector registers with those by words when it is loaded, counts the
//! instructions of both, and logs the result. Loading fails if they differ.

use kernel::prelude::*;

#[path = "../../../../algo/mod.rs"]
mod algo;
#[path = "../../../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "../../../../drivers/net/unorc/vector_code.rs"]
mod vector_code;

use algo::{
    gf256::{absorb, absorb_pair, NoVectors, MAX_PARITY},
    random::Random,
};
use kernel_api::{cycles::cycles, vectors::Vectors};

module! {
    type: Module,
    name: "xdc_code",
    authors: ["xdc developers"],
    description: "Compares parities by vector registers and by words",
    license: "GPL v2",
}

const ROW_BYTES: usize = 2_048;
const COMPARISONS: u32 = 20_000;
/// The counted block: number and length of its packets.
const PACKETS: usize = 8;
const PACKET_BYTES: usize = 1_400;
/// Repetitions; an interrupt may disturb some.
const TIMES: u32 = 64;

struct Module;

/// Time at which the kernel lends its registers.
#[derive(Clone, Copy)]
enum Lent {
    /// Before counting starts.
    Before,
    /// For each packet, as in `unorc`.
    ForEachPacket,
}

struct Buffers {
    row: KVec<u8>,
    other: KVec<u8>,
    /// Copies of both rows, computed by words.
    by_words: [KVec<u8>; 2],
    packet: KVec<u8>,
}

fn random_bytes(rng: &mut Random, bytes: &mut [u8]) {
    for byte in bytes {
        *byte = rng.next_u32() as u8;
    }
}

/// Returns a number below `end`.
fn below(rng: &mut Random, end: usize) -> usize {
    (rng.next_u32() as usize).checked_rem(end).unwrap_or(0)
}

impl Buffers {
    fn new() -> Result<Self> {
        let zeros = || KVec::from_elem(0, ROW_BYTES, GFP_KERNEL);
        Ok(Self {
            row: zeros()?,
            other: zeros()?,
            by_words: [zeros()?, zeros()?],
            packet: zeros()?,
        })
    }

    /// Compares any parity, or the first two at once, of a random packet, length and memory offset. None: the
    /// processor has no vector registers.
    fn are_the_same(&mut self, rng: &mut Random) -> Option<bool> {
        random_bytes(rng, &mut self.row);
        random_bytes(rng, &mut self.other);
        random_bytes(rng, &mut self.packet);
        let [row_by_words, other_by_words] = &mut self.by_words;
        row_by_words.copy_from_slice(&self.row);
        other_by_words.copy_from_slice(&self.other);
        let (start, other_start) = (below(rng, 64), below(rng, 64));
        let row = self.row.get_mut(start..)?;
        let other = self.other.get_mut(other_start..)?;
        let row_by_words = row_by_words.get_mut(start..)?;
        let packet = self.packet.get(below(rng, 64)..)?;
        let packet = packet.get(..below(rng, packet.len()))?;
        let (r, used) = (below(rng, MAX_PARITY + 1), below(rng, ROW_BYTES));
        let mut registers = Vectors::begin()?;
        let fits = if r == MAX_PARITY {
            absorb_pair(Some(&mut registers), row, other, used, packet)
        } else {
            absorb(Some(&mut registers), row, r, used, packet)
        };
        drop(registers);
        let none = None::<&mut NoVectors>;
        let also = if r == MAX_PARITY {
            let other_by_words = other_by_words.get_mut(other_start..)?;
            absorb_pair(none, row_by_words, other_by_words, used, packet)
        } else {
            absorb(none, row_by_words, r, used, packet)
        };
        let [row_by_words, other_by_words] = &self.by_words;
        let are_equal = *self.row == **row_by_words && *self.other == **other_by_words;
        Some(fits == also && are_equal)
    }

    /// Returns the instructions for P and Q of a block; None = by words. `u64::MAX`: a packet does not fit.
    fn count(&mut self, lent: Option<Lent>) -> u64 {
        let packet = self.packet.get(..PACKET_BYTES).unwrap_or(&[]);
        let mut least = u64::MAX;
        for _ in 0..TIMES {
            let mut registers = None;
            if matches!(lent, Some(Lent::Before)) {
                registers = Vectors::begin();
            }
            let before = cycles();
            for _ in 0..PACKETS {
                if matches!(lent, Some(Lent::ForEachPacket)) {
                    registers = Vectors::begin();
                }
                let (p, q) = (&mut self.row, &mut self.other);
                if !absorb_pair(registers.as_mut(), p, q, PACKET_BYTES, packet) {
                    return u64::MAX;
                }
                if matches!(lent, Some(Lent::ForEachPacket)) {
                    registers = None;
                }
            }
            least = least.min(cycles().wrapping_sub(before));
        }
        least
    }
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut rng = Random::new(1);
        let mut buffers = Buffers::new()?;
        let bytes = PACKETS.saturating_mul(PACKET_BYTES);
        pr_info!("words {} {}\n", bytes, buffers.count(None));
        for _ in 0..COMPARISONS {
            match buffers.are_the_same(&mut rng) {
                Some(true) => {}
                Some(false) => {
                    pr_err!("vectors and words differ\n");
                    return Err(EINVAL);
                }
                None => {
                    pr_info!("no vector registers\n");
                    return Ok(Self);
                }
            }
        }
        pr_info!("{} comparisons\n", COMPARISONS);
        let alone = buffers.count(Some(Lent::Before));
        pr_info!("vectors {} {}\n", bytes, alone);
        let with_lending = buffers.count(Some(Lent::ForEachPacket));
        pr_info!("vectors-lent {} {}\n", bytes, with_lending);
        Ok(Self)
    }
}
