// SPDX-License-Identifier: GPL-2.0
//! Failing allocations: each operation runs with its n-th allocation failing (`/proc/thread-self/fail-nth`),
//! for each n until it needs no more. A failed operation must leave the state unchanged.

use std::{fs, io::ErrorKind, os::unix::fs::FileExt, path::Path};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Socket};
use xdc_algo::entry::Entry;
use xdc_netlink::{
    Connection,
    phantom::{Mark, Options},
    qdisc::{self, Handle},
};

use crate::{
    Storm,
    flow::{Family, Spec, Traffic, tcp_socket},
    modules,
    net::{self, DEVICE, Netns, Pair},
    raw::{self, Netlink},
};

const FAIL_NTH: &str = "/proc/thread-self/fail-nth";
const DEBUGFS: &str = "/sys/kernel/debug";

/// More allocations than any operation makes.
const NEVER: u32 = 1_000_000;

/// Enables fault injection, also for allocations that may sleep, without log messages.
pub fn prepare() -> Result<()> {
    ensure!(
        Path::new(FAIL_NTH).exists(),
        "this kernel cannot make allocations fail (CONFIG_FAULT_INJECTION)"
    );
    for (attribute, value) in [
        ("failslab/ignore-gfp-wait", "N"),
        ("failslab/verbose", "0"),
        ("fail_page_alloc/ignore-gfp-wait", "N"),
        ("fail_page_alloc/verbose", "0"),
    ] {
        let path = format!("{DEBUGFS}/{attribute}");
        fs::write(&path, value).with_context(|| path)?;
    }
    Ok(())
}

/// Fails `percent` of all atomic allocations until `f` ends.
pub fn failing<T>(percent: u32, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let set = |name: &str, value: &str| {
        let path = format!("{DEBUGFS}/failslab/{name}");
        fs::write(&path, value).with_context(|| path)
    };
    for (name, value) in [
        ("ignore-gfp-wait", "Y"),
        ("verbose", "0"),
        ("task-filter", "N"),
        ("interval", "1"),
        ("times", "-1"),
        ("probability", &percent.to_string()),
    ] {
        set(name, value)?;
    }
    let outcome = f();
    set("probability", "0")?;
    set("times", "1")?;
    outcome
}

/// Allocations left before the failure. The file is open, and reading it allocates nothing that counts.
fn left(file: &fs::File) -> Result<u32> {
    let mut buffer = [0; 16];
    let n = file.read_at(&mut buffer, 0)?;
    Ok(std::str::from_utf8(&buffer[..n])?.trim().parse()?)
}

#[derive(Default)]
struct Tally {
    tried: u32,
    failed: u32,
    /// Succeeded without the allocation.
    survived: u32,
    of: u32,
}

impl Tally {
    fn text(&self, what: &str) -> String {
        let tried = match self.tried == self.of {
            true => format!("each of {} allocations fails once", self.of),
            false => format!("{} of {} allocations fail once", self.tried, self.of),
        };
        format!("{what}: {tried}; {} failures, {} successes", self.failed, self.survived)
    }
}

trait Operation {
    /// Prepares the first run.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs the operation. Err: refused for lack of memory.
    fn run(&mut self) -> Result<()>;

    /// Checks the state after `done`, and restores it.
    fn settle(&mut self, done: bool) -> Result<()>;

    /// Namespace to run in; None: any.
    fn place(&self) -> Option<&Netns> {
        None
    }
}

/// Fails each allocation of `operation`, or at most `most`, including the last twenty: the allocations of our
/// modules come after the kernel's.
fn sweep(
    operation: &mut dyn Operation,
    most: u32,
    rng: &mut fastrand::Rng,
    tally: &mut Tally,
) -> Result<()> {
    let at = |n: u32, operation: &mut dyn Operation| -> Result<(Result<()>, u32)> {
        let home = Netns::current()?;
        if let Some(netns) = operation.place() {
            netns.enter()?;
        }
        let file = fs::File::options().read(true).write(true).open(FAIL_NTH)?;
        file.write_at(n.to_string().as_bytes(), 0)?;
        let result = operation.run();
        let left = left(&file)?;
        file.write_at(b"0", 0)?;
        home.enter()?;
        Ok((result, left))
    };
    operation.begin()?;
    // Twice: the first run fills caches.
    let mut total = 0;
    for _ in 0..2 {
        let (result, left) = at(NEVER, operation)?;
        result.context("without a failure")?;
        operation.settle(true)?;
        total = NEVER - left;
    }
    ensure!(total > 0, "no allocation");
    let mut chosen: Vec<u32> = (1..=total).collect();
    if total > most {
        let last = chosen.split_off(total.saturating_sub(20.min(most / 2)) as usize);
        rng.shuffle(&mut chosen);
        chosen.truncate((most as usize).saturating_sub(last.len()));
        chosen.extend(last);
        chosen.sort_unstable();
    }
    tally.of = total;
    for n in chosen {
        let (result, left) = at(n, operation)?;
        // Nonzero: nothing failed, because a cache was fuller than before.
        let hit = left == 0;
        tally.tried += 1;
        tally.survived += u32::from(hit && result.is_ok());
        tally.failed += u32::from(result.is_err());
        let done = result.is_ok();
        if !hit {
            result.as_ref().map_err(|e| anyhow!("failed without an injected failure: {e:#}"))?;
        }
        operation
            .settle(done)
            .with_context(|| format!("after allocation {n} of {total} failed ({result:?})"))?;
    }
    ensure!(tally.failed + tally.survived > 0, "no failure was injected");
    Ok(())
}

