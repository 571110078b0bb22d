// SPDX-License-Identifier: GPL-2.0
//! Quantities in `tc` syntax: `10gbit`, `22400kb` (k = 1024), `1.792ms`, `2%`. Sizes in scenarios
//! have other units, with 1 kB = 1,000 bytes.
//!
//! Each type prints a form that parses to the same value.

use std::fmt;
use std::str::FromStr;

/// Bits per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// Parts per million; written as `2%`, or as the text or number `0.02`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(pub u32);

/// Implements Deserialize from a text, and from the given number types; the error names the
/// expected form.
#[macro_export]
macro_rules! deserialize_text {
    ($quantity:ty, $expected:literal $(, $number:ident as $visit:ident)*) => {
        impl<'de> ::serde::Deserialize<'de> for $quantity {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> ::std::result::Result<Self, D::Error> {
                struct Visitor;
                impl ::serde::de::Visitor<'_> for Visitor {
                    type Value = $quantity;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> ::std::result::Result<$quantity, E> {
                        text.parse().map_err(E::custom)
                    }
                    $(fn $visit<E: ::serde::de::Error>(self, n: $number) -> ::std::result::Result<$quantity, E> {
                        n.to_string().parse().map_err(E::custom)
                    })*
                }
                from.deserialize_any(Visitor)
            }
        }
    };
}
deserialize_text!(Bits, "a rate with a unit, such as 10gbit");
deserialize_text!(Time, "a time with a unit, such as 2s");
deserialize_text!(
    Fraction,
    "a fraction, such as 0.02 or 2%",
    i64 as visit_i64,
    u64 as visit_u64,
    f64 as visit_f64
);

/// A rate in a scenario: only in bits per second.
struct Bits(Rate);

impl FromStr for Bits {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let digits = text.trim_start_matches(is_number);
        let number = &text[..text.len() - digits.len()];
        let unit = digits.trim_start().to_ascii_lowercase();
        match text.parse() {
            Ok(rate) if !unit.ends_with("bps") => Ok(Self(rate)),
            Err(why) if number.is_empty() => Err(why),
            _ => {
                let prefix = unit.chars().next().filter(|c| "kmgt".contains(*c));
                let prefix = prefix.map_or(String::new(), String::from);
                Err(format!(
                    "'{text}' is not a rate in bits per second (write: {number}{prefix}bit)"
                ))
            }
        }
    }
}

impl<'de> ::serde::Deserialize<'de> for Rate {
    fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Bits::deserialize(from).map(|bits| bits.0)
    }
}

/// Parts per million in 1.
pub const PPM: u32 = 1_000_000;

/// A unit in lower case, and its factor to the smallest unit.
pub type Unit = (&'static str, u64);

/// Units of `tc`, including SI prefixes and bytes per second.
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

const TIME_UNITS: &[Unit] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a number and one of `units`, in any case; `what` names the quantity in errors.
pub fn parse(text: &str, units: &[Unit], what: &str, example: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err(format!("'{text}' is below 0: a {what} must not be negative"));
    }
    let bad = || format!("'{text}' is not a {what} (example: {example})");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
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

/// Prints in the largest of `units` that needs no fraction.
pub fn print(f: &mut fmt::Formatter<'_>, value: u64, units: &[Unit]) -> fmt::Result {
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

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Fraction, Rate, Time};

    macro_rules! schema {
        ($quantity:ty, $name:literal, $types:tt, $pattern:literal, $description:literal) => {
            impl JsonSchema for $quantity {
                fn schema_name() -> Cow<'static, str> {
                    $name.into()
                }
                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({
                        "description": $description,
                        "type": $types,
                        "pattern": $pattern
                    })
                }
            }
        };
    }
    schema!(
        Rate,
        "Rate",
        "string",
        "^[0-9.]+ ?[kKmMgGtT]?[bB][iI][tT]$",
        "A rate with a unit, such as 10gbit."
    );
    schema!(
        Time,
        "Time",
        "string",
        "^[0-9.]+ ?([nNuUmM]?[sS])$",
        "A time with a unit, such as 2s, 1.5ms, 20us or 820ns."
    );
    schema!(
        Fraction,
        "Fraction",
        ["string", "number"],
        "^[0-9.]+%?$",
        "A fraction, such as 0.02 or 2%."
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    #[test]
    fn units_of_tc_are_parsed() {
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

    /// tc reads `bps` as bytes per second, but most people mean bits.
    #[test]
    fn a_scenario_rate_must_be_in_bits() {
        let read = |text: &str| text.parse::<Bits>().map(|bits| bits.0);
        assert_eq!(read("100mbit"), Ok(Rate(100_000_000)));
        assert_eq!(read("1.5 Gbit"), Ok(Rate(1_500_000_000)));
        for (text, written) in [
            ("100Mbps", "100mbit"),
            ("800bps", "800bit"),
            ("1.5 Gbps", "1.5gbit"),
            ("100MB", "100mbit"),
            ("10Gb/s", "10gbit"),
            ("25G", "25gbit"),
            ("5", "5bit"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(&format!("write: {written})")), "{why}");
        }
        assert!(read("-1gbit").unwrap_err().contains("below 0"));
        assert!(read("fast").unwrap_err().contains("10gbit"));
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in ["", "10", "fast", "10gbitt", "-1gbit", "1.2.3gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["101%", "1.01", "-2%", "two"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        assert!("18446744073709551615gb".parse::<Size>().is_err());
        assert!("5".parse::<Time>().is_err());
    }

    /// Any number, and multiples of units.
    fn numbers() -> impl Strategy<Value = u64> {
        let units = prop::sample::select(vec![1, 8, 1_000, 1 << 10, 1_000_000, 1 << 20, 1 << 30]);
        prop_oneof![any::<u64>(), (0..100_000u64, units).prop_map(|(n, unit)| n * unit)]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn printed_values_parse_back(n in numbers(), ppm in 0..=PPM) {
            prop_assert_eq!(Rate(n).to_string().parse(), Ok(Rate(n)));
            prop_assert_eq!(Size(n).to_string().parse(), Ok(Size(n)));
            prop_assert_eq!(Time(n).to_string().parse(), Ok(Time(n)));
            prop_assert_eq!(Fraction(ppm).to_string().parse(), Ok(Fraction(ppm)));
        }

        #[test]
        fn a_fraction_of_a_unit_is_rounded_to_the_nearest(
            thousandths in 0..1_000_000u64,
            unit in prop::sample::select(RATE_UNITS),
        ) {
            let text = format!("{}.{:03}{}", thousandths / 1000, thousandths % 1000, unit.0);
            let bits = (thousandths * unit.1 + 500) / 1000;
            prop_assert_eq!(text.parse(), Ok(Rate(bits)), "{}", text);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[-+0-9.]{0,25} ?[a-zA-Z%]{0,6}|\\PC{0,20}") {
            if let Ok(rate) = text.parse::<Rate>() {
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
            if let Ok(time) = text.parse::<Time>() {
                prop_assert_eq!(time.to_string().parse(), Ok(time));
            }
            if let Ok(fraction) = text.parse::<Fraction>() {
                prop_assert!(fraction <= Fraction(PPM));
            }
        }
    }

    #[test]
    fn the_largest_unit_without_a_fraction_is_printed() {
        assert_eq!(Rate(10_000_000_000).to_string(), "10gbit");
        assert_eq!(Size(22_937_600).to_string(), "22400kb");
        assert_eq!(Fraction(20_000).to_string(), "2%");
    }
}
