// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::super::unorc::{FIRST_BLOCK, Sender};
use super::super::unorc_support::{Half, config, flow_and_number, ip};
use super::*;

type Alone = Half<Receiver>;
type Wire = Vec<(Header, Vec<u8>)>;

fn alone(config: Config, first: u32) -> Alone {
    let mut alone = Alone::new(config);
    alone.receiver(|receiver, _, lent| receiver.begin(lent, first));
    alone
}

/// What a sender sends for packets of these lengths.
fn blocks(config: Config, first: u32, lengths: &[usize]) -> Wire {
    let mut sender = Half::<Sender<Vec<u8>>>::new(config);
    sender.sender(|sender, cx, lent| sender.begin(cx.config, lent, first));
    for (number, len) in (0..).zip(lengths) {
        sender.sender(|sender, cx, lent| sender.push(cx, lent, ip(1, number, *len), Ecn::Capable));
    }
    sender.now_us += 50;
    sender.sender(|sender, cx, lent| sender.poll(cx, lent));
    let sent = sender.io.sent.into_iter();
    sent.map(|(header, packet, _)| (header, packet)).collect()
}

fn give(alone: &mut Alone, (header, packet): &(Header, Vec<u8>)) {
    alone.receiver(|receiver, cx, lent| {
        receiver.receive(cx, lent, header, packet.clone(), false);
    });
}

fn poll(alone: &mut Alone) -> u64 {
    alone.receiver(|receiver, cx, lent| receiver.poll(cx, lent))
}

/// Numbers of what went up since the last call.
fn up(alone: &mut Alone) -> Vec<u32> {
    let up = alone.io.up.drain(..);
    up.map(|(packet, _)| flow_and_number(&packet).1).collect()
}

/// Reports that were sent since the last call.
fn reports(alone: &mut Alone) -> Vec<Report> {
    let mut reports = Vec::new();
    for (header, packet, _) in alone.io.sent.drain(..) {
        assert_eq!(header.kind, Kind::Feedback);
        let feedback = Feedback::parse(&packet).unwrap();
        reports.extend(&feedback.reports[..feedback.report_count.into()]);
    }
    reports
}

#[test]
fn every_loss_of_eight_and_two() {
    let wire = blocks(config(8, 2), 1, &[40, 90, 32, 500, 499, 33, 64, 100]);
    assert_eq!(wire.len(), 10);
    let (mut decoded, mut nacked) = (0, 0);
    for lost in 0u32..1 << 10 {
        let mut alone = alone(config(8, 2), 1);
        for (i, packet) in wire.iter().enumerate() {
            if lost >> i & 1 == 0 {
                give(&mut alone, packet);
            }
        }
        let came = up(&mut alone);
        match lost.count_ones() {
            0..=2 => {
                assert!(came.into_iter().eq(0..8), "{lost:b}");
                assert_eq!(alone.half.held_bytes(), 0);
                alone.now_us += 100_000;
                poll(&mut alone);
                assert!(reports(&mut alone).iter().all(|report| report.is_done));
                decoded += 1;
            }
            3 => {
                assert!(came.into_iter().eq(0..lost.trailing_zeros().min(8)));
                alone.now_us += 690;
                poll(&mut alone);
                let have = !lost & 0xff | (!lost >> 8 & 3) << 28;
                let nack = Report {
                    block: 1,
                    is_done: false,
                    have,
                };
                assert_eq!(reports(&mut alone), [nack]);
                // What is missing comes, and there is all.
                for (i, (header, packet)) in wire.iter().enumerate().take(8) {
                    if lost >> i & 1 != 0 {
                        give(&mut alone, &(Header { k: 8, ..*header }, packet.clone()));
                    }
                }
                assert!(
                    up(&mut alone)
                        .into_iter()
                        .eq(lost.trailing_zeros().min(8)..8)
                );
                nacked += 1;
            }
            _ => {}
        }
    }
    assert_eq!((decoded, nacked), (56, 120));
}

