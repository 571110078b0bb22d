// SPDX-License-Identifier: GPL-2.0
//! A paper's claims held against what was measured.

use super::spec::{Claim, Row, Verdict, Which};
use crate::command::sweep::grid::Expanded;
use crate::command::sweep::table::{self, Row as Cell};
use crate::measure::bound::Bound;

/// A row with its number.
pub struct Judged<'a> {
    pub row: &'a Row,
    pub measured: Option<f64>,
}

impl Judged<'_> {
    /// None if it was not measured.
    pub fn holds(&self) -> Option<bool> {
        Some(self.bound().holds(self.measured?, None))
    }

    /// What is measured, in words.
    pub fn what(&self) -> String {
        match &self.row.over {
            Some(over) => format!("{} / {}", name(&self.row.of), name(over)),
            None => name(&self.row.of),
        }
    }

    pub fn bound(&self) -> Bound<'static> {
        Bound {
            min: self.row.min,
            max: self.row.max,
            less_than_cc: None,
        }
    }
}

fn name(which: &Which) -> String {
    let labels = which.at.values().map(|label| format!(" {label}"));
    format!(
        "{} {}{}",
        which.cc,
        which.metric,
        labels.collect::<String>()
    )
}

/// Every row of a claim, and what follows.
pub fn judge<'a>(
    claim: &'a Claim,
    grid: &Expanded,
    cells: &[Cell<'_>],
) -> (Verdict, Vec<Judged<'a>>) {
    // Not all points are there in the quick form, or with --cc.
    let here = |row: &&Row| {
        let parts = [Some(&row.of), row.over.as_ref()];
        parts
            .into_iter()
            .flatten()
            .all(|which| point(which, grid).is_some())
    };
    let rows: Vec<_> = claim
        .row
        .iter()
        .filter(here)
        .map(|row| Judged {
            row,
            measured: measured(row, grid, cells),
        })
        .collect();
    let holds: Vec<_> = rows.iter().map(Judged::holds).collect();
    let good = holds.iter().filter(|holds| **holds == Some(true)).count();
    let verdict = match good {
        _ if holds.is_empty() || holds.contains(&None) => Verdict::Unknown,
        n if n == holds.len() => Verdict::Holds,
        0 => Verdict::Fails,
        _ => Verdict::Partly,
    };
    (verdict, rows)
}

fn measured(row: &Row, grid: &Expanded, cells: &[Cell<'_>]) -> Option<f64> {
    let of = mean(&row.of, grid, cells)?;
    match &row.over {
        // Above nothing at all is above every bound; nothing above nothing is no number.
        Some(over) => Some(of / mean(over, grid, cells)?).filter(|ratio| !ratio.is_nan()),
        None => Some(of),
    }
}

fn mean(which: &Which, grid: &Expanded, cells: &[Cell<'_>]) -> Option<f64> {
    let point = point(which, grid)?;
    table::mean(cells, point, &which.cc, &which.metric).map(|estimate| estimate.mean)
}

/// The first point with its labels at which its congestion control runs.
fn point(which: &Which, grid: &Expanded) -> Option<usize> {
    let here = |labels: &[String]| {
        grid.axes
            .iter()
            .zip(labels)
            .all(|(axis, label)| which.at.get(axis).is_none_or(|wanted| wanted == label))
    };
    let runs = |point| {
        let mut cells = grid.cells.iter();
        cells.any(|cell| cell.point == point && cell.cc == which.cc)
    };
    let mut points = grid.points.iter().enumerate();
    points
        .find(|(n, point)| here(&point.labels) && runs(*n))
        .map(|(n, _)| n)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::command::sweep::cells::Outcome;
    use crate::command::sweep::grid::{self, Point};
    use crate::measure::run::Run;
    use crate::result::record::tests::recorded;
    use crate::result::summary::{self, Windows};
    use crate::scenario::{parse, tests::SMALL};

    #[test]
    fn a_claim_holds_as_far_as_its_rows_do() {
        let labels = ["20", "80"];
        let cell = |point| grid::Cell {
            point,
            cc: "gemini".to_owned(),
            seed: 1,
        };
        let grid = Expanded {
            axes: vec!["K".to_owned()],
            points: labels
                .map(|label| Point {
                    labels: vec![label.to_owned()],
                    loaded: parse("small", SMALL, &[]).unwrap(),
                })
                .into(),
            cells: vec![cell(0), cell(1)],
        };
        let outcome = |goodput: f64| Outcome {
            cc: "gemini".to_owned(),
            seed: 1,
            scale: 1,
            engine: "uml".to_owned(),
            kernel: String::new(),
            axes: BTreeMap::new(),
            run: Run {
                goodput_mbps: goodput,
                jain_mean: None,
                ..summary::run(&recorded(), &Windows::every_us(1000))
            },
            throughput: Vec::new(),
        };
        let cell = |n: usize, goodput| Cell {
            cell: &grid.cells[n],
            key: String::new(),
            outcome: outcome(goodput),
        };
        let cells = [cell(0, 400.0), cell(1, 800.0)];
        let verdict = |rows: &str| {
            let claim: Claim = toml::from_str(&format!("text = \"t\"\n{rows}")).unwrap();
            let (verdict, rows) = judge(&claim, &grid, &cells);
            (verdict, rows.len())
        };
        let row = |k: &str, bound: &str| {
            format!(
                "[[row]]\nmetric = \"goodput_mbps\"\ncc = \"gemini\"\nat = {{ K = \"{k}\" }}\n{bound}\n"
            )
        };
        let half =
            "max = 0.5\nover = { metric = \"goodput_mbps\", cc = \"gemini\", at = { K = \"80\" } }";
        assert_eq!(verdict(&row("20", half)), (Verdict::Holds, 1));
        assert_eq!(verdict(&row("20", "min = 401")), (Verdict::Fails, 1));
        let mixed = row("20", "min = 401") + &row("80", "min = 800");
        assert_eq!(verdict(&mixed), (Verdict::Partly, 2));
        // What was left out says nothing; what is missing makes the whole unknown.
        let left_out = row("20", "min = 1") + &row("320", "min = 1e9");
        assert_eq!(verdict(&left_out), (Verdict::Holds, 1));
        assert_eq!(verdict(&row("320", "min = 1")), (Verdict::Unknown, 0));
        let missing = row("20", "min = 1").replace("goodput_mbps", "jain_mean");
        assert_eq!(verdict(&missing), (Verdict::Unknown, 1));
    }

    #[test]
    fn verdicts_are_in_order_and_have_names_in_a_file() {
        assert!(Verdict::Unknown < Verdict::Fails && Verdict::Fails < Verdict::Partly);
        assert!(Verdict::Partly < Verdict::Holds);
        let row = "[[row]]\nmetric = \"drops\"\ncc = \"gemini\"\nmax = 0\n";
        let claim = |verdict: &str| {
            toml::from_str::<Claim>(&format!("text = \"t\"\nverdict = \"{verdict}\"\n{row}"))
        };
        assert_eq!(claim("holds").unwrap().pinned(false), Some(Verdict::Holds));
        assert_eq!(claim("fails").unwrap().pinned(true), None);
        assert!(claim("unknown").is_err());
    }
}
