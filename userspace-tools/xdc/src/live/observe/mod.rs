// SPDX-License-Identifier: GPL-2.0
//! Live views of this host or of network namespaces: `xdc ss`, `xdc watch`, `xdc top`.
//!
//! A sample is one netlink dump per family and starts no process.

mod flows;
mod params;
mod queues;
mod screen;
pub mod ss;
mod tlt;
pub mod top;
pub mod watch;

use std::env;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Serialize;
use xdc_base::error::{Error, Result};
use xdc_base::interrupt;
use xdc_base::units::Time;
use xdc_netlink::diag::Diag;
use xdc_netlink::{Connection, qdisc, qdisc::QdiscState};

use self::params::Params;

const NETNS_DIR: &str = "/run/netns";
/// Value of `--netns` for the caller's and every named namespace.
const ALL: &str = "all";
/// Lifetime of cached parameters. Each is a sysctl file, changed only by hand.
const PARAMS_LIFETIME: Duration = Duration::from_secs(1);
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Namespace selection.
#[derive(clap::Args)]
pub struct Place {
    /// Network namespaces, by name or path; `all`: this one and all named ones.
    #[arg(long, value_delimiter = ',', value_name = "NAME|PATH,...")]
    netns: Vec<String>,
}

/// Sample limit.
#[derive(clap::Args)]
pub struct Pace {
    /// End after N samples.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Parser for clap: an interval of at least 1 ms.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let interval = Duration::from_nanos(text.parse::<Time>()?.0);
    if interval < MIN_INTERVAL {
        return Err(format!("'{text}' is shorter than 1ms"));
    }
    Ok(interval)
}

/// A network namespace and its sockets, which stay in the namespace where they were opened.
struct View {
    /// Name given by the user; None = the caller's.
    name: Option<String>,
    netns: File,
    diag: Diag,
    route: Connection,
    any_socket: OwnedFd,
    params: Option<(Params, Instant)>,
}

impl Place {
    /// Opens the selected namespaces; the caller's by default.
    fn views(&self) -> Result<Vec<View>> {
        const OWN: &str = "/proc/self/ns/net";
        let own = File::open(OWN).map_err(|err| Error::io(OWN, &err))?;
        if self.netns.is_empty() {
            return Ok(vec![View::open(None, own)?]);
        }
        let mut views = Vec::new();
        for name in &self.netns {
            if name == ALL {
                let own = own.try_clone().map_err(|err| Error::io(OWN, &err))?;
                if !views.is_empty() {
                    enter(&own).map_err(|err| Error::io(OWN, &err.into()))?;
                }
                views.push(View::open(None, own)?);
                for name in named_namespaces()? {
                    views.push(View::entered(&name)?);
                }
            } else {
                views.push(View::entered(name)?);
            }
        }
        Ok(views)
    }
}

fn path_of(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NETNS_DIR).join(name) }
}

fn named_namespaces() -> Result<Vec<String>> {
    let entries = match fs::read_dir(NETNS_DIR) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(Error::io(NETNS_DIR, &err)),
    };
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

impl View {
    /// Enters another namespace, where this thread then stays, and opens it.
    fn entered(name: &str) -> Result<Self> {
        let path = path_of(name);
        let netns = File::open(&path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => {
                Error::failure(format!("there is no network namespace '{name}'"))
                    .hint("ip netns list")
            }
            _ => Error::io(path.display(), &err),
        })?;
        enter(&netns).map_err(|err| match err {
            rustix::io::Errno::PERM => {
                Error::failure(format!("network namespace '{name}': permission denied"))
                    .hint("as root")
            }
            _ => {
                Error::failure(format!("'{name}' is not a network namespace")).hint("ip netns list")
            }
        })?;
        Self::open(Some(name), netns)
    }

    /// Opens the thread's current namespace.
    fn open(name: Option<&str>, netns: File) -> Result<Self> {
        Ok(Self {
            name: name.map(str::to_owned),
            netns,
            diag: Diag::open().map_err(refused)?,
            route: Connection::open().map_err(refused)?,
            any_socket: socket(AddressFamily::INET, SocketType::DGRAM, None)
                .map_err(|err| Error::io("opening a socket", &err.into()))?,
            params: None,
        })
    }

    /// The modules' parameters in this namespace, at most a second old.
    fn params(&mut self) -> Params {
        match self.params {
            Some((ref params, read_at)) if read_at.elapsed() < PARAMS_LIFETIME => params.clone(),
            _ => {
                let params = self.within(Params::read);
                self.params = Some((params.clone(), Instant::now()));
                params
            }
        }
    }

    /// Runs `read` in this namespace: /proc/sys/net and /proc/thread-self/net are the thread's.
    fn within<T: Default>(&self, read: impl FnOnce() -> T) -> T {
        // Entering needs privileges, but is unnecessary for the caller's own namespace if no other was
        // entered.
        if enter(&self.netns).is_ok() || self.name.is_none() { read() } else { T::default() }
    }

    /// TLT state of this namespace's connections.
    fn tlt(&self) -> tlt::Connections {
        self.within(tlt::Connections::read)
    }

    fn qdiscs(&mut self, index: u32) -> Result<Vec<QdiscState>> {
        qdisc::dump(&mut self.route, index).map_err(refused)
    }

    fn device_index(&self, name: &str) -> Result<u32> {
        netdevice::name_to_index(&self.any_socket, name)
            .map_err(|_| Error::failure(format!("there is no device '{name}'")).hint("ip link"))
    }

    /// Name of a device; None if it has just been removed.
    fn device_name(&self, index: u32) -> Option<String> {
        netdevice::index_to_name(&self.any_socket, index).ok()
    }
}

