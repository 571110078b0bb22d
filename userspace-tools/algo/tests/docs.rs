// SPDX-License-Identifier: GPL-2.0
//! Compares the parameter tables and lists of deviations in docs/ with the code. `UPDATE_DOCS=1 cargo test -p
//! xdc-algo --test docs` rewrites them.

use std::{env, fs, path::PathBuf};

use xdc_algo::{
    ALGORITHMS, MODULES, entry::Entry, entry::Value, gemini, params::ParamInfo, tlt, unocc,
    unorc::Count,
};

fn parameters(algorithm: &Entry) -> String {
    let profiles: Vec<_> = match algorithm.has_profiles() {
        true => algorithm.profiles().collect(),
        false => vec!["default"],
    };
    table(&profiles, algorithm.params)
}

fn table(profiles: &[&str], params: &[ParamInfo]) -> String {
    let mut out = format!(
        "| name | unit | range | {} | meaning |\n",
        profiles.join(" | ")
    );
    out += &format!("|---|---|---|{}---|\n", "---:|".repeat(profiles.len()));
    for param in params {
        let defaults: Vec<_> = param.defaults.iter().map(u32::to_string).collect();
        let defaults = defaults.join(" | ");
        out += &format!(
            "| `{}` | {} | {} to {} | {} | {} |\n",
            param.name(),
            param.unit,
            param.min,
            param.max,
            defaults,
            param.help.trim(),
        );
    }
    out
}

/// Table of the state that `xdc ss` shows of a socket.
fn state(algorithm: &Entry) -> String {
    let mut out = "| `xdc ss` | `--json` | |\n|---|---|---|\n".to_owned();
    if algorithm.has_profiles() {
        out += "| `profile` | `profile`, `profile_modified` | the profile with most parameters of the \
                namespace; `*` = some parameters differ |\n";
    }
    for state in algorithm.state {
        let is_flag = matches!((state.value)(&Default::default()), Some(Value::Flag(_)));
        let label = match (state.label, is_flag) {
            ("", _) => String::new(),
            (label, true) => format!("`[{label}]`"),
            (label, false) => format!("`{label}`"),
        };
        let unit = match state.unit {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        out += &format!("| {label} | `{}` | {}{unit} |\n", state.key, state.help);
    }
    out + "| `[slow start]` | `slow_start` | the window is below ssthresh |\n\
           | | `ce_state` | as a receiver: the last packet carried CE |\n"
}

/// Table of all modules in modules/oot/list.rs.
fn all_of_them() -> String {
    let mut out = "| module | kind | |\n|---|---|---|\n".to_owned();
    for module in MODULES {
        let place = match module.is_installed() {
            true => "installed by `make install`",
            false => "only in guests",
        };
        out += &format!("| {} | {:?} | {place} |\n", module.name, module.kind);
    }
    for algorithm in ALGORITHMS {
        let name = algorithm.name();
        let marks = format!("{:?}", algorithm.marks).to_lowercase();
        out += &format!(
            "\n## {name}\n\nMarked by {marks} queues, unless a scenario says otherwise.\n\n"
        );
        out += &format!("Sysctls, `net.{name}.*`");
        if algorithm.has_profiles() {
            let profile = algorithm.profiles().next().unwrap();
            out += &format!("; a new namespace has profile {profile}");
        }
        out += &format!(":\n\n{}", parameters(algorithm));
        out += &format!("\nState of a socket:\n\n{}", state(algorithm));
        if !algorithm.events.is_empty() {
            out += "\n| tracepoint | fires |\n|---|---|\n";
        }
        for event in algorithm.events {
            out += &format!("| `xdc:{}` | {} |\n", event.name, event.help);
        }
    }
    out
}

#[test]
fn algorithms_page_matches_the_list() {
    holds("algorithms.md", "all", &all_of_them());
}

/// modules/include/uapi/linux/xdc_diag.h defines the numbers of this project's algorithms; other authors define
/// their own.
#[test]
fn numbers_match_the_header() {
    let path = repository().join("modules/include/uapi/linux/xdc_diag.h");
    let header = fs::read_to_string(path).unwrap();
    for algorithm in ALGORITHMS {
        let macro_name = format!("XDC_DIAG_{}", algorithm.name().to_uppercase());
        let mut lines = header.lines().map(|line| line.split_whitespace());
        let value = lines
            .find_map(|mut words| (words.nth(1) == Some(&macro_name)).then(|| words.next())?);
        match value {
            Some(value) => assert_eq!(value, algorithm.number.to_string()),
            None => assert!(
                algorithm.number >= xdc_algo::entry::OWN_NUMBERS
                    || algorithm.number == gemini::ENTRY.number,
                "{macro_name}"
            ),
        }
    }
}

/// The C header that Kbuild finds has a tracepoint for each event, with the fields that the charts use.
#[test]
fn every_event_is_in_the_header_of_its_module() {
    for module in MODULES {
        let events = module
            .algorithm
            .map_or(&[][..], |algorithm| algorithm.events);
        if events.is_empty() {
            continue;
        }
        let name = format!("{}.h", module.name.trim_start_matches("tcp_"));
        let beside = repository().join("modules/oot").join(module.sources[0]);
        let places = [
            beside.with_file_name(format!("trace_{name}")),
            repository()
                .join("modules/include/trace/events")
                .join(&name),
        ];
        let header = places.iter().find_map(|path| fs::read_to_string(path).ok());
        let header = header.unwrap_or_else(|| panic!("no {name}"));
        for event in events {
            let begin = format!("TRACE_EVENT({},", event.name);
            let (_, body) = header
                .split_once(&begin)
                .unwrap_or_else(|| panic!("{name}: {begin}"));
            let body = body.split("TRACE_EVENT(").next().unwrap();
            for line in event.lines {
                let field = format!(", {})", line.field);
                assert!(
                    body.contains(&field),
                    "{name}: {} has no {}",
                    event.name,
                    line.field
                );
            }
        }
    }
}

/// Returns the numbered list in the module header of a file in modules/.
fn numbered(file: &str) -> String {
    let path = repository().join("modules").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let mut items: Vec<String> = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("//!")) {
        let Some(line) = line.strip_prefix("//!") else {
            break;
        };
        let next = format!(" {}. ", items.len() + 1);
        if let Some(first) = line.strip_prefix(&next) {
            items.push(first.to_owned());
        } else if let (Some(more), Some(item)) = (line.strip_prefix("    "), items.last_mut()) {
            *item += " ";
            *item += more.trim();
        }
    }
    assert!(!items.is_empty(), "{file} has no numbered list");
    (1..)
        .zip(items)
        .map(|(n, item)| format!("{n}. {item}\n"))
        .collect()
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a section of a docs/ page with `wanted`, or rewrites it if UPDATE_DOCS is set.
fn holds(page: &str, section: &str, wanted: &str) {
    let begin = format!("<!-- {section}: begin -->\n");
    let end = format!("<!-- {section}: end -->");
    let path = repository().join("docs").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (shown, after) = rest.split_once(&end)?;
        Some((before, shown, after))
    });
    let (before, shown, after) = parts.expect("the page marks its sections");
    if env::var_os("UPDATE_DOCS").is_some() {
        // Written at once: the next section of the page reads the file anew.
        fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
    } else {
        assert_eq!(
            shown, wanted,
            "docs/{page} differs from the code: set UPDATE_DOCS=1"
        );
    }
}

