// SPDX-License-Identifier: GPL-2.0
//! `xdc trace`: records our modules' tracepoints by eBPF.
//!
//! A recording is JSON lines: a `begin`, an object per event with the fields in docs/tracing.md,
//! and an `end` with counts. [`plot`] draws it.

mod events;
mod format;
pub mod observer;
pub mod of_run;
mod pages;
pub mod plot;
#[path = "../../../../ebpf/src/trace_record.rs"]
mod record;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde::Serializer as _;
use serde_json::{Map, Value, json};
use xdc_base::error::{Error, Result};
use xdc_base::text::printable;
use xdc_base::{interrupt, owned};

use format::Format;
use observer::{Observer, Seen};

pub use events::EVENTS;

/// End of the command's help.
pub fn help() -> String {
    format!("{EXAMPLES}{}.\n{REST}", EVENTS.join(", "))
}

const EXAMPLES: &str = "\
Examples:
  sudo xdc trace --event unocc_epoch,phantom_mark
  sudo xdc trace --seconds 10 -o trace.jsonl
  sudo xdc trace -o trace.jsonl -- iperf3 -c 10.0.0.2
  xdc trace plot trace.jsonl -o trace.svg

Events: ";

const REST: &str = "\
Their fields and units are in docs/tracing.md. The exit code is also 1 if events were missed or the
command failed.";

/// Version of the output format.
const VERSION: u32 = 1;

/// Time for a command to end on request, before the recording is written.
const PATIENCE: Duration = Duration::from_millis(400);

/// Interval of checks of the clock, the command and Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub struct Request {
    /// Events [default: all of loaded modules].
    #[arg(long, value_delimiter = ',', value_name = "EVENT,...",
          value_parser = clap::builder::PossibleValuesParser::new(EVENTS))]
    event: Vec<String>,
    /// End after N seconds [default: at Ctrl-C, or with the command].
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Write JSON lines to this file instead of text to the terminal.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON lines.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Command to record; it starts when the recording has begun.
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

/// Destination of events.
enum Sink {
    Text(io::Stdout),
    Json(Box<dyn Write>),
}

/// Event counts, by index of [`EVENTS`].
type Counts = [u64; EVENTS.len()];

/// Runs the command; returns whether every event was recorded and the child succeeded.
pub fn command(request: &Request) -> Result<bool> {
    let events = choose(&request.event)?;
    let formats: Vec<Option<Format>> = (0..EVENTS.len())
        .map(|event| {
            let wanted = events.contains(&event);
            wanted.then(|| format::read(EVENTS[event])).transpose()
        })
        .collect::<Result<_>>()?;
    let mut observer = Observer::open(&events)?;
    let mut sink = Sink::open(request)?;
    let names: Vec<_> = events.iter().map(|&event| EVENTS[event]).collect();
    sink.json(&begin_line(&kernel_release(), &names))?;
    eprintln!("xdc: listening to {}", names.join(", "));

    let mut child = request.words.split_first().map(start).transpose()?;
    let until = request.seconds.map(|duration| Instant::now() + duration);
    let mut counts = Counts::default();
    let mut status = None;
    while interrupt::check().is_ok() && status.is_none() {
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            break;
        }
        observer.wait(left.min(LOOK))?;
        if let Some(child) = &mut child {
            status = child.try_wait().map_err(|err| Error::io(&request.words[0], &err))?;
        }
        observer.drain(|seen| hand_on(&seen, &formats, &mut sink, &mut counts))?;
    }
    if let (Some(child), None) = (&mut child, status) {
        status = Some(stop(child).map_err(|err| Error::io(&request.words[0], &err))?);
    }
    observer.drain(|seen| hand_on(&seen, &formats, &mut sink, &mut counts))?;
    let missed = observer.missed()?;
    drop(observer);

    sink.json(&end_line(&events, &counts, missed))?;
    sink.flush()?;
    for event in events {
        eprintln!("xdc: {} {}", counts[event], EVENTS[event]);
    }
    if missed != 0 {
        eprintln!(
            "xdc: {missed} events were missed: the ring was full, or one event interrupted another"
        );
    }
    Ok(missed == 0 && status.is_none_or(|status| status.success() || request.seconds.is_some()))
}

