// SPDX-License-Identifier: GPL-2.0
//! Test cases, each named after the rule it checks.

mod gemini;
mod receiver;
mod signals;
mod unocc;
mod wire;

use anyhow::{Result, ensure};

use crate::flow::{Flow, Mark, Setup, Step};
use crate::lab::Lab;

/// One case.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Lab) -> Result<()>,
}

macro_rules! both {
    ($($rule:literal: $run:expr,)+) => {
        &[
            $(
                Case {
                    name: concat!("unocc: ", $rule),
                    run: |lab| $run(lab, "unocc"),
                },
                Case {
                    name: concat!("gemini: ", $rule),
                    run: |lab| $run(lab, "gemini"),
                },
            )+
        ]
    };
}
use both;

/// Bytes that most flows send: more than any case examines.
const BULK: usize = 6_000_000;

/// The kernel's TCP_INFINITE_SSTHRESH: slow start has not ended.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// Sets the parameters for cases of both algorithms.
fn parameters(lab: &Lab, cc: &str) -> Result<()> {
    match cc {
        "unocc" => lab.unocc("paper", &[("ai_ppm", 4_000), ("ewma", 333)]),
        _ => lab.gemini(&[("k_bytes", 1_000)]),
    }
}

/// Opens a flow and starts sending.
fn open<'a>(lab: &'a mut Lab, setup: Setup) -> Result<Flow<'a>> {
    parameters(lab, setup.cc)?;
    let mut flow = Flow::open(lab, setup)?;
    ensure!(flow.cc_name()? == setup.cc, "the algorithm is {}", flow.cc_name()?);
    flow.write(BULK)?;
    Ok(flow)
}

/// Checks that slow start adds a packet per ACK, also in the first window. Returns the window.
fn in_slow_start(flow: &mut Flow<'_>) -> Result<u32> {
    flow.write(BULK)?;
    let mut window = flow.tcp()?.snd_cwnd;
    for _ in 0..60 {
        let step = flow.ack_next(Mark::No)?;
        ensure!(step.cwnd() == window + 1, "cwnd {} after {window}", step.cwnd());
        ensure!(step.tcp.snd_ssthresh == INFINITE_SSTHRESH);
        window = step.cwnd();
    }
    Ok(window)
}

/// Starts `cc` on a socket without a route, so that no device gives it the link rate C.
fn begin_without_route(flow: &mut Flow<'_>, cc: &str) -> Result<()> {
    flow.switch_to("cubic")?;
    flow.forget_route()?;
    flow.switch_to(cc)?;
    // With a shorter RTT, the module would look for the device again.
    flow.rtt_us += 100;
    flow.write(BULK)
}

/// Loses one packet. Returns the step in which fast recovery begins.
fn lose_one(flow: &mut Flow<'_>) -> Result<Step> {
    flow.lose_next()?;
    for _ in 0..100 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state == 3 {
            return Ok(step);
        }
    }
    anyhow::bail!("no fast retransmit")
}

/// Acknowledges without marks until recovery ends.
fn repaired(flow: &mut Flow<'_>) -> Result<Step> {
    for _ in 0..2_000 {
        let step = flow.ack_next(Mark::No)?;
        if step.tcp.ca_state < 2 {
            return Ok(step);
        }
    }
    anyhow::bail!("recovery does not end")
}

/// Every case.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [unocc::CASES, gemini::CASES, wire::CASES, receiver::CASES, signals::CASES]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::all;

    const FLIPS: &str = include_str!("../../../../../selftests/host/flips.txt");
    const TLT: &str = include_str!("../../../../../selftests/guest/46-tlt.sh");
    const STORM_TLT: &str = include_str!("../../../storm/src/tlt.rs");
    const TLT_TAILS: &str = include_str!("../../../storm/src/tlt/tails.rs");
    const STORM_ACCELTOR: &str = include_str!("../../../storm/src/acceltor.rs");
    const UNORC: &str = include_str!("../../../../../selftests/guest/47-unorc.sh");
    const ROTOR: &str = include_str!("../../../../../selftests/guest/49-rotor.sh");

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for case in all() {
            assert!(seen.insert(case.name), "{} twice", case.name);
        }
    }

    #[test]
    fn a_flip_names_a_case() {
        let names: HashSet<_> = all().map(|case| case.name).collect();
        let flips = FLIPS.lines().filter(|line| !line.starts_with('#'));
        for flip in flips {
            let mut fields = flip.split('\t');
            let name = fields.next().unwrap_or_default();
            // Other programs run the cases of TLT, UnoRC and AccelToR.
            let known = match name.split_once(": ") {
                Some(("tlt", case)) => TLT.contains(&format!("\"{case}")),
                Some(("storm tlt", case)) => STORM_TLT.contains(&format!("\"{case}")),
                Some(("tlt tails", case)) => TLT_TAILS.contains(&format!("\"{case}")),
                Some(("unorc", case)) => UNORC.contains(&format!("\"{case}")),
                Some(("storm acceltor", case)) => STORM_ACCELTOR.contains(&format!("\"{case}")),
                Some(("acceltor", case)) => ROTOR.contains(&format!("\"{case}")),
                _ => names.contains(name),
            };
            assert!(known, "no case '{name}'");
            assert_eq!(fields.count(), 2, "{flip}");
        }
    }
}
