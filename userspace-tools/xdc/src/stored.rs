// SPDX-License-Identifier: GPL-2.0
//! Results that lie on disk.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::scenario::{self, Scenario};

/// What `xdc run` left of one run of a scenario.
pub struct Stored {
    pub dir: PathBuf,
    pub summary: Value,
    pub scenario: Scenario,
}

impl Stored {
    /// `named` is a result, a file of it, or the newest of a directory of numbered ones; a
    /// scenario's name stands for its directory in `results`.
    pub fn open(named: &Path, results: &Path) -> Result<Self> {
        let dir = find(named, results)?;
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))
        };
        let summary = serde_json::from_str(&read("summary.json")?)
            .map_err(|err| Error::failure(format!("{}/summary.json: {err}", dir.display())))?;
        let loaded = scenario::parse("scenario", &read("scenario.toml")?, &[])
            .map_err(|err| err.about(dir.join("scenario.toml").display()))?;
        Ok(Self {
            dir,
            summary,
            scenario: loaded.scenario,
        })
    }
}

/// The congestion controls of a summary.
pub fn ccs(summary: &Value) -> impl Iterator<Item = &str> {
    let runs = summary["runs"].as_array().into_iter().flatten();
    runs.filter_map(|run| run["cc"].as_str())
}

/// A figure of a summary (`fct_ms.max`), as of the unscaled network.
pub fn figure(summary: &Value, cc: &str, metric: &str) -> Option<f64> {
    let run = summary["runs"]
        .as_array()?
        .iter()
        .find(|run| run["cc"] == cc)?;
    run_figure(run, summary["scale"].as_f64().unwrap_or(1.0), metric)
}

/// A figure of one run of a summary, as of the unscaled network.
pub fn run_figure(run: &Value, scale: f64, metric: &str) -> Option<f64> {
    let found = metric.split('.').try_fold(run, |value, key| {
        let place = || value.get(key.parse::<usize>().ok()?);
        value.get(key).or_else(place)
    })?;
    Some(found.as_f64()? * unscale(metric, scale))
}

/// A key's unit says how the figure of a scaled guest becomes that of the network it stands for.
fn unscale(metric: &str, scale: f64) -> f64 {
    let key = |unit: &str| metric.split('.').any(|key| key.ends_with(unit));
    if key("_ms") || key("_us") {
        1.0 / scale
    } else if key("_mbps") {
        scale
    } else {
        1.0
    }
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
    let parent = if named.is_file() {
        named.parent()
    } else {
        None
    };
    let places = [
        parent.map(Path::to_path_buf),
        Some(named.to_path_buf()),
        newest(named),
        Some(results.join(named)),
        newest(&results.join(named)),
    ];
    places
        .into_iter()
        .flatten()
        .find(|dir| is_result(dir))
        .ok_or_else(|| {
            Error::usage(format!("{} is no result of xdc run", named.display()))
                .hint("a directory like results/two-dc-1g/1, or a scenario that was run")
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_those_of_the_unscaled_network() {
        let summary = json!({"scale": 10, "runs": [
            {"cc": "unocc", "fct_ms": {"max": 900.0}, "goodput_mbps": 93.0, "marks": 7}]});
        let of = |metric| figure(&summary, "unocc", metric);
        assert_eq!(of("fct_ms.max"), Some(90.0));
        assert_eq!(of("goodput_mbps"), Some(930.0));
        assert_eq!(of("marks"), Some(7.0));
        assert_eq!(of("nothing"), None);
        assert_eq!(ccs(&summary).collect::<Vec<_>>(), ["unocc"]);
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