#[test]
fn any_order_any_block_and_duplicates_around_the_end_of_numbers() {
    let mut rng = Rng::new(4);
    for seed in 0..300 {
        let (x, y) = rng.pick(&[(8, 2), (1, 0), (1, 1), (28, 3), (5, 3), (3, 1)]);
        let first = u32::MAX - 4;
        let packets = rng.within(1, 200) as usize;
        let lengths: Vec<_> = (0..packets).map(|_| rng.within(32, 300) as usize).collect();
        let mut wire = blocks(config(x, y), first, &lengths);
        // At most y of a block are lost. Of the last one none: with all its parities its number would be.
        let last = wire.last().unwrap().0.block;
        let mut lost = std::collections::HashMap::<u32, u8>::new();
        wire.retain(|(header, _)| {
            let lost = lost.entry(header.block).or_default();
            let is_lost = header.block != last && *lost < y && rng.percent(20);
            *lost += u8::from(is_lost);
            !is_lost
        });
        for i in 0..wire.len() {
            let other = (i + rng.within(0, 12) as usize).min(wire.len() - 1);
            wire.swap(i, other);
        }
        for i in (0..wire.len()).rev() {
            if rng.percent(10) {
                wire.insert(i, wire[i].clone());
            }
        }
        let mut alone = alone(config(x, y), first);
        for packet in &wire {
            give(&mut alone, packet);
        }
        assert!(
            up(&mut alone).into_iter().eq(0..packets as u32),
            "seed {seed}, {x}+{y}"
        );
        assert_eq!(alone.half.held_bytes(), 0);
        alone.now_us += 1_000_000;
        poll(&mut alone);
        assert_eq!(
            alone.io.counted(Count::NackSent),
            0,
            "{:?} {x}+{y} {packets} {:?}",
            alone.half,
            alone.io.counts
        );
    }
}

#[test]
fn what_is_in_order_goes_up_at_once() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2), 1);
    give(&mut alone, &wire[0]);
    assert_eq!(up(&mut alone), [0]);
    give(&mut alone, &wire[2]);
    assert_eq!(up(&mut alone), []);
    give(&mut alone, &wire[1]);
    assert_eq!(up(&mut alone), [1, 2]);
    assert_eq!(alone.half.held_bytes(), 150);
}

#[test]
fn a_block_of_which_nothing_came_is_missed_when_a_later_one_comes() {
    let wire = blocks(config(1, 0), 1, &[50; 3]);
    let mut alone = alone(config(1, 0), 1);
    give(&mut alone, &wire[2]);
    alone.now_us += 689;
    poll(&mut alone);
    assert_eq!(reports(&mut alone), []);
    alone.now_us += 1;
    poll(&mut alone);
    let missed = reports(&mut alone);
    assert_eq!(
        missed.iter().map(|report| report.block).collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(
        missed
            .iter()
            .all(|report| !report.is_done && report.have == 0)
    );
    // What is sent again can be lost, too: it is missed two more times, an RTT + F + T later.
    for nacks in [4, 6] {
        let due_us = poll(&mut alone);
        assert_eq!(due_us, alone.now_us + 690 + 100);
        alone.now_us = due_us;
        poll(&mut alone);
        assert_eq!(alone.io.counted(Count::NackSent), nacks);
    }
    // One that does not come is given up: F + T + 1.5 RTT later.
    let due_us = poll(&mut alone);
    assert_eq!(due_us, alone.now_us + 690 + 150);
    alone.now_us = due_us;
    poll(&mut alone);
    assert_eq!(up(&mut alone), [2]);
    assert_eq!(alone.io.counted(Count::GivenUp), 2);
    give(&mut alone, &wire[0]);
    assert_eq!(up(&mut alone), []);
    assert_eq!(alone.io.counted(Count::Old), 1);
}

#[test]
fn below_the_floor_nothing_is_waited_for() {
    let wire = blocks(config(8, 2), 1, &[50; 24]);
    let mut alone = alone(config(8, 2), 1);
    for packet in wire.iter().skip(12) {
        give(&mut alone, packet);
    }
    give(&mut alone, &wire[0]);
    assert_eq!(up(&mut alone), [0]);
    alone.receiver(|receiver, cx, lent| receiver.floor(cx, lent, 2));
    // Of block 2 two data packets were lost, and it has two parities.
    assert!(up(&mut alone).into_iter().eq(8..24));
    assert_eq!(alone.half.held_bytes(), 0);
}

#[test]
fn a_floor_is_never_too_far() {
    let mut alone = alone(config(8, 2), 1);
    for packet in blocks(config(8, 2), 1, &[50; 24]).iter().skip(12) {
        give(&mut alone, packet);
    }
    assert!(up(&mut alone).is_empty());
    alone.receiver(|receiver, cx, lent| receiver.floor(cx, lent, 1_000_000));
    assert!(up(&mut alone).into_iter().eq(8..24));
    assert_eq!(alone.half.held_bytes(), 0);
    assert_eq!(alone.half.blocks_under_way(), 0);
    for packet in &blocks(config(8, 2), 1_000_000, &[50; 16]) {
        give(&mut alone, packet);
    }
    assert!(up(&mut alone).into_iter().eq(0..16));
    assert_eq!(alone.io.counted(Count::Far), 0);
}

#[test]
fn too_much_that_waits_is_given_up() {
    let mut config = config(1, 0);
    config.mtu = u16::MAX;
    let wire = blocks(config, 1, &[60_000; 200]);
    let mut alone = alone(config, 1);
    for packet in &wire[1..] {
        give(&mut alone, packet);
        assert!(alone.half.held_bytes() <= MAX_HELD_BYTES);
    }
    assert!(up(&mut alone).into_iter().eq(1..200));
}

#[test]
fn a_parity_that_lies_makes_no_packet() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2), 1);
    for (i, (header, packet)) in wire.iter().enumerate() {
        let mut packet = packet.clone();
        if i == 8 {
            packet[1] ^= 0x40;
        }
        if i != 3 {
            give(&mut alone, &(*header, packet));
        }
    }
    // The one that is true comes too late, for the first was taken for true.
    assert_eq!(alone.io.counted(Count::BadDecode), 1);
    give(&mut alone, &wire[3]);
    assert!(up(&mut alone).into_iter().eq(0..8));
}

