// SPDX-License-Identifier: GPL-2.0
//! Drawings of a scenario's network, and of a packet's path through it.

use std::fmt::Write as _;

use xdc_netlink::phantom;
use xdc_proto::{Direction, Link, Queue};

use crate::plot::{STYLE, escape};
use crate::shape::{Cable, Shape};

const BOX: (f64, f64) = (86.0, 34.0);
const STEP: (f64, f64) = (196.0, 76.0);
/// Distance from a box to a cable's turn towards its row.
const TURN: f64 = 16.0;
const MARGIN: f64 = 24.0;
const TITLE: f64 = 40.0;
/// Height of the legend.
const FOOT: f64 = 34.0;
/// Size of a queue symbol.
const SIGN: (f64, f64) = (26.0, 11.0);

/// Formats a rate: `1 Gbit/s`.
pub fn rate(bits_per_s: u64) -> String {
    const UNITS: [(&str, f64); 4] =
        [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];
    match bits_per_s {
        0 => "no limit".to_owned(),
        bits => in_units(bits as f64, &UNITS),
    }
}

/// Formats a time in three digits: `4.99 ms`.
pub fn time(ns: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
    in_units(ns as f64, &UNITS)
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)];
    in_units(bytes as f64, &UNITS)
}

fn in_units(value: f64, units: &[(&str, f64)]) -> String {
    let unit = units.iter().find(|unit| value >= unit.1).or(units.last());
    let (name, one) = unit.copied().unwrap_or(("", 1.0));
    let value = value / one;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} {name}")
}

/// The delays of a link as text; empty without any.
fn delays(ab: &Direction, ba: &Direction) -> String {
    match (ab.delay_ns, ba.delay_ns) {
        (0, 0) => String::new(),
        (there, back) if there == back => time(there),
        (there, 0) => format!("{} \u{2192}", time(there)),
        (0, back) => format!("\u{2190} {}", time(back)),
        (there, back) => format!("{} \u{2192} \u{2190} {}", time(there), time(back)),
    }
}

fn file(title: &str, size: (f64, f64), body: &str) -> String {
    let (width, height) = size;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" style=\"fill:var(--bg)\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"22\">{title}</text>\n{body}</svg>\n",
        title = escape(title)
    )
}

