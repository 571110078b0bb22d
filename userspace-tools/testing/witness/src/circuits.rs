// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness circuits`: an optical circuit switch that observes AccelToR's racks.

use std::{io::Read, os::fd::AsRawFd, process::ExitCode};

use anyhow::{Context, Result, bail, ensure};
use nix::net::if_::if_nametoindex;
use xdc_bpf::circuits::{COUNTERS, Half, Switch, Timetable};
use xdc_netlink::{Connection, filter::Place, qdisc};

/// The upper half of 10.RACK.0.0.
const FIRST: u16 = 10 << 8;

/// Runs `circuits tai|monotonic BASE DAY NIGHT BYTES_PER_S DEV...`, with times in ns and a device for each
/// rack, whose addresses are 10.RACK.0.0/16. At the end of its input, prints the counters.
pub fn command(words: &[String]) -> ExitCode {
    match run(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdc-witness circuits: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let [clock, base, day, night, rate, devices @ ..] = words else {
        bail!("usage: circuits tai|monotonic BASE DAY NIGHT BYTES_PER_S DEV...");
    };
    ensure!((2..=255).contains(&devices.len()), "{} devices: must be 2 to 255", devices.len());
    let timetable = Timetable {
        tai: clock == "tai",
        base_ns: base.parse()?,
        day_ns: day.parse()?,
        night_ns: night.parse()?,
        bytes_per_s: rate.parse()?,
    };
    let index =
        |name: &String| if_nametoindex(name.as_str()).with_context(|| format!("no device {name}"));
    let devices = devices.iter().map(index).collect::<Result<Vec<_>>>()?;
    let n = devices.len() as u32;
    let switch = Switch::new(timetable, Half::Upper, &devices, 1)?;
    let mut connection = Connection::open()?;
    let mut programs = Vec::new();
    for (rack, device) in (0..).zip(&devices) {
        switch.has(FIRST + rack as u16, rack)?;
        let program = switch.program(rack)?;
        connection.batch([
            qdisc::clsact(*device),
            Place::ingress(*device).add("circuits", program.as_raw_fd()),
        ])?;
        programs.push(program);
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for from in 0..n {
        for to in 0..n {
            let counted = switch.counted(from, to)?;
            if counted.iter().any(|count| *count != 0) {
                let pairs = COUNTERS.iter().zip(counted);
                let text: Vec<_> = pairs.map(|(name, count)| format!("{name} {count}")).collect();
                println!("from {from} to {to} {}", text.join(" "));
            }
        }
    }
    Ok(())
}
