// SPDX-License-Identifier: GPL-2.0
//! Adding an algorithm takes its file, its module's, its tracepoint header, and a line in modules/oot/list.rs.
//! Any other product file that names the example is one more that a user would have to edit.

use std::{fs, path::Path, path::PathBuf};

/// Example algorithm of docs/writing.md.
const NAME: &str = "aimd";

const LIST: &str = "modules/oot/list.rs";

/// Paths of the product. docs/ and selftests/ are left out because they show and test the example; adding an
/// algorithm changes only the page generated from the list.
const PRODUCT: [&str; 7] = [
    "Kbuild",
    "Makefile",
    "examples",
    "modules",
    "qemu-images",
    "scenarios",
    "userspace-tools",
];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects text files at or below `path`, except build output and hidden files.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    let name = path.file_name().unwrap().to_string_lossy();
    if name.starts_with('.') || name == "target" {
        return;
    }
    if path.is_file() {
        found.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).unwrap() {
        files(&entry.unwrap().path(), found);
    }
}

#[test]
fn an_algorithm_takes_three_files_and_a_line() {
    let top = repository().canonicalize().unwrap();
    let mut all = Vec::new();
    for part in PRODUCT {
        files(&top.join(part), &mut all);
    }
    let own = Path::new(file!()).file_name().unwrap();
    let naming = |path: &PathBuf| {
        let text = fs::read(path).unwrap();
        let text = String::from_utf8_lossy(&text);
        let of_it = path.to_string_lossy().contains(NAME) || text.contains(NAME);
        of_it && path.file_name() != Some(own)
    };
    let mut naming: Vec<_> = all.into_iter().filter(naming).collect();
    let list = top.join(LIST);
    assert!(naming.contains(&list), "{LIST} does not name {NAME}");
    naming.retain(|path| *path != list);
    assert!(
        naming.len() == 3
            && naming
                .iter()
                .all(|path| path.starts_with(top.join("examples"))),
        "{NAME} takes more than three files and a line: {naming:#?}"
    );
    let text = fs::read_to_string(&list).unwrap();
    let lines = text.lines().filter(|line| line.contains(NAME));
    assert_eq!(lines.count(), 1, "{LIST} names {NAME} in one line");
}
