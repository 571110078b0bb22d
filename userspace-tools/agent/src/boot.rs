// SPDX-License-Identifier: GPL-2.0
//! Init tasks: file systems, modules, power.

use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    kmod::{ModuleInitFlags, finit_module},
    mount::{MsFlags, mount},
    sys::{
        reboot::{RebootMode, reboot},
        resource::{Resource, setrlimit},
        utsname::uname,
    },
    time::{ClockId, clock_getres},
};

use xdc_proto::{BpfObject, privileged};

use crate::clock::now_ns;

/// Limit of open files: two sockets per flow, two files per namespace.
const OPEN_FILES: u64 = 1 << 20;

/// Interval and number of attempts of [`wait_for_fine_timers`].
const TIMER_RETRY: Duration = Duration::from_millis(50);
const TIMER_RETRIES: u32 = 100;

/// Type, target, and whether a kernel may lack it.
const FILESYSTEMS: &[(&str, &str, bool)] = &[
    ("proc", "/proc", false),
    ("sysfs", "/sys", false),
    ("devtmpfs", "/dev", false),
    ("devpts", "/dev/pts", true),
    ("tmpfs", "/tmp", false),
    ("tmpfs", "/run", false),
    ("debugfs", "/sys/kernel/debug", true),
    ("tracefs", "/sys/kernel/tracing", true),
    ("bpf", "/sys/fs/bpf", true),
];

/// Mounts [`FILESYSTEMS`] and raises the limit on open files.
pub fn mount_filesystems() -> Result<()> {
    for &(kind, target, optional) in FILESYSTEMS {
        let mounted = fs::create_dir_all(target)
            .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
            .and_then(|()| mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>));
        match mounted {
            Err(_) if optional => {}
            other => other.with_context(|| format!("cannot mount {kind} on {target}"))?,
        }
    }
    setrlimit(Resource::RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)
        .context("cannot raise the limit of open files")
}

/// `uname -r`.
pub fn kernel_release() -> Result<String> {
    let name = uname().context("uname")?;
    Ok(name.release().to_string_lossy().into_owned())
}

/// Value of `key=` on the kernel command line.
pub fn kernel_argument(key: &str) -> Result<Option<String>> {
    let line = fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    Ok(argument(&line, key).map(str::to_string))
}

/// Registers BPF congestion controls by bpftool, as libbpf does.
pub fn register_bpf(objects: &[BpfObject]) -> Result<()> {
    const OBJECT: &str = "/tmp/object.bpf.o";
    const LINKS: &str = "/sys/fs/bpf";
    for BpfObject { name, bytes } in objects {
        let bytes = xdc_proto::from_hex(bytes).context("a BPF object is not hexadecimal")?;
        fs::write(OBJECT, bytes).with_context(|| format!("cannot write {OBJECT}"))?;
        let register = |links: Option<&str>| {
            privileged::bpftool()
                .context("bpftool is missing, which registers BPF congestion controls")?
                .args(["struct_ops", "register", OBJECT])
                .args(links)
                .output()
                .context("cannot run bpftool")
        };
        let mut output = register(Some(LINKS))?;
        // bpftool before 7.2 knows neither links nor the section that needs one.
        if !output.status.success() && output.stderr.starts_with(b"Usage") {
            output = register(None)?;
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<_> = said.lines().map(str::trim).collect();
            bail!("the kernel refused {name}: {}", said.join("; "));
        }
        fs::remove_file(OBJECT).with_context(|| format!("cannot remove {OBJECT}"))?;
    }
    Ok(())
}

/// Whether waiting takes no real time: UML's time travel, of either kind.
pub fn has_virtual_time() -> Result<bool> {
    let line = fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    Ok(travels_in_time(&line))
}

fn travels_in_time(line: &str) -> bool {
    line.split_whitespace().any(|word| word == "time-travel" || word.starts_with("time-travel="))
}

fn argument<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .find_map(|(name, value)| (name == key).then_some(value))
}

