// SPDX-License-Identifier: GPL-2.0
//! A device of several transmit queues that tells its speed and gets its qdiscs from the kernel: the
//! port as net.core.default_qdisc, which veth has no use for.

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
};

use anyhow::{Context, Result, bail, ensure};
use nix::net::if_::if_nametoindex;
use xdc_ktap::Ktap;
use xdc_netlink::{
    Connection,
    phantom::{self, Mark, Options, Xstats},
    qdisc::{self, Handle, Qdisc, QdiscState},
};

use crate::{
    lab::{equal, now_ns, run, set_of_the_first_namespace},
    sender::{Frame, Sender},
};

nix::ioctl_write_ptr_bad!(
    /// Attaches a file to a device, which is made if need be.
    tunsetiff,
    libc::TUNSETIFF,
    libc::ifreq
);

const DEVICE: &str = "tap9";
const QUEUES: usize = 4;
const DEFAULT_QDISC: &str = "net/core/default_qdisc";

/// What drains of a phantom queue per Mbit/s of the device.
const DRAIN_PER_MBIT: u64 = 112_500;

/// A tap. Each file is one of its queues.
struct Tap {
    _files: Vec<File>,
    index: u32,
    connection: Connection,
}

/// One port of it.
struct Port {
    state: QdiscState,
    x: Xstats,
}

impl Tap {
    /// It is `mbit` fast; 0 = it does not tell.
    fn new(mbit: u32) -> Result<Self> {
        let files = (0..QUEUES)
            .map(|_| attach(DEVICE, libc::IFF_MULTI_QUEUE))
            .collect::<Result<_>>()?;
        let tap = Self {
            _files: files,
            index: if_nametoindex(DEVICE)?,
            connection: Connection::open()?,
        };
        tap.speed(mbit)?;
        run(&format!("ip link set {DEVICE} up"))?;
        Ok(tap)
    }

    fn speed(&self, mbit: u32) -> Result<()> {
        run(&format!(
            "ethtool -s {DEVICE} speed {mbit} duplex full autoneg off"
        ))
    }

    /// Goes down and up with another speed, of which its qdiscs hear then.
    fn new_speed(&self, mbit: u32) -> Result<()> {
        self.speed(mbit)?;
        run(&format!("ip link set {DEVICE} down"))?;
        run(&format!("ip link set {DEVICE} up"))
    }

    /// A port for transmit queue `number`, from 1 on, below the mq 1:.
    fn port(&self, number: u16, options: &Options) -> Qdisc {
        Qdisc {
            index: self.index,
            parent: Handle {
                major: 1,
                minor: number,
            },
            handle: Handle {
                major: 0x10 + number,
                minor: 0,
            },
            kind: phantom::KIND,
            options: options.encode(),
        }
    }

    fn add(&mut self, number: u16, options: &Options) -> Result<()> {
        let request = self.port(number, options).replace();
        Ok(self.connection.request(request)?)
    }

    fn change(&mut self, number: u16, options: &Options) -> Result<()> {
        let request = self.port(number, options).change();
        Ok(self.connection.request(request)?)
    }

    fn ports(&mut self) -> Result<Vec<Port>> {
        qdisc::dump(&mut self.connection, self.index)?
            .into_iter()
            .filter(|state| state.kind == phantom::KIND)
            .map(|state| {
                let x = Xstats::of(&state).context("no statistics")?;
                Ok(Port { state, x })
            })
            .collect()
    }

    /// At which rate the phantom queue drains, which is the same for all ports.
    fn drain(&mut self) -> Result<u64> {
        let ports = self.ports()?;
        let drain = ports[0].x.phantom_drain_bytes_per_s;
        for port in &ports {
            equal("drain", port.x.phantom_drain_bytes_per_s, drain)?;
        }
        Ok(drain)
    }
}

/// A queue of a tap, which is made if need be.
pub fn attach(device: &str, flags: libc::c_int) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("cannot open /dev/net/tun")?;
    // SAFETY: an ifreq is plain data, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = flags | libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the file is a TUN device's and the request is complete.
    unsafe { tunsetiff(file.as_raw_fd(), &request) }.context("cannot attach to the tap")?;
    Ok(file)
}

