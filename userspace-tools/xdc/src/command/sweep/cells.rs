// SPDX-License-Identifier: GPL-2.0
//! Finished cells on disk: what makes a sweep resumable, and lets several machines share one.
//!
//! A cell's file is named after everything that its figures depend on: the plan that the guest
//! gets (parameters, congestion control, seed), how its messages are read (windows, phases, size
//! classes, this program), the kernel, the modules and the agent. It appears by a rename, whole or
//! not at all; whoever computes the same cell again replaces it by itself. It says of itself what
//! it is a cell of and what its content's hash is: what is empty, cut short or damaged is none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use xdc_proto::Plan;

use crate::draw::plot::Line;
use crate::error::{Error, Result};
use crate::measure::run::Run;
use crate::measure::size::SizeClasses;
use crate::owned;
use crate::result::provenance::sha256;
use crate::result::summary::Windows;

/// Above it, curves per flow show nothing and take megabytes.
pub const MAX_CURVES: usize = 32;

/// What is kept of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub cc: String,
    pub seed: u64,
    pub scale: u32,
    pub engine: String,
    pub kernel: String,
    /// The labels of the grid that it was computed for: one of the same plan in another grid may
    /// have others, which that grid's table has.
    pub axes: BTreeMap<String, String>,
    /// As in summary.json.
    pub run: Run,
    /// Throughput of each flow over time, where they are few.
    pub throughput: Vec<Line>,
}

impl Outcome {
    /// The run itself says that it is not reliable.
    pub fn is_suspect(&self) -> bool {
        !self.run.suspect.is_empty()
    }
}

/// A cell's file.
#[derive(Serialize, Deserialize)]
struct File {
    key: String,
    /// Of `outcome`, as it is written.
    sha256: String,
    /// Of the file beside it.
    flows_sha256: String,
    outcome: Box<RawValue>,
}

/// A key has this many hexadecimal digits.
const KEY_DIGITS: usize = 20;

pub struct Cells {
    dir: PathBuf,
    /// Hash of what runs and of what reads it: [`super::lab`].
    lab: String,
}

