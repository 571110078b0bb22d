// SPDX-License-Identifier: GPL-2.0
//! Reads a [`Scenario`] from a file, the file it extends, and each `--set`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use toml::{Table, Value};
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::text::{is_control, nearest};
use xdc_metric::metric::SEE_TABLE;

use crate::budget::Budget;
use crate::check::MOST_MISTAKES;
use crate::merge::{self, Reading};
use crate::place::{Sources, line_at};
use crate::trace::Trace;
use crate::traffic::{Cdf, FlowFile};
use crate::{Scenario, at, beside, check, foreign, typed};

pub use crate::merge::path_of;

/// A scenario and its TOML, overrides included.
#[derive(Debug)]
pub struct Loaded {
    pub name: String,
    pub scenario: Scenario,
    pub toml: Table,
    /// Approximate memory in bytes, files included.
    pub memory_bytes: usize,
    sources: Sources,
}

impl Loaded {
    /// Adds the place of an error of a plan or a run: the place of its key, else the `--set` or the
    /// line that has the word quoted in the error.
    pub fn placed(&self, err: Error) -> Error {
        if err.key().is_some() {
            return self.sources.placed(err);
        }
        let said = err.to_string();
        let Some(word) = word_of(&said) else {
            return err;
        };
        if let Some(set) = self.sources.sets.iter().find(|set| has_word(set, word)) {
            return err.about(format!("--set {set}"));
        }
        let is_there = |line: &str| !line.trim_start().starts_with('#') && has_word(line, word);
        for (file, text) in &self.sources.files {
            if let Some(n) = text.lines().position(is_there) {
                return err.about(format!("{file}:{}", n + 1));
            }
        }
        err
    }
}

/// Hint for errors that do not tell the valid form.
pub const SEE_EXAMPLE: &str = "scenarios/two-dc-1g.toml shows how";

/// Loads a scenario by name (from scenarios/) or by path, then applies each `--set`.
pub fn load(home: Option<&Home>, name_or_path: &str, sets: &[String]) -> Result<Loaded> {
    let path = locate(home, name_or_path)?;
    let text = beside::named(&path)?;
    let name = name_of(&path)?;
    let mut dirs = vec![folder(&path)];
    let file = (path.display().to_string(), text);
    let own = syntax(&file).map_err(|err| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let other = foreign::mistaken(file.1.as_bytes(), &name, foreign::Role::Scenario);
        other.map_or(err, |err| err.about(&file.0))
    })?;
    let mut files = vec![file];
    let table = match own.get("extends").and_then(Value::as_str) {
        None => own,
        Some(base) => {
            let (base_path, text) = extended(home, &dirs[0], base)
                .map_err(|err| Sources::of(&files, sets).placed(err.at(at!["extends"])))?;
            let base = (base_path.display().to_string(), text);
            dirs.push(folder(&base_path));
            let table = inherited(&base, &dirs)?;
            files.push(base);
            merge::extend(table, own)
                .map_err(|err| Sources::of(&files, sets).placed(err).or_hint(SEE_EXAMPLE))?
        }
    };
    let text_bytes = files.iter().map(|(_, text)| text.len()).sum::<usize>();
    let sources = Sources::of(&files, sets);
    let mut loaded =
        finish(&name, table, sources, true, &dirs).map_err(|err| err.or_hint(SEE_EXAMPLE))?;
    let values = loaded.toml.values().map(values).sum::<usize>();
    loaded.memory_bytes = text_bytes + values * VALUE_BYTES;
    let beside = home.map(Home::scenarios).or(path.parent().map(Path::to_path_buf));
    let shipped = beside.unwrap_or_default().join("cdf");
    loaded.memory_bytes += read_beside(&mut loaded.scenario, &dirs, &shipped)
        .map_err(|err| loaded.sources.placed(err))?;
    let mistakes = check::with_files(&loaded.scenario);
    match loaded.sources.all(mistakes) {
        None => Ok(loaded),
        Some(err) => Err(err),
    }
}

/// Memory of a value in bytes: as TOML, as parsed, and its place in the file.
const VALUE_BYTES: usize = 1 << 10;

fn values(value: &Value) -> usize {
    match value {
        Value::Table(table) => 1 + table.values().map(values).sum::<usize>(),
        Value::Array(all) => 1 + all.iter().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// Reads the files that the scenario names; returns their memory in bytes.
fn read_beside(scenario: &mut Scenario, dirs: &[PathBuf], shipped: &Path) -> Result<usize> {
    let budget = &Budget::default();
    let files = FlowFile::read_all(budget, dirs, &scenario.traffic)?;
    for (cc, spec) in &scenario.cc {
        let new = |name: &&String| !scenario.objects.contains_key(*name);
        if let Some(name) = spec.bpf.as_ref().filter(new) {
            let object = beside::read(budget, dirs, name);
            let object = object.map_err(|err| err.at(at!["cc", cc, "bpf"]))?;
            scenario.objects.insert(name.clone(), object.1);
        }
    }
    scenario.cdfs = Cdf::read_all(budget, dirs, shipped, &scenario.traffic)?;
    scenario.files = files;
    scenario.traces = Trace::read_all(budget, dirs, &scenario.topology.links)?;
    Ok(budget.used_bytes())
}

fn folder(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}

/// Name of a scenario's results and their folder.
pub fn name_of(path: &Path) -> Result<String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if stem.is_empty() || stem.starts_with('.') || stem.contains(is_control) {
        return Err(Error::usage(format!("{} has no stem to name the results", path.display()))
            .hint("a file like my-scenario.toml"));
    }
    Ok(stem.into_owned())
}

/// Checks that scenario.toml can repeat a seed: TOML's integers are signed.
pub fn check_seed(seed: u64) -> Result<()> {
    match i64::try_from(seed) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::usage(format!("the seed {seed} is too large"))
            .hint(format!("0 to {}", i64::MAX))),
    }
}

