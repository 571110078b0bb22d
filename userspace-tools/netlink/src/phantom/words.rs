// SPDX-License-Identifier: GPL-2.0
//! Options in tc's syntax and units, for `xdc qdisc` and tc's plugin.

use serde_json::{Map, Value, json};

use super::{Color, ColorSource, Options};
use crate::{
    units::{Fraction, Rate},
    words::{self, Bytes, Count, Factor, Name, Named, Plain, Switch, Textual, Word, word},
};

pub use crate::words::Mistake;

/// Help text, one line per option.
pub const OPTIONS_HELP: &str = "\
Options (SIZE 22400kb with k = 1024, RATE 10gbit, FRACTION 2% or 0.02):
  limit SIZE             limit of the physical queue
  rate RATE              shaping rate; 0bit = not shaped
  overhead BYTES         bytes that the shaper adds to each packet
  mpu BYTES              minimum length of a packet in the shaper
  line-rate RATE         reference for drain; 0bit = rate, or the device's rate
  phantom SIZE           cap of the phantom queue
  drain FRACTION         drain rate of the phantom queue, of line-rate
  pmin, pmax FRACTION    RED thresholds on the phantom queue, of its cap
  min, max FRACTION      RED thresholds on the backlog, of the limit
  mark none|phantom|physical|either|both
  at enqueue|dequeue     when to mark
  ecn-drop on|off        drop Not-ECT packets that RED chooses
  count-acks on|off      pure ACKs also fill the phantom queue
  red-limit SIZE         own limit of red packets; 0b = none
  yellow-limit SIZE      own limit of yellow packets; 0b = none
  color-total on|off     color limits count the whole backlog
  color none|dscp|priority|filter
  dscp-color DSCP:COLOR,...   green, yellow or red
  gso auto|split|whole
  pool NAME              shared buffer of this namespace
  pool-limit SIZE        size of the pool
  pool-alpha FACTOR      limit of this port: FACTOR x free part of the pool
  seed NUMBER            seed of RED's random numbers; random if not given";

/// Options in the order of printing.
pub const WORDS: &[Word<Options>] = &[
    word!(Options, "limit", limit_bytes, Bytes),
    word!(Options, "rate", rate_bytes_per_s, Rate),
    word!(Options, "overhead", overhead_bytes, Plain),
    word!(Options, "mpu", mpu_bytes, Plain),
    word!(Options, "line-rate", line_rate_bytes_per_s, Rate),
    word!(Options, "phantom", phantom_limit_bytes, Bytes),
    word!(Options, "drain", drain_ppm, Fraction),
    word!(Options, "pmin", pmin_ppm, Fraction),
    word!(Options, "pmax", pmax_ppm, Fraction),
    word!(Options, "mark", mark, Named),
    word!(Options, "at", mark_at, Named),
    word!(Options, "min", min_ppm, Fraction),
    word!(Options, "max", max_ppm, Fraction),
    word!(Options, "ecn-drop", ecn_drop, Switch),
    word!(Options, "count-acks", count_acks, Switch),
    word!(Options, "red-limit", red_limit_bytes, Bytes),
    word!(Options, "yellow-limit", yellow_limit_bytes, Bytes),
    word!(Options, "color-total", color_total, Switch),
    word!(Options, "color", color_source, Named),
    // One word sets two bitmaps.
    Word {
        name: "dscp-color",
        set: |options, text| {
            let (red, yellow) = read_colors(text)?;
            (options.dscp_red, options.dscp_yellow) = (Some(red), Some(yellow));
            Ok(())
        },
        get: |options| Some(print_colors(&colors(options)?)),
        json: |options| {
            let colors = colors(options)?.into_iter();
            let colors: Map<_, _> =
                colors.map(|(dscp, color)| (dscp.to_string(), json!(color.to_string()))).collect();
            Some(("dscp_color", colors.into()))
        },
    },
    word!(Options, "gso", gso, Named),
    word!(Options, "pool", pool, Name),
    word!(Options, "pool-limit", pool_limit_bytes, Bytes),
    word!(Options, "pool-alpha", pool_alpha_ppm, Factor),
    word!(Options, "seed", seed, Count),
];

