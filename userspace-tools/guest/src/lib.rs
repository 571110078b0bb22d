// SPDX-License-Identifier: GPL-2.0
//! A guest's life cycle on the host: start, messages, console, and all ways to end.

#![allow(missing_docs, reason = "internal: names and types say most")]

#[macro_use]
extern crate xdc_base;

mod calls;
pub mod cpio;
pub mod engine;
pub mod host;
pub mod initramfs;
pub mod room;
mod shared;
pub mod tether;
mod usage;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};
use xdc_base::interrupt::{self, OnEnd};
use xdc_base::owned::OwnedDir;
use xdc_proto::{Job, Message, Plan, SHARED_FOLDER, VERSION, alarm::Listener};
use xdc_scenario::engine::Kind;

use crate::engine::{Engine, Files, Machine};

const POLL: Duration = Duration::from_millis(20);
const MAX_CONSOLE_BYTES: u64 = 8 << 20;
/// Limit of all messages, bytes; xdc takes three times as much memory for them.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// Maximum line length. The largest message has packets, of a few megabytes.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Maximum bytes per read, so that signals are handled soon.
const READ_BYTES: usize = 4 << 20;
/// Interval between two checks of the guest's disk space.
const LOOK_AT_FILES: Duration = Duration::from_secs(1);
/// Lines of a report that ends a run.
const REPORT_LINES: usize = 40;
/// Time for the rest of a report to reach the console.
const REPORT_TIME: Duration = Duration::from_millis(700);
/// Time for a finished guest to power off, or for the host engine to unload modules. A guest that had used 10
/// GB of disk took more than 30 s.
const EXIT_TIME: Duration = Duration::from_secs(120);
/// Time for the host engine's agent to clean up after a stop signal.
const TIDY_TIME: Duration = Duration::from_secs(30);

/// A guest to start.
pub struct Guest<'a> {
    pub home: &'a Home,
    pub engine: Engine,
    pub machine: Machine,
}

/// Limits that end a guest.
pub struct Watch {
    /// Longest silence, real time.
    pub stall: Duration,
    /// Longest life, real time.
    pub total: Option<Duration>,
    /// New file for a copy of the console, opened for appending.
    pub console: Option<File>,
}

/// Reader of a growing file.
struct Tail {
    file: File,
    bytes: u64,
    partial: Vec<u8>,
}

impl Tail {
    fn of(file: File) -> Self {
        Self { file, bytes: 0, partial: Vec::new() }
    }

    /// Creates the file, to which another process appends.
    fn new(path: &Path) -> Result<Self> {
        let file = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(|err| Error::io(path.display(), &err))?;
        Ok(Self::of(file))
    }

