// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::super::unorc_support::{Caller, Half, config, ip};
use super::*;

type Alone = Half<Sender<Vec<u8>>>;

fn alone(config: Config) -> Alone {
    let mut alone = Alone::new(config);
    alone.sender(|sender, cx, lent| sender.begin(cx.config, lent, FIRST_BLOCK));
    alone
}

fn push(alone: &mut Alone, numbers: std::ops::Range<u32>) {
    for number in numbers {
        alone.sender(|sender, cx, lent| {
            sender.push(cx, lent, ip(1, number, 100), Ecn::Capable);
        });
    }
}

fn poll(alone: &mut Alone) -> u64 {
    alone.sender(|sender, cx, lent| sender.poll(cx, lent))
}

fn hear(alone: &mut Alone, next: u32, feedback: &Feedback) {
    alone.sender(|sender, cx, lent| sender.feedback(cx, lent, next, feedback));
}

fn nack(block: u32, have: u32) -> Feedback {
    let mut feedback = Feedback {
        report_count: 1,
        ..Feedback::default()
    };
    feedback.reports[0] = Report {
        block,
        is_done: false,
        have,
    };
    feedback
}

/// What was sent since the last call: kind, block, index, k.
fn sent(io: &mut Caller) -> Vec<(Kind, u32, u8, u8)> {
    let sent = io.sent.drain(..);
    sent.map(|(header, ..)| (header.kind, header.block, header.index, header.k))
        .collect()
}

#[test]
fn headers_go_both_ways_and_others_are_refused() {
    let mut rng = Rng::new(1);
    for _ in 0..10_000 {
        let header = Header {
            kind: rng.pick(&Kind::ALL),
            is_again: rng.percent(50),
            channel: rng.next() as u16,
            tag: rng.next() as u32,
            block: rng.next() as u32,
            index: rng.within(0, 30) as u8,
            k: rng.within(0, 28) as u8,
            ev: rng.within(0, VALUES as u64 - 1) as u16,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..15]), None);
        let mut noise = bytes;
        noise[rng.within(0, 15) as usize] = rng.next() as u8;
        if let Some(other) = Header::parse(&noise) {
            assert_eq!(other.to_bytes(), noise);
        }
    }
    let good = Header::default().to_bytes();
    for (at, byte) in [(0, 0x20), (0, 0x19), (1, 2), (12, 31), (13, 29), (14, 0x40)] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(Header::parse(&bad), None, "{at}");
    }
}

#[test]
fn feedback_goes_both_ways_and_noise_does_no_harm() {
    let mut rng = Rng::new(2);
    for _ in 0..10_000 {
        let mut feedback = Feedback {
            map: rng.any(),
            newest: (rng.next() as u32, rng.within(0, 30) as u8),
            age_us: rng.any() as u32,
            report_count: rng.within(0, 8) as u8,
            echo_count: rng.within(0, 16) as u8,
            ..Feedback::default()
        };
        for report in &mut feedback.reports[..feedback.report_count.into()] {
            *report = Report {
                block: rng.next() as u32,
                is_done: rng.percent(50),
                have: rng.next() as u32,
            };
        }
        for echo in &mut feedback.echoes[..feedback.echo_count.into()] {
            *echo = (rng.next() as u16 & (VALUES - 1), rng.percent(50));
        }
        let mut bytes = vec![0; feedback.bytes()];
        assert!(bytes.len() <= FEEDBACK_BYTES);
        feedback.write(&mut bytes);
        assert_eq!(Feedback::parse(&bytes), Some(feedback));
        let at = rng.within(0, bytes.len() as u64 - 1) as usize;
        bytes[at] ^= 1 << rng.within(0, 7);
        let _ = Feedback::parse(&bytes);
        assert_eq!(Feedback::parse(&bytes[..at]), None);
    }
}

#[test]
fn a_block_is_eight_packets_and_two_parities() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..9);
    let mut wanted: Vec<_> = (0..7).map(|i| (Kind::Data, 1, i, 0)).collect();
    wanted.extend([
        (Kind::Data, 1, 7, 8),
        (Kind::Parity, 1, 28, 8),
        (Kind::Parity, 1, 29, 8),
    ]);
    wanted.push((Kind::Data, 2, 0, 0));
    assert_eq!(sent(&mut alone.io), wanted);
    assert_eq!(poll(&mut alone), alone.now_us + 50);
    alone.now_us += 50;
    poll(&mut alone);
    let short = [(Kind::Parity, 2, 28, 1), (Kind::Parity, 2, 29, 1)];
    assert_eq!(sent(&mut alone.io), short);
}

