// SPDX-License-Identifier: GPL-2.0
//! Where things are: the checkout with its scenarios and build artifacts, the cache, the
//! directories for files that live as long as a guest.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// The checkout.
pub struct Home(PathBuf);

/// A kernel that the Makefile builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Flavour {
    X86,
    Debug,
    Uml,
}

impl Flavour {
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Debug => "debug",
            Self::Uml => "uml",
        }
    }
}

impl Home {
    /// XDC_HOME, else what the executable lies in, else what the caller stands in.
    pub fn find() -> Result<Self> {
        if let Some(path) = env::var_os("XDC_HOME") {
            let path = PathBuf::from(path);
            return if is_checkout(&path) {
                Ok(Self(path))
            } else {
                Err(
                    Error::failure(format!("XDC_HOME={} is no checkout of xdc", path.display()))
                        .hint("point it at the directory with scenarios/ and userspace-tools/"),
                )
            };
        }
        let starts = [env::current_exe().ok(), env::current_dir().ok()];
        starts
            .iter()
            .flatten()
            .flat_map(|start| start.ancestors())
            .find(|dir| is_checkout(dir))
            .map(|dir| Self(dir.to_path_buf()))
            .ok_or_else(|| {
                Error::failure("no checkout of xdc around the command or this directory")
                    .hint("XDC_HOME=DIR, the directory with scenarios/ and userspace-tools/")
            })
    }

    pub fn scenarios(&self) -> PathBuf {
        self.0.join("scenarios")
    }

    pub fn selftests(&self) -> PathBuf {
        self.0.join("selftests")
    }

    /// Runs a program with another distribution's tools.
    pub fn in_root(&self) -> PathBuf {
        self.0.join("qemu-images/in-root.sh")
    }

    /// The page whose tables `xdc bench` writes.
    pub fn performance_page(&self) -> PathBuf {
        self.0.join("docs/performance.md")
    }

    fn artifact(&self, path: String) -> Result<PathBuf> {
        let full = self.0.join("build").join(&path);
        if full.exists() {
            Ok(full)
        } else {
            Err(Error::unbuilt(format!("build/{path} is not there yet")))
        }
    }

    pub fn kernel(&self, flavour: Flavour) -> Result<PathBuf> {
        self.artifact(format!("{}/kernel", flavour.name()))
            .map_err(|err| match flavour {
                Flavour::Debug => err.hint("make kernel-debug modules-debug"),
                Flavour::X86 | Flavour::Uml => err,
            })
    }

    pub fn release(&self, flavour: Flavour) -> Result<String> {
        let path = self.artifact(format!("{}/release", flavour.name()))?;
        let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
        Ok(text.trim().to_owned())
    }

    /// The kernel's own list of what it has built in, for modprobe.
    pub fn builtin_lists(&self, flavour: Flavour) -> Vec<PathBuf> {
        [
            "modules.builtin",
            "modules.builtin.modinfo",
            "modules.order",
        ]
        .iter()
        .filter_map(|name| {
            self.artifact(format!("{}/tree/{name}", flavour.name()))
                .ok()
        })
        .collect()
    }

    pub fn modules(&self, flavour: Flavour) -> Result<Vec<PathBuf>> {
        let dir = self.artifact(format!("{}/modules", flavour.name()))?;
        let mut modules: Vec<_> = fs::read_dir(&dir)
            .map_err(|err| Error::io(dir.display(), &err))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "ko"))
            .collect();
        modules.sort();
        if modules.is_empty() {
            return Err(Error::unbuilt(format!(
                "build/{}/modules has no kernel module",
                flavour.name()
            )));
        }
        Ok(modules)
    }

    pub fn agent(&self) -> Result<PathBuf> {
        self.artifact("agent".to_owned())
    }

    /// What makes tc know phantom, where `make tools` has built it.
    pub fn tc_plugin(&self) -> Option<PathBuf> {
        self.artifact("tc/q_phantom.so".to_owned()).ok()
    }

    /// Where `make test-tools` puts a program of the guest's tests.
    pub fn guest_program(&self, name: &str) -> PathBuf {
        self.0.join("build/guest-bin").join(name)
    }

    /// Static programs for a guest's tests, where `make test-tools` has made them.
    pub fn guest_programs(&self) -> Result<Vec<PathBuf>> {
        let dir = self.0.join("build/guest-bin");
        if !dir.exists() {
            return Ok(Vec::new());
        }
        let mut programs: Vec<_> = fs::read_dir(&dir)
            .map_err(|err| Error::io(dir.display(), &err))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        programs.sort();
        Ok(programs)
    }
}

fn is_checkout(dir: &Path) -> bool {
    dir.join("scenarios").is_dir() && dir.join("userspace-tools").is_dir()
}

/// `uname -r`.
pub fn running_release() -> Result<String> {
    let path = "/proc/sys/kernel/osrelease";
    let text = fs::read_to_string(path).map_err(|err| Error::io(path, &err))?;
    Ok(text.trim().to_owned())
}

/// Answers that are expensive to find twice; shared with the Makefile.
pub fn cache() -> Option<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(base.join("xdc"))
}

const MIN_FREE_BYTES: u64 = 256 << 20;

/// A directory of our own that goes when it is dropped.
pub fn temp_dir() -> Result<TempDir> {
    let base = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| has_space(dir, MIN_FREE_BYTES))
        .unwrap_or_else(env::temp_dir);
    require_space(&base)?;
    new_temp_dir(&base)
}

/// A directory for the UML guest's memory: RAM rather than a disk that would write it back.
/// The kernel maps code from it.
pub fn memory_dir(bytes: u64) -> Result<TempDir> {
    let shm = Path::new("/dev/shm");
    let executable = rustix::fs::statvfs(shm)
        .is_ok_and(|fs| !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
    if executable && has_space(shm, bytes) {
        new_temp_dir(shm)
    } else {
        temp_dir()
    }
}

fn new_temp_dir(base: &Path) -> Result<TempDir> {
    // Absolute, because a guest stands in it.
    std::path::absolute(base)
        .and_then(|base| tempfile::Builder::new().prefix("xdc-").tempdir_in(base))
        .map_err(|err| Error::io(format!("temporary directory in {}", base.display()), &err))
}

fn has_space(dir: &Path, bytes: u64) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= bytes)
}

/// Fail before a guest runs rather than after it.
pub fn require_space(dir: &Path) -> Result<()> {
    if has_space(dir, MIN_FREE_BYTES) {
        return Ok(());
    }
    Err(Error::failure(format!(
        "less than {} MB are free in {}",
        MIN_FREE_BYTES >> 20,
        dir.display()
    ))
    .hint("free some disk space, or set TMPDIR and --results to where there is some"))
}
