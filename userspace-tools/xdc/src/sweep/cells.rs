// SPDX-License-Identifier: GPL-2.0
//! Finished cells on disk: what makes a sweep resumable, and lets several machines share one.
//!
//! A cell's file is named after everything that its figures depend on: the plan that the guest
//! gets (parameters, congestion control, seed), the kernel, the modules and the agent. It appears
//! by a rename, whole or not at all; whoever computes the same cell again replaces it by itself.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use xdc_proto::Plan;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::plot::Line;

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
    /// As in summary.json.
    pub run: Value,
    /// Throughput of each flow over time, where they are few.
    pub throughput: Vec<Line>,
}

pub struct Cells {
    dir: PathBuf,
    /// Hash of what runs: kernel, modules, agent.
    lab: String,
}

impl Cells {
    pub fn open(dir: &Path, home: &Home, engine: Engine) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|err| {
            Error::io(format!("cannot make {}", dir.display()), &err)
                .hint("--out DIR, where you may write")
        })?;
        crate::home::require_space(dir)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            lab: lab(home, engine)?,
        })
    }

    /// The name of a plan's cell.
    pub fn key(&self, plan: &Plan) -> Result<String> {
        let plan = serde_json::to_string(plan)
            .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
        let hash = Sha256::new()
            .chain_update(&self.lab)
            .chain_update(plan)
            .finalize();
        Ok(hex(&hash))
    }

    fn path(&self, key: &str, what: &str) -> PathBuf {
        self.dir.join(format!("{key}.{what}"))
    }

    pub fn has(&self, key: &str) -> bool {
        self.path(key, "json").is_file()
    }

    /// None if there is none, or none that can be read: it is then computed again.
    pub fn load(&self, key: &str) -> Option<Outcome> {
        let text = fs::read(self.path(key, "json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// `flows_csv` goes beside it.
    pub fn save(&self, key: &str, outcome: &Outcome, flows_csv: &str) -> Result<()> {
        let json = serde_json::to_string(outcome)
            .map_err(|err| Error::failure(format!("a cell cannot be written: {err}")))?;
        // The cell last: once it is there, all of it is.
        self.place(&self.path(key, "flows.csv"), flows_csv)?;
        self.place(&self.path(key, "json"), &json)
    }

    fn place(&self, path: &Path, text: &str) -> Result<()> {
        let written = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
            std::io::Write::write_all(&mut file, text.as_bytes())?;
            file.persist(path)?;
            Ok(())
        };
        written().map_err(|err| Error::io(path.display(), &err))
    }
}

/// Changes when anything changes that a guest consists of.
fn lab(home: &Home, engine: Engine) -> Result<String> {
    let flavour = engine.guest_flavour()?;
    let read = |path: &Path| fs::read(path).map_err(|err| Error::io(path.display(), &err));
    let mut hash = Sha256::new();
    hash.update(read(&home.kernel(flavour)?)?);
    for module in home.modules(flavour)? {
        hash.update(read(&module)?);
    }
    hash.update(read(&home.agent()?)?);
    Ok(format!("{}{}", engine.kind().name(), hex(&hash.finalize())))
}

/// Enough of a hash to name a file.
fn hex(hash: &[u8]) -> String {
    hash.iter()
        .take(10)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let cells = Cells {
            dir: dir.path().to_path_buf(),
            lab: "lab".to_owned(),
        };
        assert!(cells.load("key").is_none());
        let outcome = Outcome {
            cc: "unocc".to_owned(),
            seed: 1,
            scale: 1,
            engine: "uml".to_owned(),
            kernel: "7.3.4".to_owned(),
            run: serde_json::json!({"drops": 3}),
            throughput: Vec::new(),
        };
        cells.save("key", &outcome, "cc,flow\n").unwrap();
        assert_eq!(cells.load("key").unwrap().run["drops"], 3);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        fs::write(cells.path("key", "json"), "{\"cc\":").unwrap();
        assert!(cells.load("key").is_none());
    }
}