/// Fails at most `most` allocations of each operation.
pub fn attack(storm: &mut Storm, most: u32) -> Result<()> {
    prepare()?;
    // Prevents module loading during operations, and modprobe processes that take the failures.
    let _no_autoload = modules::NoAutoload::new()?;
    let pair = Pair::new()?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    ports(storm, &pair, &PHANTOM, most)?;
    let mut operations: Vec<(String, Box<dyn Operation + '_>)> = vec![
        ("qdiscs are dumped".into(), Box::new(Dump(&pair))),
        ("a parameter is written".into(), Box::new(Parameter(&pair))),
        ("a network namespace is created".into(), Box::new(Namespace)),
    ];
    for cc in modules::ccs().map(Entry::name) {
        operations.push((
            format!("a socket of {cc} is opened"),
            Box::new(Open { pair: &pair, cc, socket: None }),
        ));
        operations
            .push((format!("a socket is switched to {cc}"), Box::new(Switch::new(&pair, cc)?)));
    }
    for (what, mut operation) in operations {
        let mut tally = Tally::default();
        let outcome = sweep(operation.as_mut(), most, &mut rng, &mut tally);
        storm.ktap.case(&tally.text(&what), outcome);
    }
    pair.hosts[0].run(|| Ok(Connection::open()?.request(qdisc::delete(DEVICE, Handle::ROOT))?))?;
    for name in modules::ours() {
        modules::unload(name)?;
        let mut tally = Tally::default();
        let outcome = sweep(&mut Load(name), most, &mut rng, &mut tally);
        storm.ktap.case(&tally.text(&format!("{name} is loaded")), outcome);
        modules::load(name)?;
    }
    // After all failures, everything must work.
    pair.port(0, &port_options(1))?;
    let mut traffic = Traffic::new(&pair, "gemini")?;
    for cc in modules::ccs().map(Entry::name) {
        traffic.open(Spec::new(cc, 100_000, Family::V4))?;
    }
    traffic.drain(crate::background::PATIENCE)?;
    let verdict = traffic.verdict().map(|()| traffic.tally);
    storm.flows_case("flows after failed allocations", verdict);
    Ok(())
}

/// A qdisc to add and change.
pub struct Kind {
    /// TCA_KIND.
    pub name: &'static str,
    /// Options whose limit differs in each round.
    pub options: fn(u64) -> Vec<u8>,
    /// Decodes the limit of such options.
    pub limit: fn(&[u8]) -> xdc_netlink::Result<Option<u32>>,
}

const PHANTOM: Kind = Kind {
    name: "phantom",
    options: |round| port_options(round).encode(),
    limit: |options| Ok(Options::decode(options)?.limit_bytes),
};

/// Runs the cases of a qdisc at the root of the first host's device.
pub fn ports(storm: &mut Storm, pair: &Pair, kind: &'static Kind, most: u32) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    for (verb, what) in [(Verb::Add, "is added"), (Verb::Change, "is changed")] {
        let mut tally = Tally::default();
        let mut port = Port::new(pair, kind, verb)?;
        let outcome = sweep(&mut port, most, &mut rng, &mut tally);
        let what = format!("a qdisc {} {what}", kind.name);
        storm.ktap.case(&tally.text(&what), outcome);
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Add,
    Change,
}

/// Adds or changes a qdisc.
struct Port<'a> {
    pair: &'a Pair,
    kind: &'static Kind,
    verb: Verb,
    netlink: Netlink,
    round: u64,
    /// Options before the operation; None without a qdisc.
    before: Option<Vec<u8>>,
}

