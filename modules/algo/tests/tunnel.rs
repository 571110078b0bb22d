// SPDX-License-Identifier: GPL-2.0

use super::super::paths::{Fate, Kind as Chooser};
use super::super::support::Rng;
use super::super::unorc_support::{End, config, flow_and_number, ip, wire};
use super::*;
use std::collections::BTreeMap;

/// Entropy and bytes.
type Wire = (u16, Vec<u8>);

/// Two ends and the network between them.
struct Net {
    ends: [End; 2],
    /// Packets by arrival time and order: destination, bytes, mark.
    flying: BTreeMap<(u64, u64), (usize, Wire, bool)>,
    number: u64,
    now_us: u64,
    rng: Rng,
    /// Loss rate in percent.
    loss: u64,
    marks: u64,
    duplicates: u64,
    noise: u64,
    delay_us: u64,
    jitter_us: u64,
}

impl Net {
    fn new(config: Config, seed: u64) -> Self {
        Net {
            ends: [End::new(config, seed), End::new(config, seed + 1_000)],
            flying: BTreeMap::new(),
            number: 0,
            now_us: 1_000_000,
            rng: Rng::new(seed),
            loss: 0,
            marks: 5,
            duplicates: 0,
            noise: 0,
            delay_us: 50,
            jitter_us: 0,
        }
    }

    fn carry(&mut self) {
        for from in 0..2 {
            for (header, body, _) in std::mem::take(&mut self.ends[from].io.sent) {
                let mut copies = u64::from(!self.rng.percent(self.loss));
                copies += u64::from(self.rng.percent(self.duplicates));
                for _ in 0..copies {
                    let mut tag = match header.kind {
                        Kind::Hello => 0,
                        _ => self.ends[from].session.theirs,
                    };
                    // UDP's checksum detects corruption, but not packets of other senders.
                    if self.rng.percent(self.noise) {
                        tag = self.rng.any();
                    }
                    let packet = wire(&header, tag, &body);
                    let at = self.now_us + self.delay_us + self.rng.within(0, self.jitter_us);
                    let is_marked = self.rng.percent(self.marks);
                    self.flying
                        .insert((at, self.number), (1 - from, packet, is_marked));
                    self.number += 1;
                }
            }
        }
    }

    fn run(&mut self, for_us: u64) {
        let end = self.now_us + for_us;
        loop {
            self.carry();
            let dues = self.ends.iter().filter_map(End::due_us);
            let flying = self.flying.keys().next().map(|key| key.0);
            let next = dues.chain(flying).min().unwrap_or(end).max(self.now_us);
            if next > end {
                break;
            }
            if next == end && self.flying.is_empty() {
                break;
            }
            self.now_us = next;
            while let Some(entry) = self
                .flying
                .first_entry()
                .filter(|entry| entry.key().0 <= next)
            {
                let (to, packet, is_marked) = entry.remove();
                self.ends[to].receive(next, packet, is_marked);
            }
            for end in &mut self.ends {
                end.poll(next);
            }
        }
        self.now_us = end;
    }

    fn send(&mut self, from: usize, packet: Vec<u8>) {
        self.ends[from].transmit(self.now_us, packet);
    }

    /// Returns the numbers delivered at an end since the last call, by flow.
    fn up(&mut self, at: usize) -> BTreeMap<u8, Vec<u32>> {
        let mut flows: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for (packet, _) in self.ends[at].io.up.drain(..) {
            let (flow, number) = flow_and_number(&packet);
            flows.entry(flow).or_default().push(number);
        }
        flows
    }
}

const FLOWS: u8 = 5;

/// Sends numbers in both directions, some at a time.
fn talk(net: &mut Net, each: u32) {
    for number in 0..each {
        for flow in 0..FLOWS {
            let len = net.rng.within(32, 900) as usize;
            net.send(0, ip(flow, number, len));
            net.send(1, ip(flow, number, len));
        }
        if net.rng.percent(40) {
            let pause_us = net.rng.within(1, 30);
            net.run(pause_us);
        }
    }
    net.run(3_000_000);
}

