// SPDX-License-Identifier: GPL-2.0
//! `xdc selftest`: the executables of selftests/guest/ in a guest; KTAP on stdout.

use std::fs;
use std::time::{Duration, Instant};

use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::text::printable;
use xdc_guest::engine::{Clock, Engine, Machine};
use xdc_guest::initramfs::selftest_files;
use xdc_guest::{Guest, Watch};
use xdc_proto::{Job, Message, Plan};
use xdc_scenario::engine::Kind;

use crate::args;

/// File of shared shell functions; it is no test.
pub const LIBRARY: &str = "lib.sh";
const MACHINE: Machine = Machine {
    // Two processors, so that races can occur.
    cpus: 2,
    memory_mb: 2048,
    spins: false,
};

/// Cases by their outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u32,
    pub failed: u32,
    skipped: u32,
    /// Whether the running test has printed cases of its own.
    nested: bool,
    nested_failed: bool,
    /// Tests that have ended.
    ended: usize,
}

impl Tally {
    /// Counts indented results as cases. The result of the whole file counts only if it has no
    /// cases, or fails although all its cases passed.
    pub fn add(&mut self, line: &str) {
        let text = line.trim_start();
        let (ok, rest) = match (text.strip_prefix("ok "), text.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return,
        };
        if text.len() < line.len() {
            self.nested = true;
            self.nested_failed |= !ok;
        } else {
            self.ended += 1;
            let nested = std::mem::take(&mut self.nested);
            let nested_failed = std::mem::take(&mut self.nested_failed);
            if nested && (ok || nested_failed) {
                return;
            }
        }
        if rest.contains("# SKIP") {
            self.skipped += 1;
        } else if ok {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }
}

#[derive(clap::Args)]
pub struct Request {
    /// Scripts [default: all for this kernel].
    names: Vec<String>,
    /// Engine: qemu, or uml (virtual time).
    #[arg(long, value_name = "ENGINE", default_value = "qemu", hide_possible_values = true)]
    engine: Kind,
    /// The kernel [default: the engine's plain one].
    #[arg(long)]
    kernel: Option<Flavour>,
    /// Include the long form, which takes hours.
    #[arg(long)]
    long: bool,
    /// Give up on a guest that is silent for this long.
    #[arg(long, value_name = "SECONDS", default_value = "330", value_parser = args::seconds())]
    timeout: Duration,
}

/// Returns whether every case passed.
pub fn command(request: &Request) -> Result<bool> {
    let kind = request.engine;
    let flavour = match (kind, request.kernel) {
        (Kind::Qemu, None) => Flavour::X86,
        (Kind::Qemu, Some(flavour @ (Flavour::X86 | Flavour::Debug))) => flavour,
        (Kind::Uml, None) => Flavour::Uml,
        (Kind::Uml, Some(flavour @ (Flavour::Uml | Flavour::UmlDebug))) => flavour,
        (Kind::Qemu | Kind::Uml, Some(_)) | (Kind::Host, _) => {
            return Err(Error::usage(format!(
                "the tests have no such kernel for engine {}",
                kind.name()
            ))
            .hint("--kernel x86 or debug with --engine qemu, uml or uml-debug with --engine uml"));
        }
    };
    let home = Home::find()?;
    let tests = choose(&home, &request.names, flavour, request.long)?;
    let plan = Plan::of(Job::Selftest {
        tests: tests.clone(),
        long: request.long,
        arguments: Vec::new(),
        root: None,
    });
    let guest = Guest {
        home: &home,
        engine: Engine::new(&home, kind, flavour, clock(flavour))?,
        machine: MACHINE,
    };
    let watch = Watch { stall: request.timeout, total: None, console: None };
    let mut tally = Tally::default();
    let mut start = Instant::now();
    let outcome = guest.run(&plan, &watch, |message| {
        if let Message::Ktap { line } = message {
            println!("{}", printable(&line));
            let ended = tally.ended;
            tally.add(&line);
            if let Some(name) = tests.get(ended).filter(|_| tally.ended > ended) {
                println!("# seconds: {name} {:.1}", start.elapsed().as_secs_f64());
                start = Instant::now();
            }
        }
        Ok(())
    });
    if outcome.as_ref().is_err_and(|err| !err.is_interrupted()) {
        // A guest that dies ends the running test.
        let line = interrupted(&tests, tally.ended);
        println!("{line}");
        tally.add(&line);
    }
    println!(
        "# xdc selftest: {} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    outcome?;
    Ok(tally.failed == 0 && tally.passed > 0)
}

/// Result line of the test that ran when the guest ended; `ended` tests came before.
fn interrupted(tests: &[String], ended: usize) -> String {
    let name = tests.get(ended).map_or("after the last test", String::as_str);
    format!("not ok {} {name} # the guest ended", ended + 1)
}

/// Timing cases need a clock independent of the host's load. Races need QEMU's debug kernel, whose
/// two emulated CPUs run in parallel.
fn clock(flavour: Flavour) -> Clock {
    match flavour {
        Flavour::Debug => Clock::Wall,
        Flavour::X86 | Flavour::Uml | Flavour::UmlDebug => Clock::Measuring,
    }
}

/// Header of a test that lists its kernels, such as `# kernels: uml | x86`.
pub const KERNELS: &str = "# kernels:";

/// Selects tests by name, with or without `.sh`; without names, those for the kernel.
fn choose(home: &Home, names: &[String], flavour: Flavour, long: bool) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut meant = Vec::new();
    for (name, path) in selftest_files(home)? {
        if !name.ends_with(".sh") || name == LIBRARY {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
        if is_meant_for(&text, flavour, long) {
            meant.push(name.clone());
        }
        all.push(name);
    }
    if names.is_empty() {
        return Ok(meant);
    }
    names
        .iter()
        .map(|name| {
            all.iter()
                .find(|test| *test == name || test.strip_suffix(".sh") == Some(name.as_str()))
                .cloned()
                .ok_or_else(|| Error::usage(format!("no selftest '{name}'")).hint(all.join(", ")))
        })
        .collect()
}

/// Returns whether the test's line has the kernel; kernels after `|` are for the long form.
fn is_meant_for(text: &str, flavour: Flavour, long: bool) -> bool {
    let line = text.lines().find_map(|line| line.strip_prefix(KERNELS));
    let (short, more) = line.map_or(("", ""), |it| it.split_once('|').unwrap_or((it, "")));
    let names = |words: &str| words.split_whitespace().any(|word| word == flavour.name());
    names(short) || (long && names(more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> (u32, u32, u32) {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn flat_and_nested_results_are_counted_once() {
        let flat = ["KTAP version 1", "ok 1 a", "not ok 2 b", "ok 3 c # SKIP no", "1..3"];
        assert_eq!(tally(&flat), (1, 1, 1));
        let nested = ["  ok 1 a", "  ok 2 b", "ok 1 file", "  not ok 1 c", "not ok 2 file"];
        assert_eq!(tally(&nested), (2, 1, 0));
        let died = ["  ok 1 a", "not ok 1 file # timeout"];
        assert_eq!(tally(&died), (1, 1, 0));
    }

    #[test]
    fn a_guest_that_dies_fails_the_test_that_runs() {
        let tests = ["a.sh", "b.sh"].map(String::from);
        let mut tally = Tally::default();
        for line in ["KTAP version 1", "1..2", "  ok 1 x", "ok 1 a.sh", "  ok 1 y"] {
            tally.add(line);
        }
        let line = interrupted(&tests, tally.ended);
        assert_eq!(line, "not ok 2 b.sh # the guest ended");
        tally.add(&line);
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(
            interrupted(&tests, tally.ended),
            "not ok 3 after the last test # the guest ended"
        );
    }

    #[test]
    fn a_test_lists_its_kernels() {
        let text = "#!/bin/sh\n# kernels: uml | x86\n";
        assert!(is_meant_for(text, Flavour::Uml, false));
        assert!(!is_meant_for(text, Flavour::UmlDebug, true));
        assert!(!is_meant_for(text, Flavour::X86, false));
        assert!(is_meant_for(text, Flavour::X86, true));
        assert!(!is_meant_for("#!/bin/sh\n", Flavour::Uml, true));
    }
}