    /// Lines completed since the last call; reads at most [`READ_BYTES`].
    fn lines(&mut self) -> Result<Vec<String>> {
        let failed = |err: &std::io::Error| Error::io("reading messages of the guest", err);
        let there = self.file.metadata().map_err(|err| failed(&err))?.len();
        let new = there.saturating_sub(self.bytes).min(READ_BYTES as u64) as usize;
        let before = self.partial.len();
        self.partial.resize(before + new, 0);
        self.file
            .read_exact_at(&mut self.partial[before..], self.bytes)
            .map_err(|err| failed(&err))?;
        self.bytes += new as u64;
        // Earlier bytes contain no newline.
        let end = self.partial[before..].iter().rposition(|&byte| byte == b'\n');
        let Some(end) = end else {
            return match self.partial.len() > MAX_LINE_BYTES {
                true => Err(Error::failure(format!(
                    "the guest sent {} MB without a newline",
                    MAX_LINE_BYTES >> 20
                ))),
                false => Ok(Vec::new()),
            };
        };
        let rest = self.partial.split_off(before + end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        Ok(String::from_utf8_lossy(&complete).lines().map(str::to_owned).collect())
    }

    /// Text after the last newline.
    fn unfinished(&self) -> String {
        String::from_utf8_lossy(&self.partial).into_owned()
    }
}

/// A child process that ends with this value, including its descendants.
struct Process {
    child: Child,
    /// Signal that requests the end; SIGKILL follows.
    stops_by: Signal,
    _at_end: OnEnd,
}

impl Process {
    fn new(child: Child, stops_by: Signal) -> Self {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let at_end = interrupt::on_end(move || {
            let Some(group) = group else { return };
            let _ = kill_process(group, stops_by);
            // The host's agent cleans up itself, so only its leader is signaled.
            if stops_by == Signal::KILL {
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        Self { child, stops_by, _at_end: at_end }
    }

    fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|err| Error::io("waiting for the guest", &err))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            if self.stops_by != Signal::KILL && matches!(self.exited(), Ok(None)) {
                // Signal the leader only: it ends the others in its own order.
                let _ = kill_process(group, self.stops_by);
                let asked = Instant::now();
                while matches!(self.exited(), Ok(None)) && asked.elapsed() < TIDY_TIME {
                    thread::sleep(POLL);
                }
            }
            // Kill the leader separately: it may not have made its group yet.
            let _ = self.child.kill();
            // Fails if the group is gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Terminal modes to restore after a guest is killed.
struct Terminal {
    before: Termios,
    _at_end: OnEnd,
}

impl Terminal {
    fn keep() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let at_end = before.clone();
        Some(Self { before, _at_end: interrupt::on_end(move || put_back(&at_end)) })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        put_back(&self.before);
    }
}

fn put_back(modes: &Termios) {
    // A closed terminal has no modes.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
}

impl Guest<'_> {
    /// Run `plan` to its end, passing every message to `on_message`; return the duration.
    pub fn run(
        &self,
        plan: &Plan,
        watch: &Watch,
        mut on_message: impl FnMut(Message) -> Result<()>,
    ) -> Result<Duration> {
        let started = Instant::now();
        let temp = home::temp_dir()?;
        let memory = self.memory_dir()?;
        let files = Files {
            dir: temp.path(),
            memory_dir: memory.as_ref().map_or(temp.path(), |dir| dir.path()),
            initramfs: &temp.path().join("initramfs"),
            messages: &temp.path().join("messages"),
            root: root(plan),
            shared: None,
        };
        self.engine.write_root(self.home, plan, &files)?;
        interrupt::check()?;
        let mut messages = Tail::new(files.messages)?;
        let failed = |err: &std::io::Error| Error::io("the guest's console", err);
        let mut console = Console::of(match &watch.console {
            Some(file) => Tail::of(file.try_clone().map_err(|err| failed(&err))?),
            None => Tail::new(&temp.path().join("console"))?,
        });
        let output = || console.tail.file.try_clone().map_err(|err| failed(&err));
        let child = self
            .engine
            .command(self.home, &self.machine, &files, seed(plan), false)?
            .stdout(output()?)
            .stderr(output()?)
            // In its own process group, so that Ctrl-C reaches xdc alone, which ends all processes of UML.
            .process_group(0)
            .spawn()
            .map_err(|err| Error::io("starting the guest", &err))?;
        let mut process = Process::new(child, self.engine.stops_by());
        let outcome =
            self.follow(&mut process, &mut messages, &mut console, watch, &files, &mut on_message);
        outcome.map_err(|err| blame_disk(err, &files))?;
        Ok(started.elapsed())
    }

    /// Follows a guest to its end.
    fn follow(
        &self,
        process: &mut Process,
        messages: &mut Tail,
        console: &mut Console,
        watch: &Watch,
        files: &Files<'_>,
        on_message: &mut impl FnMut(Message) -> Result<()>,
    ) -> Result<()> {
        let started = Instant::now();
        let mut looked = Instant::now();
        let mut heard = Instant::now();
        let mut done: Option<Instant> = None;
        loop {
            interrupt::check()?;
            // Check for exit before reading, so that the last messages are read below. They may be gigabytes,
            // so each read stays bounded.
            let exited = process.exited()?;
            let before = messages.bytes;
            let lines = messages.lines()?;
            let alarmed = console.read()?;
            let all_read = messages.bytes == before && !console.grew;
            if messages.bytes > MAX_MESSAGE_BYTES {
                return Err(Error::failure(format!(
                    "the guest sent more than {} GB of messages",
                    MAX_MESSAGE_BYTES >> 30
                ))
                .hint("a longer 'sample', or fewer flows"));
            }
            // Host programs run as root: a check there adds load and limits nothing.
            if self.engine.kind() != Kind::Host && looked.elapsed() > LOOK_AT_FILES {
                looked = Instant::now();
                usage::check(files, &self.machine, &process.child)?;
            }
            if !lines.is_empty() || console.grew {
                heard = Instant::now();
            }
            for line in lines {
                let message = parse(&line)?;
                if let Message::Error { what } = &message {
                    return Err(Error::failure(format!("the guest stopped: {what}")));
                }
                if let Message::Done { .. } = message {
                    done = Some(Instant::now());
                }
                on_message(message)?;
            }
            if alarmed {
                return Err(console.report(process));
            }
            if console.tail.bytes > MAX_CONSOLE_BYTES {
                return Err(Error::failure(format!(
                    "full console: the guest's kernel wrote more than {} MB",
                    MAX_CONSOLE_BYTES >> 20
                ))
                .details(console.last_lines()));
            }
            if let (Some(status), true) = (exited, all_read) {
                if let Some(why) = console.listener.end() {
                    return Err(Error::failure(why).details(console.last_lines()));
                }
                // A guest leaves nothing behind; changes left on the host must be reported.
                if done.is_some() && (status.success() || self.engine.kind() != Kind::Host) {
                    return Ok(());
                }
                if done.is_some() {
                    let what = "the run is complete, but its changes to the host were not undone";
                    return Err(Error::failure(what).details(console.last_lines()));
                }
                return Err(Error::failure(format!(
                    "the guest ended before its job was complete ({status})"
                ))
                .details(console.last_lines()));
            }
            if done.is_some_and(|when| when.elapsed() > EXIT_TIME) {
                return Err(Error::failure("the guest completed its job but did not power off")
                    .details(console.last_lines()));
            }
            if heard.elapsed() > watch.stall
                || watch.total.is_some_and(|total| started.elapsed() > total)
            {
                return Err(Error::hang(format!(
                    "the guest hangs: no output for {} s",
                    heard.elapsed().as_secs()
                ))
                .hint("--timeout SECONDS if the machine is only slow")
                .details(console.last_lines()));
            }
            if exited.is_none() {
                thread::sleep(POLL);
            }
        }
    }

    /// Directory for UML's RAM file; other engines have none.
    fn memory_dir(&self) -> Result<Option<OwnedDir>> {
        match self.engine.kind() {
            Kind::Uml => home::memory_dir(self.machine.memory_mb << 20).map(Some),
            Kind::Qemu | Kind::Host => Ok(None),
        }
    }

    /// Give the terminal to the guest until it powers off. Files in its shared folder are passed to `left`
    /// one by one.
    pub fn interact(
        &self,
        plan: &Plan,
        left: impl FnMut(&str, &mut dyn Read) -> Result<()>,
    ) -> Result<()> {
        let temp = home::temp_dir()?;
        let memory = self.memory_dir()?;
        let shared = temp.path().join(SHARED_FOLDER);
        fs::create_dir(&shared).map_err(|err| Error::io(shared.display(), &err))?;
        let files = Files {
            dir: temp.path(),
            memory_dir: memory.as_ref().map_or(temp.path(), |dir| dir.path()),
            initramfs: &temp.path().join("initramfs"),
            messages: &temp.path().join("messages"),
            root: root(plan),
            shared: Some(&shared),
        };
        self.engine.write_root(self.home, plan, &files)?;
        let mut messages = Tail::new(files.messages)?;
        // Created before the guest, so that modes are restored after its end.
        let _terminal = Terminal::keep();
        // Own process group, which is killed at the end.
        let child = self
            .engine
            .command(self.home, &self.machine, &files, seed(plan), true)?
            .spawn()
            .map_err(|err| Error::io("starting the guest", &err))?;
        let mut process = Process::new(child, self.engine.stops_by());
        let mut looked = Instant::now();
        let status = loop {
            interrupt::check()?;
            let exited = process.exited()?;
            if exited.is_some() || looked.elapsed() > LOOK_AT_FILES {
                looked = Instant::now();
                usage::check(&files, &self.machine, &process.child)?;
            }
            if let Some(status) = exited {
                break status;
            }
            thread::sleep(POLL);
        };
        // Kill the remaining processes before reading their files.
        drop(process);
        loop {
            interrupt::check()?;
            let before = messages.bytes;
            for line in messages.lines()? {
                if let Message::Error { what } = parse(&line)? {
                    return Err(Error::failure(format!("the guest stopped: {what}")));
                }
            }
            if messages.bytes == before {
                break;
            }
        }
        shared::each_file(&shared, left)?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::failure(format!("the guest failed ({status})")))
        }
    }
}

