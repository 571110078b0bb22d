// SPDX-License-Identifier: GPL-2.0
//! Is what was built what the distribution built? Nothing here takes anybody's word.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::setup::kconfig::Config;

use super::Check;
use super::headers::Headers;

/// How many examples a sentence has.
const EXAMPLES: usize = 3;

/// Every header that both have is the same, byte by byte.
pub fn source(headers: &Headers, source: &Path) -> Result<Check> {
    let mut folders = vec![PathBuf::from("include")];
    let archs = fs::read_dir(headers.common.join("arch"));
    let archs = archs.into_iter().flatten().flatten();
    folders.extend(archs.map(|arch| Path::new("arch").join(arch.file_name()).join("include")));
    let mut same = 0_usize;
    let mut differ = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(headers.common.join(&folder)) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = folder.join(entry.file_name());
            let (theirs, ours) = (headers.common.join(&name), source.join(&name));
            if theirs.is_dir() {
                // What a build generates is compared after the build.
                folders.extend((!name.ends_with("generated")).then_some(name));
            } else if let Ok(text) = fs::read(&ours) {
                let packaged =
                    fs::read(&theirs).map_err(|err| Error::io(theirs.display(), &err))?;
                match text == packaged {
                    true => same += 1,
                    false => differ.push(name.display().to_string()),
                }
            }
        }
    }
    Ok(Check {
        what: "source",
        same: differ.is_empty() && same > 0,
        detail: match differ.len() {
            0 => format!("{same} headers are those of {}", headers.release),
            n => format!(
                "{n} headers are not those of {}, such as {}: it is the source of another version",
                headers.release,
                examples(&differ)
            ),
        },
    })
}

/// What the build in `out` generated, beside what the packages have.
pub fn tree(headers: &Headers, out: &Path) -> Result<Vec<Check>> {
    let mut checks = vec![configuration(headers, out)?];
    for (what, names) in [
        ("release", ["utsrelease.h", "timeconst.h"].as_slice()),
        ("offsets", &["asm-offsets.h", "bounds.h", "rq-offsets.h"]),
    ] {
        checks.push(generated(headers, out, what, names)?);
    }
    let built = built_exports(out)?;
    let theirs = packaged_symbols(&headers.symbols);
    checks.push(symbols(&built, &theirs));
    checks.push(if headers.config.is_on("MODVERSIONS") {
        versions(&built_versions(out)?, &theirs)
    } else {
        Check {
            what: "CRCs",
            same: true,
            detail: "none to compare: CONFIG_MODVERSIONS is off, the kernel goes by names"
                .to_owned(),
        }
    });
    Ok(checks)
}

fn configuration(headers: &Headers, out: &Path) -> Result<Check> {
    let path = out.join(".config");
    let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
    let differences = Config::parse(&text).differences(&headers.config);
    Ok(Check {
        what: "configuration",
        same: differences.is_empty(),
        detail: match differences.len() {
            0 => "the same".to_owned(),
            n => format!("{n} options came out otherwise: {}", examples(&differences)),
        },
    })
}

fn generated(headers: &Headers, out: &Path, what: &'static str, names: &[&str]) -> Result<Check> {
    let mut same = Vec::new();
    let mut differ = Vec::new();
    for name in names {
        let name = Path::new("include/generated").join(name);
        let Ok(theirs) = fs::read(headers.dir.join(&name)) else {
            continue;
        };
        let ours = fs::read(out.join(&name)).unwrap_or_default();
        let list = if ours == theirs {
            &mut same
        } else {
            &mut differ
        };
        list.push(name.display().to_string());
    }
    Ok(Check {
        what,
        same: differ.is_empty() && !same.is_empty(),
        detail: match (differ.is_empty(), same.is_empty()) {
            (true, false) => format!("the same: {}", same.join(", ")),
            (true, true) => "the packages have nothing to compare".to_owned(),
            (false, _) => format!("differ: {}", differ.join(", ")),
        },
    })
}

/// Symbols that the Rust crates in `out` export, by the lists that their build writes.
fn built_exports(out: &Path) -> Result<BTreeSet<String>> {
    let dir = out.join("rust");
    let entries = fs::read_dir(&dir).map_err(|err| Error::io(dir.display(), &err))?;
    let mut symbols = BTreeSet::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("exports_") && name.ends_with("_generated.h") {
            let text = fs::read_to_string(&path).map_err(|err| Error::io(path.display(), &err))?;
            symbols.extend(exports(&text).filter(|name| is_rusts(name)));
        }
    }
    Ok(symbols)
}

/// By its mangled name, in which rustc and the crate have a part, or as a wrapper for Rust's use.
fn is_rusts(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("rust_helper_")
}

fn exports(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| {
        let name = line.strip_prefix("EXPORT_SYMBOL_RUST_GPL(")?;
        Some(name.split(')').next()?.to_owned())
    })
}

/// Rust's symbols of Module.symvers, with their CRCs.
fn packaged_symbols(symvers: &str) -> BTreeMap<String, u64> {
    symvers
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let crc = fields.next()?.strip_prefix("0x")?;
            let name = fields.next()?;
            let own = is_rusts(name) && fields.next() == Some("vmlinux");
            let crc = u64::from_str_radix(crc, 16).ok()?;
            own.then(|| (name.to_owned(), crc))
        })
        .collect()
}

