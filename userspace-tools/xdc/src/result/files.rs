// SPDX-License-Identifier: GPL-2.0
//! The files of a result.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use xdc_measure::flows::{self, FlowRow};
use xdc_measure::record::Record;

use crate::error::{Error, Result};
use crate::home;
use crate::interrupt;
use crate::owned::{self, OwnedDir};

/// Name prefix of an unfinished result.
const RUNNING: &str = ".running-";

/// An unfinished result: its directory, and parents created for it, are removed unless kept.
pub struct Pending {
    dir: OwnedDir,
    scenario_dir: PathBuf,
    /// Created directories, outermost first.
    made: Vec<PathBuf>,
    _at_end: interrupt::OnEnd,
    kept: bool,
}

impl Pending {
    /// Creates the directory before the guests run, so that an unwritable location wastes no run.
    pub fn new(results: &Path, scenario: &str) -> Result<Self> {
        let scenario_dir = results.join(scenario);
        let absent = scenario_dir.ancestors().take_while(|dir| !dir.exists());
        let mut made: Vec<_> = absent.map(Path::to_path_buf).collect();
        made.retain(|dir| !dir.as_os_str().is_empty());
        made.reverse();
        let at_end = made.clone();
        // Registered first: actions run in reverse order.
        let at_end = interrupt::on_end(move || remove_empty(&at_end));
        let dir = owned::make_folder(&scenario_dir).and_then(|()| {
            owned::reap(&scenario_dir, RUNNING);
            OwnedDir::make(&scenario_dir, RUNNING)
        });
        let dir = dir.map_err(|err| {
            remove_empty(&made);
            Error::io(
                format!("cannot make {} for results", scenario_dir.display()),
                &err,
            )
            .hint("--results DIR, where you may write")
        })?;
        let pending = Self {
            dir,
            scenario_dir,
            made,
            _at_end: at_end,
            kept: false,
        };
        home::require_space(pending.dir.path())?;
        Ok(pending)
    }

    /// Creates a file that grows during the run.
    pub fn create(&self, name: &str) -> Result<File> {
        self.dir.create(name).map_err(|err| self.failed(name, &err))
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let written = self.dir.create(name).and_then(|mut file| {
            file.write_all(text.as_ref())?;
            owned::ignore_unsupported(file.sync_all())
        });
        written.map_err(|err| self.failed(name, &err))
    }

    /// Writes a file that is too large for memory.
    pub fn stream(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let mut file = BufWriter::new(self.create(name)?);
        write(&mut file).map_err(|err| err.about(name))?;
        let written = file.into_inner().map_err(|err| err.into_error());
        let synced = written.and_then(|file| owned::ignore_unsupported(file.sync_all()));
        synced.map_err(|err| self.failed(name, &err))
    }

    fn failed(&self, name: &str, err: &std::io::Error) -> Error {
        Error::io(self.dir.path().join(name).display(), err)
    }

    /// Whether any guest has written to its console.
    pub fn has_console(&self) -> bool {
        let files = fs::read_dir(self.dir.path())
            .into_iter()
            .flatten()
            .flatten();
        let mut consoles = files.filter(|file| {
            let name = file.file_name();
            name.to_string_lossy().starts_with("console-")
        });
        consoles.any(|file| file.metadata().is_ok_and(|meta| meta.len() > 0))
    }

    /// Renames the result to the next free number.
    pub fn keep(self) -> Result<PathBuf> {
        self.keep_as("")
    }

    /// Keeps a result that could not be written completely, perhaps of hours, as `failed-N`.
    pub fn keep_failed(self) -> Result<PathBuf> {
        self.keep_as("failed-")
    }

