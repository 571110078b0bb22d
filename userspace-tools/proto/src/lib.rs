// SPDX-License-Identifier: GPL-2.0
//! What the host and the guest say to each other.
//!
//! The host turns a scenario into one [`Plan`] per run and puts it, as JSON, into the guest's
//! initramfs (`/xdc/plan.json`). The guest answers with one [`Message`] per line, as JSON, into a
//! channel that is a plain file on the host. Neither side sends anything else.
//!
//! Units are in the names. Rates are bits per second on the wire, so a packet of `n` bytes of IP
//! occupies a link for `(n + 14) * 8 / rate` seconds: the Ethernet header counts, as it does for
//! every Linux qdisc; preamble, FCS and gap do not.

pub mod alarm;
pub mod defaults;
pub mod privileged;
pub mod rng;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// By this name a guest mounts the `root` of [`Job::Selftest`]: a tag of 9P (QEMU), a name in the
/// only folder that hostfs shows (UML).
pub const ROOT_SHARE: &str = "root";

/// By this name, in the same ways, the guest of [`Job::Shell`] has a folder that it may write to.
pub const SHARED_FOLDER: &str = "shared";

/// Version of this protocol; both sides are built together, and a mismatch is an error.
pub const VERSION: u32 = 1;

/// Flow `i` uses this port plus `i` at both ends.
pub const FIRST_PORT: u16 = 10_000;

/// So many flows have a port of their own.
pub const MAX_FLOWS: usize = (u16::MAX - FIRST_PORT) as usize + 1;

/// Everything one guest is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`] of the host.
    pub version: u32,
    /// Kernel modules to load before anything else, by name (`tcp_unocc`), in order.
    pub modules: Vec<String>,
    /// Parameters of modules, loaded or built in: (`tcp_vegas.alpha`, `20`). They are the whole
    /// kernel's, so only a guest's are set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<(String, String)>,
    /// Congestion controls to register. They are the whole kernel's, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bpf: Vec<BpfObject>,
    /// What to do.
    pub job: Job,
}

impl Plan {
    /// A job that needs no module.
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

/// An object file with struct_ops in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpfObject {
    /// For errors.
    pub name: String,
    /// In hex.
    pub bytes: String,
}

/// The work of one guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Job {
    /// Build the network, check its links, run the traffic, report, power off.
    Run(RunPlan),
    /// Build the network, then give the console to a shell, which can start the traffic.
    Shell(RunPlan),
    /// Run the executables in `/selftests` one after the other and forward their KTAP.
    Selftest {
        /// File names in `/selftests`, in order.
        tests: Vec<String>,
        /// Take the long form of each (`XDC_LONG=1` in its environment).
        long: bool,
        /// Of each of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<String>,
        /// A folder of the host that is their root, read-only; what they write stays in the
        /// guest's memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root: Option<PathBuf>,
    },
    /// Report [`Message::Hello`] and power off: used to probe an engine.
    Probe,
}

/// One experiment with one congestion control.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunPlan {
    /// The network.
    pub topology: Topology,
    /// TCP_CONGESTION of every flow that names no other.
    pub cc: String,
    /// The flows, in the order of their ids.
    pub flows: Vec<Flow>,
    /// The queues whose state is sampled.
    pub watch: Vec<WatchedQueue>,
    /// Time between two [`Message::Sample`]s, us.
    pub sample_us: u64,
    /// Stop the traffic at this time after its start, us; without it, when every flow has ended.
    pub stop_after_us: Option<u64>,
    /// Seeds everything random in the guest (start jitter; in virtual time its kernel, too).
    pub seed: u64,
    /// Where packets are captured, see [`Message::Packets`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<Tap>,
    /// Record these tracepoints of our modules, see [`Message::Trace`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    /// Real programs as traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// How links change, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Samples have every flow's state. With thousands of flows they had better not.
    #[serde(default = "yes")]
    pub flow_series: bool,
    /// Processors of an emulated machine; 0 = one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpus: u32,
}

