// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::algo::fixed::US_PER_S;
use crate::algo::host::Way;
use crate::algo::support::{
    Rng, SEQUENCES, after_an_early_loss, any_calls, for_each_seed, state,
    watched_and_unwatched_are_one,
};
use std::mem;

const MSS: u32 = 4_000;
/// RTT and BDP of a flow inside a datacenter, and between two.
const INTRA_US: u32 = 14;
const INTRA_BDP: u64 = 175_000;
const INTER_US: u32 = 1_792;
const INTER_BDP: u64 = 22_400_000;

/// A flow under test: the clock, and a flow past slow start whose base RTT is known.
struct Sim {
    params: Params,
    flow: Flow,
    now_us: u64,
    rtt_us: u32,
}

impl Sim {
    fn new(params: Params, rtt_us: u32, cwnd_bytes: u64) -> Self {
        let now_us = 1_000_000;
        let mut flow = Flow::new(&params, now_us, cwnd_bytes, Some(rtt_us));
        flow.window.leave_slow_start();
        Sim {
            params,
            flow,
            now_us,
            rtt_us,
        }
    }

    /// An ACK, `after_us` later, that is limited by nothing and shows the full delivery rate.
    fn ack(&mut self, after_us: u64, acked_bytes: u64, marked_bytes: u64) -> Ack {
        self.now_us += after_us;
        Ack {
            now_us: self.now_us,
            rtt_us: Some(self.rtt_us),
            srtt_us: self.rtt_us,
            acked_bytes,
            marked_bytes,
            delivered_bytes: self.flow.cwnd_bytes(),
            interval_us: self.rtt_us,
            prior_in_flight: (self.flow.cwnd_bytes() / u64::from(MSS)) as u32,
            in_flight_bytes: self.flow.cwnd_bytes(),
            cwnd_limited: true,
            mss_bytes: MSS,
            ..Ack::default()
        }
    }

    fn on(&mut self, ack: Ack) -> Output {
        self.flow.on_ack(&self.params, &ack).unwrap()
    }

    /// The usual ACK.
    fn acked(&mut self, after_us: u64, acked_bytes: u64, marked_bytes: u64) -> Output {
        let ack = self.ack(after_us, acked_bytes, marked_bytes);
        self.on(ack)
    }

    /// One RTT of ACKs without marks, in `packets` packets.
    fn quiet_rtt(&mut self, packets: u64) {
        let bytes = self.flow.cwnd_bytes() / packets;
        for _ in 0..packets {
            self.acked(u64::from(self.rtt_us) / packets, bytes, 0);
        }
    }
}

fn paper() -> Params {
    Params::of(Profile::Paper)
}

/// With what a host finds out set by hand.
fn linux() -> Params {
    Params {
        line_rate_mbps: 100_000,
        intra_rtt_us: INTRA_US,
        ..Params::of(Profile::Linux)
    }
}

/// The path of a flow where C is set by hand.
fn path(params: &Params, base_rtt_us: u32) -> Path {
    let rate_mbps = params.line_rate_mbps;
    params.path(base_rtt_us, rate_mbps, LineRate::told(rate_mbps))
}

fn artifact() -> Params {
    Params {
        start: 0,
        ..Params::of(Profile::Artifact)
    }
}

/// 4K / (K + BDP) where the BDP is that of the datacenter, and K is a seventh of it in 1/1024.
fn intra_gain() -> f64 {
    let k = f64::from(paper().k_intra_bdp) / 1_024.0;
    4.0 * k / (k + 1.0)
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

// Additive increase (Algorithm 1, ONACK).

#[test]
fn an_unmarked_window_adds_a_thousandth_of_the_bdp() {
    for (rtt_us, bdp) in [(INTRA_US, INTRA_BDP), (INTER_US, INTER_BDP)] {
        let mut sim = Sim::new(paper(), rtt_us, bdp);
        sim.quiet_rtt(14);
        let added = sim.flow.cwnd_bytes() - bdp;
        assert!(added.abs_diff(bdp / 1_000) <= bdp / 100_000 + 1, "{added}");
    }
}

#[test]
fn fractions_of_a_packet_are_carried() {
    // 175 bytes per RTT are 1750 in ten, though no ACK adds more than 13 bytes.
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    for _ in 0..10 {
        sim.quiet_rtt(14);
    }
    let added = sim.flow.cwnd_bytes() - 100_000;
    assert!((1_730..=1_750).contains(&added), "{added}");
}

#[test]
fn marked_bytes_add_nothing() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    let before = sim.flow.window;
    sim.acked(1, 4_000, 4_000);
    assert_eq!(sim.flow.window.bytes(), before.bytes());
    sim.acked(1, 100_000, 50_000);
    let added = sim.flow.cwnd_bytes() - before.bytes();
    assert!((86..=88).contains(&added), "{added}");
}

#[test]
fn nothing_grows_while_the_application_is_slow() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    for _ in 0..100 {
        let ack = sim.ack(1, 4_000, 0);
        sim.on(Ack {
            cwnd_limited: false,
            ..ack
        });
    }
    assert_eq!(sim.flow.cwnd_bytes(), 100_000);
}

#[test]
fn a_full_window_grows_though_its_packets_were_sent_after_a_pause() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.flow = Flow::new(&paper(), sim.now_us, 40_000, Some(INTRA_US));
    let ack = sim.ack(u64::from(INTRA_US), 40_000, 0);
    sim.on(Ack {
        app_limited: true,
        ..ack
    });
    assert_eq!(sim.flow.cwnd_bytes(), 80_000);
}

// Epochs (4.1.1).

#[test]
fn an_epoch_starts_at_the_first_ack_and_ends_with_a_packet_sent_after_it() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.acked(5, 4_000, 4_000);
    for _ in 0..13 {
        sim.acked(1, 4_000, 4_000);
        assert_eq!(sim.flow.ecn_fraction, 0);
    }
    sim.acked(1, 4_000, 4_000);
    assert_eq!(sim.flow.ecn_fraction, FRACTION_ONE / 2);
    assert_eq!(sim.flow.published().acked_bytes, 0);
}

#[test]
fn an_epoch_is_one_intra_rtt_for_every_flow() {
    for rtt_us in [INTRA_US, INTER_US] {
        let mut sim = Sim::new(paper(), rtt_us, 1_000_000);
        sim.acked(1, 4_000, 0);
        sim.now_us += u64::from(rtt_us);
        let mut epochs = 0;
        for _ in 0..14_000 {
            sim.acked(1, 4_000, 0);
            epochs += u32::from(sim.flow.published().acked_bytes == 0);
        }
        assert!((999..=1_002).contains(&epochs), "{rtt_us}: {epochs}");
    }
}

#[test]
fn a_clock_that_fell_behind_is_brought_forward() {
    let mut sim = Sim::new(paper(), INTER_US, 1_000_000);
    sim.acked(1, 4_000, 0);
    // A second of silence, then a packet per microsecond: an epoch each 14 us, not per ACK.
    sim.now_us += 1_000_000;
    let mut epochs = 0;
    for _ in 0..140 {
        sim.acked(1, 4_000, 0);
        epochs += u32::from(sim.flow.published().acked_bytes == 0);
    }
    assert!((10..=11).contains(&epochs), "{epochs}");
}

#[test]
fn a_restart_after_idling_begins_an_epoch() {
    let mut sim = Sim::new(paper(), INTER_US, 1_000_000);
    sim.acked(1, 4_000, 0);
    sim.now_us += 1_000_000;
    sim.flow.on_idle_restart(sim.now_us);
    assert_eq!(sim.flow.epoch_ends_ns, sim.now_us * 1_000);
    assert_eq!(sim.flow.round_ends, Moment::at(sim.now_us));
    sim.acked(u64::from(INTER_US) - 1, 4_000, 0);
    assert_ne!(sim.flow.published().acked_bytes, 0);
}

#[test]
fn an_epoch_with_nothing_acked_changes_nothing() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.acked(1, 0, 0);
    sim.flow.ecn_fraction = FRACTION_ONE / 2;
    sim.acked(20, 0, 0);
    assert_eq!(sim.flow.ecn_fraction, FRACTION_ONE / 2);
    assert_eq!(sim.flow.cwnd_bytes(), 100_000);
}

#[test]
fn e_decays_in_unmarked_epochs() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    sim.flow.ecn_fraction = FRACTION_ONE;
    sim.acked(14, 4_000, 0);
    assert_eq!(sim.flow.ecn_fraction, FRACTION_ONE / 2);
    sim.acked(14, 4_000, 0);
    assert_eq!(sim.flow.ecn_fraction, FRACTION_ONE / 4);
}

// Multiplicative decrease (Algorithm 1, ONEPOCH).

/// Runs one epoch that is marked throughout and ends with `rtt_us`; returns what is left of
/// the window.
fn kept_after_marked_epoch(mut sim: Sim, rtt_us: u32) -> f64 {
    sim.acked(1, 4_000, 4_000);
    let before = sim.flow.cwnd_bytes();
    sim.rtt_us = rtt_us;
    sim.acked(u64::from(rtt_us), 4_000, 4_000);
    ratio(sim.flow.cwnd_bytes(), before)
}

#[test]
fn a_marked_epoch_takes_e_times_4k_by_k_plus_bdp() {
    // E is one half after one epoch. K is a seventh of the BDP: the gain is DCTCP's half.
    assert!((intra_gain() - 0.5).abs() < 1e-3);
    let kept = kept_after_marked_epoch(Sim::new(paper(), INTRA_US, INTRA_BDP), INTRA_US + 1);
    assert!((kept - (1.0 - intra_gain() / 2.0)).abs() < 1e-4, "{kept}");
    // The same K between datacenters.
    let kept = kept_after_marked_epoch(Sim::new(paper(), INTER_US, INTER_BDP), INTER_US + 1);
    let k = f64::from(paper().k_intra_bdp) / 1_024.0 * INTRA_BDP as f64;
    let gain = 4.0 * k / (k + INTER_BDP as f64);
    assert!((kept - (1.0 - gain / 2.0)).abs() < 1e-6, "{kept}");
}

#[test]
fn the_decrease_is_gentle_without_delay() {
    let kept = kept_after_marked_epoch(Sim::new(paper(), INTRA_US, INTRA_BDP), INTRA_US);
    let gentle = 307.0 / 1_024.0;
    assert!(
        (kept - (1.0 - intra_gain() / 2.0 * gentle)).abs() < 1e-4,
        "{kept}"
    );
}

#[test]
fn the_gentle_factor_does_not_compound() {
    let mut sim = Sim::new(paper(), INTRA_US, INTRA_BDP);
    sim.acked(1, 4_000, 4_000);
    sim.flow.ecn_fraction = FRACTION_ONE;
    for _ in 0..3 {
        let before = sim.flow.cwnd_bytes();
        sim.acked(14, 4_000, 4_000);
        let kept = ratio(sim.flow.cwnd_bytes(), before);
        assert!((kept - (1.0 - intra_gain() * 307.0 / 1_024.0)).abs() < 1e-4);
    }
}

#[test]
fn delay_has_a_tolerance_and_a_floor() {
    // 5.5 % of 1792 us are 98 us.
    for (rtt_us, gentle) in [(INTER_US + 98, true), (INTER_US + 99, false)] {
        let kept = kept_after_marked_epoch(Sim::new(artifact(), INTER_US, INTER_BDP), rtt_us);
        let cut = 666.0 / 1_024.0 * 4.0 * 24_576.0 / (24_576.0 + INTER_BDP as f64);
        let scale = if gentle { 358.0 / 1_024.0 } else { 1.0 };
        assert!((kept - (1.0 - cut * scale)).abs() < 1e-6, "{rtt_us}");
    }
    let params = Params {
        delay_floor_us: 3,
        ..paper()
    };
    assert_eq!(params.undelayed_rtt_us(INTRA_US), 17);
}

