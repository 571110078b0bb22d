// SPDX-License-Identifier: GPL-2.0
//! For the tests of this crate and of the crates that use it.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::home::Home;
use crate::marked::{split, update};

/// The checkout of this crate; cargo builds tests elsewhere.
pub fn home() -> Home {
    Home::for_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// Configuration with equal cases in each run.
pub fn seeded() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Asserts that a page of docs/ has `wanted` in a section; UPDATE_DOCS=1 writes it.
pub fn holds(page: &str, section: &str, wanted: &str) {
    // Tests run in parallel, so updates need a lock.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let path = docs.join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        update(&path, section, wanted).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let (_, shown, _) = split(&text, section).expect("the page marks its sections");
    assert_eq!(shown, wanted, "docs/{page} is out of date: UPDATE_DOCS=1");
}