fn all_in_order(net: &mut Net, each: u32) {
    for at in 0..2 {
        let up = net.up(at);
        assert_eq!(up.len(), usize::from(FLOWS));
        for (flow, numbers) in up {
            assert!(
                numbers.iter().copied().eq(0..each),
                "flow {flow} at {at}: {numbers:?}"
            );
        }
    }
}

#[test]
fn packets_arrive_in_order_with_any_chooser() {
    for (seed, paths) in (0..).zip(Chooser::ALL) {
        for (x, y) in [(8, 2), (1, 0)] {
            let mut config = config(x, y);
            config.paths = paths;
            let mut net = Net::new(config, seed);
            talk(&mut net, 12);
            all_in_order(&mut net, 12);
            for end in &net.ends {
                assert_eq!(end.io.counted(Count::Session), 1);
                assert_eq!(end.io.counted(Count::GivenUp), 0);
                let rtts = end
                    .channels
                    .iter()
                    .map(|(channel, _)| channel.rtt.get().unwrap_or(0));
                assert!(rtts.max().is_some_and(|rtt_us| rtt_us >= 100));
            }
        }
    }
}

#[test]
fn paths_and_times_can_change_during_a_session() {
    let mut net = Net::new(config(8, 2), 3);
    talk(&mut net, 12);
    all_in_order(&mut net, 12);
    for paths in Chooser::ALL {
        let to = Config {
            paths,
            timer_us: 100,
            x: 1,
            y: 0,
            channels: 1,
            window: 64,
            ..config(8, 2)
        };
        net.ends[0].change(to);
        let kept = Config {
            paths,
            timer_us: 100,
            ..config(8, 2)
        };
        assert_eq!(net.ends[0].channels[0].0.config, kept);
        talk(&mut net, 12);
        all_in_order(&mut net, 12);
    }
    for end in &net.ends {
        assert_eq!(end.io.counted(Count::Session), 1);
    }
}

/// Returns the count of delivered numbers; checks that there is no duplicate.
fn once_each(net: &mut Net, at: usize) -> usize {
    let mut all = 0;
    for (flow, mut numbers) in net.up(at) {
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "flow {flow} at {at}");
        all += count;
    }
    all
}

#[test]
fn most_packets_arrive_once_despite_loss_duplicates_reordering_and_noise() {
    let (mut recovered, mut sent, mut missing) = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (x, y) = rng.pick(&[(8, 2), (28, 3), (2, 1), (4, 1)]);
        let mut net = Net::new(config(x, y), seed);
        // Establishes a session, so that no packet is lost for lack of one.
        net.send(0, ip(9, 0, 100));
        net.run(10_000);
        assert_eq!(net.up(1)[&9], [0]);
        net.marks = 0;
        net.loss = rng.pick(&[0, 1, 5]);
        net.duplicates = rng.pick(&[0, 5]);
        net.jitter_us = rng.pick(&[0, 10, 100]);
        talk(&mut net, 300);
        let all = 300 * usize::from(FLOWS);
        for at in 0..2 {
            let came = once_each(&mut net, at);
            let lost = all - came;
            assert!(
                lost * 100 <= all * 3,
                "seed {seed}: {lost} {x}+{y} {} {} {:?}",
                net.loss,
                net.jitter_us,
                net.ends[1 - at].io.counts
            );
            assert!(net.loss > 0 || lost == 0, "seed {seed}");
            if net.loss == 1 {
                sent += all;
                missing += lost;
            }
        }
        for end in &net.ends {
            recovered += end.io.counted(Count::Recovered);
        }
    }
    assert!(recovered > 300, "{recovered}");
    // The loss rate is one percent.
    assert!(missing * 500 < sent, "{missing} of {sent}");
}

