// SPDX-License-Identifier: GPL-2.0

use super::super::support::{Rng, for_each_seed};
use super::*;

fn params() -> Params {
    Params {
        enabled: 1,
        ..Params::of(Profile::Default)
    }
}

fn data(now_us: u64, end_seq: u32) -> Outgoing {
    Outgoing {
        now_us,
        end_seq,
        path: Path {
            srtt_us: 100,
            ..Path::default()
        },
        ..Outgoing::default()
    }
}

fn last(now_us: u64, end_seq: u32) -> Outgoing {
    Outgoing {
        is_last: true,
        ..data(now_us, end_seq)
    }
}

fn ack(ack: u32) -> Incoming {
    Incoming {
        ack,
        una: 0,
        nxt: u32::MAX >> 2,
        max_window: 65_535,
        reports: true,
    }
}

fn unacked() -> Socket {
    Socket {
        has_unacked: true,
        ..Socket::default()
    }
}

/// Returns a flow whose important packet ends at 1000 and left at 1000 us.
fn in_flight() -> Flow {
    let mut flow = Flow::default();
    assert_eq!(flow.on_data(&params(), &last(1_000, 1_000)), Mark::Data);
    flow
}

/// Returns the flow after the echo.
fn pending() -> Flow {
    let mut flow = in_flight();
    assert_eq!(flow.on_ack_in(Some(Mark::Echo), &ack(1_000)), Seen::Poll);
    flow
}

#[test]
fn the_state_is_small() {
    assert!(size_of::<Flow>() <= 96, "{}", size_of::<Flow>());
}

/// Rule 2.
#[test]
fn the_last_packet_of_the_first_window_is_important() {
    let mut flow = Flow::default();
    for i in 1..10 {
        let mark = flow.on_data(&params(), &data(1_000, i * 1_000));
        assert_eq!(mark, Mark::Unimportant);
    }
    assert_eq!(flow.on_data(&params(), &last(1_000, 10_000)), Mark::Data);
    assert_eq!(
        flow.on_data(&params(), &data(1_001, 11_000)),
        Mark::Unimportant
    );
}

/// Rule 7.
#[test]
fn after_the_echo_the_next_data_packet_is_important() {
    let mut flow = pending();
    assert_eq!(flow.on_data(&params(), &data(1_100, 2_000)), Mark::Data);
    assert_eq!(
        flow.on_data(&params(), &data(1_100, 3_000)),
        Mark::Unimportant
    );
}

/// Rule 3.
#[test]
fn after_a_pause_the_last_packet_of_the_burst_is_important() {
    let first = Outgoing {
        is_first: true,
        ..data(9_000, 2_000)
    };
    let mut flow = pending();
    assert_eq!(flow.on_data(&params(), &first), Mark::Unimportant);
    assert_eq!(flow.on_data(&params(), &last(9_000, 3_000)), Mark::Data);
    // The paper's rule.
    let paper = Params {
        burst_tail: 0,
        ..params()
    };
    assert_eq!(pending().on_data(&paper, &first), Mark::Data);
    // A retransmission begins no burst.
    let again = Outgoing {
        is_again: true,
        ..first
    };
    assert_eq!(pending().on_data(&params(), &again), Mark::Data);
}

/// Rule 4.
#[test]
fn an_ack_ends_a_first_window_that_does_not_fill() {
    let mut flow = Flow::default();
    flow.on_data(&params(), &data(1_000, 1_000));
    assert_eq!(flow.on_ack_in(None, &ack(0)), Seen::Nothing);
    assert_eq!(flow.on_ack_in(None, &ack(1_000)), Seen::Poll);
    assert_eq!(
        flow.poll(&params(), &unacked()),
        Some(Action::SendClock),
        "nothing else leaves"
    );
}

/// Rule 4: unmarked packets are examined only during a first window.
#[test]
fn unmarked_packets_are_examined_in_the_first_window_only() {
    let plain = [None, Some(Mark::Control), Some(Mark::Unimportant)];
    let heavy = [Mark::Data, Mark::Echo, Mark::ClockData, Mark::ClockEcho];
    let mut flow = Flow::default();
    let hears_all = |flow: &Flow| heavy.iter().all(|mark| flow.is_listening(Some(*mark)));
    let hears_plain = |flow: &Flow| plain.map(|mark| flow.is_listening(mark));
    assert_eq!(hears_plain(&flow), [false; 3]);
    assert!(hears_all(&flow));
    flow.on_data(&params(), &data(1_000, 1_000));
    assert_eq!(hears_plain(&flow), [true; 3]);
    assert!(hears_all(&flow));
    flow.on_data(&params(), &last(1_000, 2_000));
    assert_eq!(hears_plain(&flow), [false; 3]);
    assert!(hears_all(&flow));
}