#[test]
fn unocc_page_matches_the_code() {
    holds("unocc.md", "parameters", &parameters(&unocc::ENTRY));
    holds("unocc.md", "algorithm", &numbered("algo/unocc.rs"));
    holds("unocc.md", "module", &numbered("net/ipv4/tcp_unocc.rs"));
    holds("unocc.md", "tcp", &numbered("net/ipv4/tcp_glue.rs"));
}

#[test]
fn gemini_page_matches_the_code() {
    holds("gemini.md", "parameters", &parameters(&gemini::ENTRY));
    holds("gemini.md", "algorithm", &numbered("algo/gemini.rs"));
    holds("gemini.md", "module", &numbered("net/ipv4/tcp_gemini.rs"));
}

#[test]
fn acceltor_page_matches_the_code() {
    holds(
        "acceltor.md",
        "decisions",
        &numbered("net/sched/sch_acceltor.rs"),
    );
}

#[test]
fn tlt_page_matches_the_code() {
    holds("tlt.md", "parameters", &table(&["default"], tlt::PARAMS));
    holds("tlt.md", "deviations", &numbered("net/tlt/tlt.rs"));
}

#[test]
fn unorc_page_matches_the_code() {
    let names = Count::NAMES.iter().map(|name| name.to_str().unwrap());
    let counters: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    holds("unorc.md", "counters", &(counters.join(", ") + ".\n"));
    holds(
        "unorc.md",
        "deviations",
        &numbered("drivers/net/unorc/unorc.rs"),
    );
}