fn port_options(round: u64) -> Options {
    Options {
        limit_bytes: Some(100_000 + (round % 1_000) as u32),
        rate_bytes_per_s: Some(12_500_000),
        mark: Some(Mark::Either),
        // No live pool has this name, so the request creates one.
        pool: Some(format!("pool{}", round % 1_000)),
        pool_limit_bytes: Some(1_000_000),
        ..Default::default()
    }
}

impl<'a> Port<'a> {
    fn new(pair: &'a Pair, kind: &'static Kind, verb: Verb) -> Result<Self> {
        Ok(Self {
            pair,
            kind,
            verb,
            netlink: pair.hosts[0].run(|| Netlink::open(libc::NETLINK_ROUTE))?,
            round: 1,
            before: None,
        })
    }

    fn delete(&self) -> Result<()> {
        self.pair.hosts[0].run(|| {
            // The qdisc may be missing.
            let _ = Connection::open()?.request(qdisc::delete(DEVICE, Handle::ROOT));
            Ok(())
        })
    }

    fn prepare(&mut self) -> Result<()> {
        if self.verb == Verb::Add {
            self.delete()?;
        } else {
            let port = net::root_of(self.kind.name, (self.kind.options)(self.round));
            self.pair.hosts[0].request(port.replace())?;
        }
        self.before = self.options()?;
        Ok(())
    }

    fn options(&self) -> Result<Option<Vec<u8>>> {
        let state = self.pair.hosts[0].run(|| net::root_state(DEVICE))?;
        Ok((state.kind == self.kind.name).then_some(state.options))
    }

    fn limit(&self, options: Option<&[u8]>) -> Result<Option<u32>> {
        Ok(options.map(self.kind.limit).transpose()?.flatten())
    }
}

impl Operation for Port<'_> {
    fn begin(&mut self) -> Result<()> {
        self.prepare()
    }

    fn place(&self) -> Option<&Netns> {
        Some(&self.pair.hosts[0])
    }

    fn run(&mut self) -> Result<()> {
        const RTM_NEWQDISC: u16 = 36;
        const TCA_OPTIONS: u16 = 2;
        const NLA_F_NESTED: u16 = 0x8000;
        const REQUEST: u16 = 1 | 4;
        const CREATE_EXCL: u16 = 0x400 | 0x200;
        let flags = match self.verb {
            Verb::Add => REQUEST | CREATE_EXCL,
            Verb::Change => REQUEST,
        };
        let mut body = vec![0; 4];
        for word in [DEVICE, 1 << 16, u32::MAX, 0] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        let mut attributes = xdc_netlink::attributes::Attributes::after(body);
        attributes.push(1, format!("{}\0", self.kind.name).as_bytes());
        attributes.push(TCA_OPTIONS | NLA_F_NESTED, &(self.kind.options)(self.round + 1));
        let mut message = Vec::new();
        raw::push_message(&mut message, RTM_NEWQDISC, flags, 1, &attributes.into_bytes());
        self.netlink.send(&message)?;
        match self.netlink.acks()?.as_slice() {
            [ack] if ack.errno == 0 => Ok(()),
            [ack] => Err(std::io::Error::from_raw_os_error(ack.errno).into()),
            // The acknowledgment could not be allocated.
            [] => bail!("no answer"),
            more => bail!("{} answers", more.len()),
        }
    }

    fn settle(&mut self, done: bool) -> Result<()> {
        let now = self.options()?;
        let limit = self.limit(now.as_deref())?;
        let wanted = self.limit(Some(&(self.kind.options)(self.round + 1)))?;
        let changed = limit != self.limit(self.before.as_deref())?;
        // Without an acknowledgment the change may be complete, but never partial.
        if done {
            ensure!(limit == wanted, "accepted, but not applied: {now:?}");
        } else if changed {
            ensure!(limit == wanted, "refused, but partly applied: {now:?}");
        } else {
            ensure!(now == self.before, "refused, but changed: {now:?}");
        }
        self.round += 1;
        self.prepare()
    }
}

struct Dump<'a>(&'a Pair);

impl Operation for Dump<'_> {
    fn place(&self) -> Option<&Netns> {
        Some(&self.0.hosts[0])
    }

    fn run(&mut self) -> Result<()> {
        const RTM_GETQDISC: u16 = 38;
        let mut netlink = Netlink::open(libc::NETLINK_ROUTE)?;
        let found = netlink.dump(RTM_GETQDISC, &[0; 20], |_| Ok(()))?;
        ensure!(found > 0, "no qdisc found");
        Ok(())
    }

    fn settle(&mut self, _done: bool) -> Result<()> {
        self.0.port(0, &port_options(1))?;
        let state = self.0.hosts[0].run(|| net::root_state(DEVICE))?;
        ensure!(state.kind == "phantom", "the qdisc is a {}", state.kind);
        Ok(())
    }
}

