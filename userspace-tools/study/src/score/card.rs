// SPDX-License-Identifier: GPL-2.0
//! The scorecard: each cell compared with the best reference and with the ideal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xdc_metric::interval::{Interval, of_ratio};

use super::row::{Better, Measure, Row};
use super::store::Sample;

/// Version of the JSON's keys.
pub const SCHEMA: u32 = 1;

/// Ratios within this factor count as equal.
const MARGIN: f64 = 1.05;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Card {
    pub schema: u32,
    pub cc: String,
    pub quick: bool,
    pub references: Vec<String>,
    pub kernel: String,
    pub xdc_version: String,
    pub counts: BTreeMap<Verdict, usize>,
    pub cells: Vec<Cell>,
    pub turns: Vec<Turn>,
}

impl Card {
    pub fn add(&mut self, cell: Cell) {
        self.cells.push(cell);
        self.count();
    }

    pub fn count(&mut self) {
        let of = |verdict| self.cells.iter().filter(|cell| cell.verdict == verdict).count();
        self.counts = Verdict::ALL.map(|verdict| (verdict, of(verdict))).into();
    }
}

/// A metric at a point of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub row: String,
    /// Labels of the row's axes.
    pub at: Vec<String>,
    pub metric: String,
    pub better: Better,
    pub ideal: f64,
    pub verdict: Verdict,
    /// Comparison with the best reference of this cell.
    pub best: Option<Best>,
    /// log2 of the distance from the ideal: 0 is the ideal, -1 half as good.
    pub to_ideal: Option<Log2>,
    /// Values by congestion control, including the scored one, then by seed.
    pub values: BTreeMap<String, BTreeMap<u64, f64>>,
    /// Flows of the scored congestion control, over all seeds.
    pub flows: usize,
    pub unfinished: usize,
    /// Runs left out because they are suspect or lack the metric.
    pub left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    pub cc: String,
    /// Positive if the scored one is better: 1 is twice as good. None with fewer than two seeds.
    pub log2: Option<Log2>,
}

/// A mean of logarithms over seeds, and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Log2 {
    pub low: f64,
    pub mean: f64,
    pub high: f64,
    pub n: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval is above +5 %.
    Win,
    /// The interval is within 5 %.
    Tie,
    /// The interval is below -5 %.
    Loss,
    /// The interval crosses one of these bounds.
    Undecided,
    /// No two values to compare.
    Missing,
}

impl Verdict {
    pub const ALL: [Self; 5] = [Self::Win, Self::Tie, Self::Loss, Self::Undecided, Self::Missing];

    pub fn text(self) -> &'static str {
        match self {
            Self::Win => "win",
            Self::Tie => "tie",
            Self::Loss => "loss",
            Self::Undecided => "undecided",
            Self::Missing => "missing",
        }
    }

    pub fn of(ratio: Option<Log2>) -> Self {
        let margin = MARGIN.log2();
        match ratio {
            None => Self::Missing,
            Some(it) if it.low > margin => Self::Win,
            Some(it) if it.high < -margin => Self::Loss,
            Some(it) if it.low >= -margin && it.high <= margin => Self::Tie,
            Some(_) => Self::Undecided,
        }
    }
}

/// The first noise level at which the verdict changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Turn {
    pub row: String,
    pub metric: String,
    pub from: Verdict,
    /// Label on the ladder; None if the verdict never changes.
    pub at: Option<String>,
    pub to: Option<Verdict>,
}

/// Samples of a point by congestion control and seed.
pub type Samples = BTreeMap<(String, u64), Sample>;

/// log2 of the ratio of each pair, positive if the first value is better.
pub fn log2(better: Better, pairs: &[(f64, f64)]) -> Option<Log2> {
    let turned: Vec<_> = pairs
        .iter()
        .map(|&(ours, theirs)| match better {
            Better::Higher => (ours, theirs),
            Better::Lower => (theirs, ours),
        })
        .collect();
    let Interval { low, mean, high, n } = of_ratio(&turned)?;
    Some(Log2 { low: low.log2(), mean: mean.log2(), high: high.log2(), n })
}

/// log2 of the closeness of a value to the ideal: 0 is the ideal.
pub fn closeness(better: Better, value: f64, ideal: f64) -> f64 {
    match better {
        Better::Higher => (value / ideal).log2(),
        Better::Lower => (ideal / value).log2(),
    }
}

/// log2 of the gain of a newer version of a cell, over the seeds that both have.
pub fn of_versions(was: (&str, &Cell), is: (&str, &Cell)) -> Option<Log2> {
    let values = |(cc, cell): (&str, &Cell)| cell.values.get(cc).cloned().unwrap_or_default();
    log2(is.1.better, &paired(&values(is), &values(was)))
}

