// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::algo::entry::Shown;
use crate::algo::fixed::{BYTE_ONE, US_PER_S};
use crate::algo::host::EgressDev;
use crate::algo::support::{
    Rng, SEQUENCES, after_an_early_loss, any_calls, for_each_seed, on_timeout, state,
    watched_and_unwatched_are_one,
};

const MSS: u32 = 1_500;
/// RTTs of the paper's testbed; the BDP is 25 and 1250 kB.
const INTRA_US: u32 = 200;
const INTER_US: u32 = 10_000;
/// Delay of a queue of K, 75 kB.
const QUEUE_US: u32 = 600;

fn paper() -> Params {
    Params::of(Profile::Paper)
}

/// Returns a path with C from `line_rate_mbps`.
fn path(params: &Params, base_rtt_us: u32, srtt_us: u32) -> Path {
    Path {
        rate_mbps: params.line_rate_mbps,
        base_rtt_us,
        srtt_us,
        mss_bytes: MSS,
    }
}

/// A flow past slow start whose base RTT is known and whose alpha is one half.
struct Sim {
    params: Params,
    flow: Flow,
    now_us: u64,
    rtt_us: u32,
}

impl Sim {
    fn new(rtt_us: u32, cwnd_bytes: u64) -> Self {
        let now_us = 1_000_000;
        let mut flow = Flow::new(&paper(), now_us, cwnd_bytes, Some(rtt_us));
        flow.window.leave_slow_start();
        flow.alpha = FRACTION_ONE / 2;
        Sim {
            params: paper(),
            flow,
            now_us,
            rtt_us,
        }
    }

    fn ack(&mut self, after_us: u64, acked_bytes: u64, marked_bytes: u64) -> Ack {
        self.now_us += after_us;
        Ack {
            now_us: self.now_us,
            rtt_us: Some(self.rtt_us),
            srtt_us: self.rtt_us,
            acked_bytes,
            marked_bytes,
            cwnd_limited: true,
            mss_bytes: MSS,
            ..Ack::default()
        }
    }

    fn acked(&mut self, after_us: u64, acked_bytes: u64, marked_bytes: u64) -> Output {
        let ack = self.ack(after_us, acked_bytes, marked_bytes);
        self.flow.on_ack(&self.params, &ack).unwrap()
    }

    /// Delivers a whole RTT in one ACK.
    fn round(&mut self, acked_bytes: u64, marked_bytes: u64) {
        self.acked(u64::from(self.rtt_us), acked_bytes, marked_bytes);
    }
}

// Lines 1 to 3: the state of the transport.

#[test]
fn alpha_starts_at_one_and_follows_the_marked_fraction_per_rtt() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.flow.alpha = Flow::new(&paper(), 0, 1, None).alpha;
    assert_eq!(sim.flow.alpha, FRACTION_ONE);
    sim.acked(1, 100_000, 0);
    for _ in 0..9 {
        sim.acked(1, 100_000, 100_000);
        assert_eq!(sim.flow.alpha, FRACTION_ONE);
    }
    sim.round(0, 0);
    let expected = 15.0 / 16.0 + 0.9 / 16.0;
    let alpha = f64::from(sim.flow.alpha) / f64::from(FRACTION_ONE);
    assert!((alpha - expected).abs() < 1e-6, "{alpha}");
}

#[test]
fn the_wan_is_congested_if_the_least_rtt_of_a_round_exceeds_base_plus_t() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.acked(1, 1_500, 0);
    sim.rtt_us = INTER_US + 5_001;
    sim.round(1_500, 0);
    assert!(!sim.flow.wan_congested.is_set(), "the first RTT was short");
    sim.round(1_500, 0);
    assert!(sim.flow.wan_congested.is_set());
    sim.rtt_us = INTER_US + 5_000;
    sim.round(1_500, 0);
    assert!(!sim.flow.wan_congested.is_set());
}

// The event of a round.

