// SPDX-License-Identifier: GPL-2.0
//! Directories that end with their owner. Each has a random name, lets nobody else in, and holds a
//! file `owner` that says whose it is and that the owner keeps locked: what a killed xdc has left
//! is locked by nobody, and the next one removes it.

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
/// What a file is called until it is whole.
const NEW: &str = ".new-";

/// Removed with this value, unless it was kept.
pub struct OwnedDir {
    path: PathBuf,
    /// The directory itself: whoever may write above it can put another one under its name.
    dir: OwnedFd,
    /// Locked.
    _owner: File,
    _at_end: interrupt::OnEnd,
    kept: bool,
}

impl OwnedDir {
    /// Makes one in `base`, whose name begins with `prefix`.
    pub fn make(base: &Path, prefix: &str) -> io::Result<Self> {
        loop {
            let made = tempfile::Builder::new()
                .prefix(prefix)
                .permissions(fs::Permissions::from_mode(0o700))
                .tempdir_in(base)?;
            let dir = open_dir(made.path())?;
            // Somebody may take it for a dead one's until it is locked.
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

    /// A new file; `name` may have folders, which are made. No link is followed.
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

    /// Gives it a name for good, in the same directory, and lets others look as the umask has it;
    /// false if the name is taken.
    pub fn keep(&mut self, name: &str) -> io::Result<bool> {
        let base = open_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        let own = self.path.file_name().unwrap_or_default();
        let renamed =
            match rustix::fs::renameat_with(&base, own, &base, name, RenameFlags::NOREPLACE) {
                // Not every file system can.
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
            return Err(io::Error::other(
                "somebody has put another directory in its place",
            ));
        }
        self.path.set_file_name(name);
        self.kept = true;
        // Last: until here it can be told from a finished one.
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

/// It may be gone already, or the disk may be. What still writes into it has been told to end.
fn remove_tree(path: &Path) {
    const TRIES: u32 = 30;
    for _ in 0..TRIES {
        // First: remove_dir_all() takes a stack frame and a file descriptor for each depth.
        let _ = flatten(path);
        let _ = fs::remove_dir_all(path);
        if fs::symlink_metadata(path).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Empties the folders of a folder into it, and theirs. A guest may have made some that are
/// deeper than there are file descriptors to go down by, or that let not even their owner in.
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
                    // To be moved it has to be writable.
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

/// All but `.` and `..`.
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

/// Opens a folder, whatever its mode is; its owner may look into it from then on.
fn enter(dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(dir, name, place, Mode::empty())?;
    // A place takes no fchmod(2); its name in /proc leads to it and nowhere else.
    let itself = format!("/proc/self/fd/{}", folder.as_raw_fd());
    fs::set_permissions(itself, fs::Permissions::from_mode(0o700))?;
    Ok(rustix::fs::openat(&folder, ".", DIRECTORY, Mode::empty())?)
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A symlink is none.
fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    // What leads to a directory is its user's business; what it is itself is ours.
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// None if somebody else was faster, who then removes the directory.
fn lock_new(dir: &OwnedFd) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let owner = match rustix::fs::openat(dir, OWNER, flags, Mode::from(0o600)) {
        // Its directory is gone.
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        owner => File::from(owner?),
    };
    // A file system without locks: nobody takes the directory for a dead one's, either.
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

/// Removes from `base` what is named like this, is ours, and has no living owner.
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
    // Before anything in it is opened, which a lease of another user would delay.
    let us = rustix::process::geteuid().as_raw();
    if rustix::fs::fstat(&dir)?.st_uid != us {
        return Ok(false);
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let owner = File::from(rustix::fs::openat(&dir, OWNER, flags, Mode::empty())?);
    let ours = owner.metadata()?.uid() == us;
    // What is written only after the lock is there: until then it is being made.
    let made = owner.metadata()?.len() > 0;
    Ok(ours && made && rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Names in `base` that begin with `prefix`, of directories that live processes of this user hold.
pub fn held(base: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let own = names.filter(|name| name.starts_with(prefix));
    own.filter(|name| is_held(&base.join(name)).unwrap_or(false))
        .collect()
}

/// False for a directory of another user.
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

/// Makes a folder for files of ours, and those above it. Refuses a link in its place or in the place of a
/// folder above it that a relative path names, except for the first, the user's own folder of results.
pub fn make_folder(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().take(own_folders(path)) {
        if fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_symlink()) {
            let sentence = format!("{} is a link, and may lead anywhere", folder.display());
            return Err(io::Error::other(sentence));
        }
    }
    fs::create_dir_all(path)
}

/// Number of folders at the end of a path that xdc names.
fn own_folders(path: &Path) -> usize {
    match path.is_absolute() {
        true => 1,
        false => path.components().count().saturating_sub(1).max(1),
    }
}

/// What new files may not have.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o077)
}

/// Puts `content` where `path` is: at any moment there is the old file or the new one, whole, and
/// the content outlives a power cut. The mode is that of our old file, or else by the umask.
/// A link or a device is refused: a link may lead anywhere.
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    put(path, content.as_ref()).map(drop)
}

/// A new file where `path` is, to be written as the content comes; like [`replace`] otherwise.
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
            let what = "not a regular file (a link is none, so that nothing is written elsewhere)";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        old => old.ok(),
    };
    let mut file = tempfile::Builder::new()
        .prefix(NEW)
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    // No setuid bit of a file that was another user's.
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

/// Removes what a killed [`replace`] has left in a directory; one that is under way takes less.
pub fn reap_files(dir: &Path) {
    const DEAD_AFTER: Duration = Duration::from_secs(600);
    remove_old(dir, NEW, DEAD_AFTER);
}

/// Removes files whose names begin with `prefix` and that were not written or touched for this long.
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

/// A file system that cannot flush has nothing to flush.
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
    fn a_directory_lets_nobody_else_in_and_goes() {
        let base = tempfile::tempdir().unwrap();
        let dir = OwnedDir::make(base.path(), "xdc-").unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        let owner = fs::read_to_string(dir.path().join(OWNER)).unwrap();
        assert!(owner.starts_with(&format!("process {} on ", std::process::id())));
        drop(dir);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    /// Deeper than file descriptors go, with a folder that nobody may look into at the bottom.
    #[test]
    fn whatever_was_made_in_it_goes() {
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
    fn only_what_somebody_alive_holds_is_held() {
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
    fn only_what_nobody_owns_is_reaped() {
        let base = tempfile::tempdir().unwrap();
        let alive = OwnedDir::make(base.path(), "xdc-").unwrap();
        // As it is after kill -9: the lock went with the process.
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
        for name in [
            "xdc-somebodys",
            "other-dead/owner",
            "xdc-being-made",
            "xdc-link",
        ] {
            assert!(base.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn nothing_is_followed_or_overwritten() {
        let base = tempfile::tempdir().unwrap();
        let victim = base.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let dir = OwnedDir::make(base.path(), ".running-").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("summary.json")).unwrap();
        assert!(dir.create("summary.json").is_err());
        // Another directory under its name.
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
    fn a_name_is_taken_once() {
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
    fn a_file_is_replaced_whole() {
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
