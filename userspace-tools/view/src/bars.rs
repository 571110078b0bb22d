// SPDX-License-Identifier: GPL-2.0
//! Grouped bar charts with confidence intervals and, if available, a paper's values.

use std::fmt::Write as _;

use xdc_metric::metric;

use crate::plot::{
    AXIS_TITLE, Axis, BOTTOM, BYTES, CHARACTER, Figure, HEIGHT, LEFT, RATE, RATIO, RIGHT, TIME,
    Unit, class, escape, frame, legend,
};

/// Groups of bars on an axis from 0.
pub struct Bars {
    pub title: String,
    /// Title of the groups' axis.
    pub x_title: String,
    pub width: f64,
    pub unit: &'static [Unit],
    pub groups: Vec<Group>,
}

pub struct Group {
    pub label: String,
    pub bars: Vec<Bar>,
}

/// A bar in the unit's smallest scale.
pub struct Bar {
    pub name: String,
    pub color: usize,
    pub value: Option<f64>,
    /// Half width of the confidence interval.
    pub ci95: Option<f64>,
    /// Value reported by a paper.
    pub paper: Option<f64>,
}

/// Axis units of a metric, and the factor to the smallest of them.
pub fn unit_of(unit: metric::Unit) -> (&'static [Unit], f64) {
    match unit {
        metric::Unit::Us => (TIME, 1.0),
        metric::Unit::Ms => (TIME, 1e3),
        metric::Unit::S | metric::Unit::WallS => (TIME, 1e6),
        metric::Unit::Mbps => (RATE, 1e6),
        metric::Unit::Bytes => (BYTES, 1.0),
        metric::Unit::KiB => (BYTES, 1024.0),
        metric::Unit::MiB => (BYTES, 1_048_576.0),
        metric::Unit::Ratio
        | metric::Unit::Flows
        | metric::Unit::Packets
        | metric::Unit::Events
        | metric::Unit::Items => (RATIO, 1.0),
    }
}

/// Share of a group's space used by bars, and of a bar's space by its rectangle.
const GROUP_SHARE: f64 = 0.8;
const BAR_SHARE: f64 = 0.86;

impl Figure for Bars {
    fn title(&self) -> &str {
        &self.title
    }

    fn width(&self) -> f64 {
        self.width
    }

    fn body(&self) -> String {
        let all = || self.groups.iter().flat_map(|group| &group.bars);
        let top = all()
            .flat_map(|bar| {
                let reach = bar.value.map(|value| value + bar.ci95.unwrap_or(0.0));
                reach.into_iter().chain(bar.paper)
            })
            .fold(0.0, f64::max);
        let y = Axis::new(top, self.unit, true);
        let width = self.width - LEFT - RIGHT;
        let legend = legend(all().map(|bar| (bar.name.as_str(), bar.color)), width);
        let bottom = if self.x_title.is_empty() { BOTTOM } else { BOTTOM + AXIS_TITLE };
        let height = HEIGHT - legend.top - bottom;
        let at_y = |value: f64| legend.top + height - value.max(0.0).min(y.end) / y.end * height;
        let mut svg = frame(&self.title, &y, width, legend.top, bottom);
        svg.push_str(&legend.svg);
        let step = width / self.groups.len().max(1) as f64;
        let is_numbered = overlap(&self.groups, step);
        for (index, group) in self.groups.iter().enumerate() {
            let left = LEFT + step * (index as f64 + (1.0 - GROUP_SHARE) / 2.0);
            let each = step * GROUP_SHARE / group.bars.len().max(1) as f64;
            for (place, bar) in group.bars.iter().enumerate() {
                let (x, wide) = (left + each * place as f64, each * BAR_SHARE);
                let name = match is_numbered {
                    true => format!("{}, {}", group.label, bar.name),
                    false => bar.name.clone(),
                };
                svg.push_str(&column(bar, &name, x, wide, &y, &at_y));
            }
            let label = match is_numbered {
                true => (index + 1).to_string(),
                false => group.label.clone(),
            };
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<text class=\"label\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                LEFT + step * (index as f64 + 0.5),
                HEIGHT - bottom + BOTTOM - 8.0,
                escape(&label)
            );
        }
        let x_title = match is_numbered {
            true => format!("{}, numbered in their order", self.x_title),
            false => self.x_title.clone(),
        };
        let _ = write!(
            svg,
            "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            LEFT + width / 2.0,
            HEIGHT - 6.0,
            escape(&x_title)
        );
        svg
    }
}

