// SPDX-License-Identifier: GPL-2.0
//! A kernel's configuration from .config, /boot/config-RELEASE or /proc/config.gz.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdc_guest::initramfs::find_program;

/// Options with a value, by name without CONFIG_.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, String>);

impl Config {
    pub fn parse(text: &str) -> Self {
        let set = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        });
        Self(set.collect())
    }

    /// Value of an option: `y`, `m`, a number, or a text without its quotes.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether an option is `y`.
    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) == Some("y")
    }

    /// The first differing options, as `NAME: ours, theirs`.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names = self.0.keys().chain(other.0.keys());
        let unique: std::collections::BTreeSet<_> = names.collect();
        unique
            .into_iter()
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .map(|name| {
                let say = |config: &Self| config.value(name).unwrap_or("off").to_owned();
                format!("CONFIG_{name}: {} here, {} there", say(self), say(other))
            })
            .collect()
    }
}

/// Configuration of the kernel `release` below `root`, and its path. /proc/config.gz is used only
/// for the running kernel.
pub fn of_kernel(root: &Path, release: &str, running: bool) -> Option<(PathBuf, Config)> {
    let plain = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];
    for path in plain {
        let path = root.join(path);
        if let Ok(text) = fs::read_to_string(&path) {
            return Some((path, Config::parse(&text)));
        }
    }
    let packed = root.join("proc/config.gz");
    if running && packed.exists() {
        // Every host with kernel packages has gzip.
        let output = Command::new(find_program("gzip")?).arg("-dc").arg(&packed).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        return Some((packed, Config::parse(&text)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# CONFIG_MODVERSIONS is not set\nCONFIG_RUST=y\nCONFIG_VETH=m\n\
                        CONFIG_RUSTC_VERSION_TEXT=\"rustc 1.85.1 (x)\"\nCONFIG_HZ=250\n";

    #[test]
    fn options_are_read_by_name() {
        let config = Config::parse(TEXT);
        assert!(config.is_on("RUST") && !config.is_on("VETH") && !config.is_on("MODVERSIONS"));
        assert_eq!(config.value("VETH"), Some("m"));
        assert_eq!(config.value("RUSTC_VERSION_TEXT"), Some("rustc 1.85.1 (x)"));
    }

    #[test]
    fn differences_name_both_sides() {
        let other = Config::parse("CONFIG_RUST=y\nCONFIG_HZ=1000\nCONFIG_VETH=m\n");
        assert_eq!(
            other.differences(&Config::parse(TEXT)),
            [
                "CONFIG_HZ: 1000 here, 250 there",
                "CONFIG_RUSTC_VERSION_TEXT: off here, rustc 1.85.1 (x) there"
            ]
        );
    }

    #[test]
    fn the_configuration_in_boot_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert!(of_kernel(root.path(), "7.3.4", false).is_none());
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/config-7.3.4"), TEXT).unwrap();
        let (path, config) = of_kernel(root.path(), "7.3.4", false).unwrap();
        assert!(path.ends_with("boot/config-7.3.4") && config.is_on("RUST"));
    }
}