/// Adds a full disk as the cause of an error: a guest fails in many ways without space.
fn blame_disk(err: Error, files: &Files<'_>) -> Error {
    let full = [files.dir, files.memory_dir].into_iter().find(|dir| home::is_full(dir));
    match full {
        Some(dir) if !err.is_interrupted() => {
            err.about(format!("the disk of the guest's files is full ({})", dir.display()))
        }
        _ => err,
    }
}

/// The run's seed; 1 for jobs without one.
fn seed(plan: &Plan) -> u64 {
    match &plan.job {
        Job::Run(run) => run.seed,
        _ => 1,
    }
}

/// Root folder that the host lends to the guest.
fn root(plan: &Plan) -> Option<&Path> {
    match &plan.job {
        Job::Selftest { root, .. } => root.as_deref(),
        _ => None,
    }
}

fn parse(line: &str) -> Result<Message> {
    let message = serde_json::from_str(line).map_err(|err| {
        Error::failure(format!("unexpected message from the guest: {err}"))
            .hint("make (agent and xdc of one version)")
            .details(vec![line.chars().take(200).collect()])
    })?;
    match message {
        Message::Hello { version, .. } if version != VERSION => Err(Error::unbuilt(format!(
            "the agent uses protocol version {version}, xdc uses {VERSION}"
        ))),
        message => Ok(message),
    }
}

