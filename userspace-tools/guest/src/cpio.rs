// SPDX-License-Identifier: GPL-2.0
//! Writer of cpio archives in the "newc" format of an initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Write};

const S_IFCHR: u32 = 0o020_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// Archive in which all entries belong to root and date from the epoch, so that equal contents give
/// equal bytes.
pub struct Archive<W: Write> {
    out: W,
    written: usize,
    inode: u32,
    paths: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self { out, written: 0, inode: 0, paths: BTreeSet::new() }
    }

    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    pub fn dir(&mut self, path: &str) -> io::Result<()> {
        if self.paths.contains(path) {
            return Ok(());
        }
        self.entry(path, S_IFDIR | 0o755, (0, 0), &[])
    }

    pub fn file(&mut self, path: &str, permissions: u32, data: &[u8]) -> io::Result<()> {
        self.entry(path, S_IFREG | permissions, (0, 0), data)
    }

    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, S_IFLNK | 0o777, (0, 0), target.as_bytes())
    }

    pub fn char_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, S_IFCHR | 0o600, (major, minor), &[])
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.header("TRAILER!!!", 0, (0, 0), 0)?;
        self.out.flush()
    }

    /// Writes an entry after its parent directories, which the kernel does not create.
    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        if let Some((parent, _)) = path.rsplit_once('/')
            && !parent.is_empty()
        {
            self.dir(parent)?;
        }
        if !self.paths.insert(path.to_owned()) {
            return Ok(());
        }
        self.inode += 1;
        self.header(path, mode, device, data.len())?;
        self.write(data)?;
        self.align()
    }

    fn header(
        &mut self,
        path: &str,
        mode: u32,
        (major, minor): (u32, u32),
        size: usize,
    ) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(size)
            .map_err(|_| io::Error::other(format!("{path} is too large for an initramfs")))?;
        // ino, mode, uid, gid, nlink, mtime, size, device of the file system, device, name, check
        let fields =
            [self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name.len() as u32 + 1, 0];
        self.write(b"070701")?;
        for field in fields {
            self.write(format!("{field:08x}").as_bytes())?;
        }
        self.write(name.as_bytes())?;
        self.write(&[0])?;
        self.align()
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.written += data.len();
        self.out.write_all(data)
    }

    fn align(&mut self) -> io::Result<()> {
        let padding = self.written.next_multiple_of(4) - self.written;
        self.write(&[0; 3][..padding])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_has_its_directories() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file("/a/b/c", 0o644, b"hello").unwrap();
        archive.symlink("/a/d", "b/c").unwrap();
        archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let names: Vec<_> = ["a\0", "a/b\0", "a/b/c\0", "a/d\0", "TRAILER!!!\0"]
            .iter()
            .map(|name| text.find(&format!("{:08x}00000000{name}", name.len())))
            .collect();
        assert!(names.iter().all(Option::is_some), "{names:?}");
        assert!(names.is_sorted());
        assert!(text.contains("hello"));
    }
}
