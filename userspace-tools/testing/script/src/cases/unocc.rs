// SPDX-License-Identifier: GPL-2.0
//! unocc: Algorithm 1 of the Uno paper, differences of the profiles, and the deviations of
//! modules/algo/unocc.rs.

use anyhow::{Result, ensure};

use super::{
    BULK, Case, INFINITE_SSTHRESH, begin_without_route, in_slow_start, lose_one, repaired,
};
use crate::flow::{Ecn, Flow, Mark, Setup, Step};
use crate::lab::{BDP_BYTES, BDP_PACKETS, INTRA_US, Lab, RTT_US, shortest_rtt_us};
use crate::witness::{
    Epochs, Rounds, averaged, delivery_rate, increased, md_gain, near, near_window,
};

/// Gain of E and factor of a gentle decrease in the paper's profile, in 1/1024.
const EWMA: u32 = 512;
const MD_GENTLE: u32 = 307;

const MSS: f64 = 1_000.0;
const RTT: f64 = RTT_US as f64;
const INTRA: f64 = INTRA_US as f64;
/// RTT above the delay tolerance, microseconds.
const DELAYED_US: u64 = RTT_US + 100;

pub const CASES: &[Case] = &[
    Case { name: "unocc: an unmarked window adds ai_ppm of the BDP", run: additive_increase },
    Case {
        name: "unocc: fractions of a packet are carried between ACKs",
        run: fractions_are_carried,
    },
    Case { name: "unocc: with line_rate_mbps 0 C is the device's rate", run: device_says_the_rate },
    Case {
        name: "unocc: with line_rate_mbps 0 a socket that had no route at first can grow",
        run: no_route_at_first,
    },
    Case {
        name: "unocc: with intra_rtt_us 0 an epoch is the shortest RTT of all flows",
        run: epochs_of_the_host,
    },
    Case { name: "unocc: marked bytes do not increase the window", run: marked_bytes_add_nothing },
    Case {
        name: "unocc: one ACK adds at most the increase of one RTT",
        run: one_ack_adds_one_step,
    },
    Case {
        name: "unocc: the window does not grow while the application is slow",
        run: application_limited_growth,
    },
    Case {
        name: "unocc: an epoch is one intra RTT, from the first ACK to a packet sent after it",
        run: epochs_between,
    },
    Case { name: "unocc: an epoch is one intra RTT inside the datacenter", run: epochs_inside },
    Case { name: "unocc: the epoch clock advances after an idle time", run: idle_epochs },
    Case { name: "unocc: one decrease per marked epoch, by E x 4K/(K+BDP)", run: decrease },
    Case {
        name: "unocc: the decrease is gentle without delay, and does not compound",
        run: gentle_decrease,
    },
    Case { name: "unocc: the decrease is gentle up to delay_tolerance_ppm", run: delay_tolerance },
    Case { name: "unocc: k_bytes sets K", run: k_bytes },
    Case {
        name: "unocc: E is the average fraction of marked bytes per epoch",
        run: e_is_a_fraction,
    },
    Case { name: "unocc: E decays in unmarked epochs without a decrease", run: e_decays },
    Case { name: "unocc: skip_md_when_falling increases while E falls", run: skip_when_falling },
    Case { name: "unocc: skip_md_when_falling decreases if E is above 0.9", run: no_skip_above },
    Case {
        name: "unocc: Quick Adapt sets the window to the bytes that one RTT delivered",
        run: quick_adapt,
    },
    Case { name: "unocc: qa_keep scales the window of Quick Adapt", run: quick_adapt_keep },
    Case {
        name: "unocc: Quick Adapt does not act if half of the window is delivered",
        run: quick_adapt_rests,
    },
    Case {
        name: "unocc: Quick Adapt does not act if less than qa_beta of the window is in flight",
        run: quick_adapt_unused,
    },
    Case {
        name: "unocc: Quick Adapt skips a round trip limited by the application",
        run: quick_adapt_application,
    },
    Case { name: "unocc: after Quick Adapt one RTT passes without it", run: quick_adapt_once },
    Case {
        name: "unocc: after Quick Adapt one RTT passes without a decrease",
        run: no_decrease_after_quick_adapt,
    },
    Case { name: "unocc: the floor is two packets", run: floor },
    Case { name: "unocc: max_cwnd_bdp caps the window", run: ceiling },
    Case { name: "unocc: start = bdp begins with one BDP, past slow start", run: start_bdp },
    Case { name: "unocc: start = slow start doubles until the first mark", run: start_slow },
    Case { name: "unocc: a loss halves the window", run: loss_takes_half },
    Case {
        name: "unocc: after a loss one RTT passes without a decrease",
        run: no_decrease_after_loss,
    },
    Case { name: "unocc: a timeout restarts slow start up to half of the window", run: timeout },
    Case { name: "unocc: a D-SACK undoes the reduction", run: undo_dsack },
    Case { name: "unocc: a timestamp of the original undoes the reduction", run: undo_timestamp },
    Case { name: "unocc: the pacing rate is one window per base RTT", run: pacing },
    Case { name: "unocc: idling does not shrink the window", run: idle_window },
    Case {
        name: "unocc: a retransmission's timestamp does not set the base RTT",
        run: base_rtt_is_true,
    },
    Case { name: "unocc: a longer base RTT is noticed within 20 s", run: base_rtt_expires },
    Case { name: "unocc: profile sets every parameter", run: profiles },
];