struct Parameter<'a>(&'a Pair);

const PARAMETER: &str = "/proc/sys/net/unocc/line_rate_mbps";

impl Operation for Parameter<'_> {
    fn place(&self) -> Option<&Netns> {
        Some(&self.0.hosts[0])
    }

    fn run(&mut self) -> Result<()> {
        Ok(fs::write(PARAMETER, "1234")?)
    }

    fn settle(&mut self, done: bool) -> Result<()> {
        self.0.hosts[0].run(|| {
            let now = fs::read_to_string(PARAMETER)?;
            let wanted = if done { "1234\n" } else { "10000\n" };
            ensure!(now == wanted, "accepted is {done}, but the value is {now}");
            Ok(fs::write(PARAMETER, "10000")?)
        })
    }
}

/// Creates a namespace with all its parameters.
struct Namespace;

impl Operation for Namespace {
    fn run(&mut self) -> Result<()> {
        Ok(unshare(CloneFlags::CLONE_NEWNET)?)
    }

    /// Runs in the new namespace if there is one; the caller returns to the old one.
    fn settle(&mut self, _done: bool) -> Result<()> {
        for name in ["unocc/ai_ppm", "gemini/beta"] {
            let path = format!("/proc/sys/net/{name}");
            ensure!(!fs::read_to_string(&path)?.is_empty(), "{path} is empty");
        }
        Ok(())
    }
}

/// Opens a socket with the congestion control.
struct Open<'a> {
    pair: &'a Pair,
    cc: &'static str,
    socket: Option<Socket>,
}

impl Operation for Open<'_> {
    fn place(&self) -> Option<&Netns> {
        Some(&self.pair.hosts[0])
    }

    fn run(&mut self) -> Result<()> {
        let socket = tcp_socket(Domain::IPV4)?;
        socket.set_tcp_congestion(self.cc.as_bytes())?;
        socket.listen(16)?;
        self.socket = Some(socket);
        Ok(())
    }

    fn settle(&mut self, done: bool) -> Result<()> {
        if let Some(socket) = self.socket.take() {
            ensure!(done, "the request failed, but the socket exists");
            let name = socket.tcp_congestion()?;
            ensure!(name.starts_with(self.cc.as_bytes()), "the algorithm is {name:?}");
        }
        Ok(())
    }
}

/// Switches a connected socket to the congestion control and back.
struct Switch {
    cc: &'static str,
    _listener: Socket,
    socket: Socket,
    _peer: Socket,
}

impl Switch {
    fn new(pair: &Pair, cc: &'static str) -> Result<Self> {
        pair.hosts[0].run(|| {
            let listener = tcp_socket(Domain::IPV4)?;
            let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            listener.bind(&any.into())?;
            listener.listen(1)?;
            let socket = tcp_socket(Domain::IPV4)?;
            match socket.connect(&listener.local_addr()?) {
                Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => return Err(e.into()),
                _ => {}
            }
            let peer = loop {
                match listener.accept() {
                    Ok((peer, _)) => {
                        peer.set_nonblocking(true)?;
                        break peer;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    Err(e) => return Err(e.into()),
                }
            };
            socket.set_tcp_congestion(b"cubic")?;
            Ok(Self { cc, _listener: listener, socket, _peer: peer })
        })
    }
}

impl Operation for Switch {
    fn run(&mut self) -> Result<()> {
        // Data sent by the new algorithm needs allocations.
        self.socket.set_tcp_congestion(self.cc.as_bytes())?;
        self.socket.send(&[0; 4_000])?;
        Ok(())
    }

    fn settle(&mut self, _done: bool) -> Result<()> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 8_000];
        while self._peer.recv(&mut buffer).is_ok_and(|n| n > 0) {}
        let name = self.socket.tcp_congestion()?;
        ensure!(name.starts_with(self.cc.as_bytes()), "the algorithm is {name:?}");
        Ok(self.socket.set_tcp_congestion(b"cubic")?)
    }
}

struct Load(&'static str);

impl Operation for Load {
    fn run(&mut self) -> Result<()> {
        ensure!(modules::load(self.0)?, "the module was loaded already");
        Ok(())
    }

    fn settle(&mut self, done: bool) -> Result<()> {
        ensure!(modules::is_loaded(self.0) == done, "load succeeded: {done}; loaded: {}", !done);
        if done {
            modules::unload(self.0)?;
        }
        Ok(())
    }
}
