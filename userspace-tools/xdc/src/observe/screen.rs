// SPDX-License-Identifier: GPL-2.0
//! The terminal as a screen, given back as it was: by `Drop`, and by ratatui's hook on a panic.

use std::io::{self, IsTerminal};

use ratatui::{DefaultTerminal, Frame};

use crate::error::{Error, Result};

pub struct Screen(DefaultTerminal);

impl Screen {
    /// Raw mode and the alternate screen.
    pub fn open() -> Result<Self> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Error::usage(
                "this needs a terminal, and standard input or output is none",
            )
            .hint("xdc ss --interval 1s, or xdc watch dev DEV, for pipes and files"));
        }
        ratatui::try_init().map(Self).map_err(|err| {
            ratatui::restore();
            Error::io("the terminal", &err)
        })
    }

    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let drawn = self.0.draw(render);
        drawn
            .map(drop)
            .map_err(|err| Error::io("the terminal", &err))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Where the terminal has gone there is nothing to restore.
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}
