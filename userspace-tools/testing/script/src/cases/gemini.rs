// SPDX-License-Identifier: GPL-2.0
//! gemini: Algorithm 1 of the Gemini paper, and the deviations of modules/algo/gemini.rs.

use anyhow::{Result, bail, ensure};

use super::{
    BULK, Case, INFINITE_SSTHRESH, begin_without_route, in_slow_start, lose_one, repaired,
};
use crate::flow::{Flow, Mark, Setup, Step};
use crate::lab::{BDP_BYTES, BDP_PACKETS, Lab, RATE_MBPS, RTT_US};
use crate::witness::{Rounds, averaged, increased, near, near_window};

const MSS: f64 = 1_000.0;
/// C in bytes per microsecond.
const C: f64 = RATE_MBPS as f64 / 8.0;
/// Default beta, g and h.
const BETA: f64 = 205.0 / 1024.0;
const G: u32 = 64;
/// T for the lab's short RTT, and an RTT that exceeds it, microseconds.
const T_US: u64 = 500;
const CONGESTED_US: u64 = RTT_US + T_US + 100;

pub const CASES: &[Case] = &[
    Case {
        name: "gemini: alpha starts at one and follows the marked fraction of each RTT",
        run: alpha,
    },
    Case {
        name: "gemini: a mark reduces the window by alpha x F, F = 4K / (C x RTT)",
        run: mark_takes_alpha_f,
    },
    Case { name: "gemini: F falls with the RTT", run: f_falls_with_rtt },
    Case { name: "gemini: K is in packets per Gbit/s", run: k_packets },
    Case { name: "gemini: marks reduce the window by at most half", run: marks_take_at_most_half },
    Case { name: "gemini: at most one reduction per RTT", run: once_per_rtt },
    Case { name: "gemini: an unmarked window adds h packets, exactly", run: h },
    Case { name: "gemini: h grows with the RTT", run: h_grows_with_rtt },
    Case { name: "gemini: h is at least a tenth of a packet and at most five", run: h_bounds },
    Case { name: "gemini: without a known C h is that of 1 Gbit/s at least", run: untold_rate },
    Case { name: "gemini: marked bytes do not increase the window", run: marked_bytes_add_nothing },
    Case {
        name: "gemini: the window does not grow while the application is slow",
        run: application_limited,
    },
    Case {
        name: "gemini: a WAN delay above T reduces by beta, once per RTT, and stops the increase",
        run: wan_takes_beta,
    },
    Case { name: "gemini: a WAN delay of exactly T is not congestion", run: wan_threshold },
    Case { name: "gemini: a round with one short RTT is not congested", run: wan_minimum },
    Case { name: "gemini: the larger of two reductions applies", run: larger_cut_wins },
    Case {
        name: "gemini: the base RTT is the minimum over rtt_base_window_ms",
        run: base_rtt_window,
    },
    Case { name: "gemini: slow start doubles until the first mark", run: slow_start_until_mark },
    Case {
        name: "gemini: slow start ends with the first WAN congestion",
        run: slow_start_until_wan,
    },
    Case { name: "gemini: the floor is two packets", run: floor },
    Case {
        name: "gemini: the pacing rate is 1.2 windows per smoothed RTT, two in slow start",
        run: pacing,
    },
    Case { name: "gemini: a loss halves the window", run: loss_takes_half },
    Case {
        name: "gemini: after a loss one RTT passes without a reduction",
        run: no_cut_after_loss,
    },
    Case { name: "gemini: a timeout restarts slow start up to half of the window", run: timeout },
    Case { name: "gemini: a D-SACK undoes the reduction", run: undo_dsack },
];

/// Fraction of the window that the first mark removes with the K of [`past_slow_start`], 1 byte.
const FIRST_CUT: f64 = 4.0 / BDP_BYTES;

/// Lower bound of h, in packets.
const LEAST_H: f64 = 0.1;

