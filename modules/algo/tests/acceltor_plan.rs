// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;
use std::cmp::Ordering;

const US: u64 = NS_PER_US;

fn network(day_us: u64, night_us: u64, packet_us: u64, circuit_us: u64, racks: u64) -> Network {
    Network {
        day_ns: day_us * US,
        night_ns: night_us * US,
        packet_rtt_ns: packet_us * US,
        circuit_rtt_ns: circuit_us * US,
        racks,
        ..Network::PAPER
    }
}

fn plan(network: &Network) -> Plan {
    Plan::new(network).unwrap()
}

#[test]
fn the_plan_of_section_3_matches_the_paper() {
    // III-C and III-E: RTT 30 us, n = 8.
    let plan = plan(&network(240, 20, 30, 30, 50));
    assert_eq!(plan.round_trips_per_day, 8);
    assert_eq!(plan.accelerated_round_trips, 3);
    assert_eq!(plan.queues, 3);
    assert_eq!(plan.rto_min_ns, 12_380 * US);
    // III-D and Fig. 5: 8 to 16 segments, 10 without acceleration; 2.19 times as much.
    assert_eq!((plan.window_at_start, plan.window_at_end), (8, 16));
    assert_eq!(plan.day_segments, 92);
    assert_eq!(plan.day_segments_unaccelerated, Some(42));
    assert_eq!(plan.most_elephants, 41);
}

#[test]
fn the_plan_of_the_evaluation_matches_the_paper() {
    let plan_of_50 = plan(&Network::PAPER);
    assert_eq!(plan_of_50.round_trips_per_day, 4);
    assert_eq!(plan_of_50.accelerated_round_trips, 2);
    assert_eq!(plan_of_50.queues, 3);
    assert_eq!(plan_of_50.rto_min_ns, 12_320 * US);
    assert_eq!(plan_of_50.rto_min_blocking_ns, 12_500 * US);
    assert_eq!(plan_of_50.day_segments, 22);
    assert_eq!(plan_of_50.day_segments_unaccelerated, None);
    // F 2^m MSS <= B: 80 flows of 4 segments.
    assert_eq!(plan_of_50.most_elephants, 83);
    assert_eq!(plan_of_50.buffer_bytes, 1_800_000);
    // 80 flows offer 2.64 MB to a day of 2.4 MB.
    assert_eq!(plan_of_50.offered_bytes, 2_640_000);
    assert_eq!(Network::PAPER.day_bytes(), 2_400_000);
    assert_eq!(Network::PAPER.circuit_bdp_bytes(), 550_000);
    // 11.1 Gbit/s; 10.1 would fill the day.
    assert_eq!(plan_of_50.accelerated_bytes_per_s * 8 / 10_000_000, 1_107);
    assert_eq!(plan_of_50.needed_bytes_per_s * 8 / 10_000_000, 1_006);
    assert_eq!(plan_of_50.spare_bytes_per_s * 8, 25_000_000_000);
    for (racks, rto_min_us) in [(8, 1_400), (72, 18_040)] {
        let plan = plan(&network(240, 20, 60, 55, racks));
        assert_eq!((plan.accelerated_round_trips, plan.queues), (2, 3));
        assert_eq!(plan.rto_min_ns, rto_min_us * US);
    }
}

#[test]
fn a_day_of_one_round_trip_has_no_solution() {
    let of = |day_us, circuit_us| Plan::new(&network(day_us, 20, 60, circuit_us, 50));
    assert_eq!(of(100, 55), Err(Impossible::ShortDay));
    assert_eq!(of(50, 55), Err(Impossible::ShortDay));
    assert_eq!(of(110, 55).unwrap().accelerated_round_trips, 1);
}

#[test]
fn a_week_has_room_for_the_acceleration() {
    // Two racks: the week is one slot, and (m + 1) Rp fills a night of 180 us.
    let of = |night_us| Plan::new(&network(240, night_us, 60, 55, 2));
    assert_eq!(of(180), Err(Impossible::ShortWeek));
    assert_eq!(of(181).unwrap().rto_min_ns, US);
}

#[test]
fn numbers_out_of_bounds_are_named() {
    let with = |change: fn(&mut Network)| {
        let mut network = Network::PAPER;
        change(&mut network);
        Plan::new(&network).unwrap_err()
    };
    assert_eq!(with(|it| it.racks = 1), Impossible::Bounds("racks"));
    assert_eq!(with(|it| it.racks = 1_025), Impossible::Bounds("racks"));
    assert_eq!(with(|it| it.day_ns = 999), Impossible::Bounds("day"));
    assert_eq!(with(|it| it.load_ppm = PPM + 1), Impossible::Bounds("load"));
    assert_eq!(with(|it| it.mss_bytes = 63), Impossible::Bounds("mss"));
    assert_eq!(with(|it| it.elephants = 0), Impossible::Bounds("elephants"));
    assert_eq!(Network::PAPER.check(), Ok(()));
}

