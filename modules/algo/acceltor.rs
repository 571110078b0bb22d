// SPDX-License-Identifier: GPL-2.0

//! AccelToR's rules: where a packet goes, and which flows are elephants. Source: "AccelToR: Accelerating
//! TCP for Circuit/Packet Hybrid Data Centers with Packet Scheduling", sections II-B, III-B, III-C and III-G,
//! and Algorithm 1.
//!
//! The circuits are a function of time alone: day d lasts from base + d S to base + d S + T, and the night
//! after it to base + (d + 1) S. The calendar rotates as a night starts, so that the label of time t is that of
//! the day which lasts or which is next.

use core::num::NonZeroU64;

/// Which rack each day of the week belongs to, and when days are.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// When day 0 starts, at the circuit switch.
    pub base_ns: i64,
    /// T.
    pub day_ns: u64,
    /// G.
    pub night_ns: u64,
    /// How much earlier a packet leaves here than it is at the circuit switch.
    pub lead_ns: u64,
    /// N.
    pub racks: u16,
}

/// A moment of the schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// Of the day that lasts, or by night of the next one.
    pub label: u64,
    /// The circuit is there.
    pub is_day: bool,
    /// Until the day ends or the next one starts, whichever comes first.
    pub until_edge_ns: u64,
    /// Since day 0 began.
    elapsed_ns: u64,
    slot_ns: u64,
}

impl Schedule {
    /// S, which is not 0.
    fn slot_ns(&self) -> NonZeroU64 {
        let slot_ns = self.day_ns.saturating_add(self.night_ns);
        NonZeroU64::new(slot_ns).unwrap_or(NonZeroU64::MIN)
    }

    /// Days of a week, which are not 0.
    pub fn days_per_week(&self) -> NonZeroU64 {
        let days = u64::from(self.racks).saturating_sub(1);
        NonZeroU64::new(days).unwrap_or(NonZeroU64::MIN)
    }

    /// W.
    pub fn week_ns(&self) -> u64 {
        let days = self.days_per_week().get();
        self.slot_ns().get().saturating_mul(days)
    }

    /// The moment at `now_ns` of the clock, or how long it is until there is one.
    pub fn at(&self, now_ns: u64) -> Result<Moment, u64> {
        let at_switch_ns = now_ns.saturating_add(self.lead_ns).min(i64::MAX as u64) as i64;
        // Two numbers of 64 bits with a sign: their difference has no more bits, without one.
        let elapsed_ns = at_switch_ns.wrapping_sub(self.base_ns) as u64;
        if at_switch_ns < self.base_ns {
            return Err(elapsed_ns.wrapping_neg());
        }
        let slot_ns = self.slot_ns();
        let day = elapsed_ns / slot_ns;
        let since_ns = elapsed_ns % slot_ns;
        let is_day = since_ns < self.day_ns;
        Ok(Moment {
            label: if is_day { day } else { day.saturating_add(1) },
            is_day,
            until_edge_ns: match is_day {
                true => self.day_ns.saturating_sub(since_ns),
                false => slot_ns.get().saturating_sub(since_ns),
            },
            elapsed_ns,
            slot_ns: slot_ns.get(),
        })
    }
}

impl Moment {
    /// Until the day of that label starts; 0 if it has.
    pub fn until_start_ns(&self, label: u64) -> u64 {
        let starts_ns = label.saturating_mul(self.slot_ns);
        starts_ns.saturating_sub(self.elapsed_ns)
    }

    /// Since the day of that label has started; 0 if it has not.
    pub fn since_start_ns(&self, label: u64) -> u64 {
        let starts_ns = label.saturating_mul(self.slot_ns);
        self.elapsed_ns.saturating_sub(starts_ns)
    }

    /// Whether what takes `time_ns` is over before the day is.
    pub fn ends_by_day(&self, time_ns: u64) -> bool {
        self.is_day && time_ns <= self.until_edge_ns
    }
}

/// No day of the week leads there: its own rack.
pub const NO_DAY: u16 = u16::MAX;

/// Writes for each rack which day of the week is its own, as seen from `rack`: `peers`, if it has a rack for
/// each day, else (rack + 1 + day) mod N. False if `peers` is not each other rack once.
pub fn days_of_racks(rack: u16, peers: &[u16], day_of_rack: &mut [u16]) -> bool {
    day_of_rack.fill(NO_DAY);
    let racks = day_of_rack.len();
    let days = racks.saturating_sub(1);
    if peers.len() != days && !peers.is_empty() {
        return false;
    }
    for day in 0..days {
        let next = usize::from(rack).saturating_add(1).saturating_add(day);
        let next = next.checked_rem(racks).unwrap_or(0);
        let peer = peers.get(day).map_or(next, |peer| usize::from(*peer));
        match day_of_rack.get_mut(peer) {
            Some(place) if *place == NO_DAY && peer != usize::from(rack) => *place = day as u16,
            _ => return false,
        }
    }
    true
}

