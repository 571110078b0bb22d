// SPDX-License-Identifier: GPL-2.0

//! Choosers: which path the next packet takes.
//!
//! A path is known by its entropy value, a number below 2^14 that becomes the outer UDP source port, which
//! switches hash. A chooser learns of each packet's fate by its entropy. Sources: Bonato et al., "Uno:
//! A One-Stop Solution for Inter- and Intra-Data Center Congestion Control and Reliable Connectivity",
//! SC 2025, section 4.2 and Algorithm 2; Bonato et al., "REPS: Recycled Entropy Packet Spraying", section 2
//! and Algorithm 1; and the simulators of both. "Rule P n" is docs/unorc.md's.

use super::random::Random;

/// Entropy values are below this.
pub const VALUES: u16 = 1 << 14;
/// Those that `ops`, `reps`, `reps-paper` and `bitmap` draw from: a power of two.
pub const SPRAYED: usize = 256;

const SPRAYED_MASK: u16 = (SPRAYED as u16).wrapping_sub(1);

/// `unolb`: paths of a channel.
const SUBFLOWS: usize = 10;
/// `reps`: entropies that are remembered.
const SLOTS: usize = 8;
/// `reps`: random packets after a frozen time.
const EXPLORED: u8 = 16;
/// `reps`: how long nothing but what is remembered is used.
const FROZEN_US: u64 = 10_000;
/// `plb`: congested rounds until the path changes.
const PLB_ROUNDS: u8 = 2;
/// `bitmap`: what a timeout counts, and the most that a value has against it.
const MAX_PENALTY: u8 = 15;

/// How paths are chosen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// One path.
    #[default]
    Ecmp,
    /// Each packet at random.
    Rps,
    /// All values in turn, in an order that changes.
    Ops,
    /// One path until it is congested for two rounds.
    Plb,
    /// Ten paths in turn; those that say nothing when a loss is known are replaced.
    Unolb,
    /// What came back unmarked is used again, with frozen times.
    Reps,
    /// The same as in the paper's first version: values are cached, without end and without frozen times.
    RepsPaper,
    /// All values in turn but those that have a penalty.
    Bitmap,
}

impl Kind {
    /// Every one, by its number.
    pub const ALL: [Kind; 8] = [
        Kind::Ecmp,
        Kind::Rps,
        Kind::Ops,
        Kind::Plb,
        Kind::Unolb,
        Kind::Reps,
        Kind::RepsPaper,
        Kind::Bitmap,
    ];

    /// As a person writes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ecmp => "ecmp",
            Kind::Rps => "rps",
            Kind::Ops => "ops",
            Kind::Plb => "plb",
            Kind::Unolb => "unolb",
            Kind::Reps => "reps",
            Kind::RepsPaper => "reps-paper",
            Kind::Bitmap => "bitmap",
        }
    }

    /// The one of that number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What makes `reps` freeze: the code has a timeout of the transport, a reported hole is what its
/// timer would have found. Rule P8.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Freeze {
    /// A loss or a timeout.
    #[default]
    Loss,
    /// A timeout.
    Timeout,
    /// Nothing.
    Off,
}

impl Freeze {
    /// Every one, by its number.
    pub const ALL: [Freeze; 3] = [Freeze::Loss, Freeze::Timeout, Freeze::Off];

    /// The one of that number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// A packet came without a mark.
    Good(u16),
    /// A packet came with a mark.
    Marked(u16),
    /// A packet did not come: a block that could not be read (NACK), or a hole in one that could.
    Lost {
        /// Its entropy.
        ev: u16,
        /// The block could not be read.
        is_nack: bool,
    },
    /// Nothing was heard of a packet for too long.
    Timeout(u16),
}

/// When it is, and what the transport has measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    /// Now.
    pub now_us: u64,
    /// Shortest RTT.
    pub min_rtt_us: u32,
    /// Time after which the transport sends again.
    pub rto_us: u32,
    /// Packets that fit into the path: bandwidth by delay.
    pub bdp_packets: u32,
}

