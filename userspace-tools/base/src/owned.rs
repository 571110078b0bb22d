// SPDX-License-Identifier: GPL-2.0
//! Directories that end with their owner. Each has a random name, mode 0700, and a file `owner`
//! that its owner keeps locked. The kernel drops the lock of a killed xdc, so the next xdc removes
//! the directory.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};

use crate::interrupt;

const OWNER: &str = "owner";
/// Prefix of a file's name until it is complete.
const NEW: &str = ".new-";

/// A directory removed on drop, unless kept.
pub struct OwnedDir {
    path: PathBuf,
    /// Handle of the directory: a user who may write above it can rename it.
    dir: OwnedFd,
    /// Locked while the directory is in use.
    _owner: File,
    _at_end: interrupt::OnEnd,
    kept: bool,
}

impl OwnedDir {
    /// Makes a directory in `base` with a name that begins with `prefix`.
    pub fn make(base: &Path, prefix: &str) -> io::Result<Self> {
        loop {
            let made = tempfile::Builder::new()
                .prefix(prefix)
                .permissions(fs::Permissions::from_mode(0o700))
                .tempdir_in(base)?;
            let dir = open_dir(made.path())?;
            // Until the lock is held, another xdc may remove it as abandoned.
            if let Some(owner) = lock_new(&dir)? {
                let path = made.keep();
                let at_end = path.clone();
                return Ok(Self {
                    _at_end: interrupt::on_end(move || remove_tree(&at_end)),
                    path,
                    dir,
                    _owner: owner,
                    kept: false,
                });
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file; folders in `name` are made. No link is followed.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?;
        let (folders, name) = name.rsplit_once('/').unwrap_or(("", name));
        for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
            match rustix::fs::mkdirat(&dir, folder, Mode::from(0o777)) {
                Err(err) if err != rustix::io::Errno::EXIST => return Err(err.into()),
                _ => dir = rustix::fs::openat(&dir, folder, DIRECTORY, Mode::empty())?,
            }
        }
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&dir, name, flags, Mode::from(0o666))?.into())
    }

    /// Renames it to `name` in the same directory and sets the mode from the umask; returns false
    /// if the name is taken.
    pub fn keep(&mut self, name: &str) -> io::Result<bool> {
        let base = open_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        let own = self.path.file_name().unwrap_or_default();
        let renamed =
            match rustix::fs::renameat_with(&base, own, &base, name, RenameFlags::NOREPLACE) {
                // Some file systems lack RENAME_NOREPLACE.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                    match rustix::fs::statat(&base, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(_) => Err(rustix::io::Errno::EXIST),
                        Err(_) => rustix::fs::renameat(&base, own, &base, name),
                    }
                }
                renamed => renamed,
            };
        match renamed {
            Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => return Ok(false),
            renamed => renamed?,
        }
        let there = rustix::fs::statat(&base, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let ours = rustix::fs::fstat(&self.dir)?;
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino) {
            return Err(io::Error::other("another process has replaced the directory"));
        }
        self.path.set_file_name(name);
        self.kept = true;
        // Last, as the mode marks an unfinished directory until here.
        rustix::fs::fchmod(&self.dir, Mode::from(0o777 & !umask()))?;
        rustix::fs::unlinkat(&self.dir, OWNER, AtFlags::empty())?;
        let synced = rustix::fs::fsync(&self.dir).and_then(|()| rustix::fs::fsync(&base));
        ignore_unsupported(synced.map_err(io::Error::from))?;
        Ok(true)
    }
}

impl OwnedDir {
    pub fn remove(&self) {
        remove_tree(&self.path);
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        if !self.kept {
            self.remove();
        }
    }
}

