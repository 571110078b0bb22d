// SPDX-License-Identifier: GPL-2.0
//! Protocol between the host and the guest.
//!
//! The host turns a scenario into one [`Plan`] per run and puts it, as JSON, into the guest's
//! initramfs (`/xdc/plan.json`). The guest writes one [`Message`] per line, as JSON, into a channel
//! that is a plain file on the host. There is no other communication.
//!
//! Units are in the names. Rates are bits per second on the wire. A packet of `n` bytes of IP
//! occupies a link for `(n + 14) * 8 / rate` seconds: as in every Linux qdisc, the Ethernet header
//! counts; preamble, FCS and gap do not.

pub mod alarm;
pub mod gates;
mod message;
pub mod privileged;
pub mod rng;
mod topology;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use message::*;
pub use topology::*;

/// Mount name of the `root` of [`Job::Selftest`]: a 9P tag (QEMU), or a name in the only folder
/// that hostfs shows (UML).
pub const ROOT_SHARE: &str = "root";

/// Mount name of the writable folder of [`Job::Shell`], found as [`ROOT_SHARE`] is.
pub const SHARED_FOLDER: &str = "shared";

/// Version of this protocol. Both sides are built together, so a mismatch is an error.
pub const VERSION: u32 = 1;

/// Port of flow 0; flow `i` uses this plus `i` at both ends.
pub const FIRST_PORT: u16 = 10_000;

/// Most flows that have their own port.
pub const MAX_FLOWS: usize = (u16::MAX - FIRST_PORT) as usize + 1;

/// The whole work of one guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`] of the host.
    pub version: u32,
    /// Kernel modules to load first, in order, by name (`tcp_unocc`).
    pub modules: Vec<String>,
    /// Module parameters, loaded or built in: (`tcp_vegas.alpha`, `20`). Only for guests, because
    /// parameters affect the whole kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<(String, String)>,
    /// BPF congestion controls to register. Only for guests, as `parameters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bpf: Vec<BpfObject>,
    /// The work.
    pub job: Job,
}

impl Plan {
    /// Plans a job that needs no module.
    pub fn of(job: Job) -> Self {
        Self { version: VERSION, modules: Vec::new(), parameters: Vec::new(), bpf: Vec::new(), job }
    }
}

/// A BPF object file with struct_ops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpfObject {
    /// Name in error messages.
    pub name: String,
    /// Contents, hex.
    pub bytes: String,
}

/// The work of one guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Job {
    /// Build the network, check its links, run the traffic, report, power off.
    Run(RunPlan),
    /// Build the network, then give the console to a shell, from which the user can start the
    /// traffic.
    Shell(RunPlan),
    /// Run executables of `/selftests` one after the other and forward their KTAP.
    Selftest {
        /// File names in `/selftests`, in order.
        tests: Vec<String>,
        /// Run the long form of each (`XDC_LONG=1`).
        long: bool,
        /// Arguments of each test.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<String>,
        /// Host folder to use as the tests' root, read-only; writes stay in the guest's memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root: Option<PathBuf>,
    },
    /// Report [`Message::Hello`] and power off, to probe an engine.
    Probe,
}

/// One experiment with one congestion control.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunPlan {
    /// The network.
    pub topology: Topology,
    /// TCP_CONGESTION of flows without their own.
    pub cc: String,
    /// The flows, in the order of their ids.
    pub flows: Vec<Flow>,
    /// The queues whose state is sampled.
    pub watch: Vec<WatchedQueue>,
    /// Time between two [`Message::Sample`]s, us.
    pub sample_us: u64,
    /// Time after the traffic's start at which it stops, us; None = when every flow has ended.
    pub stop_after_us: Option<u64>,
    /// Seed of the guest's random numbers (start jitter; in virtual time also the kernel's).
    pub seed: u64,
    /// Ports where packets are captured, see [`Message::Packets`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<Tap>,
    /// xdc tracepoints to record, see [`Message::Trace`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    /// Real programs as traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// Changes of links, ordered by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Flows that start when others have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<gates::Gate>,
    /// Record a time series per flow; too large with thousands of flows.
    #[serde(default = "yes")]
    pub flow_series: bool,
    /// Processors of an emulated machine; 0 = one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpus: u32,
}

impl RunPlan {
    /// Congestion controls that a socket of the run may use, with duplicates.
    pub fn congestion_controls(&self) -> impl Iterator<Item = &str> {
        let of_flows = self.flows.iter().flat_map(|flow| {
            let switches = flow.switches.iter().map(|switch| switch.cc.as_str());
            let own = [flow.cc.as_deref(), flow.receiver_cc.as_deref()];
            switches.chain(own.into_iter().flatten())
        });
        let of_routes = self.topology.congctl.iter();
        let of_routes = of_routes.flat_map(|congctl| [congctl.inside.as_str(), &congctl.across]);
        of_flows.chain(of_routes).chain([self.cc.as_str()])
    }
}