pub fn cell(row: &Row, at: &[String], measure: &Measure, cc: &str, samples: &Samples) -> Cell {
    let asked = Asked {
        row: &row.id,
        at,
        metric: &measure.name,
        better: measure.better,
        ideal: measure.ideal(at),
    };
    asked.of(cc, samples, |raw| measure.of(raw))
}

/// Inputs of a cell.
pub struct Asked<'a> {
    pub row: &'a str,
    pub at: &'a [String],
    pub metric: &'a str,
    pub better: Better,
    pub ideal: f64,
}

impl Asked<'_> {
    /// Builds the cell; `read` gets the value from a run's metrics.
    pub fn of(
        &self,
        cc: &str,
        samples: &Samples,
        read: impl Fn(&BTreeMap<String, f64>) -> Option<f64>,
    ) -> Cell {
        let &Asked { better, ideal, .. } = self;
        let mut values: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
        let (mut flows, mut unfinished, mut left_out) = (0, 0, 0);
        for ((name, seed), sample) in samples {
            let value = Some(sample).filter(|sample| !sample.suspect);
            let value = value.and_then(|sample| read(&sample.raw));
            let of_it = values.entry(name.clone()).or_default();
            match value {
                Some(value) => {
                    of_it.insert(*seed, value);
                }
                None => left_out += 1,
            }
            if name == cc {
                flows += sample.flows;
                unfinished += sample.unfinished;
            }
        }
        let own = values.get(cc).cloned().unwrap_or_default();
        let best = values
            .iter()
            .filter(|(name, theirs)| *name != cc && !theirs.is_empty())
            .map(|(name, theirs)| (name, theirs, geometric(theirs)))
            .reduce(|a, b| match better {
                Better::Higher if b.2 > a.2 => b,
                Better::Lower if b.2 < a.2 => b,
                _ => a,
            });
        let best = best.map(|(name, theirs, _)| Best {
            cc: name.clone(),
            log2: log2(better, &paired(&own, theirs)),
        });
        let with_ideal: Vec<_> = own.values().map(|&value| (value, ideal)).collect();
        Cell {
            row: self.row.to_owned(),
            at: self.at.to_vec(),
            metric: self.metric.to_owned(),
            better,
            ideal,
            verdict: Verdict::of(best.as_ref().and_then(|best| best.log2)),
            best,
            to_ideal: log2(better, &with_ideal),
            values,
            flows,
            unfinished,
            left_out,
        }
    }
}

fn geometric(values: &BTreeMap<u64, f64>) -> f64 {
    let logs: f64 = values.values().map(|value| value.ln()).sum();
    logs / values.len() as f64
}

/// Pairs of values with equal seeds.
fn paired(ours: &BTreeMap<u64, f64>, theirs: &BTreeMap<u64, f64>) -> Vec<(f64, f64)> {
    let both = ours.iter().filter_map(|(seed, our)| Some((*our, *theirs.get(seed)?)));
    both.collect()
}

impl Cell {
    pub fn name(&self) -> String {
        let mut words = vec![self.row.as_str()];
        words.extend(self.at.iter().map(String::as_str));
        format!("{}: {}", words.join(", "), self.metric)
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.row, &self.at, &self.metric) == (&other.row, &other.at, &other.metric)
    }
}

/// Finds, per metric, the step of the row's ladder at which its verdict changes.
pub fn turns(row: &Row, cells: &[Cell]) -> Vec<Turn> {
    let axis = row.axis.iter().position(|axis| Some(&axis.name) == row.ladder.as_ref());
    let Some(axis) = axis else {
        return Vec::new();
    };
    let measures = row.metric.iter();
    let of = measures.filter_map(|measure| {
        let mut steps =
            cells.iter().filter(|cell| cell.row == row.id && cell.metric == measure.name);
        let first = steps.next()?;
        let decided = |verdict| !matches!(verdict, Verdict::Missing | Verdict::Undecided);
        let turned = steps.find(|cell| decided(cell.verdict) && cell.verdict != first.verdict);
        Some(Turn {
            row: row.id.clone(),
            metric: measure.name.clone(),
            from: first.verdict,
            at: turned.map(|cell| cell.at[axis].clone()),
            to: turned.map(|cell| cell.verdict),
        })
    });
    of.collect()
}

/// A cell that two versions of a card share.
pub struct Change {
    pub name: String,
    pub log2: Log2,
    pub verdict: Verdict,
}

