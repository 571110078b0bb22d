// SPDX-License-Identifier: GPL-2.0
//! Finds the tools with which a kernel was built, and builds its Rust metadata with them.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};
use xdc_base::interrupt;
use xdc_base::text::shell_word;
use xdc_guest::initramfs::find_program;

use super::Check;
use super::headers::Headers;
use crate::setup::kconfig::Config;

/// File in the tree for `qemu-images/modules.sh`.
const RECIPE: &str = "xdc-kdir.env";

pub struct Tools {
    /// Root directory of the tools, if not on this machine's PATH.
    root: Option<PathBuf>,
    /// Variables for make.
    variables: Vec<String>,
    pub checks: Vec<Check>,
}

impl Tools {
    /// Selects each tool by comparing its version text with the kernel's configuration.
    pub fn find(config: &Config, root: Option<&Path>) -> Result<Self> {
        let root = match root {
            Some(root) => {
                Some(fs::canonicalize(root).map_err(|err| Error::io(root.display(), &err))?)
            }
            None => None,
        };
        let mut tools = Self { root, variables: Vec::new(), checks: Vec::new() };
        let rustc = ["rustc", "/usr/bin/rustc"].map(str::to_owned);
        let rustc = tools.find_one("rustc", &rustc, config.value("RUSTC_VERSION_TEXT"))?;
        let bindgen = ["bindgen".to_owned()];
        let bindgen = tools.find_one("bindgen", &bindgen, config.value("BINDGEN_VERSION_TEXT"))?;
        let compiler = config.value("CC_VERSION_TEXT");
        // gcc's version text begins with the name it was called by.
        let name = match config.is_on("CC_IS_CLANG") {
            true => "clang",
            false => compiler.and_then(|text| text.split(' ').next()).unwrap_or("gcc"),
        };
        let cc = tools.find_one("C compiler", &[name.to_owned()], compiler)?;
        tools.variables = vec![format!("RUSTC={rustc}"), format!("BINDGEN={bindgen}")];
        tools.variables.extend(match config.is_on("CC_IS_CLANG") {
            true => vec!["LLVM=1".to_owned()],
            false => vec![format!("CC={cc}"), format!("HOSTCC={cc}")],
        });
        Ok(tools)
    }

    fn find_one(
        &mut self,
        what: &'static str,
        candidates: &[String],
        wanted: Option<&str>,
    ) -> Result<String> {
        let wanted = wanted.ok_or_else(|| {
            Error::failure(format!("the kernel's configuration does not name its {what}"))
        })?;
        let mut found = Vec::new();
        for candidate in candidates {
            let text = self.version(candidate)?;
            if text.as_deref() == Some(wanted) {
                self.checks.push(Check { what, same: true, detail: wanted.to_owned() });
                return Ok(candidate.clone());
            }
            found.extend(text);
        }
        let there = match found.as_slice() {
            [] => format!("{} is missing here", candidates[0]),
            [first, ..] => format!("here is '{first}'"),
        };
        self.checks.push(Check {
            what,
            same: false,
            detail: format!("the kernel was built with '{wanted}', but {there}"),
        });
        Ok(candidates[0].clone())
    }

    /// First line of a program's version text.
    fn version(&self, program: &str) -> Result<Option<String>> {
        let output = self.command(program, &[])?.arg("--version").stderr(Stdio::null()).output();
        Ok(output.ok().filter(|output| output.status.success()).and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().next().map(str::to_owned)
        }))
    }

    /// A command for a program, here or in the other root, where `dirs` are visible.
    fn command(&self, program: &str, dirs: &[&Path]) -> Result<Command> {
        let Some(root) = &self.root else {
            return Ok(Command::new(program));
        };
        let dirs = env::join_paths(dirs)
            .map_err(|_| Error::usage("a folder's name has a colon").hint("rename it"))?;
        let mut command = Command::new(Home::find()?.in_root()?);
        command.arg(root).arg(dirs).arg(program);
        Ok(command)
    }
}

/// The source folder: the given one, or the same version's in the cache.
pub fn source(headers: &Headers, given: Option<&Path>) -> Result<PathBuf> {
    let version = version(&headers.release);
    let source = match given {
        Some(source) => source.to_path_buf(),
        None => home::cache()
            .map(|cache| cache.join(format!("src/linux-{version}")))
            .filter(|dir| dir.is_dir())
            .ok_or_else(|| {
                Error::failure(format!("no source of Linux {version} was found")).hint(
                    "apt-get install linux-source-X.Y of exactly this version, unpack it, then --source DIR",
                )
            })?,
    };
    fs::canonicalize(&source).ok().filter(|dir| dir.join("rust/kernel/lib.rs").exists()).ok_or_else(
        || Error::usage(format!("{} is not a kernel source with Rust", source.display())),
    )
}

/// Version `7.3.4` of release `7.3.4+deb13-cloud-amd64`.
fn version(release: &str) -> &str {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    &release[..end.unwrap_or(release.len())]
}

