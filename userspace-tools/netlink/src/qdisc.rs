// SPDX-License-Identifier: GPL-2.0
//! Queue disciplines: attach, change, remove, and read their statistics.

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Nla};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcHeader, TcMessage, TcOption, TcStats2},
};

use crate::{
    attributes::Attributes,
    connection::{Connection, Request, Result},
};

pub use netlink_packet_route::tc::TcHandle as Handle;

const TCA_OPTIONS: u16 = 2;

/// Flag of nested attributes, which strict parsers require.
const NLA_F_NESTED: u16 = 1 << 15;

/// Tick of the packet scheduler's clock (PSCHED_SHIFT 6), ns.
const TICK_NS: u64 = 64;

/// TC_LINKLAYER_ETHERNET: the kernel computes transmission times without a rate table.
const LINKLAYER_ETHERNET: u8 = 1;

/// A qdisc (or a class of htb) to create.
#[derive(Debug, Clone)]
pub struct Qdisc {
    /// Device.
    pub index: u32,
    /// `Handle::ROOT`, or a class of another qdisc.
    pub parent: Handle,
    /// Own handle, `N:0`; unspecified = the kernel chooses.
    pub handle: Handle,
    /// `phantom`, `netem`, ...
    pub kind: &'static str,
    /// TCA_OPTIONS.
    pub options: Vec<u8>,
}

impl Qdisc {
    /// `tc qdisc add`: fails if one exists.
    pub fn add(&self) -> Request {
        self.new_qdisc("add", NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `tc qdisc replace`: creates or replaces.
    pub fn replace(&self) -> Request {
        self.new_qdisc("replace", NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// `tc qdisc change`: changes an existing qdisc.
    pub fn change(&self) -> Request {
        self.new_qdisc("change", 0)
    }

    /// `tc class add`, for a classful parent.
    pub fn add_class(&self) -> Request {
        Request {
            what: format!("add the {} class {}", self.kind, self.handle),
            message: RouteNetlinkMessage::NewTrafficClass(self.message()),
            flags: NLM_F_CREATE | NLM_F_EXCL,
        }
    }

    /// `tc class change`.
    pub fn change_class(&self) -> Request {
        Request {
            what: format!("change the {} class {}", self.kind, self.handle),
            message: RouteNetlinkMessage::NewTrafficClass(self.message()),
            flags: 0,
        }
    }

    fn new_qdisc(&self, verb: &str, flags: u16) -> Request {
        Request {
            what: format!("{verb} the qdisc {}", self.kind),
            message: RouteNetlinkMessage::NewQueueDiscipline(self.message()),
            flags,
        }
    }

    fn message(&self) -> TcMessage {
        let mut attributes = vec![TcAttribute::Kind(self.kind.to_string())];
        if !self.options.is_empty() {
            attributes.push(TcAttribute::Other(DefaultNla::new(
                TCA_OPTIONS | NLA_F_NESTED,
                self.options.clone(),
            )));
        }
        TcMessage::from_parts(
            TcHeader {
                index: self.index as i32,
                parent: self.parent,
                handle: self.handle,
                ..Default::default()
            },
            attributes,
        )
    }
}

/// `tc qdisc add dev ... clsact`, to which BPF programs are attached. Keeps an existing clsact.
pub fn clsact(index: u32) -> Request {
    Qdisc {
        index,
        parent: Handle::CLSACT,
        handle: Handle { major: 0xffff, minor: 0 },
        kind: "clsact",
        options: Vec::new(),
    }
    .new_qdisc("add", NLM_F_CREATE)
}

/// `tc qdisc del`.
pub fn delete(index: u32, parent: Handle) -> Request {
    Request {
        what: "delete the qdisc".to_string(),
        message: RouteNetlinkMessage::DelQueueDiscipline(TcMessage::from_parts(
            TcHeader { index: index as i32, parent, ..Default::default() },
            Vec::new(),
        )),
        flags: 0,
    }
}

/// An existing qdisc and its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QdiscState {
    /// Device.
    pub index: u32,
    /// Parent of the qdisc.
    pub parent: Handle,
    /// Handle of the qdisc.
    pub handle: Handle,
    /// `phantom`, `netem`, ...
    pub kind: String,
    /// TCA_OPTIONS as dumped.
    pub options: Vec<u8>,
    /// TCA_STATS_APP: statistics of this kind of qdisc.
    pub xstats: Vec<u8>,
    /// Sent packets.
    pub sent_packets: u64,
    /// Sent bytes.
    pub sent_bytes: u64,
    /// Queued bytes.
    pub backlog_bytes: u64,
    /// Queued packets.
    pub backlog_packets: u64,
    /// Dropped packets.
    pub drops: u64,
    /// Times that the qdisc had a packet but could not send it.
    pub overlimits: u64,
    /// Times that the device returned a packet.
    pub requeues: u64,
}

const LIST: &str = "list the qdiscs";

fn filter(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index as i32))
}

/// Dumps the qdiscs of every device as raw messages, for another program.
pub fn dump_bytes(connection: &mut Connection) -> Result<Vec<u8>> {
    connection.dump_bytes(LIST, filter(0))
}

/// Dumps the qdiscs of a device, or of all devices if `index` is 0.
pub fn dump(connection: &mut Connection, index: u32) -> Result<Vec<QdiscState>> {
    let found = connection.dump(LIST, filter(index))?;
    Ok(found
        .into_iter()
        .filter_map(QdiscState::of)
        .filter(|state| index == 0 || state.index == index)
        .collect())
}

impl From<TcMessage> for QdiscState {
    fn from(message: TcMessage) -> Self {
        let mut state = QdiscState {
            index: message.header.index as u32,
            parent: message.header.parent,
            handle: message.header.handle,
            ..Default::default()
        };
        for attribute in message.attributes {
            match attribute {
                TcAttribute::Kind(kind) => state.kind = kind,
                TcAttribute::Options(options) => state.options = option_bytes(&options),
                TcAttribute::Stats2(stats) => stats.into_iter().for_each(|s| state.apply(s)),
                _ => {}
            }
        }
        state
    }
}

impl QdiscState {
    /// Converts a message about a qdisc; None for any other message.
    pub fn of(message: RouteNetlinkMessage) -> Option<Self> {
        match message {
            RouteNetlinkMessage::NewQueueDiscipline(message) => Some(Self::from(message)),
            _ => None,
        }
    }