/// Indices of the requested events, or of all available ones.
fn choose(names: &[String]) -> Result<Vec<usize>> {
    if !names.is_empty() {
        let wanted = |event: &&usize| names.iter().any(|name| name == EVENTS[**event]);
        return Ok((0..EVENTS.len()).collect::<Vec<_>>().iter().filter(wanted).copied().collect());
    }
    let folder = format::folder()?;
    let there: Vec<usize> =
        (0..EVENTS.len()).filter(|&event| folder.join(EVENTS[event]).is_dir()).collect();
    if there.is_empty() {
        return Err(Error::failure(
            "no module with tracepoints xdc:* is loaded, or tracefs is not readable",
        )
        .hint("as root: modprobe tcp_unocc"));
    }
    Ok(there)
}

fn start((program, words): (&String, &[String])) -> Result<Child> {
    Command::new(program).args(words).spawn().map_err(|err| Error::io(program, &err))
}

/// Stops the recorded command at the end of the recording.
fn stop(child: &mut Child) -> io::Result<ExitStatus> {
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(pid) = rustix::process::Pid::from_raw(pid)
    {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    }
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait()
}

fn hand_on(
    seen: &Seen<'_>,
    formats: &[Option<Format>],
    sink: &mut Sink,
    counts: &mut Counts,
) -> Result<()> {
    let Some(format) = &formats[seen.event] else {
        return Err(Error::failure("received an event that was not requested"));
    };
    counts[seen.event] += 1;
    let fields = format.decode(seen.fields);
    match sink {
        Sink::Text(out) => {
            let mut line = format!(
                "{}.{:09} [{:03}] {}:",
                seen.at_ns / 1_000_000_000,
                seen.at_ns % 1_000_000_000,
                seen.cpu,
                EVENTS[seen.event]
            );
            for (name, value) in fields {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                line += &format!(" {name}={value}");
            }
            // Device names may contain any character.
            writeln!(out, "{}", printable(&line)).map_err(|err| Error::io("writing events", &err))
        }
        Sink::Json(out) => event_line(out, seen.event, seen.at_ns, seen.cpu, fields),
    }
}

/// The first line of a recording.
fn begin_line(kernel: &str, events: &[&str]) -> Value {
    json!({
        "event": "begin",
        "version": VERSION,
        "kernel": kernel,
        "clock": "CLOCK_MONOTONIC",
        "events": events,
    })
}

/// Writes an event's line; `event` is an index of [`EVENTS`].
fn event_line<'a>(
    out: &mut dyn Write,
    event: usize,
    at_ns: u64,
    cpu: u32,
    fields: impl Iterator<Item = (&'a str, Value)>,
) -> Result<()> {
    let head = [("event", EVENTS[event].into()), ("at_ns", at_ns.into()), ("cpu", cpu.into())];
    serde_json::Serializer::new(&mut *out)
        .collect_map(head.into_iter().chain(fields))
        .map_err(io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .map_err(|err| Error::io("writing the recording", &err))
}

/// The last line of a recording: counts of the recorded events.
fn end_line(recorded: &[usize], counts: &Counts, missed: u64) -> Value {
    let by_name = recorded.iter().map(|&event| (EVENTS[event].to_owned(), counts[event].into()));
    let by_name: Map<String, Value> = by_name.collect();
    json!({ "event": "end", "counts": by_name, "missed": missed })
}

impl Sink {
    fn open(request: &Request) -> Result<Self> {
        Ok(match &request.output {
            Some(path) => {
                let file = owned::create(path).map_err(|err| Error::io(path.display(), &err))?;
                Self::Json(Box::new(BufWriter::new(file)))
            }
            None if request.json => Self::Json(Box::new(io::stdout())),
            None => Self::Text(io::stdout()),
        })
    }

    /// Writes a line in JSON mode only.
    fn json(&mut self, value: &Value) -> Result<()> {
        match self {
            Self::Text(_) => Ok(()),
            Self::Json(out) => {
                writeln!(out, "{value}").map_err(|err| Error::io("writing the recording", &err))
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Text(out) => out.flush(),
            Self::Json(out) => out.flush(),
        }
        .map_err(|err| Error::io("writing the recording", &err))
    }
}

fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
