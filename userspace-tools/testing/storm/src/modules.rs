// SPDX-License-Identifier: GPL-2.0
//! Loads and unloads modules while their sockets and qdiscs come and go.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::{
    errno::Errno,
    kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module},
    sys::utsname::uname,
};
use xdc_algo::{Kind, MODULES, Module, entry::Entry};
use xdc_netlink::{
    Connection,
    phantom::{Mark, Options},
    qdisc,
};

use crate::{
    Storm,
    background::{DIAG_PAUSE, breathe},
    diag::Diag,
    flow::{Family, Spec, Traffic, tcp_socket},
    net::{self, DEVICE, Pair},
};

/// Modules under test: all installed ones, except devices, which need kernel modules and have their own storm
/// (unorc.rs).
fn under_test() -> impl Iterator<Item = &'static Module> {
    MODULES.iter().filter(|module| module.is_installed() && !matches!(module.kind, Kind::netdev))
}

/// Names of the modules under test.
pub fn ours() -> impl Iterator<Item = &'static str> {
    under_test().map(|module| module.name)
}

/// Algorithms of the congestion control modules.
pub fn ccs() -> impl Iterator<Item = &'static Entry> {
    under_test().filter_map(|module| module.algorithm)
}

/// Longest use of a module after its last user. An orphaned socket with data for an unreachable host gives up
/// at the first timeout after 102 s (`tcp_orphan_retries`, `retransmits_timed_out`): at 205 s by doubling, or
/// 310 s if a slow host's RTO reaches its bound. `xdc` gives up on a guest that is silent for 330 s.
const PATIENCE: Duration = Duration::from_secs(315);

/// Path of the module's file.
pub fn path(name: &str) -> Result<PathBuf> {
    let release = uname()?.release().to_string_lossy().into_owned();
    let path = PathBuf::from(format!("/lib/modules/{release}/extra/{name}.ko"));
    ensure!(path.exists(), "missing {}", path.display());
    Ok(path)
}

/// Loads a module; false if it is already loaded.
pub fn load(name: &str) -> Result<bool> {
    let path = path(name)?;
    match finit_module(&File::open(&path)?, c"", ModuleInitFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(e) => Err(e).with_context(|| format!("cannot load {name}")),
    }
}

/// Returns whether a module is loaded.
pub fn is_loaded(name: &str) -> bool {
    fs::read_to_string("/proc/modules")
        .is_ok_and(|text| text.lines().any(|line| line.split(' ').next() == Some(name)))
}

/// Unloads a module once it is unused. Returns the number of busy attempts.
pub fn unload(name: &str) -> Result<u64> {
    let c_name = std::ffi::CString::new(name)?;
    let deadline = Instant::now() + PATIENCE;
    let mut busy = 0;
    loop {
        match delete_module(&c_name, DeleteModuleFlags::O_NONBLOCK) {
            Ok(()) => return Ok(busy),
            Err(Errno::EWOULDBLOCK) if Instant::now() < deadline => {
                busy += 1;
                thread::sleep(Duration::from_millis(1));
            }
            Err(e) => {
                return Err(e).with_context(|| format!("cannot unload {name}; {}", users(name)));
            }
        }
    }
}

/// Users of the module: its reference count, and the number of orphaned sockets.
fn users(name: &str) -> String {
    let line = |path: &str, start: &str| -> String {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_default().to_string()
    };
    let module = line("/proc/modules", &format!("{name} "));
    format!("{module}; {}", line("/proc/net/sockstat", "TCP:"))
}

/// Prevents the kernel from loading modules by itself, as a second loader.
pub struct NoAutoload(String);

impl NoAutoload {
    /// Lasts until dropped.
    pub fn new() -> Result<Self> {
        let old = fs::read_to_string(MODPROBE)?;
        fs::write(MODPROBE, "\n")?;
        Ok(Self(old))
    }
}

/// Qdisc under test; acceltor needs more device queues than a veth has.
const PORT: &str = "sch_phantom";

const MODPROBE: &str = "/proc/sys/kernel/modprobe";

impl Drop for NoAutoload {
    fn drop(&mut self) {
        // A later missing module is reported by its user.
        let _ = fs::write(MODPROBE, &self.0);
    }
}

#[derive(Default)]
struct Uses {
    /// Successful transfers and qdiscs.
    served: AtomicU64,
    /// Attempts without the module.
    absent: AtomicU64,
}

