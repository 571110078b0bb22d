// SPDX-License-Identifier: GPL-2.0
//! Paths: the checkout or bundle with scenarios and build artifacts, the cache, and temporary
//! directories of guests.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::process::geteuid;

use crate::added::{self, Added};
use crate::error::{Error, Result};
use crate::owned::{self, OwnedDir};
use crate::trust::Trust;

/// The checkout or an unpacked bundle (`make bundle`), with the Makefile's products.
pub struct Home {
    root: PathBuf,
    /// Folder of the Makefile's products, or a copy of it.
    build: PathBuf,
    /// Folder of the modules that `xdc cc add` has built; None if `build` has copies of them.
    added: Option<PathBuf>,
    /// Trusted owners of executed files; None trusts all, if the caller named the checkout.
    trust: Option<Trust>,
}

/// A kernel that the Makefile builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Flavour {
    X86,
    Debug,
    Uml,
    UmlDebug,
}

impl Flavour {
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Debug => "debug",
            Self::Uml => "uml",
            Self::UmlDebug => "uml-debug",
        }
    }
}

impl Home {
    /// Returns the folder in XDC_HOME, otherwise the one around the executable. The latter must
    /// belong to the caller or the executable's owner, because its kernel and agent are run. The
    /// current directory may be an untrusted archive and is not searched.
    pub fn find() -> Result<Self> {
        if let Some(path) = env::var_os("XDC_HOME") {
            let path = PathBuf::from(path);
            return if is_home(&path) {
                Ok(Self::at(path, None))
            } else {
                let what =
                    format!("XDC_HOME={} is neither a checkout nor a bundle", path.display());
                Err(Error::failure(what).hint("point it at the directory with scenarios/"))
            };
        }
        let own = env::current_exe().ok();
        let author = own.as_ref().and_then(|path| fs::metadata(path).ok());
        let author = author.map(|meta| meta.uid());
        let mut above = own.iter().flat_map(|own| own.ancestors());
        let dir = above.find(|dir| is_home(dir)).ok_or_else(|| {
            Error::failure("no checkout or bundle of xdc around this program")
                .hint("XDC_HOME=DIR, the directory with scenarios/")
        })?;
        let home = Self::at(dir.to_path_buf(), Some(Trust::of_caller(author)));
        home.check_owner(&home.root)?;
        Ok(home)
    }

    fn at(root: PathBuf, trust: Option<Trust>) -> Self {
        Self { build: root.join("build"), added: Some(root.join("build/added")), root, trust }
    }

    /// This home with another folder of build products.
    pub fn with_build(&self, build: PathBuf) -> Self {
        Self { root: self.root.clone(), build, added: None, trust: self.trust.clone() }
    }

    /// This home with another folder of added congestion controls.
    pub fn with_added(&self, added: PathBuf) -> Self {
        Self { added: Some(added), ..self.with_build(self.build.clone()) }
    }

    /// Folder for the modules of `xdc cc add`.
    pub fn added_dir(&self) -> PathBuf {
        self.root.join("build/added")
    }