#[test]
fn noise_does_not_change_the_session() {
    let mut net = Net::new(config(8, 2), 1);
    talk(&mut net, 3);
    all_in_order(&mut net, 3);
    net.noise = 10;
    talk(&mut net, 300);
    for at in 0..2 {
        assert!(once_each(&mut net, at) > 1_300);
        assert_eq!(net.ends[at].io.counted(Count::Session), 1);
    }
}

#[test]
fn failed_allocations_do_not_break_the_session() {
    for seed in 0..10 {
        let mut net = Net::new(config(8, 2), seed);
        net.send(0, ip(9, 0, 100));
        net.run(10_000);
        net.up(1);
        net.loss = 2;
        for end in &mut net.ends {
            end.io.fails = 7;
        }
        talk(&mut net, 200);
        for at in 0..2 {
            assert!(once_each(&mut net, at) > 900);
        }
    }
}

#[test]
fn either_end_can_restart() {
    for restarted in 0..2 {
        for speaker in 0..2 {
            let mut net = Net::new(config(8, 2), 3);
            net.send(0, ip(1, 0, 100));
            net.run(10_000);
            assert_eq!(net.up(1)[&1], [0]);
            net.ends[restarted] = End::new(config(8, 2), 77);
            for number in 1..50 {
                net.send(speaker, ip(1, number, 100));
                net.run(1_000);
            }
            // Packets to an end that does not know the session are lost.
            let up = net.up(1 - speaker);
            assert_eq!(up[&1].last(), Some(&49));
            assert!(up[&1].len() >= 48, "{:?}", up[&1]);
        }
    }
}

#[test]
fn a_session_survives_the_loss_of_any_of_its_packets() {
    for seed in 0..50 {
        let mut net = Net::new(config(8, 2), seed);
        net.loss = 40;
        for number in 0..10 {
            net.send((seed % 2) as usize, ip(1, number, 100));
        }
        if seed % 3 == 0 {
            net.send(((seed + 1) % 2) as usize, ip(2, 0, 100));
        }
        net.run(2_900_000);
        assert!(net.ends.iter().all(|end| end.is_up()), "seed {seed}");
    }
}

#[test]
fn without_a_peer_packets_are_dropped_after_three_seconds() {
    let mut net = Net::new(config(8, 2), 1);
    net.loss = 100;
    for number in 0..70 {
        net.send(0, ip(1, number, 100));
    }
    assert_eq!(net.ends[0].io.counted(Count::Unreachable), 6);
    net.run(4_500_000);
    assert_eq!(net.ends[0].io.counted(Count::Unreachable), 70);
    assert!(!net.ends[0].is_up());
    net.loss = 0;
    net.send(0, ip(1, 70, 100));
    net.run(10_000);
    assert_eq!(net.up(1)[&1], [70]);
}

#[test]
fn ends_of_other_codes_have_no_session() {
    let mut net = Net::new(config(8, 2), 1);
    net.ends[1] = End::new(config(8, 1), 5);
    net.send(0, ip(1, 0, 100));
    net.run(5_000_000);
    assert!(net.ends[1].io.counted(Count::Mismatch) > 1);
    assert!(!net.ends[0].is_up() && !net.ends[1].is_up());
}

#[test]
fn forged_packets_are_ignored_and_few_are_answered() {
    let mut net = Net::new(config(8, 2), 1);
    net.send(0, ip(1, 0, 100));
    net.run(10_000);
    let before = tags(&net, 0);
    let mut rng = Rng::new(9);
    for _ in 0..20_000 {
        let header = Header {
            kind: rng.pick(&[
                Kind::Data,
                Kind::Parity,
                Kind::Raw,
                Kind::Feedback,
                Kind::Hello,
            ]),
            ..Header::default()
        };
        let mut packet = wire(
            &header,
            rng.next(),
            &ip(1, 1, 60)[..rng.within(0, 60) as usize],
        );
        if rng.percent(20) {
            let at = rng.within(0, packet.1.len() as u64 - 1) as usize;
            packet.1[at] = rng.next() as u8;
        }
        net.ends[0].receive(net.now_us, packet, false);
    }
    let sent = net.ends[0].io.sent.drain(..);
    let answers = sent
        .filter(|(header, ..)| header.kind == Kind::Hello)
        .count();
    assert_eq!(answers, 8);
    assert_eq!(tags(&net, 0), before);
    net.up(1);
    net.send(0, ip(1, 1, 100));
    net.run(10_000);
    assert_eq!(net.up(1)[&1], [1]);
    assert!(net.up(0).is_empty());
}

