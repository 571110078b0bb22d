// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::super::unorc_blocks::is_ip;
use super::super::unorc_sender::Sender;
use super::super::unorc_support::{Half, config, flow_and_number, ip};
use super::*;

type Alone = Half<Receiver>;
type Wire = Vec<(Header, Vec<u8>)>;

/// 500 us, a quarter more, and the delays of both hosts.
const UNKNOWN_BOUND_US: u64 = 645;

fn alone(config: Config) -> Alone {
    Alone::new(config)
}

/// Returns a sender's packets for these lengths, each block with all its parities.
fn blocks(config: Config, first: u32, lengths: &[usize]) -> Wire {
    let mut sender = Half::<Sender>::new(config);
    sender.run(|sender, cx| sender.begin(cx, first));
    for (number, len) in (0..).zip(lengths) {
        sender.run(|sender, cx| sender.push(cx, ip(1, number, *len), true));
    }
    sender.now_us += 50;
    sender.run(|sender, cx| sender.poll(cx));
    let sent = sender.io.sent.into_iter();
    sent.map(|(header, packet, _)| (header, packet)).collect()
}

fn give(alone: &mut Alone, (header, packet): &(Header, Vec<u8>)) {
    alone.run(|receiver, cx| receiver.receive(cx, header, (packet.clone(), false)));
}

fn poll(alone: &mut Alone) -> u64 {
    alone.run(|receiver, cx| receiver.poll(cx))
}

fn wait(alone: &mut Alone, us: u64) {
    alone.now_us += us;
    poll(alone);
}

/// Returns the numbers delivered since the last call.
fn up(alone: &mut Alone) -> Vec<u32> {
    let up = alone.io.up.drain(..);
    up.map(|(packet, _)| flow_and_number(&packet).1).collect()
}

/// Returns the reports sent since the last call.
fn reports(alone: &mut Alone) -> Vec<Report> {
    let mut reports = Vec::new();
    for (header, packet, _) in alone.io.sent.drain(..) {
        assert_eq!(header.kind, Kind::Feedback);
        reports.extend(Feedback::parse(&packet).unwrap().reports.iter().flatten());
    }
    reports
}

#[test]
fn blocks_of_eight_and_two_decode_every_loss_of_two() {
    let lengths = [40, 90, 32, 500, 499, 33, 64, 100];
    let mut wire = blocks(config(8, 2), 1, &lengths);
    assert_eq!(wire.len(), 10);
    // The next block ends this one.
    wire.extend(
        blocks(config(8, 2), 1, &[&lengths[..], &[40]].concat())
            .into_iter()
            .skip(10),
    );
    let (mut decoded, mut given_up) = (0, 0);
    for lost in 0u32..1 << 10 {
        let mut alone = alone(config(8, 2));
        // The first block number is known.
        alone.half.newest_us = 1;
        alone.half.next = 1;
        alone.half.end = 1;
        for (i, packet) in wire.iter().enumerate() {
            if lost >> i & 1 == 0 {
                give(&mut alone, packet);
            }
        }
        let came = up(&mut alone);
        match lost.count_ones() {
            0..=2 => {
                assert!(came.into_iter().eq(0..9), "{lost:b}");
                wait(&mut alone, 100_000);
                assert!(reports(&mut alone).iter().all(|report| report.is_decoded));
                decoded += 1;
            }
            3 if lost & 0xff != 0 => {
                let data = lost & 0xff;
                let first = data.trailing_zeros();
                assert!(came.into_iter().eq(0..first));
                wait(&mut alone, UNKNOWN_BOUND_US - 1);
                assert_eq!(up(&mut alone), []);
                wait(&mut alone, 1);
                let rest = (first..9).filter(|i| data >> i & 1 == 0);
                assert!(up(&mut alone).into_iter().eq(rest), "{lost:b}");
                let told = reports(&mut alone);
                assert!(
                    told.iter()
                        .all(|report| report.block == 1 && !report.is_decoded)
                );
                assert_eq!(told.iter().fold(0, |all, report| all | report.lost), data);
                assert_eq!(alone.io.counted(Count::GivenUp), 1);
                // Duplicates after the block are delivered once.
                for packet in wire.iter().take(8).chain(wire.iter().take(8)) {
                    give(&mut alone, packet);
                }
                let late = (0..8).filter(|i| data >> i & 1 != 0);
                assert!(up(&mut alone).into_iter().eq(late));
                given_up += 1;
            }
            _ => {}
        }
    }
    assert_eq!((decoded, given_up), (56, 120));
}

