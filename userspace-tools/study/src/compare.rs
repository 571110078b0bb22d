// SPDX-License-Identifier: GPL-2.0
//! Two results of one scenario side by side, to check that engines agree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use toml::Table;
use xdc_base::error::{Error, Result};
use xdc_base::owned;
use xdc_base::text::printable;
use xdc_metric::metric::{self, Metric};
use xdc_result::expect::format_value;
use xdc_result::stored::Stored;
use xdc_result::summary::Summary;
use xdc_scenario::Agree;
use xdc_view::overlay;

/// Metrics shown if the scenario has no [[agree]] rows.
const METRICS: &[&str] = &[
    "goodput_mbps",
    "jain_steady",
    "fct_ms.mean",
    "fct_ms.max",
    "rtt_us.p50",
    "queue_bytes.mean",
    "drops",
    "marks",
    "retransmits",
];

/// One metric of one congestion control.
struct Row<'a> {
    cc: &'a str,
    metric: &'a Metric,
    a: Option<f64>,
    b: Option<f64>,
    agree: Option<&'a Agree>,
}

impl Row<'_> {
    /// Difference relative to the larger value; None if either is missing.
    fn difference(&self) -> Option<f64> {
        let (a, b) = (self.a?, self.b?);
        let larger = a.abs().max(b.abs());
        Some(if larger == 0.0 { 0.0 } else { (b - a) / larger })
    }

    /// Returns whether the difference is allowed; a missing value agrees with nothing.
    fn holds(&self) -> bool {
        match (self.agree, self.a, self.b) {
            (None, ..) => true,
            (Some(agree), Some(a), Some(b)) => {
                (b - a).abs() <= agree.slack
                    || self.difference().is_some_and(|d| d.abs() <= agree.within)
            }
            _ => false,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.agree, self.holds()) {
            (None, _) => "",
            (_, true) => "agree",
            (_, false) => "DIFFER",
        }
    }

    fn line(&self) -> String {
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), format_value);
        let difference =
            self.difference().map_or_else(|| "-".to_owned(), |d| format!("{:+.2} %", d * 100.0));
        let bound = self.agree.map(|agree| {
            let slack = match agree.slack {
                0.0 => String::new(),
                slack => format!(" or {}", format_value(slack)),
            };
            format!("<= {} %{slack}   [{}]", agree.within * 100.0, agree.why)
        });
        let line = format!(
            "{:<7} {:<8} {:<18} {:>12} {:>12} {:>10}  {}",
            self.verdict(),
            self.cc,
            self.metric.name(),
            text(self.a),
            text(self.b),
            difference,
            bound.unwrap_or_default()
        );
        printable(line.trim_end()).into_owned()
    }

    fn json(&self) -> Value {
        json!({
            "verdict": self.verdict().to_lowercase(),
            "cc": self.cc,
            "metric": self.metric.name(),
            "a": self.a,
            "b": self.b,
            "difference": self.difference(),
            "within": self.agree.map(|agree| agree.within),
            "slack": self.agree.map(|agree| agree.slack),
        })
    }
}

/// Rows to compare: those of `agree`, or else the metrics in `shown`.
fn rows<'a>(a: &'a Summary, b: &Summary, agree: &'a [Agree], shown: &'a [Metric]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for run in &a.runs {
        let Some(other) = b.run(&run.cc) else {
            continue;
        };
        let mut add = |metric: &'a Metric, agree| {
            rows.push(Row { cc: &run.cc, metric, a: metric.of(run), b: metric.of(other), agree });
        };
        for stated in agree.iter().filter(|agree| agree.concerns(&run.cc)) {
            add(&stated.metric, Some(stated));
        }
        if agree.is_empty() {
            shown.iter().for_each(|metric| add(metric, None));
        }
    }
    rows
}

fn title(stored: &Stored) -> String {
    let Summary { engine, scale, seed, .. } = &stored.summary;
    let dir = stored.dir.display();
    printable(&format!("{dir}: {engine}, scale {scale}, seed {seed}")).into_owned()
}

/// Keys in which two runs of one scenario may differ.
const OF_A_RUN: &[&str] = &["ccs", "description", "engine", "scale", "seed", "source", "title"];

/// Keys whose values differ between the two scenarios, with both values.
fn differences(a: &Table, b: &Table) -> Vec<String> {
    let flat = |table: &Table| {
        let mut keys = BTreeMap::new();
        for (key, value) in table.iter().filter(|(key, _)| !OF_A_RUN.contains(&key.as_str())) {
            flatten(key, value, &mut keys);
        }
        keys
    };
    let (a, b) = (flat(a), flat(b));
    let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let text = |value: Option<&String>| value.map_or("-".to_owned(), String::clone);
    keys.into_iter()
        .filter(|key| a.get(*key) != b.get(*key))
        .map(|key| format!("{key}: {}, {}", text(a.get(key)), text(b.get(key))))
        .collect()
}

