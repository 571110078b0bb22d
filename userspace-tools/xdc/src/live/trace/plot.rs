// SPDX-License-Identifier: GPL-2.0
//! `xdc trace plot`: charts of a recording.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;
use xdc_algo::{ALGORITHMS, entry};
use xdc_base::error::{Error, Result};
use xdc_base::owned;
use xdc_measure::throughput::{Line, MAX_POINTS};
use xdc_scenario::beside;
use xdc_view::plot::{self, BYTES, Chart, RATIO, TIME, Unit};

use super::events::EVENTS;

const WIDTH: f64 = 560.0;
const COLUMNS: usize = 2;

/// Maximum number of distinguishable lines per chart.
const MAX_LINES: usize = plot::COLORS;

/// One chart: its events and fields.
struct View {
    title: &'static str,
    unit: &'static [Unit],
    series: Vec<Series>,
}

/// Lines of a chart, one for each flow or port.
struct Series {
    event: &'static str,
    field: Field,
    /// Suffix of the flow's or port's name.
    label: &'static str,
}

#[derive(Clone, Copy)]
enum Field {
    /// Plain value.
    Number(&'static str),
    /// Value in millionths.
    Ppm(&'static str),
    /// Plain value of events at the end of a day.
    AtEnd(&'static str),
    /// Number of events so far.
    Count,
}

const fn series(event: &'static str, field: Field, label: &'static str) -> Series {
    Series { event, field, label }
}

/// Charts of modules that are not congestion controls.
type OfOthers = (&'static str, &'static [Unit], &'static [(&'static str, Field, &'static str)]);

const OF_OTHERS: &[OfOthers] = &[
    (
        "Queues at each marked packet",
        BYTES,
        &[
            ("phantom_mark", Field::Number("queue_bytes"), ""),
            ("phantom_mark", Field::Number("phantom_bytes"), " phantom"),
        ],
    ),
    (
        "Packets marked and dropped so far",
        RATIO,
        &[("phantom_mark", Field::Count, " marked"), ("phantom_drop", Field::Count, " dropped")],
    ),
    (
        "AccelToR: bytes sent in a day, and left at its end",
        BYTES,
        &[
            ("acceltor_day", Field::AtEnd("sent_bytes"), " sent"),
            ("acceltor_day", Field::AtEnd("queued_bytes"), " left"),
        ],
    ),
    (
        "AccelToR: queue at each accelerated packet",
        BYTES,
        &[("acceltor_accelerate", Field::Number("queue_bytes"), "")],
    ),
    (
        "AccelToR: packets accelerated and dropped, and elephants, so far",
        RATIO,
        &[
            ("acceltor_accelerate", Field::Count, " accelerated"),
            ("acceltor_drop", Field::Count, " dropped"),
            ("acceltor_elephant", Field::Count, " elephants"),
        ],
    ),
    ("TLT: clock packets so far", RATIO, &[("tlt_clock", Field::Count, "")]),
    (
        "UnoRC: blocks decoded, NACKs and reroutes so far",
        RATIO,
        &[
            ("unorc_decoded", Field::Count, " decoded"),
            ("unorc_nack", Field::Count, " NACKs"),
            ("unorc_reroute", Field::Count, " reroutes"),
        ],
    ),
];

/// Charts of the algorithms, one per title, and of other modules.
fn views() -> Vec<View> {
    let mut views: Vec<View> = Vec::new();
    for event in ALGORITHMS.iter().flat_map(|algorithm| algorithm.events) {
        for line in event.lines {
            let (unit, field) = match line.unit {
                entry::Unit::Bytes => (BYTES, Field::Number(line.field)),
                entry::Unit::Us => (TIME, Field::Number(line.field)),
                entry::Unit::Ppm => (RATIO, Field::Ppm(line.field)),
            };
            let series = series(event.name, field, line.label);
            match views.iter_mut().find(|view| view.title == line.chart) {
                Some(view) => view.series.push(series),
                None => views.push(View { title: line.chart, unit, series: vec![series] }),
            }
        }
    }
    for (title, unit, lines) in OF_OTHERS {
        let lines = lines.iter();
        views.push(View {
            title,
            unit,
            series: lines.map(|(event, field, label)| series(event, *field, label)).collect(),
        });
    }
    views
}

/// Recorded events of one flow or port, with times in ns.
type Told = Vec<(u64, Value)>;

#[derive(Default)]
struct Recording {
    /// Start of a run's traffic, ns; None outside a run.
    origin_ns: Option<u64>,
    /// Events by event name, then by flow or port.
    told: BTreeMap<&'static str, BTreeMap<String, Told>>,
}

pub fn command(file: &Path, output: &Path) -> Result<bool> {
    let open = beside::named_file(file).map_err(|err| err.or_hint("a file of 'xdc trace -o'"))?;
    let charts = of(BufReader::new(open)).map_err(|err| err.about(file.display()))?;
    if charts.is_empty() {
        return Err(Error::failure(format!("{} has no events", file.display()))
            .hint("record while there is traffic"));
    }
    owned::replace(output, self::file(&charts))
        .map_err(|err| Error::io(output.display(), &err).or_hint("a directory that exists"))?;
    Ok(true)
}

/// SVG file of the charts.
pub fn file(charts: &[Chart]) -> String {
    plot::file(charts, COLUMNS)
}

/// Charts of a recording; empty without events.
pub fn of(lines: impl BufRead) -> Result<Vec<Chart>> {
    Ok(charts(&read(lines)?))
}

fn read(lines: impl BufRead) -> Result<Recording> {
    let mut recording = Recording::default();
    for (number, line) in lines.lines().enumerate() {
        let line = line.map_err(|err| Error::io("reading", &err))?;
        let bad = || {
            Error::failure(format!("line {} is not an event of a recording", number + 1))
                .hint("a file of 'xdc trace -o'")
        };
        let event: Value = serde_json::from_str(&line).map_err(|_| bad())?;
        let name = event["event"].as_str().ok_or_else(bad)?;
        let Some(name) = EVENTS.iter().find(|known| **known == name) else {
            // Begin, end, or an event of a later version.
            recording.origin_ns = recording.origin_ns.or(event["origin_ns"].as_u64());
            continue;
        };
        let at_ns = event["at_ns"].as_u64().ok_or_else(bad)?;
        let subject = subject(&event).ok_or_else(bad)?;
        recording.told.entry(name).or_default().entry(subject).or_default().push((at_ns, event));
    }
    Ok(recording)
}

/// Name of the flow or port.
fn subject(event: &Value) -> Option<String> {
    let whence = short(event)?;
    match event["daddr"].as_str() {
        Some(daddr) => {
            let whither = endpoint(daddr, event["dport"].as_u64()?);
            Some(format!("{whence} to {whither}"))
        }
        None => Some(whence),
    }
}

/// Short name for a legend; a flow is named by its sending end.
fn short(event: &Value) -> Option<String> {
    let node = event["node"].as_str();
    if let Some(dev) = event["dev"].as_str() {
        let node = node.map(|node| format!("{node} ")).unwrap_or_default();
        // A qdisc has a handle; a tunnel has none.
        let handle = event["handle"].as_str();
        let handle = handle.map(|handle| format!(" {handle}"));
        return Some(format!("{node}{dev}{}", handle.unwrap_or_default()));
    }
    let place = node.or(event["saddr"].as_str())?;
    Some(endpoint(place, event["sport"].as_u64()?))
}

fn endpoint(place: &str, port: u64) -> String {
    match place.contains(':') {
        true => format!("[{place}]:{port}"),
        false => format!("{place}:{port}"),
    }
}

fn charts(recording: &Recording) -> Vec<Chart> {
    let subjects = recording.told.values().flat_map(|by| by.values());
    let first_ns = subjects.filter_map(|told| Some(told.first()?.0)).min();
    let begin_ns = recording.origin_ns.or(first_ns).unwrap_or_default();
    let chart = |view: &View| {
        let mut lines: Vec<(usize, Line)> = Vec::new();
        for series in &view.series {
            for (subject, told) in recording.told.get(series.event).into_iter().flatten() {
                let short = told.first().and_then(|(_, event)| short(event));
                let name = format!("{}{}", short.as_ref().unwrap_or(subject), series.label);
                let line = Line {
                    detail: format!("{subject}{}, xdc:{}", series.label, series.event),
                    name,
                    color: 0,
                    points: points(told, series.field, begin_ns),
                    ..Line::default()
                };
                lines.push((told.len(), line));
            }
        }
        let all = lines.len();
        lines.sort_by_key(|(events, _)| Reverse(*events));
        lines.truncate(MAX_LINES);
        let lines: Vec<_> = lines
            .into_iter()
            .enumerate()
            .map(|(color, (_, line))| Line { color, ..line })
            .collect();
        let mut title = view.title.to_owned();
        if all > MAX_LINES {
            title += &format!(" (the {MAX_LINES} with most events of {all})");
        }
        Chart {
            title,
            width: WIDTH,
            x_unit: TIME,
            x_log: false,
            y_unit: view.unit,
            lines,
            x_end: 0.0,
            y_end: 0.0,
        }
    };
    let views = views();
    let charts = views.iter().map(chart);
    charts.filter(|chart| !chart.lines.is_empty()).collect()
}

/// Points of a line, at most the visible number.
fn points(told: &Told, field: Field, begin_ns: u64) -> Vec<(f64, f64)> {
    let value = |index: usize, event: &Value| match field {
        Field::Number(name) => event[name].as_f64(),
        Field::Ppm(name) => event[name].as_f64().map(|ppm| ppm / 1e6),
        Field::AtEnd(name) => (event["begins"] == 0).then(|| event[name].as_f64()).flatten(),
        Field::Count => Some((index + 1) as f64),
    };
    let step = told.len().div_ceil(MAX_POINTS).max(1);
    told.iter()
        .enumerate()
        // Last event of each step, and the very last one.
        .filter(|(index, _)| index % step == step - 1 || index + 1 == told.len())
        .filter_map(|(index, (at_ns, event))| {
            let at_us = at_ns.saturating_sub(begin_ns) as f64 / 1e3;
            Some((at_us, value(index, event)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDING: &str = r#"{"event":"begin","version":1}
{"event":"unocc_epoch","at_ns":1000,"saddr":"fd09::1","sport":4,"daddr":"fd09::2","dport":5001,"cwnd_bytes":3000,"e_ppm":500000,"rtt_us":20}
{"event":"unocc_epoch","at_ns":3000,"saddr":"fd09::1","sport":4,"daddr":"fd09::2","dport":5001,"cwnd_bytes":6000,"e_ppm":0,"rtt_us":20}
{"event":"phantom_mark","at_ns":2000,"dev":"eth2","handle":"8001:","queue_bytes":10,"phantom_bytes":20}
{"event":"end","missed":0}
"#;

    #[test]
    fn a_recording_becomes_charts_of_its_events() {
        let charts = charts(&read(RECORDING.as_bytes()).unwrap());
        let titles: Vec<_> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles.len(), 5, "{titles:?}");
        assert!(!titles.iter().any(|title| title.contains("Quick Adapt")));
        let window = &charts[0].lines[0];
        assert_eq!(window.name, "[fd09::1]:4");
        assert!(window.detail.starts_with("[fd09::1]:4 to [fd09::2]:5001,"));
        assert_eq!(window.points, [(0.0, 3000.0), (2.0, 6000.0)]);
        assert_eq!(charts[1].lines[0].points[0].1, 0.5);
        let counts = &charts[4].lines;
        assert_eq!(counts.len(), 1, "nothing was dropped");
        assert_eq!(counts[0].points, [(1.0, 1.0)]);
    }

    #[test]
    fn a_day_is_drawn_at_its_end() {
        let recording = r#"{"event":"acceltor_day","at_ns":0,"dev":"bond0","handle":"1:","queued_bytes":9000,"sent_bytes":0,"begins":1}
{"event":"acceltor_day","at_ns":240000,"dev":"bond0","handle":"1:","queued_bytes":0,"sent_bytes":9000,"begins":0}
{"event":"acceltor_drop","at_ns":300000,"dev":"bond0","handle":"1:","reason":"blocked"}
"#;
        let charts = charts(&read(recording.as_bytes()).unwrap());
        let titles: Vec<_> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert!(titles.iter().all(|title| title.starts_with("AccelToR")));
        let [sent, left] = &charts[0].lines[..] else { panic!("{titles:?}") };
        assert_eq!(sent.name, "bond0 1: sent");
        assert_eq!(sent.points, [(240.0, 9000.0)]);
        assert_eq!(left.points, [(240.0, 0.0)]);
        assert_eq!(charts[1].lines[0].points, [(300.0, 1.0)]);
    }

    #[test]
    fn many_events_are_thinned_and_the_last_one_stays() {
        let event: Value = serde_json::json!({ "rtt_us": 7 });
        let told: Told = (0..10_001).map(|at| (at * 1000, event.clone())).collect();
        let points = points(&told, Field::Count, 0);
        assert!(points.len() <= MAX_POINTS + 1);
        assert_eq!(points.last(), Some(&(10_000.0, 10_001.0)));
    }

    #[test]
    fn malformed_recordings_are_refused() {
        for text in ["x", "{}", r#"{"event":"phantom_mark"}"#, "[1]"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(charts(&read("".as_bytes()).unwrap()).is_empty());
    }
}
