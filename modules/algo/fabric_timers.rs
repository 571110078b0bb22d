// SPDX-License-Identifier: GPL-2.0

//! Timers of a fixed set of objects: an indexed heap. Of equal times the timer that was set first expires
//! first.

use super::fabric::Storage;

/// Index of a timer that is not set.
const NOWHERE: u32 = u32::MAX;

/// Time that no timer has.
pub const NEVER_NS: u64 = u64::MAX;

/// Bits of a timer's id.
const ID_BITS: u32 = 20;

/// Children of a node of the heap: four entries are one cache line.
const CHILDREN: usize = 4;

/// One timer.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Entry {
    at_ns: u64,
    /// Number of the call that set it, above the id.
    turn_and_id: u64,
}

impl Entry {
    fn id(&self) -> u32 {
        self.turn_and_id as u32 & ((1 << ID_BITS) - 1)
    }
}

/// The timers, by id.
pub struct Timers<S: Storage> {
    /// A heap of the first `len` entries.
    heap: S::Of<Entry>,
    len: usize,
    /// Index in the heap, by id.
    places: S::Of<u32>,
    turn: u64,
}

impl<S: Storage> Timers<S> {
    /// Creates timers that are not set, from memory for as many ids.
    pub fn new(heap: S::Of<Entry>, mut places: S::Of<u32>) -> Self {
        places.fill(NOWHERE);
        Self {
            heap,
            len: 0,
            places,
            turn: 0,
        }
    }

    /// Returns the time of the first timer.
    pub fn next_ns(&self) -> u64 {
        match self.len {
            0 => NEVER_NS,
            _ => self.entry(0).at_ns,
        }
    }

    /// Returns time and id of the first timer if it is due.
    pub fn due(&self, now_ns: u64) -> Option<(u64, u32)> {
        let first = self.entry(0);
        (self.len > 0 && first.at_ns <= now_ns).then(|| (first.at_ns, first.id()))
    }

    /// Sets or moves a timer; [`NEVER_NS`] removes it.
    pub fn set(&mut self, id: u32, at_ns: u64) {
        let Some(&place) = self.places.get(id as usize) else {
            return;
        };
        if at_ns == NEVER_NS {
            self.remove(id);
            return;
        }
        let place = match place {
            NOWHERE => {
                self.len = self.len.wrapping_add(1);
                self.len.wrapping_sub(1)
            }
            place if self.entry(place as usize).at_ns == at_ns => return,
            place => place as usize,
        };
        self.turn = self.turn.wrapping_add(1);
        let turn_and_id = self.turn << ID_BITS | u64::from(id);
        let entry = Entry { at_ns, turn_and_id };
        self.move_to(place, entry);
    }

    /// Sets a timer unless it is earlier.
    pub fn set_earlier(&mut self, id: u32, at_ns: u64) {
        let place = self.places.get(id as usize).copied().unwrap_or(NOWHERE);
        if place == NOWHERE || self.entry(place as usize).at_ns > at_ns {
            self.set(id, at_ns);
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(slot) = self.places.get_mut(id as usize) else {
            return;
        };
        let place = core::mem::replace(slot, NOWHERE) as usize;
        if place >= self.len {
            return;
        }
        self.len = self.len.wrapping_sub(1);
        if place < self.len {
            self.move_to(place, self.entry(self.len));
        }
    }

    fn entry(&self, place: usize) -> Entry {
        self.heap.get(place).copied().unwrap_or_default()
    }

    fn put(&mut self, place: usize, entry: Entry) {
        if let Some(slot) = self.heap.get_mut(place) {
            *slot = entry;
        }
        if let Some(slot) = self.places.get_mut(entry.id() as usize) {
            *slot = place as u32;
        }
    }

    /// Moves an entry from `place` up or down to where it belongs.
    fn move_to(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = place.wrapping_sub(1) / CHILDREN;
            let above = self.entry(parent);
            if above < entry {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        loop {
            let first = place.wrapping_mul(CHILDREN).wrapping_add(1);
            let end = first.saturating_add(CHILDREN).min(self.len);
            let children = self.heap.get(first..end).unwrap_or_default();
            let least = children.iter().enumerate().min_by_key(|(_, child)| **child);
            let Some((index, &below)) = least.filter(|(_, child)| **child < entry) else {
                break;
            };
            self.put(place, below);
            place = first.wrapping_add(index);
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
#[path = "tests/fabric_timers.rs"]
mod tests;
