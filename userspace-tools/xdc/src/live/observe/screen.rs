// SPDX-License-Identifier: GPL-2.0
//! The terminal as a screen, restored by `Drop`, and by ratatui's hook on a panic.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::time::Duration;

use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use xdc_base::error::{Error, Result};

/// Wrapper that skips ratatui's own `Drop`, which reports errors on stderr and would panic if that
/// is closed, too.
pub struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    /// Enters raw mode and the alternate screen.
    pub fn open() -> Result<Self> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Error::usage("standard input and output must be a terminal")
                .hint("xdc ss --interval 1s, or xdc watch dev DEV, for pipes and files"));
        }
        let terminal = ratatui::try_init().map(ManuallyDrop::new);
        terminal.map(Self).map_err(|err| {
            ratatui::restore();
            Error::io("the terminal", &err)
        })
    }

    /// Waits for a key. crossterm alone would read a closed terminal's end of file forever.
    pub fn has_input(patience: Duration) -> Result<bool> {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(err) => return Err(Error::io("the terminal", &err.into())),
        }
        let seen = fds[0].revents();
        if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(Error::failure("the terminal was closed"));
        }
        Ok(seen.contains(PollFlags::IN))
    }

    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let drawn = self.0.draw(render);
        drawn.map(drop).map_err(|err| Error::io("the terminal", &err))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A closed terminal has nothing to restore.
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}
