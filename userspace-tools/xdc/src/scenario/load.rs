// SPDX-License-Identifier: GPL-2.0
//! From a file, what it extends and each `--set` to a [`Scenario`].

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::home::Home;
use crate::measure::metric::SEE_TABLE;
use crate::scenario::fabric::Shape;
use crate::scenario::limits::{self, MAX_FILE_BYTES};
use crate::scenario::traffic::{Cdf, FlowFile};
use crate::scenario::{QueueSpec, Scenario, beside, ports};
use crate::text::{is_control, nearest};
use crate::units::{Size, Time};

/// A scenario and the TOML it came from, overrides included.
#[derive(Debug)]
pub struct Loaded {
    pub name: String,
    pub scenario: Scenario,
    pub toml: Table,
    /// Of its file, and of the one that it extends.
    pub text_bytes: usize,
    /// Of its file, and what was set: where a mistake is that a plan finds.
    text: String,
    sets: Vec<String>,
}

impl Loaded {
    /// An error of its plan, with the line or the `--set` that has the word which it is about.
    pub fn placed(&self, err: Error) -> Error {
        let said = err.to_string();
        let set = word_of(&said).and_then(|word| self.sets.iter().find(|set| has_word(set, word)));
        match set {
            Some(set) => err.about(format!("--set {set}")),
            None => placed(&self.text, err),
        }
    }
}

/// For mistakes in a scenario that say what is wrong but not how it should be.
pub const SEE_EXAMPLE: &str = "scenarios/two-dc-1g.toml shows how";

/// What a link can be told to carry; less than IPv4 asks for would serve nobody.
const MTU_BYTES: RangeInclusive<u32> = 576..=65_535;

/// What IPv6 asks of a link at least.
const MTU6_BYTES: u32 = 1280;

/// Load by name (from scenarios/) or by path, then apply each `--set`.
pub fn load(home: Option<&Home>, name_or_path: &str, sets: &[String]) -> Result<Loaded> {
    let path = locate(home, name_or_path)?;
    let text = read(&path)?;
    let name = name_of(&path)?;
    let mut dirs = vec![folder(&path)];
    let loaded = match extends(&text) {
        None => parse(&name, &text, sets),
        Some(base) => extended(home, &base, &text).and_then(|(table, base_bytes)| {
            dirs.push(folder(&locate(home, &base)?));
            let loaded = finish(&name, table, sets).map_err(|err| placed(&text, err))?;
            Ok(Loaded {
                text_bytes: text.len() + base_bytes,
                ..loaded
            })
        }),
    };
    let mut loaded = loaded.map_err(|err| err.about(path.display()).or_hint(SEE_EXAMPLE))?;
    loaded.text = text;
    loaded.sets = sets.to_vec();
    let beside = home
        .map(Home::scenarios)
        .or(path.parent().map(Path::to_path_buf));
    let dir = beside.unwrap_or_default().join("cdf");
    let traffic = &loaded.scenario.traffic;
    let files = FlowFile::read_all(&dirs, traffic)?;
    for name in loaded.scenario.cc.values().filter_map(|cc| cc.bpf.as_ref()) {
        let (_, object) = beside::read(&dirs, name)?;
        loaded.scenario.objects.insert(name.clone(), object);
    }
    loaded.text_bytes += files.values().map(|file| file.text.len()).sum::<usize>();
    loaded.scenario.cdfs = Cdf::read_all(&dir, traffic)?;
    loaded.scenario.files = files;
    let checked = loaded.scenario.check_metrics();
    checked.map_err(|err| err.about(path.display()))?;
    Ok(loaded)
}

fn folder(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}

/// What results of a scenario's file are called: a folder has that name.
pub fn name_of(path: &Path) -> Result<String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if stem.is_empty() || stem.starts_with('.') || stem.contains(is_control) {
        return Err(
            Error::usage(format!("{} has no name for its results", path.display()))
                .hint("a file like my-scenario.toml"),
        );
    }
    Ok(stem.into_owned())
}