impl RunPlan {
    /// Whatever a socket of the run may have, some more than once.
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
    /// Sysctls for every namespace, (`net.ipv4.tcp_ecn`, `3`), and those that only the initial
    /// namespace has (`net.ipv4.tcp_mem`, `net.core.*`): the agent writes them where they exist.
    pub sysctls: Vec<(String, String)>,
    /// Names of those that routers have no use for.
    #[serde(default)]
    pub of_hosts: Vec<String>,
    /// Congestion controls and qdiscs want microsecond RTTs after a retransmission too.
    pub tcp_usec_ts: bool,
    /// Set `quickack 1` on every route: one ACK per packet.
    pub quickack: bool,
    /// TSO, GSO and GRO: without it TCP hands links single packets.
    #[serde(default)]
    pub offload: bool,
    /// Addresses are of IPv6.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ipv6: bool,
    /// Routers use every shortest path, not just the first.
    #[serde(default)]
    pub ecmp: bool,
    /// Routes choose the congestion control, instead of [`RunPlan::cc`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congctl: Option<Congctl>,
    /// Between hosts; flows that say so go through them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<Tunnel>,
    /// A circuit switch beside the packet network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotor: Option<Rotor>,
}

impl Topology {
    /// The direction of a link from one node to its neighbour; of parallel ones the first, or, for
    /// `NEIGHBOUR.1` and so on, another.
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

/// An optical circuit switch that joins racks in pairs by a timetable. A rack's switch has a bond of two
/// uplinks in the place of its link to the packet network's router: that link, and one to the circuit switch.
/// The queue of that link is the bond's qdisc, `acceltor`; what a [`Rotor`] says need not be among its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotor {
    /// The circuit switch: a node without links.
    pub switch: String,
    /// The router of the packet network.
    pub packet: String,
    /// The racks, from 0 on.
    pub racks: Vec<Rack>,
    /// How long a circuit lasts, ns.
    pub day_ns: u64,
    /// Until the next one, ns.
    pub night_ns: u64,
    /// Of a circuit.
    pub rate_bps: u64,
    /// Weeks that the circuit switch counts one by one; what comes later is in the last.
    pub weeks: u32,
}

impl Rotor {
    /// A day and its night, ns.
    pub fn slot_ns(&self) -> u64 {
        self.day_ns + self.night_ns
    }

    /// Until each pair of racks has had its day, ns.
    pub fn week_ns(&self) -> u64 {
        self.slot_ns() * self.racks.len().saturating_sub(1) as u64
    }

    /// What a circuit carries in a day, bytes.
    pub fn day_bytes(&self) -> f64 {
        self.rate_bps as f64 * self.day_ns as f64 / 8e9
    }
}

/// Hosts and their switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// The switch.
    pub switch: String,
    /// Its hosts are neighbours in the order of all: the first one's number, and how many there are.
    pub first_host: u32,
    /// See `first_host`.
    pub hosts: u32,
}

impl Rack {
    /// Numbers of hosts as the fewest blocks: the first of each, and by how many bits the others differ.
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

/// Prefixes that a qdisc acceltor takes.
pub const MAX_PREFIXES: usize = 140;

/// A device of kind unorc at each of two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// One host.
    pub a: String,
    /// The other.
    pub b: String,
    /// UDP port of both.
    pub port: u16,
    /// The rest, in the words of ip: `paths reps fec off`.
    pub options: Vec<String>,
}

/// Bytes before a packet in a tunnel: IPv4, UDP, and unorc's header.
pub const TUNNEL_HEADER_BYTES: u32 = 20 + 8 + 16;

/// Bytes by which a tunnel's MTU is less than its path's: a parity is two longer than the longest packet.
pub const TUNNEL_MTU_LESS: u32 = TUNNEL_HEADER_BYTES + 2;

impl Topology {
    /// A pure ACK with timestamps, bytes of IP: the answer of a link check, and of a base RTT.
    pub fn ack_bytes(&self) -> u32 {
        const TCP_BYTES: u32 = 32;
        self.ip_header_bytes() + TCP_BYTES
    }

    /// Without options.
    pub fn ip_header_bytes(&self) -> u32 {
        match self.ipv6 {
            true => 40,
            false => 20,
        }
    }
}

/// `ip route ... congctl NAME` of hosts, by where the route leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Congctl {
    /// To hosts of the same [`Node::site`].
    pub inside: String,
    /// To others.
    pub across: String,
}