/// Returns undecodable blocks of `x` and `y` under the losses of Uno's Table 1: one, two or three of ten
/// packets in a row, at three ports, in as many packets as 800 flows of 5 MB have.
fn unread(x: u8, y: u8) -> (u64, u64) {
    let mut rng = Rng::new(13);
    let wire = blocks(config(x, y), 1, &[40; 8_000]);
    let (mut unread, mut lost) = (0, 0);
    for _ in 0..128 {
        let mut alone = alone(config(x, y));
        for ten in wire.chunks(10) {
            let mut is_lost = [false; 10];
            for _ in 0..3 {
                let n = match rng.within(0, 999_999) {
                    0..300 => 1,
                    300..375 => 2,
                    375..391 => 3,
                    _ => 0,
                };
                for _ in 0..n {
                    is_lost[rng.within(0, 9) as usize] = true;
                }
            }
            for (packet, &is_lost) in ten.iter().zip(&is_lost) {
                match is_lost {
                    false => give(&mut alone, packet),
                    true => lost += 1,
                }
            }
        }
        wait(&mut alone, 10_000);
        alone.io.up.clear();
        unread += alone.io.counted(Count::GivenUp);
    }
    (unread, lost)
}

#[test]
fn a_single_parity_is_not_enough_for_table_1() {
    let (without, lost) = unread(1, 0);
    let (with_one, _) = unread(8, 1);
    let (with_two, _) = unread(8, 2);
    assert!(lost > 100 && without > lost * 9 / 10, "{lost} {without}");
    assert!(with_one > 8, "{with_one}");
    assert!(with_two * 4 < with_one, "{with_one} {with_two}");
}

#[test]
fn reordered_and_duplicate_blocks_decode_across_the_number_wrap() {
    let mut rng = Rng::new(4);
    for seed in 0..300 {
        let (x, y) = rng.pick(&[(8, 2), (1, 0), (1, 1), (28, 3), (5, 3), (3, 1)]);
        let first = u32::MAX - 4;
        let packets = rng.within(1, 200) as usize;
        let lengths: Vec<_> = (0..packets).map(|_| rng.within(32, 300) as usize).collect();
        let mut wire = blocks(config(x, y), first, &lengths);
        // Each block loses at most as many packets as it has parities, the last block none.
        let last = wire.last().unwrap().0.block;
        let mut left = std::collections::HashMap::<u32, usize>::new();
        for (header, _) in &wire {
            *left.entry(header.block).or_default() += usize::from(header.kind == Kind::Parity);
        }
        wire.retain(|(header, _)| {
            let left = left.get_mut(&header.block).unwrap();
            let is_lost = header.block != last && *left > 0 && rng.percent(20);
            *left -= usize::from(is_lost);
            !is_lost
        });
        // The first packet determines the channel's start.
        for i in 1..wire.len() {
            let other = (i + rng.within(0, 12) as usize).min(wire.len() - 1);
            wire.swap(i, other);
        }
        for i in (1..wire.len()).rev() {
            if rng.percent(10) {
                wire.insert(i, wire[i].clone());
            }
        }
        let mut alone = alone(config(x, y));
        for packet in &wire {
            give(&mut alone, packet);
        }
        let came = up(&mut alone);
        assert!(
            came.into_iter().eq(0..packets as u32),
            "seed {seed}, {x}+{y}"
        );
        wait(&mut alone, 1_000_000);
        assert_eq!(alone.io.counted(Count::GivenUp), 0);
    }
}

#[test]
fn packets_in_order_are_delivered_at_once() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2));
    give(&mut alone, &wire[0]);
    assert_eq!(up(&mut alone), [0]);
    give(&mut alone, &wire[2]);
    assert_eq!(up(&mut alone), []);
    give(&mut alone, &wire[1]);
    assert_eq!(up(&mut alone), [1, 2]);
    assert_eq!(alone.half.held_bytes, 150);
}

#[test]
fn a_partial_block_ends_with_the_next_block() {
    let mut first = blocks(config(8, 2), 1, &[50; 3]);
    first.truncate(3);
    let mut alone = alone(config(8, 2));
    first.iter().for_each(|packet| give(&mut alone, packet));
    let next = Header {
        block: 2,
        k: 3,
        ..Header::default()
    };
    give(&mut alone, &(next, ip(1, 3, 50)));
    assert!(up(&mut alone).into_iter().eq(0..4));
    wait(&mut alone, 10_000);
    assert_eq!(alone.io.counted(Count::GivenUp), 0);
}