/// Parses a file into a table, or reports all syntax errors.
fn syntax((name, text): &(String, String)) -> Result<Table> {
    let (_, errors) = DeTable::parse_recoverable(text);
    // A line may have as many errors as bytes, so lines are found by binary search.
    let ends: Vec<_> = text.match_indices('\n').map(|(end, _)| end).collect();
    // One typo may give several errors in a line; only the first is kept.
    let mut lines: BTreeSet<usize> = BTreeSet::new();
    let mut mistakes = Vec::new();
    // A malformed header puts its keys into the table before, where they may be duplicates.
    let follows = |err: &toml::de::Error| err.message().contains("duplicate key");
    let all_follow = errors.iter().all(follows);
    for err in errors.iter().filter(|err| all_follow || !follows(err)) {
        let line_of = |start| ends.partition_point(|&end| end < start) + 1;
        let line = err.span().map_or(0, |span| line_of(span.start));
        if lines.insert(line) {
            let sentence = err.message().lines().collect::<Vec<_>>().join(" ");
            mistakes.push(advised("", &sentence).about(format!("{name}:{line}")));
        }
        if mistakes.len() == MOST_MISTAKES {
            break;
        }
    }
    match Error::all(mistakes) {
        Some(err) => Err(err.or_hint("quotes around values with units: \"200ms\"")),
        None => toml::from_str(text).map_err(|err| malformed(text, &err).about(name)),
    }
}

/// Table of an extended scenario, without keys that are not inherited.
fn inherited(file: &(String, String), dirs: &[PathBuf]) -> Result<Table> {
    let table = syntax(file)?;
    if table.contains_key("extends") {
        return Err(Error::usage(format!("'{}' is itself a variant", file.0))
            .hint("extends = its base scenario"));
    }
    let sources = Sources::of(std::slice::from_ref(file), &[]);
    let mut table = finish("base", table, sources, false, dirs)?.toml;
    for key in ["expect", "agree", "description", "source"] {
        table.remove(key);
    }
    Ok(table)
}

pub fn parse(name: &str, text: &str, sets: &[String]) -> Result<Loaded> {
    let file = (name.to_owned(), text.to_owned());
    let table = syntax(&file)?;
    let loaded = finish(name, table, Sources::of(&[file], sets), false, &[])?;
    Ok(Loaded { memory_bytes: text.len(), ..loaded })
}

/// Parses a scenario that was run: an older xdc may have allowed more.
pub fn parse_stored(name: &str, text: &str) -> Result<(Scenario, Table)> {
    let file = (name.to_owned(), text.to_owned());
    let table = syntax(&file)?;
    let (scenario, errors) = typed::read(&table);
    match (scenario, Sources::of(&[file], &[]).all(errors)) {
        (Some(scenario), None) => Ok((scenario, table)),
        (_, err) => Err(err.unwrap_or_else(|| Error::usage("not a scenario"))),
    }
}

/// Builds the scenario. With `asks_tc`, this machine's tc checks words for it, too. `dirs` have the
/// file of the topology, without which its nodes are unknown.
fn finish(
    name: &str,
    mut table: Table,
    sources: Sources,
    asks_tc: bool,
    dirs: &[PathBuf],
) -> Result<Loaded> {
    let mut read = typed::read(&table);
    let mut unset = Vec::new();
    for set in &sources.sets {
        let applied = |reading| {
            let mut table = table.clone();
            merge::apply(&mut table, set, reading)?;
            let read = typed::read(&table);
            Ok((table, read))
        };
        let before = read.1.len();
        match applied(Reading::Toml) {
            Ok((changed, now)) if now.1.len() <= before => (table, read) = (changed, now),
            Ok(as_toml) => {
                // The key may need a text for a value that is a TOML number: a fraction without quotes.
                let as_text = applied(Reading::Text).ok();
                let fits = as_text.filter(|(_, now)| now.1.len() <= before);
                (table, read) = fits.unwrap_or(as_toml);
            }
            Err(err) => unset.push(err),
        }
    }
    let (mut scenario, mut errors) = read;
    if let Some(fabric) = scenario.as_mut().and_then(|it| it.topology.fabric.as_mut()) {
        let read = fabric.read(&Budget::default(), dirs);
        read.map_err(|err| sources.placed(err))?;
    }
    if let Some(scenario) = &scenario {
        check::plain_texts(&table, &mut errors);
        check::check(scenario, asks_tc, &mut errors);
    }
    if let Some(err) = sources.all(errors) {
        unset.insert(0, err);
    }
    match (scenario, Error::all(unset)) {
        (Some(mut scenario), None) => {
            if scenario.title.is_empty() {
                name.clone_into(&mut scenario.title);
            }
            Ok(Loaded { name: name.to_owned(), scenario, toml: table, memory_bytes: 0, sources })
        }
        (_, err) => Err(err.unwrap_or_else(|| Error::usage("not a scenario"))),
    }
}

