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
pub mod defaults;
pub mod gates;
pub mod privileged;
pub mod rng;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
        Self {
            version: VERSION,
            modules: Vec::new(),
            parameters: Vec::new(),
            bpf: Vec::new(),
            job,
        }
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

/// The emulated network: namespaces and veth pairs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Hosts and routers; each becomes a network namespace of that name.
    pub nodes: Vec<Node>,
    /// Point-to-point links.
    pub links: Vec<Link>,
    /// Sysctls for every namespace, (`net.ipv4.tcp_ecn`, `3`), or for the initial one alone
    /// (`net.ipv4.tcp_mem`, `net.core.*`): the agent writes them where they exist.
    pub sysctls: Vec<(String, String)>,
    /// Names in `sysctls` that the agent does not set on routers.
    #[serde(default)]
    pub of_hosts: Vec<String>,
    /// Set `features tcp_usec_ts` on routes: microsecond timestamps, so that RTTs measured after a
    /// retransmission are precise, too.
    pub tcp_usec_ts: bool,
    /// Set `quickack 1` on every route: one ACK per packet.
    pub quickack: bool,
    /// Enable TSO, GSO and GRO. Otherwise TCP sends single packets.
    #[serde(default)]
    pub offload: bool,
    /// Use IPv6 addresses.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ipv6: bool,
    /// Routers use all shortest paths, not only the first.
    #[serde(default)]
    pub ecmp: bool,
    /// Congestion controls that routes choose, instead of [`RunPlan::cc`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congctl: Option<Congctl>,
    /// Tunnels between hosts, for flows with [`Flow::tunnel`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<Tunnel>,
    /// Circuit switch beside the packet network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotor: Option<Rotor>,
}

impl Topology {
    /// Returns the direction of a link from a node to its neighbor. `NEIGHBOR.1` is the second of
    /// parallel links; without a number, the first.
    pub fn direction(&self, from: &str, to: &str) -> Option<&Direction> {
        let (to, nth) = match to.split_once('.') {
            Some((to, nth)) => (to, nth.parse().ok().filter(|&n| n > 0)?),
            None => (to, 0),
        };
        let mut directions = self.links.iter().filter_map(|link| {
            if link.a == from && link.b == to {
                Some(&link.ab)
            } else if link.a == to && link.b == from {
                Some(&link.ba)
            } else {
                None
            }
        });
        directions.nth(nth)
    }
}

/// An optical circuit switch that joins racks in pairs by a timetable.
///
/// Each rack's switch has a bond of two uplinks instead of its link to the packet network's router:
/// that link, and one to the circuit switch. The link's queue is the bond's qdisc, `acceltor`;
/// options that follow from the [`Rotor`] need not be among its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotor {
    /// Circuit switch: a node without links.
    pub switch: String,
    /// Router of the packet network.
    pub packet: String,
    /// Racks, numbered from 0.
    pub racks: Vec<Rack>,
    /// Duration of a circuit, ns.
    pub day_ns: u64,
    /// Time between two circuits, ns.
    pub night_ns: u64,
    /// Rate of a circuit.
    pub rate_bps: u64,
    /// Weeks that the circuit switch counts separately; the last also counts all later ones.
    pub weeks: u32,
}

impl Rotor {
    /// Returns the length of a day and its night, ns.
    pub fn slot_ns(&self) -> u64 {
        self.day_ns + self.night_ns
    }

    /// Returns the time in which each pair of racks has one day, ns.
    pub fn week_ns(&self) -> u64 {
        self.slot_ns() * self.racks.len().saturating_sub(1) as u64
    }

    /// Returns the capacity of a circuit in a day, bytes.
    pub fn day_bytes(&self) -> f64 {
        self.rate_bps as f64 * self.day_ns as f64 / 8e9
    }
}

/// Hosts and their switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// The switch.
    pub switch: String,
    /// Number of the first host; the hosts of a rack have consecutive numbers.
    pub first_host: u32,
    /// Number of hosts.
    pub hosts: u32,
}

impl Rack {
    /// Splits the host numbers into the fewest aligned blocks: first number, and log2 of the size.
    pub fn blocks(&self) -> Vec<(u32, u8)> {
        let mut blocks = Vec::new();
        let (mut first, mut left) = (self.first_host, self.hosts);
        while left > 0 {
            let bits = first.trailing_zeros().min(left.ilog2());
            blocks.push((first, bits as u8));
            first += 1 << bits;
            left -= 1 << bits;
        }
        blocks
    }
}

