// SPDX-License-Identifier: GPL-2.0
//! Files of a run, in a directory made by `xdc`. `xdc` may end and remove it while this process works, and
//! another user may replace it by a link, so only descriptors opened at the start are used.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open, openat},
    sys::stat::{Mode, fstat},
    unistd::{UnlinkatFlags, geteuid, unlinkat},
};

pub struct Files {
    /// The parent directory, and the directory's name in it.
    base: OwnedFd,
    name: OsString,
    dir: OwnedFd,
    names: [OsString; 2],
    pub plan: File,
    pub messages: File,
}

impl Files {
    pub fn open(plan: &Path, messages: &Path) -> Result<Self> {
        let parent = |path: &Path| path.parent().map(Path::to_owned);
        let dir = parent(plan).context("the plan's path has no directory")?;
        let base = parent(&dir).context("the run's directory has no parent directory")?;
        let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
        let names = [name(plan), name(messages)];
        let about = || format!("cannot open {}", dir.display());

        let directory = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let name = name(&dir);
        let base = open(&base, directory | OFlag::O_PATH, Mode::empty()).with_context(about)?;
        let directory = directory | OFlag::O_NOFOLLOW;
        let opened = openat(&base, name.as_os_str(), directory, Mode::empty());
        let opened = opened.with_context(about)?;
        let owner = fstat(&opened).with_context(about)?.st_uid;
        ensure!(owner == geteuid().as_raw(), "{} belongs to another user", dir.display());
        let file = |name: &OsStr, flags| {
            let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let file = openat(&opened, name, flags, Mode::empty());
            file.with_context(|| format!("cannot open {}", dir.join(name).display()))
        };
        Ok(Self {
            plan: file(&names[0], OFlag::O_RDONLY)?.into(),
            messages: file(&names[1], OFlag::O_WRONLY | OFlag::O_APPEND)?.into(),
            base,
            name,
            dir: opened,
            names,
        })
    }

    /// Removes the files and the directory; ignores failures.
    pub fn remove(&self) {
        let others = ["console", "owner"].map(OsStr::new);
        for name in self.names.iter().map(OsString::as_os_str).chain(others) {
            let _ = unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir);
        }
        let _ = unlinkat(&self.base, self.name.as_os_str(), UnlinkatFlags::RemoveDir);
    }
}

/// Takes over a file opened by the supervisor, by its descriptor number, and closes it on exec.
pub fn inherited(number: &str) -> Result<File> {
    let number = number.parse().context("not a file descriptor")?;
    ensure!(number > 2, "{number} is not a file descriptor of the supervisor");
    // SAFETY: the supervisor opened it for this process, and nothing else here uses it.
    let file = unsafe { File::from_raw_fd(number) };
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("fcntl")?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn removal_does_not_follow_a_link_of_the_same_name() {
        let base = env::temp_dir().join(format!("xdc-agent-files-{}", std::process::id()));
        let (run, moved, victim) = (base.join("run"), base.join("moved"), base.join("victim"));
        let all = ["initramfs", "messages", "console", "owner"];
        for dir in [&run, &victim] {
            fs::create_dir_all(dir).unwrap();
            for name in all {
                fs::write(dir.join(name), "").unwrap();
            }
        }
        let open = |dir: &Path| Files::open(&dir.join(all[0]), &dir.join(all[1]));
        let files = open(&run).unwrap();
        fs::rename(&run, &moved).unwrap();
        symlink(&victim, &run).unwrap();
        files.remove();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), all.len());
        assert_eq!(fs::read_dir(&moved).unwrap().count(), 0);
        assert!(open(&run).is_err());
        fs::remove_dir_all(&base).unwrap();
    }
}