#[test]
fn an_epoch_that_ends_late_decreases_for_all_of_its_time_where_asked() {
    let base_us = 100 * INTRA_US;
    // Epochs that pass, `md_elapsed`, and how many decreases that is.
    for (epochs, asked, times) in [(1, 1, 1.0), (10, 1, 10.0), (10, 0, 1.0), (500, 1, 100.0)] {
        let params = Params {
            md_elapsed: asked,
            md_gentle: 1_024,
            ewma: 1_024,
            ..paper()
        };
        let gain = params.decrease_gain(&path(&params, base_us));
        let mut sim = Sim::new(params, base_us, 10_000_000);
        for us in [1, base_us, INTRA_US] {
            sim.acked(u64::from(us), 4_000, 0);
        }
        let before = sim.flow.cwnd_bytes();
        sim.acked(epochs * u64::from(INTRA_US), 4_000, 4_000);
        let taken = 1.0 - ratio(sim.flow.cwnd_bytes(), before);
        let wanted = (times * f64::from(gain) / f64::from(FRACTION_ONE)).min(0.5);
        assert!(
            (taken - wanted).abs() < 1e-4,
            "{epochs}, {asked}: {taken} is not {wanted}"
        );
    }
}

#[test]
fn at_most_one_decrease_per_epoch() {
    let mut sim = Sim::new(paper(), INTRA_US, INTRA_BDP);
    sim.acked(1, 4_000, 4_000);
    sim.acked(14, 4_000, 4_000);
    let after_one = sim.flow.cwnd_bytes();
    for _ in 0..13 {
        sim.acked(1, 4_000, 4_000);
        assert_eq!(sim.flow.cwnd_bytes(), after_one);
    }
    sim.acked(1, 4_000, 4_000);
    assert!(sim.flow.cwnd_bytes() < after_one);
}