impl Congctl {
    /// Of a route, by whether it leads to another site.
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
    /// Forwards packets.
    pub router: bool,
    /// Sysctls of this namespace alone, after those of the topology.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Shell commands to run here, in order, once the network is up and before its links are
    /// checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// A router that chooses among shortest paths packet by packet.
    #[serde(default)]
    pub spray: bool,
    /// Which datacenter a host is in, where [`Topology::congctl`] wants to know.
    #[serde(default)]
    pub site: u32,
    /// `initcwnd` of its routes, packets; 0 = the kernel's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initcwnd: u32,
    /// `initrwnd` of its routes, packets; 0 = the kernel's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initrwnd: u32,
}

/// A veth pair. Each direction is: queue, serialisation at `rate_bps`, propagation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// One end.
    pub a: String,
    /// The other end.
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
    /// Serialisation rate; 0 = infinitely fast.
    pub rate_bps: u64,
    /// Propagation delay, ns.
    pub delay_ns: u64,
    /// The queue in front of the link. Without one it is a FIFO that never drops.
    pub queue: Option<Queue>,
    /// What goes wrong on the way, once the links have been checked.
    #[serde(default)]
    pub faults: Option<Faults>,
}

/// Damage that netem does to a direction, before its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Of netem's random numbers, so that a run can be repeated.
    pub seed: u64,
    /// Packets lost, ppm.
    pub loss_ppm: u32,
    /// Packets that overtake those before them, by the direction's delay, ppm.
    pub reorder_ppm: u32,
    /// Extra delay of each packet, uniform in 0..=jitter, ns. Packets stay in order.
    #[serde(default)]
    pub jitter_ns: u64,
}

/// Ethernet header, bytes: what a packet occupies on a link beyond its IP length.
pub const ETHERNET_HEADER_BYTES: u32 = 14;

impl Direction {
    /// Time that a packet of `bytes` of IP takes through this direction when it is idle, ns.
    ///
    /// A queue is a shaper: it lets a packet go at once and makes the next one wait, so in a
    /// direction with a queue an idle link adds propagation only. Base RTTs are sums of this.
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
/// The delay of the direction is a `netem` root in front of the queue (its documented child
/// recipe), so that propagation costs no extra device; the sum along a path is what it would be
/// with the delay behind the queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Queue {
    /// sch_phantom, shaped to the link's rate.
    Phantom(PhantomQueue),
    /// Any other, or phantom with all its options, in the words of tc. What does not shape by
    /// itself has an htb of the link's rate above it.
    Tc(TcQueue),
}

impl Queue {
    /// The discipline is ours.
    pub fn is_phantom(&self) -> bool {
        match self {
            Self::Phantom(_) => true,
            Self::Tc(queue) => queue.kind == "phantom",
        }
    }

    /// The agent makes it by itself, without tc.
    pub fn is_made_by_agent(&self) -> bool {
        let is_bond = matches!(self, Self::Tc(queue) if queue.kind == ACCELTOR);
        self.is_phantom() || is_bond
    }
}