#[test]
fn every_fourth_packet_is_answered_or_after_twenty_us() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2), 1);
    for (n, packet) in wire.iter().enumerate() {
        give(&mut alone, packet);
        poll(&mut alone);
        assert_eq!(alone.io.sent.len(), (n + 1) / 4);
    }
    alone.now_us += 19;
    poll(&mut alone);
    assert_eq!(alone.io.sent.len(), 2);
    alone.now_us += 1;
    poll(&mut alone);
    let (header, packet, _) = &alone.io.sent[2];
    let feedback = Feedback::parse(packet).unwrap();
    assert_eq!(
        (header.block, feedback.newest, feedback.age_us),
        (2, (1, 29), 20)
    );
    assert_eq!(feedback.echo_count, 2);
    assert_eq!(feedback.echoes[1], (wire[9].0.ev, false));
}

#[test]
fn any_packets_do_no_harm() {
    let mut rng = Rng::new(5);
    for _ in 0..60 {
        let (x, y) = rng.pick(&[(8, 2), (1, 0), (28, 3)]);
        let mut alone = alone(config(x, y), 1);
        alone.io.fails = rng.pick(&[0, 3, 10]);
        let wire = blocks(config(x, y), 1, &[80; 100]);
        for _ in 0..1_000 {
            let (mut header, mut packet) =
                wire[rng.within(0, wire.len() as u64 - 1) as usize].clone();
            match rng.within(0, 9) {
                0 => header.block = rng.any() as u32,
                1 => header.block = header.block.wrapping_add(rng.within(0, 20_000) as u32),
                2 => header.k = rng.within(0, 28) as u8,
                3 => header.index = rng.within(0, 30) as u8,
                4 => packet.truncate(rng.within(0, 80) as usize),
                5 => header.kind = rng.pick(&[Kind::Data, Kind::Parity]),
                _ => {}
            }
            give(&mut alone, &(header, packet));
            alone.now_us += rng.within(0, 300);
            poll(&mut alone);
            assert!(alone.half.held_bytes() <= MAX_HELD_BYTES);
        }
        alone.receiver(|receiver, _, lent| {
            let held = lent.slots.iter().filter_map(|slot| slot.packet.as_ref());
            assert_eq!(held.map(Vec::len).sum::<usize>(), receiver.held_bytes());
        });
    }
}

#[test]
fn only_ip_is_ip() {
    assert!(is_ip(&ip(1, 1, 60)) && !is_ip(&ip(1, 1, 60)[..59]) && !is_ip(&[]));
    let mut six = vec![0; 48];
    six[0] = 0x60;
    six[5] = 8;
    assert!(is_ip(&six));
    six.push(0);
    assert!(!is_ip(&six));
    assert_eq!(FIRST_BLOCK, 1);
}
