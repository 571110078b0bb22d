// SPDX-License-Identifier: GPL-2.0

use std::io::Write;

use super::*;

#[test]
fn only_complete_lines_are_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let mut tail = Tail::new(&path).unwrap();
    let mut writer = File::options().append(true).open(&path).unwrap();
    writer.write_all(b"one\ntw").unwrap();
    assert_eq!(tail.lines().unwrap(), ["one"]);
    writer.write_all(b"o\nthree").unwrap();
    assert_eq!(tail.lines().unwrap(), ["two"]);
    assert_eq!(tail.bytes, 13);
    assert_eq!(tail.unfinished(), "three");
}

#[test]
fn a_line_without_a_newline_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let mut tail = Tail::new(&path).unwrap();
    let writer = File::options().append(true).open(&path).unwrap();
    // A hole reads as zeroes.
    writer.set_len(MAX_LINE_BYTES as u64 + 2 * READ_BYTES as u64).unwrap();
    let said = loop {
        match tail.lines() {
            Ok(lines) => assert!(lines.is_empty()),
            Err(err) => break err.to_string(),
        }
    };
    assert!(said.contains("without a newline"), "{said}");
    assert!(tail.partial.len() <= MAX_LINE_BYTES + READ_BYTES);
}

#[test]
fn output_of_an_earlier_guest_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("console");
    fs::write(&path, "WARNING: old_run\n").unwrap();
    assert!(Tail::new(&path).is_err());
}
