// SPDX-License-Identifier: GPL-2.0
//! Differentiated services code points, by number or by the names of the RFCs.

use std::collections::HashMap;
use std::str::FromStr;

use xdc_base::error::Result;
use xdc_base::text_schema;
use xdc_netlink::deserialize_text;

use crate::budget::Budget;
use crate::{Scenario, expand};

/// Six bits of the IP header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dscp(pub u8);

const MOST: u8 = 63;

impl FromStr for Dscp {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let name = text.to_ascii_lowercase();
        named(&name)
            .or_else(|| name.parse().ok())
            .filter(|&number| number <= MOST)
            .map(Self)
            .ok_or_else(|| {
                format!("'{text}' is not a DSCP (0 to {MOST}, cs0 to cs7, af11 to af43, ef, le)")
            })
    }
}

/// DSCPs of flows by sending host, from `[host]`.
pub fn of_hosts(budget: &Budget, scenario: &Scenario) -> Result<HashMap<String, Dscp>> {
    let mut dscps = HashMap::new();
    for (pattern, spec) in &scenario.host {
        if let Some(dscp) = spec.dscp {
            dscps.extend(expand(budget, pattern)?.into_iter().map(|name| (name, dscp)));
        }
    }
    Ok(dscps)
}

/// Code point of a name in RFC 2474, 2597, 3246 or 8622.
fn named(name: &str) -> Option<u8> {
    let digit = |c: char, range: std::ops::RangeInclusive<u32>| {
        let digit = c.to_digit(10).filter(|digit| range.contains(digit))?;
        u8::try_from(digit).ok()
    };
    let mut digits = name.get(2..)?.chars();
    match (name.get(..2)?, digits.next(), digits.next(), digits.next()) {
        ("ef", None, ..) => Some(46),
        ("le", None, ..) => Some(1),
        ("cs", Some(class), None, _) => Some(8 * digit(class, 0..=7)?),
        ("af", Some(class), Some(drop), None) => {
            Some(8 * digit(class, 1..=4)? + 2 * digit(drop, 1..=3)?)
        }
        _ => None,
    }
}

deserialize_text!(Dscp, "a DSCP, such as 8 or af11", i64 as visit_i64, u64 as visit_u64);

text_schema!(
    Dscp,
    "Dscp",
    ["string", "integer"],
    "^([0-9]+|[cC][sS][0-7]|[aA][fF][1-4][1-3]|[eE][fF]|[lL][eE])$",
    "A DSCP: 0 to 63, cs0 to cs7, af11 to af43, ef or le."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_names_follow_the_rfcs() {
        for (text, number) in [
            ("0", 0),
            ("63", 63),
            ("ef", 46),
            ("EF", 46),
            ("le", 1),
            ("cs1", 8),
            ("cs7", 56),
            ("af11", 10),
            ("af43", 38),
        ] {
            assert_eq!(text.parse(), Ok(Dscp(number)), "{text}");
        }
        for text in ["64", "-1", "", "af", "af14", "af51", "cs8", "efx", "af111", "é1"] {
            assert!(text.parse::<Dscp>().is_err(), "{text}");
        }
    }
}
