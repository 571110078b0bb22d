// SPDX-License-Identifier: GPL-2.0
//! A guest's life as the host sees it: start, messages, console; and every way it can end.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use xdc_proto::{Job, Message, Plan, VERSION, alarm::Listener};

use crate::engine::{Engine, Files, Kind, Machine};
use crate::error::{Error, Result};
use crate::home::{self, Home};
use crate::interrupt;

const POLL: Duration = Duration::from_millis(20);
const MAX_CONSOLE_BYTES: u64 = 8 << 20;
/// Of a report that ends a run.
const REPORT_LINES: usize = 40;
/// For the rest of a report to reach the console.
const REPORT_TIME: Duration = Duration::from_millis(700);
/// For a guest that is done to power off, and for a host to get its modules unloaded.
const EXIT_TIME: Duration = Duration::from_secs(30);
/// For whoever runs on the host to tidy up when told to stop.
const TIDY_TIME: Duration = Duration::from_secs(30);

/// A guest to start.
pub struct Guest<'a> {
    pub home: &'a Home,
    pub engine: Engine,
    pub machine: Machine,
}

/// What ends a guest that does not end by itself.
pub struct Watch {
    /// Longest silence, real time.
    pub stall: Duration,
    /// Longest life, real time.
    pub total: Option<Duration>,
    /// Where to keep the console's text.
    pub console: Option<PathBuf>,
}

/// A growing file, read as it grows.
struct Tail {
    file: File,
    bytes: u64,
    partial: Vec<u8>,
}

impl Tail {
    fn new(path: &std::path::Path) -> Result<Self> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|err| Error::io(path.display(), &err))?;
        Ok(Self {
            file,
            bytes: 0,
            partial: Vec::new(),
        })
    }

    /// The lines that were completed since the last call.
    fn lines(&mut self) -> Result<Vec<String>> {
        let before = self.partial.len();
        self.file
            .read_to_end(&mut self.partial)
            .map_err(|err| Error::io("reading what the guest says", &err))?;
        self.bytes += (self.partial.len() - before) as u64;
        let Some(end) = self.partial.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        Ok(String::from_utf8_lossy(&complete)
            .lines()
            .map(str::to_owned)
            .collect())
    }
}

/// A child process that does not outlive this value, with all that it started.
struct Process {
    child: Child,
    /// What asks it to end; it is killed if it does not.
    stops_by: Signal,
}

