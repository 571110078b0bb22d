// SPDX-License-Identifier: GPL-2.0
//! Headers and YNL specifications of the qdiscs, written from their lists of options and statistics:
//! `UPDATE_DOCS=1 cargo test -p xdc-netlink`.

use saphyr::Yaml;

use crate::words::{Word, sentence};

/// A qdisc's options and statistics.
struct Described<O: 'static> {
    kind: &'static str,
    ids: &'static [(&'static str, u16)],
    types: &'static [&'static str],
    words: &'static [Word<O>],
    fields: (&'static [&'static str], &'static [&'static str]),
    enums: &'static [(&'static str, &'static [&'static str])],
}

/// Compares the lines of a file of modules/ between two lines with `wanted`, or writes them.
fn holds(file: &str, begin: &str, end: &str, wanted: &str) {
    let path = format!("{}/../../modules/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("a file of the repository");
    let (before, rest) = text.split_once(begin).expect(begin);
    let (found, after) = rest.split_once(end).expect(end);
    if found != wanted && std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{wanted}{end}{after}")).expect("a file");
    } else {
        assert_eq!(found, wanted, "{file} is out of date: UPDATE_DOCS=1");
    }
}

/// Aligns the comment of a declaration at column 40.
fn declared(declaration: &str, meaning: &str) -> String {
    let tabs = 4_usize.saturating_sub(declaration.len() / 8).max(1);
    format!("\t{declaration}{}/* {meaning} */\n", "\t".repeat(tabs))
}

impl<O> Described<O> {
    /// Options by id: name in the header, type and word.
    fn options(&self) -> Vec<(&'static str, &'static str, &'static Word<O>)> {
        let mut options: Vec<_> = self
            .ids
            .iter()
            .zip(self.types)
            .zip(self.words)
            .map(|((id, t), w)| (id, *t, w))
            .collect();
        options.sort_by_key(|(id, ..)| id.1);
        for (expected, (id, ..)) in (2..).zip(&options) {
            assert_eq!(id.1, expected, "{}", id.0);
        }
        options.into_iter().map(|(id, ynl_type, word)| (id.0, ynl_type, word)).collect()
    }

    /// Unit or meaning of a number.
    fn unit(&self, attribute: &str, word: &Word<O>) -> String {
        match word.form {
            "on|off" => "bool".to_owned(),
            "DSCP,..." => "bitmap, bit n = DSCP n".to_owned(),
            form if form.ends_with('|') => {
                format!("enum {}", attribute.to_lowercase().replacen("tca", "tc", 1))
            }
            _ => word.bounds.map_or("", |it| it.0.unit).replace("bytes per second", "bytes/s"),
        }
    }

    fn header(&self) {
        let file = format!("include/uapi/linux/pkt_{}.h", self.kind);
        let upper = self.kind.to_uppercase();
        let lines = self.options().into_iter().map(|(name, ynl_type, word)| {
            let unit = self.unit(name, word);
            let space = if unit.is_empty() { "" } else { " " };
            let comment = format!("{ynl_type}{space}{unit}: {}", sentence(word.help));
            declared(&format!("{name},"), &comment)
        });
        let begin = format!("\tTCA_{upper}_PAD,\t\t/* in answers only */\n");
        holds(&file, &begin, &format!("\t__TCA_{upper}_MAX\n"), &lines.collect::<String>());
        let fields = self.fields.0.iter().zip(self.fields.1);
        let fields = fields.map(|(name, help)| declared(&format!("__u64 {name};"), sentence(help)));
        let begin = format!("struct tc_{}_xstats {{\n", self.kind);
        holds(&file, &begin, "};\n", &fields.collect::<String>());
        let text = std::fs::read_to_string(format!("../../modules/{file}")).expect("a header");
        for (name, names) in self.enums {
            let declaration = format!("enum tc_{}_{name} {{", self.kind);
            let body =
                text.split_once(&declaration).expect(name).1.split_once("};").expect("closed");
            let members = body.0.lines().filter_map(|line| line.trim().split(',').next());
            let prefix = format!("TC_{upper}_{}_", name.to_uppercase());
            let members = members.filter_map(|it| it.strip_prefix(&prefix));
            assert!(members.eq(names.iter().map(|name| name.to_uppercase())), "{declaration}");
        }
    }