/// A queue discipline as `tc qdisc add dev DEVICE KIND WORDS...` takes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TcQueue {
    /// `fq_codel`
    #[serde(rename = "qdisc")]
    pub kind: String,
    /// `limit`, `1000`, `ecn`
    pub words: Vec<String>,
    /// Where phantom's random numbers start, if its words do not say; without it, anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Options of sch_phantom that a scenario sets; the rest keeps the module's defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct PhantomQueue {
    /// Physical queue, bytes.
    pub limit_bytes: u32,
    /// Phantom queue's cap, bytes.
    pub phantom_bytes: Option<u64>,
    /// Phantom drain rate as parts per million of the link's rate.
    pub drain_ppm: Option<u32>,
    /// RED thresholds on the phantom counter, ppm of its cap.
    pub pmin_ppm: Option<u32>,
    /// See `pmin_ppm`.
    pub pmax_ppm: Option<u32>,
    /// RED thresholds on the physical backlog, ppm of its limit.
    pub min_ppm: Option<u32>,
    /// See `min_ppm`.
    pub max_ppm: Option<u32>,
    /// Which queue marks.
    pub mark: Option<Mark>,
    /// Where RED's random numbers start; without it, anywhere.
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
    /// In plans, in scenarios, and among the words of tc.
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
    /// Congestion control of the sender, if not the run's.
    pub cc: Option<String>,
    /// Congestion control of the receiver, if not the run's.
    #[serde(default)]
    pub receiver_cc: Option<String>,
    /// The sender changes its congestion control at these times.
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// The application writes this much at a time, bytes; 0 = all at once.
    #[serde(default)]
    pub burst_bytes: u64,
    /// Time from the start of one burst to the next, us.
    #[serde(default)]
    pub period_us: u64,
    /// It takes a connection that an earlier such flow between its hosts has left idle, if there
    /// is one, and leaves its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
    /// DSCP of its packets, both ways.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dscp: u8,
    /// The receiver tells of its window before the flow starts, by a byte: a SYN-ACK cannot tell of
    /// more than 64 kB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_known: bool,
    /// It goes through the tunnel between its hosts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tunnel: bool,
    /// SO_SNDBUF, bytes; 0 = leave it to autotuning.
    pub sndbuf_bytes: u64,
    /// SO_RCVBUF, bytes; 0 = leave it to autotuning.
    pub rcvbuf_bytes: u64,
    /// Path RTT that the topology configures for a full packet and its ACK, us: what the link
    /// check measures against.
    pub base_rtt_us: f64,
    /// Time from first send to last byte received that the path takes when it is idle and the
    /// sender never waits, ns. 0 for a flow without end.
    #[serde(default)]
    pub ideal_ns: u64,
    /// What an ACK takes back on the idle path, ns.
    #[serde(default)]
    pub ack_ns: u64,
    /// `ideal_ns` if each packet has AccECN's option; 0 if its hosts do not use the option.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ideal_accecn_ns: u64,
}

/// TCP_CONGESTION on an open socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Switch {
    /// After the flow's start, us.
    pub after_us: u64,
    /// To this one.
    pub cc: String,
}

/// A shell command beside the flows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it runs. `$UPLINK` is its first device there, `$HOST` the address of each host.
    pub node: String,
    /// For `sh -c`.
    pub command: String,
    /// Time after the traffic's start, us.
    pub start_us: u64,
    /// The run does not wait for its end.
    #[serde(default)]
    pub daemon: bool,
    /// Lines of its output that are numbers are samples of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<String>,
}

/// What a program may have written that is kept, bytes.
pub const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// A change of links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time after the traffic's start, us.
    pub at_us: u64,
    /// The directions that change.
    pub ends: Vec<End>,
    /// To what.
    pub change: Change,
}

/// The start of a link's direction: the device of `node` called `port`, after its neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// A node.
    pub node: String,
    /// `bx`, or `bx.1` for the second of parallel links.
    pub port: String,
}

/// What becomes of a direction. Its queue and what is on the way stay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// It loses every packet.
    Down,
    /// It is as it was before it went down.
    Up,
    /// Another serialisation rate.
    Rate {
        /// Bits per second.
        bps: u64,
    },
    /// Another propagation delay.
    Delay {
        /// Nanoseconds.
        ns: u64,
    },
    /// Packets lost at random.
    Loss {
        /// Of a million.
        ppm: u32,
    },
    /// Of each ten packets one, two or three are lost.
    BurstLoss {
        /// Of a million blocks of ten: those that lose one, two, three.
        ppm: [u32; 3],
        /// Of the places.
        seed: u64,
    },
}

/// A port whose packets are sent, both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// Namespace that holds the device.
    pub node: String,
    /// The device: `bx`, or `bx.1` for the second of parallel links.
    pub port: String,
    /// Every packet, not only TCP over IPv4.
    #[serde(default)]
    pub all: bool,
}

/// Bytes of a captured packet with what the kernel says of it.
pub const FRAME_BYTES: usize = 256;

/// Packets that the guest keeps of each of so many taps, from one sample to the next.
pub fn tap_frames(taps: usize) -> usize {
    const ALL: usize = 1 << 19;
    (ALL / taps.max(1).next_power_of_two()).clamp(1 << 13, 1 << 17)
}

