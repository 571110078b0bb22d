// SPDX-License-Identifier: GPL-2.0
//! Builds and runs stages, counts their cases, and records their times.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::table::{Stage, Tier};

/// Runs its argument, stops at any failure, and prints the CPU time of all its processes.
const SHELL: &str = r#"TIMEFORMAT='# cpu seconds: %U %S'; time (set -euo pipefail; eval "$1")"#;
/// Lines printed of a failed stage's output.
const TAIL: usize = 60;
/// Prefixes of lines that explain a failure.
const REASONS: [&str; 8] =
    ["not ok", "error", "thread '", "---- ", "failures", "FAILED", "# silent", "xdc: error"];

/// A row of the table of times.
struct Row {
    kind: &'static str,
    name: String,
    seconds: f64,
    /// User and system time of all processes of the stage.
    cpu_seconds: Option<f64>,
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Environment of the stages.
pub struct Bench {
    top: PathBuf,
    tier: Tier,
    dir: TempDir,
    rows: Mutex<Vec<Row>>,
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    groups: BTreeSet<i32>,
    /// A signal has arrived: no further command starts.
    ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    pub fn new(top: &Path, tier: Tier) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("suite-").tempdir()?;
        for folder in ["tmp", "logs", "results"] {
            fs::create_dir(dir.path().join(folder))?;
        }
        let running = Arc::default();
        end_with_children(Arc::clone(&running), dir.path().to_owned())?;
        Ok(Self { top: top.to_owned(), tier, dir, rows: Mutex::default(), running })
    }

    /// Builds the targets that the stages need. Removes stages with a failed target, because the failure
    /// already counts.
    pub fn build(&self, stages: &mut Vec<Stage>) -> Result<()> {
        let mut done = BTreeSet::new();
        let mut broken = BTreeSet::new();
        for target in stages.iter().flat_map(|stage| stage.needs.clone()).collect::<Vec<_>>() {
            if !done.insert(target.clone()) {
                continue;
            }
            let log = self.dir.path().join("logs").join(format!("make-{target}"));
            let command = format!("make {target} PROFILE={}", self.profile().0);
            println!("{command}");
            let outcome = self.execute(&command, &log, &[])?;
            let ok = outcome.code == Some(0);
            if !ok {
                eprintln!("FAILED - {command}\n{}", tail(&outcome.text));
                broken.insert(target.clone());
            }
            lock(&self.rows).push(Row {
                kind: "build",
                name: target,
                seconds: outcome.seconds,
                cpu_seconds: outcome.cpu_seconds,
                passed: 0,
                failed: u64::from(!ok),
                skipped: 0,
            });
        }
        stages.retain(|stage| !stage.needs.iter().any(|target| broken.contains(target)));
        Ok(())
    }

    /// Runs a stage. Err: the end of its output.
    pub fn run(&self, stage: &Stage) -> std::result::Result<(), String> {
        let name: String =
            stage.name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let log = self.dir.path().join("logs").join(&name);
        let results = self.dir.path().join("results").join(&name);
        let env = [("results", results.as_path())];
        let outcome = fs::create_dir_all(&results)
            .map_err(Into::into)
            .and_then(|()| self.execute(&stage.run, &log, &env))
            .map_err(|err| format!("{err:#}"))?;
        let mut row = Row {
            kind: "stage",
            name: stage.name.clone(),
            seconds: outcome.seconds,
            cpu_seconds: outcome.cpu_seconds,
            passed: 0,
            failed: 0,
            skipped: 0,
        };
        let ended_well = outcome.code == Some(0);
        if stage.counts {
            (row.passed, row.failed, row.skipped) = counts(&outcome.text);
            // A command that died before counting, or ran no case, has failed.
            if row.failed == 0 && (!ended_well || row.passed == 0) {
                row.failed = 1;
            }
        } else {
            row.passed = u64::from(ended_well);
            row.failed = u64::from(!ended_well);
        }
        let failed = row.failed > 0 || (self.is_strict() && row.skipped > 0);
        let mut rows = lock(&self.rows);
        rows.push(row);
        let engine = stage.kernel.as_deref().unwrap_or(&stage.name);
        rows.extend(script_rows(engine, &outcome.text));
        if failed { Err(tail(&outcome.text)) } else { Ok(()) }
    }

    /// Cargo's profile of xdc, and its folder. `dev` compiles changes faster.
    fn profile(&self) -> (&str, &str) {
        match self.tier {
            Tier::Check => ("dev", "debug"),
            Tier::Test | Tier::Long => ("release", "release"),
        }
    }

    /// Returns whether every case must run, as in CI.
    fn is_strict(&self) -> bool {
        std::env::var_os("CI").is_some() && self.tier == Tier::Test
    }

    fn execute(&self, command: &str, log: &Path, env: &[(&str, &Path)]) -> Result<Outcome> {
        let start = Instant::now();
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let mut running = lock(&self.running);
        if running.ended {
            bail!("interrupted by a signal");
        }
        let mut child = Command::new("bash")
            .args(["-c", SHELL, "bash", command])
            .current_dir(&self.top)
            .env("xdc", format!("userspace-tools/target/{}/xdc", self.profile().1))
            .env("TMPDIR", self.dir.path().join("tmp"))
            .env_remove("XDG_RUNTIME_DIR")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .context("cannot start bash")?;
        let group = i32::try_from(child.id())?;
        running.groups.insert(group);
        drop(running);
        let status = child.wait()?;
        lock(&self.running).groups.remove(&group);
        let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        Ok(Outcome {
            code: status.code(),
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds(&text),
            text,
        })
    }

