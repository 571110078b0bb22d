// SPDX-License-Identifier: GPL-2.0
//! Finds and loads the objects built by qemu-images/ebpf.sh.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::trust::Trust;

/// Loads an object's programs and maps; returns its path, too. `needs` is a hint with kernel requirements.
pub fn load(object: &str, needs: &str) -> Result<(PathBuf, Ebpf)> {
    let path = find(object)?;
    let bytes = fs::read(&path).map_err(|err| Error::io(path.display(), &err))?;
    let ebpf = Ebpf::load(&bytes)
        .map_err(|err| refusal(&format!("loading {object}"), &err).hint(needs))?;
    Ok((path, ebpf))
}

/// Finds an object beside this program, in the library of its PREFIX, or in the checkout's build.
fn find(object: &str) -> Result<PathBuf> {
    let own = env::current_exe().map_err(|err| Error::io("finding xdc itself", &err))?;
    let author = fs::metadata(&own).map(|meta| meta.uid()).ok();
    let trust = Trust::of_caller(author);
    let beside = own.with_file_name(object);
    let library = own.with_file_name("../lib/xdc").join(object);
    if let Some(path) = trusted(&trust, [beside, library])? {
        return Ok(path);
    }
    let built = match Home::find() {
        Ok(home) => home.guest_program(object)?,
        Err(_) => None,
    };
    built.filter(|path| path.is_file()).ok_or_else(|| {
        Error::failure(format!("{object}, the eBPF program of this command, is not beside xdc"))
            .hint("make tracing, or put it into the folder of xdc")
    })
}

/// The first existing path; an error if another user can have written it.
fn trusted(trust: &Trust, paths: [PathBuf; 2]) -> Result<Option<PathBuf>> {
    let found = paths.into_iter().find(|path| path.is_file());
    found.iter().try_for_each(|path| trust.check(path))?;
    Ok(found)
}

/// Error for an object of another version than this program.
pub fn stale(path: &Path, what: &str) -> Error {
    Error::failure(format!("{} has no {what}", path.display())).hint("make tracing")
}

/// Error for a request that the kernel refused.
pub fn refused(doing: &str, err: &dyn std::error::Error, needs: &str) -> Error {
    refusal(doing, err).hint(needs)
}

/// Error with all causes; the last one is the kernel's.
fn refusal(doing: &str, err: &dyn std::error::Error) -> Error {
    let mut causes = vec![err.to_string()];
    let mut cause = err.source();
    while let Some(err) = cause {
        causes.push(err.to_string());
        cause = err.source();
    }
    Error::failure(format!("{doing}: {}", causes.join(": ")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_object_that_others_can_write_is_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        let trust = Trust::of_caller(None);
        let found = || trusted(&trust, paths.clone());
        assert_eq!(found().unwrap(), None);
        fs::write(&paths[1], "").unwrap();
        let mode = |mode| fs::set_permissions(&paths[1], fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert_eq!(found().unwrap().as_ref(), Some(&paths[1]));
        mode(0o666);
        assert!(found().is_err());
    }
}
