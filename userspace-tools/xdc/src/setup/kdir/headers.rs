// SPDX-License-Identifier: GPL-2.0
//! Reads a distribution's kernel header packages.

use std::fs;
use std::path::{Path, PathBuf};

use xdc_base::error::{Error, Result};

use crate::setup::kconfig::Config;

pub struct Headers {
    pub dir: PathBuf,
    /// Part shared by all flavors of a kernel, if packaged separately.
    pub common: PathBuf,
    pub release: String,
    pub config: Config,
    /// Module.symvers.
    pub symbols: String,
}

impl Headers {
    pub fn read(dir: &Path) -> Result<Self> {
        let dir = fs::canonicalize(dir).map_err(|err| {
            Error::io(dir.display(), &err)
                .hint("apt-get install linux-headers-$(uname -r), or --headers DIR")
        })?;
        let text = |name: &str| {
            fs::read_to_string(dir.join(name)).map_err(|err| {
                Error::io(dir.join(name).display(), &err)
                    .hint("--headers DIR: the folder with .config and Module.symvers")
            })
        };
        let release = text("include/config/kernel.release")?.trim().to_owned();
        let makefile = fs::read_to_string(dir.join("Makefile")).unwrap_or_default();
        Ok(Self {
            common: common(&dir, &makefile),
            config: Config::parse(&text(".config")?),
            symbols: text("Module.symvers")?,
            release,
            dir,
        })
    }

    /// Whether Rust modules can be built against the headers as packaged.
    pub fn has_metadata(&self) -> bool {
        self.dir.join("rust/libkernel.rmeta").exists()
    }
}

/// Folder of the shared part, included by Debian's one-line Makefile. Packages unpacked elsewhere
/// still lie side by side.
fn common(dir: &Path, makefile: &str) -> PathBuf {
    let named = makefile
        .lines()
        .find_map(|line| line.strip_prefix("include ")?.trim().strip_suffix("/Makefile"))
        .map(Path::new);
    let Some(named) = named else {
        return dir.to_path_buf();
    };
    let beside = dir.with_file_name(named.file_name().unwrap_or_default());
    if beside.is_dir() { beside } else { named.to_path_buf() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_headers_are_found_by_the_makefile() {
        let root = tempfile::tempdir().unwrap();
        let (own, shared) = (root.path().join("headers-x"), root.path().join("headers-common"));
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&shared).unwrap();
        let makefile =
            "KBUILD_OUTPUT=/usr/src/headers-x\ninclude /usr/src/headers-common/Makefile\n";
        assert_eq!(common(&own, makefile), shared);
        assert_eq!(common(&own, "# all of it\n"), own);
        let elsewhere = "include /usr/src/elsewhere/Makefile\n";
        assert_eq!(common(&own, elsewhere), Path::new("/usr/src/elsewhere"));
    }
}
