// SPDX-License-Identifier: GPL-2.0
//! `xdc cc`: builds a user's congestion control for the guests' kernels and makes its name known to
//! `--cc`, without a build of xdc or of the agent.

mod breaks;
mod build;
mod trial;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use xdc_algo::MODULES;
use xdc_base::added::Added;
use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::owned;
use xdc_base::text::printable;
use xdc_proto::privileged::{CONGESTION_CONTROL, MODULE};
use xdc_scenario::ccs;

use self::build::{Built, Source};

/// Kernels of `xdc run`.
const FLAVOURS: [Flavour; 2] = [Flavour::Uml, Flavour::X86];

#[derive(clap::Args)]
pub struct Add {
    /// FILE.rs, FILE.c, FILE.ko, or a folder with a Kbuild or Makefile.
    source: PathBuf,
}

#[derive(clap::Args)]
pub struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct Remove {
    /// Name of a congestion control that `xdc cc list` shows.
    name: String,
}

pub fn add(request: &Add) -> Result<bool> {
    let home = Home::find()?;
    let source = Source::of(&request.source)?;
    let is_built = |flavour: &Flavour| home.modules(*flavour).is_ok();
    let flavours: Vec<_> = FLAVOURS.into_iter().filter(is_built).collect();
    if flavours.is_empty() {
        return Err(Error::unbuilt("no guest's kernel is built").hint("make quick"));
    }
    if let Some(module) = source.module() {
        check_module(&home, module)?;
    }
    let dir = home.added_dir();
    let _lock = lock(&dir)?;
    let work = Work::make(dir.join(".work"))?;
    for built in source.build(&home, &flavours, &work.0)? {
        let placed = work.0.join("placed");
        let names = place(&home, &built, &placed)?;
        let own = dir.join(&built.name);
        let entry =
            Added { module: built.name.clone(), names, source: source.path.display().to_string() };
        entry.write(&placed.join(&built.name))?;
        remove_folder(&own)?;
        fs::rename(placed.join(&built.name), &own).map_err(|err| Error::io(own.display(), &err))?;
        for name in &entry.names {
            let kernels: Vec<_> = built.of.iter().map(|(flavour, _)| flavour.name()).collect();
            println!("{name}: added for {}", kernels.join(" and "));
            let engine = match kernels.contains(&"uml") {
                true => "uml",
                false => "qemu",
            };
            println!("try: xdc run two-dc-1g --engine {engine} --cc {name},cubic");
        }
    }
    Ok(true)
}

/// Copies a module for each kernel below `placed`, and returns the names that it has in a guest.
fn place(home: &Home, built: &Built, placed: &Path) -> Result<Vec<String>> {
    let module = &built.name;
    check_module(home, module)?;
    for (flavour, from) in &built.of {
        let to = placed.join(module).join(flavour.name());
        let file = to.join(format!("{module}.ko"));
        fs::create_dir_all(&to)
            .and_then(|()| fs::copy(from, &file))
            .map_err(|err| Error::io(file.display(), &err))?;
    }
    let Some((flavour, _)) = built.of.first() else {
        return Ok(Vec::new());
    };
    let names = trial::names(&home.with_added(placed.to_path_buf()), *flavour, module)?;
    for name in &names {
        CONGESTION_CONTROL.check(name)?;
        check_name(home, name, module)?;
    }
    Ok(names)
}

/// Fails if the project or a guest's kernel has a module of this name.
fn check_module(home: &Home, module: &str) -> Result<()> {
    MODULE.check(module)?;
    let key = |name: &str| name.replace('-', "_");
    let owner = if MODULES.iter().any(|it| key(it.name) == key(module)) {
        "xdc"
    } else if of_kernels(home).iter().any(|it| key(it) == key(module)) {
        "the kernel"
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("{owner} has a module named {module}"))
        .hint("another name of the file, such as tcp_mine"))
}

