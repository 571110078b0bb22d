// SPDX-License-Identifier: GPL-2.0
//! What a guest has left in its shared folder.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::error::{Error, Result};

/// QEMU's own, beside what the guest makes.
const METADATA: &str = ".virtfs_metadata";

/// Gives each file to `take`, with its name below `folder`. Links, which the guest may have made
/// to anything of the host's, and special files are left out. The guest has ended.
pub fn each_file(folder: &Path, mut take: impl FnMut(&str, &mut File) -> Result<()>) -> Result<()> {
    let mut folders = vec![(String::new(), folder.to_path_buf())];
    while let Some((prefix, dir)) = folders.pop() {
        let entries = fs::read_dir(&dir).map_err(|err| Error::io(dir.display(), &err))?;
        for entry in entries.flatten() {
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else {
                continue;
            };
            let path = entry.path();
            if kind.is_dir() && name != METADATA {
                folders.push((format!("{prefix}{name}/"), path));
            } else if kind.is_file() {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = open(&path, flags, Mode::empty())
                    .map_err(|err| Error::io(path.display(), &err.into()))?;
                take(&format!("{prefix}{name}"), &mut File::from(file))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_taken_and_links_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::create_dir(dir.path().join(METADATA)).unwrap();
        fs::write(dir.path().join(METADATA).join("x"), "y").unwrap();
        fs::write(dir.path().join("below/a"), "a's").unwrap();
        symlink("/etc/hostname", dir.path().join("b")).unwrap();
        symlink("/etc", dir.path().join("c")).unwrap();
        let mut found = Vec::new();
        each_file(dir.path(), |name, file| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            found.push((name.to_owned(), text));
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [("below/a".to_owned(), "a's".to_owned())]);
    }
}
