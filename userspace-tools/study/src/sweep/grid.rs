// SPDX-License-Identifier: GPL-2.0
//! Grids: a scenario over values of its parameters, congestion controls and seeds.

use serde::Deserialize;
use toml::Value;
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::interrupt;
use xdc_metric::metric::Metric;
use xdc_scenario::Loaded;
use xdc_scenario::engine::Kind;
use xdc_scenario::limits::{MAX_CELLS, MAX_GRID_BYTES, group_name};

/// A grid as in a file or on the command line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// A name that `xdc list` shows, or a TOML file.
    pub scenario: String,
    /// Empty: the scenario's.
    #[serde(default)]
    pub ccs: Vec<String>,
    /// Empty: the scenario's.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Overrides for every cell, as in `xdc run --set`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Dimensions; the last one varies fastest.
    #[serde(default)]
    pub axis: Vec<Axis>,
}

/// One dimension of a grid.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name in tables and plots, with its unit.
    pub name: String,
    /// Dotted key that plain values set, as in `--set KEY=VALUE`.
    pub key: Option<String>,
    pub values: Vec<AxisValue>,
}

/// A value of the key, or a label with overrides.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum AxisValue {
    Named { label: String, set: Vec<String> },
    Plain(Value),
}

impl AxisValue {
    fn label(&self) -> String {
        match self {
            Self::Named { label, .. } => label.clone(),
            Self::Plain(Value::String(text)) => text.clone(),
            Self::Plain(other) => other.to_string(),
        }
    }
}

impl Axis {
    /// Parses `KEY=VALUE,VALUE...` of `--axis`; the axis is named after the key's last part.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::usage(format!("--axis {text}: no list of values"));
        let (key, values) = text
            .split_once('=')
            .filter(|(key, values)| !key.is_empty() && !values.is_empty())
            .ok_or_else(|| wrong().hint("--axis queues.port.limit=250kB,500kB,1MB"))?;
        let name = match key.strip_suffix('"') {
            Some(quoted) => quoted.rsplit('"').next(),
            None => key.rsplit('.').next(),
        };
        Ok(Self {
            name: name.unwrap_or(key).to_owned(),
            key: Some(key.to_owned()),
            values: values
                .split(',')
                .map(|value| AxisValue::Plain(Value::String(value.to_owned())))
                .collect(),
        })
    }

    pub fn labels(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(AxisValue::label)
    }

    /// Keeps only the values with these labels.
    pub fn retain(&mut self, labels: &[String]) {
        self.values.retain(|value| labels.contains(&value.label()));
    }

    /// Label and overrides of each value.
    fn values(&self) -> Result<Vec<(String, Vec<String>)>> {
        if self.values.is_empty() {
            return Err(Error::usage(format!("the axis '{}' has no value", self.name)));
        }
        self.values
            .iter()
            .map(|value| match (value, &self.key) {
                (AxisValue::Named { label, set }, _) => Ok((label.clone(), set.clone())),
                (AxisValue::Plain(_), Some(key)) => {
                    let label = value.label();
                    let set = format!("{key}={label}");
                    Ok((label, vec![set]))
                }
                (AxisValue::Plain(_), None) => Err(Error::usage(format!(
                    "the axis '{}' has plain values, but no 'key'",
                    self.name
                ))
                .hint("key = \"queues.port.limit\"")),
            })
            .collect()
    }
}

/// A grid in which every name is known.
#[derive(Debug)]
pub struct Expanded {
    /// Names of the axes.
    pub axes: Vec<String>,
    pub points: Vec<Point>,
    /// Sorted by point, then congestion control, then seed.
    pub cells: Vec<Cell>,
}

impl Expanded {
    /// Checks that some point has the metric: an axis may change the flows.
    pub fn check_metric(&self, metric: &Metric) -> Result<()> {
        let points = self.points.iter();
        let checked = points.map(|point| point.loaded.scenario.check_metric(metric));
        checked.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Engine of all cells: `wanted`, or the one that all scenarios state.
    pub fn engine(&self, wanted: Option<Kind>) -> Result<Kind> {
        let engines = self.points.iter().map(|point| point.loaded.scenario.engine_or(wanted));
        let engines: Vec<_> = engines.collect::<Result<_>>()?;
        let mut kinds = engines.into_iter();
        let first = kinds.next().unwrap_or(Kind::Uml);
        match (wanted, kinds.find(|kind| *kind != first)) {
            (Some(wanted), _) => Ok(wanted),
            (None, None) => Ok(first),
            (None, Some(other)) => Err(Error::usage(format!(
                "the grid mixes the engines {} and {}",
                first.name(),
                other.name()
            ))
            .hint("one grid per engine and xdc compare, or --engine uml")),
        }
    }
}

/// One value of every axis.
#[derive(Debug)]
pub struct Point {
    /// One label per axis.
    pub labels: Vec<String>,
    pub loaded: Loaded,
}

/// A run of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Index in [`Expanded::points`].
    pub point: usize,
    pub cc: String,
    pub seed: u64,
}

