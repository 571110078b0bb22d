// SPDX-License-Identifier: GPL-2.0
//! Tables of a sweep: one row per cell as CSV, means over seeds as text.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use xdc_base::error::{Error, Result};
use xdc_measure::outcome::Outcome;
use xdc_measure::run::Run;
use xdc_metric::metric::{self, Metric};
use xdc_result::expect::format_value;
use xdc_result::files;

use super::grid::{Cell, Expanded};
use super::stats::{Estimate, estimate};
#[cfg(test)]
use xdc_result::files::Column;

/// A finished cell.
pub struct Row<'a> {
    pub cell: &'a Cell,
    /// Key of its files.
    pub key: String,
    pub outcome: Outcome,
}

/// Default metrics.
const METRICS: &[&str] =
    &["goodput_mbps", "jain_steady", "fct_ms.mean", "fct_ms.p99", "queue_bytes.mean", "drops"];

/// The default metrics that some cell has.
pub fn default_metrics(rows: &[Row<'_>]) -> Vec<Metric> {
    let mut metrics = metric::of_names(METRICS);
    metrics.retain(|metric| rows.iter().any(|row| metric.of(&row.outcome.run).is_some()));
    metrics
}

/// Times of this machine; left out, because they would make tables of equal runs differ.
const OF_THIS_MACHINE: [&str; 2] = ["wall_s", "network.build_wall_s"];

/// Part of a table: cells of one grid; a paper has one grid per figure.
pub struct Part<'a> {
    pub figure: Option<&'a str>,
    pub grid: &'a Expanded,
    pub rows: &'a [Row<'a>],
}

/// The columns of table.csv, for its page.
#[cfg(test)]
pub const COLUMNS: &[Column] = &[
    ("figure", "", "id of a paper's figure"),
    ("AXIS", "", "one column for each axis of the grid: its label"),
    ("cc", "", "congestion control"),
    ("seed", "", ""),
    ("cell", "", "key of the files `cells/CELL.json` and `cells/CELL.flows.csv` in the cache"),
    ("engine", "", "`uml` or `qemu`"),
    ("scale", "", "how many times slower the guest was; all numbers are corrected for it"),
    ("kernel", "", "kernel of the guest"),
    (
        "METRIC",
        "",
        "one column for each metric that a cell has, by its name, except `wall_s` and `build_wall_s`",
    ),
    ("suspect", "", "why the row is unreliable; empty if it is reliable"),
];

pub fn csv(parts: &[Part<'_>]) -> Result<Vec<u8>> {
    let rows = || {
        let parts = parts.iter();
        parts.flat_map(|part| part.rows.iter().map(move |row| (part, row)))
    };
    let mut flat = Vec::new();
    for (_, row) in rows() {
        let mut leaves = leaves(&row.outcome.run)?;
        leaves.retain(|key, _| !OF_THIS_MACHINE.contains(&key.as_str()));
        flat.push(leaves);
    }
    let keys: BTreeSet<&String> = flat.iter().flat_map(BTreeMap::keys).collect();
    let mut axes: Vec<&String> = Vec::new();
    for axis in parts.iter().flat_map(|part| &part.grid.axes) {
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    let with_figures = parts.iter().any(|part| part.figure.is_some());
    let mut head: Vec<String> = Vec::new();
    head.extend(with_figures.then(|| "figure".to_owned()));
    head.extend(axes.iter().copied().cloned());
    head.extend(["cc", "seed", "cell", "engine", "scale", "kernel"].map(str::to_owned));
    head.extend(keys.iter().copied().cloned());
    let body = rows().zip(&flat).map(|((part, row), leaves)| {
        let (cell, outcome) = (row.cell, &row.outcome);
        let labels = labels(part.grid, cell);
        let mut line: Vec<String> = Vec::new();
        line.extend(with_figures.then(|| part.figure.unwrap_or_default().to_owned()));
        let label = |axis: &&String| labels.get(*axis).cloned().unwrap_or_default();
        line.extend(axes.iter().map(label));
        line.extend([
            cell.cc.clone(),
            cell.seed.to_string(),
            row.key.clone(),
            outcome.engine.clone(),
            outcome.scale.to_string(),
            outcome.kernel.clone(),
        ]);
        let value = |key: &&String| leaves.get(*key).cloned().unwrap_or_default();
        line.extend(keys.iter().map(value));
        line
    });
    files::table_csv(std::iter::once(head).chain(body))
}

/// Labels of a cell by axis.
pub fn labels(grid: &Expanded, cell: &Cell) -> BTreeMap<String, String> {
    let labels = &grid.points[cell.point].labels;
    grid.axes.iter().cloned().zip(labels.iter().cloned()).collect()
}

/// Every number of a run by metric name; lists become text.
pub fn leaves(run: &Run) -> Result<BTreeMap<String, String>> {
    let mut value = serde_json::to_value(run)
        .map_err(|err| Error::failure(format!("cannot write a run: {err}")))?;
    // Sentences, not numbers.
    value.as_object_mut().map(|run| run.remove("notes"));
    let mut leaves = BTreeMap::new();
    flatten("", &value, &mut leaves);
    Ok(leaves)
}

/// Collects leaves below `key`, without nulls.
fn flatten(key: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
    let below = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(name, value)| flatten(&below(name), value, leaves))
        }
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let texts: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            leaves.insert(key.to_owned(), texts.join("; "));
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(n, item)| {
            let name = item["name"].as_str().map_or_else(|| n.to_string(), str::to_owned);
            flatten(&below(&name), item, leaves);
        }),
        Value::Number(number) => drop(leaves.insert(key.to_owned(), number.to_string())),
        Value::Bool(_) | Value::String(_) | Value::Null => {}
    }
}

