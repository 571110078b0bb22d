// SPDX-License-Identifier: GPL-2.0
//! `xdc shell`: the terminal becomes the guest's console.

use crate::engine::{Clock, Engine, Kind, Machine};
use crate::error::Result;
use crate::guest::Guest;
use crate::home::{Flavour, Home};
use crate::{plan, scenario};

const MACHINE: Machine = Machine {
    cpus: 2,
    memory_mb: 2048,
};

pub fn command(scenario: Option<&str>, kind: Kind) -> Result<bool> {
    let home = Home::find()?;
    let loaded = scenario
        .map(|name| scenario::load(Some(&home), name, &[]))
        .transpose()?;
    let plan = plan::shell_plan(loaded.as_ref().map(|loaded| &loaded.scenario))?;
    let guest = Guest {
        home: &home,
        engine: Engine::new(&home, kind, Flavour::X86, Clock::Wall)?,
        machine: MACHINE,
    };
    eprintln!("xdc: 'exit' ends the guest");
    guest.interact(&plan)?;
    Ok(true)
}
