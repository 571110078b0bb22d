// SPDX-License-Identifier: GPL-2.0
//! Line charts as SVG files, or inline in a page with [`STYLE`].

use std::fmt::Write as _;

use xdc_base::text::printable;
use xdc_measure::throughput::Line;

/// Chart height in CSS pixels, before the page scales it; fonts fit this size.
pub const HEIGHT: f64 = 230.0;
/// Margins around the data: title and legend above, labels on the left and below.
pub const LEFT: f64 = 46.0;
pub const RIGHT: f64 = 22.0;
pub const TOP: f64 = 46.0;
pub const BOTTOM: f64 = 24.0;
const GAP: f64 = 12.0;
/// Height of an axis title below its labels.
pub const AXIS_TITLE: f64 = 16.0;
/// Approximate character width of the legend's font.
pub const CHARACTER: f64 = 6.4;
const MAX_TICKS: f64 = 5.0;

/// Unit of axis labels; `size` in units of the points.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    pub name: &'static str,
    size: f64,
}

impl Unit {
    pub fn size(self) -> f64 {
        self.size
    }
}

const fn unit(name: &'static str, size: f64) -> Unit {
    Unit { name, size }
}

/// Units for microseconds.
pub const TIME: &[Unit] = &[unit("us", 1.0), unit("ms", 1e3), unit("s", 1e6)];
/// Units for bits per second.
pub const RATE: &[Unit] =
    &[unit("bit/s", 1.0), unit("kbit/s", 1e3), unit("Mbit/s", 1e6), unit("Gbit/s", 1e9)];
/// Units for bytes.
pub const BYTES: &[Unit] = &[unit("B", 1.0), unit("kB", 1e3), unit("MB", 1e6)];
pub const RATIO: &[Unit] = &[unit("", 1.0)];
pub const PERCENT: &[Unit] = &[unit("%", 1.0)];

/// Maximum value on an axis.
const MOST: f64 = 1e30;

/// Number of colors. The first ones are distinct in both themes and with red-green color blindness.
pub const COLORS: usize = 8;

/// CSS class of a color in [`STYLE`]: `kind` is `c` for strokes and `f` for areas. Every second
/// round of colors is dashed and paler.
pub fn class(kind: char, color: usize) -> String {
    let again = match (color / COLORS).is_multiple_of(2) {
        true => "",
        false => " again",
    };
    format!("{kind}{}{again}", color % COLORS)
}

/// Colors and fonts of all charts, by the reader's theme.
pub const STYLE: &str = "
:root{--bg:#fff;--fg:#1b1f24;--dim:#5b6470;--line:#d9dde2;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#aa3377;--c4:#997700;--c5:#2f9fd8;--c6:#666;--c7:#b2567a}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e3e6ea;--dim:#9aa3ad;--line:#343a42;--c0:#5aa9e6;--c1:#ff8f4a;--c2:#3ccf9b;--c3:#e07ab5;--c4:#d9b310;--c5:#8fd3ff;--c6:#aaa;--c7:#ff9dbb}}
.chart{font:12px system-ui,sans-serif}.chart text{fill:var(--fg)}.chart .title{font-weight:600;font-size:13px}.chart .label{fill:var(--dim);font-size:11px}
.chart path{fill:none;stroke-width:1.4;stroke-linejoin:round}.chart .grid{stroke:var(--line);stroke-width:1}
.chart .ci{stroke:var(--fg);stroke-width:1.2}.chart .paper{stroke:var(--fg);stroke-width:2;stroke-dasharray:3 2}
.chart .again{stroke-dasharray:4 2;fill-opacity:.2}.chart .bar{fill-opacity:.55}.chart .bar.again{fill-opacity:.1}.chart .band{fill-opacity:.18}.f0{fill:var(--c0)!important}.f1{fill:var(--c1)!important}.f2{fill:var(--c2)!important}.f3{fill:var(--c3)!important}.f4{fill:var(--c4)!important}.f5{fill:var(--c5)!important}.f6{fill:var(--c6)!important}.f7{fill:var(--c7)!important}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}
";