#[test]
fn the_artifact_increases_while_e_falls() {
    let mut sim = Sim::new(artifact(), INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    sim.flow.ecn_fraction = FRACTION_ONE / 2;
    sim.acked(14, 4_000, 400);
    assert!(sim.flow.cwnd_bytes() > 100_000);
    // It decreases while E stays,
    let mut sim = Sim::new(artifact(), INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    sim.flow.ecn_fraction = FRACTION_ONE / 2;
    sim.acked(14, 4_000, 4_000);
    assert_eq!(sim.flow.ecn_fraction, FRACTION_ONE / 2);
    assert!(sim.flow.cwnd_bytes() < 100_000);
    // and above 0.9 all the same.
    sim.flow.ecn_fraction = FRACTION_ONE;
    let before = sim.flow.cwnd_bytes();
    sim.acked(14, 4_000, 3_900);
    assert!(sim.flow.ecn_fraction < FRACTION_ONE);
    assert!(sim.flow.cwnd_bytes() < before);
}

#[test]
fn the_floor_is_two_packets() {
    let mut sim = Sim::new(paper(), INTRA_US, 20_000);
    for _ in 0..100 {
        sim.rtt_us = 20;
        sim.acked(20, 4_000, 4_000);
    }
    assert_eq!(sim.flow.cwnd_bytes(), 2 * u64::from(MSS));
}

#[test]
fn the_ceiling_is_one_bdp_where_asked() {
    let mut sim = Sim::new(artifact(), INTRA_US, INTRA_BDP - 10);
    sim.quiet_rtt(14);
    assert_eq!(sim.flow.cwnd_bytes(), INTRA_BDP);
    let mut sim = Sim::new(paper(), INTRA_US, INTRA_BDP);
    sim.quiet_rtt(14);
    assert!(sim.flow.cwnd_bytes() > INTRA_BDP);
}

/// An ACK for a whole window, at the end of its round trip.
fn ack_of_window(now_us: u64, rtt_us: u64, window_bytes: u64) -> Ack {
    Ack {
        now_us,
        rtt_us: Some(rtt_us as u32),
        srtt_us: rtt_us as u32,
        acked_bytes: window_bytes,
        delivered_bytes: window_bytes,
        interval_us: rtt_us as u32,
        cwnd_limited: true,
        mss_bytes: MSS,
        ..Ack::default()
    }
}

/// One flow alone over `intra_us` and 10 Gbit/s, which its ACKs make `late_us` longer, after so many round trips: its window
/// and what is delivered of the link.
fn alone(params: Params, late_us: u64, round_trips: u32) -> (u64, f64) {
    let base_us = 14;
    let mut flow = Flow::new(&params, 1, 10 * u64::from(MSS), Some(base_us));
    let (mut now_us, mut part) = (100, 0.0);
    for _ in 0..round_trips {
        let window_bytes = flow.cwnd_bytes();
        let line_us = window_bytes * 8 / 10_000;
        let rtt_us = line_us.max(u64::from(base_us) + late_us);
        now_us += rtt_us;
        part = line_us as f64 / rtt_us as f64;
        flow.on_ack(&params, &ack_of_window(now_us, rtt_us, window_bytes));
    }
    (flow.cwnd_bytes(), part)
}

#[test]
fn a_window_passes_the_ceiling_until_the_link_is_full() {
    let linux = Params {
        line_rate_mbps: 10_000,
        ..linux()
    };
    let ceiling_bytes = 14 * 1_250 * 5 / 4;
    // Hosts that gather packets make an RTT of 14 us one of 30.
    let (window_bytes, part) = alone(linux, 16, 4_000);
    assert!((0.88..0.93).contains(&part), "{part}");
    assert!(window_bytes > ceiling_bytes * 3 / 2, "{window_bytes}");
    // With 1 it stays where it was.
    let held = Params {
        max_cwnd_unfilled: 1,
        ..linux
    };
    assert_eq!(alone(held, 16, 4_000).0, ceiling_bytes);
    // A path that fills at the ceiling needs no more.
    assert!(alone(linux, 0, 4_000).0 <= ceiling_bytes);
    // A path that is four times as long: of five more ceilings a flow has the fourth power of its part of the link.
    let (window_bytes, part) = alone(linux, 42, 20_000);
    assert!((0.30..0.36).contains(&part), "{part}");
    let most_bytes = ceiling_bytes as f64 * (1.0 + 5.0 * part.powi(4));
    let of_most = window_bytes as f64 / most_bytes;
    assert!((0.95..1.05).contains(&of_most), "{of_most}");
}

#[test]
fn a_window_hardly_passes_the_ceiling_where_more_of_it_only_queues() {
    let linux = Params {
        line_rate_mbps: 10_000,
        ..linux()
    };
    let ceiling_bytes = 50 * 1_250 * 5 / 4;
    let mut flow = Flow::new(&linux, 1, 10 * u64::from(MSS), Some(50));
    let mut now_us = 100;
    for _ in 0..20_000 {
        // Eight tenths of the link, whatever the window.
        let window_bytes = flow.cwnd_bytes();
        let rtt_us = (window_bytes / 1_000).max(50);
        now_us += rtt_us;
        flow.on_ack(
            &linux,
            &Ack {
                // One packet at a time, as of a bundle its own time does not count.
                acked_bytes: MSS.into(),
                ..ack_of_window(now_us, rtt_us, window_bytes)
            },
        );
    }
    let window_bytes = flow.cwnd_bytes();
    assert!(window_bytes >= ceiling_bytes, "{window_bytes}");
    assert!(window_bytes < ceiling_bytes * 27 / 20, "{window_bytes}");
}

#[test]
fn a_window_above_the_ceiling_of_a_full_link_goes_back() {
    let linux = Params {
        line_rate_mbps: 10_000,
        ..linux()
    };
    let mut flow = Flow::new(&linux, 1, 10 * u64::from(MSS), Some(14));
    flow.resume(60_000, 60_000);
    let mut now_us = 100;
    for _ in 0..4_000 {
        now_us += 48;
        flow.on_ack(
            &linux,
            &Ack {
                now_us,
                rtt_us: Some(48),
                srtt_us: 48,
                acked_bytes: flow.cwnd_bytes(),
                delivered_bytes: 60_000,
                interval_us: 48,
                cwnd_limited: true,
                mss_bytes: MSS,
                ..Ack::default()
            },
        );
    }
    assert_eq!(flow.cwnd_bytes(), 14 * 1_250 * 5 / 4);
}

/// A flow alone for so many seconds from 1 s on, over 1 ms and 9.2 of 10 Gbit/s, where a queue without end takes the rest: the
/// windows, with when they began.
fn alone_for(params: Params, seconds: u64) -> Vec<(u64, u64)> {
    let mut flow = Flow::new(&params, 1_000_000, 10 * u64::from(MSS), Some(1_000));
    let mut now_us = 1_001_000;
    let mut windows = Vec::new();
    while now_us < seconds * 1_000_000 {
        let window_bytes = flow.cwnd_bytes();
        let rtt_us = (window_bytes / 1_150).max(1_000);
        windows.push((now_us, window_bytes));
        now_us += rtt_us;
        flow.on_ack(&params, &ack_of_window(now_us, rtt_us, window_bytes));
    }
    windows
}

#[test]
fn the_base_rtt_is_looked_for_with_a_small_window() {
    let linux = Params {
        line_rate_mbps: 10_000,
        ..linux()
    };
    let ceiling_bytes = 1_250_000 * 5 / 4;
    let windows = alone_for(linux, 65);
    let (_, last_bytes) = windows[windows.len() - 1];
    assert!(last_bytes <= ceiling_bytes * 9 / 8, "{last_bytes}");
    // Each falls for a round trip, and is back after six more.
    let fallen: Vec<_> = (0..windows.len())
        .filter(|&i| windows[i].0 > 2_000_000 && windows[i].1 < ceiling_bytes / 32)
        .collect();
    let begun_s: Vec<_> = fallen.iter().map(|&i| windows[i].0 / 1_000_000).collect();
    assert_eq!(fallen.len(), 12, "{begun_s:?}");
    for pair in fallen.chunks(2) {
        assert_eq!(pair[0] + 1, pair[1]);
        assert!(windows[pair[1] + 7].1 >= ceiling_bytes * 15 / 16);
    }
    // Without, the base RTT is soon that of the queue.
    let never = Params {
        probe_rtt: 0,
        ..linux
    };
    let windows = alone_for(never, 65);
    assert!(windows[windows.len() - 1].1 > ceiling_bytes * 3 / 2);
    assert!(
        windows
            .iter()
            .all(|&(begun_us, bytes)| begun_us < 2_000_000 || bytes >= ceiling_bytes * 7 / 8)
    );
}

// Quick Adapt (4.1.2, Algorithm 1, ONQA).

#[test]
fn a_rate_of_up_to_4_gb_in_a_round_trip_is_kept_as_it_is() {
    let rate = Rate::of(&Ack {
        delivered_bytes: u32::MAX.into(),
        interval_us: 7,
        ..Ack::default()
    });
    assert_eq!((rate.bytes, rate.interval_us), (u32::MAX, 7));
}

#[test]
fn a_rate_of_more_than_4_gb_in_a_round_trip_is_the_same_rate() {
    for (delivered_bytes, interval_us) in [(u64::from(u32::MAX) + 1, 200_000), (10 << 30, 300_001)]
    {
        let rate = Rate::of(&Ack {
            delivered_bytes,
            interval_us,
            ..Ack::default()
        });
        let exact = delivered_bytes as f64 / f64::from(interval_us) * 1.05 * 100_000.0;
        let period = rate.in_period_scaled(100_000) as f64 / 65_536.0;
        assert!(
            (period / exact - 1.0).abs() < 1e-4,
            "{period} is not {exact}"
        );
    }
}

/// A flow in the middle of a round trip; the ACK that ends it reports `delivered_bytes`.
fn round_with(params: Params, delivered_bytes: u64, app_limited: bool) -> Sim {
    let mut sim = Sim::new(params, INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    let ack = sim.ack(u64::from(INTRA_US), 4_000, 0);
    sim.on(Ack {
        delivered_bytes,
        app_limited,
        cwnd_limited: !app_limited,
        ..ack
    });
    sim
}

#[test]
fn quick_adapt_leaves_what_was_delivered() {
    let sim = round_with(paper(), 40_000, false);
    assert_eq!(sim.flow.quick_adapts(), 1);
    assert_eq!(sim.flow.cwnd_bytes(), 40_000 * 21 / 20);
    let sim = round_with(artifact(), 40_000, false);
    assert_eq!(sim.flow.cwnd_bytes(), 42_000 * 983 / 1_024);
}

#[test]
fn quick_adapt_rests_while_half_the_window_arrives() {
    let sim = round_with(paper(), 48_000, false);
    assert_eq!(sim.flow.quick_adapts(), 0);
}

#[test]
fn quick_adapt_acts_below_half_and_not_at_it() {
    let params = Params {
        ai_ppm: 0,
        ..paper()
    };
    // 1.05 base RTTs are a tenth of 147 us.
    for (delivered_bytes, acts) in [(500_000, 0), (499_999, 1)] {
        let mut sim = Sim::new(params, INTRA_US, 100_000);
        sim.acked(1, 4_000, 0);
        let ack = sim.ack(u64::from(INTRA_US), 4_000, 0);
        sim.on(Ack {
            delivered_bytes,
            interval_us: 147,
            ..ack
        });
        assert_eq!(sim.flow.quick_adapts(), acts);
    }
}

#[test]
fn quick_adapt_rests_until_half_of_a_first_bdp_was_in_flight() {
    let params = Params::of(Profile::Artifact);
    let mut sim = Sim::new(params, INTER_US, INTER_BDP);
    let mut round = |prior_in_flight| {
        let ack = sim.ack(INTER_US.into(), 4_000, 0);
        sim.on(Ack {
            prior_in_flight,
            delivered_bytes: 64_000,
            ..ack
        });
        sim.flow.quick_adapts()
    };
    // This ACK has added its increase before it is judged.
    let half = (INTER_BDP / 2 / u64::from(MSS)) as u32 + 1;
    // The first ACK begins the first round trip, whatever was in flight.
    assert_eq!(round(half), 0);
    for _ in 0..5 {
        assert_eq!(round(half - 1), 0);
    }
    assert_eq!(round(half), 0);
    assert_eq!(round(1), 1);
}

#[test]
fn quick_adapt_rests_while_a_loss_is_repaired() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    for (in_recovery, quick_adapts) in [(true, 0), (false, 1)] {
        let ack = sim.ack(INTRA_US.into(), 4_000, 0);
        sim.on(Ack {
            in_recovery,
            delivered_bytes: 4_000,
            ..ack
        });
        assert_eq!(sim.flow.quick_adapts(), quick_adapts);
    }
}

#[test]
fn after_a_loss_a_first_bdp_counts_as_used() {
    let params = Params::of(Profile::Artifact);
    let mut sim = Sim::new(params, INTER_US, INTER_BDP);
    assert_eq!(sim.flow.adapt.state(), Adapt::UNUSED);
    sim.flow.on_timeout(&params, sim.now_us, 0, MSS);
    assert_eq!(sim.flow.adapt.state(), Adapt::REDUCED);
}

#[test]
fn quick_adapt_forgives_its_slack() {
    let params = Params {
        qa_slack_packets: 2,
        ..paper()
    };
    assert_eq!(round_with(params, 40_200, false).flow.quick_adapts(), 0);
    assert_eq!(round_with(params, 39_800, false).flow.quick_adapts(), 1);
}

#[test]
fn quick_adapt_ignores_a_slow_application() {
    let sim = round_with(paper(), 1_000, true);
    assert_eq!(sim.flow.quick_adapts(), 0);
    assert_eq!(sim.flow.cwnd_bytes(), 100_007);
}

#[test]
fn quick_adapt_ignores_a_slow_host_where_asked() {
    let params = Params {
        qa_needs_mark: 1,
        ..paper()
    };
    let mut sim = round_with(params, 40_000, false);
    assert_eq!(sim.flow.quick_adapts(), 0);
    sim.acked(1, 4_000, 4_000);
    let ack = sim.ack(u64::from(INTRA_US), 4_000, 0);
    sim.on(Ack {
        delivered_bytes: 40_000,
        ..ack
    });
    assert_eq!(sim.flow.quick_adapts(), 1);
}

#[test]
fn quick_adapt_ignores_few_marks_where_asked() {
    let params = Params {
        qa_least_e: 256,
        ..paper()
    };
    for (e, adapts) in [(255, 0), (257, 1)] {
        let mut sim = Sim::new(params, INTRA_US, 100_000);
        sim.acked(1, 4_000, 0);
        sim.flow.ecn_fraction = e << (FRACTION_BITS - RATIO_BITS);
        let ack = sim.ack(u64::from(INTRA_US), 4_000, 0);
        sim.on(Ack {
            delivered_bytes: 40_000,
            ..ack
        });
        assert_eq!(sim.flow.quick_adapts(), adapts, "{e}");
    }
}

/// Of a flow in balance: steps are small.
fn in_balance(base_rtt_us: u32) -> Balance {
    let mut balance = Balance::default();
    let change = Change {
        passed_us: 1 << 20,
        grown_scaled: 0,
        twice_scaled: 0,
        regrowth_scaled: 0,
    };
    balance.end_epoch(base_rtt_us, &change);
    balance
}

#[test]
fn a_small_window_in_balance_adds_and_gives_in_proportion() {
    for (step_windows, share) in [(0, 1.0), (2_560, 0.25)] {
        let params = Params {
            step_windows,
            ..linux()
        };
        let mut sim = Sim::new(params, INTER_US, INTER_BDP / 10);
        sim.acked(1, 4_000, 0);
        sim.flow.balance = in_balance(INTER_US);
        let before = sim.flow.cwnd_bytes();
        sim.quiet_rtt(128);
        let added = (sim.flow.cwnd_bytes() - before) as f64;
        let wanted = 0.004 * INTER_BDP as f64 * share;
        assert!((added / wanted - 1.0).abs() < 0.02, "{added} of {wanted}");

        sim.flow.ecn_fraction = FRACTION_ONE / 2;
        sim.flow.balance = in_balance(INTER_US);
        let before = sim.flow.cwnd_bytes();
        sim.acked(14, 4_000, 4_000);
        let taken = before - sim.flow.cwnd_bytes();
        let e = 0.5 * (1.0 + 333.0 / 1_024.0);
        let k = 200.0 / 1_024.0 * INTRA_BDP as f64;
        let wanted = e * 4.0 * k / (k + INTER_BDP as f64) * before as f64 * share;
        assert!(
            (taken as f64 / wanted - 1.0).abs() < 0.03,
            "{taken} of {wanted}"
        );
    }
}

#[test]
fn beyond_the_region_steps_are_whole() {
    for rtt_us in [5_001, 100_000] {
        let params = linux();
        let bdp = path(&params, rtt_us).bdp_bytes;
        let mut sim = Sim::new(params, rtt_us, bdp / 10);
        sim.acked(1, 4_000, 0);
        sim.flow.balance = in_balance(rtt_us);
        let before = sim.flow.cwnd_bytes();
        sim.quiet_rtt(16);
        let added = (sim.flow.cwnd_bytes() - before) as f64;
        let wanted = 0.004 * bdp as f64;
        assert!((added / wanted - 1.0).abs() < 0.02, "{added} of {wanted}");
    }
}

#[test]
fn a_hosts_noise_is_part_of_the_rtt() {
    // Up to four base RTTs, and 50 us.
    for (base_us, rtt_us, counts_us) in [
        (14, 10, 14),
        (14, 24, 24),
        (14, 90, 56),
        (200, 240, 240),
        (200, 400, 250),
    ] {
        let path = path(&linux(), base_us);
        assert_eq!(path.noisy_rtt_us(rtt_us), counts_us);
    }
}

#[test]
fn after_quick_adapt_one_rtt_passes_without_any_decrease() {
    let mut sim = round_with(paper(), 40_000, false);
    let adapted = sim.flow.cwnd_bytes();
    for _ in 0..13 {
        let ack = sim.ack(1, 4_000, 4_000);
        sim.on(Ack {
            delivered_bytes: 100,
            ..ack
        });
        assert_eq!(sim.flow.cwnd_bytes(), adapted);
    }
    assert_eq!(sim.flow.quick_adapts(), 1);
    // That RTT is over: an epoch may decrease again, Quick Adapt measures a whole RTT first.
    let ack = sim.ack(1, 4_000, 4_000);
    sim.on(Ack {
        delivered_bytes: 100,
        ..ack
    });
    assert!(sim.flow.cwnd_bytes() < adapted);
    assert_eq!(sim.flow.quick_adapts(), 1);
    let ack = sim.ack(14, 4_000, 0);
    sim.on(Ack {
        delivered_bytes: 100,
        ..ack
    });
    assert_eq!(sim.flow.quick_adapts(), 2);
}

// Slow start.

/// A flow in its first slow start.
fn slow_start(params: Params, rtt_us: u32, cwnd_bytes: u64) -> Sim {
    let mut sim = Sim::new(params, rtt_us, cwnd_bytes);
    sim.flow = Flow::new(&params, sim.now_us, cwnd_bytes, Some(rtt_us));
    sim
}

/// An inter-datacenter flow in slow start that is at the beginning of a round trip and leaves slow
/// start by balance.
fn balanced() -> Sim {
    let params = Params {
        balanced_exit: 1,
        ..paper()
    };
    let mut sim = slow_start(params, INTER_US, 10_000_000);
    sim.acked(1, 4_000, 0);
    sim.acked(u64::from(INTER_US), 4_000, 0);
    sim
}

/// The decrease that this E would have called for, had the flow left slow start; there is no delay.
fn withheld_bytes(sim: &Sim) -> f64 {
    let gain =
        f64::from(sim.params.decrease_gain(&path(&sim.params, INTER_US))) / f64::from(FRACTION_ONE);
    let e = f64::from(sim.flow.ecn_fraction) / f64::from(FRACTION_ONE);
    let gentle = f64::from(sim.params.md_gentle) / 1_024.0;
    sim.flow.cwnd_bytes() as f64 * gain * e * gentle
}

#[test]
fn slow_start_ends_when_the_decreases_it_withheld_reach_the_increase() {
    let mut sim = balanced();
    let increase = INTER_BDP as f64 / 1_000.0;
    let (mut before, mut withheld) = (0.0, 0.0);
    while sim.flow.window.in_slow_start() {
        sim.acked(14, 4_000, 4_000);
        before = withheld;
        withheld += withheld_bytes(&sim);
        assert!(before < increase && withheld > 0.0, "{before}");
    }
    assert!(before > 0.0, "one mark is not enough");
    assert!(increase <= withheld, "{withheld}");
}

#[test]
fn slow_start_goes_on_through_marks_that_the_increase_outweighs() {
    let mut sim = balanced();
    let before = sim.flow.cwnd_bytes();
    sim.acked(14, 8_000, 4_000);
    assert_ne!(sim.flow.balance, Balance::default());
    assert!(sim.flow.window.in_first_slow_start());
    assert_eq!(sim.flow.cwnd_bytes(), before + 4_000);
}

#[test]
fn what_was_withheld_is_forgotten_after_a_round_trip() {
    let mut sim = balanced();
    sim.acked(14, 8_000, 4_000);
    sim.acked(u64::from(INTER_US), 4_000, 0);
    assert_eq!(sim.flow.balance, Balance::default());
    assert!(sim.flow.window.in_first_slow_start());
}

#[test]
fn a_balanced_slow_start_leaves_what_is_delivered() {
    let mut sim = balanced();
    // Half an RTT is enough.
    for _ in 0..64 {
        if sim.flow.window.in_slow_start() {
            let ack = sim.ack(14, 4_000, 4_000);
            sim.on(Ack {
                delivered_bytes: 6_000_000,
                ..ack
            });
        }
    }
    assert_eq!(sim.flow.cwnd_bytes(), 6_300_000);
    assert_eq!(sim.flow.output(&sim.params, 0).ssthresh_bytes, 6_300_000);
}

#[test]
fn slow_start_doubles_until_the_first_mark() {
    let mut sim = slow_start(paper(), INTRA_US, 10_000);
    sim.acked(14, 10_000, 0);
    sim.acked(14, 20_000, 0);
    assert_eq!(sim.flow.cwnd_bytes(), 40_000);
    let output = sim.acked(1, 4_000, 4_000);
    assert_eq!(output.cwnd_bytes, 40_000);
    assert_eq!(output.ssthresh_bytes, 40_000);
    sim.acked(1, 4_000, 0);
    assert!(sim.flow.cwnd_bytes() < 40_100);
}

#[test]
fn slow_start_stops_at_the_ceiling() {
    let params = Params {
        max_cwnd_bdp: 1_024,
        ..linux()
    };
    let mut flow = Flow::new(&params, 0, 170_000, Some(INTRA_US));
    let ack = Ack {
        now_us: 14,
        rtt_us: Some(INTRA_US),
        acked_bytes: 170_000,
        cwnd_limited: true,
        mss_bytes: MSS,
        ..Ack::default()
    };
    let output = flow.on_ack(&params, &ack).unwrap();
    assert_eq!(output.cwnd_bytes, INTRA_BDP);
    assert_eq!(output.ssthresh_bytes, INTRA_BDP);
}

#[test]
fn the_artifact_starts_with_one_bdp_as_soon_as_the_rtt_is_known() {
    let params = Params::of(Profile::Artifact);
    assert_eq!(
        Flow::new(&params, 0, 40_000, Some(INTRA_US)).cwnd_bytes(),
        INTRA_BDP
    );
    let mut flow = Flow::new(&params, 0, 40_000, None);
    assert_eq!(flow.cwnd_bytes(), 40_000);
    let ack = Ack {
        now_us: 100,
        rtt_us: Some(INTRA_US),
        mss_bytes: MSS,
        ..Ack::default()
    };
    assert_eq!(flow.on_ack(&params, &ack).unwrap().cwnd_bytes, INTRA_BDP);
}

#[test]
fn slow_start_begins_with_a_part_of_the_bdp() {
    let params = Params {
        initial_cwnd_bdp: 64,
        ..paper()
    };
    let opened = |rtt_us| {
        let mut flow = Flow::new(&params, 0, 40_000, rtt_us);
        flow.open(&params);
        flow
    };
    let flow = opened(Some(INTER_US));
    assert_eq!(flow.cwnd_bytes(), path(&params, INTER_US).bdp_bytes / 16);
    assert!(flow.window.in_first_slow_start());
    // A sixteenth of a short path's BDP is less than what every flow may send, ...
    assert_eq!(opened(Some(INTRA_US)).cwnd_bytes(), 40_000);
    // ... and without an RTT nothing is known of the path.
    assert_eq!(opened(None).cwnd_bytes(), 40_000);
}

#[test]
fn the_pacing_rate_is_a_window_per_base_rtt_in_slow_start_too() {
    let mut sim = Sim::new(paper(), INTRA_US, 140_000);
    sim.rtt_us = 28;
    let output = sim.acked(1, 0, 0);
    assert_eq!(output.pacing_bytes_per_s, 10_000 * US_PER_S);
    let flow = Flow::new(&paper(), 0, 140_000, Some(INTRA_US));
    assert_eq!(
        flow.output(&paper(), 0).pacing_bytes_per_s,
        10_000 * US_PER_S
    );
    let flow = Flow::new(&paper(), 0, 140_000, None);
    assert_eq!(flow.output(&paper(), 0).pacing_bytes_per_s, u64::MAX);
}

// Loss.

#[test]
fn a_loss_leaves_what_quick_adapt_would() {
    let mut sim = round_with(paper(), 60_000, false);
    assert_eq!(sim.flow.loss_window_bytes(&sim.params, MSS), 63_000);
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), 63_000);
}

