// SPDX-License-Identifier: GPL-2.0

use super::super::support::{Rng, for_each_seed};
use super::*;

const GBIT: u64 = 125_000_000;

/// The exact value, in 10^-9 bytes.
struct Exact {
    nbytes: u128,
    at_ns: u64,
}

impl Exact {
    fn drain(&mut self, config: &Config, now_ns: u64) -> u64 {
        let elapsed_ns = u128::from(now_ns.saturating_sub(self.at_ns));
        self.at_ns = self.at_ns.max(now_ns);
        let drained = elapsed_ns * u128::from(config.drain_bytes_per_s);
        self.nbytes = self.nbytes.saturating_sub(drained);
        self.bytes()
    }

    fn add(&mut self, config: &Config, now_ns: u64, len_bytes: u64) -> u64 {
        self.drain(config, now_ns);
        let limit = u128::from(config.limit_bytes) * u128::from(NS_PER_S);
        let len = u128::from(len_bytes) * u128::from(NS_PER_S);
        self.nbytes = (self.nbytes + len).min(limit);
        self.bytes()
    }

    fn bytes(&self) -> u64 {
        self.nbytes.div_ceil(u128::from(NS_PER_S)) as u64
    }
}

#[test]
fn the_counter_equals_the_exact_model() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut config = random_config(&mut rng);
        let mut now_ns = rng.any() >> 1;
        let (mut phantom, mut exact) = (
            Phantom::default(),
            Exact {
                nbytes: 0,
                at_ns: 0,
            },
        );
        phantom.drain(&config, now_ns);
        exact.drain(&config, now_ns);
        for _ in 0..rng.within(20, 50) {
            now_ns = now_ns.saturating_add(match rng.within(0, 9) {
                0 => 0,
                1 => rng.within(0, 20_000_000_000),
                2 => rng.within(0, 1_000_000),
                _ => rng.within(0, 2_000),
            });
            if rng.percent(2) {
                config = random_config(&mut rng);
            }
            let (got, expected) = if rng.percent(70) {
                let len_bytes = rng.within(40, 65_535);
                (
                    phantom.add(&config, now_ns, len_bytes),
                    exact.add(&config, now_ns, len_bytes),
                )
            } else {
                (phantom.drain(&config, now_ns), exact.drain(&config, now_ns))
            };
            assert_eq!(got, expected, "seed {seed}");
        }
        0
    });
}

fn random_config(rng: &mut Rng) -> Config {
    let line_rate = rng.pick(&[0, 1, 999, GBIT, 10 * GBIT, 100 * GBIT, 400 * GBIT]);
    let line_rate = line_rate + rng.within(0, 1_000);
    let limit_bytes = rng.pick(&[0, 1, 1_000_000, 22_400_515, 89_602_060, 1 << 40]);
    Config::new(line_rate, rng.within(1, 1_000_000) as u32, limit_bytes)
}

#[test]
fn counter_is_exact_after_a_billion_packets() {
    // 4160 bytes each 333 ns are 12.4925 GB/s. The drain is slightly slower, by an odd number, so
    // that the fraction matters at each packet and the queue never reaches a bound.
    const PACKETS: u64 = if cfg!(debug_assertions) {
        10_000_000
    } else {
        1_000_000_000
    };
    const LEN_BYTES: u64 = 4_160;
    const GAP_NS: u64 = 333;
    let config = Config {
        drain_bytes_per_s: 12_492_492_477,
        limit_bytes: u64::MAX,
    };
    let mut phantom = Phantom::default();
    for packet in 1..=PACKETS {
        phantom.add(&config, packet * GAP_NS, LEN_BYTES);
    }
    let added = u128::from(PACKETS) * u128::from(LEN_BYTES) * u128::from(NS_PER_S);
    let elapsed_ns = u128::from(PACKETS - 1) * u128::from(GAP_NS);
    let drained = elapsed_ns * u128::from(config.drain_bytes_per_s);
    let exact = (added - drained).div_ceil(u128::from(NS_PER_S));
    assert_eq!(u128::from(phantom.bytes()), exact);
}

