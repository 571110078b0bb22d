// SPDX-License-Identifier: GPL-2.0
//! Finished cells on disk: they make a sweep resumable, serve later commands, and let several
//! machines share one sweep.
//!
//! A cell's file is named after all inputs of its figures ([`Inputs`]). A rename makes it appear
//! whole or replaces an equal one. It holds its own name and the hash of its content, so empty,
//! truncated or damaged files are detected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use xdc_base::error::{Error, Result};
use xdc_base::{home, owned};
use xdc_measure::figures::Windows;
use xdc_measure::outcome::Outcome;
use xdc_measure::size::SizeClasses;
use xdc_proto::Plan;
use xdc_result::provenance::sha256;
use xdc_scenario::beside;

use super::lab::Parts;
use crate::args::Again;

/// Cells unread for this long leave the cache.
const UNUSED: Duration = Duration::from_secs(60 * 86_400);

/// Content of a cell's file.
#[derive(Serialize, Deserialize)]
struct Stored {
    key: String,
    /// Hash of `outcome` as written.
    sha256: String,
    /// Hash of the CSV file beside it.
    flows_sha256: String,
    outcome: Box<RawValue>,
}

/// Hexadecimal digits of a key.
const KEY_DIGITS: usize = 20;

/// All inputs of a cell's figures; their hash is the cell's name. Only the measures of xdc are
/// included, so that other changes of xdc invalidate no cell.
#[derive(Serialize)]
pub struct Inputs<'a> {
    measures: &'a str,
    kernel: &'a str,
    agent: &'a str,
    emulator: Option<&'a str>,
    engine: &'a str,
    accel: Option<&'a str>,
    /// Modules that the guest may load.
    modules: BTreeMap<&'a str, &'a str>,
    /// Name in the scenario: two names may have one plan.
    cc: &'a str,
    /// Scale: a scaled network and an equally slow one have one plan.
    scale: u32,
    plan: Box<RawValue>,
    /// Unscaled plan if the plan is scaled: figures refer to that network.
    unscaled: Option<&'a Plan>,
    windows: Windows,
    sizes: SizeClasses,
}