fn host(network: &Network, hz: u64, scale: u64) -> HostPlan {
    HostPlan::new(network, &plan(network), Timers { hz, scale }).unwrap()
}

#[test]
fn linux_timers_round_the_plan() {
    let paper = Network::PAPER;
    let of = |hz, scale| {
        let it = host(&paper, hz, scale);
        (it.rto_jiffies, it.granularity_jiffies, it.queues)
    };
    assert_eq!(of(1_000, 1), (11, 1, 7));
    assert_eq!(of(1_000, 5), (60, 1, 4));
    assert_eq!(of(1_000, 100), (1_162, 64, 6));
    assert_eq!(of(250, 1), (2, 1, 19));
    let scaled = host(&paper, 1_000, 5);
    assert_eq!(scaled.jiffy_ns, 200 * US);
    assert_eq!(scaled.rto_min_us, 59_000);
    assert_eq!(scaled.most_elephants, 37);
    let (scale, best) = HostPlan::best_scale(&paper, &plan(&paper), 1_000).unwrap();
    assert_eq!((scale, best), (5, scaled));
}

#[test]
fn a_week_shorter_than_a_jiffy_has_no_timer() {
    let of = |hz, scale| {
        let network = network(240, 20, 60, 55, 8);
        HostPlan::new(&network, &plan(&network), Timers { hz, scale })
    };
    // 1.345 ms of silence: one jiffy of 1 ms plus its lateness.
    assert_eq!(of(1_000, 1), None);
    // Two jiffies: 500 us of the network, and srtt.
    assert_eq!(of(1_000, 2), None);
    assert_eq!(of(1_000, 3).unwrap().rto_jiffies, 3);
    assert_eq!(of(0, 1), None);
    assert_eq!(of(u64::MAX, 2), None);
}

#[test]
fn the_largest_networks_do_not_saturate() {
    let mut longest = Network {
        day_ns: NS_PER_S,
        night_ns: NS_PER_S,
        racks: 1_024,
        ..Network::PAPER
    };
    // Units of 1/10^7 ns: the week has 2.0e19.
    assert_eq!(host(&longest, 10_000, 1_000).queues, 972);
    assert!(host(&longest, 1_000, 1).rto_min_us > MAX_RTO_US);
    longest = Network {
        night_ns: 0,
        racks: 3,
        packet_rtt_ns: US,
        circuit_rtt_ns: US,
        circuit_bytes_per_s: MAX_BYTES_PER_S,
        mss_bytes: 65_535,
        elephants: 4_096,
        ..longest
    };
    assert_eq!(plan(&longest).offered_bytes, 415_686_227_527_680_000_000);
}

#[test]
fn a_timer_is_as_coarse_as_its_bucket() {
    // From calc_wheel_index(): level 0 up to 62 jiffies, then 503, 4031.
    assert_eq!(longest_timer(0), None);
    assert_eq!(longest_timer(1), None);
    assert_eq!(longest_timer(2), Some((1, 1)));
    assert_eq!(longest_timer(63), Some((62, 1)));
    assert_eq!(longest_timer(70), Some((62, 1)));
    assert_eq!(longest_timer(71), Some((63, 8)));
    assert_eq!(longest_timer(511), Some((503, 8)));
    assert_eq!(longest_timer(567), Some((503, 8)));
    assert_eq!(longest_timer(568), Some((504, 64)));
    assert_eq!(longest_timer(5_000), Some((4_488, 512)));
}

/// An exact fraction, for a reference that shares no code with the integers above.
#[derive(Clone, Copy)]
struct Ratio(u128, u128);

impl Ratio {
    /// Compares with a whole number.
    fn cmp(self, whole: u128) -> Ordering {
        self.0.cmp(&(whole * self.1))
    }

    /// Returns the number, rounded up.
    fn ceil(self) -> u128 {
        let near = self.0 / self.1;
        (near.saturating_sub(1)..=near + 1)
            .find(|whole| self.cmp(*whole) != Ordering::Greater)
            .unwrap()
    }

    /// Returns the number, rounded down.
    fn floor(self) -> u128 {
        let near = self.0 / self.1;
        (near.saturating_sub(1)..=near + 1)
            .rfind(|whole| self.cmp(*whole) != Ordering::Less)
            .unwrap()
    }
}

/// Solves (4) by trial.
fn model_accelerated(n: u128) -> Option<u128> {
    (1..64).find(|m| (1 << (m - 1)) < n && n <= (1 << m))
}

