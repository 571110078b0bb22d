// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;
use std::collections::{HashMap, VecDeque};

/// Reference of docs/unorc.md's rules, with lists in place of counters.
struct Model {
    kind: Kind,
    freeze: Freeze,
    begun: bool,
    one: u16,
    ten: Vec<(u16, u64, u64, u64)>,
    turn: usize,
    order: Vec<u16>,
    since: (u64, Vec<bool>),
    bad_rounds: u32,
    changed: Option<u64>,
    /// The last eight returned values, newest last, with their validity.
    eight: [Option<(u16, bool)>; 8],
    written: usize,
    exploring: u32,
    frozen: Option<u64>,
    cursor: usize,
    cache: VecDeque<u16>,
    fresh: u32,
    held: HashMap<u16, u32>,
}

impl Model {
    fn new(kind: Kind, freeze: Freeze) -> Self {
        Model {
            kind,
            freeze,
            begun: false,
            one: 0,
            ten: Vec::new(),
            turn: 0,
            order: Vec::new(),
            since: (0, Vec::new()),
            bad_rounds: 0,
            changed: None,
            eight: [None; 8],
            written: 0,
            exploring: 0,
            frozen: None,
            cursor: 0,
            cache: VecDeque::new(),
            fresh: 0,
            held: HashMap::new(),
        }
    }

    fn in_order(&mut self, rng: &mut Random) -> u16 {
        if self.order.is_empty() {
            let mix = (rng.next_u32() % 256) as u16;
            self.order = (0..256).rev().map(|i| i ^ mix).collect();
        }
        self.order.pop().unwrap()
    }

    fn next(&mut self, now_us: u64, rng: &mut Random) -> u16 {
        if !self.begun {
            self.begun = true;
            self.one = (rng.next_u32() % 16_384) as u16;
            self.ten = (0..10)
                .map(|_| ((rng.next_u32() % 16_384) as u16, 0, 0, 0))
                .collect();
        }
        match self.kind {
            Kind::Ecmp | Kind::Plb => self.one,
            Kind::Rps => (rng.next_u32() % 16_384) as u16,
            Kind::Ops => self.in_order(rng),
            Kind::Unolb => {
                let subflow = &mut self.ten[self.turn % 10];
                self.turn += 1;
                subflow.3 = now_us;
                subflow.0
            }
            Kind::Reps => {
                if self.exploring > 0 {
                    self.exploring -= 1;
                } else if self.frozen.is_some() {
                    let known = self.written.min(8);
                    if known > 0 {
                        let slot = self.eight[self.cursor].as_mut().unwrap();
                        slot.1 = false;
                        self.cursor = (self.cursor + 1) % known;
                        return slot.0;
                    }
                } else {
                    let oldest = self.written.saturating_sub(8);
                    for write in oldest..self.written {
                        let slot = self.eight[write % 8].as_mut().unwrap();
                        if slot.1 {
                            slot.1 = false;
                            return slot.0;
                        }
                    }
                }
                (rng.next_u32() % 256) as u16
            }
            Kind::RepsPaper => {
                let is_warm = self.fresh >= 256;
                if let Some(ev) = is_warm.then(|| self.cache.pop_front()).flatten() {
                    return ev;
                }
                self.fresh += 1;
                ((self.fresh - 1) % 256) as u16
            }
            Kind::Bitmap => {
                let mut first = true;
                for _ in 0..256 {
                    let ev = self.in_order(rng);
                    let against = self.held.entry(ev).or_default();
                    if *against == 0 {
                        return ev;
                    }
                    *against -= u32::from(first);
                    first = false;
                }
                self.in_order(rng)
            }
        }
    }

