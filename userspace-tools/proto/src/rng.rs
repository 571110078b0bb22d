// SPDX-License-Identifier: GPL-2.0
//! Random numbers from a seed (SplitMix64).

/// Generator; the state is the seed plus a multiple of the golden ratio.
pub struct Rng(u64);

impl Rng {
    /// Starts a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number uniform in `0..=max`: the high half of a 128-bit product.
    pub fn up_to(&mut self, max: u64) -> u64 {
        ((u128::from(self.next_bits()) * (u128::from(max) + 1)) >> 64) as u64
    }

    /// Returns a number uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_matches_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_bits(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn both_ends_of_the_range_occur() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.up_to(3)).collect();
        assert!((0..=3).all(|n| drawn.contains(&n)));
        assert!(drawn.iter().all(|n| *n <= 3));
        assert_eq!(rng.up_to(0), 0);
    }
}
