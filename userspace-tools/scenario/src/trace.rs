// SPDX-License-Identifier: GPL-2.0
//! Traces of links: rates, delays and losses over time, from files beside the scenario. A plan has them as
//! events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use csv::{ReaderBuilder, Trim};
use serde_json::{Map, Value};
use xdc_base::error::{Error, Result};
use xdc_base::text::{nearest, short};
use xdc_base::units::{Fraction, PPM, Rate, Time};
use xdc_proto::{Change, End, Event, Faults, Topology};

use crate::budget::{Budget, text_bytes};
use crate::defaults::make_visible;
use crate::events::numbered;
use crate::limits::{LONGEST, LONGEST_DELAY, MIN_SCALED_BPS, RATES};
use crate::plan::mix;
use crate::{LinkSpec, Scenario, at, beside, foreign};

/// A packet of mahimahi has 1,500 bytes of IP. Its own header has 4 bytes, and that of a link 14.
const PACKET_BITS: u64 = 1_514 * 8;
const MS: u64 = 1_000_000;

/// Columns with their units in ns, bit/s or ppm.
const TIMES: [(&str, f64); 2] = [("time_s", 1e9), ("time_ms", 1e6)];
const RATE: (&str, f64) = ("rate_mbps", 1e6);
const DELAY: (&str, f64) = ("delay_ms", 1e6);
const LOSS: (&str, f64) = ("loss_percent", 1e4);

const SHAPE: &str = "lines of CSV: time_s,rate_mbps,delay_ms,loss_percent and then 0,12.5,20,0";

/// Content of a file.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Text kept with the results.
    pub text: String,
    /// From time 0 on.
    rows: Vec<Row>,
    /// Time after which the rows repeat.
    period: Time,
}

/// Values from a time on; None: the link's own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Row {
    at: Time,
    /// 0 stops the link.
    rate: Option<Rate>,
    delay: Option<Time>,
    loss: Option<Fraction>,
}

/// A direction of a link with a trace.
pub struct Traced<'a> {
    pub link: usize,
    /// Whether it leads from the link's `a`.
    pub forward: bool,
    pub file: &'a str,
}

impl Trace {
    /// Reads the files that the links name; each from the first of `dirs` that has it.
    pub fn read_all(
        budget: &Budget,
        dirs: &[PathBuf],
        links: &[LinkSpec],
    ) -> Result<BTreeMap<String, Self>> {
        let mut traces = BTreeMap::new();
        for (n, link) in links.iter().enumerate() {
            for name in link.traces().into_iter().flatten() {
                if traces.contains_key(name) {
                    continue;
                }
                let about = |err: Error| err.at(at!["topology", "links", n]);
                let (path, bytes) = beside::read(budget, dirs, name).map_err(about)?;
                let trace = Self::parse(budget, &bytes).map_err(|err| {
                    let err = foreign::instead(err, &bytes, name, foreign::Role::Trace);
                    about(err.about(path.display()).or_hint(SHAPE))
                });
                traces.insert(name.to_owned(), trace?);
            }
        }
        Ok(traces)
    }

    /// Parses packet opportunities of mahimahi, or a series as JSON or CSV.
    fn parse(budget: &Budget, bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| Error::usage("not text in UTF-8"))?;
        let own = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let first = own.lines().map(str::trim).find(is_content);
        let first = first.ok_or_else(|| Error::usage("the file is empty"))?;
        let (mut rows, period) = match first.as_bytes()[0] {
            b'[' => of_json(own)?,
            b'0'..=b'9' if !first.contains(',') => opportunities(own)?,
            _ => of_csv(own)?,
        };
        rows.dedup_by(|next, last| Row { at: last.at, ..*next } == *last);
        budget.charge("rows of a trace", rows.len(), size_of::<Row>())?;
        Ok(Self {
            text: text.to_owned(),
            period: match rows.len() {
                1 => LONGEST,
                _ => period,
            },
            rows,
        })
    }

    fn has_rates(&self) -> bool {
        self.rows.iter().any(|row| row.rate.is_some())
    }

    fn stops(&self) -> bool {
        self.rows.iter().any(|row| row.rate == Some(Rate(0)))
    }
}

