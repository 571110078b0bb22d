// SPDX-License-Identifier: GPL-2.0
//! Files and text of found failures.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use xdc_base::error::{Error, Result};
use xdc_base::owned;
use xdc_measure::outcome::Outcome;
use xdc_measure::throughput::Line;
use xdc_metric::metric::Metric;
use xdc_view::charts::WIDE;
use xdc_view::plot::{self, Chart, PERCENT, RATE, RATIO, TIME};

use super::WANTED;
use super::judge::{Compared, Judge, Verdict};
use super::shrink::{FRESH, Found};
use super::space::{PARAMS, Space, round};

/// Failures with their files.
pub struct Report<'a> {
    pub dir: &'a Path,
    /// First part of the files' names.
    pub name: String,
    /// Command that repeats the search.
    pub command: String,
    pub space: &'a Space,
}

impl Report<'_> {
    fn file(&self, n: usize, what: &str) -> String {
        format!("{}-{}.{what}", self.name, n + 1)
    }

    fn path(&self, n: usize, what: &str) -> PathBuf {
        self.dir.join(self.file(n, what))
    }

    /// Writes a scenario and a picture for each failure, and removes those of a former search.
    pub fn write(&self, judge: &Judge<'_>, found: &[Found]) -> Result<()> {
        for n in found.len()..WANTED {
            // Mostly there is none.
            let _ = fs::remove_file(self.path(n, "toml"));
            let _ = fs::remove_file(self.path(n, "svg"));
        }
        for (n, failure) in found.iter().enumerate() {
            let Some(compared) = &failure.verdict.compared else {
                continue;
            };
            let text = self.scenario(judge, n, failure, compared);
            for (what, content) in [("toml", text), ("svg", picture(compared))] {
                let path = self.path(n, what);
                owned::replace(&path, content).map_err(|err| Error::io(path.display(), &err))?;
            }
        }
        Ok(())
    }

    fn scenario(&self, judge: &Judge<'_>, n: usize, found: &Found, compared: &Compared) -> String {
        let goal = judge.goal;
        let (cc, reference) = (judge.cc, &compared.reference.cc);
        let mut text = format!(
            "# SPDX-License-Identifier: GPL-2.0\n\
             # Found by `{}` after {} runs, in the space\n# '{}'.\n# {}: {}.\n#\n",
            self.command,
            found.after_runs,
            self.space.title,
            goal.name,
            goal.meaning()
        );
        for (param, value) in found.case.shown() {
            let _ = writeln!(text, "# {} = {value}: {}", param.name, param.meaning);
        }
        let _ = write!(
            text,
            "title = \"{cc}: {}\"\n\
             description = \"\"\"\nWorse than {reference} by a factor of {}; with the seeds {} by {}.\n\
             Picture: {}.\"\"\"\n",
            headline(judge, compared),
            round(found.verdict.times_worse, 2),
            FRESH.map(|seed| seed.to_string()).join(" and "),
            factors(&found.fresh),
            self.file(n, "svg"),
        );
        text += &judge.scenario(&found.case);
        let (name, bound) = goal.expectation(&compared.own.run);
        let metric = name.parse::<Metric>().ok();
        let raw = |outcome: &Outcome| metric.as_ref().and_then(|it| it.of(&outcome.run));
        let values = [raw(&compared.own), raw(&compared.reference)];
        if let [Some(own), Some(theirs)] = values {
            let between = round((own + theirs) / 2.0, 2);
            let row = |cc: &str| {
                format!(
                    "[[expect]]\nmetric = \"{name}\"\ncc = \"{cc}\"\n{bound} = {between}\nsource = \"found by xdc hunt\"\n"
                )
            };
            let later = row(cc).lines().map(|line| format!("# {line}\n")).collect::<String>();
            let _ = write!(
                text,
                "\n# {name}: {} of {cc}, {} of {reference}.\n{}\n# Once {cc} is fixed, this row keeps it so:\n{later}",
                round(own, 3),
                round(theirs, 3),
                row(reference),
            );
        }
        text
    }

    /// A failure in words, with its files.
    pub fn text(&self, judge: &Judge<'_>, found: &[Found]) -> String {
        let mut text = format!(
            "{}, {}, {}: failures: {}, runs: {}\n",
            judge.cc,
            judge.goal.name,
            self.space.name,
            found.len(),
            judge.runs
        );
        for (n, failure) in found.iter().enumerate() {
            let Some(compared) = &failure.verdict.compared else {
                continue;
            };
            let _ = writeln!(
                text,
                "{}. {}: worse by a factor of {}; with fresh seeds {}\n   {}\n   scenario: {}\n   picture: {}",
                n + 1,
                headline(judge, compared),
                round(failure.verdict.times_worse, 2),
                factors(&failure.fresh),
                failure.case.text(),
                self.path(n, "toml").display(),
                self.path(n, "svg").display(),
            );
        }
        if judge.suspect + judge.failed > 0 {
            let _ = writeln!(
                text,
                "left out: {} suspect runs, {} failed ones",
                judge.suspect, judge.failed
            );
        }
        text
    }

    pub fn json(&self, judge: &Judge<'_>, found: &[Found]) -> Value {
        let failures = found.iter().enumerate().filter_map(|(n, failure)| {
            let compared = failure.verdict.compared.as_ref()?;
            let used = PARAMS.iter().filter(|it| !failure.case.get(it.key).is_nan());
            let values: serde_json::Map<_, _> =
                used.map(|it| (it.name.to_owned(), json!(failure.case.get(it.key)))).collect();
            let fresh: Vec<_> = failure.fresh.iter().map(|it| it.times_worse).collect();
            Some(json!({
                "scenario": self.file(n, "toml"),
                "picture": self.file(n, "svg"),
                "value": compared.value,
                "reference": compared.reference.cc,
                "reference_value": compared.reference_value,
                "times_worse": failure.verdict.times_worse,
                "fresh_times_worse": fresh,
                "after_runs": failure.after_runs,
                "parameters": values,
            }))
        });
        json!({
            "schema": 1,
            "cc": judge.cc,
            "goal": judge.goal.name,
            "space": self.space.name,
            "against": judge.against,
            "runs": judge.runs,
            "suspect": judge.suspect,
            "failed": judge.failed,
            "failures": failures.collect::<Vec<_>>(),
        })
    }
}

