// SPDX-License-Identifier: GPL-2.0
//! Charts of a result: all congestion controls side by side, then details of each.

use xdc_measure::record::Record;
use xdc_measure::throughput::{Line, MAX_POINTS, per_flow, throughput};
use xdc_measure::{fairness, figures};
use xdc_netlink::phantom;
use xdc_proto::RunPlan;

use crate::plot::{self, BYTES, Chart, RATE, RATIO, TIME};

/// Width of charts in rows of three, and in rows of two.
pub const NARROW: f64 = 400.0;
pub const WIDE: f64 = 560.0;

/// All charts of a result; vectors are in the order of records.
pub struct Figures {
    pub throughput: Vec<Chart>,
    pub jain: Chart,
    /// None if no flow has completed.
    pub fct: Option<Chart>,
    pub details: Vec<Vec<Chart>>,
}

impl Figures {
    pub fn new(records: &[Record], jain_window_us: u64) -> Self {
        let ccs = || records.iter().enumerate();
        Self {
            throughput: throughputs(records, jain_window_us),
            jain: Chart {
                title: "Jain's index".to_owned(),
                y_unit: RATIO,
                y_end: 1.0,
                ..over_time(
                    ccs().map(|(index, record)| jain(record, index, jain_window_us)).collect(),
                )
            },
            fct: fct(records),
            details: records.iter().map(details).collect(),
        }
    }

    /// Overview charts: throughput of each, and fairness.
    pub fn overview(&self) -> impl Iterator<Item = &Chart> {
        self.throughput.iter().chain([&self.jain])
    }

    /// SVG files for other pages: name and content.
    pub fn files(&self, records: &[Record]) -> Vec<(String, String)> {
        const COLUMNS: usize = 3;
        let mut files = vec![("overview.svg".to_owned(), plot::file(self.overview(), COLUMNS))];
        if let Some(fct) = &self.fct {
            files.push(("fct.svg".to_owned(), plot::file([fct], 1)));
        }
        for (record, charts) in records.iter().zip(&self.details) {
            files.push((format!("{}.svg", record.cc), plot::file(charts, 2)));
        }
        files
    }
}

fn over_time(lines: Vec<Line>) -> Chart {
    Chart {
        title: String::new(),
        width: NARROW,
        x_unit: TIME,
        x_log: false,
        y_unit: RATE,
        lines,
        x_end: 0.0,
        y_end: 0.0,
    }
}

/// One chart per congestion control, on equal scales.
fn throughputs(records: &[Record], jain_window_us: u64) -> Vec<Chart> {
    let mut charts: Vec<_> = records
        .iter()
        .map(|record| Chart {
            title: format!("{}: throughput", record.cc),
            ..over_time(throughput(record, jain_window_us))
        })
        .collect();
    let y_end = charts.iter().map(Chart::max_y).fold(0.0, f64::max);
    let x_end = records.iter().map(Record::end_us).max().unwrap_or(0) as f64;
    for chart in &mut charts {
        chart.y_end = y_end;
        chart.x_end = x_end;
    }
    charts
}

fn jain(record: &Record, index: usize, window_us: u64) -> Line {
    Line {
        name: record.cc.clone(),
        detail: record.cc.clone(),
        color: index,
        points: fairness::jain_windows(record, window_us)
            .into_iter()
            .map(|(from, jain)| ((from + window_us) as f64, jain))
            .collect(),
        ..Line::default()
    }
}

/// Cumulative distribution of completion times.
fn fct(records: &[Record]) -> Option<Chart> {
    let lines: Vec<_> = records
        .iter()
        .enumerate()
        .map(|(index, record)| {
            let all: Vec<_> = (0..record.flows.len()).collect();
            let fcts_ms = figures::fcts_ms(record, &all);
            let fcts_us: Vec<_> = fcts_ms.iter().map(|ms| ms * 1e3).collect();
            Line {
                name: record.cc.clone(),
                detail: record.cc.clone(),
                color: index,
                points: shares(&fcts_us, all.len()),
                ..Line::default()
            }
        })
        .collect();
    lines.iter().any(|line| !line.points.is_empty()).then(|| Chart {
        title: "Share of flows complete, over completion time".to_owned(),
        x_log: true,
        y_unit: RATIO,
        y_end: 1.0,
        ..over_time(lines)
    })
}

/// Steps of a distribution: the share of `all` flows completed by a time.
pub fn shares(sorted_us: &[f64], all: usize) -> Vec<(f64, f64)> {
    let share = |ended: usize| ended as f64 / all as f64;
    let steps = sorted_us.iter().enumerate();
    steps
        .step_by(all.div_ceil(MAX_POINTS).max(1))
        .flat_map(|(n, us)| [(*us, share(n)), (*us, share(n + 1))])
        .collect()
}

