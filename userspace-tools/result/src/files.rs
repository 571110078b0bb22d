// SPDX-License-Identifier: GPL-2.0
//! The files of a result.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use xdc_base::error::{Error, Result};
use xdc_base::owned::{self, OwnedDir};
use xdc_base::{home, interrupt};
use xdc_measure::flows::{self, FlowRow};
use xdc_measure::record::Record;

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
            Error::io(format!("cannot make {} for results", scenario_dir.display()), &err)
                .hint("--results DIR, where you may write")
        })?;
        let pending = Self { dir, scenario_dir, made, _at_end: at_end, kept: false };
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
        let files = fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
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
        Err(Error::failure(format!("{} is full", self.scenario_dir.display())))
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
        ("start_us", "us", "planned start, after the traffic's start; the FCT counts from it"),
        ("end_us", "us", "last byte at the receiver; empty if the run ended before"),
        ("bytes", "bytes", "payload received"),
        ("fct_us", "us", "`end_us` minus `start_us`; empty like `end_us`"),
        ("retransmits", "packets", "retransmitted packets"),
        (
            "ideal_us",
            "us",
            "FCT on an idle path if the sender never waits, with the TCP options of its packets; 0 for a flow without a size",
        ),
        ("base_rtt_us", "us", "RTT of a full packet and its ACK on the idle path"),
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
        ("t_us", "us", "time of the sample, after the traffic's start"),
        (
            "kind",
            "",
            "`flow`; `queue`: a watched port; `flows`: all flows, if they are too many to record each",
        ),
        ("id", "", "number of the flow; name of the port; number of open flows"),
        ("received_bytes", "bytes", "payload that flows received in order so far"),
        ("cwnd_bytes", "bytes", "congestion window of a flow"),
        ("srtt_us", "us", "smoothed RTT of a flow"),
        ("pacing_bps", "bit/s", "pacing rate of a flow; 0 if it is not paced"),
        ("retransmits", "packets", "retransmissions of a flow so far"),
        ("backlog_bytes", "bytes", "queue of a port"),
        ("phantom_bytes", "bytes", "phantom queue of a port, if it has one"),
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
        let row =
            move |kind, id| SeriesRow { cc, t_us: sample.t_us, kind, id, ..SeriesRow::default() };
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
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
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
    csv.into_inner().map_err(|err| not_written(err.into_error().into()))
}

fn not_written(err: csv::Error) -> Error {
    match err.into_kind() {
        csv::ErrorKind::Io(err) => Error::io("a table cannot be written", &err),
        other => Error::failure(format!("a table cannot be written: {other:?}")),
    }
}

/// Generates the column tables of docs/scenarios.md.
#[cfg(any(test, feature = "testing"))]
pub fn column_table(columns: &[Column]) -> String {
    let rows =
        columns.iter().map(|(name, unit, meaning)| format!("| `{name}` | {unit} | {meaning} |\n"));
    format!("| column | unit | |\n|---|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests;