/// Loads and unloads each module `count` times.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let _no_autoload = NoAutoload::new()?;
    // Modules that are neither qdisc nor congestion control have no users.
    for module in under_test() {
        let name = module.name;
        unload(name)?;
        let pair = Arc::new(Pair::new()?);
        // These sockets do not need the module.
        let diag = Diag::start(&pair, Some("reno"), DIAG_PAUSE);
        let stop = Arc::new(AtomicBool::new(false));
        let uses = Arc::new(Uses::default());
        let user = {
            let (pair, stop, uses) = (pair.clone(), stop.clone(), uses.clone());
            let seed = storm.seed;
            thread::spawn(move || match (module.kind, module.algorithm) {
                _ if module.name == PORT => use_qdisc(&pair, &stop, &uses),
                (_, Some(cc)) => use_sockets(&pair, cc.name(), seed, &stop, &uses),
                _ => Ok(()),
            })
        };
        let (mut cycles, mut busy, mut outcome) = (0, 0, Ok(()));
        while cycles < count && outcome.is_ok() {
            outcome = (|| {
                let served = uses.served.load(Ordering::Relaxed);
                ensure!(load(name)?, "{name} was loaded already");
                // Every other time, wait until the module is used before unloading it.
                let deadline = Instant::now() + PATIENCE;
                let has_users = module.name == PORT || module.algorithm.is_some();
                while has_users && cycles % 2 == 0 && uses.served.load(Ordering::Relaxed) == served
                {
                    ensure!(Instant::now() < deadline, "{name} cannot be used");
                    ensure!(!user.is_finished(), "the users of {name} ended early");
                    thread::sleep(Duration::from_millis(1));
                }
                busy += unload(name)?;
                ensure!(!is_loaded(name), "{name} is still loaded");
                Ok(())
            })();
            storm.progress(cycles, cycles + 1, count);
            cycles += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let used = user.join().map_err(|_| anyhow!("a user of {name} panicked"))?;
        storm.ktap.note(&diag.stop()?.text());
        storm.ktap.note(&format!(
            "{name}: {busy} times in use, {} uses served, {} found no module",
            uses.served.load(Ordering::Relaxed),
            uses.absent.load(Ordering::Relaxed)
        ));
        storm
            .ktap
            .case(&format!("{name}: loaded and unloaded {cycles} times under its users"), outcome);
        storm.ktap.case(
            &format!("{name}: each use succeeds, or fails because the module is missing"),
            used,
        );
        load(name)?;
    }
    Ok(())
}

/// Opens and closes flows and listeners of `cc`.
fn use_sockets(pair: &Pair, cc: &str, seed: u64, stop: &AtomicBool, uses: &Uses) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        // One unconnected socket and one listener; the module may be missing for either.
        pair.hosts[0].run(|| {
            let socket = tcp_socket(socket2::Domain::IPV4)?;
            let _ = socket.set_tcp_congestion(cc.as_bytes());
            let _ = socket.listen(1);
            Ok(())
        })?;
        let mut traffic = Traffic::new(pair, "reno")?;
        let spec = Spec {
            abort_after: rng.bool().then_some(10_000),
            ..Spec::new(cc, rng.u64(1..50_000), Family::V4)
        };
        match traffic.open(spec) {
            Ok(()) => {
                traffic.drain(PATIENCE)?;
                if traffic.tally.aborted == 0 {
                    traffic.verdict()?;
                }
                uses.served.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => expect_absent(&e, uses)?,
        }
        // A flow over a link without delay takes no virtual time, so pause.
        breathe();
    }
    Ok(())
}

/// Attaches, changes and deletes a qdisc with some packets queued.
fn use_qdisc(pair: &Pair, stop: &AtomicBool, uses: &Uses) -> Result<()> {
    let options = Options {
        rate_bytes_per_s: Some(1_000_000),
        mark: Some(Mark::None),
        pool: Some("all".to_string()),
        pool_limit_bytes: Some(100_000),
        ..Default::default()
    };
    let port = net::root(options.encode());
    while !stop.load(Ordering::Relaxed) {
        let added = pair.hosts[0].run(|| {
            let mut connection = Connection::open()?;
            if let Err(e) = connection.request(port.replace()) {
                return Err(e.into());
            }
            connection.request(port.change())?;
            Ok(connection)
        });
        let mut connection = match added {
            Ok(connection) => connection,
            Err(e) => {
                expect_absent(&e, uses)?;
                continue;
            }
        };
        let mut traffic = Traffic::new(pair, "reno")?;
        traffic.open(Spec::new("reno", 20_000, Family::V4))?;
        traffic.step(Duration::from_millis(10))?;
        traffic.abandon();
        connection.request(qdisc::delete(DEVICE, qdisc::Handle::ROOT))?;
        uses.served.fetch_add(1, Ordering::Relaxed);
        breathe();
    }
    Ok(())
}

/// Accepts only errors of a missing module.
fn expect_absent(error: &anyhow::Error, uses: &Uses) -> Result<()> {
    let text = format!("{error:#}");
    // TCP returns ENOENT, or EBUSY while the module unloads; tc returns text.
    let absent = ["os error 2)", "os error 16)", "qdisc kind is unknown", "not found"];
    ensure!(absent.iter().any(|end| text.contains(end)), "unexpected: {text}");
    uses.absent.fetch_add(1, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(1));
    Ok(())
}