fn details(record: &Record) -> Vec<Chart> {
    let of_flows = |value: fn(&xdc_proto::FlowSample) -> f64| {
        over_time(per_flow(record, |flow| {
            let open = record.flow_series(flow).filter(|(_, sample)| sample.active);
            peaks(open.map(|(t_us, sample)| (t_us as f64, value(sample))))
        }))
    };
    let of_queues = |value: fn(&xdc_proto::QueueSample) -> Option<u64>,
                     shown: &dyn Fn(usize) -> bool| {
        let lines = (0..record.plan.watch.len()).filter(|&queue| shown(queue));
        over_time(
            lines
                .map(|queue| {
                    let series = record.queue_series(queue);
                    let name = &record.plan.watch[queue].name;
                    Line {
                        name: name.clone(),
                        detail: name.clone(),
                        color: queue,
                        points: peaks(series.filter_map(|(t_us, sample)| {
                            Some((t_us as f64, value(sample)? as f64))
                        })),
                        ..Line::default()
                    }
                })
                .collect(),
        )
    };
    let mut charts = vec![
        Chart {
            title: "Congestion window of each flow".to_owned(),
            y_unit: BYTES,
            ..of_flows(|sample| sample.cwnd_bytes as f64)
        },
        Chart {
            title: "Smoothed RTT of each flow".to_owned(),
            y_unit: TIME,
            ..of_flows(|sample| f64::from(sample.srtt_us))
        },
        Chart {
            title: "Queues".to_owned(),
            y_unit: BYTES,
            ..of_queues(|sample| Some(sample.backlog_bytes), &|_| true)
        },
        Chart {
            title: "Phantom queues".to_owned(),
            y_unit: BYTES,
            ..of_queues(|sample| sample.phantom_bytes, &|queue| {
                marks_by_phantom(&record.plan, queue)
            })
        },
    ];
    charts.retain(|chart| !chart.lines.is_empty());
    for chart in &mut charts {
        chart.x_end = record.end_us() as f64;
        chart.width = WIDE;
    }
    charts
}

/// Whether a watched queue marks by its phantom counter, which is otherwise meaningless.
fn marks_by_phantom(plan: &RunPlan, queue: usize) -> bool {
    let watched = &plan.watch[queue];
    let direction = plan.topology.direction(&watched.node, &watched.peer);
    let queue = direction.and_then(|it| it.queue.as_ref()).filter(|queue| queue.is_phantom());
    let options = queue.and_then(|queue| phantom::Options::from_words(&queue.words).ok());
    options.is_some_and(|options| options.marks_by_phantom())
}

/// Highest point of each interval: a queue's plot must show peaks.
pub fn peaks(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let points: Vec<_> = points.collect();
    points
        .chunks(points.len().div_ceil(MAX_POINTS).max(1))
        .filter_map(|chunk| chunk.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_result::testing::{recorded, unscaled};

    #[test]
    fn every_chart_has_its_lines() {
        let records = [recorded(), recorded()];
        let figures = Figures::new(&records, 1000);
        assert_eq!(figures.overview().count(), 3);
        // Both flows at twice, then once, 1 MiB / 24 ms.
        let top = 2.0 * 8e3 * f64::from(1 << 20) / 24.0;
        assert!((figures.throughput[0].y_end / top - 1.0).abs() < 1e-3);
        assert_eq!(figures.throughput[1].x_end, 20_000.0);
        let fct = figures.fct.as_ref().unwrap();
        assert_eq!(fct.lines[0].points.last(), Some(&(20_000.0, 1.0)));
        assert_eq!(figures.details[0].len(), 4);
        let names: Vec<_> = figures.files(&records).into_iter().map(|f| f.0).collect();
        assert_eq!(names, ["overview.svg", "fct.svg", "unocc.svg", "unocc.svg"]);
    }

    #[test]
    fn a_scaled_guest_has_the_same_charts() {
        let charts = |records: &[Record]| Figures::new(records, 1000).files(records);
        assert_eq!(charts(&[unscaled()]), charts(&[recorded()]));
    }

    #[test]
    fn thinning_keeps_peaks() {
        let points = (0..10_000).map(|n| (f64::from(n), if n == 777 { 9.0 } else { 1.0 }));
        let kept = peaks(points);
        assert!(kept.len() <= MAX_POINTS);
        assert!(kept.contains(&(777.0, 9.0)));
    }
}
