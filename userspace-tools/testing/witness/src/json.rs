// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness json`: for tests in a guest, whose shell cannot tell JSON from what resembles it.

use std::{io, process::ExitCode};

use serde_json::Value;

/// Prints the value at each pointer; all of it is read first.
pub fn command(pointers: &[String]) -> ExitCode {
    let document: Value = match serde_json::from_reader(io::stdin()) {
        Ok(document) => document,
        Err(error) => {
            eprintln!("xdc-witness json: {error}");
            return ExitCode::FAILURE;
        }
    };
    for pointer in pointers {
        match document.pointer(pointer) {
            Some(value) => println!("{value}"),
            None => {
                eprintln!("xdc-witness json: nothing is at {pointer}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
