// SPDX-License-Identifier: GPL-2.0
//! Origin of a result, to reproduce it or distinguish it from another.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xdc_base::error::{Error, Result};
use xdc_base::{home, owned};

/// Versions and hashes; hashes are SHA-256 of files, in hexadecimal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Start of the first guest, UTC in RFC 3339 format.
    pub date: String,
    pub xdc_version: String,
    /// Commit of xdc's sources, with `-dirty` if modified; null if unknown.
    pub xdc_commit: Option<String>,
    pub xdc_sha256: String,
    /// None if the running kernel is used.
    pub kernel_sha256: Option<String>,
    pub agent_sha256: Option<String>,
    /// Our modules, by name.
    pub modules_sha256: BTreeMap<String, String>,
}

/// Commit of the running program, which sets it; empty if it was built outside a repository.
pub static COMMIT: OnceLock<&str> = OnceLock::new();

impl Provenance {
    /// Provenance of a result that starts now.
    pub fn now() -> Result<Self> {
        Ok(Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            xdc_version: env!("CARGO_PKG_VERSION").to_owned(),
            xdc_commit: COMMIT.get().filter(|it| !it.is_empty()).map(|&it| it.to_owned()),
            xdc_sha256: sha256_of_file(Path::new("/proc/self/exe"))?,
            ..Self::default()
        })
    }

    /// Adds the guests' kernel, agent and modules.
    pub fn with_guest(mut self, kernel: &Path, agent: &Path, modules: &[PathBuf]) -> Result<Self> {
        self.kernel_sha256 = Some(sha256_of_file(kernel)?);
        self.agent_sha256 = Some(sha256_of_file(agent)?);
        for module in modules {
            let name = module.file_stem().unwrap_or_default().to_string_lossy();
            self.modules_sha256.insert(name.into_owned(), sha256_of_file(module)?);
        }
        Ok(self)
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Formats a hash.
pub fn hex(hash: &[u8]) -> String {
    xdc_proto::to_hex(hash)
}

fn sha256_of_file(path: &Path) -> Result<String> {
    sha256_known(path, home::cache().map(|dir| dir.join("hashes")).as_deref())
}

/// Age below which a file may change again without a new time stamp.
const SETTLED: Duration = Duration::from_secs(2);

/// Hash of a file, cached while its inode and time stamps are unchanged: hashing kernel, agent and
/// xdc, about 80 MB, takes longer than a small run.
fn sha256_known(path: &Path, cache: Option<&Path>) -> Result<String> {
    let failed = |err| Error::io(path.display(), &err);
    let path = fs::canonicalize(path).map_err(failed)?;
    let meta = fs::metadata(&path).map_err(failed)?;
    let key = format!(
        "{} {} {} {}.{:09} {}.{:09}",
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec()
    );
    let entry = cache.map(|dir| dir.join(&sha256(path.as_os_str().as_encoded_bytes())[..16]));
    let known = entry.as_ref().and_then(|entry| {
        let text = fs::read_to_string(entry).ok()?;
        let hash = text.trim_end().strip_prefix(&key)?.strip_prefix(' ')?;
        let valid = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| hash.to_owned())
    });
    if let Some(hash) = known {
        return Ok(hash);
    }
    let hash = sha256(&fs::read(&path).map_err(failed)?);
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(meta.ctime().max(0) as u64);
    let settled = SystemTime::now().duration_since(changed).is_ok_and(|age| age > SETTLED);
    if let Some(entry) = entry
        && settled
    {
        // Without a cache the file is read again.
        let _ = entry.parent().map(fs::create_dir_all);
        let _ = owned::replace(&entry, format!("{key} {hash}\n"));
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_records_time_and_origin() {
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

    #[test]
    fn a_cached_hash_is_used_only_for_the_unchanged_file() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("hashes");
        let entries = || fs::read_dir(&cache).map_or(0, Iterator::count);
        // This executable is old, and never modified.
        let old = fs::canonicalize("/proc/self/exe").unwrap();
        let age = || {
            let changed = fs::metadata(&old).unwrap().ctime();
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
                - changed
        };
        while age() <= SETTLED.as_secs() as i64 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let first = sha256_known(&old, Some(&cache)).unwrap();
        assert_eq!(first, sha256(&fs::read(&old).unwrap()));
        assert_eq!(entries(), 1);
        // A cached hash is used if its key matches the file.
        let entry = fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
        let forged = fs::read_to_string(&entry).unwrap().replace(&first, &"0".repeat(64));
        fs::write(&entry, &forged).unwrap();
        assert_eq!(sha256_known(&old, Some(&cache)).unwrap(), "0".repeat(64));
        // A foreign key or an invalid hash is ignored.
        for text in [format!("1 {forged}"), forged.replace("000", "xyz"), String::new()] {
            fs::write(&entry, text).unwrap();
            assert_eq!(sha256_known(&old, Some(&cache)).unwrap(), first);
        }
        // A just modified file may change again within the same time stamp.
        let new = dir.path().join("new");
        fs::write(&new, "abc").unwrap();
        sha256_known(&new, Some(&cache)).unwrap();
        assert_eq!(entries(), 1);
    }
}