    fn specification(&self) {
        let file = format!("Documentation/netlink/specs/{}.yaml", self.kind);
        let prefix = format!("TCA_{}_", self.kind.to_uppercase());
        let kebab = |name: &str| name.to_lowercase().replace('_', "-");
        let mut attributes = String::new();
        for (id, ynl_type, word) in self.options() {
            let name = kebab(id.strip_prefix(&prefix).expect("the prefix"));
            attributes += &format!("      -\n        name: {name}\n        type: {ynl_type}\n");
            let choices = word.form.matches('|').count();
            let is_switch = word.form == "on|off";
            if ynl_type == "nest" {
                attributes += &format!("        nested-attributes: {}-{name}-attrs\n", self.kind);
            } else if choices > 0 && !is_switch {
                let of = if ynl_type == "u8" { format!("{}-", self.kind) } else { String::new() };
                attributes += &format!("        enum: {of}{name}\n");
            }
            let mut checks = String::new();
            if let Some((bounds, _)) = word.bounds {
                // The schema has no negative number.
                if bounds.min > 0 {
                    checks += &format!("          min: {}\n", bounds.min);
                }
                if ynl_type != "u32" || bounds.max < u32::MAX.into() {
                    checks += &format!("          max: {}\n", bounds.max);
                }
            } else if ynl_type == "u8" {
                checks = format!("          max: {}\n", if is_switch { 1 } else { choices - 1 });
            } else if ynl_type == "string" {
                checks = "          max-len: 15\n".to_owned();
            }
            if !checks.is_empty() {
                attributes += &format!("        checks:\n{checks}");
            }
            let unit = self.unit(id, word);
            let colon = if unit.is_empty() { "" } else { ": " };
            let doc = sentence(word.help);
            attributes += &format!("        doc: >-\n          {unit}{colon}{doc}\n");
        }
        let begin = format!(
            "    name: {0}-attrs\n    name-prefix: tca-{0}-\n    attributes:\n      -\n        name: pad\n        type: pad\n",
            self.kind
        );
        let end = if self.kind == "acceltor" {
            "  -\n    name: acceltor-prefixes"
        } else {
            "\nsub-messages"
        };
        holds(&file, &begin, end, &attributes);
        let fields = self.fields.0.iter().zip(self.fields.1);
        let members = fields.map(|(name, help)| {
            let (name, help) = (kebab(name), sentence(help));
            format!("      -\n        name: {name}\n        type: u64\n        doc: >-\n          {help}\n")
        });
        let header = format!("    header: pkt_{}.h\n    members:\n", self.kind);
        holds(&file, &header, "\nattribute-sets", &members.collect::<String>());
        let path = format!("../../modules/{file}");
        let text = std::fs::read_to_string(path).expect("a specification");
        for (name, names) in self.enums {
            let entries = format!(
                "    name: {}-{}\n    type: enum\n    entries: [{}]\n",
                self.kind,
                name.replace('_', "-"),
                names.join(", ")
            );
            assert!(text.contains(&entries), "{file}: {entries}");
        }
    }

    /// Each word is in the synopsis of the manual page, and once in the list.
    fn synopsis(&self, page: &str) {
        let synopsis = page.split(".SH ").find(|it| it.starts_with("SYNOPSIS"));
        let synopsis = synopsis.expect("in the page");
        for word in self.words {
            let optional = format!(".RB \"[ \" {}", word.name);
            let must_be_given = format!(".BI {} ", word.name);
            let is_of_it = |line: &str| line == optional || line.starts_with(&must_be_given);
            assert!(synopsis.lines().any(is_of_it), "{}", word.name);
            let same = self.words.iter().filter(|other| other.name == word.name);
            assert_eq!(same.count(), 1, "{}", word.name);
        }
    }
}

macro_rules! described {
    ($qdisc:ident, $page:literal, $($choice:ident $name:literal),*) => {
        #[test]
        fn $qdisc() {
            use crate::$qdisc::*;
            let described = Described {
                kind: KIND,
                ids: IDS,
                types: YNL_TYPES,
                words: WORDS,
                fields: (Xstats::FIELDS, Xstats::HELP),
                enums: &[$(($name, $choice::NAMES)),*],
            };
            described.header();
            described.specification();
            described.synopsis(include_str!($page));
        }
    };
}
described!(
    phantom, "../../../docs/man/tc-phantom.8",
    Mark "mark", MarkAt "mark_at", ColorSource "color_source", Gso "gso"
);
described!(
    acceltor, "../../../docs/man/tc-acceltor.8",
    Overflow "overflow", Policy "policy", Detect "detect"
);

/// Returns the members of the enum or struct that `declaration` opens.
pub(crate) fn members_of<'a>(header: &'a str, declaration: &str) -> Vec<&'a str> {
    let body = header.split_once(declaration).expect("in the header").1;
    let body = body.split_once("};").expect("closed").0;
    body.lines()
        .map(|line| line.trim().trim_start_matches("__u64 "))
        .filter_map(|line| line.split([',', ';']).next())
        .filter(|word| !word.is_empty() && !word.contains([' ', '*', '/']))
        .collect()
}

/// Returns the list `key` of the member called `name` of `list`.
pub(crate) fn of<'a>(list: &'a Yaml<'a>, name: &str, key: &str) -> Vec<&'a Yaml<'a>> {
    let mut members = list.as_sequence().expect("a list").iter();
    let member = members.find(|member| text(member, "name") == Some(name));
    let found = &member.unwrap_or_else(|| panic!("no {name}"))[key];
    found.as_sequence().expect("a list").iter().collect()
}

pub(crate) fn text<'a>(member: &'a Yaml<'a>, key: &str) -> Option<&'a str> {
    member.as_mapping_get(key)?.as_str()
}
