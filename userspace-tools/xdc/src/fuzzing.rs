// SPDX-License-Identifier: GPL-2.0
//! Entry points of the fuzz targets in userspace-tools/testing/fuzz. Each takes any input and accepts or
//! refuses it; accepted input must have the properties that the rest of the program relies on.

use std::time::Duration;

use xdc_base::text::is_control;
use xdc_measure::figures;
use xdc_measure::outcome::Outcome;
use xdc_measure::record::{RawTrace, Record};
use xdc_proto::{Job, MAX_FLOWS, Message, TraceHead, sysctl_path};
use xdc_result::expect;
use xdc_result::files;
use xdc_result::stored;
use xdc_scenario::limits::{MAX_LINKS, MAX_NODES, MAX_WATCHED};
use xdc_scenario::plan;
use xdc_study::sweep::grid::{Axis, Grid, parse_seeds};
use xdc_study::sweep::table;
use xdc_view::plot;
use xdc_view::shape::Shape;

use crate::live::trace;

/// Scenario that [`set`] and [`messages`] start from.
const SMALL: &str = include_str!("../../../scenarios/links.toml");

/// Parses a scenario and plans its runs; returns whether a run was planned.
pub fn scenario(text: &str) -> bool {
    let _ = Grid::parse(text);
    let loaded = xdc_scenario::parse("fuzz", text, &[]);
    loaded.is_ok_and(|loaded| plans(&loaded))
}

/// Parses one `--set`, `--axis` or `--seeds` per line.
pub fn set(lines: &str) {
    let sets: Vec<_> = lines.lines().map(str::to_owned).collect();
    for line in &sets {
        let _ = Axis::parse(line);
        let _ = parse_seeds(line);
    }
    if let Ok(loaded) = xdc_scenario::parse("links", SMALL, &sets) {
        plans(&loaded);
    }
}

fn plans(loaded: &xdc_scenario::Loaded) -> bool {
    let mut any = false;
    let scale = loaded.scenario.scale.unwrap_or(1);
    // Two congestion controls suffice here; others are covered elsewhere.
    for cc in loaded.scenario.ccs.iter().take(2) {
        let Ok(plan) = plan::plan(&loaded.scenario, cc, loaded.scenario.seed, scale) else {
            continue;
        };
        let Job::Run(run) = plan.job else {
            panic!("a plan of a run is one");
        };
        any = true;
        let topology = &run.topology;
        let _ = Shape::new(topology, |host| host.len() == 2);
        assert!(run.flows.len() <= MAX_FLOWS && run.flows.len() + run.programs.len() > 0);
        assert!(topology.nodes.len() <= MAX_NODES && topology.links.len() <= MAX_LINKS);
        assert!((1..=MAX_WATCHED).contains(&run.watch.len()) && run.sample_us > 0);
        let of_nodes = topology.nodes.iter().flat_map(|node| &node.sysctls);
        let mut sysctls = topology.sysctls.iter().chain(of_nodes);
        assert!(sysctls.all(|(name, _)| sysctl_path(name).is_some()));
        let groups = run.flows.iter().map(|flow| &flow.group);
        let mut names = groups.chain(run.watch.iter().map(|watch| &watch.name));
        assert!(names.all(|name| !name.contains(|c| is_control(c) || c == '\t')));
        let links = topology.links.iter().flat_map(|link| [&link.ab, &link.ba]);
        for direction in links {
            assert!(direction.rate_bps >= 8);
        }
        assert!(loaded.scenario.windows().jain_us > 0);
    }
    any
}

/// Parses a summary.json or a cell, and checks it against a scenario's expectations.
pub fn result(text: &str) {
    if let Ok(summary) = stored::parse(text)
        && let Ok(loaded) = xdc_scenario::parse("links", SMALL, &[])
    {
        for row in expect::check(&loaded.scenario.expect, &summary.engine, &summary.runs) {
            assert!(!row.line().contains(is_control));
        }
        for run in &summary.runs {
            let _ = table::leaves(run);
        }
    }
    if let Ok(outcome) = serde_json::from_str::<Outcome>(text) {
        let chart = plot::Chart {
            title: outcome.cc,
            width: 560.0,
            x_unit: plot::TIME,
            x_log: false,
            y_unit: plot::RATE,
            lines: outcome.throughput,
            x_end: 0.0,
            y_end: 0.0,
        };
        let _ = plot::file([&chart], 1);
    }
}

/// Parses a recording in JSON lines, or pages of a ring buffer of 1 kB each after the format of
/// their events and a line of dashes.
pub fn trace(data: &[u8]) {
    let _ = trace::plot::of(data);
    let end = data.windows(4).position(|four| four == b"\n--\n");
    let (format, pages) = match end {
        Some(end) => (&data[..end], &data[end + 4..]),
        None => (&[][..], data),
    };
    let raw = RawTrace {
        head: TraceHead {
            formats: vec![(
                "phantom_mark".to_owned(),
                String::from_utf8_lossy(format).into_owned(),
            )],
            nodes: vec![(77, "r1".to_owned())],
            origin_ns: 1,
            missed: 0,
        },
        pages: pages.chunks(1024).map(|page| (0, page.to_vec())).collect(),
    };
    let _ = trace::of_run::read(&raw, "7.3.4");
}

/// Parses a guest's messages, one per line, and derives all figures.
pub fn messages(lines: &str) {
    let Ok(loaded) = xdc_scenario::parse("links", SMALL, &[]) else {
        return;
    };
    let Ok(plan) = plan::plan(&loaded.scenario, "cubic", 1, 1) else {
        return;
    };
    let Job::Run(run) = plan.job else {
        return;
    };
    let mut record = Record::new("cubic", run);
    for line in lines.lines() {
        let Ok(message) = serde_json::from_str::<Message>(line) else {
            continue;
        };
        if record.add(message).is_err() {
            return;
        }
    }
    if let Ok(record) = record.complete(Duration::ZERO) {
        let windows = loaded.scenario.windows();
        let _ = figures::run(&record, &windows);
        let records = std::slice::from_ref(&record);
        let _ = files::flows_csv(&mut std::io::sink(), records);
        let _ = files::series_csv(&mut std::io::sink(), records);
    }
}
