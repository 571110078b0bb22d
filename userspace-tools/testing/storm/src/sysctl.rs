// SPDX-License-Identifier: GPL-2.0
//! Random writes to the parameters of running flows.
//!
//! The expected effect of each write is computed as in proc_douintvec_minmax() and proc_dostring(). A refused
//! write changes nothing.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use xdc_algo::entry::Entry;

use crate::{
    Storm,
    background::{Background, DIAG_PAUSE, Mix, PATIENCE, breathe},
    diag::Diag,
    modules,
    net::Pair,
};

/// Length to which the kernel truncates a name.
const NAME_BYTES: usize = 15;

/// Characters that the kernel parses for a number.
const NUMBER_BYTES: usize = 21;

const PROFILE: &str = "profile";

/// Writes between pauses for the flows.
const BURST: u32 = 16;

/// A parameter file and its valid values.
struct Param {
    name: String,
    file: File,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Number { min: u64, max: u64 },
    Name(Vec<String>),
}

impl Kind {
    /// Expected effect of writing `text`; None if it is refused.
    fn write(&self, text: &[u8], offset: u64) -> Option<Wanted> {
        match self {
            // Numbers are read only at offset 0.
            Self::Number { .. } if text.is_empty() || offset > 0 => Some(Wanted::Nothing),
            Self::Number { min, max } => number(text)
                .filter(|number| (*min..=*max).contains(number))
                .map(|number| Wanted::Set(number.to_string())),
            Self::Name(_) if offset > 0 => None,
            Self::Name(names) => {
                let end = text.iter().position(|byte| matches!(byte, 0 | b'\n'));
                let text = &text[..end.unwrap_or(text.len()).min(NAME_BYTES)];
                let name = names.iter().find(|name| name.as_bytes() == text)?;
                Some(Wanted::Profile(name.clone()))
            }
        }
    }

    /// Returns whether `text` is a valid content.
    fn may_read(&self, text: &str) -> bool {
        match self {
            Self::Number { min, max } => {
                text.parse().is_ok_and(|number: u64| (*min..=*max).contains(&number))
            }
            Self::Name(_) => text.is_empty(),
        }
    }
}

/// Parses the number at the beginning of a text in C notation, as strtoul_lenient() and proc_get_long() with
/// its delimiters.
fn number(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0);
    let text = &text[text.iter().position(|byte| !is_space(byte))?..];
    let seen = &text[..text.len().min(NUMBER_BYTES)];
    let (skip, radix) = match seen {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (2, 16),
        [b'0', ..] => (0, 8),
        [b'1'..=b'9', ..] => (0, 10),
        _ => return None,
    };
    let digits: Vec<u8> =
        seen[skip..].iter().copied().take_while(|byte| char::from(*byte).is_digit(radix)).collect();
    let length = skip + digits.len();
    if length == NUMBER_BYTES || !matches!(text.get(length), None | Some(b' ' | b'\t' | b'\n')) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(&digits).ok()?, radix).ok()
}

/// Parameters of one algorithm in one namespace.
struct Directory {
    params: Vec<Param>,
    /// Values that each profile sets, by file index; empty without profiles.
    profiles: BTreeMap<String, Vec<(usize, String)>>,
    /// Expected contents of the files.
    values: Vec<String>,
}

impl Directory {
    /// Opens the directory in the thread's namespace.
    fn open(algorithm: &Entry) -> Result<Self> {
        let rows = algorithm.params.iter();
        let mut kinds: Vec<_> = rows
            .map(|row| {
                let (min, max) = (row.min.into(), row.max.into());
                (row.name().to_string(), Kind::Number { min, max })
            })
            .collect();
        let mut profiles = BTreeMap::new();
        if algorithm.has_profiles() {
            for (i, profile) in algorithm.profiles().enumerate() {
                let rows = algorithm.params.iter();
                let values = rows.map(|row| row.defaults[i].to_string()).enumerate();
                profiles.insert(profile.to_string(), values.collect());
            }
            let names = algorithm.profiles().map(str::to_string);
            kinds.push((PROFILE.to_string(), Kind::Name(names.collect())));
        }
        let directory = format!("/proc/sys/net/{}", algorithm.name());
        let params = kinds
            .into_iter()
            .map(|(name, kind)| {
                let path = format!("{directory}/{name}");
                let is_read = matches!(kind, Kind::Number { .. });
                let file = File::options().read(is_read).write(true).open(&path);
                Ok(Param { file: file.with_context(|| path)?, name, kind })
            })
            .collect::<Result<Vec<_>>>()?;
        // The one other file is a read-only measurement.
        let shown = format!("{directory}/shortest_rtt_us");
        let is_refused = File::options().write(true).open(&shown).is_err();
        ensure!(is_refused, "{shown} is writable");
        let files = fs::read_dir(&directory)?.count();
        ensure!(files == params.len() + 1, "{directory} has {files} files");
        let mut directory = Self { params, profiles, values: Vec::new() };
        directory.values = directory.read_all()?;
        Ok(directory)
    }