#[test]
fn parities_can_be_marked_if_all_their_data_can() {
    let mut alone = alone(config(2, 1));
    push(&mut alone, 0..2);
    alone.sender(|sender, cx, lent| sender.push(cx, lent, ip(1, 2, 50), Ecn::Not));
    push(&mut alone, 3..4);
    let parities = alone
        .io
        .sent
        .iter()
        .filter(|(header, ..)| header.kind == Kind::Parity);
    let marks: Vec<_> = parities.map(|(.., ecn)| *ecn).collect();
    assert_eq!(marks, [Ecn::Capable, Ecn::Not]);
}

#[test]
fn a_nack_brings_what_is_missing_three_times_and_then_the_floor() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..16);
    sent(&mut alone.io);
    for _ in 0..3 {
        alone.now_us += 200;
        hear(&mut alone, 1, &nack(1, 0b1101_1011));
        let again = [(Kind::Data, 1, 2, 8), (Kind::Data, 1, 5, 8)];
        assert_eq!(sent(&mut alone.io), again);
        // Within an RTT it is the same that is meant.
        alone.now_us += 50;
        hear(&mut alone, 1, &nack(1, 0b1101_1011));
        assert_eq!(sent(&mut alone.io), []);
    }
    alone.now_us += 200;
    hear(&mut alone, 1, &nack(1, 0b1101_1011));
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 2, 0, 0)]);
    // It is told again.
    hear(&mut alone, 1, &nack(1, 0b1101_1011));
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 2, 0, 0)]);
    assert_eq!(alone.io.counted(Count::Abandoned), 1);
}

#[test]
fn a_receiver_that_has_all_lacks_their_number() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..3);
    alone.now_us += 50;
    poll(&mut alone);
    sent(&mut alone.io);
    hear(&mut alone, 1, &nack(1, 0b111));
    assert_eq!(sent(&mut alone.io), [(Kind::Data, 1, 2, 3)]);
}

#[test]
fn silence_has_all_sent_again_each_time_later() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..8);
    sent(&mut alone.io);
    let begin_us = alone.now_us;
    let mut times = Vec::new();
    for _ in 0..20_000 {
        alone.now_us += 1;
        poll(&mut alone);
        if alone
            .io
            .sent
            .iter()
            .any(|(header, ..)| header.kind == Kind::Data)
        {
            assert_eq!(sent(&mut alone.io).len(), 8);
            times.push(alone.now_us);
        }
    }
    // min_rtt + flush + T + a report's delay = 810, and twice that, and four times.
    assert_eq!(times, [810, 810 * 3, 810 * 7].map(|after| begin_us + after));
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 2, 0, 0)]);
    assert_eq!(alone.io.counted(Count::Timeout), 4);
}

#[test]
fn what_is_old_is_not_sent_again() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..16);
    sent(&mut alone.io);
    alone.now_us += MAX_AGE_US + 1;
    poll(&mut alone);
    assert_eq!(sent(&mut alone.io), []);
    assert_eq!(alone.io.counted(Count::Abandoned), 2);
    // Before what comes next the peer is told where to go on.
    push(&mut alone, 16..17);
    let kinds: Vec<_> = sent(&mut alone.io).iter().map(|sent| sent.0).collect();
    assert_eq!(kinds, [Kind::Floor, Kind::Data]);
    // So is who waits for them all the same.
    let mut feedback = Feedback {
        report_count: 1,
        ..Feedback::default()
    };
    feedback.reports[0] = Report {
        block: 1,
        is_done: false,
        have: 1,
    };
    hear(&mut alone, 1, &feedback);
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 3, 0, 0)]);
}

#[test]
fn reports_of_one_feedback_have_one_floor() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..24);
    alone.now_us += MAX_AGE_US + 1;
    poll(&mut alone);
    sent(&mut alone.io);
    let mut feedback = Feedback {
        report_count: 3,
        ..Feedback::default()
    };
    for (block, report) in (1..).zip(&mut feedback.reports[..3]) {
        *report = Report {
            block,
            is_done: false,
            have: 1,
        };
    }
    hear(&mut alone, 1, &feedback);
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 4, 0, 0)]);
    assert_eq!(alone.io.counted(Count::NackReceived), 3);
}

