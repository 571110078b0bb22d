// SPDX-License-Identifier: GPL-2.0
//! Finds the place of a key: a line of the scenario's file or the extended file, or a `--set`.

use toml::de::{DeTable, DeValue};
use xdc_base::error::{Error, Key};

use super::load::path_of;

/// Texts that a scenario was read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Names and contents: the scenario's own file, then the extended one.
    pub files: Vec<(String, String)>,
    /// Each `KEY=VALUE`, in order of application.
    pub sets: Vec<String>,
}

impl Sources {
    pub fn of(files: &[(String, String)], sets: &[String]) -> Self {
        Self { files: files.to_vec(), sets: sets.to_vec() }
    }

    /// Adds file, line and key to an error; an error without a key is unchanged.
    pub fn placed(&self, err: Error) -> Error {
        self.placed_in(&self.read(), err)
    }

    fn placed_in(&self, roots: &[DeValue<'_>], err: Error) -> Error {
        match err.key().cloned() {
            None => err,
            Some(key) => {
                let at = self.place(roots, &key);
                match key.is_empty() {
                    true => err.about(at),
                    false => err.about(dotted(&key)).about(at),
                }
            }
        }
    }

    /// Places all errors, in the order of their lines.
    pub fn all(&self, mut errors: Vec<Error>) -> Option<Error> {
        if errors.is_empty() {
            return None;
        }
        let roots = self.read();
        errors.sort_by_cached_key(|err| self.find(&roots, err.key().map_or(&[][..], |key| key)));
        let placed = errors.into_iter().map(|err| self.placed_in(&roots, err));
        Error::all(placed.collect())
    }

    /// Parses each file.
    fn read(&self) -> Vec<DeValue<'_>> {
        let table = |text| DeTable::parse_recoverable(text).0.into_inner();
        let texts = self.files.iter().map(|(_, text)| text);
        texts.map(|text| DeValue::Table(table(text))).collect()
    }

    fn place(&self, roots: &[DeValue<'_>], key: &[String]) -> String {
        let (file, line, depth) = self.find(roots, key);
        let path = |set: &String| {
            let path = set.split_once('=').map_or(set.as_str(), |(path, _)| path);
            path.trim().to_owned()
        };
        let makes = |set: &&String| {
            let path = path(set);
            if path.starts_with("net.") {
                return key.last() == Some(&path);
            }
            // A table in no file comes from the --set, too.
            path_of(&path).is_ok_and(|path| {
                key.starts_with(&path) || (depth < key.len() && path.starts_with(key))
            })
        };
        if let Some(set) = self.sets.iter().rev().find(makes) {
            return format!("--set {set}");
        }
        let name = self.files.get(file).map_or("", |(name, _)| name);
        match line {
            0 => name.to_owned(),
            line => format!("{name}:{line}"),
        }
    }

    /// File with the longest prefix of the key: its index, the line from 1 on, and the length of
    /// the prefix.
    fn find(&self, roots: &[DeValue<'_>], key: &[String]) -> (usize, usize, usize) {
        let files = self.files.iter().zip(roots);
        let found = files.map(|((_, text), root)| find(text, root, key));
        let best = found.enumerate().rev().max_by_key(|(_, (depth, _))| *depth);
        best.map_or((0, 0, 0), |(file, (depth, line))| (file, line, depth))
    }
}

/// Length of the key's longest prefix in a text, and the line of its last step.
fn find(text: &str, root: &DeValue<'_>, key: &[String]) -> (usize, usize) {
    let mut value = root;
    let (mut depth, mut line) = (0, 0);
    for step in key {
        let next = match value {
            DeValue::Table(table) => {
                table.get_key_value(step.as_str()).map(|(name, value)| (name.span().start, value))
            }
            DeValue::Array(array) => {
                let n = step.parse::<usize>().ok();
                let element = n.and_then(|n| array.get(n));
                element.map(|value| (value.span().start, value))
            }
            _ => None,
        };
        let Some((at, inner)) = next else { break };
        value = inner.get_ref();
        depth += 1;
        line = line_at(text, at);
    }
    (depth, line)
}

/// Line of a byte offset, from 1 on.
pub fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&c| c == b'\n').count() + 1
}

/// Formats a key as `--set` takes it.
pub fn dotted(key: &Key) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let steps = key.iter().map(|step| match step.chars().all(bare) {
        true => step.clone(),
        false => format!("\"{step}\""),
    });
    steps.collect::<Vec<_>>().join(".")
}