    /// Returns the replaced paths.
    fn event(&mut self, time: &Time, rng: &mut Random, ev: u16, fate: Fate) -> u32 {
        let mut replaced = 0;
        let now = time.now_us;
        let min_rtt = u64::from(time.min_rtt_us);
        let is_failure = matches!(fate, Fate::Nack | Fate::Timeout);
        match self.kind {
            Kind::Ecmp | Kind::Rps | Kind::Ops => {}
            Kind::Plb => {
                let mut reroute = false;
                if is_failure {
                    reroute = self.changed.is_none_or(|at| now - at > time.rto_us.into());
                } else if let Fate::Good | Fate::Marked = fate {
                    self.since.1.push(fate == Fate::Marked);
                    if now - self.since.0 >= min_rtt {
                        let (_, echoes) = std::mem::replace(&mut self.since, (now, Vec::new()));
                        let marked = echoes.iter().filter(|&&marked| marked).count();
                        let fraction = marked as f64 / echoes.len() as f64;
                        self.bad_rounds = if fraction > 0.25 {
                            self.bad_rounds + 1
                        } else {
                            0
                        };
                        reroute = self.bad_rounds == 2;
                    }
                }
                if reroute {
                    self.one = (rng.next_u32() % 16_384) as u16;
                    self.bad_rounds = 0;
                    self.changed = Some(now);
                    replaced += 1;
                }
            }
            Kind::Unolb => {
                if let Fate::Good | Fate::Marked = fate {
                    for subflow in &mut self.ten {
                        if subflow.0 == ev {
                            subflow.2 = now;
                        }
                    }
                } else if is_failure || fate == Fate::Unheard {
                    for (ev, rerouted, echoed, sent) in &mut self.ten {
                        let settled = now - *rerouted > min_rtt;
                        let silent = now - *echoed > min_rtt / 2 && *sent > *echoed;
                        if settled && silent {
                            *ev = (rng.next_u32() % 16_384) as u16;
                            *rerouted = now;
                            replaced += 1;
                        }
                    }
                }
            }
            Kind::Reps => {
                let freezes = match self.freeze {
                    Freeze::Loss => matches!(fate, Fate::Lost | Fate::Nack | Fate::Timeout),
                    Freeze::Timeout => fate == Fate::Timeout,
                    Freeze::Off => false,
                };
                if freezes && self.frozen.is_none() && self.exploring == 0 {
                    self.frozen = Some(now + 10_000);
                }
                if self.frozen.is_some_and(|until| now > until) {
                    self.frozen = None;
                    self.eight = [None; 8];
                    self.written = 0;
                    self.cursor = 0;
                    self.exploring = 16;
                }
                if fate == Fate::Good {
                    self.eight[self.written % 8] = Some((ev, true));
                    self.written += 1;
                }
            }
            Kind::RepsPaper => match fate {
                Fate::Good if self.cache.len() < 256 => self.cache.push_back(ev),
                _ => {}
            },
            Kind::Bitmap => {
                let penalty = match fate {
                    Fate::Good | Fate::Unheard => 0,
                    Fate::Marked => 1,
                    Fate::Lost | Fate::Nack => 4,
                    Fate::Timeout => 15,
                };
                let against = self.held.entry(ev).or_default();
                *against = (*against + penalty).min(15);
            }
        }
        replaced
    }
}

/// Applies `events` to the module and the reference. Returns the numbers of replaced paths and freezes.
fn are_one(kind: Kind, freeze: Freeze, events: u32, seed: u64) -> (u32, u32) {
    let mut paths = Paths::new(kind, freeze);
    let (mut reroutes, mut freezes) = (0, 0);
    let mut model = Model::new(kind, freeze);
    let (mut ours, mut theirs) = (Random::new(seed), Random::new(seed));
    let mut rng = Rng::new(seed);
    let mut time = Time {
        now_us: 1_000_000,
        min_rtt_us: 14,
        rto_us: 2_000,
    };
    let mut out = VecDeque::new();
    // Alternates between phases with few and many failures.
    let mut bad = 1;
    for n in 0..events {
        if n % 1_000 == 0 {
            bad = rng.pick(&[0, 1, 3, 30]);
            time.min_rtt_us = rng.pick(&[14, 2_000]);
        }
        time.now_us += rng.within(0, 20);
        if rng.percent(50) || out.is_empty() {
            let ev = paths.next(time.now_us, &mut ours);
            assert_eq!(ev, model.next(time.now_us, &mut theirs), "{kind:?} at {n}");
            assert!(ev < VALUES);
            out.push_back(ev);
            continue;
        }
        let ev = out.pop_front().unwrap();
        let (ev, fate) = match rng.percent(bad) {
            false if rng.percent(bad * 3) => (ev, Fate::Marked),
            false => (ev, Fate::Good),
            true if rng.percent(20) => (ev, Fate::Timeout),
            true if rng.percent(20) => (0, Fate::Unheard),
            true if rng.percent(50) => (ev, Fate::Nack),
            true => (ev, Fate::Lost),
        };
        let was_frozen = paths.thaw_us() != 0;
        let replaced = paths.event(&time, &mut ours, ev, fate);
        assert_eq!(replaced, model.event(&time, &mut theirs, ev, fate));
        assert_eq!(paths.thaw_us(), model.frozen.unwrap_or(0));
        reroutes += replaced;
        freezes += u32::from(paths.thaw_us() != 0 && !was_frozen);
    }
    (reroutes, freezes)
}