/// Opens a flow past slow start with a window of one BDP whose ACKs arrive one by one: the paper's profile
/// without increase. Then `others` are set.
fn at_bdp<'a>(lab: &'a mut Lab, bytes: usize, others: &[(&str, u32)]) -> Result<Flow<'a>> {
    at_bdp_of(lab, Setup::new("unocc"), bytes, others)
}

fn at_bdp_of<'a>(
    lab: &'a mut Lab,
    setup: Setup,
    bytes: usize,
    others: &[(&str, u32)],
) -> Result<Flow<'a>> {
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0)])?;
    let mut flow = Flow::open(lab, setup)?;
    flow.write(bytes)?;
    let step = flow.acks_of(BDP_PACKETS, Mark::No)?;
    ensure!(step.cwnd() == BDP_PACKETS, "starts with {}", step.cwnd());
    flow.unocc(others)?;
    Ok(flow)
}

/// As [`at_bdp`] with bulk data, and with a whole evenly spaced window in flight.
fn steady<'a>(lab: &'a mut Lab, others: &[(&str, u32)]) -> Result<Flow<'a>> {
    let mut flow = at_bdp(lab, BULK, &[])?;
    flow.acks_of(2 * BDP_PACKETS, Mark::No)?;
    flow.unocc(others)?;
    Ok(flow)
}

/// K: a seventh of the intra-DC BDP, bytes.
fn k() -> f64 {
    (BDP_BYTES * INTRA / RTT / 7.0).floor()
}

// Additive increase.

/// Checks that 300 ACKs from one BDP add a tenth of the BDP per window.
fn follows_increases(flow: &mut Flow<'_>) -> Result<()> {
    let mut window = BDP_BYTES;
    for _ in 0..300 {
        let step = flow.ack_next(Mark::No)?;
        window = increased(window, BDP_BYTES / 10.0, MSS);
        near_window("window", step.cwnd(), window, MSS)?;
    }
    ensure!(window > 125e3);
    Ok(())
}

fn additive_increase(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[("ai_ppm", 100_000)])?;
    follows_increases(&mut flow)
}

fn fractions_are_carried(lab: &mut Lab) -> Result<()> {
    // 1000 bytes per window of 100 packets are ten bytes per ACK.
    let mut flow = steady(lab, &[("ai_ppm", 10_000)])?;
    let (mut window, mut wanted) = (BDP_BYTES, 0);
    while window < BDP_BYTES + MSS {
        window = increased(window, BDP_BYTES / 100.0, MSS);
        wanted += 1;
    }
    let mut got = 1;
    while flow.ack_next(Mark::No)?.cwnd() == BDP_PACKETS {
        got += 1;
        ensure!(got < 2 * wanted, "no packet added after {got} ACKs");
    }
    near("ACKs for a packet", f64::from(got), f64::from(wanted), 1.0)
}

fn device_says_the_rate(lab: &mut Lab) -> Result<()> {
    // The device reports 10 Gbit/s: 4,000 ppm of 2.5 MB are a tenth of the BDP of the other cases.
    let mut flow = steady(lab, &[("line_rate_mbps", 0), ("ai_ppm", 4_000)])?;
    follows_increases(&mut flow)
}

fn no_route_at_first(lab: &mut Lab) -> Result<()> {
    // The cwnd cap applies only if a device reports C.
    lab.unocc("paper", &[("line_rate_mbps", 0), ("max_cwnd_bdp", 1_024)])?;
    // A handshake RTT of 1 ms may be a timestamp tick and is no sample.
    let setup = Setup { rtt_us: 2 * RTT_US, ..Setup::new("unocc") };
    let mut flow = Flow::open(lab, setup)?;
    begin_without_route(&mut flow, "unocc")?;
    // The delivery rate is known after about a window of ACKs.
    let first = flow.tcp()?.snd_cwnd;
    let step = flow.acks_of(4 * first, Mark::No)?;
    ensure!(step.tcp.snd_ssthresh == INFINITE_SSTHRESH, "slow start ended");
    ensure!(step.cwnd() == 5 * first, "cwnd {} after {first}", step.cwnd());
    Ok(())
}

