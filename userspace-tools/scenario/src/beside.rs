// SPDX-License-Identifier: GPL-2.0
//! Files that a scenario names. A scenario may be untrusted, so the files lie below its folder or
//! that of the scenario it extends, and links are not followed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use xdc_base::error::{Error, Result};

use crate::budget::Budget;
use crate::foreign;
use crate::limits::{MAX_FILE_BYTES, MAX_SCENARIO_BYTES};

/// Bytes of memory that a byte of a file takes after parsing.
const FACTOR: usize = 4;

/// Reads a file from the first of `dirs` that has it: path and content.
pub fn read(budget: &Budget, dirs: &[PathBuf], name: &str) -> Result<(PathBuf, Vec<u8>)> {
    find(budget, dirs, name)?.ok_or_else(|| {
        Error::usage(format!("there is no file '{name}' beside the scenario"))
            .hint("names are relative to the scenario's file")
    })
}

/// Like [`read`], but returns None if no folder has the file.
pub fn find(budget: &Budget, dirs: &[PathBuf], name: &str) -> Result<Option<(PathBuf, Vec<u8>)>> {
    for dir in dirs {
        if let Some((path, file)) = open(dir, name)? {
            let content = content(&path, file, MAX_FILE_BYTES)?;
            budget.charge("files beside the scenario", content.len(), FACTOR)?;
            return Ok(Some((path, content)));
        }
    }
    Ok(None)
}

/// Reads another scenario in a folder; None if there is no such file.
pub fn scenario(dir: &Path, name: &str) -> Result<Option<(PathBuf, String)>> {
    let opened = open(dir, name)?;
    let read = opened.map(|(path, file)| text(&path, file).map(|text| (path, text)));
    read.transpose()
}

/// Reads a scenario at any path that the caller names.
pub fn named(path: &Path) -> Result<String> {
    text(path, open_named(path)?)
}

/// Maximum size of a recording or of a file of a result.
const MAX_RESULT_BYTES: u64 = 256 << 20;

/// Opens a file that the caller names.
pub fn named_file(path: &Path) -> Result<File> {
    let file = open_named(path)?;
    check_regular(path, &file, MAX_RESULT_BYTES).map_err(|err| err.or_hint("a shorter file"))?;
    Ok(file)
}

fn open_named(path: &Path) -> Result<File> {
    let flags = READ | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    Ok(file.map_err(|err| failed(path, err))?.into())
}

/// Opens a file below a result's folder, which may be untrusted as well.
pub fn of_result(dir: &Path, name: &str) -> Result<File> {
    let (path, file) = open(dir, name)?.ok_or_else(|| {
        Error::failure(format!("{} has no file '{name}'", dir.display()))
            .hint("a complete result of xdc run")
    })?;
    check_regular(&path, &file, MAX_RESULT_BYTES)
        .map_err(|err| err.or_hint("a complete result of xdc run"))?;
    Ok(file)
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens a file below a folder. A FIFO does not block.
fn open(dir: &Path, name: &str) -> Result<Option<(PathBuf, File)>> {
    let dir = match dir.as_os_str().is_empty() {
        true => Path::new("."),
        false => dir,
    };
    let path = dir.join(name);
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = match rustix::fs::openat(CWD, dir, place, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        below => below.map_err(|err| failed(dir, err))?,
    };
    let flags = READ | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(&below, name, flags, Mode::empty(), resolve) {
        Ok(file) => {
            let file = File::from(file);
            let is_folder = file.metadata().is_ok_and(|meta| meta.is_dir());
            Ok((!is_folder).then_some((path, file)))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::XDEV | Errno::INVAL) => {
            Err(Error::usage(format!("'{name}' is not a file below the scenario's folder"))
                .hint("a name such as \"flows.csv\", beside the scenario"))
        }
        Err(Errno::LOOP) => Err(Error::usage(format!("'{name}' is a symbolic link, or below one"))
            .hint("a copy of the file instead of the link")),
        Err(err) => Err(failed(&path, err)),
    }
}

fn failed(path: &Path, err: Errno) -> Error {
    Error::io(path.display(), &err.into())
}

fn text(path: &Path, file: File) -> Result<String> {
    let bytes = content(path, file, MAX_SCENARIO_BYTES)
        .map_err(|err| err.or_hint("patterns such as a[1-1000], a fabric, flows in a CSV file"))?;
    String::from_utf8(bytes).map_err(|err| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let other = foreign::mistaken(err.as_bytes(), &name, foreign::Role::Scenario);
        other.map_or_else(
            || Error::usage(format!("{} is not text in UTF-8", path.display())),
            |err| err.about(path.display()),
        )
    })
}

