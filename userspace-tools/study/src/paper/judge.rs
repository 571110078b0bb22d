// SPDX-License-Identifier: GPL-2.0
//! Compares a paper's claims with measurements, by intervals over seeds.

use std::collections::BTreeSet;

use xdc_metric::interval::{self, Decision, Interval};
use xdc_metric::metric::Population;

use super::record;
use super::spec::{Case, Row, Verdict, Which};
use crate::sweep::grid::{Cell, Expanded};
use crate::sweep::table::Row as Measured;

/// Half width of an interval relative to its mean, below which no more seeds are added.
const NARROW: f64 = 0.05;
/// Seeds that a verdict starts with, and seeds added at a time.
const SEEDS: usize = 5;

/// A row with its measurement and decision.
pub struct Judged {
    pub row: Row,
    /// Geometric mean of ratios, or mean, over the seeds.
    pub measured: Option<f64>,
    /// None with fewer than two seeds.
    pub interval: Option<Interval>,
    pub decision: Decision,
    pub seeds: Vec<u64>,
    /// Hash over the keys of the cells with these seeds.
    pub hash: String,
    /// Flows that the metric covers, in the run with the fewest.
    pub flows: Option<usize>,
    /// Unfinished flows of all runs together.
    pub unfinished: usize,
    /// Reason that prevents a decision with any number of seeds.
    pub doubt: Option<String>,
}

impl Judged {
    /// Returns whether the mean is within the bound (no verdict); None if not measured.
    pub fn mean_holds(&self) -> Option<bool> {
        Some(self.row.bound().holds(self.measured?, None))
    }

    /// The decision, and the reason if there is none.
    pub fn outcome(&self) -> String {
        match (&self.doubt, self.seeds.len()) {
            (Some(doubt), _) => format!("{}: {doubt}", self.decision.text()),
            (None, 0) => Verdict::Unknown.text().to_owned(),
            (None, 1) => format!("{}: one seed", self.decision.text()),
            (None, _) => self.decision.text().to_owned(),
        }
    }

    /// Returns whether the interval is too wide, so more seeds are needed.
    fn is_wide(&self) -> bool {
        let wide = |interval: Interval| interval.relative_half_width() > NARROW;
        self.doubt.is_none() && self.interval.is_none_or(wide)
    }
}