fn text(svg: &mut String, class: &str, anchor: &str, (x, y): (f64, f64), words: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

fn rect(svg: &mut String, (x, y): (f64, f64), (w, h): (f64, f64), style: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"5\" style=\"{style}\"/>"
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let _ = writeln!(
        svg,
        "<path class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// Draws a port's queue around a point, and its phantom queue below.
fn sign(svg: &mut String, (x, y): (f64, f64), queue: &Queue, watched: bool) {
    let color = if watched { "var(--c1)" } else { "var(--c0)" };
    let (left, top) = (x - SIGN.0 / 2.0, y - SIGN.1 / 2.0);
    let cell = SIGN.0 / 4.0;
    let style = format!("fill:var(--bg);stroke:{color};stroke-width:1.4");
    rect(svg, (left, top), SIGN, &style);
    for number in 1..4 {
        let at = left + cell * f64::from(number);
        let _ =
            writeln!(svg, "<path d=\"M{at:.1} {top:.1}v{}\" style=\"stroke:{color}\"/>", SIGN.1);
    }
    if queue.is_phantom() {
        let style = format!("fill:none;stroke:{color};stroke-width:1.2;stroke-dasharray:3 2");
        rect(svg, (left, top + SIGN.1 + 3.0), SIGN, &style);
    }
}

fn foot(svg: &mut String, y: f64) {
    let port = Queue::default();
    let phantom = Queue { kind: phantom::KIND.to_owned(), ..Queue::default() };
    let entries = [
        (&port, false, "port with a queue"),
        (&phantom, false, "with a phantom queue beside it"),
        (&phantom, true, "watched: its queue is recorded"),
    ];
    let mut x = MARGIN + SIGN.0 / 2.0;
    for (queue, watched, words) in entries {
        sign(svg, (x, y), queue, watched);
        text(svg, "label", "start", (x + SIGN.0 / 2.0 + 8.0, y + 4.0), words);
        x += 250.0;
    }
}

/// Draws the network; `watched` tells whether a port, by group, is recorded.
pub fn network(title: &str, shape: &Shape, watched: impl Fn(usize, usize) -> bool) -> String {
    let columns = shape.groups.iter().map(|group| group.column + 1).max();
    let columns = columns.unwrap_or(1);
    let rows_of = |column: usize| {
        let members = shape.groups.iter().enumerate();
        let members = members.filter(move |(_, group)| group.column == column);
        members.map(|(number, _)| number).collect::<Vec<_>>()
    };
    let rows = (0..columns).map(|column| rows_of(column).len()).max().unwrap_or(1);
    let (inner_w, inner_h) = (STEP.0 * (columns as f64 - 1.0) + BOX.0, STEP.1 * rows as f64);
    let pad = if shape.sites().is_some() { 18.0 } else { 0.0 };
    let origin = (MARGIN + pad, TITLE + pad);
    let size = ((inner_w + 2.0 * (MARGIN + pad)).max(760.0), inner_h + TITLE + 2.0 * pad + FOOT);
    let mut center = vec![(0.0, 0.0); shape.groups.len()];
    for column in 0..columns {
        let members = rows_of(column);
        for (row, &group) in members.iter().enumerate() {
            let offset = row as f64 - (members.len() as f64 - 1.0) / 2.0;
            center[group] = (
                origin.0 + BOX.0 / 2.0 + STEP.0 * column as f64,
                origin.1 + inner_h / 2.0 + offset * STEP.1,
            );
        }
    }
    let mut svg = String::new();
    if let Some((_, near)) = shape.sites() {
        for (side, name) in [(true, "a datacenter"), (false, "another datacenter")] {
            let members = center.iter().zip(&near).filter(|(_, is)| **is == side);
            let left = members.clone().map(|(at, _)| at.0).fold(f64::MAX, f64::min);
            let right = members.map(|(at, _)| at.0).fold(0.0, f64::max);
            let from = (left - BOX.0 / 2.0 - 12.0, origin.1 - 8.0);
            let extent = (right - left + BOX.0 + 24.0, inner_h + 14.0);
            rect(
                &mut svg,
                from,
                extent,
                "fill:none;stroke:var(--line);stroke-width:1.4;stroke-dasharray:5 4",
            );
            text(&mut svg, "label", "start", (from.0 + 8.0, from.1 + 15.0), name);
        }
    }
    let cables = |group: usize| {
        let ends = shape.cables.iter().map(|cable| cable.ends);
        ends.filter(|(a, b)| *a == group || *b == group).count()
    };
    for cable in &shape.cables {
        let (a, b) = cable.ends;
        let hub = if cables(a) > cables(b) { a } else { b };
        draw_cable(&mut svg, cable, hub, &center, &watched);
    }
    for (group, &(x, y)) in shape.groups.iter().zip(&center) {
        let color = if group.router { "var(--dim)" } else { "var(--c2)" };
        let style = format!("fill:var(--bg);stroke:{color};stroke-width:1.6");
        let corner = (x - BOX.0 / 2.0, y - BOX.1 / 2.0);
        if group.names.len() > 1 {
            rect(&mut svg, (corner.0 + 5.0, corner.1 + 5.0), BOX, &style);
        }
        rect(&mut svg, corner, BOX, &style);
        text(&mut svg, "", "middle", (x, y + 4.0), &group.label());
    }
    foot(&mut svg, size.1 - FOOT / 2.0 - 4.0);
    file(title, size, &svg)
}

fn draw_cable(
    svg: &mut String,
    cable: &Cable,
    hub: usize,
    center: &[(f64, f64)],
    watched: &impl Fn(usize, usize) -> bool,
) {
    let (a, b) = cable.ends;
    // Left to right, regardless of the order in the scenario.
    let ((left, right), (there, back)) = match center[a].0 <= center[b].0 {
        true => ((a, b), (cable.ab, cable.ba)),
        false => ((b, a), (cable.ba, cable.ab)),
    };
    let from = (center[left].0 + BOX.0 / 2.0, center[left].1);
    let to = (center[right].0 - BOX.0 / 2.0, center[right].1);
    // A cable to another row turns near the box with more cables, so that its text has a line.
    let straight = (from.1 - to.1).abs() < 0.5;
    let (start, end) = match (straight, hub == left) {
        (true, _) => (from, to),
        (false, true) => ((from.0 + TURN, to.1), to),
        (false, false) => (from, (to.0 - TURN, from.1)),
    };
    let _ = writeln!(
        svg,
        "<path class=\"c6\" d=\"M{:.1} {:.1}H{:.1}V{:.1}H{:.1}\"/>",
        from.0,
        from.1,
        if hub == left { start.0 } else { end.0 },
        to.1,
        to.0
    );
    let (x, y) = ((start.0 + end.0) / 2.0, start.1);
    let mut words = rate(there.rate_bps);
    if cable.count > 1 {
        words = format!("{} \u{d7} {words}", cable.count);
    }
    text(svg, "label", "middle", (x, y - 11.0), &words);
    text(svg, "label", "middle", (x, y + 20.0), &delays(there, back));
    let beside = SIGN.0 / 2.0 + 4.0;
    for (direction, x, way) in
        [(there, start.0 + beside, (left, right)), (back, end.0 - beside, (right, left))]
    {
        if let Some(queue) = &direction.queue {
            sign(svg, (x, y), queue, watched(way.0, way.1));
        }
    }
}

/// Draws a packet's path from host to host: each node is a network namespace, each port a qdisc.
pub fn path(title: &str, start: &str, hops: &[(&Link, &Direction)]) -> String {
    const WIDTH: f64 = 186.0;
    const TOP: f64 = 62.0;
    let size = (2.0 * MARGIN + BOX.0 + WIDTH * hops.len() as f64, TOP + 156.0);
    let mut svg = String::new();
    let mut node = start.to_owned();
    for (number, (link, direction)) in hops.iter().enumerate() {
        let x = MARGIN + WIDTH * number as f64;
        namespace(&mut svg, (x, TOP), &node);
        let wire = TOP + BOX.1 / 2.0;
        line(&mut svg, (x + BOX.0, wire), (x + WIDTH, wire), "c6");
        let middle = x + BOX.0 + (WIDTH - BOX.0) / 2.0;
        text(&mut svg, "label", "middle", (middle, wire - 8.0), &rate(direction.rate_bps));
        let delay = match direction.delay_ns {
            0 => String::new(),
            ns => time(ns),
        };
        text(&mut svg, "label", "middle", (middle, wire + 16.0), &delay);
        port(&mut svg, (x, TOP + BOX.1 + 14.0), direction.queue.as_ref());
        node = match *node == link.a {
            true => link.b.clone(),
            false => link.a.clone(),
        };
    }
    let last = MARGIN + WIDTH * hops.len() as f64;
    namespace(&mut svg, (last, TOP), &node);
    text(
        &mut svg,
        "label",
        "start",
        (MARGIN, 42.0),
        "each box is a network namespace, each line a veth pair; below a box, the queue discipline of its port",
    );
    text(
        &mut svg,
        "label",
        "start",
        (MARGIN, size.1 - 14.0),
        "the FIFO holds packets; the phantom queue counts their bytes, drains more slowly than the port, and decides about ECN marks",
    );
    file(title, size, &svg)
}

fn namespace(svg: &mut String, corner: (f64, f64), name: &str) {
    rect(svg, corner, BOX, "fill:var(--bg);stroke:var(--fg);stroke-width:1.4");
    let at = (corner.0 + BOX.0 / 2.0, corner.1 + BOX.1 / 2.0 + 4.0);
    text(svg, "", "middle", at, name);
}

fn port(svg: &mut String, (x, y): (f64, f64), queue: Option<&Queue>) {
    let lines = match queue {
        None => vec!["FIFO, unlimited".to_owned()],
        Some(queue) if !queue.is_phantom() => vec![queue.kind.clone()],
        Some(queue) => {
            let options = phantom::Options::from_words(&queue.words).unwrap_or_default();
            let limit =
                options.limit_bytes.map_or(String::new(), |it| format!(", {}", size(it.into())));
            let mut lines = vec![format!("FIFO{limit}")];
            if let Some(bytes) = options.phantom_limit_bytes {
                lines.push(format!("phantom, {}", size(bytes)));
            }
            if let Some(ppm) = options.drain_ppm {
                lines.push(format!("drains at {:.1} %", f64::from(ppm) / 1e4));
            }
            lines
        }
    };
    if let Some(queue) = queue {
        sign(svg, (x + SIGN.0 / 2.0, y + SIGN.1 / 2.0), queue, false);
    }
    for (number, words) in lines.iter().enumerate() {
        let y = y + 40.0 + 14.0 * number as f64;
        text(svg, "label", "start", (x, y), words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shortened() {
        assert_eq!(rate(1_000_000_000), "1 Gbit/s");
        assert_eq!(rate(400_000_000_000), "400 Gbit/s");
        assert_eq!(time(4_992_624), "4.99 ms");
        assert_eq!(time(186_832), "187 us");
        assert_eq!(time(0), "0 ns");
        assert_eq!(size(681_300), "681 kB");
        assert_eq!(size(22_400_000), "22.4 MB");
    }
}
