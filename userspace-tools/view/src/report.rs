// SPDX-License-Identifier: GPL-2.0
//! report.html: one self-contained page with the figures of a result.

use std::fmt::Write as _;

use xdc_measure::record::Record;
use xdc_measure::run::Run;
use xdc_proto::Dropped;
use xdc_result::expect::Checked;
use xdc_result::summary::Summary;
use xdc_result::table;
use xdc_scenario::Loaded;

use crate::charts::{Figures, NARROW, WIDE};
use crate::plot::{self, Chart, Figure, escape};

const STYLE: &str = "
:root{color-scheme:light dark;--bad:#b3261e;--good:#17703a}
@media screen and (prefers-color-scheme:dark){:root{--bad:#ff8a80;--good:#7bd88f}}
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1220px;padding:0 1rem}
h1{font-size:1.6rem;line-height:1.25}h2{font-size:1.2rem;margin:2rem 0 .6rem}summary{cursor:pointer}
.dim{color:var(--dim)}.FAIL{color:var(--bad);font-weight:600}.pass{color:var(--good)}.skip{color:var(--dim)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{vertical-align:bottom}th small{display:block;font-weight:400;color:var(--dim)}
th:first-child,td:first-child,.text td,.text th{text-align:left}
.text td:last-child{white-space:normal;min-width:16rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,var(--least)),1fr));gap:.6rem;margin:.6rem 0}
.charts svg{width:100%;height:auto;break-inside:avoid}
pre{overflow-x:auto;font-size:13px}
@media print{:root{color-scheme:light}body{margin:0}table{font-size:8px}th,td{padding:.1rem .25rem}.scroll{overflow:visible}h2{break-after:avoid}.charts{--least:240px!important}}
";

/// Policy without scripts and external resources, whatever text a result contains. Charts and tables have
/// inline styles.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Tracepoint data of a run.
pub struct Traced {
    pub events: u64,
    pub charts: Vec<Chart>,
}

pub fn html(
    loaded: &Loaded,
    resolved: &str,
    summary: &Summary,
    records: &[Record],
    figures: &Figures,
    traces: &[Option<&Traced>],
    checked: &[Checked<'_>],
) -> String {
    let scenario = &loaded.scenario;
    let mut page = head(&scenario.title);
    let description: Vec<_> = scenario.description.split_whitespace().collect();
    for (class, text) in
        [("", &description.join(" ")), ("dim", &scenario.source), ("dim", &setting(summary))]
    {
        if !text.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "<p class=\"{class}\">{}</p>", escape(text));
        }
    }
    page.push_str(&totals(summary));
    page.push_str(&verdicts(checked));

    page.push_str("<h2>Side by side</h2>\n");
    page.push_str(&charts(NARROW, figures.overview().chain(&figures.fct)));
    page.push_str(&completions(summary));
    page.push_str(&groups(summary));
    page.push_str(&queues(summary));
    page.push_str(&drops(summary));
    page.push_str(&links(records));
    for ((record, details), trace) in records.iter().zip(&figures.details).zip(traces) {
        let _ = writeln!(page, "<h2>{}</h2>", escape(&record.cc));
        page.push_str(&charts(WIDE, details));
        if let Some(trace) = trace {
            page.push_str(&traced(&record.cc, trace));
        }
    }
    let _ = write!(
        page,
        "<h2>Scenario</h2>\n<p>The scenario of this run; give this file to <code>xdc run</code> to repeat the run.</p>\n\
         <details><summary>scenario.toml</summary><pre>{}</pre></details>\n</body></html>\n",
        escape(resolved)
    );
    page
}

/// Beginning of a self-contained page.
pub fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{0}</title><style>{1}{STYLE}</style></head><body>\n<h1>{0}</h1>\n",
        escape(title),
        plot::STYLE
    )
}

