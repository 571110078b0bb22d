// SPDX-License-Identifier: GPL-2.0
//! Flows listed in a file beside the scenario: CSV, or a simulator's format.

use std::collections::BTreeMap;
use std::path::PathBuf;

use csv::{ReaderBuilder, StringRecord, Trim};
use xdc_base::error::{Error, Result};
use xdc_base::text::{nearest, short};
use xdc_base::units::{Size, Time};
use xdc_proto::gates::Gate;

use super::spec::StartUnit;
use super::{Kind, TrafficSpec, hpcc, htsim};
use crate::budget::Budget;
use crate::limits::{LONGEST, MOST_BYTES};
use crate::{at, beside, foreign};

/// Names of the start column, with their units.
const STARTS: &[(&str, &str)] =
    &[("start", "s"), ("start_s", "s"), ("start_ms", "ms"), ("start_us", "us"), ("start_ns", "ns")];
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";
const BYTES: &str = "bytes";
const GROUP: &str = "group";
const AFTER: &str = "after";

/// A flow of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Line in the file, for errors.
    pub line: u64,
    pub start: Time,
    pub source: String,
    pub destination: String,
    pub bytes: u64,
    /// None: the block's group.
    pub group: Option<String>,
    /// Group that ends first.
    pub after: Option<String>,
}

/// Content of a file.
#[derive(Debug, Clone, Default)]
pub struct FlowFile {
    /// Text kept with the results.
    pub text: String,
    pub rows: Vec<Row>,
    /// Starts behind other flows, by index of `rows`.
    pub gates: Vec<Gate>,
}

impl FlowFile {
    /// Reads the files that the traffic names; each from the first of `dirs` that has it.
    pub fn read_all(
        budget: &Budget,
        dirs: &[PathBuf],
        traffic: &[TrafficSpec],
    ) -> Result<BTreeMap<String, Self>> {
        let mut files = BTreeMap::new();
        let mut forms: BTreeMap<&String, (Kind, Option<StartUnit>)> = BTreeMap::new();
        for (n, spec) in traffic.iter().enumerate() {
            let Some(name) = &spec.file else {
                continue;
            };
            let form = (spec.kind, spec.start_unit);
            let about = |err: Error| err.at(at!["traffic", n, "file"]);
            if *forms.entry(name).or_insert(form) != form {
                let err = Error::usage(format!("'{name}' is also read as another kind"));
                return Err(about(err.hint("one kind and start_unit for a file")));
            }
            if !files.contains_key(name) {
                let read = Self::read(budget, dirs, name, form);
                files.insert(name.clone(), read.map_err(about)?);
            }
        }
        Ok(files)
    }

    fn read(
        budget: &Budget,
        dirs: &[PathBuf],
        name: &str,
        (kind, unit): (Kind, Option<StartUnit>),
    ) -> Result<Self> {
        let (path, bytes) = beside::read(budget, dirs, name)?;
        let about = |err: Error| {
            let err = foreign::instead(err, &bytes, name, foreign::Role::Flows(kind));
            err.about(path.display()).or_hint(SHAPE)
        };
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|_| about(Error::usage("not text in UTF-8")))?;
        let own = text.strip_prefix('\u{feff}').unwrap_or(text);
        let read = match kind {
            Kind::Htsim => htsim::parse(own, unit.unwrap_or(StartUnit::Ps)),
            Kind::Hpcc => hpcc::parse(own),
            _ => rows(own).map(|rows| Self { text: text.to_owned(), rows, gates: Vec::new() }),
        };
        read.map_err(about)
    }
}

/// Refuses more flows than a run can have.
pub fn check_count(rows: usize) -> Result<()> {
    match rows > xdc_proto::MAX_FLOWS {
        true => Err(Error::usage(format!(
            "more than {} flows, one for each port",
            xdc_proto::MAX_FLOWS
        ))),
        false => Ok(()),
    }
}

/// Reads the bytes of a flow, as digits alone.
pub fn flow_size(text: &str) -> Result<u64> {
    let digits = text.bytes().all(|c| c.is_ascii_digit());
    let bytes = text.parse::<u64>().ok().filter(|_| digits);
    let bytes = bytes.filter(|bytes| (1..=MOST_BYTES.0).contains(bytes));
    bytes.ok_or_else(|| {
        let sentence = format!("'{}' is not the size of a flow", short(text));
        Error::usage(sentence).hint(format!("1 to {} bytes, as digits alone", MOST_BYTES.0))
    })
}

const SHAPE: &str = "lines of CSV: start_us,source,destination,bytes and then 0,a1,b1,1000000";

/// Indices of the columns.
struct Columns {
    start: (usize, &'static str),
    source: usize,
    destination: usize,
    bytes: usize,
    group: Option<usize>,
    after: Option<usize>,
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let mut reader =
        ReaderBuilder::new().comment(Some(b'#')).trim(Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|err| malformed(&err))?.clone();
    let at_header = |err: Error| err.about(format!("line {}", line_of(text, &header)));
    let columns = Columns::of(&header).map_err(at_header)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|err| malformed(&err))?;
        let line = line_of(text, &record);
        rows.push(columns.row(line, &record).map_err(|err| err.about(format!("line {line}")))?);
        check_count(rows.len())?;
    }
    if rows.is_empty() {
        return Err(Error::usage("no flow"));
    }
    Ok(rows)
}

