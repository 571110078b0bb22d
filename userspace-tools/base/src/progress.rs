// SPDX-License-Identifier: GPL-2.0
//! Progress on stderr: bars on a terminal, occasional lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::text::printable;

const PLAIN_INTERVAL: Duration = Duration::from_secs(15);
const STEPS: f64 = 1000.0;

/// Unlike `eprintln!`, does not panic on a closed stderr.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "xdc: {}", printable(line));
}

pub struct Progress {
    bars: Option<MultiProgress>,
    quiet: bool,
}

/// Progress of one guest.
pub struct Task {
    name: String,
    bar: Option<ProgressBar>,
    quiet: bool,
    said: Option<(String, Instant)>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { bars: std::io::stderr().is_terminal().then(MultiProgress::new), quiet: false }
    }
}

impl Progress {
    /// Progress that is not shown, of runs whose command has its own.
    pub fn quiet() -> Self {
        Self { bars: None, quiet: true }
    }

    pub fn task(&self, name: &str) -> Task {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new(STEPS as u64));
            if let Ok(style) =
                ProgressStyle::with_template("{prefix:>14} [{bar:30}] {elapsed:>4} {msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(printable(name).into_owned());
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Task { name: name.to_owned(), bar, quiet: self.quiet, said: None }
    }

    /// Prints a line that stays.
    pub fn note(&self, line: &str) {
        match &self.bars {
            // Ignores a terminal that cannot be written to.
            Some(bars) => drop(bars.println(format!("xdc: {}", printable(line)))),
            None if self.quiet => {}
            None => say(line),
        }
    }
}

impl Task {
    /// Sets text and progress; `done` is from 0 to 1.
    pub fn set(&mut self, what: &str, done: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position((done.clamp(0.0, 1.0) * STEPS) as u64);
            bar.set_message(printable(what).into_owned());
            return;
        }
        let fresh = match &self.said {
            Some((said, when)) => said != what || when.elapsed() >= PLAIN_INTERVAL,
            None => true,
        };
        if fresh && !self.quiet {
            say(&format!("{}: {what} ({:.0} %)", self.name, done * 100.0));
            self.said = Some((what.to_owned(), Instant::now()));
        }
    }

    pub fn finish(self, what: &str) {
        match self.bar {
            Some(bar) => bar.finish_with_message(printable(what).into_owned()),
            None if self.quiet => {}
            None => say(&format!("{}: {what}", self.name)),
        }
    }
}
