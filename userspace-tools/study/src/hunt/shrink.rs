// SPDX-License-Identifier: GPL-2.0
//! Reduces a failure to what it needs, and confirms it with fresh seeds.

use xdc_base::error::Result;

use super::case::Case;
use super::judge::{Judge, LEAST, Verdict};
use super::space::{Key, Space};

/// Seed of all runs of the search.
pub const SEED: u64 = 1;
/// Seeds that confirm a failure.
pub const FRESH: [u64; 2] = [2, 3];

/// Share of the severity, a log2, that a reduced network must keep.
const KEPT: f64 = 0.7;

/// A confirmed failure.
pub struct Found {
    pub case: Case,
    pub verdict: Verdict,
    /// Verdicts with [`FRESH`].
    pub fresh: Vec<Verdict>,
    /// Runs after which the search had the failure.
    pub after_runs: usize,
}

/// Steps of a reduction.
enum Step {
    Features,
    Counts,
    Digits,
}

/// Reduces and confirms; None if a fresh seed does not fail.
pub fn reduce(
    judge: &mut Judge<'_>,
    space: &Space,
    case: Case,
    verdict: Verdict,
) -> Result<Option<Found>> {
    // An unstable failure is not worth a reduction.
    let Some(fresh) = confirm(judge, &case)? else {
        return Ok(None);
    };
    let mut found = Found { after_runs: verdict.after_runs, case, verdict, fresh };
    let needed = KEPT * found.verdict.fitness;
    // A step that a fresh seed does not confirm is undone.
    for step in [Step::Features, Step::Counts, Step::Digits] {
        let mut shrinking = Shrinking {
            needed,
            judge,
            space,
            case: found.case.clone(),
            verdict: found.verdict.clone(),
        };
        match step {
            Step::Features => shrinking.features(),
            Step::Counts => shrinking.counts(),
            Step::Digits => shrinking.digits(),
        }?;
        let Shrinking { case, verdict, .. } = shrinking;
        if case == found.case {
            continue;
        }
        if let Some(fresh) = confirm(judge, &case)? {
            found = Found { case, verdict, fresh, ..found };
        }
    }
    Ok(Some(found))
}

fn confirm(judge: &mut Judge<'_>, case: &Case) -> Result<Option<Vec<Verdict>>> {
    let mut fresh = Vec::new();
    for seed in FRESH {
        let verdict = judge.judge(std::slice::from_ref(case), seed, LEAST.log2())?;
        fresh.extend(verdict);
        if fresh.iter().any(|it| it.times_worse < LEAST) {
            return Ok(None);
        }
    }
    Ok(Some(fresh))
}

struct Shrinking<'a, 'b> {
    /// Fitness to keep.
    needed: f64,
    judge: &'a mut Judge<'b>,
    space: &'a Space,
    case: Case,
    verdict: Verdict,
}

impl Shrinking<'_, '_> {
    /// Judges changed networks and takes the first that still fails; returns those that fail.
    fn attempt(&mut self, cases: Vec<Case>) -> Result<Vec<usize>> {
        let fitted = cases.into_iter().map(|mut case| {
            self.judge.goal.adjust(&mut case);
            self.space.fit(case)
        });
        let fitted: Vec<_> = fitted.collect();
        if self.judge.is_over() || fitted.is_empty() {
            return Ok(Vec::new());
        }
        let verdicts = self.judge.judge(&fitted, SEED, self.needed)?;
        let fails =
            |n: &usize| verdicts[*n].compared.is_some() && verdicts[*n].fitness >= self.needed;
        let failing: Vec<_> = (0..fitted.len()).filter(fails).collect();
        if let Some(&first) = failing.first() {
            self.case = fitted[first].clone();
            self.verdict = verdicts[first].clone();
        }
        Ok(failing)
    }

    /// Drops features: halves first, then single ones, and all that can go alone at once.
    fn features(&mut self) -> Result<()> {
        let mut size = self.case.features().len().div_ceil(2);
        while size > 0 {
            let before = self.case.clone();
            let features = before.features();
            let without = |groups: &[&[Key]]| {
                let mut case = before.clone();
                groups.iter().copied().flatten().for_each(|key| case.drop_feature(*key));
                case
            };
            let groups: Vec<_> = features.chunks(size).collect();
            let each = groups.iter().map(|group| without(&[group])).collect();
            let failing = self.attempt(each)?;
            if failing.len() > 1 {
                let all: Vec<_> = failing.iter().map(|&n| groups[n]).collect();
                self.attempt(vec![without(&all)])?;
            }
            size = match size {
                // Once more while single ones go, as each may allow the next.
                1 if self.case != before => 1,
                _ => size / 2,
            };
        }
        Ok(())
    }

    /// Lowers numbers of flows to one, or else to a half.
    fn counts(&mut self) -> Result<()> {
        for key in [Key::NearFlows, Key::FarFlows, Key::VictimFlows, Key::PauseFlows] {
            let count = self.case.get(key);
            let fewer = [1.0, (count / 2.0).ceil()].into_iter().filter(|it| *it < count);
            let fewer = fewer.map(|fewer| {
                let mut case = self.case.clone();
                case.set(key, fewer);
                case
            });
            let fewer: Vec<_> = fewer.collect();
            self.attempt(fewer)?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<()> {
        let rounder = self.case.rounded(1);
        match rounder == self.case {
            true => Ok(()),
            false => self.attempt(vec![rounder]).map(drop),
        }
    }
}