/// The qdisc of a rack's bond.
pub const ACCELTOR: &str = "acceltor";

/// Most prefixes that the acceltor qdisc accepts.
pub const MAX_PREFIXES: usize = 140;

/// A device of kind unorc at each of two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// One host.
    pub a: String,
    /// Other host.
    pub b: String,
    /// UDP port at both ends.
    pub port: u16,
    /// Other options in ip's syntax: `paths reps fec off`.
    pub options: Vec<String>,
}

/// Tunnel header, bytes: IPv4, UDP and unorc.
pub const TUNNEL_HEADER_BYTES: u32 = 20 + 8 + 16;

/// Difference between the MTUs of path and tunnel, bytes: a parity packet is two bytes longer than
/// the longest data packet.
pub const TUNNEL_MTU_LESS: u32 = TUNNEL_HEADER_BYTES + 2;

impl Topology {
    /// Returns the IP length of a pure ACK with timestamps, bytes: the reply in link checks and
    /// base RTTs.
    pub fn ack_bytes(&self) -> u32 {
        const TCP_BYTES: u32 = 32;
        self.ip_header_bytes() + TCP_BYTES
    }

    /// Returns the length of an IP header without options, bytes.
    pub fn ip_header_bytes(&self) -> u32 {
        match self.ipv6 {
            true => 40,
            false => 20,
        }
    }
}

/// Congestion controls of hosts' routes (`ip route ... congctl NAME`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Congctl {
    /// For routes to hosts of the same [`Node::site`].
    pub inside: String,
    /// For routes to other sites.
    pub across: String,
}

impl Congctl {
    /// Returns the congestion control of a route.
    pub fn of(&self, across: bool) -> &str {
        match across {
            true => &self.across,
            false => &self.inside,
        }
    }
}

/// One network namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Unique name, at most 12 characters of `[a-z0-9_-]`.
    pub name: String,
    /// Whether the node forwards packets.
    pub router: bool,
    /// Sysctls of this namespace, applied after the topology's.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Shell commands to run here, in order, when the network is up and before links are checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// Router that chooses among shortest paths per packet.
    #[serde(default)]
    pub spray: bool,
    /// Datacenter of a host, for [`Topology::congctl`].
    #[serde(default)]
    pub site: u32,
    /// `initcwnd` of its routes, packets; 0 = kernel default.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initcwnd: u32,
    /// `initrwnd` of its routes, packets; 0 = kernel default.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initrwnd: u32,
}

/// A veth pair. Each direction consists of queue, serialization at `rate_bps`, and propagation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// One end.
    pub a: String,
    /// Other end.
    pub b: String,
    /// MTU of both devices, bytes.
    pub mtu: u32,
    /// From a to b.
    pub ab: Direction,
    /// From b to a.
    pub ba: Direction,
}

/// One direction of a link: the egress of the device at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Direction {
    /// Serialization rate; 0 = unlimited.
    pub rate_bps: u64,
    /// Propagation delay, ns.
    pub delay_ns: u64,
    /// Queue in front of the link. None = a FIFO that never drops.
    pub queue: Option<Queue>,
    /// Faults on the way, enabled when the links have been checked.
    #[serde(default)]
    pub faults: Option<Faults>,
}

/// Faults that netem adds to a direction, before its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Seed of netem's random numbers, for repeatable runs.
    pub seed: u64,
    /// Packets lost, ppm.
    pub loss_ppm: u32,
    /// Packets that skip the direction's delay and so overtake earlier ones, ppm.
    pub reorder_ppm: u32,
    /// Extra delay of each packet, uniform in 0..=jitter, ns. Keeps the order of packets.
    #[serde(default)]
    pub jitter_ns: u64,
}

/// Ethernet header, bytes: link occupancy of a packet beyond its IP length.
pub const ETHERNET_HEADER_BYTES: u32 = 14;

