// SPDX-License-Identifier: GPL-2.0
//! Random writes to the parameters, while flows run on them.
//!
//! What a write has to do is worked out beside it: the kernel takes the text up to a NUL or the
//! end of the line, behind what is there before the file's offset, and sets the parameter if the
//! whole of it is a valid value. Anything else is refused and changes nothing.

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
use xdc_algo::{gemini, params::ParamInfo, unocc};

use crate::{
    Storm,
    background::{Background, DIAG_PAUSE, Mix, breathe},
    diag::Diag,
    net::Pair,
};

/// What the kernel keeps of a text; a longer one is refused.
const TEXT_BYTES: usize = 31;

const PROFILE: &str = "profile";

/// Writes in a row, before flows may go on.
const BURST: u32 = 16;

/// A file, and what it may hold.
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
    /// The text that is shown for `text`, if it is a valid value.
    fn canonical(&self, text: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(text.trim_ascii()).ok()?;
        match self {
            Self::Number { min, max } => {
                let number: u64 = text.parse().ok()?;
                (*min..=*max).contains(&number).then(|| number.to_string())
            }
            Self::Name(names) => names.iter().find(|name| *name == text).cloned(),
        }
    }
}

/// One directory of parameters in one namespace.
struct Directory {
    params: Vec<Param>,
    /// What each profile sets, by file; empty where there are no profiles.
    profiles: BTreeMap<String, Vec<(usize, String)>>,
    /// What the files hold.
    values: Vec<String>,
}

fn numbers<const N: usize>(table: &[ParamInfo<N>]) -> Vec<(String, Kind)> {
    let row = |row: &ParamInfo<N>| {
        let kind = Kind::Number {
            min: row.min.into(),
            max: row.max.into(),
        };
        (row.name.to_string_lossy().into_owned(), kind)
    };
    table.iter().map(row).collect()
}

