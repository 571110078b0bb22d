// SPDX-License-Identifier: GPL-2.0
//! Disk space of the host used by a guest.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::process::Child;

use xdc_base::error::{Error, Result};

use crate::engine::{Files, MAX_FILE_BYTES, Machine};

/// Maximum number of files in a guest's folders: UML has about five; files made through hostfs count.
const MAX_FILES: usize = 10_000;

/// Maximum bytes of all files of a guest except its memory.
pub const MAX_BYTES: u64 = 2 * MAX_FILE_BYTES;

/// Fails if a guest fills the disk with files in its folders or removed files that it keeps open, or has an
/// unreadable folder.
pub fn check(files: &Files<'_>, machine: &Machine, leader: &Child) -> Result<()> {
    let most = MAX_BYTES + (machine.memory_mb << 20);
    let mut count = 0;
    let mut bytes: u64 = 0;
    let mut add = |more: u64| {
        count += 1;
        bytes = bytes.saturating_add(more);
        match count > MAX_FILES || bytes > most {
            false => Ok(()),
            true => Err(Error::failure(format!(
                "the guest has made more than {MAX_FILES} files or {} GB on the host",
                most >> 30
            ))
            .hint("write less data into the guest's folder, and close removed files")),
        }
    };
    let mut folders = vec![files.dir.to_path_buf()];
    if files.memory_dir != files.dir {
        folders.push(files.memory_dir.to_path_buf());
    }
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(err) if err.kind() == ErrorKind::NotFound => continue,
            Err(err) => {
                return Err(Error::failure(format!(
                    "the guest has made a folder on the host that cannot be read: {err}"
                )));
            }
        };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                folders.push(entry.path());
            }
            // Blocks allocated beyond the end of a file count, too.
            add(meta.len().max(meta.blocks().saturating_mul(512)))?;
        }
    }
    unnamed_bytes(leader.id()).into_iter().try_for_each(add)
}

/// Sizes of removed files that processes of the group have open.
fn unnamed_bytes(group: u32) -> Vec<u64> {
    let mut seen = HashSet::new();
    let mut bytes = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        // After the name, which may contain any character: state, parent, group.
        let stat = fs::read(process.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        let own = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2));
        if own.and_then(|own| own.parse().ok()) != Some(group) {
            continue;
        }
        let open = fs::read_dir(process.path().join("fd"));
        for file in open.into_iter().flatten().flatten() {
            let Ok(meta) = fs::metadata(file.path()) else {
                continue;
            };
            if meta.is_file() && meta.nlink() == 0 && seen.insert((meta.dev(), meta.ino())) {
                bytes.push(meta.blocks().saturating_mul(512));
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    const MACHINE: Machine = Machine { cpus: 1, memory_mb: 1, spins: false };

    fn files(dir: &Path) -> Files<'_> {
        Files { dir, memory_dir: dir, initramfs: dir, messages: dir, root: None, shared: None }
    }

    fn sleeper(input: Stdio) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(input).process_group(0);
        command.spawn().unwrap()
    }

    #[test]
    fn a_guests_folder_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = sleeper(Stdio::null());
        let look = || check(&files(dir.path()), &MACHINE, &child);
        assert!(look().is_ok());
        let large = File::create(dir.path().join("large")).unwrap();
        large.set_len(MAX_BYTES + (2 << 20)).unwrap();
        assert!(look().is_err());
        fs::remove_file(dir.path().join("large")).unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        for n in 0..=MAX_FILES {
            File::create(dir.path().join(format!("below/{n}"))).unwrap();
        }
        assert!(look().is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_removed_file_counts_while_it_is_open() {
        let file = tempfile::tempfile().unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
        let mut child = sleeper(file.try_clone().unwrap().into());
        let bytes = unnamed_bytes(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(bytes.len(), 1);
        assert!(bytes[0] >= 1 << 20);
    }
}