#[test]
fn drain_is_a_part_of_the_line_rate() {
    let config = Config::new(100 * GBIT, 900_000, 22_400_000);
    assert_eq!(config.drain_bytes_per_s, 90 * GBIT);
    let mut phantom = Phantom::default();
    phantom.add(&config, 0, 20_000_000);
    assert_eq!(phantom.drain(&config, 1_000_000), 20_000_000 - 11_250_000);
    assert_eq!(phantom.drain(&config, 2_000_000), 0);
}

#[test]
fn drain_is_positive_for_any_known_line() {
    let drain = |line_rate, ppm| Config::new(line_rate, ppm, 1_000).drain_bytes_per_s;
    assert_eq!(drain(0, 900_000), 0);
    assert_eq!(drain(1, 900_000), 1);
    assert_eq!(drain(125_000, 1), 1);
    assert_eq!(drain(2_000_000, 1), 2);
}

#[test]
fn occupancy_stops_at_the_limit() {
    let config = Config::new(GBIT, 1_000_000, 10_000);
    let mut phantom = Phantom::default();
    assert_eq!(phantom.add(&config, 0, 9_000), 9_000);
    assert_eq!(phantom.add(&config, 0, 9_000), 10_000);
}

#[test]
fn occupancy_at_the_limit_keeps_its_remainder() {
    // One byte per microsecond: half a byte has drained when the queue fills up.
    let config = Config::new(1_000_000, 1_000_000, 10_000);
    let mut phantom = Phantom::default();
    phantom.add(&config, 0, 9_000);
    assert_eq!(phantom.add(&config, 500, 1_000), 10_000);
    assert_eq!(phantom.drain(&config, 1_000), 9_999);
}

#[test]
fn a_clock_that_runs_backwards_drains_nothing() {
    let config = Config::new(GBIT, 1_000_000, 10_000);
    let mut phantom = Phantom::default();
    phantom.add(&config, 1_000_000, 9_000);
    assert_eq!(phantom.drain(&config, 1_000), 9_000);
    assert_eq!(phantom.drain(&config, 1_000_000), 9_000);
}

#[test]
fn longest_silence_empties_the_queue() {
    let config = Config::new(u64::MAX, 1_000_000, u64::MAX);
    let mut phantom = Phantom::default();
    phantom.add(&config, 0, u64::MAX);
    assert_eq!(phantom.drain(&config, u64::MAX), 0);
}

#[test]
fn red_is_zero_up_to_min_and_one_from_max() {
    let red = Red::new(22_400_515, 20_000, 600_000);
    assert_eq!((red.min_bytes, red.max_bytes), (448_010, 13_440_309));
    assert!(!red.chooses(448_010, 0));
    assert!(red.chooses(448_011, 0));
    assert!(!red.chooses(448_011, u32::MAX));
    assert!(red.chooses(13_440_309, u32::MAX));
    assert!(red.chooses(u64::MAX, u32::MAX));
}

#[test]
fn red_with_equal_bounds_is_a_step() {
    let red = Red {
        min_bytes: 1_000,
        max_bytes: 1_000,
    };
    assert!(!red.chooses(999, 0));
    assert!(red.chooses(1_000, u32::MAX));
}

#[test]
fn red_grows_with_the_queue_and_not_with_the_random_number() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let bounds = [rng.any(), rng.any()];
        let red = Red {
            min_bytes: bounds[0].min(bounds[1]),
            max_bytes: bounds[0].max(bounds[1]),
        };
        let (bytes, random) = (rng.any(), rng.next() as u32);
        if red.chooses(bytes, random) {
            assert!(red.chooses(bytes.saturating_add(rng.any()), random));
            assert!(red.chooses(bytes, rng.within(0, u64::from(random)) as u32));
        }
        0
    });
}

#[test]
fn red_matches_its_linear_probability() {
    const DRAWS: u64 = 1_000_000;
    let red = Red {
        min_bytes: 25_000,
        max_bytes: 75_000,
    };
    let mut rng = Rng::new(215);
    for bytes in [26_000, 35_000, 50_000, 74_000] {
        let chosen = (0..DRAWS)
            .filter(|_| red.chooses(bytes, rng.next() as u32))
            .count() as f64;
        let p = (bytes - 25_000) as f64 / 50_000.0;
        let sigma = (DRAWS as f64 * p * (1.0 - p)).sqrt();
        let off = (chosen - DRAWS as f64 * p).abs();
        assert!(off < 3.0 * sigma, "{bytes}: off by {off}, sigma {sigma}");
    }
}
