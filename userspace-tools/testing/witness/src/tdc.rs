// SPDX-License-Identifier: GPL-2.0
//! Runs cases in the format of the kernel's tools/testing/selftests/tc-testing, of which the
//! guest could not run tdc.py.
//!
//! A case passes if `cmdUnderTest` ends with `expExitCode` and `matchPattern` is found
//! `matchCount` times in what `verifyCmd` prints. `setup` must succeed; `teardown` runs in any
//! case. Commands go through the shell, with these variables: IP, TC, XDC (xdc), RAW
//! (xdc-witness raw), DUMMY (a device that setup may make).

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};
use regex::RegexBuilder;
use serde::Deserialize;
use xdc_ktap::Ktap;

/// One case. What is not here, such as the id of a plugin, is for tdc.py.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    id: String,
    name: String,
    #[serde(default)]
    setup: Vec<Step>,
    cmd_under_test: String,
    exp_exit_code: String,
    verify_cmd: String,
    match_pattern: String,
    match_count: String,
    #[serde(default)]
    teardown: Vec<Step>,
}

/// A command, or one with the exit codes that it may have.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Step {
    Command(String),
    WithCodes(Vec<serde_json::Value>),
}

/// How a command ended, and what it wrote.
struct Outcome {
    code: Option<i32>,
    output: String,
}

const DUMMY: &str = "dummy1";
const VARIABLES: &[(&str, &str)] = &[
    ("IP", "ip"),
    ("TC", "tc"),
    ("XDC", "xdc"),
    ("RAW", "xdc-witness raw"),
    ("DUMMY", DUMMY),
];

/// The cases of these files.
pub fn run(files: &[String], ktap: &mut Ktap) -> Result<()> {
    ensure!(!files.is_empty(), "no file of cases is named");
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        let cases: Vec<Case> =
            serde_json::from_str(&text).with_context(|| format!("{file} is not as tdc has it"))?;
        for case in &cases {
            ktap.case(&format!("{} {}", case.id, case.name), case.run());
        }
    }
    Ok(())
}

impl Case {
    fn run(&self) -> Result<()> {
        let outcome = self.set_up_and_test();
        let torn_down = self.teardown.iter().try_for_each(Step::run);
        outcome.and(torn_down)
    }

    fn set_up_and_test(&self) -> Result<()> {
        self.setup.iter().try_for_each(Step::run)?;
        let tested = shell(&self.cmd_under_test)?;
        let expected = self.exp_exit_code.parse().ok();
        ensure!(
            tested.code == expected,
            "'{}' ended with {:?}, not {}: {}",
            self.cmd_under_test,
            tested.code,
            self.exp_exit_code,
            tested.output
        );
        let shown = shell(&self.verify_cmd)?.output;
        let pattern = RegexBuilder::new(&self.match_pattern)
            .multi_line(true)
            .build()?;
        let found = pattern.find_iter(&shown).count();
        ensure!(
            found == self.match_count.parse::<usize>()?,
            "/{}/ is found {found} times, not {}, in: {shown}",
            self.match_pattern,
            self.match_count
        );
        Ok(())
    }
}

impl Step {
    fn run(&self) -> Result<()> {
        let (command, codes) = match self {
            Step::Command(command) => (command.as_str(), vec![0]),
            Step::WithCodes(parts) => {
                let (command, codes) = parts.split_first().context("an empty step")?;
                (
                    command.as_str().context("a step without a command")?,
                    codes.iter().filter_map(serde_json::Value::as_i64).collect(),
                )
            }
        };
        let outcome = shell(command)?;
        ensure!(
            outcome
                .code
                .is_some_and(|code| codes.contains(&code.into())),
            "'{command}' ended with {:?}: {}",
            outcome.code,
            outcome.output
        );
        Ok(())
    }
}

