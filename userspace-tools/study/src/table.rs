// SPDX-License-Identifier: GPL-2.0
//! `xdc table`: a result as a Markdown table, for figures in pages.

use std::path::PathBuf;

use xdc_base::error::{Error, Result};
use xdc_base::marked;
use xdc_base::text::plain;
use xdc_metric::metric::{Metric, SEE_TABLE, Unknown};
use xdc_result::expect::format_value;
use xdc_result::stored::Stored;

/// Name of the marks in a page.
const SECTION: &str = "result";

#[derive(clap::Args)]
pub struct Request {
    /// A directory that `xdc run` made, or a scenario's name.
    pub result: PathBuf,
    /// Columns; docs/scenarios.md lists the metrics.
    #[arg(
        long,
        value_name = "METRIC,...",
        value_delimiter = ',',
        default_value = "last_fct_ms,fct_spread,jain_converged_ms,drops"
    )]
    pub metrics: Vec<String>,
    /// Write the table between the two `result` comments of a page.
    #[arg(long, value_name = "PAGE.md")]
    pub update: Option<PathBuf>,
    /// Directory of results, for a scenario given by name.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

pub fn command(request: &Request) -> Result<bool> {
    let stored = Stored::open(&request.result, &request.results)?;
    let metrics: Vec<Metric> =
        request.metrics.iter().map(|name| name.parse().map_err(unknown)).collect::<Result<_>>()?;
    for metric in &metrics {
        stored.scenario.check_metric(metric)?;
    }
    let text = markdown(&stored, &metrics);
    match &request.update {
        Some(page) => marked::update(page, SECTION, &text)?,
        None => print!("{text}"),
    }
    Ok(true)
}

fn unknown(err: Unknown) -> Error {
    Error::usage(err.to_string()).hint(SEE_TABLE)
}

fn markdown(stored: &Stored, metrics: &[Metric]) -> String {
    let names: Vec<_> = metrics.iter().map(|metric| format!("`{}`", metric.name())).collect();
    let mut text = format!("| | {} |\n|---{}|\n", names.join(" | "), "|---:".repeat(metrics.len()));
    for run in &stored.summary.runs {
        let values = metrics.iter().map(|metric| {
            let value = metric.of(run).map(format_value);
            value.unwrap_or_else(|| "-".to_owned())
        });
        let values: Vec<_> = values.collect();
        text += &format!("| {} | {} |\n", plain(&run.cc), values.join(" | "));
    }
    let summary = &stored.summary;
    let version = &summary.provenance.xdc_version;
    text += &format!(
        "\n`xdc run {}`, engine {}, seed {}, xdc {}; written by `xdc table`.\n",
        plain(&summary.scenario),
        plain(&summary.engine),
        summary.seed,
        plain(version)
    );
    text
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};

    use super::*;
    use xdc_metric::metric;
    use xdc_result::summary::Summary;
    use xdc_result::testing::recorded;

    #[test]
    fn the_table_has_a_row_per_congestion_control() {
        let home = xdc_base::testing::home();
        let scenario = xdc_scenario::load(Some(&home), "two-dc-1g", &[]).unwrap().scenario;
        let run = figures::run(&recorded(), &Windows::every_us(1000));
        let cc = run.cc.clone();
        let stored = Stored {
            dir: PathBuf::new(),
            summary: Summary::of_runs(vec![run]),
            scenario,
            toml: toml::Table::new(),
        };
        let text = markdown(&stored, &metric::of_names(&["drops", "last_fct_ms"]));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "| | `drops` | `last_fct_ms` |");
        assert_eq!(lines[1], "|---|---:|---:|");
        assert!(lines[2].starts_with(&format!("| {cc} | ")), "{text}");
    }

    #[test]
    fn text_of_a_result_is_escaped() {
        let mut run = figures::run(&recorded(), &Windows::every_us(1000));
        run.cc = "cc\n<!-- result: end -->\\|".to_owned();
        let mut summary = Summary::of_runs(vec![run]);
        summary.engine = "uml\u{1b}]0;owned\u{7}".to_owned();
        summary.scenario = "x` ![](http://x/) `".to_owned();
        let scenario =
            xdc_scenario::parse("links", include_str!("../../../scenarios/links.toml"), &[]);
        let stored = Stored {
            dir: PathBuf::new(),
            summary,
            scenario: scenario.unwrap().scenario,
            toml: toml::Table::new(),
        };
        let text = markdown(&stored, &metric::of_names(&["drops"]));
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
        assert!(!text.contains("<!--") && !text.contains("![]("), "{text}");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[2].starts_with("| cc\\\\n&lt;!-- result: end -->\\\\\\| | "), "{text}");
        assert_eq!(lines.len(), 5);
    }
}