impl Directory {
    /// Of the namespace that the thread is in.
    fn open(name: &str) -> Result<Self> {
        let names: Vec<String> = unocc::Profile::NAMES
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let mut kinds = match name {
            "unocc" => numbers(unocc::PARAMS),
            _ => numbers(gemini::PARAMS),
        };
        let mut profiles = BTreeMap::new();
        if name == "unocc" {
            for (i, profile) in names.iter().enumerate() {
                let row = |row: &ParamInfo<{ unocc::Profile::COUNT }>| row.defaults[i].to_string();
                let values = unocc::PARAMS.iter().map(row).enumerate().collect();
                profiles.insert(profile.clone(), values);
            }
            kinds.push((PROFILE.to_string(), Kind::Name(names)));
        }
        let directory = format!("/proc/sys/net/{name}");
        let params = kinds
            .into_iter()
            .map(|(name, kind)| {
                let path = format!("{directory}/{name}");
                let file = File::options().read(true).write(true).open(&path);
                Ok(Param {
                    file: file.with_context(|| path)?,
                    name,
                    kind,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let files = fs::read_dir(&directory)?.count();
        ensure!(files == params.len(), "{directory} has {files} files");
        let mut directory = Self {
            params,
            profiles,
            values: Vec::new(),
        };
        directory.values = directory.read_all()?;
        Ok(directory)
    }

    fn read_all(&self) -> Result<Vec<String>> {
        self.params.iter().map(Param::read).collect()
    }

    /// Writes something to one file and compares what that does with what it should.
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
        let wanted = wanted(&param.kind, old, &text, offset);
        let wrote = param.file.write_at(&text, offset);
        let told = || {
            let text = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
            format!(
                "{}: {text:?} ({} bytes) at {offset} of {old:?}",
                param.name,
                text.len()
            )
        };
        match (&wanted, &wrote) {
            (Wanted::Refuse, Err(_)) => tally.refused += 1,
            (Wanted::Refuse, Ok(_)) => {
                let now = param.read()?;
                return Err(anyhow!("{} is accepted, as {now:?}", told()));
            }
            (Wanted::Set(_) | Wanted::Nothing, Err(e)) => {
                return Err(anyhow!("{} is refused: {e}", told()));
            }
            (Wanted::Set(_) | Wanted::Nothing, Ok(_)) => tally.accepted += 1,
        }
        if let Wanted::Set(value) = wanted {
            if let Some(others) = self.profiles.get(&value).filter(|_| param.name == PROFILE) {
                for (other, value) in others {
                    self.values[*other].clone_from(value);
                }
            }
            self.values[index] = value;
        }
        let now = self.params[index].read()?;
        ensure!(now == self.values[index], "it reads {now:?} after {}", {
            let param = &self.params[index];
            format!("{}, should be {:?}", param.name, self.values[index])
        });
        Ok(())
    }

    /// Every file holds what it should.
    fn look(&self) -> Result<()> {
        for (param, value) in self.params.iter().zip(&self.values) {
            let now = param.read()?;
            ensure!(now == *value, "{} is {now:?}, not {value:?}", param.name);
        }
        Ok(())
    }

    /// Every file holds a valid value.
    fn look_at_bounds(&self) -> Result<()> {
        for param in &self.params {
            let now = param.read()?;
            let valid = param.kind.canonical(now.as_bytes()).as_ref() == Some(&now);
            ensure!(valid, "{} holds {now:?}", param.name);
        }
        Ok(())
    }
}

impl Param {
    fn read(&self) -> Result<String> {
        let mut buffer = [0; 64];
        let n = self.file.read_at(&mut buffer, 0)?;
        let text = std::str::from_utf8(&buffer[..n])?;
        let line = text.strip_suffix('\n').context("no line")?;
        Ok(line.to_string())
    }
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    refused: u64,
}

/// What a write should do.
enum Wanted {
    Refuse,
    Nothing,
    Set(String),
}

fn wanted(kind: &Kind, old: &str, text: &[u8], offset: u64) -> Wanted {
    if text.is_empty() {
        return Wanted::Nothing;
    }
    let offset = offset as usize;
    // Proc itself takes no more than a page.
    if offset > old.len() || offset + text.len() > TEXT_BYTES {
        return Wanted::Refuse;
    }
    let end = text.iter().position(|byte| matches!(byte, 0 | b'\n'));
    let text = &text[..end.unwrap_or(text.len())];
    let whole = [&old.as_bytes()[..offset], text].concat();
    kind.canonical(&whole).map_or(Wanted::Refuse, Wanted::Set)
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
        11 => [
            u64::MAX.to_string(),
            "18446744073709551616".into(),
            "-1".into(),
            "+7".into(),
        ][rng.usize(..4)]
        .clone(),
        12 => String::new(),
        13 => [
            "\n",
            " ",
            "0x10",
            "1e3",
            "1 2",
            "%s%n",
            "\u{1F47B}",
            "1_000",
        ][rng.usize(..8)]
        .into(),
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
            ccs: vec!["unocc".to_string(), "gemini".to_string()],
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
    // The senders' namespace has the flows, and the racing thread; the receivers' is watched to
    // the letter.
    let (mut sent, mut outcome) = (0, Ok(()));
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let open = || Ok([Directory::open("unocc")?, Directory::open("gemini")?]);
    let mut watched = pair.hosts[1].run(open)?;
    let loose = pair.hosts[0].run(open)?;
    while sent < count && outcome.is_ok() {
        let before = sent;
        for _ in 0..(count - sent).min(1_000) {
            sent += 1;
            outcome = if rng.bool() {
                let which = rng.usize(..2);
                watched[which].attack(&mut rng, &mut tally)
            } else {
                let directory = &loose[rng.usize(..2)];
                let param = &directory.params[rng.usize(..directory.params.len())];
                // Accepted or not: what it does to the flows is what counts here.
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
        // Whatever the parameters are now, flows go on.
        let deadline = Instant::now() + Duration::from_secs(30);
        while background.completed() == flows && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        rounds_with_flows += u32::from(background.completed() > flows);
        flows = background.completed();
    }
    let raced = race.stop()?;
    storm.ktap.note(&format!(
        "{sent} writes: {} accepted, {} refused; {raced} of the profile raced them; flows ended in {rounds_with_flows} of {} thousands",
        tally.accepted,
        tally.refused,
        sent.div_ceil(1_000)
    ));
    storm.ktap.case(
        &format!("{sent} random sysctl writes: what is valid is set, the rest refused, every value within its bounds"),
        outcome,
    );
    storm.ktap.case("flows ran meanwhile", {
        let all = rounds_with_flows == sent.div_ceil(1_000);
        let enough = all && tally.accepted > 0 && tally.refused > 0;
        enough
            .then_some(())
            .ok_or_else(|| anyhow!("some thousand writes stopped them"))
    });
    // Some of the values starve a flow.
    pair.hosts[0].sysctl("net/unocc/profile", "linux")?;
    pair.hosts[0].run(reset_gemini)?;
    storm.diag_case(diag.stop());
    let tally = background.stop();
    storm.flows_case("flows under random parameters", tally);
    Ok(())
}

fn reset_gemini() -> Result<()> {
    for row in gemini::PARAMS {
        let name = format!("net/gemini/{}", row.name.to_string_lossy());
        crate::net::write_sysctl(&name, &row.defaults[0].to_string())?;
    }
    Ok(())
}

/// Long enough to meet the other writer's bursts, and a rest in which virtual time may pass.
const RACE_BURST: usize = 64;
const RACE_PAUSE: Duration = Duration::from_millis(1);

/// A thread that writes the profile, which sets everything else.
struct Race {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<u64>>,
}

impl Race {
    fn start(pair: &Arc<Pair>) -> Self {
        let (pair, stop) = (pair.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let directory = pair.hosts[0].run(|| Directory::open("unocc"))?;
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
        self.thread
            .join()
            .map_err(|_| anyhow!("the race panicked"))?
    }
}
