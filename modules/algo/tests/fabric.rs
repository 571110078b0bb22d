// SPDX-License-Identifier: GPL-2.0

use std::collections::VecDeque;

use super::*;
use crate::color::Limits;
use crate::fabric_switch::SwitchCounts;
use crate::phantom::Red;

/// A packet of the tests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Packet {
    number: u32,
    bytes: u32,
    to: u32,
    hash: u32,
    hops: u8,
    due_ns: u64,
    color: u8,
    ce: bool,
}

fn packet(number: u32, bytes: u32, to: u32) -> Packet {
    Packet {
        number,
        bytes,
        to,
        hash: 0,
        hops: 64,
        due_ns: 0,
        color: 0,
        ce: false,
    }
}

impl Frame for Packet {
    fn len_bytes(&self) -> u32 {
        self.bytes
    }
    fn set_due_ns(&mut self, due_ns: u64) {
        self.due_ns = due_ns;
    }
    fn color(&self) -> Color {
        Color::from_u8(self.color).unwrap()
    }
    fn set_color(&mut self, color: Color) {
        self.color = color as u8;
    }
    fn destination(&self) -> Option<u32> {
        Some(self.to)
    }
    fn hop(&mut self) -> bool {
        self.hops = self.hops.saturating_sub(1);
        self.hops > 0
    }
    fn hash(&self, _seed: u32) -> u32 {
        self.hash
    }
    fn dscp(&self) -> Option<u8> {
        Some(0)
    }
    fn is_pure_ack(&self) -> bool {
        self.bytes < 100
    }
    fn set_ce(&mut self) -> Ce {
        match std::mem::replace(&mut self.ce, true) {
            true => Ce::Already,
            false => Ce::Marked,
        }
    }
}

#[derive(Default)]
struct Queued(VecDeque<Packet>);

impl Fifo for Queued {
    type Frame = Packet;
    fn push(&mut self, frame: Packet) {
        self.0.push_back(frame);
    }
    fn pop(&mut self) -> Option<Packet> {
        self.0.pop_front()
    }
    fn first_due_ns(&self) -> Option<u64> {
        self.0.front().map(|packet| packet.due_ns)
    }
}

struct Heap;
impl Storage for Heap {
    type Of<T> = Vec<T>;
}

/// Exits with the time of the event.
#[derive(Default)]
struct Exits {
    now_ns: u64,
    delivered: Vec<(u64, u32, Packet)>,
    dropped: Vec<(u32, Why)>,
}

impl Io<Packet> for Exits {
    fn deliver(&mut self, device: u32, frame: Packet) {
        self.delivered.push((self.now_ns, device, frame));
    }
    fn drop(&mut self, frame: Packet, why: Why) {
        self.dropped.push((frame.number, why));
    }
}

type Network = Fabric<Heap, Queued>;

/// A network in which port i belongs to a switch, with a settings each. `ways` has the ports of a switch to
/// each host.
fn network(ports: Vec<Settings>, ways: &[&[&[u32]]], pools: Vec<Pool>) -> Network {
    let switch = |ways: &&[&[u32]]| {
        let mut starts = vec![0];
        for way in *ways {
            starts.push(starts.last().unwrap() + way.len() as u32);
        }
        Switch {
            table: (0..ways.len() as u16).collect(),
            starts,
            hops: ways.concat(),
            seed: 0,
            spray: None,
            counts: SwitchCounts::default(),
        }
    };
    let count = ports.len();
    let mut network = Network::new(
        ways.iter().map(switch).collect(),
        ports.iter().map(|_| Port::default()).collect(),
        pools,
        vec![Entry::default(); count],
        vec![0; count],
    );
    for (id, settings) in ports.iter().enumerate() {
        network.configure(id as u32, settings, 0);
    }
    network
}

/// Runs each event at its own time, up to the last or to `end_ns`.
fn run(network: &mut Network, exits: &mut Exits, end_ns: u64) {
    while network.next_ns() <= end_ns {
        exits.now_ns = network.next_ns();
        network.run(exits, exits.now_ns);
        if network.next_ns() == NEVER_NS {
            break;
        }
    }
}

const GBIT: u64 = 125_000_000;

fn shaped(rate_bytes_per_s: u64, limit_bytes: u64) -> Queue {
    Queue {
        config: port::Config {
            limit_bytes,
            rate_bytes_per_s,
            phantom_from_bytes: u64::MAX,
            physical_from_bytes: u64::MAX,
            count_acks: true,
            ..port::Config::default()
        },
        seed: Some(1),
        pool: None,
    }
}

