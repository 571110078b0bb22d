// SPDX-License-Identifier: GPL-2.0
//! The scorecard as a table of text.

use xdc_base::text::plain;

use super::card::{Card, Cell, Log2, Verdict};
use super::row::Row;

/// Formats mean and interval, such as `+0.42 [0.31, 0.55]`.
pub fn log2(ratio: Option<Log2>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |it| format!("{:+.2} [{:+.2}, {:+.2}]", it.mean, it.low, it.high),
    )
}

/// Number of seeds and flows, and the unfinished ones.
pub fn numbers(cell: &Cell) -> String {
    let seeds = cell.to_ideal.map_or(0, |it| it.n);
    let mut text = format!("{seeds} x {}", cell.flows / seeds.max(1));
    if cell.unfinished > 0 {
        text += &format!(", {} unfinished", cell.unfinished);
    }
    if cell.left_out > 0 {
        text += &format!(", {} left out", cell.left_out);
    }
    text
}

pub fn counts(card: &Card) -> String {
    let count = |verdict: &Verdict| {
        let n = card.counts.get(verdict).copied().unwrap_or(0);
        format!("{n} {}", verdict.text())
    };
    let words: Vec<_> = Verdict::ALL.iter().map(count).collect();
    words.join(", ")
}

/// Counts of verdicts of several cards as Markdown, with the clearest win and loss.
pub fn overview(cards: &[Card]) -> String {
    let mut text = "| | form | against | win | tie | loss | undecided | missing | clearest win | clearest loss |\n\
                    |---|---|---|---:|---:|---:|---:|---:|---|---|\n"
        .to_owned();
    for card in cards {
        let form = if card.quick { "quick" } else { "whole" };
        let counts = Verdict::ALL.map(|verdict| {
            let count = card.counts.get(&verdict).copied();
            count.unwrap_or(0).to_string()
        });
        let clearest = |verdict: Verdict| {
            let cells = card.cells.iter().filter(|cell| cell.verdict == verdict);
            let sized = cells.filter_map(|cell| Some((cell.best.as_ref()?.log2?.mean, cell)));
            let most = sized.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
            most.map_or_else(String::new, |(mean, cell)| {
                format!("{} ({mean:+.1})", plain(&cell.name()))
            })
        };
        text += &format!(
            "| {} | {form} | {} | {} | {} | {} |\n",
            plain(&card.cc),
            plain(&card.references.join(", ")),
            counts.join(" | "),
            clearest(Verdict::Win),
            clearest(Verdict::Loss)
        );
    }
    text
}

pub fn table(card: &Card, rows: &[Row]) -> String {
    const HEAD: [&str; 6] =
        ["", "log2 to the best reference", "", "verdict", "log2 to the ideal", "seeds x flows"];
    let mut text = String::new();
    for row in rows {
        text += &format!("{} {}\n", row.id, row.title);
        let mut lines = vec![HEAD.map(str::to_owned)];
        for cell in card.cells.iter().filter(|cell| cell.row == row.id) {
            let best = cell.best.as_ref();
            lines.push([
                [cell.at.join(", "), cell.metric.clone()].join(" ").trim().to_owned(),
                log2(best.and_then(|best| best.log2)),
                best.map_or_else(String::new, |best| best.cc.clone()),
                cell.verdict.text().to_owned(),
                log2(cell.to_ideal),
                numbers(cell),
            ]);
        }
        text += &aligned(&lines);
        for turn in card.turns.iter().filter(|turn| turn.row == row.id) {
            text += &match (&turn.at, turn.to) {
                (Some(at), Some(to)) => format!(
                    "  {}: {} without noise, {} at {at}\n",
                    turn.metric,
                    turn.from.text(),
                    to.text()
                ),
                _ => format!(
                    "  {}: {} without noise, and the same at every noise level\n",
                    turn.metric,
                    turn.from.text()
                ),
            };
        }
    }
    text += &format!("{} against {}: {}\n", card.cc, card.references.join(", "), counts(card));
    text
}

fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|n| width(n).unwrap_or(0));
    let mut text = String::new();
    for line in lines {
        let cells: Vec<_> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += &format!("  {}\n", cells.join("  ").trim_end());
    }
    text
}
