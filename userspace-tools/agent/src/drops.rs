// SPDX-License-Identifier: GPL-2.0
//! Burst losses: of each ten packets leaving a link, one, two or three are dropped with given probabilities,
//! at random positions drawn here from a seed. A BPF program at the far end of the link counts packets and
//! drops those.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Result;
use xdc_algo::fabric_wire::BurstLoss;
use xdc_netlink::{Request, filter::Place, qdisc};

use xdc_bpf::{
    Kind, MAP_LOOKUP, add, and, array, call, copy, exit, load, load_double, look_up, map, set,
    skip_if, skip_unless_equal, store, store_word, update, update_first,
};

/// Maximum number of drawn positions, after which they repeat. A power of two.
const PLACES: u32 = 1 << 16;

/// Maximum number of blocks to draw, which bounds the time for rare losses.
const BLOCKS: u64 = 1 << 20;

const TC_ACT_UNSPEC: i32 = -1;
const TC_ACT_SHOT: i32 = 2;

/// The program and its two maps. State: packets seen, positions used, number of positions, packets dropped.
pub struct Drops {
    program: OwnedFd,
    state: OwnedFd,
    places: OwnedFd,
}

impl Drops {
    /// Loads the program, which drops nothing yet.
    pub fn load() -> Result<Self> {
        let (state, places) = (array(32, 1)?, array(8, PLACES)?);
        let [state_a, state_b] = map(1, state.as_raw_fd());
        let [places_a, places_b] = map(1, places.as_raw_fd());
        let program = [
            set(2, 0),
            store_word(10, -4, 2),
            copy(2, 10),
            add(2, -4),
            state_a,
            state_b,
            call(MAP_LOOKUP),
            skip_if(0, 0, 29),
            copy(7, 0),
            // r8 = this packet's number, from 1.
            load_double(8, 7, 0),
            add(8, 1),
            store(7, 0, 8),
            // r9 = index of the next position.
            load_double(9, 7, 8),
            and(9, PLACES as i32 - 1),
            store_word(10, -4, 9),
            copy(2, 10),
            add(2, -4),
            places_a,
            places_b,
            call(MAP_LOOKUP),
            skip_if(0, 0, 16),
            load_double(1, 0, 0),
            skip_unless_equal(1, 8, 14),
            load_double(9, 7, 8),
            add(9, 1),
            load_double(1, 7, 16),
            skip_unless_equal(9, 1, 1),
            set(9, 0),
            store(7, 8, 9),
            // Restart the packet count after the last position.
            set(1, 0),
            skip_unless_equal(9, 1, 1),
            store(7, 0, 1),
            load_double(1, 7, 24),
            add(1, 1),
            store(7, 24, 1),
            set(0, TC_ACT_SHOT),
            exit(),
            set(0, TC_ACT_UNSPEC),
            exit(),
        ];
        let program = load(Kind::Classifier, &program)?;
        Ok(Self { program, state, places })
    }

    /// Attaches the program to a device's ingress.
    pub fn attach(&self, index: u32) -> [Request; 2] {
        [qdisc::clsact(index), Place::ingress(index).add("drops", self.program.as_raw_fd())]
    }

    /// Draws new positions: `ppm` is the blocks per million that lose one, two and three of ten packets.
    pub fn set(&self, ppm: [u32; 3], seed: u64) -> Result<()> {
        let places = places(ppm, seed);
        update_first(self.places.as_raw_fd(), &places)?;
        let dropped = self.dropped()?;
        let state = [0, 0, places.len() as u64, dropped];
        update(self.state.as_raw_fd(), 0, &state)
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> Result<u64> {
        let [.., dropped] = look_up::<4>(self.state.as_raw_fd(), 0)?;
        Ok(dropped)
    }
}

/// Ascending numbers of lost packets, from 1, in [`BLOCKS`] blocks or up to [`PLACES`]. Without losses, the
/// number 0, which no packet has.
fn places(ppm: [u32; 3], seed: u64) -> Vec<u64> {
    let mut burst = BurstLoss::new(ppm, seed);
    let mut places = Vec::new();
    for packet in 1.. {
        let is_long = packet > BLOCKS * BurstLoss::BLOCK && !places.is_empty();
        if !burst.is_on() || is_long || places.len() == PLACES as usize {
            break;
        }
        if burst.loses() {
            places.push(packet);
        }
    }
    if places.is_empty() {
        places.push(0);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_blocks_match_the_probabilities() {
        let ppm = [30_000, 20_000, 10_000];
        let places: Vec<_> = places(ppm, 7).into_iter().filter(|&n| n > 0).collect();
        assert!(places.is_sorted_by(|a, b| a < b));
        let mut counts = [0u32; 4];
        let blocks = places.last().unwrap().div_ceil(BurstLoss::BLOCK);
        let mut of_block = vec![0usize; blocks as usize];
        places.iter().for_each(|n| of_block[((n - 1) / BurstLoss::BLOCK) as usize] += 1);
        of_block.iter().for_each(|&n| counts[n] += 1);
        for (n, ppm) in ppm.into_iter().enumerate() {
            let wanted = f64::from(ppm) * blocks as f64 / 1e6;
            let got = f64::from(counts[n + 1]);
            assert!((got - wanted).abs() < 4.0 * wanted.sqrt(), "{n}: {got}, {wanted}");
        }
        // Positions are uniformly distributed.
        let mut at = [0u32; 10];
        places.iter().for_each(|n| at[((n - 1) % BurstLoss::BLOCK) as usize] += 1);
        let mean = places.len() as f64 / 10.0;
        assert!(at.iter().all(|&n| (f64::from(n) - mean).abs() < 5.0 * mean.sqrt()), "{at:?}");
    }

    #[test]
    fn zero_probabilities_lose_nothing() {
        assert_eq!(places([0; 3], 1), [0]);
    }

    #[test]
    fn rare_losses_are_drawn_in_a_bounded_time() {
        let rare = places([300, 75, 16], 1);
        // 300 + 2 x 75 + 3 x 16 packets of a million blocks.
        let wanted = 498.0 * BLOCKS as f64 / 1e6;
        let got = rare.len() as f64;
        assert!((got - wanted).abs() < 6.0 * wanted.sqrt(), "{got} {wanted}");
        assert!(rare.last().is_some_and(|&n| n <= BLOCKS * BurstLoss::BLOCK));
        assert!(!places([0, 0, 1], 1).is_empty());
    }
}
