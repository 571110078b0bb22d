// SPDX-License-Identifier: GPL-2.0
//! Quantities as `tc` writes them: `10gbit`, `22400kb` (k = 1024), `1.792ms`, `2%`.
//!
//! Each type prints in a form that it reads back to the same value.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// Bits per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Rate(pub u64);

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

/// Nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Time(pub u64);

/// Parts per million; written `2%` or `0.02`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Fraction(pub u32);

/// One, in parts per million.
pub const PPM: u32 = 1_000_000;

type Unit = (&'static str, u64);

/// What `tc` understands; SI prefixes and bytes per second too.
const RATE_UNITS: &[Unit] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
    ("bps", 8),
    ("kbps", 8_000),
    ("mbps", 8_000_000),
    ("gbps", 8_000_000_000),
];

const SIZE_UNITS: &[Unit] = &[
    ("b", 1),
    ("", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
];

const TIME_UNITS: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

fn parse(text: &str, units: &[Unit], what: &str, example: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a {what} (example: {example})");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = units
        .iter()
        .find_map(|&(name, factor)| (name == unit).then_some(factor))
        .ok_or_else(bad)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(bad);
    }
    let value = number.parse::<f64>().map_err(|_| bad())? * factor as f64;
    if value > u64::MAX as f64 {
        return Err(bad());
    }
    Ok(value.round() as u64)
}

/// Print in the largest of `units` that needs no fraction.
fn print(f: &mut fmt::Formatter<'_>, value: u64, units: &[Unit]) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .rev()
        .find(|(_, factor)| value != 0 && value.is_multiple_of(*factor))
        .unwrap_or(&units[0]);
    write!(f, "{}{name}", value / factor)
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, RATE_UNITS, "rate", "10gbit").map(Self)
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, SIZE_UNITS, "size", "22400kb").map(Self)
    }
}

impl FromStr for Time {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, TIME_UNITS, "time", "200us").map(Self)
    }
}

impl FromStr for Fraction {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a fraction from 0 to 1 (examples: 2%, 0.02)");
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, f64::from(PPM) / 100.0),
            None => (text, f64::from(PPM)),
        };
        let ppm = number.parse::<f64>().map_err(|_| bad())? * scale;
        if !(0.0..=f64::from(PPM)).contains(&ppm) {
            return Err(bad());
        }
        Ok(Self(ppm.round() as u32))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, &RATE_UNITS[..5])
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: &[Unit] = &[("b", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
        print(f, self.0, UNITS)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, TIME_UNITS)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / f64::from(PPM / 100))
    }
}

macro_rules! from_string {
    ($($quantity:ty),*) => {$(
        impl TryFrom<String> for $quantity {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}
from_string!(Rate, Size, Time, Fraction);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_tc_reads() {
        assert_eq!("10gbit".parse(), Ok(Rate(10_000_000_000)));
        assert_eq!("1.5Mbit".parse(), Ok(Rate(1_500_000)));
        assert_eq!("10mbps".parse(), Ok(Rate(80_000_000)));
        assert_eq!("22400kb".parse(), Ok(Size(22400 * 1024)));
        assert_eq!("1000000b".parse(), Ok(Size(1_000_000)));
        assert_eq!("1000000".parse(), Ok(Size(1_000_000)));
        assert_eq!("1.792ms".parse(), Ok(Time(1_792_000)));
        assert_eq!("13.332us".parse(), Ok(Time(13_332)));
        assert_eq!("2%".parse(), Ok(Fraction(20_000)));
        assert_eq!("0.952".parse(), Ok(Fraction(952_000)));
    }

    #[test]
    fn refuses_what_has_no_meaning() {
        for text in ["", "10", "fast", "10gbitt", "-1gbit", "1.2.3gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["101%", "1.01", "-2%", "two"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        assert!("18446744073709551615gb".parse::<Size>().is_err());
        assert!("5".parse::<Time>().is_err());
    }

    #[test]
    fn what_is_printed_reads_back() {
        for n in [
            0,
            1,
            999,
            1000,
            1024,
            81920,
            1_000_000,
            22_937_600,
            u64::MAX,
        ] {
            assert_eq!(Rate(n).to_string().parse(), Ok(Rate(n)));
            assert_eq!(Size(n).to_string().parse(), Ok(Size(n)));
            assert_eq!(Time(n).to_string().parse(), Ok(Time(n)));
        }
        for ppm in [0, 1, 20_000, 33_333, 952_000, PPM] {
            assert_eq!(Fraction(ppm).to_string().parse(), Ok(Fraction(ppm)));
        }
        assert_eq!(Rate(10_000_000_000).to_string(), "10gbit");
        assert_eq!(Fraction(20_000).to_string(), "2%");
    }
}