fn epochs_of_the_host(lab: &mut Lab) -> Result<()> {
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0)])?;
    // An intra-DC flow gives the host its base RTT.
    let inside = Setup { rtt_us: INTRA_US, ..Setup::new("unocc") };
    let mut flow = Flow::open(lab, inside)?;
    flow.write(BULK)?;
    flow.acks_of(2, Mark::No)?;
    drop(flow);
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0), ("intra_rtt_us", 0)])?;
    let mut flow = Flow::open(lab, Setup::new("unocc"))?;
    flow.write(BULK)?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    let shortest_us = shortest_rtt_us("unocc")?;
    ensure!((1..=INTRA_US as u32).contains(&shortest_us), "{shortest_us}");
    let intra_us = f64::from(shortest_us.max(10));
    let ended = follows_epochs_of(&mut flow, intra_us, RTT, 1_000)?;
    ensure!(ended > 90, "{ended} epochs in ten RTTs");
    Ok(())
}

fn marked_bytes_add_nothing(lab: &mut Lab) -> Result<()> {
    // Without delay and with md_gentle = 0, marks only prevent growth.
    let others = [("ai_ppm", 100_000), ("md_gentle", 0)];
    let mut flow = steady(lab, &others)?;
    let mut window = BDP_BYTES;
    for _ in 0..100 {
        flow.ack_next(Mark::Ce)?;
        let step = flow.ack_next(Mark::No)?;
        window = increased(window, BDP_BYTES / 10.0, MSS);
        near_window("window", step.cwnd(), window, MSS)?;
    }
    Ok(())
}

fn one_ack_adds_one_step(lab: &mut Lab) -> Result<()> {
    // Quick Adapt cuts the window to about 30 packets while 100 are in flight. The AccECN option is needed:
    // the counter alone cannot show that none of 100 packets was marked.
    let setup = Setup { ecn: Ecn::AccurateWithOption, ..Setup::new("unocc") };
    let mut flow = at_bdp_of(lab, setup, BULK, &[])?;
    flow.acks_of(2 * BDP_PACKETS, Mark::No)?;
    let before = until_quick_adapt(&mut flow, 60, Mark::No)?.cwnd();
    flow.unocc(&[("ai_ppm", 100_000), ("qa_beta", 0)])?;
    flow.gap_us = 0;
    let after = flow.ack_many(60, Mark::No)?.cwnd();
    near("added", f64::from(after - before), BDP_BYTES / 10.0 / MSS, 1.0)
}

fn application_limited_growth(lab: &mut Lab) -> Result<()> {
    let mut flow = slow_application(lab, &[("ai_ppm", 100_000), ("qa_beta", 0)])?;
    for _ in 0..40 {
        ensure!(slow_round(&mut flow)?.cwnd() == BDP_PACKETS);
    }
    Ok(())
}

/// Opens a flow with a window of one BDP and nothing left to send.
fn slow_application<'a>(lab: &'a mut Lab, others: &[(&str, u32)]) -> Result<Flow<'a>> {
    let mut flow = at_bdp(lab, 200_000, &[])?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    flow.unocc(others)?;
    // Let samples of the last full window expire.
    for _ in 0..3 {
        slow_round(&mut flow)?;
    }
    Ok(flow)
}

/// One RTT in which the application sends five packets.
fn slow_round(flow: &mut Flow<'_>) -> Result<Step> {
    flow.write(5_000)?;
    flow.acks_of(5, Mark::No)
}

// Epochs.

fn follows_epochs(flow: &mut Flow<'_>, base_us: f64, acks: u32) -> Result<u32> {
    follows_epochs_of(flow, INTRA, base_us, acks)
}

/// Checks that epochs end at the ACKs that the paper's clock gives, and that the byte count grows at the
/// others.
fn follows_epochs_of(flow: &mut Flow<'_>, intra_us: f64, base_us: f64, acks: u32) -> Result<u32> {
    let mut epochs = Epochs::new(&flow.steps[0], intra_us, base_us);
    let mut acked = flow.steps[0].bytes;
    for step in &flow.steps[1..] {
        acked = if epochs.ended_by(step) { 0 } else { acked + step.bytes };
    }
    let mut ended = 0;
    for _ in 0..acks {
        let step = flow.ack_next(Mark::No)?;
        if epochs.ended_by(&step) {
            acked = 0;
            ended += 1;
        } else {
            acked += step.bytes;
        }
        ensure!(
            step.cc.acked_bytes == acked,
            "{} bytes in the epoch at {} us, expected {acked}",
            step.cc.acked_bytes,
            step.at_us
        );
    }
    Ok(ended)
}

