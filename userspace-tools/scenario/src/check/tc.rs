// SPDX-License-Identifier: GPL-2.0
//! Checks words of `tc` with this machine's tc, which parses them before it looks for a device and
//! needs no privileges for that.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex};

use xdc_base::error::Error;
use xdc_base::text::nearest;
use xdc_proto::Queue;
use xdc_proto::privileged::tc_dry_run;

use super::Mistakes;
use crate::plan::tc_words;
use crate::{Scenario, at};

const SHAPE: &str = "words after `tc qdisc add dev DEV root`, such as \"fq_codel limit 1000 ecn\"";
/// Maximum number of texts for this machine's tc, a process each; the guest's tc parses all.
const MOST_ASKED: usize = 32;

pub fn check(scenario: &Scenario, m: &mut Mistakes) {
    let own = scenario.queues.iter().map(|(name, queue)| (at!["queues", name, "tc"], queue));
    let of_ccs = scenario.cc.iter().flat_map(|(cc, spec)| {
        let queues = spec.queues.iter();
        queues.map(move |(name, queue)| (at!["cc", cc, "queues", name, "tc"], queue))
    });
    let mut asked = BTreeSet::new();
    for (key, queue) in own.chain(of_ccs) {
        let Some(text) = queue.tc.as_deref() else {
            continue;
        };
        if asked.len() == MOST_ASKED && !asked.contains(text) {
            continue;
        }
        asked.insert(text);
        let queue = match tc_words(text) {
            Ok(queue) => queue,
            Err(err) => {
                let table: Vec<_> = key.iter().map(String::as_str).collect();
                // The check of queues has refused a queue that is used.
                if m.is_clean(&table) {
                    m.add(key, err);
                }
                continue;
            }
        };
        let kind = queue.kind.as_str();
        let near = nearest(kind, KINDS).filter(|near| *near != kind);
        if let Some(near) = near {
            let err = Error::usage(format!("there is no qdisc '{kind}'"));
            m.add(key, err.hint(format!("'{near}'")));
        } else if let Some(why) = refused(text, &queue) {
            m.add(key, Error::usage(why).hint(SHAPE));
        }
    }
}

/// Qdiscs of Linux, to suggest for a typo.
const KINDS: &[&str] = &[
    "acceltor",
    "bfifo",
    "blackhole",
    "cake",
    "cbs",
    "choke",
    "codel",
    "drr",
    "dualpi2",
    "etf",
    "ets",
    "fq",
    "fq_codel",
    "fq_pie",
    "gred",
    "hfsc",
    "hhf",
    "htb",
    "mq",
    "mqprio",
    "multiq",
    "netem",
    "pfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "phantom",
    "pie",
    "plug",
    "prio",
    "qfq",
    "red",
    "sfb",
    "sfq",
    "skbprio",
    "taprio",
    "tbf",
];

/// Error of tc for these words; None if it accepts them or is missing.
fn refused(text: &str, queue: &Queue) -> Option<String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Option<String>>>> = LazyLock::new(Mutex::default);
    if queue.is_made_by_agent() {
        return None;
    }
    let mut known = KNOWN.lock().ok()?;
    known.entry(text.to_owned()).or_insert_with(|| ask(text, queue)).clone()
}

fn ask(text: &str, queue: &Queue) -> Option<String> {
    let output = tc_dry_run(queue).ok()??.output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    judged(text, &said)
}

/// Interprets tc's standard error.
fn judged(text: &str, said: &str) -> Option<String> {
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.iter().any(|line| line.contains("Cannot find device")) || lines.is_empty() {
        return None;
    }
    // Usage of the qdisc follows the error.
    let why: Vec<_> = lines
        .iter()
        .take_while(|line| !line.starts_with("Usage:"))
        .map(|line| line.trim_end_matches('.'))
        .take(2)
        .collect();
    Some(match why.is_empty() {
        true => format!("tc refuses '{text}'"),
        false => format!("tc refuses '{text}': {}", why.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of iproute2 6.15.
    #[test]
    fn a_missing_device_hides_no_error_of_tc() {
        let no_device = "Cannot find device \"no device/\"\n";
        assert_eq!(judged("fq_codel limit 100", no_device), None);
        assert_eq!(judged("fq_codel", ""), None);
        let usage = "What is \"limt\"?\nUsage: ... fq_codel\t[ limit PACKETS ]\n\t[ ecn ]\n";
        let why = judged("fq_codel limt 100", usage).unwrap();
        assert_eq!(why, "tc refuses 'fq_codel limt 100': What is \"limt\"?");
        let why = judged("red limit 1", "RED: Required parameter (limit, avpkt) is missing\n");
        assert!(why.unwrap().contains("(limit, avpkt) is missing"));
    }

    #[test]
    fn a_mistyped_qdisc_is_named() {
        let said = |words: &str| {
            let text = crate::testing::SMALL.replace(
                "limit = \"100kb\"\nmin = \"25kb\"\nmax = \"75%\"",
                &format!("tc = \"{words}\""),
            );
            let scenario = crate::parse("small", &text, &[]).unwrap().scenario;
            let mut m = Mistakes::default();
            check(&scenario, &mut m);
            m.found.first().map(|err| err.lines().join(" "))
        };
        let why = said("fqcodel limit 100").unwrap();
        assert!(why.contains("no qdisc 'fqcodel'") && why.contains("'fq_codel'"), "{why}");
        assert_eq!(said("fq_codel limit 100"), None);
    }
}