fn to_host(device: u32, delay_ns: u64, queue: Option<Queue>) -> Settings {
    Settings {
        peer: Peer::Host(device),
        policer: policer::Settings::default(),
        wire: fabric_wire::Settings {
            delay_ns,
            ..fabric_wire::Settings::default()
        },
        queue,
    }
}

fn to_switch(switch: u32, delay_ns: u64, queue: Option<Queue>) -> Settings {
    Settings {
        peer: Peer::Switch(switch),
        ..to_host(0, delay_ns, queue)
    }
}

#[test]
fn an_idle_path_takes_its_delays_and_a_queue_the_serialization_of_earlier_packets() {
    let ports = vec![
        to_switch(1, 1_000, Some(shaped(GBIT, 1_000_000))),
        to_host(7, 500, None),
    ];
    let mut network = network(ports, &[&[&[0]], &[&[1]]], Vec::new());
    let mut exits = Exits::default();
    for number in 0..3 {
        network.arrive(&mut exits, 0, 0, packet(number, 1250, 0));
    }
    run(&mut network, &mut exits, NEVER_NS - 1);
    let times: Vec<_> = exits
        .delivered
        .iter()
        .map(|(at, _, it)| (*at, it.number))
        .collect();
    // 1250 bytes take 10 us.
    assert_eq!(times, [(1_500, 0), (11_500, 1), (21_500, 2)]);
    assert_eq!(exits.delivered[0].1, 7);
    let counts = &network.ports[0].counts;
    assert_eq!((counts.sent_packets, counts.sent_bytes), (3, 3750));
    assert_eq!((counts.wire_packets, counts.queued_packets), (0, 0));
    assert_eq!(counts.backlog_max_bytes, 3750);
    assert_eq!(counts.busy_ns, 20_000);
}

#[test]
fn a_wire_with_a_rate_serializes_before_the_delay() {
    let mut port = to_host(0, 2_000, None);
    port.wire.rate_bytes_per_s = GBIT;
    let mut network = network(vec![port], &[&[&[0]]], Vec::new());
    let mut exits = Exits::default();
    network.arrive(&mut exits, 0, 0, packet(0, 1250, 0));
    network.arrive(&mut exits, 0, 0, packet(1, 1250, 0));
    run(&mut network, &mut exits, NEVER_NS - 1);
    let times: Vec<_> = exits.delivered.iter().map(|(at, ..)| *at).collect();
    assert_eq!(times, [12_000, 22_000]);
}

#[test]
fn a_full_queue_drops_and_a_late_timer_delays_no_packet() {
    let mut network = network(
        vec![to_host(0, 0, Some(shaped(GBIT, 2_500)))],
        &[&[&[0]]],
        Vec::new(),
    );
    let mut exits = Exits::default();
    for number in 0..4 {
        network.arrive(&mut exits, 0, 0, packet(number, 1250, 0));
    }
    // Each packet enters the queue before the first one leaves, as with netem.
    network.run(&mut exits, 0);
    assert_eq!(exits.dropped, [(2, Why::Full), (3, Why::Full)]);
    assert_eq!(network.next_ns(), 10_000);
    network.run(&mut exits, 1_000_000);
    assert_eq!(exits.delivered.len(), 2);
    assert_eq!(network.ports[0].counts.busy_ns, 10_000);
    assert_eq!(network.ports[0].counts.dropped, [2, 0, 0]);
}

#[test]
fn departing_packets_are_marked_by_the_phantom_queue() {
    let mut queue = shaped(GBIT, 1_000_000);
    queue.config.phantom = crate::phantom::Config::new(GBIT, 900_000, 100_000);
    queue.config.phantom_red = Red::new(100_000, 0, 10_000);
    queue.config.phantom_from_bytes = queue.config.phantom_red.lowest_bytes();
    let mut network = network(vec![to_host(0, 0, Some(queue))], &[&[&[0]]], Vec::new());
    let mut exits = Exits::default();
    for number in 0..100 {
        network.arrive(&mut exits, 0, 0, packet(number, 1250, 0));
    }
    run(&mut network, &mut exits, NEVER_NS - 1);
    let counts = &network.ports[0].counts;
    // Packet k finds 100,000 - 1,125 k bytes: up to k = 80 the ramp is full.
    let is_marked = |number: u32| exits.delivered[number as usize].2.ce;
    assert!((0..=80).all(is_marked) && !is_marked(99));
    let marked = exits.delivered.iter().filter(|it| it.2.ce).count() as u64;
    assert_eq!(counts.marked, [marked, 0, 0]);
    assert_eq!(counts.phantom_max_bytes, 100_000);
}

