// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::random::Random;

struct Heap;
impl Storage for Heap {
    type Of<T> = Vec<T>;
}

/// Against a list: of equal times, the timer that was set first.
#[test]
fn timers_expire_in_order() {
    let mut random = Random::new(1);
    let mut draw = |below: u32| random.next_u32() % below;
    for _ in 0..200 {
        let mut timers = Timers::<Heap>::new(vec![Entry::default(); 8], vec![0; 8]);
        let mut list: Vec<(u64, u32)> = Vec::new();
        for _ in 0..200 {
            let (id, at_ns) = (draw(8), u64::from(draw(20)));
            let at_ns = if draw(10) == 0 { NEVER_NS } else { at_ns };
            if draw(2) == 0 {
                let first = list.iter().enumerate().min_by_key(|(_, (at_ns, _))| *at_ns);
                let first = first.map(|(index, _)| index);
                let due = first.filter(|index| list[*index].0 <= at_ns);
                let popped = timers.due(at_ns);
                assert_eq!(popped, due.map(|index| list.remove(index)));
                if let Some((_, id)) = popped {
                    timers.set(id, NEVER_NS);
                }
            } else {
                let known = list.iter().position(|it| it.1 == id);
                if known.is_none_or(|index| list[index].0 != at_ns) {
                    list.retain(|it| it.1 != id);
                    if at_ns != NEVER_NS {
                        list.push((at_ns, id));
                    }
                }
                timers.set(id, at_ns);
            }
            let next_ns = list.iter().map(|it| it.0).min().unwrap_or(NEVER_NS);
            assert_eq!(timers.next_ns(), next_ns);
        }
    }
}

#[test]
fn an_earlier_time_replaces_a_later_one_only() {
    let mut timers = Timers::<Heap>::new(vec![Entry::default(); 2], vec![0; 2]);
    timers.set_earlier(0, 10);
    timers.set_earlier(0, 20);
    assert_eq!(timers.next_ns(), 10);
    timers.set_earlier(0, 5);
    timers.set(9, 1);
    assert_eq!(timers.due(100), Some((5, 0)));
    assert_eq!(timers.due(4), None);
    timers.set(0, NEVER_NS);
    assert_eq!(timers.due(100), None);
}
