// SPDX-License-Identifier: GPL-2.0
//! The kernel as receiver: the peer sends marked data and checks the ACKs.

use anyhow::{Result, ensure};

use super::{BULK, Case, INFINITE_SSTHRESH};
use crate::flow::{Ecn, Flow, Mark, Role, Setup};
use crate::lab::Lab;
use crate::wire::{Codepoint, Segment};

pub const CASES: &[Case] = &[
    Case {
        name: "unocc as receiver: ECE covers exactly the marked bytes, as DCTCP's does",
        run: |lab| per_packet(lab, "unocc"),
    },
    Case {
        name: "gemini as receiver: ECE covers exactly the marked bytes, as DCTCP's does",
        run: |lab| per_packet(lab, "gemini"),
    },
    Case {
        name: "unocc as receiver: a change of CE is acknowledged at once",
        run: |lab| at_once(lab, "unocc"),
    },
    Case {
        name: "gemini as receiver: a change of CE is acknowledged at once",
        run: |lab| at_once(lab, "gemini"),
    },
    Case {
        name: "unocc as receiver: a drop of the echo by the local queue is congestion",
        run: |lab| dropped(lab, "unocc"),
    },
    Case {
        name: "gemini as receiver: a drop of the echo by the local queue is congestion",
        run: |lab| dropped(lab, "gemini"),
    },
    Case { name: "unocc as receiver: ACE counts the marked packets", run: |lab| ace(lab, "unocc") },
    Case {
        name: "gemini as receiver: ACE counts the marked packets",
        run: |lab| ace(lab, "gemini"),
    },
    Case { name: "unocc as receiver without ECN: no ECE", run: |lab| without_ecn(lab, "unocc") },
    Case { name: "gemini as receiver without ECN: no ECE", run: |lab| without_ecn(lab, "gemini") },
];

const SEGMENT_BYTES: u32 = 1_000;
/// Long enough for a delayed ACK, too short for the kernel to return to immediate ACKs.
const PAUSE_US: u64 = 100_000;
/// Longest ACK delay.
const DELAYED_ACK_US: u64 = 250_000;

fn open<'a>(lab: &'a mut Lab, cc: &'static str, ecn: Ecn, role: Role) -> Result<Flow<'a>> {
    let setup = Setup { ecn, role, ..Setup::new(cc) };
    let mut flow = Flow::open(lab, setup)?;
    // The kernel acknowledges the first packets at once; skip them to reach delayed ACKs.
    for _ in 0..30 {
        flow.send_data(SEGMENT_BYTES, Codepoint::Ect0, false)?;
        flow.acks_within_us(PAUSE_US)?;
    }
    Ok(flow)
}

/// Bytes after `from` that ACKs with ECE acknowledge.
fn bytes_with_ece(acks: &[Segment], from: u32) -> u32 {
    let mut acked = from;
    let mut with_ece = 0;
    for ack in acks {
        let newly = ack.ack.wrapping_sub(acked);
        if ack.ece() {
            with_ece += newly;
        }
        acked = ack.ack;
    }
    with_ece
}

fn per_packet(lab: &mut Lab, cc: &'static str) -> Result<()> {
    for role in [Role::KernelConnects, Role::KernelAccepts] {
        let mut flow = open(lab, cc, Ecn::PerPacket, role)?;
        let from = flow.peer_next();
        let mut acks = Vec::new();
        let mut marked = 0;
        // Runs of one to five marked or unmarked packets.
        for run in 0..10 {
            for _ in 0..1 + run / 2 {
                let (codepoint, bytes) = if run % 2 == 0 {
                    (Codepoint::Ce, SEGMENT_BYTES)
                } else {
                    (Codepoint::Ect0, 0)
                };
                marked += bytes;
                acks.extend(flow.send_data(SEGMENT_BYTES, codepoint, false)?);
                acks.extend(flow.acks_within_us(50)?);
                let ce_state = u16::from(codepoint == Codepoint::Ce);
                ensure!(flow.cc()?.ce_state == ce_state, "ce_state is wrong");
            }
        }
        acks.extend(flow.acks_within_us(DELAYED_ACK_US)?);
        let last = acks.last().map_or(from, |ack| ack.ack);
        ensure!(last == flow.peer_next(), "not all data are acknowledged");
        let with_ece = bytes_with_ece(&acks, from);
        ensure!(with_ece == marked, "ECE for {with_ece} of {marked} bytes");
        ensure!(acks.len() < 30, "no ACK was delayed");
    }
    Ok(())
}

