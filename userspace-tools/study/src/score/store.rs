// SPDX-License-Identifier: GPL-2.0
//! The bundle of references that ships with the repository: metrics of runs, by a hash of all
//! inputs.
//!
//! A sample's key is the hash of the guest's plan and of the way its messages are read. Kernels
//! differ between machines even from equal sources, so the bundle has the kernel's release, and is
//! used only if some of its runs give equal results here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use xdc_base::error::{Error, Result};
use xdc_base::owned;
use xdc_measure::figures::Windows;
use xdc_measure::run::Run;
use xdc_measure::size::SizeClasses;
use xdc_proto::Plan;
use xdc_result::provenance::sha256;

/// Version of the file's keys.
const SCHEMA: u32 = 1;

/// Metrics kept of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Values by metric name; metrics that do not apply are missing.
    pub raw: BTreeMap<String, f64>,
    pub flows: usize,
    pub unfinished: usize,
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspect: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Sample {
    pub fn of(run: &Run, metrics: &BTreeSet<String>) -> Result<Self> {
        let mut raw = BTreeMap::new();
        for name in metrics {
            let metric: xdc_metric::metric::Metric =
                name.parse().map_err(|_| Error::failure(format!("there is no metric '{name}'")))?;
            raw.extend(metric.of(run).map(|value| (name.clone(), value)));
        }
        Ok(Self {
            raw,
            flows: run.completion.flows,
            unfinished: run.completion.unfinished,
            suspect: !run.suspect.is_empty(),
        })
    }
}

impl Sample {
    /// Compares samples; printed and parsed values may differ in the last digits.
    pub fn is_like(&self, other: &Self) -> bool {
        let counts = |it: &Self| (it.flows, it.unfinished, it.suspect);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let mut pairs = self.raw.iter().zip(&other.raw);
        counts(self) == counts(other)
            && self.raw.len() == other.raw.len()
            && pairs.all(|((name, a), (other, b))| name == other && close(*a, *b))
    }
}

/// Hash of all inputs of a sample except the lab.
pub fn key(
    (cc, metrics): (&str, &BTreeSet<String>),
    plan: &Plan,
    windows: &Windows,
    sizes: &SizeClasses,
) -> Result<String> {
    let failed = |err| Error::failure(format!("cannot write the plan: {err}"));
    let mut all = serde_json::to_value((cc, metrics, plan, windows, sizes)).map_err(failed)?;
    strip(&mut all);
    let mut key = sha256(&serde_json::to_vec(&all).map_err(failed)?);
    key.truncate(20);
    Ok(key)
}

/// Removes empty values, so that a new key of plans keeps the hashes of plans that do not use it.
fn strip(value: &mut Value) {
    let says = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        _ => true,
    };
    match value {
        Value::Array(all) => all.iter_mut().for_each(strip),
        Value::Object(all) => {
            all.values_mut().for_each(strip);
            all.retain(|_, value| says(value));
        }
        _ => {}
    }
}

/// A file of samples.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Store {
    schema: u32,
    /// Release of the guests' kernel.
    lab: String,
    samples: BTreeMap<String, Sample>,
    #[serde(skip)]
    path: PathBuf,
}

impl Store {
    /// Opens a store; empty if the file is missing, damaged or of another lab.
    pub fn open(path: &Path, lab: String) -> Self {
        let read = fs::read(path).ok();
        let store = read.and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let store = store.filter(|store| store.schema == SCHEMA && store.lab == lab);
        Self { schema: SCHEMA, lab, path: path.to_path_buf(), ..store.unwrap_or_default() }
    }

    pub fn get(&self, key: &str) -> Option<&Sample> {
        self.samples.get(key)
    }

    /// Replaces all samples.
    pub fn replace(&mut self, samples: BTreeMap<String, Sample>) {
        self.samples = samples;
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Writes one line per sample, so that versions can be compared.
    pub fn save(&self) -> Result<()> {
        let failed = |err| Error::failure(format!("cannot write the samples: {err}"));
        let mut text = format!(
            "{{\"SPDX-License-Identifier\": \"GPL-2.0\",\n\"schema\": {}, \"lab\": \"{}\", \"samples\": {{\n",
            self.schema, self.lab
        );
        for (n, (key, sample)) in self.samples.iter().enumerate() {
            let sample = serde_json::to_string(sample).map_err(failed)?;
            let comma = if n == 0 { "" } else { ",\n" };
            text += &format!("{comma}\"{key}\": {sample}");
        }
        text += "\n}}\n";
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)
            .and_then(|()| owned::replace(&self.path, text))
            .map_err(|err| Error::io(self.path.display(), &err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_another_lab_are_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("references.json");
        let mut store = Store::open(&path, "one".to_owned());
        let sample = Sample {
            raw: [("drops".to_owned(), 0.1 + 0.2)].into(),
            flows: 3,
            unfinished: 1,
            suspect: false,
        };
        store.replace(["a", "b"].map(|key| (key.to_owned(), sample.clone())).into());
        store.save().unwrap();
        let again = Store::open(&path, "one".to_owned());
        assert_eq!((again.len(), again.get("a")), (2, Some(&sample)));
        assert_eq!(Store::open(&path, "another".to_owned()).len(), 0);
        fs::write(&path, "{").unwrap();
        assert_eq!(Store::open(&path, "one".to_owned()).len(), 0);
    }

    #[test]
    fn samples_are_equal_up_to_the_last_digits() {
        let sample = |drops: f64, flows| Sample {
            raw: [("drops".to_owned(), drops)].into(),
            flows,
            unfinished: 0,
            suspect: false,
        };
        let one = sample(3.0, 2);
        assert!(one.is_like(&sample(3.0 + 1e-12, 2)));
        assert!(!one.is_like(&sample(3.001, 2)));
        assert!(!one.is_like(&sample(3.0, 3)));
        let mut other = sample(3.0, 2);
        other.raw.insert("marks".to_owned(), 0.0);
        assert!(!one.is_like(&other));
    }
}
