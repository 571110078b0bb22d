// SPDX-License-Identifier: GPL-2.0
//! One self-contained page per paper: each figure drawn from our runs beside the paper's numbers,
//! claims with verdicts, and differences in setup.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use xdc_base::error::{Error, Result};
use xdc_base::{marked, owned};
use xdc_metric::interval::Decision;
use xdc_result::expect::format_value;
use xdc_view::bars::Bars;
use xdc_view::charts::NARROW;
use xdc_view::plot::{self, Chart, Figure as _, RATE, TIME, escape};
use xdc_view::report;

use super::Done;
use super::judge::Judged;
use super::record::{self, Record};
use super::spec::{Figure, Paper, Plot, Verdict};
use crate::sweep::plots;
use crate::sweep::table::{self, Row};

pub fn html(paper: &Paper, done: &[Done<'_>], quick: bool, sets: &[String]) -> String {
    let mut page = report::head(&paper.title);
    // Writing to a String cannot fail.
    let _ = writeln!(page, "<p class=\"dim\">{}</p>", escape(&paper.reference));
    let _ = writeln!(page, "<p>{}</p>", escape(&settings(done)));
    if quick {
        page.push_str(
            "<p><b>Quick form:</b> shorter runs and fewer points than the figures ask for.</p>\n",
        );
    }
    if !sets.is_empty() {
        let _ = writeln!(
            page,
            "<p><b>Changed in all cells:</b> <code>{}</code></p>",
            escape(&sets.join(" "))
        );
    }
    page.push_str(
        "<p class=\"dim\">Bars are means over seeds, with 95 % intervals of Student's t where there are several; \
         a dashed line is the paper's number. A verdict is by interval against bound: a mean, or the geometric mean of \
         ratios of runs with the same seed and hence the same traffic, with its 95 % interval by the BCa bootstrap over \
         seeds. It holds where all of the interval is within the bound, does not hold where all is beyond it, and is \
         undecided where the bound is inside, a seed has failed, flows have not finished, or where they are fewer than \
         100 (for a 99th percentile 1,000) in a run. A bound is the paper's number and a tenth, or 1 (as good) where the \
         paper has no number.</p>\n",
    );
    page.push_str(&overview(done));
    for done in done {
        page.push_str(&figure(paper, done));
    }
    page.push_str("</body></html>\n");
    page
}

/// Writes the CSV file beside a page, the tables of the page from it, and pictures into the folder
/// of the page's name: docs/results/uno.csv, docs/results/uno/uno-8.svg. Rows and sections of
/// figures not run stay, except for what `mark` does to them.
pub fn update(
    page: &Path,
    name: &str,
    paper: &Paper,
    done: &[Done<'_>],
    quick: bool,
    mark: impl FnOnce(&mut [Record]) -> Result<()>,
) -> Result<()> {
    let file = page.with_extension("csv");
    let mut known = Vec::new();
    for done in done {
        let claims = done.claims();
        known.extend(claims.flat_map(|(case, _, rows)| {
            let rows = rows.iter().map(|row| Record::of(done.figure, &case, row));
            rows.collect::<Vec<_>>()
        }));
    }
    known.extend(record::read(&file)?);
    let mut rows = record::align(paper, &known);
    mark(&mut rows)?;
    let folder = page.with_extension("");
    owned::make_folder(&folder).map_err(|err| Error::io(folder.display(), &err))?;
    let beside = folder.file_name().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(page).map_err(|err| Error::io(page.display(), &err))?;
    let mut sections = Vec::new();
    for figure in &paper.figure {
        let id = &figure.id;
        let section = format!("{name} {id}");
        let mut run = done.iter().filter(|done| !done.cells.is_empty());
        let around = match run.find(|done| done.figure.id == *id) {
            Some(done) => {
                let file = format!("{name}-{id}.svg");
                let picture = picture(done);
                if let Some(svg) = &picture {
                    let path = folder.join(&file);
                    owned::replace(&path, svg).map_err(|err| Error::io(path.display(), &err))?;
                }
                let link = picture.map(|_| format!("{beside}/{file}"));
                Some(markdown(paper, done, link.as_deref(), quick))
            }
            None => marked::split(&text, &section).map(|(_, there, _)| there.to_owned()),
        };
        let rows: Vec<_> = rows.iter().filter(|row| row.figure == *id).collect();
        sections.push((section, around.map(|it| with_table(&it, &table(&rows)))));
    }
    record::write(&file, &rows)?;
    let mut part = differences(paper);
    part.push_str(&marked::sections(sections, &text));
    marked::update(page, name, &part)
}

/// Replaces the table of a section.
fn with_table(section: &str, table: &str) -> String {
    let is_table = |line: &&str| line.starts_with('|');
    let lines = || section.split_inclusive('\n');
    let before = lines().take_while(|line| !is_table(line));
    let after = lines().skip_while(|line| !is_table(line));
    let after = after.skip_while(is_table);
    before.chain([table]).chain(after).collect()
}

/// A figure's claims: one line per row, and one above for a claim with several.
fn table(rows: &[&Record]) -> String {
    let mut text = String::from(
        "| claim | verdict | here (95 %, seeds) | bound | paper |\n|---|---|---|---|---|\n",
    );
    for rows in rows.chunk_by(|a, b| a.claim == b.claim) {
        let mut claim = rows[0].claim.as_str();
        if rows.len() > 1 {
            let _ = writeln!(text, "| {claim} | {} | | | |", record::verdict(rows));
            claim = "";
        }
        for row in rows {
            let here = match row.estimate.is_empty() {
                true => row.what(),
                false => format!("{}: {} ({})", row.what(), row.estimate, row.sureness()),
            };
            let paper = if row.paper.is_empty() { "-" } else { &row.paper };
            let (verdict, bound) = (&row.verdict, &row.bound);
            let _ = writeln!(text, "| {claim} | {verdict} | {here} | {bound} | {paper} |");
        }
    }
    text
}

/// List of the named differences from the paper.
fn differences(paper: &Paper) -> String {
    let mut list = String::new();
    if !paper.differences.is_empty() {
        list.push_str("Differences from the paper that several figures have:\n\n");
    }
    for (name, text) in &paper.differences {
        let _ = writeln!(list, "- **{name}**: {text}");
    }
    list
}

/// Charts of a figure as one SVG file, as in the report.
fn picture(done: &Done<'_>) -> Option<String> {
    let charts: Vec<_> = done.figure.plot.iter().map(|it| bars(done, it)).collect();
    (!charts.is_empty()).then(|| plot::file(&charts, 2))
}

/// A figure's section; one line stands for its table.
fn markdown(paper: &Paper, done: &Done<'_>, picture: Option<&str>, quick: bool) -> String {
    let figure = done.figure;
    let name = match picture {
        Some(path) => format!("[{}]({path})", figure.name()),
        None => figure.name(),
    };
    let mut text = format!(
        "#### {name}: {}\n\n{}{}.\n\n|\n",
        figure.title,
        if quick { "Quick form. " } else { "" },
        settings(std::slice::from_ref(done))
    );
    let findings = figure.claim.iter().map(|claim| &claim.finding);
    let findings = findings.filter(|finding| !finding.is_empty());
    let named = |entry: &&String| paper.differences.contains_key(entry.as_str());
    let (named, own): (Vec<_>, Vec<_>) = figure.differs.iter().partition(named);
    if !named.is_empty() {
        let names: Vec<_> = named.iter().map(|name| format!("**{name}**")).collect();
        let _ = writeln!(text, "\nDifferences from the paper: {}.", names.join(", "));
    }
    for (head, list) in [("Differences of this figure", own), ("Findings", findings.collect())] {
        if !list.is_empty() {
            let _ = writeln!(text, "\n{head}:\n");
        }
        for what in list {
            let words: Vec<_> = what.split_whitespace().collect();
            let _ = writeln!(text, "- {}", words.join(" "));
        }
    }
    text
}

/// Engine, kernel and seeds of all cells.
fn settings(done: &[Done<'_>]) -> String {
    let mut engines: Vec<String> = Vec::new();
    let mut seeds: Vec<u64> = Vec::new();
    for Row { cell, outcome, .. } in done.iter().flat_map(|done| &done.cells) {
        let engine = format!("Linux {} on {}", outcome.kernel, outcome.engine);
        if !engines.contains(&engine) {
            engines.push(engine);
        }
        if !seeds.contains(&cell.seed) {
            seeds.push(cell.seed);
        }
    }
    let seeds: Vec<_> = seeds.iter().map(u64::to_string).collect();
    format!("{}; seeds {}", engines.join(", "), seeds.join(", "))
}

/// Table of all verdicts.
fn overview(done: &[Done<'_>]) -> String {
    let mut html = String::from(
        "<h2>Claims</h2>\n<div class=\"scroll\"><table class=\"text\"><tr><th>figure</th><th>verdict</th><th>claim</th></tr>\n",
    );
    for done in done {
        for (case, verdict, _) in done.claims() {
            let _ = writeln!(
                html,
                "<tr><td><a href=\"#figure-{0}\">{0}</a></td><td class=\"{1}\">{2}</td><td>{3}</td></tr>",
                escape(&done.figure.id),
                class(verdict),
                verdict.text(),
                prose(&case.text())
            );
        }
    }
    html.push_str("</table></div>\n");
    html
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "pass",
        Verdict::Fails => "FAIL",
        Verdict::Partly | Verdict::Undecided | Verdict::Unknown => "skip",
    }
}

fn figure(paper: &Paper, done: &Done<'_>) -> String {
    let figure = done.figure;
    let mut html = format!(
        "<h2 id=\"figure-{0}\">{1}: {2}</h2>\n<p>{3}</p>\n",
        escape(&figure.id),
        escape(&figure.name()),
        escape(&figure.title),
        prose(figure.setup.trim())
    );
    html.push_str(&names(done));
    for (case, verdict, rows) in done.claims() {
        let claim = case.claim;
        let _ = writeln!(
            html,
            "<p><span class=\"{}\">{}</span>: {} <span class=\"dim\">{}</span></p>",
            class(verdict),
            verdict.text(),
            prose(&case.text()),
            escape(&claim.source)
        );
        html.push_str(&evidence(&rows));
        // Once, below the last congestion control of the claim.
        let last = case.of.is_none_or(|of| claim.of.last().is_some_and(|last| last == of));
        if !claim.finding.is_empty() && last {
            let _ = writeln!(html, "<p>{}</p>", prose(claim.finding.trim()));
        }
    }
    let charts: String = figure.plot.iter().map(|plot| bars(done, plot).inline()).collect();
    let _ = write!(html, "<div class=\"charts\" style=\"--least:340px\">\n{charts}</div>\n");
    if figure.curves {
        html.push_str(&curves(done));
    }
    if !figure.differs.is_empty() {
        html.push_str("<p>Differences from the paper:</p>\n<ul>\n");
        for what in &figure.differs {
            let _ = writeln!(html, "<li>{}</li>", prose(paper.difference(what)));
        }
        html.push_str("</ul>\n");
    }
    html.push_str(&numbers(done, figure));
    html
}

/// Formats text of a paper's file; text in backquotes becomes code.
fn prose(text: &str) -> String {
    let mut html = String::new();
    for (n, part) in escape(text).split('`').enumerate() {
        html.push_str(match n {
            0 => "",
            n if n % 2 == 1 => "<code>",
            _ => "</code>",
        });
        html.push_str(part);
    }
    html
}

/// Explains names in a legend that are easily mistaken.
fn names(done: &Done<'_>) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("unocc-paper", "UnoCC as published"),
        ("unocc-artifact", "UnoCC as in its authors' simulator"),
        ("toll", "this project's own law (docs/toll.md)"),
        ("bbr", "BBRv1, the kernel's"),
        (
            "bbr-dctcp",
            "BBRv1 between datacenters and DCTCP inside, where the paper has BBR and MPRDMA",
        ),
        ("cubic", "without ECN, through drop-tail queues"),
        ("cubic-ecn", "CUBIC with RFC 3168, through queues that mark"),
        ("gemini-uno", "GEMINI with the Uno authors' parameters: beta 0.1, H 0.00024"),
    ];
    let ccs = table::ccs(done.grid);
    let known = NAMES.iter().filter(|(name, _)| ccs.contains(name));
    let known: Vec<_> =
        known.map(|(name, what)| format!("<code>{name}</code>: {}", escape(what))).collect();
    format!("<p class=\"dim\">{}</p>\n", known.join("; "))
}

fn evidence(rows: &[Judged]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"text\"><tr><th></th><th>here</th><th>95 %</th><th>seeds</th>\
         <th>flows a run</th><th>unfinished</th><th>bound</th><th>paper</th><th></th></tr>\n",
    );
    for row in rows {
        let class = match row.decision {
            Decision::Holds => "pass",
            Decision::Fails => "FAIL",
            Decision::Undecided => "skip",
        };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), format_value);
        let interval = row.interval.map(|interval| {
            let (low, high) = (format_value(interval.low), format_value(interval.high));
            format!("{low} to {high}")
        });
        let asked = match row.row.why.is_empty() {
            true => row.row.bound().to_string(),
            false => format!("{} ({})", row.row.bound(), row.row.why),
        };
        let paper = match (row.row.paper, row.row.is) {
            (None, Some(_)) => "no number".to_owned(),
            (paper, _) => number(paper),
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td></tr>",
            escape(&row.row.what()),
            number(row.measured),
            interval.unwrap_or_else(|| "-".to_owned()),
            row.seeds.len(),
            row.flows.map_or_else(|| "-".to_owned(), |flows| flows.to_string()),
            row.unfinished,
            escape(&asked),
            paper,
            escape(&row.outcome()),
        );
    }
    html.push_str("</table></div>\n");
    html
}