#[test]
fn round_event_has_the_counts_of_its_round() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    let events_of = |sim: &mut Sim, after_us, acked_bytes, marked_bytes| {
        let mut events = Vec::new();
        let ack = sim.ack(after_us, acked_bytes, marked_bytes);
        sim.flow.on_ack_watched(&sim.params, &ack, &mut events);
        events
    };
    assert!(
        events_of(&mut sim, 1, 3_000, 0).is_empty(),
        "the first round begins"
    );
    let before_bytes = sim.flow.cwnd_bytes();

    sim.rtt_us = INTER_US + 100;
    let events = events_of(&mut sim, u64::from(INTER_US) + 100, 3_000, 1_500);
    let [round] = events[..] else {
        panic!("{events:?}")
    };
    let seen = round.flow.published();
    assert_eq!((seen.acked_bytes, seen.marked_bytes), (6_000, 1_500));
    assert_eq!(round.flow.round_min_rtt_us, INTER_US);
    assert_eq!(seen.base_rtt_us, INTER_US);
    assert_eq!(
        round.flow.cwnd_bytes(),
        before_bytes,
        "its mark takes its part afterwards"
    );
    assert!(sim.flow.cwnd_bytes() < before_bytes);
    assert_eq!(seen.marked_fraction, sim.flow.alpha);
    let states = |round: &Round| (round.flow.wan_congested.is_set(), round.reduced);
    assert_eq!(states(&round), (false, false));
    let f = 4.0 * 75_000.0 / (1_250_000.0 + 12_500.0);
    let cut = f64::from(round.dcn_cut) / f64::from(FRACTION_ONE);
    assert!((cut - f * f64::from(sim.flow.alpha) / f64::from(FRACTION_ONE)).abs() < 1e-3);
    // H x C x RTT = 1.212 packets.
    assert!((1_810..=1_820).contains(&round.increase_bytes), "{round:?}");

    // The reduction belongs to the round that it begins, and the WAN's state to the round of its
    // RTTs.
    sim.rtt_us = INTER_US + 5_001;
    let after_us = u64::from(sim.rtt_us);
    let events = events_of(&mut sim, after_us, 1_500, 0);
    assert_eq!(states(&events[0]), (true, true));
    sim.rtt_us = INTER_US;
    let after_us = u64::from(sim.rtt_us);
    let events = events_of(&mut sim, after_us, 1_500, 0);
    assert_eq!(states(&events[0]), (false, true));
    let events = events_of(&mut sim, after_us, 1_500, 0);
    assert_eq!(states(&events[0]), (false, false));
}

#[test]
fn observer_changes_nothing() {
    let params = paper();
    let flow = Flow::new(&params, 1, 100_000, Some(INTRA_US));
    watched_and_unwatched_are_one(&params, flow);
}

// Lines 4 to 9: the reduction.

#[test]
fn mark_removes_alpha_times_f() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.rtt_us += QUEUE_US;
    sim.acked(1, 1_500, 1_500);
    let f = 4.0 * 75_000.0 / (1_250_000.0 + 75_000.0);
    let kept = sim.flow.cwnd_bytes() as f64 / 1e6;
    assert!((kept - (1.0 - 0.5 * f)).abs() < 1e-5, "{kept}");
}

#[test]
fn marks_remove_at_most_half_if_f_exceeds_one() {
    // F is 4 x 75 kB / (25 kB + 75 kB) = 3.
    for (alpha, kept_bytes) in [(FRACTION_ONE / 8, 62_500), (FRACTION_ONE / 4, 50_000)] {
        let mut sim = Sim::new(INTRA_US, 100_000);
        sim.flow.alpha = alpha;
        sim.rtt_us += QUEUE_US;
        sim.acked(1, 1_500, 1_500);
        assert_eq!(sim.flow.cwnd_bytes(), kept_bytes);
    }
}

#[test]
fn wan_congestion_removes_beta_and_the_larger_cut_applies() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.flow.wan_congested = Flag::SET;
    sim.flow.alpha = 0;
    sim.acked(1, 1_500, 1_500);
    let kept = sim.flow.cwnd_bytes() as f64 / 1e6;
    assert!((kept - (1.0 - 205.0 / 1_024.0)).abs() < 1e-5, "{kept}");

    let mut sim = Sim::new(INTRA_US, 100_000);
    sim.flow.wan_congested = Flag::SET;
    sim.acked(1, 1_500, 1_500);
    assert_eq!(sim.flow.cwnd_bytes(), 50_000);
}

