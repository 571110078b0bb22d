// SPDX-License-Identifier: GPL-2.0
//! `xdc bench`: instructions per ACK and per packet, counted in one emulated boot.

use std::fs;
use std::path::Path;
use std::time::Duration;

use xdc_proto::{Job, Message, Plan};

use crate::costs::Costs;
use crate::engine::{Clock, Engine, Kind, Machine};
use crate::error::{Error, Result};
use crate::guest::{Guest, Watch};
use crate::home::{Flavour, Home};
use crate::selftest::Tally;

const TEST: &str = "bench.sh";
const MACHINE: Machine = Machine {
    cpus: 1,
    memory_mb: 1024,
};

/// Between two boots, in any figure.
const REPEATS_WITHIN: f64 = 0.01;

/// The part of the page that [`command`] writes.
const BEGIN: &str = "<!-- bench: begin -->\n";
const END: &str = "<!-- bench: end -->";

/// Whether every case passed.
pub fn command(json: bool, update_docs: bool, boots: u32, timeout: Duration) -> Result<bool> {
    let home = Home::find()?;
    let mut tally = Tally::default();
    let mut report = |line: &str| {
        if !json {
            println!("{line}");
        }
        tally.add(line);
    };
    let costs = count(&home, timeout, &mut report)?;
    for line in costs.judge() {
        report(&line);
    }
    for boot in 2..=boots {
        let difference = costs.furthest(&count(&home, timeout, &mut report)?);
        let verdict = if difference < REPEATS_WITHIN {
            "ok"
        } else {
            "not ok"
        };
        report(&format!(
            "{verdict} - boot {boot} counts the same: {:.3} % off at most",
            difference * 100.0
        ));
    }

    if json {
        println!("{}", serde_json::json!(costs));
    } else {
        println!("\n{}", costs.tables());
        println!(
            "# xdc bench: {} passed, {} failed",
            tally.passed, tally.failed
        );
    }
    if update_docs {
        update(&home.performance_page(), &costs.tables())?;
    }
    Ok(tally.failed == 0)
}

/// One boot. What the guest's cases say goes to `report`.
fn count(home: &Home, timeout: Duration, report: &mut impl FnMut(&str)) -> Result<Costs> {
    let plan = Plan::of(Job::Selftest {
        tests: vec![TEST.to_owned()],
        long: false,
    });
    let guest = Guest {
        home,
        engine: Engine::new(home, Kind::Qemu, Flavour::X86, Clock::Icount)?,
        machine: MACHINE,
    };
    let watch = Watch {
        stall: timeout,
        total: None,
        console: None,
    };
    let mut costs = Costs::default();
    guest.run(&plan, &watch, |message| {
        if let Message::Ktap { line } = message {
            costs.read(&line)?;
            report(&line);
        }
        Ok(())
    })?;
    Ok(costs)
}

fn update(page: &Path, tables: &str) -> Result<()> {
    let failed = |err| Error::io(page.display(), &err);
    let text = fs::read_to_string(page).map_err(failed)?;
    let (before, _, after) = split(&text)
        .ok_or_else(|| Error::failure(format!("{} does not mark its tables", page.display())))?;
    fs::write(page, format!("{before}{BEGIN}{tables}{END}{after}")).map_err(failed)
}

/// A page before, in and after what we write.
fn split(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (tables, after) = rest.split_once(END)?;
    Some((before, tables, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers, rulers and the first cell of each row.
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
    fn the_page_has_the_tables_that_the_code_writes() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, shown, _) = split(&page).unwrap();
        assert_eq!(
            skeleton(shown),
            skeleton(&Costs::default().tables()),
            "xdc bench --update-docs"
        );
        assert!(!shown.contains('?'), "every target was measured");
    }
}