/// Repeatedly delays one of three packets.
fn reorder(alone: &mut Alone, wire: &[(Header, Vec<u8>)], us: u64) {
    for three in wire.chunks_exact(3) {
        give(alone, &three[0]);
        give(alone, &three[2]);
        wait(alone, us);
        give(alone, &three[1]);
        wait(alone, 1);
    }
}

#[test]
fn the_delay_bound_follows_measured_delays() {
    let mut alone = alone(config(1, 0));
    let bound = |alone: &Alone| alone.half.bound_us(&alone.config);
    assert_eq!(bound(&alone), UNKNOWN_BOUND_US as u32);
    let wire = blocks(config(1, 0), 1, &[50; 3_000]);
    reorder(&mut alone, &wire[..600], 100);
    assert!((120..200).contains(&bound(&alone)), "{}", bound(&alone));
    let late = alone.io.counted(Count::Late);
    assert_eq!(late, 0);
    // Delays above the bound: late packets raise it.
    reorder(&mut alone, &wire[600..1_200], 700);
    assert!((700..=1_000).contains(&bound(&alone)), "{}", bound(&alone));
    let late = alone.io.counted(Count::Late);
    assert!((1..6).contains(&late), "{late}");
    // The bound is limited to a millisecond.
    reorder(&mut alone, &wire[1_200..1_800], 5_000);
    assert_eq!(bound(&alone), 1_000);
    // Packets that never arrive lower the bound.
    for three in wire[1_800..].chunks_exact(3) {
        give(&mut alone, &three[0]);
        give(&mut alone, &three[2]);
        wait(&mut alone, 2_000);
    }
    assert!(bound(&alone) <= 50, "{}", bound(&alone));
    alone.config.timer_us = 300;
    assert_eq!(bound(&alone), 300);
}

#[test]
fn lost_blocks_are_skipped() {
    let wire = blocks(config(1, 0), 1, &[50; 4]);
    let mut alone = alone(config(1, 0));
    give(&mut alone, &wire[0]);
    give(&mut alone, &wire[3]);
    wait(&mut alone, UNKNOWN_BOUND_US - 1);
    assert_eq!((up(&mut alone), reports(&mut alone)), (vec![0], vec![]));
    wait(&mut alone, 1);
    assert_eq!(up(&mut alone), [3]);
    let told: Vec<_> = reports(&mut alone)
        .iter()
        .map(|report| report.block)
        .collect();
    assert_eq!(told, [2, 3]);
    assert_eq!(alone.io.counted(Count::GivenUp), 2);
    give(&mut alone, &wire[1]);
    give(&mut alone, &wire[1]);
    assert_eq!(up(&mut alone), [1]);
    assert_eq!(alone.io.counted(Count::Late), 1);
    assert_eq!(alone.io.counted(Count::Duplicate), 1);
}

#[test]
fn packets_decoded_late_are_delivered() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2));
    for packet in wire.iter().take(8).filter(|(header, _)| header.index != 3) {
        give(&mut alone, packet);
    }
    wait(&mut alone, 2_000);
    assert_eq!(up(&mut alone), [0, 1, 2, 4, 5, 6, 7]);
    give(&mut alone, &wire[8]);
    // The block was passed over and its packets are freed, so a late parity delivers nothing.
    assert_eq!(up(&mut alone), []);
    let mut alone = super::tests::alone(config(8, 2));
    for packet in wire.iter().take(7).filter(|(header, _)| header.index != 3) {
        give(&mut alone, packet);
    }
    wait(&mut alone, 2_000);
    assert_eq!(up(&mut alone), [0, 1, 2, 4, 5, 6]);
    give(&mut alone, &wire[8]);
    assert_eq!(up(&mut alone), []);
    give(&mut alone, &wire[9]);
    assert_eq!(up(&mut alone), [3, 7]);
}

#[test]
fn foreign_block_numbers_do_not_stop_a_channel() {
    for (x, y) in [(8, 2), (1, 0)] {
        for jump in [1_000_000, u32::MAX - 1_000_000, 100, 3] {
            let mut alone = alone(config(x, y));
            let mut wire = blocks(config(x, y), 5_000, &[50; 400]);
            let (header, packet) = &wire[20];
            let other = Header {
                block: header.block.wrapping_add(jump),
                ..*header
            };
            wire.insert(20, (other, packet.clone()));
            for packet in &wire {
                give(&mut alone, packet);
                wait(&mut alone, 1);
            }
            wait(&mut alone, 10_000);
            let mut came = up(&mut alone);
            came.sort_unstable();
            came.dedup();
            // A wrong packet takes the slot in a block that exists.
            assert!(came.len() >= 399, "{x}+{y} {jump}");
        }
    }
}