#[test]
fn at_most_one_reduction_per_rtt() {
    let mut sim = Sim::new(INTRA_US, 100_000);
    sim.acked(1, 1_500, 1_500);
    let cut = sim.flow.cwnd_bytes();
    for _ in 0..199 {
        sim.acked(1, 1_500, 1_500);
        assert_eq!(sim.flow.cwnd_bytes(), cut);
    }
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), cut);
    sim.acked(1, 1_500, 1_500);
    assert!(sim.flow.cwnd_bytes() < cut);
}

// Lines 11 and 12: the increase.

#[test]
fn an_unmarked_window_adds_h() {
    // h = 1.2e-7 x 1e9 bit/s x 0.01 s = 1.2 packets.
    let mut sim = Sim::new(INTER_US, 1_000_000);
    for _ in 0..1_000 {
        sim.acked(1, 1_000, 0);
    }
    let added = sim.flow.cwnd_bytes() - 1_000_000;
    assert!((1_797..=1_800).contains(&added), "{added}");
}

/// Theorem 2: at the same alpha, flows hold rates of h / (F x RTT^2).
#[test]
fn rates_are_equal_at_different_rtts_and_k() {
    for k_packets_per_gbps in [10, 50, 300] {
        let params = Params {
            k_packets_per_gbps,
            ..paper()
        };
        let share = |base_us: u32| {
            let srtt_us = base_us + k_packets_per_gbps * MSS * 8 / 1_000;
            let path = path(&params, base_us, srtt_us);
            let h = path.increase_scaled(&params) as f64;
            let f = f64::from(path.dcn_cut(&params, FRACTION_ONE / 64));
            h / f / f64::from(srtt_us).powi(2)
        };
        for ratio in [2, 4, 8, 16] {
            let relative = share(ratio * 1_000) / share(1_000);
            assert!((relative - 1.0).abs() < 1e-3, "{ratio}: {relative}");
        }
    }
}

#[test]
fn h_is_between_a_tenth_of_a_packet_and_five() {
    for (srtt_us, h_scaled) in [(10, BYTE_ONE / 10), (100_000, 5 * BYTE_ONE)] {
        let path = path(&paper(), INTER_US, srtt_us);
        let h_bytes_scaled = h_scaled * u64::from(MSS);
        assert_eq!(path.increase_scaled(&paper()), h_bytes_scaled);
    }
}

#[test]
fn window_does_not_grow_in_a_congested_wan_or_for_a_slow_application() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.flow.wan_congested = Flag::SET;
    sim.acked(1, 1_500, 0);
    let cut = sim.flow.cwnd_bytes();
    sim.acked(1, 1_500, 0);
    assert_eq!(sim.flow.cwnd_bytes(), cut);

    let mut sim = Sim::new(INTER_US, 1_000_000);
    let ack = sim.ack(1, 100_000, 0);
    let ack = Ack {
        cwnd_limited: false,
        ..ack
    };
    sim.flow.on_ack(&sim.params, &ack);
    assert_eq!(sim.flow.cwnd_bytes(), 1_000_000);
}

#[test]
fn slow_start_ends_with_the_first_congestion() {
    let mut sim = Sim::new(INTER_US, 15_000);
    sim.flow = Flow::new(&paper(), sim.now_us, 15_000, Some(INTER_US));
    sim.round(15_000, 0);
    sim.round(30_000, 0);
    assert_eq!(sim.flow.cwnd_bytes(), 60_000);
    let output = sim.acked(1, 1_500, 1_500);
    assert!(output.cwnd_bytes < 60_000);
    assert_eq!(output.ssthresh_bytes, output.cwnd_bytes);
}

#[test]
fn the_pacing_rate_is_1_2_windows_per_srtt_and_two_in_slow_start() {
    let sim = Sim::new(INTER_US, 1_024_000);
    let output = sim.flow.output(&sim.params, 10_000);
    assert_eq!(output.pacing_bytes_per_s, 1_229_000 * US_PER_S / 10_000);
    assert_eq!(sim.flow.output(&sim.params, 0).pacing_bytes_per_s, u64::MAX);

    let flow = Flow::new(&paper(), 1, 15_000, Some(INTER_US));
    let output = flow.output(&paper(), 10_000);
    assert_eq!(output.pacing_bytes_per_s, 30_000 * US_PER_S / 10_000);
}

