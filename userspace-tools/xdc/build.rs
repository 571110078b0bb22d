// SPDX-License-Identifier: GPL-2.0
//! Passes the commit of xdc and xdc-harness to the compiler, for the provenance of results.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    // Watching `.git` would relink the program with every commit.
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let all =
        own.ancestors().find(|dir| dir.ends_with("userspace-tools")).expect("the crates' folder");
    for name in "base metric scenario guest result view study xdc testing/harness".split(' ') {
        println!("cargo::rerun-if-changed={}", all.join(name).join("src").display());
    }
    println!("cargo::rerun-if-env-changed=XDC_COMMIT");
    // A packager sets XDC_COMMIT; otherwise this repository's commit, if there is one.
    let commit = env::var("XDC_COMMIT").ok().or_else(of_repository);
    println!("cargo::rustc-env=XDC_COMMIT={}", commit.unwrap_or_default());
}

fn of_repository() -> Option<String> {
    // An unpacked archive may lie in an unrelated repository.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(match changes.is_empty() {
        true => commit,
        false => format!("{commit}-dirty"),
    })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
