// SPDX-License-Identifier: GPL-2.0
//! What a result was made by and of, so that it can be made again, or told from another one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Hashes are SHA-256 of files, in hexadecimal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// UTC, as RFC 3339 has it: when the first guest was started.
    pub date: String,
    pub xdc_version: String,
    /// The commit of its sources, with `-dirty` if they were changed; null where nobody knew it.
    pub xdc_commit: Option<String>,
    pub xdc_sha256: String,
    /// None where the running kernel is the guest.
    pub kernel_sha256: Option<String>,
    pub agent_sha256: Option<String>,
    /// Of ours, by name.
    pub modules_sha256: BTreeMap<String, String>,
}

impl Provenance {
    /// Of a result that begins now.
    pub fn now() -> Result<Self> {
        Ok(Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            xdc_version: env!("CARGO_PKG_VERSION").to_owned(),
            xdc_commit: option_env!("XDC_COMMIT")
                .filter(|commit| !commit.is_empty())
                .map(str::to_owned),
            xdc_sha256: sha256_of_file(Path::new("/proc/self/exe"))?,
            ..Self::default()
        })
    }

    /// With what its guests are made of.
    pub fn with_guest(mut self, kernel: &Path, agent: &Path, modules: &[PathBuf]) -> Result<Self> {
        self.kernel_sha256 = Some(sha256_of_file(kernel)?);
        self.agent_sha256 = Some(sha256_of_file(agent)?);
        for module in modules {
            let name = module.file_stem().unwrap_or_default().to_string_lossy();
            self.modules_sha256
                .insert(name.into_owned(), sha256_of_file(module)?);
        }
        Ok(self)
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// As hashes are written.
pub fn hex(hash: &[u8]) -> String {
    xdc_proto::to_hex(hash)
}

fn sha256_of_file(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|err| Error::io(path.display(), &err))?;
    Ok(sha256(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_when_and_by_what_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tcp_x.ko");
        fs::write(&file, "abc").unwrap();
        let of = Provenance::now()
            .unwrap()
            .with_guest(&file, &file, std::slice::from_ref(&file))
            .unwrap();
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of.modules_sha256["tcp_x"], abc);
        assert_eq!(of.kernel_sha256.as_deref(), Some(abc));
        assert_eq!((of.date.len(), of.date.ends_with('Z')), (20, true));
        assert_eq!(of.xdc_sha256.len(), 64);
    }
}