/// Rule 5.
#[test]
fn the_first_ack_that_covers_the_important_packet_echoes_it() {
    let mut flow = Flow::default();
    assert_eq!(flow.on_data_in(Mark::Data, 0, 5_000), Seen::Poll);
    let owed = Owed(Receiver::Data { end_seq: 5_000 });
    let action = flow.poll(&params(), &unacked());
    assert_eq!(action, Some(Action::SendEcho(owed)));
    assert_eq!(
        flow.on_ack(Errand::None, |end| !is_after(end, 4_000)),
        Mark::Control
    );
    assert_eq!(
        flow.on_ack(Errand::None, |end| !is_after(end, 5_000)),
        Mark::Echo
    );
    assert_eq!(flow.on_ack(Errand::None, |_| true), Mark::Control);
}

/// Rule 5.
#[test]
fn a_clock_byte_is_echoed_by_its_own_ack() {
    let mut flow = Flow::default();
    assert_eq!(flow.clock_seq(), None);
    assert_eq!(flow.on_data_in(Mark::ClockData, 7, 8), Seen::Poll);
    assert_eq!(flow.clock_seq(), Some(7));
    assert_eq!(flow.on_ack(Errand::None, |_| true), Mark::Control);
    assert_eq!(
        flow.poll(&params(), &unacked()),
        Some(Action::SendClockEcho(Owed(Receiver::Clock { seq: 7 })))
    );
    assert_eq!(flow.on_ack(Errand::ClockEcho, |_| true), Mark::ClockEcho);
    assert_eq!(flow.on_ack(Errand::None, |_| true), Mark::Control);
}

/// Another processor receives data while the earlier echo is sent.
#[test]
fn an_important_packet_received_since_is_still_owed_an_echo() {
    let mut flow = Flow::default();
    flow.on_data_in(Mark::Data, 0, 5_000);
    let Some(Action::SendEcho(owed)) = flow.poll(&params(), &unacked()) else {
        panic!("{flow:?}");
    };
    flow.on_data_in(Mark::Data, 5_000, 6_000);
    flow.forgive(owed);
    assert_eq!(flow.on_ack(Errand::None, |_| true), Mark::Echo);
    flow.on_data_in(Mark::Data, 0, 5_000);
    flow.forgive(owed);
    assert_eq!(flow.on_ack(Errand::None, |_| true), Mark::Control);
}

#[test]
fn other_marks_on_data_owe_nothing() {
    let mut flow = Flow::default();
    for mark in [Mark::Control, Mark::Unimportant, Mark::Echo] {
        assert_eq!(flow.on_data_in(mark, 0, 1_000), Seen::Nothing);
    }
    assert_eq!(flow.poll(&params(), &unacked()), None);
}

/// Rules 8 and 10: the proof first, then a byte.
#[test]
fn a_clock_byte_is_sent_if_no_data_may_be_sent() {
    let mut flow = pending();
    let proof = Proof {
        sent_us: 1_000,
        end_seq: 1_000,
        kind: Kind::Data,
    };
    assert_eq!(
        flow.poll(&params(), &unacked()),
        Some(Action::Detect(proof))
    );
    assert_eq!(flow.poll(&params(), &unacked()), Some(Action::SendClock));
    assert_eq!(flow.on_clock(1_200, 500, 0), Mark::ClockData);
    assert_eq!(flow.poll(&params(), &unacked()), None);
    assert_eq!(flow.on_ack_in(Some(Mark::ClockEcho), &ack(500)), Seen::Poll);
    let proof = Proof {
        sent_us: 1_200,
        end_seq: 500,
        kind: Kind::Clock,
    };
    assert_eq!(
        flow.poll(&params(), &unacked()),
        Some(Action::Detect(proof))
    );
}

/// Rule 8.
#[test]
fn no_clock_byte_is_sent_before_a_timer_that_sends() {
    let mut flow = pending();
    flow.poll(&params(), &unacked());
    let held = Socket {
        is_held: true,
        ..unacked()
    };
    assert_eq!(flow.poll(&params(), &held), None);
}