/// Parses DSCP:COLOR,... into the bitmaps of red and yellow DSCPs.
fn read_colors(text: &str) -> Result<(u64, u64), String> {
    let (mut red, mut yellow) = (0, 0);
    for pair in text.split(',') {
        let bad = || format!("'{pair}' is not DSCP:COLOR (example: 8:red)");
        let (dscp, color) = pair.split_once(':').ok_or_else(bad)?;
        let bit = dscp
            .parse::<u32>()
            .ok()
            .and_then(|dscp| 1_u64.checked_shl(dscp))
            .ok_or_else(|| format!("'{dscp}' is not a DSCP from 0 to 63"))?;
        (red, yellow) = (red & !bit, yellow & !bit);
        match color.parse()? {
            Color::Green => {}
            Color::Yellow => yellow |= bit,
            Color::Red => red |= bit,
        }
    }
    Ok((red, yellow))
}

/// Returns the DSCPs that are not green; None if the options have no table.
fn colors(options: &Options) -> Option<Vec<(u32, Color)>> {
    let (red, yellow) = (options.dscp_red?, options.dscp_yellow?);
    let color_of = |dscp: u32| match (red >> dscp & 1, yellow >> dscp & 1) {
        (1, _) => Some((dscp, Color::Red)),
        (_, 1) => Some((dscp, Color::Yellow)),
        _ => None,
    };
    Some((0..u64::BITS).filter_map(color_of).collect())
}

/// Formats a color table; `0:green` for an empty one.
fn print_colors(colors: &[(u32, Color)]) -> String {
    let pairs: Vec<_> = colors.iter().map(|(dscp, color)| format!("{dscp}:{color}")).collect();
    if pairs.is_empty() { "0:green".to_owned() } else { pairs.join(",") }
}

impl Options {
    /// Reads NAME VALUE NAME VALUE...
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<Self, Mistake> {
        let mut options: Self = words::read(WORDS, words)?;
        // A table is useless without its source of colors, so select the source, too.
        if options.dscp_red.is_some() && options.color_source.is_none() {
            options.color_source = Some(ColorSource::Dscp);
        }
        Ok(options)
    }

    /// Returns the options that are set as words, in the order of printing.
    pub fn to_words(&self) -> impl Iterator<Item = (&'static str, String)> {
        words::to_words(WORDS, self)
    }

    /// Returns the options that are set as JSON; keys contain the units.
    pub fn to_json(&self) -> impl Iterator<Item = (&'static str, Value)> {
        words::to_json(WORDS, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phantom::IDS;

    #[test]
    fn every_attribute_has_a_word() {
        // The colors of DSCPs are two attributes.
        assert_eq!(WORDS.len() + 1, IDS.len());
        for word in WORDS {
            assert!(OPTIONS_HELP.contains(word.name), "{}", word.name);
            assert_eq!(WORDS.iter().filter(|w| w.name == word.name).count(), 1);
        }
        words::check_synopsis(WORDS, include_str!("../../../../docs/man/tc-phantom.8"));
    }

    /// A value for each word that differs from its default text.
    const EVERY: &str = "limit 1000001b rate 8kbit overhead -14 mpu 64 line-rate 10gbit \
        phantom 22400kb drain 0.9 pmin 2% pmax 60% mark either at enqueue min 25% max 75% \
        ecn-drop on count-acks off red-limit 400kb yellow-limit 600kb color-total on \
        color priority dscp-color 8:red,10:yellow gso whole pool tor pool-limit 4mb \
        pool-alpha 0.5 seed 18446744073709551615";

    #[test]
    fn printed_words_parse_back() {
        let words: Vec<_> = EVERY.split_whitespace().collect();
        let options = Options::from_words(&words).unwrap();
        let printed: Vec<_> =
            options.to_words().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        assert_eq!(printed.len(), 2 * WORDS.len());
        assert_eq!(Options::from_words(&printed), Ok(options.clone()));
        assert_eq!(Options::decode(&options.encode()).unwrap(), options);
        let json: Map<_, _> = options.to_json().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(json.len(), WORDS.len());
        assert_eq!(json["rate_bytes_per_s"], 1000);
        assert_eq!(json["dscp_color"], json!({"8": "red", "10": "yellow"}));
    }

    #[test]
    fn each_mistake_has_its_variant() {
        let mistake = |words: &[&str]| Options::from_words(words).unwrap_err();
        assert_eq!(mistake(&["speed", "1gbit"]), Mistake::Unknown("speed".into()));
        assert_eq!(mistake(&["limit"]), Mistake::NoValue("limit".into()));
        let long = "x".repeat(70_000);
        for (name, value) in [
            ("mark", "maybe"),
            ("drain", "1.5"),
            ("pool", long.as_str()),
            ("limit", "4gb"),
            ("rate", "7bit"),
            ("seed", "-1"),
            ("dscp-color", "64:red"),
        ] {
            assert!(matches!(mistake(&[name, value]), Mistake::Value(n, v, _)
                if n == name && v == value));
        }
    }
}
