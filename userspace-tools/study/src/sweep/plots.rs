// SPDX-License-Identifier: GPL-2.0
//! Charts of a sweep: means over seeds with intervals.

use std::collections::BTreeSet;

use xdc_base::error::{Error, Result};
use xdc_base::units::{Rate, Size, Time};
use xdc_measure::throughput::Line;
use xdc_metric::metric::Metric;
use xdc_view::bars::{Bar, Bars, Group, unit_of};
use xdc_view::charts::NARROW;
use xdc_view::plot::{self, BYTES, Chart, PERCENT, RATE, RATIO, TIME, Unit};

use super::grid::Expanded;
use super::table::{Row, ccs, mean};

/// One chart per metric: lines over a numeric first axis, otherwise grouped bars. Other axes become
/// further lines or bars.
pub fn plots(grid: &Expanded, rows: &[Row<'_>], metrics: &[Metric]) -> Result<String> {
    let has_value = |metric: &&Metric| rows.iter().any(|row| metric.of(&row.outcome.run).is_some());
    if let Some(metric) = metrics.iter().find(|metric| !has_value(metric))
        && !rows.is_empty()
    {
        return Err(Error::usage(format!("no cell has a value of '{metric}'"))
            .hint("--plot with a metric of these runs"));
    }
    let first = |label: &[String]| label.first().cloned().unwrap_or_default();
    let labels: Vec<_> = grid.points.iter().map(|it| first(&it.labels)).collect();
    let metrics = metrics.iter();
    Ok(match numbers(&labels) {
        Some((unit, at)) => {
            let charts: Vec<_> = metrics.map(|it| curves(grid, rows, it, (unit, &at))).collect();
            plot::file(&charts, 2)
        }
        None => {
            let charts: Vec<_> = metrics.map(|it| bars(grid, rows, it, |_, _| None)).collect();
            plot::file(&charts, 2)
        }
    })
}

/// Minimum number of values for lines.
const MIN_NUMBERS: usize = 3;

/// Ratio of largest to smallest value above which an axis is logarithmic.
const MANY_TIMES: f64 = 30.0;

/// Parses labels that are all quantities of one kind, in the smallest of its units.
fn numbers(labels: &[String]) -> Option<(&'static [Unit], Vec<f64>)> {
    type Read = fn(&str) -> Option<f64>;
    const KINDS: [(&[Unit], Read); 5] = [
        (RATIO, |text| text.parse().ok()),
        (PERCENT, |text| text.strip_suffix('%')?.trim().parse().ok()),
        (TIME, |text| Some(text.parse::<Time>().ok()?.0 as f64 / 1e3)),
        (RATE, |text| Some(text.parse::<Rate>().ok()?.0 as f64)),
        (BYTES, |text| Some(text.parse::<Size>().ok()?.0 as f64)),
    ];
    KINDS.into_iter().find_map(|(unit, read)| {
        let at: Vec<f64> = labels.iter().map(|label| read(label)).collect::<Option<_>>()?;
        let mut distinct = at.clone();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let fit = distinct.iter().all(|value| value.is_finite() && *value >= 0.0);
        (fit && distinct.len() >= MIN_NUMBERS).then_some((unit, at))
    })
}

/// Names of lines and bars in order of appearance; the index selects the color.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    /// Name and color of a congestion control at a point; `others` are its labels after the first.
    fn of(&mut self, cc: &str, others: &[String]) -> (String, usize) {
        let name = [&[cc.to_owned()], others].concat().join(" ");
        let known = self.0.iter().position(|known| *known == name);
        let color = known.unwrap_or_else(|| {
            self.0.push(name.clone());
            self.0.len() - 1
        });
        (name, color)
    }
}