/// The kernel's console output.
struct Console {
    tail: Tail,
    lines: Vec<String>,
    grew: bool,
    listener: Listener,
    /// Line that ends the run, and the reason.
    alarm: Option<(usize, String)>,
}

impl Console {
    fn of(tail: Tail) -> Self {
        Self { tail, lines: Vec::new(), grew: false, listener: Listener::default(), alarm: None }
    }

    /// Reads the console; returns whether the kernel raised an alarm.
    fn read(&mut self) -> Result<bool> {
        let before = self.tail.bytes;
        let lines = self.tail.lines()?;
        self.grew = self.tail.bytes > before;
        for line in lines {
            if self.alarm.is_none() {
                let why = self.listener.hear(&line);
                self.alarm = why.map(|why| (self.lines.len(), why));
            }
            self.lines.push(line);
        }
        Ok(self.alarm.is_some())
    }

    /// Error for an alarm, with the kernel's report from its first line.
    fn report(&mut self, process: &mut Process) -> Error {
        let deadline = Instant::now() + REPORT_TIME;
        while Instant::now() < deadline && matches!(process.exited(), Ok(None)) {
            thread::sleep(POLL);
            if self.read().is_err() {
                break;
            }
        }
        let _ = self.read();
        let (start, why) = self.alarm.take().unwrap_or_default();
        // A trace begins with a ruler line; the lines before it show the cause. An out-of-memory report names
        // the killed process after the memory users.
        let before = match why.contains("Out of memory") {
            true => 2 * REPORT_LINES,
            false => 2,
        };
        let from = start.saturating_sub(before);
        let report = self.lines.iter().take(start + REPORT_LINES - 2).skip(from).cloned();
        Error::failure(why).details(report.collect())
    }

    fn last_lines(&self) -> Vec<String> {
        let from = self.lines.len().saturating_sub(REPORT_LINES / 2);
        if self.lines.is_empty() {
            // The only output may be a line without a newline.
            return vec![self.tail.unfinished()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect();
        }
        self.lines[from..].to_vec()
    }
}

#[cfg(test)]
mod tests;