/// Judges every row of a claim. Points outside the grid are skipped unless `all`.
pub fn rows(
    case: &Case<'_>,
    (grid, all): (&Expanded, bool),
    cells: &[Measured<'_>],
) -> Vec<Judged> {
    let here = |row: &Row| all || row.parts().all(|which| point(which, grid).is_some());
    let rows = case.rows().filter(here);
    rows.map(|row| judged(row, grid, cells)).collect()
}

/// Verdict that follows from the decisions.
pub fn verdict(rows: &[Judged]) -> Verdict {
    let decisions = rows.iter().map(|row| (row.measured.is_some(), row.decision));
    conclude(decisions)
}

/// Verdict if the means were exact, for the few seeds of a quick form.
pub fn of_means(rows: &[Judged]) -> Verdict {
    conclude(rows.iter().map(|row| match row.mean_holds() {
        Some(true) => (true, Decision::Holds),
        Some(false) => (true, Decision::Fails),
        None => (false, Decision::Undecided),
    }))
}

/// Concludes from pairs: whether a row was measured, and its decision.
pub fn conclude(rows: impl Iterator<Item = (bool, Decision)>) -> Verdict {
    let rows: Vec<_> = rows.collect();
    let any = |decision| rows.iter().any(|row| row.1 == decision);
    match () {
        () if any(Decision::Fails) && any(Decision::Holds) => Verdict::Partly,
        () if any(Decision::Fails) => Verdict::Fails,
        () if rows.is_empty() || rows.iter().any(|row| !row.0) => Verdict::Unknown,
        () if any(Decision::Undecided) => Verdict::Undecided,
        () => Verdict::Holds,
    }
}

fn judged(row: Row, grid: &Expanded, cells: &[Measured<'_>]) -> Judged {
    let values = |which: &Which| -> Vec<(u64, Option<f64>)> {
        let runs = runs(which, grid, cells);
        let value = |run: Option<&Measured<'_>>| which.metric.of(&run?.outcome.run);
        runs.map(|(seed, run)| (seed, value(run))).collect()
    };
    let ours = values(&row.of);
    let theirs = row.over.as_ref().map(values);
    let mut missing: BTreeSet<u64> = BTreeSet::new();
    let mut pairs: Vec<(f64, f64)> = Vec::new();
    let mut seeds: Vec<u64> = Vec::new();
    for &(seed, value) in &ours {
        let other = match &theirs {
            Some(theirs) => {
                let same = theirs.iter().find(|other| other.0 == seed);
                same.and_then(|other| other.1)
            }
            None => Some(1.0),
        };
        match (value, other) {
            (Some(value), Some(other)) => {
                pairs.push((value, other));
                seeds.push(seed);
            }
            _ => drop(missing.insert(seed)),
        }
    }
    let values: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
    let interval = match theirs.is_some() {
        true => interval::of_ratio(&pairs),
        false => interval::of_mean(&values),
    };
    let measured = match (interval, &pairs[..]) {
        (Some(interval), _) => Some(interval.mean),
        // x/0 is infinite and exceeds every bound; 0/0 is NaN, that is, no value.
        (None, [(of, over)]) => Some(of / over).filter(|ratio| !ratio.is_nan()),
        (None, _) => None,
    };
    let keys = row.parts().flat_map(|which| {
        let used = runs(which, grid, cells).filter(|(seed, _)| seeds.contains(seed));
        used.filter_map(|(_, run)| Some(run?.key.as_str()))
    });
    let hash = record::hash(keys);
    let runs = row.parts().flat_map(|which| {
        let runs = runs(which, grid, cells).filter_map(|(_, run)| run);
        runs.filter_map(|run| which.metric.population(&run.outcome.run))
    });
    let of: Vec<Population> = runs.collect();
    let doubt = doubt(&missing, &of);
    let decision = match &doubt {
        Some(_) => Decision::Undecided,
        None => Decision::of(interval, row.bound()),
    };
    Judged {
        measured,
        interval,
        decision,
        seeds,
        hash,
        flows: of.iter().map(|of| of.ended).min(),
        unfinished: of.iter().map(|of| of.unfinished).sum(),
        doubt,
        row,
    }
}

/// Reason against a verdict other than chance, if any.
fn doubt(missing: &BTreeSet<u64>, of: &[Population]) -> Option<String> {
    if !missing.is_empty() {
        let seeds: Vec<_> = missing.iter().map(u64::to_string).collect();
        return Some(format!("no value with seed {}", seeds.join(", ")));
    }
    let few = of.iter().filter(|of| of.ended < of.needed);
    let few = few.min_by_key(|of| of.ended);
    if let Some(few) = few {
        return Some(format!("{} flows, {} needed", few.ended, few.needed));
    }
    let unfinished = of.iter().any(|of| of.unfinished > 0);
    unfinished.then(|| "unfinished flows have no FCT".to_owned())
}

/// Runs of a point by seed; None for a failed run.
fn runs<'a>(
    which: &Which,
    grid: &'a Expanded,
    cells: &'a [Measured<'_>],
) -> impl Iterator<Item = (u64, Option<&'a Measured<'a>>)> {
    let point = point(which, grid);
    let cc = which.cc.clone();
    let asked = grid.cells.iter();
    let asked = asked.filter(move |cell| Some(cell.point) == point && cell.cc == cc);
    asked.map(|cell| (cell.seed, cells.iter().find(|row| row.cell == cell)))
}

/// First point with these labels at which the congestion control runs.
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
    points.find(|(n, point)| here(&point.labels) && runs(*n)).map(|(n, _)| n)
}

/// Cells of a row with these seeds, at points that the grid has.
pub fn cells(row: &Row, grid: &Expanded, seeds: &[u64]) -> Vec<Cell> {
    let parts = row.parts();
    let parts = parts.filter_map(|which| Some((which, point(which, grid)?)));
    let cells = parts.flat_map(|(which, point)| {
        seeds.iter().map(move |&seed| Cell { point, cc: which.cc.clone(), seed })
    });
    cells.collect()
}

