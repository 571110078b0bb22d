// SPDX-License-Identifier: GPL-2.0
//! Runs a grid as a Slurm job array.
//!
//! A task is this command with `--cell N`; its result is the cell's file in --out, on a file system
//! that all nodes share. Only files count: a task that dies leaves none and is resubmitted; one
//! that runs twice writes equal files.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use xdc_base::error::{Error, Result};
use xdc_base::interrupt::{self, OnEnd};
use xdc_base::text::shell_word;

use super::{Outcomes, Request, Sweep, Total};

const POLL: Duration = Duration::from_secs(3);
/// Attempts per cell before giving up.
const ATTEMPTS: u32 = 3;

/// Submits missing cells and waits for them.
pub fn run(sweep: &Sweep<'_>, dir: &Path, request: &Request) -> Result<Outcomes> {
    let meta = fs::metadata(dir).map_err(|err| Error::io(dir.display(), &err))?;
    // Slurm writes logs there as the caller, following links.
    if meta.uid() != geteuid().as_raw() {
        let sentence = format!("{} belongs to another user", dir.display());
        return Err(Error::failure(sentence).hint("--out=DIR, a folder of your own"));
    }
    let mut left = sweep.missing();
    let mut total = Total::new(sweep, left.len());
    for attempt in 1..=ATTEMPTS {
        if left.is_empty() {
            break;
        }
        if attempt > 1 {
            let note = format!("{} cells have no result; resubmitting them", left.len());
            sweep.runner.progress.note(&note);
        }
        let job = Job::submit(dir, request, &left)?;
        loop {
            // Queried first, so that a job that ends meanwhile has left its file.
            let running = job.is_known()?;
            // Tasks would compute cells of another build.
            sweep.lab.check_unchanged()?;
            let now = sweep.missing();
            for _ in now.len()..left.len() {
                total.step(request.guests.jobs);
            }
            left = now;
            if left.is_empty() || !running {
                break;
            }
            interrupt::sleep(POLL)?;
        }
    }
    total.finish();
    let outcome = |n: usize| {
        sweep.load(n).ok_or_else(|| {
            Error::failure(format!("no result after {ATTEMPTS} attempts"))
                .about(sweep.name(&sweep.grid.cells[n]))
                .hint(format!("read {}", dir.join("slurm-*.log").display()))
        })
    };
    Ok((0..sweep.keys.len()).map(outcome).collect())
}

/// A job array, canceled on drop.
struct Job {
    id: String,
    _at_end: OnEnd,
}

impl Job {
    fn submit(dir: &Path, request: &Request, cells: &[usize]) -> Result<Self> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|err| Error::io(path.display(), &err));
        let script = job_script()?;
        let list: Vec<_> = cells.iter().map(usize::to_string).collect();
        let output = Command::new("sbatch")
            .arg("--parsable")
            .arg("--job-name=xdc-sweep")
            .arg(format!("--array={}%{}", list.join(","), request.guests.jobs.max(1)))
            .arg("--requeue")
            .arg("--cpus-per-task=1")
            .arg(format!("--output={}", absolute(dir)?.join("slurm-%A_%a.log").display()))
            .args(&request.sbatch)
            // By pipe: the folder's owner could replace a script file.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .and_then(|mut child| {
                // sbatch may refuse before it has read everything.
                let _ = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
                child.wait_with_output()
            })
            .map_err(|err| {
                Error::io("cannot run sbatch", &err)
                    .hint("--backend local, or a machine that submits to Slurm")
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        // With several clusters the output is ID;CLUSTER.
        let id = text.trim().split(';').next().unwrap_or_default();
        if !output.status.success() || id.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::failure(format!("sbatch refused the job: {}", said.trim()))
                .hint("--sbatch=--partition=NAME or other options"));
        }
        let id = id.to_owned();
        let at_end = id.clone();
        Ok(Self {
            _at_end: interrupt::on_end(move || {
                let _ = Command::new("scancel").arg(at_end).status();
            }),
            id,
        })
    }

    /// Returns whether a task of the job waits or runs.
    fn is_known(&self) -> Result<bool> {
        let output = Command::new("squeue")
            .args(["--noheader", "--jobs", &self.id, "--format=%i"])
            .output()
            .map_err(|err| Error::io("cannot run squeue", &err))?;
        // Slurm forgets finished jobs and reports an invalid ID; other errors may mean that its
        // daemon is down.
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
            let _ = Command::new("scancel").arg(&self.id).status();
        }
    }
}

/// Script that runs this command for one cell. Slurm copies it away, so paths are absolute.
fn job_script() -> Result<String> {
    let here =
        env::current_dir().map_err(|err| Error::io("cannot find the current directory", &err))?;
    let program = env::current_exe().map_err(|err| Error::io("cannot find this program", &err))?;
    let mut words = Vec::new();
    for word in env::args_os().skip(1) {
        let word = word.into_string().map_err(|word| {
            Error::usage(format!("'{}' is not UTF-8, as a job script must be", word.display()))
                .hint("another name, or --backend local")
        })?;
        words.push(shell_word(&word));
    }
    Ok(format!(
        "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\ncd {} || exit 1\n\
         exec {} {} --cell \"$SLURM_ARRAY_TASK_ID\"\n",
        shell_word(&here.to_string_lossy()),
        shell_word(&program.to_string_lossy()),
        words.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_script_runs_this_command_with_a_cell() {
        let script = job_script().unwrap();
        assert!(script.starts_with("#!/bin/sh\n"));
        assert!(script.contains("--cell \"$SLURM_ARRAY_TASK_ID\""));
    }
}