impl Time {
    fn since(&self, then_us: u64) -> u64 {
        self.now_us.saturating_sub(then_us)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Subflow {
    ev: u16,
    rerouted_us: u64,
    echoed_us: u64,
    sent_us: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    ev: u16,
    is_valid: bool,
}

/// The state of a channel's chooser. All zeroes is its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Paths {
    kind: Kind,
    freeze: Freeze,
    is_begun: bool,
    /// `ecmp` and `plb`: the one in use.
    ev: u16,
    /// `ops`, `bitmap`: packets. `reps-paper`: values never used. `unolb`: the next subflow.
    counter: u16,
    /// `ops`, `bitmap`: what the counter is mixed with.
    mix: u16,

    // `plb`.
    round_us: u64,
    echoes: u32,
    marked: u32,
    rounds: u8,
    rerouted_us: u64,

    subflows: [Subflow; SUBFLOWS],

    // `reps`.
    slots: [Slot; SLOTS],
    head: u8,
    count: u8,
    explore: u8,
    is_frozen: bool,
    frozen_at: u8,
    thaw_us: u64,

    /// `reps-paper`: a ring of those that came back.
    cached: [u16; SPRAYED],
    first_cached: u16,
    cached_count: u16,
    /// `reps-paper`: how many were sent.
    sent: u32,

    /// `bitmap`.
    penalties: [u8; SPRAYED],
    /// Times that a path was given up.
    reroutes: u64,
    /// Times that `reps` froze.
    freezes: u64,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            kind: Kind::Ecmp,
            freeze: Freeze::Loss,
            is_begun: false,
            ev: 0,
            counter: 0,
            mix: 0,
            round_us: 0,
            echoes: 0,
            marked: 0,
            rounds: 0,
            rerouted_us: 0,
            subflows: [Subflow::default(); SUBFLOWS],
            slots: [Slot::default(); SLOTS],
            head: 0,
            count: 0,
            explore: 0,
            is_frozen: false,
            frozen_at: 0,
            thaw_us: 0,
            cached: [0; SPRAYED],
            first_cached: 0,
            cached_count: 0,
            sent: 0,
            penalties: [0; SPRAYED],
            reroutes: 0,
            freezes: 0,
        }
    }
}

/// A value at random, of all.
pub fn any_value(rng: &mut Random) -> u16 {
    (rng.next_u32() as u16) & VALUES.wrapping_sub(1)
}

/// A value at random, of those that are sprayed.
fn any_sprayed(rng: &mut Random) -> u16 {
    (rng.next_u32() as u16) & SPRAYED_MASK
}

impl Paths {
    /// Begins anew.
    pub fn begin(&mut self, kind: Kind, freeze: Freeze) {
        *self = Self {
            kind,
            freeze,
            reroutes: self.reroutes,
            freezes: self.freezes,
            ..Self::default()
        };
    }

    /// Times that a path was given up.
    pub fn reroutes(&self) -> u64 {
        self.reroutes
    }

    /// Times that `reps` froze.
    pub fn freezes(&self) -> u64 {
        self.freezes
    }

    /// The entropy of the next packet.
    pub fn next(&mut self, time: &Time, rng: &mut Random) -> u16 {
        if !self.is_begun {
            self.is_begun = true;
            self.ev = any_value(rng);
            for subflow in &mut self.subflows {
                subflow.ev = any_value(rng);
            }
        }
        match self.kind {
            Kind::Ecmp | Kind::Plb => self.ev,
            Kind::Rps => any_value(rng),
            Kind::Ops => self.next_in_turn(rng),
            Kind::Unolb => self.next_subflow(time),
            Kind::Reps => self.next_recycled(rng),
            Kind::RepsPaper => self.next_cached(time),
            Kind::Bitmap => self.next_without_penalty(rng),
        }
    }