fn read(path: &Path) -> Result<String> {
    let failed = |err: &std::io::Error| Error::io(path.display(), err);
    let bytes = fs::metadata(path).map_err(|err| failed(&err))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(Error::usage(format!(
            "{} is larger than {} MB, so it is not a scenario",
            path.display(),
            MAX_FILE_BYTES >> 20
        ))
        .hint("patterns such as a[1-1000], and a fabric"));
    }
    fs::read_to_string(path).map_err(|err| failed(&err))
}

/// A seed that scenario.toml, whose integers have a sign, can repeat.
pub fn check_seed(seed: u64) -> Result<()> {
    match i64::try_from(seed) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::usage(format!("the seed {seed} is too large"))
            .hint(format!("0 to {}", i64::MAX))),
    }
}

/// The scenario that a text says it is a variant of.
fn extends(text: &str) -> Option<String> {
    let table: Table = toml::from_str(text).ok()?;
    Some(table.get("extends")?.as_str()?.to_owned())
}

/// The base without what `text` unsets, and with what it changes: tables by key, arrays as a whole
/// or, given a table, by number. What the base expects of its results is not inherited. With how
/// long the base is.
fn extended(home: Option<&Home>, base: &str, text: &str) -> Result<(Table, usize)> {
    let path = locate(home, base)?;
    let base_text = read(&path)?;
    if extends(&base_text).is_some() {
        return Err(
            Error::usage(format!("'{base}' is a variant itself")).hint("extend what it extends")
        );
    }
    let mut own: Table = toml::from_str(text).map_err(|err| malformed(text, &err))?;
    let mut table = parse(base, &base_text, &[])?.toml;
    for key in ["expect", "agree", "description", "source"] {
        table.remove(key);
    }
    let mixed: std::result::Result<Ports, _> = toml::from_str(text);
    mixed.map_err(|err| malformed(text, &err))?;
    own.remove("extends");
    for key in unset_keys(own.remove("unset"))? {
        unset(&mut table, &key).map_err(|err| placed(text, err))?;
    }
    replace_ports(&mut table, &own, Layer::File)?;
    for (key, value) in own {
        let place = table.entry(key).or_insert(Value::Boolean(false));
        merge(place, value).map_err(|why| placed(text, Error::usage(why)))?;
    }
    Ok((table, base_text.len()))
}

/// Of a variant, whatever else it has: read for its mistakes, which have a line here.
#[derive(Deserialize)]
struct Ports {
    #[serde(default, rename = "queues", deserialize_with = "ports")]
    _queues: BTreeMap<String, QueueSpec>,
    #[serde(default, rename = "cc")]
    _ccs: BTreeMap<String, Self>,
}

/// What changes a scenario that is there.
#[derive(Clone, Copy, PartialEq)]
enum Layer {
    /// A file that extends it.
    File,
    /// `--set`, one key at a time.
    Set,
}