/// Lines on a pair of axes, both from 0.
pub struct Chart {
    pub title: String,
    pub width: f64,
    pub x_unit: &'static [Unit],
    /// Use a logarithmic x axis if the values span a decade or more.
    pub x_log: bool,
    pub y_unit: &'static [Unit],
    pub lines: Vec<Line>,
    /// Minimum ends of the axes, for comparable charts.
    pub x_end: f64,
    pub y_end: f64,
}

impl Chart {
    pub fn max_y(&self) -> f64 {
        let upper = self.lines.iter().flat_map(|line| &line.band);
        let all = self.points().chain(upper).map(|pair| pair.1);
        all.fold(0.0, f64::max)
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.lines.iter().flat_map(|line| &line.points)
    }

    fn x_axis(&self) -> XAxis {
        let end = self.points().map(|point| point.0).fold(self.x_end, f64::max);
        let positive = self.points().map(|point| point.0).filter(|x| *x > 0.0);
        let first = positive.fold(f64::INFINITY, f64::min);
        match self.x_log && 10.0 * first <= end && end < MOST {
            true => XAxis::Log {
                from: first.log10().floor() as i32,
                to: end.log10().ceil() as i32,
                units: self.x_unit,
            },
            false => XAxis::Linear(Axis::new(end, self.x_unit, false)),
        }
    }
}

enum XAxis {
    Linear(Axis),
    /// Logarithmic between two powers of ten.
    Log {
        from: i32,
        to: i32,
        units: &'static [Unit],
    },
}

impl XAxis {
    /// Position of a value on the axis, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match *self {
            Self::Linear(ref axis) => value / axis.end,
            Self::Log { from, to, .. } => {
                let power = value.max(f64::MIN_POSITIVE).log10();
                let share = (power - f64::from(from)) / f64::from(to - from);
                share.clamp(0.0, 1.0)
            }
        }
    }

    /// Labels; on a linear axis only the last has the unit, on a logarithmic one each.
    fn labels(&self) -> Vec<(f64, String)> {
        match *self {
            Self::Linear(ref axis) => {
                let last = axis.ticks().last().unwrap_or(0.0);
                let label = |tick| {
                    let unit = if tick == last { axis.unit.name } else { "" };
                    (tick, format!("{} {unit}", axis.label(tick)))
                };
                axis.ticks().map(label).collect()
            }
            Self::Log { from, to, units } => {
                let step = (to - from) / (MAX_TICKS as i32 + 2) + 1;
                let label = |power: i32| {
                    let tick = 10f64.powi(power);
                    let fitting = units.iter().rev().find(|unit| unit.size <= tick);
                    let unit = fitting.unwrap_or(&units[0]);
                    (tick, format!("{} {}", tick / unit.size, unit.name))
                };
                (from..=to).step_by(step as usize).map(label).collect()
            }
        }
    }
}

/// A drawable of height [`HEIGHT`].
pub trait Figure {
    fn title(&self) -> &str;
    fn width(&self) -> f64;
    /// Content of the svg element.
    fn body(&self) -> String;

    /// SVG for a page with [`STYLE`].
    fn inline(&self) -> String {
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            self.width(),
            escape(self.title()),
            self.body()
        )
    }
}

impl Figure for Chart {
    fn title(&self) -> &str {
        &self.title
    }

    fn width(&self) -> f64 {
        self.width
    }

