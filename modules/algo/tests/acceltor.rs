// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;
use std::collections::HashMap;

const US: u64 = 1_000;

fn schedule(racks: u16) -> Schedule {
    Schedule {
        base_ns: 0,
        day_ns: 240 * US,
        night_ns: 20 * US,
        lead_ns: 0,
        racks,
    }
}

fn days(racks: u16) -> NonZeroU64 {
    schedule(racks).days_per_week()
}

#[test]
fn the_calendar_rotates_at_the_start_of_the_night() {
    let at = |now_ns| schedule(50).at(now_ns).unwrap();
    let told = |now_ns| {
        (
            at(now_ns).label,
            at(now_ns).is_day,
            at(now_ns).until_edge_ns,
        )
    };
    assert_eq!(told(0), (0, true, 240 * US));
    assert_eq!(told(240 * US - 1), (0, true, 1));
    assert_eq!(told(240 * US), (1, false, 20 * US));
    assert_eq!(told(260 * US - 1), (1, false, 1));
    assert_eq!(told(260 * US), (1, true, 240 * US));
    assert_eq!(at(241 * US).until_start_ns(1), 19 * US);
    let since = [0, 1, 2].map(|label| at(261 * US).since_start_ns(label));
    assert_eq!(since, [261 * US, US, 0]);
}

#[test]
fn a_packet_must_end_before_the_day() {
    let at = |now_ns| schedule(50).at(now_ns).unwrap();
    assert!(at(239 * US).ends_by_day(US));
    assert!(!at(239 * US).ends_by_day(US + 1));
    assert!(!at(240 * US).ends_by_day(0));
}

#[test]
fn no_day_precedes_the_base_time() {
    let with = |base_ns, lead_ns| Schedule {
        base_ns,
        lead_ns,
        ..schedule(8)
    };
    assert_eq!(with(1_000, 0).at(999), Err(1));
    assert_eq!(with(1_000, 0).at(0), Err(1_000));
    assert_eq!(with(1_000, 0).at(1_000).unwrap().label, 0);
    // The delay to the switch shifts the base time.
    assert_eq!(with(1_000, 400).at(599), Err(1));
    assert_eq!(with(1_000, 400).at(600).unwrap().until_edge_ns, 240 * US);
    // A base time in the past, also at the limits of the type.
    let past = with(-260_000 * 7, 0).at(0).unwrap();
    assert_eq!((past.label, past.is_day), (7, true));
    assert!(with(i64::MIN, 0).at(u64::MAX).is_ok());
    assert_eq!(with(i64::MAX, 0).at(0), Err(i64::MAX as u64));
    let none = Schedule {
        base_ns: 0,
        day_ns: 0,
        night_ns: 0,
        lead_ns: 0,
        racks: 0,
    };
    assert!(!none.at(5).unwrap().is_day);
}

#[test]
fn each_rack_has_a_day_of_the_week() {
    let mut day_of_rack = [0; 5];
    assert!(days_of_racks(2, &[], &mut day_of_rack));
    // peer(2, L) = 3, 4, 0, 1.
    assert_eq!(day_of_rack, [2, 3, NO_DAY, 0, 1]);
    assert!(days_of_racks(2, &[4, 0, 1, 3], &mut day_of_rack));
    assert_eq!(day_of_rack, [1, 2, NO_DAY, 3, 0]);
    for wrong in [&[4, 0, 1][..], &[4, 0, 1, 2], &[4, 0, 1, 5], &[4, 0, 1, 1]] {
        assert!(!days_of_racks(2, wrong, &mut day_of_rack), "{wrong:?}");
    }
}

#[test]
fn the_next_label_of_a_rack_is_within_a_week() {
    let week = days(5);
    assert_eq!(next_label(8, 0, week), 8);
    assert_eq!(next_label(8, 3, week), 11);
    assert_eq!(next_label(9, 0, week), 12);
    assert_eq!(next_label(11, 3, week), 11);
}