    fn keep_as(mut self, prefix: &str) -> Result<PathBuf> {
        for n in 1u32.. {
            let name = format!("{prefix}{n}");
            let kept = self.dir.keep(&name);
            let path = self.scenario_dir.join(&name);
            if kept.map_err(|err| Error::io(path.display(), &err))? {
                self.kept = true;
                return Ok(path);
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
        if !self.kept {
            self.dir.remove();
            remove_empty(&self.made);
        }
    }
}

/// Removes created directories; fails for those no longer empty, which stay.
fn remove_empty(made: &[PathBuf]) {
    for dir in made.iter().rev() {
        let _ = fs::remove_dir(dir);
    }
}

/// A CSV column: name, unit, meaning.
pub type Column = (&'static str, &'static str, &'static str);

/// Writer of a CSV table of records.
#[cfg(test)]
pub type Written = fn(&mut dyn Write, &[Record]) -> Result<()>;

/// A CSV row; fields are columns, in order.
trait Row: Serialize {
    const COLUMNS: &'static [Column];
}

impl Row for FlowRow<'_> {
    const COLUMNS: &'static [Column] = &[
        ("cc", "", "congestion control, as the scenario calls it"),
        ("flow", "", "number of the flow, from 0 on"),
        ("group", "", "group of the flow"),
        ("src", "", "sending host"),
        ("dst", "", "receiving host"),
        (
            "start_us",
            "us",
            "planned start, after the traffic's start; the FCT counts from it",
        ),
        (
            "end_us",
            "us",
            "last byte at the receiver; empty if the run ended before",
        ),
        ("bytes", "bytes", "payload received"),
        (
            "fct_us",
            "us",
            "`end_us` minus `start_us`; empty like `end_us`",
        ),
        ("retransmits", "packets", "retransmitted packets"),
        (
            "ideal_us",
            "us",
            "FCT on an idle path if the sender never waits, with the TCP options of its packets; 0 for a flow without a size",
        ),
        (
            "base_rtt_us",
            "us",
            "RTT of a full packet and its ACK on the idle path",
        ),
        (
            "fct_acked_us",
            "us",
            "planned start to the last byte's ACK at the sender; empty for a persistent connection",
        ),
    ];
}

/// flows.csv: one row per flow.
pub fn flows_csv(out: &mut dyn Write, records: &[Record]) -> Result<()> {
    write_rows(out, records.iter().flat_map(flows::rows))
}

#[derive(Default, Serialize)]
struct SeriesRow<'a> {
    cc: &'a str,
    t_us: u64,
    kind: &'static str,
    id: Id<'a>,
    received_bytes: Option<u64>,
    cwnd_bytes: Option<u64>,
    srtt_us: Option<u32>,
    pacing_bps: Option<u64>,
    retransmits: Option<u64>,
    backlog_bytes: Option<u64>,
    phantom_bytes: Option<u64>,
    drops: Option<u64>,
    marks: Option<u64>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Id<'a> {
    Number(usize),
    Name(&'a str),
}

impl Default for Id<'_> {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Row for SeriesRow<'_> {
    const COLUMNS: &'static [Column] = &[
        ("cc", "", "congestion control, as the scenario calls it"),
        (
            "t_us",
            "us",
            "time of the sample, after the traffic's start",
        ),
        (
            "kind",
            "",
            "`flow`; `queue`: a watched port; `flows`: all flows, if they are too many to record each",
        ),
        (
            "id",
            "",
            "number of the flow; name of the port; number of open flows",
        ),
        (
            "received_bytes",
            "bytes",
            "payload that flows received in order so far",
        ),
        ("cwnd_bytes", "bytes", "congestion window of a flow"),
        ("srtt_us", "us", "smoothed RTT of a flow"),
        (
            "pacing_bps",
            "bit/s",
            "pacing rate of a flow; 0 if it is not paced",
        ),
        ("retransmits", "packets", "retransmissions of a flow so far"),
        ("backlog_bytes", "bytes", "queue of a port"),
        (
            "phantom_bytes",
            "bytes",
            "phantom queue of a port, if it has one",
        ),
        ("drops", "packets", "drops of a port so far"),
        ("marks", "packets", "CE marks of a port so far"),
    ];
}

/// series.csv: one row per sample of a flow, of all flows, or of a queue.
pub fn series_csv(out: &mut dyn Write, records: &[Record]) -> Result<()> {
    write_rows(out, records.iter().flat_map(series_of))
}

fn series_of(record: &Record) -> impl Iterator<Item = SeriesRow<'_>> {
    let cc = record.cc.as_str();
    record.samples.iter().flat_map(move |sample| {
        let row = move |kind, id| SeriesRow {
            cc,
            t_us: sample.t_us,
            kind,
            id,
            ..SeriesRow::default()
        };
        let flows = sample.flows.iter().enumerate();
        let flows = flows.map(move |(id, flow)| SeriesRow {
            received_bytes: Some(flow.received_bytes),
            cwnd_bytes: Some(flow.cwnd_bytes),
            srtt_us: Some(flow.srtt_us),
            pacing_bps: Some(flow.pacing_bps),
            retransmits: Some(flow.retransmits),
            ..row("flow", Id::Number(id))
        });
        let all = (!record.plan.flow_series).then(|| SeriesRow {
            received_bytes: Some(sample.received_bytes),
            ..row("flows", Id::Number(sample.active_flows))
        });
        let queues = sample.queues.iter().zip(&record.plan.watch);
        let queues = queues.map(move |(queue, watched)| SeriesRow {
            backlog_bytes: Some(queue.backlog_bytes),
            phantom_bytes: queue.phantom_bytes,
            drops: Some(queue.drops),
            marks: Some(queue.marks),
            ..row("queue", Id::Name(&watched.name))
        });
        flows.chain(all).chain(queues)
    })
}

