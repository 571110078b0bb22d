// SPDX-License-Identifier: GPL-2.0
//! Options of any qdisc in tc's syntax and units: NAME VALUE NAME VALUE...

use std::{
    fmt::{self, Write as _},
    str::FromStr,
};

use serde_json::{Value, json};

use crate::{
    bounds::{Bounds, Refusal},
    units::{Fraction, PPM, Rate, Size, Time},
};

/// A word of the syntax: parses, prints and converts one option.
pub struct Word<O> {
    /// Word as typed and printed.
    pub name: &'static str,
    /// Form of the value, for help.
    pub(crate) form: &'static str,
    /// Meaning, for help.
    pub(crate) help: &'static str,
    pub(crate) set: fn(&mut O, &str) -> Result<(), String>,
    /// Returns the value in a form that can be parsed; None if it is not set.
    pub get: fn(&O) -> Option<String>,
    /// Returns key, with its unit, and value.
    pub json: fn(&O) -> Option<(&'static str, Value)>,
    /// Bounds and default.
    pub(crate) bounds: Option<(Bounds, i64)>,
    pub(crate) number: fn(&O) -> Option<i64>,
    /// Formats a number like the option's value.
    pub(crate) print: fn(i64) -> String,
}

/// Builds the word of one field; `text` is the type that parses and prints it.
macro_rules! word {
    ($options:ty, $name:literal, $field:ident: $type:ty, $text:ty, $help:expr, $bounds:expr) => {
        $crate::words::Word {
            name: $name,
            form: <$text as $crate::words::Textual<$type>>::FORM,
            help: $help,
            set: |options: &mut $options, text| {
                options.$field = Some(<$text as $crate::words::Textual<$type>>::read(text)?);
                Ok(())
            },
            get: |options: &$options| {
                Some(<$text as $crate::words::Textual<$type>>::print(options.$field.as_ref()?))
            },
            json: |options: &$options| {
                let value = options.$field.as_ref()?;
                let json = <$text as $crate::words::Textual<$type>>::json(value);
                Some((stringify!($field), json))
            },
            bounds: $bounds,
            number: |options: &$options| $crate::codec::Value::number(options.$field.as_ref()?),
            print: |number| {
                let value = <$type as $crate::codec::Value>::of_number(number);
                let print = <$text as $crate::words::Textual<$type>>::print;
                value.map_or_else(|| number.to_string(), |value| print(&value))
            },
        }
    };
}
pub(crate) use word;

/// Text form of a wire value of type `T`.
pub(crate) trait Textual<T> {
    /// Name of the form, for help.
    const FORM: &str;
    fn read(text: &str) -> Result<T, String>;
    fn print(value: &T) -> String;
    fn json(value: &T) -> Value {
        json!(Self::print(value))
    }
}

/// A value with a name.
pub(crate) trait Choice: FromStr<Err = String> + ToString {
    /// All names, with `|` after each.
    const FORM: &str;
}

pub(crate) struct Bytes;
pub(crate) struct Plain;
pub(crate) struct Named;
pub(crate) struct Switch;
pub(crate) struct Name;
pub(crate) struct Factor;
pub(crate) struct Count;
pub(crate) struct Number;
pub(crate) struct Dscps;

impl Textual<u64> for Bytes {
    const FORM: &str = "SIZE";
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
    const FORM: &str = "SIZE";
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
    const FORM: &str = "RATE";
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
    const FORM: &str = "FRACTION";
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
    const FORM: &str = "FACTOR";
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
    const FORM: &str = "BYTES";
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

impl<T: Choice> Textual<T> for Named {
    const FORM: &str = T::FORM;
    fn read(text: &str) -> Result<T, String> {
        text.parse()
    }
    fn print(value: &T) -> String {
        value.to_string()
    }
}

impl Textual<bool> for Switch {
    const FORM: &str = "on|off";
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
    const FORM: &str = "NAME";
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
    const FORM: &str = "NUMBER";
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

impl Textual<u32> for Number {
    const FORM: &str = "N";
    fn read(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| format!("'{text}' is not a 32-bit number"))
    }
    fn print(value: &u32) -> String {
        value.to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

impl Textual<i64> for Number {
    const FORM: &str = "NS";
    fn read(text: &str) -> Result<i64, String> {
        text.parse().map_err(|_| format!("'{text}' is not a number of nanoseconds"))
    }
    fn print(value: &i64) -> String {
        value.to_string()
    }
    fn json(value: &i64) -> Value {
        json!(value)
    }
}

impl Textual<u64> for Time {
    const FORM: &str = "TIME";
    fn read(text: &str) -> Result<u64, String> {
        Ok(text.parse::<Self>()?.0)
    }
    fn print(value: &u64) -> String {
        Self(*value).to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

/// Text of an empty list.
pub(crate) const NONE: &str = "none";

impl Textual<u64> for Dscps {
    const FORM: &str = "DSCP,...";
    fn read(text: &str) -> Result<u64, String> {
        if text == NONE {
            return Ok(0);
        }
        text.split(',').try_fold(0, |bits, dscp| {
            let bit = dscp.parse::<u32>().ok().and_then(|it| 1_u64.checked_shl(it));
            let bit = bit.ok_or_else(|| format!("'{dscp}' is not a DSCP from 0 to 63"))?;
            Ok(bits | bit)
        })
    }
    fn print(value: &u64) -> String {
        let dscps: Vec<_> = (0..u64::BITS).filter(|it| value >> it & 1 != 0).collect();
        list(&dscps, u32::to_string, NONE)
    }
}

pub(crate) fn list<T>(items: &[T], print: impl Fn(&T) -> String, none: &str) -> String {
    match items {
        [] => none.to_owned(),
        items => items.iter().map(print).collect::<Vec<_>>().join(","),
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

/// Returns the option that the kernel would refuse, and the reason.
pub(crate) fn check<O>(known: &[Word<O>], options: &O) -> Result<(), (&'static str, Refusal)> {
    for word in known {
        let Some((Bounds { min, max, .. }, _)) = word.bounds else { continue };
        if let Some(number) = (word.number)(options).filter(|it| !(min..=max).contains(it)) {
            let refusal = Refusal {
                sentence: format!("'{}' is {}", word.name, (word.print)(number)),
                range: format!("{} to {}", (word.print)(min), (word.print)(max)),
            };
            return Err((word.name, refusal));
        }
    }
    Ok(())
}

/// Returns a doc comment of one line as a comment elsewhere has it.
pub(crate) fn sentence(doc: &str) -> &str {
    doc.trim().trim_end_matches('.')
}

/// Returns help, a line per option.
pub(crate) fn help<O>(known: &[Word<O>]) -> String {
    let mut help = "Options (SIZE 500kb with k = 1024, RATE 10gbit, TIME 240us, FRACTION 2% or \
        0.02):\n"
        .to_owned();
    for Word { name, form, help: meaning, .. } in known {
        let form = form.trim_end_matches('|');
        let option = format!("{name} {form}");
        let meaning = sentence(meaning);
        writeln!(help, "  {option:<22} {meaning}").expect("a String has room");
    }
    help
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