    /// Rule P2.
    fn next_in_turn(&mut self, rng: &mut Random) -> u16 {
        let turn = self.counter & SPRAYED_MASK;
        if turn == 0 {
            self.mix = any_sprayed(rng);
        }
        self.counter = self.counter.wrapping_add(1);
        turn ^ self.mix
    }

    /// Rule P4.
    fn next_subflow(&mut self, time: &Time) -> u16 {
        let turn = usize::from(self.counter);
        self.counter = match turn.saturating_add(1) {
            SUBFLOWS.. => 0,
            next => next as u16,
        };
        let Some(subflow) = self.subflows.get_mut(turn) else {
            return 0;
        };
        subflow.sent_us = time.now_us;
        subflow.ev
    }

    /// Rule P5.
    fn next_recycled(&mut self, rng: &mut Random) -> u16 {
        if self.explore > 0 {
            self.explore = self.explore.saturating_sub(1);
            return any_sprayed(rng);
        }
        if self.is_frozen {
            let known = self.slots.get_mut(..usize::from(self.count));
            if let Some(slot) = known.and_then(|slots| slots.get_mut(usize::from(self.frozen_at))) {
                slot.is_valid = false;
                let next = self.frozen_at.saturating_add(1);
                self.frozen_at = if next < self.count { next } else { 0 };
                return slot.ev;
            }
            return any_sprayed(rng);
        }
        let (newer, older) = self.slots.split_at_mut(usize::from(self.head).min(SLOTS));
        match older.iter_mut().chain(newer).find(|slot| slot.is_valid) {
            Some(slot) => {
                slot.is_valid = false;
                slot.ev
            }
            None => any_sprayed(rng),
        }
    }

    /// Rule P6.
    fn next_cached(&mut self, time: &Time) -> u16 {
        let first = time.bdp_packets.min(SPRAYED as u32);
        if self.sent >= first && self.cached_count > 0 {
            let at = usize::from(self.first_cached & SPRAYED_MASK);
            self.first_cached = self.first_cached.wrapping_add(1);
            self.cached_count = self.cached_count.saturating_sub(1);
            return self.cached.get(at).copied().unwrap_or(0);
        }
        self.sent = self.sent.saturating_add(1);
        let ev = self.counter & SPRAYED_MASK;
        self.counter = self.counter.wrapping_add(1);
        ev
    }

    /// Rule P7.
    fn next_without_penalty(&mut self, rng: &mut Random) -> u16 {
        let mut was_lessened = false;
        for _ in 0..SPRAYED {
            let ev = self.next_in_turn(rng);
            match self.penalties.get_mut(usize::from(ev)) {
                Some(penalty) if *penalty > 0 => {
                    if !was_lessened {
                        *penalty = penalty.saturating_sub(1);
                        was_lessened = true;
                    }
                }
                _ => return ev,
            }
        }
        self.next_in_turn(rng)
    }

    /// Something became known.
    pub fn event(&mut self, time: &Time, rng: &mut Random, event: Event) {
        match self.kind {
            Kind::Ecmp | Kind::Rps | Kind::Ops => {}
            Kind::Plb => self.plb_event(time, rng, event),
            Kind::Unolb => self.unolb_event(time, rng, event),
            Kind::Reps => self.reps_event(time, event),
            Kind::RepsPaper => self.cache_event(event),
            Kind::Bitmap => self.bitmap_event(event),
        }
    }

    /// Rule P3.
    fn plb_event(&mut self, time: &Time, rng: &mut Random, event: Event) {
        let is_marked = match event {
            Event::Good(_) => false,
            Event::Marked(_) => true,
            Event::Lost { is_nack: false, .. } => return,
            Event::Lost { .. } | Event::Timeout(_) => {
                if self.rerouted_us == 0 || time.since(self.rerouted_us) > time.rto_us.into() {
                    self.plb_reroute(time, rng);
                }
                return;
            }
        };
        self.echoes = self.echoes.saturating_add(1);
        self.marked = self.marked.saturating_add(is_marked.into());
        if time.since(self.round_us) < time.min_rtt_us.into() {
            return;
        }
        // A quarter.
        let is_congested = self.marked.saturating_mul(4) > self.echoes;
        self.rounds = match is_congested {
            true => self.rounds.saturating_add(1),
            false => 0,
        };
        self.round_us = time.now_us;
        self.echoes = 0;
        self.marked = 0;
        if self.rounds >= PLB_ROUNDS {
            self.plb_reroute(time, rng);
        }
    }