fn epochs_between(lab: &mut Lab) -> Result<()> {
    let mut flow = at_bdp(lab, BULK, &[])?;
    // In the first RTT, no acknowledged packet was sent after the first ACK.
    let first = flow.steps[0];
    for step in &flow.steps {
        let sum = (step.at_us >= first.at_us) as u32 * step.cc.acked_bytes;
        ensure!(sum > 0 || step.sent_us >= first.at_us, "the epoch ended too early");
    }
    let ended = follows_epochs(&mut flow, RTT, 1_000)?;
    near("epochs in ten RTTs", f64::from(ended), 100.0, 2.0)
}

fn epochs_inside(lab: &mut Lab) -> Result<()> {
    lab.unocc("paper", &[("start", 1), ("line_rate_mbps", 4_000)])?;
    let setup = Setup { rtt_us: INTRA_US, ..Setup::new("unocc") };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(BULK)?;
    flow.ack_next(Mark::No)?;
    let ended = follows_epochs(&mut flow, INTRA, 1_000)?;
    near("epochs in ten RTTs", f64::from(ended), 9.5, 1.0)
}

fn idle_epochs(lab: &mut Lab) -> Result<()> {
    let mut flow = at_bdp(lab, 200_000, &[])?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    flow.wait_us(10_000_000)?;
    flow.write(BULK)?;
    // The first window starts with a burst and is then paced; each ACK may end an epoch.
    let mut ended = 0;
    let first = flow.ack_next(Mark::No)?;
    let mut last = first;
    while last.at_us < first.at_us + 2 * RTT_US {
        last = flow.ack_next(Mark::No)?;
        ended += u32::from(last.cc.acked_bytes == 0);
    }
    ensure!((15..=21).contains(&ended), "{ended} epochs in two RTTs");
    Ok(())
}

// The decrease.

/// Epochs of the ACKs so far.
fn epochs_so_far(flow: &Flow<'_>) -> Epochs {
    let mut epochs = Epochs::new(&flow.steps[0], INTRA, RTT);
    for step in &flow.steps[1..] {
        epochs.ended_by(step);
    }
    epochs
}

/// Checks E and the window at each ACK of marked epochs; returns the window.
fn follows_decreases(
    flow: &mut Flow<'_>,
    gain: f64,
    acks: u32,
    is_marked: impl Fn(u32) -> bool,
) -> Result<f64> {
    let mut epochs = epochs_so_far(flow);
    // Start at the beginning of an epoch.
    loop {
        let step = flow.ack_next(Mark::No)?;
        if epochs.ended_by(&step) {
            break;
        }
    }
    let (mut window, mut e) = (BDP_BYTES, 0.0);
    let (mut acked, mut marked, mut decreases) = (0, 0, 0);
    for i in 0..acks {
        let mark = if is_marked(i) { Mark::Ce } else { Mark::No };
        let step = flow.ack_next(mark)?;
        acked += step.bytes;
        marked += step.marked_bytes;
        if epochs.ended_by(&step) {
            e = averaged(e, f64::from(marked) / f64::from(acked), EWMA);
            if marked > 0 {
                window *= 1.0 - e * gain;
                decreases += 1;
            }
            (acked, marked) = (0, 0);
        }
        near("E", step.alpha(), e, 0.003)?;
        near_window("window", step.cwnd(), window, MSS)?;
    }
    ensure!(decreases >= 5, "only {decreases} epochs were marked");
    Ok(window)
}

fn decrease(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    flow.rtt_us = DELAYED_US;
    let gain = md_gain(k(), BDP_BYTES);
    let window = follows_decreases(&mut flow, gain, 150, |_| true)?;
    ensure!(window < 65e3, "window of {window}: too large to tell the rules apart");
    Ok(())
}

fn gentle_decrease(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    let gain = md_gain(k(), BDP_BYTES) * f64::from(MD_GENTLE) / 1024.0;
    // Compounding the gentle factor leaves 97 packets, omitting it 50.
    let window = follows_decreases(&mut flow, gain, 150, |_| true)?;
    ensure!(window < 85e3, "window of {window}: too large to tell the rules apart");
    Ok(())
}

fn delay_tolerance(lab: &mut Lab) -> Result<()> {
    // 5 % of 2000 us: above 2100 us counts as delay. TCP's clock has whole microseconds, so 2100.1 us can be
    // either.
    let others = [("delay_tolerance_ppm", 50_000)];
    let gain = md_gain(k(), BDP_BYTES);
    let gentle = gain * f64::from(MD_GENTLE) / 1024.0;
    for (rtt_us, gain) in [(2_099, gentle), (2_102, gain)] {
        let mut flow = steady(lab, &others)?;
        flow.rtt_us = rtt_us;
        follows_decreases(&mut flow, gain, 150, |_| true)?;
    }
    Ok(())
}

fn k_bytes(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[("k_bytes", 5_000)])?;
    flow.rtt_us = DELAYED_US;
    let gain = md_gain(5_000.0, BDP_BYTES);
    follows_decreases(&mut flow, gain, 60, |_| true)?;
    Ok(())
}