#[test]
fn what_is_done_needs_no_memory() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..40);
    let kept = |alone: &mut Alone| {
        alone.sender(|_, _, lent| {
            lent.slots
                .iter()
                .filter(|slot| slot.packet.is_some())
                .count()
        })
    };
    assert_eq!(kept(&mut alone), 40);
    let feedback = Feedback {
        map: 0b10,
        ..Feedback::default()
    };
    hear(&mut alone, 3, &feedback);
    assert_eq!(kept(&mut alone), 16);
}

#[test]
fn where_the_receiver_is_ahead_the_sender_follows() {
    let mut alone = alone(config(8, 2));
    push(&mut alone, 0..12);
    sent(&mut alone.io);
    // Nobody has got what was not sent: somebody else has sent it.
    hear(&mut alone, 9, &Feedback::default());
    assert_eq!(alone.io.counted(Count::Malformed), 1);
    assert_eq!(alone.half.blocks_under_way(), 0);
    sent(&mut alone.io);
    push(&mut alone, 12..13);
    assert_eq!(sent(&mut alone.io), [(Kind::Data, 9, 0, 0)]);
    // What is asked for of before is over.
    hear(&mut alone, 1, &nack(1, 0));
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 9, 0, 0)]);
}

#[test]
fn a_floor_that_was_lost_is_sent_again() {
    let mut alone = alone(Config {
        window: 64,
        ..config(8, 2)
    });
    push(&mut alone, 0..8 * 9);
    assert_eq!(alone.io.counted(Count::Abandoned), 1);
    // All that was sent is too far for a receiver that is at 1: what it hears of is block 9, but no more.
    let too_far = alone.config.blocks() as u32;
    sent(&mut alone.io);
    hear(&mut alone, 1, &Feedback::default());
    assert_eq!(sent(&mut alone.io), [(Kind::Floor, 2, 0, 0)]);
    // One that is where the sender's oldest block is needs none.
    hear(&mut alone, 2, &Feedback::default());
    assert_eq!(sent(&mut alone.io), []);
    assert_eq!(alone.half.blocks_under_way(), too_far);
}

#[test]
fn what_is_kept_is_bounded_in_bytes() {
    let mut alone = alone(Config {
        mtu: u16::MAX,
        ..config(8, 2)
    });
    let kept = |alone: &mut Alone| -> usize {
        alone.sender(|_, _, lent| {
            lent.slots
                .iter()
                .flat_map(|slot| &slot.packet)
                .map(Vec::len)
                .sum()
        })
    };
    for number in 0..1_000 {
        alone.sender(|sender, cx, lent| {
            sender.push(cx, lent, ip(1, number, 60_000), Ecn::Capable);
        });
        alone.io.sent.clear();
        assert!(kept(&mut alone) <= MAX_KEPT_BYTES);
        assert_eq!(kept(&mut alone), alone.half.kept_bytes);
    }
    assert!(alone.io.counted(Count::Abandoned) > 0);
    // It is counted down, too.
    let next = alone.half.next;
    hear(&mut alone, next, &Feedback::default());
    assert_eq!((kept(&mut alone), alone.half.kept_bytes), (0, 0));
    // A window of the usual packets fits.
    let fits = alone.config.sent_slots() as u32;
    let abandoned = alone.io.counted(Count::Abandoned);
    for number in 0..fits {
        alone.sender(|sender, cx, lent| {
            sender.push(cx, lent, ip(1, number, 1_500), Ecn::Capable);
        });
        alone.io.sent.clear();
    }
    assert_eq!(alone.io.counted(Count::Abandoned), abandoned);
}

#[test]
fn a_full_window_gives_up_its_oldest_block() {
    let mut alone = alone(config(8, 2));
    let fits = alone.config.sent_slots() as u32;
    push(&mut alone, 0..fits);
    assert_eq!(alone.io.counted(Count::Abandoned), 0);
    sent(&mut alone.io);
    push(&mut alone, 0..1);
    assert_eq!(sent(&mut alone.io)[0], (Kind::Floor, 2, 0, 0));
}

#[test]
fn the_rtt_is_of_packets_sent_once_and_without_the_time_at_the_receiver() {
    let mut alone = alone(config(1, 0));
    alone.rtt = BaseRtt::default();
    push(&mut alone, 0..1);
    alone.now_us += 60;
    let feedback = Feedback {
        newest: (1, 0),
        age_us: 20,
        ..Feedback::default()
    };
    hear(&mut alone, 2, &feedback);
    assert_eq!(alone.rtt.get(), Some(40));
    push(&mut alone, 1..2);
    alone.now_us += 10;
    hear(&mut alone, 2, &nack(2, 0));
    alone.now_us += 10;
    let newest = Feedback {
        newest: (2, 0),
        ..Feedback::default()
    };
    hear(&mut alone, 3, &newest);
    assert_eq!(alone.rtt.get(), Some(40));
}