/// Returns the place of an elephant whose rack has day `label`, at `now_us`.
fn placed(policy: Policy, now_us: u64, label: u64) -> Place {
    let moment = schedule(50).at(now_us * US).unwrap();
    place(policy, &moment, label, 3, 60 * US)
}

#[test]
fn an_elephant_with_a_circuit_goes_to_its_queue() {
    assert_eq!(placed(Policy::AccelTor, 0, 0), Place::Queue(0));
    assert_eq!(placed(Policy::AccelTor, 239, 0), Place::Queue(0));
}

#[test]
fn an_elephant_is_accelerated_until_a_round_trip_before_its_day() {
    // Day 1 starts at 260 us.
    assert_eq!(placed(Policy::AccelTor, 200, 1), Place::Low);
    let moment = schedule(50).at(200 * US + 1).unwrap();
    assert_eq!(
        place(Policy::AccelTor, &moment, 1, 3, 60 * US),
        Place::Queue(1)
    );
    assert_eq!(placed(Policy::AccelTor, 250, 1), Place::Queue(1));
    // At night the next day's label comes first.
    assert_eq!(placed(Policy::AccelTor, 250, 2), Place::Low);
}

#[test]
fn an_elephant_k_days_before_its_day_is_dropped() {
    assert_eq!(placed(Policy::AccelTor, 239, 2), Place::Low);
    assert_eq!(placed(Policy::AccelTor, 239, 3), Place::Blocked);
    // The calendar rotates at nightfall: one day later it is within K.
    assert_eq!(placed(Policy::AccelTor, 240, 3), Place::Low);
}

#[test]
fn baseline_policies_place_elephants_differently() {
    assert_eq!(placed(Policy::Blocking, 0, 20), Place::Queue(20));
    assert_eq!(placed(Policy::Blocking, 0, 0), Place::Queue(0));
    assert_eq!(placed(Policy::Unblocking, 0, 0), Place::Queue(0));
    assert_eq!(placed(Policy::Unblocking, 250, 1), Place::High);
    assert_eq!(placed(Policy::Unblocking, 0, 20), Place::High);
    assert_eq!(placed(Policy::Packet, 0, 0), Place::High);
}

#[test]
fn queues_are_reused_in_turn() {
    let three = NonZeroU64::new(3).unwrap();
    let labels = |first| [0, 1, 2].map(|index| label_of_queue(index, first, three));
    assert_eq!(labels(0), [0, 1, 2]);
    assert_eq!(labels(1), [3, 1, 2]);
    assert_eq!(labels(5), [6, 7, 5]);
}

/// Reference: counts slots from the start, in 128 bits.
fn model(
    schedule: &Schedule,
    now_ns: u64,
    rack: u64,
    target: u64,
    queues: u64,
    rtt_ns: u64,
) -> Option<(u128, bool, Place)> {
    let slot = i128::from(schedule.day_ns) + i128::from(schedule.night_ns);
    let time = i128::from(now_ns) + i128::from(schedule.lead_ns) - i128::from(schedule.base_ns);
    if time < 0 {
        return None;
    }
    // The first day that has not ended.
    let mut day = (time / slot).saturating_sub(1).max(0);
    while day * slot + i128::from(schedule.day_ns) <= time {
        day += 1;
    }
    let is_day = day * slot <= time;
    let racks = i128::from(schedule.racks);
    let peer = |day: i128| (i128::from(rack) + 1 + day % (racks - 1)) % racks;
    let mut own = day;
    while peer(own) != i128::from(target) {
        own += 1;
    }
    let left = own * slot - time;
    let place = if left <= 0 {
        Place::Queue(own as u64)
    } else if own - day >= i128::from(queues) {
        Place::Blocked
    } else if left >= i128::from(rtt_ns) {
        Place::Low
    } else {
        Place::Queue(own as u64)
    };
    Some((day as u128, is_day, place))
}