impl Grid {
    /// A grid of one point.
    pub fn of(scenario: &str) -> Self {
        Self {
            scenario: scenario.to_owned(),
            ccs: Vec::new(),
            seeds: Vec::new(),
            set: Vec::new(),
            axis: Vec::new(),
        }
    }

    /// Returns whether the text is a grid: only grids name a scenario.
    pub fn is_one(text: &str) -> bool {
        toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("scenario"))
    }

    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|err| xdc_scenario::malformed(text, &err))
    }

    /// Expands the grid; all errors are found here, before a guest runs.
    pub fn expand(&self, home: &Home) -> Result<Expanded> {
        let mut choices: Vec<(Vec<String>, Vec<String>)> = vec![(Vec::new(), self.set.clone())];
        for axis in &self.axis {
            let values = axis.values()?;
            group_name(&axis.name)?;
            for (label, _) in values.iter().filter(|it| it.0.parse::<f64>().is_err()) {
                group_name(label).map_err(|err| err.about(format!("axis '{}'", axis.name)))?;
            }
            if choices.len().saturating_mul(values.len()) > MAX_CELLS {
                return Err(too_many());
            }
            interrupt::check()?;
            // Each choice is combined with each value of this axis.
            let own = values
                .iter()
                .map(|(label, sets)| label.len() + TEXT_BYTES + text_bytes(sets))
                .fold(0, usize::saturating_add);
            let before = choices
                .iter()
                .map(|(labels, sets)| text_bytes(labels) + text_bytes(sets))
                .fold(0, usize::saturating_add);
            let all = own
                .saturating_mul(choices.len())
                .saturating_add(before.saturating_mul(values.len()));
            if all > MAX_GRID_BYTES {
                return Err(too_large());
            }
            choices = choices
                .iter()
                .flat_map(|(labels, sets)| {
                    values.iter().map(|(label, set)| {
                        let labels = labels.iter().chain([label]).cloned().collect();
                        let sets = sets.iter().chain(set).cloned().collect();
                        (labels, sets)
                    })
                })
                .collect();
        }
        let mut grid = Expanded {
            axes: self.axis.iter().map(|axis| axis.name.clone()).collect(),
            points: Vec::new(),
            cells: Vec::new(),
        };
        let points = choices.len();
        for (labels, sets) in choices {
            interrupt::check()?;
            let loaded = xdc_scenario::load(Some(home), &self.scenario, &sets)?;
            // All points share one file, so they take similar memory.
            if loaded.memory_bytes.saturating_mul(points) > MAX_GRID_BYTES {
                return Err(too_large());
            }
            let ccs = match self.ccs.is_empty() {
                true => &loaded.scenario.ccs,
                false => &self.ccs,
            };
            let own = [loaded.scenario.seed];
            let seeds = match self.seeds.is_empty() {
                true => &own[..],
                false => &self.seeds,
            };
            for cc in ccs {
                loaded.scenario.known_cc(cc)?;
                for &seed in seeds {
                    xdc_scenario::check_seed(seed)?;
                    if grid.cells.len() == MAX_CELLS {
                        return Err(too_many());
                    }
                    grid.cells.push(Cell { point: grid.points.len(), cc: cc.clone(), seed });
                }
            }
            grid.points.push(Point { labels, loaded });
        }
        if grid.cells.is_empty() {
            return Err(Error::usage("the grid is empty").hint("--cc unocc,cubic"));
        }
        Ok(grid)
    }
}

/// Memory of a text besides its characters, in bytes.
const TEXT_BYTES: usize = 48;

fn text_bytes(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + TEXT_BYTES).sum()
}

fn too_large() -> Error {
    Error::usage(format!(
        "the scenarios of all points of the grid exceed {} MB",
        MAX_GRID_BYTES >> 20
    ))
    .hint("several grids, or a smaller scenario")
}

fn too_many() -> Error {
    Error::usage(format!("a grid has at most {MAX_CELLS} cells"))
        .hint("several grids, or fewer seeds")
}