/// Returns a flow whose window of one BDP left slow start by a mark (4 bytes less) and grew by the minimum h
/// for the rest of the RTT, and that window in bytes. Then `others` are set.
fn past_slow_start<'a>(lab: &'a mut Lab, others: &[(&str, u32)]) -> Result<(Flow<'a>, f64)> {
    past_slow_start_with(lab, BULK, others)
}

fn past_slow_start_with<'a>(
    lab: &'a mut Lab,
    bytes: usize,
    others: &[(&str, u32)],
) -> Result<(Flow<'a>, f64)> {
    lab.gemini(&[("k_bytes", 1), ("h_scale", 0)])?;
    let setup = Setup { initial_window: BDP_PACKETS as u16, ..Setup::new("gemini") };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(bytes)?;
    let step = flow.ack_next(Mark::Ce)?;
    ensure!(step.tcp.snd_ssthresh < INFINITE_SSTHRESH);
    let step = flow.acks_of(BDP_PACKETS - 1, Mark::No)?;
    let mut window = BDP_BYTES * (1.0 - FIRST_CUT);
    for _ in 1..BDP_PACKETS {
        window = increased(window, LEAST_H * MSS, MSS);
    }
    near_window("first window", step.cwnd(), window, MSS)?;
    flow.gemini(others)?;
    Ok((flow, window))
}

/// F from the flow's smoothed RTT.
fn f(k_bytes: f64, step: &Step) -> f64 {
    4.0 * k_bytes / (C * f64::from(step.tcp.rtt)).max(k_bytes)
}

fn last(flow: &Flow<'_>) -> Step {
    flow.steps[flow.steps.len() - 1]
}

fn alpha(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[])?;
    // Every fourth ACK is marked, then none.
    for i in 0..900 {
        let marked = i < 600 && i % 4 == 0;
        flow.ack_next(if marked { Mark::Ce } else { Mark::No })?;
    }
    let first = flow.steps[0];
    let mut rounds = Rounds::new(&first);
    let (mut alpha, mut acked, mut marked) = (1.0, first.bytes, first.marked_bytes);
    let mut ended = 0;
    for step in &flow.steps[1..] {
        acked += step.bytes;
        marked += step.marked_bytes;
        if rounds.ended_by(step) {
            alpha = averaged(alpha, f64::from(marked) / f64::from(acked), G);
            (acked, marked) = (0, 0);
            ended += 1;
        }
        near("alpha", step.alpha(), alpha, 0.002)?;
        ensure!(step.cc.acked_bytes == acked && step.cc.marked_bytes == marked);
    }
    ensure!((8..=10).contains(&ended), "{ended} RTTs in nine windows");
    Ok(())
}

/// Checks the window after one mark.
fn one_mark(flow: &mut Flow<'_>, k_bytes: f64, window: f64) -> Result<Step> {
    let before = last(flow);
    let step = flow.ack_next(Mark::Ce)?;
    // This ACK may end an RTT and change alpha slightly.
    let cut = (step.alpha().min(before.alpha()) * f(k_bytes, &step)).min(0.5);
    near_window("window", step.cwnd(), window * (1.0 - cut), MSS)?;
    Ok(step)
}

fn mark_takes_alpha_f(lab: &mut Lab) -> Result<()> {
    let (mut flow, window) = past_slow_start(lab, &[("k_bytes", 10_000)])?;
    let step = one_mark(&mut flow, 10_000.0, window)?;
    ensure!((58..=64).contains(&step.cwnd()), "cwnd {}", step.cwnd());
    // Again with alpha near 0.6.
    flow.gemini(&[("k_bytes", 1), ("g", 200)])?;
    flow.acks_of(2 * BDP_PACKETS, Mark::No)?;
    flow.gemini(&[("k_bytes", 10_000)])?;
    let before = last(&flow);
    ensure!(before.alpha() < 0.75, "alpha is {}", before.alpha());
    let window = (f64::from(before.cwnd()) + 0.5) * MSS;
    one_mark(&mut flow, 10_000.0, window)?;
    Ok(())
}

