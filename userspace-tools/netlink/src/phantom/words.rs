// SPDX-License-Identifier: GPL-2.0
//! The options in the words and units of tc's command line: what `xdc qdisc` and the plugin of
//! tc read, print and explain.

use std::{fmt, str::FromStr};

use serde_json::{Map, Value, json};

use super::{Color, ColorSource, Options};
use crate::units::{Fraction, PPM, Rate, Size};

/// Every option, a line each.
pub const OPTIONS_HELP: &str = "\
Options (SIZE 22400kb with k = 1024, RATE 10gbit, FRACTION 2% or 0.02):
  limit SIZE             physical queue
  rate RATE              shape to this; 0bit = do not
  overhead BYTES         added to each packet by the shaper
  mpu BYTES              the shaper counts no packet for less
  line-rate RATE         what the phantom queue drains relative to; 0bit = rate or the device's
  phantom SIZE           cap of the phantom queue
  drain FRACTION         of the line rate
  pmin, pmax FRACTION    RED on the phantom queue, of its cap
  min, max FRACTION      RED on the backlog, of the limit
  mark none|phantom|physical|either|both
  at enqueue|dequeue     when to mark
  ecn-drop on|off        drop a chosen packet that is Not-ECT
  count-acks on|off      pure ACKs enter the phantom queue too
  red-limit SIZE         room for red packets; 0b = no limit of their own
  yellow-limit SIZE      the same for yellow
  color-total on|off     colour limits count the whole backlog
  color none|dscp|priority|filter
  dscp-color DSCP:COLOR,...   green, yellow or red
  gso auto|split|whole
  pool NAME              shared buffer of this namespace
  pool-limit SIZE        its size
  pool-alpha FACTOR      this port may hold FACTOR x what is free
  seed NUMBER            where the random numbers of RED start; random unless given";

/// A word of the syntax: how its value is read into the options, printed, and put into JSON.
pub struct Word {
    /// As it is typed and printed.
    pub name: &'static str,
    set: fn(&mut Options, &str) -> Result<(), String>,
    /// The value as it can be typed back; None if the options have none.
    pub get: fn(&Options) -> Option<String>,
    /// Key, with its unit, and value.
    pub json: fn(&Options) -> Option<(&'static str, Value)>,
}

/// A field of the options as it is on the wire, and as a person reads and writes it.
macro_rules! word {
    ($name:literal, $field:ident, $($text:tt)+) => {
        Word {
            name: $name,
            set: |options, text| {
                options.$field = Some(<$($text)+ as Textual<_>>::read(text)?);
                Ok(())
            },
            get: |options| Some(<$($text)+ as Textual<_>>::print(options.$field.as_ref()?)),
            json: |options| Some((
                stringify!($field),
                <$($text)+ as Textual<_>>::json(options.$field.as_ref()?),
            )),
        }
    };
}

/// In the order of printing.
pub const WORDS: &[Word] = &[
    word!("limit", limit_bytes, Bytes),
    word!("rate", rate_bytes_per_s, Rate),
    word!("overhead", overhead_bytes, Plain),
    word!("mpu", mpu_bytes, Plain),
    word!("line-rate", line_rate_bytes_per_s, Rate),
    word!("phantom", phantom_limit_bytes, Bytes),
    word!("drain", drain_ppm, Fraction),
    word!("pmin", pmin_ppm, Fraction),
    word!("pmax", pmax_ppm, Fraction),
    word!("mark", mark, Named),
    word!("at", mark_at, Named),
    word!("min", min_ppm, Fraction),
    word!("max", max_ppm, Fraction),
    word!("ecn-drop", ecn_drop, Switch),
    word!("count-acks", count_acks, Switch),
    word!("red-limit", red_limit_bytes, Bytes),
    word!("yellow-limit", yellow_limit_bytes, Bytes),
    word!("color-total", color_total, Switch),
    word!("color", color_source, Named),
    // One word for two bitmaps.
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
            let colors: Map<_, _> = colors
                .map(|(dscp, color)| (dscp.to_string(), json!(color.to_string())))
                .collect();
            Some(("dscp_color", colors.into()))
        },
    },
    word!("gso", gso, Named),
    word!("pool", pool, Name),
    word!("pool-limit", pool_limit_bytes, Bytes),
    word!("pool-alpha", pool_alpha_ppm, Factor),
    word!("seed", seed, Count),
];

