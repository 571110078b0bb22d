// SPDX-License-Identifier: GPL-2.0
//! A paper's results as data: a CSV file beside its page, with one record per measured row.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xdc_base::error::{Error, Result};
use xdc_base::owned;
use xdc_metric::interval::Decision;
use xdc_result::expect::format_value;
use xdc_result::provenance::sha256;

use super::judge::{self, Judged};
use super::spec::{Case, Figure, Paper, Row, Verdict};

/// Hexadecimal digits of a record's hash.
const HASH_DIGITS: usize = 12;
/// Ends the verdict of a record whose inputs are not the present ones.
const STALE: &str = " (stale)";

/// A row of a claim, as its page shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub figure: String,
    /// The claim, prefixed by its congestion control.
    pub claim: String,
    pub algorithm: String,
    /// Metric with its labels, and the denominator of a ratio.
    metric: String,
    /// Empty if not measured.
    pub estimate: String,
    /// 95 %; empty with one seed.
    interval: String,
    /// Separated by spaces.
    seeds: String,
    /// Flows that the metric covers, in the run with the fewest.
    flows: String,
    pub bound: String,
    /// The paper's number.
    pub paper: String,
    pub verdict: String,
    /// Hash over the keys of the row's cells; empty if unknown.
    pub hash: String,
}

impl Record {
    /// A row without a measurement.
    fn blank(figure: &Figure, case: &Case<'_>, row: &Row) -> Self {
        let what = row.what();
        let (algorithm, metric) = what.split_once(' ').unwrap_or((&what, ""));
        Self {
            figure: figure.id.clone(),
            claim: case.text(),
            algorithm: algorithm.to_owned(),
            metric: metric.to_owned(),
            estimate: String::new(),
            interval: String::new(),
            seeds: String::new(),
            flows: String::new(),
            bound: row.bound().to_string(),
            paper: row.paper.map(format_value).unwrap_or_default(),
            verdict: Verdict::Unknown.text().to_owned(),
            hash: String::new(),
        }
    }

    pub fn of(figure: &Figure, case: &Case<'_>, judged: &Judged) -> Self {
        let blank = Self::blank(figure, case, &judged.row);
        let Some(measured) = judged.measured else {
            return blank;
        };
        let interval = judged.interval.map(|it| (it.low, it.high));
        let interval = interval.map(|(low, high)| (format_value(low), format_value(high)));
        let seeds: Vec<_> = judged.seeds.iter().map(u64::to_string).collect();
        Self {
            estimate: format_value(measured),
            interval: interval.map_or_else(String::new, |(low, high)| format!("{low} to {high}")),
            seeds: seeds.join(" "),
            flows: judged.flows.map_or_else(String::new, |it| it.to_string()),
            verdict: judged.decision.text().to_owned(),
            hash: judged.hash.clone(),
            ..blank
        }
    }

    /// The measured quantity in words.
    pub fn what(&self) -> String {
        format!("{} {}", self.algorithm, self.metric)
    }

    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.seeds.split(' ').filter_map(|seed| seed.parse().ok())
    }

    /// Interval, seeds and flows in words.
    pub fn sureness(&self) -> String {
        let mut words = Vec::new();
        words.extend((!self.interval.is_empty()).then(|| self.interval.clone()));
        words.push(match self.seeds().count() {
            1 => "1 seed".to_owned(),
            seeds => format!("{seeds} seeds"),
        });
        words.extend((!self.flows.is_empty()).then(|| format!("n >= {}", self.flows)));
        words.join(", ")
    }

    /// Whether both are the same quantity with the same bound, which decides the verdict.
    fn is(&self, row: &Self) -> bool {
        let name =
            |it: &Self| [&it.figure, &it.algorithm, &it.metric, &it.bound].map(String::clone);
        name(self) == name(row)
    }

    pub fn is_stale(&self) -> bool {
        self.verdict.ends_with(STALE)
    }

    /// Sets or removes the mark.
    pub fn mark(&mut self, stale: bool) {
        self.verdict = self.decision().text().to_owned() + if stale { STALE } else { "" };
    }

    fn decision(&self) -> Decision {
        let known = [Decision::Holds, Decision::Fails];
        let found = known.into_iter().find(|it| self.verdict.trim_end_matches(STALE) == it.text());
        found.unwrap_or(Decision::Undecided)
    }
}

/// Hash over the keys of cells, in any order.
pub fn hash<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let keys: Vec<_> = keys.collect::<BTreeSet<_>>().into_iter().collect();
    let mut hash = sha256(keys.join(" ").as_bytes());
    hash.truncate(HASH_DIGITS);
    hash
}