/// A metric's bars with the paper's numbers on them.
fn bars(done: &Done<'_>, plot: &Plot) -> Bars {
    let paper = |point: usize, cc: &str| plot.paper.get(cc)?.get(point).copied();
    let mut bars = plots::bars(done.grid, &done.cells, &plot.metric, paper);
    bars.title.clone_from(&plot.title);
    bars
}

/// Throughput of each flow over time, a chart per point and congestion control.
fn curves(done: &Done<'_>) -> String {
    let mut charts: Vec<Chart> = Vec::new();
    for Row { cell, outcome, .. } in &done.cells {
        // Only the first seed is drawn.
        if outcome.throughput.is_empty()
            || done.cells.iter().any(|row| {
                let other = row.cell;
                other.point == cell.point && other.cc == cell.cc && other.seed < cell.seed
            })
        {
            continue;
        }
        let labels = done.grid.points[cell.point].labels.join(", ");
        charts.push(Chart {
            title: format!("{} {labels}", cell.cc).trim_end().to_owned(),
            width: NARROW,
            x_unit: TIME,
            x_log: false,
            y_unit: RATE,
            lines: outcome.throughput.clone(),
            x_end: 0.0,
            y_end: 0.0,
        });
    }
    let y_end = charts.iter().map(Chart::max_y).fold(0.0, f64::max);
    for chart in &mut charts {
        chart.y_end = y_end;
    }
    let svgs: String = charts.iter().map(plot::Figure::inline).collect();
    format!("<div class=\"charts\" style=\"--least:340px\">\n{svgs}</div>\n")
}

