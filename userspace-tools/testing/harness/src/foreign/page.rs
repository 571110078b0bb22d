// SPDX-License-Identifier: GPL-2.0
//! Reports as text: the summary, and the page of all suites.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use xdc_base::marked;

use super::{MARK, Outcome, Report, Verdict};

/// Summary printed at the end.
pub(super) fn told(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let mut list = |verdict, what: &str| {
            for (name, case) in report.with(verdict) {
                let _ = writeln!(text, "# {}: {what}: {name}", report.suite);
                for (variant, notes) in &case.notes {
                    for note in notes {
                        let _ = writeln!(text, "#     {variant}: {note}");
                    }
                }
            }
        };
        list(Verdict::Both, "fails with both");
        list(Verdict::KernelsOwn, "fails with the kernel's modules only");
        list(Verdict::Ours, "FAILS WITH OURS");
        if let Some(why) = &report.died {
            let _ = writeln!(text, "# {}: DIED: {why}", report.suite);
        }
        let _ = writeln!(
            text,
            "# {}: {} cases in {} s; passed/failed/skipped: {}",
            report.suite,
            report.cases.len(),
            report.seconds,
            report.counts()
        );
    }
    let count = |verdict| -> usize {
        let reports = reports.iter();
        reports.map(|report| report.with(verdict).count()).sum()
    };
    // A suite that died, or in which nothing passed, counts as one failure.
    let whole = reports
        .iter()
        .filter(|report| !report.holds() && report.with(Verdict::Ours).next().is_none())
        .count();
    let _ = writeln!(
        text,
        "# xdc-harness foreign: {} passed, {} failed",
        count(Verdict::Fine),
        count(Verdict::Ours) + whole
    );
    text
}

/// The generated part of the page: new reports; other suites keep their section.
pub(super) fn sections(names: &[String], reports: &[Report], page: &str) -> String {
    let new = names.iter().map(|name| {
        let report = reports.iter().find(|report| report.suite == *name);
        (format!("{MARK} {name}"), report.map(section))
    });
    marked::sections(new, page)
}

/// Shortens the hash in a commit to 12 digits and keeps a suffix such as `-dirty`.
pub(super) fn shortened(commit: &str) -> String {
    match (commit.get(..12), commit.get(40..)) {
        (Some(hash), Some(rest)) => format!("{hash}{rest}"),
        _ => commit.to_owned(),
    }
}

/// Section of a suite on the page.
pub(super) fn section(report: &Report) -> String {
    let form = if report.long { "" } else { ", fast form" };
    let mut page = format!("### {}{form}\n\n", report.suite);
    let _ = writeln!(
        page,
        "{} cases on kernel {}, {} s of real time; {}, xdc of commit {}.\n",
        report.cases.len(),
        report.kernel,
        report.seconds,
        report.date.split('T').next().unwrap_or_default(),
        shortened(report.commit.as_deref().unwrap_or("unknown")),
    );
    if let Some(why) = &report.died {
        let _ = writeln!(page, "The suite ended early: {why}.\n");
    }
    page.push_str("| variant | passed | failed | skipped |\n|---|---:|---:|---:|\n");
    for variant in report.variants() {
        let count = |outcome| report.count(variant, outcome);
        let _ = writeln!(
            page,
            "| {variant} | {} | {} | {} |",
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Skipped),
        );
    }
    page.push('\n');
    for (verdict, title) in [
        (Verdict::Ours, "Fails with ours, passes with the kernel's modules:"),
        (Verdict::Both, "Fails with both:"),
        (Verdict::KernelsOwn, "Fails with the kernel's modules only:"),
    ] {
        let mut cases = report.with(verdict).peekable();
        if cases.peek().is_none() {
            continue;
        }
        let _ = writeln!(page, "{title}\n");
        for (name, case) in cases {
            let outcome = |variant| {
                let outcome = case.outcomes.get(variant)?;
                Some(format!("{variant} {}", outcome.name()))
            };
            let outcomes: Vec<_> = report.variants().filter_map(outcome).collect();
            let _ = writeln!(page, "- {name}: {}", outcomes.join(", "));
        }
        page.push('\n');
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, case) in report.with(Verdict::Skipped) {
        let why = case.notes.values().flatten().next();
        *reasons.entry(why.map_or("", String::as_str)).or_default() += 1;
    }
    if !reasons.is_empty() {
        let _ = writeln!(page, "Skipped with all variants:\n");
        for (why, count) in reasons {
            let _ = writeln!(page, "- {count}: {why}");
        }
        page.push('\n');
    }
    page
}