    fn body(&self) -> String {
        let y = Axis::new(self.max_y().max(self.y_end), self.y_unit, true);
        let width = self.width - LEFT - RIGHT;
        let drawn = self.lines.iter().filter(|line| !line.points.is_empty());
        let legend = legend(drawn.map(|line| (line.name.as_str(), line.color)), width);
        let height = HEIGHT - legend.top - BOTTOM;
        let x = self.x_axis();
        let at_x = |value: f64| LEFT + x.place(value) * width;
        let at_y = |value: f64| legend.top + height - value / y.end * height;

        let mut svg = frame(&self.title, &y, width, legend.top, BOTTOM);
        svg.push_str(&legend.svg);
        // Writing to a String cannot fail.
        for (tick, label) in x.labels() {
            let _ = write!(
                svg,
                "<text class=\"label\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                at_x(tick),
                HEIGHT - 8.0,
            );
        }
        let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            let mut path = String::new();
            for (px, py) in points {
                let command = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{command}{:.1} {:.1}", at_x(px), at_y(py));
            }
            path
        };
        for line in self.lines.iter().filter(|line| !line.points.is_empty()) {
            if !line.band.is_empty() {
                // Along the upper edge and back along the lower one, clipped at the axis.
                let edges = || line.points.iter().zip(&line.band);
                let upper = edges().map(|(point, band)| (point.0, band.1));
                let lower = edges().map(|(point, band)| (point.0, band.0.max(0.0)));
                let around = path(&mut upper.chain(lower.rev()));
                let class = class('f', line.color);
                let _ = write!(svg, "<path class=\"band {class}\" d=\"{around}Z\"/>");
            }
            let _ = write!(
                svg,
                "<path class=\"{}\" d=\"{}\"><title>{}</title></path>",
                class('c', line.color),
                path(&mut line.points.iter().copied()),
                escape(&line.detail)
            );
        }
        svg
    }
}

/// Title, and lines and labels of the y axis; `width` is of the data, `top` and `bottom` the space
/// above and below it.
pub fn frame(title: &str, y: &Axis, width: f64, top: f64, bottom: f64) -> String {
    let unit = if y.unit.name.is_empty() { String::new() } else { format!(", {}", y.unit.name) };
    let mut svg =
        format!("<text class=\"title\" x=\"{LEFT}\" y=\"17\">{}{unit}</text>", escape(title));
    let height = HEIGHT - top - bottom;
    for tick in y.ticks() {
        let at = top + height - tick / y.end * height;
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}h{width}\"/>\
             <text class=\"label\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            y.label(tick)
        );
    }
    svg
}

/// Legend of a chart, and the top of the data below it.
pub struct Legend {
    pub svg: String,
    pub top: f64,
}

/// One entry per name, under the title; counts those that do not fit into four rows of `width`.
pub fn legend<'a>(entries: impl Iterator<Item = (&'a str, usize)>, width: f64) -> Legend {
    const ROWS: usize = 4;
    const ROW: f64 = 15.0;
    const MARK: f64 = 19.0;
    const GAP: f64 = 16.0;
    let mut names: Vec<(&str, usize)> = Vec::new();
    for (name, color) in entries {
        if !names.iter().any(|(known, _)| *known == name) {
            names.push((name, color));
        }
    }
    let mut svg = String::new();
    let (mut x, mut row) = (LEFT, 0);
    for (index, &(name, color)) in names.iter().enumerate() {
        let text = CHARACTER * name.chars().count() as f64;
        let (rest, is_last_row) = (names.len() - index, row + 1 == ROWS);
        // Reserve room for "+10" unless this is the last entry.
        let more = if is_last_row && rest > 1 { GAP + 3.0 * CHARACTER } else { 0.0 };
        // Writing to a String cannot fail.
        if x > LEFT && x + MARK + text + more > LEFT + width {
            if is_last_row {
                let y = 35.0 + ROW * row as f64;
                let _ = write!(svg, "<text class=\"label\" x=\"{x:.1}\" y=\"{y}\">+{rest}</text>");
                break;
            }
            (x, row) = (LEFT, row + 1);
        }
        let y = 31.0 + ROW * row as f64;
        let _ = write!(
            svg,
            "<path class=\"{}\" style=\"stroke-width:3\" d=\"M{x:.1} {y}h14\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{}\">{}</text>",
            class('c', color),
            x + MARK,
            y + 4.0,
            escape(name)
        );
        x += MARK + text + GAP;
    }
    let top = TOP + ROW * row as f64;
    Legend { svg, top }
}

