// SPDX-License-Identifier: GPL-2.0
//! Runs networks in guests, with the cells of sweeps, and compares with references.

use std::time::Instant;

use xdc_base::error::Result;
use xdc_measure::outcome::Outcome;
use xdc_result::runner::Runner;

use super::Budget;
use super::case::Case;
use super::goal::Goal;
use crate::sweep::Sweep;
use crate::sweep::cells::Cells;
use crate::sweep::grid::{Cell, Expanded, Point};
use crate::sweep::lab::Lab;

/// How many times worse than the reference a failure is at least.
pub const LEAST: f64 = 1.25;

/// Fitness of a network whose run failed or does not count.
const USELESS: f64 = -100.0;
/// Fitness of a network in which no reference does well, before its shortfall.
const HOPELESS: f64 = -10.0;

/// Runs and counts.
pub struct Judge<'a> {
    pub runner: Runner<'a>,
    pub lab: &'a Lab,
    pub cells: &'a Cells,
    pub jobs: usize,
    pub goal: &'a Goal,
    pub cc: &'a str,
    pub against: &'a [String],
    pub budget: Budget,
    pub start: Instant,
    /// Runs so far, those read from the cache included.
    pub runs: usize,
    /// Runs without a result.
    pub failed: usize,
    /// Runs whose books do not balance, or that are suspect for another reason.
    pub suspect: usize,
}

/// Outcome of a network with one seed.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub fitness: f64,
    /// How many times worse than the best reference; 0 if the case does not count.
    pub times_worse: f64,
    /// None if the case does not count.
    pub compared: Option<Compared>,
    /// Runs of the whole search when this verdict was known.
    pub after_runs: usize,
}

/// A run, and that of the best reference that does well.
#[derive(Debug, Clone)]
pub struct Compared {
    pub value: f64,
    pub reference_value: f64,
    pub own: Outcome,
    pub reference: Outcome,
}

impl Judge<'_> {
    /// Spent share of the budget.
    pub fn spent(&self) -> f64 {
        match self.budget {
            Budget::Runs(runs) => self.runs as f64 / runs as f64,
            Budget::Time(time) => self.start.elapsed().as_secs_f64() / time.as_secs_f64(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.spent() >= 1.0
    }

    /// Number of networks that fit into a share of the budget, at least one; a time fits any.
    pub fn room(&self, share: f64) -> usize {
        match self.budget {
            Budget::Runs(runs) => {
                let left = (runs as f64 * share) as usize;
                (left.saturating_sub(self.runs) / (1 + self.against.len())).max(1)
            }
            Budget::Time(_) => usize::MAX,
        }
    }

    /// Congestion controls of a case's scenario.
    pub fn ccs(&self) -> Vec<&str> {
        let others = self.against.iter().map(String::as_str);
        [self.cc].into_iter().chain(others).collect()
    }

    pub fn scenario(&self, case: &Case) -> String {
        let victim = self.goal.has_victim().then(|| self.against[0].as_str());
        case.scenario(&self.ccs(), victim)
    }

    /// Judges networks. References run only if the fitness may exceed `needed`.
    pub fn judge(&mut self, cases: &[Case], seed: u64, needed: f64) -> Result<Vec<Verdict>> {
        let all = 0..cases.len();
        let wanted: Vec<_> = all.clone().map(|n| (n, self.cc)).collect();
        let own = self.run(cases, &wanted, seed)?;
        let values: Vec<_> = (own.iter().zip(cases))
            .map(|(own, case)| self.goal.value(&own.as_ref()?.run, case))
            .collect();
        let bound = |n: usize| {
            let most = values[n].map(|value| self.goal.most_times_worse(value).log2());
            most.unwrap_or(USELESS)
        };
        let open: Vec<_> = all.clone().filter(|&n| bound(n) > needed.max(USELESS)).collect();
        let wanted: Vec<_> = open
            .iter()
            .flat_map(|&n| self.against.iter().map(move |cc| (n, cc.as_str())))
            .collect();
        let mut verdicts: Vec<_> = all
            .map(|n| Verdict { fitness: bound(n), times_worse: 0.0, compared: None, after_runs: 0 })
            .collect();
        let references = self.run(cases, &wanted, seed)?;
        for (&n, references) in open.iter().zip(references.chunks(self.against.len())) {
            if let (Some(own), Some(value)) = (&own[n], values[n]) {
                verdicts[n] = self.compare(&cases[n], (own, value), references);
            }
        }
        verdicts.iter_mut().for_each(|it| it.after_runs = self.runs);
        Ok(verdicts)
    }

    fn compare(
        &self,
        case: &Case,
        (own, value): (&Outcome, f64),
        references: &[Option<Outcome>],
    ) -> Verdict {
        let mut verdict =
            Verdict { fitness: USELESS, times_worse: 0.0, compared: None, after_runs: 0 };
        let mut least_shortfall = f64::INFINITY;
        for reference in references.iter().flatten() {
            let Some(theirs) = self.goal.value(&reference.run, case) else {
                continue;
            };
            let shortfall = self.goal.shortfall(theirs, &reference.run, case);
            least_shortfall = least_shortfall.min(shortfall);
            let times_worse = self.goal.times_worse(value, theirs);
            if shortfall <= 0.0 && times_worse > verdict.times_worse {
                verdict.times_worse = times_worse;
                verdict.fitness = times_worse.log2();
                verdict.compared = Some(Compared {
                    value,
                    reference_value: theirs,
                    own: own.clone(),
                    reference: reference.clone(),
                });
            }
        }
        if verdict.compared.is_none() && least_shortfall.is_finite() {
            verdict.fitness = HOPELESS - least_shortfall;
        }
        verdict
    }

    /// Outcomes of cases by number and congestion control; None for a failed or suspect run.
    fn run(
        &mut self,
        cases: &[Case],
        wanted: &[(usize, &str)],
        seed: u64,
    ) -> Result<Vec<Option<Outcome>>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut grid = Expanded { axes: Vec::new(), points: Vec::new(), cells: Vec::new() };
        for case in cases {
            let loaded = xdc_scenario::parse("case", &self.scenario(case), &[])?;
            let labels = vec![case.text()];
            grid.points.push(Point { labels, loaded });
        }
        grid.cells =
            wanted.iter().map(|&(point, cc)| Cell { point, cc: cc.to_owned(), seed }).collect();
        let sweep = Sweep::new(self.runner, self.lab, &grid, self.cells)?;
        self.runs += wanted.len();
        let mut outcomes = Vec::new();
        for outcome in sweep.run(self.jobs)? {
            let counts = outcome.as_ref().is_ok_and(|it| !it.is_suspect());
            match &outcome {
                Ok(it) if it.is_suspect() => self.suspect += 1,
                Ok(_) => {}
                Err(err) => {
                    err.report();
                    self.failed += 1;
                }
            }
            outcomes.push(outcome.ok().filter(|_| counts));
        }
        Ok(outcomes)
    }
}