fn enter(netns: impl AsFd) -> rustix::io::Result<()> {
    move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))
}

fn refused(err: xdc_netlink::Error) -> Error {
    const ENOENT: i32 = 2;
    const EPROTONOSUPPORT: i32 = 93;
    let failure = Error::failure(err.to_string());
    match err {
        xdc_netlink::Error::Refused { errno: ENOENT, .. } => {
            failure.hint("modprobe tcp_diag (CONFIG_INET_TCP_DIAG)")
        }
        xdc_netlink::Error::Socket(err) if err.raw_os_error() == Some(EPROTONOSUPPORT) => {
            failure.hint("a kernel with CONFIG_INET_DIAG")
        }
        _ => failure,
    }
}

/// Samples at fixed times from the first. Skips and counts those that are late.
struct Ticks {
    interval: Option<Duration>,
    count: Option<u64>,
    start: Instant,
    /// Number of the next sample.
    next: u64,
    taken: u64,
    missed: u64,
}

impl Ticks {
    /// One sample if `interval` is None.
    fn new(interval: Option<Duration>, pace: &Pace) -> Self {
        Self { interval, count: pace.count, start: Instant::now(), next: 0, taken: 0, missed: 0 }
    }

    /// Waits for the next sample; returns its number, or None after the last.
    fn wait(&mut self) -> Result<Option<u64>> {
        let over = self.count.is_some_and(|count| self.taken >= count);
        let interval = self.interval.unwrap_or(Duration::ZERO);
        if over || (self.interval.is_none() && self.taken == 1) {
            return Ok(None);
        }
        interrupt::check()?;
        if let Some(late) = self.start.elapsed().checked_sub(self.due(interval)) {
            let whole = late.as_nanos().checked_div(interval.as_nanos());
            self.missed += whole.unwrap_or(0) as u64;
            self.next += whole.unwrap_or(0) as u64;
        }
        while let Some(left) = self.due(interval).checked_sub(self.start.elapsed()) {
            if left.is_zero() {
                break;
            }
            /// Maximum delay of a reaction to Ctrl-C.
            const PATIENCE: Duration = Duration::from_millis(100);
            thread::sleep(left.min(PATIENCE));
            interrupt::check()?;
        }
        self.next += 1;
        self.taken += 1;
        Ok(Some(self.next - 1))
    }

    fn due(&self, interval: Duration) -> Duration {
        Duration::from_nanos((interval.as_nanos() as u64).saturating_mul(self.next))
    }
}

impl Drop for Ticks {
    /// Report skipped samples, so that a gap is not mistaken for inactivity.
    fn drop(&mut self) {
        if self.missed > 0 {
            let _ = writeln!(
                io::stderr(),
                "xdc: {} of {} samples were skipped: this host is not fast enough",
                self.missed,
                self.taken + self.missed
            );
        }
    }
}

/// A line of `--json`: a time and a sample.
#[derive(Serialize)]
struct Line<'a, T> {
    time_us: u64,
    sample: u64,
    #[serde(flatten)]
    seen: &'a T,
}

impl<T: Serialize> Line<'_, T> {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

fn unix_time_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// `title`, formatted as a heading on a terminal.
fn heading(title: &str) -> String {
    let plain = !io::stdout().is_terminal()
        || env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_none_or(|term| term == "dumb");
    if plain { title.to_owned() } else { format!("\x1b[1m{title}\x1b[0m") }
}

/// Short form: `9.94`, `99.4`, `994`.
fn short(value: f64) -> String {
    match value {
        value if value.abs() < 9.995 => format!("{value:.2}"),
        value if value.abs() < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// Rounds to six decimals, sufficient for all our fractions, for JSON.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Growth of `counter` per second; None after a reset.
fn rate(now: u64, before: u64, elapsed: Duration) -> Option<f64> {
    Some(now.checked_sub(before)? as f64 / elapsed.as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units_and_a_minimum() {
        assert_eq!(interval("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(interval("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(interval("999us").unwrap_err().contains("1ms"));
        assert!(interval("5").is_err());
    }

    #[test]
    fn no_interval_gives_one_sample() {
        let mut ticks = Ticks::new(None, &Pace { count: None });
        assert_eq!(ticks.wait().unwrap(), Some(0));
        assert_eq!(ticks.wait().unwrap(), None);
    }

    #[test]
    fn late_samples_are_skipped() {
        let pace = Pace { count: Some(2) };
        let mut ticks = Ticks::new(Some(Duration::from_millis(500)), &pace);
        assert_eq!(ticks.wait().unwrap(), Some(0));
        thread::sleep(Duration::from_millis(2_250));
        let second = ticks.wait().unwrap().unwrap();
        assert!(second >= 4, "{second}");
        assert_eq!(ticks.missed, second - 1);
        assert_eq!(ticks.wait().unwrap(), None);
    }

    #[test]
    fn a_reset_counter_has_no_rate() {
        let second = Duration::from_secs(2);
        assert_eq!(rate(30, 10, second), Some(10.0));
        assert_eq!(rate(10, 30, second), None);
        assert!(rate(1, 0, Duration::ZERO).unwrap().is_finite());
    }

    #[test]
    fn numbers_are_shortened() {
        let texts = [0.0, 9.99, 9.996, 99.96, 12345.6].map(short);
        assert_eq!(texts, ["0.00", "9.99", "10.0", "100", "12346"]);
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let place = |name: &str| Place { netns: vec![name.to_owned()] };
        let err = place("no-such-ns").views().err().unwrap();
        assert!(err.lines().join(" ").contains("no network namespace 'no-such-ns'"));
        let err = place("/dev/null").views().err().unwrap();
        let said = err.lines().join(" ");
        assert!(said.contains("/dev/null"), "{said}");
    }
}