// The published state.

#[test]
fn published_state_has_counts_reduction_and_wan_state() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.acked(1, 3_000, 0);
    let seen = sim.flow.published();
    assert_eq!((seen.base_rtt_us, seen.flags), (INTER_US, 0));
    sim.acked(1, 1_500, 1_500);
    let seen = sim.flow.published();
    assert_eq!((seen.acked_bytes, seen.marked_bytes), (4_500, 1_500));
    assert_eq!(seen.flags, published::REDUCED);
    sim.flow.wan_congested = Flag::SET;
    assert_eq!(
        sim.flow.published().flags,
        published::REDUCED | published::WAN
    );
}

/// 400 Gbit/s over 300 ms are 15 GB.
#[test]
fn a_round_of_more_than_32_bits_keeps_its_marked_part() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    for acked_bytes in [15 << 30, 1 << 20, u64::MAX] {
        for quarters in [1, 3] {
            sim.flow.round_acked_bytes = 0;
            sim.flow.round_marked_bytes = 0;
            sim.acked(1, acked_bytes, acked_bytes / 4 * quarters);
            let seen = sim.flow.published();
            let part = f64::from(seen.marked_bytes) / f64::from(seen.acked_bytes);
            let wanted = quarters as f64 / 4.0;
            assert!((part - wanted).abs() < 1e-6, "{acked_bytes}: {part}");
        }
    }
}

// Loss.

#[test]
fn loss_halves_the_window_at_any_beta() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    sim.params.beta = 768;
    sim.flow.wan_congested = Flag::SET;
    assert_eq!(sim.flow.loss_window_bytes(&sim.params, MSS), 500_000);
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), 500_000);
}

#[test]
fn timeout_restarts_slow_start_and_undo_restores_the_window() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    on_timeout(&mut sim.flow, &sim.params, sim.now_us, 0, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), u64::from(MSS));
    assert_eq!(sim.flow.output(&sim.params, 1).ssthresh_bytes, 500_000);
    sim.flow.undo(1_000_000, 0);
    assert_eq!(sim.flow.cwnd_bytes(), 1_000_000);
}

#[test]
fn delay_of_the_receiving_host_is_no_congestion() {
    let mut sim = Sim::new(INTER_US, 1_000_000);
    for is_rtt_of_host in [true, false] {
        for _ in 0..3 {
            let ack = Ack {
                rtt_us: Some(INTER_US + 40_000),
                is_rtt_of_host,
                cwnd_limited: false,
                ..sim.ack(u64::from(INTER_US) + 40_000, 300, 0)
            };
            sim.flow.on_ack(&sim.params, &ack);
        }
        assert_eq!(sim.flow.cwnd_bytes() == 1_000_000, is_rtt_of_host);
    }
}

// Robustness.

#[test]
fn state_fits_the_socket() {
    // 104 bytes, less 16 of the kernel part and 16 of the module.
    assert!(size_of::<Flow>() <= 72);
    assert_eq!(align_of::<Flow>(), 8);
}

#[test]
fn zeroed_flow_does_nothing() {
    let params = paper();
    let mut flow = Flow::default();
    flow.on_loss(&params, 1, MSS);
    on_timeout(&mut flow, &params, 1, 1, MSS);
    flow.undo(1_000, 1_000);
    assert_eq!(flow.on_ack(&params, &Ack::default()), None);
    assert_eq!(flow.loss_window_bytes(&params, MSS), 0);
    assert_eq!(flow.cwnd_bytes(), 0);
}

#[test]
fn defaults_are_within_their_bounds() {
    for row in PARAMS {
        for value in row.defaults {
            assert!((row.min..=row.max).contains(value), "{:?}", row.name);
        }
    }
    assert_eq!(paper(), Params::read(|row| PARAMS[row].defaults[1]));
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
                1 => on_timeout(&mut flow, &params, rng.any(), rng.any(), mss_bytes),
                2 => flow.undo(rng.any(), rng.any()),
                _ => {
                    let output = flow.on_ack(&params, &rng.any_ack()).unwrap();
                    assert!(output.cwnd_bytes > 0 && output.cwnd_bytes <= 1 << 40);
                }
            }
            assert!(flow.alpha <= FRACTION_ONE);
        }
        0
    });
}