#[test]
fn places_match_an_independent_model() {
    let mut rng = Rng::new(21);
    for _ in 0..200_000 {
        let racks = rng.pick(&[2, 3, 8, 50, 72, 128]);
        let schedule = Schedule {
            base_ns: rng.within(0, 4_000_000) as i64 - 2_000_000,
            day_ns: rng.within(1, 300_000),
            night_ns: rng.within(0, 100_000),
            lead_ns: rng.within(0, 20_000),
            racks,
        };
        let week_ns = schedule.week_ns();
        let now_ns = rng.within(0, 3 * week_ns + 4_000_000);
        let rack = rng.within(0, u64::from(racks) - 1);
        let target = (rack + rng.within(1, u64::from(racks) - 1)) % u64::from(racks);
        let (queues, rtt_ns) = (rng.within(1, 6), rng.within(1, 200_000));
        let expected = model(&schedule, now_ns, rack, target, queues, rtt_ns);
        let Ok(moment) = schedule.at(now_ns) else {
            assert!(expected.is_none());
            continue;
        };
        let mut day_of_rack = vec![0; usize::from(racks)];
        assert!(days_of_racks(rack as u16, &[], &mut day_of_rack));
        let day = day_of_rack[target as usize];
        let label = next_label(moment.label, day, schedule.days_per_week());
        let placed = place(Policy::AccelTor, &moment, label, queues, rtt_ns);
        let (first, is_day, place) = expected.unwrap();
        assert_eq!((u128::from(moment.label), moment.is_day), (first, is_day));
        assert_eq!(placed, place, "{schedule:?} {now_ns} {rack} {target}");
        if let Place::Queue(label) = placed {
            assert!(label - moment.label < queues.max(u64::from(racks)));
        }
    }
}

#[test]
fn a_sketch_never_undercounts() {
    let mut rng = Rng::new(3);
    let mut cells = vec![0; Sketch::CELLS];
    let mut sent: HashMap<u64, u32> = HashMap::new();
    let keys: Vec<u64> = (0..20_000).map(|_| rng.next()).collect();
    for _ in 0..1_000_000 {
        let key = keys[(rng.next() % 20_000) as usize];
        let total = sent.entry(key).or_default();
        *total += 1_500;
        assert!(Sketch::add(&mut cells, key, 1_500) >= *total);
    }
    // Overestimates come from the cell's other flows: with 20,000 flows on 3 x 8192 cells nearly all are
    // below four times.
    let over = sent
        .iter()
        .filter(|(key, total)| Sketch::add(&mut cells, **key, 0) > 4 * **total)
        .count();
    assert!(over < 2_000, "{over}");
}

#[test]
fn a_sketch_forgets_half_in_a_period() {
    let period = NonZeroU64::new(56).unwrap();
    let mut cells = vec![1_000; Sketch::CELLS];
    for label in 1..=56 {
        Sketch::forget(&mut cells, label, 1, period);
    }
    assert!(cells.iter().all(|cell| *cell == 500));
    // Days without a call count, too.
    Sketch::forget(&mut cells, 56 * 3, 112, period);
    assert!(cells.iter().all(|cell| *cell == 125));
    Sketch::forget(&mut cells, 56 * 3 + 28, 28, period);
    assert_eq!(
        cells.iter().filter(|cell| **cell == 62).count(),
        Sketch::CELLS / 2
    );
    Sketch::forget(&mut cells, u64::MAX, u64::MAX / 2, period);
    assert!(cells.iter().all(|cell| *cell == 0));
}

struct Owned {
    slots: Vec<Elephant>,
    counts: Vec<u16>,
}

impl Owned {
    fn new(flows: usize, racks: usize) -> Self {
        Self {
            slots: vec![Elephant::default(); Elephants::slots_for(flows)],
            counts: vec![0; racks],
        }
    }

    fn lent(&mut self) -> Elephants<'_> {
        Elephants {
            slots: &mut self.slots,
            counts: &mut self.counts,
        }
    }
}