impl Cells {
    pub fn open(dir: &Path, lab: &str) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|err| {
            Error::io(format!("cannot make {}", dir.display()), &err)
                .hint("--out DIR, where you may write")
        })?;
        crate::home::require_space(dir)?;
        owned::reap_files(dir);
        Ok(Self {
            dir: dir.to_path_buf(),
            lab: lab.to_owned(),
        })
    }

    /// The name of a plan's cell. Plans do not tell two names of one congestion control from each
    /// other, nor a scaled network from one that is slow by itself; figures and their units do.
    pub fn key(
        &self,
        (cc, scale): (&str, u32),
        plan: &Plan,
        windows: &Windows,
        sizes: &SizeClasses,
    ) -> Result<String> {
        let all = serde_json::to_vec(&(&self.lab, cc, scale, plan, windows, sizes, MAX_CURVES))
            .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
        let mut key = sha256(&all);
        key.truncate(KEY_DIGITS);
        Ok(key)
    }

    fn path(&self, key: &str, what: &str) -> PathBuf {
        self.dir.join(format!("{key}.{what}"))
    }

    /// None if it is missing or damaged: it is then computed again.
    pub fn load(&self, key: &str) -> Option<Outcome> {
        let text = fs::read(self.path(key, "json")).ok()?;
        let file: File = serde_json::from_slice(&text).ok()?;
        let flows = fs::read(self.path(key, "flows.csv")).ok()?;
        let whole = file.key == key
            && file.sha256 == sha256(file.outcome.get().as_bytes())
            && file.flows_sha256 == sha256(&flows);
        let outcome = whole.then_some(file.outcome)?;
        serde_json::from_str(outcome.get()).ok()
    }

    /// Has it computed again.
    pub fn forget(&self, key: &str) -> Result<()> {
        let path = self.path(key, "json");
        fs::remove_file(&path).map_err(|err| Error::io(path.display(), &err))
    }

    /// `flows_csv` goes beside it.
    pub fn save(&self, key: &str, outcome: &Outcome, flows_csv: &[u8]) -> Result<()> {
        let failed = |err| Error::failure(format!("a cell cannot be written: {err}"));
        let outcome = to_raw_value(outcome).map_err(failed)?;
        let file = File {
            key: key.to_owned(),
            sha256: sha256(outcome.get().as_bytes()),
            flows_sha256: sha256(flows_csv),
            outcome,
        };
        let json = serde_json::to_string(&file).map_err(failed)?;
        // The cell last: once it is there, all of it is.
        for (what, text) in [("flows.csv", flows_csv), ("json", json.as_bytes())] {
            let path = self.path(key, what);
            owned::replace(&path, text).map_err(|err| Error::io(path.display(), &err))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::record::tests::recorded;
    use crate::result::summary;
    use crate::scenario::plan::plan;
    use crate::scenario::{self, tests::SMALL};

    fn cells(dir: &Path) -> Cells {
        Cells {
            dir: dir.to_path_buf(),
            lab: "lab".to_owned(),
        }
    }

    fn outcome() -> Outcome {
        Outcome {
            cc: "unocc".to_owned(),
            seed: 1,
            scale: 1,
            engine: "uml".to_owned(),
            kernel: "7.3.4".to_owned(),
            axes: BTreeMap::new(),
            run: Run {
                drops: 3,
                // Printed and read, it is another one unless both are exact.
                jain_mean: Some(0.912_345_678_901_234_5),
                ..summary::run(&recorded(), &Windows::every_us(1000))
            },
            throughput: Vec::new(),
        }
    }

    #[test]
    fn a_cell_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let cells = cells(dir.path());
        assert!(cells.load("key").is_none());
        cells.save("key", &outcome(), b"cc,flow\n").unwrap();
        assert_eq!(cells.load("key").unwrap().run, outcome().run);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let good = fs::read_to_string(cells.path("key", "json")).unwrap();
        for damaged in [
            String::new(),
            "{\"cc\":".to_owned(),
            good.replace("\"drops\":3", "\"drops\":4"),
            good.replace("\"key\":\"key\"", "\"key\":\"other\""),
            good[..good.len() / 2].to_owned(),
        ] {
            assert_ne!(damaged, good);
            fs::write(cells.path("key", "json"), &damaged).unwrap();
            assert!(cells.load("key").is_none(), "{damaged}");
        }
        fs::write(cells.path("key", "json"), &good).unwrap();
        assert!(cells.load("key").is_some());
        fs::write(cells.path("key", "flows.csv"), "").unwrap();
        assert!(cells.load("key").is_none());
    }

    /// Of a scenario with these changes: what its cell is called.
    fn key(sets: &[&str]) -> String {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let scenario = scenario::parse("small", SMALL, &sets).unwrap().scenario;
        let plan = plan(&scenario, "unocc", 1, 1).unwrap();
        let windows = Windows::of(&scenario);
        let cells = cells(Path::new("."));
        let of = ("unocc", 1);
        cells.key(of, &plan, &windows, &scenario.sizes()).unwrap()
    }

    #[test]
    fn two_names_of_one_plan_have_a_cell_each() {
        let scenario = scenario::parse("small", SMALL, &[]).unwrap().scenario;
        let plan = plan(&scenario, "unocc", 1, 1).unwrap();
        let windows = Windows::of(&scenario);
        let cells = cells(Path::new("."));
        let key = |of| cells.key(of, &plan, &windows, &scenario.sizes()).unwrap();
        assert_ne!(key(("unocc", 1)), key(("unocc-paper", 1)));
        assert_ne!(key(("unocc", 1)), key(("unocc", 2)));
    }

    #[test]
    fn what_figures_are_read_by_is_in_a_cells_name() {
        let plain = key(&[]);
        assert_eq!(plain, key(&["title=another"]));
        for set in [
            "jain_window=5ms",
            "phases=[\"1ms\"]",
            "small_below=200kb",
            "large_above=2mb",
            "flows.0.bytes=2mb",
        ] {
            assert_ne!(plain, key(&[set]), "{set}");
        }
    }
}
