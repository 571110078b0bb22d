// SPDX-License-Identifier: GPL-2.0
//! Bounds of options: a copy of modules/net/sched/acceltor_options.rs, which the test below compares.

use super::Options;
use crate::bounds::{self, Bound, MOST_BYTES, Refusal};

const NS_PER_S: i64 = 1_000_000_000;
const LEAST_LIMIT: i64 = 2_000;
const MOST_LIMIT: i64 = 1_000_000_000;

const BOUNDS: &[Bound] = &[
    ("rtt", 1_000, NS_PER_S, 60_000),
    ("hp", LEAST_LIMIT, MOST_LIMIT, 150_000),
    ("lp", LEAST_LIMIT, MOST_LIMIT, 150_000),
    ("limit", LEAST_LIMIT, MOST_LIMIT, 500_000),
    ("elephants", 0, 4_096, 80),
    ("sketch-bytes", 1, MOST_BYTES, 225_000),
    ("guard", 0, NS_PER_S, 0),
    ("lead", 0, NS_PER_S, 0),
];

impl Options {
    /// Returns the option that the kernel would refuse, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, Refusal)> {
        let small = |number: Option<u32>| number.map(i64::from);
        let ns = |time: Option<u64>| time.map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let number = |word: &str| match word {
            "rtt" => ns(self.rtt_ns),
            "hp" => small(self.high_limit_bytes),
            "lp" => small(self.low_limit_bytes),
            "limit" => small(self.limit_bytes),
            "elephants" => small(self.elephants),
            "sketch-bytes" => small(self.sketch_bytes),
            "guard" => ns(self.guard_ns),
            "lead" => ns(self.lead_ns),
            _ => None,
        };
        bounds::check(BOUNDS, number, |_, number| number.to_string())?;
        let Some(half_day_ns) = ns(self.day_ns).map(|day_ns| day_ns / 2) else {
            return Ok(());
        };
        for (word, time_ns) in [("guard", ns(self.guard_ns)), ("lead", ns(self.lead_ns))] {
            if time_ns.is_some_and(|time_ns| time_ns > half_day_ns) {
                let refusal = Refusal {
                    sentence: format!("'{word}' is longer than half a day"),
                    range: format!("at most {half_day_ns} ns"),
                };
                return Err((word, refusal));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Rate, Size, Time};

    const MOST_RATE: i64 = 1_000_000_000_000_000;
    const MOST_IDLE: i64 = 3_600 * NS_PER_S;
    /// Bounds of options that scenarios set otherwise.
    const OTHERS: &[Bound] = &[
        ("racks", 2, 1_024, 2),
        ("rack", 0, 1_023, 0),
        ("day", 1_000, NS_PER_S, 240_000),
        ("night", 0, NS_PER_S, 20_000),
        ("ocs-rate", 1, MOST_RATE, 10_000_000_000),
        ("eps-rate", 0, MOST_RATE, 0),
        ("k", 1, 64, 3),
        ("idle", 0, MOST_IDLE, 0),
        ("ecn", 0, MOST_BYTES, 0),
    ];

    #[test]
    fn bounds_match_the_module() {
        let constants = [
            ("NS_PER_US", 1_000),
            ("NS_PER_S", NS_PER_S),
            ("3_600 * NS_PER_S", MOST_IDLE),
            ("u32::MAX as i64", MOST_BYTES),
            ("LIMIT_LEAST", LEAST_LIMIT),
            ("LIMIT_MOST", MOST_LIMIT),
            ("MAX_RACKS", 1_024),
            ("MAX_RACKS - 1", 1_023),
            ("MAX_QUEUES as i64", 64),
            ("MOST_RATE", MOST_RATE),
        ];
        let module = include_str!("../../../../modules/net/sched/acceltor_options.rs");
        assert!(module.contains("const LIMIT: Bounds = bytes(2_000, 1_000_000_000);"));
        bounds::compare(BOUNDS, module, &constants);
        bounds::compare(OTHERS, module, &constants);
    }

    /// Output of `tc qdisc show` for the defaults, as a guest checks it.
    fn defaults() -> Vec<&'static str> {
        let cases = include_str!("../../../../selftests/guest/tdc/acceltor.json");
        let shown = cases.split("\"matchPattern\": \"").find_map(|case| {
            let pattern = case.split('"').next()?;
            pattern.split_once("+ racks 8 ").filter(|(_, it)| it.contains(" ecn "))
        });
        shown.unwrap().1.split_whitespace().collect()
    }

    #[test]
    fn the_manual_page_has_each_default_and_range() {
        let page = include_str!("../../../../docs/man/tc-acceltor.8");
        let entry = |word: &str| {
            let starts = [format!(".BI {word} "), format!(".BR \"{word} ")];
            let entry =
                page.split(".TP\n").find(|it| starts.iter().any(|start| it.starts_with(start)));
            let words = entry.expect(word).split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        for pair in defaults().chunks_exact(2) {
            let default = format!("Default {}", pair[1]);
            assert!(entry(pair[0]).contains(&default), "{pair:?}");
        }
        for &(word, least, most, _) in BOUNDS.iter().chain(OTHERS) {
            let text = |number: i64| match word {
                "racks" | "rack" | "k" | "elephants" => number.to_string(),
                "ocs-rate" | "eps-rate" => Rate(number as u64 * 8).to_string(),
                "hp" | "lp" | "limit" | "sketch-bytes" | "ecn" => Size(number as u64).to_string(),
                _ => Time(number as u64).to_string(),
            };
            let range = format!(" Range {} to {}.", text(least), text(most));
            assert!(entry(word).contains(&range), "{word}{range}");
        }
    }

    #[test]
    fn check_refuses_what_the_kernel_refuses() {
        let check = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            Options::from_words(&words).unwrap().check()
        };
        for line in ["", "hp 2000b", "day 240us guard 120us", "guard 1s"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for (line, word) in [
            ("hp 1999b", "hp"),
            ("limit 2gb", "limit"),
            ("elephants 4097", "elephants"),
            ("rtt 2s", "rtt"),
            ("day 240us guard 121us", "guard"),
            ("day 240us lead 121us", "lead"),
        ] {
            assert_eq!(check(line).unwrap_err().0, word, "{line}");
        }
    }
}