/// Cells to add for rows whose intervals are too wide; both sides of a ratio get equal seeds.
pub fn more(rows: &[Judged], grid: &Expanded, most_seeds: usize) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for row in rows.iter().filter(|row| row.is_wide()) {
        let known = row.row.parts().filter_map(|which| {
            let point = point(which, grid)?;
            let here = |cell: &&Cell| cell.point == point && cell.cc == which.cc;
            Some(grid.cells.iter().filter(here).count())
        });
        // Up to the next multiple of five.
        let upto = (known.max().unwrap_or(0) / SEEDS + 1) * SEEDS;
        let upto: Vec<_> = (1..=upto.min(most_seeds) as u64).collect();
        for cell in self::cells(&row.row, grid, &upto) {
            if !grid.cells.contains(&cell) && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use xdc_measure::figures::{self, Windows};
    use xdc_measure::outcome::Outcome;
    use xdc_measure::run::Run;

    use super::super::spec::Claim;
    use super::*;
    use crate::sweep::grid::{self, Point};
    use xdc_result::testing::recorded;
    use xdc_scenario::{parse, testing::SMALL};

    #[test]
    fn a_claim_holds_as_far_as_its_rows_do() {
        let labels = ["20", "80"];
        let cell = |point, seed| grid::Cell { point, cc: "gemini".to_owned(), seed };
        let grid = Expanded {
            axes: vec!["K".to_owned()],
            points: labels
                .map(|label| Point {
                    labels: vec![label.to_owned()],
                    loaded: parse("small", SMALL, &[]).unwrap(),
                })
                .into(),
            cells: (1..=5).flat_map(|seed| [cell(0, seed), cell(1, seed)]).collect(),
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
                ..figures::run(&recorded(), &Windows::every_us(1000))
            },
            throughput: Vec::new(),
        };
        // Seeds differ by more than 5 %, equally at both points.
        let cells: Vec<_> = (0..10)
            .map(|n| Measured {
                cell: &grid.cells[n],
                key: String::new(),
                outcome: outcome([400.0, 800.0][n % 2] + [0.0, 40.0][n % 2] * (n / 2) as f64),
            })
            .collect();
        let judge = |rows: &str, cells: &[Measured<'_>]| {
            let claim: Claim = toml::from_str(&format!("text = \"t\"\n{rows}")).unwrap();
            let case = &claim.cases()[0];
            super::rows(case, (&grid, false), cells)
        };
        let verdict = |rows: &str| {
            let rows = judge(rows, &cells);
            (super::verdict(&rows), rows.len())
        };
        let row = |k: &str, bound: &str| {
            format!(
                "[[row]]\nmetric = \"goodput_mbps\"\ncc = \"gemini\"\nat = {{ K = \"{k}\" }}\n{bound}\n"
            )
        };
        let over = "over = { metric = \"goodput_mbps\", cc = \"gemini\", at = { K = \"80\" } }";
        let ratio = |rule: &str| row("20", &format!("{rule}\n{over}"));
        // The interval is 0.417 to 0.5, its mean 0.456.
        assert_eq!(verdict(&ratio("is = \"less\"")), (Verdict::Holds, 1));
        assert_eq!(verdict(&ratio("is = \"less\"\npaper = 0.5")), (Verdict::Holds, 1));
        assert_eq!(verdict(&ratio("is = \"less\"\npaper = 0.42")), (Verdict::Undecided, 1));
        assert_eq!(verdict(&ratio("is = \"less\"\npaper = 0.3")), (Verdict::Fails, 1));
        assert_eq!(verdict(&row("20", "min = 401")), (Verdict::Fails, 1));
        let mixed = row("20", "min = 401") + &row("80", "min = 700");
        assert_eq!(verdict(&mixed), (Verdict::Partly, 2));
        let unsure = row("20", "min = 399") + &row("80", "min = 880");
        assert_eq!(verdict(&unsure), (Verdict::Undecided, 2));
        assert_eq!(of_means(&judge(&unsure, &cells)), Verdict::Holds);
        // A row outside the grid is skipped; a missing value makes the claim unknown.
        let left_out = row("20", "min = 1") + &row("320", "min = 1e9");
        assert_eq!(verdict(&left_out), (Verdict::Holds, 1));
        assert_eq!(verdict(&row("320", "min = 1")), (Verdict::Unknown, 0));
        let missing = row("20", "min = 1").replace("goodput_mbps", "jain_mean");
        assert_eq!(verdict(&missing), (Verdict::Unknown, 1));

        // A failed seed leaves the row undecided.
        let failed = judge(&row("80", "min = 1"), &cells[..8]);
        assert_eq!(failed[0].doubt.as_deref(), Some("no value with seed 5"));
        assert_eq!(super::verdict(&failed), Verdict::Undecided);
        // Two flows per run are too few for a percentile.
        let few = row("20", "max = 1e9").replace("goodput_mbps", "fct_us.p99");
        let few = judge(&few, &cells);
        assert_eq!(few[0].decision, Decision::Undecided);
        assert!(few[0].doubt.as_deref().unwrap().ends_with("1000 needed"));

        // Five more seeds for both sides, if the interval is wide.
        let wide = judge(&ratio("is = \"less\""), &cells);
        let added = more(&wide, &grid, 30);
        assert_eq!(added.len(), 10);
        assert!(added.iter().all(|cell| (6..=10).contains(&cell.seed)));
        assert_eq!(more(&wide, &grid, 7).len(), 4);
        assert_eq!(more(&wide, &grid, 5), []);
        assert_eq!(more(&judge(&row("20", "min = 1"), &cells), &grid, 30), []);
        assert_eq!(more(&few, &grid, 30), []);
    }

    #[test]
    fn a_claim_is_judged_for_each_that_it_is_of() {
        let claim: Claim = toml::from_str(
            "text = \"t\"\nof = [\"a\", \"b\"]\nverdict = { a = \"fails\" }\nquick_means = \"holds\"\n\
             [[row]]\nmetric = \"drops\"\nis = \"less\"\nover = { metric = \"drops\", cc = \"c\" }\n",
        )
        .unwrap();
        let cases = claim.cases();
        let ccs = |case: &Case<'_>| -> Vec<String> {
            let row = case.rows().next().unwrap();
            row.parts().map(|which| which.cc.clone()).collect()
        };
        assert_eq!(ccs(&cases[1]), ["b", "c"]);
        assert_eq!(cases[1].text(), "b: t");
        assert_eq!(cases[0].pinned(false), Some(Verdict::Fails));
        assert_eq!(cases[1].pinned(false), None);
        assert_eq!(cases[1].pinned(true), Some(Verdict::Holds));
    }

    #[test]
    fn bounds_follow_from_what_a_paper_says() {
        let bound = |rule: &str| {
            let row: Row =
                toml::from_str(&format!("metric = \"drops\"\ncc = \"a\"\n{rule}")).unwrap();
            row.bound().to_string()
        };
        assert_eq!(bound("is = \"less\""), "<= 1");
        assert_eq!(bound("is = \"less\"\npaper = 0.5"), "<= 0.55");
        assert_eq!(bound("is = \"less\"\npaper = 0.95"), "<= 1");
        assert_eq!(bound("is = \"more\""), ">= 1");
        assert_eq!(bound("is = \"more\"\npaper = 1.05"), ">= 1");
        assert_eq!(bound("is = \"more\"\npaper = 2.2"), ">= 2");
        assert_eq!(bound("is = \"same\"\npaper = 1.1"), ">= 1, <= 1.21");
    }

    #[test]
    fn verdicts_are_in_order_and_have_names_in_a_file() {
        let order =
            [Verdict::Unknown, Verdict::Fails, Verdict::Partly, Verdict::Undecided, Verdict::Holds];
        assert!(order.is_sorted_by(|a, b| a < b));
        let row = "[[row]]\nmetric = \"drops\"\ncc = \"gemini\"\nmax = 0\n";
        let claim = |verdict: &str| {
            toml::from_str::<Claim>(&format!("text = \"t\"\nverdict = \"{verdict}\"\n{row}"))
        };
        let holds = claim("holds").unwrap();
        assert_eq!(holds.cases()[0].pinned(false), Some(Verdict::Holds));
        assert_eq!(holds.cases()[0].pinned(true), None);
        assert!(claim("unknown").is_err());
    }
}
