// SPDX-License-Identifier: GPL-2.0
//! A device with several transmit queues, a speed, and qdiscs from the kernel: the port as
//! net.core.default_qdisc, which veth does not use.

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
    /// Attaches a file to a device, and creates the device if needed.
    tunsetiff,
    libc::TUNSETIFF,
    libc::ifreq
);

const DEVICE: &str = "tap9";
const QUEUES: usize = 4;
const DEFAULT_QDISC: &str = "net/core/default_qdisc";

/// Drain of a phantom queue in bytes/s per Mbit/s of the device.
const DRAIN_PER_MBIT: u64 = 112_500;

/// A tap device. Each file is one of its queues.
struct Tap {
    _files: Vec<File>,
    index: u32,
    connection: Connection,
}

struct Port {
    state: QdiscState,
    x: Xstats,
}

impl Tap {
    /// Creates a tap with a speed of `mbit`; 0 = unknown.
    fn new(mbit: u32) -> Result<Self> {
        let files =
            (0..QUEUES).map(|_| attach(DEVICE, libc::IFF_MULTI_QUEUE)).collect::<Result<_>>()?;
        let tap =
            Self { _files: files, index: if_nametoindex(DEVICE)?, connection: Connection::open()? };
        tap.speed(mbit)?;
        run(&format!("ip link set {DEVICE} up"))?;
        Ok(tap)
    }

    fn speed(&self, mbit: u32) -> Result<()> {
        run(&format!("ethtool -s {DEVICE} speed {mbit} duplex full autoneg off"))
    }

    /// Changes the speed. Qdiscs learn of it when the device goes up.
    fn new_speed(&self, mbit: u32) -> Result<()> {
        self.speed(mbit)?;
        run(&format!("ip link set {DEVICE} down"))?;
        run(&format!("ip link set {DEVICE} up"))
    }

    /// A port for transmit queue `number`, from 1 on, below the mq 1:.
    fn port(&self, number: u16, options: &Options) -> Qdisc {
        Qdisc {
            index: self.index,
            parent: Handle { major: 1, minor: number },
            handle: Handle { major: 0x10 + number, minor: 0 },
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

    /// Drain rate of the phantom queue, which all ports must share.
    fn drain(&mut self) -> Result<u64> {
        let ports = self.ports()?;
        let drain = ports[0].x.phantom_drain_bytes_per_s;
        for port in &ports {
            equal("drain", port.x.phantom_drain_bytes_per_s, drain)?;
        }
        Ok(drain)
    }
}

/// Opens a queue of a tap, and creates the device if needed.
pub fn attach(device: &str, flags: libc::c_int) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("cannot open /dev/net/tun")?;
    // SAFETY: Zeroes are a valid ifreq, which is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = flags | libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: The file is a TUN device and the request is initialized.
    unsafe { tunsetiff(file.as_raw_fd(), &request) }.context("cannot attach to the tap")?;
    Ok(file)
}

const FLOWS: u16 = 100;
const FRAME_BYTES: usize = 1_000;
/// The traffic stays on the phantom queue of a 1 Mbit/s device for nearly a second.
const TRAFFIC_BYTES: u64 = FLOWS as u64 * FRAME_BYTES as u64;
/// The drain is rounded here and in each port.
const ROUNDING_BYTES: u64 = 10;

/// Sends a frame of each flow.
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

/// Ports of the kernel's default mq, which has no handle, share one phantom queue.
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
        // The machine was too busy meanwhile.
        if drained_bytes > TRAFFIC_BYTES / 2 {
            continue;
        }
        ensure!(
            bytes.iter().all(|one| *one + drained_bytes + ROUNDING_BYTES >= TRAFFIC_BYTES),
            "{bytes:?}, drained {drained_bytes}"
        );
        return Ok(());
    }
    bail!("this machine is too slow")
}

fn drain_ppm(ppm: u32) -> Options {
    Options { drain_ppm: Some(ppm), ..Options::default() }
}

/// After a speed change, the user's latest setting holds, not that of the port added last.
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
        // The port with the setting is gone: the others follow the device again.
        run(&format!("tc qdisc replace dev {DEVICE} parent 1:{number} pfifo"))?;
        tap.new_speed(1)?;
        equal("drain at 1 Mbit/s", tap.drain()?, DRAIN_PER_MBIT)?;
    }
    Ok(())
}

/// A change of a port without a line rate keeps the line rate that the others need for marks.
fn no_word() -> Result<()> {
    let mut tap = Tap::new(0)?;
    run(&format!("tc qdisc add dev {DEVICE} root handle 1: mq"))?;
    let told = Options { line_rate_bytes_per_s: Some(1_000_000), ..drain_ppm(1_000_000) };
    tap.add(1, &told)?;
    let physical = Options { mark: Some(Mark::Physical), ..Options::default() };
    tap.add(2, &physical)?;
    equal("drain", tap.drain()?, 1_000_000)?;
    let limit = Options { limit_bytes: Some(5_000), ..Options::default() };
    tap.change(2, &limit)?;
    equal("drain", tap.drain()?, 1_000_000)
}

/// Runs all cases.
pub fn run_all(ktap: &mut Ktap) -> Result<()> {
    let before = set_of_the_first_namespace(DEFAULT_QDISC, phantom::KIND)?;
    ktap.case("default mq: all ports share one phantom queue", default_mq());
    set_of_the_first_namespace(DEFAULT_QDISC, &before)?;
    ktap.case("mq: the user's latest setting survives a speed change", last_word());
    ktap.case("mq: a port without a line rate keeps that of the others", no_word());
    Ok(())
}
