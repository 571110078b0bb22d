// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness json`: a JSON parser for guest tests in shell.

use std::{io, process::ExitCode};

use serde_json::Value;

/// Prints the value at each pointer, after reading the whole document.
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
                eprintln!("xdc-witness json: no value at {pointer}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