fn f_falls_with_rtt(lab: &mut Lab) -> Result<()> {
    let (mut flow, window) = past_slow_start(lab, &[])?;
    flow.rtt_us = 2 * RTT_US;
    // Until the smoothed RTT has converged; h is a tenth of a packet meanwhile.
    let step = flow.acks_of(8 * BDP_PACKETS, Mark::No)?;
    near("srtt", f64::from(step.tcp.rtt), 2.0 * RTT_US as f64, 40.0)?;
    flow.gemini(&[("k_bytes", 20_000)])?;
    let step = one_mark(&mut flow, 20_000.0, window + 800.0)?;
    // Half the cut of half the RTT, which is above one half.
    ensure!(step.cwnd() > 55, "cwnd {}", step.cwnd());
    Ok(())
}

fn k_packets(lab: &mut Lab) -> Result<()> {
    let others = [("k_bytes", 0), ("k_packets_per_gbps", 10)];
    let (mut flow, window) = past_slow_start(lab, &others)?;
    one_mark(&mut flow, 10.0 * 0.4 * MSS, window)?;
    Ok(())
}

fn marks_take_at_most_half(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[("k_bytes", 40_000)])?;
    let step = flow.ack_next(Mark::Ce)?;
    near("window", f64::from(step.cwnd()), 50.0, 1.0)
}

/// Follows the window of marked flows at each ACK: one reduction per RTT.
fn once_per_rtt(lab: &mut Lab) -> Result<()> {
    const K_BYTES: f64 = 2_500.0;
    let (mut flow, mut window) = past_slow_start(lab, &[("k_bytes", 2_500)])?;
    // The first mark cut the window at the first ACK.
    let mut cut_us = flow.steps[0].at_us;
    let mut cuts = 0;
    for i in 0..500 {
        let mark = if i % 2 == 0 { Mark::Ce } else { Mark::No };
        let before = last(&flow).alpha();
        let step = flow.ack_next(mark)?;
        if step.sent_us >= cut_us && mark == Mark::Ce {
            window *= 1.0 - before * f(K_BYTES, &step);
            cut_us = step.at_us;
            cuts += 1;
        } else if mark == Mark::No {
            window = increased(window, LEAST_H * MSS, MSS);
        }
        near_window("window", step.cwnd(), window, MSS)?;
    }
    ensure!((4..=7).contains(&cuts), "{cuts} reductions");
    Ok(())
}

/// Checks that unmarked ACKs add a packet in as many steps of `h` as expected.
fn grows_by_h(flow: &mut Flow<'_>, mut window: f64, h: f64) -> Result<()> {
    let goal = (window / MSS).floor() + 1.0;
    while window < goal * MSS {
        window = increased(window, h * MSS, MSS);
    }
    // The first packet starts from a fraction, so only the second is exact.
    while f64::from(flow.ack_next(Mark::No)?.cwnd()) < goal {}
    let from = flow.steps.len();
    let mut second = 0;
    while window < (goal + 1.0) * MSS {
        window = increased(window, h * MSS, MSS);
        second += 1;
    }
    while f64::from(flow.ack_next(Mark::No)?.cwnd()) < goal + 1.0 {
        ensure!(flow.steps.len() < from + 2_000, "the window does not grow");
    }
    let got = flow.steps.len() - from;
    near("ACKs for a packet", got as f64, f64::from(second), 1.0)
}

fn h(lab: &mut Lab) -> Result<()> {
    // 2.5e-6 x 4e8 bit/s x 2 ms = 2 packets.
    let (mut flow, window) = past_slow_start(lab, &[("h_scale", 2_500)])?;
    grows_by_h(&mut flow, window, 2.0)
}

