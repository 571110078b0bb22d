// SPDX-License-Identifier: GPL-2.0
//! Trust in files that xdc runs: only the caller, root and the executable's owner may be able to
//! write or replace them.

use std::env;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::error::{Error, Result};

/// Users whose files may be run.
#[derive(Debug, Clone)]
pub struct Trust {
    owners: Vec<u32>,
    /// Whether the caller is root, for whom parent folders are checked too.
    is_root: bool,
}

impl Trust {
    /// Trusts the caller, root, the user who called sudo, and `author`.
    pub fn of_caller(author: Option<u32>) -> Self {
        let caller = geteuid();
        let sudo = env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        let sudo: Option<u32> = sudo.filter(|_| caller.is_root());
        let owners = [caller.as_raw(), 0].into_iter().chain(sudo).chain(author);
        Self { owners: owners.collect(), is_root: caller.is_root() }
    }

    /// Fails if another user can write the file or folder or, for root, replace it.
    pub fn check(&self, path: &Path) -> Result<()> {
        let failed = |err: &std::io::Error| Error::io(path.display(), err);
        let real = fs::canonicalize(path).map_err(|err| failed(&err))?;
        let named = std::path::absolute(path).map_err(|err| failed(&err))?;
        self.check_one(&real, false)?;
        if !self.is_root {
            return Ok(());
        }
        let mut at = named;
        loop {
            // The folders of a link decide where it leads, so they are checked before it is read.
            let above: Vec<_> = at.ancestors().collect();
            let link = above.iter().rev().find(|it| it.is_symlink());
            let end = link.map_or(&*at, |link| link);
            end.ancestors().skip(1).try_for_each(|dir| self.check_one(dir, true))?;
            let Some(link) = link else { return Ok(()) };
            // In a sticky folder only its owner can replace the link.
            let meta = fs::symlink_metadata(link).map_err(|err| failed(&err))?;
            self.check_owner(link, &meta)?;
            let target = fs::read_link(link).map_err(|err| failed(&err))?;
            let folder = link.parent().unwrap_or(link);
            let rest = at.strip_prefix(link).unwrap_or(Path::new(""));
            // Without the trailing slash of an empty rest.
            at = folder.join(target).join(rest).components().collect();
        }
    }

    fn check_one(&self, path: &Path, is_above: bool) -> Result<()> {
        let meta = fs::metadata(path).map_err(|err| Error::io(path.display(), &err))?;
        self.check_owner(path, &meta)?;
        match self.is_writable_by_others(&meta, is_above) {
            false => Ok(()),
            true => Err(refused(path, "is writable by others")
                .hint(format!("chmod go-w {}", path.display()))),
        }
    }

    fn check_owner(&self, path: &Path, meta: &Metadata) -> Result<()> {
        match self.owners.contains(&meta.uid()) {
            true => Ok(()),
            false => Err(refused(path, &format!("belongs to user {}", meta.uid()))),
        }
    }

    fn is_writable_by_others(&self, meta: &Metadata, is_above: bool) -> bool {
        const STICKY: u32 = 0o1000;
        let (gid, mode) = (meta.gid(), meta.mode());
        // In a sticky folder, such as /tmp, only the owner can replace a file.
        if is_above && mode & STICKY != 0 {
            return false;
        }
        // A user's private group has the user's number. Root does not rely on that.
        let is_private = gid == 0 || (gid == meta.uid() && !self.is_root);
        mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_private)
    }
}

fn refused(path: &Path, what: &str) -> Error {
    let path = path.display();
    Error::failure(format!("{path} {what}, so it is not run"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    fn trust(is_root: bool) -> Trust {
        Trust { is_root, ..Trust::of_caller(None) }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn root_refuses_a_folder_writable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = (dir.path().join("shared"), dir.path().join("own"));
        for dir in [&shared, &own] {
            fs::create_dir(dir).unwrap();
        }
        let file = shared.join("agent");
        fs::write(&file, "").unwrap();
        // Only the folder of the link's target is open.
        let link = own.join("agent");
        symlink(&file, &link).unwrap();
        for (mode, refused) in [(0o755, false), (0o777, true), (0o1777, false)] {
            set_mode(&shared, mode);
            for path in [&file, &link] {
                assert_eq!(trust(true).check(path).is_err(), refused, "{mode:o}");
                assert!(trust(false).check(path).is_ok(), "{mode:o}");
            }
        }
        // Only the folder of the link itself is open.
        set_mode(&shared, 0o755);
        set_mode(&own, 0o777);
        assert!(trust(true).check(&link).is_err());
        assert!(trust(true).check(&file).is_ok());
    }

    #[test]
    fn every_link_of_a_chain_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["own", "between", "own/home"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("own/home/agent"), "").unwrap();
        symlink("../between/home", at("own/link")).unwrap();
        symlink(at("own/home"), at("between/home")).unwrap();
        symlink("../between/agent", at("own/agent")).unwrap();
        symlink("../own/link/agent", at("between/agent")).unwrap();
        for (mode, refused) in [(0o755, false), (0o777, true), (0o1777, false)] {
            set_mode(&at("between"), mode);
            for name in ["own/link", "own/link/agent", "own/agent"] {
                let checked = trust(true).check(&at(name));
                assert_eq!(checked.is_err(), refused, "{name} {mode:o}");
            }
            assert!(trust(true).check(&at("own/home/agent")).is_ok());
        }
        if geteuid().is_root() {
            lchown(at("between/agent"), Some(1001), None).unwrap();
            assert!(trust(true).check(&at("own/agent")).is_err());
            assert!(trust(true).check(&at("own/link/agent")).is_ok());
        }
    }

    #[test]
    fn a_private_group_may_have_write_access() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent");
        fs::write(&file, "").unwrap();
        const USER: u32 = 1000;
        const USERS: u32 = 100;
        let trust = |is_root| Trust { owners: vec![0, USER], is_root };
        for (gid, mode, user, root) in [
            (USERS, 0o755, true, true),
            (USERS, 0o775, false, false),
            (USER, 0o775, true, false),
            (0, 0o775, true, true),
            (USER, 0o757, false, false),
        ] {
            chown(&file, Some(USER), Some(gid)).unwrap();
            set_mode(&file, mode);
            assert_eq!(trust(false).check(&file).is_ok(), user, "{gid} {mode:o}");
            assert_eq!(trust(true).check(&file).is_ok(), root, "{gid} {mode:o}");
        }
        chown(&file, Some(USER + 1), Some(0)).unwrap();
        let said = trust(true).check(&file).unwrap_err().to_string();
        assert!(said.contains("belongs to user 1001"), "{said}");
    }
}