/// A queue is `tc` or the other keys, so what `change` says of one replaces what `table` says in
/// the other way. A `tc` of `[queues.NAME]` replaces what is said per congestion control, too.
fn replace_ports(table: &mut Table, change: &Table, layer: Layer) -> Result<()> {
    let none = Table::new();
    let ports = |of: &Table| of.get("queues").and_then(Value::as_table).cloned();
    for (name, port) in ports(change).unwrap_or_default() {
        if port.get(TC).is_some() {
            for (_, cc) in tables_mut(table, "cc") {
                if let Some(ports) = cc.get_mut("queues").and_then(Value::as_table_mut) {
                    ports.remove(&name);
                }
            }
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

/// The same for `[queues]` of a scenario or of a congestion control.
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
                    let sentence = format!("the queue has '{TC}', so it has no '{key}'");
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

fn tables_mut<'a>(
    of: &'a mut Table,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a mut Table)> {
    let inner = of.get_mut(key).and_then(Value::as_table_mut);
    let all = inner.into_iter().flatten();
    all.filter_map(|(name, value)| Some((name, value.as_table_mut()?)))
}

/// `unset = ["queues.port.drain"]`, or one of them.
fn unset_keys(value: Option<Value>) -> Result<Vec<String>> {
    let wrong = || {
        Error::usage("'unset' is a list of keys of the scenario that this one extends")
            .hint("unset = [\"queues.port.drain\"]")
    };
    let keys: Option<Vec<String>> = match value {
        None => Some(Vec::new()),
        Some(Value::String(key)) => Some(vec![key]),
        Some(Value::Array(keys)) => keys
            .iter()
            .map(|key| key.as_str().map(str::to_owned))
            .collect(),
        Some(_) => None,
    };
    keys.ok_or_else(wrong)
}

/// Takes a key, as [`apply`] reads it, out of what there is.
fn unset(table: &mut Table, key: &str) -> Result<()> {
    let keys = match key.starts_with("net.") {
        true => sysctl_keys(table, key),
        false => vec![key.to_owned()],
    };
    let mut root = Value::Table(std::mem::take(table));
    let taken: Vec<_> = keys
        .iter()
        .map(|key| take_out(&mut root, &path_of(key)?))
        .collect();
    if let Value::Table(rest) = root {
        *table = rest;
    }
    match taken.iter().any(Result::is_ok) {
        true => Ok(()),
        false => taken.into_iter().collect(),
    }
}

/// The steps of a dotted TOML key.
fn path_of(key: &str) -> Result<Vec<String>> {
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
    let known: Vec<String> = match &*place {
        Value::Table(table) => table.keys().cloned().collect(),
        Value::Array(array) => (0..array.len()).map(|n| n.to_string()).collect(),
        _ => Vec::new(),
    };
    if !known.contains(step) {
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

pub fn parse(name: &str, text: &str, sets: &[String]) -> Result<Loaded> {
    // First alone, because only then do errors have a line.
    let _: Scenario = toml::from_str(text).map_err(|err| malformed(text, &err))?;
    let table: Table = toml::from_str(text).map_err(|err| malformed(text, &err))?;
    let loaded = finish(name, table, sets)?;
    Ok(Loaded {
        text_bytes: text.len(),
        ..loaded
    })
}

fn finish(name: &str, mut table: Table, sets: &[String]) -> Result<Loaded> {
    let mut scenario = typed(&table).map_err(|sentence| advised(String::new(), &sentence))?;
    for set in sets {
        let before = table.clone();
        apply(&mut table, set, Reading::Toml)?;
        scenario = match typed(&table) {
            Ok(scenario) => scenario,
            Err(sentence) => {
                // A number where a text is wanted: a fraction without quotes.
                table = before;
                apply(&mut table, set, Reading::Text)?;
                typed(&table).map_err(|_| {
                    advised(format!("--set {set}: "), &sentence).or_hint("--set KEY=VALUE")
                })?
            }
        };
    }
    table.iter().try_for_each(|(key, value)| {
        limits::plain_text(&Value::String(key.clone()))?;
        limits::plain_text(value)
    })?;
    validate(&scenario)?;
    Ok(Loaded {
        name: name.to_owned(),
        scenario,
        toml: table,
        text_bytes: 0,
        text: String::new(),
        sets: Vec::new(),
    })
}

/// Or what is wrong, in a sentence.
fn typed(table: &Table) -> std::result::Result<Scenario, String> {
    Value::Table(table.clone())
        .try_into()
        .map_err(|err: toml::de::Error| sentence_of(&err))
}

/// Names, as far as they can be checked without building the plan.
fn validate(scenario: &Scenario) -> Result<()> {
    limits::check(scenario)?;
    for cc in scenario.ccs.iter().chain(scenario.cc.keys()) {
        scenario.known_cc(cc)?;
    }
    for (name, cc) in &scenario.cc {
        if cc.bpf.is_some() && cc.kernel.is_none() {
            return Err(
                Error::usage(format!("[cc.{name}] has 'bpf' but no 'kernel'"))
                    .hint("kernel = \"NAME\", as its struct tcp_congestion_ops has it"),
            );
        }
    }
    for expect in &scenario.expect {
        scenario.known_cc(&expect.cc)?;
        if expect.bound().is_none() {
            return Err(Error::usage(format!(
                "the expectation on '{}' has no bound",
                expect.metric
            ))
            .hint("min, max or less_than_cc"));
        }
    }
    for agree in &scenario.agree {
        agree
            .ccs
            .iter()
            .try_for_each(|cc| scenario.known_cc(cc).map(drop))?;
    }
    scenario.check_metrics()?;
    if !MTU_BYTES.contains(&scenario.topology.mtu) {
        return Err(Error::usage(format!(
            "an mtu of {} is not from {} to {}",
            scenario.topology.mtu,
            MTU_BYTES.start(),
            MTU_BYTES.end()
        )));
    }
    if ![4, 6].contains(&scenario.topology.ip) {
        return Err(Error::usage(format!(
            "'ip' is {}, and there are two versions of it",
            scenario.topology.ip
        ))
        .hint("ip = 4, or ip = 6"));
    }
    if scenario.topology.ip == 6 && scenario.topology.mtu < MTU6_BYTES {
        return Err(Error::usage(format!(
            "an mtu of {} is below IPv6's {MTU6_BYTES}",
            scenario.topology.mtu
        )));
    }
    if scenario.topology.spray && !scenario.topology.ecmp() {
        return Err(Error::usage("'spray' needs all shortest paths").hint("ecmp = true"));
    }
    if scenario.watch.is_empty() {
        return Err(Error::usage("no port is watched").hint("[[watch]] for the bottleneck"));
    }
    if scenario.sample.0 == 0 || scenario.jain_window < scenario.sample {
        return Err(Error::usage(
            "'sample' must be above 0 and at most 'jain_window'",
        ));
    }
    for flow in &scenario.flows {
        if (flow.burst == Size(0)) != (flow.period == Time(0)) {
            return Err(Error::usage(
                "a flow that writes in bursts needs both 'burst' and 'period'",
            ));
        }
    }
    if scenario.large_above < scenario.small_below {
        return Err(Error::usage("'large_above' is below 'small_below'"));
    }
    queues_are_used(scenario)?;
    racks_are_there(scenario)?;
    rtts_are_used(scenario)?;
    for traffic in &scenario.traffic {
        traffic.validate()?;
    }
    let endless = scenario.flows.iter().any(|flow| flow.bytes == Size(0));
    if endless && scenario.duration.is_none() {
        return Err(Error::usage(
            "a flow without 'bytes' never ends in a scenario without 'duration'",
        ));
    }
    Ok(())
}

/// What racks do needs racks.
fn racks_are_there(scenario: &Scenario) -> Result<()> {
    let fabric = scenario.topology.fabric.as_ref();
    let there = fabric.is_some_and(|fabric| fabric.kind == Shape::Rotor);
    let mut own = scenario.cc.values().map(|cc| &cc.acceltor);
    match !there && (scenario.acceltor.is_some() || own.any(Option::is_some)) {
        false => Ok(()),
        true => Err(Error::usage("[acceltor] has no racks to be about")
            .hint("kind = \"rotor\" in [topology.fabric]")),
    }
}

/// A queue that no link has is a mistake of somebody who thinks that one has it.
fn queues_are_used(scenario: &Scenario) -> Result<()> {
    let topology = &scenario.topology;
    let links = topology.links.iter();
    let named = links.flat_map(|link| [&link.queue, &link.queue_ab, &link.queue_ba]);
    let mut used: Vec<&str> = named.flatten().map(String::as_str).collect();
    if let Some(fabric) = &topology.fabric {
        used.extend(fabric.queues());
    }
    // A link that names one which is not defined is a mistake of its own.
    if used.iter().any(|name| !scenario.queues.contains_key(*name)) {
        return Ok(());
    }
    let names = scenario.queues.keys().map(String::as_str);
    match names.into_iter().find(|name| !used.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let err = Error::usage(format!("no link has the queue '{name}' of [queues.{name}]"));
            Err(err.hint(format!("queue = \"{name}\" in a link")))
        }
    }
}

/// The `rtt` of a queue says what a `bdp` is, so one of its sizes has to be in that.
fn rtts_are_used(scenario: &Scenario) -> Result<()> {
    for (name, queue) in &scenario.queues {
        let of_ccs = scenario.cc.values().filter_map(|cc| cc.queues.get(name));
        let all: Vec<_> = of_ccs.chain([queue]).collect();
        let states = all.iter().any(|queue| queue.rtt.is_some());
        if states && !all.iter().any(|queue| queue.has_bdps()) {
            return Err(Error::usage(format!(
                "'rtt' in [queues.{name}] has no effect: no size of it is in bdp"
            ))
            .hint("phantom = \"1bdp\""));
        }
    }
    Ok(())
}

fn locate(home: Option<&Home>, name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    if name.contains('/') || name.ends_with(".toml") {
        return Err(Error::usage(format!("there is no file '{name}'"))
            .hint("xdc list for scenarios by name, xdc new FILE for one of your own"));
    }
    let dir = home.map(Home::scenarios).unwrap_or_default();
    let path = dir.join(format!("{name}.toml"));
    if home.is_some() && path.is_file() {
        return Ok(path);
    }
    let err = Error::usage(format!("no scenario '{name}'"));
    let names = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".toml")?.to_owned())
        });
    let names: Vec<_> = names.collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    Err(match nearest(name, &names) {
        Some(near) => err.hint(format!("'{near}'; xdc list has all")),
        None => err.hint("xdc list"),
    })
}