/// Whether labels `step` apart overlap.
fn overlap(groups: &[Group], step: f64) -> bool {
    let wide = |group: &Group| CHARACTER * group.label.chars().count() as f64;
    groups.windows(2).any(|two| two.iter().map(wide).sum::<f64>() / 2.0 > step)
}

/// A bar, its interval, and a line at the paper's value.
fn column(
    bar: &Bar,
    name: &str,
    x: f64,
    wide: f64,
    y: &Axis,
    at_y: &impl Fn(f64) -> f64,
) -> String {
    let mut svg = String::new();
    let text = |value: f64| format!("{:.4} {}", value / y.unit.size(), y.unit.name);
    let middle = x + wide / 2.0;
    // Writing to a String cannot fail.
    if let Some(value) = bar.value {
        let ci95 = bar.ci95.map(|ci95| format!(" +- {}", text(ci95)));
        let paper = bar.paper.map(|paper| format!(", paper: {}", text(paper)));
        let (foot, top) = (at_y(0.0), at_y(value));
        let _ = write!(
            svg,
            "<path class=\"{} bar {}\" d=\"M{x:.1} {foot:.1}V{top:.1}h{wide:.1}V{foot:.1}\">\
             <title>{}: {}{}{}</title></path>",
            class('c', bar.color),
            class('f', bar.color),
            escape(name),
            text(value),
            ci95.unwrap_or_default(),
            paper.unwrap_or_default()
        );
        if let Some(ci95) = bar.ci95 {
            let _ = write!(
                svg,
                "<path class=\"ci\" d=\"M{middle:.1} {:.1}V{:.1}\"/>",
                at_y(value - ci95),
                at_y(value + ci95)
            );
        }
    }
    if let Some(paper) = bar.paper {
        let _ = write!(
            svg,
            "<path class=\"paper\" d=\"M{:.1} {:.1}h{:.1}\"><title>{}: {} in the paper</title></path>",
            x - 1.5,
            at_y(paper),
            wide + 3.0,
            escape(name),
            text(paper)
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_interval_and_the_papers_number() {
        let bar =
            |value, ci95, paper| Bar { name: "unocc".to_owned(), color: 0, value, ci95, paper };
        let bars = Bars {
            title: "t".to_owned(),
            x_title: "K".to_owned(),
            width: 400.0,
            unit: TIME,
            groups: vec![Group {
                label: "40".to_owned(),
                bars: vec![bar(Some(1e3), Some(100.0), Some(1.9e3)), bar(None, None, None)],
            }],
        };
        let svg = bars.inline();
        assert_eq!(svg.matches("class=\"ci\"").count(), 1);
        assert_eq!(svg.matches("class=\"paper\"").count(), 1);
        assert_eq!(svg.matches(" bar f0").count(), 1);
        assert!(svg.contains("1.0000 ms +- 0.1000 ms, paper: 1.9000 ms"), "{svg}");
    }

    #[test]
    fn labels_that_do_not_fit_are_numbered() {
        let bars = |labels: &[&str]| Bars {
            title: "t".to_owned(),
            x_title: "hosts".to_owned(),
            width: 400.0,
            unit: TIME,
            groups: labels
                .iter()
                .map(|&label| Group {
                    label: label.to_owned(),
                    bars: vec![Bar {
                        name: "unocc".to_owned(),
                        color: 0,
                        value: Some(1e3),
                        ci95: None,
                        paper: None,
                    }],
                })
                .collect(),
        };
        let short = bars(&["ideal", "late"]).inline();
        assert!(short.contains(">ideal</text>") && short.contains(">hosts</text>"));
        let long =
            bars(&["ideal", "offloads and delayed ACKs of all hosts, some slow", "late"]).inline();
        assert!(long.contains(">2</text>") && !long.contains(">ideal</text>"));
        assert!(long.contains("hosts, numbered in their order"), "{long}");
        assert!(long.contains("<title>ideal, unocc: 1.0000 ms"), "{long}");
    }
}
