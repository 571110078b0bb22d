// SPDX-License-Identifier: GPL-2.0
//! Files by pathspec, and changed files.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

fn lines(top: &Path, args: &[&str], paths: &[String]) -> Result<Vec<String>> {
    let output = Command::new("git").current_dir(top).args(args).args(paths).output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.split(['\n', '\0']).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// Tracked files.
#[cfg(test)]
pub fn files(top: &Path, paths: &[String]) -> Result<Vec<String>> {
    lines(top, &["ls-files", "-z", "--"], paths)
}

/// Files that differ from the commit `base`, and untracked files.
pub fn changed(top: &Path, base: &str, paths: &[String]) -> Result<Vec<String>> {
    let mut files = lines(top, &["diff", "--name-only", "-z", base, "--"], paths)?;
    let new = ["ls-files", "-z", "--others", "--exclude-standard", "--"];
    files.extend(lines(top, &new, paths)?);
    Ok(files)
}

/// The commit that `make check` compares with: `BASE`, or the merge base with the upstream branch.
pub fn base(top: &Path) -> Option<String> {
    if let Ok(base) = std::env::var("BASE") {
        return Some(base);
    }
    ["@{upstream}", "origin/HEAD", "origin/main"]
        .iter()
        .find_map(|branch| lines(top, &["merge-base", "HEAD", branch], &[]).ok()?.pop())
}