/// What is wrong in a TOML file, with its line and what was probably meant.
pub fn malformed(text: &str, err: &toml::de::Error) -> Error {
    let err_of = |sentence| advised(sentence, &sentence_of(err));
    match err.span() {
        Some(span) => {
            let line = text[..span.start].matches('\n').count() + 1;
            err_of(format!("line {line}: "))
        }
        None => err_of(String::new()),
    }
}

fn sentence_of(err: &toml::de::Error) -> String {
    err.message().lines().collect::<Vec<_>>().join(" ")
}

/// Adds what was probably meant to an error about an unknown word.
fn advised(place: String, sentence: &str) -> Error {
    // "unknown field `mut`, expected one of `mtu`, `hosts`": what is quoted.
    let mut quoted = sentence.split('`').skip(1).step_by(2);
    let unknown = ["unknown field", "unknown variant", "unknown metric"]
        .iter()
        .any(|start| sentence.starts_with(start));
    let Some(word) = quoted.next().filter(|_| unknown) else {
        return Error::usage(format!("{place}{sentence}"));
    };
    let known: Vec<_> = quoted.collect();
    let err = Error::usage(format!("{place}what is '{word}'?"));
    match nearest(word, &known) {
        Some(near) => err.hint(format!("'{near}'")),
        None if known.is_empty() => err.hint(SEE_TABLE),
        None => err.hint(known.join(", ")),
    }
}

