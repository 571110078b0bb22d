// SPDX-License-Identifier: GPL-2.0
//! Quantities in scenarios. Rates, times and fractions have tc's syntax; sizes do not: 1 kB is
//! 1,000 bytes, as in tables, and 1 KiB 1,024.

use std::fmt;
use std::str::FromStr;

use xdc_netlink::deserialize_text;
use xdc_netlink::units::{Unit, parse, print};

pub use xdc_netlink::units::{Fraction, PPM, Rate, Time};

/// A size in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const SIZE_UNITS: &[Unit] = &[
    ("b", 1),
    ("", 1),
    ("k", 1_000),
    ("kb", 1_000),
    ("ki", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mi", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gi", 1 << 30),
    ("gib", 1 << 30),
];

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, SIZE_UNITS, "size", "500kB").map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: &[Unit] = &[
            ("B", 1),
            ("kB", 1_000),
            ("KiB", 1 << 10),
            ("MB", 1_000_000),
            ("MiB", 1 << 20),
            ("GB", 1_000_000_000),
            ("GiB", 1 << 30),
        ];
        print(f, self.0, UNITS)
    }
}

deserialize_text!(Size, "a size, such as 500kB", i64 as visit_i64, u64 as visit_u64);

/// A size of a port: in bytes, or in BDPs of the port's rate and the longest base RTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Bytes(Size),
    /// In millionths of a BDP.
    Bdp(u64),
}

/// Maximum number of BDPs; larger products would overflow.
const MOST_BDP: f64 = 1e6;

impl Amount {
    pub fn is_bdp(self) -> bool {
        matches!(self, Self::Bdp(_))
    }

    /// Converts to bytes, given the BDP in bytes.
    pub fn bytes(self, bdp_bytes: u64) -> Size {
        match self {
            Self::Bytes(size) => size,
            Self::Bdp(ppm) => {
                let bytes = u128::from(bdp_bytes) * u128::from(ppm) / u128::from(PPM);
                Size(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }
}

impl FromStr for Amount {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let Some(number) = lower.strip_suffix("bdp") else {
            return text.parse().map(Self::Bytes);
        };
        let count = number.trim().parse::<f64>().ok();
        let count = count.filter(|count| *count > 0.0 && *count <= MOST_BDP);
        count
            .map(|count| Self::Bdp((count * f64::from(PPM)).round() as u64))
            .filter(|amount| *amount != Self::Bdp(0))
            .ok_or_else(|| format!("'{text}' is not a number of BDPs (example: 1.5bdp)"))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::Bdp(ppm) => write!(f, "{}bdp", *ppm as f64 / f64::from(PPM)),
        }
    }
}

deserialize_text!(Amount, "a size, such as 500kB or 1bdp", i64 as visit_i64, u64 as visit_u64);

/// Implements the schema of a text with its own syntax.
#[macro_export]
macro_rules! text_schema {
    ($type:ty, $name:literal, $types:tt, $pattern:literal, $description:literal) => {
        impl $crate::schemars::JsonSchema for $type {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::schemars::json_schema!({
                    "description": $description,
                    "type": $types,
                    "pattern": $pattern
                })
            }
        }
    };
}

text_schema!(
    Size,
    "Size",
    ["string", "integer"],
    "^[0-9.]+ ?([kKmMgG]?[iI]?[bB]?)$",
    "A size: 500kB is 500,000 bytes, 4KiB is 4,096; a number alone is bytes."
);
text_schema!(
    Amount,
    "Amount",
    ["string", "integer"],
    "^[0-9.]+ ?([kKmMgG]?[iI]?[bB]?|[bB][dD][pP])$",
    "A size, such as 500kB, or a number of bandwidth-delay products, such as 1bdp."
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::seeded;

    #[test]
    fn kb_is_1000_bytes_in_any_case() {
        for (text, bytes) in [
            ("500kb", 500_000),
            ("500kB", 500_000),
            ("500KB", 500_000),
            ("500KiB", 512_000),
            ("1.5mb", 1_500_000),
            ("250MiB", 262_144_000),
            ("2gib", 2 << 30),
            ("1000000b", 1_000_000),
            ("7", 7),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["5x", "-1kb", "kb", "1kbit", "18446744073709551615gb"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(500_000).to_string(), "500kB");
        assert_eq!(Size(16 << 20).to_string(), "16MiB");
    }

    #[test]
    fn an_amount_is_in_bytes_or_bdps() {
        let bytes = |text: &str| text.parse::<Amount>().map(|it| it.bytes(1_000));
        assert_eq!(bytes("3kB"), Ok(Size(3_000)));
        assert_eq!(bytes("1bdp"), Ok(Size(1_000)));
        assert_eq!(bytes("0.25 BDP"), Ok(Size(250)));
        for text in ["0bdp", "-1bdp", "bdp", "1e9bdp", "nanbdp"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        let printed = "2.5bdp".parse::<Amount>().unwrap().to_string();
        assert_eq!(printed, "2.5bdp");
    }

    proptest! {
        #![proptest_config(seeded())]

        #[test]
        fn printed_values_parse_back(
            bytes in prop_oneof![any::<u64>(), (0..100_000u64).prop_map(|n| n << 20)],
            bdp_ppm in 1..=(MOST_BDP as u64) * u64::from(PPM),
        ) {
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
            let amount = Amount::Bdp(bdp_ppm);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[-+0-9.eE]{0,25} ?[a-zA-Z]{0,5}|\\PC{0,20}") {
            if let Ok(amount) = text.parse::<Amount>() {
                prop_assert_eq!(amount.to_string().parse(), Ok(amount));
                amount.bytes(u64::MAX);
            }
        }
    }

    #[test]
    fn an_error_about_a_missing_unit_has_an_example() {
        #[derive(Debug, serde::Deserialize)]
        struct Keys {
            #[allow(dead_code)]
            time: Option<Time>,
            #[allow(dead_code)]
            rate: Option<Rate>,
            size: Option<Size>,
            share: Option<Fraction>,
        }
        let said = |text: &str| toml::from_str::<Keys>(text).unwrap_err().to_string();
        assert!(said("time = 2").contains("a time with a unit, such as 2s"));
        assert!(said("rate = 1e9").contains("a rate with a unit, such as 10gbit"));
        assert!(said("size = true").contains("a size, such as 500kB"));
        assert!(said("rate = '-1gbit'").contains("below 0"));
        let keys: Keys = toml::from_str("size = 500000\nshare = 1").unwrap();
        assert_eq!(keys.size, Some(Size(500_000)));
        assert_eq!(keys.share, Some(Fraction(PPM)));
    }
}