/// Both outputs, one after the other.
fn shell(command: &str) -> Result<Outcome> {
    let output = Command::new("sh")
        .args(["-c", command])
        .envs(VARIABLES.iter().copied())
        .output()
        .context("cannot run sh")?;
    Ok(Outcome {
        code: output.status.code(),
        output: [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A qdisc and its cases.
    struct Tested {
        kind: &'static str,
        cases: &'static str,
        yaml: &'static str,
        /// How many options there are.
        options: usize,
        /// An option of the yaml file, and tc's word for it where that is another.
        words: &'static [(&'static str, &'static str)],
    }

    const TESTED: [Tested; 2] = [
        Tested {
            kind: "phantom",
            cases: include_str!("../../../../selftests/guest/tdc/phantom.json"),
            yaml: include_str!("../../../../modules/uapi/phantom.yaml"),
            options: xdc_netlink::phantom::IDS.len(),
            words: &[
                ("rate64", "rate"),
                ("line-rate64", "line-rate"),
                ("pq-limit", "phantom"),
                ("pq-drain-ppm", "drain"),
                ("pq-min-ppm", "pmin"),
                ("pq-max-ppm", "pmax"),
                ("backlog-min-ppm", "min"),
                ("backlog-max-ppm", "max"),
                ("mark-at", "at"),
                ("color-limit-red", "red-limit"),
                ("color-limit-yellow", "yellow-limit"),
                ("color-source", "color"),
                ("color-dscp-red", "dscp-color"),
                ("color-dscp-yellow", "dscp-color"),
                ("pool-alpha-ppm", "pool-alpha"),
            ],
        },
        Tested {
            kind: "acceltor",
            cases: include_str!("../../../../selftests/guest/tdc/acceltor.json"),
            yaml: include_str!("../../../../modules/uapi/acceltor.yaml"),
            options: xdc_netlink::acceltor::IDS.len(),
            words: &[
                ("circuit-rate64", "ocs-rate"),
                ("packet-rate64", "eps-rate"),
                ("queues", "k"),
                ("high-limit", "hp"),
                ("low-limit", "lp"),
                ("prefixes", "prefix"),
            ],
        },
    ];

    impl Tested {
        fn cases(&self) -> Vec<Case> {
            serde_json::from_str(self.cases).expect("as tdc has it")
        }

        /// The options in the yaml file, but for padding.
        fn options(&self) -> BTreeSet<&'static str> {
            let begin = format!("name: {}-attrs", self.kind);
            let set = self.yaml.split_once(&begin).expect("there").1;
            let set = set.split_once("\nsub-messages:").expect("there").0;
            let names = set.lines().filter_map(|l| l.trim().strip_prefix("name: "));
            names.filter(|name| *name != "pad").collect()
        }

        /// tc's word of an option.
        fn word(&self, option: &'static str) -> &'static str {
            let other = self.words.iter().find(|(name, _)| *name == option);
            other.map_or(option, |(_, word)| word)
        }

        /// Options that a command gives a value, by their names in the yaml file.
        fn named(&self, command: &str) -> BTreeSet<String> {
            let Some((_, words)) = command.split_once(&format!(" {} ", self.kind)) else {
                return BTreeSet::new();
            };
            let words = words.split_whitespace();
            if command.starts_with("$RAW") {
                let names = words.filter_map(|word| word.split_once('='));
                return names.map(|(name, _)| name.to_string()).collect();
            }
            let words: BTreeSet<_> = words.collect();
            let options = self.options().into_iter();
            options
                .filter(|option| words.contains(self.word(option)))
                .map(str::to_string)
                .collect()
        }

        fn has_a_case_taken_and_one_refused(&self, option: &'static str) {
            let word = self.word(option);
            let cases = self.cases();
            let is_about = |case: &&Case| self.named(&case.cmd_under_test).contains(option);
            // Whose name begins with the option, so that it is not there by the way.
            let own: Vec<&Case> = cases
                .iter()
                .filter(|case| case.name.split(':').next() == Some(word))
                .filter(is_about)
                .collect();
            let taken = own.iter().filter(|case| case.exp_exit_code == "0");
            let refused = own.iter().filter(|case| {
                case.exp_exit_code == "2" && case.match_pattern.starts_with("^Error: ")
            });
            assert!(taken.count() > 0, "no case in which '{option}' is taken");
            assert!(
                refused.count() > 0,
                "no case in which '{option}' is refused with its text"
            );
        }
    }

    #[test]
    fn every_option_has_a_case_that_is_taken_and_one_that_is_refused() {
        for tested in &TESTED {
            let options = tested.options();
            assert_eq!(options.len(), tested.options, "{}", tested.kind);
            for option in options {
                tested.has_a_case_taken_and_one_refused(option);
            }
        }
    }

    #[test]
    fn ids_and_names_are_unique_and_patterns_compile() {
        let mut ids = BTreeSet::new();
        for tested in &TESTED {
            let cases = tested.cases();
            let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
            assert_eq!(names.len(), cases.len());
            for case in &cases {
                RegexBuilder::new(&case.match_pattern)
                    .build()
                    .expect("a pattern");
                assert!(ids.insert(case.id.clone()), "{} is there twice", case.id);
            }
        }
    }

    #[test]
    fn a_case_that_does_not_hold_fails() {
        let case = |exp_exit_code: &str, match_pattern: &str| Case {
            id: "0".into(),
            name: "x".into(),
            setup: vec![Step::WithCodes(vec!["exit 3".into(), 0.into(), 3.into()])],
            cmd_under_test: "test -n \"$DUMMY\"".into(),
            exp_exit_code: exp_exit_code.into(),
            verify_cmd: "echo a; echo b".into(),
            match_pattern: match_pattern.into(),
            match_count: "1".into(),
            teardown: vec![Step::Command("true".into())],
        };
        case("0", "^b$").run().expect("holds");
        assert!(case("1", "^b$").run().is_err());
        assert!(case("0", "^[ab]$").run().is_err());
        let mut untidy = case("0", "^b$");
        untidy.teardown = vec![Step::Command("false".into())];
        assert!(untidy.run().is_err());
    }
}