impl Columns {
    fn of(header: &StringRecord) -> Result<Self> {
        let starts = STARTS.iter().map(|(name, _)| *name);
        let known: Vec<_> = starts.chain([SOURCE, DESTINATION, BYTES, GROUP, AFTER]).collect();
        for (place, name) in header.iter().enumerate() {
            if !known.contains(&name) {
                let err = Error::usage(format!("unknown column '{}'", short(name)));
                let splits = known.iter().any(|known| name.contains(known));
                return Err(match nearest(name, &known) {
                    Some(near) => err.hint(format!("'{near}'")),
                    None if splits => err.hint("commas between the columns"),
                    None => err.hint(known.join(", ")),
                });
            }
            if header.iter().take(place).any(|other| other == name) {
                return Err(Error::usage(format!("two columns '{}'", short(name))));
            }
        }
        let place = |name: &str| header.iter().position(|other| other == name);
        let needed = |name: &str| {
            place(name).ok_or_else(|| {
                Error::usage(format!("there is no column '{name}'"))
                    .hint("a first line such as start_us,source,destination,bytes")
            })
        };
        let mut starts = STARTS.iter().filter_map(|&(name, unit)| Some((place(name)?, unit)));
        let start = match (starts.next(), starts.next()) {
            (Some(start), None) => start,
            (Some(_), Some(_)) => return Err(Error::usage("two columns with start times")),
            (None, _) => (needed(STARTS[0].0)?, ""),
        };
        Ok(Self {
            start,
            source: needed(SOURCE)?,
            destination: needed(DESTINATION)?,
            bytes: needed(BYTES)?,
            group: place(GROUP),
            after: place(AFTER),
        })
    }

    fn row(&self, line: u64, record: &StringRecord) -> Result<Row> {
        let field = |place: usize| record.get(place).unwrap_or_default();
        let (place, unit) = self.start;
        let start = field(place);
        // A number only; the header has its unit.
        let wrong = || {
            let start = short(start);
            Error::usage(format!("'{start}' is not a start time in {unit}"))
        };
        if !start.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(wrong());
        }
        let start: Time = format!("{start}{unit}").parse().map_err(|_| wrong())?;
        let bytes = short(field(self.bytes));
        let bytes: Size = bytes.parse().map_err(Error::usage)?;
        if bytes == Size(0) || bytes > MOST_BYTES || start > LONGEST {
            return Err(Error::usage(format!(
                "a flow of {bytes} at {start}: must have 1 byte to {MOST_BYTES} and start within {LONGEST}"
            )));
        }
        let named = |place: Option<usize>| {
            let name = place.map(field).filter(|name| !name.is_empty());
            name.map(str::to_owned)
        };
        Ok(Row {
            line,
            start,
            source: short(field(self.source)).into_owned(),
            destination: short(field(self.destination)).into_owned(),
            bytes: bytes.0,
            group: named(self.group),
            after: named(self.after),
        })
    }
}

/// Line of a record. The reader's position precedes blank lines and comments before it.
fn line_of(text: &str, record: &StringRecord) -> u64 {
    let (line, byte) = record.position().map_or((1, 0), |at| (at.line(), at.byte() as usize));
    let rest = text.get(byte..).unwrap_or_default().lines();
    let skipped = rest.take_while(|line| line.trim().is_empty() || line.starts_with('#'));
    line + skipped.count() as u64
}

fn malformed(err: &csv::Error) -> Error {
    match err.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => Error::usage(format!(
            "line {}: {len} fields, but the first line has {expected_len}",
            pos.as_ref().map_or(0, csv::Position::line)
        )),
        _ => Error::usage(err.to_string()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn of(text: &str) -> FlowFile {
        FlowFile { text: text.to_owned(), rows: rows(text).unwrap(), gates: Vec::new() }
    }

    #[test]
    fn the_header_has_the_columns_and_their_units() {
        let file = of(
            "# of a testbed\nbytes, start_us ,destination,source\n\n5kB,1.5,b1,a1\n7,20,a2,b2\n",
        );
        let row = |line, ns, source: &str, destination: &str, bytes| Row {
            line,
            start: Time(ns),
            source: source.to_owned(),
            destination: destination.to_owned(),
            bytes,
            group: None,
            after: None,
        };
        assert_eq!(file.rows, [row(4, 1_500, "a1", "b1", 5_000), row(5, 20_000, "b2", "a2", 7)]);
        let file = of("start,source,destination,bytes,group\n0.25,a,b,1,\n1,a,b,1,\"x, y\"\n");
        assert_eq!(file.rows[0].start, Time(250_000_000));
        assert_eq!(file.rows[0].group, None);
        assert_eq!(file.rows[1].group.as_deref(), Some("x, y"));
    }

    #[test]
    fn mistakes_in_a_file_have_their_line() {
        let said = |text: &str| rows(text).unwrap_err().lines().join(" ");
        let header = "start_us,source,destination,bytes\n";
        for (text, words) in [
            ("source,destination,bytes\na,b,1\n", "line 1: there is no column 'start'"),
            ("start,sorce,destination,bytes\n", "line 1: unknown column 'sorce' try: 'source'"),
            ("start,start_us,source,destination,bytes\n", "two columns"),
            (header, "no flow"),
            ("", "no column"),
            (&format!("{header}1,a,b,1\nsoon,a,b,1\n"), "line 3: 'soon' is not a start time in us"),
            (&format!("{header}-1,a,b,1\n"), "line 2: '-1' is not a start time"),
            (&format!("{header}5ms,a,b,1\n"), "line 2: '5ms' is not a start time"),
            (&format!("{header}1,a,b,0\n"), "line 2: a flow of 0B"),
            (&format!("{header}1,a,b,many\n"), "line 2: 'many' is not a size"),
            (&format!("{header}1,a,b\n"), "line 2: 3 fields, but the first line has 4"),
        ] {
            assert!(said(text).contains(words), "{text}: {}", said(text));
        }
    }
}