    fn apply(&mut self, stats: TcStats2) {
        const TCA_STATS_PKT64: u16 = 8;
        match stats {
            TcStats2::Basic(basic) => {
                self.sent_bytes = basic.bytes;
                self.sent_packets = self.sent_packets.max(basic.packets.into());
            }
            TcStats2::Queue(queue) => {
                self.backlog_packets = queue.qlen.into();
                self.backlog_bytes = queue.backlog.into();
                self.drops = queue.drops.into();
                self.overlimits = queue.overlimits.into();
                self.requeues = queue.requeues.into();
            }
            TcStats2::App(xstats) => {
                self.xstats = vec![0; xstats.buffer_len()];
                xstats.emit(&mut self.xstats);
            }
            TcStats2::Other(other) if other.kind() == TCA_STATS_PKT64 => {
                let mut value = vec![0; other.value_len()];
                other.emit_value(&mut value);
                self.sent_packets = u64_at(&value, 0).unwrap_or(self.sent_packets);
            }
            _ => {}
        }
    }

    /// Returns the packets marked CE, for kinds that count them. Offsets are of counters in the statistics
    /// structs of include/uapi/linux/pkt_sched.h.
    pub fn marks(&self) -> Option<u64> {
        let sum = |offsets: &[usize]| -> u64 {
            let counters = offsets.iter().filter_map(|&at| u32_at(&self.xstats, at));
            counters.map(u64::from).sum()
        };
        match self.kind.as_str() {
            "red" | "choke" => Some(sum(&[12])),
            // ecn_mark and ce_mark; fq_codel's struct begins with a type.
            "codel" => Some(sum(&[24, 32])),
            "fq_codel" => Some(sum(&[12, 28])),
            "pie" => Some(sum(&[36])),
            "fq_pie" => Some(sum(&[16])),
            // ecn_mark includes step_marks.
            "dualpi2" => Some(sum(&[24])),
            "sfb" => Some(sum(&[20])),
            "fq" => u64_at(&self.xstats, 80),
            _ => None,
        }
    }
}

/// Returns dumped options as raw bytes. Unknown kinds arrive as one TCA_OPTIONS attribute.
fn option_bytes(options: &[TcOption]) -> Vec<u8> {
    if let [TcOption::Other(whole)] = options
        && whole.kind() == TCA_OPTIONS
    {
        let mut value = vec![0; whole.value_len()];
        whole.emit_value(&mut value);
        return value;
    }
    let mut bytes = vec![0; options.buffer_len()];
    options.emit(&mut bytes);
    bytes
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// Options of netem: a link with serialization, propagation and faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Netem {
    /// Serialization rate; 0 = unlimited.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Largest deviation from the delay. Without a rate, jitter reorders packets. Not together with
    /// `reorder_ppm`.
    pub jitter_ns: u64,
    /// Limit of the queue, including packets in flight.
    pub limit_packets: u32,
    /// Packets lost at random, ppm.
    pub loss_ppm: u32,
    /// Packets sent without delay, so that they overtake others, ppm. Not together with a rate, which keeps
    /// the order.
    pub reorder_ppm: u32,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
}

impl Netem {
    /// Encodes TCA_OPTIONS.
    pub fn encode(&self) -> Vec<u8> {
        const TCA_NETEM_DELAY_DIST: u16 = 2;
        const TCA_NETEM_RATE: u16 = 6;
        const TCA_NETEM_RATE64: u16 = 8;
        const TCA_NETEM_LATENCY64: u16 = 10;
        const TCA_NETEM_JITTER64: u16 = 11;
        const TCA_NETEM_PRNG_SEED: u16 = 14;

        // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.
        let loss = probability(self.loss_ppm);
        let mut qopt = Vec::new();
        for field in [0, self.limit_packets, loss, 0, 0, 0] {
            qopt.extend_from_slice(&field.to_ne_bytes());
        }
        let mut options = Attributes::after(qopt);
        options.push(TCA_NETEM_LATENCY64, &self.delay_ns.to_ne_bytes());
        // netem's own reordering would enqueue a packet in the child, which may be a shaper, behind others.
        // A delay with two values lets it overtake before the child.
        let jitter_ns = match self.reorder_ppm {
            0 => self.jitter_ns,
            _ => self.delay_ns,
        };
        if jitter_ns > 0 {
            options.push(TCA_NETEM_JITTER64, &jitter_ns.to_ne_bytes());
        }
        if self.reorder_ppm > 0 {
            options.push(TCA_NETEM_DELAY_DIST, &two_delays(self.reorder_ppm));
        }
        if self.rate_bps > 0 {
            let bytes_per_s = self.rate_bps / 8;
            // struct tc_netem_rate: rate, packet_overhead, cell_size, cell_overhead. The kernel reads
            // RATE64 only if 32 bits do not suffice.
            let mut rate = [0; 16];
            let low = u32::try_from(bytes_per_s).unwrap_or(u32::MAX);
            rate[..4].copy_from_slice(&low.to_ne_bytes());
            options.push(TCA_NETEM_RATE64, &bytes_per_s.to_ne_bytes());
            options.push(TCA_NETEM_RATE, &rate);
        }
        if let Some(seed) = self.seed {
            options.push(TCA_NETEM_PRNG_SEED, &seed.to_ne_bytes());
        }
        options.into_bytes()
    }
}

/// Most entries of a distribution (NETEM_DIST_MAX in net/sched/sch_netem.c).
pub const DISTRIBUTION_MAX: u32 = 16_384;

/// Returns a distribution that subtracts the whole jitter from the delay with a probability, and nothing
/// otherwise: the shortest one nearest to the probability.
fn two_delays(ppm: u32) -> Vec<u8> {
    /// One jitter (NETEM_DIST_SCALE in include/uapi/linux/pkt_sched.h).
    const SCALE: i16 = 8192;
    let early = |entries: u32| (u64::from(ppm) * u64::from(entries)).div_ceil(1_000_000) as u32;
    let off = |entries: &u32| {
        u64::from(early(*entries)) * 1_000_000 / u64::from(*entries) - u64::from(ppm)
    };
    let entries = (1..=DISTRIBUTION_MAX).min_by_key(off).unwrap_or(1);
    let table = (0..entries).map(|entry| match entry < early(entries) {
        true => -SCALE,
        false => 0,
    });
    table.flat_map(i16::to_ne_bytes).collect()
}

/// Converts to netem's scale: all ones = always.
pub(crate) fn probability(ppm: u32) -> u32 {
    let scaled = u64::from(ppm) * u64::from(u32::MAX) / 1_000_000;
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

/// Encodes options of an htb that sends every packet through class `default_minor`.
pub fn htb(default_minor: u16) -> Vec<u8> {
    const TCA_HTB_INIT: u16 = 2;
    const HTB_VERSION: u32 = 3;
    const RATE_TO_QUANTUM: u32 = 10;

    // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
    let mut glob = Vec::new();
    for field in [HTB_VERSION, RATE_TO_QUANTUM, default_minor.into(), 0, 0] {
        glob.extend_from_slice(&u32::to_ne_bytes(field));
    }
    let mut options = Attributes::default();
    options.push(TCA_HTB_INIT, &glob);
    options.into_bytes()
}

/// Encodes options of an htb class of `rate_bps` with a burst of `burst_ns` at that rate.
pub fn htb_class(rate_bps: u64, burst_ns: u64) -> Vec<u8> {
    const TCA_HTB_PARMS: u16 = 1;
    const TCA_HTB_RATE64: u16 = 6;
    const TCA_HTB_CEIL64: u16 = 7;
    /// A single class shares with no other; htb only requires a plausible quantum.
    const QUANTUM_BYTES: u32 = 60_000;

    let bytes_per_s = rate_bps / 8;
    let low = u32::try_from(bytes_per_s).unwrap_or(u32::MAX);
    // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
    let mut ratespec = vec![0, LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    ratespec.extend_from_slice(&low.to_ne_bytes());
    let burst_ticks = u32::try_from(burst_ns / TICK_NS).unwrap_or(u32::MAX);
    // struct tc_htb_opt: rate, ceil, buffer, cbuffer, quantum, level, prio.
    let mut parms = [ratespec.clone(), ratespec].concat();
    for field in [burst_ticks, burst_ticks, QUANTUM_BYTES, 0, 0] {
        parms.extend_from_slice(&field.to_ne_bytes());
    }
    let mut options = Attributes::default();
    options.push(TCA_HTB_RATE64, &bytes_per_s.to_ne_bytes());
    options.push(TCA_HTB_CEIL64, &bytes_per_s.to_ne_bytes());
    options.push(TCA_HTB_PARMS, &parms);
    options.into_bytes()
}
