// SPDX-License-Identifier: GPL-2.0
//! Builds the source of a congestion control for the guests' kernels.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::interrupt;

use super::breaks;

/// Lines of a failed build that are printed.
const SHOWN_LINES: usize = 60;

/// Source or module that a user adds.
pub struct Source {
    pub path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rust,
    C,
    Module,
    Folder,
}

/// A module for each kernel that it fits.
pub struct Built {
    pub name: String,
    pub of: Vec<(Flavour, PathBuf)>,
}

impl Source {
    pub fn of(path: &Path) -> Result<Self> {
        let real = fs::canonicalize(path).map_err(|err| {
            Error::usage(format!("{}: {err}", path.display()))
                .hint("FILE.rs, FILE.c, FILE.ko, or a folder with a Kbuild or Makefile")
        })?;
        let name = real.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".bpf.c") || name.ends_with(".bpf.o") {
            return Err(Error::usage(format!(
                "{name}: xdc cc add does not build BPF struct_ops yet, and UML kernels have no BPF compiler (JIT)"
            ))
            .hint("--engine qemu and a [cc.NAME] with 'bpf', as in examples/own-ccs.toml"));
        }
        let kind = match real.extension().and_then(OsStr::to_str) {
            _ if real.is_dir() => Kind::Folder,
            Some("rs") => Kind::Rust,
            Some("c") => Kind::C,
            Some("ko") => Kind::Module,
            _ => {
                return Err(Error::usage(format!("{name} is no congestion control"))
                    .hint("FILE.rs, FILE.c, FILE.ko, or a folder with a Kbuild or Makefile"));
            }
        };
        if kind == Kind::Folder && !["Kbuild", "Makefile"].iter().any(|it| real.join(it).is_file())
        {
            return Err(Error::usage(format!("{name} has neither a Kbuild nor a Makefile")).hint(
                format!("a Kbuild with the line obj-m := tcp_NAME.o, or xdc cc add {name}/FILE.c"),
            ));
        }
        Ok(Self { path: real, kind })
    }

    /// Name of the module, unless the source is a folder, which names its modules itself.
    pub fn module(&self) -> Option<&str> {
        let file = self.path.file_stem().and_then(OsStr::to_str);
        file.filter(|_| self.kind != Kind::Folder)
    }

    /// Builds the modules in `work` for the kernels, or selects the kernels that a built module fits.
    pub fn build(&self, home: &Home, flavours: &[Flavour], work: &Path) -> Result<Vec<Built>> {
        if self.kind == Kind::Module {
            return Ok(vec![self.fitting(home, flavours)?]);
        }
        if !home.is_checkout() {
            return Err(Error::failure(
                "a bundle has no build tree of its kernel, so it takes only built modules",
            )
            .hint(
                "xdc cc add FILE in a checkout, and then here its build/added/MODULE/uml/MODULE.ko",
            ));
        }
        let sources = match self.kind {
            Kind::Folder => self.path.clone(),
            _ => self.stage(home, &work.join("sources"))?,
        };
        let mut built: Vec<Built> = Vec::new();
        for &flavour in flavours {
            for path in self.make(home, flavour, &sources, &work.join(flavour.name()))? {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                match built.iter_mut().find(|it| it.name == name) {
                    Some(known) => known.of.push((flavour, path)),
                    None => {
                        built.push(Built { name: name.into_owned(), of: vec![(flavour, path)] })
                    }
                }
            }
        }
        if self.kind == Kind::C {
            let text = fs::read_to_string(&self.path).unwrap_or_default();
            for remark in breaks::remarks(&text) {
                eprintln!("xdc: {}: {remark}", self.name());
            }
        }
        Ok(built)
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        self.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Makes a folder in which the project's Kbuild finds the source file, the files beside it, and the
    /// abstractions as `../modules/`.
    fn stage(&self, home: &Home, dir: &Path) -> Result<PathBuf> {
        let failed = |err: &std::io::Error| Error::io(dir.display(), err);
        let beside = dir.join(BESIDE);
        fs::create_dir_all(&beside).map_err(|err| failed(&err))?;
        for from in home.module_sources()? {
            let name = from.file_name().unwrap_or_default();
            let from = fs::canonicalize(&from).map_err(|err| Error::io(from.display(), &err))?;
            symlink(&from, dir.join(name)).map_err(|err| failed(&err))?;
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let entries = fs::read_dir(folder).map_err(|err| Error::io(folder.display(), &err))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let used = ["rs", "c", "h"].map(OsStr::new);
            if path.extension().is_some_and(|ext| used.contains(&ext)) {
                let name = path.file_name().unwrap_or_default();
                symlink(&path, beside.join(name)).map_err(|err| failed(&err))?;
            }
        }
        Ok(dir.to_path_buf())
    }

    /// Runs the kernel's build; returns the modules.
    fn make(
        &self,
        home: &Home,
        flavour: Flavour,
        sources: &Path,
        out: &Path,
    ) -> Result<Vec<PathBuf>> {
        let tree = home.kernel_tree(flavour)?;
        let tree = fs::canonicalize(&tree).map_err(|err| Error::io(tree.display(), &err))?;
        fs::create_dir_all(out).map_err(|err| Error::io(out.display(), &err))?;
        eprintln!("xdc: building {} for the {} kernel", self.name(), flavour.name());
        let mut script = Command::new(home.cc_script()?);
        script.arg(flavour.name()).args([&tree, sources, out]);
        script.arg(match self.kind {
            Kind::Rust => "rust",
            _ => "c",
        });
        match self.module() {
            Some(module) => script.env("XDC_LIST", format!("cc:{module}:{BESIDE}/{}", self.name())),
            None => script.env_remove("XDC_LIST"),
        };
        let output = script
            .stdin(Stdio::null())
            .output()
            .map_err(|err| Error::io("qemu-images/cc.sh", &err))?;
        interrupt::check()?;
        // Messages name the user's folder.
        let text = String::from_utf8_lossy(&output.stdout);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let staged = sources.join(BESIDE).display().to_string();
        let mut text = text.into_owned();
        for modules in home.module_sources()?.iter().filter(|it| it.ends_with("modules")) {
            text = text.replace(&format!("{staged}/../modules"), &modules.display().to_string());
        }
        let text = text.replace(&staged, &folder.display().to_string());
        let lines: Vec<_> =
            text.lines().filter(|line| is_message(line)).map(str::to_owned).collect();
        if !output.status.success() {
            return Err(self.failure(flavour, lines));
        }
        lines.iter().for_each(|line| eprintln!("{}", xdc_base::text::printable(line)));
        let order = out.join("modules.order");
        let order = fs::read_to_string(&order).map_err(|err| Error::io(order.display(), &err))?;
        let modules: Vec<_> = order.lines().map(|it| out.join(it).with_extension("ko")).collect();
        match modules.is_empty() {
            false => Ok(modules),
            true => Err(Error::usage(format!("the Kbuild of {} builds no module", self.name()))
                .hint("a line obj-m := tcp_NAME.o for tcp_NAME.c")),
        }
    }

    /// The error of a failed build: a missing tool, known changes of the kernel, or the compiler's.
    fn failure(&self, flavour: Flavour, mut lines: Vec<String>) -> Error {
        let of = |start: &str| lines.iter().find_map(|line| line.strip_prefix(start));
        if let Some(what) = of("xdc: error: ") {
            return match of("xdc: try: ") {
                Some(hint) => Error::failure(what).hint(hint),
                None => Error::failure(what),
            };
        }
        let what = format!("{} does not build for the {} kernel", self.name(), flavour.name());
        let causes = match self.kind {
            Kind::Rust => Vec::new(),
            _ => breaks::explain(&lines),
        };
        let causes = causes.into_iter();
        let causes =
            causes.map(|(cause, fix)| Error::failure(format!("{what}: {cause}")).hint(fix));
        let err = Error::all(causes.collect()).unwrap_or_else(|| {
            Error::failure(what).hint("the compiler's first message above, and docs/writing.md")
        });
        lines.truncate(SHOWN_LINES);
        err.details(lines)
    }

    /// Selects the kernels for which a module was built, by its version magic.
    fn fitting(&self, home: &Home, flavours: &[Flavour]) -> Result<Built> {
        let own = vermagic(&self.path)?.ok_or_else(|| {
            Error::usage(format!("{} is not a kernel module: it has no version magic", self.name()))
        })?;
        let mut of = Vec::new();
        let mut kernels = Vec::new();
        for &flavour in flavours {
            let magic = of_kernel(home, flavour)?;
            if magic == own {
                of.push((flavour, self.path.clone()));
            }
            kernels.push(format!("the {} kernel's is '{}'", flavour.name(), magic.trim_end()));
        }
        if of.is_empty() {
            return Err(Error::failure(format!(
                "{} was built for another kernel: its version magic is '{}', {}",
                self.name(),
                own.trim_end(),
                kernels.join(", ")
            ))
            .hint("xdc cc add with its source"));
        }
        Ok(Built { name: self.module().unwrap_or_default().to_owned(), of })
    }
}

