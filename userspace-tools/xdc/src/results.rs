// SPDX-License-Identifier: GPL-2.0
//! The files of a result, and the table on stdout.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::completion::Completion;
use crate::error::{Error, Result};
use crate::home;
use crate::record::Record;
use crate::summary::{Run, Summary};

/// A result in the making: a directory that goes, with those made for it, unless it is kept.
pub struct Pending {
    scenario_dir: PathBuf,
    dir: PathBuf,
    /// Outermost first.
    made: Vec<PathBuf>,
    kept: bool,
}

impl Pending {
    /// Made before the guests run, so that a place that cannot be written to costs no run.
    pub fn new(results: &Path, scenario: &str) -> Result<Self> {
        let scenario_dir = results.join(scenario);
        let absent = scenario_dir.ancestors().take_while(|dir| !dir.exists());
        let mut made: Vec<_> = absent.map(Path::to_path_buf).collect();
        made.retain(|dir| !dir.as_os_str().is_empty());
        made.reverse();
        let dir = scenario_dir.join(format!(".running-{}", std::process::id()));
        let pending = Self {
            scenario_dir,
            dir,
            made,
            kept: false,
        };
        fs::create_dir_all(&pending.dir).map_err(|err| {
            Error::io(
                format!("cannot make {} for results", pending.scenario_dir.display()),
                &err,
            )
            .hint("--results DIR, where you may write")
        })?;
        home::require_space(&pending.dir)?;
        Ok(pending)
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let path = self.dir.join(name);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .map_err(|err| Error::io(path.display(), &err))
    }

    /// Under the next free number.
    pub fn keep(mut self) -> Result<PathBuf> {
        for n in 1u32.. {
            let dir = self.scenario_dir.join(n.to_string());
            if dir.exists() {
                continue;
            }
            match fs::rename(&self.dir, &dir) {
                Ok(()) => {
                    self.kept = true;
                    return Ok(dir);
                }
                // Another xdc was faster.
                Err(_) if dir.exists() => {}
                Err(err) => return Err(Error::io(dir.display(), &err)),
            }
        }
        Err(Error::failure(format!(
            "{} is full",
            self.scenario_dir.display()
        )))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let _ = fs::remove_dir_all(&self.dir);
        for dir in self.made.iter().rev() {
            // Fails where something else has come to lie there, which then stays.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// One row a flow; empty fields for a flow that the run's end cut off.
pub fn flows_csv(records: &[Record]) -> String {
    let mut csv = String::from(
        "cc,flow,group,src,dst,start_us,end_us,bytes,fct_us,retransmits,ideal_us,base_rtt_us\n",
    );
    for record in records {
        for (result, flow) in record.flows.iter().zip(&record.plan.flows) {
            let end = result.end_ns.map(us).unwrap_or_default();
            let fct = result.fct_ns().map(us).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{},{end},{},{fct},{},{},{:.3}",
                record.cc,
                result.flow,
                flow.group,
                flow.src,
                flow.dst,
                us(result.start_ns),
                result.received_bytes,
                result.retransmits,
                us(flow.ideal_ns),
                flow.base_rtt_us
            );
        }
    }
    csv
}

/// Microseconds to the nanosecond.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// One row per sample of a flow (`flow`, its number; `flows`, how many are open, where there are
/// too many to record) or a queue (`queue`, its name).
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
            if !record.plan.flow_series {
                let (open, received) = (sample.active_flows, sample.received_bytes);
                let _ = writeln!(csv, "{cc},{t_us},flows,{open},{received},,,,,,,,");
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

/// Title and unit.
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
    ("wall", "s"),
    ("", ""),
];

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
        number(Some(run.wall_s), 1),
        if run.suspect.is_empty() {
            String::new()
        } else {
            "suspect".to_owned()
        },
    ]
}

/// A cell; a dash for what does not apply.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Bytes as a cell in kB.
pub fn kilo(bytes: Option<f64>) -> String {
    number(bytes.map(|bytes| bytes / 1e3), 1)
}

/// A line a congestion control.
pub fn table(summary: &Summary) -> String {
    aligned(COLUMNS, summary.runs.iter().map(row))
}

/// Of a run with more flows than this, a table says how each group did.
const FEW_FLOWS: usize = 16;

/// A group, or the flows of one size in it, as a row; empty if there are few flows.
pub fn completion_table(summary: &Summary) -> String {
    match summary
        .runs
        .iter()
        .any(|run| run.completion.flows > FEW_FLOWS)
    {
        true => aligned(COMPLETION_COLUMNS, completion_rows(summary)),
        false => String::new(),
    }
}

/// Title and unit.
pub const COMPLETION_COLUMNS: &[(&str, &str)] = &[
    ("cc", ""),
    ("group", ""),
    ("size", ""),
    ("flows", ""),
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
        row.extend([of.flows.to_string(), of.unfinished.to_string()]);
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
            for size in ["small", "medium", "large"] {
                if let Some(of) = group.sizes.get(size).filter(|_| group.sizes.len() > 1) {
                    rows.push(row(&run.cc, name, size, of));
                }
            }
        }
    }
    rows
}

/// Columns as wide as they need; names to the left, numbers to the right.
fn aligned(columns: &[(&str, &str)], body: impl IntoIterator<Item = Vec<String>>) -> String {
    let titles = columns.iter().map(|&(title, _)| title.to_owned()).collect();
    let units = columns.iter().map(|&(_, unit)| unit.to_owned()).collect();
    let mut rows: Vec<Vec<String>> = vec![titles, units];
    rows.extend(body);
    align(&rows)
}

/// Columns as wide as they need; names to the left, numbers to the right.
pub fn align(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            // Writing to a String cannot fail.
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
        assert_eq!(
            rows[1],
            "unocc,0,all,a1,r,0.000,16000.000,1048576,16000.000,0,8771.408,113.168"
        );
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
        let keep = || Pending::new(dir.path(), "x").unwrap().keep().unwrap();
        assert!(keep().ends_with("x/1"));
        assert!(keep().ends_with("x/2"));
    }

    #[test]
    fn what_is_not_kept_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let pending = Pending::new(&dir.path().join("new/results"), "x").unwrap();
        pending.write("plots/a.svg", "").unwrap();
        drop(pending);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_table_has_units_under_its_titles() {
        let summary = Summary {
            scenario: "x".to_owned(),
            engine: "uml".to_owned(),
            accel: None,
            seed: 1,
            scale: 1,
            kernel: String::new(),
            runs: vec![crate::summary::run(
                &recorded(),
                &crate::summary::Windows::every_us(1000),
            )],
        };
        let text = table(&summary);
        let lines: Vec<_> = text.lines().collect();
        let end = lines[0].find("goodput").unwrap() + "goodput".len();
        assert!(lines[1][..end].ends_with("Mbit/s"));
        assert_eq!(row(&summary.runs[0]).len(), COLUMNS.len());
    }
}
