// SPDX-License-Identifier: GPL-2.0
//! Files that a scenario names and that lie beside it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::scenario::limits::MAX_FILE_BYTES;

/// Where it is, and what is in it: in the first of `dirs`, those of the scenario and of what it
/// extends, that has it. A stranger's scenario leads to no other folder.
pub fn read(dirs: &[PathBuf], name: &str) -> Result<(PathBuf, Vec<u8>)> {
    let inside = |part| matches!(part, Component::Normal(_));
    if name.is_empty() || !Path::new(name).components().all(inside) {
        return Err(Error::usage(format!(
            "'{name}' is not a file below the scenario's folder"
        ))
        .hint("a name such as \"flows.csv\", beside the scenario"));
    }
    let mut paths = dirs.iter().map(|dir| dir.join(name));
    let path = paths.find(|path| path.is_file()).ok_or_else(|| {
        Error::usage(format!("there is no file '{name}' beside the scenario"))
            .hint("names are relative to the scenario's file")
    })?;
    let failed = |err| Error::io(path.display(), &err);
    let bytes = fs::metadata(&path).map_err(failed)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(Error::usage(format!(
            "{} is larger than {} MB",
            path.display(),
            MAX_FILE_BYTES >> 20
        )));
    }
    let content = fs::read(&path).map_err(failed)?;
    Ok((path, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_below_the_scenario() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/x"), "text").unwrap();
        let other = tempfile::tempdir().unwrap();
        let dirs = [other.path().to_owned(), dir.path().to_owned()];
        assert_eq!(read(&dirs, "sub/x").unwrap().1, b"text");
        for wrong in [
            "/etc/passwd",
            "../x",
            "sub/../../x",
            "",
            "sub",
            "nosuch",
            ".",
        ] {
            assert!(read(&dirs, wrong).is_err(), "{wrong}");
        }
    }
}
