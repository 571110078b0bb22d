// SPDX-License-Identifier: GPL-2.0
//! Finds everything in a scenario that cannot run, on the host with the guest's code.

mod general;
mod network;
mod queues;
mod tc;
#[cfg(test)]
mod tests;
mod traffic;

use std::ops::RangeInclusive;

use toml::{Table, Value};
use xdc_base::error::{Error, Key, Result};
use xdc_base::text::is_control;

use crate::budget::Budget;
use crate::{Scenario, at, limits};

pub use self::queues::one_packet;

/// Adds all mistakes of a scenario to `errors`, which has those of its keys.
pub fn check(scenario: &Scenario, asks_tc: bool, errors: &mut Vec<Error>) {
    let keys = errors.iter().filter_map(|err| err.key().cloned());
    let mut m = Mistakes { unreadable: keys.collect(), ..Mistakes::default() };
    limits::check(scenario, &mut m);
    general::check(scenario, &mut m);
    queues::check(scenario, &mut m);
    if asks_tc {
        tc::check(scenario, &mut m);
    }
    if let Some(network) = network::check(scenario, &mut m) {
        traffic::check(scenario, &network, &mut m);
    }
    errors.append(&mut m.found);
}

/// Mistakes about groups of flows that files name.
pub fn with_files(scenario: &Scenario) -> Vec<Error> {
    let mut m = Mistakes::default();
    general::metrics(scenario, &mut m);
    m.found
}

/// Maximum number of reported mistakes, since each takes time.
pub const MOST_MISTAKES: usize = 100;

/// Mistakes found so far.
#[derive(Default)]
pub struct Mistakes {
    /// Keys without a valid value, which are not judged further.
    unreadable: Vec<Key>,
    found: Vec<Error>,
    /// Memory budget of the checks.
    budget: Budget,
}

impl Mistakes {
    /// Returns whether to stop looking for mistakes.
    fn is_full(&self) -> bool {
        self.found.len() >= MOST_MISTAKES || self.budget.is_spent()
    }

    /// Adds an error, unless it follows from an unreadable key beside or below it.
    pub fn add(&mut self, key: Key, err: Error) {
        if self.found.len() >= MOST_MISTAKES {
            return;
        }
        let err = err.at(key);
        let about = err.key().cloned().unwrap_or_default();
        let follows = |other: &Key| {
            let beside = other.split_last().map_or(&[][..], |(_, table)| table);
            other.starts_with(&about)
                || about.starts_with(other)
                || (!beside.is_empty() && about.starts_with(beside))
        };
        if !self.unreadable.iter().any(follows) {
            self.found.push(err);
        }
    }

    /// Returns the value; None after a mistake, or if enough were found.
    pub fn note<T>(&mut self, key: Key, find: impl FnOnce(&Budget) -> Result<T>) -> Option<T> {
        if self.is_full() {
            return None;
        }
        let found = find(&self.budget);
        found.map_err(|err| self.add(key, err)).ok()
    }

    pub fn within<T: PartialOrd + std::fmt::Display>(
        &mut self,
        key: Key,
        value: T,
        range: RangeInclusive<T>,
    ) {
        if range.contains(&value) {
            return;
        }
        let mut names = key.iter().filter(|step| step.parse::<usize>().is_err());
        let name = names.next_back().map_or("", String::as_str);
        let err = Error::usage(format!("'{name}' is {value}")).hint(format!(
            "{} to {}",
            range.start(),
            range.end()
        ));
        self.add(key, err);
    }

    /// Returns whether the key could be read.
    fn reads(&self, key: &Key) -> bool {
        let strange = |other: &Key| other == key || (key.len() == 1 && other.len() == 1);
        !self.unreadable.iter().any(strange)
    }

    /// Returns whether the table has no unreadable key and no mistake, also below it.
    fn is_clean(&self, table: &[&str]) -> bool {
        let below =
            |key: &Key| key.iter().zip(table).all(|(a, b)| a == b) && key.len() >= table.len();
        let misread = |key: &Key| below(key) && key.len() <= table.len() + 1;
        let found = self.found.iter().filter_map(Error::key);
        !self.unreadable.iter().any(misread) && !found.into_iter().any(below)
    }
}

/// Notes control characters in any text: texts go to terminals and XML.
pub fn plain_texts(table: &Table, errors: &mut Vec<Error>) {
    for (key, value) in table {
        let texts = [&Value::String(key.clone()), value];
        let wrong = texts.into_iter().find_map(|text| plain(text).err());
        errors.extend(wrong.map(|err| err.at(at![key])));
    }
}

fn plain(value: &Value) -> Result<()> {
    let plain_text = |text: &str| match text.chars().find(|&c| is_control(c) && c != '\n') {
        None => Ok(()),
        Some(c) => Err(Error::usage(format!(
            "a text contains the control character {}",
            c.escape_default()
        ))
        .hint("letters, spaces, tabs and newlines only")),
    };
    match value {
        Value::String(text) => plain_text(text),
        Value::Array(values) => values.iter().try_for_each(plain),
        Value::Table(table) => table.iter().try_for_each(|(key, value)| {
            plain_text(key)?;
            plain(value)
        }),
        _ => Ok(()),
    }
}
