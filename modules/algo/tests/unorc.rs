// SPDX-License-Identifier: GPL-2.0

use super::super::unorc_support::config;
use super::*;

#[test]
fn valid_block_sizes_fit_the_window() {
    for x in 0..=40 {
        for y in 0..=5 {
            let config = config(x, y);
            let fits = (1..=28).contains(&x) && y <= 3 && (y > 0 || x == 1);
            assert_eq!(config.is_sound(), fits);
            if fits {
                assert!(config.blocks().is_power_of_two());
                let window = usize::from(config.window);
                assert!(config.sent_slots() <= window && config.sent_slots() * 2 + 54 > window);
                let small = Config {
                    window: MIN_WINDOW,
                    ..config
                };
                assert!(small.blocks() >= 2 && small.sent_slots() <= MIN_WINDOW.into());
            }
        }
    }
}

#[test]
fn channels_and_windows_are_powers_of_two() {
    for channels in 0..=u8::MAX {
        let of = Config {
            channels,
            ..config(8, 2)
        };
        assert_eq!(of.has_sound_channels(), [1, 2, 4, 8].contains(&channels));
    }
    for window in 0..=u16::MAX {
        let of = Config {
            window,
            ..config(8, 2)
        };
        let sound = (6..=13).any(|bits| window == 1 << bits);
        assert_eq!(of.has_sound_channels(), sound);
    }
}

#[test]
fn numbers_wrap() {
    assert!(
        is_before(u32::MAX, 0) && is_before(1, 2) && !is_before(0, u32::MAX) && !is_before(3, 3)
    );
    assert_eq!((earlier(0, 3), earlier(3, 0), earlier(2, 3)), (3, 3, 2));
}