/// Rule 3.
#[test]
fn no_clock_byte_is_sent_if_all_data_are_acknowledged() {
    let mut flow = pending();
    assert_eq!(flow.poll(&params(), &Socket::default()), None);
    // The proof covered acknowledged packets only.
    assert_eq!(flow.poll(&params(), &unacked()), Some(Action::SendClock));
}

/// Rule 9.
#[test]
fn a_lost_segment_is_sent_instead_of_a_clock_byte() {
    let lost = Socket {
        has_lost: true,
        ..unacked()
    };
    let refused = Socket {
        was_refused: true,
        ..lost
    };
    let mut flow = pending();
    flow.poll(&params(), &lost);
    assert_eq!(flow.poll(&params(), &lost), Some(Action::Retransmit));
    assert_eq!(flow.poll(&params(), &refused), Some(Action::SendClock));
    let bytes = Params {
        clock_mode: CLOCK_BYTE,
        ..params()
    };
    assert_eq!(flow.poll(&bytes, &lost), Some(Action::SendClock));
}

/// Rule 12.
#[test]
fn one_important_packet_is_in_flight_despite_retransmissions() {
    let mut flow = in_flight();
    let again = Outgoing {
        is_again: true,
        ..data(1_050, 1_000)
    };
    assert_eq!(flow.on_data(&params(), &again), Mark::Unimportant);
}

/// Rule 15.
#[test]
fn a_lost_important_packet_is_replaced() {
    let late = data(1_000 + STALE_MIN_US, 2_000);
    assert_eq!(in_flight().on_data(&params(), &late), Mark::Unimportant);
    let later = data(1_000 + STALE_MIN_US + 1, 2_000);
    assert_eq!(in_flight().on_data(&params(), &later), Mark::Data);
    let mut slow = later;
    slow.path.srtt_us = 1_000;
    assert_eq!(in_flight().on_data(&params(), &slow), Mark::Unimportant);

    let mut after_rto = data(1_001, 2_000);
    after_rto.path.rtos = 1;
    let mut flow = in_flight();
    assert_eq!(flow.on_data(&params(), &after_rto), Mark::Data);
    after_rto.end_seq = 3_000;
    assert_eq!(flow.on_data(&params(), &after_rto), Mark::Unimportant);

    let mut probe = data(1_001, 2_000);
    probe.path.is_probing = true;
    assert_eq!(in_flight().on_data(&params(), &probe), Mark::Data);
}

/// Rule 16.
#[test]
fn an_impossible_echo_is_ignored() {
    let echo = Some(Mark::Echo);
    let bad = |ack: Incoming| {
        let mut flow = in_flight();
        assert_eq!(flow.on_ack_in(echo, &ack), Seen::Bad, "{ack:?}");
        assert_eq!(flow, in_flight());
    };
    bad(Incoming {
        nxt: 999,
        ..ack(1_001)
    });
    let mut flow = in_flight();
    let clock = flow.on_ack_in(Some(Mark::ClockEcho), &ack(1_000));
    assert_eq!(clock, Seen::Bad);
    assert_eq!(flow.on_ack_in(echo, &ack(1_000)), Seen::Poll);
    assert_eq!(flow.on_ack_in(echo, &ack(1_000)), Seen::Bad);
}

/// Rule 16, if two processors handle a connection.
#[test]
fn an_echo_may_follow_later_acks_and_precede_the_tcp_state() {
    let echo = Some(Mark::Echo);
    let overtaken = |una: u32| Incoming {
        una,
        nxt: 200_000,
        ..ack(1_000)
    };
    assert_eq!(in_flight().on_ack_in(echo, &overtaken(66_535)), Seen::Poll);
    assert_eq!(in_flight().on_ack_in(echo, &overtaken(66_536)), Seen::Bad);
    let mut flow = Flow::default();
    flow.on_data(&params(), &last(1_000, 5_000));
    let early = |end: u32| Incoming {
        una: 1_000,
        nxt: 1_000,
        ..ack(end)
    };
    assert_eq!(flow.on_ack_in(echo, &early(5_001)), Seen::Bad);
    assert_eq!(flow.on_ack_in(echo, &early(5_000)), Seen::Poll);
}

