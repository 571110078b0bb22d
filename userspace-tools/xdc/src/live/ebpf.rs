// SPDX-License-Identifier: GPL-2.0
//! The objects that qemu-images/ebpf.sh builds: where they are, and loading them.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Ebpf;

use crate::error::{Error, Result};
use crate::home::Home;
use crate::trust::Trust;

/// An object's programs and maps, and where it was found. `needs` is a hint: what the kernel has to have.
pub fn load(object: &str, needs: &str) -> Result<(PathBuf, Ebpf)> {
    let path = find(object)?;
    let bytes = fs::read(&path).map_err(|err| Error::io(path.display(), &err))?;
    let ebpf = Ebpf::load(&bytes)
        .map_err(|err| refusal(&format!("loading {object}"), &err).hint(needs))?;
    Ok((path, ebpf))
}

/// Beside this program, in the library of its PREFIX, or where the checkout builds it.
fn find(object: &str) -> Result<PathBuf> {
    let own = env::current_exe().map_err(|err| Error::io("finding xdc itself", &err))?;
    let author = fs::metadata(&own).map(|meta| meta.uid()).ok();
    let trust = Trust::of_caller(author);
    let beside = own.with_file_name(object);
    let library = own.with_file_name("../lib/xdc").join(object);
    for path in [&beside, &library]
        .into_iter()
        .filter(|path| path.is_file())
    {
        trust.check(path)?;
    }
    let built = match Home::find() {
        Ok(home) => home.guest_program(object)?,
        Err(_) => None,
    };
    [Some(beside), Some(library), built]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Error::failure(format!(
                "{object}, the eBPF of this command, is not beside xdc"
            ))
            .hint("make tracing, or put it into the folder of xdc")
        })
}

/// The object is of another version than this program.
pub fn stale(path: &Path, what: &str) -> Error {
    Error::failure(format!("{} has no {what}", path.display())).hint("make tracing")
}

/// The kernel did not do it.
pub fn refused(doing: &str, err: &dyn std::error::Error, needs: &str) -> Error {
    refusal(doing, err).hint(needs)
}

/// With the causes, of which the last one is the kernel's.
fn refusal(doing: &str, err: &dyn std::error::Error) -> Error {
    let mut causes = vec![err.to_string()];
    let mut cause = err.source();
    while let Some(err) = cause {
        causes.push(err.to_string());
        cause = err.source();
    }
    Error::failure(format!("{doing}: {}", causes.join(": ")))
}
