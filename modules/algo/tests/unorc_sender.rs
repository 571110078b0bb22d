// SPDX-License-Identifier: GPL-2.0

use super::super::paths::{Kind as Chooser, SPRAYED};
use super::super::unorc_support::{Caller, Half, config, ip};
use super::*;
use std::collections::HashSet;

const FIRST: u32 = 1;

type Alone = Half<Sender>;

fn alone(config: Config) -> Alone {
    let mut alone = Alone::new(config);
    alone.run(|sender, cx| sender.begin(cx, FIRST));
    alone
}

/// Returns a sender without the initial credit.
fn poor(config: Config) -> Alone {
    let mut alone = alone(config);
    alone.half.credit = Credit::default();
    alone
}

fn push(alone: &mut Alone, numbers: std::ops::Range<u32>) {
    for number in numbers {
        alone.run(|sender, cx| sender.push(cx, ip(1, number, 100), true));
    }
}

fn poll(alone: &mut Alone) -> u64 {
    alone.run(|sender, cx| sender.poll(cx))
}

fn hear(alone: &mut Alone, newest: (u32, u8), feedback: &Feedback) {
    alone.run(|sender, cx| sender.feedback(cx, Some(newest), feedback));
}

fn report(block: u32, lost: u32, is_decoded: bool) -> Feedback {
    let mut feedback = Feedback::default();
    feedback.reports[0] = Some(Report {
        block,
        is_decoded,
        lost,
    });
    feedback
}

/// Returns packets sent since the last call: kind, block, index, k.
fn sent(io: &mut Caller) -> Vec<(Kind, u32, u8, u8)> {
    let sent = io.sent.drain(..);
    sent.map(|(header, ..)| (header.kind, header.block, header.index, header.k))
        .collect()
}

fn parities(io: &mut Caller) -> usize {
    let all = sent(io);
    all.iter().filter(|sent| sent.0 == Kind::Parity).count()
}

#[test]
fn a_block_is_eight_packets_and_two_parities() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..9);
    let mut wanted: Vec<_> = (0..8).map(|i| (Kind::Data, 1, i, 0)).collect();
    wanted.extend([(Kind::Parity, 1, 28, 8), (Kind::Parity, 1, 29, 8)]);
    wanted.push((Kind::Data, 2, 0, 8));
    assert_eq!(sent(&mut alone.io), wanted);
    // The session's initial credit pays.
    assert_eq!(poll(&mut alone), alone.now_us + 50);
    alone.now_us += 50;
    poll(&mut alone);
    let short = [(Kind::Parity, 2, 28, 1), (Kind::Parity, 2, 29, 1)];
    assert_eq!(sent(&mut alone.io), short);
    push(&mut alone, 9..10);
    assert_eq!(sent(&mut alone.io), [(Kind::Data, 3, 0, 1)]);
}

#[test]
fn sparse_packets_share_a_block_until_it_pays_a_parity() {
    let mut alone = poor(config(8, 2));
    let begin_us = alone.now_us;
    for number in 0..3 {
        push(&mut alone, number..number + 1);
        assert_eq!(poll(&mut alone), 0);
        alone.now_us += 80;
    }
    push(&mut alone, 3..4);
    assert_eq!(poll(&mut alone), begin_us + 500);
    alone.now_us = begin_us + 500;
    poll(&mut alone);
    let mut wanted: Vec<_> = (0..4).map(|i| (Kind::Data, 1, i, 0)).collect();
    wanted.push((Kind::Parity, 1, 28, 4));
    assert_eq!(sent(&mut alone.io), wanted);
    // A block that fills sooner has all parities.
    for number in 4..12 {
        push(&mut alone, number..number + 1);
        alone.now_us += 60;
        poll(&mut alone);
    }
    assert_eq!(parities(&mut alone.io), 2);
}