/// A queue to sample: the egress of `node` on its link to `peer`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchedQueue {
    /// Name in tables and plots.
    pub name: String,
    /// Namespace that holds the device.
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
    /// What the guest is doing now, for a progress line.
    Progress {
        /// A few words.
        what: String,
        /// 0 to 1.
        done: f64,
    },
    /// The guest starts to build the network; [`Message::Network`] follows. In virtual time only
    /// the host can tell how long that takes.
    Building,
    /// The network is up.
    Network(NetworkSize),
    /// One measured path, before the traffic.
    LinkCheck {
        /// Sending host.
        src: String,
        /// Receiving host.
        dst: String,
        /// What the topology configures, us.
        configured_rtt_us: f64,
        /// Smallest of a few probes of one full-size packet answered by a small one, us.
        measured_rtt_us: f64,
    },
    /// State of every flow and watched queue at one moment.
    Sample(Sample),
    /// A flow has ended, or the run has stopped.
    Flow(FlowResult),
    /// Something that a program has written to its standard output; all of it comes when the run
    /// ends, and then its [`Message::Ended`].
    Output {
        /// Index in the plan.
        program: usize,
        /// Some of it.
        text: String,
    },
    /// How a program ended.
    Ended {
        /// Index in the plan.
        program: usize,
        /// Its exit code; -1 after a signal; None if it ran until the run was over.
        code: Option<i32>,
        /// The last lines of its standard error.
        errors: String,
        /// It wrote more than [`MAX_OUTPUT_BYTES`].
        cut: bool,
    },
    /// Totals of one watched queue at the end.
    Queue(QueueResult),
    /// Of the circuit switch and the racks' qdiscs at the end, where there is a [`Rotor`].
    Circuits(Circuits),
    /// Packets at a tap, both directions, in the order they passed.
    Packets {
        /// Index in the plan.
        tap: usize,
        /// Some of them.
        packets: Vec<Packet>,
    },
    /// What was recorded of tracepoints, where the plan says to; the pages follow.
    Trace(TraceHead),
    /// A page of the kernel's ring buffer of events, as `trace_pipe_raw` has it.
    TracePage {
        /// The processor's.
        cpu: u32,
        /// In hex.
        bytes: String,
    },
    /// Of all queues of the network, at the end.
    Totals(Totals),
    /// Where packets were dropped, and where counters disagree, at the end.
    Books {
        /// By place and cause.
        dropped: Vec<Dropped>,
        /// None if every packet is accounted for.
        unbalanced: Vec<Unbalanced>,
    },
    /// By how much counters of the guest's kernel have grown, all hosts together, by their names in nstat:
    /// `TcpExtTCPTimeouts`, and those of modules (`Tlt...`, `Unorc...`).
    Counters(BTreeMap<String, u64>),
    /// A counter of the guest's kernel that moved during the run and should not have
    /// (memory pressure, pruned or full receive queues).
    Suspect {
        /// Its name in nstat.
        counter: String,
        /// By how much.
        delta: u64,
    },
    /// Why the figures of this run are not reliable, in words.
    Doubt {
        /// One sentence.
        what: String,
    },
    /// One line of KTAP from a selftest.
    Ktap {
        /// The line.
        line: String,
    },
    /// The guest gives up.
    Error {
        /// One sentence: cause and, where known, what to do.
        what: String,
    },
    /// Last line of a guest that finished its job.
    Done {
        /// Guest time that the traffic took, us.
        virtual_us: u64,
    },
}

/// What a network consists of, and what it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSize {
    /// Namespaces.
    pub nodes: usize,
    /// Veth pairs.
    pub links: usize,
    /// Routes, all nodes together.
    pub routes: usize,
    /// Memory that the guest's kernel and agent took for it, bytes.
    pub memory_bytes: u64,
}

/// Packets that were dropped at one place for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The node.
    pub node: String,
    /// A device of the node; empty = the node's IP or its sockets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// Why.
    pub cause: Cause,
    /// How many.
    pub packets: u64,
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The queue of a router's port.
    Queue,
    /// The queue of a host's own device.
    HostQueue,
    /// A link that loses packets because the scenario says so.
    Link,
    /// A policer, or another action or program of tc.
    Action,
    /// A firewall of the node.
    Filter,
    /// No room in a socket.
    Socket,
    /// A header or checksum that IP, TCP or UDP refuses, or a TTL that expired.
    Malformed,
    /// IP has no route, no address or no protocol for it, or it does not fit the MTU.
    Route,
    /// The device at the other end did not take it.
    Device,
}

impl Cause {
    /// Each of them.
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

