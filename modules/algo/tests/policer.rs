// SPDX-License-Identifier: GPL-2.0

use super::*;

/// 1 byte per microsecond.
const SETTINGS: Settings = Settings {
    rate_bytes_per_s: 1_000_000,
    burst_bytes: 3_000,
};

#[test]
fn a_policer_passes_its_burst_and_its_rate() {
    let mut policer = Policer::default();
    assert!(!policer.refuses(0, u32::MAX));
    policer.configure(SETTINGS, 0);
    let refused: Vec<_> = (0..4).map(|_| policer.refuses(0, 1_000)).collect();
    assert_eq!(refused, [false, false, false, true]);
    assert!(policer.refuses(999_999, 1_000));
    assert!(!policer.refuses(1_000_000, 1_000));
    // A packet that is refused takes no tokens, and they are at most a burst.
    assert!(policer.refuses(u64::MAX, 3_001));
    assert!(!policer.refuses(u64::MAX, 3_000));
}

#[test]
fn equal_settings_keep_the_tokens() {
    let mut policer = Policer::default();
    policer.configure(SETTINGS, 0);
    assert!(!policer.refuses(0, 3_000));
    policer.configure(SETTINGS, 0);
    assert!(policer.refuses(0, 1_000));
    let burst_bytes = 1_000;
    policer.configure(
        Settings {
            burst_bytes,
            ..SETTINGS
        },
        0,
    );
    assert!(!policer.refuses(0, 1_000));
    policer.configure(Settings::default(), 0);
    assert!(!policer.refuses(0, 3_000));
}
