// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::algo::fixed::US_PER_S;
use crate::algo::host::EgressDev;
use crate::algo::support::{
    Rng, any_calls, for_each_seed, on_timeout, watched_and_unwatched_are_one,
};

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

    /// Returns an ACK `after_us` later, with the full delivery rate and no limits.
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

    /// Delivers one RTT of ACKs without marks, in `packets` packets.
    fn quiet_rtt(&mut self, packets: u64) {
        let bytes = self.flow.cwnd_bytes() / packets;
        for _ in 0..packets {
            self.acked(u64::from(self.rtt_us) / packets, bytes, 0);
        }
    }
}

/// The paper's network.
fn paper() -> Params {
    Params {
        line_rate_mbps: 100_000,
        intra_rtt_us: INTRA_US,
        ..Params::of(Profile::Paper)
    }
}

/// The simulator's rules on that network, after the first window.
fn artifact() -> Params {
    Params {
        line_rate_mbps: 100_000,
        intra_rtt_us: INTRA_US,
        start: 0,
        ..Params::of(Profile::Artifact)
    }
}

/// Returns 4K / (K + BDP) with K = a seventh of the intra-datacenter BDP.
fn gain(bdp: u64) -> f64 {
    let k = INTRA_BDP as f64 / 7.0;
    4.0 * k / (k + bdp as f64)
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
fn a_late_epoch_clock_advances() {
    let mut sim = Sim::new(paper(), INTER_US, 1_000_000);
    sim.acked(1, 4_000, 0);
    // After a second of silence, a packet per microsecond: an epoch per 14 us, not per ACK.
    sim.now_us += 1_000_000;
    let mut epochs = 0;
    for _ in 0..140 {
        sim.acked(1, 4_000, 0);
        epochs += u32::from(sim.flow.published().acked_bytes == 0);
    }
    assert!((10..=11).contains(&epochs), "{epochs}");
}

#[test]
fn an_epoch_without_acknowledged_bytes_keeps_the_window() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    sim.acked(1, 0, 0);
    sim.flow.ecn_fraction = FRACTION_ONE / 2;
    sim.acked(20, 0, 0);
    assert_eq!(sim.flow.ecn_fraction, FRACTION_ONE / 2);
    assert_eq!(sim.flow.cwnd_bytes(), 100_000);
}

// Multiplicative decrease (Algorithm 1, ONEPOCH).

/// Runs one fully marked epoch that ends with `rtt_us`; returns the remaining part of the window.
fn kept_after_marked_epoch(mut sim: Sim, rtt_us: u32) -> f64 {
    sim.acked(1, 4_000, 4_000);
    let before = sim.flow.cwnd_bytes();
    sim.rtt_us = rtt_us;
    sim.acked(u64::from(rtt_us), 4_000, 4_000);
    ratio(sim.flow.cwnd_bytes(), before)
}

#[test]
fn marked_epoch_removes_e_times_4k_by_k_plus_bdp() {
    // E is one half after one epoch, and 4 / 7 / (8 / 7) is DCTCP's half, too.
    assert!((gain(INTRA_BDP) - 0.5).abs() < 1e-9);
    for (rtt_us, bdp) in [(INTRA_US, INTRA_BDP), (INTER_US, INTER_BDP)] {
        let kept = kept_after_marked_epoch(Sim::new(paper(), rtt_us, bdp), rtt_us + 1);
        assert!((kept - (1.0 - gain(bdp) / 2.0)).abs() < 1e-5, "{kept}");
    }
}

#[test]
fn the_decrease_is_gentle_without_delay() {
    for (rtt_us, bdp) in [(INTRA_US, INTRA_BDP), (INTER_US, INTER_BDP)] {
        let kept = kept_after_marked_epoch(Sim::new(paper(), rtt_us, bdp), rtt_us);
        let gentle = 307.0 / 1_024.0;
        let wanted = 1.0 - gain(bdp) / 2.0 * gentle;
        assert!((kept - wanted).abs() < 1e-5, "{kept}");
    }
}

#[test]
fn a_shorter_syn_does_not_set_the_base_rtt() {
    // Table 2: 1,791 us of a SYN, 1,792 us of data.
    let mut sim = Sim::new(paper(), INTER_US - 1, INTER_BDP);
    sim.rtt_us = INTER_US;
    sim.acked(1, 4_000, 4_000);
    assert_eq!(sim.flow.published().base_rtt_us, INTER_US);
    let epoch = sim.epoch(4_000, 4_000);
    assert!(epoch.gentle && epoch.cut > 0);
}

// Quick Adapt (4.1.2, Algorithm 1, ONQA).