    fn read_all(&self) -> Result<Vec<String>> {
        self.params.iter().map(Param::read).collect()
    }

    /// Writes to a random file and compares the effect with the expected one.
    fn attack(&mut self, rng: &mut fastrand::Rng, tally: &mut Tally) -> Result<()> {
        let index = rng.usize(..self.params.len());
        let param = &self.params[index];
        let old = &self.values[index];
        let text = any_text(rng, &param.kind);
        let offset = match rng.u8(..8) {
            0 => rng.u64(..40),
            1 => old.len() as u64,
            _ => 0,
        };
        let wanted = param.kind.write(&text, offset);
        let wrote = param.file.write_at(&text, offset);
        let told = || {
            let text = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
            format!("{}: {text:?} ({} bytes) at {offset} of {old:?}", param.name, text.len())
        };
        match (&wanted, &wrote) {
            (None, Err(_)) => tally.refused += 1,
            (None, Ok(_)) => {
                let now = param.read()?;
                return Err(anyhow!("{} is accepted, as {now:?}", told()));
            }
            (Some(_), Err(e)) => {
                return Err(anyhow!("{} is refused: {e}", told()));
            }
            (Some(_), Ok(_)) => tally.accepted += 1,
        }
        match wanted {
            Some(Wanted::Set(value)) => self.values[index] = value,
            Some(Wanted::Profile(name)) => {
                for (other, value) in self.profiles.get(&name).into_iter().flatten() {
                    self.values[*other].clone_from(value);
                }
            }
            Some(Wanted::Nothing) | None => {}
        }
        let now = self.params[index].read()?;
        ensure!(now == self.values[index], "the value is {now:?} after {}", {
            let param = &self.params[index];
            format!("{}, should be {:?}", param.name, self.values[index])
        });
        Ok(())
    }

    /// Checks that every file has its expected content.
    fn look(&self) -> Result<()> {
        for (param, value) in self.params.iter().zip(&self.values) {
            let now = param.read()?;
            ensure!(now == *value, "{} is {now:?}, not {value:?}", param.name);
        }
        Ok(())
    }

    /// Checks that every file has a valid value.
    fn look_at_bounds(&self) -> Result<()> {
        for param in &self.params {
            let now = param.read()?;
            ensure!(param.kind.may_read(&now), "{} holds {now:?}", param.name);
        }
        Ok(())
    }
}

impl Param {
    /// Content of the file; empty for the profile.
    fn read(&self) -> Result<String> {
        if let Kind::Name(_) = self.kind {
            return Ok(String::new());
        }
        let mut buffer = [0; 64];
        let n = self.file.read_at(&mut buffer, 0)?;
        let text = std::str::from_utf8(&buffer[..n])?;
        let line = text.strip_suffix('\n').context("no newline")?;
        Ok(line.to_string())
    }
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    refused: u64,
}

/// Effect of an accepted write.
enum Wanted {
    Nothing,
    Set(String),
    /// Profile whose values all other files get.
    Profile(String),
}

fn any_text(rng: &mut fastrand::Rng, kind: &Kind) -> Vec<u8> {
    let valid = |rng: &mut fastrand::Rng| match kind {
        Kind::Number { min, max } => match rng.u8(..6) {
            0 => *min,
            1 => *max,
            _ => rng.u64(*min..=*max),
        }
        .to_string(),
        Kind::Name(names) => names[rng.usize(..names.len())].clone(),
    };
    let text = match rng.u8(..20) {
        0..8 => valid(rng),
        8 => format!(" \t{}  \n", valid(rng)),
        9 => match kind {
            Kind::Number { min, .. } => min.wrapping_sub(1).to_string(),
            Kind::Name(names) => names[0].to_uppercase(),
        },
        10 => match kind {
            Kind::Number { max, .. } => (max + 1).to_string(),
            Kind::Name(names) => format!("{}x", names[0]),
        },
        11 => [u64::MAX.to_string(), "18446744073709551616".into(), "-1".into(), "+7".into()]
            [rng.usize(..4)]
        .clone(),
        12 => String::new(),
        13 => {
            ["\n", " ", "0x10", "0x", "010", "08", "-0", "1e3", "1 2", "%s%n", "\u{1F47B}", "1_000"]
                [rng.usize(..12)]
            .into()
        }
        14 => format!("{}{}", "0".repeat(rng.usize(..60)), valid(rng)),
        15 => format!("{}{}garbage", valid(rng), " ".repeat(rng.usize(..60))),
        16 => "7".repeat(rng.usize(1..6_000)),
        17 => format!("{}\0garbage", valid(rng)),
        18 => format!("{}\nmore", valid(rng)),
        _ => return (0..rng.usize(..80)).map(|_| rng.u8(..)).collect(),
    };
    text.into_bytes()
}

