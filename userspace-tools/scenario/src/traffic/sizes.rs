// SPDX-License-Identifier: GPL-2.0
//! Sizes of flows: fixed, uniform, or from a measured distribution.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use xdc_base::error::{Error, Result};
use xdc_base::text::short;
use xdc_base::text_schema;
use xdc_base::units::Size;
use xdc_netlink::deserialize_text;
use xdc_proto::rng::Rng;

use super::TrafficSpec;
use crate::budget::Budget;
use crate::limits::MOST_BYTES;
use crate::{at, beside, foreign};

/// Sizes in a scenario: `1MB`, `4kB..16kB`, or the name of a file beside the scenario or in
/// scenarios/cdf/.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    Fixed(u64),
    /// Both ends included.
    Uniform(u64, u64),
    Cdf(String),
}

impl FromStr for Sizes {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let size = |text: &str| -> std::result::Result<u64, String> {
            match text.parse::<Size>()? {
                Size(0) => Err("a flow has at least one byte".to_owned()),
                Size(bytes) => Ok(bytes),
            }
        };
        if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Ok(Self::Cdf(text.to_owned()));
        }
        match text.split_once("..") {
            None => size(text).map(Self::Fixed),
            Some((least, most)) => match (size(least)?, size(most)?) {
                (least, most) if least <= most => Ok(Self::Uniform(least, most)),
                _ => Err(format!("the end of '{text}' is below its start")),
            },
        }
    }
}

deserialize_text!(
    Sizes,
    "a size, a range or a distribution, such as 1MB, 4kB..16kB or web-search",
    i64 as visit_i64,
    u64 as visit_u64
);

text_schema!(
    Sizes,
    "Sizes",
    ["string", "integer"],
    "^([0-9].*|[a-zA-Z][a-zA-Z0-9_./-]*)$",
    "A size, such as 1MB, a range, such as 4kB..16kB, or a distribution in scenarios/cdf or in a file beside the scenario, such as web-search."
);

impl Sizes {
    pub fn draw(&self, cdfs: &BTreeMap<String, Cdf>, rng: &mut Rng) -> Result<u64> {
        Ok(match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform(least, most) => least + rng.up_to(most - least),
            Self::Cdf(name) => find(cdfs, name)?.quantile(rng.unit()).max(1.0) as u64,
        })
    }

    /// Upper bound of sizes, as far as known without the file.
    pub fn most(&self) -> u64 {
        match self {
            Self::Fixed(bytes) | Self::Uniform(_, bytes) => *bytes,
            Self::Cdf(_) => 1,
        }
    }

    pub fn mean(&self, cdfs: &BTreeMap<String, Cdf>) -> Result<f64> {
        Ok(match self {
            Self::Fixed(bytes) => *bytes as f64,
            Self::Uniform(least, most) => (*least as f64 + *most as f64) / 2.0,
            Self::Cdf(name) => find(cdfs, name)?.mean,
        })
    }
}

fn find<'a>(cdfs: &'a BTreeMap<String, Cdf>, name: &str) -> Result<&'a Cdf> {
    cdfs.get(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::usage(format!("no size distribution '{name}'")).hint(
        "a file in scenarios/cdf/ or beside the scenario, a size (1MB), or a range (4kB..16kB)",
    )
}

/// A distribution by points, linear between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Cdf {
    /// (bytes, cumulative share), both monotonic, from 0 to 1.
    points: Vec<(f64, f64)>,
    mean: f64,
    /// Text of a file beside the scenario, kept with the results.
    pub own: Option<String>,
}

const SHAPE: &str = "lines such as \"10000 15\": bytes, and the share of flows up to that size, \
                     from 0 to 100 or from 0 to 1";

impl Cdf {
    /// Reads the distributions that the traffic names: files beside the scenario, with or without
    /// `.txt`, or shipped ones.
    pub fn read_all(
        budget: &Budget,
        beside_dirs: &[PathBuf],
        shipped: &Path,
        traffic: &[TrafficSpec],
    ) -> Result<BTreeMap<String, Self>> {
        let mut cdfs = BTreeMap::new();
        for (n, spec) in traffic.iter().enumerate() {
            let keys = [
                ("sizes", &spec.sizes),
                ("intra_sizes", &spec.intra_sizes),
                ("inter_sizes", &spec.inter_sizes),
            ];
            for (key, sizes) in keys {
                if let Some(Sizes::Cdf(name)) = sizes
                    && !cdfs.contains_key(name)
                {
                    let cdf = Self::read(budget, beside_dirs, shipped, name);
                    let cdf = cdf.map_err(|err| err.at(at!["traffic", n, key]))?;
                    cdfs.insert(name.clone(), cdf);
                }
            }
        }
        Ok(cdfs)
    }

