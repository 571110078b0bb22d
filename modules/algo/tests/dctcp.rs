// SPDX-License-Identifier: GPL-2.0

use super::super::support::{Rng, for_each_seed};
use super::*;

/// A flow whose ACKs come a window at a time, while the next window is in flight.
struct Sender {
    flow: Flow,
    at: Progress,
}

impl Sender {
    fn starting_at(seq: u32) -> Self {
        let at = Progress {
            snd_una: seq,
            snd_nxt: seq.wrapping_add(10),
            delivered: u32::MAX - 10,
            delivered_ce: u32::MAX - 3,
        };
        Sender {
            flow: Flow::new(&at),
            at,
        }
    }

    /// Delivers `packets`, of which `marked` carry CE; returns alpha.
    fn round(&mut self, packets: u32, marked: u32) -> u32 {
        self.at.snd_una = self.at.snd_nxt;
        self.at.snd_nxt = self.at.snd_nxt.wrapping_add(packets);
        self.at.delivered = self.at.delivered.wrapping_add(packets);
        self.at.delivered_ce = self.at.delivered_ce.wrapping_add(marked);
        self.ack();
        self.flow.alpha()
    }

    fn ack(&mut self) {
        if self.flow.window_ended(self.at.snd_una) {
            self.flow.end_window(&self.at);
        }
    }
}

#[test]
fn the_first_mark_halves_the_window() {
    let mut sender = Sender::starting_at(1);
    assert_eq!(sender.flow.reduce_for_marks(100), 50);
}

#[test]
fn alpha_falls_to_zero_without_marks() {
    let mut sender = Sender::starting_at(1);
    let mut last = RATIO_ONE;
    for _ in 0..200 {
        let alpha = sender.round(10, 0);
        assert!(alpha < last || alpha == 0);
        last = alpha;
    }
    assert_eq!(last, 0);
    assert_eq!(sender.flow.reduce_for_marks(100), 100);
}

#[test]
fn alpha_is_one_if_every_packet_is_marked() {
    let mut sender = Sender::starting_at(1);
    for _ in 0..200 {
        sender.round(10, 0);
    }
    for _ in 0..200 {
        sender.round(10, 10);
    }
    // Fixed point: 1024 - 1024 / 16 + 64.
    assert_eq!(sender.flow.alpha(), RATIO_ONE);
}

#[test]
fn alpha_settles_at_the_marked_fraction() {
    let mut sender = Sender::starting_at(u32::MAX - 5);
    for _ in 0..500 {
        sender.round(100, 25);
    }
    let alpha = sender.flow.alpha();
    assert!((240..=256 + 16).contains(&alpha), "{alpha}");
}

#[test]
fn alpha_changes_once_per_window() {
    let mut sender = Sender::starting_at(u32::MAX - 3);
    sender.round(10, 0);
    let alpha = sender.flow.alpha();
    let first = sender.at.snd_una;
    for acked in 1..10 {
        sender.at.snd_una = first.wrapping_add(acked);
        sender.at.delivered = sender.at.delivered.wrapping_add(1);
        sender.at.delivered_ce = sender.at.delivered_ce.wrapping_add(1);
        sender.ack();
        assert_eq!(sender.flow.alpha(), alpha);
    }
    sender.at.snd_una = first.wrapping_add(10);
    sender.ack();
    assert_eq!(sender.flow.alpha(), alpha - alpha / 16 + 64);
}

#[test]
fn loss_halves_the_window_at_any_alpha() {
    let mut sender = Sender::starting_at(1);
    for _ in 0..200 {
        sender.round(10, 0);
    }
    assert_eq!(sender.flow.reduce_for_loss(101), 50);
    assert_eq!(sender.flow.undo(50), 101);
    assert_eq!(sender.flow.undo(200), 200);
}

#[test]
fn reductions_keep_two_packets() {
    let mut sender = Sender::starting_at(1);
    for cwnd in 0..4 {
        assert_eq!(sender.flow.reduce_for_marks(cwnd), 2);
        assert_eq!(sender.flow.reduce_for_loss(cwnd), 2);
    }
}

/// Compares with RFC 8257 in floating point.
#[test]
fn alpha_follows_the_rfc() {
    // Each of two roundings loses less than 1/1024 per window, and the average forgets 1/16 per
    // window. Below 16/1024 it jumps to 0.
    const MAX_ERROR: f64 = (16.0 + 16.0) / 1024.0;
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut sender = Sender::starting_at(rng.next() as u32);
        let mut model = 1.0;
        let rounds = rng.within(1, 40);
        for _ in 0..rounds {
            let packets = rng.within(1, 5_000) as u32;
            let marked = match rng.within(0, 2) {
                0 => 0,
                1 => packets,
                _ => rng.within(0, u64::from(packets)) as u32,
            };
            model += (f64::from(marked) / f64::from(packets) - model) / 16.0;
            let alpha = f64::from(sender.round(packets, marked)) / 1024.0;
            assert!(
                (alpha - model).abs() <= MAX_ERROR,
                "seed {seed}: {alpha}, not {model}"
            );
        }
        rounds
    });
}

#[test]
fn any_counters_cause_no_panic() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut progress = || Progress {
            snd_una: rng.any() as u32,
            snd_nxt: rng.any() as u32,
            delivered: rng.any() as u32,
            delivered_ce: rng.any() as u32,
        };
        let mut flow = Flow::new(&progress());
        for _ in 0..20 {
            flow.end_window(&progress());
            assert!(flow.alpha() <= RATIO_ONE);
            let cwnd = progress().delivered;
            let reduced = flow.reduce_for_marks(cwnd);
            assert!(reduced >= cwnd / 2 && reduced <= cwnd.max(2));
            assert!(flow.undo(0) == cwnd);
        }
        1
    });
}