/// Returns an end's own tag and the peer's.
fn tags(net: &Net, at: usize) -> (u64, u64) {
    let session = &net.ends[at].session;
    (session.mine, session.theirs)
}

/// Returns a TCP segment without data.
fn pure_ack() -> Vec<u8> {
    let mut ack = vec![0; 40];
    ack[0] = 0x45;
    ack[3] = 40;
    ack[9] = 6;
    ack[32] = 0x50;
    ack[33] = 0x10;
    ack
}

#[test]
fn packets_without_code_avoid_a_dead_link() {
    for seed in 0..20 {
        let mut net = Net::new(config(8, 2), seed);
        net.marks = 0;
        net.send(0, ip(1, 0, 100));
        net.run(10_000);
        let mut lost = 0;
        for number in 0..4_000 {
            net.send(0, pure_ack());
            let sent = &mut net.ends[0].io.sent;
            let before = sent.len();
            sent.retain(|(header, ..)| header.ev % 4 != 3);
            if number >= 3_000 {
                lost += before - sent.len();
            }
            net.run(20);
        }
        // With a quarter of the paths dead, 250 of the last 1,000 would be lost.
        assert!(lost < 20, "seed {seed}: {lost}");
    }
}

#[test]
fn a_dead_link_is_avoided() {
    let mut recovered = 0;
    for seed in 0..20 {
        // One of eight links, selected by entropy, is dead.
        let mut net = Net::new(config(8, 2), seed);
        net.marks = 0;
        net.send(0, ip(1, 0, 100));
        net.run(10_000);
        net.up(1);
        for number in 0..4_000 {
            net.send(0, ip(1, number, 100));
            let sent = &mut net.ends[0].io.sent;
            sent.retain(|(header, ..)| header.ev % 8 != 3);
            net.run(2);
        }
        net.run(1_000_000);
        let up = net.up(1).remove(&1).unwrap();
        // Before the first NACK three of ten paths may be dead, and so may their replacements.
        assert!(up.len() > 3_500, "seed {seed}: {}", up.len());
        let last = up.iter().filter(|&&number| number >= 2_500).count();
        assert!(last >= 1_499, "seed {seed}: {last}");
        recovered += net.ends[1].io.counted(Count::Recovered);
    }
    assert!(recovered > 1_000, "{recovered}");
}

#[test]
fn inner_packets_are_classified() {
    let packet = ip(3, 4, 60);
    let inner = Inner::of(&packet);
    assert_eq!((inner.is_raw, inner.is_capable), (false, true));
    assert!(Inner::of(&packet[..59]).is_raw);
    // TCP: a pure ACK, an ACK with data, a SYN.
    let ack = pure_ack();
    assert!(Inner::of(&ack).is_raw);
    assert!(!Inner::of(&ack).is_capable);
    let mut syn = ack.clone();
    syn[33] = 0x12;
    assert!(!Inner::of(&syn).is_raw);
    let mut data = ack.clone();
    data.push(1);
    data[3] = 41;
    assert!(!Inner::of(&data).is_raw);
    let mut fragment = data.clone();
    fragment[6] = 0x20;
    assert!(!Inner::of(&fragment).is_raw);
    let mut six = vec![0; 48];
    six[0] = 0x60;
    six[1] = 0x30;
    six[5] = 8;
    six[6] = 17;
    assert!(Inner::of(&six).is_capable);
    assert!(!Inner::of(&six).is_raw);
}

