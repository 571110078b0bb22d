// SPDX-License-Identifier: GPL-2.0
//! Loads the plugin into this machine's tc and into programs with another interface. selftests/guest/62-tc.sh
//! tests its netlink messages and printed output.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// Path of the plugin, which Cargo builds beside this test.
fn plugin() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().unwrap().join("libq_phantom.so");
    assert!(built.exists(), "{} is missing", built.display());
    built
}

/// Standard error of a program, which must exit without a signal.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some(), "{} {text}", output.status);
    text
}

/// Runs `tc qdisc add phantom WORDS`, which names no device and therefore changes nothing.
fn tc(words: &[&str]) -> String {
    let dir = TempDir::new().unwrap();
    symlink(plugin(), dir.path().join("q_phantom.so")).unwrap();
    let output = Command::new("tc")
        .env("TC_LIB_DIR", dir.path())
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["qdisc", "add", "phantom"])
        .args(words)
        .output()
        .expect("tc, of the package iproute2");
    assert!(!output.status.success());
    said(&output)
}

#[test]
fn this_machines_tc_prints_help() {
    let help = tc(&["help"]);
    assert!(help.starts_with("Usage: ... phantom "), "{help}");
    assert!(help.contains("\n  limit SIZE "), "{help}");
    // `help` also works after other options, but not in place of a value.
    assert_eq!(tc(&["limit", "1mb", "help"]), help);
    assert!(!tc(&["pool", "help"]).contains("Usage: ... phantom"));
}

#[test]
fn this_machines_tc_reports_each_mistake() {
    for (words, sentence) in [
        (&["limit", "big"][..], "Error: argument \"big\" is wrong: limit: 'big' is not a size"),
        (&["rate", "10"], "Error: argument \"10\" is wrong: rate: '10' is not a rate"),
        (&["drain", "1.5"], "is not a fraction from 0 to 1"),
        (&["mark", "maybe"], "`maybe` is not one of none, phantom, physical, either, both"),
        (&["red-dscp", "64"], "'64' is not a DSCP from 0 to 63"),
        (&["limit"], "Command line is not complete: \"limit\" has no value."),
        (&["speed", "1"], "What is \"speed\"?\nUsage: ... phantom "),
    ] {
        let said = tc(words);
        assert!(said.contains(sentence), "{words:?}: {said}");
    }
}

#[test]
fn another_layout_of_tc_is_refused() {
    let dir = TempDir::new().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/other_tc.c");
    for (layout, why) in [
        (0, "(pfifo_qdisc_util has 9 words, not 8)"),
        (1, "word 3 of pfifo_qdisc_util has another use"),
        (2, "tc has no pfifo_qdisc_util"),
    ] {
        let program = dir.path().join("tc");
        let compiled = Command::new("cc")
            .args(["-rdynamic", "-o"])
            .arg(&program)
            .arg(format!("-DLAYOUT={layout}"))
            .arg(&source)
            .arg("-ldl")
            .status()
            .expect("cc");
        assert!(compiled.success());
        let output = Command::new(&program).arg(plugin()).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        // One message, however many functions are called.
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("q_phantom.so: unknown version of tc"));
        assert!(said.contains(why), "{said}");
        fs::remove_file(program).unwrap();
    }
}
