// SPDX-License-Identifier: GPL-2.0
//! What a sweep came to: one row a cell as CSV, means over seeds as text and as plots.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::cells::Outcome;
use super::grid::{Cell, Expanded};
use super::stats::{Estimate, estimate};
use crate::bars::{Bar, Bars, Group, unit_of};
use crate::error::{Error, Result};
use crate::expect::format_value;
use crate::figures::NARROW;
use crate::plot;
use crate::stored::run_figure;

/// A finished cell.
pub type Row<'a> = (&'a Cell, Outcome);

/// What is shown where nobody asks for something else.
const METRICS: &[&str] = &[
    "goodput_mbps",
    "jain_steady",
    "fct_ms.mean",
    "fct_ms.p99",
    "queue_bytes.mean",
    "drops",
];

/// Those of [`METRICS`] that some cell has.
pub fn default_metrics(rows: &[Row<'_>]) -> Vec<String> {
    let known = |metric: &&&str| {
        rows.iter()
            .any(|(_, outcome)| figure(outcome, metric).is_some())
    };
    METRICS
        .iter()
        .filter(known)
        .map(|&metric| metric.to_owned())
        .collect()
}

/// As of the unscaled network.
pub fn figure(outcome: &Outcome, metric: &str) -> Option<f64> {
    run_figure(&outcome.run, f64::from(outcome.scale), metric)
}

/// Axes, cc, seed, and every number of a run's summary under its dotted key.
pub fn csv(grid: &Expanded, rows: &[Row<'_>]) -> String {
    let flat: Vec<BTreeMap<String, String>> = rows
        .iter()
        .map(|(_, outcome)| {
            let mut leaves = BTreeMap::new();
            flatten("", &outcome.run, &mut leaves);
            leaves
        })
        .collect();
    let keys: BTreeSet<&String> = flat.iter().flat_map(BTreeMap::keys).collect();
    let head = grid.axes.iter().map(|axis| quoted(axis));
    let fixed = ["cc", "seed", "engine", "scale", "kernel"].map(str::to_owned);
    let head = head.chain(fixed).chain(keys.iter().map(|key| quoted(key)));
    let mut csv = head.collect::<Vec<_>>().join(",") + "\n";
    for ((cell, outcome), leaves) in rows.iter().zip(&flat) {
        let labels = grid.points[cell.point]
            .labels
            .iter()
            .map(|label| quoted(label));
        let fixed = [
            cell.cc.clone(),
            cell.seed.to_string(),
            outcome.engine.clone(),
            outcome.scale.to_string(),
            outcome.kernel.clone(),
        ];
        let leaves = keys
            .iter()
            .map(|key| leaves.get(*key).cloned().unwrap_or_default());
        csv += &(labels
            .chain(fixed)
            .chain(leaves)
            .collect::<Vec<_>>()
            .join(",")
            + "\n");
    }
    csv
}

/// Numbers, and lists as their texts; what is null is left out.
fn flatten(key: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
    let below = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(name, value)| flatten(&below(name), value, leaves)),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let texts: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            leaves.insert(key.to_owned(), quoted(&texts.join("; ")));
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(n, item)| {
            let name = item["name"]
                .as_str()
                .map_or_else(|| n.to_string(), str::to_owned);
            flatten(&below(&name), item, leaves);
        }),
        Value::Number(number) => drop(leaves.insert(key.to_owned(), number.to_string())),
        Value::Bool(_) | Value::String(_) | Value::Null => {}
    }
}

/// As RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A cell for `--json`.
pub fn json(grid: &Expanded, cell: &Cell, outcome: &Outcome) -> Value {
    let labels = &grid.points[cell.point].labels;
    let axes: BTreeMap<_, _> = grid.axes.iter().zip(labels).collect();
    json!({
        "axes": axes,
        "cc": cell.cc,
        "seed": cell.seed,
        "engine": outcome.engine,
        "scale": outcome.scale,
        "kernel": outcome.kernel,
        "run": outcome.run,
    })
}

/// The mean over the seeds at one point.
pub fn mean(rows: &[Row<'_>], point: usize, cc: &str, metric: &str) -> Option<Estimate> {
    let here = rows
        .iter()
        .filter(|(cell, _)| cell.point == point && cell.cc == cc);
    estimate(
        &here
            .filter_map(|(_, outcome)| figure(outcome, metric))
            .collect::<Vec<_>>(),
    )
}

/// In the order in which they come.
pub fn ccs<'a>(grid: &'a Expanded) -> Vec<&'a str> {
    let mut ccs: Vec<&'a str> = Vec::new();
    for cell in &grid.cells {
        if !ccs.contains(&cell.cc.as_str()) {
            ccs.push(&cell.cc);
        }
    }
    ccs
}