impl Direction {
    /// Returns the time that a packet of `bytes` of IP takes through this direction when idle, ns.
    ///
    /// A queue is a shaper: it sends a packet at once and delays the next one. So with a queue, an
    /// idle link adds only propagation. Base RTTs are sums of this.
    pub fn idle_ns(&self, bytes: u32) -> u64 {
        if self.queue.is_some() || self.rate_bps == 0 {
            return self.delay_ns;
        }
        let bits = u128::from(bytes + ETHERNET_HEADER_BYTES) * 8;
        self.delay_ns + (bits * 1_000_000_000 / u128::from(self.rate_bps)) as u64
    }
}

/// A queue discipline in front of a link, with its options.
///
/// The direction's delay is a `netem` root qdisc above the queue (a documented use of a child
/// qdisc), so propagation needs no extra device. The sum along a path is the same as with the delay
/// behind the queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Queue {
    /// sch_phantom, shaped to the link's rate.
    Phantom(PhantomQueue),
    /// Any qdisc in tc's syntax, also phantom with options that [`PhantomQueue`] lacks. A qdisc
    /// that does not shape gets an htb of the link's rate above it.
    Tc(TcQueue),
}

impl Queue {
    /// Returns whether this is sch_phantom.
    pub fn is_phantom(&self) -> bool {
        match self {
            Self::Phantom(_) => true,
            Self::Tc(queue) => queue.kind == "phantom",
        }
    }

    /// Returns whether the agent creates the qdisc itself, without tc.
    pub fn is_made_by_agent(&self) -> bool {
        let is_bond = matches!(self, Self::Tc(queue) if queue.kind == ACCELTOR);
        self.is_phantom() || is_bond
    }
}

/// A queue discipline as in `tc qdisc add dev DEVICE KIND WORDS...`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TcQueue {
    /// Kind, such as `fq_codel`.
    #[serde(rename = "qdisc")]
    pub kind: String,
    /// Options, such as `limit`, `1000`, `ecn`.
    pub words: Vec<String>,
    /// Seed of phantom's random numbers, if its words have none; None = random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Options of sch_phantom in a scenario; None = the module's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct PhantomQueue {
    /// Limit of the physical queue, bytes.
    pub limit_bytes: u32,
    /// Cap of the phantom queue, bytes.
    pub phantom_bytes: Option<u64>,
    /// Phantom drain rate, ppm of the link's rate.
    pub drain_ppm: Option<u32>,
    /// Lower RED threshold on the phantom counter, ppm of its cap.
    pub pmin_ppm: Option<u32>,
    /// Upper RED threshold on the phantom counter, ppm of its cap.
    pub pmax_ppm: Option<u32>,
    /// Lower RED threshold on the physical backlog, ppm of its limit.
    pub min_ppm: Option<u32>,
    /// Upper RED threshold on the physical backlog, ppm of its limit.
    pub max_ppm: Option<u32>,
    /// Queue whose occupancy decides on marks.
    pub mark: Option<Mark>,
    /// Seed of RED's random numbers; None = random.
    pub seed: Option<u64>,
}

/// Which queue's occupancy chooses packets to mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Neither: drop-tail.
    None,
    /// The phantom counter.
    Phantom,
    /// The physical backlog.
    Physical,
    /// One of the two.
    Either,
    /// The two together.
    Both,
}

impl Mark {
    /// Returns the name in plans, scenarios and tc options.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Phantom => "phantom",
            Self::Physical => "physical",
            Self::Either => "either",
            Self::Both => "both",
        }
    }
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