    /// Congestion controls that `xdc cc add` has built.
    pub fn added(&self) -> Vec<Added> {
        let dir = self.added.as_ref();
        let dir = dir.filter(|dir| self.check_owner(dir).is_ok());
        dir.map(|dir| added::entries(dir)).unwrap_or_default()
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(root: &Path) -> Self {
        Self::at(root.to_path_buf(), None)
    }

    /// Fails if an untrusted user could have written the file.
    fn check_owner(&self, path: &Path) -> Result<()> {
        let Some(trust) = &self.trust else {
            return Ok(());
        };
        let way_out = format!("XDC_HOME={} if you trust them", self.root.display());
        trust.check(path).map_err(|err| err.or_hint(&way_out))
    }

    /// Returns whether a Makefile can build missing products.
    pub fn is_checkout(&self) -> bool {
        self.root.join(SOURCES).is_dir()
    }

    /// The guests' busybox, if the home has one, as a bundle does.
    pub fn busybox(&self) -> Option<PathBuf> {
        let path = self.root.join("tools/busybox");
        (path.is_file() && self.check_owner(&path).is_ok()).then_some(path)
    }

    pub fn scenarios(&self) -> PathBuf {
        self.root.join("scenarios")
    }

    pub fn selftests(&self) -> PathBuf {
        self.root.join("selftests/guest")
    }

    /// Script that runs a program with another distribution's tools.
    pub fn in_root(&self) -> Result<PathBuf> {
        self.script("in-root.sh")
    }

    /// Page with the tables of `xdc bench`.
    pub fn performance_page(&self) -> PathBuf {
        self.root.join("docs/performance.md")
    }

    /// Page with the tables of `xdc-harness foreign`.
    pub fn foreign_page(&self) -> PathBuf {
        self.root.join("docs/results/foreign-suites.md")
    }

    /// Script that makes the root of the foreign suites' guests and prints its path.
    pub fn foreign_root_script(&self) -> Result<PathBuf> {
        self.script("foreign.sh")
    }

    /// Script that builds a congestion control for a guest's kernel.
    pub fn cc_script(&self) -> Result<PathBuf> {
        self.script("cc.sh")
    }

    /// Files and folders of a checkout that the build of a module needs.
    pub fn module_sources(&self) -> Result<[PathBuf; 2]> {
        let paths = ["Kbuild", "modules"].map(|name| self.root.join(name));
        paths.iter().try_for_each(|path| self.check_owner(path))?;
        Ok(paths)
    }

    /// Path of a script in qemu-images/. All scripts there are checked, since they source each
    /// other.
    fn script(&self, name: &str) -> Result<PathBuf> {
        let dir = self.root.join("qemu-images");
        let entries = fs::read_dir(&dir).map_err(|err| Error::io(dir.display(), &err))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut scripts = paths.filter(|path| path.extension().is_some_and(|ext| ext == "sh"));
        scripts.try_for_each(|path| self.check_owner(&path))?;
        Ok(dir.join(name))
    }

    fn artifact(&self, path: String) -> Result<PathBuf> {
        let full = self.build.join(&path);
        match fs::metadata(&full) {
            Ok(_) => self.check_owner(&full).map(|()| full),
            // The link may lead into another user's cache.
            Err(err) if err.kind() == ErrorKind::PermissionDenied => {
                let target = fs::read_link(&full).unwrap_or_else(|_| full.clone());
                Err(Error::failure(format!("build/{path} is not readable: {err}")).hint(format!(
                    "make as this user, or read permission for {}",
                    target.display()
                )))
            }
            Err(_) if !self.is_checkout() => {
                Err(Error::failure(format!("this bundle has no build/{path}"))
                    .hint("--engine uml, or a checkout, whose Makefile builds it"))
            }
            Err(_) => Err(Error::unbuilt(format!("build/{path} is not built"))),
        }
    }

    pub fn kernel(&self, flavour: Flavour) -> Result<PathBuf> {
        self.artifact(format!("{}/kernel", flavour.name())).map_err(|err| match flavour {
            Flavour::Debug => err.hint("make kernel-debug modules-debug"),
            Flavour::UmlDebug => err.hint("make kernel-uml-debug modules-uml-debug"),
            Flavour::X86 | Flavour::Uml => err,
        })
    }

    pub fn release_file(&self, flavour: Flavour) -> Result<PathBuf> {
        self.artifact(format!("{}/release", flavour.name()))
    }

    pub fn release(&self, flavour: Flavour) -> Result<String> {
        let path = self.release_file(flavour)?;
        let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
        Ok(text.trim().to_owned())
    }

    /// The kernel's lists of built-in modules, for modprobe.
    pub fn builtin_lists(&self, flavour: Flavour) -> Vec<PathBuf> {
        ["modules.builtin", "modules.builtin.modinfo", "modules.order"]
            .iter()
            .filter_map(|name| self.artifact(format!("{}/tree/{name}", flavour.name())).ok())
            .collect()
    }

    /// Build tree of the kernel.
    pub fn kernel_tree(&self, flavour: Flavour) -> Result<PathBuf> {
        self.artifact(format!("{}/tree", flavour.name()))
    }

    /// Modules from the kernel's own build, without ours.
    pub fn kernel_modules(&self, flavour: Flavour) -> Result<Vec<PathBuf>> {
        let tree = self.kernel_tree(flavour)?;
        let order = tree.join("modules.order");
        let text = fs::read_to_string(&order).map_err(|err| Error::io(order.display(), &err))?;
        Ok(text
            .lines()
            .map(|object| tree.join(object).with_extension("ko"))
            .filter(|module| module.exists())
            .collect())
    }

    /// Modules of the project, and those of `xdc cc add`.
    pub fn modules(&self, flavour: Flavour) -> Result<Vec<PathBuf>> {
        let dir = self.artifact(format!("{}/modules", flavour.name()))?;
        let mut modules: Vec<_> = fs::read_dir(&dir)
            .map_err(|err| Error::io(dir.display(), &err))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "ko"))
            .collect();
        if modules.is_empty() {
            return Err(Error::unbuilt(format!(
                "build/{}/modules has no kernel module",
                flavour.name()
            )));
        }
        modules.sort();
        let added = self.added.as_ref();
        modules.extend(added.into_iter().flat_map(|dir| added::modules(dir, flavour)));
        for module in &modules {
            self.check_owner(module)?;
        }
        Ok(modules)
    }

    pub fn agent(&self) -> Result<PathBuf> {
        self.artifact("agent".to_owned())
    }

    /// Plugin that adds phantom and acceltor to tc, if `make tools` has built it.
    pub fn tc_plugin(&self) -> Option<PathBuf> {
        self.artifact("tc/q_phantom.so".to_owned()).ok()
    }

    /// Plugin that adds unorc to ip, if `make tools` has built it.
    pub fn ip_plugin(&self) -> Option<PathBuf> {
        self.artifact("ip/link_unorc.so".to_owned()).ok()
    }

    /// A program of the guest's tests; None if `make test-tools` has not made it.
    pub fn guest_program(&self, name: &str) -> Result<Option<PathBuf>> {
        let path = self.root.join("build/guest-bin").join(name);
        match path.is_file() {
            true => self.check_owner(&path).map(|()| Some(path)),
            false => Ok(None),
        }
    }

    /// All programs that `make test-tools` has made for a guest's tests.
    pub fn guest_programs(&self) -> Result<Vec<PathBuf>> {
        let dir = self.root.join("build/guest-bin");
        if !dir.exists() {
            return Ok(Vec::new());
        }
        let mut programs: Vec<_> = fs::read_dir(&dir)
            .map_err(|err| Error::io(dir.display(), &err))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        programs.sort();
        programs.iter().try_for_each(|path| self.check_owner(path))?;
        Ok(programs)
    }
}

