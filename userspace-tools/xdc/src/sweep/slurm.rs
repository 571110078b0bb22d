// SPDX-License-Identifier: GPL-2.0
//! A grid as a job array of Slurm.
//!
//! A task of the array is this command with `--cell N`; its answer is the cell's file in --out,
//! on a file system that all nodes share. Files are the only truth: a task that dies, with its
//! node or alone, leaves none and is submitted again; one that ran twice has written the same
//! file twice.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{Outcomes, Request, Sweep, Total};
use crate::error::{Error, Result};
use crate::interrupt;

const POLL: Duration = Duration::from_secs(3);
/// Of a cell, before it is given up.
const ATTEMPTS: u32 = 3;

/// Submits what is missing and waits for it.
pub fn run(sweep: &Sweep<'_>, dir: &Path, request: &Request) -> Result<Outcomes> {
    let mut left = sweep.missing();
    let mut total = Total::new(sweep, left.len());
    for attempt in 1..=ATTEMPTS {
        if left.is_empty() {
            break;
        }
        if attempt > 1 {
            let note = format!("{} cells have no result; submitting them again", left.len());
            sweep.bench.progress.note(&note);
        }
        let job = Job::submit(dir, request, &left)?;
        loop {
            // Asked first: what ends in between is seen in its file.
            let running = job.is_known()?;
            let now = sweep.missing();
            for _ in now.len()..left.len() {
                total.step(request.jobs);
            }
            left = now;
            if left.is_empty() || !running {
                break;
            }
            thread::sleep(POLL);
            interrupt::check()?;
        }
    }
    total.finish();
    let outcome = |(n, key): (usize, &String)| {
        sweep.cells.load(key).ok_or_else(|| {
            Error::failure(format!("no result after {ATTEMPTS} attempts"))
                .about(sweep.name(&sweep.grid.cells[n]))
                .hint(format!("read {}", dir.join("slurm-*.log").display()))
        })
    };
    Ok(sweep.keys.iter().enumerate().map(outcome).collect())
}

/// A job array; cancelled when it is dropped, if it is still there.
struct Job(String);

impl Job {
    fn submit(dir: &Path, request: &Request, cells: &[usize]) -> Result<Self> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|err| Error::io(path.display(), &err));
        let script = dir.join("job.sh");
        fs::write(&script, job_script()?).map_err(|err| Error::io(script.display(), &err))?;
        let list: Vec<_> = cells.iter().map(usize::to_string).collect();
        let output = Command::new("sbatch")
            .arg("--parsable")
            .arg("--job-name=xdc-sweep")
            .arg(format!(
                "--array={}%{}",
                list.join(","),
                request.jobs.max(1)
            ))
            .arg("--requeue")
            .arg("--cpus-per-task=1")
            .arg(format!(
                "--output={}",
                absolute(dir)?.join("slurm-%A_%a.log").display()
            ))
            .args(&request.sbatch)
            .arg(absolute(&script)?)
            .output()
            .map_err(|err| {
                Error::io("cannot run sbatch", &err)
                    .hint("--backend local, or a machine that submits to Slurm")
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        // With several clusters it is ID;CLUSTER.
        let id = text.trim().split(';').next().unwrap_or_default();
        if !output.status.success() || id.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(
                Error::failure(format!("sbatch refused the job: {}", said.trim()))
                    .hint("--sbatch=--partition=NAME and the like"),
            );
        }
        Ok(Self(id.to_owned()))
    }

    /// Some task of it still waits or runs.
    fn is_known(&self) -> Result<bool> {
        let output = Command::new("squeue")
            .args(["--noheader", "--jobs", &self.0, "--format=%i"])
            .output()
            .map_err(|err| Error::io("cannot run squeue", &err))?;
        // It forgets jobs, and then calls their number invalid; but its daemon may be away, too.
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(!output.stdout.iter().all(u8::is_ascii_whitespace))
        } else {
            Ok(!said.contains("Invalid job id"))
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.is_known().unwrap_or(false) {
            let _ = Command::new("scancel").arg(&self.0).status();
        }
    }
}

/// This command once more, for one cell. Slurm copies the script away, so paths are absolute.
fn job_script() -> Result<String> {
    let here = env::current_dir().map_err(|err| Error::io("finding this directory", &err))?;
    let program = env::current_exe().map_err(|err| Error::io("finding this program", &err))?;
    let words = env::args().skip(1).map(|word| quoted(&word));
    Ok(format!(
        "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\ncd {} || exit 1\n\
         exec {} {} --cell \"$SLURM_ARRAY_TASK_ID\"\n",
        quoted(&here.to_string_lossy()),
        quoted(&program.to_string_lossy()),
        words.collect::<Vec<_>>().join(" ")
    ))
}

/// One word to a shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_task_is_this_command_with_a_cell() {
        let script = job_script().unwrap();
        assert!(script.starts_with("#!/bin/sh\n"));
        assert!(script.contains("--cell \"$SLURM_ARRAY_TASK_ID\""));
    }
}
