// SPDX-License-Identifier: GPL-2.0
//! Changes a scenario's table: by an extending file, and by `--set`.

use toml::{Table, Value};
use xdc_base::error::{Error, Key, Result};
use xdc_base::text::nearest;

use crate::at;

/// Source of a change.
#[derive(Clone, Copy, PartialEq)]
pub enum Layer {
    /// A file that extends the scenario.
    File,
    /// One `--set` key.
    Set,
}

/// Removes the keys that `own` unsets from `table` and merges the rest: tables by key, arrays as a
/// whole or, given a table, by index.
pub fn extend(mut table: Table, mut own: Table) -> Result<Table> {
    own.remove("extends");
    let keys = unset_keys(own.remove("unset"));
    for key in keys.map_err(|err| err.at(at!["unset"]))? {
        unset(&mut table, &key).map_err(|err| err.at(at!["unset"]))?;
    }
    replace_ports(&mut table, &own, Layer::File)?;
    for (key, value) in own {
        let step = key.clone();
        let place = table.entry(key).or_insert(Value::Boolean(false));
        merge(place, value).map_err(|(below, why)| {
            let key = [vec![step], below].concat();
            Error::usage(why).at(key)
        })?;
    }
    Ok(table)
}

/// A queue has either `tc` or other keys, so a change to one form removes the other from `table`. A
/// `tc` of `[queues.NAME]` also removes keys per congestion control.
fn replace_ports(table: &mut Table, change: &Table, layer: Layer) -> Result<()> {
    let none = Table::new();
    let ports = change.get("queues").and_then(Value::as_table);
    let becomes_tc = |name: &str| ports.is_some_and(|it| it.get(name).is_some_and(has_tc));
    for (_, cc) in tables_mut(table, "cc") {
        if let Some(ports) = cc.get_mut("queues").and_then(Value::as_table_mut) {
            ports.retain(|name, _| !becomes_tc(name));
        }
    }
    replace_ports_of(table, change, "", layer)?;
    let changed = change.get("cc").and_then(Value::as_table).unwrap_or(&none);
    for (name, cc) in tables_mut(table, "cc") {
        if let Some(change) = changed.get(name).and_then(Value::as_table) {
            replace_ports_of(cc, change, &format!("cc.{name}."), layer)?;
        }
    }
    Ok(())
}

/// Replaces queues of a scenario or of one congestion control as [`replace_ports`] describes.
fn replace_ports_of(of: &mut Table, change: &Table, above: &str, layer: Layer) -> Result<()> {
    let changed = change.get("queues").and_then(Value::as_table);
    for (name, port) in tables_mut(of, "queues") {
        let Some(change) = changed.and_then(|changed| changed.get(name)?.as_table()) else {
            continue;
        };
        let other = change.keys().find(|key| *key != TC);
        match (change.contains_key(TC), other) {
            (true, None) => port.clear(),
            (false, Some(key)) if port.contains_key(TC) => {
                if layer == Layer::Set {
                    let sentence = format!("the queue has '{TC}', which excludes '{key}'");
                    let first = format!("--set unset={above}queues.{name}.{TC} before it");
                    return Err(Error::usage(sentence).hint(first));
                }
                port.remove(TC);
            }
            _ => (),
        }
    }
    Ok(())
}

const TC: &str = "tc";

fn has_tc(port: &Value) -> bool {
    port.get(TC).is_some()
}

fn tables_mut<'a>(
    of: &'a mut Table,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a mut Table)> {
    let inner = of.get_mut(key).and_then(Value::as_table_mut);
    let all = inner.into_iter().flatten();
    all.filter_map(|(name, value)| Some((name, value.as_table_mut()?)))
}