/// Parses `1-5,9`.
pub fn parse_seeds(text: &str) -> Result<Vec<u64>> {
    let wrong = || Error::usage(format!("--seeds {text}: no list of numbers"));
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u64>().ok();
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to && to - from < MAX_CELLS as u64 => {
                seeds.extend(from..=to);
                if seeds.len() > MAX_CELLS {
                    return Err(too_many());
                }
            }
            _ => return Err(wrong().hint("--seeds 1-5,9")),
        }
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_the_name_of_its_key() {
        let axis = Axis::parse("queues.port.limit=1mb,2mb").unwrap();
        assert_eq!(axis.name, "limit");
        assert_eq!(axis.values().unwrap()[1].1, ["queues.port.limit=2mb"]);
        let axis = Axis::parse("cc.gemini.sysctl.\"net.gemini.k_bytes\"=1,2").unwrap();
        assert_eq!(axis.name, "net.gemini.k_bytes");
        for wrong in ["", "a", "a=", "=1"] {
            assert!(Axis::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_plain_or_named() {
        let grid = Grid::parse(
            "scenario = \"x\"\n[[axis]]\nname = \"K, packets\"\nkey = \"k\"\nvalues = [20, \"a\"]\n\
             [[axis]]\nname = \"mix\"\nvalues = [{ label = \"8+0\", set = [\"a=1\", \"b=2\"] }]\n",
        )
        .unwrap();
        let labels = |axis: &Axis| axis.values().unwrap();
        assert_eq!(labels(&grid.axis[0])[0], ("20".into(), vec!["k=20".into()]));
        assert_eq!(labels(&grid.axis[1])[0].1, ["a=1", "b=2"]);
        let keyless = Axis { key: None, ..grid.axis[0].clone() };
        assert!(keyless.values().is_err());
        let error = Grid::parse("scenario = 1\nseeds = 5\n").unwrap_err();
        assert!(error.lines()[0].contains("line 1"), "{error:?}");
    }

    /// The points' scenarios together would exhaust memory.
    #[test]
    fn a_grid_with_too_much_text_is_refused() {
        let home = xdc_base::testing::home();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.toml");
        let small = std::fs::read_to_string(home.scenarios().join("links.toml")).unwrap();
        let long = format!("# {}\n{small}", "x".repeat(1_000_000));
        std::fs::write(&path, long).unwrap();
        let mut grid = Grid::of(path.to_str().unwrap());
        let values: Vec<_> = (0..600).map(|n| format!("{n}ms")).collect();
        let axis = format!("flows.0.start={}", values.join(","));
        grid.axis = vec![Axis::parse(&axis).unwrap()];
        let said = grid.expand(&home).unwrap_err().to_string();
        assert!(said.contains("of all points"), "{said}");
        let long = AxisValue::Named { label: "x".to_owned(), set: vec!["x".repeat(1 << 20)] };
        grid.axis[0].values = vec![long; 1000];
        let said = grid.expand(&home).unwrap_err().to_string();
        assert!(said.contains("of all points"), "{said}");
    }

    /// Each point reads the files by itself.
    #[test]
    fn files_beside_a_scenario_count_for_each_point() {
        let home = xdc_base::testing::home();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.toml");
        let small = std::fs::read_to_string(home.scenarios().join("links.toml")).unwrap();
        let values: Vec<_> = (1..=200).map(|n| format!("{n}ms")).collect();
        let axis = Axis::parse(&format!("flows.0.start={}", values.join(","))).unwrap();
        let long = "x".repeat(1_000_000);
        for (file, text, uses) in [
            ("mine.o", long.clone(), "[cc.mine]\nkernel = \"bpf_mine\"\nbpf = \"mine.o\"\n"),
            (
                "mine.txt",
                format!("0 0\n1 100 #{long}"),
                "[[traffic]]\nkind = \"incast\"\nhosts = [\"near\"]\nto = \"r\"\nsizes = \"mine\"\n",
            ),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
            std::fs::write(&path, format!("{small}\n{uses}")).unwrap();
            let mut grid = Grid::of(path.to_str().unwrap());
            grid.axis.push(axis.clone());
            let said = grid.expand(&home).unwrap_err().to_string();
            assert!(said.contains("of all points"), "{file}: {said}");
        }
    }

    #[test]
    fn a_grid_for_two_engines_is_refused() {
        let home = xdc_base::testing::home();
        let mut grid = Grid::of("links");
        let kind = |grid: &Grid, wanted| grid.expand(&home).unwrap().engine(wanted);
        assert_eq!(kind(&grid, None).unwrap(), Kind::Uml);
        grid.axis = vec![Axis::parse("engine=uml,qemu").unwrap()];
        let said = kind(&grid, None).unwrap_err().to_string();
        assert!(said.contains("mixes the engines uml and qemu"), "{said}");
        assert_eq!(kind(&grid, Some(Kind::Qemu)).unwrap(), Kind::Qemu);
    }

    #[test]
    fn seeds_are_ranges_and_numbers() {
        assert_eq!(parse_seeds("1-3,9").unwrap(), [1, 2, 3, 9]);
        for wrong in ["", "a", "3-1", "1-", "1-99999999999"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
    }
}