/// Runs `count` writes.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let pair = Arc::new(Pair::new()?);
    let background = Background::start(
        &pair,
        Mix {
            ccs: modules::ccs().map(|cc| cc.name().to_string()).collect(),
            receiver_cc: "unocc".to_string(),
            flows: 8,
            max_bytes: 20_000,
            seed: storm.seed,
        },
    );
    let diag = Diag::start(&pair, Some("gemini"), DIAG_PAUSE);
    let race = Race::start(&pair);
    let mut tally = Tally::default();
    let mut flows = background.completed();
    let mut rounds_with_flows = 0;
    // The senders' namespace has the flows and the racing thread; the receivers' namespace is checked
    // exactly.
    let (mut sent, mut outcome) = (0, Ok(()));
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let open = || modules::ccs().map(Directory::open).collect::<Result<Vec<_>>>();
    let mut watched = pair.hosts[1].run(open)?;
    let loose = pair.hosts[0].run(open)?;
    while sent < count && outcome.is_ok() {
        let before = sent;
        for _ in 0..(count - sent).min(1_000) {
            sent += 1;
            outcome = if rng.bool() {
                let which = rng.usize(..watched.len());
                watched[which].attack(&mut rng, &mut tally)
            } else {
                let directory = &loose[rng.usize(..loose.len())];
                let param = &directory.params[rng.usize(..directory.params.len())];
                // Only the effect on the flows matters here, accepted or not.
                let text = any_text(&mut rng, &param.kind);
                match param.file.write_at(&text, 0) {
                    Ok(_) => tally.accepted += 1,
                    Err(_) => tally.refused += 1,
                }
                Ok(())
            };
            if outcome.is_err() {
                break;
            }
            if sent % BURST == 0 {
                breathe();
            }
        }
        storm.progress(before, sent, count);
        if outcome.is_ok() {
            outcome = watched.iter().try_for_each(Directory::look);
        }
        if outcome.is_ok() {
            outcome = loose.iter().try_for_each(Directory::look_at_bounds);
        }
        // Flows must progress with any parameters.
        let deadline = Instant::now() + PATIENCE;
        while background.completed() == flows && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        rounds_with_flows += u32::from(background.completed() > flows);
        flows = background.completed();
    }
    let raced = race.stop()?;
    storm.ktap.note(&format!(
        "{sent} writes: {} accepted, {} refused; {raced} concurrent writes of the profile; flows ended in {rounds_with_flows} of {} rounds",
        tally.accepted,
        tally.refused,
        sent.div_ceil(1_000)
    ));
    storm.ktap.case(
        &format!("{sent} random sysctl writes: valid values are set, others refused, each value is within its bounds"),
        outcome,
    );
    storm.ktap.case("flows end during the writes", {
        let all = rounds_with_flows == sent.div_ceil(1_000);
        let enough = all && tally.accepted > 0 && tally.refused > 0;
        enough.then_some(()).ok_or_else(|| {
            anyhow!("no flow ended in some rounds, or no write was accepted or refused")
        })
    });
    // Some values starve a flow.
    pair.hosts[0].run(reset)?;
    storm.diag_case(diag.stop());
    let tally = background.stop();
    storm.flows_case("flows under random parameters", tally);
    Ok(())
}

fn reset() -> Result<()> {
    for algorithm in modules::ccs() {
        for row in algorithm.params {
            let name = format!("net/{}/{}", algorithm.name(), row.name());
            crate::net::write_sysctl(&name, &row.defaults[0].to_string())?;
        }
    }
    Ok(())
}

/// Long enough to overlap the other writer's bursts, and a pause for virtual time to pass.
const RACE_BURST: usize = 64;
const RACE_PAUSE: Duration = Duration::from_millis(1);

/// Thread that writes the profile, which sets all other parameters.
struct Race {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<u64>>,
}

impl Race {
    fn start(pair: &Arc<Pair>) -> Self {
        let (pair, stop) = (pair.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let algorithm = modules::ccs().find(|algorithm| algorithm.has_profiles());
            let algorithm = algorithm.context("no algorithm has profiles")?;
            let directory = pair.hosts[0].run(|| Directory::open(algorithm))?;
            let profile = directory.params.iter().find(|param| param.name == PROFILE);
            let profile = profile.context("no profile")?;
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                for name in directory.profiles.keys().cycle().take(RACE_BURST) {
                    profile.file.write_at(name.as_bytes(), 0)?;
                    count += 1;
                }
                thread::sleep(RACE_PAUSE);
            }
            Ok(count)
        });
        Self { stop, thread }
    }

    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the race panicked"))?
    }
}