/// Parses `unset = ["queues.port.drain"]`, or a single key.
fn unset_keys(value: Option<Value>) -> Result<Vec<String>> {
    let wrong = || {
        Error::usage("'unset' must be a list of keys of the base scenario")
            .hint("unset = [\"queues.port.drain\"]")
    };
    let keys: Option<Vec<String>> = match value {
        None => Some(Vec::new()),
        Some(Value::String(key)) => Some(vec![key]),
        Some(Value::Array(keys)) => {
            keys.iter().map(|key| key.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    };
    keys.ok_or_else(wrong)
}

/// Removes a key, written as for [`apply`].
fn unset(table: &mut Table, key: &str) -> Result<()> {
    let keys = match key.starts_with("net.") {
        true => sysctl_keys(table, key),
        false => vec![key.to_owned()],
    };
    let mut root = Value::Table(std::mem::take(table));
    let taken: Vec<_> = keys.iter().map(|key| take_out(&mut root, &path_of(key)?)).collect();
    if let Value::Table(rest) = root {
        *table = rest;
    }
    match taken.iter().any(Result::is_ok) {
        true => Ok(()),
        false => taken.into_iter().collect(),
    }
}

/// Splits a dotted TOML key.
pub fn path_of(key: &str) -> Result<Vec<String>> {
    let mut rest: Table = toml::from_str(&format!("{key} = 0"))
        .map_err(|_| Error::usage(format!("'{key}' is not a dotted TOML key")))?;
    let mut path = Vec::new();
    while let Some((step, value)) = std::mem::take(&mut rest).into_iter().next() {
        path.push(step);
        if let Value::Table(inner) = value {
            rest = inner;
        }
    }
    Ok(path)
}

fn take_out(place: &mut Value, path: &[String]) -> Result<()> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(());
    };
    let is_there = match &*place {
        Value::Table(table) => table.contains_key(step),
        Value::Array(array) => step.parse::<usize>().is_ok_and(|n| n < array.len()),
        _ => false,
    };
    if !is_there {
        let known: Vec<String> = match &*place {
            Value::Table(table) => table.keys().cloned().collect(),
            Value::Array(array) => (0..array.len()).map(|n| n.to_string()).collect(),
            _ => Vec::new(),
        };
        let known: Vec<_> = known.iter().map(String::as_str).collect();
        let err = Error::usage(format!("there is no '{step}' to unset"));
        return Err(match nearest(step, &known) {
            Some(near) => err.hint(format!("'{near}'")),
            None => err.hint(known.join(", ")),
        });
    }
    match (place, step.parse()) {
        (Value::Table(table), _) if rest.is_empty() => drop(table.remove(step)),
        (Value::Array(array), Ok(n)) if rest.is_empty() => drop(array.remove(n)),
        (Value::Table(table), _) => {
            return table.get_mut(step).map_or(Ok(()), |it| take_out(it, rest));
        }
        (Value::Array(array), Ok(n)) => {
            let element: Option<&mut Value> = array.get_mut::<usize>(n);
            return element.map_or(Ok(()), |it| take_out(it, rest));
        }
        _ => (),
    }
    Ok(())
}

/// Type as which the value of a `--set` is read.
#[derive(Clone, Copy)]
pub enum Reading {
    /// TOML, or a text without quotes.
    Toml,
    Text,
}

/// Applies `KEY=VALUE`, a dotted TOML key with indices for arrays. A value that is no TOML, or a
/// number for a text key, is a string. `net.x=1` is short for `sysctl."net.x"=1`, also under
/// congestion controls that set it. `unset=KEY` removes a key.
pub fn apply(table: &mut Table, set: &str, reading: Reading) -> Result<()> {
    let usage = |why: &str| Error::usage(format!("--set {set}: {why}")).hint("--set KEY=VALUE");
    let (key, value) = set.split_once('=').ok_or_else(|| usage("no '='"))?;
    let (key, value) = (key.trim(), value.trim());
    if key == "unset" {
        return unset(table, value).map_err(|err| err.about(format!("--set {set}")));
    }
    let keys = if key.starts_with("net.") { sysctl_keys(table, key) } else { vec![key.to_owned()] };
    for key in keys {
        let text = || toml::from_str(&format!("{key} = {}", Value::String(value.to_owned())));
        let change: Table = match reading {
            Reading::Toml => toml::from_str(&format!("{key} = {value}")).or_else(|_| text()),
            Reading::Text => text(),
        }
        .map_err(|_| usage("the key is not a dotted TOML key"))?;
        replace_ports(table, &change, Layer::Set)
            .map_err(|err| err.about(format!("--set {set}")))?;
        for (key, value) in change {
            let place = table.entry(key).or_insert(Value::Boolean(false));
            merge(place, value).map_err(|(_, why)| usage(&why))?;
        }
    }
    Ok(())
}

