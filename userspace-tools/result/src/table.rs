// SPDX-License-Identifier: GPL-2.0
//! Tables of a result, for terminal and page.

use std::fmt::Write as _;

use xdc_base::text;
use xdc_measure::run::{Completion, Run};
use xdc_metric::metric::Metric;
use xdc_proto::{Cause, Dropped};

use crate::summary::Summary;

/// Columns: title and unit.
pub const COLUMNS: &[(&str, &str)] = &[
    ("cc", ""),
    ("goodput", "Mbit/s"),
    ("util", ""),
    ("Jain", ""),
    ("steady", ""),
    ("converged", "ms"),
    ("FCT mean", "ms"),
    ("FCT max", "ms"),
    ("RTT p50", "us"),
    ("RTT p99", "us"),
    ("q p99", "kB"),
    ("q max", "kB"),
    ("drops", ""),
    ("marks", ""),
    ("retx", ""),
    ("RTOs", ""),
    ("wall", "s"),
    ("", ""),
];

/// Columns with abbreviated titles, and their metrics.
const SHORT: &[(&str, &str)] = &[
    ("util", "utilisation"),
    ("Jain", "jain_mean"),
    ("steady", "jain_steady"),
    ("converged", "jain_converged_ms"),
    ("q", "queue_bytes.mean"),
    ("drops", "drops"),
    ("marks", "marks"),
    ("retx", "retransmits"),
    ("RTOs", "timeouts"),
];

/// Legend of abbreviated titles, one line each.
pub fn legend() -> Vec<String> {
    let meaning = |&(title, name): &(&str, &str)| {
        let metric: Metric = name.parse().ok()?;
        Some(format!("{title}: {}", metric.meaning()))
    };
    SHORT.iter().filter_map(meaning).collect()
}

pub fn row(run: &Run) -> Vec<String> {
    vec![
        run.cc.clone(),
        number(Some(run.goodput_mbps), 1),
        number(run.utilisation, 3),
        number(run.jain_mean, 3),
        number(run.jain_steady, 3),
        number(run.jain_converged_ms, 0),
        number(run.fct_ms.mean, 1),
        number(run.fct_ms.max, 1),
        number(run.rtt_us.p50, 0),
        number(run.rtt_us.p99, 0),
        kilo(run.queue_bytes.p99),
        kilo(run.queue_bytes.max),
        run.drops.to_string(),
        run.marks.to_string(),
        run.retransmits.to_string(),
        run.timeouts.to_string(),
        number(Some(run.wall_s), 1),
        if run.suspect.is_empty() { String::new() } else { "suspect".to_owned() },
    ]
}

/// A cell; a dash if the value does not apply.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Cell with bytes in kB.
pub fn kilo(bytes: Option<f64>) -> String {
    number(bytes.map(|bytes| bytes / 1e3), 1)
}

/// Table with a line per congestion control.
pub fn table(summary: &Summary) -> String {
    aligned(COLUMNS, summary.runs.iter().map(row))
}

/// Packets of a run dropped elsewhere than by queues and links, with places.
fn dropped(run: &Run) -> Option<String> {
    let of_cause = |(cause, packets): (&Cause, &u64)| {
        let at = run.dropped_at.iter().filter(|it| it.cause == *cause);
        let mut at: Vec<_> = at.map(place).collect();
        let more = at.len().saturating_sub(MAX_PLACES);
        at.truncate(MAX_PLACES);
        if more > 0 {
            at.push(format!("{more} more"));
        }
        format!("{}: {packets} ({})", cause.name(), at.join(", "))
    };
    let shown = |&(cause, &packets): &(&Cause, &u64)| {
        packets > 0 && !matches!(cause, Cause::Queue | Cause::Link)
    };
    let causes = run.dropped.iter().filter(shown);
    let causes: Vec<_> = causes.map(of_cause).collect();
    let line = format!("{}: dropped packets: {}", run.cc, causes.join("; "));
    (!causes.is_empty()).then_some(line)
}

/// Maximum number of places in a line.
const MAX_PLACES: usize = 4;

/// Name of a node, or of a port by its two ends.
pub fn place(of: &Dropped) -> String {
    match of.port.as_str() {
        "" => of.node.clone(),
        port => format!("{}-{port}", of.node),
    }
}

/// Notes on each run: conditions that change the meaning of its row; places of drops; with TLT, lost
/// important packets and added packets.
pub fn notes(summary: &Summary) -> Vec<String> {
    let noted = |run: &Run| {
        let lines = run.notes.iter().map(|note| format!("{}: {}", run.cc, note.text));
        lines.collect::<Vec<_>>()
    };
    let of_run = |run: &Run| {
        let tlt = run.tlt.as_ref().filter(|tlt| tlt.packets > 0)?;
        let lost = match run.drops_green {
            0 => "no green packet was dropped".to_owned(),
            1 => "1 green packet was dropped".to_owned(),
            lost => format!("{lost} green packets were dropped"),
        };
        let percent = |share: f64| number(Some(share * 100.0), 2);
        Some(format!(
            "{}: {lost}; {} % of data packets were important, {} % of all packets were added by TLT",
            run.cc,
            percent(tlt.important_share()),
            percent(tlt.extra_packet_share())
        ))
    };
    let of_runs = summary.runs.iter();
    of_runs.flat_map(|run| noted(run).into_iter().chain(dropped(run)).chain(of_run(run))).collect()
}