/// Of a variant, whose table knows no lines: the line that has the word which the error quotes.
fn placed(text: &str, err: Error) -> Error {
    let said = err.to_string();
    if said.starts_with("--set ") {
        return err;
    }
    let at = word_of(&said).and_then(|word| {
        let is_there = |line: &str| !line.trim_start().starts_with('#') && has_word(line, word);
        text.lines().position(is_there)
    });
    match at {
        Some(at) => err.about(format!("line {}", at + 1)),
        None => err,
    }
}

/// Whole, and no part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        ![before, after].into_iter().flatten().any(is_of_name)
    })
}

/// What an error quotes, or the sysctl that it begins with.
fn word_of(said: &str) -> Option<&str> {
    let sysctl = said.split_once(" = ").map(|(name, _)| name);
    let sysctl = sysctl.filter(|name| name.starts_with("net."));
    let quoted = || said.split('\'').nth(1);
    sysctl.or_else(quoted).filter(|word| !word.is_empty())
}

/// What the value of a `--set` is taken for.
#[derive(Clone, Copy)]
enum Reading {
    /// TOML, or a text without its quotes.
    Toml,
    Text,
}

/// `KEY=VALUE`, KEY as TOML writes dotted keys, with numbers for places in arrays. A value that
/// is no TOML, or a number where a text is wanted, is a string; `net.x=1` is short for
/// `sysctl."net.x"=1`, and for the same under each congestion control that has its own.
/// `unset=KEY` takes a key away.
fn apply(table: &mut Table, set: &str, reading: Reading) -> Result<()> {
    let usage = |why: &str| Error::usage(format!("--set {set}: {why}")).hint("--set KEY=VALUE");
    let (key, value) = set.split_once('=').ok_or_else(|| usage("no '='"))?;
    let (key, value) = (key.trim(), value.trim());
    if key == "unset" {
        return unset(table, value).map_err(|err| err.about(format!("--set {set}")));
    }
    let keys = if key.starts_with("net.") {
        sysctl_keys(table, key)
    } else {
        vec![key.to_owned()]
    };
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
            merge(place, value).map_err(|why| usage(&why))?;
        }
    }
    Ok(())
}

