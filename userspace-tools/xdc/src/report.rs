// SPDX-License-Identifier: GPL-2.0
//! report.html: one self-contained page with the figures of a result.

use std::fmt::Write as _;

use plotters::prelude::*;

use crate::error::{Error, Result};
use crate::expect::{Checked, Verdict};
use crate::record::Record;
use crate::results;
use crate::scenario::Loaded;
use crate::summary::Summary;

const WIDTH: u32 = 560;
const HEIGHT: u32 = 260;
/// More points than pixels show nothing more.
const MAX_POINTS: usize = 400;

/// Drawn in this colour by plotters, then given the page's own, which follows its theme.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_TEXT: &str = "#010203";

/// Told apart in light and dark, also by those who see red and green alike.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x77, 0xbb),
    RGBColor(0xee, 0x77, 0x33),
    RGBColor(0x00, 0x99, 0x88),
    RGBColor(0xcc, 0x33, 0x11),
    RGBColor(0xaa, 0x44, 0x99),
    RGBColor(0x88, 0x88, 0x00),
    RGBColor(0x33, 0xbb, 0xee),
    RGBColor(0xbb, 0x88, 0x66),
];

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#d5d9de;--bad:#b3261e;--good:#17703a}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e3e6ea;--dim:#99a;--line:#343a42;--bad:#ff8a80;--good:#7bd88f}}
body{background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1220px;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,.text td{text-align:left}
.dim{color:var(--dim)}.FAIL{color:var(--bad);font-weight:600}.pass{color:var(--good)}.skip{color:var(--dim)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:1rem}
svg{color:var(--fg);width:100%;height:auto}pre{overflow-x:auto;font-size:13px}
";

struct Line {
    name: String,
    /// Time in ms, value.
    points: Vec<(f64, f64)>,
    color: RGBColor,
}

pub fn html(
    loaded: &Loaded,
    resolved: &str,
    summary: &Summary,
    records: &[Record],
    checked: &[Checked<'_>],
) -> Result<String> {
    let scenario = &loaded.scenario;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}</title><style>{STYLE}</style>\n<h1>{0}</h1>\n",
        escape(&scenario.title)
    );
    let mut paragraph = |class: &str, text: &str| {
        if !text.is_empty() {
            let _ = writeln!(page, "<p class=\"{class}\">{}</p>", escape(text));
        }
    };
    paragraph("", scenario.description.trim());
    paragraph("dim", &scenario.source);
    paragraph("dim", &setting(summary));
    page.push_str(&table(summary));
    page.push_str(&verdicts(checked));
    page.push_str("<h2>Flow completion times</h2>\n<div class=\"charts\">");
    page.push_str(&fct_chart(records)?);
    page.push_str("</div>\n");
    for record in records {
        let _ = writeln!(
            page,
            "<h2>{}</h2>\n<div class=\"charts\">",
            escape(&record.cc)
        );
        for chart in charts(record)? {
            page.push_str(&chart);
        }
        page.push_str("</div>\n");
        page.push_str(&links(record));
    }
    let _ = write!(
        page,
        "<h2>Scenario</h2>\n<pre>{}</pre>\n</html>\n",
        escape(resolved)
    );
    Ok(page)
}

/// Engine, kernel, seed and scale in one sentence.
pub fn setting(summary: &Summary) -> String {
    let accel = summary.accel.as_ref().map(|accel| format!(" ({accel})"));
    let scale = if summary.scale == 1 {
        String::new()
    } else {
        format!(", rates / {0} and times x {0}", summary.scale)
    };
    format!(
        "{}{}, Linux {}, seed {}{scale}",
        summary.engine,
        accel.unwrap_or_default(),
        summary.kernel,
        summary.seed
    )
}