#[test]
fn counted_events_are_traced() {
    let mut reroutes = 0;
    let mut freezes = 0;
    let mut all_nacks = 0;
    for (seed, paths) in (0..).zip(Chooser::ALL) {
        let config = Config {
            paths,
            ..config(8, 2)
        };
        let mut net = Net::new(config, seed);
        net.loss = 8;
        net.jitter_us = 50;
        talk(&mut net, 400);
        for end in &net.ends {
            let io = &end.io;
            let traced = |f: &dyn Fn(&Happened) -> Option<u32>| -> u64 {
                let all = io.traced.iter().filter_map(|(_, what)| f(what));
                all.map(u64::from).sum()
            };
            let decoded = traced(&|what| match *what {
                Happened::Decoded { k, have, .. } => Some((!have & ((1 << k) - 1)).count_ones()),
                _ => None,
            });
            assert_eq!(decoded, io.counted(Count::Recovered));
            let heard = traced(&|what| match *what {
                Happened::Nack { is_sent, .. } => Some((!is_sent).into()),
                _ => None,
            });
            assert_eq!(heard, io.counted(Count::NackReceived));
            all_nacks += heard;
            // A block passed over twice is counted once.
            let said = traced(&|what| match *what {
                Happened::Nack { is_sent, .. } => Some(is_sent.into()),
                _ => None,
            });
            let given_up = io.counted(Count::GivenUp);
            assert!((given_up..given_up * 3 + 1).contains(&said));
            let rerouted = traced(&|what| match *what {
                Happened::Reroute { paths, .. } => Some(paths),
                _ => None,
            });
            assert_eq!(rerouted, io.counted(Count::Reroute));
            reroutes += rerouted;
            let frozen = traced(&|what| match *what {
                Happened::Freeze { cause, .. } => {
                    Some((cause != Fate::Good && cause != Fate::Marked).into())
                }
                _ => None,
            });
            assert_eq!(frozen, io.counted(Count::Freeze));
            freezes += frozen;
            let begun = traced(&|what| match *what {
                Happened::Session { to, .. } => Some((to == Standing::Up).into()),
                _ => None,
            });
            assert_eq!(begun, io.counted(Count::Session));
            let channels = io.traced.iter().map(|(channel, _)| *channel);
            assert!(
                channels
                    .max()
                    .is_some_and(|channel| (1..8).contains(&channel))
            );
        }
    }
    assert!(reroutes > 10 && freezes > 3, "{reroutes} {freezes}");
    assert!(all_nacks > 100, "{all_nacks}");
}

#[test]
fn session_state_changes_are_traced() {
    let mut net = Net::new(config(8, 2), 1);
    net.send(0, ip(1, 0, 100));
    net.run(1_100_000);
    // The peer restarts; this end learns of it when it sends.
    net.ends[1] = End::new(config(8, 2), 5);
    net.send(0, ip(1, 1, 100));
    net.run(10_000_000);
    let states = net.ends[0]
        .io
        .traced
        .iter()
        .filter_map(|(_, what)| match *what {
            Happened::Session { from, to } => Some((from, to)),
            _ => None,
        });
    use Standing::*;
    let wanted = [(Down, Asked), (Asked, Up), (Up, Up)];
    assert_eq!(states.collect::<Vec<_>>(), wanted);
}

/// Sends `each` packets of one flow with pauses. Returns the number of delivered ones.
fn talk_of_one(net: &mut Net, from: u32, each: u32, pause_us: u64) -> usize {
    for number in from..from + each {
        net.send(0, ip(1, number, 100));
        net.run(pause_us);
    }
    net.up(1).values().map(Vec::len).sum()
}