#[test]
fn a_loss_never_raises_the_window() {
    let mut sim = round_with(paper(), 200_000, false);
    let before = sim.flow.cwnd_bytes();
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), before);
}

#[test]
fn a_loss_before_any_measurement_halves() {
    let mut flow = Flow::new(&paper(), 0, 100_000, None);
    flow.on_loss(&paper(), 0, MSS);
    assert_eq!(flow.cwnd_bytes(), 50_000);
}

#[test]
fn losses_count_once_per_rtt() {
    let mut sim = round_with(paper(), 60_000, false);
    for _ in 0..10 {
        sim.flow.on_loss(&sim.params, sim.now_us, MSS);
        let ack = sim.ack(1, 4_000, 0);
        sim.on(Ack {
            delivered_bytes: 20_000,
            ..ack
        });
    }
    assert!(sim.flow.cwnd_bytes() >= 63_000);
    sim.acked(14, 4_000, 0);
    let ack = sim.ack(1, 4_000, 0);
    sim.on(Ack {
        delivered_bytes: 20_000,
        ..ack
    });
    let before = sim.flow.cwnd_bytes();
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), before / 2);
}

#[test]
fn a_loss_takes_no_more_than_half() {
    let mut sim = round_with(paper(), 60_000, false);
    let ack = sim.ack(1, 4_000, 0);
    sim.on(Ack {
        delivered_bytes: 20_000,
        ..ack
    });
    let before = sim.flow.cwnd_bytes();
    assert_eq!(sim.flow.loss_window_bytes(&sim.params, MSS), before / 2);
}

#[test]
fn a_timeout_restarts_slow_start_towards_the_loss_window() {
    let mut sim = round_with(paper(), 60_000, false);
    sim.flow.on_timeout(&sim.params, sim.now_us, 0, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), u64::from(MSS));
    assert_eq!(sim.flow.output(&sim.params, 0).ssthresh_bytes, 63_000);
    sim.acked(1, 40_000, 0);
    sim.acked(1, 40_000, 0);
    assert_eq!(sim.flow.cwnd_bytes(), 63_000);
}

#[test]
fn an_undo_brings_the_window_back() {
    let mut sim = round_with(paper(), 60_000, false);
    let before = sim.flow.cwnd_bytes();
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    sim.flow.undo(before, 0);
    assert_eq!(sim.flow.cwnd_bytes(), before);
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), 63_000);
}

#[test]
fn in_recovery_the_window_follows_what_leaves() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    let ack = sim.ack(1, 4_000, 0);
    let output = sim.on(Ack {
        in_recovery: true,
        in_flight_bytes: 20_000,
        ..ack
    });
    assert_eq!(output.cwnd_bytes, 28_000);
}

// What others see.

#[test]
fn an_epoch_shows_what_it_counts() {
    let mut sim = Sim::new(paper(), INTER_US, INTER_BDP);
    assert_eq!(sim.flow.base_rtt_us(), Some(INTER_US));
    assert_eq!(Flow::default().base_rtt_us(), None);
    sim.acked(1, 8_000, 4_000);
    sim.acked(1, 4_000, 0);
    assert_eq!(sim.flow.published().acked_bytes, 12_000);
    assert_eq!(sim.flow.published().marked_bytes, 4_000);
}

#[test]
fn a_round_shows_whether_it_was_marked_and_whether_it_reduced() {
    let params = paper();
    let mut sim = Sim::new(params, INTER_US, INTER_BDP);
    assert_eq!(sim.flow.published().flags, 0);
    sim.acked(1, 8_000, 4_000);
    assert_eq!(sim.flow.published().flags, published::MARKED);
    sim.flow.on_loss(&params, sim.now_us, MSS);
    assert_eq!(
        sim.flow.published().flags,
        published::MARKED | published::REDUCED
    );
}

// What is told.

impl Sim {
    /// The usual ACK; what it told.
    fn told(&mut self, after_us: u64, acked_bytes: u64, marked_bytes: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let ack = self.ack(after_us, acked_bytes, marked_bytes);
        self.flow.on_ack_watched(&self.params, &ack, &mut events);
        events
    }

    /// The epoch that an ACK after one RTT ends.
    fn epoch(&mut self, acked_bytes: u64, marked_bytes: u64) -> Epoch {
        let events = self.told(u64::from(self.rtt_us), acked_bytes, marked_bytes);
        match events[..] {
            [Event::QuickAdapt(_), Event::Epoch(epoch)] | [Event::Epoch(epoch)] => epoch,
            _ => panic!("{events:?}"),
        }
    }
}

#[test]
fn an_epoch_is_told_with_what_it_came_to() {
    let mut sim = Sim::new(paper(), INTRA_US, INTRA_BDP);
    assert!(sim.told(1, 4_000, 0).is_empty(), "the first epoch begins");

    let before_bytes = sim.flow.cwnd_bytes();
    let epoch = sim.epoch(8_000, 4_000);
    assert_eq!((epoch.acked_bytes, epoch.marked_bytes), (12_000, 4_000));
    assert_eq!((epoch.rtt_us, epoch.base_rtt_us), (INTRA_US, INTRA_US));
    assert_eq!(epoch.period_ns, 14_000);
    assert_eq!(epoch.ecn_fraction, sim.flow.ecn_fraction);
    assert_eq!(epoch.cwnd_bytes, sim.flow.cwnd_bytes());
    assert!(
        epoch.cwnd_before_bytes >= before_bytes,
        "one ACK's increase is in it"
    );
    let Verdict {
        action,
        cut,
        gentle,
    } = epoch.verdict;
    assert_eq!((action, gentle), (Action::Decreased, true));
    let wanted = ratio(epoch.ecn_fraction.into(), FRACTION_ONE.into()) * intra_gain() * 0.3;
    assert!((ratio(cut.into(), FRACTION_ONE.into()) - wanted).abs() < 1e-3);
    let kept = ratio(epoch.cwnd_bytes, epoch.cwnd_before_bytes);
    assert!((kept - (1.0 - wanted)).abs() < 1e-3, "{kept}");

    let epoch = sim.epoch(8_000, 0);
    assert_eq!((epoch.acked_bytes, epoch.marked_bytes), (8_000, 0));
    assert_eq!(epoch.verdict.action, Action::None);
    assert_eq!(epoch.verdict.cut, 0);

    // Delay: the whole decrease.
    sim.rtt_us = 2 * INTRA_US;
    sim.flow.round_ends = Moment::at(sim.now_us + 1_000_000);
    let epoch = sim.epoch(8_000, 8_000);
    assert_eq!(epoch.period_ns, 28_000);
    assert!(!epoch.verdict.gentle);
    // A round trip that has had its reduction.
    sim.flow.adapt.set(Adapt::REDUCED);
    assert_eq!(sim.epoch(8_000, 8_000).verdict.action, Action::Rested);
}

#[test]
fn an_epoch_tells_what_it_did_instead_of_a_decrease() {
    let mut sim = Sim::new(artifact(), INTRA_US, INTRA_BDP);
    sim.told(1, 4_000, 0);
    sim.epoch(8_000, 8_000);
    let epoch = sim.epoch(80_000, 4_000);
    assert_eq!(epoch.verdict.action, Action::Increased);

    let mut sim = Sim::new(linux(), INTRA_US, 40_000);
    sim.flow.window.start(40_000, true);
    sim.told(1, 4_000, 0);
    let epoch = sim.epoch(80_000, 80);
    assert_eq!(epoch.verdict.action, Action::Withheld);
    assert!(epoch.verdict.cut > 0);
    assert_eq!(epoch.cwnd_bytes, epoch.cwnd_before_bytes);
    let epoch = sim.epoch(8_000, 8_000);
    assert_eq!(epoch.verdict.action, Action::EndedSlowStart);
}