/// Table of the numbers behind the charts.
fn numbers(done: &Done<'_>, figure: &Figure) -> String {
    let metrics: Vec<_> = figure.plot.iter().map(|plot| plot.metric.clone()).collect();
    let text = table::text(done.grid, &done.cells, &metrics);
    format!("<details><summary>Numbers</summary><pre>{}</pre></details>\n", escape(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPDATE_DOCS=1 writes the pages, after changes to a paper's file.
    #[test]
    fn pages_follow_from_their_data() {
        let home = xdc_base::testing::home();
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(home.scenarios().join("papers")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let paper = Paper::load(&home, name).unwrap();
            let files = [format!("{name}.md"), format!("{name}.csv")];
            let copy = files.each_ref().map(|file| dir.path().join(file));
            for (file, copy) in files.iter().zip(&copy) {
                fs::copy(docs.join(file), copy).unwrap();
            }
            update(&copy[0], name, &paper, &[], false, |_| Ok(())).unwrap();
            for (file, copy) in files.iter().zip(&copy) {
                if std::env::var_os("UPDATE_DOCS").is_some() {
                    fs::copy(copy, docs.join(file)).unwrap();
                }
                let (new, there) = (fs::read(copy).unwrap(), fs::read(docs.join(file)).unwrap());
                assert!(new == there, "docs/results/{file}: UPDATE_DOCS=1");
            }
        }
    }

    #[test]
    fn code_is_marked() {
        let html = prose("`unocc` < `gemini`");
        assert_eq!(html, "<code>unocc</code> &lt; <code>gemini</code>");
    }
}
