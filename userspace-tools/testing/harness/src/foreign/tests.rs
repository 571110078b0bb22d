// SPDX-License-Identifier: GPL-2.0

use super::page::section;
use super::*;

const HEAD: &str = "#!/bin/bash\n# suite: programs of net\n# kernels: uml x86\n\
                        # variants: cubic dctcp | unocc\n# form: long\n";

fn report(lines: &[&str]) -> Report {
    let suite = Suite::parse("net.sh", HEAD).unwrap();
    let mut report = Report::new(&suite, Flavour::Uml, false, Provenance::default());
    lines.iter().for_each(|line| report.hear(line));
    report
}

#[test]
fn a_suite_is_parsed_from_its_header() {
    let suite = Suite::parse("net.sh", HEAD).unwrap();
    assert_eq!((suite.name.as_str(), suite.long), ("net", true));
    assert_eq!(suite.kernels, [Flavour::Uml, Flavour::X86]);
    assert_eq!(suite.kernels_own, ["cubic", "dctcp"]);
    assert_eq!(suite.ours, ["unocc"]);
    assert!(suite.kernel(Some(Flavour::Debug)).is_err());
    assert!(!suite.waits);
    let text = format!("{HEAD}# time: waiting\n");
    assert!(Suite::parse("net.sh", &text).is_some_and(|suite| suite.waits));
    assert_eq!(Suite::parse("lib.sh", "# SPDX\n"), None);
}

#[test]
fn our_failure_counts_if_one_kernel_variant_passes() {
    let verdict = |lines: &[&str]| {
        let report = report(lines);
        (report.verdict(&report.cases["a b"]), report.holds())
    };
    let cubic = "  ok 1 cubic a b";
    assert_eq!(verdict(&[cubic, "  ok 2 unocc a b"]), (Verdict::Fine, true));
    assert_eq!(verdict(&[cubic, "  not ok 2 unocc a b"]), (Verdict::Ours, false));
    let no_cubic = "  not ok 1 cubic a b";
    assert_eq!(
        verdict(&[no_cubic, "  not ok 2 unocc a b", "  ok 3 unocc c"]),
        (Verdict::Both, true)
    );
    let no_dctcp = "  not ok 2 dctcp a b";
    assert_eq!(verdict(&[cubic, no_dctcp, "  not ok 3 unocc a b"]), (Verdict::Ours, false));
    assert_eq!(verdict(&[no_cubic, "  ok 2 unocc a b"]), (Verdict::KernelsOwn, true));
    // A case that only ours have has no reference.
    assert_eq!(verdict(&["  not ok 1 unocc a b"]), (Verdict::Ours, false));
}

#[test]
fn a_suite_without_a_pass_does_not_hold() {
    assert!(!report(&[]).holds());
    assert!(!report(&["  ok 1 unocc a # SKIP no tls"]).holds());
    assert!(!report(&["  not ok 1 cubic a", "  not ok 2 unocc a"]).holds());
}

#[test]
fn a_suite_that_died_does_not_hold() {
    let mut report = report(&["  ok 1 cubic a", "  ok 2 unocc a"]);
    assert!(report.holds());
    report.hear("not ok 1 foreign/net.sh # TIMEOUT 900 s");
    assert!(!report.holds());
    let told = told(&[report]);
    assert!(told.contains("DIED: TIMEOUT 900 s"));
    assert!(told.ends_with("# xdc-harness foreign: 1 passed, 1 failed\n"), "{told}");
}

#[test]
fn notes_of_failed_and_skipped_cases_are_kept() {
    let report = report(&[
        "  ok 1 cubic a",
        "  # not about a failure",
        "  not ok 2 unocc a",
        "  # want 1, got 2",
        "  ok 3 unocc b # SKIP no device",
    ]);
    assert_eq!(report.cases["a"].notes["unocc"], ["want 1, got 2"]);
    assert_eq!(report.cases["b"].notes["unocc"], ["no device"]);
    let page = section(&report);
    assert!(page.contains("\n- a: cubic passed, unocc failed\n"));
    assert!(page.contains("\n- 1: no device\n"));
}

#[test]
fn the_page_keeps_sections_of_suites_not_run() {
    let names = ["extensions", "net", "tdc"].map(str::to_owned);
    let mut report = report(&["  ok 1 cubic a", "  ok 2 unocc a"]);
    report.date = "2026-11-24T03:00:00Z".to_owned();
    report.commit = Some(format!("{:a<40}-dirty", "0123"));
    let page = "<!-- foreign tdc: begin -->\nold\n<!-- foreign tdc: end -->\n\
                    <!-- foreign net: begin -->\nold\n<!-- foreign net: end -->\n";
    let part = sections(&names, &[report], page);
    let of = |name| marked::split(&part, name).map(|(_, section, _)| section);
    assert_eq!(of("foreign tdc"), Some("old\n"));
    assert_eq!(of("foreign extensions"), None);
    let net = of("foreign net").unwrap();
    assert!(net.starts_with("### net, fast form\n\n1 cases on kernel uml, "), "{net}");
    assert!(net.contains("; 2026-11-24, xdc of commit 0123aaaaaaaa-dirty.\n"), "{net}");
    assert!(net.contains("\n| unocc | 1 | 0 | 0 |\n"), "{net}");
    assert!(!net.contains("old"));
}
