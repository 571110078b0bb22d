// SPDX-License-Identifier: GPL-2.0
//! A copy of everything that guests consist of, so that a `make` during a long sweep changes
//! neither guests nor the names of cells.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};
use xdc_base::interrupt;
use xdc_base::owned::OwnedDir;
use xdc_guest::engine::Engine;
use xdc_guest::initramfs::{commands, find_program, has_modules};
use xdc_proto::Plan;
use xdc_result::provenance::{hex, sha256};
use xdc_scenario::engine::Kind;

pub struct Lab {
    _dir: OwnedDir,
    home: Home,
    parts: Parts,
    sources: Vec<Source>,
}

/// Hashes of all files that affect a plan's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The code that turns a guest's messages into figures.
    pub measures: String,
    /// Kernel image, release and module lists.
    pub kernel: String,
    pub agent: String,
    /// None for UML, whose kernel is a program.
    pub emulator: Option<String>,
    pub engine: &'static str,
    pub accel: Option<&'static str>,
    /// Modules of ours and of the kernel, by name.
    pub modules: BTreeMap<String, Module>,
}

/// A kernel module.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    pub sha256: String,
    /// Names of modules that it depends on.
    needs: Vec<String>,
}

impl Module {
    fn of(bytes: &[u8]) -> Self {
        let words = |text: &[u8]| -> Vec<String> {
            let words = text.split(|byte| b", ".contains(byte));
            words
                .filter(|word| !word.is_empty())
                .map(|word| module_name(&String::from_utf8_lossy(word)))
                .collect()
        };
        let needed = |text: &[u8]| {
            let hard = text.strip_prefix(b"depends=");
            hard.or_else(|| text.strip_prefix(b"softdep=")).map(words)
        };
        Self {
            sha256: sha256(bytes),
            needs: bytes.split(|byte| *byte == 0).filter_map(needed).flatten().collect(),
        }
    }
}

/// Normalizes a module's name: `-` and `_` are equal.
fn module_name(word: &str) -> String {
    word.replace('-', "_")
}

impl Parts {
    /// Hashes of the modules that a guest may load for a plan with JSON `text`: those it names as
    /// module, qdisc or congestion control, and their dependencies. Shell commands and aliases may
    /// load any.
    pub fn modules_of(&self, plan: &Plan, text: &str) -> BTreeMap<&str, &str> {
        if !has_modules(plan) {
            return BTreeMap::new();
        }
        let known = |name: &String| self.modules.contains_key(&module_name(name));
        let any = !commands(plan).is_empty() || !plan.modules.iter().all(known);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let words: HashSet<_> = text.split(|c| !is_part(c)).map(module_name).collect();
        let is_named = |name: &str| {
            const KINDS: [&str; 5] = ["", "sch_", "tcp_", "cls_", "act_"];
            let mut short = KINDS.iter().filter_map(|kind| name.strip_prefix(kind));
            short.any(|short| words.contains(short))
        };
        let names = self.modules.keys().map(String::as_str);
        let mut left: Vec<&str> = names.filter(|name| any || is_named(name)).collect();
        let mut found = BTreeMap::new();
        while let Some(name) = left.pop() {
            if let Some((name, module)) = self.modules.get_key_value(name)
                && found.insert(name.as_str(), module.sha256.as_str()).is_none()
            {
                left.extend(module.needs.iter().map(String::as_str));
            }
        }
        found
    }
}

/// A file that was copied.
struct Source {
    path: PathBuf,
    stamp: Stamp,
    content: [u8; 32],
}