/// The least label, from `label` on, whose day of the week is `day`.
pub fn next_label(label: u64, day: u16, days_per_week: NonZeroU64) -> u64 {
    let today = label % days_per_week;
    let ahead = u64::from(day)
        .saturating_add(days_per_week.get())
        .saturating_sub(today)
        % days_per_week;
    label.saturating_add(ahead)
}

/// What is done with elephants while they have no circuit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Policy {
    /// Algorithm 1.
    #[default]
    AccelTor,
    /// They wait in a queue of their rack.
    Blocking,
    /// They go by the packet network, with the mice.
    Unblocking,
    /// They have no circuit ever.
    Packet,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// To the packet network, first (case I).
    High,
    /// To the packet network, while nothing else goes there (case III-A).
    Low,
    /// The queue of that label (cases II and III-B).
    Queue(u64),
    /// Nowhere (case IV).
    Blocked,
}

/// Where an elephant goes whose rack has the day of `label`, the next one from now on.
pub fn place(policy: Policy, moment: &Moment, label: u64, queues: u64, rtt_ns: u64) -> Place {
    let left_ns = moment.until_start_ns(label);
    match policy {
        Policy::Packet => Place::High,
        Policy::Blocking => Place::Queue(label),
        Policy::Unblocking if left_ns == 0 => Place::Queue(label),
        Policy::Unblocking => Place::High,
        Policy::AccelTor if left_ns == 0 => Place::Queue(label),
        Policy::AccelTor if label.saturating_sub(moment.label) >= queues => Place::Blocked,
        Policy::AccelTor if left_ns >= rtt_ns => Place::Low,
        Policy::AccelTor => Place::Queue(label),
    }
}

/// The label that queue `index` of `queues` has, where the calendar begins with `first`.
pub fn label_of_queue(index: u64, first: u64, queues: NonZeroU64) -> u64 {
    let ahead = index
        .saturating_add(queues.get())
        .saturating_sub(first % queues)
        % queues;
    first.saturating_add(ahead)
}

/// A count-min sketch of bytes by flow, which forgets half in each period.
pub struct Sketch;

impl Sketch {
    /// Rows, each with an own part of the flow's hash.
    pub const ROWS: usize = 3;
    /// Bits of that part.
    const ROW_BITS: u32 = 13;
    const ROW_CELLS: usize = 1 << Self::ROW_BITS;
    /// Of all rows.
    pub const CELLS: usize = Self::ROWS * Self::ROW_CELLS;

    /// Counts a packet; returns what the flow has sent, or more.
    pub fn add(cells: &mut [u32], key: u64, len_bytes: u32) -> u32 {
        let mut estimate = u32::MAX;
        let mut rest = key;
        for row in cells.chunks_mut(Self::ROW_CELLS) {
            let cell = (rest as usize) & (Self::ROW_CELLS - 1);
            rest >>= Self::ROW_BITS;
            if let Some(cell) = row.get_mut(cell) {
                *cell = cell.saturating_add(len_bytes);
                estimate = estimate.min(*cell);
            }
        }
        estimate
    }

    /// `days` have passed since the last call, up to that of `label`: each cell is halved once in
    /// `period_days`, a part of them each day.
    pub fn forget(cells: &mut [u32], label: u64, days: u64, period_days: NonZeroU64) {
        let whole = u32::try_from(days / period_days).unwrap_or(u32::MAX);
        if whole > 0 {
            for cell in cells.iter_mut() {
                *cell = cell.checked_shr(whole).unwrap_or(0);
            }
        }
        let mut day = label.saturating_sub(days % period_days);
        while day < label {
            day = day.saturating_add(1);
            for cell in share(cells, day, period_days) {
                *cell >>= 1;
            }
        }
    }
}

/// The part of a slice that is the turn of a day: in `period_days` each element once.
fn share<T>(all: &mut [T], day: u64, period_days: NonZeroU64) -> &mut [T] {
    let range = share_of(all.len(), day, period_days);
    all.get_mut(range).unwrap_or_default()
}

fn share_of(len: usize, day: u64, period_days: NonZeroU64) -> core::ops::Range<usize> {
    let turn = day % period_days;
    let at = |turn: u64| (turn.saturating_mul(len as u64) / period_days) as usize;
    at(turn)..at(turn.saturating_add(1))
}