impl<'a> Inputs<'a> {
    pub fn new(
        parts: &'a Parts,
        (cc, scale): (&'a str, u32),
        (plan, unscaled): (&Plan, Option<&'a Plan>),
        windows: Windows,
        sizes: SizeClasses,
    ) -> Result<Self> {
        let text = to_raw_value(plan).map_err(not_written)?;
        Ok(Self {
            measures: &parts.measures,
            kernel: &parts.kernel,
            agent: &parts.agent,
            emulator: parts.emulator.as_deref(),
            engine: parts.engine,
            accel: parts.accel,
            modules: parts.modules_of(plan, text.get()),
            cc,
            scale,
            plan: text,
            unscaled,
            windows,
            sizes,
        })
    }

    /// Name of the cell.
    pub fn key(&self) -> Result<String> {
        let mut key = sha256(&serde_json::to_vec(self).map_err(not_written)?);
        key.truncate(KEY_DIGITS);
        Ok(key)
    }
}

fn not_written(err: serde_json::Error) -> Error {
    Error::failure(format!("cannot write a cell or its plan: {err}"))
}

/// Cells of one command.
pub struct Cells {
    dir: PathBuf,
    again: Option<Again>,
    /// Keys for which the command has already decided about a new run.
    begun: Mutex<BTreeSet<String>>,
}

impl Cells {
    /// Opens the cache; without one, a folder below `out`.
    pub fn open(out: &Path, again: Option<Again>) -> Result<Self> {
        let cached = home::cache().map(|cache| cache.join("cells"));
        match cached.filter(|dir| fs::create_dir_all(dir).is_ok()) {
            Some(dir) => {
                owned::remove_old(&dir, "", UNUSED);
                Self::open_in(dir, again)
            }
            None => Self::open_in(out.join("cells"), again),
        }
    }

    /// Opens a folder that several machines may share.
    pub fn open_in(dir: PathBuf, again: Option<Again>) -> Result<Self> {
        home::make_out(&dir)?;
        owned::reap_files(&dir);
        Ok(Self { dir, again, begun: Mutex::default() })
    }

    fn path(&self, key: &str, what: &str) -> PathBuf {
        self.dir.join(format!("{key}.{what}"))
    }

    /// Removes a cell to be computed again, once per command.
    pub fn begin(&self, key: &str) -> Result<()> {
        let first = (self.begun.lock()).is_ok_and(|mut begun| begun.insert(key.to_owned()));
        let again = first
            && match self.again {
                None => false,
                Some(Again::All) => true,
                Some(Again::Suspect) => self.load(key).is_some_and(|it| it.is_suspect()),
            };
        let path = self.path(key, "json");
        if again && path.exists() {
            fs::remove_file(&path).map_err(|err| Error::io(path.display(), &err))?;
        }
        Ok(())
    }

    /// Loads a cell; None if it is missing or damaged, so that it is computed.
    pub fn load(&self, key: &str) -> Option<Outcome> {
        let read = |what| {
            let mut file = beside::of_result(&self.dir, &format!("{key}.{what}")).ok()?;
            // Fails for another user's file, which then keeps its age.
            let _ = file.set_modified(SystemTime::now());
            let mut content = Vec::new();
            file.read_to_end(&mut content).ok().map(|_| content)
        };
        let stored: Stored = serde_json::from_slice(&read("json")?).ok()?;
        let whole = stored.key == key
            && stored.sha256 == sha256(stored.outcome.get().as_bytes())
            && stored.flows_sha256 == sha256(&read("flows.csv")?);
        let outcome = whole.then_some(stored.outcome)?;
        serde_json::from_str(outcome.get()).ok()
    }

    /// Writes the cell with `flows_csv` beside it. Returns the cell as later commands read it.
    pub fn save(&self, key: &str, outcome: &Outcome, flows_csv: &[u8]) -> Result<Outcome> {
        let outcome = to_raw_value(outcome).map_err(not_written)?;
        let read_back = serde_json::from_str(outcome.get()).map_err(not_written)?;
        let stored = Stored {
            key: key.to_owned(),
            sha256: sha256(outcome.get().as_bytes()),
            flows_sha256: sha256(flows_csv),
            outcome,
        };
        let json = serde_json::to_string(&stored).map_err(not_written)?;
        // The cell is written last: its presence proves that both files are whole.
        for (what, text) in [("flows.csv", flows_csv), ("json", json.as_bytes())] {
            let path = self.path(key, what);
            owned::replace(&path, text).map_err(|err| Error::io(path.display(), &err))?;
        }
        Ok(read_back)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sweep::lab::tests::parts;
    use xdc_result::testing::recorded;
    use xdc_scenario::plan::plan;
    use xdc_scenario::testing::SMALL;

    fn cells(dir: &Path, again: Option<Again>) -> Cells {
        Cells::open_in(dir.to_path_buf(), again).unwrap()
    }

    fn outcome() -> Outcome {
        let by = ("uml", 1);
        let mut outcome = Outcome::of(&recorded(), &Windows::every_us(1000), by, BTreeMap::new());
        outcome.run.drops = 3;
        // Printing and parsing must both be exact.
        outcome.run.jain_mean = Some(0.912_345_678_901_234_5);
        outcome
    }

    #[test]
    fn a_damaged_cell_is_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let cells = cells(dir.path(), None);
        assert!(cells.load("key").is_none());
        let saved = cells.save("key", &outcome(), b"cc,flow\n").unwrap();
        assert_eq!(cells.load("key").unwrap().run, outcome().run);
        assert_eq!(saved.run, outcome().run);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let good = fs::read_to_string(cells.path("key", "json")).unwrap();
        for damaged in [
            String::new(),
            "{\"cc\":".to_owned(),
            good.replace("\"drops\":3", "\"drops\":4"),
            good.replace("\"key\":\"key\"", "\"key\":\"other\""),
            good[..good.len() / 2].to_owned(),
        ] {
            assert_ne!(damaged, good);
            fs::write(cells.path("key", "json"), &damaged).unwrap();
            assert!(cells.load("key").is_none(), "{damaged}");
        }
        fs::write(cells.path("key", "json"), &good).unwrap();
        assert!(cells.load("key").is_some());
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(cells.path("key", "json"), &elsewhere).unwrap();
        symlink(&elsewhere, cells.path("key", "json")).unwrap();
        assert!(cells.load("key").is_none());
        fs::rename(&elsewhere, cells.path("key", "json")).unwrap();
        assert!(cells.load("key").is_some());
        fs::write(cells.path("key", "flows.csv"), "").unwrap();
        assert!(cells.load("key").is_none());
    }

    #[test]
    fn a_cell_is_recomputed_once_per_command() {
        for (again, is_suspect, is_left) in [
            (None, true, true),
            (Some(Again::Suspect), false, true),
            (Some(Again::Suspect), true, false),
            (Some(Again::All), false, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let cells = cells(dir.path(), again);
            let mut outcome = outcome();
            outcome.run.suspect.extend(is_suspect.then(|| "late".to_owned()));
            cells.save("key", &outcome, b"").unwrap();
            cells.begin("key").unwrap();
            assert_eq!(cells.load("key").is_some(), is_left, "{again:?} {is_suspect}");
            cells.save("key", &outcome, b"").unwrap();
            cells.begin("key").unwrap();
            assert!(cells.load("key").is_some());
        }
    }

    #[test]
    fn a_used_cell_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cells = cells(dir.path(), None);
        for key in ["read", "unread"] {
            cells.save(key, &outcome(), b"").unwrap();
            for what in ["json", "flows.csv"] {
                let file = File::open(cells.path(key, what)).unwrap();
                file.set_modified(SystemTime::now() - 2 * UNUSED).unwrap();
            }
        }
        cells.load("read").unwrap();
        owned::remove_old(dir.path(), "", UNUSED);
        assert!(cells.load("read").is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    /// Name of a cell of a scenario with these overrides.
    fn key(parts: &Parts, (cc, scale): (&str, u32), sets: &[&str]) -> String {
        inputs(parts, (cc, scale), sets, |inputs| inputs.key().unwrap())
    }

    fn inputs<T>(
        parts: &Parts,
        of: (&str, u32),
        sets: &[&str],
        read: impl Fn(&Inputs<'_>) -> T,
    ) -> T {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let scenario = xdc_scenario::parse("small", SMALL, &sets).unwrap().scenario;
        let plan = plan(&scenario, "unocc", 1, 1).unwrap();
        let plans = (&plan, None);
        let inputs = Inputs::new(parts, of, plans, scenario.windows(), scenario.sizes());
        read(&inputs.unwrap())
    }

    /// The complete list of inputs; the hash of xdc's binary is not among them.
    #[test]
    fn a_key_hashes_these_inputs() {
        let json =
            inputs(&parts(), ("unocc", 1), &[], |inputs| serde_json::to_value(inputs).unwrap());
        let names: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            names.join(" "),
            "accel agent cc emulator engine kernel measures modules plan scale sizes unscaled windows"
        );
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(!json.to_string().contains(&sha256(&own)));
        assert_eq!(json["measures"], xdc_measure::CODE);
        let modules = json["modules"].as_object().unwrap().keys().cloned();
        assert_eq!(modules.collect::<Vec<_>>(), ["fabric", "sch_phantom", "shared", "tcp_unocc"]);
    }

    #[test]
    fn a_key_changes_only_with_inputs_of_figures() {
        let other = || "other".to_owned();
        type Change<'a> = (&'a str, bool, &'a dyn Fn(&mut Parts));
        let module = |name: &'static str| {
            move |parts: &mut Parts| {
                parts.modules.get_mut(name).unwrap().sha256 = "other".to_owned();
            }
        };
        let changes: [Change<'_>; 11] = [
            ("nothing", false, &|_| {}),
            ("measures", true, &|parts| parts.measures = other()),
            ("kernel", true, &|parts| parts.kernel = other()),
            ("agent", true, &|parts| parts.agent = other()),
            ("emulator", true, &|parts| parts.emulator = Some(other())),
            ("engine", true, &|parts| parts.engine = "qemu"),
            ("accel", true, &|parts| parts.accel = Some("kvm")),
            ("its congestion control", true, &module("tcp_unocc")),
            ("its qdisc", true, &module("sch_phantom")),
            ("a module that these need", true, &module("shared")),
            ("another module", false, &module("tcp_gemini")),
        ];
        let plain = key(&parts(), ("unocc", 1), &[]);
        for (what, changes, change) in changes {
            let mut parts = parts();
            change(&mut parts);
            assert_eq!(key(&parts, ("unocc", 1), &[]) != plain, changes, "{what}");
        }
        for (set, changes) in [
            ("title=another", false),
            ("description=another", false),
            ("expect.0.max=7", false),
            ("jain_window=5ms", true),
            ("phases=[\"1ms\"]", true),
            ("warmup=1ms", true),
            ("small_below=200kb", true),
            ("large_above=2mb", true),
            ("flows.0.bytes=2mb", true),
        ] {
            let key = key(&parts(), ("unocc", 1), &[set]);
            assert_eq!(key != plain, changes, "{set}");
        }
        // Two names or scales with one plan.
        for of in [("unocc-paper", 1), ("unocc", 2)] {
            assert_ne!(key(&parts(), of, &[]), plain);
        }
    }

    #[test]
    fn a_scenario_with_commands_depends_on_all_modules() {
        let sets = ["host.a1.setup=[\"modprobe x\"]"];
        let modules = |sets: &[&str]| inputs(&parts(), ("unocc", 1), sets, |it| it.modules.len());
        assert_eq!(modules(&sets), parts().modules.len());
        // A module may be named by an alias.
        assert_eq!(modules(&["host.a1.modules=[\"alias\"]"]), parts().modules.len());
        let named = modules(&["host.a1.modules=[\"tcp-gemini\"]"]);
        assert_eq!(named, modules(&[]) + 1);
        let cc = modules(&["host.a1.sysctl.\"net.ipv4.tcp_congestion_control\"=gemini"]);
        assert_eq!(cc, modules(&[]) + 1);
    }
}