/// Verdict of a claim with these rows.
pub fn verdict(rows: &[&Record]) -> String {
    let decisions = rows.iter().map(|row| (!row.estimate.is_empty(), row.decision()));
    let stale = rows.iter().any(|row| row.is_stale());
    judge::conclude(decisions).text().to_owned() + if stale { STALE } else { "" }
}

/// All rows of the paper in its order, with the first of the `known` measurements.
pub fn align(paper: &Paper, known: &[Record]) -> Vec<Record> {
    let cases = paper.figure.iter().flat_map(|figure| {
        let cases = figure.claim.iter().flat_map(|claim| claim.cases());
        cases.map(move |case| (figure, case))
    });
    let blank = cases.flat_map(|(figure, case)| {
        let rows: Vec<_> = case.rows().collect();
        let blank = rows.iter().map(|row| Record::blank(figure, &case, row));
        blank.collect::<Vec<_>>()
    });
    let filled = blank.map(|blank| {
        let mut known = known.iter().filter(|it| !it.estimate.is_empty());
        match known.find(|it| it.is(&blank)) {
            Some(known) => Record { claim: blank.claim, paper: blank.paper, ..known.clone() },
            None => blank,
        }
    });
    filled.collect()
}

const LICENSE: &[u8] = b"# SPDX-License-Identifier: GPL-2.0\n";

/// Reads the records; none if there is no file.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(Error::io(path.display(), &err)),
    };
    let records =
        csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(&text[..]).into_deserialize();
    let records: csv::Result<_> = records.collect();
    records.map_err(|err| Error::failure(err.to_string()).about(path.display()))
}

/// Writes the measured rows.
pub fn write(path: &Path, rows: &[Record]) -> Result<()> {
    let mut csv = csv::Writer::from_writer(LICENSE.to_vec());
    let mut measured = rows.iter().filter(|row| !row.estimate.is_empty());
    let written = measured.try_for_each(|row| csv.serialize(row));
    let failed = |err: String| Error::failure(err).about(path.display());
    written.map_err(|err| failed(err.to_string()))?;
    let text = csv.into_inner().map_err(|err| failed(err.to_string()))?;
    owned::replace(path, text).map_err(|err| Error::io(path.display(), &err))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: &str = "title = \"t\"\nreference = \"r\"\n
        [[figure]]\nid = \"8\"\ntitle = \"t\"\ngrid = { scenario = \"s\" }
        [[figure.claim]]\ntext = \"shares are equal\"\nof = [\"gemini\", \"cubic\"]
        row = [{ metric = \"jain_steady\", min = 0.95 }, { metric = \"drops\", max = 0 }]";

    #[test]
    fn rows_follow_the_paper_and_the_newest_measurement_counts() {
        let paper: Paper = toml::from_str(PAPER).unwrap();
        let blank = align(&paper, &[]);
        let measured = |n: usize, estimate: &str| Record {
            estimate: estimate.to_owned(),
            verdict: Decision::Holds.text().to_owned(),
            ..blank[n].clone()
        };
        let other_bound = Record { bound: ">= 0.9".to_owned(), ..measured(0, "1") };
        let known = [measured(3, "new"), other_bound, measured(1, "old"), measured(3, "old")];
        let rows = align(&paper, &known);
        let estimates: Vec<_> = rows.iter().map(|row| row.estimate.as_str()).collect();
        assert_eq!(estimates, ["", "old", "", "new"]);
        assert_eq!(rows[3].claim, "cubic: shares are equal");
        // The file has the measured rows only.
        let file = tempfile::tempdir().unwrap();
        let file = file.path().join("t.csv");
        assert_eq!(read(&file).unwrap(), []);
        write(&file, &rows).unwrap();
        assert_eq!(align(&paper, &read(&file).unwrap()), rows);
    }

    #[test]
    fn a_mark_leaves_the_verdict() {
        let paper: Paper = toml::from_str(PAPER).unwrap();
        let mut row = align(&paper, &[]).swap_remove(0);
        row.estimate = "1".to_owned();
        for decision in [Decision::Holds, Decision::Fails, Decision::Undecided] {
            row.verdict = decision.text().to_owned();
            for stale in [true, true, false] {
                row.mark(stale);
                assert_eq!((row.is_stale(), row.decision()), (stale, decision));
                assert_eq!(verdict(&[&row]), row.verdict);
            }
        }
    }

    #[test]
    fn a_hash_does_not_depend_on_the_order_of_cells() {
        let hash = |keys: &[&str]| super::hash(keys.iter().copied());
        assert_eq!(hash(&["b", "a"]), hash(&["a", "b", "a"]));
        assert_ne!(hash(&["a", "b"]), hash(&["a"]));
    }
}
