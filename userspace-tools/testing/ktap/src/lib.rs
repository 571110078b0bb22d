// SPDX-License-Identifier: GPL-2.0
//! KTAP for the guest's test programs: one line a case on stdout, as selftests/guest/lib.sh prints it.

use std::process::ExitCode;

use anyhow::Result;

/// The cases of one program.
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

    /// One case: it passes if `outcome` is Ok, and says why not otherwise.
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

    /// Something for the reader.
    pub fn note(&self, text: &str) {
        for line in text.lines() {
            println!("# {line}");
        }
    }

    /// Prints the plan. The program failed if a case failed, or if there was none.
    pub fn finish(self) -> ExitCode {
        println!("1..{}", self.cases);
        ExitCode::from(u8::from(self.failed > 0 || self.cases == 0))
    }
}