fn locate(home: Option<&Home>, name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    if name.contains('/') || name.ends_with(".toml") {
        return Err(Error::usage(format!("there is no file '{name}'"))
            .hint("xdc list for shipped scenarios, xdc new FILE for a new one"));
    }
    let path = home.map(|home| home.scenarios().join(format!("{name}.toml")));
    path.filter(|path| path.is_file()).ok_or_else(|| unknown(home, name))
}

/// Finds the extended scenario: a file below the folder of the extending one, or a shipped scenario
/// by name.
fn extended(home: Option<&Home>, folder: &Path, base: &str) -> Result<(PathBuf, String)> {
    if let Some(found) = beside::scenario(folder, base)? {
        return Ok(found);
    }
    let shipped = home.map(|home| beside::scenario(&home.scenarios(), &format!("{base}.toml")));
    shipped
        .transpose()?
        .flatten()
        .ok_or_else(|| unknown(home, base).about("no file below the scenario's folder"))
}

/// Error for an unknown scenario, which suggests the nearest name.
fn unknown(home: Option<&Home>, name: &str) -> Error {
    let dir = home.map(Home::scenarios).unwrap_or_default();
    let err = Error::usage(format!("no scenario '{name}'"));
    let names = fs::read_dir(&dir).into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        Some(name.strip_suffix(".toml")?.to_owned())
    });
    let names: Vec<_> = names.collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    match nearest(name, &names) {
        Some(near) => err.hint(format!("'{near}'; xdc list has all")),
        None => err.hint("xdc list"),
    }
}

/// Error for malformed TOML, with the line and a suggestion.
pub fn malformed(text: &str, err: &toml::de::Error) -> Error {
    let sentence = err.message().lines().collect::<Vec<_>>().join(" ");
    match err.span() {
        Some(span) => advised(&format!("line {}: ", line_at(text, span.start)), &sentence),
        None => advised("", &sentence),
    }
}

/// Adds a suggestion to an error about an unknown word.
pub fn advised(place: &str, sentence: &str) -> Error {
    // For "unknown field `mut`, expected one of `mtu`, `hosts`", the words in backquotes.
    let mut quoted = sentence.split('`').skip(1).step_by(2);
    if let Some(name) = sentence.strip_prefix("missing field ") {
        let name = name.replace('`', "'");
        return Error::usage(format!("{place}the key {name} is missing"));
    }
    let unknown = ["unknown field", "unknown variant", "unknown metric"]
        .iter()
        .any(|start| sentence.starts_with(start));
    let Some(word) = quoted.next().filter(|_| unknown) else {
        return of_value(place, sentence);
    };
    let known: Vec<_> = quoted.collect();
    let err = Error::usage(format!("{place}unknown word '{word}'"));
    match nearest(word, &known) {
        Some(near) => err.hint(format!("'{near}'")),
        None if known.is_empty() => err.hint(SEE_TABLE),
        None => err.hint(known.join(", ")),
    }
}

/// Error for a value of the wrong type, with an example.
fn of_value(place: &str, sentence: &str) -> Error {
    if let Some((found, wanted)) =
        sentence.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    {
        let hint = match wanted {
            "a string" => "one text in quotes",
            "a sequence" => "a list such as [\"a\", \"b\"]",
            "a boolean" => "true or false",
            "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number without quotes",
            "f64" => "a number without quotes",
            other => other,
        };
        let found = found.replace('`', "");
        return Error::usage(format!("{place}the value is of a wrong type: {found}")).hint(hint);
    }
    for start in [" (example: ", " (examples: ", " (write: "] {
        if let Some((why, example)) = sentence.split_once(start) {
            let err = Error::usage(format!("{place}{why}"));
            return err.hint(example.trim_end_matches(')'));
        }
    }
    if sentence.contains("untagged enum") {
        let err = Error::usage(format!("{place}the value is of a wrong type"));
        return err.hint("a text in quotes, a number, or a list of texts");
    }
    Error::usage(format!("{place}{sentence}"))
}

/// Finds `word` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        ![before, after].into_iter().flatten().any(is_of_name)
    })
}

/// The sysctl that an error names, or a word that it quotes.
fn word_of(said: &str) -> Option<&str> {
    let mut words = said.split_whitespace();
    let sysctl = words.find(|word| word.starts_with("net."));
    let sysctl = sysctl.map(|word| word.trim_end_matches([':', ',', ';']));
    let quoted = || said.split('\'').nth(1);
    sysctl.or_else(quoted).filter(|word| !word.is_empty())
}
