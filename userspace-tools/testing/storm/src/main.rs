// SPDX-License-Identifier: GPL-2.0
//! Stress tests of the modules: random requests, failing allocations, storms of marks. Runs as root in a
//! guest; `xdc` watches the guest's console and fails the run on any kernel complaint.

mod acceltor;
mod alarms;
mod alloc;
mod background;
mod diag;
mod fabric;
mod flow;
mod leaks;
mod live;
mod marks;
mod modules;
mod net;
mod netfilter;
mod netlink;
mod raw;
mod soak;
mod sock_ops;
mod sockets;
mod sys;
mod sysctl;
mod tlt;
mod unorc;

use std::{env, path::Path, process::ExitCode};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use xdc_algo::entry::Entry;
use xdc_ktap::Ktap;

use crate::{diag::Seen, flow::Tally, net::Balance};

#[derive(Parser)]
struct Args {
    /// Attack to run.
    attack: Attack,
    /// Seed of a run to repeat [default: 1; with XDC_LONG=1 random].
    #[arg(long)]
    seed: Option<u64>,
    /// Number of rounds, flows or requests.
    #[arg(long)]
    count: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Attack {
    /// Random requests to the qdisc.
    Netlink,
    /// Random writes to the parameters.
    Sysctl,
    /// Loading and unloading modules under their users.
    Modules,
    /// Congestion control switches on live sockets.
    Switch,
    /// Congestion control switches by a BPF program on sending sockets.
    SockOps,
    /// Destroying namespaces under traffic.
    Namespaces,
    /// Failing allocations.
    Alloc,
    /// Many flows at once.
    Many,
    /// Windows bounded by other limits.
    Clamps,
    /// TCP_REPAIR: dumping and restoring sockets.
    Repair,
    /// A path that corrupts ECN.
    Marks,
    /// Mixed load for minutes; needs virtual time.
    Soak,
    /// Round trips of zero and of minutes; needs virtual time.
    RoundTrips,
    /// TLT: forged marks, lying peers, and unloading under flows.
    Tlt,
    /// TLT beside pacing, probes, cork and Nagle; needs virtual time.
    TltTails,
    /// unorc: ends that restart, move or disappear under flows, and forged packets.
    Unorc,
    /// acceltor: schedules, clocks, uplinks and bonds that change under flows, and random requests.
    Acceltor,
    /// fabric: links, networks and settings that change under flows, and random packets and requests.
    Fabric,
    /// Leaks that kmemleak finds.
    Leaks,
    /// Deliberate mistakes, which must raise the alarm.
    Alarms,
}

/// State of one run.
pub struct Storm {
    /// Output of the cases.
    pub ktap: Ktap,
    /// Seed of all random choices.
    pub seed: u64,
    /// Long form, which may take hours.
    pub long: bool,
    /// Debug kernel: everything takes ten times as long.
    pub debug: bool,
}

impl Storm {
    /// All congestion controls: ours and the kernel's.
    pub fn ccs(&self) -> Vec<String> {
        let ours = modules::ccs().map(Entry::name);
        let all = ours.chain(["dctcp", "cubic", "bbr", "reno"]);
        all.map(str::to_string).collect()
    }

    /// Reports each tenth of the progress, in the long form only.
    pub fn progress(&mut self, before: u32, now: u32, count: u32) {
        let tenth = |n: u32| u64::from(n) * 10 / u64::from(count.max(1));
        if self.long && tenth(before) != tenth(now) {
            self.ktap.note(&format!("{now} of {count}"));
        }
    }

    /// Case: every flow arrived intact.
    pub fn flows_case(&mut self, what: &str, tally: Result<Tally>) {
        let text = match &tally {
            Ok(tally) => format!(
                "{what}: {} complete ({} bytes), {} aborted on purpose",
                tally.completed, tally.bytes, tally.aborted
            ),
            Err(_) => format!("{what}: all complete"),
        };
        self.ktap.case(&text, tally.map(|_| ()));
    }

    /// Case: socket dumps worked throughout, in every state.
    pub fn diag_case(&mut self, seen: Result<Seen>) {
        let text = seen.as_ref().map_or_else(|_| "inet_diag dumps".to_string(), Seen::text);
        self.ktap.case(&text, seen.and_then(|seen| seen.check()));
    }

    /// Case: a port's counters add up.
    pub fn balance_case(&mut self, what: &str, balance: Result<Balance>) {
        let text = match &balance {
            Ok(balance) => format!(
                "{what}: {} packets in = out + {} dropped + queued; {} marked",
                balance.offered, balance.dropped, balance.marked
            ),
            Err(_) => format!("{what}: packets in = out + dropped + queued"),
        };
        self.ktap.case(&text, balance.map(|_| ()));
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let long = env::var_os("XDC_LONG").is_some();
    let random = || if long { fastrand::u64(..) } else { 1 };
    let mut storm = Storm {
        ktap: Ktap::new(),
        seed: args.seed.unwrap_or_else(random),
        long,
        debug: Path::new("/proc/lockdep").exists(),
    };
    storm.ktap.note(&format!("{:?}: --seed {}", args.attack, storm.seed));
    // Columns: short, long, and both for the debug kernel.
    let which = usize::from(long) + 2 * usize::from(storm.debug);
    let count = |counts: [u32; 4]| args.count.unwrap_or(counts[which]);
    for name in modules::ours() {
        if let Err(error) = modules::load(name) {
            storm.ktap.case("the modules load", Err(error));
            return storm.ktap.finish();
        }
    }
    let outcome = match args.attack {
        Attack::Netlink => netlink::attack(&mut storm, count([100_000, 1_000_000, 2_000, 100_000])),
        Attack::Sysctl => sysctl::attack(&mut storm, count([100_000, 1_000_000, 3_000, 100_000])),
        Attack::Modules => modules::attack(&mut storm, count([10, 1_000, 10, 1_000])),
        Attack::Switch => live::switch(&mut storm, count([2_000, 200_000, 200, 20_000])),
        Attack::SockOps => sock_ops::attack(&mut storm, count([200, 20_000, 60, 2_000])),
        Attack::Namespaces => live::namespaces(&mut storm, count([6, 500, 4, 20])),
        Attack::Alloc => alloc::attack(&mut storm, count([25, u32::MAX, 8, u32::MAX])),
        Attack::Many => sockets::many(&mut storm, count([4_096, 4_096, 4_096, 4_096])),
        Attack::Clamps => sockets::clamps(&mut storm, count([5, 1_000, 3, 100])),
        Attack::Repair => sockets::repair(&mut storm, count([50, 20_000, 50, 2_000])),
        Attack::Marks => marks::attack(&mut storm, count([60, 20_000, 60, 2_000])),
        Attack::Soak => soak::hour(&mut storm, count([60, 600, 60, 600])),
        Attack::RoundTrips => soak::round_trips(&mut storm),
        Attack::Tlt => tlt::attack(&mut storm, count([4_096, 4_096, 256, 4_096])),
        Attack::TltTails => tlt::tails::attack(&mut storm),
        Attack::Unorc => unorc::attack(&mut storm, count([24, 1_000, 6, 100])),
        Attack::Acceltor => acceltor::attack(&mut storm, count([24, 1_000, 6, 100])),
        Attack::Fabric => fabric::attack(&mut storm, count([24, 1_000, 6, 100])),
        Attack::Leaks => leaks::attack(&mut storm),
        Attack::Alarms => alarms::attack(&mut storm),
    };
    if let Err(error) = outcome {
        storm.ktap.case("the attack runs", Err(error));
    }
    storm.ktap.finish()
}
