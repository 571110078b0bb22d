// SPDX-License-Identifier: GPL-2.0
//! `xdc hunt`: searches networks in which a congestion control fails and a reference does well.
//!
//! Generations of random networks evolve towards failures. The worst one is confirmed with fresh
//! seeds and reduced; then the search restarts and avoids networks with its features.

mod case;
mod goal;
mod judge;
mod report;
mod search;
mod shrink;
mod space;

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::{Duration, Instant};

use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};
use xdc_base::progress::{Progress, Task};
use xdc_base::{interrupt, owned};
use xdc_guest::engine::Engine;
use xdc_result::runner::Runner;

use self::case::Case;
use self::goal::Goal;
use self::judge::{Judge, LEAST, Verdict};
use self::report::Report;
use self::search::{Genome, Search};
use self::shrink::{Found, SEED};
use self::space::{Key, Space};
use crate::args;
use crate::sweep::cells::Cells;
use crate::sweep::lab::Lab;

#[derive(clap::Args)]
pub struct Request {
    /// The congestion control.
    cc: String,
    /// References, of which the best counts [default: the space's].
    #[arg(long, value_delimiter = ',', value_name = "CC,...")]
    against: Vec<String>,
    /// A goal of docs/hunt.md, or high:METRIC or low:METRIC.
    #[arg(long, value_name = "GOAL", default_value = "utilisation", value_parser = Goal::from_str)]
    goal: Goal,
    /// Number of runs, or a time: 300, 10m, 2h.
    #[arg(long, value_name = "RUNS|TIME", default_value = "10m", value_parser = Budget::from_str)]
    budget: Budget,
    /// Seed of the search.
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = args::seed())]
    seed: u64,
    /// datacenter, inter-dc, wan, or a file.
    #[arg(long, value_name = "SPACE", default_value = "wan")]
    space: String,
    /// Draw each network at random, as a baseline of the strategy.
    #[arg(long)]
    random: bool,
    #[command(flatten)]
    to: args::Outcome,
    #[command(flatten)]
    guests: args::Guests,
}

/// End of a search: a number of runs, or a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    Runs(usize),
    Time(Duration),
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || "a positive number of runs, or a time: 300, 10m, 2h".to_owned();
        let budget = match text.parse() {
            Ok(runs) => Self::Runs(runs),
            Err(_) => Self::Time(humantime::parse_duration(text).map_err(|_| wrong())?),
        };
        match budget {
            Self::Runs(0) | Self::Time(Duration::ZERO) => Err(wrong()),
            _ => Ok(budget),
        }
    }
}

/// Failures to report.
const WANTED: usize = 3;
/// Share of the budget after which the rest is for reductions.
const SEARCHED: f64 = 0.75;
/// Share of the budget after which the search restarts elsewhere, even if it still improves.
const EPOCH: f64 = 0.25;

/// Difference of severities, a log2, up to which similar networks show one failure.
const SIMILAR: f64 = 0.6;

/// Returns whether every guest ran; failures of the congestion control are findings.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let space = Space::load(&home, &request.space)?;
    let against = match request.against.is_empty() {
        true => &space.against,
        false => &request.against,
    };
    let against: Vec<_> = against.iter().filter(|it| **it != request.cc).cloned().collect();
    if against.is_empty() {
        return Err(Error::usage("there is no reference").hint("--against cubic,bbr"));
    }
    let dir = request.to.dir("hunt");
    home::make_out(&dir)?;
    let progress = Progress::default();
    let quiet = Progress::quiet();
    let lab = Lab::copy(&home, Engine::UML)?;
    let cells = Cells::open(&dir, None)?;
    let judge = Judge {
        runner: Runner {
            home: lab.home(),
            engine: Engine::UML,
            timeout: request.guests.timeout,
            trace: &[],
            pcap: &[],
            progress: &quiet,
        },
        lab: &lab,
        cells: &cells,
        jobs: request.guests.jobs,
        goal: &request.goal,
        cc: &request.cc,
        against: &against,
        budget: request.budget,
        start: Instant::now(),
        runs: 0,
        failed: 0,
        suspect: 0,
    };
    let mut known = judge.ccs();
    known.sort_unstable();
    let any = xdc_scenario::parse(
        "case",
        &judge.scenario(&space.decode(&vec![0.0; space.genes().count()])),
        &[],
    )?;
    for (n, cc) in known.iter().enumerate() {
        any.scenario.known_cc(cc)?;
        if known[..n].contains(cc) {
            return Err(Error::usage(format!("'{cc}' is named twice")).hint("--against cubic,bbr"));
        }
    }
    let mut hunt = Hunt {
        space: &space,
        search: Search::new(space.genes().count(), request.seed, request.random),
        archive: Vec::new(),
        found: Vec::new(),
        known: Known {
            space: &space,
            usual: [request.goal.features(), vec![Key::NearFlows, Key::VictimFlows]].concat(),
            cases: Vec::new(),
        },
        history: "runs,fitness,times_worse,parameters\n".to_owned(),
        task: progress.task("hunt"),
        judge,
    };
    hunt.run()?;
    let Hunt { judge, mut found, history, task, .. } = hunt;
    task.finish(&format!("{} runs in {:.0} s", judge.runs, judge.start.elapsed().as_secs_f64()));
    found.sort_by(|a, b| b.verdict.times_worse.total_cmp(&a.verdict.times_worse));
    found.truncate(WANTED);
    let report = Report {
        dir: &dir,
        name: format!("{}-{}-{}", request.cc, request.goal.file_name(), space.name),
        command: request.text(&against),
        space: &space,
    };
    report.write(&judge, &found)?;
    let json = format!("{:#}\n", report.json(&judge, &found));
    for (what, content) in [("json", &json), ("csv", &history)] {
        let path = dir.join(format!("{}.{what}", report.name));
        owned::replace(&path, content).map_err(|err| Error::io(path.display(), &err))?;
    }
    interrupt::end_on_closed_pipe()?;
    match request.to.json {
        true => print!("{json}"),
        false => print!("{}", report.text(&judge, &found)),
    }
    Ok(judge.failed == 0)
}

