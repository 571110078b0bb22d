// SPDX-License-Identifier: GPL-2.0
//! The stages of `selftests/stages.toml`, and the guest scripts of `selftests/guest`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Path of the table in the checkout.
pub const STAGES: &str = "selftests/stages.toml";
/// Path of the guest scripts in the checkout.
pub const SCRIPTS: &str = "selftests/guest";

/// Smallest suite with the stage. Each tier includes the stages of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// `make check`: two minutes; only stages that cover a changed file.
    Check,
    /// `make test`: all tests that protect a user.
    Test,
    /// `make test-long`: hours.
    Long,
}

/// A command that passes or fails.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Unique name.
    pub name: String,
    pub tier: Tier,
    /// Git pathspecs of files whose changes can break the stage.
    pub covers: Vec<String>,
    /// Makefile targets, built before any stage runs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Bash command, run in the checkout. `$xdc` is the program, `$results` a folder of this stage.
    pub run: String,
    /// Command for `make test-long`, if it has a longer form.
    #[serde(default)]
    pub long: Option<String>,
    /// The command prints `N passed, N failed` at least once, and each case counts.
    #[serde(default)]
    pub counts: bool,
    /// Runs the guest scripts for this kernel. In `make check`, `$scripts` names the scripts that cover a
    /// change.
    #[serde(default)]
    pub kernel: Option<String>,
    /// Runs after all other stages.
    #[serde(default)]
    pub last: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    stage: Vec<Stage>,
}

/// Header lines of a guest script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub name: String,
    /// Words of the line `# kernels:` before `|`; the words after it are for the long form.
    pub kernels: Vec<String>,
    /// Pathspecs of the line `# covers:`, and the script itself.
    pub covers: Vec<String>,
}

impl Script {
    fn parse(name: &str, text: &str) -> Self {
        let words = |key: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(key));
            let words = lines.flat_map(str::split_whitespace);
            words.map(str::to_owned).collect()
        };
        let own = format!("{SCRIPTS}/{name}");
        Self {
            name: name.to_owned(),
            kernels: words("# kernels:").into_iter().take_while(|word| word != "|").collect(),
            covers: [words("# covers:"), vec![own]].concat(),
        }
    }
}

/// All stages in starting order.
pub fn stages(top: &Path) -> Result<Vec<Stage>> {
    let text = fs::read_to_string(top.join(STAGES)).context(STAGES)?;
    let table: Table = toml::from_str(&text).context(STAGES)?;
    Ok(table.stage)
}

/// All guest scripts, sorted by name.
pub fn scripts(top: &Path) -> Result<Vec<Script>> {
    let mut scripts = Vec::new();
    for entry in fs::read_dir(top.join(SCRIPTS)).context(SCRIPTS)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".sh") && name != "lib.sh" {
            let text = fs::read_to_string(top.join(SCRIPTS).join(&name)).context(name.clone())?;
            scripts.push(Script::parse(&name, &text));
        }
    }
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::git;

    fn top() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
    }

    #[test]
    fn a_script_names_its_kernels_and_paths() {
        let text = "#!/bin/sh\n# kernels: uml x86 | debug\n# covers: modules/a.rs b\n# covers: c\n";
        let script = Script::parse("10-a.sh", text);
        assert_eq!(script.kernels, ["uml", "x86"]);
        let covers = ["modules/a.rs", "b", "c", "selftests/guest/10-a.sh"];
        assert_eq!(script.covers, covers);
    }

    #[test]
    fn names_are_unique() {
        let stages = stages(&top()).unwrap();
        let names: BTreeSet<_> = stages.iter().map(|stage| &stage.name).collect();
        assert_eq!(names.len(), stages.len());
    }

    #[test]
    fn every_script_names_its_kernels_and_paths() {
        let bare: Vec<_> = scripts(&top())
            .unwrap()
            .into_iter()
            .filter(|script| script.kernels.is_empty() || script.covers.len() < 2)
            .map(|script| script.name)
            .collect();
        assert!(bare.is_empty(), "no line '# kernels:' or '# covers:' in {bare:?}");
    }

    #[test]
    fn every_file_is_covered_and_every_path_has_a_file() {
        let top = top();
        let mut left: BTreeSet<_> = git::files(&top, &[]).unwrap().into_iter().collect();
        assert!(!left.is_empty(), "git lists no file");
        let stages = stages(&top).unwrap().into_iter();
        let scripts = scripts(&top).unwrap().into_iter();
        let covers = stages
            .filter(|stage| !stage.covers.iter().any(|path| path == "*"))
            .map(|stage| (stage.name, stage.covers));
        for (name, covers) in covers.chain(scripts.map(|script| (script.name, script.covers))) {
            for path in covers {
                let found = git::files(&top, std::slice::from_ref(&path)).unwrap();
                assert!(!found.is_empty(), "{name} covers {path}: no such file");
                for file in found {
                    left.remove(&file);
                }
            }
        }
        assert!(left.is_empty(), "no stage covers {left:?}");
    }
}