#[test]
fn any_bytes_cause_no_panic() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut flow = Flow {
            window: Window::any(&mut rng),
            round_ends_us: rng.any(),
            round_acked_bytes: rng.any() as u32,
            round_marked_bytes: rng.any() as u32,
            line_rate: LineRate::any(&mut rng),
            round_min_rtt_us: rng.any() as u32,
            alpha: rng.any() as u32,
            base_rtt: BaseRtt::any(&mut rng),
            wan_congested: Flag::any(&mut rng),
            rounds: rng.any() as u8,
            cut_at_us: rng.any(),
        };
        any_calls(&mut flow, &Params::of(Profile::Paper), &mut rng);
        0
    });
}

// The rules in floating point, as in the paper.

struct Reference {
    /// C in bytes per microsecond.
    c: f64,
    /// Packet size, and K in bytes.
    packet: f64,
    k: f64,
    params: Params,

    cwnd: f64,
    ssthresh: f64,
    rtt_base: f64,
    rtt_min: f64,
    alpha: f64,
    acked: f64,
    marked: f64,
    round_end: f64,
    congested_wan: bool,
    last_cut: f64,
    was_cut: bool,
    /// Slow start ended closer than the fixed point resolves, so both outcomes are right.
    tie: bool,
}

impl Reference {
    /// Algorithm 1.
    fn on_ack(&mut self, ack: &Ack) {
        self.update_transport_state(ack);
        let congested_dcn = ack.marked_bytes > 0;
        if (congested_dcn || self.congested_wan) && !self.was_cut {
            let cut = self.cut(ack);
            self.cwnd *= 1.0 - cut;
            self.ssthresh = self.ssthresh.min(self.cwnd);
            self.last_cut = ack.now_us as f64;
            self.was_cut = true;
        } else if !self.congested_wan && ack.cwnd_limited {
            let acked = (ack.acked_bytes - ack.marked_bytes) as f64;
            if self.cwnd < self.ssthresh {
                let grown = self.cwnd + acked;
                self.tie |= (grown - self.ssthresh).abs() < 1.0;
                self.cwnd = grown.min(self.ssthresh);
            } else {
                // Lines 11 and 12.
                let bits = 8.0 * self.c * f64::from(ack.srtt_us);
                let h = f64::from(self.params.h_scale) * 1e-9 * bits;
                self.cwnd += h.clamp(0.1, 5.0) * self.packet * acked.min(self.cwnd) / self.cwnd;
            }
        }
        self.cwnd = self.cwnd.max(2.0 * self.packet);
    }

    /// Lines 1 to 3.
    fn update_transport_state(&mut self, ack: &Ack) {
        self.acked += ack.acked_bytes as f64;
        self.marked += ack.marked_bytes as f64;
        let Some(rtt) = ack.rtt_us.map(f64::from) else {
            return;
        };
        let now = ack.now_us as f64;
        self.rtt_base = self.rtt_base.min(rtt);
        self.rtt_min = self.rtt_min.min(rtt);
        self.was_cut &= now - rtt < self.last_cut;
        if self.round_end == 0.0 {
            self.round_end = now;
        }
        if now - rtt >= self.round_end {
            if self.acked > 0.0 {
                let g = f64::from(self.params.g) / 1024.0;
                self.alpha = (1.0 - g) * self.alpha + g * self.marked / self.acked;
            }
            self.congested_wan = self.rtt_min > self.rtt_base + f64::from(self.params.t_us);
            self.acked = 0.0;
            self.marked = 0.0;
            self.rtt_min = f64::INFINITY;
            self.round_end = now;
        }
    }

    /// Lines 6 to 9.
    fn cut(&self, ack: &Ack) -> f64 {
        let f = 4.0 * self.k / (self.c * f64::from(ack.srtt_us)).max(self.k);
        let f_dcn = f64::from(u8::from(ack.marked_bytes > 0)) * (self.alpha * f).min(0.5);
        let f_wan = f64::from(u8::from(self.congested_wan)) * f64::from(self.params.beta) / 1024.0;
        f_dcn.max(f_wan)
    }