/// Keys that set a sysctl, so that a `--set` overrides all of them.
fn sysctl_keys(table: &Table, name: &str) -> Vec<String> {
    let ccs = table.get("cc").and_then(Value::as_table);
    let own = ccs.into_iter().flatten().filter(|(_, cc)| {
        let sysctls = cc.get("sysctl").and_then(Value::as_table);
        sysctls.is_some_and(|sysctls| sysctls.contains_key(name))
    });
    let mut keys = vec![format!("sysctl.\"{name}\"")];
    keys.extend(own.map(|(cc, _)| format!("cc.{cc}.sysctl.\"{name}\"")));
    keys
}

/// Merges values; an error has the path to its place.
fn merge(place: &mut Value, change: Value) -> std::result::Result<(), (Key, String)> {
    let below = |step: &str, (key, why): (Key, String)| {
        let key = [vec![step.to_owned()], key].concat();
        (key, why)
    };
    match (place, change) {
        (Value::Table(table), Value::Table(change)) => {
            for (key, value) in change {
                let place = table.entry(&key).or_insert(Value::Boolean(false));
                merge(place, value).map_err(|err| below(&key, err))?;
            }
        }
        (Value::Array(array), Value::Table(change)) => {
            for (key, value) in change {
                let n = key.parse::<usize>().ok();
                let Some(element) = n.and_then(|n| array.get_mut(n)) else {
                    return Err((vec![key.clone()], format!("there is no element '{key}'")));
                };
                merge(element, value).map_err(|err| below(&key, err))?;
            }
        }
        (place, change) => *place = change,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use xdc_base::testing::seeded;

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            any::<bool>().prop_map(Value::Boolean),
            "[a-z]{0,3}".prop_map(Value::String),
        ]
    }

    fn table_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]", value, 0..4)
            .prop_map(|map| Value::Table(map.into_iter().collect()))
    }

    /// Nested tables and arrays of few keys, so that two of them share some.
    fn value() -> impl Strategy<Value = Value> {
        leaf().prop_recursive(3, 24, 4, |inner| {
            let array = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array);
            prop_oneof![array, table_of(inner)]
        })
    }

    /// Value at a path of keys and array indices.
    fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
        path.iter().try_fold(value, |value, key| match value {
            Value::Array(array) => array.get(key.parse::<usize>().ok()?),
            value => value.get(key),
        })
    }

    proptest! {
        #![proptest_config(seeded())]

        /// Like --set.
        #[test]
        fn a_change_sets_its_key_and_no_other(
            before in table_of(value()),
            path in prop::collection::vec("[a-d]|[0-3]", 1..4),
            new in leaf(),
            elsewhere in prop::collection::vec("[a-d]|[0-3]", 1..4),
        ) {
            let nest = |value, key: &String| Value::Table([(key.clone(), value)].into_iter().collect());
            let change = path.iter().rev().fold(new.clone(), nest);
            let mut after = before.clone();
            if merge(&mut after, change).is_ok() {
                prop_assert_eq!(at(&after, &path), Some(&new));
                let common = path.iter().zip(&elsewhere).take_while(|(a, b)| a == b).count();
                let is_apart = common < path.len() && common < elsewhere.len();
                // A scalar on the way was replaced by a table.
                let is_replaced = (1..path.len())
                    .any(|n| at(&before, &path[..n]).is_some_and(|it| !it.is_table() && !it.is_array()));
                if is_apart && !is_replaced {
                    prop_assert_eq!(at(&after, &elsewhere), at(&before, &elsewhere));
                }
            }
        }

        #[test]
        fn repeating_a_change_has_no_effect(before in table_of(value()), change in table_of(value())) {
            let mut once = before;
            if merge(&mut once, change.clone()).is_ok() {
                let mut twice = once.clone();
                prop_assert_eq!(merge(&mut twice, change), Ok(()));
                prop_assert_eq!(twice, once);
            }
        }

        #[test]
        fn an_empty_table_becomes_the_change(change in table_of(value())) {
            let mut empty = Value::Table(Table::new());
            prop_assert_eq!(merge(&mut empty, change.clone()), Ok(()));
            prop_assert_eq!(empty, change);
        }
    }
}