impl Request {
    /// The command without options that do not change the search.
    fn text(&self, against: &[String]) -> String {
        let random = if self.random { " --random" } else { "" };
        format!(
            "xdc hunt {} --against {} --goal {} --space {} --seed {}{random}",
            self.cc,
            against.join(","),
            self.goal.name,
            self.space,
            self.seed
        )
    }
}

/// A search under way.
struct Hunt<'a> {
    space: &'a Space,
    judge: Judge<'a>,
    search: Search,
    /// All failures that no fresh seed has confirmed yet.
    archive: Vec<(Case, Verdict)>,
    found: Vec<Found>,
    known: Known<'a>,
    /// A row of CSV per network.
    history: String,
    task: Task,
}

impl Hunt<'_> {
    fn run(&mut self) -> Result<()> {
        let mut epoch = 0.0;
        while self.judge.spent() < SEARCHED {
            interrupt::check()?;
            self.generation()?;
            if self.search.is_stale() || self.judge.spent() - epoch >= EPOCH {
                self.reduce()?;
                self.search.restart();
                epoch = self.judge.spent();
            }
        }
        while self.found.len() < WANTED && !self.judge.is_over() && self.reduce()? {}
        Ok(())
    }

    fn generation(&mut self) -> Result<()> {
        let (space, goal) = (self.space, self.judge.goal);
        let case = |genome: &Genome| {
            let mut case = space.decode(genome);
            goal.adjust(&mut case);
            space.fit(case)
        };
        let known = &self.known;
        let mut genomes = self.search.ask(|genome| known.has(&case(genome)));
        genomes.truncate(self.judge.room(SEARCHED));
        let cases: Vec<_> = genomes.iter().map(case).collect();
        let verdicts = self.judge.judge(&cases, SEED, self.search.needed())?;
        let fitness: Vec<_> = verdicts.iter().map(|it| it.fitness).collect();
        self.search.tell(genomes, &fitness);
        for (case, verdict) in cases.into_iter().zip(verdicts) {
            let _ = writeln!(
                self.history,
                "{},{:.4},{:.4},\"{}\"",
                verdict.after_runs,
                verdict.fitness,
                verdict.times_worse,
                case.text()
            );
            if verdict.times_worse >= LEAST {
                self.archive.push((case, verdict));
            }
        }
        self.show();
        Ok(())
    }

    /// Confirms and reduces the worst failure with new features; returns whether there was one.
    fn reduce(&mut self) -> Result<bool> {
        let known = &self.known;
        self.archive.retain(|(case, _)| !known.has(case));
        self.archive.sort_by(|a, b| b.1.times_worse.total_cmp(&a.1.times_worse));
        if self.archive.is_empty() {
            return Ok(false);
        }
        let (case, verdict) = self.archive.remove(0);
        let Some(found) = shrink::reduce(&mut self.judge, self.space, case.clone(), verdict)?
        else {
            self.known.cases.push(case);
            return Ok(true);
        };
        self.known.cases.push(found.case.clone());
        let mut others = self.found.iter_mut();
        let severity = found.verdict.fitness;
        // The same network, and the same extent of the failure.
        let same = |it: &&mut Found| {
            self.space.alike(&it.case, &found.case)
                && (it.verdict.fitness - severity).abs() < SIMILAR
        };
        match others.find(same) {
            Some(same) if same.verdict.times_worse < found.verdict.times_worse => *same = found,
            Some(_) => {}
            None => self.found.push(found),
        }
        self.show();
        Ok(true)
    }

    fn show(&mut self) {
        let open = self.archive.iter().map(|it| it.1.times_worse);
        let worst =
            open.chain(self.found.iter().map(|it| it.verdict.times_worse)).fold(0.0, f64::max);
        let worst = match worst {
            0.0 => "no failure".to_owned(),
            factor => format!("worst by a factor of {factor:.1}"),
        };
        let what = format!("{} runs, {worst}, {} confirmed", self.judge.runs, self.found.len());
        self.task.set(&what, self.judge.spent());
    }
}

/// Failures to avoid: found ones, and those that a fresh seed did not repeat.
struct Known<'a> {
    space: &'a Space,
    /// Features that do not distinguish failures.
    usual: Vec<Key>,
    cases: Vec<Case>,
}

impl Known<'_> {
    fn has(&self, case: &Case) -> bool {
        let mut known = self.cases.iter();
        known.any(|known| self.space.repeats(case, known, &self.usual))
    }
}

#[cfg(test)]
mod tests;
