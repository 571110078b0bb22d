// SPDX-License-Identifier: GPL-2.0
//! Hashes the code that computes figures: this crate and the crates of this repository on which it
//! depends.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let all = own.parent().expect("the folder of all crates");
    let mut crates = vec!["measure".to_owned()];
    let mut hash = Sha256::new();
    let mut next = 0;
    while let Some(name) = crates.get(next).cloned() {
        for path in ["Cargo.toml", "build.rs", "src"] {
            let path = format!("{name}/{path}");
            if all.join(&path).exists() {
                println!("cargo::rerun-if-changed={}", all.join(&path).display());
                add(&mut hash, all, &path);
            }
        }
        for other in dependencies(&all.join(&name)) {
            if !crates.contains(&other) {
                crates.push(other);
            }
        }
        next += 1;
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=MEASURES={hex}");
    println!("cargo::rustc-env=MEASURES_CRATES={}", crates.join(" "));
}

/// Hashes contents, and names relative to the crates' folder, independent of the repository's
/// location.
fn add(hash: &mut Sha256, all: &Path, path: &str) {
    let full = all.join(path);
    if full.is_dir() {
        let entries = fs::read_dir(&full).expect("a readable folder");
        let names = entries.map(|entry| entry.expect("a readable entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        for name in names {
            add(hash, all, &format!("{path}/{name}"));
        }
    } else {
        hash.update(Sha256::digest(path));
        hash.update(Sha256::digest(fs::read(&full).expect("a readable file")));
    }
}

/// Dependencies in this repository: named `xdc-` and their folder.
fn dependencies(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest");
    let lines = text.lines().skip_while(|line| *line != "[dependencies]");
    let own = lines.skip(1).take_while(|line| !line.starts_with('['));
    let names = own.filter_map(|line| line.strip_prefix("xdc-")?.split(['.', ' ', '=']).next());
    names.map(str::to_owned).collect()
}