/// How a wire value of type `T` is written.
trait Textual<T> {
    fn read(text: &str) -> Result<T, String>;
    fn print(value: &T) -> String;
    fn json(value: &T) -> Value;
}

struct Bytes;
struct Plain;
struct Named;
struct Switch;
struct Name;
struct Factor;
struct Count;

impl Textual<u64> for Bytes {
    fn read(text: &str) -> Result<u64, String> {
        Ok(text.parse::<Size>()?.0)
    }
    fn print(value: &u64) -> String {
        Size(*value).to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

impl Textual<u32> for Bytes {
    fn read(text: &str) -> Result<u32, String> {
        let bytes = text.parse::<Size>()?.0;
        u32::try_from(bytes).map_err(|_| format!("'{text}' is above {}", Size(u32::MAX.into())))
    }
    fn print(value: &u32) -> String {
        Size((*value).into()).to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

/// The kernel counts bytes per second, tc bits.
impl Textual<u64> for Rate {
    fn read(text: &str) -> Result<u64, String> {
        match text.parse::<Rate>()?.0 {
            // 0 would mean something else.
            1..8 => Err(format!(
                "'{text}' is less than a byte per second, {}",
                Rate(8)
            )),
            bits => Ok(bits / 8),
        }
    }
    fn print(value: &u64) -> String {
        Rate(value.saturating_mul(8)).to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

impl Textual<u32> for Fraction {
    fn read(text: &str) -> Result<u32, String> {
        Ok(text.parse::<Fraction>()?.0)
    }
    fn print(value: &u32) -> String {
        Fraction(*value).to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

impl Textual<u32> for Factor {
    fn read(text: &str) -> Result<u32, String> {
        let bad = || format!("'{text}' is not a factor (example: 0.5)");
        let ppm = text.parse::<f64>().map_err(|_| bad())? * f64::from(PPM);
        if (0.0..=f64::from(u32::MAX)).contains(&ppm) {
            Ok(ppm.round() as u32)
        } else {
            Err(bad())
        }
    }
    fn print(value: &u32) -> String {
        (f64::from(*value) / f64::from(PPM)).to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

impl<T: FromStr + ToString + Copy + Into<i64>> Textual<T> for Plain {
    fn read(text: &str) -> Result<T, String> {
        text.parse()
            .map_err(|_| format!("'{text}' is not a number of bytes"))
    }
    fn print(value: &T) -> String {
        value.to_string()
    }
    fn json(value: &T) -> Value {
        json!(Into::<i64>::into(*value))
    }
}

impl<T: FromStr<Err = String> + ToString> Textual<T> for Named {
    fn read(text: &str) -> Result<T, String> {
        text.parse()
    }
    fn print(value: &T) -> String {
        value.to_string()
    }
    fn json(value: &T) -> Value {
        json!(value.to_string())
    }
}

impl Textual<bool> for Switch {
    fn read(text: &str) -> Result<bool, String> {
        match text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("'{text}' is neither on nor off")),
        }
    }
    fn print(value: &bool) -> String {
        if *value { "on" } else { "off" }.to_owned()
    }
    fn json(value: &bool) -> Value {
        json!(value)
    }
}

/// `none` is how no pool is written, so no pool can have that name.
impl Textual<String> for Name {
    fn read(text: &str) -> Result<String, String> {
        Ok(match text {
            "none" => String::new(),
            // The kernel says how long a name may be; no attribute holds one of any length.
            name if name.len() > 255 => return Err("the name is too long".to_owned()),
            name => name.to_owned(),
        })
    }
    fn print(value: &String) -> String {
        if value.is_empty() { "none" } else { value }.to_owned()
    }
    fn json(value: &String) -> Value {
        json!(value)
    }
}

impl Textual<u64> for Count {
    fn read(text: &str) -> Result<u64, String> {
        text.parse()
            .map_err(|_| format!("'{text}' is not a number of 64 bits"))
    }
    fn print(value: &u64) -> String {
        value.to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

/// Reads DSCP:COLOR,... into the bitmaps of the red and of the yellow ones.
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

/// The DSCPs that are not green; None if the options say nothing of them.
fn colors(options: &Options) -> Option<Vec<(u32, Color)>> {
    let (red, yellow) = (options.dscp_red?, options.dscp_yellow?);
    let color_of = |dscp: u32| match (red >> dscp & 1, yellow >> dscp & 1) {
        (1, _) => Some((dscp, Color::Red)),
        (_, 1) => Some((dscp, Color::Yellow)),
        _ => None,
    };
    Some((0..u64::BITS).filter_map(color_of).collect())
}

/// `0:green` if all are.
fn print_colors(colors: &[(u32, Color)]) -> String {
    let pairs: Vec<_> = colors
        .iter()
        .map(|(dscp, color)| format!("{dscp}:{color}"))
        .collect();
    if pairs.is_empty() {
        "0:green".to_owned()
    } else {
        pairs.join(",")
    }
}

/// What is wrong with a list of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// No option has that name.
    Unknown(String),
    /// The last word is an option.
    NoValue(String),
    /// The option does not take that value, and why.
    Value(&'static str, String, String),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(f, "what is '{word}'?"),
            Self::NoValue(name) => write!(f, "'{name}' has no value"),
            Self::Value(name, _, why) => write!(f, "{name}: {why}"),
        }
    }
}

impl Options {
    /// Reads NAME VALUE NAME VALUE...
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<Self, Mistake> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            let name = pair[0].as_ref();
            let word = WORDS
                .iter()
                .find(|word| word.name == name)
                .ok_or_else(|| Mistake::Unknown(name.to_owned()))?;
            let [_, value] = pair else {
                return Err(Mistake::NoValue(name.to_owned()));
            };
            (word.set)(&mut options, value.as_ref())
                .map_err(|why| Mistake::Value(word.name, value.as_ref().to_owned(), why))?;
        }
        // A table that nobody looks into would be a trap.
        if options.dscp_red.is_some() && options.color_source.is_none() {
            options.color_source = Some(ColorSource::Dscp);
        }
        Ok(options)
    }

    /// The words of every option that has a value, in the order of printing.
    pub fn to_words(&self) -> impl Iterator<Item = (&'static str, String)> {
        WORDS
            .iter()
            .filter_map(|word| Some((word.name, (word.get)(self)?)))
    }

    /// The same as keys with their units and JSON's values.
    pub fn to_json(&self) -> impl Iterator<Item = (&'static str, Value)> {
        WORDS.iter().filter_map(|word| (word.json)(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phantom::IDS;

    #[test]
    fn there_is_a_word_for_every_attribute() {
        // Colours of DSCPs are two attributes.
        assert_eq!(WORDS.len() + 1, IDS.len());
        for word in WORDS {
            assert!(OPTIONS_HELP.contains(word.name), "{}", word.name);
            assert_eq!(WORDS.iter().filter(|w| w.name == word.name).count(), 1);
        }
    }

    /// A value for each word, none of them what it is printed like without being read.
    const EVERY: &str = "limit 1000001b rate 8kbit overhead -14 mpu 64 line-rate 10gbit \
        phantom 22400kb drain 0.9 pmin 2% pmax 60% mark either at enqueue min 25% max 75% \
        ecn-drop on count-acks off red-limit 400kb yellow-limit 600kb color-total on \
        color priority dscp-color 8:red,10:yellow gso whole pool tor pool-limit 4mb \
        pool-alpha 0.5 seed 18446744073709551615";

    #[test]
    fn what_is_printed_is_read_back() {
        let words: Vec<_> = EVERY.split_whitespace().collect();
        let options = Options::from_words(&words).unwrap();
        let printed: Vec<_> = options
            .to_words()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        assert_eq!(printed.len(), 2 * WORDS.len());
        assert_eq!(Options::from_words(&printed), Ok(options.clone()));
        assert_eq!(Options::decode(&options.encode()).unwrap(), options);
        let json: Map<_, _> = options.to_json().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(json.len(), WORDS.len());
        assert_eq!(json["rate_bytes_per_s"], 1000);
        assert_eq!(json["dscp_color"], json!({"8": "red", "10": "yellow"}));
    }

    #[test]
    fn mistakes_are_told_apart() {
        let mistake = |words: &[&str]| Options::from_words(words).unwrap_err();
        assert_eq!(
            mistake(&["speed", "1gbit"]),
            Mistake::Unknown("speed".into())
        );
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
