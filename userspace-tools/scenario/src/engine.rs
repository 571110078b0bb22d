// SPDX-License-Identifier: GPL-2.0
//! Names of engines in scenarios and on the command line.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};

use crate::Scenario;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, ValueEnum)]
#[schemars(rename = "Engine")]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An x86_64 machine in real time, emulated if KVM does not work.
    Qemu,
    /// User Mode Linux: virtual time, so the guest is a discrete-event simulator.
    Uml,
    /// The running kernel: network namespaces, real time, root only.
    Host,
}

impl Kind {
    /// Returns the engine whose kernel is built: this one, or the other one with a note.
    pub fn built(self, home: &Home) -> Self {
        let (own, kind, other) = match self {
            Self::Qemu => (Flavour::X86, Self::Uml, Flavour::Uml),
            Self::Uml => (Flavour::Uml, Self::Qemu, Flavour::X86),
            Self::Host => return self,
        };
        if home.kernel(own).is_ok() || home.kernel(other).is_err() {
            return self;
        }
        eprintln!(
            "xdc: the engine is {}, because the kernel of {} is not built",
            kind.name(),
            self.name()
        );
        kind
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Uml => "uml",
            Self::Host => "host",
        }
    }
}

impl Scenario {
    /// Engine of the command line, or the scenario's. Only the command line may select `host`,
    /// which needs root.
    pub fn engine_or(&self, asked: Option<Kind>) -> Result<Kind> {
        match (asked, self.engine) {
            (None, Kind::Host) => Err(Error::usage(
                "a scenario file cannot select the engine host, which runs as root in this kernel",
            )
            .hint("--engine host, or --engine uml")),
            (asked, own) => Ok(asked.unwrap_or(own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, testing::SMALL};

    #[test]
    fn the_engine_is_the_one_that_is_built() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::for_tests(dir.path());
        assert_eq!(Kind::Qemu.built(&home), Kind::Qemu);
        std::fs::create_dir_all(dir.path().join("build/uml/kernel")).unwrap();
        assert_eq!(Kind::Qemu.built(&home), Kind::Uml);
        assert_eq!(Kind::Host.built(&home), Kind::Host);
        std::fs::create_dir_all(dir.path().join("build/x86/kernel")).unwrap();
        assert_eq!(Kind::Qemu.built(&home), Kind::Qemu);
    }

    #[test]
    fn a_scenario_file_cannot_select_the_host_engine() {
        let sets = ["engine=\"host\"".to_owned()];
        let scenario = parse("small", SMALL, &sets).unwrap().scenario;
        assert!(scenario.engine_or(None).is_err());
        for asked in [Kind::Host, Kind::Uml] {
            assert_eq!(scenario.engine_or(Some(asked)).ok(), Some(asked));
        }
    }
}
