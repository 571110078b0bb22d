// SPDX-License-Identifier: GPL-2.0

use super::*;

const COLORS: [Color; 3] = [Color::Green, Color::Yellow, Color::Red];

#[test]
fn zeroed_limits_admit_everything_as_green() {
    let table = DscpTable::default();
    assert!((0..64).all(|dscp| table.get(dscp) == Color::Green));
    let limits = Limits::default();
    assert!(
        COLORS
            .iter()
            .all(|&c| limits.admit(&Occupancy::default(), c, u64::MAX))
    );
}

#[test]
fn dscp_table_returns_the_color_of_each_bit() {
    let table = DscpTable::new(1 << 10 | 1 << 63, 1 | 1 << 46);
    for dscp in 0..64 {
        let color = match dscp {
            10 | 63 => Color::Yellow,
            0 | 46 => Color::Red,
            _ => Color::Green,
        };
        assert_eq!(table.get(dscp), color, "{dscp}");
    }
}

#[test]
fn minor_numbers_select_colors() {
    for color in COLORS {
        assert_eq!(Color::from_u8(color as u8), Some(color));
        assert_eq!(Color::from_minor(color as u32 + 1), color);
    }
    assert_eq!(Color::from_u8(3), None);
    assert_eq!(Color::from_minor(0), Color::Green);
}

#[test]
fn only_red_bytes_count_towards_the_red_limit() {
    let limits = Limits {
        red_bytes: 10_000,
        ..Limits::default()
    };
    let mut queued = Occupancy::default();
    queued.add(Color::Green, 1_000_000);
    queued.add(Color::Red, 9_000);
    assert!(limits.admit(&queued, Color::Red, 1_000));
    assert!(!limits.admit(&queued, Color::Red, 1_001));
    assert!(limits.admit(&queued, Color::Green, 1_001));
    assert!(limits.admit(&queued, Color::Yellow, 1_001));
}

#[test]
fn count_total_compares_the_whole_backlog() {
    let limits = Limits {
        yellow_bytes: 10_000,
        red_bytes: 5_000,
        count_total: true,
    };
    let mut queued = Occupancy::default();
    queued.add(Color::Green, 5_000);
    assert!(!limits.admit(&queued, Color::Red, 1));
    assert!(limits.admit(&queued, Color::Yellow, 5_000));
    assert!(!limits.admit(&queued, Color::Yellow, 5_001));
}

#[test]
fn occupancy_sums_its_colors() {
    let mut queued = Occupancy::default();
    for (color, bytes) in COLORS.into_iter().zip([1, 20, 300]) {
        queued.add(color, bytes);
    }
    assert_eq!(queued.total(), 321);
    queued.remove(Color::Yellow, 20);
    assert_eq!((queued.of(Color::Yellow), queued.total()), (0, 301));
}

#[test]
fn port_may_hold_alpha_of_the_free_bytes() {
    let mut pool = DynamicThreshold {
        limit_bytes: 1_000_000,
        used_bytes: 0,
        alpha_ppm: 500_000,
    };
    assert_eq!(pool.threshold_bytes(), 500_000);
    pool.used_bytes = 400_000;
    assert_eq!(pool.threshold_bytes(), 300_000);
    assert!(pool.admit(299_000, 1_000));
    assert!(!pool.admit(299_001, 1_000));
}

#[test]
fn full_pool_admits_nothing_at_any_alpha() {
    let pool = DynamicThreshold {
        limit_bytes: 1_000_000,
        used_bytes: 999_500,
        alpha_ppm: u32::MAX,
    };
    assert!(pool.admit(0, 500));
    assert!(!pool.admit(0, 501));
}