/// A flow that is an elephant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elephant {
    /// 0 = no flow.
    key: u64,
    /// When it sent last.
    pub last_ns: u64,
    /// When its first packet was dropped since it had a queue; 0 = none was.
    pub dropped_ns: u64,
    /// What it has sent.
    pub bytes: u64,
    rack: u16,
    /// It has been in a queue of the calendar.
    pub had_day: bool,
}

/// The elephants, at most so many of each rack.
pub struct Elephants<'a> {
    /// A power of two of them, more than there can be elephants.
    pub slots: &'a mut [Elephant],
    /// How many there are, by rack.
    pub counts: &'a mut [u16],
}

impl Elephants<'_> {
    /// Slots for so many flows: some stay free, so that a search ends.
    pub fn slots_for(flows: usize) -> usize {
        flows
            .saturating_mul(2)
            .max(2)
            .checked_next_power_of_two()
            .unwrap_or(2)
    }

    fn mask(&self) -> usize {
        self.slots.len().saturating_sub(1)
    }

    fn home(&self, key: u64) -> usize {
        // The sketch uses the lower bits.
        (key >> 32) as usize & self.mask()
    }

    /// The slot of a flow, or the free one where its search ends.
    fn find(&self, key: u64) -> usize {
        let mut at = self.home(key);
        for _ in 0..self.slots.len() {
            match self.slots.get(at) {
                Some(slot) if slot.key != key && slot.key != 0 => {
                    at = at.wrapping_add(1) & self.mask();
                }
                _ => break,
            }
        }
        at
    }

    /// The elephant of that key, which is not 0.
    pub fn get(&mut self, key: u64) -> Option<&mut Elephant> {
        let at = self.find(key);
        self.slots
            .get_mut(at)
            .filter(|it| it.key == key && key != 0)
    }

    /// Makes a flow an elephant if its rack has fewer than `most`, and there is room.
    pub fn insert(&mut self, key: u64, rack: u16, most: u16, now_ns: u64) -> Option<&mut Elephant> {
        let at = self.find(key);
        let count = self.counts.get_mut(usize::from(rack))?;
        let slot = self.slots.get_mut(at)?;
        if key == 0 || slot.key != 0 || *count >= most {
            return None;
        }
        *count = count.saturating_add(1);
        *slot = Elephant {
            key,
            last_ns: now_ns,
            rack,
            ..Elephant::default()
        };
        Some(slot)
    }

    /// The day of `label` is next: of those whose turn it is (each once in `period_days`), whoever was idle
    /// for `idle_ns` is none any more. Returns how many.
    pub fn sweep(&mut self, label: u64, period_days: NonZeroU64, now_ns: u64, idle_ns: u64) -> u64 {
        let mut evicted = 0_u64;
        for at in share_of(self.slots.len(), label, period_days) {
            // Whoever takes the place has its turn, too.
            for _ in 0..self.slots.len() {
                let Some(slot) = self.slots.get_mut(at) else {
                    break;
                };
                // After a clock was set back.
                slot.last_ns = slot.last_ns.min(now_ns);
                if slot.key == 0 || now_ns.saturating_sub(slot.last_ns) < idle_ns {
                    break;
                }
                self.remove(at);
                evicted = evicted.saturating_add(1);
            }
        }
        evicted
    }

    /// Frees a slot, and closes the gap in the searches that went past it.
    fn remove(&mut self, at: usize) {
        let rack = self.slots.get(at).map_or(0, |slot| slot.rack);
        if let Some(count) = self.counts.get_mut(usize::from(rack)) {
            *count = count.saturating_sub(1);
        }
        let (mut gap, mut next) = (at, at);
        for _ in 0..self.slots.len() {
            next = next.wrapping_add(1) & self.mask();
            let Some(moved) = self.slots.get(next).copied().filter(|slot| slot.key != 0) else {
                break;
            };
            // It may go to the gap if its home is not between the gap and where it is.
            let from_home = next.wrapping_sub(self.home(moved.key)) & self.mask();
            let from_gap = next.wrapping_sub(gap) & self.mask();
            if from_home >= from_gap {
                if let Some(slot) = self.slots.get_mut(gap) {
                    *slot = moved;
                }
                gap = next;
            }
        }
        if let Some(slot) = self.slots.get_mut(gap) {
            *slot = Elephant::default();
        }
    }
}

#[cfg(test)]
#[path = "tests/acceltor.rs"]
mod tests;
