// SPDX-License-Identifier: GPL-2.0
//! `xdc bench`: instructions per ACK and per packet, counted in emulated boots.

use std::time::Duration;

use xdc_base::error::Result;
use xdc_base::home::{Flavour, Home};
use xdc_base::marked;
use xdc_guest::engine::{Clock, Engine, Machine};
use xdc_guest::{Guest, Watch};
use xdc_proto::{Job, Message, Plan};
use xdc_result::costs::Costs;
use xdc_scenario::engine::Kind;

use crate::args;
use crate::selftest::Tally;

/// Guest scripts and their number of processors; each runs in its own boot.
const TESTS: [(&str, u32); 2] = [("bench.sh", 1), ("bench-queues.sh", 4)];

/// Relative difference allowed between two boots, for any count.
const REPEATS_WITHIN: f64 = 0.01;

/// Name of the marks in docs/performance.md.
const MARK: &str = "bench";

#[derive(clap::Args)]
pub struct Request {
    /// Print the counts instead of the tables.
    #[arg(long)]
    json: bool,
    /// Write the tables of docs/performance.md.
    #[arg(long)]
    update_docs: bool,
    /// Count N times and compare; the tables show the first count.
    #[arg(long, value_name = "N", default_value_t = 1)]
    boots: u32,
    /// Give up on a guest that is silent for this long.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = args::seconds())]
    timeout: Duration,
}

/// Returns whether every case passed.
pub fn command(request: &Request) -> Result<bool> {
    let home = Home::find()?;
    let mut tally = Tally::default();
    let mut report = |line: &str| {
        if !request.json {
            println!("{line}");
        }
        tally.add(line);
    };
    let costs = count(&home, request.timeout, &mut report)?;
    for line in costs.judge() {
        report(&line);
    }
    for boot in 2..=request.boots {
        let difference = costs.furthest(&count(&home, request.timeout, &mut report)?);
        let verdict = if difference < REPEATS_WITHIN { "ok" } else { "not ok" };
        report(&format!(
            "{verdict} - boot {boot} counts the same: {:.3} % off at most",
            difference * 100.0
        ));
    }

    if request.json {
        println!("{}", serde_json::json!(costs));
    } else {
        println!("\n{}", costs.tables());
        println!("# xdc bench: {} passed, {} failed", tally.passed, tally.failed);
    }
    if request.update_docs {
        marked::update(&home.performance_page(), MARK, &costs.tables())?;
    }
    Ok(tally.failed == 0)
}

/// Counts once; output of the guests' cases goes to `report`.
fn count(home: &Home, timeout: Duration, report: &mut impl FnMut(&str)) -> Result<Costs> {
    let mut costs = Costs::default();
    for (test, cpus) in TESTS {
        boot(home, timeout, (test, cpus, &[]), &mut |line| {
            costs.read(line)?;
            report(line);
            Ok(())
        })?;
    }
    Ok(costs)
}

/// A flow whose callbacks' instructions are counted.
pub struct Counted {
    /// Name in TCP_CONGESTION.
    pub cc: String,
    /// net.ipv4.tcp_ecn of the sender.
    pub ecn: String,
    pub modules: Vec<String>,
    /// Such as `net.unocc.line_rate_mbps=1000`.
    pub sysctls: Vec<String>,
}

/// Instructions per ACK of each flow, in one boot; None for a flow that failed.
pub fn per_ack(home: &Home, timeout: Duration, flows: &[Counted]) -> Result<Vec<Option<f64>>> {
    let row = |n: usize| format!("row{n}");
    let asked = flows.iter().enumerate().map(|(n, flow)| {
        let modules = match flow.modules.is_empty() {
            true => "-".to_owned(),
            false => flow.modules.join(","),
        };
        let mut words = vec![row(n), flow.cc.clone(), flow.ecn.clone(), modules];
        words.extend(flow.sysctls.iter().cloned());
        words.join(" ")
    });
    let mut costs = Costs::default();
    let mut failed = Vec::new();
    let (test, cpus) = TESTS[0];
    boot(home, timeout, (test, cpus, &asked.collect::<Vec<_>>()), &mut |line| {
        costs.read(line)?;
        if let Some((_, case)) = line.split_once("not ok ") {
            failed.push(case.to_owned());
        }
        Ok(())
    })?;
    let rows = (0..flows.len()).map(|n| {
        let of_it = format!(" {}:", row(n));
        let passed = !failed.iter().any(|case| case.contains(&of_it));
        costs.per_ack(&row(n)).filter(|_| passed)
    });
    Ok(rows.collect())
}

/// Boots one guest whose clock counts instructions.
fn boot(
    home: &Home,
    timeout: Duration,
    (test, cpus, arguments): (&str, u32, &[String]),
    read: &mut impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let plan = Plan::of(Job::Selftest {
        tests: vec![test.to_owned()],
        long: false,
        arguments: arguments.to_vec(),
        root: None,
    });
    let guest = Guest {
        home,
        engine: Engine::new(home, Kind::Qemu, Flavour::X86, Clock::Icount)?,
        machine: Machine { cpus, memory_mb: 1024, spins: false },
    };
    let watch = Watch { stall: timeout, total: None, console: None };
    guest.run(&plan, &watch, |message| match message {
        Message::Ktap { line } => read(&line),
        _ => Ok(()),
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Reduces tables to headers, rulers and the first cell of each row.
    fn skeleton(tables: &str) -> Vec<String> {
        tables
            .lines()
            .map(|line| {
                let mut cells = line.split('|');
                match (cells.nth(1), cells.next()) {
                    (Some(name), Some(_)) if !name.trim().is_empty() && !name.contains("---") => {
                        format!("{} of {} cells", name.trim(), line.matches('|').count())
                    }
                    _ => line.to_owned(),
                }
            })
            .collect()
    }

    #[test]
    fn the_page_has_all_tables() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, shown, _) = marked::split(&page, MARK).unwrap();
        assert_eq!(
            skeleton(shown),
            skeleton(&Costs::default().tables()),
            "xdc bench --update-docs"
        );
        assert!(!shown.contains('?'), "every target was measured");
    }
}