/// Configure `out` as in the headers, and build the prerequisites of modules: the Rust crates.
pub fn metadata(
    headers: &Headers,
    source: &Path,
    tools: &Tools,
    out: &Path,
    jobs: usize,
) -> Result<()> {
    fs::create_dir_all(out).map_err(|err| Error::io(out.display(), &err))?;
    home::require_space(out)?;
    let config = out.join(".config");
    fs::copy(headers.dir.join(".config"), &config)
        .map_err(|err| Error::io(config.display(), &err))?;
    let local = headers.release.strip_prefix(version(&headers.release)).unwrap_or_default();
    let log_path = out.join("xdc-kdir.log");
    let log = File::create(&log_path).map_err(|err| Error::io(log_path.display(), &err))?;
    for target in ["olddefconfig", "modules_prepare"] {
        eprintln!("xdc: {}: make {target} (log: {})", headers.release, log_path.display());
        let mut make = tools.command("make", &[source, out])?;
        make.args(&tools.variables);
        let output = |log: &File| log.try_clone().map_err(|err| Error::io("the log", &err));
        let mut make = make
            .arg("-C")
            .arg(source)
            .arg(format!("O={}", out.display()))
            .arg(format!("LOCALVERSION={local}"))
            .arg(format!("-j{jobs}"))
            .arg(target)
            .env_remove("MAKEFLAGS")
            .env_remove("KBUILD_OUTPUT")
            .stdin(Stdio::null())
            .stdout(output(&log)?)
            .stderr(output(&log)?)
            // make's process group ends with xdc.
            .process_group(0)
            .spawn()
            .map_err(|err| Error::io("make", &err))?;
        let group = i32::try_from(make.id()).ok().and_then(Pid::from_raw);
        let at_end = interrupt::on_end(move || {
            let _ = group.map(|group| kill_process_group(group, Signal::TERM));
        });
        let status = make.wait().map_err(|err| Error::io("make", &err))?;
        drop(at_end);
        interrupt::check()?;
        if !status.success() {
            let text = fs::read_to_string(&log_path).unwrap_or_default();
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let from = lines.len().saturating_sub(20);
            return Err(Error::failure(format!(
                "make {target} failed; log: {}",
                log_path.display()
            ))
            .details(lines[from..].to_vec()));
        }
    }
    Ok(())
}

/// Add files for linking modules, and the recipe for building them.
pub fn finish(headers: &Headers, tools: &Tools, modules: &Path, out: &Path) -> Result<()> {
    for (name, needed) in [("Module.symvers", true), ("vmlinux", false)] {
        let from = headers.dir.join(name);
        if needed || from.exists() {
            fs::copy(&from, out.join(name)).map_err(|err| Error::io(from.display(), &err))?;
        }
    }
    let mut recipe = String::from(
        "# SPDX-License-Identifier: GPL-2.0\n# By xdc kdir; read by qemu-images/modules.sh.\n",
    );
    let root = tools.root.as_deref().unwrap_or(Path::new(""));
    if let Some(variable) = tools.variables.iter().find(|it| it.contains(char::is_whitespace)) {
        return Err(Error::usage(format!("make cannot take '{variable}'"))
            .hint("tools whose paths have no spaces"));
    }
    for (name, value) in [
        ("root", root.display().to_string()),
        ("make", tools.variables.join(" ")),
        ("vermagic", vermagic(modules).unwrap_or_default()),
    ] {
        // A shell reads this file, as root in dkms.
        recipe += &format!("kdir_{name}={}\n", shell_word(&value));
    }
    let path = out.join(RECIPE);
    fs::write(&path, recipe).map_err(|err| Error::io(path.display(), &err))
}

/// vermagic that the kernel requires, read from one of its modules.
fn vermagic(modules: &Path) -> Option<String> {
    let module = first_module(&modules.join("kernel"))?;
    let output = Command::new(find_program("modinfo")?)
        .args(["-F", "vermagic"])
        .arg(module)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim_end_matches('\n').to_owned()).filter(|text| !text.is_empty())
}

fn first_module(dir: &Path) -> Option<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        let name = path.file_name()?.to_str()?;
        match path.is_dir() {
            true => first_module(&path),
            false => name.contains(".ko").then_some(path),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_excludes_the_distributions_suffix() {
        assert_eq!(version("7.3.4+deb13-cloud-amd64"), "7.3.4");
        assert_eq!(version("7.3.0-rc2"), "7.3.0");
        assert_eq!(version("7.3.4"), "7.3.4");
    }

    #[test]
    fn tools_of_another_version_are_refused() {
        let config = Config::parse(
            "CONFIG_RUSTC_VERSION_TEXT=\"rustc 0.0.1 (no such)\"\n\
             CONFIG_BINDGEN_VERSION_TEXT=\"bindgen 0.0.1\"\n\
             CONFIG_CC_VERSION_TEXT=\"no-such-gcc (x) 1\"\n",
        );
        let tools = Tools::find(&config, None).unwrap();
        assert!(tools.checks.len() == 3 && tools.checks.iter().all(|check| !check.same));
        assert!(tools.checks[2].detail.contains("no-such-gcc is missing here"));
        // Each is an argument of make; finish() refuses spaces in them.
        assert_eq!(
            tools.variables,
            ["RUSTC=rustc", "BINDGEN=bindgen", "CC=no-such-gcc", "HOSTCC=no-such-gcc"]
        );
        let silent = Tools::find(&Config::parse("CONFIG_RUST=y\n"), None);
        assert!(silent.is_err());
    }

    #[test]
    fn a_module_is_found_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(first_module(dir.path()), None);
        let deep = dir.path().join("kernel/net");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x.ko.xz"), "").unwrap();
        assert_eq!(first_module(dir.path()), Some(deep.join("x.ko.xz")));
    }
}