#[test]
fn a_channel_works_after_an_outage() {
    for (x, y) in [(8, 2), (1, 0)] {
        let small = Config {
            window: 64,
            ..config(x, y)
        };
        for outage in [3, 100, 10_000] {
            let mut net = Net::new(small, 3);
            assert_eq!(talk_of_one(&mut net, 0, 3, 10_000), 3);
            net.loss = 100;
            assert_eq!(talk_of_one(&mut net, 3, outage, 1_000), 0);
            net.loss = 0;
            assert_eq!(talk_of_one(&mut net, 3 + outage, 50, 10_000), 50);
        }
    }
}

/// Returns the body of a HELLO with the sender's tag and the receiver's.
fn hello(tag: u64, presumed: u64, channels: u8) -> Vec<u8> {
    let tags = [tag.to_be_bytes(), presumed.to_be_bytes()].concat();
    [&tags[..], &[8, 2, channels]].concat()
}

/// Sends a request in the name of an end's peer.
fn forge_hello(net: &mut Net, at: usize, mine: u64) {
    let header = Header {
        kind: Kind::Hello,
        ..Header::default()
    };
    let body = hello(net.rng.next() | 1, mine, net.ends[at].channels.len() as u8);
    net.ends[at].receive(net.now_us, wire(&header, 0, &body), false);
}

#[test]
fn forged_requests_do_not_prevent_a_session() {
    for speaker in 0..2 {
        let mut net = Net::new(config(8, 2), 3);
        net.delay_us = 20_000;
        for number in 0..100 {
            net.send(speaker, ip(1, number, 100));
            (0..3).for_each(|_| forge_hello(&mut net, 0, 0));
            net.run(10_000);
        }
        assert!(net.ends.iter().all(|end| end.is_up()), "{speaker}");
        let sessions = net.ends.iter().map(|end| end.io.counted(Count::Session));
        assert!(sessions.eq([1, 1]));
    }
}

#[test]
fn a_tag_is_accepted_only_with_our_tag() {
    let mut net = Net::new(config(8, 2), 3);
    talk_of_one(&mut net, 0, 3, 10_000);
    let before = tags(&net, 0);
    for mine in [0, 1, before.0 ^ 1, before.1] {
        forge_hello(&mut net, 0, mine);
        assert_eq!(tags(&net, 0), before);
    }
    // An observer of the path can end a session. The peer's next HELLO restores it.
    forge_hello(&mut net, 0, before.0);
    assert_ne!(tags(&net, 0), before);
    assert!(talk_of_one(&mut net, 3, 10, 10_000) >= 9);
    assert_eq!(tags(&net, 0), before);
}

#[test]
fn a_hello_of_a_previous_instance_does_not_end_the_session() {
    let mut net = Net::new(config(8, 2), 3);
    net.send(0, ip(1, 0, 100));
    net.carry();
    net.run(60);
    net.carry();
    talk_of_one(&mut net, 1, 5, 1_000);
    let (mine, theirs) = tags(&net, 0);
    let header = Header {
        kind: Kind::Hello,
        ..Header::default()
    };
    let late = wire(&header, 0, &hello(mine, theirs, 8));
    net.ends[0] = End::new(config(8, 2), 99);
    talk_of_one(&mut net, 6, 5, 1_000);
    net.ends[1].receive(net.now_us, late, false);
    for number in 0..10 {
        net.send(1, ip(2, number, 100));
        net.run(1_000);
    }
    assert!(net.up(0)[&2].len() >= 9);
    let (mine, theirs) = tags(&net, 0);
    assert_eq!(tags(&net, 1), (theirs, mine));
}

#[test]
fn invalid_hellos_are_refused() {
    let mut net = Net::new(config(8, 2), 1);
    let header = Header {
        kind: Kind::Hello,
        ..Header::default()
    };
    let own = net.ends[0].session.mine;
    let body = |theirs: u64| hello(theirs, own, 8);
    for body in [
        body(0),
        body(own),
        body(7)[..18].to_vec(),
        [&body(7)[..], &[0]].concat(),
    ] {
        let before = net.ends[0].io.counted(Count::Malformed);
        net.ends[0].receive(net.now_us, wire(&header, 0, &body), false);
        assert_eq!(net.ends[0].io.counted(Count::Malformed), before + 1);
    }
    assert!(!net.ends[0].is_up());
}