/// Fails if the name belongs to xdc, to a kernel, or to another added module.
fn check_name(home: &Home, name: &str, module: &str) -> Result<()> {
    let of_module = format!("tcp_{name}");
    let added = home.added();
    let other = added.iter().find(|it| it.module != module && it.names.iter().any(|it| it == name));
    let owner = if ccs::is_taken(name) {
        "xdc".to_owned()
    } else if of_kernels(home).contains(&of_module) {
        "the kernel".to_owned()
    } else if let Some(other) = other {
        format!("the added module {}", other.module)
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("{owner} has a congestion control named {name}"))
        .hint("another name in the source: .name in C, NAME in Rust"))
}

/// Names of all modules of the kernels, built-in ones too.
fn of_kernels(home: &Home) -> Vec<String> {
    let mut names = Vec::new();
    for flavour in FLAVOURS {
        let mut paths = home.kernel_modules(flavour).unwrap_or_default();
        for list in home.builtin_lists(flavour) {
            let text = fs::read_to_string(list).unwrap_or_default();
            paths.extend(text.lines().map(PathBuf::from));
        }
        let stems = paths.iter().filter_map(|path| path.file_stem()?.to_str());
        names.extend(stems.map(str::to_owned));
    }
    names
}

/// A line of `xdc cc list`.
#[derive(Serialize)]
struct Listed {
    name: String,
    module: String,
    /// Kernels of which the module has the version magic.
    kernels: Vec<&'static str>,
    source: String,
}

pub fn list(request: &List) -> Result<bool> {
    let home = Home::find()?;
    let mut rows = Vec::new();
    for added in home.added() {
        let fits = |flavour: &Flavour| {
            let folder = home.added_dir().join(&added.module).join(flavour.name());
            let own = build::vermagic(&folder.join(format!("{}.ko", added.module)));
            let of_kernel = build::of_kernel(&home, *flavour);
            own.ok().flatten().is_some_and(|own| of_kernel.is_ok_and(|it| it == own))
        };
        let kernels = FLAVOURS.into_iter().filter(fits).map(Flavour::name);
        let kernels: Vec<_> = kernels.collect();
        rows.extend(added.names.into_iter().map(|name| Listed {
            name,
            module: added.module.clone(),
            kernels: kernels.clone(),
            source: added.source.clone(),
        }));
    }
    if request.json {
        println!("{:#}", serde_json::json!(rows));
        return Ok(true);
    }
    for Listed { name, module, kernels, source } in rows {
        let kernels = match kernels.is_empty() {
            true => "none: add it again".to_owned(),
            false => kernels.join(","),
        };
        println!("{name:15}  {module:19}  {kernels:7}  {}", printable(&source));
    }
    Ok(true)
}

pub fn remove(request: &Remove) -> Result<bool> {
    let home = Home::find()?;
    let dir = home.added_dir();
    let _lock = lock(&dir)?;
    let added = home.added();
    let named = |it: &&Added| it.module == request.name || it.names.contains(&request.name);
    let Some(found) = added.iter().find(named) else {
        let names: Vec<_> = added.iter().flat_map(|it| &it.names).map(String::as_str).collect();
        let err = Error::usage(format!("xdc cc add has added no '{}'", printable(&request.name)));
        return Err(match names.is_empty() {
            true => err,
            false => err.hint(names.join(", ")),
        });
    };
    remove_folder(&dir.join(&found.module))?;
    println!("removed: {} ({}.ko)", found.names.join(", "), found.module);
    Ok(true)
}

/// Makes the folder and waits for other `xdc cc`.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(".lock");
    owned::make_folder(dir)
        .and_then(|()| File::create(&path))
        .and_then(|file| Ok(flock(&file, FlockOperation::LockExclusive).map(|()| file)?))
        .map_err(|err| {
            Error::io(path.display(), &err)
                .or_hint("a copy of the bundle or checkout in a folder where you may write")
        })
}

/// Folder of a build, removed on drop. Its path is in the modules, so each build has the same.
struct Work(PathBuf);

impl Work {
    fn make(path: PathBuf) -> Result<Self> {
        remove_folder(&path)?;
        fs::create_dir(&path).map_err(|err| Error::io(path.display(), &err))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(err) if path.exists() => Err(Error::io(path.display(), &err)),
        _ => Ok(()),
    }
}