/// In virtual time, starts the experiment at a round time with a reseeded generator (patches/0003):
/// draws and waits during boot depend on the distribution behind the initramfs.
pub fn begin_experiment() -> Result<()> {
    const ROUND_NS: u64 = 10_000_000_000;
    nix::ioctl_none!(reseed, b'R', 7);

    if kernel_argument("time-travel")?.is_none() {
        return Ok(());
    }
    thread::sleep(Duration::from_nanos(ROUND_NS - now_ns()? % ROUND_NS));
    let device = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    // SAFETY: RNDRESEEDCRNG takes no argument.
    unsafe { reseed(device.as_raw_fd()) }.context("cannot reseed the random number generator")?;
    Ok(())
}

/// Loads modules in order: with modprobe if the initramfs has it, else the file alone.
pub fn load_modules(names: &[String]) -> Result<()> {
    let root = PathBuf::from("/lib/modules").join(kernel_release()?);
    for name in names {
        let modprobe = privileged::modprobe(name)?;
        let key = privileged::module_key(name);
        // Already loaded or built in.
        if Path::new("/sys/module").join(&key).exists() {
            continue;
        }
        if let Some(mut modprobe) = modprobe {
            let output = modprobe.output().context("cannot run modprobe")?;
            if !output.status.success() {
                let reason = String::from_utf8_lossy(&output.stderr);
                bail!("cannot load the module {name}: {}", reason.trim());
            }
            continue;
        }
        let Some(path) = find_module(&root, &key) else {
            bail!("no {name}.ko under {}: build it with `make modules`", root.display());
        };
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match finit_module(&file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => bail!("cannot load {}: {e}; see the guest's console", path.display()),
        }
    }
    Ok(())
}

/// Sets module parameters, such as (`tcp_vegas.alpha`, `20`).
pub fn set_parameters(parameters: &[(String, String)]) -> Result<()> {
    for (name, value) in parameters {
        let Some((module, parameter)) = name.split_once('.') else {
            bail!("{name} is not MODULE.PARAMETER");
        };
        let path = format!("/sys/module/{module}/parameters/{parameter}");
        fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))?;
    }
    Ok(())
}

/// The file of a module named as in /sys/module.
fn find_module(directory: &Path, key: &str) -> Option<PathBuf> {
    let mut subdirectories = Vec::new();
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            subdirectories.push(path);
        } else if path.extension().is_some_and(|e| e == "ko")
            && path
                .file_stem()
                .is_some_and(|stem| privileged::module_key(&stem.to_string_lossy()) == key)
        {
            return Some(path);
        }
    }
    subdirectories.iter().find_map(|d| find_module(d, key))
}

/// Waits for timers finer than the tick; on x86, verifying the TSC takes a second.
pub fn wait_for_fine_timers() -> Result<()> {
    for _ in 0..TIMER_RETRIES {
        let resolution = clock_getres(ClockId::CLOCK_MONOTONIC).context("clock_getres")?;
        if resolution.tv_sec() == 0 && resolution.tv_nsec() == 1 {
            return Ok(());
        }
        thread::sleep(TIMER_RETRY);
    }
    bail!("the guest's timers have only tick resolution: boot it with tsc=reliable")
}

/// MemFree of /proc/meminfo.
pub fn free_memory_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let kb = memory_kb(&text, "MemFree:").context("/proc/meminfo has no MemFree")?;
    Ok(kb << 10)
}

fn memory_kb(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Powers off the guest.
pub fn power_off() -> ! {
    nix::unistd::sync();
    // PID 1 must not return: the kernel would panic instead of stopping.
    let refused = reboot(RebootMode::RB_POWER_OFF).unwrap_err();
    eprintln!("xdc-agent: cannot power off: {refused}");
    loop {
        nix::unistd::pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let text = "MemTotal:        4096 kB\nMemFree:           12 kB\n";
        assert_eq!(memory_kb(text, "MemFree:"), Some(12));
        assert_eq!(memory_kb(text, "Cached:"), None);
    }

    #[test]
    fn time_travel_is_found_with_and_without_value() {
        assert!(travels_in_time("quiet time-travel mem=1M"));
        assert!(travels_in_time("time-travel=inf-cpu"));
        assert!(!travels_in_time("time-travel-start=5 quiet"));
    }

    #[test]
    fn a_kernel_argument_is_found_by_its_whole_name() {
        let line = "quiet xxdc.out=a xdc.out=hostfs:/d/f=1 root=/dev/ram0\n";
        assert_eq!(argument(line, "xdc.out"), Some("hostfs:/d/f=1"));
        assert_eq!(argument(line, "xdc"), None);
    }
}