/// One line from the guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// First line.
    Hello {
        /// [`VERSION`] of the agent.
        version: u32,
        /// `uname -r`.
        kernel: String,
    },
    /// Current activity, for a progress line.
    Progress {
        /// Activity, a few words.
        what: String,
        /// Part that is done, 0 to 1.
        done: f64,
    },
    /// The guest starts to build the network; [`Message::Network`] follows. In virtual time only
    /// the host can measure how long that takes.
    Building,
    /// The network is up.
    Network(NetworkSize),
    /// RTT of one path, measured before the traffic.
    LinkCheck {
        /// Sending host.
        src: String,
        /// Receiving host.
        dst: String,
        /// RTT that the topology configures, us.
        configured_rtt_us: f64,
        /// Smallest RTT of a few probes of a full-size packet with a small reply, us.
        measured_rtt_us: f64,
    },
    /// State of every flow and watched queue at one moment.
    Sample(Sample),
    /// A flow has ended, or the run has stopped.
    Flow(FlowResult),
    /// Part of a program's standard output, sent when the run ends, before [`Message::Ended`].
    Output {
        /// Index in the plan.
        program: usize,
        /// Part of the output.
        text: String,
    },
    /// End of a program.
    Ended {
        /// Index in the plan.
        program: usize,
        /// Exit code; -1 after a signal; None if the program ran until the run ended.
        code: Option<i32>,
        /// Last lines of its standard error.
        errors: String,
        /// The output was longer than [`MAX_OUTPUT_BYTES`].
        cut: bool,
    },
    /// Totals of one watched queue, at the end.
    Queue(QueueResult),
    /// Counters of circuit switch and racks' qdiscs, at the end, if there is a [`Rotor`].
    Circuits(Circuits),
    /// Packets captured at a tap, both directions, in the order of passing.
    Packets {
        /// Index in the plan.
        tap: usize,
        /// Part of the packets.
        packets: Vec<Packet>,
    },
    /// Recording of tracepoints, if the plan has any; its pages follow.
    Trace(TraceHead),
    /// A page of the kernel's event ring buffer, in the format of `trace_pipe_raw`.
    TracePage {
        /// Processor.
        cpu: u32,
        /// Contents, hex.
        bytes: String,
    },
    /// Totals of all queues, at the end.
    Totals(Totals),
    /// Drops, and counters that disagree, at the end.
    Books {
        /// Drops by place and cause.
        dropped: Vec<Dropped>,
        /// Empty if every packet is accounted for.
        unbalanced: Vec<Unbalanced>,
    },
    /// Increases of kernel counters, summed over all hosts, by their names in nstat:
    /// `TcpExtTCPTimeouts`, and those of modules (`Tlt...`, `Unorc...`).
    Counters(BTreeMap<String, u64>),
    /// A kernel counter that should not have moved during the run: memory pressure, pruned or full
    /// receive queues.
    Suspect {
        /// Name in nstat.
        counter: String,
        /// Increase.
        delta: u64,
    },
    /// Reason why the results of this run are unreliable.
    Doubt {
        /// One sentence.
        what: String,
    },
    /// One line of KTAP from a selftest.
    Ktap {
        /// The line.
        line: String,
    },
    /// Fatal error of the guest.
    Error {
        /// One sentence: cause and, if known, remedy.
        what: String,
    },
    /// Last line of a guest that has finished its job.
    Done {
        /// Guest time that the traffic took, us.
        virtual_us: u64,
    },
}

/// Size of a network, and the memory that it needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSize {
    /// Namespaces.
    pub nodes: usize,
    /// Veth pairs.
    pub links: usize,
    /// Routes of all nodes.
    pub routes: usize,
    /// Memory that the guest's kernel and agent use for the network, bytes.
    pub memory_bytes: u64,
}

/// Packets that were dropped at one place for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The node.
    pub node: String,
    /// Device of the node; empty = its IP layer or sockets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// Cause.
    pub cause: Cause,
    /// Number of packets.
    pub packets: u64,
}

/// Reason for a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Queue of a router's port.
    Queue,
    /// Queue of a host's device.
    HostQueue,
    /// Link loss that the scenario configures.
    Link,
    /// Policer, or another action or program of tc.
    Action,
    /// Firewall of the node.
    Filter,
    /// Full socket buffer.
    Socket,
    /// Header or checksum that IP, TCP or UDP rejects, or an expired TTL.
    Malformed,
    /// No route, address or protocol for the packet in IP, or a packet above the MTU.
    Route,
    /// Device at the other end.
    Device,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 9] = [
        Self::Queue,
        Self::HostQueue,
        Self::Link,
        Self::Action,
        Self::Filter,
        Self::Socket,
        Self::Malformed,
        Self::Route,
        Self::Device,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::HostQueue => "host queue",
            Self::Link => "link",
            Self::Action => "policer or tc action",
            Self::Filter => "filter",
            Self::Socket => "socket",
            Self::Malformed => "malformed",
            Self::Route => "route",
            Self::Device => "device",
        }
    }
}

/// Two counters of one place that should agree, but do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unbalanced {
    /// The node.
    pub node: String,
    /// Device of the node; empty = the node as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// Names of the counters, in the order in which packets pass them.
    pub between: [String; 2],
    /// First counter minus the second.
    pub packets: i64,
}