fn table(summary: &Summary) -> String {
    let mut html = String::from("<h2>Figures</h2>\n<table><tr>");
    for column in results::COLUMNS {
        let _ = write!(html, "<th>{column}</th>");
    }
    html.push_str("</tr>\n");
    for run in &summary.runs {
        html.push_str("<tr>");
        for cell in results::row(run) {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    for run in &summary.runs {
        for doubt in &run.suspect {
            let _ = writeln!(
                html,
                "<p class=\"FAIL\">{}: {}</p>",
                escape(&run.cc),
                escape(doubt)
            );
        }
    }
    html
}

fn verdicts(checked: &[Checked<'_>]) -> String {
    if checked.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Expectations</h2>\n<table class=\"text\">");
    for row in checked {
        let verdict = match row.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Skipped => "skip",
        };
        let measured = row
            .measured
            .map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
        let _ = writeln!(
            html,
            "<tr><td class=\"{verdict}\">{verdict}</td><td>{}</td><td>{}</td><td>{measured}</td>\
             <td>{}</td><td class=\"dim\">{}</td></tr>",
            escape(&row.expect.cc),
            escape(&row.expect.metric),
            escape(&row.expect.bound()),
            escape(&row.expect.source)
        );
    }
    html.push_str("</table>\n");
    html
}

fn links(record: &Record) -> String {
    let checks: Vec<_> = record
        .link_checks
        .iter()
        .map(|check| {
            format!(
                "{}-{} {:.2} us of {:.2} us ({:+.2} %)",
                check.src,
                check.dst,
                check.measured_us,
                check.configured_us,
                check.error() * 100.0
            )
        })
        .collect();
    format!(
        "<p class=\"dim\">Base RTT: {}</p>\n",
        escape(&checks.join("; "))
    )
}

fn charts(record: &Record) -> Result<Vec<String>> {
    let mut charts = vec![
        chart("Throughput, Gbit/s", &throughput(record))?,
        chart("Window, kB", &windows(record))?,
    ];
    for (queue, watched) in record.plan.watch.iter().enumerate() {
        let title = format!("Queue: {}, kB", watched.name);
        charts.push(chart(&title, &backlog(record, queue))?);
    }
    Ok(charts)
}

/// A colour per flow; flows of one group are neighbours in the palette.
fn color(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

fn flow_name(record: &Record, flow: usize) -> String {
    let flow = &record.plan.flows[flow];
    format!("{} {}", flow.group, flow.src)
}

fn throughput(record: &Record) -> Vec<Line> {
    let step_us = (record.end_us() / MAX_POINTS as u64)
        .max(2 * record.plan.sample_us)
        .max(1);
    (0..record.plan.flows.len())
        .map(|flow| Line {
            name: flow_name(record, flow),
            points: (0..record.end_us() / step_us)
                .map(|step| {
                    let (from, to) = (step * step_us, (step + 1) * step_us);
                    let bytes = record.received_at(flow, to) - record.received_at(flow, from);
                    (to as f64 / 1e3, bytes * 8e-3 / step_us as f64)
                })
                .collect(),
            color: color(flow),
        })
        .collect()
}

fn windows(record: &Record) -> Vec<Line> {
    (0..record.plan.flows.len())
        .map(|flow| Line {
            name: flow_name(record, flow),
            points: thin(
                record
                    .flow_series(flow)
                    .filter(|(_, sample)| sample.active)
                    .map(|(t_us, sample)| (t_us as f64 / 1e3, sample.cwnd_bytes as f64 / 1e3)),
            ),
            color: color(flow),
        })
        .collect()
}

fn backlog(record: &Record, queue: usize) -> Vec<Line> {
    let kb = |t_us: u64, bytes: u64| (t_us as f64 / 1e3, bytes as f64 / 1e3);
    let physical = record
        .queue_series(queue)
        .map(|(t_us, sample)| kb(t_us, sample.backlog_bytes));
    let phantom = record
        .queue_series(queue)
        .filter_map(|(t_us, sample)| Some(kb(t_us, sample.phantom_bytes?)));
    vec![
        Line {
            name: "physical".to_owned(),
            points: thin(physical),
            color: color(0),
        },
        Line {
            name: "phantom".to_owned(),
            points: thin(phantom),
            color: color(1),
        },
    ]
}

/// The highest point of each stretch: peaks are what a queue's plot is for.
fn thin(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let points: Vec<_> = points.collect();
    points
        .chunks(points.len().div_ceil(MAX_POINTS).max(1))
        .filter_map(|chunk| chunk.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

type Drawing = std::result::Result<(), Box<dyn std::error::Error>>;

fn chart(title: &str, lines: &[Line]) -> Result<String> {
    draw(|root| {
        let points = || lines.iter().flat_map(|line| &line.points);
        let end = points().map(|point| point.0).fold(1e-3, f64::max);
        let top = points().map(|point| point.1).fold(1e-3, f64::max) * 1.05;
        let text = ("sans-serif", 12).into_font().color(&INK);
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 14).into_font().color(&INK))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK.mix(0.5))
            .x_desc("ms")
            .label_style(text.clone())
            .draw()?;
        for line in lines.iter().filter(|line| !line.points.is_empty()) {
            let color = line.color;
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), &color))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font(text)
            .draw()?;
        Ok(())
    })
}