#[test]
fn an_rtt_longer_than_the_guess_is_measured() {
    let mut alone = alone(config(1, 0));
    alone.rtt = BaseRtt::default();
    let mut resent = [0, 0];
    for (number, resent) in (0..).zip(&mut resent) {
        push(&mut alone, number..number + 1);
        sent(&mut alone.io);
        for _ in 0..20 {
            alone.now_us += 1_000;
            poll(&mut alone);
        }
        *resent = sent(&mut alone.io).len();
        let newest = Feedback {
            newest: (number + 1, 0),
            ..Feedback::default()
        };
        hear(&mut alone, number + 2, &newest);
        assert_eq!(alone.rtt.get(), Some(20_000));
    }
    assert_eq!(resent, [1, 0]);
}

#[test]
fn a_session_has_no_times_of_the_one_before() {
    let mut alone = alone(Config {
        window: 64,
        ..config(1, 0)
    });
    alone.rtt = BaseRtt::default();
    // As many as there are places.
    push(&mut alone, 0..64);
    alone.sender(|sender, cx, lent| sender.begin(cx.config, lent, FIRST_BLOCK));
    // A receiver that has got nothing tells of no packet.
    hear(&mut alone, FIRST_BLOCK, &Feedback::default());
    assert_eq!(alone.rtt.get(), None);
}

#[test]
fn a_long_queue_is_no_silence() {
    let mut alone = alone(config(1, 0));
    for number in 0..200 {
        push(&mut alone, number..number + 1);
        alone.now_us += 5_000;
        let feedback = Feedback {
            newest: (number + 1, 0),
            ..Feedback::default()
        };
        hear(&mut alone, number + 2, &feedback);
    }
    assert_eq!(alone.rtt.get(), Some(100));
    push(&mut alone, 200..201);
    sent(&mut alone.io);
    alone.now_us += 5_000;
    poll(&mut alone);
    assert_eq!(sent(&mut alone.io), []);
    alone.now_us += 1_000;
    poll(&mut alone);
    assert_eq!(sent(&mut alone.io).len(), 1);
}

#[test]
fn parities_that_could_not_be_made_are_counted() {
    let mut alone = alone(config(8, 2));
    alone.io.fails = 2;
    push(&mut alone, 0..1);
    // A copy, and of two parities the first is not there.
    assert_eq!(alone.io.counted(Count::NoMem), 1);
}

#[test]
fn without_memory_packets_go_raw() {
    let mut alone = alone(config(8, 2));
    alone.io.fails = 1;
    push(&mut alone, 0..1);
    assert_eq!(sent(&mut alone.io), [(Kind::Raw, 0, 0, 0)]);
    assert_eq!(alone.io.counted(Count::NoMem), 1);
}

#[test]
fn sizes_are_sound() {
    for x in 0..=40 {
        for y in 0..=5 {
            let config = config(x, y);
            let fits = (1..=28).contains(&x) && y <= 3 && (y > 0 || x == 1);
            assert_eq!(config.is_sound(), fits);
            if fits {
                assert!(config.blocks().is_power_of_two());
                let window = usize::from(config.window);
                assert!(config.sent_slots() <= window && config.sent_slots() * 2 + 54 > window);
                let small = Config {
                    window: MIN_WINDOW,
                    ..config
                };
                assert!(small.blocks() >= 2 && small.sent_slots() <= MIN_WINDOW.into());
            }
        }
    }
}

#[test]
fn channels_and_windows_are_powers_of_two() {
    for channels in 0..=u8::MAX {
        let of = Config {
            channels,
            ..config(8, 2)
        };
        assert_eq!(of.has_sound_channels(), [1, 2, 4, 8].contains(&channels));
    }
    for window in 0..=u16::MAX {
        let of = Config {
            window,
            ..config(8, 2)
        };
        let sound = (6..=13).any(|bits| window == 1 << bits);
        assert_eq!(of.has_sound_channels(), sound);
    }
}

#[test]
fn numbers_wrap() {
    assert!(
        is_before(u32::MAX, 0) && is_before(1, 2) && !is_before(0, u32::MAX) && !is_before(3, 3)
    );
    assert_eq!((earlier(0, 3), earlier(3, 0), earlier(2, 3)), (3, 3, 2));
}
