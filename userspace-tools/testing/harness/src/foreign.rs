// SPDX-License-Identifier: GPL-2.0
//! `xdc-harness foreign`: third-party tests, with the kernel's modules and with ours in one guest.
//!
//! A suite is a program in selftests/guest/foreign/. Its guest's root is a folder of Debian
//! packages with the kernel's own tests (qemu-images/foreign.sh). A suite prints `ok N VARIANT
//! CASE` for each case and variant, that is, congestion control or queue discipline. Its header
//! lines configure the run: [`Suite::parse`].

mod page;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::progress::Progress;
use xdc_base::text::{printable, printable_lines};
use xdc_base::{interrupt, marked, owned};
use xdc_guest::engine::{Clock, Engine, Machine};
use xdc_guest::{Guest, Watch};
use xdc_proto::{Job, Message, Plan};
use xdc_result::provenance::Provenance;
use xdc_scenario::engine::Kind;
use xdc_study::args;
use xdc_study::selftest::KERNELS;

use page::{sections, told};

const MACHINE: Machine = Machine { cpus: 2, memory_mb: 2048, spins: true };

/// Folder of suites below selftests/guest/, and of reports below results/.
const FOLDER: &str = "foreign";
/// Name of the marks around the page's generated part; each suite's section has its own marks.
const MARK: &str = "foreign";
/// Lines of a failing case's output that are kept.
const NOTE_LINES: usize = 12;

#[derive(clap::Args)]
pub struct Request {
    /// Suites [default: the fast ones, with --long all].
    names: Vec<String>,
    /// The kernel [default: the suite's own].
    #[arg(long)]
    kernel: Option<Flavour>,
    /// Every suite, and the long form of each.
    #[arg(long)]
    long: bool,
    /// Print the outcome of each case instead of the suites' output.
    #[arg(long)]
    json: bool,
    /// Write the tables of docs/results/foreign-suites.md; tables of suites without a result stay unchanged.
    #[arg(long)]
    update_docs: bool,
    /// Directory of results; each suite has a file in foreign/.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Give up on a guest that is silent for this long.
    #[arg(long, value_name = "SECONDS", default_value = "330", value_parser = args::seconds())]
    timeout: Duration,
}

/// A program of selftests/guest/foreign/ and its header.
#[derive(Debug, PartialEq, Eq)]
struct Suite {
    /// File name without the extension.
    name: String,
    file: String,
    title: String,
    kernels: Vec<Flavour>,
    /// Variants with the kernel's modules, the reference.
    kernels_own: Vec<String>,
    ours: Vec<String>,
    /// Left out of the fast selection.
    long: bool,
    /// Only waits, never spins, so virtual time costs nothing else.
    waits: bool,
}

