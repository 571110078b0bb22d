// SPDX-License-Identifier: GPL-2.0
//! Events that TCP does and does not treat as congestion: the table of docs/testing.md. Marks, fast
//! retransmits, timeouts and their undo by D-SACK and timestamps are cases of the algorithms.

use anyhow::{Context, Result, bail, ensure};

use super::wire::{is_reno, knows_marks};
use super::{BULK, Case, INFINITE_SSTHRESH, both, open, parameters};
use crate::flow::{Ecn, Flow, Handshake, Mark, Role, Setup};
use crate::lab::{Lab, RTT_US, sysctl};
use crate::wire::Codepoint;
use crate::witness::near;

pub const CASES: &[Case] = both! {
    "a smaller path MTU is no congestion": path_mtu,
    "a loss that a tail loss probe repairs is congestion": tail_loss,
    "a loss that a tail loss probe repairs is congestion, also with a mark": tail_loss_and_mark,
    "a drop by the local queue is congestion": local_drop,
    "a drop by the local queue is congestion, also if data of the peer arrive before the next ACK": local_drop_then_data,
    "a timeout that F-RTO finds spurious is undone": spurious_timeout,
    "marks of ACKs do not count for later data": marked_acks_then_data,
    "marks of ACKs do not count for short answers": marked_acks_and_answers,
    "marks of ACKs do not count with an ECE for each packet": marked_acks_per_packet,
    "marks of short answers count, if one ACK covers each": marked_answers,
    "switched to while connecting: counts marks": switched_while_connecting,
    "switched to while connecting, without ECN: is Reno": switched_without_ecn,
    "AccECN that fails in the handshake: is Reno": accecn_fails,
    "AccECN that fails after the first data: is Reno": accecn_fails_late,
    "a route replaces another algorithm while connecting: state is reset": switched_by_route,
    "a route replaces another algorithm while SYNs cross: state is reset": switched_and_crossed,
    "a timeout after a mark in the same window is congestion": timeout_after_mark,
    "losses that RACK's timer finds are not retransmitted in one burst": rack_timer,
    "a window limited by the receiver does not grow": receiver_limited,
    "a window limited by the application does not grow": pacing_limited,
    "a window does not exceed a route's cwnd": clamped,
};

/// Returns a flow in slow start.
fn growing<'a>(lab: &'a mut Lab, setup: Setup) -> Result<Flow<'a>> {
    let mut flow = open(lab, setup)?;
    let step = flow.acks_of(60, Mark::No)?;
    let ssthresh = step.tcp.snd_ssthresh;
    ensure!(ssthresh == INFINITE_SSTHRESH, "slow start ended at {ssthresh}");
    Ok(flow)
}

fn path_mtu(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup {
        initial_window: 32,
        // The kernel caches the path MTU of an address.
        host: if cc == "unocc" { 3 } else { 4 },
        ..Setup::new(cc)
    };
    let mut flow = growing(lab, setup)?;
    let before = flow.tcp()?;
    flow.path_mtu(900)?;
    let after = flow.tcp()?;
    ensure!(after.snd_mss == 860, "packets of {} bytes", after.snd_mss);
    let state = after.ca_state;
    ensure!(state == 4, "state {state}: no retransmission");
    for _ in 0..400 {
        let step = flow.ack_next(Mark::No)?;
        let ssthresh = step.tcp.snd_ssthresh;
        // ssthresh counts packets of another size.
        ensure!(ssthresh >= before.snd_cwnd, "slow start ended at {ssthresh}");
        // TCP_INFO has the recovery window; the pacing rate shows the algorithm's own.
        let (pace, had) = (step.tcp.pacing_rate, before.pacing_rate);
        ensure!(pace * 20 >= had * 19, "paced at {pace} bytes/s, {had} before");
        if step.tcp.ca_state == 0 {
            let kept = u64::from(step.cwnd()) * 860;
            let had = u64::from(before.snd_cwnd) * 1_000;
            ensure!(kept + 860 >= had, "{kept} bytes, {had} before");
            ensure!(ssthresh == INFINITE_SSTHRESH, "ssthresh {ssthresh}");
            return Ok(());
        }
    }
    bail!("recovery does not end")
}

