// SPDX-License-Identifier: GPL-2.0
//! Checks that the running tc has the known `struct qdisc_util`, which is, since iproute2 5.9:
//!
//! | word | |
//! |---:|---|
//! | 0 | next |
//! | 1 | id, the kind's name |
//! | 2 | parse_qopt(util, argc, argv, nlmsghdr, dev) |
//! | 3 | print_qopt(util, FILE, rtattr) |
//! | 4 | print_xstats(util, FILE, rtattr) |
//! | 5 | parse_copt |
//! | 6 | print_copt |
//! | 7 | has_block |
//!
//! tc does not tell a plugin its version, and a patched tc may have any layout. But tc exports
//! its own tables for plugins. So the check compares their sizes, their names and their used
//! fields. The kinds below use different fields, which distinguishes each field from its
//! neighbors.

/// Number of words in the struct.
pub const WORDS: usize = 8;

/// Kind, function and word of a known entry: `print_qopt` of `prio`.
pub const PRINTER: (&str, &str, usize) = ("prio", "prio_print_opt", 3);

/// Kinds, and the words from 2 on that they use.
const USED: &[(&str, &[usize])] = &[
    ("pfifo", &[2, 3]),
    (PRINTER.0, &[2, 3]),
    ("fq_codel", &[2, 3, 4]),
    ("htb", &[2, 3, 4, 5, 6]),
    ("red", &[2, 3, 4, 7]),
];

/// A table of tc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// String behind the second word.
    pub id: String,
    /// All words.
    pub words: Vec<usize>,
}

/// Access to the running program.
pub trait Program {
    /// Returns the program's table of a kind, or why it cannot be read.
    fn table(&self, kind: &str) -> Result<Table, String>;
    /// Returns the address of a function.
    fn function(&self, name: &str) -> Option<usize>;
}

/// Returns the first difference from the known layout as an error.
pub fn check(program: &impl Program) -> Result<(), String> {
    for (kind, used) in USED {
        let table = program.table(kind)?;
        if table.words.len() != WORDS {
            return Err(format!("{kind}_qdisc_util has {} words, not {WORDS}", table.words.len()));
        }
        if table.id != *kind {
            return Err(format!("the second word of {kind}_qdisc_util is not a name"));
        }
        for (at, word) in table.words.iter().enumerate().skip(2) {
            if (*word != 0) != used.contains(&at) {
                return Err(format!("word {at} of {kind}_qdisc_util has another use"));
            }
        }
    }
    let (kind, name, at) = PRINTER;
    let function = program.function(name).ok_or(format!("tc has no {name}"))?;
    if program.table(kind)?.words[at] != function {
        return Err(format!("word {at} of {kind}_qdisc_util is not {name}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const FUNCTION: usize = 0x1000;

    #[derive(Clone)]
    struct Fake(BTreeMap<&'static str, Table>);

    impl Program for Fake {
        fn table(&self, kind: &str) -> Result<Table, String> {
            self.0.get(kind).cloned().ok_or(format!("tc has no {kind}_qdisc_util"))
        }
        fn function(&self, _: &str) -> Option<usize> {
            Some(FUNCTION + 3)
        }
    }

    /// The layout of iproute2 6.1.0 and 6.15.0.
    fn tc() -> Fake {
        let table = |kind: &str, used: &[usize]| Table {
            id: kind.to_owned(),
            words: (0..WORDS)
                .map(|at| match at {
                    1 => 1,
                    at if used.contains(&at) => FUNCTION + at,
                    _ => 0,
                })
                .collect(),
        };
        Fake(USED.iter().map(|(k, used)| (*k, table(k, used))).collect())
    }

    /// Checks a layout with each table altered.
    fn altered(alter: impl Fn(&mut Table)) -> Result<(), String> {
        let mut tc = tc();
        tc.0.values_mut().for_each(alter);
        check(&tc)
    }

    #[test]
    fn the_known_layout_passes() {
        assert_eq!(check(&tc()), Ok(()));
        // tc links the kinds that it has used into a list.
        assert_eq!(altered(|table| table.words[0] = 7), Ok(()));
    }

    #[test]
    fn an_added_or_missing_field_is_refused() {
        assert!(altered(|table| table.words.push(0)).unwrap_err().contains("9 words"));
        assert!(altered(|table| table.words.truncate(7)).unwrap_err().contains("7 words"));
    }

    #[test]
    fn swapped_fields_are_refused() {
        // Parser and printer of classes (5 and 6) are indistinguishable; the plugin has no
        // classes.
        for a in 2..WORDS {
            for b in a + 1..WORDS {
                let swapped = altered(|table| table.words.swap(a, b));
                assert_eq!(swapped.is_err(), (a, b) != (5, 6), "{a} {b}");
            }
        }
    }

    #[test]
    fn an_inserted_field_is_refused() {
        for at in 0..WORDS {
            let shifted = altered(|table| {
                table.words.insert(at, 0);
                table.words.pop();
            });
            assert!(shifted.is_err(), "{at}");
        }
        assert!(altered(|table| table.id.clear()).is_err());
    }

    #[test]
    fn a_tc_without_its_tables_is_refused() {
        let mut tc = tc();
        tc.0.remove("red");
        assert_eq!(check(&tc), Err("tc has no red_qdisc_util".to_owned()));
    }
}