fn at_once(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = open(lab, cc, Ecn::PerPacket, Role::KernelConnects)?;
    let first = flow.peer_next();
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ect0, false)?;
    ensure!(acks.is_empty(), "the ACK of an unmarked packet is delayed");
    // The delayed ACK leaves without ECE, then the ACK of the marked packet with ECE.
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ce, false)?;
    let said: Vec<_> = acks.iter().map(|ack| (ack.ack.wrapping_sub(first), ack.ece())).collect();
    ensure!(said == [(1_000, false), (2_000, true)], "{said:?}");
    // CWR does not end the echo: ECE reflects each packet.
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ce, true)?;
    let acks = if acks.is_empty() { flow.acks_within_us(DELAYED_ACK_US)? } else { acks };
    ensure!(acks.len() == 1 && acks[0].ece(), "{acks:?}");
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ect0, false)?;
    ensure!(acks.len() == 1 && !acks[0].ece(), "{acks:?}");
    Ok(())
}

/// The local qdisc drops the ACK that a CE change triggers: TCP calls back while sending it.
fn dropped(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = open(lab, cc, Ecn::PerPacket, Role::KernelConnects)?;
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ect0, false)?;
    ensure!(acks.is_empty(), "the ACK of an unmarked packet is delayed");
    flow.drop_at_egress(true)?;
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ce, false);
    flow.drop_at_egress(false)?;
    let acks = acks?;
    ensure!(acks.is_empty(), "no packet was dropped: {acks:?}");
    let state = flow.tcp()?.ca_state;
    ensure!(state == 2, "state {state}: the drop was not noticed");
    ensure!(flow.cc()?.ce_state == 1, "the CE state is lost");
    // The next ACK repeats the dropped ACK's state.
    let acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ect0, false)?;
    let said: Vec<_> = acks.iter().map(Segment::ece).collect();
    ensure!(said.last() == Some(&false), "ECE is {said:?}");
    // The sender side treats the drop as congestion.
    flow.write(BULK)?;
    let step = flow.ack_next(Mark::No)?;
    let ssthresh = step.tcp.snd_ssthresh;
    ensure!(ssthresh != INFINITE_SSTHRESH, "slow start did not end");
    Ok(())
}

fn ace(lab: &mut Lab, cc: &'static str) -> Result<()> {
    for role in [Role::KernelConnects, Role::KernelAccepts] {
        let mut flow = open(lab, cc, Ecn::Accurate, role)?;
        // Twenty marks wrap the counter, which starts at five, twice.
        for marks in 1..=20_u8 {
            let mut acks = flow.send_data(SEGMENT_BYTES, Codepoint::Ce, false)?;
            acks.extend(flow.acks_within_us(DELAYED_ACK_US)?);
            acks.extend(flow.send_data(SEGMENT_BYTES, Codepoint::Ect0, false)?);
            acks.extend(flow.acks_within_us(DELAYED_ACK_US)?);
            let said = acks.last().map(|ack| ack.ace);
            ensure!(said == Some((5 + marks) & 7), "ACE {said:?} after {marks} marks");
        }
    }
    Ok(())
}

fn without_ecn(lab: &mut Lab, cc: &'static str) -> Result<()> {
    let mut flow = open(lab, cc, Ecn::None, Role::KernelConnects)?;
    let from = flow.peer_next();
    let mut acks = Vec::new();
    for _ in 0..10 {
        acks.extend(flow.send_data(SEGMENT_BYTES, Codepoint::Ce, false)?);
    }
    acks.extend(flow.acks_within_us(DELAYED_ACK_US)?);
    let last = acks.last().map_or(from, |ack| ack.ack);
    ensure!(last == flow.peer_next(), "not all data are acknowledged");
    ensure!(acks.iter().all(|ack| ack.ace == 0), "{acks:?}");
    Ok(())
}