/// Means and 95 % intervals over the seeds; a line a point and congestion control.
pub fn text(grid: &Expanded, rows: &[Row<'_>], metrics: &[String]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let head = grid
        .axes
        .iter()
        .cloned()
        .chain(["cc".to_owned(), "seeds".to_owned()]);
    lines.push(head.chain(metrics.iter().cloned()).collect());
    for (index, point) in grid.points.iter().enumerate() {
        for cc in ccs(grid) {
            let seeds = rows
                .iter()
                .filter(|(cell, _)| cell.point == index && cell.cc == cc)
                .count();
            if seeds == 0 {
                continue;
            }
            let mut line = point.labels.clone();
            line.extend([cc.to_owned(), seeds.to_string()]);
            line.extend(
                metrics
                    .iter()
                    .map(|metric| match mean(rows, index, cc, metric) {
                        Some(Estimate {
                            mean,
                            ci95: Some(ci95),
                        }) => {
                            format!("{} +- {}", format_value(mean), format_value(ci95))
                        }
                        Some(Estimate { mean, ci95: None }) => format_value(mean),
                        None => "-".to_owned(),
                    }),
            );
            lines.push(line);
        }
    }
    crate::results::align(&lines)
}

/// One chart per metric; the first axis in groups, a bar per congestion control and value of the
/// other axes.
pub fn plots(grid: &Expanded, rows: &[Row<'_>], metrics: &[String]) -> Result<String> {
    let charts: Vec<_> = metrics
        .iter()
        .map(|metric| bars(grid, rows, metric))
        .collect();
    let empty = |chart: &Bars| {
        chart
            .groups
            .iter()
            .flat_map(|group| &group.bars)
            .all(|bar| bar.value.is_none())
    };
    if let Some(chart) = charts
        .iter()
        .find(|chart| empty(chart))
        .filter(|_| !rows.is_empty())
    {
        return Err(
            Error::usage(format!("no cell has a figure '{}'", chart.title))
                .hint("a key of summary.json: fct_ms.p99, groups.intra.goodput_mbps"),
        );
    }
    Ok(plot::file(&charts, 2))
}

/// A metric over the first axis, means over seeds.
pub fn bars(grid: &Expanded, rows: &[Row<'_>], metric: &str) -> Bars {
    let (unit, factor) = unit_of(metric);
    let mut groups: Vec<Group> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (index, point) in grid.points.iter().enumerate() {
        let (label, others) = match point.labels.split_first() {
            Some((first, others)) => (first.as_str(), others),
            None => ("", &[][..]),
        };
        let bars = ccs(grid).into_iter().map(|cc| {
            let name = [&[cc.to_owned()], others].concat().join(" ");
            let color = names
                .iter()
                .position(|known| *known == name)
                .unwrap_or_else(|| {
                    names.push(name.clone());
                    names.len() - 1
                });
            let estimate = mean(rows, index, cc, metric);
            Bar {
                name,
                color,
                value: estimate.map(|e| e.mean * factor),
                ci95: estimate.and_then(|e| e.ci95).map(|ci95| ci95 * factor),
                paper: None,
            }
        });
        let bars: Vec<_> = bars.collect();
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.extend(bars),
            None => groups.push(Group {
                label: label.to_owned(),
                bars,
            }),
        }
    }
    Bars {
        title: metric.to_owned(),
        x_title: grid.axes.first().cloned().unwrap_or_default(),
        width: NARROW
            .max(60.0 + 14.0 * groups.iter().map(|g| g.bars.len() + 1).sum::<usize>() as f64),
        unit,
        groups,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_figures_become_columns() {
        let mut leaves = BTreeMap::new();
        let run = json!({"a": 1, "b": {"c": 2.5, "d": null}, "suspect": ["x", "y, z"],
                         "queues": [{"name": "port", "drops": 3}]});
        flatten("", &run, &mut leaves);
        let found: Vec<_> = leaves.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            found,
            [
                "a=1",
                "b.c=2.5",
                "queues.port.drops=3",
                "suspect=\"x; y, z\""
            ]
        );
    }

    #[test]
    fn a_comma_is_quoted() {
        assert_eq!(quoted("K, packets"), "\"K, packets\"");
        assert_eq!(quoted("say \"a\""), "\"say \"\"a\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
