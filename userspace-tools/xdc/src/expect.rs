// SPDX-License-Identifier: GPL-2.0
//! A scenario's claims held against a summary.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::Result;
use crate::scenario::Expect;
use crate::stored::{self, Stored};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    /// Not run with this congestion control or engine.
    Skipped,
}

pub struct Checked<'a> {
    pub expect: &'a Expect,
    pub verdict: Verdict,
    pub measured: Option<f64>,
    /// The figure of `less_than_cc`.
    pub other: Option<f64>,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

impl Checked<'_> {
    pub fn measured_text(&self) -> String {
        match (self.verdict, self.measured) {
            (Verdict::Skipped, _) => "not run".to_owned(),
            (_, Some(value)) => format_value(value),
            (_, None) => "no value".to_owned(),
        }
    }

    pub fn bound_text(&self) -> String {
        let other = self
            .other
            .map(|value| format!(" ({})", format_value(value)));
        self.expect.bound() + &other.unwrap_or_default()
    }

    pub fn line(&self) -> String {
        format!(
            "{}  {:<8} {:<20} {:>10}  {}   [{}]",
            self.verdict.name(),
            self.expect.cc,
            self.expect.metric,
            self.measured_text(),
            self.bound_text(),
            self.expect.source
        )
    }

    fn json(&self) -> Value {
        json!({
            "verdict": self.verdict.name().to_lowercase(),
            "cc": self.expect.cc,
            "metric": self.expect.metric,
            "measured": self.measured,
            "min": self.expect.min,
            "max": self.expect.max,
            "less_than_cc": self.expect.less_than_cc,
            "less_than": self.other,
            "source": self.expect.source,
        })
    }
}

pub fn format_value(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e12 {
        format!("{value:.0}")
    } else if value.abs() >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.4}")
    }
}

/// Judge each row. Bounds are those of the unscaled network.
pub fn check<'a>(expects: &'a [Expect], summary: &Value) -> Vec<Checked<'a>> {
    let engine = summary["engine"].as_str().unwrap_or_default();
    let ran = |wanted: &str| stored::ccs(summary).any(|cc| cc == wanted);
    expects
        .iter()
        .map(|expect| {
            let measured = stored::figure(summary, &expect.cc, &expect.metric);
            let other_cc = expect.less_than_cc.as_deref();
            let other = other_cc.and_then(|cc| stored::figure(summary, cc, &expect.metric));
            let here = expect.engine.is_none_or(|kind| kind.name() == engine)
                && ran(&expect.cc)
                && other_cc.is_none_or(ran);
            let holds = measured.is_some_and(|value| {
                expect.min.is_none_or(|min| value >= min)
                    && expect.max.is_none_or(|max| value <= max)
                    && (other_cc.is_none() || other.is_some_and(|other| value < other))
            });
            let verdict = match (here, holds) {
                (false, _) => Verdict::Skipped,
                (true, true) => Verdict::Pass,
                (true, false) => Verdict::Fail,
            };
            Checked {
                expect,
                verdict,
                measured,
                other,
            }
        })
        .collect()
}

/// `xdc check RESULT`; whether every row holds.
pub fn command(result: &Path, results: &Path, json: bool) -> Result<bool> {
    let stored = Stored::open(result, results)?;
    let checked = check(&stored.scenario.expect, &stored.summary);
    if json {
        let rows: Vec<_> = checked.iter().map(Checked::json).collect();
        println!("{:#}", json!({"result": stored.dir, "rows": rows}));
    } else {
        println!("{}", stored.dir.display());
        if checked.is_empty() {
            println!("the scenario expects nothing");
        }
        for row in &checked {
            println!("{}", row.line());
        }
    }
    Ok(checked.iter().all(|row| row.verdict != Verdict::Fail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(metric: &str, cc: &str, min: Option<f64>, max: Option<f64>) -> Expect {
        Expect {
            metric: metric.to_owned(),
            cc: cc.to_owned(),
            min,
            max,
            less_than_cc: None,
            engine: None,
            source: "test".to_owned(),
        }
    }

    #[test]
    fn rows_pass_fail_and_skip() {
        let summary = json!({"engine": "uml", "scale": 1, "runs": [
            {"cc": "unocc", "jain_mean": 0.97, "fct_ms": {"max": 684.0}, "rtt_us": {"p99": null}},
            {"cc": "cubic", "jain_mean": 0.5, "fct_ms": {"max": 900.0}},
        ]});
        let mut below_cubic = expect("fct_ms.max", "unocc", None, None);
        below_cubic.less_than_cc = Some("cubic".to_owned());
        let mut other_engine = expect("jain_mean", "unocc", Some(2.0), None);
        other_engine.engine = Some(crate::engine::Kind::Qemu);
        let rows = [
            expect("jain_mean", "unocc", Some(0.95), None),
            expect("fct_ms.max", "unocc", None, Some(680.0)),
            expect("rtt_us.p99", "unocc", None, Some(1.0)),
            expect("jain_mean", "bbr", Some(0.95), None),
            below_cubic,
            other_engine,
        ];
        let verdicts: Vec<_> = check(&rows, &summary).iter().map(|c| c.verdict).collect();
        use Verdict::{Fail, Pass, Skipped};
        assert_eq!(verdicts, [Pass, Fail, Fail, Skipped, Pass, Skipped]);
    }

    #[test]
    fn a_scaled_guest_is_judged_as_what_it_stands_for() {
        let summary = json!({"engine": "qemu", "scale": 10, "runs": [
            {"cc": "unocc", "jain_converged_ms": 900.0, "goodput_mbps": 93.0}]});
        let rows = [
            expect("jain_converged_ms", "unocc", None, Some(100.0)),
            expect("goodput_mbps", "unocc", Some(900.0), None),
        ];
        assert!(
            check(&rows, &summary)
                .iter()
                .all(|c| c.verdict == Verdict::Pass)
        );
    }
}