#[test]
fn quick_adapt_is_told_whether_or_not_it_acts() {
    let compared = |delivered_bytes| {
        let mut sim = Sim::new(paper(), INTRA_US, 100_000);
        sim.told(1, 0, 0);
        let ack = Ack {
            delivered_bytes,
            ..sim.ack(14, 0, 0)
        };
        let mut events = Vec::new();
        sim.flow.on_ack_watched(&sim.params, &ack, &mut events);
        match events[0] {
            Event::QuickAdapt(told) => (told, sim.flow.cwnd_bytes()),
            Event::Epoch(_) => panic!("{events:?}"),
        }
    };
    let (told, left_bytes) = compared(40_000);
    assert!(told.adapted);
    assert_eq!(
        (told.cwnd_before_bytes, told.cwnd_bytes),
        (100_000, left_bytes)
    );
    assert_eq!(
        (told.delivered_bytes, told.promised_bytes),
        (42_000, 50_000)
    );
    assert_eq!(told.base_rtt_us, INTRA_US);
    let (told, left_bytes) = compared(60_000);
    assert!(!told.adapted);
    assert_eq!(
        (told.delivered_bytes, told.cwnd_bytes),
        (63_000, left_bytes)
    );
}

#[test]
fn who_looks_changes_nothing() {
    for params in Profile::ALL.map(Params::of) {
        let flow = Flow::new(&params, 1, 100_000, Some(INTRA_US));
        watched_and_unwatched_are_one(&params, flow);
    }
}

// Robustness.

#[test]
fn state_fits_the_socket() {
    // 104 bytes, less 16 that the kernel side keeps and 16 of the module.
    assert!(size_of::<Flow>() <= 72);
    assert_eq!(align_of::<Flow>(), 8);
}

#[test]
fn zeroes_are_a_flow_that_does_nothing() {
    let params = paper();
    let mut flow = Flow::default();
    flow.on_loss(&params, 1, MSS);
    flow.on_timeout(&params, 1, 1, MSS);
    flow.undo(1_000, 1_000);
    flow.on_idle_restart(1);
    assert_eq!(flow.on_ack(&params, &Ack::default()), None);
    assert_eq!(flow.loss_window_bytes(&params, MSS), 0);
    assert_eq!((flow.cwnd_bytes(), flow.ecn_fraction), (0, 0));
    assert_eq!(flow.base_rtt_us(), None);
}

#[test]
fn defaults_are_within_their_bounds() {
    for row in PARAMS {
        for value in row.defaults {
            assert!((row.min..=row.max).contains(value), "{:?}", row.name);
        }
    }
    for (i, profile) in Profile::ALL.into_iter().enumerate() {
        let read = Params::read(|row| PARAMS[row].defaults[i]);
        assert_eq!(Params::of(profile), read);
    }
}

#[test]
fn no_input_panics_and_the_window_stays_within_its_bounds() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let params = Params::read(|_| rng.any() as u32);
        let rtt_us = rng.any() as u32;
        let rtt_us = rng.percent(50).then_some(rtt_us);
        let mut flow = Flow::new(&params, rng.any(), rng.any(), rtt_us);
        for _ in 0..15 {
            let mss_bytes = rng.any() as u32;
            match rng.within(0, 9) {
                0 => flow.on_loss(&params, rng.any(), mss_bytes),
                1 => flow.on_timeout(&params, rng.any(), rng.any(), mss_bytes),
                2 => flow.undo(rng.any(), rng.any()),
                3 => flow.on_idle_restart(rng.any()),
                _ => {
                    let ack = rng.any_ack();
                    let output = flow.on_ack(&params, &ack).unwrap();
                    assert!(output.cwnd_bytes > 0 && output.cwnd_bytes <= 1 << 40);
                }
            }
            assert!(flow.ecn_fraction <= FRACTION_ONE);
        }
        0
    });
}

#[test]
fn whatever_bytes_a_flow_is_made_of_nothing_panics() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut flow = Flow {
            window: Window::any(&mut rng),
            epoch_ends_ns: rng.any(),
            epoch_acked_bytes: rng.any() as u32,
            epoch_marked_bytes: rng.any() as u32,
            ecn_fraction: rng.any() as u32,
            rate: Rate {
                bytes: rng.any() as u32,
                interval_us: rng.any() as u32,
            },
            round_ends: Moment::at(rng.any()),
            line_rate: LineRate::any(&mut rng),
            base_rtt: BaseRtt::any(&mut rng),
            signs: Signs(rng.any() as u8),
            adapt: Adapt(rng.any() as u8),
            quick_adapts: rng.any() as u8,
            epochs: rng.any() as u8,
            balance: Balance::any(&mut rng),
        };
        any_calls(&mut flow, &Params::of(Profile::Linux), &mut rng);
        0
    });
}

// The rules once more, in floating point, as the paper writes them.

struct Reference {
    // Constants of the flow, in the paper's units: bytes and microseconds.
    line_rate: f64,
    intra_rtt: f64,
    mss: f64,
    params: Params,

    cwnd: f64,
    ssthresh: f64,
    rtt_base: f64,
    /// Least of this window of the host's clock.
    rtt_window: f64,
    window: u64,
    probing: bool,
    t_epoch_ns: f64,
    bytes_acked: f64,
    bytes_marked: f64,
    e: f64,
    /// Bytes per microsecond, and what it is of: bytes and microseconds.
    rate: f64,
    sample: (u64, u32),
    t_round: f64,
    round_marked: bool,
    skipping: bool,
    withheld: f64,
    /// The BDP that the flow started with was never made use of.
    unused: bool,
    /// Of this ACK; 0: it has none.
    ack_rtt: f64,
    /// Time since slow start, while that counts; then decreases by increases.
    young: Option<f64>,
    balance: f64,
    /// What the RTT was at the ceiling, in base RTTs / 16.
    at_ceiling_sixteenths: u64,
    /// An RTT of this round trip was hardly longer; one of the round trip before.
    undelayed: bool,
    was_undelayed: bool,
    /// The last RTT that was looked at was more than twice as long.
    queued: bool,
    /// Something was marked since the last loss; before it.
    telling: bool,
    had_told: bool,
    /// A comparison was closer than the fixed point resolves: from here on both are right.
    tie: bool,
}

impl Reference {
    fn bdp(&self) -> f64 {
        self.line_rate * self.rtt_base
    }

    fn ceiling(&self) -> f64 {
        self.bdp() * f64::from(self.params.max_cwnd_bdp) / 1024.0
    }

    fn times_the_ceiling(&self) -> f64 {
        match self.cwnd < self.ssthresh || self.rtt_base > 5_000.0 {
            true => 1.0,
            false => f64::from(self.params.max_cwnd_unfilled),
        }
    }

    /// How long the link takes for what an ACK covers.
    fn bundle_us(&self, ack: &Ack) -> u64 {
        ack.acked_bytes * 8 / u64::from(self.params.line_rate_mbps)
    }

    /// Whether the window, in whole bytes, is at its ceiling or above. This ACK found it at `before`.
    fn has_reached(&mut self, ceiling: f64, before: f64) -> bool {
        // Only who comes from below, but not by slow start that ends there, may be there a bit earlier or later.
        let is_there = before.min(self.cwnd) >= ceiling || self.cwnd == ceiling;
        ceiling > 0.0 && (is_there || !self.less(self.cwnd, ceiling, 1.0))
    }

    /// At the end of a round trip.
    fn note_rtt_at_ceiling(&mut self, ack: &Ack, before: f64) {
        let ceiling = self.ceiling();
        if self.times_the_ceiling() == 1.0 || !self.has_reached(ceiling, before) {
            return;
        }
        if self.less(ceiling * 9.0 / 8.0, self.cwnd, 2.0) {
            return;
        }
        let base_us = self.rtt_base as u64;
        let rtt_us = u64::from(ack.srtt_us).saturating_sub(self.bundle_us(ack));
        let sixteenths = (rtt_us * 16).div_ceil(base_us).clamp(16, 248);
        // 16 steps between powers of two.
        let step = sixteenths.ilog2() - 4;
        self.at_ceiling_sixteenths = sixteenths.next_multiple_of(1 << step);
    }

    /// What is delivered of the link, in whole 1/1024.
    fn part(&self) -> u64 {
        let (bytes, interval_us) = self.sample;
        let carried_bits = u64::from(interval_us) * u64::from(self.params.line_rate_mbps);
        match carried_bits {
            0 => 1024,
            _ => (bytes * 8 * 1024 / carried_bits).min(1024),
        }
    }

    fn qa_bytes(&self) -> f64 {
        if self.rate == 0.0 {
            return 0.0;
        }
        self.rate * 1.05 * self.rtt_base
    }

    /// With what a host's noise adds to the RTT.
    fn noisy_bdp(&self) -> f64 {
        let most = (4.0 * self.rtt_base).min(self.rtt_base + 50.0);
        self.line_rate * self.ack_rtt.min(most).max(self.rtt_base)
    }

    fn is_proportional(&self) -> bool {
        self.params.step_windows != 0 && self.rtt_base <= 5_000.0
    }

    /// Whether the ratio counts, and with it the lift, which may be a 32nd off.
    fn is_settled(&self) -> bool {
        self.is_proportional() && self.young.is_none()
    }

    /// What the increase is a part of, where C carries so much in an RTT.
    fn share(&self, bdp: f64) -> f64 {
        if !self.is_proportional() || self.cwnd < self.ssthresh || self.young.is_some() {
            return bdp;
        }
        let windows = f64::from(self.params.step_windows) / 1024.0;
        let lift = (2.0 * (self.balance - 1.0).abs() - 1.0).clamp(0.0, 1.0);
        // In steps of a 256th.
        let lift = (256.0 * lift).floor().min(255.0) / 256.0;
        (self.cwnd * windows * (1.0 + 8.0 * lift)).min(bdp)
    }

    fn span(&self) -> f64 {
        let rtt = self.rtt_base.log2().ceil().exp2();
        (16.0 * rtt).max(32_768.0)
    }

    fn end_balance(&mut self, elapsed: f64, grown: f64, regrowth: f64) {
        if !self.is_proportional() {
            return;
        }
        // Should the end of slow start be undone, it withholds anew.
        self.withheld = 0.0;
        if let Some(age) = &mut self.young {
            *age += elapsed;
            if *age >= self.span() {
                self.young = None;
                self.balance = 1.0;
            }
            return;
        }
        let kept = 1.0 - grown.min(self.span()) / self.span();
        self.balance = (self.balance * kept + regrowth / self.span()).clamp(0.0, 4.0);
    }

    fn alpha(&self) -> f64 {
        let bdp = match self.is_proportional() {
            true => self.noisy_bdp(),
            false => self.bdp(),
        };
        f64::from(self.params.ai_ppm) / 1e6 * self.share(bdp)
    }

    fn less(&mut self, a: f64, b: f64, resolution: f64) -> bool {
        self.tie |= (a - b).abs() <= resolution;
        a < b
    }

    fn increase(&mut self, acked: f64) {
        self.cwnd += self.alpha() * acked.min(self.cwnd) / self.cwnd;
    }

    fn lower_to(&mut self, cwnd: f64) {
        self.cwnd = self.cwnd.min(cwnd);
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }

    fn start_at_bdp(&mut self) {
        if self.params.start == START_BDP && self.ssthresh.is_infinite() {
            self.cwnd = self.bdp();
            self.ssthresh = self.cwnd;
            self.unused = true;
        }
    }

    /// A base RTT counts in its window and in the next.
    fn see_rtt(&mut self, rtt: f64, ack: &Ack) {
        let window = window_of(ack.now_us);
        if window != mem::replace(&mut self.window, window) && self.rtt_base.is_finite() {
            let before = self.rtt_base;
            self.rtt_base = mem::replace(&mut self.rtt_window, rtt).min(rtt);
            self.probe_rtt(rtt, before, ack);
        }
        self.rtt_window = self.rtt_window.min(rtt);
        self.rtt_base = self.rtt_base.min(rtt);
    }