#[test]
fn plans_match_rational_arithmetic() {
    let mut rng = Rng::new(10);
    let mut planned = 0;
    for _ in 0..1_000_000 {
        let scale = |rng: &mut Rng| rng.pick(&[1, 1, 10, 1_000, 50_000]);
        let network = Network {
            day_ns: rng.within(1_000, 20_000) * scale(&mut rng),
            night_ns: rng.within(0, 20_000) * scale(&mut rng),
            racks: rng.within(2, 1_024),
            packet_rtt_ns: rng.within(1_000, 20_000) * scale(&mut rng),
            circuit_rtt_ns: rng.within(1_000, 20_000),
            packet_bytes_per_s: rng.within(1, 100_000_000_000),
            circuit_bytes_per_s: rng.within(1, 100_000_000_000),
            load_ppm: rng.within(0, PPM),
            mss_bytes: rng.within(64, 65_535),
            queue_bytes: rng.within(2_000, 1_000_000_000),
            priority_bytes: rng.within(2_000, 2_000_000_000),
            elephants: rng.within(1, 4_096),
        };
        let of = |field: u64| u128::from(field);
        let n = Ratio(of(network.day_ns), of(network.circuit_rtt_ns)).floor();
        let plan = Plan::new(&network);
        let Some(m) = model_accelerated(n) else {
            assert_eq!(plan, Err(Impossible::ShortDay));
            continue;
        };
        let slot = of(network.day_ns) + of(network.night_ns);
        let lead = (m + 1) * of(network.packet_rtt_ns);
        let week = (of(network.racks) - 1) * slot;
        if week <= of(network.day_ns) + lead {
            assert_eq!(plan, Err(Impossible::ShortWeek));
            continue;
        }
        let plan = plan.unwrap();
        planned += 1;
        assert_eq!(of(plan.round_trips_per_day), n);
        assert_eq!(of(plan.accelerated_round_trips), m);
        assert_eq!(of(plan.queues), Ratio(lead, slot).ceil() + 2);
        assert_eq!(of(plan.rto_min_ns), week - of(network.day_ns) - lead);
        let segments = n * (1 << m) + n * (n - 1) / 2;
        assert_eq!(of(plan.day_segments), segments);
        let window = (1 << m) * of(network.mss_bytes);
        assert_eq!(
            of(plan.most_elephants),
            Ratio(of(network.queue_bytes), window).floor()
        );
        let offered = of(network.elephants) * of(network.mss_bytes);
        let most = of(u64::MAX);
        assert_eq!(plan.offered_bytes, offered * segments);
        let accelerated = Ratio(offered * ((1 << m) - 1) * 1_000_000_000, slot).floor();
        assert_eq!(of(plan.accelerated_bytes_per_s), most.min(accelerated));
        // The code rounds down twice.
        let needed = Ratio(
            of(network.circuit_bytes_per_s) * of(network.day_ns) * ((1 << m) - 1),
            slot * segments,
        );
        assert!(needed.floor() - of(plan.needed_bytes_per_s) <= 1);
        let spare = Ratio(
            of(network.packet_bytes_per_s) * of(PPM - network.load_ppm),
            of(PPM),
        );
        assert_eq!(of(plan.spare_bytes_per_s), spare.floor());
        check_host(&network, &plan, lead, &mut rng);
    }
    assert!(planned > 500_000, "{planned}");
}

/// Checks the conditions of rule R12.
fn check_host(network: &Network, plan: &Plan, lead: u128, rng: &mut Rng) {
    let (hz, scale) = (
        rng.pick(&[24, 100, 250, 300, 1_000, 10_000]),
        rng.within(1, 100) * rng.pick(&[1, 1, 10]),
    );
    let Some(host) = HostPlan::new(network, plan, Timers { hz, scale }) else {
        return;
    };
    let second = u128::from(NS_PER_S);
    let per_jiffy = u128::from(hz) * u128::from(scale);
    let of = |field: u64| u128::from(field);
    // No flow resumes after its acceleration is due, but the next longer timer could.
    let silent = (of(plan.rto_min_ns) - of(network.circuit_rtt_ns)) * per_jiffy;
    let fires = |rto: u128, granularity: u128| (rto + granularity) * second;
    let granularity = |rto: u64| match rto {
        0..63 => 1,
        63..504 => 8,
        504..4_032 => 64,
        4_032..32_256 => 512,
        32_256..258_048 => 4_096,
        _ => 32_768,
    };
    // Nor at the end of a level that is missing above.
    if host.rto_jiffies < 258_048 * 8 - 1 {
        assert_eq!(of(host.granularity_jiffies), granularity(host.rto_jiffies));
        assert!(fires(of(host.rto_jiffies), of(host.granularity_jiffies)) <= silent);
        let longer = host.rto_jiffies + 1;
        assert!(fires(of(longer), granularity(longer)) > silent);
    }
    // The calendar reaches back to the earliest of them, except for the part of a jiffy.
    let early = silent / second * second - of(host.rto_jiffies) * second;
    let before = (lead + of(network.circuit_rtt_ns)) * per_jiffy + early;
    assert_eq!(
        of(host.queues),
        Ratio(before, of(network.slot_ns()) * per_jiffy).ceil() + 2
    );
    assert!(host.queues >= plan.queues && host.most_elephants <= plan.most_elephants);
    let srtt = Ratio(of(network.packet_rtt_ns) * per_jiffy, second).ceil();
    let rto_min = (of(host.rto_jiffies) - srtt) * 1_000_000 / of(hz);
    assert_eq!(of(host.rto_min_us), rto_min);
}