fn e_is_a_fraction(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    flow.rtt_us = DELAYED_US;
    let gain = md_gain(k(), BDP_BYTES);
    follows_decreases(&mut flow, gain, 150, |i| i % 4 == 0)?;
    Ok(())
}

fn e_decays(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    flow.acks_of(2 * BDP_PACKETS, Mark::Ce)?;
    flow.acks_of(30, Mark::No)?;
    let mut epochs = epochs_so_far(&flow);
    let last = flow.steps[flow.steps.len() - 1];
    let (mut e, window) = (last.alpha(), last.cwnd());
    ensure!(e > 0.05, "E is {e} at first");
    for _ in 0..100 {
        let step = flow.ack_next(Mark::No)?;
        if epochs.ended_by(&step) {
            e = averaged(e, 0.0, EWMA);
        }
        near("E", step.alpha(), e, 0.003)?;
        ensure!(step.cwnd() == window, "the window fell to {}", step.cwnd());
    }
    ensure!(e < 0.001);
    Ok(())
}

fn skip_when_falling(lab: &mut Lab) -> Result<()> {
    // E rises to a half, then falls while one packet in eight is marked.
    let others = [("skip_md_when_falling", 1), ("ai_ppm", 100_000)];
    let mut flow = steady(lab, &others)?;
    flow.rtt_us = DELAYED_US;
    for _ in 0..60 {
        flow.ack_next(Mark::Ce)?;
        flow.ack_next(Mark::No)?;
    }
    let (mut rose, mut fell) = (0, 0);
    let mut before = flow.steps[flow.steps.len() - 1];
    for i in 0..40 {
        let step = flow.ack_next(if i % 8 == 0 { Mark::Ce } else { Mark::No })?;
        if step.cc.acked_bytes == 0 && step.alpha() < before.alpha() {
            // The increase of a marked epoch, besides that of each ACK.
            let marked = before.cc.marked_bytes + step.marked_bytes > 0;
            rose += u32::from(marked && step.cwnd() > before.cwnd());
            fell += u32::from(step.cwnd() < before.cwnd());
        }
        before = step;
    }
    ensure!(fell == 0, "{fell} decreases while E fell");
    ensure!(rose >= 2, "{rose} increases while E fell");
    Ok(())
}

fn no_skip_above(lab: &mut Lab) -> Result<()> {
    let others = [("skip_md_when_falling", 1), ("ewma", 100)];
    let mut flow = steady(lab, &others)?;
    flow.rtt_us = DELAYED_US;
    // E is close to one and then falls slowly.
    flow.unocc(&[("ewma", 1_024), ("k_bytes", 1_000)])?;
    flow.acks_of(30, Mark::Ce)?;
    flow.unocc(&[("ewma", 100), ("k_bytes", 10_000)])?;
    let (mut above, mut below) = (0, 0);
    let mut before = flow.steps[flow.steps.len() - 1];
    for i in 0..60 {
        let step = flow.ack_next(if i % 2 == 0 { Mark::Ce } else { Mark::No })?;
        if step.cc.acked_bytes == 0 && step.alpha() < before.alpha() {
            let fell = step.cwnd() < before.cwnd();
            if step.alpha() > 0.902 {
                ensure!(fell, "no decrease at E = {}", step.alpha());
                above += 1;
            } else if step.alpha() < 0.898 {
                ensure!(!fell, "a decrease at E = {}", step.alpha());
                below += 1;
            }
        }
        before = step;
    }
    ensure!(above >= 1 && below >= 2, "{above} epochs above, {below} below");
    Ok(())
}

// Quick Adapt.

/// ACKs every `gap_us` until the window falls; returns that step.
fn until_quick_adapt(flow: &mut Flow<'_>, gap_us: u64, mark: Mark) -> Result<Step> {
    flow.gap_us = gap_us;
    let before = flow.tcp()?.snd_cwnd;
    for _ in 0..1_000 {
        let step = flow.ack_next(mark)?;
        if step.cwnd() < before {
            return Ok(step);
        }
    }
    anyhow::bail!("no Quick Adapt at one ACK per {gap_us} us")
}

/// Bytes per base RTT at the delivery rate of the last step.
fn delivered(flow: &Flow<'_>) -> f64 {
    let last = flow.steps.len() - 1;
    delivery_rate(&flow.steps, last).unwrap_or(f64::NAN) * RTT
}

fn quick_adapt(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    let step = until_quick_adapt(&mut flow, 80, Mark::No)?;
    let delivered = delivered(&flow);
    ensure!(delivered < BDP_BYTES / 2.0, "{delivered} bytes delivered");
    near_window("window", step.cwnd(), delivered, MSS)
}