#[test]
fn chosen_packets_that_are_not_ect_can_be_dropped() {
    let mut queue = shaped(GBIT, 1_000_000);
    queue.config.physical_red = Red::new(1_000_000, 0, 0);
    queue.config.physical_from_bytes = 0;
    queue.config.ecn_drop = true;
    for at_enqueue in [false, true] {
        queue.config.mark_at_enqueue = at_enqueue;
        let mut network = network(vec![to_host(0, 0, Some(queue))], &[&[&[0]]], Vec::new());
        let mut exits = Exits::default();
        let mut marked = packet(0, 1250, 0);
        marked.ce = true;
        network.arrive(&mut exits, 0, 0, marked);
        run(&mut network, &mut exits, NEVER_NS - 1);
        // CE already: no drop.
        assert_eq!((exits.delivered.len(), exits.dropped.len()), (1, 0));
    }
}

#[test]
fn ports_of_a_pool_share_its_bytes() {
    let mut queue = shaped(1_000, 1_000_000);
    queue.pool = Some(0);
    queue.config.pool_alpha_ppm = 1_000_000;
    let pool = Pool {
        limit_bytes: 4_000,
        used_bytes: 0,
    };
    let ports = vec![to_host(0, 0, Some(queue)), to_host(1, 0, Some(queue))];
    let mut network = network(ports, &[&[&[0], &[1]]], vec![pool]);
    let mut exits = Exits::default();
    for number in 0..6 {
        network.arrive(&mut exits, 0, 0, packet(number, 1_000, number % 2));
        network.run(&mut exits, 0);
    }
    // The first packet of each port leaves at once. Packet 5 would be the second of a port, when one byte in
    // four is free.
    assert_eq!(network.pools[0].used_bytes, 3_000);
    assert_eq!(exits.dropped, [(5, Why::Pool)]);
    run(&mut network, &mut exits, NEVER_NS - 1);
    assert_eq!(network.pools[0].used_bytes, 0);
}

#[test]
fn queued_packets_go_along_to_another_pool() {
    let mut queue = shaped(1_000, 1_000_000);
    (queue.pool, queue.config.pool_alpha_ppm) = (Some(0), 1_000_000);
    let pool = Pool {
        limit_bytes: 4_000,
        used_bytes: 0,
    };
    let ports = vec![to_host(0, 0, Some(queue))];
    let mut network = network(ports, &[&[&[0]]], vec![pool; 2]);
    let mut exits = Exits::default();
    for number in 0..2 {
        network.arrive(&mut exits, 0, 0, packet(number, 1_000, 0));
        network.run(&mut exits, 0);
    }
    queue.pool = Some(1);
    network.configure(0, &to_host(0, 0, Some(queue)), 0);
    assert_eq!(network.pools[0].used_bytes, 0);
    assert_eq!(network.pools[1].used_bytes, 1_000);
    run(&mut network, &mut exits, NEVER_NS - 1);
    assert_eq!(network.pools[1].used_bytes, 0);
}

#[test]
fn red_packets_have_their_limit() {
    let mut queue = shaped(1_000, 10_000);
    queue.config.source = Source::Dscp(crate::color::DscpTable::new(0, 1));
    queue.config.limits = Limits {
        red_bytes: 2_000,
        ..Limits::default()
    };
    let mut network = network(vec![to_host(0, 0, Some(queue))], &[&[&[0]]], Vec::new());
    let mut exits = Exits::default();
    for number in 0..4 {
        network.arrive(&mut exits, 0, 0, packet(number, 1_000, 0));
        network.run(&mut exits, 0);
    }
    assert_eq!(exits.dropped, [(3, Why::Color)]);
    assert_eq!(network.ports[0].counts.red_max_bytes, 2_000);
    assert_eq!(network.ports[0].counts.drops, [0, 0, 0, 1]);
}

#[test]
fn a_link_that_is_down_loses_packets_and_delivers_those_in_flight() {
    let mut port = to_host(0, 1_000, Some(shaped(GBIT, 1_000_000)));
    let mut network = network(vec![port], &[&[&[0]]], Vec::new());
    let mut exits = Exits::default();
    network.arrive(&mut exits, 0, 0, packet(0, 1250, 0));
    port.wire.loss = u32::MAX;
    port.queue = None;
    network.configure(0, &port, 500);
    network.arrive(&mut exits, 500, 0, packet(1, 1250, 0));
    port.wire.loss = 0;
    network.configure(0, &port, 600);
    network.arrive(&mut exits, 600, 0, packet(2, 1250, 0));
    run(&mut network, &mut exits, NEVER_NS - 1);
    assert_eq!(exits.dropped, [(1, Why::Link)]);
    let times: Vec<_> = exits
        .delivered
        .iter()
        .map(|(at, _, it)| (*at, it.number))
        .collect();
    // The queue keeps its rate.
    assert_eq!(times, [(1_000, 0), (11_000, 2)]);
}

