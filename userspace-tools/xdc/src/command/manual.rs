// SPDX-License-Identifier: GPL-2.0
//! Shell completions and man pages, generated from the command line's definition.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use xdc_base::error::{Error, Result};
use xdc_base::owned;

/// Prints a completion script to stdout.
pub fn completions(command: &mut Command, shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "xdc", &mut script);
    io::stdout().write_all(&script).map_err(|err| Error::io("stdout", &err))
}

/// Writes `xdc.1`, `xdc-run.1`, `xdc-qdisc-add.1` and so on into a directory; makes it if missing.
pub fn pages(mut command: Command, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|err| Error::io(dir.display(), &err))?;
    command.build();
    page(&command, "xdc", dir)
}

fn page(command: &Command, name: &str, dir: &Path) -> Result<()> {
    let path = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    Man::new(command.clone())
        .title(name)
        .section("1")
        .render(&mut text)
        .and_then(|()| owned::replace(&path, &text))
        .map_err(|err| Error::io(path.display(), &err))?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        if sub.get_name() != "help" {
            page(sub, &format!("{name}-{}", sub.get_name()), dir)?;
        }
    }
    Ok(())
}
