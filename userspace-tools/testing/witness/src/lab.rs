// SPDX-License-Identifier: GPL-2.0
//! Two namespaces, a veth pair, the port under test on one end, and a witness on each side of it.

use std::{
    fs::{self, File},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use aya::programs::TcAttachType;
use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, CpuSet, sched_setaffinity, setns},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use xdc_netlink::{
    Connection, Error, Request,
    phantom::{self, Options, Xstats},
    qdisc::{self, Handle, Qdisc, QdiscState},
};

use crate::{
    eye::Eye,
    record::Record,
    sender::{Ecn, Fate, Frame, Sender},
};

const NEAR: &str = "w1";
const FAR: &str = "w2";
const DEVICE: &str = "eth0";
/// Large enough for one-packet fillers of large queues.
const MTU_BYTES: u32 = 65_000;

/// Handle of the port under test, and the seed of its random numbers.
pub const PORT: Handle = Handle { major: 0x10, minor: 0 };

/// Longest wait of a test on the slowest kernel.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Kernel threads stay in the first namespace, unlike tests.
const FIRST: &str = "/proc/2/ns/net";

/// Length of the packet that occupies a held port.
pub const PLUG_BYTES: u64 = 1000;

/// The lab; only one may exist.
pub struct Lab {
    near: File,
    home: File,
    index: u32,
    connection: Connection,
    /// Witness before the port.
    pub before: Eye,
    /// Witness after the port.
    pub after: Eye,
    pub sender: Sender,
    /// Time for which a port holds: longer than filling it takes, which depends on the machine.
    hold: Duration,
    /// Parent of the port under test.
    parent: Handle,
    /// Packets that the port has sent and the witness after it does not count; negative for the reverse.
    /// Nonzero if both started at different times.
    apart: i64,
    /// Processor for concurrent traffic.
    pub last_processor: usize,
}

/// State of a port.
pub struct Port {
    pub state: QdiscState,
    pub x: Xstats,
    pub options: Options,
}

/// Packets of the port as recorded by the witnesses.
pub struct Account {
    pub sent: Vec<Record>,
    pub received: Vec<Record>,
    /// Packets sent and not received, in order.
    pub missing: Vec<Record>,
    /// Numbers of packets sent as ECT and received as CE.
    pub marked: Vec<u32>,
}

impl Account {
    /// Bytes sent and not received.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(|r| u64::from(r.bytes)).sum()
    }
}

impl Lab {
    /// Creates a lab whose device has `queues`; mq needs more than one.
    pub fn new(queues: u32) -> Result<Self> {
        let home = File::open("/proc/self/ns/net")?;
        let processors = thread::available_parallelism()?.get();
        run_on(0)?;
        remove_namespaces();
        for name in [NEAR, FAR] {
            run(&format!("ip netns add {name}"))?;
            // No router solicitations among the counted packets.
            run(&format!("ip netns exec {name} sysctl -qw net.ipv6.conf.default.disable_ipv6=1"))?;
        }
        let ends = format!("numtxqueues {queues} numrxqueues {queues} mtu {MTU_BYTES}");
        run(&format!(
            "ip link add {DEVICE} netns {NEAR} {ends} type veth peer name {DEVICE} netns {FAR} {ends}"
        ))?;
        for name in [NEAR, FAR] {
            run(&format!("ip -n {name} link set {DEVICE} up"))?;
        }
        many_may_arrive_at_once()?;

        enter(&namespace(FAR)?)?;
        let after = Eye::open(DEVICE, TcAttachType::Ingress)?;
        let near = namespace(NEAR)?;
        enter(&near)?;
        let lab = Self {
            before: Eye::open(DEVICE, TcAttachType::Egress)?,
            after,
            near,
            home,
            index: if_nametoindex(DEVICE)?,
            connection: Connection::open()?,
            sender: Sender::open(DEVICE)?,
            hold: Duration::from_millis(500),
            parent: Handle::ROOT,
            apart: 0,
            last_processor: processors - 1,
        };
        Ok(lab)
    }

    /// Deletes all qdiscs and resets the witnesses.
    pub fn clear(&mut self) -> Result<()> {
        enter(&self.near)?;
        self.parent = Handle::ROOT;
        // The qdisc may be missing.
        let _ = self.connection.request(qdisc::delete(self.index, Handle::ROOT));
        // Packets in flight arrive.
        self.settle()?;
        self.forget()
    }