/// Where a scenario says what a sysctl is: what is set must not be overridden further down.
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

fn merge(place: &mut Value, change: Value) -> std::result::Result<(), String> {
    match (place, change) {
        (Value::Table(table), Value::Table(change)) => {
            for (key, value) in change {
                merge(table.entry(key).or_insert(Value::Boolean(false)), value)?;
            }
        }
        (Value::Array(array), Value::Table(change)) => {
            for (key, value) in change {
                let element = key
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| array.get_mut(index))
                    .ok_or_else(|| format!("there is no element '{key}'"))?;
                merge(element, value)?;
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
    use crate::units::tests::seeded;

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

    /// Tables and arrays of one another, of few keys, so that two of them have some in common.
    fn value() -> impl Strategy<Value = Value> {
        leaf().prop_recursive(3, 24, 4, |inner| {
            let array = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array);
            prop_oneof![array, table_of(inner)]
        })
    }

    /// What stands at a path of keys and of places in arrays.
    fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
        path.iter().try_fold(value, |value, key| match value {
            Value::Array(array) => array.get(key.parse::<usize>().ok()?),
            value => value.get(key),
        })
    }

    proptest! {
        #![proptest_config(seeded())]

        /// As --set does it.
        #[test]
        fn what_is_set_is_there_and_the_rest_is_as_it_was(
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
                // A number or a text on the way became a table.
                let is_replaced = (1..path.len())
                    .any(|n| at(&before, &path[..n]).is_some_and(|it| !it.is_table() && !it.is_array()));
                if is_apart && !is_replaced {
                    prop_assert_eq!(at(&after, &elsewhere), at(&before, &elsewhere));
                }
            }
        }

        #[test]
        fn a_change_twice_is_a_change_once(before in table_of(value()), change in table_of(value())) {
            let mut once = before;
            if merge(&mut once, change.clone()).is_ok() {
                let mut twice = once.clone();
                prop_assert_eq!(merge(&mut twice, change), Ok(()));
                prop_assert_eq!(twice, once);
            }
        }

        #[test]
        fn nothing_changed_is_the_change(change in table_of(value())) {
            let mut empty = Value::Table(Table::new());
            prop_assert_eq!(merge(&mut empty, change.clone()), Ok(()));
            prop_assert_eq!(empty, change);
        }
    }
}
