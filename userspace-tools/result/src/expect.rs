// SPDX-License-Identifier: GPL-2.0
//! Checks a scenario's expectations against a summary.

use std::path::Path;

use serde_json::{Value, json};
use xdc_base::error::Result;
use xdc_base::text::printable;
use xdc_measure::run::Run;
use xdc_scenario::Expect;

use crate::stored::Stored;

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
    /// The value of `less_than_cc`.
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
        let other = self.other.map(|value| format!(" ({})", format_value(value)));
        format!("{}{}", self.expect.bound(), other.unwrap_or_default())
    }

    pub fn line(&self) -> String {
        let line = format!(
            "{}  {:<8} {:<20} {:>10}  {}   [{}]",
            self.verdict.name(),
            self.expect.cc,
            self.expect.metric.name(),
            self.measured_text(),
            self.bound_text(),
            self.expect.source
        );
        printable(&line).into_owned()
    }

    fn json(&self) -> Value {
        json!({
            "verdict": self.verdict.name().to_lowercase(),
            "cc": self.expect.cc,
            "metric": self.expect.metric.name(),
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

/// Judges each expectation by the runs on an engine.
pub fn check<'a>(expects: &'a [Expect], engine: &str, runs: &[Run]) -> Vec<Checked<'a>> {
    let find = |cc: &str| runs.iter().find(|run| run.cc == cc);
    expects
        .iter()
        .map(|expect| {
            let (run, bound) = (find(&expect.cc), expect.bound());
            let other_run = bound.less_than_cc.and_then(find);
            let measured = run.and_then(|run| expect.metric.of(run));
            let other = other_run.and_then(|run| expect.metric.of(run));
            let here = expect.engine.is_none_or(|kind| kind.name() == engine)
                && run.is_some()
                && bound.less_than_cc.is_some() == other_run.is_some();
            let holds = measured.is_some_and(|value| bound.holds(value, other));
            let verdict = match (here, holds) {
                (false, _) => Verdict::Skipped,
                (true, true) => Verdict::Pass,
                (true, false) => Verdict::Fail,
            };
            Checked { expect, verdict, measured, other }
        })
        .collect()
}

/// `xdc check RESULT`; returns whether every expectation holds and no run is missing.
pub fn command(result: &Path, results: &Path, json: bool) -> Result<bool> {
    let stored = Stored::open(result, results)?;
    let summary = &stored.summary;
    let checked = check(&stored.scenario.expect, &summary.engine, &summary.runs);
    if json {
        let rows: Vec<_> = checked.iter().map(Checked::json).collect();
        let interrupted = &summary.interrupted;
        println!("{:#}", json!({"result": stored.dir, "interrupted": interrupted, "rows": rows}));
    } else {
        println!("{}", stored.dir.display());
        if checked.is_empty() {
            println!("the scenario has no expectations");
        }
        for row in &checked {
            println!("{}", row.line());
        }
        if !summary.interrupted.is_empty() {
            let ccs = summary.interrupted.join(", ");
            println!("interrupted: no run of {}", printable(&ccs));
        }
    }
    Ok(summary.interrupted.is_empty() && checked.iter().all(|row| row.verdict != Verdict::Fail))
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};
    use xdc_proto::Job;

    use super::*;
    use crate::testing::{recorded, scaled};
    use xdc_scenario::plan::plan;
    use xdc_scenario::{parse, testing::SMALL};

    fn expect(metric: &str, cc: &str, min: Option<f64>, max: Option<f64>) -> Expect {
        Expect {
            metric: metric.parse().unwrap(),
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
        let run = |cc: &str, jain: f64, last_ms: f64| {
            let mut run = figures::run(&recorded(), &Windows::every_us(1000));
            run.cc = cc.to_owned();
            (run.jain_mean, run.fct_ms.max, run.rtt_us.p99) = (Some(jain), Some(last_ms), None);
            run
        };
        let runs = [run("unocc", 0.97, 684.0), run("cubic", 0.5, 900.0)];
        let mut below_cubic = expect("fct_ms.max", "unocc", None, None);
        below_cubic.less_than_cc = Some("cubic".to_owned());
        let mut below_bbr = below_cubic.clone();
        below_bbr.less_than_cc = Some("bbr".to_owned());
        let mut other_engine = expect("jain_mean", "unocc", Some(2.0), None);
        other_engine.engine = Some(xdc_scenario::engine::Kind::Qemu);
        let rows = [
            expect("jain_mean", "unocc", Some(0.95), None),
            expect("fct_ms.max", "unocc", None, Some(680.0)),
            expect("rtt_us.p99", "unocc", None, Some(1.0)),
            expect("jain_mean", "bbr", Some(0.95), None),
            below_cubic,
            below_bbr,
            other_engine,
        ];
        let checked = check(&rows, "uml", &runs);
        let verdicts: Vec<_> = checked.iter().map(|c| c.verdict).collect();
        use Verdict::{Fail, Pass, Skipped};
        assert_eq!(verdicts, [Pass, Fail, Fail, Skipped, Pass, Skipped, Skipped]);
        assert_eq!(checked[4].bound_text(), "< cubic (900)");
    }

    /// Covers the path from the guest's messages to the verdict.
    #[test]
    fn a_scaled_guest_is_judged_by_unscaled_figures() {
        let scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let plan = |scale| match plan(&scenario, "unocc", 1, scale).unwrap().job {
            Job::Run(run) => run,
            _ => panic!("not a run"),
        };
        let record = scaled(10).unscaled(10, plan(1));
        let runs = [figures::run(&record, &Windows::every_us(1000))];
        let rows = [
            expect("jain_converged_ms", "unocc", None, Some(9.0)),
            expect("fct_us.max", "unocc", Some(20_000.0), Some(20_000.0)),
            expect("goodput_mbps", "unocc", Some(838.0), None),
            expect("virtual_s", "unocc", None, Some(0.02)),
        ];
        let checked = check(&rows, "qemu", &runs);
        assert!(checked.iter().all(|c| c.verdict == Verdict::Pass));
    }
}
