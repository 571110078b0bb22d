// SPDX-License-Identifier: GPL-2.0
//! The parameter tables in docs/ are the ones in the code. `UPDATE_DOCS=1 cargo test -p xdc-algo
//! --test docs` writes them.

use std::{env, fs, path::PathBuf};

use xdc_algo::{gemini, params::ParamInfo, unocc};

const BEGIN: &str = "<!-- parameters: begin -->\n";
const END: &str = "<!-- parameters: end -->";

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

fn holds(page: &str, table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page marks its table");
    let (shown, after) = rest.split_once(END).expect("the page marks its table");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(
            shown, table,
            "docs/{page} is not what the code says: UPDATE_DOCS=1"
        );
    }
}

#[test]
fn unocc_page_has_the_parameters_of_the_code() {
    let profiles = unocc::Profile::NAMES.map(|name| name.to_str().unwrap().to_string());
    holds("unocc.md", &table(&profiles, unocc::PARAMS));
}

#[test]
fn gemini_page_has_the_parameters_of_the_code() {
    holds(
        "gemini.md",
        &table(&["default".to_string()], gemini::PARAMS),
    );
}
