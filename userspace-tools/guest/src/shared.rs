// SPDX-License-Identifier: GPL-2.0
//! Files that a guest left in its shared folder.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, open, openat2, statat};
use xdc_base::error::{Error, Result};

use crate::usage::MAX_BYTES;

/// QEMU's metadata folder.
const METADATA: &str = ".virtfs_metadata";

/// Passes each file to `take`, with its name below `folder`. Skips special files and links, which
/// may point to any host file, even if a live guest process swaps them in.
pub fn each_file(
    folder: &Path,
    mut take: impl FnMut(&str, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let failed =
        |name: &str, err: rustix::io::Errno| Error::io(folder.join(name).display(), &err.into());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let top =
        open(folder, flags | OFlags::DIRECTORY, Mode::empty()).map_err(|err| failed("", err))?;
    let below = |name: &str, more| -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&top, name, flags | more, Mode::empty(), resolve)
    };
    let mut left = MAX_BYTES;
    let mut folders = vec![".".to_owned()];
    while let Some(inner) = folders.pop() {
        let dir = below(&inner, OFlags::DIRECTORY).map_err(|err| failed(&inner, err))?;
        for entry in Dir::read_from(&dir).map_err(|err| failed(&inner, err))? {
            let entry = entry.map_err(|err| failed(&inner, err))?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if matches!(name, "." | ".." | METADATA) {
                continue;
            }
            let path = match inner.as_str() {
                "." => name.to_owned(),
                inner => format!("{inner}/{name}"),
            };
            let stat = statat(&dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                Ok(FileType::Directory) => folders.push(path),
                Ok(FileType::RegularFile) => {
                    let file = below(&path, OFlags::empty()).map_err(|err| failed(&path, err))?;
                    let mut file = File::from(file).take(left);
                    take(&path, &mut file)?;
                    left = file.limit();
                    if left == 0 {
                        return Err(Error::failure(format!(
                            "the guest has left more than {} GB in /shared",
                            MAX_BYTES >> 30
                        ))
                        .hint("write less data into /shared"));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn shared_files_are_taken_and_links_are_not() {
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
        // A folder becomes a link while being read.
        symlink(dir.path(), dir.path().join("top")).unwrap();
        assert!(each_file(&dir.path().join("top"), |_, _| Ok(())).is_err());
        fs::create_dir(dir.path().join("later")).unwrap();
        fs::write(dir.path().join("later/z"), "").unwrap();
        let swapped = each_file(dir.path(), |_, _| {
            for name in ["below", "later"] {
                let _ = fs::rename(dir.path().join(name), dir.path().join(name.repeat(2)));
                let _ = symlink("/etc", dir.path().join(name));
            }
            Ok(())
        });
        assert!(swapped.is_err());
    }
}