fn symbols(built: &BTreeSet<String>, theirs: &BTreeMap<String, u64>) -> Check {
    let missing: Vec<_> = theirs
        .keys()
        .filter(|name| !built.contains(*name))
        .cloned()
        .collect();
    let extra: Vec<_> = built
        .iter()
        .filter(|name| !theirs.contains_key(*name))
        .cloned()
        .collect();
    let same = missing.is_empty() && extra.is_empty() && !built.is_empty();
    Check {
        what: "Rust symbols",
        same,
        detail: match same {
            true => format!("all {} have the names that the kernel exports", built.len()),
            false => format!(
                "{} of the kernel's {} are not here, {} of ours not there: {}",
                missing.len(),
                theirs.len(),
                extra.len(),
                examples(&[missing, extra].concat())
            ),
        },
    }
}

/// CRCs that gendwarfksyms left in the build's .cmd files.
fn built_versions(out: &Path) -> Result<BTreeMap<String, u64>> {
    let dir = out.join("rust");
    let entries = fs::read_dir(&dir).map_err(|err| Error::io(dir.display(), &err))?;
    let mut crcs = BTreeMap::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|ext| ext == "cmd") {
            crcs.extend(symvers_of_cmd(
                &fs::read_to_string(&path).unwrap_or_default(),
            ));
        }
    }
    Ok(crcs)
}

fn symvers_of_cmd(text: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    text.lines().filter_map(|line| {
        let (name, crc) = line.strip_prefix("#SYMVER ")?.split_once(' ')?;
        let crc = u64::from_str_radix(crc.trim().strip_prefix("0x")?, 16).ok()?;
        Some((name.to_owned(), crc))
    })
}

fn versions(built: &BTreeMap<String, u64>, theirs: &BTreeMap<String, u64>) -> Check {
    let differ: Vec<_> = theirs
        .iter()
        .filter(|(name, crc)| name.starts_with("_R") && built.get(*name) != Some(crc))
        .map(|(name, _)| name.clone())
        .collect();
    Check {
        what: "CRCs",
        same: differ.is_empty() && !built.is_empty(),
        detail: match differ.len() {
            0 => format!("those of {} Rust symbols are the same", built.len()),
            n => format!("{n} symbols have another: {}", examples(&differ)),
        },
    }
}

fn examples(names: &[String]) -> String {
    let mut text = names[..names.len().min(EXAMPLES)].join(", ");
    if names.len() > EXAMPLES {
        text += ", ...";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMVERS: &str = "0x0000002a\t_RNvCs1_4core3one\tvmlinux\tEXPORT_SYMBOL_GPL\t\n\
                           0x00000001\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n\
                           0x00000007\trust_helper_two\tvmlinux\tEXPORT_SYMBOL_GPL\t\n\
                           0x00000009\t_RNvCs1_3drv1x\tdrivers/x\tEXPORT_SYMBOL_GPL\t\n";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_kernels_own_rust_symbols_are_compared_both_ways() {
        let theirs = packaged_symbols(SYMVERS);
        assert_eq!(theirs.len(), 2);
        assert!(symbols(&set(&["_RNvCs1_4core3one", "rust_helper_two"]), &theirs).same);
        let other_rustc = symbols(&set(&["_RNvCs2_4core3one", "rust_helper_two"]), &theirs);
        assert!(!other_rustc.same);
        assert!(
            other_rustc
                .detail
                .starts_with("1 of the kernel's 2 are not here, 1 of ours")
        );
        assert!(!symbols(&set(&["rust_helper_two"]), &theirs).same);
        assert!(!symbols(&set(&[]), &BTreeMap::new()).same);
    }

    #[test]
    fn exports_are_read_from_the_builds_lists() {
        let text = "#include <x>\nEXPORT_SYMBOL_RUST_GPL(_RNvCs1_4core3one);\n";
        assert_eq!(exports(text).collect::<Vec<_>>(), ["_RNvCs1_4core3one"]);
    }

    #[test]
    fn one_other_crc_is_enough() {
        let theirs = packaged_symbols(SYMVERS);
        let crcs = |crc| symvers_of_cmd(crc).collect::<BTreeMap<_, _>>();
        assert!(versions(&crcs("#SYMVER _RNvCs1_4core3one 0x2a\n"), &theirs).same);
        assert!(!versions(&crcs("#SYMVER _RNvCs1_4core3one 0x2b\n"), &theirs).same);
        assert!(!versions(&crcs("saved_cmd := x\n"), &theirs).same);
    }

    #[test]
    fn a_header_of_another_version_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("h/include/net/tcp.h", "a");
        write("h/include/only/here.h", "a");
        write("h/arch/x86/include/asm/x.h", "a");
        write("s/include/net/tcp.h", "a");
        write("s/arch/x86/include/asm/x.h", "a");
        let headers = Headers {
            dir: dir.path().join("h"),
            common: dir.path().join("h"),
            release: "7.3.4".to_owned(),
            config: Config::default(),
            symbols: String::new(),
        };
        let check = || source(&headers, &dir.path().join("s")).unwrap();
        assert!(check().same && check().detail.starts_with("2 headers"));
        write("s/arch/x86/include/asm/x.h", "b");
        assert!(!check().same && check().detail.contains("asm/x.h"));
        assert!(!source(&headers, Path::new("/nonexistent")).unwrap().same);
    }
}
