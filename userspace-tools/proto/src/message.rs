// SPDX-License-Identifier: GPL-2.0
//! Messages from the guest to the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::*;

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
    /// Policer of the scenario.
    Policer,
    /// Action or program of tc.
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
    pub const ALL: [Self; 10] = [
        Self::Queue,
        Self::HostQueue,
        Self::Link,
        Self::Policer,
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
            Self::Policer => "policer",
            Self::Action => "tc action",
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