#[test]
fn sparse_packets_do_not_have_a_parity_each() {
    let mut alone = alone(config(8, 2));
    for number in 0..10_000 {
        push(&mut alone, number..number + 1);
        alone.now_us += 75;
        poll(&mut alone);
    }
    let share = alone.io.counted(Count::TxParity) as f64 / alone.io.counted(Count::TxData) as f64;
    assert!((0.24..=0.2505).contains(&share), "{share}");
}

#[test]
fn no_timer_runs_without_a_code() {
    let mut alone = alone(config(1, 0));
    push(&mut alone, 0..3);
    let wanted = [
        (Kind::Data, 1, 0, 0),
        (Kind::Data, 2, 0, 1),
        (Kind::Data, 3, 0, 1),
    ];
    assert_eq!(sent(&mut alone.io), wanted);
    assert_eq!(poll(&mut alone), 0);
}

#[test]
fn parities_can_be_marked_if_all_their_data_can() {
    let mut alone = alone(config(2, 1));
    push(&mut alone, 0..2);
    alone.run(|sender, cx| sender.push(cx, ip(1, 2, 50), false));
    push(&mut alone, 3..4);
    let all = alone.io.sent.iter();
    let parities = all.filter(|(header, ..)| header.kind == Kind::Parity);
    let marks: Vec<_> = parities.map(|(.., is_capable)| *is_capable).collect();
    assert_eq!(marks, [true, false]);
}

/// Sends full blocks for `rounds`, each with feedback an RTT later. Returns parities in percent of data.
fn stream(alone: &mut Alone, rounds: u32, rtt_us: u64, is_marked: bool, lost: u32) -> usize {
    let before = alone.io.counted(Count::TxData);
    let mut found = 0;
    for _ in 0..rounds {
        let block = alone.half.block;
        push(alone, 0..8);
        found += parities(&mut alone.io);
        alone.now_us += rtt_us;
        let mut feedback = report(block, lost, true);
        if lost == 0 {
            feedback.reports[0] = None;
        }
        feedback.echo(1, is_marked);
        hear(alone, (block, 7), &feedback);
    }
    found * 100 / (alone.io.counted(Count::TxData) - before) as usize
}

#[test]
fn marks_and_a_long_queue_stop_parities_but_losses_do_not() {
    let mut alone = poor(config(8, 2));
    alone.rtt = BaseRtt::default();
    assert_eq!(stream(&mut alone, 50, 1_000, false, 0), 25);
    // Losses of one packet in eight never lower the share.
    assert_eq!(stream(&mut alone, 50, 1_000, false, 1), 25);
    assert!(stream(&mut alone, 50, 1_000, true, 0) <= 2);
    assert_eq!(alone.half.credit.share(), 0);
    stream(&mut alone, 20, 1_000, false, 0);
    assert_eq!(stream(&mut alone, 50, 1_000, false, 0), 25);
    // A queue of half an RTT, for a minute.
    stream(&mut alone, 30, 1_500, false, 0);
    assert!(stream(&mut alone, 40_000, 1_500, false, 0) == 0);
    stream(&mut alone, 50, 1_000, false, 0);
    assert_eq!(alone.half.credit.share(), 64);
    // A slightly longer RTT is no queue.
    assert_eq!(stream(&mut alone, 500, 1_200, false, 0), 25);
}

#[test]
fn the_chooser_is_notified_of_losses() {
    for is_decoded in [true, false] {
        let mut alone = alone(Config {
            paths: Chooser::Bitmap,
            ..config(8, 2)
        });
        push(&mut alone, 0..8);
        let evs: Vec<_> = alone.io.sent.iter().map(|(header, ..)| header.ev).collect();
        hear(&mut alone, (1, 7), &report(1, 0b0010_0100, is_decoded));
        // Two rounds of all values: a penalty lasts longer.
        let used: HashSet<_> = (0..2 * SPRAYED)
            .map(|_| alone.run(|sender, cx| sender.paths.next(cx.now_us, cx.rng)))
            .collect();
        let avoided = (0..SPRAYED as u16).filter(|ev| !used.contains(ev));
        let mut wanted = vec![evs[2], evs[5]];
        wanted.sort_unstable();
        assert_eq!(avoided.collect::<Vec<_>>(), wanted);
        assert_eq!(
            alone.io.counted(Count::NackReceived),
            u64::from(!is_decoded)
        );
    }
}

