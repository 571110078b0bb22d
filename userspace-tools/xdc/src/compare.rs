// SPDX-License-Identifier: GPL-2.0
//! Two results of one scenario side by side: do the engines agree?

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::expect::format_value;
use crate::scenario::Agree;
use crate::stored::{self, Stored};

/// What is shown of results whose scenario does not say what they have to agree on.
const FIGURES: &[&str] = &[
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

/// One figure of one congestion control.
struct Row<'a> {
    cc: &'a str,
    metric: &'a str,
    a: Option<f64>,
    b: Option<f64>,
    agree: Option<&'a Agree>,
}

impl Row<'_> {
    /// Relative to the larger of the two; none where one has no such figure.
    fn difference(&self) -> Option<f64> {
        let (a, b) = (self.a?, self.b?);
        let larger = a.abs().max(b.abs());
        Some(if larger == 0.0 { 0.0 } else { (b - a) / larger })
    }

    /// What both lack they agree on; what one lacks, they do not.
    fn holds(&self) -> bool {
        match (self.agree, self.a, self.b) {
            (None, ..) | (_, None, None) => true,
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
        let difference = self
            .difference()
            .map_or_else(|| "-".to_owned(), |d| format!("{:+.2} %", d * 100.0));
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
            self.metric,
            text(self.a),
            text(self.b),
            difference,
            bound.unwrap_or_default()
        );
        line.trim_end().to_owned()
    }

    fn json(&self) -> Value {
        json!({
            "verdict": self.verdict().to_lowercase(),
            "cc": self.cc,
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "difference": self.difference(),
            "within": self.agree.map(|agree| agree.within),
            "slack": self.agree.map(|agree| agree.slack),
        })
    }
}

fn rows<'a>(a: &'a Value, b: &'a Value, agree: &'a [Agree]) -> Vec<Row<'a>> {
    let row = |cc, metric, agree| Row {
        cc,
        metric,
        a: stored::figure(a, cc, metric),
        b: stored::figure(b, cc, metric),
        agree,
    };
    stored::ccs(a)
        .filter(|cc| stored::ccs(b).any(|other| other == *cc))
        .flat_map(|cc| {
            let stated = agree
                .iter()
                .filter(move |agree| agree.concerns(cc))
                .map(move |agree| row(cc, agree.metric.as_str(), Some(agree)));
            let shown: &[&str] = if agree.is_empty() { FIGURES } else { &[] };
            stated.chain(shown.iter().map(move |metric| row(cc, metric, None)))
        })
        .collect()
}

fn title(stored: &Stored) -> String {
    let word = |key: &str| match &stored.summary[key] {
        Value::String(text) => text.clone(),
        Value::Null => "?".to_owned(),
        other => other.to_string(),
    };
    format!(
        "{}: {}, scale {}, seed {}",
        stored.dir.display(),
        word("engine"),
        word("scale"),
        word("seed")
    )
}

/// `xdc compare A B`; whether they agree on all that their scenario says they should.
pub fn command(a: &Path, b: &Path, json: bool) -> Result<bool> {
    let here = Path::new(".");
    let (a, b) = (Stored::open(a, here)?, Stored::open(b, here)?);
    let rows = rows(&a.summary, &b.summary, &a.scenario.agree);
    if rows.is_empty() {
        return Err(
            Error::usage("the two results have no congestion control in common")
                .hint("xdc run SCENARIO --cc CC, twice"),
        );
    }
    if json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{:#}", json!({"a": a.dir, "b": b.dir, "rows": rows}));
    } else {
        println!("a  {}", title(&a));
        println!("b  {}", title(&b));
        for row in &rows {
            println!("{}", row.line());
        }
    }
    Ok(rows.iter().all(Row::holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(metric: &str, within: f64, slack: f64) -> Agree {
        Agree {
            metric: metric.to_owned(),
            ccs: Vec::new(),
            within,
            slack,
            why: "test".to_owned(),
        }
    }

    #[test]
    fn figures_agree_within_the_bound_or_the_slack() {
        let a = json!({"scale": 1, "runs": [
            {"cc": "unocc", "goodput_mbps": 100.0, "marks": 10, "drops": 0},
            {"cc": "bbr", "goodput_mbps": 1.0}]});
        let b = json!({"scale": 10, "runs": [
            {"cc": "unocc", "goodput_mbps": 9.9, "marks": 12, "drops": null}]});
        let stated = [
            agree("goodput_mbps", 0.02, 0.0),
            agree("goodput_mbps", 0.005, 0.0),
            agree("marks", 0.01, 2.0),
            agree("drops", 1.0, 1.0),
            agree("no_such_figure", 0.0, 0.0),
            Agree {
                ccs: vec!["bbr".to_owned()],
                ..agree("goodput_mbps", 0.0, 0.0)
            },
        ];
        let rows = rows(&a, &b, &stated);
        let verdicts: Vec<_> = rows.iter().map(Row::holds).collect();
        assert_eq!(verdicts, [true, false, true, false, true]);
        assert!(rows.iter().all(|row| row.cc == "unocc"));
    }

    #[test]
    fn nothing_stated_is_shown_and_holds() {
        let a = json!({"runs": [{"cc": "unocc", "drops": 1}]});
        let rows = rows(&a, &a, &[]);
        assert_eq!(rows.len(), FIGURES.len());
        assert!(rows.iter().all(Row::holds));
    }
}