/// Detects a written or replaced file; may change without either.
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
    /// Copies the files that `engine` uses of `home`.
    pub fn copy(home: &Home, engine: Engine) -> Result<Self> {
        let flavour = engine.guest_flavour()?;
        let dir = home::temp_dir()?;
        let of_flavour = Path::new(flavour.name());
        let mut wanted = vec![
            (home.kernel(flavour)?, of_flavour.join("kernel")),
            (home.agent()?, PathBuf::from("agent")),
            (home.release_file(flavour)?, of_flavour.join("release")),
        ];
        for (folder, paths) in
            [("modules", home.modules(flavour)?), ("tree", home.builtin_lists(flavour))]
        {
            for path in paths {
                let name = path.file_name().unwrap_or_default();
                let to = of_flavour.join(folder).join(name);
                wanted.push((path, to));
            }
        }
        // The kernel's own modules, for scenarios that name them; an installed kernel may lack
        // them.
        if let Ok(tree) = home.kernel_tree(flavour) {
            for module in home.kernel_modules(flavour).unwrap_or_default() {
                if let Ok(name) = module.strip_prefix(&tree) {
                    let to = of_flavour.join("tree").join(name);
                    wanted.push((module, to));
                }
            }
        }
        let (mut kernel, mut agent) = (Sha256::new(), String::new());
        let mut modules = BTreeMap::new();
        let mut sources = Vec::new();
        for (path, to) in wanted {
            interrupt::check()?;
            let stamp = Stamp::of(&path)?;
            let bytes = fs::read(&path).map_err(|err| Error::io(path.display(), &err))?;
            put(&dir.path().join(&to), &bytes)?;
            let name = to.file_stem().unwrap_or_default().to_string_lossy();
            if to.extension().is_some_and(|it| it == "ko") {
                modules.insert(module_name(&name), Module::of(&bytes));
            } else if name == "agent" {
                agent = sha256(&bytes);
            } else {
                kernel.update(sha256(to.as_os_str().as_encoded_bytes()));
                kernel.update(sha256(&bytes));
            }
            sources.push(Source { path, stamp, content: Sha256::digest(&bytes).into() });
        }
        let emulator = match engine.kind() {
            Kind::Qemu => find_program("qemu-system-x86_64"),
            _ => None,
        };
        let emulator = emulator.map(|path| {
            let bytes = fs::read(&path).map_err(|err| Error::io(path.display(), &err))?;
            Ok::<_, Error>(sha256(&bytes))
        });
        let lab = Self {
            home: home.with_build(dir.path().to_path_buf()),
            _dir: dir,
            parts: Parts {
                measures: xdc_measure::CODE.to_owned(),
                kernel: hex(&kernel.finalize()),
                agent,
                emulator: emulator.transpose()?,
                engine: engine.kind().name(),
                accel: engine.accel(),
                modules,
            },
            sources,
        };
        // A make that ran meanwhile may have left a mixture.
        lab.check_unchanged()?;
        Ok(lab)
    }

    /// The checkout with the copies for its guests.
    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Fails if a copied file has been built anew.
    pub fn check_unchanged(&self) -> Result<()> {
        for source in &self.sources {
            let same = match Stamp::of(&source.path) {
                Ok(stamp) if stamp == source.stamp => true,
                // Touched, or replaced by equal content.
                Ok(_) => fs::read(&source.path)
                    .is_ok_and(|bytes| <[u8; 32]>::from(Sha256::digest(&bytes)) == source.content),
                Err(_) => false,
            };
            if !same {
                return Err(Error::failure(format!(
                    "{} changed during this command: make ran at the same time",
                    source.path.display()
                ))
                .hint("the same command again: it reruns the affected cells"));
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

    /// A checkout whose build artifacts are placeholders.
    pub fn checkout() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["uml/kernel", "uml/modules/tcp_unocc.ko", "agent"] {
            put(&dir.path().join("build").join(name), name.as_bytes()).unwrap();
        }
        put(&dir.path().join("build/uml/release"), b"7.3.4\n").unwrap();
        dir
    }

    #[test]
    fn guests_use_copies_of_the_build() {
        let dir = checkout();
        let home = Home::for_tests(dir.path());
        let lab = Lab::copy(&home, Engine::UML).unwrap();
        let again = Lab::copy(&home, Engine::UML).unwrap();
        assert_eq!(lab.parts(), again.parts());
        let agent = dir.path().join("build/agent");
        // Replaces the agent by an equal file, as `make` does without changes.
        fs::remove_file(&agent).unwrap();
        put(&agent, b"agent").unwrap();
        lab.check_unchanged().unwrap();
        put(&agent, b"another").unwrap();
        let said = lab.check_unchanged().unwrap_err().to_string();
        assert!(said.contains("agent changed"), "{said}");
        let copy = lab.home().agent().unwrap();
        assert_eq!(fs::read(copy).unwrap(), b"agent");
        assert_ne!(Lab::copy(&home, Engine::UML).unwrap().parts(), lab.parts());
        // A removed kernel is an error, too.
        put(&agent, b"agent").unwrap();
        fs::remove_file(dir.path().join("build/uml/kernel")).unwrap();
        assert!(lab.check_unchanged().is_err());
    }

    /// Only the measures of xdc are among the inputs.
    #[test]
    fn parts_hash_the_guest_files_and_the_measures() {
        let dir = checkout();
        let home = Home::for_tests(dir.path());
        let lab = Lab::copy(&home, Engine::UML).unwrap();
        let mut kernel = Sha256::new();
        for (name, content) in [("uml/kernel", "uml/kernel"), ("uml/release", "7.3.4\n")] {
            kernel.update(sha256(name.as_bytes()));
            kernel.update(sha256(content.as_bytes()));
        }
        let module = Module { sha256: sha256(b"uml/modules/tcp_unocc.ko"), needs: Vec::new() };
        let parts = Parts {
            measures: xdc_measure::CODE.to_owned(),
            kernel: hex(&kernel.finalize()),
            agent: sha256(b"agent"),
            emulator: None,
            engine: "uml",
            accel: None,
            modules: [("tcp_unocc".to_owned(), module)].into(),
        };
        assert_eq!(lab.parts(), &parts);
    }

    #[test]
    fn dependencies_are_read_from_modules() {
        let module = |text: &str| Module::of(text.as_bytes()).needs.join(" ");
        assert_eq!(module("\0license=GPL\0depends=udp-tunnel,b\0"), "udp_tunnel b");
        assert_eq!(module("\0softdep=pre: a post: b\0x"), "pre: a post: b");
        assert_eq!(module("\0depends=\0"), "");
    }

    /// Placeholders, with more modules than a plan loads.
    pub fn parts() -> Parts {
        let module = |name: &str, needs: &[&str]| {
            let module = Module {
                sha256: sha256(name.as_bytes()),
                needs: needs.iter().map(|&name| name.to_owned()).collect(),
            };
            (name.to_owned(), module)
        };
        Parts {
            measures: xdc_measure::CODE.to_owned(),
            kernel: "kernel".to_owned(),
            agent: "agent".to_owned(),
            emulator: None,
            engine: "uml",
            accel: None,
            modules: BTreeMap::from([
                module("tcp_unocc", &["shared"]),
                module("sch_phantom", &[]),
                module("shared", &["tcp_unocc"]),
                module("tcp_gemini", &[]),
                module("fabric", &[]),
                module("tlt", &[]),
            ]),
        }
    }
}
