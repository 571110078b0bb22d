// SPDX-License-Identifier: GPL-2.0
//! Converts a TOML table to a [`Scenario`] and reports every invalid key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Error as TomlError, ValueDeserializer};
use toml::{Spanned, Table, Value};
use xdc_base::error::{Error, Key};

use super::Scenario;
use super::check::MOST_MISTAKES;
use super::load::advised;

/// Maximum bytes parsed, since each mistake parses the whole text again.
const MOST_READ_BYTES: usize = 4 << 20;

/// Prefix of serde's message for a missing key.
const MISSING: &str = "missing field `";

/// Placeholders for a missing or invalid value, so that the rest can be parsed.
fn fillers() -> Vec<Value> {
    let texts = ["x", "1mbit", "1ms", "1kB", "cubic", "incast", "drops"];
    let mut fillers: Vec<_> = texts.map(|text| Value::String(text.to_owned())).into();
    fillers.extend([
        Value::Integer(1),
        Value::Boolean(true),
        Value::Array(Vec::new()),
        Value::Table(Table::new()),
    ]);
    fillers
}

/// Returns the scenario, if parsed, and an error for each invalid key.
pub fn read(table: &Table) -> (Option<Scenario>, Vec<Error>) {
    let mut errors = Vec::new();
    let mut wrong: BTreeSet<Key> = BTreeSet::new();
    let mut filled: BTreeMap<Key, usize> = BTreeMap::new();
    let mut root = Value::Table(table.clone());
    // Gives up after this many mistakes.
    let mut read_bytes = 0;
    for _ in 0..MOST_MISTAKES * fillers().len() {
        if read_bytes > MOST_READ_BYTES {
            break;
        }
        let (key, sentence) = match typed(&root, &mut read_bytes) {
            Ok(scenario) => return (Some(scenario), errors),
            Err(mistake) => mistake,
        };
        let filler = (1..=key.len()).find_map(|n| filled.get_key_value(&key[..n]));
        if let Some((at, &tried)) = filler {
            let at = at.clone();
            let next = tried + 1;
            match fillers().get(next) {
                Some(value) => put(&mut root, &at, Some(value.clone())),
                None => put(&mut root, &at[..at.len() - 1], None),
            }
            filled.insert(at, next);
            continue;
        }
        let is_missing = sentence.starts_with(MISSING);
        if wrong.insert(key.clone()) {
            if errors.len() == MOST_MISTAKES {
                break;
            }
            errors.push(advised("", &sentence).at(key.clone()));
        }
        let in_array = key.last().is_some_and(|step| step.parse::<usize>().is_ok());
        match (is_missing || in_array, key.is_empty()) {
            (_, true) => break,
            (true, _) => {
                put(&mut root, &key, fillers().first().cloned());
                filled.insert(key, 0);
            }
            (false, _) => put(&mut root, &key, None),
        }
    }
    (None, errors)
}

/// Parses once; fails with the first invalid key. Adds the text's length to `read_bytes`.
fn typed(root: &Value, read_bytes: &mut usize) -> Result<Scenario, (Key, String)> {
    let text = toml::to_string(root).map_err(|err| (Key::new(), err.to_string()))?;
    *read_bytes += text.len();
    let failed = |err: &TomlError| {
        let sentence = err.message().lines().collect::<Vec<_>>().join(" ");
        (Key::new(), sentence)
    };
    let table = DeTable::parse(&text).map_err(|err| failed(&err))?;
    let span = table.span();
    let value = Spanned::new(span, DeValue::Table(table.into_inner()));
    Scenario::deserialize(ValueDeserializer::from(value.clone())).map_err(|err| {
        let (_, sentence) = failed(&err);
        let mut key = err
            .span()
            .map(|span| key_at(&value, &span, sentence.starts_with(MISSING)))
            .unwrap_or_default();
        let missing = sentence.strip_prefix(MISSING);
        key.extend(missing.and_then(|rest| Some(rest.split_once('`')?.0.to_owned())));
        (key, sentence)
    })
}

/// Innermost key that covers a place of the text; with `of_a_table` only values count.
fn key_at(value: &Spanned<DeValue<'_>>, span: &Range<usize>, of_a_table: bool) -> Key {
    let covers = |range: Range<usize>| range.start <= span.start && span.end <= range.end;
    let inner: Vec<(String, bool, &Spanned<DeValue<'_>>)> = match value.get_ref() {
        DeValue::Table(table) => table
            .iter()
            .map(|(name, value)| {
                (name.get_ref().to_string(), !of_a_table && covers(name.span()), value)
            })
            .collect(),
        DeValue::Array(array) => {
            array.iter().enumerate().map(|(n, value)| (n.to_string(), false, value)).collect()
        }
        _ => Vec::new(),
    };
    for (step, is_name, value) in inner {
        if is_name {
            return vec![step];
        }
        let below = key_at(value, span, of_a_table);
        if !below.is_empty() || covers(value.span()) {
            return [vec![step], below].concat();
        }
    }
    Key::new()
}

/// Replaces a value, or removes it.
fn put(place: &mut Value, key: &[String], value: Option<Value>) {
    let Some((step, rest)) = key.split_first() else {
        return;
    };
    match (place, step.parse::<usize>()) {
        (Value::Table(table), _) if rest.is_empty() => drop(match value {
            Some(value) => table.insert(step.clone(), value),
            None => table.remove(step),
        }),
        (Value::Table(table), _) => {
            if let Some(inner) = table.get_mut(step) {
                put(inner, rest, value);
            }
        }
        (Value::Array(array), Ok(n)) if n < array.len() => match (rest.is_empty(), value) {
            (true, Some(value)) => array[n] = value,
            (true, None) => drop(array.remove(n)),
            (false, value) => put(&mut array[n], rest, value),
        },
        _ => {}
    }
}
