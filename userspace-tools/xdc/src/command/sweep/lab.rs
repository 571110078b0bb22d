// SPDX-License-Identifier: GPL-2.0
//! What guests are made of, copied once: a `make` beside a sweep of hours changes neither what a
//! guest is nor what its cell is called.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::guest::engine::Engine;
use crate::guest::initramfs::find_program;
use crate::home::{self, Home};
use crate::interrupt;
use crate::owned::OwnedDir;
use crate::result::provenance::hex;
use crate::scenario::engine::Kind;

pub struct Lab {
    _dir: OwnedDir,
    home: Home,
    hash: String,
    sources: Vec<Source>,
}

/// A file that was copied.
struct Source {
    path: PathBuf,
    stamp: Stamp,
    content: [u8; 32],
}

/// Changes when a file is written or replaced, and sometimes without that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Result<Self> {
        let meta = fs::metadata(path).map_err(|err| Error::io(path.display(), &err))?;
        Ok(Self {
            inode: meta.ino(),
            bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl Lab {
    /// Copies what `engine` takes of `home`. The hash is that of the copies, of the emulator, and
    /// of xdc itself: figures are what its code makes of a guest's messages.
    pub fn copy(home: &Home, engine: Engine) -> Result<Self> {
        let flavour = engine.guest_flavour()?;
        let dir = home::temp_dir()?;
        let of_flavour = Path::new(flavour.name());
        let mut wanted = vec![
            (home.kernel(flavour)?, of_flavour.join("kernel")),
            (home.agent()?, PathBuf::from("agent")),
            (home.release_file(flavour)?, of_flavour.join("release")),
        ];
        for (folder, paths) in [
            ("modules", home.modules(flavour)?),
            ("tree", home.builtin_lists(flavour)),
        ] {
            for path in paths {
                let name = path.file_name().unwrap_or_default();
                let to = of_flavour.join(folder).join(name);
                wanted.push((path, to));
            }
        }
        // The kernel's own, for scenarios that name them; an installed kernel may have none.
        if let Ok(tree) = home.kernel_tree(flavour) {
            for module in home.kernel_modules(flavour).unwrap_or_default() {
                if let Ok(name) = module.strip_prefix(&tree) {
                    let to = of_flavour.join("tree").join(name);
                    wanted.push((module, to));
                }
            }
        }
        let mut hash = Sha256::new();
        let mut sources = Vec::new();
        for (path, to) in wanted {
            interrupt::check()?;
            let stamp = Stamp::of(&path)?;
            let bytes = fs::read(&path).map_err(|err| Error::io(path.display(), &err))?;
            put(&dir.path().join(&to), &bytes)?;
            let content = Sha256::digest(&bytes).into();
            hash.update(to.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(content);
            sources.push(Source {
                path,
                stamp,
                content,
            });
        }
        let mut programs = vec![Path::new("/proc/self/exe").to_path_buf()];
        if engine.kind() == Kind::Qemu {
            programs.extend(find_program("qemu-system-x86_64"));
        }
        for program in programs {
            let bytes = fs::read(&program).map_err(|err| Error::io(program.display(), &err))?;
            hash.update(Sha256::digest(&bytes));
        }
        hash.update(engine.kind().name());
        hash.update(engine.accel().unwrap_or_default());
        let lab = Self {
            home: home.with_build(dir.path().to_path_buf()),
            _dir: dir,
            hash: hex(&hash.finalize()),
            sources,
        };
        // Half of it may be from before a make that is under way.
        lab.check_unchanged()?;
        Ok(lab)
    }

    /// The checkout, with the copies for its guests.
    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// An error once something of it has been built anew.
    pub fn check_unchanged(&self) -> Result<()> {
        for source in &self.sources {
            let same = match Stamp::of(&source.path) {
                Ok(stamp) if stamp == source.stamp => true,
                // Touched, or replaced by its like.
                Ok(_) => fs::read(&source.path)
                    .is_ok_and(|bytes| <[u8; 32]>::from(Sha256::digest(&bytes)) == source.content),
                Err(_) => false,
            };
            if !same {
                return Err(Error::failure(format!(
                    "{} has changed since this command began: a make has run beside it",
                    source.path.display()
                ))
                .hint("the same command again: it computes what the change touches"));
            }
        }
        Ok(())
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, bytes))
        // UML's kernel is a program.
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)));
    written.map_err(|err| Error::io(path.display(), &err))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A checkout in which everything is built, if nothing of it runs.
    pub fn checkout() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["uml/kernel", "uml/modules/tcp_unocc.ko", "agent"] {
            put(&dir.path().join("build").join(name), name.as_bytes()).unwrap();
        }
        put(&dir.path().join("build/uml/release"), b"7.3.4\n").unwrap();
        dir
    }

    #[test]
    fn guests_are_made_of_copies() {
        let dir = checkout();
        let home = Home::for_tests(dir.path());
        let lab = Lab::copy(&home, Engine::UML).unwrap();
        let again = Lab::copy(&home, Engine::UML).unwrap();
        assert_eq!(lab.hash(), again.hash());
        let agent = dir.path().join("build/agent");
        // By its like: what make does where nothing has changed.
        fs::remove_file(&agent).unwrap();
        put(&agent, b"agent").unwrap();
        lab.check_unchanged().unwrap();
        put(&agent, b"another").unwrap();
        let said = lab.check_unchanged().unwrap_err().to_string();
        assert!(said.contains("agent has changed"), "{said}");
        let copy = lab.home().agent().unwrap();
        assert_eq!(fs::read(copy).unwrap(), b"agent");
        assert_ne!(Lab::copy(&home, Engine::UML).unwrap().hash(), lab.hash());
        // A kernel that is not there any more is no reason to go on, either.
        put(&agent, b"agent").unwrap();
        fs::remove_file(dir.path().join("build/uml/kernel")).unwrap();
        assert!(lab.check_unchanged().is_err());
    }
}