#[test]
fn a_shorter_delay_keeps_the_order() {
    let mut port = to_host(0, 1_000, None);
    let mut network = network(vec![port], &[&[&[0]]], Vec::new());
    let mut exits = Exits::default();
    network.arrive(&mut exits, 0, 0, packet(0, 1250, 0));
    port.wire.delay_ns = 100;
    network.configure(0, &port, 10);
    network.arrive(&mut exits, 10, 0, packet(1, 1250, 0));
    run(&mut network, &mut exits, NEVER_NS - 1);
    let times: Vec<_> = exits
        .delivered
        .iter()
        .map(|(at, _, it)| (*at, it.number))
        .collect();
    assert_eq!(times, [(1_000, 0), (1_000, 1)]);
}

#[test]
fn a_loop_ends_by_the_number_of_hops_and_unknown_hosts_have_no_route() {
    let ports = vec![to_switch(1, 0, None), to_switch(0, 0, None)];
    let mut network = network(ports, &[&[&[0], &[]], &[&[1], &[]]], Vec::new());
    let mut exits = Exits::default();
    network.arrive(&mut exits, 0, 0, packet(0, 100, 0));
    network.arrive(&mut exits, 0, 0, packet(1, 100, 1));
    network.arrive(&mut exits, 0, 0, packet(2, 100, 99));
    network.arrive(&mut exits, 0, 5, packet(3, 100, 0));
    network.run(&mut exits, 0);
    assert_eq!(
        exits.dropped,
        [
            (1, Why::Route),
            (2, Why::Route),
            (3, Why::Route),
            (0, Why::Hops)
        ]
    );
    let counts = network.switches[0].counts;
    assert_eq!((counts.unroutable, counts.received), (2, 34));
    assert_eq!(
        network.switches[0].counts.expired + network.switches[1].counts.expired,
        1
    );
}

#[test]
fn flows_spread_evenly_over_equally_good_ports() {
    let ports = (0..3).map(|device| to_host(device, 0, None)).collect();
    let mut network = network(ports, &[&[&[0, 1, 2]]], Vec::new());
    let mut exits = Exits::default();
    for n in 0..3_000u32 {
        let mut it = packet(n, 100, 0);
        it.hash = n * ((1 << 31) / 3_000);
        network.arrive(&mut exits, 0, 0, it);
    }
    network.run(&mut exits, 0);
    for device in 0..3 {
        let count = exits.delivered.iter().filter(|it| it.1 == device).count();
        assert!((999..=1_001).contains(&count), "{device}: {count}");
    }
    // The bounds of fib_rebalance(): thirds of 2^31, rounded.
    for (hash, device) in [
        (715_827_882, 0),
        (715_827_883, 1),
        (1_431_655_764, 1),
        (1_431_655_765, 2),
    ] {
        let mut it = packet(0, 100, 0);
        it.hash = hash;
        exits.delivered.clear();
        network.arrive(&mut exits, 0, 0, it);
        network.run(&mut exits, 0);
        assert_eq!(exits.delivered[0].1, device, "{hash}");
    }
}

#[test]
fn bursts_are_lost_at_the_end_of_the_link() {
    let mut network = network(vec![to_host(0, 0, None)], &[&[&[0]]], Vec::new());
    network.lose_bursts(0, BurstLoss::new([0, 0, 1_000_000], 3));
    let mut exits = Exits::default();
    for n in 0..100 {
        network.arrive(&mut exits, 0, 0, packet(n, 100, 0));
    }
    network.run(&mut exits, 0);
    assert_eq!(exits.dropped.len(), 30);
    assert_eq!(network.ports[0].counts.burst_lost, 30);
    assert_eq!(network.ports[0].counts.sent_packets, 100);
}

#[test]
fn a_policer_drops_before_the_wire_and_keeps_its_tokens_when_a_port_changes() {
    let policer = policer::Settings {
        rate_bytes_per_s: GBIT,
        burst_bytes: 2_500,
    };
    let settings = Settings {
        policer,
        ..to_host(7, 500, None)
    };
    let mut network = network(vec![settings], &[&[&[0]]], Vec::new());
    let mut exits = Exits::default();
    for number in 0..3 {
        network.arrive(&mut exits, 0, 0, packet(number, 1250, 0));
    }
    network.configure(0, &settings, 1_000);
    network.arrive(&mut exits, 9_999, 0, packet(3, 1250, 0));
    network.arrive(&mut exits, 10_000, 0, packet(4, 1250, 0));
    let counts = network.ports[0].counts;
    assert_eq!(
        (counts.policed, counts.wire_packets, counts.lost),
        (2, 3, 0)
    );
}