/// Retries: a process that is about to end may still write into it.
fn remove_tree(path: &Path) {
    const TRIES: u32 = 30;
    for _ in 0..TRIES {
        // First: remove_dir_all() takes a stack frame and a file descriptor per level.
        let _ = flatten(path);
        let _ = fs::remove_dir_all(path);
        if fs::symlink_metadata(path).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Moves all nested folders to the top and empties them. A guest may nest folders deeper than there
/// are file descriptors, or deny access even to their owner.
fn flatten(path: &Path) -> io::Result<()> {
    let top = open_dir(path)?;
    let mut number = 0_u64;
    loop {
        let mut found = false;
        for name in names(&top)? {
            if !is_folder(&top, &name) {
                continue;
            }
            found = true;
            let folder = enter(&top, &name)?;
            for inner in names(&folder)? {
                if is_folder(&folder, &inner) {
                    // Moving a folder needs write permission on it.
                    enter(&folder, &inner)?;
                    number += 1;
                    rustix::fs::renameat(&folder, &inner, &top, format!(".flat-{number}"))?;
                } else {
                    rustix::fs::unlinkat(&folder, &inner, AtFlags::empty())?;
                }
            }
            rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
        }
        if !found {
            return Ok(());
        }
    }
}

/// All entries but `.` and `..`.
fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_folder(dir: &OwnedFd, name: &CStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Opens a folder of any mode, and gives its owner access.
fn enter(dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(dir, name, place, Mode::empty())?;
    // fchmod(2) fails on O_PATH; the link in /proc leads to the same file.
    let itself = format!("/proc/self/fd/{}", folder.as_raw_fd());
    fs::set_permissions(itself, fs::Permissions::from_mode(0o700))?;
    Ok(rustix::fs::openat(&folder, ".", DIRECTORY, Mode::empty())?)
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory, but no symlink.
fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    // Links in the parent path are the user's choice; only the last part must be a directory.
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// Returns None if another process was faster, which then removes the directory.
fn lock_new(dir: &OwnedFd) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let owner = match rustix::fs::openat(dir, OWNER, flags, Mode::from(0o600)) {
        // The directory has been removed.
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        owner => File::from(owner?),
    };
    // On a file system without locks, no other process takes it for abandoned either.
    if rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive)
        == Err(rustix::io::Errno::WOULDBLOCK)
    {
        return Ok(None);
    }
    let words: Vec<_> = std::env::args_os().collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let host = rustix::system::uname();
    writeln!(
        &owner,
        "process {} on {}, TMPDIR {}: {}",
        std::process::id(),
        host.nodename().to_string_lossy(),
        std::env::temp_dir().display(),
        words.join(" ")
    )?;
    let there = rustix::fs::statat(dir, OWNER, AtFlags::SYMLINK_NOFOLLOW);
    Ok(there.is_ok().then_some(owner))
}

/// Removes directories in `base` with this prefix that are ours and whose owner is dead.
pub fn reap(base: &Path, prefix: &str) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries {
        let named = entry.file_name().to_string_lossy().starts_with(prefix);
        if named && is_dead(&entry.path()).unwrap_or(false) {
            remove_tree(&entry.path());
        }
    }
}

fn is_dead(path: &Path) -> io::Result<bool> {
    let dir = open_dir(path)?;
    // Checked before opening a file in it: another user's lease would delay that.
    let us = rustix::process::geteuid().as_raw();
    if rustix::fs::fstat(&dir)?.st_uid != us {
        return Ok(false);
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let owner = File::from(rustix::fs::openat(&dir, OWNER, flags, Mode::empty())?);
    let ours = owner.metadata()?.uid() == us;
    // The owner writes the file after locking it; an empty file means that it is still being set
    // up.
    let made = owner.metadata()?.len() > 0;
    Ok(ours && made && rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Names in `base` that begin with `prefix`, of directories that live processes of this user hold.
pub fn held(base: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let own = names.filter(|name| name.starts_with(prefix));
    own.filter(|name| is_held(&base.join(name)).unwrap_or(false)).collect()
}

/// Returns whether a process holds the lock; false for another user's directory.
fn is_held(path: &Path) -> io::Result<bool> {
    let dir = open_dir(path)?;
    let us = rustix::process::geteuid().as_raw();
    if rustix::fs::fstat(&dir)?.st_uid != us {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let owner = rustix::fs::openat(&dir, OWNER, flags, Mode::empty())?;
    let locked = rustix::fs::flock(&owner, FlockOperation::NonBlockingLockShared);
    Ok(locked == Err(rustix::io::Errno::WOULDBLOCK))
}

/// Makes a folder for our files, and its parents. Refuses a link as the folder or as a parent that
/// a relative path names, except the first, the user's results folder.
pub fn make_folder(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().take(own_folders(path)) {
        if fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_symlink()) {
            let sentence =
                format!("{} is a symbolic link, which is not followed", folder.display());
            return Err(io::Error::other(sentence));
        }
    }
    fs::create_dir_all(path)
}

/// Number of trailing path components that xdc names.
fn own_folders(path: &Path) -> usize {
    match path.is_absolute() {
        true => 1,
        false => path.components().count().saturating_sub(1).max(1),
    }
}

/// The process's umask: mode bits that new files lack.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

/// Replaces a file atomically and durably: readers see all of the old or the new content, also
/// after a power loss. The mode is our old file's, or else from the umask. Links and devices are
/// refused.
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    put(path, content.as_ref()).map(drop)
}

/// Creates a file at `path` to be written step by step; otherwise like [`replace`].
pub fn create(path: &Path) -> io::Result<File> {
    put(path, b"")
}

fn put(path: &Path, content: &[u8]) -> io::Result<File> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let old = match fs::symlink_metadata(path) {
        Ok(old) if !old.is_file() => {
            let what = "not a regular file (symbolic links are not followed)";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        old => old.ok(),
    };
    let mut file = tempfile::Builder::new()
        .prefix(NEW)
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    // Drops the setuid bit, and modes of another user's file.
    let us = rustix::process::geteuid().as_raw();
    if let Some(old) = old.filter(|old| old.uid() == us) {
        let mode = fs::Permissions::from_mode(old.mode() & 0o777);
        file.as_file().set_permissions(mode)?;
    }
    let name = file.path().to_path_buf();
    let _at_end = interrupt::on_end(move || drop(fs::remove_file(name)));
    file.write_all(content)?;
    ignore_unsupported(file.as_file().sync_all())?;
    let file = file.persist(path)?;
    ignore_unsupported(File::open(dir)?.sync_all())?;
    Ok(file)
}

/// Removes temporary files of killed [`replace`] calls; a running one takes less time.
pub fn reap_files(dir: &Path) {
    const DEAD_AFTER: Duration = Duration::from_secs(600);
    remove_old(dir, NEW, DEAD_AFTER);
}

/// Removes files with this prefix that were not written or touched for `unused`.
pub fn remove_old(dir: &Path, prefix: &str, unused: Duration) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(prefix);
        let written = entry.metadata().and_then(|meta| meta.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        if named && age.is_some_and(|age| age > unused) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Ignores EINVAL of a sync: that file system has nothing to flush.
pub fn ignore_unsupported(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(err) if err.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn make_folder_refuses_a_link() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("victim")).unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink("victim", &link).unwrap();
        assert!(make_folder(&link).is_err());
        make_folder(&base.path().join("a/b")).unwrap();
        for (path, own) in [("results/sweeps/x", 2), ("results", 1), ("/a/b/c", 1)] {
            assert_eq!(own_folders(Path::new(path)), own, "{path}");
        }
    }

    #[test]
    fn an_owned_directory_is_private_and_removed_on_drop() {
        let base = tempfile::tempdir().unwrap();
        let dir = OwnedDir::make(base.path(), "xdc-").unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        let owner = fs::read_to_string(dir.path().join(OWNER)).unwrap();
        assert!(owner.starts_with(&format!("process {} on ", std::process::id())));
        drop(dir);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    /// Nested deeper than file descriptors allow, with an inaccessible folder at the bottom.
    #[test]
    fn a_deep_tree_is_removed_on_drop() {
        let base = tempfile::tempdir().unwrap();
        let dir = OwnedDir::make(base.path(), "xdc-").unwrap();
        let mut at = open_dir(dir.path()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::from(0o700)).unwrap();
            rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::from(0o400))
                .unwrap();
            at = rustix::fs::openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        rustix::fs::mkdirat(&at, "closed", Mode::from(0o300)).unwrap();
        let link = OFlags::PATH | OFlags::CLOEXEC;
        let closed = rustix::fs::openat(&at, "closed", link, Mode::empty()).unwrap();
        rustix::fs::mkdirat(&closed, "inner", Mode::from(0)).unwrap();
        drop(dir);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_directories_of_live_processes_are_held() {
        let base = tempfile::tempdir().unwrap();
        let alive = OwnedDir::make(base.path(), "xdc-memory-8m-").unwrap();
        for (name, owner) in [("dead", "process 1\n"), ("made", "")] {
            let dir = base.path().join(format!("xdc-memory-999999999m-{name}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(OWNER), owner).unwrap();
        }
        fs::create_dir(base.path().join("xdc-memory-999999999m-empty")).unwrap();
        fs::write(base.path().join("xdc-memory-999999999m-file"), "").unwrap();
        let own = alive.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(held(base.path(), "xdc-memory-"), [own]);
        assert!(held(base.path(), "other-").is_empty());
    }

    #[test]
    fn only_directories_of_dead_processes_are_reaped() {
        let base = tempfile::tempdir().unwrap();
        let alive = OwnedDir::make(base.path(), "xdc-").unwrap();
        // As after kill -9: the lock is gone with the process.
        let dead = base.path().join("xdc-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(OWNER), "process 1\n").unwrap();
        fs::write(dead.join("initramfs"), "x").unwrap();
        for name in ["xdc-somebodys", "other-dead", "xdc-being-made"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        fs::write(base.path().join("other-dead/owner"), "process 1\n").unwrap();
        fs::write(base.path().join("xdc-being-made/owner"), "").unwrap();
        std::os::unix::fs::symlink(base.path().join("other-dead"), base.path().join("xdc-link"))
            .unwrap();
        reap(base.path(), "xdc-");
        assert!(!dead.exists());
        assert!(alive.path().exists());
        for name in ["xdc-somebodys", "other-dead/owner", "xdc-being-made", "xdc-link"] {
            assert!(base.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn links_are_not_followed_and_files_not_overwritten() {
        let base = tempfile::tempdir().unwrap();
        let victim = base.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let dir = OwnedDir::make(base.path(), ".running-").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("summary.json")).unwrap();
        assert!(dir.create("summary.json").is_err());
        // Another directory takes its name.
        let stolen = base.path().join("stolen");
        fs::rename(dir.path(), &stolen).unwrap();
        std::os::unix::fs::symlink(base.path(), dir.path()).unwrap();
        dir.create("plots/a.svg").unwrap();
        assert!(stolen.join("plots/a.svg").exists());
        assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
        let mut dir = dir;
        assert!(dir.keep("1").is_err());
        fs::remove_file(base.path().join("1")).unwrap();
        drop(dir);
    }

    #[test]
    fn a_taken_name_is_not_replaced() {
        let base = tempfile::tempdir().unwrap();
        // Empty, as a plain rename would replace it.
        fs::create_dir(base.path().join("1")).unwrap();
        let mut dir = OwnedDir::make(base.path(), ".running-").unwrap();
        assert!(!dir.keep("1").unwrap());
        assert!(dir.keep("2").unwrap());
        drop(dir);
        let kept = base.path().join("2");
        assert_eq!(mode(&kept), 0o777 & !umask());
        assert_eq!(fs::read_dir(kept).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_replaced_and_a_link_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("table.csv");
        replace(&path, "old").unwrap();
        replace(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(mode(&path), 0o666 & !umask());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6604)).unwrap();
        replace(&path, "newer").unwrap();
        assert_eq!(mode(&path), 0o604);
        assert!(replace(&base.path().join("no/where"), "").is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(replace(&link, "").is_err() && create(&link).is_err());
        assert!(create(Path::new("/dev/null")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        create(&path).unwrap().write_all(b"streamed").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "streamed");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2);
    }
}