#[test]
fn the_number_of_elephants_of_a_rack_is_limited() {
    let mut owned = Owned::new(4, 3);
    let mut table = owned.lent();
    assert!(table.insert(1 << 32, 1, 2, 0).is_some());
    assert!(table.insert(2 << 32, 1, 2, 0).is_some());
    assert!(table.insert(3 << 32, 1, 2, 0).is_none());
    assert!(table.insert(3 << 32, 2, 2, 0).is_some());
    assert!(
        table.insert(3 << 32, 2, 2, 0).is_none(),
        "it is an elephant already"
    );
    assert!(table.insert(4 << 32, 3, 2, 0).is_none(), "no such rack");
    assert!(table.insert(0, 2, 2, 0).is_none(), "no key");
    assert!(table.get(0).is_none());
}

#[test]
fn an_idle_elephant_is_removed() {
    let mut owned = Owned::new(4, 2);
    let mut table = owned.lent();
    let one = NonZeroU64::MIN;
    table.insert(1 << 32, 1, 4, 100).unwrap();
    table.insert(2 << 32, 1, 4, 100).unwrap();
    table.get(2 << 32).unwrap().last_ns = 150;
    assert_eq!(table.sweep(0, one, 199, 100), 0);
    assert_eq!(table.sweep(0, one, 200, 100), 1);
    assert!(table.get(1 << 32).is_none());
    assert!(table.get(2 << 32).is_some());
    assert_eq!(table.counts[1], 1);
    // An elephant ages even if the clock was set back.
    assert_eq!(table.sweep(0, one, 10, 100), 0);
    assert_eq!(table.sweep(0, one, 110, 100), 1);
}

#[test]
fn the_table_matches_a_map_under_random_changes() {
    let mut rng = Rng::new(7);
    for _ in 0..50 {
        let racks = rng.within(2, 9);
        let most = rng.within(1, 20) as u16;
        let mut owned = Owned::new(usize::from(most) * racks as usize, racks as usize);
        let mut model: HashMap<u64, (u16, u64)> = HashMap::new();
        let week = NonZeroU64::new(racks - 1).unwrap();
        // Few home slots, so that probe sequences collide.
        let keys: Vec<u64> = (1..200).map(|n| n | rng.within(0, 7) << 32).collect();
        let mut now_ns = 0;
        for step in 0..20_000_u64 {
            now_ns += rng.within(0, 3);
            let mut table = owned.lent();
            let key = rng.pick(&keys);
            match rng.within(0, 3) {
                0 => {
                    let rack = rng.within(0, racks - 1) as u16;
                    let of_rack = model.values().filter(|it| it.0 == rack).count();
                    let fits = of_rack < usize::from(most) && !model.contains_key(&key);
                    assert_eq!(table.insert(key, rack, most, now_ns).is_some(), fits);
                    if fits {
                        model.insert(key, (rack, now_ns));
                    }
                }
                1 | 2 => {
                    let found = table.get(key);
                    assert_eq!(found.is_some(), model.contains_key(&key));
                    if let (Some(found), Some(known)) = (found, model.get_mut(&key)) {
                        assert_eq!(found.last_ns, known.1);
                        (found.last_ns, known.1) = (now_ns, now_ns);
                    }
                }
                _ => {
                    // After a week every elephant was due once, and moved ones up to twice.
                    let mut evicted = 0;
                    for day in 0..week.get() {
                        evicted += table.sweep(step + day, week, now_ns, 400);
                    }
                    let before = model.len();
                    let is_left = |key: &u64, table: &mut Elephants<'_>| table.get(*key).is_some();
                    model.retain(|key, it| {
                        let stays = is_left(key, &mut table);
                        assert!(stays || now_ns - it.1 >= 400);
                        stays
                    });
                    assert_eq!((before - model.len()) as u64, evicted);
                }
            }
        }
        let counted: usize = owned.counts.iter().map(|count| usize::from(*count)).sum();
        assert_eq!(counted, model.len());
    }
}