    /// Prints the table of times, writes it to `build/times`, and prints the totals of all cases.
    pub fn report(&self, name: &str, elapsed: Duration) -> Result<bool> {
        let rows = lock(&self.rows);
        let mut tsv = "# SPDX-License-Identifier: GPL-2.0\nkind\tname\tseconds\tcpu_seconds\tpassed\tfailed\tskipped\n".to_owned();
        for row in &*rows {
            let cpu = row.cpu_seconds.map(|s| format!("{s:.1}")).unwrap_or_default();
            writeln!(
                tsv,
                "{}\t{}\t{:.1}\t{cpu}\t{}\t{}\t{}",
                row.kind, row.name, row.seconds, row.passed, row.failed, row.skipped
            )?;
            if row.kind != "script" {
                let cases = match row.passed {
                    0 | 1 => String::new(),
                    n => format!("{n} cases"),
                };
                println!("{:7.1} s {cpu:>7} CPU {cases:>11}  {}", row.seconds, row.name);
            }
        }
        let folder = self.top.join("build/times");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{name}.tsv")), tsv)?;
        let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
        let (passed, failed, skipped) =
            (sum(|row| row.passed), sum(|row| row.failed), sum(|row| row.skipped));
        println!(
            "total time: {:.0} s; seconds of each stage and script: build/times/{name}.tsv",
            elapsed.as_secs_f64()
        );
        let skipped = match skipped {
            0 => String::new(),
            n => format!(", {n} skipped"),
        };
        println!("{passed} passed, {failed} failed{skipped}");
        Ok(failed == 0)
    }
}

struct Outcome {
    code: Option<i32>,
    seconds: f64,
    cpu_seconds: Option<f64>,
    /// Standard output and standard error.
    text: String,
}

/// Sum of user and system time, which bash prints at the end.
fn cpu_seconds(text: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("# cpu seconds: "))?;
    line.split(' ').map(|word| word.parse::<f64>().ok()).sum()
}

/// Sums of `N passed, N failed, N skipped` and of libtest's `N passed; N failed`.
fn counts(text: &str) -> (u64, u64, u64) {
    let mut sums = (0, 0, 0);
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |unit: &str| {
            let at = words.iter().position(|word| word.trim_end_matches([',', ';']) == unit)?;
            words[at.checked_sub(1)?].parse::<u64>().ok()
        };
        if let (Some(passed), Some(failed)) = (number("passed"), number("failed")) {
            sums.0 += passed;
            sums.1 += failed;
            sums.2 += number("skipped").unwrap_or(0);
        }
    }
    sums
}

/// Times of guest scripts, from lines `# seconds: NAME S`.
fn script_rows(engine: &str, text: &str) -> Vec<Row> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# seconds: "));
    let rows = lines.filter_map(|line| {
        let (name, seconds) = line.rsplit_once(' ')?;
        Some(Row {
            kind: "script",
            name: format!("{engine}: {name}"),
            seconds: seconds.parse().ok()?,
            cpu_seconds: None,
            passed: 0,
            failed: 0,
            skipped: 0,
        })
    });
    rows.collect()
}

/// Lines with a reason, then the last lines, which show the running test of a guest that ended.
fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let is_reason = |line: &&&str| REASONS.iter().any(|start| line.trim_start().starts_with(start));
    let mut told: Vec<&str> = lines.iter().filter(is_reason).take(TAIL).copied().collect();
    told.extend(&lines[lines.len().saturating_sub(TAIL / 2)..]);
    told.join("\n")
}

/// On SIGINT, SIGTERM and SIGHUP, ends the stages, waits for them and removes their files.
fn end_with_children(running: Arc<Mutex<Running>>, dir: PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let groups: Vec<_> = {
                let mut running = lock(&running);
                running.ended = true;
                running.groups.iter().copied().filter_map(Pid::from_raw).collect()
            };
            for &group in &groups {
                let _ = kill_process_group(group, Signal::TERM);
            }
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline
                && groups.iter().any(|&group| test_kill_process_group(group).is_ok())
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = fs::remove_dir_all(dir);
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_summed_over_all_lines() {
        let text = "# xdc selftest: 3 passed, 1 failed, 2 skipped\n\
                    test result: ok. 10 passed; 0 failed; 4 ignored; 0 measured\n\
                    5 passed, 0 failed\nnothing passed or failed\n";
        assert_eq!(counts(text), (18, 1, 2));
        assert_eq!(counts(""), (0, 0, 0));
    }

    #[test]
    fn cpu_seconds_are_parsed() {
        assert_eq!(cpu_seconds("x\n# cpu seconds: 1.5 0.25\n"), Some(1.75));
        let rows = script_rows("uml", "# seconds: 05-script.sh 8.5\nok 1\n");
        assert_eq!((rows[0].name.as_str(), rows[0].seconds), ("uml: 05-script.sh", 8.5));
    }

    #[test]
    fn the_tail_of_a_failure_starts_with_its_reason() {
        let text = format!("not ok 1 x\n{}", "ok\n".repeat(100));
        assert!(tail(&text).starts_with("not ok 1 x\nok"));
    }
}
