// SPDX-License-Identifier: GPL-2.0
//! The scorecard as one self-contained page.

use std::fmt::Write as _;

use xdc_view::plot::{Figure as _, escape};
use xdc_view::report;
use xdc_view::scatter::{Dot, Scatter};

use super::card::{Card, Cell, Samples, Verdict};
use super::row::{Plot, Row};
use super::run::Runs;
use super::text::{counts, log2, numbers};

const STYLE: &str = "<style>
.win{background:#17703a33}.loss{background:#b3261e33}.tie{background:#8888882e}.undecided,.missing{color:var(--dim)}
body{max-width:1420px}.card th{white-space:normal}.card td:nth-child(1){white-space:normal;min-width:9rem}.key span{padding:.1rem .5rem;margin-right:.4rem}
</style>\n";

pub fn html(card: &Card, rows: &[Row], runs: &Runs, sets: &[String]) -> String {
    let mut page = report::head(&format!("Scorecard of {}", card.cc));
    page.push_str(STYLE);
    let form = match card.quick {
        true => "quick form",
        false => "whole form",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "<p>Against {}; {form}; virtual time, Linux {}, xdc {}.</p>",
        escape(&card.references.join(", ")),
        escape(&card.kernel),
        escape(&card.xdc_version)
    );
    if !sets.is_empty() {
        let _ =
            writeln!(page, "<p>Changed in all runs: <code>{}</code></p>", escape(&sets.join(" ")));
    }
    let _ = writeln!(
        page,
        "<p><b>{}</b></p>\n<p>A cell is the log2 of the ratio to the best reference (+1: twice as good, -1: half), \
         with its 95 % interval over seeds, paired by seed. A cell is undecided if the interval crosses +5 % or \
         -5 %.</p>\n\
         <p class=\"key\"><span class=\"win\">better</span><span class=\"tie\">within 5 %</span>\
         <span class=\"loss\">worse</span><span class=\"undecided\">undecided</span></p>",
        counts(card)
    );
    for row in rows {
        page.push_str(&section(card, row));
    }
    page.push_str(&plots(card, rows, runs));
    page.push_str("</body></html>\n");
    page
}

/// A row: points down, metrics across.
fn section(card: &Card, row: &Row) -> String {
    let mut html = format!(
        "<h2 id=\"{0}\">{0}: {1}</h2>\n<p>{2}</p>\n<div class=\"scroll\"><table class=\"card\"><tr><th></th>",
        escape(&row.id),
        escape(&row.title),
        escape(&row.asks)
    );
    for column in row.columns() {
        let _ = write!(html, "<th>{}</th>", escape(column));
    }
    html.push_str("<th>seeds x flows</th></tr>\n");
    let cells = || card.cells.iter().filter(|cell| cell.row == row.id);
    let mut points: Vec<&[String]> = Vec::new();
    for cell in cells() {
        if !points.contains(&cell.at.as_slice()) {
            points.push(&cell.at);
        }
    }
    for point in points {
        let _ = write!(html, "<tr><td>{}</td>", escape(&point.join(", ")));
        let here: Vec<&Cell> = cells().filter(|cell| cell.at == point).collect();
        for cell in &here {
            let best = cell.best.as_ref();
            let _ = write!(
                html,
                "<td class=\"{}\" title=\"{}\">{} <small>{}</small><br><small class=\"dim\">ideal {}</small></td>",
                cell.verdict.text(),
                escape(&spelled(cell)),
                escape(&log2(best.and_then(|best| best.log2))),
                escape(best.map_or("", |best| &best.cc)),
                escape(&log2(cell.to_ideal)),
            );
        }
        let n = here.first().map(|cell| numbers(cell)).unwrap_or_default();
        let _ = writeln!(html, "<td>{}</td></tr>", escape(&n));
    }
    html.push_str("</table></div>\n");
    for turn in card.turns.iter().filter(|turn| turn.row == row.id) {
        let to = match (&turn.at, turn.to) {
            (Some(at), Some(to)) => format!("turns to {} at {at}", to.text()),
            _ => "the same at every noise level".to_owned(),
        };
        let _ = writeln!(
            html,
            "<p>{}: {} without noise; {}.</p>",
            escape(&turn.metric),
            turn.from.text(),
            escape(&to)
        );
    }
    html
}

/// Tooltip with every value.
fn spelled(cell: &Cell) -> String {
    let mut lines = vec![match cell.verdict {
        Verdict::Missing => "nothing to compare".to_owned(),
        _ => format!("{} is better; ideal {}", better(cell), cell.ideal),
    }];
    for (cc, values) in &cell.values {
        let values: Vec<_> = values.values().map(|value| format!("{value:.4}")).collect();
        lines.push(format!("{cc}: {}", values.join(" ")));
    }
    lines.join("\n")
}

fn better(cell: &Cell) -> &'static str {
    match cell.better {
        super::row::Better::Higher => "higher",
        super::row::Better::Lower => "lower",
    }
}

/// Delay against throughput: every seed is a dot.
fn plots(card: &Card, rows: &[Row], runs: &Runs) -> String {
    let mut svgs = String::new();
    for (n, row) in rows.iter().enumerate() {
        let Some(plot) = &row.plot else { continue };
        for ((of, labels), samples) in runs.points.iter().zip(&runs.samples) {
            if *of == n {
                svgs.push_str(&scatter(card, row, plot, labels, samples).inline());
            }
        }
    }
    match svgs.is_empty() {
        true => svgs,
        false => format!(
            "<h2>Delay and throughput</h2>\n<p>Each dot is a run; up and to the left is better.</p>\n\
             <div class=\"charts\" style=\"--least:340px\">\n{svgs}</div>\n"
        ),
    }
}

fn scatter(card: &Card, row: &Row, plot: &Plot, labels: &[String], samples: &Samples) -> Scatter {
    let mut names = vec![card.cc.clone()];
    names.extend(card.references.iter().cloned());
    let dots = samples.iter().filter_map(|((cc, seed), sample)| {
        let of = |metric: &xdc_metric::metric::Metric| sample.raw.get(&metric.to_string());
        Some(Dot {
            name: cc.clone(),
            detail: format!("{cc}, seed {seed}"),
            color: names.iter().position(|name| name == cc)?,
            at: (*of(&plot.x)?, *of(&plot.y)?),
        })
    });
    Scatter {
        title: format!("{} {}", row.id, labels.join(", ")),
        x_name: plot.x.to_string(),
        y_name: plot.y.to_string(),
        dots: dots.collect(),
    }
}
