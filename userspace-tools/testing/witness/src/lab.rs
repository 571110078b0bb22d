// SPDX-License-Identifier: GPL-2.0
//! Two namespaces, a veth pair, a port under test on one end, a witness on either side of it.

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

/// The end that sends.
const NEAR: &str = "w1";
/// The end where packets come out.
const FAR: &str = "w2";
const DEVICE: &str = "eth0";
/// So that a filler of a large queue is one packet.
const MTU_BYTES: u32 = 65_000;

/// Handle of the port under test. Its random numbers start from it.
pub const PORT: Handle = Handle {
    major: 0x10,
    minor: 0,
};

/// Nothing that a test waits for takes longer, on the slowest kernel.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Kernel threads stay in the first namespace; a test has one of its own.
const FIRST: &str = "/proc/2/ns/net";

/// The packet that occupies a held port.
pub const PLUG_BYTES: u64 = 1000;

/// The lab. One at a time.
pub struct Lab {
    near: File,
    home: File,
    index: u32,
    connection: Connection,
    /// What goes into the port.
    pub before: Eye,
    /// What has come out of it.
    pub after: Eye,
    pub sender: Sender,
    /// How long a port is held: longer than filling it takes, which depends on the machine.
    hold: Duration,
    /// Where the port under test is.
    parent: Handle,
    /// Packets that the port has sent and the witness behind it does not count, or the other way
    /// round, where they began at different times.
    apart: i64,
    /// For traffic that races with what the rest of us does.
    pub last_processor: usize,
}

/// The port as it shows itself.
pub struct Port {
    pub state: QdiscState,
    pub x: Xstats,
    pub options: Options,
}

/// What the witnesses make of the port's packets.
pub struct Account {
    pub sent: Vec<Record>,
    pub received: Vec<Record>,
    /// Went in, did not come out, in order.
    pub missing: Vec<Record>,
    /// Numbers of those that came out as CE and had gone in as ECT.
    pub marked: Vec<u32>,
}

impl Account {
    /// Bytes that went in and did not come out.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(|r| u64::from(r.bytes)).sum()
    }
}