/// Packet totals of all ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets dropped by queues.
    pub drops: u64,
    /// Packets marked CE by queues.
    pub marks: u64,
    /// Packets lost by links, as the topology or an event configures.
    pub losses: u64,
    /// Green packets dropped by phantom ports, for any reason.
    #[serde(default)]
    pub drops_green: u64,
    /// Bytes accepted by phantom ports: green, yellow, red.
    #[serde(default)]
    pub accepted_bytes: [u64; 3],
    /// Packets accepted by phantom ports that take colors from a source: green, yellow, red.
    #[serde(default)]
    pub accepted_packets: [u64; 3],
    /// Highest backlog of any phantom port, bytes.
    #[serde(default)]
    pub backlog_max_bytes: u64,
    /// Most red bytes queued in any phantom port.
    #[serde(default)]
    pub red_max_bytes: u64,
}

/// A recording of tracepoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHead {
    /// Name and `format` file of each tracepoint.
    pub formats: Vec<(String, String)>,
    /// Network namespace inode and name of each node, to find the node of an event.
    pub nodes: Vec<(u64, String)>,
    /// CLOCK_MONOTONIC at the traffic's start, ns; events use the same clock.
    pub origin_ns: u64,
    /// Events lost for lack of buffer space.
    pub missed: u64,
}

/// One TCP packet that passed a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Kernel's timestamp, ns since 1970.
    pub t_ns: u64,
    /// Whether it left by the port: after the queue, with its marks.
    pub outgoing: bool,
    /// Length on the wire, Ethernet header included.
    pub bytes: u32,
    /// Headers, from Ethernet's on, hex.
    pub head: String,
}

/// State at one time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Guest time since the traffic's start, us.
    pub t_us: u64,
    /// One entry per flow of the plan, in its order; empty without [`RunPlan::flow_series`].
    pub flows: Vec<FlowSample>,
    /// Flows that have started and not ended.
    #[serde(default)]
    pub active_flows: usize,
    /// Payload received so far, bytes. Without [`RunPlan::flow_series`], payload that receivers
    /// have read, which grows in large steps.
    #[serde(default)]
    pub received_bytes: u64,
    /// One entry per watched queue, in its order.
    pub queues: Vec<QueueSample>,
}

/// State of a flow from TCP_INFO of both ends. Zeroes before its start; the last values after its
/// end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// Whether the flow is open.
    pub active: bool,
    /// snd_cwnd, packets.
    pub cwnd_packets: u32,
    /// snd_cwnd x snd_mss, bytes.
    pub cwnd_bytes: u64,
    /// Smoothed RTT, us.
    pub srtt_us: u32,
    /// Payload received in order so far, bytes.
    pub received_bytes: u64,
    /// Retransmitted packets so far.
    pub retransmits: u64,
    /// Pacing rate, bits per second; 0 = not paced.
    pub pacing_bps: u64,
}

/// State of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSample {
    /// Physical backlog, bytes.
    pub backlog_bytes: u64,
    /// Phantom counter, bytes; None if the qdisc has none.
    pub phantom_bytes: Option<u64>,
    /// Packets dropped so far.
    pub drops: u64,
    /// Packets marked CE so far.
    pub marks: u64,
}

/// Result of one flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowResult {
    /// Index in the plan.
    pub flow: usize,
    /// Scheduled start, ns after the traffic's start; completion times count from here.
    pub start_ns: u64,
    /// Delay of the real start, ns.
    #[serde(default)]
    pub late_ns: u64,
    /// Last byte received, ns after the traffic's start; None if the run stopped earlier.
    pub end_ns: Option<u64>,
    /// ACK of the last byte at the sender, ns after the traffic's start; None for a connection that
    /// stays open, and for an ACK after the flow was closed.
    #[serde(default)]
    pub acked_ns: Option<u64>,
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Retransmission timeouts (tcpi_total_rto).
    pub timeouts: u64,
    /// Increases of `xdc_tcpinfo::COUNTERS`, in their order.
    #[serde(default)]
    pub counters: Vec<u64>,
    /// Smallest RTT that TCP saw, us.
    pub min_rtt_us: u32,
    /// Maximum segment size of the sender, bytes.
    pub mss_bytes: u32,
    /// Largest payload of a received packet, bytes; 0 = unknown. Below `mss_bytes` if every packet
    /// had options beside timestamps.
    #[serde(default)]
    pub payload_bytes: u32,
    /// Whether the flow began before the run stopped.
    #[serde(default = "yes")]
    pub started: bool,
    /// Sender's congestion control at the end, by the kernel's name; `dctcp-reno` is dctcp's
    /// fallback to Reno. Empty = unknown.
    #[serde(default)]
    pub cc: String,
    /// ECN at the end; None = unknown.
    #[serde(default)]
    pub ecn: Option<Ecn>,
    /// Samples during which the application was writing; and the ones in which the send buffer had
    /// no unsent full packet.
    #[serde(default)]
    pub writing: (u32, u32),
}