/// Folder that only a checkout has, not a bundle.
const SOURCES: &str = "userspace-tools";

fn is_home(dir: &Path) -> bool {
    dir.join("scenarios").is_dir()
        && (dir.join(SOURCES).is_dir() || dir.join("build/agent").is_file())
}

/// Output of `uname -r`.
pub fn running_release() -> Result<String> {
    let path = "/proc/sys/kernel/osrelease";
    let text = fs::read_to_string(path).map_err(|err| Error::io(path, &err))?;
    Ok(text.trim().to_owned())
}

/// Folder for results that are expensive to compute; shared with the Makefile.
pub fn cache() -> Option<PathBuf> {
    cache_by(|name| env::var_os(name))
}

/// Finds the cache as qemu-images/common.sh does; an empty variable counts as unset.
fn cache_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let base = || {
        set("XDC_CACHE_HOME")
            .or_else(|| set("XDG_CACHE_HOME"))
            .or_else(|| Some(set("HOME")?.join(".cache")))
    };
    set("XDC_CACHE").or_else(|| Some(base()?.join("xdc")))
}

/// Makes the folder of a command's `--out` if missing.
pub fn make_out(dir: &Path) -> Result<()> {
    owned::make_folder(dir).map_err(|err| {
        Error::io(format!("cannot make {}", dir.display()), &err)
            .hint("--out DIR, where you may write")
    })?;
    require_space(dir)
}

const MIN_FREE_BYTES: u64 = 256 << 20;

/// Prefix of temporary directories.
const PREFIX: &str = "xdc-";

/// Makes a temporary directory, removed on drop.
pub fn temp_dir() -> Result<OwnedDir> {
    let base = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| is_private(dir) && has_space(dir, MIN_FREE_BYTES))
        .unwrap_or_else(env::temp_dir);
    require_space(&base)?;
    new_temp_dir(&base)
}

/// Returns whether only the caller can enter the directory, as required of XDG_RUNTIME_DIR.
fn is_private(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|meta| {
        meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o077 == 0
    })
}

/// Makes a directory for a UML guest's memory, preferably in RAM and executable, as the kernel maps
/// code from it. A guest allocates its memory lazily, so memory reserved for other guests is
/// subtracted.
pub fn memory_dir(bytes: u64) -> Result<OwnedDir> {
    const MEMORY: &str = "xdc-memory-";
    let shm = Path::new("/dev/shm");
    let executable = rustix::fs::statvfs(shm)
        .is_ok_and(|fs| !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
    if !executable {
        return temp_dir();
    }
    reap_once(shm);
    let own = format!("{MEMORY}{}m-", bytes >> 20);
    let made = OwnedDir::make(shm, &own).map_err(|err| {
        Error::io("cannot make a directory for the guest's memory in /dev/shm", &err)
    })?;
    // Counted once our directory exists, so that guests that start together count each other. Any
    // user can make such names, so only directories held by live processes of this user count.
    let promised: u64 = owned::held(shm, MEMORY)
        .iter()
        .filter_map(|name| {
            let (mb, _) = name.strip_prefix(MEMORY)?.split_once("m-")?;
            Some(mb.parse::<u64>().ok()?.saturating_mul(1 << 20))
        })
        .fold(0, u64::saturating_add);
    let room = rustix::fs::statvfs(shm).map_or(0, |fs| {
        let used = (fs.f_blocks - fs.f_bfree).saturating_mul(fs.f_frsize);
        let free = fs.f_bavail.saturating_mul(fs.f_frsize);
        // Used memory may be part of other guests' reservations.
        free.saturating_add(used.min(promised.saturating_sub(bytes)))
    });
    if promised <= room { Ok(made) } else { temp_dir() }
}

fn new_temp_dir(base: &Path) -> Result<OwnedDir> {
    reap_once(base);
    // Absolute, because it is a guest's current directory.
    std::path::absolute(base)
        .and_then(|base| OwnedDir::make(&base, PREFIX))
        .map_err(|err| Error::io(format!("cannot make a directory in {}", base.display()), &err))
}

/// Removes directories of killed processes, once per base.
fn reap_once(base: &Path) {
    static TEMP: Once = Once::new();
    static SHM: Once = Once::new();
    let once = match base == Path::new("/dev/shm") {
        true => &SHM,
        false => &TEMP,
    };
    once.call_once(|| owned::reap(base, PREFIX));
}

fn has_space(dir: &Path, bytes: u64) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= bytes)
}