/// One stroke per flow, sorted, congestion controls side by side.
fn fct_chart(records: &[Record]) -> Result<String> {
    let mut columns = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let mut fcts: Vec<_> = record
            .flows
            .iter()
            .filter_map(|flow| Some(flow.end_us?.saturating_sub(flow.start_us) as f64 / 1e3))
            .collect();
        fcts.sort_by(f64::total_cmp);
        columns.push((index, &record.cc, fcts));
    }
    if columns.iter().all(|(_, _, fcts)| fcts.is_empty()) {
        return Ok("<p class=\"dim\">The flows have no end.</p>".to_owned());
    }
    draw(|root| {
        let top = columns
            .iter()
            .flat_map(|(_, _, fcts)| fcts)
            .fold(1e-3, |top: f64, &fct| top.max(fct))
            * 1.05;
        let text = ("sans-serif", 12).into_font().color(&INK);
        let mut chart = ChartBuilder::on(root)
            .caption(
                "FCT of each flow, ms",
                ("sans-serif", 14).into_font().color(&INK),
            )
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..columns.len() as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK.mix(0.5))
            .label_style(text.clone())
            .draw()?;
        for (index, cc, fcts) in &columns {
            let color = color(*index);
            let width = 0.8 / fcts.len().max(1) as f64;
            let bars = fcts.iter().enumerate().map(|(n, &fct)| {
                let x = *index as f64 + 0.1 + n as f64 * width;
                Rectangle::new([(x, 0.0), (x + width * 0.8, fct)], color.filled())
            });
            chart
                .draw_series(bars)?
                .label(cc.as_str())
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(TRANSPARENT)
            .label_font(text)
            .draw()?;
        Ok(())
    })
}

fn draw(
    paint: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawing,
) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        paint(&root)
            .and_then(|()| Ok(root.present()?))
            .map_err(|err| Error::failure(format!("a plot cannot be drawn: {err}")))?;
    }
    // A fixed size would keep the page's grid from scaling it.
    let fixed = format!("width=\"{WIDTH}\" height=\"{HEIGHT}\" ");
    Ok(svg
        .replacen(&fixed, "", 1)
        .replace(INK_TEXT, "currentColor"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::recorded;
    use crate::scenario::{parse, tests::SMALL};
    use crate::{expect, summary};

    #[test]
    fn the_page_is_whole_and_alone() {
        let record = recorded();
        let loaded = parse("small", SMALL, &[]).unwrap();
        let summary = Summary {
            scenario: "small".to_owned(),
            engine: "uml".to_owned(),
            accel: None,
            seed: 1,
            scale: 1,
            kernel: "7.3.4".to_owned(),
            runs: vec![summary::run(&record, 1000)],
        };
        let value = serde_json::to_value(&summary).unwrap();
        let checked = expect::check(&loaded.scenario.expect, &value);
        let page = html(&loaded, SMALL, &summary, &[record], &checked).unwrap();
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("prefers-color-scheme:dark"));
        assert!(!page.contains(INK_TEXT));
        assert!(page.contains("class=\"pass\""));
        for outside in ["src=", "href=\"http", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