/// SVG file: charts of equal width in rows of `columns`.
pub fn file<'a, F: Figure + 'a>(charts: impl IntoIterator<Item = &'a F>, columns: usize) -> String {
    let charts: Vec<_> = charts.into_iter().collect();
    let columns = columns.min(charts.len()).max(1);
    let rows = charts.len().div_ceil(columns);
    let chart_width = charts.first().map_or(0.0, |chart| chart.width());
    let (step_x, step_y) = (chart_width + GAP, HEIGHT + GAP);
    let (width, height) = (step_x * columns as f64, step_y * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" style=\"fill:var(--bg)\"/>\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<g transform=\"translate({} {})\">{}</g>",
            step_x * (index % columns) as f64,
            step_y * (index / columns) as f64,
            chart.body()
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Axis from 0 to `end` with labels at multiples of `step`.
pub struct Axis {
    pub end: f64,
    step: f64,
    pub unit: Unit,
}

impl Axis {
    /// Axis up to `max`. `whole`: end at a label, so that the highest point stays below it.
    pub fn new(max: f64, units: &[Unit], whole: bool) -> Self {
        // The largest unit in which `max` is at least 1.
        let fitting = units.iter().rev().find(|unit| unit.size <= max);
        let unit = *fitting.unwrap_or(&units[0]);
        // A damaged file may hold any value.
        let max = if max > 0.0 && max < MOST { max } else { unit.size };
        let step = nice_step(max / unit.size) * unit.size;
        let end = if whole { (max / step).ceil() * step } else { max };
        Self { end, step, unit }
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> {
        // The tolerance covers rounding errors at the end.
        let count = (self.end / self.step + 1e-6) as usize;
        (0..=count).map(|n| n as f64 * self.step)
    }

    pub fn label(&self, tick: f64) -> String {
        let step = self.step / self.unit.size;
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        // Steps such as 2.5 need one more decimal.
        let fits = (step * 10f64.powi(decimals as i32)).fract().abs() < 1e-6;
        let decimals = if fits { decimals } else { decimals + 1 };
        format!("{:.decimals$}", tick / self.unit.size)
    }
}

/// Step of 1, 2, 2.5 or 5 times a power of ten, for at most [`MAX_TICKS`] up to `max`.
fn nice_step(max: f64) -> f64 {
    let power = 10f64.powf((max / MAX_TICKS).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| max / step <= MAX_TICKS + 1e-9)
        .unwrap_or(10.0 * power)
}

/// Escapes text for XML, which allows no control characters.
pub fn escape(text: &str) -> String {
    printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(max: f64, units: &[Unit]) -> (Vec<String>, &'static str) {
        let axis = Axis::new(max, units, true);
        (axis.ticks().map(|t| axis.label(t)).collect(), axis.unit.name)
    }

    #[test]
    fn labels_are_round_and_few() {
        let of = |max, units| {
            let (labels, unit) = labels(max, units);
            (labels.join(" "), unit)
        };
        assert_eq!(of(681_300.0, BYTES), ("0 200 400 600 800".into(), "kB"));
        assert_eq!(of(1.25e6, BYTES), ("0.00 0.25 0.50 0.75 1.00 1.25".into(), "MB"));
        assert_eq!(of(3e8, RATE), ("0 100 200 300".into(), "Mbit/s"));
        assert_eq!(of(5e6, TIME), ("0 1 2 3 4 5".into(), "s"));
        // An empty range still gives an axis.
        assert_eq!(of(0.0, BYTES).1, "B");
    }

    #[test]
    fn a_logarithmic_axis_has_decades() {
        let chart = |points: &[(f64, f64)]| Chart {
            title: "t".to_owned(),
            width: 400.0,
            x_unit: TIME,
            x_log: true,
            y_unit: RATIO,
            lines: vec![Line {
                name: "a".to_owned(),
                detail: "a".to_owned(),
                color: 0,
                points: points.to_vec(),
                ..Line::default()
            }],
            x_end: 0.0,
            y_end: 1.0,
        };
        let wide = chart(&[(20.0, 0.0), (200.0, 0.5), (50_000.0, 1.0)]);
        let labels: Vec<_> = wide.x_axis().labels().into_iter().map(|l| l.1).collect();
        assert_eq!(labels, ["10 us", "100 us", "1 ms", "10 ms", "100 ms"]);
        assert_eq!(wide.x_axis().place(1e3), 0.5);
        // Less than a decade is linear.
        let narrow = chart(&[(20.0, 0.0), (90.0, 1.0)]);
        assert!(matches!(narrow.x_axis(), XAxis::Linear(_)));
        for odd in [f64::NAN, f64::INFINITY, 0.0, 1e300] {
            let _ = chart(&[(odd, 0.0), (1.0, 1.0)]).inline();
        }
    }

    #[test]
    fn an_axis_of_an_extreme_value_has_few_ticks() {
        for max in [1e308, f64::INFINITY, f64::NAN, -1.0] {
            assert!(Axis::new(max, TIME, true).ticks().count() < 20, "{max}");
        }
        assert_eq!(escape("a\u{1b}[31m<"), "a\\u{1b}[31m&lt;");
    }

    #[test]
    fn a_legend_has_at_most_four_rows() {
        let of = |names: &[&str]| legend(names.iter().map(|name| (*name, 0)), 200.0);
        let long = "a-name-of-some-length";
        assert_eq!(of(&["a", "b"]).top, TOP);
        let names: Vec<_> = (0..5).map(|n| format!("{long}{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let four = of(&names[..4]);
        assert!(four.top > of(&["a", long, "b"]).top && !four.svg.contains("+"));
        let many = of(&names);
        assert_eq!(many.top, four.top);
        assert!(many.svg.contains("+1<"), "{}", many.svg);
    }

    #[test]
    fn a_chart_has_a_legend_entry_per_name() {
        let line = |name: &str| Line {
            name: name.to_owned(),
            detail: "<a>".to_owned(),
            color: 9,
            points: vec![(0.0, 0.0), (10.0, 5.0)],
            ..Line::default()
        };
        let chart = Chart {
            title: "t".to_owned(),
            width: 560.0,
            x_unit: TIME,
            x_log: false,
            y_unit: BYTES,
            lines: vec![line("intra"), line("intra"), line("inter")],
            x_end: 0.0,
            y_end: 10.0,
        };
        let svg = chart.inline();
        assert_eq!(svg.matches(">intra<").count(), 1);
        assert_eq!(svg.matches("<title>&lt;a&gt;</title>").count(), 3);
        assert_eq!(svg.matches("class=\"c1 again\"").count(), 3 + 2);
        // Half of y's range, all of x's.
        assert!(svg.contains("L538.0 126.0"), "{svg}");
        assert_eq!(file([&chart, &chart], 2).matches("<g ").count(), 2);
    }

    #[test]
    fn a_band_surrounds_its_line() {
        let chart = Chart {
            title: "t".to_owned(),
            width: 560.0,
            x_unit: RATIO,
            x_log: false,
            y_unit: BYTES,
            lines: vec![Line {
                points: vec![(0.0, 4.0), (10.0, 5.0)],
                band: vec![(-2.0, 8.0), (5.0, 10.0)],
                ..Line::default()
            }],
            x_end: 0.0,
            y_end: 0.0,
        };
        assert_eq!(chart.max_y(), 10.0);
        // From 8 to 10 of 10, and back to 5 and to 0, the axis's start.
        let svg = chart.inline();
        assert!(
            svg.contains("class=\"band f0\" d=\"M46.0 78.0L538.0 46.0L538.0 126.0L46.0 206.0Z\""),
            "{svg}"
        );
    }
}