fn h_grows_with_rtt(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[])?;
    flow.rtt_us = 2 * RTT_US;
    flow.acks_of(8 * BDP_PACKETS, Mark::No)?;
    flow.gemini(&[("h_scale", 2_500)])?;
    // The start of the window does not matter for the second packet.
    let window = f64::from(last(&flow).cwnd()) * MSS;
    grows_by_h(&mut flow, window, 4.0)
}

fn h_bounds(lab: &mut Lab) -> Result<()> {
    for (h_scale, h) in [(0, LEAST_H), (1_000_000, 5.0)] {
        let (mut flow, window) = past_slow_start(lab, &[("h_scale", h_scale)])?;
        grows_by_h(&mut flow, window, h)?;
    }
    Ok(())
}

fn untold_rate(lab: &mut Lab) -> Result<()> {
    // h is two packets at the assumed 1 Gbit/s and 2 ms. At this flow's delivery rate, h would be at its
    // lower bound.
    lab.gemini(&[("line_rate_mbps", 0), ("h_scale", 1_000)])?;
    let mut flow = Flow::open(lab, Setup::new("gemini"))?;
    begin_without_route(&mut flow, "gemini")?;
    let window = flow.ack_next(Mark::Ce)?.cwnd();
    let h = 2.0 * flow.rtt_us as f64 / RTT_US as f64;
    grows_by_h(&mut flow, f64::from(window) * MSS, h)
}

fn marked_bytes_add_nothing(lab: &mut Lab) -> Result<()> {
    // K is one byte, so marks remove almost nothing.
    let (mut flow, mut window) = past_slow_start(lab, &[("h_scale", 1_000_000)])?;
    for _ in 0..150 {
        flow.ack_next(Mark::Ce)?;
        let step = flow.ack_next(Mark::No)?;
        window = increased(window, 5.0 * MSS, MSS);
        near_window("window", step.cwnd(), window, MSS)?;
    }
    Ok(())
}

fn application_limited(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start_with(lab, 200_000, &[])?;
    let window = flow.acks_of(BDP_PACKETS, Mark::No)?.cwnd();
    flow.gemini(&[("h_scale", 1_000_000)])?;
    for _ in 0..40 {
        flow.write(5_000)?;
        let step = flow.acks_of(5, Mark::No)?;
        ensure!(step.cwnd() == window, "cwnd {} of {window}", step.cwnd());
    }
    Ok(())
}

/// Acknowledges with `mark` until the window falls.
fn until_it_falls(flow: &mut Flow<'_>, mark: Mark) -> Result<Step> {
    let before = flow.tcp()?.snd_cwnd;
    for _ in 0..1_000 {
        let step = flow.ack_next(mark)?;
        if step.cwnd() < before {
            return Ok(step);
        }
    }
    bail!("the window stays at {before}")
}

fn wan_takes_beta(lab: &mut Lab) -> Result<()> {
    let others = [("t_us", T_US as u32), ("h_scale", 1_000_000)];
    let (mut flow, _) = past_slow_start(lab, &others)?;
    flow.rtt_us = CONGESTED_US;
    let mut cut = until_it_falls(&mut flow, Mark::No)?;
    for _ in 0..3 {
        let before = f64::from(cut.cwnd());
        // No change before the ACK of a packet sent after the cut.
        let next = loop {
            let step = flow.ack_next(Mark::No)?;
            if step.cwnd() != cut.cwnd() {
                break step;
            }
            ensure!(step.at_us < cut.at_us + 3 * CONGESTED_US, "no second reduction");
        };
        ensure!(next.sent_us >= cut.at_us, "two reductions in one RTT");
        near("window", f64::from(next.cwnd()), before * (1.0 - BETA), 1.5)?;
        cut = next;
    }
    Ok(())
}