    fn probe_rtt(&mut self, rtt: f64, before: f64, ack: &Ack) {
        let ceiling = self.ceiling();
        let kept = f64::from(self.params.probe_rtt) / 1024.0;
        let begins = self.cwnd < self.ssthresh && ack.cwnd_limited;
        if ceiling * kept == 0.0 || ack.in_recovery || begins {
            return;
        }
        let is_far = self.rtt_base > 5_000.0;
        let longer = |rtt: f64| rtt + (rtt / 8.0).floor();
        let is_delayed = rtt > longer(self.rtt_base);
        if self.rtt_base <= longer(before)
            && (!is_delayed || is_far && !self.has_reached(ceiling, self.cwnd))
        {
            return;
        }
        if ack.app_limited || !self.less(self.e, 1.0 / 1024.0, 1e-7) {
            return;
        }
        let kept = if is_far { 8.0 * kept } else { kept } * ceiling;
        if !self.less(kept, self.cwnd, 2.0) {
            return;
        }
        let mut target = self.ssthresh;
        if self.cwnd >= self.ssthresh {
            self.lower_to(ceiling);
            target = self.cwnd;
        }
        self.cwnd = self.cwnd.min(kept);
        self.ssthresh = target;
        (self.probing, self.skipping, self.unused) = (true, true, false);
        self.at_ceiling_sixteenths = 16;
        self.t_round = ack.now_us as f64;
    }

    fn on_ack(&mut self, ack: &Ack) {
        let (now, acked) = (ack.now_us as f64, ack.acked_bytes as f64);
        let marked = ack.marked_bytes as f64;
        if let Some(rtt) = ack.rtt_us {
            self.see_rtt(f64::from(rtt), ack);
        }
        self.ack_rtt = ack.rtt_us.map_or(0.0, f64::from);
        if self.rtt_base.is_infinite() {
            self.slow_start(ack, false);
            self.cwnd = self.cwnd.max(2.0 * self.mss);
            return;
        }
        self.start_at_bdp();

        // ONACK
        let before = self.cwnd;
        if self.cwnd < self.ssthresh {
            self.slow_start(ack, self.params.balanced_exit != 0);
        } else if ack.cwnd_limited {
            self.increase(acked - marked);
        }

        // ONQA
        let measured = ack.interval_us != 0 && !ack.app_limited;
        if measured {
            self.rate = ack.delivered_bytes as f64 / f64::from(ack.interval_us);
            self.sample = (ack.delivered_bytes, ack.interval_us);
        }
        self.round_marked |= ack.marked_bytes > 0;
        self.telling |= ack.marked_bytes > 0;
        if self.t_round == 0.0 {
            self.t_round = now;
        }
        if let Some(rtt) = ack.rtt_us
            && now - f64::from(rtt) >= self.t_round
        {
            self.t_round = now;
            self.withheld = 0.0;
            self.note_rtt_at_ceiling(ack, before);
            self.was_undelayed = mem::take(&mut self.undelayed);
            self.queued = false;
            let marked = mem::take(&mut self.round_marked);
            let rests = self.unused || ack.in_recovery;
            let least_e = f64::from(self.params.qa_least_e) / 1024.0;
            let is_e_enough = least_e == 0.0 || !self.less(self.e, least_e, 1e-6);
            let may_adapt = !rests && (marked || self.params.qa_needs_mark == 0) && is_e_enough;
            if self.skipping {
                (self.skipping, self.probing) = (false, false);
            } else if measured && may_adapt && self.cwnd >= self.ssthresh {
                let slack = f64::from(self.params.qa_slack_packets) * self.mss;
                let beta = f64::from(self.params.qa_beta) / 1024.0;
                let promised = (self.cwnd * beta - slack).max(0.0);
                let part = if self.is_settled() { 50.0 } else { 1e4 };
                if self.less(self.qa_bytes(), promised, 4.0 + promised / part) {
                    self.lower_to(self.qa_bytes() * f64::from(self.params.qa_keep) / 1024.0);
                    self.young = Some(0.0);
                    self.skipping = true;
                }
            }
            if self.unused {
                let in_flight = f64::from(ack.prior_in_flight) * self.mss;
                let expected = self.cwnd * f64::from(self.params.qa_beta) / 1024.0;
                self.unused = self.less(in_flight, expected, 4.0);
            }
        }

        // ONEPOCH
        self.bytes_acked += acked;
        self.bytes_marked += marked;
        if let Some(rtt) = ack.rtt_us {
            let rtt = f64::from(rtt);
            if self.t_epoch_ns == 0.0 {
                self.t_epoch_ns = now * 1e3;
            }
            let sent_ns = (now - rtt) * 1e3;
            if sent_ns >= self.t_epoch_ns {
                let cwnd = self.cwnd;
                // T_epoch counts whole nanoseconds.
                let period_ns = (rtt * 1e3 * self.intra_rtt / self.rtt_base).floor();
                let ended_ns = self.t_epoch_ns;
                self.t_epoch_ns += period_ns;
                if self.t_epoch_ns <= sent_ns {
                    self.t_epoch_ns = sent_ns + period_ns;
                }
                let elapsed_ns = self.t_epoch_ns - ended_ns;
                let passed_ns = elapsed_ns.min(rtt * 1e3);
                let regrowth = self.on_epoch(rtt, passed_ns / period_ns);
                if self.cwnd >= self.ssthresh {
                    let of_noise = self.noisy_bdp() / self.line_rate / cwnd;
                    let grown = of_noise * (self.bytes_acked - self.bytes_marked);
                    let regrowth = match regrowth {
                        Some(us) => us,
                        // It added twice.
                        None => -(of_noise * self.bytes_acked).min(self.span()),
                    };
                    let aged_ns = elapsed_ns.min(period_ns.max(rtt * 1e3));
                    self.end_balance(aged_ns / 1e3, grown, regrowth);
                }
                self.bytes_acked = 0.0;
                self.bytes_marked = 0.0;
            }
        }

        // Bounds.
        if self.params.max_cwnd_bdp != 0 {
            let ceiling = self.ceiling();
            let times = self.times_the_ceiling();
            if self.has_reached(ceiling, before) {
                let is_marked = !self.less(self.e, 1.0 / 1024.0, 1e-7);
                if let (false, false, Some(rtt_us)) = (is_marked, self.undelayed, ack.rtt_us) {
                    let rtt_us = u64::from(rtt_us).saturating_sub(self.bundle_us(ack));
                    let at_ceiling_us = (self.rtt_base as u64 * self.at_ceiling_sixteenths) >> 4;
                    let most_us = at_ceiling_us + (at_ceiling_us >> 3);
                    self.undelayed = rtt_us <= most_us;
                    self.queued = rtt_us > 2 * at_ceiling_us;
                }
                if times > 1.0 && is_marked {
                    self.lower_to(before.max(ceiling));
                } else if times > 1.0 {
                    let part = self.part();
                    let squared = (part * part) >> 10;
                    let fourth = ((squared * squared) >> 10) as f64 / 1024.0;
                    let most = ceiling * (1.0 + (times - 1.0) * fourth);
                    let sees_queue = !self.undelayed && !self.was_undelayed;
                    if sees_queue || part >= 928 || self.less(most, self.cwnd, times + 1.0) {
                        let added = (self.cwnd - before).max(0.0);
                        let times = if self.queued { 16.0 } else { 1.0 };
                        self.lower_to((before - times * added).max(ceiling));
                    }
                }
                self.lower_to(ceiling * times);
            }
        }
        self.cwnd = self.cwnd.max(2.0 * self.mss);
    }

    /// How long whole increases take to add what it took; None: it added once more.
    fn on_epoch(&mut self, rtt: f64, passed: f64) -> Option<f64> {
        if self.cwnd < self.ssthresh {
            // Whatever follows slow start is young.
            self.young = Some(0.0);
        }
        if self.bytes_acked == 0.0 {
            return Some(0.0);
        }
        let before = self.e;
        let g = f64::from(self.params.ewma) / 1024.0;
        self.e = (1.0 - g) * self.e + g * self.bytes_marked / self.bytes_acked;
        if self.bytes_marked == 0.0 || self.skipping {
            return Some(0.0);
        }
        let k = match self.params.k_bytes {
            // K counts whole bytes.
            0 => (self.line_rate * self.intra_rtt * f64::from(self.params.k_intra_bdp) / 1024.0)
                .floor(),
            k => f64::from(k),
        };
        let mut md = self.e * (4.0 * k / (k + self.bdp())).min(1.0);
        let tolerance = 1.0 + f64::from(self.params.delay_tolerance_ppm) / 1e6;
        let undelayed = self.rtt_base * tolerance + f64::from(self.params.delay_floor_us);
        if rtt <= undelayed + 1e-6 {
            md *= f64::from(self.params.md_gentle) / 1024.0;
        }
        let times = match self.params.md_elapsed {
            0 => 1.0,
            _ => passed.max(1.0),
        };
        let all = |md: f64| (md * times).min(0.5).max(md);
        let whole = all(md);
        if self.is_proportional() {
            md *= self.share(self.noisy_bdp()) / self.noisy_bdp();
        }
        md = all(md);
        if self.cwnd < self.ssthresh {
            self.withhold(md);
            return Some(0.0);
        }
        if self.params.skip_md_when_falling != 0
            && before != 0.0
            && self.less(self.e, before, 1e-7)
            && self.less(self.e, 0.9, 1e-7)
        {
            self.increase(self.bytes_acked);
            return None;
        }
        let taken = self.cwnd * whole;
        self.cwnd *= 1.0 - md;
        self.ssthresh = self.ssthresh.min(self.cwnd);
        let slope = f64::from(self.params.ai_ppm) / 1e6 * self.line_rate;
        Some(taken / slope.max(1e-9))
    }

    fn slow_start(&mut self, ack: &Ack, judged: bool) {
        if ack.marked_bytes > 0 && !judged {
            self.ssthresh = self.ssthresh.min(self.cwnd);
        } else if ack.cwnd_limited && (ack.in_recovery || !self.probing) {
            let unmarked = ack.acked_bytes - ack.marked_bytes;
            self.cwnd = (self.cwnd + unmarked as f64).min(self.ssthresh);
        }
    }

    fn withhold(&mut self, md: f64) {
        self.withheld += self.cwnd * md;
        // The fixed point loses less than a byte per epoch.
        if !self.less(self.withheld, self.alpha(), 50.0) {
            // Nothing was measured yet.
            self.tie |= self.qa_bytes() == 0.0;
            self.lower_to(self.qa_bytes());
        }
    }

    fn on_loss(&mut self, now_us: u64) {
        if self.skipping {
            return;
        }
        let adapted = self.qa_bytes() * f64::from(self.params.qa_keep) / 1024.0;
        self.lower_to(adapted.max(self.cwnd / 2.0).max(2.0 * self.mss));
        // Should the loss be undone, slow start withholds anew.
        self.withheld = 0.0;
        if !self.telling {
            self.young = Some(0.0);
        }
        self.had_told = mem::take(&mut self.telling);
        self.skipping = true;
        self.unused = false;
        self.t_round = now_us as f64;
    }

    fn on_timeout(&mut self, now_us: u64, in_flight_bytes: u64) {
        self.on_loss(now_us);
        let target = if self.cwnd < self.ssthresh {
            self.ssthresh
        } else {
            self.cwnd
        };
        self.lower_to(in_flight_bytes as f64 + self.mss);
        self.ssthresh = target;
    }

    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        self.cwnd = self.cwnd.max(prior_bytes as f64);
        let ssthresh = match ssthresh_bytes {
            u64::MAX => f64::INFINITY,
            bytes => bytes as f64,
        };
        self.ssthresh = self.ssthresh.min(self.cwnd).max(ssthresh);
        self.telling |= mem::take(&mut self.had_told);
        (self.skipping, self.probing) = (false, false);
    }
}

