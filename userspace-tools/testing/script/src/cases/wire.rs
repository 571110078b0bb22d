// SPDX-License-Identifier: GPL-2.0
//! Both algorithms at the module's boundary: addresses, TCP options, the peer's ECN support, and switches
//! during a flow.

use anyhow::{Result, bail, ensure};

use super::{BULK, Case, both, open, parameters};
use crate::flow::{Ecn, Family, Flow, Mark, Role, Setup};
use crate::lab::{BDP_BYTES, BDP_PACKETS, Lab, RTT_US, sysctl};
use crate::witness::near;

pub const CASES: &[Case] = both! {
    "IPv4, either end connecting: counts AccECN's marks": |lab, cc| families(lab, cc, Family::V4),
    "IPv6, either end connecting: counts AccECN's marks": |lab, cc| families(lab, cc, Family::V6),
    "IPv4 on a socket of IPv6, either end connecting: counts AccECN's marks":
        |lab, cc| families(lab, cc, Family::Mapped),
    "a stretched ACK with AccECN's option: counts each mark": accecn_option,
    "an ECE per packet: counts each mark": ece_per_packet,
    "RFC 3168's ECE until CWR: one CWR, and the window recovers": sticky_ece,
    "RFC 3168's ECE until CWR: the window leaves the floor when marks end": leaves_the_floor,
    "RFC 3168's ECE until CWR: a round trip with ECE counts marks at the earlier rate": hides_marks,
    "RFC 3168's ECE until CWR: a mark in the round trip of a loss is not evidence": hides_marks_after_losses,
    "with timestamps: counts marks, repairs a loss": with_timestamps,
    "without SACK: counts marks, repairs a loss": without_sack,
    "without ECN: is Reno by name and by growth": fallback,
    "a peer without ECN connects: is Reno": fallback_accepting,
    "switched to in mid flow: keeps the window, counts marks from there on": switched_to,
    "switched from in mid flow and back": switched_from,
    "switched to without ECN: is Reno": switched_to_without_ecn,
};

/// Marks every third of the next packets and checks the kernel's count.
fn counts_marks(flow: &mut Flow<'_>, packets: u32) -> Result<()> {
    let before = flow.tcp()?.delivered_ce;
    let mut marks = 0;
    for i in 0..packets {
        let mark = if i % 3 == 0 { Mark::Ce } else { Mark::No };
        let step = flow.ack_next(mark)?;
        marks += u32::from(mark == Mark::Ce);
        let counted = step.tcp.delivered_ce - before;
        ensure!(counted == marks, "{counted} of {marks} marks");
    }
    Ok(())
}

/// Checks that marks reach the algorithm: its average moves toward a third.
pub(super) fn knows_marks(flow: &mut Flow<'_>) -> Result<()> {
    // The averages change after more than a round trip.
    let packets = 60 + 2 * flow.tcp()?.snd_cwnd;
    counts_marks(flow, packets)?;
    let alpha = flow.steps[flow.steps.len() - 1].alpha();
    ensure!(alpha > 0.05, "the average is {alpha}");
    ensure!(flow.cc()?.enabled == 1);
    Ok(())
}

fn families(lab: &mut Lab, cc: &'static str, family: Family) -> Result<()> {
    for role in [Role::KernelConnects, Role::KernelAccepts] {
        let setup = Setup { family, role, ..Setup::new(cc) };
        knows_marks(&mut open(lab, setup)?)?;
    }
    Ok(())
}