fn wan_threshold(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[("t_us", T_US as u32)])?;
    flow.rtt_us = RTT_US + T_US;
    let before = last(&flow).cwnd();
    for _ in 0..5 * BDP_PACKETS {
        let step = flow.ack_next(Mark::No)?;
        ensure!(step.cwnd() >= before, "cwnd {} of {before}", step.cwnd());
    }
    flow.rtt_us += 1;
    until_it_falls(&mut flow, Mark::No)?;
    Ok(())
}

fn wan_minimum(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[("t_us", T_US as u32)])?;
    let before = last(&flow).cwnd();
    let from = flow.steps.len();
    for _ in 0..10 {
        flow.rtt_us = CONGESTED_US;
        flow.acks_of(BDP_PACKETS / 2, Mark::No)?;
        flow.rtt_us = RTT_US;
        let step = flow.acks_of(BDP_PACKETS / 2, Mark::No)?;
        ensure!(step.cwnd() >= before, "cwnd {} of {before}", step.cwnd());
    }
    // Checks that most RTTs exceeded the limit.
    let limit_us = RTT_US + T_US;
    let long =
        flow.steps[from..].iter().filter(|step| step.at_us - step.sent_us > limit_us).count();
    ensure!(long > 300, "only {long} RTTs were long");
    Ok(())
}

fn larger_cut_wins(lab: &mut Lab) -> Result<()> {
    for (k_bytes, marks_win) in [(16_000, true), (1_000, false)] {
        let (mut flow, _) = past_slow_start(lab, &[("t_us", T_US as u32)])?;
        flow.rtt_us = CONGESTED_US;
        until_it_falls(&mut flow, Mark::Ce)?;
        flow.gemini(&[("k_bytes", k_bytes)])?;
        let before = last(&flow);
        let step = until_it_falls(&mut flow, Mark::Ce)?;
        let by_marks = (before.alpha() * f(f64::from(k_bytes), &step)).min(0.5);
        ensure!(marks_win == (by_marks > BETA + 0.1), "reduced by {by_marks}");
        let cut = by_marks.max(BETA);
        let want = (f64::from(before.cwnd()) + 0.5) * (1.0 - cut);
        near("window", f64::from(step.cwnd()), want, 1.5)?;
    }
    Ok(())
}

fn base_rtt_window(lab: &mut Lab) -> Result<()> {
    let others = [("t_us", T_US as u32), ("rtt_base_window_ms", 100)];
    let (mut flow, _) = past_slow_start(lab, &others)?;
    flow.rtt_us = CONGESTED_US;
    flow.gap_us = 500;
    until_it_falls(&mut flow, Mark::No)?;
    // Two base-RTT windows later the longer RTT is the base, so there is no congestion.
    flow.acks_for_us(220_000, Mark::No)?;
    let before = last(&flow).cwnd();
    let step = flow.acks_for_us(50_000, Mark::No)?;
    ensure!(step.cwnd() >= before, "cwnd fell to {}", step.cwnd());
    Ok(())
}

fn slow_start<'a>(lab: &'a mut Lab, others: &[(&str, u32)]) -> Result<(Flow<'a>, u32)> {
    lab.gemini(others)?;
    let mut flow = Flow::open(lab, Setup::new("gemini"))?;
    let window = in_slow_start(&mut flow)?;
    Ok((flow, window))
}

fn slow_start_until_mark(lab: &mut Lab) -> Result<()> {
    let (mut flow, window) = slow_start(lab, &[("k_bytes", 5_000)])?;
    let before = last(&flow).alpha();
    let step = flow.ack_next(Mark::Ce)?;
    let want = f64::from(window) * (1.0 - before * f(5_000.0, &step));
    near("window", f64::from(step.cwnd()), want, 1.0)?;
    ensure!(step.tcp.snd_ssthresh == step.cwnd());
    let after = flow.acks_of(30, Mark::No)?.cwnd();
    ensure!(after <= step.cwnd() + 1, "cwnd {after} after {}", step.cwnd());
    Ok(())
}