/// Engine, kernel, seed and scale in one sentence.
pub fn setting(summary: &Summary) -> String {
    let accel = summary.accel.as_ref().map(|accel| format!(" ({accel})"));
    let scale = if summary.scale == 1 {
        String::new()
    } else {
        format!(", in a guest {} times as slow", summary.scale)
    };
    format!(
        "{}{}, Linux {}, seed {}{scale}",
        summary.engine,
        accel.unwrap_or_default(),
        summary.kernel,
        summary.seed
    )
}

/// Charts in columns, at least 85 % as wide as drawn.
fn charts<'a>(width: f64, charts: impl IntoIterator<Item = &'a Chart>) -> String {
    let least = 0.85 * width;
    let svgs: String = charts.into_iter().map(Figure::inline).collect();
    format!("<div class=\"charts\" style=\"--least:{least}px\">\n{svgs}</div>\n")
}

/// HTML table; a column is a title and a unit.
fn html_table(columns: &[(&str, &str)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><tr>");
    for (title, unit) in columns {
        let _ = write!(html, "<th>{title}<small>{unit}</small></th>");
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

fn folded(title: &str, table: &str) -> String {
    format!("<details><summary>{title}</summary>\n{table}</details>\n")
}

fn totals(summary: &Summary) -> String {
    let mut html = String::from("<h2>Figures</h2>\n");
    html.push_str(&html_table(table::COLUMNS, summary.runs.iter().map(table::row)));
    let _ = writeln!(
        html,
        "<p class=\"dim\">{}. A dash: does not apply.</p>",
        escape(&table::legend().join("; ").replace('`', ""))
    );
    for note in table::notes(summary) {
        let _ = writeln!(html, "<p>{}</p>", escape(&note));
    }
    for run in &summary.runs {
        for doubt in &run.suspect {
            let _ = writeln!(html, "<p class=\"FAIL\">{}: {}</p>", escape(&run.cc), escape(doubt));
        }
    }
    html
}

fn verdicts(checked: &[Checked<'_>]) -> String {
    if checked.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h2>Expectations</h2>\n<div class=\"scroll\"><table class=\"text\">\
         <tr><th></th><th>cc</th><th>figure</th><th>measured</th><th>expected</th><th>source</th></tr>\n",
    );
    for row in checked {
        let _ = writeln!(
            html,
            "<tr><td class=\"{0}\">{0}</td><td>{1}</td><td>{2}</td><td>{3}</td>\
             <td>{4}</td><td class=\"dim\">{5}</td></tr>",
            row.verdict.name(),
            escape(&row.expect.cc),
            escape(row.expect.metric.name()),
            row.measured_text(),
            escape(&row.bound_text()),
            escape(&row.expect.source)
        );
    }
    html.push_str("</table></div>\n");
    html
}

fn drops(summary: &Summary) -> String {
    const COLUMNS: &[(&str, &str)] = &[("cc", ""), ("place", ""), ("cause", ""), ("packets", "")];
    let of_run = |run: &Run| {
        let row = |of: &Dropped| {
            let (place, cause) = (table::place(of), of.cause.name().to_owned());
            vec![run.cc.clone(), place, cause, of.packets.to_string()]
        };
        run.dropped_at.iter().map(row).collect::<Vec<_>>()
    };
    let rows = summary.runs.iter().flat_map(of_run);
    folded("Dropped packets by place", &html_table(COLUMNS, rows))
}

fn completions(summary: &Summary) -> String {
    let rows = table::completion_rows(summary);
    folded("Completion by group and size", &html_table(table::COMPLETION_COLUMNS, rows))
}

fn groups(summary: &Summary) -> String {
    let columns = [
        ("cc", ""),
        ("group", ""),
        ("flows", ""),
        ("goodput", "Mbit/s"),
        ("steady", "Mbit/s"),
        ("FCT mean", "ms"),
        ("FCT max", "ms"),
        ("RTT p50", "us"),
        ("RTT p99", "us"),
    ];
    let rows = summary.runs.iter().flat_map(|run| {
        run.groups.iter().map(|(name, group)| {
            vec![
                run.cc.clone(),
                name.clone(),
                group.completion.flows.to_string(),
                table::number(Some(group.goodput_mbps), 1),
                table::number(group.goodput_steady_mbps, 1),
                table::number(group.fct_ms.mean, 1),
                table::number(group.fct_ms.max, 1),
                table::number(group.rtt_us.p50, 0),
                table::number(group.rtt_us.p99, 0),
            ]
        })
    });
    folded("Each group of flows", &html_table(&columns, rows))
}

fn queues(summary: &Summary) -> String {
    let columns = [
        ("cc", ""),
        ("queue", ""),
        ("mean", "kB"),
        ("p99", "kB"),
        ("max", "kB"),
        ("phantom max", "kB"),
        ("packets", ""),
        ("drops", ""),
        ("marks", ""),
    ];
    let rows = summary.runs.iter().flat_map(|run| {
        run.queues.iter().map(|queue| {
            vec![
                run.cc.clone(),
                queue.name.clone(),
                table::kilo(queue.queue_bytes.mean),
                table::kilo(queue.queue_bytes.p99),
                table::kilo(queue.queue_bytes.max),
                table::kilo(queue.phantom_max_bytes.map(|bytes| bytes as f64)),
                queue.sent_packets.to_string(),
                queue.drops.to_string(),
                queue.marks.to_string(),
            ]
        })
    });
    folded("Each queue", &html_table(&columns, rows))
}

fn traced(cc: &str, trace: &Traced) -> String {
    format!(
        "<h3>{0}: tracepoints</h3>\n<p class=\"dim\">{1} events, in trace-{0}.jsonl</p>\n{2}",
        escape(cc),
        trace.events,
        charts(WIDE, &trace.charts)
    )
}

/// Table of measured and configured RTTs, on which the other figures depend.
fn links(records: &[Record]) -> String {
    let columns =
        [("cc", ""), ("path", ""), ("configured", "us"), ("measured", "us"), ("error", "%")];
    let rows = records.iter().flat_map(|record| {
        record.link_checks.iter().map(|check| {
            vec![
                record.cc.clone(),
                format!("{} - {}", check.src, check.dst),
                table::number(Some(check.configured_us), 2),
                table::number(Some(check.measured_us), 2),
                format!("{:+.2}", check.error() * 100.0),
            ]
        })
    });
    folded("Link checks: base RTT of each path", &html_table(&columns, rows))
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};

    use super::*;
    use xdc_result::expect;
    use xdc_result::testing::recorded;
    use xdc_scenario::{parse, testing::SMALL};

    #[test]
    fn the_report_is_complete_and_needs_no_other_file() {
        let record = recorded();
        let mut loaded = parse("small", SMALL, &[]).unwrap();
        loaded.scenario.description = "One line,\nand another.".to_owned();
        let windows = Windows::every_us(1000);
        let summary = Summary::of_runs(vec![figures::run(&record, &windows)]);
        let checked = expect::check(&loaded.scenario.expect, "uml", &summary.runs);
        let records = [record];
        let figures = Figures::new(&records, 1000);
        let page = html(&loaded, SMALL, &summary, &records, &figures, &[None], &checked);
        // Throughput, Jain's index, FCT; window, RTT, queues, phantom queues.
        assert_eq!(page.matches("<svg").count(), 3 + 4);
        assert!(page.contains("prefers-color-scheme:dark"));
        assert!(page.contains("<p class=\"\">One line, and another.</p>"));
        assert!(page.contains("a1 - r"));
        assert!(page.contains("class=\"pass\""));
        // The policy comes before the content.
        assert!(page.find("Content-Security-Policy").unwrap() < page.find("<title>").unwrap());
        for outside in ["src=", "href=\"http", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
