// SPDX-License-Identifier: GPL-2.0
//! Runs several guests at a time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use crate::error::Result;
use crate::interrupt;

/// Applies `work` to `items`, `jobs` at a time; results keep the order. Fails only on an
/// interruption.
pub fn run_all<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>> {
    let outcomes = run_some(items, jobs, work);
    interrupt::check()?;
    Ok(outcomes)
}

/// Like [`run_all`], but returns the results so far on an interruption.
pub fn run_some<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..items.len()).collect());
    let outcomes: Mutex<Vec<(usize, R)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while interrupt::check().is_ok() {
                    let next = waiting.lock().ok().and_then(|mut queue| queue.pop_front());
                    let Some(index) = next else {
                        break;
                    };
                    let outcome = work(&items[index]);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push((index, outcome));
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_default();
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        let doubled: Vec<_> = items.iter().map(|n| n * 2).collect();
        for jobs in [0, 1, 3, 200] {
            assert_eq!(run_all(&items, jobs, |n| n * 2).unwrap(), doubled);
        }
        assert_eq!(run_all(&[], 1, |n: &u32| *n).unwrap(), [0; 0]);
    }
}
