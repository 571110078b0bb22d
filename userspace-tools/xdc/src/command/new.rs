// SPDX-License-Identifier: GPL-2.0
//! `xdc new`: a commented scenario to start from.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use xdc_base::error::{Error, Result};

/// Template. The user's copy omits its first line, the license.
const TEMPLATE: &str = xdc_scenario::TEMPLATE;

fn text() -> &'static str {
    TEMPLATE.split_once('\n').map_or(TEMPLATE, |(_, text)| text)
}

pub fn command(path: &Path) -> Result<bool> {
    xdc_scenario::name_of(path)?;
    let named = path.extension().is_some_and(|extension| extension == "toml");
    if !named {
        let with = path.with_extension("toml");
        return Err(Error::usage(format!(
            "{}: the name of a scenario file must end in .toml",
            path.display()
        ))
        .hint(format!("xdc new {}", with.display())));
    }
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(text().as_bytes()));
    match written {
        Ok(()) => {
            println!("wrote {0}; run it: xdc run {0}", path.display());
            Ok(true)
        }
        Err(err) if err.kind() == ErrorKind::AlreadyExists => {
            Err(Error::usage(format!("{} exists and is not overwritten", path.display()))
                .hint("xdc new OTHER.toml"))
        }
        Err(err) => Err(Error::io(path.display(), &err)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_scenario::plan::plan;

    #[test]
    fn the_template_runs_with_every_congestion_control() {
        let loaded = xdc_scenario::parse("new", text(), &[]).unwrap();
        for cc in ["toll", "unocc", "gemini", "dctcp", "cubic", "bbr"] {
            plan(&loaded.scenario, cc, 1, 1).unwrap();
        }
    }

    /// Uncomments each comment that is TOML, as a user would.
    #[test]
    fn the_template_is_valid_with_its_comments_enabled() {
        let mut blocks = 0;
        let text: Vec<String> = text()
            .lines()
            .map(|line| {
                let inside = line.strip_prefix("# ").unwrap_or(line);
                let key = inside.split(" = ").next().unwrap_or_default();
                let plain = |c: char| c.is_ascii_lowercase() || c == '_';
                let is_key = inside.contains(" = ") && key.chars().all(plain);
                let is_table = inside.starts_with("[[") && inside.ends_with("]]");
                // `tc` replaces the queue's other keys.
                match (is_table || is_key) && key != "tc" && line != inside {
                    true => {
                        blocks += usize::from(is_table);
                        inside.to_owned()
                    }
                    false => line.to_owned(),
                }
            })
            .collect();
        assert_eq!(blocks, 3);
        let loaded = xdc_scenario::parse("new", &text.join("\n"), &[]).unwrap();
        let scenario = &loaded.scenario;
        assert_eq!(scenario.traffic.len(), 1);
        assert_eq!((scenario.events.len(), scenario.programs.len()), (1, 1));
    }

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        assert!(command(&path).unwrap());
        std::fs::write(&path, "mine").unwrap();
        let said = command(&path).unwrap_err().to_string();
        assert!(said.contains("is not overwritten"), "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        assert!(command(&dir.path().join("mine.txt")).is_err());
        assert!(command(&dir.path().join("no/such/folder.toml")).is_err());
    }
}