/// Returns a flow in the middle of a round trip, after an ACK with `change`.
fn round_with(params: Params, change: impl FnOnce(&mut Ack)) -> Sim {
    let mut sim = Sim::new(params, INTRA_US, 100_000);
    sim.acked(1, 4_000, 0);
    let mut ack = sim.ack(u64::from(INTRA_US), 4_000, 0);
    change(&mut ack);
    sim.on(ack);
    sim
}

fn delivers(bytes: u64) -> impl FnOnce(&mut Ack) {
    move |ack| ack.delivered_bytes = bytes
}

#[test]
fn quick_adapt_sets_the_window_to_the_delivered_bytes() {
    let sim = round_with(paper(), delivers(40_000));
    assert_eq!(sim.flow.quick_adapts, 1);
    assert_eq!(sim.flow.cwnd_bytes(), 40_000);
    // 0.96 of the bytes of 1.05 RTTs.
    let sim = round_with(artifact(), delivers(40_000));
    assert_eq!(sim.flow.cwnd_bytes(), 40_000 * 1_032 / 1_024);
}

#[test]
fn quick_adapt_pauses_if_something_else_limits_the_flow() {
    let changes: [fn(&mut Ack); 4] = [
        |ack| ack.app_limited = true,
        |ack| ack.interval_us = 0,
        |ack| ack.in_recovery = true,
        // Half of 100 kB is expected.
        |ack| ack.prior_in_flight = 12,
    ];
    for change in changes {
        let sim = round_with(paper(), |ack| {
            ack.delivered_bytes = 4_000;
            change(ack);
        });
        assert_eq!(sim.flow.quick_adapts, 0);
        assert_eq!(sim.flow.cwnd_bytes(), 100_013);
    }
    assert_eq!(round_with(paper(), delivers(4_000)).flow.quick_adapts, 1);
}

// The first window, slow start and pacing.

#[test]
fn the_artifact_starts_with_one_bdp_as_soon_as_the_rtt_is_known() {
    let params = Params {
        start: 1,
        ..artifact()
    };
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
fn the_pacing_rate_is_a_window_per_base_rtt() {
    let mut flow = Flow::new(&paper(), 0, 140_000, Some(INTRA_US));
    for slow_start in [true, false] {
        flow.window
            .resume(140_000, if slow_start { u64::MAX } else { 0 });
        let output = flow.output(&paper(), 28);
        assert_eq!(output.pacing_bytes_per_s, 10_000 * US_PER_S);
    }
    let flow = Flow::new(&paper(), 0, 140_000, None);
    assert_eq!(flow.output(&paper(), 0).pacing_bytes_per_s, u64::MAX);
}

// Loss.

#[test]
fn a_loss_halves_once_per_rtt() {
    let mut sim = Sim::new(paper(), INTRA_US, 100_000);
    for _ in 0..10 {
        sim.flow.on_loss(&sim.params, sim.now_us, MSS);
        sim.acked(1, 4_000, 0);
    }
    assert_eq!(sim.flow.cwnd_bytes() / 1_000, 50);
    sim.acked(14, 4_000, 0);
    let before = sim.flow.cwnd_bytes();
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.cwnd_bytes(), before / 2);
}

// Published state and events.

impl Sim {
    /// Returns the events of the usual ACK.
    fn events(&mut self, after_us: u64, acked_bytes: u64, marked_bytes: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let ack = self.ack(after_us, acked_bytes, marked_bytes);
        self.flow.on_ack_watched(&self.params, &ack, &mut events);
        events
    }

    /// Returns the epoch that ends with an ACK after one RTT.
    fn epoch(&mut self, acked_bytes: u64, marked_bytes: u64) -> Epoch {
        let events = self.events(u64::from(self.rtt_us), acked_bytes, marked_bytes);
        match events[..] {
            [.., Event::Epoch(_, epoch)] => epoch,
            _ => panic!("{events:?}"),
        }
    }
}

#[test]
fn loss_before_an_idle_hour_is_not_in_this_round_trip() {
    let mut sim = Sim::new(paper(), INTER_US, INTER_BDP);
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    sim.flow.on_idle_restart(sim.now_us + 40 * 60 * US_PER_S);
    assert!(!sim.flow.was_reduced());
}

#[test]
fn quick_adapt_tolerates_a_packet() {
    let mut sim = Sim::new(paper(), INTER_US, 5 * u64::from(MSS));
    sim.acked(1, 0, 0);
    let mut ack = sim.ack(INTER_US.into(), MSS.into(), 0);
    ack.delivered_bytes = 9_000;
    sim.on(ack);
    assert_eq!(sim.flow.quick_adapts, 0);
}