/// Runs with more flows get a table by group.
const FEW_FLOWS: usize = 16;

/// Table with a row per group and size class; empty for few flows.
pub fn completion_table(summary: &Summary) -> String {
    match summary.runs.iter().any(|run| run.completion.flows > FEW_FLOWS) {
        true => aligned(COMPLETION_COLUMNS, completion_rows(summary)),
        false => String::new(),
    }
}

/// Columns: title and unit.
pub const COMPLETION_COLUMNS: &[(&str, &str)] = &[
    ("cc", ""),
    ("group", ""),
    ("size", ""),
    ("flows", ""),
    ("warm-up", ""),
    ("unfinished", ""),
    ("FCT mean", "us"),
    ("p50", "us"),
    ("p99", "us"),
    ("max", "us"),
    ("slowdown mean", ""),
    ("p50", ""),
    ("p99", ""),
    ("max", ""),
];

pub fn completion_rows(summary: &Summary) -> Vec<Vec<String>> {
    let row = |cc: &str, group: &str, size: &str, of: &Completion| {
        let mut row = [cc, group, size].map(str::to_owned).to_vec();
        row.extend([of.flows, of.warmup, of.unfinished].map(|n| n.to_string()));
        let (fct, slowdown) = (&of.fct_us, &of.slowdown);
        row.extend([fct.mean, fct.p50, fct.p99, fct.max].map(|us| number(us, 1)));
        let slowdown = [slowdown.mean, slowdown.p50, slowdown.p99, slowdown.max];
        row.extend(slowdown.map(|ratio| number(ratio, 2)));
        row
    };
    let mut rows = Vec::new();
    for run in &summary.runs {
        for (name, group) in &run.groups {
            rows.push(row(&run.cc, name, "all", &group.completion));
            if group.sizes.len() > 1 {
                let sizes = group.sizes.iter();
                rows.extend(sizes.map(|(size, of)| row(&run.cc, name, size.name(), of)));
            }
        }
    }
    rows
}

/// Aligned table; first column left, the others right.
fn aligned(columns: &[(&str, &str)], body: impl IntoIterator<Item = Vec<String>>) -> String {
    let titles = columns.iter().map(|&(title, _)| title.to_owned()).collect();
    let units = columns.iter().map(|&(_, unit)| unit.to_owned()).collect();
    let mut rows: Vec<Vec<String>> = vec![titles, units];
    rows.extend(body);
    align(&rows)
}

/// Aligned table; first column left, the others right.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<_> = (0..columns).filter_map(width).collect();
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if column == 0 {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        table.push_str(&text::printable(line.trim_end()));
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recorded;

    #[test]
    fn notes_of_a_tlt_run_count_green_drops() {
        let windows = xdc_measure::figures::Windows::every_us(1000);
        let mut run = xdc_measure::figures::run(&recorded(), &windows);
        run.notes.clear();
        let said = |run: &Run| notes(&Summary::of_runs(vec![run.clone()]));
        assert!(said(&run).is_empty());
        run.tlt = Some(xdc_measure::run::Tlt {
            important_packets: 1,
            unimportant_packets: 3,
            packets: 8,
            extra_packets: 1,
            ..Default::default()
        });
        run.drops_green = 0;
        assert!(said(&run)[0].ends_with(
            ": no green packet was dropped; 25.00 % of data packets were important, 12.50 % of all packets were added by TLT"
        ));
        run.drops_green = 2;
        assert!(said(&run)[0].contains(": 2 green packets were dropped;"));
        run.notes = vec![xdc_measure::run::Note {
            kind: xdc_measure::run::NoteKind::Limited,
            text: "the buffer limited 1 of 2 flows".to_owned(),
            count: 1,
        }];
        assert_eq!(said(&run)[0], "unocc: the buffer limited 1 of 2 flows");
        assert_eq!(said(&run).len(), 2);
    }

    #[test]
    fn the_table_has_units_under_its_titles() {
        let windows = xdc_measure::figures::Windows::every_us(1000);
        let run = xdc_measure::figures::run(&recorded(), &windows);
        let summary = Summary::of_runs(vec![run]);
        let text = table(&summary);
        let lines: Vec<_> = text.lines().collect();
        let end = lines[0].find("goodput").unwrap() + "goodput".len();
        assert!(lines[1][..end].ends_with("Mbit/s"));
        assert_eq!(row(&summary.runs[0]).len(), COLUMNS.len());
        assert_eq!(legend().len(), SHORT.len());
    }
}
