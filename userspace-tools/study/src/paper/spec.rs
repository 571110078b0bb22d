// SPDX-License-Identifier: GPL-2.0
//! A paper's figures as TOML: runs, plots, the paper's numbers and claims.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_metric::bound::Bound;
use xdc_metric::metric::Metric;

use crate::sweep::grid::{Expanded, Grid};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    pub title: String,
    /// Authors, venue, year.
    pub reference: String,
    /// Differences from the paper that several figures share, by name.
    #[serde(default)]
    pub differences: BTreeMap<String, String>,
    pub figure: Vec<Figure>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Number in the paper: `8`, `10`, `V`.
    pub id: String,
    pub title: String,
    /// Setup in a sentence or two.
    #[serde(default)]
    pub setup: String,
    /// Differences from the paper: a name of the paper's `differences`, or a sentence.
    #[serde(default)]
    pub differs: Vec<String>,
    pub grid: Grid,
    /// Smaller form; `--quick` skips figures without one.
    pub quick: Option<Quick>,
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// Draw each flow's throughput over time at each point.
    #[serde(default)]
    pub curves: bool,
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// Changes that `--quick` makes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Replaces the grid's.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// Added to the grid's.
    #[serde(default)]
    pub set: Vec<String>,
    /// Labels to keep, by axis.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
}

/// A chart of bars: a metric over the first axis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub metric: Metric,
    pub title: String,
    /// The paper's numbers: by congestion control, one per point of the grid.
    #[serde(default)]
    pub paper: BTreeMap<String, Vec<f64>>,
}

/// A statement of the paper; it holds if all its rows do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub text: String,
    /// Place in the paper.
    #[serde(default)]
    pub source: String,
    /// Explanation if our result differs.
    #[serde(default)]
    pub finding: String,
    /// Congestion controls, judged one by one; each applies to rows that name none.
    #[serde(default)]
    pub of: Vec<String>,
    /// Recorded verdict; `--check` fails if the new one is worse.
    pub verdict: Option<Pin>,
    /// Recorded result of the quick form. One seed allows no verdict, so this compares means with
    /// their bounds.
    pub quick_means: Option<Pin>,
    pub row: Vec<Row>,
}

/// A verdict, or one for each congestion control of the claim.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Pin {
    One(Verdict),
    Each(BTreeMap<String, Verdict>),
}

/// A claim about one congestion control, or about all that its rows name.
#[derive(Debug, Clone)]
pub struct Case<'a> {
    pub claim: &'a Claim,
    pub of: Option<&'a str>,
}

impl Claim {
    pub fn cases(&self) -> Vec<Case<'_>> {
        let case = |of| Case { claim: self, of };
        match self.of.is_empty() {
            true => vec![case(None)],
            false => self.of.iter().map(|cc| case(Some(cc.as_str()))).collect(),
        }
    }
}

impl Case<'_> {
    /// The recorded verdict.
    pub fn pinned(&self, quick: bool) -> Option<Verdict> {
        let pin = match quick {
            true => self.claim.quick_means.as_ref(),
            false => self.claim.verdict.as_ref(),
        };
        match (pin?, self.of) {
            (Pin::One(verdict), _) => Some(*verdict),
            (Pin::Each(verdicts), of) => verdicts.get(of?).copied(),
        }
    }

    /// Rows of the claim, with the congestion control filled in.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.claim.row.iter().map(|row| {
            let mut row = row.clone();
            for which in [Some(&mut row.of), row.over.as_mut()].into_iter().flatten() {
                if which.cc.is_empty() {
                    self.of.unwrap_or_default().clone_into(&mut which.cc);
                }
            }
            row
        })
    }

    /// The claim, prefixed by its congestion control.
    pub fn text(&self) -> String {
        match self.of {
            Some(of) => format!("{of}: {}", self.claim.text),
            None => self.claim.text.clone(),
        }
    }
}

/// Verdict on a claim, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No point of the claim was run, or one has no such value.
    #[serde(skip)]
    Unknown,
    Fails,
    /// Some rows hold, others fail.
    Partly,
    Undecided,
    Holds,
}

impl Verdict {
    pub fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Undecided => "undecided",
            Self::Partly => "holds partly",
            Self::Fails => "does not hold",
            Self::Unknown => "not measured",
        }
    }
}

/// Factor by which a paper's number may be missed: see docs/method.md.
pub const MARGIN: f64 = 1.1;

/// The paper's statement about a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// Less than 1.
    Less,
    /// More than 1.
    More,
    /// Equal, or equal to the paper's number.
    Same,
}

/// A metric or a ratio of two, and its bounds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    #[serde(flatten)]
    pub of: Which,
    /// Denominator, divided seed by seed.
    pub over: Option<Which>,
    /// Rule that gives the bounds, with the paper's number.
    pub is: Option<Says>,
    /// Bounds other than the rule's; `why` gives their source.
    pub min: Option<f64>,
    pub max: Option<f64>,
    #[serde(default)]
    pub why: String,
    /// The paper's number.
    pub paper: Option<f64>,
}