#[test]
fn an_epoch_event_has_the_state_after_the_epoch() {
    let mut sim = Sim::new(paper(), INTRA_US, INTRA_BDP);
    assert!(sim.events(1, 4_000, 0).is_empty(), "the first epoch begins");
    assert_eq!(sim.flow.published().acked_bytes, 4_000);

    let before_bytes = sim.flow.cwnd_bytes();
    let events = sim.events(14, 8_000, 4_000);
    let [.., Event::Epoch(flow, epoch)] = events[..] else {
        panic!("{events:?}");
    };
    let shown = flow.published();
    assert_eq!((shown.acked_bytes, shown.marked_bytes), (12_000, 4_000));
    assert_eq!((epoch.rtt_us, shown.base_rtt_us), (INTRA_US, INTRA_US));
    assert_eq!(epoch.period_ns, 14_000);
    assert_eq!(shown.marked_fraction, sim.flow.ecn_fraction);
    assert_eq!(flow.cwnd_bytes(), sim.flow.cwnd_bytes());
    assert!(
        epoch.cwnd_before_bytes >= before_bytes,
        "with this ACK's increase"
    );
    assert!(epoch.gentle);
    let e = ratio(shown.marked_fraction.into(), FRACTION_ONE.into());
    let wanted = e * gain(INTRA_BDP) * 307.0 / 1_024.0;
    assert!((ratio(epoch.cut.into(), FRACTION_ONE.into()) - wanted).abs() < 1e-6);
    let kept = ratio(flow.cwnd_bytes(), epoch.cwnd_before_bytes);
    assert!((kept - (1.0 - wanted)).abs() < 1e-4, "{kept}");
    assert_eq!(sim.flow.published().acked_bytes, 0);
    assert_eq!(sim.flow.published().periods, 1);

    // Without marks nothing changes.
    assert_eq!(sim.epoch(8_000, 0).cut, 0);
    // With delay: the whole decrease, and a longer epoch.
    sim.rtt_us = 2 * INTRA_US;
    let epoch = sim.epoch(8_000, 8_000);
    assert_eq!((epoch.period_ns, epoch.gentle), (28_000, false));
    // The window was already reduced in this round trip.
    sim.flow.on_loss(&sim.params, sim.now_us, MSS);
    assert_eq!(sim.flow.published().flags, published::REDUCED);
    sim.flow.round_ends_us = sim.now_us + 1_000;
    assert_eq!(sim.epoch(8_000, 8_000).cut, 0);
}

#[test]
fn quick_adapt_events_do_not_depend_on_its_action() {
    for (delivered_bytes, left_bytes) in [(40_000, 40_000), (60_000, 100_000)] {
        let mut sim = Sim::new(paper(), INTRA_US, 100_000);
        sim.acked(1, 0, 0);
        let mut ack = sim.ack(14, 0, 0);
        ack.delivered_bytes = delivered_bytes;
        let mut events = Vec::new();
        sim.flow.on_ack_watched(&sim.params, &ack, &mut events);
        let Event::QuickAdapt(flow, compared) = events[0] else {
            panic!("{events:?}");
        };
        let bytes = (compared.cwnd_before_bytes, flow.cwnd_bytes());
        assert_eq!(bytes, (100_000, left_bytes));
        let bytes = (compared.delivered_bytes, compared.promised_bytes);
        assert_eq!(bytes, (delivered_bytes, 50_000));
        assert_eq!(flow.was_reduced(), left_bytes != 100_000);
    }
}

#[test]
fn observer_changes_nothing() {
    for params in Profile::ALL.map(Params::of) {
        let flow = Flow::new(&params, 1, 100_000, Some(INTRA_US));
        watched_and_unwatched_are_one(&params, flow);
    }
}

// Robustness.

#[test]
fn state_fits_the_socket() {
    // The kernel module keeps 32 of a socket's 104 bytes.
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
    flow.on_idle_restart(1);
    assert_eq!(flow.on_ack(&params, &Ack::default()), None);
    assert_eq!(flow.loss_window_bytes(&params, MSS), 0);
    assert_eq!((flow.cwnd_bytes(), flow.ecn_fraction), (0, 0));
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
fn any_bytes_and_calls_cause_no_panic() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let params = Params::read(|_| rng.any() as u32);
        let mut started = Flow::new(&params, rng.any(), rng.any(), Some(rng.any() as u32));
        any_calls(&mut started, &params, &mut rng);
        assert!((1..=1 << 40).contains(&started.cwnd_bytes()));
        assert!(started.ecn_fraction <= FRACTION_ONE);
        let mut flow = Flow {
            window: Window::any(&mut rng),
            epoch_ends_ns: rng.any(),
            epoch_acked_bytes: rng.any() as u32,
            epoch_marked_bytes: rng.any() as u32,
            ecn_fraction: rng.any() as u32,
            round_ends_us: rng.any(),
            line_rate: LineRate::any(&mut rng),
            base_rtt: BaseRtt::any(&mut rng),
            reduced: Flag::any(&mut rng),
            quick_adapts: rng.any() as u8,
            epochs: rng.any() as u8,
        };
        any_calls(&mut flow, &params, &mut rng);
        0
    });
}

// Values that the host detects.

