// SPDX-License-Identifier: GPL-2.0
//! The parameter tables and the lists of deviations in docs/ are the ones in the code.
//! `UPDATE_DOCS=1 cargo test -p xdc-algo --test docs` writes them.

use std::{env, fs, path::PathBuf};

use xdc_algo::{gemini, params::ParamInfo, unocc};

fn table<const N: usize>(profiles: &[String], params: &[ParamInfo<N>]) -> String {
    let mut out = format!(
        "| name | unit | range | {} | meaning |\n",
        profiles.join(" | ")
    );
    out += &format!("|---|---|---|{}---|\n", "---:|".repeat(profiles.len()));
    for param in params {
        let defaults = param.defaults.map(|value| value.to_string()).join(" | ");
        out += &format!(
            "| `{}` | {} | {} to {} | {} | {} |\n",
            param.name.to_str().unwrap(),
            param.unit,
            param.min,
            param.max,
            defaults,
            param.help.trim(),
        );
    }
    out
}

/// The numbered list in the header of a file in modules/.
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

/// A page of docs/ has `wanted` between the markers of a section.
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
        // Each section is written by itself, one after the other.
        fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
    } else {
        assert_eq!(
            shown, wanted,
            "docs/{page} is not what the code says: UPDATE_DOCS=1"
        );
    }
}

#[test]
fn unocc_page_is_what_the_code_says() {
    let profiles = unocc::Profile::NAMES.map(|name| name.to_str().unwrap().to_string());
    holds("unocc.md", "parameters", &table(&profiles, unocc::PARAMS));
    holds("unocc.md", "algorithm", &numbered("algo/unocc.rs"));
    holds("unocc.md", "module", &numbered("tcp_unocc.rs"));
    holds("unocc.md", "tcp", &numbered("tcp_glue.rs"));
}

#[test]
fn gemini_page_is_what_the_code_says() {
    let table = table(&["default".to_string()], gemini::PARAMS);
    holds("gemini.md", "parameters", &table);
    holds("gemini.md", "algorithm", &numbered("algo/gemini.rs"));
    holds("gemini.md", "module", &numbered("tcp_gemini.rs"));
}

#[test]
fn phantom_page_is_what_the_code_says() {
    holds("phantom.md", "decisions", &numbered("sch_phantom.rs"));
}
