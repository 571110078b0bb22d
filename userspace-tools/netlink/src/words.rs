// SPDX-License-Identifier: GPL-2.0
//! Options of any qdisc in tc's syntax and units: NAME VALUE NAME VALUE...

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use crate::units::{Fraction, PPM, Rate, Size};

/// A word of the syntax: parses, prints and converts one option.
pub struct Word<O> {
    /// Word as typed and printed.
    pub name: &'static str,
    pub(crate) set: fn(&mut O, &str) -> Result<(), String>,
    /// Returns the value in a form that can be parsed; None if it is not set.
    pub get: fn(&O) -> Option<String>,
    /// Returns key, with its unit, and value.
    pub json: fn(&O) -> Option<(&'static str, Value)>,
}

/// Builds the word of one field; the last argument is the type that parses and prints it.
macro_rules! word {
    ($options:ty, $name:literal, $field:ident, $($text:tt)+) => {
        Word {
            name: $name,
            set: |options: &mut $options, text| {
                options.$field = Some(<$($text)+ as Textual<_>>::read(text)?);
                Ok(())
            },
            get: |options: &$options| Some(<$($text)+ as Textual<_>>::print(options.$field.as_ref()?)),
            json: |options: &$options| Some((
                stringify!($field),
                <$($text)+ as Textual<_>>::json(options.$field.as_ref()?),
            )),
        }
    };
}
pub(crate) use word;

/// Text form of a wire value of type `T`.
pub(crate) trait Textual<T> {
    fn read(text: &str) -> Result<T, String>;
    fn print(value: &T) -> String;
    fn json(value: &T) -> Value;
}

pub(crate) struct Bytes;
pub(crate) struct Plain;
pub(crate) struct Named;
pub(crate) struct Switch;
pub(crate) struct Name;
pub(crate) struct Factor;
pub(crate) struct Count;

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

/// The kernel's unit is bytes per second, tc's bits per second.
impl Textual<u64> for Rate {
    fn read(text: &str) -> Result<u64, String> {
        match text.parse::<Rate>()?.0 {
            // These would round to 0, which has another meaning.
            1..8 => Err(format!("'{text}' is below 1 byte per second, {}", Rate(8))),
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
        if (0.0..=f64::from(u32::MAX)).contains(&ppm) { Ok(ppm.round() as u32) } else { Err(bad()) }
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
        text.parse().map_err(|_| format!("'{text}' is not a number of bytes"))
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

/// Pool name. `none` stands for no pool, so no pool can have that name.
impl Textual<String> for Name {
    fn read(text: &str) -> Result<String, String> {
        Ok(match text {
            "none" => String::new(),
            // The kernel limits the length of names; this only keeps the attribute encodable.
            name if name.len() > 255 => return Err("the name is longer than 255 bytes".to_owned()),
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
        text.parse().map_err(|_| format!("'{text}' is not a 64-bit number"))
    }
    fn print(value: &u64) -> String {
        value.to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

/// An error in a list of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// Unknown option.
    Unknown(String),
    /// Option without a value at the end.
    NoValue(String),
    /// Invalid value: option, value, reason.
    Value(&'static str, String, String),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(f, "unknown option '{word}'"),
            Self::NoValue(name) => write!(f, "'{name}' has no value"),
            Self::Value(name, _, why) => write!(f, "{name}: {why}"),
        }
    }
}

/// Parses NAME VALUE NAME VALUE...
pub(crate) fn read<O: Default, S: AsRef<str>>(
    known: &[Word<O>],
    words: &[S],
) -> Result<O, Mistake> {
    let mut options = O::default();
    for pair in words.chunks(2) {
        let name = pair[0].as_ref();
        let word = known
            .iter()
            .find(|word| word.name == name)
            .ok_or_else(|| Mistake::Unknown(name.to_owned()))?;
        let [_, value] = pair else {
            return Err(Mistake::NoValue(name.to_owned()));
        };
        (word.set)(&mut options, value.as_ref())
            .map_err(|why| Mistake::Value(word.name, value.as_ref().to_owned(), why))?;
    }
    Ok(options)
}

/// Returns the options that are set as words, in the order of printing.
pub(crate) fn to_words<O>(
    known: &'static [Word<O>],
    options: &O,
) -> impl Iterator<Item = (&'static str, String)> {
    known.iter().filter_map(move |word| Some((word.name, (word.get)(options)?)))
}

/// Returns the options that are set as JSON; keys contain the units.
pub(crate) fn to_json<O>(
    known: &'static [Word<O>],
    options: &O,
) -> impl Iterator<Item = (&'static str, Value)> {
    known.iter().filter_map(move |word| (word.json)(options))
}

/// Checks that the synopsis of a manual page has each word.
#[cfg(test)]
pub(crate) fn check_synopsis<O>(known: &[Word<O>], page: &str) {
    let synopsis = page.split(".SH ").find(|it| it.starts_with("SYNOPSIS"));
    let synopsis = synopsis.expect("in the page");
    for word in known {
        let optional = format!(".RB \"[ \" {}", word.name);
        let must_be_given = format!(".BI {} ", word.name);
        let is_of_it = |line: &str| line == optional || line.starts_with(&must_be_given);
        assert!(synopsis.lines().any(is_of_it), "{}", word.name);
    }
}