/// Parameters of a host, and its detected values.
struct Host {
    params: Params,
    device: EgressDev,
    shortest: std::cell::Cell<BaseRtt>,
}

impl Host {
    /// Creates a host without set values.
    fn new(device: EgressDev) -> Self {
        Host {
            params: Params::of(Profile::Paper),
            device,
            shortest: std::cell::Cell::default(),
        }
    }
}

impl ParamSource for Host {
    fn value(&self, row: usize) -> u32 {
        self.params.value(row)
    }

    fn egress_dev(&self) -> EgressDev {
        self.device
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
fn detected_values_act_like_set_values() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut by_hand = Params::of(rng.pick(&Profile::ALL));
        let mut host = Host::new(EgressDev::KnownSpeed(rng.pick(&[1_000, 25_000, 400_000])));
        host.params = by_hand;
        let EgressDev::KnownSpeed(mbps) = host.device else {
            unreachable!()
        };
        (by_hand.line_rate_mbps, by_hand.intra_rtt_us) = (mbps, INTRA_US);
        let base_us = rng.pick(&[14, 50, 1_792, 100_000]);
        let mut now_us = rng.within(1, 1 << 40);
        // Another flow of the host stays inside the datacenter.
        host.note_base_rtt(now_us, INTRA_US);

        let mut flow = Flow::new(&by_hand, now_us, 40_000, Some(base_us));
        let mut found = Flow::new(&host, now_us, 40_000, Some(base_us));
        for _ in 0..50 {
            now_us += rng.within(0, u64::from(base_us) / 2 + 1);
            let mut ack = rng.ack(now_us, base_us, MSS, flow.cwnd_bytes(), 20);
            // No faster than the link, and no shorter than the path.
            let most_bytes = u64::from(mbps) * u64::from(ack.interval_us) / 8;
            ack.delivered_bytes = ack.delivered_bytes.min(most_bytes);
            assert_eq!(flow.on_ack(&by_hand, &ack), found.on_ack(&host, &ack));
        }
        0
    });
}

#[test]
fn line_rate_parameter_wins_over_the_device() {
    let mut host = Host::new(EgressDev::KnownSpeed(10_000));
    for (by_hand_mbps, bdp_bytes) in [(100_000, INTER_BDP), (0, INTER_BDP / 10)] {
        host.params.line_rate_mbps = by_hand_mbps;
        let flow = Flow::new(&host, 1, 40_000, Some(INTER_US));
        assert_eq!(flow.path(&host).unwrap().bdp_bytes, bdp_bytes);
    }
}

#[test]
fn flow_without_device_speed_uses_the_delivered_rate() {
    // No route: setting IP_TOS removes a socket's route until it sends again.
    for device in [EgressDev::UnknownSpeed, EgressDev::NoRoute] {
        let mut host = Host::new(device);
        host.params.max_cwnd_bdp = 1_024;
        let mut flow = Flow::new(&host, 1, 40_000, Some(INTER_US));
        let mut now_us = 1_000;
        for _ in 0..12 {
            let before_bytes = flow.cwnd_bytes();
            let ack = Ack {
                now_us,
                rtt_us: Some(INTER_US),
                acked_bytes: before_bytes,
                delivered_bytes: before_bytes,
                interval_us: INTER_US,
                cwnd_limited: true,
                mss_bytes: MSS,
                ..Ack::default()
            };
            flow.on_ack(&host, &ack).unwrap();
            assert_eq!(flow.cwnd_bytes(), 2 * before_bytes, "no ceiling");
            now_us += u64::from(INTER_US);
        }
        // The last complete round trip delivered half of this window.
        let path = flow.path(&host).unwrap();
        let seen_bytes = path.bdp_bytes;
        assert!(seen_bytes >= flow.cwnd_bytes() / 2 - 1_000, "{seen_bytes}");
        assert!(!path.has_known_rate);
    }
}

#[test]
fn host_learns_its_rtt_from_data_but_not_from_itself() {
    // A flow without a route may end on this host.
    for (device, shortest_us) in [
        (EgressDev::KnownSpeed(100_000), INTRA_US),
        (EgressDev::UnknownSpeed, INTRA_US),
        (EgressDev::Loopback, 0),
        (EgressDev::NoRoute, 0),
    ] {
        let host = Host::new(device);
        let mut flow = Flow::new(&host, 1, 40_000, Some(INTRA_US - 1));
        assert_eq!(host.shortest_rtt_us(), 0, "a SYN is shorter");
        let ack = Ack {
            now_us: 100,
            rtt_us: Some(INTRA_US),
            mss_bytes: MSS,
            ..Ack::default()
        };
        flow.on_ack(&host, &ack);
        assert_eq!(host.shortest_rtt_us(), shortest_us);
    }
}

#[path = "unocc_reference.rs"]
mod reference;
