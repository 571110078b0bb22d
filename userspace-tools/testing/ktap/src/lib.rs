// SPDX-License-Identifier: GPL-2.0
//! KTAP output of the guest's test programs: one line per case on stdout, as selftests/guest/lib.sh prints
//! it.

use std::process::ExitCode;

use anyhow::Result;

/// Case counts of one program.
#[derive(Debug, Default)]
pub struct Ktap {
    cases: u32,
    failed: u32,
}

impl Ktap {
    /// Prints the header.
    pub fn new() -> Self {
        println!("KTAP version 1");
        Self::default()
    }

    /// Prints the result of one case, with the error if it failed.
    pub fn case(&mut self, name: &str, outcome: Result<()>) {
        self.cases += 1;
        match outcome {
            Ok(()) => println!("ok {} {name}", self.cases),
            Err(error) => {
                self.failed += 1;
                println!("not ok {} {name}", self.cases);
                for line in format!("{error:#}").lines() {
                    println!("# {line}");
                }
            }
        }
    }

    /// Prints diagnostic lines.
    pub fn note(&self, text: &str) {
        for line in text.lines() {
            println!("# {line}");
        }
    }

    /// Prints the plan. Fails if a case failed or none ran.
    pub fn finish(self) -> ExitCode {
        println!("1..{}", self.cases);
        ExitCode::from(u8::from(self.failed > 0 || self.cases == 0))
    }
}