/// Folder of the staged source and its neighbors.
const BESIDE: &str = "user";

/// Version magic of a kernel, which all its modules have.
pub fn of_kernel(home: &Home, flavour: Flavour) -> Result<String> {
    let modules = home.modules(flavour)?;
    let first = modules.first().map(|path| vermagic(path));
    first.transpose().map(|magic| magic.flatten().unwrap_or_default())
}

/// Version magic of a module; None without one.
pub fn vermagic(module: &Path) -> Result<Option<String>> {
    let bytes = fs::read(module).map_err(|err| Error::io(module.display(), &err))?;
    let mut texts = bytes.split(|byte| *byte == 0);
    let magic = texts.find_map(|text| text.strip_prefix(b"vermagic="));
    Ok(magic.map(|magic| String::from_utf8_lossy(magic).into_owned()))
}

/// Returns whether a line is a message, and not a step of the kernel's build.
fn is_message(line: &str) -> bool {
    let step = line.strip_prefix("  ").and_then(|rest| rest.split(' ').next());
    let is_step = step.is_some_and(|it| it.len() > 1 && it.chars().all(|c| c.is_ascii_uppercase()));
    !is_step && !line.starts_with("make")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_make_are_not_messages() {
        for step in [
            "  CC [M]  user/tcp_x.o",
            "  RUSTC [M] user/x.o",
            "make[2]: *** [x] Error 1",
            "  MODPOST Module.symvers",
        ] {
            assert!(!is_message(step), "{step}");
        }
        for message in [
            "tcp_x.c:1:2: error: x",
            "   52 |  .cong_control = x,",
            "error[E0425]: x",
            "  --> user/x.rs",
        ] {
            assert!(is_message(message), "{message}");
        }
    }

    #[test]
    fn only_sources_of_modules_are_added() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.rs", "a.c", "a.ko", "a.bpf.c", "a.py"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let said = |name: &str| match Source::of(&dir.path().join(name)) {
            Ok(source) => source.module().unwrap_or("folder").to_owned(),
            Err(err) => err.lines().join(" "),
        };
        assert_eq!(["a.rs", "a.c", "a.ko"].map(said), ["a"; 3]);
        assert!(said("a.bpf.c").contains("BPF compiler"), "{}", said("a.bpf.c"));
        assert!(said("a.py").contains("no congestion control"));
        assert!(said("b.c").contains("No such file"));
        assert!(said("").contains("neither a Kbuild"), "{}", said(""));
        fs::write(dir.path().join("Kbuild"), "").unwrap();
        assert_eq!(said(""), "folder");
    }

    #[test]
    fn the_version_magic_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.ko");
        fs::write(&file, b"\x7fELF\0license=GPL\0vermagic=7.3.4 SMP \0x").unwrap();
        assert_eq!(vermagic(&file).unwrap().as_deref(), Some("7.3.4 SMP "));
        fs::write(&file, b"\x7fELF").unwrap();
        assert_eq!(vermagic(&file).unwrap(), None);
    }
}