#[test]
fn a_restarted_sender_costs_one_jump() {
    let mut alone = alone(config(8, 2));
    for packet in &blocks(config(8, 2), 1, &[50; 40]) {
        if packet.0.index != 1 && packet.0.index < 28 {
            give(&mut alone, packet);
        }
    }
    assert_eq!(up(&mut alone), [0]);
    let again = blocks(config(8, 2), 77_777_777, &[50; 16]);
    give(&mut alone, &again[0]);
    // Held packets are delivered, and their slots freed on reuse.
    assert_eq!(up(&mut alone).len(), 35);
    again[1..]
        .iter()
        .for_each(|packet| give(&mut alone, packet));
    assert!(up(&mut alone).into_iter().eq(1..16));
    assert_eq!(alone.half.held_bytes, 0);
    alone.run(|_, cx| assert!(cx.lent.slots.iter().all(Option::is_none)));
}

#[test]
fn too_many_waiting_packets_end_the_wait() {
    let mut config = config(1, 0);
    config.mtu = u16::MAX;
    let wire = blocks(config, 1, &[60_000; 200]);
    let mut alone = alone(config);
    for packet in wire.iter().filter(|(header, _)| header.block != 2) {
        give(&mut alone, packet);
        assert!(alone.half.held_bytes <= MAX_HELD_BYTES);
    }
    assert!(up(&mut alone).into_iter().eq((0..200).filter(|&n| n != 1)));
}

#[test]
fn a_forged_parity_decodes_no_packet() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2));
    for (i, (header, packet)) in wire.iter().enumerate() {
        let mut packet = packet.clone();
        if i == 8 {
            packet[1] ^= 0x40;
        }
        if i != 3 {
            give(&mut alone, &(*header, packet));
        }
    }
    // The genuine packet comes too late: the forged one took its place.
    assert_eq!(alone.io.counted(Count::BadDecode), 1);
    give(&mut alone, &wire[3]);
    assert!(up(&mut alone).into_iter().eq(0..8));
}

#[test]
fn feedback_is_sent_every_four_packets_or_twenty_us() {
    let wire = blocks(config(8, 2), 1, &[50; 8]);
    let mut alone = alone(config(8, 2));
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
    assert_eq!((header.block, header.index, feedback.age_us), (1, 29, 20));
    assert_eq!(feedback.counts().1, 2);
    assert_eq!(feedback.echoes[1], Some((wire[9].0.ev, false)));
}

#[test]
fn any_packets_cause_no_panic() {
    let mut rng = Rng::new(5);
    for _ in 0..60 {
        let (x, y) = rng.pick(&[(8, 2), (1, 0), (28, 3)]);
        let mut alone = alone(config(x, y));
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
            assert!(alone.half.held_bytes <= MAX_HELD_BYTES);
        }
        alone.run(|receiver, cx| {
            let held = cx.lent.slots.iter().filter_map(|slot| slot.as_ref());
            assert_eq!(
                held.map(|(packet, _)| packet.len()).sum::<usize>(),
                receiver.held_bytes
            );
        });
    }
}

#[test]
fn only_ip_packets_are_recognized_as_ip() {
    assert!(is_ip(&ip(1, 1, 60)) && !is_ip(&ip(1, 1, 60)[..59]) && !is_ip(&[]));
    let mut six = vec![0; 48];
    six[0] = 0x60;
    six[5] = 8;
    assert!(is_ip(&six));
    six.push(0);
    assert!(!is_ip(&six));
}

#[test]
fn the_wait_for_parities_follows_the_duration_of_blocks() {
    let wire = blocks(config(8, 2), 1, &[50; 80]);
    let mut alone = alone(config(8, 2));
    alone.half.spread_us = 10;
    for ten in wire.chunks(10) {
        for (i, packet) in ten.iter().enumerate() {
            // All blocks but the first lose a packet.
            if i != 2 || packet.0.block == 1 {
                give(&mut alone, packet);
            }
            wait(&mut alone, if i < 7 { 60 } else { 0 });
        }
    }
    assert_eq!(alone.io.counted(Count::GivenUp), 0);
    assert!(up(&mut alone).into_iter().eq(0..80));
    // The bound is limited to a millisecond.
    alone.half.block_us = 900;
    alone.half.spread_us = 900;
    assert_eq!(alone.half.bound_us(&alone.config), 1_000);
}