/// Returns whether the disk is full.
pub fn is_full(dir: &Path) -> bool {
    !has_space(dir, 1 << 20)
}

/// Fails before a guest runs rather than after it.
pub fn require_space(dir: &Path) -> Result<()> {
    if has_space(dir, MIN_FREE_BYTES) {
        return Ok(());
    }
    if let Err(err) = fs::metadata(dir) {
        return Err(Error::io(dir.display(), &err)
            .or_hint("set TMPDIR and --results to existing directories"));
    }
    Err(Error::failure(format!(
        "less than {} MB are free in {}",
        MIN_FREE_BYTES >> 20,
        dir.display()
    ))
    .hint("free some disk space, or set TMPDIR and --results to another disk"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn checkout(mode: u32) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["scenarios", "userspace-tools", "build"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("build/agent"), "").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        dir
    }

    #[test]
    fn files_writable_by_others_are_not_run() {
        let dir = checkout(0o755);
        for name in ["qemu-images", "build/guest-bin"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        type Find = fn(&Home) -> Result<()>;
        let files: [(&str, Find); 6] = [
            (".", |home| home.check_owner(&home.root)),
            ("build/agent", |home| home.agent().map(drop)),
            ("build/guest-bin/x.o", |home| home.guest_program("x.o").map(drop)),
            ("build/guest-bin/y", |home| home.guest_programs().map(drop)),
            ("qemu-images/in-root.sh", |home| home.in_root().map(drop)),
            ("qemu-images/common.sh", |home| home.foreign_root_script().map(drop)),
        ];
        let trust = Trust::of_caller(None);
        let [suspicious, trusting] =
            [Some(trust), None].map(|trust| Home::at(dir.path().to_path_buf(), trust));
        for (name, find) in files {
            let path = dir.path().join(name);
            if !path.exists() {
                fs::write(&path, "").unwrap();
            }
            assert!(find(&suspicious).is_ok(), "{name}");
            let mode = fs::metadata(&path).unwrap().mode();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            let said = find(&suspicious).unwrap_err().to_string();
            assert!(said.contains("is writable by others"), "{said}");
            // XDC_HOME makes the folder trusted.
            assert!(find(&trusting).is_ok(), "{name}");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    #[test]
    fn a_bundle_does_not_suggest_make() {
        let dir = checkout(0o755);
        assert!(is_home(dir.path()));
        let hint = |dir: &tempfile::TempDir| {
            let home = Home::for_tests(dir.path());
            home.kernel(Flavour::X86).unwrap_err().lines().join(" ")
        };
        assert!(hint(&dir).contains("try: make"));
        fs::remove_dir(dir.path().join(SOURCES)).unwrap();
        assert!(is_home(dir.path()));
        assert!(hint(&dir).contains("this bundle has no build/x86/kernel"));
        fs::remove_file(dir.path().join("build/agent")).unwrap();
        assert!(!is_home(dir.path()));
    }

    #[test]
    fn the_cache_folder_matches_the_scripts() {
        let order = [
            ("XDC_CACHE", "/a", "/a"),
            ("XDC_CACHE_HOME", "/b", "/b/xdc"),
            ("XDG_CACHE_HOME", "/c", "/c/xdc"),
            ("HOME", "/d", "/d/.cache/xdc"),
        ];
        for n in 0..order.len() {
            let value = |name: &str| {
                let set = order.iter().position(|it| it.0 == name).unwrap();
                let value = if set < n { "" } else { order[set].1 };
                Some(OsString::from(value))
            };
            assert_eq!(cache_by(value), Some(PathBuf::from(order[n].2)));
        }
        assert_eq!(cache_by(|_| None), None);
    }

    #[test]
    fn a_shared_runtime_directory_is_not_used() {
        let dir = checkout(0o700);
        assert!(is_private(dir.path()));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(!is_private(&link));
        assert!(!is_private(checkout(0o755).path()));
    }
}