/// Reads a regular file; its length may change meanwhile.
fn content(path: &Path, file: File, most_bytes: u64) -> Result<Vec<u8>> {
    let failed = |err| Error::io(path.display(), &err);
    check_regular(path, &file, most_bytes)?;
    let mut content = Vec::new();
    let mut start = file.take(most_bytes + 1);
    start.read_to_end(&mut content).map_err(failed)?;
    match content.len() as u64 > most_bytes {
        true => Err(too_large(path, most_bytes)),
        false => Ok(content),
    }
}

fn too_large(path: &Path, most_bytes: u64) -> Error {
    let most_mb = most_bytes >> 20;
    Error::usage(format!("{} is larger than {most_mb} MB", path.display()))
}

fn check_regular(path: &Path, file: &File, most_bytes: u64) -> Result<()> {
    let meta = file.metadata();
    let meta = meta.map_err(|err| Error::io(path.display(), &err))?;
    match meta.is_file() {
        true if meta.len() > most_bytes => Err(too_large(path, most_bytes)),
        true => Ok(()),
        false => {
            let sentence = format!("{} is not a regular file", path.display());
            Err(Error::usage(sentence).hint("a file, not a pipe or a device"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn said(dirs: &[PathBuf], name: &str) -> String {
        let read = read(&Budget::default(), dirs, name);
        read.map(drop).unwrap_err().lines().join(" ")
    }

    #[test]
    fn a_sparse_file_of_a_result_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let sparse = File::create(dir.path().join("series.csv")).unwrap();
        sparse.set_len(MAX_RESULT_BYTES + 1).unwrap();
        assert!(of_result(dir.path(), "series.csv").is_err());
        assert!(named_file(&dir.path().join("series.csv")).is_err());
        sparse.set_len(MAX_RESULT_BYTES).unwrap();
        assert!(of_result(dir.path(), "series.csv").is_ok());
    }

    #[test]
    fn files_outside_the_scenario_folder_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/x"), "text").unwrap();
        let other = tempfile::tempdir().unwrap();
        let dirs = [other.path().to_owned(), dir.path().to_owned()];
        let found = read(&Budget::default(), &dirs, "sub/x").unwrap();
        assert_eq!(found.1, b"text");
        for wrong in ["/etc/passwd", "../x", "sub/../../x", "sub/../../../etc/passwd"] {
            assert!(said(&dirs, wrong).contains("not a file below"), "{wrong}");
        }
        for wrong in ["", "nosuch", "sub/x/y", "sub", "."] {
            assert!(said(&dirs, wrong).contains("no file"), "{wrong}");
        }
    }

    #[test]
    fn links_and_pipes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_owned()];
        symlink("/etc/passwd", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("folder")).unwrap();
        for name in ["link", "folder/passwd"] {
            assert!(said(&dirs, name).contains("symbolic link"), "{name}");
            assert!(of_result(dir.path(), name).is_err(), "{name}");
        }
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(said(&dirs, "fifo").contains("not a regular file"));
        assert!(named(&fifo).is_err() && of_result(dir.path(), "fifo").is_err());
    }

    #[test]
    fn the_total_size_of_files_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_owned()];
        let make = |name: &str, bytes| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_len(bytes).unwrap();
        };
        make("large", MAX_FILE_BYTES + 1);
        assert!(said(&dirs, "large").contains("larger than 4 MB"));
        make("most", MAX_FILE_BYTES);
        let budget = Budget::default();
        let some = (0..100).map(|_| read(&budget, &dirs, "most"));
        let refused = some.filter_map(std::result::Result::err).next().unwrap();
        assert!(refused.to_string().contains("files beside"));
    }
}