impl Row {
    /// Bound with a margin of a tenth; "less" never exceeds 1, nor does "more" fall below it.
    pub fn bound(&self) -> Bound<'static> {
        let paper = self.paper.unwrap_or(1.0);
        let (min, max) = match self.is {
            Some(Says::Less) => (None, Some((paper * MARGIN).min(1.0))),
            Some(Says::More) => (Some((paper / MARGIN).max(1.0)), None),
            Some(Says::Same) => (Some(paper / MARGIN), Some(paper * MARGIN)),
            None => (self.min, self.max),
        };
        let round = |bound: Option<f64>| bound.map(|bound| (bound * 1e4).round() / 1e4);
        Bound { min: round(min), max: round(max), less_than_cc: None }
    }

    /// The measured quantity in words.
    pub fn what(&self) -> String {
        self.parts().map(Which::name).collect::<Vec<_>>().join(" / ")
    }

    /// The metric and, for a ratio, its denominator.
    pub fn parts(&self) -> impl Iterator<Item = &Which> {
        [Some(&self.of), self.over.as_ref()].into_iter().flatten()
    }
}

/// A metric at one point: one value per seed.
#[derive(Debug, Clone, Deserialize)]
pub struct Which {
    pub metric: Metric,
    /// Empty: the congestion control of the claim.
    #[serde(default)]
    pub cc: String,
    /// Labels by axis; empty: the grid's only point.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

impl Which {
    fn name(&self) -> String {
        let labels = self.at.values().map(|label| format!(" {label}"));
        format!("{} {}{}", self.cc, self.metric, labels.collect::<String>())
    }
}

impl Paper {
    /// Loads a paper by its name in scenarios/papers/.
    pub fn load(home: &Home, name: &str) -> Result<Self> {
        let dir = home.scenarios().join("papers");
        let path = dir.join(format!("{name}.toml"));
        let text = fs::read_to_string(&path)
            .map_err(|_| Error::usage(format!("no paper '{name}'")).hint(names(&dir).join(", ")))?;
        let paper: Self = toml::from_str(&text)
            .map_err(|err| xdc_scenario::malformed(&text, &err).about(path.display()))?;
        let differs = paper.figure.iter().flat_map(|figure| &figure.differs);
        let mut names = differs.filter(|it| !it.contains(' '));
        if let Some(name) = names.find(|it| !paper.differences.contains_key(*it)) {
            let sentence = format!("`differences` has no '{name}'");
            return Err(Error::usage(sentence).about(path.display()));
        }
        Ok(paper)
    }

    /// Text of an entry of `differs`.
    pub fn difference<'a>(&'a self, entry: &'a str) -> &'a str {
        self.differences.get(entry).map_or(entry, String::as_str)
    }
}

/// Names of all papers.
fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".toml")?.to_owned())
        })
        .collect();
    names.sort();
    names
}

impl Figure {
    /// Checks that runs of the grid have the metrics the figure names.
    pub fn check(&self, grid: &Expanded) -> Result<()> {
        let rows = self.claim.iter().flat_map(|claim| &claim.row);
        let of_rows = rows.flat_map(Row::parts).map(|which| &which.metric);
        let metrics = self.plot.iter().map(|plot| &plot.metric).chain(of_rows);
        for metric in metrics {
            grid.check_metric(metric)?;
        }
        Ok(())
    }

    /// Rows of all claims, once per congestion control of a claim.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let cases = self.claim.iter().flat_map(Claim::cases);
        cases.flat_map(|case| case.rows().collect::<Vec<_>>())
    }

    /// Such as `Figure 8`; a Roman number is a table's.
    pub fn name(&self) -> String {
        let id = &self.id;
        if id.starts_with(|c: char| c.is_ascii_digit()) {
            format!("Figure {id}")
        } else if id.chars().all(|c| "IVX".contains(c)) {
            format!("Table {id}")
        } else {
            id.clone()
        }
    }

    /// The grid to run, with one seed; None if `quick` leaves the figure out. Claims get more seeds
    /// later.
    pub fn grid(&self, quick: bool) -> Option<Grid> {
        let mut grid = self.grid.clone();
        if grid.seeds.is_empty() {
            grid.seeds = vec![1];
        }
        if !quick {
            return Some(grid);
        }
        let changes = self.quick.as_ref()?;
        if !changes.ccs.is_empty() {
            grid.ccs.clone_from(&changes.ccs);
        }
        grid.set.extend(changes.set.iter().cloned());
        for axis in &mut grid.axis {
            if let Some(only) = changes.only.get(&axis.name) {
                axis.retain(only);
            }
        }
        grid.seeds.truncate(1);
        Some(grid)
    }
}