#[test]
fn a_forged_packet_does_not_stop_a_channel() {
    let mut net = Net::new(config(8, 2), 3);
    assert_eq!(talk_of_one(&mut net, 0, 1, 1_000_000), 1);
    net.send(0, ip(1, 1, 100));
    net.carry();
    let mut forged = net
        .flying
        .values()
        .map(|(_, packet, _)| packet.clone())
        .find(|(_, packet)| packet[0] & 15 == Kind::Data as u8)
        .unwrap();
    net.run(1_000_000);
    // Changes the block number by 512.
    forged.1[6] ^= 2;
    net.ends[1].receive(net.now_us, forged, false);
    net.run(1_000_000);
    net.up(1);
    assert!(talk_of_one(&mut net, 2, 50, 20_000) >= 48);
}

#[test]
fn simultaneous_requests_create_one_session() {
    for seed in 0..600 {
        let mut net = Net::new(config(8, 2), seed);
        net.jitter_us = [0, 100, 2_000][seed as usize % 3];
        let first = (seed / 3 % 2) as usize;
        let pause_us = 1 + seed % 150;
        for (at, for_us) in [(first, pause_us), (1 - first, 3_000_000)] {
            for number in 0..10 {
                net.send(at, ip(1, number, 100));
            }
            net.run(for_us);
        }
        for at in 0..2 {
            assert_eq!(net.ends[at].io.counted(Count::Session), 1, "seed {seed}");
            assert_eq!(once_each(&mut net, at), 10, "seed {seed}");
        }
    }
}

#[test]
fn a_session_with_an_rtt_of_two_seconds_survives_reordering() {
    for seed in 0..100 {
        let mut net = Net::new(config(8, 2), seed);
        net.delay_us = 900_000;
        net.jitter_us = 20_000;
        for number in 0..200 {
            for at in 0..2 {
                net.send(at, ip(1, number, 100));
            }
            net.run(50_000);
        }
        net.run(4_000_000);
        for at in 0..2 {
            let sessions = net.ends[at].io.counted(Count::Session);
            assert_eq!(sessions, 1, "seed {seed}");
        }
    }
}

#[test]
fn a_late_peer_that_restarts_is_detected_within_two_seconds() {
    let mut net = Net::new(config(8, 2), 3);
    net.delay_us = 1_000;
    net.loss = 100;
    for number in 0..60 {
        net.send(0, ip(1, number, 100));
        net.run(20_000);
    }
    // Both ends send once the peer is reachable.
    net.loss = 0;
    for number in 60..120 {
        net.send(0, ip(1, number, 100));
        net.send(1, ip(1, number, 100));
        net.run(20_000);
    }
    assert!(net.ends[0].is_up());
    net.ends[1] = End::new(config(8, 2), 4);
    for number in 120..220 {
        net.send(0, ip(1, number, 100));
        net.run(20_000);
    }
    assert!(!net.up(1).is_empty());
}

#[test]
fn a_silent_peer_that_restarts_is_detected_among_forged_packets() {
    let mut net = Net::new(config(8, 2), 3);
    talk_of_one(&mut net, 0, 150, 10_000);
    net.ends[1] = End::new(config(8, 2), 4);
    let restart_us = net.now_us;
    for number in 0.. {
        forge_hello(&mut net, 1, 0);
        let packet = wire(&Header::default(), net.rng.any(), &ip(1, 1, 60));
        net.ends[1].receive(net.now_us, packet, false);
        if talk_of_one(&mut net, 150 + number, 1, 10_000) > 0 {
            break;
        }
        assert!(net.now_us - restart_us < 500_000);
    }
}