fn quick_adapt_keep(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[("qa_keep", 700)])?;
    let step = until_quick_adapt(&mut flow, 80, Mark::No)?;
    let kept = delivered(&flow) * 700.0 / 1024.0;
    near_window("window", step.cwnd(), kept, MSS)
}

fn quick_adapt_rests(lab: &mut Lab) -> Result<()> {
    // One ACK per 34 us is 59 % of the window per RTT; one per 56 us is 36 %, above the limit of 30 %.
    for (gap_us, qa_beta) in [(34, 512), (56, 307)] {
        let mut flow = steady(lab, &[("qa_beta", qa_beta)])?;
        flow.gap_us = gap_us;
        for _ in 0..400 {
            let step = flow.ack_next(Mark::No)?;
            ensure!(step.cwnd() == BDP_PACKETS, "cwnd fell to {}", step.cwnd());
        }
        let part = delivered(&flow) / BDP_BYTES;
        let limit = f64::from(qa_beta) / 1024.0;
        ensure!(part > limit && part < limit + 0.2, "delivers {part}");
    }
    Ok(())
}

fn quick_adapt_unused(lab: &mut Lab) -> Result<()> {
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0)])?;
    let mut flow = Flow::open(lab, Setup::new("unocc"))?;
    // From here on, the receiver's window is 16 kB.
    flow.window = 1;
    flow.write(BULK)?;
    for _ in 0..400 {
        let step = flow.ack_next(Mark::No)?;
        ensure!(step.cwnd() == BDP_PACKETS, "cwnd fell to {}", step.cwnd());
    }
    let part = delivered(&flow) / BDP_BYTES;
    ensure!(part > 0.1 && part < 0.2, "delivers {part}");
    Ok(())
}

fn quick_adapt_application(lab: &mut Lab) -> Result<()> {
    let mut flow = slow_application(lab, &[])?;
    for _ in 0..20 {
        let step = slow_round(&mut flow)?;
        ensure!(step.cwnd() == BDP_PACKETS, "cwnd fell to {}", step.cwnd());
    }
    Ok(())
}

fn quick_adapt_once(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    let fired = until_quick_adapt(&mut flow, 80, Mark::No)?;
    // At a tenth of the rate, the next Quick Adapt waits for the ACK of a packet sent since (the end of the
    // quiet RTT) and another round trip.
    flow.gap_us = 800;
    let mut rounds = Rounds::new(&fired);
    let mut ended = 0;
    for _ in 0..400 {
        let step = flow.ack_next(Mark::No)?;
        ended += u32::from(rounds.ended_by(&step));
        if step.cwnd() < fired.cwnd() {
            ensure!(ended == 2, "Quick Adapt again after {ended} round trips");
            return Ok(());
        }
        ensure!(ended < 2, "no second Quick Adapt after {ended} round trips");
    }
    anyhow::bail!("no second round trip");
}

/// Checks that marks reduce the window only after the ACK of a packet sent after `since`.
fn no_decrease_for_a_round(flow: &mut Flow<'_>, since: Step) -> Result<()> {
    let (mut quiet, mut epochs) = (0, 0);
    flow.rtt_us = DELAYED_US;
    flow.gap_us = 20;
    for _ in 0..400 {
        let before = flow.tcp()?.snd_ssthresh;
        let step = flow.ack_next(Mark::Ce)?;
        let ended = step.sent_us >= since.at_us;
        let fell = step.tcp.snd_ssthresh < before;
        if !ended {
            ensure!(!fell, "a decrease {} us later", step.at_us - since.at_us);
            quiet += 1;
            epochs += u32::from(step.cc.acked_bytes == 0);
        } else if fell {
            ensure!(quiet > 5 && epochs > 1, "{epochs} epochs, {quiet} ACKs");
            return Ok(());
        }
    }
    anyhow::bail!("no decrease")
}

fn no_decrease_after_quick_adapt(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[("k_bytes", 30_000)])?;
    let fired = until_quick_adapt(&mut flow, 80, Mark::No)?;
    flow.unocc(&[("qa_beta", 0)])?;
    no_decrease_for_a_round(&mut flow, fired)
}

// Bounds and starts.

fn floor(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[("k_bytes", 33_000), ("qa_beta", 0)])?;
    flow.rtt_us = DELAYED_US;
    flow.acks_of(3 * BDP_PACKETS, Mark::Ce)?;
    for _ in 0..50 {
        let step = flow.ack_next(Mark::Ce)?;
        ensure!(step.cwnd() == 2, "the window is {}", step.cwnd());
    }
    Ok(())
}

fn ceiling(lab: &mut Lab) -> Result<()> {
    for (ratio, packets) in [(1_024, 100), (1_280, 125)] {
        let mut flow = steady(lab, &[("max_cwnd_bdp", ratio), ("ai_ppm", 200_000)])?;
        let step = flow.acks_of(600, Mark::No)?;
        ensure!(step.cwnd() == packets, "the window is {}", step.cwnd());
    }
    Ok(())
}

