// SPDX-License-Identifier: GPL-2.0
//! Congestion controls that `xdc cc add` has built: a folder per module in build/added/ of the home,
//! with the module for each kernel and a list of its names.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xdc_proto::privileged::{CONGESTION_CONTROL, MODULE};

use crate::error::{Error, Result};
use crate::home::Flavour;
use crate::owned;

/// List of a module's names and its source, in the module's folder.
const ENTRY: &str = "added.toml";

/// A module with one or more congestion controls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    pub module: String,
    /// Names in TCP_CONGESTION.
    pub names: Vec<String>,
    /// File or folder that was added.
    pub source: String,
}

impl Added {
    /// Writes the entry into the module's folder, which makes its names known.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(ENTRY);
        let text = toml::to_string(self)
            .map_err(|err| Error::failure(format!("{}: {err}", path.display())))?;
        owned::replace(&path, text).map_err(|err| Error::io(path.display(), &err))
    }

    /// Reads the entry of a module's folder; None if it has no valid one.
    fn read(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join(ENTRY)).ok()?;
        let entry: Self = toml::from_str(&text).ok()?;
        let named = entry.names.iter().all(|it| CONGESTION_CONTROL.check(it).is_ok());
        (named && MODULE.check(&entry.module).is_ok()).then_some(entry)
    }
}

/// Entries of all modules, by the modules' names.
pub fn entries(dir: &Path) -> Vec<Added> {
    folders(dir).iter().filter_map(|dir| Added::read(dir)).collect()
}

/// Paths of all modules for a kernel, also of modules without an entry.
pub fn modules(dir: &Path, flavour: Flavour) -> Vec<PathBuf> {
    let of = |folder: &PathBuf| {
        let name = folder.file_name()?.to_str()?;
        let module = folder.join(flavour.name()).join(format!("{name}.ko"));
        module.is_file().then_some(module)
    };
    folders(dir).iter().filter_map(of).collect()
}

/// The modules' folders. A name that begins with a dot is a build in progress.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut folders: Vec<_> = shown.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}