#[test]
fn silence_counts_as_a_timeout_if_data_are_pending() {
    let mut alone = alone(Config {
        paths: Chooser::Plb,
        ..config(8, 2)
    });
    push(&mut alone, 0..1);
    alone.now_us += 100;
    hear(&mut alone, (1, 0), &Feedback::default());
    let reroutes = |alone: &Alone| alone.io.counted(Count::Reroute);
    // All packets got feedback.
    alone.now_us += 1_000_000;
    push(&mut alone, 1..2);
    assert_eq!(reroutes(&alone), 0);
    // RTT + bound + flush + feedback delay = 1,170.
    alone.now_us += 1_170;
    push(&mut alone, 2..3);
    assert_eq!(reroutes(&alone), 0);
    alone.now_us += 1;
    push(&mut alone, 3..4);
    push(&mut alone, 4..5);
    assert_eq!(reroutes(&alone), 1);
}

#[test]
fn losses_of_unsent_blocks_are_ignored() {
    let mut alone = alone(config(8, 2));
    alone.rtt = BaseRtt::default();
    push(&mut alone, 0..12);
    hear(&mut alone, (9, 0), &Feedback::default());
    assert_eq!(alone.io.counted(Count::Malformed), 1);
    hear(&mut alone, (2, 5), &Feedback::default());
    assert_eq!(alone.rtt.get(), None);
    sent(&mut alone.io);
    push(&mut alone, 12..13);
    assert_eq!(sent(&mut alone.io), [(Kind::Data, 2, 4, 8)]);
}

#[test]
fn the_rtt_excludes_the_delay_at_the_receiver() {
    let mut alone = alone(config(1, 0));
    alone.rtt = BaseRtt::default();
    push(&mut alone, 0..1);
    alone.now_us += 60;
    let feedback = Feedback {
        age_us: 20,
        ..Feedback::default()
    };
    hear(&mut alone, (1, 0), &feedback);
    assert_eq!((alone.rtt.get(), alone.half.srtt_us), (Some(40), 40));
}

#[test]
fn a_new_session_keeps_no_times_of_the_previous_one() {
    let mut alone = alone(Config {
        window: 64,
        ..config(1, 0)
    });
    alone.rtt = BaseRtt::default();
    // As many packets as there are slots.
    push(&mut alone, 0..64);
    alone.run(|sender, cx| sender.begin(cx, FIRST + 1_000));
    hear(&mut alone, (FIRST + 1_000 - 1, 0), &Feedback::default());
    assert_eq!(alone.rtt.get(), None);
}

#[test]
fn a_new_session_frees_the_parities_of_the_open_block() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..1);
    assert_eq!(alone.memory.parities.iter().flatten().count(), 2);
    alone.run(|sender, cx| sender.begin(cx, FIRST));
    assert_eq!(alone.memory.parities.iter().flatten().count(), 0);
}

#[test]
fn parities_without_memory_are_not_sent() {
    let mut alone = alone(config(8, 2));
    alone.io.fails = 2;
    push(&mut alone, 0..8);
    // One of two parities is missing.
    assert_eq!(alone.io.counted(Count::NoMem), 1);
    assert_eq!(parities(&mut alone.io), 1);
    assert_eq!(alone.io.counted(Count::TxData), 8);
}

#[test]
fn only_parities_with_credit_are_computed() {
    let mut alone = poor(config(8, 2));
    alone.rtt = BaseRtt::default();
    stream(&mut alone, 50, 1_000, true, 0);
    let made = |alone: &Alone| alone.memory.parities.iter().flatten().count();
    push(&mut alone, 0..1);
    assert_eq!(made(&alone), 0);
}
