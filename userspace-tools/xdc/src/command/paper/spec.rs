// SPDX-License-Identifier: GPL-2.0
//! A paper's figures as TOML: the runs of each, what is drawn, what the paper reports and claims.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use crate::command::sweep::grid::{Expanded, Grid};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::measure::bound::Bound;
use crate::measure::metric::Metric;
use crate::scenario;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    pub title: String,
    /// Authors, venue, year.
    pub reference: String,
    /// Differences from the paper that several figures have, by name.
    #[serde(default)]
    pub differences: BTreeMap<String, String>,
    pub figure: Vec<Figure>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As the paper numbers it: `8`, `10`, `V`.
    pub id: String,
    pub title: String,
    /// What was done, in a sentence or two.
    #[serde(default)]
    pub setup: String,
    /// Differences from the paper: a name of the paper's `differences`, or a sentence.
    #[serde(default)]
    pub differs: Vec<String>,
    pub grid: Grid,
    /// A smaller form of it; figures without one are left out of `--quick`.
    pub quick: Option<Quick>,
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// Draw each flow's throughput over time at each point.
    #[serde(default)]
    pub curves: bool,
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// What `--quick` changes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Instead of the grid's.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// On top of the grid's.
    #[serde(default)]
    pub set: Vec<String>,
    /// Which labels of an axis are kept.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
}

/// A chart of bars: a metric over the first axis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub metric: Metric,
    pub title: String,
    /// What the paper has: by congestion control, one number per point of the grid.
    #[serde(default)]
    pub paper: BTreeMap<String, Vec<f64>>,
}

/// Something that the paper says; it holds if all its rows do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub text: String,
    /// Where the paper says it.
    #[serde(default)]
    pub source: String,
    /// What we found, where it differs: why.
    #[serde(default)]
    pub finding: String,
    /// Each of them is judged by itself: it is the congestion control of rows that name none.
    #[serde(default)]
    pub of: Vec<String>,
    /// What came out when this was written; `--check` fails where it gets worse.
    pub verdict: Option<Pin>,
    /// The same of the quick form. It has one seed and hence no verdict: this is which side of
    /// their bounds its numbers are on.
    pub quick_means: Option<Pin>,
    pub row: Vec<Row>,
}

/// A verdict, or one for each congestion control that the claim is of.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Pin {
    One(Verdict),
    Each(BTreeMap<String, Verdict>),
}

/// A claim of one congestion control, or of all that its rows name.
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
    /// What is pinned.
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

    /// Those of the claim, with a congestion control each.
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

    /// The claim, and whose it is.
    pub fn text(&self) -> String {
        match self.of {
            Some(of) => format!("{of}: {}", self.claim.text),
            None => self.claim.text.clone(),
        }
    }
}

/// What can be said of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// This run has none of its points, or one of them has no such value.
    #[serde(skip)]
    Unknown,
    Fails,
    /// Some rows hold, others do not.
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

/// By how much a paper's number may be missed: the rule for bounds, see docs/method.md.
pub const MARGIN: f64 = 1.1;

/// What a paper says of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// Than 1.
    Less,
    /// Than 1.
    More,
    /// As many, or so many times as the paper has.
    Same,
}

/// A metric, or how many times another one it is, and its bounds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    #[serde(flatten)]
    pub of: Which,
    /// Divide by this one, seed by seed.
    pub over: Option<Which>,
    /// The bounds follow from it and from the paper's number.
    pub is: Option<Says>,
    /// Bounds that the rule does not give; then `why` says where they are from.
    pub min: Option<f64>,
    pub max: Option<f64>,
    #[serde(default)]
    pub why: String,
    /// What the paper has for it.
    pub paper: Option<f64>,
}

impl Row {
    /// What it says, and a tenth: but "less" is never more than 1, nor "more" less.
    pub fn bound(&self) -> Bound<'static> {
        let paper = self.paper.unwrap_or(1.0);
        let (min, max) = match self.is {
            Some(Says::Less) => (None, Some((paper * MARGIN).min(1.0))),
            Some(Says::More) => (Some((paper / MARGIN).max(1.0)), None),
            Some(Says::Same) => (Some(paper / MARGIN), Some(paper * MARGIN)),
            None => (self.min, self.max),
        };
        let round = |bound: Option<f64>| bound.map(|bound| (bound * 1e4).round() / 1e4);
        Bound {
            min: round(min),
            max: round(max),
            less_than_cc: None,
        }
    }

    /// Both that it is of.
    pub fn parts(&self) -> impl Iterator<Item = &Which> {
        [Some(&self.of), self.over.as_ref()].into_iter().flatten()
    }
}

/// One value a seed.
#[derive(Debug, Clone, Deserialize)]
pub struct Which {
    pub metric: Metric,
    /// Without one, that which the claim is of.
    #[serde(default)]
    pub cc: String,
    /// Labels by axis; without them the grid's only point.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

impl Paper {
    /// By its name in scenarios/papers/.
    pub fn load(home: &Home, name: &str) -> Result<Self> {
        let dir = home.scenarios().join("papers");
        let path = dir.join(format!("{name}.toml"));
        let text = fs::read_to_string(&path)
            .map_err(|_| Error::usage(format!("no paper '{name}'")).hint(names(&dir).join(", ")))?;
        let paper: Self = toml::from_str(&text)
            .map_err(|err| scenario::malformed(&text, &err).about(path.display()))?;
        let differs = paper.figure.iter().flat_map(|figure| &figure.differs);
        let mut names = differs.filter(|it| !it.contains(' '));
        if let Some(name) = names.find(|it| !paper.differences.contains_key(*it)) {
            let sentence = format!("`differences` has no '{name}'");
            return Err(Error::usage(sentence).about(path.display()));
        }
        Ok(paper)
    }

    /// The text of an entry of `differs`.
    pub fn difference<'a>(&'a self, entry: &'a str) -> &'a str {
        self.differences.get(entry).map_or(entry, String::as_str)
    }
}

/// Of the papers there are.
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
    /// That runs of its grid have the metrics it names.
    pub fn check(&self, grid: &Expanded) -> Result<()> {
        let rows = self.claim.iter().flat_map(|claim| &claim.row);
        let of_rows = rows.flat_map(Row::parts).map(|which| &which.metric);
        let metrics = self.plot.iter().map(|plot| &plot.metric).chain(of_rows);
        for metric in metrics {
            grid.check_metric(metric)?;
        }
        Ok(())
    }

    /// `Figure 8`; a Roman number is that of a table.
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

    /// The grid to run; none if `quick` leaves the figure out. It has one seed: what a claim is
    /// judged by gets more.
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