    fn on_loss(&mut self, now_us: u64) {
        if self.was_cut {
            return;
        }
        self.lower_to((self.cwnd / 2.0).max(2.0 * self.packet));
        self.last_cut = now_us as f64;
        self.was_cut = true;
    }

    fn on_timeout(&mut self, now_us: u64, in_flight_bytes: u64) {
        self.on_loss(now_us);
        let target = if self.cwnd < self.ssthresh {
            self.ssthresh
        } else {
            self.cwnd
        };
        self.lower_to(in_flight_bytes as f64 + self.packet);
        self.ssthresh = target;
    }

    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        self.cwnd = self.cwnd.max(prior_bytes as f64);
        let ssthresh = match ssthresh_bytes {
            u64::MAX => f64::INFINITY,
            bytes => bytes as f64,
        };
        self.ssthresh = self.ssthresh.min(self.cwnd).max(ssthresh);
    }

    fn lower_to(&mut self, cwnd: f64) {
        self.cwnd = self.cwnd.min(cwnd);
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }
}

#[test]
fn the_fixed_point_follows_the_reference() {
    let ties = for_each_seed(|seed| u64::from(!follows_reference(seed)));
    assert!(ties < SEQUENCES / 100, "{ties} sequences without a verdict");
}

/// Returns whether the sequence could be compared to its end.
fn follows_reference(seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let params = random_params(&mut rng);
    let base_us = rng.pick(&[1, 14, 200, 1_792, 10_000, 100_000, 300_000]);
    let mss_bytes = rng.pick(&[536, 1_448, 4_032, 8_948]);
    let mss = u64::from(mss_bytes);
    let mut now_us = rng.within(1, 1 << 40);
    let cwnd_bytes = mss * rng.within(2, 1_000);
    let known_rtt = Some(base_us).filter(|_| rng.percent(50));

    let mut flow = Flow::new(&params, now_us, cwnd_bytes, known_rtt);
    let packets_per_gbps = f64::from(params.k_packets_per_gbps);
    let gbps = f64::from(params.line_rate_mbps) / 1e3;
    let mut reference = Reference {
        c: f64::from(params.line_rate_mbps) / 8.0,
        packet: f64::from(mss_bytes),
        k: match params.k_bytes {
            0 => packets_per_gbps * gbps * f64::from(mss_bytes),
            k => f64::from(k),
        },
        params,
        cwnd: cwnd_bytes as f64,
        ssthresh: f64::INFINITY,
        rtt_base: known_rtt.map_or(f64::INFINITY, f64::from),
        rtt_min: f64::INFINITY,
        alpha: 1.0,
        acked: 0.0,
        marked: 0.0,
        round_end: 0.0,
        congested_wan: false,
        last_cut: 0.0,
        was_cut: false,
        tie: false,
    };
    let marked_percent = rng.pick(&[5, 30, 90]);
    let acks_per_rtt = rng.pick(&[1, 4, 16]);
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
                on_timeout(&mut flow, &params, now_us, in_flight_bytes, mss_bytes);
                reference.on_timeout(now_us, in_flight_bytes);
            }
            3 => {
                let prior_bytes = prior_bytes + mss * rng.within(0, 20);
                let ssthresh_bytes = rng.pick(&[0, prior_bytes / 2, 2 * prior_bytes, u64::MAX]);
                flow.undo(prior_bytes, ssthresh_bytes);
                reference.undo(prior_bytes, ssthresh_bytes);
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
        let tolerance = f64::from(mss_bytes).max(float / 1_000.0);
        assert!(
            (fixed - float).abs() <= tolerance,
            "seed {seed}, step {step}: {fixed} is not {float}"
        );
    }
    true
}

fn random_params(rng: &mut Rng) -> Params {
    let mut params = paper();
    params.line_rate_mbps = rng.pick(&[1_000, 10_000, 100_000, 400_000]);
    // No sequence outlasts the period of the minimum.
    params.rtt_base_window_ms = 3_600_000;
    if rng.percent(50) {
        params.k_packets_per_gbps = rng.within(1, 1_000) as u32;
        params.k_bytes = rng.pick(&[0, 10_000, 1_000_000]);
        params.t_us = rng.within(1, 10_000) as u32;
        params.beta = rng.within(0, 1_024) as u32;
        params.h_scale = rng.within(0, 10_000) as u32;
        params.g = rng.within(1, 1_024) as u32;
    }
    params
}

