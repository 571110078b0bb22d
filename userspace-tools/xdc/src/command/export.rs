// SPDX-License-Identifier: GPL-2.0
//! `xdc export`: a result as files of flent or iperf3.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde_json::{Value, json};
use xdc_base::error::{Error, Result};
use xdc_base::owned;
use xdc_base::text::plain;
use xdc_result::stored::{self, Stored};

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("format").required(true)))]
pub struct Request {
    /// A directory that `xdc run` made, or a scenario's name.
    pub result: PathBuf,
    /// Write SCENARIO-CC.flent: goodput, smoothed RTT and cwnd of each flow, as flent's test tcp_nup.
    #[arg(long, group = "format")]
    pub flent: bool,
    /// Write SCENARIO-CC.iperf3.json: each flow as a stream, as of `iperf3 --json`.
    #[arg(long, group = "format")]
    pub iperf3: bool,
    /// Directory of the files.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Directory of results, for a scenario given by name.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

/// A flow at a sample; a row of series.csv.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Row {
    t_us: u64,
    received_bytes: u64,
    cwnd_bytes: u64,
    srtt_us: u64,
    retransmits: u64,
}

/// A flow between two samples.
#[derive(Debug, Clone, Copy)]
struct Step {
    from_us: u64,
    to: Row,
    bytes: u64,
    retransmits: u64,
}

impl Step {
    fn mbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / (self.to.t_us - self.from_us) as f64
    }
}

/// Steps of each flow by its number.
type Flows = BTreeMap<usize, Vec<Step>>;

pub fn command(request: &Request) -> Result<bool> {
    let stored = Stored::open(&request.result, &request.results)?;
    let series = stored::read(&stored.dir, "series.csv")?;
    for run in &stored.summary.runs {
        let flows = flows(&series, &run.cc)
            .map_err(|err| Error::failure(format!("{}/series.csv: {err}", stored.dir.display())))?;
        let (text, ending) = match request.flent {
            true => (flent(&stored, &run.cc, &flows), "flent"),
            false => (iperf3(&stored, &run.cc, &flows), "iperf3.json"),
        };
        let name = format!("{}-{}.{ending}", stored.summary.scenario, run.cc);
        let path = request.out.join(name.replace('/', "-"));
        owned::replace(&path, format!("{text:#}\n"))
            .map_err(|err| Error::io(path.display(), &err))?;
        println!("{}", plain(&path.display().to_string()));
    }
    Ok(true)
}

/// Reads the flows of a congestion control.
fn flows(series: &str, cc: &str) -> std::result::Result<Flows, csv::Error> {
    let mut reader = csv::Reader::from_reader(series.as_bytes());
    let headers = reader.headers()?.clone();
    let at = |name| headers.iter().position(|header| header == name);
    let (of_cc, of_kind, of_id) = (at("cc"), at("kind"), at("id"));
    let mut flows = Flows::new();
    for record in reader.records() {
        let record = record?;
        let field = |at: Option<usize>| at.and_then(|at| record.get(at)).unwrap_or_default();
        if (field(of_cc), field(of_kind)) != (cc, "flow") {
            continue;
        }
        let row: Row = record.deserialize(Some(&headers))?;
        let steps = flows.entry(field(of_id).parse().unwrap_or(0)).or_default();
        let before = steps.last().map_or(Row::default(), |step| step.to);
        if row.t_us > before.t_us {
            steps.push(Step {
                from_us: before.t_us,
                to: row,
                bytes: row.received_bytes.saturating_sub(before.received_bytes),
                retransmits: row.retransmits.saturating_sub(before.retransmits),
            });
        }
    }
    Ok(flows)
}

fn title(stored: &Stored, cc: &str) -> String {
    format!("{} {cc}, seed {}", stored.summary.scenario, stored.summary.seed)
}