/// ECN of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecn {
    /// Not negotiated.
    None,
    /// RFC 3168: ECE until CWR.
    Rfc3168,
    /// AccECN: the receiver counts marks.
    Accurate,
    /// AccECN was negotiated, but one end cannot read the other's counters.
    AccurateFailed,
}

impl FlowResult {
    /// Returns the scheduled start, us after the traffic's start.
    pub fn start_us(&self) -> u64 {
        self.start_ns / 1000
    }

    /// Returns when the last byte was received, us after the traffic's start.
    pub fn end_us(&self) -> Option<u64> {
        self.end_ns.map(|ns| ns / 1000)
    }

    /// Returns the time from scheduled start to last byte received, ns.
    pub fn fct_ns(&self) -> Option<u64> {
        self.end_ns.map(|ns| ns.saturating_sub(self.start_ns))
    }

    /// Returns the time from scheduled start to the last byte's ACK, ns.
    pub fn fct_acked_ns(&self) -> Option<u64> {
        self.acked_ns.map(|ns| ns.saturating_sub(self.start_ns))
    }
}

/// Totals of one watched queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueResult {
    /// Index in the plan.
    pub queue: usize,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked CE.
    pub marks: u64,
    /// Highest backlog, bytes; None if the qdisc does not keep it.
    pub backlog_max_bytes: Option<u64>,
    /// Highest phantom occupancy, bytes; None if the qdisc does not keep it.
    pub phantom_max_bytes: Option<u64>,
}

/// Counters of the circuit switch and the racks' qdiscs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuits {
    /// Start of week 0, ns after the traffic's start.
    pub base_ns: i64,
    /// Bytes that the circuit switch forwarded per rack and week, without trailing zeroes.
    pub week_bytes: Vec<Vec<u64>>,
    /// Packets forwarded by the circuit switch.
    pub packets: u64,
    /// Packets that it dropped at night.
    pub night: u64,
    /// Packets that it dropped because their last bit would arrive after the day's end.
    pub cut: u64,
    /// Packets that it dropped because the circuit led to another rack.
    pub misdirected: u64,
    /// Counters of all racks' qdiscs by their names in `tc -s`: sums, but the maximum of
    /// `late_max_ns`.
    pub qdiscs: BTreeMap<String, u64>,
    /// Packets that a qdisc cannot account for; the largest difference of any.
    pub unaccounted: i64,
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
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_rack_are_aligned_blocks() {
        let blocks = |first_host, hosts| {
            let rack = Rack {
                first_host,
                hosts,
                ..Default::default()
            };
            rack.blocks()
        };
        assert_eq!(blocks(0, 8), [(0, 3)]);
        assert_eq!(blocks(8, 1), [(8, 0)]);
        assert_eq!(blocks(1, 6), [(1, 0), (2, 1), (4, 1), (6, 0)]);
        assert_eq!(blocks(3, 0), []);
    }

    #[test]
    fn a_sysctl_path_stays_in_its_folder() {
        let path = sysctl_path("net.ipv4.conf.all.rp_filter");
        assert_eq!(path.as_deref(), Some("ipv4/conf/all/rp_filter"));
        for name in [
            "/etc/crontab",
            ".etc.crontab",
            "net./etc/crontab",
            "net..etc.crontab",
            "net.ipv4/../../kernel/panic",
            "net.",
            "net",
            "",
            "kernel.core_pattern",
            "vm.swappiness",
            "net.ipv4.tcp_ecn\0",
            "net.ipv4.tcp_ecn ",
        ] {
            assert_eq!(sysctl_path(name), None, "{name}");
        }
    }
}