#[test]
fn socket_state_follows_the_rules() {
    let params = paper();
    let shown = Shown {
        marked_fraction: FRACTION_ONE / 4,
        period_marked: 1 << 14,
        periods: 77,
        base_rtt_us: Some(1_792),
        flags: published::WAN,
        srtt_us: Some(1_800),
        mss_bytes: Some(1_448),
        params: Some(&params),
        ..Shown::default()
    };
    let of = |key| state(&ENTRY, &shown, key).unwrap();
    assert_eq!((of("base_rtt_us"), of("rounds")), (1_792.0, 77.0));
    assert_eq!((of("alpha"), of("round_marked")), (0.25, 0.5));
    assert_eq!((of("wan_congested"), of("reduced")), (1.0, 0.0));
    // K = 50 packets, C x RTT = 1 Gbit/s x 1,800 us.
    assert!((of("f") - 4.0 * 50.0 * 1_448.0 / 225_000.0).abs() < 1e-5);
    // H x C x RTT = 120e-9 x 1.8e6 bits.
    assert!((of("h_packets_per_rtt") - 0.216).abs() < 1e-4);
    for key in ["base_rtt_us", "f", "h_packets_per_rtt"] {
        assert_eq!(state(&ENTRY, &Shown::default(), key), None, "{key}");
    }
}

/// A host without set values: egress device, and shortest base RTT.
struct Host(Params, EgressDev, u32);

impl ParamSource for Host {
    fn value(&self, row: usize) -> u32 {
        self.0.value(row)
    }

    fn egress_dev(&self) -> EgressDev {
        self.1
    }

    fn shortest_rtt_us(&self) -> u32 {
        self.2
    }
}

/// The paper's testbed, and hosts of 10 and 100 Gbit/s: K in bytes and T in us.
#[test]
fn k_and_t_follow_from_the_link_or_are_set() {
    let linux = Params::of(Profile::Linux);
    let is = |params: Params, rate_mbps, intra_rtt_us, k_bytes, t_us| {
        let host = Host(params, EgressDev::KnownSpeed(rate_mbps), intra_rtt_us);
        let path = Path {
            rate_mbps,
            ..path(&params, INTER_US, INTER_US)
        };
        assert_eq!(path.threshold_bytes(&host), k_bytes);
        assert!(!path.is_wan_congested(&host, INTER_US + t_us));
        assert!(path.is_wan_congested(&host, INTER_US + t_us + 1));
    };
    is(paper(), 1_000, 200, 75_000, 5_000);
    is(paper(), 10_000, 40, 750_000, 5_000);
    is(linux, 100, 2_000, 7_500, 4_800);
    is(linux, 1_000, 200, 75_000, 4_800);
    is(linux, 10_000, 40, 100_000, 640);
    is(linux, 100_000, 14, 350_000, 224);
    let by_hand = Params {
        k_bytes: 250_000,
        t_us: 40,
        ..linux
    };
    is(by_hand, 100_000, 14, 250_000, 40);
}

#[test]
fn flow_without_device_speed_grows_as_on_a_gigabit() {
    let after = |device| {
        let host = Host(Params::of(Profile::Linux), device, 0);
        after_an_early_loss::<Flow>(&host, (20, 100_000), false, 0, 1)
    };
    let gigabit = after(EgressDev::KnownSpeed(1_000));
    assert!(
        gigabit > 3_000_000,
        "five packets each round trip: {gigabit}"
    );
    for device in [EgressDev::UnknownSpeed, EgressDev::NoRoute] {
        assert_eq!(after(device), gigabit);
    }
    // A known C is used as it is.
    let known = after(EgressDev::KnownSpeed(100));
    assert!(known < gigabit / 3, "{known}");
    let known = after(EgressDev::KnownSpeed(10_000));
    assert_eq!(known, gigabit, "h is five packets at most");
}