    /// Resets the witnesses.
    pub fn forget(&mut self) -> Result<()> {
        self.before.restart()?;
        self.after.restart()?;
        self.apart = self.look().map_or(0, |port| port.state.sent_packets as i64);
        Ok(())
    }

    /// Installs a port at the root after resetting all counts.
    pub fn port(&mut self, options: &Options) -> Result<()> {
        self.clear()?;
        self.add(Handle::ROOT, options)
    }

    /// Installs the port under test at `parent`.
    pub fn add(&mut self, parent: Handle, options: &Options) -> Result<()> {
        self.add_as(PORT, parent, options)
    }

    /// As [`Self::add`], with another handle.
    pub fn add_as(&mut self, handle: Handle, parent: Handle, options: &Options) -> Result<()> {
        self.parent = parent;
        self.apart = -(self.after.total()?.packets as i64);
        // Every run draws the same random numbers.
        let options =
            Options { seed: options.seed.or(Some(handle.major.into())), ..options.clone() };
        let request = self.qdisc(handle, &options).add();
        self.request(request)
    }

    pub fn change(&mut self, options: &Options) -> Result<()> {
        let request = self.qdisc(PORT, options).change();
        self.request(request)
    }

    pub fn delete(&mut self) -> Result<()> {
        self.delete_at(self.parent)
    }

    pub fn delete_at(&mut self, parent: Handle) -> Result<()> {
        self.request(qdisc::delete(self.index, parent))
    }

    /// A phantom in the place of the port under test.
    pub fn qdisc(&self, handle: Handle, options: &Options) -> Qdisc {
        Qdisc {
            index: self.index,
            parent: self.parent,
            handle,
            kind: phantom::KIND,
            options: options.encode(),
        }
    }

    pub fn request(&mut self, request: Request) -> Result<()> {
        self.try_request(request).map_err(Into::into)
    }

    /// Returns the kernel's refusal as a value.
    pub fn try_request(&mut self, request: Request) -> Result<(), Error> {
        self.connection.request(request)
    }

    /// Runs `tc WORDS` in the port's namespace; DEV stands for its device.
    pub fn tc(&self, words: &str) -> Result<()> {
        run(&format!("tc {}", words.replace("DEV", DEVICE)))
    }

    /// Runs `f` with a dummy device in a new namespace, then deletes the namespace.
    pub fn in_new_namespace(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        run(&format!("ip netns add {name}"))?;
        let outcome = self.within(name, f);
        run(&format!("ip netns del {name}"))?;
        outcome
    }

    fn within(&mut self, name: &str, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        run(&format!(
            "ip link add {DEVICE} netns {name} numtxqueues 2 mtu {MTU_BYTES} type dummy"
        ))?;
        run(&format!("ip -n {name} link set {DEVICE} up"))?;
        enter(&namespace(name)?)?;
        let index = if_nametoindex(DEVICE)?;
        let sender = Sender::open(DEVICE)?;
        let home = (
            std::mem::replace(&mut self.connection, Connection::open()?),
            std::mem::replace(&mut self.sender, sender),
            std::mem::replace(&mut self.index, index),
        );
        let outcome = f(self);
        (self.connection, self.sender, self.index) = home;
        enter(&self.near)?;
        outcome
    }

    /// Sets the device up or down; down resets its qdiscs.
    pub fn set_link(&self, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        run(&format!("ip link set {DEVICE} {state}"))
    }

    /// All qdiscs of the device.
    pub fn qdiscs(&mut self) -> Result<Vec<QdiscState>> {
        Ok(qdisc::dump(&mut self.connection, self.index)?)
    }

    /// Current state of the port.
    pub fn look(&mut self) -> Result<Port> {
        let parent = self.parent;
        self.phantoms()?.into_iter().find(|port| port.state.parent == parent).context("no port")
    }

    /// All ports of the device.
    pub fn phantoms(&mut self) -> Result<Vec<Port>> {
        self.qdiscs()?
            .into_iter()
            .filter(|state| state.kind == phantom::KIND)
            .map(|state| {
                Ok(Port {
                    x: Xstats::of(&state).context("no statistics")?,
                    options: Options::decode(&state.options)?,
                    state,
                })
            })
            .collect()
    }