impl Suite {
    /// Reads a header such as
    ///
    /// ```text
    /// # suite: tc-testing: children of each parent
    /// # kernels: uml debug           the first is the default
    /// # variants: kernel | phantom   the kernel's own | ours
    /// # form: long
    /// # time: waiting                in virtual time nothing else takes any
    /// ```
    ///
    /// Returns None if the file is no suite.
    fn parse(file: &str, text: &str) -> Option<Self> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let title = line("# suite:")?.trim().to_owned();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let (kernels_own, ours) = line("# variants:")?.split_once('|')?;
        let named = |word| Flavour::from_str(word, false).ok();
        Some(Self {
            name: file.split('.').next().unwrap_or(file).to_owned(),
            file: file.to_owned(),
            title,
            kernels: line(KERNELS)?.split_whitespace().filter_map(named).collect(),
            kernels_own: words(kernels_own),
            ours: words(ours),
            long: line("# form:").is_some_and(|form| form.trim() == "long"),
            waits: line("# time:").is_some_and(|time| time.trim() == "waiting"),
        })
    }

    fn kernel(&self, wanted: Option<Flavour>) -> Result<Flavour> {
        match wanted {
            None => self.kernels.first().copied(),
            Some(kernel) => self.kernels.iter().copied().find(|it| *it == kernel),
        }
        .ok_or_else(|| {
            let names: Vec<_> = self.kernels.iter().map(|kernel| kernel.name()).collect();
            Error::usage(format!("{} does not run on that kernel", self.name))
                .hint(format!("--kernel {}", names.join(" or ")))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Outcomes of a case by variant.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Case {
    outcomes: BTreeMap<String, Outcome>,
    /// Explanations of failures and skips, by variant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<String, Vec<String>>,
}

/// Outcome of a suite; a file among the results.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    suite: String,
    title: String,
    kernel: String,
    long: bool,
    kernels_own: Vec<String>,
    ours: Vec<String>,
    cases: BTreeMap<String, Case>,
    /// Start, UTC in RFC 3339 format.
    #[serde(default)]
    date: String,
    /// Commit of xdc and the modules; None if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// Reason if the suite ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    died: Option<String>,
    /// Wall-clock duration in seconds.
    seconds: u64,
    /// Case that following explanation lines belong to.
    #[serde(skip)]
    last: Option<(String, String)>,
}

/// Verdict of a case on our modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// Fails with ours; passes with the kernel's modules, or they lack the case.
    Ours,
    /// Fails with both.
    Both,
    /// Fails with the kernel's modules only.
    KernelsOwn,
    /// Neither passes nor fails with any variant.
    Skipped,
}

impl Report {
    fn new(suite: &Suite, kernel: Flavour, long: bool, made: Provenance) -> Self {
        Self {
            suite: suite.name.clone(),
            title: suite.title.clone(),
            kernel: kernel.name().to_owned(),
            long,
            kernels_own: suite.kernels_own.clone(),
            ours: suite.ours.clone(),
            cases: BTreeMap::new(),
            date: made.date,
            commit: made.xdc_commit,
            died: None,
            seconds: 0,
            last: None,
        }
    }

    /// Parses a line of the suite's KTAP, indented below the guest's own.
    fn hear(&mut self, line: &str) {
        let text = line.trim_start();
        if text.len() == line.len() {
            // The agent's result of the program as a whole.
            if let Some(why) = text.strip_prefix("not ok ").and_then(|t| t.split_once("# ")) {
                self.died = Some(why.1.to_owned());
            }
            return;
        }
        if let Some(note) = text.strip_prefix("# ") {
            if let Some((case, variant)) = &self.last
                && let Some(case) = self.cases.get_mut(case)
            {
                let notes = case.notes.entry(variant.clone()).or_default();
                if notes.len() < NOTE_LINES {
                    notes.push(note.to_owned());
                }
            }
            return;
        }
        let (outcome, rest) = match (text.strip_prefix("ok "), text.strip_prefix("not ok ")) {
            (Some(rest), _) => (Outcome::Passed, rest),
            (_, Some(rest)) => (Outcome::Failed, rest),
            _ => return,
        };
        let mut words = rest.splitn(3, ' ');
        let (Some(_number), Some(variant), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let (name, skip) = match name.split_once(" # SKIP") {
            Some((name, why)) => (name, Some(why.trim())),
            None => (name, None),
        };
        let case = self.cases.entry(name.to_owned()).or_default();
        let outcome = skip.map_or(outcome, |_| Outcome::Skipped);
        case.outcomes.insert(variant.to_owned(), outcome);
        if let Some(why) = skip.filter(|why| !why.is_empty()) {
            case.notes.insert(variant.to_owned(), vec![why.to_owned()]);
        }
        self.last = (outcome == Outcome::Failed).then(|| (name.to_owned(), variant.to_owned()));
    }

    fn verdict(&self, case: &Case) -> Verdict {
        let any = |variants: &[String], outcome| {
            let mut variants = variants.iter();
            variants.any(|variant| case.outcomes.get(variant) == Some(&outcome))
        };
        let passes = any(&self.kernels_own, Outcome::Passed);
        let fails = any(&self.kernels_own, Outcome::Failed);
        if any(&self.ours, Outcome::Failed) {
            return if fails && !passes { Verdict::Both } else { Verdict::Ours };
        }
        if fails {
            Verdict::KernelsOwn
        } else if passes || any(&self.ours, Outcome::Passed) {
            Verdict::Fine
        } else {
            Verdict::Skipped
        }
    }

    fn with(&self, verdict: Verdict) -> impl Iterator<Item = (&String, &Case)> {
        let cases = self.cases.iter();
        cases.filter(move |(_, case)| self.verdict(case) == verdict)
    }

    fn count(&self, variant: &str, outcome: Outcome) -> usize {
        let cases = self.cases.values();
        cases.filter(|case| case.outcomes.get(variant) == Some(&outcome)).count()
    }

    fn variants(&self) -> impl Iterator<Item = &String> {
        self.kernels_own.iter().chain(&self.ours)
    }

    /// Returns whether our modules match the kernel's, with at least one passed case.
    fn holds(&self) -> bool {
        let ran = self.variants().any(|variant| self.count(variant, Outcome::Passed) > 0);
        self.died.is_none() && ran && self.with(Verdict::Ours).next().is_none()
    }

    /// Formats passed/failed/skipped, such as `cubic 20/1/0`.
    fn counts(&self) -> String {
        let of = |variant: &String| {
            let count = |outcome| self.count(variant, outcome);
            format!(
                "{variant} {}/{}/{}",
                count(Outcome::Passed),
                count(Outcome::Failed),
                count(Outcome::Skipped)
            )
        };
        self.variants().map(of).collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether every suite holds.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let all = suites(&home)?;
    let names: Vec<_> = all.iter().map(|suite| suite.name.clone()).collect();
    let suites = choose(all, request)?;
    let folder = request.results.join(FOLDER);
    owned::make_folder(&folder).map_err(|err| Error::io(folder.display(), &err))?;
    let mut reports = Vec::new();
    if !suites.is_empty() {
        let root = root(&home)?;
        for suite in &suites {
            let report = run(&home, suite, &root, request)?;
            let path = folder.join(format!("{}.json", report.suite));
            let text = format!("{:#}\n", serde_json::json!(report));
            owned::replace(&path, text).map_err(|err| Error::io(path.display(), &err))?;
            reports.push(report);
        }
    }
    if request.json {
        println!("{:#}", serde_json::json!(reports));
    } else {
        print!("{}", printable_lines(&told(&reports)));
    }
    if request.update_docs {
        let path = home.foreign_page();
        let page = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
        let part = sections(&names, &stored(&folder)?, &page);
        marked::update(&path, MARK, &part)?;
    }
    Ok(!reports.is_empty() && reports.iter().all(Report::holds))
}

fn suites(home: &Home) -> Result<Vec<Suite>> {
    let folder = home.selftests().join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|err| Error::io(folder.display(), &err))?;
    let mut suites = Vec::new();
    for entry in entries.flatten() {
        let Ok(file) = entry.file_name().into_string() else {
            continue;
        };
        if let Ok(text) = fs::read_to_string(entry.path()) {
            suites.extend(Suite::parse(&file, &text));
        }
    }
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// Selects the named suites; else the fast ones, or all with --long.
fn choose(suites: Vec<Suite>, request: &Request) -> Result<Vec<Suite>> {
    if let Some(name) =
        request.names.iter().find(|name| !suites.iter().any(|suite| suite.name == **name))
    {
        let names: Vec<_> = suites.iter().map(|suite| suite.name.as_str()).collect();
        return Err(Error::usage(format!("no suite '{name}'")).hint(names.join(", ")));
    }
    let wanted = |suite: &Suite| match request.names.is_empty() {
        true => request.long || !suite.long,
        false => request.names.contains(&suite.name),
    };
    Ok(suites.into_iter().filter(wanted).collect())
}

/// The guests' root folder; makes it if missing.
fn root(home: &Home) -> Result<PathBuf> {
    let script = home.foreign_root_script()?;
    let child = Command::new(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // The script starts many processes; ending the group ends them all.
        .process_group(0)
        .spawn()
        .map_err(|err| Error::io(script.display(), &err))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let at_end = interrupt::on_end(move || {
        let _ = group.map(|group| kill_process_group(group, Signal::TERM));
    });
    let output = child.wait_with_output().map_err(|err| Error::io(script.display(), &err))?;
    drop(at_end);
    interrupt::check()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last().filter(|_| output.status.success()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Err(Error::failure("cannot make the root of the suites' guests")),
    }
}

fn run(home: &Home, suite: &Suite, root: &Path, request: &Request) -> Result<Report> {
    let kernel = suite.kernel(request.kernel)?;
    let kind = match kernel {
        Flavour::Uml | Flavour::UmlDebug => Kind::Uml,
        Flavour::X86 | Flavour::Debug => Kind::Qemu,
    };
    let plan = Plan::of(Job::Selftest {
        tests: vec![format!("{FOLDER}/{}", suite.file)],
        long: request.long,
        arguments: Vec::new(),
        root: Some(root.to_path_buf()),
    });
    let guest = Guest {
        home,
        engine: Engine::new(home, kind, kernel, Clock::Wall)?,
        machine: Machine { spins: !suite.waits, ..MACHINE },
    };
    let watch = Watch { stall: request.timeout, total: None, console: None };
    let progress = Progress::default();
    progress.note(&format!("{}: {} ({})", suite.name, suite.title, kernel.name()));
    let mut report = Report::new(suite, kernel, request.long, Provenance::now()?);
    let outcome = guest.run(&plan, &watch, |message| {
        if let Message::Ktap { line } = message {
            if !request.json {
                println!("{}", printable(&line));
            }
            report.hear(&line);
        }
        Ok(())
    });
    match outcome {
        Ok(took) => report.seconds = took.as_secs(),
        Err(err) if err.is_interrupted() => return Err(err),
        Err(err) => {
            err.report();
            report.died = Some(err.to_string());
        }
    }
    Ok(report)
}

/// Reports of this run and of earlier runs.
fn stored(folder: &Path) -> Result<Vec<Report>> {
    let failed = |path: &Path, err: &std::io::Error| Error::io(path.display(), err);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .map_err(|err| failed(folder, &err))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).map_err(|err| failed(path, &err))?;
        serde_json::from_str(&text)
            .map_err(|err| Error::failure(format!("{} is not a result: {err}", path.display())))
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests;