/// Rule 15: the echo of a replaced packet is late, once, and not forged.
#[test]
fn the_echo_of_a_replaced_packet_is_late() {
    let mut flow = in_flight();
    let later = data(1_000 + STALE_MIN_US + 1, 2_000);
    assert_eq!(flow.on_data(&params(), &later), Mark::Data);
    let seen = |flow: &mut Flow, reports| {
        let echo = Incoming {
            reports,
            ..ack(1_000)
        };
        flow.on_ack_in(Some(Mark::Echo), &echo)
    };
    // It ends no wait: otherwise two important packets would stay in flight.
    assert_eq!(seen(&mut flow, false), Seen::Late);
    assert_eq!(flow.awaited(), Some(2_000));
    assert_eq!(seen(&mut flow, true), Seen::Poll);
    assert_eq!(seen(&mut flow, true), Seen::Bad);
}

/// Rule 16: a duplicated echo ends the wait for the next packet, whose own echo is then late and ends no
/// wait.
#[test]
fn a_duplicate_echo_leaves_one_important_packet_in_flight() {
    let mut flow = in_flight();
    let seen = |flow: &mut Flow, acks: u32, reports: bool| {
        let echo = Incoming {
            reports,
            ..ack(acks)
        };
        flow.on_ack_in(Some(Mark::Echo), &echo)
    };
    assert_eq!(seen(&mut flow, 1_000, true), Seen::Poll);
    assert_eq!(flow.on_data(&params(), &last(1_500, 2_000)), Mark::Data);
    assert_eq!(seen(&mut flow, 1_000, false), Seen::Poll);
    assert_eq!(flow.on_data(&params(), &last(1_600, 3_000)), Mark::Data);
    assert_eq!(seen(&mut flow, 2_000, false), Seen::Late);
    assert_eq!(flow.awaited(), Some(3_000));
    assert_eq!(seen(&mut flow, 3_000, true), Seen::Poll);
    assert_eq!(flow.replaced(), 0);
}

/// Rule 17: the sender's half ends, not the receiver's.
#[test]
fn a_flow_that_abandoned_tlt_still_echoes() {
    let mut flow = in_flight();
    assert_eq!(flow.on_data_in(Mark::Data, 0, 500), Seen::Poll);
    flow.give_up();
    assert!(flow.is_mute());
    assert_eq!(flow.on_ack_in(Some(Mark::Echo), &ack(1_000)), Seen::Nothing);
    assert_eq!(flow.on_ack(Errand::None, |_| true), Mark::Echo);
    assert!(!flow.is_deaf(u16::MAX));
}

/// Rule 17.
#[test]
fn a_peer_that_never_echoes_is_abandoned_after_two_timeouts() {
    assert!(!in_flight().is_deaf(1));
    assert!(in_flight().is_deaf(2));
    assert!(!pending().is_deaf(2));
    // Timeouts of the handshake and before any data do not count.
    assert!(!Flow::default().is_deaf(2));
    let mut flow = Flow::default();
    let mut packet = last(1_000, 1_000);
    packet.path.rtos = u16::MAX;
    assert_eq!(flow.on_data(&params(), &packet), Mark::Data);
    assert!(!flow.is_deaf(0));
    assert!(flow.is_deaf(1));
}

/// Rule 17.
#[test]
fn unobserved_timeouts_do_not_count() {
    let mut flow = pending();
    flow.watch(1);
    assert!(!flow.is_deaf(1));
    // Off for 39 timeouts; the next packet is seen, and six more.
    for rtos in 41..=46 {
        flow.watch(rtos);
        assert!(!flow.is_deaf(rtos), "{rtos}");
    }
    flow.watch(47);
    assert!(flow.is_deaf(47));
    // Off while an important packet is in flight, which is still stale.
    let mut flow = in_flight();
    flow.watch(9);
    let mut packet = last(2_000, 2_000);
    packet.path.rtos = 9;
    assert_eq!(flow.on_data(&params(), &packet), Mark::Data);
}

/// Rule 17: with NFQUEUE, timeouts may come between two reads of their number.
#[test]
fn timeouts_between_two_samples_do_not_abandon_the_peer() {
    let mut flow = pending();
    flow.watch(0);
    let mut packet = last(2_000, 2_000);
    packet.path.rtos = 2;
    assert_eq!(flow.on_data(&params(), &packet), Mark::Data);
    assert_eq!(flow.on_ack_in(Some(Mark::Echo), &ack(2_000)), Seen::Poll);
    flow.watch(2);
    assert!(!flow.is_deaf(2));
}

