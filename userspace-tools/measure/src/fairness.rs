// SPDX-License-Identifier: GPL-2.0
//! Jain's index over time.

use std::collections::BTreeMap;

use crate::figures::{Windows, mean, received};
use crate::record::Record;

const CONVERGED: f64 = 0.95;

/// (sum x)^2 / (n sum x^2); None for fewer than two shares or a zero sum.
pub(crate) fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (shares.len() > 1 && squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// (start, Jain's index) per window, over the flows present during the whole window.
pub fn jain_windows(record: &Record, window_us: u64) -> Vec<(u64, f64)> {
    let mut windows = Vec::new();
    if !record.plan.flow_series {
        return windows;
    }
    let mut from: u64 = 0;
    let end_us = record.end_us();
    // A zero-length window would loop forever.
    while let Some(to) = from.checked_add(window_us.max(1)).filter(|&to| to <= end_us) {
        let active: Vec<_> = record
            .flows
            .iter()
            .filter(|flow| flow.start_us() <= from && flow.end_us().is_none_or(|end| end >= to))
            .map(|flow| flow.flow)
            .collect();
        if let Some(index) = jain(&received(record, &active, (from, to))) {
            windows.push((from, index));
        }
        from = to;
    }
    windows
}

pub(crate) fn jain_phases(windows: &[(u64, f64)], over: &Windows) -> BTreeMap<String, Option<f64>> {
    let ends = over.phases_us.iter().copied().chain([u64::MAX]);
    let starts = [0].into_iter().chain(over.phases_us.iter().copied());
    let phase = |(start, end): (u64, u64)| {
        let inside = |&&(from, _): &&(u64, f64)| from >= start && from + over.jain_us <= end;
        mean(&windows.iter().filter(inside).map(|&(_, index)| index).collect::<Vec<_>>())
    };
    match over.phases_us.is_empty() {
        true => BTreeMap::new(),
        false => starts
            .zip(ends)
            .enumerate()
            .map(|(n, span)| ((n + 1).to_string(), phase(span)))
            .collect(),
    }
}

pub(crate) fn converged_us(
    windows: &[(u64, f64)],
    window_us: u64,
    first_end_us: u64,
) -> Option<u64> {
    windows
        .iter()
        .filter(|(from, _)| from + window_us <= first_end_us)
        .rev()
        .take_while(|(_, index)| *index >= CONVERGED)
        .last()
        .map(|(from, _)| from + window_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equal_shares_and_one_over_n_for_one_winner() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[3.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[1.0]), None);
    }

    #[test]
    fn convergence_must_last_until_the_first_flow_ends() {
        let windows = [(0, 0.5), (10, 0.99), (20, 0.6), (30, 0.97), (40, 0.99), (50, 0.1)];
        assert_eq!(converged_us(&windows, 10, 50), Some(40));
        assert_eq!(converged_us(&windows, 10, 60), None);
        assert_eq!(converged_us(&[], 10, 60), None);
    }
}