/// A cell for `--json`.
pub fn json(grid: &Expanded, row: &Row<'_>) -> Value {
    let outcome = &row.outcome;
    json!({
        "axes": labels(grid, row.cell),
        "cc": row.cell.cc,
        "seed": row.cell.seed,
        "cell": row.key,
        "engine": outcome.engine,
        "scale": outcome.scale,
        "kernel": outcome.kernel,
        "run": outcome.run,
    })
}

/// Mean over seeds at a point; a single value if all seeds give equal runs.
pub fn mean(rows: &[Row<'_>], point: usize, cc: &str, metric: &Metric) -> Option<Estimate> {
    let here = distinct(rows, point, cc).into_iter();
    let values: Vec<_> = here.filter_map(|row| metric.of(&row.outcome.run)).collect();
    estimate(&values)
}

/// Rows of a point and congestion control. If all seeds give equal figures, only the first row:
/// repeated values are no sample.
fn distinct<'a, 'g>(rows: &'a [Row<'g>], point: usize, cc: &str) -> Vec<&'a Row<'g>> {
    let is_here = |row: &&Row<'_>| row.cell.point == point && row.cell.cc == cc;
    let mut here: Vec<_> = rows.iter().filter(is_here).collect();
    if here.len() > 1 && here.windows(2).all(|pair| are_alike(pair[0], pair[1])) {
        here.truncate(1);
    }
    here
}

fn are_alike(a: &Row<'_>, b: &Row<'_>) -> bool {
    let figures = |row: &Row<'_>| {
        let mut figures = leaves(&row.outcome.run).ok()?;
        figures.retain(|key, _| !OF_THIS_MACHINE.contains(&key.as_str()));
        Some(figures)
    };
    figures(a) == figures(b)
}

/// Note on rows in which seeds change nothing; None if there is no such row.
pub fn seeds_note(grid: &Expanded, rows: &[Row<'_>]) -> Option<String> {
    let (mut alike, mut all) = (0, 0);
    for index in 0..grid.points.len() {
        for cc in ccs(grid) {
            let is_here = |row: &&Row<'_>| row.cell.point == index && row.cell.cc == cc;
            let seeds = rows.iter().filter(is_here).count();
            all += usize::from(seeds > 1);
            alike += usize::from(seeds > 1 && distinct(rows, index, cc).len() == 1);
        }
    }
    let of = match alike {
        0 => return None,
        alike if alike == all => String::new(),
        alike => format!(" in {alike} of {all} rows"),
    };
    Some(format!(
        "note: the seeds have no effect{of}: no input is random, so one run represents all"
    ))
}

/// Congestion controls in order of appearance.
pub fn ccs<'a>(grid: &'a Expanded) -> Vec<&'a str> {
    let mut ccs: Vec<&'a str> = Vec::new();
    for cell in &grid.cells {
        if !ccs.contains(&cell.cc.as_str()) {
            ccs.push(&cell.cc);
        }
    }
    ccs
}

