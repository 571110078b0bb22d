// SPDX-License-Identifier: GPL-2.0
//! The stages of `selftests/stages.toml`, and the guest scripts of `selftests/guest`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The table, below the checkout.
pub const STAGES: &str = "selftests/stages.toml";
/// The guest scripts, below the checkout.
pub const SCRIPTS: &str = "selftests/guest";

/// The smallest suite that a stage is part of. Each tier has the stages of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// `make check`: two minutes, and only the stages that cover a changed file.
    Check,
    /// `make test`: everything that protects a user.
    Test,
    /// `make test-long`: hours.
    Long,
}

/// One command, which passes or fails.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Unique.
    pub name: String,
    pub tier: Tier,
    /// Git pathspecs of the files whose change can make it fail.
    pub covers: Vec<String>,
    /// Targets of the Makefile that are built before any stage runs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// For bash, in the checkout. `$xdc` is the program, `$results` a folder of this stage alone.
    pub run: String,
    /// The command of `make test-long` instead, if it has a longer form.
    #[serde(default)]
    pub long: Option<String>,
    /// The command prints `N passed, N failed` once or more, and each case counts.
    #[serde(default)]
    pub counts: bool,
    /// Runs the guest scripts for this kernel. In `make check`, `$scripts` names those that cover a change.
    #[serde(default)]
    pub kernel: Option<String>,
    /// Runs when all others have ended.
    #[serde(default)]
    pub last: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    stage: Vec<Stage>,
}

/// A guest script, by the lines of its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub name: String,
    /// Words of its line `# kernels:`, of which those behind `|` are for the long form.
    pub kernels: Vec<String>,
    /// Pathspecs of its line `# covers:`, and the script itself.
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
            kernels: words("# kernels:")
                .into_iter()
                .take_while(|word| word != "|")
                .collect(),
            covers: [words("# covers:"), vec![own]].concat(),
        }
    }
}

/// Every stage, in the order in which they start.
pub fn stages(top: &Path) -> Result<Vec<Stage>> {
    let text = fs::read_to_string(top.join(STAGES)).context(STAGES)?;
    let table: Table = toml::from_str(&text).context(STAGES)?;
    Ok(table.stage)
}

/// Every guest script, by name.
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
        assert!(
            bare.is_empty(),
            "no line '# kernels:' or '# covers:' in {bare:?}"
        );
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
                assert!(
                    !found.is_empty(),
                    "{name} covers {path}, and no file is there"
                );
                for file in found {
                    left.remove(&file);
                }
            }
        }
        assert!(left.is_empty(), "no stage covers {left:?}");
    }
}
