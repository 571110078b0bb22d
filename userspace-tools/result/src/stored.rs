// SPDX-License-Identifier: GPL-2.0
//! Reads results from disk.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_scenario::limits::MAX_SCENARIO_BYTES;
use xdc_scenario::{Scenario, beside};

use crate::summary::{SCHEMA, Summary};

/// Maximum size of a file read as a whole.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum size of a scenario with explicit defaults; parsing takes about a hundred times as much
/// memory.
const MAX_RESOLVED_BYTES: u64 = 4 * MAX_SCENARIO_BYTES;

/// A stored result of a scenario.
pub struct Stored {
    pub dir: PathBuf,
    pub summary: Summary,
    pub scenario: Scenario,
    /// Scenario text as it was run.
    pub toml: toml::Table,
}

impl Stored {
    /// Opens a result. `named` is a result, one of its files, a directory of numbered results (the
    /// newest is used), or a scenario's name in `results`.
    pub fn open(named: &Path, results: &Path) -> Result<Self> {
        let dir = find(named, results)?;
        let summary = parse(&read(&dir, "summary.json")?)
            .map_err(|err| err.about(dir.join("summary.json").display()))?;
        let name = dir.join("scenario.toml").display().to_string();
        let (scenario, toml) = xdc_scenario::parse_stored(
            &name,
            &read_up_to(MAX_RESOLVED_BYTES, &dir, "scenario.toml")?,
        )?;
        Ok(Self { dir, summary, scenario, toml })
    }
}

/// Text of a result's file; does not follow links.
pub fn read(dir: &Path, name: &str) -> Result<String> {
    read_up_to(MAX_BYTES, dir, name)
}

fn read_up_to(most_bytes: u64, dir: &Path, name: &str) -> Result<String> {
    let failed = |err| Error::io(dir.join(name).display(), &err);
    let mut text = String::new();
    let file = beside::of_result(dir, name)?;
    file.take(most_bytes + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > most_bytes {
        true => Err(Error::failure(format!(
            "{} is larger than {} MB",
            dir.join(name).display(),
            most_bytes >> 20
        ))
        .hint("a complete result of xdc run")),
        false => Ok(text),
    }
}

/// Parses a summary.json.
pub fn parse(text: &str) -> Result<Summary> {
    #[derive(Deserialize)]
    struct Version {
        schema: Option<u32>,
    }
    let read = |err: serde_json::Error| Error::failure(err.to_string());
    let version: Version = serde_json::from_str(text).map_err(read)?;
    if version.schema != Some(SCHEMA) {
        let schema = version.schema.map_or("none".to_owned(), |n| n.to_string());
        return Err(Error::failure(format!("its schema is {schema}, but this xdc reads {SCHEMA}"))
            .hint("repeat it: xdc run with its scenario.toml"));
    }
    serde_json::from_str(text).map_err(read)
}

fn find(named: &Path, results: &Path) -> Result<PathBuf> {
    let is_result = |dir: &Path| dir.join("summary.json").is_file();
    let newest = |dir: &Path| {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .max()
            .map(|n| dir.join(n.to_string()))
    };
    let parent = if named.is_file() { named.parent() } else { None };
    let places = [
        parent.map(Path::to_path_buf),
        Some(named.to_path_buf()),
        newest(named),
        Some(results.join(named)),
        newest(&results.join(named)),
    ];
    places.into_iter().flatten().find(|dir| is_result(dir)).ok_or_else(|| {
        Error::usage(format!("{} is not a result of xdc run", named.display()))
            .hint("a directory like results/two-dc-1g/1, or a scenario that was run")
    })
}

#[cfg(test)]
mod tests {
    use xdc_measure::figures::{self, Windows};

    use super::*;
    use crate::testing::recorded;

    #[test]
    fn a_summary_reads_back() {
        let summary = Summary::of_runs(vec![figures::run(&recorded(), &Windows::every_us(1000))]);
        let value = serde_json::to_value(&summary).unwrap();
        let read = parse(&format!("{value:#}")).unwrap();
        assert_eq!(read.runs, summary.runs);
        assert_eq!(read.provenance, summary.provenance);
        assert!(read.run("unocc").is_some() && read.run("bbr").is_none());
    }

    #[test]
    fn the_size_of_a_results_scenario_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = MAX_RESOLVED_BYTES as usize + 1;
        fs::write(dir.path().join("scenario.toml"), "\n".repeat(bytes)).unwrap();
        let read = |most_bytes| read_up_to(most_bytes, dir.path(), "scenario.toml");
        assert!(read(MAX_RESOLVED_BYTES).is_err());
        assert!(read(MAX_BYTES).is_ok());
    }

    #[test]
    fn a_result_of_another_schema_is_refused() {
        for text in ["{}", r#"{"schema": 1, "scale": 10, "runs": []}"#] {
            let said = parse(text).unwrap_err().lines().join(" ");
            assert!(said.contains("schema") && said.contains("xdc run"), "{said}");
        }
    }

    #[test]
    fn results_are_found_by_path_and_by_scenario() {
        let results = tempfile::tempdir().unwrap();
        for n in ["2", "10", "9"] {
            let dir = results.path().join("two").join(n);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("summary.json"), "{}").unwrap();
        }
        let two = results.path().join("two");
        let find = |named: &Path| super::find(named, results.path()).unwrap();
        assert_eq!(find(Path::new("two")), two.join("10"));
        assert_eq!(find(Path::new("two/9")), two.join("9"));
        assert_eq!(find(&two), two.join("10"));
        assert_eq!(find(&two.join("2/")), two.join("2"));
        assert_eq!(find(&two.join("2/summary.json")), two.join("2"));
        assert!(super::find(Path::new("three"), results.path()).is_err());
    }
}