/// Data file of flent, version 4: flent/resultset.py.
fn flent(stored: &Stored, cc: &str, flows: &Flows) -> Value {
    let mut times: Vec<u64> = flows.values().flatten().map(|step| step.to.t_us).collect();
    times.sort_unstable();
    times.dedup();
    let mut results = serde_json::Map::new();
    let mut meta = serde_json::Map::new();
    let mut add = |name: String, units: &str, values: Vec<Option<f64>>| {
        meta.insert(name.clone(), json!({ "UNITS": units, "IDX": results.len() }));
        results.insert(name, json!(values));
    };
    let of = |steps: &[Step], value: fn(&Step) -> f64| -> Vec<Option<f64>> {
        let mut steps = steps.iter().peekable();
        let at = |&t_us: &u64| steps.next_if(|step| step.to.t_us == t_us).map(value);
        times.iter().map(at).collect()
    };
    let mut sum = vec![0.0; times.len()];
    for (number, steps) in flows.values().enumerate() {
        let name = format!("TCP upload::{}", number + 1);
        let mbps = of(steps, Step::mbps);
        for (sum, mbps) in sum.iter_mut().zip(&mbps) {
            *sum += mbps.unwrap_or(0.0);
        }
        add(name.clone(), "Mbits/s", mbps);
        let rtt = of(steps, |step| step.to.srtt_us as f64 / 1000.0);
        add(format!("{name}::tcp_rtt"), "ms", rtt);
        let cwnd = of(steps, |step| step.to.cwnd_bytes as f64 / 1000.0);
        add(format!("{name}::tcp_cwnd"), "Kbytes", cwnd);
    }
    let share = flows.len().max(1) as f64;
    let average = sum.iter().map(|sum| Some(sum / share)).collect();
    add("TCP upload avg".to_owned(), "Mbits/s", average);
    let sum = sum.into_iter().map(Some).collect();
    add("TCP upload sum".to_owned(), "Mbits/s", sum);
    let summary = &stored.summary;
    // flent refuses a time without a fraction of a second.
    let time = summary.provenance.date.replace('Z', ".000000Z");
    json!({
        "version": 4,
        "metadata": {
            "NAME": "tcp_nup",
            "TITLE": title(stored, cc),
            "TIME": time,
            "T0": time,
            "HOST": "xdc", "HOSTS": ["xdc"], "LOCAL_HOST": "xdc",
            "KERNEL_NAME": "Linux", "KERNEL_RELEASE": summary.kernel,
            "LENGTH": times.last().map_or(0.0, |&us| seconds(us)),
            "TOTAL_LENGTH": times.last().map_or(0.0, |&us| seconds(us)),
            "STEP_SIZE": times.first().map_or(0.0, |&us| seconds(us)),
            "TEST_PARAMETERS": { "upload_streams": flows.len().to_string() },
            "IP_VERSION": 4, "FAILED_RUNNERS": 0, "NOTE": null, "DATA_FILENAME": null,
            "BATCH_NAME": null, "BATCH_TIME": null, "BATCH_TITLE": null, "BATCH_UUID": null,
            "SERIES_META": meta,
        },
        "x_values": times.iter().map(|&us| seconds(us)).collect::<Vec<_>>(),
        "results": results,
        "raw_values": {},
    })
}