    /// In tables.
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

/// Two counters of a place that should agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unbalanced {
    /// The node.
    pub node: String,
    /// A device of the node; empty = the node as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// Names of the counters, in the order in which a packet passes them.
    pub between: [String; 2],
    /// How many the first has more than the second.
    pub packets: i64,
}

/// What happened to packets at all ports together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets that a queue dropped.
    pub drops: u64,
    /// Packets that a queue marked CE.
    pub marks: u64,
    /// Packets that a link lost, as the topology or an event asked it to.
    pub losses: u64,
    /// Green packets that a phantom port dropped, whatever the reason.
    #[serde(default)]
    pub drops_green: u64,
    /// Bytes that phantom ports accepted: green, yellow, red.
    #[serde(default)]
    pub accepted_bytes: [u64; 3],
    /// Packets that phantom ports accepted whose colours have a source: green, yellow, red.
    #[serde(default)]
    pub accepted_packets: [u64; 3],
    /// The highest backlog of any phantom port, bytes.
    #[serde(default)]
    pub backlog_max_bytes: u64,
    /// Most red bytes in the queue of any phantom port.
    #[serde(default)]
    pub red_max_bytes: u64,
}

/// A recording of tracepoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHead {
    /// Name and `format` file of each tracepoint.
    pub formats: Vec<(String, String)>,
    /// Inode and name of each node's network namespace: events say where they happened.
    pub nodes: Vec<(u64, String)>,
    /// CLOCK_MONOTONIC at the traffic's start, ns. So are the events' times.
    pub origin_ns: u64,
    /// Events that there was no room for.
    pub missed: u64,
}

/// One TCP packet as it passed a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// The kernel's time of its passing, ns since 1970.
    pub t_ns: u64,
    /// It left by the port: after the queue, marks included.
    pub outgoing: bool,
    /// Length on the wire, from the Ethernet header on.
    pub bytes: u32,
    /// The headers, from Ethernet's on, in hex.
    pub head: String,
}

/// State at one moment after the traffic's start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Guest time since the traffic's start, us.
    pub t_us: u64,
    /// One entry per flow of the plan, in its order; none without [`RunPlan::flow_series`].
    pub flows: Vec<FlowSample>,
    /// Flows that have started and not ended.
    #[serde(default)]
    pub active_flows: usize,
    /// Payload that has arrived so far; without a series of flows what their receivers have read,
    /// which is large pieces.
    #[serde(default)]
    pub received_bytes: u64,
    /// One entry per watched queue, in its order.
    pub queues: Vec<QueueSample>,
}

/// From TCP_INFO of both ends. Zeroes before a flow starts; the last values after it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// The flow is open.
    pub active: bool,
    /// snd_cwnd, packets.
    pub cwnd_packets: u32,
    /// snd_cwnd x snd_mss.
    pub cwnd_bytes: u64,
    /// Smoothed RTT, us.
    pub srtt_us: u32,
    /// Payload received in order so far, bytes.
    pub received_bytes: u64,
    /// Retransmitted packets so far.
    pub retransmits: u64,
    /// Pacing rate, bits per second (0 = not paced).
    pub pacing_bps: u64,
}

/// One queue at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSample {
    /// Physical backlog, bytes.
    pub backlog_bytes: u64,
    /// Phantom counter, bytes; None where the qdisc has none.
    pub phantom_bytes: Option<u64>,
    /// Packets dropped so far.
    pub drops: u64,
    /// Packets marked CE so far.
    pub marks: u64,
}