impl Process {
    fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .map_err(|err| Error::io("waiting for the guest", &err))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            if self.stops_by != Signal::KILL && matches!(self.exited(), Ok(None)) {
                // The leader alone: it ends the others in its own order.
                let _ = kill_process(group, self.stops_by);
                let asked = Instant::now();
                while matches!(self.exited(), Ok(None)) && asked.elapsed() < TIDY_TIME {
                    thread::sleep(POLL);
                }
            }
            // Fails when all of the group is gone, which is what is wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Guest<'_> {
    /// Run `plan` to its end, hand every message to `on_message`, and tell how long it took.
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
        };
        let console_path = match &watch.console {
            Some(path) => path.clone(),
            None => temp.path().join("console"),
        };
        self.engine.write_root(self.home, plan, &files)?;
        let mut messages = Tail::new(files.messages)?;
        let mut console = Console::new(&console_path)?;
        let output = File::options()
            .append(true)
            .open(&console_path)
            .map_err(|err| Error::io(console_path.display(), &err))?;
        let errors = output
            .try_clone()
            .map_err(|err| Error::io(console_path.display(), &err))?;
        let child = self
            .engine
            .command(self.home, &self.machine, &files, seed(plan), false)?
            .stdout(output)
            .stderr(errors)
            // Its own group: UML is many processes, and a Ctrl-C is for us to handle.
            .process_group(0)
            .spawn()
            .map_err(|err| Error::io("starting the guest", &err))?;
        let mut process = Process {
            child,
            stops_by: self.engine.stops_by(),
        };

        let mut heard = Instant::now();
        let mut done: Option<Instant> = None;
        loop {
            interrupt::check()?;
            // Asked first, so that what it said before it ended is still read below.
            let exited = process.exited()?;
            let lines = messages.lines()?;
            let alarmed = console.read()?;
            if !lines.is_empty() || console.grew {
                heard = Instant::now();
            }
            for line in lines {
                let message = parse(&line)?;
                if let Message::Error { what } = &message {
                    return Err(Error::failure(format!("the guest gave up: {what}")));
                }
                if let Message::Done { .. } = message {
                    done = Some(Instant::now());
                }
                on_message(message)?;
            }
            if alarmed {
                return Err(console.report(&mut process));
            }
            if console.tail.bytes > MAX_CONSOLE_BYTES {
                return Err(Error::failure(format!(
                    "full console: the guest's kernel wrote more than {} MB",
                    MAX_CONSOLE_BYTES >> 20
                ))
                .details(console.last_lines()));
            }
            if let Some(status) = exited {
                if let Some(why) = console.listener.end() {
                    return Err(Error::failure(why).details(console.last_lines()));
                }
                // A guest is gone, however it ended; what stays on the host has to be heard of.
                if done.is_some() && (status.success() || self.engine.kind() != Kind::Host) {
                    return Ok(started.elapsed());
                }
                if done.is_some() {
                    let what = "the run is done, but the host is not as it was before";
                    return Err(Error::failure(what).details(console.last_lines()));
                }
                return Err(Error::failure(format!(
                    "the guest ended before its work was done ({status})"
                ))
                .details(console.last_lines()));
            }
            if done.is_some_and(|when| when.elapsed() > EXIT_TIME) {
                return Err(
                    Error::failure("the guest did its work but did not power off")
                        .details(console.last_lines()),
                );
            }
            if heard.elapsed() > watch.stall
                || watch.total.is_some_and(|total| started.elapsed() > total)
            {
                return Err(Error::failure(format!(
                    "the guest hangs: nothing heard for {} s",
                    heard.elapsed().as_secs()
                ))
                .hint("--timeout SECONDS if the machine is only slow")
                .details(console.last_lines()));
            }
            thread::sleep(POLL);
        }
    }

    /// Only UML keeps its RAM in a file.
    fn memory_dir(&self) -> Result<Option<TempDir>> {
        match self.engine.kind() {
            Kind::Uml => home::memory_dir(self.machine.memory_mb << 20).map(Some),
            Kind::Qemu | Kind::Host => Ok(None),
        }
    }

    /// Give the terminal to the guest until it powers off.
    pub fn interact(&self, plan: &Plan) -> Result<()> {
        let temp = home::temp_dir()?;
        let memory = self.memory_dir()?;
        let files = Files {
            dir: temp.path(),
            memory_dir: memory.as_ref().map_or(temp.path(), |dir| dir.path()),
            initramfs: &temp.path().join("initramfs"),
            messages: &temp.path().join("messages"),
        };
        self.engine.write_root(self.home, plan, &files)?;
        let mut messages = Tail::new(files.messages)?;
        // It stays in our process group, which owns the terminal.
        let mut child = self
            .engine
            .command(self.home, &self.machine, &files, seed(plan), true)?
            .spawn()
            .map_err(|err| Error::io("starting the guest", &err))?;
        let status = loop {
            if let Some(status) = child
                .try_wait()
                .map_err(|err| Error::io("waiting for the guest", &err))?
            {
                break status;
            }
            if let Err(err) = interrupt::check() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(err);
            }
            thread::sleep(POLL);
        };
        for line in messages.lines()? {
            if let Message::Error { what } = parse(&line)? {
                return Err(Error::failure(format!("the guest gave up: {what}")));
            }
        }
        if status.success() {
            Ok(())
        } else {
            Err(Error::failure(format!("the guest ended badly ({status})")))
        }
    }
}

/// A run's own, and always the same for what has none.
fn seed(plan: &Plan) -> u64 {
    match &plan.job {
        Job::Run(run) => run.seed,
        _ => 1,
    }
}

fn parse(line: &str) -> Result<Message> {
    let message = serde_json::from_str(line).map_err(|err| {
        Error::failure(format!("the guest said what nobody understands: {err}"))
            .hint("make (agent and xdc of one version)")
            .details(vec![line.chars().take(200).collect()])
    })?;
    match message {
        Message::Hello { version, .. } if version != VERSION => Err(Error::unbuilt(format!(
            "the agent speaks version {version} of the protocol, xdc speaks {VERSION}"
        ))),
        message => Ok(message),
    }
}

/// The kernel's own words.
struct Console {
    path: PathBuf,
    tail: Tail,
    lines: Vec<String>,
    grew: bool,
    listener: Listener,
    /// The line that ends the run, and why.
    alarm: Option<(usize, String)>,
}

impl Console {
    fn new(path: &std::path::Path) -> Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            tail: Tail::new(path)?,
            lines: Vec::new(),
            grew: false,
            listener: Listener::default(),
            alarm: None,
        })
    }

    /// Whether the kernel has raised an alarm.
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

    /// The error for an alarm, with the kernel's report from its first line on.
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
        // A trace's first line is a ruler; the lines before tell what led to it.
        let from = start.saturating_sub(2);
        let report = self.lines.iter().skip(from).take(REPORT_LINES).cloned();
        Error::failure(why).details(report.collect())
    }

    fn last_lines(&self) -> Vec<String> {
        let from = self.lines.len().saturating_sub(REPORT_LINES / 2);
        if self.lines.is_empty() {
            // What has no newline yet may be all there is.
            let text = fs::read_to_string(&self.path).unwrap_or_default();
            return vec![text]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect();
        }
        self.lines[from..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_when_they_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut tail = Tail::new(&path).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        writer.write_all(b"one\ntw").unwrap();
        assert_eq!(tail.lines().unwrap(), ["one"]);
        writer.write_all(b"o\nthree").unwrap();
        assert_eq!(tail.lines().unwrap(), ["two"]);
        assert_eq!(tail.bytes, 13);
    }
}
