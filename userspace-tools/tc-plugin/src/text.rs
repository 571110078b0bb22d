// SPDX-License-Identifier: GPL-2.0
//! Texts: help, mistakes in tc's style, statistics in lines.

use xdc_netlink::{units::Rate, words::Mistake};

use crate::kind::Kind;

/// Returns the output of `tc qdisc add dev DEV root KIND help`.
pub fn help<K: Kind>() -> String {
    format!(
        "Usage: ... {} [ OPTION VALUE ]...\n\
         {}\n\
         A missing option has the module's default, or keeps its value; \
         'tc qdisc show' prints every value.\n",
        K::NAME,
        K::help()
    )
}

/// Formats a mistake like tc's own parsers.
pub fn mistake<K: Kind>(mistake: &Mistake) -> String {
    match mistake {
        Mistake::Unknown(word) => format!("What is \"{word}\"?\n{}", help::<K>()),
        Mistake::NoValue(name) => {
            format!("Command line is not complete: \"{name}\" has no value. Try option \"help\".\n")
        }
        Mistake::Value(name, value, why) => {
            format!("Error: argument \"{value}\" is wrong: {name}: {why}\n")
        }
    }
}

/// Formats the statistics as lines, without newlines.
pub fn statistics<K: Kind>(bytes: &[u8]) -> Vec<String> {
    let mut values = K::xstats(bytes).into_iter().peekable();
    let mut lines = K::LINES.iter();
    let mut text = Vec::new();
    while values.peek().is_some() {
        // Statistics missing in LINES get a line each.
        let count = lines.next().copied().unwrap_or(1);
        let line: Vec<_> = values
            .by_ref()
            .take(count)
            .map(|(name, value)| match name.strip_suffix("_bytes_per_s") {
                // The kernel's unit is bytes per second, tc's text has bits per second.
                Some(rate) => format!("{rate} {}", Rate(value.saturating_mul(8))),
                None => format!("{name} {value}"),
            })
            .collect();
        text.push(format!("  {}", line.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{AccelTor, Phantom};

    fn every_counter_is_in_a_line<K: Kind>() -> Vec<String> {
        let count = K::xstats(&[]).len();
        assert_eq!(K::LINES.iter().sum::<usize>(), count);
        let bytes: Vec<u8> = (1..=count as u64).flat_map(u64::to_ne_bytes).collect();
        let lines = statistics::<K>(&bytes);
        assert_eq!(lines.len(), K::LINES.len());
        let words: Vec<_> = lines.iter().flat_map(|l| l.split_whitespace()).step_by(2).collect();
        let values = K::xstats(&[]);
        let names = values.iter().map(|(name, _)| name.trim_end_matches("_bytes_per_s"));
        assert!(words.into_iter().eq(names));
        lines
    }

    #[test]
    fn every_counter_of_phantom_is_in_a_line() {
        let lines = every_counter_is_in_a_line::<Phantom>();
        assert_eq!(lines[2], "  drops_limit 8 drops_pool 9 drops_ecn 10");
        assert!(lines[5].contains(" phantom_drain 152bit "), "{}", lines[5]);
    }

    #[test]
    fn every_counter_of_acceltor_is_in_a_line() {
        let lines = every_counter_is_in_a_line::<AccelTor>();
        assert_eq!(lines[0], "  packets_in 1 bytes_in 2");
    }

    #[test]
    fn help_fits_a_screen() {
        for help in [help::<Phantom>(), help::<AccelTor>()] {
            assert!(help.lines().count() <= 30);
            assert!(help.lines().all(|line| line.len() <= 100));
        }
    }
}
