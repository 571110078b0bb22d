// SPDX-License-Identifier: GPL-2.0
//! Generated parts of pages, between two comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::owned;

/// Replaces the text between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
pub fn update(page: &Path, name: &str, part: &str) -> Result<()> {
    let failed = |err| Error::io(page.display(), &err);
    let text = fs::read_to_string(page).map_err(failed)?;
    let (before, _, after) = split(&text, name)
        .ok_or_else(|| Error::failure(format!("{} has no marks of '{name}'", page.display())))?;
    let new = format!("{before}{part}{after}");
    if split(&new, name).is_none_or(|(_, shown, _)| shown != part) {
        let sentence = format!("the new part of {} contains its end mark", page.display());
        return Err(Error::failure(sentence)
            .hint(format!("a result without the text '<!-- {name}: end -->'")));
    }
    owned::replace(page, new).map_err(failed)
}

/// Replaces the table there, except rows that the new table lacks. The first `keys` columns name a
/// row.
pub fn update_rows(page: &Path, name: &str, table: &str, keys: usize) -> Result<()> {
    let text = fs::read_to_string(page).map_err(|err| Error::io(page.display(), &err))?;
    let there = split(&text, name).map_or("", |(_, part, _)| part);
    update(page, name, &rows(table, there, keys))
}

fn rows(table: &str, there: &str, keys: usize) -> String {
    // The first two lines are the header.
    let all = [there, table].into_iter().flat_map(|it| it.lines().skip(2));
    let key = |row: &str| row.split('|').skip(1).take(keys).map(str::to_owned).collect();
    let rows: BTreeMap<Vec<_>, _> = all.map(|row| (key(row), row)).collect();
    table.lines().take(2).chain(rows.into_values()).flat_map(|line| [line, "\n"]).collect()
}

/// Splits a page into the text before, in and after the part, without the comments.
pub fn split<'a>(page: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let begin = format!("<!-- {name}: begin -->\n");
    let end = format!("<!-- {name}: end -->");
    let from = page.find(&begin)? + begin.len();
    let to = from + page[from..].find(&end)?;
    Some((&page[..from], &page[from..to], &page[to..]))
}

/// Sections of a part, each between its own marks: new ones, or else the page's current ones.
pub fn sections(new: impl IntoIterator<Item = (String, Option<String>)>, page: &str) -> String {
    let mut part = String::from("\n");
    for (mark, section) in new {
        let kept = || split(page, &mark).map(|(_, section, _)| section.to_owned());
        let Some(section) = section.or_else(kept) else {
            continue;
        };
        // Writing to a String cannot fail.
        let _ = write!(part, "<!-- {mark}: begin -->\n{section}<!-- {mark}: end -->\n\n");
    }
    part
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_page_is_split_at_its_marks() {
        let page = "a\n<!-- t: begin -->\nb\n<!-- t: end -->\nc\n";
        let (before, part, after) = split(page, "t").unwrap();
        assert_eq!(part, "b\n");
        assert_eq!(format!("{before}{part}{after}"), page);
        assert_eq!(split(page, "u"), None);
    }

    #[test]
    fn a_page_is_replaced_whole_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (page, link) = (dir.path().join("page.md"), dir.path().join("link.md"));
        let text = "a\n<!-- t: begin -->\nb\n<!-- t: end -->\nc\n";
        fs::write(&page, text).unwrap();
        fs::set_permissions(&page, fs::Permissions::from_mode(0o604)).unwrap();
        std::os::unix::fs::symlink("page.md", &link).unwrap();
        let before = fs::metadata(&page).unwrap().ino();
        assert!(update(&link, "t", "B\n").is_err());
        update(&page, "t", "B\n").unwrap();
        let after = fs::metadata(&page).unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), text.replace("b\n", "B\n"));
        assert_eq!(after.mode() & 0o777, 0o604);
        assert_ne!(before, after.ino());
        // A part with an end mark inside is refused.
        let shown = fs::read_to_string(&page).unwrap();
        let err = update(&page, "t", "x<!-- t: end -->\ny\n").unwrap_err();
        assert!(err.to_string().contains("contains its end mark"), "{err}");
        assert_eq!(fs::read_to_string(&page).unwrap(), shown);
    }

    #[test]
    fn a_section_without_new_text_is_kept() {
        let page = sections([("t 1", "one\n"), ("t 10", "ten\n")].map(new), "");
        let next = [("t 1", None), ("t 10", Some("TEN\n")), ("t 2", None)];
        let next = next.map(|(mark, text)| (mark.to_owned(), text.map(str::to_owned)));
        let page = sections(next, &page);
        assert_eq!(split(&page, "t 1").unwrap().1, "one\n");
        assert_eq!(split(&page, "t 10").unwrap().1, "TEN\n");
        assert_eq!(split(&page, "t 2"), None);
    }

    #[test]
    fn a_row_without_a_replacement_is_kept() {
        let head = "| | form | wins |\n|---|---|---|\n";
        let there = format!("{head}| a | quick | 1 |\n| c | quick | 1 |\n| c | whole | 1 |\n");
        let table = format!("{head}| b | quick | 2 |\n| c | quick | 2 |\n");
        let wanted = "| a | quick | 1 |\n| b | quick | 2 |\n| c | quick | 2 |\n| c | whole | 1 |\n";
        assert_eq!(rows(&table, &there, 2), format!("{head}{wanted}"));
        assert_eq!(rows(&table, "", 2), table);
    }

    fn new((mark, text): (&str, &str)) -> (String, Option<String>) {
        (mark.to_owned(), Some(text.to_owned()))
    }
}