    /// Installs a port at `parent` that holds the packets of `fill` during `fill` and `then`, after a Not-ECT
    /// packet of [`PLUG_BYTES`] has passed. `fill` returns the bytes that the port has queued.
    pub fn hold(
        &mut self,
        parent: Handle,
        options: &Options,
        mut fill: impl FnMut(&mut Self) -> Result<u64>,
    ) -> Result<()> {
        loop {
            let rate =
                (u128::from(PLUG_BYTES) * 1_000_000_000).div_ceil(self.hold.as_nanos()).max(1);
            let held = Options { rate_bytes_per_s: Some(rate as u64), ..options.clone() };
            self.add(parent, &held)?;
            let plug = Frame::new(PLUG_BYTES as usize).ecn(Ecn::NotEct);
            let start_ns = now_ns()?;
            self.sender.send_all(1, &plug)?;
            self.until("the plug to pass", |lab| Ok(lab.after.total()?.packets == 1))?;
            let bytes = fill(self)?;
            let queued = self.look()?.state.backlog_bytes;
            // The case's next steps take time too.
            let took = Duration::from_nanos(now_ns()? - start_ns);
            if queued == bytes && took < self.hold / 4 {
                return Ok(());
            }
            // Some packets left because the machine was slow, or the port lost some, which more time cannot
            // fix.
            ensure!(
                self.hold < PATIENCE / 2,
                "the port holds {queued} bytes after {took:?}, expected {bytes}"
            );
            self.hold *= 2;
            self.delete()?;
            self.settle()?;
            self.forget()?;
        }
    }

    /// Releases a held port at `rate_bytes_per_s` (0 = unlimited) until it is empty.
    pub fn release(&mut self, rate_bytes_per_s: u64) -> Result<()> {
        self.change(&Options { rate_bytes_per_s: Some(rate_bytes_per_s), ..Options::default() })?;
        self.drain()
    }

    /// Waits until the port is empty and all its packets have arrived.
    pub fn drain(&mut self) -> Result<()> {
        self.until("an empty port and the arrival of all packets sent", |lab| {
            let state = lab.look()?.state;
            let arrived = lab.after.total()?.packets as i64 + lab.apart;
            Ok(state.backlog_packets == 0 && arrived >= state.sent_packets as i64)
        })?;
        self.settle()
    }