fn write_rows<R: Row>(out: &mut dyn Write, rows: impl Iterator<Item = R>) -> Result<()> {
    // Write the header even if no row follows.
    let mut csv = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(out);
    let names = R::COLUMNS.iter().map(|column| column.0);
    csv.write_record(names).map_err(not_written)?;
    for row in rows {
        csv.serialize(row).map_err(not_written)?;
    }
    csv.flush().map_err(|err| not_written(err.into()))
}

/// CSV table with arbitrary columns.
pub fn table_csv<R>(rows: impl Iterator<Item = R>) -> Result<Vec<u8>>
where
    R: IntoIterator<Item: AsRef<[u8]>>,
{
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in rows {
        csv.write_record(row).map_err(not_written)?;
    }
    csv.into_inner()
        .map_err(|err| not_written(err.into_error().into()))
}

fn not_written(err: csv::Error) -> Error {
    match err.into_kind() {
        csv::ErrorKind::Io(err) => Error::io("a table cannot be written", &err),
        other => Error::failure(format!("a table cannot be written: {other:?}")),
    }
}

/// Generates the column tables of docs/scenarios.md.
#[cfg(test)]
pub fn column_table(columns: &[Column]) -> String {
    let rows = columns
        .iter()
        .map(|(name, unit, meaning)| format!("| `{name}` | {unit} | {meaning} |\n"));
    format!(
        "| column | unit | |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::recorded;
    use crate::scenario::{self, plan};

    fn text(written: Written, records: &[Record]) -> String {
        let mut bytes = Vec::new();
        written(&mut bytes, records).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn flows_have_one_row_each() {
        let csv = text(flows_csv, &[recorded()]);
        let rows: Vec<_> = csv.lines().collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(
            rows[0],
            "cc,flow,group,src,dst,start_us,end_us,bytes,fct_us,retransmits,ideal_us,base_rtt_us,fct_acked_us"
        );
        assert_eq!(
            rows[1],
            "unocc,0,all,a1,r,0.000,16000.000,1048576,16000.000,0,8771.408,113.168,16050.000"
        );
    }

    #[test]
    fn a_series_has_a_row_per_flow_and_queue() {
        let mut record = recorded();
        let csv = text(series_csv, std::slice::from_ref(&record));
        assert_eq!(csv.lines().count(), 1 + 21 * 3);
        assert!(
            csv.contains("\nunocc,1000,flow,0,87381,14480,201,1000000,0,,,,\n"),
            "{csv}"
        );
        assert!(
            csv.contains("\nunocc,1000,queue,port,,,,,,100,1000,0,1\n"),
            "{csv}"
        );
        record.plan.flow_series = false;
        record
            .samples
            .iter_mut()
            .for_each(|sample| sample.flows.clear());
        let csv = text(series_csv, &[record]);
        assert!(csv.contains("\nunocc,0,flows,2,0,,,,,,,,\n"), "{csv}");
    }

    /// Rows are serialized by field; the header comes from the list.
    #[test]
    fn columns_match_the_fields_of_a_row() {
        fn fields<R: Row>(row: R) -> String {
            let mut csv = csv::Writer::from_writer(Vec::new());
            csv.serialize(row).unwrap();
            let text = String::from_utf8(csv.into_inner().unwrap()).unwrap();
            text.lines().next().unwrap().to_owned()
        }
        fn names<R: Row>(_: &R) -> String {
            let names: Vec<_> = R::COLUMNS.iter().map(|column| column.0).collect();
            names.join(",")
        }
        let record = recorded();
        let flow = flows::rows(&record).next().unwrap();
        let (shown, wanted) = (names(&flow), fields(flow));
        assert_eq!(shown, wanted);
        let sample = SeriesRow::default();
        let (shown, wanted) = (names(&sample), fields(sample));
        assert_eq!(shown, wanted);
    }

    /// Regenerated by `UPDATE_DOCS=1 cargo test -p xdc`.
    #[test]
    fn the_page_has_every_column() {
        use crate::marked::tests::holds;
        holds("scenarios.md", "flows.csv", &column_table(FlowRow::COLUMNS));
        holds(
            "scenarios.md",
            "series.csv",
            &column_table(SeriesRow::COLUMNS),
        );
    }

    /// User-chosen names, checked with an independent CSV reader.
    #[test]
    fn names_with_commas_and_quotes_stay_one_field() {
        let mut record = recorded();
        record.plan.watch[0].name = "WAN, a to b".to_owned();
        for flow in &mut record.plan.flows {
            flow.group = "inter, \"far\"".to_owned();
        }
        read_back(&[record]);
    }

    #[test]
    fn every_shipped_scenario_has_readable_tables() {
        let home = home::Home::find().unwrap();
        let mut seen = 0;
        for folder in ["", "physics", "twin"].map(|name| home.scenarios().join(name)) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_none_or(|end| end != "toml") {
                    continue;
                }
                let loaded = scenario::load(Some(&home), path.to_str().unwrap(), &[]).unwrap();
                let cc = &loaded.scenario.ccs[0];
                let plan = plan::plan(&loaded.scenario, cc, 1, 1).unwrap();
                let xdc_proto::Job::Run(run) = plan.job else {
                    panic!("not a run");
                };
                // A run with flows that never start is suspect.
                let stop_us = run.stop_after_us.unwrap_or(u64::MAX);
                let start_us = |flow: &xdc_proto::Flow| flow.start_ns / 1000 + flow.start_jitter_us;
                let all_start = run.flows.iter().all(|flow| start_us(flow) < stop_us);
                assert!(all_start, "{}", path.display());
                read_back(&[made_up(cc, run)]);
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    /// Checks the written CSV with Python's csv module.
    fn read_back(records: &[Record]) {
        const READER: &str = "import csv, json, sys\n\
            rows = csv.reader(sys.stdin, strict=True)\n\
            json.dump(list(rows), sys.stdout)";
        for (written, columns, named) in [
            (flows_csv as Written, FlowRow::COLUMNS.len(), 2),
            (series_csv, SeriesRow::COLUMNS.len(), 3),
        ] {
            let text = text(written, records);
            let mut ours = csv::ReaderBuilder::new()
                .has_headers(false)
                .from_reader(text.as_bytes());
            let rows: Vec<Vec<String>> = ours.deserialize().map(|row| row.unwrap()).collect();
            assert!(rows.iter().all(|row| row.len() == columns));
            let known = |name: &str| {
                let plan = &records[0].plan;
                plan.flows.iter().any(|flow| flow.group == name)
                    || plan.watch.iter().any(|port| port.name == name)
                    || name.parse::<usize>().is_ok()
            };
            assert!(rows[1..].iter().all(|row| known(&row[named])));
            if let Some(theirs) = python(READER, text.as_bytes()) {
                assert_eq!(
                    serde_json::from_slice::<Vec<Vec<String>>>(&theirs).unwrap(),
                    rows
                );
            }
        }
    }

    /// Output of a Python program; None without Python.
    fn python(program: &str, input: &[u8]) -> Option<Vec<u8>> {
        use std::process::{Command, Stdio};
        let mut child = Command::new("python3")
            .args(["-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap().unwrap();
        assert!(output.status.success());
        Some(output.stdout)
    }

    /// Synthetic record of a plan.
    fn made_up(cc: &str, run: xdc_proto::RunPlan) -> Record {
        let mut record = Record::new(cc, run);
        let flows = record.plan.flows.len();
        let of_flow = |flow| xdc_proto::FlowResult {
            flow,
            start_ns: 0,
            late_ns: 0,
            end_ns: (flow % 2 == 0).then_some(1),
            acked_ns: None,
            received_bytes: 1,
            retransmits: 0,
            timeouts: 0,
            counters: Vec::new(),
            min_rtt_us: 1,
            mss_bytes: 1448,
            payload_bytes: 1448,
            started: true,
            cc: String::new(),
            ecn: None,
            writing: (0, 0),
        };
        record.flows = (0..flows).map(of_flow).collect();
        let series = if record.plan.flow_series { flows } else { 0 };
        record.samples.push(xdc_proto::Sample {
            t_us: 0,
            flows: vec![xdc_proto::FlowSample::default(); series],
            active_flows: flows,
            received_bytes: 0,
            queues: vec![xdc_proto::QueueSample::default(); record.plan.watch.len()],
        });
        record
    }

    #[test]
    fn files_of_a_failed_run_are_kept_separately() {
        let dir = tempfile::tempdir().unwrap();
        let pending = Pending::new(dir.path(), "x").unwrap();
        assert!(!pending.has_console());
        pending.write("console-unocc.log", "").unwrap();
        assert!(!pending.has_console());
        pending.write("summary.json", "{}").unwrap();
        pending.write("console-cubic.log", "Kernel panic").unwrap();
        assert!(pending.has_console());
        assert!(pending.keep_failed().unwrap().ends_with("x/failed-1"));
        assert!(dir.path().join("x/failed-1/summary.json").exists());
    }

    #[test]
    fn results_are_numbered() {
        let dir = tempfile::tempdir().unwrap();
        let keep = || Pending::new(dir.path(), "x").unwrap().keep().unwrap();
        assert!(keep().ends_with("x/1"));
        assert!(keep().ends_with("x/2"));
        std::os::unix::fs::symlink("x", dir.path().join("link")).unwrap();
        assert!(Pending::new(dir.path(), "link").is_err());
    }

    #[test]
    fn a_discarded_result_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let pending = Pending::new(&dir.path().join("new/results"), "x").unwrap();
        pending.write("plots/a.svg", "").unwrap();
        drop(pending);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