/// Clear changes since an older card, over the seeds that both have, and the cells that only the
/// older one has.
pub fn changes(old: &Card, new: &Card) -> (Vec<Change>, Vec<String>) {
    let mut changed = Vec::new();
    let mut gone = Vec::new();
    for before in &old.cells {
        let Some(after) = new.cells.iter().find(|cell| cell.is_like(before)) else {
            gone.push(before.name());
            continue;
        };
        match of_versions((&old.cc, before), (&new.cc, after)) {
            Some(log2) => {
                let verdict = Verdict::of(Some(log2));
                if matches!(verdict, Verdict::Win | Verdict::Loss) {
                    let name = after.name();
                    changed.push(Change { name, log2, verdict });
                }
            }
            // A value that is missing now is no improvement.
            None if before.to_ideal.is_some() => gone.push(before.name()),
            None => {}
        }
    }
    (changed, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        toml::from_str(
            "title = \"t\"\nasks = \"a\"\nscenario = \"base\"\nladder = \"noise\"\n\
             [[axis]]\nname = \"noise\"\nkey = \"x\"\nvalues = [\"0\", \"1\", \"2\"]\n\
             [[metric]]\nname = \"fct\"\nmetric = \"fct_ms.mean\"\nbetter = \"lower\"\nideal = 1\n",
        )
        .unwrap()
    }

    /// Samples with three seeds each.
    fn samples(values: &[(&str, [f64; 3])]) -> Samples {
        let of = values.iter().flat_map(|(cc, values)| {
            let seeds = values.iter().zip(1u64..);
            seeds.map(|(value, seed)| {
                let sample = Sample {
                    raw: [("fct_ms.mean".to_owned(), *value)].into(),
                    flows: 2,
                    unfinished: 0,
                    suspect: false,
                };
                (((*cc).to_owned(), seed), sample)
            })
        });
        of.collect()
    }

    fn judged(at: &str, values: &[(&str, [f64; 3])]) -> Cell {
        let row = row();
        cell(&row, &[at.to_owned()], &row.metric[0], "mine", &samples(values))
    }

    #[test]
    fn a_cell_is_compared_with_the_best_reference() {
        let theirs = [("cubic", [8.0; 3]), ("dctcp", [4.0; 3])];
        let with = |mine| judged("0", &[("mine", mine), theirs[0], theirs[1]]);
        let win = with([2.0; 3]);
        let best = win.best.clone().unwrap();
        assert_eq!((best.cc.as_str(), best.log2.unwrap().mean), ("dctcp", 1.0));
        assert_eq!((win.verdict, win.to_ideal.unwrap().mean), (Verdict::Win, -1.0));
        assert_eq!((win.flows, win.left_out), (6, 0));
        assert_eq!(with([4.1; 3]).verdict, Verdict::Tie);
        assert_eq!(with([5.0, 5.1, 5.2]).verdict, Verdict::Loss);
        assert_eq!(with([2.0, 4.0, 8.0]).verdict, Verdict::Undecided);
        assert_eq!(judged("0", &[("mine", [1.0; 3])]).verdict, Verdict::Missing);
    }

    #[test]
    fn a_verdict_changes_at_a_noise_level() {
        let at = |noise, mine| judged(noise, &[("mine", [mine; 3]), ("cubic", [4.0; 3])]);
        let turned = |cells: &[Cell]| turns(&row(), cells).remove(0);
        let turn = turned(&[at("0", 1.0), at("1", 2.0), at("2", 8.0)]);
        assert_eq!((turn.at.as_deref(), turn.to), (Some("2"), Some(Verdict::Loss)));
        assert_eq!(turned(&[at("0", 1.0), at("1", 1.0)]).at, None);
    }

    #[test]
    fn versions_are_compared_by_seed() {
        let card = |cells: Vec<Cell>| Card {
            schema: SCHEMA,
            cc: "mine".to_owned(),
            quick: true,
            references: Vec::new(),
            kernel: String::new(),
            xdc_version: String::new(),
            counts: BTreeMap::new(),
            cells,
            turns: Vec::new(),
        };
        let of = |mine| card(vec![judged("0", &[("mine", mine)])]);
        let old = of([1.0, 2.0, 3.0]);
        let verdicts =
            |new: &Card| -> Vec<_> { changes(&old, new).0.iter().map(|it| it.verdict).collect() };
        assert_eq!(verdicts(&of([1.0, 2.0, 3.0])), []);
        assert_eq!(verdicts(&of([1.2, 2.4, 3.6])), [Verdict::Loss]);
        assert_eq!(verdicts(&of([0.5, 1.0, 1.5])), [Verdict::Win]);
        assert_eq!(verdicts(&of([0.9, 2.1, 3.0])), []);
        assert_eq!(changes(&old, &card(Vec::new())).1, [", 0: fct"]);
    }
}
