// SPDX-License-Identifier: GPL-2.0
//! Runs the executables of `/selftests` and forwards their KTAP.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use xdc_netlink::{
    Connection,
    link::{self, LOOPBACK_INDEX},
};
use xdc_proto::{Message, privileged};

use crate::{boot, channel::Channel, netns::Netns, silence};

const DIRECTORY: &str = "/selftests";

/// Time limits of a test, generous for a debug kernel on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1_800);
const LONG_PATIENCE: Duration = Duration::from_secs(7_200);

/// In virtual time days pass in seconds; the host detects a hung guest.
const VIRTUAL_PATIENCE: Duration = Duration::from_secs(30 * 86_400);

/// Silence after which a test's wait is diagnosed, doubled each time. The host gives up a guest after a
/// silence of its own; with a processor emulated by counted instructions, that is a minute here.
const SILENCE: Duration = Duration::from_secs(30);

/// An ended test's output is complete after this silence.
const QUIET: Duration = Duration::from_millis(200);

/// Exit code of a skipped kernel selftest.
const SKIPPED: i32 = 4;

/// Runs the tests in order, each in its own network namespace.
pub fn run(
    tests: &[String],
    (long, arguments): (bool, &[String]),
    channel: &mut Channel,
) -> Result<()> {
    let mut say = |line: String| channel.send(&Message::Ktap { line });
    say("KTAP version 1".to_string())?;
    say(format!("1..{}", tests.len()))?;
    rest_kmemleak();
    let initial = Netns::current()?;
    for (i, test) in tests.iter().enumerate() {
        let _own = Netns::create()?;
        Connection::open()?.request(link::set_up("lo", LOOPBACK_INDEX))?;
        let verdict = run_one(test, (long, arguments), &mut say)?;
        initial.enter()?;
        reap();
        say(verdict.line(i + 1, test))?;
    }
    Ok(())
}

/// Stops automatic kmemleak scans: each takes a debug kernel half a minute, and tests request their own.
fn rest_kmemleak() {
    // Most kernels lack kmemleak.
    let _ = fs::OpenOptions::new()
        .write(true)
        .open("/sys/kernel/debug/kmemleak")
        .and_then(|mut file| file.write_all(b"scan=off"));
}

/// Result of a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    Failed(String),
}

impl Verdict {
    /// A test passes if it exits with 0 and its output has no failure.
    fn new(status: ExitStatus, saw_not_ok: bool) -> Self {
        match (status.code(), saw_not_ok) {
            (Some(0), false) => Verdict::Passed,
            (Some(SKIPPED), false) => Verdict::Skipped,
            (Some(0), true) => Verdict::Failed(String::new()),
            (Some(code), _) => Verdict::Failed(format!(" # exit={code}")),
            (None, _) => Verdict::Failed(format!(" # signal={}", status.signal().unwrap_or(0))),
        }
    }

    fn line(&self, number: usize, name: &str) -> String {
        match self {
            Verdict::Passed => format!("ok {number} {name}"),
            Verdict::Skipped => format!("ok {number} {name} # SKIP"),
            Verdict::Failed(why) => format!("not ok {number} {name}{why}"),
        }
    }
}

fn run_one(
    test: &str,
    (long, arguments): (bool, &[String]),
    say: &mut impl FnMut(String) -> Result<()>,
) -> Result<Verdict> {
    let mut child = Command::new(Path::new(DIRECTORY).join(test))
        .args(arguments)
        .current_dir(DIRECTORY)
        .env("PATH", privileged::PATH)
        .envs(long.then_some(("XDC_LONG", "1")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run the selftest {test}"))?;
    let lines = read_lines(child.stdout.take().context("no pipe")?);
    let has_virtual_time = boot::has_virtual_time()?;
    let patience = match has_virtual_time {
        true => VIRTUAL_PATIENCE,
        false if long => LONG_PATIENCE,
        false => PATIENCE,
    };
    let deadline = Instant::now() + patience;
    let mut heard = Instant::now();
    let mut silence = SILENCE;
    let mut saw_not_ok = false;
    let timed_out = loop {
        if Instant::now() >= deadline {
            break true;
        }
        match lines.recv_timeout(QUIET) {
            Ok(line) => {
                heard = Instant::now();
                silence = SILENCE;
                saw_not_ok |= is_failure(&line);
                say(format!("  {line}"))?;
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            // The test has ended; a leftover process holds the pipe.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break false,
            Err(RecvTimeoutError::Timeout) if !has_virtual_time && heard.elapsed() >= silence => {
                say(format!("  # silent for {} s", silence.as_secs()))?;
                silence *= 2;
                for line in silence::report(Pid::from_raw(child.id() as i32)) {
                    say(format!("  # {line}"))?;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let status = end(&mut child, timed_out)?;
    Ok(match timed_out {
        true => Verdict::Failed(format!(" # TIMEOUT {} s", patience.as_secs())),
        false => Verdict::new(status, saw_not_ok),
    })
}

/// Whether a line is a failed result, at any depth. SKIP and TODO do not count.
fn is_failure(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("not ok") && !line.contains("# SKIP") && !line.contains("# TODO")
}

/// Reads a child's lines in a thread, which ends when the last holder closes the pipe.
fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_string();
            line.clear();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Waits for a test and kills its remaining processes.
fn end(child: &mut Child, timed_out: bool) -> Result<ExitStatus> {
    let group = Pid::from_raw(child.id() as i32);
    if timed_out {
        // ESRCH: it just ended.
        let _ = killpg(group, Signal::SIGKILL);
    }
    let status = child.wait().context("cannot wait for a selftest")?;
    let _ = killpg(group, Signal::SIGKILL);
    Ok(status)
}

/// Reaps orphans, which become children of PID 1.
fn reap() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(wait_status: i32, saw_not_ok: bool) -> String {
        Verdict::new(ExitStatus::from_raw(wait_status), saw_not_ok).line(1, "t")
    }

    #[test]
    fn a_pass_needs_a_clean_exit_and_clean_output() {
        assert_eq!(verdict(0, false), "ok 1 t");
        assert_eq!(verdict(0, true), "not ok 1 t");
        assert_eq!(verdict(4 << 8, false), "ok 1 t # SKIP");
        assert_eq!(verdict(1 << 8, false), "not ok 1 t # exit=1");
        assert_eq!(verdict(11, true), "not ok 1 t # signal=11");
    }

    #[test]
    fn skipped_and_expected_failures_do_not_count() {
        assert!(is_failure("    not ok 3 x"));
        assert!(!is_failure("not ok 3 x # TODO later"));
        assert!(!is_failure("not ok 3 x # SKIP no device"));
        assert!(!is_failure("ok 3 x"));
    }
}