/// Rule 17.
#[test]
fn a_clock_byte_after_unobserved_timeouts_does_not_abandon_the_peer() {
    for unwatched in 0..20 {
        let mut flow = pending();
        flow.on_clock(5_000, 1_000, unwatched);
        assert_eq!(
            flow.on_ack_in(Some(Mark::ClockEcho), &ack(1_000)),
            Seen::Poll
        );
        flow.watch(unwatched);
        assert!(!flow.is_deaf(unwatched), "{unwatched}");
        for met in 1..8 {
            flow.watch(unwatched + met);
            assert!(!flow.is_deaf(unwatched + met), "{unwatched} + {met}");
        }
        flow.watch(unwatched + 8);
        assert!(flow.is_deaf(unwatched + 8), "{unwatched}");
    }
}

/// Rule 17.
#[test]
fn a_peer_that_stops_echoing_is_abandoned_after_eight_timeouts() {
    assert!(!pending().is_deaf(7));
    assert!(pending().is_deaf(8));
    // Timeouts before an echo do not count.
    let mut flow = pending();
    let mut packet = last(2_000, 2_000);
    packet.path.rtos = 5;
    assert_eq!(flow.on_data(&params(), &packet), Mark::Data);
    assert_eq!(flow.on_ack_in(Some(Mark::Echo), &ack(2_000)), Seen::Poll);
    assert!(!flow.is_deaf(12));
    assert!(flow.is_deaf(13));
}

/// Marks are identified by `dscp_*`.
#[test]
fn marks_are_found_by_their_dscp() {
    for mark in Mark::ALL {
        assert_eq!(Mark::of(mark.dscp(&params()), &params()), Some(mark));
    }
    assert_eq!(Mark::of(0, &params()), None);
    assert_eq!(Mark::of(46, &params()), None);
}

#[test]
fn default_dscps_are_for_local_use_and_marks_of_others_stay() {
    for mark in Mark::ALL {
        // Local use is xxxx11. Linux routers put xxx111 in the band of plain traffic.
        assert_eq!(mark.dscp(&params()) & 0b111, 0b111);
        assert!(Mark::may_replace(mark.dscp(&params()), &params()));
    }
    assert!(Mark::may_replace(0, &params()));
    assert!(!Mark::may_replace(46, &params()));
    let asked = Params {
        override_dscp: 1,
        ..params()
    };
    assert!(Mark::may_replace(46, &asked));
}

#[test]
fn a_full_host_queue_reduces_the_window_once() {
    let mut flow = in_flight();
    flow.on_congestion();
    assert_eq!(flow.poll(&params(), &unacked()), Some(Action::Reduce));
    assert_eq!(flow.poll(&params(), &unacked()), None);
}

/// Rule 10 against the authors' simulator, which keeps a list per round: a round ends with its important
/// packet, whose echo proves lost the rest of the rounds up to it. Packets of one time are ordered by
/// sequence number, as TCP sends them.
#[test]
fn the_loss_rule_equals_the_rounds_of_the_reference() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let mut now_us = rng.any() >> 8;
        let mut seq = rng.any() as u32;
        let mut round = 0u64;
        // Departure time, end, round.
        let mut packets: Vec<(u64, u32, u64)> = Vec::new();
        let mut importants: Vec<(Proof, u64)> = Vec::new();
        for _ in 0..rng.within(2, 60) {
            now_us += rng.pick(&[0, 0, 0, 1, 20]);
            if rng.percent(15) {
                // Among packets of one time, only lower sequence numbers precede a clock byte; and TCP has
                // nothing to send when a clock byte leaves.
                now_us += 1;
                let una = seq.wrapping_sub(rng.within(1, 50_000) as u32);
                let mut flow = Flow::default();
                flow.on_clock(now_us, una, 0);
                importants.push((proof_of(&mut flow), round));
                now_us += 1;
                round += 1;
                continue;
            }
            seq = seq.wrapping_add(rng.within(1, 9_000) as u32);
            packets.push((now_us, seq, round));
            if rng.percent(20) {
                let mut flow = Flow::default();
                flow.on_data(&params(), &last(now_us, seq));
                importants.push((proof_of(&mut flow), round));
                round += 1;
            }
        }
        for (proof, of_round) in &importants {
            for &(sent_us, end_seq, in_round) in &packets {
                // The packet itself is acknowledged.
                let is_itself = proof.sent_us == sent_us && proof.end_seq == end_seq;
                let want = in_round <= *of_round && !is_itself;
                assert_eq!(proof.is_after(sent_us, end_seq), want);
            }
        }
        importants.len() as u64 & 1
    });
}

