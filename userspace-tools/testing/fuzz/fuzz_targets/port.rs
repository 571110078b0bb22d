// SPDX-License-Identifier: GPL-2.0
//! Compares the phantom counter with exact 128-bit arithmetic, and checks RED's ends and the admission
//! thresholds.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use xdc_algo::{
    color::{Color, DynamicThreshold, Limits, Occupancy},
    phantom::{Config, Phantom, Red},
};

#[derive(Arbitrary, Debug)]
struct Port {
    line_rate_bytes_per_s: u64,
    drain_ppm: u32,
    limit_bytes: u64,
    min_ppm: u32,
    max_ppm: u32,
    limits: (u64, u64, bool),
    pool: (u64, u32),
    packets: Vec<(u32, u32, u8, u32)>,
}

const NS_PER_S: u128 = 1_000_000_000;

fuzz_target!(|port: Port| {
    // Ranges that netlink accepts.
    let rate = port.line_rate_bytes_per_s % 1_000_000_000_000_001;
    let drain_ppm = 1 + port.drain_ppm % 1_000_000;
    let limit_bytes = (port.limit_bytes % i64::MAX as u64).max(1);
    let (min_ppm, max_ppm) = (port.min_ppm % 1_000_001, port.max_ppm % 1_000_001);
    let config = Config::new(rate, drain_ppm, limit_bytes);
    let red = Red::new(limit_bytes, min_ppm.min(max_ppm), max_ppm.max(min_ppm));
    let (yellow_bytes, red_bytes, count_total) = port.limits;
    let limits = Limits {
        yellow_bytes,
        red_bytes,
        count_total,
    };

    let mut phantom = Phantom::default();
    let mut queued = Occupancy::default();
    let mut exact_nbytes = 0u128;
    let mut now_ns = 0u64;
    for (after_ns, len_bytes, color, random) in port.packets {
        now_ns += u64::from(after_ns);
        let len_bytes = u64::from(len_bytes);
        let drained = u128::from(after_ns) * u128::from(config.drain_bytes_per_s);
        exact_nbytes = exact_nbytes.saturating_sub(drained);
        exact_nbytes += u128::from(len_bytes) * NS_PER_S;
        exact_nbytes = exact_nbytes.min(u128::from(limit_bytes) * NS_PER_S);
        let bytes = phantom.add(&config, now_ns, len_bytes);
        assert_eq!(u128::from(bytes), exact_nbytes.div_ceil(NS_PER_S));

        if bytes >= red.max_bytes {
            assert!(red.chooses(bytes, random));
        } else if bytes <= red.min_bytes {
            assert!(!red.chooses(bytes, random));
        } else if red.chooses(bytes, random) {
            assert!(red.chooses(bytes, random / 2) && red.chooses(bytes + 1, random));
        }

        let color = Color::from_u8(color % 3).expect("three colors");
        let pool = DynamicThreshold {
            limit_bytes: port.pool.0,
            used_bytes: queued.total(),
            alpha_ppm: port.pool.1,
        };
        let fits = pool.admit(queued.total(), len_bytes);
        assert!(!fits || queued.total().saturating_add(len_bytes) <= port.pool.0);
        if limits.admit(&queued, color, len_bytes) {
            queued.add(color, len_bytes);
            let own_bytes = if count_total {
                queued.total()
            } else {
                queued.of(color)
            };
            match color {
                Color::Red => assert!(red_bytes == 0 || own_bytes <= red_bytes),
                Color::Yellow => assert!(yellow_bytes == 0 || own_bytes <= yellow_bytes),
                Color::Green => {}
            }
        } else {
            assert_ne!(color, Color::Green, "green passes every threshold");
        }
    }
});
