// SPDX-License-Identifier: GPL-2.0

//! A network of switches between the links of network namespaces: real TCP endpoints over simulated
//! switches.
//!
//! The rules are in algo/fabric.rs, algo/fabric_switch.rs, algo/fabric_wire.rs and, for queues, algo/port.rs,
//! which sch_phantom follows, too. docs/virtual-time.md says what the network models.

#[path = "../../../algo/mod.rs"]
mod algo;
#[path = "../../../net/sched/bounds.rs"]
mod bounds;
#[path = "../../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "../../../net/sched/phantom_config.rs"]
mod phantom_config;
// A port reads options, and shows none.
#[allow(dead_code)]
#[path = "../../../net/sched/phantom_options.rs"]
mod phantom_options;
#[allow(dead_code)]
#[path = "../../../net/sched/settings.rs"]
mod settings;

use algo::{
    color::Color,
    fabric::{self, Ce, Fabric, Fifo, Frame, Io, Peer, Pool, Port, Queue, Storage, Why},
    fabric_switch::{Switch, SwitchCounts},
    fabric_timers::Entry,
    fabric_wire::{self, BurstLoss},
    policer,
    port::{Config, Source},
    random::Random,
};
use kernel::prelude::*;
use kernel_api::{
    bindings::{
        XDC_ALREADY_CE, XDC_ECT_TO_CE, XDC_FABRIC_ECN, XDC_FABRIC_FULL, XDC_FABRIC_HOPS,
        XDC_FABRIC_LINK, XDC_FABRIC_POLICER, XDC_FABRIC_ROUTE,
    },
    fabric_net::{
        Counts, Exit, Network, Packet, PacketQueue, PortSettings, QueueStats, Registration, Size,
        Stats, SwitchSettings,
    },
    netlink::Extack,
    random::random_u64,
    uapi::TCA_PHANTOM_SEED,
};
use phantom_options::{Options, Request};

module! {
    type: Module,
    name: "fabric",
    authors: ["xdc developers"],
    description: "Simulated switches between network namespaces",
    license: "GPL v2",
    alias: ["rtnl-link-fabric"],
}

struct Module {
    _registration: Registration<Switches>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Module {
            _registration: Registration::new()?,
        })
    }
}

impl Frame for Packet {
    fn len_bytes(&self) -> u32 {
        self.cb().len
    }

    fn set_due_ns(&mut self, due_ns: u64) {
        self.cb_mut().due_ns = due_ns;
    }

    fn color(&self) -> Color {
        Color::from_u8(self.cb().color).unwrap_or_default()
    }

    fn set_color(&mut self, color: Color) {
        self.cb_mut().color = color as u8;
    }

    fn destination(&self) -> Option<u32> {
        u32::try_from(self.cb().destination).ok()
    }

    fn hop(&mut self) -> bool {
        let ttl = &mut self.cb_mut().ttl;
        *ttl = ttl.saturating_sub(1);
        *ttl > 0
    }

    fn hash(&self, seed: u32) -> u32 {
        self.hash(seed)
    }

    fn dscp(&self) -> Option<u8> {
        self.dsfield().map(|dsfield| dsfield >> 2)
    }

    fn is_pure_ack(&self) -> bool {
        self.is_pure_ack()
    }

    fn set_ce(&mut self) -> Ce {
        match self.set_ce() {
            XDC_ECT_TO_CE => Ce::Marked,
            XDC_ALREADY_CE => Ce::Already,
            _ => Ce::NotEct,
        }
    }
}

impl Fifo for PacketQueue {
    type Frame = Packet;

    fn push(&mut self, packet: Packet) {
        self.push(packet);
    }

    fn pop(&mut self) -> Option<Packet> {
        self.pop()
    }

    fn first_due_ns(&self) -> Option<u64> {
        self.first().map(|cb| cb.due_ns)
    }
}

impl Io<Packet> for Exit<'_> {
    fn deliver(&mut self, device: u32, packet: Packet) {
        self.deliver(device, packet);
    }

    fn drop(&mut self, packet: Packet, why: Why) {
        let reason = match why {
            Why::Route => XDC_FABRIC_ROUTE,
            Why::Hops => XDC_FABRIC_HOPS,
            Why::Policer => XDC_FABRIC_POLICER,
            Why::Link => XDC_FABRIC_LINK,
            Why::Full | Why::Color | Why::Pool => XDC_FABRIC_FULL,
            Why::Ecn => XDC_FABRIC_ECN,
        };
        self.drop(packet, reason);
    }
}