fn accecn_option(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { ecn: Ecn::AccurateWithOption, initial_window: 100, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    // Sixteen marks wrap ACE twice: only the option shows them.
    for marks in [16, 32, 48] {
        let step = flow.ack_many(16, Mark::Ce)?;
        ensure!(step.tcp.delivered_ce == marks, "{} of {marks} marks", step.tcp.delivered_ce);
    }
    Ok(())
}

fn ece_per_packet(lab: &mut Lab, cc: &'static str) -> Result<()> {
    for role in [Role::KernelConnects, Role::KernelAccepts] {
        let setup = Setup { ecn: Ecn::PerPacket, role, ..Setup::new(cc) };
        knows_marks(&mut open(lab, setup)?)?;
    }
    Ok(())
}

/// One mark is echoed until CWR arrives. The kernel counts the packets acknowledged with ECE, and no more.
fn sticky_ece(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { ecn: Ecn::Rfc3168, initial_window: 32, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    flow.acks_of(64, Mark::No)?;
    let marked = flow.ack_next(Mark::Ce)?;
    let mut cwr = 0;
    let mut echoed = marked.tcp.delivered_ce;
    for _ in 0..300 {
        let arrival = flow.next_arrival()?;
        cwr += u32::from(arrival.segment.cwr());
        flow.wait_until_us(arrival.sent_us + RTT_US)?;
        let step = flow.deliver(&arrival, Mark::No)?;
        if cwr > 0 {
            ensure!(
                step.tcp.delivered_ce == echoed,
                "counts {} after CWR, {echoed} before",
                step.tcp.delivered_ce
            );
        }
        echoed = step.tcp.delivered_ce;
    }
    ensure!(cwr == 1, "CWR {cwr} times for one mark");
    ensure!(echoed < 2 * 64, "one mark was counted {echoed} times");
    let before = flow.tcp()?.snd_cwnd;
    let after = flow.acks_for_us(100_000, Mark::No)?.cwnd();
    ensure!(after > before, "the window stays at {after}");
    ensure!(flow.tcp()?.ca_state == 0);
    Ok(())
}

/// Marks every packet until the window is at its floor, then none.
fn leaves_the_floor(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { ecn: Ecn::Rfc3168, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    if cc == "unocc" {
        flow.unocc(&[("k_bytes", 30_000)])?;
    } else {
        flow.gemini(&[("k_bytes", 40_000)])?;
    }
    let step = flow.acks_for_us(200 * RTT_US, Mark::Ce)?;
    ensure!(step.cwnd() == 2, "the floor is {}", step.cwnd());
    let step = flow.acks_for_us(3 * RTT_US, Mark::No)?;
    let counted = step.tcp.delivered_ce;
    let step = flow.acks_for_us(100 * RTT_US, Mark::No)?;
    let after = step.tcp.delivered_ce - counted;
    ensure!(after <= 2, "{after} marks counted after the last");
    ensure!(step.cwnd() >= 10, "the window is {}", step.cwnd());
    Ok(())
}

/// Opens a flow to a receiver that repeats ECE (RFC 3168), at a window of some tens of packets.
fn open_repeating<'a>(lab: &'a mut Lab, cc: &'static str) -> Result<Flow<'a>> {
    let setup = Setup { ecn: Ecn::Rfc3168, initial_window: 32, ..Setup::new(cc) };
    open(lab, setup)
}

/// Marks one packet in 50; a round trip with ECE follows each. If all packets of the round trip counted, the
/// average would be at least 0.26.
fn one_in_fifty(flow: &mut Flow<'_>) -> Result<()> {
    let mut sum = 0.0;
    for round in 0..100 {
        flow.acks_of(49, Mark::No)?;
        let step = flow.ack_next(Mark::Ce)?;
        if round >= 50 {
            sum += step.alpha();
        }
    }
    let alpha = sum / 50.0;
    ensure!(alpha < 0.1, "the average is {alpha}");
    Ok(())
}

fn hides_marks(lab: &mut Lab, cc: &'static str) -> Result<()> {
    one_in_fifty(&mut open_repeating(lab, cc)?)
}

/// The CWR of a loss ends the ECE of a mark during recovery as early as at a receiver with per-packet ECE.
fn hides_marks_after_losses(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = open_repeating(lab, cc)?;
    for _ in 0..4 {
        flow.acks_of(60, Mark::No)?;
        flow.lose_next()?;
        flow.acks_of(4, Mark::No)?;
        flow.ack_next(Mark::Ce)?;
        flow.acks_of(150, Mark::No)?;
    }
    one_in_fifty(&mut flow)
}

/// Loses one packet, which is retransmitted; all later ACKs are SACKs or duplicates.
fn repairs_a_loss(flow: &mut Flow<'_>) -> Result<()> {
    let retransmitted = flow.tcp()?.total_retrans;
    flow.lose_next()?;
    for _ in 0..300 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.total_retrans > retransmitted && step.tcp.ca_state == 0 {
            let again = step.tcp.total_retrans - retransmitted;
            ensure!(again == 1, "{again} packets were retransmitted");
            return Ok(());
        }
    }
    bail!("recovery does not end")
}

fn with_timestamps(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { timestamps: true, initial_window: 32, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    ensure!(flow.tcp()?.options & 1 != 0, "no timestamps");
    ensure!(flow.tcp()?.snd_mss == 988, "{}", flow.tcp()?.snd_mss);
    knows_marks(&mut flow)?;
    repairs_a_loss(&mut flow)
}

fn without_sack(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { sack: false, initial_window: 32, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    ensure!(flow.tcp()?.options & 2 == 0, "SACK");
    knows_marks(&mut flow)?;
    repairs_a_loss(&mut flow)
}

/// Checks that the window grows as Reno's and that a loss halves it.
pub(super) fn is_reno(flow: &mut Flow<'_>, cc: &str) -> Result<()> {
    let name = flow.cc_name()?;
    ensure!(name == format!("{cc}-reno"), "the algorithm is {name}");
    let info = flow.cc()?;
    ensure!(info.enabled == 0 && info.alpha == 0, "{info:?}");
    // Slow start adds a packet per packet from the first window on.
    let begun = flow.tcp()?.snd_cwnd;
    let step = flow.acks_of(begun, Mark::No)?;
    ensure!(step.cwnd() == 2 * begun, "cwnd {} after {begun}", step.cwnd());
    flow.lose_next()?;
    let mut steps = 0;
    let step = loop {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state == 0 && step.tcp.total_retrans > 0 {
            break step;
        }
        steps += 1;
        ensure!(steps < 300, "recovery does not end");
    };
    let half = step.tcp.snd_ssthresh;
    ensure!((begun..=2 * begun).contains(&half), "half of the window is {half}");
    ensure!(step.cwnd() == half, "cwnd {} of {half}", step.cwnd());
    // Past slow start: one packet per window.
    let step = flow.acks_of(3 * half, Mark::No)?;
    let added = step.cwnd() - half;
    ensure!((2..=3).contains(&added), "{added} packets in three windows");
    Ok(())
}

fn fallback(lab: &mut Lab, cc: &'static str) -> Result<()> {
    parameters(lab, cc)?;
    let setup = Setup { ecn: Ecn::None, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(BULK)?;
    is_reno(&mut flow, cc)
}

fn fallback_accepting(lab: &mut Lab, cc: &'static str) -> Result<()> {
    parameters(lab, cc)?;
    let setup = Setup { ecn: Ecn::None, role: Role::KernelAccepts, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(BULK)?;
    is_reno(&mut flow, cc)
}

/// Opens a cubic flow past slow start.
fn cubic<'a>(lab: &'a mut Lab, cc: &str, ecn: Ecn) -> Result<Flow<'a>> {
    parameters(lab, cc)?;
    sysctl("ipv4/tcp_ecn", "3")?;
    let setup = Setup { ecn, initial_window: 32, ..Setup::new("cubic") };
    let flow = Flow::open(lab, setup);
    sysctl("ipv4/tcp_ecn", "2")?;
    let mut flow = flow?;
    flow.write(BULK)?;
    flow.acks_of(64, Mark::No)?;
    Ok(flow)
}

fn switched_to(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = cubic(lab, cc, Ecn::Accurate)?;
    // Earlier marks do not count for the new algorithm.
    flow.acks_of(5, Mark::Ce)?;
    flow.acks_of(200, Mark::No)?;
    let before = flow.tcp()?;
    ensure!(before.delivered_ce == 5, "{}", before.delivered_ce);
    flow.switch_to(cc)?;
    ensure!(flow.cc_name()? == cc, "the algorithm is {}", flow.cc_name()?);
    let after = flow.tcp()?;
    ensure!(after.snd_cwnd == before.snd_cwnd, "{}", after.snd_cwnd);
    let step = flow.ack_next(Mark::No)?;
    // Slow start has ended.
    let ssthresh = step.tcp.snd_ssthresh;
    ensure!(ssthresh == before.snd_ssthresh, "slow start up to {ssthresh}");
    ensure!(ssthresh <= before.snd_cwnd, "the flow was in slow start");
    ensure!(step.cc.enabled == 1);
    ensure!(step.cc.marked_bytes == 0, "{} old marks", step.cc.marked_bytes);
    let want = f64::from(step.tcp.snd_cwnd) * 1e3 / RTT_US as f64 * 1e6;
    ensure!(
        step.tcp.pacing_rate as f64 >= want * 0.95,
        "paced at {}, expected {want}",
        step.tcp.pacing_rate
    );
    knows_marks(&mut flow)
}

fn switched_from(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let setup = Setup { initial_window: 100, ..Setup::new(cc) };
    let mut flow = open(lab, setup)?;
    knows_marks(&mut flow)?;
    flow.acks_of(2 * BDP_PACKETS, Mark::No)?;
    for _ in 0..2 {
        let before = flow.tcp()?.snd_cwnd;
        flow.switch_to("cubic")?;
        ensure!(flow.cc_name()? == "cubic");
        ensure!(flow.tcp()?.snd_cwnd == before);
        // Earlier marks keep TCP in state CWR for an RTT.
        flow.acks_of(2 * before, Mark::No)?;
        ensure!(flow.tcp()?.ca_state == 0);
        // Cubic reduces by 30 % once per RTT, however many marks arrive.
        let before = flow.tcp()?.snd_cwnd;
        flow.ack_next(Mark::Ce)?;
        flow.acks_of(before + 20, Mark::No)?;
        let after = flow.tcp()?;
        let want = f64::from(before) * 0.7;
        near("cubic's window", f64::from(after.snd_ssthresh), want, 2.0)?;
        let before = after.snd_cwnd;
        flow.switch_to(cc)?;
        ensure!(flow.cc_name()? == cc);
        ensure!(flow.tcp()?.snd_cwnd == before);
        let step = flow.acks_of(30, Mark::No)?;
        ensure!(step.cwnd() >= before, "cwnd {} of {before}", step.cwnd());
        knows_marks(&mut flow)?;
    }
    Ok(())
}

fn switched_to_without_ecn(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = cubic(lab, cc, Ecn::None)?;
    let before = flow.tcp()?.snd_cwnd;
    flow.switch_to(cc)?;
    let name = flow.cc_name()?;
    ensure!(name == format!("{cc}-reno"), "the algorithm is {name}");
    let step = flow.acks_of(before, Mark::No)?;
    ensure!(step.cwnd() > before && step.cc.enabled == 0);
    ensure!(f64::from(step.cwnd()) * 1e3 < 3.0 * BDP_BYTES);
    Ok(())
}