/// The fate of one flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowResult {
    /// Index in the plan.
    pub flow: usize,
    /// When it was to start, ns after the traffic's start: its completion time counts from there.
    pub start_ns: u64,
    /// How much later it did, ns.
    #[serde(default)]
    pub late_ns: u64,
    /// Last byte received, ns after the traffic's start; None if the run stopped first.
    pub end_ns: Option<u64>,
    /// Its ACK at the sender, ns after the traffic's start; None of a connection that stays open,
    /// and of an ACK that came after the flow was let go.
    #[serde(default)]
    pub acked_ns: Option<u64>,
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Retransmission timeouts (tcpi_total_rto).
    pub timeouts: u64,
    /// `xdc_tcpinfo::COUNTERS`, in their order: by how much each grew.
    #[serde(default)]
    pub counters: Vec<u64>,
    /// Smallest RTT that TCP saw, us.
    pub min_rtt_us: u32,
    /// Maximum segment size of the sender, bytes.
    pub mss_bytes: u32,
    /// Largest payload of a packet that the receiver got, bytes; 0 = unknown. It is below
    /// `mss_bytes` if every packet had more options than timestamps.
    #[serde(default)]
    pub payload_bytes: u32,
    /// The flow began before the run stopped.
    #[serde(default = "yes")]
    pub started: bool,
    /// Congestion control of the sender at the end, by the kernel's name: `dctcp-reno` is the Reno
    /// that dctcp falls back to. Empty = unknown.
    #[serde(default)]
    pub cc: String,
    /// ECN at the end; None = unknown.
    #[serde(default)]
    pub ecn: Option<Ecn>,
    /// Samples at which the application was writing, and those of them at which the send buffer
    /// had no packet left to send.
    #[serde(default)]
    pub writing: (u32, u32),
}

/// ECN of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecn {
    /// The handshake agreed on none.
    None,
    /// RFC 3168: ECE until CWR.
    Rfc3168,
    /// The receiver counts marks.
    Accurate,
    /// AccECN was agreed on, and one end cannot read the counters of the other.
    AccurateFailed,
}

impl FlowResult {
    /// First send, us after the traffic's start.
    pub fn start_us(&self) -> u64 {
        self.start_ns / 1000
    }

    /// Last byte received, us after the traffic's start.
    pub fn end_us(&self) -> Option<u64> {
        self.end_ns.map(|ns| ns / 1000)
    }

    /// First send to last byte received, ns.
    pub fn fct_ns(&self) -> Option<u64> {
        self.end_ns.map(|ns| ns.saturating_sub(self.start_ns))
    }

    /// First send to the last byte's ACK, ns.
    pub fn fct_acked_ns(&self) -> Option<u64> {
        self.acked_ns.map(|ns| ns.saturating_sub(self.start_ns))
    }
}

/// Totals of one watched queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueResult {
    /// Index in the plan.
    pub queue: usize,
    /// Packets sent on.
    pub sent_packets: u64,
    /// Bytes sent on.
    pub sent_bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked CE.
    pub marks: u64,
    /// Highest backlog, bytes, where the qdisc keeps it.
    pub backlog_max_bytes: Option<u64>,
    /// Highest phantom occupancy, bytes, where the qdisc keeps it.
    pub phantom_max_bytes: Option<u64>,
}

/// What the circuit switch and the racks' qdiscs counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuits {
    /// The start of week 0, ns after the traffic's start.
    pub base_ns: i64,
    /// Of each rack, what the circuit switch sent on for it: bytes of each week, trailing zeroes left out.
    pub week_bytes: Vec<Vec<u64>>,
    /// Packets that the circuit switch sent on.
    pub packets: u64,
    /// Packets that it lost since they came at night.
    pub night: u64,
    /// Since their day ended before their last bit came.
    pub cut: u64,
    /// Since they were for another rack than the circuit's.
    pub misdirected: u64,
    /// Of the qdiscs of all racks together, by their names in `tc -s`; of `late_max_ns` the largest.
    pub qdiscs: BTreeMap<String, u64>,
    /// Packets that a qdisc cannot account for, the worst of all.
    pub unaccounted: i64,
}

/// Room for any window of an experiment. It is the whole machine's, so a run on the host leaves it.
pub const TCP_MEM: (&str, &str) = ("net.ipv4.tcp_mem", "2000000 3000000 4000000");

/// Where a sysctl of a network namespace lies below /proc/sys/net; None for any other name. Names
/// are `net.` and words of letters, digits, `_` and `-` with dots between them.
pub fn sysctl_path(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words: Vec<_> = name.strip_prefix("net.")?.split('.').collect();
    let all_plain = |word: &&str| !word.is_empty() && word.chars().all(plain);
    words.iter().all(all_plain).then(|| words.join("/"))
}

/// Bytes in a message.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What [`to_hex`] was given; None of anything else.
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
    fn the_hosts_of_a_rack_are_few_blocks() {
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
    fn a_sysctl_leads_to_no_file_outside_its_folder() {
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