fn slow_start_until_wan(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = slow_start(lab, &[("t_us", T_US as u32)])?;
    flow.rtt_us = CONGESTED_US;
    let mut before = last(&flow).cwnd();
    for _ in 0..1_000 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.snd_ssthresh < INFINITE_SSTHRESH {
            let want = f64::from(before) * (1.0 - BETA);
            return near("window", f64::from(step.cwnd()), want, 1.0);
        }
        before = step.cwnd();
    }
    bail!("slow start did not end")
}

fn floor(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[("k_bytes", 40_000), ("g", 1)])?;
    let mut least = u32::MAX;
    for _ in 0..400 {
        least = least.min(flow.ack_next(Mark::Ce)?.cwnd());
        ensure!(least >= 2);
    }
    ensure!(least == 2, "the least window is {least}");
    Ok(())
}

fn pacing(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[])?;
    let step = flow.acks_of(BDP_PACKETS, Mark::No)?;
    paced_by(&step, 1.2)?;
    drop(flow);
    let (flow, _) = slow_start(lab, &[])?;
    paced_by(&last(&flow), 2.0)
}

/// Checks that the pacing rate is `factor` windows per smoothed RTT.
fn paced_by(step: &Step, factor: f64) -> Result<()> {
    let window = f64::from(step.cwnd()) * MSS;
    let want = window / f64::from(step.tcp.rtt) * 1e6 * factor;
    let rate = step.tcp.pacing_rate as f64;
    near("pacing rate", rate, want, want / 80.0)
}

fn loss_takes_half(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[])?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    let step = lose_one(&mut flow)?;
    near("ssthresh", f64::from(step.tcp.snd_ssthresh), 50.0, 1.0)?;
    let step = repaired(&mut flow)?;
    near("window", f64::from(step.cwnd()), 50.0, 2.0)
}

fn no_cut_after_loss(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[("k_bytes", 10_000)])?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    let lost = lose_one(&mut flow)?;
    let mut quiet = 0;
    for _ in 0..300 {
        let before = flow.tcp()?.snd_ssthresh;
        let step = flow.ack_next(Mark::Ce)?;
        let fell = step.tcp.snd_ssthresh < before;
        if step.sent_us < lost.at_us {
            ensure!(!fell, "a second reduction {} us later", step.at_us - lost.at_us);
            quiet += 1;
        } else if fell {
            ensure!(quiet > 20, "a reduction after {quiet} ACKs");
            return Ok(());
        }
    }
    bail!("no reduction")
}

fn timeout(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[])?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    for _ in 0..flow.arrived.len() {
        flow.lose_next()?;
    }
    let first = flow.next_arrival()?;
    let info = flow.tcp()?;
    ensure!(info.ca_state == 4, "state {}", info.ca_state);
    ensure!(info.snd_cwnd == 1, "the window is {}", info.snd_cwnd);
    near("ssthresh", f64::from(info.snd_ssthresh), 50.0, 1.0)?;
    flow.deliver(&first, Mark::No)?;
    let mut step = repaired(&mut flow)?;
    if step.cwnd() < 48 {
        step = flow.acks_of(60, Mark::No)?;
    }
    near("window", f64::from(step.cwnd()), 50.0, 3.0)
}

fn undo_dsack(lab: &mut Lab) -> Result<()> {
    let (mut flow, _) = past_slow_start(lab, &[])?;
    let window = flow.acks_of(BDP_PACKETS, Mark::No)?.cwnd();
    let late = flow.lose_next()?;
    let reduced = loop {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state == 3 {
            break step;
        }
        ensure!(step.at_us < late.sent_us + 10 * RTT_US, "no fast retransmit");
    };
    near("ssthresh", f64::from(reduced.tcp.snd_ssthresh), 50.0, 1.0)?;
    flow.deliver(&late, Mark::No)?;
    for _ in 0..300 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state < 2 && step.cwnd() >= window {
            return Ok(());
        }
    }
    bail!("the window stays at {}", flow.tcp()?.snd_cwnd)
}