/// Report of iperf3 --json: iperf_api.c and iperf_reporter() of iperf 3.
fn iperf3(stored: &Stored, cc: &str, flows: &Flows) -> Value {
    let mut intervals: BTreeMap<u64, Vec<(usize, Step)>> = BTreeMap::new();
    for (&flow, steps) in flows {
        for step in steps {
            intervals.entry(step.to.t_us).or_default().push((flow, *step));
        }
    }
    let stream = |flow: usize, step: &Step| {
        let mut stream = sum(step.from_us, step.to.t_us, step.bytes, step.retransmits);
        stream["socket"] = flow.into();
        stream["snd_cwnd"] = step.to.cwnd_bytes.into();
        stream["rtt"] = step.to.srtt_us.into();
        stream
    };
    let interval = |(&to_us, steps): (&u64, &Vec<(usize, Step)>)| {
        let from_us = steps.iter().map(|(_, step)| step.from_us).min();
        let bytes = steps.iter().map(|(_, step)| step.bytes).sum();
        let retransmits = steps.iter().map(|(_, step)| step.retransmits).sum();
        json!({
            "streams": steps.iter().map(|(flow, step)| stream(*flow, step)).collect::<Vec<_>>(),
            "sum": sum(from_us.unwrap_or(0), to_us, bytes, retransmits),
        })
    };
    let whole = |steps: &[Step]| {
        let last = steps.last().map_or(Row::default(), |step| step.to);
        (last.t_us, last.received_bytes, last.retransmits)
    };
    let ends = flows.iter().map(|(&flow, steps)| {
        let (to_us, bytes, retransmits) = whole(steps);
        let mut end = sum(0, to_us, bytes, retransmits);
        end["socket"] = flow.into();
        json!({ "sender": end, "receiver": end })
    });
    let all = flows.values().map(|steps| whole(steps));
    let all = all.fold((0, 0, 0), |a, b| (a.0.max(b.0), a.1 + b.1, a.2 + b.2));
    let total = sum(0, all.0, all.1, all.2);
    let date = &stored.summary.provenance.date;
    let start = humantime::parse_rfc3339(date).ok();
    let start = start.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    json!({
        "title": title(stored, cc),
        "start": {
            "connected": flows.keys().map(|flow| json!({ "socket": flow })).collect::<Vec<_>>(),
            "version": format!("xdc {}", stored.summary.provenance.xdc_version),
            "system_info": format!("Linux {}", stored.summary.kernel),
            "timestamp": { "time": date, "timesecs": start.map_or(0, |start| start.as_secs()) },
            "test_start": {
                "protocol": "TCP", "num_streams": flows.len(), "omit": 0, "reverse": 0,
                "duration": seconds(all.0), "bytes": all.1,
            },
        },
        "intervals": intervals.iter().map(interval).collect::<Vec<_>>(),
        "end": {
            "streams": ends.collect::<Vec<_>>(),
            "sum_sent": total, "sum_received": total,
            "sender_tcp_congestion": cc, "receiver_tcp_congestion": cc,
        },
    })
}

fn sum(from_us: u64, to_us: u64, bytes: u64, retransmits: u64) -> Value {
    let passed = seconds(to_us.saturating_sub(from_us));
    json!({
        "start": seconds(from_us), "end": seconds(to_us), "seconds": passed, "bytes": bytes,
        "bits_per_second": if passed > 0.0 { bytes as f64 * 8.0 / passed } else { 0.0 },
        "retransmits": retransmits, "omitted": false, "sender": true,
    })
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_result::summary::Summary;

    const SERIES: &str = "\
cc,t_us,kind,id,received_bytes,cwnd_bytes,srtt_us,pacing_bps,retransmits,backlog_bytes,phantom_bytes,drops,marks
cubic,1000,flow,0,125,3000,50,1,0,,,,
cubic,1000,queue,port,,,,,,0,,0,0
cubic,2000,flow,0,375,4000,60,1,2,,,,
cubic,2000,flow,1,250,4000,70,1,0,,,,
bbr,1000,flow,0,999,1,1,1,0,,,,
";

    fn stored() -> Stored {
        let text = include_str!("../../../../scenarios/links.toml");
        Stored {
            dir: PathBuf::new(),
            summary: Summary::of_runs(Vec::new()),
            scenario: xdc_scenario::parse("links", text, &[]).unwrap().scenario,
            toml: toml::Table::new(),
        }
    }

    #[test]
    fn flent_has_a_series_per_flow_and_gaps_where_there_is_no_sample() {
        let file = flent(&stored(), "cubic", &flows(SERIES, "cubic").unwrap());
        assert_eq!(file["x_values"], json!([0.001, 0.002]));
        assert_eq!(file["results"]["TCP upload::1"], json!([1.0, 2.0]));
        assert_eq!(file["results"]["TCP upload::2"], json!([null, 1.0]));
        assert_eq!(file["results"]["TCP upload sum"], json!([1.0, 3.0]));
        assert_eq!(file["results"]["TCP upload::2::tcp_rtt"], json!([null, 0.07]));
    }

    #[test]
    fn iperf3_has_intervals_of_the_streams_and_their_sum() {
        let file = iperf3(&stored(), "cubic", &flows(SERIES, "cubic").unwrap());
        assert_eq!(file["intervals"][1]["streams"][0]["retransmits"], 2);
        assert_eq!(file["intervals"][1]["sum"]["bytes"], 500);
        assert_eq!(file["end"]["sum_received"]["bytes"], 625);
        assert_eq!(file["end"]["sum_received"]["bits_per_second"], 2.5e6);
    }

    #[test]
    fn a_series_with_bad_numbers_is_an_error() {
        assert!(flows("cc,t_us,kind,id\nx,1,flow,0\n", "x").is_err());
    }
}
