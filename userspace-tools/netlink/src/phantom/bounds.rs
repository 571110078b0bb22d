// SPDX-License-Identifier: GPL-2.0
//! Bounds of options: a copy of modules/net/sched/phantom_options.rs, which the tests below compare.

use super::Options;
use crate::bounds::{self, Bound, MOST_BYTES, PPM, Refusal};

const BOUNDS: &[Bound] = &[
    ("limit", 1, MOST_BYTES, 1_000_000),
    ("overhead", -64, 256, 0),
    ("mpu", 0, 256, 0),
    ("phantom", 1, i64::MAX, 22_400_000),
    ("drain", 1, PPM, 900_000),
    ("pmin", 0, PPM, 20_000),
    ("pmax", 0, PPM, 600_000),
    ("min", 0, PPM, 250_000),
    ("max", 0, PPM, 750_000),
    ("pool-alpha", 1, MOST_BYTES, 1_000_000),
];

/// Pairs of options; the first must not exceed the second.
const ORDERED: &[(&str, &str)] = &[("pmin", "pmax"), ("min", "max")];

impl Options {
    fn number(&self, word: &str) -> Option<i64> {
        let small = |number: Option<u32>| number.map(i64::from);
        match word {
            "limit" => small(self.limit_bytes),
            "overhead" => self.overhead_bytes.map(i64::from),
            "mpu" => small(self.mpu_bytes),
            "phantom" => {
                self.phantom_limit_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
            }
            "drain" => small(self.drain_ppm),
            "pmin" => small(self.pmin_ppm),
            "pmax" => small(self.pmax_ppm),
            "min" => small(self.min_ppm),
            "max" => small(self.max_ppm),
            "pool-alpha" => small(self.pool_alpha_ppm),
            _ => None,
        }
    }

    /// Returns the option that the kernel would refuse, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, Refusal)> {
        let print = |bound: &Bound, number: i64| match bound.2 {
            PPM => percent(number),
            _ => number.to_string(),
        };
        bounds::check(BOUNDS, |word| self.number(word), print)?;
        for &(low, high) in ORDERED {
            let value = |word: &str| {
                let default = BOUNDS.iter().find(|bound| bound.0 == word);
                let default = default.map_or(0, |bound| bound.3);
                (self.number(word).unwrap_or(default), self.number(word).is_none())
            };
            let ((least, _), (most, is_default)) = (value(low), value(high));
            if least > most {
                let by = if is_default { ", its default" } else { "" };
                return Err((
                    if self.number(low).is_some() { low } else { high },
                    Refusal {
                        sentence: format!(
                            "'{low}' is {}, above '{high}', {}{by}",
                            percent(least),
                            percent(most)
                        ),
                        range: format!("'{low}' at or below '{high}'"),
                    },
                ));
            }
        }
        Ok(())
    }
}

fn percent(ppm: i64) -> String {
    format!("{}%", ppm as f64 / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = include_str!("../../../../modules/net/sched/phantom_options.rs");

    #[test]
    fn bounds_match_the_module() {
        let constants = [
            ("MAX_LIMIT_BYTES", MOST_BYTES),
            ("u32::MAX as i64", MOST_BYTES),
            ("MAX_PPM", PPM),
            ("i64::MAX", i64::MAX),
        ];
        bounds::compare(BOUNDS, MODULE, &constants);
        for (low, high) in ORDERED {
            assert!(MODULE.contains(&format!("{low} must not exceed {high}")));
        }
    }

    #[test]
    fn check_refuses_what_the_kernel_refuses() {
        let check = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            Options::from_words(&words).unwrap().check()
        };
        for line in ["", "drain 90% pmin 2% pmax 2%", "min 0% max 0%", "limit 1b"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for (line, word) in [
            ("drain 0", "drain"),
            ("phantom 0b", "phantom"),
            ("limit 0b", "limit"),
            ("pmin 60% pmax 2%", "pmin"),
            ("pmin 61%", "pmin"),
            ("max 24%", "max"),
            ("overhead 300", "overhead"),
            ("pool-alpha 0", "pool-alpha"),
        ] {
            assert_eq!(check(line).unwrap_err().0, word, "{line}");
        }
    }
}