/// Rates of each millisecond from its opportunities. The last time is the length of the trace.
fn opportunities(text: &str) -> Result<(Vec<Row>, Time)> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last = 0;
    let lines = text.lines().map(str::trim).enumerate();
    let is_content = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
    for (n, line) in lines.filter(is_content) {
        let about = |err: Error| err.about(format!("line {}", n + 1));
        let digits = line.bytes().all(|c| c.is_ascii_digit());
        let ms = line.parse::<u64>().ok().filter(|_| digits);
        let ms = ms.filter(|ms| *ms <= LONGEST.0 / MS).ok_or_else(|| {
            let sentence = format!("'{}' is not the time of a packet", short(line));
            about(Error::usage(sentence).hint("whole milliseconds, up to a day, one a line"))
        })?;
        if ms < last {
            let sentence = format!("the time {ms} follows {last}");
            return Err(about(Error::usage(sentence).hint("times in order")));
        }
        last = ms;
        *counts.entry(ms).or_default() += 1;
    }
    if last == 0 {
        return Err(Error::usage("no packet after time 0").hint("a last line above 0"));
    }
    // An opportunity ends its millisecond; one at 0 is also one at the end.
    let first = counts.remove(&0).unwrap_or(0);
    *counts.entry(last).or_default() += first;
    let mut rows = Vec::new();
    let mut from_ms = 0;
    for (ms, count) in counts {
        let mut row = |ms: u64, count: u64| {
            rows.push(Row {
                at: Time(ms * MS),
                rate: Some(Rate(count * PACKET_BITS * 1000)),
                ..Row::default()
            });
        };
        if from_ms < ms - 1 {
            row(from_ms, 0);
        }
        row(ms - 1, count);
        from_ms = ms;
    }
    Ok((rows, Time(last * MS)))
}

fn of_csv(text: &str) -> Result<(Vec<Row>, Time)> {
    let mut reader =
        ReaderBuilder::new().comment(Some(b'#')).trim(Trim::All).from_reader(text.as_bytes());
    let malformed = |err: csv::Error| Error::usage(err.to_string());
    let header = reader.headers().map_err(malformed)?.clone();
    let header: Vec<_> = header.iter().collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(malformed)?;
        let number = |text: &str| {
            text.parse::<f64>().map_err(|_| {
                let place = format!("row {}", rows.len() + 1);
                Error::usage(format!("'{}' is not a number", short(text))).about(place)
            })
        };
        rows.push(record.iter().map(number).collect::<Result<Vec<_>>>()?);
    }
    series(&header, &rows)
}

fn of_json(text: &str) -> Result<(Vec<Row>, Time)> {
    let example = r#"[{"time_s": 0, "rate_mbps": 12.5}, {"time_s": 1, "rate_mbps": 3}]"#;
    let objects: Vec<Map<String, Value>> =
        serde_json::from_str(text).map_err(|err| Error::usage(err.to_string()).hint(example))?;
    let header: Vec<_> = match objects.first() {
        Some(first) => first.keys().map(String::as_str).collect(),
        None => return Err(Error::usage("the file has no row").hint(example)),
    };
    let numbers = |(n, object): (usize, &Map<String, Value>)| {
        let numbers = header.iter().map(|key| object.get(*key)?.as_f64());
        let numbers: Option<Vec<_>> = numbers.collect();
        numbers.filter(|_| object.len() == header.len()).ok_or_else(|| {
            let err = Error::usage("it has other keys than the first row, or other than numbers");
            err.about(format!("row {}", n + 1)).hint(example)
        })
    };
    let rows: Result<Vec<_>> = objects.iter().enumerate().map(numbers).collect();
    series(&header, &rows?)
}

/// Rows of a table. Times count from the first row, and the last row lasts as long as the one before.
fn series(header: &[&str], table: &[Vec<f64>]) -> Result<(Vec<Row>, Time)> {
    let values = [RATE, DELAY, LOSS];
    let known: Vec<_> = TIMES.iter().chain(&values).map(|(name, _)| *name).collect();
    for (place, name) in header.iter().enumerate() {
        if !known.contains(name) {
            let err = Error::usage(format!("unknown column '{}'", short(name)));
            let near = nearest(name, &known).map(|near| format!("'{near}'"));
            return Err(err.hint(near.unwrap_or_else(|| known.join(", "))));
        }
        if header.iter().take(place).any(|other| other == name) {
            return Err(Error::usage(format!("two columns '{name}'")));
        }
    }
    let place = |column: &str| header.iter().position(|name| *name == column);
    let mut times = TIMES.iter();
    let time = times.find_map(|(name, unit)| Some((place(name)?, *unit)));
    let (time, unit) =
        time.ok_or_else(|| Error::usage("there is no column 'time_s' or 'time_ms'"))?;
    if values.iter().all(|(name, _)| place(name).is_none()) {
        return Err(Error::usage("there is no column 'rate_mbps', 'delay_ms' or 'loss_percent'"));
    }
    let start = match table.first() {
        Some(first) => first[time],
        None => return Err(Error::usage("the file has no row")),
    };
    let mut rows: Vec<Row> = Vec::new();
    for (n, numbers) in table.iter().enumerate() {
        let about = |err: Error| err.about(format!("row {}", n + 1));
        let value = |(name, unit): (&str, f64), most: u64, words: String| {
            let Some(number) = place(name).map(|place| numbers[place]) else {
                return Ok(None);
            };
            let value = (number * unit).round();
            match number >= 0.0 && value <= most as f64 {
                true => Ok(Some(value as u64)),
                false => Err(about(
                    Error::usage(format!("'{name}' is {number}")).hint(format!("0 to {words}")),
                )),
            }
        };
        let most = *RATES.end();
        let row = Row {
            at: Time(((numbers[time] - start) * unit).round() as u64),
            rate: value(RATE, most.0, most.to_string())?.map(Rate),
            delay: value(DELAY, LONGEST_DELAY.0, LONGEST_DELAY.to_string())?.map(Time),
            loss: value(LOSS, PPM.into(), "100".to_owned())?.map(|ppm| Fraction(ppm as u32)),
        };
        let is_later = rows.last().is_none_or(|last| last.at < row.at);
        if !is_later || !numbers[time].is_finite() || row.at > LONGEST {
            let sentence = format!("the time {} does not follow the one before", numbers[time]);
            return Err(about(
                Error::usage(sentence).hint(format!("times that increase, within {LONGEST}")),
            ));
        }
        rows.push(row);
    }
    let period = match rows[..] {
        [.., before, last] => Time(2 * last.at.0 - before.at.0),
        _ => LONGEST,
    };
    Ok((rows, period))
}