fn start_bdp(lab: &mut Lab) -> Result<()> {
    lab.unocc("paper", &[("start", 1)])?;
    let flow = Flow::open(lab, Setup::new("unocc"))?;
    let info = flow.tcp()?;
    ensure!(info.snd_cwnd == BDP_PACKETS, "starts with {}", info.snd_cwnd);
    ensure!(info.snd_ssthresh == BDP_PACKETS, "{}", info.snd_ssthresh);
    Ok(())
}

fn start_slow(lab: &mut Lab) -> Result<()> {
    lab.unocc("paper", &[])?;
    let mut flow = Flow::open(lab, Setup::new("unocc"))?;
    let window = in_slow_start(&mut flow)?;
    let step = flow.ack_next(Mark::Ce)?;
    ensure!(step.cwnd() == window, "cwnd {} after {window}", step.cwnd());
    ensure!(step.tcp.snd_ssthresh == window, "{}", step.tcp.snd_ssthresh);
    // Slow start has ended: a thousandth of the BDP per window.
    let step = flow.acks_of(30, Mark::No)?;
    ensure!(step.cwnd() <= window, "cwnd {} after {window}", step.cwnd());
    Ok(())
}

// Loss.

/// Packets that a loss leaves of a BDP.
const HALF: f64 = BDP_PACKETS as f64 / 2.0;

fn loss_takes_half(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    let step = lose_one(&mut flow)?;
    near("ssthresh", f64::from(step.tcp.snd_ssthresh), HALF, 1.0)?;
    let step = repaired(&mut flow)?;
    near("window", f64::from(step.cwnd()), HALF, 2.0)
}

fn timeout(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[])?;
    // All data in flight is lost.
    let in_flight = flow.arrived.len();
    for _ in 0..in_flight {
        flow.lose_next()?;
    }
    let first = flow.next_arrival()?;
    let info = flow.tcp()?;
    ensure!(info.ca_state == 4, "state {}", info.ca_state);
    ensure!(info.snd_cwnd == 1, "the window is {}", info.snd_cwnd);
    near("ssthresh", f64::from(info.snd_ssthresh), HALF, 1.0)?;
    flow.gap_us = 0;
    flow.deliver(&first, Mark::No)?;
    let step = repaired(&mut flow)?;
    let step = if f64::from(step.cwnd()) < HALF - 2.0 {
        flow.acks_of(BDP_PACKETS, Mark::No)?
    } else {
        step
    };
    near("window", f64::from(step.cwnd()), HALF, 3.0)
}

fn no_decrease_after_loss(lab: &mut Lab) -> Result<()> {
    let mut flow = steady(lab, &[("k_bytes", 30_000), ("qa_beta", 0)])?;
    let lost = lose_one(&mut flow)?;
    no_decrease_for_a_round(&mut flow, lost)
}

/// A packet arrives after the kernel has retransmitted it; D-SACK undoes the reduction.
fn late_packet(flow: &mut Flow<'_>) -> Result<()> {
    flow.gap_us = 28;
    flow.acks_of(4 * BDP_PACKETS, Mark::No)?;
    let late = flow.lose_next()?;
    let mut reduced = None;
    for _ in 0..60 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state == 3 {
            reduced = Some(step);
            break;
        }
    }
    let Some(reduced) = reduced else { anyhow::bail!("no fast retransmit") };
    ensure!(reduced.tcp.snd_ssthresh < 80, "{}", reduced.tcp.snd_ssthresh);
    flow.deliver(&late, Mark::No)?;
    for _ in 0..300 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state < 2 && step.cwnd() >= BDP_PACKETS - 1 {
            return Ok(());
        }
    }
    anyhow::bail!("the window stays at {}", flow.tcp()?.snd_cwnd)
}

fn undo_dsack(lab: &mut Lab) -> Result<()> {
    late_packet(&mut steady(lab, &[])?)
}

fn undo_timestamp(lab: &mut Lab) -> Result<()> {
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0)])?;
    let setup = Setup {
        timestamps: true,
        // Timestamps tick in milliseconds.
        rtt_us: 10_000,
        ..Setup::new("unocc")
    };
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0), ("line_rate_mbps", 80)])?;
    let mut flow = Flow::open(lab, setup)?;
    flow.write(BULK)?;
    flow.acks_of(3 * BDP_PACKETS, Mark::No)?;
    flow.gap_us = 140;
    flow.acks_of(4 * BDP_PACKETS, Mark::No)?;
    let window = flow.tcp()?.snd_cwnd;
    let late = flow.lose_next()?;
    let reduced = loop {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state == 3 {
            break step;
        }
    };
    ensure!(reduced.tcp.snd_ssthresh < 80, "{}", reduced.tcp.snd_ssthresh);
    // The ACK echoes the timestamp of the first transmission and so undoes the reduction at once.
    let step = flow.deliver(&late, Mark::No)?;
    ensure!(step.cwnd() >= window - 1, "cwnd {} of {window}", step.cwnd());
    ensure!(step.tcp.ca_state < 2, "state {}", step.tcp.ca_state);
    Ok(())
}