#[test]
fn every_chooser_matches_its_model() {
    let mut reroutes = 0;
    let mut freezes = 0;
    for kind in Kind::ALL {
        for freeze in Freeze::ALL {
            if kind != Kind::Reps && freeze != Freeze::Loss {
                continue;
            }
            let (rerouted, frozen) = are_one(kind, freeze, 1_000_000, kind as u64);
            reroutes += rerouted;
            freezes += frozen;
            let can_reroute = matches!(kind, Kind::Plb | Kind::Unolb);
            assert_eq!(rerouted > 0, can_reroute);
            let can_freeze = kind == Kind::Reps && freeze != Freeze::Off;
            assert_eq!(frozen > 0, can_freeze);
        }
    }
    assert!(reroutes > 1_000 && freezes > 100, "{reroutes} {freezes}");
}

fn of(kind: Kind) -> (Paths, Random, Time) {
    let paths = Paths::new(kind, Freeze::Loss);
    let time = Time {
        now_us: 1_000,
        min_rtt_us: 100,
        rto_us: 1_000,
    };
    (paths, Random::new(1), time)
}

#[test]
fn names_and_numbers_convert_both_ways() {
    for (number, kind) in (0..).zip(Kind::ALL) {
        assert_eq!((Kind::of(number), kind as u8), (Some(kind), number));
        assert!(
            Kind::ALL
                .iter()
                .filter(|other| other.name() == kind.name())
                .count()
                == 1
        );
    }
    for (number, freeze) in (0..).zip(Freeze::ALL) {
        assert_eq!((Freeze::of(number), freeze as u8), (Some(freeze), number));
    }
    assert_eq!((Kind::of(8), Freeze::of(3)), (None, None));
}

#[test]
fn ops_uses_each_value_once_per_round() {
    let (mut paths, mut rng, time) = of(Kind::Ops);
    for _ in 0..3 {
        let mut seen: Vec<_> = (0..SPRAYED)
            .map(|_| paths.next(time.now_us, &mut rng))
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..SPRAYED as u16));
    }
}

#[test]
fn unolb_replaces_silent_paths_and_keeps_idle_ones() {
    let (mut paths, mut rng, mut time) = of(Kind::Unolb);
    let before: Vec<_> = (0..10).map(|_| paths.next(time.now_us, &mut rng)).collect();
    time.now_us += 10;
    for ev in &before[1..] {
        paths.event(&time, &mut rng, *ev, Fate::Good);
    }
    time.now_us += 200;
    assert_eq!(paths.event(&time, &mut rng, before[0], Fate::Nack), 1);
    let after: Vec<_> = (0..10).map(|_| paths.next(time.now_us, &mut rng)).collect();
    assert_ne!(before[0], after[0]);
    assert_eq!(before[1..], after[1..]);
}

#[test]
fn reps_recycles_the_oldest_value_and_reuses_its_cache_while_frozen() {
    let (mut paths, mut rng, mut time) = of(Kind::Reps);
    for ev in [3, 5, 7] {
        paths.event(&time, &mut rng, ev, Fate::Good);
    }
    assert_eq!(paths.next(time.now_us, &mut rng), 3);
    paths.event(&time, &mut rng, 9, Fate::Timeout);
    let frozen: Vec<_> = (0..6).map(|_| paths.next(time.now_us, &mut rng)).collect();
    assert_eq!(frozen, [3, 5, 7, 3, 5, 7]);
    assert_eq!(paths.thaw_us(), time.now_us + FROZEN_US);
    time.now_us += FROZEN_US + 1;
    paths.event(&time, &mut rng, 3, Fate::Marked);
    let found: Vec<_> = (0..16).map(|_| paths.next(time.now_us, &mut rng)).collect();
    assert_ne!(found[..6], [3, 5, 7, 3, 5, 7]);
}