fn yes() -> bool {
    true
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One TCP transfer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Flow {
    /// Sending host.
    pub src: String,
    /// Receiving host.
    pub dst: String,
    /// Group for tables and plots (`intra`, `inter`).
    pub group: String,
    /// Payload, bytes; 0 = until the run stops.
    pub bytes: u64,
    /// First send, ns after the traffic starts.
    pub start_ns: u64,
    /// Random extra start delay, uniform in 0..=jitter, us; drawn from the run's seed.
    pub start_jitter_us: u64,
    /// Congestion control of the sender; None = the run's.
    pub cc: Option<String>,
    /// Congestion control of the receiver; None = the run's.
    #[serde(default)]
    pub receiver_cc: Option<String>,
    /// Changes of the sender's congestion control.
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// Bytes that the application writes at a time; 0 = all at once.
    #[serde(default)]
    pub burst_bytes: u64,
    /// Time between the starts of two bursts, us.
    #[serde(default)]
    pub period_us: u64,
    /// Reuse an idle connection that an earlier persistent flow between the same hosts left, if
    /// any, and leave the connection open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
    /// DSCP of packets in both directions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dscp: u8,
    /// Before the flow starts, the receiver sends a byte to advertise its window: a SYN-ACK can
    /// advertise at most 64 kB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_known: bool,
    /// Send through the tunnel between the hosts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tunnel: bool,
    /// SO_SNDBUF, bytes; 0 = autotuning.
    pub sndbuf_bytes: u64,
    /// SO_RCVBUF, bytes; 0 = autotuning.
    pub rcvbuf_bytes: u64,
    /// Configured path RTT of a full packet and its ACK, us; the reference of the link check.
    pub base_rtt_us: f64,
    /// Time from first send to last byte received on the idle path if the sender never waits, ns. 0
    /// for a flow without end.
    #[serde(default)]
    pub ideal_ns: u64,
    /// Time of an ACK on the idle return path, ns.
    #[serde(default)]
    pub ack_ns: u64,
    /// `ideal_ns` if each packet has AccECN's option; 0 = the hosts do not use the option.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ideal_accecn_ns: u64,
}

/// A change of TCP_CONGESTION on an open socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Switch {
    /// Time after the flow's start, us.
    pub after_us: u64,
    /// New congestion control.
    pub cc: String,
}

/// A shell command that runs beside the flows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Node to run on. `$UPLINK` is its first device, `$HOST` the address of each host.
    pub node: String,
    /// Command for `sh -c`.
    pub command: String,
    /// Time after the traffic's start, us.
    pub start_us: u64,
    /// Do not wait for its end.
    #[serde(default)]
    pub daemon: bool,
    /// Name of the samples to read from numeric lines of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<String>,
}

/// Most output of a program that is kept, bytes.
pub const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// A change of links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time after the traffic's start, us.
    pub at_us: u64,
    /// Directions to change.
    pub ends: Vec<End>,
    /// The change.
    pub change: Change,
    /// Seed of the directions' random numbers, which each change restarts; None = as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Start of a link's direction: the device of `node` called `port`, named after its neighbor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Node.
    pub node: String,
    /// Device: `bx`, or `bx.1` for the second of parallel links.
    pub port: String,
}

/// Change of a direction. The queue and packets in flight stay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// Lose every packet.
    Down,
    /// Restore the state before [`Change::Down`].
    Up,
    /// Set the serialization rate.
    Rate {
        /// Bits per second.
        bps: u64,
    },
    /// Set the propagation delay.
    Delay {
        /// Nanoseconds.
        ns: u64,
    },
    /// Lose packets at random.
    Loss {
        /// Share of packets, ppm.
        ppm: u32,
    },
    /// Lose one, two or three packets of ten.
    BurstLoss {
        /// Shares of blocks of ten that lose one, two and three packets, ppm.
        ppm: [u32; 3],
        /// Seed of the positions.
        seed: u64,
    },
}

/// A port where packets are captured in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// Namespace with the device.
    pub node: String,
    /// Device: `bx`, or `bx.1` for the second of parallel links.
    pub port: String,
    /// Capture every packet, not only TCP over IPv4.
    #[serde(default)]
    pub all: bool,
}

/// Size of a captured packet with the kernel's metadata, bytes.
pub const FRAME_BYTES: usize = 256;

/// Returns the packets to buffer per tap between two samples, for this number of taps.
pub fn tap_frames(taps: usize) -> usize {
    const ALL: usize = 1 << 19;
    (ALL / taps.max(1).next_power_of_two()).clamp(1 << 13, 1 << 17)
}

/// A queue to sample: the egress of `node` on its link to `peer`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchedQueue {
    /// Name in tables and plots.
    pub name: String,
    /// Namespace with the device.
    pub node: String,
    /// Other end of the link.
    pub peer: String,
}

/// Memory for any window of an experiment. The sysctl is machine-wide, so runs on the host leave
/// it.
pub const TCP_MEM: (&str, &str) = ("net.ipv4.tcp_mem", "2000000 3000000 4000000");

/// Returns the path below /proc/sys/net of a sysctl of a network namespace; None for any other
/// name. Names are `net.` and words of letters, digits, `_` and `-`, separated by dots.
pub fn sysctl_path(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words: Vec<_> = name.strip_prefix("net.")?.split('.').collect();
    let all_plain = |word: &&str| !word.is_empty() && word.chars().all(plain);
    words.iter().all(all_plain).then(|| words.join("/"))
}

/// Encodes bytes of a message.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes the output of [`to_hex`]; None for any other text.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests;