/// Windows of the base RTT have 10 s, in whole ticks.
fn window_of(now_us: u64) -> u64 {
    now_us / 1_024 / 9_765
}

#[test]
fn the_fixed_point_follows_the_reference() {
    let ties = for_each_seed(|seed| u64::from(!follows_reference(seed)));
    assert!(ties < SEQUENCES / 50, "{ties} sequences without a verdict");
}

/// Whether the sequence could be compared to its end.
fn follows_reference(seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let params = random_params(&mut rng);
    let base_us = rng.pick(&[1, 14, 50, 200, 1_792, 10_000, 100_000, 300_000]);
    let mss_bytes = rng.pick(&[536, 1_448, 4_032, 8_948]);
    let mss = u64::from(mss_bytes);
    let mut now_us = rng.within(1, 1 << 40);
    if rng.percent(20) {
        // A window of the base RTT ends soon.
        now_us = (window_of(now_us) + 1) * 1_024 * 9_765 - rng.within(0, 10 * u64::from(base_us));
    }
    let cwnd_bytes = mss * rng.within(2, 1_000);
    let known_rtt = Some(base_us).filter(|_| rng.percent(50));

    let mut flow = Flow::new(&params, now_us, cwnd_bytes, known_rtt);
    let mut reference = Reference {
        line_rate: f64::from(params.line_rate_mbps) / 8.0,
        intra_rtt: f64::from(params.intra_rtt_us),
        mss: f64::from(mss_bytes),
        params,
        cwnd: cwnd_bytes as f64,
        ssthresh: f64::INFINITY,
        rtt_base: known_rtt.map_or(f64::INFINITY, f64::from),
        rtt_window: known_rtt.map_or(f64::INFINITY, f64::from),
        window: window_of(now_us),
        probing: false,
        t_epoch_ns: 0.0,
        bytes_acked: 0.0,
        bytes_marked: 0.0,
        e: 0.0,
        rate: 0.0,
        sample: (0, 0),
        t_round: 0.0,
        round_marked: false,
        skipping: false,
        withheld: 0.0,
        unused: false,
        ack_rtt: 0.0,
        young: Some(0.0),
        balance: 1.0,
        at_ceiling_sixteenths: 16,
        undelayed: false,
        was_undelayed: false,
        queued: false,
        telling: false,
        had_told: false,
        tie: false,
    };
    if known_rtt.is_some() {
        reference.start_at_bdp();
    }
    let marked_percent = rng.pick(&[5, 30, 90]);
    let acks_per_rtt = rng.pick(&[1, 4, 16]);
    // Few sequences are long enough to outlive their youth.
    if rng.percent(50) {
        let ratio = rng.within(0, 1 << 23) as u32;
        flow.balance = Balance::of_ratio(ratio);
        reference.balance = flow.balance.ratio().unwrap();
        reference.young = None;
        if rng.percent(70) {
            flow.window.leave_slow_start();
            reference.ssthresh = reference.ssthresh.min(reference.cwnd);
        }
    }
    for step in 0..rng.within(15, 35) {
        now_us += rng.within(0, u64::from(base_us) / acks_per_rtt + 1);
        let prior_bytes = flow.cwnd_bytes();
        match rng.within(0, 99) {
            0 | 1 => {
                flow.on_loss(&params, now_us, mss_bytes);
                reference.on_loss(now_us);
            }
            2 => {
                let in_flight_bytes = mss * rng.within(0, 3);
                flow.on_timeout(&params, now_us, in_flight_bytes, mss_bytes);
                reference.on_timeout(now_us, in_flight_bytes);
            }
            3 => {
                let prior_bytes = prior_bytes + mss * rng.within(0, 20);
                let ssthresh_bytes = rng.pick(&[0, prior_bytes / 2, 2 * prior_bytes, u64::MAX]);
                flow.undo(prior_bytes, ssthresh_bytes);
                reference.undo(prior_bytes, ssthresh_bytes);
            }
            4 => {
                now_us += 100_000;
                flow.on_idle_restart(now_us);
                if reference.t_epoch_ns != 0.0 {
                    let now = now_us as f64;
                    reference.t_epoch_ns = reference.t_epoch_ns.max(now * 1e3);
                    reference.t_round = reference.t_round.max(now);
                }
            }
            _ => {
                let ack = rng.ack(now_us, base_us, mss_bytes, prior_bytes, marked_percent);
                flow.on_ack(&params, &ack);
                reference.on_ack(&ack);
            }
        }
        if reference.tie {
            return false;
        }
        let (fixed, float) = (flow.cwnd_bytes() as f64, reference.cwnd);
        let is_settled = reference.is_settled();
        let part = if is_settled { 50.0 } else { 1_000.0 };
        let tolerance = f64::from(mss_bytes).max(float / part);
        assert!(
            (fixed - float).abs() <= tolerance,
            "seed {seed}, step {step}: {fixed} is not {float}"
        );
        let float = is_settled.then_some(reference.balance);
        if let (Some(fixed), Some(float), false) = (
            flow.balance.ratio(),
            float,
            reference.rtt_base.is_infinite(),
        ) {
            assert!(
                (fixed - float).abs() <= 0.02,
                "seed {seed}, step {step}: ratio {fixed} is not {float}"
            );
        }
    }
    true
}

fn random_params(rng: &mut Rng) -> Params {
    let profile = rng.pick(&Profile::ALL);
    let mut params = Params::of(profile);
    params.line_rate_mbps = rng.pick(&[1_000, 10_000, 100_000, 400_000]);
    params.intra_rtt_us = INTRA_US;
    if rng.percent(50) {
        params.intra_rtt_us = rng.within(1, 500) as u32;
        params.ai_ppm = rng.within(0, 50_000) as u32;
        params.step_windows = rng.pick(&[0, 1_024, 2_560, 20_000]);
        params.k_bytes = rng.pick(&[0, 10_000, 1_000_000]);
        params.k_intra_bdp = rng.within(1, 1_024) as u32;
        params.ewma = rng.within(1, 1_024) as u32;
        params.md_gentle = rng.within(0, 1_024) as u32;
        params.delay_tolerance_ppm = rng.within(0, 200_000) as u32;
        params.delay_floor_us = rng.within(0, 10) as u32;
        params.md_elapsed = rng.within(0, 1) as u32;
        params.qa_beta = rng.within(0, 1_024) as u32;
        params.qa_needs_mark = rng.within(0, 1) as u32;
        params.qa_least_e = rng.pick(&[0, 256, 1_024]);
        params.balanced_exit = rng.within(0, 1) as u32;
        params.qa_slack_packets = rng.within(0, 4) as u32;
        params.max_cwnd_bdp = rng.pick(&[0, 512, 1_024, 2_048]);
        params.max_cwnd_unfilled = rng.pick(&[1, 2, 4]);
        params.probe_rtt = rng.pick(&[0, 16, 512]);
    }
    params
}

#[test]
fn a_socket_shows_what_the_rules_make_of_it() {
    let params = linux();
    let shown = Shown {
        marked_fraction: FRACTION_ONE / 4,
        period_marked: 1 << 14,
        periods: 12_345,
        count: 2,
        base_rtt_us: Some(1_792),
        flags: published::MARKED,
        params: Some(&params),
        ..Shown::default()
    };
    let of = |key| state(&ENTRY, &shown, key).unwrap();
    assert_eq!((of("base_rtt_us"), of("intra_rtt_us")), (1_792.0, 14.0));
    assert_eq!((of("e"), of("epoch_marked")), (0.25, 0.5));
    assert_eq!((of("epochs"), of("quick_adapts")), (12_345.0, 2.0));
    assert_eq!((of("round_marked"), of("reduced")), (1.0, 0.0));
    // K = 200 / 1024 of 100 Gbit/s x 14 us, BDP = 100 Gbit/s x 1,792 us: 4 x 2.734 / (2.734 + 1792).
    assert!((of("md_scale") - 10.937_5 / 1_794.734).abs() < 1e-5);
    // 4,000 ppm of that BDP of 22.4 MB.
    assert!((of("increase_bytes_per_rtt") - 89_600.0).abs() < 0.1);
    let unknown = Shown::default();
    for key in ["base_rtt_us", "md_scale", "increase_bytes_per_rtt"] {
        assert_eq!(state(&ENTRY, &unknown, key), None, "{key}");
    }
}

// What the host finds out.

/// Parameters of a host, and what it knows besides.
struct Host {
    params: Params,
    way: Way,
    shortest: std::cell::Cell<BaseRtt>,
}

impl Host {
    /// With nothing set.
    fn new(way: Way) -> Self {
        Host {
            params: Params::of(Profile::Linux),
            way,
            shortest: std::cell::Cell::default(),
        }
    }
}

impl Values for Host {
    fn value(&self, row: usize) -> u32 {
        self.params.value(row)
    }

    fn way(&self) -> Way {
        self.way
    }

    fn shortest_rtt_us(&self) -> u32 {
        self.shortest.get().words()[0]
    }

    fn note_base_rtt(&self, now_us: u64, rtt_us: u32) {
        let mut shortest = self.shortest.get();
        host::note_base_rtt(&mut shortest, now_us, rtt_us);
        self.shortest.set(shortest);
    }
}

#[test]
fn with_nothing_set_a_flow_does_what_it_does_with_the_right_numbers() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut by_hand = linux();
        by_hand.line_rate_mbps = rng.pick(&[1_000, 10_000, 25_000, 100_000, 400_000]);
        let host = Host::new(Way::Told(by_hand.line_rate_mbps));
        let base_us = rng.pick(&[14, 50, 1_792, 5_000]);
        let mut now_us = rng.within(1, 1 << 40);
        // Another flow of the host stays inside the datacenter.
        Flow::new(&host, now_us, 40_000, Some(by_hand.intra_rtt_us));

        let mut flow = Flow::new(&by_hand, now_us, 40_000, Some(base_us));
        let mut found = Flow::new(&host, now_us, 40_000, Some(base_us));
        flow.open(&by_hand);
        found.open(&host);
        for _ in 0..50 {
            now_us += rng.within(0, u64::from(base_us) / 2 + 1);
            let mut ack = rng.ack(now_us, base_us, MSS, flow.cwnd_bytes(), 20);
            // No faster than the link, and no shorter than the path.
            ack.delivered_bytes = ack
                .delivered_bytes
                .min(u64::from(by_hand.line_rate_mbps) * u64::from(ack.interval_us) / 8);
            ack.rtt_us = ack.rtt_us.map(|rtt_us| rtt_us.max(base_us));
            assert_eq!(flow.on_ack(&by_hand, &ack), found.on_ack(&host, &ack));
        }
        0
    });
}

#[test]
fn what_is_set_by_hand_wins_over_the_device() {
    let mut host = Host::new(Way::Told(10_000));
    host.params = linux();
    let path = |host: &Host| {
        Flow::new(host, 1, 40_000, Some(INTER_US))
            .path(host, host.line_rate_mbps())
            .unwrap()
    };
    assert_eq!(path(&host).bdp_bytes, INTER_BDP);
    host.params.line_rate_mbps = 0;
    assert_eq!(path(&host).bdp_bytes, INTER_BDP / 10);
}

#[test]
fn where_no_device_tells_a_flow_takes_what_it_is_delivered() {
    // Unknown: who sets IP_TOS takes the route from a socket until it sends again.
    for way in [Way::Silent, Way::Unknown] {
        takes_what_it_is_delivered(&Host::new(way));
    }
}