// Time.

fn pacing(lab: &mut Lab) -> Result<()> {
    let info = steady(lab, &[])?.tcp()?;
    let want = BDP_BYTES / RTT * 1e6;
    near("pacing rate", info.pacing_rate as f64, want, want / 1e3)?;
    // The first window of a flow leaves one packet per 20 us after its burst.
    let mut flow = Flow::open(lab, Setup::new("unocc"))?;
    flow.write(BULK)?;
    flow.wait_us(1_800)?;
    let sent: Vec<u64> = flow.arrived.iter().map(|a| a.sent_us).collect();
    ensure!(sent.len() > 60, "only {} packets", sent.len());
    for pair in sent[20..60].windows(2) {
        near("spacing", (pair[1] - pair[0]) as f64, 20.0, 1.0)?;
    }
    Ok(())
}

fn idle_window(lab: &mut Lab) -> Result<()> {
    let mut flow = at_bdp(lab, 200_000, &[])?;
    flow.acks_of(BDP_PACKETS, Mark::No)?;
    flow.wait_us(60_000_000)?;
    flow.write(BULK)?;
    ensure!(flow.tcp()?.snd_cwnd == BDP_PACKETS);
    let step = flow.acks_of(3 * BDP_PACKETS, Mark::No)?;
    ensure!(step.cwnd() == BDP_PACKETS, "cwnd fell to {}", step.cwnd());
    Ok(())
}

/// Base RTT computed from the pacing rate.
fn base_rtt_us(flow: &Flow<'_>) -> Result<f64> {
    let info = flow.tcp()?;
    let window = f64::from(info.snd_cwnd) * f64::from(info.snd_mss);
    Ok(window / info.pacing_rate as f64 * 1e6)
}

fn base_rtt_is_true(lab: &mut Lab) -> Result<()> {
    // A timestamp in milliseconds reads 1.8 ms as 1 ms or 2 ms.
    lab.unocc("paper", &[("start", 1), ("ai_ppm", 0)])?;
    let setup = Setup { timestamps: true, rtt_us: 1_800, ..Setup::new("unocc") };
    let mut flow = Flow::open(lab, setup)?;
    flow.write(BULK)?;
    flow.acks_of(3 * BDP_PACKETS, Mark::No)?;
    near("base RTT", base_rtt_us(&flow)?, 1_800.0, 100.0)?;
    // Retransmissions that arrive at each phase of the timestamp clock.
    for _ in 0..10 {
        flow.lose_next()?;
        flow.acks_of(2 * BDP_PACKETS, Mark::No)?;
        flow.wait_us(370)?;
    }
    let retransmitted = flow.tcp()?.total_retrans;
    ensure!(retransmitted >= 10, "only {retransmitted} retransmissions");
    near("base RTT", base_rtt_us(&flow)?, 1_800.0, 100.0)
}

fn base_rtt_expires(lab: &mut Lab) -> Result<()> {
    let mut flow = at_bdp(lab, BULK, &[("qa_beta", 0)])?;
    flow.rtt_us = 2 * RTT_US;
    // One packet per 20 ms is enough.
    flow.gap_us = 20_000;
    let begun = flow.steps[flow.steps.len() - 1].at_us;
    while flow.ack_next(Mark::No)?.at_us < begun + 8_000_000 {}
    near("base RTT after 8 s", base_rtt_us(&flow)?, RTT, 20.0)?;
    while flow.ack_next(Mark::No)?.at_us < begun + 22_000_000 {}
    let base_us = base_rtt_us(&flow)?;
    ensure!(base_us > 1.9 * RTT, "base RTT of {base_us} us after 22 s");
    Ok(())
}

fn profiles(lab: &mut Lab) -> Result<()> {
    for (profile, beta, start) in [("paper", 307, 0), ("artifact", 358, 1)] {
        lab.unocc(profile, &[])?;
        for (name, want) in [("md_gentle", beta), ("start", start)] {
            let got = std::fs::read_to_string(format!("/proc/sys/net/unocc/{name}"))?;
            ensure!(got.trim() == want.to_string(), "{profile}: {name} is {got}");
        }
    }
    // The algorithm toll has the tuned rule.
    ensure!(lab.unocc("linux", &[]).is_err(), "profile linux is accepted");
    Ok(())
}