impl Lab {
    /// `queues` of the device; more than one for mq.
    pub fn new(queues: u32) -> Result<Self> {
        let home = File::open("/proc/self/ns/net")?;
        let processors = thread::available_parallelism()?.get();
        run_on(0)?;
        remove_namespaces();
        for name in [NEAR, FAR] {
            run(&format!("ip netns add {name}"))?;
            // No router solicitations among the packets that are counted.
            run(&format!(
                "ip netns exec {name} sysctl -qw net.ipv6.conf.default.disable_ipv6=1"
            ))?;
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

    /// No qdisc, no counts.
    pub fn clear(&mut self) -> Result<()> {
        enter(&self.near)?;
        self.parent = Handle::ROOT;
        // There may be none.
        let _ = self
            .connection
            .request(qdisc::delete(self.index, Handle::ROOT));
        // What is on its way arrives.
        self.settle()?;
        self.forget()
    }

    /// The witnesses forget what they saw.
    pub fn forget(&mut self) -> Result<()> {
        self.before.restart()?;
        self.after.restart()?;
        self.apart = self.look().map_or(0, |port| port.state.sent_packets as i64);
        Ok(())
    }

    /// A port as root, and nothing counted before it.
    pub fn port(&mut self, options: &Options) -> Result<()> {
        self.clear()?;
        self.add(Handle::ROOT, options)
    }

    /// A port at `parent`, which is the one under test from now on.
    pub fn add(&mut self, parent: Handle, options: &Options) -> Result<()> {
        self.add_as(PORT, parent, options)
    }

    /// As [`Self::add`], with a handle of its own.
    pub fn add_as(&mut self, handle: Handle, parent: Handle, options: &Options) -> Result<()> {
        self.parent = parent;
        self.apart = -(self.after.total()?.packets as i64);
        // Every run draws the same numbers.
        let options = Options {
            seed: options.seed.or(Some(handle.major.into())),
            ..options.clone()
        };
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

    /// Any qdisc at the place of the port.
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

    /// With the kernel's refusal as a value.
    pub fn try_request(&mut self, request: Request) -> Result<(), Error> {
        self.connection.request(request)
    }

    /// `tc WORDS`, in the namespace of the port; DEV stands for its device.
    pub fn tc(&self, words: &str) -> Result<()> {
        run(&format!("tc {}", words.replace("DEV", DEVICE)))
    }

    /// Does `f` with a dummy device in a namespace of its own, which goes with all that is in it.
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

    /// The device goes down, which resets its qdiscs, or up.
    pub fn set_link(&self, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        run(&format!("ip link set {DEVICE} {state}"))
    }

    /// Every qdisc of the device.
    pub fn qdiscs(&mut self) -> Result<Vec<QdiscState>> {
        Ok(qdisc::dump(&mut self.connection, self.index)?)
    }

    /// The port now.
    pub fn look(&mut self) -> Result<Port> {
        let parent = self.parent;
        self.phantoms()?
            .into_iter()
            .find(|port| port.state.parent == parent)
            .context("the port is gone")
    }

    /// Every port of the device.
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

    /// A port at `parent` that keeps what `fill` sends, for as long as `fill` and `then` take. A
    /// packet of [`PLUG_BYTES`] has passed it, Not-ECT. What `fill` returns is how many bytes
    /// the port has queued by then.
    pub fn hold(
        &mut self,
        parent: Handle,
        options: &Options,
        mut fill: impl FnMut(&mut Self) -> Result<u64>,
    ) -> Result<()> {
        loop {
            let rate = (u128::from(PLUG_BYTES) * 1_000_000_000)
                .div_ceil(self.hold.as_nanos())
                .max(1);
            let held = Options {
                rate_bytes_per_s: Some(rate as u64),
                ..options.clone()
            };
            self.add(parent, &held)?;
            let plug = Frame::new(PLUG_BYTES as usize).ecn(Ecn::NotEct);
            let start_ns = now_ns()?;
            self.sender.send_all(1, &plug)?;
            self.until("the plug passes", |lab| Ok(lab.after.total()?.packets == 1))?;
            let bytes = fill(self)?;
            let queued = self.look()?.state.backlog_bytes;
            // What the case does next needs time, too.
            let took = Duration::from_nanos(now_ns()? - start_ns);
            if queued == bytes && took < self.hold / 4 {
                return Ok(());
            }
            // The machine was too slow, and some of it has left; or the port lost something,
            // and then no time will do.
            ensure!(
                self.hold < PATIENCE / 2,
                "the port holds {queued} bytes, not {bytes}, after {took:?}"
            );
            self.hold *= 2;
            self.delete()?;
            self.settle()?;
            self.forget()?;
        }
    }

    /// Lets a held port go on at `rate_bytes_per_s`, 0 for no limit, until it is empty.
    pub fn release(&mut self, rate_bytes_per_s: u64) -> Result<()> {
        self.change(&Options {
            rate_bytes_per_s: Some(rate_bytes_per_s),
            ..Options::default()
        })?;
        self.drain()
    }

    /// Waits until the port is empty and everything has arrived.
    pub fn drain(&mut self) -> Result<()> {
        self.until("the port is empty and what it sent arrives", |lab| {
            let state = lab.look()?.state;
            let arrived = lab.after.total()?.packets as i64 + lab.apart;
            Ok(state.backlog_packets == 0 && arrived >= state.sent_packets as i64)
        })?;
        self.settle()
    }

    /// Waits until nothing has arrived for a while.
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

    /// Waits for something that comes.
    pub fn until(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let start_ns = now_ns()?;
        while !ready(self)? {
            ensure!(
                now_ns()? - start_ns < PATIENCE.as_nanos() as u64,
                "waited in vain until {what}"
            );
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Compares what went in with what came out, packet by packet: order kept, nothing twice,
    /// nothing changed but ECT to CE, checksums right.
    pub fn account(&mut self) -> Result<Account> {
        self.before.check("before the port")?;
        self.after.check("after the port")?;
        let sent = self.before.records()?.to_vec();
        let received = self.after.records()?.to_vec();
        let mut account = Account {
            missing: Vec::new(),
            marked: Vec::new(),
            sent,
            received,
        };
        let mut arrived = account.received.iter().peekable();
        for sent in &account.sent {
            let Some(received) = arrived.next_if(|r| r.number == sent.number) else {
                account.missing.push(*sent);
                continue;
            };
            let number = sent.number;
            ensure!(
                received.at_ns >= sent.at_ns,
                "packet {number} came before it went"
            );
            ensure!(received.bad_checksum == 0, "packet {number}: bad checksum");
            if received.is_ce() && !sent.is_ce() {
                ensure!(
                    sent.is_ip != 0 && sent.ecn() != Ecn::NotEct as u8,
                    "packet {number} is CE and was not ECT"
                );
                account.marked.push(number);
            }
            let ecn = if received.is_ce() { 3 } else { sent.ecn() };
            let expected = Record {
                at_ns: received.at_ns,
                dsfield: sent.dsfield & !3 | ecn,
                ..*sent
            };
            ensure!(
                *received == expected,
                "packet {number} was changed: {sent:?} to {received:?}"
            );
        }
        if let Some(stray) = arrived.next() {
            bail!(
                "packet {} is out of order, twice, or nobody's",
                stray.number
            );
        }
        Ok(account)
    }

    /// What the port says, against what the witnesses saw: packets in = out + dropped + queued,
    /// bytes too, and marks. `purged` packets were thrown away by a reset, which no counter
    /// shows. Of plain packets, all of which passed this port.
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
        equal(
            "drops by colour",
            x.drops_green + x.drops_yellow + x.drops_red,
            state.drops,
        )?;
        if state.backlog_packets + purged == 0 {
            equal("packets missing", state.drops, account.missing.len() as u64)?;
            equal(
                "bytes missing",
                sent.bytes - received.bytes,
                account.missing_bytes(),
            )?;
            equal("backlog bytes", state.backlog_bytes, 0)?;
        }
        Ok((account, port))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The guest ends soon; what cannot be undone is no reason to fail.
        let _ = enter(&self.home);
        remove_namespaces();
    }
}

/// `what` as the port has it and as the witness has it.
pub fn equal<T: PartialEq + std::fmt::Debug>(what: &str, port: T, witness: T) -> Result<()> {
    ensure!(
        port == witness,
        "{what}: port {port:?}, witness {witness:?}"
    );
    Ok(())
}

/// Every packet must be taken or refused as `expected`.
pub fn expect(fate: Fate, expected: Fate, what: &str) -> Result<()> {
    ensure!(fate == expected, "{what}: {fate:?}, not {expected:?}");
    Ok(())
}

/// The extended ack of a request that has to fail.
pub fn refusal(outcome: Result<(), Error>) -> Result<String> {
    match outcome {
        Err(Error::Refused { reason, .. }) => Ok(reason),
        Err(error) => Err(error.into()),
        Ok(()) => bail!("the kernel took it"),
    }
}

/// Keeps this thread, and its children, on one processor. A veth hands packets to a queue of the
/// processor that sends them, so what two of them take out of a port may pass each other.
pub fn run_on(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("cannot choose a processor")
}

/// CLOCK_MONOTONIC, which the port has too.
pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Whether time stands still while anybody computes.
pub fn time_is_virtual() -> Result<bool> {
    Ok(fs::read_to_string("/proc/cmdline")?.contains("time-travel"))
}

/// Runs a command line of the shell; its output is the error if it fails.
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
        // There may be none.
        let _ = run(&format!("ip netns del {name}"));
    }
}

/// A released queue reaches the far end in one burst; by default it would drop all but a
/// thousand packets of it.
fn many_may_arrive_at_once() -> Result<()> {
    set_of_the_first_namespace("net/core/netdev_max_backlog", "1000000").map(drop)
}

/// Writes a setting that is the whole kernel's, below /proc/sys; returns what it was.
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