const FLOWS: u16 = 100;
const FRAME_BYTES: usize = 1_000;
/// They lie on the phantom queue of a device of 1 Mbit/s for nearly a second.
const TRAFFIC_BYTES: u64 = FLOWS as u64 * FRAME_BYTES as u64;
/// What drains is rounded here and in each port.
const ROUNDING_BYTES: u64 = 10;

/// A frame of each flow.
fn traffic() -> Result<()> {
    let mut sender = Sender::open(DEVICE)?;
    for flow in 0..FLOWS {
        sender.send(&Frame::new(FRAME_BYTES).port(flow))?;
    }
    Ok(())
}

fn used(ports: &[Port]) -> Result<()> {
    let sent: Vec<_> = ports.iter().map(|p| p.state.sent_packets).collect();
    let used = sent.iter().filter(|sent| **sent > 5).count();
    ensure!(used >= 3, "queues used: {sent:?}");
    Ok(())
}

/// Ports of the mq that the kernel makes have a phantom queue each: it has no handle.
fn default_mq() -> Result<()> {
    for _ in 0..30 {
        let mut tap = Tap::new(1)?;
        let start_ns = now_ns()?;
        traffic()?;
        let ports = tap.ports()?;
        let drained_bytes = DRAIN_PER_MBIT * (now_ns()? - start_ns) / 1_000_000_000;
        equal("ports", ports.len(), QUEUES)?;
        used(&ports)?;
        equal("drain", tap.drain()?, DRAIN_PER_MBIT)?;
        let bytes: Vec<_> = ports.iter().map(|p| p.x.phantom_bytes).collect();
        // The machine was busy with something else meanwhile.
        if drained_bytes > TRAFFIC_BYTES / 2 {
            continue;
        }
        ensure!(
            bytes
                .iter()
                .all(|one| *one + drained_bytes + ROUNDING_BYTES >= TRAFFIC_BYTES),
            "{bytes:?}, and {drained_bytes} that drained"
        );
        return Ok(());
    }
    bail!("the machine is too slow")
}

fn drain_ppm(ppm: u32) -> Options {
    Options {
        drain_ppm: Some(ppm),
        ..Options::default()
    }
}

/// With another speed, whichever port came last decides, not what the user said last.
fn last_word() -> Result<()> {
    let mut tap = Tap::new(1)?;
    run(&format!("tc qdisc add dev {DEVICE} root handle 1: mq"))?;
    for number in 1..=QUEUES as u16 {
        for other in 1..=QUEUES as u16 {
            tap.add(other, &Options::default())?;
        }
        tap.change(number, &drain_ppm(500_000))?;
        equal("drain", tap.drain()?, 62_500)?;
        tap.new_speed(2)?;
        equal("drain at 2 Mbit/s", tap.drain()?, 125_000)?;
        // Who said it is gone: the others follow the device again.
        run(&format!(
            "tc qdisc replace dev {DEVICE} parent 1:{number} pfifo"
        ))?;
        tap.new_speed(1)?;
        equal("drain at 1 Mbit/s", tap.drain()?, DRAIN_PER_MBIT)?;
    }
    Ok(())
}

/// A port that knows no line rate takes away that of the others, which do not mark any more.
fn no_word() -> Result<()> {
    let mut tap = Tap::new(0)?;
    run(&format!("tc qdisc add dev {DEVICE} root handle 1: mq"))?;
    let told = Options {
        line_rate_bytes_per_s: Some(1_000_000),
        ..drain_ppm(1_000_000)
    };
    tap.add(1, &told)?;
    let physical = Options {
        mark: Some(Mark::Physical),
        ..Options::default()
    };
    tap.add(2, &physical)?;
    equal("drain", tap.drain()?, 1_000_000)?;
    let limit = Options {
        limit_bytes: Some(5_000),
        ..Options::default()
    };
    tap.change(2, &limit)?;
    equal("drain", tap.drain()?, 1_000_000)
}

/// All of it.
pub fn run_all(ktap: &mut Ktap) -> Result<()> {
    let before = set_of_the_first_namespace(DEFAULT_QDISC, phantom::KIND)?;
    ktap.case(
        "the default mq of a device: its ports have one phantom queue",
        default_mq(),
    );
    set_of_the_first_namespace(DEFAULT_QDISC, &before)?;
    ktap.case(
        "mq: with another speed the user's last word holds",
        last_word(),
    );
    ktap.case(
        "mq: a port without a line rate leaves that of the others alone",
        no_word(),
    );
    Ok(())
}
