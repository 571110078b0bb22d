// SPDX-License-Identifier: GPL-2.0
//! The files of a result, and the table on stdout.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::record::Record;
use crate::summary::{Run, Summary};

/// The next free number under `results/SCENARIO`.
pub fn new_dir(results: &Path, scenario: &str) -> Result<PathBuf> {
    let parent = results.join(scenario);
    let io = |path: &Path, err: &std::io::Error| Error::io(path.display(), err);
    fs::create_dir_all(&parent).map_err(|err| io(&parent, &err))?;
    for n in 1u32.. {
        let dir = parent.join(n.to_string());
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(io(&dir, &err)),
        }
    }
    Err(Error::failure(format!("{} is full", parent.display())))
}

pub fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(|err| Error::io(path.display(), &err))
}

/// One row a flow; empty fields for a flow that the run's end cut off.
pub fn flows_csv(records: &[Record]) -> String {
    let mut csv = String::from("cc,flow,group,src,dst,start_us,end_us,bytes,fct_us,retransmits\n");
    for record in records {
        for (result, flow) in record.flows.iter().zip(&record.plan.flows) {
            let end = result.end_us.map(|us| us.to_string()).unwrap_or_default();
            let fct = result
                .end_us
                .map(|us| us.saturating_sub(result.start_us).to_string())
                .unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{},{end},{},{fct},{}",
                record.cc,
                result.flow,
                flow.group,
                flow.src,
                flow.dst,
                result.start_us,
                result.received_bytes,
                result.retransmits
            );
        }
    }
    csv
}

/// One row per sample of a flow (`flow`, its number) or a queue (`queue`, its name).
pub fn series_csv(records: &[Record]) -> String {
    let mut csv = String::from(
        "cc,t_us,kind,id,received_bytes,cwnd_bytes,srtt_us,pacing_bps,retransmits,\
         backlog_bytes,phantom_bytes,drops,marks\n",
    );
    for record in records {
        let cc = &record.cc;
        for sample in &record.samples {
            let t_us = sample.t_us;
            for (id, flow) in sample.flows.iter().enumerate() {
                let _ = writeln!(
                    csv,
                    "{cc},{t_us},flow,{id},{},{},{},{},{},,,,",
                    flow.received_bytes,
                    flow.cwnd_bytes,
                    flow.srtt_us,
                    flow.pacing_bps,
                    flow.retransmits
                );
            }
            for (queue, watched) in sample.queues.iter().zip(&record.plan.watch) {
                let phantom = queue.phantom_bytes.map(|b| b.to_string());
                let _ = writeln!(
                    csv,
                    "{cc},{t_us},queue,{},,,,,,{},{},{},{}",
                    watched.name,
                    queue.backlog_bytes,
                    phantom.unwrap_or_default(),
                    queue.drops,
                    queue.marks
                );
            }
        }
    }
    csv
}

pub const COLUMNS: &[&str] = &[
    "cc", "Mbit/s", "util", "Jain", "steady", "conv ms", "FCT mean", "FCT max", "RTT p50",
    "RTT p99", "q p99 kB", "q max kB", "drops", "marks", "retx", "wall s", "",
];

pub fn row(run: &Run) -> Vec<String> {
    let number = |value: Option<f64>, decimals: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let kb = |value: Option<f64>| number(value.map(|bytes| bytes / 1e3), 1);
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
        kb(run.queue_bytes.p99),
        kb(run.queue_bytes.max),
        run.drops.to_string(),
        run.marks.to_string(),
        run.retransmits.to_string(),
        number(Some(run.wall_s), 1),
        if run.suspect.is_empty() {
            String::new()
        } else {
            "suspect".to_owned()
        },
    ]
}

/// Columns as wide as they need; names to the left, numbers to the right.
pub fn table(summary: &Summary) -> String {
    let mut rows = vec![COLUMNS.iter().map(|&c| c.to_owned()).collect::<Vec<_>>()];
    rows.extend(summary.runs.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let _ = if column == 0 {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::recorded;

    #[test]
    fn flows_have_one_row_each() {
        let csv = flows_csv(&[recorded()]);
        let rows: Vec<_> = csv.lines().collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1], "unocc,0,all,a1,r,0,16000,1048576,16000,0");
    }

    #[test]
    fn every_row_of_the_series_has_every_column() {
        let csv = series_csv(&[recorded()]);
        let columns = csv.lines().next().unwrap().split(',').count();
        assert!(csv.lines().all(|row| row.split(',').count() == columns));
        assert_eq!(csv.lines().count(), 1 + 21 * 3);
    }

    #[test]
    fn results_are_numbered() {
        let dir = tempfile::tempdir().unwrap();
        let first = new_dir(dir.path(), "x").unwrap();
        let second = new_dir(dir.path(), "x").unwrap();
        assert!(first.ends_with("x/1") && second.ends_with("x/2"));
    }
}