    /// Waits until no packet has arrived for a while.
    pub fn settle(&mut self) -> Result<()> {
        let mut last = self.after.total()?;
        let mut quiet = 0;
        while quiet < 3 {
            thread::sleep(POLL * 4);
            let now = self.after.total()?;
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(())
    }

    /// Waits for a condition.
    pub fn until(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let start_ns = now_ns()?;
        while !ready(self)? {
            ensure!(
                now_ns()? - start_ns < PATIENCE.as_nanos() as u64,
                "timeout waiting for {what}"
            );
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Compares sent with received packets: in order, no duplicates, valid checksums, and no change except
    /// from ECT to CE.
    pub fn account(&mut self) -> Result<Account> {
        self.before.check("before the port")?;
        self.after.check("after the port")?;
        let sent = self.before.records()?.to_vec();
        let received = self.after.records()?.to_vec();
        let mut account = Account { missing: Vec::new(), marked: Vec::new(), sent, received };
        let mut arrived = account.received.iter().peekable();
        for sent in &account.sent {
            let Some(received) = arrived.next_if(|r| r.number == sent.number) else {
                account.missing.push(*sent);
                continue;
            };
            let number = sent.number;
            ensure!(received.at_ns >= sent.at_ns, "packet {number} arrived before it was sent");
            ensure!(received.bad_checksum == 0, "packet {number}: bad checksum");
            if received.is_ce() && !sent.is_ce() {
                ensure!(
                    sent.is_ip != 0 && sent.ecn() != Ecn::NotEct as u8,
                    "packet {number} is CE, but was not ECT"
                );
                account.marked.push(number);
            }
            let ecn = if received.is_ce() { 3 } else { sent.ecn() };
            let expected =
                Record { at_ns: received.at_ns, dsfield: sent.dsfield & !3 | ecn, ..*sent };
            ensure!(*received == expected, "packet {number} was changed: {sent:?} to {received:?}");
        }
        if let Some(stray) = arrived.next() {
            bail!("packet {} is reordered, duplicate or unknown", stray.number);
        }
        Ok(account)
    }

    /// Compares the port's counters with the witnesses: packets in = out + dropped + queued, bytes, and
    /// marks. `purged` packets were lost in a reset, which no counter shows. For plain packets that all
    /// passed this port.
    pub fn balance(&mut self, purged: u64) -> Result<(Account, Port)> {
        let account = self.account()?;
        let port = self.look()?;
        let (sent, received) = (self.before.total()?, self.after.total()?);
        let state = &port.state;
        let x = &port.x;

        equal("packets out", state.sent_packets, received.packets)?;
        equal("bytes out", state.sent_bytes, received.bytes)?;
        equal(
            "packets out + dropped + queued + purged",
            state.sent_packets + state.drops + state.backlog_packets + purged,
            sent.packets,
        )?;
        equal("packets marked", x.marked(), account.marked.len() as u64)?;
        equal("drops by color", x.drops_green + x.drops_yellow + x.drops_red, state.drops)?;
        if state.backlog_packets + purged == 0 {
            equal("packets missing", state.drops, account.missing.len() as u64)?;
            equal("bytes missing", sent.bytes - received.bytes, account.missing_bytes())?;
            equal("backlog bytes", state.backlog_bytes, 0)?;
        }
        Ok((account, port))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Errors do not matter: the guest ends soon.
        let _ = enter(&self.home);
        remove_namespaces();
    }
}

/// Compares a value of the port with the witness's.
pub fn equal<T: PartialEq + std::fmt::Debug>(what: &str, port: T, witness: T) -> Result<()> {
    ensure!(port == witness, "{what}: port {port:?}, witness {witness:?}");
    Ok(())
}

/// Checks the fate of a packet.
pub fn expect(fate: Fate, expected: Fate, what: &str) -> Result<()> {
    ensure!(fate == expected, "{what}: {fate:?}, expected {expected:?}");
    Ok(())
}

/// Returns the extended ACK of a request that must fail.
pub fn refusal(outcome: Result<(), Error>) -> Result<String> {
    match outcome {
        Err(Error::Refused { reason, .. }) => Ok(reason),
        Err(error) => Err(error.into()),
        Ok(()) => bail!("the kernel accepted the request"),
    }
}

/// Keeps this thread and its children on one processor. A veth uses the queue of the sending processor, so
/// packets sent by two processors may overtake each other.
pub fn run_on(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("cannot choose a processor")
}

/// CLOCK_MONOTONIC, the port's clock.
pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Returns whether time stops during computation.
pub fn time_is_virtual() -> Result<bool> {
    Ok(fs::read_to_string("/proc/cmdline")?.contains("time-travel"))
}

/// Runs a shell command; Err: its output.
pub fn run(line: &str) -> Result<()> {
    let output = Command::new("sh")
        .args(["-c", line])
        .output()
        .with_context(|| format!("cannot run '{line}'"))?;
    ensure!(
        output.status.success(),
        "'{line}' failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn namespace(name: &str) -> Result<File> {
    let path = format!("/run/netns/{name}");
    File::open(&path).with_context(|| format!("cannot open {path}"))
}

fn enter(namespace: &File) -> Result<()> {
    setns(namespace, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
}

fn remove_namespaces() {
    for name in [NEAR, FAR] {
        // The namespace may be missing.
        let _ = run(&format!("ip netns del {name}"));
    }
}

/// A released queue arrives in one burst, of which the default backlog would drop all but a thousand packets.
fn many_may_arrive_at_once() -> Result<()> {
    set_of_the_first_namespace("net/core/netdev_max_backlog", "1000000").map(drop)
}

/// Writes a global kernel setting below /proc/sys; returns the old value.
pub fn set_of_the_first_namespace(name: &str, value: &str) -> Result<String> {
    let path = format!("/proc/sys/{name}");
    let own = File::open("/proc/self/ns/net")?;
    enter(&File::open(FIRST)?)?;
    let before =
        fs::read_to_string(&path).and_then(|before| fs::write(&path, value).map(|()| before));
    enter(&own)?;
    let before = before.with_context(|| format!("cannot set {path}"))?;
    Ok(before.trim().to_string())
}
