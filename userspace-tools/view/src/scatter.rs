// SPDX-License-Identifier: GPL-2.0
//! Scatter charts, both axes from 0.

use std::fmt::Write as _;

use super::charts::NARROW;
use super::plot::{Axis, Figure, HEIGHT, LEFT, RATIO, RIGHT, class, escape, frame, legend};

/// Space below the data for labels and the x axis's name.
const BOTTOM: f64 = 40.0;

pub struct Scatter {
    pub title: String,
    pub x_name: String,
    pub y_name: String,
    pub dots: Vec<Dot>,
}

pub struct Dot {
    /// Dots with equal names share a color and a legend entry.
    pub name: String,
    /// Text shown on hover.
    pub detail: String,
    pub color: usize,
    pub at: (f64, f64),
}

impl Figure for Scatter {
    fn title(&self) -> &str {
        &self.title
    }

    fn width(&self) -> f64 {
        NARROW
    }

    fn body(&self) -> String {
        let most = |of: fn(&Dot) -> f64| self.dots.iter().map(of).fold(0.0, f64::max);
        let x = Axis::new(most(|dot| dot.at.0), RATIO, false);
        let y = Axis::new(most(|dot| dot.at.1), RATIO, true);
        let width = NARROW - LEFT - RIGHT;
        let mut sorted: Vec<&Dot> = self.dots.iter().collect();
        sorted.sort_by_key(|dot| dot.color);
        let legend = legend(sorted.iter().map(|dot| (dot.name.as_str(), dot.color)), width);
        let height = HEIGHT - legend.top - BOTTOM;
        let title = format!("{}: {}", self.title, self.y_name);
        let mut svg = frame(&title, &y, width, legend.top, BOTTOM);
        svg.push_str(&legend.svg);
        let at_x = |value: f64| LEFT + value / x.end * width;
        for tick in x.ticks() {
            // Writing to a String cannot fail.
            let _ = write!(
                svg,
                "<text class=\"label\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                at_x(tick),
                HEIGHT - 24.0,
                x.label(tick)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT + width,
            HEIGHT - 7.0,
            escape(&self.x_name)
        );
        for dot in sorted.iter().rev() {
            let _ = write!(
                svg,
                "<circle class=\"{}\" fill-opacity=\".6\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
                class('f', dot.color),
                at_x(dot.at.0),
                legend.top + height - dot.at.1 / y.end * height,
                escape(&dot.detail)
            );
        }
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dot_is_drawn_inside() {
        let dot =
            |at| Dot { name: "cubic".to_owned(), detail: "cubic, seed 1".to_owned(), color: 1, at };
        let scatter = Scatter {
            title: "S1".to_owned(),
            x_name: "rtt".to_owned(),
            y_name: "share".to_owned(),
            dots: vec![dot((0.0, 0.0)), dot((1e5, 0.9)), dot((3e5, 1.0))],
        };
        let svg = scatter.body();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