fn flatten(key: &str, value: &toml::Value, keys: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                flatten(&format!("{key}.{name}"), value, keys);
            }
        }
        toml::Value::Array(values) if values.iter().any(toml::Value::is_table) => {
            for (n, value) in values.iter().enumerate() {
                flatten(&format!("{key}.{n}"), value, keys);
            }
        }
        value => drop(keys.insert(key.to_owned(), value.to_string())),
    }
}

/// `xdc compare A B`: returns whether all [[agree]] rows hold. `plot` gets both results in one
/// picture.
pub fn command(
    a: &Path,
    b: &Path,
    plot: Option<&Path>,
    (json, different): (bool, bool),
) -> Result<bool> {
    let here = Path::new(".");
    let (a, b) = (Stored::open(a, here)?, Stored::open(b, here)?);
    let names = (&a.summary.scenario, &b.summary.scenario);
    if names.0 != names.1 && !different {
        return Err(Error::usage(format!(
            "the results are of two scenarios, '{}' and '{}'",
            names.0, names.1
        ))
        .hint("two results of one scenario, or --different"));
    }
    let differences = differences(&a.toml, &b.toml);
    let shown = metric::of_names(METRICS);
    let rows = rows(&a.summary, &b.summary, &a.scenario.agree, &shown);
    if rows.is_empty() {
        return Err(Error::usage("the two results have no congestion control in common")
            .hint("xdc run SCENARIO --cc CC, twice"));
    }
    if let Some(path) = plot {
        let ccs: Vec<_> = rows.iter().map(|row| row.cc).collect();
        let svg = overlay::svg(&ccs, &[&a.dir, &b.dir])?;
        owned::replace(path, svg).map_err(|err| Error::io(path.display(), &err))?;
    }
    if json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{:#}", json!({"a": a.dir, "b": b.dir, "differences": differences, "rows": rows}));
    } else {
        println!("a  {}", title(&a));
        println!("b  {}", title(&b));
        for difference in &differences {
            println!("differs  {}", printable(difference));
        }
        for row in &rows {
            println!("{}", row.line());
        }
    }
    Ok(rows.iter().all(Row::holds))
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};
    use xdc_measure::run::{Rtt, Run};

    use super::*;
    use xdc_result::testing::recorded;

    fn agree(metric: &str, within: f64, slack: f64) -> Agree {
        Agree {
            metric: metric.parse().unwrap(),
            ccs: Vec::new(),
            within,
            slack,
            why: "test".to_owned(),
        }
    }

    fn run(cc: &str, goodput_mbps: f64, marks: u64) -> Run {
        Run {
            cc: cc.to_owned(),
            goodput_mbps,
            marks,
            rtt_us: Rtt { p50: Some(1.0), p99: None },
            ..figures::run(&recorded(), &Windows::every_us(1000))
        }
    }

    #[test]
    fn metrics_agree_within_the_bound_or_the_slack() {
        let a = Summary::of_runs(vec![run("unocc", 100.0, 10), run("bbr", 1.0, 0)]);
        let b = Summary::of_runs(vec![run("unocc", 99.0, 12)]);
        let stated = [
            agree("goodput_mbps", 0.02, 0.0),
            agree("goodput_mbps", 0.005, 0.0),
            agree("marks", 0.01, 2.0),
            agree("rtt_us.p99", 1.0, 1.0),
            Agree { ccs: vec!["bbr".to_owned()], ..agree("goodput_mbps", 0.0, 0.0) },
        ];
        let rows = rows(&a, &b, &stated, &[]);
        let verdicts: Vec<_> = rows.iter().map(Row::holds).collect();
        // A value that both results lack does not agree.
        assert_eq!(verdicts, [true, false, true, false]);
        assert!(rows.iter().all(|row| row.cc == "unocc"));
    }

    #[test]
    fn different_keys_are_named() {
        let table = |text: &str| toml::from_str::<Table>(text).unwrap();
        let a = table(
            "seed = 1\nduration = \"1s\"\n[queues.port]\nlimit = 1\n[[flows]]\nsrc = \"a\"\n",
        );
        let b = table("seed = 2\n[queues.port]\nlimit = 2\n[[flows]]\nsrc = \"b\"\n");
        let wanted =
            ["duration: \"1s\", -", "flows.0.src: \"a\", \"b\"", "queues.port.limit: 1, 2"];
        assert_eq!(differences(&a, &b), wanted);
        assert!(differences(&a, &a).is_empty());
    }

    #[test]
    fn metrics_without_a_bound_are_shown_and_hold() {
        let a = Summary::of_runs(vec![run("unocc", 1.0, 1)]);
        let shown = metric::of_names(METRICS);
        let rows = rows(&a, &a, &[], &shown);
        assert_eq!(rows.len(), METRICS.len());
        assert!(rows.iter().all(Row::holds));
    }
}