/// Means and 95 % intervals over seeds; a line per point and congestion control.
pub fn text(grid: &Expanded, rows: &[Row<'_>], metrics: &[Metric]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let head = grid.axes.iter().cloned().chain(["cc".to_owned(), "seeds".to_owned()]);
    lines.push(head.chain(metrics.iter().map(Metric::to_string)).collect());
    for (index, point) in grid.points.iter().enumerate() {
        for cc in ccs(grid) {
            let seeds = distinct(rows, index, cc).len();
            if seeds == 0 {
                continue;
            }
            let mut line = point.labels.clone();
            line.extend([cc.to_owned(), seeds.to_string()]);
            line.extend(metrics.iter().map(|metric| match mean(rows, index, cc, metric) {
                Some(Estimate { mean, ci95: Some(ci95) }) => {
                    format!("{} +- {}", format_value(mean), format_value(ci95))
                }
                Some(Estimate { mean, ci95: None }) => format_value(mean),
                None => "-".to_owned(),
            }));
            lines.push(line);
        }
    }
    xdc_result::table::align(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    use xdc_measure::figures::{self, Windows};
    use xdc_measure::run::{Content, Network};

    use xdc_result::testing::{recorded, scaled};
    use xdc_scenario::{parse, testing::SMALL};

    #[test]
    fn nested_values_become_columns() {
        let mut leaves = BTreeMap::new();
        let run = json!({"a": 1, "b": {"c": 2.5, "d": null}, "suspect": ["x", "y, z"],
                         "queues": [{"name": "port", "drops": 3}]});
        flatten("", &run, &mut leaves);
        let found: Vec<_> = leaves.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(found, ["a=1", "b.c=2.5", "queues.port.drops=3", "suspect=x; y, z"]);
    }

    #[test]
    fn a_row_identifies_its_cell() {
        let grid = |axis: &str, label: &str| Expanded {
            axes: vec![axis.to_owned()],
            points: vec![super::super::grid::Point {
                labels: vec![label.to_owned()],
                loaded: parse("small", SMALL, &[]).unwrap(),
            }],
            cells: vec![Cell { point: 0, cc: "unocc".to_owned(), seed: 7 }],
        };
        let (first, second) = (grid("K, packets", "20"), grid("load", "40%"));
        fn row<'a>(grid: &'a Expanded, key: &str) -> Row<'a> {
            Row {
                cell: &grid.cells[0],
                key: key.to_owned(),
                outcome: Outcome {
                    cc: "unocc".to_owned(),
                    seed: 7,
                    scale: 1,
                    engine: "uml".to_owned(),
                    kernel: "7.3.4".to_owned(),
                    axes: BTreeMap::new(),
                    run: figures::run(&recorded(), &Windows::every_us(1000)),
                    throughput: Vec::new(),
                },
            }
        }
        let rows = ([row(&first, "aaaa")], [row(&second, "bbbb")]);
        let parts = [("8", &first, &rows.0), ("10", &second, &rows.1)];
        let parts = parts.map(|(figure, grid, rows)| Part { figure: Some(figure), grid, rows });
        let text = csv(&parts).unwrap();
        let mut lines = csv::Reader::from_reader(text.as_slice());
        let head = lines.headers().unwrap().clone();
        let first: Vec<_> = head.iter().take(9).collect();
        assert_eq!(
            first,
            ["figure", "K, packets", "load", "cc", "seed", "cell", "engine", "scale", "kernel"]
        );
        let rows: Vec<_> = lines.records().map(|row| row.unwrap()).collect();
        let begin = |n: usize| rows[n].iter().take(6).collect::<Vec<_>>();
        assert_eq!(begin(0), ["8", "20", "", "unocc", "7", "aaaa"]);
        assert_eq!(begin(1), ["10", "", "40%", "unocc", "7", "bbbb"]);
        assert!(head.iter().any(|name| name == "queues.port.marks"));
        assert!(!head.iter().any(|name| name == "wall_s"));
    }

    #[test]
    fn equal_runs_of_all_seeds_count_once() {
        let cell = |cc: &str, seed| Cell { point: 0, cc: cc.to_owned(), seed };
        let seeds = ["unocc", "cubic"].map(|cc| [1, 2, 3].map(|seed| cell(cc, seed)));
        let grid = Expanded {
            axes: Vec::new(),
            points: vec![super::super::grid::Point {
                labels: Vec::new(),
                loaded: parse("small", SMALL, &[]).unwrap(),
            }],
            cells: seeds.concat(),
        };
        let row = |cell, goodput_mbps| {
            let run = figures::run(&recorded(), &Windows::every_us(1000));
            Row {
                cell,
                key: String::new(),
                outcome: Outcome {
                    cc: "unocc".to_owned(),
                    seed: 1,
                    scale: 1,
                    engine: "uml".to_owned(),
                    kernel: "7.3.4".to_owned(),
                    axes: BTreeMap::new(),
                    run: Run { goodput_mbps, ..run },
                    throughput: Vec::new(),
                },
            }
        };
        let rows = |cubic: [f64; 3]| {
            let goodputs = [[5.0; 3], cubic].concat();
            let cells = grid.cells.iter().zip(goodputs);
            cells.map(|(cell, goodput)| row(cell, goodput)).collect::<Vec<_>>()
        };
        let metrics = [named("goodput_mbps"), named("drops")];
        let alike = rows([7.0; 3]);
        assert!(!text(&grid, &alike, &metrics).contains("+-"));
        let note = seeds_note(&grid, &alike).unwrap();
        assert!(note.contains("the seeds have no effect: "), "{note}");
        // A metric that is 0 in all runs still gets an interval if others vary.
        let cubic_varies = rows([7.0, 8.0, 9.0]);
        let shown = text(&grid, &cubic_varies, &metrics);
        assert_eq!(shown.matches("+-").count(), 2, "{shown}");
        let note = seeds_note(&grid, &cubic_varies).unwrap();
        assert!(note.contains("in 1 of 2 rows"), "{note}");
        assert_eq!(seeds_note(&grid, &rows([1.0, 2.0, 3.0])[3..]), None);
    }

    fn named(name: &str) -> Metric {
        name.parse().unwrap()
    }

    /// Every number of a run has a name in the table, and the table finds it.
    #[test]
    fn the_table_has_every_metric() {
        let mut run = figures::run(&recorded(), &Windows::every_us(1000));
        run.jain_phases.insert("1".to_owned(), Some(0.5));
        let content = Content { marked: 3, ..Content::default() };
        run.capture = Some(content);
        run.network = Some(Network::default());
        let leaves = leaves(&run).unwrap();
        for (name, text) in &leaves {
            let Ok(value) = text.parse::<f64>() else {
                continue;
            };
            assert_eq!(named(name).of(&run), Some(value), "{name}");
        }
        for name in metric::names_of_runs() {
            // An event that did not occur has no column.
            assert!(leaves.contains_key(name) || named(name).of(&run).is_none(), "{name}");
        }
        assert_eq!(leaves["queues.port.marks"], "20");
        assert_eq!(leaves["capture.marked"], "3");
    }

    /// The column "scaled as" must match the record's own rule for a guest ten times as slow.
    #[test]
    fn a_metric_scales_by_its_unit() {
        let windows = Windows::every_us(1000);
        let slow_windows = Windows::every_us(10_000);
        let slow = figures::run(&scaled(10), &slow_windows);
        let real = figures::run(&recorded(), &windows);
        let mut seen = 0;
        for name in leaves(&real).unwrap().keys() {
            let Ok(metric) = name.parse::<Metric>() else {
                continue;
            };
            let (Some(slow), Some(real)) = (metric.of(&slow), metric.of(&real)) else {
                continue;
            };
            let unscaled = slow * metric.unit().unscale(10);
            // An ideal FCT is whole nanoseconds.
            let near = (unscaled - real).abs() <= 1e-6 * real.abs();
            assert!(near, "{name}: {slow} is {unscaled}, not {real}");
            seen += 1;
        }
        assert!(seen > 40, "{seen}");
    }

    /// Written by `UPDATE_DOCS=1 cargo test -p xdc-study`.
    #[test]
    fn the_page_has_every_column() {
        let table = files::column_table(COLUMNS);
        xdc_base::testing::holds("scenarios.md", "table.csv", &table);
    }
}