/// Memory of the kernel.
struct Memory;

impl Storage for Memory {
    type Of<T> = KVVec<T>;
}

/// Returns an array of `make`'s elements.
fn some<T>(len: usize, make: impl Fn(usize) -> T) -> Result<KVVec<T>> {
    let mut all = KVVec::with_capacity(len, GFP_KERNEL_ACCOUNT)?;
    for i in 0..len {
        all.push(make(i), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(all)
}

fn copied<T: Copy>(from: &[T]) -> Result<KVVec<T>> {
    let mut all = KVVec::with_capacity(from.len(), GFP_KERNEL_ACCOUNT)?;
    all.extend_from_slice(from, GFP_KERNEL_ACCOUNT)?;
    Ok(all)
}

/// Settings of a port.
struct Settings {
    settings: fabric::Settings,
    burst: Option<BurstLoss>,
}

/// The network of a namespace.
struct Switches(Fabric<Memory, PacketQueue>);

/// Refusals of options that a port of the fabric lacks.
const NO_COLORS: &CStr = c"a port of the fabric takes colors from DSCPs only";
const NO_LINE_RATE: &CStr = c"mark needs rate or line-rate for the phantom queue";

/// Parses the options of a queue.
fn queue(settings: &PortSettings<'_>, extack: &Extack<'_>) -> Result<Option<Queue>> {
    let Some(nest) = settings.queue() else {
        return Ok(None);
    };
    let request = Request::parse(nest, extack)?;
    let mut options = Options::new();
    options.read(&request, extack)?;
    let config: Config = phantom_config::config(&options, 0, false);
    if config.lacks_line_rate {
        return Err(extack.invalid(NO_LINE_RATE));
    }
    match config.source {
        Source::None | Source::Dscp(_) => {}
        Source::Priority | Source::Filter => return Err(extack.invalid(NO_COLORS)),
    }
    Ok(Some(Queue {
        config,
        seed: request.get(TCA_PHANTOM_SEED).map(|_| options.seed()),
        pool: u32::try_from(settings.numbers().pool).ok(),
    }))
}

impl Network for Switches {
    type Switch = Switch<Memory>;
    type Port = Settings;

    fn open(size: &Size, limits_bytes: &[u64]) -> Result<KBox<Self>> {
        let ports = size.ports as usize;
        let switches = some(size.switches as usize, |_| Switch {
            table: KVVec::new(),
            starts: KVVec::new(),
            hops: KVVec::new(),
            seed: 0,
            spray: None,
            counts: SwitchCounts::default(),
        })?;
        let pools = some(limits_bytes.len(), |i| Pool {
            limit_bytes: limits_bytes.get(i).copied().unwrap_or(0),
            used_bytes: 0,
        })?;
        let network = Fabric::new(
            switches,
            some(ports, |_| Port::default())?,
            pools,
            some(ports, |_| Entry::default())?,
            some(ports, |_| 0)?,
        );
        Ok(KBox::new(Self(network), GFP_KERNEL_ACCOUNT)?)
    }

    fn make_switch(settings: &SwitchSettings<'_>) -> Result<KBox<Switch<Memory>>> {
        let switch = Switch {
            table: copied(settings.table())?,
            starts: copied(settings.starts())?,
            hops: copied(settings.hops())?,
            seed: settings.seed(),
            spray: settings.is_spraying().then(|| Random::new(random_u64())),
            counts: SwitchCounts::default(),
        };
        Ok(KBox::new(switch, GFP_KERNEL_ACCOUNT)?)
    }

    fn apply_switch(&mut self, id: u32, settings: &mut Switch<Memory>) {
        if let Some(switch) = self.0.switches.get_mut(id as usize) {
            settings.counts = switch.counts;
            core::mem::swap(switch, settings);
        }
    }

    fn make_port(settings: &PortSettings<'_>, extack: &Extack<'_>) -> Result<KBox<Settings>> {
        let it = settings.numbers();
        let peer = match (u32::try_from(it.peer_switch), u32::try_from(it.peer_device)) {
            (Ok(switch), _) => Peer::Switch(switch),
            (_, Ok(device)) => Peer::Host(device),
            _ => Peer::None,
        };
        let settings = Settings {
            settings: fabric::Settings {
                peer,
                policer: policer::Settings {
                    rate_bytes_per_s: it.police_bytes_per_s,
                    burst_bytes: it.police_burst_bytes,
                },
                wire: fabric_wire::Settings {
                    rate_bytes_per_s: it.rate_bytes_per_s,
                    delay_ns: it.delay_ns,
                    jitter_ns: it.jitter_ns,
                    loss: it.loss,
                    seed: it.seed,
                },
                queue: queue(settings, extack)?,
            },
            burst: it
                .has_burst
                .then(|| BurstLoss::new(it.burst_ppm, it.burst_seed)),
        };
        Ok(KBox::new(settings, GFP_KERNEL_ACCOUNT)?)
    }

    fn apply_port(&mut self, id: u32, settings: &Settings, now_ns: u64) -> u64 {
        self.0.configure(id, &settings.settings, now_ns);
        if let Some(burst) = settings.burst {
            self.0.lose_bursts(id, burst);
        }
        self.0.next_ns()
    }

    fn arrive(&mut self, exit: &mut Exit<'_>, id: u32, packet: Packet, now_ns: u64) -> u64 {
        // A late timer's packets come first.
        self.0.run(exit, now_ns.saturating_sub(1));
        self.0.arrive(exit, now_ns, id, packet);
        self.0.run(exit, now_ns)
    }

    fn run(&mut self, exit: &mut Exit<'_>, now_ns: u64) -> u64 {
        self.0.run(exit, now_ns)
    }

    fn count_switch(&self, id: u32) -> Counts {
        let counts = self.0.switches.get(id as usize).map(|it| it.counts);
        let counts = counts.unwrap_or_default();
        Counts {
            received: counts.received,
            unroutable: counts.unroutable,
            expired: counts.expired,
        }
    }

    fn count_port(&self, id: u32, now_ns: u64) -> (Stats, Option<QueueStats>) {
        match self.0.ports.get(id as usize) {
            Some(port) => (stats(port), queue_stats(&self.0, port, now_ns)),
            None => (Stats::default(), None),
        }
    }
}

fn stats(port: &Port<PacketQueue>) -> Stats {
    let counts = &port.counts;
    Stats {
        sent_packets: counts.sent_packets,
        sent_bytes: counts.sent_bytes,
        lost: counts.lost,
        burst_lost: counts.burst_lost,
        wire_packets: counts.wire_packets,
        wire_bytes: counts.wire_bytes,
        queued_packets: counts.queued_packets,
        queued_bytes: port.rules().map_or(0, |rules| rules.queued.total()),
        dropped: counts.dropped.iter().fold(0, |sum, n| sum.wrapping_add(*n)),
        policed: counts.policed,
    }
}

/// Returns the counters as sch_phantom has them.
fn queue_stats(
    network: &Fabric<Memory, PacketQueue>,
    port: &Port<PacketQueue>,
    now_ns: u64,
) -> Option<QueueStats> {
    let (rules, counts) = (port.rules()?, &port.counts);
    let [marked_phantom, marked_physical, marked_both] = counts.marked;
    let [drops_limit, drops_pool, drops_ecn, drops_color] = counts.drops;
    let [drops_green, drops_yellow, drops_red] = counts.dropped;
    let [bytes_green, bytes_yellow, bytes_red] = counts.accepted_bytes;
    let [packets_green, packets_yellow, packets_red] = counts.accepted_packets;
    Some(QueueStats {
        phantom_bytes: port.phantom_bytes(now_ns),
        phantom_max_bytes: counts.phantom_max_bytes,
        backlog_max_bytes: counts.backlog_max_bytes,
        marked_phantom,
        marked_physical,
        marked_both,
        would_mark: counts.would_mark,
        drops_limit,
        drops_pool,
        drops_ecn,
        drops_green,
        drops_yellow,
        drops_red,
        drops_color,
        bytes_green,
        bytes_yellow,
        bytes_red,
        busy_ns: port.busy_ns(now_ns),
        phantom_drain_bytes_per_s: rules.config.phantom.drain_bytes_per_s,
        pool_used_bytes: network.pool_used_bytes(port),
        packets_green,
        packets_yellow,
        packets_red,
        red_max_bytes: counts.red_max_bytes,
    })
}