fn takes_what_it_is_delivered(host: &Host) {
    let mut flow = Flow::new(host, 1, 40_000, Some(INTER_US));
    flow.open(host);
    assert_eq!(
        flow.cwnd_bytes(),
        40_000,
        "no part of a BDP that nobody knows"
    );
    let mut now_us = 1_000;
    for _ in 0..12 {
        let before_bytes = flow.cwnd_bytes();
        let ack = Ack {
            now_us,
            rtt_us: Some(INTER_US),
            srtt_us: INTER_US,
            acked_bytes: before_bytes,
            delivered_bytes: before_bytes,
            interval_us: INTER_US,
            cwnd_limited: true,
            mss_bytes: MSS,
            ..Ack::default()
        };
        flow.on_ack(host, &ack).unwrap();
        assert_eq!(
            flow.cwnd_bytes(),
            2 * before_bytes,
            "slow start has no ceiling"
        );
        now_us += u64::from(INTER_US);
    }
    // The last round trip that has ended delivered half of what the window is now.
    let path = flow.path(host, host.line_rate_mbps()).unwrap();
    let seen_bytes = path.bdp_bytes;
    assert!(seen_bytes >= flow.cwnd_bytes() / 2 - 1_000, "{seen_bytes}");
    assert!(!path.line_rate.is_told(), "so there is no ceiling either");
    // A mark takes its part all the same.
    assert!(host.decrease_gain(&path) > 0);
}

#[test]
fn where_no_device_tells_a_flow_recovers_from_an_early_loss() {
    const BDP: u64 = 12_500_000;
    const REGION: (u64, u32) = (4, 5_000);
    // 0.4 % of 100 Mbit/s in each round trip, and then of what is seen.
    let mut usual = 10 * u64::from(MSS);
    for _ in 0..800 {
        usual += usual.max(bdp_bytes(100, 5_000)) / 250;
    }
    for way in [Way::Silent, Way::Unknown] {
        let host = Host::new(way);
        let window = after_an_early_loss::<Flow>(&host, REGION, false, 0, 1);
        assert!(window > 3 * usual, "{window}, {usual}");
        // Marks say that there is no more, and so does a queue.
        let marked = after_an_early_loss::<Flow>(&host, REGION, true, 0, 1);
        assert!(marked.abs_diff(usual) < usual / 50, "{marked}, {usual}");
        let delayed = after_an_early_loss::<Flow>(&host, REGION, false, 6_000, u64::MAX);
        assert!(delayed.abs_diff(usual) < usual / 20, "{delayed}, {usual}");
        // Jitter does not delay all of two round trips.
        let jitter = after_an_early_loss::<Flow>(&host, REGION, false, 6_000, 2);
        assert!(jitter > 3 * usual, "{jitter}, {usual}");
    }
    // Who has set C goes on as before: 0.4 % of it per round trip.
    let mut by_hand = Host::new(Way::Told(100_000));
    by_hand.params.line_rate_mbps = 1_000;
    let set = after_an_early_loss::<Flow>(&by_hand, (17, 100_000), true, 0, 1);
    let expected = 10 * u64::from(MSS) + 170 * BDP / 250;
    assert!(set.abs_diff(expected) < BDP / 50, "{set}, {expected}");
}

#[test]
fn out_of_the_region_the_increase_after_a_loss_follows_from_the_seconds_since() {
    const FAR: (u64, u32) = (17, 100_000);
    // The sum over 170 round trips of so many packets, at most what C allows.
    let sum = |packets: fn(u32) -> u64, most_bytes: u64| -> u64 {
        let step = |round: u64| {
            let calm_s = ((1_000_000 + round * 100_000) >> 20).saturating_sub(1) as u32;
            (packets(calm_s) * u64::from(MSS)).min(most_bytes)
        };
        10 * u64::from(MSS) + (1..=170).map(step).sum::<u64>()
    };
    let linear = |calm_s| u64::from(calm_s) + 1;
    let double = |calm_s: u32| 1_u64 << calm_s.min(12);
    for (way, most_bytes) in [
        (Way::Silent, u64::MAX),
        (Way::Unknown, u64::MAX),
        // 0.4 % of the BDP.
        (Way::Told(10_000), 500_000),
        (Way::Told(100), 5_000),
    ] {
        let host = Host::new(way);
        let unmarked = after_an_early_loss::<Flow>(&host, FAR, false, 0, 1);
        let marked = after_an_early_loss::<Flow>(&host, FAR, true, 0, 1);
        if !matches!(way, Way::Told(_)) {
            // 1 Gbit/s: cubic needs 17 s, the cube root of 3,125 packets / 0.4.
            assert!(unmarked >= bdp_bytes(1_000, FAR.1), "{way:?}: {unmarked}");
        }
        for (window, packets) in [
            (unmarked, double as fn(u32) -> u64),
            (marked, linear as fn(u32) -> u64),
        ] {
            // A device that says little bounds the window, too.
            let expected = sum(packets, most_bytes).min(match way {
                Way::Told(mbps) => bdp_bytes(mbps, FAR.1) * 5 / 4,
                _ => u64::MAX,
            });
            assert!(
                window.abs_diff(expected) < expected / 50,
                "{way:?}: {window}, {expected}"
            );
        }
    }
}

#[test]
fn out_of_the_region_a_flow_without_a_loss_goes_by_its_device() {
    let host = Host::new(Way::Told(10_000));
    let mut flow = Flow::new(&host, 1, 40_000, Some(100_000));
    flow.window.leave_slow_start();
    let ack = Ack {
        now_us: 100_001,
        rtt_us: Some(100_000),
        acked_bytes: 40_000,
        cwnd_limited: true,
        mss_bytes: MSS,
        ..Ack::default()
    };
    flow.on_ack(&host, &ack).unwrap();
    assert_eq!(flow.cwnd_bytes(), 40_000 + 500_000);
}

#[test]
fn out_of_the_region_marks_bound_the_increase_of_a_flow_that_has_lost() {
    const SECOND: u64 = 1 << 20;
    let host = Host::new(Way::Told(10_000));
    let mut flow = Flow::new(&host, SECOND, 40_000, Some(100_000));
    flow.on_loss(&host, SECOND, MSS);
    // In a round trip, so many seconds after the loss.
    let added_bytes = |flow: &Flow, seconds: u64| {
        let path = flow.path(&host, host.line_rate_mbps()).unwrap();
        flow.step_scaled(&host, &path, None, (seconds + 2) * SECOND, MSS) >> BYTE_BITS
    };
    assert_eq!(added_bytes(&flow, 0), u64::from(MSS));
    flow.signs.note(Signs::TELLING);
    assert_eq!(added_bytes(&flow, 30), 31 * u64::from(MSS));
    assert_eq!(added_bytes(&flow, 31), 32 * u64::from(MSS));
    assert_eq!(added_bytes(&flow, 60), 32 * u64::from(MSS));
    // Where nothing is marked, it doubles.
    flow.signs.forget(Signs::TELLING);
    assert_eq!(added_bytes(&flow, 3), 8 * u64::from(MSS));
}

#[test]
fn a_loss_in_a_round_trip_that_was_reduced_is_one() {
    let host = Host::new(Way::Told(10_000));
    let mut flow = Flow::new(&host, 1, 400_000, Some(100_000));
    flow.end_round_reduced(1);
    let window = flow.cwnd_bytes();
    assert!(!flow.signs.has(Signs::LOST));
    flow.on_loss(&host, 1, MSS);
    assert!(flow.signs.has(Signs::LOST));
    assert_eq!(flow.cwnd_bytes(), window);
}

#[test]
fn a_loss_that_was_none_leaves_no_sign() {
    let host = Host::new(Way::Told(10_000));
    for had_told in [false, true] {
        let mut flow = Flow::new(&host, 1, 400_000, Some(100_000));
        if had_told {
            flow.signs.note(Signs::TELLING);
        }
        let before = flow.signs;
        flow.on_loss(&host, 1, MSS);
        assert!(flow.signs.has(Signs::LOST) && !flow.signs.has(Signs::TELLING));
        flow.undo(400_000, 400_000);
        assert_eq!(flow.signs, before);
        // The second one goes back to the first.
        flow.on_loss(&host, 1, MSS);
        flow.end_reduction();
        flow.on_loss(&host, 300_001, MSS);
        flow.undo(400_000, 400_000);
        assert!(flow.signs.has(Signs::LOST));
    }
}

#[test]
fn k_is_a_byte_at_least() {
    let mut host = Host::new(Way::Told(1));
    host.params.intra_rtt_us = 14;
    let path = host.path(100_000, 1, LineRate::told(1));
    assert!(host.decrease_gain(&path) > 0);
}

#[test]
fn out_of_the_region_no_flow_begins_with_a_part_of_the_devices_bdp() {
    let begins_with = |rtt_us, by_hand_mbps| {
        let mut host = Host::new(Way::Told(10_000));
        host.params.line_rate_mbps = by_hand_mbps;
        let mut flow = Flow::new(&host, 1, 40_000, Some(rtt_us));
        flow.open(&host);
        flow.cwnd_bytes()
    };
    assert_eq!(begins_with(5_000, 0), bdp_bytes(10_000, 5_000) / 32);
    assert_eq!(begins_with(5_001, 0), 40_000);
    assert_eq!(
        begins_with(100_000, 1_000),
        bdp_bytes(1_000, 100_000) / 32,
        "who sets C knows it"
    );
}

/// Somebody sets a parameter, from 0, after it was read so many times.
struct Turned<'a> {
    host: &'a Host,
    row: usize,
    reads_of_0: std::cell::Cell<u32>,
}

impl Values for Turned<'_> {
    fn value(&self, row: usize) -> u32 {
        match self.reads_of_0.get() {
            n if row == self.row && n > 0 => {
                self.reads_of_0.set(n - 1);
                0
            }
            _ => self.host.value(row),
        }
    }

    fn way(&self) -> Way {
        self.host.way()
    }
}

#[test]
fn a_parameter_that_is_set_meanwhile_takes_no_window_away() {
    // What a flow on a silent device makes of an ACK in slow start, when that row is set after that many reads.
    let after = |row: Row, way: Way, reads| {
        let mut host = Host::new(way);
        host.params.max_cwnd_bdp = 1_024;
        host.params.line_rate_mbps = 100_000 * u32::from(way == Way::Silent);
        let host = Turned {
            host: &host,
            row: row as usize,
            reads_of_0: std::cell::Cell::new(u32::MAX),
        };
        let mut flow = Flow::new(&host, 1, 40_000, Some(INTER_US));
        host.reads_of_0.set(reads);
        let ack = Ack {
            now_us: 2_000,
            rtt_us: Some(INTER_US),
            acked_bytes: u64::from(MSS),
            cwnd_limited: true,
            mss_bytes: MSS,
            ..Ack::default()
        };
        flow.on_ack(&host, &ack);
        (flow.cwnd_bytes(), flow.window.in_first_slow_start())
    };
    for reads in 0..4 {
        for (row, way) in [
            (Row::max_cwnd_bdp, Way::Told(100_000)),
            (Row::line_rate_mbps, Way::Silent),
        ] {
            let grown = (40_000 + u64::from(MSS), true);
            assert_eq!(after(row, way, reads), grown, "{reads}");
        }
    }
}

#[test]
fn the_host_learns_its_datacenter_but_not_from_itself() {
    let host = Host::new(Way::Told(100_000));
    Flow::new(&host, 1, 40_000, Some(INTER_US));
    assert_eq!(host.shortest_rtt_us(), 500, "no datacenter is longer");
    let mut flow = Flow::new(&host, 1, 40_000, None);
    let ack = Ack {
        now_us: 100,
        rtt_us: Some(INTRA_US),
        mss_bytes: MSS,
        ..Ack::default()
    };
    flow.on_ack(&host, &ack);
    assert_eq!(host.shortest_rtt_us(), INTRA_US);
    // A flow without a route may be one of the host to itself.
    for way in [Way::Loopback, Way::Unknown] {
        let host = Host::new(way);
        Flow::new(&host, 1, 40_000, Some(INTRA_US));
        assert_eq!(host.shortest_rtt_us(), 0);
    }
}