fn headline(judge: &Judge<'_>, compared: &Compared) -> String {
    format!(
        "{} {}, {} {}",
        judge.goal.name,
        round(compared.value, 2),
        compared.reference.cc,
        round(compared.reference_value, 2)
    )
}

fn factors(fresh: &[Verdict]) -> String {
    let all = fresh.iter().map(|it| round(it.times_worse, 2).to_string());
    all.collect::<Vec<_>>().join(" and ")
}

/// Throughput of the flows beside that of the reference; with many flows, slowdown by percentile.
fn picture(compared: &Compared) -> String {
    let both = [&compared.own, &compared.reference];
    let mut charts: Vec<_> = match both.iter().any(|it| it.throughput.is_empty()) {
        false => both.iter().map(|it| throughput(it)).collect(),
        true => vec![slowdown(&both)],
    };
    let y_end = charts.iter().map(Chart::max_y).fold(0.0, f64::max);
    charts.iter_mut().for_each(|chart| chart.y_end = y_end);
    plot::file(&charts, 2)
}

fn chart(title: String, lines: Vec<Line>) -> Chart {
    Chart {
        title,
        width: WIDE,
        x_unit: TIME,
        x_log: false,
        y_unit: RATE,
        lines,
        x_end: 0.0,
        y_end: 0.0,
    }
}

fn throughput(outcome: &Outcome) -> Chart {
    chart(format!("{}: throughput", outcome.cc), outcome.throughput.clone())
}

fn slowdown(both: &[&Outcome; 2]) -> Chart {
    let lines = both.iter().enumerate().map(|(color, outcome)| {
        let messages = outcome.run.groups.get("messages");
        let of = messages.map_or(&outcome.run.completion, |it| &it.completion);
        let spread = &of.slowdown;
        let points =
            [(50.0, spread.p50), (95.0, spread.p95), (99.0, spread.p99), (100.0, spread.max)];
        Line {
            name: outcome.cc.clone(),
            detail: outcome.cc.clone(),
            color,
            points: points.into_iter().filter_map(|(x, y)| Some((x, y?))).collect(),
            ..Line::default()
        }
    });
    Chart {
        x_unit: PERCENT,
        y_unit: RATIO,
        ..chart("slowdown of messages by percentile".to_owned(), lines.collect())
    }
}