    fn read(budget: &Budget, beside_dirs: &[PathBuf], shipped: &Path, name: &str) -> Result<Self> {
        let file = format!("{name}.txt");
        let found = |dirs: &[PathBuf], name: &str| beside::find(budget, dirs, name);
        let mut own = found(beside_dirs, name)?;
        if own.is_none() {
            own = found(beside_dirs, &file)?;
        }
        let is_own = own.is_some();
        let read = match own {
            None => found(&[shipped.to_path_buf()], &file)?,
            own => own,
        };
        let (path, bytes) = read.ok_or_else(|| unknown(name))?;
        let about = |err: Error| {
            let err = foreign::instead(err, &bytes, name, foreign::Role::Sizes);
            err.about(path.display())
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| about(Error::usage("not text in UTF-8").hint(SHAPE)))?;
        let cdf = Self::parse(text).map_err(about)?;
        Ok(Self { own: is_own.then(|| text.to_owned()), ..cdf })
    }

    /// Parses lines of bytes and cumulative percent, or share; `#` begins a comment. A first line
    /// without a number is a header.
    fn parse(text: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let number = |word: &str| {
            let digits = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            let number = word.parse::<f64>().ok().filter(|_| digits);
            number.filter(|n| n.is_finite())
        };
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last = 0;
        let mut is_first = true;
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words = line.split(|c: char| c.is_whitespace() || c == ',');
            let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
            let header = is_first;
            is_first = is_first && words.is_empty();
            // A number with a sign is a mistake, no header.
            let is_number = |word: &&str| word.parse::<f64>().is_ok();
            if words.is_empty() || (header && !words.iter().any(is_number)) {
                continue;
            }
            last = n + 1;
            let wrong = |why: &str| {
                let line = short(line.trim());
                Error::usage(format!("line {last}: '{line}' {why}")).hint(SHAPE)
            };
            let point = match words[..] {
                [bytes, percent] => number(bytes).zip(number(percent)),
                _ => None,
            };
            let point = point.ok_or_else(|| wrong("is not a size and a percentage"))?;
            let risen = points.last().is_none_or(|last| last.0 <= point.0 && last.1 <= point.1);
            if !risen {
                return Err(wrong(
                    "is below the previous line: sizes and percentages must not fall",
                ));
            }
            if point.0 > MOST_BYTES.0 as f64 {
                return Err(wrong(&format!("is above {MOST_BYTES}, the largest flow")));
            }
            points.push(point);
        }
        let whole = match (points.first(), points.last()) {
            (Some((_, 0.0)), Some((_, 100.0))) => 100.0,
            (Some((_, 0.0)), Some((_, 1.0))) => 1.0,
            (None, _) | (_, None) => return Err(Error::usage("no size").hint(SHAPE)),
            (Some(first), Some(end)) => return Err(ends(*first, *end, last)),
        };
        points.iter_mut().for_each(|point| point.1 /= whole);
        let mean = points
            .windows(2)
            .map(|pair| (pair[0].0 + pair[1].0) / 2.0 * (pair[1].1 - pair[0].1))
            .sum();
        Ok(Self { points, mean, own: None })
    }

    /// Size that this share of flows does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let next = self.points.partition_point(|&(_, c)| c <= share);
        let next = next.clamp(1, self.points.len() - 1);
        let ((x0, c0), (x1, c1)) = (self.points[next - 1], self.points[next]);
        match c1 > c0 {
            true => x0 + (x1 - x0) * (share - c0) / (c1 - c0),
            false => x1,
        }
    }
}