/// Adds the events of traces, which repeat until the end of the run.
pub fn replay(
    budget: &Budget,
    scenario: &Scenario,
    topology: &mut Topology,
    traced: &[Traced],
    events: &mut Vec<Event>,
    seed: u64,
    scale: u32,
) -> Result<()> {
    let duration = scenario.duration.unwrap_or_default();
    for Traced { link, forward, file } in traced {
        let about = |err: Error| err.about(format!("the trace '{file}'"));
        let missing = || Error::usage(format!("the trace '{file}' was not read"));
        let trace = scenario.traces.get(*file).ok_or_else(missing)?;
        let links = &topology.links;
        let own = &links[*link];
        let ends = |from: &str, to: &str| {
            let same = |it: &&xdc_proto::Link| {
                (it.a == from && it.b == to) || (it.a == to && it.b == from)
            };
            End {
                node: from.to_owned(),
                port: numbered(to, links[..*link].iter().filter(same).count()),
            }
        };
        let end = match forward {
            true => ends(&own.a, &own.b),
            false => ends(&own.b, &own.a),
        };
        let link = &mut topology.links[*link];
        let direction = match forward {
            true => &mut link.ab,
            false => &mut link.ba,
        };
        let random = direction.faults.get_or_insert_with(Faults::default).seed ^ mix(seed);
        if trace.has_rates() {
            // netem gives a packet its departure at once, so a later rate would not change it.
            make_visible(direction);
        }
        let is_phantom = direction.queue.as_ref().is_some_and(|it| it.is_phantom());
        if trace.stops() && !is_phantom {
            let err = Error::usage("it stops the link, which only a phantom port can do");
            return Err(about(err.hint("limit = \"500kB\" instead of 'tc' in [queues]")));
        }
        let bytes =
            size_of::<Event>() + size_of::<End>() + text_bytes([end.node.as_str(), &end.port]);
        let mut last = Row::default();
        let starts = (0..).map(|n| trace.period.0.saturating_mul(n));
        let starts = starts.take_while(|start| *start < duration.0);
        let rows = starts.flat_map(|start| {
            let later = |row: &Row| (Time(start + row.at.0), *row);
            trace.rows.iter().map(later).collect::<Vec<_>>()
        });
        for (at, row) in rows.take_while(|(at, _)| *at < duration) {
            let scale = u64::from(scale);
            let rate = row.rate.filter(|_| row.rate != last.rate).map(|rate| {
                let bps = (rate.0 / scale).max(MIN_SCALED_BPS);
                Change::Rate { bps }
            });
            let delay = row.delay.filter(|_| row.delay != last.delay);
            let delay = delay.map(|delay| Change::Delay { ns: delay.0 * scale });
            let loss = row.loss.filter(|_| row.loss != last.loss);
            let loss = loss.map(|loss| Change::Loss { ppm: loss.0 });
            for change in [rate, delay, loss].into_iter().flatten() {
                budget.charge("changes", 1, bytes).map_err(about)?;
                events.push(Event {
                    at_us: at.0 * scale / 1000,
                    ends: vec![end.clone()],
                    change,
                    seed: Some(mix(random.wrapping_add(events.len() as u64))),
                });
            }
            last = row;
        }
    }
    events.sort_by_key(|event| event.at_us);
    Ok(())
}

#[cfg(test)]
mod tests;