fn proof_of(flow: &mut Flow) -> Proof {
    let Sender::InFlight { kind, .. } = flow.sender else {
        panic!("{flow:?}");
    };
    let mark = match kind {
        Kind::Data => Mark::Echo,
        Kind::Clock => Mark::ClockEcho,
    };
    let echo = Incoming {
        reports: true,
        ..Incoming::default()
    };
    assert_eq!(flow.on_ack_in(Some(mark), &echo), Seen::Poll);
    flow.proof.unwrap()
}

/// At no time two important packets without an echo, a timeout or a long time between.
#[test]
fn at_most_one_important_packet_is_in_flight() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let params = Params {
            burst_tail: rng.within(0, 1) as u32,
            clock_mode: rng.within(0, 1) as u32,
            ..params()
        };
        let mut flow = Flow::default();
        let mut now_us = 1;
        let mut out: Option<u64> = None;
        let mut important = 0;
        for step in 0..200u32 {
            now_us += rng.within(0, 60);
            match rng.within(0, 2) {
                0 => {
                    let packet = Outgoing {
                        is_last: rng.percent(20),
                        is_first: rng.percent(20),
                        is_again: rng.percent(20),
                        ..data(now_us, step * 1_000)
                    };
                    if flow.on_data(&params, &packet) == Mark::Data {
                        assert!(out.is_none_or(|sent| now_us - sent > STALE_MIN_US));
                        out = Some(now_us);
                        important += 1;
                    }
                }
                1 => {
                    let mark = rng.pick(&[Mark::Echo, Mark::ClockEcho, Mark::Control]);
                    let ack = Incoming {
                        una: step * 1_000,
                        ..ack(step * 1_000)
                    };
                    if flow.on_ack_in(Some(mark), &ack) == Seen::Poll {
                        assert!(out.is_some());
                        out = None;
                    }
                }
                _ => {
                    while let Some(action) = flow.poll(&params, &unacked()) {
                        if action == Action::SendClock {
                            assert_eq!(out, None);
                            flow.on_clock(now_us, step * 1_000, 0);
                            out = Some(now_us);
                            important += 1;
                        }
                    }
                }
            }
        }
        important
    });
}

#[test]
fn any_input_causes_no_panic() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let params = Params::read(|_| rng.any() as u32);
        let mut flow = Flow::default();
        for _ in 0..100 {
            let path = Path {
                srtt_us: rng.any() as u32,
                rtos: rng.any() as u16,
                is_probing: rng.percent(10),
            };
            let packet = Outgoing {
                now_us: rng.any(),
                end_seq: rng.any() as u32,
                is_again: rng.percent(50),
                is_last: rng.percent(50),
                is_first: rng.percent(50),
                path,
            };
            let ack = Incoming {
                ack: rng.any() as u32,
                una: rng.any() as u32,
                nxt: rng.any() as u32,
                max_window: rng.any() as u32,
                reports: rng.percent(50),
            };
            let mark = Mark::of(rng.within(0, 70) as u8, &params);
            let errand = rng.pick(&[Errand::None, Errand::ClockEcho, Errand::ClockData]);
            match rng.within(0, 5) {
                0 => drop(flow.on_data(&params, &packet)),
                1 => drop(flow.on_ack(errand, |end| end & 1 == 0)),
                2 => drop(flow.on_clock(rng.any(), rng.any() as u32, rng.any() as u16)),
                3 => drop(flow.on_data_in(mark.unwrap_or(Mark::Data), 0, rng.any() as u32)),
                4 => drop(flow.on_ack_in(mark, &ack)),
                _ => drop(flow.poll(
                    &params,
                    &Socket {
                        has_unacked: rng.percent(80),
                        has_lost: rng.percent(50),
                        is_held: rng.percent(20),
                        was_refused: rng.percent(20),
                    },
                )),
            }
            flow.watch(path.rtos);
            let _ = (flow.is_deaf(path.rtos), flow.clock_seq(), flow.owes());
            // An important packet is in flight, or the state has none.
            let in_flight = matches!(flow.phase(), Phase::Data | Phase::Clock);
            assert_eq!(
                flow.age_us(u64::MAX).is_some(),
                in_flight,
                "{:?}",
                flow.phase()
            );
        }
        flow.echoes.into()
    });
}
