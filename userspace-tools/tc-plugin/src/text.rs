// SPDX-License-Identifier: GPL-2.0
//! What is said: help, mistakes in tc's manner, statistics in lines.

use xdc_netlink::{
    phantom::{
        KIND, Xstats,
        words::{Mistake, OPTIONS_HELP},
    },
    units::Rate,
};

/// `tc qdisc add dev DEV root phantom help`.
pub fn help() -> String {
    format!(
        "Usage: ... {KIND} [ OPTION VALUE ]...\n\
         {OPTIONS_HELP}\n\
         What is not given has the module's default, or stays as it is; \
         'tc qdisc show' prints every value.\n"
    )
}

/// In the sentences of tc's own parsers.
pub fn mistake(mistake: &Mistake) -> String {
    match mistake {
        Mistake::Unknown(word) => format!("What is \"{word}\"?\n{}", help()),
        Mistake::NoValue(name) => {
            format!("Command line is not complete: \"{name}\" has no value. Try option \"help\".\n")
        }
        Mistake::Value(name, value, why) => {
            format!("Error: argument \"{value}\" is wrong: {name}: {why}\n")
        }
    }
}

/// Of the statistics, how many stand in a line: queues, marks, drops, drops by colour, bytes by
/// colour, the rest.
const LINES: &[usize] = &[3, 4, 3, 4, 3, 3];

/// The statistics, in lines without their ends.
pub fn statistics(xstats: &Xstats) -> Vec<String> {
    let mut values = Xstats::FIELDS.iter().zip(xstats.values()).peekable();
    let mut lines = LINES.iter();
    let mut text = Vec::new();
    while values.peek().is_some() {
        // What is added later has a line of its own.
        let count = lines.next().copied().unwrap_or(1);
        let line: Vec<_> = values
            .by_ref()
            .take(count)
            .map(|(name, value)| match name.strip_suffix("_bytes_per_s") {
                // Where the kernel counts bytes, tc's text has bits.
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

    #[test]
    fn every_counter_is_in_a_line() {
        assert_eq!(LINES.iter().sum::<usize>(), Xstats::FIELDS.len());
        let lines = statistics(&Xstats {
            drops_pool: 7,
            phantom_drain_bytes_per_s: 1_125_000,
            ..Default::default()
        });
        assert_eq!(lines.len(), LINES.len());
        assert_eq!(lines[2], "  drops_limit 0 drops_pool 7 drops_ecn 0");
        let words: Vec<_> = lines
            .iter()
            .flat_map(|l| l.split_whitespace())
            .step_by(2)
            .collect();
        let names = Xstats::FIELDS
            .iter()
            .map(|name| name.trim_end_matches("_bytes_per_s"));
        assert!(words.into_iter().eq(names));
        assert!(lines[5].contains(" phantom_drain 9mbit "), "{}", lines[5]);
    }

    #[test]
    fn help_fits_a_screen() {
        let help = help();
        assert!(help.lines().count() <= 30);
        assert!(help.lines().all(|line| line.len() <= 100));
    }
}