    fn plb_reroute(&mut self, time: &Time, rng: &mut Random) {
        self.ev = any_value(rng);
        self.rounds = 0;
        self.rerouted_us = time.now_us;
        self.reroutes = self.reroutes.wrapping_add(1);
    }

    /// Rule P4.
    fn unolb_event(&mut self, time: &Time, rng: &mut Random, event: Event) {
        match event {
            Event::Good(ev) | Event::Marked(ev) => {
                for subflow in self.subflows.iter_mut().filter(|subflow| subflow.ev == ev) {
                    subflow.echoed_us = time.now_us;
                }
            }
            Event::Lost { is_nack: false, .. } => {}
            Event::Lost { .. } | Event::Timeout(_) => {
                let min_rtt_us = u64::from(time.min_rtt_us);
                for subflow in &mut self.subflows {
                    let is_silent = time.since(subflow.rerouted_us) > min_rtt_us
                        && time.since(subflow.echoed_us) > min_rtt_us >> 1;
                    if is_silent && subflow.sent_us > subflow.echoed_us {
                        subflow.ev = any_value(rng);
                        subflow.rerouted_us = time.now_us;
                        self.reroutes = self.reroutes.wrapping_add(1);
                    }
                }
            }
        }
    }

    /// Rules P5 and P8.
    fn reps_event(&mut self, time: &Time, event: Event) {
        let is_loss = match self.freeze {
            Freeze::Loss => matches!(event, Event::Timeout(_) | Event::Lost { .. }),
            Freeze::Timeout => matches!(event, Event::Timeout(_)),
            Freeze::Off => false,
        };
        if is_loss && !self.is_frozen && self.explore == 0 {
            self.is_frozen = true;
            self.thaw_us = time.now_us.saturating_add(FROZEN_US);
            self.freezes = self.freezes.wrapping_add(1);
        }
        if self.is_frozen && time.now_us > self.thaw_us {
            self.is_frozen = false;
            self.slots = [Slot::default(); SLOTS];
            self.head = 0;
            self.count = 0;
            self.frozen_at = 0;
            self.explore = EXPLORED;
        }
        if let Event::Good(ev) = event {
            if let Some(slot) = self.slots.get_mut(usize::from(self.head)) {
                *slot = Slot { ev, is_valid: true };
            }
            let next = self.head.saturating_add(1);
            self.head = if usize::from(next) < SLOTS { next } else { 0 };
            if usize::from(self.count) < SLOTS {
                self.count = self.count.saturating_add(1);
            }
        }
    }

    /// Rule P6.
    fn cache_event(&mut self, event: Event) {
        let Event::Good(ev) = event else {
            return;
        };
        if usize::from(self.cached_count) >= SPRAYED {
            return;
        }
        let at = self.first_cached.wrapping_add(self.cached_count) & SPRAYED_MASK;
        if let Some(cell) = self.cached.get_mut(usize::from(at)) {
            *cell = ev;
            self.cached_count = self.cached_count.saturating_add(1);
        }
    }

    /// Rule P7.
    fn bitmap_event(&mut self, event: Event) {
        let (ev, penalty) = match event {
            Event::Good(_) => return,
            Event::Marked(ev) => (ev, 1),
            Event::Lost { ev, .. } => (ev, 4),
            Event::Timeout(ev) => (ev, MAX_PENALTY),
        };
        if let Some(cell) = self.penalties.get_mut(usize::from(ev)) {
            *cell = cell.saturating_add(penalty).min(MAX_PENALTY);
        }
    }
}

#[cfg(test)]
#[path = "tests/paths.rs"]
mod tests;