/// Error for shares that do not begin or end as they must; `line` is the last.
fn ends(first: (f64, f64), end: (f64, f64), line: usize) -> Error {
    if first.0 == 0.0 && [1.0, 100.0].contains(&end.0) && end.1 > 100.0 {
        let err = Error::usage("the first column has the shares, and the second the sizes");
        return err.hint("the columns in the other order");
    }
    match first.1 > 0.0 {
        true => Error::usage(format!("the first share is {}, not 0", first.1))
            .hint(format!("a line before with the least size and 0: {} 0", first.0)),
        false => Error::usage(format!("line {line}: the last share is {}, not 100 or 1", end.1))
            .hint("a last line with the largest size and 100, or 1"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn published() -> BTreeMap<String, Cdf> {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/cdf");
        let names =
            ["web-search", "web-search-mice", "alibaba-wan", "alibaba-storage", "google-rpc"];
        names
            .into_iter()
            .map(|name| {
                let text = std::fs::read_to_string(format!("{dir}/{name}.txt")).unwrap();
                (name.to_owned(), Cdf::parse(&text).unwrap())
            })
            .collect()
    }

    #[test]
    fn a_size_above_the_largest_flow_is_refused() {
        let said = Cdf::parse("0 0\n1e300 100\n").map(drop).unwrap_err();
        assert!(said.lines().join(" ").contains("largest flow"));
    }

    #[test]
    fn the_published_distributions_have_their_mean_median_and_maximum() {
        let cdfs = published();
        for (name, mean, median, max) in [
            ("web-search", 1.711e6, 73e3, 30e6),
            ("web-search-mice", 123.2e3, 40e3, 1e6),
            ("alibaba-wan", 64.0e6, 50.3e6, 300e6),
            ("alibaba-storage", 40.9e3, 6.3e3, 2e6),
            ("google-rpc", 2.9e3, 257.0, 15_158_197.0),
        ] {
            let cdf = &cdfs[name];
            let near = |got: f64, want: f64| (got / want - 1.0).abs() < 0.02;
            assert!(near(cdf.mean, mean), "{name}: mean {}", cdf.mean);
            let got = cdf.quantile(0.5);
            assert!(near(got, median), "{name}: median {got}");
            assert_eq!(cdf.quantile(1.0), max, "{name}");
        }
        assert_eq!(cdfs["google-rpc"].points.len(), 843);
    }

    #[test]
    fn drawn_sizes_have_the_mean_of_the_distribution() {
        const DRAWS: usize = 200_000;
        let cdfs = published();
        for text in ["web-search", "alibaba-wan", "alibaba-storage", "4kb..16kb", "9kb"] {
            let sizes = text.parse::<Sizes>().unwrap();
            let mut rng = Rng::new(7);
            let draws = (0..DRAWS).map(|_| sizes.draw(&cdfs, &mut rng).unwrap() as f64);
            let mean = draws.sum::<f64>() / DRAWS as f64;
            let want = sizes.mean(&cdfs).unwrap();
            // Four standard errors of the widest distribution are below this.
            assert!((mean / want - 1.0).abs() < 0.03, "{text}: {mean}, not {want}");
        }
    }

    #[test]
    fn quantiles_lie_on_the_lines() {
        let cdf = Cdf::parse("0 0\n10 50 # half\n\n20 50\n30 100\n").unwrap();
        assert_eq!(cdf.quantile(0.25), 5.0);
        assert_eq!(cdf.quantile(0.75), 25.0);
        assert_eq!(cdf.mean, 15.0);
        for wrong in [
            "",
            "0 0\n",
            "0 0\n5 90",
            "0 0\n9 50\n8 100",
            "0 0 0\n1 100",
            "a b",
            "0 1\n1 100",
            "0 0\n-5 50\n9 100",
            "size +1\n0 0\n9 100",
            "0 0\n1,5 50\n9 100",
            "0 0\ninf 100",
            "0 0\n5 50%\n9 100",
        ] {
            assert!(Cdf::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn separators_headers_and_ends_of_lines_are_free() {
        let want = Cdf::parse("0 0\n10 50\n30 100\n").unwrap();
        for text in [
            "\u{feff}size,cdf\r\n0,0\r\n10,0.5\r\n30,1\r\n",
            "# of a testbed\n\nbytes\tpercent\n0\t0\n\n 10 \t 50.0 \n30\t100",
            "0 , 0\n1e1 , .5 # half\n30 , 1.0\n   \n",
        ] {
            assert_eq!(Cdf::parse(text).unwrap(), want, "{text:?}");
        }
    }

    #[test]
    fn errors_of_a_distribution_have_line_cause_and_fix() {
        for (text, words) in [
            ("0 0\n\nx 5\n9 100", "line 3: 'x 5' is not a size and a percentage"),
            ("0 0\n9 99", "line 2: the last share is 99, not 100 or 1 try: a last line"),
            ("7 0.1\n9 1", "the first share is 0.1, not 0 try: a line before"),
            ("0 0\n0.5 1000\n1 3000", "the first column has the shares"),
        ] {
            let said = Cdf::parse(text).unwrap_err().lines().join(" ");
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_distribution_may_lie_beside_the_scenario() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dctcp.v1.txt"), "0 0\n10000 0.15\n30000 1\n").unwrap();
        let read = |name: &str| {
            let dirs = [dir.path().to_owned()];
            Cdf::read(&Budget::default(), &dirs, Path::new("/nowhere"), name)
        };
        for name in ["dctcp.v1.txt", "dctcp.v1"] {
            let cdf = read(name).unwrap();
            assert_eq!(cdf.quantile(0.15), 10_000.0);
            assert!(cdf.own.is_some());
        }
        let said = read("dctcp").unwrap_err().to_string();
        assert!(said.contains("no size distribution 'dctcp'"), "{said}");
        let said = read("../x").unwrap_err().to_string();
        assert!(said.contains("not a file below the scenario's folder"), "{said}");
    }

    #[test]
    fn sizes_are_read_in_three_forms() {
        let read = |text: &str| text.parse::<Sizes>();
        assert_eq!(read("1mb"), Ok(Sizes::Fixed(1_000_000)));
        assert_eq!(read("4kb..16kb"), Ok(Sizes::Uniform(4000, 16000)));
        assert_eq!(read("web-search"), Ok(Sizes::Cdf("web-search".to_owned())));
        for wrong in ["0", "16kb..4kb", "1..2..3", "", "5x"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
