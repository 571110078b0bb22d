// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;

impl Window {
    /// Creates a window from random bytes.
    pub fn any(rng: &mut Rng) -> Self {
        Window {
            scaled: rng.any(),
            ssthresh_scaled: rng.any(),
        }
    }
}

fn window(bytes: u64) -> Window {
    let mut window = Window::default();
    window.resume(bytes, bytes);
    window
}

#[test]
fn fractions_of_a_byte_add_up() {
    // 175 bytes per window, one packet at a time.
    let mut w = window(1_000_000);
    for _ in 0..1_000 {
        w.increase(175 * BYTE_ONE, 1_000);
    }
    assert_eq!(w.bytes(), 1_000_174);
}

#[test]
fn slow_start_stops_at_its_threshold() {
    let mut w = window(40_000);
    w.restart(4_000);
    assert!(w.in_slow_start());
    w.slow_start(30_000);
    assert_eq!(w.bytes(), 34_000);
    w.slow_start(30_000);
    assert_eq!(w.bytes(), 40_000);
    assert!(!w.in_slow_start());
}

#[test]
fn a_second_timeout_keeps_the_threshold_of_the_first() {
    let mut w = window(40_000);
    w.restart(4_000);
    w.restart(4_000);
    assert_eq!(w.ssthresh_bytes(), 40_000);
}

#[test]
fn the_floor_is_two_packets() {
    let mut w = window(100_000);
    w.decrease(FRACTION_ONE);
    w.clamp(4_000, u64::MAX);
    assert_eq!(w.bytes(), 8_000);
    w.clamp(4_000, 1);
    assert_eq!(w.bytes(), 8_000);
}

#[test]
fn a_reduction_stays_between_the_floor_and_the_window() {
    let w = window(100_000);
    assert_eq!(w.bounded(0, 4_000), 8_000 * BYTE_ONE);
    assert_eq!(w.bounded(50_000 * BYTE_ONE, 4_000), 50_000 * BYTE_ONE);
    assert_eq!(w.bounded(u64::MAX, 4_000), 100_000 * BYTE_ONE);
}

#[test]
fn a_decrease_ends_slow_start() {
    let mut w = Window::default();
    w.resume(100_000, u64::MAX);
    w.decrease(FRACTION_ONE / 4);
    assert_eq!(w.bytes(), 75_000);
    assert!(!w.in_slow_start());
}

#[test]
fn an_undo_never_lowers() {
    let mut w = window(100_000);
    w.lower_to(50_000);
    w.undo(100_000, 0);
    assert_eq!(w.bytes(), 100_000);
    w.undo(10, 0);
    assert_eq!(w.bytes(), 100_000);
}

#[test]
fn resume_keeps_slow_start_or_its_end() {
    let mut w = Window::default();
    w.resume(100_000, 50_000);
    assert!(w.is_started() && !w.in_slow_start());
    w.resume(100_000, 150_000);
    assert!(w.in_slow_start() && !w.in_first_slow_start());
    w.resume(100_000, u64::MAX);
    assert_eq!((w.bytes(), w.in_first_slow_start()), (100_000, true));
}

#[test]
fn undo_returns_to_slow_start() {
    let mut w = Window::default();
    w.resume(100_000, u64::MAX);
    w.lower_to(50_000);
    w.undo(100_000, u64::MAX);
    assert!(w.in_first_slow_start());
    w.restart(1_000);
    w.undo(100_000, 150_000);
    assert_eq!(w.ssthresh_bytes(), 150_000);
    w.lower_to(75_000);
    w.undo(100_000, 75_000);
    assert!(!w.in_slow_start());
}

#[test]
fn an_undo_to_the_same_bytes_keeps_their_fraction() {
    let mut w = window(10_000);
    w.increase(BYTE_ONE, 5_000);
    let with_fraction = (10_000 << BYTE_BITS) + BYTE_ONE / 2;
    assert_eq!(w.scaled(), with_fraction);
    w.undo(10_000, 0);
    assert_eq!(w.scaled(), with_fraction);
}

#[test]
fn clamp_keeps_a_window_at_its_bound() {
    let mut w = Window::default();
    w.resume(10_000, u64::MAX);
    w.clamp(5_000, 10_000);
    assert!(w.in_first_slow_start());

    let mut w = window(10_000);
    w.increase(BYTE_ONE, 5_000);
    let with_fraction = w.scaled();
    w.clamp(5_000, 10_000);
    assert_eq!(w.scaled(), with_fraction);
}