/// A metric over the first axis, whose points are `at` in the smallest of `x_unit`: means over
/// seeds, with 95 % intervals as bands.
fn curves(
    grid: &Expanded,
    rows: &[Row<'_>],
    metric: &Metric,
    (x_unit, at): (&'static [Unit], &[f64]),
) -> Chart {
    let (y_unit, factor) = unit_of(metric.unit());
    let mut order: Vec<usize> = (0..grid.points.len()).collect();
    order.sort_by(|a, b| at[*a].total_cmp(&at[*b]));
    let mut lines: Vec<Line> = Vec::new();
    let mut names = Names::default();
    for cc in ccs(grid) {
        for &index in &order {
            let Some(estimate) = mean(rows, index, cc, metric) else {
                continue;
            };
            let others = grid.points[index].labels.get(1..).unwrap_or_default();
            let (name, color) = names.of(cc, others);
            if color == lines.len() {
                lines.push(Line { detail: name.clone(), name, color, ..Line::default() });
            }
            let value = estimate.mean * factor;
            let half = estimate.ci95.unwrap_or(0.0) * factor;
            lines[color].points.push((at[index], value));
            lines[color].band.push((value - half, value + half));
        }
    }
    let least = at.iter().copied().fold(f64::INFINITY, f64::min);
    let most = at.iter().copied().fold(0.0, f64::max);
    let axis = grid.axes.first().map_or("", String::as_str);
    Chart {
        title: format!("{metric} over {axis}"),
        width: NARROW,
        x_unit,
        x_log: least > 0.0 && most >= MANY_TIMES * least,
        y_unit,
        lines,
        x_end: 0.0,
        y_end: 0.0,
    }
}

/// Means over seeds as bars over the first axis, or over all axes if a group would have more bars
/// than colors. `paper` gives a paper's value at a point for a congestion control.
pub fn bars(
    grid: &Expanded,
    rows: &[Row<'_>],
    metric: &Metric,
    paper: impl Fn(usize, &str) -> Option<f64>,
) -> Bars {
    let (unit, factor) = unit_of(metric.unit());
    let mut groups: Vec<Group> = Vec::new();
    let mut names = Names::default();
    let grouped = axes_of_groups(grid);
    for (index, point) in grid.points.iter().enumerate() {
        let (of_group, others) = point.labels.split_at(grouped);
        let label = of_group.join(", ");
        let bars = ccs(grid).into_iter().map(|cc| {
            let (name, color) = names.of(cc, others);
            let estimate = mean(rows, index, cc, metric);
            Bar {
                name,
                color,
                value: estimate.map(|e| e.mean * factor),
                ci95: estimate.and_then(|e| e.ci95).map(|ci95| ci95 * factor),
                paper: paper(index, cc).map(|value| value * factor),
            }
        });
        let bars: Vec<_> = bars.collect();
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.extend(bars),
            None => groups.push(Group { label, bars }),
        }
    }
    Bars {
        title: metric.to_string(),
        x_title: grid.axes[..grouped].join(", "),
        width: NARROW
            .max(60.0 + 14.0 * groups.iter().map(|g| g.bars.len() + 1).sum::<usize>() as f64),
        unit,
        groups,
    }
}

/// Number of leading axes that form groups; the others are in the names of bars.
fn axes_of_groups(grid: &Expanded) -> usize {
    let others: BTreeSet<_> = grid.points.iter().map(|it| it.labels.get(1..)).collect();
    let ccs = ccs(grid).len();
    match ccs > 1 && ccs * others.len() > plot::COLORS {
        true => grid.axes.len(),
        false => grid.axes.len().min(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::{Axis, Grid};
    use super::*;

    #[test]
    fn bars_of_many_congestion_controls_are_grouped_by_all_axes() {
        let home = xdc_base::testing::home();
        let of = |ccs: &[&str]| {
            let mut grid = Grid::of("two-dc-1g");
            grid.ccs = ccs.iter().map(|&cc| cc.to_owned()).collect();
            let axes = ["duration=1s,2s", "warmup=0s,100ms"];
            grid.axis = axes.map(|axis| Axis::parse(axis).unwrap()).into();
            let metric = "drops".parse().unwrap();
            let bars = bars(&grid.expand(&home).unwrap(), &[], &metric, |_, _| None);
            let sizes: Vec<_> = bars.groups.iter().map(|group| group.bars.len()).collect();
            (bars.x_title, sizes)
        };
        let (few, sizes) = of(&["unocc", "cubic"]);
        assert_eq!((few.as_str(), &sizes[..]), ("duration", &[4, 4][..]));
        let (many, sizes) = of(&["unocc", "gemini", "dctcp", "cubic", "bbr"]);
        let all = ("duration, warmup", &[5, 5, 5, 5][..]);
        assert_eq!((many.as_str(), &sizes[..]), all);
    }

    #[test]
    fn a_name_keeps_its_color() {
        let mut names = Names::default();
        let others = ["8".to_owned()];
        assert_eq!(names.of("unocc", &[]), ("unocc".to_owned(), 0));
        assert_eq!(names.of("unocc", &others), ("unocc 8".to_owned(), 1));
        assert_eq!(names.of("cubic", &[]), ("cubic".to_owned(), 2));
        assert_eq!(names.of("unocc", &others), ("unocc 8".to_owned(), 1));
    }

    #[test]
    fn labels_with_one_kind_of_unit_are_numbers() {
        let of = |labels: &[&str]| {
            let labels: Vec<_> = labels.iter().map(|&label| label.to_owned()).collect();
            numbers(&labels).map(|(unit, at)| (unit[0].name, at))
        };
        assert_eq!(of(&["1", "20", "3.5"]), Some(("", vec![1.0, 20.0, 3.5])));
        assert_eq!(of(&["40%", "60 %", "80%"]), Some(("%", vec![40.0, 60.0, 80.0])));
        assert_eq!(of(&["1ms", "20us", "1s"]), Some(("us", vec![1e3, 20.0, 1e6])));
        assert_eq!(of(&["1gbit", "2mbit", "3"]), None);
        assert_eq!(of(&["1gbit", "20mbit", "3kbit"]), Some(("bit/s", vec![1e9, 2e7, 3e3])));
        assert_eq!(of(&["1kB", "2kB", "3MB"]), Some(("B", vec![1e3, 2e3, 3e6])));
        for none in [
            &["1", "2"][..],
            &["1", "2", "2"],
            &["1ms", "2ms", "none"],
            &["-1", "2", "3"],
            &["nan", "2", "3"],
            &[],
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