fn tail_loss(lab: &mut Lab, cc: &'static str) -> Result<()> {
    sysctl("ipv4/tcp_early_retrans", "3")?;
    let result = tail_loss_with_probes(lab, cc);
    sysctl("ipv4/tcp_early_retrans", "0")?;
    result
}

fn tail_loss_with_probes(lab: &mut Lab, cc: &'static str) -> Result<()> {
    parameters(lab, cc)?;
    let setup = Setup { initial_window: 100, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(100_000)?;
    flow.acks_of(99, Mark::No)?;
    let before = flow.tcp()?;
    flow.lose_next()?;
    // The tail loss probe is the same packet. The loss shows when more data is acknowledged.
    let probe = flow.next_arrival()?;
    let step = flow.deliver(&probe, Mark::No)?;
    ensure!(step.tcp.total_retrans == 1, "{}", step.tcp.total_retrans);
    ensure!(step.tcp.ca_state < 2, "state {}: no probe", step.tcp.ca_state);
    flow.write(BULK)?;
    let step = flow.ack_next(Mark::No)?;
    let half = f64::from(before.snd_cwnd) / 2.0;
    near("ssthresh", f64::from(step.tcp.snd_ssthresh), half, 2.0)?;
    near("window", f64::from(step.cwnd()), half, 2.0)
}

fn tail_loss_and_mark(lab: &mut Lab, cc: &'static str) -> Result<()> {
    sysctl("ipv4/tcp_early_retrans", "3")?;
    let result = [Ecn::Accurate, Ecn::PerPacket]
        .into_iter()
        .try_for_each(|ecn| tail_loss_and_mark_with(lab, cc, ecn));
    sysctl("ipv4/tcp_early_retrans", "0")?;
    result
}

fn tail_loss_and_mark_with(lab: &mut Lab, cc: &'static str, ecn: Ecn) -> Result<()> {
    parameters(lab, cc)?;
    let setup = Setup { initial_window: 100, ecn, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    // In slow start, a single mark costs more.
    flow.write(400_000)?;
    flow.acks_of(50, Mark::No)?;
    flow.ack_next(Mark::Ce)?;
    flow.acks_of(349, Mark::No)?;
    flow.wait_us(RTT_US * 3)?;
    flow.write(100_000)?;
    flow.acks_of(99, Mark::No)?;
    let before = flow.tcp()?.snd_cwnd;
    flow.lose_next()?;
    let probe = flow.next_arrival()?;
    let step = flow.deliver(&probe, Mark::No)?;
    ensure!(step.tcp.total_retrans == 1, "{}", step.tcp.total_retrans);
    flow.write(BULK)?;
    let step = flow.ack_next(Mark::Ce)?;
    near("window", f64::from(step.cwnd()), f64::from(before / 2), 2.0)
}

fn local_drop_then_data(lab: &mut Lab, cc: &'static str) -> Result<()> {
    for ecn in [Ecn::Accurate, Ecn::PerPacket] {
        let mut flow = growing(lab, Setup { ecn, ..Setup::new(cc) })?;
        let before = flow.tcp()?.snd_cwnd;
        flow.drop_at_egress(true)?;
        let during = flow.ack_next(Mark::No);
        flow.drop_at_egress(false)?;
        during?;
        for _ in 0..9 {
            // TCP calls no congestion control on the header prediction path.
            flow.window -= 1;
            flow.send_data(500, Codepoint::Ect0, false)?;
        }
        let step = flow.ack_next(Mark::No)?;
        near("window", f64::from(step.cwnd()), f64::from(before / 2), 2.0)?;
    }
    Ok(())
}

fn local_drop(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = growing(lab, Setup::new(cc))?;
    let before = flow.tcp()?.snd_cwnd;
    flow.drop_at_egress(true)?;
    let during = flow.ack_next(Mark::No);
    flow.drop_at_egress(false)?;
    let retransmitted = during?.tcp.total_retrans;
    let step = flow.ack_next(Mark::No)?;
    let ssthresh = step.tcp.snd_ssthresh;
    ensure!(step.tcp.total_retrans == retransmitted, "a retransmission repaired it");
    ensure!(ssthresh <= before + 1, "slow start did not end");
    ensure!(ssthresh >= before / 2, "ssthresh {ssthresh}, cwnd {before} before");
    ensure!(step.cwnd() <= before + 1, "cwnd {} of {before}", step.cwnd());
    Ok(())
}

fn spurious_timeout(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = growing(lab, Setup::new(cc))?;
    let before = flow.tcp()?;
    // All data arrives, but no ACK returns in time.
    flow.wait_us(400_000)?;
    let late = flow.tcp()?;
    ensure!(late.ca_state == 4 && late.snd_cwnd == 1, "no timeout");
    ensure!(late.snd_ssthresh < before.snd_cwnd, "no reduction");
    for _ in 0..4 {
        let arrival = flow.next_arrival()?;
        flow.deliver(&arrival, Mark::No)?;
    }
    let after = flow.tcp()?;
    ensure!(after.ca_state < 2, "state {}", after.ca_state);
    ensure!(after.snd_cwnd + 1 >= before.snd_cwnd, "{} of {}", after.snd_cwnd, before.snd_cwnd);
    // Slow start continues, because the loss that ended it is undone.
    let step = flow.ack_next(Mark::No)?;
    let ssthresh = step.tcp.snd_ssthresh;
    ensure!(ssthresh == INFINITE_SSTHRESH, "slow start ended at {ssthresh}");
    Ok(())
}

/// The peer sends `segments`, one per tick of its timestamps: without timestamps and data to send, the kernel
/// ignores the mark counter. If `marked`, the ACKs are marked.
fn receives(flow: &mut Flow<'_>, segments: u32, marked: bool) -> Result<usize> {
    let mut acks = 0;
    for _ in 0..segments {
        let sent = flow.send_data(1_000, Codepoint::Ect0, false)?.len();
        flow.read(1_000)?;
        flow.wait_us(1_000)?;
        acks += sent;
        if marked {
            flow.mark_acks(sent);
        }
    }
    Ok(acks)
}

/// Windows of a bulk transfer on a path without marks.
fn windows_of_bulk(flow: &mut Flow<'_>) -> Result<Vec<u32>> {
    flow.write(BULK)?;
    (0..300).map(|_| Ok(flow.ack_next(Mark::No)?.cwnd())).collect()
}

/// Fails unless both runs have the same windows within two packets.
fn same_windows(with: &[u32], without: &[u32]) -> Result<()> {
    for (i, (with, without)) in with.iter().zip(without).enumerate() {
        ensure!(
            with.abs_diff(*without) <= 2,
            "at ACK {i} the window is {with}, and {without} without marks"
        );
    }
    Ok(())
}

fn after_receiving(lab: &mut Lab, cc: &'static str, ecn: Ecn, marked: bool) -> Result<Vec<u32>> {
    parameters(lab, cc)?;
    let setup = Setup { ecn, timestamps: true, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    let acks = receives(&mut flow, 300, marked)?;
    ensure!(acks >= 100, "only {acks} ACKs");
    let delayed = flow.acks_within_us(100_000)?.len();
    if marked {
        flow.mark_acks(delayed);
    }
    windows_of_bulk(&mut flow)
}

fn marked_acks_then_data(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let without = after_receiving(lab, cc, Ecn::Accurate, false)?;
    let with = after_receiving(lab, cc, Ecn::Accurate, true)?;
    same_windows(&with, &without)
}

fn marked_acks_per_packet(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let without = after_receiving(lab, cc, Ecn::PerPacket, false)?;
    let with = after_receiving(lab, cc, Ecn::PerPacket, true)?;
    same_windows(&with, &without)
}

fn answering(lab: &mut Lab, cc: &'static str, marked: bool) -> Result<Vec<u32>> {
    parameters(lab, cc)?;
    let mut flow = Flow::open(lab, Setup::new(cc))?;
    let mut windows = Vec::new();
    let mut acks = 0;
    for _ in 0..100 {
        acks += receives(&mut flow, 3, marked)?;
        flow.write(8_000)?;
        for _ in 0..4 {
            windows.push(flow.ack_many(2, Mark::No)?.cwnd());
        }
        // The kernel's last segment may have acknowledged the peer's, so no ACK is delayed.
        flow.wait_us(RTT_US)?;
    }
    ensure!(acks >= 100, "only {acks} ACKs");
    windows.extend(windows_of_bulk(&mut flow)?);
    Ok(windows)
}

fn marked_acks_and_answers(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let without = answering(lab, cc, false)?;
    let with = answering(lab, cc, true)?;
    same_windows(&with, &without)
}

fn marked_answers(lab: &mut Lab, cc: &'static str) -> Result<()> {
    parameters(lab, cc)?;
    let setup = Setup { initial_window: 32, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    for _ in 0..100 {
        receives(&mut flow, 1, false)?;
        flow.write(7_000)?;
        if flow.ack_many(7, Mark::Ce)?.cwnd() < 16 {
            return Ok(());
        }
    }
    bail!("cwnd {} of 32 with all data marked", flow.tcp()?.snd_cwnd)
}

/// Opens a cubic socket and switches it after its SYN is sent.
fn connecting<'a>(lab: &'a mut Lab, cc: &'static str, ecn: Ecn) -> Result<Flow<'a>> {
    parameters(lab, cc)?;
    sysctl("ipv4/tcp_ecn", "3")?;
    let setup = Setup { ecn, first_cc: Some("cubic"), ..Setup::new(cc) };
    let flow = Flow::open(lab, setup);
    sysctl("ipv4/tcp_ecn", "2")?;
    let mut flow = flow?;
    flow.write(BULK)?;
    Ok(flow)
}

fn switched_while_connecting(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = connecting(lab, cc, Ecn::Accurate)?;
    flow.ack_next(Mark::No)?;
    ensure!(flow.cc_name()? == cc, "the algorithm is {}", flow.cc_name()?);
    knows_marks(&mut flow)
}

fn switched_without_ecn(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = connecting(lab, cc, Ecn::None)?;
    // Without ECN, the sender would not learn of marks, which replace drops.
    for arrival in &flow.arrived {
        let sent = arrival.segment.codepoint;
        ensure!(sent == Codepoint::NotEct, "the kernel sends {sent:?}");
    }
    is_reno(&mut flow, cc)
}

fn failing<'a>(lab: &'a mut Lab, cc: &'static str, handshake: Handshake) -> Result<Flow<'a>> {
    parameters(lab, cc)?;
    let setup = Setup { role: Role::KernelAccepts, handshake, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(BULK)?;
    Ok(flow)
}

fn accecn_fails(lab: &mut Lab, cc: &'static str) -> Result<()> {
    is_reno(&mut failing(lab, cc, Handshake::Cleared)?, cc)
}

fn accecn_fails_late(lab: &mut Lab, cc: &'static str) -> Result<()> {
    // Every listener accepts data in a SYN without a cookie.
    sysctl("ipv4/tcp_fastopen", "1538")?;
    let flow = failing(lab, cc, Handshake::ClearedFastOpen);
    sysctl("ipv4/tcp_fastopen", "1")?;
    let mut flow = flow?;
    ensure!(flow.cc_name()? == cc, "the algorithm is {} at once", flow.cc_name()?);
    // A round trip, so that a period of both algorithms ends.
    flow.acks_of(40, Mark::No)?;
    let arrival = flow.next_arrival()?;
    let sent = arrival.segment.codepoint;
    ensure!(sent == Codepoint::NotEct, "the kernel still sends {sent:?}");
    flow.wait_until_us(arrival.sent_us + RTT_US)?;
    flow.deliver(&arrival, Mark::No)?;
    is_reno(&mut flow, cc)
}

fn switched_by_route(lab: &mut Lab, cc: &'static str) -> Result<()> {
    begins_anew(lab, cc, Handshake::Whole)
}

fn switched_and_crossed(lab: &mut Lab, cc: &'static str) -> Result<()> {
    begins_anew(lab, cc, Handshake::Crossed)
}

fn begins_anew(lab: &mut Lab, cc: &'static str, handshake: Handshake) -> Result<()> {
    parameters(lab, cc)?;
    // Fast Open client that sends data in the SYN without a cookie.
    sysctl("ipv4/tcp_fastopen", "5")?;
    let setup = Setup {
        // bbr initializes its private area to nonzero bytes.
        first_cc: Some("bbr"),
        deferred: true,
        handshake,
        host: if cc == "unocc" { 20 } else { 21 },
        ..Setup::new(cc)
    };
    let flow = Flow::open(lab, setup);
    sysctl("ipv4/tcp_fastopen", "1")?;
    let mut flow = flow?;
    ensure!(flow.cc_name()? == cc, "the algorithm is {}", flow.cc_name()?);
    super::in_slow_start(&mut flow)?;
    knows_marks(&mut flow)
}

fn timeout_after_mark(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = growing(lab, Setup::new(cc))?;
    flow.ack_next(Mark::Ce)?;
    let before = flow.tcp()?;
    ensure!(before.ca_state == 2, "state {}", before.ca_state);
    // All data in flight is lost.
    flow.wait_us(400_000)?;
    let late = flow.tcp()?;
    ensure!(late.ca_state == 4 && late.snd_cwnd == 1, "no timeout");
    let again = flow.arrived.pop_back().context("no retransmission")?;
    flow.arrived.clear();
    let step = flow.deliver(&again, Mark::No)?;
    let ssthresh = step.tcp.snd_ssthresh;
    ensure!(ssthresh <= before.snd_cwnd, "slow start up to {ssthresh}, from {}", before.snd_cwnd);
    Ok(())
}

fn rack_timer(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { initial_window: 100, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    flow.acks_of(200, Mark::No)?;
    let retransmitted = flow.tcp()?.total_retrans;
    // One packet arrives after 24 losses: fewer than the three that start recovery at once, and too early to
    // count as lost with them.
    for _ in 0..24 {
        flow.lose_next()?;
    }
    flow.ack_next(Mark::No)?;
    flow.wait_us(3 * RTT_US)?;
    let tcp = flow.tcp()?;
    ensure!(tcp.ca_state == 3, "state {}", tcp.ca_state);
    let again = tcp.total_retrans - retransmitted;
    ensure!(again > 0, "no retransmission");
    ensure!(again <= 3, "{again} packets are retransmitted at once");
    Ok(())
}

fn receiver_limited(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = open(lab, Setup::new(cc))?;
    // 32 kB.
    flow.window = 2;
    let step = flow.acks_of(3_000, Mark::No)?;
    ensure!(step.cwnd() <= 80, "cwnd {} for 32 packets", step.cwnd());
    Ok(())
}

fn pacing_limited(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = open(lab, Setup::new(cc))?;
    // Ten packets per round trip.
    flow.max_pacing_rate(10_000 * 1_000_000 / RTT_US)?;
    let step = flow.acks_of(3_000, Mark::No)?;
    ensure!(step.cwnd() <= 40, "cwnd {} for 10 packets", step.cwnd());
    Ok(())
}

fn clamped(lab: &mut Lab, cc: &'static str) -> Result<()> {
    // The kernel has cached the clamp once Fast Open has stored the address.
    sysctl("ipv4/tcp_fastopen", "5")?;
    let setup = Setup { host: 22, ..Setup::new(cc) };
    let first = Flow::open(lab, Setup { deferred: true, ..setup });
    sysctl("ipv4/tcp_fastopen", "1")?;
    drop(first?);
    let mut flow = open(lab, setup)?;
    let step = flow.acks_of(1_000, Mark::No)?;
    ensure!(step.cwnd() == 20, "cwnd {}, expected 20", step.cwnd());
    // The pacing rate reflects the clamp: at most two windows per round trip.
    let paced = step.tcp.pacing_rate * RTT_US / 1_000_000;
    ensure!(paced <= 50_000, "{paced} bytes in a round trip");
    Ok(())
}
