// SPDX-License-Identifier: GPL-2.0
//! Root directory lent by the host: an overlay of guest memory over the host's folder.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use nix::{
    mount::{MsFlags, mount},
    unistd::{chdir, chroot},
};
use xdc_proto::ROOT_SHARE;

use crate::boot;

/// Directory of the new root that holds the initramfs.
const INITRAMFS: &str = "initramfs";

/// 9P message size, bytes.
const MESSAGE_BYTES: u32 = 512 << 10;

/// Changes the root. Programs of the initramfs come after the root's own in [`xdc_proto::privileged::PATH`];
/// `/selftests`, kernel modules and tc plugins are at their usual paths.
pub fn enter() -> Result<()> {
    let lower = Path::new("/lower");
    let memory = Path::new("/memory");
    let new = Path::new("/new");
    for dir in [lower, memory, new] {
        fs::create_dir_all(dir)?;
    }
    mount_share(lower)?;
    mount_kind("tmpfs", memory, None)?;
    let (upper, work) = (memory.join("upper"), memory.join("work"));
    for dir in [&upper, &work] {
        fs::create_dir(dir)?;
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    mount_kind("overlay", new, Some(&layers))?;

    let initramfs = new.join(INITRAMFS);
    fs::create_dir_all(&initramfs)?;
    bind(Path::new("/"), &initramfs, MsFlags::empty())?;
    for dir in ["proc", "sys", "dev"] {
        bind(&Path::new("/").join(dir), &new.join(dir), MsFlags::MS_REC)?;
    }
    fs::create_dir_all(new.join("dev/shm"))?;
    for dir in ["tmp", "run", "dev/shm"] {
        mount_kind("tmpfs", &new.join(dir), None)?;
    }
    chroot(new).context("cannot change the root directory")?;
    chdir("/").context("cannot enter the new root directory")?;

    let own = Path::new("/").join(INITRAMFS);
    symlink(own.join("selftests"), "/selftests")?;
    fs::remove_dir("/usr/lib/modules").or_else(ignore_absence)?;
    symlink(own.join("lib/modules"), "/usr/lib/modules")?;
    for (from, to) in plugins(&own)? {
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

fn ignore_absence(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Mounts the host's folder: hostfs in UML, 9P in QEMU.
fn mount_share(target: &Path) -> Result<()> {
    let out = boot::kernel_argument("xdc.out")?.unwrap_or_default();
    let read_only = MsFlags::MS_RDONLY;
    let mounted = if out.starts_with("hostfs:") {
        let folder = format!("/{ROOT_SHARE}");
        mount(Some("none"), target, Some("hostfs"), read_only, Some(folder.as_str()))
    } else {
        let options = format!("trans=virtio,version=9p2000.L,cache=loose,msize={MESSAGE_BYTES}");
        mount(Some(ROOT_SHARE), target, Some("9p"), read_only, Some(options.as_str()))
    };
    mounted.context("cannot mount the folder of the host")
}

fn mount_kind(kind: &str, target: &Path, options: Option<&str>) -> Result<()> {
    mount(Some(kind), target, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("cannot mount {kind} on {}", target.display()))
}

fn bind(from: &Path, to: &Path, flags: MsFlags) -> Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | flags, None::<&str>)
        .with_context(|| format!("cannot show {} at {}", from.display(), to.display()))
}

/// Our tc plugins in the initramfs, and their place in the new root: beside the tables of its tc.
fn plugins(initramfs: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let folder = |root: &Path, file: &str| {
        let places = ["usr/lib/x86_64-linux-gnu/tc", "usr/lib/tc", "lib/tc"];
        let mut folders = places.iter().map(|place| root.join(place));
        folders.find(|folder| folder.join(file).exists())
    };
    const PLUGINS: [&str; 2] = ["q_phantom.so", "q_acceltor.so"];
    let Some(from) = folder(initramfs, PLUGINS[0]) else {
        return Ok(Vec::new());
    };
    let Some(to) = folder(Path::new("/"), "normal.dist") else {
        bail!("tc in the root folder of the host has no plugin folder");
    };
    let plugins = PLUGINS.iter();
    Ok(plugins.map(|it| (from.join(it), to.join(it))).collect())
}
